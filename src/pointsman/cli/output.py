"""The output of commands: tables and passages for people, one JSON document for scripts.

rich is imported only by functions that draw, so that ``--help`` and ``--json`` do not need it.
"""

from __future__ import annotations

import json
import re
import sys
from codecs import lookup
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, cast

from pointsman.cli.shared_options import UNREADABLE, of_each
from pointsman.cli.translated_help import help_language
from pointsman.tools.errors import InputError
from pointsman.tools.json_forms import plain_form
from pointsman.tools.printable import UNSAFE, printable
from pointsman.tools.system.locations import is_service, is_url
from pointsman.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.text import Text

    from pointsman.evaluation import Report
    from pointsman.evaluation.tune import Tuning
    from pointsman.store.store_values import Verification
    from pointsman.values.settings import Settings
    from pointsman.workspace.calibration.dataset_calibration import Calibrating
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.indexing.index_report import IndexProgress, IndexReport
    from pointsman.workspace.workspace_search import Workspace


_DATASET_FIELDS = ("name", "description", "indexing_technique", "documents")


_STATUS = (
    *_DATASET_FIELDS,
    "embedder",
    "relevance",
    "date_column",
    "date_column_reasons",
    "vectors_due",
    "truncations",
    "routes",
    "kept_days",
    "sequence",
    "keyword_index_sequence",
    "bytes",
    "bytes_by_part",
    "memory",
    "version_problems",
)


_UNSAFE_IN_JSON = re.compile(f"(?!\\n)[{UNSAFE}]")  # JSON has escapes for them, so no value changes


