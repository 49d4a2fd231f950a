"""Whether the place that a hit cites holds the words, by what other programs read at that place.

    python benchmarks/places.py [--files FOLDER] [--squad FILE...]

Makes files of many formats in three languages, with sentences over the ends of pages, titles above tables, cells and
paragraphs over several lines, attachments and archives, indexes them by default settings, and searches each sentence.
What stands at the cited place is read by pdftotext (with poppler-data; else by pypdf) for a page, by openpyxl,
python-pptx, nbformat and python-docx for a row, slide, cell and heading, by Python's `csv`, `json`, `mailbox`, `email`
and `zipfile` for the others. ``--files`` does the same for a folder's PDFs, presentations, workbooks, texts, tables and
notebooks, whose sentences are drawn from what those programs read. ``--squad`` reads questions with answers in SQuAD's
form, puts the end of a page into the last sentence of each paragraph, and prints whether the pages of `answer_span`
hold the answer. Exits with 1 below .99. Needs `reportlab`, `openpyxl`, `python-pptx`, `python-docx`, `nbformat` and
`pypdf`.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import mailbox
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Hashable, Iterator
from email import message_from_bytes
from email.message import EmailMessage
from importlib import import_module
from pathlib import Path
from typing import Any

import pointsman
from pointsman.embedders import HashingEmbedder
from pointsman.text import sentences as sentence_spans
from pointsman.values.citations import answer_span
from pointsman.values.types import Document

WORDS = {
    "en": "railway switch guides every train onto proper track before night falls lever signal depot",
    "ru": "стрелочник переводит каждый поезд нужный путь пока наступила ночь рычаг сигнал депо",
    "zh": "道岔 引导 每一列 火车 驶上 正确 轨道 直到 夜晚 拉杆 信号 车库",
}
FONTS = {"en": "Helvetica", "ru": "DejaVu", "zh": "STSong-Light"}
ASKED = 12  # sentences of a file
REAL = ("pdf", "xlsx", "pptx", "ipynb", "txt", "md", "csv", "tsv")  # formats of ``--files``
LINES = ("txt", "md", "html", "csv", "tsv", "jsonl", "json", "py")

Units = dict[Hashable, str]
"""What another program reads, by place: pages, lines, rows, slides, cells, messages, headings, names of files."""


def written_sentences(language: str, count: int, rng: random.Random) -> list[str]:
    """Return sentences that differ; each has a number of its own."""
    space = "" if language == "zh" else " "
    texts = []
    for _ in range(count):
        words = rng.choices(WORDS[language].split(), k=rng.randint(7, 16))
        number = rng.randrange(100_000, 999_999)
        texts.append(f"{space.join(words).capitalize()}{space}{number}{'。' if language == 'zh' else '.'}")
    return texts


# ── made files: each writes one, and returns its sentences ───────────────────────────────────────────────────────────


def write_pdf(path: Path, language: str, rng: random.Random, *, pages: int, size: int) -> list[str]:
    """Write a PDF whose lines are wrapped, so that sentences run over the ends of pages; size 0: a sentence a page."""
    from reportlab.pdfgen.canvas import Canvas

    canvas, width = Canvas(str(path)), 30 if language == "zh" else 60
    texts, space = written_sentences(language, pages * max(size, 1), rng), "" if language == "zh" else " "
    if size:
        lines, line = [], ""
        for word in (word for text in texts for word in (text if language == "zh" else text.split())):
            if len(line) + len(word) > width:
                lines.append(line)
                line = ""
            line += (space if line else "") + word
        lines.append(line)
        sheets = [lines[start : start + size] for start in range(0, len(lines), size)]
    else:
        sheets = [[text[start : start + width] for start in range(0, len(text), width)] for text in texts]
    for sheet in sheets:
        canvas.setFont(FONTS[language], 11)
        for row, line in enumerate(sheet):
            canvas.drawString(60, 780 - 14 * row, line)
        canvas.showPage()
    canvas.save()
    return texts


def write_lines(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write a text or Markdown of one to three sentences a line, some lines of one paragraph."""
    rows = [written_sentences(language, rng.randint(1, 3), rng) for _ in range(80)]
    lines = [line for row in rows for line in (" ".join(row), *([""] if rng.random() < 0.2 else []))]
    path.write_text("\n".join(lines), encoding="utf-8")
    return [text for row in rows for text in row]


