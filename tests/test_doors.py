"""Every door gives the same answer: nine ways to ask for the same search, with the same settings.

A few dozen requests here; ``python benchmarks/doors.py`` puts a thousand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

import pointsman
from doors_kit import SETTINGS, WITH_MODEL, Asked, World, fill, requests, world
from pointsman.cli.core_commands import app
from pointsman.values.reasons import messages

PLAIN = Asked("what stops a train?", 5, None, "auto", None, None, None, "balanced")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("doors") / "work"
    fill(path)
    return path


@pytest.fixture(scope="module", params=SETTINGS)
def doors(request: pytest.FixtureRequest, folder: Path) -> Iterator[World]:
    with world(folder, request.param) as doors:
        yield doors


@pytest.fixture(scope="module")
def usual(folder: Path) -> Iterator[World]:
    with world(folder, "default") as usual_doors:
        yield usual_doors


def test_doors_agree_on_random_requests(doors: World) -> None:
    """Ids, scores to the last bit, refusals, strategies, corrected queries, and the kind of every error."""
    assert [line for request in islice(requests(12), 8) for line in doors.differences(request)] == []


def test_all_nine_doors_take_part(usual: World) -> None:
    request = Asked("railway swtich", 3, ("rails",), "auto", "year >= 2010", True, False, "balanced")
    assert len(usual.answers(request)) == 9
    assert usual.differences(request) == []
    expected = usual.doors["Workspace.search"](request)
    assert expected is not None
    assert len(expected.hits) == 3


@pytest.mark.parametrize("datasets", [("rails",), None])
def test_all_nine_doors_group_alike(usual: World, datasets: tuple[str, ...] | None) -> None:
    request = Asked("railway signal", 9, datasets, "auto", None, None, False, "balanced", group_by="lang")
    assert usual.differences(request) == []
    for name, answer in usual.answers(request).items():
        assert len(answer.hits) == 3, name
    assert len(usual.answers(request)) == (9 if datasets else 8)


def test_the_command_line_in_a_process_of_its_own(usual: World) -> None:
    refused = Asked("zzzz qqqq", 5, None, "bm25", None, None, None, "fast")
    bad_request = Asked("tea", 5, None, "hybird", None, None, None, "fast")
    for request in (PLAIN, refused, bad_request):
        expected, answer = usual.doors["Workspace.search"](request), usual.by_process(request)
        assert expected is not None
        assert expected.same(answer)


@pytest.mark.parametrize(("kind", "strategies"), [
    ("default", {"hybrid"}), ("a strategy", {"rrf"}), ("no choice", {"hybrid"}), ("by the look", {"decomposition"}),
    ("short excerpts", {"compression"}), (WITH_MODEL, {"decomposition"}),
])  # fmt: skip
def test_every_door_obeys_the_settings(folder: Path, kind: str, strategies: set[str]) -> None:
    """What a request leaves open, the settings decide, at every door."""
    request = Asked("compare green tea and black tea", 5, None, "auto", None, None, False, "balanced")
    with world(folder, kind) as doors:
        answers = doors.answers(request)
    assert {answer.strategy for answer in answers.values()} == strategies
    assert len(answers) >= 6


def test_settings_that_change_an_answer_change_it_at_every_door(folder: Path) -> None:
    """The parameters of BM25, and of strategies."""
    compound = "compare trains, a red signal, the yard of the city and green tea"
    plain = Asked(compound, 20, ("rails",), "auto", None, None, False, "fast")
    changes = (("a strategy", "bm25"), ("by the look", "multi_query"), ("by the look", "decomposition"))
    for kind, strategy in (*changes, ("short excerpts", "compression")):
        request = replace(plain, strategy=strategy)
        with world(folder, "default") as usual:
            usual_answers = usual.answers(request)
        with world(folder, kind) as other_doors:
            for name, answer in other_doors.answers(request).items():
                assert answer != usual_answers[name], f"{name} does not obey {kind!r} for {strategy!r}"


# ── what a hit is called ─────────────────────────────────────────────────────────────────────────────────────────────

FILES: Final = {
    "repertoire.csv": "composer,piece\nBach,Motet for a double choir\nElgar,A psalm for organ and trumpet\n",
    "singers.csv": "Name,voice\nVera Lind,an alto who plays the trumpet\n",
    "rooms.json": json.dumps([{"hall": "a hall for rehearsals"}, {"hall": "a cellar where the trumpet is loud"}]),
}
CAPTIONS: Final = {
    "psalm for organ and trumpet": ("repertoire.csv, line 3", "repertoire.csv, line 3"),
    "an alto who plays": ("Vera Lind", "singers.csv, line 2"),
    "cellar where it is loud": ("rooms.json, record 2, line 1", "rooms.json, record 2, line 1"),
}
"""By question: what the first hit is called, and where it stands."""


@pytest.fixture(scope="module")
def choir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Every door to files whose records have no title."""
    folder = tmp_path_factory.mktemp("choir")
    files = folder / "files"
    files.mkdir()
    for name, text in FILES.items():
        (files / name).write_text(text, "utf-8")
    environ = {"POINTSMAN_EMBEDDER": "hashing", "POINTSMAN_WORKSPACE": str(folder / "work")}
    done = CliRunner().invoke(app, ["index", str(files), "-d", "choir"], env=environ)
    assert done.exit_code == 0, done.output
    with world(folder / "work", "default") as doors:
        yield doors


@pytest.mark.parametrize("question", CAPTIONS)
def test_records_are_called_by_their_name_or_their_file_and_row(choir: World, question: str) -> None:
    caption, place = CAPTIONS[question]
    options: dict[str, Any] = {"strategy": "bm25", "refuse": False}
    (hit,) = choir.here.search(question, 1, **options)
    assert (hit.caption, hit.citation.place, hit.title) == (caption, place, "")
    assert hit.id.partition("#")[0] == place.partition(",")[0], "the id stays what it is"
    (remote_hit,) = choir.client.search(question, 1, **options)
    assert remote_hit.caption == caption
    body = {"query": question, "k": 1, **options}
    (http_hit,) = choir.http.post("/api/search", json=body).json()["hits"]
    assert (http_hit["caption"], http_hit["citation"]["place"]) == (caption, place)
    arguments = ["search", question, "-k", "1", "--strategy", "bm25", "--refuse", "never"]
    printed_text = CliRunner().invoke(app, arguments, env={**choir.environ, "COLUMNS": "200"}).output
    assert f"1. {caption}  " in printed_text
    assert place in printed_text
    assert hit.id not in printed_text
    assert f"[1] {place}" in CliRunner().invoke(app, [*arguments, "--prompt", "quoted"], env=choir.environ).output
    answer = choir.portal.call(choir.mcp.call_tool, "search", body).structured_content
    assert answer is not None
    assert answer["results"][0]["title"] == caption
    fetched = choir.portal.call(choir.mcp.call_tool, "fetch", {"id": answer["results"][0]["id"]}).structured_content
    assert fetched is not None
    assert fetched["title"] == caption
    knowledge = {"knowledge_id": "choir", "query": question, "retrieval_setting": {"top_k": 1, "score_threshold": 0}}
    (record, *_) = choir.http.post("/retrieval", json=knowledge).json()["records"]
    assert record["title"] == caption or (record["title"] in messages()["nearest"] and place in record["content"])


def test_the_console_calls_hits_by_their_captions() -> None:
    folder = Path(pointsman.__file__).parent / "service" / "console"
    for name in ("hits.mjs", "compare.mjs"):
        text = (folder / name).read_text("utf-8")
        assert "plain(hit.caption)" in text
        assert "hit.title || hit.id" not in text
