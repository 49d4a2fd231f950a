"""Calibrates a dataset: fits the relevance of its hits to its own embedder and labels; see docs/scores.md.

Labels give the best fit. Without them, questions are made from the documents: a title, the first sentence or another
sentence is taken out of a document, and the rest of the document is the answer. People ask different questions, so
these are used only if no calibration applies, as with an embedder other than the default one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.fusion import KAPPA
from pointsman.retrieval.judge.kept_calibrations import (
    MADE_UNASKED,
    MOST_HITS,
    REFUSED,
    Calibration,
    Coverage,
    Reranking,
    minimum_for,
)
from pointsman.retrieval.judge.languages import script_of
from pointsman.retrieval.judge.relevance import (
    FIRST,
    Candidates,
    Evidence,
    Form,
    Relevance,
    judge_by,
    shipped,
    unrelated_questions,
)
from pointsman.retrieval.request import SearchRequest
from pointsman.retrieval.run.branches import Question, SourceBranch
from pointsman.retrieval.run.candidates import StoreResults
from pointsman.retrieval.run.judging import evidence_of
from pointsman.retrieval.run.reading import Reading
from pointsman.text import DEFAULT_ANALYZER, sentences
from pointsman.tools.audit_log import without_record
from pointsman.tools.errors import InputError
from pointsman.values.types import Document, Hit, Query
from pointsman.workspace.calibration.fitting import Labelled, PreparedQuestion, fit_prepared, prepare, scale
from pointsman.workspace.calibration.reranking import (
    Judged,
    check_labels,
    first_hits,
    labelled_questions,
    measured_reranking,
    without_models,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.retrieval.engine import Engine
    from pointsman.values.types import RetrievalContext
    from pointsman.workspace.dataset import Dataset

FEWEST: Final = 20
"""The minimum number of answered questions for a fit."""

MADE: Final = 300
"""The maximum number of questions made from documents."""

BINS: Final = 10
"""The number of bins of equal count in the calibration error."""

_BATCH: Final = 64  # texts embedded at once
_FOLDS: Final = 5
_Z: Final = 1.645  # a gain counts if its one-sided 95 % interval lies above zero
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

Halves = Sequence[Sequence[Relevance]]
Grades = Mapping[str, Mapping[str, int]]

Progress = Callable[[int, int, str], None]
"""Called with the number of questions done, the total, and the current activity."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of fitting one form of evidence; every figure is from questions held out of the fit.

    Attributes:
        form: the scores used: both, vectors alone, or words alone.
        error: the calibration error of `Hit.relevance` as fitted: ECE over ten bins of equal count.
        before: the error of the current calibration; None if there is none.
        gain: reduction of log loss per hit against the current calibration, or against the share of relevant hits if
            there is none.
        lower: the lower end of the interval of the gain.
        adopted: whether the fit is better.
    """

    form: Form
    error: float
    before: float | None
    gain: float
    lower: float
    adopted: bool

    def __str__(self) -> str:
        former_loss = "nothing before" if self.before is None else f"{self.before:.3f} before"
        verdict = "adopted" if self.adopted else "not adopted: the improvement is not significant"
        return f"{self.form}: calibration error {self.error:.3f}, {former_loss}; {verdict}"


@dataclass(frozen=True, slots=True)
class Calibrating:
    """The result of calibrating a dataset.

    Attributes:
        calibration: the calibration to store; None if nothing is better than the current one.
        questions: the number of answered questions.
        fits: one for each form of evidence.
        reason: the result in words, with the figures.
        reranking: the measured gain of the reranker in the settings; None if they name none.
    """

    calibration: Calibration | None
    questions: int
    fits: tuple[Fit, ...]
    reason: str
    reranking: Reranking | None = None


@without_record()
def calibrate(
    dataset: Dataset,
    queries: Mapping[str, str] | None = None,
    qrels: Grades | None = None,
    *,
    unasked: bool = False,
    on_progress: Progress | None = None,
) -> Calibrating:
    """Fit the relevance of a dataset's hits to labelled questions, or to questions made from its documents.

    Two fits are tried: one shifts and scales the logits of the built-in calibration; the other, only with labels, fits
    all coefficients. The better one by cross-validation is adopted if both its log loss and its calibration error are
    lower than the current ones. Unanswered questions are those whose labels are all 0, and 120 on any subject. The
    reranker named in the settings is measured first, and adopted if it ranks these questions better. With forty labels
    or more, the probability below which searches are refused is fitted too: at most `REFUSED` of such questions are.

    Args:
        dataset: the dataset to calibrate.
        queries: texts by query id; None: questions are made from the documents.
        qrels: query id -> document id -> grade; above 0 is relevant.
        unasked: from at most `MADE_UNASKED` documents, without labels, and without measuring a reranker.
        on_progress: called with the number of questions done.

    Raises:
        InputError: there are fewer than twenty answered questions, or the labels are invalid.
    """
    if queries is not None or qrels is not None:
        check_labels(queries, qrels)
    study = _Study(dataset, on_progress or (lambda *_: None), MADE_UNASKED if unasked else MADE)
    has_labels = queries is not None
    reranking = None if unasked else study.measured_reranking(queries, qrels or {})
    study.reranking = reranking
    previous = _previous(dataset, reranking)
    notes = [] if reranking is None else [reranking.reason]
    if not has_labels and _is_calibrated(dataset):
        reason = "the built-in calibration was fitted to people's questions, which count for more than generated ones"
        reason = "; ".join([f"nothing was fitted: {reason}; give labels", *notes])
        return Calibrating(None if reranking is None else previous, 0, (), reason, reranking)
    if queries is None:
        rows = study.made()
        origin = f"{len(rows)} questions made from the documents"
    else:
        rows = study.labelled(queries, qrels or {})
        origin = f"{sum(row.answered for row in rows)} labelled questions"
    count = sum(row.answered for row in rows)
    if count < FEWEST:
        raise InputError(f"{origin} can be used in {dataset.name!r}; at least {FEWEST} are needed to calibrate")
    rows += study.unanswered()
    fits, relevances, halves = _fits(rows, labelled=has_labels)
    figures = [str(fit) for fit in fits]
    coverage, minimums = None, dict[Form, float]()
    if queries is not None and count >= 2 * FEWEST:
        minimums = _minimums(rows, halves)
        coverage = study.coverage(queries, qrels or {}, halves, minimums)
    if coverage is not None:
        figures.append(f"coverage of up to {coverage.most:.2f} can be promised")
    if minimums:
        minimums_text = ", ".join(f"{minimum:.2f} ({form})" for form, minimum in minimums.items())
        figures.append(f"refused below {minimums_text}, which at most {REFUSED:.0%} of such questions are")
    reason = f"{origin}; {'; '.join(figures + notes)}"
    origin = f"fitted to {origin} by pointsman calibrate" if relevances else f"unchanged after {origin}"
    calibration = None if reranking is None else previous
    if relevances or coverage or minimums:
        documents = 0 if has_labels else len(dataset)
        calibration = Calibration(origin, tuple(relevances), coverage, previous.reranking, minimums, documents)
    return Calibrating(calibration, count, tuple(fits), reason, reranking)


def _previous(dataset: Dataset, reranking: Reranking | None) -> Calibration:
    """Return the calibration in use, with a reranker's new measurement; an empty one's origin is left out."""
    previous = dataset.engine.stages.fitted.get(dataset.name, Calibration(""))
    if previous.is_empty:
        previous = Calibration("", reranking=previous.reranking)
    return previous if reranking is None else replace(previous, reranking=reranking)


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
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


class _Study:
    """Searches one dataset for the questions of a calibration."""

    def __init__(self, dataset: Dataset, told: Progress, most: int = MADE) -> None:
        self.dataset, self.told, self.most = dataset, told, most
        self.reranking: Reranking | None = None  # the answers are reranked by it if adopted
        self._vectors: dict[str, NDArray[np.float32]] = {}
        policy = dataset.engine.stages.policy
        self.absent_script = 0.0 if policy is None else policy.absent_script

    def labelled(self, queries: Mapping[str, str], qrels: Grades) -> list[_Asked]:
        """Return the labelled questions, with the hits in the order of the answers."""
        rows: list[_Asked] = []
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

    def unanswered(self) -> list[_Asked]:
        """Return the questions on any subject, which count as unanswered."""
        texts = [text for questions in unrelated_questions().values() for text in questions]
        if self.dataset.store.info.embedder is not None:
            self.dataset.query_vectors.prepare(texts)
        rows = [row for text in texts if (row := self.asked(text, None, frozenset(), answered=False)) is not None]
        return [replace(row, half=number % 2) for number, row in enumerate(rows)]

    def made(self) -> list[_Asked]:
        """Return questions made from documents; each is taken out of its document."""
        rows: list[_Asked] = []
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
    ) -> _Asked | None:
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
        return _Asked(evidence, by_id, order, relevant, answered)

    def _without(self, row: _Asked, document: Document, question: str, remaining_document: Document) -> _Asked | None:
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
        rarity = {term: math.log(1 + (count - holding[term] + 0.5) / (holding[term] + 0.5)) for term in terms}
        return sum(rarity[term] * tokens[term] / (tokens[term] + norm) for term in terms)

    @property
    def _words(self) -> tuple[Counter[str], float, int]:
        """By word, the number of sampled documents with it; their mean length in tokens; and the sample's size."""
        if self._kept is None:
            documents = self.dataset.store.sample(_SAMPLE)
            tokens = [DEFAULT_ANALYZER.tokens(document.searchable) for document in documents]
            holding = Counter(token for document_tokens in tokens for token in set(document_tokens))
            self._kept = holding, max(sum(map(len, tokens)) / max(len(tokens), 1), 1.0), len(tokens)
        return self._kept

    _kept: tuple[Counter[str], float, int] | None = None


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


