"""Routes are counted once, whichever door asks, and `status` and the metrics tell the same counts."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import pointsman
from pointsman import Document, UnknownNameError, Workspace
from pointsman.cli.core_commands import app
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.mcp import create_server
from pointsman.selector.route_counts import RouteCounts
from pointsman.service.server import create_app
from pointsman.text.grammar.route_words import RouteByWords
from serving import serving
from test_mcp import answer, call

SHORT = {"route": "bm25", "reason": "short_or_entity_numeric"}
LONG = {"route": "dense", "reason": "conversational_or_long"}


@pytest.fixture
def workspace(tmp_path: Path) -> Any:
    with pointsman.open(tmp_path / "ws", embedder=HashingEmbedder()) as workspace:
        for name in ("rails", "bread"):
            workspace.dataset(name).add([Document("a", f"a text on {name}")])
        yield workspace


def test_every_door_counts_once_and_tells(workspace: Workspace) -> None:
    with serving(create_app(workspace)) as base, pointsman.open(base) as client:
        workspace.route("дата создания")
        client.route("дата создания", ["rails"])
        client.route("why does a rail bend?", ["rails"])
        server = create_server(workspace)
        call(server, "route", query="дата создания", datasets=["rails"])
        assert CliRunner().invoke(app, ["route", "为什么天空是蓝色的", "--workspace", base]).exit_code == 0
        counts = {
            "rails": [{**SHORT, "queries": 3}, {**LONG, "queries": 2}],
            "bread": [{**SHORT, "queries": 1}, {**LONG, "queries": 1}],
        }
        assert {name: workspace.status(name)["routes"] for name in counts} == counts
        assert {name: client.status(name)["routes"] for name in counts} == counts
        mcp_answer = answer(call(server, "list_datasets"))["datasets"]
        assert {dataset["name"]: dataset["routes"] for dataset in mcp_answer} == counts
        printed_form = json.loads(CliRunner().invoke(app, ["status", "--json", "--workspace", base]).stdout)
        assert {dataset["name"]: dataset["routes"] for dataset in printed_form["datasets"]} == counts
        table = CliRunner().invoke(app, ["status", "--workspace", base]).stdout
        assert "rails, routes: 3 bm25 (short_or_entity_numeric), 2 dense (conversational_or_long)" in table
        metrics = httpx.get(f"{base}/metrics").text
    assert 'pointsman_routes_total{reason="short_or_entity_numeric",route="bm25"} 3.0' in metrics
    assert 'pointsman_routes_total{reason="conversational_or_long",route="dense"} 2.0' in metrics


def test_what_fails_is_not_counted_and_what_is_dropped_is_forgotten(workspace: Workspace) -> None:
    with pytest.raises(UnknownNameError):
        workspace.route("rail", ["unknown"])
    assert workspace.route_counts.rows() == []
    workspace.route("rail")
    workspace.drop("rails")
    workspace.dataset("rails").add([Document("a", "anew")])
    assert workspace.status("rails")["routes"] == []
    assert workspace.route_counts.rows() == [{**SHORT, "queries": 1}]


def test_rules_of_ones_own_are_counted_by_their_reason(tmp_path: Path) -> None:
    settings = pointsman.Settings(route_rules=(RouteByWords(("invoice",), "bm25", "счета"),))
    with pointsman.open(tmp_path, embedder=HashingEmbedder(), settings=settings) as workspace:
        workspace.dataset("notes").add([Document("a", "an invoice")])
        workspace.route("why was this invoice sent so late?")
        assert workspace.status("notes")["routes"] == [{"route": "bm25", "reason": "счета", "queries": 1}]


def test_threads_count_all_and_kinds_are_bounded() -> None:
    counts = RouteCounts()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: counts.count({"route": "bm25", "reasons": ["a", "b"]}, ["x", "x"]), range(4000)))
    assert {row["queries"] for row in counts.rows("x") + counts.rows()} == {4000}
    for number in range(5000):
        counts.count({"route": "dense", "reasons": [f"reason {number}"]}, [f"dataset {number}"])
    rows = counts.rows()
    assert len(rows) < 1000
    assert rows[0] == {"route": "dense", "reason": "other", "queries": 5002 - len(rows) + 1}
    assert sum(row["queries"] for row in rows) == 13_000
