"""The suite for workspaces."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pointsman.evaluation.conformance.suite_samples import (
    DOCUMENTS,
    FILTERS,
    ODD_TEXTS,
    OTHER,
    TwinConformance,
    answering,
    is_name,
    refused,
    sound_hits,
)
from pointsman.tools.errors import FilterError, UnknownNameError
from pointsman.tools.sync_and_async import wait_for
from pointsman.values.retrieval_context import RetrievalContext
from pointsman.values.types import AddResult, Document, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class WorkspaceConformance(TwinConformance):
    """For anything that behaves like a `pointsman.Workspace`: on another store, or as a client of a service.

    Promised: answers are `RetrievalContext` objects whose hits have a true provenance, and which explain any document;
    the same for a string and a `Query`, sync and async, alone or among many, from any thread; documents are returned as
    added; what is not possible raises a Pointsman error that says so.
    """

    def make(self) -> Any:
        """Return an instance of yours, with a dataset named `filled` that contains exactly `DOCUMENTS`."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a workspace")

    def filled(self) -> str:
        """Return the name of the existing dataset."""
        return "filled"

    def scratch(self) -> str:
        """Return the name of a dataset that does not exist, and may be created and dropped."""
        return "scratch"

    def _ask(self, subject: Any, text: str) -> Any:
        return subject.search(text, 5, datasets=self.filled(), refuse=False)

    async def _aask(self, subject: Any, text: str) -> Any:
        return await subject.asearch(text, 5, datasets=self.filled(), refuse=False)

    def _view(self, answer: Any) -> Any:
        return [(hit.key, hit.score, hit.provenance) for hit in answer.hits], answer.plan, answer.degraded

    def _sound(self, subject: Any, answer: Any, text: str) -> None:
        call = f"search({text!r:.60}, 5)"
        assert isinstance(answer, RetrievalContext), f"{call} gave a {type(answer).__name__}, not a RetrievalContext"
        self._sound_hits(answer, 5, call)
        assert answer.plan.datasets == (self.filled(),), f"{call} says that it looked in {answer.plan.datasets}"
        assert is_name(answer.plan.strategy), f"{call} says nothing of its strategy"
        assert answer.trace.spans, f"{call} tells no stage"
        others = [note for note in answer.degraded if "syntax='plain' searches for the question as written" not in note]
        assert not others, f"{call} is degraded: {others}"  # a condition in its words that nothing meets is told
        assert answer.refused is None, f"{call} was not to be refused, and was: {answer.refused}"

    def _sound_hits(self, answer: Any, top_k: int, call: str) -> None:
        sound_hits(list(answer.hits), top_k, call)
        originals = {document.id: document for document in DOCUMENTS}
        for hit in answer.hits:
            assert hit.dataset == self.filled(), f"{call}: hit {hit.id!r} says that it is of dataset {hit.dataset!r}"
            assert hit.document == originals.get(hit.id), f"{call}: hit {hit.id!r} is not the document that was added"
            assert hit.provenance, f"{call}: hit {hit.id!r} does not say how it was found"

    # ── searching ────────────────────────────────────────────────────────────────────────────────────────────────

    def test_at_most_k(self) -> None:
        """Never more than requested, five by default, and all of them if there are fewer."""
        subject, text, dataset = self.make(), self.query(), self.filled()
        with answering("asking for different numbers of hits"):
            for k in (1, 3, 100):
                self._sound_hits(subject.search(text, k, datasets=dataset, refuse=False), k, f"search(…, {k})")
            five = subject.search(text, datasets=[dataset], refuse=False)
        assert len(five) == 5, f"{len(five)} hits where nobody said how many"

    def test_text_and_query_find_the_same(self) -> None:
        """A plain string is a `Query` without filters and history."""
        subject, text = self.make(), self.query()
        with answering("asking with a Query"):
            answer = subject.search(Query(text), 5, datasets=self.filled(), refuse=False)
            self._agree(self._ask(subject, text), answer, "the text and the Query")

    def test_filters_are_honoured(self) -> None:
        """No document outside a filter is found, whether it is given as an object, an expression, or in the query."""
        subject, text = self.make(), self.query()
        options = {"datasets": self.filled(), "refuse": False}
        for condition in FILTERS:
            matching_ids = {document.id for document in DOCUMENTS if condition.matches(document.fields)}
            with answering(f"asking with the filter {condition}"):
                answer = subject.search(text, 100, filters=condition, **options)
                self._agree(
                    answer, subject.search(text, 100, filters=str(condition), **options), "a filter and its text"
                )
                answer_to_query = subject.search(Query(text, condition), 100, **options)
                self._agree(answer, answer_to_query, "a filter beside the query and within it")
            assert {hit.id for hit in answer} <= matching_ids, (
                f"the filter {condition} does not let through all of {answer.hits}"
            )
            assert len(answer) > 0 or not matching_ids, (
                f"the filter {condition} lets {matching_ids} through, and nothing was found"
            )
            assert answer_to_query.query.filters == condition, (
                f"the answer says that the filter was {answer_to_query.query.filters}"
            )

    def test_a_filter_that_cannot_be_read_is_told(self) -> None:
        """It raises a `FilterError`."""
        subject = self.make()
        for filters in ("year >", {"year": {"about": 2000}}):
            with answering(f"the filter {filters!r}", FilterError):
                subject.search(self.query(), filters=filters)
                raise AssertionError(f"the filter {filters!r} means nothing, and was taken")

    def test_what_cannot_be_asked_is_refused(self) -> None:
        """A number of hits is at least 1, a question is a text, and the effort exists."""
        subject, text = self.make(), self.query()
        for k in (0, -1, 1.5, "3"):
            refused(f"search(…, {k!r})", lambda k=k: subject.search(text, k))  # type: ignore[misc]
        for query in (None, 7, b"rail"):
            refused(f"search({query!r})", lambda query=query: subject.search(query))  # type: ignore[misc]
        refused("effort='all'", lambda: subject.search(text, effort="all"))
        refused("search_many(text)", lambda: subject.search_many(text))

    def test_unknown_names_are_told(self) -> None:
        """They raise an `UnknownNameError` with the name."""
        subject, name = self.make(), self.scratch()
        calls: Mapping[str, Callable[[], object]] = {
            "search": lambda: subject.search(self.query(), datasets=[self.filled(), name]),
            "dataset": lambda: subject.dataset(name, create=False),
            "status": lambda: subject.status(name),
            "drop": lambda: subject.drop(name),
        }
        for method, call in calls.items():
            self._raises_unknown(method, "dataset", name, call)
        self._raises_unknown("search", "strategy", "no-such", lambda: subject.search(self.query(), strategy="no-such"))

    def _raises_unknown(self, method: str, kind: str, name: str, call: Callable[[], object]) -> None:
        try:
            answer = call()
        except UnknownNameError as error:
            complaint = (error.kind, error.name)
            assert complaint == (kind, name), (
                f"{method} complains of {complaint}, and what is unknown is the {kind} {name!r}"
            )
            return
        except Exception as error:
            raise AssertionError(f"{method} with the unknown {kind} {name!r} raised {type(error).__name__}") from error
        raise AssertionError(f"{method} with the unknown {kind} {name!r} gave {answer!r:.100}")

    def test_many_questions_as_one_by_one(self) -> None:
        """One answer per question, in order; also with different filters; sync and async; none for no questions."""
        subject, options = self.make(), {"datasets": self.filled(), "refuse": False}
        narrow = Query(self.query(), FILTERS[0])
        queries = [self.query(), narrow, OTHER, self.query()]
        with answering("asking many questions"):
            single = [self._ids(subject.search(query, 3, **options)) for query in queries]
            batch = subject.search_many(queries, 3, **options)
            async_batch = wait_for(lambda: subject.asearch_many(queries, 3, **options))
            empty = subject.search_many([], 3, **options)
        for answers in (batch, async_batch):
            assert [self._ids(answer) for answer in answers] == single, (
                f"alone {single}, together {[*map(self._ids, answers)]}"
            )
            assert answers[1].query.filters == FILTERS[0], "an answer does not say what its filter was"
        assert empty == [], f"no questions gave {empty!r:.100}"

    def _ids(self, context: Any) -> list[str]:
        return [hit.id for hit in context.hits]

    def test_every_document_is_explained(self) -> None:
        """Each hit at its rank with its provenance; a document that was not found, without a rank and with a reason."""
        subject = self.make()
        with answering("explaining"):
            context = subject.search(self.query(), 3, datasets=self.filled(), refuse=False)
            for rank, hit in enumerate(context.hits, 1):
                explanation = context.explain(hit.id, hit.dataset)
                assert (explanation.id, explanation.rank) == (hit.id, rank), (
                    f"{hit.id!r} is number {rank}, not {explanation.rank}"
                )
                assert any(step.stage == "retrieve" and step.rank for step in explanation.steps), (
                    f"nothing found {hit.id!r}"
                )
            other_ids = [document.id for document in DOCUMENTS if document.id not in self._ids(context)]
            for id_ in (other_ids[0], "nowhere"):
                explanation = context.explain(id_)
                assert explanation.rank is None, (
                    f"{id_!r} is not in the answer, and is said to be number {explanation.rank}"
                )
                assert is_name(explanation.summary), f"why {id_!r} is not in the answer is not told"
        refused("explain(7)", lambda: context.explain(7))

    def test_what_is_planned_is_done(self) -> None:
        """`plan` and `route` predict what a search does, and where."""
        subject, text = self.make(), self.query()
        with answering("plan, route and search"):
            dataset = subject.dataset(self.filled(), create=False)
            plan, asked_for = subject.plan([dataset]), subject.plan([dataset], "bm25")
            route = subject.route(text, [dataset])
            answer = self._ask(subject, text)
        assert plan.datasets == answer.plan.datasets, f"planned for {plan.datasets}, done in {answer.plan.datasets}"
        assert plan.strategy == answer.plan.strategy, f"planned as {plan.strategy}, done as {answer.plan.strategy}"
        assert asked_for.strategy == "bm25", f"asked for bm25, and {asked_for.strategy} is planned"
        assert route.plan == plan, f"route plans {route.plan}, plan {plan}"
        assert [dataset.name for dataset in route.decision.datasets] == [self.filled()], (
            f"it leads to {route.decision!r:.200}"
        )
        assert route.heuristic["route"] in {"bm25", "dense", "hybrid"}, f"by its look: {route.heuristic}"

    def test_a_dataset_is_searched_alone(self) -> None:
        """Its own `search` gives the same result as a search restricted to it."""
        subject, text = self.make(), self.query()
        with answering("a dataset's own search"):
            dataset = subject.dataset(self.filled())
            answer = dataset.search(text, 5)
            async_answer = wait_for(lambda: dataset.asearch(text, 5))
        self._sound_hits(answer, 5, "a dataset's own search")
        self._agree(answer, async_answer, "a dataset's own search and the awaited one")
        expected = subject.search(text, 5, datasets=self.filled())
        self._agree(answer, expected, "a dataset's own search and the workspace's")

    # ── storing ──────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _dataset(self, subject: Any, **options: Any) -> Iterator[Any]:
        """A dataset that exists within the block."""
        try:
            yield subject.dataset(self.scratch(), **options)
        finally:
            if self.scratch() in subject.names():
                subject.drop(self.scratch())

    def test_documents_are_kept(self) -> None:
        """Documents are returned as added, in order, until they are deleted."""
        subject, all_of_them = self.make(), list(DOCUMENTS)
        with answering("keeping documents"), self._dataset(subject) as dataset:
            assert (len(dataset), list(dataset), dataset.page(), bool(dataset)) == (0, [], ([], None), True), (
                "not empty"
            )
            result = dataset.add(iter(all_of_them))
            assert result == AddResult(added=10), f"adding 10 documents is {result}"
            assert list(dataset) == all_of_them, "they do not come back as they were added"
            assert dataset.ids() == [document.id for document in all_of_them], f"the ids are {dataset.ids()}"
            first, following = dataset.page(0, 4)
            second_page, end = dataset.page(following, 100)
            assert (first + second_page, end) == (all_of_them, None), "pages do not make up the whole"
            new_version = Document("en-1", "Changed.", {"source": "чертёж 7"})
            mapping = {"id": new_version.id, "text": new_version.text, "metadata": new_version.metadata}
            result = dataset.add([*all_of_them[1:], mapping])
            assert result == AddResult(updated=1, unchanged=9), f"changing one of them is {result}"
            assert dataset.get("en-1") == new_version, f"it was changed, and is {dataset.get('en-1')}"
            assert dataset.ids(source="чертёж 7") == ["en-1"], f"of that source are {dataset.ids(source='чертёж 7')}"
            assert (dataset.delete("en-1"), dataset.delete(["en-2", "none"]), dataset.delete([])) == (1, 1, 0), (
                "delete does not say how many there were"
            )
            assert (len(dataset), "en-1" in dataset, "en-3" in dataset, dataset.get("en-1")) == (
                8,
                False,
                True,
                None,
            ), "what was deleted is still there"
            ids = {hit.id for hit in subject.search(self.query(), 100, datasets=self.scratch(), refuse=False)}
            assert not ids & {"en-1", "en-2"}, f"what was deleted is found: {ids}"
            assert dataset.verify().problems == (), f"the stores do not agree: {dataset.verify()}"

    def test_metadata_is_changed_alone(self) -> None:
        """Keys are set and removed, texts stay; if an id is unknown, nothing is changed."""
        subject, (first, second, *_) = self.make(), DOCUMENTS
        with answering("changing metadata"), self._dataset(subject, indexing_technique="keyword") as dataset:
            dataset.add([first, second])
            result = dataset.set_metadata({first.id: {"year": 2, "new": ["信号"], "none": None}, second.id: {}})
            assert result == AddResult(updated=1, unchanged=1), f"changing one of two is {result}"
            expected = Document(first.id, first.text, {**first.metadata, "year": 2, "new": ["信号"]})
            assert dataset.get(first.id) == expected, f"it was changed to {dataset.get(first.id)!r:.300}"
            assert dataset.ids(filters={"new": "信号"}) == [first.id], "what was changed is not filtered by"
            dataset.set_metadata({first.id: {"n": 1}}, replace=True)
            expected = Document(first.id, first.text, {"n": 1})
            assert dataset.get(first.id) == expected, f"it was replaced by {dataset.get(first.id)!r:.300}"
            change = {second.id: {"n": 2}, "nobody's": {"n": 2}}
            refused("metadata of a document that is not there", lambda: dataset.set_metadata(change))
            assert dataset.get(second.id) == second, "one of them was changed although the other is not there"
            assert dataset.set_metadata({}) == AddResult(), "changing nothing is something"

    def test_odd_documents_come_back(self) -> None:
        """Each of `ODD_TEXTS`, with lone surrogates as U+FFFD; odd ids; metadata of every kind."""
        subject = self.make()
        texts = {f"{name} /?#&%+\u4fe1\u53f7": text for name, text in ODD_TEXTS.items()}
        metadata: dict[str, Any] = {"a": [1, 2.5, None, True, {"б": []}], "": "x" * 1000, "title": "信号"}
        with answering("odd documents"), self._dataset(subject, indexing_technique="keyword") as dataset:
            dataset.add(Document(id_, text, metadata) for id_, text in texts.items())
            for id_, text in texts.items():
                expected = Document(id_, text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), metadata)
                actual = dataset.get(id_)
                assert actual == expected, f"document {id_!r} came back as {actual!r:.200}"
            assert [document.id for document in dataset] == list(texts), "they have another order now"

    def test_bad_documents_are_refused(self) -> None:
        """And no document is added."""
        subject = self.make()
        bad: tuple[Any, ...] = (
            *({"id": "x"}, {"id": "", "text": "x"}, {"id": 7, "text": "x"}, {"id": "x", "text": None}, 7, "x"),
            *({"id": "x", "text": "x", "title": "x"}, {"id": "x", "text": "x", "metadata": {"a": {1}}}),
            *({"id": "x", "text": "x", "metadata": {"a": math.nan}}, {"id": "\ud800", "text": "x"}),
        )
        with answering("bad documents"), self._dataset(subject, indexing_technique="keyword") as dataset:
            for document in bad:
                refused(f"the document {document!r}", lambda document=document: dataset.add([DOCUMENTS[0], document]))  # type: ignore[misc]
            assert len(dataset) == 0, f"{list(dataset)} was added together with a bad document"

    def test_progress_is_told(self) -> None:
        """Progress is reported while documents are added, in numbers that sum to all; the iterable is read once."""
        subject, counts = self.make(), list[int]()
        documents = ({"id": str(number), "text": f"signal {number}"} for number in range(700))
        with answering("adding 700 documents"), self._dataset(subject, indexing_technique="keyword") as dataset:
            result = dataset.add(documents, on_progress=counts.append)
        assert result == AddResult(added=700), f"adding 700 documents is {result}"
        assert sum(counts) == 700, f"progress covered {sum(counts)} of 700 documents"
        assert len(counts) > 1, "progress was reported only once"

    def test_datasets_are_kept(self) -> None:
        """By name, with their descriptions, until they are dropped."""
        subject, name = self.make(), self.scratch()
        with answering("keeping datasets"):
            assert name not in subject.names(), f"{name!r} is there already"
            with self._dataset(subject, description="铁路", indexing_technique="keyword") as dataset:
                assert (dataset.name, dataset.description, dataset.indexing_technique) == (name, "铁路", "keyword"), (
                    "the dataset is not as it was made"
                )
                dataset.add([{"id": "first", "text": "rail"}])
                dataset.describe("о железных дорогах")
                reopened_dataset = subject.dataset(name)
                assert reopened_dataset.description == "о железных дорогах", (
                    f"it is described as {reopened_dataset.description!r}"
                )
                assert subject.dataset(name, description="rails").description == "rails", "its description stays"
                assert reopened_dataset.indexing_technique == "keyword", (
                    f"it is made for {reopened_dataset.indexing_technique!r} now"
                )
                refused("another technique", lambda: subject.dataset(name, indexing_technique="hybrid"))
                assert subject.names() == sorted({self.filled(), name, *subject.names()}), f"names: {subject.names()}"
                assert (
                    [dataset.name for dataset in subject.datasets()]
                    == [dataset.name for dataset in subject]
                    == subject.names()
                )
                subject.drop(name)
                assert name not in subject.names(), "it was dropped, and is still there"
            for bad in ("../x", "", "a  b", ".x", "x" * 65):
                refused(f"the name {bad!r}", lambda bad=bad: subject.dataset(bad))  # type: ignore[misc]

    def test_status_tells(self) -> None:
        """The contents of a dataset."""
        subject = self.make()
        with answering("status"):
            status = subject.status(self.filled())
        facts = {name: status.get(name) for name in ("name", "documents")}
        assert facts == {"name": self.filled(), "documents": len(DOCUMENTS)}, f"the status is {status}"

    def test_closed_and_used_again(self) -> None:
        """Whoever uses a closed dataset is told; the workspace opens it again."""
        subject, text = self.make(), self.query()
        with answering("closing"):
            first_answer = self._ask(subject, text)
            dataset = subject.dataset(self.filled())
            dataset.close()
        refused("a search of a closed dataset", lambda: dataset.search(text))
        with answering("opening again"):
            with (dataset := subject.dataset(self.filled())) as context_value:
                assert context_value is dataset, "'with … as' gives another one"
            self._agree(first_answer, self._ask(subject, text), "before and after its dataset was closed, calls")
