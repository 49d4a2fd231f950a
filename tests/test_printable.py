"""What documents, file names and servers say does not control a terminal, by whichever command it is printed."""

from __future__ import annotations

import io
import json
import logging
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointsman
from command_kit import run_command
from pointsman import Document
from pointsman.cli import output
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server.request_log import LineFormatter, line_of
from pointsman.tools.printable import printable

HOSTILE = "a\x1b[31mb\x9b31mc\x1b]0;title\x07d\u202egnp.exe\u202c\u2066e\u2069\x7f\r\x08f"
READABLE = "Signal стрелка 道岔 سکه\u200cها שלום café e\u0301 👩\u200d🔧 — “x” \t\n"
FORBIDDEN = {chr(code) for code in (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0))} | set(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


@given(st.text(st.characters(), max_size=50))
def test_nothing_that_controls_a_terminal_is_left(text: str) -> None:
    safe = printable(text)
    assert not FORBIDDEN & set(safe)
    assert printable(safe) == safe
    assert safe.encode("utf-8").decode("utf-8") == safe
    assert not {"\t", "\n"} & set(printable(text, one_line=True))
    if not any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in text):
        assert safe == text


def test_text_of_every_script_stays_readable() -> None:
    assert printable(READABLE) == READABLE


def test_escapes_name_the_character() -> None:
    assert printable("\x1b\x9b\u202e\ud800") == r"\x1b\x9b\u202e\ud800"


@given(st.text(st.characters(), max_size=50))
def test_a_line_of_the_log_is_the_same_json_without_what_controls_a_terminal(text: str) -> None:
    line = line_of({"message": text})
    assert json.loads(line) == {"message": text}
    assert not FORBIDDEN & set(line)


def test_a_log_for_people_has_escapes_also_in_exceptions() -> None:
    try:
        raise OSError(HOSTILE)
    except OSError:
        record = logging.LogRecord("pointsman", logging.ERROR, __file__, 1, HOSTILE, (), sys.exc_info())
    assert not FORBIDDEN & set(LineFormatter(as_json=False).format(record))


def test_the_console_escapes_text_and_keeps_its_own_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.table import Table

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
    table = Table("name")
    table.add_row(HOSTILE)
    for value in (HOSTILE, table):
        output.console().print(value, style="bold", markup=False)
    printed = stream.getvalue()
    assert "\x1b[1m" in printed, "the style"
    assert "\x1b[31m" not in printed
    assert not (FORBIDDEN - {"\x1b"}) & set(printed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    with pointsman.open(folder, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes", description=HOSTILE)
        dataset.add([Document(f"id {HOSTILE}", f"signal {HOSTILE}", {"source": f"{HOSTILE}.md", "title": HOSTILE})])
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "signal", "--refuse", "never"],
        ["search", "signal", "--refuse", "never", "--explain"],
        ["search", "signal", "--refuse", "never", "--json"],
        ["search", HOSTILE, "--refuse", "never"],
        ["search", "signal", "--dataset", HOSTILE],
        ["search", "signal", "--filter", f"{HOSTILE} ="],
        ["route", HOSTILE],
        ["datasets"],
        ["status"],
        ["status", "--json"],
        ["verify"],
        ["index", HOSTILE, "--dataset", "notes"],
        ["text", HOSTILE, "--dataset", "notes"],
        ["drop", HOSTILE],
    ],
    ids=lambda arguments: " ".join(arguments).replace(HOSTILE, "HOSTILE"),
)
def test_no_command_lets_stored_text_or_an_argument_control_the_terminal(folder: Path, arguments: list[str]) -> None:
    process = run_command(*arguments, "--workspace", str(folder))
    text = process.stdout + process.stderr
    assert "Traceback" not in text
    assert text.strip()
    assert not FORBIDDEN & set(text)
