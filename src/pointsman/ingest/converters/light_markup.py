"""Text formats with little markup, as people read them: AsciiDoc, Org, TeX, calendars, subtitles."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from quopri import decodestring
from typing import TYPE_CHECKING

from pointsman.ingest.encoding import decode_declared
from pointsman.ingest.source_text import (
    Block,
    ParsedDocument,
    Row,
    clean,
    outline,
    table_blocks,
    unescape_entities,
    unwrapped,
)

if TYPE_CHECKING:
    from pointsman.ingest.conversion import Conversion

NumberedLine = tuple[int, str]
"""A line and its number in the file, from 1."""

# Lengths are bounded so that a hostile line of brackets costs linear time.
_ASCIIDOC_LINK = re.compile(
    r"(?:link:|xref:|image::?|https?://|mailto:)[^\s\[\]]{1,1000}\[([^\[\]\n]{0,500}?)(?:,[^\[\]\n]{0,500})?\]"
    r"|<<[^<>,\n]{1,200}(?:,([^<>\n]{1,500}))?>>"
)
_ASCIIDOC_SILENT = re.compile(
    r"(?:-{2,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|\[[^\]]*\]|//.*|(?:include|ifn?def|ifeval|endif)::.*|:[\w-]+!?:.*)$"
)
_ASCIIDOC_ATTRIBUTE = re.compile(r"^:([\w-]{1,100}):[ \t]+(.{1,100})$", re.MULTILINE)
_ASCIIDOC_SEEN = re.compile(r":(author|description|keywords|revdate):[ \t]*(.*)$")
_ORG_LINK = re.compile(r"\[\[([^\[\]\n]{1,1000})\](?:\[([^\[\]\n]{1,500})\])?\]")
_ORG_SEEN = re.compile(r"#\+(title|author|date|description|caption|filetags):[ \t]*(.*)$", re.IGNORECASE)
_TEX_COMMENT = re.compile(r"(?<!\\)%.*")
_TEX_HEADING = re.compile(
    r"\\(part|chapter|(?:sub){0,2}section|paragraph)\*?(?:\[[^\[\]]{0,300}\])?\{((?:[^{}]|\{[^{}]{0,200}\}){1,500})\}"
)
_TEX_LEVELS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5}
_TEX_ACCENT = re.compile(r"""\\([`'^"~=.uvHcdbkr])(?:\{\\?([A-Za-z])\}|(?<=[`'^"~=.])\\?([A-Za-z])|[ ]([A-Za-z])\b)""")
_TEX_ACCENTS = dict(
    zip(
        "`'^\"~=.uvHcdbkr",
        "\u0300\u0301\u0302\u0308\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0323\u0331\u0328\u030a",
        strict=True,
    )
)
_TEX_GROUP = r"\{[^{}]{0,1000}\}"
_TEX_COLUMNS = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,100}+\}){0,100}+\}){0,200}+\}"
_TEX_OPTION = r"\[[^\[\]]{0,500}\]"
_TEX_NAMES_SILENT = (
    "documentclass|usepackage|include|input|includegraphics|label|ref|eqref|pageref|autoref|cref|cite[a-z]*|index|"
    "bibliography|bibliographystyle|begin|end|vspace|hspace|setlength|pagestyle|thispagestyle|geometry|setcounter|"
    "href|hyperlink|hypertarget"  # of these the second argument is shown
)
_TEX_DEFINITIONS = "newcommand|renewcommand|providecommand|newenvironment|renewenvironment|def"
_TEX_SILENT = re.compile(
    rf"\\begin\{{(?:tabular[*xy]\}}{_TEX_COLUMNS}|(?:tabular|array|longtable)\}})(?:\[\w?\])?{_TEX_COLUMNS}|"
    rf"\\multi(?:column|row)(?:\{{[^{{}}]{{0,200}}\}}){{2}}|"
    rf"\\(?:{_TEX_NAMES_SILENT})(?![A-Za-z])\*?(?:[ ]?{_TEX_OPTION})*(?:{_TEX_GROUP})?(?:\[[!htbpH]{{1,6}}\])?|"
    rf"\\(?:{_TEX_DEFINITIONS})(?![A-Za-z])\*?[ ]?"
    rf"(?:\\[A-Za-z@]{{1,100}}|\{{[^{{}}]{{0,100}}\}})?(?:\[\d\](?:{_TEX_OPTION})?)?"  # the words of a definition stay
)
_TEX_SYMBOLS = {
    "\\ss": "ß", "\\ae": "æ", "\\oe": "œ", "\\o": "ø", "\\l": "ł", "\\ldots": "…", "\\item": "• ",
    "\\LaTeXe": "LaTeX2e",
    **{f"\\{name}": name for name in ("TeX", "LaTeX", "XeTeX", "XeLaTeX", "LuaTeX", "LuaLaTeX", "BibTeX", "pdfTeX")},
    **dict.fromkeys(("\\footnote", "\\footnotetext", "\\marginpar", "\\thanks"), " "),  # beside the word before them
}  # fmt: skip
_TEX_MARKS = {"---": "—", "--": "–", "``": "“", "''": "”", "~": " ", "\\\\": "\n"}
_CALENDAR_NAMES = {
    "SUMMARY": "", "DTSTART": "Begin", "DTEND": "End", "DUE": "Due", "LOCATION": "Place", "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendee", "DESCRIPTION": "", "COMMENT": "", "RRULE": "Repeated", "STATUS": "Status", "URL": "Link",
    "FN": "", "ORG": "Organization", "TITLE": "Position", "TEL": "Telephone", "EMAIL": "E-mail", "ADR": "Address",
    "NOTE": "", "BDAY": "Birthday", "CATEGORIES": "Categories", "N": "", "NICKNAME": "", "ROLE": "Position",
    "X-WR-CALNAME": "", "X-WR-CALDESC": "", "DURATION": "Duration", "TRIGGER": "Reminder", "EXDATE": "Not on",
    "RDATE": "Also on",
}  # fmt: skip
_STRUCTURED = ("N", "ORG", "ADR")  # fields whose parts are separated by semicolons
_PERIODS = {"YEARLY": "year", "MONTHLY": "month", "WEEKLY": "week", "DAILY": "day", "HOURLY": "hour"}
_REPETITIONS = frozenset({"FREQ", "INTERVAL", "BYDAY", "BYMONTHDAY", "BYMONTH", "COUNT", "UNTIL", "WKST"})
_ORDINALS = {"": "", "1": "the first ", "2": "the second ", "3": "the third ", "4": "the fourth ", "-1": "the last "}
_DATE_NAMES = {
    "MO": "Monday", "TU": "Tuesday", "WE": "Wednesday", "TH": "Thursday", "FR": "Friday", "SA": "Saturday",
    "SU": "Sunday", "1": "January", "2": "February", "3": "March", "4": "April", "5": "May", "6": "June", "7": "July",
    "8": "August", "9": "September", "10": "October", "11": "November", "12": "December",
}  # fmt: skip
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?$")
_DURATION = re.compile(r"[-+]?P(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?$")
_CUE_TIME = re.compile(r"\s*(?:\d+:)?\d+:\d+[.,]\d+ +--> ")
_CUE_MARK = re.compile(r"<v(?:\.[^\s<>]{0,100})?[ \t]+([^<>\n]{1,100})>|</?[a-z][^<>\n]{0,100}>|\{\\[^{}\n]{0,100}\}")
_CUE_UNSEEN = re.compile(r"(?<=\n\n)(?:NOTE|STYLE|REGION)(?:[ \t].*)?(?:\n.+)*")


