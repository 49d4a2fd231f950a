"""The way of a query through every stage: R3, R7, R9, and what happens when a stage fails."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from patience_kit import holds_with_time
from pointsman import BaseRefiner, BaseRetriever, BaseRouter, Dataset, Document, Hit, Query, RetrievalWorkflow
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.plan.policy import Policy
from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed
from pointsman.retrieval.run.variant import Variant
from pointsman.tools.errors import InputError, RetrievalError, UnknownNameError
from pointsman.tools.parallel_calls import Breaker
from pointsman.values.filters import parse_filter
from pointsman.values.types import Message, Ranked, Refusal, Trace
from store_kit import corpus
from test_hybrid import Failing, FixedRetriever, Slow, ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.values.retrieval_context import RetrievalContext


def search(workflow: RetrievalWorkflow, *args: Any, **options: Any) -> RetrievalContext:
    return workflow.search(*args, **options)


@pytest.fixture(scope="module")
def datasets() -> Iterator[tuple[Dataset, Dataset]]:
    embedder = HashingEmbedder()
    rails, lamps = Dataset("rails", embedder=embedder), Dataset("lamps", embedder=embedder)
    rails.add(corpus(60, seed=1))
    lamps.add(corpus(60, seed=2))
    yield rails, lamps
    rails.close()
    lamps.close()


class ReversingRefiner(BaseRefiner):
    stage = "rerank"

    def __init__(self, depth: int = 0, *, in_place: bool = False) -> None:
        self._depth, self.in_place = depth, in_place
        self.sizes: list[int] = []

    def depth(self, top_k: int, scale: str) -> int:
        return max(top_k, self._depth)

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        self.sizes.append(len(ranking.hits))
        return replace(ranking, hits=ranking.hits[::-1], scale="rerank:reversed", detail="backwards")


class FailingRefiner(BaseRefiner):
    """Does what it is told to instead of refining."""

    def __init__(self, act: Callable[[], Any], *, timeout: float | None = None, in_place: bool = False) -> None:
        self.act, self.timeout, self.in_place = act, timeout, in_place
        self.stage = "compress"

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        return self.act()  # type: ignore[no-any-return]


def raises() -> Any:
    raise LookupError("no model")


class Refusing(BaseRefiner):
    stage = "refuse"

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        nearest = ranking.hits[0] if ranking.hits else None
        return Ranked((), ranking.scale, "too far", {nearest.key: "too far"} if nearest else {},
                      refused=Refusal("nothing is near", nearest, 0.1, 0.5, "probability"))  # fmt: skip


class Rewriting(BaseTransformer):
    def __init__(self, *variants: Variant, new_text: str | None = None) -> None:
        self.variants, self.new_text = variants, new_text

    def transform(self, query: str | Query) -> Transformed:
        query = Query.of(query)
        return Transformed(replace(query, text=self.new_text) if self.new_text else query, self.variants, "rewritten")


class Choosing(BaseRouter):
    def __init__(self, *names: str) -> None:
        self.names = names

    def route(self, query: str | Query, datasets: Sequence[Dataset]) -> list[Dataset]:
        if not self.names:
            raise LookupError("no router")
        return [dataset for dataset in datasets if dataset.name in self.names]


def test_with_no_stage_at_all(datasets: tuple[Dataset, Dataset]) -> None:
    context = search(RetrievalWorkflow(), "rail lamp", datasets, 7)
    assert len(context) == 7
    assert {hit.dataset for hit in context} <= {"rails", "lamps"}
    assert [hit.score for hit in context] == sorted((hit.score for hit in context), reverse=True)
    assert (context.plan.datasets, context.plan.strategy) == (("rails", "lamps"), "hybrid")
    assert [span.stage for span in context.trace.spans] == [
        *("plan", "transform", "retrieve", "retrieve", "fuse", "fetch", "refuse")
    ]
    assert (context.refused, context.degraded) == (None, ())
    assert search(RetrievalWorkflow(), "rail lamp", datasets, 7).hits == context.hits


def test_r7_with_every_stage(datasets: tuple[Dataset, Dataset]) -> None:
    reranker, last = ReversingRefiner(30), ReversingRefiner()
    workflow = RetrievalWorkflow(
        router=Choosing("lamps"), reranker=reranker, transformer=Rewriting(new_text="signal"), refiners=[last]
    )
    context = search(workflow, "rail", datasets, 5)
    assert [span.stage for span in context.trace.spans] == [
        *("plan", "transform", "retrieve", "fuse", "fetch", "rerank", "refuse", "rerank")
    ]
    assert context.query.text == "signal"
    assert {hit.dataset for hit in context} == {"lamps"}
    assert reranker.sizes == last.sizes == [30]
    plain = search(RetrievalWorkflow(), "signal", [datasets[1]], 5)
    assert ids(context.hits) == ids(plain.hits)  # reversed twice
    assert "chosen by Choosing" in context.plan.reason


def test_retrieve_gives_one_context_for_each_question(datasets: tuple[Dataset, Dataset]) -> None:
    workflow = RetrievalWorkflow()
    contexts = workflow.retrieve("rail", datasets, 3)
    assert [context.query.text for context in contexts] == ["rail"]
    two = workflow.retrieve(["rail", Query("lamp")], datasets, 3)
    assert [context.query.text for context in two] == ["rail", "lamp"]
    assert two[0].hits == contexts[0].hits
    async_contexts = asyncio.run(workflow.aretrieve(["rail", "lamp"], datasets, 3))
    assert [context.hits for context in async_contexts] == [context.hits for context in two]
    assert asyncio.run(workflow.aretrieve("rail", datasets, 3))[0].hits == contexts[0].hits


@pytest.mark.parametrize("strategy", ["auto", "bm25", "vector", "hybrid", "rrf", "z_score", "decomposition"])
def test_strategies(datasets: tuple[Dataset, Dataset], strategy: str) -> None:
    context = search(RetrievalWorkflow(strategy=strategy), "rail lamp", datasets, 5)
    assert context.plan.strategy == ("hybrid" if strategy == "auto" else strategy)
    assert context.hits == search(RetrievalWorkflow(), "rail lamp", datasets, 5, strategy=strategy).hits


def test_datasets_and_retrievers_together(datasets: tuple[Dataset, Dataset]) -> None:
    foreign = FixedRetriever(("x", 900.0), ("d1", 5.0))
    context = search(RetrievalWorkflow(), "rail lamp", [datasets[0], foreign, datasets[1]], 60)
    assert context.plan.datasets == ("rails", "fixed", "lamps")
    assert "x" in ids(context.hits)
    assert context.trace.spans[-3].detail.startswith("rrf")  # foreign scores are on no common scale
    assert {hit.dataset for hit in context} == {"rails", "lamps", None}
    alone = search(RetrievalWorkflow(), "rail lamp", [foreign], 5)
    assert [(hit.id, hit.score) for hit in alone] == [("x", 900.0), ("d1", 5.0)]


@pytest.mark.parametrize("strategy", ["bm25", "vector"])
def test_one_list_keeps_its_scores_and_beside_others_is_fused_with_them(
    datasets: tuple[Dataset, Dataset], strategy: str
) -> None:
    alone = search(RetrievalWorkflow(strategy=strategy), "rail lamp", [datasets[0]], 5)
    assert [hit.score for hit in alone] == [hit.provenance[0].score for hit in alone]
    foreign = FixedRetriever(("x", 900.0))
    together = search(RetrievalWorkflow(strategy=strategy), "rail lamp", [datasets[0], foreign], 60)
    assert "x" in ids(together.hits)
    assert [hit.id for hit in together if hit.dataset == "rails"][:5] == ids(alone.hits)
    shares = {step.source: step.normalised for hit in together if hit.id == "x" for step in hit.provenance}
    assert shares["fixed"] == pytest.approx(1 / 61)
    assert {step.normalised for hit in together for step in hit.provenance if step.source == strategy} == {None}


def test_a_store_that_answers_too_few_queries_has_failed(
    datasets: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets[0].store, "search", lambda store_queries: [], raising=True)
    context = search(RetrievalWorkflow(), "rail lamp", datasets, 5)
    assert {hit.dataset for hit in context} == {"lamps"}
    assert any(note.startswith("rails: ValueError") for note in context.degraded)


def test_nothing_to_search() -> None:
    context = search(RetrievalWorkflow(), "rail", [])
    assert (context.hits, context.plan.datasets, context.degraded) == ((), (), ())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"strategy": "best"}, UnknownNameError, "no strategy named 'best'"),
        ({"depth": 0}, InputError, "from 1 up"),
        ({"timeout": -1}, InputError, "seconds above 0"),
        ({"reranker": object()}, InputError, "a reranker has rerank"),
        ({"reranker": "bge"}, InputError, "a reranker is late, onnx:DIRECTORY, "),
        ({"refiners": [print]}, InputError, "subclasses BaseRefiner"),
        ({"policy": 5}, InputError, "a policy is a Policy or None, not 5"),
        ({"breaker": 5}, InputError, "a breaker is a Breaker, not 5"),
        ({"router": 5}, InputError, "a router subclasses BaseRouter, 5 does not"),
    ],
)
def test_what_cannot_be_is_refused_at_once(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RetrievalWorkflow(**options)


def test_what_cannot_be_asked(datasets: tuple[Dataset, Dataset]) -> None:
    workflow = RetrievalWorkflow()
    with pytest.raises(InputError, match="from 1 up"):
        workflow.search("rail", datasets, 0)
    with pytest.raises(InputError, match="two of these are called 'rails'"):
        workflow.search("rail", [datasets[0], datasets[0]])
    with pytest.raises(InputError, match="cannot be called as a retriever"):
        workflow.search("rail", [object()])
    with pytest.raises(InputError, match="a query's text is a str"):
        workflow.search(7, datasets)  # type: ignore[arg-type]


class Hanging(HashingEmbedder):
    """Does not return from embedding queries until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.hanging = False, 0
        self.release_event = threading.Event()

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.hangs:
            self.hanging += 1
            self.release_event.wait(30)
        return super().embed_queries(texts)


