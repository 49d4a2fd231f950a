"""X2: versions 1 and 2 of the protocol's SDK, as servers and as clients of each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pointsman.integrations.mcp.mcp_sdk import check_version
from pointsman.service.server.access.api_keys import KeyStore
from pointsman.tools.errors import DependencyVersionError, MissingDependencyError
from test_mcp import TOOLS, fill

FIRST = os.environ.get("POINTSMAN_MCP1", "")
"""A Python with Pointsman's dependencies and a version of the SDK below 2: `make mcp1` makes one and names it."""

CANCELLER = Path(__file__).parent / "mcp_cancel_client.py"

with_first = pytest.mark.skipif(not FIRST, reason="POINTSMAN_MCP1 names no Python with mcp<2; run make mcp1")

CLIENT = """
import json, sys
import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client

async def main(program, *arguments):
    parameters = StdioServerParameters(command=program, args=list(arguments), env=dict(__import__("os").environ))
    async with stdio_client(parameters) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        results = []
        for name, arguments in ASKED:
            result = await session.call_tool(name, arguments)
            results.append(result.model_dump(mode="json", by_alias=True))
        try:
            await session.call_tool("nothing", {})
        except Exception as error:
            results.append(str(error))
        print(json.dumps({"tools": tools, "results": results}))

anyio.run(main, *sys.argv[1:])
"""
OVER_HTTP = """
import json, sys
import anyio
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

async def main(url, key):
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {key}"}) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        result = await session.call_tool("list_datasets", {})
        print(json.dumps(result.model_dump(mode="json", by_alias=True)["structuredContent"]))

anyio.run(main, *sys.argv[1:])
"""
SERVER = """
import sys
import uvicorn
import pointsman
from pointsman.integrations.mcp import create_http_app
from pointsman.embedders.scripted_embedders import HashingEmbedder

with pointsman.Workspace(sys.argv[1], embedder=HashingEmbedder()) as workspace:
    uvicorn.Server(uvicorn.Config(create_http_app(workspace), port=0, log_level="info")).run()
"""

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
    transports.listen(lambda _: app, Options(sys.argv[1], port=0), keys_of(workspace.backend), None)
"""
"""A server that takes as many requests a minute as come; `pointsman mcp --http` has no option for that."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("versions") / "workspace"
    fill(path).close()
    return path


def converse(client: str, server: str, *arguments: str, calls: list[tuple[str, dict[str, Any]]]) -> Any:
    program = f"ASKED = {calls!r}\n{CLIENT}"
    command = [client, "-c", program, server, "-m", "pointsman", "mcp", "--embedder", "hashing", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0, process.stderr[-3_000:]
    return json.loads(process.stdout)


@with_first
@pytest.mark.parametrize("client", ["first", "second"])
@pytest.mark.parametrize("server", ["first", "second"])
def test_each_version_serves_each(folder: Path, client: str, server: str) -> None:
    python = {"first": FIRST, "second": sys.executable}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search", {"query": "switch tracks", "datasets": ["railway"]}),
        ("fetch", {"id": "railway/switch"}),
        ("grep", {"pattern": "tra[ci]", "regex": True}),
        ("search", {"query": 5}),
    ]
    answers = converse(python[client], python[server], "--workspace", str(folder), calls=calls)
    assert tuple(answers["tools"]) == TOOLS
    search, fetch, grep, wrong, unknown_tool = answers["results"]
    assert search["structuredContent"]["results"][0]["id"] == "railway/switch"
    assert fetch["structuredContent"]["text"] == "A train changes tracks at a switch."
    assert {match["id"] for match in grep["structuredContent"]["matches"]} >= {"railway/switch", "railway/signal"}
    assert "'query'" in wrong["content"][0]["text"]
    assert wrong["isError"] is True
    assert unknown_tool.startswith("there is no tool 'nothing'")


@with_first
@pytest.mark.parametrize(("client", "server"), [("first", "second"), ("second", "first"), ("first", "first")])
def test_each_version_serves_each_over_http_by_keys(tmp_path: Path, client: str, server: str) -> None:
    python = {"first": FIRST, "second": sys.executable}
    folder = tmp_path / "workspace"
    fill(folder).close()
    key = KeyStore(folder / "keys.json").create("ours", datasets=["railway"], scopes=["read"]).text
    process = subprocess.Popen([python[server], "-c", SERVER, str(folder)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        address = ""
        while not address:
            line = process.stderr.readline()
            assert line, "it has ended"
            address = line.partition("running on ")[2].partition(" ")[0]
        command = [python[client], "-c", OVER_HTTP, f"{address}/mcp", key]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert [dataset["name"] for dataset in json.loads(done.stdout)["datasets"]] == ["railway"]


@pytest.mark.parametrize("number", ["1.24.0", "1.30.0", "2.3.0", "2.11.0b1"])
def test_these_versions_are_taken(number: str) -> None:
    check_version(number)


@pytest.mark.parametrize("number", ["0.9.1", "1.9.4", "1.23.3", "2.0.0", "2.2.0", "3.0.0"])
def test_a_version_that_cannot_be_used_is_named_with_those_that_can(number: str) -> None:
    with pytest.raises(DependencyVersionError) as error_info:
        check_version(number)
    assert isinstance(error_info.value, MissingDependencyError)
    assert "'mcp' in a version from 1.24 up to 1.x, or from 2.3 up to 2.x" in str(error_info.value)
    assert f"{number} is installed" in str(error_info.value)


@pytest.mark.parametrize("python", [sys.executable, pytest.param(FIRST, marks=with_first)], ids=["installed", "first"])
def test_a_stdio_server_survives_cancelled_calls_and_ends_with_0(python: str, tmp_path: Path) -> None:
    fill(tmp_path)
    server = [python, "-m", "pointsman", "mcp", "--workspace", str(tmp_path), "--embedder", "hashing"]
    command = [sys.executable, str(CANCELLER), "stdio", "29", "400", *server]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    outcome = json.loads(process.stdout)
    assert (outcome["exit"], outcome["answered"]) == (0, True), outcome["errors"][-2000:]
    assert "Traceback" not in outcome["errors"]


@pytest.mark.parametrize("python", [sys.executable, pytest.param(FIRST, marks=with_first)], ids=["installed", "first"])
def test_an_http_server_survives_cancelled_calls_keeps_no_connection_and_ends_with_0(
    python: str, tmp_path: Path
) -> None:
    fill(tmp_path).close()
    command = [sys.executable, str(CANCELLER), "http", "29", "60", python, "-c", UNLIMITED_SERVER, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    outcome = json.loads(process.stdout)
    assert (outcome["exit"], outcome["answered"]) == (0, True), outcome["errors"][-2000:]
    assert outcome["sockets_after"] <= outcome["sockets_before"]
    for line in outcome["errors"].splitlines():
        assert "Traceback" not in line
        # what the oldest SDK says of a client that has left
        assert '"level": "error"' not in line or "Stateless session crashed" in line
