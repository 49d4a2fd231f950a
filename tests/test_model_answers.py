"""The one reader of what a language model says before and around its answer."""

from __future__ import annotations

import pytest

from pointsman.llm.model_answers import DefectError, after_thinking, without_fences
from pointsman.retrieval.plan.transform.transform_answers import strings
from pointsman.retrieval.refine.compress.compress_answers import references
from pointsman.retrieval.refine.rerank.rerank_answers import read_grade, read_order
from pointsman.selector.base_selector import ToolMetadata
from pointsman.selector.selection_answers import Defect, parse_selection

TAGS = ("think", "thinking", "thought", "reasoning", "analysis", "reflection", "THINK")
CHOICES = [ToolMetadata("weather", "forecasts"), ToolMetadata("news", "events")]


@pytest.mark.parametrize("tag", TAGS)
def test_every_reader_reads_what_comes_after_the_thinking(tag: str) -> None:
    thinking = f"<{tag}>1, or [1], or 3?</{tag}> <{tag}>no, 1</{tag}>\n"
    assert after_thinking(f"{thinking}2") == "\n2"
    assert after_thinking(f"so 1?</{tag}>2") == "2"  # servers cut off the first tag
    assert parse_selection(f"{thinking}2", CHOICES).selections[0].index == 1
    assert strings(f'{thinking}["two"]') == ["two"]
    assert references(f"{thinking}[2]", ["It rained today.", "The cat sat there."], "").places == (1,)
    assert read_order(f"{thinking}[2, 1]", 2) == [1, 0]
    assert read_grade(f"{thinking}2") == 2


@pytest.mark.parametrize("answer", ["<think>1 or 2", " \n<Reasoning> 2", "<think>2</think>", "<think>2</think> \n"])
def test_every_reader_finds_no_answer_in_an_unfinished_thought(answer: str) -> None:
    with pytest.raises(DefectError):
        after_thinking(answer)
    assert parse_selection(answer, CHOICES).defect == Defect.TRUNCATED
    assert strings(answer) == []
    with pytest.raises(DefectError, match="empty"):
        references(answer, ["It rained today.", "The cat sat there."], "")
    for read in (read_grade, lambda text: read_order(text, 2)):
        with pytest.raises(DefectError, match="truncated"):
            read(answer)


@pytest.mark.parametrize("fence", ["```", "```json", "~~~", "````  JSON"])
def test_fences_are_not_read(fence: str) -> None:
    assert without_fences(f"{fence}\n[2]\n{fence[:3]}").strip() == "[2]"
