"""Asking several at once: in parallel, each timed and isolated, none waited for longer than the deadline.

One flow, two ways to run it. A flow is written once as a coroutine and leaves its waiting to a `Mode`: `Tasks` awaits,
on any event loop; `Threads` blocks, so a flow on it never suspends, and `run` drives it to its end without any loop.
So synchronous callers need no event loop and may have one running: in a script, a notebook or a thread alike.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections import deque
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import anyio

from pointsman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_THREADS = 256
"""Calls that may be under way, or hang, in this process at once; further ones wait for one of these to return."""
_KEPT_IDLE = 32
_POLL = 0.01
"""Seconds after which a call that waits for a thread looks again whether another batch has left one."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """Something to ask, in both ways.

    Attributes:
        sync: blocks.
        asynchronous: is awaited.
        at_once: whether ``sync`` only computes, and briefly: alone, it needs no thread and no limit then.
    """

    sync: Callable[[], T]
    asynchronous: Callable[[], Awaitable[T]]
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What came of a call: an answer or an error, and the time it took in milliseconds."""

    answer: T | None
    error: Exception | None
    milliseconds: float


def heard(call: Call[T], ended: Callable[[T | None, Exception | None], None]) -> Call[T]:
    """The same call, which tells when it ends, and how."""

    def sync() -> T:
        try:
            answer = call.sync()
        except Exception as error:
            ended(None, error)
            raise
        ended(answer, None)
        return answer

    async def asynchronous() -> T:
        try:
            answer = await call.asynchronous()
        except Exception as error:
            ended(None, error)
            raise
        ended(answer, None)
        return answer

    return Call(sync, asynchronous, call.at_once)


class Mode(Protocol):
    """How a flow waits."""

    async def one(self, call: Call[T]) -> T:
        """Ask one, where the flow is, with no limit; its error is raised."""
        ...

    async def all(self, calls: Sequence[Call[T]], timeout: float | None) -> list[Outcome[T]]:  # noqa: ASYNC109  (a budget for every call, not for the caller)
        """Ask all at once; one that is not done within ``timeout`` seconds has a TimeoutError as its outcome."""
        ...


class Deadline:
    """A moment that a whole search must not pass."""

    __slots__ = ("_end",)

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise InputError(f"timeout is a number of seconds above 0, or None, not {timeout!r}")
        timeout = _waitable(timeout)
        self._end = None if timeout is None else perf_counter() + timeout

    def left(self, at_most: float | None = None) -> float | None:
        """Seconds left, never negative, and at most so many; None where nothing limits them."""
        if self._end is None:
            return at_most
        left = max(0.0, self._end - perf_counter())
        return left if at_most is None else min(left, at_most)


def run(flow: Coroutine[Any, Any, T]) -> T:
    """Drive a flow on `Threads` to its end; it never suspends, so one step is all of it."""
    try:
        flow.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    flow.close()
    raise RuntimeError("a flow that blocks has suspended; every wait in it belongs to its mode")


class Tasks:
    """Waits on the event loop; cancellation from outside passes through to every call."""

    async def one(self, call: Call[T]) -> T:
        """See `Mode`."""
        return await call.asynchronous()

    async def all(self, calls: Sequence[Call[T]], timeout: float | None) -> list[Outcome[T]]:  # noqa: ASYNC109  (see Mode)
        """See `Mode`."""
        outcomes: list[Outcome[T] | None] = [None] * len(calls)
        began = perf_counter()

        async def one(place: int, call: Call[T]) -> None:
            try:
                outcomes[place] = Outcome(await call.asynchronous(), None, _since(began))
            except Exception as error:  # noqa: BLE001  (an outcome: whoever asked decides)
                outcomes[place] = Outcome(None, error, _since(began))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                cause = RuntimeError("it was cancelled from inside and gave no answer")  # nobody has asked for that
                outcomes[place] = Outcome(None, cause, _since(began))

        with anyio.move_on_after(timeout):
            if len(calls) == 1:
                await one(0, calls[0])
            else:
                async with anyio.create_task_group() as group:
                    for place, call in enumerate(calls):
                        group.start_soon(one, place, call)
        return [outcome or Outcome(None, _late(timeout), _since(began)) for outcome in outcomes]


