"""`SearchRequest`: the options that every interface accepts, declared and checked in one place.

Python, the command line, HTTP, MCP and the client build the same request; `pointsman.retrieval.engine.resolve` turns
it into a
recipe. All of them derive their options from `OPTIONS`, so a new one needs a field here and the code that obeys it.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Literal, NewType, Self, TypedDict

from pointsman.retrieval.plan.policy import EFFORTS, EffortLimits, EffortName
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.text.unicode import compose
from pointsman.text.written_syntax import SYNTAXES, Syntax
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.tools.parallel_calls import Deadline
from pointsman.values.argument_checks import check_top_k
from pointsman.values.filters import Filter, parse_optional
from pointsman.values.registry import STRATEGY_ALIASES
from pointsman.values.types import Query
from pointsman.values.views import check_principals, day_of

if TYPE_CHECKING:
    from pointsman.retrieval.refine.diversity import Grouping

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
    "query2doc",
    "sparse",
]
"""The built-in strategies; ``"dense"`` is another name of ``"vector"``."""


Reranking = Literal["always", "late", "never"]
"""How to rerank: whatever was measured, by every word, or not at all."""

Refusing = Literal["elsewhere", "unsure", "never"]
"""What is refused: answers that are surely elsewhere, those that are merely unsure too, or nothing."""

_RERANKING: Final[Mapping[str, bool | str]] = {"always": True, "late": "late", "never": False}
_REFUSING: Final[Mapping[str, bool | str]] = {"elsewhere": True, "unsure": "unsure", "never": False}


class _CommonOptions(TypedDict, total=False):
    filters: str | Mapping[str, Any] | Filter | None
    refuse: bool | Refusing | BaseRefiner | None
    min_relevance: float | None
    coverage: float | None
    spelling: bool
    syntax: Syntax
    effort: EffortName | EffortLimits
    timeout: float | None
    principals: str | Sequence[str] | None
    as_of: str | date | None
    group_by: str | None
    group_size: int


class SearchOptions(_CommonOptions, total=False):
    """How to search. Every option is optional.

    Attributes:
        strategy: ``"auto"`` (settings and policy decide), ``"bm25"``, ``"vector"``, ``"hybrid"``, a fusion method such
            as ``"rrf"``, or a registered strategy such as ``"decomposition"``. Some need a language model.
        filters: an expression such as ``year >= 2020 and lang = "ru"``, a mapping, or a filter; it replaces a query's
            own.
        rerank: ``"never"``, which is False, keeps the fused order; ``"always"``, which is True, reranks with the
            configured reranker, whatever was measured, or else with the offline one, which has nothing to add where
            lists are fused by the calibrated sum (the plan says so); ``"late"`` compares every word of the question
            with every word of the first ten hits, by the default embedder and no other model
            (`LateInteractionReranker`); a reranker object is used as given. By default the settings decide; ``"auto"``
            uses a reranker that they name only where it was measured to gain.
        refuse: ``"elsewhere"``, which is True and the default, refuses what is surely answered elsewhere;
            ``"unsure"`` refuses more, all whose most relevant hit has less than
            `pointsman.retrieval.refine.refuse.UNSURE_BELOW`; ``"never"``, which is False, returns the best-ranked hits,
            relevant or not; a `Refuser` object is used as given. See `RetrievalContext.verdict`.
        min_relevance: drops hits whose `Hit.relevance` is below this value, 0 to 1; hits without a relevance stay, and
            ``degraded`` says so.
        coverage: instead of ``k`` hits, the fewest that hold an answer with this probability, above 0 and below 1, up
            to `pointsman.retrieval.judge.kept_calibrations.MOST_HITS`. Needs `Workspace.calibrate` with labels; if it
            cannot be promised, there are ``k`` hits, `RetrievalContext.coverage` is None and ``degraded`` says why.
        spelling: False searches for the question as written; True lets ``"auto"`` correct probable typos, which the
            answer reports in ``spelling``.
        syntax: whether ``"exact phrase"``, ``-word``, ``-"phrase"`` and ``+word`` in a question are obeyed: ``"auto"``
            obeys them in keywords, ``"hard"`` always, ``"plain"`` never; see `pointsman.text.written_syntax`.
            ``field:value``, ``field:>=2020`` and ``before:2024`` are obeyed wherever documents have the field, unless
            ``"plain"``; see `pointsman.text.field_syntax`. The plan says what was understood.
        effort: the effort of ``"auto"``: ``"fast"``, ``"balanced"``, ``"thorough"``, or `EffortLimits`.
        timeout: seconds for the whole search.
        principals: who asks, such as ``["user:anna", "group:finance"]``: where access is on, only documents that these
            may see exist for the search.
        as_of: a day such as ``"2026-03-01"``: only documents that are valid on it exist for the search, and the newest
            version of that day comes first; by default all exist, and the newest of today comes first.
        group_by: a metadata key such as ``"source"`` or ``"author.name"``: the answer has at most ``group_size`` hits
            with one value of it, and is searched until ``k`` hits are found or no other group is left. A document
            with several values counts for each of them; documents without the key are not limited.
        group_size: how many hits of one group an answer has; 1 by default.
    """

    strategy: StrategyName | RegisteredStrategy
    rerank: bool | Reranking | BaseRefiner | None


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


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a search, as interfaces declare it.

    Attributes:
        kind: the type of the values that can be sent.
        default: the value without the option.
        help: what it does, in a sentence or two of Markdown.
        bounds: limits of the value: ``ge``, ``gt``, ``le``, ``lt`` of a number, ``min_length`` and ``max_length`` of a
            text.
    """

    kind: Any
    default: Any
    help: str
    bounds: Mapping[str, float] = field(default_factory=dict)


