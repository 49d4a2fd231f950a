"""A dataset copied around while the copying process is killed ten times: ``python benchmarks/store_copies.py``.

It goes from a folder to PostgreSQL, to OpenSearch (unless ``--without-opensearch``) and back to a folder. Digests are
over ids, texts, metadata and vectors.
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from pointsman.store.backend_urls import open_backend
from pointsman.workspace.copies.copying import content_of

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from stores import clustered, passages

COPY = "import sys; from pointsman.workspace.copies.copying import copy; \
from pointsman.store.backend_urls import open_backend as at; \
print(copy(at(sys.argv[1]), at(sys.argv[2]), on_progress=lambda n, a, b: print('.', end='', flush=True)))"


def copied(source: str, target: str, kills: int, chance: random.Random) -> tuple[int, float]:
    """Copy in processes that are killed after so many batches, but the last one; how often and how long."""
    begun, done = time.perf_counter(), 0
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", COPY, source, target], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        if done < kills and process.stdout.read(chance.randrange(1, 4)):
            process.kill()
            done += 1
            process.communicate()
            continue
        _, complaint = process.communicate()
        if process.returncode:
            raise SystemExit(f"copying to {target} failed: {complaint.decode()[-500:]}")
        return done, time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--without-opensearch", action="store_true")
    options = parser.parse_args()
    chance = random.Random(7)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        from postgres_kit import PostgresServer

        database = PostgresServer()
        stack.callback(database.stop)
        places = [str(folder / "first"), f"{database.url}?schema=copies"]
        if not options.without_opensearch:
            from opensearch_kit import Cluster

            cluster: Any = Cluster(3)
            stack.callback(cluster.stop)
            places.append(f"{cluster.url}/copies?shards=3")
        places.append(str(folder / "last"))
        documents = list(passages(options.passages))
        matrix = clustered(len(documents), 1)
        with closing(open_backend(places[0])) as backend, closing(backend.create("passages", {})) as store:
            for start in range(0, len(documents), 1000):
                store.write(documents[start : start + 1000], matrix[start : start + 1000], "benchmark")
            first = content_of(store)
        print(f"{first.documents:,} passages, {first.vectors:,} vectors, digest {first.digest}")
        hops = list(itertools.pairwise(places))
        left = options.kills
        for number, (source, target) in enumerate(hops):
            share = left // (len(hops) - number)
            kills, seconds = copied(source, target, share, chance)
            left -= kills
            with closing(open_backend(target)) as backend:
                opened = backend.open("passages")
                if opened is None:
                    raise SystemExit(f"nothing arrived at {target}")
                with closing(opened) as store:
                    content = content_of(store)
            place = target.partition(":")[0] if "://" in target else "folder"
            digest = "equal" if content == first else f"DIFFERENT: {content}"
            print(f"-> {place}: killed {kills} times, {seconds:.0f} s, digest {digest}")


if __name__ == "__main__":
    main()
