"""The demo's data on a real cluster: ``make cluster-demo``.

Three nodes of OpenSearch are started on this machine, the workspace that ``make demo`` has made is copied to them, and
the same questions are asked of the folder and of the cluster. Then one node is killed while searches go on. Needs Java
and Maven.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pointsman
from pointsman.cli.commands.demo_command import QUESTIONS
from pointsman.embedders import load_embedder
from pointsman.store.backend_urls import open_backend
from pointsman.workspace.copies.copying import copy

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from opensearch_kit import Cluster

if TYPE_CHECKING:
    from pointsman.values.retrieval_context import RetrievalContext


def keys(answer: RetrievalContext) -> list[tuple[str | None, str]]:
    return [hit.key for hit in answer]


def compared(folder: pointsman.Workspace, cluster: pointsman.Workspace) -> None:
    """Ask both, and print what they have in common."""
    for question, datasets in QUESTIONS:
        here, there = (workspace.search(question, 5, datasets=datasets) for workspace in (folder, cluster))
        same = len({*keys(here)} & {*keys(there)})
        first = "the same first" if keys(here)[:1] == keys(there)[:1] else "another first"
        print(f"  {question:60.60}  {same} of {len(here.hits)} the same, {first}")


def killed(cluster: Cluster, workspace: pointsman.Workspace, seconds: float) -> None:
    """Search all the while, kill a node, and print how the answers fared."""
    expected = {question: keys(workspace.search(question, 5, datasets=where)) for question, where in QUESTIONS}
    stop, took, problems = threading.Event(), [], []

    def search() -> None:
        while not stop.is_set():
            for question, where in QUESTIONS:
                began = time.perf_counter()
                try:
                    answer = workspace.search(question, 5, datasets=where)
                except pointsman.PointsmanError as error:
                    problems.append(f"{type(error).__name__}: {error}")
                else:
                    if answer.degraded:
                        problems.append(f"marked: {answer.degraded[0]}")
                    elif keys(answer) != expected[question]:
                        problems.append(f"another answer to {question!r}")
                took.append(time.perf_counter() - began)

    searching = threading.Thread(target=search)
    searching.start()
    time.sleep(seconds / 3)
    before = len(took)
    cluster.kill(2)
    print(f"  a node is killed after {before} searches")
    time.sleep(seconds * 2 / 3)
    stop.set()
    searching.join()
    late = sum(one > 2 for one in took)
    print(
        f"  {len(took)} searches, {len(problems)} not as before, {late} slower than 2 s; "
        f"p50 {statistics.median(took) * 1000:.0f} ms, slowest {max(took):.2f} s"
    )
    for problem in dict.fromkeys(problems):
        print(f"    {problem:.160}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", default="demo-workspace", help="the folder that 'make demo' has made")
    parser.add_argument("--embedder", default="default")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long to search")
    options = parser.parse_args()
    embedder = load_embedder(options.embedder)
    if not Path(options.workspace, "datasets").is_dir():
        sys.exit(f"there is no workspace at {options.workspace}; run 'make demo' first")
    print("three nodes of OpenSearch are started")
    cluster = Cluster(3)
    try:
        url = f"{cluster.url}/demo?shards=3&replicas=1"
        began = time.perf_counter()
        with closing(open_backend(options.workspace)) as source, closing(open_backend(url)) as target:
            reports = copy(source, target)
        count = sum(report.content.documents for report in reports)
        print(
            f"{count} passages copied with their vectors and compared in {time.perf_counter() - began:.1f} s to {url}"
        )
        cluster.wait(3, "green")
        with (
            pointsman.open(options.workspace, embedder=embedder) as folder,
            pointsman.open(url, embedder=embedder) as there,
        ):
            compared(folder, there)
            killed(cluster, there, options.seconds)
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
