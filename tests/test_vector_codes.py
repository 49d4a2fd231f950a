"""The file of the 4-bit codes: read when opened again, follows its base, and is never trusted when damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pointsman.store.local.vectors import vector_base
from pointsman.values.filters import Range
from store_kit import add, corpus, opened, scan_codes_early, sound, unit, units

if TYPE_CHECKING:
    from pointsman.store.local.collection import Collection


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    scan_codes_early(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Collection]:
    collection = opened(tmp_path)
    add(collection, corpus(400))
    yield collection
    collection.close()


def codes(path: Path) -> Path:
    return path / "dataset" / "vectors.codes"


def assert_nearest_are_exact(store: Collection) -> None:
    assert store.vectors is not None
    documents = list(store.truth.documents())
    key_of, rows = store.truth.keys([document.id for document in documents]), units(documents)
    keys = [key_of[document.id] for document in documents]
    for seed in range(5):
        cosines = dict(zip(keys, (rows @ unit(seed)).tolist(), strict=True))
        best = sorted(cosines.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
        hits = store.vectors.search(unit(seed), 10)
        assert [key for key, _ in hits] == [key for key, _ in best]
        assert [cosine for _, cosine in hits] == pytest.approx([cosine for _, cosine in best], abs=1e-6)
        filtered_hits = store.vectors.search(unit(seed), 10, Range("number", gte=0))
        assert [key for key, _ in filtered_hits] == [key for key, _ in hits]


def test_nothing_is_quantised_again_when_opened(
    store: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    second = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(vector_base, "quantise", None)
        assert_nearest_are_exact(second)
    sound(second)
    second.close()


def test_the_file_follows_its_base(store: Collection, tmp_path: Path) -> None:
    contents = {codes(tmp_path).read_bytes()}
    for round_ in range(4):
        add(store, corpus(120, seed=round_ + 1, prefix=f"r{round_}"))
        store.delete([f"r{round_}{number}" for number in range(50)])
        contents.add(codes(tmp_path).read_bytes())
        assert_nearest_are_exact(store)
        second = opened(tmp_path)
        assert_nearest_are_exact(second)
        second.close()
    assert len(contents) > 2


@pytest.mark.parametrize("damage_kind", ["flipped", "cut", "empty", "missing"])
def test_a_damaged_file_is_not_used_and_is_written_again(store: Collection, tmp_path: Path, damage_kind: str) -> None:
    store.close()
    content = codes(tmp_path).read_bytes()
    contents = {
        "flipped": content[:999] + bytes([content[999] ^ 1]) + content[1000:],
        "cut": content[:-99],
        "empty": b"",
    }
    codes(tmp_path).unlink()
    if damage_kind != "missing":
        codes(tmp_path).write_bytes(contents[damage_kind])
    second = opened(tmp_path)
    assert_nearest_are_exact(second)
    add(second, corpus(1, prefix="new"))
    assert_nearest_are_exact(second)
    sound(second)
    assert codes(tmp_path).read_bytes() == content
    second.close()


def test_verifying_writes_a_damaged_file_again(store: Collection, tmp_path: Path) -> None:
    content = codes(tmp_path).read_bytes()
    codes(tmp_path).write_bytes(content[:999] + bytes([content[999] ^ 1]) + content[1000:])
    assert store.vectors is not None
    assert "vectors.codes is damaged" in store.vectors.disagreements()
    sound(store)
    assert codes(tmp_path).read_bytes() == content


def test_codes_of_other_vectors_are_not_used(store: Collection, tmp_path: Path) -> None:
    store.close()
    twin = opened(tmp_path / "twin")
    add(twin, corpus(400, seed=7))
    twin.close()
    shutil.copy(codes(tmp_path / "twin"), codes(tmp_path))
    second = opened(tmp_path)
    assert_nearest_are_exact(second)
    assert not np.array_equal(units(corpus(400)), units(corpus(400, seed=7)))
    second.close()


def test_a_small_base_has_no_file(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, corpus(45))
    assert store.vectors is not None
    assert_nearest_are_exact(store)
    assert not codes(tmp_path).exists()
    store.close()


def test_a_long_write_leaves_no_tail_and_short_ones_wait_for_a_new_base(store: Collection) -> None:
    def rows() -> tuple[int, int]:
        assert store.vectors is not None
        state = store.vectors._state
        assert state is not None
        return len(state.base.keys), len(state.tail_keys)

    documents = corpus(480)
    with store.writing():
        for start in range(400, 460, 5):
            add(store, documents[start : start + 5])
        assert rows() == (400, 60)
    assert rows() == (460, 0)
    for start in range(460, 480):
        add(store, documents[start : start + 1])
    assert rows() == (460, 20)
    assert_nearest_are_exact(store)
    sound(store)
