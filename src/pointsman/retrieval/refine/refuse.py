"""Refusing: better to answer "No relevant results" than to answer with noise (R4).

Two limits can refuse. The usual one acts on the relevance of the best candidate of the datasets that have one of the
first `READ` hits: what one of these answers is not refused because another is searched too. A user-defined `Threshold`
acts on one scale: `Hit.relevance`, a reranker's scores, raw BM25, raw cosines or the calibrated sum. Ranks, and scores
normalised for each query, show which hit is best but not whether it is good, so they cannot have a threshold.

A hit that holds all words of the question, or its names, codes and rare words if few hits hold them, is never refused
by the usual limit: what a probability says against it, the reader can see for himself.

Results that cannot be judged are not refused, and ``detail`` says so: hits of a foreign retriever, vectors of an
embedder without a calibration. Hits beside them that would be refused by themselves follow after them: fused by rank,
the first filler of a dataset would otherwise come before the exact match of an attached table. A question without a
word in it is always refused.

What meets a written condition, a filter or the syntax of the question, was chosen by the caller, so the usual limit
does not refuse it; ``degraded`` says that the words do not match. A ``minimum`` or threshold of the caller's own still
acts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.fusion import METHODS
from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.text import DEFAULT_ANALYZER, query_tokens
from pointsman.text.designations import designations, holds_one
from pointsman.text.unicode import fold
from pointsman.tools.errors import InputError
from pointsman.tools.late_regex import late
from pointsman.values.argument_checks import is_number
from pointsman.values.reasons import Reason
from pointsman.values.types import Hit, HitKey, Provenance, Query, Ranked, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MATCHES_FILTER: Final = Reason.of("filter")
"""Why hits that match nothing else of a question are not refused."""

PROBABILITY: Final = "probability"
"""The scale of `Hit.relevance`."""

LOOKED_AT: Final = 3
"""The number of first hits that must all have a relevance before an improbable answer is refused."""

READ: Final = 10
"""The number of first hits whose words are compared with those of the question before it is refused."""

FEW: Final = 3
"""The maximum number of hits that hold the same telling words of the question, if these are to save them."""

GRAMMATICAL: Final = 6.0
"""The frequency from which a single Chinese character is grammar rather than part of a name: one in a thousand words.
Of 968 everyday questions in Chinese that eighteen sets refuse, 3 have such a name in common with few passages. Of 432
questions about a name of two to four characters that one of their passages holds, zh_cmrc2018 and zh_domainrag
refuse 1, and 122 without this; of 432 about other names, which it was not made by, 8."""

UNSURE_BELOW: Final = 0.23
"""The relevance of the best candidate below which ``refuse="unsure"`` refuses."""

RARE: Final = 2.0
"""The frequency below which a word is rare: one in ten million, as `pointsman.text.lexicon.Lexicon.zipf` states it.
*Orchid* has 3.3, *sourdough* 2.8, *capelin* 1.6."""

_HAN: Final = late("[\u3400-\u9fff]{2,}")
_MOST_HAN: Final = 1000  # characters of a question in which Chinese names are looked for
_WEEKDAY: Final = late("(mon|tues|wednes|thurs|fri|satur|sun)day", re.IGNORECASE)
_LISTED: Final = late(r"[a-zа-яё]{3,}", re.IGNORECASE)  # the words that lists of English and Russian could have
_WORD: Final = late(r"\w(?:[\w./:-]*\w)?")
_CODE: Final = late(r"(?=.*\d)(?=.*[^\W\d]|.*\d[._/:-]|\d{5})|.*_|.*[a-zа-я][A-ZА-Я]")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit on one scale; hits below it are dropped.

    Attributes:
        scale: the scores that it limits: ``"probability"``, or the scale of a ranking (`Ranked.scale`), such as
            ``"rerank:bge"``, ``"calibrated"``, ``"bm25"`` or ``"cosine"``.
        minimum: the least score that a hit needs.

    Raises:
        InputError: scores of this scale have no absolute meaning, or a value is invalid.
    """

    scale: str
    minimum: float

    def __post_init__(self) -> None:
        if not isinstance(self.scale, str) or not self.scale:
            raise InputError(f"a threshold's scale is a name such as 'probability', not {self.scale!r:.80}")
        if self.scale in METHODS:
            raise InputError(
                f"no threshold can be set on {self.scale!r}: its scores come from ranks, or are normalised for each "
                "query, so the best hit scores the same however bad it is; use 'probability', 'calibrated', 'bm25', "
                "'cosine' or 'rerank:<model>'"
            )
        if not is_number(self.minimum):
            raise InputError(f"the minimum of a threshold is a finite number, not {self.minimum!r:.80}")
        if self.scale == PROBABILITY and not 0 <= self.minimum <= 1:
            raise InputError(f"a probability is a number from 0 to 1, not {self.minimum!r}")

    def score(self, hit: Hit) -> float | None:
        """The score of a hit that the threshold limits; None if the hit has no relevance."""
        return hit.relevance if self.scale == PROBABILITY else hit.score


