"""A workspace with one bit of one file flipped, and what comes of it, for the tests and for benchmarks/damage.py."""

from __future__ import annotations

import gc
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from pointsman import Document, Workspace
from pointsman.embedders.cached_embedder import CachedEmbedder
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server.access.api_keys import KeyStore
from pointsman.store.local.columns import followed_columns
from pointsman.store.local.vectors import vector_base, vector_index
from pointsman.tools.errors import RetrievalError, StoreError
from pointsman.values.filters import Equals

DOCUMENTS: Final = 300
_WORDS: Final = [
    "signal",
    "lamp",
    "train",
    "brake",
    "lever",
    "points",
    "track",
    "bridge",
    "driver",
    "guard",
    "whistle",
    "engine",
    "steam",
    "wheel",
    "carriage",
    "platform",
    "ticket",
    "station",
    "tunnel",
    "river",
    "timetable",
    "junction",
    "crossing",
    "gate",
    "sleeper",
    "rail",
    "ballast",
    "coal",
    "water",
    "tender",
    "boiler",
    "valve",
    "piston",
]
_QUERIES: Final = ("signal lamp at the bridge", "boiler valve", "tunnel gate crossing", "coal and water for the tender")
_WAYS_BACK: Final = (
    "open it with the version that wrote it",
    "restore",
    "rebuild",
    "delete",
    "index the documents again",
    "all requests are refused",
)


@dataclass(frozen=True)
class Flip:
    """One bit of one file, by its path in the folder."""

    file: str
    place: int
    bit: int

    def apply(self, folder: Path) -> None:
        """Flip it."""
        path = folder / self.file
        content = bytearray(path.read_bytes())
        content[self.place] ^= 1 << self.bit
        path.write_bytes(content)


@dataclass(frozen=True)
class Outcome:
    """What came of a flip: ``sound`` (nothing changed, or it healed), ``named``, ``silent`` or ``foreign``."""

    kind: str
    message: str = ""


class Patient:
    """A workspace with everything that one has on disk, and what it answers while it is sound.

    Args:
        folder: a new one; ``folder/sound`` is never changed, each flip has a copy of it below ``folder/flipped``.
        killed: it was left as a kill leaves it, with the last transactions in SQLite's log; else it was closed.
    """

    def __init__(self, folder: Path, *, killed: bool) -> None:
        self._sound, self._flipped, self._copies = folder / "sound", folder / "flipped", 0
        self.key = _make(folder / "made", self._sound, killed=killed)
        with _undisturbed(self._sound, folder / "probe") as probe:
            self._answers = _answers(probe, self.key)
        self.files = sorted(
            str(path.relative_to(self._sound))
            for path in self._sound.rglob("*")
            if path.is_file() and path.stat().st_size
        )

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self._answers["documents"])

    def flips(self, count: int, seed: int) -> Iterator[Flip]:
        """Random flips; each file gets a share, however small it is, and the rest goes by size."""
        rng = random.Random(seed)
        sizes = {file: (self._sound / file).stat().st_size for file in self.files}
        for number in range(count):
            even = number % 2 == 0
            file = rng.choice(self.files) if even else rng.choices(self.files, list(sizes.values()))[0]
            yield Flip(file, rng.randrange(sizes[file]), rng.randrange(8))

    def examine(self, flip: Flip) -> Outcome:
        """Flip the bit in a copy, and compare what the copy answers."""
        copy = self._damaged(flip)
        outcomes = []
        for name, ask in _QUESTIONS.items():
            outcomes.append(self._ask(copy, name, ask))
        return max(outcomes, key=lambda outcome: _BADNESS.index(outcome.kind))

    def _damaged(self, flip: Flip) -> Path:
        shutil.rmtree(self._flipped, ignore_errors=True)  # merging threads of the last copy may still make a file
        self._copies += 1
        copy = self._flipped / str(self._copies)
        shutil.copytree(self._sound, copy)
        flip.apply(copy)
        return copy

    def _ask(self, copy: Path, name: str, ask: Callable[[Path, Any], Any]) -> Outcome:
        try:
            answer = ask(copy, self.key)
        except (StoreError, RetrievalError) as error:
            message = str(error)
            named = any(Path(file).name in message for file in self.files)
            if named and any(way in message for way in _WAYS_BACK):
                return Outcome("named", message)
            return Outcome("foreign", f"{name}: no file or no way back in {message!r}")
        except Exception as error:  # noqa: BLE001  (this is what is looked for)
            return Outcome("foreign", f"{name}: {type(error).__name__}: {error}")
        expected = self._answers[name]
        return Outcome("sound") if answer == expected else Outcome("silent", f"{name}: {_difference(expected, answer)}")


_BADNESS: Final = ("sound", "named", "silent", "foreign")


