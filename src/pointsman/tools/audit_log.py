"""The audit log: one line of JSON for each request that showed documents.

A line says who asked, when, through which interface, and which documents they were shown. Everything that shows
documents is recorded here: a search, whatever starts it, and a read. A `request` block is one request; what happens
within it belongs to its line, so an interface that searches and then reads writes one line. The line is written before
anything is shown: if it cannot be, nothing is.

No question is in it. A digest without a secret would not hide one either, since short questions can be guessed and
compared, so digests are keyed (HMAC, RFC 2104) with a key that is stored in the workspace and not beside the log.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import hmac
import json
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from pointsman.tools.errors import AuditError, ConflictError, CorruptStoreError
from pointsman.tools.sync_and_async import in_thread, set_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KIND: Final = "audit"
"""Kind of the record with the key of the digests."""

_KEY_BYTES: Final = 32
_DIGEST_CHARS: Final = 32
_LOOKS, _BETWEEN_LOOKS = 3, 0.002  # at a last line that has no end, and seconds between them
_FLAGS: Final = (
    os.O_RDWR
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a pipe that nobody reads would be waited for
)


@dataclass(slots=True)
class AuditEntry:
    """What one request was shown.

    Attributes:
        door: the interface: ``"python"``, ``"command line"``, ``"http"`` or ``"mcp"``.
        operation: what was asked for, such as ``"search"``.
        who: name of the key, user of the token, or user of this machine.
        key: id of the key or token; None without one.
        principals: whom the request asks as; None if access is off, or nobody said so.
        request: id of the request in the service's log; None elsewhere.
        datasets: names of what was searched or read.
        questions: of each question its digest, whether it was refused, and a digest of its receipt.
        documents: the ids of the documents that were shown, by dataset.
        citations: those of which a checked answer had quotes or numbers.
        is_step: whether what happens now belongs to no line: it is a step of what is recorded as a whole.
    """

    door: str
    operation: str
    who: str
    key: str | None = None
    principals: Iterable[str] | None = None
    request: str | None = None
    datasets: dict[str, None] = field(default_factory=dict)
    questions: list[dict[str, Any]] = field(default_factory=list)
    documents: dict[str, dict[str, None]] = field(default_factory=dict)
    citations: dict[str, dict[str, None]] = field(default_factory=dict)
    is_step: bool = False

    def add(self, documents: Iterable[tuple[str | None, str]]) -> None:
        """Note documents that are shown, as pairs of dataset and id."""
        for dataset, id_ in documents:
            self.documents.setdefault(dataset or "", {})[id_] = None

    def show_only(self, documents: Iterable[tuple[str | None, str]]) -> None:
        """Note that of the documents that were read only these are shown."""
        self.documents = {}
        self.add(documents)

    def cite(self, documents: Iterable[tuple[str | None, str]]) -> None:
        """Note documents that a checked answer has quotes or numbers of."""
        for dataset, id_ in documents:
            self.citations.setdefault(dataset or "", {})[id_] = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Within the block nothing is added: it is a step of what is recorded afterwards."""
        was_step, self.is_step = self.is_step, True
        try:
            yield
        finally:
            self.is_step = was_step

    @property
    def is_empty(self) -> bool:
        """Whether nothing was asked and nothing was shown."""
        return not (self.questions or self.documents or self.citations)

    def line(self) -> bytes:
        """Return the entry as a line of the log."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        form = {
            "time": time,
            "door": self.door,
            "operation": self.operation,
            "who": self.who,
            "key": self.key,
            "principals": None if self.principals is None else sorted(self.principals),
            "request": self.request,
            "datasets": sorted({*self.datasets, *self.documents} - {""}),
            "questions": self.questions,
            "shown": {dataset: list(ids) for dataset, ids in self.documents.items()},
            "cited": {dataset: list(ids) for dataset, ids in self.citations.items()},
        }
        return json.dumps(form, separators=(",", ":")).encode() + b"\n"  # ASCII: no id can break a line


door: Final[ContextVar[str]] = ContextVar("pointsman_audit_door", default="python")
"""The interface that calls are made by, unless it says more in `AuditLog.request`."""

_entry: Final[ContextVar[AuditEntry | None]] = ContextVar("pointsman_audit_entry", default=None)


def current_entry() -> AuditEntry | None:
    """Return the entry of the request under way; None if there is none, or what happens now belongs to no line."""
    entry = _entry.get()
    return None if entry is None or entry.is_step else entry


@contextmanager
def without_record() -> Iterator[None]:
    """Within the block nothing is recorded, since nobody is shown anything."""
    with set_within(_entry, AuditEntry("", "", "", is_step=True)):
        yield


def cite(hits: Sequence[Any], numbers: Iterable[int]) -> None:
    """Note in the request under way, if it is recorded, which of its hits, by number from 1, an answer has parts of."""
    if (entry := current_entry()) is not None:
        entry.cite((hits[number - 1].dataset, hits[number - 1].id) for number in numbers)


def log_of(sources: Iterable[Any]) -> AuditLog | None:
    """Return the audit log of the workspace that some of these datasets are in; None if none is, or it is off."""
    logs = (getattr(source, "audit_log", None) for source in sources)
    return next((log for log in logs if log is not None and log.path), None)


class AuditLog:
    """The audit log of a workspace; it is off until settings name a file.

    Args:
        backend: the workspace's backend, which keeps the key of the digests.
        path_of: returns the file, or an empty text if the log is off.
    """

    def __init__(self, backend: Any, path_of: Callable[[], str]) -> None:
        self.backend, self._path_of = backend, path_of
        self._key: bytes | None = None

    @property
    def path(self) -> str:
        """The file; empty if the log is off."""
        return self._path_of()

    @property
    def is_recording(self) -> bool:
        """Whether what is shown now is to be recorded: the log is on, and this is no step of something recorded."""
        entry = _entry.get()
        return bool(self._path_of()) and (entry is None or not entry.is_step)

    def digest(self, text: str) -> str:
        """Return the digest of a question or a receipt, as it is in the log.

        Raises:
            StoreError: the key cannot be read or stored.
        """
        if self._key is None:
            self._key = self._stored_key()
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:_DIGEST_CHARS]

    def _stored_key(self) -> bytes:
        record = self.backend.record(KIND)
        if record is None:
            text = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
            try:
                self.backend.put_record(KIND, "", text, "")
            except ConflictError:  # another process was first
                text = self.backend.record(KIND).value
        else:
            text = record.value
        try:
            key = base64.b64decode(text, validate=True)
        except ValueError:
            key = b""
        if len(key) != _KEY_BYTES:
            raise CorruptStoreError("the key of the audit log's digests is damaged; restore it from a backup")
        return key

    @contextmanager
    def request(self, operation: str, **who: Any) -> Iterator[AuditEntry]:
        """Within the block is one request: its line is written at the end, unless a request is under way already.

        Args:
            operation: what is asked for.
            who: fields of `AuditEntry` that say who asks.

        Raises:
            AuditError: the line cannot be written.
        """
        entry, is_whole = self._open(operation, who)
        with set_within(_entry, entry) if is_whole else nullcontext():
            yield entry
        if is_whole:
            self.write(entry)

    @asynccontextmanager
    async def arequest(
        self, operation: str, blocking: Callable[[Callable[[], None]], Awaitable[None]] = in_thread, **who: Any
    ) -> AsyncIterator[AuditEntry]:
        """Async version of `request`, in which the line is written by ``blocking``."""
        entry, is_whole = self._open(operation, who)
        with set_within(_entry, entry) if is_whole else nullcontext():
            yield entry
        if is_whole:
            await blocking(partial(self.write, entry))

    def _open(self, operation: str, who: Mapping[str, Any]) -> tuple[AuditEntry, bool]:
        """Return the entry of a request, and whether the request is a whole one, and no part of one under way."""
        entry = _entry.get()
        if entry is not None and entry.is_step:
            return AuditEntry("", "", "", is_step=True), False
        if entry is not None:
            if entry.principals is None:
                entry.principals = who.get("principals")
            return entry, False
        return AuditEntry(**{"door": door.get(), "operation": operation, **({"who": _user()} | dict(who))}), True

    @contextmanager
    def resume(self, entry: AuditEntry | None) -> Iterator[None]:
        """Within the block a request goes on that was answered in part; its line is written at the end."""
        with set_within(_entry, entry):
            yield
        if entry is not None:
            self.write(entry)

    def shows(self, operation: str, dataset: str, ids: Iterable[str], question: str | None = None) -> None:
        """Record documents of one dataset that are shown.

        Args:
            operation: what was asked for.
            dataset: the name of the dataset.
            ids: the documents.
            question: the question, if they answer one.

        Raises:
            AuditError: the line cannot be written.
        """
        if self.is_recording:
            with self.request(operation) as entry:
                entry.datasets[dataset] = None
                entry.add((dataset, id_) for id_ in ids)
                if question is not None:
                    entry.questions.append({"digest": self.digest(question), "refused": False, "receipt": None})

    def add_answers(self, entry: AuditEntry, queries: Sequence[Any], answers: Sequence[Any]) -> None:
        """Note the answers to questions."""
        for query, answer in zip(queries, answers, strict=True):
            receipt = answer.receipt
            entry.questions.append(
                {
                    "digest": self.digest(query.text),
                    "refused": answer.refused is not None,
                    "receipt": None if receipt is None else self.digest(receipt),
                }
            )
            entry.datasets.update(dict.fromkeys(answer.plan.datasets))
            near_misses = answer.refused.near_misses if answer.refused is not None else ()
            entry.add((hit.dataset, hit.id) for hit in (*answer.hits, *near_misses))

    def write(self, entry: AuditEntry) -> None:
        """Write the line of a request; nothing if it showed nothing.

        Raises:
            AuditError: it cannot be written.
        """
        path = self.path
        if not path or entry.is_empty:
            return
        try:
            self._append(path, entry.line())
        except OSError as error:
            raise AuditError(path, error.strerror or str(error)) from error

    @staticmethod
    def _append(path: str, line: bytes) -> None:
        """Append a line by one write, so that lines of several processes do not mix.

        The file is opened each time: it may be renamed and made anew at any time, as log rotation does it.
        """
        descriptor = os.open(path, _FLAGS, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(0, "it is not a regular file")
            if not _ends_a_line(descriptor):
                line = b"\n" + line  # a full disk has cut the last line
            if os.write(descriptor, line) != len(line):
                raise OSError(0, "only a part of the line could be written; the disk may be full")
        finally:
            os.close(descriptor)


def _ends_a_line(descriptor: int) -> bool:
    """Whether a file is empty or ends with a whole line, now or in a moment: another process may be writing one."""
    for _ in range(_LOOKS):
        size = os.fstat(descriptor).st_size
        if not size:
            return True
        os.lseek(descriptor, size - 1, os.SEEK_SET)
        if os.read(descriptor, 1) == b"\n":
            return True
        time.sleep(_BETWEEN_LOOKS)
    return False


@cache
def _user() -> str:
    """Return the name of the user whose process this is."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except ImportError:  # Windows
        return getpass.getuser()
    except KeyError:  # a container's user may have no name
        return str(os.getuid())
