"""Runs text models from a folder with an ONNX file and a ``tokenizer.json``, mainly embedding models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from pointsman.embedders.base_embedder import PrefixedEmbedder, length_of_head, names_for_people, unit_rows
from pointsman.embedders.onnx_runtime import equal_runs, load_onnxruntime
from pointsman.tools.errors import InputError, MissingDependencyError, ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pooling = Literal["mean", "cls"]

_RUN_TOKENS: Final = 4096  # bounds the memory of a run
_CHARACTERS_PER_TOKEN: Final = 32  # text beyond this cannot affect the first max_tokens


class OnnxTextModel:
    """A folder's model, run on the CPU, and its tokenizer, with any saved padding and truncation removed.

    Attributes:
        name: identifies the folder and the content of its files, but no usage settings.
        tokenizer: a tokenizer from the package ``tokenizers``.
        outputs: the model's outputs, with ``name`` and ``shape``.
    """

    def __init__(self, directory: str | Path, threads: int | None, needed_for: str) -> None:
        """Open the files.

        Args:
            directory: the folder; the model and ``tokenizer.json`` are in it or in its ``onnx/``.
            threads: cores a run may use; None lets onnxruntime choose.
            needed_for: the feature to name if a package is missing.

        Raises:
            InputError: a file is absent.
            MissingDependencyError: the package ``tokenizers`` is not installed.
            ModelError: a file has an invalid format.
        """
        self.folder = Path(directory)
        path = _existing_file(self.folder, "model.onnx", "onnx/model.onnx")
        tokens_path = _existing_file(self.folder, "tokenizer.json", "onnx/tokenizer.json")
        try:
            import tokenizers
        except ImportError as error:
            raise MissingDependencyError("tokenizers", "onnx", needed_for) from error
        self._session = _onnx_session(path, threads)
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(str(tokens_path))
        except Exception as error:  # the package has no common base error
            raise ModelError(f"the model in {self.folder} cannot be opened: {error}") from error
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self._inputs = {item.name: item.type for item in self._session.get_inputs()}
        self.outputs: Sequence[Any] = self._session.get_outputs()
        self.name = f"onnx:{self.folder.name}|{_digest_of(path, tokens_path)}"

    def run(self, output: str, ids: list[list[int]], types: list[list[int]] | None = None) -> NDArray[np.float32]:
        """Return one output for texts with the same number of tokens; the model gets the inputs that it declares.

        Args:
            output: the name of the output.
            ids: the tokens of each text.
            types: which of two texts each token belongs to; zeros if there is one text.

        Raises:
            ModelError: the model needs another input, or fails.
        """
        tokens = np.array(ids, np.int64)
        inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
        inputs["token_type_ids"] = np.zeros_like(tokens) if types is None else np.array(types, np.int64)
        inputs["position_ids"] = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
        try:
            feed = {
                name: inputs[name].astype(np.int32 if kind == "tensor(int32)" else np.int64)
                for name, kind in self._inputs.items()
            }
        except KeyError as error:
            raise ModelError(f"{self.name} wants the input {error}, which is not that of a text model") from error
        try:
            result: NDArray[np.float32] = self._session.run([output], feed)[0]
        except Exception as error:  # as in the constructor
            raise ModelError(f"{self.name} failed: {error}") from error
        return result


class OnnxEmbedder(PrefixedEmbedder):
    """An embedder for a local ONNX model, run on the CPU.

    The folder holds ``model.onnx`` (or ``onnx/model.onnx``) and ``tokenizer.json``. An output of rank 2 is the
    embedding; one of rank 3, with a vector per token, is pooled.

    Only texts with the same number of tokens share a run, so nothing is padded, and a vector does not depend on its
    batch, unless the quantisation of the model makes it depend on it. Of a longer text, the head is embedded.
    """

    only_computes = True

    def __init__(
        self,
        directory: str | Path,
        query_prefix: str = "",
        document_prefix: str = "",
        pooling: Pooling | None = None,
        max_tokens: int = 512,
        *,
        threads: int | None = None,
    ) -> None:
        """Open the model.

        Args:
            directory: The folder.
            query_prefix: Put before every query.
            document_prefix: Put before every document.
            pooling: How token vectors are combined. None: as in ``1_Pooling/config.json`` if present, else the mean.
            max_tokens: Maximum input length; of a longer text, the head is embedded.
            threads: Cores a run may use; None lets onnxruntime choose.

        Raises:
            InputError: A file is absent, or a setting is invalid.
            MissingDependencyError: The package ``tokenizers`` is not installed.
            ModelError: A file has an invalid format.
        """
        if pooling not in {None, "mean", "cls"}:
            raise InputError(f"pooling is 'mean', 'cls' or None, not {pooling!r}")
        if max_tokens < 3:
            raise InputError(f"max_tokens is at least 3, not {max_tokens}")
        self._model = OnnxTextModel(directory, threads, "OnnxEmbedder")
        self._model.tokenizer.enable_truncation(max_tokens)
        self._max_tokens = max_tokens
        self._output = _output(self._model.outputs, self._model.folder)
        self._pooling = pooling or _configured_pooling(self._model.folder)
        self._prefixes = query_prefix, document_prefix
        self._name = f"{self._model.name}|{self._pooling}|{max_tokens}|{query_prefix}|{document_prefix}"
        self._dimensions = len(self._run([self._tokens("dimensions")])[0])

    def truncated_at(self, text: str, *, as_query: bool = False) -> int | None:
        """See `BaseEmbedder`; the limit is that of the tokens."""
        prefix = self._prefixes[0 if as_query else 1]
        most_characters = self._max_tokens * _CHARACTERS_PER_TOKEN - len(prefix)
        return length_of_head(text, lambda head: self._tokens(prefix + head), self._max_tokens, most_characters)

    def _batches(self, prefix: str, texts: list[str]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        (source,) = names_for_people(self._name)
        tokens = [self._tokens(prefix + text) for text in texts]
        for run in equal_runs([len(ids) for ids in tokens], _RUN_TOKENS):
            yield run, unit_rows(self._run([tokens[position] for position in run]), source)

    def _tokens(self, text: str) -> list[int]:
        # Lone surrogates become "?".
        clean = text[: self._max_tokens * _CHARACTERS_PER_TOKEN].encode("utf-8", "replace").decode()
        ids: list[int] = self._model.tokenizer.encode(clean).ids
        return ids or [0]  # a tokenizer without markers returns nothing for an empty text

    def _run(self, batch: list[list[int]]) -> NDArray[np.float32]:
        output = self._model.run(self._output, batch)
        if output.ndim == 3:
            output = output[:, 0] if self._pooling == "cls" else output.mean(axis=1)
        return output


def _onnx_session(path: Path, threads: int | None) -> Any:
    """Open a model of onnxruntime on the CPU.

    Raises:
        ModelError: the file has an invalid format.
    """
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the package has no common base error
        raise ModelError(f"the model in {path.parent} cannot be opened: {error}") from error


def _digest_of(*paths: Path) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of files one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]


def _existing_file(folder: Path, *names: str) -> Path:
    """Return the path of the first of these files that a folder holds.

    Raises:
        InputError: it holds none.
    """
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder} holds no {' or '.join(names)}; give the folder of an ONNX model")


def _output(outputs: Sequence[Any], folder: Path) -> str:
    """Return the output with an embedding of the whole text if the model has one, else that of its tokens."""
    for name in ("sentence_embedding", "last_hidden_state", "token_embeddings"):
        if any(output.name == name for output in outputs):
            return name
    for output in outputs:
        if len(output.shape) in {2, 3}:
            choice: str = output.name
            return choice
    names = ", ".join(output.name for output in outputs)
    raise ModelError(f"the model in {folder} has no output of rank 2 or 3; it has {names}")


def _configured_pooling(folder: Path) -> Pooling:
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return "mean"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    return "cls" if config.get("pooling_mode_cls_token") else "mean"
