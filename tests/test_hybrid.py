"""Several retrievers as one: F1 to F5."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from patience_kit import holds_with_time
from pointsman import BaseRetriever, Document, Hit, Query, SimpleHybridRetriever
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.fusion import METHODS, fuse
from pointsman.retrieval.retrievers.hybrid_retriever import NodesAdded
from pointsman.tools.errors import CorruptStoreError, InputError, RetrievalError, UnknownNameError
from pointsman.tools.parallel_calls import Breaker
from pointsman.values.types import Provenance
from pointsman.workspace.dataset import Dataset, DatasetRetriever
from store_kit import corpus

if TYPE_CHECKING:
    from pointsman.values.retrieval_context import Hits


class FixedRetriever(BaseRetriever):
    """Returns what it was given, remembers what it was asked."""

    def __init__(self, *hits: Hit | tuple[str, float]) -> None:
        self.hits = [
            hit if isinstance(hit, Hit) else Hit(Document(hit[0], f"text of {hit[0]}"), hit[1]) for hit in hits
        ]
        self.calls: list[tuple[Query | str, int]] = []

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        self.calls.append((query, top_k))
        return self.hits[:top_k]


class Failing(BaseRetriever):
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or LookupError("out of order")
        self.calls = 0

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        self.calls += 1
        raise self.error


class Slow(BaseRetriever):
    """Takes its time, in its own way of waiting."""

    def __init__(self, seconds: float, *hits: tuple[str, float]) -> None:
        self.seconds, self.inner, self.is_over = seconds, FixedRetriever(*hits), False

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        time.sleep(self.seconds)
        self.is_over = True
        return self.inner.retrieve(query, top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        await asyncio.sleep(self.seconds)
        self.is_over = True
        return self.inner.retrieve(query, top_k)


class Meeting:
    """Lets everybody pass once ``count`` have come, in threads or on an event loop."""

    def __init__(self, count: int) -> None:
        self.barrier, self.complete, self.missing = threading.Barrier(count), asyncio.Event(), count

    def wait(self) -> None:
        self.barrier.wait(60)

    async def await_all(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.complete.set()
        await self.complete.wait()


class Participant(BaseRetriever):
    """Answers when all participants of a meeting have been asked."""

    def __init__(self, meeting: Meeting, *hits: tuple[str, float]) -> None:
        self.meeting, self.inner = meeting, FixedRetriever(*hits)

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        self.meeting.wait()
        return self.inner.retrieve(query, top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        await self.meeting.await_all()
        return self.inner.retrieve(query, top_k)


def ask(retriever: SimpleHybridRetriever, *args: Any, **options: Any) -> Hits:
    return retriever.retrieve(*args, **options)


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


class TestF1:
    def test_all_are_asked_at_once(self) -> None:
        meeting = Meeting(6)
        hits = ask(SimpleHybridRetriever(*(Participant(meeting, (str(number), 1.0)) for number in range(6))), "q")
        assert not hits.degraded  # asked one after the other, the first would never answer
        assert ids(hits) == list("012345")

    def test_one_document_found_twice_is_one_hit_with_both_sources(self) -> None:
        left, right = FixedRetriever(("a", 9.0), ("b", 4.0)), FixedRetriever(("b", 0.8), ("c", 0.7))
        hits = ask(SimpleHybridRetriever(left, right, names=["l", "r"]), "q")
        assert ids(hits) == ["b", "a", "c"]
        assert hits[0].score == pytest.approx(1 / 62 + 1 / 61)
        assert hits[0].provenance == (
            Provenance("l", 2, 4.0, 1 / 62),
            Provenance("r", 1, 0.8, 1 / 61),
            Provenance("fuse", 1, hits[0].score),
        )

    @pytest.mark.parametrize(
        ("left", "right", "expected_side"),
        [
            ([("x", 1.0), ("a", 0.9)], [("a", 0.2)], "right"),  # the better rank
            ([("a", 0.5)], [("a", 0.9)], "right"),  # the same rank: the higher score
            ([("a", 0.9)], [("a", 0.5)], "left"),
            ([("a", 0.5)], [("a", 0.5)], "left"),  # the same: the first
        ],
    )
    def test_the_best_version_is_kept(
        self, left: list[tuple[str, float]], right: list[tuple[str, float]], expected_side: str
    ) -> None:
        def version(side: str, pairs: list[tuple[str, float]]) -> FixedRetriever:
            return FixedRetriever(*(Hit(Document(id_, f"{id_} of {side}"), score) for id_, score in pairs))

        hits = ask(SimpleHybridRetriever(version("left", left), version("right", right)), "q")
        assert next(hit.text for hit in hits if hit.id == "a") == f"a of {expected_side}"

    def test_by_content(self) -> None:
        left = FixedRetriever(Hit(Document("1", "The  same text"), 1.0), Hit(Document("2", "another"), 0.5))
        right = FixedRetriever(Hit(Document("9", "the same\ntext"), 3.0))
        by_id = SimpleHybridRetriever(left, right)
        by_content = SimpleHybridRetriever(left, right, dedupe="content", names=["l", "r"])
        assert sorted(ids(ask(by_id, "q"))) == ["1", "2", "9"]
        hits = ask(by_content, "q")
        assert ids(hits) == ["9", "2"]  # the version with the higher score, at the same rank
        assert [step.source for step in hits[0].provenance] == ["l", "r", "fuse"]
        assert hits.trace.explain("9").rank == 1

    def test_the_same_id_in_two_datasets_is_two_documents(self) -> None:
        def retriever_of(dataset: str) -> FixedRetriever:
            return FixedRetriever(Hit(Document("1", "text"), 1.0, dataset))

        assert [hit.dataset for hit in ask(SimpleHybridRetriever(retriever_of("x"), retriever_of("y")), "q")] == [
            "x",
            "y",
        ]

    def test_a_document_repeated_in_one_list_has_one_vote(self) -> None:
        hits = ask(SimpleHybridRetriever(FixedRetriever(("a", 3.0), ("a", 2.0), ("b", 1.0)), names=["one"]), "q")
        assert [(hit.id, hit.provenance[0].rank) for hit in hits] == [("a", 1), ("b", 2)]

    @pytest.mark.parametrize("retrievers", [(), (FixedRetriever(), object()), ("bm25",)])
    def test_what_are_no_retrievers(self, retrievers: Any) -> None:
        with pytest.raises(InputError, match=r"at least one retriever|cannot be called as a retriever"):
            SimpleHybridRetriever(*retrievers)

    def test_names(self) -> None:
        class DenseRetriever(FixedRetriever):
            pass

        retriever = SimpleHybridRetriever(FixedRetriever(), DenseRetriever(), FixedRetriever(), DenseRetriever())
        assert retriever.names == ("fixed", "dense", "fixed_2", "dense_2")
        for names in (["a"], ["a", "a"], "ab"):
            with pytest.raises(InputError, match="distinct names"):
                SimpleHybridRetriever(FixedRetriever(), FixedRetriever(), names=names)


class TestF2:
    @pytest.mark.parametrize("method", METHODS)
    def test_every_method_by_name(self, method: str) -> None:
        lists = [[("a", 9.0), ("b", 4.0)], [("b", 0.8), ("c", 0.7), ("a", 0.1)]]
        retriever = SimpleHybridRetriever(
            *(FixedRetriever(*pairs) for pairs in lists), fusion=method, weights=[2.0, 1.0]
        )
        assert [(hit.id, hit.score) for hit in ask(retriever, "q")] == fuse(lists, method, [2.0, 1.0])

    def test_the_cut_comes_after_the_fusion(self) -> None:
        left = FixedRetriever(*((f"l{number}", 1.0) for number in range(5)), ("both", 0.1))
        right = FixedRetriever(*((f"r{number}", 1.0) for number in range(5)), ("both", 0.1))
        assert ids(ask(SimpleHybridRetriever(left, right), "q", 1)) == ["both"]  # sixth in both lists
        assert left.calls[0][1] == 100
        ask(SimpleHybridRetriever(left, right, depth=3), "q", 7)
        assert left.calls[-1][1] == 7

    def test_scores_that_are_no_numbers_leave_the_order(self) -> None:
        odd = FixedRetriever(("a", float("nan")), ("b", None), ("c", "9"))  # type: ignore[arg-type]  # what a foreign one may send
        hits = ask(SimpleHybridRetriever(odd, FixedRetriever(("c", 1.0))), "q")
        assert ids(hits) == ["c", "a", "b"]
        assert hits.degraded == ("fixed: its scores are not all finite numbers; only its order counts",)

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"fusion": "best"}, UnknownNameError, "no fusion method named 'best'"),
            ({"weights": [1.0]}, InputError, "1 weights for 2 lists"),
            ({"weights": [1.0, -1.0]}, InputError, "from 0 up"),
            ({"dedupe": "text"}, InputError, "'id', 'content' or 'id_and_content'"),
            ({"depth": 0}, InputError, "from 1 up"),
            ({"timeout": 0}, InputError, "seconds above 0"),
        ],
    )
    def test_options_that_cannot_be(self, options: dict[str, Any], error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            SimpleHybridRetriever(FixedRetriever(), FixedRetriever(), **options)

    @pytest.mark.parametrize("top_k", [0, -1, True, "3"])
    def test_numbers_that_cannot_be(self, top_k: Any) -> None:
        with pytest.raises(InputError, match="from 1 up"):
            SimpleHybridRetriever(FixedRetriever()).retrieve("q", top_k)


class TestF3:
    def test_one_failing_is_recorded_and_the_others_answer(self) -> None:
        hits = ask(SimpleHybridRetriever(Failing(), FixedRetriever(("a", 1.0))), "q")
        assert ids(hits) == ["a"]
        assert hits.degraded == ("failing: LookupError: out of order",)
        failure = next(span for span in hits.trace.spans if span.error)
        assert (failure.stage, failure.detail, failure.error) == ("retrieve", "failing", "LookupError: out of order")

    def test_one_hanging_holds_nobody_up(self) -> None:
        def check(limit: float) -> None:
            slow = Slow(30)
            hits = ask(SimpleHybridRetriever(slow, FixedRetriever(("a", 1.0))), "q", timeout=limit)
            assert not slow.is_over
            assert ids(hits) == ["a"]
            assert [cause.split(" within")[0] for cause in hits.degraded] == ["slow: TimeoutError: no answer"]

        holds_with_time(check)

    def test_all_failing_raises_one_error_with_every_cause(self) -> None:
        def check(limit: float) -> None:
            retriever = SimpleHybridRetriever(Failing(), Failing(ValueError("bad")), Slow(30), timeout=limit)
            with pytest.raises(RetrievalError, match="every branch of the search failed") as error_info:
                ask(retriever, "q")
            causes = error_info.value.causes
            assert {name: type(cause) for name, cause in causes.items()} == {
                "failing": LookupError,
                "failing_2": ValueError,
                "slow": TimeoutError,
            }
            assert error_info.value.exceptions == tuple(causes.values())
            remainder = error_info.value.split(LookupError)[1]
            assert isinstance(remainder, RetrievalError)
            assert list(remainder.causes) == ["failing_2", "slow"]

        holds_with_time(check)

    @pytest.mark.parametrize("answer", [None, "hits", ["a"], [("a", 1.0)], 7])
    def test_garbage_is_a_failure(self, answer: Any) -> None:
        class Garbage(BaseRetriever):
            def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
                return answer  # type: ignore[no-any-return]

        hits = ask(SimpleHybridRetriever(Garbage(), FixedRetriever(("a", 1.0))), "q")
        assert ids(hits) == ["a"]
        assert len(hits.degraded) == 1

    def test_one_that_keeps_failing_is_left_out_for_a_while_visibly(self) -> None:
        failing = Failing()
        retriever = SimpleHybridRetriever(failing, FixedRetriever(("a", 1.0)), breaker=Breaker(failures=2, seconds=60))
        for _ in range(3):
            hits = ask(retriever, "q")
        assert failing.calls == 2
        assert "left out for another" in hits.degraded[0]
        assert "LookupError: out of order" in hits.degraded[0]
        assert any(span.error and "left out" in span.error for span in hits.trace.spans)

    def test_if_all_are_left_out_all_are_tried(self) -> None:
        failing = Failing()
        retriever = SimpleHybridRetriever(failing, breaker=Breaker(failures=1, seconds=60))
        for calls in (1, 2, 3):
            with pytest.raises(RetrievalError):
                ask(retriever, "q")
            assert failing.calls == calls

    def test_what_a_part_lacks_the_whole_tells(self) -> None:
        inner = SimpleHybridRetriever(Failing(), FixedRetriever(("a", 1.0)))
        hits = ask(SimpleHybridRetriever(inner, FixedRetriever(("b", 1.0))), "q")
        assert ids(hits) == ["a", "b"]
        assert hits.degraded == ("failing: LookupError: out of order",)
        assert [step.source for step in hits[0].provenance] == ["fixed", "simple_hybrid", "fuse"]


class Keeping(FixedRetriever):
    def __init__(self, *hits: tuple[str, float]) -> None:
        super().__init__(*hits)
        self.nodes: list[Document] = []

    def add_nodes(self, nodes: Sequence[Document]) -> None:
        self.nodes.extend(nodes)


class Full(FixedRetriever):
    def add_nodes(self, nodes: Sequence[Document]) -> None:
        raise OSError("disk full")


class TestF4:
    def test_nodes_reach_every_retriever(self) -> None:
        left, right = Keeping(), Keeping()
        nodes = corpus(3)
        outcome = SimpleHybridRetriever(left, right).add_nodes(nodes)
        assert outcome == NodesAdded(("keeping", "keeping_2"))
        assert outcome
        assert left.nodes == right.nodes == nodes

    def test_who_holds_the_nodes_if_one_fails(self) -> None:
        inner = SimpleHybridRetriever(Keeping(), Full(), names=["x", "y"])
        retriever = SimpleHybridRetriever(
            Full(), Keeping(), FixedRetriever(), inner, names=["full", "keeping", "fixed", "inner"]
        )
        outcome = retriever.add_nodes(corpus(2))
        assert not outcome
        assert outcome.holding == ("keeping", "inner.x")
        assert {name: str(error) for name, error in outcome.failed.items()} == {
            "full": "disk full",
            "fixed": "fixed does not accept documents; it has no add_nodes",
            "inner.y": "disk full",
        }
        with pytest.raises(InputError, match="none of fixed takes documents"):
            SimpleHybridRetriever(FixedRetriever()).add_nodes(corpus(1))

    def test_saved_and_loaded_it_finds_the_same(self, tmp_path: Path) -> None:
        embedder = HashingEmbedder()
        first = Dataset("one", embedder=embedder, bm25_k1=0.9, bm25_b=0.4)
        two = Dataset("два", "о рельсах", embedder=embedder)
        saved_retriever = SimpleHybridRetriever(
            first.retriever("bm25"), two.retriever("vector"), fusion="z_score", weights=[1, 2], depth=30
        )
        assert saved_retriever.add_nodes(corpus(60))
        first.delete("d7")
        saved_retriever.persist(tmp_path / "saved")
        copy = SimpleHybridRetriever.load(
            tmp_path / "saved", lambda folder: DatasetRetriever.load(folder, embedder=embedder)
        )
        for query in ("rail lamp", "signal", "guard whistle bridge"):
            assert copy.retrieve(query, 40) == saved_retriever.retrieve(query, 40)
        assert saved_retriever.retrieve("rail lamp", 40)
        inner = copy.retrievers[1]
        assert isinstance(inner, DatasetRetriever)
        assert (inner.dataset.name, inner.dataset.description, inner.method) == ("два", "о рельсах", "vector")
        assert saved_retriever.add_nodes([Document("new", "a rail lamp of another kind")])
        saved_retriever.persist(tmp_path / "saved", fs=None)  # a framework's option
        later_copy = SimpleHybridRetriever.load(
            tmp_path / "saved", lambda folder: DatasetRetriever.load(folder, embedder=embedder)
        )
        assert "new" in [hit.id for hit in later_copy.retrieve("rail lamp", 80)]
        assert later_copy.add_nodes([Document("newest", "a rail lamp of the last kind")])
        later_copy.persist(tmp_path / "saved")
        assert "newest" in [hit.id for hit in later_copy.retrieve("rail lamp", 80)], "what was loaded stays usable"
        for retriever in (*saved_retriever.retrievers, *copy.retrievers, *later_copy.retrievers):
            assert isinstance(retriever, DatasetRetriever)
            retriever.dataset.close()

    def test_it_is_saved_in_place_of_nothing_else(self, tmp_path: Path) -> None:
        class Failing(FixedRetriever):
            def persist(self, folder: Path) -> None:
                folder.mkdir()
                raise OSError("disk full")

        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "notes.txt").write_text("mine")
        (tmp_path / "file").write_text("a file")
        with Dataset("one", embedder=HashingEmbedder()) as dataset:
            retriever = SimpleHybridRetriever(dataset.retriever("bm25"))
            retriever.add_nodes(corpus(5))
            with pytest.raises(InputError, match="holds more than a saved hybrid retriever"):
                retriever.persist(tmp_path / "mine")
            assert [item.name for item in (tmp_path / "mine").iterdir()] == ["notes.txt"]
            for path in ("file", "file/below"):
                with pytest.raises(InputError, match="is not a folder; name a new one"):
                    retriever.persist(tmp_path / path)
            retriever.persist(tmp_path / "saved")
            files_before = sorted(item.name for item in (tmp_path / "saved").iterdir())
            with pytest.raises(OSError, match="disk full"):
                SimpleHybridRetriever(dataset.retriever("bm25"), Failing()).persist(tmp_path / "saved")
            assert sorted(item.name for item in (tmp_path / "saved").iterdir()) == files_before
            retriever.persist(tmp_path / "saved")
            assert len(list((tmp_path / "saved").iterdir())) == 2, "the manifest and the last save"

    def test_what_cannot_be_saved_or_loaded(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="fixed cannot be saved"):
            SimpleHybridRetriever(FixedRetriever()).persist(tmp_path / "new")
        assert not (tmp_path / "new").exists()
        with pytest.raises(InputError, match="no hybrid retriever is saved"):
            SimpleHybridRetriever.load(tmp_path, DatasetRetriever.load)
        (tmp_path / "hybrid.json").write_text("{")
        with pytest.raises(CorruptStoreError, match=r"hybrid\.json cannot be read"):
            SimpleHybridRetriever.load(tmp_path, DatasetRetriever.load)
        settings = {"names": ["a", "b"], "kinds": ["A", "B"], "fusion": "rrf", "weights": None, "depth": 9}
        (tmp_path / "hybrid.json").write_text(json.dumps(settings))
        with pytest.raises(InputError, match="2 retrievers are saved"):
            SimpleHybridRetriever.load(tmp_path)
        with pytest.raises(InputError, match="no retriever is saved at"):
            SimpleHybridRetriever.load(tmp_path, DatasetRetriever.load)

    @pytest.mark.parametrize(
        "change",
        [
            {"weights": "ab"},
            {"weights": ["x", 1]},
            {"weights": 3},
            {"weights": {"a": 1, "b": 2}},
            {"weights": [1]},
            {"weights": [10**400, 1]},
            {"fusion": []},
            {"fusion": "best"},
            {"depth": "x"},
            {"depth": 0},
            {"names": []},
            {"names": "ab"},
        ],
    )
    def test_damaged_settings(self, tmp_path: Path, change: dict[str, Any]) -> None:
        settings = {"names": ["a", "b"], "kinds": ["A", "B"], "fusion": "rrf", "weights": [1, 2], "depth": 9}
        (tmp_path / "hybrid.json").write_text(json.dumps(settings))
        assert SimpleHybridRetriever.load(tmp_path, lambda _: FixedRetriever()).names == ("a", "b")
        (tmp_path / "hybrid.json").write_text(json.dumps({**settings, **change}))
        with pytest.raises(CorruptStoreError, match=r"hybrid\.json cannot be read"):
            SimpleHybridRetriever.load(tmp_path, lambda _: FixedRetriever())

    def test_settings_nested_without_end(self, tmp_path: Path) -> None:
        (tmp_path / "hybrid.json").write_text("[" * 200_000)
        with pytest.raises(CorruptStoreError, match=r"hybrid\.json cannot be read"):
            SimpleHybridRetriever.load(tmp_path, DatasetRetriever.load)
        for text in ("[" * 200_000, '{"method": []}'):
            (tmp_path / "retriever.json").write_text(text)
            with pytest.raises(InputError, match="no retriever is saved at"):
                DatasetRetriever.load(tmp_path)


def test_f5_every_retriever_is_given_the_same_query() -> None:
    left, right = FixedRetriever(), FixedRetriever()
    query = Query("q")
    ask(SimpleHybridRetriever(left, right), query)
    assert left.calls[0][0] is query
    assert right.calls[0][0] is query


def test_many_threads_at_once() -> None:
    retriever = SimpleHybridRetriever(FixedRetriever(("a", 1.0)), FixedRetriever(("b", 1.0)))
    wrong: list[Any] = []

    def search() -> None:
        wrong.extend(hits for _ in range(50) if ids(hits := retriever.retrieve("q")) != ["a", "b"])

    threads = [threading.Thread(target=search) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_list_of_retrievers_does_as_well() -> None:
    """F1, as seed-shaped code calls it."""
    first, second = FixedRetriever(("a", 2), ("b", 1)), FixedRetriever(("b", 2), ("c", 1))
    assert SimpleHybridRetriever([first, second]).retrieve("x") == SimpleHybridRetriever(first, second).retrieve("x")
    with pytest.raises(InputError, match="at least one"):
        SimpleHybridRetriever([])


@pytest.mark.anyio
async def test_further_arguments_go_to_every_retriever() -> None:
    """Row 10 of the public surface: what a retriever does not take is reported, and the others answer."""
    options_seen: list[dict[str, Any]] = []

    class Taking(BaseRetriever):
        def retrieve(self, query: str | Query, top_k: int = 10, **options: Any) -> list[Hit]:
            options_seen.append(options)
            return [Hit(Document("a", "lamp"), 1.0)]

        async def aretrieve(self, query: str | Query, top_k: int = 10, **options: Any) -> list[Hit]:
            return self.retrieve(query, top_k, **options)

    class PlainRetriever(BaseRetriever):
        def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
            return [Hit(Document("b", "lamp"), 1.0)]

    hybrid = SimpleHybridRetriever(Taking(), PlainRetriever())
    assert [hit.id for hit in hybrid.retrieve("lamp", language="en")] == ["a"]
    assert [hit.id for hit in await hybrid.aretrieve("lamp", language="en")] == ["a"]
    assert [hit.id for hit in hybrid.retrieve("lamp")] == ["a", "b"]
    assert options_seen == [{"language": "en"}, {"language": "en"}, {}]
    assert "language" in " ".join(hybrid.retrieve("lamp", language="en").degraded)
