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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient

import pointsman
from _cases import outcome, print_cases
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.leak_cases import TwinCase, Write
from pointsman.evaluation.leaktest import LeakReport, ShippedEmbedder, TwinPair
from pointsman.integrations.mcp.tool_calls import Calls
from pointsman.integrations.mcp.visible_datasets import Library
from pointsman.retrieval.judge.kept_calibrations import Calibration
from pointsman.service.server import create_app
from pointsman.service.server.access.api_keys import keys_of
from pointsman.service.server.access.rate_limits import Gate
from pointsman.service.server.access.request_access import Access
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
_WARM: Final = 5  # pairs that open and warm everything
_DATASETS: Final = 1700
_HIDDEN: Final = 5000  # passages of the hidden file

Ask = Callable[[int, bool], str]
"""Asks for what is hidden, or for what is nowhere, in a pair of this number; returns what was answered."""


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
    """Row 3: what is hidden takes as long as what is nowhere, at every reading door that is told a name or an id."""
    for place, url in _places(folder):
        with pointsman.open(url, embedder=HashingEmbedder()) as workspace, closing(Doors(workspace)) as doors:
            notes = workspace.dataset("notes")
            metadata = {"source": "pay.md", "start": 0, "end": 6}
            notes.add([Document(f"p{n}", "salary", metadata) for n in range(_HIDDEN)], access=["group:money"])
            notes.add([Document("own", "signal", {**metadata, "source": "yard.md"})], access=["group:rail"])
            workspace.switch_access(on=True)
            for door, ask in doors.reading().items():
                yield from _told_apart(f"{place}: {door}", ask)


