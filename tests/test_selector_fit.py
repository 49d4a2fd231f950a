"""`DescriptionSelector`: by words and meaning, and what labelled queries teach it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.embedders import HashingEmbedder, default_embedder
from pointsman.selector import logistic_fit
from pointsman.selector.base_selector import ToolMetadata
from pointsman.selector.description_selector import DescriptionSelector
from pointsman.selector.fitted_selector import Fitted, calibration_error
from pointsman.tools.errors import InputError, ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOOLS = [
    ToolMetadata("get_weather", "Forecast of temperature and rain for a city"),
    ToolMetadata("playMusic", "Plays songs by an artist or of a genre"),
    ToolMetadata("book_table", "Reserves a table in a restaurant"),
    ToolMetadata("translate", "Translates text from one language into another"),
]
WORDS = {  # what people say, none of which is in the descriptions
    "get_weather": ["umbrella", "sunny", "storm", "outside", "wind", "cloudy"],
    "playMusic": ["beatles", "jazz", "album", "loud", "headphones", "tune"],
    "book_table": ["dinner", "hungry", "pizza", "lunch", "sushi", "steak"],
    "translate": ["french", "spanish", "meaning", "german", "phrase", "latin"],
}


def labels_of(per_choice: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Queries of four words of their choice each, in an order of chance."""
    rng = np.random.default_rng(seed)
    pairs = [
        (" ".join(rng.choice(words, 4)) + f" number {n}", name)
        for name, words in WORDS.items()
        for n in range(per_choice)
    ]
    rng.shuffle(pairs)
    return [query for query, _ in pairs], [name for _, name in pairs]


def accuracy(selector: DescriptionSelector, queries: list[str], labels: list[str]) -> float:
    names = [tool.name for tool in TOOLS]
    return float(
        np.mean(
            [names[selector.select(TOOLS, query).ind] == label for query, label in zip(queries, labels, strict=True)]
        )
    )


@pytest.fixture(scope="module")
def fitted_selector() -> DescriptionSelector:
    return DescriptionSelector(HashingEmbedder()).fit(*labels_of(40), TOOLS)


# -- unfitted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("what will the temperature be in that city", "get_weather"),
        ("weathers", "get_weather"),  # stems, and identifiers taken apart
        ("music", "playMusic"),
        ("a table in a restaurant please", "book_table"),
    ],
)
def test_words_and_meaning_select(query: str, name: str) -> None:
    selector = DescriptionSelector(HashingEmbedder())
    result = selector.select(TOOLS, query)
    assert TOOLS[result.ind].name == name
    assert result.reason.startswith("Description score: ")
    assert "words +" in result.reason
    assert "meaning " in result.reason
    assert "examples" not in result.reason
    assert 0 < (result.confidence or 0) <= 1
    assert asyncio.run(selector.aselect(TOOLS, query)) == result
    scores = selector.scores(TOOLS, query)
    assert result.selections[0].score == scores[result.ind] == max(scores)


def test_the_default_embedder_knows_all_three_languages() -> None:
    choices = [
        ToolMetadata("get_weather", "Weather forecast for a city"),
        ToolMetadata("play_music", "Plays songs of an artist"),
        ToolMetadata("book_flight", "Finds and books airline tickets"),
    ]
    selector = DescriptionSelector(default_embedder())
    queries = {
        0: ["will it rain tomorrow?", "будет ли завтра дождь?", "明天会下雨吗？"],
        1: ["put on something by Queen", "включи песню группы Кино", "放一首周杰伦的歌"],
        2: ["I need to fly to Paris", "найди самолёт до Парижа", "帮我订去巴黎的机票"],
    }
    selections = {
        index: [selector.select(choices, query).ind for query in queries_of_choice]
        for index, queries_of_choice in queries.items()
    }
    assert selections == {index: [index] * 3 for index in queries}


def test_examples_in_the_metadata_count() -> None:
    choices = [ToolMetadata(tool.name, tool.description, {"examples": WORDS[tool.name]}) for tool in TOOLS]
    selector = DescriptionSelector(HashingEmbedder())
    for tool, words in zip(TOOLS, WORDS.values(), strict=True):
        result = selector.select(choices, f"{words[0]} {words[3]}")
        assert choices[result.ind].name == tool.name
        assert "examples +" in result.reason


