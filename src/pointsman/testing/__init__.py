"""Conformance suites: what an implementation of each kind promises, as tests that anybody's can be put through.

For whoever writes a retriever, a reranker, a selector, a store … of their own: subclass the suite in a test file, say
how yours is made, and run pytest::

    from pointsman.testing import RetrieverConformance

    class TestMine(RetrieverConformance):
        def make(self):
            return MyRetriever(...)

========================== ============================================================================================
RetrieverConformance       anything with ``retrieve`` and ``aretrieve``
RefinerConformance         subclasses of `BaseRefiner`: refusing, thinning out, expanding, compressing
RerankerConformance        subclasses of `BaseReranker`; has everything of the one above
SelectorConformance        anything with ``select`` and ``aselect``
RouterConformance          subclasses of `BaseRouter`
TransformerConformance     subclasses of `BaseTransformer`
EmbedderConformance        anything that keeps the protocol `Embedder`
StoreConformance           subclasses of `BaseStore`: where the documents of a dataset live
DocumentStoreConformance   anything that keeps the protocol `DocumentStore`
KeywordIndexConformance    anything that keeps the protocol `KeywordIndex`
VectorIndexConformance     anything that keeps the protocol `VectorIndex`
LLMConformance             anything with ``complete`` or ``acomplete``
WorkspaceConformance       whatever answers as a `Workspace` does, here or over a wire
========================== ============================================================================================

``make`` (of a store, ``make_store``) is called in every test, so where making is expensive, make one and return it
each time. The other methods without ``test_`` are hooks: override those whose default does not suit. Pointsman's own
implementations pass the same suites. Nothing here needs more than the standard library, NumPy and Pointsman; a test
that does not apply raises `unittest.SkipTest`, which pytest shows as skipped.
"""

from pointsman.testing._shared import DOCUMENTS, FILTERS, ODD_TEXTS
from pointsman.testing.embedders import EmbedderConformance
from pointsman.testing.indexes import DocumentStoreConformance, KeywordIndexConformance, VectorIndexConformance
from pointsman.testing.llms import LLMConformance
from pointsman.testing.refiners import RefinerConformance, RerankerConformance
from pointsman.testing.retrievers import RetrieverConformance
from pointsman.testing.routers import RouterConformance
from pointsman.testing.selectors import SelectorConformance
from pointsman.testing.slow import SlowStore
from pointsman.testing.stores import StoreConformance
from pointsman.testing.transformers import TransformerConformance
from pointsman.testing.workspaces import WorkspaceConformance

__all__ = [
    "DOCUMENTS",
    "FILTERS",
    "ODD_TEXTS",
    "DocumentStoreConformance",
    "EmbedderConformance",
    "KeywordIndexConformance",
    "LLMConformance",
    "RefinerConformance",
    "RerankerConformance",
    "RetrieverConformance",
    "RouterConformance",
    "SelectorConformance",
    "SlowStore",
    "StoreConformance",
    "TransformerConformance",
    "VectorIndexConformance",
    "WorkspaceConformance",
]
