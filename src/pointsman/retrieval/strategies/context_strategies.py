"""Strategies that change how much of a hit is returned: less of it, or its surroundings too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pointsman.embedders.named_embedders import as_embedder
from pointsman.retrieval.refine.base_refiner import BaseRefiner, refining
from pointsman.retrieval.refine.budget import Budget, spending
from pointsman.retrieval.refine.compress import ExtractiveCompressor, LLMCompressor, ParentExpander, WindowExpander
from pointsman.retrieval.run.source import Source
from pointsman.retrieval.strategies.base_strategy import BaseRetrievalStrategy
from pointsman.tools.errors import InputError
from pointsman.tools.parallel_calls import Mode, sync_and_async
from pointsman.values.argument_checks import check_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pointsman.retrieval.refine.compress.expand import PassageStore, Stores, _Group, _PassageLookup
    from pointsman.values.protocols import Embedder
    from pointsman.values.types import Hit, HitKey, Query, Ranked

FACTOR = 3
"""Hits fetched per hit of the answer."""


class Wider(BaseRefiner):
    """Runs a refiner on more hits than the answer will have; the workflow cuts at the end.

    Args:
        refiner: the refiner to run.
        factor: hits fetched per hit of the answer.
        budget: what the refiner may spend on a model if no budget is active.
    """

    def __init__(self, refiner: BaseRefiner, factor: int = FACTOR, budget: Budget | None = None) -> None:
        self.refiner, self.factor, self.budget = refiner, factor, budget or Budget()
        self.stage, self.timeout, self.in_place = refiner.stage, refiner.timeout, refiner.in_place

    def depth(self, top_k: int, scale: str) -> int:
        """The depth that the refiner needs for the larger answer."""
        return max(self.factor * top_k, self.refiner.depth(self.factor * top_k, scale))

    async def _refine(self, mode: Mode, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        """See `BaseRefiner`."""
        with spending(self.budget):
            return await mode.one(refining(self.refiner, query, ranking, self.factor * top_k))

    refine, arefine = sync_and_async(_refine)


class OfExcerpts(BaseRefiner):
    """Shows a reranker the compressed hits instead of the whole documents."""

    def __init__(self, refiner: BaseRefiner) -> None:
        """Choose the reranker."""
        self.refiner = refiner
        self.stage, self.timeout, self.in_place = refiner.stage, refiner.timeout, refiner.in_place

    def depth(self, top_k: int, scale: str) -> int:
        """The depth that the reranker needs."""
        return self.refiner.depth(top_k, scale)

    async def _refine(self, mode: Mode, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        """See `BaseRefiner`."""
        excerpts = (replace(hit, document=replace(hit.document, text=hit.text), excerpt=None) for hit in ranking.hits)
        refined_ranking = await mode.one(refining(self.refiner, query, replace(ranking, hits=tuple(excerpts)), top_k))
        return _restore_texts(refined_ranking, ranking)

    refine, arefine = sync_and_async(_refine)


def _restore_texts(refined_ranking: Ranked, ranking: Ranked) -> Ranked:
    by_key = {hit.key: hit for hit in ranking.hits}
    hits = (
        replace(hit, document=by_key[hit.key].document, excerpt=by_key[hit.key].excerpt) if hit.key in by_key else hit
        for hit in refined_ranking.hits
    )
    return replace(refined_ranking, hits=tuple(hits))


class ContextualCompressionStrategy(BaseRetrievalStrategy):
    """Fetches three times as many hits, compresses them, reranks the compressed texts, and cuts.

    In the end all texts of the answer together have at most ``max_length`` characters: each third of the hits first
    gets that much, and the hits that remain are cut to it. A hit without bearing on the query may be dropped.
    """

    name: ClassVar[str] = "compression"

    def __init__(
        self,
        *sources: Any,
        llm: Any = None,
        max_length: int = 1000,
        embedder: Embedder | str | None = None,
        mode: Literal["extract", "summary"] = "extract",
        use_llm: bool = True,
        **options: Any,
    ) -> None:
        """Choose sources and length; see `BaseRetrievalStrategy`.

        Args:
            sources: what is searched.
            llm: compresses; by default the sentences most relevant to the query are kept.
            max_length: characters of all texts of an answer together.
            embedder: helps to find those sentences; by default they are found by words alone.
            mode: of `LLMCompressor`.
            use_llm: whether ``llm``, if there is one, compresses.
            options: of `BaseRetrievalStrategy`; the ``reranker`` sees the compressed texts.

        Raises:
            InputError: an option is invalid.
        """
        self.max_length = check_count(max_length, "max_length")
        self._embedder, self._mode = None if embedder is None else as_embedder(embedder), mode
        super().__init__(*sources, llm=llm if use_llm else None, **options)

    def refiners(self) -> Sequence[BaseRefiner]:
        """Compress many hits, rerank them, and compress the answer to its length."""
        last = ExtractiveCompressor(self._embedder, max_chars=self.max_length)
        first: BaseRefiner = ExtractiveCompressor(self._embedder, max_chars=FACTOR * self.max_length)
        if self.llm is not None:
            max_chars = FACTOR * self.max_length
            first = LLMCompressor(
                self.llm, self._mode, max_chars=max_chars, fallback=last, retries=0, call_timeout=None
            )
        rerankers = [] if self.reranker is None else [OfExcerpts(self.reranker)]
        return [Wider(first, budget=self.budget), *rerankers, last]


class AutoMerger(ParentExpander):
    """Replaces children by their parent if enough of them were found; otherwise they stay.

    Args:
        fetch: the datasets that hits come from, by name.
        parent_key: the metadata key that holds the parent's id.
        least: the minimum number of children found.
        share: the minimum share of the parent's passages found, if their number is known.
    """

    def __init__(self, fetch: Stores, parent_key: str = "parent", *, least: int = 2, share: float = 0.5) -> None:
        super().__init__(fetch, parent_key)
        if not 0 <= share <= 1:
            raise InputError(f"share is from 0 to 1, not {share!r:.80}")
        self.least, self.share = check_count(least, "least"), share

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        """See `ParentExpander`; a parent that was itself found appears once."""
        result = super().refine(query, ranking, top_k)
        first: dict[HitKey, Hit] = {}
        for hit in result.hits:
            first.setdefault(hit.key, hit)
        return replace(result, hits=tuple(first.values()))

    def _groups(self, hits: Sequence[Hit], lookup: _PassageLookup) -> list[_Group]:
        groups = []
        for group in super()._groups(hits, lookup):
            count, best = len(group.members), hits[group.members[0]]
            passage_count = lookup.safely(best, lambda best=best: self._passages(best, lookup)) or 0  # type: ignore[misc]
            if count >= self.least and count >= self.share * passage_count:
                groups.append(group)
            else:
                lookup.note("whose parent has too few of its passages found")
        return groups

    def _passages(self, hit: Hit, lookup: _PassageLookup) -> int:
        """The number of passages of the hit's parent; 0 if unknown."""
        return len(lookup.source(hit).of_parent(hit.metadata[self.parent_key], self.parent_key))


