"""Write a method once, synchronous or asynchronous, and offer both.

A base class defines the pair in terms of each other with these two functions; a subclass overrides one of them, and
``require_one`` says so early when it overrides neither.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a synchronous function in a worker thread; when the caller is cancelled, its result is dropped."""
    return await anyio.to_thread.run_sync(partial(function, *args, **kwargs), abandon_on_cancel=True)


def wait_for(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run an asynchronous function to its end from synchronous code, also where an event loop is running already.

    A loop of its own is used either way; inside a running one it lives in a thread of its own, so nothing nests.
    """
    call = partial(function, *args, **kwargs)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return anyio.run(call)
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(anyio.run(call))
        except BaseException as error:  # noqa: BLE001  (handed to the caller, whatever it is)
            errors.append(error)

    thread = threading.Thread(target=run, name=f"wait-for-{getattr(function, '__name__', 'call')}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def require_one(cls: type, base: type, sync: str, asynchronous: str) -> None:
    """Check when a subclass is made that it overrides one of a pair of twins.

    Raises:
        TypeError: it overrides neither.
    """
    if all(getattr(cls, name) is getattr(base, name) for name in (sync, asynchronous)):
        raise TypeError(
            f"{cls.__name__} implements neither {sync} nor {asynchronous}; {base.__name__} needs one of them"
        )
