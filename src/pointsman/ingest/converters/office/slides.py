"""PowerPoint presentations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pointsman.ingest.converters.office.archive import (
    FORMULA,
    Archive,
    document_title,
    drawing_blocks,
    formula_text,
    whole_number,
)
from pointsman.ingest.converters.paragraphs import Paragraphs, list_number, superscript_mark
from pointsman.ingest.source_text import Block, Problem, outline

if TYPE_CHECKING:
    from lxml.etree import _Element

    from pointsman.ingest.conversion import Conversion, Converted

_DRAW = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SLIDE = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_NUMBER_FORMS = {  # of these kinds of automatic numbers; the others are in digits
    "alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman", "romanUc": "upperRoman",
    "circleNum": "decimalEnclosedCircle", "ea1": "chineseCounting",
}  # fmt: skip
_NUMBER_SIGNS = {"Period": "{}.", "ParenR": "{})", "ParenBoth": "({})"}
_BY_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def pptx(path: str, data: bytes, conversion: Conversion) -> Converted:
    """Convert slides to pages: the title as heading, text, tables, charts, diagrams, comments, speaker's notes."""
    archive = Archive(data, "PowerPoint presentation")
    relations = archive.relations("ppt/presentation.xml")
    slides = [
        relations.get(element.get(_BY_ID, ""), "") for element in archive.ends("ppt/presentation.xml", f"{_SLIDE}sldId")
    ]
    most_pages = conversion.limits.pages
    if len(slides) > most_pages:
        yield Problem(path, f"{len(slides)} slides; only the first {most_pages} are read")
    blocks: list[Block] = []
    footers: set[str] = set()  # many slides have the same: it is read on the first
    for page, slide in enumerate(slides[:most_pages], start=1):
        if slide not in archive.names:
            yield Problem(path, f"slide {page} is not in the file")
            continue
        slide_blocks = sorted(_slide_blocks(archive, slide, page, footers), key=lambda block: not block.level)
        if slide_blocks and not slide_blocks[0].level:
            slide_blocks[0] = slide_blocks[0]._replace(level=1)  # otherwise its text would belong to the previous slide
        segments = [name for name in archive.relations(slide).values() if name in archive.names]
        for name in segments:
            if "/charts/chart" in name or "/diagrams/data" in name:
                slide_blocks += drawing_blocks(archive, name, page=page)
            elif "/comments/" in name:
                slide_blocks += _comments(archive, name, page)
        notes = [name for name in segments if "notesSlide" in name]
        blocks += slide_blocks + [
            block for name in notes for block in _slide_blocks(archive, name, page, footers, shape_type="body")
        ]
    yield outline(path, "pptx", blocks, title=document_title(archive))


def _slide_blocks(
    archive: Archive, slide: str, page: int, footers: set[str], *, shape_type: str | None = None
) -> Iterator[Block]:
    text = Paragraphs()
    holder = ""  # the role of the current shape
    numbers: dict[str, tuple[str, int]] = {}  # of its paragraphs
    tags = (f"{_SLIDE}sp", f"{_SLIDE}ph", *(_DRAW + name for name in ("p", "tbl", "tr", "tc")))
    for event, element in archive.elements(slide, *tags):
        tag = element.tag.rpartition("}")[2]
        if tag == "sp":
            holder, numbers = "", {}
        elif tag == "ph":
            holder = element.get("type", "body")
        elif holder == "sldNum" or (shape_type and holder != shape_type):
            continue
        elif tag == "p":
            if event == "end":
                words = ""
                for node in element.iter(f"{_DRAW}t", f"{_DRAW}br", FORMULA):
                    piece = "\n" if node.tag.endswith("br") else formula_text(node)
                    properties = node.getprevious()  # of a run
                    is_raised = properties is not None and properties.get("baseline", "-") > "0"
                    words += superscript_mark(words, piece) + piece if is_raised else piece
                text.add(_label(element, numbers) + words if words.strip() else words)
                for block in text.paragraph(1 if holder in ("title", "ctrTitle") else 0, page=page):
                    if holder not in ("dt", "ftr") or block.text not in footers:
                        yield block
                        footers |= {block.text} if holder in ("dt", "ftr") else set()
        else:
            yield from text.open(tag) if event == "start" else text.close(tag, page=page)


def _label(paragraph: _Element, numbers: dict[str, tuple[str, int]]) -> str:
    """Return the number that PowerPoint shows before a paragraph; ``numbers`` holds the latest one of each level."""
    properties, mark = (paragraph.find(f"{_DRAW}pPr{path}") for path in ("", f"/{_DRAW}buAutoNum"))
    level = "0" if properties is None else properties.get("lvl", "0")
    kind = "" if mark is None else mark.get("type", "")
    previous_kind, previous_number = numbers.pop(level, ("", 0))
    for deeper in [other for other in numbers if other > level]:
        del numbers[deeper]
    if mark is None:
        return ""
    number = previous_number + 1 if kind == previous_kind else whole_number(mark, "startAt", 9999)
    numbers[level] = kind, number
    form = next((form for start, form in _NUMBER_FORMS.items() if kind.startswith(start)), "decimal")
    sign = next((sign for end, sign in _NUMBER_SIGNS.items() if kind.endswith(end)), "{}")
    return f"{sign.format(list_number(number, form))} "


def _comments(archive: Archive, member: str, page: int) -> Iterator[Block]:
    """Yield the comments on a slide, in the old form of the file or the new one."""
    for comment in archive.ends(member, "{*}cm"):
        text = " ".join(node.text or "" for node in comment.iter(f"{_SLIDE}text", f"{_DRAW}t"))
        yield Block(0, f"Comment: {text}", page=page)
