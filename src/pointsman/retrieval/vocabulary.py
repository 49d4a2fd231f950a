"""The words of datasets, cached while the datasets are unchanged: for spelling correction and for related words."""

from __future__ import annotations

import logging
import re
import threading
import weakref
from collections import Counter
from concurrent.futures import Future
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.protocols import Embedder
    from pointsman.retrieval.source import Source
    from pointsman.text.spelling import Speller

log = logging.getLogger(__name__)

MOST_CHARACTERS: Final = 20_000_000
"""Characters read of a dataset, at some 11 million a second; of a larger dataset, every n-th document is read."""

ANEW: Final = 0.02
"""The share of documents that may change before the words are read again."""

_CYRILLIC: Final = re.compile("[а-я]")

_PROBE: Final = 64
"""The number of documents from which the text length of a dataset is estimated."""

_AT_ONCE: Final = 0.2
"""Seconds that a query waits for rereading; if the last reading took longer, it uses the words known so far."""

FIRST_SECONDS: Final = 2.0
"""Seconds that queries wait for the first reading; until it is done, they are left as they are."""


class _SpellerEntry:
    """The speller of one dataset, and the state of the dataset that it reflects."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sequence = -1
        self.documents = 0
        self.seconds = 0.0
        self.speller: Speller | None = None
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
    new there are not suggested. A dataset of more than ``limit`` characters is sampled evenly: words that occur only in
    the documents left out may be taken for typos, so search for a correction beside the query, never instead of it.

    Args:
        dataset: the dataset whose words it knows.
        limit: the maximum number of characters to read.
    """
    with _guard:
        entry = _spellers.setdefault(dataset, _SpellerEntry())
    sequence = dataset.store.statistics().sequence
    if entry.speller is not None and entry.sequence == sequence:
        return entry.speller
    with entry.lock:
        speller = entry.speller
        if speller is not None and entry.sequence == sequence:  # another thread has just built it
            return speller
        if speller is None or entry.seconds < _AT_ONCE:
            return _built(dataset, entry, limit)
        threshold = max(1, int(ANEW * entry.documents))
        count_changes = getattr(dataset.store, "changed_since", None)  # without it, enough counts as changed
        if not entry.renewing and (count_changes is None or count_changes(entry.sequence, threshold) >= threshold):
            entry.renewing = True
            threading.Thread(target=_renew, args=(dataset, entry, limit), name="pointsman-words", daemon=True).start()
        return speller


def _built(dataset: Source, entry: _SpellerEntry, limit: int) -> Speller:
    from pointsman.text.spelling import Speller

    start = perf_counter()
    sequence = dataset.store.statistics().sequence  # before reading: later writes are then seen the next time
    speller = Speller.from_texts(_texts(dataset, limit), lexicon=LEXICON)
    speller.build()
    entry.documents, entry.seconds = dataset.store.count(), perf_counter() - start
    entry.speller, entry.sequence = speller, sequence
    return speller


def _renew(dataset: Source, entry: _SpellerEntry, limit: int) -> None:
    try:
        _built(dataset, entry, limit)
    except Exception:
        log.exception("the words of dataset %s could not be read again; the previous ones are used", dataset.name)
    finally:
        entry.renewing = False


def _texts(dataset: Source, limit: int) -> Iterator[str]:
    """The texts of the documents; of an even sample if the dataset is estimated to exceed ``most`` characters."""
    store = dataset.store
    probe, count = [document.searchable for document in store.sample(_PROBE)], store.count()
    size = sum(map(len, probe)) / max(1, len(probe)) * count
    documents = store.documents() if size <= limit else store.sample(max(1, int(count * limit / size)))
    characters = 0
    for document in documents:
        characters += len(document.searchable)
        if characters > 2 * limit:
            return
        yield document.searchable


def _together(spellers: Sequence[Speller]) -> Speller:
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
        most: the maximum number of characters to read of each.
    """

    def __init__(self, datasets: Sequence[Source], *, limit: int = MOST_CHARACTERS) -> None:
        self.datasets, self.most = tuple(datasets), limit

    def speller_in_time(self, seconds: float) -> Speller | None:
        """Return `speller`, or None if reading the words takes longer; it goes on, for later callers.

        Raises:
            PointsmanError: the words cannot be read.
        """
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

    def speller(self) -> Speller | None:
        """Return a speller that knows the words of all datasets; None if there is no dataset."""
        spellers = [speller_of(dataset, limit=self.most) for dataset in self.datasets]
        if len(spellers) < 2:
            return spellers[0] if spellers else None
        return _together(spellers)


class _FirstReading:
    """A reading of words under way, which several queries may wait for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.result: Future[Speller | None] = Future()
        self.began = monotonic()
        self._vocabulary = vocabulary

    def run(self, key: tuple[int, ...]) -> None:
        """Read the words, and let those who wait go on."""
        try:
            speller = self._vocabulary.speller()
        except Exception as error:  # noqa: BLE001  (whoever waits raises it)
            log.info("the words of the documents could not be read: %s", error)
            self.result.set_exception(error)
        else:
            self.result.set_result(speller)
        finally:
            with _guard:
                del _readings[key]


_readings: dict[
    tuple[int, ...], _FirstReading
] = {}  # by the identities of the datasets, which each reading keeps alive


class NearWords:
    """The words of a vocabulary that an embedder places next to a word: `Neighbours` for `RuleExpander`.

    Opt in with care: the first question embeds ``most`` words, which takes a small model 10 to 60 seconds for 2000, and
    again whenever the datasets have changed; near words are not always synonyms.

    Args:
        vocabulary: the words.
        embedder: compares them.
        most: how many of the most frequent words to use; each has at least three letters.
        count: neighbours per word.
    """

    def __init__(self, vocabulary: Vocabulary, embedder: Embedder, *, limit: int = 2000, count: int = 5) -> None:
        self.vocabulary, self.embedder, self.most, self.count = vocabulary, embedder, limit, count
        self._known: tuple[Speller, list[str], NDArray[np.float32]] | None = None
        self._guard = threading.Lock()

    def __call__(self, word: str) -> list[tuple[str, float]]:
        """Return near words with their cosines, best first."""
        with self._guard:
            speller = self.vocabulary.speller()
            if speller is None:
                return []
            if self._known is None or self._known[0] is not speller:
                counts = Counter({term: n for term, n in speller.frequencies.items() if len(term) > 2})
                words = [term for term, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: self.most]]
                if not words:
                    return []
                self._known = speller, words, self.embedder.embed_queries(words)
            _, words, vectors = self._known
        cosines = vectors @ self.embedder.embed_queries([word])[0]
        order = (-cosines).argsort(kind="stable")[: self.count + 1]
        neighbours = [(words[index], float(cosines[index])) for index in order.tolist()]
        return [pair for pair in neighbours if pair[0] != word.lower()][: self.count]
