"""Routers choose, from some datasets, those worth searching for a query.

============== ========================================================================================================
SelectorRouter any selector reads names and descriptions
LLMRouter      a language model reads them, as numbered tools
ContentRouter  needs no descriptions: the datasets' own words and vectors are matched against the query
ImageRouter    datasets of pictures for a query that asks for pictures, the others for all other queries
============== ========================================================================================================

To write one, subclass `BaseRouter` and implement one of ``route``, ``aroute``, ``decide`` and ``adecide``; the base
provides the others. Routers err on the side of searching too widely: a router that cannot decide returns all datasets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from pointsman.retrieval.fusion import CosineSpread
from pointsman.retrieval.plan.dataset_sketch import Sketch
from pointsman.selector.base_selector import (
    BaseSelector,
    Fallback,
    SelectorResult,
    ToolMetadata,
    as_selector,
    selecting,
)
from pointsman.text.grammar import IMAGE as IMAGE_WORDS
from pointsman.text.grammar import plain
from pointsman.tools.errors import InputError, StoreError
from pointsman.tools.json_forms import form_of
from pointsman.tools.parallel_calls import Mode, sync_and_async
from pointsman.tools.sync_and_async import Twins, around, in_thread, wait_for
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pointsman.retrieval.run.source import Source
    from pointsman.values.protocols import LLM


@dataclass(frozen=True, slots=True)
class RouteDecision:
    """Which datasets to search, and why.

    Attributes:
        datasets: at least one, the most promising first.
        reason: in words.
        scores: by dataset name, the numbers that the router compared; empty if it has none.
        confidence: 0 to 1, the router's own estimate that its first dataset is right; None if it has none. Each router
            documents what its number means.
        fallback: why the router could not decide normally and what it did instead; None if it could.
    """

    datasets: tuple[Any, ...]
    reason: str
    scores: Mapping[str, float] = field(default_factory=dict)
    confidence: float | None = None
    fallback: Fallback | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "datasets", tuple(self.datasets))

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain JSON values; datasets are given by their names."""
        return form_of(self, datasets=[dataset.name for dataset in self.datasets])


_ROUTING_METHODS = ("decide", "adecide", "route", "aroute")


class BaseRouter(Twins, needs=_ROUTING_METHODS):
    """Chooses datasets. Implement one of ``route``, ``aroute``, ``decide`` and ``adecide``.

    An implementation may rely on: ``datasets`` is a tuple of at least two with different names, and ``query``
    is a `Query`, or its text if the parameter is annotated ``str``.
    If it returns no dataset, all are searched: an undecidable query still needs an answer.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _ROUTING_METHODS:
            if name in cls.__dict__:
                method = cls.__dict__[name]
                setattr(cls, name, around(method, partial(_valid_input, method, name.endswith("decide")), _sound))

    def route(self, query: str | Query, datasets: Sequence[Any]) -> list[Any]:
        """Return the datasets to search, the most promising first; all of them if undecidable.

        Raises:
            InputError: there are no datasets, or two have the same name.
        """
        return list(self.decide(query, datasets).datasets)

    async def aroute(self, query: str | Query, datasets: Sequence[Any]) -> list[Any]:
        """Async version of `route`."""
        return list((await self.adecide(query, datasets)).datasets)

    def decide(self, query: str | Query, datasets: Sequence[Any]) -> RouteDecision:
        """Return the datasets with reason, scores and confidence."""
        if type(self).route is not BaseRouter.route:
            return RouteDecision(tuple(self.route(query, datasets)), f"chosen by {type(self).__name__}")
        return wait_for(self.adecide, query, datasets)

    async def adecide(self, query: str | Query, datasets: Sequence[Any]) -> RouteDecision:
        """Async version of `decide`; a synchronous implementation runs in a worker thread."""
        if type(self).aroute is not BaseRouter.aroute:
            return RouteDecision(tuple(await self.aroute(query, datasets)), f"chosen by {type(self).__name__}")
        return await in_thread(self.decide, query, datasets)


def _valid_input(
    method: Callable[..., Any], decides: bool, _: BaseRouter, query: str | Query, datasets: Sequence[Any]
) -> tuple[tuple[Any, ...], Any]:
    """The arguments of a router's method, and its answer if there is no choice."""
    sources = _checked_datasets(datasets)
    only_answer = RouteDecision(sources, "the only dataset", confidence=1.0) if decides else list(sources)
    return (Query.of(query).for_method(method), sources), only_answer if len(sources) == 1 else None


