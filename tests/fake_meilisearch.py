"""A fake of Meilisearch: the shapes of its documented HTTP API, over a list of documents. It ranks by shared words and
by cosines, ignores filters (a server may bring more than asked for, and what comes is compared by the store), and notes
what it was asked. No real server was to be had.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np


class FakeMeilisearch:
    """One index ``shop`` with the primary key ``number``.

    Args:
        documents: objects with ``number`` and whatever else; ``_vectors`` holds a vector by the embedder ``mine``.
        dimensions: of the vectors.
        key: that requests have to carry.
    """

    def __init__(self, documents: Sequence[dict[str, Any]], dimensions: int, key: str) -> None:
        self.documents, self.dimensions, self.key = list(documents), dimensions, key
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """The status and the value that a server would answer with."""
        match method, path:
            case "GET", "/indexes/shop":
                return 200, {"uid": "shop", "createdAt": "2026-01-01T00:00:00Z", "primaryKey": "number"}
            case "GET", "/indexes/shop/stats":
                names = {name for document in self.documents for name in document if name != "_vectors"}
                fields = {name: sum(name in document for document in self.documents) for name in names}
                return 200, {
                    "numberOfDocuments": len(self.documents),
                    "isIndexing": False,
                    "fieldDistribution": fields,
                }
            case "GET", "/indexes/shop/settings":
                mine = {"source": "userProvided", "dimensions": self.dimensions}
                return 200, {
                    "filterableAttributes": ["year", "lang", "tags", "done"],
                    "pagination": {"maxTotalHits": 1000},
                    "embedders": {"mine": mine},
                }
            case "POST", "/multi-search":
                self.asked += body["queries"]
                return 200, {"results": [self.matches(query) for query in body["queries"]]}
            case "POST", "/indexes/shop/documents/fetch":
                return 200, self.fetched(body)
            case _:
                return 404, {"message": "Index not found.", "code": "index_not_found", "type": "invalid_request"}

    def matches(self, query: dict[str, Any]) -> dict[str, Any]:
        """The answer to one search."""
        scores: list[float] = []
        for document in self.documents:
            if "vector" in query:
                cosine = float(np.dot(query["vector"], document["_vectors"]["mine"]["embeddings"][0]))
                scores.append((1 + cosine) / 2)
            else:
                words = query["q"].casefold().split()
                scores.append(sum(word in document["body"].casefold().split() for word in words) / max(len(words), 1))
        order = sorted(range(len(scores)), key=lambda number: -scores[number])
        hits = [
            {**self.shown(self.documents[number], query["attributesToRetrieve"]), "_rankingScore": scores[number]}
            for number in order
            if "vector" in query or scores[number] > 0
        ]
        return {"indexUid": "shop", "hits": hits[: query["limit"]], "limit": query["limit"], "offset": 0}

    def fetched(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to ``documents/fetch``."""
        every = self.documents
        if "ids" in body:
            every = [document for document in every if str(document["number"]) in body["ids"]]
        offset, limit = body.get("offset", 0), body.get("limit", 20)
        part = every[offset : offset + limit]
        if not body.get("retrieveVectors"):
            part = [self.shown(document, body["fields"]) for document in part]
        return {"results": part, "offset": offset, "limit": limit, "total": len(every)}

    def shown(self, document: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
        """The fields asked for."""
        return {name: document[name] for name in fields if name in document}

    @contextmanager
    def serving(self) -> Iterator[FakeMeilisearch]:
        """Answer on a free port of 127.0.0.1."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                if self.headers.get("Authorization") != f"Bearer {fake.key}":
                    status, value = 403, {"code": "invalid_api_key"}
                else:
                    status, value = fake.answer(self.command, self.path, body)
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815  (the base class's word)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        self.url = f"meilisearch://:{self.key}@127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
