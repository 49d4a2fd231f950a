from ._cache import cache_directory as cache_directory
from .base import BaseEmbedder as BaseEmbedder, as_embedder as as_embedder
from .cached import CachedEmbedder as CachedEmbedder
from .chosen import load_embedder as load_embedder
from .distance import DistanceEmbedder as DistanceEmbedder
from .clip import ClipEmbedder as ClipEmbedder
from .e5 import E5Embedder as E5Embedder, default_embedder as default_embedder
from .http_multimodal import HTTPMultimodalEmbedder as HTTPMultimodalEmbedder
from .onnx_directory import OnnxEmbedder as OnnxEmbedder
from .openai_embedder import OpenAIEmbedder as OpenAIEmbedder
from .openai_llm import DashScopeLLM as DashScopeLLM, OpenAILLM as OpenAILLM
from .scripted import ColourEmbedder as ColourEmbedder, HashingEmbedder as HashingEmbedder
from .scripted_llm import ScriptedLLM as ScriptedLLM
from .sentence_transformers import SentenceTransformersEmbedder as SentenceTransformersEmbedder

__all__: list[str]
