"""Converts a file's content to sources: the format by name, then by content; the encoding by content."""

# ruff: noqa: PLW0108  (a converter is loaded when it is called)
from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import PurePosixPath

from pointsman.ingest import converters
from pointsman.ingest.conversion import Conversion, Converted
from pointsman.ingest.converters import office
from pointsman.ingest.encoding import decode_file
from pointsman.ingest.reading_limits import FileLimits
from pointsman.ingest.source_text import (
    TOO_DEEP,
    Lines,
    ParsedDocument,
    Problem,
    Section,
    clean,
    stem,
    unwrapped,
    without_encoded,
)
from pointsman.tools.errors import InputError
from pointsman.values.views import check_validity

CODE_ENDINGS = frozenset(
    "py pyi js mjs cjs jsx ts tsx java go rs c cc cpp cxx h hh hpp cs rb php sh bash zsh sql toml yaml yml ini cfg "  # noqa: SIM905  (a list would fill pages)
    "kt kts swift scala lua pl pm r jl dart ex exs erl hs ml clj vue svelte css scss proto graphql tf dockerfile "
    "makefile cmake ps1".split()
)
"""Extensions (and whole names) of files that are split at definitions."""

PICTURES = frozenset({"png", "jpg", "jpeg", "tif", "tiff", "webp", "bmp", "gif"})
"""Extensions of pictures."""

RECORD_KINDS = frozenset({"json", "jsonl", "csv", "tsv"})
"""Formats in which each record is a document."""

_TEXT_FORMATS: dict[str, Callable[[str, str], Converted]] = {
    "md": lambda path, text: _with_front_matter(converters.markup.markdown(path, text)),
    "rst": lambda path, text: iter((converters.markup.restructured_text(path, text),)),
    "html": lambda path, text: iter((converters.web_page.html(path, text),)),
    "xml": lambda path, text: iter((converters.xml_words.xml(path, text),)),
    "adoc": lambda path, text: iter((converters.light_markup.asciidoc(path, text),)),
    "org": lambda path, text: iter((converters.light_markup.org(path, text),)),
    "tex": lambda path, text: iter((converters.light_markup.tex(path, text),)),
    "srt": lambda path, text: iter((converters.light_markup.subtitles(path, text),)),
    "txt": lambda path, text: iter((plain(path, text),)),
    "json": lambda path, text: converters.records.json_file(path, text),
    "jsonl": lambda path, text: converters.records.json_lines(path, text),
    "csv": lambda path, text: converters.records.table(path, text, "csv"),
    "tsv": lambda path, text: converters.records.table(path, text, "tsv"),
}


def _with_front_matter(source: ParsedDocument) -> Converted:
    """Yield a source, and a problem if its front matter says something of its validity that cannot be used."""
    yield source
    try:
        check_validity(source.metadata)
    except InputError as error:
        yield Problem(source.path, f"front matter: {error}; the passages are stored as if it said nothing of this")


def _picture(path: str, data: bytes, conversion: Conversion) -> Converted:
    conversion.before_picture()
    return converters.pictures.picture(path, data)


