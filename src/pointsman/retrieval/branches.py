"""Branches: whatever can be searched beside others, a dataset or a retriever, in the one form that fusion reads."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pointsman._twins import in_thread
from pointsman.errors import InputError, RetrievalError
from pointsman.retrieval.dispatch import Breaker, Call, Mode, describe, heard
from pointsman.retrieval.pool import SCALES, Fused, Part, Pool, Ranking, merge
from pointsman.types import Hit, HitKey, Provenance, Query, Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.dataset import Dataset
    from pointsman.protocols import Retriever
    from pointsman.retrieval.journal import Journal
    from pointsman.retrieval.policy import Looking
    from pointsman.types import Document

log = logging.getLogger(__name__)

_PATIENCE = 1.0  # seconds that a branch must have had before being late counts as a failure of its own

Place = tuple[str, int]
"""A list's name and a rank in it, from 1."""
KeyOf = Callable[[Hit], Hashable]


@dataclass(frozen=True, slots=True)
class Found:
    """What one branch, or several together, have found.

    Attributes:
        pool: candidates by key; what a key is only the functions below know.
        fetch: hits for keys, None for what is gone; their scores and ranks are for the caller to set. The second
            argument says which list has each key highest, and at which rank: where lists hold versions of their own,
            that one's is wanted (F1).
        ids: what tells the documents of keys apart.
        score: by list, what it would score a document that nobody has found, where that can be told.
        complete: by list, the raw scores of keys that only a variant of the query has found.
        keys: the keys of a dataset's documents by their ids; of those that there are.
        shared: whether a key means the same document in every branch.
        degraded: what did not work as asked.
    """

    pool: Pool[Any]
    fetch: Callable[[Sequence[Any], Sequence[Place]], Sequence[Hit | None]]
    ids: Callable[[Sequence[Any]], Sequence[HitKey | None]]
    score: Mapping[str, Callable[[HitKey], float | None]]
    complete: Callable[[Sequence[Any]], Mapping[str, Mapping[Any, float]]] = lambda _: {}
    keys: Callable[[Sequence[str]], Mapping[str, Any]] = lambda _: {}
    shared: bool = False
    degraded: tuple[str, ...] = ()


class Branch(Protocol):
    """Something to search."""

    @property
    def name(self) -> str:
        """What it is called in plans, traces and errors; branches of one search differ in it."""
        ...

    def look(self, query: Query, depth: int) -> Call[Found]:
        """How to search it for at most ``depth`` candidates a list."""
        ...


def is_dataset(one: Any) -> bool:
    """Whether something is a dataset, whose own lists can be searched; else it is a retriever, or nothing of ours."""
    return callable(getattr(one, "candidates", None)) and callable(getattr(one, "lists_for", None))


class DatasetBranch:
    """A dataset, searched by one method: both lists with both scores, documents fetched only for the answer.

    Args:
        dataset: what to search.
        method: ``"auto"``, or a name of `pointsman.retrieval.pool.LISTS`.
        looking: what to look up besides, by the policy.

    Raises:
        InputError: the dataset does not keep what the method needs.
    """

    def __init__(self, dataset: Dataset, method: str = "auto", looking: Looking | None = None) -> None:
        dataset.lists_for(method)
        self.dataset, self.method, self.name, self.looking = dataset, method, dataset.name, looking

    def look(self, query: Query, depth: int, method: str | None = None, *, as_passage: bool = False) -> Call[Found]:
        """See `Branch`; by another method, and embedding the text as a passage, if a variant wants that."""
        way = self.method
        if method is not None:
            way = method if self.dataset.keeps(method) else "auto"

        def sync() -> Found:
            looking = None if as_passage or method is not None else self.looking
            vector = None
            try:
                vector = self.dataset.passage_vector(query.text) if as_passage else None
                pool = self.dataset.candidates(query, way, depth, vector=vector, looking=looking)
            except InputError:
                raise
            except Exception as error:  # told of in the answer, below
                words, near = self.dataset.lists_for(way)
                if not (words and near):
                    raise
                pool = self.dataset.candidates(query, "bm25", depth)  # the words are there without any model
                cause = f"{self.name}: {describe(error)}; it was searched by words alone"
                return replace(self._found(query, pool), degraded=(cause,))
            return self._found(query, pool, vector)

        return Call(sync, lambda: in_thread(sync))

    def _found(self, query: Query, pool: Pool[int], vector: NDArray[np.float32] | None = None) -> Found:
        dataset = self.dataset
        fetch, ids = fetching(dataset.fetch, dataset.name)
        own = [source for source in pool.lists if source in SCALES]  # a list made by feedback scores nobody else

        def scorer(source: str) -> Callable[[HitKey], float | None]:
            def score(key: HitKey) -> float | None:
                known = dataset.keys([key[1]]).get(key[1]) if key[0] in {dataset.name, None} else None
                return None if known is None else dataset.scores(query, source, [known]).get(known)

            return score

        def complete(keys: Sequence[int]) -> Mapping[str, Mapping[int, float]]:
            return {source: dataset.scores(query, source, keys, vector=vector) for source in own}

        return Found(pool, fetch, ids, {source: scorer(source) for source in own}, complete, dataset.keys)


