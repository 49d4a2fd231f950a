"""Measures selectors on questions whose right choices are known."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from pointsman.embedders.named_embedders import as_embedder
from pointsman.evaluation.collections import read_collection
from pointsman.evaluation.report import Report, StrategyReport
from pointsman.evaluation.run_collection import Progress, percentiles
from pointsman.retrieval.refine.budget import Budget, spending
from pointsman.selector.base_selector import BaseSelector, ToolMetadata, as_selector
from pointsman.selector.combined_selectors import EnsembleSelector, HybridSelector
from pointsman.selector.description_selector import DescriptionSelector
from pointsman.selector.embedding_selector import EmbeddingSelector
from pointsman.selector.llm_selector import LLMSelector
from pointsman.selector.predefined_rules import keyword_match_rule, query_length_rule, semantic_query_rule
from pointsman.selector.rule_selector import RuleSelector
from pointsman.tools.errors import UnknownNameError, UnmetNeedError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pointsman.values.protocols import LLM, Embedder

log = logging.getLogger(__name__)

_MAKE: Final[Mapping[str, Callable[[Any, Any], BaseSelector]]] = {
    "description": lambda embedder, _: DescriptionSelector(embedder),
    "embedding": lambda embedder, _: EmbeddingSelector(embedder),
    "rule": lambda *_: RuleSelector([keyword_match_rule, semantic_query_rule, query_length_rule]),
    "hybrid": lambda *parts: HybridSelector(_MAKE["embedding"](*parts), _MAKE["rule"](*parts)),
    "llm": lambda _, llm: LLMSelector(llm),
    "ensemble": lambda *parts: EnsembleSelector(
        [_MAKE[name](*parts) for name in ("description", "embedding", "rule", *(["llm"] if parts[1] else []))]
    ),
}


class _TimedEmbedder:
    """An embedder that tells how long it has embedded queries, in ``seconds``."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimensions, self.embed_documents = embedder.name, embedder.dimensions, embedder.embed_documents
        self.cosine_spread = getattr(embedder, "cosine_spread", None)
        self._embed_queries, self.seconds = embedder.embed_queries, 0.0

    def embed_queries(self, texts: Sequence[str]) -> NDArray[Any]:
        start = perf_counter()
        vectors = self._embed_queries(texts)
        self.seconds += perf_counter() - start
        return vectors


def evaluate_selectors(
    folder: str | Path,
    selectors: Sequence[str] | Mapping[str, BaseSelector] | None = None,
    *,
    llm: LLM | None = None,
    embedder: Embedder | str | None = None,
    limit_queries: int | None = None,
    price: float | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Measure selectors on a folder in BEIR format whose documents are the choices, each named by its title or id.

    ``accuracy`` is the share of questions of which the first selection is right; selecting nothing is wrong. Latency is
    that of one selection in a warm process, with the embedding of the question and without. `render` shows the result.

    Args:
        folder: see `read_collection`.
        selectors: names, or selectors of your own by name; by default all of ``description``, ``embedding``, ``rule``
            (the rules that ship), ``hybrid``, ``llm``, ``ensemble`` (the others' votes), the model's only with ``llm``.
        llm: the language model of ``llm`` and ``ensemble``.
        embedder: or its name; by default the default one.
        limit_queries: use only the first so many questions.
        price: of a million tokens, to report what a thousand questions cost.
        on_progress: called with the number of questions done.

    Raises:
        InputError: the folder or a number is invalid, or a selector is unknown.
        UnmetNeedError: ``llm`` is requested without a model.
    """
    collection = read_collection(folder).first(limit_queries)
    ids = [document.id for document in collection.documents]
    choices = [
        ToolMetadata(document.metadata.get("title", document.id), document.text) for document in collection.documents
    ]
    timed_embedder = _TimedEmbedder(as_embedder("default" if embedder is None else embedder))
    if not isinstance(selectors, Mapping):
        names = [name for name in _MAKE if llm or name != "llm"] if selectors is None else selectors
        if unknown_name := next((name for name in names if name not in _MAKE), None):
            raise UnknownNameError("selector", unknown_name, tuple(_MAKE))
        if "llm" in names and llm is None:
            raise UnmetNeedError("selector 'llm' needs a language model; name one in the settings, or pass llm=")
        selectors = {name: _MAKE[name](timed_embedder, llm) for name in names}
    reports = {}
    for name, selector in zip(selectors, map(as_selector, selectors.values()), strict=True):
        selector.select(choices, next(iter(collection.queries.values())))  # choices are embedded once, untimed
        per_query, times, times_without, fallbacks = {}, [], [], 0
        with spending(Budget(sys.maxsize, sys.maxsize)) as account:
            for number, (query, text) in enumerate(collection.queries.items(), 1):
                timed_embedder.seconds, start = 0.0, perf_counter()
                result = selector.select(choices, text)
                seconds = perf_counter() - start
                times.append(seconds * 1000)
                times_without.append((seconds - timed_embedder.seconds) * 1000)
                is_right = bool(result.inds) and collection.qrels[query].get(ids[result.inds[0]], 0) > 0
                per_query[query] = float(is_right)
                fallbacks += result.fallback is not None
                if on_progress is not None:
                    on_progress(number, len(collection.queries), f"{name}: selecting")
        count = len(per_query)
        if fallbacks:
            log.warning("%s: %d of %d selections were made by a fallback", name, fallbacks, count)
        accuracy = {"accuracy": sum(per_query.values()) / count}
        llm_figures = account.calls / count, account.tokens / count
        reports[name] = StrategyReport(
            accuracy, *percentiles(times), per_query, percentiles(times_without), *llm_figures
        )
    return Report(collection.name, len(choices), len(collection.queries), reports, subject="selector", price=price)
