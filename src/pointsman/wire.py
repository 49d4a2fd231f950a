"""The plain form of answers: what the HTTP service sends, what its client and the other programs read back.

Every function takes or gives values that JSON can hold. `context_from_dict` is the inverse of `context_to_dict`, so an
answer that went over a wire explains itself as the original does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Literal

from pointsman.errors import InputError
from pointsman.trace import Explanation, Step, Trace
from pointsman.types import Document, Excerpt, Hit, Plan, Provenance, Query, Refusal, RetrievalContext

if TYPE_CHECKING:
    from pointsman.workspace import Routing

TraceDetail = Literal["none", "stages", "lists"]
"""How much of the trace goes along: nothing, every stage with its time, or every ranking too."""

TRACE_DETAILS: Final = ("none", "stages", "lists")


def hit_to_dict(rank: int, hit: Hit) -> dict[str, Any]:
    """A hit; ``text`` is what to read: the excerpt where there is one."""
    excerpt = hit.excerpt
    return {
        "rank": rank,
        "id": hit.id,
        "score": float(hit.score),
        "dataset": hit.dataset,
        "title": hit.document.title,
        "text": hit.text,
        "metadata": dict(hit.metadata),
        "provenance": [way._asdict() for way in hit.provenance],
        "excerpt": excerpt and {"spans": [list(span) for span in excerpt.spans], "full_text": hit.document.text},
    }


def hit_from_dict(value: Mapping[str, Any]) -> Hit:
    """The hit that `hit_to_dict` was given."""
    excerpt = value.get("excerpt")
    text = value["text"] if excerpt is None else excerpt["full_text"]
    return Hit(
        Document(value["id"], text, value["metadata"]),
        value["score"],
        value["dataset"],
        tuple(Provenance(**way) for way in value["provenance"]),
        excerpt and Excerpt(value["text"], tuple((start, end) for start, end in excerpt["spans"])),
    )


def refusal_to_dict(refusal: Refusal) -> dict[str, Any]:
    """A refusal, with the nearest hit."""
    return {
        "reason": refusal.reason,
        "nearest": refusal.nearest and hit_to_dict(1, refusal.nearest),
        "score": refusal.score,
        "threshold": refusal.threshold,
        "scale": refusal.scale,
    }


def refusal_from_dict(value: Mapping[str, Any]) -> Refusal:
    """The refusal that `refusal_to_dict` was given."""
    nearest = value["nearest"]
    return Refusal(
        value["reason"], nearest and hit_from_dict(nearest), value["score"], value["threshold"], value["scale"]
    )


def was_reranked(context: RetrievalContext) -> bool:
    """Whether a reranker has ordered the answer."""
    return any(span.stage == "rerank" and span.error is None for span in context.trace.spans) or any(
        way.source == "rerank" for hit in context.hits for way in hit.provenance
    )


def context_to_dict(
    context: RetrievalContext, *, confidence: float | None = None, trace: TraceDetail = "none"
) -> dict[str, Any]:
    """An answer, under the names of I7 and some more.

    Args:
        context: the answer.
        confidence: how sure the choice of the strategy is.
        trace: how much of the trace goes along.
    """
    plan = context.plan
    return {
        "results": [hit_to_dict(rank, hit) for rank, hit in enumerate(context.hits, 1)],
        "strategy_used": plan.strategy,
        "reranking_applied": was_reranked(context),
        "performance": {"latency_ms": round(context.trace.milliseconds, 3), "strategy_confidence": confidence},
        "query": context.query.text,
        "reason": plan.reason,
        "datasets": list(plan.datasets),
        "weights": {name: float(weight) for name, weight in plan.weights.items()},
        "refused": context.refused and refusal_to_dict(context.refused),
        "degraded": list(context.degraded),
        "trace": None if trace == "none" else context.trace.to_dict(lists=trace == "lists"),
    }


def context_from_dict(value: Mapping[str, Any], query: Query | None = None) -> RetrievalContext:
    """The answer that `context_to_dict` was given.

    Args:
        value: its form.
        query: what was asked, for what the form leaves out: filters and history.

    Raises:
        InputError: it is something else.
    """
    try:
        asked = query or Query("")
        refused = value["refused"]
        return RetrievalContext(
            Query(value["query"], asked.filters, asked.history),
            tuple(hit_from_dict(hit) for hit in value["results"]),
            Plan(tuple(value["datasets"]), value["strategy_used"], value["reason"], dict(value["weights"])),
            Trace.from_dict(value["trace"] or {"spans": ()}),
            refused and refusal_from_dict(refused),
            tuple(value["degraded"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"this is no answer as context_to_dict gives it: {type(error).__name__}: {error}") from None


def route_to_dict(route: Routing) -> dict[str, Any]:
    """Three decisions about a query; those that need a workspace are null without one."""
    plan, decision = route.plan, route.decision
    return {
        "query": route.query,
        "router_select": route.heuristic,
        "strategy": plan and {"recommended": plan.strategy, "reason": plan.reason},
        "datasets": decision
        and {
            "chosen": [dataset.name for dataset in decision.datasets],
            "reason": decision.reason,
            "confidence": decision.confidence,
            "scores": {name: float(score) for name, score in decision.scores.items()},
            "fallback": decision.fallback and {"why": decision.fallback.why, "policy": decision.fallback.policy},
        },
    }


def explanation_to_dict(explanation: Explanation) -> dict[str, Any]:
    """Why a document is where it is."""
    return asdict(explanation)


def explanation_from_dict(value: Mapping[str, Any]) -> Explanation:
    """The explanation that `explanation_to_dict` was given.

    Raises:
        InputError: it is something else.
    """
    try:
        steps = tuple(Step(**step) for step in value["steps"])
        return Explanation(value["id"], value["dataset"], value["rank"], value["verdict"], steps)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"this is no explanation as explanation_to_dict gives it: {type(error).__name__}: {error}"
        ) from None
