"""The service against its own OpenAPI description, by schemathesis."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import KeyStore
from server_kit import Served

CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422]

# where other programs expect 400 in place of 422
[[operations]]
include-path-regex = "^/v[12]/"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409]
"""


def run(examples: int, seed: int, *options: str) -> tuple[int, int, str]:
    """Requests made, server errors in the log, and what schemathesis has to say."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with pointsman.open(folder / "workspace", embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes", description="Notes on railways")
            notes.add([Document(f"d{n}", f"railway switch {n}", {"year": 2000 + n, "lang": "en"}) for n in range(50)])
        key = KeyStore(folder / "workspace" / "keys.json").create("contract").text
        (folder / "schemathesis.toml").write_text(CONFIG)
        with Served(folder / "workspace") as served:
            served.ready()
            command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", "schemathesis.toml", "run",
                       f"http://127.0.0.1:{served.port}/api/openapi.json", "--checks", "all", "--seed", str(seed),
                       "--header", f"Authorization: Bearer {key}", "--max-examples", str(examples),
                       "--continue-on-failure", *options]  # fmt: skip
            environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "160"}
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
            errors = sum(line.get("status", 0) >= 500 for line in served.lines() if line.get("route") != "/ready")
    made = re.search(r"([\d,]+) generated", done.stdout)
    told = done.stdout if done.returncode else ""
    return int(made[1].replace(",", "")) if made else 0, errors, told + done.stderr
