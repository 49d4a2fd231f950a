"""What workers, access, receipts and views have to hold: each case, and whether it does.

Run: python benchmarks/walls.py [ROW…]. Prints a line for each case; exits with 1 if one is wrong. Times are told apart
in a folder and in PostgreSQL, by 300 pairs each: the share of pairs, ties half, in which the one takes longer is
between .4 and .6 where nobody can tell. What views cost in memory (row 1), and twins, ``benchmarks/views.py``
measures; a stopped PostgreSQL is tried by ``tests/test_stopped_store.py``.
"""

from __future__ import annotations

import json
import os
import random
import re
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

import anyio
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
from pointsman.values.settings import Settings
from pointsman.values.views import ACCESS, AccessRule

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from cluster_kit import WorkerProcesses
from hostile_files_kit import repeat, word
from postgres_kit import NoServerError, PostgresServer
from test_cluster import change_somewhere, index_with, lie_on, lying_world
from test_outgoing_calls import CALLS, PARTS, SlowServer

Case = Callable[[Path], Iterator[tuple[str, bool]]]
"""Yields what was tried, and whether it was right."""


_ROOT: Final = Path(__file__).parent.parent
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
        calls = _tools(self._workspace, access)
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


def _tools(workspace: pointsman.Workspace, access: Access) -> Calls:
    """Return the tools of MCP, for somebody with this access."""
    return Calls(Library(workspace, None, ("auto",), 30.0), Gate(Limits()), lambda _: access)


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
            dataset = workspace.dataset(f"d{number}", indexing_technique="keyword")
            dataset.add([Document("a", f"signal {number}", {ACCESS: {"allow": ["group:rail"], "deny": []}})])
    program = """
import os, resource, sys, time
import pointsman
from pointsman.embedders.scripted_embedders import HashingEmbedder
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
with pointsman.open(sys.argv[1], embedder=HashingEmbedder()) as workspace:
    for asker in (None, None, ["group:rail"], ["group:rail"]):
        workspace.switch_access(on=asker is not None)
        start = time.monotonic()
        answer = workspace.search("signal 77", 1, refuse=False, timeout=600, principals=asker)  # it may be busy
        notes = *answer.degraded, f"{time.monotonic() - start:.1f} s, {len(os.listdir('/proc/self/fd'))} files open"
        print("access on" if asker else "access off", answer.hits[0].dataset, *notes, sep="; ")
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


def refused_operations(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 5: no answer of 4xx leaves a change, at any operation, to any key where access is on."""
    for place, url in _places(folder):
        with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes")
            notes.add([Document("pay", "salary", {"source": "pay.md"})], access=["group:money"])
            workspace.switch_access(on=True)
            kinds: dict[str, dict[str, Any]] = {
                "reads and writes": {},
                "only writes": {"scopes": ["write"]},
                "asks as somebody": {"principals": ["group:rail"], "scopes": ["read"]},
                "of another dataset": {"datasets": ["other"]},
            }
            app = create_app(workspace, limits=Limits(requests_per_minute=0))
            operations = json.loads((_ROOT / "docs" / "openapi.json").read_text("utf-8"))["paths"]
            refused, wrong = 0, list[str]()
            with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
                for kind, options in kinds.items():
                    key = keys_of(workspace.backend).create(kind, **options).text
                    client.headers["Authorization"] = f"Bearer {key}"
                    for path, methods in operations.items():
                        for method in {"get", "post", "patch", "put", "delete"} & methods.keys():
                            for body in BODIES:
                                before = _contents(workspace)
                                address = re.sub(r"\{[a-z_]+\}", "notes", path)
                                answer = client.request(method.upper(), address, json=body)
                                refused += 400 <= answer.status_code < 500
                                changes = _contents(workspace) != before
                                if answer.status_code >= 500 or (answer.status_code >= 400 and changes):
                                    wrong.append(f"{kind}: {method} {path} {answer.status_code}")
            yield f"{place}: {refused} requests refused; {wrong or 'none left a change'}", not wrong and refused > 100


BODIES: Final[tuple[dict[str, Any] | None, ...]] = (
    None,
    {},
    {"name": "notes", "description": "changed", "metadata": {"a": "b"}},
    {"name": "new", "indexing_technique": "keyword"},
    {"documents": [{"id": "pay", "text": "changed"}, {"id": "new", "text": 5}]},
    {"metadata": {"pay": {"year": 1}, "unknown": {"_access": 5}}},
    {"ids": ["pay"], "filters": "source = pay.md"},
    {"query": "salary", "judgements": {"pay": 1}, "k": 5, "document_id": "pay"},
)


def _contents(workspace: pointsman.Workspace) -> dict[str, Any]:
    """Return what a refused request might have changed."""
    return {
        name: (dataset.description, dataset.store.statistics().sequence, [*dataset.store.documents()])
        for name in workspace.names()
        for dataset in [workspace.dataset(name, create=False)]
    }


