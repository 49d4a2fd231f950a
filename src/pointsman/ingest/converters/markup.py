"""Markdown, notebooks and reStructuredText: headings are kept, decoration is dropped."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import TYPE_CHECKING, Any

from pointsman.ingest.converters.records import MOST_FIELDS
from pointsman.ingest.converters.web_page import html_blocks
from pointsman.ingest.source_text import (
    Block,
    ParsedDocument,
    Problem,
    Row,
    clean,
    outline,
    table_blocks,
    unescape_entities,
)
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n(.{0,20000}?)\n(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_LINE = re.compile(r"""^([\w-]{1,50})[ \t]*:[ \t]*["']?([^\n]{1,1000}?)["']?[ \t]*$""", re.MULTILINE)
_FRONT_ANCHOR, _FRONT_ALIAS = re.compile(r"&([^\s,\[\]{}]+)"), re.compile(r"\*([^\s,\[\]{}]+)")
_FRONT_UNSEEN = re.compile(
    "layout|template|permalink|slug|weight|order|nav_order|sidebar_.*|draft|(?:true|false)"
    r"|[a-z]+://\S+|[./]\S+|\S+\.(?:png|jpe?g|gif|svg|webp)",
    re.IGNORECASE,
)
"""Of front matter, the names and values that speak to the program that makes pages: they are no text, only metadata."""

_FRONT_TABLES = ("params", "taxonomies", "extra")  # Hugo and Zola keep fields in them, too

# Lengths are bounded so that a hostile line of brackets costs linear time.
_BADGE = re.compile(r"\[!\[[^\[\]\n]{0,300}\]\([^()\s]{0,1000}\)\]\([^()\s]{0,1000}\)")
_CODE = r"(?P<code>(?<!`)`[^`\n]{1,500}`(?!`)|(?<!`)``(?!`)[^\n]{1,500}?``(?!`))"
_WORDS = r"(?P<words>(?:[^\[\]\n]|\n(?![ \t]*\n)){0,500})"
_LINK = re.compile(
    rf"{_CODE}|!?\[{_WORDS}\]"
    r"""\((?:<[^<>\n]{0,1000}>|(?:\{[{%<][^{}\n]{0,300}[}%>]\})?[^()\s]{0,1000}(?:\([^()\s]{0,300}\)[^()\s]{0,300})?)"""
    r"""(?:[ ]"[^"\n]{0,300}")?\)"""
)
_REFERENCE = re.compile(rf"{_CODE}|!?\[{_WORDS}\]\[(?P<label>[^\[\]\n]{{0,300}})\]")
_DEFINITION = re.compile(r"^[ ]{0,3}\[(?!\^)[^\[\]\n]{1,500}\]:[ \t]*\S.*", re.MULTILINE)
_TAG_OR_STAR = re.compile(rf"{_CODE}|<[^<>]{{0,200}}>|(?<!\\)\*")
_KEPT = re.compile(
    r"^[ \t>]*(?:[-*+]|\d{1,9}[.)])?[ \t>]*(?P<fence>`{3,}|~{3,})[^\n]*(?:\n(?![ \t>]*(?P=fence)).*)*(?:\n.*)?"
    rf"|{_CODE}",
    re.MULTILINE,
)
"""Code, which stays as it is: between fences, in a list too, or within a line."""
_ESCAPED = re.compile(r"\\\\|\\([!-/:-@\[\]^-`{-~])|\$\$[^$]{1,2000}\$\$|\$[^$\n]{1,300}\$")
"""A mark that is meant as itself; two backslashes, as of a shared folder's path, and formulas stay as they are."""

_RST_LINE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*")
_RST_SILENT = re.compile(
    r"\.\.[ ](?:\|[^|\n]{1,200}\|[ ])?(?:image|figure|raw|contents|toctree|meta|replace)::|\.\.[ ]_"
)
_RST_PICTURE = re.compile(r"\.\.[ ](?:\|[^|\n]{1,200}\|[ ])?(?:image|figure)::")
_RST_NAME = re.compile(r"\.\.[ ]\|([^|\n]{1,200})\|[ ](?:replace::[ ]*(.*)|image::.*)")
_RST_ROLE = re.compile(r":[A-Za-z][\w:.+-]{0,60}:`[~!]?([^`<>\n]{1,300}?)(?:[ ]<[^`<>\n]{0,300}>)?`")
_RST_SUBSTITUTION = re.compile(r"\|(\w[\w. -]{0,60})\|_{0,2}")
_RST_DIRECTIVE = re.compile(
    r"^([ \t]*)\.\.[ ]([\w:-]{1,60})::[ \t]*([^\n]*)"
    r"((?:\n[ \t]+:[\w-]{1,60}:(?:[ \t][^\n]*)?(?=\n|$)){0,50})",
    re.MULTILINE,
)
_RST_UNSEEN = re.compile("code|code-block|sourcecode|highlight|parsed-literal|math|include|only")
_RST_LABELS = re.compile("note|tip|hint|warning|caution|danger|error|attention|important|todo")
_RST_LONG_LABELS = {
    "seealso": "See also", "versionadded": "Added in version", "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
}  # fmt: skip
_RST_TABLE = re.compile(r"\.\.[ ]list-table::[ \t]*(.*)")
_RST_LINK = re.compile(r"`([^`<>\n]{1,300}?)[ \n]<[^`<>\n]{0,1000}>`__?")

_RST_ESCAPED = re.compile(r"(^[ \t].*|``.{1,300}?``|\\\\)|\\(?:[ ]|([*_`|]))", re.MULTILINE)
"""A mark that is meant as itself, or an end of a word that is not shown; indented lines may be code."""


def markdown(path: str, text: str) -> ParsedDocument:
    """Split by headings; the text stays Markdown, without badges, link targets, escapes and raw HTML."""
    title, skipped, metadata, head = "", 0, dict[str, Any](), list[Block]()
    if front := _FRONT_MATTER.match(text):
        metadata = _front_fields(front[2], is_toml=front[1] == "+++")
        title = str(metadata.pop("title", ""))
        skipped = front[0].count("\n")
        field_lines = [f"{key}: {_join_texts(value)}" for key, value in metadata.items() if _is_seen(key, value)]
        text = text[front.end() :]
        # Of a page that only leads elsewhere, it is all that a reader sees.
        head = [Block(0, "\n".join(field_lines) if text.strip() else front[2], (2, skipped), exact=False)]
    return outline(path, "md", [*head, *_markdown_blocks(text, skipped)], title=title, metadata=metadata)


def _front_fields(text: str, *, is_toml: bool) -> dict[str, str | list[str]]:
    """Return the texts, and lists of texts, of front matter; its lines one by one if it is not quite YAML.

    What repeats itself by aliases would grow without end, so it counts as not quite YAML.
    """
    import tomllib  # few texts need these two

    import yaml  # type: ignore[import-untyped]  # it ships no types

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # all scalars are texts; some machines lack the quick one
    try:
        if not is_toml and {*_FRONT_ANCHOR.findall(text)} & {*_FRONT_ALIAS.findall(text)}:
            raise yaml.YAMLError
        values = tomllib.loads(text) if is_toml else yaml.load(text, loader)  # noqa: S506
    except (tomllib.TOMLDecodeError, yaml.YAMLError, RecursionError):
        values = dict(_FRONT_LINE.findall(text))
    values = values if isinstance(values, dict) else {}
    tables = [*map(values.get, _FRONT_TABLES), values]  # the last wins
    fields: dict[str, str | list[str]] = {}
    for key, value in (field for table in tables if isinstance(table, dict) for field in table.items()):
        texts = list(_front_texts(() if key in _FRONT_TABLES else value))
        if any(texts) and len(fields) < MOST_FIELDS:
            fields[clean(str(key))[:100].lower()] = texts if isinstance(value, list | dict) else texts[0]
    return fields


def _front_texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the scalars of a value, of the items of a list, and of the fields of these."""
    if isinstance(value, dict | list):
        for inner_value in value.values() if isinstance(value, dict) else value:
            if depth < 2:
                yield from _front_texts(inner_value, depth + 1)
    else:
        yield value.isoformat() if isinstance(value, date) else unescape_entities(str(value))


def _is_seen(key: str, value: str | list[str]) -> bool:
    """Whether a person would look for what a field of front matter says."""
    return not any(_FRONT_UNSEEN.fullmatch(text) for text in (key, _join_texts(value)))


def _join_texts(value: str | list[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


def _markdown_blocks(text: str, skipped: int) -> Iterator[Block]:
    """Yield the blocks of Markdown; ``skipped`` lines of the file precede ``text``."""
    from markdown_it import MarkdownIt  # only Markdown needs it

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])  # only block structure is needed
    lines = text.split("\n")
    definitions: dict[str, Any] = {}
    tokens = parser.parse(text, definitions)
    labels = frozenset(definitions.get("references", ()))
    position = 0
    for index, token in enumerate(tokens):
        if token.level or token.map is None or token.nesting < 0:
            continue
        first, last = token.map
        if first < position:
            continue
        if first > position:
            yield Block(0, _between(lines[position:first]), (skipped + position + 1, skipped + first))
        if token.type == "table_open":
            yield from _markdown_table(tokens[index:], skipped, labels)
            position = last
            continue
        level, block = _markdown_block(token, tokens[index + 1 : index + 2], "\n".join(lines[first:last]), labels)
        yield Block(level, block, (skipped + first + 1, skipped + last), token.type != "html_block")
        position = last
    if position < len(lines):
        yield Block(0, _between(lines[position:]), (skipped + position + 1, skipped + len(lines)))


def _between(lines: list[str]) -> str:
    """Return what stands between blocks without the definitions of links, whose targets are not shown."""
    return _plain(_DEFINITION.sub("", "\n".join(lines)))


def _markdown_table(tokens: list[Token], skipped: int, labels: frozenset[str]) -> Iterator[Block]:
    """Yield the table with which the tokens begin, its header above the rows of each block."""
    rows: list[Row] = []
    cells: list[str] = []
    first_line = 0
    for token in tokens:
        if token.type == "inline":
            cells.append(_plain(token.content, labels))
        elif token.type == "tr_close":
            rows.append(Row(tuple(cells), skipped + first_line + 1))
            cells = []
        elif token.type == "tr_open" and token.map:
            first_line = token.map[0]
        elif token.type == "table_close":
            break
    yield from table_blocks(rows)


def _markdown_block(token: Token, following: list[Token], raw: str, labels: frozenset[str]) -> tuple[int, str]:
    if token.type == "heading_open":
        words = _TAG_OR_STAR.sub(lambda mark: mark["code"] or "", following[0].content)
        return int(token.tag[1:]), _plain(words, labels).replace("`", "")
    if token.type == "html_block":
        _, blocks = html_blocks(raw)
        return 0, "\n".join(block.text for block in blocks)
    return 0, raw if token.type in ("fence", "code_block") else _plain(raw, labels)


def _plain(text: str, labels: frozenset[str] = frozenset()) -> str:
    """Return Markdown without the targets of its links, and with the characters that are escaped or referred to.

    Args:
        text: Markdown.
        labels: Of links that are defined elsewhere.
    """

    def words_of(link: re.Match[str]) -> str:
        is_defined = link["code"] is None and (link["label"] or link["words"]).strip().upper() in labels
        return link["words"] if is_defined else link[0]

    text = _LINK.sub(lambda link: link["code"] or link["words"] or "", _BADGE.sub("", text))
    for _ in range(2 if labels and "][" in text else 0):  # a picture may be the words of a link
        text = _REFERENCE.sub(words_of, text)
    if "&" not in text and "\\" not in text:
        return text
    parts, position = list[str](), 0
    for code in _KEPT.finditer(text):
        parts += _unescaped(text[position : code.start()]), code[0]
        position = code.end()
    return "".join([*parts, _unescaped(text[position:])])


def _unescaped(text: str) -> str:
    return unescape_entities(_ESCAPED.sub(lambda escaped: escaped[1] or escaped[0], text))


def restructured_text(path: str, text: str) -> ParsedDocument:
    """Split by underlined headings, whose levels follow the order in which the underline styles first appear."""
    lines = text.split("\n")
    names = {match[1]: match[2] or "" for line in lines if (match := _RST_NAME.match(line))}
    blocks = _rst_blocks(lines)
    size = sum(len(words) * text.count(f"|{name}|") for name, words in names.items())
    if names and size <= len(text):  # more is no shorthand
        blocks = (
            block._replace(text=_RST_SUBSTITUTION.sub(lambda m: names.get(m[1], m[0]), block.text)) for block in blocks
        )
    return outline(path, "rst", blocks)


def _rst_blocks(lines: list[str]) -> Iterator[Block]:
    styles: list[str] = []
    index = begin = 0
    while index < len(lines):
        if heading := _rst_heading(lines, index):
            name, style, height = heading
            yield from _rst_body(lines, begin, index)
            if style not in styles:
                styles.append(style)
            begin = index + height
            name = re.sub(r"\\(\S)", r"\1", _rst_plain(name))
            yield Block(styles.index(style) + 1, name, (index + 1, begin))
            index = begin
        elif (table := _RST_TABLE.match(lines[index])) or _RST_SILENT.match(lines[index]):
            yield from _rst_body(lines, begin, index)
            begin = index
            index += 1
            while index < len(lines) and (lines[index].startswith((" ", "\t")) or (table and not lines[index])):
                index += 1
            if table:
                yield Block(0, _rst_plain(table[1]), (begin + 1, begin + 1))
                yield from table_blocks(_rst_rows(lines[begin + 1 : index], begin + 2))
            elif _RST_PICTURE.match(lines[begin]):
                option_lines = [line.removeprefix(":alt:") for line in map(str.strip, lines[begin + 1 : index])]
                caption = "\n".join(line for line in option_lines if not re.match(r":\w+:", line))
                yield Block(0, _rst_plain(caption), (begin + 1, index), exact=False)
            begin = index
        else:
            index += 1
    yield from _rst_body(lines, begin, index)


def _rst_rows(lines: list[str], first: int) -> Iterator[Row]:
    """Yield the rows of a ``list-table``, a list of lists of cells, whose first line has this number."""
    cells: list[str] = []
    begin = first
    for number, line in enumerate([*map(str.strip, lines), "* -"], first):
        if line.startswith("* -"):
            if cells:
                yield Row(tuple(map(_rst_plain, cells)), begin)
            cells, begin = [line[3:].strip()], number
        elif cells and (line == "-" or line.startswith("- ")):
            cells.append(line[1:].strip())
        elif cells:
            cells[-1] = f"{cells[-1]} {line}".strip()


def _rst_body(lines: list[str], begin: int, end: int) -> Iterator[Block]:
    if begin < end:
        yield Block(0, _rst_plain("\n".join(lines[begin:end])), (begin + 1, end))


def _rst_heading(lines: list[str], index: int) -> tuple[str, str, int] | None:
    """Return title, style and number of lines of the heading that starts at ``index``."""
    line, *following = (item.rstrip() for item in lines[index : index + 3])
    if len(following) == 2 and _RST_LINE.fullmatch(line) and following[1] == line and following[0].strip():
        return following[0].strip(), line[0] * 2, 3
    if not following or not line or line[0].isspace() or _RST_LINE.fullmatch(line):
        return None
    # Chinese characters are two columns wide, and authors count them either way.
    if _RST_LINE.fullmatch(following[0]) and len(following[0]) >= min(len(line), 4):
        return line, following[0][0], 2
    return None


def _rst_plain(text: str) -> str:
    text = _RST_LINK.sub(r"\1", _RST_ROLE.sub(r"\1", _RST_DIRECTIVE.sub(_rst_label, text)))
    return _RST_ESCAPED.sub(lambda escaped: escaped[1] or escaped[2] or "", text) if "\\" in text else text


def _rst_label(directive: re.Match[str]) -> str:
    """Return what a reader sees of a directive's first lines, in as many lines."""
    indent, name, argument, options = directive.groups()
    if _RST_UNSEEN.fullmatch(name):
        argument = ""
    elif label := _RST_LONG_LABELS.get(name, name.capitalize() if _RST_LABELS.fullmatch(name) else ""):
        argument = f"{label}: {argument}".rstrip()
    return indent + argument + "\n" * options.count("\n")


def notebook(path: str, text: str, most_cells: int) -> Iterator[ParsedDocument | Problem]:
    """Convert a Jupyter notebook: cells become pages with Markdown and its headings, code, and printed text.

    Raises:
        InputError: The file is not a notebook.
    """
    try:
        content = json.loads(text)
        cells = content["cells"] if "cells" in content else content["worksheets"][0]["cells"]
        language = content.get("metadata", {}).get("kernelspec", {}).get("language", "")
        if not isinstance(cells, list):
            raise TypeError("its cells are not a list")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"no notebook: {type(error).__name__}: {error}") from error
    if len(cells) > most_cells:
        yield Problem(path, f"{len(cells)} cells; only the first {most_cells} are read")
    blocks: list[Block] = []
    for page, cell in enumerate(cells[:most_cells], start=1):
        if not isinstance(cell, dict):
            continue
        source = _join(cell.get("source", cell.get("input")))
        if cell.get("cell_type") in ("markdown", "heading"):
            blocks += [block._replace(lines=None, page=page) for block in _markdown_blocks(clean(source), 0)]
        else:
            blocks.append(Block(0, source, page=page))
            outputs = cell.get("outputs")
            for result in map(_output, outputs if isinstance(outputs, list) else ()):
                blocks.append(Block(0, result[:_LONGEST_OUTPUT], page=page))
                if len(result) > _LONGEST_OUTPUT:
                    reason = f"a result of {len(result)} characters; only the first {_LONGEST_OUTPUT} are read"
                    yield Problem(path, f"cell {page}: {reason}")
    metadata = {"language_of_code": language} if isinstance(language, str) and language else {}
    yield outline(path, "ipynb", blocks, metadata=metadata)


_LONGEST_OUTPUT = 20_000  # characters of one result of a cell


def _join(value: object) -> str:
    """Return a string, or join a list of strings."""
    if isinstance(value, list):
        return "".join(item for item in value if isinstance(item, str))
    return value if isinstance(value, str) else ""


def _output(output: object) -> str:
    """Return what a cell's result shows: its text, else its words as Markdown or HTML, or an error's message."""
    if not isinstance(output, dict):
        return ""
    if output.get("output_type") in ("error", "pyerr"):
        return f"{_join(output.get('ename'))}: {_join(output.get('evalue'))}"
    data = output.get("data")
    data = data if isinstance(data, dict) else {}
    text = _join(output.get("text")) or _join(data.get("text/plain")) or _join(data.get("text/markdown"))
    return text or "\n".join(block.text for block in html_blocks(_join(data.get("text/html")))[1])
