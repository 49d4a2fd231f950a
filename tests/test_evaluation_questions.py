"""Questions whose answers are files, in a CSV file: measured against a count by hand."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_kit import run_command
from pointsman import Document, Workspace
from pointsman.embedders import HashingEmbedder
from pointsman.evaluation import evaluate_questions, file_labels, read_questions, tune
from pointsman.evaluation.run_collection import ALL
from pointsman.tools.errors import InputError
from pointsman.workspace.past_runs import latest


def passage(id_: str, source: str, text: str) -> Document:
    return Document(id_, text, {"source": source})


# For "lamp signal", bm25 ranks by how often and how densely: the passages of a/rails.md stand first and second.
PASSAGES = [
    passage("rails-1", "a/rails.md", "lamp signal lamp signal"),
    passage("rails-2", "a/rails.md", "lamp signal lamp signal at the post"),
    passage("tea-1", "a/tea.md", "A lamp stands beside the signal box, and tea is brewed there in the early morning."),
    passage("tea-2", "a/tea.md", "Green tea is brewed below boiling point."),
    passage("fuse-1", "b/fuse.md", "Switch off the main before you change a fuse."),
    passage("notes-1", "b/notes.md", "Nothing of interest happened."),
    passage("notes-2", "a/notes.md", "Something of interest happened."),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "workspace", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("home").add(PASSAGES)
        yield workspace


def csv_file(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "questions.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_delimiters_a_byte_order_mark_and_other_columns_are_tolerated(
    tmp_path: Path, delimiter: str, encoding: str
) -> None:
    lines = ["Query,Source,Comment,Quote", "чай,tea.md,yes,", "", '"lamp, signal",rails.md,,at the post']
    if delimiter != ",":
        lines = [line.replace(",", delimiter).replace(f"lamp{delimiter} ", "lamp, ") for line in lines]
    rows = read_questions(csv_file(tmp_path, "\r\n".join(lines), encoding))
    assert [(row.query, row.source, row.quote, row.line) for row in rows] == [
        ("чай", "tea.md", "", 2),
        ("lamp, signal", "rails.md", "at the post", 4),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "query,source or query,source,quote"),
        ("what,where\na,b\n", "query,source or query,source,quote"),
        ("query,source\n", "no questions below its header"),
        ("query,source\nlamp,\n", "questions.csv:2: there is no source"),
        ('query,source\n"lamp,tea.md\n', "is not CSV"),
    ],
)
def test_a_file_that_is_not_questions_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_questions(csv_file(tmp_path, text))


def test_a_name_is_a_stored_source_or_the_end_of_exactly_one(workspace: Workspace, tmp_path: Path) -> None:
    home = workspace.dataset("home")

    def sources(name: str) -> set[str]:
        labels = file_labels([home], read_questions(csv_file(tmp_path, f"query,source\nlamp,{name}\n")))
        return set(labels.qrels["1"])

    assert sources("a/tea.md") == sources("tea.md") == sources("./tea.md") == {"tea-1", "tea-2"}
    assert sources("b/notes.md") == {"notes-1"}
    with pytest.raises(InputError, match=r"fits 2 files; write one of a/notes.md, b/notes.md"):
        sources("notes.md")
    with pytest.raises(InputError, match=r"line 2: no file 'teas.md' is indexed; the nearest is 'a/tea.md'"):
        sources("teas.md")


def test_a_quote_is_held_by_its_passage_also_if_two_divide_it(workspace: Workspace, tmp_path: Path) -> None:
    home = workspace.dataset("home")

    def holding(quote: str) -> set[str]:
        text = f"query,source,quote\nlamp,tea.md,{quote}\n"
        return set(file_labels([home], read_questions(csv_file(tmp_path, text))).qrels["1"])

    assert holding("green  TEA is brewed") == {"tea-2"}
    assert holding("in the early morning. Green tea") == {"tea-1"}
    with pytest.raises(InputError, match=r"is not in 'a/tea.md'; the nearest words there are"):
        holding("black coffee without sugar and with milk")


def test_figures_are_those_of_a_count_by_hand(workspace: Workspace, tmp_path: Path) -> None:
    ranking = [hit.id for hit in workspace.search("lamp signal", 10, strategy="bm25", refuse=False)]
    assert ranking[:3] == ["rails-1", "rails-2", "tea-1"]
    path = csv_file(
        tmp_path,
        "query,source,quote\n"
        "lamp signal,tea.md,\n"  # files: rails.md, tea.md -> second
        "change a fuse,fuse.md,\n"  # first
        "signal lamp,tea.md,beside the signal box\n",  # passages: rails-1, rails-2, tea-1 -> third
    )
    pytest.importorskip("ir_measures")
    report = evaluate_questions(workspace, path, "bm25")
    measures = report.strategies["bm25"].measures
    assert (report.queries, report.documents, report.dataset) == (3, 7, "home")
    assert measures["mrr@10"] == pytest.approx((1 / 2 + 1 + 1 / 3) / 3)
    assert measures["ndcg@10"] == pytest.approx((1 / math.log2(3) + 1 + 1 / math.log2(4)) / 3)
    assert measures["recall@10"] == 1
    assert measures["precision@10"] == pytest.approx(1 / 10)


def test_a_file_of_questions_takes_every_row_that_a_folder_takes(workspace: Workspace, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures")
    path = csv_file(tmp_path, "query,source\nlamp signal,tea.md\nchange a fuse,fuse.md\n")
    report = evaluate_questions(workspace, path, "all")
    assert tuple(report.strategies) == ALL
    assert "hybrid+rerank" in ALL
    form = report.to_json()
    assert set(form["against_best_fixed"]) == set(ALL) - {form["best_fixed"]}
    for strategy in report.strategies.values():
        assert 0 < strategy.without_embedding[0] <= strategy.p50
    with pytest.raises(InputError, match="no strategy named 'magic'"):
        evaluate_questions(workspace, path, "bm25,magic")


def test_tuning_counts_a_file_by_its_best_passage(workspace: Workspace, tmp_path: Path) -> None:
    rows = ["lamp signal,rails.md", *(f"change a fuse {number},fuse.md" for number in range(9))]
    questions = read_questions(csv_file(tmp_path, "query,source\n" + "\n".join(rows)))
    home = workspace.dataset("home")
    labels = file_labels([home], questions)
    result = tune(home, labels.queries, labels.qrels, answers=labels.answers)
    assert result.queries == 10
    assert result.ndcg["bm25"] == 1  # with both passages of rails.md as answers of their own it would be so, too, but
    last = {query: dict.fromkeys(answers, "answer") for query, answers in labels.answers.items()}
    only_second = {query: {"rails-2": 1} if query == "1" else grades for query, grades in labels.qrels.items()}
    assert tune(home, labels.queries, only_second, answers=last).ndcg["bm25"] < 1


def test_the_three_commands_take_questions_with_file_names(workspace: Workspace, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures")
    names = {"lamp": "rails.md", "fuse main": "fuse.md", "green tea": "tea.md"}
    rows = [f"{words} {number},{source}" for number in range(10) for words, source in names.items()]
    path = csv_file(tmp_path, "query,source\n" + "\n".join(rows) + "\n")
    location = str(workspace.path)
    workspace.close()
    environment = {**os.environ, "POINTSMAN_EMBEDDER": "hashing"}

    def run(*arguments: str) -> dict[str, object]:
        options = ("--workspace", location, "--json")
        process = run_command(*arguments, str(path), *options, folder=tmp_path, environment=environment)
        assert process.returncode == 0, process.stderr
        return dict(json.loads(process.stdout))

    report = run("eval", "--strategies", "bm25,auto", "--dataset", "home")
    assert report["queries"] == 30
    assert run("tune", "--dataset", "home", "--dry-run")["queries"] == 30
    assert run("calibrate", "--dataset", "home", "--dry-run")["questions"] == 30


def test_what_is_measured_is_stored_where_it_was_measured(workspace: Workspace, tmp_path: Path) -> None:
    """The workspace is that of the settings, and each question's outcome is stored with the figures."""
    pytest.importorskip("ir_measures")
    path = csv_file(tmp_path, "query,source\nlamp signal,rails.md\nnothing,fuse.md\n")
    location = str(workspace.path)
    workspace.close()
    environment = {**os.environ, "POINTSMAN_EMBEDDER": "hashing", "POINTSMAN_WORKSPACE": location}
    process = run_command("eval", str(path), "--strategies", "bm25", folder=tmp_path, environment=environment)
    assert process.returncode == 0, process.stderr
    with Workspace(location, embedder=HashingEmbedder()) as reopened:
        (run,) = latest(reopened.backend)
    assert run["strategies"]["bm25"]["ndcg@10"] == 0.5
    assert [(row["query"], row["ndcg"]) for row in run["questions"]] == [
        ("lamp signal", {"bm25": 1.0}),
        ("nothing", {"bm25": 0.0}),
    ]


def test_figures_that_cannot_be_stored_are_printed_and_said_so(workspace: Workspace, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures")
    path = csv_file(tmp_path, "query,source\nlamp signal,rails.md\n")
    (workspace.path / "evaluations").write_text("a file where the folder would be")
    location = str(workspace.path)
    workspace.close()
    environment = {**os.environ, "POINTSMAN_EMBEDDER": "hashing"}
    options = ("--strategies", "bm25", "--json", "--workspace", location)
    process = run_command("eval", str(path), *options, folder=tmp_path, environment=environment)
    assert (process.returncode, json.loads(process.stdout)["queries"]) == (0, 1)
    assert "the result is not stored" in process.stderr