def _checked_datasets(datasets: Sequence[Any]) -> tuple[Any, ...]:
    sources = tuple(datasets)
    if not sources:
        raise InputError("there are no datasets to route to; give at least one")
    names = [dataset.name for dataset in sources]
    if len(set(names)) < len(names):
        raise InputError(f"datasets need different names, and two of these have the same: {', '.join(names)}")
    return sources


def _sound(router: BaseRouter, arguments: tuple[Any, ...], answer: Any) -> Any:
    """A decision or list that names given datasets, each once; all datasets if it names none."""
    sources = arguments[1]
    decision = answer if isinstance(answer, RouteDecision) else RouteDecision(tuple(answer), "")
    names = [dataset.name for dataset in decision.datasets]
    if len(set(names)) < len(names) or not {id(dataset) for dataset in decision.datasets} <= {id(d) for d in sources}:
        expected = [dataset.name for dataset in sources]
        raise InputError(f"{type(router).__name__} routed to {names}; it was given {expected}, each of them once")
    if not isinstance(answer, RouteDecision):
        return list(decision.datasets or sources)  # not the answer itself, which may be a generator
    if decision.datasets:
        return answer
    fallback = decision.fallback or Fallback(decision.reason or "no dataset was chosen", "all")
    return RouteDecision(sources, f"all datasets: {fallback.why}", decision.scores, None, fallback)


class SelectorRouter(BaseRouter):
    """Lets any selector choose by names and descriptions.

    The confidence is the selector's. A selector that abstains means all datasets.

    Args:
        selector: sees each dataset as a choice; preferably one that may choose several.
    """

    def __init__(self, selector: BaseSelector) -> None:
        self.selector = as_selector(selector)

    async def _decide(self, mode: Mode, query: str | Query, datasets: Sequence[Source]) -> RouteDecision:
        """Return the selector's choice."""
        choices = [ToolMetadata(dataset.name, dataset.description) for dataset in datasets]
        return _decision_of(await mode.one(selecting(self._selector(len(choices)), choices, query)), datasets)

    decide, adecide = sync_and_async(_decide)

    def _selector(self, count: int) -> BaseSelector:  # noqa: ARG002  (used by the subclass)
        return self.selector


class LLMRouter(SelectorRouter):
    """Shows a language model each dataset as a numbered tool and follows the numbers it answers with.

    ``[1]``, ``[1, 3]``, names and prose are parsed, and repaired or requested again, as by `LLMSelector`. A number that
    does not exist is dropped and noted in the reason; no choice, "all relevant" and "none of them" mean all datasets.

    Args:
        llm: anything with ``complete(prompt)`` that returns an object with ``.text``.
        max_outputs: the maximum number of datasets; by default, all of them.
        options: further arguments of `LLMSelector`.
    """

    def __init__(self, llm: LLM, max_outputs: int | None = None, **options: Any) -> None:
        self.llm, self._max_outputs, self._options = llm, max_outputs, {"fallback": "all", **options}

    def _selector(self, count: int) -> BaseSelector:
        from pointsman.selector.llm_selector import LLMSelector

        limit = min(self._max_outputs or count, count)
        return LLMSelector(self.llm, select_multi=True, max_outputs=limit, allow_abstain=True, **self._options)


def _decision_of(result: SelectorResult, datasets: Sequence[Source]) -> RouteDecision:
    targets = tuple(datasets[index] for index in result.inds)
    names = [dataset.name for dataset in targets]
    scores = {
        name: selection.score
        for name, selection in zip(names, result.selections, strict=True)
        if selection.score is not None
    }
    reason = "; ".join(
        f"{name}: {reason_of_dataset}" for name, reason_of_dataset in zip(names, result.reasons, strict=True)
    )
    if result.fallback:
        reason = f"fell back to {result.fallback.policy!r}: {result.fallback.why}"
    elif not reason:
        reason = "the selector found none that fits"
    reason = "; ".join([reason, *result.notes])
    return RouteDecision(targets, reason, scores, result.confidence, result.fallback)


