"""Runs the service: where it listens, in how many processes, and how it stops."""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from pointsman.service.server.access.api_keys import KeyStore, keys_of
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.store.backend_urls import open_backend
from pointsman.tools.errors import InputError, MissingDependencyError
from pointsman.tools.system.file_descriptors import raise_descriptor_limit
from pointsman.tools.system.locations import redacted
from pointsman.tools.system.processes import isolate_spawned_processes
from pointsman.values.setting_sources import PREFIX
from pointsman.values.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

log = logging.getLogger(__name__)

_VARIABLE: Final = f"{PREFIX}SERVE"  # passes the options to worker processes


@dataclass(frozen=True, slots=True)
class Options:
    """How to serve.

    Attributes:
        workspace: the folder of datasets, or the URL of a server.
        host: the address to listen on.
        port: the port to listen on; 0 for any free one.
        workers: number of processes; all answer requests, but only one at a time writes to a dataset.
        keyless: everyone on this machine may do everything without a key, whatever keys exist or existed.
        hosts: host names of the service besides the loopback ones.
        origins: other origins whose pages may make changes.
        settings: the settings file.
        embedder: name of the embedder; by default the one in the settings.
        limits: limits of requests by name; the others have their defaults.
        log_level: ``"debug"``, ``"info"``, ``"warning"`` or ``"error"``.
        log_json: whether to log a JSON object per line instead of text.
    """

    workspace: str
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    keyless: bool = False
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    settings: str | None = None
    embedder: str | None = None
    limits: dict[str, Any] | None = None
    log_level: str = "info"
    log_json: bool = True

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def serve(options: Options, *, on_listening: Callable[[str], None] | None = None) -> None:
    """Serve until stopped by SIGTERM or SIGINT; running requests are completed first.

    Args:
        options: how to serve.
        on_listening: called with the address once it is bound; the address is also logged.

    Raises:
        InputError: the address cannot be bound, or others could reach a service without keys.
        MissingDependencyError: the required packages are not installed.
    """
    for package in ("fastapi", "uvicorn"):  # before the address is announced
        try:
            import_module(package)
        except ImportError as error:
            raise MissingDependencyError(package, "server", "pointsman serve") from error
    limits, level = _limits(options), options.log_level
    with ExitStack() as stack:
        with closing(open_backend(options.workspace)) as backend:
            listening = stack.enter_context(announced(options, keys_of(backend), on_listening))  # closed in any case
        if options.workers == 1:
            run_server(configure(application(options), limits=limits, log_level=level), listening)
            return
        from uvicorn.supervisors import Multiprocess

        isolate_spawned_processes()
        os.environ[_VARIABLE] = json.dumps(asdict(options))
        app = f"{__name__}:from_environment"
        config = configure(app, limits=limits, factory=True, workers=options.workers, log_level=level)
        Multiprocess(config, sockets=[listening]).run()


@contextmanager
def announced(
    options: Options, keys: KeyStore, on_listening: Callable[[str], None] | None, path: str = ""
) -> Iterator[socket.socket]:
    """Within the block, listen at the address, which is told once it is bound; clients that connect wait.

    Raises:
        InputError: the address cannot be bound, or others could reach a service without keys.
    """
    from pointsman.service.server.request_log import configure_logging

    check_closed(options, keys)
    with bound(options.host, options.port) as listening:
        configure_logging(options.log_level, json=options.log_json)  # left unchanged if nothing can be served
        warn_if_closed(options, keys)
        announce(redacted(options.workspace), f"{address(listening)}{path}", on_listening)
        yield listening


def run_server(config: uvicorn.Config, listening: socket.socket) -> None:
    """Serve in this process until stopped by SIGTERM or SIGINT; what runs then is completed first."""
    import uvicorn

    with ending_with_zero():
        uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def ending_with_zero() -> Iterator[None]:
    """Within the block, SIGTERM ends this process with 0: uvicorn completes all requests, then sends it once more."""
    if threading.current_thread() is not threading.main_thread():  # only there are signals handled
        yield
        return
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


GRACE: Final = 30
"""Seconds for requests to complete after the service was told to stop."""


def configure(
    app: ASGIApp | str, *, limits: Limits | None = None, grace: int = GRACE, **options: Any
) -> uvicorn.Config:
    """Return uvicorn's configuration for an application: strict, and without a server header.

    The soft limit of file descriptors is raised, since every connection and every open dataset takes some.
    """
    import uvicorn

    from pointsman.service.server.http_protocol import OpenConnections, Protocol

    raise_descriptor_limit()
    limits = limits or Limits()
    protocol: Any = partial(Protocol, connections=OpenConnections(limits))
    return uvicorn.Config(
        app,
        http=protocol,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]  # passed to the loop as it is
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace,
        h11_max_incomplete_event_size=64 * 1024,
        **options,
    )


