"""The suite for retrievers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

from pointsman.evaluation.conformance.suite_samples import QUERY, TwinConformance, answering, refused, sound_hits
from pointsman.tools.sync_and_async import wait_for
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.values.filters import Filter
    from pointsman.values.protocols import Retriever


class RetrieverConformance(TwinConformance):
    """For anything that finds documents: ``retrieve(query, top_k=10) -> list[Hit]`` and ``aretrieve``.

    Promised: a list of at most ``top_k`` hits with finite scores, best first, no document twice; the same for a string
    and a `Query`, sync and async, from any thread; invalid arguments raise an `InputError`.
    """

    def make(self) -> Retriever:
        """Return an instance of your implementation, with documents to find."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a retriever")

    def answerable_query(self) -> str:
        """Return a query for which yours finds at least two documents."""
        return QUERY

    def filters(self) -> Sequence[Filter]:
        """Return filters met by some but not all documents found for `answerable_query`; empty: not tested."""
        return ()

    def query(self) -> str:
        """See `answerable_query`."""
        return self.answerable_query()

    def _ask(self, subject: Any, text: str) -> Any:
        return subject.retrieve(text, 5)

    async def _aask(self, subject: Any, text: str) -> Any:
        return await subject.aretrieve(text, 5)

    def _view(self, answer: Any) -> Any:
        return [(hit.key, hit.score) for hit in answer]

    def _sound(self, subject: Any, answer: Any, text: str) -> None:  # noqa: ARG002  (used by subclasses)
        sound_hits(answer, 5, f"retrieve({text!r:.60}, 5)")

    def test_finds_something(self) -> None:
        """At least two documents for `answerable_query`; otherwise the other tests would prove nothing."""
        with answering("asking the answerable query"):
            hits = self.make().retrieve(self.answerable_query(), 5)
        assert len(hits) >= 2, (
            f"{len(hits)} hits for {self.answerable_query()!r}; override answerable_query() with a query that has some"
        )

    def test_at_most_top_k(self) -> None:
        """Never more than requested; ten by default."""
        subject, text = self.make(), self.answerable_query()
        with answering("asking for different numbers of hits"):
            for top_k in (1, 2, 3, 100):
                sound_hits(subject.retrieve(text, top_k), top_k, f"retrieve(…, {top_k})")
            sound_hits(subject.retrieve(text), 10, "retrieve(…)")
            sound_hits(subject.retrieve(text, top_k=1), 1, "retrieve(…, top_k=1)")

    def test_text_and_query_find_the_same(self) -> None:
        """A plain string is a `Query` without filters and history."""
        subject, text = self.make(), self.answerable_query()
        with answering("asking with a Query"):
            self._agree(subject.retrieve(text, 5), subject.retrieve(Query(text), 5), "the text and the Query")

    def test_the_query_is_left_as_it_is(self) -> None:
        """Branches share one `Query` object."""
        query, filters = Query(self.answerable_query()), self.filters()
        if filters:
            query = replace(query, filters=filters[0])
        original = (query.text, query.filters, query.history)
        with answering("asking with a Query"):
            self.make().retrieve(query, 5)
        assert (query.text, query.filters, query.history) == original, (
            f"retrieve changed the query it was given: {query}"
        )

    def test_the_answer_is_the_callers(self) -> None:
        """Emptying a returned list does not change the next answer."""
        subject, text = self.make(), self.answerable_query()
        with answering("asking twice"):
            first = subject.retrieve(text, 5)
            copy = list(first)
            first.clear()
            self._agree(copy, subject.retrieve(text, 5), "before and after the caller emptied the list, calls")

    def test_a_bad_top_k_is_refused(self) -> None:
        """A number of hits is an int of at least 1."""
        subject, text = self.make(), self.answerable_query()
        for top_k in (0, -1, 1.5, "3", None):
            refused(f"retrieve(…, {top_k!r})", lambda k=top_k: subject.retrieve(text, k))  # type: ignore[misc]
            refused(f"aretrieve(…, {top_k!r})", lambda k=top_k: wait_for(subject.aretrieve, text, k))  # type: ignore[misc]

    def test_a_query_that_is_no_text_is_refused(self) -> None:
        """Such as None, a number, or bytes."""
        subject: Any = self.make()
        for query in (None, 7, b"rail"):
            refused(f"retrieve({query!r})", lambda query=query: subject.retrieve(query, 5))  # type: ignore[misc]

    def test_filters_are_honoured(self) -> None:
        """No document outside a filter is found; the negation of each filter is tested as well."""
        subject, text = self.make(), self.answerable_query()
        for condition in self._both_ways():
            with answering(f"asking with the filter {condition}"):
                hits = subject.retrieve(Query(text, condition), 100)
            sound_hits(hits, 100, f"a search with the filter {condition}")
            violations = [hit.id for hit in hits if not condition.matches(hit.document.fields)]
            assert not violations, f"the filter {condition} does not let {violations[:5]} through, and they were found"

    def test_filters_act_before_the_cut(self) -> None:
        """A matching document is found even if only one hit is requested."""
        subject, text = self.make(), self.answerable_query()
        both_ways = self._both_ways()
        with answering("asking without a filter"):
            all_hits = subject.retrieve(text, 100)
        for condition in both_ways:
            matching = [hit.id for hit in all_hits if condition.matches(hit.document.fields)]
            assert matching, (
                f"nothing found for {text!r} meets {condition}; give filters() that some meet and others do not"
            )
            with answering(f"asking for one hit with the filter {condition}"):
                hits = subject.retrieve(Query(text, condition), 1)
            assert hits, (
                f"one hit with the filter {condition} was asked for, {matching[:3]} meet it, and none was found"
            )

    def _both_ways(self) -> list[Filter]:
        if not (filters := self.filters()):
            raise SkipTest("filters() gives none; override it if this retriever honours filters")
        return [form for condition in filters for form in (condition, ~condition)]
