"""`EnhancedRetrievalService`: a strategy for every query, reranked, and what happens when parts of it fail (I4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from pointsman import BaseRetriever, Dataset, Document, Hit, Query, RetrievalWorkflow, ScriptedLLM, Workspace
from pointsman.embedders import HashingEmbedder
from pointsman.llm import DashScopeLLM, OpenAILLM
from pointsman.llm.chosen_models import llm_for
from pointsman.retrieval.judge.kept_calibrations import Calibration
from pointsman.retrieval.judge.relevance import shipped
from pointsman.retrieval.plan.transform import BaseTransformer, QueryTransformer, Transformed
from pointsman.retrieval.refine.rerank import BaseReranker
from pointsman.retrieval.request import RegisteredStrategy, SearchRequest
from pointsman.retrieval.strategies import BaseRetrievalStrategy, Budget, spending
from pointsman.tools.errors import InputError, RetrievalError, UnknownNameError
from pointsman.values.registry import Registry
from pointsman.values.settings import Settings
from pointsman.values.types import Ranked, Refusal
from pointsman.workspace.enhanced_retrieval_service import EnhancedRetrievalService, ServiceHits
from store_kit import collection_of
from test_hybrid import Failing, FixedRetriever

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.retrieval.refine.budget import Spending
    from pointsman.values.filters import Filter

TEXTS = {
    "switch": "A railway switch guides trains from one track to another.",
    "points": "Points is the British word for a railway switch.",
    "tea": "Green tea is brewed below boiling point.",
    "lamp": "The signal lamp shows green when the line is clear.",
    "zh": "道岔使列车由一股道转入另一股道。",
    "ru": "Стрелочный перевод направляет поезд с одного пути на другой.",
}
DOCUMENTS = [Document(id_, text, {"length": len(text)}) for id_, text in TEXTS.items()]


def search(service: EnhancedRetrievalService, *args: Any, **options: Any) -> ServiceHits:
    return service.search_sync(*args, **options)


@pytest.fixture
def dataset() -> Iterator[Dataset]:
    with Dataset("rail", embedder=HashingEmbedder()) as dataset:
        dataset.add(DOCUMENTS)
        yield dataset


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file nor keys of the machine that the tests run on."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DASHSCOPE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


class ReversingReranker(BaseReranker):
    """Likes short texts."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return [-float(len(text)) for text in texts]


class FailingReranker(BaseReranker):
    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        raise OSError("the reranker is down")


class Foreign:
    """A reranker of another library: no base class of ours."""

    def __init__(self, available: bool = True, answer: Callable[[list[Document]], Any] | None = None) -> None:
        self.available, self.answer, self.calls = available, answer, 0

    def is_available(self) -> bool:
        return self.available

    def rerank(self, query: str, documents: list[Document], top_n: int) -> Any:
        self.calls += 1
        assert len(documents) == top_n
        if self.answer is not None:
            return self.answer(documents)
        return sorted(documents, key=lambda document: len(document.text))


class Hypothetical(BaseRetriever):
    """A strategy as they are registered: it asks a model, then the sources."""

    needs_llm = True
    asked: list[int]

    def __init__(self, *sources: Any, llm: Any = None, temperature: float = -1.0, model: str = "") -> None:
        self.sources, self.llm, self.temperature, self.model, self.asked = sources, llm, temperature, model, []

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        self.asked.append(top_k)
        text = self.llm.complete(Query.of(query).text).text
        return self.sources[0].retriever("vector").retrieve(text, top_k)  # type: ignore[no-any-return]


class Halves(BaseRetriever):
    """A strategy that needs no model."""

    def __init__(self, *sources: Any, llm: Any = None, **options: Any) -> None:
        self.sources, self.llm, self.options = sources, llm, options

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        return await self.sources[0].retriever("bm25").aretrieve(query, top_k)  # type: ignore[no-any-return]


def registry_of(**strategies: Any) -> Registry[Any]:
    registry: Registry[Any] = Registry("strategy", "no.such.group")
    for name, factory in strategies.items():
        registry.register(name, factory)
    return registry


# ── plain searches ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("strategy", ["auto", "bm25", "vector", "hybrid", "rrf"])
def test_plain_strategies_are_the_workflows(dataset: Dataset, strategy: str) -> None:
    service = EnhancedRetrievalService(None, dataset)
    hits = search(service, "railway switch", 3, strategy)
    expected = dataset.search("railway switch", 3, strategy=RegisteredStrategy(strategy))
    assert isinstance(hits, list)
    assert [(hit.id, hit.score) for hit in hits] == [(hit.id, hit.score) for hit in expected.hits]
    assert hits.strategy == expected.plan.strategy
    assert hits.degraded == ()
    assert {"plan", "retrieve", "fuse"} <= {span.stage for span in hits.trace.spans}
    assert hits.trace.explain(hits[0].id).rank == 1


