"""Views: what is hidden changes nothing, and what a view costs beside a filter that leaves the same documents.

    python benchmarks/views.py twins [--pairs 700] [--questions 20] [--seed 1] [--wall access|filter] [--at PLACE]
    python benchmarks/views.py speed [--passages 100000] [--groups 1000] [--questions 60] [--at PLACE]
    python benchmarks/views.py memory [--passages 100000] [--sets 5000] [--seed 1] [--at PLACE]

PLACE is a folder (by default a temporary one), the URL of a workspace, or ``postgresql``: then a server is started for
the run.

``twins`` compares answers of pairs of workspaces with and without hidden documents (`pointsman.evaluation.leaktest`):
documents of
three languages, access lists, groups, filters and doors are drawn. ``speed`` asks the same questions through a view and
through a filter, in turn, where 1, 10 and 50 % of the documents remain; the documents are spread over all groups. Times
are those of the clock and, in brackets, of the processor, which other programs change less. The first question of each
asker, which computes what is kept for the view, is timed apart. The last line compares the plain
view, everything as it is now, with a dataset of the same documents that says nothing of access: no view at all.
``memory`` searches as ever other sets of 16 principals, each of whom may see a sixteenth of the documents, and tells
what that adds to the memory of this process (without pages of files) after the first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import pointsman
from pointsman.evaluation.leaktest import LeakReport, leaktest


@contextmanager
def place_at(name: str | None) -> Iterator[str]:
    """Yield the place of a workspace; a server is started if its kind is named."""
    if name is None:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
    elif name == "postgresql":
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
        from postgres_kit import PostgresServer

        server = PostgresServer()
        try:
            yield server.url
        finally:
            server.stop()
    else:
        yield name


def twins(at: str | None, pairs: int, questions: int, seed: int, wall: Any) -> None:
    known = 0

    def tell(report: LeakReport) -> None:
        nonlocal known
        for leak in report.leaks[known:]:
            print(f"  {leak.door} {leak.path}: {leak.with_hidden} / {leak.without_hidden}  {leak.question}", flush=True)
        known = len(report.leaks)
        if report.pairs % 50 == 0:
            print(f"{report.pairs} pairs, {report.comparisons} answers, {report.differing} differ", flush=True)

    with place_at(at) as place, pointsman.open(place) as workspace:
        report = leaktest(
            workspace if at else None, pairs=pairs, questions=questions, seed=seed, wall=wall, on_pair=tell
        )
    print(f"{report.pairs} pairs of workspaces, {report.comparisons} answers compared: {report.differing} differ")
    print("by door:", ", ".join(f"{door} {count}" for door, count in sorted(report.doors.items())))


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Return the milliseconds that a call takes, by the clock and of the processor."""
    start, start_of_processor = perf_counter(), process_time()
    function()
    return (perf_counter() - start) * 1000, (process_time() - start_of_processor) * 1000