def guesses_told_by_time(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 4: to a key that only writes, a right guess of a text takes as long as a wrong one, and so do ids."""
    for place, url in _places(folder):
        with pointsman.open(url) as workspace, closing(Doors(workspace)) as doors:
            notes = workspace.dataset("notes")
            hidden = [
                Document(f"{word}{n}", f"salary {n}", {ACCESS: {"allow": ["group:money"], "deny": []}})
                for n in range(_PAIRS + _WARM)
                for word in ("right", "wrong", "changed", "deleted", "overwritten")
            ]
            notes.add(hidden)
            yield f"{place}: a right guess is what is stored", notes.add(hidden[:1]).unchanged == 1
            workspace.switch_access(on=True)
            sequence = notes.store.statistics().sequence
            for door, write in doors.writing().items():
                yield from _told_apart(f"{place}: {door}", write, at_once=1 if door.startswith("POST") else 4)
            written = notes.store.statistics().sequence - sequence
            yield f"{place}: {written} writes of {4 * (_PAIRS + _WARM)} at least", written >= 4 * (_PAIRS + _WARM)


class Doors:
    """The doors of a workspace where access is on, each as a function of whether what it asks for is hidden.

    Args:
        workspace: with a dataset ``notes``.
    """

    def __init__(self, workspace: pointsman.Workspace) -> None:
        self._workspace = workspace
        self._stack = ExitStack()

    def close(self) -> None:
        """Close what the doors opened."""
        self._stack.close()

    def _client(self, **options: Any) -> TestClient:
        key = keys_of(self._workspace.backend).create("asker", **options).text
        app = create_app(self._workspace, limits=Limits(requests_per_minute=0))
        client = self._stack.enter_context(TestClient(app, base_url="http://localhost"))
        client.headers["Authorization"] = f"Bearer {key}"
        return client

    def reading(self) -> dict[str, Ask]:
        """Return the doors that are told a source or an id."""
        client = self._client(principals=["group:rail"], scopes=["read"])
        access = replace(Access.open(), principals=frozenset({"group:rail"}))
        calls = Calls(Library(self._workspace, None, ("auto",), 30.0), Gate(Limits()), lambda _: access)
        portal = self._stack.enter_context(start_blocking_portal())
        sources, ids, root = ("not.md", "pay.md"), ("p-", "p1"), "/api/datasets/notes"

        def tool(name: str, arguments: Callable[[bool], dict[str, Any]]) -> Ask:
            return lambda _, hidden: type(portal.call(calls.call, name, arguments(hidden), {})).__name__

        def get(path: str, names: tuple[str, str]) -> Ask:
            return lambda _, hidden: _status(client.get(root + path + names[hidden]))

        def post(path: str, body: Callable[[bool], dict[str, Any]]) -> Ask:
            return lambda _, hidden: _status(client.post(path, json=body(hidden)))

        return {
            "GET ids?source=": get("/ids?source=", sources),
            "GET text?source=": get("/text?source=", sources),
            "GET document?id=": get("/document?id=", ids),
            "GET count?filters=": get("/count?filters=source = ", sources),
            "GET documents?filters=": get("/documents?filters=source = ", sources),
            "POST vectors": post(f"{root}/vectors", lambda hidden: {"ids": [ids[hidden]]}),
            "POST search, filtered": post(
                "/api/search", lambda hidden: {"query": "signal", "filters": f"source = {sources[hidden]}"}
            ),
            "POST explain": post("/api/explain", lambda hidden: {"query": "signal", "document_id": ids[hidden]}),
            "MCP fetch": tool("fetch", lambda hidden: {"id": ids[hidden]}),
            "MCP read": tool("read", lambda hidden: {"id": ids[hidden], "before": 2, "after": 2}),
            "MCP outline": tool("outline", lambda hidden: {"dataset": "notes", "source": sources[hidden]}),
        }

    def writing(self) -> dict[str, Ask]:
        """Return the doors of a key that only writes; each pair has ids of its own."""
        client, path = self._client(), "/api/datasets/notes/documents"

        def add(name: Callable[[int, bool], str], text: Callable[[int, bool], str]) -> Ask:
            def write(pair: int, hidden: bool) -> str:
                metadata = {ACCESS: {"allow": ["group:money"], "deny": []}}
                document = {"id": name(pair, hidden), "text": text(pair, hidden), "metadata": metadata}
                return _status(client.post(path, json={"documents": [document]}))

            return write

        return {
            "POST documents, a right guess of a text": add(
                lambda pair, hidden: f"{'right' if hidden else 'wrong'}{pair}",
                lambda pair, hidden: f"{'salary' if hidden else 'wages!'} {pair}",
            ),
            "POST documents, an id that is there": add(
                lambda pair, hidden: f"{'overwritten' if hidden else 'nothing-here'}{pair}",
                lambda pair, hidden: f"{'first' if hidden else 'other'} text of {pair}",
            ),
            "PATCH documents, an id that is there": lambda pair, hidden: _status(
                client.patch(path, json={"metadata": {f"{'changed' if hidden else 'unknown'}{pair}": {"year": pair}}})
            ),
            "DELETE documents, an id that is there": lambda pair, hidden: _status(
                client.request("DELETE", path, json={"ids": [f"{'deleted' if hidden else 'unknown'}{pair}"]})
            ),
        }


def _status(response: Any) -> str:
    """Return the status of an answer; whether the rest is the same is asked by twins, see ``views.py``."""
    return str(response.status_code)


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


def _told_apart(door: str, ask: Ask, at_once: int = 1) -> Iterator[tuple[str, bool]]:
    """Ask pairs of requests, in either order, and tell them apart by their times, and by what they answer.

    Args:
        door: its name.
        ask: asks it.
        at_once: pairs; where requests wait for most of their time, several.
    """

    def times_of(pair: int) -> dict[bool, tuple[float, str]]:
        times = {}
        for hidden in (False, True) if pair % 2 else (True, False):
            start = perf_counter()
            answer = ask(pair, hidden)
            times[hidden] = perf_counter() - start, answer
        return times

    with ThreadPoolExecutor(at_once) as threads:
        pairs = list(threads.map(times_of, range(_PAIRS + _WARM)))[_WARM:]
    absent, hidden = (np.array([times[kind][0] for times in pairs]) for kind in (False, True))
    wins = (absent[:, None] > hidden).mean() + (absent[:, None] == hidden).mean() / 2
    answers = [{times[kind][1] for times in pairs} for kind in (False, True)]
    medians = " / ".join(f"{np.median(seconds) * 1000:.1f}" for seconds in (hidden, absent))
    tried = f"{door}: AUC {wins:.2f}, {medians} ms, answers {sorted(answers[0] | answers[1])}"
    yield tried, bool(0.4 <= wins <= 0.6) and answers[0] == answers[1]


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


def many_datasets(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 15: more datasets than may be open are searched in turn, none is left out, and it is said."""
    with pointsman.open(folder / "many", embedder=HashingEmbedder()) as workspace:
        for number in range(_DATASETS):
            workspace.dataset(f"d{number}", indexing_technique="keyword").add([Document("a", f"signal {number}")])
    program = """
import os, resource, sys, time
import pointsman
from pointsman.embedders.scripted_embedders import HashingEmbedder
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
with pointsman.open(sys.argv[1], embedder=HashingEmbedder()) as workspace:
    for _ in range(2):
        start = time.monotonic()
        answer = workspace.search("signal 77", 1, refuse=False)
        print(answer.hits[0].dataset, *answer.degraded, f"{time.monotonic() - start:.1f} s", sep="; ")
        late = [span for span in answer.trace.spans if span.stage == "retrieve" and span.error]
        sys.exit("left out") if late or answer.hits[0].dataset != "d77" or len(answer.degraded) != 1 else None
"""
    command = [sys.executable, "-c", program, str(folder / "many")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    for line in ended.stdout.splitlines() or [ended.stderr[-300:]]:
        yield f"{_DATASETS} datasets, 1024 open files: {line}", ended.returncode == 0


def small_rows(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 15."""
    yield from ascii_terminal(folder)
    yield from many_datasets(folder)


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
    15: small_rows,
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