def test_the_synchronous_twin_works_inside_a_running_loop(dataset: Dataset) -> None:
    service = EnhancedRetrievalService({"policy": "heuristic"}, dataset)

    async def main() -> None:
        assert service.search_sync("railway switch", 2) == await service.search("railway switch", 2)

    asyncio.run(main())


def test_filters_act_before_the_cut(dataset: Dataset) -> None:
    service = EnhancedRetrievalService(None, dataset)
    hits = search(service, "railway switch", 5, filters="length > 50")
    assert hits
    assert all(hit.metadata["length"] > 50 for hit in hits)
    assert ids(search(service, "railway switch", 5, filters={"length": len(TEXTS["tea"])})) == ["tea"]


def test_a_workspace_is_searched_as_it_is_at_the_time(tmp_path: Path) -> None:
    with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
        service = EnhancedRetrievalService(None, workspace)
        assert search(service, "railway") == []
        workspace.dataset("one").add(DOCUMENTS[:2])
        assert {hit.dataset for hit in search(service, "railway")} == {"one"}
        workspace.dataset("two").add([Document("new", "railway museum")])
        assert {hit.dataset for hit in search(service, "railway")} == {"one", "two"}


def test_hits_are_judged_by_what_was_fitted_to_their_dataset(tmp_path: Path) -> None:
    embedder = HashingEmbedder()
    with Workspace(tmp_path / "w", embedder=embedder) as workspace:
        rails = workspace.dataset("rails")
        rails.add(DOCUMENTS)
        services = [EnhancedRetrievalService(None, store) for store in (workspace, rails, [rails])]
        before = [hit.relevance for service in services for hit in search(service, "railway switch", 3)]
        assert before == [None] * 9
        fitted = tuple(replace(one, embedder=one.embedder and embedder.name) for one in shipped())
        workspace.keep_calibration("rails", Calibration("fitted to 40 questions", fitted))
        expected = [hit.relevance for hit in workspace.search("railway switch", 3)]
        assert None not in expected
        for service in services:
            hits = search(service, "railway switch", 3)
            assert [hit.relevance for hit in hits] == expected
            assert any("fitted to 40 questions" in decision.reason for decision in hits.context.plan.decisions)
        own = EnhancedRetrievalService(
            None, workspace, workflow=RetrievalWorkflow(fitted={"rails": Calibration("none")})
        )
        assert {hit.relevance for hit in search(own, "railway switch", 3)} == {None}
        workspace.keep_calibration("rails", None)
        assert [hit.relevance for hit in search(services[0], "railway switch", 3)] == [None] * 3


