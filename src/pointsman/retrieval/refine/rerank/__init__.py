"""Rerankers: a second, closer look at the candidates.

Every name is loaded on first use: importing this package imports no model library and no HTTP client.
"""

from pointsman.tools.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
