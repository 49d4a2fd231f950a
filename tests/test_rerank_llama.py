"""The HTTP reranker against a real server, llama.cpp, with a tiny model that the test writes: random, but the same."""

from __future__ import annotations

import asyncio
import importlib.util
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pointsman.retrieval.refine.rerank import HTTPReranker
from pointsman.tools.errors import ModelError
from pointsman.values.types import Document, Hit, Query, Ranked

SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = 128
params.n_parallel = 1
params.port = 0
params.cpuparams.n_threads = 1
params.embedding = True
params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
server = xllamacpp.Server(params)
print("LISTENING", server.listening_address, flush=True)
sys.stdin.read()  # until the test closes it
"""

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]"),
    *("▁rails", "▁trains", "▁moon", "▁cheese", "▁铁", "▁路", "▁рельсы"),
    *LETTERS,
    *(f"▁{letter}" for letter in LETTERS),
]
CONTEXT, WIDTH, INNER = 128, 32, 64


def write_reranker(path: Path) -> None:
    """A BERT of one layer with a head that gives one number, in GGUF, version 3.

    The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
    """
    random = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray[Any, Any]:
        return random.standard_normal(shape) * 0.3

    tensors = {
        "token_embd.weight": matrix(len(VOCABULARY), WIDTH),
        "token_types.weight": matrix(2, WIDTH),
        "position_embd.weight": matrix(CONTEXT, WIDTH),
        "cls.weight": matrix(WIDTH, WIDTH),
        "cls.output.weight": matrix(1, WIDTH),
        "blk.0.ffn_up.weight": matrix(INNER, WIDTH),
        "blk.0.ffn_down.weight": matrix(WIDTH, INNER),
        "blk.0.ffn_up.bias": np.zeros(INNER),
        "cls.output.bias": np.zeros(1),
    }
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        tensors[f"blk.0.{name}.weight"] = matrix(WIDTH, WIDTH)
    for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        tensors[f"{name}.weight"] = np.ones(WIDTH)
        tensors[f"{name}.bias"] = np.zeros(WIDTH)
    for name in ("cls", "blk.0.ffn_down", *(f"blk.0.attn_{matrix}" for matrix in ("q", "k", "v", "output"))):
        tensors[f"{name}.bias"] = np.zeros(WIDTH)
    metadata = {
        "general.architecture": "bert",
        "bert.context_length": CONTEXT,
        "bert.embedding_length": WIDTH,
        "bert.block_count": 1,
        "bert.feed_forward_length": INNER,
        "bert.attention.head_count": 2,
        "bert.attention.layer_norm_epsilon": 1e-12,
        "bert.attention.causal": False,
        "bert.pooling_type": 4,  # rank
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": VOCABULARY,
        "tokenizer.ggml.token_type": [3] * 4 + [1] * (len(VOCABULARY) - 4),
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.seperator_token_id": 3,  # as the format spells it
    }
    path.write_bytes(_gguf(metadata, tensors))


def _gguf(metadata: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(name) + _value(value) for name, value in metadata.items())
    data = b""
    for name, tensor in tensors.items():
        shape = [struct.pack("<Q", size) for size in reversed(tensor.shape)]
        head += _text(name) + struct.pack("<I", tensor.ndim) + b"".join(shape) + struct.pack("<IQ", 0, len(data))
        data += _align(tensor.astype("<f4").tobytes())
    return _align(head) + data


def _align(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 32)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    kind = 8 if isinstance(value[0], str) else 5
    items = b"".join(_text(item) if kind == 8 else struct.pack("<i", item) for item in value)
    return struct.pack("<IIQ", 9, kind, len(value)) + items


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("no xllamacpp; install it with: pip install 'pointsman[localmodel]'")
    model = tmp_path_factory.mktemp("reranker") / "tiny.gguf"
    write_reranker(model)
    command = [sys.executable, "-c", SERVER, str(model)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        address = next((line.split()[1] for line in process.stdout if line.startswith("LISTENING")), None)
        assert address is not None, "the model server ended before it listened"
        yield address
        process.kill()


@pytest.fixture
def reranker(address: str) -> Iterator[HTTPReranker]:
    reranker = HTTPReranker(address, model="tiny", max_chars=300, timeout=60, cache=False)
    yield reranker
    reranker.close()


TEXTS = ["moon cheese", "rails and trains", "рельсы", "铁路", "trains"]


@pytest.mark.parametrize("path", ["", "/v1/rerank", "/rerank"])
def test_it_speaks_with_a_real_server(address: str, reranker: HTTPReranker, path: str) -> None:
    scores = list(reranker.score("rails", TEXTS))
    assert len(set(scores)) == len(TEXTS)
    second_reranker = HTTPReranker(address + path, model="tiny", timeout=60)
    assert list(second_reranker.score("rails", TEXTS)) == pytest.approx(scores)
    documents = [Document(text, text) for text in TEXTS]
    best = second_reranker.rerank("rails", documents, None)
    expected = sorted(zip(scores, TEXTS, strict=True), reverse=True)
    assert [document.id for document in best] == [text for _, text in expected]
    assert asyncio.run(second_reranker.arerank("rails", documents, None)) == best
    second_reranker.close()


def test_a_score_does_not_depend_on_its_batch(address: str, reranker: HTTPReranker) -> None:
    small = HTTPReranker(address, batch_size=2, timeout=60)
    assert list(small.score("rails", TEXTS)) == pytest.approx(list(reranker.score("rails", TEXTS)))
    small.close()


def test_empty_lists_and_texts(reranker: HTTPReranker) -> None:
    assert reranker.rerank("rails", []) == []
    assert len(reranker.score("", ["", "\0", "\ud800"])) == 3


def test_what_is_longer_than_the_model_reads(address: str, reranker: HTTPReranker) -> None:
    long = "moon cheese " * 100
    assert len(reranker.score("rails", [long, "rails"])) == 2, "cut to what fits"
    full_reranker = HTTPReranker(address, max_chars=None, retries=0, timeout=60)
    with pytest.raises(ModelError, match=r"larger than|too large"):
        full_reranker.score("rails", [long, "rails"])
    original = Ranked((Hit(Document("a", long), 1.0), Hit(Document("b", "rails"), 0.5)), "rrf")
    outcome = full_reranker.refine(Query("rails"), original, 2)
    assert outcome.hits == original.hits
    assert "the previous order is kept" in outcome.degraded[0]
    full_reranker.close()
