"""The questions of a calibration, labelled or made from documents, each with its hits and which are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.fusion import KAPPA
from pointsman.retrieval.judge.kept_calibrations import MOST_HITS, Calibration, Coverage, Reranking
from pointsman.retrieval.judge.languages import script_of
from pointsman.retrieval.judge.relevance import FIRST, Candidates, Evidence, Form, Relevance, unrelated_questions
from pointsman.retrieval.request import SearchRequest
from pointsman.retrieval.run.branches import Question, SourceBranch
from pointsman.retrieval.run.candidates import StoreResults
from pointsman.retrieval.run.judging import evidence_of
from pointsman.retrieval.run.reading import Reading
from pointsman.store.bm25 import idf
from pointsman.text import DEFAULT_ANALYZER, sentences
from pointsman.values.types import Document, Hit, Query
from pointsman.workspace.calibration.fitting import Labelled
from pointsman.workspace.calibration.reranking import (
    Judged,
    first_hits,
    labelled_questions,
    measured_reranking,
    without_models,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.retrieval.engine import Engine
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.workspace.dataset import Dataset


Halves = Sequence[Sequence[Relevance]]
Grades = Mapping[str, Mapping[str, int]]

MADE: Final = 300
"""The maximum number of questions made from documents."""


_BATCH: Final = 64  # texts embedded at once


_DEPTH: Final = 100


_SAMPLE: Final = 1000  # documents from which the rarity of words is estimated


_SHORTEST: Final = 40  # characters that must remain of a document


_LONGEST: Final = 200  # characters of a question; longer sentences are cut


_WORDS: Final = 4  # terms that a question must have


_FORMS: Final[Mapping[Form, tuple[Form, ...]]] = {
    "both": ("both", "vector", "words"),
    "vector": ("vector",),
    "words": ("words",),
}


Progress = Callable[[int, int, str], None]
"""Called with the number of questions done, the total, and the current activity."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedQuestion:
    """A question with its evidence.

    Attributes:
        evidence: the scores of all candidates.
        place: the position of each document among the candidates, by id.
        order: positions of the hits of an answer, best first; None: ordered by the evidence alone.
        relevant: positions of the answers.
        answered: whether the dataset has an answer.
        half: 0 or 1, alternating, so that each half can be judged by a fit to the other.
    """

    evidence: Evidence
    place: Mapping[str, int]
    order: tuple[int, ...] | None
    relevant: frozenset[int]
    answered: bool
    half: int = 0

    def row(self, form: Form) -> Labelled:
        """Return the question with only the scores of this form, and its first hits."""
        import numpy as np

        evidence = self.evidence
        if form == "words":
            evidence = replace(evidence, cosine=None)
        if form == "vector":
            evidence = replace(evidence, bm25=None, idf=None, matched=None)
        order = self.order
        if order is None or form != self.evidence.form:
            scores = Candidates(evidence, form).scores
            order = tuple(np.argsort(-scores, kind="stable")[:FIRST].tolist())
        if form == "words" and evidence.bm25 is not None:
            order = tuple(position for position in order if evidence.bm25[position] > 0)
        order = order[:FIRST]
        relevant = [position in self.relevant for position in order]
        return Labelled(evidence, order, relevant, self.answered, complete=True)


