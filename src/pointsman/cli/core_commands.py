"""The commands. Each parses its arguments, calls the library, and passes the result to ``output``.

With ``--json`` a command prints a single JSON document to standard output; logs and progress go to standard error. Exit
codes and the lines of errors are in `pointsman.cli.exit_with_error`.
"""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pointsman.cli import output, printed_answers
from pointsman.cli.command_groups import (
    CHECKING,
    KEEPING,
    MEASURING,
    SEARCHING,
    SERVING,
    CommandGroups,
    QuestionCommand,
)
from pointsman.cli.commands import access_command as access
from pointsman.cli.commands import audit_command as audit
from pointsman.cli.commands import keys_command as keys
from pointsman.cli.commands import tokens_command as tokens
from pointsman.cli.commands.attach_command import attach, detach
from pointsman.cli.commands.backup_command import backup, restore
from pointsman.cli.commands.cite_command import text, verify_answer
from pointsman.cli.commands.copy_command import copy
from pointsman.cli.commands.leaktest_command import leaktest
from pointsman.cli.commands.mcp_command import mcp
from pointsman.cli.commands.measuring_commands import calibrate, evaluate, evaluate_select, tune
from pointsman.cli.commands.serve_command import serve
from pointsman.cli.commands.worker_command import worker
from pointsman.cli.shared_options import (
    DATASET,
    DatasetsOption,
    EmbedderOption,
    JsonOption,
    QuestionArgument,
    WorkspaceOption,
    can_ask,
    check_no_service,
    confirm,
    of_each,
    question_of,
    with_search_options,
    workspace_at,
)
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.tools.printable import printable
from pointsman.tools.system.locations import is_service, is_url
from pointsman.tools.version import __version__
from pointsman.workspace.stored_folders import names_of_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pointsman.retrieval.run.source import IndexingTechnique
    from pointsman.store.store_values import Verification
    from pointsman.values.citations import Style
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.indexing.index_report import IndexReport


