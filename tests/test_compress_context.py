"""More context around hits, and the order in which they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.dataset import Dataset
from pointsman.errors import InputError
from pointsman.indexing import index_paths
from pointsman.retrieval.compress import (
    ExtractiveCompressor,
    LostInTheMiddle,
    ParentExpander,
    PassageStore,
    WindowExpander,
    lost_in_the_middle,
)
from pointsman.types import Document, Excerpt, Hit, Provenance, Query, Ranked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Refine = Callable[..., Ranked]


@pytest.fixture(params=["sync", "async"])
def refine(request: pytest.FixtureRequest) -> Refine:
    """``refine`` or its twin: everything here holds for both."""
    if request.param == "sync":
        return lambda one, ranked, top_k=10: one.refine(Query("x"), ranked, top_k)
    return lambda one, ranked, top_k=10: asyncio.run(one.arefine(Query("x"), ranked, top_k))


class Shelf:
    """A store in memory, as anybody may write one."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = {document.id: document for document in documents}

    def get(self, id: str) -> Document | None:  # noqa: A002
        return self.documents.get(id)

    def ids(self, *, source: str | None = None) -> list[str]:
        return [one.id for one in self.documents.values() if source is None or one.metadata.get("source") == source]


def passage(number: int, source: str = "a.txt", **more: Any) -> Document:
    return Document(f"{source}-{number}", f"Passage {number}.", {"source": source, "position": number, **more})


def ranked(*documents: Document, dataset: str | None = None) -> Ranked:
    hits = [
        Hit(document, 1 / rank, dataset, (Provenance("bm25", rank, 9.0 - rank),))
        for rank, document in enumerate(documents, 1)
    ]
    return Ranked(tuple(hits), "bm25")


SHELF = Shelf([passage(number) for number in (5, 3, 1, 0, 2, 4)] + [passage(number, "b.txt") for number in range(3)])


# ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "after", "at", "numbers"),
    [(1, 1, 2, [1, 2, 3]), (0, 2, 2, [2, 3, 4]), (2, 0, 1, [0, 1]), (9, 9, 3, [0, 1, 2, 3, 4, 5]), (1, 1, 5, [4, 5])],
)
def test_a_hit_gets_its_neighbours(refine: Refine, before: int, after: int, at: int, numbers: list[int]) -> None:
    given_ = ranked(passage(at))
    found = refine(WindowExpander(SHELF, before, after), given_)
    (hit,) = found.hits
    assert hit.text == "\n\n".join(f"Passage {number}." for number in numbers)
    assert hit.metadata["passages"] == [f"a.txt-{number}" for number in numbers]
    assert (hit.id, hit.score, hit.provenance) == ("a.txt-" + str(at), 1.0, given_.hits[0].provenance)
    assert given_ == ranked(passage(at))
    assert found.scale == "bm25"


def test_hits_whose_windows_meet_become_one_in_the_better_place(refine: Refine) -> None:
    found = refine(WindowExpander(SHELF), ranked(passage(4), passage(1, "b.txt"), passage(2), passage(0)))
    assert [hit.id for hit in found.hits] == ["a.txt-4", "b.txt-1"]
    assert found.hits[0].metadata["passages"] == [f"a.txt-{number}" for number in range(6)]
    assert [one.rank for one in found.hits[0].provenance] == [1, 3, 4]
    assert found.dropped == {
        (None, "a.txt-2"): "part of 'a.txt-4' now",
        (None, "a.txt-0"): "part of 'a.txt-4' now",
    }
    assert found.detail == "2 of 4 hits have more context, 2 became part of them"


def test_windows_apart_stay_apart() -> None:
    found = WindowExpander(SHELF, 0, 1).refine(Query("x"), ranked(passage(3), passage(0)), 5)
    assert [hit.metadata["passages"] for hit in found.hits] == [["a.txt-3", "a.txt-4"], ["a.txt-0", "a.txt-1"]]


