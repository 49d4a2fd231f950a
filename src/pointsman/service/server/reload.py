"""Reloads settings and policy while the service runs.

The settings file and the workspace's policy are checked once a second, and at once on ``SIGHUP``. Changes are read and
validated as a whole before they replace the old values; if they are invalid, this is logged once and the old values
stay. In this way a worker, or a service on another machine, notices what another one has stored, and whether the
server of the workspace answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.judge.kept_calibrations import CALIBRATION
from pointsman.retrieval.plan.policy import POLICY, measured
from pointsman.store.backend import NEW
from pointsman.store.local.files_and_locks import file_stamp
from pointsman.tools.errors import PointsmanError, StoreError, StoreUnavailableError
from pointsman.values.setting_sources import CONFIG_VARIABLE, FILE
from pointsman.values.settings import Settings

if TYPE_CHECKING:
    from pointsman.workspace.workspace_search import Workspace

log = logging.getLogger(__name__)

INTERVAL: Final = 1.0
"""Seconds between two checks of the files."""
_ANSWER_SECONDS: Final = 1.0
"""Seconds after which a server that has not answered the check counts as away, although the check goes on."""


@dataclass(frozen=True, slots=True)
class Current:
    """The values in use; replaced as a whole, so that readers see values that belong together.

    Attributes:
        settings: the settings.
        start_time: when they were read.
        problem: why a newer file is not in use; None if everything is as in the files.
    """

    settings: Settings
    start_time: datetime
    problem: str | None = None


class Reloader:
    """Keeps `Current` and the workspace's policy up to date with the files.

    Args:
        workspace: its ``workflow`` gets the policy, unless it has none on purpose.
        settings: the settings in use so far.
        path: the settings file; by default the one that ``Settings.load`` reads.
        overrides: settings with priority over the file, as for ``Settings.load``.
        on_change: called with new settings before they replace the old ones; if it raises, the old ones stay.
        environ: the environment.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        path: str | Path | None = None,
        *,
        overrides: Mapping[str, Any] | None = None,
        on_change: Callable[[Settings], None] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        self._workspace, self._path, self._environ = workspace, path, environ
        self._overrides, self._on_change = dict(overrides or {}), on_change
        self._file = Path(path or environ.get(CONFIG_VARIABLE, "").strip() or FILE)
        self.current = Current(settings, datetime.now(UTC))
        self._problems: dict[str, str] = {}
        self._guard = threading.Lock()
        self.store_away = False
        self._policy, self._calibrations = workspace.workflow.policy, workspace.workflow.fitted
        self._stamps: tuple[object, str, str] = (file_stamp(self._file), NEW, NEW)
        self._stamps = (self._stamps[0], self._version(POLICY), self._version(CALIBRATION))

    def check(self, *, force: bool = False) -> bool:
        """Check the files now and apply what has changed; ``force`` reads them even if nothing has changed.

        Returns:
            Whether anything was applied.
        """
        with self._guard:
            settings, policy, calibrations = self._stamps
            # Stamps are taken before reading: what changes in between is read again next time.
            self._stamps = (file_stamp(self._file), self._version(POLICY), self._version(CALIBRATION))
            is_changed = False
            if force or self._stamps[0] != settings:
                is_changed |= self._attempt("settings", self._take_settings)
            # Between two checks, this process may have stored a policy that another one has deleted since.
            if force or self._stamps[1] != policy or self._workspace.workflow.policy is not self._policy:
                is_changed |= self._attempt(POLICY, self._take_policy)
                self._policy = self._workspace.workflow.policy
            if force or self._stamps[2] != calibrations or self._workspace.workflow.fitted is not self._calibrations:
                is_changed |= self._attempt(CALIBRATION, self._take_calibrations)
                self._calibrations = self._workspace.workflow.fitted
            problem = "; ".join(self._problems.values()) or None
            if problem != self.current.problem:
                self.current = replace(self.current, problem=problem)
            return is_changed

    async def run(self) -> None:
        """Check repeatedly until cancelled; for a background task."""
        while True:
            await asyncio.sleep(INTERVAL)
            check = asyncio.create_task(asyncio.to_thread(self.check))
            await asyncio.wait({check}, timeout=_ANSWER_SECONDS)
            if not check.done() and self._workspace.backend.is_remote:
                self._is_away(f"{self._workspace.place} has not answered for {_ANSWER_SECONDS:g} s")
            await check

    @contextmanager
    def on_hangup(self) -> Iterator[None]:
        """Within the block, check at once on ``SIGHUP`` if the platform has it; for the main thread's event loop."""
        loop = asyncio.get_running_loop()
        waiting: set[asyncio.Future[Any]] = set()

        def hung_up() -> None:
            log.info("SIGHUP: settings and policy are read again")
            job = loop.run_in_executor(None, lambda: self.check(force=True))
            waiting.add(job)  # the loop holds only a weak reference to it
            job.add_done_callback(waiting.discard)

        if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop.add_signal_handler(signal.SIGHUP, hung_up)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    def _attempt(self, subject: str, take: Callable[[], bool]) -> bool:
        try:
            is_changed = take()
        except (PointsmanError, OSError, ValueError) as error:
            self._problems[subject] = f"{subject}: {error}"
            log.error("the new %s cannot be used, the old ones are kept: %s", subject, error)  # noqa: TRY400  (a file's fault)
            return False
        self._problems.pop(subject, None)
        return is_changed

    def _version(self, kind: str) -> str:
        """Return what identifies the version of a record; the last one known while the store is unavailable."""
        try:
            record = self._workspace.backend.record(kind)
        except StoreUnavailableError as error:
            self._is_away(str(error))
            return self._stamps[1] if kind == POLICY else self._stamps[2]
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

    def _take_settings(self) -> bool:
        new = Settings.load(self._path, self._environ, **self._overrides)
        if new == self.current.settings:
            return False
        if self._on_change is not None:
            self._on_change(new)
        names = sorted(name for name in new.origins if getattr(new, name) != getattr(self.current.settings, name))
        self.current = Current(new, datetime.now(UTC))
        log.info("settings have changed: %s", ", ".join(names))
        return True

    def _take_policy(self) -> bool:
        workflow = self._workspace.workflow
        if workflow.policy is None:  # 'auto' judges by the query's form alone, even if a policy was fitted
            return False
        new = self._workspace.stored_policy() or measured()
        if new == workflow.policy:
            return False
        self._workspace.workflow = replace(workflow, policy=new)
        log.info("the policy has changed: %s", new.name or "unnamed")
        return True

    def _take_calibrations(self) -> bool:
        calibrations, workflow = self._workspace.stored_calibrations(), self._workspace.workflow
        if calibrations == workflow.fitted:
            return False
        self._workspace.workflow = replace(workflow, fitted=calibrations)
        log.info("the calibrations have changed: %s", ", ".join(calibrations) or "none")
        return True
