"""What every reranker is: one method that scores texts, and everything else made from it."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import anyio

from pointsman._twins import in_thread, limited, wait_for
from pointsman.errors import InputError, ModelError, PointsmanError
from pointsman.retrieval.refine import BaseRefiner
from pointsman.retrieval.rerank._scores import Lookup, Pair, ScoreCache, Scored, checked, told_missing
from pointsman.types import Document, Hit, Provenance, Query, Ranked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

_log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CANDIDATES = 50
TIMEOUT = 10.0
CACHE_SIZE = 10_000

_LONGEST_CAUSE = 300
"""Characters of an error that a ranking carries on: servers send whole pages."""


class BaseReranker(BaseRefiner, needs=("score", "ascore", "rerank", "arerank")):
    """Puts documents in the order of their relevance to a query. Implement ``score`` or ``ascore``.

    One that orders documents and has no scores for single texts implements ``rerank`` or ``arerank`` alone.

    ``rerank`` takes documents and raises what goes wrong; ``refine``, the stage of a search, never does: a reranker
    that fails, hangs or answers nonsense leaves the order as it was, and the answer says so.

    Attributes:
        max_candidates: how many hits of a ranking are scored.
        timeout: seconds for one ``rerank`` or ``refine``; None waits as long as it takes.
        cache_size: how many scores are remembered; 0 remembers nothing.
        independent: whether a text's score is the same whatever other texts it is scored with. Where it is not, only a
            whole list that was scored before is remembered.
    """

    stage = "rerank"
    max_candidates: int = MAX_CANDIDATES
    timeout: float | None = TIMEOUT
    cache_size: int = CACHE_SIZE
    independent: bool = True

    def __init__(
        self,
        *,
        max_candidates: int = MAX_CANDIDATES,
        timeout: float | None = TIMEOUT,
        cache: bool | int = True,
    ) -> None:
        """Set the limits; a subclass without settings of its own need not call this.

        Args:
            max_candidates: see the class.
            timeout: see the class.
            cache: how many scores to remember; True some 10,000, False or 0 none.

        Raises:
            InputError: a number is out of range.
        """
        if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
            raise InputError(f"timeout is in seconds, above 0, or None for no limit, not {timeout!r}")
        if not isinstance(cache, int) or cache < 0:
            raise InputError(f"cache is True, False or how many scores to remember, not {cache!r}")
        self.max_candidates = count_of(max_candidates, "max_candidates")
        self.timeout = timeout
        self.cache_size = (CACHE_SIZE if cache else 0) if isinstance(cache, bool) else cache

    @property
    def name(self) -> str:
        """Identifies model *and* settings: scores are remembered and told apart under it. Here: the class's name."""
        return type(self).__name__

    @property
    def orders_only(self) -> bool:
        """Whether the subclass implements ``rerank`` itself, and scores no texts (R5)."""
        kind, base = type(self), BaseReranker
        return kind.score is base.score and kind.ascore is base.ascore

    # ── scoring: what a subclass implements ──────────────────────────────────────────────────────────────────────

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """The relevance of each text to the query, higher is better; never called without texts."""
        if self.orders_only:
            raise ModelError(f"{type(self).__name__} implements rerank only; give it to a search as its reranker")
        return wait_for(self.ascore, query, texts)

    async def ascore(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """The same, awaited; a synchronous ``score`` runs in a worker thread."""
        return await in_thread(self.score, query, texts)

    def score_pairs(self, pairs: Sequence[Pair]) -> Sequence[float]:
        """Scores of texts for several queries: here query by query; override it where they can share batches."""
        scores: dict[Pair, float] = {}
        for query, texts in _by_query(pairs).items():
            answer = checked(self.score(query, texts), len(texts), self.name)
            if answer.missing:
                raise ModelError(told_missing(answer.missing, len(texts)))
            scores.update(zip(((query, text) for text in texts), answer, strict=True))
        return [scores[pair] for pair in pairs]

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def rerank(self, query: str | Query, documents: Sequence[Document], top_n: int | None = 4) -> list[Document]:
        """The most relevant documents, best first; equally relevant ones stay in the order given (R5).

        Args:
            query: what is asked.
            documents: scored by their title and text; left as they are.
            top_n: how many at most; None: all.

        Returns:
            New documents, with the score in ``metadata["score"]``.

        Raises:
            InputError: an argument cannot be used.
            ModelError: the reranker failed, took longer than ``timeout``, or answered what cannot be used.
        """
        if self.orders_only:
            return wait_for(self.arerank, query, documents, top_n)
        lookup = self._lookup_of(query, documents, top_n)
        if lookup is None:
            return []
        return _best(documents, self._warned(self._limited(lambda: self._scored(lookup), 1)), top_n)

    async def arerank(self, query: str | Query, documents: Sequence[Document], top_n: int | None = 4) -> list[Document]:
        """The same, awaited."""
        if self.orders_only:
            return await in_thread(self.rerank, query, documents, top_n)
        lookup = self._lookup_of(query, documents, top_n)
        if lookup is None:
            return []
        return _best(documents, self._warned(await self._alimited(lambda: self._ascored(lookup), 1)), top_n)

    # ── rankings ─────────────────────────────────────────────────────────────────────────────────────────────────

    def depth(self, top_k: int, scale: str) -> int:  # noqa: ARG002  (any ranking can be looked at again)
        """As many as it scores."""
        return max(top_k, self.max_candidates)

    def refine(self, query: Query, ranked: Ranked, top_k: int) -> Ranked:  # noqa: ARG002  (the cut is the workflow's)
        """The first ``max_candidates`` hits by their scores here, the others behind them in the order they had.

        Those others get the lowest of the new scores: scores of a ranking are of one scale and do not rise, and what
        is known of these hits is only that they stood behind. They get no provenance of this stage, as it has not
        looked at them.

        Whatever goes wrong, the ranking is passed on with its scale as it came, and ``degraded`` says why.
        """
        if not ranked.hits:
            return self._passed_on(ranked, "nothing to rerank")
        try:
            scores = self._limited(lambda: self._scored(self._lookup([self._pairs(query, ranked)])), 1)
        except PointsmanError as error:
            return self._failed(ranked, error)
        return self._reordered(ranked, scores)

    async def arefine(self, query: Query, ranked: Ranked, top_k: int) -> Ranked:  # noqa: ARG002  (as above)
        """The same, awaited."""
        if not ranked.hits:
            return self._passed_on(ranked, "nothing to rerank")
        try:
            scores = await self._alimited(lambda: self._ascored(self._lookup([self._pairs(query, ranked)])), 1)
        except PointsmanError as error:
            return self._failed(ranked, error)
        return self._reordered(ranked, scores)

    def refine_many(self, queries: Sequence[Query], rankeds: Sequence[Ranked], top_k: int) -> list[Ranked]:
        """`refine` for several rankings at once.

        A reranker with a ``score_pairs`` of its own scores what is missing of all of them in shared batches, in
        ``timeout`` seconds for each ranking taken together; if that fails, all of them stay as they were. Any other
        takes one after the other, and each fails for itself.

        Raises:
            InputError: there is not one query for each ranking.
        """
        self._check_many(queries, rankeds)
        if not self._shares_batches:
            return [self.refine(query, ranked, top_k) for query, ranked in zip(queries, rankeds, strict=True)]
        lists = [self._pairs(query, ranked) for query, ranked in zip(queries, rankeds, strict=True)]
        try:
            scores = self._limited(lambda: self._scored_lists(lists), len(lists))
        except PointsmanError as error:
            return [self._failed(ranked, error) for ranked in rankeds]
        return [self._reordered(*both) for both in zip(rankeds, scores, strict=True)]

    async def arefine_many(self, queries: Sequence[Query], rankeds: Sequence[Ranked], top_k: int) -> list[Ranked]:
        """The same, awaited."""
        self._check_many(queries, rankeds)
        if self._shares_batches:
            lists = [self._pairs(query, ranked) for query, ranked in zip(queries, rankeds, strict=True)]
            try:
                scores = await self._alimited(lambda: in_thread(self._scored_lists, lists), len(lists))
            except PointsmanError as error:
                return [self._failed(ranked, error) for ranked in rankeds]
            return [self._reordered(*both) for both in zip(rankeds, scores, strict=True)]
        return [await self.arefine(query, ranked, top_k) for query, ranked in zip(queries, rankeds, strict=True)]

    def forget(self) -> None:
        """Forget the scores that are remembered, so that the next ranking costs what a new one costs."""
        self.__dict__.pop("_cache", None)

    # ── inside: which scores are wanted, and getting them ────────────────────────────────────────────────────────

    @cached_property
    def _cache(self) -> ScoreCache:
        return ScoreCache(self.cache_size)

    @property
    def _shares_batches(self) -> bool:
        return self.independent and type(self).score_pairs is not BaseReranker.score_pairs

    @property
    def _budget(self) -> int:
        """How many hits of a ranking are scored."""
        return self.max_candidates

    def _pairs(self, query: Query, ranked: Ranked) -> list[Pair]:
        return [(query.text, hit.document.searchable) for hit in ranked.hits[: self._budget]]

    def _lookup_of(self, query: str | Query, documents: Sequence[Document], top_n: int | None) -> Lookup | None:
        if top_n is not None:
            count_of(top_n, "top_n")
        for document in documents:
            if not isinstance(document, Document):
                raise InputError(f"a reranker takes documents, not {type(document).__name__}: {document!r:.80}")
        text = Query.of(query).text
        return self._lookup([[(text, document.searchable) for document in documents]]) if documents else None

    def _lookup(self, lists: Sequence[Sequence[Pair]]) -> Lookup:
        return Lookup(self.name, self._cache, self.independent, lists)

    def _scored(self, lookup: Lookup) -> Scored:
        if lookup.missing:
            query, texts = lookup.for_one_query()
            lookup.hear(self.score(query, texts))
        return lookup.scored()[0]

    async def _ascored(self, lookup: Lookup) -> Scored:
        if lookup.missing:
            query, texts = lookup.for_one_query()
            lookup.hear(await self.ascore(query, texts))
        return lookup.scored()[0]

    def _scored_lists(self, lists: Sequence[Sequence[Pair]]) -> list[Scored]:
        lookup = self._lookup(lists)
        if lookup.missing:
            lookup.hear(self.score_pairs(lookup.missing))
        return lookup.scored()

    def _limited(self, call: Callable[[], T], shares: int) -> T:
        """Run it in a thread that nobody waits for longer than ``shares`` times the timeout.

        Raises:
            PointsmanError: its own, or a ModelError for anything else.
        """
        limit = None if self.timeout is None else self.timeout * shares
        try:
            return limited(call, limit, f"rerank-{type(self).__name__}", self._late)
        except PointsmanError:
            raise
        except Exception as error:
            raise self._foreign(error) from error

    async def _alimited(self, call: Callable[[], Awaitable[T]], shares: int) -> T:
        limit = None if self.timeout is None else self.timeout * shares
        try:
            with anyio.move_on_after(limit):
                return await call()
        except PointsmanError:
            raise
        except Exception as error:
            raise self._foreign(error) from error
        assert limit is not None, "only a limit ends the block above without a result"
        raise self._late(limit)

    def _late(self, limit: float) -> ModelError:
        return ModelError(
            f"{self.name} did not answer within {limit:g} s; raise the timeout, lower max_candidates, "
            "or use a faster model"
        )

    def _foreign(self, error: Exception) -> ModelError:
        return ModelError(f"{self.name} failed: {type(error).__name__}: {error}")

    # ── inside: what scores make of a ranking ────────────────────────────────────────────────────────────────────

    def _reordered(self, ranked: Ranked, scores: Scored) -> Ranked:
        if not ranked.hits:
            return self._passed_on(ranked, "nothing to rerank")
        head, tail = ranked.hits[: len(scores.scores)], ranked.hits[len(scores.scores) :]
        order = _descending(scores.scores)
        hits = [seen(head[place], rank, scores.scores[place]) for rank, place in enumerate(order, 1)]
        lowest = min(scores.scores)
        hits += [replace(hit, score=lowest) for hit in tail]
        detail = f"{self.name} ordered {len(head)} hits, {scores.fresh} of them newly scored"
        if tail:
            detail += f"; {len(tail)} beyond its budget of {self._budget} follow unscored"
        degraded: tuple[str, ...] = ()
        if scores.problem:
            degraded = (f"rerank by {self.name} is incomplete: {scores.problem}",)
            _log.warning("%s", degraded[0])
        return Ranked(tuple(hits), f"rerank:{self.name}", detail, degraded=degraded, refused=ranked.refused)

    def _passed_on(self, ranked: Ranked, detail: str, degraded: tuple[str, ...] = ()) -> Ranked:
        return Ranked(ranked.hits, ranked.scale, detail, degraded=degraded, refused=ranked.refused)

    def _failed(self, ranked: Ranked, error: Exception) -> Ranked:
        cause = str(error).removeprefix(f"{self.name} failed: ")
        if len(cause) > _LONGEST_CAUSE:
            cause = f"{cause[:_LONGEST_CAUSE]}…"
        message = f"rerank by {self.name} failed, the previous order is kept: {cause}"
        _log.warning("%s", message)
        return self._passed_on(ranked, "the previous order is kept", (message,))

    def _warned(self, scores: Scored) -> Sequence[float]:
        """Scores for who has no trace to read: what is incomplete about them is logged."""
        if scores.problem:
            _log.warning("rerank by %s is incomplete: %s", self.name, scores.problem)
        return scores.scores

    def _check_many(self, queries: Sequence[Query], rankeds: Sequence[Ranked]) -> None:
        if len(queries) != len(rankeds):
            raise InputError(f"{len(queries)} queries for {len(rankeds)} rankings; give one for each")


def _by_query(pairs: Sequence[Pair]) -> dict[str, list[str]]:
    groups: dict[str, dict[str, None]] = {}
    for query, text in pairs:
        groups.setdefault(query, {})[text] = None
    return {query: list(texts) for query, texts in groups.items()}


def _descending(scores: Sequence[float]) -> list[int]:
    """Places by score; equal ones in the order they came in."""
    return sorted(range(len(scores)), key=lambda place: -scores[place])


def _best(documents: Sequence[Document], scores: Sequence[float], top_n: int | None) -> list[Document]:
    return [
        replace(documents[place], metadata={**documents[place].metadata, "score": scores[place]})
        for place in _descending(scores)[:top_n]
    ]


def seen(hit: Hit, rank: int, score: float) -> Hit:
    """The hit with what this stage makes of it."""
    return replace(hit, score=score, provenance=(*hit.provenance, Provenance("rerank", rank, score)))


def count_of(value: int, name: str) -> int:
    """The number itself.

    Raises:
        InputError: it is not an int from 1 up.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is an int from 1 up, not {value!r}")
    return value