# ── fitting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_calibrated(dataset: Dataset) -> bool:
    """Whether a built-in calibration fits the dataset's scores."""
    embedder = dataset.store.info.embedder
    return any(relevance.embedder == embedder for relevance in shipped())


def _base(form: Form, rows: Sequence[_Asked]) -> tuple[Relevance, bool]:
    """Return the built-in calibration for these scores, and whether it applies to this embedder."""
    base = next(relevance for relevance in shipped() if relevance.form == form)
    background = rows[0].evidence.background
    if form == "words" or background is None or background.embedder == base.embedder:
        return base, True
    return replace(base, embedder=background.embedder), False


def _fits(
    rows: Sequence[_Asked], *, labelled: bool
) -> tuple[list[Fit], list[Relevance], tuple[list[Relevance], list[Relevance]]]:
    """Return a fit for each form of evidence, the adopted ones, and, for each half, these fitted to the other half."""
    fits: list[Fit] = []
    relevances: list[Relevance] = []
    halves: tuple[list[Relevance], list[Relevance]] = ([], [])
    suffices = labelled and sum(row.answered for row in rows) >= 2 * FEWEST
    for form in _FORMS[rows[0].evidence.form or "words"]:
        base = _base(form, rows)
        if not labelled and base[1]:
            continue  # a calibration fitted to people's questions takes precedence
        fit, relevance = _fitted(rows, form, base, labelled=labelled)
        fits.append(fit)
        if fit.adopted:
            relevances.append(relevance([0, 1]))
            for fold, relevances_of_half in enumerate(halves):
                if suffices:
                    relevances_of_half.append(relevance([1 - fold]))
    return fits, relevances, halves


