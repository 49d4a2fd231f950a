"""E-mail: addresses, date, text and attachments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header, make_header
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from pointsman.ingest.converters.web_page import html_blocks
from pointsman.ingest.encoding import decode, decode_declared
from pointsman.ingest.source_text import Block, ParsedDocument, Problem, clean, outline
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from email.message import Message

_HEADER_FIELDS = ("From", "To", "Cc", "Date")


def mail(
    path: str, data: bytes, convert_attachment: Callable[[str, bytes], Iterator[ParsedDocument | Problem]]
) -> Iterator[ParsedDocument | Problem]:
    """Yield the message with its subject as title, addresses, date and text, and each attachment under its name.

    Args:
        path: The id of the source.
        data: The message.
        convert_attachment: Converts an attachment.
    """
    message = message_from_bytes(data)
    if not message.keys():
        raise InputError("not an e-mail: it has no header")
    fields = {name: _header(message, name) for name in _HEADER_FIELDS}
    blocks = [Block(0, "\n".join(f"{name}: {value}" for name, value in fields.items() if value))]
    for entity in message.walk():
        content = None if entity.is_multipart() else entity.get_payload(decode=True)
        if not isinstance(content, bytes):
            continue
        if (name := _filename(entity)) is None:
            try:
                blocks += _body(message, entity, content)
            except InputError as error:
                yield Problem(path, f"a part of the message: {error}")
            continue
        blocks.append(Block(1, name))
        for item in _attachments_of(convert_attachment, name, content):
            if isinstance(item, Problem):
                yield Problem(path, f"attachment {name!r}: {item.reason}")
            else:
                blocks.append(Block(0, item.text))
    metadata = {name.lower(): value for name, value in fields.items() if value} | _date(message)
    yield outline(path, "eml", blocks, title=_header(message, "Subject"), metadata=metadata)


def _attachments_of(
    convert_attachment: Callable[[str, bytes], Iterator[ParsedDocument | Problem]], name: str, content: bytes
) -> Iterator[ParsedDocument | Problem]:
    """Yield what is in an attachment; what stops its converter is a problem, and the message is read on."""
    try:
        yield from convert_attachment(name, content)
    except InputError as error:
        yield Problem(name, str(error))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  (a hostile file may make a parser raise any exception; it is reported)
        yield Problem(name, f"cannot be converted: {type(error).__name__}: {error}"[:1000])


def _body(message: Message, entity: Message, content: bytes) -> list[Block]:
    kind = entity.get_content_type()
    if kind == "text/plain":
        return [Block(0, _text(entity, content))]
    if kind != "text/html" or _has_plain_twin(message, entity):
        return []
    return [block._replace(lines=None) for block in html_blocks(clean(_text(entity, content)))[1]]


def _header(message: Message, name: str) -> str:
    value = next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
    return " ".join(clean(_decode(_unescape(message, value))).split())[:1000]


def _unescape(message: Message, value: str) -> str:
    """Decode a header's raw bytes: as UTF-8, in an encoding that the message declares, or in a detected one."""
    if value.isascii():
        return value
    data = value.encode("utf-8", "surrogateescape")
    for encoding in ("utf-8", *message.get_charsets()):
        try:
            return decode_declared(data, encoding or "utf-8")
        except (LookupError, ValueError):
            pass  # the next encoding, or the bytes, decide
    try:
        return decode(data)
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
        unencoded = "ascii" if value.isascii() else "raw-unicode-escape"  # the codec that decode_header uses for it
        words = [
            (word if isinstance(word, str) else decode_declared(word, encoding or unencoded), encoding and "utf-8")
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


def _text(entity: Message, content: bytes) -> str:
    charset = entity.get_content_charset()
    try:
        return decode_declared(content, charset or "utf-8")
    except (LookupError, ValueError):
        return decode(content)  # the header's encoding is wrong, so it is detected from the bytes


def _has_plain_twin(message: Message, entity: Message) -> bool:
    """Whether the message also has this part's text as plain text; some programs leave the plain part empty."""
    for container in message.walk():
        alternatives = container.get_payload() if container.get_content_type() == "multipart/alternative" else None
        if isinstance(alternatives, list) and any(item is entity for item in alternatives):
            return any(_is_plain_text(item) for item in alternatives if not isinstance(item, str))
    return False


def _is_plain_text(entity: Message) -> bool:
    content = entity.get_payload(decode=True) if entity.get_content_type() == "text/plain" else None
    return isinstance(content, bytes) and bool(content.strip())
