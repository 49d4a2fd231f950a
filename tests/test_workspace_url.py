"""The same program on a folder and on a server (B2)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pointsman
from pointsman import Policy, UnknownNameError
from pointsman.errors import UnmetNeedError
from pointsman.models.scripted import HashingEmbedder
from store_kit import corpus

if TYPE_CHECKING:
    from postgres_kit import PostgresServer

QUESTIONS = ("rail lamp", "signal of the yard", "the train", "whistel")


def ranked(answer: Any) -> list[tuple[str | None, str, float]]:
    return [(hit.dataset, hit.id, round(hit.score, 2)) for hit in answer.hits]


def test_an_unknown_scheme_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="postgresql"):
        pointsman.open("mongodb://somewhere/db")


def test_b2_the_same_answers_on_a_folder_and_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    url = f"{postgres.url}?schema=workspace_url"
    embedder = HashingEmbedder()
    with (
        pointsman.open(tmp_path / "work", embedder=embedder) as here,
        pointsman.open(url, embedder=embedder) as there,
    ):
        for workspace in (here, there):
            workspace.dataset("rails", description="about rails").add(corpus(80))
            workspace.dataset("yards").add(corpus(40, seed=3, prefix="y"))
        assert there.names() == here.names() == ["rails", "yards"]
        for question in QUESTIONS:
            for strategy in ("hybrid", "vector", "bm25"):
                mine, theirs = (w.search(question, 5, strategy=strategy, refuse=False) for w in (here, there))
                assert {hit.id for hit in theirs} == {hit.id for hit in mine}, (question, strategy)
            answer = there.search(question, 5, filters="number >= 20", refuse=False)
            assert all(hit.metadata["number"] >= 20 for hit in answer)
            assert ranked(asyncio.run(there.asearch(question, 5, refuse=False))) == ranked(
                there.search(question, 5, refuse=False)
            )
        assert there.search("whistel", 3).query.text == "whistle"
        there.keep(Policy(name="tuned", vector_weight=2.0))
        with pointsman.open(url, embedder=embedder) as again:
            assert again.workflow.policy == there.workflow.policy
            assert again.dataset("rails", create=False).description == "about rails"
            again.drop("yards")
            assert again.names() == ["rails"]
            with pytest.raises(UnmetNeedError, match="folders only"):
                _ = again.path
