"""What the comparison with Qdrant's integrations says exists on our side, and leaves out nothing of theirs."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

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
