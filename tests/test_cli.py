"""The command line as scripts and people use it; each command runs in a process of its own."""

from __future__ import annotations

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

import pytest

import pointsman
from pointsman import Document, load_embedder
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
        command = [sys.executable, "-m", "pointsman", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

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
def indexed(indexed_once: Path, tmp_path: Path) -> Cli:
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
        found = cli.json("search", query, "-k", "1", "--strategy", "bm25")
        assert [hit["metadata"]["source"] for hit in found["hits"]] == [source]
        assert found["datasets"] == ["notes"]
    found = cli.json("search", "tea", "-k", "10")
    assert (found["strategy"], len(found["hits"])) == ("hybrid", 4)
    assert "alert" not in str(found)
    status = cli.json("status")["datasets"][0]
    assert status["documents"] == 4
    assert status["sequence"] == status["keyword_index_sequence"]
    assert cli.json("verify") == {
        "notes": {"documents": 4, "in_keyword_index": 4, "in_vector_index": 4, "problems": []}
    }


def test_indexing_again_touches_only_what_changed_and_removes_what_is_gone(cli: Cli) -> None:
    cli("index", "docs", "--dataset", "notes")
    again = cli.json("index", "docs", "--dataset", "notes")
    assert (again["added"], again["updated"], again["unchanged"], again["deleted"]) == (0, 0, 4, 0)
    (cli.folder / "docs" / "ru.txt").write_text("Семафор показывает машинисту путь.\n", "utf-8")
    (cli.folder / "docs" / "zh.txt").unlink()
    changed = cli.json("index", "docs", "--dataset", "notes")
    assert (changed["added"], changed["unchanged"], changed["deleted"]) == (1, 2, 2)
    assert cli.json("search", "列车", "--strategy", "bm25")["hits"] == []


def test_another_folder_in_the_same_dataset_leaves_the_first_alone(indexed: Cli) -> None:
    (indexed.folder / "more").mkdir()
    (indexed.folder / "more" / "signal.txt").write_text("A signal stands before the switch.", "utf-8")
    report = indexed.json("index", "more", "--dataset", "notes")
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
    shown = cli("index", "junk", "--dataset", "notes", code=1)
    assert "not read: a.bin: binary data" in shown.stdout
    report = cli.json("index", "junk", "--dataset", "notes", code=1)
    assert [problem["path"] for problem in report["problems"]] == ["a.bin"]


def test_passages_have_the_size_that_is_asked_for(cli: Cli) -> None:
    (cli.folder / "long").mkdir()
    (cli.folder / "long" / "a.txt").write_text("A train stops here. " * 100, "utf-8")
    large = cli.json("index", "long", "--dataset", "notes", "--technique", "keyword")["added"]
    small = cli.json("index", "long", "--dataset", "notes", "--max-tokens", "32", "--overlap", "0")["added"]
    assert small > 4 * large


def test_filters_strategies_and_explanations(indexed: Cli) -> None:
    found = indexed.json("search", "track", "--filter", 'language = "en" and kind in ["md", "txt"]', "--explain")
    assert {hit["metadata"]["kind"] for hit in found["hits"]} == {"md"}
    assert [span["stage"] for span in found["trace"]["spans"]] == [
        *("plan", "transform", "retrieve", "fuse", "fetch", "refuse")
    ]
    assert found["hits"][0]["provenance"][0]["source"] == "bm25"
    for strategy in ("bm25", "vector", "rrf", "z_score"):
        assert indexed.json("search", "track", "--strategy", strategy)["strategy"] == strategy
    text = indexed("search", "track", "--explain").stdout
    assert "Switches" in text
    assert "bm25 #1" in text


def test_delete_rebuild_and_verify(indexed: Cli) -> None:
    first = indexed.json("search", "tea", "-k", "1")["hits"][0]["id"]
    assert indexed.json("delete", first, "--dataset", "notes") == {
        "dataset": "notes",
        "deleted": 1,
        "dropped": False,
        "missing": [],
    }
    assert indexed.json("delete", "--source", "ru.txt", "--dataset", "notes")["deleted"] == 1
    assert indexed.json("rebuild") == {"rebuilt": ["notes"]}
    assert indexed.json("verify")["notes"]["documents"] == 2
    assert "dataset 'notes' with 2 documents deleted" in indexed("delete", "--all", "--dataset", "notes").stdout
    assert indexed.json("datasets") == []


def test_what_fails_and_what_reads_makes_nothing(indexed: Cli) -> None:
    """Failing commands make nothing."""
    indexed("index", "no/such/folder", "--dataset", "typo", code=2)
    (indexed.folder / "empty").mkdir()
    assert indexed.json("index", "empty", "--dataset", "typo", code=1)["documents"] == 0
    for command in ("search", "route"):
        assert "no dataset named 'typo'" in indexed(command, "x", "--dataset", "typo", code=2).stderr
    for arguments in (["delete", "--dataset", "typo", "--all"], ["verify", "typo"], ["rebuild", "typo"]):
        assert "no dataset named 'typo'" in indexed(*arguments, code=2).stderr
    assert [one["name"] for one in indexed.json("datasets")] == ["notes"]
    assert [path.name for path in (indexed.folder / ".pointsman" / "datasets").iterdir()] == ["notes"]


def test_settings_hold_for_commands(indexed: Cli) -> None:
    """Settings are obeyed: the workspace, the embedder and how to search."""
    del indexed.environment["POINTSMAN_EMBEDDER"]
    (indexed.folder / ".pointsman").rename(indexed.folder / "elsewhere")
    indexed.environment["POINTSMAN_CONFIG"] = "mine.toml"
    (indexed.folder / "mine.toml").write_text(
        'workspace = "elsewhere"\nembedder = "hashing"\ndefault_retrieval_strategy = "rrf"\n'
    )
    found = indexed.json("search", "track")
    assert (found["strategy"], found["decisions"][0]["by"]) == ("rrf", "settings")
    assert indexed.json("search", "track", "--strategy", "bm25")["strategy"] == "bm25"


def test_what_was_searched_for_instead_is_said(indexed: Cli) -> None:
    words = "\n\n".join(["A railway switch guides trains from track to track."] * 3)
    (indexed.folder / "docs" / "more.txt").write_text(words)
    indexed("index", "docs", "--dataset", "notes")
    done = indexed("search", "railway swtich")
    assert "Showing results for railway switch; --no-spelling searches for railway swtich instead." in done.stdout
    found = indexed.json("search", "railway swtich")
    assert (found["asked"], found["query"]) == ("railway swtich", "railway switch")
    assert indexed.json("search", "railway swtich", "--effort", "fast")["query"] == "railway swtich"
    nothing = indexed("search", "zzzz", "--strategy", "bm25")
    assert "No relevant results" in nothing.stdout


def test_route_shows_three_decisions_and_one_without_a_workspace(indexed: Cli) -> None:
    found = indexed.json("route", "новости channel:tech после:2024-01-01")
    assert found["heuristic"] == {"route": "hybrid", "reasons": ["filters_or_mixed_signals"]}
    assert found["plan"]["strategy"] == "hybrid"
    assert found["decision"]["datasets"] == ["notes"]
    alone = indexed.json("route", "дата создания", "--workspace", "nowhere")
    assert alone["heuristic"] == {"route": "bm25", "reasons": ["short_or_entity_numeric"]}
    assert alone["plan"] is None
    assert alone["decision"] is None
    assert "filters_or_mixed_signals" in indexed("route", "новости channel:tech после:2024-01-01").stdout


def test_eval_and_eval_select_on_a_small_collection(cli: Cli) -> None:
    folder = cli.folder / "collection"
    folder.mkdir()
    words = {"weather": "forecast rain sun temperature", "music": "play song album band", "maps": "route drive map way"}
    corpus = [{"_id": name, "title": name, "text": text} for name, text in words.items()]
    queries = [{"_id": name, "text": text.split()[1]} for name, text in words.items()]
    for file, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    judged = "".join(f"{name}\t{name}\t1\n" for name in words)
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", "utf-8")
    report = cli.json("eval", "collection", "--strategies", "bm25,hybrid")
    assert (report["dataset"], report["documents"], report["queries"]) == ("collection", 3, 3)
    assert report["strategies"]["bm25"]["ndcg@10"] == 1.0
    assert set(report["strategies"]["hybrid"]) == {"ndcg@10", "recall@10", "recall@100", "mrr@10", "latency_ms"}
    [selected] = cli.json("eval-select", "collection", "--selector", "description")
    assert selected["accuracy@1"] == 1.0
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
    (["delete", "--dataset", "notes"], "give ids, --source PATH or --all"),
    (["search", "x", "--embedder", "telepathy"], "telepathy"),
    (["eval", "docs"], "corpus.jsonl"),
    (["eval-select", "docs"], "docs"),
    (["eval-select", "docs", "--selector", "oracle"], "no selector named 'oracle'"),
    (["route", "x", "--dataset", "nonsense"], "no dataset named 'nonsense'"),
    (["search", "x", "-k", "0"], "-k"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT, ids=lambda value: " ".join(value)[:40])
def test_bad_input_is_exit_2_and_one_clear_line(indexed: Cli, arguments: list[str], message: str) -> None:
    done = indexed(*arguments, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


THROUGH_NO_SERVICE = [
    *("rebuild", "verify --repair", "verify --repair notes", "tune docs -d notes", "calibrate --reset", "keys list"),
    *("backup there", "restore there", "detach notes", "mcp", "serve", "demo", "eval docs"),
    "attach orders faiss:x --table x --id id --text text",
]


@pytest.mark.parametrize("command", THROUGH_NO_SERVICE)
def test_what_does_not_work_through_a_service_is_refused_at_once(indexed: Cli, command: str) -> None:
    done = indexed(*command.split(), "--workspace", "http://127.0.0.1:9", code=2)
    assert re.search(r"^pointsman: (this command cannot .* through a service|http://127.0.0.1:9 is )", done.stderr)
    assert "pointsman copy" not in done.stderr  # which does not take a service either


def test_an_evaluation_that_cannot_be_kept_is_refused_before_it_runs(indexed: Cli) -> None:
    (indexed.folder / "file").write_text("no workspace")
    done = indexed("eval", "no-collection", "--workspace", "file", code=2)
    assert "file is not a workspace" in done.stderr


def test_an_empty_path_is_not_the_current_folder(indexed: Cli) -> None:
    assert "a path is empty" in indexed("index", "", "--dataset", "notes", code=2).stderr


def test_a_file_that_must_not_be_read_does_not_stop_the_others(indexed: Cli) -> None:
    (indexed.folder / "docs" / "en.md").chmod(0)
    command = [sys.executable, "-m", "pointsman", "index", "docs/en.md", "docs/ru.txt", "-d", "new"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything here")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    done = subprocess.run(
        command, cwd=indexed.folder, env=indexed.environment, capture_output=True, text=True, check=True
    )
    assert "1 passage added" in done.stdout
    assert "not read: en.md: cannot be read: Permission denied" in done.stdout


@pytest.mark.parametrize("command", ["status -w", "search track -w", "route track -w", "keys list -w", "backup"])
def test_a_place_that_must_not_be_looked_into_is_one_line(indexed: Cli, command: str) -> None:
    (indexed.folder / "closed").mkdir(mode=0)
    code, _, errors = with_rights(run_here, indexed.folder, f"{command} closed/place")
    assert code == 1
    assert re.fullmatch(r"pointsman: \S*closed/place\S* cannot be read or written to: Permission denied.*\n", errors)


def run_here(folder: Path, command: str) -> tuple[object, str, str]:
    """Run a command in this process; return its exit code and what it printed to standard output and error."""
    from pointsman.cli import main

    os.chdir(folder)
    sys.argv = ["pointsman", *command.split()]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as errors:
        try:
            main()
        except SystemExit as stop:
            return stop.code or 0, out.getvalue(), errors.getvalue()
    return 0, out.getvalue(), errors.getvalue()


def test_a_single_path_that_is_no_file_is_named(cli: Cli) -> None:
    os.mkfifo(cli.folder / "pipe.txt")
    assert "not read: pipe.txt: not a regular file" in cli("index", "pipe.txt", "-d", "notes", code=1).stdout


def test_problems_of_files_stay_on_one_line(cli: Cli) -> None:
    (cli.folder / "junk").mkdir()
    name = "a long name of a file with words " * 4 + ".docx"
    (cli.folder / "junk" / name).write_bytes(b"PK")
    assert f"not read: {name}: damaged Word document: " in cli("index", "junk", "-d", "notes", code=1).stdout


NO_HITS = {
    "[" * 100_000: "maximum recursion depth",
    '{"hits": [{"id": "a"}]}': "it lacks 'excerpt'",
    "[]": "is not output of",
}


@pytest.mark.parametrize("text", NO_HITS, ids=list(NO_HITS.values()))
def test_a_file_without_hits_is_one_line(cli: Cli, text: str) -> None:
    (cli.folder / "hits.json").write_text(text)
    done = cli("verify-answer", "docs/en.md", "--hits", "hits.json", code=2)
    assert NO_HITS[text] in done.stderr
    assert "Traceback" not in done.stderr


def test_an_answer_on_standard_input_is_utf_8_in_every_locale(indexed: Cli) -> None:
    (indexed.folder / "hits.json").write_text(indexed("search", "道岔", "--json").stdout, "utf-8")

    def verified(answer: bytes | None) -> subprocess.CompletedProcess[bytes]:
        close = "" if answer is not None else " <&-"
        command = f"exec {sys.executable} -m pointsman verify-answer - --hits hits.json{close}"
        environment = {**indexed.environment, "PYTHONIOENCODING": "ascii:strict"}
        return subprocess.run(
            ["bash", "-c", command], cwd=indexed.folder, env=environment, input=answer, capture_output=True, check=False
        )

    assert verified("“道岔使列车由一股道转入另一股道” [1]".encode()).returncode == 0
    broken = verified(b'"\xff"')
    assert (broken.returncode, broken.stderr.startswith(b"pointsman: standard input is not UTF-8")) == (2, True)
    remedy = b"write the text after the command, or name a file"
    assert verified(None).stderr == b"pointsman: standard input is closed; " + remedy + b"\n"


def test_a_damaged_truth_is_exit_1_and_says_what_to_do(indexed: Cli) -> None:
    path = indexed.folder / ".pointsman" / "datasets" / "notes" / "documents.sqlite"
    path.write_bytes(b"not a database, " * 1000)
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    done = indexed("search", "x", code=1)
    assert "restore it from a backup" in done.stderr


def test_a_workspace_of_an_unknown_format_is_refused(indexed: Cli) -> None:
    (indexed.folder / ".pointsman" / "workspace.json").write_text('{"format": 99}')
    assert "format 99" in indexed("search", "x", code=1).stderr


def test_markup_and_escapes_in_documents_and_queries_are_text(cli: Cli) -> None:
    text = "[bold red]not markup[/] [link=file:///etc]x[/link] \x1b[31mred"
    with pointsman.open(cli.folder / ".pointsman", embedder=load_embedder("hashing")) as workspace:
        workspace.dataset("notes").add([Document("[dim]id\x1b[31m", text, {"title": "[b]title\x1b[31m"})])
    out = cli("search", "[bold red]not markup[/]", "--explain").stdout
    assert "[bold red]not markup[/]" in out
    assert "\x1b[31m" not in out


def test_output_to_a_closed_pipe_is_no_failure(indexed: Cli) -> None:
    search = f"{sys.executable} -m pointsman search track --json"
    program = f"{search} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", program],
        cwd=indexed.folder,
        env=indexed.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_in_an_encoding_without_the_characters_of_a_hit(indexed: Cli, encoding: str) -> None:
    search = [sys.executable, "-m", "pointsman", "search", "道岔", "--no-refuse"]
    environment = {**indexed.environment, "PYTHONIOENCODING": encoding}
    plain, as_json = (
        subprocess.run(command, cwd=indexed.folder, env=environment, capture_output=True, encoding=encoding, check=True)
        for command in (search, [*search, "--json"])
    )
    assert "zh.txt" in plain.stdout
    assert json.loads(as_json.stdout)["hits"] == indexed.json(*search[3:])["hits"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("command", ["search track", "search track --json", "keys list --json", "status"])
def test_output_to_a_full_disk_is_one_line(indexed: Cli, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pointsman", *command.split()],
            cwd=indexed.folder, env=indexed.environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "pointsman: the output cannot be written: No space left on device\n")


def test_a_width_of_no_columns_is_an_unknown_width(indexed: Cli) -> None:
    indexed.environment["COLUMNS"] = "0"
    assert "notes" in indexed("status").stdout


def test_a_strategy_that_needs_a_model_says_what_to_set(indexed: Cli) -> None:
    done = indexed("search", "track", "--strategy", "hyde", code=2)
    assert "strategy 'hyde' cannot be used here: it needs a language model" in done.stderr
    assert "DASHSCOPE_API_KEY" in done.stderr


def test_config_and_tune(indexed: Cli) -> None:
    found = indexed.json("config")
    assert {row["name"]: row["value"] for row in found["settings"]}["bm25_k1"] == 1.2
    assert found["models"]["hyde"]["missing"]
    labels = indexed.folder / "labels"
    labels.mkdir()
    (labels / "queries.jsonl").write_text('{"_id": "q", "text": "track"}\n')
    (labels / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\tnone\t1\n")
    done = indexed("tune", "labels", "--dataset", "notes", code=2)
    assert "with fewer than 10 the default is safer" in done.stderr


def test_the_summary_says_what_its_probability_is_of(indexed: Cli) -> None:
    out = indexed("search", "railway switch", "--strategy", "bm25").stdout
    assert re.search(r" hits? in .* · best hit \d+% relevant", " ".join(out.split()))


def test_a_folder_without_a_readable_file_is_a_failure(cli: Cli) -> None:
    (cli.folder / "empty").mkdir()
    (cli.folder / "empty" / ".hidden.txt").write_text("A switch.")
    done = cli("index", "empty", "--dataset", "files", code=1)
    assert "no readable files in empty; hidden files and folders are skipped, unless you give --hidden" in done.stderr
    cli("index", "empty", "--dataset", "files", "--hidden")
    (cli.folder / "empty" / ".hidden.txt").unlink()
    cli("index", "empty", "--dataset", "files")  # it deletes the passage


def test_another_embedder_is_one_line_with_a_name_for_people(indexed: Cli) -> None:
    pytest.importorskip("openai")
    done = indexed("search", "track", "--embedder", "openai:small@http://127.0.0.1:9/v1", code=2)
    assert done.stderr.count("holds vectors of") == 1
    assert "is opened with 'openai:small@http://127.0.0.1:9/v1';" in done.stderr
    assert "WARNING" not in done.stderr


def test_an_embedder_that_cannot_be_reached_leaves_what_words_find(cli: Cli) -> None:
    pytest.importorskip("openai")
    done = cli("index", "docs", "-d", "notes", "--embedder", "openai:small@http://127.0.0.1:9/v1", code=1)
    assert done.stderr.endswith("; 4 passages are stored for keyword search only; index again to embed the rest\n")


def test_one_is_singular(indexed: Cli) -> None:
    assert "1 hit in" in indexed("search", "boiling", "-k", "1", "--no-refuse").stdout
    (indexed.folder / "one.txt").write_text("A buffer stop.")
    assert "1 passage added" in indexed("index", "one.txt", "--dataset", "one").stdout
    text = indexed("search", "buffer", "-d", "one", "--strategy", "bm25", "--no-refuse", "--why", "nobody").stdout
    assert "1 hit in" in text


def test_a_refusal_by_min_relevance_names_that_option(indexed: Cli) -> None:
    text = indexed("search", "railway", "--strategy", "bm25", "--no-refuse", "--min-relevance", "1").stdout
    assert "a lower --min-relevance shows more" in text
    assert "--no-refuse" not in text


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
    free = {"metadata", "weights", "ndcg", "gain_at_least"}
    below = {name for key, item in value.items() if key not in free for name in names_in(item)}
    return set(value) | below


def test_the_documented_json_forms_have_the_names_that_are_printed(indexed: Cli) -> None:
    found = indexed.json("search", "trian track", "--explain", "--why", "nobody", "--no-refuse")
    assert names_in(found) <= form_of("search")
    refused = indexed.json("search", "borscht", "--strategy", "bm25")
    assert set(refused) | {"trace", "why"} == set(found) <= form_of("search")
    assert found["spelling"] is None or set(found["spelling"]) <= form_of("search")
    assert names_in(indexed.json("index", "docs", "--dataset", "notes")) | {"path", "reason"} == form_of("index")
    (indexed.folder / "answer.txt").write_text('It "guides trains" 7 times [1].')
    (indexed.folder / "hits.json").write_text(json.dumps(found))
    shown = names_in(indexed.json("text", "en.md", "--dataset", "notes"))
    shown |= names_in(indexed.json("verify-answer", "answer.txt", "--hits", "hits.json", code=1))
    assert shown == form_of("verify-answer")
    labels = indexed.folder / "labels"
    labels.mkdir()
    queries = [json.dumps({"_id": str(number), "text": f"railway track {number}"}) for number in range(40)]
    (labels / "queries.jsonl").write_text("\n".join(queries))
    id_ = next(hit["id"] for hit in found["hits"] if hit["metadata"]["source"] == "en.md")
    rows = "".join(f"{number}\t{id_}\t1\n" for number in range(40))
    (labels / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    calibrated = names_in(indexed.json("calibrate", "labels", "--dataset", "notes", "--dry-run"))
    assert calibrated | names_in(indexed.json("calibrate", "--reset")) <= form_of("calibrate")
    assert names_in(indexed.json("tune", "labels", "--dataset", "notes", "--dry-run")) <= form_of("tune")


def test_json_forms_of_datasets_and_of_failures(indexed: Cli) -> None:
    """What can be read and what cannot have the same names."""
    known = form_of("status")
    status, [listed] = indexed.json("status"), indexed.json("datasets")
    assert names_in(status) <= known
    assert set(listed) <= known
    [repaired] = indexed.json("verify", "--repair").values()
    assert set(repaired) <= known
    assert set(indexed.json("search", "track", "--prompt", "xml")) == form_of("search --prompt")
    config = indexed.json("config")
    assert {name for row in config["settings"] for name in row} <= form_of("config")
    path = indexed.folder / ".pointsman" / "datasets" / "notes" / "documents.sqlite"
    path.write_bytes(b"not a database, " * 1000)
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    [unread] = indexed.json("datasets", code=1)
    assert (set(unread) - {"problem"}, unread["name"], unread["description"]) == (set(listed), "notes", None)
    [unread] = indexed.json("status", code=1)["datasets"]
    assert set(unread) - {"problem"} == set(status["datasets"][0])
    assert "restore it from a backup" in unread["problem"]


def test_search_says_why(indexed: Cli) -> None:
    ids = [hit["id"] for hit in indexed.json("search", "tea", "-k", "10", "--no-refuse")["hits"]]
    found = indexed.json("search", "tea", "-k", "1", "--no-refuse", "--why", ids[-1], "--why", "nobody")
    assert [one["id"] for one in found["why"]] == [ids[-1], "nobody"]
    assert found["why"][1]["verdict"] == "no dataset that was searched has a document with this id"
    text = indexed("search", "tea", "-k", "1", "--no-refuse", "--why", ids[-1]).stdout
    assert "the answer has 1" in text


def test_serving_without_its_packages_says_what_to_install() -> None:
    """What ``pip install pointsman`` brings has no server."""
    code = "import sys; sys.modules['starlette'] = None; from pointsman.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "serve"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs the package 'fastapi'; install it with: pip install 'pointsman[server]'" in done.stderr
    assert "Traceback" not in done.stderr
