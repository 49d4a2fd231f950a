"""A dataset as a LlamaIndex vector store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from pointsman.integrations.framework_sources import (
    GROUP_OPTIONS,
    given_or_named,
    take_group_options,
    with_notes,
    workspace_of,
)
from pointsman.integrations.llama_index.llama_index_nodes import annotate, document_of, node_of_document
from pointsman.integrations.llama_index.llama_index_queries import (
    MMR_OPTIONS,
    MODES,
    diverse_hits,
    filter_of,
    filter_of_query,
)
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.tools.sync_and_async import async_twin, in_thread
from pointsman.values.argument_checks import check_top_k
from pointsman.values.filters import And, Equals
from pointsman.workspace.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from llama_index.core.schema import BaseNode

    from pointsman.service.client import RemoteDataset
    from pointsman.tools.system.lifecycle import Lifecycle


_PAGE: Final = 1000


class PointsmanVectorStore(BasePydanticVectorStore):
    """A dataset as a LlamaIndex vector store: by vector, by words, by both, or by MMR.

    LlamaIndex embeds nodes and queries itself. Use a given dataset, or a service, only for the vectors of its own
    model; vectors of another length are rejected. A node without a vector can be found by its words.

    The mode ``hybrid`` adds up both scores (the calibrated sum) if the model is one of Pointsman's: if ``embedder`` is
    given, or a dataset with an embedder. Otherwise, over a service, or with an ``alpha``, both lists are fused by rank.

    Args:
        dataset: where the nodes are stored, or its name in the workspace at ``path`` or ``url``. By default, the
            dataset ``"llama_index"`` there; without a workspace, a new one that is deleted with the object.
        path: a workspace: a folder, created on the first write.
        url: a workspace: the URL of a database or of a Pointsman service; see `pointsman.open`. Only a store with a
            path or url can be pickled, or rebuilt by ``from_dict``.
        embedder: the name of the model whose vectors LlamaIndex brings, if `pointsman.load_embedder` knows it.
        embedder_name: the name stored with the vectors of any other model.
        wait: seconds to wait while another process writes to the dataset.

    Raises:
        InputError: the arguments contradict each other, or the workspace cannot be opened.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    wait: float = 30.0
    dataset: str | None = None
    path: str | None = None
    url: str | None = None
    embedder: str | None = None
    embedder_name: str = "llama_index"
    _dataset: Dataset = PrivateAttr()
    _owner: Lifecycle = PrivateAttr()

    def __init__(
        self,
        dataset: Dataset | RemoteDataset | str | None = None,
        *,
        path: str | Path | None = None,
        url: str | None = None,
        embedder: str | None = None,
        embedder_name: str = "llama_index",
        wait: float = 30.0,
        **fields: bool,  # stores_text and is_embedding_query, which ``to_dict`` writes
    ) -> None:
        model = given_or_named(embedder, embedder_name)
        workspace = workspace_of(dataset, path, url, model)
        name = dataset if isinstance(dataset, str) else "llama_index"
        super().__init__(  # type: ignore[call-arg]  # pydantic's fields
            **{"stores_text": True, **fields},
            wait=wait,
            dataset=name,
            path=None if path is None else str(path),
            url=url,
            embedder=embedder,
            embedder_name=embedder_name,
        )
        if workspace is not None:
            self._dataset = workspace.dataset(name)
        elif dataset is None:
            self._dataset = Dataset(name, embedder=model)
        else:
            self._dataset = cast("Dataset", dataset)  # not a name without a workspace
        self._owner = self._dataset if workspace is None else workspace

    def close(self) -> None:
        """Release the files and connections of the workspace that was opened here, or of the dataset."""
        self._owner.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the settings; the workspace is opened again.

        Raises:
            InputError: the store has no path or url.
        """
        if self.path is None and self.url is None:
            raise InputError(
                f"the store over dataset {self._dataset.name!r} was not opened by a path or url, so a copy of it would "
                "have no dataset; open it as PointsmanVectorStore(path=…) or PointsmanVectorStore(url=…)"
            )
        return {"__dict__": self.to_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the workspace again."""
        fields = dict(state["__dict__"])
        fields.pop("class_name")
        PointsmanVectorStore.__init__(self, **fields)

    @classmethod
    def class_name(cls) -> str:
        """Its name in serialised indexes."""
        return "PointsmanVectorStore"

    @property
    def client(self) -> Dataset:
        """The dataset."""
        return self._dataset

    def add(self, /, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes, or update those whose id is known. Returns their ids."""
        if nodes:
            with self._dataset.writing(self.wait):
                vectors = [node.embedding for node in nodes]
                self._dataset.add(list(map(document_of, nodes)), vectors=vectors, embed=False)
        return [node.node_id for node in nodes]

    async_add = async_twin(add)

    def delete(self, /, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a source document."""
        with self._dataset.writing(self.wait):
            self._dataset.delete(filters=Equals("ref_doc_id", ref_doc_id))

    adelete = async_twin(delete)

    def delete_nodes(
        self, /, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        """Delete nodes by id, those that match the filters, or, given both, those that satisfy both.

        Raises:
            InputError: neither is given; `clear` deletes everything.
        """
        if node_ids is None and filters is None:
            raise InputError("give ids or filters of the nodes to delete; clear deletes everything")
        with self._dataset.writing(self.wait):
            self._dataset.delete(node_ids, filters=None if filters is None else filter_of(filters))

    adelete_nodes = async_twin(delete_nodes)

    def clear(self) -> None:
        """Delete everything."""
        with self._dataset.writing(self.wait):
            self._dataset.delete(filters=And(()))

    aclear = async_twin(clear)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[BaseNode]:
        """Return the nodes with these ids that match; without ids, all that match.

        Args:
            node_ids: the ids; None or an empty list restricts nothing.
            filters: which nodes are eligible.
            limit: the largest number of nodes to return; the first ones are returned.

        Raises:
            InputError: the limit is not a positive int, or a filter is invalid.
        """
        condition = None if filters is None else filter_of(filters)
        if limit is not None:
            check_top_k(limit)
        if node_ids:
            documents = [document for document in self._dataset.get_many(node_ids) if document is not None]
            matching = [document for document in documents if condition is None or condition.matches(document.fields)]
            return [node_of_document(document) for document in matching[:limit]]
        cursor: int | None = 0
        nodes: list[BaseNode] = []
        while cursor is not None and (limit is None or len(nodes) < limit):
            size = _PAGE if limit is None else min(_PAGE, limit - len(nodes))
            page, cursor = self._dataset.page(cursor, size, filters=condition)
            nodes += map(node_of_document, page)
        return nodes

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[BaseNode]:
        """Async version of `get_nodes`."""
        return await in_thread(self.get_nodes, node_ids, filters, limit)

    def query(self, /, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Return the nearest nodes; an empty list of ``doc_ids`` allows none, one of ``node_ids`` all.

        Args:
            query: the query.
            options: a retriever's ``vector_store_kwargs``: ``group_by`` and ``group_size``, as in
                `Dataset.search_vector`, and for MMR only ``mmr_threshold`` (0 for diversity alone, 1 for nearness
                alone; 0.5 by default) and the number of nodes to choose from, as ``mmr_prefetch_k`` or as a multiple of
                ``similarity_top_k``, ``mmr_prefetch_factor`` (4 by default).

        Raises:
            UnmetNeedError: the mode is not one of default, sparse, text search, hybrid, semantic hybrid and MMR.
            InputError: the query lacks the vector or the text that its mode needs, or an option is unknown or invalid.
        """
        if unknown_options := options.keys() - MMR_OPTIONS - GROUP_OPTIONS:
            names = sorted({*MMR_OPTIONS, *GROUP_OPTIONS})
            raise InputError(f"a query takes {', '.join(names)}, not {', '.join(sorted(unknown_options))}")
        groups = take_group_options(options)
        if query.mode is VectorStoreQueryMode.MMR:
            hits = diverse_hits(self._dataset, query, filter_of_query(query), groups, **options)
        elif (find := MODES.get(query.mode)) is not None:
            hits = find(self._dataset, query, filter_of_query(query), groups)
        else:
            raise UnmetNeedError(f"a Pointsman vector store has no mode {query.mode.value!r}")
        return VectorStoreQueryResult(
            nodes=[annotate(node_of_document(hit.document), notes) for hit, notes in with_notes(hits)],
            similarities=[float(hit.score) for hit in hits],
            ids=[hit.id for hit in hits],
        )

    aquery = async_twin(query)
