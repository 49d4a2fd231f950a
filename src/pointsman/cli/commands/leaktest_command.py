"""``pointsman leaktest``: proof that what someone may not see changes nothing that they see."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pointsman.cli import output
from pointsman.cli.shared_options import JsonOption, WorkspaceOption, check_no_service, check_workspace, workspace_at

if TYPE_CHECKING:
    from pointsman.evaluation.leaktest import LeakReport


def leaktest(
    pairs: Annotated[int, typer.Option(min=1, metavar="N", help="Pairs of copies, with and without.")] = 20,
    questions: Annotated[int, typer.Option(min=1, metavar="N", help="Questions for each pair.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the made-up documents and questions.")] = 0,
    by_filter: Annotated[
        bool, typer.Option("--by-filter", help="Hide by a filter instead of access, to see what that gives away.")
    ] = False,
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Compare answers with and without documents that the asker may not see; exit 1 if any differ.

    A sample of your documents, with their access, and made-up ones are copied twice into a store of the same kind: once
    all of them, once those that a made-up asker sees. Every door is asked the same in both. The copies are deleted, and
    your workspace is only read.
    """
    from pointsman.evaluation.leaktest import leaktest as compare

    check_no_service(workspace)
    check_workspace(workspace)

    def tell(report: LeakReport) -> None:
        if not as_json and sys.stderr.isatty():
            sys.stderr.write(f"\r{report.pairs} of {pairs} pairs, {report.differing} answers differ")

    with workspace_at(workspace) as open_workspace:
        wall = "filter" if by_filter else "access"
        report = compare(open_workspace, pairs=pairs, questions=questions, seed=seed, wall=wall, on_pair=tell)  # type: ignore[arg-type]  # one of both
    summary = f"{output.with_noun(report.comparisons, 'answer')} of {output.with_noun(report.pairs, 'pair')}"
    lines = [f"{summary} compared, {report.differing} differ"]
    lines += [
        f"{leak.door}: {leak.path}: {leak.with_hidden} with hidden documents, {leak.without_hidden} without"
        for leak in report.leaks
    ]
    lines += [f"not asked: {reason}" for reason in report.skipped]
    output.say(report.to_dict(), "\n".join(lines), as_json=as_json)
    if report.differing:
        raise typer.Exit(1)
