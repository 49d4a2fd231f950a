"""Measuring selectors on folders of labelled queries."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from pointsman.embedders import HashingEmbedder

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from _selector_figures import (
    SELECTORS,
    SelectionTask,
    evaluate_selector,
    evaluate_task,
    read_selection,
    render_selection,
)
from command_kit import run_command
from pointsman.evaluation import evaluate_selectors, render
from pointsman.llm.scripted_llm import ScriptedLLM
from pointsman.selector.base_selector import (
    BaseSelector,
    Choices,
    Fallback,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
)
from pointsman.tools.errors import InputError, UnknownNameError, UnmetNeedError

if TYPE_CHECKING:
    from pointsman.values.types import Query

TOOLS = {
    "get_weather": "rain, sun and temperature of a city",
    "play_music": "songs, artists and albums",
    "book_table": "restaurants, tables and dinner",
}
QUESTIONS = {
    "get_weather": ["rain in the city", "temperature today", "sun or rain", "city temperature now"],
    "play_music": ["songs by that artist", "an album", "artists and songs", "albums of songs"],
    "book_table": ["dinner for two", "restaurants here", "a table for dinner", "tables in restaurants"],
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    lines(folder / "corpus.jsonl", [{"_id": str(n), "title": t, "text": d} for n, (t, d) in enumerate(TOOLS.items())])
    queries = [
        (f"q{n}-{m}", str(n), text) for n, texts in enumerate(QUESTIONS.values()) for m, text in enumerate(texts)
    ]
    lines(folder / "queries.jsonl", [{"_id": id_, "text": text} for id_, _, text in queries])
    judgments = "".join(f"{id_}\t{tool}\t1\n" for id_, tool, _ in queries)
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + judgments)
    return folder


@pytest.fixture
def intents(tmp_path: Path) -> Path:
    folder = tmp_path / "intents"
    folder.mkdir()
    pairs = [(text, name) for name, texts in QUESTIONS.items() for text in texts]
    lines(
        folder / "train.jsonl",
        [{"_id": f"t{n}", "text": f"{t} please", "label": name} for n, (t, name) in enumerate(pairs)],
    )
    lines(folder / "test.jsonl", [{"_id": f"e{n}", "text": t, "label": name} for n, (t, name) in enumerate(pairs)])
    return folder


def lines(path: Path, items: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(item) + "\n" for item in items), "utf-8")


class Always(BaseSelector):
    """Selects the same every time, as sure as it is told to be."""

    allow_abstain = True

    def __init__(self, *indices: int, confidence: float | None = None, fallback: Fallback | None = None) -> None:
        self.result = SelectorResult([SingleSelection(index, "always") for index in indices], confidence, fallback)

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        return self.result


def test_a_folder_of_tools_becomes_choices_and_queries(tools: Path) -> None:
    task = read_selection(tools)
    assert [(choice.name, choice.description) for choice in task.choices] == list(TOOLS.items())
    assert task.name == "tools"
    assert task.right[:5] == (frozenset([0]),) * 4 + (frozenset([1]),)
    assert task.taught == ()


def test_without_titles_that_differ_ids_are_names(tools: Path) -> None:
    lines(tools / "corpus.jsonl", [{"_id": str(n), "title": "tool", "text": d} for n, d in enumerate(TOOLS.values())])
    assert [choice.name for choice in read_selection(tools).choices] == ["0", "1", "2"]


def test_a_limit_is_spread_over_the_file(tools: Path) -> None:
    assert read_selection(tools, limit=3).right == (frozenset([0]), frozenset([1]), frozenset([2]))


def test_a_folder_of_labels_becomes_choices_with_examples(intents: Path) -> None:
    task = read_selection(intents, examples=2)
    assert [choice.name for choice in task.choices] == sorted(TOOLS)
    assert task.choices[0].examples == ("dinner for two please", "a table for dinner please")
    assert len(task.taught) == 6
    assert not read_selection(intents, examples=0).choices[0].examples


def test_what_is_asked_is_never_an_example(intents: Path) -> None:
    same = [{"_id": "x", "text": text, "label": name} for name, texts in QUESTIONS.items() for text in texts]
    lines(intents / "train.jsonl", same)
    task = read_selection(intents, limit=6)
    examples = {text for choice in task.choices for text in choice.examples}
    assert examples
    assert not examples & set(task.queries)


@pytest.mark.parametrize("selector", SELECTORS)
def test_every_selector_is_measured_on_both_forms(selector: str, tools: Path, intents: Path) -> None:
    for folder in (tools, intents):
        report = evaluate_selector(folder, selector, embedder=HashingEmbedder())
        assert (report.dataset, report.selector) == (folder.name, selector)
        assert (report.choices, report.queries) == (3, 12)
        assert 0 <= report.accuracy <= 1
        if selector != "random":
            assert report.accuracy > 0.6
            assert report.recall[1] == report.accuracy  # one right choice each
            assert report.recall[3] == 1.0
            assert list(report.recall) == [1, 3]  # there are no more choices
            assert report.embedding_ms is not None
        assert sum(bucket.count for bucket in report.bins) == 12
        assert report.p50 <= report.p95


def test_fitted_learns_from_other_queries_than_it_is_asked() -> None:
    # A query that occurs once says nothing about any other here, so whoever is right has seen it.
    queries = tuple(f"{n * 7919 % 10_007} {n * 104_729 % 10_009}" for n in range(60))
    right = tuple(frozenset([n * 31 % 7 % 3]) for n in range(60))
    choices = tuple(ToolMetadata(name, text) for name, text in TOOLS.items())
    report = evaluate_task(SelectionTask("chance", choices, queries, right), "fitted", HashingEmbedder())
    assert report.accuracy < 0.6
    twice = evaluate_task(SelectionTask("chance", choices, queries * 2, right * 2), "fitted", HashingEmbedder())
    assert twice.accuracy < 0.6


def test_figures_of_a_selector_of_ones_own(tools: Path) -> None:
    report = evaluate_selector(tools, Always(1, confidence=0.75))
    assert report.accuracy == pytest.approx(1 / 3)
    assert report.calibration_error == pytest.approx(0.75 - 1 / 3)
    assert [(bucket.low, bucket.high, bucket.count) for bucket in report.bins] == [(0.7, 0.8, 12)]
    assert report.recall == {1: pytest.approx(1 / 3)}
    assert report.embedding_ms is None
    assert (report.abstained, report.fallbacks) == (0, 0)


def test_abstaining_and_falling_back_are_counted(tools: Path) -> None:
    abstaining = evaluate_selector(tools, Always(confidence=0.2))
    assert (abstaining.accuracy, abstaining.abstained, abstaining.calibration_error) == (0, 1, None)
    guessing = evaluate_selector(tools, Always(0, fallback=Fallback("unreadable", "first")))
    assert (guessing.fallbacks, guessing.bins) == (1, ())


def test_the_report_is_json_and_a_table(tools: Path) -> None:
    report = evaluate_selector(tools, Always(0, confidence=1.0))
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert data["accuracy@1"] == data["recall@1"] == 0.3333
    assert data["calibration"]["ece"] == 0.6667
    assert data["calibration"]["bins"][0]["count"] == 12
    assert data["latency_ms"]["query_embedding"] is None
    output = io.StringIO()
    Console(file=output, width=160).print(render_selection([report, evaluate_selector(tools, "random")]))
    assert "tools: 3 choices, 12 queries" in output.getvalue()
    assert "0.3333" in output.getvalue()
    assert "random" in output.getvalue()
    with pytest.raises(InputError, match="no report"):
        render_selection([])


def test_progress_is_told(tools: Path) -> None:
    steps: list[tuple[int, int, str]] = []
    evaluate_selector(tools, "embedding", embedder="hashing", on_progress=lambda *step: steps.append(step))
    assert steps[0] == (0, 12, "embedding queries")
    assert steps[-1] == (12, 12, "embedding: selecting")


def test_what_cannot_be_used_is_refused(tools: Path, intents: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no selector named 'magic'; known: .*description"):
        evaluate_selector(tools, "magic")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has neither"):
        read_selection(tmp_path / "empty")
    with pytest.raises(InputError, match="limit is an int from 1 up, not 0"):
        read_selection(tools, limit=0)
    with pytest.raises(InputError, match="examples is an int from 0 up, not -1"):
        read_selection(tools, examples=-1)
    with pytest.raises(InputError, match="at least two queries"):
        evaluate_selector(tools, "fitted", limit=1, embedder="hashing")
    lines(intents / "test.jsonl", [{"text": "x", "label": "unheard of"}])
    with pytest.raises(InputError, match="no such label: unheard of"):
        read_selection(intents)


@pytest.mark.parametrize(
    "line", ["{", "[]", "3", '{"text": "x"}', '{"text": 1, "label": "a"}', '{"text": "x", "label": ""}']
)
def test_lines_that_cannot_be_used_are_named(line: str, intents: Path) -> None:
    with (intents / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n" + line + "\n")
    with pytest.raises(InputError, match=r"train\.jsonl:14: "):
        read_selection(intents)


def test_the_public_sets_can_be_read(test_data: Path) -> None:
    for name, choices in (
        ("route_dev", 9),
        ("tool_ultratool_zh_dev", 436),
        ("intent_snips", 7),
        ("intent_banking77", 77),
    ):
        task = read_selection(test_data / name, limit=100)
        assert (len(task.choices), len(task.queries)) == (choices, 100)
        assert all(task.right)


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


class SlowHashing(HashingEmbedder):
    """Takes long to embed a question, for one that it counts."""

    asked = 0

    def embed_queries(self, texts: Any) -> Any:
        self.asked += 1
        time.sleep(0.02)
        return super().embed_queries(texts)


def test_selectors_are_measured_by_name(tools: Path, caplog: pytest.LogCaptureFixture) -> None:
    llm = ScriptedLLM(lambda prompt: '{"index": 1, "reason": "first"}')
    report = evaluate_selectors(tools, llm=llm, embedder=SlowHashing(), price=2.0)
    assert set(report.strategies) == {"description", "embedding", "rule", "hybrid", "llm", "ensemble"}
    by_meaning, by_model = report.strategies["embedding"], report.strategies["llm"]
    assert by_meaning.p50 - by_meaning.without_embedding[0] >= 20  # of whatever the machine takes for the rest
    assert by_meaning.measures["accuracy"] > by_model.measures["accuracy"] == pytest.approx(1 / 3)
    assert (by_model.llm_calls, by_meaning.llm_calls) == (1, 0)
    assert by_model.llm_tokens > 50
    assert "rule: 12 of 12 selections were made by a fallback" in caplog.text
    form = report.to_json()
    assert (form["choices"], form["queries"]) == (3, 12)
    assert form["selectors"]["llm"]["llm"]["cost_per_1000"] == pytest.approx(by_model.llm_tokens * 2 / 1000, abs=0.001)
    console = Console(file=io.StringIO(), width=100)
    console.print(render(report))
    assert all(word in console.file.getvalue() for word in ("selector", "3 choices", "cost of"))  # type: ignore[attr-defined]


def test_selectors_of_ones_own_are_measured(tools: Path) -> None:
    class Second:
        def select(self, choices: Any, query: Any) -> Any:
            return SimpleNamespace(ind=1, reason=query.text)

    report = evaluate_selectors(tools, {"mine": Second()}, embedder=HashingEmbedder(), limit_queries=4)  # type: ignore[dict-item]
    assert report.strategies["mine"].measures["accuracy"] == 0
    with pytest.raises(UnknownNameError, match="embedding, ensemble"):
        evaluate_selectors(tools, ["mine"], embedder=HashingEmbedder())
    with pytest.raises(UnmetNeedError, match="name one in the settings"):
        evaluate_selectors(tools, ["llm"], embedder=HashingEmbedder())


def test_the_command_measures_selectors(tools: Path) -> None:
    environment = {**os.environ, "POINTSMAN_EMBEDDER": "hashing"}
    process = run_command("eval-select", str(tools), "--selector", "rule", "--json", environment=environment)
    assert json.loads(process.stdout)["selectors"]["rule"]["llm"] == {"calls": 0, "tokens": 0}, process.stderr
