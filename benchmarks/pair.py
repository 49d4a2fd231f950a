"""Two commits side by side on their hot paths: ``python benchmarks/pair.py [BASE] [--questions 60]``.

HEAD is the source tree as it is, BASE another commit (by default the one before), checked out into a temporary
directory. Each has its own process and a copy, just made, of a dataset of 100,000 passages that its own code has built;
they answer the same questions in turn, so that a busy machine slows both. All questions are cold: none is asked twice.
Vectors are given; only the last row embeds. The dataset of BASE is kept in the cache directory for the next run.

``--indexing`` compares how long each side takes to index texts of three languages instead, in processor time;
``--files FOLDER`` how long it takes to cut the files below a folder into passages, by format, of those that both sides
can read, the quickest of three rounds for each file.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import IO, Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[1]
PASSAGES = 100_000
SLOWER = 1.1  # the ratio above which a path is marked
KEPT = 3  # datasets of other commits kept in the cache
DATASET = "passages"
FILTERS = {"filtered 50 %": "share < 500", "filtered 1 %": "share < 10"}
INDEXED = {
    "en": ("mh_hotpotqa", 1500),
    "zh": ("zh_cmrc2018", 600),
    "ru": ("ru_xquad", 240),
    "long": ("mh_hotpotqa", 3900),
}
EMBEDDED = 60  # texts of each language that are indexed with vectors, too
STRATEGIES: dict[str, Any] = {"words": "bm25", "vectors": "vector", "hybrid": "hybrid", "auto": "auto"}


# ── one side, in a process of its own ────────────────────────────────────────────────────────────────────────────────


def timed(function: Callable[[], Any], clock: Callable[[], float] = perf_counter) -> float:
    """Return the milliseconds that a call takes."""
    began = clock()
    function()
    return (clock() - began) * 1000


def build(folder: Path, passages: int) -> None:
    """Build the workspace."""
    import pointsman
    from _passages import VectorOfText
    from _passages import passages as documents
    from _passages import vectors as rows

    with pointsman.open(folder, embedder=VectorOfText()) as workspace:
        workspace.dataset(DATASET).add(list(documents(passages)), vectors=rows(passages))


def start(folder: Path, question: str) -> dict[str, float]:
    """Return the milliseconds to import, to open and to answer first; called once per process."""
    began = perf_counter()
    import pointsman

    imported = perf_counter()
    from _passages import VectorOfText

    ready = perf_counter()
    workspace = pointsman.open(folder, embedder=VectorOfText())
    workspace.dataset(DATASET).count()
    opened = perf_counter()
    workspace.search(question, k=10)
    answered = perf_counter()
    return {
        "import": (imported - began) * 1000,
        "open": (opened - ready) * 1000,
        "first search": (answered - opened) * 1000,
    }


class UnreadError(Exception):
    """A side stores nothing of a file."""


def serve(folder: Path) -> None:
    """Carry out the orders on standard input, ``[path, question, number]`` in JSON, and print the milliseconds."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed must not be taken for an answer
    carry_out = _calls(folder)
    for line in sys.stdin:
        path, question, number = json.loads(line)
        call = carry_out(path, question, number)
        try:
            took = timed(call, process_time if path.startswith(("index", "read")) else perf_counter)
        except UnreadError:
            took = 0.0
        answers.write(json.dumps(took) + "\n")
        answers.flush()


def _calls(folder: Path) -> Callable[[str, str, int], Callable[[], Any]]:
    """Return what makes the call to be timed for an order."""
    import pointsman
    from _passages import VectorOfText
    from _passages import vectors as rows

    source = os.environ["PYTHONPATH"]
    if not Path(pointsman.__file__).is_relative_to(source):
        sys.exit(f"{pointsman.__file__} was imported instead of the package in {source}")
    workspace = pointsman.open(folder, embedder=VectorOfText())
    dataset = workspace.dataset(DATASET)
    fresh = rows(1000, 10**7)
    embedder = pointsman.default_embedder()
    embedder.embed_queries(["warm-up"])

    def call(path: str, question: str, number: int) -> Callable[[], Any]:
        if path.startswith(("index", "read")):
            return _reading(Path(question)) if path.startswith("read") else _indexing(*path.split()[1:])
        if path in FILTERS:
            return lambda: workspace.search(question, k=10, filters=FILTERS[path])
        if path in STRATEGIES:
            return lambda: workspace.search(question, k=10, strategy=STRATEGIES[path])
        if path == "add one":
            document = pointsman.Document(f"fresh-{number}", question, {"share": 1})
            return lambda: dataset.add([document], vectors=fresh[number : number + 1])
        if path == "delete one":
            return lambda: dataset.delete([f"fresh-{number}"])
        return lambda: embedder.embed_documents([question])

    return call


