"""The service against its own OpenAPI description: thousands of made-up requests, all checks of schemathesis.

    python benchmarks/contract.py [--examples 60] [--seed 1]

Valid and invalid requests, sequences of them, undeclared methods, missing keys: no answer may be a server error, or
anything that the description does not say. A request that fits the schema may still be one that cannot be done, as
filter expressions have a grammar that no JSON schema tells: 409 and 422 are right answers to it. And deleting some
documents does not delete the path that they are under.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pointsman
from pointsman import Document
from pointsman.models.scripted import HashingEmbedder
from pointsman.server import KeyStore
from server_kit import Served

CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422]
"""

HOOKS = """
import json
import schemathesis
from schemathesis.specs.openapi.checks import use_after_free as checked

@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
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
        (folder / "hooks.py").write_text(HOOKS)
        with Served(folder / "workspace") as served:
            served.ready()
            command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", "schemathesis.toml", "run",
                       f"http://127.0.0.1:{served.port}/api/openapi.json", "--checks", "all", "--seed", str(seed),
                       "--header", f"Authorization: Bearer {key}", "--max-examples", str(examples),
                       "--continue-on-failure", *options]  # fmt: skip
            environment = {"PATH": "/usr/bin:/bin", "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": name, "COLUMNS": "160"}
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
            errors = sum(line.get("status", 0) >= 500 for line in served.lines() if line.get("route") != "/ready")
    made = re.search(r"([\d,]+) generated", done.stdout)
    told = done.stdout if done.returncode else ""
    return int(made[1].replace(",", "")) if made else 0, errors, told + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=60, help="made-up requests an operation, of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    made, errors, told = run(options.examples, options.seed)
    print(f"{made} requests, {errors} server errors, {'violations of the contract:' if told else 'no violation'}")
    if told or errors:
        sys.exit(told or 1)


if __name__ == "__main__":
    main()
