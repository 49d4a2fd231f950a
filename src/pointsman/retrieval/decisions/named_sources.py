"""What a request searches: the sources that it names, as of its day, and the lists that they keep."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.fusion import LISTS
from pointsman.retrieval.run.reading import are_opened_in_turn
from pointsman.retrieval.run.source import Source
from pointsman.tools.errors import UnknownNameError, UnmetNeedError
from pointsman.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.plan.recipe import Recipe
    from pointsman.retrieval.plan.routers import BaseRouter
    from pointsman.retrieval.request import SearchRequest

PLAIN: Final = ("bm25", "vector", "hybrid")
"""Strategies that use the lists only."""

_LIST_WORDS: Final = {"bm25": "words", "vector": "vectors"}


def image_router(request: SearchRequest, sources: Sequence[Any]) -> BaseRouter | None:
    """The router that keeps texts and pictures apart, where a search names no datasets and there are both."""
    if request.datasets is not None or len({getattr(source, "holds_images", False) for source in sources}) < 2:
        return None
    from pointsman.retrieval.plan.routers import ImageRouter

    return ImageRouter()


def lists_missing(name: str, sources: Sequence[Any]) -> str | None:
    """The lists that a strategy needs and no source has; None if none is missing, or a retriever's are not known."""
    keeps = [lists for source in sources if (lists := _lists_of(source)) is not None]
    if not sources or len(keeps) < len(sources):
        return None
    words, needs_vectors = LISTS.get(name, (False, name == "hyde"))
    lacking = ": ".join(cause for source in sources if (cause := getattr(source, "lacking", "")))
    if needs_vectors and not any(has_vectors for _, has_vectors in keeps):
        return Reason.of("no_vectors") if not lacking else f"there are no vectors to search: {lacking}"
    if words and not any(has_words for has_words, _ in keeps):
        return Reason.of("no_keywords") if not lacking else f"there is no keyword index to search: {lacking}"
    datasets = all(isinstance(source, Source) for source in sources)
    if words and needs_vectors and name != "hybrid" and datasets and not any(all(lists) for lists in keeps):
        return Reason.of("no_both")
    return None


def _lists_of(source: Any) -> tuple[bool, bool] | None:
    """Whether a source or retriever searches words, and vectors; None if that is not known."""
    lists: tuple[bool, bool] | None = (
        source.lists_for("auto") if isinstance(source, Source) else getattr(source, "lists", None)
    )
    return lists


def only_list(sources: Sequence[Any]) -> str | None:
    """The only list that these retrievers search; None if they search both, or that is not known, or are datasets."""
    lists = {_lists_of(source) for source in sources if not isinstance(source, Source)}
    if len(lists) != 1 or any(isinstance(source, Source) for source in sources):
        return None
    return {(True, False): "bm25", (False, True): "vector"}.get(lists.pop() or (True, True))


def sources_named(request: SearchRequest, sources: Sequence[Any]) -> list[Any]:
    """The sources that a request names; all if it names none, and none for a name that does not exist."""
    return [source for source in sources if request.datasets is None or getattr(source, "name", "") in request.datasets]


def on_day(request: SearchRequest, sources: Sequence[Any]) -> Sequence[Any]:
    """The sources as of the day of the request, if it names one.

    Raises:
        UnmetNeedError: one of them cannot tell what is valid on a day.
    """
    day = request.as_of
    if day is None:
        return sources
    for source in sources:
        if not callable(getattr(source, "on_day", None)):
            raise UnmetNeedError(
                f"{getattr(source, 'name', source)!r:.80} cannot tell what is valid on a day; search a dataset"
            )
    in_turn = {"is_closable": True} if are_opened_in_turn(sources) else {}
    return [source.on_day(day, **(in_turn if getattr(source, "is_in_folder", False) else {})) for source in sources]


def selection_of(sources: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The sources that a request names; all if it names none."""
    if names is None:
        return sources
    for name in names:
        if name not in sources:
            raise UnknownNameError("dataset", name, tuple(sources))
    return {name: sources[name] for name in names}


def by_lists(recipe: Recipe, method: str) -> Recipe:
    """One list, or a fusion of both, without additions; sources that lack them are left out, and a note says so.

    Raises:
        UnmetNeedError: no source has the lists that the method needs.
    """
    own_sources = {name: source for name, source in recipe.sources.items() if isinstance(source, Source)}
    sources = list(recipe.sources.values())
    missing = lists_missing(method, sources)
    if not own_sources and method in PLAIN:  # retrievers are called unchanged
        single_list = only_list(sources)
        if missing is not None and (method != "hybrid" or single_list is None):
            raise UnmetNeedError(f"strategy {method!r} cannot be used here: {missing}")
        if missing is None or single_list is None:
            return replace(recipe, strategy=method)
        return replace(
            recipe,
            strategy=single_list,
            notes=(*recipe.notes, f"only {_LIST_WORDS[single_list]} were searched: {missing}"),
        )
    unable = [name for name, source in own_sources.items() if not source.keeps(method)]
    if missing is not None:
        own_sources[unable[0]].check_keeps(method, missing)
    if not unable:
        return replace(recipe, method=method)
    if method == "hybrid":
        return recipe  # search each source by the lists it has, without weights
    able = {name: source for name, source in recipe.sources.items() if name not in unable}
    notes = [
        f"{name}: indexed for {own_sources[name].indexing_technique!r} search only, so {method!r} leaves it out"
        for name in unable
    ]
    return replace(recipe, method=method, sources=able, notes=(*recipe.notes, *notes))
