"""Citations at every door: a hit's offsets resolve in a text that can be fetched (C1), an answer is looked up (C2)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pointsman
from command_kit import run_command
from office_files import docx
from pointsman import Client, Document, InputError, UnknownNameError
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.ingest import text_of
from pointsman.service.server import Limits, create_app
from pointsman.values.settings import Settings
from serving import serving
from test_ingest_convert import minimal_pdf

EN = "The switch guides train number {}. Nobody has to think about it again.\n\n"
RU = "Стрелочник переводит стрелку номер {}. Каждый поезд идёт по нужному пути.\n\n"
FILES: dict[str, Any] = {
    "guide.md": f"---\ntitle: T\n---\n# One\n\n{EN * 9}\n## Two [link](http://x)\n\n- a *b*\n\n### Three\n\n{RU * 9}",
    "page.html": f"<h1>Eins</h1><p>{EN * 9}</p><h2>Zwei</h2><p>{RU * 9} &amp; more</p><table><tr><td>a<td>b</table>",
    "koi8.txt": (RU * 20).encode("koi8-r"),
    "windows.txt": (EN * 20).replace("\n", "\r\n"),
    "notes.jsonl": "".join(f'{{"id": "n{number}", "text": "A note on switch {number}."}}\n' for number in range(9)),
    "word.docx": docx,
    "book.pdf": lambda: minimal_pdf(
        *(f"On page {number} a switch" + ", and more" * 14 + "." for number in range(1, 9))
    ),
}


@dataclass
class World:
    """A workspace with an indexed folder, the service over it, and its client."""

    folder: Path
    workspace: pointsman.Workspace
    http: httpx.Client
    client: Client


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        data = content() if callable(content) else content
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    workspace = pointsman.open(tmp_path_factory.mktemp("workspace"), embedder=HashingEmbedder())
    workspace.index(folder, max_tokens=64, overlap=16)
    workspace.dataset("notes").add([Document("switch", "A switch, made by hand."), Document("a", "b", {"source": "s"})])
    with (
        serving(create_app(workspace, settings=Settings(), limits=Limits(requests_per_minute=0))) as address,
        httpx.Client(base_url=address, timeout=60) as http,
        Client(address) as client,
    ):
        yield World(folder, workspace, http, client)


@pytest.mark.parametrize("name", FILES)
def test_every_citation_resolves_through_python_http_and_the_client(world: World, name: str) -> None:
    """C1."""
    options: dict[str, Any] = {"datasets": ["files"], "filters": {"source": name}, "refuse": False}
    answer = world.workspace.search("switch стрелка поезд 道岔", 100, **options)
    body = {"query": "switch стрелка поезд 道岔", "k": 100, **options}
    results = world.http.post("/api/search", json=body).raise_for_status().json()["hits"]
    assert len(answer) == len(results) == world.workspace.dataset("files").count({"source": name}) > 0
    text = world.workspace.dataset("files").text(name, hash=answer.hits[0].citation.hash)
    there = world.http.get("/api/datasets/files/text", params={"source": name}).raise_for_status().json()
    assert there == text.to_dict()
    assert world.client.dataset("files").text(name) == text
    assert text.text.split() == text_of(world.folder / name).split()
    assert text.length == len(text.text) <= len(text_of(world.folder / name))
    for hit, result in zip(answer, results, strict=True):
        citation = hit.citation
        assert text.text[citation.start : citation.end] == citation.quote == hit.text
        assert result["citation"] == citation.where()
        assert there["text"][result["citation"]["start"] : result["citation"]["end"]] == result["text"]
        assert (citation.source, citation.hash) == (name, text.hash)
        assert str(world.folder) not in json.dumps(result)


@given(st.integers(0, 4000), st.integers(0, 4000))
@settings(max_examples=60, deadline=None)
def test_a_part_of_a_text_is_that_part(world: World, start: int, size: int) -> None:
    files = world.workspace.dataset("files")
    full, excerpt = files.text("guide.md"), files.text("guide.md", start=start, end=start + size)
    assert (excerpt.text, excerpt.length) == (full.text[start : start + size], full.length)
    assert excerpt.start == min(start, full.length)


def test_a_long_text_comes_to_the_client_in_parts(world: World) -> None:
    dataset = world.workspace.dataset("long", indexing_technique="keyword")
    passage = "Слово. " * 20_000
    for number in range(9):
        start = number * len(passage)
        metadata = {"source": "long.txt", "sha256": "5" * 64, "start": start, "end": start + len(passage)}
        dataset.add([Document(f"p{number}", passage, metadata)])
    remote = world.client.dataset("long")
    assert remote.text("long.txt").text == passage * 9
    assert remote.text("long.txt", start=5, end=1_100_000).text == (passage * 9)[5:1_100_000]


def test_a_document_from_no_file_is_its_own_source(world: World) -> None:
    (hit,) = world.workspace.search("switch", datasets="notes", filters="not source exists", refuse=False)
    assert (hit.citation.source, hit.citation.start, hit.citation.end) == ("switch", 0, len(hit.text))
    for door in (world.workspace, world.client):
        assert door.dataset("notes").text("switch").text == hit.text


def test_of_a_file_that_was_indexed_again_each_content_is_its_own(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes")
        for number, (version, start, text) in enumerate(
            [("old", 0, "Old one."), ("old", 9, "Old two."), ("new", 0, "New."), ("new", 3, "No offsets of it.")]
        ):
            end = start + (len(text) if start != 3 else 1)
            metadata = {"source": "a.txt", "sha256": version, "start": start, "end": end}
            notes.add([Document(str(number), text, metadata)])
        assert notes.text("a.txt").text == notes.text("a.txt", hash="old").text == "Old one. Old two."
        assert notes.text("a.txt", hash="new").text == "New."
        with pytest.raises(UnknownNameError, match="newest"):
            notes.text("a.txt", hash="newest")


def test_offsets_that_somebody_made_up_cost_nothing(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes")
        offset = 2**50
        notes.add([Document("a", "b", {"source": "s", "start": offset, "end": offset + 1})])
        notes.add([Document("c", "d", {"source": "/etc/passwd", "root": "/", "start": 0, "end": 1})])
        with pytest.raises(InputError, match="ask for a part"):
            notes.text("s")
        assert notes.text("s", start=offset - 2).text == "  b"
        assert notes.text("/etc/passwd").text == "d"  # no file is ever read
        for start, end in ((-1, None), (5, 4)):
            with pytest.raises(InputError, match="a part of a text"):
                notes.text("s", start=start, end=end)


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"source": "nobody.md"}, 404),
        ({"source": "guide.md", "hash": "0"}, 404),
        ({"source": "guide.md", "start": "9", "end": "3"}, 422),
        ({"source": "guide.md", "start": "-1"}, 422),
        ({"source": str(Path(__file__))}, 404),
        ({}, 422),
    ],
)
def test_a_text_that_there_is_not(world: World, params: dict[str, str], status: int) -> None:
    answer = world.http.get("/api/datasets/files/text", params=params)
    assert answer.status_code == status, answer.text
    with pytest.raises(UnknownNameError):
        world.client.dataset("files").text("nobody.md")


def test_an_answer_is_looked_up_through_http_as_in_python(world: World) -> None:
    """C2."""
    context = world.workspace.search("switch", 3, datasets="files", filters={"source": "book.pdf"}, refuse=False)
    quote = context.hits[1].text[-60:-9].strip()
    hits = [{"dataset": hit.dataset, "id": hit.id} for hit in context]
    answer = f'It says "{quote}" [2], "as [1] does", and has 7341 stations.'
    report = world.http.post("/api/verify", json={"answer": answer, "hits": hits}).raise_for_status().json()
    assert report == json.loads(json.dumps(context.verify(answer).to_dict()))
    assert report["supported"] is False
    first = report["claims"][0]
    assert (first["status"], first["hit"], first["named"]) == ("exact", 2, [2])
    assert context.hits[1].text[slice(*first["span"])] == quote


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"answer": "x", "hits": [{"dataset": "files", "id": "nobody"}]}, 404),
        ({"answer": "x", "hits": [{"dataset": "nowhere", "id": "nobody"}]}, 404),
        ({"answer": "x" * 200_001, "hits": []}, 422),
        ({"answer": "x"}, 422),
    ],
)
def test_answers_that_cannot_be_looked_up(world: World, body: dict[str, Any], status: int) -> None:
    assert world.http.post("/api/verify", json=body).status_code == status


def test_looking_up_an_answer_takes_no_longer_than_a_search(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = [{"dataset": hit.dataset, "id": hit.id} for hit in world.workspace.search("switch", 1, refuse=False)]
    monkeypatch.setattr("pointsman.values.answer_check.perf_counter", itertools.count(step=60.0).__next__)
    refused = world.http.post("/api/verify", json={"answer": "40 trains.", "hits": hits})
    assert refused.status_code == 422
    assert "within 30 s; check a part of it" in refused.json()["detail"]


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    process = run_command(*arguments, folder=folder)
    assert process.returncode == code, f"exit {process.returncode}\n{process.stdout}\n{process.stderr}"
    return process.stdout


def test_the_commands_cite_fetch_prompt_and_look_up(world: World, tmp_path: Path) -> None:
    workspace_options = ["--workspace", world.workspace.place]
    search_arguments = [
        "search",
        "switch page 3",
        "-d",
        "files",
        "--filter",
        'source = "book.pdf"',
        "--refuse",
        "never",
        *workspace_options,
    ]
    search_arguments += ["--strategy", "bm25"]
    assert "book.pdf, page 3" in run(tmp_path, *search_arguments)
    assert run(tmp_path, *search_arguments, "--prompt", "quoted").startswith("[1] book.pdf, page ")
    output = run(tmp_path, *search_arguments, "--json")
    first = json.loads(output)["hits"][0]
    start, end = (str(first["citation"][name]) for name in ("start", "end"))
    text_arguments = [
        "text",
        "book.pdf",
        "-d",
        "files",
        "--hash",
        first["citation"]["hash"],
        "--start",
        start,
        "--end",
        end,
    ]
    assert run(tmp_path, *text_arguments, *workspace_options) == first["text"]
    (tmp_path / "hits.json").write_text(output, "utf-8")
    (tmp_path / "answer.md").write_text(f'"{first["text"]}" [1]', "utf-8")
    assert "exact" in run(tmp_path, "verify-answer", "answer.md", "--hits", "hits.json")
    (tmp_path / "answer.md").write_text("It has 7341 stations.", "utf-8")
    assert "unsupported" in run(tmp_path, "verify-answer", "answer.md", "--hits", "hits.json", code=1)
    (tmp_path / "hits.json").write_text("[]", "utf-8")
    run(tmp_path, "verify-answer", "answer.md", "--hits", "hits.json", code=2)
