from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pointsman import Dataset, Document
from pointsman.errors import InputError, UnknownNameError
from pointsman.models.scripted import HashingEmbedder
from pointsman.retrieval.calibration import CosineSpread
from pointsman.types import AddResult, Query
from store_kit import corpus

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
    with Dataset("notes", path=tmp_path / "notes", embedder=Counting()) as made:
        yield made


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
    done: list[int] = []
    result = dataset.add([*documents[:10], Document("d3", "changed"), Document("new", "new")], on_progress=done.append)
    assert result == AddResult(added=1, updated=1, unchanged=9)
    assert embedder.texts[20:] == ["changed", "new"]
    assert sum(done) == 12


def test_an_id_given_twice_counts_once_the_last_time(dataset: Dataset) -> None:
    rows = np.eye(3, 64, dtype=np.float32)
    documents = [Document("a", "first"), Document("b", "other"), Document("a", "last")]
    assert dataset.add(documents, vectors=rows) == AddResult(added=2)
    assert dataset.get("a") == documents[2]
    assert dataset.stores.vectors is not None
    assert dataset.stores.vectors.score(rows[2], [1]) == [1.0]


def test_the_title_is_searched_too(dataset: Dataset) -> None:
    dataset.add([Document("a", "text", {"title": "Zebra crossing"}), Document("b", "text", {"title": 7})])
    assert [hit.id for hit in dataset.retriever("bm25").retrieve("zebra")] == ["a"]


def test_ids_by_source(dataset: Dataset) -> None:
    dataset.add([Document("a", "x", {"source": "f'1\""}), Document("b", "x", {"source": 1}), Document("c", "x")])
    assert dataset.ids(source="f'1\"") == ["a"]
    assert dataset.ids(source="1") == []


@pytest.mark.parametrize("technique", ["keyword", "vector", "hybrid"])
def test_techniques(tmp_path: Path, technique: str) -> None:
    with Dataset("x", indexing_technique=technique, path=tmp_path / "x", embedder=Counting()) as dataset:  # type: ignore[arg-type]
        assert len(dataset.candidates(Query("rail"))) == 0  # empty, not an error
        dataset.add(corpus(5))
        keeps = dataset.lists_for("auto")
        assert keeps == (technique != "vector", technique != "keyword")
        assert (dataset.stores.vectors is not None) == keeps[1]
        assert len(dataset.retriever("auto").retrieve("rail lamp", 3)) > 0
        for method, wanted in {"bm25": 0, "vector": 1}.items():
            if not keeps[wanted]:
                with pytest.raises(InputError, match="indexed for"):
                    dataset.retriever(method)
        with pytest.raises(UnknownNameError, match="no strategy named 'best'"):
            dataset.retriever("best")


def test_settings_of_bm25_reach_the_index(tmp_path: Path) -> None:
    documents = [Document("short", "rail"), Document("long", "rail " * 3 + "lamp " * 60)]
    found = {}
    for b in (0.0, 1.0):
        with Dataset("x", indexing_technique="keyword", path=tmp_path / f"x{b}", bm25_b=b) as dataset:
            dataset.add(documents)
            found[b] = dataset.retriever("bm25").retrieve("rail", 1)[0].id
    assert found == {0.0: "long", 1.0: "short"}


def test_another_embedder_is_refused_before_it_works(tmp_path: Path, dataset: Dataset) -> None:
    dataset.add(corpus(3))
    dataset.close()
    other = Counting(32)
    with Dataset("notes", path=tmp_path / "notes", embedder=other) as again:
        with pytest.raises(InputError, match=r"hashing-64.*hashing-32"):
            again.retriever("vector").retrieve("rail")
        with pytest.raises(InputError, match=r"hashing-64.*hashing-32"):
            again.add([Document("new", "new")])
        assert other.texts == []
        assert len(again.retriever("bm25").retrieve("rail lamp guard yard")) > 0


@pytest.mark.parametrize(
    "name", ["../x", "", ".", "..", ".x", "x.", "a/b", "a\\b", "x" * 65, "a b", "a\n", "\0", "NUL\0"]
)
def test_names_that_cannot_be_used(name: str) -> None:
    with pytest.raises(InputError, match="1 to 64 letters"):
        Dataset(name)


@pytest.mark.parametrize("name", ["CON", "x" * 64, "轨道", "стрелка", "a.b-c_d", "1"])
def test_names_that_can(tmp_path: Path, name: str) -> None:
    with Dataset(name, path=tmp_path / name, indexing_technique="keyword") as dataset:
        assert dataset.add([Document("a", "rail")]).added == 1


@pytest.mark.parametrize(
    "item", [7, "text", {"id": "a"}, {"text": "a"}, {"id": "a", "text": "b", "more": 1}, {"id": "", "text": ""}]
)
def test_things_that_are_no_documents(dataset: Dataset, item: object) -> None:
    with pytest.raises(InputError, match="document"):
        dataset.add([item])  # type: ignore[list-item]


def test_the_number_of_vectors_must_fit(dataset: Dataset) -> None:
    for count in (2, 4):
        with pytest.raises(InputError, match=f"{count} vectors for"):
            dataset.add(corpus(3), vectors=np.eye(count, 64, dtype=np.float32))


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


def test_the_spread_of_cosines_is_measured(dataset: Dataset) -> None:
    assert dataset.cosine_spread == CosineSpread(0.0, 0.05)
    dataset.add([])
    assert dataset.cosine_spread == CosineSpread(0.0, 0.05)
    dataset.add(corpus(200))
    spread = dataset.cosine_spread
    assert spread.sigma > 0
    assert spread.sigma != 0.05
    dataset.add(corpus(10, prefix="few"))
    assert dataset.cosine_spread == spread
    dataset.add(corpus(300, seed=4, prefix="many"))
    assert dataset.cosine_spread != spread


def test_opening_twice_and_describing(tmp_path: Path, dataset: Dataset) -> None:
    dataset.add(corpus(5))
    dataset.describe("about rails")
    assert dataset.stores.manifest["description"] == "about rails"
    dataset.rebuild()
    dataset.close()
    dataset.close()
    assert len(dataset) == 5  # used again, it opens again


def test_async_search(dataset: Dataset) -> None:
    dataset.add(corpus(5))
    retriever = dataset.retriever("hybrid")
    assert asyncio.run(retriever.aretrieve("rail lamp", 3)) == retriever.retrieve("rail lamp", 3)
