"""Documents made of XML or HTML in a zip file: read as streams, so that a zip bomb stays within the limits."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, repeat
from posixpath import join, normpath, split
from typing import IO, TYPE_CHECKING, Any

from pointsman.ingest.conversion import MAX_UNPACKED
from pointsman.ingest.converters.office.number_formats import FIRST_DAY, shown
from pointsman.ingest.converters.paragraphs import MOST_COLUMNS, formula_term
from pointsman.ingest.source_text import TOO_DEEP, Block, Row, stated_title, table_blocks
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from lxml.etree import _Element


_SMALL_PART = 1 << 20  # bytes

_STRICT = re.compile(
    rb"http://purl\.oclc\.org/ooxml/(officeDocument|(?:wordprocessing|spreadsheet|presentation|drawing)ml)/"
)
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"  # the usual form of these namespaces
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_MAIN_PARTS = ("word/document.xml", "xl/workbook.xml", "ppt/presentation.xml")
_WORD_2003 = "http://schemas.microsoft.com/office/word/2003/wordml"
_FLAT = "{http://schemas.microsoft.com/office/2006/xmlPackage}"
_DC_TITLE = "{http://purl.org/dc/elements/1.1/}title"


class Archive:
    """A zip file whose parts are read up to a limit."""

    def __init__(self, data: bytes, description: str) -> None:
        self._description, self._size = description, 0
        self.opened: set[str] = set()
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise InputError(f"damaged {description}: {error}") from error
        self.names = self._zip.namelist()
        self._is_strict = False  # until its main part is opened

    def size_with(self, name: str) -> int:
        """Return the bytes of all parts that were opened, and of one more."""
        return self._size + (0 if name in self.opened else self._zip.getinfo(name).file_size)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a part of the document as a stream.

        Raises:
            InputError: The part is missing, damaged, encrypted, or too large.
        """
        try:
            self._size = self.size_with(name)
            self.opened.add(name)
            if self._size > MAX_UNPACKED:  # the declared size is binding: zipfile does not read beyond it
                raise InputError(
                    f"{self._description} unpacks to {self._size >> 20} MB, more than {MAX_UNPACKED >> 20} MB"
                )
            with self._zip.open(name) as stream:
                if name in _MAIN_PARTS:
                    self._is_strict = _STRICT.search(stream.read(4000)) is not None
                    stream.seek(0)
                yield io.BytesIO(_STRICT.sub(_TRANSITIONAL, stream.read())) if self._is_strict else stream
        except KeyError as error:
            raise InputError(f"damaged {self._description}: it has no {name}") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise InputError(f"damaged or encrypted {self._description}: {error}") from error

    def relations(self, member: str) -> dict[str, str]:
        """Return the parts to which a part of an Office document refers, by relationship id."""
        folder, name = split(member)
        rels = join(folder, "_rels", f"{name}.rels")
        return {
            element.get("Id", ""): normpath(join("/", folder, element.get("Target", ""))).lstrip("/")
            for element in (self.ends(rels, f"{_RELATIONS}Relationship") if rels in self.names else ())
            if element.get("TargetMode") != "External"
        }

    def read(self, name: str) -> bytes:
        """Return the whole content of a part; see `open`."""
        with self.open(name) as stream:
            return stream.read()

    def ends(self, name: str, *tags: str) -> Iterator[_Element]:
        """Yield elements with all that is in them; see `elements`."""
        return (element for _, element in self.elements(name, *tags, events=("end",)))

    def elements(
        self, name: str, *tags: str, skipped: tuple[str, ...] = (), events: tuple[str, ...] = ("start", "end")
    ) -> Iterator[tuple[str, _Element]]:
        """Yield starts and ends of elements in order; an element is emptied after its end, so memory stays bounded.

        The outermost elements of a small part keep what is in them, since emptying takes time.

        Args:
            name: Name of the part.
            tags: Tags of the elements.
            skipped: Tags of elements that are left out with all that is in them.
            events: What is yielded of them.

        Raises:
            InputError: see `open`; or the part is not XML.
        """
        from lxml import etree  # only these formats need it

        with self.open(name) as stream:
            is_small = self._zip.getinfo(name).file_size <= _SMALL_PART
            depth = 0  # of reported elements; below 0 where their starts are not asked for
            reported_tags: set[str] = set()
            skipped_depth = 0
            # Entities are not expanded: a document type may define some that grow into gigabytes.
            safe: dict[str, Any] = {"resolve_entities": False, "no_network": True, "huge_tree": True}
            try:
                if is_small:  # the whole tree at once is quicker
                    root = etree.fromstring(stream.read(), etree.XMLParser(**safe), base_url=name)
                    walk = etree.iterwalk(root, events, (*tags, *skipped))
                    walk = walk if "start" in events else zip(repeat("end"), root.iter(*tags))
                else:
                    walk = etree.iterparse(stream, events, tag=(*tags, *skipped), **safe)
                for event, element in walk:
                    tag = element.tag
                    if tag in skipped:
                        skipped_depth += 1 if event == "start" else -1
                    elif not skipped_depth:
                        reported_tags.add(tag)
                        yield event, element
                    depth += 1 if event == "start" else -1
                    if event == "end" and (depth > 0 or not is_small):
                        element.clear(keep_tail=True)
                        sibling = element.getprevious()
                        if sibling is not None and sibling.tag in reported_tags and tag in reported_tags:
                            element.getparent().remove(sibling)
            except etree.XMLSyntaxError as error:
                is_too_deep = "depth" in error.msg
                reason = f"{self._description} {TOO_DEEP}" if is_too_deep else f"damaged {self._description}: {error}"
                raise InputError(reason) from error


