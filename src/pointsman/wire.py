"""The plain form of decisions and explanations: what the HTTP service sends, and its client reads back.

An answer's is `pointsman.types.RetrievalContext.to_dict`; what leaves this machine says nothing of its file system.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from pointsman.errors import InputError
from pointsman.trace import Explanation, Step
from pointsman.types import Decision, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pointsman.types import RetrievalContext, TraceDetail
    from pointsman.workspace import Routing

_PATH: Final = re.compile(r"(?<![\w:/.~\-])/(?:[^\s/:;,'\"()<>]+/)+([^\s/:;,'\"()<>]*)")
"""An absolute path, but not the path of a URL; the group is its last part."""
_SERVER: Final = re.compile(r"\b(?!https?:)[a-z][a-z0-9+.\-]*://[^\s'\"()<>;]*[^\s'\"()<>;:,.]")
_PEER: Final = re.compile(r"(?:connection to )?server (?:at|on) \"[^\"]*\"(?: \([^)]*\))?(?:, port \d+)?")
"""The address of a database, as a URL and as its client library puts it."""


def answer_to_dict(context: RetrievalContext, place: str, *, trace: TraceDetail = "none") -> dict[str, Any]:
    """An answer as it leaves this machine: `RetrievalContext.to_dict` without paths of the file system.

    Args:
        context: the answer.
        place: where the workspace is: the path of a folder, or a URL.
        trace: see `RetrievalContext.to_dict`.
    """
    answer = context.to_dict(trace=trace)
    refused = answer["refused"] or {"nearest": None, "near_misses": []}
    nearest = refused["nearest"]
    for hit in (*answer["results"], *refused["near_misses"], *([nearest] if nearest else [])):
        hit["metadata"] = public_metadata(hit["metadata"])
    answer["degraded"] = [without_paths(note, place) for note in answer["degraded"]]
    for span in answer["trace"]["spans"] if answer["trace"] else ():
        span["error"] = span["error"] and without_paths(span["error"], place)
    return answer


def public_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without the folder that `pointsman index` read a file from; ``source`` names the file within it."""
    root = metadata.get("root")
    private = isinstance(root, str) and "source" in metadata and PurePath(root).is_absolute()
    return {name: value for name, value in metadata.items() if not (private and name == "root")}


def without_paths(text: str, place: str) -> str:
    """A text with only the last part of each absolute path in it, and without the addresses of databases.

    Args:
        text: such as a note about what failed.
        place: of the workspace: a URL, or a path, which may have spaces.

    Example:
        >>> without_paths("/srv/a b/datasets/x/documents.sqlite is missing", "/srv/a b")
        '…/documents.sqlite is missing'
        >>> without_paths("postgresql://rail@10.0.0.7:5432/rails does not answer", "/srv/a b")
        'the store does not answer'
    """
    for path in (str(Path(place).resolve()), place):
        text = text.replace(path, "/workspace") if PurePath(path).is_absolute() else text
    text = _PEER.sub("the store", _SERVER.sub("the store", text))
    return _PATH.sub(r"…/\1", text)


def route_to_dict(route: Routing) -> dict[str, Any]:
    """Three decisions about a query; those that need a workspace are null without one."""
    plan, decision = route.plan, route.decision
    return {
        "query": route.query,
        "router_select": route.heuristic,
        "strategy": plan and plan_to_dict(plan),
        "datasets": decision
        and {
            "chosen": [dataset.name for dataset in decision.datasets],
            "reason": decision.reason,
            "confidence": decision.confidence,
            "scores": {name: float(score) for name, score in decision.scores.items()},
            "fallback": decision.fallback and {"why": decision.fallback.why, "policy": decision.fallback.policy},
        },
    }


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """What a search would do, and why."""
    return {
        "recommended": plan.strategy,
        "reason": plan.reason,
        "confidence": plan.confidence,
        "decisions": [decision._asdict() for decision in plan.decisions],
    }


def plan_from_dict(value: Mapping[str, Any], datasets: tuple[str, ...]) -> Plan:
    """The plan for these datasets that `plan_to_dict` was given.

    Raises:
        KeyError, TypeError: it is something else.
    """
    decisions = tuple(Decision(**decision) for decision in value["decisions"])
    confidence = value["confidence"]
    return Plan(datasets, value["recommended"], value["reason"], decisions=decisions, confidence=confidence)


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
            f"this is not an explanation as explanation_to_dict writes it: {type(error).__name__}: {error}"
        ) from None
