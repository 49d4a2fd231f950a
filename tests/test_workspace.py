from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pointsman
from pointsman import Dataset, Document, RegisteredStrategy, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm.scripted_llm import ScriptedLLM
from pointsman.retrieval.strategies import BaseRetrievalStrategy, register_strategy
from pointsman.retrieval.workflow import RetrievalWorkflow
from pointsman.text import DEFAULT_ANALYZER, Analyzer, unicode
from pointsman.tools.errors import CorruptStoreError, FormatVersionError, InputError, LockedError, UnknownNameError
from pointsman.values.registry import STRATEGIES
from pointsman.values.retrieval_context import Hits
from store_kit import corpus

if TYPE_CHECKING:
    from pointsman.values.types import Query


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        yield workspace


def test_nothing_is_written_before_the_first_dataset(tmp_path: Path) -> None:
    with Workspace(tmp_path / "none") as workspace:
        assert workspace.names() == []
        with pytest.raises(UnknownNameError, match="no dataset named 'x'; there is none yet"):
            workspace.dataset("x", create=False)
        assert workspace.search("anything").hits == ()
    assert not (tmp_path / "none").exists()


def test_a_search_where_there_is_nothing_says_so(tmp_path: Path, workspace: Workspace) -> None:
    workspace.dataset("rails").add(corpus(5))
    expected = f"there is no workspace at '{tmp_path / 'wrok'}'; did you mean '{tmp_path / 'work'}'?"
    with pointsman.open(tmp_path / "wrok") as other_workspace:
        answers = [
            other_workspace.search("x"),
            asyncio.run(other_workspace.asearch("x")),
            *other_workspace.search_many(["x", "y"]),
            *asyncio.run(other_workspace.asearch_many(["x"])),
        ]
        assert all(answer.degraded[-1].startswith(expected) for answer in answers)
        other_workspace.dataset("rails").add(corpus(1))
        assert other_workspace.search("x").degraded == ()
    assert not workspace.search("x").degraded


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_the_home_folder_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rail.md").write_text("The rail is straight.")
    with pointsman.open(f"{scheme}~/ws", embedder=HashingEmbedder()) as workspace:
        assert workspace.path == tmp_path / "ws"
        assert workspace.index("~/rail.md").files == 1
        workspace.dataset("files").save("~/copy")
    with Dataset.load("~/copy", embedder=HashingEmbedder()) as copy:
        assert len(copy) == 1
    with Dataset("own", path="~/own", embedder=HashingEmbedder()) as dataset:
        dataset.add(corpus(1))
    assert {"copy", "own", "ws"} < {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / "~").exists()


