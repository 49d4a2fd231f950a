"""``pointsman attach`` and ``pointsman detach``: collections that somebody else keeps, searched beside our own."""

from __future__ import annotations

from typing import Annotated

import typer

from pointsman.cli import output
from pointsman.cli.common import EmbedderOption, JsonOption, WorkspaceOption, workspace_at


def attach(
    name: Annotated[str, typer.Argument(help="Of the dataset that it becomes here.", show_default=False)],
    url: Annotated[
        str, typer.Argument(metavar="URL", help="postgresql://… or opensearch+https://…", show_default=False)
    ],
    table: Annotated[str, typer.Option(metavar="NAME", help="The table or view (sales.orders), or the index.")],
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The column or field with the text.")],
    id: Annotated[str, typer.Option(metavar="COLUMN", help="What tells documents apart; _id of an index.")],  # noqa: A002
    vector: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="With the vectors; else words alone.", show_default=False)
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="That filters see; may be repeated.", show_default=False)
    ] = None,
    made_by: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="The embedder of its vectors, if not the workspace's.", show_default=False),
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What is in it.", show_default=False)] = "",
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Search a table of PostgreSQL or an index of OpenSearch that exists already, beside the datasets.

    It is only read. The URL is kept with the workspace as it is given: keep its password elsewhere, as in ~/.pgpass.
    """
    with workspace_at(workspace, embedder, create=True, service="attach collections") as opened:
        dataset = opened.attach(
            name,
            url,
            table=table,
            id=id,
            text=text,
            vector=vector,
            metadata=metadata or (),
            embedder=made_by,
            description=description,
        )
        count = len(dataset)
        output.say({"dataset": name, "documents": count}, f"{name}: {count} documents attached", as_json=as_json)


def detach(
    name: Annotated[str, typer.Argument(help="Of the attached collection.", show_default=False)],
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Search an attached collection no more; nothing happens to it."""
    with workspace_at(workspace, service="detach collections") as opened:
        opened.detach(name)
        output.say({"detached": name}, f"{name} detached", as_json=as_json)
