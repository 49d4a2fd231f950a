"""Language models: the chosen one, OpenAI-compatible ones, a scripted one, prompts, and reading their answers.

Every name is loaded on first use.
"""

from pointsman.tools.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
