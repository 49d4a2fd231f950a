"""Selectors measured on queries with known right choices; read by `selection.py` and `tools.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.embedders.named_embedders import as_embedder
from pointsman.evaluation.collections import read_collection
from pointsman.selector.base_selector import BaseSelector, ToolMetadata
from pointsman.selector.combined_selectors import RandomSelector, ScoresChoices
from pointsman.selector.description_selector import DescriptionSelector
from pointsman.selector.embedding_selector import EmbeddingSelector
from pointsman.selector.fitted_selector import calibration_error
from pointsman.store.sampling import evenly
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.values.types import Query

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

    from pointsman.values.protocols import Embedder

FITTED: Final = "fitted"
"""The name of a `DescriptionSelector` that is fitted to other queries than those it is evaluated on."""

_MAKE: Final[Mapping[str, Callable[[Any], BaseSelector]]] = {
    "description": DescriptionSelector,
    "embedding": EmbeddingSelector,
    "random": lambda _: RandomSelector(0),
}
SELECTORS: Final = (*_MAKE, FITTED)
"""The selectors that can be named."""

_FOLDS: Final = 5
_BINS: Final = 10
_EMBEDDED_ALONE: Final = 20  # queries embedded one by one to time it
_RECALL: Final = (1, 3, 5, 10)

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class SelectionTask:
    """Choices, queries, and the right choices of each query.

    Attributes:
        name: the folder's name.
        choices: the choices to select from.
        queries: the queries to evaluate on.
        right: for each query, the indices of its right choices.
        taught: further labelled queries to learn from: text and index of the choice.
    """

    name: str
    choices: tuple[ToolMetadata, ...]
    queries: tuple[str, ...]
    right: tuple[frozenset[int], ...]
    taught: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ConfidenceBin:
    """The queries with a confidence in one tenth of the scale: their number, mean confidence and number right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class SelectorReport:
    """The results of one selector on one task.

    Attributes:
        dataset: the task's name.
        selector: the selector's name.
        choices: the number of choices.
        queries: the number of queries.
        accuracy: the share of queries whose first selection is right (accuracy@1); abstaining counts as wrong.
        recall: by k, the mean share of a query's right choices among the first k, for each k that the selector reaches.
        abstained: the share of queries for which no choice was selected.
        fallbacks: the share of queries decided by a fallback.
        calibration_error: ECE of the confidence over ten bins; None for a selector without confidence.
        bins: confidence against accuracy, bins without queries left out.
        p50: median milliseconds of a selection; without the query's embedding, if ``embedding_ms`` is known.
        p95: 95th percentile of the same times.
        embedding_ms: median milliseconds for embedding a query; None if that is part of ``p50``.
    """

    dataset: str
    selector: str
    choices: int
    queries: int
    accuracy: float
    recall: Mapping[int, float]
    abstained: float
    fallbacks: float
    calibration_error: float | None
    bins: tuple[ConfidenceBin, ...]
    p50: float
    p95: float
    embedding_ms: float | None = field(default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the values for ``pointsman eval-select --json``: shares with 4 decimals, milliseconds with 3."""
        return {
            "dataset": self.dataset,
            "selector": self.selector,
            "choices": self.choices,
            "queries": self.queries,
            "accuracy@1": round(self.accuracy, 4),
            **{f"recall@{k}": round(value, 4) for k, value in self.recall.items()},
            "abstained": round(self.abstained, 4),
            "fallbacks": round(self.fallbacks, 4),
            "calibration": {
                "ece": None if self.calibration_error is None else round(self.calibration_error, 4),
                "bins": [
                    {name: round(value, 4) for name, value in asdict(bin_).items()}  # a count stays a whole number
                    for bin_ in self.bins
                ],
            },
            "latency_ms": {
                "p50": round(self.p50, 3),
                "p95": round(self.p95, 3),
                "query_embedding": None if self.embedding_ms is None else round(self.embedding_ms, 3),
            },
        }


def read_selection(folder: str | Path, *, examples: int = 20, limit: int | None = None) -> SelectionTask:
    """Read a folder with choices, queries, and the right choices of each query.

    Two forms are supported. ``corpus.jsonl``, ``queries.jsonl`` and ``qrels.tsv``: each document is a choice, named by
    its title. ``train.jsonl`` and ``test.jsonl`` with ``text`` and ``label``: each label is a choice, with queries of
    the training part as examples, except those that are also in the test part.

    Args:
        folder: the folder.
        examples: the maximum number of examples per label, spread evenly over the file; 0 for none.
        limit: the maximum number of queries, spread evenly over the file.

    Raises:
        InputError: the folder has neither form, a line is invalid, or a number is out of range.
    """
    folder = Path(folder)
    for name, number, minimum in (("examples", examples, 0), ("limit", limit, 1)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < minimum):
            raise InputError(f"{name} is an int from {minimum} up, not {number!r}")
    if (folder / "train.jsonl").is_file() and (folder / "test.jsonl").is_file():
        return _read_labels(folder, examples, limit)
    if not (folder / "corpus.jsonl").is_file():
        raise InputError(
            f"{folder} has neither corpus.jsonl, queries.jsonl and qrels.tsv nor train.jsonl and test.jsonl; "
            "name a folder that has"
        )
    collection = read_collection(folder)
    documents = collection.documents
    has_distinct_titles = len({document.title for document in documents} - {""}) == len(documents)
    choices = tuple(
        ToolMetadata(document.title if has_distinct_titles else document.id, document.text) for document in documents
    )
    indices = {document.id: index for index, document in enumerate(documents)}
    query_ids = evenly(list(collection.queries), limit)
    right = tuple(
        frozenset(indices[id_] for id_, grade in collection.qrels[query].items() if grade > 0 and id_ in indices)
        for query in query_ids
    )
    return SelectionTask(collection.name, choices, tuple(collection.queries[query] for query in query_ids), right)


def evaluate_selector(
    folder: str | Path,
    selector: str | BaseSelector = "description",
    *,
    limit: int | None = None,
    examples: int = 20,
    embedder: str | Embedder | None = None,
    on_progress: Progress | None = None,
) -> SelectorReport:
    """Evaluate a selector on a folder.

    ``"fitted"`` learns from other queries than it is evaluated on: from the examples of the labels if the folder has a
    training part, otherwise by five-fold cross-validation.

    Args:
        folder: see `read_selection`.
        selector: one of `SELECTORS`, or a selector.
        limit: the maximum number of queries, spread evenly over the file.
        examples: the maximum number of examples per label, if the folder has a training part.
        embedder: for a selector given by name; an embedder or its name, by default the default one. Its vectors are
            cached on disk, so a second run is quick. Do not pass a `CachedEmbedder`: it would hide the time for
            embedding a query.
        on_progress: called with the amount done, the total, and the current activity.

    Raises:
        InputError: the folder, the selector or a number is invalid.
    """
    if isinstance(selector, str) and selector not in SELECTORS:
        raise UnknownNameError("selector", selector, SELECTORS)
    return evaluate_task(read_selection(folder, examples=examples, limit=limit), selector, embedder, on_progress)


def evaluate_task(
    task: SelectionTask,
    selector: str | BaseSelector = "description",
    embedder: str | Embedder | None = None,
    on_progress: Progress | None = None,
) -> SelectorReport:
    """Like `evaluate_selector`, for a task in memory."""
    report = on_progress or (lambda *_: None)
    if isinstance(selector, BaseSelector):
        return _report(task, type(selector).__name__, [(selector, task.choices, range(len(task.queries)))], report)
    if selector == "random":
        return _report(task, selector, [(_MAKE[selector](None), task.choices, range(len(task.queries)))], report)
    report(0, len(task.queries), "embedding queries")
    embedder_with_vectors = _EmbedderWithVectors(
        as_embedder("default" if embedder is None else embedder), [*task.queries, *(text for text, _ in task.taught)]
    )
    if selector == FITTED:
        folds_of_task = list(_fitted_parts(task, embedder_with_vectors))
    else:
        folds_of_task = [(_MAKE[selector](embedder_with_vectors), task.choices, range(len(task.queries)))]
    return _report(task, selector, folds_of_task, report, embedder_with_vectors.milliseconds(task.queries))


def render_selection(reports: SelectorReport | Sequence[SelectorReport]) -> Table:
    """Format reports on one task as a table for the terminal, one row per selector."""
    from rich.table import Table
    from rich.text import Text

    reports = [reports] if isinstance(reports, SelectorReport) else list(reports)
    if not reports:
        raise InputError("there is no report to show")
    first = reports[0]
    title = Text(f"{first.dataset}: {first.choices:,} choices, {first.queries:,} queries")
    table = Table(title=title, title_justify="left")
    table.add_column("selector")
    depths = sorted({k for report in reports for k in report.recall})
    headings = ["accuracy@1", *(f"recall@{k}" for k in depths), "abstained", "ECE", "p50 ms", "p95 ms", "embedding ms"]
    for heading in headings:
        table.add_column(heading, justify="right")
    best = max(report.accuracy for report in reports)
    for report in reports:
        table.add_row(
            Text(report.selector),
            Text(f"{report.accuracy:.4f}", "bold" if report.accuracy == best else ""),
            *(f"{report.recall[k]:.4f}" if k in report.recall else "" for k in depths),
            f"{report.abstained:.4f}",
            "" if report.calibration_error is None else f"{report.calibration_error:.3f}",
            f"{report.p50:.3f}",
            f"{report.p95:.3f}",
            "" if report.embedding_ms is None else f"{report.embedding_ms:.2f}",
        )
    return table


Part = tuple[BaseSelector, tuple[ToolMetadata, ...], Sequence[int]]
"""A selector, its choices, and the queries it is evaluated on."""


def _fitted_parts(task: SelectionTask, embedder: _EmbedderWithVectors) -> Iterator[Part]:
    if task.taught:
        # The queries behind the examples are only learned from: as examples too, they would not be held out.
        bare = tuple(ToolMetadata(choice.name, choice.description) for choice in task.choices)
        texts, labels = zip(*task.taught, strict=True)
        selector_of_texts = DescriptionSelector(embedder).fit(texts, labels, bare)
        yield selector_of_texts, bare, range(len(task.queries))
        return
    # Equal texts stay together, so that none is in both training and test.
    numbers: dict[str, int] = {}
    fold = [numbers.setdefault(text, len(numbers)) % _FOLDS for text in task.queries]
    for number in sorted(set(fold)):
        training = [index for index, fold_of_query in enumerate(fold) if fold_of_query != number]
        if not training:
            raise InputError(f"{task.name}: fitting needs at least two queries, to learn from one and ask the other")
        selector = DescriptionSelector(embedder).fit(
            [task.queries[index] for index in training],
            [tuple(task.right[index]) or None for index in training],
            task.choices,
        )
        # A learned threshold would abstain, but the first selection is measured here.
        selector.threshold, selector.allow_abstain = None, False
        yield selector, task.choices, [index for index, fold_of_query in enumerate(fold) if fold_of_query == number]


def _report(
    task: SelectionTask, name: str, folds: Sequence[Part], report: Progress, embedding_ms: float | None = None
) -> SelectorReport:
    milliseconds, confidences = [], []
    correct = np.zeros(len(task.queries), bool)
    abstentions = fallbacks = count = 0
    recalls: dict[int, list[float]] = {}
    for selector, choices, rows in folds:
        if isinstance(selector, ScoresChoices):
            selector.scores(choices, "warm-up")  # what is computed once per set of choices is not timed
        for row in rows:
            query, right = Query(task.queries[row]), task.right[row]
            start = perf_counter()
            result = selector.select(choices, query)
            milliseconds.append((perf_counter() - start) * 1000)
            correct[row] = bool(result.selections) and result.inds[0] in right
            abstentions += result.abstained
            fallbacks += result.fallback is not None
            if result.confidence is not None and not result.abstained:
                confidences.append((result.confidence, bool(correct[row])))
            for k, recall in _recalls(selector, choices, query, result.inds, right):
                recalls.setdefault(k, []).append(recall)
            count += 1
            report(count, len(task.queries), f"{name}: selecting")
    p50, p95 = np.percentile(milliseconds, [50, 95])
    sure = np.array([confidence for confidence, _ in confidences])
    was_right = np.array([right for _, right in confidences], bool)
    return SelectorReport(
        dataset=task.name,
        selector=name,
        choices=len(task.choices),
        queries=len(task.queries),
        accuracy=float(correct.mean()),
        recall={k: float(np.mean(values)) for k, values in sorted(recalls.items())},
        abstained=abstentions / len(task.queries),
        fallbacks=fallbacks / len(task.queries),
        calibration_error=calibration_error(sure, was_right) if confidences else None,
        bins=_bins(sure, was_right),
        p50=float(p50),
        p95=float(p95),
        embedding_ms=embedding_ms,
    )


def _recalls(
    selector: BaseSelector,
    choices: tuple[ToolMetadata, ...],
    query: Query,
    top_indices: list[int],
    right: frozenset[int],
) -> Iterator[tuple[int, float]]:
    """Return recall by depth: for all choices if the selector gives scores, else to the selector's own limit."""
    if isinstance(selector, ScoresChoices):
        scores = np.array(selector.scores(choices, query))
        top_indices = [int(index) for index in np.argsort(-scores, kind="stable")[: max(_RECALL)]]
        deepest = len(choices)
    else:
        deepest = max(1, getattr(selector, "top_k", 1), getattr(selector, "max_outputs", 1))
    for k in _RECALL:
        if k <= deepest:
            yield k, len(right.intersection(top_indices[:k])) / max(len(right), 1)


def _bins(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> tuple[ConfidenceBin, ...]:
    belongs = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    bins = []
    for number in range(_BINS):
        in_bin = belongs == number
        if count := int(in_bin.sum()):
            sure, right = float(confidence[in_bin].mean()), float(correct[in_bin].mean())
            bins.append(ConfidenceBin(number / _BINS, (number + 1) / _BINS, count, sure, right))
    return tuple(bins)


class _EmbedderWithVectors:
    """An embedder that has embedded all queries in advance, in batches, so that selections can be timed separately."""

    def __init__(self, bare: Embedder, queries: Sequence[str]) -> None:
        from pointsman.embedders import CachedEmbedder

        self._bare = bare
        self._embedder = embedder = bare if isinstance(bare, CachedEmbedder) else CachedEmbedder(bare)
        texts = list(dict.fromkeys(queries))
        self._vectors = dict(zip(texts, embedder.embed_queries(texts), strict=True))
        self.name = embedder.name
        self.dimensions = embedder.dimensions
        self.cosine_spread = getattr(embedder, "cosine_spread", None)

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if any(text not in self._vectors for text in texts):
            return self._embedder.embed_queries(texts)
        return np.stack([self._vectors[text] for text in texts])

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._embedder.embed_documents(texts)

    def milliseconds(self, queries: Sequence[str]) -> float:
        """Return the median time to embed one query, without the disk cache."""
        self._bare.embed_queries(["warm-up"])
        times = []
        for text in evenly(list(queries), _EMBEDDED_ALONE):
            start = perf_counter()
            self._bare.embed_queries([text])
            times.append((perf_counter() - start) * 1000)
        return float(np.median(times))


def _read_labels(folder: Path, examples: int, limit: int | None) -> SelectionTask:
    test_pairs = evenly(_read_examples(folder / "test.jsonl"), limit)
    asked_texts = {text for text, _ in test_pairs}
    by_label: dict[str, list[str]] = {}
    for text, label in _read_examples(folder / "train.jsonl"):
        by_label.setdefault(label, [])
        if text not in asked_texts:
            by_label[label].append(text)
    names = sorted(by_label)
    indices = {name: index for index, name in enumerate(names)}
    if strange := sorted({label for _, label in test_pairs} - indices.keys()):
        raise InputError(f"{folder / 'test.jsonl'}: train.jsonl has no such label: {', '.join(strange):.80}")
    training = {name: evenly(by_label[name], examples) if examples else [] for name in names}
    choices = tuple(ToolMetadata(name, "", {"examples": training[name]} if training[name] else None) for name in names)
    return SelectionTask(
        folder.resolve().name,
        choices,
        tuple(text for text, _ in test_pairs),
        tuple(frozenset([indices[label]]) for _, label in test_pairs),
        tuple((text, indices[name]) for name in names for text in training[name]),
    )


def _read_examples(path: Path) -> list[tuple[str, str]]:
    """Return the text and label of each line."""
    examples = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                item = json.loads(line)
                text, label = item["text"], item["label"]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"{path}:{number}: expected a JSON object with text and label: {error}") from None
            if not isinstance(text, str) or not isinstance(label, str) or not label:
                raise InputError(f"{path}:{number}: text and label are strings, not {item!r:.80}")
            examples.append((text, label))
    if not examples:
        raise InputError(f"{path} contains no labelled texts")
    return examples
