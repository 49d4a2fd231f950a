"""Speed, memory and recall of one dataset by its size: ``python benchmarks/scale.py --passages 100000 1000000``.

Passages are three real sentences in one of three languages; asked are people's own questions, half of them of nine
words and more, and none twice. Vectors are given, 384 dimensions in 2,000 loose clusters; nothing is embedded. Building
runs in one process, serving in another, so that the memory of each is known. Beside the figures stand those of the raw
engines over the same indexes in the same process: tantivy's 166 best hits for the same words, FAISS's scan of all
codes; and all of it again with the instructions of AVX2 alone (``FAISS_OPT_LEVEL``), which most machines have. With
``--directory`` the datasets are kept there, and built only once. With ``--processor-time`` all times are those of the
processor, of all threads together, as on one core: on a busy machine only they and ratios mean anything. With
``--peers`` other stores hold the same passages and vectors and are asked the same questions; see `_scale_peers` for how
each is set.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from _passages import CHUNK, VectorOfText, passages, people_questions, questions, vectors
from _peers import ask_peer
from _scale_peers import PEERS

DATASET = "passages"
ASKED = 160
TANTIVY, FAISS = "tantivy alone, 166 best hits", "FAISS alone, all codes"
BY_LIST = "FAISS alone, all codes, list by list"
SCANS = {FAISS: 0, BY_LIST: 11}  # FAISS's numbers (``implem``): what it chooses unless told otherwise; for one query
AT_ONCE = 5 * CHUNK
STRATEGIES = {"BM25": "bm25", "vectors": "vector", "hybrid": "hybrid", "auto": "auto"}
FILTERS = {
    "50 %": "share < 500",
    "33 %": "share < 330",
    "10 %": "share < 100",
    "3 %": "share < 30",
    "1 %": "share < 10",
    ".1 %": "share < 1",
    "all but .1 %": "share != 7",
    "another language than most questions": 'language == "zh"',
}
SEARCHES: dict[str, dict[str, Any]] = {
    **{name: {"strategy": strategy} for name, strategy in STRATEGIES.items()},
    **{f"auto, filter: {name}": {"filters": each} for name, each in FILTERS.items()},
}


clock = perf_counter


def milliseconds(function: Callable[[], Any]) -> float:
    """Return how long a call takes, by the `clock`."""
    began = clock()
    function()
    return (clock() - began) * 1000


def percentiles(calls: Sequence[Callable[[], Any]]) -> str:
    """Return p50 and p95 of the calls, in milliseconds."""
    p50, p95 = np.percentile([milliseconds(call) for call in calls], [50, 95])
    return f"{p50:.1f} / {p95:.1f}"


def build(folder: Path, count: int) -> dict[str, Any]:
    """Build the dataset; return what that took."""
    import pointsman

    taken, peak = 0.0, 0
    with pointsman.open(folder, embedder=VectorOfText()) as workspace, ExitStack() as ending:
        dataset = workspace.dataset(DATASET)
        ending.enter_context(dataset.writing())
        for start in range(0, count, AT_ONCE):
            size = min(AT_ONCE, count - start)
            documents, rows = list(passages(size, start)), vectors(size, start)
            taken += milliseconds(partial(dataset.add, documents, vectors=rows)) / 1000
            peak = max(peak, memory()["Anonymous"])
        taken += milliseconds(ending.close) / 1000
        peak = max(peak, memory()["Anonymous"])
    return {
        "build, passages/s": round(count / taken),
        "build, peak MB with pages of files": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "build, peak MB without": peak,
    }


def serve(folder: Path, count: int) -> dict[str, Any]:
    """Open the dataset, search, and change it; return what each took."""
    import pointsman

    figures: dict[str, Any] = {}
    began = clock()
    workspace = pointsman.open(folder, embedder=VectorOfText())
    dataset = workspace.dataset(DATASET)
    dataset.count()
    figures["open, ms"] = (clock() - began) * 1000
    first, misspelt, filtered = questions(3, "first")
    slip = f"{misspelt} informaiton retreival"
    figures["first search, ms"] = milliseconds(partial(workspace.search, first, k=10))
    figures["first search with unknown words, ms"] = milliseconds(partial(workspace.search, slip, k=10))
    figures["first search with a filter, ms"] = milliseconds(
        partial(workspace.search, filtered, k=10, filters=FILTERS["50 %"])
    )
    supply = people_questions("scale")
    for name, options in SEARCHES.items():
        calls = [partial(workspace.search, question, k=10, **options) for question in islice(supply, ASKED)]
        figures[name] = percentiles(calls)
    figures |= bare_engines(folder, list(islice(supply, ASKED)))
    use = memory()
    figures["serving, MB with pages of files"], figures["serving, MB without"] = use["Rss"], use["Anonymous"]
    status = workspace.status(DATASET)
    figures["disk, MB"] = status["bytes"] // 10**6
    figures |= {f"of it {part}": size // 10**6 for part, size in status["bytes_by_part"].items() if size > 10**6}
    fresh = vectors(30, 10**7)
    documents = [pointsman.Document(f"fresh-{n}", text, {"share": 1}) for n, text in enumerate(questions(30, "fresh"))]
    figures["add one"] = percentiles(
        [partial(dataset.add, [document], vectors=fresh[n : n + 1]) for n, document in enumerate(documents)]
    )
    figures["delete one"] = percentiles([partial(dataset.delete, [document.id]) for document in documents])
    figures["recall@10 of the vector list"] = recall(dataset, count)
    return figures


def bare_engines(folder: Path, asked: list[str]) -> dict[str, str]:
    """Return what tantivy alone takes for the words of the questions, and FAISS alone to scan all codes."""
    import faiss
    import tantivy

    from pointsman.store.bm25 import query_terms
    from pointsman.store.local.keyword.keyword_state import term_query

    [directory] = [path.parent for path in folder.rglob("meta.json") if path.parent.name == "keyword"]
    searcher = tantivy.Index.open(str(directory)).searcher()
    queries = [
        tantivy.Query.boolean_query([(tantivy.Occur.Should, term_query(term)) for term in query_terms(text)])
        for text in asked
    ]
    figures = {TANTIVY: percentiles([partial(searcher.search, query, 166, count=False) for query in queries])}
    if codes := list(folder.rglob("*.codes")):
        faiss.omp_set_num_threads(1)
        index = faiss.read_index(str(codes[0]))
        lists: Any = faiss.downcast_index(faiss.extract_index_ivf(index))
        lists.nprobe = lists.nlist
        rows = VectorOfText().embed_queries(asked)
        for scan, number in SCANS.items():
            lists.implem = number  # the file has the one that Pointsman scans by
            figures[scan] = percentiles([partial(index.search, rows[n : n + 1], 1000) for n in range(len(rows))])
    return figures


def ratios(figures: dict[str, Any]) -> dict[str, str]:
    """Return the figures of searches over those of the raw engines that they rest on, one after the other."""
    if FAISS not in figures:
        return {}
    raw = {name: np.array(figures[name].split(" / "), float) for name in (*STRATEGIES, TANTIVY, *SCANS)}
    over = {"BM25, over tantivy": raw["BM25"] / raw[TANTIVY]}
    for scan in SCANS:
        over[f"vectors, over {scan}"] = raw["vectors"] / raw[scan]
        over[f"auto, over tantivy and {scan}"] = raw["auto"] / (raw[TANTIVY] + raw[scan])
    return {name: "{:.2f} / {:.2f}".format(*ratio) for name, ratio in over.items()}


def memory() -> dict[str, int]:
    """Return what this process has in memory by kind, in MB: ``Anonymous`` is what is of no file."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) // 1024 for line in lines}


