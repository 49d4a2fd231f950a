"""Sources to passages: whole sentences, headings as context, exact offsets, and ids derived from the content."""

from __future__ import annotations

import json
import math
import re
import unicodedata
import zlib
from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pointsman.ingest.source_text import Lines, ParsedDocument, Section, numbered_title, text_digest
from pointsman.text import detect, sentences
from pointsman.tools.errors import InputError
from pointsman.values.metadata import RESERVED
from pointsman.values.types import Document
from pointsman.values.views import VALIDITY_KEYS, validity_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

MAX_TOKENS = 256
"""Default size of a passage: small enough that its vector has one meaning, large enough to answer from."""

OVERLAP = 32
"""Default overlap of neighbouring passages, in estimated tokens."""

HARD_LIMIT = 480
"""Largest passage with its title, in estimated tokens; the default embedder reads 512."""

TINY = 32
"""Sections below this many tokens are joined to the next one.

Alone, with their headings as titles, they are found no better: among 872 passages of 71 files, 468 questions of known
sections, the mean reciprocal rank of words and vectors for words of tiny sections is .977 joined and .974 alone, for
their headings .967 and .932; for those of other sections .823 and .826, .711 and .690.
"""

_TITLE_LIMIT = 96
_HEADING_LENGTH, _HEADING_COUNT = 200, 8  # of headings kept: longer ones are cut, deeper ones dropped
_LONGEST_RUN = 1000  # characters of a sentence on the page after the one on which it begins
_WINDOW = 1 << 17  # characters of a long section that are processed together

_RUNS = {
    "cjk": r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]",
    "latin": r"[a-zA-Z]{1,20}",
    "cyrillic": r"[\u0400-\u04ff]{1,20}",
    "digits": r"[0-9]{1,20}",
    "space": r"\s+",
}
_RUN_LIMIT = 20
_LINE = re.compile(r"\S(?:.*\S)?")  # without the white space at its ends
_WORD_END = re.compile(r"[A-Za-z0-9]+\Z")
_RUN_PATTERNS = {name: re.compile(run) for name, run in _RUNS.items()}
_ASCII_PATTERNS = {name: _RUN_PATTERNS[name] for name in ("latin", "digits", "space")}
# Cost of a piece and of each of its characters, fitted by least squares to the tokenizer of multilingual-e5 (XLM-R)
# over English, Chinese and Russian passages and Python code: within 20 % on 94 to 100 % of them.
_COSTS = {
    "other": (0.0, 1.05),
    "cjk": (0.0, 0.69),
    "latin": (0.2, 0.215),
    "cyrillic": (1.08, 0.083),
    "digits": (1.08, 0.173),
    "space": (0.0, 0.0),
}

_DEAREST = 1.26  # no character costs more

