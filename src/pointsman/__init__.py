"""Pointsman: the retrieval layer between a language model and its data.

Public names are loaded when first used, so importing the package is cheap.
"""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.orig_argv[-len(sys.argv)] in ("pointsman", "-mpointsman"):
    # "python -m pointsman" is looking for us. It has put the current folder first on the module path, and this may be
    # the folder to index: its files are documents, not modules, so nothing may be imported before this line but sys.
    del sys.path[0]

from pointsman.tools.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    removed={
        "HTTPMultimodalEmbedder": "give an object with embed(text) and embed_images(pictures) that asks your server",
        "PRFStrategy": "use MultiQueryStrategy, or add a variant of the query in a BaseTransformer",
    },
)
