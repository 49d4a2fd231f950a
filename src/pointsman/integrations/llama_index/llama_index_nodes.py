"""Nodes of LlamaIndex to documents and hits of Pointsman, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from pointsman.integrations.framework_sources import with_notes
from pointsman.tools.errors import InputError
from pointsman.values.types import Document, Hit, Provenance, Query
from pointsman.values.wire import NOT_IN_FORCE

if TYPE_CHECKING:
    from collections.abc import Sequence


_NODE: Final = "_node"
"""The metadata key for a node's other fields: a mapping that filters ignore."""


def query_of(query: str | QueryBundle) -> Query:
    """Converts a LlamaIndex query to a Pointsman query."""
    return Query(query if isinstance(query, str) else query.query_str)


def node_of(hit: Hit) -> NodeWithScore:
    """Converts a hit to a node with its score; the text is the excerpt if there is one.

    The metadata of a node that does not hold says why, as ``not_in_force``; a language model reads it with the text.
    """
    return noted_node(*with_notes([hit])[0])


def hit_of(node_with_score: NodeWithScore, rank: int = 1, source: str = "llama_index") -> Hit:
    """Converts a node with a score to a hit; one without a score gets 1 / rank."""
    score = node_with_score.score
    document = Document(
        node_with_score.node.node_id, node_with_score.node.get_content(MetadataMode.NONE), node_with_score.node.metadata
    )
    return Hit(document, 1 / rank if score is None else score, None, (Provenance(source, rank, score),))


def question_of(query: QueryBundle | None) -> str:
    """Return the question of a postprocessor.

    Raises:
        InputError: it has none.
    """
    if query is None:
        raise InputError("this postprocessor needs the question; give query_str or query_bundle")
    return query.query_str


def number_nodes(nodes: Sequence[NodeWithScore]) -> list[Document]:
    """The nodes as documents with their positions as ids, since a node may occur twice."""
    return [
        Document(str(number), node.node.get_content(MetadataMode.NONE), node.node.metadata)
        for number, node in enumerate(nodes)
    ]


def nodes_in_order(nodes: Sequence[NodeWithScore], ranking: Sequence[Document]) -> list[NodeWithScore]:
    """The nodes in the order of a ranking, with its scores; the ids are their positions."""
    return [NodeWithScore(node=nodes[int(item.id)].node, score=float(item.metadata["score"])) for item in ranking]


def document_of(node: BaseNode) -> Document:
    """Converts a node to a document: its metadata for filters, and its other fields beside that."""
    metadata = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
    node_fields = {"content": metadata.pop("_node_content"), "type": metadata.pop("_node_type")}
    return Document(node.node_id, node.get_content(MetadataMode.NONE), {**metadata, _NODE: node_fields})


def node_of_document(document: Document) -> BaseNode:
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


def noted_node(hit: Hit, notes: dict[str, Any]) -> NodeWithScore:
    """The hit as a node, with what the answer says of it, and its excerpt as text if there is one."""
    node = node_of_document(hit.document)
    if hit.excerpt is not None:
        node.set_content(hit.excerpt.text)
    return NodeWithScore(node=annotate(node, notes), score=float(hit.score))


def annotate(node: BaseNode, notes: dict[str, Any]) -> BaseNode:
    """Put what an answer says of a node into its metadata; a language model reads only why it does not hold."""
    node.metadata.update(notes)
    node.excluded_embed_metadata_keys += notes
    node.excluded_llm_metadata_keys += notes.keys() - {NOT_IN_FORCE}
    return node
