"""Searches that only compute run beside the event loop, a few at once.

Between what it waits for, a search computes for some milliseconds. Forty at once would hold the loop for as long as all
of them compute, and their threads would fight for the interpreter. So a search that asks no server and no model of
anybody else runs in one thread, as a synchronous one does, and the others wait for their turn.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import anyio  # its limiter is loaded when it is first used: that takes 20 ms
from anyio import to_thread
from anyio.lowlevel import RunVar

from pointsman.tools.parallel_calls import Tasks, Threads, run
from pointsman.tools.sync_and_async import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pointsman.retrieval.plan.recipe import Recipe
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.types import Query

    Search = Callable[..., Coroutine[Any, Any, list[RetrievalContext]]]

_AT_ONCE: Final = 4
"""Each thread keeps the interpreter for 5 ms when the loop wants it."""
_LEAST_SECONDS: Final = 0.001
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("searches beside the event loop")


async def carry_out(resolve: Callable[[], Recipe], search: Search, query: Query) -> RetrievalContext:
    """Answer a question on the event loop or, if that only computes, in a thread; see above.

    Waiting for a turn counts against the time of the search. If the caller is cancelled, what was begun in the thread
    ends there, and is dropped.

    Args:
        resolve: returns the recipe; may read and wait, so it is called in a thread.
        search: called with recipes, questions, the mode, and seconds if there are fewer than the recipe says.
        query: the question.
    """
    start = perf_counter()
    recipe, is_here = await in_thread(_with_place, resolve)
    if not is_here:
        return (await search([recipe], [query], Tasks()))[0]
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        _limiter.set(limiter)

    def search_here() -> list[RetrievalContext]:
        waited = perf_counter() - start
        seconds = None if recipe.timeout is None else max(recipe.timeout - waited, _LEAST_SECONDS)
        return run(search([recipe], [query], Threads(), seconds))

    return (await to_thread.run_sync(search_here, abandon_on_cancel=True, limiter=limiter))[0]


def _with_place(resolve: Callable[[], Recipe]) -> tuple[Recipe, bool]:
    """Return a recipe, and whether it asks only stores and models in this process."""
    recipe = resolve()
    return recipe, recipe.only_computes and all(map(_is_here, recipe.sources.values()))


def _is_here(source: Any) -> bool:
    if not getattr(source, "is_in_folder", False):  # its store would be asked beyond the time of the search
        return False
    if source.indexing_technique == "keyword":
        return True
    try:
        embedder = getattr(source.embedder, "embedder", source.embedder)  # in its cache
    except Exception:  # noqa: BLE001  (the search meets it again, and reports it)
        return False
    return bool(getattr(embedder, "only_computes", False))