Span = tuple[int, int]


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of ``text`` for a multilingual embedder.

    >>> estimate_tokens("铁路道岔引导列车。"), estimate_tokens("Railway switches guide trains.")
    (6, 7)
    """
    return round(_cost(text))


def chunk(
    text: str | ParsedDocument, *, name: str = "text", max_tokens: int = MAX_TOKENS, overlap: int = OVERLAP
) -> list[Document]:
    """Cut a text, or a source returned by `convert`, into passages.

    A passage consists of whole sentences (of lines, in code) of one section, whose headings are in its title;
    neighbouring sections are joined only while they are tiny, and then the text begins at the first one's heading. A
    page ends a passage, unless a sentence runs on over its end; then the end of that sentence does. If
    a section must be cut, the cut is at the end of a paragraph if one is in reach, and among equals at the one whose
    following words have the smallest checksum. So the choice depends on the text there, not on
    all text before it, and an edit changes only the passages around it.

    Args:
        text: A plain text, or a `ParsedDocument`.
        name: Name of a plain text: the ``source`` of its passages, and the beginning of their ids.
        max_tokens: Largest size of a passage, in estimated tokens.
        overlap: Estimated tokens of whole sentences repeated from the previous passage of the section, as far as they
            stand on the page and the line on which the passage's own text begins; not in code.

    Returns:
        Passages in order. ``text[start:end]``, with ``start`` and ``end`` from its metadata, is exactly a passage's
        text. The id is the name and a digest of headings and text; a record that fits one passage keeps its own id.
        Titles, headings and fields repeated in passages are at most twice as long as the text itself.

    Raises:
        InputError: A size is out of range.

    >>> [passage.text for passage in chunk("Trains run on rails. " * 30, max_tokens=16, overlap=0)][:1]
    ['Trains run on rails. Trains run on rails.']
    """
    source = (
        text if isinstance(text, ParsedDocument) else ParsedDocument(name, "", (Section((), text, 0),), text, "txt")
    )
    return list(passages(source, max_tokens, overlap))


def passages(source: ParsedDocument, max_tokens: int = MAX_TOKENS, overlap: int = OVERLAP) -> Iterator[Document]:
    """Yield the passages of `chunk` one by one, so that the first is ready before a long text is cut completely."""
    check_sizes(max_tokens, overlap)
    if source.image:
        yield _Writer(source).document(_Cut(0, (), 0, len(source.text)), 0, None)
        return
    cuts = _cuts(source, max_tokens, overlap)
    first = list(islice(cuts, 2)) if source.record_name is not None else []
    own_id = source.record_name if len(first) == 1 else None
    writer = _Writer(source)
    for position, cut in enumerate(chain(first, cuts)):
        yield writer.document(cut, position, own_id)


def check_sizes(max_tokens: int, overlap: int) -> None:
    """Raise `InputError` if passages cannot have these sizes."""
    if not 16 <= max_tokens <= HARD_LIMIT:
        raise InputError(f"max_tokens is between 16 and {HARD_LIMIT}, not {max_tokens}")
    if not 0 <= overlap <= max_tokens // 2:
        raise InputError(f"overlap is between 0 and half of max_tokens ({max_tokens // 2}), not {overlap}")


def document_digest(document: Document) -> str:
    """Return a fingerprint of a whole document: equal exactly if storing it again would change nothing."""
    return text_digest(json.dumps([document.id, document.text, dict(document.metadata)], sort_keys=True), size=16)


class _Cut(NamedTuple):
    """A future passage: number and heading path of its (first) section, and its range in the source's text.

    ``own_names`` are the headings that no other passage has, neither in its text nor as its own.
    """

    section: int
    names: tuple[str, ...]
    start: int
    end: int
    own_names: tuple[str, ...] = ()


class _Writer:
    """Turns cuts into documents, and limits the metadata copied into them to a multiple of the text.

    The first passage carries everything. Without a limit on the others, stored data would grow with the square of the
    file: 1,000 passages of one record would carry 1,000 copies of its fields.
    """

    def __init__(self, source: ParsedDocument) -> None:
        self._source = source
        self._id_counts: Counter[str] = Counter()
        self._anchor: Lines | None = None  # of the line looked up last, with its offset
        self._line = self._offset = 0
        self._room = 1000.0  # characters that may still be copied
        # A user's field with one of our names is stored under that name with an underscore appended; what a source says
        # of its validity is ours if it is in our form, and belongs to every passage.
        self._validity = validity_in(source.metadata)
        reserved_keys = {*RESERVED, *VALIDITY_KEYS}
        self._fields = {
            f"{key}_" if key in reserved_keys else key: value
            for key, value in source.metadata.items()
            if key not in self._validity
        }
        self._small_fields = {key: value for key, value in self._fields.items() if _length(value) <= _HEADING_LENGTH}

    def document(self, cut: _Cut, position: int, own_id: str | None) -> Document:
        source = self._source
        text = source.text[cut.start : cut.end]
        metadata = self._copied_metadata(cut, position, text) | self._location(cut, text)
        if own_id is None:
            # A record in one passage has none of these: nothing is before, after or around it.
            parent = f"{source.path}#{cut.section}" if source.record_name is None else source.record_name
            metadata |= {"parent": parent, "position": position}
            base = source.path if source.record_name is None else source.record_name
            own_id = f"{base}#{text_digest(chr(31).join((*cut.names, '')) + text)}"
            self._id_counts[own_id] += 1
            own_id += f"-{self._id_counts[own_id]}" if self._id_counts[own_id] > 1 else ""
        return Document(own_id, text, metadata)

    def _location(self, cut: _Cut, text: str) -> dict[str, Any]:
        """Return the metadata specific to the passage: its location in the file."""
        source = self._source
        metadata: dict[str, Any] = {"source": source.path, "kind": source.kind}
        metadata |= {"start": source.offset + cut.start, "end": source.offset + cut.end, **self._validity}
        if source.sha256:
            metadata["sha256"] = source.sha256
        if source.member:
            metadata["member"] = source.member
        if source.pages:
            metadata["page"] = bisect_right(source.pages, cut.start)
            if (last_page := bisect_right(source.pages, cut.end - 1)) != metadata["page"]:
                # Where in the passage its first page ends: a sentence before it stands on that page alone.
                metadata |= {"page_end": last_page, "page_break": source.pages[metadata["page"]] - cut.start}
        if source.lines:
            metadata["line"], last_line = self._line_at(cut.start), self._line_at(cut.end, last=True)
            if last_line != metadata["line"]:
                metadata["last_line"] = last_line
        if not source.is_code and "language" not in self._fields and (language := detect(text)) != "und":
            metadata["language"] = language
        return metadata

    def _copied_metadata(self, cut: _Cut, position: int, text: str) -> dict[str, Any]:
        """Return title, headings and fields; after the first passage, which has them all, only as far as they fit.

        Headings that no other passage has always fit: they are themselves a part of the text.
        """
        self._room += 2.0 * len(text)
        fields: dict[str, Any] = {}
        if title := _title(self._source, cut.names):
            fields["title"] = title
        if cut.names:
            fields["headings"] = list(cut.names)
        metadata: dict[str, Any] = {}
        for key, value in (fields | (self._small_fields if position else self._fields)).items():
            length = len(key) + _length(value)
            if position == 0 or length <= self._room:
                metadata[key] = value
                self._room -= length if position else 0
        if cut.own_names and "title" not in metadata:
            metadata["title"] = " › ".join(cut.own_names)
        return metadata

    def _line_at(self, offset: int, *, last: bool = False) -> int:
        """Return the line of the file that an offset in the text belongs to."""
        anchors = self._source.lines
        anchor = anchors[max(bisect_right(anchors, offset - last, key=lambda a_line: a_line.offset) - 1, 0)]
        if not anchor.exact:
            return anchor.last if last else anchor.first
        if anchor is not self._anchor:
            self._anchor, self._offset, self._line = anchor, anchor.offset, anchor.first
        # Lines are counted from the previous lookup, forward or back, as otherwise the time would be quadratic.
        count = self._source.text.count("\n", *sorted((self._offset, offset)))
        self._line += count if offset >= self._offset else -count
        self._offset = offset
        return min(self._line, anchor.last)


def _length(value: Any) -> int:
    return sum(map(_length, value)) + len(value) if isinstance(value, list) else len(str(value))


def _whole_title(source: ParsedDocument, names: tuple[str, ...]) -> str:
    title = source.title
    if names and names[0].casefold() == title.casefold():
        names = names[1:]
    if source.record_name is None and title and source.kind not in ("eml", "msg"):  # programs number those
        title = numbered_title(title, source.member or source.path)
    return " › ".join(name for name in (title, *names) if name)[:2000]


def _title(source: ParsedDocument, names: tuple[str, ...]) -> str:
    """Return title and headings as far as they leave room for text."""
    full_title = _whole_title(source, names)
    if len(full_title) * _DEAREST <= _TITLE_LIMIT or _cost(full_title) <= _TITLE_LIMIT:
        return full_title
    return full_title[: next(_cut(full_title, 0, len(full_title), _TITLE_LIMIT), (0, 0))[1]]


def _cuts(source: ParsedDocument, max_tokens: int, overlap: int) -> Iterator[_Cut]:
    """Yield each section's passages, with tiny sections joined."""
    text, sections = source.text, _split_at_pages(source)
    index = 0
    while index < len(sections):
        first = sections[index]
        names = tuple(name[:_HEADING_LENGTH] for name in first.heading_path[:_HEADING_COUNT])
        start, end = _strip(text, first.start, first.start + len(first.text))
        index += 1
        if start == end:
            continue
        if (
            index == len(sections) == 1
            and not names
            and (end - start + len(_whole_title(source, ()))) * _DEAREST <= max_tokens
        ):
            yield _Cut(0, names, start, end)  # most records: short, with nothing to join
            return
        title, heading_end = _title(source, names), start
        limit = min(max_tokens, HARD_LIMIT - estimate_tokens(title))
        own_names, heading_start = names[len(names) - first.own_headings :], min(first.begin, start)
        if len(first.heading_path) > _HEADING_COUNT or title != _whole_title(source, names):
            heading_end = _strip(text, heading_start, start)[1]
            start, own_names = heading_start, ()  # the title does not hold all headings, so the text does
        number, size = index - 1, _cost_up_to(text, start, end, limit)
        while size < TINY and index < len(sections):
            following = sections[index]
            low, high = _strip(text, following.start, following.start + len(following.text))
            if low < high:
                joint_cost = _cost_up_to(text, heading_start, high, limit)
                other_page = bisect_right(source.pages, low) != bisect_right(source.pages, start)
                if other_page or joint_cost > limit + 0.5:
                    break
                names, size, end = _common(names, following.heading_path), joint_cost, high
                start, own_names = heading_start, ()  # the title no longer holds the first one's headings
            index += 1
        if size <= limit + 0.5:
            yield _Cut(number, names, start, end, own_names)
        else:
            for low, high in _pack(source, start, end, limit, 0 if source.is_code else overlap, heading_end):
                yield _Cut(number, names, low, high, own_names)
                own_names = ()


