"""A newcomer's first minutes: 34 mixed files, from an empty folder to answers.

    python benchmarks/first_hour.py [--install] [--megabytes 1.4]

Makes 34 files in ten formats (Markdown, HTML, Word, PowerPoint, Excel, PDF, CSV, JSON, e-mail, notebook, plain text in
several encodings, code) in English, Russian and Chinese, runs ``pointsman index`` on them, and asks meanwhile, by
words, for a sentence of each file until it is among the hits. No vector is there before. On a machine that others use
too, go by the processor time: what it comes to when two cores are free is told as well. With ``--install`` it first
makes a virtual environment and installs this checkout into it, with pip's cache as it is. Passages come from the XQuAD
collections.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pointsman
from test_ingest_convert import minimal_pdf

if TYPE_CHECKING:
    from pointsman import Dataset

ROOT = Path(__file__).parents[1]
DATA = ROOT / ".." / "shared" / "data"

Writer = Callable[[list[str]], bytes]


def word(texts: list[str]) -> bytes:
    import docx

    document = docx.Document()
    for number, text in enumerate(texts):
        document.add_heading(f"Part {number}", level=1 + number % 2)
        document.add_paragraph(text)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def sheet(texts: list[str]) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["number", "text"])
    for number, text in enumerate(texts):
        book.active.append([number, text])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def slides(texts: list[str]) -> bytes:
    import pptx

    show = pptx.Presentation()
    for text in texts:
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = text[:40], text
    out = io.BytesIO()
    show.save(out)
    return out.getvalue()


def mail(texts: list[str]) -> bytes:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Notes", "a@example.org", "b@example.org"
    message.set_content("\n\n".join(texts))
    return message.as_bytes()


def notebook(texts: list[str]) -> bytes:
    cells = [{"cell_type": "markdown", "metadata": {}, "source": text} for text in texts]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def code(texts: list[str]) -> bytes:
    parts = (f'def part_{number}():\n    """{text}"""\n    return {number}\n' for number, text in enumerate(texts))
    return "\n\n".join(parts).encode()


def rows(texts: list[str]) -> bytes:
    quoted = (text.replace('"', '""') for text in texts)
    return "\n".join(["text", *(f'"{text}"' for text in quoted)]).encode()


def plain(encoding: str) -> Writer:
    return lambda texts: "\n\n".join(texts).encode(encoding, "replace")


def written(join: str, begin: str = "", end: str = "") -> Writer:
    return lambda texts: (begin + join.join(texts) + end).encode()


WRITERS: list[tuple[str, str, Writer]] = [
    *((f"{language}.md", language, written("\n\n## Next\n\n", "# Guide\n\n")) for language in ("en", "ru", "zh")),
    *((f"more-{language}.md", language, written("\n\n", "# More\n\n")) for language in ("en", "ru", "zh")),
    *((f"{language}.html", language, written("</p><p>", "<h1>A</h1><p>")) for language in ("en", "ru", "zh")),
    *((f"{language}.docx", language, word) for language in ("en", "ru", "zh")),
    *((f"{language}.xlsx", language, sheet) for language in ("en", "ru", "zh")),
    *((f"{language}.pptx", language, slides) for language in ("en", "zh")),
    ("ru.eml", "ru", mail),
    *((f"{language}.ipynb", language, notebook) for language in ("en", "ru")),
    *((f"{language}.csv", language, rows)
      for language in ("en", "ru")),
    *((f"{language}.json", language, lambda texts: json.dumps([{"text": text} for text in texts]).encode())
      for language in ("en", "zh")),
    *((f"{language}.py", language, code) for language in ("en", "ru")),
    ("a.pdf", "en", lambda texts: minimal_pdf(*(text.encode("ascii", "ignore").decode().translate(
        str.maketrans("", "", "()\\")) for text in texts))),
    *((f"{encoding}.txt", language, plain(encoding)) for encoding, language in (
        ("utf-8", "en"), ("koi8-r", "ru"), ("windows-1251", "ru"), ("utf-16", "ru"), ("gb18030", "zh"),
        ("utf-8-sig", "zh"),
        ("cp1252", "en"))),
]  # fmt: skip


def make_files(folder: Path, size: int) -> dict[str, str]:
    """The files, and a phrase of each by name."""
    texts = {
        language: [
            " ".join(json.loads(line)["text"].split())
            for line in (DATA / f"{language}_xquad" / "corpus.jsonl").read_text("utf-8").splitlines()
        ]
        for language in ("en", "ru", "zh")
    }
    phrases: dict[str, str] = {}
    places = dict.fromkeys(texts, 0)
    for name, language, write in WRITERS:
        chosen: list[str] = []
        while sum(len(text.encode()) for text in chosen) < size / len(WRITERS):
            chosen.append(texts[language][places[language] % len(texts[language])])
            places[language] += 1
        (folder / name).write_bytes(write(chosen))
        phrases[name] = chosen[0][:60] if language == "zh" else " ".join(chosen[0].split()[:9])
    return phrases


def is_answered(dataset: Dataset, name: str, phrase: str) -> bool:
    hits = dataset.search(phrase, 20, strategy="bm25", refuse=False, rerank=False, effort="fast")
    return any(hit.metadata.get("source") == name for hit in hits)


def install(folder: Path) -> Path:
    """The command in an environment of its own."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    command = [str(folder / "venv" / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", str(ROOT)]
    subprocess.run(command, check=True)
    print(f"environment and installation, wheels cached: {time.perf_counter() - began:.1f} s")
    return folder / "venv" / "bin" / "pointsman"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="into an environment of its own first")
    parser.add_argument("--megabytes", type=float, default=1.4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "notes")
        folder.mkdir()
        phrases = make_files(folder, int(arguments.megabytes * 1e6))
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{len(phrases)} files, {size / 1e6:.2f} MB; load of the machine {os.getloadavg()[0]:.1f}")
        began = time.perf_counter()
        command = [str(install(Path(temporary)))] if arguments.install else [
            sys.executable, "-m", "pointsman"
        ]  # fmt: skip
        started = time.perf_counter()
        environment = os.environ | {"POINTSMAN_CACHE": str(Path(temporary, "cache"))}  # nothing is embedded already
        process = subprocess.Popen(
            [*command, "index", ".", "-d", "notes", "--json"], cwd=folder, stdout=subprocess.PIPE, env=environment
        )
        waiting, first, last = dict(phrases), 0.0, 0.0
        with pointsman.open(folder / ".pointsman") as workspace:
            dataset = workspace.dataset("notes")
            while waiting:
                ended = process.poll() is not None
                for name in [name for name, phrase in waiting.items() if is_answered(dataset, name, phrase)]:
                    del waiting[name]
                    last = time.perf_counter()
                    first = first or last
                if ended:
                    break
                time.sleep(0.5)
        report = json.loads(process.communicate()[0])
        done = time.perf_counter()
        print(f"first answer after {first - started:.1f} s of indexing ({first - began:.1f} s with installation)")
        print(f"a sentence of each file found by words after {last - started:.1f} s; missing: {list(waiting)}")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = used.ru_utime + used.ru_stime
        print(
            f"all {report['documents']} passages with vectors after {done - started:.1f} s; processor time of all "
            f"that was started {spent:.0f} s ({spent / 2:.0f} s on two cores); {len(report['problems'])} problems; "
            f"{report['vectors_due']} vectors missing; load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    main()