def test_choices_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts_embedded: list[str] = []
    embed = HashingEmbedder.embed_documents

    def count_texts(self: HashingEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
        texts_embedded.extend(texts)
        return embed(self, texts)

    monkeypatch.setattr(HashingEmbedder, "embed_documents", count_texts)
    selector = DescriptionSelector(HashingEmbedder())
    for choices in (TOOLS, TOOLS[::-1], TOOLS[1:], tuple(TOOLS)):
        selector.select(choices, "a song")
    assert texts_embedded == [tool.text for tool in TOOLS]


@settings(deadline=None)
@given(st.lists(st.text(max_size=8), min_size=2, max_size=6), st.text(max_size=30))
def test_any_text_is_selected_for(names: list[str], query: str) -> None:
    selector = DescriptionSelector(HashingEmbedder(), top_k=3)
    result = selector.select(names, query)
    assert len(result.inds) == min(3, len(names))
    scores = selector.scores(names, query)
    assert [scores[index] for index in result.inds] == sorted(scores, reverse=True)[: len(result.inds)]
    assert all(np.isfinite(scores))


def test_equal_choices_go_to_the_first() -> None:
    assert DescriptionSelector(HashingEmbedder()).select(["same", "same", "same"], "q").ind == 0


def test_query_means_are_vectors_of_the_embedders_length() -> None:
    for mean in ("median", [[1.0]], [float("inf")], object()):
        with pytest.raises(InputError, match="query_mean"):
            DescriptionSelector(HashingEmbedder(), query_mean=mean)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="query_mean has 2 numbers"):
        DescriptionSelector(HashingEmbedder(), query_mean=[1.0, 2.0]).select(TOOLS, "q")


def test_below_the_threshold_it_abstains_or_says_so() -> None:
    assert DescriptionSelector(HashingEmbedder(), threshold=1.0).select(TOOLS, "hm").abstained
    result = DescriptionSelector(HashingEmbedder(), threshold=1.0, allow_abstain=False).select(TOOLS, "hm")
    assert result.fallback is not None
    assert "below the threshold" in result.fallback.why


@pytest.mark.parametrize("arguments", [{"threshold": 1.1}, {"top_k": 0}, {"centroids": 0}, {"query_mean": "x"}])
def test_what_cannot_be_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        DescriptionSelector(HashingEmbedder(), **arguments)


def test_an_embedder_whose_vectors_differ_in_length_is_named() -> None:
    class Odd:
        def embed(self, text: str) -> list[float]:
            return [1.0, 2.0] if text == "odd" else [1.0, 2.0, 3.0]

    with pytest.raises(ModelError, match="Odd"):
        DescriptionSelector(Odd()).select(TOOLS, "odd")


# -- fitted ------------------------------------------------------------------------------------------------------------


def test_labels_teach_what_people_say(fitted_selector: DescriptionSelector) -> None:
    held_out = labels_of(10, seed=1)
    accuracy_before = accuracy(DescriptionSelector(HashingEmbedder()), *held_out)
    assert accuracy_before < 0.6
    assert accuracy(fitted_selector, *held_out) > 0.9
    assert fitted_selector.fitted is not None
    report = fitted_selector.fitted.report
    assert report.used == "with_examples"
    assert report.accuracy == report.with_examples > report.weighted
    assert report.labels == report.held_out == 160
    assert report.calibration_error < 0.1


def test_held_out_means_held_out() -> None:
    # Labels by chance teach nothing, and the report must say so, however well they can be learned by heart.
    queries, labels = labels_of(40)
    np.random.default_rng(0).shuffle(labels)
    report = fitted_of(DescriptionSelector(HashingEmbedder()).fit(queries, labels, TOOLS)).report
    assert max(report.unfitted, report.weighted, report.with_examples) < 0.4


def fitted_of(selector: DescriptionSelector) -> Fitted:
    assert selector.fitted is not None
    return selector.fitted


def test_the_same_query_twice_is_not_learned_from_and_held_out() -> None:
    rng = np.random.default_rng(3)
    queries = [f"{a} {b}" for a, b in rng.integers(0, 10**6, (40, 2))]
    labels = [TOOLS[index].name for index in rng.integers(0, 4, 40)]
    report = fitted_of(DescriptionSelector(HashingEmbedder()).fit(queries * 3, labels * 3, TOOLS)).report
    assert report.with_examples < 0.6


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_few_labels_change_no_selection(count: int) -> None:
    queries, _ = labels_of(5)
    plain = DescriptionSelector(HashingEmbedder())
    wrong = [TOOLS[(n * 7) % 4].name for n in range(count)]
    selector = plain.fit(queries[:count], wrong, TOOLS)
    assert fitted_of(selector).report.used == "unfitted"
    assert Fitted.from_json(fitted_of(selector).to_json()).calibration is None
    for query in queries:
        first, second = selector.select(TOOLS, query), plain.select(TOOLS, query)
        assert first.ind == second.ind
        assert first.confidence == pytest.approx(second.confidence, abs=1e-4)