def print_json(value: object, indent: int | None = 2) -> None:
    """Print one JSON document to standard output, with escapes for characters where that is not in Unicode."""
    ascii_only = not lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    sys.stdout.write(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def with_noun(number: int, noun: str) -> str:
    """Format a number of things.

    >>> with_noun(1, "hit"), with_noun(1200, "hit")
    ('1 hit', '1,200 hits')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def say(value: object, sentence: str, *, as_json: bool) -> None:
    """Print a plain result: JSON, or a text whose lines are not wrapped."""
    if as_json:
        print_json(value)
    elif sys.stdout.isatty():
        console().print(sentence, markup=False, soft_wrap=True)
    else:
        sys.stdout.write(f"{printable(sentence)}\n")


def console(*, stderr: bool = False) -> Console:
    """Return standard output, or standard error, as a rich console on which no text can control the terminal."""
    from rich.console import Console

    class SafeConsole(Console):
        """Escapes what is drawn; rich's own styles and movements are not text."""

        def render(self, renderable: Any, options: Any = None) -> Any:
            for segment in super().render(renderable, options):
                text = segment.text if segment.control else printable(segment.text)
                yield segment if text == segment.text else segment._replace(text=text)

        def rule(self, title: Any = "", **style: Any) -> None:
            """Draw a line over the width of a terminal; elsewhere only its title, as there is no width."""
            if self.is_terminal:
                super().rule(title, **style)
            else:
                self.print(title, markup=False)

    target = SafeConsole(stderr=stderr, highlight=False, emoji=False)
    if target.is_terminal:
        return target
    file = _TrimmedLines(sys.stderr if stderr else sys.stdout)
    return SafeConsole(file=cast("IO[str]", file), width=_WIDEST, highlight=False, emoji=False)


_WIDEST: Final = 100_000  # columns of what is not a terminal: nothing is wrapped for a program that reads lines


class _TrimmedLines:
    """Writes to another stream without blanks at the ends of lines, which fill up tables."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_BLANKS.sub("", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_BLANKS: Final = re.compile(r"[ \t]+$", re.MULTILINE)


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a progress bar on standard error with share, remaining time and current item; silent without a terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    errors = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    note = TextColumn("[dim]{task.fields[note]}", markup=True)
    with Progress(*columns, note, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(description, total=None, note="")

        def advance(count: int, total: int, note: str) -> None:
            bar.update(task, completed=count, total=total, note=shorten(note, 40).replace("[", r"\["))

        yield advance


@contextmanager
def indexing_progress() -> Iterator[Callable[[IndexProgress], None]]:
    """A progress bar on standard error: passages, then vectors, with the time left; silent without a terminal."""
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class RemainingTime(ProgressColumn):
        """The time left, in words."""

        def render(self, task: Task) -> Text:
            return Text(_time_left(task.time_remaining))

    errors = console(stderr=True)
    columns = (BarColumn(24), TextColumn("{task.description}"), RemainingTime(), TextColumn("[dim]{task.fields[path]}"))
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        reading = bar.add_task("", total=None, path="", visible=False)
        embedding = bar.add_task("", total=None, path="", visible=False, start=False)

        def advance(state: IndexProgress) -> None:
            estimate = "" if state.expected is None else f" of about {state.expected:,}"
            path = shorten(state.path, 40).replace("[", r"\[")
            bar.update(
                reading,
                description=f"{state.share_read:.0%} read, {state.passages:,}{estimate} passages searchable by words,",
                completed=state.passages, total=state.expected, path=path, visible=bool(state.path),
            )  # fmt: skip
            vectors = state.vectors + state.vectors_due
            if state.vectors_due and not state.path:
                bar.start_task(embedding)
            bar.update(
                embedding, description=f"words searchable; vectors {state.vectors:,} of {vectors:,},",
                completed=state.vectors, total=vectors, visible=state.vectors_due > 0 and not state.path,
            )  # fmt: skip

        yield advance


def _time_left(seconds: float | None) -> str:
    """Format the time left, rounded for people.

    >>> [_time_left(seconds) for seconds in (None, 3.2, 41, 130, 5000)]
    ['time left unknown', 'about 5 s left', 'about 45 s left', 'about 3 min left', 'about 84 min left']
    """
    if seconds is None:
        return "time left unknown"
    return f"about {-(-seconds // 60):.0f} min left" if seconds > 60 else f"about {-(-seconds // 5) * 5:.0f} s left"


def index_report(
    report: IndexReport, dataset: Dataset, *, as_json: bool, is_interrupted: bool = False, one_line: bool = False
) -> None:
    """Print the result of `pointsman index`, complete or until Ctrl-C; JSON is on one line if more will follow."""
    passages = report.passages
    if as_json:
        print_json(
            {
                "dataset": dataset.name,
                "files": report.files,
                "added": passages.added,
                "updated": passages.updated,
                "unchanged": passages.unchanged,
                "deleted": report.deleted,
                "documents": len(dataset),
                "vectors_due": report.vectors_due,
                "truncations": report.truncations,
                "omissions": dict(report.omissions),
                "stored_omissions": list(report.stored_omissions),
                "notes": list(report.notes),
                "problems": [{"path": problem.path, "reason": problem.reason} for problem in report.problems],
                "interrupted": is_interrupted,
            },
            indent=None if one_line else 2,
        )
        return
    terminal = console()
    if is_interrupted:
        terminal.print("Stopped. The passages below are stored and searchable; run the same command to continue.")
    if one_line and not (report.files or report.deleted or report.problems or is_interrupted):  # only vectors were made
        terminal.print(f"[bold]{dataset.name}[/]: all vectors are made")
        return
    fates = {"updated": passages.updated, "deleted": report.deleted, "unchanged": passages.unchanged}
    other_counts = "".join(f", {count:,} {fate}" for fate, count in fates.items() if count)
    terminal.print(
        f"[bold]{dataset.name}[/]: {with_noun(passages.added, 'passage')} added{other_counts}; "
        f"{len(dataset):,} in all. "
        f"Files read: {report.files:,}",
        soft_wrap=True,
    )
    if report.vectors_due:
        have = "has" if report.vectors_due == 1 else "have"
        terminal.print(
            f"  Keyword search finds all of them; {report.vectors_due:,} {have} no vector yet.", markup=False
        )
    _print_truncated(dataset.name, report.truncations)
    for note in report.notes:
        _warn(f"  {note}")
    _print_file_problems(report)
    if report.omissions:
        counts = ", ".join(f"{count:,} {_OMISSIONS[reason]}" for reason, count in report.omissions.items())
        terminal.print(f"  left out (a folder counts once): {counts}", style="dim", markup=False, soft_wrap=True)
    if sources := report.stored_omissions:
        remark = f", and {len(sources) - 5:,} more" if len(sources) > 5 else ""
        _warn(f"  left out now, but still stored: {', '.join(sources[:5])}{remark}; --prune deletes them")


def _warn(text: str) -> None:
    console().print(text, style="yellow", markup=False, soft_wrap=True)


def _print_file_problems(report: IndexReport) -> None:
    """Print each reason why files were not read once, so that hundreds of pictures hide no damaged file.

    A remedy that several reasons end with stands below them.
    """
    paths_by_reason: dict[str, list[str]] = {}
    for problem in report.problems:
        paths_by_reason.setdefault(problem.reason, []).append(problem.path)
    remedies = Counter(reason.rpartition("; ")[2] for reason in paths_by_reason)
    for reason, paths in list(paths_by_reason.items())[:20]:
        start, _, remedy = reason.rpartition("; ")
        reason_alone = start if remedies[remedy] > 1 else reason
        remark = f" and {len(paths) - 3:,} more (--json lists them all)" if len(paths) > 3 else ""
        _warn(f"  problem: {', '.join(paths[:3])}{remark}: {reason_alone}")
    if len(paths_by_reason) > 20:
        _warn(f"  … and {len(paths_by_reason) - 20} other reasons; --json lists them all")
    for remedy, count in remedies.items():
        if count > 1:
            _warn(f"  remedy: {remedy}")


def _print_truncated(dataset: str, count: int | None) -> None:
    """Print how many documents are longer than the embedder reads, if there are any."""
    if count:
        subject = f"{with_noun(count, 'document')} longer than the embedder reads"
        remedy = "only words find what follows its limit; add shorter documents, or index files, which are cut to fit"
        _warn(f"{dataset}: {subject}: {remedy}")


_OMISSIONS: Final = {
    "excluded": "by --exclude",
    "hidden": "hidden (--hidden)",
    "ignored": "by ignore files (--no-ignore)",
    "not included": "that no --include names",
    "skipped": "not your own, such as node_modules",
}
"""How reasons why files and folders are left out are put, with the option that reads them."""


def dataset_list(workspace: Workspace, *, keys: bool, as_json: bool) -> bool:
    """Print the datasets, with ``keys`` also their metadata's; return whether all could be read."""

    def describe(name: str) -> dict[str, Any]:
        dataset = workspace.dataset(name, create=False)
        description = {
            "name": dataset.name,
            "description": dataset.description,
            "indexing_technique": dataset.indexing_technique,
            "documents": len(dataset),
        }
        return {**description, "metadata_keys": dataset.metadata_keys()} if keys else description

    described_ones, problems = of_each(workspace.names(), describe, (*UNREADABLE, InputError))
    rows = list(described_ones.values())
    if as_json:
        print_json([*rows, *_unreadable_rows(problems, _DATASET_FIELDS)])
    else:
        table(
            ["dataset", "documents", "indexed for", "description", *(["keys"] if keys else [])],
            [
                [
                    *(row["name"], row["documents"], row["indexing_technique"], row["description"]),
                    *([", ".join(row["metadata_keys"])] if keys else []),
                ]
                for row in rows
            ],
        )
        print_problems(problems)
    return not problems


def _unreadable_rows(problems: Mapping[str, str], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each dataset that cannot be read: its problem, and null for what is unknown of it."""
    return [{**dict.fromkeys(names), "name": name, "problem": problem} for name, problem in problems.items()]


def print_problems(problems: Mapping[str, str]) -> None:
    """Print the datasets that cannot be read, one per line, with the problem of each."""
    for name, problem in problems.items():
        console().print(printable(f"{name}: {problem}"), style="red", markup=False, soft_wrap=True)


def status(workspace: Workspace, *, as_json: bool) -> bool:
    """Print the contents of the workspace and how they are stored; return whether all could be read."""
    from pointsman.values.settings import Settings

    descriptions, problems = of_each(workspace.names(), workspace.status, (*UNREADABLE, InputError))
    rows = list(descriptions.values())
    location = workspace.place if is_url(workspace.place) else str(Path(workspace.place).resolve())
    unused_keys = {} if is_service(workspace.place) else Settings.load().unused_keys()
    value = {
        "workspace": location,
        "datasets": [*rows, *_unreadable_rows(problems, _STATUS)],
        "unused_keys": unused_keys,
    }
    if as_json:
        print_json(value)
        return not problems
    console().print(value["workspace"], style="bold", markup=False)
    table(
        ["dataset", "documents", "indexed for", "size", "embedder", "index"],
        [
            [
                row["name"],
                row["documents"],
                row["indexing_technique"],
                "" if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f} MB",
                row["embedder"] or "none",
                "behind; the next write updates it"
                if row["sequence"] != row["keyword_index_sequence"]
                else f"{row['vectors_due']:,} vectors missing; index again"
                if row["vectors_due"]
                else "up to date",
            ]
            for row in rows
        ],
    )
    from pointsman.workspace.workspace_search import BUILT_IN

    _print_sizes(rows)
    for row in rows:
        if row["relevance"] != BUILT_IN:
            console().print(f"{row['name']}, relevance: {row['relevance']}", markup=False)
        date_column = row["date_column"] or "not told"
        console().print(printable(f"{row['name']}, date column: {date_column}"), markup=False, soft_wrap=True)
        _print_truncated(row["name"], row["truncations"])
        if routes := row["routes"]:
            counts = ", ".join(f"{count['queries']:,} {count['route']} ({count['reason']})" for count in routes)
            console().print(printable(f"{row['name']}, routes: {counts}"), markup=False, soft_wrap=True)
        for problem in row["version_problems"] or ():
            console().print(f"{row['name']}, {problem['path']}: {problem['reason']}", style="yellow", markup=False)
    print_problems(problems)
    _print_unused(unused_keys)
    return not problems


def _print_unused(keys: Mapping[str, str]) -> None:
    for reason in keys.values():
        _warn(reason)


def _print_sizes(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what the datasets take on disk, and this process in memory now that all of them are open."""
    for row in rows:
        if row["bytes_by_part"]:
            size_texts = [
                f"{part_name.replace('_', ' ')} {size / 1e6:.1f}"
                for part_name, size in row["bytes_by_part"].items()
                if size
            ]
            console().print(f"{row['name']}, MB: {', '.join(size_texts)}", markup=False)
    sizes = rows[-1]["memory"] if rows else None  # a service tells it only to keys for all datasets
    if sizes is not None and None not in sizes.values():
        memory = {name: f"{size / 1e6:.0f} MB" for name, size in sizes.items()}
        text = f"memory of this process: {memory['resident']}, of which {memory['files']} are pages of files"
        kept = f"{memory['cached']} are kept to answer sooner, at most {memory['cache_limit']}"
        console().print(f"{text}; {kept}", markup=False)


def verification(verifications: Mapping[str, Verification], failures: Mapping[str, str], *, as_json: bool) -> None:
    """Print whether the three stores of each dataset agree, and which datasets cannot be read."""
    if as_json:
        values = plain_form(verifications)
        unknown_counts = dict.fromkeys(("documents", "in_keyword_index", "in_vector_index"))
        print_json(
            {**values, **{name: {**unknown_counts, "problems": [problem]} for name, problem in failures.items()}}
        )
        return
    terminal = console()
    for name, result in verifications.items():
        verdict = "[red]disagree[/]" if result.problems else "[green]agree[/]"
        counts = f"{with_noun(result.documents, 'document')}, {result.in_keyword_index} in the keyword index"
        terminal.print(f"[bold]{name}[/]: {counts}, {result.in_vector_index} in the vector index: {verdict}")
        for problem in result.problems:
            terminal.print(f"  {problem}", style="red", markup=False)
    print_problems(failures)


def evaluation(report: Report, *, as_json: bool) -> None:
    """Print the results of `pointsman eval`."""
    if as_json:
        print_json(report.to_json())
        return
    from pointsman.evaluation import render

    console().print(render(report))


def settings(values: Settings, *, as_json: bool) -> None:
    """Print the output of `pointsman config`, which never includes keys."""
    from pointsman.values.settings import TASKS, describe

    rows = describe(values)
    models = {task: asdict(values.llm(task)) for task in ("general", *TASKS)}
    unused_keys = values.unused_keys()
    if as_json:
        print_json({"settings": rows, "models": models, "unused_keys": unused_keys})
        return
    cells = [[row["name"], json.dumps(row["value"], ensure_ascii=False), row["origin"]] for row in rows]
    table(["setting", "value", "from"], cells)
    console().print()
    found_models = [
        [task, model["model"], model["base_url"] or model["provider"], model["missing"] or ""]
        for task, model in models.items()
    ]
    table(["model for", "model", "at", "missing"], found_models)
    _print_unused(unused_keys)


def tuning(result: Tuning, *, is_kept: bool, as_json: bool) -> None:
    """Print the result of `pointsman tune`, and whether it was stored."""
    value = {
        "chosen": result.chosen,
        "reason": result.reason,
        "queries": result.queries,
        "ndcg": {name: round(figure, 4) for name, figure in result.ndcg.items()},
        "gain_at_least": {name: round(figure, 4) for name, figure in result.lower.items()},
        "vector_weight": result.policy.vector_weight,
        "strategy": result.policy.strategy,
        "reranking": None if result.reranking is None else asdict(result.reranking),
        "kept": is_kept,
    }
    reasons = [result.reason, *([result.reranking.reason] if result.reranking else [])]
    say(value, f"{result.chosen}: {_told(reasons, is_kept=is_kept)}", as_json=as_json)


def calibrating(result: Calibrating, *, is_kept: bool, as_json: bool) -> None:
    """Print the result of `pointsman calibrate`, and whether it was stored."""
    coverage = None if result.calibration is None else result.calibration.coverage
    minimums = {} if result.calibration is None else result.calibration.minimums
    value = {
        "questions": result.questions,
        "fits": [asdict(fit) for fit in result.fits],
        "coverage": None if coverage is None else round(coverage.most, 4),
        "minimums": [{"form": form, "minimum": minimum} for form, minimum in minimums.items()],
        "reranking": None if result.reranking is None else asdict(result.reranking),
        "reason": result.reason,
        "kept": is_kept,
    }
    say(value, _told([result.reason], is_kept=is_kept), as_json=as_json)


def _told(reasons: Sequence[str], *, is_kept: bool) -> str:
    """Return reasons in the language of the help, and whether something was stored."""
    return Reason.join_all(*reasons, *([] if is_kept else ["nothing was stored"])).in_language(help_language())


def table(headings: list[str], rows: list[list[Any]], right: Sequence[int] = ()) -> None:
    """Print rows under headings as plain text; ``right`` lists the right-aligned columns, as for numbers."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, header_style="bold", pad_edge=False)
    for number, heading in enumerate(headings):
        numeric = bool(rows) and all(isinstance(row[number], int) for row in rows)
        grid.add_column(heading, justify="right" if numeric or number in right else "left")
    for row in rows:
        grid.add_row(*(Text(printable(str(cell))) for cell in row))
    console().print(grid)


def shorten(text: str, width: int) -> str:
    """Return the end of a text, at most ``width`` characters."""
    return text if len(text) <= width else "…" + text[1 - width :]
