"""Corrects the spelling of English and Russian queries, using the words of the corpus.

A word is corrected only if it is almost certainly a typo. Neither it nor another form of it (with the same Snowball
stem) occurs in the corpus; it is not a word of its language, a code, or a short word; and a word of the corpus is one
slip away: a letter too many, too few or wrong, or two neighbours swapped (optimal string alignment distance). Long
words may have two slips. Word lists made from the web contain typos, so a listed word counts as a word of the language
only if it is well known, or less than `_RARER` orders of magnitude rarer than its correction.

A correction is unsure if the word may be a name, or if only the language supports it: the word is in no list and one
slip away from a common word, even if its first letter is wrong, it is short, or the corpus has the common word only in
another form or not at all, as happens in languages with many forms. Both words are then searched, unless the text is in
another language. Chinese, where a typo is another real character, is corrected in another way, see
`pointsman.retrieval.plan.transform.chinese_spelling`.

The neighbours of a word are found by symmetric deletion (SymSpell, W. Garbe, https://github.com/wolfgarbe/SymSpell):
if at most two letters are deleted from the beginnings of two words within distance two, both can become the same
string. Here these strings are hashes in one sorted array, computed by columns in numpy: the index is a sixteenth as
large as a dictionary of strings, and is built some ten times as fast.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from pointsman.text.slips import CYRILLIC, LONG, SHORTEST, Neighbours, is_cyrillic, one_slip_away, slip_cost
from pointsman.text.stop_words import ENGLISH, RUSSIAN
from pointsman.text.tokens import DEFAULT_ANALYZER
from pointsman.text.unicode import fold, normalize, repair
from pointsman.tools.errors import FormatVersionError, InputError, StoreError
from pointsman.tools.system.replaced_files import replacing

if TYPE_CHECKING:
    from numpy.typing import NDArray


_LONGEST = 40
"""The maximum length of a word to correct, in letters."""

_ENDINGS = frozenset("аеиоуыюяйь")
"""Final letters that one form of a Russian word may have and another may lack."""

_PREFIXES = frozenset("aeiаовсу")
"""Letters that make another word when put before a word."""


_LISTED_LENGTH = 5
"""The minimum length of a word to correct to one that the corpus has only in another form, in letters."""

_SURELY_LISTED = 2.0
"""The frequency from which a listed word is no slip of one that begins otherwise, nor of any if it is shorter than
`_LISTED_LENGTH`: *sago*, *ago*. Of 1,475 rare right words 64 are still taken for slips, 210 without it, and 689 instead
of 702 of 1,088 slips are put right."""

_RARER = 2.5
"""Orders of magnitude by which a listed word must be rarer than another to count as a slip of it."""

_BY_LANGUAGE = 0.1
"""The value of a tenfold frequency in the language, in slips."""

_ABSENT = 0.3
"""The penalty for a word of which no document has any form, in slips."""

_MOST_UNSURE = 2
"""The maximum number of unsure corrections of one text; a text with more is probably in another language."""

_WELL_KNOWN = 3.5
"""The frequency from which a listed word is no typo, however much more frequent a word beside it is: knot, not."""

_COMMON = 3.0
"""The minimum frequency of a word that no document has; lists of hashes take some strings for rarer words."""

_MOST_LOOKUPS = 200
"""The maximum number of unknown words to look up per text: a query has a few, and a megabyte must not take minutes."""

_WORD = re.compile(r"[^\W\d_]+(?!['’ʼ]t)")  # doesn't: "doesn" is no word
_CHUNK = re.compile(r"\S{1,200}")
_LATIN = re.compile(r"[A-Za-z\xc0-\xd6\xd8-\xf6\xf8-\u024f]+")
_FOREIGN = re.compile("[\xc0-\xd6\xd8-\xf6\xf8-\u024f\u0400\u0402-\u040f\u0450\u0452-\u045f\u0490-\u04ff]")
_CODE = re.compile(r"[\d_@/\\#=+$&%<>{}|~^*]|\w\.\w|\w:\w|::|--")
_FUNCTION_WORDS = ENGLISH | RUSSIAN

_LATIN_KEYS = "`qwertyuiop[]asdfghjkl;'zxcvbnm,."
_CYRILLIC_KEYS = "ёйцукенгшщзхъфывапролджэячсмитьбю"
_TO_CYRILLIC = str.maketrans(_LATIN_KEYS, _CYRILLIC_KEYS)
_TO_LATIN = str.maketrans(_CYRILLIC_KEYS, _LATIN_KEYS)
_TYPED_LATIN = re.compile(r"[A-Za-z`\[\];',.]+")

_MAGIC = b"pointsman-words 1\n"


_LookedUp = dict[tuple[str, bool], tuple[str, bool] | None]
"""By unknown word, and whether it may be a name: the correction, and whether it is sure."""


class HasFrequencies(Protocol):
    """Word frequencies of a language: `pointsman.text.lexicon.Lexicon`, or several of them."""

    def zipf(self, word: str) -> float:
        """Return the decimal logarithm of a folded word's frequency per billion words; 0 if the word is unknown."""
        ...