def _split_at_pages(source: ParsedDocument) -> tuple[Section, ...]:
    """Return the sections, each split where a page begins; if a sentence runs on over the page's end, after it."""
    if len(source.pages) < 2:
        return source.sections
    segments: list[Section] = []
    for section in source.sections:
        start, end = section.start, section.start + len(section.text)
        for page in source.pages[bisect_right(source.pages, start) : bisect_right(source.pages, end - 1)]:
            stop = page if source.text.startswith("\n\n", page - 2) else _sentence_end(source.text, page, end)
            if start < page and stop < end:
                segments.append(replace(section, text=source.text[start:stop], start=start))
                section = Section(section.heading_path, "", stop)  # noqa: PLW2901
                start = stop
        segments.append(replace(section, text=source.text[start:end], start=start))
    return tuple(segments)


def _sentence_end(text: str, start: int, end: int) -> int:
    """Return where the sentence ends that runs on at ``start``; ``start`` itself if it is longer than a passage."""
    first, last = sentences(text[start : min(end, start + _LONGEST_RUN)])[0]
    return start if last - first == _LONGEST_RUN else start + last


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length][:_HEADING_LENGTH]:
        length += 1
    return first[:length]


def _strip(text: str, start: int, end: int) -> Span:
    """Return a range without the white space at its ends; empty if nothing is left."""
    passage = text[start:end]
    end -= len(passage) - len(passage.rstrip())
    return min(start + len(passage) - len(passage.lstrip()), end), end


