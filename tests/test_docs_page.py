"""`/docs`, the description of the API by which requests can be tried, in a real browser against the real service."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from browser import serving, watching
from pointsman import Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import create_app
from pointsman.service.server.access.api_keys import keys_of
from pointsman.service.server.routes.console_page import swagger_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from pointsman.service.server.access.api_keys import KeyStore


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "work", embedder=HashingEmbedder())
    workspace.dataset("rails").add([Document("a", "the rail is straight"), Document("b", "a red signal lamp")])
    return workspace


@pytest.fixture
def keys(workspace: Workspace) -> KeyStore:
    return keys_of(workspace.backend)


@pytest.fixture
def base(workspace: Workspace) -> Iterator[str]:
    with serving(create_app(workspace)) as address:
        yield address


def search(page: Page) -> str:
    """Send the request of a search, and return the body of the answer."""
    operation = page.locator("#operations-search-search")
    operation.locator(".opblock-summary-control").click()
    operation.locator("textarea").fill(json.dumps({"query": "red signal", "k": 1, "refuse": False}))
    operation.locator("button.execute").click()
    answer = operation.locator(".live-responses-table .highlight-code").first
    answer.wait_for()
    return answer.locator("pre, code").first.inner_text()


def test_all_operations_are_shown_and_one_can_be_sent(browser: Browser, base: str) -> None:
    document = httpx.get(f"{base}api/openapi.json").json()
    operations = [(method, path) for path, methods in document["paths"].items() for method in methods]
    with watching(browser, base) as page:  # any request to another place, and any breach of the policy, is a fault
        page.goto(f"{base}docs")
        page.locator(".opblock").first.wait_for()
        blocks = [tuple(text.split("\n")[:2]) for text in page.locator(".opblock-summary-control").all_inner_texts()]
        assert sorted((method.lower(), path.replace("\u200b", "")) for method, path in blocks) == sorted(operations)
        assert json.loads(search(page))["hits"][0]["id"] == "b"
        assert page.locator("form").first.is_hidden()


def test_a_service_with_keys_asks_for_one(browser: Browser, base: str, keys: KeyStore) -> None:
    key = keys.create("me", scopes=("read",)).text
    with watching(browser, base, expected=(401,)) as page:
        page.goto(f"{base}docs")
        page.locator("input[name=key]").fill("wrong")
        page.get_by_role("button", name="Use it").click()
        page.get_by_role("alert").get_by_text("key").wait_for()
        assert page.locator(".opblock").count() == 0
        page.locator("input[name=key]").fill(key)
        page.get_by_role("button", name="Use it").click()
        assert json.loads(search(page))["hits"][0]["id"] == "b", "the key of this tab is sent"
        assert page.get_by_role("alert").first.inner_text() == ""


def test_the_page_may_load_its_own_parts_alone(base: str) -> None:
    policies = set()
    for path in ("docs", "console/swagger-ui-bundle.js", "console/swagger-ui.css", "console/docs.mjs"):
        answer = httpx.get(base + path, headers={"Accept-Encoding": "gzip"})
        assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip")
        policies.add(answer.headers["content-security-policy"])
    assert policies == {httpx.get(base).headers["content-security-policy"]}
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policies.pop()
    assert httpx.get(f"{base}console/redoc.standalone.js").status_code == 404
    assert httpx.get(f"{base}docs/").status_code == 404


def test_without_the_package_the_answer_names_it(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    swagger_files.cache_clear()
    monkeypatch.setitem(sys.modules, "fastapi_offline", None)
    answer = httpx.get(f"{base}console/swagger-ui.css")
    assert answer.status_code == 503
    assert "pip install 'pointsman[server]'" in answer.json()["detail"]
