"""Texts and vectors in less room, and the same to the last bit."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman import Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.local.truth import sealed_rows, writable_truth
from pointsman.store.local.truth.packing import pack_text, pack_vectors, unpack_text, unpack_vectors
from pointsman.tools.errors import CorruptStoreError
from store_kit import collection_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

TEXT = "The signalman in box number 7 sets the points for the express before he lowers the distant signal. "
FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


def read(stored: str | bytes) -> str:
    return unpack_text(stored) if isinstance(stored, bytes) else stored


@given(st.text(st.characters(codec="utf-8"), max_size=400), st.integers(0, 3000))
def test_a_text_is_read_as_it_was_written(text: str, repetitions: int) -> None:
    for content in (text, text * repetitions, TEXT + text):
        assert read(pack_text(content)) == content


@pytest.mark.parametrize(
    "text", [TEXT * 5, "Стрелочник переводит стрелку перед скорым поездом. " * 5, "扳道工在快车之前扳动道岔。" * 9]
)
def test_a_text_of_a_few_sentences_takes_less_room(text: str) -> None:
    assert len(pack_text(text)) < len(text.encode()) / 2


def test_a_text_that_gains_nothing_or_would_look_like_a_bomb_stays_as_it_is() -> None:
    for text in ("", "short", "a" * 10**6):
        assert pack_text(text) is text


def test_no_blob_becomes_more_than_forty_times_as_long() -> None:
    deflater = zlib.compressobj(9, wbits=-15)
    bomb = deflater.compress(bytes(10**8)) + deflater.flush()
    blob = pack_text(TEXT * 5)
    assert isinstance(blob, bytes)
    for wrong_blob in (bomb, blob[:-1], blob + b"\0", b"", b"\xff" * 50, zlib.compress(b"\xff" * 50, wbits=-15)):
        with pytest.raises(ValueError, match=r"unpacked|utf-8"):
            unpack_text(wrong_blob)


@given(st.lists(st.lists(FLOATS, max_size=40), max_size=8))
def test_vectors_are_read_as_they_were_written(rows: list[list[float]]) -> None:
    vectors = [np.array(row, np.float32).tobytes() for row in rows]
    assert unpack_vectors(pack_vectors(vectors)) == vectors


@pytest.mark.parametrize("dimensions", [384, 768, 1024])
def test_a_vector_of_many_numbers_takes_seven_eighths(dimensions: int) -> None:
    rows = unit_rows(200, dimensions)
    rows[::7, 5] *= 1e-6  # numbers that are listed
    rows[3] = np.eye(dimensions, dtype=np.float32)[0]  # more of them than it pays to list
    vectors = [row.tobytes() for row in rows]
    stored = pack_vectors(vectors)
    assert unpack_vectors(stored) == vectors
    assert stored[3] == vectors[3]
    assert np.mean([len(row) for row in stored[4:]]) < 0.88 * 4 * dimensions


def test_what_is_no_packed_vector_is_refused() -> None:
    [blob] = pack_vectors([unit_rows(1, 384)[0].tobytes()])
    for wrong in (blob[:2], blob[:-4], bytes([blob[0], 9]) + blob[2:], b"\0\1" + b"\xff" * (28 + 4)):
        with pytest.raises(ValueError, match="packed vector"):
            unpack_vectors([blob, wrong])


def unit_rows(count: int, dimensions: int) -> NDArray[np.float32]:
    rows = np.random.default_rng(1).standard_normal((count, dimensions)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None], np.float32)


# ── in a dataset ─────────────────────────────────────────────────────────────────────────────────────────────────────


EMBEDDER = HashingEmbedder(dimensions=64)
DOCUMENTS = [Document(f"d{number}", f"{TEXT * (number % 4)} passage {number}") for number in range(60)]
ROWS = unit_rows(60, 64)


def open_at(path: Path) -> Workspace:
    return Workspace(path, embedder=EMBEDDER)


def database(path: Path) -> Path:
    return path / "datasets" / "notes" / "documents.sqlite"


def change(path: Path, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(database(path))) as connection, connection:
        assert connection.execute(sql, values).rowcount == 1


def answers(workspace: Workspace) -> list[Any]:
    dataset = workspace.dataset("notes", create=False)
    nearest = [(hit.document, hit.score) for hit in dataset.search_vector(ROWS[7], 20)]
    return [
        list(collection_of(dataset).truth.documents()),
        nearest,
        dataset.retriever("bm25").retrieve("express passage 17", 20),
    ]


def test_rows_that_are_not_packed_are_read_beside_packed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(writable_truth, "pack_text", lambda text: text)
        patch.setattr(sealed_rows, "pack_vectors", list)
        with open_at(tmp_path) as workspace:
            workspace.dataset("notes").add(DOCUMENTS, vectors=ROWS)
            expected = answers(workspace)
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        assert connection.execute(
            "SELECT DISTINCT typeof(text), length(vector) FROM documents NATURAL JOIN vectors"
        ).fetchall() == [("text", 4 * 64 + 7)]
    with open_at(tmp_path) as workspace:
        assert answers(workspace) == expected
        dataset = workspace.dataset("notes")
        assert dataset.add(DOCUMENTS[:30], vectors=ROWS[:30]).unchanged == 30
        assert dataset.verify().problems == ()
        more_documents = [Document(f"more{number}", TEXT * 3 + str(number)) for number in range(20)]
        assert dataset.add(more_documents, vectors=ROWS[:20]).added == 20
        assert dataset.verify().problems == ()
        assert list(collection_of(dataset).truth.documents()) == DOCUMENTS + more_documents


def test_a_bomb_in_place_of_a_text_is_damage(tmp_path: Path) -> None:
    with open_at(tmp_path) as workspace:
        workspace.dataset("notes").add(DOCUMENTS, vectors=ROWS)
    deflater = zlib.compressobj(9, wbits=-15)
    change(
        tmp_path, "UPDATE documents SET text = ? WHERE id = 'd3'", deflater.compress(bytes(10**7)) + deflater.flush()
    )
    with open_at(tmp_path) as workspace:
        dataset = workspace.dataset("notes", create=False)
        with pytest.raises(CorruptStoreError, match=r"d3.*cannot be unpacked.*pointsman restore"):
            dataset.get("d3")
        assert any("d3" in problem for problem in collection_of(dataset).truth.check())


@pytest.mark.parametrize("offset", [1, 2, 40, 150, 220, 229])
def test_any_changed_byte_of_a_packed_vector_is_found(tmp_path: Path, offset: int) -> None:
    with open_at(tmp_path) as workspace:
        workspace.dataset("notes").add(DOCUMENTS, vectors=ROWS)
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        key, stored = connection.execute("SELECT key, vector FROM vectors WHERE length(vector) = 231").fetchone()
    damaged_content = bytearray(stored)
    damaged_content[offset] ^= 4
    change(tmp_path, "UPDATE vectors SET vector = ? WHERE key = ?", bytes(damaged_content), key)
    with open_at(tmp_path) as workspace:
        dataset = workspace.dataset("notes", create=False)
        assert any(f"the vector of key {key}" in problem for problem in collection_of(dataset).truth.check())
        with pytest.raises(CorruptStoreError, match=f"the vector of key {key} .*pointsman restore"):
            dataset.search_vector(ROWS[0], 5)
