"""Routers over datasets: what every router promises, and each of the three."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm.scripted_llm import ScriptedLLM
from pointsman.retrieval.plan.routers import BaseRouter, ContentRouter, LLMRouter, RouteDecision, SelectorRouter
from pointsman.selector.base_selector import (
    BaseSelector,
    Choices,
    Fallback,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
)
from pointsman.tools.errors import InputError
from pointsman.values.types import Query
from pointsman.workspace.dataset import Dataset


@pytest.fixture(scope="module")
def plain() -> list[Dataset]:
    """Three datasets that nobody opens."""
    return [Dataset("docs", "Engineering and bug fixes."), Dataset("hr", "Leave and holidays."), Dataset("law", "")]


def names(datasets: Sequence[Dataset]) -> list[str]:
    return [dataset.name for dataset in datasets]


def everyway(router: BaseRouter, query: str, datasets: Sequence[Dataset]) -> RouteDecision:
    """The decision, after a check that all four ways agree."""
    decision = router.decide(query, datasets)
    assert router.route(query, datasets) == list(decision.datasets)
    assert asyncio.run(router.aroute(query, datasets)) == list(decision.datasets)
    assert asyncio.run(router.adecide(query, datasets)) == decision
    return decision


class Routes(BaseRouter):
    def route(self, query: str | Query, datasets: Sequence[Dataset]) -> list[Dataset]:
        return [dataset for dataset in datasets if dataset.name in Query.of(query).text]


class ARoutes(BaseRouter):
    async def aroute(self, query: str | Query, datasets: Sequence[Dataset]) -> list[Dataset]:
        return [dataset for dataset in datasets if dataset.name in Query.of(query).text]


class Decides(BaseRouter):
    def decide(self, query: str | Query, datasets: Sequence[Dataset]) -> RouteDecision:
        return RouteDecision(tuple(d for d in datasets if d.name in Query.of(query).text), "by name", {"hr": 1.0}, 0.5)


class ADecides(BaseRouter):
    async def adecide(self, query: str | Query, datasets: Sequence[Dataset]) -> RouteDecision:
        return RouteDecision(tuple(d for d in datasets if d.name in Query.of(query).text), "by name")


@pytest.mark.parametrize("kind", [Routes, ARoutes, Decides, ADecides])
def test_one_of_four_methods_gives_all(kind: type[BaseRouter], plain: list[Dataset]) -> None:
    assert names(everyway(kind(), "hr and law", plain).datasets) == ["hr", "law"]
    assert names(everyway(kind(), "no idea", plain).datasets) == ["docs", "hr", "law"]  # undecidable: all
    assert everyway(kind(), "no idea", plain[:1]).datasets == (plain[0],)


def test_a_router_may_yield_its_choice(plain: list[Dataset]) -> None:
    class Yields(BaseRouter):
        def route(self, query: str | Query, datasets: Sequence[Dataset]) -> Iterator[Dataset]:  # type: ignore[override]
            return (dataset for dataset in datasets if dataset.name in Query.of(query).text)

    assert names(everyway(Yields(), "hr and law", plain).datasets) == ["hr", "law"]
    assert names(everyway(Yields(), "no idea", plain).datasets) == ["docs", "hr", "law"]


def test_an_undecided_router_says_so(plain: list[Dataset]) -> None:
    decision = Decides().decide("no idea", plain)
    assert decision.fallback == Fallback("by name", "all")
    assert decision.confidence is None
    assert Decides().decide("hr", plain).confidence == 0.5


def test_a_router_that_implements_nothing_is_refused_when_it_is_made() -> None:
    with pytest.raises(TypeError, match="implements none of decide, adecide, route, aroute"):
        type("Nothing", (BaseRouter,), {})


@pytest.mark.parametrize("kind", [Routes, ARoutes, Decides, ADecides])
def test_no_datasets_and_two_of_one_name_are_errors(kind: type[BaseRouter]) -> None:
    for method in (kind().route, kind().decide):
        with pytest.raises(InputError, match="no datasets to route to"):
            method("q", [])
        with pytest.raises(InputError, match="need different names"):
            method("q", [Dataset("a"), Dataset("a")])


@pytest.mark.parametrize("kind", [Routes, ARoutes, Decides])
def test_a_router_cannot_invent_datasets(kind: type[BaseRouter], plain: list[Dataset]) -> None:
    class Inventive(BaseRouter):
        def route(self, query: str | Query, datasets: Sequence[Dataset]) -> list[Dataset]:
            return [Dataset("docs")] if "new" in Query.of(query).text else [datasets[0], datasets[0]]

    for query in ("new", "twice"):
        with pytest.raises(InputError, match="Inventive routed to"):
            Inventive().decide(query, plain)


class FixedSelector(BaseSelector):
    def __init__(self, *indices: int, **fields: Any) -> None:
        self.indices, self.fields, self.allow_abstain, self.calls = indices, fields, not indices, list[Any]()

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        self.calls.append(choices)
        return SelectorResult([SingleSelection(i, f"why {i}", i / 10) for i in self.indices], **self.fields)


def test_any_selector_routes(plain: list[Dataset]) -> None:
    fallback = Fallback("could not read", "first")
    selector = FixedSelector(2, 0, confidence=0.7)
    decision = everyway(SelectorRouter(selector), "q", plain)
    assert names(decision.datasets) == ["law", "docs"]
    assert decision.reason == "law: why 2; docs: why 0"
    assert decision.scores == {"law": 0.2, "docs": 0.0}
    assert (decision.confidence, decision.fallback) == (0.7, None)
    fallen = SelectorRouter(FixedSelector(0, fallback=fallback)).decide("q", plain)
    assert (fallen.fallback, fallen.reason) == (fallback, "fell back to 'first': could not read")
    assert selector.calls[0][0] == ToolMetadata("docs", "Engineering and bug fixes.")


def test_a_selector_that_abstains_means_all(plain: list[Dataset]) -> None:
    decision = everyway(SelectorRouter(FixedSelector()), "q", plain)
    assert names(decision.datasets) == ["docs", "hr", "law"]
    assert decision.fallback == Fallback("the selector found none that fits", "all")


def test_one_dataset_asks_no_selector(plain: list[Dataset]) -> None:
    selector = FixedSelector(0)
    assert everyway(SelectorRouter(selector), "q", plain[:1]).reason == "the only dataset"
    assert not selector.calls


class Reply:
    def __init__(self, text: str) -> None:
        self.text = text


class ScriptedModel:
    def __init__(self, *replies: str) -> None:
        self.replies, self.prompts = replies, list[str]()

    def complete(self, prompt: str) -> Reply:
        self.prompts.append(prompt)
        return Reply(self.replies[min(len(self.prompts), len(self.replies)) - 1])


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("[1]", ["docs"]),
        ("[1, 3]", ["docs", "law"]),
        ("2", ["hr"]),
        ("hr", ["hr"]),
        ('{"selections": [{"index": 3, "reason": "laws"}]}', ["law"]),
        ("The best tool is number 2.", ["hr"]),
        ("答案：2", ["hr"]),
        ("[1, 7]", ["docs"]),  # the one that exists
        ("[7]", ["docs", "hr", "law"]),
        ("[]", ["docs", "hr", "law"]),
        ("[1, 2, 3]", ["docs", "hr", "law"]),
        ("I cannot say.", ["docs", "hr", "law"]),
        ("", ["docs", "hr", "law"]),
    ],
)
def test_a_models_answer(reply: str, expected: list[str], plain: list[Dataset]) -> None:
    decision = everyway(LLMRouter(ScriptedModel(reply)), "Holidays?", plain)
    assert sorted(names(decision.datasets)) == expected
    if len(expected) == 3 and reply != "[1, 2, 3]":
        assert decision.fallback is not None
        assert decision.fallback.policy == "all"


def test_the_model_sees_names_and_descriptions_numbered(plain: list[Dataset]) -> None:
    llm = ScriptedModel("[1]")
    LLMRouter(llm).route("Holidays?", plain)
    assert len(llm.prompts) == 1
    assert "Engineering and bug fixes." in llm.prompts[0]
    assert "Holidays?" in llm.prompts[0]
    LLMRouter(llm).route("Holidays?", plain[:1])
    assert len(llm.prompts) == 1  # one dataset passes through


# ── the content router ───────────────────────────────────────────────────────────────────────────────────────────────

CONTENT = {
    "cooking": [
        "Knead the dough and let it rise for an hour",
        "Simmer the onions in butter until soft",
        "Season the soup with salt and pepper",
        "Bake the bread in a hot oven",
        "Whisk eggs and sugar to a foam",
        "Roast the chicken with rosemary",
    ],
    "космос": [
        "Марсоход передал снимки поверхности планеты",
        "Ракета вывела спутник на орбиту",
        "Телескоп наблюдает далёкие галактики",
        "Комета приблизится к Солнцу летом",
        "Луна вращается вокруг Земли",
        "Астрономы открыли новую звезду",
    ],
    "医学": [
        "高血压的治疗方法",
        "糖尿病患者的饮食建议",
        "疫苗的副作用",
        "心脏病的早期症状",
        "感冒时应多喝水",
        "手术后的护理",
    ],
}
QUERIES = {
    "how long does bread dough rise": "cooking",
    "roast chicken": "cooking",
    "снимки марсохода": "космос",
    "орбита спутника": "космос",
    "糖尿病饮食": "医学",
    "疫苗有什么副作用": "医学",
}


def fill_dataset(name: str, texts: Sequence[str], **options: Any) -> Dataset:
    dataset = Dataset(name, embedder=HashingEmbedder(), **options)
    dataset.add([{"id": str(number), "text": text} for number, text in enumerate(texts)])
    return dataset


@pytest.fixture(scope="module")
def library() -> Iterator[list[Dataset]]:
    datasets = [fill_dataset(name, texts) for name, texts in CONTENT.items()]
    yield datasets
    for dataset in datasets:
        dataset.close()


@pytest.mark.parametrize(("query", "expected"), QUERIES.items())
def test_content_decides_in_three_languages_and_no_description(
    query: str, expected: str, library: list[Dataset]
) -> None:
    decision = everyway(ContentRouter(margin=0), query, library)
    assert names(decision.datasets) == [expected]
    assert decision.confidence is not None
    assert 1 / 3 < decision.confidence <= 1
    assert max(decision.scores, key=decision.scores.__getitem__) == expected
    assert expected in decision.reason


def test_the_order_of_the_datasets_does_not_matter(library: list[Dataset]) -> None:
    router = ContentRouter()
    decision = router.decide("bread and orbit", library)
    backward = router.decide("bread and orbit", library[::-1])
    assert decision.scores == pytest.approx(backward.scores)
    assert decision.datasets == backward.datasets


def test_the_margin_widens_the_choice(library: list[Dataset]) -> None:
    sizes = [len(ContentRouter(margin=margin).route("bread dough", library)) for margin in (0, 5, 50, math.inf)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, 3)


@pytest.mark.parametrize("query", ["", "  \n", "?!"])
def test_without_evidence_all_are_chosen(query: str, library: list[Dataset]) -> None:
    decision = everyway(ContentRouter(weight=0), query, library)
    assert set(names(decision.datasets)) == set(CONTENT)
    assert decision.fallback is not None
    assert decision.fallback.policy == "all"


def test_what_is_added_and_deleted_is_seen_at_once() -> None:
    datasets = [
        fill_dataset("ships", ["harbour and sails", "anchors"]),
        fill_dataset("air", ["gliders and kites", "parachutes"]),
    ]
    router = ContentRouter(margin=0)
    for _ in range(2):
        datasets[0].add([{"id": "z", "text": "zeppelin airships"}])
        assert names(router.route("zeppelin airships", datasets)) == ["ships"]
        datasets[0].delete("z")
        datasets[1].add([{"id": "z", "text": "zeppelin airships"}])
        assert names(router.route("zeppelin airships", datasets)) == ["air"]
        datasets[1].delete("z")


def test_a_dataset_whose_files_were_closed_is_routed_to() -> None:
    datasets = [
        fill_dataset("ships", ["harbour and sails", "anchors"]),
        fill_dataset("air", ["gliders and kites", "parachutes"]),
    ]
    router = ContentRouter(margin=0)
    assert names(router.route("kites", datasets)) == ["air"]
    for dataset in datasets:
        dataset.release()
    assert names(router.route("kites", datasets)) == ["air"]


def test_an_empty_dataset_is_never_the_best(library: list[Dataset]) -> None:
    decision = ContentRouter(margin=1e9).decide("bread dough", [fill_dataset("empty", []), *library])
    assert set(names(decision.datasets)) == set(CONTENT)
    assert "empty" not in decision.scores


def test_all_empty_is_undecidable() -> None:
    datasets = [fill_dataset("a", []), fill_dataset("b", [])]
    assert ContentRouter().decide("bread", datasets).fallback is not None
    assert ContentRouter().route("bread", datasets) == datasets


@pytest.mark.parametrize("technique", ["keyword", "vector"])
def test_datasets_of_every_technique_compete(technique: Any, library: list[Dataset]) -> None:
    other_dataset = fill_dataset(
        "trains", ["locomotive and carriages", "railway switches"], indexing_technique=technique
    )
    router = ContentRouter(margin=0)
    assert names(router.route("locomotive carriages", [*library, other_dataset])) == ["trains"]
    assert names(router.route("bread dough", [*library, other_dataset])) == ["cooking"]


def test_keyword_datasets_alone_need_no_embedder() -> None:
    datasets = [Dataset("a", indexing_technique="keyword"), Dataset("b", indexing_technique="keyword")]
    datasets[0].add([{"id": "1", "text": "bread"}])
    datasets[1].add([{"id": "1", "text": "stars"}])
    assert names(ContentRouter(margin=0).route("stars", datasets)) == ["b"]
    assert len(ContentRouter().route("nothing of it", datasets)) == 2


def test_datasets_of_two_embedders_compete() -> None:
    datasets = [Dataset("a", embedder=HashingEmbedder(64)), Dataset("b", embedder=HashingEmbedder(32))]
    datasets[0].add([{"id": "1", "text": "bread in the oven"}, {"id": "2", "text": "soup"}])
    datasets[1].add([{"id": "1", "text": "stars in the sky"}, {"id": "2", "text": "moon"}])
    router = ContentRouter(margin=0)
    assert names(router.route("stars sky", datasets)) == ["b"]
    assert names(router.route("bread oven", datasets)) == ["a"]


def test_a_query_is_embedded_once_however_many_datasets() -> None:
    class Counting(HashingEmbedder):
        queries = 0

        def embed_queries(self, texts: Sequence[str]) -> Any:
            self.queries += len(texts)
            return super().embed_queries(texts)

    embedder = Counting()
    datasets = [Dataset(name, embedder=embedder) for name in "abc"]
    for dataset in datasets:
        dataset.add([{"id": "1", "text": f"text {dataset.name}"}])
    embedder.queries = 0
    ContentRouter().route("text", datasets)
    assert embedder.queries == 1


def test_a_small_sketch_stays_small_and_still_decides() -> None:
    texts = [f"railway switch number {number}" for number in range(300)]
    router = ContentRouter(margin=0, sketch_size=16)
    datasets = [fill_dataset("rail", texts), fill_dataset("food", [f"soup recipe {number}" for number in range(300)])]
    assert names(router.route("which switch on the railway", datasets)) == ["rail"]
    assert [len(router._sketch(dataset).vectors) for dataset in datasets] == [16, 16]


def test_a_small_dataset_beats_a_large_one_that_knows_less() -> None:
    large = fill_dataset("large", [f"report {number} on trade and weather" for number in range(500)])
    small = fill_dataset("small", ["the ostrich farm", "ostrich eggs"])
    assert names(ContentRouter(margin=0).route("ostrich report", [large, small])) == ["small"]


@pytest.mark.parametrize("options", [{"margin": -1}, {"margin": math.nan}, {"sketch_size": 0}, {"weight": math.inf}])
def test_settings_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        ContentRouter(**options)


def test_an_id_that_does_not_exist_is_dropped_and_noted(plain: list[Dataset]) -> None:
    """R2: the others are followed, and the reason says what was left out."""
    decision = LLMRouter(ScriptedLLM(["[1, 7]"])).decide("a bug", plain)
    assert names(decision.datasets) == ["docs"]
    assert "dropped 7: no such option" in decision.reason
