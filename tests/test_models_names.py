"""Embedders by name, the public fake, and what is said where a package is absent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointsman.embedders
from pointsman.embedders import (
    HashingEmbedder,
    OnnxEmbedder,
    OpenAIEmbedder,
    SentenceTransformersEmbedder,
    cache_directory,
    default_embedder,
    load_embedder,
)
from pointsman.tools.errors import InputError, MissingDependencyError, ModelError, UnknownNameError
from pointsman.values.protocols import Embedder

if TYPE_CHECKING:
    from numpy.typing import NDArray


def test_names_load_embedders() -> None:
    assert load_embedder("default") is load_embedder("e5-small") is default_embedder()
    assert load_embedder("hashing").name == "hashing-64"
    assert isinstance(load_embedder("hashing"), Embedder)


@pytest.mark.parametrize("spec", ["", "word2vec", "default:x", "hashing:9", "ONNX:dir"])
def test_an_unknown_name_is_named_with_the_known_ones(spec: str) -> None:
    with pytest.raises(UnknownNameError, match="sentence-transformers:NAME"):
        load_embedder(spec)


@pytest.mark.parametrize("spec", ["onnx", "onnx:", "openai", "sentence-transformers:"])
def test_a_missing_argument_is_asked_for(spec: str) -> None:
    with pytest.raises(InputError, match="after a colon"):
        load_embedder(spec)


def test_an_object_is_no_name() -> None:
    with pytest.raises(InputError, match=r"HashingEmbedder is an object: open the workspace with it"):
        load_embedder(HashingEmbedder())  # type: ignore[arg-type]


def test_the_address_follows_the_last_at_sign() -> None:
    pytest.importorskip("openai")
    assert load_embedder("openai:a@b@http://127.0.0.1:1/v1").name == "openai:a@b@http://127.0.0.1:1/v1||"


@pytest.mark.parametrize(
    ("package", "extra", "make"),
    [
        ("sentence_transformers", "sentence-transformers", lambda path: SentenceTransformersEmbedder("any")),
        ("openai", "openai", lambda path: OpenAIEmbedder("any")),
        ("tokenizers", "onnx", OnnxEmbedder),
    ],
)
def test_an_absent_package_is_named_with_the_install_line(
    package: str, extra: str, make: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # what an import meets where the package is not installed
    (tmp_path / "model.onnx").touch()
    (tmp_path / "tokenizer.json").touch()
    with pytest.raises(MissingDependencyError, match=rf"pip install 'pointsman\[{extra}\]'"):
        make(tmp_path)


class FakeModel:
    """A fake of `sentence_transformers.SentenceTransformer`: the real one brings PyTorch, of gigabytes."""

    def __init__(self, name_or_path: str, *, device: str | None = None) -> None:
        self.length = None if name_or_path == "without" else 2

    def encode(
        self, texts: list[str], *, batch_size: int, convert_to_numpy: bool, show_progress_bar: bool
    ) -> NDArray[np.float32]:
        return np.array([[len(text), 1] for text in texts], np.float32)


class FakeOfVersion3(FakeModel):
    def get_sentence_embedding_dimension(self) -> int | None:
        return self.length


class FakeOfVersion6(FakeModel):
    def get_embedding_dimension(self) -> int | None:
        return self.length

    def get_sentence_embedding_dimension(self) -> int | None:
        raise AssertionError("deprecated")


@pytest.mark.parametrize("model", [FakeOfVersion3, FakeOfVersion6])
def test_models_of_sentence_transformers(model: type[FakeModel], monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("sentence_transformers")
    monkeypatch.setattr(package, "SentenceTransformer", model, raising=False)
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    embedder = load_embedder("sentence-transformers:any")
    assert (embedder.name, embedder.dimensions) == ("sentence-transformers:any||", 2)
    vectors = embedder.embed_documents(["rails", ""] * 40)
    assert vectors.shape == (80, 2)
    assert np.allclose(vectors[:2], [[5 / 26**0.5, 1 / 26**0.5], [0, 1]])
    with pytest.raises(ModelError, match="does not tell how long the vectors of 'without' are"):
        load_embedder("sentence-transformers:without")


def test_every_public_name_is_there() -> None:
    assert sorted(pointsman.embedders.__all__) == pointsman.embedders.__all__
    for name in pointsman.embedders.__all__:
        assert getattr(pointsman.embedders, name) is not None
    assert set(pointsman.embedders.__all__) <= set(dir(pointsman.embedders))
    with pytest.raises(AttributeError, match="nothing"):
        _ = pointsman.embedders.nothing  # type: ignore[attr-defined]


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POINTSMAN_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("POINTSMAN_CACHE")
    assert cache_directory().name == "pointsman"


# -- the fake ---------------------------------------------------------------------------------------------------------


def test_the_fake_is_the_same_everywhere() -> None:
    vector = HashingEmbedder(8).embed("a pointsman")
    assert np.allclose(vector * np.sqrt(8), [-1, 1, -1, 1, 0, 2, 0, 0])
    assert np.array_equal(vector, HashingEmbedder(8).embed_documents(["a pointsman"])[0])


def test_the_fake_finds_common_words() -> None:
    cat, cats, rain = HashingEmbedder().embed(["a black cat", "black cats", "heavy rain"])
    assert cat @ cats > cat @ rain + 0.2


@given(st.text(st.characters(exclude_categories=())), st.integers(1, 100))
def test_the_fake_gives_unit_vectors(text: str, dimensions: int) -> None:
    vector = HashingEmbedder(dimensions).embed(text)
    assert vector.shape == (dimensions,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_no_text_has_its_own_vector() -> None:
    empty, blank = HashingEmbedder().embed(["", " \n"])
    assert np.array_equal(empty, blank)
    assert empty[0] == 1
    with pytest.raises(InputError, match="dimensions"):
        HashingEmbedder(0)
