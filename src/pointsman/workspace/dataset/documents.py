"""The documents of a dataset: adding, reading, changing and deleting them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from pointsman.retrieval.run.reading import versions_in
from pointsman.tools.errors import ConflictError, InputError
from pointsman.tools.sync_and_async import async_twin
from pointsman.values.argument_checks import check_id, check_ids, check_page
from pointsman.values.filters import parse_optional
from pointsman.values.metadata import facts
from pointsman.values.types import AddResult, Document, check_changes, with_access
from pointsman.values.views import Permissions, access_changes
from pointsman.workspace.dataset.document_vectors import BATCH, LATER, Embed, EmbeddedDataset, in_batches, write_to
from pointsman.workspace.passages import SourceText, source_text
from pointsman.workspace.stored_folders import ids_within, in_named_folder, names_of_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from pointsman.ingest import Problem
    from pointsman.store.base_store import Store
    from pointsman.values.filters import Filter
    from pointsman.values.types import Documents

    GivenVectors = NDArray[np.float32] | Sequence[Sequence[float] | NDArray[np.float32] | None]

Existing = Literal["update", "rewrite", "keep", "refuse"]
"""What happens to documents that are added under an id that exists."""
EXISTING: Final = get_args(Existing)
_TITLE_ATTEMPTS = 10  # how often new titles are embedded again because others have changed the texts meanwhile


class EditableDataset(EmbeddedDataset):
    """A dataset whose documents can be read and written."""

    def add(
        self,
        documents: Documents,
        *,
        vectors: GivenVectors | None = None,
        embed: Embed = True,
        existing: Existing = "update",
        on_progress: Callable[[int], None] | None = None,
        batch_size: int | None = None,
        on_commit: Callable[[AddResult], None] | None = None,
        access: Permissions | Mapping[str, Any] | Iterable[str] | None = None,
    ) -> AddResult:
        """Add documents, or update those whose id exists; documents already stored identically are skipped.

        Documents are committed in batches. When this returns, all of them are durable and searchable; if it is
        interrupted, the committed batches are. As many of the first documents as ``on_commit`` last counted need not be
        added again (if they are, they are ``unchanged``). If an id repeats, its last document counts.


        Args:
            documents: documents, or mappings with ``id``, ``text`` and optionally ``metadata``; one or several.
            vectors: shape ``(number of documents, dimensions)``, by this dataset's embedder; scaled to length 1. By
                default the documents are embedded here. A list may have None in place of a row; those documents are
                embedded here, and written in the same step as the others.
            embed: with False, documents given without vectors are stored without them and found only by words.
                ``"later"`` does the same, but answers report how many vectors are missing until `embed` has made them;
                if words are not searched, or the store cannot add vectors later, it is the same as True.
            existing: what happens to documents whose id exists: ``"update"`` them, ``"rewrite"`` them even if they are
                stored identically (and embed them anew, so that no time tells what is stored), ``"keep"`` the stored
                ones (counted as unchanged), or ``"refuse"`` the batch. In a store with many writers, another process
                may add an id in between.
            on_progress: called with the number of documents done since the last call.
            batch_size: maximum number of documents embedded and committed together; by default 512, or 10,240 with
                ``vectors``. Batches of more than 32 million characters are split.
            on_commit: called after each commit with the counts so far; documents are committed in order.
            access: who may see these documents, instead of what their metadata says under ``_access``: allowed
                principals, or a mapping with ``allow`` and ``deny``.

        Raises:
            InputError: a document or the vectors cannot be used, an id exists and ``existing`` is ``"refuse"``, or the
                dataset holds pictures and no vectors are given; its batch and those after it are not written.
            LockedError: another process is writing to the dataset.
        """
        _check_choices(existing, embed)
        vectors = None if vectors is None else _rows_of(vectors)
        self._check_vectors(has_vectors=vectors is not None and vectors.dtype != object)
        report = on_progress or (lambda _: None)
        total, position = AddResult(), 0
        size = (BATCH if vectors is None else 20 * BATCH) if batch_size is None else batch_size
        permissions = None if access is None else Permissions.of(access)
        batches = in_batches(documents if permissions is None else with_access(documents, permissions), size)
        first = next(batches, None)  # before the dataset is created: unreadable input must not create one
        if first is None and vectors is not None and len(vectors):
            raise InputError(f"{len(vectors)} vectors for no documents; give one row for each")
        if first is None:
            return total
        store = self.make()
        if embed == LATER:
            embed = not self._goes_words_first(store)
        with store.writer():
            for batch in chain([first], batches):
                rows = None if vectors is None else vectors[position : position + len(batch)]
                if vectors is not None and len(vectors) < position + len(batch):
                    raise InputError(
                        f"{len(vectors)} vectors for more than {len(vectors)} documents; give one row for each"
                    )
                new = batch
                if existing in {"keep", "refuse"}:
                    new, rows = _new_ones(store, new, rows, existing)
                    total += AddResult(unchanged=len(batch) - len(new))
                    report(len(batch) - len(new))
                if new:
                    total += self._add_batch(store, new, rows, report, embed=bool(embed), anew=existing == "rewrite")
                position += len(batch)
                if on_commit is not None:
                    on_commit(total)
            if vectors is not None and len(vectors) != position:
                raise InputError(f"{len(vectors)} vectors for {position} documents; give one row for each")
        # Beside pictures, titles are embedded as stand-ins for questions: cosines between pictures are higher.
        self._measure_spread(store, embed=self.holds_images or (bool(embed) and vectors is None))
        self._embedded()
        return total

    aadd = async_twin(add)

    def _check_vectors(self, *, has_vectors: bool) -> None:
        """Check that documents of a dataset of pictures are added with the vectors of pictures.

        Raises:
            InputError: they are not.
        """
        if self.holds_images and not has_vectors:
            raise InputError(
                f"dataset {self.name!r} holds pictures, whose vectors are not those of texts; index their files, or "
                "give vectors=dataset.embedder.embed_images([data, …])"
            )

    def _write_mixed(
        self, store: Store, documents: list[Document], vectors: list[Any], *, embed: bool, anew: bool
    ) -> AddResult:
        """Write documents with and without vectors in one step; with ``embed``, the others are embedded before it.

        Raises:
            InputError: the vectors are not lists of numbers, all of one length.
        """
        missing, truncations = [position for position, vector in enumerate(vectors) if vector is None], AddResult()
        if embed and missing:
            self._check_embedder(store)
            texts = [documents[position].searchable for position in missing]
            for position, row in zip(missing, self._vectors_of(texts, anew=anew), strict=True):
                vectors[position] = row
            truncations = self._note_truncated(store, [documents[position] for position in missing])
        write = write_to(store, anew=anew)
        has_vector = np.array([vector is not None for vector in vectors])
        if not has_vector.any():
            return write(documents)
        given_vectors = _matrix([vector for vector in vectors if vector is not None])
        if has_vector.all():
            return truncations + write(documents, given_vectors, self.embedder.name)
        if given_vectors.ndim != 2:
            raise InputError(f"vectors are lists of numbers, all of one length, not of shape {given_vectors.shape}")
        matrix = np.zeros((len(documents), given_vectors.shape[1]), np.float32)
        matrix[has_vector] = given_vectors
        return write(documents, matrix, self.embedder.name, has_vector=has_vector)

    def _add_batch(
        self,
        store: Store,
        documents: list[Document],
        vectors: NDArray[Any] | None,
        report: Callable[[int], None],
        *,
        embed: bool,
        anew: bool,
    ) -> AddResult:
        write = write_to(store, anew=anew)
        last = {document.id: row for row, document in enumerate(documents)}
        rows = list(last.values())
        new = [documents[row] for row in rows]
        if vectors is not None and len(rows) < len(documents):
            vectors = vectors[rows]
        if self.indexing_technique == "keyword" or (vectors is None and not embed):
            result = write(new)
        elif vectors is not None and vectors.dtype == object:
            result = self._write_mixed(store, new, list(vectors), embed=embed, anew=anew)
        elif vectors is not None:
            result = write(new, vectors, self.embedder.name)
        else:
            return self._embed_and_write(store, new, len(documents), report, anew=anew)
        report(len(documents))
        return result

    def delete(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        filters: str | Mapping[str, Any] | Filter | None = None,
        under: str | os.PathLike[str] | None = None,
    ) -> int:
        """Delete those documents that have one of the ids, match the filter and are in the folder, as far as given.

        Args:
            ids: unknown ids are skipped.
            filters: as in a search.
            under: a folder, as sources name it (``"handbook/drafts"``); if they don't, its place on this machine, or
                that of a file.

        Returns:
            The number of deleted documents.

        Raises:
            InputError: nothing is given, or something is invalid.
        """
        if ids is None and not filters and under is None:
            raise InputError("give ids, filters or a folder of what to delete; Workspace.drop deletes a dataset")
        several_ids, condition = None if ids is None else check_ids(ids), parse_optional(filters)
        names = [None] if under is None else names_of_folder(under)
        if not self.exists:
            return 0
        return next(filter(None, (self._delete(several_ids, condition, name) for name in names)), 0)

    def _delete(self, ids: Sequence[str] | None, condition: Filter | None, folder: str | None) -> int:
        """Delete documents in a folder, named as sources name it or by its absolute path."""
        store = self.make()
        if folder is not None and folder.startswith("/"):
            inner_ids = ids_within(store.documents(), folder)
            ids = inner_ids if ids is None else list({*ids}.intersection(inner_ids))
        elif folder is not None:
            in_folder = in_named_folder(folder)
            condition = in_folder if condition is None else condition & in_folder
        return store.delete(ids, condition)

    adelete = async_twin(delete)

    def get(self, id: str) -> Document | None:  # noqa: A002  (the field's word)
        """Return the document with this id; None if there is none."""
        document = super().get(id)
        if document is not None:
            self._show("get", [id])
        return document

    aget = async_twin(get)

    def get_many(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids in order, None for unknown ids."""
        documents = self.store.get(list(map(check_id, ids)))
        self._show("get_many", [document.id for document in documents if document is not None])
        return documents

    def _show(self, operation: str, ids: Sequence[str]) -> None:
        """Record that these documents are shown, if there are any and the audit log is on.

        Raises:
            AuditError: it cannot be written.
        """
        if self.audit_log is not None and ids:
            self.audit_log.shows(operation, self.name, ids)

    aget_many = async_twin(get_many)

    def text(
        self,
        source: str,
        *,
        hash: str | None = None,  # noqa: A002  (named like the citation's field)
        start: int = 0,
        end: int | None = None,
    ) -> SourceText:
        """Return the text that citations refer to, reassembled from the stored passages; no file is read.

        ``dataset.text(citation.source, hash=citation.hash).text[citation.start : citation.end]`` is the quote.

        Args:
            source: a file as named in citations, or the id of a document that is not from a file.
            hash: the citation's hash; None selects the content that most of the stored passages come from.
            start: start of the requested part.
            end: end of the requested part; it may exceed the end of the text.

        Raises:
            UnknownNameError: no document of this source, or of this source with this hash, is stored.
            InputError: the offsets are out of range, or more than 100,000,000 characters apart.
        """
        text = source_text(self.store, check_id(source, "a source"), hash=hash, start=start, end=end)
        if self.audit_log is not None and self.audit_log.is_recording:
            self._show("text", self.store.ids(source=source) or [source])
        return text

    atext = async_twin(text)

    def get_vectors(self, ids: Sequence[str]) -> list[NDArray[np.float32] | None]:
        """Return the vectors of these ids in order, each of length 1, None if none is stored.

        Raises:
            UnmetNeedError: the store does not return vectors.
        """
        store = self.store
        keys = store.keys(list(ids))
        rows = store.vectors(list(keys.values())) if keys else ()
        if len(rows) == len(keys):
            vectors = dict(zip(keys, rows, strict=True))
        else:  # the store skips documents without a vector, and does not say which
            vectors = {id_: row for id_, key in keys.items() for row in store.vectors([key])}
        self._show("get_vectors", list(vectors))
        return [vectors.get(id_) for id_ in ids]

    aget_vectors = async_twin(get_vectors)

    def metadata_keys(self) -> list[str]:
        """Return the keys of the documents' metadata in alphabetical order, for filters.

        Those of nested values are paths such as ``author.name``. A store in a folder knows them once a filter has been
        used; other stores, and before that, read every document.
        """
        keys = self.store.metadata_keys()
        if keys is None:
            keys = {key for document in self.store.documents() for key in facts(document.metadata)}
        return sorted(keys)

    ametadata_keys = async_twin(metadata_keys)

    def version_problems(self) -> list[Problem]:
        """Return which documents are versions of something that is not in the dataset, with the nearest name.

        Raises:
            StoreError: the store cannot be read.
        """
        from pointsman.retrieval.judge.versions import unknown_targets

        store = self.store
        versions = versions_in(self, store, store.statistics())
        return [] if versions is None else unknown_targets(versions, store)

    aversion_problems = async_twin(version_problems)

    def ids(self, *, source: str | None = None, filters: str | Mapping[str, Any] | Filter | None = None) -> list[str]:
        """Return all ids, or those of documents whose metadata has this ``source``, that match, or both."""
        wanted_source = None if source is None else check_id(source, "a source")
        return self.store.ids(source=wanted_source, filters=parse_optional(filters))

    aids = async_twin(ids)

    def set_metadata(self, metadata: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> AddResult:
        """Change the metadata of documents; texts and vectors stay, and only a new title is embedded.

        No change by others is undone, whenever they write: each document is read and written as one step.

        Args:
            metadata: values to set, by id; None removes the key.
            replace: whether to remove all other metadata of these documents.

        Raises:
            InputError: an id is unknown, the metadata cannot be stored, or the title of a picture would change; nothing
                is changed.
            LockedError: another process is writing to the dataset.
            ConflictError: others keep changing the texts of documents that get a new title.
        """
        changes = {change.id: change.metadata for change in check_changes(metadata)}
        if changes and not self.exists:
            raise InputError(f"there is no document {next(iter(changes))!r:.80}")
        store, total = self.store, AddResult()
        vectors: dict[str, NDArray[np.float32]] = {}
        for _ in range(_TITLE_ATTEMPTS) if changes else ():
            result = store.set_metadata(changes, vectors, self.embedder.name if vectors else None, replace=replace)
            total += result.counts
            changes = {id_: changes[id_] for id_ in result.remaining}
            if not changes:
                break
            if self.holds_images:
                ids = ", ".join(sorted(changes)[:5])
                raise InputError(
                    f"{ids!r:.200} are pictures, and a new title would be embedded in their place; add the documents "
                    "with their title and vectors=dataset.get_vectors(ids)"
                )
            self._check_embedder(store)  # embedded while others may write: a vector is used only for the text it is of
            rows = self._document_embedder.embed_documents(list(result.texts))
            vectors.update(zip(result.texts, rows, strict=True))
        if not changes:
            if vectors:
                new = [
                    document for document in store.get(list(metadata)) if document and document.searchable in vectors
                ]
                total += self._note_truncated(store, new)
            return total
        raise ConflictError(f"others keep changing the texts of {', '.join(sorted(changes)[:5])!r:.200}; try again")

    aset_metadata = async_twin(set_metadata)

    def set_access(self, access: Mapping[str, Permissions | Mapping[str, Any] | Iterable[str] | None]) -> AddResult:
        """Change who may see documents, from the next search on; nothing is embedded again.

        Args:
            access: by id, the allowed principals, or a mapping with ``allow`` and ``deny``; None: nobody.

        Raises:
            InputError: an id is unknown, or a value names no principals; nothing is changed.
            LockedError: another process is writing to the dataset.
        """
        return self.set_metadata(access_changes(access))

    aset_access = async_twin(set_access)

    def count(self, filters: str | Mapping[str, Any] | Filter | None = None) -> int:
        """Return the number of documents, or of those that match."""
        return self.store.count(parse_optional(filters))

    acount = async_twin(count)

    def page(
        self, after: int = 0, limit: int = 100, *, filters: str | Mapping[str, Any] | Filter | None = None
    ) -> tuple[list[Document], int | None]:
        """Return up to ``limit`` documents in order of first arrival, and the next page's start; None at the end.

        Args:
            after: the value returned with the previous page; 0 for the first.
            limit: at least 1.
            filters: restricts the documents.

        Raises:
            InputError: a number is out of range.
        """
        check_page(after, limit)
        page = self.store.page(str(after) if after else None, limit, parse_optional(filters))
        self._show("page", [document.id for document in page.documents])
        return page.documents, None if page.next is None else int(page.next)

    apage = async_twin(page)

    def __iter__(self) -> Iterator[Document]:
        return self.store.documents()

    def __len__(self) -> int:
        return self.store.count()

    def __bool__(self) -> bool:
        return True  # an empty dataset is true too

    def __contains__(self, id_: str) -> bool:
        return self.store.get([check_id(id_)])[0] is not None


def _rows_of(vectors: GivenVectors) -> NDArray[Any]:
    """Return vectors as a matrix, or, if some are None, as an array of objects: each a list of numbers, or None.

    Raises:
        InputError: they are not lists of numbers, all of one length.
    """
    if isinstance(vectors, np.ndarray):
        return vectors
    rows = list(vectors)
    positions = [position for position, row in enumerate(rows) if row is not None]
    if len(positions) == len(rows):
        return _matrix(rows)
    objects = np.empty(len(rows), object)
    for position in positions:
        objects[position] = rows[position]
    return objects


def _matrix(rows: Sequence[Any]) -> NDArray[np.float32]:
    try:
        return np.asarray(rows, np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"vectors are lists of numbers, all of one length: {error}") from error


def _check_choices(existing: object, embed: object) -> None:
    """Check the options of `Dataset.add`.

    Raises:
        InputError: an option has an unknown value.
    """
    if existing not in EXISTING:
        raise InputError(f"existing is one of {', '.join(EXISTING)}, not {existing!r:.80}")
    if embed not in (True, False, LATER):
        raise InputError(f"embed is True, False or {LATER!r}, not {embed!r:.80}")


def _new_ones(
    store: Store, documents: list[Document], vectors: NDArray[Any] | None, existing: Existing
) -> tuple[list[Document], NDArray[Any] | None]:
    """Return the documents, and their vectors, whose ids are not in the store.

    Raises:
        InputError: an id is in the store, and ``existing`` is ``"refuse"``.
    """
    existing_ids = store.keys([document.id for document in documents])
    if existing_ids and existing == "refuse":
        raise InputError(f"{len(existing_ids)} of these ids exist already: {', '.join(sorted(existing_ids)[:5])}")
    rows = [row for row, document in enumerate(documents) if document.id not in existing_ids]
    return [documents[row] for row in rows], None if vectors is None else vectors[rows]
