"""What a call enters of the library, for tests and for benchmarks/search.py."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pointsman

LIBRARY = f"{Path(pointsman.__file__).parent}/"


class Profile:
    """What a call enters of the library, in this thread and those that it starts.

    Clocks of the library stand still meanwhile: what is read again after a while would make the counts depend on how
    busy the machine is.

    Args:
        call: what is watched.

    Attributes:
        calls: how often each function was called, by qualified name; generated methods of dataclasses count.
        files: those that were entered, by their path within the library.
        moves: two calls in a row, in one thread, in different files.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.calls: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self.moves = 0
        self._last: dict[int, str] = {}  # the file that each thread entered last
        gc.disable()  # finalizers of what others left behind would be noted, too
        try:
            with _clocks_stopped():
                threading.setprofile(self._note)
                sys.setprofile(self._note)
                try:
                    call()
                finally:
                    sys.setprofile(None)
                    threading.setprofile(None)
        finally:
            gc.enable()

    def _note(self, frame: Any, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith((LIBRARY, "<string>")):
            return
        self.calls[frame.f_code.co_qualname] += 1
        if path.startswith(LIBRARY):
            self.files[path.removeprefix(LIBRARY)] += 1
            thread = threading.get_ident()
            self.moves += self._last.get(thread, path) != path
            self._last[thread] = path


@contextmanager
def _clocks_stopped() -> Iterator[None]:
    """Let ``monotonic`` of the library return 0 within the block: nothing is old enough to be read again."""
    clock = time.monotonic
    modules: list[Any] = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("pointsman.") and vars(module).get("monotonic") is clock
    ]
    for module in modules:
        module.monotonic = lambda: 0.0
    try:
        yield
    finally:
        for module in modules:
            module.monotonic = clock
