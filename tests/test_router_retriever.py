"""Retrievers, query engines, text and images: whoever follows a selector."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from pointsman import BaseRetriever, Document, Hit, Query
from pointsman.retrieval.plan.router_retriever import (
    CombinedResponse,
    ImageCueSelector,
    MultiIndexQueryEngine,
    MultiModalRetriever,
    RouterRetriever,
)
from pointsman.retrieval.plan.routers import image_cue
from pointsman.selector.base_selector import BaseSelector, Choices, SelectorResult, SingleSelection, ToolMetadata
from pointsman.tools.errors import InputError, RetrievalError


class FixedSelector(BaseSelector):
    """Chooses what it was told to, and remembers what it was shown."""

    def __init__(self, *indices: int) -> None:
        self.indices, self.allow_abstain = indices, not indices
        self.calls: list[tuple[Any, Query]] = []

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        self.calls.append((choices, Query.of(query)))
        return SelectorResult([SingleSelection(index, "as told") for index in self.indices])


class FixedRetriever(BaseRetriever):
    def __init__(self, *ids: str) -> None:
        self.ids = ids
        self.calls: list[tuple[str | Query, int]] = []

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        self.calls.append((query, top_k))
        return [Hit(Document(id_, id_), 1 / rank) for rank, id_ in enumerate(self.ids, 1)][:top_k]


class Failing(BaseRetriever):
    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        raise LookupError("out of order")


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def retrieve_both_ways(router: RouterRetriever, query: str, top_k: int = 10) -> list[Hit]:
    hits = router.retrieve(query, top_k)
    assert asyncio.run(router.aretrieve(query, top_k)) == hits
    return hits


def test_one_chosen_answers_alone_and_unchanged() -> None:
    left, right = FixedRetriever("a"), FixedRetriever("b", "c")
    selector = FixedSelector(1)
    router = RouterRetriever([left, right], ["first", "second"], selector)
    assert retrieve_both_ways(router, "q", 1) == FixedRetriever("b", "c").retrieve("q", 1)
    assert not left.calls
    assert right.calls[0] == (Query("q"), 1)
    assert selector.calls[0][0] == (ToolMetadata("retriever_0", "first"), ToolMetadata("retriever_1", "second"))


def test_several_chosen_are_fused_by_reciprocal_rank() -> None:
    router = RouterRetriever(
        [FixedRetriever("a", "b"), FixedRetriever("x"), FixedRetriever("b", "c")],
        ["", "", ""],
        FixedSelector(0, 2),
        names=list("lmr"),
    )
    hits = retrieve_both_ways(router, "q")
    assert ids(hits) == ["b", "a", "c"]
    assert hits[0].score == pytest.approx(1 / 62 + 1 / 61)
    assert [(step.source, step.rank, step.score) for step in hits[0].provenance] == [
        *(("l", 2, 0.5), ("r", 1, 1.0), ("fuse", 1, hits[0].score))
    ]
    assert ids(retrieve_both_ways(router, "q", 1)) == ["a"]  # each is asked for one, and the first list's comes first


def test_the_same_id_in_two_datasets_is_two_documents() -> None:
    class DatasetRetriever(BaseRetriever):
        def __init__(self, dataset: str) -> None:
            self.dataset = dataset

        def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
            return [Hit(Document("1", self.dataset), 1.0, self.dataset)]

    router = RouterRetriever([DatasetRetriever("x"), DatasetRetriever("y")], ["", ""], FixedSelector(0, 1))
    assert [hit.dataset for hit in retrieve_both_ways(router, "q")] == ["x", "y"]


def test_several_are_asked_at_once() -> None:
    meeting = threading.Barrier(2, timeout=60)

    class Waiting(BaseRetriever):
        def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
            meeting.wait()  # passes only while the other one is here too
            return []

    assert retrieve_both_ways(RouterRetriever([Waiting(), Waiting()], ["", ""], FixedSelector(0, 1)), "q") == []


def test_one_of_several_failing_is_recorded_and_the_others_answer(caplog: pytest.LogCaptureFixture) -> None:
    router = RouterRetriever([Failing(), FixedRetriever("a")], ["", ""], FixedSelector(0, 1))
    with caplog.at_level(logging.WARNING):
        answer = router.routed("q")
    assert list(answer.answers) == ["retriever_1"]
    assert isinstance(answer.failures["retriever_0"], LookupError)
    assert "out of order" in caplog.text
    assert ids(retrieve_both_ways(router, "q")) == ["a"]
    assert asyncio.run(router.arouted("q")).failures.keys() == answer.failures.keys()


@pytest.mark.parametrize("asynchronously", [False, True])
def test_all_failing_carries_every_cause(asynchronously: bool) -> None:
    router = RouterRetriever([Failing(), Failing()], ["", ""], FixedSelector(0, 1))
    with pytest.raises(RetrievalError, match="retriever_0: LookupError: out of order; retriever_1") as error_info:
        asyncio.run(router.aretrieve("q")) if asynchronously else router.retrieve("q")
    assert [str(error) for error in error_info.value.exceptions] == ["out of order"] * 2


def test_one_chosen_alone_that_fails_raises_its_own_error() -> None:
    with pytest.raises(LookupError, match="out of order"):
        RouterRetriever([Failing(), FixedRetriever()], ["", ""], FixedSelector(0)).retrieve("q")


def test_a_selector_that_abstains_gets_no_hits() -> None:
    router = RouterRetriever([FixedRetriever("a"), FixedRetriever("b")], ["", ""], FixedSelector())
    assert retrieve_both_ways(router, "q") == []
    assert router.routed("q").selection.abstained


def test_routers_nest() -> None:
    inner = RouterRetriever([FixedRetriever("a"), FixedRetriever("b")], ["", ""], FixedSelector(1))
    assert ids(retrieve_both_ways(RouterRetriever([inner, FixedRetriever("c")], ["", ""], FixedSelector(0)), "q")) == [
        "b"
    ]


@pytest.mark.parametrize(
    ("retrievers", "descriptions", "names", "complaint"),
    [
        ([], [], None, "at least one retriever"),
        ([FixedRetriever()], ["a", "b"], None, "1 retrievers need 1 descriptions"),
        ([FixedRetriever()], "a", None, "descriptions"),
        ([FixedRetriever(), FixedRetriever()], ["", ""], ["same", "same"], "differ"),
        ([FixedRetriever(), FixedRetriever()], ["", ""], ["one"], "2 names"),
        ([object()], [""], None, "cannot be called as a retriever"),
    ],
)
def test_what_does_not_fit_is_said_at_construction(
    retrievers: Any, descriptions: Any, names: Any, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        RouterRetriever(retrievers, descriptions, FixedSelector(0), names=names)


@pytest.mark.parametrize("top_k", [0, -1, True, 1.5])
def test_top_k_is_checked(top_k: Any) -> None:
    with pytest.raises(InputError, match="number of results"):
        RouterRetriever([FixedRetriever("a")], [""], FixedSelector(0)).retrieve("q", top_k)


class Engine:
    def __init__(self, answer: str) -> None:
        self.answer = answer

    def query(self, query: str) -> str:
        if not self.answer:
            raise LookupError("knows nothing")
        return f"{self.answer}: {query}"


class AsyncEngine(Engine):
    async def aquery(self, query: str) -> str:
        return self.query(query)


def test_query_engine_one_chosen() -> None:
    engine = MultiIndexQueryEngine([Engine("a"), AsyncEngine("b")], ["", ""], FixedSelector(1))
    assert engine.query("q") == "b: q"
    assert asyncio.run(engine.aquery("q")) == "b: q"


def test_query_engine_several_chosen() -> None:
    engine = MultiIndexQueryEngine([Engine("a"), AsyncEngine("b"), Engine("")], ["", "", ""], FixedSelector(2, 1, 0))
    for response in (engine.query("q"), asyncio.run(engine.aquery("q"))):
        assert isinstance(response, CombinedResponse)
        assert response.responses == {"index_1": "b: q", "index_0": "a: q"}
        assert str(response) == "b: q\n\na: q"
        assert str(response.failures["index_2"]) == "knows nothing"


def test_query_engines_are_checked() -> None:
    with pytest.raises(InputError, match="2 query engines need 2 descriptions"):
        MultiIndexQueryEngine([Engine("a"), Engine("b")], ["one"], FixedSelector(0))
    with pytest.raises(InputError, match="has a method query"):
        MultiIndexQueryEngine([FixedRetriever()], ["one"], FixedSelector(0))  # type: ignore[list-item]


IMAGES = [
    "photos of Mars",
    "show me a picture of the Eiffel tower",
    "company logo",
    "screenshot of the settings page",
    "长城的照片",
    "找一张猫的图",
    "系统架构图",
    "故宮圖片",
    "покажи рисунок кота",
    "фотографии Марса",
    "картинки с котами",
    "логотип компании",
    "系统架构示意图",
    "диаграмма продаж",
    "покажи схемы проводки",
    "a diagram of the brake",
]
TEXTS = [
    "what is machine learning",
    "imagery in the poems of Keats",
    "how do I push a docker image",
    "image processing with wavelets",
    "the big picture of the economy",
    "图书馆几点开门",
    "图灵是谁",
    "作者的意图",
    "что такое фотосинтез",
    "картина мира",
    "алгоритмы обработки изображений",
    "как фотографировать",
    "схема базы данных",
    "налоговые схемы",
]


@pytest.mark.parametrize(("query", "expected"), [*((q, "image") for q in IMAGES), *((q, "text") for q in TEXTS)])
def test_text_or_image(query: str, expected: str) -> None:
    router = MultiModalRetriever(FixedRetriever("text"), FixedRetriever("image"))
    assert ids(retrieve_both_ways(router, query)) == [expected]
    assert (image_cue(query) is not None) == (expected == "image")


def test_another_selector_may_choose_both() -> None:
    assert ids(
        retrieve_both_ways(
            MultiModalRetriever(FixedRetriever("text"), FixedRetriever("image"), FixedSelector(1, 0)), "q"
        )
    ) == ["image", "text"]


def test_the_image_selector_needs_its_two_choices() -> None:
    with pytest.raises(InputError, match="named 'image'"):
        ImageCueSelector().select(["text", "video"], "photo")
    assert ImageCueSelector().select(["image", "prose"], "photo").ind == 0
    assert ImageCueSelector().select(["image", "prose"], "text").ind == 1
