"""Every call to the operating system may fail: what comes of it is an error of ours, and nothing is lost or misleads.

benchmarks/syscall_faults.py has all the cases; here is a sample of them.
"""

from __future__ import annotations

import random

import pytest

from syscall_kit import OPERATIONS, STRACE, Bench, Case

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace, which lets calls fail, is not installed")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("syscalls"))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_sample_of_the_cases(bench: Bench, operation: str) -> None:
    cases = list(bench.cases(operation))
    assert len(cases) > 50
    outcomes = [bench.run(case) for case in random.Random(operation).sample(cases, 10)]
    assert [f"{one.case}: {one.problems}" for one in outcomes if one.problems] == []
    if operation != "embed":  # a cache that fails costs time, and no call
        assert any(one.error for one in outcomes), "nothing has failed"


def test_a_base_file_that_cannot_be_removed(bench: Bench) -> None:
    """The sample may miss what there is once."""
    outcome = bench.run(Case("rebuild", "unlink", "EIO", 1, for_good=False))
    assert (outcome.error.partition(":")[0], outcome.problems) == ("StoreError", ())
