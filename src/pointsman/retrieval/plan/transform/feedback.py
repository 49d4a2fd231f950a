"""Pseudo-relevance feedback: also searches for words of the first hits."""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.parallel_calls import describe
from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Lookup, Transformed
from pointsman.retrieval.refine.budget import Budget, spending
from pointsman.retrieval.run.variant import Variant
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import InputError, PointsmanError
from pointsman.values.types import Hit, Query, check_top_k

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

_MOST_REPEATS: Final = 5
_SECONDS: Final = 5.0


class FeedbackExpander(BaseTransformer):
    """RM3: the words that are typical of the first hits become another query for the keyword index.

    Lavrenko and Croft, "Relevance-Based Language Models", SIGIR 2001, https://doi.org/10.1145/383952.383972; mixed with
    the query as in Abdul-Jaleel et al., "UMass at TREC 2004". The weight of a word is its share of each document's
    words, summed over the documents by their share of the evidence; the word is repeated in proportion to it, 1 to 5
    times. The words are used only as search text.

    Args:
        documents: the number of hits used as feedback.
        terms: the number of words taken.
        share: of the feedback in the mixture, 0 to 1 exclusive; the query has the rest.
        budget: its seconds limit the first search, which gets 5 at most.
        lookup: makes the first search; a search provides its own. Without it there is no feedback.

    Raises:
        InputError: a number is out of range.
    """

    def __init__(
        self,
        *,
        documents: int = 5,
        terms: int = 10,
        share: float = 0.1,
        budget: Budget | None = None,
        lookup: Lookup | None = None,
    ) -> None:
        if not 0 < share < 1:
            raise InputError(f"share is between 0 and 1, not {share!r:.80}")
        self.documents, self.terms = check_top_k(documents), check_top_k(terms)
        self.share, self.budget, self.lookup = share, budget or Budget(), lookup

    def over(self, lookup: Lookup) -> FeedbackExpander:
        """Return a copy that searches the sources of that search."""
        return FeedbackExpander(
            documents=self.documents, terms=self.terms, share=self.share, budget=self.budget, lookup=lookup
        )

    def transform(self, query: str | Query) -> Transformed:
        """The query with one variant of feedback words; without it, and marked, if the search failed."""
        query = Query.of(query)
        if self.lookup is None:
            return Transformed(query)
        with spending(self.budget) as account:
            try:
                seconds = account.left(_SECONDS) or 1e-3
                context = self.lookup.search(replace(query, history=()), self.documents, seconds)
            except PointsmanError as error:
                message = f"no feedback, because its search failed: {describe(error)}"
                log.warning("%s", message)
                return Transformed(query, degraded=(message,))
        degraded = tuple(f"the search for feedback: {cause}" for cause in context.degraded)
        text, count = self._expansion(query.text, context.hits)
        length = len(DEFAULT_ANALYZER.query_tokens(query.text))
        if not count or not length:
            return Transformed(query, detail="no words to take from the first hits", degraded=degraded)
        # Both models sum to one: the query's |q| words, and the feedback's as many as they were repeated.
        weight = min(1.0, self.share / (1 - self.share) * length / count)
        return Transformed(query, (Variant(text, "expansion", weight, "bm25"),), f"feedback: {text}", degraded)

    def _expansion(self, query: str, hits: Sequence[Hit]) -> tuple[str, int]:
        """The words, repeated by their weight, and their total number."""
        if not hits:
            return "", 0
        query_tokens = set(DEFAULT_ANALYZER.query_tokens(query))
        best = hits[0].score
        evidence = [math.exp(min(0.0, (hit.score - best) / max(1.0, abs(best)))) for hit in hits]
        weights: Counter[str] = Counter()
        document_counts: Counter[str] = Counter()
        for hit, share in zip(hits, evidence, strict=True):
            counts = Counter(DEFAULT_ANALYZER.query_tokens(hit.document.searchable))
            length = counts.total() or 1
            for token, count in counts.items():
                weights[token] += share * count / length  # type: ignore[assignment]  # a Counter also counts floats
                document_counts[token] += 1
        likely = [
            token for token in weights if token not in query_tokens and document_counts[token] > 1 and len(token) > 1
        ]
        terms = sorted(likely, key=lambda token: (-weights[token], token))[: self.terms]
        if not terms:
            return "", 0
        top = weights[terms[0]]
        repeats = [max(1, round(_MOST_REPEATS * weights[token] / top)) for token in terms]
        words = [" ".join([token] * count) for token, count in zip(terms, repeats, strict=True)]
        return " ".join(words), sum(repeats)