def test_a_dataset_that_has_just_been_dropped_does_not_keep_others_from_answering(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.dataset("rails").add(corpus(5))
    monkeypatch.setattr(workspace, "names", lambda: ["gone", "rails"])  # another process drops it after it was listed
    assert [dataset.name for dataset in workspace] == ["rails"]
    assert {hit.dataset for hit in workspace.search("rail", refuse=False)} == {"rails"}
    assert {hit.dataset for hit in workspace.search_many(["rail"], refuse=False)[0]} == {"rails"}
    with pytest.raises(UnknownNameError, match="'gone'"):
        workspace.search("rail", datasets=["gone", "rails"])


def test_an_unknown_name_is_not_taken_for_the_lack_of_any(workspace: Workspace) -> None:
    workspace.dataset("rails").add(corpus(5))
    with pytest.raises(UnknownNameError, match=r"no source named 'nope\.md'$"):
        workspace.dataset("rails").text("nope.md")


def test_a_link_to_itself_is_no_dataset(tmp_path: Path, workspace: Workspace) -> None:
    workspace.dataset("rails").add(corpus(5))
    (tmp_path / "work" / "datasets" / "loop").symlink_to("loop")
    assert workspace.names() == ["rails"]
    assert len(workspace.search("rail", refuse=False)) > 0


def test_a_closed_workspace_says_so(workspace: Workspace, tmp_path: Path) -> None:
    dataset = workspace.dataset("rails")
    dataset.add(corpus(5))
    (tmp_path / "rail.md").write_text("The rail is straight.")
    workspace.close()
    workspace.close()
    for use in (
        lambda: workspace.search("rail"),
        lambda: workspace.search_many(["rail"]),
        lambda: asyncio.run(workspace.asearch("rail")),
        lambda: workspace.index(tmp_path / "rail.md"),
        lambda: workspace.dataset("rails"),
        lambda: workspace.drop("rails"),
        lambda: workspace.route("rail"),
        lambda: workspace.status("rails"),
        lambda: workspace.keep(None),
        lambda: list(workspace),
        workspace.names,
    ):
        with pytest.raises(InputError, match=r"the workspace at .*work is closed; open it again"):
            use()
    for reuse in (lambda: dataset.search("rail"), lambda: dataset.add(corpus(1)), lambda: len(dataset)):
        with pytest.raises(InputError, match="is closed; open it again"):
            reuse()
    assert workspace.place == str(tmp_path / "work")


def test_a_closed_dataset_opens_again_in_its_workspace(workspace: Workspace) -> None:
    with workspace.dataset("rails") as dataset:
        dataset.add(corpus(5))
    with pytest.raises(InputError, match="is closed"):
        dataset.search("rail")
    assert len(workspace.dataset("rails")) == 5
    assert len(workspace.search("rail", refuse=False)) > 0


def test_datasets_are_kept(tmp_path: Path, workspace: Workspace) -> None:
    workspace.dataset("rails", description="about rails").add(corpus(5))
    workspace.dataset("лампы", indexing_technique="keyword").make()
    assert workspace.names() == ["rails", "лампы"]
    assert workspace.dataset("rails") is workspace.dataset("rails")
    workspace.close()
    reopened_workspace = Workspace(tmp_path / "work", embedder=HashingEmbedder())
    assert [dataset.name for dataset in reopened_workspace] == ["rails", "лампы"]
    rails, lamps = reopened_workspace.datasets()
    assert (rails.description, len(rails)) == ("about rails", 5)
    assert lamps.indexing_technique == "keyword"
    assert reopened_workspace.dataset("rails", description="new").description == "new"
    with pytest.raises(InputError, match="made for 'keyword'"):
        reopened_workspace.dataset("лампы", indexing_technique="hybrid")
    with pytest.raises(UnknownNameError, match="known: rails, лампы"):
        reopened_workspace.dataset("other", create=False)
    reopened_workspace.close()


def test_search_over_all_and_over_some(workspace: Workspace) -> None:
    workspace.dataset("one").add(
        [Document("a", "a red signal", {"year": 2001}), Document("b", "a lamp", {"year": 1999})]
    )
    workspace.dataset("two").add([Document("a", "the red signal of the yard", {"year": 2002})])
    context = workspace.search("red signal", k=2)
    assert {(hit.dataset, hit.id) for hit in context} == {("one", "a"), ("two", "a")}
    assert context.plan.datasets == ("one", "two")
    assert [span.stage for span in context.trace.spans] == [
        *("plan", "transform", "retrieve", "retrieve", "fuse", "fetch", "refuse")
    ]
    assert {hit.dataset for hit in workspace.search("red signal", datasets=["two"])} == {"two"}
    assert {hit.id for hit in workspace.search("red signal lamp", filters="year < 2000")} == {"b"}
    assert asyncio.run(workspace.asearch("red signal", 2)).hits == context.hits
    for strategy in ("bm25", "vector", "hybrid", "rrf", "z_score"):
        assert workspace.search("red signal", 1, strategy=strategy).hits[0].id == "a"
    with pytest.raises(UnknownNameError, match="strategy"):
        workspace.search("red", strategy=RegisteredStrategy("best"))
    for k in (0, -1, True, 1.5):
        with pytest.raises(InputError, match="from 1 up"):
            workspace.search("red", k)  # type: ignore[arg-type]


def test_drop(tmp_path: Path, workspace: Workspace) -> None:
    workspace.dataset("gone").add(corpus(5))
    workspace.dataset("kept").add(corpus(5))
    other_workspace = Workspace(tmp_path / "work", embedder=HashingEmbedder())
    with workspace.dataset("gone").writing(), pytest.raises(LockedError):
        other_workspace.drop("gone")
    other_workspace.close()
    workspace.drop("gone")
    assert workspace.names() == ["kept"]
    assert [path.name for path in (tmp_path / "work" / "datasets").iterdir()] == ["kept"]
    with pytest.raises(UnknownNameError):
        workspace.drop("gone")
    assert len(workspace.dataset("gone")) == 0  # a new one of the same name is empty
    assert len(workspace.search("rail lamp guard", k=99)) <= 5


def test_what_is_no_workspace_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="not a workspace"):
        Workspace(tmp_path)
    with pytest.raises(InputError, match="not a workspace"):
        Workspace(tmp_path / "letter.txt")


def test_a_manifest_that_cannot_be_read(tmp_path: Path, workspace: Workspace) -> None:
    workspace.dataset("x").make()
    workspace.close()
    manifest = tmp_path / "work" / "workspace.json"
    manifest.write_text(json.dumps({"format": 99}))
    with pytest.raises(FormatVersionError, match=r"99.*knows format 1.*open it with"):
        Workspace(tmp_path / "work")
    manifest.write_text("{")
    with pytest.raises(CorruptStoreError, match=r"workspace\.json.*backup"):
        Workspace(tmp_path / "work")


