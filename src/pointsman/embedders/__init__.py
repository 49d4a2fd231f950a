"""Embedders: the offline default, local and remote ones, a cache for any embedder, and fakes.

Every name is loaded on first use: importing this package loads no model library.
"""

from pointsman.tools.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
