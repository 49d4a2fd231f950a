"""Documents of office programs: Word, Excel, PowerPoint, OpenDocument; and books in EPUB.

Each is imported when the first file of its formats is read.
"""

from pointsman.tools.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