def _cost_up_to(text: str, start: int, end: int, limit: float) -> float:
    """Return the cost of a range; if that is far above the limit, any value above the limit."""
    if end - start > 40 * limit and text[start : start + int(40 * limit)].strip():
        # Pieces cost .083 a character or more, unless they are white space; then the text after them may still fit.
        sample = _cost(text[start : start + int(40 * limit)])
        if sample > limit + 1:
            return sample
    return _cost(text[start:end])


class _Unit(NamedTuple):
    """A part that is not split: a sentence, a line of code, or a part of one that is too long."""

    start: int
    end: int
    cost: float


def _pack(source: ParsedDocument, start: int, end: int, limit: float, overlap: int, heading_end: int) -> Iterator[Span]:
    """Fill passages with units up to ``limit``, each repeating up to ``overlap`` tokens of the previous one.

    A heading in front, up to ``heading_end``, is not split if it fits into a passage.
    """
    text, room = source.text, limit - overlap
    heading = _heading_unit(
        text, start, heading_end, limit
    )  # not in a passage yet: what fits into the next, and one more
    units = _units(source, heading_end if heading else start, end, room)
    overlap_units: list[_Unit] = []  # the end of the previous passage
    total = sum(unit.cost for unit in heading)
    while True:
        while total <= room + 0.5 and (unit := next(units, None)):
            heading.append(unit)
            total += unit.cost
        if not heading:
            return
        size, count, candidates = 0.0, 0, []
        for unit in heading:
            if count and size + unit.cost > room + 0.5:
                break
            size += unit.cost
            count += 1
            if size >= room / 2:
                candidates.append(count)
        if count < len(heading) and candidates:
            count = min(candidates, key=lambda cut: _rank(text, heading[cut - 1], heading[cut]))
        overlap_cost, begin = 0.0, heading[0].start
        place_start = _place_start(source, begin)  # what stands elsewhere would make the citation wrong
        for unit in reversed(overlap_units):
            overlap_cost += unit.cost
            if overlap_cost > overlap or unit.start < place_start:
                break
            begin = unit.start
        yield begin, heading[count - 1].end
        overlap_units = heading[:count]
        heading = heading[count:]
        total = sum(unit.cost for unit in heading)


