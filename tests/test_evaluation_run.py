"""Evaluating: what is asked, what is counted, what is timed, and what is left behind."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import pointsman
from pointsman import RetrievalWorkflow, Settings, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation import evaluate, evaluate_workspace, read_collection, render
from pointsman.llm.scripted_llm import ScriptedLLM
from pointsman.retrieval.refine.rerank import BaseReranker
from pointsman.tools.errors import InputError, RetrievalError, UnknownNameError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.values.retrieval_context import RetrievalContext

DATA = Path(os.environ.get("POINTSMAN_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
COSTS = ["latency_ms", "latency_without_embedding_ms", "llm"]
WORDS = ["signal", "points", "crossing", "platform", "timetable", "freight", "shunter", "gauge", "sleeper", "viaduct"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten documents, each the only answer to the question for its word."""
    folder = tmp_path / "railway [red]"
    folder.mkdir()
    corpus = [{"_id": f"d{n}", "title": word, "text": f"All about the {word}."} for n, word in enumerate(WORDS)]
    queries = [{"_id": f"q{n}", "text": f"what is a {word}"} for n, word in enumerate(WORDS)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judgments = "".join(f"q{n}\td{n}\t1\n" for n in range(len(WORDS)))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + judgments)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_CACHE", str(tmp_path / "cache"))


