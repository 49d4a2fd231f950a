"""Rerankers of other libraries, taken as they are: each has its own form of call, and all score each text."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.refine.rerank.base_reranker import TIMEOUT, BaseReranker
from pointsman.tools.errors import MissingDependencyError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COHERE_MODEL: Final = "rerank-v3.5"
"""The model that a client of Cohere is asked for; https://docs.cohere.com/reference/rerank."""

DASHSCOPE_MODEL: Final = "gte-rerank-v2"
"""The model that DashScope is asked for; https://help.aliyun.com/zh/model-studio/text-rerank-api."""


class LibraryReranker(BaseReranker):
    """Scores texts with an object of another library.

    Args:
        scorer: FlagEmbedding's ``FlagReranker`` (``compute_score``), sentence-transformers' ``CrossEncoder``
            (``predict``), a client of Cohere (``rerank`` by keywords), or DashScope's ``TextReRank`` (``call``).
        timeout: seconds for one reranking.
    """

    def __init__(self, scorer: Any, *, timeout: float | None = TIMEOUT) -> None:
        super().__init__(timeout=timeout)
        self.scorer = scorer
        self._scores_of = _call_of(scorer)

    @property
    def name(self) -> str:
        """The name of the object's class."""
        kind = self.scorer if isinstance(self.scorer, type) else type(self.scorer)
        return kind.__name__

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return the library's scores, in the order of the texts.

        Raises:
            ModelError: the answer has another form than the library's documentation says.
        """
        if self._scores_of is None:
            raise ModelError(f"{self.name} is no reranker of a library that is known here")
        return self._scores_of(self.scorer, query, list(texts))


def is_of_library(reranker: Any) -> bool:
    """Whether `LibraryReranker` can call an object."""
    return _call_of(reranker) is not None


def open_cross_encoder(name: str, *, timeout: float | None = TIMEOUT) -> LibraryReranker:
    """Open a ``CrossEncoder`` of sentence-transformers by its name or folder.

    Raises:
        MissingDependencyError: the package is not installed.
        ModelError: the model cannot be loaded.
    """
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        extra = "sentence-transformers"
        raise MissingDependencyError(extra, extra, f"the reranker {extra}:{name}") from error
    try:
        return LibraryReranker(CrossEncoder(name), timeout=timeout)
    except Exception as error:  # the package raises errors of its many dependencies
        raise ModelError(f"sentence-transformers cannot load {name!r}: {error}") from error


def _call_of(scorer: Any) -> Callable[[Any, str, list[str]], list[float]] | None:
    if callable(getattr(scorer, "compute_score", None)):
        return _of_flag_embedding
    if callable(rerank := getattr(scorer, "rerank", None)):
        try:
            parameters = inspect.signature(rerank).parameters
        except (TypeError, ValueError):  # a function without a signature is called by position
            return None
        is_by_keyword = "query" in parameters and parameters["query"].kind is inspect.Parameter.KEYWORD_ONLY
        return _of_cohere if is_by_keyword else None
    if callable(getattr(scorer, "predict", None)):
        return _of_cross_encoder
    return _of_dashscope if callable(getattr(scorer, "call", None)) else None


def _of_flag_embedding(scorer: Any, query: str, texts: list[str]) -> list[float]:
    scores = scorer.compute_score([[query, text] for text in texts])
    return [float(score) for score in ([scores] if isinstance(scores, int | float) else scores)]


def _of_cross_encoder(scorer: Any, query: str, texts: list[str]) -> list[float]:
    return [float(score) for score in scorer.predict([(query, text) for text in texts])]


def _of_cohere(scorer: Any, query: str, texts: list[str]) -> list[float]:
    return _by_index(scorer.rerank(model=COHERE_MODEL, query=query, documents=texts, top_n=len(texts)), len(texts))


def _of_dashscope(scorer: Any, query: str, texts: list[str]) -> list[float]:
    answer = scorer.call(model=DASHSCOPE_MODEL, query=query, documents=texts, top_n=len(texts), return_documents=False)
    if (output := getattr(answer, "output", None)) is None:
        raise ModelError(f"DashScope gave no scores: {getattr(answer, 'message', None) or answer!r:.200}")
    return _by_index(output, len(texts))


def _by_index(answer: Any, count: int) -> list[float]:
    """Return the scores of an answer with ``results`` that have ``index`` and ``relevance_score``."""
    try:
        scores = {result.index: float(result.relevance_score) for result in answer.results}
        return [scores[index] for index in range(count)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{type(answer).__name__} does not have a relevance_score for each text: {error!r}") from error