def test_retrievers_and_several_sources_are_searched_together(dataset: Dataset) -> None:
    service = EnhancedRetrievalService(None, [dataset, FixedRetriever(("elsewhere", 1.0))])
    assert {"elsewhere", "switch"} <= set(ids(search(service, "railway switch", 9)))
    assert "elsewhere" in ids(search(EnhancedRetrievalService(None, FixedRetriever(("elsewhere", 1.0))), "x"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("railway", 0), "from 1 up"),
        (("railway", 5, "nonsense"), "no strategy named 'nonsense'"),
        ((3,), "a query's text is a str, not int"),
    ],
)
def test_what_cannot_be_asked_is_an_input_error(dataset: Dataset, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(EnhancedRetrievalService(None, dataset), *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, object()), "vector_store is a dataset"),
        ((None, []), "at least one dataset"),
        ((None, [FixedRetriever(("a", 1.0)), 3]), "nothing else"),
        ((None, FixedRetriever(("a", 1.0)), None, object()), "a reranker has rerank"),
        ((3, FixedRetriever(("a", 1.0))), "config is Settings"),
        (({"bm25_ki": 1}, FixedRetriever(("a", 1.0))), "did you mean 'bm25_k1'"),
        (({"path": "x"}, FixedRetriever(("a", 1.0))), "no setting 'path'"),
        (({"default_retrieval_strategy": "nonsense"}, FixedRetriever(("a", 1.0))), "no strategy named 'nonsense'"),
    ],
)
def test_what_cannot_be_used_is_told_at_construction(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EnhancedRetrievalService(*arguments)


def test_an_embedder_that_is_not_the_datasets_is_refused(dataset: Dataset) -> None:
    assert search(EnhancedRetrievalService(None, dataset, HashingEmbedder()), "railway")
    with pytest.raises(InputError, match=r"'rail' holds vectors of .* give the same, or None"):
        search(EnhancedRetrievalService(None, dataset, HashingEmbedder(dimensions=32)), "railway")


def test_a_search_that_fails_altogether_raises_its_causes() -> None:
    failing = Failing()
    with pytest.raises(RetrievalError, match="failing"):
        search(EnhancedRetrievalService(None, failing), "railway")
    assert failing.calls == 1


# ── how auto chooses ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "query", "strategy"),
    [
        ({}, "what is a railway switch?", "hyde"),  # there is a model, and no policy was chosen or fitted (I5)
        ({"policy": "measured"}, "what is a railway switch?", "hybrid"),
        ({"policy": "heuristic"}, "what is a railway switch?", "hyde"),
        ({"policy": "heuristic"}, "a long line of words about the railway", "hybrid"),
        ({"policy": "heuristic", "enable_strategy_auto_selection": False}, "what is a switch?", "hybrid"),
        ({"policy": "heuristic", "default_retrieval_strategy": "bm25"}, "what is a switch?", "bm25"),
        ({"enable_strategy_auto_selection": False, "default_retrieval_strategy": "vector"}, "switch", "vector"),
    ],
)
def test_auto_is_what_the_settings_say(dataset: Dataset, settings: dict[str, Any], query: str, strategy: str) -> None:
    llms = {"hyde": ScriptedLLM(lambda _: "A railway switch guides trains.")}
    service = EnhancedRetrievalService(settings, dataset, llms=llms, strategies=registry_of(hyde=Hypothetical))
    hits = search(service, query, 2)
    assert hits.strategy == strategy
    chosen_by_look = settings in ({}, {"policy": "heuristic"})
    assert (hits.recommendation is not None) == chosen_by_look
    if hits.recommendation is not None:
        assert hits.confidence == hits.recommendation.confidence
    assert (hits.trace.spans[0].stage == "recommend") == chosen_by_look
    assert search(service, query, 2, "bm25").strategy == "bm25"


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [({}, "hybrid"), ({"policy": "measured"}, "hybrid"), ({"default_retrieval_strategy": "bm25"}, "bm25"),
     ({"enable_strategy_auto_selection": False}, "hybrid"), ({"policy": "heuristic"}, "decomposition")],
)  # fmt: skip
@pytest.mark.parametrize("query", ["What is the difference between a switch and a signal?", "比较道岔和信号机的区别"])
def test_without_a_model_the_recommendation_is_what_auto_does(
    dataset: Dataset, settings: dict[str, Any], strategy: str, query: str
) -> None:
    service = EnhancedRetrievalService(settings, dataset)
    advice = service.recommend_strategy(query)
    assert advice.strategy == search(service, query).strategy == strategy
    names = [name for name, _ in advice.alternatives]
    assert strategy not in names
    assert ("decomposition" in names) == (strategy != "decomposition")
    assert ("decomposition" in advice.reason) == (strategy != "decomposition"), "what the wording asks for is named"


def test_a_strategy_without_its_model_is_not_recommended_and_cannot_be_asked_for(dataset: Dataset) -> None:
    service = EnhancedRetrievalService({"policy": "heuristic"}, dataset, strategies=registry_of(hyde=Hypothetical))
    recommendation = service.recommend_strategy("what is a railway switch?")
    assert recommendation.strategy == "hybrid"
    assert "it needs a language model: " in recommendation.reason
    assert "to dashscope and DASHSCOPE_API_KEY" in recommendation.reason
    assert "hyde" not in dict(recommendation.alternatives)
    hits = search(service, "what is a railway switch?")
    assert hits.strategy == "hybrid"
    assert hits.recommendation == recommendation
    with pytest.raises(InputError, match=r"'hyde' cannot be used here: it needs .* to dashscope and DASHSCOPE_API_KEY"):
        search(service, "switch", 5, "hyde")


@pytest.mark.parametrize(("technique", "strategy"), [("keyword", "bm25"), ("vector", "vector")])
def test_what_a_dataset_does_not_keep_is_not_chosen(technique: Any, strategy: str) -> None:
    with Dataset("half", indexing_technique=technique, embedder=HashingEmbedder()) as dataset:
        dataset.add(DOCUMENTS)
        service = EnhancedRetrievalService({"policy": "heuristic"}, dataset, strategies=registry_of())
        hits = search(service, "what is a railway switch?", 2)
        assert hits.strategy == strategy
        assert ids(hits)
        with pytest.raises(InputError, match=r"there (?:is|are) no"):
            search(service, "switch", 2, "hybrid")


def test_datasets_that_keep_different_indexes_are_each_searched_by_theirs(dataset: Dataset) -> None:
    with Dataset("words", indexing_technique="keyword") as words:
        words.add([Document("museum", "the railway museum")])
        service = EnhancedRetrievalService({"policy": "heuristic"}, [words, dataset], strategies=registry_of())
        for strategy in ("auto", "hybrid"):
            hits = search(service, "what is a railway switch?", 9, strategy)
            assert {"museum", "switch"} <= set(ids(hits))
            assert hits.strategy == "hybrid"
        assert "museum" not in ids(search(service, "railway", 9, "vector"))
        fused = search(service, "railway", 9, "z_score")
        assert "museum" not in ids(fused)
        assert fused.degraded == ("words: indexed for 'keyword' search only, so 'z_score' leaves it out",)


