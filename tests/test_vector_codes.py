"""The file of the 8-bit index: mapped when opened again, follows its base, and is never trusted when damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pointsman.filters import Range
from pointsman.store.local import vectors
from store_kit import add, corpus, opened, sound, unit, units

if TYPE_CHECKING:
    from pointsman.store.local.collection import Collection


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_REBASE_ROWS", 30)
    monkeypatch.setattr(vectors, "_EXACT_ROWS", 50)
    monkeypatch.setattr(vectors, "_MOST", 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Collection]:
    built = opened(tmp_path)
    add(built, corpus(400))
    yield built
    built.close()


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
        filtered = store.vectors.search(unit(seed), 10, Range("number", gte=0))
        assert [key for key, _ in filtered] == [key for key, _ in hits]


def test_nothing_is_quantised_again_when_opened(
    store: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    other = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(vectors, "_quantise", None)
        assert_nearest_are_exact(other)
    sound(other)
    other.close()


def test_the_file_follows_its_base(store: Collection, tmp_path: Path) -> None:
    written = {codes(tmp_path).read_bytes()}
    for round_ in range(4):
        add(store, corpus(120, seed=round_ + 1, prefix=f"r{round_}"))
        store.delete([f"r{round_}{number}" for number in range(50)])
        written.add(codes(tmp_path).read_bytes())
        assert_nearest_are_exact(store)
        other = opened(tmp_path)
        assert_nearest_are_exact(other)
        other.close()
    assert len(written) > 2


@pytest.mark.parametrize("way", ["flipped", "cut", "empty", "missing"])
def test_a_damaged_file_is_not_used_and_is_written_again(store: Collection, tmp_path: Path, way: str) -> None:
    store.close()
    content = codes(tmp_path).read_bytes()
    damaged = {
        "flipped": content[:999] + bytes([content[999] ^ 1]) + content[1000:],
        "cut": content[:-99],
        "empty": b"",
    }
    codes(tmp_path).unlink()
    if way != "missing":
        codes(tmp_path).write_bytes(damaged[way])
    other = opened(tmp_path)
    assert_nearest_are_exact(other)
    add(other, corpus(1, prefix="new"))
    assert_nearest_are_exact(other)
    sound(other)
    assert codes(tmp_path).read_bytes() == content
    other.close()


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
    other = opened(tmp_path)
    assert_nearest_are_exact(other)
    assert not np.array_equal(units(corpus(400)), units(corpus(400, seed=7)))
    other.close()


def test_a_small_base_has_no_file(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, corpus(45))
    assert store.vectors is not None
    assert_nearest_are_exact(store)
    assert not codes(tmp_path).exists()
    store.close()
