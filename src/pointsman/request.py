"""`SearchRequest`: the options that every interface accepts, checked in one place.

Python, the command line, HTTP, MCP and the client build the same request; `pointsman.engine.resolve` turns it into a
recipe.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, NewType, Self, TypedDict

from pointsman.errors import InputError, UnknownNameError
from pointsman.filters import Filter, parse_optional
from pointsman.registry import STRATEGY_ALIASES
from pointsman.retrieval.dispatch import Deadline
from pointsman.retrieval.policy import EFFORTS, EffortName, Limits
from pointsman.retrieval.refine import BaseRefiner
from pointsman.types import Query, check_top_k

RegisteredStrategy = NewType("RegisteredStrategy", str)
"""The name of a strategy that the user has registered: ``RegisteredStrategy("abbreviations")``."""

StrategyName = Literal[
    "auto",
    "bm25",
    "vector",
    "dense",
    "hybrid",
    "rrf",
    "weighted_rrf",
    "min_max",
    "z_score",
    "dbsf",
    "round_robin",
    "compression",
    "decomposition",
    "hyde",
    "multi_query",
    "parent_child",
    "prf",
    "query2doc",
    "sparse",
]
"""The built-in strategies; ``"dense"`` is another name of ``"vector"``."""


class _CommonOptions(TypedDict, total=False):
    filters: str | Mapping[str, Any] | Filter | None
    refuse: bool | BaseRefiner | None
    min_relevance: float | None
    coverage: float | None
    spelling: bool
    effort: EffortName | Limits
    timeout: float | None


class SearchOptions(_CommonOptions, total=False):
    """How to search. Every option is optional.

    Attributes:
        strategy: ``"auto"`` (settings and policy decide), ``"bm25"``, ``"vector"``, ``"hybrid"``, a fusion method such
            as ``"rrf"``, or a registered strategy such as ``"decomposition"``. Some need a language model.
        filters: an expression such as ``year >= 2020 and lang = "ru"``, a mapping, or a filter; it replaces a query's
            own.
        rerank: False keeps the fused order; True reranks with the configured reranker, whatever was measured, or else
            with the offline one, which has nothing to add where lists are fused by the calibrated sum (the plan says
            so); a reranker object is used as given. By default the settings decide; ``"auto"`` uses a reranker that
            they name only where it was measured to gain.
        refuse: False returns the best-ranked hits, relevant or not; a `Refuser` object is used as given.
        min_relevance: drops hits whose `Hit.relevance` is below this value, 0 to 1; hits without a relevance stay, and
            ``degraded`` says so.
        coverage: instead of ``k`` hits, the fewest that hold an answer with this probability, above 0 and below 1, up
            to `pointsman.retrieval.dataset_calibration.MOST_HITS`. Needs `Workspace.calibrate` with labels; if it
            cannot be promised, there are ``k`` hits, `RetrievalContext.coverage` is None and ``degraded`` says why.
        spelling: False searches for the question as written; True lets ``"auto"`` correct probable typos, which the
            answer reports in ``spelling``.
        effort: the effort of ``"auto"``: ``"fast"``, ``"balanced"``, ``"thorough"``, or `Limits`.
        timeout: seconds for the whole search.
    """

    strategy: StrategyName | RegisteredStrategy
    rerank: bool | BaseRefiner | None


class WorkspaceOptions(SearchOptions, total=False):
    """Where to search, and how to search.

    Attributes:
        datasets: the names of the datasets to search; all by default.
    """

    datasets: str | Sequence[str] | None


class ServiceOptions(_CommonOptions, total=False):
    """The options that `EnhancedRetrievalService` takes besides its own ``strategy`` and ``use_rerank``.

    Attributes:
        datasets: the names of the datasets to search; all by default.
    """

    datasets: str | Sequence[str] | None


def of_one_dataset(options: SearchOptions) -> SearchOptions:
    """Return the options of a search of a single dataset, which has no choice of datasets.

    Raises:
        InputError: they name datasets.
    """
    if "datasets" in options:
        raise InputError("a dataset searches only itself; datasets is an option of a workspace's search")
    return options


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The questions and how to search for them: checked, and identical for every interface.

    Attributes:
        queries: one or more; each carries its own filters, and no others apply.
        k: the maximum number of hits in each answer.
        datasets: names, in order, without repeats; None: all.
        strategy, rerank, refuse, min_relevance, coverage, spelling, effort, timeout: see `SearchOptions`.
    """

    queries: tuple[Query, ...]
    k: int = 5
    datasets: tuple[str, ...] | None = None
    strategy: str = "auto"
    rerank: bool | BaseRefiner | None = None
    refuse: bool | BaseRefiner | None = None
    min_relevance: float | None = None
    coverage: float | None = None
    spelling: bool = True
    effort: EffortName | Limits = "balanced"
    timeout: float | None = None

    @classmethod
    def of(
        cls, query: str | Query | Sequence[str | Query], k: int = 5, options: Mapping[str, Any] | None = None
    ) -> Self:
        """Build a request from a caller's arguments.

        Args:
            query: one question, or a sequence of them.
            k: the number of hits.
            options: see `WorkspaceOptions`.

        Raises:
            InputError: an option does not exist, or its value is invalid; the message names the nearest valid one.
        """
        values = dict(options or {})
        filters = values.pop("filters", None)
        if unknown := values.keys() - _NAMES:
            raise InputError(_unknown("option of a search", min(unknown), ("k", *sorted(_NAMES), "filters")))
        parsed = None if filters is None else parse_optional(filters)  # usually None, and quick
        several = query if isinstance(query, Sequence) and not isinstance(query, str) else [query]
        names = values.get("datasets")
        if names is not None:
            values["datasets"] = _names(names)
        return cls(tuple([Query.of(text, parsed) for text in several]), k, **values)

    def __post_init__(self) -> None:
        check_top_k(self.k)
        if not isinstance(self.strategy, str):
            raise InputError(f"strategy is a name such as 'auto' or 'hybrid', not {self.strategy!r:.80}")
        object.__setattr__(self, "strategy", STRATEGY_ALIASES.get(self.strategy, self.strategy))
        for name in ("rerank", "refuse"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, (bool, BaseRefiner)):
                raise InputError(
                    f"{name} is True, False, None or a refiner (see BaseRefiner, BaseReranker), not {value!r:.80}"
                )
        least = self.min_relevance
        if least is not None and not (
            isinstance(least, int | float) and not isinstance(least, bool) and 0 <= least <= 1
        ):
            raise InputError(f"min_relevance is a probability from 0 to 1, or None, not {least!r:.80}")
        coverage = self.coverage
        if coverage is not None and not (
            isinstance(coverage, int | float) and not isinstance(coverage, bool) and 0 < coverage < 1
        ):
            raise InputError(f"coverage is a probability above 0 and below 1, or None, not {coverage!r:.80}")
        if not isinstance(self.spelling, bool):
            raise InputError(f"spelling is True or False, not {self.spelling!r:.80}")
        if not isinstance(self.effort, Limits) and self.effort not in EFFORTS:
            raise UnknownNameError("effort", str(self.effort), EFFORTS)
        Deadline(self.timeout)

    @property
    def query(self) -> Query:
        """The only question.

        Raises:
            InputError: there is not exactly one question.
        """
        if len(self.queries) != 1:
            raise InputError(f"there are {len(self.queries)} questions; search_many answers several")
        return self.queries[0]


_NAMES: Final = frozenset(field.name for field in fields(SearchRequest)) - {"queries", "k"}


def _names(names: Any) -> tuple[str, ...]:
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"datasets are names, not {names!r:.80}")
    return tuple(dict.fromkeys(names))


def _unknown(kind: str, name: str, names: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(name, names, 1, 0.6)
    remedy = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(names)}"
    return f"there is no {kind} named {name!r:.80}; {remedy}"
