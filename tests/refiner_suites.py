"""The suites for refiners and rerankers."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pointsman.evaluation.conformance.suite_samples import (
    DOCUMENTS,
    ODD_TEXTS,
    OTHER,
    SHORT,
    TwinConformance,
    answering,
    is_name,
    refused,
)
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.tools.errors import ModelError, PointsmanError
from pointsman.tools.sync_and_async import wait_for
from pointsman.values.argument_checks import is_number
from pointsman.values.types import Document, Hit, Provenance, Query, Ranked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pointsman.retrieval.refine.rerank.base_reranker import BaseReranker


class RefinerConformance(TwinConformance):
    """For subclasses of `BaseRefiner`, which turn one ranking into another.

    Promised: only hits from the input, without repeats; missing ones are in ``dropped`` with the reason; a refusal has
    no hits; the input is not modified; sync and async, from any thread.
    """

    def make(self) -> BaseRefiner:
        """Return an instance of your implementation."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a refiner")

    def first_ranking(self) -> Ranked:
        """Return the ranking to refine: both raw scores of ten documents, added up."""
        hits = [
            Hit(
                document,
                30.0 - rank,
                "rails",
                (Provenance("bm25", rank, 10.0 - rank / 2), Provenance("vector", rank, 0.9 - rank / 50)),
            )
            for rank, document in enumerate(DOCUMENTS, 1)
        ]
        return Ranked(tuple(hits), "calibrated")

    def _ask(self, subject: Any, text: str) -> Any:
        return subject.refine(Query(text), self.first_ranking(), 5)

    async def _aask(self, subject: Any, text: str) -> Any:
        return await subject.arefine(Query(text), self.first_ranking(), 5)

    def _view(self, answer: Any) -> Any:
        hits = [(hit.key, hit.score, hit.text) for hit in answer.hits]
        return hits, answer.scale, sorted(answer.dropped, key=str), answer.refused is None

    def _sound(self, subject: Any, answer: Any, text: str) -> None:
        self._sound_ranking(answer, self.first_ranking())

    def _sound_ranking(self, answer: Any, ranking: Ranked) -> None:
        assert isinstance(answer, Ranked), f"refine returns a Ranked, not {type(answer).__name__}"
        assert isinstance(answer.hits, tuple), f"the hits of a Ranked are a tuple, not {type(answer.hits).__name__}"
        assert all(isinstance(hit, Hit) for hit in answer.hits), f"a ranking holds hits, not {answer.hits!r:.200}"
        assert is_name(answer.scale), f"a ranking's scale is a name, not {answer.scale!r}"
        bad = [(hit.id, hit.score) for hit in answer.hits if not is_number(hit.score)]
        assert not bad, f"scores are finite floats, these are not: {bad[:5]}"
        keys, originals = [hit.key for hit in answer.hits], {hit.key for hit in ranking.hits}
        assert set(keys) <= originals, f"hits nobody gave it: {sorted(set(keys) - originals, key=str)[:5]}"
        assert len(set(keys)) == len(keys), f"hits more than once: {keys}"
        untold = originals - set(keys) - answer.dropped.keys()
        assert not untold, f"hits that are gone without a reason in dropped: {sorted(untold, key=str)[:5]}"
        overlap = set(keys) & answer.dropped.keys()
        assert not overlap, f"hits that are there and in dropped as well: {sorted(overlap, key=str)[:5]}"
        assert all(isinstance(reason, str) and reason for reason in answer.dropped.values()), (
            f"the reasons in dropped are words: {dict(answer.dropped)!r:.200}"
        )
        assert answer.refused is None or not answer.hits, "a ranking that is refused has no hits"

    def test_what_came_in_is_left_as_it_was(self) -> None:
        """A stage returns new values and never modifies its input."""
        ranking, query = deepcopy(self.first_ranking()), Query(self.query())
        original = deepcopy(ranking)
        with answering("refine"):
            self.make().refine(query, ranking, 5)
        assert ranking == original, "refine changed the ranking it was given, or a document in it"
        assert query == Query(self.query()), f"refine changed the query it was given: {query}"

    def test_an_empty_ranking(self) -> None:
        """Nothing in, nothing out; it may be marked as a refusal."""
        empty = Ranked((), "none")
        with answering("refining an empty ranking"):
            subject = self.make()
            for answer in (
                subject.refine(Query(self.query()), empty, 5),
                wait_for(subject.arefine, Query(self.query()), empty, 5),
            ):
                self._sound_ranking(answer, empty)

    def test_odd_documents(self) -> None:
        """Texts of documents may be as odd as queries."""
        documents = [Document(f"odd {number}", text) for number, text in enumerate(ODD_TEXTS.values())]
        provenance = (Provenance("bm25", 1, 1.0), Provenance("vector", 1, 0.5))
        ranking = Ranked(tuple(Hit(document, 1.0, "rails", provenance) for document in documents), "calibrated")
        with answering("refining odd documents", PointsmanError):
            self._sound_ranking(self.make().refine(Query(self.query()), ranking, len(documents)), ranking)

    def test_stage_and_depth(self) -> None:
        """It has a name for traces, and requests at least as many hits as the answer will have."""
        subject = self.make()
        assert isinstance(subject, BaseRefiner), f"a refiner subclasses BaseRefiner, {type(subject).__name__} does not"
        assert is_name(subject.stage), f"stage is a name, not {subject.stage!r}"
        for top_k in (1, 5, 50):
            depth = subject.depth(top_k, "calibrated")
            assert isinstance(depth, int), f"depth({top_k}, …) is an int, not {depth!r}"
            assert depth >= top_k, f"depth({top_k}, …) is {depth}: the answer could not have {top_k} hits"


