"""What the client costs, and what a trace does: ``python benchmarks/client.py [SET…] [--queries 50]``.

Three things, each over the first set alone and over all of them:

- the bytes of an answer with no trace, with its stages, and with every ranking;
- the milliseconds that the search takes, and that writing such an answer takes the service and reading it the client;
- the same answer, already made and without any network, through httpx and `json` alone, and through `Client`: what the
  client itself adds to a search.

Figures are medians. Collections are read from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the
repository; their vectors are kept in the cache, so that only the first run embeds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from _data import DATA
from _peers import seconds
from pointsman import CachedEmbedder, RetrievalContext, Workspace, default_embedder
from pointsman.evaluation import read_collection
from pointsman.service.client import Client
from pointsman.service.server.protocol.responses import plain
from pointsman.values.retrieval_context import TRACE_DETAILS

SETS = ("en_scifact", "en_wikiqa", "zh_domainrag", "ru_faq_java")
TURNS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--queries", type=int, default=50, help="of all sets together")
    given = parser.parse_args()
    table = Table(
        "datasets", "trace", "KB", "at most", "search, ms", "write, ms", "read, ms", "httpx, ms", "client, ms"
    )
    with tempfile.TemporaryDirectory() as folder, Workspace(folder, embedder=CachedEmbedder(default_embedder())) as ws:
        queries: list[str] = []
        for name in given.sets:
            collection = read_collection(DATA / name)
            ws.dataset(name).add(collection.documents)
            queries += list(collection.queries.values())[: given.queries // len(given.sets)]
        for names in dict.fromkeys((tuple(given.sets[:1]), tuple(given.sets))):
            for query in queries[:5]:
                ws.search(query, datasets=names)
            contexts: list[RetrievalContext] = []
            searched = median(seconds(partial(searching, ws, query, names, contexts)) for query in queries)
            for detail in TRACE_DETAILS:
                table.add_row(str(len(names)), detail, *figures(contexts, detail, searched))
    Console(width=110).print(table)


def searching(workspace: Workspace, query: str, names: Sequence[str], contexts: list[RetrievalContext]) -> None:
    contexts.append(workspace.search(query, datasets=names))


def figures(contexts: Sequence[RetrievalContext], detail: Any, searched: float) -> list[str]:
    """A row."""
    bodies: list[bytes] = []
    write = [seconds(lambda one=one: bodies.append(plain(one.to_dict(trace=detail)))) for one in contexts]  # type: ignore[misc]
    read = [seconds(lambda body=body: RetrievalContext.from_dict(json.loads(body))) for body in bodies]  # type: ignore[misc]
    sizes = [len(body) / 1000 for body in bodies]
    usual = sorted(bodies, key=len)[len(bodies) // 2]
    times = (searched, median(write), median(read), *overhead(usual, detail))
    return [f"{median(sizes):.1f}", f"{max(sizes):.0f}", *(f"{one * 1000:.2f}" for one in times)]


def overhead(body: bytes, detail: Any) -> tuple[float, float]:
    """Seconds of a search that takes no time, through httpx alone and through the client, in turns."""
    headers = {"Content-Type": "application/json"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body, headers=headers))
    with httpx.Client(transport=transport) as raw, Client("http://localhost", transport=transport) as client:
        asked = {"query": "what is asked", "k": 5, "trace": detail}
        ways: tuple[Callable[[], object], ...] = (
            lambda: raw.post("http://localhost/api/search", json=asked).json(),
            lambda: client.search("what is asked", trace=detail),
        )
        times = [[seconds(way) for way in ways] for _ in range(TURNS)]
    return median(one for one, _ in times), median(other for _, other in times)


if __name__ == "__main__":
    main()
