"""Words before vectors: what was read is found at once, vectors follow, nothing that happens between is lost (K2)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest

import pointsman
from command_kit import run_command
from doors_kit import World, world
from pointsman import Dataset, Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.client import Client
from pointsman.service.server import create_app
from pointsman.store.store_values import Capability
from pointsman.tools.errors import InputError
from pointsman.workspace.indexing.folder_sync import index_paths
from pointsman.workspace.indexing.index_report import IndexingInterrupted, IndexProgress
from serving import serving

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postgres_kit import PostgresServer

SENTENCE = "The switch number {n} guides the train onto track {n}; the lamp of yard {n} is green."
NOTICE = "{due} of {all} documents have no vector yet; until then only words find those"


class ObservedEmbedder(HashingEmbedder):
    """Counts the documents that it embeds, and lets a test do something before each batch."""

    identified = False  # so that no cache answers for it

    def __init__(self, on_embed: Callable[[int], object] = lambda _: None) -> None:
        super().__init__()
        self.count, self.on_embed = 0, on_embed

    def embed_documents(
        self, texts: Sequence[str], *, on_progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        self.on_embed(self.count)
        self.count += len(texts)
        return super().embed_documents(texts, on_progress=on_progress)


def interrupt_after(count: int) -> Callable[[int], None]:
    def interrupt(done_count: int) -> None:
        if done_count >= count:
            raise KeyboardInterrupt

    return interrupt


def documents(count: int, first: int = 0) -> list[Document]:
    return [Document(f"d{n}", SENTENCE.format(n=n)) for n in range(first, first + count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in range(10):
        (folder / f"{name}.txt").write_text("\n\n".join(SENTENCE.format(n=name * 100 + n) for n in range(90)))
    return folder


@pytest.fixture(params=["folder", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a workspace can be."""
    if request.param == "folder":
        return str(tmp_path / "workspace")
    server: PostgresServer = request.getfixturevalue("postgres")
    return f"{server.url}?schema=words_{uuid.uuid4().hex}"


def as_they_should_be(dataset: Dataset) -> None:
    """Every document has the vector of its very text, and the indexes agree."""
    documents = list(dataset)
    expected = HashingEmbedder().embed_documents([document.searchable for document in documents])
    vectors = dataset.get_vectors([document.id for document in documents])
    assert not [document.id for document, vector in zip(documents, vectors, strict=True) if vector is None]
    assert np.allclose(np.stack([vector for vector in vectors if vector is not None]), expected, atol=1e-5)
    wait_until(lambda: dataset.vectors_due == 0)  # servers are asked once a second
    assert dataset.search("switch").degraded == ()


# ── two phases ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_words_find_everything_before_the_first_vector_and_indexing_again_goes_on(folder: Path, location: str) -> None:
    embedder = ObservedEmbedder(interrupt_after(0))
    with pointsman.open(location, embedder=embedder) as workspace:
        with pytest.raises(IndexingInterrupted, match=r"[1-9][0-9]+ without a vector yet") as error_info:
            workspace.index(folder, "files")
        dataset = workspace.dataset("files")
        count = len(dataset)
        assert (
            error_info.value.report.vectors_due
            == dataset.vectors_due
            == count
            == error_info.value.report.passages.added
        )
        for number in (7, 950 - 75, 412):
            answer = workspace.search(f"switch number {number}", datasets="files")
            assert SENTENCE.format(n=number) in answer.hits[0].text
            assert answer.degraded == (f"files: {NOTICE.format(due=count, all=count)}",)
        embedder.on_embed = interrupt_after(embedder.count + 64)
        with pytest.raises(IndexingInterrupted):
            workspace.index(folder, "files")
        assert dataset.vectors_due == count - 64
        answer = workspace.search("switch number 412", datasets="files", strategy="bm25")
        assert SENTENCE.format(n=412) in answer.hits[0].text
        embedder.on_embed, count_before = lambda _: None, embedder.count
        report = workspace.index(folder, "files")
        assert (report.passages.unchanged, report.vectors_due) == (count, 0)
        assert embedder.count - count_before < 2 * (
            count - 64
        )  # documents, and some sentences that stand for questions
        as_they_should_be(dataset)


