"""The quantised vector list finds what an exact scan finds, also where vectors are hard to tell apart (I9).
benchmarks/vector_recall.py measures it over 56,000 passages."""

from __future__ import annotations

import sys
from pathlib import Path

import faiss
import numpy as np
import pytest

from pointsman.store.local.columns.metadata_columns import Columns
from pointsman.store.local.vectors import vector_base, vector_codes, vector_index, vector_query
from pointsman.store.local.vectors.vector_index import VectorIndex
from pointsman.store.local.vectors.vector_rows import ExactRows
from pointsman.values.filters import Range

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from typing import TYPE_CHECKING, Any

from vector_recall import DIMENSIONS, Drawn, kinds, no_scan, recall, unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

COUNT = 8000


def least_recall(folder: Path, vectors: NDArray[np.float32], crowd: NDArray[np.float32]) -> float:
    rng = np.random.default_rng(3)
    columns = Columns(lambda: ((key, {"share": key / COUNT}) for key in range(1, COUNT + 1)), no_scan)
    index = VectorIndex(folder / "vectors.bin", Drawn(vectors), identity="x", dimensions=DIMENSIONS, columns=columns)
    index.catch_up(save=True)
    recalls = []
    for row in rng.integers(len(crowd), size=10):
        query = unit(crowd[row : row + 1] + 0.01 * rng.normal(size=(1, DIMENSIONS)))[0]
        scores = vectors @ query
        recalls.append(recall(scores, index.search(query, 10)))
        latter = np.where(np.arange(1, COUNT + 1) / COUNT > 0.3, scores, -2)
        recalls.append(recall(latter, index.search(query, 10, Range("share", gt=0.3))))
    index.close()
    return min(recalls)


@pytest.fixture(autouse=True)
def quantise_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_base, "_EXACT_ROWS", 1000)
    monkeypatch.setattr(vector_index, "_ROUNDED_ROWS", 1000)
    monkeypatch.setattr(vector_codes, "_LISTED_ROWS", 1)


@pytest.mark.parametrize("kind", ["even", "near copies"])
def test_what_is_hard_to_tell_apart_is_found(kind: str, tmp_path: Path) -> None:
    vectors_by_kind = {name: (rows, crowd) for name, rows, crowd in kinds(COUNT, np.random.default_rng(13))}
    assert least_recall(tmp_path, *vectors_by_kind[kind]) >= 0.9


def test_without_widening_near_copies_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would show nothing."""
    monkeypatch.setattr(vector_query, "_DEVIATIONS", vector_query._Deviations(-1e9, -1e9, 4.0))
    vectors_by_kind = {name: (rows, crowd) for name, rows, crowd in kinds(COUNT, np.random.default_rng(13))}
    assert least_recall(tmp_path, *vectors_by_kind["near copies"]) < 0.9


def test_without_lists_further_away_neighbours_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor would it of the lists: where vectors lie evenly, the nearest are in many of them."""
    monkeypatch.setattr(vector_query, "_DEVIATIONS", vector_query._Deviations(3.5, 2.0, 0.0))
    vectors_by_kind = {name: (rows, crowd) for name, rows, crowd in kinds(COUNT, np.random.default_rng(13))}
    assert least_recall(tmp_path, *vectors_by_kind["even"]) < 0.9


def test_clusters_whose_codes_leave_out_more_of_those_near_the_query(tmp_path: Path) -> None:
    """A list has several clusters; what its codes cannot say of one of them, they leave out of all its rows."""
    random = np.random.default_rng(19)
    centres = unit(random.normal(size=(100, DIMENSIONS)))
    cluster_of_row = random.integers(100, size=COUNT)
    rows = unit(centres[cluster_of_row] + 0.65 / DIMENSIONS**0.5 * random.normal(size=(COUNT, DIMENSIONS)))
    columns = Columns(lambda: ((key, {"share": key / COUNT}) for key in range(1, COUNT + 1)), no_scan)
    index = VectorIndex(tmp_path / "vectors.bin", Drawn(rows), identity="x", dimensions=DIMENSIONS, columns=columns)
    index.catch_up(save=True)
    for query in unit(centres[:20] + 0.65 / DIMENSIONS**0.5 * random.normal(size=(20, DIMENSIONS))):
        for share in (0.0, 0.5, 0.7):
            scores = np.where(np.arange(1, COUNT + 1) / COUNT > share, rows @ query, -2)
            assert recall(scores, index.search(query, 100, Range("share", gt=share)), 100) >= 0.99
    index.close()


