"""What a new user types in the first minute, at a terminal and in a pipe; each command runs in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from command_kit import run_command
from pointsman import Document, Workspace
from pointsman.embedders import HashingEmbedder

COMMAND = [sys.executable, "-m", "pointsman"]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "COLUMNS"},
    "POINTSMAN_EMBEDDER": "hashing",
}
LONG = "A railway switch guides trains from one track to another. " * 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a workspace of three short documents."""
    folder = tmp_path_factory.mktemp("first")
    with Workspace(folder / ".pointsman", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add(
            [
                Document("rails", LONG, {"source": "rails.md", "title": "Switches :smile:"}),
                Document("tea", "Green tea is brewed below boiling point.", {"source": "tea.md", "title": "Tea"}),
                Document("fuse", "Change a fuse: switch off the main first.", {"source": "fuse.md", "title": "Fuses"}),
            ]
        )
    return folder


def run(folder: Path, *arguments: str, question: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    process = run_command(*arguments, folder=folder, environment=ENVIRONMENT, standard_input=question.encode())
    assert process.returncode == code, f"exit {process.returncode}\n{process.stdout}\n{process.stderr}"
    return process


def first_id(process: subprocess.CompletedProcess[str]) -> str:
    return str(json.loads(process.stdout)["hits"][0]["id"])


def test_a_question_needs_no_quotes(folder: Path) -> None:
    process = run(folder, "search", "how", "do", "I", "change", "a", "fuse", "-k", "1", "--strategy", "bm25", "--json")
    assert first_id(process) == "fuse"
    assert json.loads(process.stdout)["query"] == "how do I change a fuse"


@pytest.mark.parametrize("arguments", [["-"], []])
def test_a_question_is_read_from_standard_input(folder: Path, arguments: list[str]) -> None:
    process = run(folder, "search", *arguments, "--strategy", "bm25", "--json", question="green tea\n")
    assert first_id(process) == "tea"


def test_an_empty_standard_input_is_no_question(folder: Path) -> None:
    assert "no question" in run(folder, "search", code=2).stderr


def test_nothing_is_wrapped_or_padded_in_a_pipe(folder: Path) -> None:
    for arguments in (
        ["search", "railway switch", "--refuse", "never", "--explain"],
        ["datasets"],
        ["status"],
        ["config"],
    ):
        text = run(folder, *arguments).stdout
        assert not [line for line in text.splitlines() if line != line.rstrip()]
    lines = run(folder, "search", "railway switch", "--strategy", "bm25", "-k", "1").stdout.splitlines()
    assert lines[0].startswith("1. Switches :smile:")  # a name for an emoji in a document stays text
    assert max(map(len, lines)) > 200


def test_deleting_what_is_not_there_is_exit_code_1(folder: Path) -> None:
    for arguments in (["nosuch"], ["--source", "nosuch"]):
        process = run(folder, "delete", "--dataset", "notes", *arguments, code=1)
        assert "not in 'notes': nosuch" in process.stderr
        assert "0 documents deleted" in process.stdout
    process = run(folder, "delete", "--dataset", "notes", "nosuch", "--json", code=1)
    assert json.loads(process.stdout)["missing"] == ["nosuch"]


def test_an_empty_workspace_says_how_to_index(tmp_path: Path) -> None:
    (tmp_path / ".pointsman" / "datasets").mkdir(parents=True)
    assert "start with: pointsman index PATH" in run(tmp_path, "search", "anything").stdout


@pytest.mark.parametrize("command", [[], ["search"], ["keys"], ["keys", "create"]])
def test_short_help(folder: Path, command: list[str]) -> None:
    assert run(folder, *command, "-h").stdout.startswith("Usage: ")


def test_help_lists_every_command_in_a_group(folder: Path) -> None:
    text = run(folder, "--help").stdout
    groups = ["Keep documents:", "Ask:", "Measure and improve:", "Serve:", "Check and rebuild:"]
    positions = [text.index(group) for group in groups]
    assert positions == sorted(positions)
    assert "Commands:" not in text
    assert "--install-completion" in text
    assert "..." not in text.partition("Keep documents:")[2]


@pytest.mark.parametrize(
    "arguments",
    [("search", "tea"), ("index", ".", "-d", "d"), ("datasets",), ("serve",), ("mcp",), ("config",), ("verify",)],
)
def test_a_settings_file_that_came_with_a_folder_sends_nothing_elsewhere(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "pointsman.toml").write_text('llm_base_url = "http://localhost:9/v1"\nworkspace = "w"\n', "utf-8")
    errors = run(tmp_path, *arguments, code=2).stderr
    assert errors.count("sets llm_base_url, workspace") == errors.count("POINTSMAN_CONFIG=") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["pointsman.toml"]


def test_a_search_in_a_folder_loads_no_client_of_services(folder: Path) -> None:
    code = "import sys; from pointsman.cli import main\n"
    code += "try: main()\nfinally: print('pointsman.service.client' in sys.modules)"
    command = [sys.executable, "-c", code, "search", "tea", "--strategy", "bm25"]
    process = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=True
    )
    assert process.stdout.splitlines()[-1] == "False"


def serve_until_it_listens(folder: Path, *, terminal: bool) -> str:
    """Start the service with a terminal or a pipe as standard error; return its first line, and end it."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    service = subprocess.Popen([*COMMAND, "serve", "--port", "0"], cwd=folder, env=ENVIRONMENT, stderr=writer)
    try:
        os.close(writer)
        with os.fdopen(reader, "rb", buffering=0) as stream:
            line = b""
            while not line.endswith(b"\n") and (character := stream.read(1)):
                line += character
            service.send_signal(signal.SIGTERM)
            service.wait(60)
    finally:
        if service.poll() is None:
            service.kill()
            service.wait()
    return line.decode().strip()


def test_the_service_logs_text_on_a_terminal_and_json_elsewhere(folder: Path) -> None:
    line = serve_until_it_listens(folder, terminal=True)
    assert " pointsman serves " in line
    assert line.count("http://127.0.0.1:") == 1
    assert not line.startswith("{")
    assert "http://127.0.0.1:" in json.loads(serve_until_it_listens(folder, terminal=False))["address"]
