"""Write a method once, synchronous or asynchronous, and offer both.

A base class defines the pair in terms of each other with these two functions; a subclass overrides one of them, and
``require_one`` says so early when it overrides neither.
"""

from __future__ import annotations

import asyncio
import contextvars
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


def limited(call: Callable[[], T], seconds: float | None, name: str, late: Callable[[float], Exception]) -> T:
    """Run a call in a thread of its own, in a copy of this context, that nobody waits for longer than so.

    Args:
        call: what to run; where it is late, its thread ends when it does.
        seconds: how long to wait; None: as long as it takes, without a thread.
        name: what the thread is called.
        late: makes the error to raise when those seconds are over.

    Raises:
        Exception: whatever the call raises, or what ``late`` has made.
    """
    if seconds is None:
        return call()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  (handed to the caller, whatever it is)
            errors.append(error)

    # A daemon: a model that hangs must not keep the process from ending either.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise late(seconds)
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
