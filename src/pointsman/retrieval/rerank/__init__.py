"""Rerankers: a second, closer look at what was found (R5).

Every name is loaded when it is first used: importing this package costs no model library and no HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pointsman.retrieval.rerank._scores import PartialScores
    from pointsman.retrieval.rerank.base import BaseReranker
    from pointsman.retrieval.rerank.calibrated import CalibratedReranker
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
]

_MODULES = {
    "BaseReranker": "base",
    "CalibratedReranker": "calibrated",
    "CrossEncoderReranker": "cross_encoder",
    "HTTPReranker": "http",
    "LLMReranker": "llm",
    "PartialScores": "_scores",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
