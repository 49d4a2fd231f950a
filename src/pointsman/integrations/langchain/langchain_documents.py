"""Documents of Pointsman as documents of LangChain, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core import documents as theirs

from pointsman.integrations.framework_sources import with_notes
from pointsman.tools.errors import InputError
from pointsman.values.types import Document, Hit
from pointsman.workspace.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def refuse_others(valid_options: str, options: Mapping[str, Any]) -> None:
    """Reject options that LangChain's interface passes on and that would otherwise have no effect.

    Raises:
        InputError: there are any.
    """
    if options:
        raise InputError(f"{valid_options}, not {', '.join(sorted(options))}")


def write_documents(
    dataset: Dataset,
    documents: Sequence[theirs.Document],
    ids: Sequence[str | None],
    wait: float,
    batch_size: int | None = None,
) -> list[str]:
    """Store documents under the given ids, else their own, else new ones; returns the ids."""
    rows = [
        Document(id_ or document.id or str(uuid4()), document.page_content, document.metadata)
        for document, id_ in zip(documents, ids, strict=True)
    ]
    if rows:
        with dataset.writing(wait):
            if isinstance(dataset, Dataset):
                dataset.add(rows, batch_size=batch_size)
            else:  # of a service, which has its own batches
                dataset.add(rows)
    return [document.id for document in rows]


def langchain_document(document: Document) -> theirs.Document:
    """The document as one of LangChain."""
    return theirs.Document(id=document.id, page_content=document.text, metadata=dict(document.metadata))


def document_of_hit(hit: Hit, notes: Mapping[str, Any]) -> theirs.Document:
    """The hit as a document, with what the answer says of it in the metadata."""
    return theirs.Document(id=hit.id, page_content=hit.document.text, metadata={**hit.metadata, **notes})


def documents_with_scores(hits: Sequence[Hit]) -> list[tuple[theirs.Document, float]]:
    """The hits as documents with their scores."""
    return [(document_of_hit(*noted_hit), float(noted_hit.hit.score)) for noted_hit in with_notes(hits)]


def document_with_score(hit: Hit, notes: Mapping[str, Any]) -> theirs.Document:
    """The hit as a document with its scores, and its excerpt as text if there is one."""
    scores = {"score": float(hit.score), "relevance": hit.relevance, "dataset": hit.dataset}
    metadata = {**scores, **hit.metadata, **notes}
    return theirs.Document(id=hit.id, page_content=hit.text, metadata=metadata)


def number_documents(documents: Sequence[theirs.Document]) -> list[Document]:
    """Converts documents to Pointsman documents with their positions as ids, since ids may be missing or repeated."""
    return [
        Document(str(number), document.page_content, document.metadata) for number, document in enumerate(documents)
    ]


def reorder_documents(
    documents: Sequence[theirs.Document], reranked_documents: Sequence[Document]
) -> list[theirs.Document]:
    """The original documents in a new order, with their scores as ``relevance_score``."""
    copies = []
    for item in reranked_documents:
        original = documents[int(item.id)]
        metadata = {**original.metadata, "relevance_score": float(item.metadata["score"])}
        copies.append(theirs.Document(id=original.id, page_content=original.page_content, metadata=metadata))
    return copies
