"""Lets a class implement a method once, synchronous or asynchronous, and offer both.

A base class defines the pair in terms of each other with these two functions; a subclass overrides one of them, and
`Twins` raises early if it overrides neither.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from time import monotonic, sleep
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, Self, TypeVar

import anyio
import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")

_GRACE: Final = 2.0  # seconds that the end of the process waits for calls in daemon threads
_in_daemons: set[object] = set()


@contextmanager
def in_daemon() -> Iterator[None]:
    """Mark a call in a daemon thread as under way, so that the end of the process waits for it a moment.

    Before 3.14, Python ends a daemon thread by unwinding its stack; if a model's C++ code is on it, the process aborts.
    """
    call = object()
    _in_daemons.add(call)
    try:
        yield
    finally:
        _in_daemons.discard(call)


@atexit.register
def _let_daemons_end() -> None:
    deadline = monotonic() + _GRACE
    try:
        while _in_daemons and monotonic() < deadline:
            sleep(0.005)
    except KeyboardInterrupt:
        pass  # the process ends anyway


if hasattr(os, "register_at_fork"):  # absent on systems without fork
    os.register_at_fork(after_in_child=_in_daemons.clear)  # a child has none of these threads


@contextmanager
def set_within(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable a value within the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a synchronous function in a worker thread; if the caller is cancelled, the result is dropped."""
    return await anyio.to_thread.run_sync(partial(function, *args, **kwargs), abandon_on_cancel=True)


def async_twin(
    method: Callable[Concatenate[Any, P], T], form: str = "a{}"
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make the async version of a method, which runs it in a worker thread.

    Args:
        method: the synchronous method.
        form: the async version's name, with ``{}`` for the name of the method; Haystack's is ``"{}_async"``.

    >>> class Counter:
    ...     def count(self) -> int:
    ...         return 3
    ...
    ...     acount = async_twin(count)
    >>> asyncio.run(Counter().acount())
    3
    """
    name, twin_name = method.__name__, form.format(method.__name__)

    @wraps(method)
    async def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call: Callable[P, T] = getattr(self, name)  # a subclass may override it
        return await in_thread(call, *args, **kwargs)

    twin.__name__, twin.__qualname__ = twin_name, method.__qualname__.replace(name, twin_name)
    twin.__doc__ = f"Async version of `{name}`."
    return twin


def around(
    method: Callable[..., Any],
    prepare: Callable[..., tuple[tuple[Any, ...], Any]],
    finish: Callable[[Any, tuple[Any, ...], Any], Any],
) -> Callable[..., Any]:
    """Wrap a method, synchronous or asynchronous.

    Args:
        method: the method.
        prepare: takes the object and the arguments; returns those that the method is called with, and None, or an
            answer that makes the call needless.
        finish: takes the object, those arguments and the method's result; returns the result of the whole.
    """

    @wraps(method)
    def wrapper(self: Any, *args: Any, **options: Any) -> Any:
        arguments, answer = prepare(self, *args, **options)
        return finish(self, arguments, method(self, *arguments)) if answer is None else answer

    @wraps(method)
    async def async_wrapper(self: Any, *args: Any, **options: Any) -> Any:
        arguments, answer = prepare(self, *args, **options)
        return finish(self, arguments, await method(self, *arguments)) if answer is None else answer

    return async_wrapper if inspect.iscoroutinefunction(method) else wrapper


def wait_for(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run an asynchronous function to completion from synchronous code, even if an event loop is already running.

    It always gets its own event loop; inside a running one, that loop runs in its own thread, so nothing nests.
    """
    call = partial(function, *args, **kwargs)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return anyio.run(call)
    return ThreadPoolExecutor(1, "wait-for").submit(anyio.run, call).result()


def settled(value: T | Awaitable[T]) -> T:
    """Return a value; if it is awaitable, wait for it."""
    if not inspect.isawaitable(value):
        return value

    async def wait() -> T:
        return await value

    return wait_for(wait)


async def await_each(calls: Iterable[Callable[[], Awaitable[object]]], at_once: int) -> None:
    """Await calls, at most so many at the same time; an error of one ends the others, and is raised."""
    slots = anyio.CapacityLimiter(at_once)

    async def await_call(call: Callable[[], Awaitable[object]]) -> None:
        async with slots:
            await call()

    try:
        async with anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(await_call, call)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


def limited(call: Callable[[], T], seconds: float | None, name: str, late: Callable[[float], Exception]) -> T:
    """Run a call in its own thread, in a copy of this context, and wait for it no longer than ``seconds``.

    Args:
        call: what to run; if it is late, its thread ends when it returns.
        seconds: how long to wait; None waits without a limit and uses no thread.
        name: the thread's name.
        late: makes the error to raise on a timeout.

    Raises:
        Exception: whatever the call raises, or what ``late`` returns.
    """
    if seconds is None:
        return call()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        with in_daemon():
            try:
                results.append(call())
            except BaseException as error:  # noqa: BLE001  (handed to the caller, whatever it is)
                errors.append(error)

    # A daemon: a model that hangs must not keep the process alive.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise late(seconds)
    return results[0]


class Twins:
    """Base of classes that offer a method as synchronous and asynchronous twins and need one of them implemented.

    ``class BaseReader(Twins, needs=("read", "aread"))`` declares the pair (or a longer list of alternatives). Such a
    base cannot be instantiated, and a subclass that implements none of the methods is rejected when the class is
    created: the twins would call each other without end.
    """

    _twin_bases: ClassVar[tuple[tuple[type, tuple[str, ...]], ...]] = ()

    def __init_subclass__(cls, needs: tuple[str, ...] = (), **options: Any) -> None:
        """Declare methods of which subclasses must implement one, or check that this class does.

        Raises:
            TypeError: the class implements none of them.
        """
        super().__init_subclass__(**options)
        if needs:
            cls._twin_bases = (*cls._twin_bases, (cls, needs))
        else:
            cls._require_one()

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Refuse to instantiate a base.

        Raises:
            TypeError: the class only declares what its subclasses implement.
        """
        if "_twin_bases" in cls.__dict__:
            cls._require_one()
        return super().__new__(cls)

    @classmethod
    def _require_one(cls) -> None:
        for base, names in cls._twin_bases:
            if all(getattr(cls, name) is getattr(base, name) for name in names):
                lack = f"neither {names[0]} nor {names[1]}" if len(names) == 2 else f"none of {', '.join(names)}"
                raise TypeError(f"{cls.__name__} implements {lack}; {base.__name__} needs one of them in a subclass")
