"""Asking several at once, by threads and by tasks: isolation, deadlines, the breaker."""

from __future__ import annotations

import asyncio
import contextvars
import math
import multiprocessing
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from patience_kit import holds_with_time
from pointsman.tools import parallel_calls
from pointsman.tools.errors import InputError
from pointsman.tools.parallel_calls import Breaker, Deadline, DualCall, Mode, Outcome, Tasks, Threads, run
from test_hybrid import Meeting

Run = Callable[[Callable[[Mode], Coroutine[Any, Any, Any]]], Any]


def by_threads(flow: Callable[[Mode], Coroutine[Any, Any, Any]]) -> Any:
    return run(flow(Threads()))


def by_tasks(flow: Callable[[Mode], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(flow(Tasks()))


def answering(value: Any, delay: float = 0.0) -> DualCall[Any]:
    def sync() -> Any:
        time.sleep(delay)
        return value

    async def asynchronous() -> Any:
        await anyio.sleep(delay)
        return value

    return DualCall(sync, asynchronous)


def failing(error: BaseException) -> DualCall[Any]:
    def sync() -> Any:
        raise error

    async def asynchronous() -> Any:
        raise error

    return DualCall(sync, asynchronous)


@pytest.fixture(params=[by_threads, by_tasks])
def drive(request: pytest.FixtureRequest) -> Run:
    run: Run = request.param
    return run


def outcomes_of(drive: Run, calls: list[DualCall[Any]], timeout: float | None = 60) -> list[Outcome[Any]]:
    outcomes: list[Outcome[Any]] = drive(lambda mode: mode.all(calls, timeout))
    return outcomes


def test_answers_come_in_the_order_of_the_calls(drive: Run) -> None:
    outcomes = outcomes_of(drive, [answering(1, 0.05), failing(LookupError("gone")), answering(3), answering(None)])
    assert [outcome.answer for outcome in outcomes] == [1, None, 3, None]
    assert [type(outcome.error) for outcome in outcomes] == [type(None), LookupError, type(None), type(None)]
    assert outcomes[0].milliseconds >= 50


def test_all_calls_run_at_once(drive: Run) -> None:
    meeting = Meeting(8)
    outcomes = outcomes_of(drive, [DualCall(meeting.wait, meeting.await_all)] * 8, timeout=60)
    assert [outcome.error for outcome in outcomes] == [None] * 8  # none ends before all have begun


def test_a_late_call_is_left_out_and_the_others_answer(drive: Run) -> None:
    release, ended_calls = threading.Event(), list[str]()

    def late() -> str:
        release.wait(60)
        ended_calls.append("late")
        return "late"

    async def asynchronously_late() -> str:
        await asyncio.sleep(60)
        ended_calls.append("late")
        return "late"

    def check(limit: float) -> None:
        outcomes = outcomes_of(drive, [answering("here"), DualCall(late, asynchronously_late)], timeout=limit)
        assert not ended_calls
        assert outcomes[0].answer == "here"
        assert isinstance(outcomes[1].error, TimeoutError)
        assert str(outcomes[1].error) == f"no answer within {limit:.3g} s"

    holds_with_time(check)
    release.set()


def test_a_single_one_is_limited_too(drive: Run) -> None:
    assert isinstance(outcomes_of(drive, [answering(1, 20)], timeout=0.05)[0].error, TimeoutError)
    assert outcomes_of(drive, [answering(1)], timeout=None)[0].answer == 1


def test_no_time_left(drive: Run) -> None:
    outcome = outcomes_of(drive, [answering(1, 20)], timeout=0.0)[0]
    assert str(outcome.error) == "no time was left"


def test_nothing_to_ask(drive: Run) -> None:
    assert outcomes_of(drive, []) == []


def test_what_ends_the_program_is_no_outcome() -> None:
    with pytest.raises(KeyboardInterrupt):
        outcomes_of(by_threads, [failing(KeyboardInterrupt())])


def test_cancelling_from_outside_reaches_every_call() -> None:
    cancelled_calls: list[str] = []
    under_way = asyncio.Semaphore(0)

    def hanging(name: str) -> DualCall[None]:
        async def hang() -> None:
            try:
                under_way.release()
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled_calls.append(name)
                raise

        return DualCall(lambda: None, hang)

    async def flow() -> None:
        task = asyncio.create_task(Tasks().all([hanging("a"), hanging("b")], 60))
        for _ in "ab":
            await asyncio.wait_for(under_way.acquire(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(flow())
    assert sorted(cancelled_calls) == ["a", "b"]


def test_one_that_cancels_itself_is_an_error() -> None:
    async def cancel_itself() -> None:
        raise asyncio.CancelledError

    outcomes = outcomes_of(by_tasks, [DualCall(lambda: None, cancel_itself), answering(2)])
    assert outcomes[1].answer == 2
    assert isinstance(outcomes[0].error, RuntimeError)


def test_threads_work_where_a_loop_is_running() -> None:
    async def run_in_loop() -> list[Outcome[int]]:
        return run(Threads().all([answering(1), answering(2)], 5))

    assert [outcome.answer for outcome in asyncio.run(run_in_loop())] == [1, 2]


def test_context_variables_reach_the_threads() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("request 7")
    call: DualCall[str] = DualCall(variable.get, lambda: None)  # type: ignore[arg-type, return-value]  # never awaited
    assert [outcome.answer for outcome in outcomes_of(by_threads, [call, call])] == ["request 7"] * 2


def test_threads_are_used_again_and_hanging_ones_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        outcomes_of(by_threads, [answering(1), answering(2)])
    threads_before = threading.active_count()
    for _ in range(50):
        outcomes_of(by_threads, [answering(1), answering(2)])
    assert threading.active_count() <= threads_before + 2
    free = threading.Event()
    monkeypatch.setattr(parallel_calls, "MOST_THREADS", parallel_calls._Worker.count + 2)
    hanging: DualCall[Any] = DualCall(free.wait, lambda: None)  # type: ignore[arg-type, return-value]  # never awaited
    try:
        idle = len(parallel_calls._Worker.idle)
        outcomes = outcomes_of(by_threads, [hanging] * (idle + 4), timeout=0.2)
        errors = [str(outcome.error) for outcome in outcomes]
        assert sum("calls are running or hanging" in error for error in errors) == 2
        assert sum("no answer within" in error for error in errors) == idle + 2
    finally:
        free.set()


AT_EXIT = """
import atexit, sys, threading, time
from pointsman.tools.sync_and_async import limited
from pointsman.tools.parallel_calls import DualCall, Threads, run

exiting = threading.Event()
atexit.register(exiting.set)

def late():
    exiting.wait()
    time.sleep(0.05)
    sys.stdout.write("ended ")
    sys.stdout.flush()

assert run(Threads().all([DualCall(late, None)], 0.001))[0].error
try:
    limited(late, 0.001, "late", lambda seconds: TimeoutError())
except TimeoutError:
    pass
for hanging in range(int(sys.argv[1])):
    run(Threads().all([DualCall(threading.Event().wait, None)], 0.001))
"""


@pytest.mark.parametrize("hanging", [0, 1])
def test_the_end_of_a_process_waits_for_late_calls_but_not_for_hanging_ones(hanging: int) -> None:
    process = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(hanging)], capture_output=True, text=True, timeout=60, check=True
    )
    assert process.stdout.split() == ["ended", "ended"]


def test_calls_wait_for_a_thread_within_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_calls, "MOST_THREADS", parallel_calls._Worker.count + 1)
    calls = [answering(number, 0.02) for number in range(len(parallel_calls._Worker.idle) + 6)]
    assert [outcome.answer for outcome in outcomes_of(by_threads, calls)] == list(range(len(calls)))


def test_calls_wait_for_the_threads_of_another_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_calls, "MOST_THREADS", parallel_calls._Worker.count + 1)
    free, starts = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        starts.release()
        free.wait(20)

    hanging: DualCall[Any] = DualCall(hang, lambda: None)  # type: ignore[arg-type, return-value]  # never awaited
    count = len(parallel_calls._Worker.idle) + 1
    second_batch = threading.Thread(target=outcomes_of, args=(by_threads, [hanging] * count, 20))
    second_batch.start()
    try:
        assert all(starts.acquire(timeout=10) for _ in range(count))
        timer = threading.Timer(0.1, free.set)
        timer.start()
        assert outcomes_of(by_threads, [answering("here")], None)[0].answer == "here"
        timer.join()
    finally:
        free.set()
        second_batch.join()


