"""What the comparison with Qdrant's integrations says exists on our side, and leaves out nothing of theirs."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from pointsman import Dataset, Document
from pointsman.models.scripted import HashingEmbedder

SECTION: Final = (
    (Path(__file__).parents[1] / "docs" / "comparison.md")
    .read_text("utf-8")
    .partition("## Beside Qdrant's integrations")[2]
)
ADAPTERS: Final = {"LangChain": "langchain", "LlamaIndex": "llama_index", "Haystack": "haystack"}
THEIRS: Final = {
    "LangChain": ("langchain_qdrant", "QdrantVectorStore"),
    "LlamaIndex": ("llama_index.vector_stores.qdrant", "QdrantVectorStore"),
    "Haystack": ("haystack_integrations.document_stores.qdrant", "QdrantDocumentStore"),
}
OF_THE_FRAMEWORK: Final = {"class_name", "model_post_init", "client", "to_dict", "from_dict"}


def rows(framework: str) -> list[list[str]]:
    cells = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith(f"| {framework} |")]
    return [row if len(row) == 3 else [row[0], "", row[-1]] for row in cells]


@pytest.mark.parametrize("framework", ADAPTERS)
def test_names_on_our_side_exist(framework: str) -> None:
    adapter = import_module(f"pointsman.integrations.{ADAPTERS[framework]}")
    names = [name for row in rows(framework) for name in re.findall(r"`(Pointsman\w+(?:\.\w+)?)[`(]", row[2])]
    assert names
    for name in names:
        class_name, _, method = name.partition(".")
        assert not method or callable(getattr(getattr(adapter, class_name), method))
        assert hasattr(adapter, class_name)
    for row in rows(framework):
        if "the same of `PointsmanDocumentStore`" in row[2]:
            for method in re.findall(r"`(\w+)`", row[1]):
                assert callable(getattr(adapter.PointsmanDocumentStore, method))


@pytest.mark.parametrize("framework", THEIRS)
def test_no_public_method_of_theirs_is_missing(framework: str) -> None:
    module, class_name = THEIRS[framework]
    cls = getattr(pytest.importorskip(module), class_name)
    methods = {
        name.removesuffix("_async")
        for base in cls.__mro__
        if "qdrant" in base.__module__
        for name, member in vars(base).items()
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, classmethod | staticmethod))
    }
    table_names = {name for row in rows(framework) for name in re.findall(r"`(\w+)`", row[1])}
    assert methods - table_names - OF_THE_FRAMEWORK == set()


@pytest.mark.parametrize("distance", ["dot product", "Euclidean"])
def test_more_columns_make_other_distances_cosines(distance: str) -> None:
    chance = np.random.default_rng(7)
    rows, queries = chance.normal(size=(300, 8)) * chance.uniform(0.2, 3, (300, 1)), chance.normal(size=(20, 8))
    if distance == "dot product":
        columns, query_rows, worth = rows, queries, queries @ rows.T
    else:
        columns = np.column_stack([rows, -(rows**2).sum(axis=1) / 2])
        query_rows = np.column_stack([queries, np.ones(20)])
        worth = -((queries[:, None] - rows[None]) ** 2).sum(axis=2)
    short_rows = columns / np.linalg.norm(columns, axis=1).max()
    document_rows = np.column_stack([short_rows, np.sqrt(np.maximum(0, 1 - (short_rows**2).sum(axis=1)))])
    dataset = Dataset("rows", embedder=HashingEmbedder(dimensions=document_rows.shape[1]))
    dataset.add([Document(str(n), "") for n in range(300)], vectors=document_rows)
    for query, values in zip(query_rows, worth, strict=True):
        hits = dataset.search_vector([*query, 0.0], 10)
        assert [int(hit.id) for hit in hits] == np.argsort(-values)[:10].tolist()
