"""The words of a large dataset as a file: no text is read to correct a question, and damage is noticed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pointsman import Document, Workspace
from pointsman.embedders import HashingEmbedder
from pointsman.retrieval.plan.vocabulary import LEXICON, speller_of
from pointsman.store.local import local_store
from pointsman.store.local.keyword import words_file
from pointsman.store.local.keyword.words_file import WORDS_FILE
from pointsman.store.local.local_store import LocalStore
from pointsman.text.spelling import Speller

TEXTS = [
    "The signalman sets the points of the railway junction.",
    "Стрелочник переводит стрелку на железнодорожной станции.",
    "Ten thousand locomotives passed the junction last winter.",
]
SLIPS = ["railwya junciton", "стрелочник железнодорожнной", "locomotivs", "signalman", "thosuand wniter"]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_file, "WORDS_AGAIN", 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a dataset that stores its words."""
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace, workspace.dataset("rails").writing():
        workspace.dataset("rails").add(documents(60))
    return tmp_path


def documents(count: int, start: int = 0) -> list[Document]:
    return [Document(str(number), f"{TEXTS[number % 3]} No {number}.") for number in range(start, start + count)]


def words_path(folder: Path) -> Path:
    return folder / "datasets" / "rails" / WORDS_FILE


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect how texts are read to learn words."""
    noted: list[str] = []
    for name in ("sample", "documents"):
        original = getattr(LocalStore, name)

        def note(self: LocalStore, *options: Any, ask: Any = original, name: str = name) -> Any:
            noted.append(name)
            return ask(self, *options)

        monkeypatch.setattr(LocalStore, name, note)
    return noted


def test_a_speller_is_the_same_from_its_arrays() -> None:
    speller = Speller.from_texts(TEXTS * 20, lexicon=LEXICON)
    restored = Speller.from_arrays(speller.to_arrays(), lexicon=LEXICON)
    assert restored.frequencies == speller.frequencies
    assert [restored.correct(text) for text in SLIPS] == [speller.correct(text) for text in SLIPS]
    assert restored.correct("ntnthysq gjtpl") == speller.correct("ntnthysq gjtpl")
    restored.add(["entirely fresh words"])
    assert "fresh" in restored
    empty = Speller.from_arrays(Speller({}).to_arrays())
    assert not len(empty)
    assert empty.correct("anything").text == "anything"


def test_arrays_of_different_words_are_refused() -> None:
    arrays = Speller.from_texts(TEXTS * 20).to_arrays()
    with pytest.raises(ValueError, match="of other words"):
        Speller.from_arrays([*Speller({"railway": 9}).to_arrays()[:3], *arrays[3:]])


def test_a_question_is_corrected_without_reading_a_text(folder: Path, readings: list[str]) -> None:
    with Workspace(folder, embedder=HashingEmbedder()) as workspace:
        context = workspace.search("railwya junciton", 4)
        assert not readings
        assert context.spelling is not None
        assert context.spelling.text == "railway junction"
        dataset = workspace.dataset("rails")
        stored, read = (
            speller_of(dataset),
            Speller.from_texts([d.text for d in dataset.store.documents()], lexicon=LEXICON),
        )
        assert stored.frequencies == read.frequencies
        assert [stored.correct(text) for text in SLIPS] == [read.correct(text) for text in SLIPS]


def test_a_small_dataset_and_single_writes_store_no_words(tmp_path: Path, folder: Path) -> None:
    with Workspace(tmp_path / "small", embedder=HashingEmbedder()) as workspace:
        with workspace.dataset("rails").writing():
            workspace.dataset("rails").add(documents(10))
        workspace.dataset("rails").add(documents(60))
    assert not words_path(tmp_path / "small").exists()
    written = words_path(folder).stat().st_mtime_ns
    with Workspace(folder, embedder=HashingEmbedder()) as workspace, workspace.dataset("rails").writing():
        workspace.dataset("rails").add(documents(1, 60))
    assert words_path(folder).stat().st_mtime_ns == written


def test_one_long_write_stores_words_and_those_within_a_block_wait_for_its_end(
    tmp_path: Path, readings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_store, "_LONG_WRITE", 60)
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("rails")
        dataset.add(documents(59))
        assert not words_path(tmp_path).exists()
        with dataset.writing():
            dataset.add(documents(60, 100))
            assert not words_path(tmp_path).exists()
        written = words_path(tmp_path).stat().st_mtime_ns
        dataset.add(documents(120, 200))
    assert words_path(tmp_path).stat().st_mtime_ns > written
    readings.clear()
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        assert workspace.search("railwya junciton", 4).spelling is not None
    assert not readings


def test_words_that_were_read_for_a_question_are_stored(tmp_path: Path, readings: list[str]) -> None:
    for reads in (True, False):
        with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
            workspace.dataset("rails").add(documents(60))
            workspace.search("railwya junciton", 4)
        assert bool(readings) is reads
        assert words_path(tmp_path).exists()
        readings.clear()


def test_after_many_changes_words_are_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Workspace(folder, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("rails")
        identity = dataset.store.info.identity
        file = words_file.words_file(words_path(folder).parent, identity)
        before = file.numbers()["seq"]
        with dataset.writing():
            dataset.add([Document(str(number), f"a turntable turns, no {number}") for number in range(100, 130)])
        assert file.numbers()["seq"] > before
        assert "turntable" in speller_of(dataset)


@pytest.mark.parametrize("damage", ["cut", "bit", "foreign", "ahead"])
def test_a_file_that_cannot_be_used_is_not(
    folder: Path, damage: str, readings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = words_path(folder)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-20])
    elif damage == "bit":
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    else:
        speller = Speller.from_texts(["entirely different"] * 9)
        with Workspace(folder, embedder=HashingEmbedder()) as workspace:
            identity = workspace.dataset("rails").store.info.identity
        identity, sequence = (identity, 10**6) if damage == "ahead" else ("another", 1)
        words_file.words_file(path.parent, identity).write(sequence, speller.to_arrays())
    with caplog.at_level(logging.WARNING), Workspace(folder, embedder=HashingEmbedder()) as workspace:
        context = workspace.search("railwya junciton", 4)
    assert readings
    assert context.spelling is not None
    assert context.spelling.text == "railway junction"
    assert (WORDS_FILE in caplog.text) is (damage != "ahead")


def test_rebuilding_drops_the_words(folder: Path) -> None:
    with Workspace(folder, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rails").rebuild()
    assert not words_path(folder).exists()


def test_a_dataset_may_be_dropped_while_it_is_held_for_writing(folder: Path) -> None:
    with Workspace(folder, embedder=HashingEmbedder()) as workspace:
        with workspace.dataset("rails").writing():
            workspace.drop("rails")
        assert "rails" not in [dataset.name for dataset in workspace.datasets()]