def announce(workspace: str, address: str, on_listening: Callable[[str], None] | None) -> None:
    """Report the service's address: in the log, at any level, and to the callback."""
    message = (f"pointsman serves {workspace} at {address}", (), None)
    log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, *message, extra={"fields": {"address": address}}))
    if on_listening is not None:
        on_listening(address)


def check_closed(options: Options, keys: KeyStore) -> None:
    """Check that a workspace without keys cannot be reached from outside.

    Raises:
        InputError: others could reach it.
    """
    make_one = f"make one with 'pointsman keys create NAME --workspace {redacted(options.workspace)}'"
    if not options.loopback and options.keyless:
        raise InputError(f"--open is only for this machine, but on {options.host} others could reach it")
    if not options.loopback and not keys.usable():
        raise InputError(
            f"on {options.host} others could reach it, and there are no keys; {make_one}, or listen on 127.0.0.1"
        )


def warn_if_closed(options: Options, keys: KeyStore) -> None:
    """Log a warning if no one can use the service because every key is revoked or expired."""
    if not (options.keyless or keys.empty() or keys.usable()):
        log.warning(
            "every key has been revoked or has expired, so all requests are refused; make one with 'pointsman keys "
            "create NAME --workspace %s', or start with --open",
            redacted(options.workspace),
        )


def application(options: Options) -> ASGIApp:
    """Return the application described by these options."""
    from pointsman.service.server.app import create_app
    from pointsman.workspace.workspace_search import Workspace

    _return_memory()
    settings = Settings.load(options.settings)
    app = create_app(
        Workspace(options.workspace, embedder=options.embedder, settings=settings),
        limits=_limits(options),
        loopback=options.loopback,
        keyless=options.keyless,
        hosts=(*options.hosts, *_names(options.host)),
        origins=options.origins,
        worker=options.workers > 1,
    )
    freeze_loaded_objects()
    return app


def freeze_loaded_objects() -> None:
    """Leave everything that has been loaded out of garbage collections from now on.

    The imported packages alone are a hundred thousand objects. Python looks at all of them in one go, some 60 ms of
    processor time each, whenever enough new ones have been made, and answers nobody meanwhile; on a machine that is
    busy otherwise that is half a second.
    """
    gc.collect()  # what is garbage now would stay for ever
    gc.freeze()


def _return_memory() -> None:
    """Make glibc give freed memory back to the system, unless the environment sets these options.

    By default each thread that writes an index gets an arena of its own, large buffers stay in it once freed, and the
    limit for "large" grows with use: after 150 writes a process that uses 13 MB of such memory keeps 126 MB. With two
    arenas for all threads and a fixed limit it keeps 15 MB.
    """
    with suppress(OSError, AttributeError):  # another C library has no such options
        library = ctypes.CDLL(None)
        for variable, option, value in _MALLOC:
            if variable not in os.environ:
                library.mallopt(option, value)


_MALLOC: Final = (("MALLOC_ARENA_MAX", -8, 2), ("MALLOC_MMAP_THRESHOLD_", -3, 1 << 20))
"""Variables and parameters of glibc's malloc.h (``M_ARENA_MAX``, ``M_MMAP_THRESHOLD`` in bytes), and their values."""


def from_environment() -> ASGIApp:
    """Return the application of a worker process."""
    from pointsman.service.server.request_log import configure_logging

    options = Options(**json.loads(os.environ[_VARIABLE]))
    configure_logging(options.log_level, json=options.log_json)
    return application(options)


def _names(host: str) -> tuple[str, ...]:
    """Return the host if it is a single address, under which the service can be reached."""
    try:
        return () if ip_address(host).is_unspecified else (host,)
    except ValueError:
        return (host,)


def _limits(options: Options) -> Limits:
    try:
        return Limits(**(options.limits or {}))
    except TypeError as error:
        raise InputError(f"there is no such limit: {error}") from None


_BACKLOG: Final = 2048
"""Connections that may wait to be accepted, as uvicorn has it."""


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens at this address: clients that connect before the service runs wait for it.

    Raises:
        InputError: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so asyncio sets TCP_NODELAY
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(
            f"cannot listen on {host} port {port}: {error}; choose another with --host or --port"
        ) from error
    listener.set_inheritable(True)
    return listener


def address(listening: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
