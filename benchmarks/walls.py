"""What workers, access, receipts and views have to hold: each case, and whether it does.

Run: python benchmarks/walls.py [ROW…]. Prints a line for each case; exits with 1 if one is wrong. Times are told apart
in a folder and in PostgreSQL, by 300 pairs each: the share of pairs, ties half, in which the one takes longer is
between .4 and .6 where nobody can tell. What views cost in memory, and twins in PostgreSQL, ``benchmarks/views.py``
measures; a stopped PostgreSQL is tried by ``tests/test_stopped_store.py``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np
from fastapi.testclient import TestClient

import pointsman
from _cases import outcome, print_cases
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.leak_cases import TwinCase, Write
from pointsman.evaluation.leaktest import LeakReport, ShippedEmbedder, TwinPair
from pointsman.retrieval.judge.kept_calibrations import Calibration
from pointsman.service.server import create_app
from pointsman.service.server.access.api_keys import keys_of
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.tools.errors import InputError, PointsmanError
from pointsman.values.views import ACCESS, AccessRule

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from cluster_kit import WorkerProcesses
from postgres_kit import NoServerError, PostgresServer
from test_cluster import change_somewhere, index_with, lie_on, lying_world
from test_outgoing_calls import CALLS, PARTS, SlowServer

Case = Callable[[Path], Iterator[tuple[str, bool]]]
"""Yields what was tried, and whether it was right."""


_LIES: Final = 500
_PAIRS: Final = 300
_HIDDEN: Final = 5000  # passages of the hidden file


def lies(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 2: a worker that lies spoils no other file; what it says that was not asked of it is named."""
    named = believed = 0
    with WorkerProcesses(folder, 1) as workers, lying_world(folder, workers.addresses[0]) as world:
        for seed in range(_LIES):
            world.forget()
            chance = random.Random(seed)
            lie = lie_on("/embed" if seed % 4 == 0 else "/read", partial(change_somewhere, chance=chance))
            is_named = index_with(world, lie) is not None  # after checking what is stored
            named, believed = named + is_named, believed + (not is_named)
        yield f"{named} lies named, {believed} about the words of the file itself believed", world.is_mended()


