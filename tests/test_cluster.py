"""Indexing by workers elsewhere: the same passages and vectors as here, whatever dies or lies on the way (B5)."""

from __future__ import annotations

import json
import pickle
import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from cluster_kit import KEY, WorkerProcesses
from pointsman import Dataset, Workspace
from pointsman.cli.core_commands import app
from pointsman.embedders import HashingEmbedder
from pointsman.tools.errors import InputError, ModelError, ServiceError, UnmetNeedError
from pointsman.tools.version import __version__
from pointsman.values.views import ACCESS
from pointsman.workspace.indexing.folder_sync import index_paths
from pointsman.workspace.indexing.indexing_cluster import KEY_VARIABLE, IndexingCluster

if TYPE_CHECKING:
    from pointsman.workspace.indexing.index_report import IndexProgress

DIMENSIONS = HashingEmbedder().dimensions
TEXTS = [f"lamp number {n} shines over track {n % 7}. " * 40 for n in range(60)]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcesses]:
    with WorkerProcesses(tmp_path_factory.getbasetemp()) as processes:
        yield processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    for number, text in enumerate(TEXTS):
        (files / f"{number:02}.txt").write_text(text)
    return files


def connect(workers: WorkerProcesses, patience: float = 60.0) -> IndexingCluster:
    return IndexingCluster(workers.addresses, KEY, patience=patience)


def opened(path: Path) -> Workspace:
    return Workspace(path, embedder=HashingEmbedder())


def content(workspace: Workspace) -> dict[str, tuple[str, bytes | None]]:
    dataset = workspace.dataset("notes", create=False)
    ids = dataset.ids()
    vectors = dataset.get_vectors(ids)
    texts = [document.text for document in dataset.get_many(ids) if document is not None]
    return {
        id_: (text, None if vector is None else vector.tobytes())
        for id_, text, vector in zip(ids, texts, vectors, strict=True)
    }


def test_a_cluster_stores_what_one_machine_stores(tmp_path: Path, folder: Path, workers: WorkerProcesses) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 no more")
    (folder / "rows.jsonl").write_text('{"id": "a", "text": "lamp", "size": 7}\n{"id": "\\ud800", "text": "\\ud800 x"}')
    with opened(tmp_path / "here") as local_workspace, opened(tmp_path / "there") as workspace:
        expected = index_paths(local_workspace.dataset("notes"), [folder])
        reports: list[IndexProgress] = []
        with connect(workers) as cluster:
            report = index_paths(workspace.dataset("notes"), [folder], cluster=cluster, on_progress=reports.append)
        assert report == expected
        assert report.problems
        assert content(workspace) == content(local_workspace)
        assert (reports[-1].share_read, reports[-1].vectors_due) == (1, 0)
        assert reports[-1].passages == reports[-1].vectors == report.passages.added


def test_again_nothing_is_stored_or_embedded_and_what_vanished_is_deleted(
    tmp_path: Path, folder: Path, workers: WorkerProcesses
) -> None:
    with opened(tmp_path / "there") as workspace, connect(workers) as cluster:
        first = index_paths(workspace.dataset("notes"), [folder], cluster=cluster)
        (folder / "00.txt").unlink()
        second = index_paths(workspace.dataset("notes"), [folder], cluster=cluster)
        assert second.deleted > 0
        assert second.passages.added == second.passages.updated == second.vectors_due == 0
        assert second.passages.unchanged == first.passages.added - second.deleted


def test_a_worker_that_is_killed_loses_nothing_and_doubles_nothing(tmp_path: Path, folder: Path) -> None:
    with opened(tmp_path / "here") as local_workspace, opened(tmp_path / "there") as workspace:
        index_paths(local_workspace.dataset("notes"), [folder])
        with WorkerProcesses(folder) as mortal_workers:

            def kill(progress: IndexProgress) -> None:
                if progress.vectors:
                    mortal_workers.processes[0].kill()

            with connect(mortal_workers, patience=0.1) as cluster:
                report = index_paths(workspace.dataset("notes"), [folder], cluster=cluster, on_progress=kill)
            assert mortal_workers.processes[0].wait() < 0
        assert report.vectors_due == 0
        assert content(workspace) == content(local_workspace)


