"""Connections to one database, and the translation of its errors.

A call borrows a connection and returns it at once. If it fails because a server restarts, or two transactions conflict,
it is retried with growing pauses, for some seconds in total; so all work done here must be safe to repeat. Async
searches have separate connections for each event loop.

Whoever asks connects, and so is told at once why that failed. A `psycopg_pool.ConnectionPool` connects in threads of
its own, and tells a wrong password only as a wait that was too long.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pointsman.tools.errors import (
    InputError,
    LockedError,
    MissingDependencyError,
    ReplacedError,
    StoreError,
    StoreUnavailableError,
)
from pointsman.tools.network.http_addresses import is_loopback, one_line
from pointsman.tools.network.retries import Retries

try:
    import psycopg
    from psycopg import conninfo
    from psycopg.pq import TransactionStatus

    from pointsman.store.postgres.bounded_connections import (
        STATEMENT_SECONDS,
        AsyncBoundedConnection,
        BoundedConnection,
    )
except ImportError as error:
    raise MissingDependencyError("psycopg", "postgres", "a workspace in PostgreSQL") from error

T = TypeVar("T")

CONNECT_SECONDS: Final = 5
LOCK_SECONDS: Final = 30.0
PATIENCE: Final = 5.0  # seconds for which temporary failures are retried
_DOWN_SECONDS: Final = 1.0  # after a failure to connect, only one attempt is made during this time

# Settings of every session. HNSW returns at most ef_search rows; with 400, recall at depth 10 is .99.
_SETTINGS: Final = {
    "timezone": "UTC",
    "statement_timeout": f"{STATEMENT_SECONDS:.0f}s",
    "lock_timeout": f"{LOCK_SECONDS:.0f}s",
    "idle_in_transaction_session_timeout": "60s",
    "hnsw.ef_search": "400",
    "hnsw.iterative_scan": "relaxed_order",
    "hnsw.scan_mem_multiplier": "8",  # times work_mem: otherwise a filtered scan gives up before its list is full
    "jit": "off",  # compilation would take longer than the searches
}
_NETWORK: Final = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
_PASSING: Final = ("starting up", "shutting down", "in recovery", "too many", "remaining connection slots")
_RETRIED_CODES: Final = ("08", "40", "53300", "57P")  # connection lost, transaction conflict, no free slot, shutdown


class Connections:
    """Connections to one database, usable from any thread and any event loop.

    Args:
        url: ``postgresql://…`` as libpq reads it; also host lists and service names.
        limit: maximum number of connections for threads, and for each event loop.
        patience: seconds for which temporary failures of a call are retried.
        read_only: whether the server must refuse all changes; calls of `arun` are not protected from functions that
            switch this off.
        session: the only connection, in place of those that would be opened here; async calls then use threads.

    Raises:
        InputError: the URL cannot be parsed.
    """

    def __init__(
        self,
        url: str,
        *,
        limit: int = 8,
        patience: float = PATIENCE,
        read_only: bool = False,
        session: _OneSession | None = None,
    ) -> None:
        try:
            parameters = conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            unknown_option = re.search(
                r'invalid URI query parameter: "(\w+)"', str(error)
            )  # other texts may have a password
            complaint = f"has the unknown option {unknown_option[1]}" if unknown_option else "cannot be read"
            raise InputError(
                f"the URL of a database {complaint}; give one such as postgresql://user@host:5432/database?schema=pointsman"
            ) from None
        self._url, self.label = url, _label(parameters)
        self._password = str(parameters.get("password") or "")
        self._connection_limit, self._patience, self._read_only = limit, patience, read_only
        server_settings = {**_SETTINGS, **({"default_transaction_read_only": "on"} if read_only else {})}
        settings = " ".join(f"-c {name}={value}" for name, value in server_settings.items())
        options = f"{settings} {parameters.pop('options', '')}".strip()
        secure = {} if _is_here(parameters) or "sslmode" in parameters or "PGSSLMODE" in os.environ else _VERIFIED_TLS
        self._parameters: dict[str, Any] = {
            "application_name": "pointsman",
            **_NETWORK,
            **secure,
            **parameters,
            "options": options,
        }
        self.session = session
        self._down_until = 0.0
        self._guard = threading.Lock()
        self._processes: dict[int, _Idle] = {}
        self._loops: dict[weakref.ref[asyncio.AbstractEventLoop], _Idle] = {}

    def __repr__(self) -> str:
        return f"Connections({self.label!r})"

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Call ``work`` with a connection in autocommit mode and return its result; retry temporary failures.

        Raises:
            StoreUnavailableError: the server cannot be reached, or takes too long.
            LockedError: another writer does not finish.
            StoreError: any other error of the database.
        """
        retries, down_until, closings = self._retries(), self._down_until, self._of_process().closings
        while True:
            try:
                with self._lend_connection(closings) as connection:
                    return self._only_reading(connection, work) if self._read_only else work(connection)
            except (psycopg.Error, UnicodeEncodeError) as error:
                pause = self._pause_after(error, retries, down_until)
            time.sleep(pause)

    @staticmethod
    def _only_reading(connection: psycopg.Connection[Any], work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Call ``work`` in a read-only transaction, and roll it back.

        A function that a view calls can change the session's defaults, but not make a read-only transaction write;
        and what it changes in the session is rolled back too.
        """
        connection.read_only = True
        with connection.transaction(force_rollback=True):
            return work(connection)

    async def arun(self, work: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Async version of `run`, for an asyncio event loop; cancelling a call stops its statement on the server."""
        retries, down_until = self._retries(), self._down_until
        while True:
            try:
                async with self._alent() as connection:
                    return await work(connection)
            except (psycopg.Error, UnicodeEncodeError) as error:
                pause = self._pause_after(error, retries, down_until)
            await asyncio.sleep(pause)

    def _retries(self) -> Retries:
        return Retries(time.monotonic() + self._patience, first=0.05, longest=1.0)

    def _pause_after(self, error: psycopg.Error | UnicodeEncodeError, retries: Retries, down_until: float) -> float:
        """Return the seconds before a retry.

        Args:
            error: why the call failed.
            retries: its further attempts.
            down_until: until when the server was considered down when the call began.

        Raises:
            StoreError, InputError: it is not worth one.
        """
        if isinstance(error, UnicodeEncodeError):
            problem = f"{self.label}: a name or text has a lone surrogate, which no database can hold"
            raise InputError(problem) from error
        pause = None
        if _passing(error):
            time_now, start = time.monotonic(), retries.start
            answers = any(reason in str(error) for reason in _PASSING)  # one that recovers will be there in a moment
            unreachable = isinstance(error, psycopg.OperationalError) and error.sqlstate is None and not answers
            if unreachable:
                self._down_until = time_now + _DOWN_SECONDS
            pause = retries.pause() if start >= down_until or not unreachable else None
        if pause is None:
            raise self.translated(error) from error
        return pause

    def translated(self, error: psycopg.Error) -> StoreError:
        """Return an error as one of ours, without a password."""
        text = one_line(str(error), 300)
        if self._password:
            text = text.replace(self._password, "***").replace(quote(self._password, safe=""), "***")
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return LockedError(f"{self.label}: another writer does not finish; try again")
        if isinstance(error, psycopg.errors.QueryCanceled):
            return StoreUnavailableError(f"{self.label}: no answer within {STATEMENT_SECONDS:.0f} s; try again")
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.ForeignKeyViolation):
            return ReplacedError(f"{self.label}: the dataset was deleted or recreated; open it again")
        if isinstance(error, psycopg.errors.InsufficientPrivilege | psycopg.errors.ReadOnlySqlTransaction):
            return StoreError(f"{self.label}: {text}; connect as a role that may do this")
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return StoreUnavailableError(
                f"{self.label} does not answer ({text}); check that it is running and that you have access"
            )
        return StoreError(f"{self.label}: {text}")

    def close(self) -> None:
        """Close the idle connections; later calls open new ones."""
        with self._guard:
            for idle in self._loops.values():
                idle.close()
            self._loops.clear()
        self._of_process().close()

    def of_one_session(self) -> tuple[Connections, Callable[[], object]]:
        """Return connections that are all one, which keeps its temporary tables, and what ends it.

        Raises:
            StoreError: the database cannot be reached.
        """
        try:
            connection = BoundedConnection.connect(**self._parameters, **_PLAIN)
        except psycopg.Error as error:
            raise self.translated(error) from error
        return Connections(self._url, patience=0.0, session=_OneSession(connection)), connection.close

    @property
    def is_open(self) -> bool:
        """Whether connections of one session are still there."""
        return self.session is not None and self.session.is_open

    # ── lending ──────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _lend_connection(self, closings: int) -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection, and keep it afterwards unless all were closed since there were so many ``closings``."""
        if self.session is not None:
            with self.session.connection() as connection:
                yield connection
            return
        idle = self._of_process()
        if not idle.places.acquire(timeout=STATEMENT_SECONDS):
            raise StoreUnavailableError(f"{self.label}: all {self._connection_limit} connections are busy; allow more")
        try:
            connection = (
                idle.connections.pop() if idle.connections else BoundedConnection.connect(**self._parameters, **_PLAIN)
            )
            try:
                yield connection
            finally:
                if _reusable(connection) and idle.closings == closings:
                    idle.connections.append(connection)
                else:
                    if connection.broken:
                        idle.close()  # others as old are gone too: the server was restarted
                    connection.close()
        finally:
            idle.places.release()

    def _of_process(self) -> _Idle:
        """Return this process's connections; those inherited by a fork belong to its parent and stay untouched."""
        with self._guard:
            return self._processes.setdefault(os.getpid(), _Idle(threading.BoundedSemaphore(self._connection_limit)))

    @asynccontextmanager
    async def _alent(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        idle = self._of_loop()
        async with idle.places:
            if idle.connections:
                connection = idle.connections.pop()
            else:
                connection = await AsyncBoundedConnection.connect(**self._parameters, **_PLAIN)
            try:
                yield connection
            finally:
                if _reusable(connection):
                    idle.connections.append(connection)
                else:
                    connection.pgconn.finish()  # awaiting nothing: this very task may be cancelled

    def _of_loop(self) -> _Idle:
        """Return the running event loop's connections, to which they are bound; close those of loops that are gone."""
        with self._guard:
            for reference in list(self._loops):
                if (loop := reference()) is None or loop.is_closed():
                    self._loops.pop(reference).close()
            reference = weakref.ref(asyncio.get_running_loop())
            return self._loops.setdefault(reference, _Idle(asyncio.Semaphore(self._connection_limit)))


class _OneSession:
    """A single connection: whoever borrows it waits for the others."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection, self._turn = connection, threading.RLock()

    @property
    def is_open(self) -> bool:
        """Whether the connection was not lost."""
        return not self._connection.closed

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend it."""
        with self._turn:
            yield self._connection


_PLAIN: Final[dict[str, Any]] = {"autocommit": True, "prepare_threshold": None}  # vectors are planned as constants
_VERIFIED_TLS: Final = {"sslmode": "verify-full", "sslrootcert": "system"}


class _Idle:
    """The idle connections of a process, or of an event loop (appending to a list and popping are atomic)."""

    def __init__(self, places: Any) -> None:
        self.connections: list[Any] = []
        self.places, self.closings = places, 0

    def close(self) -> None:
        """Close them without awaiting: their event loop may be gone."""
        self.closings += 1
        while self.connections:
            connection = self.connections.pop()  # named, for one that nothing refers to says that it is open
            connection.pgconn.finish()


def _reusable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE


def _passing(error: psycopg.Error) -> bool:
    """Whether the same call may succeed in a moment."""
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_RETRIED_CODES)
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    text = str(error)
    return "FATAL" not in text or any(reason in text for reason in _PASSING)


def _is_here(parameters: dict[str, Any]) -> bool:
    """Whether all hosts are this machine: a loopback address or a socket. A service may name any host."""
    if parameters.get("service") or os.environ.get("PGSERVICE"):
        return False
    hosts = str(parameters.get("hostaddr") or parameters.get("host") or os.environ.get("PGHOST") or "").split(",")
    return all(not host or host[0] in "/@" or is_loopback(host) for host in hosts)


def _label(parameters: dict[str, Any]) -> str:
    """Return the database's location, without secrets."""
    hosts = str(parameters.get("host") or parameters.get("hostaddr") or "localhost").split(",")
    ports = str(parameters.get("port") or "").split(",")
    if len(ports) != len(hosts):
        ports = ports[:1] * len(hosts)
    hosts = [f"[{host}]" if ":" in host else host for host in hosts]
    host_list = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=True))
    user = f"{quote(str(parameters['user']))}@" if parameters.get("user") else ""
    return f"postgresql://{user}{host_list}/{quote(str(parameters.get('dbname') or ''))}"
