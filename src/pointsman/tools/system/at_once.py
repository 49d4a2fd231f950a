"""Two things at once, on two processors: worthwhile where they need the interpreter only at both ends."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
U = TypeVar("U")

_PROCESSORS: Final = os.cpu_count() or 1


class _Threads:
    """Threads, no more at once than there are processors beside the caller's."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(_PROCESSORS, "pointsman-beside")
        self.free = threading.BoundedSemaphore(max(1, _PROCESSORS - 1))

    def begin(self, call: Callable[[], T]) -> Future[T] | None:
        """Begin a call in another thread; None if no processor is free for it."""
        if _PROCESSORS < 2 or not self.free.acquire(blocking=False):
            return None

        def run() -> T:
            try:
                return call()
            finally:
                self.free.release()  # before the caller goes on, who may begin another one

        try:
            return self.threads.submit(run)
        except RuntimeError:  # the program ends
            self.free.release()
            return None


_threads = _Threads()


def at_once(other_call: Callable[[], T], own_call: Callable[[], U]) -> tuple[T, U]:
    """Call both, the first in another thread; `in_turn` if no processor is free for it.

    Returns:
        What each returns.

    Raises:
        BaseException: what ``own_call`` raises, or else ``other_call``, after both have ended.
    """
    future = _threads.begin(other_call)
    if future is None:
        return in_turn(other_call, own_call)
    try:
        value = own_call()
        return future.result(), value
    except BaseException:  # such as a Ctrl-C while this thread waits for the other one
        wait([future])
        raise
    finally:
        del future  # an error of its call holds this frame, and with it files, as long as this frame holds the error


def in_turn(other_call: Callable[[], T], own_call: Callable[[], U]) -> tuple[T, U]:
    """Call both, the second one first, and return what each returns."""
    value = own_call()
    return other_call(), value


def _forget_threads() -> None:
    """Begin anew after a fork, which threads do not survive."""
    global _threads  # noqa: PLW0603
    _threads = _Threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