class Counting(HashingEmbedder):
    """Remembers what it was asked to embed."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[str] = []
        self.documents: list[str] = []

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.queries += texts
        return super().embed_queries(texts)

    def embed_documents(
        self, texts: Sequence[str], *, on_progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        self.documents += texts
        return super().embed_documents(texts, on_progress=on_progress)


class Untouchable(HashingEmbedder):
    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise AssertionError("words alone need no vectors")

    def embed_documents(
        self, texts: Sequence[str], *, on_progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        raise AssertionError("words alone need no vectors")


def test_the_report_as_json_is_what_scripts_rely_on(folder: Path) -> None:
    report = evaluate(folder, embedder=HashingEmbedder()).to_json()
    assert json.loads(json.dumps(report)) == report
    assert {name: report[name] for name in ("dataset", "documents", "queries")} == {
        "dataset": "railway [red]",
        "documents": 10,
        "queries": 10,
    }
    assert list(report) == ["dataset", "documents", "queries", "strategies"]
    assert list(report["strategies"]) == ["bm25", "vector", "hybrid", "auto"]
    for figures in report["strategies"].values():
        assert list(figures) == [
            *(f"{name}@10" for name in ("ndcg", "recall")),
            "recall@100",
            "precision@10",
            "mrr@10",
            *COSTS,
        ]
        assert list(figures["latency_ms"]) == ["p50", "p95"]
        assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p95"]
        assert figures["latency_without_embedding_ms"]["p50"] <= figures["latency_ms"]["p50"]
        assert figures["precision@10"] == pytest.approx(figures["recall@10"] / 10)
        assert figures["llm"] == {"calls": 0, "tokens": 0}
    assert report["strategies"]["bm25"]["ndcg@10"] == 1  # the word is in one document alone


def test_figures_are_rounded_in_json_alone(folder: Path) -> None:
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\tgone\t1\nq2\tgone\t1\n")
    report = evaluate(folder, ["bm25"])
    assert report.strategies["bm25"].measures["ndcg@10"] == pytest.approx(1 / 3, abs=1e-12)
    assert report.to_json()["strategies"]["bm25"]["ndcg@10"] == 0.3333
    assert report.strategies["bm25"].per_query == {"q0": 1, "q1": 0, "q2": 0}


def test_another_cutoff_has_other_names(folder: Path) -> None:
    (figures,) = evaluate(folder, ["bm25"], k=3).to_json()["strategies"].values()
    assert list(figures) == ["ndcg@3", "recall@3", "recall@100", "precision@3", "mrr@3", *COSTS]


def test_a_cutoff_beyond_the_usual_depth_is_searched_for(folder: Path) -> None:
    rows = [{"_id": f"more{n}", "text": "signal signal signal"} for n in range(120)]
    with (folder / "corpus.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    (strategy_report,) = evaluate(folder, ["bm25"], k=200, limit_queries=1).strategies.values()
    assert strategy_report.measures["recall@100"] == 0
    assert strategy_report.measures["recall@200"] == 1


def test_the_first_queries_are_asked(folder: Path) -> None:
    report = evaluate(folder, ["bm25"], limit_queries=3)
    assert report.queries == 3
    assert list(report.strategies["bm25"].per_query) == ["q0", "q1", "q2"]


def test_auto_and_fusion_methods_are_strategies(folder: Path) -> None:
    report = evaluate(folder, ["auto", "hybrid", "rrf", "z_score"], embedder=HashingEmbedder())
    assert list(report.strategies) == ["auto", "hybrid", "rrf", "z_score"]
    assert report.strategies["auto"].measures == report.strategies["hybrid"].measures


def test_unknown_strategies_and_senseless_numbers_are_refused_before_any_work(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(UnknownNameError, match=r"no strategy named 'magic'.*bm25"):
        evaluate(nowhere, ["bm25", "magic"])
    with pytest.raises(InputError, match="no strategy to evaluate"):
        evaluate(nowhere, [])
    with pytest.raises(InputError, match="from 1 up"):
        evaluate(nowhere, k=0)
    with pytest.raises(InputError, match="does not exist; name a folder"):
        evaluate(nowhere)


def test_words_alone_load_no_model(folder: Path) -> None:
    assert evaluate(folder, ["bm25"], embedder=Untouchable()).strategies["bm25"].measures["ndcg@10"] == 1


def test_nothing_is_left_behind(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    evaluate(folder, ["bm25", "hybrid"], embedder=HashingEmbedder())
    assert not list(scratch.iterdir())
    with pytest.raises(RetrievalError, match="no vectors"):
        evaluate(folder, ["vector"], embedder=Untouchable())
    assert not list(scratch.iterdir())


def test_a_second_run_embeds_no_document_again(folder: Path) -> None:
    first, second = Counting(), Counting()
    evaluate(folder, ["vector"], embedder=first)
    evaluate(folder, ["vector"], embedder=second)
    assert len(first.documents) == 10
    assert second.documents == []


def test_latency_holds_the_embedding_of_every_query_timed(folder: Path) -> None:
    embedder = Counting()
    evaluate(folder, ["hybrid"], embedder=embedder)  # now every query is in the cache
    embedder.queries.clear()
    report = evaluate(folder, ["hybrid", "vector"], embedder=embedder)
    for query in report.strategies["hybrid"].per_query:
        assert embedder.queries.count(f"what is a {WORDS[int(query[1:])]}") == 2  # for each strategy's timing


class Unhurried(HashingEmbedder):
    """Takes a while for each query."""

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        time.sleep(0.05)
        return super().embed_queries(texts)


def test_latency_is_told_with_the_embedding_and_without(folder: Path) -> None:
    embedder = Unhurried()
    for name, figures in evaluate(folder, ["bm25", "vector"], embedder=embedder, limit_queries=3).strategies.items():
        difference = figures.p50 - figures.without_embedding[0]
        assert (difference >= 50) == (name == "vector")


def test_a_row_with_the_reranker_is_measured_with_it_and_the_others_as_asked(folder: Path, tmp_path: Path) -> None:
    collection = read_collection(folder)
    workflow = RetrievalWorkflow(reranker=FewestSharedWords())
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder(), workflow=workflow) as workspace:
        workspace.dataset("railway").add(collection.documents)
        rows = ["hybrid", "hybrid+rerank"]
        strategies = evaluate_workspace(
            workspace, collection, rows, timed_with=HashingEmbedder(), rerank=False
        ).strategies
    assert [strategies[name].measures["mrr@10"] > 0.9 for name in rows] == [True, False]
    with pytest.raises(UnknownNameError, match="magic"):
        evaluate(folder, "magic+rerank")
    with pytest.raises(UnknownNameError, match="all"):
        evaluate(folder, "all+rerank")


def test_calls_and_tokens_of_a_model_are_counted(folder: Path, tmp_path: Path) -> None:
    collection = read_collection(folder).first(2)
    llm = ScriptedLLM(lambda _: "It is about a signal.")
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder(), llm=llm) as workspace:
        workspace.dataset("railway").add(collection.documents)
        report = evaluate_workspace(workspace, collection, ["hyde", "bm25"], timed_with=HashingEmbedder())
    hyde = report.strategies["hyde"]
    assert hyde.llm_calls == 1
    assert hyde.llm_tokens > 10
    assert report.to_json()["strategies"]["hyde"]["llm"]["calls"] == 1
    assert report.strategies["bm25"].llm_calls == 0


class ChatServer(BaseHTTPRequestHandler):
    """Answers every question in OpenAI's form."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "It is about a signal."}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
        form = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        answer = json.dumps(form).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def test_a_folder_finds_the_model_that_the_settings_name(folder: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), ChatServer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        settings = Settings(llm_base_url=f"http://127.0.0.1:{server.server_port}/v1", llm_model="m")
        report = evaluate(folder, "hyde", embedder=HashingEmbedder(), limit_queries=2, settings=settings)
        server.shutdown()
    assert (report.strategies["hyde"].llm_calls, report.strategies["hyde"].llm_tokens) == (1, 42)
    with pytest.raises(InputError, match="'hyde' cannot be used here: it needs a language model"):
        evaluate(folder, "hyde", embedder=HashingEmbedder())