def test_progress_counts_passages_and_then_vectors(folder: Path, tmp_path: Path) -> None:
    dataset = Dataset("files", path=tmp_path / "files-dataset", embedder=HashingEmbedder())
    observations: list[tuple[IndexProgress, int]] = []
    report = index_paths(
        dataset, [folder], on_progress=lambda progress: observations.append((progress, dataset.vectors_due))
    )
    count = report.passages.added
    reading, embedding = (
        [progress for progress, _ in observations if progress.path],
        [progress for progress, _ in observations if not progress.path],
    )
    assert {progress.vectors for progress in reading} == {0}
    assert embedding[0].passages == count
    counts = [progress.vectors for progress in embedding if progress.vectors or progress.vectors_due]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1], embedding[-1].vectors_due) == (0, count, 0)
    assert all(
        progress.vectors_due == due for progress, due in observations if progress.vectors
    )  # what is told is what is stored


def test_what_changes_between_reading_and_embedding_gets_the_vector_of_what_it_is(location: str) -> None:
    """Documents are changed, deleted and added while their batch is being embedded."""
    chance = random.Random(5)
    with pointsman.open(location, embedder=HashingEmbedder()) as other_workspace, pointsman.open(location) as workspace:
        their_notes = other_workspace.dataset("notes")
        alive = {document.id: document for document in documents(300)}
        their_notes.add(alive.values(), embed="later")

        def meddle(_: int) -> None:
            for id_ in chance.sample(sorted(alive), 5):
                if chance.random() < 0.4:
                    their_notes.delete([id_])
                    del alive[id_]
                else:
                    alive[id_] = Document(id_, f"changed {chance.random()} lamp")
                    their_notes.add([alive[id_]], embed=chance.choice(["later", True]))
            new = documents(3, 1000 + len(alive))
            alive.update((document.id, document) for document in new)
            their_notes.add(new, embed="later")

        embedder = ObservedEmbedder(lambda count: meddle(count) if count < 400 else None)
        own_notes = Dataset("notes", backend=workspace.backend, embedder=embedder)
        own_notes.embed()
        assert {document.id: document.text for document in their_notes} == {
            id_: document.text for id_, document in alive.items()
        }
        as_they_should_be(their_notes)


