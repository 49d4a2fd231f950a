"""Files and records of ours that hold JSON of the wrong kind: too deep, too large numbers, wrong types."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pointsman import Dataset, Document, SimpleHybridRetriever, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.judge.kept_calibrations import read_calibrations
from pointsman.retrieval.judge.relevance import Background, Relevance
from pointsman.retrieval.plan.policy import Policy
from pointsman.service.server.access.api_keys import KeyStore
from pointsman.store.backend import settings_of
from pointsman.store.external.attachment import Attachment
from pointsman.tools.errors import PointsmanError
from pointsman.workspace.dataset import DatasetRetriever
from pointsman.workspace.past_runs import EVALUATIONS, latest

VALUES = (
    "[" * 100_000 + "]" * 100_000,
    '{"x":' * 100_000 + "1" + "}" * 100_000,
    *("1e999", "-1e999", "NaN", "1" + "0" * 5000, "1" + "0" * 4000, "null", "true", '"text"', "[]", "{}", "[[]]"),
    *('["a", 1, null]', '{"": null}', '{"x": {"y": []}}', "", "\x00", "\ufeff{}", '"\\ud800"'),
)
MEMBERS: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    float("inf"),
    float("nan"),
    "text",
    "\ud800",
    [],
    [[]],
    [None] * 3,
    {},
    {"x": []},
)


def variants(sound: str | None) -> list[str]:
    """Return damaged JSON: whole values, and a sound object with each member replaced, left out or too deep."""
    texts = list(VALUES)
    values = json.loads(sound) if sound else None
    if isinstance(values, dict):
        for name in values:
            texts += [json.dumps({**values, name: member}) for member in MEMBERS]
            texts.append(json.dumps({other_name: value for other_name, value in values.items() if other_name != name}))
            texts.append(json.dumps({**values, name: "DEEP"}).replace('"DEEP"', VALUES[0]))
            texts.append(json.dumps({**values, name: "LARGE"}).replace('"LARGE"', "1" + "0" * 5000))
    return texts


def read_or_refuse(read: Callable[[str], Any], sound: str | None) -> None:
    """Read each variant; whatever is refused, is refused as an error of ours."""
    foreign = []
    for text in variants(sound):
        try:
            read(text)
        except PointsmanError:
            pass
        except Exception as error:  # noqa: BLE001  (collected, and reported below)
            foreign.append(f"{type(error).__name__} for {text[:80]!r}")
    assert not foreign, f"{len(foreign)}: {foreign[:5]}"


TEXTS: dict[str, tuple[Callable[[str], Any], str | None]] = {
    "policy": (Policy.from_json, Policy().to_json()),
    "calibrations": (lambda text: read_calibrations(text, "here"), '{"notes": {"origin": ""}}'),
    "relevance": (Relevance.from_json, None),
    "background": (Background.from_json, '{"direction": [1.0], "mean": 0.1}'),
    "attachment": (
        lambda text: Attachment.from_json(text, "notes"),
        Attachment("faiss:x", "y", "id", "text").to_json(),
    ),
    "catalogue": (lambda text: settings_of("notes", text), '{"bm25_k1": 1.2, "bm25_b": 0.75}'),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_records_are_read_or_refused(kind: str) -> None:
    read, sound = TEXTS[kind]
    read_or_refuse(read, sound)


def test_keys_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keys = KeyStore(path)
    new = keys.create("ci")

    def read(text: str) -> None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        KeyStore(path).check(new.text)

    read_or_refuse(read, path.read_text("utf-8"))


def test_evaluations_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add(Document("a", "rail"))

        def read(text: str) -> None:
            (tmp_path / EVALUATIONS).mkdir(exist_ok=True)
            (tmp_path / EVALUATIONS / "x.json").write_bytes(text.encode("utf-8", "surrogatepass"))
            latest(workspace.backend)

        read_or_refuse(read, '{"strategies": {}, "time": "2026"}')


def test_saved_retrievers_are_read_or_refused(tmp_path: Path) -> None:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes")
        notes.add(Document("a", "rail"))
        SimpleHybridRetriever([notes.retriever()]).persist(tmp_path / "saved")
    (path,) = (tmp_path / "saved").glob("*.json")
    sound = path.read_text("utf-8")

    def read(text: str) -> None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        SimpleHybridRetriever.load(
            tmp_path / "saved", lambda folder: DatasetRetriever.load(folder, embedder=HashingEmbedder())
        )

    read_or_refuse(read, sound)


def test_keyword_files_are_read_or_refused(tmp_path: Path) -> None:
    with Dataset("notes", path=tmp_path, embedder=HashingEmbedder()) as notes:
        notes.add([Document(str(number), f"rail {number}") for number in range(5)])
    for path in tmp_path.rglob("*.json"):
        content = path.read_bytes()

        def read(text: str, path: Path = path) -> None:
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            with Dataset("notes", path=tmp_path, embedder=HashingEmbedder()) as notes:
                assert len(notes.search("rail", refuse=False)) == 5
                notes.verify()

        read_or_refuse(read, content.decode())
        path.write_bytes(content)


@pytest.mark.parametrize("name", ["spread", "scripts", "background3"])
def test_notes_of_a_store_that_are_damaged_are_refused_as_errors_of_ours(tmp_path: Path, name: str) -> None:
    with Dataset("notes", path=tmp_path, embedder=HashingEmbedder()) as notes:
        notes.add([Document(str(number), f"rail {number}") for number in range(5)])

        def read(text: str) -> None:
            notes.store.annotate(**{name: text})
            notes.search("rail 信号", refuse=False)

        read_or_refuse(read, notes.store.statistics().notes.get(name))
