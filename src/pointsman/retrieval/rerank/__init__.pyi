from ._scores import PartialScores as PartialScores
from .base import BaseReranker as BaseReranker
from .calibrated import CalibratedReranker as CalibratedReranker
from .chosen import load_reranker as load_reranker
from .cross_encoder import CrossEncoderReranker as CrossEncoderReranker
from .http import HTTPReranker as HTTPReranker
from .late_interaction import LateInteractionReranker as LateInteractionReranker, TokenEmbedder as TokenEmbedder
from .llm import LLMReranker as LLMReranker

__all__: list[str]
