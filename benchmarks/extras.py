"""Installs every extra alone in a fresh environment and uses it: ``python benchmarks/extras.py [--python P] [mcp …]``.

A program for each imports what the extra is for, and runs its command where it has one. `tests/test_extras.py` asks the
same of one environment in which other packages are hidden. Exit code 1 if one fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
SEARCH = """
import pathlib, subprocess, sys

def run(*arguments, text=""):
    command = [str(pathlib.Path(sys.executable).parent / "pointsman"), *arguments]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True, timeout=300).stdout

pathlib.Path("notes.md").write_text("# Switches\\n\\nA switch guides trains from one track to another.\\n")
run("index", "notes.md", "--dataset", "notes")
assert "notes.md" in run("search", "What guides trains?")
"""
"""What must work with any extra, and without one."""

PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
PROGRAMS = {
    "": """
        from pointsman import Client, open
        Client("http://127.0.0.1:9"), open("http://127.0.0.1:9")
    """,
    "docs": "import mkdocs, mkdocstrings",
    "eval": """
        pathlib.Path("questions.csv").write_text("query,source\\nWhat guides trains?,notes.md\\n")
        assert "ndcg@10" in run("eval", "questions.csv", "--dataset", "notes")
    """,
    "haystack": "import pointsman.integrations.haystack",
    "images": "import pointsman.ingest.converters.pictures, PIL.Image",
    "ocr": "import pointsman.ingest.converters.pictures as pictures; assert pictures.any_engine()",
    "onnx": "import pointsman.embedders.onnx_directory, tokenizers",
    "opensearch": "import pointsman.store.opensearch.opensearch_backend",
    "langchain": "import pointsman.integrations.langchain",
    "llama-index": "import pointsman.integrations.llama_index",
    "mcp": f"""
        assert '"result"' in run("mcp", text={PING!r})
        import pointsman.integrations.mcp.mcp_servers
    """,
    "postgres": "import pointsman.store.postgres.postgres_backend",
    "openai": "import pointsman.embedders.openai_embedder, pointsman.llm.openai_llm",
    "server": """
        import threading, urllib.request
        service = subprocess.Popen([str(pathlib.Path(sys.executable).parent / "pointsman"), "serve", "--port", "0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Timer(120, service.kill).start()
        try:
            import re
            address = next(found[0] for line in service.stdout if (found := re.search(r"http://[0-9.:]+", line)))
            assert urllib.request.urlopen(address + "/health", timeout=60).status == 200
        finally:
            service.terminate()
            service.wait(60)
    """,
    "tokens": "import jwt, pointsman.service.server.access.signed_tokens",
    "watch": "import watchfiles, pointsman.workspace.indexing.folder_sync",
}
"""The programs, by extra. `sentence-transformers` (PyTorch, gigabytes) and the extras of developers are left out."""


def uses(extra: str, python: str) -> str | None:
    """Install an extra with this Python and run its program; return the end of the error, None if it works."""
    with tempfile.TemporaryDirectory(prefix="pointsman-extra-") as folder:
        subprocess.run([python, "-m", "venv", f"{folder}/venv"], check=True)
        own_python = f"{folder}/venv/bin/python"
        package = f"{ROOT}[{extra}]" if extra else str(ROOT)
        install = [own_python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
        program = SEARCH + textwrap.dedent(PROGRAMS[extra])
        for command in (install, [own_python, "-c", program]):
            completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            if completed.returncode:
                return completed.stderr[-1500:]
    return None


def main() -> int:
    """Try the named extras, or all, and print a line for each; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help="by default all")
    parser.add_argument("--python", default=sys.executable, help="the interpreter, by default this one")
    arguments = parser.parse_args()
    problems = 0
    for extra in arguments.extras or PROGRAMS:
        error = uses(extra, arguments.python)
        print(f"{extra or 'no extra':12} {'works' if error is None else 'FAILS'}", flush=True)
        if error is not None:
            print(textwrap.indent(error, "    "), flush=True)
            problems += 1
    return min(problems, 1)


if __name__ == "__main__":
    sys.exit(main())
