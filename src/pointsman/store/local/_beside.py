"""Long scans on another processor, beside what a search does meanwhile: they need the interpreter only at both ends."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_PROCESSORS: Final = os.cpu_count() or 1


class _Scanners:
    """Threads for scans, no more at once than there are processors beside the caller's."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(_PROCESSORS, "pointsman-scan")
        self.free = threading.BoundedSemaphore(max(1, _PROCESSORS - 1))

    def begin(self, scan: Callable[[], T]) -> Future[T] | None:
        """See `begin`."""
        if _PROCESSORS < 2 or not self.free.acquire(blocking=False):
            return None

        def run() -> T:
            try:
                return scan()
            finally:
                self.free.release()  # before the caller goes on, who may begin another one

        try:
            return self.threads.submit(run)
        except RuntimeError:  # the program ends
            self.free.release()
            return None


_scanners = _Scanners()


def begin(scan: Callable[[], T]) -> Future[T] | None:
    """Begin a scan in another thread; None if no processor is free for it, and the caller has to scan."""
    return _scanners.begin(scan)


def _forget_threads() -> None:
    """Begin anew after a fork, which threads do not survive."""
    global _scanners  # noqa: PLW0603
    _scanners = _Scanners()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
