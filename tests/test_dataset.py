from __future__ import annotations

import asyncio
import gc
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pointsman import Dataset, Document
from pointsman.embedders import query_vectors as module
from pointsman.embedders.query_vectors import QueryVectors
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.tools.errors import ConflictError, InputError, UnknownNameError
from pointsman.values.types import AddResult, Query
from store_kit import collection_of, corpus

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Counting(HashingEmbedder):
    """Remembers what it has embedded."""

    def __init__(self, dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self.texts: list[str] = []

    def embed_documents(self, texts: Sequence[str], **options: object) -> NDArray[np.float32]:
        self.texts += texts
        return super().embed_documents(texts)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    with Dataset("notes", path=tmp_path / "notes", embedder=Counting()) as dataset:
        yield dataset


def test_add_get_iterate_delete(dataset: Dataset) -> None:
    assert dataset.add([{"id": "a", "text": "a red signal"}, Document("b", "a green lamp", {"n": 1})]) == AddResult(2)
    assert dataset.get("b") == Document("b", "a green lamp", {"n": 1})
    assert dataset.get("c") is None
    assert [document.id for document in dataset] == dataset.ids() == ["a", "b"]
    assert len(dataset) == 2
    assert "a" in dataset
    assert "c" not in dataset
    assert dataset.delete("a") == 1
    assert dataset.delete(["a", "zzz"]) == 0
    assert dataset.ids() == ["b"]
    assert bool(Dataset("empty"))
    assert dataset.verify().problems == ()


def test_only_what_has_changed_is_embedded(dataset: Dataset) -> None:
    embedder = dataset.embedder
    assert isinstance(embedder, Counting)
    documents = corpus(20)
    dataset.add(documents)
    assert len(embedder.texts) == 20
    counts: list[int] = []
    result = dataset.add(
        [*documents[:10], Document("d3", "changed"), Document("new", "new")], on_progress=counts.append
    )
    assert result == AddResult(added=1, updated=1, unchanged=9)
    assert embedder.texts[20:] == ["changed", "new"]
    assert sum(counts) == 12


def test_an_id_given_twice_counts_once_the_last_time(dataset: Dataset) -> None:
    rows = np.eye(3, 64, dtype=np.float32)
    documents = [Document("a", "first"), Document("b", "other"), Document("a", "last")]
    assert dataset.add(documents, vectors=rows) == AddResult(added=2)
    assert dataset.get("a") == documents[2]
    vectors = collection_of(dataset).vectors
    assert vectors is not None
    assert vectors.score(rows[2], [1]) == [1.0]


def test_the_title_is_searched_too(dataset: Dataset) -> None:
    dataset.add([Document("a", "text", {"title": "Zebra crossing"}), Document("b", "text")])
    with pytest.raises(InputError, match="the metadata 'title' is a text, not 7"):
        dataset.add(Document("c", "text", {"title": 7}))
    assert [hit.id for hit in dataset.retriever("bm25").retrieve("zebra")] == ["a"]


def test_ids_by_source(dataset: Dataset) -> None:
    dataset.add([Document("a", "x", {"source": "f'1\""}), Document("b", "x", {"source": "1"}), Document("c", "x")])
    assert dataset.ids(source="f'1\"") == ["a"]
    assert dataset.ids(source="1") == ["b"]


@pytest.mark.parametrize("technique", ["keyword", "vector", "hybrid"])
def test_techniques(tmp_path: Path, technique: str) -> None:
    with Dataset("x", indexing_technique=technique, path=tmp_path / "x", embedder=Counting()) as dataset:  # type: ignore[arg-type]
        assert len(dataset.candidates(Query("rail"))) == 0  # empty, not an error
        dataset.add(corpus(5))
        keeps = dataset.lists_for("auto")
        assert keeps == (technique != "vector", technique != "keyword")
        assert (collection_of(dataset).vectors is not None) == keeps[1]
        assert len(dataset.retriever("auto").retrieve("rail lamp", 3)) > 0
        for method, index in {"bm25": 0, "vector": 1}.items():
            if not keeps[index]:
                with pytest.raises(InputError, match="indexed for"):
                    dataset.retriever(method)
        with pytest.raises(UnknownNameError, match="no strategy named 'best'"):
            dataset.retriever("best")


def test_settings_of_bm25_reach_the_index(tmp_path: Path) -> None:
    documents = [Document("short", "rail"), Document("long", "rail " * 3 + "lamp " * 60)]
    best_ids = {}
    for b in (0.0, 1.0):
        with Dataset("x", indexing_technique="keyword", path=tmp_path / f"x{b}", bm25_b=b) as dataset:
            dataset.add(documents)
            best_ids[b] = dataset.retriever("bm25").retrieve("rail", 1)[0].id
    assert best_ids == {0.0: "long", 1.0: "short"}


def test_another_embedder_is_refused_before_it_works(tmp_path: Path, dataset: Dataset) -> None:
    dataset.add(corpus(3))
    dataset.close()
    other_embedder = Counting(32)
    with Dataset("notes", path=tmp_path / "notes", embedder=other_embedder) as reopened_dataset:
        with pytest.raises(InputError, match=r"hashing-64.*hashing-32"):
            reopened_dataset.retriever("vector").retrieve("rail")
        with pytest.raises(InputError, match=r"hashing-64.*hashing-32"):
            reopened_dataset.add([Document("new", "new")])
        assert other_embedder.texts == []
        assert len(reopened_dataset.retriever("bm25").retrieve("rail lamp guard yard")) > 0


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "",
        ".",
        "..",
        ".x",
        "x.",
        "a/b",
        "a\\b",
        "x" * 65,
        "a  b",
        " a",
        "a ",
        "a\tb",
        "a\u00a0b",
        "a .",
        ". a",
        "a\n",
        "\0",
        "NUL\0",
    ],
)
def test_names_that_cannot_be_used(name: str) -> None:
    with pytest.raises(InputError, match="1 to 64 letters"):
        Dataset(name)


