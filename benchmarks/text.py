"""Measures the analyser: BM25 nDCG@10 with its tokens on the development data, and its speed.

Run: ``python benchmarks/text.py [--fast]``. The data are read from ``$POINTSMAN_TEST_DATA``, else ``../shared/data``.
BM25 is the exact Lucene formula, k1 = 1.2, b = 0.75, over title and text; nothing is tuned on these collections.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import statistics
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import ir_measures
import numpy as np
from ir_measures import nDCG

from _data import DATA
from pointsman.text import DEFAULT_ANALYZER, Analyzer, detect, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOORS = {
    "en_scifact": 0.679,
    "en_cranfield": 0.360,
    "en_cacm": 0.499,
    "zh_domainrag": 0.413,
    "ru_faq_java": 0.652,
    "en_wikiqa": 0.478,
    "en_xquad": 0.96,
    "zh_xquad": 0.96,
    "ru_xquad": 0.96,
    "zh_cmrc2018": 0.979,
    "xl_debian_ru": 0.787,
    "mh_hotpotqa": 0.789,
    "tool_ultratool_zh_dev": 0.678,
}
K1, B = 1.2, 0.75


def rows(name: str, part: str) -> Iterator[dict[str, Any]]:
    with (DATA / name / f"{part}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def judgments(name: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    with (DATA / name / "qrels.tsv").open(encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            query, document, grade = line.split("\t")
            found.setdefault(query, {})[document] = int(grade)
    return {query: grades for query, grades in found.items() if max(grades.values()) > 0}


def bm25_ndcg(name: str, analyzer: Analyzer) -> float:
    """NDCG@10 of exact BM25, ties broken by document order."""
    documents = list(rows(name, "corpus"))
    ids = [document["_id"] for document in documents]
    counts = [Counter(analyzer.tokens(f"{document['title']}\n{document['text']}")) for document in documents]
    lengths = np.array([counter.total() for counter in counts], dtype=np.float64)
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    postings: dict[str, list[tuple[int, int]]] = {}
    for number, counter in enumerate(counts):
        for token, count in counter.items():
            postings.setdefault(token, []).append((number, count))
    judged = judgments(name)
    run: dict[str, dict[str, float]] = {}
    for query in rows(name, "queries"):
        if query["_id"] not in judged:
            continue
        scores = np.zeros(len(ids))
        for token, weight in Counter(analyzer.query_tokens(query["text"])).items():
            if token in postings:
                places, frequencies = np.array(postings[token]).T
                idf = math.log(1 + (len(ids) - len(places) + 0.5) / (len(places) + 0.5))
                scores[places] += weight * idf * frequencies / (frequencies + norms[places])
        best = np.argsort(-scores, kind="stable")[:10]
        run[query["_id"]] = {ids[i]: float(scores[i]) for i in best if scores[i] > 0}
    return float(ir_measures.calc_aggregate([nDCG @ 10], judged, run)[nDCG @ 10])


def microseconds(action: Callable[[str], object], texts: list[str]) -> float:
    """Processor time of the best of eight rounds, per text; the first one warms up."""
    best = math.inf
    for _ in range(8):
        start = time.thread_time()
        for text in texts:
            action(text)
        best = min(best, (time.thread_time() - start) / len(texts) * 1e6)
    return best


def peers(language: str) -> dict[str, Callable[[str], object]]:
    """What one would write without us: a regular expression and Snowball; jieba for Chinese, where installed."""
    from Stemmer import Stemmer  # type: ignore[import-not-found]

    if language == "zh":
        pairs = re.compile(r"(?=(\w\w))")
        found: dict[str, Callable[[str], object]] = {
            "regex pairs": lambda text: re.findall(r"\w", text) + pairs.findall(text)
        }
        if importlib.util.find_spec("jieba"):
            import jieba  # type: ignore[import-not-found,import-untyped,unused-ignore]

            found["jieba"] = jieba.lcut
        return found
    name = "english" if language == "en" else "russian"
    plain, cached = Stemmer(name, 0), Stemmer(name)
    word = re.compile(r"\w+")
    return {
        "regex + Snowball": lambda text: plain.stemWords(word.findall(text.lower())),
        "the same, its own cache": lambda text: cached.stemWords(word.findall(text.lower())),
    }


def speed() -> None:
    samples = {
        "en": [" ".join(row["text"].split()[:80]) for row in rows("en_scifact", "corpus")][:1000],
        "ru": [" ".join(row["text"].split()[:80]) for row in rows("ru_xquad", "corpus")],
        "zh": [row["text"][:200] for row in rows("zh_cmrc2018", "corpus")][:1000],
    }
    print(f"{'passages of 80 words / 200 characters':40}{'µs each':>9}{'MB/s':>8}{'peer/ours':>11}")
    for language, texts in samples.items():
        size = statistics.mean(len(text.encode()) for text in texts)
        ours = microseconds(DEFAULT_ANALYZER.tokens, texts)
        print(f"{language} Analyzer.tokens{'':23}{ours:>8.1f}{size / ours:>8.1f}")
        for name, peer in peers(language).items():
            theirs = microseconds(peer, texts)
            print(f"{language} {name:37}{theirs:>8.1f}{size / theirs:>8.1f}{theirs / ours:>11.2f}")
        for function in (sentences, detect):
            took = microseconds(function, texts)
            print(f"{language} {function.__name__:37}{took:>8.1f}{size / took:>8.1f}")


def quality() -> None:
    print(f"{'BM25 nDCG@10':24}{'ours':>8}{'floor':>8}{'difference':>12}")
    differences = []
    for name, floor in FLOORS.items():
        reached = bm25_ndcg(name, DEFAULT_ANALYZER)
        differences.append(reached - floor)
        flag = "" if differences[-1] >= -0.01 else "  below"
        print(f"{name:24}{reached:>8.4f}{floor:>8.3f}{differences[-1]:>+12.4f}{flag}", flush=True)
    print(f"{'mean difference':40}{statistics.mean(differences):>+12.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="measure speed only")
    arguments = parser.parse_args()
    speed()
    if not arguments.fast:
        quality()
