"""Conformance suites: the promises of each kind of extension, as tests for any implementation.

For authors of a retriever, a selector or a store: subclass the suite in a test file, define how to create
your implementation, and run pytest::

    from pointsman.evaluation.conformance import RetrieverConformance

    class TestMine(RetrieverConformance):
        def make(self):
            return MyRetriever(...)

==================== ================================================================
RetrieverConformance anything with ``retrieve`` and ``aretrieve``
SelectorConformance  anything with ``select`` and ``aselect``
StoreConformance     subclasses of `Store`: where the documents of a dataset are stored
==================== ================================================================

``make`` (for stores, ``make_store``) is called in every test; if creation is expensive, create one object and return it
each time. The other methods without ``test_`` are hooks: override those whose default does not fit. Pointsman's own
implementations pass the same suites. The suites need only the standard library, NumPy and Pointsman; a test that does
not apply raises `unittest.SkipTest`, which pytest shows as skipped.
"""

from pointsman.evaluation.conformance.retriever_suite import RetrieverConformance
from pointsman.evaluation.conformance.selector_suite import SelectorConformance
from pointsman.evaluation.conformance.stores.store_suite import StoreConformance
from pointsman.evaluation.conformance.suite_samples import DOCUMENTS, FILTERS, ODD_TEXTS

__all__ = ["DOCUMENTS", "FILTERS", "ODD_TEXTS", "RetrieverConformance", "SelectorConformance", "StoreConformance"]
