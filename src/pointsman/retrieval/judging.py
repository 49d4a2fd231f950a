"""What stores have found becomes evidence, and the evidence probabilities: `Hit.relevance` (M1).

Every dataset is judged by its own candidates, whatever else was searched and whatever ranked them. What one list alone
was searched for is judged by that list alone. While vectors are still to come, words are heard too, by themselves: what
they find is not doubted because it has no vector yet; and questions in a script that the documents are not in, which
words cannot judge, are not judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.candidates import StoreResults
from pointsman.retrieval.relevance import (
    Evidence,
    Judgement,
    Relevance,
    judge_by,
    letters_of,
    minimum_over,
    never_increasing,
    script_of,
)
from pointsman.text import DEFAULT_ANALYZER
from pointsman.types import Hit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pointsman.retrieval.candidates import Results
    from pointsman.retrieval.dataset_calibration import Calibration
    from pointsman.retrieval.relevance import Script
    from pointsman.types import HitKey, Query


LOOKED_UP: Final = 2
"""Terms up to which a question looks something up: a document that has the words is an answer, though an embedder sees
little in a single word. Such a question is judged by its words alone where those are `SURE` of an answer."""

SURE: Final = 0.9
"""What words have to say of a question that looks something up; those of one word of two never say as much."""


def with_relevance(hit: Hit, relevance: float | None) -> Hit:
    """The hit with this relevance."""
    if type(hit) is Hit:  # several times as fast as `replace`
        return Hit(hit.document, hit.score, hit.dataset, hit.provenance, hit.excerpt, relevance)
    return replace(hit, relevance=relevance)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is thought of an answer.

    Attributes:
        answerable: by dataset, the probability that it holds an answer; those that cannot be judged are not in it.
        relevance: by hit, the probability that it is relevant.
        calibrations: by dataset, what judged it.
    """

    answerable: Mapping[str, float]
    relevance: Mapping[HitKey, float]
    calibrations: Mapping[str, Relevance]

    @property
    def best(self) -> tuple[float, float] | None:
        """The probability that one of the datasets holds an answer, and what it needs; None without a judged one.

        Of the dataset that comes nearest to what it needs.
        """
        count = len(self.answerable)
        pairs = [
            (chance, minimum_over(self.calibrations[name].minimum, count)) for name, chance in self.answerable.items()
        ]
        return max(pairs, key=lambda pair: pair[0] - pair[1], default=None)

    def of(self, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """The hits with their relevance, which never increases down the list.

        Neighbours that would grow are levelled to their mean; see `never_increasing`. Hits that a stage made out of
        others keep what those had.
        """
        if not self.answerable:
            return tuple(hits)
        levels = never_increasing([self.relevance.get(hit.key, hit.relevance) for hit in hits])
        return tuple(
            hit if hit.relevance == level else with_relevance(hit, level)
            for hit, level in zip(hits, levels, strict=True)
        )

    def confidence(self, hits: Sequence[Hit]) -> float | None:
        """The probability that one of these is relevant; None without a judged dataset."""
        chances: dict[str, list[float]] = {name: [] for name in self.answerable}
        for hit in hits:
            if hit.dataset in chances and (chance := self.relevance.get(hit.key, hit.relevance)) is not None:
                chances[hit.dataset].append(chance)
        return max(
            (
                self.calibrations[name].confidence(Judgement(self.answerable[name], tuple(some)))
                for name, some in chances.items()
            ),
            default=None,
        )


NOTHING = Verdict({}, {}, {})
"""Of an answer that nobody can judge."""


def judge(
    parts: Mapping[int, Results],
    whole: Results,
    query: Query,
    hits: Mapping[Any, Hit],
    calibrations: Sequence[Relevance],
    fitted: Mapping[str, Calibration],
    *,
    many: bool,
) -> Verdict:
    """How relevant hits are.

    Args:
        parts: what each branch has found, by its number.
        whole: the branches together, with the scores of what only a variant of the query has found.
        query: what was searched for.
        hits: by their keys in ``whole``.
        calibrations: the first that understands a dataset's scores judges it.
        fitted: by the names of datasets, what goes before these.
        many: whether keys in ``whole`` name their branch.
    """
    answerable: dict[str, float] = {}
    relevance: dict[HitKey, float] = {}
    used: dict[str, Relevance] = {}
    terms = len(set(DEFAULT_ANALYZER.query_tokens(query.text)))
    if not terms:  # an embedder puts "???" near every short text, which says nothing about the text
        return NOTHING
    script = script_of(query.text)
    for number, part in parts.items():
        if not isinstance(part, StoreResults):
            continue
        name = part.source.name
        mine = {key[1] if many else key: (key, hit) for key, hit in hits.items() if not many or _is_of(key, number)}
        own_calibrations = fitted[name].relevance if name in fitted else ()
        judges = (*own_calibrations, *calibrations)
        if not any(one.embedder == embedder_of(part) for one in judges):
            continue  # nobody could use the evidence
        evidence, place = evidence_of(part, whole, {own: key for own, (key, _) in mine.items()}, script, terms)
        by_words = replace(evidence, cosine=None)
        views = [evidence]
        if evidence.form == "both" and evidence.terms <= LOOKED_UP:
            views.append(by_words)
        due = part.statistics.vectors_due > 0
        if due and evidence.cosine is not None:
            # Who answers may not have a vector yet: words say what they say beside vectors; if they cannot, nobody can.
            views = [] if by_words.form is None or evidence.across else [evidence, by_words]
        own_hits = {own: hit for own, (_, hit) in mine.items() if own in place}
        places, letters = [place[own] for own in own_hits], [letters_of(hit.document.text) for hit in own_hits.values()]
        judgements = [
            judged_view for view in views if (judged_view := judge_by(judges, view, places, letters)) is not None
        ]
        if not judgements:
            continue
        judgement, calibration = judgements[0]
        if len(judgements) > 1 and judgements[1][0].answerable > max(0.0 if due else SURE, judgement.answerable):
            judgement, calibration = judgements[1]
        answerable[name], used[name] = judgement.answerable, calibration
        relevance.update(zip((hit.key for hit in own_hits.values()), judgement.relevance, strict=True))
    return Verdict(answerable, relevance, used)


def _is_of(key: Any, number: int) -> bool:
    """Whether a key is of a store's branch; a retriever's is an id, or a dataset's name and an id."""
    return type(key) is tuple and type(key[0]) is int and key[0] == number


def embedder_of(part: StoreResults) -> str | None:
    """Whose cosines a dataset has brought; None where it has brought none."""
    return part.source.store.info.embedder if "vector" in part.pool.lists else None


def evidence_of(
    part: StoreResults, whole: Results, keys: Mapping[Any, Any], script: Script, terms: int
) -> tuple[Evidence, Mapping[Any, int]]:
    """What a dataset's candidates are worth, and where each stands among them.

    Args:
        part: of the dataset.
        whole: knows the scores of hits that are not among its candidates.
        keys: of the hits; the store's own, and the one in ``whole``.
        script: of the question.
        terms: how many different ones it has.
    """
    import numpy as np

    scores = {name: part.pool.scores.get(name) or dict(ranking) for name, ranking in part.pool.lists.items()}
    words, near = scores.get("bm25"), scores.get("vector")
    background, nearness = None, None
    if near is not None and part.look.vector is not None:
        background = part.source.background_in(part.statistics)
        nearness = None if background is None else background.nearness(part.look.vector)
    candidates = {**(words or {}), **(near or {})}
    values: dict[str, NDArray[np.float64]] = {}
    further = {name: whole.pool.scores.get(name, {}) for name in scores}
    added = [own for own in keys if own not in candidates and any(keys[own] in some for some in further.values())]
    for name, some in (("bm25", words), ("vector", near)):
        if some is not None:
            absent = repeat(0.0 if name == "bm25" else math.nan)
            every = chain(map(some.get, candidates, absent), map(further[name].get, map(keys.get, added), absent))
            values[name] = np.fromiter(every, float, len(candidates) + len(added))
    if part.statistics.vectors_due and "vector" in values:  # those that are to come, as the ranking has them
        cosines = values["vector"]
        cosines[np.isnan(cosines)] = np.fmax.reduce(cosines, initial=math.nan)
    place = dict(zip((*candidates, *added), count(), strict=False))
    evidence = Evidence(
        script,
        terms,
        values.get("bm25"),
        part.idf,
        values.get("vector"),
        nearness,
        background,
    )
    return evidence, place
