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
    with world(folder, request.param) as made:
        yield made


@pytest.fixture(scope="module")
def usual(folder: Path) -> Iterator[World]:
    with world(folder, "default") as made:
        yield made


def test_doors_agree_on_random_requests(doors: World) -> None:
    """Ids, scores to the last bit, refusals, strategies, corrected queries, and the kind of every error."""
    assert [line for asked in islice(requests(12), 25) for line in doors.differences(asked)] == []


def test_all_nine_doors_take_part(usual: World) -> None:
    asked = Asked("railway swtich", 3, ("rails",), "auto", "year >= 2010", True, False, "balanced")
    assert len(usual.answers(asked)) == 9
    assert usual.differences(asked) == []
    wanted = usual.doors["Workspace.search"](asked)
    assert wanted is not None
    assert len(wanted.hits) == 3


def test_the_command_line_in_a_process_of_its_own(usual: World) -> None:
    refused = Asked("zzzz qqqq", 5, None, "bm25", None, None, None, "fast")
    unknown = Asked("tea", 5, None, "hybird", None, None, None, "fast")
    for asked in (PLAIN, refused, unknown):
        wanted, found = usual.doors["Workspace.search"](asked), usual.by_process(asked)
        assert wanted is not None
        assert wanted.same(found)


@pytest.mark.parametrize(("kind", "strategies"), [
    ("default", {"hybrid"}), ("a strategy", {"rrf"}), ("no choice", {"hybrid"}), ("by the look", {"decomposition"}),
    ("short excerpts", {"compression"}), (WITH_MODEL, {"decomposition"}),
])  # fmt: skip
def test_every_door_obeys_the_settings(folder: Path, kind: str, strategies: set[str]) -> None:
    """What a request leaves open, the settings decide, at every door."""
    asked = Asked("compare green tea and black tea", 5, None, "auto", None, None, False, "balanced")
    with world(folder, kind) as made:
        answers = made.answers(asked)
    assert {answer.strategy for answer in answers.values()} == strategies
    assert len(answers) >= 6


def test_settings_that_change_an_answer_change_it_at_every_door(folder: Path) -> None:
    """The parameters of BM25, and of strategies."""
    compound = "compare trains, a red signal, the yard of the city and green tea"
    plain = Asked(compound, 20, ("rails",), "auto", None, None, False, "fast")
    changes = (("a strategy", "bm25"), ("by the look", "multi_query"), ("by the look", "decomposition"))
    for kind, strategy in (*changes, ("short excerpts", "compression")):
        asked = replace(plain, strategy=strategy)
        with world(folder, "default") as usual:
            before = usual.answers(asked)
        with world(folder, kind) as other:
            for name, answer in other.answers(asked).items():
                assert answer != before[name], f"{name} does not obey {kind!r} for {strategy!r}"
