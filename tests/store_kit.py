"""What the tests of the stores share: small corpora, vectors without a model, and a writer to kill."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pointsman.store.local import collection
from pointsman.store.local.collection import Collection
from pointsman.store.local.columns import followed_columns
from pointsman.store.local.keyword import term_codes
from pointsman.store.local.local_store import LocalStore
from pointsman.store.local.vectors import vector_base, vector_codes, vector_index, vector_query
from pointsman.store.prepared_documents import Batch, prepare
from pointsman.values.filters import And, Filter, Not, Or
from pointsman.values.types import AddResult, Document

if TYPE_CHECKING:
    import pytest
    from hypothesis import strategies as st
    from numpy.typing import NDArray

    from pointsman.workspace.dataset.dataset_lifecycle import StoredDataset

DIMENSIONS = 16
EMBEDDER = "test"
WORDS = [
    "rail",
    "signal",
    "track",
    "train",
    "yard",
    "switch",
    "lamp",
    "points",
    "lever",
    "engine",
    "ticket",
    "steam",
    "bridge",
    "tunnel",
    "whistle",
    "guard",
]


def write_files_early(rows: int, set_limit: Callable[[object, str, int], None] = setattr) -> None:
    """Let datasets of so many rows have new files of vectors, quantised and rounded, of columns, and codes of terms.

    Their two indexes are then written at once, too.
    """
    for module, limit in (
        (vector_index, "_REBASE_ROWS"),
        (vector_base, "_EXACT_ROWS"),
        (vector_index, "_ROUNDED_ROWS"),
        (collection, "_BESIDE_CHANGES"),
        (followed_columns, "_COLUMNS_AGAIN"),
        (term_codes, "_LEARNT_FROM"),
    ):
        set_limit(module, limit, rows)


def scan_codes_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the vectors of more than 50 documents be found by their codes, and be rounded."""
    for module, limit, rows in (
        (vector_index, "_REBASE_ROWS", 30),
        (vector_base, "_EXACT_ROWS", 50),
        (vector_index, "_ROUNDED_ROWS", 50),
        (vector_query, "_CANDIDATE_SHARE", 1),
        (vector_query, "_FEW_ROWS", 10),
        (vector_query, "_FEW_SHARE", 10**9),
    ):
        monkeypatch.setattr(module, limit, rows)
    monkeypatch.setattr(vector_codes, "_LISTED_ROWS", 1)


def unit(seed: int | str) -> NDArray[np.float32]:
    """A unit vector that depends on the seed alone."""
    number = int.from_bytes(
        hashlib.blake2b(str(seed).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )
    row = np.random.default_rng(number).standard_normal(DIMENSIONS)
    return (row / np.linalg.norm(row)).astype(np.float32)


def units(documents: Sequence[Document]) -> NDArray[np.float32]:
    """A vector for each document, by its id and text."""
    return np.stack([unit(f"{document.id} {document.text}") for document in documents])


def corpus(count: int, seed: int = 0, prefix: str = "d") -> list[Document]:
    """Documents of a few words with metadata of every kind."""
    chance = random.Random(seed)
    return [
        Document(
            f"{prefix}{number}",
            " ".join(chance.choices(WORDS, k=chance.randrange(1, 30))),
            {
                "number": number,
                "year": chance.randrange(1990, 2030),
                "tags": chance.sample(["a", "b", "c", "d"], chance.randrange(3)),
                "rare": number % 50 == 0,
            },
        )
        for number in range(count)
    ]


def add(collection: Collection, documents: Sequence[Document], vectors: NDArray[np.float32] | None = None) -> AddResult:
    """Add with the vectors of `units` unless others are given."""
    with collection.writer():
        rows = units(documents) if vectors is None else vectors
        return collection.write(Batch([prepare(document) for document in documents], rows, EMBEDDER))


def opened(path: Path) -> Collection:
    """A collection in this directory."""
    return Collection(path / "dataset")


def collection_of(dataset: StoredDataset) -> Collection:
    """What a dataset in a folder consists of."""
    store = dataset.make()
    assert isinstance(store, LocalStore)
    return store.collection


def sound(collection: Collection) -> None:
    """`verify` has nothing to say."""
    assert collection.verify().problems == ()


def nested_conditions(leaves: st.SearchStrategy[Filter], max_leaves: int = 4) -> st.SearchStrategy[Filter]:
    """Make conditions of others, joined by and, or and not."""
    from hypothesis import strategies as st  # half of what the many processes would import that need no conditions

    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda operands: And(tuple(operands))),
            st.lists(inner, max_size=3).map(lambda operands: Or(tuple(operands))),
            inner.map(Not),
        ),
        max_leaves=max_leaves,
    )


def held_files(folder: Path) -> set[str]:
    """The files of the folder that this process holds open or maps, deleted ones too."""
    names = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text("utf-8").splitlines()}
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            names.add(str(descriptor.readlink()))
    return {name for name in names if name.startswith(str(folder))}


def wait_until_let_go(folder: Path) -> None:
    """Wait until this process holds no file of a folder.

    An index of tantivy that was just opened reads its files once more in a thread, which may end after it is closed.
    """
    deadline = time.monotonic() + 10
    while names := held_files(folder):
        assert time.monotonic() < deadline, names
        time.sleep(0.01)
