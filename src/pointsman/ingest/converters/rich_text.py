"""RTF, and messages of Outlook."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from importlib.util import find_spec

from pointsman.ingest.converters.inner_files import ConvertInner, attached_files
from pointsman.ingest.converters.web_page import html_blocks
from pointsman.ingest.source_text import Block, ParsedDocument, Problem, clean, outline, stem
from pointsman.tools.errors import InputError

_LONGEST_RTF = 20 << 20  # bytes; the library takes time in proportion
_NOTE = re.compile(r"\{(?:\\\*)?\\(?:header|footer|footnote|annotation)[lrf]?(?![a-z])")
_CONTROL_WITHOUT_NUMBER = re.compile(r"(?<!\\)\\(?:bin|uc)(?![-0-9a-z]) ?")  # it means nothing
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_HINT = "pip install 'pointsman[outlook]'"


def rtf(path: str, data: bytes) -> ParsedDocument:
    """Convert RTF to its text; cells of a table are separated by bars.

    Raises:
        InputError: The file is too large, or damaged.
    """
    from striprtf.striprtf import rtf_to_text  # few files need it

    if len(data) > _LONGEST_RTF:
        raise InputError(f"{len(data) >> 20} MB of RTF, more than {_LONGEST_RTF >> 20} MB; save it as .docx")
    source = data.decode("latin-1")
    if not source.lstrip().startswith("{\\rtf"):
        source = f"{{{source}}}"  # a fragment of several groups, of which the library would read the first
    source = _CONTROL_WITHOUT_NUMBER.sub("", _with_notes(source))
    try:
        text = rtf_to_text(source, errors="replace")  # type: ignore[no-untyped-call]  # it ships no types
    except (ValueError, TypeError) as error:
        raise InputError("damaged RTF, with a number that RTF does not have; save it anew as .docx") from error
    lines = (line.rstrip(" |") for line in text.split("\n"))
    return outline(path, "rtf", [Block(0, "\n".join(line.replace("|", " | ") for line in lines))], title=stem(path))


def _with_notes(source: str) -> str:
    """Return RTF whose headers, footers, footnotes and comments stand at its end; the library would leave them out."""
    texts: list[str] = []
    groups: list[str] = []
    position = 0
    while group := _NOTE.search(source, position):
        depth = 0
        for brace in _BRACE.finditer(source, group.start()):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if not depth:
                break
        else:
            break  # it does not end: the file is damaged
        texts.append(source[position : group.start()])
        groups.append(source[group.end() : brace.end()])
        position = brace.end()
    body = "".join([*texts, source[position:]])
    end = body.rfind("}")
    return body[:end] + "".join(f"\\par{{{text}" for text in dict.fromkeys(groups)) + body[end:]


def msg(path: str, data: bytes, most_files: int, convert_inner: ConvertInner) -> Iterator[ParsedDocument | Problem]:
    """Yield a message of Outlook with its subject as title, addresses, date and text, and then its attachments.

    Args:
        path: The id of the source.
        data: The message.
        most_files: How many attachments are read.
        convert_inner: Converts an attachment.

    Raises:
        InputError: The file is no message, or the package that reads it is not installed.
    """
    if find_spec("oxmsg") is None:
        raise InputError(f"a message of Outlook; to read it: {_HINT}")
    from oxmsg import Message  # an extra

    try:
        message = Message.load(io.BytesIO(data))
        recipients = ", ".join(f"{person.name} <{person.email_address}>" for person in message.recipients)
        fields = {"From": message.sender, "To": recipients, "Date": str(message.sent_date or "")}
        body = message.body or ""
        html = "" if body.strip() else message.html_body or ""
        files = [(item.file_name or "attachment", item.file_bytes or b"") for item in message.attachments]
    except (ValueError, LookupError, OSError, AttributeError) as error:
        raise InputError(f"damaged message of Outlook: {error}") from error
    blocks = [Block(0, "\n".join(f"{name}: {value}" for name, value in fields.items() if value))]
    blocks += html_blocks(clean(html))[1] if html else [Block(0, body)]
    metadata = {name.lower(): value for name, value in fields.items() if value}
    blocks = [block._replace(lines=None, line_starts=()) for block in blocks]
    source = outline(path, "msg", blocks, title=message.subject or "", metadata=metadata)
    yield source
    yield from attached_files(source, files, most_files, convert_inner)
