"""Where `golden` asks, the doors, and what it keeps of an answer: values of JSON that are the same in every run."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np

import pointsman
from _golden_questions import TECHNIQUES, documents
from pointsman import PointsmanError, Settings, load_embedder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the kits of real servers


# ── what is kept of an answer ────────────────────────────────────────────────────────────────────────────────────────

UNSTEADY: Final = frozenset(
    {"milliseconds", "started", "latency_ms", "instance", "bytes", "memory", "pid", "created", "created_at", "identity",
     "seconds", "p50", "p95", "took", "modified", "indexed", "updated_at", "latency", "time", "bytes_by_part"}
)  # fmt: skip
"""Names of values that differ from run to run."""

_SPACES: Final = (
    (re.compile(r"r1\.[\w\-.]{40,}"), "<receipt>"),
    (re.compile(r"\b[\d,]+ MB\b"), "<memory>"),
    (re.compile(r"127\.0\.0\.1:\d+|localhost:\d+|\bport \d{4,5}"), "<address>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|milliseconds?|seconds?)\b"), "<time>"),
    (re.compile(r"0x[0-9a-f]{6,}"), "<place>"),
    (re.compile(rf"\b{re.escape(pointsman.__version__)}\b"), "<version>"),
    (re.compile(re.escape(str(Path(pointsman.__file__).parents[2]))), "<checkout>"),
)


NEW_FIELDS: Final = {"member", "page_break", "page_end"}
"""Fields that answers did not have when they were first recorded."""


def steady_text(text: str, folder: Path) -> str:
    """A text without what differs from run to run; only the beginning and a digest of a long one."""
    text = text.replace(str(folder), "<folder>").replace(time.strftime("%Y-%m-%d"), "<today>")
    for pattern, name in _SPACES:
        text = pattern.sub(name, text)
    return text if len(text) <= 400 else f"{text[:200]}… {len(text)} {_digest(text)}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def steady_items(value: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """The items that are the same from run to run; a new field that is empty is no difference."""
    for name, each in value.items():
        if name not in UNSTEADY and not (name in NEW_FIELDS and each is None):
            yield name, each


def plain(value: Any, folder: Path) -> Any:  # noqa: C901, PLR0911  (a case for each type)
    """Values of JSON, without what differs from run to run; of a long list the first ten and a digest.

    Raises:
        TypeError: nothing is known of such an object.
    """
    again = partial(plain, folder=folder)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, str | Path):
        return steady_text(str(value), folder)
    if isinstance(value, pointsman.RetrievalContext):
        return again(value.to_dict(trace="lists"))
    if isinstance(value, pointsman.Filter | BaseException):
        return again(str(value))
    if isinstance(value, pointsman.Dataset):
        return again(value.name)
    if callable(getattr(value, "to_dict", None)):
        return again(value.to_dict())
    if isinstance(value, Mapping):
        return {str(again(str(name))): again(each) for name, each in steady_items(value)}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
        return again({name: getattr(value, name) for name in names})
    if isinstance(value, set | frozenset):
        return again(sorted(value, key=repr))
    if isinstance(value, np.ndarray | np.generic):
        return again(value.tolist())
    if isinstance(value, Sequence):
        items = [again(each) for each in value]
        return items if len(items) <= 30 else [*items[:10], f"… {len(items)} {_digest(json.dumps(items))}"]
    raise TypeError(f"how is a {type(value).__name__} kept? {value!r:.200}")


class Answers:
    """What is asked, in its order, and the answers by key."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.by_key, self.crashes = folder, dict[str, Any](), list[str]()

    def __call__(self, key: str, ask: Callable[[], Any]) -> None:
        """Keep what comes of a call: an answer, or an error that the library promises."""
        if key in self.by_key:
            raise ValueError(f"asked twice: {key}")
        try:
            value: Any = plain(ask(), self.folder)
        except (PointsmanError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, TypeError) and str(error).startswith("how is a "):
                raise
            value = {"error": type(error).__name__, "message": plain(str(error), self.folder)}
        except Exception as error:  # noqa: BLE001  (no promise: a comparison shows it, and it is told at the end)
            value = {"crash": type(error).__name__, "message": plain(str(error), self.folder)}
            self.crashes.append(f"{key}: {error!r:.300}")
        self.by_key[key] = value


# ── where it is asked ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclasses.dataclass(frozen=True)
class World:
    """A folder for everything, and the addresses of the stores by name."""

    folder: Path
    stores: Mapping[str, str]

    def open(self, store: str, name: str, settings: Settings | None = None, llm: Any = None) -> pointsman.Workspace:
        """A workspace of this name, with the embedder that needs no model."""
        return pointsman.open(self.address(store, name), embedder=load_embedder("hashing"), settings=settings, llm=llm)

    def address(self, store: str, name: str) -> str:
        """Of a workspace of this name."""
        return self.stores[store].format(name=name)


def fill(workspace: pointsman.Workspace) -> None:
    """Datasets of every kind, and one without documents."""
    for seed, (name, technique) in enumerate(TECHNIQUES.items()):
        workspace.dataset(name, description=f"About {name}", indexing_technique=technique).add(documents(seed, 30))  # type: ignore[arg-type]
    workspace.dataset("empty").make()


@contextmanager
def postgresql() -> Iterator[str]:
    """The address of a server for this run, with a place for the schema."""
    from postgres_kit import PostgresServer

    server = PostgresServer()
    try:
        yield f"{server.url}?schema=golden_{{name}}"
    finally:
        server.stop()


@contextmanager
def opensearch() -> Iterator[str]:
    """The address of a cluster of one node for this run."""
    from opensearch_kit import Cluster

    cluster = Cluster(1)
    try:
        yield f"{cluster.url}/golden{{name}}"
    finally:
        cluster.stop()


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """What ``pointsman`` with these arguments prints and returns, run in this process as ``python -m`` does."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    before = dict(os.environ), sys.argv, sys.stdin
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "POINTSMAN_EMBEDDER": "hashing", **environment}
    sys.argv, sys.stdin, code = ["pointsman", *arguments], io.TextIOWrapper(io.BytesIO(), "utf-8"), 0
    try:
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            runpy.run_module("pointsman", run_name="__main__", alter_sys=False)
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        sys.argv, sys.stdin = before[1:]
    output, errors = (stream.buffer.getvalue().decode() for stream in streams)
    try:
        return {"code": code, "json": json.loads(output), "errors": errors}
    except ValueError:
        return {"code": code, "lines": output.splitlines(), "errors": errors}


@contextmanager
def served(world: World, place: str) -> Iterator[httpx.Client]:
    """A client of ``pointsman serve`` in a process of its own."""
    log = world.folder / "served.log"
    environment = {**os.environ, "POINTSMAN_EMBEDDER": "hashing"}
    arguments = [sys.executable, "-m", "pointsman", "serve", "--port", "0", "--limit", "requests_per_minute=0",
                 "--log-json", "--workspace", place]  # fmt: skip
    with (
        log.open("wb") as stream,
        subprocess.Popen(arguments, stdout=stream, stderr=stream, env=environment, cwd=world.folder) as process,
    ):
        try:
            until, address = time.monotonic() + 120, None
            while address is None:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the service does not start: {log.read_text()[-2000:]}")
                time.sleep(0.05)
                address = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
            with httpx.Client(base_url=address[0], timeout=60) as client:
                while True:
                    try:
                        if client.get("/ready").status_code == 200:
                            break
                    except httpx.ConnectError:
                        pass  # not yet
                    if time.monotonic() > until:
                        raise RuntimeError("the service does not get ready")
                    time.sleep(0.05)
                yield client
        finally:
            process.terminate()
