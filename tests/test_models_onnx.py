"""Any ONNX model in a folder, here tiny ones that the tests make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pointsman
from pointsman import Dataset, Document
from pointsman.embedders import CachedEmbedder, OnnxEmbedder, load_embedder
from pointsman.retrieval.refine.compress.extractive import ExtractiveCompressor
from pointsman.retrieval.refine.rerank import CalibratedReranker
from pointsman.selector.description_selector import DescriptionSelector
from pointsman.selector.embedding_selector import EmbeddingSelector
from pointsman.tools.errors import InputError, ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

tokenizers = pytest.importorskip("tokenizers")
onnx = pytest.importorskip("onnx")

WORDS = ["[UNK]", "[CLS]", "query:", "passage:", "rails", "trains", "switches"]
TABLE = np.random.default_rng(0).standard_normal((len(WORDS), 8)).astype(np.float32)


def write_model(
    folder: Path,
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    output: str = "last_hidden_state",
    with_pooling: bool = False,
    markers: bool = True,
) -> Path:
    """A table of word vectors as a model: its hidden states are the rows of the words."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["states" if with_pooling else output])]
    if with_pooling:
        nodes.append(helper.make_node("ReduceSum", ["states", "axis"], [output], keepdims=0))
    shape: list[str | int | None] = ["batch", 8] if with_pooling else ["batch", "tokens", 8]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(np.array([1], np.int64), "axis")],
    )
    folder.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    if markers:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A", None, [("[CLS]", 1)])
    tokenizer.enable_padding(length=16)  # a folder may say so; vectors must not change
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.divide(vector, np.linalg.norm(vector), dtype=np.float32)


def test_mean_of_the_tokens_without_padding(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(write_model(tmp_path / "tiny"))
    vectors = embedder.embed_documents(["rails", "trains switches", "rails", "unheard of words"])
    assert embedder.dimensions == 8
    assert vectors.dtype == np.float32
    assert np.allclose(vectors[0], unit(TABLE[[1, 4]].mean(axis=0)), atol=1e-6)
    assert np.allclose(vectors[1], unit(TABLE[[1, 5, 6]].mean(axis=0)), atol=1e-6)
    assert np.array_equal(vectors[0], vectors[2])
    assert embedder.embed("rails").shape == (8,)
    assert embedder.embed_documents([]).shape == (0, 8)


def test_the_folder_may_ask_for_the_first_token(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    assert np.allclose(OnnxEmbedder(folder).embed("rails"), unit(TABLE[1]), atol=1e-6)
    mean = OnnxEmbedder(folder, pooling="mean")
    assert np.allclose(mean.embed("rails"), unit(TABLE[[1, 4]].mean(axis=0)), atol=1e-6)
    assert mean.name != OnnxEmbedder(folder).name


def test_prefixes_and_the_limit(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(write_model(tmp_path), "query: ", "passage: ", max_tokens=4)
    assert np.allclose(embedder.embed("rails"), unit(TABLE[[1, 2, 4]].mean(axis=0)), atol=1e-6)
    long = embedder.embed_documents(["rails trains switches switches"])[0]
    assert np.allclose(long, unit(TABLE[[1, 3, 4, 5]].mean(axis=0)), atol=1e-6)


@pytest.mark.parametrize(
    "inputs",
    [("input_ids",), ("input_ids", "attention_mask", "token_type_ids"), ("input_ids", "position_ids")],
)
def test_models_differ_in_their_inputs(tmp_path: Path, inputs: tuple[str, ...]) -> None:
    vector = OnnxEmbedder(write_model(tmp_path, inputs)).embed("rails")
    assert np.allclose(vector, unit(TABLE[[1, 4]].mean(axis=0)), atol=1e-6)


def test_an_output_for_the_whole_text_is_taken_as_it_is(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(write_model(tmp_path, output="sentence_embedding", with_pooling=True))
    assert np.allclose(embedder.embed("rails"), unit(TABLE[[1, 4]].sum(axis=0)), atol=1e-6)


@pytest.mark.parametrize("text", ["", "\0", "\ud800", "x" * 100_000, " " * 100_000])
def test_hostile_text_has_a_vector(tmp_path: Path, text: str) -> None:
    embedder = OnnxEmbedder(write_model(tmp_path, markers=False))
    assert np.linalg.norm(embedder.embed(text)) == pytest.approx(1, abs=1e-5)


def test_the_model_may_lie_in_a_subfolder_and_is_loaded_by_name(tmp_path: Path) -> None:
    write_model(tmp_path / "onnx")
    assert isinstance(load_embedder(f"onnx:{tmp_path}"), OnnxEmbedder)


def test_whatever_takes_an_embedder_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = f"onnx:{write_model(tmp_path / 'model')}"
    name = OnnxEmbedder(tmp_path / "model").name
    for index, setting in enumerate((None, pointsman.Settings(), pointsman.Settings(embedder="hashing"))):
        with pointsman.open(tmp_path / f"work{index}", embedder=spec, settings=setting) as workspace:
            workspace.dataset("rails").add([Document("a", "rails"), Document("b", "trains")])
            assert workspace.status("rails")["embedder"] == name
            assert [hit.id for hit in workspace.search("trains", strategy="vector", refuse=False).hits] == ["b", "a"]
    with pointsman.open(tmp_path / "work", embedder="default", settings=pointsman.Settings(embedder=spec)) as workspace:
        assert workspace.embedder.name == name, "as --embedder default leaves it to the settings"
    takers: tuple[Any, ...] = (
        Dataset("rails", embedder=spec),
        EmbeddingSelector(spec),
        DescriptionSelector(spec),
        ExtractiveCompressor(spec),
        CachedEmbedder(spec, tmp_path / "cache"),
    )
    assert [taker.embedder.name for taker in takers] == [name] * len(takers)
    assert name in CalibratedReranker(spec, sigma=0.1).name
    monkeypatch.setenv("POINTSMAN_EMBEDDER", spec)
    assert pointsman.open(tmp_path / "own", settings=pointsman.Settings.load()).embedder.name == name


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.onnx"):
        OnnxEmbedder(tmp_path / "absent")
    folder = write_model(tmp_path / "strange", ("input_ids", "pixel_values"))
    with pytest.raises(ModelError, match="pixel_values"):
        OnnxEmbedder(folder)
    with pytest.raises(InputError, match="pooling"):
        OnnxEmbedder(write_model(tmp_path / "a"), pooling="max")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_tokens"):
        OnnxEmbedder(tmp_path / "a", max_tokens=1)
    (tmp_path / "a" / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="cannot be opened"):
        OnnxEmbedder(tmp_path / "a")
