"""Indexing on several machines: workers read, split and embed, and this process alone writes the results.

A worker is ``pointsman worker`` (`pointsman.service.indexing_worker`). It is asked by HTTP, and its answers are JSON:
nothing that it sends is run, and all of it is compared with what it was asked. Nothing is kept by workers that is
needed later. A passage that is stored is not read into the store again, one that has a vector is not embedded again; so
whatever is killed, the same call continues. What a lost worker had is computed by another one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from itertools import count
from operator import attrgetter
from queue import PriorityQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import numpy as np

from pointsman.ingest import Problem, ReadResult
from pointsman.store.prepared_documents import prepare
from pointsman.tools.audit_log import without_record
from pointsman.tools.batching import batched_by
from pointsman.tools.errors import InputError, ModelError, ServiceError, UnmetNeedError
from pointsman.tools.network.http_addresses import address, one_line, options_of
from pointsman.tools.network.json_client import JSONClient, UnknownShapeError, UnusableAnswerError
from pointsman.tools.network.retries import Retries
from pointsman.tools.system.lifecycle import Lifecycle
from pointsman.tools.vectors import decode_vector
from pointsman.tools.version import __version__
from pointsman.values.types import Document
from pointsman.values.views import ACCESS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from pointsman.ingest import FoundFile
    from pointsman.workspace.dataset import Dataset

T = TypeVar("T")

KEY_VARIABLE: Final = "POINTSMAN_WORKER_KEY"
"""The environment variable with the key that workers ask for."""

_FILES: Final = 32  # files of one task, which share a process that converts them
_BYTES: Final = 4 << 20  # the same, in bytes
_TASKS_PER_THREAD: Final = 4  # tasks for each that is computed at the same time, to limit memory
_MOST_THREADS: Final = 256  # of one worker
_ATTEMPTS: Final = 20  # how often a task is given out that workers die of, or with
_TIMEOUT: Final = 10.0  # seconds until a worker that does not answer to its name counts as away
_LONGEST_TASK: Final = 7200.0  # seconds; a scan of hundreds of pages takes long
_PAUSE: Final = 0.5  # seconds before a worker that is away is asked again
_LARGEST: Final = 512 << 20  # bytes of an answer: all that the limits of reading let through


@dataclass(eq=False, slots=True)
class _ClusterTask:
    path: str
    fields: dict[str, Any]
    number: int
    attempt: int = 0
    answer: Future[tuple[str, Any]] = field(default_factory=Future)
    """The address of the worker that answered, and what it said."""


@dataclass(frozen=True, slots=True)
class _WorkerConnection:
    address: str
    client: JSONClient
    threads: int
    embedder: str

    def ask(self, path: str, fields: dict[str, Any], seconds: float) -> Any:
        return self.client.post(f"{self.address}{path}", fields, monotonic() + seconds)


class IndexingCluster(Lifecycle):
    """Connections to workers that see the same files at the same paths, and have this version and the same embedder.

    For example, after ``pointsman worker /mnt/shared/papers --host 10.0.0.5`` there::

        with IndexingCluster(["http://10.0.0.5:8082?insecure=true"], key) as cluster:
            index_paths(dataset, ["/mnt/shared/papers"], cluster=cluster)

    Args:
        addresses: of the workers; ``?insecure=true`` for one that is reached without TLS on another machine.
        key: theirs; by default that in the environment, see `KEY_VARIABLE`.
        patience: seconds to wait for a worker that is lost on the way.

    Raises:
        InputError: an address is none, there is no key, or a worker has another version.
        ServiceError: a worker does not answer.
    """

    def __init__(self, addresses: Sequence[str], key: str | None = None, *, patience: float = 60.0) -> None:
        self._patience, self._numbers, self._closing = patience, count(), threading.Event()
        self._tasks: PriorityQueue[tuple[float, _ClusterTask | None]] = PriorityQueue()
        key = worker_key(key)
        self._workers = [_connect(url, key) for url in dict.fromkeys(addresses)]
        if not self._workers:
            raise InputError("a cluster has at least one worker; give its address, such as https://10.0.0.5:8082")
        self._lock = threading.Lock()  # of the number of threads, and of what waits when it becomes 0
        self._threads = self._all_threads = sum(worker.threads for worker in self._workers)
        for worker in self._workers:
            for _ in range(worker.threads):
                threading.Thread(target=self._work, args=(worker,), name="pointsman-cluster", daemon=True).start()

    def close(self) -> None:
        """Give up the tasks that wait, and the connections; a task under way is computed, and its result dropped."""
        self._closing.set()
        for number in range(self._all_threads):
            self._tasks.put((-1.0 - number, None))
        for worker in self._workers:
            worker.client.close()

    def check(self, dataset: Dataset) -> None:
        """Check that the cluster can read and embed for a dataset.

        Raises:
            InputError: a worker has another embedder.
            UnmetNeedError: the dataset holds pictures, or its vectors cannot follow its words.
        """
        if dataset.holds_images or dataset.indexing_technique == "vector":
            kind = "holds pictures" if dataset.holds_images else "is searched by vectors alone"
            raise UnmetNeedError(f"dataset {dataset.name!r} {kind}; a cluster indexes hybrid and keyword datasets")
        if dataset.indexing_technique == "keyword":
            return
        for worker in self._workers:
            if worker.embedder != dataset.embedder.name:
                raise InputError(
                    f"the dataset's embedder is {dataset.embedder.name!r}, and that of the worker at {worker.address} "
                    f"is {worker.embedder!r:.200}; give the same --embedder to both"
                )

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def reader(self, dataset: Dataset, files: Sequence[FoundFile], **options: Any) -> ClusterReader:
        """Return what reads these files, in this order, for a dataset; ``options`` are those of `FileReader`."""
        return ClusterReader(self._results_of_each(dataset, files, options))

    def _results_of_each(
        self, dataset: Dataset, files: Sequence[FoundFile], options: dict[str, Any]
    ) -> Iterator[list[ReadResult]]:
        """Yield the results of each file, in order.

        Raises:
            ServiceError: a worker returned something else than passages of the file.
        """
        limits = options.pop("limits", None)
        options = {**options, "limits": None if limits is None else asdict(limits)}
        groups = list(batched_by(files, _FILES, attrgetter("size"), _BYTES))
        tasks = (
            ("/read", {"files": [[str(file.path), file.id, file.is_single] for file in group], "options": options})
            for group in groups
        )
        for group, (worker, answer) in zip(groups, self._in_order(tasks), strict=True):
            check = _WorkerAnswer(worker, answer)
            for file, parts in zip(group, check.lists("files", len(group)), strict=True):
                yield [check.result(file, part, dataset) for part in check.list_in(parts, f"results of {file.id!r}")]

    # ── embedding ────────────────────────────────────────────────────────────────────────────────────────────────

    def embed(self, batches: Iterable[list[str]], name: str, dimensions: int) -> Iterator[NDArray[np.float32]]:
        """Yield the vectors of batches of texts, in order.

        Args:
            batches: texts of documents.
            name: of the dataset's embedder, which that of the workers must have, too.
            dimensions: of its vectors.

        Raises:
            ModelError: the embedder of a worker failed, or is another one.
            ServiceError: no worker is left, workers keep dying, or one returned something else than vectors.
        """
        sizes = deque[int]()

        def tasks() -> Iterator[tuple[str, dict[str, Any]]]:
            for texts in batches:
                sizes.append(len(texts))
                yield "/embed", {"embedder": name, "texts": texts}

        for worker, answer in self._in_order(tasks()):
            yield _WorkerAnswer(worker, answer).vectors(sizes.popleft(), dimensions)

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _in_order(self, requests: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, Any]]:
        """Yield the answers to requests in order, while those that follow are being computed.

        Raises:
            ServiceError: no worker is left, or workers keep dying.
        """
        waiting = deque[_ClusterTask]()
        for path, fields in requests:
            waiting.append(_ClusterTask(path, fields, next(self._numbers)))
            with self._lock:
                if not self._threads:
                    raise self._no_worker_error("all have been lost before")
                self._tasks.put((waiting[-1].number, waiting[-1]))
            while len(waiting) >= _TASKS_PER_THREAD * self._all_threads:
                yield waiting.popleft().answer.result()
        while waiting:
            yield waiting.popleft().answer.result()

    def _work(self, worker: _WorkerConnection) -> None:
        """Compute tasks with a worker, until it is lost or the cluster is closed."""
        reason = ""
        while not self._closing.is_set():
            task = self._tasks.get()[1]
            if task is None:
                break
            try:
                answer = worker.ask(task.path, task.fields, _LONGEST_TASK)
            except (UnusableAnswerError, UnknownShapeError) as error:
                task.attempt, reason = task.attempt + 1, f"{worker.address}: {error!s:.300}"
                if task.attempt < _ATTEMPTS:
                    self._tasks.put((task.number, task))
                else:
                    task.answer.set_exception(
                        ServiceError(f"workers failed {_ATTEMPTS} times with one task, at last that at {reason}")
                    )
                if not self._is_back(worker):
                    break
            except Exception as error:  # noqa: BLE001  (it is raised where the result is waited for)
                task.answer.set_exception(error)
            else:
                task.answer.set_result((worker.address, answer))
        with self._lock:
            self._threads -= 1
            while not self._threads and not self._tasks.empty():
                if (task := self._tasks.get()[1]) is not None:
                    task.answer.set_exception(self._no_worker_error(reason))

    def _is_back(self, worker: _WorkerConnection) -> bool:
        """Wait until a worker that did not answer is there; return False if that takes too long."""
        retries = Retries(monotonic() + self._patience, first=_PAUSE, longest=4 * _PAUSE)
        while not self._closing.is_set():
            try:
                worker.ask("/hello", {}, _TIMEOUT)
            except (UnusableAnswerError, UnknownShapeError):
                pause = retries.pause()
                if pause is None:
                    return False
                self._closing.wait(pause)
            else:
                return True
        return False

    def _no_worker_error(self, reason: str) -> ServiceError:
        return ServiceError(
            f"no worker answers any more ({reason}); what is stored is kept, and indexing again continues"
        )


class ClusterReader:
    """Files read by a cluster, asked for in the order in which they were given to it."""

    def __init__(self, results: Iterator[list[ReadResult]]) -> None:
        self._results = results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing; the cluster is closed by whoever opened it."""

    def read(self, file: FoundFile) -> Iterator[ReadResult]:  # noqa: ARG002  (the next one)
        """Yield the passages of the next file, in parts."""
        yield from next(self._results)


