"""The stages of a search that users replace by their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pointsman.retrieval.judge.relevance import Relevance, shipped
from pointsman.retrieval.plan.policy import Policy, measured
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.retrieval.refine.rerank.foreign_reranker import as_refiner
from pointsman.retrieval.retrievers.hybrid_retriever import TIMEOUT
from pointsman.retrieval.run.candidates import DEPTH
from pointsman.tools.errors import InputError
from pointsman.tools.parallel_calls import Breaker, Deadline
from pointsman.values.argument_checks import check_top_k
from pointsman.values.registry import STRATEGY_ALIASES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.judge.kept_calibrations import Calibration
    from pointsman.retrieval.plan.recipe import Recipe
    from pointsman.retrieval.plan.routers import BaseRouter
    from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer


@dataclass(frozen=True, slots=True)
class Stages:
    """User-defined stages that replace the default ones.

    Args:
        router: chooses among the sources; by default all are searched.
        reranker: reorders the results: its name, such as ``"onnx:DIRECTORY"``, or anything that
            `pointsman.retrieval.refine.rerank.foreign_reranker.as_refiner` takes; by default the offline reranker.
        transformer: rewrites the query, and may add variants that are searched beside it; by default, a question that
            follows a conversation is also searched with the words of the question before it.
        refiners: further refiners, run in order after the reranker: refuse, diversify, expand, compress …
        strategy: the strategy that ``"auto"`` stands for, a built-in or a registered one.
        depth: candidates per list.
        timeout: seconds for the whole search; None: no limit.
        breaker: skips branches that keep failing.
        policy: the numbers that ``"auto"`` uses to decide; None: ``"auto"`` is plain hybrid search.
        calibrations: judge how relevant a hit is; the first that fits its scores is used.
        fitted: by dataset, what `pointsman calibrate` fitted; it takes precedence over ``calibrations`` there.

    Raises:
        InputError: an option is invalid.
    """

    router: BaseRouter | None = None
    reranker: Any = None
    transformer: BaseTransformer | None = None
    refiners: Sequence[BaseRefiner] = ()
    strategy: str = "auto"
    depth: int = DEPTH
    timeout: float | None = TIMEOUT
    breaker: Breaker = field(default_factory=Breaker)
    policy: Policy | None = field(default_factory=measured)
    calibrations: Sequence[Relevance] = field(default_factory=shipped)
    fitted: Mapping[str, Calibration] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_top_k(self.depth)
        Deadline(self.timeout)
        object.__setattr__(self, "strategy", STRATEGY_ALIASES.get(self.strategy, self.strategy))
        if not isinstance(self.policy, Policy | None):
            raise InputError(f"a policy is a Policy or None, not {self.policy!r:.80}")
        if not isinstance(self.breaker, Breaker):
            raise InputError(
                f"a breaker is a Breaker, not {self.breaker!r:.80}; Breaker(None) never leaves anything out"
            )
        if self.router is not None and not callable(getattr(self.router, "decide", None)):
            raise InputError(f"a router subclasses BaseRouter, {self.router!r:.80} does not")
        if self.reranker is not None:
            object.__setattr__(self, "reranker", as_refiner(self.reranker))
        for stage in self.refiners:
            if not isinstance(stage, BaseRefiner):
                raise InputError(f"a refiner subclasses BaseRefiner, {stage!r:.80} does not")


def with_own_synonyms(recipe: Recipe, path: str) -> Recipe:
    """Let the question be searched with synonyms of one's own, too: as asked, and after all that rewrites it.

    One's own words look like slips to whoever corrects the spelling.
    """
    from pointsman.retrieval.plan.transform.base_transformer import QueryTransformer
    from pointsman.retrieval.plan.transform.own_synonyms import OwnSynonyms

    own = OwnSynonyms(path, tuple(recipe.sources))
    steps = own if recipe.transformer is None else QueryTransformer(own, recipe.transformer, own)
    recipe = replace(recipe, transformer=steps)
    return recipe.deciding("synonyms", "on", "settings", f"those of {path} are searched beside the question")