@pytest.mark.parametrize(
    "name", ["CON", "x" * 64, "轨道", "стрелка", "a.b-c_d", "1", "a b", "Meine Notizen 2024", "мои заметки", "a . b"]
)
def test_names_that_can(tmp_path: Path, name: str) -> None:
    with Dataset(name, path=tmp_path / name, indexing_technique="keyword") as dataset:
        assert dataset.add([Document("a", "rail")]).added == 1


@pytest.mark.parametrize(
    "item", [7, "text", {"id": "a"}, {"text": "a"}, {"id": "a", "text": "b", "more": 1}, {"id": "", "text": ""}]
)
def test_things_that_are_no_documents(dataset: Dataset, item: object) -> None:
    with pytest.raises(InputError, match="document"):
        dataset.add([item])


def test_the_number_of_vectors_must_fit(dataset: Dataset) -> None:
    for count in (2, 4):
        with pytest.raises(InputError, match=f"{count} vectors for"):
            dataset.add(corpus(3), vectors=np.eye(count, 64, dtype=np.float32))


def test_an_add_that_was_cut_short_goes_on_by_its_own_report(dataset: Dataset) -> None:
    documents = [Document(f"d{number}", f"signal {number}") for number in range(25)]
    counts: list[int] = []

    def break_off() -> Iterator[Document]:
        yield from documents[:17]
        raise ConnectionError("the source is gone")

    def count(result: AddResult) -> None:
        counts.append(result.added)
        assert len(dataset) == result.added, "it is committed by then"

    with pytest.raises(ConnectionError):
        dataset.add(break_off(), batch_size=5, on_commit=count)
    assert counts == [5, 10, 15]
    assert dataset.add(documents[counts[-1] :], batch_size=5) == AddResult(added=10)
    assert dataset.add(documents) == AddResult(unchanged=25)