# ── registered strategies ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_strategy_gets_sources_model_and_its_own_settings(dataset: Dataset) -> None:
    llm = ScriptedLLM(lambda _: "Green tea is brewed below boiling point.")
    service = EnhancedRetrievalService(
        {"hyde_temperature": 0.5, "hyde_model": "m"},
        dataset,
        llms={"general": llm},
        strategies=registry_of(hyde=Hypothetical),
    )
    assert ids(search(service, "what warms one up?", 1, "hyde", False)) == ["tea"]
    strategy = service.strategy("hyde")
    assert isinstance(strategy, Hypothetical)
    assert (strategy.llm, strategy.temperature, strategy.model, strategy.sources) == (llm, 0.5, "m", (dataset,))
    assert strategy.asked == [10]  # the refuser looks at the first ten
    assert service.strategy("hyde") is strategy


def test_strategies_are_made_when_asked_for(dataset: Dataset) -> None:
    names: list[str] = []

    def factory(*sources: Any, llm: Any = None) -> Halves:
        names.append("halves")
        return Halves(*sources)

    registry = registry_of(halves=factory, hyde=Hypothetical, nothing=lambda *_, llm: 3)
    service = EnhancedRetrievalService(None, dataset, strategies=registry)
    assert names == []
    assert isinstance(service.strategy("halves"), Halves)
    with pytest.raises(UnknownNameError, match="absent"):
        service.strategy("absent")
    with pytest.raises(InputError, match="needs a language model"):
        service.strategy("hyde")
    with pytest.raises(InputError, match="is a int, not a retriever"):
        service.strategy("nothing")


def test_the_options_are_those_of_every_search(tmp_path: Path) -> None:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        for name in ("rails", "drinks"):
            workspace.dataset(name).add([Document(f"{name} 1", "a railway switch"), Document(f"{name} 2", "green tea")])
        service = EnhancedRetrievalService(None, workspace)
        options: Any = {
            "datasets": "drinks",
            "effort": "fast",
            "timeout": 9.0,
            "refuse": False,
            "filters": "_id != 'x'",
        }
        hits = search(service, "railway swtich", 3, **options)
        expected = workspace.search("railway swtich", 3, **options)
        assert [(hit.key, hit.score) for hit in hits] == [(hit.key, hit.score) for hit in expected]
        assert hits.context.plan == expected.plan
        assert hits.context.spelling is None  # with little effort
        with pytest.raises(UnknownNameError, match="no dataset named 'trains'"):
            search(service, "tea", datasets=["trains"])
        with pytest.raises(InputError, match="did you mean 'effort'"):
            search(service, "tea", efort="fast")
        with pytest.raises(InputError, match="use_rerank"):
            search(service, "tea", rerank=False)


def test_a_users_strategy_may_take_the_name_of_a_plain_one(dataset: Dataset) -> None:
    service = EnhancedRetrievalService(None, dataset, strategies=registry_of(hybrid=Halves))
    assert ids(search(service, "tea", 5, "hybrid", False)) == ["tea"]  # by words alone
    assert len(search(service, "tea", 5, "auto")) > 1


def test_a_strategy_that_fails_is_replaced_by_the_plain_search(dataset: Dataset) -> None:
    llms = {"hyde": ScriptedLLM(lambda _: OSError("the model is down"))}
    service = EnhancedRetrievalService(
        {"policy": "heuristic"},
        dataset,
        None,
        ReversingReranker(),
        llms=llms,
        strategies=registry_of(hyde=Hypothetical),
    )
    plain = search(service, "what is a railway switch?", 2, use_rerank=False)
    assert ids(plain) == ids(dataset.search("what is a railway switch?", 2).hits)
    hits = search(service, "what is a railway switch?", 2)
    assert ids(hits) == ["zh", "tea"]  # reranked as any other
    assert hits.strategy == "hybrid"
    assert hits.recommendation is not None
    assert hits.recommendation.strategy == "hyde"
    (note,) = hits.degraded
    assert note.startswith("strategy 'hyde' failed; plain search was used instead: ")


def test_a_reranked_strategy_is_asked_for_what_the_reranker_scores(dataset: Dataset) -> None:
    llms = {"general": ScriptedLLM(lambda prompt: prompt)}
    service = EnhancedRetrievalService(
        None, dataset, None, ReversingReranker(), llms=llms, strategies=registry_of(x=Hypothetical)
    )
    assert ids(search(service, "railway switch", 2, "x")) == ["zh", "tea"]
    assert ids(search(service, "railway switch", 2, "x", False)) == ids(
        dataset.search("railway switch", 2, strategy="vector").hits
    )
    assert service.strategy("x").asked == [50, 10]  # type: ignore[attr-defined]


# ── our own strategies ───────────────────────────────────────────────────────────────────────────────────────────────