def test_a_system_without_threads_left_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(parallel_calls._Worker, "idle", deque())
    monkeypatch.setattr(parallel_calls._Worker, "count", 0)
    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", no_more)
        outcomes = outcomes_of(by_threads, [answering(1), answering(2)], timeout=None)
    assert [str(outcome.error) for outcome in outcomes] == [
        "no thread could be started for it: can't start new thread"
    ] * 2
    assert parallel_calls._Worker.count == 0
    breaker = Breaker(failures=1)
    assert outcomes[0].error is not None
    breaker.record("a", outcomes[0].error)  # the branch has not even been asked
    assert breaker.why_not("a") is None


@pytest.mark.parametrize("timeout", [math.inf, 1e10, 1e300])
def test_timeouts_that_no_clock_reaches(drive: Run, timeout: float) -> None:
    assert outcomes_of(drive, [answering(1), answering(2, 0.02)], timeout)[1].answer == 2
    assert outcomes_of(drive, [answering(1)], Deadline(timeout).left())[0].answer == 1


def test_an_event_loop_may_be_started_in_a_thread() -> None:
    async def run_in_loop() -> list[Outcome[int]]:
        async def answer() -> int:
            return 1

        def blocking() -> int:
            return anyio.run(answer)

        return run(Threads().all([DualCall(blocking, answer)] * 2, 5))

    outcomes = anyio.run(run_in_loop)
    assert [(outcome.answer, outcome.error) for outcome in outcomes] == [(1, None)] * 2


