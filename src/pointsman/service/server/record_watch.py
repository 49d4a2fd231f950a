"""Notices what other processes store for the workspace that is served, and whether its server answers.

The policy and the calibrations are checked once a second, so a worker, or a service on another machine, follows what
another one has fitted. A record that cannot be used is logged once, and the old values stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.judge.kept_calibrations import CALIBRATION
from pointsman.retrieval.plan.policy import POLICY, measured
from pointsman.store.backend import NEW
from pointsman.tools.errors import PointsmanError, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from pointsman.workspace.workspace_search import Workspace

log = logging.getLogger(__name__)

INTERVAL: Final = 1.0
"""Seconds between two checks."""
_ANSWER_SECONDS: Final = 1.0
"""Seconds after which a server that has not answered the check counts as away, although the check goes on."""


class RecordWatch:
    """Keeps a workspace's policy and calibrations up to date with its records.

    Args:
        workspace: its ``workflow`` gets them; the policy only unless it has none on purpose.

    Attributes:
        store_away: whether the workspace's server does not answer.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._versions = {POLICY: NEW, CALIBRATION: NEW}
        self._values = {POLICY: workspace.workflow.policy, CALIBRATION: workspace.workflow.fitted}
        self.store_away = False
        self._versions = {kind: self._version(kind) for kind in self._versions}

    def check(self) -> None:
        """Check the records now, and use what has changed."""
        workspace = self._workspace
        if workspace.workflow.policy is not None:  # else 'auto' judges by the query's form alone
            self._update(POLICY, "policy", lambda: workspace.stored_policy() or measured())
        self._update(CALIBRATION, "fitted", workspace.stored_calibrations)

    async def run(self) -> None:
        """Check repeatedly until cancelled; for a background task."""
        while True:
            await asyncio.sleep(INTERVAL)
            check = asyncio.create_task(asyncio.to_thread(self.check))
            await asyncio.wait({check}, timeout=_ANSWER_SECONDS)
            if not check.done() and self._workspace.backend.is_remote:
                self._is_away(f"{self._workspace.place} has not answered for {_ANSWER_SECONDS:g} s")
            await check

    def _update(self, kind: str, field: str, read: Callable[[], Any]) -> None:
        """Read a record into a field of the workflow if either is another one than at the last check."""
        workspace = self._workspace
        version = self._version(kind)  # taken before reading: what changes in between is read again next time
        value = getattr(workspace.workflow, field)
        # Between two checks, this process may have stored a value that another one has deleted since.
        if version == self._versions[kind] and value is self._values[kind]:
            return
        self._versions[kind] = version
        try:
            new_value = read()
        except (PointsmanError, OSError, ValueError) as error:
            log.error("the new %s cannot be used, the old one is kept: %s", kind, error)  # noqa: TRY400  (a file's fault)
        else:
            if new_value != value:
                workspace.workflow = replace(workspace.workflow, **{field: new_value})
                log.info("another process has changed the %s", kind)
        self._values[kind] = getattr(workspace.workflow, field)

    def _version(self, kind: str) -> str:
        """Return what identifies the version of a record; the last one known while the store is unavailable."""
        try:
            record = self._workspace.backend.record(kind)
        except StoreUnavailableError as error:
            self._is_away(str(error))
            return self._versions[kind]
        except StoreError as error:
            return f"unreadable: {error}"
        if self.store_away:
            log.info("the store answers again")
        self.store_away = False
        return NEW if record is None else record.version

    def _is_away(self, reason: str) -> None:
        if not self.store_away:
            log.error("not ready: %s", reason)
        self.store_away = True