def fetching(
    documents: Callable[[Sequence[Any]], Sequence[Document | None]], dataset: str | None = None
) -> tuple[
    Callable[[Sequence[Any], Sequence[Place]], list[Hit | None]], Callable[[Sequence[Any]], list[HitKey | None]]
]:
    """``fetch`` and ``ids`` of a `Found` whose keys are those of one store.

    Args:
        documents: documents for keys, None for what is gone.
        dataset: the name of the dataset that they belong to, if they do to one.
    """

    def fetch(keys: Sequence[Any], _: Sequence[Place] = ()) -> list[Hit | None]:
        return [None if document is None else Hit(document, 0.0, dataset) for document in documents(keys)]

    def ids(keys: Sequence[Any]) -> list[HitKey | None]:
        return [None if hit is None else hit.key for hit in fetch(keys)]

    return fetch, ids


class RetrieverBranch:
    """Any retriever; its scores are its own, so they are fused with others by rank unless asked otherwise.

    Args:
        retriever: something with ``retrieve`` and ``aretrieve``.
        name: what its list is called.
        key: what makes two hits the same document; dataset and id unless given.
    """

    def __init__(self, retriever: Retriever, name: str, key: KeyOf | None = None) -> None:
        self.retriever, self.name, self._key = retriever, name, key

    def look(self, query: Query, depth: int) -> Call[Found]:
        """See `Branch`."""

        async def asynchronous() -> Found:
            return found_in(self.name, await self.retriever.aretrieve(query, depth), self._key)

        return Call(lambda: found_in(self.name, self.retriever.retrieve(query, depth), self._key), asynchronous)


def found_in(name: str, hits: Sequence[Hit], key: KeyOf | None = None) -> Found:
    """What a retriever of this name answered, checked; ``key`` as in `RetrieverBranch`.

    Raises:
        TypeError: it returned something else than hits.
    """
    if not isinstance(hits, Sequence) or isinstance(hits, str | bytes):
        raise TypeError(f"a retriever returns a list of hits, {name!r} returned {type(hits).__name__}")
    try:
        # an id alone is hashed faster than a pair
        keys: list[Any] = [hit.document.id if hit.dataset is None else (hit.dataset, hit.document.id) for hit in hits]
        scores: list[Any] = [hit.score for hit in hits]
    except AttributeError:
        other = next((hit for hit in hits if not isinstance(hit, Hit)), None)
        told = "hits without documents" if other is None else type(other).__name__
        raise TypeError(f"a retriever returns hits, {name!r} returned {told}") from None
    if key is not None:
        keys = list(map(key, hits))
    degraded = tuple(getattr(hits, "degraded", ()))
    if len(set(keys)) < len(keys):  # one vote per list: the first of a kind stays
        first = dict(zip(reversed(keys), reversed(hits), strict=True))
        keys = list(dict.fromkeys(keys))
        hits = [first[one] for one in keys]
        scores = [hit.score for hit in hits]
    if not _finite(scores):  # its order can still be used
        scores = [None] * len(keys)
        degraded = (*degraded, f"{name}: it gave scores that are no finite numbers; only its order counts")

    def fetch(_: Sequence[Any], places: Sequence[Place]) -> list[Hit | None]:
        return [hits[rank - 1] for _, rank in places]

    def ids(wanted: Sequence[Any]) -> list[HitKey | None]:
        by_key = dict(zip(keys, hits, strict=True))
        return [hit.key if (hit := by_key.get(one)) is not None else None for one in wanted]

    pool: Pool[Any] = Pool({name: list(zip(keys, scores, strict=True))})
    return Found(pool, fetch, ids, {}, shared=True, degraded=degraded)


def _finite(scores: Sequence[Any]) -> bool:
    try:
        return math.isfinite(math.fsum(scores)) or all(map(math.isfinite, scores))  # the sum alone is quicker
    except (TypeError, ValueError, OverflowError):
        return all(isinstance(score, (int, float)) and math.isfinite(score) for score in scores)


