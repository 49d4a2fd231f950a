"""Pointsman's search objects as LangChain retrievers and document indexes, and LangChain's retrievers for Pointsman."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.indexing.base import DeleteResponse, DocumentIndex, UpsertResponse
from langchain_core.retrievers import BaseRetriever as TheirRetriever

from pointsman.integrations.framework_sources import ahits_of, check_source, hits_of
from pointsman.integrations.langchain.langchain_documents import (
    document_with_score,
    langchain_document,
    refuse_others,
    write_documents,
)
from pointsman.retrieval.retrievers.foreign_retriever import ForeignRetriever
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import check_top_k
from pointsman.values.filters import Filter, parse_optional
from pointsman.workspace.dataset import Dataset  # noqa: TC001  (pydantic reads it)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core import documents as theirs
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun


class PointsmanRetriever(TheirRetriever, extra="forbid"):
    """Any of Pointsman's search objects as a LangChain retriever.

    The metadata of documents includes ``score``, ``relevance`` and ``dataset``, unless it already has such values.
    Where it applies, it also has ``verdict`` (see `RetrievalContext.verdict`), ``not_in_force``, such as "superseded by
    amendment.md, valid from 2026-03-01", and, in the first document, ``degraded``: what did not work as asked, and what
    was done instead.

    Attributes:
        source: a workspace, a dataset, a client, a workflow or a retriever.
        k: the number of documents; ``invoke(..., k=3)`` overrides it.
        options: of the search, such as ``{"strategy": "hybrid", "filters": "year > 2020"}``; options given to
            ``invoke`` override them.
    """

    source: Any
    k: int = 5
    options: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it for every instance)

    def model_post_init(self, context: Any, /) -> None:
        """Check the source and the number.

        Raises:
            InputError: one of them is invalid.
        """
        super().model_post_init(context)
        check_source(self.source)
        check_top_k(self.k)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002  (LangChain's interface)
        k: int | None = None,
        **options: Any,
    ) -> list[theirs.Document]:
        return [document_with_score(*hit) for hit in hits_of(self.source, query, *self._arguments(k, options))]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002  (LangChain's interface)
        k: int | None = None,
        **options: Any,
    ) -> list[theirs.Document]:
        return [document_with_score(*hit) for hit in await ahits_of(self.source, query, *self._arguments(k, options))]

    def _arguments(self, k: int | None, options: dict[str, Any]) -> tuple[int, Filter | None, dict[str, Any]]:
        """Return the number of hits, the filter and the other options of a search."""
        search_options = {**self.options, **options}
        filters = parse_optional(search_options.pop("filters", None))
        return self.k if k is None else k, filters, search_options


class PointsmanDocumentIndex(PointsmanRetriever, DocumentIndex):
    """A dataset as a LangChain document index: a retriever that also stores documents.

    Attributes:
        wait: seconds to wait while another process writes to the dataset.
    """

    source: Dataset
    wait: float = 30.0

    def upsert(self, items: Sequence[theirs.Document], /, **kwargs: Any) -> UpsertResponse:
        """Add documents, or update those whose id is known; one without an id gets a new one.

        Raises:
            InputError: a document cannot be stored, or options are given; there are none.
        """
        refuse_others("upsert takes documents", kwargs)
        return {"succeeded": write_documents(self.source, items, [None] * len(items), self.wait), "failed": []}

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> DeleteResponse:
        """Delete documents by id.

        Raises:
            InputError: no ids are given, or options, of which there are none.
        """
        refuse_others("delete takes ids", kwargs)
        if ids is None:
            raise InputError("give the ids of the documents to delete")
        with self.source.writing(self.wait), without_record():  # no document is shown
            existing_ids = [document.id for document in self.source.get_many(ids) if document is not None]
            number = self.source.delete(existing_ids)
        return {"num_deleted": number, "num_failed": 0, "succeeded": existing_ids, "failed": []}

    def get(self, ids: Sequence[str], /, **kwargs: Any) -> list[theirs.Document]:
        """Return those documents of these ids that exist.

        Raises:
            InputError: an id is not a str, or options are given; there are none.
        """
        refuse_others("get takes ids", kwargs)
        return [langchain_document(document) for document in self.source.get_many(list(ids)) if document is not None]


class LangChainRetriever(ForeignRetriever):
    """Adapter for a LangChain retriever.

    A document without an id gets one derived from its text. LangChain documents have no scores, so a hit's score is
    1 / rank; when fused with other lists, it counts by its rank.

    Args:
        retriever: any LangChain retriever.
        name: of its list in traces; its class name by default.
    """
