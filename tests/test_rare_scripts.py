"""Words in a script that few documents use: searched where they occur, left out where they are strays, and said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pointsman
from pointsman import Document

TOPICS = ("pumps", "valves", "switches", "signals", "boilers", "bridges", "tunnels", "engines", "wagons", "cranes")
ENGLISH = [
    Document(f"en{number}", f"Manual {number}: how the {topic} of plant {number} are inspected, oiled and repaired.")
    for number, topic in enumerate(TOPICS * 5)
]
LETTER = Document("letter", "Дед починил лодку и назвал её «Цапля». Поезд идёт в шесть сорок.")
SUPPLIER = Document("supplier", "纸箱由苏州华盛纸业供应，联系人王芳。什么时候交货可以商量。")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pointsman.Workspace]:
    path: Path = tmp_path_factory.mktemp("rare")
    with pointsman.open(path) as workspace:
        workspace.dataset("plant").add([*ENGLISH, LETTER, SUPPLIER])
        yield workspace


@pytest.mark.parametrize(
    ("question", "document"), [("Цапля", "letter"), ("王芳", "supplier"), ("who is 王芳?", "supplier")]
)
def test_name_in_a_rare_script_is_found_first(workspace: pointsman.Workspace, question: str, document: str) -> None:
    answer = workspace.search(question, k=3, refuse=False)
    assert answer.hits[0].id == document
    words = {step.source: step.score for step in answer.hits[0].provenance}
    assert words["bm25"]
    assert "rare_script" not in [statement.code for statement in answer.reasons]


def test_stray_words_are_left_out_and_the_plan_says_so(workspace: pointsman.Workspace) -> None:
    answer = workspace.search("工厂的水泵应该什么时候检查和修理？", k=3, refuse=False)
    assert not [step for hit in answer for step in hit.provenance if step.source == "bm25" and step.rank is not None]
    assert ("rare_script", {"names": "plant"}) in answer.reasons