class ParentChildStrategy(BaseRetrievalStrategy):
    """Searches small passages and returns their parent if enough of them are found, or the passages around them.

    The metadata of passages says where they belong, as ``pointsman index`` writes it: ``parent``, or ``source`` and
    ``position``; see `pointsman.retrieval.refine.compress.ParentExpander` and `WindowExpander`. Other hits stay
    unchanged.
    """

    name: ClassVar[str] = "parent_child"

    @classmethod
    def lacks_of(cls, sources: Sequence[Any]) -> str | None:
        """See `BaseRetrievalStrategy`; parents and neighbours are read from datasets."""
        if sources and not any(isinstance(source, Source) for source in sources):
            return "it reads parents from datasets, and no source is one; put the documents into a Dataset"
        return None

    def __init__(
        self,
        *sources: Any,
        parent_key: str = "parent",
        least: int = 2,
        share: float = 0.5,
        sentence_window: int | None = None,
        **options: Any,
    ) -> None:
        """Choose sources and the context returned with a hit; see `BaseRetrievalStrategy`.

        Args:
            sources: what is searched; at least one dataset, from which parents and neighbours are read.
            parent_key: the metadata key that holds the parent's id.
            least: the minimum number of children found before their parent replaces them; 1: always the parent.
            share: the minimum share of the parent's passages found, 0 to 1, if their number is known.
            sentence_window: passages before and after a hit, instead of its parent; None: parents.
            options: of `BaseRetrievalStrategy`.

        Raises:
            InputError: no source is a dataset, or an option is invalid.
        """
        stores: Mapping[str | None, PassageStore] = {
            source.name: source for source in sources if isinstance(source, Source)
        }
        if sources and not stores:
            raise InputError("ParentChildStrategy reads parents from datasets; give it at least one dataset")
        if sentence_window is not None:
            check_count(sentence_window, "sentence_window")
            self._expander: BaseRefiner = WindowExpander(stores, sentence_window, sentence_window)
        else:
            self._expander = Wider(AutoMerger(stores, parent_key, least=least, share=share))
        super().__init__(*sources, **options)

    def refiners(self) -> Sequence[BaseRefiner]:
        """The expander."""
        return [self._expander]
