"""Indexing on several machines: a Dask cluster reads, splits and embeds, and this process alone writes the results.

Nothing is kept in the cluster that is needed later. A passage that is stored is not read into the store again, one that
has a vector is not embedded again; so whatever is killed, the same call continues. Tasks are named by what they
compute, a file by its path, size and time of change, a batch by its texts: a repeat that the scheduler still knows is
free. A task that a dead worker had is computed by another one, and its result is written once, by this process.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Self

import xxhash

from pointsman.embedders import load_embedder
from pointsman.ingest import FileReader, Problem, ReadResult
from pointsman.tools.errors import InputError, MissingDependencyError, ModelError, ServiceError, UnmetNeedError
from pointsman.tools.network.retries import Retries
from pointsman.values.types import Document
from pointsman.values.views import ACCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.embedders import BaseEmbedder
    from pointsman.ingest import FoundFile
    from pointsman.workspace.dataset import Dataset

_FILES: Final = 32  # files of one task, which share a process that converts them
_BYTES: Final = 4 << 20  # the same, in bytes
_TASKS_PER_THREAD: Final = 4  # tasks for each thread of the cluster that are under way, to limit memory
_ATTEMPTS: Final = 20  # how often a task is given out that workers die of, or with
_TIMEOUT: Final = 10.0  # seconds until a scheduler that does not answer counts as away
_PAUSE: Final = 0.5  # seconds before the second attempt to reach it


@dataclass(eq=False, slots=True)
class _ClusterTask:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    key: str
    attempt: int = 0
    future: Any = field(default=None)


class DaskCluster:
    """A connection to a Dask cluster whose workers have this package and see the same files at the same paths.

    For example::

        with DaskCluster("tcp://10.0.0.5:8786") as cluster:
            index_paths(dataset, ["/mnt/shared/papers"], cluster=cluster)

    Schedulers run whatever programs their clients send, and Dask unpickles here what workers return: whoever runs one
    can run programs here. Use machines that you trust, in a private network, or ``tls://``. What workers return is
    checked against what was sent to them, so that one that is broken does not spoil the dataset.

    Args:
        address: of the scheduler, such as ``tcp://10.0.0.5:8786``.
        embedder: the specification by which each worker loads the dataset's embedder; see `load_embedder`.
        patience: seconds to wait for a scheduler that is lost on the way.

    Raises:
        InputError: the address is not one.
        MissingDependencyError: the package ``distributed`` is not installed.
        ServiceError: no scheduler answers.
    """

    def __init__(self, address: str, *, embedder: str = "default", patience: float = 60.0) -> None:
        if not address.startswith(("tcp://", "tls://", "ws://", "wss://")):
            raise InputError(f"{address!r:.80} is not the address of a scheduler, such as tcp://10.0.0.5:8786")
        self._address, self._embedder, self._patience = address, embedder, patience
        self._client: Any = None
        self._waiting: deque[_ClusterTask] = deque()
        self._connect(0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the tasks under way, and the connection."""
        if self._client is not None and self._client.status == "running":
            for task in self._waiting:
                task.future.cancel()
        self._waiting.clear()
        self._disconnect()

    def check(self, dataset: Dataset) -> None:
        """Check that the cluster can embed for a dataset.

        Raises:
            UnmetNeedError: it holds pictures, or its vectors cannot follow its words.
        """
        if dataset.holds_images or dataset.indexing_technique == "vector":
            kind = "holds pictures" if dataset.holds_images else "is searched by vectors alone"
            raise UnmetNeedError(f"dataset {dataset.name!r} {kind}; a cluster indexes hybrid and keyword datasets")

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def reader(self, files: Sequence[FoundFile], **options: Any) -> ClusterReader:
        """Return what reads these files, in this order; ``options`` are those of `FileReader`."""
        results = self._in_order(_reading(files, options))
        return ClusterReader(self._checked_parts(files, results))

    def _checked_parts(self, files: Sequence[FoundFile], results: Iterator[Any]) -> Iterator[list[ReadResult]]:
        """Yield the results of each file, in order.

        Raises:
            ServiceError: a worker returned something else than passages of the file.
        """
        remaining_files = iter(files)
        for group in results:
            for parts in self._list_in(group, "the results of some files"):
                file = next(remaining_files, None)
                if file is None:
                    raise self._nonsense("more results than it was sent files")
                yield [self._checked_part(file, part) for part in self._list_in(parts, f"the results of {file.id!r}")]
        if (file := next(remaining_files, None)) is not None:
            raise self._nonsense(f"no result of {file.id!r:.200}")

    def _list_in(self, value: Any, subject: str) -> list[Any]:
        if type(value) is not list:
            raise self._nonsense(f"{type(value).__name__} in place of {subject:.200}")
        return value

    def _checked_part(self, file: FoundFile, part: Any) -> ReadResult:
        """Return a result made anew of plain values: the worker's own objects are not used."""
        try:
            documents = tuple(_plain_document(file, document) for document in part.documents)
            problems = tuple(
                Problem(_plain_text(problem.path), _plain_text(problem.reason)) for problem in part.problems
            )
            if part.path != file.id or part.image or type(part.is_stopped) is not bool:
                raise ValueError("it is of another file, or of a picture")
        except (AttributeError, TypeError, ValueError, RecursionError, InputError) as error:
            raise self._nonsense(f"what is no result of {file.id!r:.200}: {error!s:.300}") from error
        return ReadResult(file.id, documents, problems, part.is_stopped)

    def _nonsense(self, description: str) -> ServiceError:
        return ServiceError(
            f"a worker at {self._address} returned {description}; nothing of it is stored; check that workers have "
            "this version and see the same files, and index again"
        )

    # ── embedding ────────────────────────────────────────────────────────────────────────────────────────────────

    def embed(self, batches: Iterable[list[str]], name: str, dimensions: int) -> Iterator[NDArray[np.float32]]:
        """Yield the vectors of batches of texts, in order.

        Args:
            batches: texts of documents.
            name: of the dataset's embedder, which that of the workers must have, too.
            dimensions: of its vectors.

        Raises:
            InputError: the workers' embedder has another name.
            ModelError: it failed.
            ServiceError: the scheduler is lost, workers keep dying, or one returned something else than vectors.
        """
        import numpy as np

        compute, sizes = partial(_embed, self._embedder, name), deque[int]()

        def tasks() -> Iterator[_ClusterTask]:
            for texts in batches:
                sizes.append(len(texts))
                yield _ClusterTask(compute, (texts,), f"pointsman-embed-{_digest(self._embedder, name, *texts)}")

        for vectors in self._in_order(tasks()):
            shape = sizes.popleft(), dimensions
            if type(vectors) is not np.ndarray or vectors.dtype != np.float32 or vectors.shape != shape:
                form = getattr(vectors, "shape", type(vectors).__name__)
                raise self._nonsense(f"{form!s:.80} in place of {shape[0]} vectors of {dimensions} dimensions")
            if not np.isfinite(vectors).all():
                raise self._nonsense("a vector with a number that is not finite")
            yield vectors

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _in_order(self, tasks: Iterable[_ClusterTask]) -> Iterator[Any]:
        """Yield the results of tasks in order, while those that follow are being computed."""
        for task in tasks:
            if self._client.status in {"closing", "closed"}:  # it has given up its scheduler
                self._recover()
            self._waiting.append(task)
            self._submit(task)
            while len(self._waiting) >= _TASKS_PER_THREAD * self._threads():
                yield self._first_result()
        while self._waiting:
            yield self._first_result()

    def _first_result(self) -> Any:
        """Return the result of the task that was given out first; give it out again if workers died with it.

        Raises:
            ServiceError: the scheduler is lost, or workers keep dying.
        """
        from distributed import CancelledError, KilledWorker

        task = self._waiting[0]
        while True:
            try:
                result = task.future.result()
            except KilledWorker as error:
                task.attempt += 1
                if task.attempt == _ATTEMPTS:
                    raise ServiceError(f"workers at {self._address} died {_ATTEMPTS} times with one task") from error
                self._submit(task)
            except (CancelledError, OSError) as error:  # also those of a lost connection
                if not _is_loss(error):
                    raise
                self._recover()
            else:
                self._waiting.popleft()
                return result

    def _submit(self, task: _ClusterTask) -> None:
        key = f"{task.key}-{task.attempt}" if task.attempt else task.key
        task.future = self._client.submit(task.function, *task.arguments, key=key, pure=True)

    def _recover(self) -> None:
        """Connect to the scheduler, or to one that took its place, and give out what is under way again."""
        self._disconnect()
        self._connect(self._patience)
        for task in self._waiting:
            self._submit(task)

    def _connect(self, patience: float) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise MissingDependencyError("distributed", "cluster", "Indexing on a cluster") from None
        retries = Retries(monotonic() + patience, first=_PAUSE, longest=4 * _PAUSE)
        while True:
            try:
                self._client = Client(self._address, timeout=_TIMEOUT, set_as_default=False)
            except (OSError, ValueError) as error:  # ValueError: a version that does not match
                pause = retries.pause()
                if pause is None:
                    raise ServiceError(
                        f"no Dask scheduler answers at {self._address} ({error}); start one with 'dask scheduler'; "
                        "what is stored is kept, and indexing again continues"
                    ) from error
                sleep(pause)
            else:
                return

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(OSError, TimeoutError):
                client.close(timeout=1)

    def _threads(self) -> int:
        workers = self._client.scheduler_info(n_workers=-1).get("workers", {})  # none while it is away
        return max(1, sum(int(worker["nthreads"]) for worker in workers.values()))


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


