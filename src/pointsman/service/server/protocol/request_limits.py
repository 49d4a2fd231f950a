"""The limits of one request, one key and the whole service."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from pointsman.tools.errors import InputError

_TIMES: Final = ("head_seconds", "idle_seconds", "body_seconds", "write_seconds", "stream_seconds")
_MINIMUMS: Final = {
    **dict.fromkeys(_TIMES, 0.01),
    "queue": 0,
    "queue_seconds": 0,
    "requests_per_minute": 0,
    "search_seconds": 0.01,
}


_OPTIONAL: Final = frozenset({"max_ingest_bytes", "max_connections", "stream_seconds", "burst"})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request, one key and the whole service.

    Attributes:
        max_body_bytes: of a JSON body.
        max_line_bytes: of a line of a streamed body.
        max_ingest_bytes: of a whole streamed body, which is never held in memory; None means no limit.
        max_header_bytes: of all headers together.
        max_url_bytes: of path and query string together.
        max_query_chars: of a search's query.
        max_request_chars: of all queries and messages of one request together.
        max_k: hits of a search.
        max_batch: queries of one ``search_many``.
        max_documents: documents to add, or ids to delete, in one JSON body.
        max_connections: open at the same time; by default half of the file descriptors that the process may open.
        head_seconds: for a connection to send the whole head of a request.
        idle_seconds: between an answer and the next request on the same connection.
        body_seconds: for a JSON body to arrive, and for each line of a streamed one.
        stream_seconds: for a whole streamed body; None means no limit.
        write_seconds: for a client to take more of an answer.
        concurrency: searches that run at the same time.
        queue: searches that wait for their turn.
        queue_seconds: the longest wait in the queue.
        search_seconds: for the searches of one request together.
        requests_per_minute: of one key, or of one address if there are no keys; 0 means no limit.
        burst: requests at once after a pause; by default a sixth of those per minute.
        max_clients: keys and addresses whose requests are counted; the least recently seen are forgotten.

    Raises:
        InputError: a limit is not a sensible number.
    """

    max_body_bytes: int = 1_000_000
    max_line_bytes: int = 1_000_000
    max_ingest_bytes: int | None = 100_000_000_000
    max_header_bytes: int = 16_384
    max_url_bytes: int = 40_000  # the longest query in Chinese, percent-encoded
    max_query_chars: int = 4_000
    max_request_chars: int = 40_000
    max_k: int = 200
    max_batch: int = 100
    max_documents: int = 1_000
    max_connections: int | None = None
    head_seconds: float = 10.0
    idle_seconds: float = 5.0
    body_seconds: float = 20.0
    stream_seconds: float | None = 86_400.0
    write_seconds: float = 20.0
    concurrency: int = 16
    queue: int = 64
    queue_seconds: float = 2.0
    search_seconds: float = 30.0
    requests_per_minute: int = 1_200
    burst: int | None = None
    max_clients: int = 10_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in _OPTIONAL:
                continue
            minimum = _MINIMUMS.get(field.name, 1)
            types = (int, float) if field.name.endswith("_seconds") else (int,)
            if isinstance(value, bool) or not isinstance(value, types) or not minimum <= value < math.inf:
                expectation = "a number" if float in types else "a whole number"
                raise InputError(f"{field.name} is {expectation} from {minimum} up, not {value!r:.80}")
