"""Rerankers: a second, closer look at the candidates.

Every name is loaded on first use: importing this package imports no model library and no HTTP client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman._lazy import lazily

if TYPE_CHECKING:
    from pointsman.retrieval.rerank._scores import PartialScores
    from pointsman.retrieval.rerank.base import BaseReranker
    from pointsman.retrieval.rerank.calibrated import CalibratedReranker
    from pointsman.retrieval.rerank.chosen import load_reranker
    from pointsman.retrieval.rerank.cross_encoder import CrossEncoderReranker
    from pointsman.retrieval.rerank.http import HTTPReranker
    from pointsman.retrieval.rerank.llm import LLMReranker

__all__ = [
    "BaseReranker",
    "CalibratedReranker",
    "CrossEncoderReranker",
    "HTTPReranker",
    "LLMReranker",
    "PartialScores",
    "load_reranker",
]

_MODULES = {
    "BaseReranker": ".base",
    "CalibratedReranker": ".calibrated",
    "CrossEncoderReranker": ".cross_encoder",
    "HTTPReranker": ".http",
    "LLMReranker": ".llm",
    "PartialScores": "._scores",
    "load_reranker": ".chosen",
}

__getattr__, __dir__ = lazily(__name__, _MODULES)
