"""More context around hits, and the order in which they are read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from pointsman.retrieval.refine.compress import (
    ExtractiveCompressor,
    ParentExpander,
    PassageStore,
    WindowExpander,
)
from pointsman.tools.errors import InputError
from pointsman.values.types import Document, Excerpt, Hit, Provenance, Query, Ranked
from pointsman.workspace.dataset import Dataset
from pointsman.workspace.indexing.folder_sync import index_paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def refine(refiner: Any, ranking: Ranked, top_k: int = 10) -> Ranked:
    ranked: Ranked = refiner.refine(Query("x"), ranking, top_k)
    return ranked


class Shelf:
    """A store in memory, as anybody may write one."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = {document.id: document for document in documents}

    def get(self, id: str) -> Document | None:  # noqa: A002
        return self.documents.get(id)

    def ids(self, *, source: str | None = None) -> list[str]:
        return [
            value.id for value in self.documents.values() if source is None or value.metadata.get("source") == source
        ]


def passage(number: int, source: str = "a.txt", **fields: Any) -> Document:
    return Document(f"{source}-{number}", f"Passage {number}.", {"source": source, "position": number, **fields})


def ranking(*documents: Document, dataset: str | None = None) -> Ranked:
    hits = [
        Hit(document, 1 / rank, dataset, (Provenance("bm25", rank, 9.0 - rank),))
        for rank, document in enumerate(documents, 1)
    ]
    return Ranked(tuple(hits), "bm25")


SHELF = Shelf([passage(number) for number in (5, 3, 1, 0, 2, 4)] + [passage(number, "b.txt") for number in range(3)])


# ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("passages_before", "passages_after", "number", "numbers"),
    [(1, 1, 2, [1, 2, 3]), (0, 2, 2, [2, 3, 4]), (2, 0, 1, [0, 1]), (9, 9, 3, [0, 1, 2, 3, 4, 5]), (1, 1, 5, [4, 5])],
)
def test_a_hit_gets_its_neighbours(passages_before: int, passages_after: int, number: int, numbers: list[int]) -> None:
    original = ranking(passage(number))
    outcome = refine(WindowExpander(SHELF, passages_before, passages_after), original)
    (hit,) = outcome.hits
    assert hit.text == "\n\n".join(f"Passage {number}." for number in numbers)
    assert hit.metadata["passages"] == [f"a.txt-{number}" for number in numbers]
    assert (hit.id, hit.score, hit.provenance) == ("a.txt-" + str(number), 1.0, original.hits[0].provenance)
    assert original == ranking(passage(number))
    assert outcome.scale == "bm25"


def test_hits_whose_windows_meet_become_one_in_the_better_place() -> None:
    outcome = refine(WindowExpander(SHELF), ranking(passage(4), passage(1, "b.txt"), passage(2), passage(0)))
    assert [hit.id for hit in outcome.hits] == ["a.txt-4", "b.txt-1"]
    assert outcome.hits[0].metadata["passages"] == [f"a.txt-{number}" for number in range(6)]
    assert [step.rank for step in outcome.hits[0].provenance] == [1, 3, 4]
    assert outcome.dropped == {
        (None, "a.txt-2"): "part of 'a.txt-4' now",
        (None, "a.txt-0"): "part of 'a.txt-4' now",
    }
    assert outcome.detail == "2 of 4 hits have more context, 2 became part of them"


def test_windows_apart_stay_apart() -> None:
    outcome = WindowExpander(SHELF, 0, 1).refine(Query("x"), ranking(passage(3), passage(0)), 5)
    assert [hit.metadata["passages"] for hit in outcome.hits] == [["a.txt-3", "a.txt-4"], ["a.txt-0", "a.txt-1"]]


def test_a_window_of_nothing_changes_nothing() -> None:
    original = ranking(passage(3), passage(0))
    assert refine(WindowExpander(SHELF, 0, 0), original).hits == original.hits


def test_a_hit_without_a_known_place_stays_and_is_told() -> None:
    strange = [Document("x", "No source."), Document("y", "Not stored.", {"source": "a.txt", "position": 1})]
    outcome = refine(WindowExpander(SHELF), ranking(*strange, passage(3)))
    assert [hit.document for hit in outcome.hits[:2]] == strange
    assert outcome.detail == "1 of 3 hits have more context, 0 became part of them; 2 without a known place in a source"


