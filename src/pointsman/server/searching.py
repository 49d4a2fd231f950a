"""From a request to a search: what the settings say where the request says nothing."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pointsman.errors import RetrievalError, UnmetNeedError
from pointsman.filters import parse_filter
from pointsman.registry import STRATEGIES
from pointsman.retrieval.fusion import METHODS
from pointsman.retrieval.recommend import recommend
from pointsman.server.problems import Problem
from pointsman.server.state import check_text
from pointsman.service import CHOSEN_BY_LOOK, EnhancedRetrievalService, choose
from pointsman.types import Message, Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pointsman.retrieval.recommend import Recommendation
    from pointsman.server.access import Access
    from pointsman.server.schemas import SearchOptions
    from pointsman.server.state import State
    from pointsman.types import RetrievalContext
    from pointsman.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Asked:
    """A search that is ready to run.

    Attributes:
        workspace: where.
        k: how many hits.
        options: of `Workspace.search`.
        queries: what is asked, one or several.
        recommendation: of the strategy, where the look of the query has decided.
        hurried: whether the request gives it less time than it has by itself.
    """

    workspace: Workspace
    k: int
    options: dict[str, Any]
    queries: Sequence[Query]
    recommendation: Recommendation | None = None
    hurried: bool = False

    def run(self) -> RetrievalContext:
        """Search for the one query.

        Raises:
            Problem: the request left it too little time for anything.
        """
        with self._in_time():
            return self.workspace.search(self.queries[0], self.k, **self.options)

    def run_all(self) -> list[RetrievalContext]:
        """Search for all queries.

        Raises:
            Problem: as `run`.
        """
        with self._in_time():
            return self.workspace.search_many(self.queries, self.k, **self.options)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            yield
        except RetrievalError as error:
            if self.hurried and all(isinstance(cause, TimeoutError) for cause in error.causes.values()):
                told = f"nothing answered within the {self.options['timeout']:g} seconds asked for; give it more"
                raise Problem("invalid-input", told) from error
            raise

    def confidence(self, context: RetrievalContext) -> float:
        """How sure the choice of the strategy is (I7): what a rule states, or was measured; 1 where nobody chose."""
        if self.recommendation is not None:
            return self.recommendation.confidence
        policy = self.workspace.workflow.policy
        if self.options["strategy"] == "auto" and policy is not None and len(context.plan.datasets) > 0:
            return policy.confidence
        return 1.0


def asked(state: State, access: Access, texts: Sequence[str], options: SearchOptions) -> Asked:
    """Check a request against limits, access and filters, and fill in what it leaves to the settings.

    Raises:
        Problem: a limit, or a dataset that does not exist for the key.
        InputError: the filters cannot be read, or the strategy not be used.
    """
    for text in texts:
        check_text(state, text)
    for message in options.history:
        check_text(state, message.text, "a message of the history")
    if options.k > state.limits.max_k:
        raise Problem("invalid-input", f"k is {options.k}, the limit is {state.limits.max_k}")
    names = access.chosen(options.datasets, state.workspace.names())
    filters = parse_filter(options.filters) if options.filters else None
    history = tuple(Message(message.role, message.text) for message in options.history)
    settings = state.settings
    strategy, recommendation = options.strategy, None
    if len(texts) == 1 and names:  # else there is one way for all of them, and no look of a query decides
        strategy, recommendation = choose(settings, strategy, lambda: recommended(state, names, texts[0]))
    elif strategy == "auto":
        strategy = settings.default_retrieval_strategy
    if state.workspace.llm is state.models and (why := state.models.why_none(strategy)) is not None:
        raise UnmetNeedError(f"strategy {strategy!r} needs a language model: {why}")
    rerank = options.use_rerank
    return Asked(
        state.workspace,
        options.k,
        {
            "datasets": names,
            "strategy": strategy,
            "rerank": False if rerank is None and not settings.enable_reranker_by_default else rerank,
            "refuse": options.refuse,
            "effort": options.effort,
            "timeout": settings.timeout if options.timeout is None else min(options.timeout, settings.timeout),
        },
        [Query(text, filters, history) for text in texts],
        recommendation,
        options.timeout is not None and options.timeout < settings.timeout,
    )


def recommended(state: State, names: Sequence[str], text: str) -> Recommendation:
    """What a question asks for by its look, among what can be used in these datasets (I5)."""
    if names:
        return service(state, names).recommend_strategy(text)
    lacking = {
        name: f"it needs a language model: {why}"
        for name in CHOSEN_BY_LOOK
        if (why := state.models.why_none(name)) is not None
    }
    return recommend(text, set(CHOSEN_BY_LOOK) - lacking.keys(), why_not=lacking)


def service(state: State, names: Sequence[str]) -> EnhancedRetrievalService:
    """The service of I4 over these datasets."""
    datasets = [state.workspace.dataset(name, create=False) for name in names]
    return EnhancedRetrievalService(state.settings, datasets)


def described(state: State, access: Access) -> list[dict[str, Any]]:
    """Every strategy with what it does, and what it lacks in the datasets that the key is for."""
    names = access.visible(state.workspace.names())
    over = service(state, names) if names else None
    told = {name: _about(METHODS[name]) for name in METHODS}
    told |= {name: _about(STRATEGIES.get(name)) for name in STRATEGIES.names()}
    found = [
        {
            "name": "auto",
            "about": "The choice that was measured best for such a query.",
            "usable": True,
            "why_not": None,
        }
    ]
    for name, about in {**_LISTS, **told}.items():
        lack = "there is no dataset yet" if over is None else over.lack(name)
        found.append({"name": name, "about": _LISTS.get(name, about), "usable": lack is None, "why_not": lack})
    return found


_LISTS = {
    "hybrid": "Words and vectors together, on one calibrated scale.",
    "bm25": "Words alone, by BM25.",
    "vector": "Vectors alone, by cosine.",
}


def _about(made_by: object) -> str:
    """The first line of its documentation."""
    return (getattr(made_by, "__doc__", "") or "").strip().partition("\n")[0]