def test_progress_ends_where_it_should(folder: Path) -> None:
    steps: list[tuple[int, int, str]] = []
    evaluate(folder, ["bm25"], embedder=HashingEmbedder(), on_progress=lambda *step: steps.append(step))
    last = {stage: (count, total) for count, total, stage in steps}
    assert last == {"indexing": (10, 10), "bm25: asking": (10, 10), "bm25: timing": (10, 10)}
    assert all(0 <= count <= total for count, total, _ in steps)


def test_strategies_may_be_one_string(folder: Path) -> None:
    assert list(evaluate(folder, " bm25, vector,", embedder=HashingEmbedder()).strategies) == ["bm25", "vector"]


class FewestSharedWords(BaseReranker):
    """Puts the best document last."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        words = set(query.split())
        return [-float(len(words & set(text.lower().replace(".", " ").split()))) for text in texts]


def test_rankings_are_measured_after_the_reranker_that_is_given_and_without_one_if_it_is_off(
    folder: Path, tmp_path: Path
) -> None:
    collection = read_collection(folder)
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("railway").add(collection.documents)
        worst, off = (
            evaluate_workspace(workspace, collection, ["hybrid"], timed_with=HashingEmbedder(), rerank=rerank)
            for rerank in (FewestSharedWords(), False)
        )
    assert worst.strategies["hybrid"].measures["mrr@10"] < 0.2
    assert off.strategies["hybrid"].measures["mrr@10"] > 0.9


def test_the_table_shows_every_figure_and_takes_no_name_for_markup(folder: Path) -> None:
    rows = ["bm25", "vector", "hybrid+rerank"]
    report = evaluate(folder, rows, embedder=HashingEmbedder())
    for compared, headings in ((False, ["@100", "precision", "mrr"]), (True, ["against", "p"])):
        output = StringIO()
        Console(width=80, file=output).print(render(replace(report, compared=compared)))
        table = output.getvalue()
        assert "railway [red]: 10 documents, 10 queries" in table
        for text in (*rows, "ndcg", "recall", "p50", "bedding", "1.0000", *headings):
            assert text in table
        assert "…" not in table, "everything fits into 80 columns"
        assert "tokens" not in table, "no model was asked"


def test_each_question_goes_where_router_select_sends_it_and_is_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [word if n % 2 else f"why is the {word}" for n, word in enumerate(WORDS)]
    rows = [json.dumps({"_id": f"q{n}", "text": text}) for n, text in enumerate(texts)]
    (folder / "queries.jsonl").write_text("\n".join(rows))
    strategies_by_query: dict[str, set[str]] = {}
    search = Workspace.search

    def search_and_record(workspace: Workspace, query: str, **options: Any) -> RetrievalContext:
        context = search(workspace, query, **options)
        strategies_by_query.setdefault(query, set()).add(context.plan.strategy)
        return context

    monkeypatch.setattr(Workspace, "search", search_and_record)
    report = evaluate(folder, ["router_select", "router_select+rerank"], embedder=HashingEmbedder())
    routes = report.to_json()["strategies"]["router_select"]["routes"]
    question_counts = [("bm25", "short_or_entity_numeric", 5), ("dense", "conversational_or_long", 5)]
    assert [tuple(row.values()) for row in routes] == question_counts
    assert [strategies_by_query[text] for text in texts] == [{"vector"}, {"bm25"}] * 5
    output = StringIO()
    Console(width=80, file=output).print(render(report))
    assert "router_select: 5 dense (conversational_or_long)" in output.getvalue()

    strategies_by_query.clear()
    rules: Any = [{"words": ["why", *WORDS], "route": "hybrid", "reason": "mine [red]"}]
    settings = Settings(route_rules=rules)
    by_rules = evaluate(folder, ["router_select", "bm25"], embedder=HashingEmbedder(), settings=settings)
    assert [strategies_by_query[text] for text in texts] == [{"hybrid", "bm25"}] * 10
    assert by_rules.strategies["router_select"].routes == {("hybrid", "mine [red]"): 10}
    assert "routes" not in by_rules.to_json()["strategies"]["bm25"]
    Console(width=80, file=output).print(render(by_rules))
    assert "(mine [red])" in output.getvalue()


@pytest.mark.skipif(not (DATA / "ru_faq_java").is_dir(), reason=f"no test collections in {DATA}")
def test_bm25_on_a_real_collection_is_as_good_as_it_should_be() -> None:
    report = evaluate(DATA / "ru_faq_java", ["bm25"]).to_json()
    assert (report["documents"], report["queries"]) == (643, 643)
    assert report["strategies"]["bm25"]["ndcg@10"] >= 0.652 - 0.01  # what bm25s has here
