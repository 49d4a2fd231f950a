"""Adapters between Pointsman and LlamaIndex, in both directions.

For LlamaIndex: `PointsmanRetriever`, `PointsmanSelector`, `PointsmanRerank`, `PointsmanRefine`, `PointsmanEmbedding`
and `PointsmanVectorStore`. For Pointsman: `LlamaIndexRetriever` and `LlamaIndexEmbedder`; LlamaIndex's language models
need no adapter. `query_of`, `hit_of` and `node_of` convert single values.

Needs ``pip install 'pointsman[llama-index]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from pointsman.embedders import load_embedder
from pointsman.embedders.base_embedder import EmbedFunction, as_embedder
from pointsman.embedders.distance import DistanceName  # noqa: TC001  (pydantic reads it)
from pointsman.integrations.framework_sources import (
    GROUP_OPTIONS,
    ahits_of,
    check_source,
    diverse,
    given_or_named,
    hits_by_both,
    hits_by_words,
    hits_of,
    offline_reranker,
    take_group_options,
    with_notes,
    workspace_of,
)
from pointsman.retrieval.retrievers.foreign_retriever import ForeignRetriever
from pointsman.tools.errors import FilterError, InputError, MissingDependencyError, UnmetNeedError
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.filters import And, Contains, Equals, Exists, Filter, In, Not, Or, Range, equal_to, one_of
from pointsman.values.metadata import ID, SPARSE
from pointsman.values.types import Document, Hit, Provenance, Query, Ranked, check_top_k
from pointsman.values.wire import NOT_IN_FORCE
from pointsman.workspace.dataset import Dataset

try:
    from llama_index.core.base.base_retriever import BaseRetriever as TheirRetriever
    from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterCondition,
        FilterOperator,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ImportError as error:
    raise MissingDependencyError("llama-index-core", "llama-index", "the LlamaIndex adapter") from error

from pointsman.selector.base_selector import ToolMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from llama_index.core.tools.types import ToolMetadata as TheirToolMetadata
    from llama_index.core.vector_stores.types import MetadataFilter

    from pointsman.selector.base_selector import BaseSelector as OurSelector
    from pointsman.selector.base_selector import SelectorResult as OurResult
    from pointsman.service.client import RemoteDataset
    from pointsman.values.protocols import Embedder
    from pointsman.workspace.workspace_search import Workspace

__all__ = [
    "LlamaIndexEmbedder",
    "LlamaIndexRetriever",
    "PointsmanEmbedding",
    "PointsmanRefine",
    "PointsmanRerank",
    "PointsmanRetriever",
    "PointsmanSelector",
    "PointsmanVectorStore",
    "hit_of",
    "node_of",
    "query_of",
]

_PAGE: Final = 1000
_NODE: Final = "_node"
"""The metadata key for a node's other fields: a mapping that filters ignore."""


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def query_of(query: str | QueryBundle) -> Query:
    """Converts a LlamaIndex query to a Pointsman query."""
    return Query(query if isinstance(query, str) else query.query_str)


def node_of(hit: Hit) -> NodeWithScore:
    """Converts a hit to a node with its score; the text is the excerpt if there is one.

    The metadata of a node that does not hold says why, as ``not_in_force``; a language model reads it with the text.
    """
    return _noted_node(*with_notes([hit])[0])


def hit_of(node_with_score: NodeWithScore, rank: int = 1, source: str = "llama_index") -> Hit:
    """Converts a node with a score to a hit; one without a score gets 1 / rank."""
    score = node_with_score.score
    document = Document(
        node_with_score.node.node_id, node_with_score.node.get_content(MetadataMode.NONE), node_with_score.node.metadata
    )
    return Hit(document, 1 / rank if score is None else score, None, (Provenance(source, rank, score),))


# ── for LlamaIndex ───────────────────────────────────────────────────────────────────────────────────────────────────