class Refuser(BaseRefiner):
    """Drops hits below thresholds, and refuses an answer that is too unlikely to be one.

    Args:
        minimum: the probability of an answer below which it is refused; by default that of the calibration. 0 never
            refuses.
        thresholds: limits on hits, at most one for each scale. One on the ranking's own scale replaces ``minimum``.
        at_least: the smallest probability that ``minimum`` has by default, whatever the calibration says.

    Raises:
        InputError: an argument is invalid.
    """

    stage = "refuse"
    in_place = True

    def __init__(
        self,
        minimum: float | None = None,
        thresholds: Threshold | Sequence[Threshold] = (),
        *,
        at_least: float = 0.0,
    ) -> None:
        self.thresholds = (thresholds,) if isinstance(thresholds, Threshold) else tuple(thresholds)
        for threshold in self.thresholds:
            if not isinstance(threshold, Threshold):
                raise InputError(f"thresholds are of type Threshold, not {threshold!r:.80}")
        if len({threshold.scale for threshold in self.thresholds}) < len(self.thresholds):
            raise InputError(f"two thresholds are on one scale; give one each: {self.thresholds!r:.200}")
        if minimum is not None and not (is_number(minimum) and 0 <= minimum <= 1):
            raise InputError(f"minimum is a probability from 0 to 1, or None, not {minimum!r:.80}")
        if not (is_number(at_least) and 0 <= at_least <= 1):
            raise InputError(f"at_least is a probability from 0 to 1, not {at_least!r:.80}")
        self.minimum, self.at_least = minimum, at_least

    def depth(self, top_k: int, scale: str) -> int:  # noqa: ARG002  (any scale)
        """At least `READ` hits."""
        return max(top_k, READ)

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        """Return the hits that are relevant enough, or a refusal."""
        if ranking.refused is not None:
            return ranking
        if not ranking.hits:
            return replace(ranking, detail="no results", refused=Refusal(Reason.of("no_results")))
        acting = [threshold for threshold in self.thresholds if threshold.scale in {PROBABILITY, ranking.scale}]
        notes = [
            f"the threshold for {threshold.scale!r} does not apply: these scores are {ranking.scale!r}"
            for threshold in self.thresholds
            if threshold not in acting
        ]
        if not any(threshold.scale == ranking.scale for threshold in acting):
            refusal, note = self._refusal(query, ranking)
            if refusal is not None and (match := self._match(query, ranking)):
                ranking, refusal, note = replace(ranking, degraded=(*ranking.degraded, match)), None, match
            if refusal is not None:
                reasons = dict.fromkeys((hit.key for hit in ranking.hits), str(refusal))
                return _refused(ranking, refusal, {**ranking.dropped, **reasons}, [note, *notes], top_k)
            notes.insert(0, note)
        hits, reasons_by_key = list(ranking.hits), dict(ranking.dropped)
        if (reordered_hits := self._improbable_last(query, ranking)) is not None:
            hits = reordered_hits
            notes.append("hits that would be refused by themselves follow those that have no relevance")
        for threshold in acting:
            remaining, reasons_below = _divide_hits(hits, threshold)
            reasons_by_key.update(reasons_below)
            notes.append(
                f"{len(reasons_below)} of {len(hits)} hits are below {threshold.minimum:g} ({threshold.scale})"
            )
            if not remaining:
                best = max(hits, key=lambda hit: threshold.score(hit) or 0.0)
                best_score = threshold.score(best)
                minimum, score = f"{threshold.minimum:g}", f"{best_score:.3g}"
                reason = Reason.of("threshold", score=score, minimum=minimum, scale=threshold.scale)
                refusal = Refusal(reason, best, best_score, threshold.minimum, threshold.scale)
                return _refused(ranking, refusal, reasons_by_key, notes, top_k)
            hits = remaining
        marked_hits = tuple([_mark_rank(hit, rank) for rank, hit in enumerate(hits, 1)])
        return replace(ranking, hits=marked_hits, detail="; ".join(notes), dropped=reasons_by_key)

    def _match(self, query: Query, ranking: Ranked) -> str:
        """Which written condition the hits meet; empty if there is none, or if the caller gave a minimum."""
        if self.minimum is not None:
            return ""
        if query.filters is not None:
            return MATCHES_FILTER
        return Reason.of("syntax", terms=ranking.condition) if ranking.condition else ""

    def _minimum(self, ranking: Ranked) -> float:
        """The relevance that the best candidate needs."""
        return max(ranking.needed, self.at_least) if self.minimum is None else self.minimum

    def _improbable_last(self, query: Query, ranking: Ranked) -> list[Hit] | None:
        """Hits without a relevance, then those with one; None unless the latter would be refused by themselves."""
        minimum = self._minimum(ranking)
        judged_hits = [hit for hit in ranking.hits if hit.relevance is not None]
        if ranking.best is None or ranking.best >= minimum or not 0 < len(judged_hits) < len(ranking.hits):
            return None
        if holds_words(query.text, judged_hits[:READ]) is not None:
            return None
        return [*(hit for hit in ranking.hits if hit.relevance is None), *judged_hits]

    def _refusal(self, query: Query, ranking: Ranked) -> tuple[Refusal | None, str]:
        """The refusal of an answer that is too unlikely, or None; and a note that says why."""
        nearest = ranking.hits[0]
        if not query_tokens(query.text) and self.minimum != 0:
            # An embedder puts "???" close to every short text, which means nothing.
            reason = Reason.of("no_word")
            return Refusal(reason, nearest), f"refused: {reason}"
        best = ranking.best
        if best is None:
            return None, "not judged: these results have no relevance"
        if unjudged_hit := next((hit for hit in ranking.hits[:LOOKED_AT] if hit.relevance is None), None):
            return None, f"not judged: hit {unjudged_hit.id!r:.80} has no relevance"
        minimum = self._minimum(ranking)
        chance, minimum_figure = _told_apart(best, minimum)
        figures = f"the best candidate has relevance {chance}, and {minimum_figure} is needed"
        if best >= minimum:
            return None, figures
        if (holder := holds_words(query.text, ranking.hits[:READ])) is not None:
            return None, f"{figures}, but {holder.id!r:.80} holds the question's words"
        reason = Reason.of("improbable", chance=chance, wanted=minimum_figure, id=f"{nearest.id!r:.80}")
        return Refusal(reason, nearest, best, minimum, PROBABILITY), f"refused: {chance} < {minimum_figure}"


