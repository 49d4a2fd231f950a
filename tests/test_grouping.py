"""``group_by``: at most so many hits with one value of a metadata key, searched for until there are enough of them."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import pointsman
from pointsman import Document, InputError, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.refine.diversity import Grouping
from pointsman.retrieval.request import SearchRequest
from pointsman.tools.errors import StoreError

if TYPE_CHECKING:
    from postgres_kit import PostgresServer

LONG, SHORT = "book", ("note-1", "note-2", "note-3")
QUESTION = "railway switch"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A book whose 400 passages all match better than the three notes do."""
    with Workspace(tmp_path_factory.mktemp("groups") / "work", embedder=HashingEmbedder()) as workspace:
        passages = [
            Document(f"{LONG}#{n}", f"railway switch, railway switch {n}", {"file": LONG, "part": {"no": n % 7}})
            for n in range(400)
        ]
        notes = [
            Document(name, f"a note about tea, coffee, a railway and more of number {n}", {"file": name, "tags": tags})
            for n, (name, tags) in enumerate(zip(SHORT, (["a", "b"], ["b"], ["c"]), strict=True))
        ]
        workspace.dataset("rails").add([*passages, *notes])
        yield workspace


def ids_for(workspace: Workspace, k: int = 4, **options: Any) -> list[str]:
    return [hit.id for hit in workspace.search(QUESTION, k, refuse=False, **options)]


@pytest.mark.parametrize("strategy", ["auto", "hybrid", "bm25", "vector", "rrf", "z_score", "multi_query"])
def test_groups_are_filled_however_many_candidates_of_one_come_first(workspace: Workspace, strategy: str) -> None:
    assert {id_.partition("#")[0] for id_ in ids_for(workspace, 100, strategy=strategy)} == {LONG}
    ids = ids_for(workspace, strategy=strategy, group_by="file")
    assert ids[0].startswith(LONG)
    assert sorted(ids[1:]) == list(SHORT)


def test_hits_are_those_of_a_longer_answer_and_in_its_order(workspace: Workspace) -> None:
    everything = workspace.search(QUESTION, 403, strategy="hybrid", refuse=False)
    counts: Counter[str] = Counter()
    expected = []
    for hit in everything:
        counts[hit.metadata["file"]] += 1
        if counts[hit.metadata["file"]] <= 2:
            expected.append((hit.id, hit.score, hit.relevance))
    answer = workspace.search(QUESTION, 10, strategy="hybrid", refuse=False, group_by="file", group_size=2)
    assert [(hit.id, hit.score, hit.relevance) for hit in answer] == expected


def test_shortage_is_said(workspace: Workspace) -> None:
    answer = workspace.search(QUESTION, 10, refuse=False, group_by="file")
    decision = next(decision for decision in answer.decisions if decision.what == "group_by")
    assert (len(answer), decision.value, decision.by) == (4, "file", "request")
    first = "at most 1 with the same value: 4 hits of 4 groups"
    assert decision.reason == f"{first}; fewer than 10, as no others were found"
    assert answer.degraded == ()


def test_explanation_of_a_hit_that_gave_way(workspace: Workspace) -> None:
    answer = workspace.search(QUESTION, 4, refuse=False, group_by="file")
    other = next(hit.id for hit in workspace.search(QUESTION, 5, refuse=False) if hit.id not in {h.id for h in answer})
    assert f"file '{LONG}' has its 1 already" in str(answer.explain(other))


def test_documents_without_the_key_are_not_limited(workspace: Workspace) -> None:
    ids = ids_for(workspace, 10, group_by="tags", filters="file = book")
    assert len(ids) == 10


def test_paths_and_several_values(workspace: Workspace) -> None:
    parts = [id_ for id_ in ids_for(workspace, 7, group_by="part.no") if id_.startswith(LONG)]
    assert len({int(id_.partition("#")[2]) % 7 for id_ in parts}) == len(parts) == 7
    notes = ids_for(workspace, 5, group_by="tags", filters="exists(tags)")
    assert len(notes) == 2
    assert SHORT[2] in notes


def test_filters_hold_in_further_searches(workspace: Workspace) -> None:
    assert ids_for(workspace, 9, group_by="file", filters="file != note-2")[1:] in (
        [SHORT[0], SHORT[2]],
        [SHORT[2], SHORT[0]],
    )