def test_a_window_of_nothing_changes_nothing(refine: Refine) -> None:
    given_ = ranked(passage(3), passage(0))
    assert refine(WindowExpander(SHELF, 0, 0), given_).hits == given_.hits


def test_a_hit_without_a_known_place_stays_and_is_told(refine: Refine) -> None:
    strange = [Document("x", "No source."), Document("y", "Not stored.", {"source": "a.txt", "position": 1})]
    found = refine(WindowExpander(SHELF), ranked(*strange, passage(3)))
    assert [hit.document for hit in found.hits[:2]] == strange
    assert found.detail == "1 of 3 hits have more context, 0 became part of them; 2 without a known place in a source"


def test_only_the_hits_of_the_answer_are_widened(refine: Refine) -> None:
    found = refine(WindowExpander(SHELF), ranked(passage(4), passage(0)), 1)
    assert [hit.id for hit in found.hits] == ["a.txt-4"]
    assert found.dropped == {(None, "a.txt-0"): "below the cut: only the hits of the answer get more context"}


def test_records_of_a_table_are_no_neighbours() -> None:
    rows = [
        Document(f"{name}-{number}", f"{name}{number}", {"source": "t.csv", "position": number, "parent": name})
        for name in ("one", "two")
        for number in range(2)
    ]
    found = WindowExpander(Shelf(rows)).refine(Query("x"), ranked(rows[1], rows[2]), 5)
    assert [hit.metadata["passages"] for hit in found.hits] == [["one-0", "one-1"], ["two-0", "two-1"]]


def test_an_excerpt_of_before_does_not_outlive_its_text() -> None:
    hit = replace(ranked(passage(3)).hits[0], excerpt=Excerpt("Pass", ((0, 4),)))
    found = WindowExpander(SHELF).refine(Query("x"), Ranked((hit,), "bm25"), 5)
    assert found.hits[0].excerpt is None


class Failing(Shelf):
    def ids(self, *, source: str | None = None) -> list[str]:
        raise OSError("disk gone")

    def get(self, id: str) -> Document | None:  # noqa: A002
        raise OSError("disk gone")


@pytest.mark.parametrize("expander", [WindowExpander, ParentExpander])
def test_a_look_up_that_fails_is_told_and_leaves_hits_as_they_are(refine: Refine, expander: Any) -> None:
    given_ = ranked(passage(3, parent="p"), passage(4, parent="q"))
    found = refine(expander(Failing([])), given_)
    assert found.hits == given_.hits
    assert found.degraded == ("expand: a look-up failed, hits stay as they were: OSError: disk gone",)


@pytest.mark.parametrize("several", ["mapping", "function"])
def test_several_datasets_are_asked_by_name(refine: Refine, several: str) -> None:
    stores: dict[str | None, PassageStore] = {"one": SHELF, "two": Shelf([passage(1), passage(2)])}
    expander = WindowExpander(stores if several == "mapping" else stores.get, 1, 1)
    found = refine(
        expander,
        Ranked(
            (
                *ranked(passage(1), dataset="one").hits,
                *ranked(passage(1), dataset="two").hits,
                *ranked(passage(1), dataset="three").hits,
            ),
            "bm25",
        ),
    )
    assert [len(hit.metadata.get("passages", ())) for hit in found.hits] == [3, 2, 0]
    assert "1 without a known place" in found.detail


# ── parents ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parts_of_one_parent_become_it_with_the_best_score(refine: Refine) -> None:
    parent = Document("p", "The whole story.", {"kind": "story"})
    children = [Document(f"c{number}", f"part {number}", {"parent": "p"}) for number in range(3)]
    given_ = ranked(children[1], Document("x", "alone"), children[0])
    found = refine(ParentExpander(Shelf([parent, *children])), given_)
    assert [hit.document for hit in found.hits] == [parent, Document("x", "alone")]
    assert found.hits[0].score == 1.0
    assert [one.rank for one in found.hits[0].provenance] == [1, 3]
    assert found.dropped == {(None, "c0"): "part of 'c1' now"}
    assert "1 without a parent" in found.detail


