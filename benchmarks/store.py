"""Speed and memory of the stores at 100,000 passages: ``python benchmarks/store.py [--passages 100000]``.

Passages of some 80 words are made of the shuffled sentences of real collections (``POINTSMAN_TEST_DATA``, else
``../shared/data``); vectors are random, clustered, of 384 dimensions. Everything compared is measured in the same run,
so the ratios hold on any machine; absolute times are those of this one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import tantivy
from rich.console import Console
from rich.table import Table

from pointsman import Dataset, Document, parse_filter
from pointsman.text import DEFAULT_ANALYZER
from pointsman.values.types import Query

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIMENSIONS = 384
QUERIES = 200
WORDS = 80
FILTERS = {"1 %": "bucket == 7", "10 %": "bucket < 10", "50 %": "bucket < 50"}


class LookUp:
    """An embedder whose vectors are given, so that embedding is not measured."""

    name = "benchmark"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self.vectors = unit(np.random.default_rng(1).standard_normal((512, DIMENSIONS)))

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """By the length of the text, which is enough here."""
        return self.vectors[[len(text) % 512 for text in texts]]

    embed_documents = embed_queries


def unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def passages(count: int, seed: int = 1) -> list[Document]:
    root = Path(os.environ.get("POINTSMAN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    sentences = []
    for path in sorted(root.glob("en_*/corpus.jsonl")):
        for line in path.open(encoding="utf-8"):
            sentences += re.split(r"(?<=[.!?])\s+", json.loads(line)["text"])
    if not sentences:
        sys.exit(f"no collections at {root}; set POINTSMAN_TEST_DATA")
    return [
        Document(f"passage-{number}", text, {"source": f"file-{number % 997}", "bucket": number % 100})
        for number, text in zip(range(count), _joined(sentences, random.Random(seed)), strict=False)
    ]


def _joined(sentences: list[str], chance: random.Random) -> Iterator[str]:
    while True:
        chance.shuffle(sentences)
        words: list[str] = []
        for sentence in sentences:
            words += sentence.split()
            if len(words) >= WORDS:
                yield " ".join(words)
                words = []


def clustered(count: int) -> NDArray[np.float32]:
    chance = np.random.default_rng(2)
    centres = chance.standard_normal((1000, DIMENSIONS)).astype(np.float32)
    noise = chance.standard_normal((count, DIMENSIONS), dtype=np.float32)
    return unit(centres[chance.integers(0, 1000, count)] + 0.7 * noise)


def queries(documents: Sequence[Document], words: int) -> list[str]:
    """Questions of so many distinct content words, each out of one passage."""
    chance = random.Random(words)
    found: list[str] = []
    while len(found) < QUERIES:
        known: dict[str, str] = {}
        for word in chance.choice(documents).text.split():
            tokens = DEFAULT_ANALYZER.query_tokens(word)
            if len(tokens) == 1 and len(tokens[0]) > 3:
                known.setdefault(tokens[0], word)
        if len(known) >= words:
            found.append(" ".join(chance.sample(list(known.values()), words)))
    return found


def p50(function: Callable[[Any], Any], items: Sequence[Any]) -> float:
    """Median milliseconds over the items, after one round to warm up."""
    function(items[0])
    taken = []
    for item in items:
        began = perf_counter()
        function(item)
        taken.append((perf_counter() - began) * 1000)
    return median(taken)


def alternating(one: Callable[[Any], Any], other: Callable[[Any], Any], items: Sequence[Any]) -> tuple[float, float]:
    """Median milliseconds of two functions taking turns, each the best of three: a busy machine disturbs little."""
    taken: tuple[list[float], list[float]] = ([], [])
    for item in items:
        best = [float("inf")] * 2
        for _ in range(3):
            for place, function in enumerate((one, other)):
                began = perf_counter()
                function(item)
                best[place] = min(best[place], (perf_counter() - began) * 1000)
        for times, least in zip(taken, best, strict=True):
            times.append(least)
    return median(taken[0]), median(taken[1])


class Bare:
    """tantivy with nothing around it: a prebuilt boolean query, the search, the keys of the ten hits."""

    def __init__(self, directory: Path) -> None:
        index = tantivy.Index.open(str(directory))
        self.schema, self.searcher = index.schema, index.searcher()

    def query(self, text: str) -> tantivy.Query:
        """Built before the clock starts."""
        should = tantivy.Occur.Should
        terms = dict.fromkeys(DEFAULT_ANALYZER.query_tokens(text))
        return tantivy.Query.boolean_query(
            [(should, tantivy.Query.term_query(self.schema, "body", term, index_option="freq")) for term in terms]
        )

    def search(self, query: tantivy.Query) -> list[Any]:
        """The keys of the best ten."""
        hits = self.searcher.search(query, 10, count=False).hits
        return list(self.searcher.fast_field_values("key", [address for _, address in hits]))


def fresh_process(path: Path, text: str) -> None:
    """What ``--fresh`` runs in a process of its own: open, search once each way, print."""
    began = perf_counter()
    embedder = LookUp()
    dataset = Dataset("passages", path=path, embedder=embedder)
    dataset.make()
    opened = perf_counter()
    words = dataset.retriever("bm25").retrieve(text, 10)
    keyword = perf_counter()
    near = dataset.retriever("vector").retrieve(text, 10)
    vector = perf_counter()
    assert words
    assert near
    retriever = dataset.retriever("hybrid")
    for number in range(300):
        retriever.retrieve(f"{text} {number}", 10)
    figures = {
        "open": opened - began,
        "keyword": keyword - opened,
        "vector": vector - keyword,
        "total": vector - began,
        "rss": psutil.Process().memory_info().rss / 1e6,
    }
    sys.stdout.write(json.dumps(figures))


def row(table: Table, what: str, figure: str, reach: str = "", met: bool | None = None) -> None:
    table.add_row(what, figure, reach, "" if met is None else "[green]yes" if met else "[red]no")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--passages", type=int, default=100_000)
    arguments.add_argument("--directory", type=Path, help="keep the dataset here")
    arguments.add_argument("--fresh", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--query", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.fresh:
        fresh_process(options.fresh, options.query)
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        measure(options.passages, Path(folder) / "passages")


def measure(count: int, path: Path) -> None:
    table = Table("what", "figure", "reach", "met", title=f"{count:,} passages of {WORDS} words")
    documents, vectors = passages(count), clustered(count)
    by_length = {words: queries(documents, words) for words in (3, 6, 15)}
    dataset = Dataset("passages", path=path, embedder=LookUp())

    began, worked = perf_counter(), process_time()
    dataset.add(documents, vectors=vectors)
    taken, worked = perf_counter() - began, process_time() - worked
    speed = count / taken
    row(
        table,
        "bulk add, embeddings given",
        f"{speed:,.0f}/s ({worked / count * 1e6:.0f} µs CPU each)",
        ">= 10,000/s",
        speed >= 1e4,
    )

    keyword(table, dataset, path, by_length)
    retriever = dataset.retriever("hybrid")
    hybrid = p50(lambda query: retriever.retrieve(query, 10), by_length[6])
    row(table, "hybrid, p50 of 6-word queries", f"{hybrid:.2f} ms", "<= 5 ms", hybrid <= 5)
    near = dataset.retriever("vector")
    row(table, "vector, p50", f"{p50(lambda query: near.retrieve(query, 10), by_length[6]):.2f} ms")
    words = dataset.retriever("bm25")
    for share, expression in FILTERS.items():
        asked = [Query(text, parse_filter(expression)) for text in by_length[6]]
        figures = [p50(partial(each.retrieve, top_k=10), asked) for each in (words, near, retriever)]
        row(
            table,
            f"filtered, {share} allowed: keyword / vector / hybrid",
            " / ".join(f"{f:.2f}" for f in figures) + " ms",
        )

    changes(table, dataset, documents)
    peer(table, documents, by_length[6], p50(lambda query: words.retrieve(query, 10), by_length[6]))
    dataset.close()
    command = [sys.executable, __file__, "--fresh", str(path), "--query", by_length[6][0]]
    fresh = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    steps = ", ".join(f"{step} {fresh[step]:.2f}" for step in ("open", "keyword", "vector"))
    detail = f"{fresh['total']:.2f} s: {steps}"
    row(table, "opening, fresh process, to both first results", detail, "< 0.5 s", fresh["total"] < 0.5)
    row(table, "resident memory while searching", f"{fresh['rss']:.0f} MB", "< 600 MB", fresh["rss"] < 600)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
    row(table, "on disk", f"{size:.0f} MB")
    Console().print(table)


def keyword(table: Table, dataset: Dataset, path: Path, by_length: dict[int, list[str]]) -> None:
    bare, ours = Bare(path / "keyword"), dataset.retriever("bm25")
    pairs = []
    for words, texts in by_length.items():
        items = [(text, bare.query(text)) for text in texts]
        own, alone = alternating(lambda item: ours.retrieve(item[0], 10), lambda item: bare.search(item[1]), items)
        pairs.append(items)
        row(table, f"keyword, {words} words: ours / tantivy, p50", f"{own:.3f} / {alone:.3f} ms = {own / alone:.2f}")
    items = [item for three in zip(*pairs, strict=True) for item in three]
    own, alone = alternating(lambda item: ours.retrieve(item[0], 10), lambda item: bare.search(item[1]), items)
    row(
        table,
        "keyword, all three together",
        f"{own:.3f} / {alone:.3f} ms = {own / alone:.2f}",
        "<= 1.5",
        own / alone <= 1.5,
    )


def changes(table: Table, dataset: Dataset, documents: Sequence[Document]) -> None:
    """A thousand documents added and deleted, each until it shows in a search."""
    vectors = clustered(1000)
    fresh = [Document(f"fresh-{number}", f"zyxwv{number} {documents[number].text}", {}) for number in range(1000)]
    words = dataset.retriever("bm25")
    began = perf_counter()
    dataset.add(fresh, vectors=vectors)
    assert words.retrieve("zyxwv999", 1)
    added = perf_counter()
    dataset.delete([document.id for document in fresh])
    assert not words.retrieve("zyxwv999", 1)
    deleted = perf_counter()
    row(
        table,
        "1,000 documents until visible: add / delete",
        f"{(added - began) * 1e3:.0f} / {(deleted - added) * 1e3:.0f} ms",
    )
    one = p50(lambda document: dataset.add([document], vectors=vectors[:1]), fresh[:20])
    row(table, "one document, durable and visible, p50", f"{one:.1f} ms")


def peer(table: Table, documents: Sequence[Document], texts: Sequence[str], ours: float) -> None:
    from rank_bm25 import BM25Okapi

    other = BM25Okapi([DEFAULT_ANALYZER.tokens(document.text) for document in documents])

    def search(text: str) -> Any:
        return np.argpartition(other.get_scores(DEFAULT_ANALYZER.query_tokens(text)), -10)[-10:]

    theirs = p50(search, texts[:10])
    ratio = theirs / ours
    row(table, "rank-bm25, same tokens, p50", f"{theirs:.0f} ms = {ratio:.0f} times ours", ">= 100 times", ratio >= 100)


if __name__ == "__main__":
    main()