class PointsmanRetriever(TheirRetriever):
    """Any of Pointsman's search objects as a LlamaIndex retriever.

    Where it applies, the metadata of nodes has ``not_in_force``, such as "superseded by amendment.md, valid from
    2026-03-01", and, in the first node, ``degraded``: what did not work as asked, and what was done instead.

    Args:
        source: a workspace, a dataset, a client, a workflow or a retriever.
        similarity_top_k: the number of nodes.
        filters: which documents are eligible: LlamaIndex filters, or a Pointsman filter.
        options: of the search, such as ``strategy="hybrid"``.

    Raises:
        InputError: the source cannot be searched, or the number is invalid.
    """

    def __init__(
        self,
        source: Any,
        similarity_top_k: int = 5,
        *,
        filters: MetadataFilters | Filter | None = None,
        **options: Any,
    ) -> None:
        check_source(source)
        self.source, self.similarity_top_k, self.options = source, check_top_k(similarity_top_k), options
        self.filters = _filter(filters) if isinstance(filters, MetadataFilters) else filters
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = hits_of(self.source, query_bundle.query_str, self.similarity_top_k, self.filters, self.options)
        return [_noted_node(*hit) for hit in hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = await ahits_of(self.source, query_bundle.query_str, self.similarity_top_k, self.filters, self.options)
        return [_noted_node(*hit) for hit in hits]


class PointsmanSelector(BaseSelector):
    """A Pointsman selector as a LlamaIndex selector, for `RouterQueryEngine`, `RouterRetriever` and others.

    If the selector abstains, all choices are selected: LlamaIndex cannot express an empty selection.

    Args:
        selector: any Pointsman selector; whether it selects several is its own setting.
    """

    def __init__(self, selector: OurSelector) -> None:
        self.selector = selector

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts_dict: dict[str, Any]) -> None:
        """Does nothing: there are no prompts."""

    def _select(self, choices: Sequence[TheirToolMetadata], query: QueryBundle) -> SelectorResult:
        return _selector_result(self.selector.select(_choices(choices), query.query_str), len(choices))

    async def _aselect(self, choices: Sequence[TheirToolMetadata], query: QueryBundle) -> SelectorResult:
        return _selector_result(await self.selector.aselect(_choices(choices), query.query_str), len(choices))


def _choices(choices: Sequence[TheirToolMetadata]) -> list[ToolMetadata]:
    return [
        ToolMetadata(choice.name, choice.description) if choice.name else ToolMetadata(choice.description, "")
        for choice in choices
    ]


def _selector_result(result: OurResult, count: int) -> SelectorResult:
    if result.abstained:
        reason = "no choice fits, so all of them are selected"
        return SelectorResult(selections=[SingleSelection(index=index, reason=reason) for index in range(count)])
    return SelectorResult(
        selections=[SingleSelection(index=selection.index, reason=selection.reason) for selection in result.selections]
    )


class PointsmanRerank(BaseNodePostprocessor):
    """A Pointsman reranker as a node postprocessor; nodes stay unchanged, their scores are the reranker's.

    Attributes:
        reranker: any `BaseReranker`; by default the offline one over the default embedder.
        top_n: the number of nodes to keep.
    """

    reranker: Any = Field(default=None, exclude=True)
    top_n: int = 4

    def model_post_init(self, context: Any, /) -> None:
        """Set the default reranker."""
        super().model_post_init(context)
        self.reranker = self.reranker or offline_reranker()

    @classmethod
    def class_name(cls) -> str:
        """Its name in serialised pipelines."""
        return "PointsmanRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return _in_order(nodes, self.reranker.rerank(_question(query_bundle), _number_nodes(nodes), self.top_n))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return _in_order(nodes, await self.reranker.arerank(_question(query_bundle), _number_nodes(nodes), self.top_n))


class PointsmanRefine(BaseNodePostprocessor):
    """Any Pointsman refiner as a node postprocessor: one that refuses, compresses, diversifies, or a user-defined one.

    Attributes:
        refiner: any `BaseRefiner`.
        top_k: the number of nodes of the answer; all by default.
        scale: what the nodes' scores mean; see `pointsman.values.types.Ranked`. Thresholds apply on their own scale
            only.
    """

    refiner: Any = Field(exclude=True)
    top_k: int | None = None
    scale: str = "foreign"

    @classmethod
    def class_name(cls) -> str:
        """Its name in serialised pipelines."""
        return "PointsmanRefine"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        return self._nodes_of(nodes, self.refiner.refine(Query(_question(query_bundle)), *self._ranking_of(nodes)))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        return self._nodes_of(
            nodes, await self.refiner.arefine(Query(_question(query_bundle)), *self._ranking_of(nodes))
        )

    def _ranking_of(self, nodes: list[NodeWithScore]) -> tuple[Ranked, int]:
        hits = [
            replace(hit_of(node, rank), document=document)
            for rank, (node, document) in enumerate(zip(nodes, _number_nodes(nodes), strict=True), 1)
        ]
        return Ranked(tuple(hits), self.scale), self.top_k or len(nodes)

    def _nodes_of(self, nodes: list[NodeWithScore], ranking: Ranked) -> list[NodeWithScore]:
        nodes_left = []
        for hit in ranking.hits[: self.top_k]:
            node = nodes[int(hit.id)].node
            if hit.excerpt is not None:
                node = node.model_copy(deep=True)
                node.set_content(hit.excerpt.text)
            nodes_left.append(NodeWithScore(node=node, score=float(hit.score)))
        return nodes_left


