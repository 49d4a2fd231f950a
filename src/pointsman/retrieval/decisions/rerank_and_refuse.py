"""Whether and how a search reranks and refuses: as asked for, given, set, or measured to gain, with the reason."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.fusion import METHODS
from pointsman.retrieval.plan.policy import measured
from pointsman.retrieval.plan.recipe import method_for
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.retrieval.refine.refuse import UNSURE_BELOW, Refuser
from pointsman.retrieval.run.source import Source
from pointsman.tools.errors import PointsmanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.plan.policy import EffortLimits, EffortName
    from pointsman.retrieval.plan.recipe import Recipe
    from pointsman.retrieval.request import SearchRequest
    from pointsman.values.settings import Settings

log = logging.getLogger(__name__)

_NO_RERANKER: Final = (
    "rerank: no reranker is configured, so nothing was reranked; set reranker to onnx:DIRECTORY (a cross-encoder) or "
    "to the address of a rerank API"
)
_NOT_MEASURED: Final = (
    "the reranker of the settings was not measured here; run pointsman tune or pointsman calibrate to learn whether "
    "it gains"
)


def wants_rerank(request: SearchRequest, settings: Settings) -> tuple[bool, str]:
    """Whether to rerank, and what decided it."""
    if request.rerank is not None:
        return request.rerank is not False, "request"
    return settings.enable_reranker_by_default, "settings"


def with_reranker(
    recipe: Recipe, strategy: str, request: SearchRequest, settings: Settings, own_reranker: BaseRefiner | None
) -> Recipe:
    """Add the reranker before all other refiners, or note why there is none.

    The offline reranker sorts by the calibrated sum of both raw scores. Hybrid search is already sorted by it, so
    the reranker would change nothing there; and if variants of the query added evidence of their own, it would undo
    the benefit of the strategy.
    """
    rerank, decider = wants_rerank(request, settings)
    reranker = request.rerank if isinstance(request.rerank, BaseRefiner) else own_reranker
    if not rerank:
        return recipe.deciding("rerank", "off", decider, "reranking is off")
    if isinstance(request.rerank, str):
        from pointsman.retrieval.refine.rerank.chosen_reranker import open_reranker

        reranker = open_reranker(request.rerank, None, settings.reranker_timeout)
    elif reranker is None and settings.reranker:
        from pointsman.retrieval.refine.rerank.chosen_reranker import reranker_for

        if request.rerank is not True:
            return _of_settings(recipe, strategy, request, settings)
        reranker = reranker_for(settings)
    if reranker is not None:
        from pointsman.retrieval.refine.rerank.foreign_reranker import as_refiner

        reranker = as_refiner(reranker)
        if any(getattr(refiner, "refiner", None) is reranker for refiner in recipe.refiners):
            return recipe.deciding("rerank", reranker.stage, decider, "by the strategy, on what it compressed")
        name = str(getattr(reranker, "name", type(reranker).__name__))
        recipe = replace(recipe, refiners=(reranker, *recipe.refiners))
        return recipe.deciding("rerank", name, decider, "the reranker that was given")
    if request.rerank is True and strategy in METHODS:
        from pointsman.retrieval.refine.rerank.calibrated import CalibratedReranker

        sources = [source for source in recipe.sources.values() if isinstance(source, Source)]
        offline = CalibratedReranker(spread=lambda: _shared_spread(sources))
        recipe = replace(recipe, refiners=(offline, *recipe.refiners))
        return recipe.deciding("rerank", offline.name, decider, "the calibrated sum of both raw scores")
    if request.rerank is True:
        recipe = replace(recipe, notes=(*recipe.notes, _NO_RERANKER))
    return recipe.deciding("rerank", "none", decider, _nothing_to_rerank(strategy, recipe))


def _of_settings(recipe: Recipe, strategy: str, request: SearchRequest, settings: Settings) -> Recipe:
    """Add the reranker of the settings; for ``auto`` unless a dataset was measured not to gain by it.

    What it costs is known where it was measured; elsewhere only ``effort="fast"`` leaves it out.
    """
    from pointsman.retrieval.refine.rerank.chosen_reranker import reranker_for

    try:
        reranker = reranker_for(settings)
    except PointsmanError as error:
        note = f"rerank: the reranker of the settings cannot be used; the hits are not reranked: {error}"
        log.warning("%s", note)
        recipe = replace(recipe, notes=(*recipe.notes, note))
        return recipe.deciding("rerank", "none", "settings", str(error))
    assert reranker is not None, "the settings name one"
    stored = {name: recipe.fitted[name].reranking if name in recipe.fitted else None for name in recipe.sources}
    gains = {name: gain if gain and gain.name == reranker.name else None for name, gain in stored.items()}
    reason = "; ".join(f"{name}: {gain.reason if gain else _NOT_MEASURED}" for name, gain in gains.items())
    measured_gains = [gain for gain in gains.values() if gain is not None]
    if strategy == "auto" and not all(gain.adopted for gain in measured_gains):
        return recipe.deciding("rerank", "none", "calibration", reason)
    price = max((gain.milliseconds for gain in measured_gains), default=1.0)
    if price > _affordable(request.effort):
        return recipe.deciding("rerank", "none", "request", f"{price:.0f} ms are beyond the effort; {reason}")
    recipe = replace(recipe, refiners=(reranker, *recipe.refiners))
    return recipe.deciding("rerank", reranker.name, "calibration" if measured_gains else "settings", reason)


def with_refuser(recipe: Recipe, request: SearchRequest, own_refiners: int) -> Recipe:
    """Add the refuser after the reranker and the strategy's own refiners, unless the request says otherwise."""
    own_refusers = [refiner for refiner in recipe.refiners if refiner.stage == "refuse"]
    if request.refuse is False or isinstance(request.refuse, BaseRefiner):
        recipe = replace(recipe, refiners=[refiner for refiner in recipe.refiners if refiner.stage != "refuse"])
    if request.refuse is False:
        return recipe.deciding("refuse", "off", "request", "requested")
    if isinstance(request.refuse, BaseRefiner):
        refuser, decider = request.refuse, "request"
    elif own_refusers:
        return recipe.deciding("refuse", "on", "workflow", "the workflow's own refuser")
    elif request.refuse == "unsure":
        refuser, decider = Refuser(at_least=UNSURE_BELOW), "request"
    else:
        refuser, decider = Refuser(), "default"
    refiners = list(recipe.refiners)
    index = len(refiners) - own_refiners
    refiners.insert(index, refuser)
    recipe = replace(recipe, refiners=refiners)
    return recipe.deciding("refuse", "on", decider, "irrelevant results are refused")


