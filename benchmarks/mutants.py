"""Do the tests notice a wrong line: ``python benchmarks/mutants.py --seed 1 [--count 60] [--areas fusion,views]``.

Each mutant is the package with one change, made by rule: a comparison that is turned or takes its border along, a
constant that is another, a condition that is negated or an ``and`` that is an ``or``, a ``return`` of nothing, or of
True where it was False. They are drawn by the seed, evenly over areas and rules; the tests that concern the area are
run until the first fails. Prints those that no test kills, and ends with 1 if there are any. What means the same as
before is in `EQUIVALENT`, with the reason, and another is drawn in its place.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src"

AREAS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "fusion": (("fusion.py",), ("fusion", "rerank_calibrated", "hybrid", "policy", "workflow")),
    "relevance": (("relevance.py", "background.py"), ("relevance", "refuse", "judging", "reading", "calibrate")),
    "keyword": (
        ("keyword_index.py", "word_query.py", "keyword_state.py", "words_file.py", "term_codes.py", "facet_terms.py"),
        (
            "term_codes",
            "words_file",
            "facets",
            "store_collection",
            "store_search",
            "bm25_manager",
            "store_scores",
            "views",
        ),
    ),
    "candidates": (
        ("candidates.py", "branches.py"),
        ("workflow", "retrievers", "hybrid", "grouping", "policy", "strategies", "likelier_dataset"),
    ),
    "filters": (
        ("conditions.py", "expressions.py", "mappings.py"),
        ("filters", "columns", "store_search"),
    ),
    "views": (
        ("views.py", "store_views.py", "local_view.py", "in_force.py"),
        ("versions", "views", "grouping"),
    ),
    "receipts": (("receipts.py", "replaying.py"), ("replay", "history", "verdicts", "unasked_calibration")),
    "access": (
        ("access/*.py", "permissions.py", "signature.py"),
        (
            "columns",
            "issuer_keys",
            "server_keys",
            "rights",
            "services",
            "server_limits",
            "views_http",
            "views_postgres",
        ),
    ),
}
"""The names of an area's files, wherever they are, and its tests, those first that are likely to notice."""

EQUIVALENT: Final[Mapping[str, str]] = {
    "branches.py: SourceBranch._gaps: following = questions[index + 1 : index + «2]: 2 -> 3": (
        "only the first of them is asked for"
    ),
    "relevance.py: sigmoid: return 1 / (1 + math.exp(-min(max(logits, -30.0), «30.0))): 30.0 -> 31.0": (
        "the two differ by 6e-14"
    ),
    (
        "fusion.py: _sum_of_contributions: scores = [«1 / rank for rank in _ranks(1, keys)] if raw is None else raw: "
        "1 -> 2"
    ): "a list's scores are normalised, so a factor means nothing",
    "receipts.py: _state: sequence = -«1 if statistics is None else statistics.sequence: 1 -> 2": (
        "all that is asked of it is whether it is below 0"
    ),
    (
        "words_file.py: are_words_due: and changed_since(stored_sequence if «stored_sequence < sequence else 0, "
        "least_count) >= least_count: stored_sequence < sequence -> (stored_sequence <= sequence)"
    ): "two equal numbers are both 0 here",
    "permissions.py: PermissionTable.__init__: self._sequence = -«1: 1 -> 2": "nothing has been read: it is below 0",
    'receipts.py: _lacking: name: Calibration("") if getattr(reading.source, "is_view", «False) else fitted[name]: '
    "False -> True": "whatever has a fitted calibration is a dataset, which has the attribute",
    'conditions.py: _literal: return "1e999" if «content > 0 else "-1e999": content > 0 -> (content >= 0)': (
        "an infinite number is not 0"
    ),
    "fusion.py: _check_finite: for score, key in zip(scores, keys, strict=«True):: True -> False": (
        "the scores are those of the keys"
    ),
    "receipts.py: Receipt.read: content = decompressor.decompress(_bytes_of(body), «10 * _LONGEST): 10 -> 11": (
        "no receipt is so long"
    ),
    (
        "word_query.py: WordQuery._top: if «len(hits) >= limit or count < depth:: len(hits) >= limit -> "
        "(len(hits) > limit)"
    ): "reading further finds nothing better",
    "issuer_keys.py: IssuerKeys.__init__: self._is_fetching = «False: False -> True": (
        "no keys have been fetched yet, so that they are needed now either way"
    ),
    (
        "keyword_state.py: KeywordState.weight: weight = self.idfs([term])[0] / idf(self.counted, frequency) if "
        "«frequency and self.learn(term) else 1.0: frequency and self.learn(term) -> "
        "(frequency or self.learn(term))"
    ): "counting the term learns it, and one that no living document has scores nothing",
}
"""Mutants that mean the same as the code, and why: file, function, line, what was there and what is there now."""