def test_without_workers_what_is_stored_is_kept_and_indexing_again_continues(
    tmp_path: Path, folder: Path, workers: WorkerProcesses
) -> None:
    with opened(tmp_path / "here") as local_workspace, opened(tmp_path / "there") as workspace:
        index_paths(local_workspace.dataset("notes"), [folder])
        with WorkerProcesses(folder, 1) as mortal_workers, connect(mortal_workers, patience=0.1) as cluster:

            def end(progress: IndexProgress) -> None:
                if progress.vectors_due:
                    mortal_workers.processes[0].kill()

            with pytest.raises(ServiceError, match=r"no worker answers any more .*indexing again continues"):
                index_paths(workspace.dataset("notes"), [folder], cluster=cluster, on_progress=end)
            with pytest.raises(ServiceError, match="no worker answers any more"):
                index_paths(workspace.dataset("notes"), [folder], cluster=cluster)
        stored = workspace.dataset("notes", create=False)
        assert len(stored) == len(content(local_workspace))
        assert stored.vectors_due > 0
        with connect(workers) as cluster:
            report = index_paths(stored, [folder], cluster=cluster)
        assert report.passages.added == 0
        assert content(workspace) == content(local_workspace)


def test_workers_with_another_embedder_are_refused(tmp_path: Path, folder: Path) -> None:
    with opened(tmp_path / "there") as workspace, WorkerProcesses(folder, 1, "colours") as workers:
        with connect(workers) as cluster:
            with pytest.raises(InputError, match="give the same --embedder to both"):
                index_paths(workspace.dataset("notes"), [folder], cluster=cluster)
            with pytest.raises(ServiceError, match="give the same --embedder to both"):
                list(cluster.embed([["lamp"]], "hashing", DIMENSIONS))
            words_only = workspace.dataset("words", indexing_technique="keyword")
            assert index_paths(words_only, [folder], cluster=cluster).passages.added
        assert not len(workspace.dataset("notes"))