def worker_key(key: str | None = None) -> str:
    """Return the key of workers, by default that in the environment.

    Raises:
        InputError: there is none, or it is too short.
    """
    key = os.environ.get(KEY_VARIABLE, "") if key is None else key
    if len(key) < 16 or not key.isascii() or not key.isprintable():
        raise InputError(
            f"workers need a key of at least 16 printable ASCII characters, the same on all machines: put it into the "
            f"variable {KEY_VARIABLE}"
        )
    return key


def _connect(url: str, key: str) -> _WorkerConnection:
    """Return a worker that has said what it is.

    Raises:
        InputError: its address is none, or it has another version.
        ServiceError: it does not answer, or with something else.
    """
    parts = address(url)
    insecure = options_of(parts.query, {"insecure"}).get("insecure") == "true"
    base = parts._replace(query="", path=parts.path.rstrip("/"))
    client = JSONClient(base, key, insecure=insecure, retries=0, largest=_LARGEST)
    worker = _WorkerConnection(base.geturl(), client, 1, "")
    try:
        answer = worker.ask("/hello", {}, _TIMEOUT)
    except (UnusableAnswerError, UnknownShapeError) as error:
        client.close()
        raise ServiceError(
            f"no worker answers at {worker.address} ({error}); start one with 'pointsman worker FOLDER', and the same "
            f"{KEY_VARIABLE}; what is stored is kept, and indexing again continues"
        ) from None
    check = _WorkerAnswer(worker.address, answer)
    version, threads, embedder = check.value("version", str), check.value("tasks", int), check.value("embedder", str)
    if version != __version__:
        raise InputError(
            f"the worker at {worker.address} has version {one_line(version)}, and this is {__version__}; install the "
            "same on all machines, since they would cut files differently"
        )
    if not 1 <= threads <= _MOST_THREADS:
        raise check.nonsense(f"{threads!s:.40} tasks at once in place of 1 to {_MOST_THREADS}")
    return _WorkerConnection(worker.address, client, threads, embedder)


