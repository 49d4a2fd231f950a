"""A real browser in front of the real service, for tests and measurements of the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any

from serving import serving as served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page
    from starlette.types import ASGIApp

WAIT = 60.0  # seconds; machines are busy
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def path_of_chromium() -> str | None:
    """The browser that this machine has; None: none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """The browser, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


def axe_core() -> str:
    """The script that finds what keeps people out."""
    return resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")


def expect(locator: Locator) -> Any:
    """What is said of it is looked at again and again until it holds: one part of a page comes before another."""
    from playwright.sync_api import expect as assertions

    assertions.set_options(timeout=WAIT * 1000)
    return assertions(locator)


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """The application on a port of its own; gives the address of its first page."""
    with served(app) as address:
        yield f"{address}/"


class Watched:
    """A page, and everything that should not have happened on it.

    Args:
        page: which.
        base: the service's address; a request to anything else is a fault.
    """

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.faults: list[str] = []
        self.expected: set[int] = set()  # statuses that the test provokes
        page.set_default_timeout(WAIT * 1000)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("request", lambda request: self._request(request.url))
        page.on("response", lambda response: self._response(response.status, response.url))
        page.on("dialog", self._dialog)
        page.add_init_script(
            "window.violations = [];"
            "document.addEventListener('securitypolicyviolation', (event) => window.violations.push("
            "`${event.violatedDirective} ${event.blockedURI}`));"
        )

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.faults.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, url: str) -> None:
        if not url.startswith((self.base, "data:")):
            self.faults.append(f"a request to {url}")

    def _response(self, status: int, url: str) -> None:
        if status >= 400 and status not in self.expected:
            self.faults.append(f"{status} of {url}")

    def check(self) -> None:
        """Nothing has gone wrong so far: no error, no request to anybody else, no violation of the policy."""
        faults, self.faults = self.faults, []
        assert not faults
        assert not self.page.evaluate("window.violations ?? []")
        assert self.page.title() != "owned"


@contextmanager
def watching(browser: Browser, base: str, *, axe: bool = False, lang: str = "en-US", theme: str = "light",
             width: int = 1280, height: int = 800, expected: tuple[int, ...] = ()) -> Iterator[Page]:  # fmt: skip
    """A page on which nothing may happen that should not."""
    context = browser.new_context(
        locale=lang, color_scheme=theme, viewport={"width": width, "height": height}, bypass_csp=axe  # type: ignore[arg-type]
    )  # fmt: skip
    try:
        page = Watched(context.new_page(), base)
        page.expected = set(expected)
        yield page.page
        page.check()
    finally:
        context.close()