def test_what_a_cluster_cannot_index_is_refused(tmp_path: Path, folder: Path, workers: WorkerProcesses) -> None:
    with opened(tmp_path / "there") as workspace, connect(workers) as cluster:
        dataset = workspace.dataset("near", indexing_technique="vector")
        with pytest.raises(UnmetNeedError, match="searched by vectors alone"):
            index_paths(dataset, [folder], cluster=cluster)


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        ([""], "must begin with http"),
        (["localhost"], "must begin with http"),
        (["tcp://localhost:1"], "must begin with http"),
        (["http://localhost:1?secure=1"], "unknown options secure"),
        (["http://10.255.0.1:1"], "without encryption"),
        ([], "at least one worker"),
    ],
)
def test_an_address_that_is_none_is_named(addresses: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        IndexingCluster(addresses, KEY)


def test_a_worker_that_does_not_answer_is_named() -> None:
    with pytest.raises(ServiceError, match=r"no worker answers at http://127\.0\.0\.1:9 "):
        IndexingCluster(["http://127.0.0.1:9"], KEY)


def test_a_key_is_needed_on_both_sides(workers: WorkerProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(InputError, match="workers need a key of at least 16"):
        IndexingCluster(workers.addresses)
    with pytest.raises(ServiceError, match="the key is another one"):
        IndexingCluster(workers.addresses, "another key of the same length")
    assert isinstance(CliRunner().invoke(app, ["worker", "."]).exception, InputError)
    for headers in ({}, {"Authorization": KEY}, {"Authorization": f"Bearer {KEY} "[:-2]}):
        assert httpx.post(f"{workers.addresses[0]}/hello", headers=headers, json={}).status_code == 401


@pytest.mark.parametrize("path", ["/etc/passwd", "{folder}/../../../../etc/passwd", "{folder}/link"])
def test_a_worker_reads_its_folders_alone(folder: Path, path: str) -> None:
    (folder / "link").symlink_to("/etc/passwd")
    options = {"max_tokens": 256, "overlap": 32, "limits": None}
    with WorkerProcesses(folder, 1) as workers:
        request = {"files": [[path.format(folder=folder), "x", False]], "options": options}
        answer = httpx.post(f"{workers.addresses[0]}/read", headers={"Authorization": f"Bearer {KEY}"}, json=request)
        assert list(answer.json()) == ["refusal"]
        assert "start the worker with its folder" in answer.text
        assert "root:" not in answer.text


@pytest.mark.parametrize(
    ("path", "request_body", "reason"),
    [
        ("/hello/x", {}, "there is no POST /hello/x"),
        ("/read", {}, "not a request of this version"),
        ("/read", [], "not a request of this version"),
        ("/read", {"files": [[1, 2, 3]], "options": {"limits": None}}, "not a request of this version"),
        ("/read", {"files": [], "options": {"limits": {"seconds": 0}}}, "seconds is a positive whole number"),
        ("/embed", {"texts": 7, "embedder": "hashing"}, "not a request of this version"),
    ],
)
def test_a_worker_says_what_is_wrong_with_a_request(
    workers: WorkerProcesses, path: str, request_body: Any, reason: str
) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    answer = httpx.post(f"{workers.addresses[0]}{path}", headers=headers, json=request_body)
    assert reason in answer.json()["refusal"]


def test_the_command_line_indexes_on_a_cluster(
    tmp_path: Path, folder: Path, workers: WorkerProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    place = str(tmp_path / "there")
    addresses = [argument for address in workers.addresses for argument in ("--cluster", address)]
    arguments = ["index", str(folder), "-d", "notes", "-w", place, "--embedder", "hashing", *addresses]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    with opened(tmp_path / "there") as workspace:
        assert all(vector is not None for _, vector in content(workspace).values())
        assert np.isfinite(workspace.search("lamp number 3", refuse=False).hits[0].score)
    watching = CliRunner().invoke(app, [*arguments, "--watch"])
    assert isinstance(watching.exception, InputError)


# ── workers that lie ─────────────────────────────────────────────────────────────────────────────────────────────────

Lie = Callable[[str, bytes], bytes]
"""Given what was asked and the honest answer, what is answered."""


@contextmanager
def lying_worker(honest_address: str) -> Iterator[tuple[str, list[Lie]]]:
    """Yield the address of a worker that changes the answers of an honest one, and the list whose last member does."""
    lies: list[Lie] = [lambda _, answer: answer]
    honest_answers: dict[tuple[str, bytes], bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {"Authorization": self.headers["Authorization"], "Content-Type": "application/json"}
            if (self.path, body) not in honest_answers:
                answer = httpx.post(f"{honest_address}{self.path}", headers=headers, content=body, timeout=60)
                honest_answers[self.path, body] = answer.content
            content = lies[-1](self.path, honest_answers[self.path, body])
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", lies
        finally:
            server.shutdown()
            thread.join()


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (self._command,)


def lie_on(path: str, change: Callable[[Any], Any]) -> Lie:
    """Return the lie that changes the answers on one path."""
    return lambda asked, answer: json.dumps(change(json.loads(answer))).encode() if asked == path else answer


def in_first_part(**fields: Any) -> Lie:
    return lie_on("/read", lambda answer: {"files": [[answer["files"][0][0] | fields], *answer["files"][1:]]})


def in_first_passage(number: int, value: Any) -> Lie:
    def change(answer: Any) -> Any:
        passage = answer["files"][0][0]["documents"][0]
        passage[number] = {**passage[2], **value} if number == 2 and isinstance(value, dict) else value
        return answer

    return lie_on("/read", change)


def floats(*values: float) -> str:
    return b64encode(np.array(values, "<f4").tobytes()).decode()


LIES: dict[str, Lie] = {
    "no object": lie_on("/read", lambda answer: []),
    "nothing": lie_on("/read", lambda answer: {}),
    "a file too many": lie_on("/read", lambda answer: {"files": [*answer["files"], answer["files"][0]]}),
    "a file too few": lie_on("/read", lambda answer: {"files": answer["files"][:-1]}),
    "files in another order": lie_on("/read", lambda answer: {"files": answer["files"][::-1]}),
    "no parts": lie_on("/read", lambda answer: {"files": [7, *answer["files"][1:]]}),
    "no part": lie_on("/read", lambda answer: {"files": [[7], *answer["files"][1:]]}),
    "no documents": in_first_part(documents=None),
    "a text for documents": in_first_part(documents="abc"),
    "another file's problem": in_first_part(problems=[["other.txt", "x"]]),
    "a problem of everything": in_first_part(problems=[[".", "x"]]),
    "stopped by a number": in_first_part(stopped=1),
    "another file's passage": in_first_passage(0, "other.txt#0"),
    "the file whose name begins so": in_first_passage(0, "files/00.txt.old#0"),
    "an id that is no text": in_first_passage(0, 7),
    "an id that is a surrogate": in_first_passage(0, "files/00.txt#\ud800"),
    "an endless id": in_first_passage(0, "files/00.txt#" + "x" * 2000),
    "a text that is none": in_first_passage(1, 7),
    "metadata that is none": in_first_passage(2, [1]),
    "another source": in_first_passage(2, {"source": "/etc/passwd"}),
    "another file's section": in_first_passage(2, {"parent": "other.txt#0"}),
    "access": in_first_passage(2, {ACCESS: {"allow": ["everyone"]}}),
    "an end that is none": in_first_passage(2, {"end": "x"}),
    "a number that is none": in_first_passage(2, {"size": float("nan")}),
    "deep metadata": in_first_passage(2, {"deep": json.loads("[" * 90 + "]" * 90)}),
    "a passage of four": lie_on("/read", lambda answer: answer["files"][0][0]["documents"][0].append(1) or answer),
    "five dimensions": lie_on("/embed", lambda answer: {"vectors": [floats(*range(5)) for _ in answer["vectors"]]}),
    "a vector too few": lie_on("/embed", lambda answer: {"vectors": answer["vectors"][:-1]}),
    "a vector too many": lie_on("/embed", lambda answer: {"vectors": [*answer["vectors"], answer["vectors"][0]]}),
    "no vector": lie_on("/embed", lambda answer: {"vectors": [None, *answer["vectors"][1:]]}),
    "no base64": lie_on("/embed", lambda answer: {"vectors": ["!", *answer["vectors"][1:]]}),
    "half a number": lie_on("/embed", lambda answer: {"vectors": ["AAA=", *answer["vectors"][1:]]}),
    "infinity": lie_on("/embed", lambda answer: {"vectors": [floats(*[np.inf] * DIMENSIONS), *answer["vectors"][1:]]}),
    "not JSON": lambda path, answer: answer if path == "/hello" else answer[:-1],
    "endless depth": lambda path, answer: answer if path == "/hello" else b"[" * 1_000_000,
    "a number of 10,000 digits": lambda path, answer: answer if path == "/hello" else b"9" * 10_000,
}


class World(NamedTuple):
    """A dataset that holds another file, files to index into it, and a worker that lies."""

    dataset: Dataset
    folder: Path
    address: str
    lies: list[Lie]

    def forget(self) -> None:
        """Delete what is not of the other file, so that there is something to read and to embed."""
        self.dataset.delete([id_ for id_ in self.dataset.ids() if not id_.startswith("other.txt")])

    def is_mended(self) -> bool:
        """Whether indexing without lies makes the dataset whole."""
        with IndexingCluster([self.address], KEY) as cluster:
            due = index_paths(self.dataset, [self.folder], cluster=cluster).vectors_due
        return due == 0 and self.dataset.verify().problems == ()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, workers: WorkerProcesses) -> Iterator[World]:
    with lying_world(tmp_path_factory.mktemp("lies"), workers.addresses[0]) as world:
        yield world


@contextmanager
def lying_world(root: Path, honest_address: str) -> Iterator[World]:
    for name, text in (("files/00.txt", TEXTS[0]), ("files/01.txt", TEXTS[1]), ("else/other.txt", TEXTS[2])):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    with opened(root / "workspace") as workspace, lying_worker(honest_address) as (address, lies):
        dataset = workspace.dataset("notes")
        index_paths(dataset, [root / "else"])
        yield World(dataset, root / "files", address, lies)


def index_with(world: World, lie: Lie) -> ServiceError | None:
    """Index with a lie; return the error, after checking what is stored."""
    dataset, folder, address, lies = world
    strange = {id_ for id_ in dataset.ids() if id_.startswith("other.txt")}
    assert strange
    before = [(document, document.metadata) for document in dataset if document.id in strange]
    error = None
    lies.append(lie)
    try:
        with IndexingCluster([address], KEY, patience=0.1) as cluster:
            index_paths(dataset, [folder], cluster=cluster)
    except ServiceError as raised:
        error = raised
        assert address in str(error), "the worker is named"
    finally:
        lies.append(lambda _, answer: answer)
    assert [(document, document.metadata) for document in dataset if document.id in strange] == before
    for document in dataset:
        assert document.id in strange or document.id.partition("#")[0] == document.metadata["source"]
        assert document.metadata["source"] in {"files/00.txt", "files/01.txt", "other.txt"}
        assert ACCESS not in document.metadata
    for vector in dataset.get_vectors(dataset.ids()):
        assert vector is None or (vector.shape == (DIMENSIONS,) and np.isfinite(vector).all())
    return error


@pytest.mark.parametrize("lie", LIES)
def test_it_is_named_and_nothing_of_it_is_stored(world: World, lie: str) -> None:
    world.forget()
    assert index_with(world, LIES[lie]) is not None
    assert world.is_mended()


def test_pickled_frames_run_nothing(world: World, tmp_path: Path) -> None:
    frames = pickle.dumps(Command(f"touch {tmp_path / 'run'}"))
    texts = b64encode(frames).decode()
    for pickled in (
        frames,
        json.dumps(texts).encode(),
        json.dumps({"files": [texts], "vectors": [texts]}).encode(),
    ):
        world.forget()
        assert index_with(world, lambda path, answer, pickled=pickled: answer if path == "/hello" else pickled)  # type: ignore[misc]
    world.lies.append(lambda *_: frames)
    with pytest.raises(ServiceError, match="no worker answers at"):
        IndexingCluster([world.address], KEY)
    assert not (tmp_path / "run").exists()


def test_random_lies(world: World) -> None:
    """Each is a value somewhere in an answer that is replaced, deleted, doubled or moved (500 in ``walls.py``)."""
    named = believed = 0
    for seed in range(40):
        world.forget()
        path = "/embed" if seed % 4 == 0 else "/read"
        error = index_with(world, lie_on(path, partial(change_somewhere, chance=random.Random(seed))))
        named, believed = named + (error is not None), believed + (error is None)
    assert world.is_mended()
    assert named >= 20, f"{believed} were believed: another text, title or order of passages of its own file"


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        ({"version": "0.0.1", "tasks": 1, "embedder": "hashing"}, InputError, "has version 0.0.1"),
        ({"version": __version__, "tasks": 0, "embedder": "hashing"}, ServiceError, "0 tasks at once"),
        ({"version": __version__, "tasks": 10**9, "embedder": "hashing"}, ServiceError, "1000000000 tasks"),
        ({"version": __version__, "tasks": True, "embedder": "hashing"}, ServiceError, "bool in place of tasks"),
        ({"version": __version__, "tasks": 1}, ServiceError, "NoneType in place of embedder"),
        ({"refusal": "out\nof\x1b[31m order"}, ServiceError, "out of .31m order"),
        ([], ServiceError, "list in place of an object"),
    ],
)
def test_what_it_says_of_itself_is_checked(
    workers: WorkerProcesses, answer: Any, error: type[Exception], reason: str
) -> None:
    with lying_worker(workers.addresses[0]) as (address, lies):
        lies.append(lambda *_: json.dumps(answer).encode())
        with pytest.raises(error, match=reason):
            IndexingCluster([address], KEY)


def test_an_embedder_that_fails_is_named(world: World) -> None:
    dataset, folder, address, lies = world
    world.forget()
    lies.append(lie_on("/embed", lambda answer: {"failure": "no memory"}))
    with IndexingCluster([address], KEY) as cluster, pytest.raises(ModelError, match=f"{address}: no memory"):
        index_paths(dataset, [folder], cluster=cluster)


def test_the_ids_of_records_are_not_those_of_other_files(world: World, tmp_path: Path) -> None:
    """A single file's records have ids of their own, any of which a worker could name."""
    dataset, _, address, lies = world
    records = tmp_path / "records.jsonl"
    records.write_text('{"id": "lamp-1", "text": "a lamp"}\n')
    strange = next(id_ for id_ in dataset.ids() if id_.startswith("other.txt"))
    lies.append(in_first_passage(0, strange))
    with IndexingCluster([address], KEY) as cluster:
        with pytest.raises(ServiceError, match=f"{strange!r} is of another file"):
            index_paths(dataset, [records], cluster=cluster)
        lies.append(lambda _, answer: answer)
        assert index_paths(dataset, [records], cluster=cluster).passages.added == 1


def test_verify_names_vectors_of_other_dimensions_than_the_embedder_has(tmp_path: Path) -> None:
    with opened(tmp_path / "here") as workspace:
        dataset = workspace.dataset("notes")
        dataset.add({"id": "a", "text": "lamp"}, embed="later")
        assert dataset.verify().problems == ()
        with pytest.raises(ModelError, match=r"vectors of shape \(1, 5\) in place of \(1, 64\)"):
            dataset.embed(embedding=lambda batches: (np.ones((len(batch), 5), np.float32) for batch in batches))
        assert dataset.verify().in_vector_index == 0
        documents = [document for document in dataset.get_many(["a"]) if document is not None]
        dataset.store.write(documents, np.ones((1, 5), np.float32), dataset.embedder.name, stored_only=True)
        (problem,) = dataset.verify().problems
        assert problem.startswith(
            f"its vectors have 5 dimensions, and those of its embedder 'hashing-{DIMENSIONS}' have {DIMENSIONS};"
        )


VALUES: list[Any] = [
    None, True, 0, -1, 7, 2**70, 1.5, "", "x", "../../etc/passwd", "other.txt", "other.txt#0", "files/00.txt#0",
    "\ud800", [], [[]], {},
    {"source": "other.txt"}, {ACCESS: {"allow": ["everyone"]}}, [["other.txt#0", "x", {}]], "AAAA",
    "refusal", floats(1.0), floats(*[np.nan] * DIMENSIONS), floats(*[1e38] * DIMENSIONS),
    {"__Pickled__": 1}, {"__Serialized__": 1},
]  # fmt: skip
KEYS = [
    "source",
    "parent",
    "root",
    "sha256",
    "start",
    "end",
    "title",
    "language",
    "valid_from",
    "version_of",
    ACCESS,
    "refusal",
]


def change_somewhere(answer: Any, chance: random.Random) -> Any:
    """Return an answer with a random change somewhere."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            places.append((value, key))
            walk(value[key])

    walk(answer)
    holder, key = chance.choice(places)
    other_holder, other_key = chance.choice(places)
    kind = chance.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif kind == 2 and isinstance(holder, dict):
        holder[chance.choice(KEYS)] = chance.choice(VALUES)
    elif kind == 3:
        holder[key] = json.loads(json.dumps(other_holder[other_key]))
    else:
        holder[key] = chance.choice(VALUES)
    return answer