class RerankerConformance(RefinerConformance):
    """For subclasses of `BaseReranker`, which score texts for a query.

    Promised beyond `RefinerConformance`: ``rerank`` returns the documents themselves, best first, ties in the order
    given, each with its score in ``metadata["score"]``; ``refine`` keeps every hit, and if scoring fails or hangs, the
    order stays and ``degraded`` says why. To simulate failure the suite temporarily replaces the ``score`` and
    ``ascore`` of your object.
    """

    def make(self) -> BaseReranker:
        """Return an instance of your implementation."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a reranker")

    def documents(self) -> Sequence[Document]:
        """Return the documents to rerank: at least three, with different texts."""
        return DOCUMENTS

    def first_ranking(self) -> Ranked:
        """Return the documents as hits of a retriever with its own scores."""
        hits = [
            Hit(document, 1 / rank, None, (Provenance("foreign", rank, 1 / rank),))
            for rank, document in enumerate(self.documents(), 1)
        ]
        return Ranked(tuple(hits), "rrf")

    def _sound_ranking(self, answer: Any, ranking: Ranked) -> None:
        super()._sound_ranking(answer, ranking)
        missing = [hit.id for hit in ranking.hits if hit.key not in {refined_hit.key for refined_hit in answer.hits}]
        assert not missing, f"a reranker keeps every hit, these are gone: {missing[:5]}"
        scores = [hit.score for hit in answer.hits]
        assert scores == sorted(scores, reverse=True), f"hits come best first, these scores rise: {scores[:10]}"

    def _rerank(self, subject: Any, count: int | None = None) -> Any:
        return subject.rerank(self.query(), self.documents(), count)

    def test_rerank_gives_back_the_documents(self) -> None:
        """All of them, without repeats, unchanged except for the score."""
        originals = {document.id: document for document in self.documents()}
        with answering("rerank"):
            answer = self._rerank(self.make())
        assert isinstance(answer, list), f"rerank returns a list, not {type(answer).__name__}"
        assert sorted(document.id for document in answer) == sorted(originals), "top_n=None gives every document once"
        for document in answer:
            metadata = {**originals[document.id].metadata, "score": document.metadata.get("score")}
            assert document == replace(originals[document.id], metadata=metadata), (
                f"{document.id!r} is not as it was given"
            )

    def test_scores_stand_in_the_metadata(self) -> None:
        """Finite floats, best first."""
        with answering("rerank"):
            scores = [document.metadata.get("score") for document in self._rerank(self.make())]
        assert all(is_number(score) for score in scores), f'metadata["score"] is a finite float: {scores[:5]}'
        assert scores == sorted(scores, reverse=True), f"documents come best first, these scores rise: {scores[:10]}"

    def test_top_n_cuts_and_no_more(self) -> None:
        """The first of the whole ranking; four by default."""
        subject = self.make()
        with answering("rerank"):
            order = [document.id for document in self._rerank(subject)]
            for count in (1, 2, len(order), 100):
                top = [document.id for document in self._rerank(subject, count)]
                assert top == order[:count], f"top_n={count} gives {top}, and the first of all are {order[:count]}"
            usual = [document.id for document in subject.rerank(self.query(), self.documents())]
        assert usual == order[:4], f"without top_n there are {usual}, and the first four of all are {order[:4]}"

    def test_documents_are_left_as_they_were(self) -> None:
        """The score goes on a copy."""
        documents = [deepcopy(document) for document in self.documents()]
        original = deepcopy(documents)
        with answering("rerank"):
            self.make().rerank(self.query(), documents, None)
        assert documents == original, "rerank changed the documents it was given, or their list"

    def test_equal_documents_stay_in_order(self) -> None:
        """Equally relevant documents stay in the order given."""
        text = self.documents()[0].text
        documents = [Document(str(number), text) for number in (3, 1, 4, 2, 5)]
        with answering("reranking documents of one text"):
            answer = self.make().rerank(self.query(), documents, None)
        numbers = [int(document.id) for document in answer]
        by_score: dict[Any, list[int]] = {}
        for document in answer:
            by_score.setdefault(document.metadata["score"], []).append(int(document.id))
        for score, ids in by_score.items():
            expected = [number for number in (3, 1, 4, 2, 5) if number in ids]
            assert ids == expected, f"documents of the same score ({score}) are out of order: {numbers}"

    def test_rerank_awaited_and_with_a_query(self) -> None:
        """The result is the same for every form of the call."""
        subject, text, documents = self.make(), self.query(), self.documents()
        with answering("rerank and arerank"):
            answers_by_method = {
                "rerank": subject.rerank(text, documents, 3),
                "rerank with a Query": subject.rerank(Query(text), documents, 3),
                "arerank": wait_for(subject.arerank, text, documents, 3),
            }
        answers = {
            form: [(document.id, document.metadata["score"]) for document in answer]
            for form, answer in answers_by_method.items()
        }
        if self.deterministic:
            assert len(set(map(str, answers.values()))) == 1, f"different answers: {answers}"

    def test_no_documents(self) -> None:
        """Nothing in, nothing out."""
        with answering("reranking no documents"):
            subject = self.make()
            assert subject.rerank(self.query(), []) == [] == wait_for(subject.arerank, self.query(), [])

    def test_a_bad_top_n_is_refused(self) -> None:
        """A number of documents is an int of at least 1, or None."""
        subject: Any = self.make()
        for count in (0, -1, 1.5, "2"):
            refused(f"rerank(…, top_n={count!r})", lambda n=count: self._rerank(subject, n))  # type: ignore[misc]

    def test_what_is_no_document_is_refused(self) -> None:
        """A plain text has no id by which to recognise it."""
        subject: Any = self.make()
        refused("reranking plain texts", lambda: subject.rerank(self.query(), ["a text", "another"]))

    def test_a_name_that_stays(self) -> None:
        """Scores are cached and distinguished by it."""
        subject = self.make()
        original = subject.name
        with answering("rerank"):
            self._rerank(subject)
        assert is_name(original), f"name is a name, not {original!r}"
        assert subject.name == original, f"name was {original!r} and is {subject.name!r} now"

    def test_refine_keeps_hits_beyond_its_budget(self) -> None:
        """Hits beyond ``max_candidates`` follow behind the scored ones."""
        subject, ranking = self.make(), self.first_ranking()
        with answering("refine with max_candidates=2"), changed_attributes(subject, max_candidates=2):
            self._sound_ranking(subject.refine(Query("a budget of two"), ranking, 5), ranking)

    def test_several_rankings_as_one_by_one(self) -> None:
        """`refine_many` gives the same results as `refine`."""
        subject, full_ranking = self.make(), self.first_ranking()
        queries = [Query(self.query()), Query(OTHER), Query(self.query())]
        rankings = [full_ranking, Ranked((), "none"), replace(full_ranking, hits=full_ranking.hits[:3])]
        with answering("refine_many"):
            batch = subject.refine_many(queries, rankings, 5)
            single = [subject.refine(query, ranking, 5) for query, ranking in zip(queries, rankings, strict=True)]
        assert len(batch) == len(single), f"{len(batch)} rankings for {len(single)}"
        for first, second in zip(batch, single, strict=True):
            self._agree(first, second, "refine_many and refine")

    def test_a_failure_leaves_the_order_and_is_told(self) -> None:
        """`refine` passes the ranking on with the reason in ``degraded``; `rerank` raises a `ModelError`."""
        subject, ranking = self.make(), self.first_ranking()
        query = Query("asked while the model fails")

        def fail(*_: Any) -> Any:
            raise LookupError("the model is gone")

        async def afail(*_: Any) -> Any:
            raise LookupError("the model is gone")

        with changed_attributes(subject, score=fail, ascore=afail):
            with answering("refine with a model that fails"):
                for method, answer in (
                    ("refine", subject.refine(query, ranking, 5)),
                    ("arefine", wait_for(subject.arefine, query, ranking, 5)),
                ):
                    self._stands(method, answer, ranking)
            try:
                subject.rerank(query, self.documents())
            except ModelError:
                pass
            except Exception as error:
                raise AssertionError(f"a failing model is a ModelError, not {type(error).__name__}: {error}") from error
            else:
                raise AssertionError("rerank with a model that fails gave an answer; it raises a ModelError")

    def test_one_that_hangs_is_not_waited_for(self) -> None:
        """After ``timeout`` seconds the order stays, and ``degraded`` says so."""
        subject, ranking, release = self.make(), self.first_ranking(), threading.Event()

        def hang(*_: Any) -> Any:
            release.wait(SHORT)
            raise LookupError("nobody waits for this")

        async def ahang(*_: Any) -> Any:
            await asyncio.sleep(SHORT)
            raise LookupError("nobody waits for this")

        start = time.monotonic()
        try:
            with (
                answering("refine with a model that hangs"),
                changed_attributes(subject, score=hang, ascore=ahang, timeout=0.2),
            ):
                self._stands("refine", subject.refine(Query("asked while it hangs"), ranking, 5), ranking)
        finally:
            release.set()
        seconds = time.monotonic() - start
        assert seconds < SHORT / 2, f"refine waited {seconds:.0f} s for a model that hangs, with a timeout of 0.2 s"

    def _stands(self, method: str, answer: Ranked, ranking: Ranked) -> None:
        assert isinstance(answer, Ranked), f"{method} returns a Ranked, not {type(answer).__name__}"
        assert answer.degraded, f"{method} says in degraded that the model failed"
        assert [hit.key for hit in answer.hits] == [hit.key for hit in ranking.hits], (
            f"{method} leaves the order as it was"
        )
        assert answer.scale == ranking.scale, f"{method}: the scores are still {ranking.scale!r}, not {answer.scale!r}"


@contextmanager
def changed_attributes(subject: Any, **attributes: Any) -> Iterator[None]:
    """The object with other attributes for the block."""
    attributes_of_subject = vars(subject)
    old_values = {name: attributes_of_subject[name] for name in attributes if name in attributes_of_subject}
    attributes_of_subject.update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            attributes_of_subject.pop(name, None)
        attributes_of_subject.update(old_values)
