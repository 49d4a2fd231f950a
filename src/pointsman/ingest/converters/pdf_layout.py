"""The lines of PDF pages in reading order: rows of a table stay together, columns of prose come one after the other.

Lines that run over the pages, such as heads and page numbers, are told apart from the text that they part.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from itertools import accumulate, groupby, islice, pairwise
from math import inf
from statistics import median, median_low
from typing import TYPE_CHECKING, NamedTuple

from pointsman.ingest.source_text import LONGEST_HEADING

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Sequence

    from pypdfium2 import PdfTextPage

_MOST_PIECES = 5000  # of a page; one with more is read in the order in which the file has them
_LETTER_SPACED = re.compile(r"(?<!\S)\w(?: +\w){5,}(?!\S)")
_WORD = re.compile(r"[0-9A-Za-z\u00c0-\u058f]{3,}")  # of scripts that write spaces between words
_WORD_GAP = 0.08  # of a line's height: a gap wider than most of its word's by more is between two words
_LETTERS_TWICE = re.compile(r"(?:([^\W\d_])\1){3}")
_LONG_WORD = re.compile(r"[^\W_]{4,}")
_SAME_PLACE = 0.1  # of a line's height: equal letters that are not farther apart are one letter
_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_FEWEST_ROWS = 3  # of a table, and of columns of prose
_LONG_LINE = 60  # characters, which no cell of a table has
_LOWER = re.compile(r"\s*[a-zа-яё]")
_LINE = re.compile(r"([^\r\n\ufffe\x02]*[\ufffe\x02]?)(?:\r\n?|\n|(?<=[\ufffe\x02])|\Z)")  # both are hyphens
CELL_END = "\x1f"
"""What separates the cells of a row."""
_FEWEST_PAGES = 3  # on which a running line stands
_MOST_RUNNING = 4  # lines at either end of a page
_APART = 1.3  # of the usual gap between lines, and half their height more: so far from the text is a running line
_LARGE = 1.3  # of the usual height of lines: what is higher is a title
_SIGN = r"[-–—·•|/]"
_PAGE_NUMBER = re.compile(
    rf"(?:^|(?<!\bN[or]\.)(?<![:#№号]){CELL_END}|{_SIGN} )(\d{{1,5}})(?=$|{CELL_END}| {_SIGN}|/\d+$)|"
    r"\b(?:page:?|pg?\.|стр(?:\.|аница)|с\.|лист) ?(\d{1,5})\b|第 ?(\d{1,5}) ?[页頁]",
    re.IGNORECASE,
)


class Piece(NamedTuple):
    """A piece of a line: its box in points, from the page's lower left corner, and its text."""

    left: float
    bottom: float
    right: float
    top: float
    text: str = ""


Rows = list[list[Piece]]


def page_lines(page: PdfTextPage, added: Sequence[Piece] = (), *, is_upright: bool = True) -> list[Piece]:
    """Return the lines of a page, each with its box if that is known, and with `CELL_END` between its cells.

    Args:
        page: The page.
        added: What stands on it beside its own text, such as the values of a form.
        is_upright: Whether its lines run from left to right; else they are taken in the order of the file.
    """
    text, count = page.get_text_range(), page.count_rects()
    has_boxes = len(text) == page.count_chars()
    runs_right = 2 * len(_RIGHT_TO_LEFT.findall(text)) < sum(map(str.isalpha, text))
    is_read_by_rows = is_upright and has_boxes and count <= _MOST_PIECES and (runs_right or bool(added))
    rows = _rows(Piece(*page.get_rect(index)) for index in range(count)) if is_read_by_rows else []
    second_letters = _drawn_twice(page, text) if rows else set()
    if not added and not second_letters and all(len(row) == 1 for row in rows):
        if not has_boxes:
            return [Piece(0, 0, 0, 0, text)]
        are_numbers = [_is_number(line) for line in text.split("\r\n")] if rows else []
        if sum(are_numbers) >= _FEWEST_ROWS and sum(map(all, pairwise(are_numbers))) >= 0.3 * sum(are_numbers):
            rows = _rows(_characters(page, text, second_letters))
            if (joined := _joined_columns(rows)) != rows:
                return list(_lines(joined))
        chars = list(text)
        for index in _missing_spaces(page, text):
            chars[index] = f" {chars[index]}"
        for match in _LETTER_SPACED.finditer(text):
            chars[slice(*match.span())] = [_joined_letters(page, match), *[""] * (len(match[0]) - 1)]
        return list(_placed_lines(page, text, chars, rows))
    rows = _joined_columns(_rows(_characters(page, text, second_letters))) if rows else [[Piece(0, 0, 0, 0, text)]]
    for span in added:
        row = next((row for row in rows if _same_row(row[0], span)), None)
        rows.append([span]) if row is None else row.append(span)
    return list(_lines([sorted(row) for row in rows]))


