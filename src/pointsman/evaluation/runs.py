"""Evaluations that are kept in a workspace, for whoever wants to see how it gets on."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from pointsman.evaluation.report import Report

log = logging.getLogger(__name__)

FOLDER: Final = "evaluations"
MOST: Final = 50
"""Runs that are read; older ones stay on disk."""


def keep(workspace: Path, report: Report, *, now: datetime | None = None) -> Path:
    """Keep what an evaluation found in the folder of a workspace; returns the file."""
    from pointsman.store.local.files import make_directory, replacing

    time = now or datetime.now(UTC)
    folder = workspace / FOLDER
    make_directory(folder)
    path = folder / f"{time:%Y%m%dT%H%M%S.%f}.json"
    with replacing(path) as file:
        file.write(json.dumps({"time": time.isoformat(timespec="seconds"), **report.to_json()}).encode())
    return path


def kept(workspace: Path, most: int = MOST) -> list[dict[str, Any]]:
    """The latest evaluations as `Report.to_json` gave them, with their ``time``, newest first.

    A file that cannot be read is left out, and the log says so.
    """
    found: list[dict[str, Any]] = []
    files = (path for path in (workspace / FOLDER).glob("*.json") if path.is_file())  # reading a pipe would not end
    for path in sorted(files, reverse=True)[:most]:
        try:
            run = json.loads(path.read_text("utf-8"))
            if not isinstance(run, dict) or not isinstance(run.get("strategies"), dict):
                raise ValueError("it has no strategies")  # noqa: TRY004  (of the file, not of an argument)
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s is no evaluation: %s", path, error)
            continue
        found.append(run)
    return found
