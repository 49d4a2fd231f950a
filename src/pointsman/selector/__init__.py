"""Selectors choose among described choices for a query, with a reason and a confidence. They never run the choice.

Every name is loaded on first use.
"""

from pointsman.tools.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