def recall(dataset: Any, count: int) -> float:
    """Return the share of the ten nearest passages that the vector list has."""
    asked = VectorOfText().embed_queries(questions(50, "recall"))
    return _share(nearest(asked, count), [_numbers(dataset.search_vector(row, 10)) for row in asked])


def nearest(asked: Any, count: int) -> list[list[int]]:
    """Return the numbers of the ten nearest passages to each vector, by an exact scan over all vectors."""
    best, numbers = np.full((len(asked), 10), -1.0, np.float32), np.zeros((len(asked), 10), np.int64)
    for start in range(0, count, CHUNK):
        rows = vectors(min(CHUNK, count - start), start)
        scores = np.hstack([best, asked @ rows.T])
        every = np.hstack([numbers, np.broadcast_to(np.arange(start, start + len(rows)), (len(asked), len(rows)))])
        top = np.argpartition(-scores, 10, axis=1)[:, :10]
        best, numbers = np.take_along_axis(scores, top, 1), np.take_along_axis(every, top, 1)
    nearest_numbers: list[list[int]] = numbers.tolist()
    return nearest_numbers


def _numbers(hits: Any) -> list[int]:
    return [int(hit.id.removeprefix("passage-")) for hit in hits]


def _share(exact: list[list[int]], lists: list[list[int]]) -> float:
    return float(np.mean([len({*right} & {*numbers}) / 10 for right, numbers in zip(exact, lists, strict=True)]))