PASSAGE = "A railway switch guides trains from one track to another, as points do."


@pytest.mark.parametrize(
    "strategy", ["vector", "bm25", "hybrid", "hyde", "query2doc", "decomposition", "multi_query", "compression"]
)
def test_every_strategy_of_ours_answers(dataset: Dataset, strategy: str) -> None:
    replies = {"hyde": PASSAGE, "query2doc": {"queries": ["railway points", "track switch"]}}
    llms = {task: ScriptedLLM(lambda _, reply=reply: reply) for task, reply in replies.items()}  # type: ignore[misc]
    service = EnhancedRetrievalService(None, dataset, llms=llms)
    hits = search(service, "difference between a railway switch and a signal lamp", 3, strategy)
    assert {"switch", "points"} & set(ids(hits))
    assert hits.strategy == strategy
    assert hits.degraded == ()
    assert {"plan", "retrieve", "fuse"} <= {span.stage for span in hits.trace.spans}
    assert hits.trace.explain(hits[0].id).rank == 1


def test_our_strategies_get_their_settings(dataset: Dataset) -> None:
    settings = {
        "query2doc_num_expansions": 2,
        "decomposition_max_subqueries": 4,
        "multi_query_variants": ["original", "correction"],
        "compression_max_length": 77,
        "timeout": 4,
    }
    reranker = ReversingReranker()
    service = EnhancedRetrievalService(settings, dataset, None, reranker, llms={"general": ScriptedLLM([])})
    strategy: Any = service.strategy
    assert strategy("query2doc").num_expansions == 2
    assert strategy("decomposition").max_subqueries == 4
    assert strategy("multi_query").variants == ("original", "correction")
    assert strategy("compression").max_length == 77
    assert strategy("compression").reranker is reranker
    recipe = service.engine.resolve(SearchRequest.of("why?", options={"strategy": "hyde"}), [dataset])
    assert recipe.budget is not None
    assert (recipe.budget.seconds, recipe.budget.call_seconds, recipe.timeout) == (None, 30, 4)
    settings["compression_rerank"] = False
    plain: Any = EnhancedRetrievalService(settings, dataset, None, reranker)
    assert plain.strategy("compression").reranker is None


@pytest.mark.parametrize("uses_model", [True, False])
def test_compression_by_a_model_however_short_the_texts_are(dataset: Dataset, uses_model: bool) -> None:
    model = ScriptedLLM(lambda _: {"keep": [1]})
    settings = {"compression_use_llm": uses_model}
    hits = search(EnhancedRetrievalService(settings, dataset, llms={"compression": model}), "switch", 2, "compression")
    assert bool(model.calls) == uses_model
    assert hits.degraded == ()
    details = [span.detail for span in hits.trace.spans if span.stage == "compress"]
    assert any(" characters became " in detail for detail in details) == uses_model


def test_compression_answers_with_excerpts_within_its_length(dataset: Dataset) -> None:
    class Counting(ReversingReranker):
        counts: ClassVar[list[int]] = []

        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            self.counts.append(len(texts))
            return super().score(query, texts)

    reranker = Counting(cache=False)
    service = EnhancedRetrievalService({"compression_max_length": 60}, dataset, None, reranker)
    hits = search(service, "railway switch", 2, "compression")
    assert hits
    assert sum(len(hit.text) for hit in hits) <= 60
    assert hits.reranked
    assert len(reranker.counts) == 1  # by what is left of the hits, and not before that
    assert not search(service, "railway switch", 2, "compression", False).reranked
    assert len(reranker.counts) == 1
    Counting.counts.clear()


def test_a_model_that_fails_leaves_the_plain_answer(dataset: Dataset) -> None:
    llms = {"hyde": ScriptedLLM(lambda _: OSError("the model is down"))}
    hits = search(EnhancedRetrievalService({"policy": "heuristic"}, dataset, llms=llms), "what is a railway switch?", 2)
    assert ids(hits) == ids(dataset.search("what is a railway switch?", 2).hits)
    assert hits.strategy == "hybrid"
    assert any("the model is down" in note for note in hits.degraded)


def test_a_search_has_one_account_for_all_that_its_strategy_asks(dataset: Dataset) -> None:
    accounts: list[Spending] = []

    class Notes(BaseTransformer):
        def transform(self, query: str | Query) -> Transformed:
            with spending(Budget(calls=99)) as account:
                accounts.append(account)
            return Transformed(Query.of(query))

    class NotingStrategy(BaseRetrievalStrategy):
        name = "noted"

        def transformer(self) -> BaseTransformer:
            return QueryTransformer(Notes(), Notes())

    service = EnhancedRetrievalService(None, dataset, strategies=registry_of(noted=NotingStrategy))
    assert search(service, "railway", 2, "noted")
    assert len({id(account) for account in accounts}) == 1
    assert accounts[0].budget.calls == Budget().calls != 99