def names_told_by_time(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 3: a hidden file's name takes as long as one that is nowhere."""
    for place, url in _places(folder):
        with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes", indexing_technique="keyword")
            metadata = {"source": "pay.md", "start": 0, "end": 6}
            notes.add([Document(f"p{n}", "salary", metadata) for n in range(_HIDDEN)], access=["group:money"])
            notes.add([Document("own", "signal", {**metadata, "source": "yard.md"})], access=["group:rail"])
            workspace.switch_access(on=True)
            key = keys_of(workspace.backend).create("reader", principals=["group:rail"], scopes=["read"]).text
            limits = Limits(requests_per_minute=0)
            with TestClient(create_app(workspace, limits=limits), base_url="http://localhost") as client:
                client.headers["Authorization"] = f"Bearer {key}"
                for path in ("ids?source=", "text?source=", "document?id="):
                    names = ("pay.md", "not.md") if "source" in path else ("p1", "p-")
                    yield from _told_apart(f"{place}: GET {path}", client, "GET", f"/api/datasets/notes/{path}", names)


def guesses_told_by_time(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 4: to a key that only writes, a right guess of a text takes as long as a wrong one."""
    for place, url in _places(folder):
        with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes", indexing_technique="keyword")
            ids = [f"{word}{n}" for n in range(_PAIRS + 5) for word in ("salary", "wages!")]  # each is guessed once
            notes.add([Document(id_, "salary") for id_ in ids], access=["group:money"])
            workspace.switch_access(on=True)
            key = keys_of(workspace.backend).create("writer").text
            limits = Limits(requests_per_minute=0)
            with TestClient(create_app(workspace, limits=limits), base_url="http://localhost") as client:
                client.headers["Authorization"] = f"Bearer {key}"
                texts = ("salary", "wages!")
                yield from _told_apart(
                    f"{place}: POST documents", client, "POST", "/api/datasets/notes/documents", texts
                )


def _places(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a folder, and PostgreSQL where there is one."""
    yield "folder", str(folder / "workspace")
    try:
        server = PostgresServer()
    except NoServerError as error:
        print(f"no PostgreSQL: {error}")
        return
    with ExitStack() as stack:
        stack.callback(server.stop)
        yield "PostgreSQL", f"{server.url}?schema=walls"


def _told_apart(
    door: str, client: TestClient, method: str, path: str, values: tuple[str, str]
) -> Iterator[tuple[str, bool]]:
    """Send pairs of requests, in either order, and tell them apart by their times."""
    times: tuple[list[float], list[float]] = [], []
    answers: set[tuple[int, int]] = set()
    for pair in range(_PAIRS + 5):
        for kind in (0, 1) if pair % 2 else (1, 0):
            document = {
                "id": f"{values[kind]}{pair}",
                "text": values[kind],
                "metadata": {ACCESS: {"allow": ["group:money"]}},
            }
            body = {"documents": [document]} if method == "POST" else None
            start = perf_counter()
            answer = client.request(method, path if body else path + values[kind], json=body)
            seconds = perf_counter() - start
            if pair >= 5:  # the first ones open and warm everything
                times[kind].append(seconds)
                answers.add((answer.status_code, len(answer.content)))
    first, second = (np.array(seconds) for seconds in times)
    wins = (first[:, None] > second).mean() + (first[:, None] == second).mean() / 2
    statuses = {status for status, _ in answers}
    yield f"{door}: AUC {wins:.2f}, statuses {sorted(statuses)}", bool(0.4 <= wins <= 0.6) and len(statuses) == 1


def ambiguous_rules(_: Path) -> Iterator[tuple[str, bool]]:
    """Row 7: an access rule that can be read in two ways is refused."""
    for rule in ("2024=final=group:board", "nonsense", "=group:a", "a=", "a=group:b=group:c"):
        try:
            AccessRule.of(rule)
        except InputError as error:
            yield f"{rule}: {error}", True
        else:
            yield rule, False


def dripped_answers(_: Path) -> Iterator[tuple[str, bool]]:
    """Row 9: a server that sends a byte now and then holds no call beyond its limit."""
    for name, call in CALLS.items():
        if name in {"database", "worker", "keys of an issuer", "configuration of an issuer"}:
            continue  # their limits are constants, which ``tests/test_outgoing_calls.py`` makes short
        for part in PARTS:
            with closing(SlowServer(part)) as server:
                start = perf_counter()
                try:
                    call(server.url)
                except PointsmanError:
                    seconds = perf_counter() - start
                    yield f"{name}, {part}: {seconds:.1f} s", seconds < 6
                else:
                    yield f"{name}, {part}: answered", False


def ascii_terminal(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 15: a terminal that lacks letters gets ``?`` for them."""
    with pointsman.open(folder / "w", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("a", "信号 lamp")])
    command = [sys.executable, "-m", "pointsman", "search", "lamp", "-w", str(folder / "w"), "--embedder", "hashing"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=120)
    yield f"search: exit {ended.returncode}", ended.returncode == 0 and b"?? lamp" in ended.stdout


def hidden_times(_: Path) -> Iterator[tuple[str, bool]]:
    """Row 6: what hidden documents say of time is in no trace."""
    for metadata in ({"valid_from": "2020-01-01"}, {"valid_from": "2020-01-01", "version_of": "a"}):
        documents = (
            Document("a", "signal lamp", {ACCESS: {"allow": ["everyone"]}}),
            Document("b", "signal lamp, latest", {ACCESS: {"allow": ["group:law"]}, **metadata}),
        )
        question = {"query": "latest signal lamp", "k": 5, "refuse": False}
        case = TwinCase({"notes": "hybrid"}, (Write("notes", documents),), (), (("search", question),))
        with TwinPair(case, "access", ShippedEmbedder()) as twins:
            twins.compare(report := LeakReport(), {"with": [], "without": []})
        yield f"Python: {', '.join(metadata)}", (report.comparisons, report.differing) == (1, 0)


def kept_calibrations(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 8: receipts outlive the calibrations of their answers."""
    with pointsman.open(folder, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes", versions="30 days").add([Document("a", "signal lamp")])
        answers = []
        for origin in ("the first labels", "the second labels", "the third labels"):
            workspace.keep_calibration("notes", Calibration(origin, documents=1))
            answers.append(workspace.search("signal", refuse=False))
        for answer in answers:
            yield "Python: replay", workspace.replay(str(answer.receipt)).to_dict()["hits"] == answer.to_dict()["hits"]


def alone_or_among_others(_: Path) -> Iterator[tuple[str, bool]]:
    """Row 13: the default embedder gives a text the same vector, alone or among others."""
    embedder = pointsman.default_embedder()
    texts = [f"signal lamp number {number}" for number in range(20)]
    alone = np.concatenate([embedder.embed_queries([text]) for text in texts])
    yield "Python: 20 questions", bool(np.array_equal(embedder.embed_queries(texts), alone))


ROWS: Final[dict[int, Case]] = {
    2: lies,
    3: names_told_by_time,
    4: guesses_told_by_time,
    7: ambiguous_rules,
    9: dripped_answers,
    15: ascii_terminal,
    6: hidden_times,
    8: kept_calibrations,
    13: alone_or_among_others,
}


def main(chosen: list[str]) -> int:
    """Try the rows; return 1 if one is wrong."""
    wrong = 0
    for row in map(int, chosen) if chosen else sorted(ROWS):
        with tempfile.TemporaryDirectory() as folder:
            wrong += print_cases(row, ROWS[row](Path(folder)))
    return outcome(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
