"""Selects the sentences relevant to the query, without a language model."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from pointsman.embedders.named_embedders import as_embedder
from pointsman.retrieval.refine.compress.base_compressor import BaseCompressor, Compressed
from pointsman.retrieval.refine.compress.spans import TextBudget, Unit, fill, units_of
from pointsman.text import DEFAULT_ANALYZER, repair
from pointsman.text.grammar import AMOUNT, plain
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pointsman.values.protocols import Embedder
    from pointsman.values.types import Hit

_log = logging.getLogger(__name__)

# Tuned on the training questions of WikiQA, on MuSiQue and on one half of HotpotQA (benchmarks/compression.py reports
# others). Rejected, as none improved all three: a bonus for the neighbours of good sentences, a share of the words of
# the title, clauses instead of sentences, scores by length (worse), skipping what does not fit (worse).
_K1: Final = 0.6
_B: Final = 0.2
_LEAD: Final = 0.2
"""The bonus of a text's first sentence, relative to 1 for the best by words; the n-th sentence gets 1/n of it."""
_RANK: Final = 0.1
"""The penalty of a hit each time its rank doubles."""
_NUMBER: Final = 0.2
"""The bonus of a sentence with a digit if the query asks for a number or a date."""
_COSINE: Final = 1.0
"""The bonus of the sentence nearest to the query; the farthest gets 0."""

EMBEDDED: Final = 256
"""The most sentences embedded per answer, the best by words: a small model embeds some 30 to 100 a second."""

_SAME_COSINE: Final = 0.85
"""The Jaccard similarity of tokens from which two sentences count as repeats."""

_DIGITS = re.compile(r"\d+")
_NEGATIONS = re.compile(
    r"\b(?:not?|never|none|nor|without|cannot|не|ни|нет|без|никогда)\b|n['’]t\b|[不没沒无無未非别莫否]", re.IGNORECASE
)