def _plain_document(file: FoundFile, document: Any) -> Document:
    """Return a passage of a file, made anew of plain values.

    Raises:
        ValueError, TypeError, AttributeError: it is none, or is of another file, or says who may see it.
    """
    id_, text = _plain_text(document.id), _plain_text(document.text)
    metadata = json.loads(json.dumps(dict(document.metadata)))
    if metadata.get("source") != file.id or not (file.is_single or id_ == file.id or id_.startswith(f"{file.id}#")):
        raise ValueError(f"the passage {id_!r:.200} is of another file")
    if ACCESS in metadata:
        raise ValueError(f"the passage {id_!r:.200} says who may see it, which no worker decides")
    return Document(id_, text, metadata)


def _plain_text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value


def _reading(files: Sequence[FoundFile], options: Mapping[str, Any]) -> Iterator[_ClusterTask]:
    """Yield a task for every few files."""
    group: list[FoundFile] = []
    for file in files:
        group.append(file)
        if len(group) == _FILES or sum(file.size for file in group) >= _BYTES:
            yield _reading_task(group, options)
            group = []
    if group:
        yield _reading_task(group, options)


def _reading_task(files: Sequence[FoundFile], options: Mapping[str, Any]) -> _ClusterTask:
    states = [(str(file.path), file.id, *_state(file)) for file in files]
    key = f"pointsman-read-{_digest(states, sorted(options.items()))}"
    return _ClusterTask(_read, (tuple(files), dict(options)), key)


