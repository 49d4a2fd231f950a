"""The changes that `benchmarks/mutants.py` draws: of files and tests that are there, and each of them code."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import mutants
from mutants import AREAS, EQUIVALENT, RULES, SOURCE, Mutant, drawn


@pytest.fixture(scope="module")
def all_mutants() -> list[Mutant]:
    return drawn(list(AREAS), 1, 10**9)[0]


@pytest.mark.parametrize("area", AREAS)
def test_an_area_has_mutants_of_every_rule_and_tests(area: str, all_mutants: list[Mutant]) -> None:
    assert {mutant.rule for mutant in all_mutants if mutant.area == area} == set(RULES)
    for name in AREAS[area][1]:
        assert (Path(__file__).parent / f"test_{name}.py").exists(), name


def test_a_mutant_is_other_code_of_the_same_file(all_mutants: list[Mutant]) -> None:
    for mutant in all_mutants[::50]:
        code = (SOURCE / mutant.file).read_bytes()
        changed = code[: mutant.start] + mutant.after.encode() + code[mutant.end :]
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(code)), mutant


def test_the_same_seed_draws_the_same_and_another_others() -> None:
    assert drawn(list(AREAS), 5, 60) == drawn(list(AREAS), 5, 60)
    assert drawn(list(AREAS), 5, 60) != drawn(list(AREAS), 6, 60)


def test_equivalent_mutants_are_there_and_not_drawn(all_mutants: list[Mutant], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "EQUIVALENT", {})
    assert set(EQUIVALENT) <= {mutant.key for mutant in drawn(list(AREAS), 1, 10**9)[0]}
    assert not set(EQUIVALENT) & {mutant.key for mutant in all_mutants}
