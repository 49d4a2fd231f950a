"""Sources to passages: whole sentences, heading context, exact offsets, and ids that follow the content."""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from bisect import bisect_right
from collections import Counter
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pointsman.errors import InputError
from pointsman.text import detect, sentences
from pointsman.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pointsman.ingest.source import Section, Source

MAX_TOKENS = 256
"""Default size of a passage: small enough that its vector means one thing, large enough to answer from."""

HARD_LIMIT = 480
"""Estimated tokens that a passage and its title never exceed together; the default embedder reads 512."""

TINY = 32
"""A section below this many tokens is joined to the next one: on its own it says too little to be found by."""

_TITLE_LIMIT = 96
_OWN_KEYS = ("source", "title", "kind", "headings", "start", "end", "parent", "position", "page")

_RUNS = {
    "cjk": r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]",
    "latin": r"[a-zA-Z]{1,20}",
    "cyrillic": r"[\u0400-\u04ff]{1,20}",
    "digits": r"[0-9]{1,20}",
    "space": r"\s+",
}
_PIECE = re.compile("|".join(f"(?P<{name}>{run})" for name, run in _RUNS.items()) + "|(?P<other>.)", re.DOTALL)
_RUN_PATTERNS = {name: re.compile(run) for name, run in _RUNS.items()}
# Cost of a piece and of each of its characters, fitted by least squares to the tokenizer of multilingual-e5 (XLM-R)
# over English, Chinese and Russian passages and Python code: within 20 % on 94 to 100 % of them.
_COSTS = {
    "space": (0.0, 0.0),
    "cjk": (0.0, 0.69),
    "latin": (0.2, 0.215),
    "cyrillic": (1.08, 0.083),
    "digits": (1.08, 0.173),
    "other": (0.0, 1.05),
}

Span = tuple[int, int]


def estimate_tokens(text: str) -> int:
    """About how many tokens a multilingual embedder makes of ``text``.

    >>> estimate_tokens("铁路道岔引导列车。"), estimate_tokens("Railway switches guide trains.")
    (6, 7)
    """
    return round(_cost(text))


def chunk(source: Source, max_tokens: int = MAX_TOKENS, overlap: int = 32) -> list[Document]:
    """Cut a source into passages.

    A passage is made of whole sentences (of lines, in code) of one section; neighbouring sections are joined only
    while they are tiny. Where a section must be cut, the cut falls on a paragraph's end if there is one in reach,
    and among equals on the one whose following words have the smallest checksum: so the choice depends on what is
    written there, not on all that comes before, and an edit changes the passages around it, not the rest of the file.

    Args:
        source: What a converter gave.
        max_tokens: Upper limit of a passage, in estimated tokens.
        overlap: Estimated tokens of whole sentences repeated from the passage before, within one section; not in code.

    Returns:
        Passages in order. ``source.text[start:end]`` is exactly a passage's text. The id is the path and a digest of
        headings and text; a record that fits one passage keeps its own id.

    Raises:
        InputError: A size is out of range.
    """
    if not 16 <= max_tokens <= HARD_LIMIT:
        raise InputError(f"max_tokens is between 16 and {HARD_LIMIT}, not {max_tokens}")
    if not 0 <= overlap <= max_tokens // 2:
        raise InputError(f"overlap is between 0 and half of max_tokens ({max_tokens // 2}), not {overlap}")
    documents: list[Document] = []
    seen: Counter[str] = Counter()
    cuts = [
        (number, names, start, end)
        for number, names, spans in _groups(source, max_tokens, overlap)
        for start, end in spans
    ]
    for position, (number, names, start, end) in enumerate(cuts):
        text = source.text[start:end]
        if source.record_id is not None and len(cuts) == 1:
            identity = source.record_id
        else:
            base = source.path if source.record_id is None else source.record_id
            identity = f"{base}#{_digest(chr(31).join((*names, '')) + text)}"
            seen[identity] += 1
            identity += f"-{seen[identity]}" if seen[identity] > 1 else ""
        documents.append(Document(identity, text, _metadata(source, number, names, start, end, position)))
    return documents


def document_digest(document: Document) -> str:
    """A fingerprint of everything in a document: equal exactly if storing it again would change nothing."""
    return _digest(json.dumps([document.id, document.text, dict(document.metadata)], sort_keys=True), size=16)


def _digest(text: str, size: int = 6) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def _metadata(
    source: Source, number: int, names: tuple[str, ...], start: int, end: int, position: int
) -> dict[str, Any]:
    # A field of the user's that has one of our names is kept under that name with an underscore.
    metadata = {f"{key}_" if key in _OWN_KEYS else key: value for key, value in source.metadata.items()}
    parent = f"{source.path}#{number}" if source.record_id is None else source.record_id
    metadata |= {"source": source.path, "kind": source.kind, "start": start, "end": end, "parent": parent}
    metadata |= {"position": position}
    if title := _title(source.title, names):
        metadata["title"] = title
    if names:
        metadata["headings"] = list(names)
    if source.pages:
        metadata["page"] = bisect_right(source.pages, start)
    if not source.is_code and "language" not in metadata and (language := detect(source.text[start:end])) != "und":
        metadata["language"] = language
    if source.is_code:
        metadata["line"] = source.text.count("\n", 0, start) + 1
    return metadata


