"""Several services over one PostgreSQL: ``python benchmarks/services.py``.

Clients write, search, drop and remake datasets and revoke keys through whichever service comes next. An answer counts
as stale when a service, a second after another one has acknowledged a change, still answers as before.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pointsman
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server.access.api_keys import keys_of

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from postgres_kit import PostgresServer
from server_kit import Served
from store_kit import corpus

SETTLED = 1.0  # seconds after which everybody has to know


class Clients:
    """Sends requests to services in turns, and counts what comes back."""

    def __init__(self, services: list[Served], key: str) -> None:
        self.services, self.header = services, {"X-API-Key": key}
        self.statuses: Counter[int] = Counter()
        self.took: list[float] = []
        self.stale = 0

    def send(self, service: Served, method: str, path: str, value: Any = None, key: str | None = None) -> Any:
        """One request, counted: the status, and the body's value."""
        began = time.perf_counter()
        status, answer = service.request(method, path, value, {"X-API-Key": key} if key else self.header)
        self.took.append(time.perf_counter() - began)
        self.statuses[status] += 1
        return status, answer

    def ids(self, service: Served, dataset: str, text: str) -> set[str]:
        """The ids that a search through a service finds."""
        body = {"query": text, "datasets": [dataset], "refuse": False, "k": 5}
        status, answer = self.send(service, "POST", "/api/search", body)
        return {hit["id"] for hit in answer["hits"]} if status == 200 else set()


def write(clients: Clients, chance: random.Random, number: int) -> None:
    """One service writes; a second later every one finds it, and not when it is deleted."""
    word = f"zyx{number}q"
    first, path = chance.choice(clients.services), "/api/datasets/rails/documents"
    clients.send(first, "POST", path, {"documents": [{"id": word, "text": f"a note on {word}"}]})
    time.sleep(SETTLED)
    clients.stale += sum(word not in clients.ids(one, "rails", word) for one in clients.services)
    clients.send(chance.choice(clients.services), "DELETE", path, {"ids": [word]})
    time.sleep(SETTLED)
    clients.stale += sum(word in clients.ids(one, "rails", word) for one in clients.services)


def remake(clients: Clients, chance: random.Random, number: int) -> None:
    """One service makes a dataset, another one drops it and makes it anew."""
    name = f"yard{number % 3}"
    for round_ in ("first", "second"):
        one = chance.choice(clients.services)
        clients.send(one, "POST", "/api/datasets", {"name": name})
        clients.send(one, "POST", f"/api/datasets/{name}/documents", {"documents": [{"id": round_, "text": "a lever"}]})
        time.sleep(SETTLED)
        clients.stale += sum(clients.ids(other, name, "lever") != {round_} for other in clients.services)
        clients.send(chance.choice(clients.services), "DELETE", f"/api/datasets/{name}")
        time.sleep(SETTLED)
        clients.stale += sum(
            clients.send(other, "GET", f"/api/datasets/{name}")[0] != 404 for other in clients.services
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=4)
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    chance, server = random.Random(3), PostgresServer()
    try:
        url = f"{server.url}?schema=services"
        with ExitStack() as stack, pointsman.open(url, embedder=HashingEmbedder()) as workspace:
            workspace.dataset("rails").add(corpus(300))
            keys = keys_of(workspace.backend)
            services = [stack.enter_context(Served(url)) for _ in range(options.services)]
            clients = Clients([one.ready() for one in services], keys.create("benchmark").text)
            time.sleep(SETTLED)
            number = 0
            while len(clients.took) < options.requests:
                number += 1
                for _ in range(60):
                    clients.ids(chance.choice(services), "rails", chance.choice(("rail lamp", "the yard", "signal")))
                chance.choice((write, remake))(clients, chance, number)
                key = keys.create(f"k{number}")
                keys.revoke(key.key.id)
                time.sleep(SETTLED)
                clients.stale += sum(clients.send(one, "GET", "/api/me", key=key.text)[0] != 401 for one in services)
                if number % 5 == 0:  # one of them is started anew
                    place = chance.randrange(len(services))
                    services[place].stop()
                    services[place] = clients.services[place] = stack.enter_context(Served(url)).ready()
            wrong = sum(count for status, count in clients.statuses.items() if status >= 500)
            quick = statistics.quantiles(clients.took, n=20)
            print(
                f"{len(clients.took)} requests to {len(services)} services: {clients.stale} stale after {SETTLED:g} s, "
                f"{wrong} of status 5xx; p50 {quick[9] * 1000:.0f} ms, p95 {quick[18] * 1000:.0f} ms; "
                f"{dict(sorted(clients.statuses.items()))}"
            )
    finally:
        server.stop()


if __name__ == "__main__":
    main()