def packed(text: str) -> bytes | None:
    """Return an Office document that is one XML file as the zip file of its parts; None if it is no such document.

    Such are documents of Word 2003, whose names are those of today in another namespace, and "flat" ones of today.
    """
    is_of_2003, is_flat = (namespace in text[:4000] for namespace in (_WORD_2003, _FLAT[1:-1]))
    if not (is_of_2003 or is_flat):
        return None
    from lxml import etree  # only these formats need it

    text = re.sub(r"\A\s*<\?xml[^>]*>", "", text)  # the encoding that it declares is decoded
    members: dict[str, bytes] = {"[Content_Types].xml": b""}
    if is_of_2003:
        text = text.replace(_WORD_2003, "http://schemas.openxmlformats.org/wordprocessingml/2006/main")
        members["word/document.xml"] = members["word/styles.xml"] = text.encode("utf-8", "replace")
    else:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
        try:
            for element in etree.fromstring(text.encode("utf-8", "replace"), parser).iter(f"{_FLAT}part"):
                name, content = element.get(f"{_FLAT}name", "").lstrip("/"), element.find(f"{_FLAT}xmlData/*")
                binary = element.findtext(f"{_FLAT}binaryData", "")
                members[name] = b64decode(binary) if content is None else etree.tostring(content, encoding="utf-8")
        except (etree.XMLSyntaxError, ValueError):
            return None  # it is read as the XML that it is
    if not any(name in members for name in _MAIN_PARTS):
        return None
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zip_file:
        for name, content in members.items():
            zip_file.writestr(name, content)
    return buffer.getvalue()


def whole_number(element: _Element, attribute: str, most: int) -> int:
    """Return the whole number in an attribute, at most so large; 1 if there is none."""
    value = element.get(attribute)
    return 1 if value is None or not value.isdecimal() or len(value) > 11 else min(int(value), most)


def document_title(archive: Archive, member: str = "docProps/core.xml") -> str:
    """Return the title in the properties of a document, or an empty text."""
    if member not in archive.names:
        return ""
    return stated_title(next((element.text or "" for element in archive.ends(member, _DC_TITLE)), ""))


_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_FORMULA_MARKS = {"num": "", "den": "/", "sup": "^", "sub": "_", "lim": "_", "rad e": ""}
_FORMULA_GAPS = {"func": " ", "mr": " ", "m": "; ", "eqArr": "; "}
FORMULA = f"{_MATH}oMath"
"""The tag of formulas."""


