"""Runs several calls in parallel: each is timed and isolated, and none is waited for longer than the deadline.

A flow is written once, as a coroutine, and leaves its waiting to a `Mode`: `Tasks` awaits
on any event loop; `Threads` blocks, so a flow on it never suspends, and `run` drives it to its end without a loop.
Synchronous callers therefore need no event loop, and may have one running: in a script, a notebook or a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import threading
from collections import deque
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import anyio

from pointsman.tools.errors import InputError
from pointsman.tools.sync_and_async import in_daemon, in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

log = logging.getLogger(__name__)

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_SHARE_BEFORE = 0.6
"""The share of a search's time for the stages before it."""
MOST_THREADS = 256
"""The most calls that may run, or hang, in this process at once; more wait until one of these returns."""
_KEPT_IDLE = 32
_POLL = 0.01
"""Seconds after which a call that waits for a thread checks again whether another batch has freed one."""


@dataclass(frozen=True, slots=True)
class DualCall(Generic[T]):
    """One call in two forms, synchronous and asynchronous.

    Attributes:
        sync: blocks.
        asynchronous: is awaited.
        at_once: whether ``sync`` only computes, and briefly; when it is the only call, it needs no thread and no limit.
    """

    sync: Callable[[], T]
    asynchronous: Callable[[], Awaitable[T]]
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The result of a call: an answer or an error, and the time it took in milliseconds."""

    answer: T | None
    error: Exception | None
    milliseconds: float


def reporting(call: DualCall[T], on_end: Callable[[T | None, Exception | None], None]) -> DualCall[T]:
    """The same call, which reports its end to ``on_end``."""

    def sync() -> T:
        try:
            answer = call.sync()
        except Exception as error:
            on_end(None, error)
            raise
        on_end(answer, None)
        return answer

    async def asynchronous() -> T:
        try:
            answer = await call.asynchronous()
        except Exception as error:
            on_end(None, error)
            raise
        on_end(answer, None)
        return answer

    return DualCall(sync, asynchronous, call.at_once)


class Mode(Protocol):
    """How a flow waits."""

    async def one(self, call: DualCall[T]) -> T:
        """Make one call, in the flow's own thread or task and without a limit; its error is raised."""
        ...

    async def blocking(self, function: Callable[[], T]) -> T:
        """Call a function that has no asynchronous form: here, or in a thread beside an event loop."""
        ...

    async def all(self, calls: Sequence[DualCall[T]], timeout: float | None) -> list[Outcome[T]]:  # noqa: ASYNC109  (a budget for every call, not for the caller)
        """Make all calls at once; one that takes longer than ``timeout`` seconds has a TimeoutError as its outcome."""
        ...


async def attempt(mode: Mode, call: DualCall[T], timeout: float | None) -> T | Exception:  # noqa: ASYNC109  (see Mode)
    """The answer of a call, or its error."""
    outcome = (await mode.all([call], timeout))[0]
    if outcome.answer is not None:
        return outcome.answer
    return outcome.error or TypeError("it returned None")


def cause_of(answer: Any) -> Exception:
    """The error that came back in place of an answer, or a TypeError about an answer of the wrong type."""
    return answer if isinstance(answer, Exception) else TypeError(f"it returned {type(answer).__name__}")


class Deadline:
    """A moment that a whole search must not pass."""

    __slots__ = ("_end",)

    def __init__(self, timeout: float | None) -> None:
        is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and timeout > 0):
            raise InputError(f"timeout is a number of seconds above 0, or None, not {timeout!r}")
        timeout = _waitable(timeout)
        self._end = None if timeout is None else perf_counter() + timeout

    def left(self, at_most: float | None = None) -> float | None:
        """Seconds left, never negative and at most ``at_most``; None if there is no limit."""
        if self._end is None:
            return at_most
        remaining = max(0.0, self._end - perf_counter())
        return remaining if at_most is None else min(remaining, at_most)