def test_what_is_no_better_on_held_out_queries_is_not_used() -> None:
    queries, _ = labels_of(20)
    plain = DescriptionSelector(HashingEmbedder())
    # Labels that agree with what it does unfitted: nothing can be better.
    labels = [plain.select(TOOLS, query).ind for query in queries]
    report = fitted_of(plain.fit(queries, labels, TOOLS)).report
    assert (report.unfitted, report.used) == (1.0, "unfitted")


def test_labels_are_names_indices_or_several() -> None:
    queries, labels = labels_of(10)
    names = [tool.name for tool in TOOLS]
    selector = DescriptionSelector(HashingEmbedder())
    by_name = fitted_of(selector.fit(queries, labels, TOOLS))
    by_index = fitted_of(selector.fit(queries, [names.index(label) for label in labels], TOOLS))
    assert by_name.to_json() == by_index.to_json()
    report = fitted_of(selector.fit(queries, [[label, 0] for label in labels], TOOLS)).report
    assert report.unfitted >= by_name.report.unfitted


def test_none_teaches_when_to_abstain() -> None:
    queries, labels = labels_of(40)
    rng = np.random.default_rng(5)
    strange = ["".join(rng.choice(list("qxzvkjw"), 9)) + " " + "".join(rng.choice(list("yuop"), 7)) for _ in range(80)]
    selector = DescriptionSelector(HashingEmbedder()).fit([*queries, *strange], [*labels, *[None] * 80], TOOLS)
    assert selector.allow_abstain
    assert selector.threshold is not None
    assert fitted_of(selector).report.none == 80
    fresh = ["".join(rng.choice(list("qxzvkjw"), 9)) + " " + "".join(rng.choice(list("yuop"), 7)) for _ in range(40)]
    asked, _ = labels_of(10, seed=2)
    assert np.mean([selector.select(TOOLS, query).abstained for query in fresh]) > 0.7
    assert np.mean([selector.select(TOOLS, query).abstained for query in asked]) < 0.3


def test_confidence_after_fitting_is_how_often_it_is_right(fitted_selector: DescriptionSelector) -> None:
    queries, labels = labels_of(100, seed=9)
    results = [fitted_selector.select(TOOLS, query) for query in queries]
    right = [TOOLS[result.ind].name == label for result, label in zip(results, labels, strict=True)]
    assert np.mean([result.confidence or 0 for result in results]) == pytest.approx(np.mean(right), abs=0.06)


def test_fitting_leaves_the_selector_as_it_was() -> None:
    selector = DescriptionSelector(HashingEmbedder())
    scores_before = selector.scores(TOOLS, "a song in the rain")
    selector.fit(*labels_of(20), TOOLS)
    assert selector.scores(TOOLS, "a song in the rain") == scores_before
    assert selector.fitted is None


@pytest.mark.parametrize(
    ("queries", "labels", "message"),
    [
        (["a"], [], "two lists of one length"),
        ([], [], "two lists of one length"),
        ("ab", "ab", "two lists of one length"),
        (["a"], ["tool that is not there"], "'tool that is not there' is neither"),
        (["a"], [4], "4 is neither"),
        (["a"], [-1], "-1 is neither"),
        (["a"], [True], "True is neither"),
        (["a"], [[0, 1.5]], "1.5 is neither"),
        ([1], [0], "a query to learn from is a str"),
    ],
)
def test_labels_that_cannot_be_are_refused(queries: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DescriptionSelector(HashingEmbedder()).fit(queries, labels, TOOLS)


def test_names_must_differ_to_be_learned_about() -> None:
    with pytest.raises(InputError, match=r"twice: \['same'\]"):
        DescriptionSelector(HashingEmbedder()).fit(["q"], [0], ["same", "same"])
    with pytest.raises(InputError, match="folds"):
        DescriptionSelector(HashingEmbedder()).fit(["q"], [0], TOOLS, folds=1)


# -- saved -------------------------------------------------------------------------------------------------------------


def test_what_is_saved_selects_the_same(fitted_selector: DescriptionSelector, tmp_path: Path) -> None:
    path = tmp_path / "selector.json"
    fitted_selector.save(path)
    copy = DescriptionSelector.load(path, HashingEmbedder())
    assert fitted_of(copy).report == fitted_of(fitted_selector).report
    assert fitted_of(copy).to_json() == fitted_of(saved_again(copy, tmp_path)).to_json()
    for query in labels_of(10, seed=4)[0]:
        first, second = fitted_selector.select(TOOLS, query), copy.select(TOOLS, query)
        assert first.ind == second.ind
        assert first.confidence == pytest.approx(second.confidence, abs=1e-3)


def saved_again(selector: DescriptionSelector, folder: Path) -> DescriptionSelector:
    selector.save(folder / "again.json")
    return DescriptionSelector.load(folder / "again.json", HashingEmbedder())


def test_nothing_fitted_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="call fit"):
        DescriptionSelector(HashingEmbedder()).save(tmp_path / "x.json")


