"""X2: which versions of the protocol's SDK are taken, and that servers survive calls that are cancelled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.integrations.mcp.mcp_sdk import check_version
from pointsman.tools.errors import DependencyVersionError, MissingDependencyError
from test_mcp import fill

CANCELLER = Path(__file__).parent / "mcp_cancel_client.py"

UNLIMITED_SERVER = """
import sys
import pointsman
from pointsman.integrations.mcp import create_http_app, transports
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server.access.api_keys import keys_of
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.service.server.run import Options

with pointsman.Workspace(sys.argv[1], embedder=HashingEmbedder()) as workspace:
    app = create_http_app(workspace, limits=Limits(requests_per_minute=0))
    transports.listen(app, Options(sys.argv[1], port=0), keys_of(workspace.backend), None)
"""
"""A server that takes as many requests a minute as come; `pointsman mcp --http` has no option for that."""


@pytest.mark.parametrize("number", ["2.3.0", "2.11.0b1"])
def test_these_versions_are_taken(number: str) -> None:
    check_version(number)


@pytest.mark.parametrize("number", ["0.9.1", "1.30.0", "2.0.0", "2.2.0", "3.0.0"])
def test_a_version_that_cannot_be_used_is_named_with_those_that_can(number: str) -> None:
    with pytest.raises(DependencyVersionError) as error_info:
        check_version(number)
    assert isinstance(error_info.value, MissingDependencyError)
    assert "'mcp' in a version from 2.3 up to 2.x" in str(error_info.value)
    assert f"{number} is installed" in str(error_info.value)


def test_a_stdio_server_survives_cancelled_calls_and_ends_with_0(tmp_path: Path) -> None:
    fill(tmp_path)
    server = [sys.executable, "-m", "pointsman", "mcp", "--workspace", str(tmp_path), "--embedder", "hashing"]
    command = [sys.executable, str(CANCELLER), "stdio", "29", "400", *server]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    outcome = json.loads(process.stdout)
    assert (outcome["exit"], outcome["answered"]) == (0, True), outcome["errors"][-2000:]
    assert "Traceback" not in outcome["errors"]


def test_an_http_server_survives_cancelled_calls_keeps_no_connection_and_ends_with_0(tmp_path: Path) -> None:
    fill(tmp_path).close()
    command = [
        sys.executable,
        str(CANCELLER),
        "http",
        "29",
        "60",
        sys.executable,
        "-c",
        UNLIMITED_SERVER,
        str(tmp_path),
    ]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    outcome = json.loads(process.stdout)
    assert (outcome["exit"], outcome["answered"]) == (0, True), outcome["errors"][-2000:]
    assert outcome["sockets_after"] <= outcome["sockets_before"]
    for line in outcome["errors"].splitlines():
        assert "Traceback" not in line
        assert '"level": "error"' not in line