def test_only_the_hits_of_the_answer_are_widened() -> None:
    outcome = refine(WindowExpander(SHELF), ranking(passage(4), passage(0)), 1)
    assert [hit.id for hit in outcome.hits] == ["a.txt-4"]
    assert outcome.dropped == {(None, "a.txt-0"): "below the cut: only the hits of the answer get more context"}


def test_records_of_a_table_are_no_neighbours() -> None:
    rows = [
        Document(f"{name}-{number}", f"{name}{number}", {"source": "t.csv", "position": number, "parent": name})
        for name in ("one", "two")
        for number in range(2)
    ]
    outcome = WindowExpander(Shelf(rows)).refine(Query("x"), ranking(rows[1], rows[2]), 5)
    assert [hit.metadata["passages"] for hit in outcome.hits] == [["one-0", "one-1"], ["two-0", "two-1"]]


def test_an_excerpt_of_before_does_not_outlive_its_text() -> None:
    hit = replace(ranking(passage(3)).hits[0], excerpt=Excerpt("Pass", ((0, 4),)))
    outcome = WindowExpander(SHELF).refine(Query("x"), Ranked((hit,), "bm25"), 5)
    assert outcome.hits[0].excerpt is None


class Failing(Shelf):
    def ids(self, *, source: str | None = None) -> list[str]:
        raise OSError("disk gone")

    def get(self, id: str) -> Document | None:  # noqa: A002
        raise OSError("disk gone")


@pytest.mark.parametrize("expander", [WindowExpander, ParentExpander])
def test_a_look_up_that_fails_is_told_and_leaves_hits_as_they_are(expander: Any) -> None:
    original = ranking(passage(3, parent="p"), passage(4, parent="q"))
    outcome = refine(expander(Failing([])), original)
    assert outcome.hits == original.hits
    assert outcome.degraded == ("expand: a look-up failed, hits stay as they were: OSError: disk gone",)


@pytest.mark.parametrize("kind", ["mapping", "function"])
def test_several_datasets_are_asked_by_name(kind: str) -> None:
    stores: dict[str | None, PassageStore] = {"one": SHELF, "two": Shelf([passage(1), passage(2)])}
    expander = WindowExpander(stores if kind == "mapping" else stores.get, 1, 1)
    outcome = refine(
        expander,
        Ranked(
            (
                *ranking(passage(1), dataset="one").hits,
                *ranking(passage(1), dataset="two").hits,
                *ranking(passage(1), dataset="three").hits,
            ),
            "bm25",
        ),
    )
    assert [len(hit.metadata.get("passages", ())) for hit in outcome.hits] == [3, 2, 0]
    assert "1 without a known place" in outcome.detail


# ── parents ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parts_of_one_parent_become_it_with_the_best_score() -> None:
    parent = Document("p", "The whole story.", {"kind": "story"})
    children = [Document(f"c{number}", f"part {number}", {"parent": "p"}) for number in range(3)]
    original = ranking(children[1], Document("x", "alone"), children[0])
    outcome = refine(ParentExpander(Shelf([parent, *children])), original)
    assert [hit.document for hit in outcome.hits] == [parent, Document("x", "alone")]
    assert outcome.hits[0].score == 1.0
    assert [step.rank for step in outcome.hits[0].provenance] == [1, 3]
    assert outcome.dropped == {(None, "c0"): "part of 'c1' now"}
    assert "1 without a parent" in outcome.detail


def test_a_parent_that_is_missing_keeps_the_child_and_is_told() -> None:
    child = Document("c", "part", {"section": "nowhere"})
    outcome = refine(ParentExpander(Shelf([child]), "section"), ranking(child))
    assert outcome.hits[0].document == child
    assert outcome.detail == "0 of 1 hits have more context, 0 became part of them; 1 whose parent is not stored"
    assert outcome.degraded == ()


