"""The suite for transformers of queries, which only the project's own tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointsman.evaluation.conformance.suite_samples import FILTERS, ODD_TEXTS, TwinConformance, answering
from pointsman.retrieval.plan.transform.base_transformer import Transformed, same
from pointsman.values.argument_checks import is_number
from pointsman.values.types import Query

if TYPE_CHECKING:
    from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer


class TransformerConformance(TwinConformance):
    """For subclasses of `BaseTransformer`, which rewrite queries and add variants.

    Promised: the query keeps its filters; variants have their own text and finite weights from 0 up; the input query is
    not modified; failures are reported in ``degraded`` instead of raised.
    """

    def make(self) -> BaseTransformer:
        """Return an instance of your implementation."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a transformer")

    def _ask(self, subject: Any, text: str) -> Any:
        return subject.transform(text)

    async def _aask(self, subject: Any, text: str) -> Any:
        return await subject.atransform(text)

    def _view(self, answer: Any) -> Any:
        return answer.query, answer.variants

    def _sound(self, subject: Any, answer: Any, text: str) -> None:
        assert isinstance(answer, Transformed), f"transform returns a Transformed, not {type(answer).__name__}"
        assert isinstance(answer.query, Query), f"what to search for is a Query, not {type(answer.query).__name__}"
        assert answer.query.text.strip() or not text.strip(), f"nothing is left of the query {text!r:.80}"
        distinct_texts = {same(answer.query.text)}
        for variant in answer.variants:
            assert variant.text.strip(), f"a variant without a text: {variant}"
            assert same(variant.text) not in distinct_texts, (
                f"a variant that repeats the query or another one: {variant!r:.200}"
            )
            assert is_number(variant.weight), f"a weight is a finite number: {variant!r:.200}"
            assert variant.weight >= 0, f"a weight is not below 0: {variant!r:.200}"
            distinct_texts.add(same(variant.text))

    def test_filters_are_kept(self) -> None:
        """A rewritten query searches the same documents as the original."""
        query = Query(self.query(), FILTERS[0])
        original = (query.text, query.filters, query.history)
        with answering("transforming a query with a filter"):
            answer = self.make().transform(query)
        assert answer.query.filters == FILTERS[0], f"the filter {FILTERS[0]} became {answer.query.filters}"
        assert (query.text, query.filters, query.history) == original, f"transform changed its query: {query}"

    def test_odd_texts_raise_nothing(self) -> None:
        """No query, however odd, makes the search fail."""
        subject = self.make()
        for name, text in ODD_TEXTS.items():
            with answering(f"transforming the odd text {name!r}"):
                self._sound(subject, subject.transform(text), text)