class PointsmanEmbedding(BaseEmbedding):
    """A Pointsman embedder as a LlamaIndex embedding model; vectors have length 1.

    Args:
        embedder: the name of an embedder that `pointsman.load_embedder` knows, or anything with ``embed(text)``. Only
            one that is given by its name can be rebuilt by ``from_dict``.
        options: of LlamaIndex's `BaseEmbedding`.

    Raises:
        InputError: it is rebuilt without the object that embedded.
    """

    embedder: str | None = None
    _embedder: Any = PrivateAttr()

    def __init__(self, embedder: Embedder | str | None = "default", **options: Any) -> None:
        stored_name = options.pop("model_name", None)
        if embedder is None:
            raise InputError(
                f"the embedder {stored_name or ''!r} was given as an object, which is not stored; pass it again: "
                "PointsmanEmbedding.from_dict(values, embedder=…)"
            )
        own_embedder = load_embedder(embedder) if isinstance(embedder, str) else as_embedder(embedder)
        super().__init__(
            model_name=own_embedder.name,
            embedder=embedder if isinstance(embedder, str) else None,  # type: ignore[call-arg]  # pydantic's field
            **options,
        )
        self._embedder = own_embedder

    @classmethod
    def class_name(cls) -> str:
        """Its name in serialised pipelines."""
        return "PointsmanEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        vector: list[float] = self._embedder.embed_queries([query])[0].tolist()
        return vector

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await in_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._embedder.embed_documents(texts).tolist()
        return vectors

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await in_thread(self._get_text_embeddings, texts)


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
        distance: how vectors are compared: ``"cosine"``, ``"dot"`` or ``"euclidean"``; see `DistanceEmbedder`.
        longest: with another distance than the cosine, the greatest length of a stored vector; longer ones are refused.
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
    distance: DistanceName = "cosine"
    longest: float = 1.0
    _dataset: Dataset = PrivateAttr()
    _workspace: Workspace | None = PrivateAttr(default=None)

    def __init__(
        self,
        dataset: Dataset | RemoteDataset | str | None = None,
        *,
        path: str | Path | None = None,
        url: str | None = None,
        embedder: str | None = None,
        embedder_name: str = "llama_index",
        distance: DistanceName = "cosine",
        longest: float = 1.0,
        wait: float = 30.0,
        **fields: bool,  # stores_text and is_embedding_query, which ``to_dict`` writes
    ) -> None:
        model = given_or_named(embedder, embedder_name, distance, longest)
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
            distance=distance,
            longest=longest,
        )
        self._workspace = workspace
        if workspace is not None:
            self._dataset = workspace.dataset(name)
        elif dataset is None:
            self._dataset = Dataset(name, embedder=model)
        else:
            self._dataset = cast("Dataset", dataset)  # not a name without a workspace

    def close(self) -> None:
        """Release the files and connections of the workspace that was opened here, or of the dataset."""
        if self._workspace is not None:
            self._workspace.close()
        else:
            self._dataset.close()

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

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes, or update those whose id is known. Returns their ids."""
        if nodes:
            with self._dataset.writing(self.wait):
                vectors = [node.embedding for node in nodes]
                self._dataset.add(list(map(_document, nodes)), vectors=vectors, embed=False)
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Async version of `add`."""
        return await in_thread(self.add, nodes)

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a source document."""
        with self._dataset.writing(self.wait):
            self._dataset.delete(filters=Equals("ref_doc_id", ref_doc_id))

    async def adelete(self, ref_doc_id: str, **_: Any) -> None:
        """Async version of `delete`."""
        await in_thread(self.delete, ref_doc_id)

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any) -> None:
        """Delete nodes by id, those that match the filters, or, given both, those that satisfy both.

        Raises:
            InputError: neither is given; `clear` deletes everything.
        """
        if node_ids is None and filters is None:
            raise InputError("give ids or filters of the nodes to delete; clear deletes everything")
        with self._dataset.writing(self.wait):
            self._dataset.delete(node_ids, filters=None if filters is None else _filter(filters))

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        """Async version of `delete_nodes`."""
        await in_thread(self.delete_nodes, node_ids, filters)

    def clear(self) -> None:
        """Delete everything."""
        with self._dataset.writing(self.wait):
            self._dataset.delete(filters=And(()))

    async def aclear(self) -> None:
        """Async version of `clear`."""
        await in_thread(self.clear)

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
        condition = None if filters is None else _filter(filters)
        if limit is not None:
            check_top_k(limit)
        if node_ids:
            documents = [document for document in self._dataset.get_many(node_ids) if document is not None]
            matching = [document for document in documents if condition is None or condition.matches(document.fields)]
            return [_node(document) for document in matching[:limit]]
        cursor: int | None = 0
        nodes: list[BaseNode] = []
        while cursor is not None and (limit is None or len(nodes) < limit):
            size = _PAGE if limit is None else min(_PAGE, limit - len(nodes))
            page, cursor = self._dataset.page(cursor, size, filters=condition)
            nodes += map(_node, page)
        return nodes

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[BaseNode]:
        """Async version of `get_nodes`."""
        return await in_thread(self.get_nodes, node_ids, filters, limit)

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Return the nearest nodes; an empty list of ``doc_ids`` allows none, one of ``node_ids`` all.

        Args:
            query: the query.
            options: a retriever's ``vector_store_kwargs``: ``group_by`` and ``group_size``, as in
                `Dataset.search_vector`, and for MMR only ``mmr_threshold`` (0 for diversity alone, 1 for nearness
                alone; 0.5 by default) and the number of nodes to choose from, as ``mmr_prefetch_k`` or as a multiple of
                ``similarity_top_k``, ``mmr_prefetch_factor`` (4 by default). In the mode ``sparse``, ``sparse_vector``
                (weights by token id) searches the vectors that nodes have in their metadata under ``_sparse``, instead
                of words; see `Dataset.search_sparse`.

        Raises:
            UnmetNeedError: the mode is not one of default, sparse, text search, hybrid, semantic hybrid and MMR.
            InputError: the query lacks the vector or the text that its mode needs, or an option is unknown or invalid.
        """
        sparse_vector = options.pop("sparse_vector", None)
        if unknown_options := options.keys() - _MMR_OPTIONS - GROUP_OPTIONS:
            names = sorted({*_MMR_OPTIONS, *GROUP_OPTIONS, "sparse_vector"})
            raise InputError(f"a query takes {', '.join(names)}, not {', '.join(sorted(unknown_options))}")
        groups = take_group_options(options)
        if sparse_vector is not None:
            if query.mode is not VectorStoreQueryMode.SPARSE or groups:
                raise InputError("a sparse_vector goes with the mode 'sparse', and without group_by")
            k = query.sparse_top_k or query.similarity_top_k
            hits = self._dataset.search_sparse(sparse_vector, k, filters=_of_query(query))
        elif query.mode is VectorStoreQueryMode.MMR:
            hits = _diverse(self._dataset, query, _of_query(query), groups, **options)
        elif (find := _MODES.get(query.mode)) is not None:
            hits = find(self._dataset, query, _of_query(query), groups)
        else:
            raise UnmetNeedError(f"a Pointsman vector store has no mode {query.mode.value!r}")
        return VectorStoreQueryResult(
            nodes=[_annotate(_node(hit.document), notes) for hit, notes in with_notes(hits)],
            similarities=[float(hit.score) for hit in hits],
            ids=[hit.id for hit in hits],
        )

    async def aquery(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Async version of `query`."""
        return await in_thread(self.query, query, **options)


def _vector_hits(
    dataset: Dataset, query: VectorStoreQuery, filters: Filter | None, groups: Mapping[str, Any]
) -> list[Hit]:
    return dataset.search_vector(_embedding(query), query.similarity_top_k, filters=filters, **groups)


def _embedding(query: VectorStoreQuery) -> list[float]:
    if query.query_embedding is None:
        raise InputError(f"a query in mode {query.mode.value!r} has a query_embedding")
    return query.query_embedding


def _words(dataset: Dataset, query: VectorStoreQuery, filters: Filter | None, groups: Mapping[str, Any]) -> list[Hit]:
    if query.query_str is None:
        raise InputError(f"a query in mode {query.mode.value!r} has a query_str")
    k = query.sparse_top_k or query.similarity_top_k
    return hits_by_words(dataset, Query(query.query_str, filters), k, **groups)


def _hybrid_hits(
    dataset: Dataset, query: VectorStoreQuery, filters: Filter | None, groups: Mapping[str, Any]
) -> list[Hit]:
    if query.query_str is None:
        raise InputError(f"a query in mode {query.mode.value!r} has a query_str")
    k = query.hybrid_top_k or query.similarity_top_k
    depth = query.sparse_top_k or query.similarity_top_k
    question = Query(query.query_str, filters)
    return hits_by_both(dataset, question, _embedding(query), k, alpha=query.alpha, depth=depth, **groups)


def _diverse(
    dataset: Dataset,
    query: VectorStoreQuery,
    filters: Filter | None,
    groups: Mapping[str, Any],
    *,
    mmr_threshold: float | None = None,
    mmr_prefetch_factor: float | None = None,
    mmr_prefetch_k: int | None = None,
) -> list[Hit]:
    weight = query.mmr_threshold if mmr_threshold is None else mmr_threshold
    k = check_top_k(query.similarity_top_k)
    fetch = mmr_prefetch_k
    if fetch is None:
        try:
            fetch = int(k * (4 if mmr_prefetch_factor is None else mmr_prefetch_factor))
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"mmr_prefetch_factor is a number from 1 up, not {mmr_prefetch_factor!r:.80}") from error
    hits = dataset.search_vector(_embedding(query), max(check_top_k(fetch), k), filters=filters, **groups)
    return diverse(dataset, hits, k, 0.5 if weight is None else weight)


_MMR_OPTIONS: Final = frozenset({"mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k"})
_MODES: Final[
    dict[VectorStoreQueryMode, Callable[[Dataset, VectorStoreQuery, Filter | None, Mapping[str, Any]], list[Hit]]]
] = {
    VectorStoreQueryMode.DEFAULT: _vector_hits,
    VectorStoreQueryMode.SPARSE: _words,
    VectorStoreQueryMode.TEXT_SEARCH: _words,
    VectorStoreQueryMode.HYBRID: _hybrid_hits,
    VectorStoreQueryMode.SEMANTIC_HYBRID: _hybrid_hits,
}


# ── for Pointsman ────────────────────────────────────────────────────────────────────────────────────────────────────


class LlamaIndexRetriever(ForeignRetriever):
    """Adapter for a LlamaIndex retriever; its scores are comparable within its own list only.

    Args:
        retriever: any LlamaIndex retriever.
        name: of its list in traces; its class name by default.
    """

    retriever: TheirRetriever

    def _document_and_score(self, item: NodeWithScore) -> tuple[Document, float | None]:
        return hit_of(item).document, item.score


class LlamaIndexEmbedder(EmbedFunction):
    """Adapter for a LlamaIndex embedding model, if it is to have a name of your own; others are taken as they are.

    Args:
        model: the LlamaIndex model.
        name: identifies the model and its settings, and is stored with the vectors; by default its ``model_name``. If
            it has none, its class name is used, and vectors are not cached between runs.
    """

    def __init__(self, model: BaseEmbedding, name: str | None = None) -> None:
        super().__init__(model, name)


# ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _question(query: QueryBundle | None) -> str:
    if query is None:
        raise InputError("this postprocessor needs the question; give query_str or query_bundle")
    return query.query_str


def _number_nodes(nodes: Sequence[NodeWithScore]) -> list[Document]:
    """The nodes as documents with their positions as ids, since a node may occur twice."""
    return [
        Document(str(number), node.node.get_content(MetadataMode.NONE), node.node.metadata)
        for number, node in enumerate(nodes)
    ]


def _in_order(nodes: Sequence[NodeWithScore], ranking: Sequence[Document]) -> list[NodeWithScore]:
    return [NodeWithScore(node=nodes[int(item.id)].node, score=float(item.metadata["score"])) for item in ranking]


def _document(node: BaseNode) -> Document:
    """Converts a node to a document: its metadata for filters, and its other fields beside that."""
    metadata = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
    node_fields = {"content": metadata.pop("_node_content"), "type": metadata.pop("_node_type")}
    return Document(node.node_id, node.get_content(MetadataMode.NONE), {**metadata, _NODE: node_fields})


def _node(document: Document) -> BaseNode:
    """Return the node that a document was made from; a new one if it was not made from a node."""
    node_fields = document.metadata.get(_NODE)
    if isinstance(node_fields, dict) and {"content", "type"} <= node_fields.keys():
        content = {"_node_content": node_fields["content"], "_node_type": node_fields["type"]}
        try:
            node = metadata_dict_to_node(content, text=document.text)
        except (AttributeError, KeyError, TypeError, ValueError):  # other programs may write anything under that key
            pass
        else:
            if node.node_id == document.id:
                return node
    return TextNode(id_=document.id, text=document.text, metadata=dict(document.metadata))


def _noted_node(hit: Hit, notes: dict[str, Any]) -> NodeWithScore:
    node = _node(hit.document)
    if hit.excerpt is not None:
        node.set_content(hit.excerpt.text)
    return NodeWithScore(node=_annotate(node, notes), score=float(hit.score))


def _annotate(node: BaseNode, notes: dict[str, Any]) -> BaseNode:
    """Put what an answer says of a node into its metadata; a language model reads only why it does not hold.

    Nor does it read a sparse vector there.
    """
    node.metadata.update(notes)
    hidden_keys = [key for key in (SPARSE,) if key in node.metadata]
    node.excluded_embed_metadata_keys += [*notes, *hidden_keys]
    node.excluded_llm_metadata_keys += hidden_keys
    node.excluded_llm_metadata_keys += notes.keys() - {NOT_IN_FORCE}
    return node


def _of_query(query: VectorStoreQuery) -> Filter | None:
    conditions: list[Filter] = []
    if query.filters is not None and query.filters.filters:
        conditions.append(_filter(query.filters))
    if query.node_ids:  # an index passes an empty list when it restricts nothing
        conditions.append(In(ID, tuple(query.node_ids)))
    if query.doc_ids is not None:
        conditions.append(In("ref_doc_id", tuple(query.doc_ids)))
    return And(tuple(conditions)) if conditions else None


def _filter(filters: MetadataFilters) -> Filter:
    """Converts LlamaIndex filters to a Pointsman filter; ``not`` means that none of them matches.

    Raises:
        FilterError: an operator is not supported, or a value cannot be compared.
    """
    operands = tuple(
        _filter(operand) if isinstance(operand, MetadataFilters) else _condition(operand) for operand in filters.filters
    )
    if filters.condition is FilterCondition.NOT:
        return Not(Or(operands))
    return Or(operands) if filters.condition is FilterCondition.OR and operands else And(operands)


def _condition(condition: MetadataFilter) -> Filter:
    key, value, operator = condition.key, cast("Any", condition.value), condition.operator
    make = _OPERATORS.get(operator)
    if make is None:
        raise FilterError(f"{key!r}: there is no filter for {operator.value!r}")
    if operator in _OF_LISTS and not isinstance(value, list):
        raise FilterError(f"{key!r}: {operator.value} takes a list, not {value!r:.80}")
    return make(key, value)


_OF_LISTS: Final = frozenset({FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL})
_OPERATORS: Final[dict[FilterOperator, Callable[[str, Any], Filter]]] = {
    FilterOperator.EQ: equal_to,
    FilterOperator.NE: lambda key, value: Not(equal_to(key, value)),
    FilterOperator.GT: lambda key, value: Range(key, gt=value),
    FilterOperator.GTE: lambda key, value: Range(key, gte=value),
    FilterOperator.LT: lambda key, value: Range(key, lt=value),
    FilterOperator.LTE: lambda key, value: Range(key, lte=value),
    FilterOperator.IN: one_of,
    FilterOperator.NIN: lambda key, value: Not(one_of(key, value)),
    FilterOperator.ANY: lambda key, value: In(key, tuple(value)),
    FilterOperator.ALL: lambda key, value: And(tuple(Equals(key, element) for element in value)),
    FilterOperator.CONTAINS: Equals,
    FilterOperator.TEXT_MATCH: Contains,
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda key, value: Contains(key, value, ignore_case=True),
    FilterOperator.IS_EMPTY: lambda key, _: Or((Not(Exists(key)), Equals(key, ""))),
}