def asciidoc(path: str, text: str) -> ParsedDocument:
    """Split AsciiDoc by its headings; tables by rows, links by their words, without attributes and marks of blocks."""
    attributes = dict(_ASCIIDOC_ATTRIBUTE.findall(text))

    def plain(markup: str) -> str:
        markup = re.sub(r"\{([\w-]{1,100})\}", lambda name: attributes.get(name[1], name[0]), markup)
        return unescape_entities(_ASCIIDOC_LINK.sub(lambda link: (link[1] or link[2] or "").removesuffix("^"), markup))

    lines = list(_asciidoc_lines(text.split("\n")))
    return outline(path, "adoc", _blocks(lines, re.compile(r"(={1,6}) +(\S.*)$"), plain))


def _asciidoc_lines(lines: list[str]) -> Iterator[NumberedLine]:
    """Yield the lines that are seen; those of a table as its rows, whatever lines its cells stand on."""
    cells: list[str] = []
    columns = begin = 0  # of the table that is open
    is_table = False
    for number, line in enumerate(lines, start=1):
        if line.startswith("|==="):
            is_table = not is_table
            cells, columns = [], 0
            yield number, ""
        elif is_table:
            if not cells:
                begin = number
            cells += [cell.strip() for cell in line.split("|")[1:]]
            columns = columns or len(cells)
            if columns and len(cells) >= columns:
                yield begin, f"|{'|'.join(cells[:columns])}|"
                cells = cells[columns:]
        elif field := _ASCIIDOC_SEEN.match(line):
            yield number, f"{field[1]}: {field[2]}"
        elif line.startswith(".") and line[1:2].isalnum():
            yield number, line[1:]  # the title of a block
        elif not _ASCIIDOC_SILENT.match(line):
            yield number, line


