"""Late interaction: each token of a question is compared with every token of a text."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from pointsman.embedders.named_embedders import as_embedder
from pointsman.retrieval.refine.rerank.base_reranker import TIMEOUT, BaseReranker
from pointsman.tools.errors import InputError
from pointsman.values.protocols import TokenEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.refine.rerank.rerank_scores import PairScores
    from pointsman.values.protocols import Embedder
    from pointsman.values.types import Ranked

_CANDIDATES: Final = 10
_NEARNESS: Final = 40.0
"""What a cosine of 1 is worth, in logarithms of ranks; chosen on the four folders of `benchmarks/folders.py`."""


class LateInteractionReranker(BaseReranker):
    """Orders the first ten hits by their rank and by how near a text comes to each token of the question (MaxSim).

    A text's score is the mean, over the question's tokens, of the best cosine with any token of the text; rare tokens
    weigh more. Hits are ordered by ``40 · score - ln(rank)``. The vectors are those of the embedder's last layer, which
    the pass that makes a text's vector makes as well: no further model is needed. The texts are embedded when the
    question is asked, which takes about as long as embedding them takes; their scores are cached.

    Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over
    BERT", SIGIR 2020, https://arxiv.org/abs/2004.12832. Their model was trained for it; the default embedder was not.
    """

    def __init__(
        self,
        embedder: Embedder | str = "default",
        *,
        max_candidates: int = _CANDIDATES,
        timeout: float | None = TIMEOUT,
        cache: bool | int = True,
    ) -> None:
        """Set the embedder.

        Args:
            embedder: gives vectors of tokens, as `TokenEmbedder` says: the default one, or your own.
            max_candidates: the number of hits of a ranking that are ordered.
            timeout: see `BaseReranker`.
            cache: see `BaseReranker`.

        Raises:
            InputError: it gives no vectors of tokens, or a number is out of range.
        """
        super().__init__(max_candidates=max_candidates, timeout=timeout, cache=cache)
        self._embedder = as_embedder(embedder)
        if not isinstance(self._embedder, TokenEmbedder):
            raise InputError(
                f"{self._embedder.name!r} gives no vectors of tokens, which late interaction compares; use the default "
                "embedder, or one with embed_tokens"
            )

    @property
    def name(self) -> str:
        """``late``, with the embedder's name."""
        return f"late|{self._embedder.name}"

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the weighted MaxSim of the question and each text, from -1 to 1; 0 if one of them is empty.

        Raises:
            ModelError: the embedder failed.
        """
        embedder = cast("TokenEmbedder", self._embedder)
        (question,) = embedder.embed_tokens([query], as_query=True)
        weights = question.surprise / max(float(question.surprise.sum()), 1e-9)
        return [
            float((question.rows @ text.rows.T).max(axis=1, initial=-1.0) @ weights) if len(text.rows) else 0.0
            for text in embedder.embed_tokens(texts)
        ]

    def _reorder(self, ranking: Ranked, scores: PairScores) -> Ranked:
        """Order a ranking by these scores and by what ranked it."""
        sums = [_NEARNESS * score - math.log(rank) for rank, score in enumerate(scores.scores, 1)]
        return super()._reorder(ranking, replace(scores, scores=sums))
