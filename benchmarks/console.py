"""How soon the console shows something, how heavy it is, and what axe-core finds.

    python benchmarks/console.py [--documents N] [--runs N]

The real service over a dataset of documents made up here, and a real Chromium, cold for every run: a link to a question
is opened, and the time until the first hit is painted is taken, beside the time of the same question asked of the API
without a browser. Exit status 1: a bound missed.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the browser and the service in a process of its own

from browser import axe_core, chromium, path_of_chromium
from pointsman import Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.values.types import Document
from server_kit import Served, ask

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BOUND = 500.0  # milliseconds until the first hit is painted, at 10,000 passages
CONSOLE = Path(__file__).parents[1] / "src" / "pointsman" / "service" / "console"
VIEWS = ("ask?q=QUERY", "compare?q=QUERY", "datasets?name=bench", "evaluation")

_PAINTED = """() => new Promise((resolve) => {
  const look = () => {
    if (!document.querySelector(".hit")) return requestAnimationFrame(look);
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now()))); // the frame that shows it is out
  };
  look();
})"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args(arguments)
    path = path_of_chromium()
    if path is None:
        print("this machine has no chromium")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        queries = fill(Path(folder), given.documents)
        with Served(Path(folder)).ready() as served, chromium(path) as browser:
            painted, bare = timed(served, browser, queries, given.runs)
            weight(served)
            found = findings(served, browser, queries[0])
    first, api = statistics.median(painted), statistics.median(bare)
    print(f"{given.documents:,} passages, {given.runs} cold loads:")
    print(f"  first hit painted   median {first:7.1f} ms, slowest {max(painted):7.1f} ms   (bound {BOUND:.0f})")
    print(f"  bare API call       median {api:7.1f} ms, slowest {max(bare):7.1f} ms")
    print(f"  ratio               {first / api:.1f}")
    print(f"axe-core: {found} serious or critical findings in {len(VIEWS)} views, light and dark")
    return int(first > BOUND or found > 0)


def fill(folder: Path, documents: int) -> list[str]:
    """Index documents of made-up words; gives queries for them."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abdeiklmnoprstu", k=chance.randint(3, 9))) for _ in range(6000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    workspace = Workspace(folder, embedder=HashingEmbedder())
    workspace.dataset("bench").add(
        Document(f"d{n}", " ".join(chance.choices(words, weights, k=60)), {"n": n}) for n in range(documents)
    )
    workspace.close()
    return [" ".join(chance.choices(words[50:2000], k=4)) for _ in range(50)]


def timed(served: Served, browser: Browser, queries: list[str], runs: int) -> tuple[list[float], list[float]]:
    """Milliseconds until the first hit is painted, and of the same question over a connection that is open."""
    connection = served.connection()
    painted, bare = [], []
    for query in queries[:runs]:
        body = {"query": query, "refuse": False, "trace": "lists"}
        began = time.perf_counter()
        status, _ = ask(connection, "POST", "/api/search", body)
        bare.append((time.perf_counter() - began) * 1000)
        assert status == 200
        context = browser.new_context()  # nothing is cached
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/#ask?q={query.replace(' ', '+')}&n=0", wait_until="commit")
        painted.append(page.evaluate(_PAINTED))
        context.close()
    return painted, bare


def weight(served: Served) -> None:
    """Print what goes over the wire until the page can be used, and with everything."""
    page = (CONSOLE / "index.html").read_text("utf-8")
    files = sorted(one.name for one in CONSOLE.iterdir() if one.suffix in {".html", ".mjs", ".js", ".css", ".svg"})
    first = [name for name in files if f"console/{name}" in page or name == "index.html"]
    for title, names in (("first load", first), ("everything", files)):
        plain, packed = 0, 0
        for name in names:
            sent = fetched(served, "/" if name == "index.html" else f"/console/{name}")
            packed += len(sent)
            plain += len(gzip.decompress(sent))
        print(f"{title}: {len(names)} files, {packed / 1000:.1f} kB sent ({plain / 1000:.1f} kB unpacked)")


def fetched(served: Served, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        return connection.getresponse().read()
    finally:
        connection.close()


def findings(served: Served, browser: Browser, query: str) -> int:
    """Print what axe-core finds serious or critical in every view; gives how many."""
    count = 0
    for theme in ("light", "dark"):
        context = browser.new_context(color_scheme=theme, bypass_csp=True)
        page: Page = context.new_page()
        page.add_init_script(axe_core())
        for view in VIEWS:
            page.goto(f"http://127.0.0.1:{served.port}/#{view.replace('QUERY', query.replace(' ', '+'))}")
            page.wait_for_load_state("networkidle")
            found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run(document)).violations")
            for one in found:
                if one["impact"] in {"serious", "critical"}:
                    count += len(one["nodes"])
                    print(f"  {view}, {theme}: {json.dumps(one['id'])} {one['nodes'][0]['html'][:100]}")
        context.close()
    return count


if __name__ == "__main__":
    sys.exit(main())