def _nothing_to_rerank(strategy: str, recipe: Recipe) -> str:
    if recipe.alone:
        return f"{strategy!r} was chosen for its own order"
    if recipe.transformer is not None and recipe.strategy:
        return f"no reranker is configured, and the offline one would undo what {strategy!r} adds"
    sources = list(recipe.sources.values())
    method, _ = method_for(sources, recipe.method, recipe.policy)
    is_named_list = method in {"bm25", "vector"} and method_for(sources, "auto", recipe.policy)[0] != method
    if method in METHODS or is_named_list:
        by_name = f"{method!r} was requested by name, and the offline reranker would replace its order"
        by_labels = f"{method!r} was fitted to your labels, and the offline reranker would replace its order"
        return by_name if strategy == method else by_labels
    if method in {"bm25", "vector"}:
        return "a single list has nothing to be weighed against"
    if not all(isinstance(source, Source) for source in sources):
        return "the offline reranker cannot weigh the scores of other retrievers"
    return "the fusion already uses the calibrated sum of both scores"


def _affordable(effort: EffortName | EffortLimits) -> float:
    """Milliseconds that a reranker may take of a search."""
    if effort == "fast":
        return 0.0
    if isinstance(effort, str) or effort.milliseconds is None:
        return math.inf
    from pointsman.retrieval.plan.transform.automatic_additions import additions

    return effort.milliseconds - sum(measured().additions[name]["ms"] for name in additions(effort))


def _shared_spread(sources: Sequence[Source]) -> Any:
    from pointsman.retrieval.fusion import CosineSpread
    from pointsman.retrieval.run.reading import spread_of

    return CosineSpread.shared([spread_of(source) for source in sources])