class ExtractiveCompressor(BaseCompressor):
    """Keeps the sentences most relevant to the query, from all hits together, in source order, with their offsets.

    A sentence is scored by BM25 among the sentences of the answer and, if an embedder is given, by its cosine to the
    query. An early place in its text, a better hit, or a digit when a number is asked for adds a little. Sentences are
    then taken from the best down, skipping repeats of better ones, until one doesn't fit; of that one, the part around
    the query's words is taken. Kept text is never changed.

    BM25 as in Robertson and Zaragoza, "The probabilistic relevance framework", 2009,
    https://doi.org/10.1561/1500000019. An embedder costs a call for at most 256 sentences per answer; if it fails, the
    words alone decide, and ``degraded`` says so.
    """

    def __init__(
        self,
        embedder: Embedder | str | None = None,
        *,
        max_chars: int | None = None,
        max_tokens: int | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        """Set the budget; see `BaseCompressor`.

        Args:
            embedder: compares sentences with the query; None: compare by words alone.
            max_chars: for all texts of an answer together.
            max_tokens: in tokens instead.
            count_tokens: counts tokens.
        """
        super().__init__(max_chars=max_chars, max_tokens=max_tokens, count_tokens=count_tokens)
        self.embedder = None if embedder is None else as_embedder(embedder)

    def compress(self, query: str | Query, hits: Sequence[Hit]) -> Compressed:
        """The best sentences of all hits within the budget."""
        return self.within(self.budget, query, hits)

    def within(self, budget: TextBudget, query: str | Query, hits: Sequence[Hit]) -> Compressed:
        """`compress` within another budget."""
        sentences = Sentences(Query.of(query).text, hits)
        order, degraded = self.order(sentences)
        excerpts = fill(order, hits, budget, sentences.words)
        count = sum(len(excerpt.spans) for excerpt in excerpts if excerpt)
        method = "words" if self.embedder is None or degraded else f"words and {self.embedder.name}"
        detail = f"{count} stretches out of {len(sentences.units)} sentences of {len(hits)} hits, by {method}"
        return Compressed(excerpts, detail, degraded)

    def order(self, sentences_in_order: Sentences) -> tuple[Iterator[Unit], tuple[str, ...]]:
        """Return the sentences from the most relevant down, without repeats; and what did not work."""
        scores, degraded = sentences_in_order.by_words(), tuple[str, ...]()
        if self.embedder is not None:
            try:
                cosines = sentences_in_order.nearness(self.embedder, scores)
                scores = [score + _COSINE * cosine for score, cosine in zip(scores, cosines, strict=True)]
            except Exception as error:  # noqa: BLE001  (a user's embedder may raise anything: reported and logged)
                cause = f"{type(error).__name__}: {error}"[:300]
                degraded = (f"compress: the embedder failed, sentences are compared by words alone: {cause}",)
                _log.warning("%s", degraded[0], exc_info=error)
        return sentences_in_order.distinct(scores), degraded


class Sentences:
    """The sentences of some hits, scored for a query.

    Attributes:
        units: the sentences, hit by hit, in source order.
        words: the weight of each token of the query: its idf among these sentences.
    """

    def __init__(self, query: str, hits: Sequence[Hit]) -> None:
        self.query = query
        self.units = units_of(hits)
        self.texts = [hits[unit.hit].document.text[unit.start : unit.end] for unit in self.units]
        self.tokens = [Counter(DEFAULT_ANALYZER.tokens(text)) for text in self.texts]
        self.asked = Counter(DEFAULT_ANALYZER.query_tokens(query))
        self.words = _idf(self.asked, self.tokens)

    def by_words(self) -> list[float]:
        """The relevance of each sentence: up to 1 by BM25 alone, up to 1.4 with the other criteria."""
        lengths = [counts.total() for counts in self.tokens]
        mean = sum(lengths) / max(len(lengths), 1) or 1.0
        pairs = zip(self.tokens, lengths, strict=True)
        scores = [_bm25(counts, self.asked, self.words, length / mean) for counts, length in pairs]
        best = max(scores, default=0.0) or 1.0
        numeric = bool(AMOUNT.first(plain(self.query)))
        counts_by_hit = Counter[int]()
        for index, unit in enumerate(self.units):
            counts_by_hit[unit.hit] += 1
            scores[index] = scores[index] / best + _LEAD / counts_by_hit[unit.hit] - _RANK * math.log2(1 + unit.hit)
            if numeric and _DIGITS.search(self.texts[index]):
                scores[index] += _NUMBER
        return scores

    def nearness(self, embedder: Embedder, scores: Sequence[float]) -> list[float]:
        """The cosine of each sentence to the query, scaled to 0…1; 0 for those not compared."""
        if not self.units:
            return []
        indices = sorted(range(len(self.units)), key=lambda index: -scores[index])[:EMBEDDED]
        vectors = embedder.embed_documents([repair(self.texts[index]) for index in indices])
        cosines = (vectors @ embedder.embed_queries([repair(self.query)])[0]).tolist()
        if not all(map(math.isfinite, cosines)):
            raise ValueError("a cosine is not a finite number")
        low, high = min(cosines), max(cosines)
        result = [0.0] * len(self.units)
        for index, cosine in zip(indices, cosines, strict=True):
            result[index] = (cosine - low) / (high - low) if high > low else 1.0
        return result

    def distinct(self, scores: Sequence[float]) -> Iterator[Unit]:
        """Yields the best first, ties in order of the hits, without repeats of better ones."""
        unique = _Distinct(self.tokens)
        for index in sorted(range(len(self.units)), key=lambda index: -scores[index]):
            if unique.add(self.texts[index], self.tokens[index]):
                yield self.units[index]


class _Distinct:
    """Detects whether a sentence repeats one that was kept.

    Two repeats share one of their rarest tokens (Chaudhuri, Ganti and Kaushik, "A primitive operator for
    similarity joins in data cleaning", ICDE 2006, https://doi.org/10.1109/ICDE.2006.9), so only such pairs are
    compared. Sentences that differ in a number or in a negation are never repeats, however similar they are.
    """

    def __init__(self, sentences: Iterable[Mapping[str, int]]) -> None:
        self.frequency = Counter(token for counts in sentences for token in counts)
        self.by_rare_token: dict[tuple[object, str], list[frozenset[str]]] = {}

    def add(self, text: str, counts: Mapping[str, int]) -> bool:
        """Keep a sentence unless it is a repeat; returns whether it was kept."""
        tokens = frozenset(counts)
        if not tokens:
            return True
        facts = tuple(_DIGITS.findall(text)), len(_NEGATIONS.findall(text))
        rare = sorted(tokens, key=lambda token: (self.frequency[token], token))
        rare = rare[: len(tokens) - math.ceil(_SAME_COSINE * len(tokens)) + 1]
        for token in rare:
            for other_tokens in self.by_rare_token.get((facts, token), ()):
                if len(tokens & other_tokens) >= _SAME_COSINE * len(tokens | other_tokens):
                    return False
        for token in rare:
            self.by_rare_token.setdefault((facts, token), []).append(tokens)
        return True


def _idf(terms: Iterable[str], sentences: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Lucene's idf of each token of the query."""
    count = len(sentences)
    frequencies = {token: sum(token in counts for counts in sentences) for token in terms}
    return {token: math.log(1 + (count - df + 0.5) / (df + 0.5)) for token, df in frequencies.items()}


def _bm25(counts: Mapping[str, int], terms: Mapping[str, int], idf: Mapping[str, float], length: float) -> float:
    """The score of a sentence whose length is ``length`` times the mean."""
    norm = _K1 * (1 - _B + _B * length)
    return sum(
        times * idf[token] * counts[token] / (counts[token] + norm) for token, times in terms.items() if token in counts
    )