def _indexing(language: str, *embedded: str) -> Callable[[], None]:
    """Return what indexes the texts of a language in a new workspace: by words, or with vectors, too."""
    import pointsman
    from _data import DATA
    from pointsman.evaluation import read_collection

    name, count = INDEXED[language]
    documents = list(read_collection(DATA / name).documents)[: EMBEDDED if embedded else count]
    technique: Any = "hybrid" if embedded else "keyword"

    def index() -> None:
        with tempfile.TemporaryDirectory() as folder, pointsman.open(folder) as workspace:
            workspace.dataset(DATASET, indexing_technique=technique).add(documents)

    return index


def _reading(path: Path) -> Callable[[], None]:
    """Return what cuts a file into passages."""
    from pointsman.ingest.chunk import passages
    from pointsman.ingest.convert import convert

    content = path.read_bytes()

    def read() -> None:
        try:
            sources: list[Any] = [each for each in convert(path.name, content) if hasattr(each, "sections")]
            if not [passage for source in sources for passage in passages(source)]:
                raise UnreadError
        except Exception as error:  # of any converter: a file that one side refuses is not compared
            raise UnreadError from error

    return read


# ── both sides ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Side:
    """One commit: its source, its workspace, and a process that serves it."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.source, self.folder = source, folder
        compileall.compile_dir(source / "src", quiet=1)  # else the side that was compiled before starts faster
        self._process: subprocess.Popen[str] | None = None

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(HERE), *arguments, "--folder", str(self.folder)]

    @property
    def _environment(self) -> dict[str, str]:
        """This process's own, with the side's source first on the path."""
        return {**os.environ, "PYTHONPATH": str(self.source / "src")}

    def build(self, passages: int) -> subprocess.Popen[bytes]:
        """Begin to build the workspace."""
        return subprocess.Popen(self._command("--build", str(passages)), env=self._environment)

    def start(self, question: str) -> dict[str, float]:
        """Return what `start` measures in a new process."""
        command = self._command("--start", question)
        output = subprocess.run(command, env=self._environment, check=True, stdout=subprocess.PIPE).stdout
        figures: dict[str, float] = json.loads(output.splitlines()[-1])
        return figures

    def order(self, path: str, question: str, number: int) -> float:
        """Return the milliseconds that the serving process took."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command("--serve"),
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps([path, question, number]) + "\n")
        requests.flush()
        return _answer(answers)

    def close(self) -> None:
        """End the serving process."""
        if self._process is not None:
            self._process.communicate(timeout=60)


def _answer(answers: IO[str]) -> float:
    line = answers.readline()
    if not line:
        sys.exit("a side has ended; its message is above")
    return float(json.loads(line))


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def cached(commit: str, passages: int) -> Path:
    """Return where the dataset of a commit is kept; those not used for longest are deleted."""
    from _passages import VERSION

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pointsman" / "pair"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{commit}-{passages}-{VERSION}"
    others = sorted((each for each in cache.iterdir() if each != folder), key=lambda each: each.stat().st_mtime)
    for each in others[: max(0, len(others) - KEPT + 1)]:
        shutil.rmtree(each)
    return folder


def prepare(head: Side, base: Side, commit: str, passages: int) -> None:
    """Build what is not there yet, both at once; each side works on a copy, made after all is built and on disk."""
    kept, built = cached(commit, passages), Side(head.source, head.folder.with_name("built"))
    builds = [built.build(passages)]
    if not kept.exists():
        aside = Side(base.source, kept.with_name(kept.name + ".tmp"))
        shutil.rmtree(aside.folder, ignore_errors=True)
        builds.append(aside.build(passages))
    if any(process.wait() for process in builds):
        sys.exit("a dataset could not be built; the message is above")
    if not kept.exists():
        aside.folder.rename(kept)
    os.utime(kept)
    shutil.copytree(built.folder, head.folder)
    shutil.copytree(kept, base.folder)
    os.sync()  # what was just written would be written while one of them is searched


def measure(head: Side, base: Side, count: int) -> dict[str, tuple[list[float], list[float]]]:
    """Return the milliseconds of both sides by path."""
    from _passages import questions

    times: dict[str, tuple[list[float], list[float]]] = {}

    def note(path: str, side: int, took: float) -> None:
        times.setdefault(path, ([], []))[side].append(took)

    sides = (head, base)
    for number, question in enumerate(questions(6, "start")):
        for side in _turns(number):
            for path, took in sides[side].start(question).items():
                note(path, side, took)
    order = list(times)
    # All before the first path is timed, which would bear the cost of the start.
    warm_ups = [(path, text) for path in (*STRATEGIES, *FILTERS) for text in questions(10, f"warm-up {path}")]
    for number, (path, text) in enumerate(warm_ups):
        for side in _turns(number):
            sides[side].order(path, text, 0)
    for path in (*STRATEGIES, *FILTERS, "add one", "delete one", "embedding"):
        rounds = count if path in {*STRATEGIES, *FILTERS} else count // 2
        for number, question in enumerate(questions(rounds, path)):
            for side in _turns(number):
                note(path, side, sides[side].order(path, question, number))
    return {path: times[path] for path in sorted(times, key=lambda path: path in order)}