def _option(kind: Any, default: Any, help: str, **bounds: float) -> Any:  # noqa: A002  (the field's word)
    return field(default=default, metadata={"option": Option(kind, default, help, bounds)})


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
        strategy, rerank, refuse, min_relevance, coverage, spelling, syntax, effort, timeout, principals, as_of,
            group_by, group_size: see `SearchOptions`.
    """

    queries: tuple[Query, ...]
    k: int = _option(int, 5, "Maximum number of hits.", ge=1)
    strategy: str = _option(
        str,
        "auto",
        "`auto`, a list (`bm25`, `vector` or `dense`, `hybrid`), a fusion method (`rrf`, `z_score` …) or a strategy "
        "(`hyde`, `query2doc`, `decomposition`, `multi_query`, `compression` …).",
        min_length=1,
        max_length=64,
    )
    datasets: tuple[str, ...] | None = _option(list[str] | None, None, "Only these datasets; default: all.")
    rerank: bool | Reranking | BaseRefiner | None = _option(
        bool | Reranking | None,
        None,
        "`always` (or true): rerank, whatever was measured; `late`: by every word, with no further model; `never` (or "
        "false): keep the order; default: as configured.",
    )
    refuse: bool | Refusing | BaseRefiner | None = _option(
        bool | Refusing | None,
        None,
        "`elsewhere` (or true, the default): no hits if the answer is surely elsewhere; `unsure`: nor if none is "
        "likely to be one; `never` (or false): the nearest hits, whatever they are.",
    )
    min_relevance: float | None = _option(
        float | None, None, "Leave out hits whose relevance is below this, 0 to 1.", ge=0, le=1
    )
    coverage: float | None = _option(
        float | None,
        None,
        "Return the fewest hits that contain an answer with this probability, instead of `k`; needs a calibration.",
        gt=0,
        lt=1,
    )
    spelling: bool = _option(bool, True, "False: search for the question exactly as written.")
    syntax: Syntax = _option(
        Syntax,
        "auto",
        'Whether `"exact phrase"`, `-word`, `-"phrase"` and `+word` are obeyed: `auto` in keywords, `hard` always, '
        "`plain` never. `field:value`, `field:>=2020` and `before:2024` where documents have the field.",
    )
    effort: EffortName | EffortLimits = _option(EffortName, "balanced", "For `auto`: `fast`, `balanced` or `thorough`.")
    timeout: float | None = _option(
        float | None, None, "Time limit in seconds; the hits found by then are returned.", gt=0
    )
    principals: tuple[str, ...] | None = _option(
        list[str] | None,
        None,
        "Who asks, such as `user:anna` or `group:finance`; a key or token can only be narrowed. Needed where access is "
        "on.",
    )
    as_of: str | None = _option(
        str | None,
        None,
        "A day such as `2026-03-01`: search the documents that are valid on it, and prefer the newest version of then.",
    )
    group_by: str | None = _option(
        str | None,
        None,
        "A metadata key such as `source`: at most `group_size` hits with one value of it, so that the answer has `k` "
        "hits of different files, if there are as many.",
        min_length=1,
        max_length=1000,
    )
    group_size: int = _option(int, 1, "With `group_by`: how many hits of one group the answer has.", ge=1)

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
        if unknown_names := values.keys() - _NAMES:
            raise InputError(_unknown_name("option of a search", min(unknown_names), ("k", *sorted(_NAMES), "filters")))
        filter_ = None if filters is None else parse_optional(filters)  # usually None, and quick
        texts = query if isinstance(query, Sequence) and not isinstance(query, str) else [query]
        names = values.get("datasets")
        if names is not None:
            values["datasets"] = _names(names)
        if (principals := values.get("principals")) is not None:
            values["principals"] = tuple(sorted(check_principals(_as_list(principals))))
        return cls(tuple([Query.of(text, filter_) for text in texts]), k, **values)

    def __post_init__(self) -> None:
        check_top_k(self.k)
        if not isinstance(self.strategy, str):
            raise InputError(f"strategy is a name such as 'auto' or 'hybrid', not {self.strategy!r:.80}")
        object.__setattr__(self, "strategy", STRATEGY_ALIASES.get(self.strategy, self.strategy))
        if self.rerank is not None:
            object.__setattr__(self, "rerank", _canonical_choice("rerank", self.rerank, _RERANKING))
        if self.refuse is not None:
            object.__setattr__(self, "refuse", _canonical_choice("refuse", self.refuse, _REFUSING))
        for name, option in _PROBABILITIES.items():
            if (value := getattr(self, name)) is not None and not _is_within(value, option.bounds):
                bounds = " ".join(f"{_BOUNDS[bound]} {limit:g}" for bound, limit in option.bounds.items())
                raise InputError(f"{name} is a probability {bounds}, or None, not {value!r:.80}")
        if self.as_of is not None:
            object.__setattr__(self, "as_of", day_of(self.as_of, "as_of"))
        if self.group_by is not None or self.group_size != 1:
            _check_groups(self.group_by, self.group_size)
        if not isinstance(self.spelling, bool):
            raise InputError(f"spelling is True or False, not {self.spelling!r:.80}")
        _check_name("syntax", self.syntax, SYNTAXES)
        if not isinstance(self.effort, EffortLimits):
            _check_name("effort", self.effort, EFFORTS)
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


def declared(fields: Sequence[Field[Any]]) -> dict[str, Option]:
    """Return the options that the fields of a class declare, by name."""
    return {field.name: field.metadata["option"] for field in fields if "option" in field.metadata}


OPTIONS: Final[Mapping[str, Option]] = {
    **declared(fields(SearchRequest)),
    "filters": Option(  # each query carries its own
        str | dict[str, Any] | None,
        None,
        'Metadata filter: `{"lang": "ru", "year": {"gte": 2020}}` or `year >= 2020 and lang = ru`; also `title '
        'contains "signal"` or `{"title": {"contains": "signal"}}`, `startswith`, `endswith`, each with a leading '
        "`i` to ignore case; null; paths such as `author.name`; `_id` and `_text` for the document's id and text.",
    ),
}
"""The options of a search by name, as every interface offers them."""

_NAMES: Final = OPTIONS.keys() - {"k", "filters"}
_PROBABILITIES: Final = {
    name: option for name, option in OPTIONS.items() if "lt" in option.bounds or "le" in option.bounds
}


_BOUNDS: Final = {"ge": "from", "gt": "above", "le": "to", "lt": "and below"}


def _is_within(value: Any, bounds: Mapping[str, float]) -> bool:
    """Whether a value is a number within bounds."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return all(getattr(operator, bound)(value, limit) for bound, limit in bounds.items())


