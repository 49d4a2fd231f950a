"""Compression to the parts relevant to the query, within a budget, with offsets into the source.

Expanders first add context to hits; `LostInTheMiddle` orders hits so that models read them best.
"""

from pointsman.retrieval.refine.compress.base_compressor import MAX_CHARS, BaseCompressor, Compressed
from pointsman.retrieval.refine.compress.compress_prompts import COMPRESSION, CompressionPrompts
from pointsman.retrieval.refine.compress.expand import ParentExpander, PassageStore, WindowExpander
from pointsman.retrieval.refine.compress.extractive import ExtractiveCompressor
from pointsman.retrieval.refine.compress.llm_compressor import LLMCompressor
from pointsman.retrieval.refine.compress.reading_order import LostInTheMiddle, lost_in_the_middle
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
    "LostInTheMiddle",
    "ParentExpander",
    "PassageStore",
    "TextBudget",
    "WindowExpander",
    "lost_in_the_middle",
]