def _fitted(
    rows: Sequence[_Asked], form: Form, base: tuple[Relevance, bool], *, labelled: bool
) -> tuple[Fit, Callable[[Sequence[int]], Relevance]]:
    """Return the better of two fits, compared with the current calibration, and a function that fits it to halves."""
    import numpy as np

    usual, acts = base
    pairs = [(row.half, question) for row in rows if (question := prepare(row.row(form), form))]
    questions = [question for _, question in pairs]
    answered_count = sum(row.answered for row in questions)
    share = {True: 1 / max(answered_count, 1), False: 1 / max(len(questions) - answered_count, 1)}
    questions = [replace(row, weight=share[row.answered]) for row in questions]

    def all_coefficients(training_questions: Sequence[PreparedQuestion]) -> Relevance:
        return fit_prepared(training_questions, form, usual.embedder, usual.minimum)

    def stretched(training_questions: Sequence[PreparedQuestion]) -> Relevance:
        return scale(usual, training_questions)

    judged_questions = [row for row in questions if row.answered and len(row.relevant)]
    good = np.concatenate([row.relevant[row.known] for row in judged_questions])
    former_chances = (
        np.concatenate([_shown(usual, row) for row in judged_questions]) if acts else np.full(len(good), good.mean())
    )
    # People's questions have more evidence in a document than those taken out of it, so those must not fit slopes.
    methods = (stretched, all_coefficients) if labelled else (stretched,)
    chances_by_method = {method: _held_out(questions, method) for method in methods}
    losses = {method: _losses(chances, good) for method, chances in chances_by_method.items()}
    best = min(chances_by_method, key=lambda method: float(losses[method].mean()))
    gains = _losses(former_chances, good) - losses[best]
    gains_of_questions = np.split(gains, np.cumsum([row.known.sum() for row in judged_questions])[:-1])
    mean_gains = np.array([question_gains.mean() for question_gains in gains_of_questions])
    lower = float(mean_gains.mean() - _Z * mean_gains.std(ddof=1) / math.sqrt(len(mean_gains)))
    error, so_far = ece(chances_by_method[best], good), ece(former_chances, good)
    better = lower > 0 and (not acts or error < so_far)
    fit = Fit(form, error, so_far if acts else None, float(mean_gains.mean()), lower, better)

    def of(halves: Sequence[int]) -> Relevance:
        return best([row for row, (fold, _) in zip(questions, pairs, strict=True) if fold in halves])

    return fit, of


