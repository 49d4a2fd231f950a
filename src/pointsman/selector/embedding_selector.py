"""`EmbeddingSelector`: selects the choice whose description or example is nearest in meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pointsman.embedders.named_embedders import as_embedder
from pointsman.selector.base_selector import (
    BaseSelector,
    Choices,
    Fallback,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
    as_choice,
)
from pointsman.selector.choices.choice_vectors import (
    Recent,
    TextVectors,
    best_first,
    check_lengths,
    cosines,
    embed_texts,
    examples_of,
    softmax_share,
)
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import check_count
from pointsman.values.reasons import Reason
from pointsman.values.types import Query

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.selector.choices.choice_vectors import AnyEmbedder

_SPREAD: Final = 0.05  # of cosines, for an embedder that does not state its own
_SHARPNESS: Final = 2.0  # a lead of half a spread is a factor of e: least calibration error over five public sets


@dataclass(frozen=True, slots=True)
class _Rows:
    """The vectors of a set of choices in one matrix, with the rows of each choice adjacent.

    Attributes:
        matrix: unit or zero rows.
        starts: index of each choice's first row; None if each has exactly one.
    """

    matrix: NDArray[np.float32]
    starts: NDArray[np.intp] | None


class EmbeddingSelector(BaseSelector):
    """Selects by the cosine between the query and each choice's description.

    Every distinct description and example is embedded once and cached, in whatever set and order of choices it occurs;
    a warm selection costs one embedding of the query and one matrix product. Choices are values: changing the
    ``metadata`` of one in place has no effect.

    The score of a choice with example queries (``metadata["examples"]``) is the maximum over its description and
    examples. A zero vector scores 0 against everything.

    ``confidence`` is the share of the first selection in the softmax of all cosines, each divided by the embedder's
    random spread of cosines. It is not calibrated: compare its values, but do not read it as a probability.
    """

    def __init__(
        self,
        embedder: AnyEmbedder,
        top_k: int = 1,
        *,
        threshold: float | None = None,
        allow_abstain: bool | None = None,
        cache_size: int = 10_000,
    ) -> None:
        """Set up; nothing is embedded yet.

        Args:
            embedder: anything with ``embed(text)``; if it has ``embed_queries`` and ``embed_documents``, these are used
                for queries and examples, and for descriptions.
            top_k: maximum number of choices to select.
            threshold: the cosine that a choice must reach to be selected.
            allow_abstain: whether to select nothing when no choice reaches the threshold (the default); if False, the
                best one is still selected, and the result's ``fallback`` says so.
            cache_size: number of texts whose vectors are cached.

        Raises:
            InputError: the embedder, a number or an option is invalid.
        """
        self.embedder = as_embedder(embedder)
        self.top_k = check_count(top_k, "top_k")
        if threshold is not None and not (isinstance(threshold, int | float) and math.isfinite(threshold)):
            raise InputError(f"threshold is a finite number, or None for no threshold, not {threshold!r}")
        self.threshold = threshold
        self.allow_abstain = threshold is not None if allow_abstain is None else allow_abstain
        self._vectors = TextVectors(self.embedder, cache_size)
        self._rows = Recent(self._build)
        spread = getattr(self.embedder, "cosine_spread", None)
        if not (isinstance(spread, float) and spread > 0):
            spread = _SPREAD
        self._scale = _SHARPNESS / spread

    def scores(self, choices: Choices, query: Query | str) -> list[float]:
        """Return the cosine of every choice, in the order of the choices (as needed by `HybridSelector`)."""
        scores: list[float] = self._cosines(tuple(map(as_choice, choices)), Query.of(query).text).tolist()
        return scores

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Select the nearest choices, best first; ties go to the first.

        Raises:
            InputError: choices or query are invalid.
            ModelError: the embedder did not return one finite vector per text.
        """
        assert isinstance(choices, tuple)
        assert isinstance(query, Query)
        scores = self._cosines(choices, query.text)
        best = best_first(scores, self.top_k)
        fallback = None
        if self.threshold is not None:
            passing = [index for index in best if scores[index] >= self.threshold]
            if not passing:
                if self.allow_abstain:
                    return SelectorResult(())
                reason = Reason.of("selector_far", cosine=f"{scores[best[0]]:.4f}", threshold=self.threshold)
                passing, fallback = best[:1], Fallback(reason, "best")
            best = passing
        selections = []
        for index in best:
            score = float(scores[index])
            selections.append(SingleSelection(index, f"Cosine similarity: {score:.4f}", score))
        return SelectorResult(selections, softmax_share(scores, self._scale), fallback)

    def _cosines(self, choices: tuple[ToolMetadata, ...], text: str) -> NDArray[np.float32]:
        query = embed_texts(self.embedder, [text], "query")[0]
        rows = self._rows.of(choices)
        check_lengths(self.embedder, len(query), rows.matrix.shape[1])
        similarities = cosines(rows.matrix, query)
        return similarities if rows.starts is None else np.maximum.reduceat(similarities, rows.starts)

    def _build(self, choices: tuple[ToolMetadata, ...]) -> _Rows:
        descriptions = self._vectors.of([choice.description or choice.name for choice in choices], "document")
        if not any(choice.metadata for choice in choices):
            return _Rows(descriptions, None)
        blocks, starts, row = [], [], 0
        for choice, description in zip(choices, descriptions, strict=True):
            rows = [description[np.newaxis]]
            if examples := examples_of(choice):
                rows.append(self._vectors.of(examples, "query"))
            starts.append(row)
            row += sum(map(len, rows))
            blocks += rows
        return _Rows(np.concatenate(blocks), np.array(starts, np.intp))
