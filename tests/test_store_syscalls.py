"""Every call to the operating system may fail: what comes of it is an error of ours, and nothing is lost or misleads.

benchmarks/syscall_faults.py has all the cases; here is a sample of them.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from syscall_kit import OPERATIONS, STRACE, Bench, Case, Outcome

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace, which lets calls fail, is not installed")

_benches: list[Bench] = []  # of the process that runs the cases


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPoolExecutor]:
    """A process without other threads, whose locks a fork might find taken for ever."""
    spawning = multiprocessing.get_context("spawn")
    folder = tmp_path_factory.mktemp("syscalls")
    with ProcessPoolExecutor(1, spawning, initializer=_prepare, initargs=(folder,)) as process:
        yield process


def _prepare(folder: Path) -> None:
    _benches.append(Bench(folder))


def _cases(operation: str) -> list[Case]:
    return list(_benches[0].cases(operation))


def _run(case: Case) -> Outcome:
    return _benches[0].run(case)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_sample_of_the_cases(forker: ProcessPoolExecutor, operation: str) -> None:
    cases = forker.submit(_cases, operation).result()
    assert len(cases) > 50
    outcomes = [forker.submit(_run, case).result() for case in random.Random(operation).sample(cases, 5)]
    assert [f"{outcome.case}: {outcome.problems}" for outcome in outcomes if outcome.problems] == []
    if operation != "embed":  # a cache that fails costs time, and no call
        assert any(outcome.error for outcome in outcomes), "nothing has failed"


def test_a_base_file_that_cannot_be_removed(forker: ProcessPoolExecutor) -> None:
    """The sample may miss what there is once."""
    outcome = forker.submit(_run, Case("rebuild", "unlink", "EIO", 1, for_good=False)).result()
    assert (outcome.error.partition(":")[0], outcome.problems) == ("StoreError", ())