def _in_a_child(queue: Any) -> None:
    queue.put([outcome.answer for outcome in run(Threads().all([answering(1), answering(2)], 5))])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    outcomes_of(by_threads, [answering(1), answering(2)])
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_a_child, args=(queue,))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert queue.get() == [1, 2]


def test_a_flow_that_waits_for_something_else_is_a_mistake() -> None:
    async def flow() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="must go through its mode"):
        run(flow())


def test_a_flow_raises_what_it_raises() -> None:
    async def flow() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        run(flow())


@pytest.mark.parametrize("timeout", [0, -1, "5", float("nan")])
def test_deadlines_that_cannot_be(timeout: Any) -> None:
    with pytest.raises(InputError, match="seconds above 0"):
        Deadline(timeout)


class Clock:
    """A clock that goes on when a test says so."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(parallel_calls, "perf_counter", clock)
    return clock


def test_deadlines(clock: Clock) -> None:
    assert Deadline(None).left() is None
    assert Deadline(None).left(3) == 3
    deadline = Deadline(10)
    assert deadline.left(3) == 3
    clock.time += 4
    assert deadline.left() == 6
    clock.time += 7
    assert deadline.left() == 0


class TestBreaker:
    def test_it_opens_after_failures_in_a_row_and_tries_again(self, clock: Clock) -> None:
        breaker = Breaker(failures=2, seconds=30)
        breaker.record("a", LookupError("down"))
        assert breaker.why_not("a") is None
        breaker.record("a", None)  # in a row, that is
        breaker.record("a", LookupError("down"))
        assert breaker.why_not("a") is None
        breaker.record("a", LookupError("down"))
        reason = breaker.why_not("a")
        assert reason is not None
        assert "2 failures in a row, the last: LookupError: down" in reason
        assert breaker.why_not("b") is None
        clock.time += 31
        assert breaker.why_not("a") is None  # one tries …
        assert breaker.why_not("a") is not None  # … and the others wait for what comes of it
        breaker.record("a", None)
        assert breaker.why_not("a") is None

    def test_the_callers_mistakes_do_not_count(self) -> None:
        breaker = Breaker(failures=1)
        breaker.record("a", InputError("no such filter"))
        assert breaker.why_not("a") is None

    def test_never(self) -> None:
        breaker = Breaker(None)
        for _ in range(9):
            breaker.record("a", LookupError())
        assert breaker.why_not("a") is None

    @pytest.mark.parametrize("failures", [0, -1, 1.5])
    def test_what_cannot_be(self, failures: Any) -> None:
        with pytest.raises(InputError, match="from 1 up"):
            Breaker(failures)
