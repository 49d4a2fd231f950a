"""Turns the results of stores into evidence, and the evidence into probabilities: `Hit.relevance`.

Each dataset is judged by its own candidates, regardless of the other sources and the ranking. If only one list was
searched, that list alone is judged. While vectors are pending, words are also judged on their own, so that a document
is not penalised for lacking a vector. Questions in a script that the documents do not use are not judged during that
time, because words cannot judge them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from itertools import chain, count, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pointsman.retrieval.judge.languages import script_of
from pointsman.retrieval.judge.relevance import Evidence, Relevance, judge_by
from pointsman.retrieval.run.candidates import StoreResults, is_of_store
from pointsman.store.store_values import MATCHED
from pointsman.text import query_tokens
from pointsman.values.types import Hit, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.retrieval.judge.kept_calibrations import Calibration
    from pointsman.retrieval.judge.languages import Script
    from pointsman.retrieval.judge.relevance import Form
    from pointsman.retrieval.run.candidates import Results
    from pointsman.values.types import Document, HitKey, Query


LOOKED_UP: Final = 2
"""The maximum number of words of a lookup question (`words_of`), which any document with its words answers. An embedder
sees little in a single word, so such a question is also judged by words alone, and the more confident judgement counts.
"""


_ENOUGH_ACROSS: Final = 12
"""Below so many candidates, less is needed in proportion if the question is in another language than they are: among a
few passages even the right one hardly stands out. Chosen on pieces of en_xquad of 1, 3, 6 and 12 passages, asked in
Chinese and Russian: of six, 7 to 10 % of right ones would be refused, and 2 % are."""
_WHOLE: Final = 1 - 1e-6  # of the weight of a question's words; sums differ in their last digits
_FIRST_HAN: Final = "\u3400"
_WORDS: Final = re.compile("[\u3400-\u9fff]+|[^\\s\u3400-\u9fff]*\\w[^\\s\u3400-\u9fff]*")
_ASCII_WORD: Final = re.compile("[0-9A-Za-z]")

RAISED: Final = 0.5
"""The share of the difference between languages that is made up for; see `raised_cosines`. It is the largest that cost
none of the questions in the documents' own language: chosen on six datasets together (en_scifact, ru_faq_java,
zh_domainrag, xl_debian_ru, and two of sixty texts in English and Russian), reported on five others."""


def raised_cosines(
    results_of_each: Mapping[int, Results], text: str, calibrations: Sequence[Relevance]
) -> Mapping[int, float]:
    """Return what to add to the cosines of datasets in another language than the question, by number.

    Across languages cosines are lower, whatever the documents say; beside documents in the question's language, an
    answer in another one would hardly be seen. Unrelated questions show by how much: by their best cosines with the
    documents of each language. All of that difference is not made up for, because most questions are asked in the
    language of their answer.

    A dataset in several languages is searched without the language of the question (`Languages`), which lowers its
    cosines; all of that is made up for.

    Args:
        results_of_each: the results of each branch, by its number.
        text: what was searched for.
        calibrations: only the cosines of their embedders are known.
    """
    script, embedders = script_of(text), {calibration.embedder for calibration in calibrations}
    backgrounds = {
        number: background
        for number, results in results_of_each.items()
        if isinstance(results, StoreResults)
        and results.store_query.vector is not None
        and results.embedder in embedders
        and (background := results.reading.background) is not None
        and math.isfinite(background.best.get(script, math.nan))
    }
    raises = {number: background.lowered for number, background in backgrounds.items() if background.languages}
    raw_backgrounds = {number: background for number, background in backgrounds.items() if number not in raises}
    usual = max(
        (one.best[script] + one.lowered for one in backgrounds.values() if not one.across(script)), default=None
    )
    if usual is not None:
        levels: dict[Script, float] = {}
        for background in raw_backgrounds.values():
            levels[background.script] = max(levels.get(background.script, -1.0), background.best[script])
        for number, background in raw_backgrounds.items():
            if background.across(script):
                raises[number] = RAISED * (usual - levels[background.script])
    return {number: value for number, value in raises.items() if value > 0}


def holders_of_word(results_of_each: Mapping[int, Results], text: str, *, many: bool) -> list[Any]:
    """Return the keys of candidates that hold the word of a question of one word; none for longer questions.

    An embedder sees little in a name or a code, and in a small dataset BM25 says little too, since no word is rare
    there: among a hundred passages of a household, six licences and modules are nearer to *Okonkwo* than the minutes
    that name him. Two words already describe something, which passages without one of them may answer better.

    Args:
        results_of_each: the results of each branch, by its number.
        text: what was searched for.
        many: whether keys name their branch.
    """
    if words_of(text) > 1:
        return []
    return [
        (number, key) if many else key
        for number, results in results_of_each.items()
        if isinstance(results, StoreResults) and results.idf
        for key, matched in results.pool.scores.get(MATCHED, {}).items()
        if matched >= results.idf * _WHOLE
    ]


def with_relevance(hit: Hit, relevance: float | None) -> Hit:
    """Return the hit with this relevance."""
    if type(hit) is Hit:  # several times as fast as `replace`
        return Hit(hit.document, hit.score, hit.dataset, hit.provenance, hit.excerpt, relevance)
    return replace(hit, relevance=relevance)


class Evaluation(NamedTuple):
    """The judgement of one dataset's candidates.

    Attributes:
        best: the highest relevance of any candidate.
        minimum: the relevance below which nothing is answered from this dataset.
    """

    best: float
    minimum: float


@dataclass(frozen=True, slots=True)
class Judgements:
    """The judgement of an answer.

    Attributes:
        datasets: by name; datasets that cannot be judged are left out.
        relevance: by hit, the probability that it is relevant.
    """

    datasets: Mapping[str, Evaluation]
    relevance: Mapping[HitKey, float]

    def best_evaluation(self, hits: Iterable[Hit]) -> Evaluation | None:
        """Return the evaluation of the dataset whose best candidate is the furthest above its minimum, if it has a hit.

        Datasets are not weighed against each other: others refuse nothing that one alone answers, if its passages stand
        among these hits. One of many datasets has something near any question, but then its passages seldom do.

        Args:
            hits: the first ones of an answer.
        """
        names = dict.fromkeys(map(attrgetter("dataset"), hits))
        evaluations = filter(None, map(self.datasets.get, names))
        return max(evaluations, key=lambda evaluation: evaluation.best - evaluation.minimum, default=None)

    def or_better(self, other: Judgements) -> Judgements:
        """Return the better of two judgements of each dataset and of each hit."""
        datasets, relevance = {**other.datasets, **self.datasets}, {**other.relevance, **self.relevance}
        for name, evaluation in other.datasets.items():
            datasets[name] = max(datasets[name], evaluation, key=lambda one: one.best - one.minimum)
        for key, level in other.relevance.items():
            relevance[key] = max(relevance[key], level)
        return Judgements(datasets, relevance)

    def of(self, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """Return the hits with their relevance; those that a stage made from other hits keep what they came with."""
        levels = [self.relevance.get(key, hit.relevance) for key, hit in zip(keys_of(hits), hits, strict=True)]
        return tuple(
            [
                hit if hit.relevance == level else with_relevance(hit, level)
                for hit, level in zip(hits, levels, strict=True)
            ]
        )

    @staticmethod
    def confidence(hits: Sequence[Hit]) -> float | None:
        """Return the highest relevance of hits that `of` returned; 0 if there are none, None if none has one."""
        return max([hit.relevance for hit in hits if hit.relevance is not None], default=None if hits else 0.0)


NOTHING = Judgements({}, {})
"""The judgement of an answer that cannot be judged."""


def judge(
    results_of_each: Mapping[int, StoreResults],
    all_results: Results,
    query: Query,
    documents: Mapping[Any, Document],
    calibrations: Sequence[Relevance],
    fitted: Mapping[str, Calibration],
    *,
    many: bool,
) -> Judgements:
    """Judge how relevant hits are.

    Args:
        results_of_each: the results of each dataset whose scores a calibration judges, by the number of its branch.
        all_results: those of all branches together, with scores for candidates that only a variant of the query found.
        query: the query that was searched for.
        documents: the documents of the hits, by their keys in ``all_results``.
        calibrations: the first one that fits a dataset's scores judges the dataset.
        fitted: by dataset name, calibrations that take precedence over these.
        many: whether keys in ``all_results`` name their branch.
    """
    datasets: dict[str, Evaluation] = {}
    relevance: dict[HitKey, float] = {}
    terms = len(set(query_tokens(query.text)))
    if not terms:  # an embedder puts "???" close to every short text, which means nothing
        return NOTHING
    script, is_lookup = script_of(query.text), words_of(query.text) <= LOOKED_UP
    own_words = has_own_words(query.text, script)
    for number, results in results_of_each.items():
        name = results.reading.name
        by_own_key = {
            key[1] if many else key: (key, document)
            for key, document in documents.items()
            if not many or is_of_store(key, number)
        }
        fit = fitted.get(name)
        judges = (*fit.relevance, *calibrations) if fit is not None else calibrations
        evidence, positions_by_key = evidence_of(
            results, all_results, {own_key: key for own_key, (key, _) in by_own_key.items()}, script, terms
        )
        by_words = replace(evidence, cosine=None, background=None)  # a word that it holds says the same in any language
        views = [evidence]
        if evidence.form == "both" and is_lookup:
            views.append(by_words)
        if evidence.across and own_words and evidence.bm25 is not None and evidence.bm25.any():
            # One of the few documents that are in its language may be the answer.
            views += [replace(evidence, in_own_language=True), by_words]
        pending = results.pool.vectors_due
        if pending and evidence.cosine is not None:
            # The answer may not have a vector yet, so words are judged on their own too; if they cannot be, nothing is.
            views = [] if by_words.form is None or evidence.across else [evidence, by_words]
        judged_documents = {
            own_key: document for own_key, (_, document) in by_own_key.items() if own_key in positions_by_key
        }
        positions = [positions_by_key[own_key] for own_key in judged_documents]
        judgements = [pair for view in views if (pair := judge_by(judges, view, positions)) is not None]
        if not judgements:
            continue
        judgement, calibration = max(judgements, key=lambda pair: pair[0].best)
        minimum = _minimum(calibration, evidence, {} if fit is None else fit.minimums)
        datasets[name] = Evaluation(judgement.best, minimum)
        hit_keys = [(name, document.id) for document in judged_documents.values()]
        levels = zip(*[judgement.relevance for judgement, _ in judgements], strict=True)
        relevance.update(zip(hit_keys, map(max, levels), strict=True))
    return Judgements(datasets, relevance)


def _minimum(calibration: Relevance, evidence: Evidence, fitted_minimums: Mapping[Form, float]) -> float:
    """Return the relevance below which nothing is answered from a dataset."""
    if evidence.across:
        share = 1.0 if evidence.cosine is None else len(evidence.cosine) / _ENOUGH_ACROSS
        return calibration.minimum * min(share, 1.0)
    return fitted_minimums.get(calibration.form, calibration.minimum)


def words_of(text: str) -> int:
    """Return the number of words of a question; two Han characters count as one word.

    >>> words_of("INV-2041"), words_of("Жанна Петерсоне"), words_of("王芳"), words_of("荧光计保修多久")
    (1, 2, 1, 4)
    """
    return sum([-(-len(word) // 2) if word[0] >= _FIRST_HAN else 1 for word in _WORDS.findall(text)])


def has_own_words(text: str, script: Script) -> bool:
    """Whether documents that hold a word of a question are in its script: it is not Latin, as names everywhere are.

    >>> has_own_words("кто ведёт кружок", "cyrillic"), has_own_words("гарантия Bosch", "cyrillic")
    (True, False)
    >>> has_own_words("who leads the club", "latin"), has_own_words("荧光计保修2年", "han")
    (False, False)
    """
    return script != "latin" and not _ASCII_WORD.search(text)


def evidence_of(
    results: StoreResults, all_results: Results, keys: Mapping[Any, Any], script: Script, terms: int
) -> tuple[Evidence, Mapping[Any, int]]:
    """Collect the evidence of a dataset's candidates; returns it with the position of each candidate by key.

    Copies of a passage, which have the same scores in both lists, share one position: a passage that is there twice
    must not compete with itself.

    Args:
        results: the results of the dataset.
        all_results: the results that have the scores of hits that are not among its candidates.
        keys: by the store's key of each hit, its key in ``all_results``.
        script: the script of the question.
        terms: the number of different terms of the question.
    """
    import numpy as np

    scores = {name: results.pool.scores.get(name) or dict(ranking) for name, ranking in results.pool.lists.items()}
    words, near = scores.get("bm25"), scores.get("vector")
    if words is not None and MATCHED in results.pool.scores:
        scores[MATCHED] = results.pool.scores[MATCHED]
    background, nearness = None, None
    if near is not None and results.store_query.vector is not None:
        background = results.reading.background
        nearness = None if background is None else background.nearness(results.store_query.vector)
    candidates = {**(words or {}), **(near or {})}
    values: dict[str, NDArray[np.float64]] = {}
    other_scores = {name: all_results.pool.scores.get(name, {}) for name in scores}
    extra_keys = [
        own_key
        for own_key in keys
        if own_key not in candidates and any(keys[own_key] in list_scores for list_scores in other_scores.values())
    ]
    for name in ("bm25", MATCHED, "vector"):
        if (list_scores := scores.get(name)) is not None:
            absent = repeat(math.nan if name == "vector" else 0.0)
            all_scores = chain(
                map(list_scores.get, candidates, absent), map(other_scores[name].get, map(keys.get, extra_keys), absent)
            )
            values[name] = np.fromiter(all_scores, float, len(candidates) + len(extra_keys))
    positions: Iterable[int] = count()
    if "vector" in values:
        # Equal up to the rounding of a dot product. Candidates without a vector (NaN) stay apart.
        rounded_scores = np.round(values["vector"] * 1e5) + np.round(values.get("bm25", np.float64(0)) * 1e4) * 1e7
        _, first, shared_positions = np.unique(rounded_scores, return_index=True, return_inverse=True, equal_nan=False)
        if len(first) < len(rounded_scores):
            values, positions = {name: array[first] for name, array in values.items()}, shared_positions.tolist()
    if results.pool.vectors_due and "vector" in values:  # pending vectors count as in the ranking
        cosines = values["vector"]
        cosines[np.isnan(cosines)] = np.fmax.reduce(cosines, initial=math.nan)
    positions_by_key = dict(zip((*candidates, *extra_keys), positions, strict=False))
    evidence = Evidence(
        script,
        terms,
        values.get("bm25"),
        results.idf,
        values.get(MATCHED),
        values.get("vector"),
        nearness,
        background,
    )
    return evidence, positions_by_key
