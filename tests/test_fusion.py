"""Fusion has laws; most of these tests are the laws."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.retrieval.fusion import METHODS, CosineSpread, calibrated_sum, fuse, reciprocal_rank, share_by
from pointsman.tools.errors import InputError, UnknownNameError

Lists = list[list[tuple[str, float | None]]]
names = st.sampled_from([f"d{number}" for number in range(8)])
scores = st.integers(-50, 50).map(float)


def sorted_ranking(votes: dict[str, float]) -> list[tuple[str, float | None]]:
    return [(key, votes[key]) for key in sorted(votes, key=lambda key: -votes[key])]


rankings_with_scores = st.dictionaries(names, scores, max_size=6).map(sorted_ranking)
rankings_without_scores = st.lists(st.tuples(names, st.none()), max_size=6)  # with repeats
rankings = st.one_of(rankings_with_scores, rankings_without_scores)
lists_of = st.lists(rankings, max_size=4)
methods = st.sampled_from(sorted(METHODS))


@given(lists_of, methods)
def test_the_union_without_repeats_in_order(lists: Lists, method: str) -> None:
    ranking = fuse(lists, method)
    keys = [key for key, _ in ranking]
    assert set(keys) == {key for ranking in lists for key, _ in ranking}
    assert len(keys) == len(set(keys))
    assert [score for _, score in ranking] == sorted((score for _, score in ranking), reverse=True)
    assert all(math.isfinite(score) for _, score in ranking)


@given(lists_of, methods, st.randoms(use_true_random=False))
def test_the_order_of_the_lists_decides_nothing_but_ties(lists: Lists, method: str, random: Any) -> None:
    permutation = list(lists)
    random.shuffle(permutation)
    assert dict(fuse(permutation, method)) == dict(fuse(lists, method))  # to the last bit


@given(lists_of, methods)
def test_ties_go_by_best_rank_then_by_the_first_list_that_has_it(lists: Lists, method: str) -> None:
    plain = [list(dict.fromkeys(key for key, _ in ranking)) for ranking in lists]
    order_of_meeting = {
        key: min((keys.index(key), number) for number, keys in enumerate(plain) if key in keys)
        for key in {key for keys in plain for key in keys}
    }
    ranking = fuse(lists, method)
    assert ranking == sorted(ranking, key=lambda hit: (-hit[1], order_of_meeting[hit[0]]))


@given(lists_of, methods, rankings, st.integers(0, 4), st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_weight_zero_is_the_list_removed(
    lists: Lists, method: str, extra: list[tuple[str, float | None]], position: int, weights: list[int]
) -> None:
    position = min(position, len(lists))
    list_weights = [float(weight) for weight in weights[: len(lists)]]
    with_extra = [*lists[:position], extra, *lists[position:]]
    assert fuse(with_extra, method, [*list_weights[:position], 0, *list_weights[position:]]) == fuse(
        lists, method, list_weights
    )


@given(lists_of, methods)
def test_equal_weights_do_not_change_the_order(lists: Lists, method: str) -> None:
    double = fuse(lists, method, [2.0] * len(lists))
    assert double == [(key, 2 * score) for key, score in fuse(lists, method)]


@given(lists_of, methods, rankings)
def test_only_the_first_vote_of_a_list_counts(
    lists: Lists, method: str, ranking: list[tuple[str, float | None]]
) -> None:
    repeating = [*ranking, *((key, None if score is None else -1000.0) for key, score in ranking)]
    assert fuse([*lists, repeating], method) == fuse([*lists, ranking], method)


@given(st.lists(rankings_with_scores, max_size=4), st.sampled_from(["rrf", "weighted_rrf", "round_robin"]))
def test_rank_methods_do_not_see_scores(lists: Lists, method: str) -> None:
    monotone: Lists = [[(key, math.atan(score or 0.0)) for key, score in ranking] for ranking in lists]
    bare: Lists = [[(key, None) for key, _ in ranking] for ranking in lists]
    assert fuse(monotone, method) == fuse(lists, method) == fuse(bare, method)


@given(
    st.lists(rankings_with_scores, max_size=4),
    st.sampled_from(["min_max", "z_score", "dbsf"]),
    st.sampled_from([0.001, 3.0, 1e6]),
    st.sampled_from([-7.0, 0.0, 1.5]),
)
def test_score_methods_do_not_see_scale_and_offset(lists: Lists, method: str, scale: float, offset: float) -> None:
    affine: Lists = [[(key, scale * (score or 0.0) + scale * offset) for key, score in ranking] for ranking in lists]
    assert dict(fuse(affine, method)) == pytest.approx(dict(fuse(lists, method)), abs=1e-9)


@given(st.lists(rankings_with_scores.filter(len), min_size=1, max_size=4), methods)
def test_who_is_first_everywhere_is_first(lists: Lists, method: str) -> None:
    with_leader: Lists = [[("best", (ranking[0][1] or 0.0) + 1), *ranking] for ranking in lists]
    assert fuse(with_leader, method)[0][0] == "best"


@given(st.lists(rankings_without_scores, max_size=4), st.sampled_from(["min_max", "z_score", "dbsf"]))
def test_without_scores_the_reciprocal_rank_stands_in(lists: Lists, method: str) -> None:
    unique = [list(dict.fromkeys(key for key, _ in ranking)) for ranking in lists]
    reciprocal: Lists = [[(key, 1 / rank) for rank, key in enumerate(keys, 1)] for keys in unique]
    assert fuse(lists, method) == fuse(reciprocal, method)


def test_a_list_with_a_score_missing_has_ranks_only() -> None:
    partly: Lists = [[("a", 5.0), ("b", None), ("c", 1.0)]]
    assert fuse(partly, "min_max") == fuse([[("a", None), ("b", None), ("c", None)]], "min_max")


@pytest.mark.parametrize(("method", "constant"), [("min_max", 1.0), ("z_score", 0.0), ("dbsf", 0.5)])
@pytest.mark.parametrize("score", [0.0, 0.1, -3.0, 1e308])
def test_zero_variance_gives_the_stated_constant(method: str, constant: float, score: float) -> None:
    assert fuse([[("a", score), ("b", score), ("c", score)]], method) == [(key, constant) for key in "abc"]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_extreme_scores_do_not_overflow(method: str) -> None:
    ranking = fuse([[("a", 1.7e308), ("b", 0.0), ("c", -1.7e308)], [("d", 5e-324), ("e", 0.0)]], method)
    assert all(math.isfinite(score) for _, score in ranking)


def test_worked_figures() -> None:
    lists: Lists = [[("a", 3.0), ("b", 2.0), ("c", 1.0)], [("c", 9.0), ("d", 5.0)]]
    assert dict(reciprocal_rank(lists)) == pytest.approx({"a": 1 / 61, "b": 1 / 62, "c": 1 / 63 + 1 / 61, "d": 1 / 62})
    assert dict(fuse(lists, "weighted_rrf", [1, 3], k=0))["c"] == pytest.approx(1 / 3 + 3)
    assert dict(fuse(lists, "min_max", [2, 1])) == {"a": 2.0, "b": 1.0, "c": 1.0, "d": 0.0}
    deviation = math.sqrt(2 / 3)
    assert dict(fuse(lists, "z_score")) == pytest.approx(
        {"a": 1 / deviation - 1, "b": -1, "c": 1 - 1 / deviation, "d": -1 / deviation - 1}
    )
    assert dict(fuse(lists, "dbsf"))["a"] == pytest.approx(0.5 + 1 / (6 * deviation))
    assert [key for key, _ in fuse(lists, "round_robin")] == ["a", "c", "b", "d"]
    assert [key for key, _ in fuse(lists, "round_robin", [1, 3])] == ["c", "d", "a", "b"]


def test_dbsf_clamps_beyond_three_deviations() -> None:
    outlier: Lists = [[("top", 1000.0), *((f"d{number}", 0.0) for number in range(30))]]
    assert fuse(outlier, "dbsf")[0] == ("top", 1.0)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "1 weights for 2 lists"), ([1, -1], "-1"), ([1, math.nan], "nan"), ([1, math.inf], "inf")],
)
def test_bad_weights_are_refused(method: str, weights: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fuse([[("a", 1.0)], [("b", 1.0)]], method, weights)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_that_are_no_numbers_are_refused_with_their_list(method: str, score: float) -> None:
    with pytest.raises(InputError, match="list 2: the score of 'c'"):
        fuse([[("a", 1.0)], [("b", 1.0), ("c", score)]], method)


def test_names_and_options_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="no fusion method named 'rff'; did you mean 'rrf'"):
        fuse([], "rff")
    with pytest.raises(InputError, match="'k'"):
        fuse([], "min_max", k=3)
    for k in (-1, math.nan, math.inf):
        with pytest.raises(InputError, match="60 is usual"):
            fuse([], k=k)
    assert fuse([]) == []
    assert fuse([[], []], "z_score") == []


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize(
    ("lists", "weights", "message"),
    [
        ([[("a", 1.0)], ["b"]], None, "list 2 is a ranking"),
        ([[("a", 1.0)], 5], None, "list 2 is a ranking"),
        ([[([], 1.0)]], None, "list 1 is a ranking"),
        ([[("a", "high")]], None, "the score of 'a' is 'high'"),
        ([[("a", 10**400)]], None, "the score of 'a' is 1000"),
        ([[("a", 1.0)]], ["high"], "a weight is a finite number from 0 up, not 'high'"),
    ],
)
def test_lists_that_are_no_rankings(method: str, lists: Any, weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fuse(lists, method, weights)


def test_a_function_may_return_no_other_keys() -> None:
    with pytest.raises(InputError, match="returned 'z', which is a key of none of the lists"):
        fuse([[("a", 1.0)]], lambda *_: [("a", 1.0), ("z", 0.5)])


def test_keys_may_be_anything_hashable() -> None:
    assert fuse([[((1, "a"), None), (None, None)]], "rrf")[1][0] is None


candidates = st.lists(st.tuples(scores, st.one_of(st.floats(-1, 1), st.just(math.nan))), max_size=8)


@settings(deadline=None)
@given(candidates)
def test_calibrated_sum_is_its_formula(pairs: list[tuple[float, float]]) -> None:
    words, cosines = [word for word, _ in pairs], [cosine for _, cosine in pairs]
    ranking = calibrated_sum(range(len(pairs)), words, cosines, sigma=0.019)
    lowest = min((cosine for cosine in cosines if not math.isnan(cosine)), default=0.0)
    for key, score in ranking:
        cosine = lowest if math.isnan(cosines[key]) else cosines[key]
        assert score == pytest.approx(words[key] + 3.3 / 0.019 * cosine)
    assert ranking == sorted(ranking, key=lambda hit: (-hit[1], hit[0]))
    assert len(ranking) == len(pairs)


def test_calibrated_sum_leaves_a_side_out_at_weight_zero() -> None:
    keys, words, cosines = ["a", "b"], [1.0, 2.0], [0.9, 0.1]
    assert calibrated_sum(keys, words, cosines, sigma=0.1, weight_cosine=0) == [("b", 2.0), ("a", 1.0)]
    assert calibrated_sum(keys, words, cosines, sigma=1, kappa=1, weight_bm25=0) == [("a", 0.9), ("b", 0.1)]
    assert calibrated_sum(["a", "a"], words, cosines, sigma=1, kappa=1) == [("a", 1.9)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bm25": [1.0]}, "2 keys, 1 of BM25, 2 cosines"),
        ({"bm25": [1.0, math.nan]}, "BM25 scores: the score of 'b' is nan"),
        ({"cosine": [math.nan, math.inf]}, "cosines: the score of 'b' is inf"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"kappa": -1.0}, "kappa"),
        ({"weight_bm25": -1.0}, "weight"),
        ({"weight_cosine": math.nan}, "weight"),
    ],
)
def test_calibrated_sum_refuses_what_it_cannot_use(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"keys": ["a", "b"], "bm25": [1.0, 2.0], "cosine": [0.1, 0.2], "sigma": 0.02}
    with pytest.raises(InputError, match=message):
        calibrated_sum(**arguments | change)


def test_fusion_needs_no_numpy() -> None:
    code = "import sys, pointsman.retrieval.fusion; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("method", ["rrf", "min_max"])
@pytest.mark.parametrize("weights", [{}, {"bm25": 2.0}])
def test_what_lists_add_to_a_score_makes_it_up(method: str, weights: dict[str, float]) -> None:
    lists = {"bm25": [("a", 4.0), ("b", 2.0), ("c", 0.0)], "vector": [("b", 0.9), ("c", 0.8), ("a", 0.1)]}
    totals = dict(fuse(list(lists.values()), method, [weights.get(name, 1.0) for name in lists]))
    share = share_by(method, lists, weights)
    keys = list(totals)
    ranks = {name: [[key for key, _ in ranking].index(key) + 1 for key in keys] for name, ranking in lists.items()}
    added = [[value or 0.0 for value in share(name, keys, ranks[name])] for name in lists]
    assert [sum(values) for values in zip(*added, strict=True)] == pytest.approx(list(totals.values()))


def test_a_spread_shared_by_embedders_without_any_is_one() -> None:
    shared_spread = CosineSpread.shared([CosineSpread(0.25, 0.0), None, CosineSpread(0.75, 0.0)])
    assert shared_spread == CosineSpread(0.5, 1.0)
    assert CosineSpread.shared([None]) is None