app = typer.Typer(
    cls=CommandGroups,
    help="Decide where and how to look for each question, look there, and say why.\n\n"
    "Start with: pointsman index FOLDER --dataset NAME, then pointsman search a question.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command(rich_help_panel=KEEPING)
def index(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Files and folders.")],
    dataset: Annotated[
        str, typer.Option("--dataset", "-d", metavar="NAME", help="Target dataset; created if missing.")
    ] = DATASET,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="Description of its contents.")] = None,
    technique: Annotated[
        str | None, typer.Option(metavar="TECHNIQUE", help="hybrid (default), keyword or vector.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep running and index changes, until Ctrl-C.")] = False,
    hidden: Annotated[bool, typer.Option("--hidden", help="Also read hidden files and folders.")] = False,
    include: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Read only such files: '*.md'; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Leave out such files and folders: drafts/; may be repeated."),
    ] = None,
    no_ignore: Annotated[
        bool, typer.Option("--no-ignore", help="Also read what .gitignore and .ignore leave out.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what is stored of files that are left out now.")
    ] = False,
    max_tokens: Annotated[int, typer.Option(metavar="N", help="Maximum tokens per passage, 16 to 480.")] = 256,
    overlap: Annotated[int, typer.Option(metavar="N", help="Tokens shared by neighbouring passages.")] = 32,
    encoding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of text that is not UTF-8 and declares none, such as windows-1251; guessed by default.",
        ),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="A dataset of pictures, found by what they show; see image_embedder.")
    ] = False,
    versions: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep replaced and deleted versions, such as '90 days', or off.")
    ] = None,
    access_rule: Annotated[
        list[str] | None,
        typer.Option("--access", metavar="RULE", help="Who may see files: FOLDER=group:hr,-user:eve; may be repeated."),
    ] = None,
    cluster: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Read and embed by a 'pointsman worker'; may be repeated.")
    ] = None,
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Parse, split, embed and index files and folders.

    Reads text, Markdown, reStructuredText, HTML, PDF, Word, Excel, PowerPoint, OpenDocument, EPUB, e-mail, notebooks,
    JSON, JSON lines, CSV, source code and, with an OCR engine, pictures. Keyword search finds new passages at once;
    vectors follow. The next run indexes only changes, removes deleted files, and continues an interrupted run.
    Unreadable files are reported and skipped; if no file can be read, the exit code is 1. With --watch, each round of
    changes gets a report (with --json, one line).

    What .gitignore and .ignore name is left out. --include and --exclude take patterns as these files do, relative to
    PATH. What is stored of files that are left out now stays, unless you say yes or give --prune.
    """
    from pointsman.workspace.indexing.folder_sync import index_paths, watch_paths
    from pointsman.workspace.indexing.index_report import IndexingInterrupted
    from pointsman.workspace.indexing.indexing_cluster import IndexingCluster

    if cluster and watch:
        raise InputError("--watch reads the changes here; index them with --cluster from time to time instead")
    service = "embed pictures" if images else None
    with workspace_at(workspace, embedder, create=True, service=service) as target_workspace:
        kind = cast("IndexingTechnique | None", technique)  # checked there
        pictures = {"images": True} if images else {}  # an existing dataset keeps its kind
        target = target_workspace.dataset(
            dataset, description=description, indexing_technique=kind, versions=versions, **pictures
        )
        was_interrupted = False
        try:
            connections = IndexingCluster(cluster) if cluster else nullcontext()
            with output.indexing_progress() as on_progress, connections as workers:
                indexing = partial(
                    watch_paths if watch else partial(index_paths, cluster=workers),
                    target, paths, hidden=hidden, include=include or (), exclude=exclude or (),
                    ignore_files=not no_ignore, prune=prune, max_tokens=max_tokens, overlap=overlap, access=access_rule,
                    encoding=encoding, on_progress=on_progress,
                )  # fmt: skip
                if watch:
                    _watch(cast("Iterator[IndexReport]", indexing()), target, as_json=as_json)
                    return
                report = cast("IndexReport", indexing())
        except IndexingInterrupted as stop:
            report, was_interrupted = stop.report, True
        output.index_report(report, target, as_json=as_json, is_interrupted=was_interrupted)
        if report.stored_omissions and not as_json and can_ask():
            files = output.with_noun(len(report.stored_omissions), "file")
            if typer.confirm(f"Delete what is stored of {files}, left out now? This cannot be undone.", err=True):
                for source in report.stored_omissions:
                    target.delete(target.ids(source=source))
        if not is_service(workspace) and target_workspace.being_calibrated and not was_interrupted:
            sys.stderr.write(f"pointsman: calibrating {dataset!r} from its documents; Ctrl-C leaves it for later\n")
            with suppress(KeyboardInterrupt):
                target_workspace.wait_for_calibrations()
    if report.nothing_read and not report.problems and not was_interrupted:
        hint = "; what is left out is counted above" if report.omissions else ""
        sys.stderr.write(f"pointsman: no readable files in {', '.join(paths)}{hint}\n")
    if was_interrupted or report.nothing_read:
        raise typer.Exit(130 if was_interrupted else 1)


def _watch(reports: Iterator[IndexReport], dataset: Dataset, *, as_json: bool) -> None:
    """Print the report of each round, until Ctrl-C between two rounds."""
    from pointsman.workspace.indexing.index_report import IndexingInterrupted

    try:
        for number, report in enumerate(reports):
            output.index_report(report, dataset, as_json=as_json, one_line=True)
            if number == 0 and not as_json:
                output.console().print("Watching for changes; Ctrl-C stops.", style="dim")
            sys.stdout.flush()
    except IndexingInterrupted:
        raise
    except KeyboardInterrupt:
        if not as_json:
            output.console().print("Stopped.")


@app.command(rich_help_panel=SEARCHING, cls=QuestionCommand)
@with_search_options
def search(
    words: QuestionArgument = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how each hit was ranked and what each stage took.")
    ] = False,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="STYLE", help="Print numbered sources for a language model instead: quoted or xml."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(metavar="N", help="Approximate length for --prompt.")] = 3000,
    why: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Explain why a document is, or is not, among the hits.")
    ] = None,
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
    **options: Any,
) -> None:
    """Search one, several or all datasets.

    All words that are not options are the question, so it needs no quotes: pointsman search how do I change a fuse

    Phrases, and words that no hit may hold, go in single quotes: pointsman search '"safety valve" pressure -boiler'
    """
    query = question_of(words)
    with workspace_at(workspace, embedder) as open_workspace:
        context = open_workspace.search(query, **options)
        if prompt is not None:
            sources = context.to_prompt(max_tokens, cast("Style", prompt))  # checked there
            output.say({"prompt": sources}, sources, as_json=as_json)
            return
        printed_answers.search_results(context, explain=explain, why=why or (), as_json=as_json)


@app.command(rich_help_panel=SEARCHING)
def replay(
    receipt: Annotated[str, typer.Argument(metavar="RECEIPT", help="The receipt of an answer.")],
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how each hit was ranked and what each stage took.")
    ] = False,
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Give the same answer again that a receipt is of, or say what of it is no longer held.

    Datasets that keep versions (pointsman index --versions '90 days') give every answer a receipt. It is answered from
    the documents, measurements and settings of then, as whoever asked, also where access is on.
    """
    with workspace_at(workspace, embedder) as open_workspace:
        printed_answers.search_results(open_workspace.replay(receipt), explain=explain, as_json=as_json)