_BINARY_FORMATS: dict[str, Callable[[str, bytes, Conversion], Converted]] = {
    "pdf": lambda path, data, conversion: converters.pdf.pdf(path, data, conversion),
    "docx": lambda path, data, conversion: office.word.docx(path, data, conversion),
    "pptx": lambda path, data, conversion: office.slides.pptx(path, data, conversion),
    "xlsx": lambda path, data, _: iter((office.workbook.xlsx(path, data),)),
    "xls": lambda path, data, _: iter((office.workbook.old_workbook(path, data, "xls"),)),
    "xlsb": lambda path, data, _: iter((office.workbook.old_workbook(path, data, "xlsb"),)),
    "odt": lambda path, data, _: iter((office.open_formats.opendocument(path, data, "odt"),)),
    "ods": lambda path, data, _: iter((office.open_formats.opendocument(path, data, "ods"),)),
    "odp": lambda path, data, _: iter((office.open_formats.opendocument(path, data, "odp"),)),
    "rtf": lambda path, data, _: converters.rich_text.rtf(path, data),
    "msg": lambda path, data, conversion: converters.mail.outlook(path, data, conversion),
    "epub": lambda path, data, conversion: office.open_formats.epub(path, data, conversion),
    "eml": lambda path, data, conversion: converters.mail.mail(path, data, conversion),
    "mbox": lambda path, data, conversion: converters.mail.mailbox(path, data, conversion),
    "zip": lambda path, data, conversion: converters.inner_files.archive(path, data, conversion),
    "mhtml": lambda path, data, conversion: converters.mail.saved_page(path, data, conversion),
    **dict.fromkeys(PICTURES, _picture),
}
_PICTURE_MARKS = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"II*\x00", b"MM\x00*", b"GIF87a", b"GIF89a")
_OFFICE = ("docx", "pptx", "xlsx")
_OLD_OFFICE = {"doc": "Word document", "ppt": "PowerPoint presentation"}
_ARCHIVES = {
    b"PK\x03\x04": "ZIP",
    b"\x1f\x8b": "gzip",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a": "RAR",
    b"\x78\x9f\x3e\x22": "TNEF (winmail.dat)",
}
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # compound files: Office before 2007, Outlook, whatever has a password
_DATA_URI = re.compile(r"(data:[\w.+;=/-]{1,200};base64),[\w+/=%-]+")  # a picture or file that is written into a text
_PICTURES_APART = ("html", "ipynb", "ics")  # formats whose converters leave out pictures in base64
_OFTEN_TEXT = frozenset({"pdf", "xls", "msg", *_OFFICE})
_STARTS_OF_TEXT = {
    "html": re.compile(rb"<(?:!doctype html|html|head|meta|style|table|body)\b", re.IGNORECASE),
    "xml": re.compile(rb"<\?xml"),
    "eml": re.compile(
        rb"(?:From [^\n]*\n)?(?:[\w-]+:[^\n]*\n(?:[ \t][^\n]*\n)*)*?"
        rb"(?:mime-version|message-id|received|return-path|delivered-to|content-type|from:[^\n]*@[^\n]*\n[\w-]+):",
        re.IGNORECASE,
    ),
}
_ALIASES = {
    "markdown": "md", "mdown": "md", "rest": "rst", "htm": "html", "xhtml": "html", "ndjson": "jsonl", "jsonc": "json",
    "geojson": "json", "jsonld": "json", "har": "json", "jsonlines": "jsonl", "geojsonl": "jsonl",
    "text": "txt", "log": "txt", "mht": "mhtml", "fb2": "xml", "svg": "html", "asciidoc": "adoc", "ltx": "tex",
    "ical": "ics", "vcf": "ics", "vtt": "srt", "fodt": "odt", "fods": "ods", "fodp": "odp",
}  # fmt: skip


def convert(
    path: str,
    data: bytes,
    limits: FileLimits | None = None,
    before_picture: Callable[[], None] = lambda: None,
    *,
    images: bool = False,
    encoding: str | None = None,
) -> Converted:
    """Extract the text of a file in this process; `FileReader` does it in a process that can be terminated.

    Args:
        path: The id to give the source; its extension tells the format.
        data: The content of the file.
        limits: Limits of pages and characters, beyond which a problem is reported; time and memory are not limited
            here.
        before_picture: Called before each picture is read, which takes seconds.
        images: Whether the source of a picture file carries the picture, too; then it need not have words.
        encoding: Of text that is not UTF-8 and does not declare its own, such as ``"windows-1251"``; by default it is
            guessed. What contradicts it is a problem.

    Yields:
        One source for a document, one for each record of a file of records, and a problem for each part that
        could not be read; nothing for an empty file.

    Raises:
        InputError: Nothing in the file can be used; the message says why.
    """
    limits = limits or FileLimits()
    digest, offset, limit = sha256(data).hexdigest(), 0, limits.most_characters(len(data))
    if images and format_of(path, data) in PICTURES:
        before_picture()
        items = converters.pictures.picture(path, data, images=True)
    else:
        items = _convert(path, data, Conversion(limits, before_picture, encoding, _convert))
    for item in items:
        if isinstance(item, Problem):
            yield item
            continue
        if offset + len(item.text) > limit:
            item = item.shorten(limit - offset)  # noqa: PLW2901
            yield Problem(path, f"more than {limit} characters of text; the rest is left out: divide it")
        yield replace(item, offset=offset, sha256=digest)
        offset += len(item.text) + len(_SEPARATOR)
        if offset >= limit:
            return


