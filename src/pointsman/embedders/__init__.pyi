from pointsman.embedders.e5.prepared_files import cache_directory as cache_directory
from pointsman.embedders.base_embedder import BaseEmbedder as BaseEmbedder
from pointsman.embedders.cached_embedder import CachedEmbedder as CachedEmbedder
from pointsman.embedders.named_embedders import as_embedder as as_embedder, load_embedder as load_embedder
from pointsman.embedders.e5.e5_embedder import E5Embedder as E5Embedder, default_embedder as default_embedder
from pointsman.embedders.onnx_directory import OnnxEmbedder as OnnxEmbedder
from pointsman.embedders.openai_embedder import OpenAIEmbedder as OpenAIEmbedder
from pointsman.embedders.scripted_embedders import (
    ColourEmbedder as ColourEmbedder,
    HashingEmbedder as HashingEmbedder,
)
from pointsman.embedders.sentence_transformers import (
    ClipEmbedder as ClipEmbedder,
    SentenceTransformersEmbedder as SentenceTransformersEmbedder,
)

__all__: list[str]