def _minimums(rows: Sequence[_Asked], halves: Halves) -> dict[Form, float]:
    """Return, by form, the relevance of the best candidate below which questions are refused; see `minimum_for`.

    Questions in another language than the documents are left out, and keep the minimum of their calibration, because
    labels rarely have enough of them.

    Args:
        rows: the questions.
        halves: for each half, the calibrations fitted to the other half; they precede the built-in ones.
    """
    minimums: dict[Form, float] = {}
    for form in _FORMS[rows[0].evidence.form or "words"]:
        chances: list[float] = []
        for row in rows:
            if row.answered and not row.evidence.across:
                judgement = judge_by((*halves[row.half], *shipped()), row.row(form).evidence, ())
                chances += [] if judgement is None else [judgement[0].best]
        if (minimum := minimum_for(chances)) is not None:
            minimums[form] = minimum
    return minimums


def _held_out(
    rows: Sequence[PreparedQuestion], fit: Callable[[Sequence[PreparedQuestion]], Relevance]
) -> NDArray[np.float64]:
    """Return the relevance of the hits of answered questions by cross-validation."""
    import numpy as np

    folds = np.empty(len(rows), int)
    for kind in (True, False):
        positions = [position for position, row in enumerate(rows) if row.answered is kind]
        folds[positions] = np.arange(len(positions)) % _FOLDS
    chances_by_position: dict[int, NDArray[np.float64]] = {}
    for fold in range(_FOLDS):
        relevance = fit([row for row, own_fold in zip(rows, folds, strict=True) if own_fold != fold])
        for position in np.flatnonzero(folds == fold).tolist():
            if rows[position].answered and len(rows[position].relevant):
                chances_by_position[position] = _shown(relevance, rows[position])
    return np.concatenate([chances_by_position[position] for position in sorted(chances_by_position)])


def _shown(relevance: Relevance, row: PreparedQuestion) -> NDArray[np.float64]:
    """Return the relevance of the hits whose labels are known."""
    return relevance.chances(row.question, row.hits)[row.known]


def _losses(chances: NDArray[np.float64], good: NDArray[np.bool_]) -> NDArray[np.float64]:
    import numpy as np

    chances = np.clip(chances, 1e-4, 1 - 1e-4)
    losses: NDArray[np.float64] = -np.log(np.where(good, chances, 1 - chances))
    return losses


def ece(chances: NDArray[np.float64], good: NDArray[np.bool_], bins: int = BINS) -> float:
    """The calibration error: the mean gap between probability and share of relevant hits, over bins of equal count."""
    import numpy as np

    order: Any = np.argsort(chances, kind="stable")
    order_of_bins = np.array_split(order, bins)
    return float(
        sum(abs(chances[bin_order].sum() - good[bin_order].sum()) for bin_order in order_of_bins) / max(len(order), 1)
    )