def named(retrievers: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    """A name for each retriever: those given, or its own, or its class in words, with a number from the second on.

    Raises:
        InputError: names are missing or repeated, or something is no retriever.
    """
    for retriever in retrievers:
        if not all(callable(getattr(retriever, way, None)) for way in ("retrieve", "aretrieve")):
            raise InputError(f"a retriever has retrieve and aretrieve, {retriever!r:.80} has not; see BaseRetriever")
    if names is not None:
        if isinstance(names, str) or len(names) != len(retrievers) or len(set(names)) < len(names):
            raise InputError(f"{len(retrievers)} retrievers need as many different names, not {names!r:.200}")
        return list(names)
    found: list[str] = []
    for retriever in retrievers:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(retriever).__name__.removesuffix("Retriever")).lower()
        own = getattr(retriever, "name", None)
        base = own if isinstance(own, str) and own else words.strip("_") or "retriever"
        count = sum(name == base or name.rpartition("_")[0] == base for name in found)
        found.append(base if not count else f"{base}_{count + 1}")
    return found


def together(found: Mapping[str, Found], *, many: bool = True) -> Found:
    """Several branches as one: datasets by their raw scores, everything else list by list.

    Args:
        found: by branch, at least one.
        many: whether several were asked; then keys name their branch, even if only one has answered.
    """
    parts = list(found.values())
    if len(parts) == 1 and (parts[0].shared or not many):
        return parts[0]
    degraded = tuple(note for part in parts for note in part.degraded)
    if all(part.shared for part in parts):
        pool: Pool[Any] = Pool({name: ranking for part in parts for name, ranking in part.pool.lists.items()})
        return Found(pool, _best_version(parts), _first_known(parts), {}, shared=True, degraded=degraded)
    own = {name: part for name, part in found.items() if not part.shared}
    others = [part for part in parts if part.shared]
    merged = merge({name: part.pool for name, part in own.items()})
    others = [_on_own_keys(part, own) for part in others]  # a document found both ways is one document
    lists = {**merged.lists, **{name: ranking for part in others for name, ranking in part.pool.lists.items()}}

    def fetch(keys: Sequence[Any], places: Sequence[Place]) -> list[Hit | None]:
        place_of = dict(zip(keys, places, strict=True))
        return _each(
            keys,
            own,
            others,
            lambda part, some: part.fetch(some, ()),
            lambda some: _best_version(others)(some, [place_of[key] for key in some]),
        )

    def ids(keys: Sequence[Any]) -> list[HitKey | None]:
        return _each(keys, own, others, lambda part, some: part.ids(some), _first_known(others))

    def scorer(source: str) -> Callable[[HitKey], float | None]:
        def score(key: HitKey) -> float | None:
            asked = own.values() if key[0] is None else [own[key[0]]] if key[0] in own else []
            known = [part.score[source](key) for part in asked if source in part.score]
            return max((one for one in known if one is not None), default=None)

        return score

    def complete(keys: Sequence[Any]) -> Mapping[str, Mapping[Any, float]]:
        scores: dict[str, dict[Any, float]] = {}
        for name, part in own.items():
            mine = [key[1] for key in keys if _is_of(key, name)]
            for source, known in part.complete(mine).items():
                scores.setdefault(source, {}).update(((name, key), score) for key, score in known.items())
        return scores

    scorers = {name: scorer(name) for name in merged.lists}
    return Found(Pool(lists, merged.scores), fetch, ids, scorers, complete, degraded=degraded)


def _on_own_keys(part: Found, own: Mapping[str, Found]) -> Found:
    """What a retriever found, by the datasets' own keys where it found documents of theirs."""
    renamed: dict[Any, Any] = {}
    for name, dataset in own.items():
        mine = [key[1] for ranking in part.pool.lists.values() for key, _ in ranking
                if isinstance(key, tuple) and key[0] == name and isinstance(key[1], str)]  # fmt: skip
        renamed.update(((name, id_), (name, key)) for id_, key in dataset.keys(mine).items())
    if not renamed:
        return part
    lists = {
        source: [(renamed.get(key, key), score) for key, score in ranking]
        for source, ranking in part.pool.lists.items()
    }
    return replace(part, pool=Pool(lists, part.pool.scores))