_SEPARATOR = "\n\n"  # between the sources of one file


def joined_text(items: Converted) -> str:
    """Return the text of a whole file, to which `Source.offset` and the ``start`` and ``end`` of passages refer."""
    return _SEPARATOR.join(item.text for item in items if isinstance(item, ParsedDocument))


def _convert(path: str, data: bytes, conversion: Conversion) -> Converted:
    kind = format_of(path, data)
    if data.startswith(_OLE) and kind not in ("xls", "msg", *_OLD_OFFICE):
        if "EncryptedPackage".encode("utf-16-le") in data:
            raise InputError("protected by a password; remove it in the program that made the file")
        if path.endswith(".bin"):
            raise InputError("an object of another program, which is not read; save it as a file of its own")
        raise InputError("binary data of an old Office program, not text; its name should say which: .xls, .msg")
    if not data and (kind in _BINARY_FORMATS or path.lower().endswith(tuple(f".{ending}" for ending in _OLD_OFFICE))):
        raise InputError("an empty file, of 0 bytes; copy or save it again")
    if kind in _BINARY_FORMATS:
        items: Converted = chain(_BINARY_FORMATS[kind](path, data, conversion), conversion.problems(path))
        if kind in _OFFICE and b"/embeddings/" in data:
            items = chain(items, converters.inner_files.embedded_files(path, data, conversion))
        return _with_words(path, items)
    if kind in _OLD_OFFICE:
        raise InputError(f"an old {_OLD_OFFICE[kind]}; save it as .{kind}x")
    if archive := next((name for mark, name in _ARCHIVES.items() if data.startswith(mark)), None):
        raise InputError(f"a {archive} archive; unpack it, and index the files in it")
    may_declare = kind in ("html", "xml") or kind in CODE_ENDINGS
    text, remark = decode_file(data, may_declare=may_declare, encoding=conversion.encoding)
    items = _convert_text(path, clean(text), kind, conversion)
    return chain((Problem(path, remark),), items) if remark else items


def _convert_text(path: str, text: str, kind: str, conversion: Conversion) -> Converted:
    if not text.strip():
        return iter(())  # an empty file is not a problem: package markers are empty on purpose
    if text.startswith("-----BEGIN PGP MESSAGE-----"):
        raise InputError("encrypted with PGP; decrypt it")
    if "base64," in text:
        text = _DATA_URI.sub(r"\1", text)
    if kind == "xml" and (office_file := office.archive.packed(text)):
        return _convert(path, office_file, conversion)
    text, remark = (text, "") if kind in _PICTURES_APART else without_encoded(text)
    if kind in CODE_ENDINGS:
        items: Converted = iter((converters.code.code(path, text, kind),))
    elif kind == "ipynb":
        items = _with_words(path, converters.markup.notebook(path, text, conversion.limits.pages))
    elif kind == "ics":
        events = converters.light_markup.calendar(path, text, conversion)
        items = _with_words(path, chain((events,), conversion.problems(path)))
    else:
        items = _with_words(path, _TEXT_FORMATS[kind](path, text))
    return chain((Problem(path, remark),), items) if remark else items


