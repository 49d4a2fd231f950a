"""The base of all compressors, which keep the parts of hits relevant to the query, within one budget for all.

To write one, subclass `BaseCompressor` and implement ``compress`` or ``acompress``. The base class cuts the ranking,
leaves texts alone that already fit (unless `BaseCompressor.whole_if_short` is false), puts the excerpts on the hits,
and checks that the budget is kept and that every span occurs in the source; if anything fails, it passes the ranking on
with whole texts.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.refine.base_refiner import BaseRefiner
from pointsman.retrieval.refine.compress.spans import JOINER, TextBudget
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.parallel_calls import DualCall, Mode, sync_and_async
from pointsman.tools.sync_and_async import in_thread, wait_for
from pointsman.values.argument_checks import check_count
from pointsman.values.types import Excerpt, Hit, HitKey, Query, Ranked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_log = logging.getLogger(__name__)

MAX_CHARS: Final = 1000
"""The default limit, in characters, on all texts of an answer together."""

_DROPPED_REASON = "dropped: other texts are more relevant to the query and used up the budget"
_LONGEST_CAUSE = 300


@dataclass(frozen=True, slots=True)
class Compressed:
    """The result of compressing some hits.

    Attributes:
        excerpts: one per hit, in order; None if nothing is left of it.
        detail: what was done, in words.
        degraded: what did not work as requested, and what was done instead.
        reasons: why nothing is left, by the hit's place, if the reason is not just a lack of room.
    """

    excerpts: tuple[Excerpt | None, ...]
    detail: str = ""
    degraded: tuple[str, ...] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)


class BaseCompressor(BaseRefiner, needs=("compress", "acompress")):
    """Shortens the texts of an answer. Implement ``compress`` or ``acompress``; this class derives the other.

    Only the hits of the answer are compressed: the ranking is first cut to ``top_k``. Scores and order stay. If a hit
    has an excerpt from an earlier compressor, only its spans are read; a summary has none, so all of the document is.
    """

    stage = "compress"
    whole_if_short: bool = True
    """Whether texts that together fit into the budget are left whole."""

    def __init__(
        self,
        *,
        max_chars: int | None = None,
        max_tokens: int | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        """Set the budget for all texts of an answer together; 1000 characters by default.

        Args:
            max_chars: in characters, including the " … " between parts of a text.
            max_tokens: in tokens instead.
            count_tokens: counts the tokens of a text. By default they are estimated, as when files are split into
                passages: within 20 % of XLM-R's tokenizer for nearly all English, Chinese and Russian texts.

        Raises:
            InputError: both limits are given, or one is out of range.
        """
        if max_chars is not None and max_tokens is not None:
            raise InputError("the budget is max_chars or max_tokens, not both; leave one out")
        if count_tokens is not None and (max_tokens is None or not callable(count_tokens)):
            raise InputError("count_tokens is a function from text to a number, and goes with max_tokens")
        if max_tokens is not None:
            from pointsman.ingest import estimate_tokens

            self.budget = TextBudget(check_count(max_tokens, "max_tokens"), "tokens", count_tokens or estimate_tokens)
        else:
            self.budget = TextBudget(check_count(MAX_CHARS if max_chars is None else max_chars, "max_chars"))

    # ── for subclasses ───────────────────────────────────────────────────────────────────────────────────────────

    def compress(self, query: Query, hits: Sequence[Hit]) -> Compressed:
        """Compress texts; those that together fit into the budget only if ``whole_if_short`` is false."""
        return wait_for(self.acompress, query, hits)

    async def acompress(self, query: Query, hits: Sequence[Hit]) -> Compressed:
        """Async version of `compress`; a synchronous ``compress`` runs in a worker thread."""
        return await in_thread(self.compress, query, hits)

    # ── rankings ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _refine(self, mode: Mode, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        """Return the first ``top_k`` hits with excerpts; a hit of which nothing is left goes to ``dropped``.

        Never raises because of a compressor: texts are then left whole, and ``degraded`` says why.
        """
        hits = ranking.hits[:top_k]
        try:
            if whole_ranking := await mode.blocking(partial(self._short, ranking, hits)):
                return whole_ranking
            compress = DualCall(partial(self.compress, query, hits), partial(self.acompress, query, hits))
            return self._apply_compression(ranking, hits, await mode.one(compress))
        except Exception as error:  # noqa: BLE001  (reported in the answer and logged)
            return self._uncompressed_ranking(ranking, hits, error)

    refine, arefine = sync_and_async(_refine)

    def _short(self, ranking: Ranked, hits: Sequence[Hit]) -> Ranked | None:
        """The answer if there is nothing to compress; otherwise None."""
        total = self._length(hits)
        if hits and (total > self.budget.most or not self.whole_if_short):
            return None
        detail = f"left whole: {total} of at most {self.budget.most} {self.budget.unit}"
        return _pass_on(ranking, hits, detail=detail)

    def _length(self, hits: Sequence[Hit]) -> int:
        return sum(self.budget.cost(hit.text) for hit in hits)

    def _apply_compression(self, ranking: Ranked, hits: Sequence[Hit], compression: Compressed) -> Ranked:
        name = type(self).__name__
        if not isinstance(compression, Compressed) or len(compression.excerpts) != len(hits):
            raise ModelError(f"{name}.compress returned no Compressed with one excerpt for each of {len(hits)} hits")
        remaining, reasons = [], dict[HitKey, str]()
        for index, (hit, excerpt) in enumerate(zip(hits, compression.excerpts, strict=True)):
            if excerpt is None or not excerpt.text.strip():
                reasons[hit.key] = compression.reasons.get(index, _DROPPED_REASON)
            else:
                _check(excerpt, hit, name)
                remaining.append(replace(hit, excerpt=excerpt))
        full_length, total = self._length(hits), self._length(remaining)
        if total > self.budget.most:
            raise ModelError(f"{name} made {total} {self.budget.unit} where at most {self.budget.most} may be")
        ratio = total / max(full_length, 1)
        detail = f"{full_length} {self.budget.unit} became {total} ({ratio:.0%}), of at most {self.budget.most}"
        if compression.detail:
            detail += f"; {compression.detail}"
        return _pass_on(
            ranking,
            remaining,
            detail=detail,
            reasons=reasons,
            degraded=compression.degraded,
            cut=ranking.hits[len(hits) :],
        )

    def _uncompressed_ranking(self, ranking: Ranked, hits: Sequence[Hit], error: Exception) -> Ranked:
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_CAUSE]
        message = f"compress failed in {type(self).__name__}, texts are left whole: {cause}"
        _log.warning("%s", message, exc_info=error)
        return _pass_on(ranking, hits, degraded=(message,))


def _pass_on(
    ranking: Ranked,
    hits: Sequence[Hit],
    *,
    detail: str = "",
    reasons: Mapping[HitKey, str] | None = None,
    degraded: tuple[str, ...] = (),
    cut: Sequence[Hit] | None = None,
) -> Ranked:
    """The ranking with these hits; those below the cut are listed as dropped."""
    cut = ranking.hits[len(hits) :] if cut is None else cut
    cut_hits = {hit.key: "below the cut: only the hits of the answer are compressed" for hit in cut}
    return replace(ranking, hits=tuple(hits), detail=detail, dropped={**cut_hits, **(reasons or {})}, degraded=degraded)


def _check(excerpt: Excerpt, hit: Hit, name: str) -> None:
    """Check that the text of an excerpt with spans equals the text at those spans.

    Raises:
        ModelError: it differs.
    """
    text, position = hit.document.text, 0
    for start, end in excerpt.spans:
        if not position <= start < end <= len(text):
            raise ModelError(f"{name} made spans of {hit.id!r:.80} that are out of order or out of its text")
        position = end
    if excerpt.spans and excerpt.text != JOINER.join(text[start:end] for start, end in excerpt.spans):
        raise ModelError(f"{name} made an excerpt of {hit.id!r:.80} that is not in its text")
