"""Converters: one module for each family of formats.

Each is imported when the first file of its formats is read.
"""

from pointsman.tools.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