class Study:
    """Searches one dataset for the questions of a calibration."""

    def __init__(self, dataset: Dataset, told: Progress, most: int = MADE) -> None:
        self.dataset, self.told, self.most = dataset, told, most
        self.reranking: Reranking | None = None  # the answers are reranked by it if adopted
        self._vectors: dict[str, NDArray[np.float32]] = {}
        policy = dataset.engine.stages.policy
        self.absent_script = 0.0 if policy is None else policy.absent_script

    def labelled(self, queries: Mapping[str, str], qrels: Grades) -> list[AskedQuestion]:
        """Return the labelled questions, with the hits in the order of the answers."""
        rows: list[AskedQuestion] = []
        for fold, good, answer in self._answers(queries, qrels, ((), ()), {}):
            row = self.asked(answer.query.text, [hit.id for hit in _hits(answer)], good, answered=bool(good))
            if row is not None:
                rows.append(replace(row, half=fold))
        return rows

    def measured_reranking(self, queries: Mapping[str, str] | None, qrels: Grades) -> Reranking | None:
        """Measure the reranker of the settings on labelled questions, or on questions made from documents."""
        engine = without_models(self.dataset)
        if queries is not None:
            questions = labelled_questions(engine, self.dataset, queries, qrels)
            return measured_reranking(engine, questions, "labelled questions")
        return measured_reranking(engine, self._made_rankings(engine), "questions made from the documents")

    def _made_rankings(self, engine: Engine) -> Iterator[Judged]:
        """Yield questions made from documents, with hits; the source document ranks without the question's text."""
        for document, text, remaining_document in _taken_out(self.dataset, self.most):
            query, hits = first_hits(engine, self.dataset, text)
            if any(hit.id == document.id for hit in hits):
                hits_without = [
                    self._hit_without(hit, text, document, remaining_document) if hit.id == document.id else hit
                    for hit in hits
                ]
                yield Judged(query, tuple(sorted(hits_without, key=lambda hit: -hit.score)), {document.id: 1})

    def _hit_without(self, hit: Hit, question: str, document: Document, remaining_document: Document) -> Hit:
        """Return the hit of the document without the question, with its new score."""
        lists = {step.source: step for step in hit.provenance}
        words, cosines = lists.get("bm25"), lists.get("vector")
        share = self._share_of_words(question, document, remaining_document)
        cosine = self._cosine(question, remaining_document) if cosines is not None else 0.0
        if words is None or cosines is None or words.score is None or cosines.score is None:
            score = hit.score * share if cosines is None else cosine
        else:
            spread = self.dataset.cosine_spread
            assert spread is not None, "there are vectors"
            chance = cosines.score - spread.mean
            slope = (cosines.normalised or 0.0) / chance if chance else KAPPA / spread.sigma
            score = hit.score - (1 - share) * (words.normalised or 0.0) - slope * (cosines.score - cosine)
        return replace(hit, document=remaining_document, score=score)

    def _prepare(self, questions: Sequence[str], texts: Sequence[str]) -> None:
        """Embed questions, and texts for `_cosine`, in batches: an embedder behind an API is asked seldom."""
        if self.dataset.store.info.embedder is None:
            return
        for start in range(0, len(questions), _BATCH):
            batch = slice(start, start + _BATCH)
            self.dataset.query_vectors.prepare(questions[batch])
            vectors = self.dataset.embedder.embed_documents(texts[batch])
            self._vectors.update(zip(texts[batch], vectors, strict=True))
            self.told(min(batch.stop, len(questions)), len(questions), "embedding")

    def _cosine(self, question: str, document: Document) -> float:
        text = document.searchable
        if text not in self._vectors:
            self._vectors[text] = self.dataset.embedder.embed_documents([text])[0]
        vector = self._reading.vector_of(question)
        assert vector is not None, "there are vectors"
        return float(self._vectors[text] @ vector)

    @cached_property
    def _reading(self) -> Reading:
        reading = Reading(self.dataset)
        reading.read()  # without it, questions would keep their language, which the search may have taken out
        return reading

    def coverage(
        self, queries: Mapping[str, str], qrels: Grades, halves: Halves, minimums: Mapping[Form, float]
    ) -> Coverage | None:
        """Measure how many hits hold an answer, refusing as from then on; returns None if a hit has no relevance."""
        pairs: list[tuple[list[float], int | None]] = []
        for _, good, answer in self._answers(queries, qrels, halves, minimums):
            if not good:
                continue
            chances = [hit.relevance for hit in answer.hits if hit.relevance is not None]
            if len(chances) < len(answer.hits):
                return None
            pairs.append(
                (chances, next((position for position, hit in enumerate(answer.hits) if hit.id in good), None))
            )
        method = self._engine((), minimums).resolve(self._request(""), [self.dataset]).way
        return Coverage.measured(pairs, method)

    def _answers(
        self, queries: Mapping[str, str], qrels: Grades, halves: Halves, minimums: Mapping[Form, float]
    ) -> Iterator[tuple[int, frozenset[str], RetrievalContext]]:
        """Yield the half of each labelled question, its relevant ids, and the answer judged by the half's calibrations.

        Questions whose relevant documents are all outside the dataset are skipped.
        """
        engines = [self._engine(relevances, minimums) for relevances in halves]
        grades_by_query = {query: grades for query, grades in qrels.items() if query in queries}
        present = self.dataset.store.keys(sorted({name for grades in grades_by_query.values() for name in grades}))
        for number, (query, grades) in enumerate(grades_by_query.items(), 1):
            good = frozenset(name for name, grade in grades.items() if grade > 0)
            if not good or any(name in present for name in good):
                fold = number % 2
                yield fold, good, engines[fold].search(self._request(queries[query]), [self.dataset])
            self.told(number, len(grades_by_query), "searching")

    def _engine(self, relevances: Sequence[Relevance], minimums: Mapping[Form, float]) -> Engine:
        """Return the dataset's engine with only these fitted calibrations and minimums."""
        engine = self.dataset.engine
        calibrations = {self.dataset.name: Calibration("", tuple(relevances), None, self.reranking, minimums)}
        return replace(engine, stages=replace(engine.stages, fitted=calibrations))

    def _request(self, text: str) -> SearchRequest:
        return SearchRequest.of(text, MOST_HITS)

    def unanswered(self) -> list[AskedQuestion]:
        """Return the questions on any subject, which count as unanswered."""
        texts = [text for questions in unrelated_questions().values() for text in questions]
        if self.dataset.store.info.embedder is not None:
            self.dataset.query_vectors.prepare(texts)
        rows = [row for text in texts if (row := self.asked(text, None, frozenset(), answered=False)) is not None]
        return [replace(row, half=number % 2) for number, row in enumerate(rows)]

    def made(self) -> list[AskedQuestion]:
        """Return questions made from documents; each is taken out of its document."""
        rows: list[AskedQuestion] = []
        drawn_passages = list(_taken_out(self.dataset, self.most))
        self._prepare(
            [question for _, question, _ in drawn_passages],
            [remaining_document.searchable for _, _, remaining_document in drawn_passages],
        )
        for number, (document, question, remaining_document) in enumerate(drawn_passages, 1):
            row = self.asked(question, None, {document.id}, answered=True)
            if (
                row is not None
                and (row_without := self._without(row, document, question, remaining_document)) is not None
            ):
                rows.append(row_without)
            self.told(number, len(drawn_passages), "asking")
        return rows

    def asked(
        self, text: str, ids: Sequence[str] | None, good: frozenset[str] | set[str], *, answered: bool
    ) -> AskedQuestion | None:
        """Return a question with its evidence; None if it has no word, or the results have no usable scores."""
        terms = len(set(DEFAULT_ANALYZER.query_tokens(text)))
        reading = Reading(self.dataset)
        reading.measure()
        branch = SourceBranch(reading, reading.source.lists_for("auto"), self.absent_script)
        results = branch.search([Question(Query(text))], _DEPTH)[0] if terms else None
        if not isinstance(results, StoreResults):
            return None
        keys = [key for ranking in results.pool.lists.values() for key, _ in ranking]
        evidence, positions_by_key = evidence_of(results, results, dict.fromkeys(keys), script_of(text), terms)
        if evidence.form is None or not positions_by_key:
            return None
        documents = results.fetch_documents(list(positions_by_key))
        by_id = {
            document.id: positions_by_key[key]
            for key, document in zip(positions_by_key, documents, strict=True)
            if document is not None
        }
        order = None if ids is None else tuple(by_id[name] for name in ids if name in by_id)
        relevant = frozenset(by_id[name] for name in good if name in by_id)
        return AskedQuestion(evidence, by_id, order, relevant, answered)

    def _without(
        self, row: AskedQuestion, document: Document, question: str, remaining_document: Document
    ) -> AskedQuestion | None:
        """Return the question scored against the rest of its document; None if even the whole document is not first."""
        import numpy as np

        evidence, own_position = row.evidence, row.place.get(document.id)
        form = evidence.form
        if own_position is None or form is None or int(np.argmax(Candidates(evidence, form).scores)) != own_position:
            return None
        bm25, cosine = evidence.bm25, evidence.cosine
        if bm25 is not None:
            bm25 = bm25.copy()
            bm25[own_position] *= self._share_of_words(question, document, remaining_document)
        if cosine is not None:
            cosine = cosine.copy()
            cosine[own_position] = self._cosine(question, remaining_document)
        return replace(row, evidence=replace(evidence, bm25=bm25, cosine=cosine))

    def _share_of_words(self, question: str, document: Document, remaining_document: Document) -> float:
        """Return the rest's BM25 as a share of the document's; sample estimates of word rarity nearly cancel out."""
        terms = DEFAULT_ANALYZER.query_tokens(question)
        full_score = self._bm25(terms, document)
        return min(self._bm25(terms, remaining_document) / full_score, 1.0) if full_score else 1.0

    def _bm25(self, terms: Sequence[str], document: Document) -> float:
        holding, length, count = self._words
        tokens = Counter(DEFAULT_ANALYZER.tokens(document.searchable))
        norm = 1.2 * (0.25 + 0.75 * tokens.total() / length)
        return sum(idf(count, holding[term]) * tokens[term] / (tokens[term] + norm) for term in terms)

    @cached_property
    def _words(self) -> tuple[Counter[str], float, int]:
        """By word, the number of sampled documents with it; their mean length in tokens; and the sample's size."""
        documents = self.dataset.store.sample(_SAMPLE)
        tokens = [DEFAULT_ANALYZER.tokens(document.searchable) for document in documents]
        holding = Counter(token for document_tokens in tokens for token in set(document_tokens))
        return holding, max(sum(map(len, tokens)) / max(len(tokens), 1), 1.0), len(tokens)


def _hits(answer: RetrievalContext) -> Sequence[Hit]:
    """Return the hits, or the near misses of a refused answer."""
    return answer.refused.near_misses if answer.refused else answer.hits


def _taken_out(dataset: Dataset, limit: int) -> Iterator[tuple[Document, str, Document]]:
    """Yield documents with a question taken out of each, and the rest: titles, first and other sentences in turn."""
    kinds = cycle(("title", "first", "other"))
    for document in dataset.store.sample(limit):
        kind, text = next(kinds), document.text
        if kind == "title" and document.title:
            bare = {name: value for name, value in document.metadata.items() if name != "title"}
            start, end, remaining_document = 0, 0, Document(document.id, text, bare)
            question = document.title
        else:
            bounds = sentences(text)
            if len(bounds) < 2:
                continue
            start, end = bounds[0 if kind == "first" else len(bounds) // 2]
            question = text[start:end].strip()[:_LONGEST]
            remaining_document = Document(document.id, text[:start] + text[end:], document.metadata)
        if len(remaining_document.text) >= _SHORTEST and len(DEFAULT_ANALYZER.query_tokens(question)) >= _WORDS:
            yield document, question, remaining_document