@app.command(rich_help_panel=SEARCHING, cls=QuestionCommand)
def route(
    words: QuestionArgument = None,
    dataset: DatasetsOption = None,
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show how and where a query would be searched, and why.

    Three decisions: the heuristic route from the query alone, the strategy that search would use, and the datasets
    whose content is relevant to the query. Without a workspace, only the first.
    """
    from pointsman.values.settings import Settings
    from pointsman.workspace.workspace_search import Routing

    query = question_of(words)
    if dataset is None and not is_url(workspace) and not (Path(workspace) / "datasets").is_dir():
        printed_answers.routes(Routing.by_form(query, Settings.load().route_rules), as_json=as_json)
        return
    with workspace_at(workspace, embedder) as open_workspace:
        selection = [open_workspace.dataset(name, create=False) for name in dataset] if dataset else None
        printed_answers.routes(open_workspace.route(query, selection), as_json=as_json)


@app.command(rich_help_panel=KEEPING)
def datasets(
    *,
    keys: Annotated[bool, typer.Option("--keys", help="Also list the keys of their metadata, for filters.")] = False,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """List the datasets; exit 1 if one cannot be read."""
    with workspace_at(workspace) as open_workspace:
        readable = output.dataset_list(open_workspace, keys=keys, as_json=as_json)
    if not readable:
        raise typer.Exit(1)


@app.command(rich_help_panel=KEEPING)
def status(*, workspace: WorkspaceOption, as_json: JsonOption = False) -> None:
    """Show documents, indexes, sizes and embedders; exit 1 if a dataset cannot be read."""
    with workspace_at(workspace) as open_workspace:
        readable = output.status(open_workspace, as_json=as_json)
    if not readable:
        raise typer.Exit(1)


@app.command(rich_help_panel=KEEPING)
def delete(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids of documents.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", "-d", metavar="NAME", help="Dataset to delete from.", show_default=f"{DATASET}; none for --all"
        ),
    ] = None,
    source: Annotated[list[str] | None, typer.Option(metavar="PATH", help="All passages of this file.")] = None,
    under: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="All passages of files in this folder, or place.")
    ] = None,
    delete_all: Annotated[bool, typer.Option("--all", help="The whole dataset; asks first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete the whole dataset without asking.")] = False,
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Delete documents, all passages of a file or of the files in a folder, or a whole dataset.

    Files and folders are named as hits name their source; --under also takes the place of a folder or file, such as
    ~/handbook, ../handbook or /home/me/handbook, if no source begins with PATH. --all asks on a terminal; without one,
    it needs --yes.
    """
    if delete_all and (ids or source or under):
        raise InputError("--all deletes the whole dataset; do not combine it with ids, --source or --under")
    if not (delete_all or ids or source or under):
        raise InputError("nothing to delete; give ids, --source PATH, --under PATH or --all")
    for path in under or []:
        names_of_folder(path)  # raises an error before anything is deleted
    if delete_all and dataset is None:
        raise InputError("--all deletes a whole dataset; name it: --dataset NAME")
    dataset = dataset or DATASET
    missing: list[str] = []
    with workspace_at(workspace) as open_workspace:
        if delete_all:
            counts, failures = of_each([dataset], lambda name: len(open_workspace.dataset(name, create=False)))
            content = "all its documents" if failures else output.with_noun(counts[dataset], "document")
            confirm(f"delete dataset {dataset!r} with {content}", is_confirmed=yes)
            open_workspace.drop(dataset)  # also a damaged one, whose documents cannot be counted
            count = counts.get(dataset, 0)
        else:
            failures = {}
            target = open_workspace.dataset(dataset, create=False)
            passages = {path: target.ids(source=path) for path in source or []}
            missing = [id_ for id_ in dict.fromkeys(ids or []) if id_ not in target]
            missing += [path for path, its_ids in passages.items() if not its_ids]
            count = target.delete([*dict.fromkeys([*(ids or []), *chain(*passages.values())])])
            by_folder = {path: target.delete(under=path) for path in under or []}
            missing += [path for path, number in by_folder.items() if not number]
            count += sum(by_folder.values())
        documents = output.with_noun(count, "document")
        sentence = (
            f"dataset {dataset!r} deleted; its documents could not be counted"
            if failures
            else f"dataset {dataset!r} with {documents} deleted"
            if delete_all
            else f"{documents} deleted from {dataset!r}"
        )
        value = {"dataset": dataset, "deleted": count, "dropped": delete_all, "missing": missing}
        output.say(value, sentence, as_json=as_json)
    if missing:
        sys.stderr.write(
            f"pointsman: not in {dataset!r}: {printable(', '.join(missing))}; sources and ids are those that "
            "'pointsman search --json' prints\n"
        )
        raise typer.Exit(1)


@app.command(rich_help_panel=CHECKING)
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Datasets; all by default.")] = None,
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Check that documents and indexes agree; exit 1 if not."""
    with workspace_at(workspace) as open_workspace:
        targets = names or (open_workspace.names() if is_service(workspace) else open_workspace.own_names())
        refused: list[UnmetNeedError] = []

        def check(name: str) -> Verification | None:
            try:
                return open_workspace.dataset(name, create=False).verify()
            except UnmetNeedError as error:  # an attached collection; a service lists them among the others
                refused.append(error)
                return None

        results, failures = of_each(targets, check)
        verifications = {name: result for name, result in results.items() if result is not None}
        if refused and (names or not verifications):
            raise refused[0]
        output.verification(verifications, failures, as_json=as_json)
        problems = bool(failures) or any(result.problems for result in verifications.values())
    if problems:
        raise typer.Exit(1)


@app.command(rich_help_panel=CHECKING)
def rebuild(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Datasets; all by default.")] = None,
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the indexes; nothing is embedded again."""
    with workspace_at(workspace, service="rebuild indexes") as open_workspace:
        targets = names or open_workspace.own_names()
        for name in targets:
            open_workspace.dataset(name, create=False).rebuild()
        output.say({"rebuilt": targets}, f"rebuilt: {', '.join(targets) or 'nothing'}", as_json=as_json)


@app.command(rich_help_panel=CHECKING)
def config(
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Settings file instead of ./pointsman.toml.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show every setting and its origin, and the available language models.

    Settings come from variables such as POINTSMAN_BM25_K1, then from pointsman.toml, then from the defaults.
    """
    from pointsman.values.settings import Settings

    output.settings(Settings.load(file), as_json=as_json)


@app.command(rich_help_panel=SEARCHING)
def demo(
    workspace: Annotated[
        str, typer.Option("--workspace", "-w", metavar="DIR|URL", help="Created if missing.")
    ] = "demo-workspace",
) -> None:
    """Index documentation that every machine has, and search it.

    It consists of the documentation of Python's standard library, the descriptions of the installed packages, and
    Pointsman's own pages.
    """
    from pointsman.cli.commands.demo_command import run_demo

    check_no_service(workspace)
    run_demo(workspace)


app.command("eval", rich_help_panel=MEASURING)(evaluate)
app.command("eval-select", rich_help_panel=MEASURING)(evaluate_select)
app.command(rich_help_panel=MEASURING)(tune)
app.command(rich_help_panel=MEASURING)(calibrate)
app.command(rich_help_panel=SEARCHING)(text)
app.command(rich_help_panel=SEARCHING)(verify_answer)
app.command(rich_help_panel=SERVING)(serve)
app.add_typer(keys.app, rich_help_panel=SERVING)
app.add_typer(access.app, rich_help_panel=KEEPING)
app.add_typer(tokens.app, rich_help_panel=SERVING)
app.add_typer(audit.app, rich_help_panel=CHECKING)
app.command(rich_help_panel=KEEPING)(backup)
app.command(rich_help_panel=KEEPING)(restore)
app.command(rich_help_panel=KEEPING)(copy)
app.command(rich_help_panel=KEEPING)(attach)
app.command(rich_help_panel=KEEPING)(detach)
app.command(rich_help_panel=SERVING)(mcp)
app.command(rich_help_panel=SERVING)(worker)
app.command(rich_help_panel=CHECKING)(leaktest)


def _version(is_wanted: bool) -> None:
    if is_wanted:
        sys.stdout.write(f"pointsman {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, to standard error.")] = False,
) -> None:
    """Read the options that stand before a command."""
    _ = version
    level = logging.INFO if verbose else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


class _Lines(logging.Formatter):
    """Formats records for a terminal: they may quote documents, files and servers."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text."""
        return printable(super().format(record))