def test_vectors_of_another_embedder_are_refused(fitted_selector: DescriptionSelector) -> None:
    with pytest.raises(InputError, match="'hashing-64', not 'hashing-32'"):
        DescriptionSelector(HashingEmbedder(32), fitted=fitted_selector.fitted)


def test_files_that_are_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("absent", "binary", "."):
        with pytest.raises(InputError, match="cannot be read"):
            DescriptionSelector.load(tmp_path / name, HashingEmbedder())
    for text in ("", "{", "[]", "null", "NaN", "[" * 100_000, '{"format": "other"}', '{"version": 1}'):
        with pytest.raises(InputError):
            Fitted.from_json(text)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("embedder",), 7),
        (("weights",), [1, 2]),
        (("weights", 0), "1"),
        (("weights", 1), -1),
        (("weights", 1), 1e12),
        (("weights", 2), None),
        (("calibration",), [1, 2]),
        (("calibration",), [1, 2, 10**400]),
        (("threshold",), 2),
        (("threshold",), True),
        (("query_mean",), []),
        (("query_mean",), [1, "x"]),
        (("choices",), {"a": 1}),
        (("choices", 0), []),
        (("choices", 0, "name"), 7),
        (("choices", 0, "centroids"), []),
        (("choices", 0, "centroids"), [[1, 2]]),
        (("choices", 0, "centroids"), [{}]),
        (("choices", 0, "terms"), {"french": 0}),
        (("choices", 0, "terms"), {"french": 1.5}),
        (("choices", 0, "terms"), {"french": True}),
        (("report",), None),
        (("report", "used"), "magic"),
        (("report", "labels"), "many"),
    ],
)
def test_each_field_is_checked(
    fitted_selector: DescriptionSelector, path: tuple[str | int, ...], value: object
) -> None:
    data = json.loads(fitted_of(fitted_selector).to_json())
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(InputError):
        Fitted.from_json(json.dumps(data))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.data())
def test_hostile_json_gives_input_errors_only(fitted_selector: DescriptionSelector, data: st.DataObject) -> None:
    fields = json.loads(fitted_of(fitted_selector).to_json())
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(JSON)
    try:
        fitted_values = Fitted.from_json(json.dumps(fields))
    except InputError:
        return
    assert (
        0
        <= DescriptionSelector(HashingEmbedder(), fitted=replace(fitted_values, embedder="hashing-64"))
        .select(TOOLS, "q")
        .selections[0]
        .index
        < 4
    )


# -- the parts ---------------------------------------------------------------------------------------------------------


def test_calibration_error_of_known_cases() -> None:
    assert calibration_error(np.array([]), np.array([], bool)) == 0
    assert calibration_error(np.array([1.0, 1.0]), np.array([True, True])) == 0
    assert calibration_error(np.array([0.9, 0.1]), np.array([False, False])) == pytest.approx(0.5)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_weights_stay_at_the_prior_without_evidence_and_are_never_negative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = np.array([0.7, 1.4, 1.4])
    empty = logistic_fit.Sample(np.zeros((5, 3, 4)), np.eye(5, 4, dtype=bool), np.zeros(5))
    np.testing.assert_allclose(logistic_fit.fit_weights(empty, start), start)
    contrary = logistic_fit.Sample(
        rng.normal(size=(300, 3, 4)), np.eye(4, dtype=bool)[rng.integers(0, 4, 300)], np.zeros(300)
    )
    assert (logistic_fit.fit_weights(contrary, start) >= 0).all()


def test_the_threshold_separates_what_can_be_separated() -> None:
    confidence = np.array([0.9, 0.8, 0.2, 0.1])
    correct = np.array([True, True, False, False])
    has_label = np.array([True, True, False, False])
    assert logistic_fit.threshold(confidence, correct, has_label) == pytest.approx(0.5)
    assert logistic_fit.threshold(confidence, correct, np.ones(4, bool)) is None
    assert logistic_fit.threshold(confidence, np.zeros(4, bool), np.zeros(4, bool)) == pytest.approx(0.95)


def test_labels_that_are_all_none_teach_to_abstain() -> None:
    queries, _ = labels_of(10)
    selector = DescriptionSelector(HashingEmbedder()).fit(queries, [None] * len(queries), TOOLS)
    assert fitted_of(selector).report.used == "unfitted"
    assert np.mean([selector.select(TOOLS, query).abstained for query in queries]) == 1.0
