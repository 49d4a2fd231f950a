"""Random filters: against the frameworks' own evaluators, and on every store against `Filter.matches` (Q3, X1).

    python benchmarks/filters.py [--count 20000] [--stores local,postgresql,opensearch]

The first half puts filters in LangChain's, LlamaIndex's and Haystack's form to their own in-memory evaluators and to
ours. LangChain's is that of its FAISS store, in ``langchain-community``, which this needs beside the extras. Where
theirs raises an error, such as comparing a text with a number, there is nothing to compare, and the case is counted
apart. Documented differences are not drawn: a boolean is no number (``True == 1`` there), and a list stands for its
members (there it is one value).

The second half counts random trees of every kind of condition over odd metadata on each store. What a store refuses,
saying so, is counted apart. PostgreSQL and OpenSearch are started for it, as for the tests.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pointsman
from pointsman.evaluation.conformance.stores.store_samples import EMBEDDER, odd_documents, random_filter, vectors_of
from pointsman.tools.errors import FilterError, UnmetNeedError
from pointsman.values.filters import parse_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pointsman.store.base_store import Store

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

TEXTS = ("", "a", "A", "ab", "Signal", "signal lamp", "信号灯", "Семафор", "семафор")
NUMBERS = (-2, 0, 1, 1.0, 2.5, 2**53, 2**53 + 1, 1e300)
DATES = ("2024-05-01T00:00:00+03:00", "2024-04-30T21:00:00+00:00", "2024-05-01T00:00:00+00:00", "2025-01-01T00:00:00Z")
Case = tuple[Any, dict[str, Any]]


def metadata(chance: random.Random) -> dict[str, Any]:
    """Of a document; any key may be missing."""
    values: dict[str, Any] = {
        "text": chance.choice(TEXTS),
        "number": chance.choice(NUMBERS),
        "any": chance.choice((*TEXTS, *NUMBERS)),
        "list": chance.choices(TEXTS[1:], k=chance.randrange(1, 4)),
        "date": chance.choice(DATES),
        "deep": {"text": chance.choice(TEXTS), "deeper": {"number": chance.choice(NUMBERS)}},
    }
    return {key: value for key, value in values.items() if chance.random() < 0.8}


def operand(chance: random.Random, key: str) -> Any:
    """A value that a condition on a key is written with."""
    if key == "number":
        return chance.choice(NUMBERS)
    return chance.choice(TEXTS if key == "text" else (*TEXTS, *NUMBERS))


def langchain(chance: random.Random) -> tuple[bool, bool]:
    """A filter as LangChain's FAISS store has them."""
    from langchain_community.vectorstores.faiss import FAISS

    def tree(depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        if depth and chance.random() < 0.5:
            if chance.random() < 0.3:
                theirs, ours = tree(depth - 1)
                return {"$not": theirs}, {"$not": ours}
            name = chance.choice(("$and", "$or"))
            parts = [tree(depth - 1) for _ in range(chance.randrange(1, 4))]
            return {name: [one for one, _ in parts]}, {name: [one for _, one in parts]}
        key = chance.choice(("text", "number", "any"))
        name = chance.choice(("$eq", "$neq", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", ""))
        value = operand(chance, key)
        if name in {"$in", "$nin"}:
            value = [operand(chance, key) for _ in range(chance.randrange(4))]
        if not name:
            return {key: value}, {key: value}
        return {key: {name: value}}, {key: {"$ne" if name == "$neq" else name: value}}

    theirs, ours = tree(3)
    document = metadata(chance)
    return FAISS._create_filter_func(theirs)(document), parse_filter(ours).matches(document)


def llama_index(chance: random.Random) -> tuple[bool, bool]:
    """Filters as LlamaIndex has them; its evaluator takes one level."""
    from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
    from llama_index.core.vector_stores.utils import build_metadata_filter_fn

    from pointsman.integrations.llama_index.llama_index_queries import filter_of

    def condition() -> MetadataFilter:
        operator = chance.choice(list(FilterOperator))
        key, value = chance.choice(("text", "number", "any")), None
        if operator in {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}:
            key = "text"
        if operator in {FilterOperator.ANY, FilterOperator.ALL, FilterOperator.CONTAINS}:
            key = "list"
        value = operand(chance, key) if key != "list" else chance.choice(TEXTS)
        if operator in {FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL}:
            texts = key == "list" or chance.random() < 0.5
            value = chance.choices(TEXTS if texts else NUMBERS, k=3)
        return MetadataFilter(key=key, value=value, operator=operator)

    wanted = MetadataFilters(
        filters=[condition() for _ in range(chance.randrange(1, 4))], condition=chance.choice(list(FilterCondition))
    )
    document = metadata(chance)
    return bool(build_metadata_filter_fn(lambda _: document, wanted)("node")), filter_of(wanted).matches(document)


def haystack(chance: random.Random) -> tuple[bool, bool]:
    """Filters as Haystack has them."""
    from haystack import Document
    from haystack.utils.filters import document_matches_filter

    from pointsman.integrations.haystack import filter_of

    def tree(depth: int) -> dict[str, Any]:
        if depth and chance.random() < 0.5:
            parts = [tree(depth - 1) for _ in range(chance.randrange(1, 4))]
            return {"operator": chance.choice(("AND", "OR", "NOT")), "conditions": parts}
        key = chance.choice(("text", "number", "any", "date", "deep.text", "deep.deeper.number", "id"))
        operator = chance.choice(("==", "!=", "in", "not in", ">", ">=", "<", "<="))
        if operator[0] in "<>":
            key = chance.choice(("number", "date", "deep.deeper.number"))
        kind = key.rpartition(".")[2]

        def one() -> Any:
            if chance.random() < 0.1:
                return None
            return chance.choice(DATES) if key == "date" else operand(chance, kind) if key != "id" else "a"

        value = [one() for _ in range(chance.randrange(4))] if "in" in operator else one()
        return {"field": key if key == "id" else f"meta.{key}", "operator": operator, "value": value}

    wanted, document = tree(3), Document(id=chance.choice("ab"), content="x", meta=metadata(chance))
    ours = filter_of(wanted).matches({**document.meta, "_id": document.id})
    return document_matches_filter(wanted, document), ours


def compared(name: str, draw: Callable[[random.Random], tuple[bool, bool]], count: int) -> int:
    """Put so many filters to both; gives how many answers differ."""
    differences = errors = 0
    for seed in range(count):
        try:
            theirs, ours = draw(random.Random(seed))
        except (TypeError, FilterError, ValueError) as error:
            if not _theirs(error):
                raise
            errors += 1
            continue
        if theirs is not ours:
            differences += 1
            print(f"  {name} {seed}: theirs {theirs}, ours {ours}")
    print(f"{name}: {count - errors:,} filters compared, {differences} differences; {errors:,} that it cannot compute")
    return differences


def _theirs(error: BaseException) -> bool:
    """Whether the other evaluator raised it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and not frame.tb_frame.f_code.co_filename.startswith(str(Path(pointsman.__file__).parent))


def stores(names: list[str]) -> Iterator[tuple[str, Store]]:
    """Each store, empty, while it is asked."""
    about = {"description": "", "indexing_technique": "hybrid"}
    if "local" in names:
        from pointsman.store.local.local_store import LocalStore

        with tempfile.TemporaryDirectory() as folder:
            store = LocalStore(Path(folder) / "odd", {"name": "odd", **about})
            yield "local", store
            store.close()
    if "postgresql" in names:
        from pointsman.store.postgres import PostgresBackend
        from postgres_kit import PostgresServer

        server = PostgresServer()
        with PostgresBackend(f"{server.url}?schema=filters") as backend:
            yield "postgresql", backend.create("odd", about)
        server.stop()
    if "opensearch" in names:
        from opensearch_kit import Cluster
        from pointsman.store.opensearch import OpenSearchBackend

        cluster = Cluster(1)
        with OpenSearchBackend(f"{cluster.url}/filters") as backend:
            yield "opensearch", backend.create("odd", about)
        cluster.stop()


def counted(name: str, store: Store, count: int) -> int:
    """Put so many trees to a store; gives how many of its counts are wrong."""
    documents = odd_documents(150)
    store.write(documents, vectors_of(documents), EMBEDDER)
    fields = [one.fields for one in documents]
    wrong = refused = 0
    begun = time.perf_counter()
    for seed in range(count):
        tree = random_filter(random.Random(seed))
        try:
            found = store.count(tree)
        except UnmetNeedError:
            refused += 1
            continue
        if found != sum(map(tree.matches, fields)):
            wrong += 1
            print(f"  {name} {seed}: {found} for {tree!s:.300}")
    seconds = time.perf_counter() - begun
    print(f"{name}: {count:,} trees, {wrong} wrong, {refused:,} refused in words, {seconds:.0f} s")
    return wrong


def main() -> int:
    """Print the figures; gives how many answers are wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="of filters, for each")
    parser.add_argument("--stores", default="local,postgresql,opensearch", help="with commas between them")
    parser.add_argument("--frameworks", default="langchain,llama_index,haystack", help="with commas between them")
    asked = parser.parse_args()
    evaluators = {"langchain": langchain, "llama_index": llama_index, "haystack": haystack}
    wrong = sum(compared(name, evaluators[name], asked.count) for name in asked.frameworks.split(",") if name)
    return wrong + sum(counted(name, store, asked.count) for name, store in stores(asked.stores.split(",")))


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
