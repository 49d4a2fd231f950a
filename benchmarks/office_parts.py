"""Whether the words beside the text of office files are stored: headers, footers, comments, charts, notes, text boxes.

    python benchmarks/office_parts.py [--seed 11]

Makes 30 documents, workbooks and presentations in three languages with python-docx, openpyxl and python-pptx, whose
templates are Word's, Excel's and PowerPoint's, and converts each by LibreOffice into its own form and into OpenDocument
and RTF. Prints for each form how many of the written texts are stored; what LibreOffice leaves out is counted apart:
the parts of the file do not hold it. Exits with 1 below .99. Needs `python-docx`, `openpyxl`, `python-pptx`, and
LibreOffice's ``soffice`` on the PATH.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from pointsman.ingest import ParsedDocument, convert

WORDS = {
    "en": ["railway", "switch", "guides", "train", "track", "night", "lever", "signal", "depot", "frog", "gauge"],
    "ru": ["стрелочник", "поезд", "путь", "ночь", "рычаг", "сигнал", "депо", "крестовина", "колея", "мост"],
    "zh": ["道岔", "引导", "火车", "轨道", "夜晚", "拉杆", "信号", "车库"],
}
FORMS = {"docx": ("docx", "odt", "rtf"), "xlsx": ("xlsx", "ods"), "pptx": ("pptx", "odp")}
SECONDS = 300

Write = Callable[[Path, int, Callable[[], str]], None]
"""Writes the file of a number with texts that it asks for."""


def write_document(path: Path, number: int, text: Callable[[], str]) -> None:
    """Write headers and footers, some of a first page or of a second section, a comment and a table."""
    import docx

    document = docx.Document()
    section = document.sections[0]
    section.header.paragraphs[0].text, section.footer.paragraphs[0].text = text(), text()
    if number % 2:
        section.different_first_page_header_footer = True
        section.first_page_header.paragraphs[0].text = text()
        section.first_page_footer.paragraphs[0].text = text()
    document.add_heading(text(), 1)
    paragraph = document.add_paragraph(text())
    document.add_comment(runs=paragraph.runs, text=text(), author="Ann Smith", initials="AS")
    if number % 3 == 0:
        added = document.add_section()
        added.header.is_linked_to_previous = False
        added.header.paragraphs[0].text = text()
        document.add_paragraph(text())
    for row in document.add_table(2, 2).rows:
        for cell in row.cells:
            cell.text = text()
    document.save(str(path))


def write_workbook(path: Path, number: int, text: Callable[[], str]) -> None:
    """Write a table with a comment, a chart with titles, and the header and footer of the printed page."""
    from openpyxl import Workbook
    from openpyxl.chart import BarChart, Reference
    from openpyxl.comments import Comment

    book: Any = Workbook()
    sheet = book.active
    sheet.title = f"S{number}"
    sheet.append([text(), "Value"])
    for value in range(4):
        sheet.append([text(), value])
    sheet["A2"].comment = Comment(text(), "Ann")
    chart: Any = BarChart()
    chart.title, chart.x_axis.title, chart.y_axis.title = text(), text(), text()
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=5), titles_from_data=True)
    chart.set_categories(Reference(sheet, min_col=1, min_row=2, max_row=5))
    sheet.add_chart(chart, "D2")
    sheet.oddHeader.center.text, sheet.oddFooter.left.text = text(), text()
    book.save(path)


def write_slides(path: Path, number: int, text: Callable[[], str]) -> None:
    """Write slides with a chart, a text box and notes."""
    from pptx import Presentation
    from pptx.enum.chart import XL_CHART_TYPE

    show: Any = Presentation()
    for _ in range(1 + number % 2):
        slide = show.slides.add_slide(show.slide_layouts[5])
        slide.shapes.title.text = text()
        data = import_module("pptx.chart.data").CategoryChartData()
        data.categories = [text(), text()]
        data.add_series(text(), (1, 2))
        chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 4_000_000, 3_000_000, data).chart
        chart.has_title = True
        chart.chart_title.text_frame.text = text()
        slide.notes_slide.notes_text_frame.text = text()
        slide.shapes.add_textbox(0, 0, 99, 99).text_frame.text = text()
    show.save(str(path))


WRITERS: dict[str, Write] = {"docx": write_document, "xlsx": write_workbook, "pptx": write_slides}


def made_files(folder: Path, rng: random.Random) -> dict[str, list[str]]:
    """Write ten files of each kind, and return their texts by the file's stem."""
    texts: dict[str, list[str]] = {}
    for kind, write in WRITERS.items():
        for number in range(10):
            language = tuple(WORDS)[number % 3]
            space = "" if language == "zh" else " "
            written = texts.setdefault(f"{kind}{number}", [])

            def text(language: str = language, space: str = space, written: list[str] = written) -> str:
                words = [*rng.choices(WORDS[language], k=5), str(rng.randrange(10**5, 10**6))]
                written.append(space.join(words))
                return written[-1]

            write(folder / f"{kind}{number}.{kind}", number, text)
    return texts


def convert_by_libreoffice(folder: Path, kind: str, form: str) -> Path:
    """Convert all files of a kind, and return the folder in which they are.

    Raises:
        subprocess.SubprocessError: LibreOffice fails, or takes too long.
    """
    out = folder / f"by LibreOffice, {form}"
    files = sorted(map(str, folder.glob(f"*.{kind}")))
    command = ["soffice", f"-env:UserInstallation=file://{folder}/profile", "--headless", "--convert-to", form]
    subprocess.run([*command, "--outdir", str(out), *files], check=True, capture_output=True, timeout=SECONDS)
    return out


def bare(text: str) -> str:
    """Return a text without white space, by which forms differ."""
    return "".join(text.split())


def parts_of(path: Path) -> str:
    """Return the text of all XML in a file, without tags; empty if it is not an archive."""
    if not zipfile.is_zipfile(path):
        return ""
    with zipfile.ZipFile(path) as archive:
        parts = [archive.read(name).decode("utf-8", "replace") for name in archive.namelist() if name.endswith(".xml")]
    return bare(re.sub(r"<[^<>]*>", "", "\n".join(parts)))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    asked = right = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        texts = made_files(folder, random.Random(arguments.seed))
        for kind, forms in FORMS.items():
            for made in (folder, *(convert_by_libreoffice(folder, kind, form) for form in forms)):
                stored = missing = lost = 0
                files = [path for path in made.iterdir() if path.stem in texts and path.stem.startswith(kind)]
                for path in files:
                    items = [item for item in convert(path.name, path.read_bytes()) if isinstance(item, ParsedDocument)]
                    words, parts = bare("".join(f"{item.title} {item.text}" for item in items)), parts_of(path)
                    for text in map(bare, texts[path.stem]):
                        stored += text in words
                        lost += text not in words and bool(parts) and text not in parts
                        missing += text not in words
                form = f"{kind} as made" if made is folder else made.name
                asked, right = asked + stored + missing - lost, right + stored
                print(
                    f"{form:22} {len(files)} files, {stored} of {stored + missing - lost} texts, {lost} left out by it"
                )
    print(f"all: {right} of {asked} texts ({right / asked:.3f})")
    return int(right < 0.99 * asked)


if __name__ == "__main__":
    sys.exit(main())