def _place_start(source: ParsedDocument, offset: int) -> int:
    """Return where the line of a file begins that an offset in its text belongs to; 0 in formats without lines."""
    if not source.lines:
        return 0  # sections end with pages
    anchor = source.lines[max(bisect_right(source.lines, offset, key=lambda lines: lines.offset) - 1, 0)]
    return max(anchor.offset, source.text.rfind("\n", 0, offset) + 1 if anchor.exact else 0)


def _heading_unit(text: str, start: int, end: int, limit: float) -> list[_Unit]:
    """Return a heading as one unit; nothing if there is none, or if it does not fit into a passage."""
    cost = _cost_up_to(text, start, end, limit) if end > start else math.inf
    return [_Unit(start, end, cost)] if cost <= limit else []


def _rank(text: str, previous: _Unit, following: _Unit) -> tuple[bool, int]:
    """Rank a cut between two units, best first: at the end of a paragraph, then by checksum."""
    checksum = zlib.crc32(text[following.start : following.end].encode("utf-8", "surrogatepass"))
    return "\n\n" not in text[previous.end : following.start], checksum


def _units(source: ParsedDocument, start: int, end: int, room: float) -> Iterator[_Unit]:
    text = source.text
    for low, high in _windows(text, start, end):
        block_text = text[low:high]
        costs = _running_costs(block_text)
        # Lines as short as this are entries of a list, not parts of sentences.
        by_lines = source.is_code or block_text.count("\n") * 20 > len(block_text)
        spans = [line.span() for line in _LINE.finditer(block_text)] if by_lines else sentences(block_text)
        firsts, lasts = zip(*spans, strict=True) if spans else ((), ())
        for first, last, cost in zip(firsts, lasts, (costs[list(lasts)] - costs[list(firsts)]).tolist(), strict=True):
            if cost <= room:
                yield _Unit(low + first, low + last, cost)
            else:
                for begin, stop in _cut(block_text, first, last, room, costs):
                    yield _Unit(low + begin, low + stop, float(costs[stop] - costs[begin]))


