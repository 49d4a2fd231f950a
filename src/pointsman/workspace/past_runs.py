"""Keeps evaluations in a workspace, to show how its quality develops."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pointsman.store.backend import Backend

log = logging.getLogger(__name__)

EVALUATIONS: Final = "evaluations"
"""The kind of the records."""
MAX_RUNS: Final = 50
"""Maximum number of runs that are read; older ones are kept but not read."""


def keep(backend: Backend, report: Mapping[str, Any], *, time_of_run: datetime | None = None) -> None:
    """Save an evaluation, in its JSON form, as a record of a workspace; in a folder, a file in ``evaluations``."""
    time = time_of_run or datetime.now(UTC)
    value = {"time": time.isoformat(timespec="seconds"), **report}
    backend.put_record(EVALUATIONS, f"{time:%Y%m%dT%H%M%S.%f}", json.dumps(value))


def latest(backend: Backend, limit: int = MAX_RUNS) -> list[dict[str, Any]]:
    """Return the latest evaluations, newest first, in the form in which they were saved, with their ``time``.

    Unreadable records are skipped and logged.
    """
    runs: list[dict[str, Any]] = []
    for name, load in backend.latest_records(EVALUATIONS, limit):
        try:
            run = json.loads(load())
            if not isinstance(run, dict) or not isinstance(run.get("strategies"), dict):
                raise ValueError("it has no strategies")  # noqa: TRY004  (about the file, not an argument)
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s is not an evaluation: %s", name, error)
            continue
        runs.append(run)
    return runs