class ImageRouter(BaseRouter):
    """Routes a query that asks for pictures to the datasets of pictures, and any other to the rest.

    Cosines between texts and pictures say nothing beside those between texts, and a picture has no relevance, so
    pictures among the answers to every question would be noise.
    """

    def decide(self, query: str | Query, datasets: Sequence[Source]) -> RouteDecision:
        """Return the datasets of one kind; all if there is only one kind."""
        cue = image_cue(Query.of(query).text)
        chosen_datasets = tuple(dataset for dataset in datasets if dataset.holds_images is (cue is not None))
        if len(chosen_datasets) in {0, len(datasets)}:
            return RouteDecision(tuple(datasets), "all datasets are of one kind")
        if cue is not None:
            return RouteDecision(chosen_datasets, f"asks for a picture: {cue}")
        names = ", ".join(dataset.name for dataset in datasets if dataset.holds_images)
        return RouteDecision(chosen_datasets, f"nothing asks for a picture; to search {names} too, name the datasets")


def image_cue(text: str) -> str | None:
    """Return the word with which a text asks for an image, or None.

    >>> image_cue("show me photos of Mars"), image_cue("图书馆几点开门"), image_cue("покажи рисунок кота")
    ('photos', None, 'рисунок')
    """
    match = IMAGE_WORDS.first(plain(text))
    return text[match.start : match.end] if match else None


