"""The command line as scripts and people use it; each command runs in a process of its own."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

import pointsman
from command_kit import run_command
from pointsman import Document, load_embedder
from pointsman.cli.output import _print_file_problems
from pointsman.cli.shared_options import DATASET
from pointsman.ingest.source_text import Problem
from pointsman.values.types import AddResult
from pointsman.workspace.indexing.index_report import IndexReport
from pointsman.workspace.workspace_search import Routing
from rights_kit import with_rights

FILES = {
    "en.md": "# Switches\n\nA railway switch guides trains from one track to another.\n",
    "ru.txt": "Стрелочный перевод направляет поезд с одного пути на другой.\n",
    "zh.txt": "道岔使列车由一股道转入另一股道。\n",
    "tea.html": "<h1>Tea</h1><p>Green tea is brewed below boiling point.</p><script>alert(1)</script>",
}


class Cli:
    """Runs commands in one folder, with a quick embedder that needs no model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "POINTSMAN_EMBEDDER": "hashing", "COLUMNS": "100"}

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = run_command(*arguments, folder=self.folder, environment=self.environment)
        assert process.returncode == code, f"exit {process.returncode}\n{process.stdout}\n{process.stderr}"
        return process

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    (tmp_path / "docs").mkdir()
    for name, text in FILES.items():
        (tmp_path / "docs" / name).write_text(text, "utf-8")
    return Cli(tmp_path)


@pytest.fixture(scope="session")
def indexed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexed")
    (folder / "docs").mkdir()
    for name, text in FILES.items():
        (folder / "docs" / name).write_text(text, "utf-8")
    Cli(folder)("index", "docs", "--dataset", "notes", "--description", "Railways and tea")
    return folder


@pytest.fixture
def notes_cli(indexed_once: Path, tmp_path: Path) -> Cli:
    """A copy of the indexed folder, so that each test may do with it what it likes."""
    shutil.copytree(indexed_once, tmp_path, dirs_exist_ok=True)
    return Cli(tmp_path)


def test_index_search_and_manage(cli: Cli) -> None:
    report = cli.json("index", "docs", "--dataset", "notes", "--description", "Railways and tea")
    assert (report["files"], report["added"], report["documents"], report["problems"]) == (4, 4, 4, [])
    assert cli.json("datasets") == [
        {"name": "notes", "description": "Railways and tea", "indexing_technique": "hybrid", "documents": 4}
    ]
    for query, source in (("train track", "en.md"), ("поезда", "ru.txt"), ("列车", "zh.txt"), ("boiling", "tea.html")):
        answer = cli.json("search", query, "-k", "1", "--strategy", "bm25")
        assert [hit["metadata"]["source"] for hit in answer["hits"]] == [source]
        assert answer["datasets"] == ["notes"]
    answer = cli.json("search", "tea", "-k", "10")
    assert (answer["strategy"], len(answer["hits"])) == ("hybrid", 4)
    assert "alert" not in str(answer)
    status = cli.json("status")["datasets"][0]
    assert status["documents"] == 4
    assert status["sequence"] == status["keyword_index_sequence"]
    assert sum(status["bytes_by_part"].values()) == status["bytes"]
    assert all(status["bytes_by_part"][part] > 0 for part in ("documents", "keyword_index"))
    assert status["memory"]["resident"] > status["memory"]["files"] > 0
    assert cli.json("verify") == {
        "notes": {"documents": 4, "in_keyword_index": 4, "in_vector_index": 4, "problems": []}
    }


def test_the_encoding_of_files_is_given(cli: Cli) -> None:
    (cli.folder / "docs" / "cs.txt").write_bytes("Výhybka se přestaví před příjezdem.".encode("cp1250"))
    assert cli.json("index", "docs", "--encoding", "windows-1250")["problems"] == []
    assert cli.json("search", "přestaví", "-k", "1")["hits"][0]["text"] == "Výhybka se přestaví před příjezdem."
    assert "no encoding is called 'klingon'" in cli("index", "docs", "--encoding", "klingon", code=2).stderr


def test_indexing_again_touches_only_what_changed_and_removes_what_is_gone(cli: Cli) -> None:
    cli("index", "docs", "--dataset", "notes")
    second_run = cli.json("index", "docs", "--dataset", "notes")
    assert (second_run["added"], second_run["updated"], second_run["unchanged"], second_run["deleted"]) == (0, 0, 4, 0)
    (cli.folder / "docs" / "ru.txt").write_text("Семафор показывает машинисту путь.\n", "utf-8")
    (cli.folder / "docs" / "zh.txt").unlink()
    third_run = cli.json("index", "docs", "--dataset", "notes")
    assert (third_run["added"], third_run["unchanged"], third_run["deleted"]) == (1, 2, 2)
    assert cli.json("search", "列车", "--strategy", "bm25")["hits"] == []


def test_another_folder_in_the_same_dataset_leaves_the_first_alone(notes_cli: Cli) -> None:
    (notes_cli.folder / "more").mkdir()
    (notes_cli.folder / "more" / "signal.txt").write_text("A signal stands before the switch.", "utf-8")
    report = notes_cli.json("index", "more", "--dataset", "notes")
    assert (report["added"], report["deleted"], report["documents"]) == (1, 0, 5)


