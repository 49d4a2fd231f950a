"""What every transformer of queries is: it fills in, takes apart or adds to what is asked, before searching."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pointsman._twins import Twins, in_thread, wait_for
from pointsman.errors import InputError
from pointsman.text import fold
from pointsman.types import Query

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pointsman.types import RetrievalContext, Spelling

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Variant:
    """Another text to search for, beside the query itself.

    Attributes:
        text: what to search for.
        kind: how it came to be: ``"subquestion"``, ``"synonym"``, ``"paraphrase"``, ``"correction"``,
            ``"expansion"``, ``"hypothetical"`` or a new one.
        weight: of the list that it finds, where the original query's has 1.
        method: how datasets are searched for it: ``"bm25"``, ``"vector"`` or ``"hybrid"``; as for the query itself
            unless given. A dataset that does not keep what it needs is searched with what it keeps.
        as_passage: it reads like a document, not like a question, and is embedded as one (HyDE).
    """

    text: str
    kind: str
    weight: float = 1.0
    method: str | None = None
    as_passage: bool = False


@dataclass(frozen=True, slots=True)
class Transformed:
    """What became of a query.

    Attributes:
        query: what to search for from now on: the same object where nothing had to be filled in.
        variants: what to search for besides; none of them reads like the query, or like another one.
        detail: what was decided and why, in words.
        degraded: what did not work as asked, and what was done instead.
        spelling: set where words were corrected.
    """

    query: Query
    variants: tuple[Variant, ...] = ()
    detail: str = ""
    degraded: tuple[str, ...] = ()
    spelling: Spelling | None = None


class Lookup(Protocol):
    """The sources that will be searched, for transformers that have to look something up first.

    A search from here obeys the routing, the breaker and the policy of the search that it serves.
    """

    @property
    def sources(self) -> list[Any]:
        """What will be searched."""
        ...

    def search(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        """The best hits for a query."""
        ...

    async def asearch(self, query: Query, k: int, seconds: float | None = None) -> RetrievalContext:
        """The same, awaited."""
        ...


class BaseTransformer(Twins, needs=("transform", "atransform")):
    """Transforms queries. Implement ``transform`` or ``atransform``; the other one comes from here.

    What it cannot do it says in ``degraded`` of its answer, and answers with the query as it was.

    """

    def at_once(self, query: Query) -> Transformed | None:  # noqa: ARG002  (for those who can)
        """The answer, where it takes microseconds: no thread is started for it then; None where it takes longer."""
        return None

    def over(self, lookup: Lookup) -> BaseTransformer:  # noqa: ARG002  (for those who look something up)
        """The transformer for one search: bound to the sources that will be searched."""
        return self

    def transform(self, query: str | Query) -> Transformed:
        """What to search for."""
        return wait_for(self.atransform, query)

    async def atransform(self, query: str | Query) -> Transformed:
        """The same, awaited; a synchronous ``transform`` runs in a worker thread."""
        return await in_thread(self.transform, query)


class QueryTransformer(BaseTransformer):
    """Several transformers, one after the other (R8).

    Each sees the query as the ones before it have rewritten it; the variants of all are kept, those that read alike
    once, in order, up to ``max_variants``. A step that raises is told in ``degraded``, and the others go on.
    """

    def __init__(self, *steps: BaseTransformer, max_variants: int = 8) -> None:
        """Choose the steps.

        Raises:
            InputError: ``max_variants`` is negative, or a step is no transformer.
        """
        if max_variants < 0:
            raise InputError(f"max_variants is at least 0, not {max_variants}")
        for step in steps:
            if not callable(getattr(step, "transform", None)) or not callable(getattr(step, "atransform", None)):
                raise InputError(f"a step has transform and atransform (see BaseTransformer); {step!r:.80} has not")
        self.steps = steps
        self.max_variants = max_variants

    def over(self, lookup: Lookup) -> QueryTransformer:
        """Every step over the same sources."""
        return QueryTransformer(*bound(self.steps, lookup), max_variants=self.max_variants)

    def at_once(self, query: Query) -> Transformed | None:
        """What all steps answer, if all of them do at once."""
        run = _Run(query)
        for step in self.steps:
            result = step.at_once(run.query) if isinstance(step, BaseTransformer) else None
            if result is None:
                return None
            run.take(step, result)
        return run.result(self.max_variants)

    def transform(self, query: str | Query) -> Transformed:
        """Every step's work on the query."""
        run = _Run(Query.of(query))
        for step in self.steps:
            try:
                run.take(step, step.transform(run.query))
            except Exception as error:  # noqa: BLE001  (told in the result: a step must not cost the search)
                run.fail(step, error)
        return run.result(self.max_variants)

    async def atransform(self, query: str | Query) -> Transformed:
        """The same, awaited."""
        run = _Run(Query.of(query))
        for step in self.steps:
            try:
                run.take(step, await step.atransform(run.query))
            except Exception as error:  # noqa: BLE001  (as above; cancellation is no Exception)
                run.fail(step, error)
        return run.result(self.max_variants)


class _Run:
    """What ``transform`` and ``atransform`` share."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.variants: list[Variant] = []
        self.details: list[str] = []
        self.degraded: list[str] = []
        self.spelling: Spelling | None = None

    def take(self, step: BaseTransformer, result: Transformed) -> None:
        self.query = result.query
        self.variants += result.variants
        self.degraded += result.degraded
        self.spelling = result.spelling or self.spelling
        if result.detail:
            self.details.append(f"{type(step).__name__}: {result.detail}")

    def fail(self, step: BaseTransformer, error: Exception) -> None:
        name = type(step).__name__
        _log.warning("%s failed and was skipped: %s: %s", name, type(error).__name__, error)
        self.degraded.append(f"{name} failed and was skipped: {type(error).__name__}: {error}")

    def result(self, most: int) -> Transformed:
        variants = distinct(self.variants, self.query.text)
        if len(variants) > most:
            self.details.append(f"the first {most} of {len(variants)} variants kept")
        return Transformed(self.query, variants[:most], "; ".join(self.details), tuple(self.degraded), self.spelling)


def bound(steps: Iterable[BaseTransformer], lookup: Lookup) -> list[BaseTransformer]:
    """Steps for one search; those that look nothing up stay as they are, whatever class they are of."""
    return [step.over(lookup) if callable(getattr(step, "over", None)) else step for step in steps]


def distinct(variants: Iterable[Variant], text: str) -> tuple[Variant, ...]:
    """The variants without those that read like ``text`` or like an earlier one, or say nothing."""
    seen: set[object] = {same(text), ""}
    unique = []
    for variant in variants:
        key: object = same(variant.text) if isinstance(variant.text, str) else variant  # what is no text is told later
        if key not in seen:
            seen.add(key)
            unique.append(variant)
    return tuple(unique)


def same(text: str) -> str:
    """Equal for texts that differ in case, accents, white space and closing marks only.

    >>> same("Who was  Bach?") == same("who was bach")
    True
    """
    return " ".join(fold(text).split()).rstrip(" .?!。？！…")
