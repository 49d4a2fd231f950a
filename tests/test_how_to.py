"""The how-to pages are run: the files in them, and the suites over them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from command_kit import run_program

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "write-a-store.md"


def test_the_store_of_the_how_to_passes_the_suite(tmp_path: Path) -> None:
    store, suite, use = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (tmp_path / "fts_store.py").write_text(store, "utf-8")
    (tmp_path / "test_fts_store.py").write_text(suite, "utf-8")
    (tmp_path / "use.py").write_text(use, "utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # other packages' plugins take longer to import than the suite takes
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_fts_store.py"]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-5000:]
    summary = re.search(r"(\d+) passed", process.stdout)
    assert summary is not None
    assert int(summary[1]) >= 25
    process = subprocess.run(
        [sys.executable, "use.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (process.stdout.strip(), process.returncode) == ("a", 0), process.stderr[-3000:]


DOCS = Path(__file__).parents[1] / "docs"


def run_page(page: str, folder: Path) -> None:
    """Run the blocks of a page under ``<!-- run -->`` in one folder; each prints the lines of the block below it."""
    block = re.compile(r"<!-- run -->\n```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
    blocks = block.findall((DOCS / page).read_text("utf-8"))
    assert blocks
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for language, code, expected in blocks:
        environment = {**os.environ, "PATH": programs}
        if language == "sh":
            command = ["bash", "-e", "-c", code]
            process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        else:
            process = run_program(code, folder=folder, environment=environment)
        assert process.returncode == 0, process.stderr[-3000:]
        missing = [line for line in expected.splitlines() if line not in process.stdout]
        assert not missing, (missing, process.stdout[-3000:])


def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    run_page("tutorial.md", tmp_path)


def test_the_how_to_for_another_embedder_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    run_page("how-to/change-the-embedder.md", tmp_path)


def test_the_how_to_for_evaluating_your_own_runs(tmp_path: Path) -> None:
    run_page("how-to/evaluate-your-own.md", tmp_path)
