"""The automatic choice: weights from evidence, absent scripts; and fitting it to labels."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pointsman import (
    CorruptStoreError,
    Dataset,
    Document,
    InputError,
    Query,
    RetrievalContext,
    UnknownNameError,
    Workspace,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.tune import FEWEST, WEIGHTS, tune
from pointsman.retrieval.fusion import CosineSpread
from pointsman.retrieval.plan import vocabulary
from pointsman.retrieval.plan.policy import EffortLimits, Policy, measured
from pointsman.retrieval.plan.transform.automatic_additions import additions, transformer
from pointsman.retrieval.plan.transform.base_transformer import QueryTransformer
from pointsman.retrieval.plan.transform.spelling_corrector import Corrector
from pointsman.retrieval.plan.vocabulary import Vocabulary
from pointsman.retrieval.run.candidates import Pool
from pointsman.text.spelling import Speller
from store_kit import WORDS, corpus

SPREAD = CosineSpread(0.8, 0.02)


def pool(best: float) -> Pool[str]:
    by_vector = [("a", best), ("b", 0.81)]
    return Pool({"bm25": [("b", 4.0)], "vector": by_vector}, {"bm25": {"b": 4.0, "a": 0.0}, "vector": dict(by_vector)})


@pytest.mark.parametrize("method", ["hybrid", "vector", "bm25"])
def test_the_weight_of_a_foreign_list_counts_beside_the_lists_of_our_own(method: str) -> None:
    own_lists = pool(0.9)
    foreign_list = [("z", None), ("y", None)]
    both = Pool({**own_lists.lists, "table": foreign_list}, own_lists.scores)

    def keys(weight: float) -> list[str]:
        return [key for key, _ in both.fused(method, SPREAD, {"table": weight}).ranking]

    own_ranking = [key for key, _ in own_lists.fused(method, SPREAD).ranking]
    assert keys(0.0) == own_ranking, "a weight of zero removes a list"
    assert keys(1000.0)[:2] == ["z", "y"]
    assert keys(0.001)[: len(own_ranking)] == own_ranking
    ranking = dict(both.fused(method, SPREAD, {"table": 3.0}).ranking)
    assert ranking["z"] == pytest.approx(3 / 61)


@pytest.mark.parametrize("weights", [None, {}, {"bm25": 1.0}, {"vector": 1.0}, {"bm25": 2.0, "vector": 0.5}])
def test_the_evidence_of_candidates_is_their_calibrated_sum(weights: dict[str, float] | None) -> None:
    candidates = pool(0.99)
    assert candidates.evidence(SPREAD, weights) == dict(candidates.fused("hybrid", SPREAD, weights).ranking)


def test_what_holds_the_word_is_above_any_cosine() -> None:
    candidates = pool(0.99)
    assert [key for key, _ in candidates.fused("hybrid", SPREAD).ranking] == ["a", "b"]
    holding_pool = replace(candidates, holders=["b"])
    fused = holding_pool.fused("hybrid", SPREAD)
    assert [key for key, _ in fused.ranking] == ["b", "a"]
    assert [score for _, score in fused.ranking] == pytest.approx(
        [sum(fused.share(name, [key], [1])[0] or 0.0 for name in candidates.lists) for key in ("b", "a")]
    )


class SourceOfDataset:
    """What a search is over, for transformers that look something up."""

    def __init__(self, *sources: Dataset) -> None:
        self.sources: list[Any] = list(sources)

    def search(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        raise AssertionError("nothing is searched here")

    async def asearch(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        raise AssertionError("nothing is searched here")


@pytest.fixture
def dataset() -> Iterator[Dataset]:
    with Dataset("rails", embedder=HashingEmbedder()) as dataset:
        dataset.add(corpus(80))
        yield dataset


class TestWeights:
    @pytest.mark.parametrize(
        ("best", "span", "weight"),
        [
            (0.80, 0, 0.8),
            (0.88, 4, 0.8),
            (0.89, 4.5, 0.9),
            (0.90, 5, 1.0),
            (0.96, 8, 1.6),
            (1.9, 55, 2.5),
            (0.7, 0, 0.8),
        ],
    )
    def test_vectors_count_as_far_as_one_stands_out(self, best: float, span: float, weight: float) -> None:
        candidates = pool(best)
        assert candidates.span(SPREAD) == pytest.approx(span)
        weights, reason = measured().weigh(candidates.span(SPREAD))
        assert weights == {"vector": pytest.approx(weight)}
        assert f"{span:.1f} σ above the mean of random documents" in reason

    def test_without_vectors(self) -> None:
        assert Pool({"bm25": [("a", 1.0)]}, {"bm25": {"a": 1.0}}).span(SPREAD) == 0

    def test_a_fitted_weight_multiplies(self) -> None:
        weights, reason = Policy(vector_weight=2.0).weigh(pool(0.96).span(SPREAD))
        assert weights == {"vector": pytest.approx(3.2)}
        assert "2 by your labels" in reason
        assert Policy(vector_weight=0.5).weigh(pool(0.90).span(SPREAD))[0] == {"vector": pytest.approx(0.5)}

    def test_the_plan_tells(self, dataset: Dataset) -> None:
        context = dataset.search("rail lamp", 3)
        assert "σ above the mean of random documents" in context.plan.reason
        span = next(span for span in context.trace.spans if span.stage == "fuse")
        assert span.detail.startswith("calibrated: ")
        assert "σ" not in dataset.search("rail lamp", 3, strategy="hybrid").plan.reason


class TestCorrecting:
    def test_slips_are_corrected_by_the_documents_own_words(self, dataset: Dataset) -> None:
        transformation = Corrector([dataset]).transform("whistel of the enigne")
        assert transformation.query.text == "whistle of the engine"
        assert transformation.detail == "corrected by the documents' own words: whistel → whistle, enigne → engine"

    def test_a_common_word_that_no_document_has_is_searched_beside_what_was_written(self, dataset: Dataset) -> None:
        transformation = Corrector([dataset]).transform("whistle of the wisdmo")
        assert transformation.query.text == "whistle of the wisdom"
        assert [variant.text for variant in transformation.variants] == ["whistle of the wisdmo"]
        assert transformation.spelling is not None
        assert transformation.spelling.both
        assert transformation.detail.startswith(
            "corrected by the documents' own words and common ones: wisdmo → wisdom"
        )

    @pytest.mark.parametrize("text", ["whistle engine", "rail", "", "X9-77", "信号", "lamps"])
    def test_what_is_right_or_unknown_stays(self, dataset: Dataset, text: str) -> None:
        query = Query(text)
        assert Corrector([dataset]).transform(query).query is query

    @pytest.mark.parametrize(
        ("name", "question"),
        [
            ("self.maxIdleTokens", "max idle tokens"),
            ("макс_число_токенов", "макс число токенов"),
            ("e-mail", "e mail"),
            ("utf8mb4_bin", "utf8mb4 BIN"),
            ("数据库的 childNodes 字段", "child nodes"),
        ],
    )
    def test_words_that_documents_write_as_one_are_searched_so(self, name: str, question: str) -> None:
        scattered = [Document(f"{n}", " ".join((*question.split() * 3, "and others", str(n)))) for n in range(20)]
        with Dataset("names", indexing_technique="keyword") as names:
            names.add([*scattered, Document("name", f"the loop of {name} ends here, whatever stands around it")])
            context = names.search(question, 3)
            assert context.hits[0].id == "name"
            assert "in one word" in str(context.trace)
            assert "in one word" not in str(names.search(f"why {question}?", 3, refuse=False).trace)
            names.delete(["name"])
            assert "in one word" not in str(names.search(question, 3, refuse=False).trace)

    def test_in_a_search(self, tmp_path: Path) -> None:
        with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
            workspace.dataset("rails").add(corpus(80))
            answer = workspace.search("whistel", 3)
            assert answer.query.text == "whistle"
            assert answer.hits == workspace.search("whistle", 3).hits
            assert workspace.search("whistel", 3, effort="fast").query.text == "whistel"
            assert workspace.search("whistel", 3, strategy="hybrid").query.text == "whistel"
            deep = workspace.search("whistle", 3, effort="thorough")
            assert deep.hits[0] == answer.hits[0]
            with pytest.raises(UnknownNameError, match="no effort named 'much'"):
                workspace.search("whistle", 3, effort="much")  # type: ignore[arg-type]

    def test_nothing_is_corrected_where_words_cannot_be_looked_up(self, dataset: Dataset) -> None:
        with Dataset("near", indexing_technique="vector", embedder=HashingEmbedder()) as near:
            near.add([Document("1", "whistel")])
            assert Corrector().over(SourceOfDataset(dataset)).transform("whistel").query.text == "whistle"
            assert Corrector().over(SourceOfDataset(dataset, near)).transform("whistel").query.text == "whistel"

    def test_the_words_of_several_datasets_are_joined_once(
        self, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Dataset("more", indexing_technique="keyword") as second_dataset:
            second_dataset.add([Document("1", "turntables and turnstiles")])
            joint = Vocabulary([dataset, second_dataset]).speller()
            assert Vocabulary([second_dataset, dataset]).speller() is joint
            second_dataset.add([Document("2", "semaphores")])
            second_speller = Vocabulary([dataset, second_dataset]).speller()
            assert second_speller is not joint
            assert second_speller is not None
            assert "semaphores" in second_speller
        monkeypatch.setattr(vocabulary, "_joint", {})
        spellers = [Speller({"rail": 1}) for _ in range(12)]
        for speller in spellers:
            vocabulary._merge_spellers([spellers[0], speller])
        assert len(vocabulary._joint) == 8

    def test_effort(self, dataset: Dataset) -> None:
        assert transformer(additions("fast")) is None
        assert isinstance(transformer(additions("balanced")), Corrector)
        assert isinstance(transformer(additions("thorough")), QueryTransformer)


class TestLimits:
    @pytest.mark.parametrize(
        ("effort", "expected"),
        [
            ("fast", set()),
            ("balanced", {"spelling"}),
            ("thorough", {"spelling", "parts", "bridges"}),
            (EffortLimits(), {"spelling", "parts", "bridges"}),
            (EffortLimits(0), set()),
            (EffortLimits(1), {"spelling"}),
            (EffortLimits(20), {"spelling", "parts"}),
            (EffortLimits(60), {"spelling", "parts", "bridges"}),
        ],
    )
    def test_what_fits_is_added_by_gain_for_its_time(self, effort: Any, expected: set[str]) -> None:
        assert set(additions(effort)) == expected

    def test_in_a_search(self, tmp_path: Path) -> None:
        with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
            workspace.dataset("rails").add(corpus(80))
            assert workspace.search("whistel", 3, effort=EffortLimits(1)).query.text == "whistle"
            spare = workspace.search("whistel", 3, effort=EffortLimits(0))
            assert spare.query.text == "whistel"

    @pytest.mark.parametrize("limits", [{"milliseconds": -1}, {"milliseconds": float("nan")}])
    def test_what_cannot_be(self, limits: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="of limits is"):
            EffortLimits(**limits)


class TestFiles:
    def test_the_shipped_policy_says_where_each_number_comes_from(self) -> None:
        policy = measured()
        assert policy.origin.keys() == set(json.loads(policy.to_json())) - {"name", "origin"}
        assert Policy.from_json(policy.to_json()) == policy
        descriptive: dict[str, Any] = {"origin": {}, "additions": {}}
        assert {**json.loads(Policy().to_json()), **descriptive} == {**json.loads(policy.to_json()), **descriptive}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "must be JSON"),
            ("[]", "is a JSON object"),
            ('{"span": 1}', "has no 'span'"),
            ('{"span_from": 0}', "span_from of a policy"),
            ('{"vector_weight": "2"}', "vector_weight of a policy"),
            ('{"strategy": "best"}', "strategy of a policy"),
            ('{"span_most": NaN}', "span_most of a policy"),
            ('{"strategy": []}', "strategy of a policy"),
            ('{"name": 7}', "name of a policy"),
            ('{"origin": 5}', "origin of a policy"),
            ('{"origin": {"span_from": []}}', "origin of a policy"),
            ("[" * 200_000, "nested too deeply"),
            ('{"name": ' + "[" * 400 + "]" * 400 + "}", "name of a policy|nested too deeply"),
        ],
    )
    def test_what_is_no_policy(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            Policy.from_json(text)
        (tmp_path / "datasets").mkdir()
        (tmp_path / "policy.json").write_text(text)
        with pytest.raises(InputError, match=r"the policy: .*delete it, or fit it again"):
            Workspace(tmp_path)

    def test_a_file_that_is_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "datasets").mkdir()
        (tmp_path / "policy.json").write_bytes(b'{"name": "\xff"}')
        with pytest.raises(CorruptStoreError, match=r"policy\.json cannot be read"):
            Workspace(tmp_path)

    def test_a_workspace_keeps_its_policy(self, tmp_path: Path) -> None:
        with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
            workspace.dataset("rails").add(corpus(30))
            assert workspace.workflow.policy == measured()
            workspace.keep(Policy(name="tuned", strategy="bm25"))
            assert workspace.search("rail lamp", 3).plan.strategy == "bm25"
        with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as again:
            answer = again.search("rail lamp", 3)
            assert answer.plan.strategy == "bm25"
            assert "as fitted to your labels" in answer.plan.reason
            again.keep(None)
            assert again.search("rail lamp", 3).plan.strategy == "hybrid"
        assert not (tmp_path / "w" / "policy.json").exists()

    @pytest.mark.parametrize(
        ("fitted_strategy", "technique", "expected"),
        [
            ("bm25", "hybrid", "bm25"),
            ("rrf", "hybrid", "rrf"),
            ("rrf", "keyword", "hybrid"),  # one dataset lacks the vectors for it
            ("bm25", "keyword", "bm25"),
            (None, "hybrid", "hybrid"),
        ],
    )
    def test_the_plan_tells_what_a_search_does(
        self, tmp_path: Path, fitted_strategy: str | None, technique: Any, expected: str
    ) -> None:
        with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
            workspace.dataset("rails").add(corpus(30))
            workspace.dataset("yards", indexing_technique=technique).add(corpus(30, seed=1))
            workspace.keep(Policy(name="tuned", strategy=fitted_strategy))
            plan, plan_of_search = workspace.plan(workspace.datasets()), workspace.search("rail lamp", 3).plan
            assert (
                (plan.strategy, plan.datasets)
                == (plan_of_search.strategy, plan_of_search.datasets)
                == (expected, ("rails", "yards"))
            )
            assert plan_of_search.reason.startswith(
                plan.reason
            )  # what the policy makes of what was found comes after it
            assert ("as fitted to your labels" in plan.reason) == (fitted_strategy is not None)
            assert workspace.plan(workspace.datasets(), "bm25").strategy == "bm25"


class TestTuning:
    def labels_of(self, dataset: Dataset, count: int, method: str) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
        """Questions whose answers are what one list alone would give."""
        chance = random.Random(3)
        queries = {f"q{number}": " ".join(chance.sample(WORDS[:14], 2)) for number in range(count)}
        names = {key: id_ for id_, key in dataset.store.keys(dataset.ids()).items()}
        qrels = {
            query: {names[key]: 1 for key, _ in dataset.candidates(Query(text), method).lists[method][:3]}
            for query, text in queries.items()
        }
        return queries, qrels

    @pytest.mark.parametrize("method", ["bm25", "vector"])
    def test_labels_that_one_list_explains(self, dataset: Dataset, method: str) -> None:
        tuning = tune(dataset, *self.labels_of(dataset, 60, method))
        assert tuning.chosen == method
        assert tuning.policy.strategy == method
        assert tuning.ndcg[method] == 1
        assert tuning.lower[method] > 0
        assert method in tuning.reason

    def test_labels_that_the_default_explains(self, dataset: Dataset) -> None:
        queries, _ = self.labels_of(dataset, 40, "bm25")
        qrels = {query: {hit.id: 1 for hit in dataset.search(text, 3)} for query, text in queries.items()}
        tuning = tune(dataset, queries, qrels)
        assert tuning.chosen == "default"
        assert tuning.policy == measured()
        assert "no gain is significant" in tuning.reason

    def test_labels_by_chance_leave_the_default(self, dataset: Dataset) -> None:
        queries, _ = self.labels_of(dataset, 30, "bm25")
        chance = random.Random(5)
        qrels = {query: {chance.choice(dataset.ids()): 1} for query in queries}
        assert tune(dataset, queries, qrels).chosen == "default"

    @pytest.mark.parametrize("k", [0, -1])
    def test_a_cutoff_that_cannot_be(self, dataset: Dataset, k: int) -> None:
        with pytest.raises(InputError, match="from 1 up"):
            tune(dataset, {}, {}, k=k)

    def test_what_cannot_be_fitted(self, dataset: Dataset) -> None:
        queries, qrels = self.labels_of(dataset, FEWEST - 1, "bm25")
        with pytest.raises(InputError, match="fewer than 10"):
            tune(dataset, queries, qrels)
        with Dataset("words", indexing_technique="keyword") as words, pytest.raises(InputError, match="only one list"):
            tune(words, queries, qrels)

    def test_the_default_is_in_the_middle_of_what_is_tried(self) -> None:
        assert WEIGHTS[len(WEIGHTS) // 2] == 1


@pytest.mark.parametrize(
    "change", [{"span_from": True}, {"span_least": 1.1}, {"span_most": 0.5}, {"absent_script": 2}, {"strategy": "auto"}]
)
def test_numbers_out_of_range(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="of a policy"):
        Policy(**change)
