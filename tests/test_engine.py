"""One request, one engine: what was decided in several places is decided in one, and says who decided it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

import pointsman
from pointsman import (
    BaseRetriever,
    Dataset,
    Document,
    EffortLimits,
    Hit,
    InputError,
    Message,
    Query,
    RetrievalWorkflow,
    RuleExpander,
    ScriptedLLM,
    Settings,
    Workspace,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.decisions.user_stages import Stages
from pointsman.retrieval.engine import Engine
from pointsman.retrieval.fusion import LISTS
from pointsman.retrieval.plan.routers import BaseRouter
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.retrieval.refine.rerank import BaseReranker
from pointsman.retrieval.request import SearchRequest, StrategyName
from pointsman.retrieval.strategies import BaseRetrievalStrategy, HybridStrategy
from pointsman.store.local.local_store import LocalStore
from pointsman.store.local.truth.truth_rows import Truth
from pointsman.text import query_tokens
from pointsman.tools.errors import UnknownNameError
from pointsman.values.registry import STRATEGIES, Registry
from pointsman.values.types import AddResult, Ranked
from pointsman.workspace.enhanced_retrieval_service import EnhancedRetrievalService
from profile_kit import Profile

TEXTS = {
    "switch": "A railway switch guides trains from one track to another.",
    "signal": "A signal lamp shows red when the line is not clear.",
    "guard": "The guard blows a whistle before the train departs.",
    "tea": "Green tea is brewed below boiling point.",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails", description="about rails").add([Document(id_, text) for id_, text in TEXTS.items()])
        yield workspace


def ranking(answer: Any) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in (answer.hits if hasattr(answer, "hits") else answer)]


class TestNothingIsMadeByReading:
    def test_an_empty_dataset_changes_nobodys_scores(self, workspace: Workspace) -> None:
        ranking_before = ranking(workspace.search("railway switch", 4, refuse=False))
        workspace.dataset("typo").make()
        assert ranking(workspace.search("railway switch", 4, refuse=False)) == ranking_before

    def test_reading_makes_no_dataset(self, workspace: Workspace, tmp_path: Path) -> None:
        typo = workspace.dataset("typo")
        assert typo.search("railway switch").hits == ()
        assert (len(typo), typo.get("a"), typo.ids(), typo.page()) == (0, None, [], ([], None))
        assert typo.delete("a") == 0
        assert typo.add([]) == AddResult()
        with pytest.raises(InputError):
            typo.add([{"id": "a"}])
        assert workspace.names() == ["rails"]
        assert not (tmp_path / "work" / "datasets" / "typo").exists()


class TestTheOfflineReranker:
    PASSAGE = "Green tea is brewed below boiling point."

    def test_it_does_not_undo_a_strategy(self, workspace: Workspace) -> None:
        workspace.llm = ScriptedLLM(lambda _: self.PASSAGE)
        for strategy in ("hyde", "multi_query", "decomposition"):
            options: Any = {"strategy": strategy, "refuse": False}
            default = workspace.search("what warms one up?", 4, **options)
            assert ranking(default) == ranking(workspace.search("what warms one up?", 4, rerank=False, **options))
        assert workspace.search("what warms one up?", 1, strategy="hyde", refuse=False).hits[0].id == "tea"

    @pytest.mark.parametrize("strategy", ["auto", "hybrid", "bm25", "vector", "rrf"])
    def test_it_is_not_said_to_have_reranked_what_it_leaves(self, workspace: Workspace, strategy: Any) -> None:
        answer = workspace.search("railway switch", 4, strategy=strategy)
        assert not answer.reranked
        assert not answer.to_dict()["reranked"]
        decision = next(decision for decision in answer.plan.decisions if decision.what == "rerank")
        assert decision.value == "none"
        assert decision.reason

    @pytest.mark.parametrize("technique", ["keyword", "vector"])
    def test_over_a_single_list_it_has_nothing_to_weigh(self, tmp_path: Path, technique: Any) -> None:
        with Workspace(tmp_path / "one", embedder=HashingEmbedder(64)) as workspace:
            workspace.dataset("notes", indexing_technique=technique).add([Document("a", "A railway switch.")])
            for strategy in ("auto", "bm25" if technique == "keyword" else "vector"):
                answer = workspace.search("railway switch", strategy=strategy, refuse=False)
                decision = next(decision for decision in answer.plan.decisions if decision.what == "rerank")
                assert decision.reason == "a single list has nothing to be weighed against"

    @pytest.mark.parametrize("strategy", ["bm25", "vector"])
    def test_a_list_that_was_named_is_left_in_its_order(self, workspace: Workspace, strategy: Any) -> None:
        answer = workspace.search("railway switch", strategy=strategy, refuse=False)
        decision = next(decision for decision in answer.plan.decisions if decision.what == "rerank")
        assert (
            decision.reason == f"{strategy!r} was requested by name, and the offline reranker would replace its order"
        )

    def test_asked_for_it_brings_a_fusion_up_to_the_calibrated_sum(self, workspace: Workspace) -> None:
        answer = workspace.search("railway switch", 4, strategy="rrf", rerank=True, refuse=False)
        assert answer.reranked
        assert [hit.id for hit in answer] == [
            hit.id for hit in workspace.search("railway switch", 4, strategy="hybrid", refuse=False)
        ]


class TestOneAnswerEverywhere:
    IRRELEVANT = "borscht recipe beetroot cabbage"

    def test_every_facade_answers_alike(self, workspace: Workspace) -> None:
        rails = workspace.dataset("rails")
        service = EnhancedRetrievalService({}, workspace)
        for question in ("railway switch", "red lamp", self.IRRELEVANT):
            answer = workspace.search(question, 3)
            other_answers: list[Any] = [
                rails.search(question, 3),
                RetrievalWorkflow().search(question, [rails], 3),
                workspace.search_many([question, "tea"], 3)[0],
                rails.search_many([question], 3)[0],
                service.search_sync(question, 3),
            ]
            for other_answer in other_answers:
                assert ranking(other_answer) == ranking(answer)
                assert (other_answer.refused is None) == (answer.refused is None)

    def test_a_strategy_by_itself_ranks_and_does_not_refuse(self, workspace: Workspace) -> None:
        assert ranking(HybridStrategy(workspace.dataset("rails")).retrieve(self.IRRELEVANT, 3))

    def test_settings_are_obeyed(self, tmp_path: Path) -> None:
        settings = Settings(default_retrieval_strategy="bm25", bm25_k1=0.5, bm25_b=0.1, timeout=7.0)
        with Workspace(tmp_path / "w", embedder=HashingEmbedder(), settings=settings) as workspace:
            workspace.dataset("rails").add([Document(id_, text) for id_, text in TEXTS.items()])
            answer = workspace.search("railway switch", 2)
            assert answer.plan.strategy == "bm25"
            assert next(decision for decision in answer.plan.decisions if decision.what == "strategy").by == "settings"
            assert workspace.search("railway switch", 2, strategy="vector").plan.strategy == "vector"
            recipe = workspace.engine.resolve(SearchRequest.of("x"), workspace.datasets())
            assert recipe.timeout == 7.0
            with Dataset("same", indexing_technique="keyword", bm25_k1=0.5, bm25_b=0.1) as dataset:
                dataset.add([Document(id_, text) for id_, text in TEXTS.items()])
                expected = ranking(dataset.search("railway switch", 2, strategy="bm25", refuse=False))
            assert ranking(workspace.search("railway switch", 2, refuse=False)) == expected

    @pytest.mark.parametrize(
        ("settings", "strategy", "name", "value"),
        [
            ({"query2doc_num_expansions": 2}, "query2doc", "num_expansions", 2),
            ({"decomposition_max_subqueries": 4}, "decomposition", "max_subqueries", 4),
            ({"multi_query_variants": ["correction"]}, "multi_query", "variants", ("correction",)),
            ({"compression_max_length": 77}, "compression", "max_length", 77),
        ],
    )
    def test_settings_of_strategies_are_obeyed(
        self, workspace: Workspace, settings: dict[str, Any], strategy: str, name: str, value: Any
    ) -> None:
        engine = Engine(Settings(**settings), Stages(), ScriptedLLM([]))
        assert getattr(engine.strategy(strategy, workspace.datasets()), name) == value


class TestRouting:
    def test_transformers_search_what_the_router_chose(self, workspace: Workspace) -> None:
        """A chain of questions is followed in the routed datasets alone, with the search's own breaker."""
        workspace.dataset("films").add([Document("film", "Anna Berg directed the film Night Train in 1994.")])

        class OnlyRails(BaseRouter):
            def route(self, query: str | Query, datasets: Sequence[Any]) -> list[Any]:
                return [dataset for dataset in datasets if dataset.name == "rails"]

        datasets_asked: list[str] = []
        films = workspace.dataset("films")
        store = films.store
        original = store.search
        store.search = (  # type: ignore[method-assign]
            lambda store_queries: datasets_asked.append("films") or original(store_queries)  # type: ignore[func-returns-value]
        )
        try:
            workflow = RetrievalWorkflow(router=OnlyRails())
            question = "Who directed the film that won the Palme d'Or in 1994?"
            answer = workflow.search(question, workspace.datasets(), 3, effort="thorough", refuse=False)
        finally:
            store.search = original  # type: ignore[method-assign]
        assert datasets_asked == []
        assert answer.plan.datasets == ("rails",)

    def test_lists_and_words_of_other_datasets_take_no_part(self, workspace: Workspace) -> None:
        """Neither the sparse list of a dataset that the router excluded, nor corrections from its words."""
        workspace.dataset("films").add([Document("film", "Xylandria is a film about a railway switch.")])

        class OnlyRails(BaseRouter):
            def route(self, query: str | Query, datasets: Sequence[Any]) -> list[Any]:
                return [dataset for dataset in datasets if dataset.name == "rails"]

        routing_workflow, datasets = RetrievalWorkflow(router=OnlyRails()), workspace.datasets()
        answer = routing_workflow.search("railway switch", datasets, 9, strategy="sparse", refuse=False)
        assert {hit.dataset for hit in answer} == {"rails"}
        assert answer.plan.datasets == ("rails", "sparse_2")
        answer_without_router = RetrievalWorkflow().search(
            "xylandira switch", datasets, 9, strategy="multi_query", refuse=False
        )
        answer = routing_workflow.search("xylandira switch", datasets, 9, strategy="multi_query", refuse=False)
        details = [
            next(span.detail for span in result.trace.spans if span.stage == "transform")
            for result in (answer_without_router, answer)
        ]
        assert ["correction" in detail for detail in details] == [True, False]

    def test_a_strategy_that_searches_by_itself_says_what_takes_no_part(self, workspace: Workspace) -> None:
        class OwnSearch(BaseRetrievalStrategy):
            async def search(self, query: str | Query, k: int = 5) -> Any:
                return [Hit(Document("own", "mine"), 1.0)]

        class AllDatasets(BaseRouter):
            def route(self, query: str | Query, datasets: Sequence[Any]) -> list[Any]:
                return list(datasets)

        registry = Registry[Any]("strategy")
        registry.register("own", OwnSearch)
        request = SearchRequest.of("switch", options={"strategy": "own", "refuse": False})
        notes = [
            Engine(stages=stages, registry=registry).search(request, workspace.datasets()).degraded
            for stages in (Stages(), Stages(router=AllDatasets(), transformer=RuleExpander(["paraphrase"])))
        ]
        note = "strategy 'own' searches by itself; the workflow's router and transformer cannot take part"
        assert notes == [(), (note,)]

    @pytest.mark.parametrize(
        ("technique", "substitute"), [("keyword", "bm25"), ("vector", "vector"), ("hybrid", "hybrid")]
    )
    def test_a_strategy_that_fails_is_replaced_by_what_the_datasets_keep(self, technique: Any, substitute: str) -> None:
        class FailingStrategy(BaseRetrievalStrategy):
            async def search(self, query: str | Query, k: int = 5) -> Any:
                raise ConnectionError("away")

        registry = Registry[Any]("strategy")
        registry.register("broken", FailingStrategy)
        dataset = Dataset("rails", indexing_technique=technique, embedder=HashingEmbedder())
        dataset.add([Document(id_, text) for id_, text in TEXTS.items()])
        request = SearchRequest.of("railway switch", 3, {"strategy": "broken"})
        answer = Engine(registry=registry).search(request, [dataset])
        assert ranking(answer) == ranking(dataset.search("railway switch", 3))
        (note,) = answer.degraded
        assert "'broken' failed; plain search was used instead" in note
        assert answer.plan.strategy == substitute
        assert [decision.by for decision in answer.plan.decisions if decision.what == "strategy"] == ["default"]

    def test_auto_may_stand_for_a_registered_strategy(self, workspace: Workspace) -> None:
        workspace.workflow = RetrievalWorkflow(strategy="multi_query")
        answer = workspace.search("railway switch", refuse=False)
        assert answer.plan.strategy == "multi_query"
        assert ranking(answer) == ranking(workspace.search("railway switch", strategy="multi_query", refuse=False))
        with pytest.raises(UnknownNameError, match="did you mean 'multi_query'"):
            Engine(stages=Stages(strategy="multi-query"))

    @pytest.mark.parametrize("strategy", ["auto", "hybrid", "decomposition", "sparse", "hyde"])
    def test_without_datasets_every_strategy_answers_that_there_are_none(self, tmp_path: Path, strategy: Any) -> None:
        with Workspace(tmp_path / "new", llm=ScriptedLLM([])) as empty:
            answer = empty.search("what is it?", strategy=strategy)
        assert (answer.hits, answer.plan.datasets) == ((), ())
        assert "there is no dataset yet" in answer.plan.reason