class _WorkerAnswer:
    """What a worker answered, of which only plain values of the expected kinds are used.

    Raises:
        ModelError: it says that its embedder failed.
        ServiceError: it says that it cannot do what it was asked, or it is no object.
    """

    def __init__(self, worker: str, answer: Any) -> None:
        self._worker, self._fields = worker, answer
        if type(answer) is not dict:
            raise self.nonsense(f"{type(answer).__name__} in place of an object")
        for name, error in (("refusal", ServiceError), ("failure", ModelError)):
            if name in answer:
                raise error(f"the worker at {worker}: {one_line(self.value(name, str), 1000)}")

    def nonsense(self, description: str) -> ServiceError:
        """Return the error that says what the worker sent."""
        return ServiceError(
            f"the worker at {self._worker} returned {description}; nothing of it is stored; check that it has this "
            "version and sees the same files, and index again"
        )

    def value(self, name: str, kind: type[T]) -> T:
        """Return a field of this kind."""
        value = self._fields.get(name)
        if type(value) is not kind:
            raise self.nonsense(f"{type(value).__name__} in place of {name}")
        return value

    def list_in(self, value: Any, subject: str) -> list[Any]:
        """Return a value that is a list."""
        if type(value) is not list:
            raise self.nonsense(f"{type(value).__name__} in place of {subject:.200}")
        return value

    def lists(self, name: str, length: int) -> list[Any]:
        """Return a field that is a list of this length."""
        values = self.list_in(self._fields.get(name), name)
        if len(values) != length:
            raise self.nonsense(f"{len(values):,} in place of {length:,} {name}")
        return values

    def vectors(self, size: int, dimensions: int) -> NDArray[np.float32]:
        """Return so many vectors of so many dimensions."""
        texts = self.lists("vectors", size)
        try:
            vectors = [decode_vector(text) for text in texts]
        except (InputError, TypeError) as error:
            raise self.nonsense(f"what is no vector: {error!s:.200}") from None
        for vector in vectors:
            if vector.shape != (dimensions,):
                raise self.nonsense(f"a vector of {len(vector):,} in place of {dimensions:,} dimensions")
        rows = np.stack(vectors)
        with np.errstate(over="ignore"):
            lengths = np.einsum("ij,ij->i", rows, rows)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise self.nonsense("a vector of zeros, or with a number that is not finite")
        return rows

    def result(self, file: FoundFile, part: Any, dataset: Dataset) -> ReadResult:
        """Return a part of a file, made anew of plain values."""
        try:
            if type(part) is not dict or type(part["stopped"]) is not bool:
                raise ValueError("it is no part of a file")
            documents = tuple(_passage(file, *fields) for fields in part["documents"])
            problems = tuple(_problem(file, *fields) for fields in part["problems"])
            if file.is_single:
                _check_not_elsewhere(file, documents, dataset)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self.nonsense(f"what is no result of {file.id!r:.200}: {error!s:.300}") from None
        return ReadResult(file.id, documents, problems, part["stopped"])