class Threads:
    """Waits in the calling thread; every call runs in a thread of its own, which is left behind if it is late."""

    async def one(self, call: Call[T]) -> T:
        """See `Mode`."""
        return call.sync()

    async def all(self, calls: Sequence[Call[T]], timeout: float | None) -> list[Outcome[T]]:  # noqa: ASYNC109  (see Mode)
        """See `Mode`."""
        if len(calls) == 1 and calls[0].at_once:  # waking a thread takes as long as a search
            return [_now(calls[0].sync)]
        outcomes: list[Outcome[T] | None] = [None] * len(calls)
        done: SimpleQueue[tuple[int, Outcome[T] | BaseException]] = SimpleQueue()
        began, limit = perf_counter(), _waitable(timeout)
        waiting, under_way = deque(enumerate(calls)), 0
        while waiting or under_way:
            try:
                while waiting:
                    _Worker.start_call(waiting[0][0], waiting[0][1].sync, done, began)
                    waiting.popleft()
                    under_way += 1
            except _TooManyError as error:
                refused = error
                if not _Worker.count:  # there is none that could become free
                    break
            left = None if limit is None else max(0.0, began + limit - perf_counter())
            try:
                place, outcome = done.get(timeout=min(_POLL, _POLL if left is None else left) if waiting else left)
            except Empty:
                if left is None or left > _POLL:
                    continue
                break
            if not isinstance(outcome, Outcome):  # KeyboardInterrupt and its like are nobody's outcome
                raise outcome
            outcomes[place] = outcome
            under_way -= 1
        for place, _ in waiting:
            outcomes[place] = Outcome(None, refused, _since(began))
        return [outcome or Outcome(None, _late(timeout), _since(began)) for outcome in outcomes]


def _now(function: Callable[[], T]) -> Outcome[T]:
    """What a call answers here."""
    began = perf_counter()
    try:
        return Outcome(function(), None, _since(began))
    except Exception as error:  # noqa: BLE001  (an outcome: whoever asked decides)
        return Outcome(None, error, _since(began))


class _TooManyError(RuntimeError):
    """No thread is free; calls that never return have used them up."""


class _Worker:
    """A daemon thread that runs one call after another; daemon, so that one that hangs keeps no process alive.

    The standard pool joins its threads at exit and makes calls wait in line behind those that hang.
    """

    idle: ClassVar[deque[_Worker]] = deque()
    count: ClassVar[int] = 0
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name="pointsman-branch", daemon=True).start()

    @classmethod
    def start_call(cls, place: int, function: Callable[[], T], done: SimpleQueue[Any], began: float) -> None:
        try:
            worker = cls.idle.pop()
        except IndexError:
            with cls.lock:
                if cls.count >= MOST_THREADS:
                    raise _TooManyError(
                        f"{MOST_THREADS} calls are under way or hang; what they call does not return"
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
                outcome = Outcome(context.run(function), None, _since(began))
            except Exception as error:  # noqa: BLE001  (an outcome: whoever asked decides)
                outcome = Outcome(None, error, _since(began))
            except BaseException as error:  # noqa: BLE001  (raised in the thread that asked)
                outcome = error
            cls.idle.append(worker)  # before the answer is out, so that the next call finds it
            done.put((place, outcome))

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
    """Where sniffio, if it is there, keeps which event loop runs here: a copy of that is not true in another thread."""
    try:
        from sniffio import current_async_library_cvar
    except ImportError:
        return None
    return current_async_library_cvar


def _forget_workers() -> None:
    """In a forked child the threads are gone."""
    _Worker.idle.clear()
    _Worker.count = 0
    _Worker.lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not where nothing forks
    os.register_at_fork(after_in_child=_forget_workers)


class Breaker:
    """Leaves out for a while what keeps failing (the circuit breaker of Nygard, *Release It!*, 2007).

    After ``failures`` in a row it is left out for ``seconds``; then one call tries whether it is back.

    Args:
        failures: how many in a row; None never leaves anything out.
        seconds: for how long.
    """

    def __init__(self, failures: int | None = 3, seconds: float = 30.0) -> None:
        if failures is not None and (not isinstance(failures, int) or failures < 1):
            raise InputError(f"failures of a breaker is an int from 1 up, or None, not {failures!r}")
        self._failures, self._seconds = failures, seconds
        self._state: dict[str, tuple[int, float, str]] = {}  # failures in a row, when it is tried again, the last cause
        self._lock = threading.Lock()

    def why_not(self, name: str) -> str | None:
        """None if it may be asked; else why it is left out."""
        if not self._state:  # the usual case costs nothing
            return None
        with self._lock:
            count, until, cause = self._state.get(name, (0, 0.0, ""))
            if self._failures is None or count < self._failures:
                return None
            left = until - perf_counter()
            if left <= 0:
                self._state[name] = (count, perf_counter() + self._seconds, cause)  # this one tries, others wait
                return None
            return f"left out for another {left:.0f} s after {count} failures in a row, the last: {cause}"

    def record(self, name: str, error: Exception | None) -> None:
        """Note how a call ended.

        What the caller got wrong (`InputError`) is no failure of the branch, nor is that no thread was free to ask it.
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
    """A timeout as locks take it: what they cannot count to is no limit."""
    return None if timeout is None or timeout > threading.TIMEOUT_MAX else timeout


def _late(timeout: float | None) -> TimeoutError:
    return TimeoutError(f"no answer within {timeout:.3g} s" if timeout else "no time was left")


def _since(began: float) -> float:
    return (perf_counter() - began) * 1000