def test_heuristics_without_any_model_take_rules(dataset: Dataset) -> None:
    service = EnhancedRetrievalService({"policy": "heuristic"}, dataset)
    expected = {"switch versus lamp": "decomposition", "what is tea?": "hybrid", "green tea": "multi_query"}
    assert {query: search(service, query).strategy for query in expected} == expected


# ── reranking ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("setting", "use_rerank", "expected"),
    [(True, None, True), (True, False, False), (False, None, False), (False, True, True)],
)
@pytest.mark.parametrize("reranker", [ReversingReranker, Foreign])
def test_reranking_is_on_unless_somebody_says_otherwise(
    dataset: Dataset, setting: bool, use_rerank: bool | None, expected: bool, reranker: type
) -> None:
    settings = Settings(enable_reranker_by_default=setting)
    service = EnhancedRetrievalService(settings, dataset, None, reranker())
    hits = search(service, "railway switch", 3, use_rerank=use_rerank)
    assert hits.reranked == expected
    assert (ids(hits) == ["zh", "tea", "points"]) == expected
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert any(step.source == "rerank" for step in hits[0].provenance) == expected


def test_the_offline_reranker_takes_the_place_of_none(dataset: Dataset) -> None:
    service = EnhancedRetrievalService(None, dataset)
    assert not search(service, "railway switch").reranked  # the calibrated sum is the fusion already: nothing to add
    assert not search(service, "railway switch", use_rerank=False).reranked
    assert not search(service, "railway switch", 5, "rrf").reranked  # who names a method wants its ranking
    assert search(service, "railway switch", 5, "rrf", True).reranked


class Refuses(BaseReranker):
    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        raise AssertionError("it is not asked")

    def is_available(self) -> bool:
        return False


class Asks(Foreign):
    """Coroutines throughout."""

    async def is_available(self) -> bool:  # type: ignore[override]
        return self.available

    async def rerank(self, query: str, documents: list[Document], top_n: int) -> Any:
        await asyncio.sleep(0)
        return super().rerank(query, documents, top_n)


@pytest.mark.parametrize(
    ("reranker", "message"),
    [
        (FailingReranker(), "the reranker is down"),
        (Foreign(available=False), "rerank: Foreign is not available"),
        (Asks(available=False), "rerank: Asks is not available"),
        (Refuses(), "rerank: Refuses is not available"),
        (Foreign(answer=lambda _: 1 / 0), "ZeroDivisionError"),
        (Foreign(answer=lambda _: None), "returned NoneType"),
        (Foreign(answer=lambda _: []), "returned no documents"),
        (Foreign(answer=lambda _: [3]), "returned int among its documents"),
        (Foreign(answer=lambda _: [Document("other", "x")]), "'other', which is unknown"),
        (Foreign(answer=lambda documents: [documents[0]] * 2), "or a duplicate"),
    ],
)
def test_a_reranker_that_fails_leaves_the_order_and_says_so(dataset: Dataset, reranker: Any, message: str) -> None:
    hits = search(EnhancedRetrievalService(None, dataset, None, reranker), "railway switch", 3)
    plain = dataset.search("railway switch", 3)
    assert [(hit.id, hit.score) for hit in hits] == [(hit.id, hit.score) for hit in plain.hits]
    (note,) = hits.degraded
    assert message in note
    assert not hits.reranked


def test_a_foreign_rerankers_scores_are_kept_where_they_are_scores(dataset: Dataset) -> None:
    def descending(documents: list[Document]) -> list[Document]:
        return [Document(document.id, document.text, {"score": 9 - rank}) for rank, document in enumerate(documents)]

    def rising(documents: list[Document]) -> list[Document]:
        return [Document(document.id, document.text, {"score": rank}) for rank, document in enumerate(documents)]

    def nonsense(documents: list[Document]) -> list[Document]:
        return [Document(document.id, document.text, {"score": "high"}) for document in documents]

    def partial(documents: list[Document]) -> list[Document]:
        return documents[3:4]

    def scores(answer: Any) -> list[float]:
        service = EnhancedRetrievalService(None, dataset, None, Foreign(answer=answer))
        return [hit.score for hit in search(service, "railway switch", 3)]

    assert scores(descending) == [9, 8, 7]
    assert scores(rising) == [1, 1 / 2, 1 / 3]
    assert scores(nonsense) == [1, 1 / 2, 1 / 3]
    assert scores(partial) == [1, 1, 1]
    plain = ids(dataset.search("railway switch", 4).hits)
    service = EnhancedRetrievalService(None, dataset, None, Asks(answer=partial))
    assert ids(search(service, "railway switch", 3)) == [plain[3], plain[0], plain[1]]


