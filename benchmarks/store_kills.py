"""Servers killed while they are written to and searched: ``python benchmarks/store_kills.py``.

With ``--at postgresql`` the server is killed 50 times under two writers and two readers; with ``--at opensearch`` nodes
of a cluster of three, in turns, 20 times under three writers and three readers; after ``--minutes`` no further kill is
begun, and the line says how many there were. A document counts as lost when it was
acknowledged and is not there as it was written, as doubled when it is listed twice. An answer is complete when it has
every document that it has to have, and marked when it says that something is missing.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from pointsman import Document
from pointsman.store.backend_urls import open_backend
from pointsman.store.store_values import WORDS, StoreQuery
from pointsman.tools.errors import StoreError, StoreUnavailableError

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

DIMENSIONS, SURE = 16, 40
LATE = 2.0  # seconds within which a search has to be answered


class Traffic:
    """Writers and readers of one store, each in a thread."""

    def __init__(self, store: Any, writers: int, readers: int) -> None:
        self.store, self.stop = store, threading.Event()
        self.acknowledged: dict[str, Document] = {}
        self.searches: Counter[str] = Counter()
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self.sure = [Document(f"sure {number}", "a lever that stays") for number in range(SURE)]
        self._write(self.sure)
        work = [*(lambda n=n: self.writing(n) for n in range(writers)), *(self.reading for _ in range(readers))]
        self.threads = [threading.Thread(target=one) for one in work]

    def _write(self, documents: list[Document]) -> None:
        chance = np.random.default_rng(len(self.acknowledged))
        rows = chance.standard_normal((len(documents), DIMENSIONS)).astype(np.float32)
        self.store.write(documents, rows / np.linalg.norm(rows, axis=1, keepdims=True), "benchmark")
        with self._lock:
            self.acknowledged.update((document.id, document) for document in documents)

    def writing(self, writer: int) -> None:
        """Batches of five; one that fails is written again, as its caller would."""
        number = 0
        while not self.stop.is_set():
            batch = [Document(f"{writer} {number + place}", f"a lamp of {number}") for place in range(5)]
            try:
                self._write(batch)
                number += 5
            except StoreUnavailableError:
                self.searches["writes refused while away"] += 1
            except Exception as error:  # noqa: BLE001  (counted: nothing else may come)
                self.failures.append(f"{type(error).__name__}: {error}")

    def reading(self) -> None:
        """Searches for what is there all the time."""
        while not self.stop.is_set():
            begun = time.perf_counter()
            try:
                answer = self.store.search([StoreQuery("lever", depth=SURE)])[0]
                if len(answer.rankings[WORDS]) == SURE:
                    kind = "complete"
                else:
                    kind = "marked" if answer.degraded else "short and not marked"
            except StoreUnavailableError:
                kind = "refused"
            except Exception as error:  # noqa: BLE001  (see writing)
                self.failures.append(f"{type(error).__name__}: {error}")
                continue
            with self._lock:
                self.searches[kind] += 1
                self.searches[f"within {LATE:g} s"] += time.perf_counter() - begun <= LATE
            time.sleep(0.02)


def killing(server: Any, kills: int, at: str, minutes: float) -> int:
    """Kill a server, or a node in turns, and start it again; how often that was done."""
    chance, until = random.Random(3), time.monotonic() + 60 * minutes
    for number in range(kills):
        if time.monotonic() > until:
            return number
        if at == "postgresql":
            time.sleep(chance.uniform(0.1, 1.0))
            server.kill()
            server.start()
        else:
            time.sleep(chance.uniform(0.5, 2.0))
            node = number % len(server.ports)
            server.kill(node)
            time.sleep(4)
            server.start(node)
            server.wait(len(server.ports), "green")
    return kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", choices=("postgresql", "opensearch"), default="postgresql")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args()
    if options.at == "postgresql":
        from postgres_kit import PostgresServer

        server: Any = PostgresServer()
        url, kills, writers, readers = f"{server.url}?schema=kills", options.kills or 50, 2, 2
    else:
        from opensearch_kit import Cluster

        server = Cluster(3)
        url, kills, writers, readers = f"{server.url}/kills?shards=3", options.kills or 20, 3, 3
    try:
        with open_backend(url) as backend, closing(backend.create("kills", {})) as store:
            traffic = Traffic(store, writers, readers)
            for thread in traffic.threads:
                thread.start()
            begun = time.perf_counter()
            try:
                kills = killing(server, kills, options.at, options.minutes)
            finally:
                seconds = time.perf_counter() - begun
                traffic.stop.set()
                for thread in traffic.threads:
                    thread.join()
            wanted = traffic.acknowledged
            ids = list(store.ids())
            there: list[Document | None] = []
            keys = list(wanted)
            for start in range(0, len(keys), 500):
                there += store.get(keys[start : start + 500])
            lost = sum(one != other for one, other in zip(there, wanted.values(), strict=True))
            searches = sum(traffic.searches[kind] for kind in ("complete", "marked", "refused", "short and not marked"))
            print(
                f"{options.at}: {kills} kills in {seconds:.0f} s, {len(wanted):,} documents acknowledged to {writers} "
                f"writers: {lost} lost, {len(ids) - len(set(ids))} doubled; {searches:,} searches: "
                f"{dict(sorted(traffic.searches.items()))}; "
                f"{traffic.searches[f'within {LATE:g} s'] / max(searches, 1):.4f} within {LATE:g} s; "
                f"foreign errors: {traffic.failures[:3] or 0}"
            )
    except StoreError as error:
        raise SystemExit(f"the run ended: {error}") from error
    finally:
        server.stop()


if __name__ == "__main__":
    main()