class TestRequests:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"filtres": "x = 1"}, "did you mean 'filters'"),
            ({"limit": 3}, "no option of a search named 'limit'; there are k, as_of, coverage"),
            ({"strategy": "hybird"}, "did you mean 'hybrid'"),
            ({"effort": "turbo"}, "known: balanced, fast, thorough"),
            ({"rerank": lambda hits: hits}, "rerank is True, False, None or a refiner"),
            ({"refuse": "no"}, "no refuse named 'no'; known: elsewhere, never, unsure"),
            ({"timeout": -1}, "timeout is a number of seconds above 0"),
            ({"timeout": True}, "timeout is a number of seconds above 0"),
            ({"filters": False}, "a filter is an expression or a mapping, not bool"),
            ({"filters": []}, "a filter is an expression or a mapping, not list"),
            ({"datasets": 7}, "datasets are names"),
        ],
    )
    def test_what_cannot_be_is_named_with_the_nearest_right_one(
        self, workspace: Workspace, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            workspace.search("x", **options)

    @pytest.mark.parametrize("empty_filter", [None, "", {}])
    def test_no_filter(self, workspace: Workspace, empty_filter: Any) -> None:
        assert workspace.search("tea", filters=empty_filter).query.filters is None

    @pytest.mark.parametrize("milliseconds", [-1, "5", float("nan")])
    def test_limits_are_numbers(self, milliseconds: Any) -> None:
        with pytest.raises(InputError, match="milliseconds of limits is a number from 0 up"):
            EffortLimits(milliseconds=milliseconds)

    @pytest.mark.parametrize("k", [0, -1, "2", True, 1.5])
    def test_i1_a_number_of_results_is_a_number(self, workspace: Workspace, k: Any) -> None:
        for search in (workspace.search, workspace.dataset("rails").search):
            with pytest.raises(InputError, match="from 1 up"):
                search("x", k)

    def test_an_embedder_that_is_unknown(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no embedder named 'e5'"):
            Workspace(tmp_path / "w", embedder="e5")
        with pytest.raises(InputError, match="image_embedder"):
            Workspace(tmp_path / "w", image_embedder="e5")

    def test_the_named_strategies_are_those_there_are(self) -> None:
        names = {n for n in STRATEGIES.names() if STRATEGIES.get(n).__module__.startswith("pointsman.")}
        assert set(get_args(StrategyName)) == {"auto", "dense", *LISTS, *names}

    def test_an_unknown_dataset_of_a_workflow(self, workspace: Workspace) -> None:
        with pytest.raises(UnknownNameError, match="rails"):
            workspace.search("x", datasets=["rail"])


class TestI5:
    QUESTION = "what is a railway switch?"

    def test_with_a_model_the_look_of_a_question_decides_until_a_policy_is_fitted(self, workspace: Workspace) -> None:
        workspace.llm = ScriptedLLM(lambda _: TEXTS["switch"])
        answer = workspace.search(self.QUESTION, 2)
        assert answer.plan.strategy == "hyde"
        assert {"bm25", "vector", "hypothetical 1"} <= {step.source for hit in answer for step in hit.provenance}
        policy = pointsman.Policy(name="tuned")
        workspace.keep(policy)
        assert workspace.search(self.QUESTION, 2).plan.strategy == "hybrid"

    def test_without_a_model_or_switched_off_it_does_not(self, workspace: Workspace) -> None:
        assert workspace.search(self.QUESTION, 2).plan.strategy == "hybrid"
        workspace.llm = ScriptedLLM(lambda _: TEXTS["switch"])
        workspace.settings = Settings(enable_strategy_auto_selection=False)
        assert workspace.search(self.QUESTION, 2).plan.strategy == "hybrid"

    def test_each_of_many_questions_is_looked_at(self, workspace: Workspace) -> None:
        workspace.llm = ScriptedLLM(lambda _: TEXTS["switch"])
        answers = workspace.search_many([self.QUESTION, "a long line of words about the railway"], 2)
        assert [answer.plan.strategy for answer in answers] == ["hyde", "hybrid"]

    def test_questions_of_one_strategy_keep_their_reason_and_their_conversation(self, workspace: Workspace) -> None:
        workspace.llm = ScriptedLLM(lambda _: TEXTS["switch"])
        talk = (Message("user", "what does a railway switch do?"), Message("assistant", "It guides trains."))
        questions = ["compare a switch and a signal", "чем отличается сигнал от стрелки", "tea", "green tea"]
        batch: list[str | Query] = [*questions, self.QUESTION, Query("and where is it?", history=talk)]
        answers = workspace.search_many(batch, 2)
        single_answers = [workspace.search(question, 2) for question in batch]
        assert [answer.plan.reason for answer in answers] == [answer.plan.reason for answer in single_answers]
        assert answers[-1].plan.strategy == answers[-2].plan.strategy  # they share batches
        assert answers[-1].query.text == single_answers[-1].query.text == "and where is it?"
        for answer in (answers[-1], single_answers[-1]):
            assert f"{talk[0].text} and where is it?" in str(answer.trace.to_dict())
        assert [ranking(answer) for answer in answers] == [ranking(answer) for answer in single_answers]

    @pytest.mark.parametrize("settings", [Settings(policy="measured"), Settings.load(environ={}, policy="measured")])
    def test_the_measured_choice_can_be_kept_beside_a_model(self, workspace: Workspace, settings: Settings) -> None:
        llm = ScriptedLLM(lambda _: "A railway switch guides trains.")
        for chosen_settings, strategy in ((Settings(), "hyde"), (settings, "hybrid")):
            with Workspace(workspace.path, embedder=HashingEmbedder(), settings=chosen_settings, llm=llm) as again:
                assert again.search(self.QUESTION, refuse=False).plan.strategy == strategy


class TestCost:
    """What a warm search of one dataset enters and asks; a change that raises these numbers has a reason or a fault."""

    def search(self, workspace: Workspace, **options: Any) -> None:
        workspace.search("railway switch", 4, **options)

    @pytest.mark.parametrize("options", [{}, {"effort": "fast", "rerank": False}])
    def test_files(self, workspace: Workspace, options: dict[str, Any]) -> None:
        self.search(workspace, **options)
        files = Profile(lambda: self.search(workspace, **options)).files.keys() - {"embedders/scripted_embedders.py"}
        assert len(files) <= 39, "\n".join(sorted(files))

    @pytest.mark.parametrize(("embedder", "most"), [(None, 160), (HashingEmbedder(), 143)], ids=["default", "hashing"])
    def test_a_question_asked_again_asks_each_thing_once(
        self, tmp_path: Path, embedder: HashingEmbedder | None, most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        question, workspace = "railway switch", Workspace(tmp_path, embedder=embedder)
        workspace.dataset("rails").add([Document(str(n), f"a railway switch guides trains to {n}") for n in range(10)])
        for _ in range(2):  # the first one also measures the dataset's background
            answer = workspace.search(question, 4)
        query_tokens.cache_clear()
        builds: Counter[str] = Counter()
        build = Hit.__init__

        def count_build(hit: Hit, document: Document, *values: Any, **fields: Any) -> None:
            builds[document.id] += 1
            build(hit, document, *values, **fields)

        profile = Profile(lambda: workspace.search(question, 4))
        assert profile.calls["StoredDataset.store"] == 1
        assert profile.calls["Collection.refresh"] == 1
        assert profile.calls["Analyzer.query_tokens"] == 2  # those of the question, and of its words in one
        assert profile.calls["StoredWorkspace.access"] == 1
        assert profile.moves <= most  # those of the default embedder's calibration are more
        assert profile.calls.total() <= 702  # six look up the words in one
        monkeypatch.setattr(Hit, "__init__", count_build)
        answer = workspace.search(question, 4)
        assert {hit.id for hit in answer} <= set(builds)
        assert max(builds.values()) <= 2, builds

    def test_a_search_with_an_unknown_word_reads_each_thing_once(
        self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(3):
            assert workspace.search("railway swich", 4).spelling is not None
        profile = Profile(lambda: workspace.search("railway swich", 4))
        assert len(profile.files) <= 40, "\n".join(sorted(profile.files))
        calls: Counter[str] = Counter()  # in any thread; those of the pool are older than a profile
        for kind, name in ((Truth, "metas"), (LocalStore, "statistics")):
            original = getattr(kind, name)

            def count_call(self: Any, ask: Any = original) -> Any:
                calls[ask.__qualname__] += 1
                return ask(self)

            monkeypatch.setattr(kind, name, count_call)
        workspace.search("railway swich", 4)
        assert calls == {"Truth.metas": 1, "LocalStore.statistics": 1}

    def test_with_access_on_principals_are_checked_once(self, workspace: Workspace) -> None:
        rails = workspace.dataset("rails")
        rails.add([Document(f"open {id_}", text) for id_, text in TEXTS.items()], access=["group:staff"])
        workspace.switch_access(on=True)
        for _ in range(3):
            assert len(workspace.search("railway switch", 4, principals=["group:staff"])) > 1
        profile = Profile(lambda: workspace.search("railway switch", 4, principals=["group:staff"]))
        assert (profile.calls["check_principals"], profile.calls["StoredWorkspace.access"]) == (1, 1)
        assert len(profile.files) <= 58, "\n".join(sorted(profile.files))

    def test_sql_statements(self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
        self.search(workspace)
        statements: list[str] = []
        for name in ("_row", "_rows"):
            original = getattr(Truth, name)

            def count_statement(self: Truth, sql: str, *values: object, ask: Any = original) -> Any:
                statements.append(sql)
                return ask(self, sql, *values)

            monkeypatch.setattr(Truth, name, count_statement)
        self.search(workspace)
        assert len(statements) <= 4, statements


class TestI6:
    def test_the_embedder_that_settings_name_is_used(self, tmp_path: Path) -> None:
        with pointsman.open(tmp_path / "w", settings=Settings(embedder="hashing")) as workspace:
            workspace.dataset("rails").add([Document("switch", TEXTS["switch"])])
            assert workspace.status("rails")["embedder"] == HashingEmbedder().name
        other_embedder = HashingEmbedder(dimensions=32)
        with Workspace(tmp_path / "v", embedder=other_embedder, settings=Settings(embedder="hashing")) as workspace:
            assert workspace.dataset("rails").embedder.name == other_embedder.name
        with pytest.raises(InputError, match=r"settings are Settings\(name=value"):
            Workspace(tmp_path / "w", settings={"timeout": 3})  # type: ignore[arg-type]

    def test_models_that_settings_name_are_used(self, tmp_path: Path) -> None:
        settings = Settings(hyde_llm_provider="openai_compatible", hyde_model="m", llm_base_url="http://127.0.0.1:9/v1")
        with Workspace(tmp_path / "w", embedder=HashingEmbedder(), settings=settings) as workspace:
            rails = workspace.dataset("rails")
            rails.add([Document("switch", TEXTS["switch"])])
            assert workspace.engine.lack("hyde", [rails]) is None
        with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
            assert workspace.engine.lack("hyde", [workspace.dataset("rails")])


class TestR8:
    HISTORY = (Message("user", "Who wrote Emma?"), Message("assistant", "Emma was written by Jane Austen."))
    SEARCHED = "Who wrote Emma? When did she die?"

    def test_a_question_of_a_conversation_is_searched_with_it_too(self, workspace: Workspace) -> None:
        follow_up = Query("When did she die?", history=self.HISTORY)
        for options in ({}, {"strategy": "hybrid"}, {"strategy": "multi_query"}, {"effort": "fast"}):
            answer = workspace.search(follow_up, 2, refuse=False, **options)  # type: ignore[arg-type]
            assert answer.query.text == "When did she die?"
            assert self.SEARCHED in str(answer.trace.to_dict())
        without_history, with_history = workspace.search_many([Query(follow_up.text), follow_up], 2, refuse=False)
        assert [self.SEARCHED in str(answer.trace.to_dict()) for answer in (without_history, with_history)] == [
            False,
            True,
        ]

    def test_a_transformer_of_ones_own_decides(self, workspace: Workspace) -> None:
        workspace.workflow = RetrievalWorkflow(transformer=RuleExpander())
        follow_up = Query("When did she die?", history=self.HISTORY)
        assert self.SEARCHED not in str(workspace.search(follow_up, 2, refuse=False).trace.to_dict())

    def test_a_model_that_writes_texts_to_search_for_is_told_what_was_asked_before(self, workspace: Workspace) -> None:
        follow_up = Query("When did she die?", history=self.HISTORY)
        for strategy in ("hyde", "query2doc", "decomposition"):
            workspace.llm = ScriptedLLM(lambda _: TEXTS["switch"])
            workspace.search(follow_up, 2, strategy=strategy, refuse=False)
            assert self.SEARCHED in workspace.llm.calls[0].prompt


class TestWhatUsersBring:
    """Rows of the seeds that a user implements with the seeds' own methods."""

    def test_r2_a_router_that_reads_the_text(self, workspace: Workspace) -> None:
        class ByDescription(BaseRouter):
            def route(self, query: str, datasets: Sequence[Any]) -> list[Any]:  # type: ignore[override]
                return [dataset for dataset in datasets if dataset.description.lower() in query.lower()]

        class AsyncByDescription(BaseRouter):
            async def aroute(self, query: str, datasets: Sequence[Any]) -> list[Any]:  # type: ignore[override]
                return [dataset for dataset in datasets if dataset.description.lower() in query.lower()]

        tea, rails = Dataset("drinks", "Tea"), Dataset("rails", "Rails")
        for router in (ByDescription(), AsyncByDescription()):
            assert router.route("Green TEA", [rails, tea]) == [tea]
            assert router.decide(Query("green tea"), [rails, tea]).datasets == (tea,)

    def test_i2_a_strategy_that_reads_the_text_and_returns_documents(self, workspace: Workspace) -> None:
        class Echo(BaseRetrievalStrategy):
            async def search(self, query: str, k: int) -> list[Document]:  # type: ignore[override]
                return [Document("echo", query.upper()), Document("again", query.lower())]

        echo = Echo(workspace.dataset("rails"))
        registry = Registry[Any]("strategy")
        registry.register("echo", Echo)
        request = SearchRequest.of("Switch", 2, {"strategy": "echo", "refuse": False})
        answer = Engine(registry=registry).search(request, [workspace.dataset("rails")])
        assert ([hit.text for hit in answer], answer.degraded) == (["SWITCH", "switch"], ())
        assert answer.plan.datasets == ("rails",)  # what it searches, not its own name
        assert [hit.text for hit in echo.retrieve(Query("Switch"), 2)] == ["SWITCH", "switch"]
        hybrid = pointsman.SimpleHybridRetriever(echo, workspace.dataset("rails").retriever("bm25"))
        assert hybrid.retrieve("Switch", 1)[0].id in {"echo", "switch"}

    def test_f1_a_node_of_two_datasets_is_one_hit(self) -> None:
        words, meaning = Dataset("words", indexing_technique="keyword"), Dataset("near", embedder=HashingEmbedder())
        hybrid = pointsman.SimpleHybridRetriever(words.retriever(), meaning.retriever("vector"))
        assert hybrid.add_nodes([Document("tea", "green tea"), Document("rail", "railway")])
        meaning.add([Document("other", "black tea")])
        words.add([Document("other", "another tea altogether")])
        hits = hybrid.retrieve("green tea", 9)
        assert sorted(hit.id for hit in hits) == ["other", "other", "rail", "tea"]  # the same id, different nodes
        assert hits[0].id == "tea"
        assert {"dataset", "dataset_2"} <= {step.source for step in hits[0].provenance}

    def test_f2_a_fusion_of_ones_own(self, workspace: Workspace) -> None:
        rails = workspace.dataset("rails")

        def last_of_the_first(lists: Sequence[Any], weights: Sequence[float] | None = None) -> list[tuple[Any, float]]:
            return [(key, float(rank)) for rank, (key, _) in enumerate(lists[0])][::-1]

        words, dense = rails.retriever("bm25"), rails.retriever("vector")
        hybrid = pointsman.SimpleHybridRetriever(dense, words, fusion=last_of_the_first)
        assert [hit.id for hit in hybrid.retrieve("railway switch", 4)] == [
            hit.id for hit in dense.retrieve("railway switch", 100)
        ][::-1]
        with pytest.raises(InputError, match="cannot be saved"):
            hybrid.persist("nowhere")
        faulty: list[Any] = [lambda *_: 7, lambda *_: [("a", 1.0), ("a", 2.0)], lambda *_: [("a", float("nan"))]]
        for bad in faulty:
            with pytest.raises(InputError, match="the fusion <lambda> returns"):
                pointsman.SimpleHybridRetriever(words, fusion=bad).retrieve("railway")

    def test_r5_a_reranker_that_only_orders(self, workspace: Workspace) -> None:
        class Alphabetical(BaseReranker):
            def rerank(self, query: Any, documents: Sequence[Document], top_n: int | None = 4) -> list[Document]:
                return sorted(documents, key=lambda document: document.id)[:top_n]

        answer = workspace.search("railway switch", 4, rerank=Alphabetical(), refuse=False)
        assert [hit.id for hit in answer] == sorted(TEXTS)
        assert answer.reranked
        workflow = RetrievalWorkflow(reranker=Alphabetical())
        answer_by_order = workflow.search("railway switch", [workspace.dataset("rails")], 4, refuse=False)
        assert [hit.id for hit in answer_by_order] == sorted(TEXTS)

    def test_refiners_that_cannot_be_hashed(self, workspace: Workspace) -> None:
        @dataclass  # compares by value, so it has no hash
        class Shortest(BaseReranker):
            sign: int = -1

            def score(self, query: str, texts: Sequence[str]) -> list[float]:
                return [self.sign * len(text) for text in texts]

        @dataclass
        class Lenient(BaseRefiner):
            stage = "refuse"

            def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
                return ranking

        for sign, first in ((-1, "tea"), (1, "switch")):
            answer = workspace.search("railway tea", 1, rerank=Shortest(sign), refuse=Lenient())
            assert [hit.id for hit in answer] == [first]

    def test_i2_a_strategy_that_is_replaced(self, workspace: Workspace) -> None:
        class FixedRetriever(BaseRetriever):
            def __init__(self, id_: str) -> None:
                self.id = id_

            def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
                return [Hit(Document(self.id, "text"), 1.0)]

        strategies: Registry[Any] = Registry("strategy")
        engine = Engine(registry=strategies)
        request = SearchRequest.of("anything", options={"strategy": "mine"})
        for name in ("first", "second"):
            strategies.register("mine", lambda *_, name=name, **__: FixedRetriever(name), replace=True)
            answer = engine.search(request, [workspace.dataset("rails")])
            assert [hit.id for hit in answer] == [name]

    def test_i1_a_dataset_is_a_source_of_a_keyword_index(self, workspace: Workspace, tmp_path: Path) -> None:
        manager = pointsman.BM25IndexManager(tmp_path / "bm25", workspace.dataset("rails"))
        assert manager.search("railway switch", 1)[0].id == "switch"
        for k in (0, -1, "2", True):
            with pytest.raises(InputError, match="from 1 up"):
                manager.search("railway", k)  # type: ignore[arg-type]
        manager.close()


class TestDense:
    """``dense``, the route of `router_select`, is another name of vector search."""

    def test_every_option_that_names_a_strategy_takes_dense(self, workspace: Workspace) -> None:
        expected = workspace.search("railway switch", 2, strategy="vector").plan.strategy
        assert workspace.search("railway switch", 2, strategy="dense").plan.strategy == expected == "vector"
        assert Stages(strategy="dense").strategy == "vector"
        service = EnhancedRetrievalService(Settings(default_retrieval_strategy="dense"), workspace)
        assert service.search_sync("railway switch", 2).strategy == "vector"

    def test_bundle_is_a_question(self) -> None:
        bundle: Any = SimpleNamespace(query_str="railway switch")
        assert SearchRequest.of(bundle).query == SearchRequest.of("railway switch").query


def test_how_a_view_is_searched_is_decided_once_until_settings_or_documents_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided, resolve = Counter[str](), Engine._resolve

    def resolve_and_count(engine: Engine, request: SearchRequest, sources: Sequence[Any]) -> Any:
        decided["times"] += 1
        return resolve(engine, request, sources)

    monkeypatch.setattr(Engine, "_resolve", resolve_and_count)
    asker = ["group:rail"]
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        rails = workspace.dataset("rails")
        rails.add([Document(id_, text) for id_, text in TEXTS.items()], access=asker)
        workspace.switch_access(on=True)

        def first(**options: Any) -> str:
            return workspace.search("railway switch", 2, principals=asker, **options).hits[0].id

        assert [first(), first(), decided["times"]] == ["switch", "switch", 1]
        assert [workspace.search("railway switch", principals=["group:tea"]).hits, decided["times"]] == [(), 2]
        workspace.settings = replace(workspace.settings, default_retrieval_strategy="bm25")
        answer = workspace.search("railway switch", 2, principals=asker)
        assert [answer.strategy, decided["times"]] == ["bm25", 3]
        rails.add([Document("new", "A railway switch, a railway switch, a railway switch.")], access=asker)
        assert [first(), decided["times"]] == ["new", 4]
        for k in range(1, 30):
            workspace.search("railway switch", k, principals=asker)
        assert len(rails.in_view(asker).recipes) == 8
