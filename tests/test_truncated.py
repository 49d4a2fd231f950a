"""Texts that are longer than an embedder reads: said in the answer, at ``add``, at ``index`` and in the status."""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

import pointsman
from command_kit import run_command
from pointsman import Dataset, Document, default_embedder
from pointsman.embedders import CachedEmbedder, SentenceTransformersEmbedder
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.client import Client
from pointsman.service.server import create_app
from pointsman.store.local.folder_backend import LocalBackend
from pointsman.values.types import AddResult
from pointsman.workspace.copies.copying import copy
from pointsman.workspace.dataset import truncated_documents
from serving import serving

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from postgres_kit import PostgresServer

NOTE = "too long a question for the embedder, which reads "


class HeadEmbedder(HashingEmbedder):
    """A fake with a limit, so that texts need not be long: it reads twenty characters."""

    @property
    def name(self) -> str:
        return "head-20"

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return super().embed_queries([text[:20] for text in texts])

    def truncated_at(self, text: str, *, as_query: bool = False) -> int | None:
        return 20 if len(text) > 20 else None


SHORT, LONG = Document("short", "a straight rail"), Document("long", "a straight rail and a red signal lamp")


class TestEmbedders:
    @pytest.mark.parametrize(
        "text",
        [
            " ".join(f"switch number {number} guides trains;" for number in range(200)),
            "铁路信号灯是红色的。" * 200,
            "стрелка переводит поезд на другой путь " * 100,
            " \t" + "b" * 3_000,
            "a" + " " * 9_000 + "switch",
        ],
        ids=["en", "zh", "ru", "unbroken", "spaces"],
    )
    def test_what_follows_the_head_changes_no_vector(self, text: str) -> None:
        embedder = default_embedder()
        for as_query, embed in ((True, embedder.embed_queries), (False, embedder.embed_documents)):
            length = embedder.truncated_at(text, as_query=as_query)
            assert length is not None
            whole, head, other, shorter = embed([text, text[:length], text[:length] + " rail", text[: length - 9]])
            assert np.array_equal(whole, head)
            assert np.array_equal(whole, other) or text.endswith("switch")  # a word in reach of the limit
            assert np.array_equal(whole, shorter) == text.endswith("switch")

    @pytest.mark.parametrize("text", ["", "rail", "a straight rail " * 100, "rail" + "\n" * 100_000])
    def test_a_text_within_the_limit_is_not_truncated(self, text: str) -> None:
        assert default_embedder().truncated_at(text) is None

    def test_the_cache_says_what_the_embedder_says(self, tmp_path: Path) -> None:
        embedder = CachedEmbedder(HeadEmbedder(), tmp_path)
        assert embedder.truncated_at(LONG.text) == 20
        assert CachedEmbedder(HashingEmbedder(), tmp_path).truncated_at(LONG.text) is None

    def test_sentence_transformers_at_its_max_seq_length(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The package is a fake, as PyTorch is not installed here. Words are tokens, between two markers."""

        class FakeModel:
            max_seq_length: int | None = 6

            def __init__(self, name: str, device: str | None) -> None:
                pass

            def get_embedding_dimension(self) -> int:
                return 4

            def tokenizer(self, text: str, *, truncation: bool, max_length: int) -> dict[str, list[int]]:
                assert truncation
                return {"input_ids": [0, *[len(word) for word in text.split()][: max_length - 2], 1]}

        package = ModuleType("sentence_transformers")
        package.SentenceTransformer = FakeModel  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "sentence_transformers", package)
        embedder = SentenceTransformersEmbedder("any", query_prefix="query: ")
        assert embedder.truncated_at("one two three four") is None
        assert embedder.truncated_at("one two three four fifth") == len("one two three four")
        assert embedder.truncated_at("one two three four", as_query=True) == len("one two three")
        monkeypatch.setattr(FakeModel, "max_seq_length", None)
        assert embedder.truncated_at("one two three four fifth") is None


class TestCount:
    def test_it_follows_every_change_and_a_restart(self, tmp_path: Path) -> None:
        with Dataset("rails", path=tmp_path, embedder=HeadEmbedder()) as dataset:
            assert dataset.truncations == 0
            assert dataset.add([SHORT, LONG]) == AddResult(added=2, truncations=1)
            assert dataset.add([SHORT, LONG]) == AddResult(unchanged=2)
            assert dataset.truncations == 1
        with Dataset("rails", path=tmp_path, embedder=HeadEmbedder()) as dataset:
            assert dataset.truncations == 1
            dataset.add([Document("long", "a rail"), Document("other", LONG.text), Document("third", LONG.text)])
            assert dataset.truncations == 2
            dataset.set_metadata({"short": {"title": "About the rails of yard nine"}, "other": {"year": 2020}})
            assert dataset.truncations == 3
            dataset.set_metadata({"short": {"title": None}})
            assert dataset.truncations == 2
            dataset.delete(filters="year = 2020")
            assert dataset.truncations == 1
            dataset.delete("third")
            assert dataset.truncations == 0

    def test_documents_that_get_their_vectors_later_count_then(self) -> None:
        dataset = Dataset("rails", embedder=HeadEmbedder())
        assert dataset.add([SHORT, LONG], embed="later").truncations == 0
        assert dataset.truncations == 0
        dataset.embed()
        assert dataset.truncations == 1

    def test_nothing_is_claimed_of_given_vectors_and_of_unknown_limits(self) -> None:
        dataset = Dataset("rails", embedder=HeadEmbedder())
        vectors = HeadEmbedder().embed_documents([LONG.text])
        assert dataset.add([LONG], vectors=vectors).truncations == 0
        assert dataset.add([LONG, Document("b", LONG.text)], vectors=[vectors[0], None]).truncations == 1
        assert dataset.truncations == 1
        assert Dataset("other", embedder=HashingEmbedder()).add([LONG]).truncations == 0

    def test_of_many_it_is_a_lower_bound_and_the_latest_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(truncated_documents, "MOST", 5)
        dataset = Dataset("rails", embedder=HeadEmbedder())
        documents = [Document(str(number), f"{LONG.text} {number}") for number in range(8)]
        dataset.add(documents[:4])
        dataset.delete(["0", "1", "2"])
        dataset.add(documents[4:7])
        assert dataset.truncations == 4  # those that are gone gave way
        dataset.add(documents)
        assert dataset.truncations == 5

    def test_a_damaged_note_stops_nothing(self) -> None:
        dataset = Dataset("rails", embedder=HeadEmbedder())
        dataset.add([LONG])
        dataset.store.annotate(truncated_3="{", truncated_4="[1]")
        assert dataset.truncations in (0, 1)  # whichever note the writer drew
        assert dataset.search("rail").hits

    def test_two_writers_of_one_store(self, postgres: PostgresServer) -> None:
        place = f"{postgres.url}?schema=truncations"
        with pointsman.open(place, embedder=HeadEmbedder()) as first:
            first.dataset("rails").add([LONG])
            with pointsman.open(place, embedder=HeadEmbedder()) as second:
                second.dataset("rails").add([Document("other", LONG.text)])
                assert second.status("rails")["truncations"] == 2
                second.dataset("rails").delete("long")
                assert second.status("rails")["truncations"] == 1

    def test_a_copy_keeps_it(self, tmp_path: Path) -> None:
        with pointsman.open(tmp_path / "from", embedder=HeadEmbedder()) as workspace:
            workspace.dataset("rails").add([LONG])
        copy(LocalBackend(tmp_path / "from"), LocalBackend(tmp_path / "to"))
        with pointsman.open(tmp_path / "to", embedder=HeadEmbedder()) as workspace:
            assert workspace.status("rails")["truncations"] == 1

    def test_a_view_says_nothing_of_it(self, tmp_path: Path) -> None:
        with pointsman.open(tmp_path, embedder=HeadEmbedder()) as workspace:
            dataset = workspace.dataset("rails")
            dataset.add([LONG], access=["ann"])
            assert dataset.in_view(["ann"]).truncations is None


class TestAnswers:
    def test_the_answer_says_how_much_of_the_question_was_read(self) -> None:
        dataset = Dataset("rails", embedder=HeadEmbedder())
        dataset.add([SHORT])
        question = "where does the straight rail of yard nine begin"
        for _ in range(2):  # its vector is remembered the second time
            answer = dataset.search(question)
            assert answer.degraded == (f"{NOTE}20 of {len(question)} characters: shorten or divide it",)
        assert asyncio.run(dataset.asearch(question)).degraded == answer.degraded
        assert dataset.search_many([question, "rail"])[0].degraded == answer.degraded
        assert not dataset.search_many([question, "rail"])[1].degraded
        assert not dataset.search(question, strategy="bm25").degraded
        (note,) = dataset.search("где начинается прямой рельс девятого двора").degraded
        assert note.startswith("вопрос слишком длинный: модель читает первые 20 знаков из 42")

    def test_it_is_said_once_for_all_datasets(self, tmp_path: Path) -> None:
        with pointsman.open(tmp_path, embedder=HeadEmbedder()) as workspace:
            for name in ("rails", "lamps"):
                workspace.dataset(name).add([SHORT])
            assert len(workspace.search("where does the straight rail of yard nine begin").degraded) == 1

    def test_two_questions_that_differ_beyond_the_limit(self) -> None:
        dataset = Dataset("rails")
        dataset.add([SHORT])
        beginning = " ".join(f"number {number}" for number in range(400))
        first, second = (dataset.search(f"{beginning} {ending}", strategy="vector") for ending in ("rails", "lamps"))
        assert [hit.score for hit in first] == [hit.score for hit in second]
        assert first.degraded == second.degraded
        assert first.degraded[0].startswith(NOTE)


class TestDoors:
    @pytest.fixture
    def workspace(self, tmp_path: Path) -> pointsman.Workspace:
        workspace = pointsman.open(tmp_path, embedder=HeadEmbedder())
        workspace.dataset("rails").add([SHORT, LONG])
        return workspace

    def test_python_and_a_view(self, workspace: pointsman.Workspace) -> None:
        assert workspace.status("rails")["truncations"] == 1

    def test_indexed_files_are_cut_to_fit(self, tmp_path: Path) -> None:
        (tmp_path / "long.txt").write_text(" ".join(f"The lamp of yard {number} is green." for number in range(900)))
        with pointsman.open(tmp_path / "ws") as workspace:
            assert workspace.index(tmp_path / "long.txt").truncations == 0
            workspace.dataset("files").add([Document("long", "The lamp of the yard is green. " * 200)])
            assert workspace.index(tmp_path / "long.txt").truncations == 1
        printed = run_command("status", "-w", str(tmp_path / "ws"))
        assert "files: 1 document longer than the embedder reads: only words find what follows" in printed.stdout
        values = json.loads(run_command("status", "-w", str(tmp_path / "ws"), "--json").stdout)
        assert values["datasets"][0]["truncations"] == 1
        indexed = run_command("index", str(tmp_path / "long.txt"), "-w", str(tmp_path / "ws"))
        assert "files: 1 document longer than the embedder reads" in indexed.stdout

    def test_http_and_client(self, workspace: pointsman.Workspace) -> None:
        with serving(create_app(workspace)) as address, Client(address) as client:
            dataset: Any = client.dataset("rails")
            assert client.status("rails")["truncations"] == dataset.truncations == 1
            assert dataset.add([Document("third", LONG.text)]) == AddResult(added=1, truncations=1)
            assert dataset.set_metadata({"short": {"title": "About the rails"}}) == AddResult(updated=1, truncations=1)
            assert dataset.truncations == 3
            assert httpx.get(f"{address}/api/datasets/rails").json()["truncations"] == 3
            assert client.search("where does the straight rail begin").degraded[0].startswith(NOTE)

    def test_mcp(self, workspace: pointsman.Workspace) -> None:
        from mcp import Client as McpClient

        from pointsman.integrations.mcp import create_server

        async def by_mcp() -> tuple[Any, Any]:
            async with McpClient(create_server(workspace)) as client:
                datasets = (await client.call_tool("list_datasets", {})).structured_content
                question = {"query": "where does the straight rail begin"}
                return datasets, (await client.call_tool("search", question)).structured_content

        datasets, answer = asyncio.run(by_mcp())
        assert datasets["datasets"][0]["truncations"] == 1
        assert answer["degraded"][0].startswith(NOTE)
