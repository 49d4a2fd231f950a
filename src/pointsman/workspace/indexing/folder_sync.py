"""Synchronises a dataset with files and folders: new and changed passages are stored, vanished ones are deleted.

Words come first: passages are committed about once a second as they are read, and are found by their words from then
on. Vectors follow in separate batches; until all exist, answers report how many are missing. Committed passages are
kept even if indexing is interrupted; the next run embeds the rest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from pointsman.embedders.base_embedder import image_embedder_of
from pointsman.ingest import (
    FileOptions,
    FileReader,
    FoundFile,
    Omission,
    Problem,
    ReadResult,
    Sync,
    check_encoding,
    find_files,
)
from pointsman.ingest.chunk import MAX_TOKENS, OVERLAP
from pointsman.ingest.convert import PICTURES
from pointsman.ingest.file_patterns import IGNORE_FILES
from pointsman.ingest.file_walk import readable_name
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import InputError, MissingDependencyError, ModelError, UnknownNameError
from pointsman.tools.system.locations import with_home
from pointsman.values.metadata import RESERVED
from pointsman.values.types import AddResult, Document
from pointsman.values.views import ACCESS, AccessRule, Permissions, access_rule_for
from pointsman.workspace.dataset import PATIENCE, SOON
from pointsman.workspace.indexing.file_sources import FileSources
from pointsman.workspace.indexing.index_report import IndexingInterrupted, IndexOptions, IndexProgress, IndexReport

if TYPE_CHECKING:
    import threading

    import numpy as np
    from numpy.typing import NDArray
    from watchfiles import Change

    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.dataset.document_vectors import Embedding
    from pointsman.workspace.indexing.indexing_cluster import ClusterReader, IndexingCluster

_WORDS_BATCH = 1000
"""Passages committed together in a dataset that searches words."""

_IMAGES_BATCH = 16
"""Pictures embedded and committed together."""

_NO_TEXT = "there is no text in it"
_NO_PICTURE = "not a picture, and the dataset holds pictures; index it into another dataset"

_SECONDS = 1.0
"""Seconds after which passages are committed even if there are few."""


def index_paths(
    dataset: Dataset,
    paths: str | Path | Iterable[str | Path],
    *,
    cluster: IndexingCluster | None = None,
    **options: Unpack[IndexOptions],
) -> IndexReport:
    """Synchronise a dataset with the current contents of ``paths``; other paths indexed into it are left unchanged.

    A file keeps the source under which it was first stored; see `FileSources`. Of files that are in ``paths``, passages
    are deleted when the file, or their place in it, is gone. Passages are committed in small batches and found by
    their words from then on; after the last one, all documents without a vector are embedded, including those left by
    an earlier run. A file that cannot be read, or exceeds a limit, is reported, keeps its stored passages, and never
    stops the others.

    Args:
        dataset: the dataset to update.
        paths: a file or folder, or several.
        cluster: reads, splits and embeds in place of this process, which writes.
        options: see `IndexOptions`.

    Raises:
        InputError: a path does not exist, a size is out of range, or a pattern or rule is none.
        LockedError: another process has been writing to the dataset for a minute.
        IndexingInterrupted: Ctrl-C; committed passages are kept.
        ServiceError: the cluster is lost; committed passages are kept, and indexing again continues.
    """
    if cluster is not None:
        cluster.check(dataset)
    sources, file_options = _sources([paths] if isinstance(paths, (str, Path)) else paths, options)
    run = _Run(dataset, sources, file_options, options)
    if cluster is not None:
        with cluster.reader(dataset, run.files, **_reading(options)) as cluster_reader:
            run.index(cluster_reader)
        embedder = dataset.embedder
        run.embed(embedding=partial(cluster.embed, name=embedder.name, dimensions=embedder.dimensions))
    else:
        with FileReader(**_reading(options), images=dataset.holds_images) as reader:
            run.index(reader)
        run.embed()
    return run.report()


def _sources(paths: Iterable[str | Path], options: IndexOptions) -> tuple[FileSources, FileOptions]:
    """Return the sources of the files in some paths, and those of the options that `find_files` takes.

    Raises:
        InputError: a path does not exist, or is empty, as that of an unset variable in a shell; or a pattern is none.
        UnknownNameError: an option does not exist.
    """
    if unknown_names := options.keys() - IndexOptions.__annotations__:
        raise UnknownNameError("option of indexing", min(unknown_names), tuple(IndexOptions.__annotations__))
    file_options = {name: value for name, value in options.items() if name in FileOptions.__annotations__}
    paths = list(paths)
    if "" in paths:
        raise InputError("a path is empty; '.' is the current folder")
    find_files(paths, **cast("FileOptions", file_options))  # raises an error if one does not exist
    return FileSources([str(with_home(path).resolve()) for path in paths]), cast("FileOptions", file_options)


def _reading(options: IndexOptions) -> dict[str, Any]:
    """Return the arguments of a `FileReader`.

    Raises:
        InputError: there is no such encoding.
    """
    check_encoding(options.get("encoding"))  # before the first worker of a cluster would
    sizes = {"max_tokens": options.get("max_tokens"), "overlap": options.get("overlap")}
    defaults = {"max_tokens": MAX_TOKENS, "overlap": OVERLAP}
    given_sizes = {name: size for name, size in sizes.items() if size is not None}
    return {**defaults, **given_sizes, "limits": options.get("limits"), "encoding": options.get("encoding")}


def watch_paths(
    dataset: Dataset,
    paths: Iterable[str | Path],
    *,
    stop: threading.Event | None = None,
    **options: Unpack[IndexOptions],
) -> Iterator[IndexReport]:
    """Index files and folders, and follow all changes in them until Ctrl-C, or until ``stop`` is set.

    Changes less than a fifth of a second apart, within two seconds at most, form one round. A round reads new and
    changed files, and those that a changed ignore file leaves out no more, and deletes the passages of vanished ones;
    other files are not read. Between rounds, vectors are made as long as nothing changes, and other processes may write
    to the dataset.

    Args:
        dataset: the dataset to update.
        paths: see `index_paths`.
        stop: an event that ends watching from another thread.
        options: see `IndexOptions`.

    Yields:
        A report of the first indexing and of each round, when its passages are found by words; and one when the last
        missing vector has been made.

    Raises:
        InputError: a path does not exist, a size is out of range, or a pattern or rule is none.
        LockedError: another process has been writing to the dataset for a minute.
        IndexingInterrupted: Ctrl-C during indexing; committed passages are kept.
        KeyboardInterrupt: Ctrl-C between rounds.
        MissingDependencyError: the package ``watchfiles`` is not installed.
    """
    try:
        from watchfiles import watch
    except ImportError:
        raise MissingDependencyError("watchfiles", "watch", "Watching folders") from None
    sources, file_options = _sources(paths, options)
    visible = _Visible(sources.paths, hidden=options.get("hidden", False))
    events = watch(
        *sources.paths, watch_filter=visible, debounce=2000, step=200,
        stop_event=stop, yield_on_timeout=True, rust_timeout=200,
    )  # fmt: skip
    old_ids: set[str] | None = None
    run: _Run | None = None
    for changes in events:  # the first set is empty: watching starts before the first indexing, so no change is missed
        if not changes and old_ids is not None:
            if run is not None and run.vectors_due and run.embed(SOON):
                yield IndexReport(0, AddResult(), 0, ())
            continue
        if old_ids is None:
            run = _Run(dataset, sources, file_options, options)
            old_ids = run.sources
        else:
            items = list(sources.find(**file_options))
            new_ids = {item.id for item in items if isinstance(item, FoundFile)}
            files = _changed_files(items, {path for _, path in changes}, new_ids - old_ids)
            deleted_ids = old_ids - new_ids
            changed_sources = {file.id for file in files} | deleted_ids
            old_ids = new_ids
            if not changed_sources:
                continue
            omissions = [item for item in items if isinstance(item, Omission)]
            items = [*files, *_explaining(items, deleted_ids), *omissions]
            run = _Run(dataset, sources, file_options, options, (changed_sources, items))
        with dataset.writing(PATIENCE), FileReader(**_reading(options), images=dataset.holds_images) as reader:
            run.index(reader)
        yield run.report()


class _Visible:
    """Selects changes of files that indexing would read, judging by their names."""

    def __init__(self, roots: Iterable[str], *, hidden: bool) -> None:
        self._roots, self._reads_hidden = [Path(root) for root in roots], hidden

    def __call__(self, change: Change, path: str) -> bool:  # noqa: ARG002  (watchfiles')
        """Whether to process the change; that of an ignore file changes what is read."""
        if Path(path).name in IGNORE_FILES:
            return True
        relative_paths = (Path(path).relative_to(root).parts for root in self._roots if Path(path).is_relative_to(root))
        return self._reads_hidden or any(not any(step.startswith(".") for step in steps) for steps in relative_paths)


def _changed_files(
    items: Iterable[FoundFile | Problem | Omission], paths: Collection[str], new_ids: Collection[str]
) -> list[FoundFile]:
    """Return the files that have changed, or are new."""
    files = (item for item in items if isinstance(item, FoundFile))
    return [
        file
        for file in files
        if file.id in new_ids or any(str(path) in paths for path in (file.path, *file.path.parents))
    ]


def _explaining(items: Iterable[FoundFile | Problem | Omission], deleted_ids: Collection[str]) -> list[Problem]:
    """Return the problems that make files seem to be gone: their own, or those of a folder that contains them."""
    problems = (item for item in items if isinstance(item, Problem))
    return [
        problem
        for problem in problems
        if problem.path == "." or any(f"{id_}/".startswith(f"{problem.path}/") for id_ in deleted_ids)
    ]


def _stored_of(dataset: Dataset, sources: Iterable[str]) -> Iterator[Document]:
    for source in sorted(sources):
        with without_record():
            documents = dataset.get_many(dataset.ids(source=source))
        yield from (document for document in documents if document is not None)


class _Run:
    """One indexing of some paths: passages waiting to be committed, and the results so far."""

    def __init__(
        self,
        dataset: Dataset,
        file_sources: FileSources,
        file_options: FileOptions,
        options: IndexOptions,
        changes: tuple[Collection[str], Sequence[FoundFile | Problem | Omission]] | None = None,
    ) -> None:
        self._dataset, self._file_sources, self._prunes = dataset, file_sources, options.get("prune", False)
        self._on_progress = options.get("on_progress") or (lambda _: None)
        access = options.get("access")
        self._rules = None if access is None else list(map(AccessRule.of, access))
        self._is_whole = changes is None  # not only what has changed of what is watched
        self._unused_rules = dict.fromkeys(self._rules or ())
        self._closed_sources: dict[str, None] = {}  # no rule matches them
        self._access_of: dict[str, Any] = {}  # by id, what is stored
        self._access_of_source: dict[str, Any] = {}
        self._additions = _Additions()
        if changes is None:
            self._sync = Sync(map(self._as_read, file_sources.noted_documents(dataset)))
            file_sources.decide(**file_options)
            self._sync.note(map(self._as_read, file_sources.documents_elsewhere(dataset)))
            items: Sequence[FoundFile | Problem | Omission] = list(file_sources.find(**file_options))
        else:
            changed_sources, items = changes
            self._sync = Sync(map(self._as_read, file_sources.noted_documents(_stored_of(dataset, changed_sources))))
        self._omissions = {readable_name(str(item.path)): item for item in items if isinstance(item, Omission)}
        self._stored_omissions: list[str] = []
        self._problems = [item for item in items if isinstance(item, Problem)]
        for problem in self._problems:
            self._sync.changed_documents(ReadResult(problem.path, problems=(problem,)))  # keeps its stored passages
        self.files = [item for item in items if isinstance(item, FoundFile)]
        self.sources = {file.id for file in self.files}
        self._paths_of_rules = file_sources.paths_in_given(self.files if self._rules else ())
        if dataset.holds_images:
            self.files = self._pictures()
        self._bytes = sum(file.size for file in self.files)
        self._batch = SOON if dataset.indexing_technique == "vector" else _WORDS_BATCH
        if dataset.holds_images:
            self._batch = _IMAGES_BATCH
        self._waiting: list[Document] = []
        self._images: list[bytes] = []  # of the waiting documents, in a dataset of pictures
        self._commit_time = monotonic()
        self._passages = AddResult()
        self._deleted = self._count = self._read = self._vectors = self.vectors_due = 0
        self._bytes_done = self._bytes_of_file = 0
        self._path = ""

    def index(self, reader: FileReader | ClusterReader) -> None:
        """Store new and changed passages, and delete vanished ones."""
        with self._interruptible():
            self._index(reader)
            self.vectors_due = self._dataset.vectors_due

    def embed(self, limit: int | None = None, embedding: Embedding | None = None) -> bool:
        """Embed at most ``limit`` documents without a vector; return whether none is left."""
        with self._interruptible():
            self._tell()
            if self.vectors_due:
                try:
                    # A service embeds by itself, and takes no other way of embedding.
                    options = {} if embedding is None else {"embedding": embedding}
                    self._dataset.embed(limit, on_progress=self._count_vectors, **options)
                except ModelError as error:
                    due = self._dataset.vectors_due
                    subject = "1 passage is" if due == 1 else f"{due:,} passages are"
                    remedy = f"{subject} stored for keyword search only; index again to embed the rest"
                    error.args = (f"{error}; {remedy}", *error.args[1:])
                    raise
                self.vectors_due = self._dataset.vectors_due
                self._tell()
        return not self.vectors_due

    def _count_vectors(self, count: int) -> None:
        self._vectors, self.vectors_due = self._vectors + count, max(0, self.vectors_due - count)
        self._tell()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt as error:
            self.vectors_due = self._dataset.vectors_due
            raise IndexingInterrupted(self.report()) from error

    def _index(self, reader: FileReader | ClusterReader) -> None:
        for file in self.files:
            self._path = file.id
            self._tell()
            root = self._file_sources.root(file)
            is_read = has_problem = False
            for result in reader.read(file):
                is_read, has_problem = is_read or bool(result.documents), has_problem or bool(result.problems)
                self._take(result, root)
                ends = (document.metadata["end"] for document in result.documents)
                self._bytes_of_file = min(max(ends, default=0), file.size)
            self._read += is_read
            if not is_read and not has_problem:
                self._problems.append(Problem(file.id, _NO_TEXT))
            self._bytes_done, self._bytes_of_file = self._bytes_done + file.size, 0
        self._commit()
        missing_documents = self._sync.missing_documents()
        if not self._prunes:
            self._stored_omissions = sorted(filter(self._is_omission, set(missing_documents.values())))
        deleted_ids = [id_ for id_, source in missing_documents.items() if source not in self._stored_omissions]
        self._problems += self._additions.problems(deleted_ids)
        if deleted_ids:
            with self._dataset.writing(PATIENCE):
                self._deleted = self._dataset.delete(deleted_ids)
        files = {file.id for file in self.files}
        self._problems += [problem for problem in self._dataset.version_problems() if problem.path in files]
        self._problems += self._access_problems()
        self._path = ""
        self._tell()

    def _is_omission(self, source: str) -> bool:
        """Whether a file is there, and was left out."""
        file_path = PurePosixPath(self._file_sources.file_path(source))
        omitted_path = next(
            (str(path) for path in (file_path, *file_path.parents) if str(path) in self._omissions), None
        )
        return omitted_path is not None and os.path.lexists(
            self._omissions[omitted_path].path / file_path.relative_to(omitted_path)
        )

    def _access_problems(self) -> Iterator[Problem]:
        """Say what the rules of access did not do: nobody may notice it before somebody misses a file, or sees one."""
        for rule in self._unused_rules if self._is_whole else ():
            yield Problem(
                rule.pattern,
                "this access rule decides about no file: its folder may be spelled in another way, "
                "or an earlier rule matches all of it",
            )
        if self._closed_sources:
            first, *other_sources = self._closed_sources
            more = f", and {len(other_sources):,} more" if other_sources else ""
            yield Problem(first, f"no access rule matches it{more}: while access is on, nobody may see it")

    def report(self) -> IndexReport:
        """Return the results so far."""
        omissions = Counter(omission.reason for omission in self._omissions.values()) if self._is_whole else {}
        return IndexReport(
            self._read,
            self._passages,
            self._deleted,
            tuple(self._problems),
            self.vectors_due,
            dict(sorted(omissions.items())),
            tuple(self._stored_omissions),
            self._dataset.truncations,
            tuple(self._file_sources.notes) if self._is_whole else (),
        )

    def _pictures(self) -> list[FoundFile]:
        """Return the files whose names are those of pictures, and report the others."""
        files = [file for file in self.files if file.path.suffix[1:].lower() in PICTURES]
        self._problems += [Problem(file.id, _NO_PICTURE) for file in self.files if file not in set(files)]
        return files

    def _take(self, content: ReadResult, root: str) -> None:
        if (
            self._dataset.holds_images and content.documents and not content.image
        ):  # another format under a picture's name
            content = replace(content, documents=(), problems=(*content.problems, Problem(content.path, _NO_PICTURE)))
        self._problems += content.problems
        documents = [self._additions.restore(_with_root(document, root)) for document in content.documents]
        result = replace(content, documents=tuple(documents))
        fresh = self._sync.changed_documents(result)
        changes = self._changed_access(result.documents, {document.id for document in fresh})
        count_unchanged = len(result.documents) - len(fresh)
        self._passages += AddResult(unchanged=count_unchanged - len(changes))
        if changes:
            with self._dataset.writing(PATIENCE):
                self._passages += self._dataset.set_access(changes)
        fresh = [self._with_access(document) for document in fresh]
        self._count += count_unchanged
        self._waiting += fresh
        self._images += [result.image for _ in fresh if result.image]
        while len(self._waiting) >= self._batch or (self._waiting and monotonic() - self._commit_time > _SECONDS):
            self._commit()

    def _as_read(self, document: Document) -> Document:
        """Note what a stored document says that may not be from its file, and return it without its access."""
        self._additions.note(document)
        if (value := document.metadata.get(ACCESS)) is not None:
            self._access_of[document.id] = value
            self._access_of_source.setdefault(str(document.metadata.get("source")), value)
            metadata = {name: item for name, item in document.metadata.items() if name != ACCESS}
            document = replace(document, metadata=metadata)
        return document

    def _access(self, document: Document) -> Any:
        """Return what a document is to say about access."""
        source = str(document.metadata.get("source"))
        if self._rules is not None:
            if (rule := access_rule_for(self._paths_of_rules.get(source, source), self._rules)) is None:
                self._closed_sources[source] = None
                return Permissions().to_metadata()
            self._unused_rules.pop(rule, None)
            return rule.permissions.to_metadata()
        return self._access_of.get(document.id, self._access_of_source.get(source))

    def _with_access(self, document: Document) -> Document:
        value = self._access(document)
        return document if value is None else replace(document, metadata={**document.metadata, ACCESS: value})

    def _changed_access(self, documents: Iterable[Document], fresh_ids: Collection[str]) -> dict[str, Any]:
        """Return what documents that are stored unchanged are to say about access from now on."""
        if self._rules is None:
            return {}
        same_documents = (document for document in documents if document.id not in fresh_ids)
        access_by_id = {document.id: self._access(document) for document in same_documents}
        return {id_: value for id_, value in access_by_id.items() if value != self._access_of.get(id_)}

    def _commit(self) -> None:
        batch, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        images, self._images = self._images[: self._batch], self._images[self._batch :]
        if batch:
            vectors = self._vectors_of(images) if images else None
            with self._dataset.writing(PATIENCE):
                self._passages += self._dataset.add(batch, vectors=vectors, embed="later")
            self._count += len(batch)
            self._commit_time = monotonic()
            self._tell()

    def _vectors_of(self, images: list[bytes]) -> NDArray[np.float32]:
        """Embed pictures.

        Raises:
            ModelError: the embedder failed; pictures are stored only with their vectors.
        """
        embedder = image_embedder_of(self._dataset.embedder)
        assert embedder is not None, "a dataset of pictures has such an embedder"
        try:
            return embedder.embed_images(images)
        except ModelError as error:
            left_out = len(images) + len(self._waiting)
            subject = "1 picture is" if left_out == 1 else f"{left_out:,} pictures are"
            error.args = (f"{error}; {subject} not stored; index again to embed the rest", *error.args[1:])
            raise

    def _tell(self) -> None:
        bytes_read = self._bytes_done + self._bytes_of_file
        total = self._count + len(self._waiting)
        expected = max(total, total * self._bytes // bytes_read) if bytes_read and total else None
        expected = expected if self._path else self._count
        share = min(bytes_read / self._bytes, 1.0) if self._bytes and self._path else float(not self._path)
        self._on_progress(IndexProgress(self._count, expected, self._path, self._vectors, self.vectors_due, share))


class _Additions:
    """What was added to the metadata of stored passages by hand, which their file does not say.

    As long as a file is the same, what it does not say cannot have come from it, and is kept. Once it has changed,
    nobody can tell what was added from what it said before: that is taken away, and reported.
    """

    def __init__(self) -> None:
        self._of_id: dict[str, tuple[str, Any, dict[str, Any]]] = {}  # source, digest of the file, and fields
        self._missing_keys: dict[str, set[str]] = {}  # by source
        self._keys_of_source: dict[str, set[str]] = {}

    def note(self, document: Document) -> None:
        """Note the fields of a stored passage that may have been added."""
        fields = {name: value for name, value in document.metadata.items() if name not in _BY_INDEXING}
        if fields:
            source = str(document.metadata.get("source"))
            self._of_id[document.id] = source, document.metadata.get("sha256"), fields

    def restore(self, document: Document) -> Document:
        """Return a passage with what was added to it, if its file is the same."""
        source, digest, fields = self._of_id.get(document.id, ("", None, {}))
        missing = {name: value for name, value in fields.items() if name not in document.metadata}
        if self._of_id:
            own_source = str(document.metadata.get("source"))
            self._keys_of_source.setdefault(own_source, set()).update(document.metadata)
        if missing and digest is not None and digest == document.metadata.get("sha256"):
            return replace(document, metadata={**document.metadata, **missing})
        if missing:
            self._missing_keys.setdefault(source, set()).update(missing)
        return document

    def problems(self, deleted_ids: Iterable[str]) -> Iterator[Problem]:
        """Return what was taken away from the passages of files that are still there.

        Args:
            deleted_ids: the stored passages that are gone.
        """
        for id_ in deleted_ids:
            source, _, fields = self._of_id.get(id_, ("", None, {}))
            if source in self._keys_of_source:
                self._missing_keys.setdefault(source, set()).update(fields)
        for source, keys in self._missing_keys.items():
            if names := ", ".join(sorted(keys - self._keys_of_source.get(source, set()))):
                yield Problem(
                    source,
                    f"its passages have no {names:.200} any more, which the file does not say; if it was set by hand, "
                    "set it again, or write it into the file",
                )


_BY_INDEXING: Final = frozenset({*RESERVED, ACCESS, "language"})
"""Metadata that indexing itself writes, or keeps by rules of its own."""


def _with_root(document: Document, root: str) -> Document:
    return replace(document, metadata={**document.metadata, "root": root})
