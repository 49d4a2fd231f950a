"""Hostile names, ids, keys and filters against stores in servers: ``python benchmarks/store_hostile.py``.

Each round takes texts that are generated from what breaks out of SQL, JSON, query strings and paths, and uses them as
names of datasets and records, as ids, texts, keys and values of metadata, in filters and in questions. Counted is what
changes that nobody asked for (injections), every exception that is none of Pointsman's (foreign), and the password in
any error, its causes or the log. ``--at`` names ``postgresql`` (the default), ``opensearch`` or ``chroma``.
"""

from __future__ import annotations

import argparse
import io
import logging
import random
import sys
import traceback
import uuid
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pointsman import Document
from pointsman.store.backend_urls import open_backend
from pointsman.store.store_values import NEAR, Lists, StoreInfo, StoreQuery
from pointsman.tools.errors import PointsmanError
from pointsman.values.filters import And, Equals, Exists, Filter, In, Not, Or, Range

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SECRET = "s3cr3t-Pa55word"
PIECES = (
    *(
        "'",
        '"',
        "`",
        "\\",
        ";",
        "--",
        "/*",
        "*/",
        "%",
        "%s",
        "%(v)s",
        "{}",
        "{f}",
        "$1",
        "$$",
        "$and",
        "$or",
        ":x",
        "?",
    ),
    *("'; drop schema hostile cascade; --", '"; drop table doc; --', "' or '1'='1", "') or true --", "\\'", "\x00"),
    *(
        '"}},{"match_all":{}}',
        "*",
        "_all",
        "_id",
        "../..",
        "..",
        "/",
        "//",
        "#document",
        "#",
        "&",
        "=",
        "+",
        "\n",
        "\r",
    ),
    *(
        "\ud800",
        "\udfff",
        "\uffff",
        "\u202e",
        "🚃",
        "信号",
        "é",
        "ß",
        "ı",
        " ",
        "\t",
        "a",
        "lamp",
        "signal",
        "0",
        "1e999",
    ),
    *("null", "true", "NaN", "{{7*7}}", "${jndi:ldap://x}", "<script>", "\x1b[31m", "a" * 600),
)


def text_of(chance: random.Random, most: int = 4) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(1, most)))


def value_of(chance: random.Random) -> Any:
    return chance.choice((text_of(chance), chance.choice((0, -1, 2**53 + 1, 1e308, float("inf"), 0.1)), True, False))


def filter_of(chance: random.Random, depth: int = 0) -> Filter:
    key = text_of(chance, 2) if chance.random() < 0.7 else "kind"
    kind = chance.randrange(4 if depth > 2 else 7)
    if kind == 0:
        return Equals(key, value_of(chance))
    if kind == 1:
        return In(key, tuple(value_of(chance) for _ in range(chance.randint(0, 3))))
    if kind == 2:
        return Exists(key)
    if kind == 3:
        return Range(key, gte=text_of(chance)) if chance.random() < 0.5 else Range(key, lt=chance.uniform(-9, 9))
    parts = tuple(filter_of(chance, depth + 1) for _ in range(chance.randint(0, 3)))
    return Not(filter_of(chance, depth + 1)) if kind == 4 else And(parts) if kind == 5 else Or(parts)


def document_of(chance: random.Random) -> Document:
    metadata = {text_of(chance, 2): value_of(chance) for _ in range(2)}
    return Document(text_of(chance), text_of(chance, 8), {**metadata, "kind": text_of(chance, 2)})


class Counts:
    """What has happened."""

    def __init__(self) -> None:
        self.calls = self.refused = 0
        self.injections: list[str] = []
        self.foreign: list[str] = []
        self.secrets: list[str] = []

    def attempt(self, what: str, call: Callable[[], Any]) -> Any:
        """The answer of a call; None where it was refused in our words."""
        self.calls += 1
        try:
            return call()
        except PointsmanError as error:
            self.refused += 1
            shown = "".join(traceback.format_exception(error))
        except Exception as error:  # noqa: BLE001  (counted)
            shown = "".join(traceback.format_exception(error))
            self.foreign.append(f"{what}: {type(error).__name__}: {error}"[:300])
        if SECRET in shown:
            self.secrets.append(f"{what}: {shown[-300:]}")
        return None


def compare(counts: Counts, store: Any, wanted: Filter, answer: Lists) -> None:
    """Whether a filter has let nothing through that does not match."""
    for ranking in answer.rankings.values():
        for key, _ in ranking:
            shown = answer.documents.get(key) or store.fetch([key])[0]
            if shown is not None and not wanted.matches(shown.fields):
                counts.injections.append(f"{wanted!s:.200} let {shown!r:.200} through")


def deleted(counts: Counts, store: Any, there: dict[str, Document], wanted: Filter) -> dict[str, Document]:
    """What is left when all that match are deleted."""
    matches = {id_ for id_, one in there.items() if wanted.matches(one.fields)}
    gone = counts.attempt("delete", lambda: store.delete(filters=wanted))
    if gone is None:
        return there
    if gone != len(matches):
        counts.injections.append(f"{wanted!s:.200} deleted {gone} and not {len(matches)}")
    return {id_: one for id_, one in there.items() if id_ not in matches}