def test_errors_are_judged_by_the_best_candidates_too() -> None:
    """Of 1,000 candidates, the 100 of the query's cluster are scored too low by .07, and the others by nothing."""
    random = np.random.default_rng(23)
    scores = np.concatenate([random.uniform(0.69, 0.7, 100), random.uniform(0.1, 0.2, 900)]).astype(np.float32)
    rough = scores - np.where(np.arange(1000) < 100, np.float32(0.07), np.float32(0.0))
    greatest = vector_query._greatest_error(scores, rough, np.arange(100), vector_query._DEVIATIONS, 0.016)
    assert greatest == pytest.approx(0.07 + 2 * 0.016, abs=1e-6)


@pytest.mark.filterwarnings("error")
def test_the_very_best_of_a_crowd_and_of_one_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One candidate has no lower half, and small bases have no lists to choose from."""
    for listed_rows in (1, COUNT):
        monkeypatch.setattr(vector_codes, "_LISTED_ROWS", listed_rows)
        for name, rows, crowd in list(kinds(COUNT, np.random.default_rng(13)))[::2]:
            path, columns = tmp_path / f"{name}-{listed_rows}", Columns(lambda: iter(()), no_scan)
            index = VectorIndex(path, Drawn(rows), identity="x", dimensions=DIMENSIONS, columns=columns)
            index.catch_up(save=True)
            for row in crowd[:10]:
                assert recall(rows @ row, index.search(row, 1), 1) == 1, name
            index.close()


def test_thousands_of_the_same_vector_are_ranked_by_key(tmp_path: Path) -> None:
    """Their codes are the same, and leave out the same, so that nothing tells the first candidates from the others."""
    rows = np.repeat(unit(np.random.default_rng(5).normal(size=(2, DIMENSIONS))), COUNT // 2, axis=0)
    columns = Columns(lambda: iter(()), no_scan)
    index = VectorIndex(tmp_path / "vectors.bin", Drawn(rows), identity="x", dimensions=DIMENSIONS, columns=columns)
    index.catch_up(save=True)
    for number in (0, 1):
        first = 1 + number * COUNT // 2
        assert [key for key, _ in index.search(rows[first], 10)] == list(range(first, first + 10))
    index.close()


def test_file_is_searched_through_the_map_that_was_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another map would be of a file replaced meanwhile, and its pages would be fetched one by one by searches."""
    vectors = unit(np.random.default_rng(5).normal(size=(COUNT, DIMENSIONS)))
    columns = Columns(lambda: iter(()), no_scan)

    def open_index() -> VectorIndex:
        return VectorIndex(
            tmp_path / "vectors.bin", Drawn(vectors), identity="x", dimensions=DIMENSIONS, columns=columns
        )

    open_index().catch_up(save=True)
    maps: list[Path] = []
    memmap = np.memmap

    def count_maps(path: Path, *arguments: Any) -> Any:
        maps.append(path)
        return memmap(path, *arguments)

    monkeypatch.setattr(np, "memmap", count_maps)
    index = open_index()
    assert len(index.search(vectors[0], 5)) == 5
    assert maps.count(tmp_path / "vectors.bin") == 1