def test_long_texts_make_small_transactions(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman.workspace.dataset.document_vectors._BATCH_CHARACTERS", 1000)
    counts: list[int] = []
    documents = [Document(f"d{number}", "signal " * 60) for number in range(7)]
    dataset.add(documents, on_commit=lambda total: counts.append(total.added))
    assert counts == [3, 6, 7]


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_has_a_document(dataset: Dataset, size: int) -> None:
    with pytest.raises(InputError, match="batch_size"):
        dataset.add([Document("d", "signal")], batch_size=size)


def test_documents_are_committed_in_batches(dataset: Dataset) -> None:
    def endless() -> Iterator[Document]:
        for number in range(600):
            yield Document(f"d{number}", f"rail {number}")
        raise RuntimeError("the source broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        dataset.add(endless())
    assert len(dataset) == 512
    assert len(dataset.retriever("bm25").retrieve("rail", 1000)) == 512
    assert dataset.verify().problems == ()


def test_without_a_path_it_is_temporary() -> None:
    dataset = Dataset("passing", indexing_technique="keyword")
    dataset.add([Document("a", "rail")])
    path = dataset._path
    assert path is not None
    assert path.exists()
    dataset.close()
    del dataset
    gc.collect()
    assert not path.exists()


def test_the_spread_is_not_measured_on_documents_that_another_writer_has_just_deleted(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset.add(corpus(1))
    monkeypatch.setattr(type(dataset.store), "sample", lambda *_: [])  # deleted after the vectors were drawn
    dataset.add(corpus(9))
    monkeypatch.undo()
    spread = dataset.cosine_spread
    assert spread is None or np.isfinite([spread.mean, spread.sigma]).all()


def test_the_spread_of_cosines_is_measured(dataset: Dataset) -> None:
    assert dataset.cosine_spread is None  # nothing is known, so nothing is averaged in
    dataset.add([])
    assert dataset.cosine_spread is None
    dataset.add(corpus(200))
    spread = dataset.cosine_spread
    assert spread is not None
    assert spread.sigma > 0
    assert spread.sigma != 0.05
    dataset.add(corpus(10, prefix="few"))
    assert dataset.cosine_spread == spread
    dataset.add(corpus(300, seed=4, prefix="many"))
    assert dataset.cosine_spread != spread


def test_opening_twice_and_describing(tmp_path: Path, dataset: Dataset) -> None:
    dataset.add(corpus(5))
    dataset.describe("about rails")
    assert collection_of(dataset).manifest["description"] == "about rails"
    dataset.rebuild()
    dataset.close()
    dataset.close()
    for use in (
        lambda: len(dataset),
        lambda: dataset.search("rail"),
        lambda: dataset.add(corpus(1)),
        lambda: dataset.delete(["a"]),
        lambda: dataset.retriever("bm25").retrieve("rail"),
        lambda: dataset.save(tmp_path / "copy"),
    ):
        with pytest.raises(InputError, match="dataset 'notes' is closed"):
            use()
    with Dataset.load(tmp_path / "notes", embedder=dataset.embedder) as reopened_dataset:
        assert len(reopened_dataset) == 5


@pytest.mark.parametrize("description", [7, b"about rails", Path("rails"), "a\0b", "\ud800", None])
def test_a_description_that_cannot_be_stored(description: Any) -> None:
    with pytest.raises(InputError, match="a description is a str"):
        Dataset("rails", description=description)
    with Dataset("rails") as dataset, pytest.raises(InputError, match="a description is a str"):
        dataset.describe(description)


def test_async_search(dataset: Dataset) -> None:
    dataset.add(corpus(5))
    retriever = dataset.retriever("hybrid")
    assert asyncio.run(retriever.aretrieve("rail lamp", 3)) == retriever.retrieve("rail lamp", 3)


class Hanging(HashingEmbedder):
    """Hangs at the first query until it is let go."""

    def __init__(self) -> None:
        super().__init__(64)
        self.calls, self.call_started, self.free = 0, threading.Event(), threading.Event()

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls += 1
        if self.calls == 1:
            self.call_started.set()
            self.free.wait(30)
        return super().embed_queries(texts)


class TestQueryVectors:
    @pytest.fixture
    def hanging(self) -> Iterator[tuple[QueryVectors, Hanging]]:
        """Query vectors of which one text is on its way and does not come."""
        embedder = Hanging()
        vectors = QueryVectors(lambda: embedder)
        thread = threading.Thread(target=vectors, args=("rail",))
        thread.start()
        assert embedder.call_started.wait(10)
        yield vectors, embedder
        embedder.free.set()
        thread.join()

    def test_who_asks_for_one_on_its_way_waits_for_it(self, hanging: tuple[QueryVectors, Hanging]) -> None:
        vectors, embedder = hanging
        timer = threading.Timer(0.1, embedder.free.set)
        timer.start()
        assert vectors("rail").shape == (64,)
        timer.join()
        assert embedder.calls == 1

    def test_one_that_hangs_is_begun_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_PATIENCE", 0.3)
        embedder = Hanging()
        vectors = QueryVectors(lambda: embedder)
        thread = threading.Thread(target=vectors, args=("rail",))
        thread.start()
        try:
            assert embedder.call_started.wait(10)
            assert vectors("rail").shape == (64,)  # waits, and embeds it itself
            assert vectors("rail").shape == (64,)  # the next finds it overdue at once …
            assert vectors("rail").shape == (64,)  # … and what it got is remembered
            assert embedder.calls == 3
        finally:
            embedder.free.set()
            thread.join()
        assert vectors("rail").shape == (64,)
        assert embedder.calls == 3

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_forked_child_waits_for_no_thread_of_its_parent(self, hanging: tuple[QueryVectors, Hanging]) -> None:
        vectors, _ = hanging
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        with vectors._lock:  # as another thread may hold it at that moment
            child = context.Process(target=lambda: queue.put(vectors("rail").shape))
            child.start()
        child.join(5)
        alive = child.is_alive()
        child.kill()
        assert not alive
        assert queue.get() == (64,)

    def test_what_fails_is_not_remembered(self) -> None:
        class Failing(HashingEmbedder):
            def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
                raise LookupError("gone")

        vectors = QueryVectors(lambda: Failing(64))
        for _ in range(2):
            with pytest.raises(LookupError, match="gone"):
                vectors("rail")
        assert not vectors._entries


# ── what other frameworks need (X1) ──────────────────────────────────────────────────────────────────────────────────


class Silent(Counting):
    """Fails when it is asked to embed."""

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise AssertionError("asked to embed queries")

    def embed_documents(self, texts: Sequence[str], **options: object) -> NDArray[np.float32]:
        raise AssertionError("asked to embed documents")


def test_given_vectors_are_stored_and_searched_without_a_call_of_the_embedder(tmp_path: Path) -> None:
    rows = np.eye(3, dtype=np.float32) * 7
    with Dataset("own", path=tmp_path / "own", embedder=Silent(3)) as dataset:
        dataset.add([{"id": name, "text": name, "metadata": {"n": n}} for n, name in enumerate("abc")], vectors=rows)
        assert [hit.id for hit in dataset.search_vector([0.1, 5, 1])] == ["b", "c", "a"]
        assert [hit.id for hit in dataset.search_vector([0.1, 5, 1], 1, filters="n != 1")] == ["c"]
        (best,) = dataset.search_vector([0, 1e30, 0], 1)
        assert (best.id, best.dataset) == ("b", "own")
        assert best.score == pytest.approx(1)
        assert [(step.source, step.rank) for step in best.provenance] == [("vector", 1)]
        assert asyncio.run(dataset.asearch_vector([0, 1e30, 0], 1)) == [best]
        for vector in ([0, 0, 0], [1, np.nan, 0], [[1, 0, 0]], ["x"], [1, np.inf, 0]):
            with pytest.raises(InputError, match="a vector"):
                dataset.search_vector(vector)  # type: ignore[arg-type]
        with pytest.raises(InputError):
            dataset.search_vector([1, 2])


def test_documents_without_vectors_stand_beside_those_with(dataset: Dataset) -> None:
    dataset.add([{"id": "a", "text": "a red signal"}, {"id": "c", "text": "a lamp"}])
    dataset.add([{"id": "b", "text": "a green signal"}], embed=False)
    first, second, third, fourth = dataset.get_vectors(["c", "b", "zzz", "a"])
    assert first is not None
    assert fourth is not None
    assert (second, third) == (None, None)
    assert np.allclose(fourth, dataset.embedder.embed_documents(["a red signal"])[0])
    assert not np.allclose(first, fourth)
    assert {hit.id for hit in dataset.search_vector(fourth)} == {"a", "c"}
    assert dataset.retriever("bm25").retrieve("green")[0].id == "b"
    assert dataset.get_vectors([]) == []


def test_a_keyword_dataset_has_no_vectors_to_search(tmp_path: Path) -> None:
    with Dataset("words", indexing_technique="keyword", path=tmp_path / "words") as dataset:
        dataset.add([{"id": "a", "text": "a red signal"}])
        with pytest.raises(InputError, match="stores no vectors"):
            dataset.search_vector([1.0])
        assert dataset.get_vectors(["a"]) == [None]


def test_existing_documents_are_kept_or_refused(dataset: Dataset) -> None:
    dataset.add([{"id": "a", "text": "first"}])
    documents = [{"id": "a", "text": "second"}, {"id": "b", "text": "second"}]
    with pytest.raises(InputError, match="1 of these ids exist already: a"):
        dataset.add(documents, existing="refuse")
    assert dataset.ids() == ["a"]
    assert dataset.add(documents, existing="keep") == AddResult(added=1, unchanged=1)
    assert [document and document.text for document in dataset.get_many(["a", "b"])] == ["first", "second"]
    assert dataset.add(documents) == AddResult(updated=1, unchanged=1)
    rows = np.eye(64, dtype=np.float32)[:2]
    dataset.add([{"id": "b", "text": "third"}, {"id": "c", "text": "third"}], vectors=rows, existing="keep")
    assert np.allclose(dataset.get_vectors(["c"])[0], rows[1])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="existing is one of"):
        dataset.add(documents, existing="never")  # type: ignore[arg-type]


def test_ids_of_documents_that_match(dataset: Dataset) -> None:
    """Row 2: `ids`, `count`, `page` and `delete` take the same filters."""
    dataset.add([{"id": f"{n}", "text": "lamp", "metadata": {"n": n, "source": "ab"[n % 2]}} for n in range(6)])
    assert dataset.ids(filters="n >= 3") == ["3", "4", "5"]
    assert dataset.ids(filters="_id in ['1', '9'] or _text icontains LAMP and n = 2") == ["1", "2"]
    assert dataset.ids(filters={"n": {"gte": 3}}, source="a") == ["4"]
    assert dataset.count("n >= 3") == 3
    assert dataset.delete(filters="n >= 3") == 3
    assert dataset.ids(filters="n >= 0") == ["0", "1", "2"]


@pytest.mark.anyio
async def test_metadata_is_changed_alone(dataset: Dataset) -> None:
    """Row 7: texts and vectors stay; only a new title is embedded."""
    dataset.add([{"id": "a", "text": "red lamp", "metadata": {"n": 1, "m": 1}}, {"id": "b", "text": "green lamp"}])
    dataset.add([{"id": "c", "text": "no vector"}], embed=False)
    vectors_before = dataset.get_vectors(["a", "b", "c"])
    assert dataset.set_metadata({"a": {"n": 2, "m": None}, "c": {"n": 3}}).updated == 2
    assert (await dataset.aset_metadata({"b": {"title": "switch tower"}})).updated == 1
    a, b, c = dataset.get_many(["a", "b", "c"])
    assert a is not None and b is not None and c is not None  # noqa: PT018
    assert (a.metadata, b.metadata, c.metadata) == ({"n": 2}, {"title": "switch tower"}, {"n": 3})
    vectors_after = dataset.get_vectors(["a", "b", "c"])
    assert np.array_equal(np.array(vectors_before[0]), np.array(vectors_after[0]))
    assert not np.array_equal(np.array(vectors_before[1]), np.array(vectors_after[1]))
    assert vectors_after[2] is None
    assert dataset.set_metadata({"a": {"k": 1}}, replace=True).updated == 1
    assert dataset.ids(filters="k = 1 and not exists(n)") == ["a"]
    with pytest.raises(InputError, match="no document 'x'"):
        dataset.set_metadata({"a": {"k": 2}, "x": {}})
    assert dataset.count("k = 1") == 1


class InterruptingEmbedder(HashingEmbedder):
    """Calls something whenever it embeds a text with the title."""

    def __init__(self, title: str, interruption: Callable[[int], object]) -> None:
        super().__init__(64)
        self.title, self.interruption, self.times = title, interruption, 0

    def embed_documents(self, texts: Sequence[str], **options: object) -> NDArray[np.float32]:
        rows = super().embed_documents(texts)
        if texts[0].startswith(f"{self.title}\n"):
            self.times += 1
            self.interruption(self.times)
        return rows


@pytest.fixture
def dataset_to_retitle(tmp_path: Path) -> Iterator[tuple[Dataset, InterruptingEmbedder]]:
    embedder = InterruptingEmbedder("Yard", lambda _: None)
    with Dataset("notes", path=tmp_path / "retitled", embedder=embedder) as dataset:
        dataset.add({"id": "a", "text": "red lamp", "metadata": {"n": 1}})
        yield dataset, embedder


def write_bare(dataset: Dataset, text: str) -> None:
    document = Document("a", text, {"m": text})
    dataset.store.write([document], HashingEmbedder(64).embed_documents([text]), "hashing-64")


def test_new_title_does_not_revert_text_replaced_while_it_is_embedded(
    dataset_to_retitle: tuple[Dataset, InterruptingEmbedder],
) -> None:
    dataset, embedder = dataset_to_retitle
    embedder.interruption = lambda times: write_bare(dataset, "green lamp") if times == 1 else None
    assert dataset.set_metadata({"a": {"title": "Yard"}}) == AddResult(updated=1)
    assert dataset.get("a") == Document("a", "green lamp", {"m": "green lamp", "title": "Yard"})
    [vector] = dataset.get_vectors(["a"])
    assert np.allclose(vector, HashingEmbedder(64).embed_documents(["Yard\ngreen lamp"])[0])  # type: ignore[arg-type]
    assert embedder.times == 2


def test_document_deleted_while_its_new_title_is_embedded_stays_deleted(
    dataset_to_retitle: tuple[Dataset, InterruptingEmbedder],
) -> None:
    dataset, embedder = dataset_to_retitle
    embedder.interruption = lambda _: dataset.delete("a")
    with pytest.raises(InputError, match="no document 'a'"):
        dataset.set_metadata({"a": {"title": "Yard"}})
    assert dataset.get("a") is None


def test_changing_titles_gives_up_if_texts_never_stay(dataset_to_retitle: tuple[Dataset, InterruptingEmbedder]) -> None:
    dataset, embedder = dataset_to_retitle
    embedder.interruption = lambda times: write_bare(dataset, f"lamp {times}")
    with pytest.raises(ConflictError, match="others keep changing the texts of 'a'; try again"):
        dataset.set_metadata({"a": {"title": "Yard"}})
    assert dataset.get("a") == Document("a", f"lamp {embedder.times}", {"m": f"lamp {embedder.times}"})


def test_deleting_by_filter_spares_what_is_changed_before(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """What matched when it was looked for, and no longer does when it would be deleted."""
    dataset.add({"id": "a", "text": "red lamp", "metadata": {"n": 1}})
    ids, answers = dataset.store.ids, list[str]()

    def change() -> None:
        try:
            dataset.set_metadata({"a": {"n": 2}})
            answers.append("changed")
        except InputError:
            answers.append("missing")

    thread = threading.Thread(target=change)

    def ids_and_then_a_change(**options: Any) -> list[str]:
        result = ids(**options)
        thread.start()
        thread.join(0.5)  # it cannot end before the deletion
        return result

    monkeypatch.setattr(dataset.store, "ids", ids_and_then_a_change)
    assert dataset.delete(filters="n = 1") == 1
    thread.join(10)
    assert answers == ["missing"]
    assert dataset.get("a") is None


def test_metadata_of_a_dataset_that_is_not_there(tmp_path: Path) -> None:
    missing = Dataset("nothing", path=tmp_path / "nothing")
    with pytest.raises(InputError, match="no document"):
        missing.set_metadata({"a": {}})
    assert not missing.exists


def test_one_document_may_be_added_alone_and_other_things_are_refused(tmp_path: Path) -> None:
    with Dataset("notes", path=tmp_path / "d", embedder=HashingEmbedder(64)) as dataset:
        assert dataset.add(Document("a", "one")) == dataset.add({"id": "b", "text": "two"}) == AddResult(added=1)
        for wrong in (None, 7):
            with pytest.raises(InputError, match="a list of Document or of mappings with id and text, not"):
                dataset.add(wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"a document's id is a str, not \['a'\]"):
            dataset.get(["a"])  # type: ignore[arg-type]
        with pytest.raises(InputError, match="a document's id is a str, not 7"):
            dataset.get_many([7])  # type: ignore[list-item]
