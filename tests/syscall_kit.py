"""Every call to the operating system made to fail, once or for good; for the test and benchmarks/syscall_faults.py.

A process forks a child for each case; strace attaches to the child and lets its N-th call of one kind fail. What came
of it is handed back through shared memory, since a pipe could fail as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import logging
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pointsman.embedders.cached_embedder import CachedEmbedder
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.plan.policy import measured, read_policy
from pointsman.service.server.access.api_keys import KeyStore
from pointsman.store.local.collection import Collection
from pointsman.store.local.folder_backend import LocalBackend
from pointsman.tools.errors import PointsmanError
from pointsman.values.types import Document
from pointsman.workspace.copies.backup import backup, restore
from pointsman.workspace.workspace_search import Workspace
from store_kit import add, corpus, sound, unit, write_files_early

STRACE: Final = shutil.which("strace")
_CREATING = ("openat", "mkdir", "rename", "renameat", "renameat2", "link", "linkat")
_WRITING = ("write", "pwrite64", "writev", "ftruncate", "fallocate", "fsync", "fdatasync")
_READING = ("read", "pread64", "unlink", "unlinkat", "rmdir", "getdents64")
ERRORS: Final[Mapping[str, tuple[str, ...]]] = {
    "ENOSPC": (*_CREATING, *_WRITING),
    "EIO": (*_CREATING, *_WRITING, *_READING),
    "EMFILE": ("openat",),
}
_CALLS: Final = (*_CREATING, *_WRITING, *_READING)
_SECONDS: Final = 180.0  # on a busy machine; a third of it is long enough to say what is waited for
OPERATIONS: Final = (
    *("search", "add", "update", "delete", "rebuild", "describe", "backup", "restore", "make", "drop"),
    *("policy", "keys", "embed"),
)

State = dict[str, str]


@dataclass(frozen=True)
class Case:
    """An operation, and what fails in it."""

    operation: str
    call: str
    error: str
    number: int
    for_good: bool

    def __str__(self) -> str:
        often = "from the" if self.for_good else "the"
        return f"{self.operation}: {often} {self.number}. {self.call} fails with {self.error}"


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    case: Case
    error: str
    problems: tuple[str, ...]


def documents(count: int, seed: int, prefix: str = "d") -> list[Document]:
    return [Document(one.id, f"rail {one.text}", one.metadata) for one in corpus(count, seed, prefix)]


def _state(documents: list[Document]) -> State:
    return {one.id: one.text for one in documents}


BEFORE: Final = documents(60, 1)
MORE: Final = documents(40, 2, "n")
CHANGED: Final = documents(30, 3)
GONE: Final = [f"d{number}" for number in range(10, 30)]


class Bench:
    """A dataset to be copied for each case, and the operations on it."""

    def __init__(self, folder: Path) -> None:
        write_files_early(10)
        self._folder, self.root = folder, folder / "workspace"
        self._told = mmap.mmap(-1, 1 << 16)
        self._made = folder / "made"
        with Workspace(self._made, embedder=HashingEmbedder()) as workspace:
            workspace.dataset("notes").close()
        store = Collection(self._made / "datasets" / "notes")
        add(store, BEFORE)
        self.answer = self._answer(store)
        store.close()
        backup(self._made, folder / "kept")
        self._warm()

    # ── the operations: what they do, and what is there when they have done it ───────────────────────────────────

    def _opened(self) -> Collection:
        return Collection(self.root / "datasets" / "notes")

    def _answer(self, store: Collection) -> list[Any]:
        assert store.vectors is not None
        keys = [key for key, _ in store.keyword.search("rail lamp guard", 10)]
        near = [key for key, _ in store.vectors.search(unit("q"), 10)]
        return [keys, near, [one.id if one else None for one in store.truth.fetch(keys)]]

    def search(self) -> None:
        store = self._opened()
        if self._answer(store) != self.answer and store.lagging() is None:
            raise AssertionError("another answer, and nothing says so")
        store.close()

    def add(self) -> None:
        with contextlib.closing(self._opened()) as store:
            add(store, MORE)

    def update(self) -> None:
        with contextlib.closing(self._opened()) as store:
            add(store, CHANGED)

    def delete(self) -> None:
        with contextlib.closing(self._opened()) as store:
            store.delete(GONE)

    def rebuild(self) -> None:
        with contextlib.closing(self._opened()) as store:
            store.rebuild()

    def describe(self) -> None:
        with contextlib.closing(self._opened()) as store:
            store.describe(description="rails")

    def backup(self) -> None:
        backup(self.root, self._folder / "copy")

    def restore(self) -> None:
        restore(self._folder / "kept", self._folder / "restored")

    def make(self) -> None:
        with contextlib.closing(Collection(self.root / "datasets" / "other")) as store:
            add(store, MORE)

    def drop(self) -> None:
        self._opened().remove()

    def policy(self) -> None:
        """Keep one, and remove it."""
        backend = LocalBackend(self.root)
        backend.put_record("policy", "", measured().to_json())
        backend.put_record("policy", "", None)

    def keys(self) -> None:
        """Make two, and revoke the first."""
        keys = KeyStore(self.root / "keys.json")
        first = keys.create("first")
        keys.create("second")
        keys.revoke(first.key.id)

    def embed(self) -> None:
        """The cache of vectors may fail in silence: they are right all the same."""
        for _ in range(2):
            vectors = CachedEmbedder(HashingEmbedder(), self.root / "cache").embed_documents(["rail", "lamp"])
            if (vectors != HashingEmbedder().embed_documents(["rail", "lamp"])).any():
                raise AssertionError("the vectors are other ones")

    @property
    def operations(self) -> Mapping[str, Callable[[], None]]:
        return {name: getattr(self, name) for name in OPERATIONS}

    def _expected(self, operation: str) -> tuple[State | None, State | None]:
        """What there is before and after it; None for no dataset."""
        before = _state(BEFORE)
        if operation == "add":
            return before, before | _state(MORE)
        if operation == "update":
            return before, before | _state(CHANGED)
        if operation == "delete":
            return before, {id_: text for id_, text in before.items() if id_ not in GONE}
        return before, None if operation == "drop" else before

    # ── cases ────────────────────────────────────────────────────────────────────────────────────────────────────

    def counted(self, operation: str) -> Counter[str]:
        """How many calls of each kind any one thread makes."""
        log = self._folder / "calls"
        self._reset()
        self._in_child(operation, ["-e", f"trace={','.join(f'?{call}' for call in _CALLS)}", "-o", str(log)])
        threads: dict[str, Counter[str]] = {}
        for line in log.read_text(errors="replace").splitlines():
            if (call := re.match(r"(\d+) +(\w+)\(", line)) is not None:
                threads.setdefault(call[1], Counter())[call[2]] += 1
        return Counter({call: max(one[call] for one in threads.values()) for call in _CALLS if threads})

    def cases(self, operation: str) -> Iterator[Case]:
        """Every case there is."""
        counts = self.counted(operation)
        for error, calls in ERRORS.items():
            for call in calls:
                for number in range(1, counts[call] + 1):
                    for for_good in (False, True):
                        yield Case(operation, call, error, number, for_good)

    def run(self, case: Case) -> Outcome:
        """One case, and what is there after it."""
        self._reset()
        often = "+" if case.for_good else ""
        inject = f"inject={case.call}:error={case.error}:when={case.number}{often}"
        error = self._in_child(case.operation, ["-e", f"trace={case.call}", "-e", inject, "-o", "/dev/null"])
        problems = [error] if error.startswith("foreign") or "differs" in error else []
        try:
            problems += self._compare(case.operation, is_done=not error)
        except Exception as trouble:  # noqa: BLE001  (this is what is looked for)
            problems.append(f"afterwards: {type(trouble).__name__}: {trouble}")
        return Outcome(case, error, tuple(problems))

    def _compare(self, operation: str, *, is_done: bool) -> list[str]:
        problems = []
        before, after = self._expected(operation)
        state: State | None = None
        if (self.root / "datasets" / "notes").exists():
            with contextlib.closing(self._opened()) as store:
                state = _state(list(store.truth.documents()))
                sound(store)
                if is_done and operation == "describe" and store.manifest.get("description") != "rails":
                    problems.append("acknowledged, and not described")
        if state != after and (is_done or state != before):
            problems.append(f"{'acknowledged, but' if is_done else 'it'} {state and len(state)} documents are there")
        problems += self._compare_copies(operation, is_done=is_done)
        other = self.root / "datasets" / "other"
        if other.exists():
            with contextlib.closing(Collection(other)) as store:
                if len(store.truth) not in ({len(MORE)} if is_done else {0, len(MORE)}):
                    problems.append(f"the new dataset has {len(store.truth)} documents")
                sound(store)
        elif is_done and operation == "make":
            problems.append("acknowledged, but there is no new dataset")
        return problems + self._compare_records(operation, is_done=is_done)

    def _compare_records(self, operation: str, *, is_done: bool) -> list[str]:
        """The policy and the keys: whole, or not there, or as acknowledged."""
        record = LocalBackend(self.root).record("policy")
        problems = []
        if record is not None:
            read_policy(record.value, "policy")
            if is_done:
                problems.append("acknowledged, but the policy is not removed")
        keys = KeyStore(self.root / "keys.json").list()
        states = [(key.name, key.revocation_time is not None) for key in keys]
        if is_done and operation == "keys" and states != [("first", True), ("second", False)]:
            problems.append(f"acknowledged, but the keys are {states}")
        elif states not in [
            [],
            [("first", False)],
            [("first", False), ("second", False)],
            [("first", True), ("second", False)],
        ]:
            problems.append(f"the keys are {states}")
        return problems

    def _compare_copies(self, operation: str, *, is_done: bool) -> list[str]:
        """A backup, and what was restored, are whole or not there."""
        problems = []
        copy, restored = self._folder / "copy", self._folder / "restored"
        if copy.exists():
            restore(copy, restored)
        for name, path in (("backup", copy), ("restore", restored)):
            if is_done and operation == name and not path.exists():
                problems.append(f"acknowledged, but there is no {path.name}")
        if restored.exists():
            with contextlib.closing(Collection(restored / "datasets" / "notes")) as store:
                if _state(list(store.truth.documents())) != _state(BEFORE):
                    problems.append("the copy is not whole")
                sound(store)
        return problems

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _warm(self) -> None:
        """Import whatever is imported late."""
        for operation in self.operations.values():
            self._reset()
            operation()

    def _reset(self) -> None:
        for name in ("workspace", "copy", "restored"):
            while (self._folder / name).exists():  # tantivy, where it was open, may make its lock again
                shutil.rmtree(self._folder / name, ignore_errors=True)
        for path in self._folder.glob(".*"):
            path.unlink() if path.is_file() else shutil.rmtree(path)
        shutil.copytree(self._made, self.root)

    def _in_child(self, operation: str, options: list[str]) -> str:
        """Run an operation in a child under strace; what it raised, in words, or nothing."""
        assert STRACE is not None
        self._told[:4], self._told[-1:] = b"\0\0\0\0", b"\0"
        null, stacks = os.open(os.devnull, os.O_WRONLY), self._folder / "stacks"
        stacks.write_bytes(b"")
        stacks_file = os.open(stacks, os.O_WRONLY)
        until = time.monotonic() + _SECONDS
        while _has_threads_of_tantivy() and time.monotonic() < until:  # a fork might find their locks taken for ever
            time.sleep(0.01)
        child = os.fork()
        if child == 0:
            faulthandler.dump_traceback_later(_SECONDS / 3, file=stacks_file)
            self._child(operation, null)
        os.close(null)
        os.close(stacks_file)
        command = [STRACE, "-f", "-qq", *options, "-p", str(child)]
        tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            self._wait_for(lambda: _traced(child), tracer)
            self._told[-1:] = b"g"
            status = self._reap(child)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            tracer.communicate()
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            late = f"foreign: it does not end\n{stacks.read_text()}"
            return late if number == signal.SIGKILL else f"foreign: signal {number}"
        length = int.from_bytes(self._told[:4], "little")
        if not length:
            return "foreign: it ended without a word"
        return str(json.loads(self._told[4 : 4 + length]))

    def _wait_for(self, condition: Callable[[], bool], tracer: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _SECONDS
        while not condition():
            if tracer.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"strace cannot attach: {tracer.stderr.read() if tracer.stderr else ''!r}")
            time.sleep(0.001)

    def _reap(self, child: int) -> int:
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            is_done, status = os.waitpid(child, os.WNOHANG)
            if is_done:
                return status
            time.sleep(0.002)
        os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]

    def _child(self, operation: str, null: int) -> None:
        message = "foreign: nothing"
        try:
            ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1 & 2**64 - 1), 0, 0, 0)  # anybody may trace it
            logging.disable(logging.CRITICAL)
            os.dup2(null, 2)  # panics are told there
            while self._told[-1:] != b"g":  # until it is traced
                time.sleep(0.001)
            self.operations[operation]()
            message = ""
        except AssertionError as error:
            message = f"foreign: {error}"
        except PointsmanError as error:
            message = f"{type(error).__name__}: {error}"
        except BaseException as error:  # noqa: BLE001  (this is what is looked for)
            message = f"foreign {type(error).__name__}: {error}"
        finally:
            data = json.dumps(message[:5000]).encode()
            self._told[: 4 + len(data)] = len(data).to_bytes(4, "little") + data
            os._exit(0)


def _has_threads_of_tantivy() -> bool:
    """Whether threads of an index that was closed have not ended yet."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            if (task / "comm").read_text().startswith("thread-tantivy"):
                return True
    return False


def _traced(process: int) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    return "TracerPid:\t0\n" not in status


if sys.platform != "linux":
    STRACE = None  # type: ignore[misc]
