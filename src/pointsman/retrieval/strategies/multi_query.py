"""Rule-based rewordings of the query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Lookup, Transformed
from pointsman.retrieval.plan.transform.expand_by_rules import KINDS, RuleExpander
from pointsman.retrieval.plan.vocabulary import Vocabulary
from pointsman.retrieval.run.source import Source
from pointsman.retrieval.strategies.base_strategy import BaseRetrievalStrategy
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pointsman.retrieval.plan.transform.expand_by_rules import Thesaurus
    from pointsman.text.spelling import Speller
    from pointsman.values.types import Query

VARIANTS = ("original", *KINDS)
"""All kinds of variants; the original is always searched."""

WEIGHTS: Mapping[str, float] = {"synonym": 0.25, "paraphrase": 0.25, "correction": 0.5}
"""The weight of a variant; the query has 1. A correction says what was meant, the others repeat it."""


class CorpusExpander(BaseTransformer):
    """A `RuleExpander` whose spelling corrector knows the words that the datasets hold at the time of the query.

    Args:
        vocabulary: the words.
        options: of `RuleExpander`.
    """

    def __init__(self, vocabulary: Vocabulary, **options: Any) -> None:
        self.vocabulary, self._options = vocabulary, options
        self._rules = RuleExpander(**options)

    def over(self, lookup: Lookup) -> CorpusExpander:
        """Return a copy that corrects with the words of the routed datasets."""
        datasets = [source for source in lookup.sources if isinstance(source, Source)]
        return CorpusExpander(Vocabulary(datasets), **self._options)

    def transform(self, query: str | Query) -> Transformed:
        """See `RuleExpander`; without corrections, and marked, if the words cannot be read."""
        try:
            speller = self.vocabulary.speller()
        except Exception as error:  # noqa: BLE001  (reported in the answer: reading a store can fail in many ways)
            result = self._rules.transform(query)
            message = f"no corrections, the datasets' words cannot be read: {type(error).__name__}: {error}"
            return Transformed(result.query, result.variants, result.detail, (*result.degraded, message))
        if speller is not self._rules.speller:
            self._rules = RuleExpander(speller=speller, **self._options)
        return self._rules.transform(query)


class MultiQueryStrategy(BaseRetrievalStrategy):
    """Also searches variants of the query made by rules: synonyms, paraphrases, corrections.

    Corrections use the words that the datasets themselves contain (en, ru), counted at the first search and after
    changes. Synonyms come from a thesaurus; by default, from a built-in list of everyday words in en, zh and ru.
    """

    name: ClassVar[str] = "multi_query"
    variants_by_rank: ClassVar[bool] = True

    def __init__(
        self,
        *sources: Any,
        variants: Sequence[str] = VARIANTS,
        thesaurus: Thesaurus | str | Path | None = None,
        speller: Speller | None = None,
        weights: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        """Choose sources and variants; see `BaseRetrievalStrategy` and `RuleExpander`.

        Args:
            sources: what is searched.
            variants: at least one of ``"original"`` (always searched, named or not), ``"synonym"``, ``"paraphrase"``,
                ``"correction"``.
            thesaurus: synonyms by term, or a file of them; the built-in one by default; ``{}`` for none.
            speller: corrects spelling; by default one that knows the datasets' words.
            weights: by kind of variant; replaces the defaults.
            options: of `BaseRetrievalStrategy`.

        Raises:
            InputError: a kind of variant is unknown, none is given, or an option is invalid.
        """
        if isinstance(variants, str) or not variants or not set(variants) <= set(VARIANTS):
            raise InputError(f"variants are at least one of {', '.join(VARIANTS)}, not {variants!r:.200}")
        self.variants = tuple(dict.fromkeys(variants))
        self._rules = {
            # The correction first: an identical variant of another kind would take its place, with less weight.
            "variants": sorted(set(self.variants) - {"original"}),
            "thesaurus": thesaurus,
            "weights": {**WEIGHTS, **(weights or {})},
        }
        self._speller = speller
        super().__init__(*sources, **options)

    def transformer(self) -> BaseTransformer:
        """Rules, with the given speller or one that knows the datasets' words."""
        datasets = [source for source in self.sources if isinstance(source, Source)]
        if self._speller is not None or "correction" not in self.variants or not datasets:
            return RuleExpander(speller=self._speller, **self._rules)  # type: ignore[arg-type]  # checked there
        return CorpusExpander(Vocabulary(datasets), **self._rules)
