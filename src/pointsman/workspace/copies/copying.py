"""Copies workspaces between backends: a folder to a database, a database to a cluster, and back.

Documents are copied with their vectors, so nothing is embedded again. Batches are idempotent, so an interrupted copy
resumes where it stopped. At the end every document is compared by a digest over its id, text, metadata and vector.
Documents written to the source meanwhile are copied too, provided its writers pause once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pointsman.retrieval.judge.kept_calibrations import change_calibrations, stored_calibrations
from pointsman.retrieval.plan.policy import POLICY
from pointsman.store.prepared_documents import prepare
from pointsman.store.store_values import NEAR, StoreQuery
from pointsman.tools.errors import InputError, StoreError, UnknownNameError
from pointsman.values.views import ACCESS_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pointsman.retrieval.judge.kept_calibrations import Calibration
    from pointsman.store.backend import Backend, DatasetRecord
    from pointsman.store.base_store import Store
    from pointsman.values.types import Document

Progress = Callable[[str, int, int], None]
"""Called with the name of a dataset, the number of documents copied, and the total."""

BATCH: Final = 500
_UNDER_WAY: Final = "copy"
_PASSES: Final = 5  # over a source that is being written to


@dataclass(frozen=True, slots=True)
class Content:
    """A fingerprint of a dataset's contents; the order of the documents does not matter.

    Attributes:
        documents: number of documents.
        vectors: number of documents with a vector.
        digest: over all documents, 32 hexadecimal digits.
    """

    documents: int
    vectors: int
    digest: str


@dataclass(frozen=True, slots=True)
class CopyReport:
    """A copied dataset.

    Attributes:
        name: its name.
        content: the same on both sides.
        kept_days: for how many days the source keeps versions, none of which are copied; 0 if it keeps none.
    """

    name: str
    content: Content
    kept_days: int = 0


def copy(
    source: Backend, target: Backend, names: Sequence[str] | None = None, *, on_progress: Progress | None = None
) -> list[CopyReport]:
    """Copy datasets with their calibrations; an interrupted copy resumes where it stopped.

    Versions that a dataset keeps are not copied, and the copy keeps none; each report says where there are some.

    The target keeps what it has for its other datasets. If all datasets are copied, it also gets the source's policy
    unless it has its own.

    Args:
        source: the backend to copy from; it is not changed.
        target: the backend to copy to.
        names: the datasets to copy; by default all.
        on_progress: called after every batch.

    Raises:
        UnknownNameError: a name is unknown.
        InputError: the target has a dataset of the same name that is not a copy, or has changed since it was copied; or
            the target is the source; or access is on in the source only.
        StoreError: the copy differs from the source, or the source is written to without a pause.
    """
    records = {record.name: record for record in source.datasets()}
    selection = list(records) if names is None else list(dict.fromkeys(names))
    for name in selection:
        if name not in records:
            raise UnknownNameError("dataset", name, tuple(records))
    _check_access(source, target)
    reports = [_copy_dataset(source, target, records[name], on_progress or (lambda *_: None)) for name in selection]
    _copy_calibrations(source, target, selection)
    policy = None if names is not None else source.record(POLICY)
    if policy is not None and target.record(POLICY) is None:
        target.put_record(POLICY, "", policy.value)
    return reports


def _check_access(source: Backend, target: Backend) -> None:
    """Check that a copy does not open documents to those who may not see them; an empty target gets access on.

    Raises:
        InputError: access is on in the source, and off in the target.
    """
    access = source.record(ACCESS_RECORD)
    if access is None or target.record(ACCESS_RECORD) is not None:
        return
    if target.is_remote or target.datasets():
        raise InputError(
            f"access is on at {source.url} and off at {target.url}, where everyone would see the copied documents; "
            "switch it on there first, with 'pointsman access on'"
        )
    target.put_record(ACCESS_RECORD, "", access.value)


def _copy_calibrations(source: Backend, target: Backend, names: Sequence[str]) -> None:
    """Give these datasets the calibrations that they have at the source; those without one there lose theirs."""
    source_calibrations, target_calibrations = (
        {name: calibrations.get(name) for name in names} for calibrations in map(stored_calibrations, (source, target))
    )
    if source_calibrations == target_calibrations:
        return

    def replace_calibrations(calibrations: dict[str, Calibration]) -> None:
        for name, calibration in source_calibrations.items():
            calibrations.pop(name, None)
            if calibration is not None:
                calibrations[name] = calibration

    change_calibrations(target, replace_calibrations)


def content_of(store: Store) -> Content:
    """Read all documents of a dataset and digest them."""
    documents = vectors = total = 0
    for batch, rows, having in _batches(store, None):
        documents, vectors = documents + len(batch), vectors + sum(having)
        for document, row, has_vector in zip(batch, rows, having, strict=True):
            total += _number(document, row if has_vector else None)
    return Content(documents, vectors, f"{total % 2**128:032x}")


def _number(document: Document, vector: NDArray[np.float32] | None) -> int:
    """Return the digest of a document as a number; the sum over documents does not depend on their order."""
    item = prepare(document)
    content = b"" if vector is None else vector.astype("<f4").tobytes()
    fields = (document.id.encode(), item.digest, content)
    content_with_lengths = b"".join(len(field).to_bytes(8, "little") + field for field in fields)
    return int.from_bytes(hashlib.blake2b(content_with_lengths, digest_size=16).digest(), "little")


def _copy_dataset(source: Backend, target: Backend, record: DatasetRecord, report: Progress) -> CopyReport:
    name = record.name
    store = source.open(name)
    if store is None:
        raise UnknownNameError("dataset", name)
    with closing(store):
        target_store, copy_state = _begin(target, record)
        with closing(target_store):
            if copy_state.done:
                content = content_of(store)
                if content != content_of(target_store):
                    raise _name_clash(target, name)
            else:
                content = _pass_on(target, copy_state, store, target_store, report)
            recorded_state = store.statistics().recorded_state
    _note(target, replace(copy_state, done=True))
    return CopyReport(name, content, recorded_state.days if recorded_state else 0)


@dataclass(frozen=True, slots=True)
class _CopyState:
    """The progress of a copy, kept as a record in the target."""

    name: str
    source: str  # identities of the two datasets
    target: str
    after: str | None = None
    done: bool = False


def _begin(target: Backend, about: DatasetRecord) -> tuple[Store, _CopyState]:
    """Return the dataset to copy into and the progress of an earlier, interrupted copy.

    Raises:
        InputError: the target has another dataset of this name, or is the source.
    """
    name = about.name
    record, target_store = target.record(_UNDER_WAY, name), target.open(name)
    if target_store is not None:
        if target_store.info.identity == about.identity:
            target_store.close()
            raise InputError(
                f"dataset {name!r} at {target.url} is the one to be copied, or a copy of its files; name another place"
            )
        try:
            copy_state = None if record is None else _CopyState(name, **json.loads(record.value))
        except (ValueError, TypeError, RecursionError):  # it is damaged: nothing is known of an earlier copy
            copy_state = None
        if copy_state is not None and (copy_state.source, copy_state.target) == (
            about.identity,
            target_store.info.identity,
        ):
            return target_store, copy_state
        if copy_state is not None or target_store.count():
            target_store.close()
            raise _name_clash(target, name)
    settings = {"description": about.description, "indexing_technique": about.indexing_technique, **about.settings}
    target_store = target_store or target.create(name, settings)
    copy_state = _CopyState(name, about.identity, target_store.info.identity)
    _note(target, copy_state)
    return target_store, copy_state


def _name_clash(target: Backend, name: str) -> InputError:
    return InputError(f"{target.url} has another dataset {name!r} already; drop it there, or copy to another place")


def _note(target: Backend, state: _CopyState) -> None:
    value = {"source": state.source, "target": state.target, "after": state.after, "done": state.done}
    target.put_record(_UNDER_WAY, state.name, json.dumps(value))


def _pass_on(target: Backend, state: _CopyState, store: Store, target_store: Store, report: Progress) -> Content:
    """Copy, and copy again what has changed meanwhile, until both sides are equal.

    Raises:
        StoreError: they do not become equal.
    """
    for number in range(_PASSES):
        _write_all(target, state, store, target_store, report)
        if number or state.after is not None:  # an earlier pass may have copied what was deleted since
            ids = set(store.ids())
            target_store.delete([id_ for id_ in target_store.ids() if id_ not in ids])
        source_content, target_content = content_of(store), content_of(target_store)
        if source_content == target_content:
            target_store.annotate(**_portable(store))
            return source_content
        state = replace(state, after=None)
    raise StoreError(
        f"dataset {state.name!r} differs between its source ({source_content}) and {target.url} "
        f"({target_content}); copy it again when nothing writes to it"
    )


def _write_all(target: Backend, state: _CopyState, store: Store, target_store: Store, report: Progress) -> None:
    embedder, total = store.info.embedder, store.count()
    count = target_store.count() if state.after is not None else 0
    with target_store.writer():
        for batch, rows, having in _batches(
            store, state.after, lambda cursor: _note(target, replace(state, after=cursor))
        ):
            for has_vector in set(having):
                indices = [index for index, flag in enumerate(having) if flag == has_vector]
                vectors = (rows[indices], embedder) if has_vector else ()
                target_store.write([batch[index] for index in indices], *vectors)
            count += len(batch)
            report(state.name, min(count, total), total)


def _batches(
    store: Store, after: str | None, on_page: Callable[[str], None] | None = None
) -> Iterator[tuple[list[Document], NDArray[np.float32], list[bool]]]:
    """Yield documents, their vectors, and which have one; ``on_page`` is called when the next page is requested."""
    while True:
        page = store.page(after, BATCH)
        if page.documents:
            yield page.documents, *_vectors(store, page.documents)
        if page.next is None:
            return
        after = page.next
        if on_page is not None:
            on_page(after)


def _vectors(store: Store, documents: Sequence[Document]) -> tuple[NDArray[np.float32], list[bool]]:
    """Return a row for each document and whether it has a vector; without one the row has no meaning."""
    dimensions = store.info.dimensions if NEAR in store.info.scales else None
    if dimensions is None:
        return np.zeros((len(documents), 0), np.float32), [False] * len(documents)
    keys = store.keys([document.id for document in documents])
    present = [keys[document.id] for document in documents if document.id in keys]
    vectors = store.vectors(present)
    if len(vectors) == len(documents):
        return vectors, [True] * len(documents)
    probe = np.eye(1, dimensions, dtype=np.float32)[0]
    cosines = store.score([StoreQuery(None, probe)], [present])[0][NEAR]
    having = [not np.isnan(cosines.get(keys.get(document.id), np.nan)) for document in documents]
    if sum(having) != len(vectors):
        raise StoreError("documents were written while their vectors were read; copy again")
    rows = np.zeros((len(documents), dimensions), np.float32)
    rows[having] = vectors
    return rows, having


def _portable(store: Store) -> dict[str, str]:
    """Return the notes that do not depend on the backend."""
    return {name: value for name, value in store.statistics().notes.items() if not name.endswith("_at")}