def with_variants(own: Found | None, variants: Mapping[str, tuple[Ranking[Any], Found]]) -> Found:
    """What was found for a query together with the rankings of its variants, each a list of its own.

    The query's own lists score what only a variant has found, so that every candidate has both raw scores.
    """
    everywhere = [*([own] if own else []), *(found for _, found in variants.values())]
    keys = dict.fromkeys(key for ranking, _ in variants.values() for key, _ in ranking)
    whole = completed(own, list(keys)) if own else None
    lists = {**(whole.pool.lists if whole else {}), **{label: ranking for label, (ranking, _) in variants.items()}}

    def fetch(keys: Sequence[Any], _: Sequence[Place] = ()) -> list[Hit | None]:
        answers: dict[Any, Hit | None] = {}
        for found in everywhere:
            ways = provenance(found.pool, [key for key in keys if answers.get(key) is None])
            mine = [key for key, way in ways.items() if way]
            answers.update(zip(mine, found.fetch(mine, [_best_place(ways[key]) for key in mine]), strict=True))
        return [answers.get(key) for key in keys]

    pool: Pool[Any] = Pool(lists, whole.pool.scores if whole else {})
    scorers, complete = (own.score, own.complete) if own else ({}, _nothing)
    return Found(pool, fetch, _first_known(everywhere), scorers, complete, shared=everywhere[0].shared)


def completed(found: Found, keys: Sequence[Any]) -> Found:
    """The same with raw scores for these keys as well, as far as its lists can score them."""
    known = found.pool.scores
    new = [key for key in keys if any(key not in scores for scores in known.values())]
    if not new:
        return found
    added = found.complete(new)
    scores = {source: {**added.get(source, {}), **scores} for source, scores in known.items()}
    return replace(found, pool=Pool(found.pool.lists, scores))


def _nothing(_: Sequence[Any]) -> Mapping[str, Mapping[Any, float]]:
    return {}


def _is_of(key: Any, owner: str) -> bool:
    """Whether a key is one of a dataset's own; a retriever's key is an id, or a dataset's name and an id."""
    return isinstance(key, tuple) and key[0] == owner and not isinstance(key[1], str)


def _each(
    keys: Sequence[Any],
    own: Mapping[str, Found],
    others: Sequence[Found],
    ask: Callable[[Found, Sequence[Any]], Sequence[Any]],
    ask_others: Callable[[Sequence[Any]], Sequence[Any]],
) -> list[Any]:
    """Ask each branch for its own keys, all at once, and put the answers into the order of ``keys``."""
    answers: dict[Any, Any] = {}
    for name, part in own.items():
        mine = [key for key in keys if _is_of(key, name)]
        answers.update(zip(mine, ask(part, [key for _, key in mine]), strict=True))
    if others:
        rest = [key for key in keys if key not in answers]
        answers.update(zip(rest, ask_others(rest), strict=True))
    return [answers.get(key) for key in keys]


def _best_version(parts: Sequence[Found]) -> Callable[[Sequence[Any], Sequence[Place]], list[Hit | None]]:
    by_list = {name: part for part in parts for name in part.pool.lists}

    def fetch(keys: Sequence[Any], places: Sequence[Place]) -> list[Hit | None]:
        return [by_list[place[0]].fetch((key,), (place,))[0] for key, place in zip(keys, places, strict=True)]

    return fetch


def _first_known(parts: Sequence[Found]) -> Callable[[Sequence[Any]], list[HitKey | None]]:
    def ids(keys: Sequence[Any]) -> list[HitKey | None]:
        answers = [part.ids(keys) for part in parts]
        return [next((found for found in row if found is not None), None) for row in zip(*answers, strict=True)]

    return ids


def hits_of(found: Found, fused: Fused[Any], count: int) -> list[Hit]:
    """The first hits of a fused ranking with their way there: rank, raw and normalised score in every list.

    A document that is gone by now is left out.
    """
    chosen = fused.ranking[:count]
    keys = [key for key, _ in chosen]
    ways = provenance(found.pool, keys, fused.part)
    several = len(found.pool.lists) > 1
    made = []
    versions = found.fetch(keys, [_best_place(ways[key]) for key in keys])
    for rank, ((key, score), hit) in enumerate(zip(chosen, versions, strict=True), 1):
        if hit is None:
            continue
        way = ways[key]
        if several:
            way.append(Provenance("fuse", rank, score))
        if hit.provenance:  # a retriever made of others told more
            known = {step.source for step in way}
            way = [*(step for step in hit.provenance if step.source not in known), *way]
        made.append(Hit(hit.document, score, hit.dataset, tuple(way), hit.excerpt))
    return made


def _best_place(ways: Sequence[Provenance]) -> Place:
    """The best rank; where two lists have the same, the higher score."""
    best, at, high = "", 0, 0.0
    for source, rank, score, _ in ways:
        if rank and (not at or rank < at or (rank == at and score is not None and score > high)):
            best, at, high = source, rank, -math.inf if score is None else score
    return best, at