def _told_apart(first: float, second: float) -> tuple[str, str]:
    """Return two numbers with two digits, or with as many as show that they differ."""
    digits = next((digits for digits in range(2, 6) if round(first, digits) != round(second, digits)), 2)
    return f"{first:.{digits}f}", f"{second:.{digits}f}"


def holds_words(question: str, hits: Sequence[Hit]) -> Hit | None:
    """Return the first hit that holds what a question names exactly, or all its words, or its telling ones if few do.

    Telling are names, codes and rare words; for what is named exactly see `pointsman.text.designations`.

    Names are words with a capital letter that do not begin the question, except for days of the week. Codes are words
    such as ``INV-2041``, ``4.1.3`` and ``lateness_penalty``, but no plain numbers. Rare are words in Latin or Cyrillic
    letters that no list of English and Russian words has, such as *autobelay*, or that are rarer than `RARE`. Words
    that are not searched, such as *I*, are none of these. Chinese words are not told apart by spaces; a hit holds them
    if each character of the question stands in it beside one of those that it stands beside in the question. Telling
    are those that are in no listed word, nor `GRAMMATICAL`, with their neighbour, such as 杨建 in 谁见过杨建.
    """
    if names := designations(question):
        holder = next((hit for hit in hits if holds_one(hit.document.full_text, names)), None)
        if holder is not None:
            return holder
    tokens = [set(DEFAULT_ANALYZER.tokens(hit.document.searchable)) for hit in hits]
    words = set(query_tokens(question))
    pairs = {word for word in words if len(word) == 2 and set(word) <= words}
    characters, single_words = set("".join(pairs)), words - pairs
    holder = next(
        (
            hit
            for hit, own_tokens in zip(hits, tokens, strict=True)
            if single_words <= own_tokens and characters <= set("".join(pairs & own_tokens))
        ),
        None,
    )
    if words and holder is not None:
        return holder
    telling = words & set(query_tokens(" ".join(_telling_words(question))))
    holders = [hit for hit, own_tokens in zip(hits, tokens, strict=True) if telling and telling <= own_tokens]
    if 0 < len(holders) <= FEW:
        return holders[0]
    texts = [hit.document.searchable for hit in hits]
    for pair in dict.fromkeys(_unlisted_pairs(question)):
        holders = [hit for hit, text in zip(hits, texts, strict=True) if pair in text]
        if 0 < len(holders) <= FEW:
            return holders[0]
    return None


