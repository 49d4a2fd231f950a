"""``pointsman attach`` and ``pointsman detach``: foreign collections, searched beside our own."""

from __future__ import annotations

from typing import Annotated

import typer

from pointsman.cli import output
from pointsman.cli.shared_options import EmbedderOption, JsonOption, WorkspaceOption, workspace_at


def attach(
    name: Annotated[str, typer.Argument(help="Name of the dataset in this workspace.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="postgresql://…, opensearch+https://…, chroma+https://…")],
    table: Annotated[str, typer.Option(metavar="NAME", help="The table (sales.orders), index or collection.")],
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The column or field with the text.")],
    id: Annotated[str, typer.Option(metavar="COLUMN", help="The column or field with the ids; _id for an index.")],  # noqa: A002
    vector: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column or field with the vectors; default: keyword search only."),
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column or field for filters; may be repeated.")
    ] = None,
    made_by: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Embedder of its vectors, if not the workspace's.")
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="Description of its contents.")] = "",
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Search an existing collection together with the datasets.

    It is a PostgreSQL table, an OpenSearch or Meilisearch index, a Chroma collection, or a FAISS file (faiss:PATH, with
    its documents as the table). It is only read. The workspace stores the URL as given; keep the password elsewhere,
    as in ~/.pgpass. Where access is on, it does not exist.
    """
    with workspace_at(workspace, embedder, create=True, service="attach collections") as open_workspace:
        dataset = open_workspace.attach(
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
        sentence = f"{name}: {output.with_noun(count, 'document')} attached"
        output.say({"dataset": name, "documents": count}, sentence, as_json=as_json)


def detach(
    name: Annotated[str, typer.Argument(help="Name of the attached collection.")],
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Detach a collection from the workspace; the collection itself stays unchanged."""
    with workspace_at(workspace, service="detach collections") as open_workspace:
        open_workspace.detach(name)
        output.say({"detached": name}, f"{name} detached", as_json=as_json)