def own(counts: Counts, backend: Any, rounds: int, chance: random.Random) -> None:
    """A store of ours: what is written comes back, filters mean what they mean, and nothing else changes."""
    quiet = backend.create("quiet", {})
    kept = [Document(f"kept {number}", "a quiet lever") for number in range(5)]
    quiet.write(kept)
    with closing(backend.create("loud", {})) as store:
        there: dict[str, Document] = {}
        vector = np.eye(8, dtype=np.float32)
        for number in range(rounds):
            document, wanted = document_of(chance), filter_of(chance)
            row = vector[[number % 8]]
            if counts.attempt("write", partial(store.write, [document], row, "benchmark")) is not None:
                written = counts.attempt("get", partial(store.get, [document.id]))
                if not written or written[0] is None:
                    counts.injections.append(f"written and not there: {document!r:.200}")
                else:
                    there[document.id] = written[0]
            answer = counts.attempt(
                "search", partial(store.search, [StoreQuery(text_of(chance), vector[number % 8], 500, wanted)])
            )
            if answer:
                compare(counts, store, wanted, answer[0])
            name = text_of(chance, 2)
            counts.attempt("open", partial(backend.open, name))
            counts.attempt("record", partial(backend.put_record, "policy", name, text_of(chance)))
            counts.attempt("page", lambda: store.page(text_of(chance, 1), 3))
            counts.attempt("keys", partial(store.keys, [document.id, text_of(chance)]))
            if number % 5 == 0:
                there = deleted(counts, store, there, wanted)
        if store.count() != len(there):
            counts.injections.append(f"{store.count()} documents are there, and not {len(there)}")
    if quiet.get([one.id for one in kept]) != kept or {one.name for one in backend.datasets()} != {"loud", "quiet"}:
        counts.injections.append("another dataset has changed")
    quiet.close()


def attached(counts: Counts, url: str, rounds: int, chance: random.Random) -> None:
    """A collection of Chroma that is only read."""
    import httpx

    from pointsman.store.external.attachment import Attachment

    root = f"{url.replace('chroma://', 'http://')}/api/v2/tenants/default_tenant/databases/default_database/collections"
    vector = np.eye(8, dtype=np.float32)
    with httpx.Client(timeout=60) as client:
        made = client.post(root, json={"name": "hostile", "configuration": {"hnsw": {"space": "cosine"}}}).json()
        body = {
            "ids": [str(number) for number in range(100)],
            "embeddings": [vector[number % 8].tolist() for number in range(100)],
            "documents": ["a lamp"] * 100,
            "metadatas": [{"kind": chance.choice(("a", "lamp", "信号", "1")), "n": number} for number in range(100)],
        }
        client.post(f"{root}/{made['id']}/add", json=body).raise_for_status()
    secret = url.replace("chroma://", f"chroma://:{SECRET}@")

    def about(table: str) -> StoreInfo:
        with closing(Attachment(secret, table, "id", "document", "embedding").open()) as other:
            return other.info

    with closing(Attachment(secret, "hostile", "id", "document", "embedding").open()) as store:
        every = {one.id: one for one in store.documents()}
        for number in range(rounds):
            wanted = filter_of(chance)
            answer = counts.attempt(
                "search", partial(store.search, [StoreQuery(None, vector[number % 8], 200, wanted)])
            )
            if answer:
                right = {id_ for id_, one in every.items() if wanted.matches(one.fields)}
                if {key for key, _ in answer[0].rankings[NEAR]} != right:
                    counts.injections.append(f"{wanted!s:.200} means something else")
            counts.attempt("get", lambda: store.get([text_of(chance), "7"]))
            counts.attempt("page", lambda: store.page(text_of(chance, 1), 3))
            counts.attempt("open", partial(about, text_of(chance)))
        if {one.id: one for one in store.documents()} != every:
            counts.injections.append("the collection has changed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", choices=("postgresql", "opensearch", "chroma"), default="postgresql")
    parser.add_argument("--rounds", type=int, default=10_000)
    options = parser.parse_args()
    chance, counts, log = random.Random(5), Counts(), io.StringIO()
    logging.basicConfig(stream=log, level=logging.DEBUG)
    server: Any
    if options.at == "postgresql":
        from postgres_kit import PostgresServer

        server = PostgresServer()
        url = f"{server.url.replace('pointsman@', f'pointsman:{SECRET}@')}?schema=hostile"
    elif options.at == "opensearch":
        from opensearch_kit import Cluster

        server = Cluster(1)
        url = f"{server.url.replace('://', f'://ann:{SECRET}@')}/h{uuid.uuid4().hex[:8]}?shards=1&replicas=0"
    else:
        from chroma_kit import ChromaServer

        server = ChromaServer()
        url = server.url
    try:
        if options.at == "chroma":
            attached(counts, url, options.rounds, chance)
        else:
            with closing(open_backend(url)) as backend:
                own(counts, backend, options.rounds, chance)
    finally:
        server.stop()
    if SECRET in log.getvalue():
        counts.secrets.append("in the log")
    print(
        f"{options.at}: {options.rounds:,} rounds, {counts.calls:,} calls, {counts.refused:,} refused in our words: "
        f"{len(counts.injections)} injections, {len(counts.foreign)} foreign exceptions, {len(counts.secrets)} secrets"
    )
    for line in (*counts.injections[:5], *counts.foreign[:5], *counts.secrets[:5]):
        print("  ", line.encode("unicode_escape").decode())


if __name__ == "__main__":
    main()