def _with_words(path: str, items: Converted) -> Converted:
    """Yield what a converter returns, and a problem if there is no word in it and no reason why."""
    is_silent = True
    try:
        for item in items:
            is_silent = is_silent and isinstance(item, ParsedDocument) and not item.text.strip()
            yield item
    except RecursionError as error:
        raise InputError(TOO_DEEP) from error
    if is_silent:
        yield Problem(path, "no words in it")


def format_of(path: str, data: bytes) -> str:
    """Return the format of a file: by its first bytes if unambiguous, else by its extension, else by its text.

    Programs of companies export web pages and tables under the names of Office, and messages under that of Outlook.
    """
    name = PurePosixPath(path).name.lower()
    ending = PurePosixPath(name).suffix[1:] or name
    ending = _ALIASES.get(ending, ending)
    if marked_format := _marked_format(ending, data):
        return marked_format
    is_known = any(ending in endings for endings in (_BINARY_FORMATS, _TEXT_FORMATS, CODE_ENDINGS, ("ipynb", "ics")))
    if is_known and ending not in _OFTEN_TEXT:
        return ending
    head = data[:4096].removeprefix(BOM_UTF8).lstrip()
    if text_format := next((kind for kind, start in _STARTS_OF_TEXT.items() if start.match(head)), None):
        return "mhtml" if text_format == "eml" and ending in ("doc", "xls") else text_format
    if ending == "xls" and b"\t" in head.partition(b"\n")[0]:
        return "tsv"
    return ending if is_known or (ending in _OLD_OFFICE and b"\0" in head) else "txt"


def _marked_format(ending: str, data: bytes) -> str | None:
    """Return the format of data that begin with the mark of one, or of archives."""
    if data.startswith((b"%PDF-", b"{\\rtf")):
        return "pdf" if data.startswith(b"%") else "rtf"
    if data.startswith(b"PK\x03\x04"):
        own_format = "xlsb" if ending == "xlsb" else _zipped_format(data)
        return own_format or (ending if ending in _BINARY_FORMATS else "txt")
    if data.startswith(_OLE):
        return ending if ending in ("xls", "msg", *_OLD_OFFICE) else "txt"
    if data.startswith(_PICTURE_MARKS) or (data.startswith(b"RIFF") and data[8:12] == b"WEBP"):
        return ending if ending in PICTURES else "png"
    return None


def _zipped_format(data: bytes) -> str | None:
    """Return the content type of a zip file, by its parts' names or the content of the first part."""
    formats = {b"word/document": "docx", b"ppt/presentation": "pptx", b"xl/workbook": "xlsx"}
    types = {
        b"epub+zip": "epub",
        b"document.text": "odt",
        b"document.spreadsheet": "ods",
        b"document.presentation": "odp",
    }
    if data[30:38] == b"mimetype":
        return next((kind for mark, kind in types.items() if mark in data[38:100]), None)
    end = data.rfind(b"PK\x05\x06")  # the record that says where the list of parts begins
    start = int.from_bytes(data[end + 16 : end + 20], "little") if end >= 0 else 0
    names = data[start:] or data  # damaged: what it looks like
    if b"[Content_Types].xml" not in names:
        return None  # an archive of somebody with a folder of that name
    return next((kind for mark, kind in formats.items() if mark in names), None)


def plain(path: str, text: str) -> ParsedDocument:
    """Return plain text as one section, titled by the name of the file; the units of a log are its lines."""
    is_log = path.lower().endswith(".log")
    last_line = text.count("\n") + 1
    text, joined_lines = (text, []) if is_log else unwrapped(text)
    lines = tuple(Lines(offset, 1 + line, last_line) for offset, line in [(0, 0), *joined_lines])
    return ParsedDocument(path, stem(path), (Section((), text, 0),), text, "txt", lines=lines, is_code=is_log)