class SearchDeadline(Deadline):
    """The deadline of a search, and what its stages may have of the time until then; None everywhere: no limit.

    Args:
        timeout: seconds for the whole search.
    """

    __slots__ = ("_timeout",)

    def __init__(self, timeout: float | None) -> None:
        super().__init__(timeout)
        self._timeout = timeout

    def before_searching(self) -> float | None:
        """Seconds for a stage before the search, so that the search has enough left.

        All such stages together have ``_SHARE_BEFORE`` of the time. Language models have half of it, and say so when
        they exceed it; this limit is for everything else.
        """
        remaining = self.left()
        if remaining is None or self._timeout is None:
            return remaining
        return max(0.0, remaining - (1 - _SHARE_BEFORE) * self._timeout)

    def for_branches(self, *, has_later_stages: bool) -> float | None:
        """Seconds for the branches: all the remaining time, less a fifth if a later stage may need some."""
        remaining = self.left()
        return remaining if remaining is None or not has_later_stages else 0.8 * remaining

    def for_embedding(self, *, has_later_stages: bool) -> float | None:
        """Seconds for embedding: three quarters of the branches' time, so that words can still be searched."""
        remaining = self.for_branches(has_later_stages=has_later_stages)
        return None if remaining is None else 0.75 * remaining

    def for_measuring(self) -> float | None:
        """Seconds for measuring what readings lack: half of the remaining time."""
        remaining = self.left()
        return None if remaining is None else remaining / 2


def run(flow: Coroutine[Any, Any, T]) -> T:
    """Drive a flow on `Threads` to its end; it never suspends, so one step is all of it."""
    try:
        flow.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    flow.close()
    raise RuntimeError("a blocking flow suspended; every wait in it must go through its mode")


