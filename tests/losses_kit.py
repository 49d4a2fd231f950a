"""What of a file stands in no passage: its headings and words against those of texts and titles."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from email import message_from_string
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any

from office_files import opendocument
from pointsman.ingest import ParsedDocument, Problem, chunk, convert

if TYPE_CHECKING:
    from pointsman.values.types import Document

SIZES = ((16, 0), (64, 16), (256, 32), (480, 0))
_WORD = re.compile(r"\w+")
_REPEATED = re.compile(r"([\d,]+) records? repeats? an earlier one in text and fields")


def losses(name: str, data: bytes, max_tokens: int, overlap: int, headings: Sequence[str] = ()) -> list[str]:
    """The headings and words of a file that are in no passage, and those headings that its text does not hold."""
    missing = []
    texts = []
    converted = list(convert(name, data))
    for source in converted:
        if isinstance(source, ParsedDocument):
            passages = chunk(source, max_tokens=max_tokens, overlap=overlap)
            missing += losses_of(source, passages)
            texts += [passage.searchable for passage in passages]
    if name.endswith((".csv", ".jsonl")):
        missing += _lost_records(name, data, converted)
    searched = _folded(" ".join(texts))
    return missing + [f"heading {heading!r}" for heading in headings if _folded(heading) not in searched]


def descriptions() -> Iterator[tuple[str, str]]:
    """Yield the descriptions of the installed packages, each with a name that tells its format."""
    for distribution in distributions():
        message = message_from_string(distribution.read_text("METADATA") or "")
        text = message.get_payload() or message.get("Description")
        if isinstance(text, str) and text.strip():
            ending = "rst" if "rst" in message.get("Description-Content-Type", "text/x-rst") else "md"
            yield f"{distribution.name}.{ending}", text


def losses_of(source: ParsedDocument, passages: Sequence[Document]) -> list[str]:
    """The same of one source: each word outside of all passages is to be in a title, in the headings' order."""
    covered = bytearray(len(source.text))
    for passage in passages:
        start, end = passage.metadata["start"] - source.offset, passage.metadata["end"] - source.offset
        assert source.text[start:end] == passage.text
        covered[start:end] = b"\x01" * (end - start)
    titles = " ".join(_folded(str(passage.metadata.get("title", ""))) for passage in passages)
    words = set(_WORD.findall(titles))
    missing = [
        f"word {match[0]!r} at {match.start()}"
        for match in _WORD.finditer(source.text)
        if not all(covered[match.start() : match.end()]) and not set(_WORD.findall(_folded(match[0]))) <= words
    ]
    for section in source.sections:
        for heading in section.heading_path[-section.own_headings :] if section.own_headings else ():
            if _folded(heading) not in titles and not _covers(source.text, covered, heading):
                missing += [f"heading {heading!r}"]
    return missing


def _lost_records(name: str, data: bytes, converted: Sequence[ParsedDocument | Problem]) -> list[str]:
    """The records of a table or of JSON lines that no source holds.

    One that is equal to an earlier record needs no source of its own, but the file's problems are to count it.
    """
    text = data.decode()
    records: list[dict[str, str]] = (
        list(csv.DictReader(io.StringIO(text)))
        if name.endswith(".csv")
        else [json.loads(line) for line in text.splitlines()]
    )
    distinct = {json.dumps(record, sort_keys=True): record for record in records}
    sources = [item for item in converted if isinstance(item, ParsedDocument)]
    held = [_words_of(source.text, source.title, *source.metadata.values()) for source in sources]
    missing = []
    for record in distinct.values():
        words = _words_of(*record.values())
        number = next((number for number, of_source in enumerate(held) if words <= of_source), None)
        if number is None:
            missing.append(f"record {record}")
        else:
            del held[number]  # a source holds one record
    repeated = len(records) - len(distinct)
    matches = [_REPEATED.match(item.reason) for item in converted if isinstance(item, Problem)]
    reported = sum(int(match[1].replace(",", "")) for match in matches if match)
    return missing + ([f"{repeated} repeated records, {reported} reported"] if repeated != reported else [])


def _words_of(*values: object) -> Counter[str]:
    return Counter(word for value in values for word in _WORD.findall(_folded(str(value))))


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _covers(text: str, covered: bytearray, heading: str) -> bool:
    pattern = r"\s+".join(map(re.escape, heading.split()))
    return any(
        all(covered[at] or text[at].isspace() for at in range(match.start(), match.end()))
        for match in re.finditer(pattern, text)
    )