def formula_text(formula: _Element) -> str:
    """Return a formula, or a part of one, in one line: ``(a+b)/2``, ``∑_(i=1)^n x_i``, ``√[3](a-b)``."""
    name = formula.tag.rpartition("}")[2]
    if name == "t":
        return formula.text or ""
    signs = {
        sign.tag.rpartition("}")[2]: sign.get(f"{_MATH}val", "") for sign in formula.iterfind(f"{_MATH}{name}Pr/*")
    }
    terms: list[str] = []
    for child in formula:
        place = child.tag.rpartition("}")[2]
        place = f"{name} e" if place == "e" else place
        if term := formula_text(child):
            term = formula_term(term) if place in _FORMULA_MARKS else term
            terms.append({"deg": f"[{term}]", "nary e": f" {term}"}.get(place, _FORMULA_MARKS.get(place, "") + term))
    if name == "d":
        return signs.get("begChr", "(") + signs.get("sepChr", "|").join(terms) + signs.get("endChr", ")")
    sign = {"nary": signs.get("chr", "∫"), "rad": "√"}.get(name, "")
    return sign + _FORMULA_GAPS.get(name, "").join(terms)


_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_NEW_CHART = "{http://schemas.microsoft.com/office/drawing/2014/chartex}"  # waterfalls, sunbursts and alike
_DRAW = "{http://schemas.openxmlformats.org/drawingml/2006/main}"


def drawing_blocks(archive: Archive, member: str, *, page: int = 0) -> Iterator[Block]:
    """Yield the words of a chart, a diagram or text boxes, and a chart's numbers as a table."""
    texts: list[str] = []
    names: list[str] = []
    new_names: list[str] = []
    table: dict[tuple[int, str], dict[int, str]] = {}  # by position and category: the value of each series
    tags = (f"{_DRAW}p", f"{_CHART}ser", *(_NEW_CHART + name for name in ("title", "data", "series")))
    for element in archive.ends(member, *tags):
        if element.tag == f"{_DRAW}p":
            texts.append("".join(node.text or "" for node in element.iter(f"{_DRAW}t")))
        elif element.tag == f"{_NEW_CHART}title":
            texts.append(element.findtext(f".//{_NEW_CHART}v") or "")
        elif element.tag == f"{_NEW_CHART}series":  # below the data of all of them
            new_names.append(element.findtext(f"{_NEW_CHART}tx//{_NEW_CHART}v") or "")
        else:
            names.append(element.findtext(f"{_CHART}tx//{_CHART}v") or "")
            categories = _points(element, "cat", "xVal", "strDim")
            for position, value in islice(_points(element, "val", "yVal", "numDim").items(), MOST_COLUMNS):
                table.setdefault((position, categories.get(position, str(position + 1))), {})[len(names) - 1] = value
    names[: len(new_names)] = new_names
    text = "\n".join(text for text in texts if text.strip())
    if text:
        yield Block(0, text, page=page)
    series = range(min(len(names), 100))
    rows = [
        Row(("", *names[:100])),
        *(Row((name, *(row.get(index, "") for index in series))) for (_, name), row in sorted(table.items())),
    ]
    yield from table_blocks(rows, page=page)


def _points(series: _Element, *parts: str) -> dict[int, str]:
    """Return by their positions the values or categories of a series; categories of several levels in one text."""
    points: dict[int, str] = {}
    for name in parts:
        code = series.findtext(f"{{*}}{name}//{{*}}formatCode", "")
        for point in series.iterfind(f"{{*}}{name}//{{*}}pt"):
            position, text = point.get("idx", ""), point.findtext("{*}v") or point.text or ""
            text = shown(text, code, FIRST_DAY) if code else text
            if position.isdecimal() and len(position) < 8:
                points[int(position)] = f"{text} {points[int(position)]}" if int(position) in points else text
    return points
