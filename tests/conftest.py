"""Shared fixtures: where the public test collections are, and servers that are started once for the run."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import httpx
import pytest
import typer.main
from hypothesis import HealthCheck, settings

from chroma_kit import ChromaServer, NoChromaError
from converter_kit import keep_converters
from opensearch_kit import Cluster, NoClusterError
from postgres_kit import NoServerError, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from playwright.sync_api import Browser

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when haystack is imported; tests need no network
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# A shell that runs the tests in the background has them ignore Ctrl-C, and the processes that they start do, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

MEMORY = Path("/dev/shm")


def folder_in_memory() -> Path | None:
    """A new folder in memory for temporary files, where 4 GB are free and `TMPDIR` names no other place.

    Whatever writes a dataset waits for the disk several times, most of the time of many a test. Their promises need no
    disk: a killed process loses no page of either kind, and the tests of power failures read the system calls.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < 4 << 30:
        return None
    if os.statvfs(MEMORY).f_flag & os.ST_NOEXEC or not os.access(MEMORY, os.W_OK):
        return None
    folder = Path(tempfile.mkdtemp(prefix="pointsman-", dir=MEMORY))
    folder.chmod(0o711)  # PostgreSQL runs as another user
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # so that it is chosen anew
    return folder


OWN_FOLDER = folder_in_memory()  # of the first process of the run: the others are told by TMPDIR


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(exitstatus: int) -> None:
    """Give the memory back, unless failed tests have left their files there."""
    if OWN_FOLDER is not None and exitstatus != pytest.ExitCode.TESTS_FAILED:
        shutil.rmtree(OWN_FOLDER, ignore_errors=True)


# the machine may be busy: time decides no test
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among what collecting makes, all of which stays: neither now nor in any test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# Reading what forty commands take is most of the time of a short one; help is translated when it is written.
pytest.MonkeyPatch().setattr(typer.main, "get_command", cache(typer.main.get_command))
keep_converters(pytest.MonkeyPatch())
# Each client of httpx would read all the certificates that are trusted, which takes 26 ms.
pytest.MonkeyPatch().setattr("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context))

CLUSTERS: list[Cluster] = []
"""The cluster of the run, while it runs."""

SLOW = tuple(
    f"test_{name}.py"
    for name in (
        *("words_first", "docs", "file_sources", "ingest_hostile", "console", "replay"),
        *("processes_isolation", "cluster", "reranking", "cli", "attach", "copying"),
        *("doors", "mcp_versions", "stopped_store", "store_lag", "vector_recall", "store_syscalls"),
        *("issuer_keys", "models_e5", "how_to", "store_search", "names", "postgres"),
        *("client", "bad_models", "openapi", "mcp", "store_names", "store_processes", "server_connections"),
        *("stores", "views", "conformance", "store_damage"),
    )
)
"""Files that take longest: a process that begins one of them when the others end would leave cores idle."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes the tests of a file stay together; those of the OpenSearch cluster share one process.

    What takes longest comes first.
    """
    needs_cluster: dict[pytest.Item, bool] = {}
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        names = [*getattr(item, "fixturenames", ()), *(value for value in parameters if isinstance(value, str))]
        needs_cluster[item] = "opensearch" in names
        item.add_marker(pytest.mark.xdist_group("opensearch" if needs_cluster[item] else item.path.name))
    ranks = {name: rank for rank, name in enumerate(SLOW)}
    items.sort(key=lambda item: -1 if needs_cluster[item] else ranks.get(item.path.name, len(SLOW)))


def uses_cluster(item: pytest.Item) -> bool:
    """Whether a test is one of those that share the OpenSearch cluster."""
    return any(mark.args == ("opensearch",) for mark in item.iter_markers("xdist_group"))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the cluster after the last test that needs it: three idle nodes take memory, and 2 % of two cores."""
    if nextitem is not None and uses_cluster(item) and not uses_cluster(nextitem):
        while CLUSTERS:
            CLUSTERS.pop().stop()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name data in a test's id by its size: a zip file holds the time, and the processes must agree about the ids."""
    if isinstance(val, str) and len(val) > 1000:
        return f"{len(val)} characters"
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Undo what a test does to logging: a service that runs in this process sends all records to standard error."""
    names = [None, "pointsman", "uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access", "asyncio"]
    loggers = [(one, one.level, one.propagate, one.disabled, one.handlers[:]) for one in map(logging.getLogger, names)]
    yield
    for one, level, propagate, disabled, handlers in loggers:
        if one.level != level:  # setting it goes through all the loggers there are
            one.setLevel(level)
        one.propagate, one.disabled, one.handlers[:] = propagate, disabled, handlers
    logging.captureWarnings(capture=False)


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of public test collections; tests that need it are skipped where it is not."""
    folder = Path(os.environ.get("POINTSMAN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no test collections at {folder}; set POINTSMAN_TEST_DATA")
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL; tests that need it are skipped where none can be had, and fail in CI."""
    pytest.importorskip("psycopg")
    try:
        server = PostgresServer()
    except NoServerError as error:
        unavailable(str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def opensearch() -> Iterator[Cluster]:
    """A real OpenSearch of three nodes; tests that need it are skipped where none can be had, and fail in CI."""
    pytest.importorskip("opensearchpy")
    try:
        cluster = Cluster(3)
    except NoClusterError as error:
        unavailable(str(error))
    CLUSTERS.append(cluster)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def chroma() -> Iterator[ChromaServer]:
    """A real Chroma; tests that need it are skipped where none can be had, and fail in CI."""
    try:
        server = ChromaServer()
    except NoChromaError as error:
        unavailable(str(error))
    yield server
    server.stop()


def unavailable(reason: str) -> NoReturn:
    """Skip what needs a server that cannot be had; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser without a window, which `browser.watching` opens pages in."""
    from browser import chromium, path_of_chromium

    pytest.importorskip("playwright.sync_api", reason="pages are tested with playwright")
    path = path_of_chromium()
    if path is None:
        pytest.skip("pages are tested in chromium, and this machine has none")
    with chromium(path) as chrome:
        yield chrome
