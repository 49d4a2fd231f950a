"""The words of datasets, cached while the datasets are unchanged: for spelling correction and for related words."""

from __future__ import annotations

import logging
import math
import re
import threading
import weakref
from collections import Counter
from concurrent.futures import Future
from contextvars import ContextVar
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from pointsman.retrieval.run.reading import reading_of
from pointsman.store.sampled_texts import MOST_CHARACTERS, texts
from pointsman.tools.sync_and_async import set_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from pointsman.retrieval.run.source import Source
    from pointsman.text.spelling import Speller

log = logging.getLogger(__name__)

ANEW: Final = 0.02
"""The share of documents that may change before the words are read again."""

_CYRILLIC: Final = re.compile("[а-я]")

_AT_ONCE: Final = 0.2
"""Seconds that a query waits for rereading; if the last reading took longer, it uses the words known so far."""

FIRST_SECONDS: Final = 2.0
"""Seconds that queries wait for the first reading; until it is done, they are left as they are."""


UNREAD: Final = -1
"""Noted as the state of the words if a search did without them, because they were still being read."""


class DatedWords(NamedTuple):
    """A speller, and by dataset the sequence number of the state whose words it knows."""

    speller: Speller
    sequences: Mapping[str, int]


class _SpellerEntry:
    """The words of one dataset, and the state of the dataset that they reflect."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sequence = -1
        self.documents = 0
        self.seconds = 0.0
        self.words: DatedWords | None = None
        self.renewing = False


_spellers: weakref.WeakKeyDictionary[Source, _SpellerEntry] = weakref.WeakKeyDictionary()
_guard = threading.Lock()

_MOST_JOINT: Final = 8
_joint: dict[tuple[int, ...], tuple[tuple[Speller, ...], Speller]] = {}  # by the spellers' identities, oldest first
_joint_guard = threading.Lock()


def speller_of(dataset: Source, *, limit: int = MOST_CHARACTERS) -> Speller:
    """A speller that knows the words of a dataset; built on first use, and rebuilt after the dataset has changed.

    Concurrent callers wait for the first build. Building takes about a second for ten million characters of text, so a
    large dataset is reread in the background, and only when a share of `ANEW` has changed; until then, words that are
    new there are not suggested. A large dataset in a folder stores what was read, so that the next process reads no
    text. A dataset of more than ``limit`` characters is sampled evenly: words that occur only in the documents left out
    may be taken for typos, so search for a correction beside the query, never instead of it.

    Args:
        dataset: the dataset whose words it knows.
        limit: the maximum number of characters to read.
    """
    return words_of(dataset, limit=limit).speller


def words_of(dataset: Source, *, limit: int = MOST_CHARACTERS) -> DatedWords:
    """`speller_of`, and the state that it is of."""
    with _guard:
        entry = _spellers.setdefault(dataset, _SpellerEntry())
    sequence = dataset.store.statistics().sequence
    if entry.words is not None and entry.sequence == sequence:
        return entry.words
    with entry.lock:
        words = entry.words
        if words is not None and entry.sequence == sequence:  # another thread has just built it
            return words
        if words is None and limit == MOST_CHARACTERS:
            words = _stored_words(dataset, entry)
        if words is None or entry.seconds < _AT_ONCE:
            return _build_speller(dataset, entry, limit)
        threshold = max(1, int(ANEW * entry.documents))
        if not entry.renewing and dataset.store.changed_since(entry.sequence, threshold) >= threshold:
            entry.renewing = True
            threading.Thread(target=_renew, args=(dataset, entry, limit), name="pointsman-words", daemon=True).start()
        return words


def _known_words(dataset: Source) -> DatedWords | None:
    """Return the words if they were read from the dataset as the search that runs here sees it."""
    entry = _spellers.get(dataset)
    if entry is None or entry.words is None:
        return None
    return entry.words if reading_of(dataset).read().sequence == entry.sequence else None


def _joined(words_by_dataset: Sequence[DatedWords]) -> DatedWords | None:
    """Return the words of several datasets as those of one; None if there is no dataset."""
    if len(words_by_dataset) < 2:
        return words_by_dataset[0] if words_by_dataset else None
    sequences = {name: sequence for words in words_by_dataset for name, sequence in words.sequences.items()}
    return DatedWords(_merge_spellers([words.speller for words in words_by_dataset]), sequences)


def _stored_words(dataset: Source, entry: _SpellerEntry) -> DatedWords | None:
    """Return the words that the store keeps; they count as read slowly, and are read again like those."""
    stored = dataset.store.stored_words(LEXICON)
    if stored is None:
        return None
    speller, sequence = stored
    entry.documents, entry.seconds = dataset.store.count(), math.inf
    entry.words, entry.sequence = DatedWords(speller, {dataset.name: sequence}), sequence
    return entry.words


def _build_speller(dataset: Source, entry: _SpellerEntry, limit: int) -> DatedWords:
    from pointsman.text.spelling import Speller

    start = perf_counter()
    statistics = dataset.store.statistics()  # before reading: later writes are then seen the next time
    speller = Speller.from_texts(texts(dataset.store, limit), lexicon=LEXICON)
    speller.build()
    entry.documents, entry.seconds = dataset.store.count(), perf_counter() - start
    recorded_state = statistics.recorded_state
    sequence = statistics.sequence if recorded_state is None else recorded_state.sequence
    words = DatedWords(speller, {dataset.name: sequence})
    entry.words, entry.sequence = words, statistics.sequence
    if limit == MOST_CHARACTERS:
        dataset.store.keep_words(speller, sequence)
    return words


def _renew(dataset: Source, entry: _SpellerEntry, limit: int) -> None:
    try:
        _build_speller(dataset, entry, limit)
    except Exception:
        log.exception("the words of dataset %s could not be read again; the previous ones are used", dataset.name)
    finally:
        entry.renewing = False


def _merge_spellers(spellers: Sequence[Speller]) -> Speller:
    """One speller for the words of several; the latest ones are cached, so that each is built once while unchanged."""
    sorted_spellers = tuple(sorted(spellers, key=id))  # routers change the order, which affects no correction
    key = tuple(map(id, sorted_spellers))
    with _joint_guard:
        cached = _joint.pop(key, None)
        if cached is None or any(first is not second for first, second in zip(cached[0], sorted_spellers, strict=True)):
            from pointsman.text.spelling import Speller

            counts: Counter[str] = Counter()
            for speller in sorted_spellers:
                counts.update(speller.frequencies)
            cached = sorted_spellers, Speller(counts, lexicon=LEXICON)
            cached[1].build()
        _joint[key] = cached
        while len(_joint) > _MOST_JOINT:
            del _joint[next(iter(_joint))]
        return cached[1]


class _Lexicon:
    """The word lists of all languages; each is opened when the first word in its script occurs."""

    def zipf(self, word: str) -> float:
        from pointsman.text.lexicon import installed_lexicon

        return installed_lexicon("ru" if _CYRILLIC.search(word) else "en").zipf(word)


LEXICON: Final = _Lexicon()


class Vocabulary:
    """The joint words of several datasets; its speller is cached for all callers while the datasets are unchanged.

    Args:
        datasets: the datasets, of any kind.
        limit: the maximum number of characters to read of each.
    """

    def __init__(self, datasets: Sequence[Source], *, limit: int = MOST_CHARACTERS) -> None:
        self.datasets, self.limit = tuple(datasets), limit

    def speller_in_time(self, seconds: float) -> Speller | None:
        """Return `speller`, or None if reading the words takes longer; it goes on, for later callers.

        Within `with_words` nothing is limited.

        Raises:
            PointsmanError: the words cannot be read.
        """
        return self._note(self._words_in_time(seconds) if _given_words.get() is None else self.words())

    def speller(self) -> Speller | None:
        """Return a speller that knows the words of all datasets; None if there is no dataset."""
        return self._note(self.words())

    def _words_in_time(self, seconds: float) -> DatedWords | None:
        known_words = [words for dataset in self.datasets if (words := _known_words(dataset)) is not None]
        if len(known_words) == len(self.datasets):  # nothing is read, so there is nothing to wait for
            return _joined(known_words)
        key = tuple(map(id, self.datasets))
        with _guard:
            reading = _readings.get(key)
            if reading is None:
                reading = _readings[key] = _FirstReading(self)
                threading.Thread(target=reading.run, args=(key,), name="pointsman-words", daemon=True).start()
        try:
            return reading.result.result(max(0.0, reading.began + seconds - monotonic()))
        except TimeoutError:
            return None

    def words(self) -> DatedWords | None:
        """Return `speller`, and the states that it is of."""
        given_words = _given_words.get() or {}
        words_by_dataset: list[DatedWords] = []
        for dataset in self.datasets:
            words = given_words[dataset.name] if dataset.name in given_words else words_of(dataset, limit=self.limit)
            if words is None:
                return None
            words_by_dataset.append(words)
        return _joined(words_by_dataset)

    def _note(self, words: DatedWords | None) -> Speller | None:
        """Return the speller; note in the readings of the search that runs here what it is of."""
        for dataset in self.datasets:
            reading_of(dataset).words_sequence = UNREAD if words is None else words.sequences[dataset.name]
        return None if words is None else words.speller


_given_words: ContextVar[Mapping[str, DatedWords | None] | None] = ContextVar("given_words", default=None)


def with_words(words: Mapping[str, DatedWords | None]) -> AbstractContextManager[None]:
    """Within the block, searches use these words of datasets, or none for None, and wait for others to be read."""
    return set_within(_given_words, words)


class _FirstReading:
    """A reading of words under way, which several queries may wait for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.result: Future[DatedWords | None] = Future()
        self.began = monotonic()
        self._vocabulary = vocabulary

    def run(self, key: tuple[int, ...]) -> None:
        """Read the words, and let those who wait go on."""
        try:
            words = self._vocabulary.words()
        except Exception as error:  # noqa: BLE001  (whoever waits raises it)
            log.info("the words of the documents could not be read: %s", error)
            self.result.set_exception(error)
        else:
            self.result.set_result(words)
        finally:
            with _guard:
                del _readings[key]


_readings: dict[
    tuple[int, ...], _FirstReading
] = {}  # by the identities of the datasets, which each reading keeps alive
