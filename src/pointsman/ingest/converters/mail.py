"""E-mail, of Outlook, too: addresses, date, text and attachments."""

from __future__ import annotations

import io
import re
import struct
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, message_from_string
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING

from pointsman.ingest.converters.inner_files import attached_files
from pointsman.ingest.converters.light_markup import calendar_blocks
from pointsman.ingest.converters.web_page import html_blocks
from pointsman.ingest.encoding import decode_declared
from pointsman.ingest.source_text import (
    TOO_DEEP,
    Block,
    ParsedDocument,
    Problem,
    clean,
    outline,
    text_digest,
    unwrapped,
    without_encoded,
)
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from oxmsg.storage import Storage

    from pointsman.ingest.conversion import Conversion, Converted

_HEADER_FIELDS = ("From", "To", "Cc", "Date")
_ENVELOPE = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\r\n\r\n))From \S+[^\n]*\d{4}[^\n]*\n")
_WORDLESS = frozenset({"pgp-signature", "pgp-keys", "pgp-encrypted", "pkcs7-signature", "x-pkcs7-signature"})
_SEALED = ("pkcs7-mime", "x-pkcs7-mime")
_WORD = re.compile(r"[^\W\u3040-\u9fff]+|[\u3040-\u9fff]")


def mail(path: str, data: bytes, conversion: Conversion) -> Converted:
    """Yield the message with its subject as title, addresses, date and text, and then its attachments."""
    message = message_from_bytes(data.removeprefix(BOM_UTF8).lstrip())
    if not message.keys():
        raise InputError("not an e-mail: it has no header")
    yield from _message(path, message, conversion)


def mailbox(path: str, data: bytes, conversion: Conversion) -> Converted:
    """Yield the messages of a mailbox (``mbox``), numbered from 1; see `mail`."""
    most_messages = conversion.limits.pages
    starts = [match.start() for match in _ENVELOPE.finditer(data)]
    if not starts:
        raise InputError("not a mailbox: no line begins with From")
    if len(starts) > most_messages:
        yield Problem(path, f"{len(starts)} messages; only the first {most_messages} are read")
    for number, (start, end) in enumerate(pairwise([*starts, len(data)][: most_messages + 1]), start=1):
        content = data[start:end].partition(b"\n")[2]
        for item in _boxed_message(path, content, conversion):
            if isinstance(item, Problem):
                yield Problem(path, f"message {number}: {item.reason}")
            else:
                yield replace(
                    item,
                    kind=item.kind if item.member else "mbox",
                    member=item.member and f"message {number}/{item.member}",
                    metadata={**item.metadata, "message": number},
                    record_digest=f"{number}-{item.record_digest or text_digest(item.text)}",
                )


def _boxed_message(path: str, content: bytes, conversion: Conversion) -> Converted:
    """Yield a message of a mailbox; one that is nested too deep does not keep the others from being read."""
    try:
        yield from _message(path, message_from_bytes(content), conversion)
    except RecursionError:
        conversion.remarks.clear()  # of this message, which is not read
        yield Problem(path, TOO_DEEP)


def saved_page(path: str, data: bytes, conversion: Conversion) -> Iterator[ParsedDocument]:
    """Convert a page that a browser saved as one file (MHTML), a message whose part is the page."""
    for entity in message_from_bytes(data).walk():
        content = entity.get_payload(decode=True) if entity.get_content_type() == "text/html" else None
        if isinstance(content, bytes):
            title, blocks = html_blocks(clean(_text(entity, content, conversion)))
            blocks = [block._replace(lines=None, line_starts=()) for block in blocks]
            yield outline(path, "mhtml", blocks, title=title)
            return
    raise InputError("a saved page without HTML in it; save it again, as HTML")


