"""Connections to PostgreSQL that are given up if the server says nothing, as one that is stopped."""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

T = TypeVar("T")

STATEMENT_SECONDS: Final = 60.0
"""For which the server may work on a statement."""
ANSWER_SECONDS: Final = STATEMENT_SECONDS + 5
"""After which a server that says nothing counts as stopped."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is given up if the server says nothing for longer than it may work on a statement.

    The network's own limits don't notice a server that is stopped: its system goes on to acknowledge what is sent.

    Attributes:
        is_bounded: whether that holds now, as it does not for statements without a limit.
    """

    is_bounded = True

    def __del__(self, *_: Any) -> None:
        """End it without a warning: a thread that nobody waited for has put it back into a closed store."""
        if hasattr(self, "pgconn"):
            self.pgconn.finish()

    def wait(self, gen: Generator[Any, Any, T], *options: Any, **more: Any) -> T:
        """Wait for an answer.

        Raises:
            psycopg.OperationalError: there is none in time.
        """
        return super().wait(_steps_in_time(self, gen) if self.is_bounded else gen, *options, **more)


class AsyncBoundedConnection(psycopg.AsyncConnection[Any]):
    """Async version of `BoundedConnection`."""

    async def wait(self, gen: Generator[Any, Any, T], *options: Any, **more: Any) -> T:
        """See `BoundedConnection`."""
        return await super().wait(_steps_in_time(self, gen), *options, **more)


def _steps_in_time(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], steps: Generator[Any, Any, T]
) -> Generator[Any, Any, T]:
    """Go through the steps of an answer; between them psycopg says now and then that nothing has come."""
    end = monotonic() + ANSWER_SECONDS
    try:
        wanted = next(steps)
        while True:
            event = yield wanted
            if event:
                end = monotonic() + ANSWER_SECONDS
            elif monotonic() > end:
                connection.pgconn.finish()  # nothing more is to be waited for, such as that it rolls back
                raise psycopg.OperationalError(f"the server has said nothing for {ANSWER_SECONDS:.0f} s")
            wanted = steps.send(event)
    except StopIteration as stop:
        result: T = stop.value
        return result


@contextmanager
def without_limit(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Let statements within the block take as long as they need; whoever begins it sets ``statement_timeout``."""
    bounded = [connection] if isinstance(connection, BoundedConnection) else []
    for item in bounded:
        item.is_bounded = False
    try:
        yield
    finally:
        for item in bounded:
            item.is_bounded = True