# ── what pointsman index makes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def indexed_dataset(tmp_path: Path) -> Iterator[Dataset]:
    """A file of three sections, the middle one in many overlapping passages, and a table."""
    folder = tmp_path / "files"
    folder.mkdir()
    middle = " ".join(f"Sentence number {number} tells of switches and trains of the railway." for number in range(80))
    start, end = "How it all began with one train. " * 8, "It ended. " * 40
    text = f"# Start\n\n{start}\n\n# Middle\n\n{middle}\n\n# End\n\n{end}\n"
    (folder / "story.md").write_text(text)
    (folder / "table.csv").write_text("id,text\n1,one row of words\n2,another row of words\n")
    with Dataset("d", indexing_technique="keyword", path=tmp_path / "data") as dataset:
        index_paths(dataset, [folder])
        yield dataset


def story(dataset: Dataset) -> list[Document]:
    passages = [document for document in dataset if document.metadata["source"].endswith("story.md")]
    return sorted(passages, key=lambda document: int(document.metadata["position"]))


def test_overlaps_of_indexed_passages_are_not_repeated(indexed_dataset: Dataset) -> None:
    passages = story(indexed_dataset)
    assert any(second.metadata["start"] < first.metadata["end"] for first, second in pairwise(passages))
    index = next(index for index, passage in enumerate(passages) if "number 40 " in passage.text)
    outcome = WindowExpander(indexed_dataset, 1, 1).refine(Query("x"), ranking(passages[index]), 5)
    text = outcome.hits[0].text
    numbers = [number for number in range(80) if f"number {number} " in text]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert all(text.count(f"number {number} ") == 1 for number in numbers)
    assert all(passage.text in text for passage in passages[index - 1 : index + 2])
    start, end = outcome.hits[0].metadata["start"], outcome.hits[0].metadata["end"]
    assert end - start == len(text)
    full_text = WindowExpander(indexed_dataset, 99, 99).refine(Query("x"), ranking(passages[index]), 5).hits[0].text
    assert text in full_text
    assert "How it all began" in full_text
    assert "It ended." in full_text


def test_the_section_of_indexed_passages_is_put_together(indexed_dataset: Dataset) -> None:
    passages = story(indexed_dataset)
    middle = [passage for passage in passages if "railway" in passage.text]
    outcome = ParentExpander(indexed_dataset).refine(Query("x"), ranking(middle[2], passages[0], middle[0]), 5)
    assert [hit.id for hit in outcome.hits] == [middle[2].id, passages[0].id]
    text = outcome.hits[0].text
    assert [text.count(f"number {number} ") for number in range(80)] == [1] * 80
    assert "ended" not in text
    assert outcome.hits[1].document == passages[0]


def test_rows_of_an_indexed_table_stay_alone(indexed_dataset: Dataset) -> None:
    rows = [document for document in indexed_dataset if document.metadata["source"].endswith(".csv")]
    outcome = WindowExpander(indexed_dataset).refine(Query("x"), ranking(*rows), 5)
    assert [hit.document for hit in outcome.hits] == rows


def test_what_was_widened_is_compressed_with_offsets_into_it(indexed_dataset: Dataset) -> None:
    wide = WindowExpander(indexed_dataset, 2, 2).refine(Query("x"), ranking(story(indexed_dataset)[3]), 5)
    outcome = ExtractiveCompressor(max_chars=200).refine(Query("sentence number 40"), wide, 5)
    excerpt = outcome.hits[0].excerpt
    assert excerpt is not None
    assert excerpt.text == " … ".join(outcome.hits[0].document.text[start:end] for start, end in excerpt.spans)


@pytest.mark.parametrize(
    ("expander", "wrong"),
    [
        (WindowExpander, {"fetch": SHELF, "before": -1}),
        (WindowExpander, {"fetch": SHELF, "after": 1.5}),
        (WindowExpander, {"fetch": SHELF, "after": True}),
        (WindowExpander, {"fetch": object()}),
        (ParentExpander, {"fetch": None}),
    ],
)
def test_wrong_arguments_are_input_errors(expander: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        expander(**wrong)


def test_a_dataset_is_a_store() -> None:
    assert isinstance(Dataset("x"), PassageStore)
