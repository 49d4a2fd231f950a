"""The embedding cache: exact, shared, bounded, and never in the way."""

from __future__ import annotations

import logging
import multiprocessing
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.embedders import CachedEmbedder, HashingEmbedder

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Counting(HashingEmbedder):
    """A hashing embedder that remembers what it was asked, and tells queries from documents."""

    cosine_spread = 0.125

    def __init__(self, dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self.texts: list[str] = []

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return super().embed_queries(texts)

    def embed_documents(
        self, texts: Sequence[str], *, on_progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        return -super().embed_documents(texts, on_progress=on_progress)


@pytest.fixture
def inner() -> Counting:
    return Counting()


def cache_file(folder: Path) -> Path:
    (path,) = folder.glob("*.sqlite3")
    return path


def test_each_text_is_embedded_once_and_comes_back_exactly(tmp_path: Path, inner: Counting) -> None:
    texts = ["rails", "switches", "rails", "\ud800 \0"]
    expected = Counting().embed_documents(texts)
    for embedder in (CachedEmbedder(inner, tmp_path), CachedEmbedder(inner, tmp_path)):  # the second one reads the disk
        vectors = embedder.embed_documents(texts)
        assert vectors.dtype == np.float32
        assert vectors.tobytes() == expected.tobytes()
    assert inner.texts == ["rails", "switches", "\ud800 \0"]
    assert CachedEmbedder(inner, tmp_path).embed_documents([]).shape == (0, 64)


def test_only_new_texts_go_to_the_model_and_order_is_kept(tmp_path: Path, inner: Counting) -> None:
    embedder = CachedEmbedder(inner, tmp_path)
    embedder.embed_documents(["a", "b"])
    inner.texts.clear()
    vectors = embedder.embed_documents(["c", "b", "d", "a"])
    assert inner.texts == ["c", "d"]
    assert np.array_equal(vectors, Counting().embed_documents(["c", "b", "d", "a"]))


def test_queries_documents_and_models_are_kept_apart(tmp_path: Path, inner: Counting) -> None:
    embedder, other_embedder = CachedEmbedder(inner, tmp_path), CachedEmbedder(Counting(32), tmp_path)
    assert np.array_equal(embedder.embed("rails"), -embedder.embed_documents(["rails"])[0])
    assert other_embedder.embed("rails").shape == (32,)
    assert np.array_equal(embedder.embed("rails"), inner.embed("rails"))


def test_it_passes_for_the_embedder_inside(tmp_path: Path, inner: Counting) -> None:
    embedder = CachedEmbedder(inner, tmp_path)
    assert (embedder.name, embedder.dimensions, embedder.cosine_spread) == ("hashing-64", 64, 0.125)


def test_progress_counts_every_text_once(tmp_path: Path, inner: Counting) -> None:
    embedder = CachedEmbedder(inner, tmp_path)
    for texts in (["a", "b", "a"], ["a", "c", "c", "b"], ["a"]):
        counts: list[int] = []
        embedder.embed_documents(texts, on_progress=counts.append)
        assert sum(counts) == len(texts)


@settings(max_examples=30, deadline=None)
@given(batches=st.lists(st.lists(st.sampled_from(["a", "b", "c", "d e", "", "\ud800"]), max_size=6), max_size=4))
def test_it_never_changes_an_answer(tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]]) -> None:
    embedder = CachedEmbedder(HashingEmbedder(), tmp_path_factory.mktemp("cache"))
    for batch in batches:
        assert np.array_equal(embedder.embed_queries(batch), HashingEmbedder().embed_queries(batch))


@pytest.mark.parametrize("damage", ["overwritten", "truncated", "middle", "a letter of the schema", "its name"])
def test_a_damaged_file_is_set_aside(
    tmp_path: Path, inner: Counting, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f"text {number}" for number in range(300)]
    embedder = CachedEmbedder(inner, tmp_path)
    expected = embedder.embed_documents(texts)
    embedder._file._connection.close()  # type: ignore[union-attr]
    path = cache_file(tmp_path)
    content = path.read_bytes()
    if damage == "overwritten":
        path.write_bytes(b"no database at all" * 500)
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 3])
    elif damage == "a letter of the schema":  # SQLite's message, which quotes it, is no UTF-8
        path.write_bytes(content.replace(b"CREATE TABLE vectors", b"CREATE TABL\xc5 vectors"))
    elif damage == "its name":
        path.write_bytes(content.replace(b"vectorsvectors", b"vectorsvectorz"))
    else:
        path.write_bytes(content[:8192] + b"\xff" * (len(content) - 8192))
    fresh = CachedEmbedder(inner, tmp_path)
    for _ in range(3):
        assert np.array_equal(fresh.embed_documents(texts), expected)
    inner.texts.clear()
    assert np.array_equal(CachedEmbedder(inner, tmp_path).embed_documents(texts), expected)
    assert inner.texts == [], "it keeps again"
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1
    assert "set aside" in caplog.text


def test_a_damaged_vector_is_made_again(tmp_path: Path, inner: Counting) -> None:
    expected = CachedEmbedder(inner, tmp_path).embed_documents(["rails"])
    with sqlite3.connect(cache_file(tmp_path)) as connection:
        connection.execute("UPDATE vectors SET vector = zeroblob(length(vector))")
    connection.close()
    assert np.array_equal(CachedEmbedder(inner, tmp_path).embed_documents(["rails"]), expected)
    assert inner.texts == ["rails", "rails"]
    CachedEmbedder(inner, tmp_path).embed_documents(["rails"])
    assert len(inner.texts) == 2


def test_a_folder_that_cannot_be_written_is_done_without(
    tmp_path: Path, inner: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    embedder = CachedEmbedder(inner, tmp_path / "file" / "cache")
    assert np.array_equal(embedder.embed("rails"), inner.embed("rails"))
    assert any(record.levelno == logging.WARNING for record in caplog.records)


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    inner = Counting(256)
    embedder = CachedEmbedder(inner, tmp_path, max_bytes=600_000)
    hours = iter(range(1_000))
    embedder._file.clock = lambda: 3600.0 * next(hours)
    embedder.embed_documents(["kept in use"])
    for number in range(12):
        embedder.embed_documents([f"{number} {i}" for i in range(100)])
        embedder.embed_documents(["kept in use"])
    assert inner.texts.count("kept in use") == 1
    with sqlite3.connect(cache_file(tmp_path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
    connection.close()
    assert 200 < count < 700
    inner.texts.clear()
    embedder.embed_documents([f"11 {i}" for i in range(100)])
    assert inner.texts == [], "the newest are there"
    embedder.embed_documents(["0 0"])
    assert inner.texts == ["0 0"], "the oldest are gone"


def test_threads_may_share_it(tmp_path: Path, inner: Counting) -> None:
    embedder = CachedEmbedder(inner, tmp_path)
    batches = [[f"text {(start + i) % 50}" for i in range(30)] for start in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for batch, vectors in zip(batches, pool.map(embedder.embed_documents, batches), strict=True):
            assert np.array_equal(vectors, Counting().embed_documents(batch))


def work(folder: str, start: int) -> bool:
    embedder = CachedEmbedder(HashingEmbedder(), folder)
    for step in range(10):
        batch = [f"text {(start + step * 7 + i) % 100}" for i in range(40)]
        if not np.array_equal(embedder.embed_documents(batch), HashingEmbedder().embed_documents(batch)):
            return False
    return True


def test_processes_may_share_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.starmap(work, [(str(tmp_path), start) for start in range(0, 90, 30)]) == [True] * 3
    assert not list(tmp_path.glob("*.damaged-*"))