def test_a_bad_file_is_reported_and_the_rest_goes_in(cli: Cli) -> None:
    (cli.folder / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 nothing more")
    report = cli.json("index", "docs", "--dataset", "notes")
    assert report["added"] == 4
    assert [problem["path"] for problem in report["problems"]] == ["broken.pdf"]
    assert "broken.pdf" in cli("index", "docs", "--dataset", "notes").stdout


def test_junk_alone_is_listed_with_exit_code_1(cli: Cli) -> None:
    (cli.folder / "junk").mkdir()
    (cli.folder / "junk" / "a.bin").write_bytes(bytes(range(256)) * 20)
    process = cli("index", "junk", "--dataset", "notes", code=1)
    assert "problem: a.bin: binary data" in process.stdout
    report = cli.json("index", "junk", "--dataset", "notes", code=1)
    assert [problem["path"] for problem in report["problems"]] == ["a.bin"]


def test_passages_have_the_size_that_is_asked_for(cli: Cli) -> None:
    (cli.folder / "long").mkdir()
    (cli.folder / "long" / "a.txt").write_text("A train stops here. " * 100, "utf-8")
    large = cli.json("index", "long", "--dataset", "notes", "--technique", "keyword")["added"]
    small = cli.json("index", "long", "--dataset", "notes", "--max-tokens", "32", "--overlap", "0")["added"]
    assert small > 4 * large


def test_filters_strategies_and_explanations(notes_cli: Cli) -> None:
    answer = notes_cli.json("search", "track", "--filter", 'language = "en" and kind in ["md", "txt"]', "--explain")
    assert {hit["metadata"]["kind"] for hit in answer["hits"]} == {"md"}
    assert [span["stage"] for span in answer["trace"]["spans"]] == [
        *("plan", "transform", "retrieve", "fuse", "fetch", "refuse")
    ]
    assert answer["hits"][0]["provenance"][0]["source"] == "bm25"
    for strategy in ("bm25", "vector", "rrf", "z_score"):
        assert notes_cli.json("search", "track", "--strategy", strategy)["strategy"] == strategy
    text = notes_cli("search", "track", "--explain").stdout
    assert "Switches" in text
    assert "bm25 #1" in text


def test_delete_rebuild_and_verify(notes_cli: Cli) -> None:
    first = notes_cli.json("search", "tea", "-k", "1")["hits"][0]["id"]
    assert notes_cli.json("delete", first, "--dataset", "notes") == {
        "dataset": "notes",
        "deleted": 1,
        "dropped": False,
        "missing": [],
    }
    assert notes_cli.json("delete", "--source", "ru.txt", "--dataset", "notes")["deleted"] == 1
    assert notes_cli.json("rebuild") == {"rebuilt": ["notes"]}
    assert notes_cli.json("verify")["notes"]["documents"] == 2
    assert (
        "dataset 'notes' with 2 documents deleted" in notes_cli("delete", "--all", "--yes", "--dataset", "notes").stdout
    )
    assert notes_cli.json("datasets") == []


FOLDERS = ("old", "old/deeper", "older", "old' or source startswith '", "u\u0308bung", "a*b", "c\\d")


@pytest.mark.parametrize(
    ("folder", "deleted"),
    [
        ("old", {"old", "old/deeper"}),
        ("old/", {"old", "old/deeper"}),
        ("/old/deeper", {"old/deeper"}),
        ("old' or source startswith '", {"old' or source startswith '"}),
        ("\u00fcbung", {"u\u0308bung"}),
        ("a*b", {"a*b"}),
        ("c\\d", {"c\\d"}),
    ],
)
def test_the_files_of_a_folder_are_deleted_together(folder: str, deleted: set[str], cli: Cli) -> None:
    for name in FOLDERS:
        (cli.folder / "tree" / name).mkdir(parents=True, exist_ok=True)
        (cli.folder / "tree" / name / "a.md").write_text(f"The rail of {name}.")
    cli("index", "tree", "--dataset", "files", "--technique", "keyword")
    assert cli.json("delete", "--under", folder, "--dataset", "files")["deleted"] == len(deleted)
    with pointsman.open(cli.folder / ".pointsman") as workspace:
        names = {str(document.metadata["source"]) for document in workspace.dataset("files", create=False)}
    assert {normalize("NFC", name) for name in names} == {
        normalize("NFC", f"{name}/a.md") for name in {*FOLDERS} - deleted
    }
    process = cli("delete", "--under", folder, "--dataset", "files", code=1)
    assert "not in 'files'" in process.stderr


@pytest.mark.parametrize("folder", ["", "/", "//"])
def test_the_folder_of_everything_is_not_deleted(folder: str, notes_cli: Cli) -> None:
    process = notes_cli("delete", "--under", folder, "--dataset", "notes", code=2)
    assert "--all deletes the whole dataset" in process.stderr
    assert notes_cli.json("datasets")[0]["documents"] == 4


def test_commands_without_a_dataset_mean_the_one_that_python_means(cli: Cli) -> None:
    default = inspect.signature(pointsman.Workspace.index).parameters["dataset"].default
    assert DATASET == default == inspect.signature(pointsman.Client.index).parameters["dataset"].default
    cli("index", "docs", "--technique", "keyword")
    assert [dataset["name"] for dataset in cli.json("datasets")] == [default]
    assert "switch" in cli("text", "en.md").stdout.lower()
    assert cli.json("delete", "--source", "en.md")["dataset"] == default
    process = cli("delete", "--all", "--yes", code=2)
    assert "--all deletes a whole dataset; name it: --dataset NAME" in process.stderr


def test_a_whole_dataset_is_not_deleted_without_a_yes(notes_cli: Cli) -> None:
    process = notes_cli("delete", "--all", "--dataset", "notes", code=2)
    assert "this would delete dataset 'notes' with 4 documents, which cannot be undone; give --yes" in process.stderr
    assert notes_cli.json("datasets")[0]["documents"] == 4


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are those of POSIX")
@pytest.mark.parametrize(("answer", "code", "names"), [("n", 2, ["notes"]), ("y", 0, [])])
def test_a_terminal_is_asked_before_a_dataset_is_deleted(
    notes_cli: Cli, answer: str, code: int, names: list[str]
) -> None:
    keyboard, terminal = os.openpty()
    try:
        os.write(keyboard, f"{answer}\n".encode())
        process = subprocess.run(
            [sys.executable, "-m", "pointsman", "delete", "--all", "--dataset", "notes"],
            cwd=notes_cli.folder,
            env={**os.environ, **notes_cli.environment},
            stdin=terminal,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert process.returncode == code, process.stderr
    assert "Delete dataset 'notes' with 4 documents? This cannot be undone." in process.stderr
    assert [row["name"] for row in notes_cli.json("datasets")] == names


def test_files_without_text_are_named_and_not_counted_as_read(cli: Cli) -> None:
    (cli.folder / "bin.dat").write_bytes(b"\1\2")
    (cli.folder / "blank.md").write_text(" \n")
    (cli.folder / "empty.txt").touch()
    report = cli.json("index", "bin.dat", "blank.md", "empty.txt", "--dataset", "notes", code=1)
    assert (report["files"], report["documents"]) == (0, 0)
    assert {problem["path"]: problem["reason"] for problem in report["problems"]} == dict.fromkeys(
        ("bin.dat", "blank.md", "empty.txt"), "there is no text in it"
    )
    report = cli.json("index", "docs", "empty.txt", "--dataset", "notes")
    assert (report["files"], len(report["problems"])) == (4, 1)


def test_a_file_that_was_emptied_loses_its_passages(cli: Cli) -> None:
    cli("index", "docs", "--dataset", "notes")
    (cli.folder / "docs" / "en.md").write_text("")
    report = cli.json("index", "docs", "--dataset", "notes")
    assert (report["files"], report["deleted"], report["documents"]) == (3, 1, 3)


def test_what_fails_and_what_reads_makes_nothing(notes_cli: Cli) -> None:
    """Failing commands make nothing."""
    notes_cli("index", "no/such/folder", "--dataset", "typo", code=2)
    (notes_cli.folder / "empty").mkdir()
    assert notes_cli.json("index", "empty", "--dataset", "typo", code=1)["documents"] == 0
    for command in ("search", "route"):
        assert "no dataset named 'typo'" in notes_cli(command, "x", "--dataset", "typo", code=2).stderr
    for arguments in (["delete", "--dataset", "typo", "--all"], ["verify", "typo"], ["rebuild", "typo"]):
        assert "no dataset named 'typo'" in notes_cli(*arguments, code=2).stderr
    assert [dataset["name"] for dataset in notes_cli.json("datasets")] == ["notes"]
    assert [path.name for path in (notes_cli.folder / ".pointsman" / "datasets").iterdir()] == ["notes"]


def test_settings_hold_for_commands(notes_cli: Cli) -> None:
    """Settings are obeyed: the workspace, the embedder and how to search."""
    del notes_cli.environment["POINTSMAN_EMBEDDER"]
    (notes_cli.folder / ".pointsman").rename(notes_cli.folder / "elsewhere")
    notes_cli.environment["POINTSMAN_CONFIG"] = "mine.toml"
    (notes_cli.folder / "mine.toml").write_text(
        'workspace = "elsewhere"\nembedder = "hashing"\ndefault_retrieval_strategy = "rrf"\n'
    )
    answer = notes_cli.json("search", "track")
    assert (answer["strategy"], answer["decisions"][0]["by"]) == ("rrf", "settings")
    assert notes_cli.json("search", "track", "--strategy", "bm25")["strategy"] == "bm25"


def test_what_was_searched_for_instead_is_said(notes_cli: Cli) -> None:
    words = "\n\n".join(["A railway switch guides trains from track to track."] * 3)
    (notes_cli.folder / "docs" / "more.txt").write_text(words)
    notes_cli("index", "docs", "--dataset", "notes")
    process = notes_cli("search", "railway swtich")
    assert "Showing results for railway switch; --no-spelling searches for railway swtich instead." in process.stdout
    answer = notes_cli.json("search", "railway swtich")
    assert (answer["asked"], answer["query"]) == ("railway swtich", "railway switch")
    assert notes_cli.json("search", "railway swtich", "--effort", "fast")["query"] == "railway swtich"
    empty_answer = notes_cli("search", "zzzz", "--strategy", "bm25")
    assert "No results" in empty_answer.stdout


def test_words_with_a_hyphen_are_words_of_the_question(notes_cli: Cli) -> None:
    (notes_cli.folder / "docs" / "draft.txt").write_text("A draft on railway switches.")
    notes_cli("index", "docs", "--dataset", "notes")
    process = notes_cli("search", "railway", "-draft", "--refuse", "never")
    assert "Understood: searched for 'railway'; no hit holds draft" in process.stdout
    assert "draft.txt" not in process.stdout
    for words in (["railway", "-draft"], ['railway -"draft on"'], ["-k3", "railway", "-k", "2", '-"draft on"']):
        answer = notes_cli.json("search", *words, "--refuse", "never")
        assert [hit for hit in answer["hits"] if "draft" in hit["text"]] == [], words
        assert answer["query"] == "railway"
    question = ["why does a railway need", '"draft on"', "switches?", "--refuse", "never"]
    assert "'draft on'" not in notes_cli("search", *question).stdout
    assert '"draft on" in a sentence; --syntax hard insists on it.' in notes_cli("search", *question).stdout
    assert "insists on it" not in notes_cli("search", *question, "--syntax", "hard").stdout
    plain = notes_cli.json("search", "railway", "-draft", "--syntax", "plain", "--refuse", "never", "-dnotes")
    assert plain["asked"] == "railway -draft -dnotes"
    assert notes_cli.json("search", "-dnotes", "railway", "-d", "notes")["datasets"] == ["notes"]
    assert "railway -draft" in notes_cli("route", "railway", "-draft", "--json").stdout
    assert "no such option" in notes_cli("search", "railway", "--draft", code=2).stderr.lower()


def test_route_shows_three_decisions_and_one_without_a_workspace(notes_cli: Cli) -> None:
    route = notes_cli.json("route", "новости channel:tech после:2024-01-01")
    assert route["heuristic"] == {"route": "hybrid", "reasons": ["filters_or_mixed_signals"]}
    assert route["plan"]["strategy"] == "hybrid"
    assert (route["decision"]["datasets"], route["decision"]["reason"]) == (["notes"], "единственный набор")
    route_alone = notes_cli.json("route", "дата создания", "--workspace", "nowhere")
    assert route_alone["heuristic"] == {"route": "bm25", "reasons": ["short_or_entity_numeric"]}
    words = {
        "railway": "few words, or a short text with a number or name: search by words",
        "дата создания": "мало слов либо короткий текст с числом или именем: поиск по словам",
        "铁路": "词语很少，或短文本含数字或名称：关键词检索",
    }
    assert {query: Routing.by_form(query).heuristic_reason for query in words} == words
    assert route_alone["heuristic_reason"] == words["дата создания"]
    assert route_alone["plan"] is None
    assert route_alone["decision"] is None
    assert "filters_or_mixed_signals" in notes_cli("route", "новости channel:tech после:2024-01-01").stdout


def test_eval_on_a_small_collection(cli: Cli) -> None:
    folder = cli.folder / "collection"
    folder.mkdir()
    words = {"weather": "forecast rain sun temperature", "music": "play song album band", "maps": "route drive map way"}
    corpus = [{"_id": name, "title": name, "text": text} for name, text in words.items()]
    queries = [{"_id": name, "text": text.split()[1]} for name, text in words.items()]
    for file, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    judgements = "".join(f"{name}\t{name}\t1\n" for name in words)
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}", "utf-8")
    report = cli.json("eval", "collection", "--strategies", "bm25,hybrid")
    assert (report["dataset"], report["documents"], report["queries"]) == ("collection", 3, 3)
    assert report["strategies"]["bm25"]["ndcg@10"] == 1.0
    measures = {"ndcg@10", "recall@10", "recall@100", "precision@10", "mrr@10"}
    assert set(report["strategies"]["hybrid"]) == measures | {"latency_ms", "latency_without_embedding_ms", "llm"}
    assert "bm25" in cli("eval", "collection", "--strategies", "bm25").stdout


BAD_INPUT = [
    (["search", "x", "--workspace", "nowhere"], "no workspace at 'nowhere'"),
    (["search", "x", "--dataset", "nonsense"], "no dataset named 'nonsense'; did you mean 'notes'? known: notes"),
    (["search", "x", "--strategy", "magic"], "no strategy named 'magic'"),
    (["search", "x", "--filter", "year >"], "year >"),
    (["index", "missing-folder", "--dataset", "notes"], "missing-folder"),
    (["index", "docs", "--dataset", "../escape"], "a dataset's name is"),
    (["index", "docs", "--dataset", "new", "--technique", "telepathy"], "indexing_technique is one of"),
    (["index", "docs", "--dataset", "notes", "--technique", "keyword"], "was made for 'hybrid' search"),
    (["delete", "--dataset", "notes"], "give ids, --source PATH, --under PATH or --all"),
    (["search", "x", "--embedder", "telepathy"], "telepathy"),
    (["eval", "docs"], "corpus.jsonl"),
    (["route", "x", "--dataset", "nonsense"], "no dataset named 'nonsense'"),
    (["search", "x", "-k", "0"], "-k"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT, ids=lambda value: " ".join(value)[:40])
def test_bad_input_is_exit_2_and_one_clear_line(notes_cli: Cli, arguments: list[str], message: str) -> None:
    process = notes_cli(*arguments, code=2)
    assert message in process.stderr
    assert "Traceback" not in process.stderr
    assert process.stdout == ""


THROUGH_NO_SERVICE = [
    *("rebuild", "tune docs -d notes", "calibrate --reset", "keys list"),
    *("backup there", "restore there", "detach notes", "mcp", "serve", "demo", "eval docs"),
    "attach orders faiss:x --table x --id id --text text",
]


@pytest.mark.parametrize("command", THROUGH_NO_SERVICE)
def test_what_does_not_work_through_a_service_is_refused_at_once(notes_cli: Cli, command: str) -> None:
    process = notes_cli(*command.split(), "--workspace", "http://127.0.0.1:9", code=2)
    assert re.search(r"^pointsman: (this command cannot .* through a service|http://127.0.0.1:9 is )", process.stderr)
    assert "pointsman copy" not in process.stderr  # which does not take a service either


def test_an_evaluation_that_cannot_be_kept_is_refused_before_it_runs(notes_cli: Cli) -> None:
    (notes_cli.folder / "file").write_text("no workspace")
    process = notes_cli("eval", "no-collection", "--workspace", "file", code=2)
    assert "file is not a workspace" in process.stderr


def test_an_evaluation_by_questions_that_are_not_there_says_so(notes_cli: Cli) -> None:
    process = notes_cli("eval", "questions.csv", "--dataset", "notes", code=2)
    assert "questions.csv does not exist" in process.stderr


def test_an_empty_path_is_not_the_current_folder(notes_cli: Cli) -> None:
    assert "a path is empty" in notes_cli("index", "", "--dataset", "notes", code=2).stderr


def test_a_file_that_must_not_be_read_does_not_stop_the_others(notes_cli: Cli) -> None:
    (notes_cli.folder / "docs" / "en.md").chmod(0)
    command = [sys.executable, "-m", "pointsman", "index", "docs/en.md", "docs/ru.txt", "-d", "new"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything here")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    process = subprocess.run(
        command, cwd=notes_cli.folder, env=notes_cli.environment, capture_output=True, text=True, check=True
    )
    assert "1 passage added" in process.stdout
    assert "problem: en.md: cannot be read: Permission denied" in process.stdout


@pytest.mark.parametrize("command", ["status -w", "search track -w", "route track -w", "keys list -w", "backup"])
def test_a_place_that_must_not_be_looked_into_is_one_line(notes_cli: Cli, command: str) -> None:
    (notes_cli.folder / "closed").mkdir(mode=0)
    code, _, errors = with_rights(run_here, notes_cli.folder, f"{command} closed/place")
    assert code == 1
    assert re.fullmatch(r"pointsman: \S*closed/place\S* cannot be read or written to: Permission denied.*\n", errors)


def run_here(folder: Path, command: str) -> tuple[object, str, str]:
    """Run a command in this process; return its exit code and what it printed to standard output and error."""
    from pointsman.cli import main

    os.chdir(folder)
    sys.argv = ["pointsman", *command.split()]
    with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as errors:
        try:
            main()
        except SystemExit as stop:
            return stop.code or 0, output.getvalue(), errors.getvalue()
    return 0, output.getvalue(), errors.getvalue()


def test_a_remedy_of_several_reasons_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    remedy = "install an OCR engine to read it"
    reasons = [f"PDF without text; {count} pages are pictures; {remedy}" for count in (2, 3, 9)]
    problems = tuple(Problem(f"{number}.pdf", reason) for number, reason in enumerate([*reasons, "damaged; cut off"]))
    _print_file_problems(IndexReport(1, AddResult(), 0, problems))
    assert capsys.readouterr().out.splitlines() == [
        "  problem: 0.pdf: PDF without text; 2 pages are pictures",
        "  problem: 1.pdf: PDF without text; 3 pages are pictures",
        "  problem: 2.pdf: PDF without text; 9 pages are pictures",
        "  problem: 3.pdf: damaged; cut off",
        f"  remedy: {remedy}",
    ]


def test_a_single_path_that_is_no_file_is_named(cli: Cli) -> None:
    os.mkfifo(cli.folder / "pipe.txt")
    assert "problem: pipe.txt: not a regular file" in cli("index", "pipe.txt", "-d", "notes", code=1).stdout


def test_many_files_with_one_problem_do_not_hide_another(cli: Cli) -> None:
    (cli.folder / "scans").mkdir()
    for number in range(30):
        (cli.folder / "scans" / f"a{number:02}.bin").write_bytes(b"\0\1\2" * 100)
    (cli.folder / "scans" / "z.docx").write_bytes(b"PK")
    shown = cli("index", "scans", "-d", "notes", code=1).stdout
    assert "problem: a00.bin, a01.bin, a02.bin and 27 more (--json lists them all): binary data" in shown
    assert "problem: z.docx: damaged Word document" in shown
    assert len(cli.json("index", "scans", "-d", "notes", code=1)["problems"]) == 31


def test_problems_of_files_stay_on_one_line(cli: Cli) -> None:
    (cli.folder / "junk").mkdir()
    name = "a long name of a file with words " * 4 + ".docx"
    (cli.folder / "junk" / name).write_bytes(b"PK")
    assert f"problem: {name}: damaged Word document: " in cli("index", "junk", "-d", "notes", code=1).stdout


NO_HITS = {
    "[" * 100_000: "maximum recursion depth",
    '{"hits": [{"id": "a"}]}': "it lacks 'excerpt'",
    "[]": "is not output of",
}


@pytest.mark.parametrize("text", NO_HITS, ids=list(NO_HITS.values()))
def test_a_file_without_hits_is_one_line(cli: Cli, text: str) -> None:
    (cli.folder / "hits.json").write_text(text)
    process = cli("verify-answer", "docs/en.md", "--hits", "hits.json", code=2)
    assert NO_HITS[text] in process.stderr
    assert "Traceback" not in process.stderr


def test_an_answer_on_standard_input_is_utf_8_in_every_locale(notes_cli: Cli) -> None:
    (notes_cli.folder / "hits.json").write_text(notes_cli("search", "道岔", "--json").stdout, "utf-8")

    def verify(answer: bytes | None) -> subprocess.CompletedProcess[bytes]:
        close = "" if answer is not None else " <&-"
        command = f"exec {sys.executable} -m pointsman verify-answer - --hits hits.json{close}"
        environment = {**notes_cli.environment, "PYTHONIOENCODING": "ascii:strict"}
        return subprocess.run(
            ["bash", "-c", command],
            cwd=notes_cli.folder,
            env=environment,
            input=answer,
            capture_output=True,
            check=False,
        )

    assert verify("“道岔使列车由一股道转入另一股道” [1]".encode()).returncode == 0
    process = verify(b'"\xff"')
    assert (process.returncode, process.stderr.startswith(b"pointsman: standard input is not UTF-8")) == (2, True)
    remedy = b"write the text after the command, or name a file"
    assert verify(None).stderr == b"pointsman: standard input is closed; " + remedy + b"\n"


def test_a_damaged_truth_is_exit_1_and_says_what_to_do(notes_cli: Cli) -> None:
    path = notes_cli.folder / ".pointsman" / "datasets" / "notes" / "documents.sqlite"
    path.write_bytes(b"not a database, " * 1000)
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    process = notes_cli("search", "x", code=1)
    assert "pointsman restore" in process.stderr


def test_a_workspace_of_an_unknown_format_is_refused(notes_cli: Cli) -> None:
    (notes_cli.folder / ".pointsman" / "workspace.json").write_text('{"format": 99}')
    assert "format 99" in notes_cli("search", "x", code=1).stderr


def test_markup_and_escapes_in_documents_and_queries_are_text(cli: Cli) -> None:
    text = "[bold red]not markup[/] [link=file:///etc]x[/link] \x1b[31mred"
    with pointsman.open(cli.folder / ".pointsman", embedder=load_embedder("hashing")) as workspace:
        workspace.dataset("notes").add([Document("[dim]id\x1b[31m", text, {"title": "[b]title\x1b[31m"})])
    output = cli("search", "[bold red]not markup[/]", "--explain").stdout
    assert "[bold red]not markup[/]" in output
    assert "\x1b[31m" not in output


def test_output_to_a_closed_pipe_is_no_failure(notes_cli: Cli) -> None:
    search = f"{sys.executable} -m pointsman search track --json"
    program = f"{search} | head -c 1; exit ${{PIPESTATUS[0]}}"
    process = subprocess.run(
        ["bash", "-c", program],
        cwd=notes_cli.folder,
        env=notes_cli.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:surrogateescape"])  # the last: the C locale's
def test_output_in_an_encoding_without_the_characters_of_a_hit(notes_cli: Cli, encoding: str) -> None:
    search = [sys.executable, "-m", "pointsman", "search", "道岔", "--refuse", "never"]
    environment = {**notes_cli.environment, "PYTHONIOENCODING": encoding}
    plain, as_json = (
        subprocess.run(
            command,
            cwd=notes_cli.folder,
            env=environment,
            capture_output=True,
            encoding=encoding.partition(":")[0],
            check=True,
        )
        for command in (search, [*search, "--json"])
    )
    assert "zh.txt" in plain.stdout
    assert json.loads(as_json.stdout)["hits"] == notes_cli.json(*search[3:])["hits"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("command", ["search track", "search track --json", "keys list --json", "status"])
def test_output_to_a_full_disk_is_one_line(notes_cli: Cli, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "pointsman", *command.split()],
            cwd=notes_cli.folder, env=notes_cli.environment, stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert (process.returncode, process.stderr) == (
        1,
        "pointsman: the output cannot be written: No space left on device\n",
    )


def test_a_width_of_no_columns_is_an_unknown_width(notes_cli: Cli) -> None:
    notes_cli.environment["COLUMNS"] = "0"
    assert "notes" in notes_cli("status").stdout


def test_a_strategy_that_needs_a_model_says_what_to_set(notes_cli: Cli) -> None:
    process = notes_cli("search", "track", "--strategy", "hyde", code=2)
    assert "strategy 'hyde' cannot be used here: it needs a language model" in process.stderr
    assert "DASHSCOPE_API_KEY" in process.stderr


def test_config_and_tune(notes_cli: Cli) -> None:
    config = notes_cli.json("config")
    assert {row["name"]: row["value"] for row in config["settings"]}["bm25_k1"] == 1.2
    assert config["models"]["hyde"]["missing"]
    labels = notes_cli.folder / "labels"
    labels.mkdir()
    (labels / "queries.jsonl").write_text('{"_id": "q", "text": "track"}\n')
    (labels / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\tnone\t1\n")
    process = notes_cli("tune", "labels", "--dataset", "notes", code=2)
    assert "with fewer than 10 the default is safer" in process.stderr


@pytest.mark.parametrize("command", ["config", "status"])
def test_a_key_that_is_not_used_is_named_with_the_setting_that_uses_it(notes_cli: Cli, command: str) -> None:
    notes_cli.environment["DASHSCOPE_API_KEY"] = "s3cret"
    assert "set llm_provider to dashscope" in notes_cli(command).stdout
    assert list(notes_cli.json(command)["unused_keys"]) == ["DASHSCOPE_API_KEY"]
    notes_cli.environment["POINTSMAN_LLM_PROVIDER"] = "dashscope"
    assert not notes_cli.json(command)["unused_keys"]
    assert "s3cret" not in notes_cli(command).stdout


def test_the_summary_says_what_its_probability_is_of(notes_cli: Cli) -> None:
    output = notes_cli("search", "railway switch", "--strategy", "bm25").stdout
    assert re.search(r" hits? in .* · best hit \d+% relevant", " ".join(output.split()))


def test_a_folder_without_a_readable_file_is_a_failure(cli: Cli) -> None:
    (cli.folder / "empty").mkdir()
    (cli.folder / "empty" / ".hidden.txt").write_text("A switch.")
    process = cli("index", "empty", "--dataset", "files", code=1)
    assert "no readable files in empty" in process.stderr
    cli("index", "empty", "--dataset", "files", "--hidden")
    (cli.folder / "empty" / ".hidden.txt").unlink()
    cli("index", "empty", "--dataset", "files")  # it deletes the passage


def test_another_embedder_is_one_line_with_a_name_for_people(notes_cli: Cli) -> None:
    pytest.importorskip("openai")
    process = notes_cli("search", "track", "--embedder", "openai:small@http://127.0.0.1:9/v1", code=2)
    assert process.stderr.count("holds vectors of") == 1
    assert "is opened with 'openai:small@http://127.0.0.1:9/v1';" in process.stderr
    assert "WARNING" not in process.stderr


def test_an_embedder_that_cannot_be_reached_leaves_what_words_find(cli: Cli) -> None:
    pytest.importorskip("openai")
    process = cli("index", "docs", "-d", "notes", "--embedder", "openai:small@http://127.0.0.1:9/v1", code=1)
    assert process.stderr.endswith("; 4 passages are stored for keyword search only; index again to embed the rest\n")


def test_one_is_singular(notes_cli: Cli) -> None:
    assert "1 hit in" in notes_cli("search", "boiling", "-k", "1", "--refuse", "never").stdout
    (notes_cli.folder / "one.txt").write_text("A buffer stop.")
    assert "1 passage added" in notes_cli("index", "one.txt", "--dataset", "one").stdout
    text = notes_cli(
        "search", "buffer", "-d", "one", "--strategy", "bm25", "--refuse", "never", "--why", "nobody"
    ).stdout
    assert "1 hit in" in text


def test_a_refusal_by_min_relevance_names_that_option(notes_cli: Cli) -> None:
    text = notes_cli("search", "railway", "--strategy", "bm25", "--refuse", "never", "--min-relevance", "1").stdout
    assert "a lower --min-relevance shows more" in text
    assert "--refuse never" not in text


PAGE = (Path(__file__).parents[1] / "docs" / "cli.md").read_text("utf-8")
FORMS = PAGE.partition("## JSON forms")[2].partition("\n## ")[0]


def form_of(command: str) -> set[str]:
    """The names in the documented JSON of a command, and of those that share its block."""
    blocks = re.findall(r"^(`.*?)\n\n```text\n(.*?)```", FORMS, re.DOTALL | re.MULTILINE)
    (form,) = [form for title, form in blocks if f"`{command}`" in title]
    return set(re.findall(r'"([^"]+)"', form))


def names_in(value: Any) -> set[str]:
    """All keys, except below keys whose own keys are names of other things."""
    if isinstance(value, list):
        return {name for item in value for name in names_in(item)}
    if not isinstance(value, dict):
        return set()
    free = {"metadata", "weights", "ndcg", "gain_at_least", "values"}
    inner_names = {name for key, item in value.items() if key not in free for name in names_in(item)}
    return set(value) | inner_names


def test_the_documented_json_forms_have_the_names_that_are_printed(notes_cli: Cli) -> None:
    answer = notes_cli.json("search", "trian track", "--explain", "--why", "nobody", "--refuse", "never")
    assert names_in(answer) <= form_of("search")
    refused = notes_cli.json("search", "borscht", "--strategy", "bm25")
    assert set(refused) | {"trace", "why"} == set(answer) <= form_of("search")
    assert answer["spelling"] is None or set(answer["spelling"]) <= form_of("search")
    assert names_in(notes_cli.json("index", "docs", "--dataset", "notes")) | {"path", "reason"} == form_of("index")
    (notes_cli.folder / "answer.txt").write_text('It "guides trains" 7 times [1].')
    (notes_cli.folder / "hits.json").write_text(json.dumps(answer))
    names = names_in(notes_cli.json("text", "en.md", "--dataset", "notes"))
    names |= names_in(notes_cli.json("verify-answer", "answer.txt", "--hits", "hits.json", code=1))
    assert names == form_of("verify-answer")
    labels = notes_cli.folder / "labels"
    labels.mkdir()
    queries = [json.dumps({"_id": str(number), "text": f"railway track {number}"}) for number in range(40)]
    (labels / "queries.jsonl").write_text("\n".join(queries))
    id_ = next(hit["id"] for hit in answer["hits"] if hit["metadata"]["source"] == "en.md")
    rows = "".join(f"{number}\t{id_}\t1\n" for number in range(40))
    (labels / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    names_of_calibration = names_in(notes_cli.json("calibrate", "labels", "--dataset", "notes", "--dry-run"))
    assert names_of_calibration | names_in(notes_cli.json("calibrate", "--reset")) <= form_of("calibrate")
    assert names_in(notes_cli.json("tune", "labels", "--dataset", "notes", "--dry-run")) <= form_of("tune")


def test_json_forms_of_datasets_and_of_failures(notes_cli: Cli) -> None:
    """What can be read and what cannot have the same names."""
    form = form_of("status")
    status, [dataset] = notes_cli.json("status"), notes_cli.json("datasets")
    assert names_in(status) <= form
    assert set(dataset) <= form
    [verification] = notes_cli.json("verify").values()
    assert set(verification) <= form
    assert set(notes_cli.json("search", "track", "--prompt", "xml")) == form_of("search --prompt")
    config = notes_cli.json("config")
    assert {name for row in config["settings"] for name in row} <= form_of("config")
    path = notes_cli.folder / ".pointsman" / "datasets" / "notes" / "documents.sqlite"
    path.write_bytes(b"not a database, " * 1000)
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    [unreadable] = notes_cli.json("datasets", code=1)
    assert (set(unreadable) - {"problem"}, unreadable["name"], unreadable["description"]) == (
        set(dataset),
        "notes",
        None,
    )
    [unreadable] = notes_cli.json("status", code=1)["datasets"]
    assert set(unreadable) - {"problem"} == set(status["datasets"][0])
    assert "pointsman restore" in unreadable["problem"]


def test_search_says_why(notes_cli: Cli) -> None:
    ids = [hit["id"] for hit in notes_cli.json("search", "tea", "-k", "10", "--refuse", "never")["hits"]]
    answer = notes_cli.json("search", "tea", "-k", "1", "--refuse", "never", "--why", ids[-1], "--why", "nobody")
    assert [explanation["id"] for explanation in answer["why"]] == [ids[-1], "nobody"]
    assert answer["why"][1]["summary"] == "no dataset that was searched has a document with this id"
    text = notes_cli("search", "tea", "-k", "1", "--refuse", "never", "--why", ids[-1]).stdout
    assert "the answer has 1" in text


def test_serving_without_its_packages_says_what_to_install() -> None:
    """What ``pip install pointsman`` brings has no server."""
    code = "import sys; sys.modules['starlette'] = None; from pointsman.cli import main; main()"
    process = subprocess.run([sys.executable, "-c", code, "serve"], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "needs the package 'fastapi'; install it with: pip install 'pointsman[server]'" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_rule_is_not_drawn_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    from pointsman.cli import output

    output.console().rule("What is a fuse?", style="cyan")
    output.console(stderr=True).rule("[a] fuse")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("What is a fuse?\n", "[a] fuse\n")