def _telling_words(question: str) -> list[str]:
    """Return the names, codes and rare words of a question."""
    words = _WORD.findall(question)
    return [
        word
        for number, word in enumerate(words)
        if _CODE.match(word)
        or (number and word[0].isupper() and not _WEEKDAY.fullmatch(word))
        or (_LISTED.fullmatch(word) and _is_rare(fold(word)))
    ]


def _unlisted_pairs(question: str) -> Iterator[str]:
    """Yield Chinese characters that are in no listed word of a question, each with the character or word beside it."""
    from pointsman.text.lexicon import installed_lexicon, most_frequent_words  # only where an answer would be refused

    lexicon = installed_lexicon("zh")
    for run in _HAN.findall(question[:_MOST_HAN]):
        for first, second in pairwise(most_frequent_words(run, lexicon)):
            single_characters = [word for word in (first, second) if len(word) == 1]
            if single_characters and max(map(lexicon.zipf, single_characters)) < GRAMMATICAL:
                yield first + second


def _is_rare(word: str) -> bool:
    from pointsman.text.lexicon import LANGUAGES, installed_lexicon  # only where an answer would be refused

    return max(installed_lexicon(language).zipf(word) for language in LANGUAGES) < RARE


def _mark_rank(hit: Hit, rank: int) -> Hit:
    """The hit with its relevance in the provenance, if it has one."""
    if hit.relevance is None:
        return hit
    provenance = (*hit.provenance, Provenance("refuse", rank, hit.relevance))
    if type(hit) is Hit:  # several times as fast as `replace`
        return Hit(hit.document, hit.score, hit.dataset, provenance, hit.excerpt, hit.relevance)
    return replace(hit, provenance=provenance)


def _divide_hits(hits: Sequence[Hit], threshold: Threshold) -> tuple[list[Hit], dict[HitKey, str]]:
    """The hits that reach a threshold or cannot be compared with it, and the reasons against the others."""
    remaining, reasons_below = [], {}
    for hit in hits:
        score = threshold.score(hit)
        if score is None or score >= threshold.minimum:
            remaining.append(hit)
        else:
            reasons_below[hit.key] = f"{score:.3g} is below {threshold.minimum:g} ({threshold.scale})"
    return remaining, reasons_below


def _refused(
    ranking: Ranked, refusal: Refusal, reasons_by_key: Mapping[HitKey, str], notes: Sequence[str], top_k: int
) -> Ranked:
    refusal = replace(refusal, near_misses=ranking.hits[:top_k])
    return replace(ranking, hits=(), detail="; ".join(notes), dropped=reasons_by_key, refused=refusal)
