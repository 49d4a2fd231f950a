"""Answers to send: `RetrievalContext.to_dict` without what reveals the file system of this machine."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pointsman.values.retrieval_context import RetrievalContext, TraceDetail
    from pointsman.values.types import Hit

NOT_IN_FORCE: Final = "not_in_force"
"""The key under which metadata says why a document does not hold."""
ODDS: Final = "odds"
"""The key under which metadata has the odds of a hit."""
_PATH: Final = re.compile(r"(?<![\w:/.~\-])/(?:[^\s/:;,'\"()<>]+/)+([^\s/:;,'\"()<>]*)")
"""An absolute path that is not the path of a URL; the group is its last part."""
_SERVER: Final = re.compile(r"\b(?!https?:)[a-z][a-z0-9+.\-]*://[^\s'\"()<>;]*[^\s'\"()<>;:,.]")
_PEER: Final = re.compile(r"(?:connection to )?server (?:at|on) \"[^\"]*\"(?: \([^)]*\))?(?:, port \d+)?")
"""The address of a database, as a URL and as in messages of its client library."""


def answer_to_dict(context: RetrievalContext, workspace_path: str, *, trace: TraceDetail = "none") -> dict[str, Any]:
    """Return an answer to send to a client: `RetrievalContext.to_dict` without file system paths.

    Args:
        context: the answer.
        workspace_path: the location of the workspace: the path of a folder, or a URL.
        trace: see `RetrievalContext.to_dict`.
    """
    answer = context.to_dict(trace=trace)
    for hit in hits_of(answer):
        hit["metadata"] = public_metadata(hit["metadata"])
    answer["degraded"] = [without_paths(note, workspace_path) for note in answer["degraded"]]
    for span in answer["trace"]["spans"] if answer["trace"] else ():
        span["error"] = span["error"] and without_paths(span["error"], workspace_path)
    return answer


def hits_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all hits of an answer as `RetrievalContext.to_dict` writes it, with those that a refusal withholds."""
    refused = answer["refused"] or {"nearest": None, "near_misses": []}
    return [*answer["hits"], *refused["near_misses"], *([refused["nearest"]] if refused["nearest"] else [])]


def public_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without the folder that `pointsman index` read; ``source`` names the file within it."""
    root = metadata.get("root")
    private = isinstance(root, str) and "source" in metadata and PurePath(root).is_absolute()
    return {name: value for name, value in metadata.items() if not (private and name == "root")}


def notes_of(hit: Hit) -> dict[str, Any]:
    """Return what an answer says of a hit in forms that know metadata alone.

    That is its odds, if they are known and the document has no value of that name, and why it is not in force.
    """
    notes = {} if hit.odds is None or ODDS in hit.metadata else {ODDS: str(hit.odds)}
    return notes if hit.not_in_force is None else {**notes, NOT_IN_FORCE: str(hit.not_in_force)}


def without_paths(text: str, workspace_path: str) -> str:
    """Reduce absolute paths in a text to their last part, and remove the addresses of databases.

    Args:
        text: for example a note about a failure.
        workspace_path: the location of the workspace: a URL, or a path, possibly with spaces.

    Example:
        >>> without_paths("/srv/a b/datasets/x/documents.sqlite is missing", "/srv/a b")
        '…/documents.sqlite is missing'
        >>> without_paths("postgresql://rail@10.0.0.7:5432/rails does not answer", "/srv/a b")
        'the store does not answer'
    """
    for path in (str(Path(workspace_path).resolve()), workspace_path):
        text = text.replace(path, "/workspace") if PurePath(path).is_absolute() else text
    text = _PEER.sub("the store", _SERVER.sub("the store", text))
    return _PATH.sub(r"…/\1", text)
