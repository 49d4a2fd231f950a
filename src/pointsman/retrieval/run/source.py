"""A dataset as a search sees it: a name, a store, and the embedder of its vectors.

`pointsman.Dataset` is a `Source` that can be written to; retrieval knows nothing of it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Literal

from pointsman.retrieval.fusion import LISTS
from pointsman.store.store_values import Capability
from pointsman.tools.errors import InputError, StoreError, UnknownNameError, UnmetNeedError
from pointsman.values.argument_checks import check_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from threading import Lock

    from pointsman.embedders.query_vectors import QueryVectors
    from pointsman.retrieval.judge.relevance import Background
    from pointsman.retrieval.judge.versions import Versions
    from pointsman.store.base_store import Store
    from pointsman.store.store_values import Statistics
    from pointsman.values.protocols import Embedder
    from pointsman.values.types import Document

IndexingTechnique = Literal["vector", "keyword", "hybrid"]
TECHNIQUES: Final = ("vector", "keyword", "hybrid")
SCRIPTS_NOTE: Final = "scripts"


class Source(ABC):
    """Documents under a name that can be searched.

    Attributes:
        name: unique among the sources of one search.
        description: what it contains, for routers and selectors.
        indexing_technique: whether words, vectors or both are indexed.
        query_vectors: embeds queries with the documents' embedder; sources with the same embedder share it.
    """

    name: str
    description: str
    indexing_technique: IndexingTechnique
    query_vectors: QueryVectors
    remembered_background: tuple[str, Background] | None = None
    """The background as last measured or read, and the state of the dataset that it belongs to; see `Reading`."""
    remembered_versions: tuple[str, Versions] | None = None
    """The versions as last read, and the state of the dataset that they belong to."""
    day: str | None = None
    """The day whose documents these are; None: all."""
    holds_images: bool = False
    """Whether its documents are pictures, embedded by what they show."""
    measuring: Lock | None = None
    """Held while the background is measured."""

    @abstractmethod
    def check_searchable(self) -> None:
        """Check that the source may be searched as it is: where access is on, only a view may.

        Raises:
            InputError: access is on, and nobody said who asks.
        """

    @property
    @abstractmethod
    def store(self) -> Store:
        """The store that holds the documents."""

    @property
    @abstractmethod
    def embedder(self) -> Embedder:
        """The embedder of the documents; loaded on first use."""

    def get(self, id: str) -> Document | None:  # noqa: A002  (the field's word)
        """The document with this id; None if there is none."""
        return self.store.get([check_id(id)])[0]

    def ids(self, *, source: str | None = None) -> list[str]:
        """All ids, or only those of documents whose metadata has this ``source``."""
        return self.store.ids(source=source)

    def can(self, capability: Capability) -> bool:
        """Whether the store has a capability; False if it cannot be opened, in which case its branch says why.

        Also False of an attached collection that has not been asked yet: this never waits for its server.
        """
        try:
            return self.store.has_answered and self.store.info.can(capability)
        except StoreError:
            return False

    def lists_for(self, method: str) -> tuple[bool, bool]:
        """Whether a method needs keyword and vector search here; ``auto`` uses whatever is indexed.

        Raises:
            UnknownNameError: there is no such method.
            UnmetNeedError: the source lacks a list that it needs.
        """
        if method == "auto":
            return self.indexing_technique != "vector", self.indexing_technique != "keyword"
        self.check_keeps(method)
        return LISTS[method]

    def check_keeps(self, method: str, reason: str = "") -> None:
        """Check that the source has every list that a method needs.

        Raises:
            UnknownNameError: there is no such method.
            UnmetNeedError: it lacks one; ``reason`` says more.
        """
        if not self.keeps(method):
            raise UnmetNeedError(
                f"dataset {self.name!r} is indexed for {self.indexing_technique!r} search only, not for {method!r}"
                f"{reason and ': ' + reason}"
            )

    def keeps(self, method: str) -> bool:
        """Whether the source has every list that a method needs.

        Raises:
            UnknownNameError: there is no such method.
        """
        if method not in LISTS:
            raise UnknownNameError("strategy", method, ("auto", *LISTS))
        words, needs_vectors = LISTS[method]
        return self.indexing_technique == "hybrid" or (
            not needs_vectors if self.indexing_technique == "keyword" else not words
        )


def principals_missing(name: str) -> InputError:
    """The error of a search of this source that does not say who asks, while access is on."""
    return InputError(
        f"access is on, so a search of {name!r} needs to know who asks: give "
        "principals=['user:anna', 'group:finance']; [] asks as everyone"
    )


def check_all_searchable(sources: Iterable[Any]) -> None:
    """Check that those of the sources that are datasets may be searched as they are; see `Source.check_searchable`."""
    for source in sources:
        if isinstance(source, Source):
            source.check_searchable()


def words_in(text: str, statistics: Statistics, minimum: float, store: Store) -> str:
    """Return a query without stray words: those of a script that fewer than this share of the documents use.

    Otherwise the few Chinese passages of an English dataset would win every Chinese question. Words stay if at least
    half of them, by their letters, occur in the documents: a name or a single word of such a passage is searched. Of
    Chinese text, pairs of characters are looked up.

    Args:
        text: the query.
        statistics: of the store; its notes have the shares of the scripts.
        minimum: the share; 0 leaves nothing out.
        store: is asked how many documents contain a word; without that ability, no word of such a script stays.

    Raises:
        StoreError: the store could not be asked.
    """
    if not minimum or text.isascii():  # nothing to leave out
        return text
    from pointsman.text import DEFAULT_ANALYZER, without_scripts, words_of_scripts

    note = statistics.notes.get(SCRIPTS_NOTE)
    if not note:
        return text
    shares: Mapping[str, float] = json.loads(note)
    rare = [script for script in ("han", "cyrillic") if shares.get(script, 0.0) < minimum]
    words = [word for word in words_of_scripts(text, rare) if DEFAULT_ANALYZER.query_tokens(word)]
    if words and store.info.can(Capability.TERMS):
        counts = store.frequencies(words)
        present = sum(len(word) for word, count in zip(words, counts, strict=True) if count)
        if 2 * present >= sum(map(len, words)):
            return text
    return without_scripts(text, rare) if rare else text