class ContentRouter(BaseRouter):
    """Matches the query against the contents of the datasets; uses no descriptions and no language model.

    The evidence for a dataset is the calibrated sum of its best matches, on one scale for all datasets::

        mean of the 5 best BM25 scores · size  +  weight · mean of the 3 best cosines / σ

    BM25 comes from the dataset's own keyword index, which is always up to date; ``size`` compensates for the rarer
    words of larger datasets. Cosines come from a sketch, an even sample of at most ``sketch_size`` vectors in memory,
    redrawn when documents have changed. So the cost per query does not grow with the number of vectors, and grows with
    the number of documents only as keyword search does: a few tenths of a millisecond per 100,000. A dataset without
    vectors counts as near as the nearest if it knows a word of the query, otherwise as far as the farthest.

    Every dataset whose evidence is at most ``margin`` below the best is chosen; without evidence, all are. A dataset
    that cannot be read cannot be ruled out: it is chosen too, last, so that the search says what is missing. With the
    default margin, the right one was among the chosen for 99 of 100 queries, and 1.2 were chosen on average.

    The confidence is a softmax of the evidence: how often the first dataset is the right one among queries with such
    numbers, given that one of the datasets holds the answer. Weight, margin and temperature were fitted on queries of
    nine public collections in English, Chinese and Russian; no reported figure is from those queries.

    Args:
        margin: in units of BM25; 0 chooses the best alone.
        sketch_size: vectors kept per dataset; 1,000 of 384 numbers are 1.5 MB.
        weight: how many units of BM25 one σ of cosine is worth: the κ of the calibrated sum.

    Raises:
        InputError: an argument is out of range.
    """

    def __init__(self, *, margin: float = 5.0, sketch_size: int = 8192, weight: float = 3.3) -> None:
        if not margin >= 0:
            raise InputError(f"margin is a number from 0 up, not {margin!r}")
        if not isinstance(sketch_size, int) or sketch_size < 1:
            raise InputError(f"sketch_size is an int from 1 up, not {sketch_size!r}")
        if not 0 <= weight < float("inf"):
            raise InputError(f"weight is a finite number from 0 up, not {weight!r}")
        self._margin, self._sketch_size, self._weight = margin, sketch_size, weight
        self._sketches: WeakKeyDictionary[Source, Sketch] = WeakKeyDictionary()

    def decide(self, query: str | Query, datasets: Sequence[Source]) -> RouteDecision:
        """Return the datasets with the most evidence."""
        query = Query.of(query)
        readable: list[tuple[Source, Sketch, float]] = []
        without_sketch: list[Source] = []
        notes: list[str] = []
        for dataset in datasets:
            try:
                sketch = self._sketch(dataset)
                readable.append((dataset, sketch, sketch.words(query)))
            except (StoreError, InputError) as error:
                without_sketch.append(dataset)
                notes.append(f"{dataset.name} cannot be read ({type(error).__name__}) and is chosen too")
        scores = self._evidence(query, [sketch for _, sketch, _ in readable], [words for *_, words in readable])
        if scores is None:
            reason = "; ".join(["no dataset knows a word of the query or has a vector to compare", *notes])
            return RouteDecision((), reason, fallback=Fallback(reason, "all"))
        datasets = [dataset for dataset, *_ in readable]
        order = np.argsort(-scores, kind="stable").tolist()
        best = scores[order[0]]
        chosen_indices = [index for index in order if best - scores[index] <= self._margin]
        runners_up = ", ".join(f"{datasets[index].name} {scores[index] - best:+.1f}" for index in order[1:3])
        return RouteDecision(
            (*(datasets[index] for index in chosen_indices), *without_sketch),
            "; ".join([f"the content of {datasets[order[0]].name} matches best (next: {runners_up})", *notes]),
            {dataset.name: float(score) for dataset, score in zip(datasets, scores, strict=True) if score > -np.inf},
            confidence=float(1 / np.exp((scores - best) / _TEMPERATURE).sum()),
        )

    def _evidence(
        self, query: Query, sketches: Sequence[Sketch], matches: Sequence[float]
    ) -> NDArray[np.float64] | None:
        """One number per dataset, minus infinity for an empty one; returns None when no dataset has evidence."""
        largest = max((sketch.highest_idf for sketch in sketches), default=0.0)
        words = np.array(
            [match * largest / sketch.highest_idf for sketch, match in zip(sketches, matches, strict=True)]
        )
        vector_scores = _nearness(query, sketches) if self._weight else None
        if not words.any() and vector_scores is None:
            return None
        scores = words if vector_scores is None else words + self._weight * _complete_cosines(vector_scores, words)
        scores[[not sketch.documents for sketch in sketches]] = -np.inf
        return scores

    def _sketch(self, dataset: Source) -> Sketch:
        sketch = self._sketches.get(dataset)
        if sketch is None or not sketch.is_fresh(dataset):
            sketch = self._sketches[dataset] = Sketch.of(dataset, self._sketch_size)
        return sketch


_TEMPERATURE = 1.8  # in units of BM25: at this distance one dataset is preferred to another by e to 1


def _nearness(query: Query, sketches: Sequence[Sketch]) -> NDArray[np.float64] | None:
    """How near each sketch is, in units of its embedder's σ, NaN without vectors; None if none has vectors."""
    vectors: dict[str, NDArray[np.float32]] = {}
    groups: dict[str, list[int]] = {}
    values = np.full(len(sketches), np.nan)
    for index, sketch in enumerate(sketches):
        if sketch.embedder is not None and query.text.strip():
            name = sketch.embedder.name
            if name not in vectors:
                vectors[name] = sketch.embedder.embed_queries([query.text])[0]
            values[index] = sketch.nearness(vectors[name])
            groups.setdefault(name, []).append(index)
    for group in groups.values():  # one scale per embedder: a dataset's own spread must not favour it
        spread = CosineSpread.shared([sketches[index].spread for index in group]) or CosineSpread(0.0, 1.0)
        values[group] = (values[group] - spread.mean) / spread.sigma
    return values if groups else None


def _complete_cosines(cosine: NDArray[np.float64], words: NDArray[np.float64]) -> NDArray[np.float64]:
    """Judges a dataset without vectors by its words alone; without a query word, a search would find nothing there."""
    finite = cosine[~np.isnan(cosine)]
    return np.where(np.isnan(cosine), np.where(words > 0, finite.max(), finite.min()), cosine)