def test_a_parent_that_is_missing_keeps_the_child_and_is_told(refine: Refine) -> None:
    child = Document("c", "part", {"section": "nowhere"})
    found = refine(ParentExpander(Shelf([child]), "section"), ranked(child))
    assert found.hits[0].document == child
    assert found.detail == "0 of 1 hits have more context, 0 became part of them; 1 whose parent is not stored"
    assert found.degraded == ()


# ── what pointsman index makes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def indexed(tmp_path: Path) -> Iterator[Dataset]:
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
    found = [one for one in dataset if one.metadata["source"].endswith("story.md")]
    return sorted(found, key=lambda one: int(one.metadata["position"]))


def test_overlaps_of_indexed_passages_are_not_repeated(indexed: Dataset) -> None:
    passages = story(indexed)
    assert any(after.metadata["start"] < before.metadata["end"] for before, after in pairwise(passages))
    at = next(place for place, one in enumerate(passages) if "number 40 " in one.text)
    found = WindowExpander(indexed, 1, 1).refine(Query("x"), ranked(passages[at]), 5)
    text = found.hits[0].text
    inside = [number for number in range(80) if f"number {number} " in text]
    assert inside == list(range(inside[0], inside[-1] + 1))
    assert all(text.count(f"number {number} ") == 1 for number in inside)
    assert all(one.text in text for one in passages[at - 1 : at + 2])
    start, end = found.hits[0].metadata["start"], found.hits[0].metadata["end"]
    assert end - start == len(text)
    whole = WindowExpander(indexed, 99, 99).refine(Query("x"), ranked(passages[at]), 5).hits[0].text
    assert text in whole
    assert "How it all began" in whole
    assert "It ended." in whole


def test_the_section_of_indexed_passages_is_put_together(indexed: Dataset) -> None:
    passages = story(indexed)
    middle = [one for one in passages if "railway" in one.text]
    found = ParentExpander(indexed).refine(Query("x"), ranked(middle[2], passages[0], middle[0]), 5)
    assert [hit.id for hit in found.hits] == [middle[2].id, passages[0].id]
    text = found.hits[0].text
    assert [text.count(f"number {number} ") for number in range(80)] == [1] * 80
    assert "ended" not in text
    assert found.hits[1].document == passages[0]


def test_rows_of_an_indexed_table_stay_alone(indexed: Dataset) -> None:
    rows = [one for one in indexed if one.metadata["source"].endswith(".csv")]
    found = WindowExpander(indexed).refine(Query("x"), ranked(*rows), 5)
    assert [hit.document for hit in found.hits] == rows


def test_what_was_widened_is_compressed_with_offsets_into_it(indexed: Dataset) -> None:
    wide = WindowExpander(indexed, 2, 2).refine(Query("x"), ranked(story(indexed)[3]), 5)
    found = ExtractiveCompressor(max_chars=200).refine(Query("sentence number 40"), wide, 5)
    excerpt = found.hits[0].excerpt
    assert excerpt is not None
    assert excerpt.text == " … ".join(found.hits[0].document.text[start:end] for start, end in excerpt.spans)


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


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(), unique=True, max_size=12))
def test_the_better_a_hit_the_nearer_to_an_end(items: list[int]) -> None:
    found = lost_in_the_middle(items)
    assert sorted(found) == sorted(items)
    ends = [min(place, len(items) - 1 - place) for place in map(found.index, items)]
    assert ends == sorted(ends)
    if items:
        assert found[0] == items[0]


def test_as_a_stage_it_orders_the_hits_of_the_answer(refine: Refine) -> None:
    found = refine(LostInTheMiddle(), ranked(*[passage(number) for number in range(6)]), 5)
    assert [hit.id[-1] for hit in found.hits] == ["0", "2", "4", "3", "1"]
    assert list(found.dropped) == [(None, "a.txt-5")]
    assert LostInTheMiddle.stage == "order"
