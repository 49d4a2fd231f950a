"""`DescriptionSelector`, the recommended one: uses words and meaning of names, descriptions and examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from pointsman.selector.choices.choice_features import SCALE, WEIGHTS, ChoiceSet, LabelledExamples
from pointsman.selector.choices.choice_vectors import (
    GENERAL_QUERIES,
    Recent,
    TextVectors,
    best_first,
    embed_texts,
    softmax_share,
)
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import check_count
from pointsman.values.reasons import Reason
from pointsman.values.types import Query

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from pointsman.selector.choices.choice_vectors import AnyEmbedder
    from pointsman.selector.fitted_selector import Fitted, Label


class DescriptionSelector(BaseSelector):
    """Selects by a weighted sum of three standard scores, each over all choices.

    - **words**, weight 1: BM25 over name, description and examples. The project's analyser splits identifiers
      (``get_weather``, ``getWeather``) and stems English and Russian; Chinese is indexed by characters and pairs.
    - **meaning**, weight 2: the cosine to ``name: description``, both sides centred.
    - **examples**, weight 2: the cosine to the nearest of the choice's example queries (``metadata["examples"]``), or
      to their centroids; omitted if no choice has examples.

    The features of choices are computed once and cached; choices are values, and changing the ``metadata`` of one in
    place has no effect.

    ``confidence``, before `fit`: the first selection's share of the softmax of all sums. It measures how far the best
    stands out among these choices, not whether it, or any choice, is right: for a query that no choice fits, one of
    them is still the best. After `fit`: the calibrated probability that the first selection is right, computed from its
    lead and its cosine. ``threshold`` applies to this confidence.
    """

    def __init__(
        self,
        embedder: AnyEmbedder,
        top_k: int = 1,
        *,
        query_mean: ArrayLike | None = None,
        centroids: int = 8,
        threshold: float | None = None,
        allow_abstain: bool | None = None,
        fitted: Fitted | None = None,
        cache_size: int = 10_000,
    ) -> None:
        """Set up; nothing is embedded yet.

        Args:
            embedder: anything with ``embed(text)``; if it has ``embed_queries`` and ``embed_documents``, these are used
                for queries and examples, and for descriptions.
            top_k: maximum number of choices to select.
            query_mean: the mean of queries, on which they are centred, shape ``(dimensions,)``; None: that of some
                everyday queries in three languages. A fitted selector uses its learned one.
            centroids: number of centroids that represent a choice's examples if it has more of them.
            threshold: the confidence, 0 to 1, below which no choice is selected; a fitted selector may have a learned
                one.
            allow_abstain: whether to select nothing below the threshold (the default); if False, the best is still
                selected, and the result's ``fallback`` says so.
            fitted: the result of `fit`.
            cache_size: number of texts whose vectors are cached.

        Raises:
            InputError: the embedder, a number or an option is invalid, or ``fitted`` comes from another embedder.
        """
        self.embedder = as_embedder(embedder)
        self.top_k = check_count(top_k, "top_k")
        self.fitted = fitted
        if fitted is not None:
            fitted.check_embedder(self.embedder)
            query_mean = fitted.query_mean
            threshold = fitted.threshold if threshold is None else threshold
        if threshold is not None and not (isinstance(threshold, int | float) and 0 <= threshold <= 1):
            raise InputError(f"threshold is a confidence from 0 to 1, or None for no threshold, not {threshold!r}")
        self.threshold = threshold
        self.allow_abstain = threshold is not None if allow_abstain is None else allow_abstain
        self.options: dict[str, Any] = {"centroids": check_count(centroids, "centroids"), "cache_size": cache_size}
        self._weights = np.array(WEIGHTS if fitted is None else fitted.weights)
        self._vectors = TextVectors(self.embedder, cache_size)
        self._query_mean = None if query_mean is None else _vector(query_mean)
        self._sets = Recent(self.choice_set)

    def scores(self, choices: Choices, query: Query | str) -> list[float]:
        """Return the weighted sum for every choice, in the order of the choices (as needed by `HybridSelector`)."""
        features, _ = self._features(tuple(map(as_choice, choices)), Query.of(query).text)
        scores: list[float] = (self._weights @ features).tolist()
        return scores

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Select the choices with the highest sums, best first; ties go to the first.

        Raises:
            InputError: choices or query are invalid.
            ModelError: the embedder did not return one finite vector per text.
        """
        assert isinstance(choices, tuple)
        assert isinstance(query, Query)
        features, highest = self._features(choices, query.text)
        sums = self._weights @ features
        best = best_first(sums, self.top_k)
        confidence = self._confidence(sums, highest)
        fallback = None
        if self.threshold is not None and confidence < self.threshold:
            if self.allow_abstain:
                return SelectorResult(())
            fallback = Fallback(
                Reason.of("selector_unsure", confidence=f"{confidence:.2f}", threshold=self.threshold), "best"
            )
        return SelectorResult([self._selection(index, sums, features) for index in best], confidence, fallback)

    def fit(
        self, queries: Sequence[str], labels: Sequence[Label], choices: Choices, *, folds: int = 5
    ) -> DescriptionSelector:
        """Return a selector that has learned from queries with known right choices; this one is not changed.

        It learns the query mean, examples for each choice (as centroids and words), the three weights, the calibration
        of the confidence, and, if some labels are None, the threshold below which to abstain. ``fitted.report`` has the
        accuracy on held-out queries.

        Few labels do no harm: the weights are regularised towards the unfitted ones, and what was learned is used only
        if it was more accurate on held-out queries by more than one standard error of the difference; the simplest such
        variant is kept unless another beats it by as much. Below ten labels nothing is learned about selecting, below
        thirty nothing about confidence.

        Args:
            queries: the queries.
            labels: the right choice for each query: its index, its name, several of these if each is right, or None if
                none is.
            choices: the choices; names must differ.
            folds: number of cross-validation folds.

        Raises:
            InputError: the numbers of queries and labels differ, or a label is not a choice.
        """
        from pointsman.selector.fitted_selector import learn

        weights = learn(self, queries, labels, tuple(map(as_choice, choices)), folds)
        return DescriptionSelector(self.embedder, self.top_k, fitted=weights, **self.options)

    def save(self, path: str | Path) -> None:
        """Write the result of `fit` as JSON.

        Raises:
            InputError: nothing was fitted.
        """
        if self.fitted is None:
            raise InputError("nothing to save; call fit(queries, labels, choices) first")
        Path(path).write_text(self.fitted.to_json(), "utf-8")

    @classmethod
    def load(cls, path: str | Path, embedder: AnyEmbedder, top_k: int = 1, **options: Any) -> DescriptionSelector:
        """Load a selector written by `save`, for the same embedder.

        Raises:
            InputError: the file cannot be read, is not what `save` writes, or belongs to another embedder.
        """
        from pointsman.selector.fitted_selector import Fitted

        return cls(embedder, top_k, fitted=Fitted.read(path), **options)

    def choice_set(self, choices: tuple[ToolMetadata, ...], examples: LabelledExamples | None = None) -> ChoiceSet:
        """Return the features of choices, with the fitted examples or with others."""
        if examples is None:
            examples = LabelledExamples() if self.fitted is None else self.fitted.labelled
        return ChoiceSet(choices, self._vectors, self.usual_query_mean, self.options["centroids"], examples)

    def unfitted(self, query_mean: NDArray[np.float32]) -> DescriptionSelector:
        """Return a selector with the same options and another query mean, and nothing learned."""
        return DescriptionSelector(self.embedder, query_mean=query_mean, **self.options)

    def usual_query_mean(self) -> NDArray[np.float32]:
        """Return the given query mean, else the general one."""
        if self._query_mean is None:
            self._query_mean = self._vectors.of(GENERAL_QUERIES, "query").mean(axis=0)
        return self._query_mean

    def _features(self, choices: tuple[ToolMetadata, ...], text: str) -> tuple[NDArray[np.float64], float]:
        query = embed_texts(self.embedder, [text], "query")[0]
        choice_set = self._sets.of(choices)
        return choice_set.features(choice_set.directions(query), DEFAULT_ANALYZER.query_tokens(text))

    def _confidence(self, sums: NDArray[np.float64], highest: float) -> float:
        if self.fitted is None:
            return softmax_share(sums, SCALE)
        return self.fitted.confidence(sums, highest)

    def _selection(self, index: int, sums: NDArray[np.float64], features: NDArray[np.float64]) -> SingleSelection:
        words, meaning, examples = (float(value) for value in self._weights * features[:, index])
        score = float(sums[index])
        reason = f"Description score: {score:.2f} (words {words:+.2f}, meaning {meaning:+.2f}"
        return SingleSelection(
            index, f"{reason}, examples {examples:+.2f})" if features[2].any() else f"{reason})", score
        )


def _vector(mean: ArrayLike) -> NDArray[np.float32]:
    """Return a mean of queries, checked."""
    try:
        vector = np.array(mean, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"query_mean cannot be read as a vector: {error}") from error
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise InputError(f"query_mean is one vector of finite numbers, not an array of shape {vector.shape}")
    return vector
