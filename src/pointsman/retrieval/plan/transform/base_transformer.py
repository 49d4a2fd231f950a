"""The base of all query transformers, which complete, decompose or expand a query before the search."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pointsman.text import fold
from pointsman.tools.errors import InputError
from pointsman.tools.parallel_calls import DualCall, Mode, sync_and_async
from pointsman.tools.sync_and_async import Twins, in_thread, wait_for
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pointsman.retrieval.run.variant import Variant
    from pointsman.values.retrieval_context import RetrievalContext, Spelling

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Transformed:
    """The result of transforming a query.

    Attributes:
        query: the query to search for: the same object if nothing was filled in.
        variants: further texts to search for; none of them repeats the query or another variant.
        detail: what was decided and why, in words.
        degraded: what did not work as requested, and what was done instead.
        spelling: set if words were corrected.
    """

    query: Query
    variants: tuple[Variant, ...] = ()
    detail: str = ""
    degraded: tuple[str, ...] = ()
    spelling: Spelling | None = None


class Lookup(Protocol):
    """The sources of a search, for transformers that first have to search themselves.

    Such a search uses the routing, the breaker and the policy of the search that it serves.
    """

    @property
    def sources(self) -> list[Any]:
        """Return the sources to be searched."""
        ...

    def search(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        """Return the best hits for a query."""
        ...

    async def asearch(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        """Async version of `search`."""
        ...


class BaseTransformer(Twins, needs=("transform", "atransform")):
    """Transforms queries. Implement ``transform`` or ``atransform``; this class derives the other.

    If it cannot do its work, it returns the query unchanged and says so in ``degraded``.

    Attributes:
        only_computes: it never calls a language model, so a search with it needs no account of such calls.
    """

    only_computes: bool = False

    def at_once(self, query: Query) -> Transformed | None:  # noqa: ARG002  (used by subclasses)
        """The result, if it takes only microseconds, so that no thread is needed; None if it takes longer."""
        return None

    def over(self, lookup: Lookup) -> BaseTransformer:  # noqa: ARG002  (used by subclasses that search)
        """Return the transformer for one search, bound to the sources of that search."""
        return self

    def transform(self, query: str | Query) -> Transformed:
        """Return what to search for."""
        return wait_for(self.atransform, query)

    async def atransform(self, query: str | Query) -> Transformed:
        """Async version of `transform`; a synchronous ``transform`` runs in a worker thread."""
        return await in_thread(self.transform, query)


class QueryTransformer(BaseTransformer):
    """Runs several transformers in sequence.

    Each step receives the query as rewritten by the earlier ones; the variants of all steps are kept, in order and
    without equal texts, up to ``max_variants``. A step that raises is reported in ``degraded``, and the others go on.
    """

    def __init__(self, *steps: BaseTransformer, max_variants: int = 8) -> None:
        """Choose the steps.

        Raises:
            InputError: ``max_variants`` is negative, or a step is not a transformer.
        """
        if max_variants < 0:
            raise InputError(f"max_variants is at least 0, not {max_variants}")
        for step in steps:
            if not callable(getattr(step, "transform", None)) or not callable(getattr(step, "atransform", None)):
                raise InputError(f"a step has transform and atransform (see BaseTransformer); {step!r:.80} has not")
        self.steps = steps
        self.max_variants = max_variants

    def over(self, lookup: Lookup) -> QueryTransformer:
        """Return a copy with every step bound to the same sources."""
        return QueryTransformer(*bound(self.steps, lookup), max_variants=self.max_variants)

    def at_once(self, query: Query) -> Transformed | None:
        """The result of all steps, if each has one at once."""
        run = _TransformerRun(query)
        for step in self.steps:
            result = step.at_once(run.query) if isinstance(step, BaseTransformer) else None
            if result is None:
                return None
            run.take(step, result)
        return run.result(self.max_variants)

    async def _transform(self, mode: Mode, query: str | Query) -> Transformed:
        """Runs all steps on the query."""
        run = _TransformerRun(Query.of(query))
        for step in self.steps:
            try:
                call = DualCall(partial(step.transform, run.query), partial(step.atransform, run.query))
                run.take(step, await mode.one(call))
            except Exception as error:  # noqa: BLE001  (reported in the result: a step must not fail the search)
                run.fail(step, error)
        return run.result(self.max_variants)

    transform, atransform = sync_and_async(_transform)


class _TransformerRun:
    """The state of a run of all steps."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.variants: list[Variant] = []
        self.details: list[str] = []
        self.degraded: list[str] = []
        self.spelling: Spelling | None = None

    def take(self, step: BaseTransformer, result: Transformed) -> None:
        self.query = result.query
        self.variants += result.variants
        self.degraded += [note for note in result.degraded if note not in self.degraded]
        self.spelling = result.spelling or self.spelling
        if result.detail:
            self.details.append(f"{type(step).__name__}: {result.detail}")

    def fail(self, step: BaseTransformer, error: Exception) -> None:
        name = type(step).__name__
        _log.warning("%s failed and was skipped: %s: %s", name, type(error).__name__, error)
        self.degraded.append(f"{name} failed and was skipped: {type(error).__name__}: {error}")

    def result(self, limit: int) -> Transformed:
        variants = distinct(self.variants, self.query.text)
        if len(variants) > limit:
            self.details.append(f"the first {limit} of {len(variants)} variants kept")
        return Transformed(self.query, variants[:limit], "; ".join(self.details), tuple(self.degraded), self.spelling)


def bound(steps: Iterable[BaseTransformer], lookup: Lookup) -> list[BaseTransformer]:
    """Binds steps to one search; those that need no lookup stay unchanged, whatever their class."""
    return [step.over(lookup) if callable(getattr(step, "over", None)) else step for step in steps]


def distinct(variants: Iterable[Variant], text: str) -> tuple[Variant, ...]:
    """The variants without empty ones and without repeats of ``text`` or of an earlier variant."""
    keys_so_far: set[object] = {same(text), ""}
    unique = []
    for variant in variants:
        key: object = same(variant.text) if isinstance(variant.text, str) else variant  # non-texts are reported later
        if key not in keys_so_far:
            keys_so_far.add(key)
            unique.append(variant)
    return tuple(unique)


def same(text: str) -> str:
    """A key that is equal for texts that differ only in case, accents, white space and final punctuation.

    >>> same("Who was  Bach?") == same("who was bach")
    True
    """
    return " ".join(fold(text).split()).rstrip(" .?!。？！…")