def large_bodies(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 11: twelve large writes at once, which took the place of uploads, stay bounded in memory."""
    program = """
import http.client, json, sys, threading, time
sys.path.insert(0, sys.argv[2])
import pointsman
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import Limits, create_app
from pointsman.tools.system.memory import memory_use
from serving import serving
texts = [" ".join(f"w{(n * 7919 + i) % 50000}" for i in range(150_000))[:950_000] for n in range(29)]
lines = [json.dumps({"id": f"i{n}", "text": text}).encode() + b"\\n" for n, text in enumerate(texts)]
def private():
    use = memory_use()
    return ((use["resident"] or 0) - (use["files"] or 0)) / 2**20
def send(port, kind, statuses):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    bodies = [iter(lines)] if kind == "application/x-ndjson" else [b'{"documents":[' + line + b"]}" for line in lines]
    for body in bodies:
        headers = {"Content-Type": kind}
        path, is_stream = "/api/datasets/notes/documents", kind.endswith("ndjson")
        connection.request("POST", path, body, headers, encode_chunked=is_stream)
        answer = connection.getresponse()
        answer.read()
        statuses.add(answer.status)
with pointsman.open(sys.argv[1], embedder=HashingEmbedder()) as workspace:
    workspace.dataset("notes", indexing_technique="keyword").make()
    with serving(create_app(workspace, limits=Limits(requests_per_minute=0))) as address:
        for kind in ("application/x-ndjson", "application/json"):
            first = most = private()
            statuses = set()
            senders = [
                threading.Thread(target=send, args=(int(address.rpartition(":")[2]), kind, statuses)) for _ in range(12)
            ]
            for sender in senders:
                sender.start()
            while any(sender.is_alive() for sender in senders):
                most = max(most, private())
                time.sleep(0.05)
            print(kind, *statuses, round(most - first))
"""
    command = [sys.executable, "-c", program, str(folder / "w"), str(_ROOT / "tests")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    for line in ended.stdout.splitlines() or [ended.stderr[-500:]]:
        *_, status, megabytes = line.split()
        yield f"12 times 29 MB at once, {line} MB more", (status, int(megabytes) < 400) == ("200", True)


def compressed_files(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 12: a highly compressed document is stopped by its words or its time, and named."""
    with pointsman.open(folder / "w", embedder=HashingEmbedder()) as workspace:
        for megabytes in (100, 200):
            path = folder / f"{megabytes}.docx"
            path.write_bytes(word(repeat("<w:p><w:r><w:t>Some words.</w:t></w:r></w:p>"))(megabytes << 20))
            start = sum(os.times()[:4])  # of this process and those that read files
            report = workspace.index(path, "files")
            seconds, stored = sum(os.times()[:4]) - start, sum(len(item.text) for item in workspace.dataset("files"))
            problems = "; ".join(problem.reason for problem in report.problems)
            tried = (
                f"{path.stat().st_size:,} bytes, {megabytes} MB unpacked: {seconds:.0f} s (CPU), {stored:,} characters"
            )
            yield f"{tried}; {problems}", bool(problems) and seconds < 60


def unrecorded_metadata(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 14: no tool of MCP shows what the audit log cannot record."""
    for place, url in _places(folder):
        log = folder / f"{place}.jsonl"
        log.mkdir()  # so that nobody can write to it
        settings = Settings(audit_log=str(log))
        with pointsman.open(url, embedder=HashingEmbedder(), settings=settings) as workspace:
            notes = workspace.dataset("notes")
            notes.add([Document("a", "signal lamp", {"colour": "vermilion", "source": "a.md", "start": 0, "end": 11})])
            access = Access("id", "agent", None, read=True, write=False)
            calls = _tools(workspace, access)
            questions: dict[str, dict[str, Any]] = {
                "list_datasets": {},
                "search": {"query": "signal", "refuse": False},
                "fetch": {"id": "notes/a"},
                "read": {"id": "notes/a"},
                "outline": {"dataset": "notes"},
                "grep": {"pattern": "signal"},
                "explain": {"query": "signal", "id": "notes/a"},
            }
            for tool, arguments in questions.items():
                result = str(anyio.run(partial(calls.call, tool, arguments, {})))
                is_refused = "the audit log cannot be written" in result and "vermilion" not in result
                yield f"{place}: {tool}", is_refused and "lamp" not in result


def hidden_times(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 6: what hidden documents say of time is in no trace."""
    for place, url in _places(folder):
        with pointsman.open(url, embedder=HashingEmbedder()) as workspace:
            yield from _hidden_times(place, workspace.backend.scratch)


def _hidden_times(place: str, scratch: Callable[[], Any]) -> Iterator[tuple[str, bool]]:
    for metadata in ({"valid_from": "2020-01-01"}, {"valid_from": "2020-01-01", "version_of": "a"}):
        documents = (
            Document("a", "signal lamp", {ACCESS: {"allow": ["everyone"]}}),
            Document("b", "signal lamp, latest", {ACCESS: {"allow": ["group:law"]}, **metadata}),
        )
        question = {"query": "latest signal lamp", "k": 5, "refuse": False}
        case = TwinCase({"notes": "hybrid"}, (Write("notes", documents),), (), (("search", question),))
        with TwinPair(case, "access", ShippedEmbedder(), scratch) as twins:
            twins.compare(report := LeakReport(), {"with": [], "without": []})
        yield f"{place}: {', '.join(metadata)}", (report.comparisons, report.differing) == (1, 0)


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
    5: refused_operations,
    6: hidden_times,
    11: large_bodies,
    12: compressed_files,
    14: unrecorded_metadata,
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
