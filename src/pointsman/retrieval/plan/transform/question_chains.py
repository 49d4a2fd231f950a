"""Follows chains of questions without a model."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Lookup, Transformed, distinct
from pointsman.retrieval.plan.transform.decompose_by_rules import Hop, chain
from pointsman.retrieval.plan.transform.names_in_text import name_texts
from pointsman.retrieval.refine.budget import Budget, Spending, spending
from pointsman.retrieval.run.variant import Variant
from pointsman.text import fold, sentences
from pointsman.text.grammar import STOP
from pointsman.text.grammar.comparison import LONGEST
from pointsman.tools.errors import PointsmanError
from pointsman.tools.late_regex import late
from pointsman.tools.parallel_calls import DualCall, Mode, describe, sync_and_async
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.values.retrieval_context import RetrievalContext

log = logging.getLogger(__name__)

WEIGHT: Final = 0.5
"""The weight of the best part; the whole question has 1. See benchmarks/multihop.py for its effect."""

MOST_NAMES: Final = 3
_PASSAGES: Final = 3
_HOP_SECONDS: Final = 5.0
_LONGEST_NAME: Final = 100  # characters of a name that may be put into a question; longer ones are not names


class BridgeFinder(BaseTransformer):
    """Follows the first step of a chain of questions without a model.

    «Who directed the film that won the Palme d'Or in 1994?» asks for the film first. That is searched for, and the
    names offered by the best passages are put into the next question, each in a variant of kind ``"bridge"``. The text
    of passages is used only as search text.

    Args:
        weight: of the variants.
        budget: its seconds limit the search for the first step, which gets 5 at most.
        lookup: searches for the first step; a search provides its own. Without it no chain is followed.
    """

    def __init__(self, *, weight: float = WEIGHT, budget: Budget | None = None, lookup: Lookup | None = None) -> None:
        self.weight, self.budget, self.lookup = weight, budget or Budget(), lookup

    def over(self, lookup: Lookup) -> BridgeFinder:
        """Return a copy that searches the sources of the whole question."""
        return BridgeFinder(weight=self.weight, budget=self.budget, lookup=lookup)

    async def _transform(self, mode: Mode, query: str | Query) -> Transformed:
        """The query with the results of the first step filled in; unchanged if it is not a chain."""
        query = Query.of(query)
        hops = chain(query.text)
        if len(hops) < 2 or (lookup := self.lookup) is None:
            return Transformed(query)
        with spending(self.budget) as account:
            first, seconds = replace(query, text=hops[0].text, history=()), _seconds(account)
            call = DualCall(
                lambda: lookup.search(first, _PASSAGES, seconds), lambda: lookup.asearch(first, _PASSAGES, seconds)
            )
            try:
                context = await mode.one(call)
            except (PointsmanError, TimeoutError) as error:
                message = f"the search for the first step failed, the chain is not followed: {describe(error)}"
                log.warning("%s", message)
                return Transformed(query, degraded=(message,))
        return self._fill_hops(query, hops, context)

    transform, atransform = sync_and_async(_transform)

    def _fill_hops(self, query: Query, hops: Sequence[Hop], context: RetrievalContext) -> Transformed:
        passages = [hit.document.searchable for hit in context]
        names = [name for name in bridge_entities(query.text, passages, MOST_NAMES) if len(name) <= _LONGEST_NAME]
        variants = (Variant(hops[1].filled(name), "bridge", self.weight) for name in names)
        detail = f"{hops[0].text!r:.200} may be {', '.join(names)}" if names else "no name found for the first step"
        degraded = tuple(f"the search for the first step: {cause}" for cause in context.degraded)
        return Transformed(query, distinct(variants, query.text), detail, degraded)


def _seconds(account: Spending) -> float:
    seconds = account.left(_HOP_SECONDS)
    if not seconds:
        raise TimeoutError("no time was left")
    return seconds


def bridge_entities(query: str, passages: Sequence[str], limit: int = 3) -> list[str]:
    """Candidates from one hop's passages for the next hop: names that the query does not contain.

    Titles (a first line of its own) count most, then names in the first sentence, then names that many passages
    contain; passages count less the lower they rank.

    Args:
        query: the query that was searched for.
        passages: texts, best first, with the title as the first line if there is one.
        limit: the maximum number of candidates.
    """
    words = f" {_words(query)} "
    scores: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for rank, passage in enumerate(passages):
        head, _, body = passage[:LONGEST].strip().partition("\n")
        has_title = bool(body.strip()) and len(head) <= 100 and not re.search(r"[.!?。！？]\s*$", head)
        names = [(head.strip(), 3.0)] if has_title else []
        text = body if has_title else passage[:LONGEST]
        ends = sentences(text)
        first = ends[0][1] if ends else len(text)
        names += [(name, 1.0) for name in _candidates(text[:first])]
        names += [(name, 0.4) for name in _candidates(text[first:])]
        for name, weight in names:
            key = _words(name)
            if (
                len(key) < 2
                or f" {key} " in words
                or (re.search("[\u4e00-\u9fff]", key) and key in words)
                or key in STOP
            ):
                continue
            spelling.setdefault(key, name)
            scores[key] += weight / (1 + rank)  # type: ignore[assignment]  # a Counter also counts floats
    order = sorted(scores, key=lambda key: (-scores[key], key))
    return [spelling[key] for key in order[: max(0, limit)]]


_ZH_PERSON = late(
    "(?:由|作家|作者|诗人|导演|演员|歌手|科学家|总统|主席|校长|创始人|皇帝|将军|画家"
    "|是)(?P<name>[\u4e00-\u9fff]{2,4}?|[\u4e00-\u9fff]{1,8}·[\u4e00-\u9fff·]{1,12}?)"
    "(?=创作|执导|导演|所|撰写|编写|发明|创立|创办|主演|担任|[，。、；])"
)


def _candidates(text: str) -> list[str]:
    """Names; in Chinese, which has no capitals, those of people next to their role."""
    return name_texts(text) + [match["name"] for match in _ZH_PERSON.finditer(text)]


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", fold(text)))
