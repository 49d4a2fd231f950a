"""Transforms a query before the search: decomposing it, completing it, adding variants.

Every name is loaded on first use.
"""

from pointsman.tools.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