def test_one_embeds_what_many_add_later_and_deliberate_gaps_stay_quiet(location: str) -> None:
    with pointsman.open(location, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add(documents(5), embed=False)
        assert (dataset.vectors_due, dataset.search("switch").degraded) == (0, ())
        dataset.add(documents(5, 5))
        assert dataset.search("switch").degraded == ()
        assert dataset.embed() == 5  # but may be filled whenever somebody wants to
        assert dataset.embed() == 0
        dataset.add(documents(5, 20), embed="later")
        assert dataset.add(documents(2, 20)).updated == 2  # asked for with their vectors, they get them
        assert dataset.vectors_due == 3
        dataset.set_metadata({"d22": {"year": 2000}})
        assert dataset.vectors_due == 3
        assert dataset.embed(2) == 2
        assert dataset.embed() == 1
        as_they_should_be(dataset)
        with pytest.raises(InputError, match="embed is True, False or 'later'"):
            dataset.add(documents(1), embed="soon")  # type: ignore[arg-type]


def test_without_words_or_without_vectors_nothing_follows(tmp_path: Path) -> None:
    for technique in ("vector", "keyword"):
        with Dataset("one", "", technique, path=tmp_path / technique, embedder=HashingEmbedder()) as dataset:
            dataset.add(documents(3), embed="later")
            assert (dataset.vectors_due, dataset.embed()) == (0, 0)
            assert len(dataset.search("switch number 2").hits) == 3


def test_another_embedder_is_told_of_before_words_are_written(tmp_path: Path) -> None:
    with Dataset("one", path=tmp_path / "one", embedder=HashingEmbedder()) as dataset:
        dataset.add(documents(3))
    with (
        Dataset("one", path=tmp_path / "one", embedder=HashingEmbedder(128)) as dataset,
        pytest.raises(InputError, match="holds vectors of"),
    ):
        dataset.add(documents(3, 3), embed="later")
    with Dataset("one", path=tmp_path / "one", embedder=HashingEmbedder()) as dataset:
        assert len(dataset) == 3


def test_a_dataset_keeps_what_is_due_when_it_is_copied(tmp_path: Path) -> None:
    from pointsman.store.local.folder_backend import LocalBackend
    from pointsman.workspace.copies.copying import copy

    with pointsman.open(tmp_path / "a", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add(documents(100), embed="later")
        dataset.embed(30)
    copy(LocalBackend(tmp_path / "a"), LocalBackend(tmp_path / "b"))
    with pointsman.open(tmp_path / "b", embedder=HashingEmbedder()) as workspace:
        assert workspace.dataset("notes").vectors_due == workspace.status("notes")["vectors_due"] == 70


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────

HELD = """
import os, time
from pathlib import Path
from pointsman.embedders import scripted_embedders as scripted
embed, batches = scripted.HashingEmbedder.embed_documents, iter(range(int(os.environ['BATCHES'])))
def held(self, texts, **options):
    while next(batches, None) is None and not Path(os.environ['MAY_GO_ON']).exists():
        time.sleep(0.02)
    return embed(self, texts, **options)
scripted.HashingEmbedder.embed_documents = held
from pointsman.cli import main
main()
"""


def arguments_to_index(folder: Path, location: str) -> list[str]:
    return ["index", str(folder), "-d", "files", "-w", location, "--max-tokens", "32", "--overlap", "0"]


def environment_to_index(folder: Path) -> dict[str, str]:
    """Without vectors that another run has cached."""
    return {**os.environ, "POINTSMAN_EMBEDDER": "hashing", "POINTSMAN_CACHE": tempfile.mkdtemp(dir=folder.parent)}


def start_indexing(folder: Path, location: str, *options: str, batches: int = 0) -> subprocess.Popen[str]:
    """The command, with a model that embeds so many of 13 batches, and the others when `may_go_on` is there."""
    command = [sys.executable, "-c", HELD, *arguments_to_index(folder, location), *options]
    environment = {**environment_to_index(folder), "BATCHES": str(batches), "MAY_GO_ON": str(may_go_on(folder))}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def may_go_on(folder: Path) -> Path:
    return folder.with_name("may go on")


def wait_until(
    condition: Callable[[], object], seconds: float = 300.0, process: subprocess.Popen[str] | None = None
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, "the process has ended before"
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("location", "moment"),
    [("folder", "words"), ("folder", "vectors"), ("postgres", "between"), ("postgres", "later")],
    indirect=["location"],
)
def test_killed_at_any_moment_nothing_acknowledged_is_lost_and_the_rest_is_made_later(
    folder: Path, location: str, moment: str
) -> None:
    """kill -9 while words are written, between the phases, and while vectors are made."""
    with pointsman.open(location, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("files")
        process = start_indexing(folder, location, batches={"vectors": 3, "later": 9}.get(moment, 0))
        conditions = {
            "words": lambda: dataset.exists and len(dataset),
            "between": lambda: dataset.exists and dataset.vectors_due,
            "vectors": lambda: dataset.exists and 0 < dataset.vectors_due < len(dataset),
            "later": lambda: dataset.exists and 0 < dataset.vectors_due < len(dataset) // 2,
        }
        wait_until(conditions[moment], process=process)
        acknowledged_ids = set(dataset.ids())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert acknowledged_ids <= set(dataset.ids())
        due = sum(vector is None for vector in dataset.get_vectors(dataset.ids()))
        assert due > 0
        wait_until(lambda: dataset.vectors_due == due)  # servers are asked once a second
        answer = workspace.search("switch number 7", datasets="files")
        assert answer.degraded == (f"files: {NOTICE.format(due=due, all=len(dataset))}",)
        assert answer.hits
        arguments = [*arguments_to_index(folder, location), "--json"]
        report = json.loads(run_command(*arguments, environment=environment_to_index(folder)).stdout)
        assert report["vectors_due"] == 0
        assert report["unchanged"] >= len(acknowledged_ids)
        assert report["documents"] == len(dataset) == report["unchanged"] + report["added"]
        as_they_should_be(dataset)


def test_others_write_while_vectors_are_made_and_two_indexers_share_the_work(folder: Path, location: str) -> None:
    with pointsman.open(location, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("files")
        processes = [start_indexing(folder, location, "--json") for _ in range(2)]
        try:
            wait_until(lambda: dataset.exists and dataset.vectors_due > 0)
            for number in range(5):
                with dataset.writing(60):
                    dataset.add([Document(f"by hand {number}", f"written by hand {number}")], embed="later")
                assert workspace.search(f"hand {number}", datasets="files", strategy="bm25").hits
            may_go_on(folder).touch()
            for process in processes:
                output, errors = process.communicate(timeout=120)
                assert process.returncode == 0, errors
                assert json.loads(output)["problems"] == []
        finally:
            for process in processes:
                process.kill()
                process.communicate()
        dataset.embed()
        assert {f"by hand {number}" for number in range(5)} <= set(dataset.ids())
        as_they_should_be(dataset)


def test_ctrl_c_prints_what_is_kept_and_how_to_go_on(folder: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "workspace")
    process = start_indexing(folder, location, batches=3)
    with pointsman.open(location, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("files")
        wait_until(lambda: dataset.exists and 0 < dataset.vectors_due < len(dataset))
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        count, due = len(dataset), dataset.vectors_due
    message = " ".join(output.split())
    assert f"{count} passages added" in message or f"{count} in all" in message  # the last batch may not be counted yet
    assert "run the same command to continue" in message
    assert f"Keyword search finds all of them; {due} have no vector yet" in message


# ── every door ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add(documents(50), embed="later")
        workspace.dataset("notes").embed(20)
    monkeypatch.setattr(Dataset, "embed", lambda *_, **__: 0)  # the service would make them at once
    with world(tmp_path / "work", "default") as doors:
        yield doors


def test_every_door_says_how_many_vectors_are_to_come(doors: World) -> None:
    from typer.testing import CliRunner

    from pointsman.cli.core_commands import app

    notice = f"notes: {NOTICE.format(due=30, all=50)}"
    for answer in (
        doors.here.search("switch number 3"),
        doors.here.dataset("notes").search("switch number 3"),
        doors.here.search("switch number 3", strategy="bm25"),
        *doors.here.search_many(["switch number 3", "lamp"]),
        doors.client.search("switch number 3"),
    ):
        assert answer.degraded == (notice,)
    reply = doors.http.post("/api/search", json={"query": "switch number 3"})
    assert reply.json()["degraded"] == [notice]
    assert doors.http.get("/api/datasets").json()["datasets"][0]["vectors_due"] == 30
    result = doors.portal.call(doors.mcp.call_tool, "search", {"query": "switch number 3"})
    assert notice in json.dumps(result.structured_content)
    run = CliRunner().invoke(app, ["search", "switch number 3"], env=doors.environ, catch_exceptions=False)
    assert notice in " ".join(run.stdout.split())
    process = CliRunner().invoke(app, ["status"], env=doors.environ, catch_exceptions=False)
    assert "30 vectors" in " ".join(process.stdout.split())


def test_a_service_acknowledges_words_and_makes_the_vectors_itself(tmp_path: Path) -> None:
    """Over HTTP and by the client; what a service leaves when it dies, the next one makes."""
    gate = threading.Event()
    slow = ObservedEmbedder(lambda _: gate.wait(60))
    with (
        pointsman.open(tmp_path / "work", embedder=slow) as workspace,
        serving(create_app(workspace)) as address,
        Client(address) as client,
        httpx.Client(base_url=address, timeout=60) as http,
    ):
        client.dataset("notes").add(documents(100), embed="later")
        body = {"documents": [{"id": "x", "text": "a buffer stop"}]}
        assert http.post("/api/datasets/notes/documents?embed=later", json=body).json()["added"] == 1
        assert http.post("/api/datasets/notes/documents?embed=soon", json=body).status_code == 422
        assert client.dataset("notes").vectors_due == 101
        assert client.search("buffer stop").hits[0].id == "x"
        counts: list[int] = []
        gate.set()
        assert client.dataset("notes").embed(on_progress=counts.append) == sum(counts) <= 101
        assert client.dataset("notes").vectors_due == 0
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        as_they_should_be(dataset)
        dataset.add(documents(10, 500), embed="later")
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace, serving(create_app(workspace)):
        wait_until(lambda: workspace.dataset("notes").vectors_due == 0)
        as_they_should_be(workspace.dataset("notes"))


def test_files_are_indexed_through_a_service(folder: Path, tmp_path: Path) -> None:
    with (
        pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace,
        serving(create_app(workspace)) as address,
        Client(address) as client,
    ):
        report = index_paths(client.dataset("files"), [folder])  # type: ignore[arg-type]
        assert (report.vectors_due, report.problems) == (0, ())
        as_they_should_be(workspace.dataset("files"))


# ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def passages(test_data: Path) -> list[Document]:
    lines = (test_data / "en_xquad" / "corpus.jsonl").read_text("utf-8").splitlines()[:120]
    return [Document(item["_id"], item["text"], {"title": item["title"]}) for item in map(json.loads, lines)]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_answers_are_not_refused_for_vectors_that_are_to_come(
    passages: list[Document], test_data: Path, tmp_path: Path, share: float
) -> None:
    """By the default embedder: what words find is shown; what only vectors could judge is not judged."""
    labels = [line.split("\t") for line in (test_data / "en_xquad" / "qrels.tsv").read_text("utf-8").splitlines()]
    answers = {query: document for query, document, *_ in labels}
    queries = {
        item["_id"]: item["text"]
        for item in map(json.loads, (test_data / "en_xquad" / "queries.jsonl").read_text("utf-8").splitlines())
    }
    ids = {passage.id for passage in passages}
    pairs = [(queries[query], document) for query, document in answers.items() if document in ids][::10][:40]
    with Dataset("one", path=tmp_path / "one") as dataset:
        dataset.add(passages, embed="later")
        if share:
            dataset.embed(int(len(passages) * share))
        contexts = dataset.search_many([question for question, _ in pairs])
        refused = [context.query.text for context in contexts if context.refused is not None]
        assert len(refused) <= len(pairs) // 10
        outcomes = [
            document in {hit.id for hit in context.hits} for context, (_, document) in zip(contexts, pairs, strict=True)
        ]
        assert sum(outcomes) >= 0.85 * len(pairs)
        assert all(hit.relevance is not None for context in contexts for hit in context.hits)
        if share:
            answer = dataset.search("Сколько очков пропустила защита Пантерз?")
            assert answer.refused is None
            assert [hit.relevance for hit in answer.hits] == [None] * len(answer.hits)
            elsewhere = dataset.search("how do I stop my cat from scratching the sofa?")  # words alone refuse less
            assert elsewhere.refused is not None


def test_stores_say_whether_vectors_can_follow(tmp_path: Path) -> None:
    with Dataset("one", path=tmp_path / "one") as dataset:
        assert Capability.LATER not in dataset.store.info.capabilities  # it is not there yet
        assert dataset.vectors_due == 0
        dataset.make()
        assert Capability.LATER in dataset.store.info.capabilities


def test_cosines_are_measured_over_all_documents_once_the_last_has_its_vector() -> None:
    dataset = Dataset("notes", embedder=HashingEmbedder())
    dataset.add(
        [{"id": str(number), "text": f"Signal {number} at mile {number * 7}."} for number in range(100)], embed="later"
    )
    dataset.embed()
    assert dataset.store.statistics().notes["cosine_spread_at"] == "100"  # not 64, the first batch