def _placed_lines(page: PdfTextPage, text: str, chars: list[str], rows: Rows) -> Iterator[Piece]:
    """Yield the lines of a text, whose characters may be others now, with their boxes if the page has rows."""
    lines = [(line.start(), line[1]) for line in _LINE.finditer(text)]
    own_rows = iter(rows if len(rows) == sum(bool(line.strip()) for _, line in lines) else ())
    for start, line in lines:
        box, words = Piece(0, 0, 0, 0), line.strip()
        if rows and words and (row := next(own_rows, None)):
            box = row[0]
        elif rows and words:
            index = text.index(words, start)
            first, last = page.get_charbox(index), page.get_charbox(index + len(words) - 1)
            box = Piece(first[0], min(first[1], last[1]), last[2], max(first[3], last[3]))
        yield box._replace(text="".join(chars[start : start + len(line)]))


def _missing_spaces(page: PdfTextPage, text: str) -> Iterator[int]:
    """Yield where words begin before which PDFium puts no space, as the gap is narrow."""
    from pypdfium2.raw import FS_RECTF, FPDFText_GetLooseCharBox

    box = FS_RECTF()
    for word in _WORD.finditer(text):
        gaps: list[float] = []
        right = 0.0
        for index in range(*word.span()):
            FPDFText_GetLooseCharBox(page, index, box)
            gaps.append((box.left - right) / max(box.top - box.bottom, 1.0))
            right = box.right
        usual = max(median_low(gaps[1:]), 0.0)
        yield from (word.start() + offset for offset, gap in enumerate(gaps) if offset and gap > usual + _WORD_GAP)


