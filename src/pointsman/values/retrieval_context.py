"""What a search returns: hits best first, the plan that was carried out, the trace, and whether it was refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, overload

from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.tools.json_forms import form_of, of_form
from pointsman.tools.system.locations import distinct_endings
from pointsman.values.reasons import Reason, Statement, language_of, reason_of
from pointsman.values.trace import Explanation, Trace
from pointsman.values.types import Decision, Hit, Plan, Query, Refusal, with_ranks

if TYPE_CHECKING:
    from pointsman.values.answer_check import AnswerCheck
    from pointsman.values.citations import Style


TraceDetail = Literal["none", "stages", "lists"]
"""How much of a trace is included in an answer: nothing, every stage with its time, or every ranking too."""


TRACE_DETAILS: Final = ("none", "stages", "lists")


NEAREST: Final = Reason.of("nearest")
"""The heading above the near misses of a refused answer."""

UNSURE: Final = Reason.of("unsure")
"""The heading above the hits of an answer whose verdict is unsure."""

Verdict = Literal["answered", "unsure", "refused"]
"""Whether an answer was found; see `RetrievalContext.verdict`."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A question that was probably misspelt.

    Attributes:
        text: the probable correction; the answer is for this text.
        instead: the question as written; ``spelling=False`` searches for exactly that.
        both: the correction may be wrong, so the question as written was searched as well.
    """

    text: str
    instead: str
    both: bool = False


def with_places(hits: tuple[Hit, ...], question: str) -> tuple[Hit, ...]:
    """Return the hits of an answer with what they need to say where they are.

    Captions name those files that would look alike, and citations of passages that span pages the page of the sentence
    that answers; see `citations.answer_span`.

    >>> from pointsman.values.types import Document
    >>> hits = tuple(Hit(Document(source, "Text", {"source": source}), 1.0) for source in ("pa/a.md", "pb/a.md"))
    >>> [hit.caption for hit in with_places(hits, "text")]
    ['pa/a.md', 'pb/a.md']
    """
    if any("page_break" in hit.metadata for hit in hits):
        from pointsman.values.citations import answer_span

        hits = tuple(replace(hit, answer=answer_span(hit.document, question)) for hit in hits)
    documents = {source: hit.document for hit in hits if isinstance(source := hit.metadata.get("source"), str)}
    if len(documents) < 2:
        return hits
    from pointsman.values.citations import name_of

    names = {source: name_of(document) for source, document in documents.items()}
    counts = Counter(names.values())
    endings = distinct_endings(source for source, name in names.items() if counts[name] > 1)
    files = [endings.get(str(hit.metadata.get("source"))) for hit in hits]
    return tuple(replace(hit, file_name=file) if file else hit for hit, file in zip(hits, files, strict=True))


@dataclass(frozen=True, slots=True)
class RetrievalContext:
    """The answer to a search: hits, best first, and how they were found.

    Attributes:
        query: the query that was searched, after transformation.
        hits: best first; empty if ``refused`` is set.
        plan: where and how it was searched, and why.
        trace: every stage.
        refused: set if nothing found is relevant enough.
        degraded: everything that did not work as asked, and what was done instead; empty for a full answer.
        asked: the original question; None if unknown.
        confidence: the relevance of the most relevant hit; for a refused answer, of its near misses. None if none of
            them has one.
        spelling: set if words of the question were corrected.
        coverage: the requested probability of an answer among the hits, if it can be guaranteed; else None, and
            ``degraded`` says why.
        receipt: what `Workspace.replay` gives the same answer for later; None unless a dataset that was searched keeps
            versions.
    """

    query: Query
    hits: tuple[Hit, ...]
    plan: Plan
    trace: Trace
    refused: Refusal | None = None
    degraded: tuple[str, ...] = ()
    asked: Query | None = None
    confidence: float | None = None
    spelling: Spelling | None = None
    coverage: float | None = None
    receipt: str | None = None

    FORM: ClassVar = (
        *("query", "asked", "hits", "verdict", "refused", "confidence", "coverage", "spelling", "strategy"),
        *("strategy_confidence",),
        *("reranked", "milliseconds", "reason", "reasons", "datasets", "weights", "decisions", "degraded", "receipt"),
        "trace",
    )

    def __repr__(self) -> str:
        """Return a short text: a document may be long, and a log line must not be."""
        ids = ", ".join(repr(hit.id) for hit in self.hits[:5])
        ellipsis = f", … {len(self.hits) - 5} more" if len(self.hits) > 5 else ""
        state = f", refused={self.refused.reason!r}" if self.refused else ""
        return f"RetrievalContext({self.query.text!r:.80}, [{ids}{ellipsis}], strategy={self.plan.strategy!r}{state})"

    @property
    def verdict(self) -> Verdict | None:
        """Whether an answer was found: ``"answered"``, ``"unsure"`` or ``"refused"``.

        ``"answered"``: the first hit is at least a possible answer (`Hit.odds`); where one question in four has no
        answer, 91 to 98 % of such hits are right in a folder of files alone, 83 to 100 % in one of strangers
        (``benchmarks/verdicts.py``). ``"unsure"``: the hits are the nearest ones, but none is surely an answer.
        ``"refused"``: the answer is surely elsewhere, so there are no hits. None: the
        first hit cannot be judged, or nothing was asked to be refused and there are no hits.
        """
        if self.refused is not None:
            return "refused"
        odds = self.hits[0].odds if self.hits else None
        return None if odds is None else "unsure" if odds == "nearest" else "answered"

    @property
    def heading(self) -> str | None:
        """The sentence above the passages that says so if they are not surely an answer; None if there is no need."""
        passages = self.refused.near_misses if self.refused else self.hits
        heading = {"unsure": UNSURE, "refused": NEAREST}.get(self.verdict or "") if passages else None
        return heading and heading.in_language(self.language)

    @property
    def strategy(self) -> str:
        """The strategy used."""
        return self.plan.strategy

    @property
    def strategy_confidence(self) -> float | None:
        """The confidence in the choice of strategy, 0 to 1; 1 if the request named it, None if unknown."""
        return self.plan.confidence

    @property
    def reason(self) -> str:
        """Why these datasets and this strategy were chosen."""
        return self.plan.reason

    @property
    def reasons(self) -> tuple[Statement, ...]:
        """The statements of the reason, with their codes."""
        return Reason(self.plan.reason).statements

    @property
    def language(self) -> str:
        """The language of the reasons: that of the question, as far as there are words for it; see `language_of`."""
        return language_of((self.asked or self.query).text)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets searched."""
        return self.plan.datasets

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights of the lists in the fusion, by list name; 1 for those not named."""
        return self.plan.weights

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions about the search, with their origins."""
        return self.plan.decisions

    @property
    def milliseconds(self) -> float:
        """Duration of the search, to the microsecond."""
        return round(self.trace.milliseconds, 3)

    @property
    def reranked(self) -> bool:
        """Whether a reranker ordered the answer."""
        return any(span.stage == "rerank" and span.error is None for span in self.trace.spans) or any(
            contribution.source == "rerank" for hit in self.hits for contribution in hit.provenance
        )

    def to_prompt(self, max_tokens: int = 3000, style: Style = "quoted") -> str:
        """Return the hits as numbered sources for a language model; see `pointsman.values.citations.to_prompt`.

        If the answer is refused, these are its near misses. If the verdict is not ``"answered"``, a line above says so.

        Args:
            max_tokens: approximate limit for the whole text; a source that does not fit is cut at the end of a
                sentence, or omitted.
            style: ``"quoted"`` or ``"xml"``.

        Raises:
            InputError: the style is unknown, or ``max_tokens`` is below 1.
        """
        from pointsman.values.citations import about_tokens, to_prompt

        passages = self.refused.near_misses if self.refused else self.hits
        if (heading := self.heading) is None:
            return to_prompt(passages, max_tokens=max_tokens, style=style)
        remaining = max(1, max_tokens - about_tokens(heading) - 1) if isinstance(max_tokens, int) else max_tokens
        return f"{heading}\n\n{to_prompt(passages, max_tokens=remaining, style=style)}".rstrip()

    def verify(self, answer: str, *, timeout: float | None = None) -> AnswerCheck:
        """Look up every quote and number of a model's answer in the sources of `to_prompt`.

        See `pointsman.values.answer_check.verify`.

        Args:
            answer: at most 200,000 characters.
            timeout: in seconds; None means no limit.

        Raises:
            InputError: the answer is longer, or could not be checked in time.
        """
        from pointsman.values.answer_check import verify

        return verify(answer, self.hits or (self.refused.near_misses if self.refused else ()), timeout=timeout)

    def to_dict(self, *, trace: TraceDetail = "none") -> dict[str, Any]:
        """Return the answer as plain JSON values, under the names of its attributes.

        Every interface answers in this form, and a web framework can return it.

        Args:
            trace: how much of the trace is included: nothing, every stage with its time, or every ranking too.

        Raises:
            UnknownNameError: ``trace`` is none of `TRACE_DETAILS`.
        """
        if trace not in TRACE_DETAILS:
            raise UnknownNameError("detail of a trace", str(trace), TRACE_DETAILS)
        return form_of(
            self,
            query=self.query.text,
            asked=self.query.text if self.asked is None else self.asked.text,
            hits=with_ranks(self.hits),
            trace=None if trace == "none" else self.trace.to_dict(lists=trace == "lists"),
        )

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], query: Query | None = None) -> Self:
        """Build an answer from the output of `to_dict`; it explains like the original.

        Args:
            value: the output of `to_dict`.
            query: the original query, for filters and history, which the output omits.

        Raises:
            InputError: the value is invalid.
        """
        try:
            question = query or Query(value["asked"])
            refused = value["refused"] and Refusal.from_dict(value["refused"])
            form = {
                **value,
                "query": Query(value["query"], question.filters, question.history),
                "hits": with_places(tuple(map(Hit.from_dict, value["hits"])), question.text),
                "plan": of_form(
                    Plan, {**value, "reason": reason_of(value), "confidence": value["strategy_confidence"]}
                ),
                "trace": Trace.from_dict(value["trace"] or {"spans": ()}),
                "refused": refused and replace(refused, near_misses=with_places(refused.near_misses, question.text)),
                "asked": question,
            }
            return of_form(cls, form)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not an answer as to_dict writes it: {type(error).__name__}: {error}") from None

    def explain(self, document_id: str, dataset: str | None = None) -> Explanation:
        """Explain why a document has its rank, or is missing; see `Trace.explain`."""
        return self.trace.explain(document_id, dataset)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def __len__(self) -> int:
        return len(self.hits)


class Hits(list[Hit]):
    """A list of hits with its trace; retrievers that combine others return it.

    Attributes:
        trace: every stage.
        degraded: what did not work as asked; empty for a full answer.
    """

    def __init__(self, hits: Iterable[Hit] = (), trace: Trace | None = None, degraded: tuple[str, ...] = ()) -> None:
        super().__init__(hits)
        self.trace, self.degraded = trace or Trace(), degraded

    @classmethod
    def of(cls, context: RetrievalContext) -> Hits:
        """Return the hits of an answer."""
        return Hits(context.hits, context.trace, context.degraded)
