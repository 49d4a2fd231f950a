"""The plain form of decisions and explanations: what the HTTP service sends, and its client reads back.

Answers have theirs: `pointsman.types.RetrievalContext.to_dict`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pointsman.errors import InputError
from pointsman.trace import Explanation, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pointsman.workspace import Routing


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