def _title(title: str, names: tuple[str, ...]) -> str:
    if names and names[0].casefold() == title.casefold():
        names = names[1:]
    whole = " › ".join(part for part in (title, *names) if part)
    cut = next(_cut(whole, 0, len(whole), _TITLE_LIMIT), (0, 0))
    return whole[: cut[1]]


def _groups(source: Source, max_tokens: int, overlap: int) -> Iterator[tuple[int, tuple[str, ...], list[Span]]]:
    """Number of the (first) section, heading path and passages of each section, tiny ones joined."""
    sections = [section for section in source.sections if section.text.strip()]
    index = 0
    while index < len(sections):
        first, names = sections[index], sections[index].heading_path
        limit = min(max_tokens, HARD_LIMIT - estimate_tokens(_title(source.title, names)))
        number, end = index, _end(first)
        size = estimate_tokens(first.text)
        while size < TINY and index + 1 < len(sections):
            following = sections[index + 1]
            joined = estimate_tokens(source.text[first.start : _end(following)])
            if joined > limit:
                break
            names, size, end = _common(names, following.heading_path), joined, _end(following)
            index += 1
        index += 1
        start = first.start
        start += len(source.text[start:end]) - len(source.text[start:end].lstrip())
        end -= len(source.text[start:end]) - len(source.text[start:end].rstrip())
        if size <= limit:
            yield number, names, [(start, end)]
        else:
            yield number, names, _pack(source, start, end, limit, 0 if source.is_code else overlap)


def _end(section: Section) -> int:
    return section.start + len(section.text)


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return one[:same]


def _pack(source: Source, start: int, end: int, limit: int, overlap: int) -> list[Span]:
    """Fill passages with sentences up to ``limit``, each repeating up to ``overlap`` tokens of the one before."""
    text = source.text
    room = limit - overlap
    units: list[Span] = []
    for first, last in _lines(text, start, end) if source.is_code else _sentences(text, start, end):
        fits = _cost(text[first:last]) <= room
        units.extend([(first, last)] if fits else _cut(text, first, last, room))
    sizes = [_cost(text[first:last]) for first, last in units]
    # How good a cut before each unit is: at a paragraph's end first, then by checksum.
    ranks = [(False, 0)] + [
        ("\n\n" not in text[one[1] : two[0]], zlib.crc32(text[two[0] : two[1]].encode("utf-8", "surrogatepass")))
        for one, two in pairwise(units)
    ]
    passages: list[Span] = []
    first = 0
    while first < len(units):
        last, size, candidates = first, 0.0, []
        while last < len(units) and size + sizes[last] <= room + 0.5:
            size += sizes[last]
            last += 1
            if size >= room / 2:
                candidates.append(last)
        last = max(last, first + 1)
        if last < len(units) and candidates:
            last = min(candidates, key=ranks.__getitem__)
        begin, repeated = first, 0.0
        while passages and begin > 0 and repeated + sizes[begin - 1] <= overlap:
            begin -= 1
            repeated += sizes[begin]
        passages.append((units[begin][0], units[last - 1][1]))
        first = last
    return passages


def _sentences(text: str, start: int, end: int) -> Iterator[Span]:
    for first, last in sentences(text[start:end]):
        yield from _trimmed(text, start + first, start + last)


def _lines(text: str, start: int, end: int) -> Iterator[Span]:
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop < 0 else stop
        yield from _trimmed(text, start, stop)
        start = stop + 1


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    stripped = text[start:end].strip()
    if stripped:
        start += text[start:end].index(stripped[0])
        yield start, start + len(stripped)


def _cost(text: str) -> float:
    """The sum over `_pieces`, but counted kind by kind, which is several times faster."""
    total, others = 0.0, len(text)
    for name, pattern in _RUN_PATTERNS.items():
        runs = pattern.findall(text)
        length = sum(map(len, runs))
        base, each = _COSTS[name]
        total += base * len(runs) + each * length
        others -= length
    return total + _COSTS["other"][1] * others


def _pieces(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, float]]:
    """Where each word, character or run of digits ends, and what it costs."""
    for found in _PIECE.finditer(text, start, len(text) if end is None else end):
        base, each = _COSTS[found.lastgroup or "other"]
        yield found.end(), base + each * (found.end() - found.start())


def _cut(text: str, start: int, end: int, limit: float) -> Iterator[Span]:
    """A stretch that may be too long, in parts of at most ``limit`` tokens: between words, else characters."""
    used, previous = 0.0, start
    slack = min(8.0, limit / 4)  # in which a place is looked for that tears no character from its accents
    space, used_at_space = start, 0.0  # the latest end of a word in this part, and the cost up to it
    for position, cost in _pieces(text, start, end):
        if used + cost > limit - slack and previous > start:
            stop = space if used_at_space > limit / 2 else previous
            if used + cost > limit or not _continues(text[stop]):
                used -= used_at_space if stop == space else used
                yield from _trimmed(text, start, stop)
                start, space, used_at_space = stop, stop, 0.0
        used += cost
        if cost == 0.0 and position < end:
            space, used_at_space = position, used
        previous = position
    yield from _trimmed(text, start, end)


def _continues(char: str) -> bool:
    """Whether a character belongs to the one before it: accents, joiners, variation selectors."""
    return bool(unicodedata.combining(char)) or char in "\u200d\ufe0e\ufe0f"