def test_a_view_of_half_takes_all_rows_whose_codes_are_near_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many for the first candidates, and too few to compare all rows: exactly the best ones, to the last digit."""
    random = np.random.default_rng(17)
    rows = unit(random.normal(size=(COUNT, DIMENSIONS)))
    columns = Columns(lambda: iter(()), no_scan)
    index = VectorIndex(tmp_path / "vectors.bin", Drawn(rows), identity="x", dimensions=DIMENSIONS, columns=columns)
    index.catch_up(save=True)
    subset = index.subset(np.arange(1, COUNT + 1, 2))
    candidate_counts = []
    quantised_top = vector_query._quantised_top

    def count_candidates(*arguments: Any) -> Any:
        candidates = quantised_top(*arguments)
        candidate_counts.append(0 if candidates is None else len(candidates[0]))
        return candidates

    monkeypatch.setattr(vector_query, "_quantised_top", count_candidates)
    for question in unit(random.normal(size=(20, DIMENSIONS))):
        scores = np.einsum("ij,j->i", rows[::2], question)
        best = np.lexsort((np.arange(len(scores)), -scores))[:20]
        hits = index.query(question, subset).search(20)
        assert hits == list(zip((2 * best + 1).tolist(), scores[best].tolist(), strict=True))
    assert 8 * 20 + 200 < max(candidate_counts) <= COUNT // 4
    index.close()


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_codes_are_scanned_for_one_query_as_for_many(share: float) -> None:
    """It is faster, and finds the same rows with the same scores."""
    rng = np.random.default_rng(5)
    vectors = unit(rng.normal(size=(COUNT, DIMENSIONS)))
    codes = vector_codes.quantise(ExactRows(vectors))
    default_index: Any = faiss.deserialize_index(faiss.serialize_index(codes.index))
    inverted_file: Any = faiss.downcast_index(default_index.index)
    inverted_file.implem = 0
    valid = None if share == 1 else rng.random(COUNT) < share
    for query in unit(rng.normal(size=(5, DIMENSIONS))):
        codes_query = vector_codes.CodesQuery(codes, query, valid, 3.5)
        for lists in (3, codes.list_count):
            scores, rows = codes_query.search(60, lists)
            (expected,), (rows_of_many,) = default_index.search(query[None], 60, params=codes_query._parameters(lists))
            assert scores.tolist() == expected.tolist()
            surely = scores > scores[-1]  # of rows that tie for the last place, either may come
            assert {*rows[surely].tolist()} == {*rows_of_many[expected > expected[-1]].tolist()}


def test_more_candidates_are_compared_out_of_the_same_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To scan the codes again would take longer than all the rest."""
    monkeypatch.setattr(vector_codes, "_LISTED_ROWS", COUNT + 1)
    monkeypatch.setattr(vector_query, "_FIRST", 100)
    vectors = unit(np.random.default_rng(8).normal(size=(COUNT, DIMENSIONS)))
    scans, compared = list[int](), list[int]()
    parameters, top = vector_codes.CodesQuery._parameters, vector_query._quantised_top

    def note_scan(query: Any, lists: int) -> Any:
        scans.append(lists)
        return parameters(query, lists)

    def note_candidates(*arguments: Any) -> Any:
        candidates = top(*arguments)
        assert candidates is not None
        compared.append(len(candidates[0]))
        return candidates

    monkeypatch.setattr(vector_codes.CodesQuery, "_parameters", note_scan)
    monkeypatch.setattr(vector_query, "_quantised_top", note_candidates)
    columns = Columns(lambda: ((key, {}) for key in range(1, COUNT + 1)), no_scan)
    index = VectorIndex(tmp_path / "vectors.bin", Drawn(vectors), identity="x", dimensions=DIMENSIONS, columns=columns)
    index.catch_up(save=True)
    for vector in vectors[:10]:
        index.search(vector, 10)
    first_count = vector_query._OVERFETCH * 10 + 100
    assert (len(scans), max(compared) > first_count) == (10, True), compared
    index.close()


def test_where_lists_exclude_nothing_all_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the next search is of a part of the documents, whose work must not depend on what others asked."""
    lists_read: list[int] = []
    search = vector_codes.CodesQuery.search

    def counted(query: Any, limit: int, lists: int) -> Any:
        lists_read.append(lists)
        return search(query, limit, lists)

    monkeypatch.setattr(vector_codes.CodesQuery, "search", counted)
    vectors = unit(np.random.default_rng(6).normal(size=(COUNT, DIMENSIONS)))
    columns = Columns(lambda: ((key, {}) for key in range(1, COUNT + 1)), no_scan)
    index = VectorIndex(tmp_path / "vectors.bin", Drawn(vectors), identity="x", dimensions=DIMENSIONS, columns=columns)
    index.catch_up(save=True)
    first_ranking, first_lists = index.search(vectors[0], 10), lists_read.copy()
    lists_read.clear()
    assert index.search(vectors[0], 10) == first_ranking
    assert (first_lists[0] < first_lists[-1], lists_read) == (True, [first_lists[-1]])
    lists_read.clear()
    index.query(vectors[0], repeatable=True).search(10)
    assert lists_read[0] == first_lists[0]
    index.close()