def test_i1_a_workflow_searches_a_list(datasets: tuple[Dataset, Dataset]) -> None:
    workflow = RetrievalWorkflow()
    wrong: Any
    for wrong in (datasets[0], FixedRetriever(("a", 1.0)), None, 5, {}, "rails"):
        for ask in (workflow.search, workflow.retrieve, lambda query, source: workflow.search_many([query], source)):
            with pytest.raises(
                InputError, match=r"searches a list of datasets and retrievers, not .*; write \[dataset\]"
            ):
                ask("rail", wrong)
    assert len(workflow.search("rail", iter(datasets))) == 5  # type: ignore[arg-type]


class TestR3PartialAnswers:
    def test_a_failing_branch(self, datasets: tuple[Dataset, Dataset]) -> None:
        context = search(RetrievalWorkflow(), "rail lamp", [Failing(), datasets[0]], 5)
        assert len(context) == 5
        assert context.degraded == ("failing: LookupError: out of order",)

    def test_a_branch_that_ignores_filters(self) -> None:
        class Years(BaseRetriever):
            def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
                return [Hit(Document(str(year), "rail", {"year": year}), 1 / year) for year in range(2000, 2010)]

        context = search(RetrievalWorkflow(), "rail", [Years(), FixedRetriever(("a", 1.0))], filters="year >= 2007")
        assert ids(context.hits) == ["2007", "2008", "2009"]
        assert context.degraded == (
            "years: 7 of its 10 hits are outside the filter and are left out",
            "fixed: 1 of its 1 hits are outside the filter and are left out",
        )
        assert search(RetrievalWorkflow(), "rail", [Years()]).degraded == ()

    @pytest.mark.parametrize(
        ("filters", "missing_key"),
        [
            ("yaer = 2001", "'yaer'; did you mean 'year'?"),
            ("year = 2001 and LANG = en", "'LANG'; did you mean 'lang'?"),
            ("author.nmae = N1", "'author.nmae'; did you mean 'author.name'?"),
            ("цвета = красный", "'цвета'; did you mean 'цвет'?"),
            ("颜色 = red", "'颜色'"),
            ("year = 1066 and not exists(draft)", None),  # negations are met without the key
            ("year = 1066 or lang = fr", None),
            ("_id = nobody and _text contains rail", None),
        ],
    )
    def test_q2_an_unknown_key_that_leaves_nothing_is_named(self, filters: str, missing_key: str | None) -> None:
        rails, lamps = (Dataset(name, embedder=HashingEmbedder()) for name in ("rails", "lamps"))
        rails.add([Document("a", "a rail", {"year": 2001, "author": {"name": "N1"}, "цвет": "красный"})])
        lamps.add([Document("b", "a lamp", {"lang": "en"})])
        context = search(RetrievalWorkflow(), "rail", [rails, lamps], filters=filters)
        note = f"filters: no document that was searched has the key {missing_key}"
        assert (ids(context.hits), context.degraded) == ([], () if missing_key is None else (note,))

    def test_q2_an_unknown_key_is_not_named_without_need_or_knowledge(self) -> None:
        rails = Dataset("rails", embedder=HashingEmbedder())
        assert search(RetrievalWorkflow(), "rail", [rails], filters="yaer = 2001").degraded == ()  # no document
        rails.add([Document("a", "a rail", {"year": 2001})])
        assert search(RetrievalWorkflow(), "rail", [rails], filters="year = 2001 or yaer = 2001").degraded == ()
        retriever = FixedRetriever()  # may have any key
        assert search(RetrievalWorkflow(), "rail", [rails, retriever], filters="yaer = 2001").degraded == ()

    @pytest.mark.parametrize(
        "scores",
        [(math.nan, 1.0, 2.0), (None, None, None), (3.0, math.inf, 1.0), (np.float32(0.5), np.float64(0.4), 0)],
    )
    def test_a_branch_with_odd_scores_is_alone(self, scores: tuple[Any, ...]) -> None:
        context = search(RetrievalWorkflow(), "q", [FixedRetriever(*zip("abc", scores, strict=True))])
        assert ids(context.hits) == ["a", "b", "c"]
        assert all(type(hit.score) is float and math.isfinite(hit.score) for hit in context)
        json.dumps(context.to_dict(trace="lists"), allow_nan=False)

    def test_a_hanging_branch(self, datasets: tuple[Dataset, Dataset]) -> None:
        def check(limit: float) -> None:
            slow = Slow(30)
            context = search(RetrievalWorkflow(), "rail lamp", [slow, datasets[0]], 5, timeout=limit)
            assert not slow.is_over
            assert len(context) == 5
            assert [cause.split(" within")[0] for cause in context.degraded] == ["slow: TimeoutError: no answer"]

        holds_with_time(check)

    def test_an_embedder_that_hangs_leaves_the_words(self) -> None:
        """After three times it is left out for a while (F3)."""

        def check(limit: float) -> None:
            embedder = Hanging()
            dataset = Dataset("rails", embedder=embedder)
            dataset.add([Document("a", "a signal lamp"), Document("b", "ballast below the rails")])
            workflow = RetrievalWorkflow()
            embedder.hangs = True
            try:
                for number in range(5):
                    context = search(workflow, f"signal lamp{'?' * number}", [dataset], 5, timeout=limit)
                    assert ids(context.hits) == ["a"]
                    assert "only words were searched" in context.degraded[0]
                assert "left out for another" in context.degraded[0]
                assert embedder.hanging == 3
            finally:
                embedder.release_event.set()
                dataset.close()

        holds_with_time(check)

    def test_all_failing(self) -> None:
        with pytest.raises(RetrievalError, match="failing_2: ValueError: bad"):
            search(RetrievalWorkflow(), "rail", [Failing(), Failing(ValueError("bad"))])

    def test_the_stages_after_keep_a_share_of_the_time(self) -> None:
        def check(limit: float) -> None:
            sources = [Slow(30), FixedRetriever(("a", 2.0), ("b", 1.0))]
            context = search(RetrievalWorkflow(reranker=ReversingRefiner()), "q", sources, timeout=limit)
            assert ids(context.hits) == ["b", "a"]
            assert [cause.split(" within")[0] for cause in context.degraded] == ["slow: TimeoutError: no answer"]

        holds_with_time(check)

    def test_one_that_keeps_failing_is_left_out_for_a_while(self) -> None:
        failing = Failing()
        workflow = RetrievalWorkflow(breaker=Breaker(failures=1, seconds=60))
        for _ in range(3):
            context = search(workflow, "q", [failing, FixedRetriever(("a", 1.0))])
        assert failing.calls == 1
        assert "left out for another" in context.degraded[0]

    def test_cancelling_a_search_cancels_its_branches(self) -> None:
        cancellation, under_way = threading.Event(), asyncio.Event()

        class Waiting(BaseRetriever):
            async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
                try:
                    under_way.set()
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancellation.set()
                    raise
                return []

        async def main() -> None:
            task = asyncio.create_task(RetrievalWorkflow().asearch("q", [Waiting(), FixedRetriever()]))
            await asyncio.wait_for(under_way.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert cancellation.is_set()


class TestFailingStages:
    def test_a_transformer(self) -> None:
        class FailingTransformer(BaseTransformer):
            def transform(self, query: str | Query) -> Transformed:
                raise LookupError("no model")

        context = search(RetrievalWorkflow(transformer=FailingTransformer()), "q", [FixedRetriever(("a", 1.0))])
        assert ids(context.hits) == ["a"]
        assert context.degraded == ("FailingTransformer failed and was skipped: LookupError: no model",)

    def test_a_router(self, datasets: tuple[Dataset, Dataset]) -> None:
        context = search(RetrievalWorkflow(router=Choosing()), "rail", datasets, 100)
        assert {hit.dataset for hit in context} == {"rails", "lamps"}
        assert context.degraded == ("route: LookupError: no router; all datasets are searched",)

    @pytest.mark.parametrize(
        ("act", "cause", "timeout"),
        [
            (raises, "LookupError: no model", 30),
            (lambda: None, "it returned None", 30),
            (lambda: [1, 2], "it returned list", 30),
            (lambda: time.sleep(30), "no answer within 0.1 s", 0.1),
        ],
    )
    def test_a_refiner(self, act: Callable[[], Any], cause: str, timeout: float) -> None:
        workflow = RetrievalWorkflow(refiners=[FailingRefiner(act, timeout=timeout)])
        context = search(workflow, "q", [FixedRetriever(("a", 2.0), ("b", 1.0))])
        assert ids(context.hits) == ["a", "b"]
        assert len(context.degraded) == 1
        assert context.degraded[0].startswith("compress: ")
        assert cause in context.degraded[0]
        assert context.degraded[0].endswith("the previous ranking is kept")
        assert context.trace.spans[-1].error is not None

    def test_a_refiner_in_place(self) -> None:
        context = search(
            RetrievalWorkflow(refiners=[FailingRefiner(raises, in_place=True)]), "q", [FixedRetriever(("a", 2.0))]
        )
        assert ids(context.hits) == ["a"]
        assert "LookupError: no model" in context.degraded[0]

    def test_no_time_left_for_a_refiner(self) -> None:
        def check(limit: float) -> None:
            slow = FailingRefiner(lambda: time.sleep(60))
            workflow = RetrievalWorkflow(reranker=slow, refiners=[ReversingRefiner()], timeout=limit)
            context = search(workflow, "q", [FixedRetriever(("a", 2.0), ("b", 1.0))])
            assert ids(context.hits) == ["a", "b"]
            assert [cause.split(":")[0] for cause in context.degraded] == ["compress", "rerank"]

        holds_with_time(check)


def test_a_refusal_ends_the_way() -> None:
    later_refiner = ReversingRefiner()
    context = search(RetrievalWorkflow(refiners=[Refusing(), later_refiner]), "q", [FixedRetriever(("a", 2.0))])
    assert context.hits == ()
    assert context.refused is not None
    assert (str(context.refused), context.refused.nearest and context.refused.nearest.id) == ("nothing is near", "a")
    assert later_refiner.sizes == []
    assert context.explain("a").summary == "removed by refuse: too far"


class TestVariants:
    def test_variants_add_and_cannot_outvote_the_query(self) -> None:
        class ByText(BaseRetriever):
            def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
                ids = {"q": ["a", "b"], "v1": ["x", "y"], "v2": ["x", "b"]}[Query.of(query).text]
                return [Hit(Document(id_, id_), 1.0 / rank) for rank, id_ in enumerate(ids, 1)]

        transformer = Rewriting(Variant("v1", "synonym"), Variant("v2", "correction"))
        context = search(RetrievalWorkflow(transformer=transformer), "q", [ByText()])
        assert ids(context.hits) == ["b", "a", "x", "y"]
        sources = [(step.source, step.rank) for step in context.hits[0].provenance]
        assert sources == [("by_text", 2), ("correction 2", 2), ("fuse", 1)]
        assert context.trace.explain("y").rank == 4
        many_variants = Rewriting(*(Variant("v1", "synonym") for _ in range(9)))
        assert ids(search(RetrievalWorkflow(transformer=many_variants), "q", [ByText()], 1).hits) == ["a"]

    def test_over_datasets_every_candidate_has_both_scores(self, datasets: tuple[Dataset, Dataset]) -> None:
        transformer = Rewriting(Variant("steam bridge", "subquestion"))
        workflow = RetrievalWorkflow(transformer=transformer, depth=5)
        for selection in (datasets, datasets[:1]):
            context = search(workflow, "rail lamp", selection, 40)
            assert len(context) > 10
            for hit in context:
                scores = {step.source: step.score for step in hit.provenance}
                assert scores["bm25"] is not None
                assert scores["vector"] is not None

    def test_a_failing_variant_leaves_the_query(self) -> None:
        class Picky(BaseRetriever):
            def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
                if Query.of(query).text != "q":
                    raise LookupError("only q")
                return [Hit(Document("a", "a"), 1.0)]

        context = search(RetrievalWorkflow(transformer=Rewriting(Variant("v", "synonym"))), "q", [Picky()])
        assert ids(context.hits) == ["a"]
        assert context.degraded == ("picky, synonym 1: LookupError: only q",)


class TestBatch:
    def test_the_same_answers_as_one_by_one(self, datasets: tuple[Dataset, Dataset]) -> None:
        queries: list[str | Query] = ["rail lamp", Query("signal"), "guard whistle", "rail lamp"]
        workflow = RetrievalWorkflow(reranker=ReversingRefiner(20))
        batch = workflow.search_many(queries, datasets, 5)
        assert [context.hits for context in batch] == [workflow.search(q, datasets, 5).hits for q in queries]
        assert workflow.search_many([], datasets) == []

    def test_queries_are_embedded_once_and_together(self) -> None:
        class Counting(HashingEmbedder):
            batches: list[int]

            def embed_queries(self, texts: Sequence[str]) -> Any:
                self.batches.append(len(texts))
                return super().embed_queries(texts)

        embedder = Counting()
        embedder.batches = []
        with Dataset("x", embedder=embedder) as dataset:
            dataset.add(corpus(5))
            embedder.batches.clear()
            RetrievalWorkflow().search_many(["rail", "lamp", "rail", "signal"], [dataset], 2)
            RetrievalWorkflow().search("lamp", [dataset], 2)
        assert embedder.batches == [3]

    def test_a_question_that_cannot_be_searched_leaves_the_others(self) -> None:
        class Picky(BaseRetriever):
            def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
                if Query.of(query).text == "bad":
                    raise LookupError("bad")
                return [Hit(Document("a", "a"), 1.0)]

        good, bad = RetrievalWorkflow().search_many(["good", "bad"], [Picky()])
        assert ids(good.hits) == ["a"]
        assert bad.hits == ()
        assert "LookupError: bad" in bad.degraded[0]
        with pytest.raises(RetrievalError):
            RetrievalWorkflow().search_many(["bad", "bad"], [Picky()])


class TestR9Trace:
    def test_every_document_has_its_way(self, datasets: tuple[Dataset, Dataset]) -> None:
        context = RetrievalWorkflow(reranker=ReversingRefiner(20)).search("rail lamp", datasets, 5)
        for rank, hit in enumerate(context, 1):
            explanation = context.explain(hit.id, hit.dataset)
            assert explanation.rank == rank
            assert [step.source for step in explanation.steps] == [
                "bm25",
                "vector",
                "fuse",
                "rerank",
                "refuse",
                "answer",
            ]
            fusion_step = explanation.steps[2]
            assert fusion_step.rank == 21 - rank
            assert fusion_step.score == pytest.approx(sum(step.normalised or 0 for step in hit.provenance))
            assert "number" in explanation.summary

    def test_why_a_document_is_not_there(self, datasets: tuple[Dataset, Dataset]) -> None:
        rails = datasets[0]
        context = RetrievalWorkflow(depth=5).search("rail lamp", [rails], 3)
        records = {record.source: [key[1] for key, _ in record.resolved().ranking] for record in context.trace.records}
        fourth = records["fuse"][3]
        assert context.explain(fourth).summary == "it was number 4 of 10 after refuse; the answer has 3"
        absent = next(id_ for id_ in rails.ids() if id_ not in records["fuse"])
        explanation = context.explain(absent)
        assert explanation.rank is None
        assert explanation.summary.startswith("no list found it: bm25 scores it ")
        assert {step.rank for step in explanation.steps} == {None}
        bm25 = explanation.steps[0]
        assert bm25.score is not None
        assert bm25.lowest is not None
        assert bm25.score <= bm25.lowest
        assert context.explain("nobody").summary == "no dataset that was searched has a document with this id"
        with pytest.raises(InputError, match="is a str"):
            context.explain(7)  # type: ignore[arg-type]

    def test_it_survives_json_and_pickle(self, datasets: tuple[Dataset, Dataset]) -> None:
        context = RetrievalWorkflow(refiners=[ReversingRefiner(9)]).search("rail lamp", datasets, 3)
        id_ = context.hits[0].id
        through_json = Trace.from_dict(json.loads(json.dumps(context.trace.to_dict(lists=True))))
        through_pickle = pickle.loads(pickle.dumps(context))
        for trace in (through_json, through_pickle.trace):
            assert trace.explain(id_, context.hits[0].dataset) == context.explain(id_, context.hits[0].dataset)
        assert through_json.milliseconds == pytest.approx(context.trace.milliseconds, abs=0.01)
        assert context.trace.to_dict()["records"] is None
        damaged_dict: Any
        for damaged_dict in ({}, {"spans": [{}]}, {"spans": [], "records": [{"stage": 1}]}, {"spans": 7}):
            with pytest.raises(InputError, match="not a trace as to_dict writes it"):
                Trace.from_dict(damaged_dict)

    def test_what_took_a_document_out(self) -> None:
        class CappingRefiner(BaseRefiner):
            stage = "diversify"

            def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
                return replace(
                    ranking, hits=ranking.hits[:1], dropped={hit.key: "one is enough" for hit in ranking.hits[1:]}
                )

        context = RetrievalWorkflow(refiners=[CappingRefiner()]).search("q", [FixedRetriever(("a", 2.0), ("b", 1.0))])
        assert context.explain("b").summary == "removed by diversify: one is enough"

    def test_times(self, datasets: tuple[Dataset, Dataset]) -> None:
        trace = RetrievalWorkflow().search("rail lamp", [*datasets, Slow(0.05, ("a", 1.0))], 3).trace
        assert trace.milliseconds >= 50
        assert all(span.started >= 0 and span.milliseconds >= 0 for span in trace.spans)
        assert max(span.started + span.milliseconds for span in trace.spans) == trace.milliseconds


def test_the_history_goes_to_the_transformer() -> None:
    queries: list[Query] = []

    class Looking(BaseTransformer):
        def transform(self, query: str | Query) -> Transformed:
            queries.append(Query.of(query))
            return Transformed(Query.of(query))

    query = Query("and its capital?", history=(Message("user", "Tell me about France"),))
    RetrievalWorkflow(transformer=Looking()).search(query, [FixedRetriever(("a", 1.0))])
    assert queries == [query]


class Junk:
    """No router at all, but it looks like one."""

    def decide(self, query: Any, datasets: Any) -> Any:
        return "junk"

    async def adecide(self, query: Any, datasets: Any) -> Any:
        return "junk"


class TestHardCases:
    def test_a_retriever_named_as_our_lists_are_keeps_its_hits(self, datasets: tuple[Dataset, Dataset]) -> None:
        class VectorRetriever(FixedRetriever):
            pass

        context = search(RetrievalWorkflow(), "rail lamp", [datasets[0], VectorRetriever(("foreign", 1.0))], 100)
        assert "foreign" in ids(context.hits)
        assert context.plan.datasets == ("rails", "vector_retriever")
        both = search(RetrievalWorkflow(), "q", [VectorRetriever(("a", float("nan"))), FixedRetriever(("b", 1.0))])
        assert sorted(ids(both.hits)) == ["a", "b"]

    def test_ids_of_one_letter(self, datasets: tuple[Dataset, Dataset]) -> None:
        context = search(RetrievalWorkflow(), "rail lamp", [datasets[0], FixedRetriever(("x", 1.0))], 100)
        assert "x" in ids(context.hits)

    def test_a_dataset_beside_its_own_retriever(self, datasets: tuple[Dataset, Dataset]) -> None:
        rails, lamps = datasets

        class OfRails(BaseRetriever):
            def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
                return [replace(hit, dataset="rails") for hit in rails.retriever().retrieve(query, top_k)]

        context = search(RetrievalWorkflow(refiners=[ReversingRefiner()]), "rail lamp", [rails, lamps, OfRails()], 100)
        keys = [hit.key for hit in context]
        assert len(keys) == len(set(keys))
        assert context.degraded == ()
        assert any(step.source == "of_rails" for hit in context for step in hit.provenance)

    def test_a_fitted_strategy_that_not_every_dataset_can_do(self) -> None:
        words = Dataset("words", indexing_technique="keyword")
        words.add(corpus(5))
        for strategy in ("vector", "hybrid"):
            context = search(RetrievalWorkflow(policy=Policy(strategy=strategy)), "rail lamp signal", [words], 5)
            assert context.hits
            assert "as fitted to your labels" in context.plan.reason
        words.close()

    def test_what_is_no_router(self, datasets: tuple[Dataset, Dataset]) -> None:
        context = search(RetrievalWorkflow(router=Junk()), "rail", datasets, 5)  # type: ignore[arg-type]
        assert context.degraded == ("route: TypeError: it returned str; all datasets are searched",)

    @pytest.mark.parametrize(
        "variant", [Variant("v", "x", float("nan")), Variant("v", "x", -1.0), Variant("v", "x", method="dense"),
                    Variant(5, "x")]  # type: ignore[arg-type]
    )  # fmt: skip
    def test_variants_that_cannot_be_searched(self, datasets: tuple[Dataset, Dataset], variant: Variant) -> None:
        plain = search(RetrievalWorkflow(), "rail lamp", datasets, 5)
        context = search(RetrievalWorkflow(transformer=Rewriting(variant)), "rail lamp", datasets, 5)
        assert context.hits == plain.hits
        assert "a variant that cannot be searched was left out" in context.degraded[0]

    def test_a_passage_is_embedded_once(self, datasets: tuple[Dataset, Dataset]) -> None:
        class Counting(HashingEmbedder):
            passage_count = 0

            def embed_documents(self, texts: Sequence[str], **options: Any) -> Any:
                self.passage_count += texts == ["a passage about steam"]
                return super().embed_documents(texts, **options)

        embedder = Counting()
        with Dataset("x", embedder=embedder) as dataset:
            dataset.add(corpus(40))
            variant = Variant("a passage about steam", "hypothetical", method="vector", as_passage=True)
            context = RetrievalWorkflow(transformer=Rewriting(variant)).search("rail lamp", [dataset], 5)
        assert embedder.passage_count == 1
        assert any(step.source == "hypothetical 1" for hit in context for step in hit.provenance)

    def test_what_lists_and_variants_added_is_the_score(self, datasets: tuple[Dataset, Dataset]) -> None:
        transformer = Rewriting(Variant("steam bridge", "subquestion", 0.5), Variant("signal", "synonym", 0.5))
        for selection in (datasets, datasets[:1]):
            for hit in RetrievalWorkflow(transformer=transformer, depth=200).search("rail lamp", selection, 20):
                contributions = [step.normalised for step in hit.provenance if step.source not in {"fuse", "rerank"}]
                assert sum(contribution or 0.0 for contribution in contributions) == pytest.approx(hit.score, abs=1e-6)

    def test_a_callers_short_deadline_is_no_failure_of_the_branch(self, datasets: tuple[Dataset, Dataset]) -> None:
        workflow = RetrievalWorkflow(breaker=Breaker(failures=1))
        for _ in range(3):
            with pytest.raises(RetrievalError):
                workflow.search("q", [Slow(5, ("a", 1.0))], timeout=0.01)
        assert workflow.search("q", [Slow(0.01, ("a", 1.0))]).degraded == ()

    def test_a_filter_is_told_of(self, datasets: tuple[Dataset, Dataset]) -> None:
        rails = datasets[0]
        best = rails.search("rail lamp", 1).hits[0]
        condition = parse_filter(f"number != {best.metadata['number']}")
        context = rails.search(Query("rail lamp", condition), 3)
        assert "a filter of the query must have excluded it" in context.explain(best.id).summary

    def test_the_same_id_is_found_in_whichever_dataset_has_it(self, datasets: tuple[Dataset, Dataset]) -> None:
        context = RetrievalWorkflow(depth=3).search("rail lamp", datasets, 3)
        found_ids = {key[1] for record in context.trace.records for key, _ in record.resolved().ranking}
        absent = next(id_ for id_ in datasets[0].ids() if id_ not in found_ids)
        assert context.explain(absent).summary.startswith("no list found it")

    def test_a_string_is_no_batch(self, datasets: tuple[Dataset, Dataset]) -> None:
        with pytest.raises(InputError, match="a sequence of questions"):
            RetrievalWorkflow().search_many("cat", datasets)

    def test_a_batch_refuses_as_one_does(self) -> None:
        class EmptyRetriever(BaseRetriever):
            def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
                return []

        workflow = RetrievalWorkflow(refiners=[Refusing()])
        single = workflow.search("q", [EmptyRetriever()])
        batch = workflow.search_many(["q", "r"], [EmptyRetriever()])
        assert single.refused is not None
        assert batch[0].refused == single.refused
