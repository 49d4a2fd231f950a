"""Every door gives the same answer: nine ways to ask for the same search, with the same settings.

A few dozen requests here; ``python benchmarks/doors.py`` puts a thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from doors_kit import SETTINGS, WITH_MODEL, Asked, World, fill, requests, world

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
    assert [line for request in islice(requests(12), 25) for line in doors.differences(request)] == []


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
