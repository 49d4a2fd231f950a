"""How long `grep` of the MCP server takes over a hundred thousand passages in English, Chinese and Russian.

    python benchmarks/grep.py [PASSAGES]

Passages are the documents of the collections in ``$POINTSMAN_TEST_DATA``, else in ``../shared/data`` beside the
repository, cut at 1,000 characters; where they are too few they come again under other ids with their number in the
text. Patterns are drawn from them by a seeded generator: texts of 2 to 24 characters that stand somewhere and that
stand nowhere, upper and lower case alike and not, and regular expressions with and without words in them.
Exit status 1: the bound is missed.
"""

from __future__ import annotations

import json
import random
import re
import resource
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from time import monotonic, perf_counter

import numpy as np

from _data import DATA
from pointsman import Document, Workspace
from pointsman.integrations.mcp.grep import SECONDS, Pattern, grep, texts_of

BOUND_MS = 100.0
EACH = 100
K = 10
WITHOUT_WORDS = (
    r"\d{4}-\d{2}",
    r"[A-Z]{3,}\d+",
    r"\b[a-z]\d\b",
    r"[«\"][^»\"]{40,60}[»\"]",
    r"^\W*\d+\W*$",
    r"\p{Han}\d{3}",
)
HOSTILE = (r"(a|aa)+$", r"(.*)(.*)(.*)(.*)(.*)zzzzq", r"(x+x+)+y", r"[^\x00]*\x00", "(((a?){30}){5})b", "q{900}")


def passages(count: int) -> Iterator[Document]:
    texts = [
        json.loads(line)["text"][:1000]
        for path in sorted(DATA.glob("*/corpus.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    if not texts:
        sys.exit(f"no collections in {DATA}; set POINTSMAN_TEST_DATA to where they are")
    for number in range(count):
        copy = number // len(texts)
        yield Document(str(number), texts[number % len(texts)] + (f" ({copy})" if copy else ""))


def drawn(texts: list[str]) -> dict[str, list[Pattern]]:
    """Patterns by kind."""
    draw = random.Random(0)
    texts = [text for text in texts if len(text) > 60]

    def snippet(least: int = 2, most: int = 24) -> str:
        text = draw.choice(texts)
        length = draw.randint(least, most)
        start = draw.randrange(len(text) - length)
        return text[start : start + length]

    def word() -> str:
        words: list[str] = re.findall(r"\w{3,}", draw.choice(texts)) or ["the"]
        return re.escape(draw.choice(words)[:12])

    def expression() -> str:
        pattern: str = draw.choice(
            [
                f"{word()}\\s+\\w+\\s+{word()}",
                f"{word()}.{{0,20}}{word()}",
                f"\\b{word()}[a-zа-я]*\\b",
                f"({word()}|{word()}) {word()}",
            ]
        )
        return pattern

    return {
        "texts that are there": [Pattern(snippet()) for _ in range(EACH)],
        "texts that are not": [Pattern(snippet(3, 12) + draw.choice("ξψ☃") + snippet(3, 12)) for _ in range(EACH)],
        "in any case": [Pattern(snippet().swapcase(), ignore_case=True) for _ in range(EACH)],
        "expressions with words": [Pattern(expression(), regex=True) for _ in range(EACH)],
        "expressions without": [Pattern(one, regex=True) for one in WITHOUT_WORDS],
        "hostile expressions": [Pattern(one, regex=True) for one in HOSTILE],
    }


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    documents = list(passages(count))
    with tempfile.TemporaryDirectory() as folder, Workspace(folder) as workspace:
        dataset = workspace.dataset("all", indexing_technique="keyword")
        dataset.add(documents)
        store = dataset.store
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = perf_counter()
        texts = texts_of(store)
        assert texts is not None
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"{count:,} passages, {sum(len(one.text) for one in documents):,} characters")
        megabytes = texts.nbytes / 2**20
        print(
            f"texts read: {perf_counter() - began:.1f} s, {megabytes:.0f} MiB, the process's memory +{grown:.0f} MiB\n"
        )
        print(f"{'patterns':26}{'number':>7}{'p50 ms':>9}{'p95 ms':>9}{'max ms':>9}{'found':>7}{'cut short':>10}")
        usual: list[float] = []
        for kind, patterns in drawn([one.text for one in documents]).items():
            taken, matched, late = [], 0, 0
            for pattern in patterns:
                began = perf_counter()
                try:
                    matched += bool(list(islice(grep(store, texts, pattern, monotonic() + SECONDS), K)))
                except TimeoutError:
                    late += 1
                taken.append((perf_counter() - began) * 1000)
            p50, p95 = np.percentile(taken, [50, 95])
            print(f"{kind:26}{len(taken):7}{p50:9.2f}{p95:9.2f}{max(taken):9.1f}{matched:7}{late:10}", flush=True)
            usual += taken if not kind.startswith("hostile") else []
    p50, p95 = np.percentile(usual, [50, 95])
    print(f"\nall but the hostile ones: p50 {p50:.2f} ms, p95 {p95:.2f} ms (bound {BOUND_MS:g} ms)")
    return 0 if p95 <= BOUND_MS else 1


if __name__ == "__main__":
    sys.exit(main())
