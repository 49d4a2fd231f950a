"""RTF."""

from __future__ import annotations

import re

from pointsman.ingest.source_text import Block, ParsedDocument, outline, stem
from pointsman.tools.errors import InputError

_LONGEST_RTF = 20 << 20  # bytes; the library takes time in proportion
_NOTE = re.compile(r"\{(?:\\\*)?\\(?:header|footer|footnote|annotation)[lrf]?(?![a-z])")
_CONTROL_WITHOUT_NUMBER = re.compile(r"(?<!\\)\\(?:bin|uc)(?![-0-9a-z]) ?")  # it means nothing
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


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
