"""A dataset of Pointsman as a document store of Haystack (X1)."""

from haystack_integrations.document_stores.pointsman.document_store import PointsmanDocumentStore
from haystack_integrations.document_stores.pointsman.filters import filter_of

__all__ = ["PointsmanDocumentStore", "filter_of"]
