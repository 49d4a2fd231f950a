"""``pointsman access``: switch access on and off, and say who may see documents."""

from __future__ import annotations

from typing import Annotated

import typer

from pointsman.cli import output
from pointsman.cli.command_groups import command_group
from pointsman.cli.shared_options import (
    DATASET,
    DatasetOption,
    JsonOption,
    WorkspaceOption,
    check_no_service,
    workspace_at,
)
from pointsman.tools.errors import InputError

app = command_group(
    "access",
    "Say who may see which document.\n\n"
    "While access is on, documents exist only for those whom they allow, and every search says who asks.",
)


@app.command("on")
def switch_on(*, workspace: WorkspaceOption, as_json: JsonOption = False) -> None:
    """Switch access on; documents that allow nobody are seen by nobody from then on."""
    _switch(workspace, is_on=True, as_json=as_json)


@app.command("off")
def switch_off(*, workspace: WorkspaceOption, as_json: JsonOption = False) -> None:
    """Switch access off; everyone who reaches the workspace sees every document from then on."""
    _switch(workspace, is_on=False, as_json=as_json)


def _switch(workspace: str, *, is_on: bool, as_json: bool) -> None:
    check_no_service(workspace)
    with workspace_at(workspace) as open_workspace:
        open_workspace.switch_access(on=is_on)
    output.say({"access": is_on}, f"access is {'on' if is_on else 'off'}", as_json=as_json)


@app.command("set")
def set_access(
    principals: Annotated[str, typer.Argument(help="Such as group:hr,-user:eve; '' is nobody.", metavar="PRINCIPALS")],
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids.")] = None,
    dataset: DatasetOption = DATASET,
    source: Annotated[list[str] | None, typer.Option(metavar="PATH", help="All passages of this file.")] = None,
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Change who may see documents, from the next search on; nothing is embedded again."""
    from pointsman.values.views import Permissions

    check_no_service(workspace)
    permissions = Permissions.parse(principals)
    with workspace_at(workspace) as open_workspace:
        target = open_workspace.dataset(dataset, create=False)
        all_ids = [*(ids or []), *(id_ for path in source or [] for id_ in target.ids(source=path))]
        if not all_ids:
            raise InputError("there is nothing to change; give ids or --source PATH of documents that are stored")
        result = target.set_access(dict.fromkeys(all_ids, permissions))
    count_text = output.with_noun(result.updated, "document")
    output.say({"updated": result.updated}, f"access of {count_text} changed", as_json=as_json)
