"""Cross-encoders in a folder, here tiny ones that the tests make: they count the query's words in the document."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.retrieval.refine.rerank import CrossEncoderReranker
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.types import Document, Hit, Query, Ranked

tokenizers = pytest.importorskip("tokenizers")
onnx = pytest.importorskip("onnx")

MARKS = ["[UNK]", "[CLS]", "[SEP]"]
WORDS = [
    "rails",
    "trains",
    "switches",
    "moon",
    "cheese",
    "lamps",
    "night",
    "поезд",
    "рельсы",
    "луна",
    *"铁路信号灯月亮",
]
VOCABULARY = MARKS + WORDS


def write_model(
    folder: Path,
    shape: str = "column",
    inputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids"),
    kind: str = "INT64",
    factor: float = 1.0,
) -> Path:
    """Its logit is the number of different words that both texts have; without types, the words of rails there are."""
    from onnx import TensorProto, helper, numpy_helper

    size = len(VOCABULARY)
    table = np.eye(size, dtype=np.float32)
    table[: len(MARKS)] = 0
    if "token_type_ids" not in inputs:
        table[:] = 0
        table[VOCABULARY.index("rails"), 0] = 1
    node = helper.make_node
    nodes = [node("Gather", ["table", "input_ids"], ["words"])]
    if "token_type_ids" in inputs:
        nodes += [
            node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
            node("Unsqueeze", ["types", "last"], ["second"]),
            node("Sub", ["one", "second"], ["first"]),
            node("Mul", ["words", "second"], ["of_document"]),
            node("Mul", ["words", "first"], ["of_query"]),
            node("ReduceMax", ["of_document", "middle"], ["document"], keepdims=0),
            node("ReduceMax", ["of_query", "middle"], ["query"], keepdims=0),
            node("Mul", ["document", "query"], ["shared"]),
        ]
    else:
        nodes.append(node("ReduceSum", ["words", "middle"], ["shared"], keepdims=0))
    nodes += [
        node("ReduceSum", ["shared", "middle"], ["count"], keepdims=1),
        node("Mul", ["count", "factor"], ["score"]),
        node("Neg", ["score"], ["minus"]),
    ]
    last: dict[str, list[Any]] = {
        "column": [node("Identity", ["score"], ["logits"])],
        "flat": [node("Squeeze", ["score", "middle"], ["logits"])],
        "two": [node("Concat", ["minus", "score"], ["logits"], axis=1)],
        "three": [node("Concat", ["minus", "score", "score"], ["logits"], axis=1)],
        "hidden": [node("Identity", ["words"], ["logits"])],
        "nan": [node("Log", ["minus"], ["logits"])],
    }
    dimensions: dict[str, list[Any]] = {"flat": ["batch"], "hidden": ["batch", "tokens", size]}
    element = getattr(TensorProto, kind)
    graph = helper.make_graph(
        nodes + last[shape],
        "overlap",
        [helper.make_tensor_value_info(name, element, ["batch", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, dimensions.get(shape, ["batch", None]))],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.array(1, np.float32), "one"),
            numpy_helper.from_array(np.array([factor], np.float32), "factor"),
            numpy_helper.from_array(np.array([2], np.int64), "last"),
            numpy_helper.from_array(np.array([1], np.int64), "middle"),
        ],
    )
    folder.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(VOCABULARY)}, "[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()  # Chinese characters stand alone
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.enable_padding(length=64)  # a folder may say so; scores must not change
    tokenizer.enable_truncation(20)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("overlap"))


@pytest.fixture(scope="module")
def reranker(folder: Path) -> CrossEncoderReranker:
    return CrossEncoderReranker(folder, cache=False, threads=1)


def overlap(query: str, text: str) -> float:
    def words(text: str) -> set[str]:
        spaced_text = "".join(f" {c} " if c in "铁路信号灯月亮" else c for c in text.lower())
        return set(spaced_text.split()) & set(WORDS)

    return float(len(words(query) & words(text)))


@pytest.mark.parametrize(
    ("query", "texts", "best"),
    [
        ("rails and trains", ["moon cheese", "trains on rails", "rails"], 1),
        ("Поезд и рельсы", ["луна", "рельсы", "Рельсы поезд рельсы"], 2),
        ("铁路信号", ["月亮", "铁路灯", "铁路的信号灯"], 2),
    ],
)
def test_documents_by_what_the_model_says(
    reranker: CrossEncoderReranker, query: str, texts: list[str], best: int
) -> None:
    documents = [Document(str(index), text) for index, text in enumerate(texts)]
    ranking = reranker.rerank(query, documents, None)
    assert ranking[0].id == str(best)
    assert [d.metadata["score"] for d in ranking] == sorted((overlap(query, text) for text in texts), reverse=True)
    assert asyncio.run(reranker.arerank(query, documents, None)) == ranking


TEXT = st.lists(st.sampled_from([*WORDS, "unheard", "\ud800", "of"]), max_size=12).map(" ".join)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=12))
def test_a_score_does_not_depend_on_its_batch(reranker: CrossEncoderReranker, pairs: list[tuple[str, str]]) -> None:
    scores = reranker.score_pairs(pairs)
    assert scores == [reranker.score(query, [text])[0] for query, text in pairs]
    assert scores == [overlap(query, text) for query, text in pairs]


def test_batches_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = CrossEncoderReranker(folder, batch_size=3)
    runs: list[int] = []
    run = reranker._model.run

    def count_run(output: str, ids: list[list[int]], types: list[list[int]]) -> Any:
        assert len({len(row) for row in ids}) == 1, "nothing is padded"
        runs.append(len(ids))
        return run(output, ids, types)

    monkeypatch.setattr(reranker._model, "run", count_run)
    texts = ["rails"] * 7 + ["rails trains"] * 2
    assert reranker.score("rails", texts) == [1.0] * 9
    assert sorted(runs) == [1, 2, 3, 3]


def test_several_rankings_share_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = CrossEncoderReranker(folder)
    runs: list[int] = []
    run = reranker._model.run

    def count_run(output: str, ids: list[list[int]], types: list[list[int]]) -> Any:
        runs.append(len(ids))
        return run(output, ids, types)

    monkeypatch.setattr(reranker._model, "run", count_run)
    rankings = [
        Ranked(tuple(Hit(Document(text, text), 1.0) for text in texts), "rrf")
        for texts in (["moon", "rails"], ["cheese", "moon"])
    ]
    outcomes = reranker.refine_many([Query("rails"), Query("moon")], rankings, 2)
    assert [[hit.id for hit in outcome.hits] for outcome in outcomes] == [["rails", "moon"], ["moon", "cheese"]]
    assert runs == [4]


# ── what is too long ─────────────────────────────────────────────────────────────────────────────────────────────────

# 16 tokens: 3 marks, the query's one or two, and some eleven of the document
TEXTS_BY_POSITION = {
    "start": "lamps " + "of " * 30,
    "middle": "of " * 15 + "lamps " + "of " * 15,
    "end": "of " * 30 + "lamps",
}
SEES = {
    "end": {"start"},
    "start": {"end"},
    "middle": {"start", "end"},
    "windows": {"start", "middle", "end"},
}


@pytest.mark.parametrize("truncation", SEES)
@pytest.mark.parametrize("query", ["lamps", "night lamps"])
def test_what_is_left_out_is_of_the_document(folder: Path, truncation: Any, query: str) -> None:
    reranker = CrossEncoderReranker(folder, max_length=16, truncation=truncation)
    scores = reranker.score(query, list(TEXTS_BY_POSITION.values()))
    assert {position for position, score in zip(TEXTS_BY_POSITION, scores, strict=True) if score} == SEES[truncation]


@pytest.mark.parametrize("truncation", SEES)
def test_chinese_is_cut_by_tokens_as_well(folder: Path, truncation: Any) -> None:
    texts = ["灯" + "的" * 40, "的" * 20 + "灯" + "的" * 20, "的" * 40 + "灯"]
    scores = CrossEncoderReranker(folder, max_length=16, truncation=truncation).score("灯", texts)
    assert {position for position, score in zip(TEXTS_BY_POSITION, scores, strict=True) if score} == SEES[truncation]


@given(st.integers(0, 60), st.integers(0, 60))
def test_windows_miss_no_word_and_keep_neighbours_together(folder: Path, words_before: int, words_after: int) -> None:
    reranker = _windows(folder)
    text = "of " * words_before + "night lamps " + "of " * words_after
    assert reranker.score("night lamps", [text]) == [2.0]


_rerankers: dict[Path, CrossEncoderReranker] = {}


def _windows(folder: Path) -> CrossEncoderReranker:
    if folder not in _rerankers:
        _rerankers[folder] = CrossEncoderReranker(folder, max_length=16, truncation="windows", max_windows=50)
    return _rerankers[folder]


def test_windows_are_bounded(folder: Path) -> None:
    two_windows = CrossEncoderReranker(folder, max_length=16, truncation="windows", max_windows=2)
    assert two_windows.score(
        "lamps", [TEXTS_BY_POSITION["start"], TEXTS_BY_POSITION["middle"], TEXTS_BY_POSITION["end"]]
    ) == [1.0, 1.0, 0.0]


def test_no_run_is_longer_than_the_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for truncation in SEES:
        reranker = CrossEncoderReranker(folder, max_length=16, truncation=truncation)  # type: ignore[arg-type]
        lengths: list[int] = []
        run = reranker._model.run

        def count_run(output: str, ids: Any, types: Any, run: Any = run, lengths: list[int] = lengths) -> Any:
            lengths.extend(len(row) for row in ids)
            return run(output, ids, types)

        monkeypatch.setattr(reranker._model, "run", count_run)
        for query in ("rails", "night lamps moon", "rails " * 40):
            reranker.score(query, ["lamps " * n for n in range(40)])
        assert max(lengths) == 16


def test_a_query_leaves_a_quarter_to_the_document(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    reranker = CrossEncoderReranker(folder, max_length=16)
    assert reranker.score("moon " + "of " * 40 + "rails", ["moon rails", "of of of moon", "of of of of moon"]) == [
        1,
        1,
        0,
    ]
    assert "a query of 42 tokens is cut to 9" in caplog.text


@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800", "x" * 3_000_000, "rails " * 500_000, "灯" * 1_000_000])
def test_hostile_text_has_a_score(folder: Path, text: str) -> None:
    for truncation in SEES:
        reranker = CrossEncoderReranker(folder, max_length=32, truncation=truncation)  # type: ignore[arg-type]
        assert all(math.isfinite(score) for score in reranker.score("rails", [text]))
        assert all(math.isfinite(score) for score in reranker.score(text, ["rails", text]))


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_outputs_of_one_number_are_taken_as_they_are(tmp_path: Path) -> None:
    for shape in ("column", "flat"):
        assert CrossEncoderReranker(write_model(tmp_path, shape)).score("rails moon", ["moon", "x"]) == [1.0, 0.0]


def test_of_two_classes_the_last_ones_probability(tmp_path: Path) -> None:
    reranker = CrossEncoderReranker(write_model(tmp_path, "two"))
    assert reranker.score("rails moon", ["moon rails", "x"]) == pytest.approx([1 / (1 + math.exp(-4)), 0.5])
    steep = CrossEncoderReranker(write_model(tmp_path, "two", factor=1e6))
    assert steep.score("rails", ["rails", "x"]) == [1.0, 0.5]


@pytest.mark.parametrize(
    ("inputs", "score"),
    [
        (("input_ids",), 2.0),
        (("input_ids", "attention_mask"), 2.0),
        (("input_ids", "token_type_ids"), 1.0),
        (("input_ids", "token_type_ids", "position_ids"), 1.0),
    ],
)
def test_models_differ_in_their_inputs(tmp_path: Path, inputs: tuple[str, ...], score: float) -> None:
    for kind in ("INT64", "INT32"):
        reranker = CrossEncoderReranker(write_model(tmp_path, inputs=inputs, kind=kind))
        assert reranker.score("rails", ["rails"]) == [score]


@pytest.mark.parametrize(
    ("shape", "message"),
    [("three", "is not a cross-encoder"), ("hidden", "is not a cross-encoder"), ("nan", "not finite")],
)
def test_what_is_no_cross_encoder_is_told_at_once(tmp_path: Path, shape: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        CrossEncoderReranker(write_model(tmp_path, shape))


def test_other_inputs_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pixel_values"):
        CrossEncoderReranker(write_model(tmp_path, inputs=("input_ids", "pixel_values")))


def test_what_is_wrong_is_said(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match=r"model\.onnx"):
        CrossEncoderReranker(tmp_path / "absent")
    wrong: list[dict[str, Any]] = [{"truncation": "all"}, {"max_length": 15}, {"batch_size": 0}, {"max_windows": 0}]
    for settings in wrong:
        with pytest.raises(InputError, match=next(iter(settings))):
            CrossEncoderReranker(folder, **settings)


def test_the_configuration_bounds_the_length(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    for config, length in (
        ({"max_position_embeddings": 40}, 40),
        ({"max_position_embeddings": 42, "model_type": "xlm-roberta", "pad_token_id": 1}, 40),
        ({"max_position_embeddings": 8194, "model_type": "xlm-roberta", "pad_token_id": 1}, 512),
        ({"model_type": "bert"}, 512),
    ):
        (folder / "config.json").write_text(json.dumps(config))
        assert f"|{length}|end" in CrossEncoderReranker(folder).name
    (folder / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="not the configuration"):
        CrossEncoderReranker(folder)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 4}))
    with pytest.raises(InputError, match="4 tokens only"):
        CrossEncoderReranker(folder)


def test_the_name_tells_models_and_settings_apart(tmp_path: Path) -> None:
    names = {
        CrossEncoderReranker(write_model(tmp_path / "a")).name,
        CrossEncoderReranker(write_model(tmp_path / "a", factor=2.0)).name,
        CrossEncoderReranker(tmp_path / "a", max_length=100).name,
        CrossEncoderReranker(tmp_path / "a", truncation="middle").name,
        CrossEncoderReranker(tmp_path / "a", truncation="windows").name,
    }
    assert len(names) == 5
    assert CrossEncoderReranker(tmp_path / "a").name == CrossEncoderReranker(tmp_path / "a").name


def test_a_model_that_fails_leaves_the_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = CrossEncoderReranker(folder)

    def fail(*_: Any) -> Any:
        raise ModelError("out of memory")

    monkeypatch.setattr(reranker._model, "run", fail)
    original = Ranked((Hit(Document("a", "x"), 1.0), Hit(Document("b", "rails"), 0.5)), "rrf")
    outcome = reranker.refine(Query("rails"), original, 2)
    assert (outcome.hits, outcome.scale) == (original.hits, "rrf")
    assert "out of memory" in outcome.degraded[0]