def medians(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the median of each of the two."""
    clock, processor = zip(*times, strict=True)
    return median(clock), median(processor)


def speed(at: str | None, passages: int, groups: int, questions: int) -> None:
    from _passages import VectorOfText, vectors
    from _passages import passages as documents

    with place_at(at) as place, pointsman.open(place, embedder=VectorOfText()) as workspace:
        dataset = workspace.dataset("passages")
        items = [
            pointsman.Document(
                document.id,
                document.text,
                {"group": number % groups, "_access": {"allow": [f"group:{number % groups}"]}},
            )
            for number, document in enumerate(documents(passages))
        ]
        dataset.add(items, vectors=vectors(passages))
        texts = [" ".join(items[(7919 * n) % passages].text.split()[:6]) for n in range(questions)]
        print(f"{passages:,} passages, {groups:,} groups, {questions} questions, hybrid; milliseconds, p50")
        print("visible            plain           filter             view   view / filter   first of a view")
        for share in (0.01, 0.1, 0.5):
            asked = int(groups * share)
            principals = [f"group:{number}" for number in range(asked)]
            print(_row(workspace, texts, share, principals, f"group < {asked}"), flush=True)
        bare = [pointsman.Document(item.id, item.text, {"group": item.metadata["group"]}) for item in items]
        workspace.dataset("bare").add(bare, vectors=vectors(passages))
        print(_plain_row(workspace, texts), flush=True)


def _row(
    workspace: pointsman.Workspace, texts: Sequence[str], share: float, principals: list[str], condition: str
) -> str:
    workspace.switch_access(on=True)
    first, _ = timed(lambda: workspace.search("ready", 5, principals=principals, strategy="hybrid", refuse=False))
    workspace.switch_access(on=False)
    workspace.search("ready", 5, filters=condition, strategy="hybrid", refuse=False)
    times: dict[str, list[tuple[float, float]]] = {"plain": [], "filter": [], "view": []}
    for text in texts:
        options: dict[str, Any] = {"strategy": "hybrid", "refuse": False, "spelling": False}
        times["plain"].append(timed(lambda: workspace.search(text, 5, **options)))  # noqa: B023  (called at once)
        times["filter"].append(timed(lambda: workspace.search(text, 5, filters=condition, **options)))  # noqa: B023
        workspace.switch_access(on=True)
        times["view"].append(timed(lambda: workspace.search(text, 5, principals=principals, **options)))  # noqa: B023
        workspace.switch_access(on=False)
    columns = [f"{clock:8.2f} ({processor:5.2f})" for clock, processor in map(medians, times.values())]
    (of_filter, processor_of_filter), (of_view, processor_of_view) = medians(times["filter"]), medians(times["view"])
    ratios = f"{of_view / of_filter:8.2f} ({processor_of_view / processor_of_filter:.2f})"
    return f"{share:7.0%} {' '.join(columns)} {ratios} {first:17.0f}"


def _plain_row(workspace: pointsman.Workspace, texts: Sequence[str]) -> str:
    """Return the cost of the plain view beside no view at all; each question is asked in both orders."""
    times: dict[str, list[tuple[float, float]]] = {"passages": [], "bare": []}
    for name in times:
        workspace.search("ready", 5, datasets=name, strategy="hybrid", refuse=False, spelling=False)
    for number, text in enumerate([*texts, *texts]):
        for name in sorted(times, reverse=bool((number + number // len(texts)) % 2)):

            def search(name: str = name, text: str = text) -> object:
                return workspace.search(text, 5, datasets=name, strategy="hybrid", refuse=False, spelling=False)

            times[name].append(timed(search))
    (plain, processor_of_plain), (bare, processor_of_bare) = medians(times["passages"]), medians(times["bare"])
    ratios = f"{plain / bare:.3f} ({processor_of_plain / processor_of_bare:.3f}; asked for: 1.02 at most)"
    return f"plain view {plain:.2f}, no view at all {bare:.2f}: {ratios}"


def memory(at: str | None, passages: int, sets: int, seed: int) -> None:
    import gc
    import random

    from _passages import VectorOfText, vectors
    from _passages import passages as documents
    from pointsman.tools import byte_cache
    from pointsman.tools.system.memory import memory_use

    def private() -> float:
        gc.collect()
        use = memory_use()
        return ((use["resident"] or 0) - (use["files"] or 0)) / 2**20

    draw = random.Random(seed)
    with place_at(at) as place, pointsman.open(place, embedder=VectorOfText()) as workspace:
        workspace.dataset("passages").add(
            [
                pointsman.Document(document.id, document.text, {"_access": {"allow": [f"group:{number % 16}"]}})
                for number, document in enumerate(documents(passages))
            ],
            vectors=vectors(passages),
        )
        workspace.switch_access(on=True)
        subsets = draw.sample(range(1, 2**16), sets + 1)
        first = 0.0
        print(f"{passages:,} passages; views; MB above the first; MB that the caches count, of at most")
        for count, subset in enumerate(subsets):
            principals = [f"group:{number}" for number in range(16) if subset >> number & 1]
            workspace.search("ready", 5, principals=principals, strategy="hybrid", refuse=False)
            first = first or private()
            if count in {10, 100, 1000, sets}:
                use = {name: size / 2**20 for name, size in byte_cache.use().items()}
                print(f"{count:6} {private() - first:8.1f} {use['cached']:8.1f} {use['cache_limit']:8.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["twins", "speed", "memory"])
    parser.add_argument("--at", metavar="PLACE")
    parser.add_argument("--pairs", type=int, default=700)
    parser.add_argument("--questions", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wall", choices=["access", "filter"], default="access")
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--sets", type=int, default=5000)
    arguments = parser.parse_args()
    if arguments.what == "twins":
        twins(arguments.at, arguments.pairs, arguments.questions or 20, arguments.seed, arguments.wall)
    elif arguments.what == "memory":
        memory(arguments.at, arguments.passages, arguments.sets, arguments.seed)
    else:
        speed(arguments.at, arguments.passages, arguments.groups, arguments.questions or 60)


if __name__ == "__main__":
    main()