def measure_indexing(head: Side, base: Side, count: int) -> dict[str, tuple[list[float], list[float]]]:
    """Return the milliseconds of both sides by what is indexed; a first round, which fills caches, does not count."""
    paths = [
        f"index {language}{vectors}"
        for vectors in ("", " vectors")
        for language in INDEXED
        if not (vectors and language == "long")
    ]
    times: dict[str, tuple[list[float], list[float]]] = {path: ([], []) for path in paths}
    for path in paths:
        for number in range(count + 1):
            for side in _turns(number):
                took = (head, base)[side].order(path, "", number)
                times[path][side].extend([took] if number else [])
    return times


def measure_files(head: Side, base: Side, folder: Path, count: int) -> dict[str, tuple[list[float], list[float]]]:
    """Return the milliseconds of both sides for all files of a format; of each file the quickest of some rounds."""
    times: dict[str, tuple[list[float], list[float]]] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        kind = f"read {path.suffix[1:].lower()}"
        rounds = [
            {side: (head, base)[side].order(kind, str(path.absolute()), 0) for side in _turns(number)}
            for number in range(count)
        ]
        quickest = [min(each[side] for each in rounds) for side in (0, 1)]
        for side in (0, 1) if all(quickest) else ():
            times.setdefault(kind, ([0.0], [0.0]))[side][0] += quickest[side]
    return times


def _turns(number: int) -> tuple[int, int]:
    """Whoever goes second finds the processor warm: they take turns in that too."""
    return (0, 1) if number % 2 else (1, 0)


def report(times: dict[str, tuple[list[float], list[float]]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("path", "HEAD, p50 ms", "BASE, p50 ms", "HEAD / BASE", "", title=title)
    for path, (head, base) in times.items():
        ratio = median(head) / median(base)
        mark = "[red]slower" if ratio > SLOWER else ""
        table.add_row(path, f"{median(head):.2f}", f"{median(base):.2f}", f"{ratio:.2f}", mark)
    Console().print(table)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("base", nargs="?", default="HEAD~1", help="the commit to compare with")
    arguments.add_argument("--passages", type=int, default=PASSAGES)
    arguments.add_argument(
        "--questions", type=int, default=60, help="per path; half as many writes, a sixth of indexing"
    )
    arguments.add_argument("--indexing", action="store_true", help="compare indexing instead")
    arguments.add_argument("--files", type=Path, help="compare how the files of a folder are read instead")
    for internal, kind in (("--folder", Path), ("--build", int), ("--start", str)):
        arguments.add_argument(internal, type=kind, help=argparse.SUPPRESS)
    arguments.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.build is not None:
        build(options.folder, options.build)
    elif options.start is not None:
        sys.stdout.write(json.dumps(start(options.folder, options.start)))
    elif options.serve:
        serve(options.folder)
    else:
        compare(options.base, options.passages, options.questions, indexing=options.indexing, files=options.files)


def compare(base: str, passages: int, count: int, *, indexing: bool, files: Path | None) -> None:
    commit = git("rev-parse", "--verify", f"{base}^{{commit}}")
    began = perf_counter()
    with tempfile.TemporaryDirectory(prefix="pointsman-pair-") as name:
        scratch = Path(name)
        git("worktree", "add", "--detach", str(scratch / "source"), commit)
        sides = Side(ROOT, scratch / "head"), Side(scratch / "source", scratch / "base")
        try:
            if not indexing and not files:
                prepare(*sides, commit, passages)
            built = perf_counter()
            if files:
                times = measure_files(*sides, files, count // 20)
            else:
                times = measure_indexing(*sides, count // 6) if indexing else measure(*sides, count)
        finally:
            for side in sides:
                side.close()
            git("worktree", "remove", "--force", str(scratch / "source"))
    changed = " and uncommitted changes" if git("status", "--porcelain", "src") else ""
    subject = "processor time" if indexing or files else f"{passages:,} passages, cold questions"
    title = f"{subject}: {git('rev-parse', '--short', 'HEAD')}{changed}, base {commit[:7]}"
    report(times, title)
    sys.stdout.write(f"built in {built - began:.0f} s, measured in {perf_counter() - built:.0f} s\n")


if __name__ == "__main__":
    main()