def compare(folder: Path, count: int) -> dict[str, Any]:
    """Ask this dataset and all peers the same questions; return what each took and found of the exact lists."""
    import pointsman
    from pointsman.text import DEFAULT_ANALYZER

    asked = questions(103, "peers")
    rows = VectorOfText().embed_queries(asked)
    with tempfile.TemporaryDirectory(prefix="pointsman-peers-", dir=folder.parent) as scratch:
        shared = Path(scratch) / "shared"
        shared.mkdir()
        _write_passages(shared, count)
        (shared / "questions.json").write_text(
            json.dumps([" ".join(DEFAULT_ANALYZER.query_tokens(text)) for text in asked])
        )
        np.save(shared / "asked.npy", rows)
        asked, rows = asked[:-3], rows[:-3]
        exact_near = nearest(rows, count)
        with pointsman.open(folder, embedder=VectorOfText()) as workspace:
            dataset = workspace.dataset(DATASET)
            for warming in questions(3, "warming"):
                workspace.search(warming, k=10, strategy="hybrid")
            taken = [milliseconds(partial(workspace.search, text, k=10, strategy="hybrid")) for text in asked]
            near = [_numbers(dataset.search_vector(row, 10)) for row in rows]
            exact_lexical = [_numbers(workspace.search(text, k=10, strategy="bm25")) for text in asked]
        figures = {"hybrid, Pointsman": _beside(taken, _share(exact_near, near), 1.0)}
        for name, (packages, code) in PEERS.items():
            place = Path(scratch) / name
            key = name.lower().replace(" ", "-")
            answer = ask_peer(key, packages, code, str(shared), str(place), timeout=7200)
            shutil.rmtree(place, ignore_errors=True)
            if answer is None:
                figures[f"hybrid, {name}"] = "could not be had"
                continue
            shares = _share(exact_near, answer["near"]), _share(exact_lexical, answer["lexical"])
            figures[f"hybrid, {name}"] = _beside(answer["ms"], *shares)
            cost = f"{count / answer['built']:.0f}/s, {answer['disk']} MB, {answer['resident']} MB"
            figures[f"build, disk and memory, {name}"] = cost
    return figures


def _beside(taken: list[float], share_near: float, share_lexical: float) -> str:
    p50, p95 = np.percentile(taken, [50, 95])
    return f"{p50:.1f} / {p95:.1f}, {share_near:.3f} and {share_lexical:.3f} of the exact lists"


def _write_passages(folder: Path, count: int) -> None:
    from pointsman.text import DEFAULT_ANALYZER

    rows = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (count, VectorOfText.dimensions))
    with (folder / "texts.txt").open("w") as texts, (folder / "words.txt").open("w") as words:
        for start in range(0, count, CHUNK):
            size = min(CHUNK, count - start)
            rows[start : start + size] = vectors(size, start)
            for document in passages(size, start):
                texts.write(" ".join(document.text.split()) + "\n")
                words.write(" ".join(DEFAULT_ANALYZER.tokens(document.text)) + "\n")


STEPS = {"build": build, "serve": serve, "compare": compare}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--passages", type=int, nargs="+", default=[10_000, 100_000])
    arguments.add_argument("--directory", type=Path, help="keep the datasets here")
    arguments.add_argument("--step", choices=tuple(STEPS), help=argparse.SUPPRESS)
    arguments.add_argument("--processor-time", action="store_true", help="of all threads, in place of time that passes")
    arguments.add_argument("--peers", action="store_true", help="ask other stores the same")
    options = arguments.parse_args()
    if options.processor_time:
        global clock  # noqa: PLW0603
        clock = process_time
    if options.step:
        sys.stdout.write("\n" + json.dumps(STEPS[options.step](options.directory, options.passages[0])))
        return
    compileall.compile_dir(Path(__file__).resolve().parents[1] / "src", quiet=1)  # as where pip has installed it
    with tempfile.TemporaryDirectory(prefix="pointsman-scale-") as scratch:
        root = options.directory or Path(scratch)
        report({count: measure(root / str(count), count, peers=options.peers) for count in options.passages})


def measure(folder: Path, count: int, *, peers: bool = False) -> dict[str, Any]:
    """Return all figures of one size; what building took is kept beside the dataset."""
    built = folder.with_suffix(".json")
    if not built.exists():
        figures = _in_process("build", folder, count)
        built.write_text(json.dumps(figures))
    served, by_avx2 = _in_process("serve", folder, count), _in_process("serve", folder, count, FAISS_OPT_LEVEL="AVX2")
    searched = (*SEARCHES, TANTIVY, *SCANS)
    figures = json.loads(built.read_text()) | served | ratios(served)
    figures |= {f"AVX2: {name}": by_avx2[name] for name in searched if name in by_avx2}
    figures |= {f"AVX2: {name}": figure for name, figure in ratios(by_avx2).items()}
    return {**figures, **(_in_process("compare", folder, count) if peers else {})}


def _in_process(step: str, folder: Path, count: int, **environment: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--step", step, "--directory", str(folder), "--passages", str(count)]
    command += ["--processor-time"] if clock is process_time else []
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    *remarks, last = finished.stdout.splitlines()
    sys.stderr.write("".join(f"{remark}\n" for remark in remarks if remark))
    figures: dict[str, Any] = json.loads(last)
    return figures


def report(by_size: dict[int, dict[str, Any]]) -> None:
    """Print a table with a column for each size."""
    from rich.console import Console
    from rich.table import Table

    table = Table("p50 / p95 in ms, unless said otherwise", *(f"{size:,}" for size in by_size))
    for name in dict.fromkeys(name for figures in by_size.values() for name in figures):
        table.add_row(name, *(_shown(figures.get(name, "")) for figures in by_size.values()))
    Console().print(table)


def _shown(figure: Any) -> str:
    return (f"{figure:.3g}" if figure < 100 else f"{figure:.0f}") if isinstance(figure, float) else str(figure)


if __name__ == "__main__":
    main()
