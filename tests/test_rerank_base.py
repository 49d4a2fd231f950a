"""What every reranker has from its base: documents, rankings, faults, limits and the cache."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.retrieval.refine.rerank import BaseReranker, PartialScores
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.types import Document, Hit, Provenance, Query, Ranked


class Length(BaseReranker):
    """The longer the better; counts what it is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.calls: list[tuple[str, list[str]]] = []

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        self.calls.append((query, list(texts)))
        return [float(len(text)) for text in texts]


class AsyncLength(BaseReranker):
    async def ascore(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        await asyncio.sleep(0)
        return [len(text) for text in texts]


class SharedLength(Length):
    """One that takes several queries in one batch."""

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        self.calls.append(("", [text for _, text in pairs]))
        return [float(len(query) * 100 + len(text)) for query, text in pairs]

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return self.score_pairs([(query, text) for text in texts])


class Faulty(BaseReranker):
    def __init__(self, answer: Callable[[int], Any], **settings: Any) -> None:
        super().__init__(**settings)
        self.answer = answer

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return self.answer(len(texts))  # type: ignore[no-any-return]


class AsyncFaulty(Faulty):
    async def ascore(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return self.answer(len(texts))  # type: ignore[no-any-return]


def ranking(texts: Sequence[str], scale: str = "rrf") -> Ranked:
    """Hits of these texts; their ids are their places."""
    hits = [
        Hit(Document(f"d{index}", text), 1 / (index + 1), "set", (Provenance("bm25", index + 1, 2.0),))
        for index, text in enumerate(texts)
    ]
    return Ranked(tuple(hits), scale, "made here", degraded=("told already",))


def ids(ranking: Ranked) -> list[str]:
    return [hit.id for hit in ranking.hits]


# ── documents ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_documents_come_back_best_first_with_their_score_and_the_input_is_left_alone() -> None:
    documents = [Document("a", "xx", {"title": "t", "score": "theirs"}), Document("b", "xxxxxxx"), Document("c", "x")]
    original = copy.deepcopy(documents)
    best = Length().rerank("query", documents, top_n=2)
    assert [(document.id, document.metadata["score"]) for document in best] == [("b", 7.0), ("a", 4.0)]
    assert best[1].metadata["title"] == "t"
    assert documents == original
    assert documents[0].metadata["score"] == "theirs"
    assert asyncio.run(Length().arerank(Query("query"), documents, 2)) == best
    assert AsyncLength().rerank("query", documents, 2) == best == asyncio.run(AsyncLength().arerank("q", documents, 2))


def test_four_unless_told_otherwise_and_all_for_none() -> None:
    documents = [Document(str(n), "x" * n) for n in range(1, 8)]
    assert [document.id for document in Length().rerank("q", documents)] == ["7", "6", "5", "4"]
    assert len(Length().rerank("q", documents, None)) == 7
    assert len(Length().rerank("q", documents, 100)) == 7


def test_no_documents_need_no_call() -> None:
    reranker = Faulty(lambda _: 1 / 0)
    assert reranker.rerank("q", []) == []
    assert asyncio.run(reranker.arerank("q", [])) == []
    with pytest.raises(InputError, match="top_n"):
        reranker.rerank("q", [], 0)


@pytest.mark.parametrize("top_n", [0, -1, True, 2.0, "3"])
def test_top_n_is_a_count(top_n: Any) -> None:
    with pytest.raises(InputError, match="top_n is an int from 1 up"):
        Length().rerank("q", [Document("a", "x")], top_n)


def test_only_documents_are_taken() -> None:
    with pytest.raises(InputError, match="takes documents, not str"):
        Length().rerank("q", ["text"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "settings",
    [{"timeout": 0}, {"timeout": math.nan}, {"timeout": -1}, {"max_candidates": 0}, {"cache": -1}, {"cache": 1.5}],
)
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        Length(**settings)


def test_a_subclass_implements_one_of_two() -> None:
    with pytest.raises(TypeError, match="none of score, ascore, rerank, arerank"):
        type("Idle", (BaseReranker,), {})


def test_a_subclass_need_not_call_the_constructor() -> None:
    class Bare(BaseReranker):
        def __init__(self) -> None:
            self.private = 1

        def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
            return np.arange(len(texts), dtype=np.float32)  # type: ignore[return-value]

    assert ids(Bare().refine(Query("q"), ranking("abc"), 3)) == ["d2", "d1", "d0"]


@pytest.mark.parametrize("answer", [[1, 2], (1.0, 2.0), np.array([1, 2]), [np.float32(1), Fraction(2)]])
def test_numbers_of_any_kind_are_scores(answer: Any) -> None:
    best = Faulty(lambda _: answer).rerank("q", [Document("a", "x"), Document("b", "y")])
    assert [(document.id, document.metadata["score"]) for document in best] == [("b", 2.0), ("a", 1.0)]


# ── rankings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ranking_is_reordered_and_what_was_done_is_told() -> None:
    original = ranking(["xx", "x", "xxxx"])
    untouched_copy = copy.deepcopy(original)
    reranker = Length()
    outcome = reranker.refine(Query("q"), original, 2)
    assert [(hit.id, hit.score) for hit in outcome.hits] == [("d2", 4.0), ("d0", 2.0), ("d1", 1.0)]
    assert outcome.hits[0].provenance == (Provenance("bm25", 3, 2.0), Provenance("rerank", 1, 4.0))
    assert outcome.hits[0].dataset == "set"
    assert outcome.scale == "rerank:Length"
    assert outcome.degraded == ()
    assert "3 hits" in outcome.detail
    assert original == untouched_copy
    assert (
        asyncio.run(Length().arefine(Query("q"), original, 2))
        == outcome
        == AsyncNamedLength().refine(Query("q"), original, 2)
    )


class AsyncNamedLength(AsyncLength):
    name = "Length"


def test_hits_beyond_the_budget_follow_with_the_lowest_score() -> None:
    reranker = Length(max_candidates=3)
    assert reranker.depth(2, "rrf") == 3
    assert reranker.depth(10, "rrf") == 10
    outcome = reranker.refine(Query("q"), ranking(["xx", "x", "xxx", "xxxxxxxx", "xxxxxxx"]), 5)
    assert [(hit.id, hit.score) for hit in outcome.hits] == [("d2", 3), ("d0", 2), ("d1", 1), ("d3", 1), ("d4", 1)]
    assert [step.source for step in outcome.hits[3].provenance] == ["bm25"]
    assert "2 beyond its budget of 3" in outcome.detail
    assert len(reranker.calls[0][1]) == 3


def test_an_empty_ranking_stays_empty_without_a_call() -> None:
    reranker = Faulty(lambda _: 1 / 0)
    empty = Ranked((), "rrf")
    for outcome in (reranker.refine(Query("q"), empty, 3), asyncio.run(reranker.arefine(Query("q"), empty, 3))):
        assert (outcome.hits, outcome.scale, outcome.degraded) == ((), "rrf", ())


FAULTS: dict[str, tuple[Callable[[int], Any], str]] = {
    "raises": (lambda _: 1 / 0, "ZeroDivisionError: division by zero"),
    "raises ours": (lambda _: _raise(ModelError("no model today")), "no model today"),
    "hangs": (lambda _: time.sleep(10), "did not answer within 0.2 s"),
    "nan": (lambda n: [math.nan] * n, "nan as a score"),
    "infinite": (lambda n: [1.0] * (n - 1) + [math.inf], "inf as a score"),
    "too few": (lambda n: [1.0] * (n - 1), "2 scores for 3 texts"),
    "too many": (lambda n: [1.0] * (n + 1), "more scores for 3 texts"),
    "no end": (lambda _: iter(int, 1), "more scores for 3 texts"),
    "strings": (lambda n: ["1"] * n, "'1' as a score"),
    "a string": (lambda n: "1" * n, "str where a list"),
    "nothing": (lambda _: None, "NoneType where a list"),
    "nested": (lambda n: np.ones((n, 1)), "as a score"),
    "a number": (lambda _: 7, "int where a list"),
    "a mapping": (lambda n: dict.fromkeys(range(n), 1.0), "where a list"),
    "beyond floats": (lambda n: [10**400] * n, "OverflowError"),
    "complex": (lambda n: [1j] * n, "as a score"),
}


def _raise(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("kind", "fault"),
    # a coroutine that blocks its event loop would hold everybody; one that waits has a test of its own
    [(kind, fault) for fault in FAULTS for kind in (Faulty, AsyncFaulty) if (kind, fault) != (AsyncFaulty, "hangs")],
)
def test_whatever_goes_wrong_the_order_before_stands(
    kind: type[Faulty], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer, cause = FAULTS[fault]
    reranker = kind(answer, timeout=0.2 if fault == "hangs" else 30)
    original = ranking(["a", "b", "c"])
    for outcome in (
        reranker.refine(Query("q"), original, 3),
        asyncio.run(reranker.arefine(Query("q"), original, 3)),
        reranker.refine_many([Query("q")], [original], 3)[0],
        asyncio.run(reranker.arefine_many([Query("q")], [original], 3))[0],
    ):
        assert outcome.hits == original.hits
        assert outcome.scale == "rrf"
        assert len(outcome.degraded) == 1
        assert outcome.degraded[0].startswith(f"rerank by {kind.__name__} failed, the previous order is kept: ")
        assert cause in outcome.degraded[0]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4
    documents = [hit.document for hit in original.hits]
    with pytest.raises(ModelError, match=cause.replace("(", r"\(")):
        reranker.rerank("q", documents)
    with pytest.raises(ModelError):
        asyncio.run(reranker.arerank("q", documents))


def test_a_coroutine_that_waits_for_ever_is_left() -> None:
    answered_queries = []

    class Waits(BaseReranker):
        async def ascore(self, query: str, texts: Sequence[str]) -> Sequence[float]:
            await asyncio.sleep(60)
            answered_queries.append(query)
            raise AssertionError

    reranker = Waits(timeout=0.1)
    for outcome in (
        reranker.refine(Query("q"), ranking("ab"), 2),
        asyncio.run(reranker.arefine(Query("q"), ranking("ab"), 2)),
    ):
        assert "did not answer within 0.1 s" in outcome.degraded[0]
    assert not answered_queries


def test_cancelling_is_no_fault() -> None:
    entry = asyncio.Event()

    class Waits(BaseReranker):
        async def ascore(self, query: str, texts: Sequence[str]) -> Sequence[float]:
            entry.set()
            await asyncio.sleep(60)
            raise AssertionError

    async def cancel_midway() -> None:
        task = asyncio.create_task(Waits().arefine(Query("q"), ranking("ab"), 2))
        await entry.wait()
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel_midway())


def test_no_limit_means_no_thread() -> None:
    threads: list[str] = []

    class ThreadNoting(BaseReranker):
        def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
            threads.append(threading.current_thread().name)
            return [0.0] * len(texts)

    ThreadNoting(timeout=None).refine(Query("q"), ranking("ab"), 2)
    ThreadNoting(timeout=5).refine(Query("q"), ranking("ab"), 2)
    assert threads == [threading.current_thread().name, "rerank-ThreadNoting"]


def test_a_long_cause_is_cut() -> None:
    outcome = Faulty(lambda _: _raise(ValueError("x" * 100_000))).refine(Query("q"), ranking("ab"), 2)
    assert len(outcome.degraded[0]) < 500


# ── scores that are not to be had ────────────────────────────────────────────────────────────────────────────────────


def partial(missing: dict[int, str]) -> Faulty:
    return Faulty(lambda n: PartialScores([10.0, 0.0, 4.0, 1.0, 0.0][:n], missing))


def test_a_document_without_a_score_stays_near_its_neighbours_and_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    reranker = partial({1: "it timed out", 4: "it timed out"})
    outcome = reranker.refine(Query("q"), ranking("abcde"), 5)
    assert [(hit.id, hit.score) for hit in outcome.hits] == [("d0", 10), ("d1", 7), ("d2", 4), ("d3", 1), ("d4", 1)]
    assert outcome.degraded == (
        "rerank by Faulty is incomplete: 2 of 5 texts got no score (it timed out); each stays near its neighbours",
    )
    assert len(caplog.records) == 1
    reranker.rerank("q", [hit.document for hit in ranking("abcde").hits])
    assert "1 of 5 texts" in caplog.records[1].message, "who asks for documents is told by the log"


def test_what_is_lost_is_not_remembered() -> None:
    calls: list[int] = []

    def answer(count: int) -> Any:
        calls.append(count)
        return PartialScores([1.0] * count, {0: "lost"} if len(calls) == 1 else {})

    reranker = Faulty(answer)
    assert reranker.refine(Query("q"), ranking("abc"), 3).degraded
    assert not reranker.refine(Query("q"), ranking("abc"), 3).degraded
    assert calls == [3, 1]


def test_more_than_half_lost_is_a_failure() -> None:
    outcome = partial({0: "gone", 1: "gone", 2: "gone"}).refine(Query("q"), ranking("abcde"), 5)
    assert ids(outcome) == ["d0", "d1", "d2", "d3", "d4"]
    assert outcome.scale == "rrf"
    assert "3 of 5 texts got no score (gone)" in outcome.degraded[0]


# ── the cache, and several rankings at once ──────────────────────────────────────────────────────────────────────────


def test_only_what_is_missing_is_scored() -> None:
    reranker = Length()
    reranker.refine(Query("q"), ranking(["a", "bb"]), 2)
    reranker.refine(Query("q"), ranking(["ccc", "bb", "ccc"]), 3)
    reranker.refine(Query("other"), ranking(["a"]), 1)
    reranker.refine(Query("q"), ranking(["ccc", "a"]), 2)
    assert reranker.calls == [("q", ["a", "bb"]), ("q", ["ccc"]), ("other", ["a"])]


@pytest.mark.parametrize("cache", [False, 0])
def test_the_cache_can_be_switched_off(cache: Any) -> None:
    reranker = Length(cache=cache)
    for _ in range(2):
        reranker.refine(Query("q"), ranking(["a", "bb"]), 2)
    assert len(reranker.calls) == 2


def test_the_cache_is_bounded_and_forgets_what_was_not_used() -> None:
    reranker = Length(cache=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        reranker.rerank("q", [Document("x", text)])
    assert [texts for _, texts in reranker.calls] == [["a"], ["b"], ["c"], ["b"]]
    assert len(reranker._cache) == 2


def test_settings_that_are_part_of_the_name_are_part_of_the_cache() -> None:
    class NamedLength(Length):
        setting = "one"

        @property
        def name(self) -> str:
            return f"named-{self.setting}"

    reranker = NamedLength()
    reranker.rerank("q", [Document("x", "a")])
    reranker.setting = "two"
    reranker.rerank("q", [Document("x", "a")])
    assert len(reranker.calls) == 2
    assert reranker.refine(Query("q"), ranking("a"), 1).scale == "rerank:named-two"


def test_threads_share_the_cache() -> None:
    reranker = Length(cache=5, timeout=None)
    wrong: list[object] = []

    def work(seed: int) -> None:
        for n in range(200):
            text = "x" * ((seed + n) % 9 + 1)
            (document,) = reranker.rerank("q", [Document("d", text)])
            if document.metadata["score"] != len(text):
                wrong.append(document)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(reranker._cache) == 5


def test_several_rankings_share_batches() -> None:
    reranker = SharedLength()
    queries = [Query("q"), Query("qqq"), Query("q"), Query("empty")]
    rankings = [ranking(["a", "bb"]), ranking(["a", "a"]), ranking(["bb", "ccc"]), Ranked((), "rrf")]
    single_outcomes = [SharedLength().refine(*arguments, 2) for arguments in zip(queries, rankings, strict=True)]
    outcomes = reranker.refine_many(queries, rankings, 2)
    assert len(reranker.calls) == 1
    assert sorted(reranker.calls[0][1]) == ["a", "a", "bb", "ccc"]
    assert [outcome.hits for outcome in outcomes] == [outcome.hits for outcome in single_outcomes]
    assert [outcome.scale for outcome in outcomes] == [outcome.scale for outcome in single_outcomes]
    async_outcomes = asyncio.run(reranker.arefine_many(queries, rankings, 2))
    assert [outcome.hits for outcome in async_outcomes] == [outcome.hits for outcome in single_outcomes]
    assert len(reranker.calls) == 1, "the second time all of them were known"
    assert reranker.refine_many([], [], 2) == []
    with pytest.raises(InputError, match="2 queries for 1 rankings"):
        reranker.refine_many([Query("q")] * 2, rankings[:1], 2)


def test_without_shared_batches_each_ranking_fails_for_itself() -> None:
    class Picky(BaseReranker):
        def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
            if query == "bad":
                raise ValueError("bad query")
            return [float(len(text)) for text in texts]

    first, second = Picky().refine_many([Query("bad"), Query("good")], [ranking(["a", "bb"])] * 2, 2)
    assert (ids(first), ids(second)) == (["d0", "d1"], ["d1", "d0"])
    assert first.degraded
    assert not second.degraded


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

TEXTS = st.lists(st.text(alphabet="ab 中я\ud800", max_size=4), max_size=12)


@given(TEXTS, st.integers(1, 6), st.integers(1, 14), st.sampled_from([True, False]))
def test_reranking_is_a_permutation_up_to_the_cut(texts: list[str], budget: int, top_n: int, cache: bool) -> None:
    original = ranking(texts)
    reranker = Length(max_candidates=budget, timeout=None, cache=cache)
    outcome = reranker.refine(Query("q"), original, 3)
    assert sorted(ids(outcome)) == sorted(ids(original))
    assert sorted(ids(outcome)[:budget]) == sorted(ids(original)[:budget])
    assert ids(outcome)[budget:] == ids(original)[budget:]
    scores = [hit.score for hit in outcome.hits]
    assert scores == sorted(scores, reverse=True)
    indices = [int(hit.id[1:]) for hit in outcome.hits[:budget]]
    assert indices == sorted(indices, key=lambda index: (-len(texts[index]), index)), "ties keep their order"
    documents = [hit.document for hit in original.hits]
    best = reranker.rerank("q", documents, top_n)
    assert [d.id for d in best] == [
        documents[index].id for index in sorted(range(len(texts)), key=lambda index: (-len(texts[index]), index))
    ][:top_n]


@given(st.lists(TEXTS, max_size=5))
def test_the_cache_changes_nothing(rankings: list[list[str]]) -> None:
    remembers, forgets = Length(timeout=None, cache=3), Length(timeout=None, cache=False)
    for texts in rankings:
        first, second = (reranker.refine(Query("q"), ranking(texts), 5) for reranker in (remembers, forgets))
        assert (first.hits, first.scale, first.degraded) == (second.hits, second.scale, second.degraded)


@given(st.lists(st.tuples(st.sampled_from(["q", "qq"]), st.text(max_size=3)), max_size=10))
def test_pairs_are_scored_like_texts(pairs: list[tuple[str, str]]) -> None:
    class PairReranker(BaseReranker):
        def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
            return [len(query) * 1000 + sum(map(ord, text)) for text in texts]

    assert PairReranker().score_pairs(pairs) == [PairReranker().score(query, [text])[0] for query, text in pairs]


# -- scores for other programs -----------------------------------------------------------------------------------------