def test_several_datasets_share_groups(workspace: Workspace) -> None:
    workspace.dataset("more").add([Document("copy", "railway switch railway switch", {"file": LONG})])
    try:
        ids = ids_for(workspace, 9, group_by="file")
        assert sum(id_.startswith(LONG) or id_ == "copy" for id_ in ids) == 1
    finally:
        workspace.drop("more")


@pytest.fixture(params=["folder", "postgresql", "opensearch"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    """Of each kind of store, one that nobody has asked anything."""
    place = str(tmp_path / "work")
    if request.param == "postgresql":
        place = f"{request.getfixturevalue('postgres').url}?schema=t{uuid.uuid4().hex[:12]}"
    elif request.param == "opensearch":
        place = f"{request.getfixturevalue('opensearch').url}/t{uuid.uuid4().hex[:12]}"
    with pointsman.open(place, embedder=HashingEmbedder()) as workspace:
        documents = [Document(f"{LONG}#{n}", f"railway switch {n}", {"file": LONG}) for n in range(9)]
        documents.append(Document("tea", "a note about tea", {"file": "note", "tags": ["a"]}))
        workspace.dataset("rails").add(documents, access=None if request.param == "opensearch" else ["everyone"])
        yield workspace


def test_unknown_key_is_named_with_the_nearest(fresh: Workspace) -> None:
    """Always: also before a filter was used, and in a view."""
    note = "group_by: no document that was searched has the key 'flie'; did you mean 'file'?"
    options: dict[str, Any] = {"refuse": False}
    for has_access in (False, True):
        if has_access:
            if not getattr(fresh.backend, "has_views", False):
                break
            fresh.switch_access(on=True)
            options["principals"] = []
        answers = [
            fresh.search(QUESTION, 3, group_by="flie", **options),
            asyncio.run(fresh.asearch(QUESTION, 3, group_by="flie", **options)),
            *fresh.search_many([QUESTION, "tea"], 3, group_by="flie", **options),
        ]
        assert [answer.degraded for answer in answers] == [(note,)] * 4
        assert [len(answer) for answer in answers] == [3] * 4
        # No candidate has this key, and another document does.
        answer = fresh.search(QUESTION, 3, group_by="tags", filters=f"file = {LONG}", strategy="bm25", **options)
        assert answer.degraded == ()


def test_of_an_unknown_key_a_store_is_asked_only_if_no_candidate_has_it(
    fresh: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fresh.dataset("rails").store
    monkeypatch.setattr(type(store), "page", lambda *_: pytest.fail("asked"))
    monkeypatch.setattr(type(store), "metadata_keys", lambda _: pytest.fail("asked"))
    for key in (None, "file"):
        fresh.search(QUESTION, 3, refuse=False, group_by=key)


def test_a_store_that_cannot_say_whether_it_has_a_key_is_named(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise StoreError("the disk is gone")

    store = workspace.dataset("rails").store
    monkeypatch.setattr(type(store), "metadata_keys", lambda _: None)
    monkeypatch.setattr(type(store), "page", fail)
    answer = workspace.search(QUESTION, 3, refuse=False, group_by="flie")
    assert answer.degraded == (
        "group_by: no candidate has the key 'flie', and rails cannot say whether others have; the disk is gone",
    )
    assert len(answer) == 3


def test_further_searches_end(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman.retrieval.stages.grouping.ROUNDS", 0)
    answer = workspace.search(QUESTION, 4, refuse=False, strategy="bm25", group_by="file")
    assert answer.degraded == ("group_by: 0 further searches found 1 of 4 hits; there may be others",)


def test_async_and_several_questions(workspace: Workspace) -> None:
    expected = ids_for(workspace, group_by="file")
    answer = asyncio.run(workspace.asearch(QUESTION, 4, refuse=False, group_by="file"))
    assert [hit.id for hit in answer] == expected
    contexts = workspace.search_many([QUESTION, "tea"], 4, refuse=False, group_by="file")
    assert [hit.id for hit in contexts[0]] == expected
    assert len({hit.metadata["file"] for hit in contexts[1]}) == len(contexts[1]) == 4


def test_promise_of_coverage_does_not_hold_for_groups(workspace: Workspace) -> None:
    recipes = [
        workspace.engine.resolve(SearchRequest.of(QUESTION, 5, options), [workspace.dataset("rails")])
        for options in ({}, {"group_by": "file"})
    ]
    assert recipes[1].way == f"{recipes[0].way}, 1 for each file"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_by": ""}, "group_by is a metadata key such as 'source', or None, not ''"),
        ({"group_by": ["a"]}, "group_by is a metadata key"),
        ({"group_by": "file", "group_size": 0}, "group_size is an int from 1 up, not 0"),
        ({"group_by": "file", "group_size": True}, "group_size is an int from 1 up, not True"),
        ({"group_size": 2}, "group_size=2 needs group_by, the metadata key"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SearchRequest.of("tea", 5, options)


def test_full_groups_of_every_kind_are_left_out() -> None:
    grouping = Grouping("value", 1)
    values = ["text", 2, 2.5, True, "2024-05-01T02:00:00+03:00"]
    documents = [Document(str(n), "text", {"value": value}) for n, value in enumerate(values)]
    count, full_groups = grouping.count([*documents, *documents])
    assert count == len(values)
    outside = grouping.outside(full_groups, None)
    assert not any(outside.matches(document.fields) for document in documents)
    assert outside.matches({"value": False})
    assert outside.matches({})


def test_cost_without_grouping(workspace: Workspace) -> None:
    sys.modules.pop("pointsman.retrieval.stages.grouping", None)
    workspace.search(QUESTION, 4)
    assert "pointsman.retrieval.stages.grouping" not in sys.modules


OPTIONS: Final[Mapping[str, Any]] = {"strategy": "bm25", "refuse": False, "group_by": "file"}


def test_langchain_takes_it_as_an_option(workspace: Workspace) -> None:
    pytest.importorskip("langchain_core")
    from pointsman.integrations.langchain import PointsmanRetriever, PointsmanVectorStore

    dataset = workspace.dataset("rails")
    for documents in (
        PointsmanRetriever(source=dataset, k=4, options=dict(OPTIONS)).invoke(QUESTION),
        PointsmanVectorStore(dataset).similarity_search(QUESTION, k=4, group_by="file"),
    ):
        assert sorted(document.metadata["file"] for document in documents) == [LONG, *SHORT]


def test_llama_index_takes_it_as_an_option(workspace: Workspace) -> None:
    pytest.importorskip("llama_index.core")
    from pointsman.integrations.llama_index import PointsmanRetriever

    nodes = PointsmanRetriever(workspace.dataset("rails"), similarity_top_k=4, **OPTIONS).retrieve(QUESTION)
    assert sorted(node.metadata["file"] for node in nodes) == [LONG, *SHORT]


def test_haystack_takes_it_as_an_option(workspace: Workspace, tmp_path: Path) -> None:
    pytest.importorskip("haystack")
    from pointsman.integrations.haystack import PointsmanDocumentStore, PointsmanRetriever

    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as copy:
        copy.dataset("rails").add(workspace.dataset("rails").store.documents())
    store = PointsmanDocumentStore(str(tmp_path / "work"), "rails", embedder="hashing")
    answer = PointsmanRetriever(store, top_k=4, options={"group_by": "file"}).run(QUESTION)
    assert sorted(document.meta["file"] for document in answer["documents"]) == [LONG, *SHORT]
    store.close()


VECTOR: Final = HashingEmbedder().embed_queries([QUESTION])[0].tolist()


def files_of(hits: Iterable[Any]) -> list[str]:
    return sorted(hit.metadata["file"] for hit in hits)


@pytest.mark.parametrize("size", [1, 3])
def test_search_by_vector_is_cut_as_a_longer_one(workspace: Workspace, size: int) -> None:
    dataset = workspace.dataset("rails")
    counts: Counter[str] = Counter()
    expected: list[tuple[str, float, int]] = []
    for hit in dataset.search_vector(VECTOR, 403):
        counts[hit.metadata["file"]] += 1
        if counts[hit.metadata["file"]] <= size:
            expected.append((hit.id, hit.score, len(expected) + 1))
    for k in (1, 4, 100):
        hits = dataset.search_vector(VECTOR, k, group_by="file", group_size=size)
        assert [(hit.id, hit.score, hit.provenance[0].rank) for hit in hits] == expected[:k]
    filtered_hits = dataset.search_vector(VECTOR, 4, filters="file != note-2", group_by="file")
    assert files_of(filtered_hits) == [LONG, SHORT[0], SHORT[2]]


def test_search_by_vector_takes_few_rounds(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, depths = workspace.dataset("rails"), []
    search = type(dataset.store).search

    def count(store: Any, queries: Any) -> Any:
        depths.append(queries[0].depth)
        return search(store, queries)

    monkeypatch.setattr(type(dataset.store), "search", count)
    assert len(dataset.search_vector(VECTOR, 8, group_by="part.no", filters="file = book")) == 7
    assert len(depths) <= 4


def test_search_by_vector_says_that_no_document_has_the_key(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(workspace.dataset("rails").search_vector(VECTOR, 3, group_by="flie")) == 3
    assert "none of the 3 nearest documents has the key 'flie'" in caplog.text


@pytest.mark.parametrize("groups", [{"group_by": ""}, {"group_size": 2}, {"group_by": "file", "group_size": 0}])
def test_search_by_vector_refuses_invalid_groups(workspace: Workspace, groups: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="group_"):
        workspace.dataset("rails").search_vector(VECTOR, 3, **groups)


def test_langchain_groups_by_vector(workspace: Workspace) -> None:
    pytest.importorskip("langchain_core")
    from pointsman.integrations.langchain import PointsmanVectorStore

    store = PointsmanVectorStore(workspace.dataset("rails"))
    for documents in (
        store.similarity_search_by_vector(VECTOR, 4, group_by="file"),
        store.max_marginal_relevance_search_by_vector(VECTOR, 4, group_by="file"),
        store.max_marginal_relevance_search(QUESTION, 4, group_by="file"),
    ):
        assert files_of(documents) == [LONG, *SHORT]
    assert len(store.similarity_search_by_vector(VECTOR, 4, group_by="file", group_size=2, offset=1)) == 4


@pytest.mark.parametrize("mode", ["default", "sparse", "text_search", "hybrid", "mmr"])
@pytest.mark.parametrize("alpha", [None, 0.5])
def test_llama_index_groups_in_every_mode(workspace: Workspace, mode: str, alpha: float | None) -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

    from pointsman.integrations.llama_index import PointsmanVectorStore

    query = VectorStoreQuery(VECTOR, 4, query_str=QUESTION, mode=VectorStoreQueryMode(mode), alpha=alpha)
    answer = PointsmanVectorStore(workspace.dataset("rails")).query(query, group_by="file")
    assert files_of(answer.nodes or []) == [LONG, *SHORT]


@pytest.mark.parametrize("embedder", ["hashing", None])
def test_haystack_groups_by_vector(tmp_path: Path, embedder: str | None) -> None:
    pytest.importorskip("haystack")
    from haystack import Document as TheirDocument

    from pointsman.integrations.haystack import (
        PointsmanDocumentStore,
        PointsmanEmbeddingRetriever,
        PointsmanHybridRetriever,
    )

    store = PointsmanDocumentStore(str(tmp_path / "work"), embedder=embedder)
    rows = HashingEmbedder().embed_documents(["railway switch", "a note about a railway"]).tolist()
    store.write_documents(
        [
            TheirDocument(f"{file}#{n}", content="a railway", meta={"file": file}, embedding=rows[min(rest, 1)])
            for rest, file in enumerate((LONG, *SHORT))
            for n in range(1 if rest else 90)
        ]
    )
    by_vector = PointsmanEmbeddingRetriever(store, top_k=4, group_by="file")
    both = PointsmanHybridRetriever(store, top_k=4)
    for answer in (
        by_vector.run(VECTOR),
        PointsmanEmbeddingRetriever.from_dict(by_vector.to_dict()).run(VECTOR),
        asyncio.run(by_vector.run_async(VECTOR)),
        both.run("railway", VECTOR, group_by="file"),
        asyncio.run(both.run_async("railway", VECTOR, group_by="file")),
    ):
        assert sorted(document.meta["file"] for document in answer["documents"]) == [LONG, *SHORT]
    assert len(by_vector.run(VECTOR, group_size=2)["documents"]) == 4
    with pytest.raises(ValueError, match="group_size is an int from 1 up"):
        PointsmanEmbeddingRetriever(store, group_by="file", group_size=0)
    store.close()


def test_postgresql_fills_groups(postgres: PostgresServer) -> None:
    url = f"{postgres.url}?schema=t{uuid.uuid4().hex[:12]}"
    with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails").add(
            [Document(f"{LONG}#{n}", f"railway switch, railway switch {n}", {"file": LONG}) for n in range(150)]
            + [Document(name, "a note about tea and a railway", {"file": name}) for name in SHORT]
        )
        for strategy in ("bm25", "hybrid", "rrf"):
            ids = ids_for(workspace, strategy=strategy, group_by="file")
            assert ids[0].startswith(LONG)
            assert sorted(ids[1:]) == list(SHORT)
        hits = workspace.dataset("rails").search_vector(VECTOR, 4, group_by="file")
        assert files_of(hits) == [LONG, *SHORT]
