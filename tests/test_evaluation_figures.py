"""Figures and whether they mean anything: by hand, against trec_eval's own code, and in odd cases."""

from __future__ import annotations

import random
import sys
from math import log2

import pytest

from pointsman.evaluation import compare, measure
from pointsman.tools.errors import InputError, MissingDependencyError


def test_figures_by_hand() -> None:
    qrels = {"q": {"best": 3, "good": 1, "bad": 0, "never found": 2}}
    means = measure(qrels, {"q": ["bad", "good", "unjudged", "best"]}, k=3, depth=4).means
    ideal = 3 / log2(2) + 2 / log2(3) + 1 / log2(4)
    assert means == pytest.approx(
        {
            "ndcg@3": 1 / log2(3) / ideal,
            "recall@3": 1 / 3,
            "recall@4": 2 / 3,
            "precision@3": 1 / 3,
            "mrr@3": 1 / 2,
        },
        abs=1e-9,
    )


def test_reciprocal_rank_stops_at_the_cutoff() -> None:
    ranking = {"q": ["x"] + [f"x{n}" for n in range(9)] + ["right"]}
    assert measure({"q": {"right": 1}}, ranking).means["mrr@10"] == 0
    assert measure({"q": {"right": 1}}, ranking, k=11).means["mrr@11"] == pytest.approx(1 / 11)


@pytest.mark.parametrize("seed", range(5))
def test_equal_to_trec_eval(seed: int) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    chance = random.Random(seed)
    documents = [f"d{n}" for n in range(300)]
    qrels = {
        f"q{n}": {document: chance.randint(0, 3) for document in chance.sample(documents, chance.randint(1, 40))}
        for n in range(30)
    }
    rankings = {query: chance.sample(documents, chance.randint(1, 150)) for query in list(qrels)[:25]}
    rankings["unjudged"] = documents
    run = {
        query: {document: 1 / rank for rank, document in enumerate(ranking, 1)} for query, ranking in rankings.items()
    }
    top = {query: dict(list(scores.items())[:10]) for query, scores in run.items()}
    trec_values = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_10", "recall_10", "recall_100", "P_10"}).evaluate(
        run
    )
    first = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(top)
    own_values = measure(qrels, rankings).per_query
    names = {"ndcg@10": "ndcg_cut_10", "recall@10": "recall_10", "recall@100": "recall_100", "precision@10": "P_10"}
    assert set(own_values) == {*names, "mrr@10"}
    for query in qrels:
        for name, trec_name in names.items():
            assert own_values[name][query] == pytest.approx(trec_values.get(query, {}).get(trec_name, 0), abs=1e-12)
        assert own_values["mrr@10"][query] == pytest.approx(first.get(query, {}).get("recip_rank", 0), abs=1e-12)


def test_the_order_given_counts_whatever_the_ids_are() -> None:
    for right, wrong in (("a", "z"), ("z", "a"), ("10", "9"), ("9", "10")):
        assert measure({"q": {right: 1}}, {"q": [right, wrong]}, k=1).means["ndcg@1"] == 1
        assert measure({"q": {right: 1}}, {"q": [wrong, right]}, k=1).means["ndcg@1"] == 0


def test_a_ranking_deeper_than_single_precision_can_count_keeps_its_order() -> None:
    ranking = [f"d{n}" for n in range(5000)]
    assert measure({"q": {"d4999": 1}}, {"q": ranking}, k=5000).means["mrr@5000"] == pytest.approx(1 / 5000)


def test_unjudged_queries_are_left_out_and_unanswered_ones_count_nothing() -> None:
    figures = measure({"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 0}}, {"q1": ["a"], "q3": ["a"], "other": ["a"]})
    assert figures.per_query["ndcg@10"] == {"q1": 1, "q2": 0, "q3": 0}
    assert figures.means["ndcg@10"] == pytest.approx(1 / 3)


def test_no_query_at_all() -> None:
    assert measure({}, {}).means == dict.fromkeys(("ndcg@10", "recall@10", "recall@100", "precision@10", "mrr@10"), 0)


def test_a_grade_below_zero_is_not_relevant() -> None:
    assert (
        measure({"q": {"a": -2, "b": 1}}, {"q": ["a", "b"]}).means
        == measure({"q": {"a": 0, "b": 1}}, {"q": ["a", "b"]}).means
    )


def test_an_id_repeated_counts_where_it_is_first() -> None:
    assert measure({"q": {"a": 1, "b": 1}}, {"q": ["a", "a", "b"]}, k=2).means["recall@2"] == 1
    assert measure({"q": {"a": 1}}, {"q": ["a", "x", "a"]}).means["mrr@10"] == 1


@pytest.mark.parametrize("id_", ["with space", "tab\there", "nul\0", "\ud800", "ё/日本#🙂", '"quoted"', "-1", "\u2028"])
def test_any_id_will_do(id_: str) -> None:
    assert measure({id_: {id_: 1}}, {id_: ["other", id_]}).per_query["mrr@10"] == {id_: 0.5}


# ── significance ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_its_extra_measuring_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'pointsman\[eval\]'"):
        measure({}, {})


def test_no_difference_is_no_evidence() -> None:
    values = {str(n): n / 10 for n in range(10)}
    comparison = compare(values, values)
    assert (comparison.difference, comparison.p) == (0, 1)


def test_p_by_hand() -> None:
    # all of 2^4 sign patterns are equally likely; only ++++ and ---- reach the sum observed
    comparison = compare(dict.fromkeys("abcd", 0.7), dict.fromkeys("abcd", 0.4), permutations=20_000)
    assert comparison.difference == pytest.approx(0.3)
    assert comparison.p == pytest.approx(2 / 16, abs=0.01)


def test_a_clear_difference_is_seen_and_the_order_of_the_two_does_not_matter() -> None:
    chance = random.Random(1)
    weak = {str(n): chance.random() for n in range(100)}
    strong = {query: value + 0.1 * chance.random() for query, value in weak.items()}
    strong_first, weak_first = compare(strong, weak), compare(weak, strong)
    assert strong_first.p == weak_first.p == 1 / 10_001
    assert strong_first.difference == -weak_first.difference > 0
    assert compare(strong, weak) == strong_first


def test_chance_alone_is_called_significant_about_as_often_as_it_says() -> None:
    chance = random.Random(2)
    rows = [{str(n): chance.gauss(0, 1) for n in range(40)} for _ in range(400)]
    alarms = [
        compare(first, second, permutations=400).p <= 0.05 for first, second in zip(rows[::2], rows[1::2], strict=True)
    ]
    assert 2 <= sum(alarms) <= 22  # 10 of 200 expected; both ends are some 4 deviations away or at a power of none


def test_other_queries_cannot_be_paired() -> None:
    with pytest.raises(InputError, match="the same queries"):
        compare({"a": 1.0}, {"b": 1.0})
    with pytest.raises(InputError, match="the same queries"):
        compare({}, {})