def sync_and_async(
    flow: Callable[Concatenate[S, Mode, P], Coroutine[Any, Any, T]],
) -> tuple[Callable[Concatenate[S, P], T], Callable[Concatenate[S, P], Coroutine[Any, Any, T]]]:
    """Make the synchronous and the asynchronous version of a method that is written once, as a flow.

    The flow's name is that of the synchronous version with an underscore before it; its docstring is that version's.

    >>> class Counter:
    ...     async def _count(self, mode: Mode, first: int = 1) -> int:
    ...         return first + await mode.blocking(lambda: 2)
    ...
    ...     count, acount = sync_and_async(_count)
    >>> Counter().count(), asyncio.run(Counter().acount(first=2))
    (3, 4)
    """
    name = flow.__name__.removeprefix("_")

    def synchronous(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(flow(self, Threads(), *args, **kwargs))

    async def asynchronous(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await flow(self, Tasks(), *args, **kwargs)

    signature = inspect.signature(flow)
    public = [parameter for parameter in signature.parameters.values() if parameter.name != "mode"]
    versions: list[tuple[Any, str, str | None]] = [
        (synchronous, name, flow.__doc__),
        (asynchronous, f"a{name}", f"Async version of `{name}`."),
    ]
    for version, version_name, doc in versions:
        version.__module__, version.__name__, version.__doc__ = flow.__module__, version_name, doc
        version.__qualname__ = flow.__qualname__.replace(flow.__name__, version_name)
        version.__signature__ = signature.replace(parameters=public)
    return synchronous, asynchronous


class Tasks:
    """Waits on the event loop; cancelling the caller cancels every call."""

    async def one(self, call: DualCall[T]) -> T:
        """See `Mode`."""
        return await call.asynchronous()

    async def blocking(self, function: Callable[[], T]) -> T:
        """See `Mode`."""
        return await in_thread(function)

    async def all(self, calls: Sequence[DualCall[T]], timeout: float | None) -> list[Outcome[T]]:  # noqa: ASYNC109  (see Mode)
        """See `Mode`."""
        outcomes: list[Outcome[T] | None] = [None] * len(calls)
        start = perf_counter()

        async def await_call(index: int, call: DualCall[T]) -> None:
            try:
                outcomes[index] = Outcome(await call.asynchronous(), None, _milliseconds_since(start))
            except Exception as error:  # noqa: BLE001  (an outcome: the caller decides)
                outcomes[index] = Outcome(None, error, _milliseconds_since(start))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                cause = RuntimeError("it was cancelled and gave no answer")  # the caller did not cancel it
                outcomes[index] = Outcome(None, cause, _milliseconds_since(start))

        with anyio.move_on_after(timeout):
            if len(calls) == 1:
                await await_call(0, calls[0])
            else:
                async with anyio.create_task_group() as group:
                    for index, call in enumerate(calls):
                        group.start_soon(await_call, index, call)
        return [outcome or Outcome(None, _late(timeout), _milliseconds_since(start)) for outcome in outcomes]


class ThreadTasks(Tasks):
    """Awaits the synchronous form of calls in worker threads.

    A synchronous method that runs an event loop of its own calls so: connections of the asynchronous form may belong to
    the loop of its caller.
    """

    async def one(self, call: DualCall[T]) -> T:
        """See `Mode`."""
        return await in_thread(call.sync)


class Threads:
    """Waits in the calling thread; every call runs in its own thread, which is abandoned if it is late."""

    async def one(self, call: DualCall[T]) -> T:
        """See `Mode`."""
        return call.sync()

    async def blocking(self, function: Callable[[], T]) -> T:
        """See `Mode`."""
        return function()

    async def all(self, calls: Sequence[DualCall[T]], timeout: float | None) -> list[Outcome[T]]:  # noqa: ASYNC109  (see Mode)
        """See `Mode`."""
        if len(calls) == 1 and calls[0].at_once:  # waking a thread takes as long as a search
            return [_call_at_once(calls[0].sync)]
        outcomes: list[Outcome[T] | None] = [None] * len(calls)
        queue: SimpleQueue[tuple[int, Outcome[T] | BaseException]] = SimpleQueue()
        start, limit = perf_counter(), _waitable(timeout)
        waiting, under_way = deque(enumerate(calls)), 0
        while waiting or under_way:
            try:
                while waiting:
                    _Worker.start_call(waiting[0][0], waiting[0][1].sync, queue, start)
                    waiting.popleft()
                    under_way += 1
            except _TooManyError as error:
                refused = error
                if not _Worker.count:  # no thread will become free
                    break
            remaining = None if limit is None else max(0.0, start + limit - perf_counter())
            try:
                index, outcome = queue.get(
                    timeout=min(_POLL, _POLL if remaining is None else remaining) if waiting else remaining
                )
            except Empty:
                if remaining is None or remaining > _POLL:
                    continue
                break
            if not isinstance(outcome, Outcome):  # KeyboardInterrupt and similar errors stop the whole search
                raise outcome
            outcomes[index] = outcome
            under_way -= 1
        for index, _ in waiting:
            outcomes[index] = Outcome(None, refused, _milliseconds_since(start))
        return [outcome or Outcome(None, _late(timeout), _milliseconds_since(start)) for outcome in outcomes]


def _call_at_once(function: Callable[[], T]) -> Outcome[T]:
    """Make a call in this thread."""
    start = perf_counter()
    try:
        return Outcome(function(), None, _milliseconds_since(start))
    except Exception as error:  # noqa: BLE001  (an outcome: the caller decides)
        return Outcome(None, error, _milliseconds_since(start))


class _TooManyError(RuntimeError):
    """No thread is free: calls that never return hold them all."""


class _Worker:
    """A thread that runs one call after another; it is a daemon, so that a hanging call cannot keep the process alive.

    The standard library's pool joins its threads at exit, and its calls queue behind those that hang.
    """

    idle: ClassVar[deque[_Worker]] = deque()
    count: ClassVar[int] = 0
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name="pointsman-branch", daemon=True).start()

    @classmethod
    def start_call(cls, number: int, function: Callable[[], T], outcomes: SimpleQueue[Any], began: float) -> None:
        try:
            worker = cls.idle.pop()
        except IndexError:
            with cls.lock:
                if cls.count >= MOST_THREADS:
                    raise _TooManyError(
                        f"{MOST_THREADS} calls are running or hanging; what they call does not return"
                    ) from None
                cls.count += 1
            try:
                worker = cls()
            except RuntimeError as error:  # the system gives no more threads
                with cls.lock:
                    cls.count -= 1
                raise _TooManyError(f"no thread could be started for it: {error}") from error
        context = contextvars.copy_context()
        library = _library_variable()
        if library is not None:
            context.run(library.set, None)

        def job() -> None:
            outcome: Any
            try:
                with in_daemon():
                    outcome = Outcome(context.run(function), None, _milliseconds_since(began))
            except Exception as error:  # noqa: BLE001  (an outcome: the caller decides)
                outcome = Outcome(None, error, _milliseconds_since(began))
            except BaseException as error:  # noqa: BLE001  (raised in the calling thread)
                outcome = error
            cls.idle.append(worker)  # before the answer is out, so that the next call can use it
            outcomes.put((number, outcome))

        worker._jobs.put(job)

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            if len(_Worker.idle) > _KEPT_IDLE:
                try:
                    _Worker.idle.remove(self)
                except ValueError:
                    continue  # it has just been given another call
                with _Worker.lock:
                    _Worker.count -= 1
                return


@cache
def _library_variable() -> contextvars.ContextVar[str | None] | None:
    """The variable in which sniffio, if installed, notes the running event loop; a copy is wrong in another thread."""
    try:
        from sniffio import current_async_library_cvar
    except ImportError:
        return None
    return current_async_library_cvar


def _forget_workers() -> None:
    """Forget all workers: a forked child has only its own thread."""
    _Worker.idle.clear()
    _Worker.count = 0
    _Worker.lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # absent on systems without fork
    os.register_at_fork(after_in_child=_forget_workers)


class Breaker:
    """Skips whatever keeps failing for a while (the circuit breaker of Nygard, *Release It!*, 2007).

    A name that fails ``failures`` times in a row is left out for ``seconds``; then one call tries it again.

    Args:
        failures: how many in a row; None never leaves anything out.
        seconds: for how long.
    """

    def __init__(self, failures: int | None = 3, seconds: float = 30.0) -> None:
        if failures is not None and (not isinstance(failures, int) or failures < 1):
            raise InputError(f"failures of a breaker is an int from 1 up, or None, not {failures!r}")
        self._failures, self._seconds = failures, seconds
        self._state: dict[str, tuple[int, float, str]] = {}  # failures in a row, time of the next try, the last cause
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._failures, self._seconds)  # a copy has met no failure

    def why_not(self, name: str) -> str | None:
        """Why a name is left out; None if it may be called."""
        if not self._state:  # the usual case is free
            return None
        with self._lock:
            count, end, cause = self._state.get(name, (0, 0.0, ""))
            if self._failures is None or count < self._failures:
                return None
            remaining = end - perf_counter()
            if remaining <= 0:
                self._state[name] = (count, perf_counter() + self._seconds, cause)  # this one tries, others wait
                return None
            return f"left out for another {remaining:.0f} s after {count} failures in a row, the last: {cause}"

    def left_out(self, names: Iterable[str]) -> dict[str, str]:
        """Which of these names are left out, and why."""
        if not self._state:
            return {}
        return {name: reason for name in names if (reason := self.why_not(name)) is not None}

    def record(self, name: str, error: Exception | None) -> None:
        """Note how a call ended.

        A caller's mistake (`InputError`) does not count as a failure of the branch, nor does a lack of threads.
        """
        if error is None:
            if self._state:
                with self._lock:
                    self._state.pop(name, None)
        elif self._failures is not None and not isinstance(error, (InputError, _TooManyError)):
            with self._lock:
                count = self._state.get(name, (0, 0.0, ""))[0] + 1
                self._state[name] = (count, perf_counter() + self._seconds, describe(error))


def describe(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _waitable(timeout: float | None) -> float | None:
    """A timeout that locks accept; one longer than they can count means no limit."""
    return None if timeout is None or timeout > threading.TIMEOUT_MAX else timeout


def _late(timeout: float | None) -> TimeoutError:
    return TimeoutError(f"no answer within {timeout:.3g} s" if timeout else "no time was left")


def _milliseconds_since(start: float) -> float:
    return (perf_counter() - start) * 1000