def provenance(pool: Pool[Any], keys: Sequence[Any], part: Part[Any] | None = None) -> dict[Any, list[Provenance]]:
    """Rank, raw and normalised score of these keys in each list; rank None where only another list had found one."""
    ways: dict[Any, list[Provenance]] = {key: [] for key in keys}
    for source, ranking in pool.lists.items():
        left = set(ways)
        for rank, (key, score) in enumerate(ranking, 1):
            if key in left:
                left.discard(key)
                ways[key].append(Provenance(source, rank, score, part(source, key, rank) if part else None))
                if not left:
                    break
        scores = pool.scores.get(source)
        if scores:
            for key in keys:
                if key in left and not math.isnan(score := scores.get(key, math.nan)):
                    ways[key].append(Provenance(source, None, score, part(source, key, None) if part else None))
    return ways


async def ask(
    branches: Sequence[Branch],
    query: Query,
    depth: int,
    mode: Mode,
    journal: Journal,
    *,
    breaker: Breaker,
    budget: float | None = None,
    first: Collection[str] = (),
) -> dict[str, Found]:
    """Search all branches at once; those that fail, or are late, are noted and the others answer (R3, F3).

    Args:
        branches: at least one, with different names.
        query: what to look for.
        depth: candidates a list.
        mode: how to wait.
        journal: takes a span for each branch, and what failed.
        breaker: leaves out what keeps failing, unless that is everything there is.
        budget: seconds for all of them.
        first: names of the branches that search for the query itself; all of them unless given.

    Returns:
        What was found by those that answered, by name; at least one.

    Raises:
        RetrievalError: all failed; it carries each one's error.
        InputError: the only one there is cannot do what is asked.
    """
    first = first or {branch.name for branch in branches}
    left_out = {branch.name: why for branch in branches if (why := breaker.why_not(branch.name)) is not None}
    asked = [branch for branch in branches if branch.name not in left_out]
    if not any(branch.name in first for branch in asked):
        asked = list(branches)  # else only variants would be searched, or nothing
    started = journal.now()
    told: set[str] = set()
    calls = _heard([branch.look(query, depth) for branch in asked], asked, journal, told)
    outcomes = await mode.all(calls, budget)
    found: dict[str, Found] = {}
    failed: dict[str, Exception] = {}
    for branch, outcome in zip(asked, outcomes, strict=True):
        name, error = branch.name, outcome.error
        if not isinstance(error, TimeoutError) or budget is None or budget >= _PATIENCE:
            breaker.record(name, error)  # who gives it no time cannot say that it fails
        if outcome.answer is not None:
            found[name] = outcome.answer
            journal.degrade(*outcome.answer.degraded)
        else:
            failed[name] = error or RuntimeError("it gave no answer")
            cause = describe(failed[name])
            journal.degrade(f"{name}: {cause}")
            log.warning("branch %s failed: %s", name, cause)
        span = _span(name, outcome.answer, failed.get(name), outcome.milliseconds, started)
        journal.spans.append(span)
        if name not in told:  # it is late, and has not come back
            journal.tell(span)
    if not found:
        only = next(iter(failed.values()))
        if len(failed) == 1 and isinstance(only, InputError):
            raise only  # not the search has failed: it was asked for what cannot be
        raise RetrievalError("every branch of the search failed", failed)
    if len(asked) < len(branches):
        for name, why in left_out.items():
            journal.add(Span("retrieve", name, 0.0, None, why, started))
            journal.degrade(f"{name}: {why}")
    return found


def _heard(
    calls: Sequence[Call[Found]], branches: Sequence[Branch], journal: Journal, told: set[str]
) -> Sequence[Call[Found]]:
    """The calls; where somebody listens, they tell when they end, and ``told`` takes the names of those that did."""
    if not journal.is_heard:
        return calls
    started = journal.now()

    def ended(name: str, answer: Found | None, error: Exception | None) -> None:
        told.add(name)
        journal.tell(_span(name, answer, error, journal.now() - started, started))

    return [heard(call, partial(ended, branch.name)) for call, branch in zip(calls, branches, strict=True)]


def _span(name: str, answer: Found | None, error: Exception | None, milliseconds: float, started: float) -> Span:
    """What a branch has found, or why it has not."""
    if answer is None:
        return Span("retrieve", name, milliseconds, None, None if error is None else describe(error), started)
    lists = answer.pool.lists
    found = ", ".join(f"{len(ranking)} by {source}" for source, ranking in lists.items())
    detail = f"{name}: {found or 'nothing'}" if list(lists) != [name] else name
    return Span("retrieve", detail, milliseconds, len(answer.pool), "; ".join(answer.degraded) or None, started)