def _passage(file: FoundFile, id_: Any, text: Any, metadata: Any) -> Document:
    """Return a passage of a file.

    Raises:
        InputError, TypeError, ValueError: it is none that can be stored, is of another file, or says who may see it.
    """
    if type(id_) is not str or type(text) is not str or type(metadata) is not dict:
        raise TypeError("a passage is an id, a text and metadata")
    names = id_, str(metadata.get("parent", file.id))
    is_own = file.is_single or all(name == file.id or name.startswith(f"{file.id}#") for name in names)
    if metadata.get("source") != file.id or not is_own:
        raise ValueError(f"the passage {id_!r:.200} is of another file")
    if ACCESS in metadata:
        raise ValueError(f"the passage {id_!r:.200} says who may see it, which no worker decides")
    if not all(type(metadata.get(key)) is int for key in ("start", "end")):
        raise ValueError(f"the passage {id_!r:.200} does not say where it stands")
    return prepare(Document(id_, text, metadata)).document


def _problem(file: FoundFile, path: Any, reason: Any) -> Problem:
    if path != file.id or type(reason) is not str:
        raise ValueError("a problem of another file")
    return Problem(file.id, reason)


def _check_not_elsewhere(file: FoundFile, documents: Sequence[Document], dataset: Dataset) -> None:
    """Check that the ids of a single file's records, which may be any, are not those of another file's passages.

    Raises:
        ValueError: one is.
    """
    with without_record():
        stored_documents = dataset.get_many([document.id for document in documents])
    for document in stored_documents:
        if document is not None and document.metadata.get("source") != file.id:
            raise ValueError(f"the passage {document.id!r:.200} is of another file; index {file.id!r:.200} by itself")