# ── generated files ──────────────────────────────────────────────────────────────────────────────────────────────────

_VOCABULARY = (
    "switch",
    "signal",
    "道岔",
    "信号",
    "列车",
    "стрелка",
    "поезд",
    "4.1.3",
    "v2",
    "naïve",
    "API_KEY",
    "how",
    "why",
)

Outline = list[tuple[int, str, str]]
"""Levels, from 1, headings, and the text below each."""


def generated_file(kind: str, rng: random.Random) -> tuple[str, bytes, list[str]]:
    """Return name, content and headings of a random file: deep or flat, with sections long, short and empty."""
    outline: Outline = []
    level = 1
    for number in range(rng.randint(1, 25)):
        level = rng.randint(1, min(level + 1, 6))
        heading = _words(rng, rng.choice((1, 3, 6, 20 if number % 7 == 0 else 2))) + f" {number}"
        text = ". ".join(_words(rng, rng.randint(2, 15)) for _ in range(rng.choice((0, 1, 1, 2, 30)))) + "."
        outline.append((level, heading, "" if text == "." else text))
    data = FORMATS[kind](outline)
    return (
        f"a.{kind}",
        data if isinstance(data, bytes) else data.encode(),
        [] if kind in _FLAT else [heading for _, heading, _ in outline],
    )


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(_VOCABULARY, k=count))


def _markdown(outline: Outline) -> str:
    return "\n".join(f"{'#' * level} {heading}\n\n{text}\n" for level, heading, text in outline)


def _restructured(outline: Outline) -> str:
    return "\n".join(f"{heading}\n{'=-~^+*'[level - 1] * 200}\n\n{text}\n" for level, heading, text in outline)


def _html(outline: Outline) -> str:
    body = "".join(f"<h{level}>{heading}</h{level}><p>{text}</p>" for level, heading, text in outline)
    return f"<html><head><title>Page</title></head><body>{body}</body></html>"


def _word(outline: Outline) -> bytes:
    import docx

    document = docx.Document()
    for level, heading, text in outline:
        document.add_heading(heading, level=level)
        document.add_paragraph(text)
    return _saved(document)


def _slides(outline: Outline) -> bytes:
    import pptx

    show = pptx.Presentation()
    for _, heading, text in outline:
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = heading
        slide.placeholders[1].text = text
    return _saved(show)


def _workbook(outline: Outline) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    for number, (_, heading, text) in enumerate(outline):
        sheet = book.create_sheet(f"Sheet {number}")
        sheet.append([heading, "Note"])
        sheet.append([text, "x"])
    return _saved(book)


def _saved(file: Any) -> bytes:
    out = io.BytesIO()
    file.save(out)
    return out.getvalue()


def _open_text(outline: Outline) -> bytes:
    body = "".join(
        f'<text:h text:outline-level="{level}">{heading}</text:h><text:p>{text}</text:p>'
        for level, heading, text in outline
    )
    return opendocument("text", f"<office:text>{body}</office:text>")


def _notebook(outline: Outline) -> str:
    cells = [{"cell_type": "markdown", "source": _markdown([entry])} for entry in outline]
    return json.dumps({"cells": cells, "metadata": {}})


def _lines(outline: Outline) -> str:
    return "\n".join(f"{heading}\n\n{text}\n" for _, heading, text in outline)


def _table(outline: Outline) -> str:
    return "name,text\n" + "".join(f'"{heading}","{text}"\n' for _, heading, text in [*outline, outline[0]])


def _records(outline: Outline) -> str:
    return "".join(json.dumps({"title": heading, "text": text}) + "\n" for _, heading, text in [*outline, outline[0]])


def _code(outline: Outline) -> str:
    return "".join(
        f'def f{number}():\n    """{heading}\n\n    {text}"""\n\n' for number, (_, heading, text) in enumerate(outline)
    )


FORMATS: dict[str, Callable[[Outline], str | bytes]] = {
    "md": _markdown, "rst": _restructured, "html": _html, "docx": _word, "pptx": _slides, "xlsx": _workbook,
    "odt": _open_text, "ipynb": _notebook, "txt": _lines, "csv": _table, "jsonl": _records, "py": _code,
}  # fmt: skip
"""Writers of outlines by format; the last record of tables and of JSON lines repeats the first."""
_FLAT = ("xlsx", "txt", "csv", "py")  # headings are text like any other there, and may be divided
