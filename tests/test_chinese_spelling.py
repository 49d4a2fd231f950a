"""Chinese typos: by the sound of what the documents have, and nothing that they have themselves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointsman
from pointsman import Document
from pointsman.embedders import HashingEmbedder
from pointsman.retrieval.plan.transform.chinese_spelling import chinese_changes

DOCUMENTS = ["环保设备包括除尘器和污水处理设备。", "贷款利息按月计算。", "高铁票可以改签。"]


def count(words: Sequence[str]) -> list[int]:
    pairs = [[word[index : index + 2] for index in range(len(word) - 1)] for word in words]
    return [min(sum(pair in text for text in DOCUMENTS) for pair in of_word) for of_word in pairs]


@pytest.mark.parametrize(
    ("typo", "right"),
    [
        ("环保设倍", "环保设备"),
        ("环保设倍有哪些？", "环保设备有哪些？"),
        ("污水出理", "污水处理"),
        ("贷款立息", "贷款利息"),
        ("loan 贷款立息 2024", "loan 贷款利息 2024"),
    ],
)
def test_typo_is_corrected(typo: str, right: str) -> None:
    text = typo
    for change in chinese_changes(typo, count):
        assert (change.old, change.sure) == (typo[change.start : change.end], False)
        text = text[: change.start] + change.new + text[change.end :]
    assert text == right


@pytest.mark.parametrize(
    "question", [*DOCUMENTS, "什么是环保设备？", "我的国家", "苹果手机多少钱", "李倍是谁", "设", "龘龘龘龘", ""]
)
def test_right_text_is_left_alone(question: str) -> None:
    assert chinese_changes(question, count) == []


@given(st.text("环保设倍备贷款立利息的在a ", max_size=40))
def test_what_documents_have_stays(text: str) -> None:
    for change in chinese_changes(text, count):
        beside = [text[change.start - 1 : change.end] if change.start else "", text[change.start : change.end + 1]]
        assert not any(len(pair) == 2 and count([pair])[0] for pair in beside)
        assert len(change.new) == 1


def test_search_says_what_it_corrected(tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "ws", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("zh").add([Document(str(n), text) for n, text in enumerate(DOCUMENTS)])
        context = workspace.search("环保设倍有哪些")
        assert context.hits[0].id == "0"
        assert context.spelling is not None
        assert (context.spelling.text, context.spelling.both) == ("环保设备有哪些", True)
        assert workspace.search("环保设备有哪些").spelling is None


def test_benchmarks_list_has_one_typo_a_line() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    from chinese_typos import TYPOS

    assert len(TYPOS) == 164
    assert all(len(typo) == len(right) and typo != right for typo, right in TYPOS)