def test_the_workflows_further_stages_are_kept(dataset: Dataset) -> None:
    from pointsman import BaseRefiner

    class RefusingRefiner(BaseRefiner):
        stage = "refuse"

        def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
            return Ranked((), ranking.scale, refused=Refusal("never"))

    service = EnhancedRetrievalService(None, dataset, workflow=RetrievalWorkflow(refiners=[RefusingRefiner()]))
    hits = search(service, "railway switch")
    assert hits == []
    assert str(hits.refused) == "never"


# ── stores of another kind ───────────────────────────────────────────────────────────────────────────────────────────


class ForeignStore:
    """Another vector store: a log for the keyword index, and a search by vector."""

    def __init__(self, dataset: Dataset) -> None:
        self._truth, self._vectors = collection_of(dataset).truth, collection_of(dataset).vectors

    @property
    def identity(self) -> str:
        return "foreign"

    def sequence(self) -> int:
        return self._truth.sequence()

    def changes(self, since: int) -> Any:
        return self._truth.changes(since)

    def fetch(self, keys: Sequence[int]) -> list[Document | None]:
        return self._truth.fetch(keys)

    def search(self, vector: NDArray[np.float32], k: int, filters: Filter | None = None) -> list[tuple[int, float]]:
        assert self._vectors is not None
        return self._vectors.search(vector, k, filters)


@pytest.mark.parametrize("strategy", ["bm25", "vector", "hybrid", "auto"])
def test_a_foreign_vector_store_gets_a_keyword_index_in_step(dataset: Dataset, tmp_path: Path, strategy: str) -> None:
    settings = {"bm25_index_path": str(tmp_path / "bm25"), "bm25_k1": 0.9}
    with EnhancedRetrievalService(settings, ForeignStore(dataset), HashingEmbedder()) as service:
        assert service.bm25_manager is not None
        hits = search(service, "green tea", 3, strategy, False)
        assert hits[0].id == "tea"
        sources = {"hybrid": {"bm25", "vector", "fuse"}, "auto": {"bm25", "vector", "fuse"}}
        names = {step.source.removesuffix("_retriever") for step in hits[0].provenance}
        assert names == sources.get(strategy, {strategy})
        assert hits.strategy == ("hybrid" if strategy == "auto" else strategy)
        dataset.add([Document("new", "zebra crossing")])
        assert search(service, "zebra", 1, strategy, False)[0].id == "new"
    if strategy != "bm25":
        return
    with Dataset("same", "", "keyword", bm25_k1=0.9) as reference:
        reference.add([*DOCUMENTS, Document("new", "zebra crossing")])
        assert hits[0].score != reference.search("green tea", 1, strategy="bm25").hits[0].score  # before the last one
        with EnhancedRetrievalService(settings, collection_of(dataset).truth) as words:
            hits_again = search(words, "green tea", 1, "bm25", False)
            assert hits_again[0].score == pytest.approx(reference.search("green tea", 1, strategy="bm25").hits[0].score)


@pytest.mark.parametrize("by_workflow", [False, True])
def test_a_default_strategy_searches_only_its_lists_of_a_foreign_store(
    dataset: Dataset, tmp_path: Path, by_workflow: bool
) -> None:
    settings = {"bm25_index_path": str(tmp_path / "bm25")}
    workflow = RetrievalWorkflow(strategy="bm25") if by_workflow else None
    settings |= {} if by_workflow else {"default_retrieval_strategy": "bm25"}
    with EnhancedRetrievalService(settings, ForeignStore(dataset), HashingEmbedder(), workflow=workflow) as service:
        hits = search(service, "green tea", 3, use_rerank=False)
        assert hits == search(service, "green tea", 3, "bm25", False)
        assert {step.source for hit in hits for step in hit.provenance} == {"bm25_retriever"}


def test_a_store_without_a_part_does_without_it(dataset: Dataset, tmp_path: Path) -> None:
    settings = {"bm25_index_path": str(tmp_path / "bm25")}
    with EnhancedRetrievalService(settings, collection_of(dataset).truth) as words:
        assert ids(search(words, "tea", 3)) == ["tea"]
        with pytest.raises(InputError, match="no vectors"):
            search(words, "tea", 3, "vector")
        assert "no vectors" in str(words.lack("vector"))
        assert words.lack("bm25") is None
        assert ids(search(words, "tea", 3, filters="length > 1")) == ["tea"]
        assert ids(search(words, "tea", 3, filters="length > 1000")) == []
    with pytest.raises(InputError, match="needs an embedding_service"):
        EnhancedRetrievalService({"bm25_index_path": str(tmp_path / "b")}, ForeignStore(dataset))


# ── language models by settings ──────────────────────────────────────────────────────────────────────────────────────


