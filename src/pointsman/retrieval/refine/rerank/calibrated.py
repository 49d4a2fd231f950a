"""A reranker without a model: adds both raw scores of every hit on one scale."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pointsman.embedders.named_embedders import as_embedder
from pointsman.retrieval.fusion import KAPPA, CosineSpread, calibrated_sum
from pointsman.retrieval.refine.rerank.base_reranker import (
    CACHE_SIZE,
    MAX_CANDIDATES,
    TIMEOUT,
    BaseReranker,
    seen,
)
from pointsman.tools.errors import InputError, PointsmanError
from pointsman.tools.parallel_calls import Mode, sync_and_async
from pointsman.values.argument_checks import check_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pointsman.selector.choices.choice_bm25 import ChoiceIndex
    from pointsman.selector.choices.choice_vectors import TextVectors
    from pointsman.values.protocols import Embedder
    from pointsman.values.types import Hit, Query, Ranked

MAX_TEXTS: Final = 20
"""Texts embedded per ranking, at some 30 a second."""

SCALE: Final = "calibrated"
_SETTLED_SCALES: Final = frozenset({SCALE, f"{SCALE} with variants", "bm25", "cosine"})
"""Scales of rankings that are left alone: the sum itself, also with variants, and single lists."""


class CalibratedReranker(BaseReranker):
    """Orders hits by ``bm25 + (kappa / sigma) · (cosine - mean)``, without a model call if both scores are known.

    - **Both raw scores in every hit's provenance** (``"bm25"`` and ``"vector"``): their calibrated sum. The strategy
      ``hybrid`` already uses it, so nothing changes there; any other fusion of the two (RRF, z-score …) is brought up
      to it. The scale is then ``"calibrated"``, as thresholds require, unless ``kappa`` differs from the default.
    - **One of the two** (a strategy of one list): there is nothing to weigh it against, and the order stays.
    - **None** (hits of a foreign retriever): with an embedder the hits' own texts are scored, BM25 with the statistics
      of the candidates alone, and the cosine; without one the order stays.

    ``detail`` of the answer says which case applied. ``score`` and ``rerank`` always score the texts themselves;
    without an embedder, by their words alone.
    """

    independent = False  # how rare a word is depends on the other texts

    def __init__(
        self,
        embedder: Embedder | str | None = None,
        sigma: float | None = None,
        mean: float = 0.0,
        kappa: float = KAPPA,
        *,
        spread: CosineSpread | Callable[[], CosineSpread] | None = None,
        max_candidates: int = MAX_CANDIDATES,
        max_texts: int = MAX_TEXTS,
        timeout: float | None = TIMEOUT,
        cache: bool | int = True,
    ) -> None:
        """Set the scale.

        Args:
            embedder: scores texts whose hits carry no scores; None: such hits keep their order.
            sigma: standard deviation of the cosine between a query and random documents; None: taken from ``spread`` or
                the embedder's ``cosine_spread``.
            mean: that cosine's mean; it changes no order, but makes scores readable.
            kappa: how many units of BM25 one sigma is worth.
            spread: sigma and mean together, or a function that returns them when needed.
            max_candidates: how many hits it requests; those with raw scores cost nothing, so all of them are ordered.
            max_texts: how many texts it embeds per ranking.
            timeout: seconds for one ``rerank`` or ``refine``.
            cache: how many scores and vectors to remember.

        Raises:
            InputError: a number is out of range, sigma and spread are both given, or there is an embedder but no spread
                of its cosines.
        """
        super().__init__(max_candidates=max_candidates, timeout=timeout, cache=cache)
        embedder = None if embedder is None else as_embedder(embedder)
        if sigma is not None and spread is not None:
            raise InputError("give sigma and mean, or spread, not both")
        sigma = sigma if sigma is not None or spread is not None else getattr(embedder, "cosine_spread", None)
        for name, value in (("sigma", sigma), ("kappa", kappa)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is a finite number above 0, not {value!r}")
        if not math.isfinite(mean):
            raise InputError(f"mean is a finite number, not {mean!r}")
        if embedder is not None and sigma is None and spread is None:
            raise InputError(
                f"{type(embedder).__name__} does not tell the spread of its cosines; give sigma, or spread, such as "
                "CosineSpread.measured(queries, documents)"
            )
        self.kappa, self.max_texts = kappa, check_count(max_texts, "max_texts")
        self._embedder = embedder
        self.in_place = embedder is None
        self._spread = spread if spread is not None or sigma is None else CosineSpread(mean, sigma)
        self._vectors: TextVectors | None = None
        if embedder is not None:
            from pointsman.selector.choices.choice_vectors import TextVectors

            self._vectors = TextVectors(embedder, self.cache_size or CACHE_SIZE)

    @property
    def name(self) -> str:
        """``calibrated``, with kappa if it is not the default, and the embedder if there is one."""
        kappa = "" if self.kappa == KAPPA else f"|kappa={self.kappa:g}"
        return f"{SCALE}{kappa}" + ("" if self._embedder is None else f"|{self._embedder.name}")

    def depth(self, top_k: int, scale: str) -> int:
        """The number of hits of the answer if the order will stay; otherwise the number of hits that it can order."""
        return top_k if scale in _SETTLED_SCALES else max(top_k, self.max_candidates)

    # ── rankings whose hits carry their scores ───────────────────────────────────────────────────────────────────

    async def _refine(self, mode: Mode, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        """The calibrated sum if both scores are there; otherwise see the class. Never raises: see `BaseReranker`."""
        try:
            result = self._settled_ranking(ranking)
        except PointsmanError as error:
            return self._failed_ranking(ranking, error)
        return result or await super()._refine(mode, query, ranking, top_k)

    refine, arefine = sync_and_async(_refine)

    def _settled_ranking(self, ranking: Ranked) -> Ranked | None:
        """The answer if no text needs to be read; otherwise None."""
        if not ranking.hits:
            return None
        if ranking.scale == SCALE:
            return self._passed_on(ranking, "the scores are the calibrated sum already; there is nothing to add")
        bm25, cosine = ([_only_score(hit, source) for hit in ranking.hits] for source in ("bm25", "vector"))
        words, cosines = ([score for score in scores if score is not None] for scores in (bm25, cosine))
        if len(words) == len(bm25) and cosines:
            # A hit without a cosine has no vector and gets the lowest cosine; every hit has a BM25 score, possibly 0.
            known_cosines = [math.nan if score is None else score for score in cosine]
            return self._calibrated_ranking(ranking, words, known_cosines)
        if len(words) + len(cosines) == len(bm25) and not (words and cosines):
            present, absent = ("bm25", "vector") if words else ("vector", "bm25")
            return self._passed_on(ranking, f"hits have scores of {present!r} but not of {absent!r}; the order is kept")
        if self._embedder is None:
            return self._passed_on(
                ranking, "hits do not all have raw scores, and there is no embedder to score texts; the order is kept"
            )
        return None

    def _calibrated_ranking(self, ranking: Ranked, bm25: Sequence[float], cosine: Sequence[float]) -> Ranked:
        spread = self._known_spread()
        if spread is None:
            raise InputError("the spread of the cosines is unknown; give sigma or spread")
        excess = [score - spread.mean for score in cosine]
        order = calibrated_sum(range(len(bm25)), bm25, excess, sigma=spread.sigma, kappa=self.kappa)
        hits = tuple(seen(ranking.hits[index], rank, score) for rank, (index, score) in enumerate(order, 1))
        scale = SCALE if self.kappa == KAPPA else f"rerank:{self.name}"
        detail = f"the calibrated sum of the two raw scores of {len(hits)} hits"
        return replace(self._passed_on(ranking, detail), hits=hits, scale=scale)

    def _known_spread(self) -> CosineSpread | None:
        if self._spread is None or isinstance(self._spread, CosineSpread):
            return self._spread
        try:
            spread = self._spread()
        except PointsmanError:
            raise
        except Exception as error:
            raise self._foreign(error) from error
        if not isinstance(spread, CosineSpread):
            raise InputError(f"spread is a CosineSpread or a function that returns one, not {type(spread).__name__}")
        return spread

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _budget(self) -> int:
        return self.max_texts

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """BM25 with the statistics of these texts, and the cosine if there is an embedder, on one scale.

        Raises:
            ModelError: the embedder failed, or its answer is invalid.
        """
        from pointsman.text import DEFAULT_ANALYZER

        words: list[float] = _index_of(texts).scores(DEFAULT_ANALYZER.query_tokens(query)).tolist()
        spread = self._known_spread()
        if self._vectors is None or spread is None:
            return words
        cosines = self._vectors.of(texts, "document") @ self._vectors.of([query], "query")[0]
        excess: list[float] = (cosines - spread.mean).tolist()
        sums = dict(calibrated_sum(range(len(words)), words, excess, sigma=spread.sigma, kappa=self.kappa))
        return [sums[number] for number in range(len(words))]


def _only_score(hit: Hit, source: str) -> float | None:
    """A source's score if the hit has exactly one; several belong to several queries and cannot be compared."""
    scores = [contribution.score for contribution in hit.provenance if contribution.source == source]
    return scores[0] if len(scores) == 1 else None


def _index_of(texts: Sequence[str]) -> ChoiceIndex:
    """The small index that selectors use: exact, in Lucene's form, takes microseconds for a few texts."""
    from pointsman.selector.choices.choice_bm25 import ChoiceIndex
    from pointsman.text import DEFAULT_ANALYZER

    return ChoiceIndex([Counter(DEFAULT_ANALYZER.tokens(text)) for text in texts])