def org(path: str, text: str) -> ParsedDocument:
    """Split Org mode by its headings; tables by rows, links by their words, without drawers and settings."""
    return outline(path, "org", _blocks(list(_org_lines(text)), re.compile(r"(\*{1,8}) +(\S.*)$"), _org_plain))


def _org_plain(text: str) -> str:
    return _ORG_LINK.sub(lambda link: link[2] or link[1], text)


def _org_lines(text: str) -> Iterator[NumberedLine]:
    is_drawer = False
    for number, line in enumerate(text.split("\n"), start=1):
        mark = line.strip()
        if is_drawer or re.fullmatch(r":(?:PROPERTIES|LOGBOOK):", mark, re.IGNORECASE):
            is_drawer = mark.upper() != ":END:"
        elif field := _ORG_SEEN.match(mark):
            yield number, field[2] if field[1].lower() in ("title", "caption") else f"{field[1].lower()}: {field[2]}"
        elif not mark.startswith(("#+", "|-")) and not re.match(r"#\s", mark):
            yield number, line


def tex(path: str, text: str) -> ParsedDocument:
    """Split TeX by its headings; commands give way to their words, accents to letters, comments are dropped."""
    title = re.search(r"\\title(?:\[[^\[\]]{0,300}\])?\{([^{}]{1,500})\}", text)
    lines = [(number, _TEX_COMMENT.sub("", line)) for number, line in enumerate(text.split("\n"), start=1)]
    return outline(path, "tex", _blocks(lines, _TEX_HEADING, _tex_plain), title=_tex_plain(title[1]) if title else "")


def _tex_plain(text: str) -> str:
    text = _TEX_ACCENT.sub(lambda accent: _compose(accent[1], accent[2] or accent[3] or accent[4]), text)
    text = _TEX_SILENT.sub("", text)
    text = re.sub(r"(?<!\\)&", " | ", text)
    for mark, character in _TEX_MARKS.items():
        text = text.replace(mark, character)
    text = re.sub(r"\\[,;:! ]", " ", text)
    text = re.sub(r"(\\[A-Za-z]+)\*?[ ]?", lambda command: _TEX_SYMBOLS.get(command[1], ""), text)
    return re.sub(r"\\([%&#_${}])|\\[-+/]|[{}]|(?<!\\)\$|#+\d", lambda mark: mark[1] or "", text).strip()


