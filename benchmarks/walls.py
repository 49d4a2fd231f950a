"""What workers, access, receipts and views have to hold: each case, and whether it does.

Run: python benchmarks/walls.py [ROW…]. Prints a line for each case; exits with 1 if one is wrong. Times are told apart
in a folder and in PostgreSQL, by 300 pairs each: the share of pairs, ties half, in which the one takes longer is
between .4 and .6 where nobody can tell. What views cost in memory (row 1) is measured by ``benchmarks/views.py``, and
what is hidden changes no answer by it and by ``benchmarks/twins.py``.
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
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import anyio
import numpy as np
from fastapi.testclient import TestClient

import pointsman
from _cases import outcome, print_cases
from _timed_doors import PAIRS, WARM, Doors, made_up_word, told_apart, tools_for
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
from test_stopped_store import READS

Case = Callable[[Path], Iterator[tuple[str, bool]]]
"""Yields what was tried, and whether it was right."""


_ROOT: Final = Path(__file__).parent.parent
_LIES: Final = 500
_DATASETS: Final = 1700
_HIDDEN: Final = 5000  # passages of the hidden file
_SEARCH_SECONDS: Final = 10.0
_LATE: Final = 5.0  # seconds by which a busy machine may be late
_TOOL_QUESTIONS: Final[dict[str, dict[str, Any]]] = {
    "list_datasets": {},
    "search": {"query": "signal", "refuse": False},
    "fetch": {"id": "notes/a"},
    "read": {"id": "notes/a"},
    "outline": {"dataset": "notes"},
    "grep": {"pattern": "signal"},
    "explain": {"query": "signal", "id": "notes/a"},
}


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
            words = [made_up_word(pair, hidden=True) for pair in range(PAIRS + WARM)]
            texts = [
                f"salary {' '.join(words[start::5])}" for start in range(5)
            ]  # each word in a fifth of the passages
            hidden = [Document(f"p{n}", texts[n % 5], metadata) for n in range(_HIDDEN)]
            notes.add(hidden, access=["group:money"])
            notes.add([Document("own", "signal", {**metadata, "source": "yard.md"})], access=["group:rail"])
            workspace.dataset("payroll").add([Document("p", "salary", metadata)], access=["group:money"])
            workspace.switch_access(on=True)
            for door, ask in doors.reading().items():
                yield from told_apart(f"{place}: {door}", ask)


def guesses_told_by_time(folder: Path) -> Iterator[tuple[str, bool]]:
    """Row 4: to a key that only writes, a right guess of a text takes as long as a wrong one, and so do ids."""
    for place, url in _places(folder):
        with pointsman.open(url) as workspace, closing(Doors(workspace)) as doors:
            notes = workspace.dataset("notes")
            metadata = {ACCESS: {"allow": ["group:money"], "deny": []}}
            hidden = [
                Document(f"{word}{n}", f"salary {n}", metadata | ({"year": n} if word == "filtered" else {}))
                for n in range(PAIRS + WARM)
                for word in ("right", "wrong", "changed", "deleted", "filtered", "overwritten", "later")
            ]
            notes.add(hidden)
            yield f"{place}: a right guess is what is stored", notes.add(hidden[:1]).unchanged == 1
            workspace.switch_access(on=True)
            sequence = notes.store.statistics().sequence
            for door, write in doors.writing().items():
                yield from told_apart(f"{place}: {door}", write, at_once=1 if door.startswith("POST") else 4)
            written = notes.store.statistics().sequence - sequence
            yield f"{place}: {written} writes of {4 * (PAIRS + WARM)} at least", written >= 4 * (PAIRS + WARM)


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
        if name in {"cluster", "database", "worker", "keys of an issuer", "configuration of an issuer"}:
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


def stopped_store(_: Path) -> Iterator[tuple[str, bool]]:
    """Row 10: while PostgreSQL is stopped, every request that reads ends within its own limit, and says why."""
    try:
        server = PostgresServer()
    except NoServerError as error:
        print(f"no PostgreSQL: {error}")
        return
    limits = Limits(requests_per_minute=0, search_seconds=_SEARCH_SECONDS)

    def ask(read: tuple[str, str, Any]) -> tuple[str, str, float]:
        method, path, body = read
        start = perf_counter()
        answer = client.request(method, path, json=body)
        reason = answer.json().get("detail", "no reason") if answer.status_code == 503 else ""
        return f"{method} {path}", f"{answer.status_code} {reason:.90}", perf_counter() - start

    def call(tool: str) -> tuple[str, str, float]:
        start = perf_counter()
        result = str(anyio.run(partial(calls.call, tool, _TOOL_QUESTIONS[tool], {})))
        reason = "'isError': True" in result and re.search(
            "the store does not answer|no answer within [0-9]+ s", result
        )
        return f"MCP {tool}", f"503 {reason[0]}" if reason else result, perf_counter() - start

    with ExitStack() as stack:
        stack.callback(server.stop)
        url = f"{server.url}?schema=walls"
        workspace = stack.enter_context(pointsman.open(url, embedder=HashingEmbedder()))
        workspace.dataset("notes").add([{"id": "a", "text": "the signal lamp", "metadata": {"source": "a.md"}}])
        client = stack.enter_context(TestClient(create_app(workspace, limits=limits), base_url="http://localhost"))
        calls = Calls(Library(workspace, None, ("auto",), _SEARCH_SECONDS), Gate(limits), lambda _: Access.open())
        before = ask(READS[0])[1]
        yield f"before: {before}", before.startswith("200")
        answers = list[tuple[str, str, float]]()
        with server.pause(), ThreadPoolExecutor(10) as threads:
            reads = [READS[0]] * 20 + READS[1:]
            for start in range(0, len(reads), 10):  # more at once are refused, 429, as the queue is full
                answers += threads.map(ask, reads[start : start + 10])
            answers += threads.map(call, _TOOL_QUESTIONS)
        for name, outcome, seconds in sorted(set(answers)):
            is_bounded = seconds < _SEARCH_SECONDS + limits.queue_seconds + 3 + _LATE
            yield f"{name}: {outcome}, {seconds:.1f} s", is_bounded and outcome.startswith(("200", "503"))


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
            calls = tools_for(workspace, access)
            for tool, arguments in _TOOL_QUESTIONS.items():
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
    10: stopped_store,
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
