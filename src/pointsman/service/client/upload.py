"""Sends documents in lines, a window of limited size at a time, until all are acknowledged."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pointsman.service.client.client_connections import LINES, Failure, Reply, Request
from pointsman.service.client.request_encoding import counts_of, number_of, path_of_dataset
from pointsman.service.client.service_calls import problem_document, reply_of
from pointsman.tools.errors import InputError
from pointsman.tools.vectors import encode_vector, with_length
from pointsman.values.types import AddResult, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pointsman.service.client.service_calls import Service
    from pointsman.values.types import Documents
    from pointsman.workspace.dataset.documents import GivenVectors

_WINDOW, _WINDOW_BYTES, _WINDOW_SECONDS = 1024, 2**20, 1.0
"""Most documents, bytes and seconds of one `add` request: small enough to hold in memory and resend, and to pass on
documents of a slow source as they arrive."""


def _of_line(ending: Reply | Failure, lines: Sequence[UploadLine]) -> Reply | Failure:
    """Return the problem with the document's id in place of a line number, which only this module knows."""
    document = None if isinstance(ending, Failure) else problem_document(ending)
    if document is None or isinstance(ending, Failure):
        return ending
    line = document.get("line")
    if not isinstance(line, int) or not 0 < line <= len(lines):
        return ending
    detail = str(document.get("detail")).removeprefix(f"line {line}: ").removeprefix(f"line {line} ")
    problem = {**document, "detail": f"document {lines[line - 1].id!r:.80}: {detail}"}
    return replace(ending, content=json.dumps(problem).encode())


_CUT_OFF: Final = Failure("broken", "the answer ended before all documents were acknowledged", is_broken=True)


def _went_wrong(ending: Reply | Failure) -> bool:
    """Whether a response in lines ended with an error."""
    return isinstance(ending, Failure) or ending.status != 200


@dataclass(frozen=True, slots=True)
class UploadLine:
    """A document, encoded as one line."""

    id: str
    content: bytes


@dataclass(slots=True)
class UploadProgress:
    """Progress of an `add`; ``told`` is called after every step."""

    report: Callable[[int], None]
    count: int = 0
    result: AddResult = field(default_factory=AddResult)

    def take(self, count: int, result: AddResult) -> None:
        """Count newly acknowledged documents and keep the result so far."""
        self.count, self.result = self.count + count, result
        if count:
            self.report(count)

    def __str__(self) -> str:
        result = self.result
        return (
            f"the first {self.count:,} documents are stored ({result.added:,} added, {result.updated:,} updated, "
            f"{result.unchanged:,} unchanged), and may be sent again"
        )


def windows(documents: Documents, vectors: GivenVectors | None = None) -> Iterator[list[UploadLine]]:
    """Yield documents as lines, in batches of limited size.

    Raises:
        InputError: a document is invalid, or there is not one vector, or None, for each.
    """
    window: list[UploadLine] = []
    size, start_time = 0, time.monotonic()
    for document, vector in with_vectors(documents, vectors):
        window.append(_line_of(document, vector))
        size += len(window[-1].content)
        if len(window) >= _WINDOW or size >= _WINDOW_BYTES or time.monotonic() - start_time > _WINDOW_SECONDS:
            yield window
            window, size, start_time = [], 0, time.monotonic()
    if window:
        yield window


def with_vectors(documents: Documents, vectors: GivenVectors | None) -> Iterator[tuple[Document, str | None]]:
    """Yield documents with their vectors as text.

    Raises:
        InputError: there is not one vector, or None, for each.
    """
    number = 0
    for number, document in enumerate(Document.each(documents), 1):
        if vectors is not None and len(vectors) < number:
            raise InputError(f"{len(vectors)} vectors for more than {len(vectors)} documents; give one row for each")
        row = None if vectors is None else vectors[number - 1]
        yield document, None if row is None else encode_vector(with_length(row))
    if vectors is not None and len(vectors) != number:
        raise InputError(f"{len(vectors)} vectors for {number} documents; give one row for each")


def _line_of(document: Document, vector: str | None) -> UploadLine:
    """Check a document as a dataset does, so that an invalid one is refused before anything is sent.

    Raises:
        InputError: it is invalid.
    """
    from pointsman.store.prepared_documents import prepare

    row = prepare(document)
    id_, text = (json.dumps(value, ensure_ascii=False) for value in (row.document.id, row.document.text))
    sent_vector = "" if vector is None else f',"vector":"{vector}"'
    return UploadLine(document.id, f'{{"id":{id_},"text":{text},"metadata":{row.metadata}{sent_vector}}}\n'.encode())


def send(
    service: Service, dataset: str, window: list[UploadLine], progress: UploadProgress, *, embed: str, quiet: float
) -> None:
    """Send documents until all are acknowledged.

    Args:
        service: where they go.
        dataset: the name of their dataset.
        window: the documents.
        progress: is told what has been acknowledged.
        embed: when the service embeds documents without a vector: ``"now"``, ``"later"`` or ``"never"``.
        quiet: seconds that the service may stay silent.

    Raises:
        PointsmanError: the service reports an error, or a retry does not help.
    """
    path = f"/api/datasets/{path_of_dataset(dataset)}/documents" + ("" if embed == "now" else f"?embed={embed}")
    remaining, retries = window, service.retries(time.monotonic() + quiet)
    while True:
        request = Request("POST", path, b"".join(line.content for line in remaining), LINES)
        count, ending = _send_once(service, request, len(remaining), progress, quiet)
        if ending is None:
            return
        ending, remaining = _of_line(ending, remaining), remaining[count:]
        if count:
            retries = service.retries(time.monotonic() + quiet)
        pause = service.pause(ending, request, retries)
        if pause is None:
            raise service.error(ending)
        time.sleep(pause)


def _send_once(
    service: Service, request: Request, count: int, progress: UploadProgress, quiet: float
) -> tuple[int, Reply | Failure | None]:
    """Send ``count`` documents; return how many are acknowledged, and what stopped the others (None if nothing)."""
    count_done, counts_so_far, is_complete = 0, progress.result, False
    ending: Reply | Failure = _CUT_OFF
    with closing(service.link.lines(request, quiet)) as answer:
        for position, chunk in enumerate(answer):
            if not isinstance(chunk, bytes):
                ending = chunk if ending is _CUT_OFF and _went_wrong(chunk) else ending
                continue
            with service.reading("report of documents added"):
                report = json.loads(chunk)
                count_now = number_of(report["done"])
                result = counts_of(report) or AddResult(updated=count_now)
                is_complete, problem = report.get("finished") is True, report.get("problem")
                if not count_done <= count_now <= count or (is_complete and count_now < count) or position > count:
                    raise ValueError(f"{count_now} of {count} documents are reported after {count_done}")
                ending = ending if problem is None else reply_of(problem)
            progress.take(count_now - count_done, counts_so_far + result)
            count_done = count_now
    all_of_them = count_done == count and isinstance(ending, Failure)  # only the end of the response is lost
    return count_done, None if is_complete or all_of_them else ending
