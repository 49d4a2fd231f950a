"""Calibrations that nobody asks for: made from the documents where the embedder has no built-in one."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import pointsman
from pointsman.embedders import HashingEmbedder
from pointsman.retrieval.judge.kept_calibrations import FORMER, former_calibrations
from pointsman.retrieval.receipts import Receipt
from pointsman.tools.errors import InputError
from pointsman.values.settings import Settings
from pointsman.workspace.copies.backup import backup, restore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.retrieval.judge.kept_calibrations import Calibration

SUBJECTS = ("harbour", "orchard", "library", "glacier", "tramway", "bakery", "observatory", "quarry")
VERBS = ("stores", "paints", "repairs", "counts", "measures", "collects", "describes")
OBJECTS = ("lanterns", "barrels", "maps", "bells", "ropes", "seeds", "lenses", "wheels", "tiles")


class Embedder(HashingEmbedder):
    """One that nothing is fitted to; it waits for ``gate`` before it embeds questions in a batch."""

    def __init__(self, name: str = "own-model") -> None:
        super().__init__(256)
        self.own_name, self.gate, self.batches = name, threading.Event(), 0
        self.gate.set()

    @property
    def name(self) -> str:
        return self.own_name

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if len(texts) > 40:
            self.batches += 1
            assert self.gate.wait(60)
        return super().embed_queries(texts)


def documents(count: int) -> list[dict[str, str]]:
    rows = []
    for number in range(count):
        subject, verb = SUBJECTS[number % 8], VERBS[number % 7]
        item, second_item = OBJECTS[number % 9], OBJECTS[(number // 9 + 4) % 9]
        text = (
            f"The {subject} of parish {number} {verb} {item} for everyone. "
            f"In parish {number} the {subject} also keeps {second_item} beside its {item}. "
            f"Whoever visits the {subject} in parish {number} sees {item} and {second_item}."
        )
        rows.append({"id": str(number), "text": text})
    return rows


def relevance_decision(answer: pointsman.RetrievalContext) -> tuple[str, str]:
    return next((decision.value, decision.reason) for decision in answer.plan.decisions if decision.what == "relevance")


def test_an_unknown_embedder_is_calibrated_from_the_documents_when_they_are_embedded(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
        workspace.dataset("notes").add(documents(80))
        workspace.wait_for_calibrations()
        answer = workspace.search("which parish keeps lanterns beside its bells", refuse=False)
        assert all(hit.relevance is not None for hit in answer.hits)
        value, reason = relevance_decision(answer)
        assert value == "calibrated"
        assert "made from the documents" in reason
        assert "made from the documents" in workspace.status("notes")["relevance"]
        assert workspace.stored_calibrations()["notes"].documents == 80


def test_while_a_calibration_is_being_made_status_and_plan_say_so(tmp_path: Path) -> None:
    embedder = Embedder()
    embedder.gate.clear()
    with pointsman.open(tmp_path, embedder=embedder) as workspace:
        workspace.dataset("notes").add(documents(80))
        answer = workspace.search("which parish keeps lanterns", refuse=False)
        assert answer.hits[0].relevance is None
        assert relevance_decision(answer) == ("none", "notes: a calibration is being made from the documents")
        assert workspace.status("notes")["relevance"] == "none: a calibration is being made from the documents"
        embedder.gate.set()
        workspace.wait_for_calibrations()
        assert workspace.search("which parish keeps lanterns", refuse=False).hits[0].relevance is not None


def test_the_next_process_makes_the_calibration_that_closing_broke_off(tmp_path: Path) -> None:
    embedder = Embedder()
    embedder.gate.clear()
    with pointsman.open(tmp_path, embedder=embedder) as workspace:
        workspace.dataset("notes").add(documents(80))
        closing = threading.Thread(target=workspace.close)
        closing.start()
        embedder.gate.set()
        closing.join()
    with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
        assert workspace.stored_calibrations() == {}
        workspace.search("which parish keeps lanterns")
        workspace.wait_for_calibrations()
        assert workspace.stored_calibrations()["notes"].relevance


def test_few_documents_have_no_relevance_and_the_plan_says_how_many_are_needed(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
        workspace.dataset("notes").add(documents(7))
        answer = workspace.search("lanterns")
        assert answer.hits[0].relevance is None
        reason = "a calibration is made from 20 documents on; there are 7"
        assert relevance_decision(answer) == ("none", f"notes: {reason}")
        assert workspace.status("notes")["relevance"] == f"none: {reason}"


def test_documents_that_no_question_can_be_made_from_are_said_to_have_none(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
        workspace.dataset("notes").add([{"id": str(number), "text": f"word {number}"} for number in range(40)])
        workspace.wait_for_calibrations()
        value, reason = relevance_decision(workspace.search("word"))
        assert value == "none"
        assert reason == (
            "notes: none could be made: 0 questions made from the documents can be used in 'notes'; at least 20 are "
            "needed to calibrate"
        )


def test_a_calibration_is_made_again_when_the_documents_have_doubled(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
        notes = workspace.dataset("notes")
        counts = []
        for count in (40, 60, 80):
            notes.add(documents(count))
            workspace.wait_for_calibrations()
            counts.append(workspace.stored_calibrations()["notes"].documents)
        assert counts == [40, 40, 80]


def test_a_calibration_by_labels_is_never_replaced(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
        notes = workspace.dataset("notes")
        notes.add(documents(40))
        queries = {str(number): f"what does parish {number} see" for number in range(30)}
        workspace.calibrate("notes", queries, {query: {query: 1} for query in queries})
        workspace.keep_calibration("notes", _of_labels(workspace))
        calibration = workspace.stored_calibrations()["notes"]
        notes.add(documents(120))
        workspace.wait_for_calibrations()
        assert workspace.stored_calibrations()["notes"] == calibration


def _of_labels(workspace: pointsman.Workspace) -> Calibration:
    return replace(workspace.stored_calibrations()["notes"], origin="fitted to 30 labelled questions", documents=0)


@pytest.mark.parametrize("embedder", [HashingEmbedder(), None], ids=["for tests", "default"])
def test_nothing_is_made_for_a_fake_or_for_what_has_a_built_in_calibration(
    tmp_path: Path, embedder: HashingEmbedder | None
) -> None:
    with pointsman.open(tmp_path, embedder=embedder) as workspace:
        workspace.dataset("notes").add(documents(30))
        workspace.wait_for_calibrations()
        assert workspace.stored_calibrations() == {}
        relevance = workspace.status("notes")["relevance"]
        assert relevance == "built-in calibration" if embedder is None else "made for tests" in relevance


def test_the_setting_turns_it_off(tmp_path: Path) -> None:
    settings = Settings(calibrate_automatically=False)
    with pointsman.open(tmp_path, embedder=Embedder(), settings=settings) as workspace:
        workspace.dataset("notes").add(documents(40))
        workspace.wait_for_calibrations()
        assert workspace.stored_calibrations() == {}
        assert workspace.status("notes")["relevance"] == (
            "none: nothing is calibrated for 'own-model'; run pointsman calibrate"
        )


def test_a_dropped_dataset_leaves_no_calibration_behind(tmp_path: Path) -> None:
    embedder = Embedder()
    embedder.gate.clear()
    with pointsman.open(tmp_path, embedder=embedder) as workspace:
        workspace.dataset("notes").add(documents(40))
        dropping = threading.Thread(target=workspace.drop, args=["notes"])
        dropping.start()
        embedder.gate.set()
        dropping.join()
        workspace.wait_for_calibrations()
        assert workspace.stored_calibrations() == {}


def test_status_does_not_calibrate_and_a_dataset_opened_with_another_embedder_says_so(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=Embedder(), settings=Settings(calibrate_automatically=False)) as workspace:
        workspace.dataset("notes").add(documents(40))
    with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
        reason = "none: the next search starts to make a calibration from the documents"
        assert workspace.status("notes")["relevance"] == reason
        assert workspace.being_calibrated == []
    with pointsman.open(tmp_path, embedder=Embedder("another-model")) as workspace:
        reason = "none: a calibration is made when the dataset is opened with its embedder, 'own-model'"
        assert workspace.status("notes")["relevance"] == reason


class TestReceipts:
    """An answer is given again whatever calibration has come since."""

    def test_calibrations_are_kept_as_long_as_versions(self, tmp_path: Path) -> None:
        answers = []
        with pointsman.open(tmp_path / "work", embedder=Embedder()) as workspace:
            notes = workspace.dataset("notes", versions="30 days")
            for first, last in ((0, 18), (18, 19), (19, 60), (60, 160)):
                notes.add(documents(last)[first:])
                workspace.wait_for_calibrations()
                answers.append(workspace.search("which parish keeps lanterns beside its bells", refuse=False))
            assert len({relevance_decision(answer) for answer in answers}) == 4, "each says something else of it"
            backup(workspace.path, tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "restored")
        for folder in ("work", "restored"):
            with pointsman.open(tmp_path / folder, embedder=Embedder()) as workspace:
                for answer in answers:
                    replay = workspace.replay(str(answer.receipt))
                    assert replay.to_dict()["hits"] == answer.to_dict()["hits"]
                    assert relevance_decision(replay) == relevance_decision(answer)

    def test_a_receipt_of_a_view_tells_of_no_calibration(self, tmp_path: Path) -> None:
        with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
            notes = workspace.dataset("notes", versions="30 days")
            notes.add(documents(12), access=["everyone"])
            workspace.switch_access(on=True)
            answer = workspace.search("which parish keeps lanterns", principals=[], refuse=False)
            receipt = Receipt.read(str(answer.receipt))
            assert (receipt.fitted, receipt.lacking) == ("", {"notes": ""})
            notes.add(documents(80), access=["everyone"])
            workspace.wait_for_calibrations()
            assert workspace.stored_calibrations()
            assert workspace.replay(str(answer.receipt)).to_dict()["hits"] == answer.to_dict()["hits"]

    def test_without_versions_nothing_is_kept(self, tmp_path: Path) -> None:
        with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
            notes = workspace.dataset("notes", versions="30 days")
            for count in (40, 90):
                notes.add(documents(count))
                workspace.wait_for_calibrations()
            assert len(former_calibrations(workspace.backend, "notes")) == 1
            workspace.dataset("notes", versions="off")
            workspace.keep_calibration("notes", None)
            assert former_calibrations(workspace.backend, "notes") == []

    def test_a_damaged_record_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        with pointsman.open(tmp_path, embedder=Embedder()) as workspace:
            workspace.backend.put_record(FORMER, "notes", '[{"until": -1, "calibration": {}}]')
            with pytest.raises(InputError, match=r"former calibrations of 'notes'.*delete them"):
                former_calibrations(workspace.backend, "notes")