def _drawn_twice(page: PdfTextPage, text: str) -> set[int]:
    """Return which characters are drawn once more where an equal one is, as programs do to make letters bold."""
    words = [(word[0], *page.get_charbox(word.start())) for word in _LONG_WORD.finditer(text)]
    word_corners = {(word, left // 4, bottom // 4) for word, left, bottom, *_ in words}
    if len(word_corners) == len(words) and not _LETTERS_TWICE.search(text):
        return set()
    second_letters: set[int] = set()
    points: dict[tuple[str, float, float], complex] = {}
    previous_point = complex(inf)
    for index, char in enumerate(text):
        x, y, _, top = page.get_charbox(index, loose=True)
        point, limit, column, row = complex(x, y), _SAME_PLACE * (top - y), x // 2, y // 2
        if point == previous_point:  # two letters in one
            is_second = index - 1 in second_letters
        else:
            cells = ((char, column + dx, row + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1))
            is_second = any(abs(point - points.get(cell, inf)) < limit for cell in cells)
            points[char, column, row] = previous_point = point
        if is_second:
            second_letters.add(index)
    words_letters = ({*range(*word.span())} for word in re.finditer(r"\S+", text))
    doubles = ((letters, letters & second_letters) for letters in words_letters)
    return {index for letters, second in doubles if len(second) in (len(letters), len(letters) / 2) for index in second}


def _characters(page: PdfTextPage, text: str, second_letters: Container[int]) -> Iterator[Piece]:
    """Yield the characters of a page's text but the second ones, with the space or the end of a line before each.

    After the end of a line is a space if the character would be a word's first where PDFium is wrong about that end.
    """
    space, starts, previous = "", set(_missing_spaces(page, text)), 0
    for index, char in enumerate(text):
        if char.isspace():
            space = "\n" if char in "\r\n" else " "
        if char.isspace() or index in second_letters:
            continue
        if space == "\n":
            x0, y0, x1, y1 = page.get_charbox(previous, loose=True)
            gap = (page.get_charbox(index, loose=True)[0] - x1) / max(x1 - x0, y1 - y0, 1.0)
            space += "" if -2 < gap <= _WORD_GAP else " "
        elif index in starts:
            space = " "
        box = page.get_charbox(index)
        yield Piece(box[0], box[1], box[2], box[3], space + char)
        space, previous = "", index


def _rows(boxes: Iterator[Piece]) -> Rows:
    """Return boxes by rows, joined where no gap is between them; some files place each letter by itself."""
    rows: Rows = []
    last_box = Piece(
        0, 0, 0, 0
    )  # a line may lean: what stands beside its last character need not stand beside all of it
    for box in boxes:
        previous = rows[-1][-1] if rows else last_box
        starts_line = (
            box.text.startswith("\n") and box.left < last_box.left and box.bottom + box.top < 2 * last_box.bottom
        )
        is_beside = _same_row(previous, box) or _same_row(last_box, box)
        last_box = box
        if not rows or starts_line or not is_beside:
            rows.append([box._replace(text=box.text.lstrip())])
        elif _is_gap(previous, box):
            rows[-1].append(box._replace(text=box.text.lstrip()))
        else:
            text = box.text.removeprefix("\n")  # no end of a line, as PDFium thought
            rows[-1][-1] = Piece(
                min(previous.left, box.left), min(previous.bottom, box.bottom),
                max(previous.right, box.right), max(previous.top, box.top), previous.text + text,
            )  # fmt: skip
    return rows


def _joined_columns(rows: Rows) -> Rows:
    """Return rows with each row of a table in one if the file has them by columns, of which some are of figures."""
    figures = {index for index, row in enumerate(rows) if 2 * sum(_is_number(cell.text) for cell in row) >= len(row)}
    if len(figures) < _FEWEST_ROWS:
        return rows
    lines: list[list[int]] = []
    for index in sorted(range(len(rows)), key=lambda index: -rows[index][0].top):
        is_beside = bool(lines) and _same_row(rows[lines[-1][0]][0], rows[index][0])
        lines[-1].append(index) if is_beside else lines.append([index])
    tables: dict[int, Rows] = {}
    for _, line_run in groupby(lines, lambda line: len(rows[line[0]][0].text) > _LONG_LINE):
        region = [(line, sorted(cell for index in line for cell in rows[index])) for line in line_run]
        row_numbers = [number for number, (line, cells) in enumerate(region) if len(line) > 1 and _is_table_row(cells)]
        if len(row_numbers) < _FEWEST_ROWS:
            continue
        region = region[row_numbers[0] : row_numbers[-1] + 1]
        are_table_rows = len(row_numbers) >= 0.8 * sum(not figures.isdisjoint(line) for line, _ in region)
        indices = sorted(index for line, _ in region for index in line)
        if are_table_rows and _is_drawn_by_columns(rows, indices, figures):
            tables |= {index: [] for index in indices} | {indices[0]: [cells for _, cells in region]}
    return [row for index, own in enumerate(rows) for row in tables.get(index, [own])]


def _is_drawn_by_columns(rows: Rows, indices: list[int], figures: set[int]) -> bool:
    """Whether the file has a table column by column, and not, say, numbers of lines beside sentences."""
    own_figures = figures.intersection(indices)
    cells = sorted(cell for index in own_figures for cell in rows[index])
    rights = accumulate((cell.right for cell in cells), max)
    column_count = 1 + sum(cell.left > right for cell, right in zip(cells[1:], rights, strict=False))
    neighbours = [(rows[index][0], rows[index + 1][0]) for index in own_figures if index + 1 in figures]
    stacked_count = sum(first.left < second.right and second.left < first.right for first, second in neighbours)
    runs = groupby(indices, own_figures.__contains__)
    stretches = [[rows[index] for index in run] for is_of_figures, run in runs if not is_of_figures]
    lengths = [len(row[0].text) for stretch in stretches for row in stretch]
    return (
        len(cells) >= _FEWEST_ROWS * column_count
        and stacked_count >= 0.3 * len(own_figures)  # in a file by rows the next figure stands beside
        and len(indices) >= 0.7 * (indices[-1] - indices[0] + 1)  # nothing else of the file lies between
        and median(lengths or [2]) > 1  # nor are the cells single letters, as of a formula
        and max(map(_likeness_to_prose, stretches), default=0) < 2
    )


def _is_table_row(cells: list[Piece]) -> bool:
    """Whether cells stand side by side at one height, with figures among them, but not the number of a line alone."""
    offsets = [min(abs(cell.top - cells[0].top), abs(cell.bottom - cells[0].bottom)) for cell in cells]
    is_level = 2 * sum(offset < 2 for offset in offsets) > len(cells)  # points; not all letters are of one height
    is_apart = all(first.right <= second.left for first, second in pairwise(cells))
    texts = [cell.text for cell in cells]
    return is_level and is_apart and len({*texts}) > 1 and any(map(_is_number, texts[1:]))


def _is_number(text: str) -> bool:
    """Whether a text is a number, a date or a code."""
    return len(text) <= _LONG_LINE and 0 < sum(map(str.isdigit, text)) * 2 >= sum(map(str.isalnum, text))


def _same_row(first: Piece, second: Piece) -> bool:
    """Whether two pieces stand side by side: at the same height, or a small one, as a full stop, within the other's."""
    first_height, second_height = first.top - first.bottom, second.top - second.bottom
    lesser_height = min(first_height, second_height)
    if abs(first.top + first.bottom - second.top - second.bottom) < max(lesser_height, 4.0):
        return True
    slack = max(first_height, second_height) / 4
    overlap = min(first.top, second.top) - max(first.bottom, second.bottom)
    return lesser_height < 2 * slack and overlap > -slack


def _is_gap(first: Piece, second: Piece) -> bool:
    """Whether two pieces stand in one row, too far apart for words of one sentence."""
    gap = max(second.left - first.right, first.left - second.right)  # asked first: most pieces are letters of a word
    return gap > 1.2 * max(first.top - first.bottom, 5.0) and _same_row(first, second)


def _lines(rows: Rows) -> Iterator[Piece]:
    """Yield the lines of rows, those of columns one column after the other."""
    index = 0
    while index < len(rows):
        stop, gutter = _band(rows, index)
        if stop - index >= _FEWEST_ROWS and gutter:
            left = [cells for row in rows[index:stop] if (cells := [cell for cell in row if cell.right <= gutter])]
            right = [cells for row in rows[index:stop] if (cells := [cell for cell in row if cell.right > gutter])]
            left_likeness, right_likeness = _likeness_to_prose(left), _likeness_to_prose(right)
            if min(left_likeness, right_likeness) > 0 and left_likeness + right_likeness > 3:
                yield from _lines(left)
                yield from _lines(right)
                index = stop
                continue
        lefts, bottoms, rights, tops, texts = zip(*rows[index], strict=True)
        yield Piece(min(lefts), min(bottoms), max(rights), max(tops), CELL_END.join(filter(None, texts)))
        index += 1


def _band(rows: Rows, start: int) -> tuple[int, float]:
    """Return where the rows end that have one gutter in common with the row at ``start``, and where that gutter is."""
    gaps = [(first.right, second.left) for first, second in pairwise(rows[start]) if _is_gap(first, second)]
    if not gaps:
        return start, 0.0
    low, high = gaps[0]
    for index in range(start + 1, len(rows)):
        left = max((cell.right for cell in rows[index] if cell.left < low), default=low)
        right = min((cell.left for cell in rows[index] if cell.left >= low), default=high)
        if min(high, right) - max(low, left) < 4:
            return index, (low + high) / 2
        low, high = max(low, left), min(high, right)
    return len(rows), (low + high) / 2


def _likeness_to_prose(rows: Rows) -> int:
    """Return how surely lines are those of a column of sentences.

    Returns:
        3 if most lines begin within a sentence, 2 if they fill the column, 1 if they do and are figures, else 0.
    """
    if len(rows) < _FEWEST_ROWS:
        return 0
    lines = [" ".join(cell.text for cell in row) for row in rows]
    if median(len(line) * (2 if any(char >= "\u2e80" for char in line) else 1) for line in lines) < 14:
        return 0
    if 2 * sum(_LOWER.match(line) is not None for line in lines[1:]) >= len(lines) - 1:
        return 3
    widths = [row[-1].right - row[0].left for row in rows]
    full_lines = [line for line, width in zip(lines, widths, strict=True) if width > 0.85 * max(widths)]
    if 3 * len(full_lines) < 2 * len(lines):
        return 0
    return 1 if 2 * sum(map(_is_number, full_lines)) >= len(full_lines) else 2


def _joined_letters(page: PdfTextPage, match: re.Match[str]) -> str:
    """Return the words of a line whose letters stand apart; wider gaps than the usual one are between words."""
    indices = [match.start() + offset for offset, char in enumerate(match[0]) if char != " "]
    boxes = [page.get_charbox(index) for index in indices]
    gaps = [second[0] - first[2] for first, second in pairwise(boxes)]
    limit = 1.6 * max(median(gaps), 0.5)
    letters = [match[0][index - match.start()] for index in indices]
    return letters[0] + "".join(
        (" " if gap > limit else "") + letter for gap, letter in zip(gaps, letters[1:], strict=True)
    )


def without_running_lines(
    pages: Sequence[Sequence[Piece]], *, are_slides: bool = False
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield of each page its lines without those that run over the pages, and the running lines that it is to keep.

    A line is one if it stands on at least three pages at about the same height, with the same words, whatever its page
    number is, as long as that goes on with the pages; and if on most of them only such lines stand between it and the
    edge of the page, it is farther from the text than the lines of the text are from one another, it is not higher
    than these, and on fewer pages text stands where it does. So a heading in the text and the header of a table that
    goes on stay, and so do titles of forms; of slides, all heads stay, which are their titles.

    Running lines part sentences and say nothing of the passages in which they stand, so each is kept by the first of
    its pages alone, but a number of pages by none. Two pages are too few to tell; and only what stands alone, beside a
    sign or after a word for pages is a page number, not one like that of an invoice.
    """
    repeated_texts = list(_repeated_lines(pages))
    margins = [list(_margins(lines, texts)) for lines, texts in zip(pages, repeated_texts, strict=True)]
    totals = Counter(text for texts in repeated_texts for text in texts.values())
    reaches = [sorted(reach for ends in margins for _, reach in ends[end : end + 1]) for end in (0, 1)]
    votes = Counter(
        texts[index]
        for texts, ends in zip(repeated_texts, margins, strict=True)
        for (margin, _), end_reaches in [*zip(ends, reaches, strict=False)][are_slides:]
        for index, reach in margin
        if len(end_reaches) - bisect_left(end_reaches, reach - 2) < totals[texts[index]]
    )
    running_texts = {text for text, count in votes.items() if 2 * count > totals[text]}
    first_pages: dict[str, int] = {}
    for number, (lines, texts) in enumerate(zip(pages, repeated_texts, strict=True)):
        running_lines = {index: text for index, text in sorted(texts.items()) if text in running_texts}
        firsts = (index for index, text in running_lines.items() if first_pages.setdefault(text, number) == number)
        kept_lines = [lines[index].text for index in firsts if any(map(str.isalpha, running_lines[index]))]
        yield [line.text for index, line in enumerate(lines) if index not in running_lines], kept_lines


def _repeated_lines(pages: Sequence[Sequence[Piece]]) -> Iterator[dict[int, str]]:
    """Yield of each page which of its first and last lines stand on other pages, too, and what is the same on these."""
    signs: list[list[tuple[int, tuple[str, int, int]]]] = []
    for number, lines in enumerate(pages):
        order = _from_above(lines)
        ends = sorted({*order[:_MOST_RUNNING], *order[-_MOST_RUNNING:]})
        short_ends = [index for index in ends if len(lines[index].text) <= LONGEST_HEADING]
        signs.append([(index, sign) for index in short_ends for sign in _signs(lines[index], number)])
    counts = Counter(sign for page_signs in signs for sign in {sign for _, sign in page_signs})
    for page_signs in signs:
        yield {
            index: text
            for index, (text, offset, height) in page_signs
            if sum(counts[text, offset, height + step] for step in (-1, 0, 1)) >= _FEWEST_PAGES
        }


def _from_above(lines: Sequence[Piece]) -> list[int]:
    """Return the order of lines by their height, but of those alone of which it is known."""
    return sorted((index for index, line in enumerate(lines) if line.top), key=lambda index: -lines[index].top)


def _signs(line: Piece, page: int) -> Iterator[tuple[str, int, int]]:
    """Yield by what a line is known on other pages: its text without a page number, how far that is on, its height."""
    text, height = re.sub(" +", " ", line.text.strip()), round(line.bottom / 4)
    yield text, 0, height
    for match in islice(_PAGE_NUMBER.finditer(text), _MOST_RUNNING):
        start, end = match.span(match.lastindex or 0)
        yield f"{text[:start]}{text[end:]}", int(text[start:end]) - page, height


def _margins(lines: Sequence[Piece], repeats: Collection[int]) -> Iterator[tuple[list[tuple[int, float]], float]]:
    """Yield of both ends of a page which repeated lines stand apart from its text, and how far up or down they reach.

    After them comes how far the text reaches. Of a page without other text nothing is known.
    """
    order = _from_above(lines)
    text_lines = [lines[index] for index in order if index not in repeats]
    if not text_lines:
        return
    heights = sorted(line.top - line.bottom for line in text_lines)
    # Lines without descenders are lower, and letters of some fonts that are not embedded have no height.
    height = max(heights[3 * len(heights) // 4], 6.0)
    gaps = [gap for first, second in pairwise(text_lines) if (gap := first.bottom - second.top) > 0]
    usual_gap = min(median_low(gaps or heights), 2 * height)
    low_lines = {index for index in repeats if lines[index].top - lines[index].bottom <= _LARGE * height}
    for end, places in enumerate((order, order[::-1])):
        outermost = [lines[index] for index in places[: 2 * _MOST_RUNNING]]
        gaps = [max(first.bottom, second.bottom) - min(first.top, second.top) for first, second in pairwise(outermost)]
        rows = [gap if CELL_END in line.text else 0 for line, gap in zip(outermost, [*gaps[1:], 0], strict=False)]
        are_apart = [gap > _APART * max(usual_gap, row) + height / 2 for gap, row in zip(gaps, rows, strict=False)]
        reaches = [-line.bottom if end else line.top for line in outermost]
        sizes = (size for size in range(len(outermost)) if not size or are_apart[size - 1])
        size = max(size for size in sizes if low_lines >= {*places[:size]})
        text_start = next((index for index in range(size, len(gaps)) if not are_apart[index]), len(gaps))
        yield [*zip(places[:size], reaches, strict=False)], reaches[text_start]