def _compose(accent: str, letter: str) -> str:
    return unicodedata.normalize("NFC", letter + _TEX_ACCENTS[accent])


def _blocks(lines: Iterable[NumberedLine], heading: re.Pattern[str], plain: Callable[[str], str]) -> Iterator[Block]:
    """Yield headings, paragraphs and tables, whose rows begin with a bar."""
    paragraph: list[NumberedLine] = []
    for number, line in [*lines, (0, "")]:
        is_row = line.lstrip().startswith("|")
        match = heading.match(line)
        if paragraph and (match or not line.strip() or is_row != paragraph[0][1].lstrip().startswith("|")):
            yield from _paragraph(paragraph, plain)
            paragraph = []
        if match:
            level = _TEX_LEVELS.get(match[1].removeprefix("\\")) or len(match[1])
            yield Block(level, plain(match[2]), (number, number))
            line = line[match.end() :]  # noqa: PLW2901
        if line.strip():
            paragraph.append((number, line))


def _paragraph(lines: list[NumberedLine], plain: Callable[[str], str]) -> Iterator[Block]:
    if lines[0][1].lstrip().startswith("|"):
        cells = ((number, line.strip().strip("|").split("|")) for number, line in lines)
        yield from table_blocks(Row(tuple(plain(cell.strip()) for cell in row), number) for number, row in cells)
    else:
        text, _ = unwrapped(plain("\n".join(line for _, line in lines)))
        yield Block(0, text, (lines[0][0], lines[-1][0]), exact=False)


def calendar(path: str, text: str, conversion: Conversion) -> ParsedDocument:
    """Convert a calendar or address cards: each entry by the words and times that it shows."""
    return outline(path, "ics", calendar_blocks(text, conversion))


def calendar_blocks(text: str, conversion: Conversion) -> Iterator[Block]:
    """Yield the entries of a calendar, with their lines; see RFC 5545, and 6350 and vCard 2.1 for cards."""
    entry_lines: list[tuple[str, str]] = []
    first = 1
    for number, line in (*_unfold(text), (text.count("\n") + 1, "END:")):
        header, _, value = line.partition(":")
        name, *parameters = header.split(";")
        name = name.upper().rpartition(".")[2]  # programs put item1. in front of what belongs together
        if name in ("BEGIN", "END") and value.strip().upper() != "VALARM":
            has_full_name = any(field == "FN" for field, _ in entry_lines)
            words = "\n".join(text_line for field, text_line in entry_lines if field != "N" or not has_full_name)
            if words and value.strip().upper() not in ("STANDARD", "DAYLIGHT"):  # rules of time zones
                yield Block(0, words, (first, number), exact=False, is_alone=True)
            entry_lines, first = [], number
        elif name in _CALENDAR_NAMES and value.strip():
            if "QUOTED-PRINTABLE" in header.upper():
                value = _unquoted(value, parameters, conversion)
            if name in _STRUCTURED:
                value = " ".join(re.sub(r"(?<!\\);", " ", value).split())
            person = next((part[3:].strip('"') for part in parameters if part[:3] == "CN="), "")
            label = _CALENDAR_NAMES[name]
            value = _TIME_WRITERS.get(name, _calendar_value)(f"{person} {value}".strip())
            entry_lines.append((name, f"{label}: {value}" if label else value))


def _unquoted(value: str, parameters: list[str], conversion: Conversion) -> str:
    """Decode a value of vCard 2.1 whose bytes are written as ``=D0=98``, in the encoding that its parameters name."""
    content = decodestring(value.encode())
    charset = next((part[8:].strip('"') for part in parameters if part[:8].upper() == "CHARSET="), "utf-8")
    try:
        return clean(decode_declared(content, charset))
    except (LookupError, ValueError):
        return clean(conversion.decode(content, "a quoted field"))


