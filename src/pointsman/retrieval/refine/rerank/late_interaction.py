"""Late interaction: each token of a query is compared with every token of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pointsman.retrieval.refine.rerank.base_reranker import MAX_CANDIDATES, TIMEOUT, BaseReranker
from pointsman.tools.errors import InputError, ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@runtime_checkable
class TokenEmbedder(Protocol):
    """Embeds texts token by token, queries and documents differently, as ColBERT does."""

    @property
    def name(self) -> str:
        """Identifies model *and* settings."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> Sequence[NDArray[Any]]:
        """Return a matrix for each text, shape ``(tokens, dimensions)``; the tokens differ in number."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> Sequence[NDArray[Any]]:
        """Return a matrix for each text, shape ``(tokens, dimensions)``."""
        ...


class LateInteractionReranker(BaseReranker):
    """Orders hits by late interaction (MaxSim): the sum over the query's tokens of the best cosine with a text's token.

    Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over
    BERT", SIGIR 2020, https://arxiv.org/abs/2004.12832. The texts of the candidates are embedded at the first search
    that finds them; their scores are cached, not their tokens.

    Args:
        embedder: embeds texts token by token.
        max_candidates: see `BaseReranker`.
        timeout: see `BaseReranker`.
        cache: see `BaseReranker`.

    Raises:
        InputError: it does not embed tokens, or a number is out of range.
    """

    def __init__(
        self,
        embedder: TokenEmbedder,
        *,
        max_candidates: int = MAX_CANDIDATES,
        timeout: float | None = TIMEOUT,
        cache: bool | int = True,
    ) -> None:
        if not isinstance(embedder, TokenEmbedder):
            raise InputError(
                "an embedder of tokens has name, embed_queries and embed_documents, each of which gives a matrix for "
                f"a text; {embedder!r:.80} has not"
            )
        super().__init__(max_candidates=max_candidates, timeout=timeout, cache=cache)
        self.embedder = embedder

    @property
    def name(self) -> str:
        """``late-interaction`` with the embedder's name."""
        return f"late-interaction|{self.embedder.name}"

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return `max_sim` of the query and each text.

        Raises:
            ModelError: the embedder did not give a matrix of finite numbers for each text, all of one width.
        """
        (query_tokens,) = self._tokens(self.embedder.embed_queries([query]), 1)
        return [
            max_sim(query_tokens, tokens)
            for tokens in self._tokens(self.embedder.embed_documents(texts), len(texts), query_tokens.shape[1])
        ]

    def unit_scores(self, query: str, texts: Sequence[str], scores: Sequence[float]) -> list[float]:  # noqa: ARG002
        """Return the mean cosine of the query's tokens, from 0 up."""
        (query_tokens,) = self._tokens(self.embedder.embed_queries([query]), 1)
        return [min(max(score / max(len(query_tokens), 1), 0.0), 1.0) for score in scores]

    def _tokens(self, matrices: Sequence[Any], count: int, width: int | None = None) -> list[NDArray[Any]]:
        """Return tokens' vectors of length 1, a matrix for each text.

        Raises:
            ModelError: there is no such matrix for each text.
        """
        import numpy as np

        if len(matrices) != count:
            raise ModelError(f"{self.embedder.name} gave {len(matrices)} matrices for {count} texts")
        unit_matrices = []
        for matrix in matrices:
            try:
                rows = np.asarray(matrix, np.float32)
            except (TypeError, ValueError) as error:
                raise ModelError(f"{self.embedder.name} gave no matrix of numbers: {error}") from error
            if rows.ndim != 2 or width not in (None, rows.shape[1]) or not np.isfinite(rows).all():
                raise ModelError(
                    f"{self.embedder.name} gave tokens of shape {rows.shape}; expected finite numbers, "
                    f"shape (tokens, {width or 'dimensions'})"
                )
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            unit_matrices.append(rows / np.where(lengths > 0, lengths, 1))
        return unit_matrices


def max_sim(query_tokens: NDArray[Any], text_tokens: NDArray[Any]) -> float:
    """Return the sum over the query's tokens of their greatest dot product with a token of the text.

    Args:
        query_tokens: shape ``(tokens, dimensions)``.
        text_tokens: shape ``(tokens, dimensions)``; without tokens the sum is 0.

    >>> import numpy as np
    >>> max_sim(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.6, 0.8]]))
    1.8
    """
    if not len(query_tokens) or not len(text_tokens):
        return 0.0
    return float((query_tokens @ text_tokens.T).max(axis=1).sum())
