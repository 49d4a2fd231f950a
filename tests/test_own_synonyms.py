"""One's own synonyms are applied at the question, without rebuilding, and what a synonym finds is an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pointsman
from pointsman import Document, Settings, Workspace
from pointsman.retrieval.plan.transform.expand_by_rules import read_thesaurus
from pointsman.tools.errors import InputError

GROUPS = """# our own words
ПФГ, приёмник фазовый главный
laptop => notebook, ThinkPad
KVM switch, console sharer
设备箱, 灰色柜子
Quasar, billing engine
"""
TEXTS = {
    "notebook": "A notebook is handed out by the IT desk on the third floor, on weekday mornings.",
    "sharer": "The console sharer stands in rack four; press both keys to change the server.",
    "receiver": "Приёмник фазовый главный проверяют в мае: сначала снимают крышку, потом меряют напряжение.",
    "cabinet": "灰色柜子的钥匙放在前台，用完以后请登记。",
    "billing": "The billing engine restarts every Sunday at four in the morning.",
    "canteen": "The canteen serves lunch from noon; the menu hangs beside the door.",
    "bicycles": "Bicycles are parked behind the building; the gate is locked at night.",
    "laptops": "Private laptops may not be connected to the laboratory network.",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "synonyms.txt").write_text(GROUPS, encoding="utf-8")
    with pointsman.open(folder / "workspace") as workspace:
        workspace.dataset("desk").add([Document(id_, text) for id_, text in TEXTS.items()])
    return folder


@pytest.fixture(scope="module")
def workspace(folder: Path) -> Iterator[Workspace]:
    settings = Settings(synonyms=str(folder / "synonyms.txt"))
    with pointsman.open(folder / "workspace", settings=settings) as workspace:
        yield workspace


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("where do I get a laptop", "notebook"),
        ("how does the KVM switch change the server", "sharer"),
        ("how do the KVM switches work", "sharer"),  # another form of the words
        ("когда проверяют ПФГ", "receiver"),
        ("设备箱的钥匙在哪里", "cabinet"),
        ("when does Quasar restart", "billing"),
    ],
)
@pytest.mark.parametrize("strategy", ["auto", "hybrid", "bm25"])
def test_what_a_synonym_finds_is_an_answer(workspace: Workspace, question: str, expected: str, strategy: Any) -> None:
    answer = workspace.search(question, strategy=strategy)
    assert answer.refused is None
    assert expected in [hit.id for hit in answer.hits[:2]]
    if strategy != "bm25":
        assert answer.hits[0].id == expected


def test_a_hit_is_judged_by_the_question_that_means_the_same(folder: Path, workspace: Workspace) -> None:
    question = "when does Quasar restart"
    with pointsman.open(folder / "workspace") as plain:
        (without,) = [hit for hit in plain.search(question, refuse=False).hits if hit.id == "billing"]
    (hit,) = [hit for hit in workspace.search(question).hits if hit.id == "billing"]
    (direct,) = [hit for hit in workspace.search("when does the billing engine restart").hits if hit.id == "billing"]
    assert hit.relevance is not None
    assert without.relevance is not None
    assert direct.relevance is not None
    assert hit.relevance > without.relevance
    assert hit.relevance == pytest.approx(direct.relevance, abs=0.15)


@pytest.mark.parametrize("strategy", ["auto", "bm25", "hybrid"])
def test_own_words_that_look_like_slips_are_no_slips(folder: Path, strategy: Any) -> None:
    path = folder / "names.txt"
    path.write_text("clemzon, canteen\nшнурплет => приёмник\n翡麓 => 灰色柜子\n", encoding="utf-8")
    with pointsman.open(folder / "workspace", settings=Settings(synonyms=str(path))) as workspace:
        for question, id_ in (("clemzon", "canteen"), ("шнурплет", "receiver"), ("翡麓", "cabinet")):
            answer = workspace.search(question, 3, strategy=strategy, refuse=False)
            assert answer.hits[0].id == id_
            assert len(answer.degraded) == len(set(answer.degraded))


def test_one_way_is_one_way(workspace: Workspace) -> None:
    answer = workspace.search("where is the notebook handed out", refuse=False)
    assert "synonym" not in str(answer.trace)


def test_what_is_searched_is_said(workspace: Workspace) -> None:
    answer = workspace.search("when does Quasar restart")
    decision = next(decision for decision in answer.plan.decisions if decision.what == "synonyms")
    assert "synonyms.txt" in decision.reason
    assert any("when does billing engine restart" in span.detail for span in answer.trace.spans)


def test_beside_other_datasets_too(folder: Path, tmp_path: Path) -> None:
    settings = Settings(synonyms=str(folder / "synonyms.txt"))
    with pointsman.open(tmp_path, settings=settings) as workspace:
        for number, (id_, text) in enumerate(TEXTS.items()):
            workspace.dataset(f"d{number % 2}").add([Document(id_, text)])
        answer = workspace.search("when does Quasar restart")
        assert answer.hits[0].id == "billing"


def test_a_folder_has_a_file_for_each_dataset(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "people.txt").write_text("PTO => days off\nquark, ledger\n", encoding="utf-8")
    (own / "machines.txt").write_text("PTO => power take-off\nquark, ledger\n", encoding="utf-8")
    (own / "elsewhere.txt").write_text("no group\n", encoding="utf-8")
    texts = ["Whoever wants days off asks two weeks before.", "The power take-off drives the mower.", "See the ledger."]
    with pointsman.open(tmp_path / "workspace", settings=Settings(synonyms=str(own))) as workspace:
        for name in ("people", "machines"):
            workspace.dataset(name).add([Document(f"{n}", text) for n, text in enumerate((*texts, *TEXTS.values()))])
        answer = workspace.search("PTO", 20, strategy="bm25", refuse=False)
        assert {(hit.dataset, hit.id) for hit in answer.hits} == {("people", "0"), ("machines", "1")}
        assert not answer.degraded
        both = workspace.search("quark", strategy="bm25", refuse=False)
        assert {(hit.dataset, hit.id) for hit in both.hits} == {("people", "2"), ("machines", "2")}
        (own / "machines.txt").write_text("alone\n", encoding="utf-8")
        broken = workspace.search("PTO", strategy="bm25", refuse=False)
        assert {hit.dataset for hit in broken.hits} == {"people"}
        assert any("machines.txt, line 1" in note for note in broken.degraded)


def test_a_changed_file_counts_at_once(folder: Path) -> None:
    path = folder / "changing.txt"
    path.write_text("zorgon, canteen\n", encoding="utf-8")
    with pointsman.open(folder / "workspace", settings=Settings(synonyms=str(path))) as workspace:
        assert workspace.search("when does the zorgon serve lunch").hits[0].id == "canteen"
        path.write_text("# nothing of the kind any more\nfoo, bar\n", encoding="utf-8")
        notes = [decision.what for decision in workspace.search("zorgon", refuse=False).plan.decisions]
        assert "synonyms" in notes
        assert not any("canteen" in span.detail for span in workspace.search("zorgon", refuse=False).trace.spans)


def test_a_file_that_cannot_be_read_is_said_and_the_question_searched(folder: Path) -> None:
    settings = Settings(synonyms=str(folder / "none.txt"))
    with pointsman.open(folder / "workspace", settings=settings) as workspace:
        answer = workspace.search("where do I get lunch")
        assert answer.hits
        assert any("none.txt" in note for note in answer.degraded)


def test_groups_are_read_as_search_engines_write_them(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("\ufeff# comment\n\na, b b ,c\nx, y => z\n设备，机器\n", encoding="utf-8")
    assert read_thesaurus(path) == {
        "a": ["b b", "c"],
        "b b": ["a", "c"],
        "c": ["a", "b b"],
        "x": ["z"],
        "y": ["z"],
        "设备": ["机器"],
        "机器": ["设备"],
    }


@pytest.mark.parametrize("line", ["alone", "=> b", "a =>", "a => b => c", ",", "=>"])
def test_a_line_that_is_no_group_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "own.txt"
    path.write_text(f"a, b\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2"):
        read_thesaurus(path)