def _make(folder: Path, copy: Path, *, killed: bool) -> str:
    """A workspace, an embedding cache and a key; returns the key's text."""
    rng = random.Random(5)
    ignored = shutil.ignore_patterns("*-shm", "*.lock")
    with (
        patch.object(vector_index, "_REBASE_ROWS", 100),
        patch.object(followed_columns, "_COLUMNS_AGAIN", 100),
        patch.object(vector_base, "_EXACT_ROWS", 100),
        patch.object(vector_index, "_ROUNDED_ROWS", 100),
        _opened(folder) as workspace,
    ):
        dataset = workspace.dataset("notes", description="Notes on trains")
        with dataset.writing():  # at its end the merging of index files, which goes on behind, is waited for
            for start in range(0, DOCUMENTS, 50):
                dataset.add([_document(number, rng) for number in range(start, start + 50)])
            dataset.add([_document(number, rng) for number in range(0, 30, 3)])
            dataset.delete([f"d{number}" for number in range(1, 60, 6)])
        dataset.search(_QUERIES[0])
        keys = KeyStore(folder / "w" / "keys.json")
        keys.create("reader", datasets=["other"], scopes=["read"])
        text = keys.create("writer", datasets=["notes"]).text
        if killed:
            shutil.copytree(folder, copy, ignore=ignored)
    gc.collect()  # the cache is closed when nobody has it any more
    if not killed:
        shutil.copytree(folder, copy, ignore=ignored)
    return text


def _document(number: int, rng: random.Random) -> Document:
    text = f"note {number}: " + " ".join(rng.choices(_WORDS, k=rng.randint(5, 90)))
    return Document(
        f"d{number}", text, {"source": f"s{number % 20}.md", "page": number, "tags": rng.choices(_WORDS, k=2)}
    )


@contextmanager
def _opened(folder: Path) -> Iterator[Workspace]:
    embedder = CachedEmbedder(HashingEmbedder(32), folder / "cache")
    with Workspace(folder / "w", embedder=embedder) as workspace:
        yield workspace


@contextmanager
def _undisturbed(sound: Path, probe: Path) -> Iterator[Path]:
    shutil.copytree(sound, probe)
    try:
        yield probe
    finally:
        shutil.rmtree(probe)


def _plain(document: Document | None) -> Any:
    return None if document is None else {"id": document.id, "text": document.text, "metadata": dict(document.metadata)}


def _searches(folder: Path, key: str) -> Any:
    del key
    with _opened(folder) as workspace:
        dataset = workspace.dataset("notes", create=False)
        answers = []
        for query in _QUERIES:
            context = dataset.search(query, 10, refuse=False)
            assert not context.degraded, StoreError(str(context.degraded))
            answers.append([(_plain(hit.document), round(hit.score, 5)) for hit in context.hits])
        filtered = dataset.search(_QUERIES[0], 10, refuse=False, filters=Equals("source", "s3.md"))
        answers.append([(_plain(hit.document), round(hit.score, 5)) for hit in filtered.hits])
        return answers


def _reading(folder: Path, key: str) -> Any:
    del key
    with _opened(folder) as workspace:
        dataset = workspace.dataset("notes", create=False)
        ids = [f"d{number}" for number in range(0, DOCUMENTS, 7)]
        return {
            "get": [_plain(document) for document in map(dataset.get, ids)],
            "source": dataset.ids(source="s4.md"),
            "count": len(dataset),
            "about": (dataset.description, workspace.names()),
        }


def _documents(folder: Path, key: str) -> Any:
    del key
    with _opened(folder) as workspace:
        return [_plain(document) for document in workspace.dataset("notes", create=False).store.documents()]


def _embedding(folder: Path, key: str) -> Any:
    del key
    embedder = CachedEmbedder(HashingEmbedder(32), folder / "cache")
    return np.round(embedder.embed_queries(list(_QUERIES)), 6).tolist()


def _access(folder: Path, key: str) -> Any:
    record = KeyStore(folder / "w" / "keys.json").check(key)
    return record and (record.name, record.datasets, record.scopes)


def _writing(folder: Path, key: str) -> Any:
    """Add, update and delete, and see what is there then; the last question, since it changes the copy."""
    del key
    rng = random.Random(9)
    with _opened(folder) as workspace:
        dataset = workspace.dataset("notes", create=False)
        result = dataset.add([_document(number, rng) for number in range(DOCUMENTS - 10, DOCUMENTS + 10)])
        deleted = dataset.delete([f"d{number}" for number in range(100, 110)])
        context = dataset.search(_QUERIES[1], 10, refuse=False)
        assert not context.degraded, StoreError(str(context.degraded))
        return {
            "result": (result.added, result.updated, result.unchanged, deleted),
            "ids": dataset.ids(),
            "hits": [(_plain(hit.document), round(hit.score, 5)) for hit in context.hits],
        }


_QUESTIONS: Final[dict[str, Callable[[Path, Any], Any]]] = {
    "searches": _searches,
    "reading": _reading,
    "documents": _documents,
    "embedding": _embedding,
    "access": _access,
    "writing": _writing,
}


def _answers(folder: Path, key: str) -> dict[str, Any]:
    return {name: ask(folder, key) for name, ask in _QUESTIONS.items()}


def _difference(expected: Any, answer: Any) -> str:
    """The first thing that is another one."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        for name in expected:
            if expected[name] != answer.get(name):
                return f"{name}: {_difference(expected[name], answer.get(name))}"
    if isinstance(expected, list) and isinstance(answer, list) and len(expected) == len(answer):
        for one, other in zip(expected, answer, strict=True):
            if one != other:
                return _difference(one, other)
    return f"{expected!r:.150} became {answer!r:.150}"
