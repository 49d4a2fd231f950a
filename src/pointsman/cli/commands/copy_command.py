"""``pointsman copy``: datasets from one place to another, vectors included."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from pointsman.cli import output
from pointsman.cli.shared_options import (
    DatasetsOption,
    JsonOption,
    check_no_service,
    check_workspace,
    path_without_service,
)
from pointsman.store.backend_urls import open_backend
from pointsman.tools.system.locations import redacted

_LOCATION = "A folder, postgresql://… or opensearch+https://…"


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"{_LOCATION}.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The same; created if missing.")],
    dataset: DatasetsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy datasets with their vectors and calibrations; nothing is embedded again.

    At the end, every document is compared. An interrupted copy continues when run again. If all datasets are copied, so
    is the fitted policy, unless the target has one; keys, evaluations, kept versions and attached collections are not.
    """
    from pointsman.workspace.copies.copying import copy as copy_datasets

    source, target = path_without_service(source), path_without_service(target)
    for location in (source, target):
        check_no_service(location)
    check_workspace(source)
    with (
        closing(open_backend(source)) as origin,
        closing(open_backend(target)) as goal,
        output.progress("Copying") as on_progress,
    ):
        reports = copy_datasets(
            origin,
            goal,
            dataset,
            on_progress=lambda name, count, total: on_progress(count, total, f"{name}: {count} of {total} documents"),
        )
    value = [
        {
            "dataset": report.name,
            "documents": report.content.documents,
            "vectors": report.content.vectors,
            "kept_days": report.kept_days,
        }
        for report in reports
    ]
    counts = (
        ", ".join(f"{report.name} ({output.with_noun(report.content.documents, 'document')})" for report in reports)
        or "nothing"
    )
    sentence = f"copied to {redacted(target)} and compared: {counts}"
    if names := ", ".join(report.name for report in reports if report.kept_days):
        sentence += (
            f"; the versions that {names} keeps were not copied, so receipts are replayed at the source only; the copy "
            "keeps its own once you index with --versions"
        )
    output.say({"target": redacted(target), "datasets": value}, sentence, as_json=as_json)
