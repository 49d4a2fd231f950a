"""Compression to the parts relevant to the query, within a budget, with offsets into the source.

Expanders first add context to hits; `LostInTheMiddle` orders hits so that models read them best.
"""

from pointsman.retrieval.compress.base import MAX_CHARS, BaseCompressor, Compressed
from pointsman.retrieval.compress.expand import ParentExpander, PassageStore, WindowExpander
from pointsman.retrieval.compress.extractive import ExtractiveCompressor
from pointsman.retrieval.compress.llm import LLMCompressor
from pointsman.retrieval.compress.order import LostInTheMiddle, lost_in_the_middle
from pointsman.retrieval.compress.prompts import COMPRESSION, CompressionPrompts
from pointsman.retrieval.compress.spans import JOINER, TextBudget

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
