"""The base class of rerankers: subclasses score texts, and everything else is derived from the scores."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import anyio

from pointsman.retrieval.refine.base_refiner import BaseRefiner, refining
from pointsman.retrieval.refine.rerank.rerank_scores import (
    Pair,
    PairScores,
    ScoreCache,
    ScoreLookup,
    checked,
    told_missing,
)
from pointsman.tools.byte_cache import ByteCache
from pointsman.tools.errors import InputError, ModelError, PointsmanError
from pointsman.tools.parallel_calls import DualCall, Mode, sync_and_async
from pointsman.tools.sync_and_async import in_thread, limited, wait_for
from pointsman.values.argument_checks import check_count, check_seconds
from pointsman.values.types import Document, Hit, Provenance, Query, Ranked

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CANDIDATES = 50
TIMEOUT = 10.0
CACHE_SIZE = 10_000

_LONGEST_CAUSE = 300
"""The maximum length of an error message in a ranking, in characters; servers send whole pages."""


class BaseReranker(BaseRefiner, needs=("score", "ascore", "rerank", "arerank")):
    """Puts documents in the order of their relevance to a query. Implement ``score`` or ``ascore``.

    A reranker that orders documents without scoring single texts implements only ``rerank`` or ``arerank``.

    ``rerank`` takes documents and raises errors. ``refine``, the stage of a search, never raises: if the reranker
    fails, hangs or returns invalid scores, the order stays unchanged, and the answer says so.

    Attributes:
        max_candidates: the number of hits of a ranking that are scored.
        timeout: seconds for one ``rerank`` or ``refine``; None: no limit.
        cache_size: the number of scores to cache; 0 caches nothing.
        independent: whether a text's score does not depend on the other texts it is scored with. If it does, only the
            scores of whole lists are cached.
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
        """Set the limits; a subclass without settings need not call this.

        Args:
            max_candidates: see the class.
            timeout: see the class.
            cache: the number of scores to cache; True: some 10,000, False or 0: none.

        Raises:
            InputError: a number is out of range.
        """
        check_seconds(timeout, "timeout")
        if not isinstance(cache, int) or cache < 0:
            raise InputError(f"cache is True, False or how many scores to remember, not {cache!r}")
        self.max_candidates = check_count(max_candidates, "max_candidates")
        self.timeout = timeout
        self.cache_size = (CACHE_SIZE if cache else 0) if isinstance(cache, bool) else cache

    @property
    def name(self) -> str:
        """Identifies model *and* settings; cached scores are stored under it. By default the name of the class."""
        return type(self).__name__

    @property
    def orders_only(self) -> bool:
        """Whether the subclass implements ``rerank`` itself instead of scoring texts."""
        kind, base = type(self), BaseReranker
        return kind.score is base.score and kind.ascore is base.ascore

    # ── scoring: what a subclass implements ──────────────────────────────────────────────────────────────────────

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return the relevance of each text to the query, higher is better; never called without texts."""
        if self.orders_only:
            raise ModelError(f"{type(self).__name__} implements rerank only; give it to a search as its reranker")
        return wait_for(self.ascore, query, texts)

    async def ascore(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Async version of `score`; a synchronous ``score`` runs in a worker thread."""
        return await in_thread(self.score, query, texts)

    def score_pairs(self, pairs: Sequence[Pair]) -> Sequence[float]:
        """Return scores for texts of several queries, query by query; override it if queries can share batches."""
        scores: dict[Pair, float] = {}
        for query, texts in _by_query(pairs).items():
            answer = checked(self.score(query, texts), len(texts), self.name)
            if answer.missing:
                raise ModelError(told_missing(answer.missing, len(texts)))
            scores.update(zip(((query, text) for text in texts), answer, strict=True))
        return [scores[pair] for pair in pairs]

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _rerank(  # noqa: D417  (the public versions have no mode)
        self, mode: Mode, query: str | Query, documents: Sequence[Document], top_n: int | None = 4
    ) -> list[Document]:
        """Return the most relevant documents, best first; ties stay in the order given.

        Args:
            query: the question.
            documents: scored by their title and text; not modified.
            top_n: the maximum number of documents; None: all.

        Returns:
            New documents, with the score in ``metadata["score"]``.

        Raises:
            InputError: an argument is invalid.
            ModelError: the reranker failed, took longer than ``timeout``, or returned an invalid answer.
        """
        if self.orders_only:
            own_call = DualCall(
                lambda: wait_for(self.arerank, query, documents, top_n),
                lambda: in_thread(self.rerank, query, documents, top_n),
            )
            return await mode.one(own_call)
        if top_n is not None:
            check_count(top_n, "top_n")
        for document in documents:
            if not isinstance(document, Document):
                raise InputError(f"a reranker takes documents, not {type(document).__name__}: {document!r:.80}")
        text = Query.of(query).text
        if not documents:
            return []
        [scores] = await self._scores_of_lists(mode, [[(text, document.searchable) for document in documents]])
        if scores.problem:  # there is no trace
            _log.warning("rerank by %s is incomplete: %s", self.name, scores.problem)
        return _best(documents, scores.scores, top_n)

    rerank, arerank = sync_and_async(_rerank)

    # ── rankings ─────────────────────────────────────────────────────────────────────────────────────────────────

    def depth(self, top_k: int, scale: str) -> int:  # noqa: ARG002  (any ranking can be looked at again)
        """The number of hits that it scores."""
        return max(top_k, self.max_candidates)

    async def _refine(self, mode: Mode, query: Query, ranking: Ranked, top_k: int) -> Ranked:  # noqa: ARG002  (the cut is the workflow's)
        """Reranks the first ``max_candidates`` hits; the others follow in their previous order.

        The others get the lowest of the new scores, because the scores of a ranking have one scale and never increase,
        and all that is known about these hits is that they ranked lower. They get no provenance of this stage, which
        has not scored them.

        If anything fails, the ranking is passed on unchanged, with its scale, and ``degraded`` says why.
        """
        if not ranking.hits:
            return self._passed_on(ranking, "nothing to rerank")
        try:
            [scores] = await self._scores_of_lists(mode, [self._pairs(query, ranking)])
        except PointsmanError as error:
            return self._failed_ranking(ranking, error)
        return self._reorder(ranking, scores)

    refine, arefine = sync_and_async(_refine)

    async def _refine_many(
        self, mode: Mode, queries: Sequence[Query], rankeds: Sequence[Ranked], top_k: int
    ) -> list[Ranked]:
        """Refines several rankings at once.

        A reranker that overrides ``score_pairs`` scores the missing texts of all rankings in shared batches, with a
        total limit of ``timeout`` seconds times the number of rankings; if that fails, all rankings stay unchanged.
        Other rerankers refine one ranking after the other, and each can fail separately.

        Raises:
            InputError: the numbers of queries and rankings differ.
        """
        if len(queries) != len(rankeds):
            raise InputError(f"{len(queries)} queries for {len(rankeds)} rankings; give one for each")
        pairs = list(zip(queries, rankeds, strict=True))
        if not self._shares_batches:
            return [await mode.one(refining(self, *pair, top_k)) for pair in pairs]
        try:
            scores = await self._scores_of_lists(mode, [self._pairs(*pair) for pair in pairs], shares_batches=True)
        except PointsmanError as error:
            return [self._failed_ranking(ranking, error) for ranking in rankeds]
        return [self._reorder(*pair) for pair in zip(rankeds, scores, strict=True)]

    refine_many, arefine_many = sync_and_async(_refine_many)

    def forget(self) -> None:
        """Clear the cached scores, so that the next ranking is scored anew."""
        self.__dict__.pop("_cache", None)

    # ── inside: which scores are needed, and getting them ────────────────────────────────────────────────────────

    @cached_property
    def _cache(self) -> ScoreCache:
        return ByteCache(lambda row: 32 * len(row), self.cache_size)

    @property
    def _shares_batches(self) -> bool:
        return self.independent and type(self).score_pairs is not BaseReranker.score_pairs

    @property
    def _budget(self) -> int:
        """The number of hits of a ranking to score."""
        return self.max_candidates

    def _pairs(self, query: Query, ranking: Ranked) -> list[Pair]:
        return [(query.text, hit.document.searchable) for hit in ranking.hits[: self._budget]]

    async def _scores_of_lists(
        self, mode: Mode, lists: Sequence[Sequence[Pair]], *, shares_batches: bool = False
    ) -> list[PairScores]:
        """Score lists of texts, in a thread if it blocks; each list has the timeout.

        Raises:
            PointsmanError: that of the reranker; a ModelError for any other exception.
        """
        limit = None if self.timeout is None else self.timeout * len(lists)

        def look_up() -> ScoreLookup:
            return ScoreLookup(self.name, self._cache, self.independent, lists)

        def score() -> list[PairScores]:
            lookup = look_up()
            if lookup.missing:
                pairs = lookup.missing
                lookup.hear(self.score_pairs(pairs) if shares_batches else self.score(*lookup.for_one_query()))
            return lookup.scored()

        async def ascore() -> list[PairScores]:
            with anyio.move_on_after(limit):
                if shares_batches:
                    return await in_thread(score)
                lookup = look_up()
                if lookup.missing:
                    lookup.hear(await self.ascore(*lookup.for_one_query()))
                return lookup.scored()
            assert limit is not None, "only a limit ends the block above without a result"
            raise self._late(limit)

        name = f"rerank-{type(self).__name__}"
        try:
            return await mode.one(DualCall(lambda: limited(score, limit, name, self._late), ascore))
        except PointsmanError:
            raise
        except Exception as error:
            raise self._foreign(error) from error

    def _late(self, limit: float) -> ModelError:
        return ModelError(
            f"{self.name} did not answer within {limit:g} s; raise the timeout, lower max_candidates, "
            "or use a faster model"
        )

    def _foreign(self, error: Exception) -> ModelError:
        return ModelError(f"{self.name} failed: {type(error).__name__}: {error}")

    # ── inside: from scores to a ranking ─────────────────────────────────────────────────────────────────────────

    def _reorder(self, ranking: Ranked, scores: PairScores) -> Ranked:
        if not ranking.hits:
            return self._passed_on(ranking, "nothing to rerank")
        head, tail = ranking.hits[: len(scores.scores)], ranking.hits[len(scores.scores) :]
        order = _descending(scores.scores)
        hits = [seen(head[index], rank, scores.scores[index]) for rank, index in enumerate(order, 1)]
        lowest = min(scores.scores)
        hits += [replace(hit, score=lowest) for hit in tail]
        detail = f"{self.name} ordered {len(head)} hits, {scores.fresh} of them newly scored"
        if tail:
            detail += f"; {len(tail)} beyond its budget of {self._budget} follow unscored"
        degraded: tuple[str, ...] = ()
        if scores.problem:
            degraded = (f"rerank by {self.name} is incomplete: {scores.problem}",)
            _log.warning("%s", degraded[0])
        return Ranked(tuple(hits), f"rerank:{self.name}", detail, degraded=degraded, refused=ranking.refused)

    def _passed_on(self, ranking: Ranked, detail: str, degraded: tuple[str, ...] = ()) -> Ranked:
        return Ranked(ranking.hits, ranking.scale, detail, degraded=degraded, refused=ranking.refused)

    def _failed_ranking(self, ranking: Ranked, error: Exception) -> Ranked:
        cause = str(error).removeprefix(f"{self.name} failed: ")
        if len(cause) > _LONGEST_CAUSE:
            cause = f"{cause[:_LONGEST_CAUSE]}…"
        message = f"rerank by {self.name} failed, the previous order is kept: {cause}"
        _log.warning("%s", message)
        return self._passed_on(ranking, "the previous order is kept", (message,))


def _by_query(pairs: Sequence[Pair]) -> dict[str, list[str]]:
    groups: dict[str, dict[str, None]] = {}
    for query, text in pairs:
        groups.setdefault(query, {})[text] = None
    return {query: list(texts) for query, texts in groups.items()}


def _descending(scores: Sequence[float]) -> list[int]:
    """Return positions by descending score; ties keep their order."""
    return sorted(range(len(scores)), key=lambda index: -scores[index])


def _best(documents: Sequence[Document], scores: Sequence[float], top_n: int | None) -> list[Document]:
    return [
        replace(documents[index], metadata={**documents[index].metadata, "score": scores[index]})
        for index in _descending(scores)[:top_n]
    ]


def seen(hit: Hit, rank: int, score: float) -> Hit:
    """Return the hit with its new score and the provenance of this stage."""
    return replace(hit, score=score, provenance=(*hit.provenance, Provenance("rerank", rank, score)))