def _windows(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield a long section in parts, cut at an empty line (which also ends a sentence), else after a line or word.

    So neither time nor memory for one passage depends on the length of the file.
    """
    while end - start > 2 * _WINDOW:
        soft_end, hard_end = start + _WINDOW, start + 2 * _WINDOW
        for mark in ("\n\n", "\n", "。", " "):
            stop = text.find(mark, soft_end, hard_end)
            if stop >= 0:
                stop += len(mark)
                break
        else:
            stop = soft_end
            while stop < hard_end and _continues(text[stop]):
                stop += 1
        yield start, stop
        start = stop
    yield start, end


def _cost(text: str) -> float:
    """Return the cost of a short text, kind by kind; `_running_costs` gives the same for long ones."""
    total, other_count = 0.0, len(text)
    for name, pattern in (_ASCII_PATTERNS if text.isascii() else _RUN_PATTERNS).items():
        runs = pattern.findall(text)
        length = sum(map(len, runs))
        base, per_character = _COSTS[name]
        total += base * len(runs) + per_character * length
        other_count -= length
    return total + _COSTS["other"][1] * other_count


_kinds: list[NDArray[np.uint8]] = []  # for each code point of the first four planes, the index of its kind in _COSTS


def _kind_table() -> NDArray[np.uint8]:
    import numpy as np  # only chunking needs it

    if not _kinds:
        all_characters = "".join(map(chr, range(0x40000)))
        table = np.zeros(0x40000 + 1, dtype=np.uint8)  # the last entry stands for the planes above
        for number, name in enumerate(_COSTS):
            if name != "other":
                for run in re.finditer(f"(?:{_RUNS[name]})+", all_characters):
                    table[run.start() : run.end()] = number
        _kinds.append(table)
    return _kinds[0]


def _running_costs(text: str) -> NDArray[np.float64]:
    """Return the cost of all text before each position between characters, shape ``(len(text) + 1,)``."""
    import numpy as np  # only chunking needs it

    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    kinds = _kind_table()[np.minimum(codes, 0x40000)]
    base, per_character = np.array(list(_COSTS.values())).T
    indices = np.arange(len(kinds))
    starts = np.ones(len(kinds), dtype=bool)
    np.not_equal(kinds[1:], kinds[:-1], out=starts[1:])
    run_offsets = indices - np.maximum.accumulate(np.where(starts, indices, 0))
    costs = per_character[kinds] + np.where(run_offsets % _RUN_LIMIT == 0, base[kinds], 0.0)
    return np.concatenate(([0.0], np.cumsum(costs)))


def _cut(text: str, start: int, end: int, limit: float, costs: NDArray[np.float64] | None = None) -> Iterator[Span]:
    """Split a range into parts of at most ``limit`` tokens, between words if possible, else between characters."""
    # A part that begins within a word costs up to 1.1 more than the running costs say.
    costs = _running_costs(text) if costs is None else costs
    while start < end:
        stop = min(int(costs.searchsorted(costs[start] + limit - 1.1, "right")) - 1, end)
        stop = max(stop, start + 1)
        if stop < end:
            midpoint = max(int(costs.searchsorted(costs[start] + limit / 2)), start + 1)
            space = max(text.rfind(mark, midpoint, stop + 1) for mark in " \n\t\u3000")
            stop = space if space >= midpoint else _between_characters(text, midpoint, stop)
        first, last = _strip(text, start, stop)
        if first < last:
            yield first, last
        start = stop


def _between_characters(text: str, low: int, stop: int) -> int:
    """Return a position near ``stop`` that splits neither a short word nor a character from its accents."""
    if text[stop].isascii() and (word := _WORD_END.search(text, max(low, stop - _RUN_LIMIT), stop)):
        return word.start() if word.start() > stop - _RUN_LIMIT else stop
    for offset in range(stop, max(low, stop - 32), -1):
        if not _continues(text[offset]):
            return offset
    return stop


def _continues(char: str) -> bool:
    """Whether a character belongs to the one before it: accents, joiners, variation selectors."""
    return bool(unicodedata.combining(char)) or char in "\u200d\ufe0e\ufe0f"
