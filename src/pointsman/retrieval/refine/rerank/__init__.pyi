from pointsman.retrieval.refine.rerank.rerank_scores import PartialScores as PartialScores
from pointsman.retrieval.refine.rerank.base_reranker import BaseReranker as BaseReranker
from pointsman.retrieval.refine.rerank.calibrated import CalibratedReranker as CalibratedReranker
from pointsman.retrieval.refine.rerank.chosen_reranker import load_reranker as load_reranker
from pointsman.retrieval.refine.rerank.cross_encoder import CrossEncoderReranker as CrossEncoderReranker
from pointsman.retrieval.refine.rerank.http_reranker import HTTPReranker as HTTPReranker
from pointsman.retrieval.refine.rerank.late_interaction import (
    LateInteractionReranker as LateInteractionReranker,
)
from pointsman.retrieval.refine.rerank.llm_reranker import LLMReranker as LLMReranker

__all__: list[str]
