"""RTF."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pointsman.ingest.converters.paragraphs import superscript_mark
from pointsman.ingest.source_text import Block, ParsedDocument, Problem, Row, outline, stem, table_blocks
from pointsman.tools.errors import InputError

_LONGEST_RTF = 20 << 20  # bytes; the library takes time in proportion
_CONTROL_WITHOUT_NUMBER = re.compile(r"(?<!\\)\\(?:bin|uc)(?![-0-9a-z]) ?")  # it means nothing
# Characters that no RTF has tell the states of its text, and where rows and cells of tables begin or end.
_HIDDEN, _DELETED, _RAISED, _IN_NOTE = 1, 2, 4, 8
_STATES = {"v": _HIDDEN, "deleted": _DELETED, "super": _RAISED}
_ENDED_STATES = {"plain": 7, "nosupersub": _RAISED, "sub": _RAISED}
_FIRST_STATE, _IN_TABLE, _CELL, _ROW = 0xE000, "\ue010", "\ue011", "\ue012"
_STATE, _TABLE_MARK = re.compile("([\ue000-\ue00f])"), re.compile("[\ue010-\ue012]")
_CELLS_AND_ROWS = {"cell": _CELL, "nestcell": _CELL, "row": _ROW, "trowd": _IN_TABLE, "intbl": _IN_TABLE}
_SIGN = re.compile(
    r"\{(?:\\\*)?\\(header|footer|footnote|annotation|nesttableprops)[lrf]?(?![a-z])|[{}]|\\[^a-z]|"
    rf"\\({'|'.join((*_STATES, *_ENDED_STATES, *_CELLS_AND_ROWS))})(-?\d{{1,10}})?(?![a-z0-9]) ?"
)


def rtf(path: str, data: bytes) -> Iterator[ParsedDocument | Problem]:
    """Convert RTF: text, tables by rows, then headers, footers, footnotes and comments.

    Raises:
        InputError: The file is too large, or damaged.
    """
    from striprtf.striprtf import rtf_to_text  # few files need it

    if len(data) > _LONGEST_RTF:
        raise InputError(f"{len(data) >> 20} MB of RTF, more than {_LONGEST_RTF >> 20} MB; save it as .docx")
    source = data.decode("latin-1")
    if not source.lstrip().startswith("{\\rtf"):
        source = f"{{{source}}}"  # a fragment of several groups, of which the library would read the first
    try:
        text = rtf_to_text(_with_marks(_CONTROL_WITHOUT_NUMBER.sub("", source)), errors="replace")  # type: ignore[no-untyped-call]  # it ships no types
    except (ValueError, TypeError) as error:
        raise InputError("damaged RTF, with a number that RTF does not have; save it anew as .docx") from error
    state = hidden_pieces = 0
    texts: list[list[str]] = [[]]  # the first is not of a note
    for segment in _STATE.split(text):
        if _STATE.fullmatch(segment):
            texts += [[]] if (new_state := ord(segment) - _FIRST_STATE) & ~state & _IN_NOTE else []
            state = new_state
            continue
        segments = texts[-1 if state & _IN_NOTE else 0]
        if state & (_HIDDEN | _DELETED):
            hidden_pieces += state & _HIDDEN and bool(_TABLE_MARK.sub("", segment).strip())
            segments += _TABLE_MARK.findall(segment)
        elif segment:
            segments += superscript_mark("".join(segments[-9:])[-9:], segment) if state & _RAISED else "", segment
    yield outline(path, "rtf", _blocks("\n".join(dict.fromkeys(map("".join, texts)))), title=stem(path))
    if hidden_pieces:
        yield Problem(path, f"{hidden_pieces} pieces of hidden text are left out; show them in Word to index them")


def _with_marks(source: str) -> str:
    """Return RTF that tells the library of what it would leave out."""
    groups: list[int] = []
    state = 0

    def with_mark(sign: re.Match[str]) -> str:
        nonlocal state
        replacement, old_state, (group, name, number) = sign[0], state, sign.groups()
        if replacement == "}":
            state = groups.pop() if groups else 0
        elif replacement[0] == "{":
            groups.append(state)
            if group and group != "nesttableprops":
                replacement, state = "{", _IN_NOTE
        elif name in _STATES:
            state = state | _STATES[name] if number != "0" else state & ~_STATES[name]
        else:
            state &= ~_ENDED_STATES.get(name, 0)
        mark = _ROW if group == "nesttableprops" else _CELLS_AND_ROWS.get(name, "")
        mark += chr(_FIRST_STATE + state) if state != old_state else ""
        # A control without a meaning ends what stands for a character of Unicode.
        return (f"\\e {mark}" if mark else "") + ("" if name in _CELLS_AND_ROWS else replacement)

    return _SIGN.sub(with_mark, source)


def _blocks(text: str) -> Iterator[Block]:
    """Yield running text and tables; nested tables are rows of their own."""
    *row_texts, last_text = text.split(_ROW)
    rows: list[Row] = []
    for row_text in row_texts:
        paragraph_text, _, cell_text = row_text.partition(_IN_TABLE)
        if paragraph_text.strip():
            yield from table_blocks(rows)
            yield _lines(paragraph_text)
            rows.clear()
        rows.append(Row(tuple(" ".join(cell.replace(_IN_TABLE, "").split()) for cell in cell_text.split(_CELL))))
    yield from table_blocks(rows)
    yield _lines(last_text)


def _lines(text: str) -> Block:
    lines = text.replace(_IN_TABLE, "").replace(_CELL, " | ").split("\n")  # of a row that does not say that it is one
    return Block(0, "\n".join(line.rstrip(" |") for line in lines))
