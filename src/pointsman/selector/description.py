"""`DescriptionSelector`, the recommended one: by the words and the meaning of names, descriptions and examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.errors import InputError, ModelError
from pointsman.models.base import as_embedder
from pointsman.selector._choice_set import ChoiceSet, LabelledExamples
from pointsman.selector._vectors import (
    MeanOfQueries,
    Recent,
    TextVectors,
    best_first,
    centred,
    embed_texts,
    known_choices,
    positive_int,
    softmax_share,
)
from pointsman.selector.base import BaseSelector, Choices, Fallback, SelectorResult, SingleSelection, ToolMetadata
from pointsman.text import DEFAULT_ANALYZER
from pointsman.types import Query

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.selector._vectors import AnyEmbedder, QueryMean
    from pointsman.selector.fitted import Fitted, Label

WEIGHTS: Final = (1.0, 2.0, 2.0)
"""Of words, meaning and examples, before anything is fitted."""

SCALE: Final = 0.7
"""What the weighted sum is multiplied with before the softmax that gives an uncalibrated confidence."""


class DescriptionSelector(BaseSelector):
    """Selects by a weighted sum of three standard scores, each over all choices.

    - **words**, weight 1: BM25 over name, description and examples. The project's analyser takes identifiers apart
      (``get_weather``, ``getWeather``) and stems English and Russian; Chinese goes by characters and pairs.
    - **meaning**, weight 2: the cosine to ``name: description``, both sides centred.
    - **examples**, weight 2: the cosine to the nearest of the choice's example queries (``metadata["examples"]``), or
      of their centroids; left out when no choice has any.

    Everything about choices is worked out once and remembered; choices are values, and one whose ``metadata`` is
    edited in place is not looked at again.

    ``confidence``, before `fit`: the first selection's share of the softmax of all sums. It says how far the best
    stands out among these choices, not whether it is right, and not whether any of them is: for a query that none of
    the choices fits, one of them is still the best. After `fit`: the calibrated probability that the first selection
    is right, from how far it leads and how near it is. ``threshold`` acts on it.
    """

    def __init__(
        self,
        embedder: AnyEmbedder,
        top_k: int = 1,
        *,
        query_mean: QueryMean = "general",
        centroids: int = 8,
        threshold: float | None = None,
        allow_abstain: bool | None = None,
        fitted: Fitted | None = None,
        cache_size: int = 10_000,
    ) -> None:
        """Set up; nothing is embedded yet.

        Args:
            embedder: anything with ``embed(text)``; one with ``embed_queries`` and ``embed_documents`` is asked for
                queries (and examples) and for descriptions by these.
            top_k: how many choices to select, at most.
            query_mean: what queries are centred on; see `EmbeddingSelector`. A fitted selector has learned its own.
            centroids: how many centroids stand for a choice's examples when it has more of them.
            threshold: the confidence, 0 to 1, below which no choice is selected; a fitted selector may have learned
                one.
            allow_abstain: whether to select nothing below the threshold (the default); with False the best is
                selected all the same, and the result's ``fallback`` says so.
            fitted: what `fit` learned.
            cache_size: how many texts to remember the vectors of.

        Raises:
            InputError: the embedder is none, a number or an option cannot be used, or ``fitted`` comes from another
                embedder.
        """
        self.embedder = as_embedder(embedder)
        self.top_k = positive_int(top_k, "top_k")
        self.fitted = fitted
        if fitted is not None:
            fitted.check_embedder(self.embedder)
            query_mean = fitted.query_mean
            threshold = fitted.threshold if threshold is None else threshold
        if threshold is not None and not (isinstance(threshold, int | float) and 0 <= threshold <= 1):
            raise InputError(f"threshold is a confidence from 0 to 1, or None for no threshold, not {threshold!r}")
        self.threshold = threshold
        self.allow_abstain = threshold is not None if allow_abstain is None else allow_abstain
        self.options: dict[str, Any] = {"centroids": positive_int(centroids, "centroids"), "cache_size": cache_size}
        self._weights = np.array(WEIGHTS if fitted is None else fitted.weights)
        self._vectors = TextVectors(self.embedder, cache_size)
        self._query_mean = MeanOfQueries(query_mean, self._vectors)
        self._sets = Recent(self.choice_set)

    def scores(self, choices: Choices, query: Query | str) -> list[float]:
        """The weighted sum for every choice, in the order of the choices (as `HybridSelector` wants it)."""
        features, _ = self._features(known_choices(choices), Query.of(query).text)
        scores: list[float] = (self._weights @ features).tolist()
        return scores

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Select the choices with the highest sums, best first; of equal ones the first.

        Raises:
            InputError: choices or query cannot be used.
            ModelError: the embedder gave something else than one finite vector per text.
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
            fallback = Fallback(f"confidence {confidence:.2f} is below the threshold of {self.threshold}", "best")
        return SelectorResult([self._selection(place, sums, features) for place in best], confidence, fallback)

    def fit(
        self, queries: Sequence[str], labels: Sequence[Label], choices: Choices, *, folds: int = 5
    ) -> DescriptionSelector:
        """A selector that has learned from queries whose right choice is known; this one stays as it is.

        Learned are the mean of queries, examples for each choice (as centroids and words), the three weights, what a
        confidence means, and, where some labels are None, the threshold below which to abstain. The report of
        how right it was on queries held out is in ``fitted.report``.

        Few labels make nothing worse: the weights are drawn to those it has without fitting, and what was
        learned is used only where it was right more often than without by more than one standard error of the
        difference, on queries held out; the simplest such way is kept unless another beats it by as much.
        Below ten labels nothing is learned about selecting, below thirty nothing about confidence.

        Args:
            queries: what was asked.
            labels: for each query the right choice: its index, its name, several of these where each is right, or None
                where none is.
            choices: what there is to select from; names must differ.
            folds: in how many parts the queries are held out, by turns.

        Raises:
            InputError: the numbers of queries and labels differ, or a label names no choice.
        """
        from pointsman.selector.fitted import learn

        fitted = learn(self, queries, labels, known_choices(choices), folds)
        return DescriptionSelector(self.embedder, self.top_k, fitted=fitted, **self.options)

    def save(self, path: str | Path) -> None:
        """Write what `fit` learned as JSON.

        Raises:
            InputError: nothing was fitted.
        """
        if self.fitted is None:
            raise InputError("nothing to save; call fit(queries, labels, choices) first")
        Path(path).write_text(self.fitted.to_json(), "utf-8")

    @classmethod
    def load(cls, path: str | Path, embedder: AnyEmbedder, top_k: int = 1, **options: Any) -> DescriptionSelector:
        """The selector that `save` wrote, over the same embedder.

        Raises:
            InputError: the file cannot be read, is not what `save` writes, or belongs to another embedder.
        """
        from pointsman.selector.fitted import Fitted

        return cls(embedder, top_k, fitted=Fitted.read(path), **options)

    def choice_set(self, choices: tuple[ToolMetadata, ...], labelled: LabelledExamples | None = None) -> ChoiceSet:
        """The features of choices, with the fitted examples or with others."""
        if labelled is None:
            labelled = LabelledExamples() if self.fitted is None else self.fitted.labelled
        return ChoiceSet(choices, self._vectors, self._query_mean, self.options["centroids"], labelled)

    def usual_query_mean(self) -> NDArray[np.float32]:
        """What queries are centred on while none has been met: the given mean, or the general one."""
        return self._query_mean.before_any()

    def centred_query(self, query: NDArray[np.float32], choice_set: ChoiceSet) -> NDArray[np.float32]:
        """A query's vector as `ChoiceSet.features` wants it."""
        if query.shape != choice_set.mean.shape:
            raise ModelError(
                f"{type(self.embedder).__name__} gave {len(query)} numbers for the query and {len(choice_set.mean)} "
                "for each choice; expected vectors of the same length"
            )
        return centred(query, self._query_mean.at(choice_set.mean))

    def _features(self, choices: tuple[ToolMetadata, ...], text: str) -> tuple[NDArray[np.float64], float]:
        query = embed_texts(self.embedder, [text], "query")[0]
        choice_set = self._sets.of(choices)
        direction = self.centred_query(query, choice_set)
        self._query_mean.met(query)
        return choice_set.features(direction, DEFAULT_ANALYZER.query_tokens(text))

    def _confidence(self, sums: NDArray[np.float64], highest: float) -> float:
        if self.fitted is None:
            return softmax_share(sums, SCALE)
        return self.fitted.confidence(sums, highest)

    def _selection(self, place: int, sums: NDArray[np.float64], features: NDArray[np.float64]) -> SingleSelection:
        words, meaning, examples = (float(part) for part in self._weights * features[:, place])
        score = float(sums[place])
        reason = f"Description score: {score:.2f} (words {words:+.2f}, meaning {meaning:+.2f}"
        return SingleSelection(
            place, f"{reason}, examples {examples:+.2f})" if features[2].any() else f"{reason})", score
        )
