"""A dataset of a service, with the interface of a local one."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from pointsman.ingest import Problem
from pointsman.retrieval.request import SearchOptions, grouping_of, of_one_dataset
from pointsman.service.client import endpoints
from pointsman.service.client.client_connections import TooLargeError
from pointsman.service.client.request_encoding import (
    as_json,
    batches,
    can_be_an_id,
    matching,
    number_of,
    sent_filter,
    storable,
)
from pointsman.service.client.upload import UploadProgress, send, windows
from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError, PointsmanError, ServiceError, UnknownNameError
from pointsman.tools.parallel_calls import Threads, run
from pointsman.tools.sync_and_async import async_twin
from pointsman.tools.system.lifecycle import Lifecycle
from pointsman.tools.vectors import encode_vector, with_length
from pointsman.values.argument_checks import check_id, check_ids, check_page, check_top_k
from pointsman.values.filters import parse_optional
from pointsman.values.types import AddResult, Document, Hit, Query, check_changes, with_access
from pointsman.values.views import Permissions, access_changes
from pointsman.workspace.stored_folders import names_of_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.service.client.searches_datasets import SearchesDatasets
    from pointsman.service.client.service_calls import Service
    from pointsman.store.store_values import Verification
    from pointsman.values.filters import Filter
    from pointsman.values.retrieval_context import RetrievalContext, TraceDetail
    from pointsman.values.types import Documents
    from pointsman.workspace.dataset.documents import GivenVectors
    from pointsman.workspace.passages import SourceText

_LOCK_SECONDS: Final = 30.0
"""How long a service waits for another process that is writing."""

_EMBED: Final[dict[bool | str, str]] = {True: "now", False: "never", "later": "later"}

_EMBED_POLL: Final = 0.5
_EMBED_PATIENCE: Final = 60.0
"""Seconds between checks of the number of missing vectors, and seconds without a new one that count as an error."""

_VECTORS: Final = 1000
_PAGE: Final = 500
_MOST_OF_A_PAGE: Final = 1000
"""Most documents that a service returns in a page."""


class RemoteDataset(Lifecycle):
    """A dataset of a service, with the methods of `Dataset` that HTTP can carry.

    One that does not exist yet is created by the first write. Until then it is empty; a search raises
    `UnknownNameError`.

    Attributes:
        name: its name.
        description: what it contains, as of the creation of this object.
        indexing_technique: ``"vector"``, ``"keyword"`` or ``"hybrid"``.
        holds_images: always False: pictures do not travel, so only the service's own machine can index them.
    """

    holds_images: Final = False

    def __init__(
        self,
        client: SearchesDatasets,
        service: Service,
        name: str,
        description: str,
        indexing_technique: str,
        *,
        new: Mapping[str, str | None] | None = None,  # the settings with which the first write creates it
    ) -> None:
        self.name, self.description, self.indexing_technique = name, description, indexing_technique
        self._open_client, self._open_service, self._is_closed = client, service, False
        self._exists, self._new = new is None, dict(new or {})

    def __repr__(self) -> str:
        technique = self.indexing_technique
        return f"RemoteDataset({self.name!r}, indexing_technique={technique!r}, client={self._open_client!r})"

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def add(
        self,
        documents: Documents,
        *,
        vectors: GivenVectors | None = None,
        embed: bool | Literal["later"] = True,
        access: Permissions | Mapping[str, Any] | Iterable[str] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> AddResult:
        """Add documents, or update those with known ids; unchanged documents cost nothing.

        Documents are taken from the iterable as they are sent, about a thousand or a megabyte per request, so any
        number needs little memory. After a broken connection, unacknowledged documents are resent; those whose
        acknowledgement was lost then count as unchanged. An id given twice counts once or twice; the last text is kept.
        With a key for writing only, which does not learn what was stored, all documents count as updated.

        Args:
            documents: documents, or mappings with ``id``, ``text`` and optionally ``metadata``; one or several.
            vectors: by the dataset's embedder; see `Dataset.add`. By default the service embeds.
            embed: with ``"later"``, keyword search finds the documents as soon as they are acknowledged, and the
                service computes their vectors afterwards; with False, documents without a vector get none.
            access: who may see these documents; see `Dataset.add`.
            on_progress: called with the number of documents made durable since the last call.

        Raises:
            InputError: a document is invalid; its batch and those after it are not written.
            UnknownNameError: the dataset no longer exists.
            LockedError: another process is writing to the dataset.
            ServiceError: the service cannot be reached, or the key does not allow it. Each of these errors says how
                many documents are stored, if any; so does a note on an error that ``documents`` raises.
        """
        if embed not in _EMBED:
            raise InputError(f"embed is True, False or 'later', not {embed!r:.80}")
        if access is not None:
            documents = with_access(documents, Permissions.of(access))
        progress = UploadProgress(on_progress or (lambda _: None))
        try:
            for window in windows(documents, vectors):
                self.make()
                send(self._service, self.name, window, progress, embed=_EMBED[embed], quiet=self._quiet)
        except Exception as error:
            if progress.count and isinstance(error, PointsmanError):
                error.args = (f"{error}; {progress}", *error.args[1:])
            elif progress.count:
                error.add_note(str(progress))
            raise
        return progress.result

    aadd = async_twin(add)

    def embed(self, limit: int | None = None, *, on_progress: Callable[[int], None] | None = None) -> int:
        """Wait until the service has computed the vectors of documents added with ``embed="later"``.

        Args:
            limit: the most vectors to wait for; all by default.
            on_progress: called with the number of documents embedded since the last call.

        Returns:
            The number of vectors computed meanwhile.

        Raises:
            ServiceError: the service cannot be reached, or has not made one for a minute.
        """
        due, total, progress_time = self.vectors_due, 0, time.monotonic()
        while due and (limit is None or total < limit):
            time.sleep(_EMBED_POLL)
            previous, due = due, self.vectors_due
            if (count := previous - due) > 0:
                total, progress_time = total + count, time.monotonic()
                if on_progress is not None:
                    on_progress(count)
            elif time.monotonic() - progress_time > _EMBED_PATIENCE:
                raise ServiceError(f"the service has made no vector of {self.name!r} for a minute; its log says why")
        return total

    aembed = async_twin(embed)

    @property
    def vectors_due(self) -> int:
        """The number of documents without a vector yet; only keyword search finds those."""
        return self._number_in_status("vectors_due", "number of missing vectors")

    @property
    def truncations(self) -> int | None:
        """See `Dataset.truncations`; None if the service does not say."""
        reply = self._client.status(self.name) if self.exists else {"truncations": 0}
        with self._service.reading("number of long documents"):
            return None if reply.get("truncations") is None else number_of(reply["truncations"])

    def version_problems(self) -> list[Problem]:
        """Return which documents are versions of something that is not in the dataset, with the nearest name."""
        if not self.exists:
            return []
        reply = self._client.status(self.name)
        with self._service.reading("problems of versions"):
            return [Problem(str(item["path"]), str(item["reason"])) for item in reply.get("version_problems") or ()]

    aversion_problems = async_twin(version_problems)

    @property
    def kept_days(self) -> int:
        """For how many days the dataset keeps what is replaced or deleted; 0 if it keeps nothing."""
        return self._number_in_status("kept_days", "number of days")

    def _number_in_status(self, field: str, subject: str) -> int:
        """Return a number of the dataset's status; 0 if the dataset does not exist."""
        if not self.exists:
            return 0
        reply = self._client.status(self.name)
        with self._service.reading(subject):
            return number_of(reply.get(field, 0))

    @contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[None]:  # noqa: ARG002  (as of `Dataset.writing`)
        """Does nothing: the service makes each write wait for the others."""
        yield

    def delete(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        filters: str | Mapping[str, Any] | Filter | None = None,
        under: str | os.PathLike[str] | None = None,
    ) -> int:
        """Delete documents; see `Dataset.delete`. A place is one on this machine.

        Returns:
            How many there were; 0 with a key for writing only, which does not learn it.

        Raises:
            InputError: nothing is given, or something is invalid.
        """
        if ids is None and not filters and under is None:
            raise InputError("give ids, filters or a folder of what to delete; Client.drop deletes a dataset")
        condition = parse_optional(filters)
        matching = {} if condition is None else {"filters": sent_filter(condition)}
        if under is None:
            return self._delete(ids, matching)
        names = names_of_folder(under)
        return next(filter(None, (self._delete(ids, {**matching, "under": name}) for name in names)), 0)

    def _delete(self, ids: str | Iterable[str] | None, matching: Mapping[str, Any]) -> int:
        if ids is None:
            return self._deleted(matching)
        valid = list(filter(can_be_an_id, check_ids(ids)))
        if not valid:
            return 0
        limits, deleted = run(self._service.limits(Threads())), 0
        sizes = [len(as_json(id_)) + 2 for id_ in valid]
        room = limits["max_body_bytes"] - len(as_json(matching)) - 100
        for start, end in batches(limits["max_documents"], (sizes, room)):
            deleted += self._deleted({"ids": valid[start:end], **matching})
        return deleted

    def _deleted(self, body: Mapping[str, Any]) -> int:
        try:
            return self._service.call(endpoints.DELETE, self.name, body=body, seconds=self._quiet)
        except UnknownNameError:
            if self._exists:
                raise
            return 0

    adelete = async_twin(delete)

    def set_metadata(self, metadata: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> AddResult:
        """Change the metadata of documents; their texts and vectors stay, and only a new title is embedded.

        A request changes all of its documents (thousands) or none. A key for writing only sees all count as updated.

        Args:
            metadata: by id, the values to set; None removes a key.
            replace: whether to remove all other metadata of these documents.

        Raises:
            InputError: an id is unknown, or the metadata cannot be stored.
            LockedError: another process is writing to the dataset.
        """
        from pointsman.store.prepared_documents import metadata_of, prepare

        changes = [prepare(change) for change in check_changes(metadata)]  # checked as a dataset checks them
        limits, result = run(self._service.limits(Threads())), AddResult()
        items = [(change.document.id, metadata_of(change.metadata)) for change in changes]
        sizes = [len(as_json({id_: values})) for id_, values in items]
        for start, end in batches(limits["max_documents"], (sizes, limits["max_body_bytes"] - 100)):
            body = {"metadata": dict(items[start:end]), "replace": replace}
            try:
                counts = self._service.call(endpoints.SET_METADATA, self.name, body=body, seconds=self._quiet)
                result += counts or AddResult(updated=end - start)
            except UnknownNameError as error:  # a key that only writes cannot ask beforehand
                if self._exists:
                    raise
                raise InputError(f"there is no document {items[start][0]!r:.80}") from error
        return result

    aset_metadata = async_twin(set_metadata)

    def set_access(self, access: Mapping[str, Permissions | Mapping[str, Any] | Iterable[str] | None]) -> AddResult:
        """Change who may see documents; see `Dataset.set_access`."""
        return self.set_metadata(access_changes(access))

    aset_access = async_twin(set_access)

    def get(self, id: str) -> Document | None:  # noqa: A002  (the field's word)
        """Return the document with this id; None if there is none."""
        if not can_be_an_id(check_id(id)) or not self.exists:
            return None
        try:
            return self._service.call(endpoints.DOCUMENT, self.name, parameters={"id": id})
        except UnknownNameError as error:
            if error.kind != "document":
                raise
            return None

    aget = async_twin(get)

    def get_many(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids in order, None for unknown ids; one request each."""
        return [self.get(id_) for id_ in ids]

    aget_many = async_twin(get_many)

    def get_vectors(self, ids: Sequence[str]) -> list[NDArray[np.float32] | None]:
        """Return the stored unit vectors of these ids in order, None if no vector is stored; a thousand per request.

        Raises:
            UnmetNeedError: the store does not return vectors.
        """
        vectors: list[NDArray[np.float32] | None] = []
        for batch in batched(ids, _VECTORS):
            sent_ids = [id_ for id_ in batch if can_be_an_id(check_id(id_))]
            rows = self._service.call(endpoints.VECTORS, self.name, body={"ids": sent_ids}) if self.exists else []
            by_id = dict(zip(sent_ids, rows, strict=bool(rows)))
            vectors += [by_id.get(id_) for id_ in batch]
        return vectors

    aget_vectors = async_twin(get_vectors)

    def metadata_keys(self) -> list[str]:
        """Return the keys of the documents' metadata, for filters; see `Dataset.metadata_keys`."""
        return self._service.call(endpoints.METADATA_KEYS, self.name) if self.exists else []

    ametadata_keys = async_twin(metadata_keys)

    def text(
        self,
        source: str,
        *,
        hash: str | None = None,  # noqa: A002  (the citation's word)
        start: int = 0,
        end: int | None = None,
    ) -> SourceText:
        """Return the text that citations point into; see `Dataset.text`. A long text takes several requests.

        Raises:
            UnknownNameError: no document of this source, or of this source with this hash, is stored.
            InputError: an offset is out of range.
            ServiceError: the service cannot be reached, or the key does not allow it.
        """
        if not storable(check_id(source, "a source")) or not storable(hash or ""):
            raise UnknownNameError("source", source)
        parameters = {"source": source, "hash": hash, "start": start, "end": end}
        first = self._passage(parameters)
        texts, last = [first.text], first
        while last.text and last.end < (last.length if end is None else min(end, last.length)):
            last = self._passage({**parameters, "hash": first.hash, "start": last.end})
            texts.append(last.text)
        return replace(first, text="".join(texts))

    atext = async_twin(text)

    def _passage(self, parameters: Mapping[str, Any]) -> SourceText:
        """Return as much of a text as one response carries."""
        query = {name: value for name, value in parameters.items() if value is not None}
        return self._service.call(endpoints.TEXT, self.name, parameters=query)

    def count(self, filters: str | Mapping[str, Any] | Filter | None = None) -> int:
        """Return the number of documents, or of those that match."""
        if not self.exists:
            return 0
        return self._service.call(endpoints.COUNT, self.name, parameters=matching(filters))

    acount = async_twin(count)

    def ids(self, *, source: str | None = None, filters: str | Mapping[str, Any] | Filter | None = None) -> list[str]:
        """Return all ids, or those of documents that have this ``source``, that match, or both."""
        ids: list[str] = []
        source_parameter = {} if source is None else {"source": check_id(source, "a source")}
        following: int | None = 0 if storable(source or "") and self.exists else None
        while following is not None:
            parameters = {"after": following, **source_parameter, **matching(filters)}
            page_ids, cursor = self._service.call(endpoints.IDS, self.name, parameters=parameters)
            ids += page_ids
            following = self._service.following(cursor, following)
        return ids

    aids = async_twin(ids)

    def page(
        self, after: int = 0, limit: int = 100, *, filters: str | Mapping[str, Any] | Filter | None = None
    ) -> tuple[list[Document], int | None]:
        """Return up to ``limit`` documents in order of first arrival, and where the next page begins (None at the end).

        Args:
            after: the value returned with the previous page; 0 for the first.
            limit: at least 1.
            filters: which documents to include.

        Raises:
            InputError: a number is out of range.
            ServiceError: for example, so many documents exceed the size limit of a response.
        """
        check_page(after, limit)
        documents: list[Document] = []
        following: int | None = after if self.exists else None
        while following is not None and len(documents) < limit:
            page_size = min(limit - len(documents), _MOST_OF_A_PAGE)
            parameters = {"after": following, "limit": page_size, **matching(filters)}
            page, cursor = self._service.call(endpoints.PAGE, self.name, parameters=parameters)
            documents += page
            following = self._service.following(cursor, following)
        return documents, following

    apage = async_twin(page)

    def __iter__(self) -> Iterator[Document]:
        cursor, limit = 0 if self.exists else None, _PAGE
        while cursor is not None:
            try:
                page = {"after": cursor, "limit": limit, "roots": "true"}  # which only keys that may write are told
                documents, following = self._service.call(endpoints.PAGE, self.name, parameters=page)
            except TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
            else:
                yield from documents
                cursor = self._service.following(following, cursor)

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # an empty dataset is a dataset

    def __contains__(self, id_: object) -> bool:
        return isinstance(id_, str) and self.get(id_) is not None

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def search(
        self, query: str | Query, k: int = 5, *, trace: TraceDetail = "stages", **options: Unpack[SearchOptions]
    ) -> RetrievalContext:
        """Search only this dataset; options and result are those of `Client.search`."""
        return self._client.search(query, k, trace=trace, **of_one_dataset(options), datasets=self.name)

    async def asearch(
        self, query: str | Query, k: int = 5, *, trace: TraceDetail = "stages", **options: Unpack[SearchOptions]
    ) -> RetrievalContext:
        """Async version of `search`."""
        return await self._client.asearch(query, k, trace=trace, **of_one_dataset(options), datasets=self.name)

    def search_vector(
        self,
        vector: Any,
        k: int = 5,
        *,
        filters: str | Mapping[str, Any] | Filter | None = None,
        group_by: str | None = None,
        group_size: int = 1,
    ) -> list[Hit]:
        """Return the documents with the nearest vectors; see `Dataset.search_vector`.

        Args:
            vector: shape ``(dimensions,)``, from the dataset's embedder, of any norm.
            k: maximum number of hits.
            filters: which documents to include.
            group_by: a metadata key: at most ``group_size`` hits have one value of it.
            group_size: how many hits of one group there are.

        Raises:
            InputError: the vector, ``k``, a filter or a group is invalid.
        """
        condition = parse_optional(filters)
        filters_sent = None if condition is None else sent_filter(condition)
        body = {"vector": encode_vector(with_length(vector)), "k": check_top_k(k), "filters": filters_sent}
        if grouping_of(group_by, group_size) is not None:
            body |= {"group_by": group_by, "group_size": group_size}
        return self._service.call(endpoints.NEAREST, self.name, body=body)

    asearch_vector = async_twin(search_vector)

    def search_many(
        self,
        queries: Sequence[str | Query],
        k: int = 5,
        *,
        trace: TraceDetail = "stages",
        **options: Unpack[SearchOptions],
    ) -> list[RetrievalContext]:
        """Answer many questions in batches; return one context each, in order."""
        return self._client.search_many(queries, k, trace=trace, **of_one_dataset(options), datasets=self.name)

    async def asearch_many(
        self,
        queries: Sequence[str | Query],
        k: int = 5,
        *,
        trace: TraceDetail = "stages",
        **options: Unpack[SearchOptions],
    ) -> list[RetrievalContext]:
        """Async version of `search_many`."""
        return await self._client.asearch_many(queries, k, trace=trace, **of_one_dataset(options), datasets=self.name)

    # ── maintenance ──────────────────────────────────────────────────────────────────────────────────────────────

    def describe(self, description: str) -> None:
        """Change the description; for a dataset that does not exist yet, it is kept until creation."""
        if self.exists:
            self._service.call(endpoints.CREATE, body={"name": self.name, "description": description})
        self.description = self._new["description"] = description

    adescribe = async_twin(describe)

    def keep_versions(self, versions: str) -> None:
        """Keep what is replaced or deleted from now on; see `Dataset.keep_versions`."""
        if self.exists:
            self._service.call(endpoints.CREATE, body={"name": self.name, "versions": versions})
        self._new["versions"] = versions

    akeep_versions = async_twin(keep_versions)

    def make(self) -> None:
        """Create the dataset unless it exists."""
        if not self._exists:
            status = self._service.call(endpoints.CREATE, body={"name": self.name, **self._new})
            self.description, self.indexing_technique = status["description"], status["indexing_technique"]
            self._exists = True

    amake = async_twin(make)

    @property
    def exists(self) -> bool:
        """Whether the dataset exists; asks the service until the answer is yes."""
        if not self._exists:
            self._exists = self.name in self._client.names()
        return self._exists

    def verify(self) -> Verification:
        """Compare the three stores."""
        return self._service.call(endpoints.VERIFY, self.name, seconds=self._quiet)

    averify = async_twin(verify)

    def close(self) -> None:
        """End the use of this object, as `Dataset.close` does; the connections belong to the client."""
        self._is_closed = True

    aclose = async_twin(close)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed; every further use is an error."""
        return self._is_closed

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _client(self) -> SearchesDatasets:
        self._check_open()
        return self._open_client

    @property
    def _service(self) -> Service:
        self._check_open()
        return self._open_service

    def _check_open(self) -> None:
        if self._is_closed:
            raise InputError(f"dataset {self.name!r} is closed; open it again with client.dataset")

    @property
    def _quiet(self) -> float:
        """Return the seconds that a write may stay silent: the service itself waits for other writers."""
        return self._service.timeout + _LOCK_SECONDS
