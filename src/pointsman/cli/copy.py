"""``pointsman copy``: datasets from one place to another, vectors included."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from pointsman._places import is_service, redacted
from pointsman.cli import output
from pointsman.cli.common import DatasetsOption, JsonOption, check_workspace
from pointsman.errors import InputError
from pointsman.store.backend import open_backend

_PLACE = "A folder, postgresql://… or opensearch+https://…"


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"{_PLACE}.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="The same; made when missing.", show_default=False)],
    dataset: DatasetsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy datasets from one place to another, vectors included: nothing is embedded again.

    Every document is compared at the end. A copy that was cut short goes on where it was when it is begun again. The
    fitted policy goes along with all datasets; keys and evaluations stay.
    """
    from pointsman.copying import copy as copy_datasets

    for place in (source, target):
        if is_service(place):
            raise InputError(f"{redacted(place)} is a service; name the place where its workspace is")
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
            on_progress=lambda name, done, total: on_progress(done, total, f"{name}: {done} of {total} documents"),
        )
    value = [
        {"dataset": one.name, "documents": one.content.documents, "vectors": one.content.vectors} for one in reports
    ]
    counts = ", ".join(f"{one.name} ({one.content.documents} documents)" for one in reports) or "nothing"
    sentence = f"copied to {redacted(target)} and compared: {counts}"
    output.say({"target": redacted(target), "datasets": value}, sentence, as_json=as_json)