def _message(path: str, message: Message, conversion: Conversion) -> Converted:
    fields = _header_fields(message, conversion)
    files: list[tuple[str, bytes]] = []
    blocks = [Block(0, _shown_fields(fields))]
    hidden_twins = _hidden_twins(message, conversion)
    for entity in message.walk():
        if entity is not message and entity.get_content_maintype() == "message" and entity.is_multipart():
            forwarded = entity.get_payload(0)
            if isinstance(forwarded, Message):
                field_text = _shown_fields(_header_fields(forwarded, conversion))
                blocks += [Block(1, _header(forwarded, "Subject", conversion)), Block(0, field_text)]
        content = None if entity.is_multipart() or id(entity) in hidden_twins else entity.get_payload(decode=True)
        kind = entity.get_content_type().removeprefix("application/")
        if not isinstance(content, bytes) or kind in _WORDLESS:
            continue
        if kind in _SEALED:
            yield Problem(path, "a part of the message: encrypted, or signed as a whole; save its text elsewhere")
            continue
        if (name := _filename(entity)) is None or entity.get_content_type() == "text/calendar":
            try:
                blocks += _body(entity, content, conversion)
            except InputError as error:
                yield Problem(path, f"a part of the message: {error}")
            continue
        files.append((name, content))
    metadata = {name.lower(): value[:1000] for name, value in fields.items() if value} | _date(message)
    source = outline(path, "eml", blocks, title=_header(message, "Subject", conversion)[:1000], metadata=metadata)
    yield source
    yield from conversion.problems(path)
    yield from attached_files(source, files, conversion)


def _header_fields(message: Message, conversion: Conversion) -> dict[str, str]:
    return {name: _header(message, name, conversion) for name in _HEADER_FIELDS}


