"""Adapter for foreign rerankers: anything with ``rerank(query, documents, top_n)``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.retrieval.refine.rerank.base_reranker import MAX_CANDIDATES, TIMEOUT, BaseReranker, seen
from pointsman.retrieval.refine.rerank.chosen_reranker import load_reranker
from pointsman.retrieval.refine.rerank.library_rerankers import LibraryReranker, is_of_library
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.sync_and_async import settled
from pointsman.values.argument_checks import is_number
from pointsman.values.types import Document, Hit, Query, Ranked


class ForeignReranker(BaseRefiner):
    """Adapts anything with ``rerank(query, documents, top_n)``, and optionally ``is_available()``, to a search stage.

    ``rerank`` receives the query's text and the hits' documents and returns documents, best first, which are recognised
    by id and text; ``metadata["score"]`` is their score if present, and stays there; otherwise only their order
    counts. Omitted documents follow in their previous order. The workflow catches and reports what it raises.

    Args:
        reranker: such an object; or a `BaseRefiner` with ``is_available``.
        max_candidates: how many documents it receives.
        timeout: seconds.
    """

    stage = "rerank"

    def __init__(self, reranker: Any, *, max_candidates: int = MAX_CANDIDATES, timeout: float | None = TIMEOUT) -> None:
        self.reranker, self.max_candidates, self.timeout = reranker, max_candidates, timeout
        if isinstance(reranker, BaseRefiner):
            self.timeout = reranker.timeout

    @property
    def name(self) -> str:
        """The reranker's own name, or its class name."""
        own_name = getattr(self.reranker, "name", None)
        return own_name if isinstance(own_name, str) and own_name else type(self.reranker).__name__

    def depth(self, top_k: int, scale: str) -> int:
        """The number of documents that the reranker receives."""
        if isinstance(self.reranker, BaseRefiner):
            return self.reranker.depth(top_k, scale)
        return max(top_k, self.max_candidates)

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        """Return the ranking in the reranker's order.

        Raises:
            ModelError: it returned something other than the documents it was given.
        """
        if not ranking.hits:
            return replace(ranking, detail="nothing to rerank", dropped={}, degraded=())
        available = getattr(self.reranker, "is_available", None)
        if callable(available) and not settled(available()):
            message = f"rerank: {self.name} is not available; the previous order is kept"
            return replace(ranking, detail="the previous order is kept", dropped={}, degraded=(message,))
        if isinstance(self.reranker, BaseRefiner):
            return self.reranker.refine(query, ranking, top_k)
        head, tail = ranking.hits[: self.max_candidates], ranking.hits[self.max_candidates :]
        answer = settled(self.reranker.rerank(query.text, [hit.document for hit in head], len(head)))
        order = self._order(head, answer)
        hits = [seen(_with_score(hit, given), rank, score) for rank, (hit, score, given) in enumerate(order, 1)]
        ranked_ids = {id(hit) for hit, *_ in order}
        lowest = hits[-1].score
        hits += [replace(hit, score=lowest) for hit in (*head, *tail) if id(hit) not in ranked_ids]
        detail = f"{self.name} ordered {len(order)} of {len(ranking.hits)} hits"
        return Ranked(tuple(hits), f"rerank:{self.name}", detail, refused=ranking.refused)

    def _order(self, head: Sequence[Hit], answer: Any) -> list[tuple[Hit, float, Any]]:
        """The hits in the order of the answer, with scores that never rise, and what stood in their metadata."""
        if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
            raise ModelError(f"{self.name} returned {type(answer).__name__}, not documents")
        waiting: dict[tuple[str, str], list[Hit]] = {}
        for hit in head:
            waiting.setdefault((hit.document.id, hit.document.text), []).append(hit)
        pairs: list[tuple[Hit, Any]] = []
        for document in answer:
            if not isinstance(document, Document):
                raise ModelError(f"{self.name} returned {type(document).__name__} among its documents")
            duplicates = waiting.get((document.id, document.text))
            if not duplicates:
                raise ModelError(f"{self.name} returned document {document.id!r:.80}, which is unknown or a duplicate")
            pairs.append((duplicates.pop(0), document.metadata.get("score")))
        if not pairs:
            raise ModelError(f"{self.name} returned no documents")
        scores = [float(score) if is_number(score) else math.nan for _, score in pairs]
        if any(math.isnan(score) for score in scores) or scores != sorted(scores, reverse=True):
            scores = [1 / rank for rank in range(1, len(pairs) + 1)]  # only the order is usable
        return [(hit, score, given) for (hit, given), score in zip(pairs, scores, strict=True)]


def as_refiner(reranker: Any) -> BaseRefiner:
    """Return a reranker as a search stage, opened by its name or adapted if necessary.

    Args:
        reranker: a text that `load_reranker` takes, a `BaseRefiner`, an object that `LibraryReranker` takes, or
            anything with ``rerank(query, documents, top_n)``.

    Raises:
        InputError: it is not a reranker; see `load_reranker` for the errors of names.
    """
    if isinstance(reranker, str):
        return load_reranker(reranker)
    if isinstance(reranker, BaseReranker) and reranker.orders_only:
        return ForeignReranker(_Ordering(reranker), max_candidates=reranker.max_candidates, timeout=reranker.timeout)
    if isinstance(reranker, BaseRefiner):
        return ForeignReranker(reranker) if callable(getattr(reranker, "is_available", None)) else reranker
    if is_of_library(reranker):
        return LibraryReranker(reranker)
    if not callable(getattr(reranker, "rerank", None)):
        raise InputError(
            f"a reranker has rerank(query, documents, top_n), or is one that LibraryReranker takes, {reranker!r:.80} "
            "does and is not; see BaseReranker"
        )
    return ForeignReranker(reranker)


def _with_score(hit: Hit, score: Any) -> Hit:
    if score is None:
        return hit
    return replace(hit, document=replace(hit.document, metadata={**hit.document.metadata, "score": score}))


class _Ordering:
    """A reranker that implements only ``rerank``, without the behaviour of its base class."""

    def __init__(self, reranker: BaseReranker) -> None:
        self.rerank, self.name = reranker.rerank, reranker.name
