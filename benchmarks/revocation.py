"""Access that is taken away while services answer: ``python benchmarks/revocation.py``.

Four services over one PostgreSQL. Clients search through all of them without a pause, as someone in a group; another
one, through whichever service comes next, takes documents away from the group and gives them back. An answer counts as
wrong if its request began at least a second after a document was taken away, ended before it was given back, and shows
it. How soon documents were gone is measured from the acknowledgement to the beginning of the last request that showed
one.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server.access.api_keys import keys_of
from pointsman.tools.errors import PointsmanError

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from server_kit import Served

SETTLED = 1.0  # seconds after which everybody has to know
DOCUMENTS = 40


@dataclass(frozen=True, slots=True)
class Answer:
    """What one search showed, and when."""

    begun: float
    ended: float
    ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Revocation:
    """The time during which documents were away: from the acknowledgement to the request that gave them back."""

    ids: frozenset[str]
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was counted.

    Attributes:
        answers: of searches.
        revocations: of some documents each.
        checked: answers that began a second or more after a revocation that still held.
        wrong: those among them that show a revoked document.
        slowest: seconds from an acknowledgement to the beginning of the last request that still showed a document.
        failures: requests that failed.
    """

    answers: int
    revocations: int
    checked: int
    wrong: int
    slowest: float
    failures: int


def judge(answers: Sequence[Answer], revocations: Sequence[Revocation], failures: int = 0) -> Outcome:
    """Count the answers that show what was taken away."""
    checked, wrong, slowest = 0, 0, 0.0
    for revocation in revocations:
        for answer in answers:
            if not revocation.begun <= answer.begun <= answer.ended <= revocation.ended:
                continue
            is_settled, shows = answer.begun >= revocation.begun + SETTLED, bool(answer.ids & revocation.ids)
            checked += is_settled
            wrong += is_settled and shows
            if shows:
                slowest = max(slowest, answer.begun - revocation.begun)
    return Outcome(len(answers), len(revocations), checked, wrong, slowest, failures)


def fill(workspace: pointsman.Workspace) -> tuple[str, str]:
    """Add the documents, switch access on, and return the keys of whoever writes and of someone in the group."""
    documents = [Document(f"d{n}", f"the signal of yard {n} and its lamp") for n in range(DOCUMENTS)]
    workspace.dataset("rails").add(documents, access=["group:rail"])
    workspace.switch_access(on=True)
    keys = keys_of(workspace.backend)
    writer = keys.create("writer").text
    return writer, keys.create("reader", scopes=["read"], principals=["group:rail"]).text


def measure(places: Sequence[str], writer: str, reader: str, seconds: float, clients: int = 4) -> Outcome:
    """Search and revoke for some seconds.

    Args:
        places: the addresses of services over one workspace, which `fill` has filled.
        writer: the key of whoever changes access.
        reader: the key of someone in the group.
        seconds: for how long documents are taken away and given back.
        clients: the number of threads that search.
    """
    answers, failures, chance = list[Answer](), list[str](), random.Random(3)
    revocations, done = list[Revocation](), threading.Event()
    with ExitStack() as stack:

        def search(seed: int) -> None:
            own_chance = random.Random(seed)
            with ExitStack() as own:
                doors = [own.enter_context(pointsman.Client(place, reader)) for place in places]
                while not done.is_set():
                    begun = time.perf_counter()
                    try:
                        hits = own_chance.choice(doors).search("signal lamp", DOCUMENTS, refuse=False).hits
                    except PointsmanError as error:
                        failures.append(str(error))
                        continue
                    answers.append(Answer(begun, time.perf_counter(), frozenset(hit.id for hit in hits)))

        threads = [threading.Thread(target=search, args=(seed,)) for seed in range(clients)]
        for thread in threads:
            thread.start()
        try:
            writers = [stack.enter_context(pointsman.Client(place, writer)).dataset("rails") for place in places]
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                ids = [f"d{n}" for n in chance.sample(range(DOCUMENTS), 5)]
                chance.choice(writers).set_access(dict.fromkeys(ids))
                begun = time.perf_counter()
                time.sleep(2 * SETTLED)
                revocations.append(Revocation(frozenset(ids), begun, time.perf_counter()))
                chance.choice(writers).set_access({id_: ["group:rail"] for id_ in ids})
                time.sleep(SETTLED / 2)
        finally:
            done.set()
            for thread in threads:
                thread.join()
    return judge(answers, revocations, len(failures))


def main() -> None:
    from postgres_kit import PostgresServer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    server = PostgresServer()
    try:
        url = f"{server.url}?schema=revocation"
        with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
            keys = fill(workspace)
        with ExitStack() as stack:
            services = [stack.enter_context(Served(url)) for _ in range(options.services)]
            places = [f"http://127.0.0.1:{service.ready().port}" for service in services]
            outcome = measure(places, *keys, options.seconds)
    finally:
        server.stop()
    print(
        f"{options.services} services, {outcome.answers} answers, {outcome.revocations} revocations: of "
        f"{outcome.checked} answers begun {SETTLED:g} s or more after one, {outcome.wrong} show a revoked document; "
        f"the last that did began {outcome.slowest:.3f} s after it; {outcome.failures} requests failed"
    )


if __name__ == "__main__":
    main()
