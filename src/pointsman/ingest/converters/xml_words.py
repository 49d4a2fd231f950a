"""XML by its words: books in FictionBook, documents, and data as ``name: value`` lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pointsman.ingest.converters import office
from pointsman.ingest.converters.paragraphs import read_formulas
from pointsman.ingest.converters.web_page import html_blocks
from pointsman.ingest.source_text import Block, Lines, ParsedDocument, Section, outline, stem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lxml.etree import _Element

_PARTS = frozenset({"section", "chapter", "body", "article", "book", "part", "appendix", "preface", "sect1", "sect2"})
_PROSE = frozenset({"p", "para", "simpara", "subtitle", "text-author", "title"})
_SKIPPED = frozenset({"binary", "script", "style", "stylesheet"})
_BOOKS = ("{http://www.gribuser.ru/xml/fictionbook/", "{http://docbook.org/ns/docbook}")
_SHOWN_OF_BOOKS = frozenset({"alt", "title"})  # their other attributes are no data
_MARKUP = re.compile(r"<(?:p|br|a(?=\s)|b|i|em|strong|div|span|ul|ol|li|img|h[1-6]|table|blockquote|pre|code)\b[^<>]*>")
_TITLES = (".//{*}book-title", "{*}title", "{*}channel/{*}title", "{*}info/{*}title")


def xml(path: str, text: str) -> ParsedDocument:
    """Convert XML: titles of sections are headings, mixed content is running text, the rest ``name: value`` lines.

    What is not well-formed is kept as plain text. Entities of its own are not expanded: they may grow into gigabytes.

    Raises:
        InputError: A value is HTML that is nested too deep.
    """
    from lxml import etree  # few text files need it

    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, huge_tree=True, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(text.encode("utf-8", errors="replace"), parser)
    except etree.XMLSyntaxError:
        lines = (Lines(0, 1, text.count("\n") + 1),)
        return ParsedDocument(path, stem(path), (Section((), text, 0),), text, "xml", lines=lines)
    if root.tag == "{urn:schemas-microsoft-com:office:spreadsheet}Workbook":
        return outline(path, "xml", office.workbook.xml_sheets(root))
    read_formulas(root)
    title = next((words for name in _TITLES if (words := _words(root.find(name)))), "")
    return outline(path, "xml", _blocks(root), title=title)


def _blocks(root: _Element) -> Iterator[Block]:
    from lxml import etree  # few text files need it

    fields: list[tuple[str, int]] = []  # the lines of data that wait, with their lines in the file
    level = 0
    attributes_of: Any = etree.XPath("@*")
    is_book = root.tag.startswith(_BOOKS)
    walk: Any = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        name = _name(element)
        if event == "end":
            level -= name in _PARTS
            continue
        is_title = name == "title" and _name(element.getparent()) in _PARTS
        is_text = is_title or name in _PROSE or _is_mixed(element)
        level += name in _PARTS
        if name in _SKIPPED:
            walk.skip_subtree()
        elif is_text:
            yield from _data(fields)
            yield Block(max(level, 1) if is_title else 0, _words(element), _lines(element), exact=False)
            walk.skip_subtree()
        else:
            line = _lines(element)[0]
            has_many = len(element.attrib) > 100  # the list of them that elements give takes quadratic time
            pairs = ((value.attrname, value) for value in attributes_of(element)) if has_many else element.items()
            shown = ((key, value) for key, value in pairs if value.strip() and (not is_book or key in _SHOWN_OF_BOOKS))
            fields += [(f"{_local(key)}: {_value(value)}", line) for key, value in shown]
            if value := _value(element.text or ""):
                fields.append((f"{name}: {value}", line))
            elif len(element):
                yield from _data(fields)
    yield from _data(fields)


def _data(fields: list[tuple[str, int]]) -> Iterator[Block]:
    """Yield the lines of data as one block, and forget them."""
    if fields:
        yield Block(0, "\n".join(text for text, _ in fields), (fields[0][1], fields[-1][1]), exact=False)
        fields.clear()


def _value(text: str) -> str:
    """Return a value in one line; of HTML, as feeds and exports have it, its words."""
    if _MARKUP.search(text):
        text = " ".join(block.text for block in html_blocks(text)[1])
    return " ".join(text.split())


def _is_mixed(element: _Element) -> bool:
    """Whether text stands beside elements in it."""
    own_texts = (element.text, *(child.tail for child in element))
    return len(element) > 0 and any(text and text.strip() for text in own_texts)


def _words(element: _Element | None) -> str:
    return " ".join("".join(map(str, element.itertext())).split()) if element is not None else ""


def _lines(element: _Element) -> tuple[int, int]:
    """Return the lines on which an element begins, and on which its last part does."""
    last = element[-1] if len(element) else element
    lines = [line if isinstance(line := item.sourceline, int) else 1 for item in (element, last)]
    return lines[0], max(lines)


def _name(element: _Element | None) -> str:
    return _local(element.tag) if element is not None and isinstance(element.tag, str) else ""


def _local(name: str) -> str:
    return name.rpartition("}")[2]