class Change(NamedTuple):
    """The correction of one word: ``text[start:end] == old`` in the original text.

    ``sure`` is False if the correction is unsure; the word then stays unchanged in `Correction.text`.
    """

    start: int
    end: int
    old: str
    new: str
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Correction:
    """A text with its probable corrections.

    Attributes:
        text: the text with the sure corrections; the same string if there are none.
        changes: all corrections, sure or not, in the order of the text.
        alternative: the text with the unsure corrections as well, to be searched beside ``text``; None if there are
            none.
    """

    text: str
    changes: tuple[Change, ...] = ()
    alternative: str | None = None

    def __bool__(self) -> bool:
        return bool(self.changes)


class Speller:
    """Holds the words of a corpus and corrects words that are not among them.

    It is deterministic: the same words and frequencies give the same corrections, in whatever order they were added.
    ``add`` must not run while another thread corrects.

    Example:
        >>> speller = Speller({"retrieval": 9, "neural": 7, "погода": 5})
        >>> speller.correct("Neurla retreival").text
        'Neural retrieval'
        >>> speller.correct("gjujlf").text
        'погода'
    """

    def __init__(
        self, frequencies: Mapping[str, int], *, known: Container[str] = (), lexicon: HasFrequencies | None = None
    ) -> None:
        """Set up the words of a corpus.

        Args:
            frequencies: how often each word occurs. Words are folded (case, accents, ё as е); anything but a single
                word of Latin or Cyrillic letters is ignored.
            known: a list of further correct words, folded. They are not corrected, and nothing is corrected to them.
            lexicon: word frequencies of the languages; without it, any word that the corpus lacks may be a slip.

        Raises:
            InputError: a frequency is not positive.
        """
        self._also_known, self._lexicon = known, lexicon
        self._counts: dict[str, int] = {}
        for word, count in frequencies.items():
            if count < 1:
                raise InputError(f"the frequency of {word!r:.80} is at least 1, not {count}; leave such words out")
            key = fold(word)
            if _LATIN.fullmatch(key) or CYRILLIC.fullmatch(key):
                self._counts[key] = self._counts.get(key, 0) + count
        self._neighbours: Neighbours | None = None
        self._stems: set[str] | None = None
        self._cyrillic = self._latin = False
        self._note_scripts(self._counts)

    @classmethod
    def from_texts(
        cls, texts: Iterable[str], *, known: Container[str] = (), lexicon: HasFrequencies | None = None
    ) -> Self:
        """Create a corrector from the words of these texts."""
        return cls(_count(texts), known=known, lexicon=lexicon)

    def add(self, texts: Iterable[str]) -> None:
        """Add the words of more texts; takes as long as counting them, and the index is rebuilt when needed."""
        counts = _count(texts)
        for word, count in counts.items():
            self._counts[word] = self._counts.get(word, 0) + count
        self._note_scripts(counts)
        self._neighbours = self._stems = None

    def _note_scripts(self, words: Iterable[str]) -> None:
        """Note in which scripts there are words."""
        words = list(words)
        self._cyrillic = self._cyrillic or any(map(is_cyrillic, words))
        self._latin = self._latin or not all(map(is_cyrillic, words))

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, word: str) -> bool:
        return fold(word) in self._counts

    @property
    def frequencies(self) -> Mapping[str, int]:
        """The number of occurrences of each folded word in the corpus."""
        return MappingProxyType(self._counts)

    def build(self) -> None:
        """Build the index now instead of at the first unknown word (some .1 s for 50,000 words)."""
        _ = self._index, self._known_stems

    def correct(self, text: str) -> Correction:
        """Correct a query.

        Args:
            text: a query. In a very long text, only the first 200 different unknown words are looked up.
        """
        changes: list[Change] = []
        looked_up: _LookedUp = {}
        for chunk in _CHUNK.finditer(text):
            if (correction := self._other_layout(chunk[0], chunk.start())) is not None:
                changes.append(correction)
            elif not _CODE.search(chunk[0]):
                changes += self._misspelt(chunk, looked_up)
        sure = [change for change in changes if change.sure]
        unsure = len(changes) - len(sure)
        if unsure > _MOST_UNSURE or (unsure and self._is_foreign(text, changes)):
            changes = sure
        alternative = _apply(text, changes) if len(sure) < len(changes) else None
        return Correction(_apply(text, sure), tuple(changes), alternative)

    def _is_foreign(self, text: str, changes: Sequence[Change]) -> bool:
        """Whether a text is in another language than the lexicon and the corpus.

        It is if they know less than half of the words beside those to correct, or if a word that the corpus lacks has a
        letter of neither English nor Russian.
        """
        words = _WORD.findall(text)
        if any(_FOREIGN.search(word) and fold(word) not in self._counts for word in words):
            return True
        misspelt_words = {change.old for change in changes}
        other_words = [word for word in words if word not in misspelt_words and len(word) > 1]
        return 2 * sum(self._knows(fold(word)) for word in other_words) < len(other_words)

    def _misspelt(self, chunk: re.Match[str], looked_up: _LookedUp) -> Iterator[Change]:
        """Return the corrections of a chunk; ``looked_up`` collects the words looked up in the whole text."""
        for match in _WORD.finditer(chunk[0]):
            word = match[0]
            if not _correctable(word) or self._knows(key := fold(word)):
                continue
            is_name = word[0].isupper() and chunk.start() > 0
            if (key, is_name) not in looked_up:
                if len(looked_up) >= _MOST_LOOKUPS:
                    continue
                looked_up[key, is_name] = self._correction(key, is_name=is_name)
            if (correction := looked_up[key, is_name]) is not None:
                start = chunk.start() + match.start()
                best, sure = correction
                yield Change(start, start + len(word), word, _match_case(best, word), sure=sure)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the words and their frequencies (some 3 bytes a word), without the index, which is quick to build.

        The file is replaced atomically, so a reader sees the old or the new version.
        """
        path = Path(path)
        lines = "".join(f"{word}\t{count}\n" for word, count in sorted(self._counts.items()))
        with replacing(path) as file:
            file.write(_MAGIC + zlib.compress(lines.encode(), 6))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, known: Container[str] = (), lexicon: HasFrequencies | None = None
    ) -> Self:
        """Read what ``save`` wrote; ``known`` words and the lexicon are not in it.

        Raises:
            FormatVersionError: it is not a file of words, or has another version.
            StoreError: it is damaged.
        """
        data = Path(path).read_bytes()
        if not data.startswith(_MAGIC):
            raise FormatVersionError(f"{path} is not in a known format; create it again with Speller.save")
        try:
            lines = zlib.decompress(data[len(_MAGIC) :]).decode().splitlines()
            counts = {word: int(count) for word, count in (line.split("\t") for line in lines)}
            return cls(counts, known=known, lexicon=lexicon)
        except (zlib.error, ValueError) as error:
            raise StoreError(f"{path} is damaged ({error}); create it again with Speller.save") from error

    def to_arrays(self) -> list[NDArray[Any]]:
        """Return the words, their frequencies, their stems and the index as arrays, for `from_arrays`."""
        words, index = sorted(self._counts), self._index
        counts = np.fromiter((self._counts[word] for word in words), np.int64, len(words))
        return [_as_bytes(words), counts, _as_bytes(sorted(self._known_stems)), *index.to_arrays()]

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[Any]], *, lexicon: HasFrequencies | None = None) -> Self:
        """Return the speller whose `to_arrays` returned these, some of which it goes on reading.

        Raises:
            ValueError: they do not belong together.
        """
        word_bytes, counts, stem_bytes, *of_index = arrays
        speller = cls({}, lexicon=lexicon)
        speller._counts = dict(zip(_words_of(word_bytes), counts.tolist(), strict=True))
        speller._stems = set(_words_of(stem_bytes))
        speller._neighbours = Neighbours.from_arrays(speller._indexed_words, of_index)
        speller._note_scripts(speller._counts)
        return speller

    def _knows(self, word: str) -> bool:
        if word in self._counts or word in _FUNCTION_WORDS or word in self._also_known:
            return True
        if self._lexicon is not None and self._lexicon.zipf(word) >= _WELL_KNOWN:
            return True
        return self._has_form_of(word)

    @property
    def _known_stems(self) -> set[str]:
        if self._stems is None:
            self._stems = set(DEFAULT_ANALYZER.tokens(" ".join(self._counts)))
        return self._stems

    @property
    def _index(self) -> Neighbours:
        if self._neighbours is None:
            self._neighbours = Neighbours(self._indexed_words)
        return self._neighbours

    @property
    def _indexed_words(self) -> list[str]:
        return sorted(w for w, n in self._counts.items() if SHORTEST <= len(w) <= _LONGEST and (n > 1 or len(w) > 6))

    def _correction(self, word: str, *, is_name: bool) -> tuple[str, bool] | None:
        """Return the probable correction of an unknown word, and whether it is sure.

        The correction is a word of the corpus, or a common word of the language.
        """
        slips = 2 if len(word) >= LONG else 1
        candidates: list[tuple[float, str, bool]] = []
        for candidate in self._index.near(word, slips):
            cost = slip_cost(word, candidate, slips)
            if cost is not None and not self._is_other_word(word, candidate):
                sure = self._believable(word, candidate, cost, is_name=is_name)
                if sure or self._possible(word, candidate, cost, is_name=is_name):
                    candidates.append((self._doubt(candidate, cost), candidate, sure))
        if not any(sure for _, _, sure in candidates):
            candidates += self._listed_near(word, is_name=is_name)
        if not candidates:
            return None
        _, best, sure = min(candidates)
        return best, sure and not is_name

    def _doubt(self, candidate: str, cost: float) -> float:
        """Return the cost of a correction; lower is likelier, and one more slip outweighs any frequency."""
        common = 0.0 if self._lexicon is None else self._lexicon.zipf(candidate)
        return cost - 0.12 * math.log(self._counts.get(candidate, 0) + 1) - _BY_LANGUAGE * common

    def _possible(self, word: str, candidate: str, cost: float, *, is_name: bool) -> bool:
        """Whether a word may be a typo of a far more common word of its language; both are then searched."""
        if self._lexicon is None or cost > 1 or (is_name and len(word) < _LISTED_LENGTH):
            return False
        if word in (candidate[:-1], candidate + word[-1]):
            return False  # another form of a word
        return self._lexicon.zipf(candidate) - self._lexicon.zipf(word) >= _RARER

    def _listed_near(self, word: str, *, is_name: bool) -> Iterator[tuple[float, str, bool]]:
        """Yield common words of the language, one slip away, that the corpus has only in another form or not at all."""
        if self._lexicon is None:
            return
        minimum = self._lexicon.zipf(word) + _RARER
        for candidate in one_slip_away(word):
            if self._lexicon.zipf(candidate) < minimum or self._is_other_word(word, candidate):
                continue
            if (cost := slip_cost(word, candidate, 1)) is None:
                continue
            if candidate in self._counts and self._counts[candidate] > 1:
                continue  # seen already
            if not self._possible(word, candidate, cost, is_name=is_name):
                continue
            beginning = candidate[0] == word[0] or candidate[:2] == word[1::-1]
            present = self._has_form_of(candidate)
            if present or (not is_name and self._lexicon.zipf(candidate) >= _COMMON):
                sure = present and beginning and len(word) >= _LISTED_LENGTH
                yield self._doubt(candidate, cost) + (0.0 if present else _ABSENT), candidate, sure

    def _is_other_word(self, word: str, candidate: str) -> bool:
        """Whether a word is surely a word of its own beside another one."""
        if self._lexicon is None or self._lexicon.zipf(word) < _SURELY_LISTED:
            return False
        return len(word) < _LISTED_LENGTH or word[0] != candidate[0]

    def _has_form_of(self, word: str) -> bool:
        return any(stem in self._known_stems for stem in DEFAULT_ANALYZER.tokens(word)[:1])

    def _believable(self, word: str, candidate: str, cost: float, *, is_name: bool) -> bool:
        count, length = self._counts[candidate], len(word)
        if self._lexicon is not None and (frequency := self._lexicon.zipf(word)):
            longer, shorter = (word, candidate) if length > len(candidate) else (candidate, word)
            if self._lexicon.zipf(candidate) - frequency < _RARER or longer[:-1] == shorter:
                return False  # a word of the language, or a rare form of one
        if candidate[:-1] == word and candidate[-1] in _ENDINGS:
            return False  # another form of a word, which the stemmer has missed
        if word[0] != candidate[0] and sorted(word[:2]) != sorted(candidate[:2]):
            # The first letter is seldom wrong, and other words differ in it: symmetric and asymmetric.
            prefix = word[0] if word[1:] == candidate else candidate[0] if candidate[1:] == word else ""
            if length < 7 or cost > 1 or count < 3 or prefix in _PREFIXES:
                return False
        if length < 6:
            return count >= 10 and cost <= (0.8 if length == 4 else 1) and not is_name
        if length < 8 or is_name:
            return count >= 2
        return True

    def _other_layout(self, chunk: str, offset: int) -> Change | None:
        """Convert a word that was typed with the keyboard set to the other script."""
        for layout_pattern, table, possible in (
            (_TYPED_LATIN, _TO_CYRILLIC, self._cyrillic),
            (CYRILLIC, _TO_LATIN, self._latin),
        ):
            if not possible:
                continue
            for match in itertools.islice(layout_pattern.finditer(chunk), 3):
                old = match[0]
                # The keys of commas and stops are letters too: the longest reading that is a word.
                for end in range(len(old), max(len(old) - 3, SHORTEST - 1), -1):
                    new = fold(old[:end].lower().translate(table))
                    if new in self._counts and not self._knows(fold(old[:end].strip(";',.[]`"))):
                        start = offset + match.start()
                        return Change(start, start + end, old[:end], _match_case(new, old[:end]))
        return None


def _apply(text: str, changes: Sequence[Change]) -> str:
    """Return the text with these changes applied."""
    texts: list[str] = []
    end = 0
    for change in changes:
        texts += [text[end : change.start], change.new]
        end = change.end
    return "".join([*texts, text[end:]]) if texts else text


def _as_bytes(words: Sequence[str]) -> NDArray[np.uint8]:
    return np.frombuffer("\n".join(words).encode(), np.uint8)


def _words_of(content: NDArray[np.uint8]) -> list[str]:
    return content.tobytes().decode().split("\n") if len(content) else []


def _correctable(word: str) -> bool:
    if not SHORTEST <= len(word) <= _LONGEST:
        return False
    if not word[2:].islower() or (word[:1].isupper() and word[1:2].isupper()):
        return False  # a code, or a name in CamelCase; «iLst» may be a slip
    return bool(_LATIN.fullmatch(word) or CYRILLIC.fullmatch(word))


def _match_case(word: str, like: str) -> str:
    return word if like[:2].islower() else word.capitalize()


def _count(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_WORD.findall(normalize(repair(text))))
    totals: Counter[str] = Counter()
    for word, count in counts.items():
        bare = fold(word)
        if _LATIN.fullmatch(bare) or CYRILLIC.fullmatch(bare):
            totals[bare] += count
    return totals
