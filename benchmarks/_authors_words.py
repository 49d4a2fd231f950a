"""Rows of `authors.py` on what is read: the console's pages, the translations, the page on one's own retrievers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pointsman
from browser import chromium, path_of_chromium, serving, watching
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import create_app

ROOT: Final = Path(__file__).parents[1]
LEFT: Final = re.compile(r"undefined|\bnull\b|NaN|\[object|\{\w+\}")
"""What stands in a text where a part of it was not given."""

VIEWS: Final = ("ask?q=which signal stops", "ask?q=penguins", "compare?q=signal", "datasets?name=notes", "evaluation")


def console_in_three_languages() -> Iterator[tuple[str, bool]]:
    """Row console: a dataset without vectors, in each view and language; no part of a text is left out."""
    script = (ROOT / "src/pointsman/service/console/messages.mjs").read_text("utf-8")
    keys = re.findall(r'^  "?([\w.-]+)"?: \[', script, re.MULTILINE)
    yield f"each of {len(keys)} texts has a key of its own", len(keys) == len(set(keys)) > 200
    path = path_of_chromium()
    if path is None:
        yield "no browser is on this machine", False
        return
    workspace = pointsman.open("ws", embedder=HashingEmbedder())
    workspace.dataset("notes", indexing_technique="keyword").add(
        [Document(str(number), f"Signal {number} stops a train.", {"year": 2000 + number}) for number in range(30)]
    )
    with serving(create_app(workspace)) as base, chromium(path) as browser:
        for lang, letters in (("en-US", "[a-z]"), ("zh-CN", "[\u4e00-\u9fff]"), ("ru-RU", "[а-я]")):
            with watching(browser, base, lang=lang, expected=(409, 422)) as page:
                for view in (
                    "ask?q=which signal stops",
                    "ask?q=penguins",
                    "compare?q=signal",
                    "datasets?name=notes",
                    "evaluation",
                ):
                    page.goto("about:blank")
                    page.goto(f"{base}#{view}", wait_until="networkidle")
                    page.locator("[aria-busy]:visible").wait_for(state="detached")
                    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
                    page.wait_for_timeout(200)
                    text = page.locator("body").inner_text()
                    left = LEFT.findall(text)
                    yield f"{lang}: {view} {' '.join(left)}", not left and bool(re.search(letters, text))


def translations() -> Iterator[tuple[str, bool]]:
    """Delight, all: README and help in Chinese and Russian are kept equal to the English by tests, which pass."""
    for file in ("test_readme_translations.py", "test_cli_help.py"):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / file)]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
        passed = re.match(r"[.\s\[\]\d%]*\Z", answer.stdout) and answer.stdout.count(".")
        yield f"{file}: {passed or answer.stdout}", answer.returncode == 0 and bool(passed)


def page_of_ones_own_retrievers() -> Iterator[tuple[str, bool]]:
    """Delight, 003: the page "evaluate your own retrievers", its code run as printed, and its table."""
    page = (ROOT / "docs/how-to/evaluate-your-own.md").read_text("utf-8")
    yield "the page is in the index", "how-to/evaluate-your-own.md" in (ROOT / "docs/index.md").read_text("utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    command = [sys.executable, "-c", f"{code}\nfrom rich import print\nprint(table)"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    yield "its code runs", answer.returncode == 0
    headings = re.sub(r"\s+", " ", answer.stdout)
    for column in ("nDCG", "Recall", "MRR", "p50", "p95"):
        yield f"its table has {column}", column.lower() in headings.lower()
    row = next((line.split() for line in answer.stdout.splitlines() if line.split()[:1] == ["mine"]), [])
    yield f"its row: {' '.join(row)}", len(row) > 5