def _unfold(text: str) -> Iterator[NumberedLine]:
    """Yield the lines of a calendar with those that continue them; a line may be folded within a word."""
    fragments: list[str] = []
    begin, is_quoted = 1, False
    for number, line in enumerate(text.split("\n"), start=1):
        if is_quoted and fragments[-1].endswith("="):
            fragments[-1:] = fragments[-1][:-1], line
        elif line[:1] in (" ", "\t"):
            fragments.append(line[1:])
        else:
            yield begin, "".join(fragments)
            fragments, begin = [line], number
            is_quoted = "QUOTED-PRINTABLE" in line.partition(":")[0].upper()
    yield begin, "".join(fragments)


def _repetition(rule: str) -> str:
    """Write a rule of repetition in words, ``every 2 weeks on Monday, Friday``; one with other parts stays as it is."""
    fields = dict(part.partition("=")[::2] for part in rule.strip().upper().split(";"))
    period, interval = _PERIODS.get(fields.get("FREQ", "")), fields.get("INTERVAL", "1")
    if period is None or not fields.keys() <= _REPETITIONS:
        return rule
    days, dates, months = (
        [item for item in fields.get(name, "").split(",") if item] for name in ("BYDAY", "BYMONTHDAY", "BYMONTH")
    )
    details = {
        " on ": ", ".join(_ORDINALS.get(day[:-2], day[:-2]) + _DATE_NAMES.get(day[-2:], day[-2:]) for day in days),
        " on day ": ", ".join(dates), " in ": ", ".join(_DATE_NAMES.get(month, month) for month in months),
        " until ": _calendar_value(fields.get("UNTIL", "")), ", times: ": fields.get("COUNT"),
    }  # fmt: skip
    period_words = f"every {period}" if interval == "1" else f"every {interval} {period}s"
    return period_words + "".join(word + detail for word, detail in details.items() if detail)


def _calendar_value(value: str) -> str:
    if time := _TIME.match(value):
        year, month, day, hour, minute, is_utc = time.groups()
        return f"{year}-{month}-{day}" + (f" {hour}:{minute}{' UTC' if is_utc else ''}" if hour else "")
    value = re.sub(r"mailto:", "", value, flags=re.IGNORECASE)
    return re.sub(r"\\([\\;,:\"nN])", lambda mark: "\n" if mark[1] in "nN" else mark[1], value)


def _dates(value: str) -> str:
    return ", ".join(map(_calendar_value, value.split(",")))


def _duration(value: str) -> str:
    """Write a duration in words, ``1 hour 30 minutes``; what is none stays as it is, but dates."""
    if not (duration := _DURATION.match(value)):
        return _calendar_value(value)
    counts = zip(map(int, duration.groups("0")), ("week", "day", "hour", "minute", "second"), strict=True)
    return " ".join(f"{count} {unit}{'s' * (count > 1)}" for count, unit in counts if count)


def _reminder(value: str) -> str:
    is_span, words = _DURATION.match(value), _duration(value)
    return f"{words} {'before' if value[0] == '-' else 'after'}" if is_span and words else words or "at the time"


_TIME_WRITERS = {"RRULE": _repetition, "EXDATE": _dates, "RDATE": _dates, "DURATION": _duration, "TRIGGER": _reminder}


def subtitles(path: str, text: str) -> ParsedDocument:
    """Convert subtitles (SRT, WebVTT) to the lines that are shown, without numbers and times; speakers are named."""
    if text.startswith("WEBVTT"):
        text = _CUE_UNSEEN.sub(lambda unseen: "\n" * unseen[0].count("\n"), text)
    lines = _CUE_MARK.sub(lambda mark: f"{mark[1]}: " if mark[1] else "", text).split("\n")
    timed = {number for number, line in enumerate(lines, start=1) if _CUE_TIME.match(line)}
    cue_lines = (
        (number, "" if number in timed or number + 1 in timed or line.startswith("WEBVTT") else line)
        for number, line in enumerate(lines, start=1)
    )
    return outline(path, "srt", _blocks(cue_lines, re.compile(r"(?!)"), unescape_entities))
