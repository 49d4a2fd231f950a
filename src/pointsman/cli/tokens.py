"""``pointsman tokens``: whose signed tokens the HTTP service and the MCP server trust."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pointsman.cli import output
from pointsman.cli.common import JsonOption, WorkspaceOption, check_no_service, check_workspace, workspace_at
from pointsman.errors import InputError

app = typer.Typer(
    name="tokens",
    help="Trust the signed tokens (JWT) of an identity provider.\n\n"
    "A token reads as its user and groups; it never writes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def trust(
    issuer: Annotated[str, typer.Argument(help="The claim iss of its tokens.", show_default=False)],
    audience: Annotated[str, typer.Option(metavar="NAME", help="What their claim aud must name.", show_default=False)],
    keys: Annotated[
        Path, typer.Option(metavar="FILE", help="Its public keys: a JSON Web Key Set, or PEM.", show_default=False)
    ],
    groups: Annotated[str, typer.Option(metavar="CLAIM", help="The claim with a user's groups.")] = "groups",
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Trust one issuer from now on; its keys are stored in the workspace. Repeat it when the issuer has new keys."""
    from pointsman.server.tokens import Issuer, TokenTrust, read_keys

    check_no_service(workspace)
    check_workspace(workspace)
    try:
        text = keys.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the public keys in {str(keys)!r:.200} cannot be read: {error}") from error
    issuer_record = Issuer(issuer, audience, read_keys(text), groups)
    with workspace_at(workspace) as open_workspace:
        TokenTrust(open_workspace.backend).trust(issuer_record)
    count = output.with_noun(len(issuer_record.keys), "public key")
    fields = {"issuer": issuer, "audience": audience, "keys": len(issuer_record.keys), "groups": groups}
    output.say(fields, f"tokens of {issuer} for {audience!r} are trusted, with {count}", as_json=as_json)


@app.command()
def forget(*, workspace: WorkspaceOption, as_json: JsonOption = False) -> None:
    """Trust no tokens any more, at once."""
    from pointsman.server.tokens import TokenTrust

    check_no_service(workspace)
    with workspace_at(workspace) as open_workspace:
        TokenTrust(open_workspace.backend).trust(None)
    output.say({"issuer": None}, "no tokens are trusted", as_json=as_json)
