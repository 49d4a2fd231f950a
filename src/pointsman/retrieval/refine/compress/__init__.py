"""Compression to the parts relevant to the query, within a budget, with offsets into the source.

Expanders first add context to hits.
"""

from pointsman.retrieval.refine.compress.base_compressor import MAX_CHARS, BaseCompressor, Compressed
from pointsman.retrieval.refine.compress.compress_prompts import COMPRESSION, CompressionPrompts
from pointsman.retrieval.refine.compress.expand import ParentExpander, PassageStore, WindowExpander
from pointsman.retrieval.refine.compress.extractive import ExtractiveCompressor
from pointsman.retrieval.refine.compress.llm_compressor import LLMCompressor
from pointsman.retrieval.refine.compress.spans import JOINER, TextBudget

__all__ = [
    "COMPRESSION",
    "JOINER",
    "MAX_CHARS",
    "BaseCompressor",
    "Compressed",
    "CompressionPrompts",
    "ExtractiveCompressor",
    "LLMCompressor",
    "ParentExpander",
    "PassageStore",
    "TextBudget",
    "WindowExpander",
]
