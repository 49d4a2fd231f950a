"""The HTTP service: search over the network, with keys, limits, metrics and a console."""

from pointsman.tools.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