TURNED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
RULES: Final = ("comparison", "constant", "condition", "return")


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        area: a name of `AREAS`.
        rule: a name of `RULES`.
        file: within the source folder.
        function: where in it, by qualified name.
        line: in the unchanged file.
        text: of that line, with a « before the code that is changed.
        start, end: in bytes of the unchanged file.
        before, after: the code there, and in its place.
    """

    area: str
    rule: str
    file: Path
    function: str
    line: int
    text: str
    start: int
    end: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """Its name in `EQUIVALENT`, which stands when lines and folders move."""
        return f"{self.file.name}: {self.function}: {self.text}: {self.before} -> {self.after}"

    def __str__(self) -> str:
        return f"{self.area}, {self.rule}, {self.file}:{self.line}, {self.function}: {self.before} -> {self.after}"


class _Sites(ast.NodeVisitor):
    """The changes that the rules allow in one file: in functions, in no annotation, message or type."""

    def __init__(self, area: str, file: Path) -> None:
        self.area, self.file, self.mutants = area, file, list[Mutant]()
        text = (SOURCE / file).read_text("utf-8")
        self._lines = [0]
        for line in text.encode().splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._texts = text.splitlines()
        self._scopes: list[str] = []
        self.visit(ast.parse(text))

    def _add(self, rule: str, node: ast.expr | ast.stmt, after: str) -> None:
        if not self._scopes or node.end_lineno is None or node.end_col_offset is None:
            return
        start = self._lines[node.lineno - 1] + node.col_offset
        end = self._lines[node.end_lineno - 1] + node.end_col_offset
        before, function = ast.unparse(node), ".".join(self._scopes)
        line = self._texts[node.lineno - 1].encode()
        text = (line[: node.col_offset] + "«".encode() + line[node.col_offset :]).decode().strip()
        mutant = Mutant(self.area, rule, self.file, function, node.lineno, text, start, end, before, after)
        self.mutants.append(mutant)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scopes.append(node.name)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scopes.append(node.name)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self.visit(statement)
        self._scopes.pop()

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts of messages are left as they are."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """So are errors."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            changed = ast.Compare(node.left, [TURNED[type(node.ops[0])]()], node.comparators)
            self._add("comparison", node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._add("constant", node, repr(node.value + 1))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        turned = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add("condition", node, f"({ast.unparse(ast.BoolOp(turned, node.values))})")
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._add("condition", node.test, f"(not ({ast.unparse(node.test)}))")
        self.generic_visit(node)

    visit_IfExp = visit_If  # noqa: N815
    visit_While = visit_If  # noqa: N815

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._add("condition", test, f"(not ({ast.unparse(test)}))")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and (text := ast.unparse(node.value)) != "None":
            self._add("return", node, "return True" if text == "False" else "return None")
        self.generic_visit(node)


def files_of(area: str) -> Iterator[Path]:
    """The files of an area, within the source folder.

    Raises:
        ValueError: the end of a path is that of no file, so the area is to be described anew.
    """
    for pattern in AREAS[area][0]:
        matches = sorted(SOURCE.rglob(pattern))
        if not matches:
            raise ValueError(f"no file of the area {area} ends in {pattern}; name its new place in AREAS")
        yield from (match.relative_to(SOURCE) for match in matches if match.name != "__init__.py")


def drawn(areas: Sequence[str], seed: int, count: int) -> tuple[list[Mutant], list[Mutant]]:
    """So many mutants, evenly over areas and rules, and the equivalent ones that were drawn beside them."""
    chance = random.Random(seed)
    cells: list[list[Mutant]] = []
    for area in areas:
        every = [mutant for file in files_of(area) for mutant in _Sites(area, file).mutants]
        for rule in RULES:
            cell = [mutant for mutant in every if mutant.rule == rule]
            chance.shuffle(cell)
            cells.append(cell)
    chance.shuffle(cells)
    mutants: list[Mutant] = []
    equivalent: list[Mutant] = []
    for row in zip_longest(*cells):
        for mutant in row:
            if mutant is not None and len(mutants) < count:
                (equivalent if mutant.key in EQUIVALENT else mutants).append(mutant)
    return mutants, equivalent


class Trial:
    """A copy of the package in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        self._environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def passes(self, area: str, seconds: float) -> bool:
        """Whether the tests of an area pass; what hangs does not.

        Raises:
            RuntimeError: the tests cannot be run.
        """
        files = [f"tests/test_{name}.py" for name in AREAS[area][1]]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", "not opensearch", *files]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        if done.returncode not in {0, 1, 2, 4}:  # 2 and 4: the change lets a module or conftest not be imported
            raise RuntimeError(f"the tests of {area} cannot be run: {(done.stdout + done.stderr)[-2000:]}")
        return done.returncode == 0

    def kills(self, mutant: Mutant, seconds: float) -> bool:
        """Whether a test notices a change."""
        path = self.folder / mutant.file
        code = path.read_bytes()
        path.write_bytes(code[: mutant.start] + mutant.after.encode() + code[mutant.end :])
        try:
            return not self.passes(mutant.area, seconds)
        finally:
            path.write_bytes(code)


def main() -> int:
    """Draw, try and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--areas", default=",".join(AREAS), help="separated by commas: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at once")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for the tests of an area")
    parser.add_argument("--list", action="store_true", help="only print what would be tried")
    options = parser.parse_args()
    mutants, equivalent = drawn(options.areas.split(","), options.seed, options.count)
    for mutant in equivalent:
        print(f"equivalent: {mutant} ({EQUIVALENT[mutant.key]})")
    if options.list:
        print(*mutants, sep="\n")
        return 0
    began, survivors, killed = perf_counter(), list[Mutant](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, ThreadPoolExecutor(options.jobs) as threads:
        trials: SimpleQueue[Trial] = SimpleQueue()
        for number in range(options.jobs):
            trials.put(Trial(Path(name, str(number))))

        def killed_by_tests(mutant: Mutant) -> bool:
            trial = trials.get()
            try:
                return trial.kills(mutant, options.timeout)
            finally:
                trials.put(trial)

        first = trials.get()
        for area in sorted({mutant.area for mutant in mutants}):
            if not first.passes(area, options.timeout):
                raise RuntimeError(f"the tests of {area} fail without any change")
        trials.put(first)
        for mutant, is_killed in zip(mutants, threads.map(killed_by_tests, mutants), strict=True):
            print(f"{'killed' if is_killed else 'SURVIVES'}: {mutant}", flush=True)
            killed[mutant.rule] += is_killed
            survivors += [] if is_killed else [mutant]
    print(f"seed {options.seed}: {killed.total()} of {len(mutants)} killed, {len(equivalent)} equivalent, ", end="")
    print(", ".join(f"{rule} {killed[rule]}" for rule in RULES) + f", in {perf_counter() - began:.0f} s")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
