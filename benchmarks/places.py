"""Whether the place that a hit cites holds the words: sentences of made files are searched, and their places compared.

    python benchmarks/places.py

Makes PDFs of short and long pages with sentences over their ends, texts, Markdown, HTML, workbooks, presentations and
notebooks in three languages, indexes them by default settings, searches each sentence, and prints the share of cited
places (pages, lines, rows, cells) that hold it. Needs `reportlab`, `openpyxl` and `python-pptx`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import pointsman
from pointsman.embedders import HashingEmbedder

WORDS = {
    "en": [
        "railway",
        "switch",
        "guides",
        "every",
        "train",
        "onto",
        "proper",
        "track",
        "before",
        "night",
        "falls",
        "lever",
        "signal",
        "depot",
    ],
    "ru": [
        "стрелочник",
        "переводит",
        "каждый",
        "поезд",
        "нужный",
        "путь",
        "пока",
        "наступила",
        "ночь",
        "рычаг",
        "сигнал",
        "депо",
    ],
    "zh": ["道岔", "引导", "每一列", "火车", "驶上", "正确", "轨道", "直到", "夜晚", "拉杆", "信号", "车库"],
}
FONTS = {"en": "Helvetica", "ru": "DejaVu", "zh": "STSong-Light"}

Places = dict[str, set[int]]
"""The places of each sentence: pages, or lines."""


def sentences(language: str, count: int, rng: random.Random) -> list[str]:
    """Sentences that differ; each has a number of its own."""
    space = "" if language == "zh" else " "
    made = []
    for _ in range(count):
        words = rng.choices(WORDS[language], k=rng.randint(7, 16))
        number = rng.randrange(100_000, 999_999)
        made.append(f"{space.join(words).capitalize()}{space}{number}{'。' if language == 'zh' else '.'}")
    return made


def pdf(path: Path, language: str, pages: int, size: int, rng: random.Random) -> Places:
    """Write a PDF whose lines are wrapped, so that sentences run over the ends of pages; 0: a sentence a page."""
    from reportlab.pdfgen.canvas import Canvas

    canvas, places = Canvas(str(path)), dict[str, set[int]]()
    width = 30 if language == "zh" else 60
    text, space = sentences(language, pages * max(size, 1), rng), "" if language == "zh" else " "
    if not size:
        sheets = [[(sentence[start : start + width]) for start in range(0, len(sentence), width)] for sentence in text]
        places = {sentence: {page} for page, sentence in enumerate(text, start=1)}
    else:
        lines, line = [], ""
        for sentence in text:
            for word in sentence if language == "zh" else sentence.split():
                if len(line) + len(word) > width:
                    lines.append(line)
                    line = ""
                line += (space if line else "") + word
        lines.append(line)
        sheets = [lines[start : start + size] for start in range(0, len(lines), size)]
        offset, ends = 0, []
        for sheet in sheets:
            offset += sum(len(item.replace(" ", "")) for item in sheet)
            ends.append(offset)
        position = 0
        for sentence in text:
            end = position + len(sentence.replace(" ", ""))
            places[sentence] = {n for n, stop in enumerate(ends, 1) if position < stop and end > ([0, *ends])[n - 1]}
            position = end
    for sheet in sheets:
        canvas.setFont(FONTS[language], 11)
        for row, item in enumerate(sheet):
            canvas.drawString(60, 780 - 14 * row, item)
        canvas.showPage()
    canvas.save()
    return places


def lines(path: Path, language: str, rng: random.Random) -> Places:
    """Write a text, Markdown or HTML of one to three sentences a line, some lines of one paragraph."""
    rows = ["".join(f"{item} " for item in sentences(language, rng.randint(1, 3), rng)).strip() for _ in range(80)]
    places: Places = {}
    written: list[str] = []
    for row in rows:
        written.append(row)
        for item in row.replace("。 ", "。\n").replace(". ", ".\n").split("\n"):
            places[item] = {len(written)}
        if rng.random() < 0.2:
            written.append("<p>" if path.suffix == ".html" else "")
    path.write_text("\n".join(written), encoding="utf-8")
    return places


def workbook(path: Path, language: str, rng: random.Random) -> Places:
    """Write a workbook of one sentence a row."""
    from openpyxl import Workbook

    book, rows = Workbook(), sentences(language, 60, rng)
    book.active.append(["N", "T"])
    for number, row in enumerate(rows, start=2):
        book.active.append([number, row])
    book.save(path)
    return {row: {number} for number, row in enumerate(rows, start=2)}


def slides(path: Path, language: str, rng: random.Random) -> Places:
    """Write a presentation of one sentence a slide."""
    from pptx import Presentation

    show, rows = Presentation(), sentences(language, 20, rng)
    for row in rows:
        show.slides.add_slide(show.slide_layouts[5]).shapes.title.text = row
    show.save(str(path))
    return {row: {number} for number, row in enumerate(rows, start=1)}


def notebook(path: Path, language: str, rng: random.Random) -> Places:
    """Write a notebook of one sentence a cell."""
    rows = sentences(language, 29, rng)
    cells: list[dict[str, Any]] = [
        {"cell_type": ("markdown", "code")[n % 2], "source": row, "outputs": []} for n, row in enumerate(rows)
    ]
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    return {row: {number} for number, row in enumerate(rows, start=1)}


def made_files(folder: Path, rng: random.Random) -> dict[str, Places]:
    """Write all files, and return the places of their sentences by file."""
    files: dict[str, Places] = {}
    for language in WORDS:
        for number in range(14):
            name = f"{language}{number}.pdf"
            files[name] = pdf(folder / name, language, 6 if number % 2 else 3, (0, 3, 8, 25, 40)[number % 5], rng)
        for number in range(4):
            for ending, write in (
                ("txt", lines),
                ("md", lines),
                ("html", lines),
                ("xlsx", workbook),
                ("pptx", slides),
                ("ipynb", notebook),
            ):
                name = f"{language}{number}.{ending}"
                files[name] = write(folder / name, language, rng)
    return files


def cited(citation: Any, ending: str) -> set[int]:
    """Return all pages or lines that a citation names."""
    first, last = citation.lines if ending in ("txt", "md", "html", "xlsx") else (citation.page, citation.page_end)
    return set(range(first, last + 1))


def main() -> int:
    """Print a line for each format, and the total; exit with 1 below .99."""
    from matplotlib import get_data_path
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfbase.ttfonts import TTFont

    pdfmetrics.registerFont(TTFont("DejaVu", f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"))
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    rng = random.Random(7)
    counts: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as place:
        files = made_files(Path(folder), rng)
        with pointsman.open(place, embedder=HashingEmbedder()) as workspace:
            workspace.index(folder, dataset="x")
            for name, places in files.items():
                ending = name.rpartition(".")[2]
                count = counts.setdefault(ending, [0, 0, 0, 0])
                for sentence, where in rng.sample(sorted(places.items()), min(12, len(places))):
                    options: dict[str, Any] = {"datasets": ["x"], "filters": {"source": name}, "refuse": False}
                    hits = workspace.search(sentence, 1, **options).hits
                    words = "".join(sentence.split())
                    is_found = bool(hits) and words in "".join(hits[0].document.text.split())
                    names = cited(hits[0].citation, ending) if hits else set()
                    count[0] += is_found
                    count[1] += is_found and where <= names
                    count[2] += len(names - where) if is_found else 0
                    count[3] += 1
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    for ending, (found, right, beside, asked) in [*counts.items(), ("all", total)]:
        print(f"{ending:6} asked {asked:4}, whole sentence in the first hit {found:4}, its place holds it {right:4} "
              f"({right / max(found, 1):.3f}), other places named beside {beside / max(found, 1):.2f}")  # fmt: skip
    return int(total[1] < 0.99 * total[0])


if __name__ == "__main__":
    sys.exit(main())
