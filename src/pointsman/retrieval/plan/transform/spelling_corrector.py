"""Corrects the spelling of queries: replaces probable typos with words of the documents, or with common words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Lookup, Transformed
from pointsman.retrieval.plan.transform.chinese_spelling import chinese_changes
from pointsman.retrieval.plan.vocabulary import FIRST_SECONDS, Vocabulary
from pointsman.retrieval.run.reading import reading_of
from pointsman.retrieval.run.source import Source
from pointsman.retrieval.run.variant import Variant
from pointsman.store.store_values import Capability
from pointsman.text.grammar import HAN_RUN
from pointsman.values.retrieval_context import Spelling
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOT_YET: Final = "spelling: not corrected, the words of the documents are still being read; search again in a moment"
_WORD: Final = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_FEW_WORDS: Final = re.compile("[^\\W\u2e80-\uffff]+(?:\\s+[^\\W\u2e80-\uffff]+){1,5}")
"""Such as the parts of an identifier; Chinese has no blanks to leave out."""


class Corrector(BaseTransformer):
    """Replaces words that no document has with words of the datasets, if they are probably typos.

    The original query is searched beside the corrected one if the correction may be wrong, as with names, or if it is
    a common word that no document has, which still helps vectors. Words that a document contains are never changed.
    They are looked up in the keyword index, so correct queries cost microseconds; the vocabulary is read from the
    documents only when the first unknown word occurs.

    Args:
        datasets: the datasets whose words are used; those without a keyword index are skipped. In a search they are the
            routed ones.
    """

    only_computes = True

    def __init__(self, datasets: Sequence[Source] = ()) -> None:
        self.datasets = [source for source in datasets if source.lists_for("auto")[0] and source.can(Capability.TERMS)]
        self._vocabulary = Vocabulary(self.datasets)

    def over(self, lookup: Lookup) -> Corrector:
        """Return a copy for the sources of a search; it corrects nothing if the words of a source are unknown."""
        sources = [source for source in lookup.sources if isinstance(source, Source) and source.lists_for("auto")[0]]
        return Corrector(sources if len(sources) == len(lookup.sources) else ())

    def at_once(self, query: Query) -> Transformed | None:
        """Return the query unchanged in the usual case, after one lookup: a document contains all its words."""
        if not self.datasets or len(query.text) > 2000:
            return Transformed(query)
        one_word = "".join(query.text.lower().split()) if _FEW_WORDS.fullmatch(query.text) else ""
        is_known, has_one_word = self._are_known(query.text, one_word)
        if has_one_word:
            variant = Variant(one_word, "one word", method="bm25", means_the_same=True)
            return Transformed(query, (variant,), f"the documents also write {one_word:.80}, in one word")
        return Transformed(query) if is_known else None

    def transform(self, query: str | Query) -> Transformed:
        """Return the query with corrected words; the same object if there is nothing to correct."""
        query = Query.of(query)
        if (result := self.at_once(query)) is not None:
            return result
        changes = chinese_changes(query.text, self._frequencies)
        if any(not HAN_RUN.fullmatch(word) and not self._is_known(word) for word in set(_WORD.findall(query.text))):
            speller = self._vocabulary.speller_in_time(FIRST_SECONDS)
            if speller is None:
                return Transformed(query, degraded=(_NOT_YET,))
            changes += [
                change
                for change in speller.correct(query.text).changes
                if not self._is_known(change.old) and (self._is_known(change.new) or not change.sure)  # it may be stale
            ]
        text = query.text
        for change in sorted(changes, reverse=True):
            text = text[: change.start] + change.new + text[change.end :]
        if not changes:
            return Transformed(query)
        pairs = ", ".join(f"{change.old} → {change.new}" for change in changes)
        are_own_words = all(self._is_known(change.new) for change in changes)
        detail = f"corrected by the documents' own words: {pairs}"
        if not are_own_words:
            detail = f"corrected by the documents' own words and common ones: {pairs}"
        if all(change.sure for change in changes):
            return Transformed(replace(query, text=text), (), detail, spelling=Spelling(text, query.text))
        original = Variant(query.text, "correction")
        detail = f"{detail}; searched as written as well"
        return Transformed(replace(query, text=text), (original,), detail, spelling=Spelling(text, query.text, True))

    def _frequencies(self, words: Sequence[str]) -> list[int]:
        counts = [reading_of(dataset).store.frequencies(words) for dataset in self.datasets]
        return [sum(of_word) for of_word in zip(*counts, strict=True)]

    def _is_known(self, word: str) -> bool:
        return self._are_known(word)[0]

    def _are_known(self, text: str, one_word: str = "") -> tuple[bool, bool]:
        """Whether a document contains all words of a text, and whether one has them in one word.

        The latter costs no further round trips: datasets elsewhere are not asked once the words are known.
        """
        is_known = has_one_word = False
        for dataset in self.datasets:
            reading = reading_of(dataset)
            if is_known and (has_one_word or not one_word or not reading.is_local):
                break
            counts = reading.store.frequencies([text, one_word] if one_word else [text])
            is_known = is_known or counts[0] > 0
            has_one_word = has_one_word or (bool(one_word) and counts[1] > 0)
        return is_known, has_one_word