def write_page(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write an HTML page of long paragraphs over many lines, with marks, comments and tables between them."""
    texts = written_sentences(language, 120, rng)
    lines = ["<!doctype html>", "<title>Page</title>", "<body>"]
    for start in range(0, len(texts), 30):
        lines += ["<!-- a comment", "of two lines -->", "<p>"]
        for number, text in enumerate(texts[start : start + 25]):
            lines.append(text.replace(" ", " <b>", 1) + "</b>" if number % 3 else text)
        lines += ["</p>", "<table>"]
        for number, text in enumerate(texts[start + 25 : start + 30]):
            lines.append(f"<tr><td>{number}</td>\n<td>{text}</td></tr>")
        lines.append("</table>")
    path.write_text("\n".join(lines), encoding="utf-8")
    return texts


def write_table(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write a CSV or TSV with titles above its header, and cells over several lines."""
    texts = written_sentences(language, 60, rng)
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t" if path.suffix == ".tsv" else ";")
    writer.writerows([["Report of 2024"], ["Ann Smith"]] if path.stem[-1] in "02" else [])
    writer.writerow(["number", "words", "price"])
    for number, text in enumerate(texts):
        cell = text if number % 3 else text.replace(text[5], f"{text[5]}\n", 1)
        writer.writerow([number, cell, f"{number / 2:.2f}"])
    path.write_text(out.getvalue(), encoding="utf-8")
    return texts


def write_records(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write JSON or JSON lines, some records with others in them."""
    texts = written_sentences(language, 60, rng)
    records: list[dict[str, Any]] = [{"number": number, "words": text} for number, text in enumerate(texts)]
    for record in records[::2]:
        record["parts"] = [{"a": record["number"]}, {"b": "inner"}]
    if path.suffix == ".json":
        path.write_text(json.dumps(records, indent=1, ensure_ascii=False), encoding="utf-8")
    else:
        path.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in records), encoding="utf-8")
    return texts


def write_workbook(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write a workbook of two sheets, a sentence a row."""
    from openpyxl import Workbook

    book, texts = Workbook(), written_sentences(language, 60, rng)
    for sheet, rows in ((book.active, texts[:40]), (book.create_sheet("Second"), texts[40:])):
        sheet.append(["N", "T"])
        for number, text in enumerate(rows):
            sheet.append([number, text])
    book.save(path)
    return texts


def write_slides(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write a presentation of one sentence a slide."""
    from pptx import Presentation

    show, texts = Presentation(), written_sentences(language, 20, rng)
    for text in texts:
        show.slides.add_slide(show.slide_layouts[5]).shapes.title.text = text
    show.save(str(path))
    return texts


def write_notebook(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write a notebook of one sentence a cell."""
    notebooks: Any = import_module("nbformat.v4")

    texts = written_sentences(language, 29, rng)
    cells = [(notebooks.new_markdown_cell, notebooks.new_code_cell)[n % 2](text) for n, text in enumerate(texts)]
    path.write_text(json.dumps(notebooks.new_notebook(cells=cells)), encoding="utf-8")
    return texts


def write_document(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write a Word document of short and long sections under numbered headings."""
    import docx

    document, texts = docx.Document(), written_sentences(language, 60, rng)
    for start in range(0, 60, 6):
        document.add_heading(f"Section {start}", level=1 + (start // 6) % 2)
        for text in texts[start : start + 6]:
            document.add_paragraph(text)
    document.save(str(path))
    return texts


def message(texts: list[str], attachments: dict[str, str]) -> EmailMessage:
    """Return a message of sentences, and of attached texts."""
    mail = EmailMessage()
    mail["Subject"], mail["From"] = "Report", "Ann <ann@example.org>"
    mail.set_content("\n".join(texts))
    for name, text in attachments.items():
        mail.add_attachment(text.encode(), maintype="application", subtype="octet-stream", filename=name)
    return mail


def write_mailbox(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write a mailbox of twenty messages."""
    texts = written_sentences(language, 60, rng)
    box = mailbox.mbox(str(path))
    for start in range(0, 60, 3):
        box.add(message(texts[start : start + 3], {}))
    box.close()
    return texts


def write_mail(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write a message with five attachments."""
    texts = written_sentences(language, 60, rng)
    names = ("a.txt", "b.md", "c/d.txt", "e.log", "таблица.txt")
    files = {name: "\n".join(texts[start : start + 10]) for name, start in zip(names, range(10, 60, 10), strict=True)}
    path.write_bytes(message(texts[:10], files).as_bytes())
    return texts


def write_archive(path: Path, language: str, rng: random.Random) -> list[str]:
    """Write an archive of five texts, one of them in an archive of its own."""
    texts = written_sentences(language, 60, rng)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("deep/e.txt", "\n".join(texts[48:]))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, start in zip(("a.txt", "docs/b.md", "c.txt", "d.log"), range(0, 48, 12), strict=True):
            archive.writestr(name, "\n".join(texts[start : start + 12]))
        archive.writestr("inner.zip", inner.getvalue())
    return texts


WRITERS: dict[str, Callable[[Path, str, random.Random], list[str]]] = {
    **dict.fromkeys(("txt", "md"), write_lines), "html": write_page, **dict.fromkeys(("csv", "tsv"), write_table),
    **dict.fromkeys(("json", "jsonl"), write_records), "xlsx": write_workbook, "pptx": write_slides,
    "ipynb": write_notebook, "docx": write_document, "mbox": write_mailbox, "eml": write_mail, "zip": write_archive,
}  # fmt: skip


def made_files(folder: Path, rng: random.Random) -> dict[str, list[str]]:
    """Write all files, and return their sentences by file."""
    files: dict[str, list[str]] = {}
    for language in WORDS:
        for number in range(14):
            name = f"{language}{number}.pdf"
            pages, size = 6 if number % 2 else 3, (0, 3, 8, 25, 40)[number % 5]
            files[name] = write_pdf(folder / name, language, rng, pages=pages, size=size)
        for ending, write in WRITERS.items():
            for number in range(4):
                name = f"{language}{number}.{ending}"
                files[name] = write(folder / name, language, rng)
    return files


# ── what other programs read at each place ───────────────────────────────────────────────────────────────────────────


def units_of(path: Path) -> Units:
    """Return what another program reads in a file, by place.

    Raises:
        Exception: any, as libraries meet damaged files.
    """
    ending = path.suffix[1:].lower()
    if ending in ("csv", "tsv"):
        return dict(table_units(path))
    return READERS.get(ending, line_units)(path)


def line_units(path: Path) -> Units:
    return dict(enumerate(path.read_text("utf-8").replace("\r\n", "\n").split("\n"), start=1))


def table_units(path: Path) -> Iterator[tuple[Hashable, str]]:
    """Yield each row at the line on which it begins; its other lines hold nothing."""
    text, line = path.read_text("utf-8"), 1
    delimiter = "\t" if path.suffix == ".tsv" else csv.Sniffer().sniff(text[:4000], ",;\t|").delimiter
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    for row in reader:
        yield line, "\n".join(row)
        line = reader.line_num + 1


def page_units(path: Path) -> Units:
    from pypdf import PdfReader

    if shutil.which("pdftotext"):
        done = subprocess.run(["pdftotext", str(path), "-"], capture_output=True, check=True, timeout=60)
        texts = done.stdout.decode("utf-8", "replace").split("\f")[:-1]
    else:
        texts = [page.extract_text() for page in PdfReader(path).pages]
    return dict(enumerate(texts, start=1))


def row_units(path: Path) -> Units:
    from openpyxl import load_workbook

    return {
        (page, number): "\n".join(str(cell) for cell in row if cell is not None)
        for page, sheet in enumerate(load_workbook(path, data_only=True).worksheets, start=1)
        for number, row in enumerate(sheet.iter_rows(values_only=True), start=1)
    }


def slide_units(path: Path) -> Units:
    from pptx import Presentation

    return {
        number: "\n".join(shape.text_frame.text for shape in slide.shapes if shape.has_text_frame)
        for number, slide in enumerate(Presentation(str(path)).slides, start=1)
    }


def cell_units(path: Path) -> Units:
    nbformat: Any = import_module("nbformat")

    notebook = nbformat.read(path, as_version=4)
    return {number: cell["source"] for number, cell in enumerate(notebook["cells"], start=1)}


def heading_units(path: Path) -> Units:
    """Return the text under each heading."""
    import docx

    units: dict[Hashable, str] = {}
    heading = ""
    for paragraph in docx.Document(str(path)).paragraphs:
        if str(paragraph.style and paragraph.style.name).startswith("Heading"):
            heading = paragraph.text
        else:
            units[heading] = f"{units.get(heading, '')}\n{paragraph.text}"
    return units


def message_units(path: Path) -> Units:
    return {number: body_of(item) for number, item in enumerate(mailbox.mbox(str(path)), start=1)}


def body_of(item: Any) -> str:
    texts = (part.get_payload(decode=True).decode() for part in item.walk() if part.get_content_type() == "text/plain")
    return "\n".join(texts)


def attachment_units(path: Path) -> Units:
    """Return the message at None, and the lines of its attachments at their names."""
    mail: Any = message_from_bytes(path.read_bytes())
    units: dict[Hashable, str] = {None: body_of(mail)}
    for part in mail.walk():
        if name := part.get_filename():
            lines = part.get_payload(decode=True).decode().split("\n")
            units |= {(name, number): line for number, line in enumerate(lines, start=1)}
    return units


def archive_units(data: Path | io.BytesIO, folder: str = "") -> Units:
    """Return the lines of the files in an archive at their names."""
    units: dict[Hashable, str] = {}
    with zipfile.ZipFile(data) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith(".zip"):
                units |= archive_units(io.BytesIO(content), f"{folder}{name}/")
            else:
                lines = enumerate(content.decode().split("\n"), start=1)
                units |= {(f"{folder}{name}", number): line for number, line in lines}
    return units


READERS: dict[str, Callable[[Any], Units]] = {
    "pdf": page_units, "xlsx": row_units, "pptx": slide_units, "ipynb": cell_units, "docx": heading_units,
    "mbox": message_units, "eml": attachment_units, "zip": archive_units,
}  # fmt: skip


def cited_places(citation: Any, ending: str) -> list[Hashable]:
    """Return all places that a citation names, in order."""
    pages = range(citation.page, citation.page_end + 1) if citation.page else ()
    lines = range(citation.lines[0], citation.lines[1] + 1) if citation.lines else ()
    if ending in ("eml", "zip"):
        return [(citation.member, line) for line in lines] if citation.member else [None]
    if ending == "docx":
        return [citation.title.split(" › ")[-1].removesuffix(f" ({Path(citation.source).stem})")]
    if ending == "xlsx":
        return [(citation.page, line) for line in lines]
    return list(lines if ending in LINES else pages)


# ── the measurement ──────────────────────────────────────────────────────────────────────────────────────────────────


def bare(text: str) -> str:
    """Return a text without white space, hyphens and tags, by which programs differ."""
    return "".join(re.sub(r"<[^<>\n]{0,100}>|[-\u00ad\u2010]", "", text).split()).lower()


def drawn_sentences(units: Units, rng: random.Random) -> list[str]:
    """Return long sentences that stand once in a file and within one place of it."""
    all_text = bare("".join(units.values()))
    texts = []
    for text in units.values():
        for start, end in sentence_spans(text[:20_000]):
            sentence = " ".join(text[start:end].split())
            if 40 <= len(sentence) <= 300 and all_text.count(bare(sentence)) == 1:
                texts.append(sentence)
    return rng.sample(texts, min(ASKED, len(texts)))


def measure(folder: Path, files: dict[str, list[str]], rng: random.Random) -> bool:
    """Index a folder, search the sentences of its files, print a line for each format; return whether .99 are right."""
    counts: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as place, pointsman.open(place, embedder=HashingEmbedder()) as workspace:
        workspace.index(folder, dataset="x")
        for name, texts in files.items():
            ending, units = name.rpartition(".")[2].lower(), units_of(folder / name)
            count = counts.setdefault(ending, [0, 0, 0, 0])
            for sentence in rng.sample(texts, min(ASKED, len(texts))):
                options: dict[str, Any] = {"datasets": ["x"], "filters": {"source": name}, "refuse": False}
                hits = workspace.search(sentence, 1, **options).hits
                words = bare(sentence)
                count[0] += 1
                if not hits or words not in bare(hits[0].document.text):
                    continue
                places = cited_places(hits[0].citation, ending)
                is_right = words in bare("".join(units.get(place, "") for place in places))
                count[1] += 1
                count[2] += is_right
                while is_right and len(places) > 1 and ending == "pdf":  # the fewest pages that hold it
                    shorter = [part for part in (places[1:], places[:-1])
                               if words in bare("".join(units.get(place, "") for place in part))]  # fmt: skip
                    if not shorter:
                        break
                    count[3] += 1
                    places = shorter[0]
                if not is_right:
                    print(f"    {name}: {hits[0].citation}: {sentence[:90]!r}")
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    for ending, (asked, whole, right, more) in [*sorted(counts.items()), ("all", total)]:
        print(f"{ending:6} asked {asked:4}, whole sentence in the first hit {whole:4}, cited place holds it {right:4} "
              f"({right / max(whole, 1):.3f}), pages named beside {more}")  # fmt: skip
    return bool(total[2] >= 0.99 * total[1])


def real_files(folder: Path, rng: random.Random) -> dict[str, list[str]]:
    """Return sentences of the files in a folder by file, as other programs read them."""
    files: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix[1:].lower() in REAL and path.is_file():
            try:
                units = units_of(path)
            except Exception:  # noqa: BLE001  (any error of the other program: nothing to compare with)
                continue
            if texts := drawn_sentences(units, rng):
                files[path.relative_to(folder).as_posix()] = texts
    return files


def answers_on_their_pages(path: Path, rng: random.Random) -> None:
    """Print of a file of questions how often the cited pages hold the answer, and are one."""
    asked = right = narrow = 0
    articles = json.loads(path.read_text("utf-8"))["data"]
    for paragraph in (paragraph for article in articles for paragraph in article["paragraphs"]):
        text = paragraph["context"]
        start, end = sentence_spans(text)[-1]
        if start == 0 or end - start < 3:
            continue
        for question in paragraph["qas"]:
            page_break = rng.randint(start + 1, end - 1)
            document = Document("x", text, {"page_break": page_break})
            first, last = answer_span(document, question["question"]) or (0, len(text))
            begin, answer = question["answers"][0]["answer_start"], question["answers"][0]["text"]
            pages = {begin >= page_break, begin + len(answer) - 1 >= page_break}
            cited = {first >= page_break, last - 1 >= page_break}
            asked, right, narrow = asked + 1, right + (pages <= cited), narrow + (len(cited) == 1)
    figures = f"answer not on the cited pages {asked - right}, one page {narrow / asked:.2f}"
    print(f"{path.name}: {asked} questions, {figures}")


def main() -> int:
    """Print the measurements."""
    from matplotlib import get_data_path
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfbase.ttfonts import TTFont

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=Path, help="a folder of files to draw sentences from")
    parser.add_argument("--squad", type=Path, nargs="*", default=[], help="questions with answers, in SQuAD's form")
    arguments = parser.parse_args()
    rng = random.Random(7)
    for path in arguments.squad:
        answers_on_their_pages(path, rng)
    if arguments.files:
        return int(not measure(arguments.files, real_files(arguments.files, rng), rng))
    pdfmetrics.registerFont(TTFont("DejaVu", f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"))
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    with tempfile.TemporaryDirectory() as folder:
        return int(not measure(Path(folder), made_files(Path(folder), rng), rng))


if __name__ == "__main__":
    sys.exit(main())