def grouping_of(group_by: str | None, group_size: int) -> Grouping | None:
    """Return the grouping that ``group_by`` and ``group_size`` ask for, if any.

    Raises:
        InputError: one of them is invalid, or there is a size without a key.
    """
    if group_by is None and group_size == 1:
        return None
    _check_groups(group_by, group_size)
    from pointsman.retrieval.refine.diversity import Grouping

    return Grouping(str(group_by), group_size)


def _check_name(option: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise UnknownNameError(option, str(name), tuple(names))


def _canonical_choice(option: str, value: bool | str | BaseRefiner, names: Mapping[str, bool | str]) -> Any:
    """The value of ``rerank`` or ``refuse`` without its other names."""
    if isinstance(value, str):
        _check_name(option, value, names)
        return names[value]
    if not isinstance(value, (bool, BaseRefiner)):
        raise InputError(
            f"{option} is True, False, None or a refiner (see BaseRefiner, BaseReranker), not {value!r:.80}"
        )
    return value


def _check_groups(group_by: object, group_size: object) -> None:
    if not isinstance(group_size, int) or isinstance(group_size, bool) or group_size < 1:
        raise InputError(f"group_size is an int from 1 up, not {group_size!r:.80}")
    if group_by is None:
        raise InputError(f"group_size={group_size} needs group_by, the metadata key whose values make the groups")
    if not isinstance(group_by, str) or not group_by:
        raise InputError(f"group_by is a metadata key such as 'source', or None, not {group_by!r:.80}")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _names(names: Any) -> tuple[str, ...]:
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"datasets are names, not {names!r:.80}")
    return tuple(dict.fromkeys(map(compose, names)))


def _unknown_name(kind: str, name: str, names: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(name, names, 1, 0.6)
    remedy = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(names)}"
    return f"there is no {kind} named {name!r:.80}; {remedy}"
