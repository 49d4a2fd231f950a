"""A Pointsman dataset as a Haystack document store."""

from haystack_integrations.document_stores.pointsman.document_store import PointsmanDocumentStore
from haystack_integrations.document_stores.pointsman.filters import filter_of

__all__ = ["PointsmanDocumentStore", "filter_of"]