@pytest.mark.parametrize("name", ["../x", "", ".", "a/b", "x" * 65, "a\0"])
def test_names_that_cannot_be_used(tmp_path: Path, workspace: Workspace, name: str) -> None:
    with pytest.raises(InputError, match="1 to 64 letters"):
        workspace.dataset(name)
    assert not (tmp_path / "work").exists()


def test_strategies_by_name(workspace: Workspace) -> None:
    class Backwards(BaseRetrievalStrategy):
        name = "backwards"

        async def search(self, query: str | Query, k: int = 5) -> Hits:
            hits = await RetrievalWorkflow(strategy="hybrid").asearch(query, self.sources, k)
            return Hits(reversed(hits.hits), hits.trace, hits.degraded)

    workspace.dataset("one").add(corpus(30))
    with pytest.raises(UnknownNameError, match="no strategy named 'backwards'"):
        workspace.search("rail", strategy=RegisteredStrategy("backwards"))
    register_strategy(Backwards)
    try:
        answer = workspace.search("rail lamp", 100, strategy=RegisteredStrategy("backwards"), refuse=False)
        assert [hit.id for hit in answer] == [
            hit.id for hit in workspace.search("rail lamp", 100, strategy="hybrid", refuse=False)
        ][::-1]  # its order stands
        assert answer.plan.strategy == "backwards"
    finally:
        STRATEGIES._factories.pop("backwards")
    answer_by_parts = workspace.search("rail lamp", 4, strategy="decomposition", refuse=False)
    assert (answer_by_parts.plan.strategy, len(answer_by_parts)) == ("decomposition", 4)
    with pytest.raises(InputError, match="needs a language model"):
        workspace.search("rail", strategy="hyde")
    workspace.llm = ScriptedLLM(["A signal lamp stands beside the rail."])
    hyde = workspace.search("what stands beside the rail?", 4, strategy="hyde", refuse=False)
    assert any(step.source == "hypothetical 1" for hit in hyde for step in hit.provenance)
    assert hyde.degraded == ()


UEBUNG = "Übung", unicodedata.normalize("NFD", "Übung")


@pytest.mark.parametrize("asked", UEBUNG, ids=["composed", "apart"])
@pytest.mark.parametrize("stored", UEBUNG, ids=["composed", "apart"])
def test_names_keys_and_values_are_compared_as_people_see_them(workspace: Workspace, stored: str, asked: str) -> None:
    workspace.dataset(stored).add(
        [
            Document("u", "an exercise", {stored: stored, "place": {stored: [stored]}, "source": f"{stored}.md"}),
            Document("o", "another exercise", {"source": "other.md"}),
        ]
    )
    assert workspace.names() == ["Übung"]
    dataset = workspace.dataset(asked, create=False)
    assert dataset is workspace.dataset(stored)
    for condition in (
        {asked: asked},
        {f"place.{asked}": asked},
        {"source": {"startswith": asked}},
        {"source": {"icontains": asked.lower()}},
        {"source": {"in": [f"{asked}.md"]}},
        f"exists(`{asked}`)",
    ):
        answer = workspace.search("exercise", datasets=[asked], filters=condition, refuse=False)
        assert [hit.id for hit in answer.hits] == ["u"], condition
    assert answer.hits[0].metadata["source"] == f"{stored}.md", "what is stored is given back as it was"
    workspace.drop(asked)
    assert workspace.names() == []


def test_words_indexed_by_the_rules_of_before_are_indexed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget_words() -> None:
        unicode.FOLDS.clear()
        DEFAULT_ANALYZER._everything.clear()
        DEFAULT_ANALYZER._content.clear()

    forget_words()
    with monkeypatch.context() as before, Workspace(tmp_path / "w", embedder=HashingEmbedder()) as handle:
        before.setattr(unicode, "_WITHOUT_STROKES", {})
        before.setattr(Analyzer, "fingerprint", property(lambda _: "1/rules of before"))
        dataset = handle.dataset("cities")
        dataset.add([Document("l", "Łódź is a city"), Document("p", "Płock is another city")])
        assert dataset.search("lodz", strategy="bm25", refuse=False).hits == ()
    forget_words()
    with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as handle:
        dataset = handle.dataset("cities", create=False)
        assert [hit.id for hit in dataset.search("lodz", strategy="bm25", refuse=False).hits] == ["l"]
        assert dataset.verify().problems == ()