def _shown_fields(fields: dict[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in fields.items() if value)


def _body(entity: Message, content: bytes, conversion: Conversion) -> list[Block]:
    kind = entity.get_content_type()
    if kind == "text/plain":
        text, remark = without_encoded(clean(_text(entity, content, conversion)))
        conversion.remarks.update({f"part {kind}: {remark}": None} if remark else {})
        return [Block(0, unwrapped(text)[0])]
    if kind == "text/calendar":
        events = calendar_blocks(clean(_text(entity, content, conversion)), conversion)
        return [block._replace(lines=None) for block in events]
    if kind != "text/html":
        return []
    _, blocks = html_blocks(clean(_text(entity, content, conversion)))
    return [block._replace(lines=None, line_starts=()) for block in blocks]


def _header(message: Message, name: str, conversion: Conversion) -> str:
    value = next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
    return " ".join(clean(_decode(_unescape(value, message.get_charsets(), f"header {name}", conversion))).split())


def _unescape(value: str, charsets: Sequence[str | None], label: str, conversion: Conversion) -> str:
    """Decode a text's raw bytes: as UTF-8, in an encoding that the message declares, or as its conversion does."""
    if value.isascii():
        return value
    data = value.encode("utf-8", "surrogateescape")
    for encoding in ("utf-8", *charsets):
        try:
            return decode_declared(data, encoding or "utf-8")
        except (LookupError, ValueError):
            pass  # the next encoding, or the bytes, decide
    try:
        return conversion.decode(data, label)
    except InputError:
        return data.decode("utf-8", "replace")  # an unreadable header is no reason to lose the message


def _filename(entity: Message) -> str | None:
    try:
        name = entity.get_filename()
    except (LookupError, ValueError):
        return "attachment"  # it is in an encoding that does not exist
    return None if name is None else " ".join(clean(_decode(name)).split())[:200]


def _decode(value: str) -> str:
    try:
        default_codec = "ascii" if value.isascii() else "raw-unicode-escape"  # the codec that decode_header uses for it
        words = [
            (word if isinstance(word, str) else decode_declared(word, encoding or default_codec), encoding and "utf-8")
            for word, encoding in decode_header(value)
        ]
        return str(make_header(words))
    except (LookupError, MessageError, ValueError):
        return value  # unchanged; a header in an unknown encoding is no reason to lose the message


def _date(message: Message) -> dict[str, str]:
    """Return the date in ISO form, which can be compared; unchanged if it cannot be parsed."""
    try:
        return {"date": parsedate_to_datetime(str(message.get("Date"))).isoformat()}
    except (TypeError, ValueError, OverflowError, IndexError):
        return {}


def _text(entity: Message, content: bytes, conversion: Conversion) -> str:
    charset = entity.get_content_charset()
    try:
        return decode_declared(content, charset or "utf-8")
    except (LookupError, ValueError):
        label = f"part {entity.get_content_type()}"
        return conversion.decode(content, label, may_declare=label.endswith("html"))  # the header's encoding is wrong


def _hidden_twins(message: Message, conversion: Conversion) -> set[int]:
    """Return which parts say what another part says: HTML beside plain text, or a plain part that only points to it."""
    twin_ids: set[int] = set()
    for container in message.walk():
        if container.get_content_type() != "multipart/alternative":
            continue
        entities = [entity for entity in container.walk() if not entity.is_multipart() and _filename(entity) is None]
        plain = [entity for entity in entities if entity.get_content_type() == "text/plain"]
        html = [entity for entity in entities if entity.get_content_type() == "text/html"]
        if plain and html:
            html_words, plain_words = _words_of(html, conversion), _words_of(plain, conversion)
            if 2 * len(html_words & plain_words) >= len(html_words):
                twin_ids |= set(map(id, html))
            elif len(plain_words) < len(html_words):  # otherwise each says what the other does not
                twin_ids |= set(map(id, plain))
    return twin_ids


def _words_of(entities: list[Message], conversion: Conversion) -> set[str]:
    words: set[str] = set()
    for entity in entities:
        content = entity.get_payload(decode=True)
        if isinstance(content, bytes):
            with suppress(InputError):  # reported when the part is read
                blocks = _body(entity, content, conversion)
                words.update(_WORD.findall("\n".join(block.text for block in blocks).lower()))
    return words


_NUMBERS = "__properties_version1.0"
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# Properties of Outlook: https://learn.microsoft.com/openspecs/exchange_server_protocols/ms-oxprops
_SUBJECT, _HEADERS, _SENDING_TIME, _RECIPIENT_KIND = 0x0037, 0x007D, 0x0039, 0x0C15
_SENDER, _RECIPIENT = ((0x0C1A, 0x0042), (0x5D01, 0x0C1F, 0x0065)), ((0x3001,), (0x39FE, 0x3003))  # names, addresses
_TEXTS, _FILE, _FILE_NAMES = ((0x1000, "plain"), (0x1013, "html")), 0x3701, (0x3707, 0x3704)
_NAME_PAGE, _TEXT_PAGE, _LOCALE = 0x3FFD, 0x3FDE, 0x3FF1
_WESTERN = frozenset({3, 6, 7, 10, 11, 12, 15, 16, 19, 20, 22, 29})  # languages of locales; English is used anywhere


def outlook(path: str, data: bytes, conversion: Conversion) -> Converted:
    """Yield a message of Outlook (``msg``) as `mail` does.

    Raises:
        InputError: The file is no message, or the package that reads it is not installed.
    """
    if find_spec("oxmsg") is None:
        raise InputError("a message of Outlook; to read it: pip install 'pointsman[outlook]'")
    from olefile import OleFileIO  # type: ignore[import-untyped]  # it ships no types; these two are an extra
    from oxmsg.storage import Storage

    try:
        with OleFileIO(io.BytesIO(data)) as container:
            message = _OutlookItem(Storage.from_ole(container), conversion, 32).mail()
    except (ValueError, LookupError, OSError, AttributeError) as error:
        raise InputError(f"damaged message of Outlook: {error}") from error
    for item in _message(path, message, conversion):
        yield replace(item, kind="msg") if isinstance(item, ParsedDocument) and not item.member else item


class _OutlookItem:
    """A message of Outlook, or a person or a file in it, by its properties; see [MS-OXMSG].

    Args:
        storage: What holds the properties, and other items.
        conversion: Reads texts that are in no code page of the message.
        header: Bytes before the properties that are numbers.
        charsets: The code pages of the message around it.
    """

    def __init__(self, storage: Storage, conversion: Conversion, header: int, charsets: Sequence[str] = ()) -> None:
        self._conversion, self._storages = conversion, {inner.name: inner for inner in storage.storages}
        self._streams = {stream.name: stream.bytes_ for stream in storage.streams}
        rows = self._streams[_NUMBERS][header:]
        self.numbers = dict(struct.iter_unpack("<2xH4xQ", rows[: len(rows) // 16 * 16]))
        pages = [self.numbers.get(pid, 0) & 0xFFFF for pid in (_NAME_PAGE, _TEXT_PAGE)]
        if self.numbers.get(_LOCALE, 0) & 0x3FF in _WESTERN:
            pages.insert(1, 1252)
        names = (f"iso8859-{page - 28590}" if 28590 < page < 28606 else f"cp{page}" for page in pages if page)
        self._charsets = charsets or [*names]  # that of names first

    def _text(self, pid: int, *, is_body: bool = False) -> str:
        wide, *narrow = (self._streams.get(f"__substg1.0_{pid:04X}{kind}") for kind in ("001F", "001E", "0102"))
        raw = next(filter(None, narrow), b"").decode("utf-8", "surrogateescape")
        text = raw if wide is None else wide.decode("utf-16-le", "replace")
        charsets = self._charsets[:: -1 if is_body else 1]
        return _unescape(text, charsets, "a text of the message", self._conversion).strip("\0 ")

    def shown_as(self, names: Sequence[int], addresses: Sequence[int]) -> str:
        """Return a name and the address beside it; addresses within Exchange (``/O=…``) are none to a reader."""
        name = next(filter(None, map(self._text, names)), "")
        address = next((text for text in map(self._text, addresses) if re.match("[^/].*@", text)), "")
        return f"{name} <{address}>" if name and address and name.strip("'") != address else address or name

    def _items(self, kind: str) -> Iterator[_OutlookItem]:
        for name, storage in self._storages.items():
            if name.startswith(kind):
                yield _OutlookItem(storage, self._conversion, 8, self._charsets)

    def mail(self) -> Message:
        """Return a message as other mail programs would send it."""
        people: dict[int, list[str]] = defaultdict(list)
        for person in self._items("__recip"):
            people[person.numbers.get(_RECIPIENT_KIND, 1) & 3].append(person.shown_as(*_RECIPIENT))
        texts = ((self._text(pid, is_body=True).encode(), kind) for pid, kind in _TEXTS)
        twins = _entity("multipart/alternative", [_entity(f"text/{kind}; charset=utf-8", text) for text, kind in texts])
        files = (item.attachment() for item in self._items("__attach"))
        message = _entity("multipart/mixed", [twins, *files])
        message["Subject"] = self._text(_SUBJECT)
        message["From"] = message_from_string(self._text(_HEADERS))["From"] or self.shown_as(*_SENDER)
        message["To"], message["Cc"] = (", ".join(filter(None, people[kind])) for kind in (1, 2))
        message["Date"] = _outlook_date(self.numbers.get(_SENDING_TIME, 0))
        return message

    def attachment(self) -> Message:
        """Return an attachment as a part of a message."""
        name = next(filter(None, map(self._text, _FILE_NAMES)), "attachment")
        content = self._streams.get(f"__substg1.0_{_FILE:04X}0102", b"")
        if inner := self._storages.get(f"__substg1.0_{_FILE:04X}000D"):
            if any(stream.name == _NUMBERS for stream in inner.streams):
                return _entity("message/rfc822", [_OutlookItem(inner, self._conversion, 24).mail()])
            name, content = f"{name}.bin", _COMPOUND_FILE  # which is said to be unread
        entity = _entity("application/octet-stream", content)
        entity.add_header("Content-Disposition", "attachment", filename=("utf-8", "", name))
        return entity


def _entity(kind: str, content: bytes | list[Message | str]) -> Message:
    entity = Message()
    entity["Content-Type"] = kind
    entity.set_payload(content.decode("ascii", "surrogateescape") if isinstance(content, bytes) else content)
    return entity


def _outlook_date(ticks: int) -> str:
    """Return a time of Windows, in units of .1 µs since 1601; empty if there is none, or none before the year 9998."""
    is_date = 0 < ticks < 265 * 10**16
    return str(datetime(1601, 1, 1, tzinfo=UTC) + timedelta(seconds=ticks // 10**7)) if is_date else ""