def test_language_models_out_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = llm_for(Settings(), "hyde")
    assert choice.llm is None
    assert "to dashscope and DASHSCOPE_API_KEY" in choice.reason
    assert llm_for(Settings(), "hyde", {"DASHSCOPE_API_KEY": "s3cret"}).llm is None, "a key is no consent"
    dashscope = llm_for(Settings(hyde_llm_provider="dashscope"), "hyde", {"DASHSCOPE_API_KEY": "s3cret"})
    assert isinstance(dashscope.llm, DashScopeLLM)
    assert "s3cret" not in repr(dashscope)
    local = llm_for(Settings(llm_base_url="http://localhost:1/v1", llm_model="m"))
    assert isinstance(local.llm, OpenAILLM)
    assert local.llm.base_url == "http://localhost:1/v1"
    openai = llm_for(Settings(llm_provider="openai"), "query2doc", {"OPENAI_API_KEY": "s3cret"})
    assert type(openai.llm) is OpenAILLM


def test_openais_key_goes_to_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    local = llm_for(Settings(llm_base_url="http://localhost:1/v1", llm_model="m")).llm
    assert isinstance(local, OpenAILLM)
    assert local._key == "no-key"
    choice = llm_for(Settings(llm_base_url="http://localhost:1/v1", llm_model="m", llm_api_key_env="OPENAI_API_KEY"))
    assert isinstance(choice.llm, OpenAILLM)
    assert choice.llm._key == "s3cret"


def test_without_its_package_there_is_no_model_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    choice = llm_for(Settings(llm_provider="openai"), "hyde", {"OPENAI_API_KEY": "k"})
    assert choice.llm is None
    assert "pip install 'pointsman[openai]'" in choice.reason


def test_models_given_in_code_go_before_the_settings(dataset: Dataset) -> None:
    general, hyde_llm = ScriptedLLM(["a"]), ScriptedLLM(["b"])
    service = EnhancedRetrievalService(None, dataset, llms={"general": general, "hyde": hyde_llm})
    assert service.llm("hyde").llm is hyde_llm
    assert service.llm("query2doc").llm is general
    with pytest.raises(InputError, match="cooking"):
        service.llm("cooking")


def test_an_unknown_name_lists_what_is_known(dataset: Dataset) -> None:
    service = EnhancedRetrievalService(None, dataset, strategies=registry_of(mine=Halves))
    with pytest.raises(UnknownNameError, match="mine") as error_info:
        service.search_sync("x", 5, "yours")
    assert {"auto", "bm25", "mine"} <= set(error_info.value.known)


class Similar:
    """The vector store of another library, by the one method that most have."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def similarity_search(self, text: str, k: int = 4) -> list[Any]:
        self.asked.append((text, k))
        return [SimpleNamespace(page_content=TEXTS[id_], metadata={"n": 1}, id=id_) for id_ in ("switch", "tea")]


class AwaitedSimilar(Similar):
    async def similarity_search(self, text: str, k: int = 4) -> list[Any]:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().similarity_search(text, k)


@pytest.mark.parametrize("store", [Similar(), AwaitedSimilar()], ids=["plain", "awaited"])
def test_x1_a_store_with_similarity_search_is_searched(store: Similar) -> None:
    """The seed's service is built over one (004): its order is the answer's."""
    with EnhancedRetrievalService(None, store) as service:
        hits = search(service, "how do trains change tracks?", k=2)
    assert [(hit.id, hit.document.metadata) for hit in hits] == [("switch", {"n": 1}), ("tea", {"n": 1})]
    assert store.asked[-1][0] == "how do trains change tracks?"


@pytest.mark.parametrize("strategy", ["vector", "auto"])
def test_x1_filters_over_a_store_with_similarity_search_are_applied_to_a_longer_list(strategy: str) -> None:
    store = Similar()
    with EnhancedRetrievalService(None, store) as service:
        hits = service.search_sync("trains", 2, strategy, filters="n = 1")
        assert {hit.id for hit in hits} == {"switch", "tea"}
        assert store.asked[-1][1] >= 200
        assert not service.search_sync("trains", 2, strategy, filters="n > 1")


def test_the_form_of_a_question_chooses_among_the_strategies_of_the_datasets_it_names(tmp_path: Path) -> None:
    settings, llm = Settings(policy="heuristic"), ScriptedLLM(lambda _: "A railway switch guides trains.")
    question = "How do I brew green tea, and at which temperature?"
    with Workspace(tmp_path / "work", embedder=HashingEmbedder(), settings=settings, llm=llm) as workspace:
        for name, technique in (("rails", "hybrid"), ("words", "keyword")):
            workspace.dataset(name, indexing_technique=technique).add([Document("tea", "Green tea is brewed.")])  # type: ignore[arg-type]
        with EnhancedRetrievalService(settings, workspace, llms={"general": llm}) as service:
            hits = service.search_sync(question, 2, datasets=["words"], refuse=False)
        expected = workspace.search(question, 2, datasets=["words"], refuse=False)
    assert hits.strategy == expected.plan.strategy
    assert hits.recommendation is not None
    assert hits.recommendation.strategy == expected.plan.strategy
    assert [hit.id for hit in hits] == [hit.id for hit in expected]
