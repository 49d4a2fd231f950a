"""Settings and policy that change while the service runs.

The settings' file and the workspace's policy are looked at once a second, and at once on ``SIGHUP``. What has changed
is read and checked as a whole and then put in the place of the old; what cannot be used is told of in the log, once,
and the old values stay. A worker, or a service on another machine, notices in this way what another one has kept, and
whether the server in which the workspace lives answers.
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
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pointsman.errors import PointsmanError, StoreError, StoreUnavailableError
from pointsman.retrieval.dataset_calibration import CALIBRATION
from pointsman.retrieval.policy import POLICY, measured
from pointsman.settings import CONFIG_VARIABLE, FILE, Settings
from pointsman.store.backend import NEW
from pointsman.store.local.files import file_stamp

if TYPE_CHECKING:
    from pointsman.workspace import Workspace

log = logging.getLogger(__name__)

INTERVAL: Final = 1.0
"""Seconds between two looks at the files."""


@dataclass(frozen=True, slots=True)
class Current:
    """What holds now; replaced as a whole, so whoever has one sees values that belong together.

    Attributes:
        settings: the settings.
        since: when they were read.
        problem: why a newer file is not in use, if there is one; None: everything is as the files say.
    """

    settings: Settings
    since: datetime
    problem: str | None = None


class Reloader:
    """Keeps `Current` and the workspace's policy as the files say.

    Args:
        workspace: whose ``workflow`` gets the policy, unless it has none on purpose.
        settings: those in use so far.
        path: the settings' file; unless given, the one that ``Settings.load`` reads.
        overrides: settings that go before the file, as given to ``Settings.load``.
        on_change: called with new settings before they take the place of the old; when it raises, the old ones stay.
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
        self._looked = monotonic()
        self.store_away = False
        self._policy, self._fitted = workspace.workflow.policy, workspace.workflow.fitted
        self._stamps: tuple[object, str, str] = (file_stamp(self._file), NEW, NEW)
        self._stamps = (self._stamps[0], self._version(POLICY), self._version(CALIBRATION))

    def poll(self) -> Current:
        """What holds now, after a look at the files if the last one is a second ago; some microseconds."""
        if monotonic() - self._looked >= INTERVAL:
            self.check()
        return self.current

    def check(self, *, force: bool = False) -> bool:
        """Look at the files now, and take over what has changed; ``force`` reads them even if nothing has.

        Returns:
            Whether something was taken over.
        """
        with self._guard:
            self._looked = monotonic()
            settings, policy, calibrations = self._stamps
            # Stamps are taken before reading: what changes in between is read again next time.
            self._stamps = (file_stamp(self._file), self._version(POLICY), self._version(CALIBRATION))
            changed = False
            if force or self._stamps[0] != settings:
                changed |= self._attempt("settings", self._take_settings)
            # This process may itself have kept one that another has dropped since, both between two looks.
            if force or self._stamps[1] != policy or self._workspace.workflow.policy is not self._policy:
                changed |= self._attempt(POLICY, self._take_policy)
                self._policy = self._workspace.workflow.policy
            if force or self._stamps[2] != calibrations or self._workspace.workflow.fitted is not self._fitted:
                changed |= self._attempt(CALIBRATION, self._take_calibrations)
                self._fitted = self._workspace.workflow.fitted
            problem = "; ".join(self._problems.values()) or None
            if problem != self.current.problem:
                self.current = replace(self.current, problem=problem)
            return changed

    async def run(self) -> None:
        """Look again and again until cancelled; for a background task."""
        while True:
            await asyncio.sleep(INTERVAL)
            await asyncio.to_thread(self.check)

    @contextmanager
    def on_hangup(self) -> Iterator[None]:
        """Within the block, ``SIGHUP`` makes it look at once; in the main thread's event loop, where there is one."""
        loop = asyncio.get_running_loop()
        waiting: set[asyncio.Future[Any]] = set()

        def hung_up() -> None:
            log.info("SIGHUP: settings and policy are read again")
            job = loop.run_in_executor(None, lambda: self.check(force=True))
            waiting.add(job)  # the loop alone holds it but weakly
            job.add_done_callback(waiting.discard)

        if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop.add_signal_handler(signal.SIGHUP, hung_up)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    def _attempt(self, what: str, take: Callable[[], bool]) -> bool:
        try:
            changed = take()
        except (PointsmanError, OSError, ValueError) as error:
            self._problems[what] = f"{what}: {error}"
            log.error("the new %s cannot be used, the old ones are kept: %s", what, error)  # noqa: TRY400  (a file's fault)
            return False
        self._problems.pop(what, None)
        return changed

    def _version(self, kind: str) -> str:
        """What tells this state of a record from others; the last one while the store is away."""
        try:
            record = self._workspace.backend.record(kind)
        except StoreUnavailableError as error:
            if not self.store_away:
                log.error("not ready: %s", error)  # noqa: TRY400  (no fault of ours)
            self.store_away = True
            return self._stamps[1] if kind == POLICY else self._stamps[2]
        except StoreError as error:
            return f"unreadable: {error}"
        if self.store_away:
            log.info("the store answers again")
        self.store_away = False
        return NEW if record is None else record.version

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
        if workflow.policy is None:  # 'auto' goes by the look of the query, whatever was fitted
            return False
        new = self._workspace.stored_policy() or measured()
        if new == workflow.policy:
            return False
        self._workspace.workflow = replace(workflow, policy=new)
        log.info("the policy has changed: %s", new.name or "unnamed")
        return True

    def _take_calibrations(self) -> bool:
        fitted, workflow = self._workspace.stored_calibrations(), self._workspace.workflow
        if fitted == workflow.fitted:
            return False
        self._workspace.workflow = replace(workflow, fitted=fitted)
        log.info("the calibrations have changed: %s", ", ".join(fitted) or "none")
        return True