def _state(file: FoundFile) -> tuple[int, int]:
    """Return the size of a file and when it was changed, 0 if that is not known here."""
    try:
        status = file.path.stat()
    except OSError:  # whoever reads it reports that
        return file.size, 0
    return status.st_size, status.st_mtime_ns


def _digest(*values: object) -> str:
    digest = xxhash.xxh3_128()
    for value in values:
        digest.update(f"{value!r}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _is_loss(error: BaseException) -> bool:
    """Whether an error is that of a lost connection, not one of the task's own."""
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError

    return isinstance(error, CancelledError | CommClosedError | TimeoutError)


def _read(files: Sequence[FoundFile], options: Mapping[str, Any]) -> list[list[ReadResult]]:
    """Read files; runs on a worker."""
    with FileReader(**options) as reader:
        return [list(reader.read(file)) for file in files]


@lru_cache(maxsize=1)
def _embedder_of(spec: str) -> BaseEmbedder:
    return load_embedder(spec)


def _embed(spec: str, name: str, texts: list[str]) -> NDArray[np.float32]:
    """Embed texts; runs on a worker.

    Raises:
        InputError: the embedder of this specification has another name.
    """
    embedder = _embedder_of(spec)
    if embedder.name != name:
        raise InputError(
            f"the dataset's embedder is {name!r}, and {spec!r} is {embedder.name!r} on a worker; give the same to both"
        )
    vectors = embedder.embed_documents(texts)
    if len(vectors) != len(texts):
        raise ModelError(f"{embedder.name} returned {len(vectors)} vectors for {len(texts)} texts")
    return vectors
