"""Cross-encoders from a local folder: models that read query and document together."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from pointsman.embedders.onnx_directory import OnnxTextModel
from pointsman.embedders.onnx_runtime import equal_runs
from pointsman.retrieval.refine.rerank.base_reranker import MAX_CANDIDATES, TIMEOUT, BaseReranker
from pointsman.text import repair
from pointsman.tools.batching import batched
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.argument_checks import check_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.retrieval.refine.rerank.rerank_scores import Pair

_log = logging.getLogger(__name__)

Truncation = Literal["end", "start", "middle", "windows"]

_RUN_TOKENS: Final = 16_384
"""Bounds the memory of a run."""

_CHARACTERS_PER_TOKEN: Final = 32
"""Characters read per token of the limit; hardly any token is longer."""

_LEAST_ROOM: Final = 16
"""The smallest sensible token limit: some of the query, some of the document, and the special tokens."""


class CrossEncoderReranker(BaseReranker):
    """A local ONNX cross-encoder (BGE, MiniLM, Jina and similar models), run on the CPU.

    The folder holds ``model.onnx`` (or ``onnx/model.onnx``), ``tokenizer.json`` and optionally ``config.json``. A score
    is the model's single logit, unchanged; a model of two classes gives the probability of the last. Only pairs with
    the same number of tokens share a run, so there is no padding, and no score depends on the other texts, except for
    float32 rounding.

    The query is always kept: the document is cut to fit. Only a query that leaves less than a quarter of ``max_length``
    to the document is itself cut at its end.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        max_length: int = 512,
        batch_size: int = 32,
        truncation: Truncation = "end",
        max_windows: int = 8,
        threads: int | None = None,
        max_candidates: int = MAX_CANDIDATES,
        timeout: float | None = TIMEOUT,
        cache: bool | int = True,
    ) -> None:
        """Open the model.

        Args:
            directory: the folder.
            max_length: tokens of query and document together; less if ``config.json`` allows fewer positions.
            batch_size: maximum pairs per run.
            truncation: the part of an overlong document that is dropped: its ``"end"``, its ``"start"`` or its
                ``"middle"``; or ``"windows"``: none, it is read in windows that overlap by a quarter, and the best
                window's score counts.
            max_windows: windows per document; the text after them is not read.
            threads: cores that a run may use; None lets onnxruntime choose.
            max_candidates: hits of a ranking that are scored.
            timeout: seconds for one ``rerank`` or ``refine``.
            cache: how many scores to remember.

        Raises:
            InputError: a file is missing, or a setting is invalid.
            MissingDependencyError: the package ``tokenizers`` is not installed.
            ModelError: a file cannot be read in its expected format, or the model gives no score for a pair.
        """
        super().__init__(max_candidates=max_candidates, timeout=timeout, cache=cache)
        if truncation not in get_args(Truncation):
            raise InputError(f"truncation is one of {', '.join(get_args(Truncation))}, not {truncation!r}")
        if check_count(max_length, "max_length") < _LEAST_ROOM:
            raise InputError(f"max_length is at least {_LEAST_ROOM}, not {max_length}")
        self._batch_size = check_count(batch_size, "batch_size")
        check_count(max_windows, "max_windows")
        self._windows = max_windows if truncation == "windows" else 1
        self._truncation = truncation
        self._model = OnnxTextModel(directory, threads, "CrossEncoderReranker")
        self._max_length = min(max_length, _positions(self._model.folder) or max_length)
        if self._max_length < _LEAST_ROOM:
            raise InputError(f"the model in {self._model.folder} reads {self._max_length} tokens only")
        self._marks: int = self._model.tokenizer.num_special_tokens_to_add(True)
        names = [output.name for output in self._model.outputs]
        self._output: str = "logits" if "logits" in names else names[0]
        windows = f"-{max_windows}" if truncation == "windows" else ""
        self._name = f"{self._model.name}|{self._max_length}|{truncation}{windows}"
        self._run([self._encode_pair("query", "document")])  # fails at once if this is not a cross-encoder

    @property
    def name(self) -> str:
        """The folder, its contents, and the settings that change scores."""
        return self._name

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return one score per text.

        Raises:
            ModelError: the model failed.
        """
        return self.score_pairs([(query, text) for text in texts])

    def score_pairs(self, pairs: Sequence[Pair]) -> Sequence[float]:
        """`score` for pairs of several queries, in shared batches.

        Raises:
            ModelError: the model failed.
        """
        queries = {query: self._query(query) for query, _ in pairs}
        owners: list[int] = []
        encodings: list[Any] = []
        for owner, (query, text) in enumerate(pairs):
            short, tokens = queries[query]
            for window in self._text_parts(text, self._max_length - self._marks - tokens):
                owners.append(owner)
                encodings.append(self._encode_pair(short, window))
        scores = np.full(len(pairs), -np.inf)
        for run in equal_runs([len(encoding.ids) for encoding in encodings], _RUN_TOKENS):
            for indices in batched(run, self._batch_size):
                run_scores = self._run([encodings[index] for index in indices])
                np.maximum.at(scores, [owners[index] for index in indices], run_scores)
        best: list[float] = scores.tolist()
        return best

    def _encode_pair(self, query: str, text: str) -> Any:
        """The pair as tokens; a text cut inside a word may yield more tokens than before, and is cut again."""
        encoding = self._model.tokenizer.encode(query, text)
        while (excess := len(encoding.ids) - self._max_length) > 0 and text:
            offsets = self._offsets(text)
            if excess >= len(offsets):
                text = ""
            elif self._truncation == "start":
                text = text[max(1, offsets[excess][0]) :]
            else:
                text = text[: min(len(text) - 1, offsets[-excess][0])]
            encoding = self._model.tokenizer.encode(query, text)
        return encoding

    def _run(self, encodings: Sequence[Any]) -> NDArray[np.float64]:
        output = self._model.run(
            self._output, [encoding.ids for encoding in encodings], [encoding.type_ids for encoding in encodings]
        )
        logits = np.asarray(output, np.float64)
        if logits.ndim == 2 and logits.shape[1] == 1:
            logits = logits[:, 0]
        elif logits.ndim == 2 and logits.shape[1] == 2:
            logits = 1 / (1 + np.exp(np.clip(logits[:, 0] - logits[:, 1], -700, 700)))  # softmax of two
        if logits.shape != (len(encodings),):
            raise ModelError(
                f"{self._model.name} is not a cross-encoder: output {self._output!r} has the shape {output.shape} for "
                f"{len(encodings)} pairs; one or two numbers for each are wanted"
            )
        if not np.isfinite(logits).all():
            raise ModelError(f"{self._model.name} gave a score that is not finite")
        return logits

    # ── the part of a text that is read ──────────────────────────────────────────────────────────────────────────

    def _query(self, query: str) -> tuple[str, int]:
        """The query as it is read, and its number of tokens."""
        limit = self._max_length - self._marks - self._max_length // 4
        query = repair(query[: self._max_length * _CHARACTERS_PER_TOKEN])
        ends = self._offsets(query)
        if len(ends) <= limit:
            return query, len(ends)
        _log.warning("a query of %d tokens is cut to %d, to leave room for documents", len(ends), limit)
        return query[: ends[limit - 1][1]], limit

    def _text_parts(self, text: str, room: int) -> Iterator[str]:
        """Yields the parts of a document to read, each of at most ``room`` tokens: one part, or several windows."""
        max_characters = room * _CHARACTERS_PER_TOKEN * self._windows
        if len(text) > max_characters:
            text = _CUTS[self._truncation](text, max_characters)
        text = repair(text)
        offsets = self._offsets(text)
        if len(offsets) <= room:
            yield text
        elif self._truncation == "end":
            yield text[: offsets[room - 1][1]]
        elif self._truncation == "start":
            yield text[offsets[-room][0] :]
        elif self._truncation == "middle":
            head = (room - 1) // 2  # less one, since the blank between may be a token
            tail = room - 1 - head
            yield f"{text[: offsets[head - 1][1]]} {text[offsets[-tail][0] :]}"
        else:
            step = room - room // 4
            starts = range(0, max(1, len(offsets) - room // 4), step)
            for start in starts[: self._windows]:
                yield text[offsets[start][0] : offsets[min(start + room, len(offsets)) - 1][1]]

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        """The start and end of each token, in characters."""
        offsets: list[tuple[int, int]] = self._model.tokenizer.encode(text, add_special_tokens=False).offsets
        return offsets


def _head(text: str, limit: int) -> str:
    return text[:limit]


def _tail(text: str, limit: int) -> str:
    return text[-limit:]


def _ends(text: str, limit: int) -> str:
    return text[: limit // 2] + text[-(limit // 2) :]


_CUTS: dict[str, Callable[[str, int], str]] = {"end": _head, "windows": _head, "start": _tail, "middle": _ends}


def _positions(folder: Path) -> int | None:
    """The number of positions that the model supports according to ``config.json``; None if it doesn't say."""
    path = folder / "config.json"
    if not path.is_file():
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        positions = config.get("max_position_embeddings")
        # The RoBERTa family counts positions from the padding token's id on.
        family = str(config.get("model_type", ""))
        count_unused = int(config.get("pad_token_id") or 0) + 1 if "roberta" in family or family == "camembert" else 0
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"{path} is not the configuration of a model: {error}") from error
    return positions - count_unused if isinstance(positions, int) and positions > 0 else None
