"""Every call to the operating system may fail: what comes of it is an error of ours, and nothing is lost or misleads.

benchmarks/syscall_faults.py has all the cases; here is a sample of them.
"""

from __future__ import annotations

import random

import pytest

from syscall_kit import STRACE, Bench

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace, which lets calls fail, is not installed")
OPERATIONS = ("search", "add", "update", "delete", "rebuild", "describe", "backup", "restore", "make", "drop")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    made = Bench(tmp_path_factory.mktemp("syscalls"))
    assert tuple(made.operations) == OPERATIONS
    return made


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_sample_of_the_cases(bench: Bench, operation: str) -> None:
    cases = list(bench.cases(operation))
    assert len(cases) > 100
    outcomes = [bench.run(case) for case in random.Random(operation).sample(cases, 10)]
    assert [f"{one.case}: {one.problems}" for one in outcomes if one.problems] == []
    assert {one.error.partition(":")[0] for one in outcomes} > {""}, "nothing has failed"
