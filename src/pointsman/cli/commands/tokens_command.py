"""``pointsman tokens``: whose signed tokens the HTTP service and the MCP server trust."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pointsman.cli import output
from pointsman.cli.command_groups import command_group
from pointsman.cli.shared_options import JsonOption, WorkspaceOption, check_no_service, check_workspace, workspace_at
from pointsman.tools.errors import InputError

app = command_group(
    "tokens",
    "Trust the signed tokens (JWT) of an identity provider.\n\nA token reads as its user and groups; it never writes.",
)


@app.command()
def trust(
    issuer: Annotated[str, typer.Argument(help="The claim iss of its tokens.")],
    audience: Annotated[str, typer.Option(metavar="NAME", help="What their claim aud must name.")],
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Its public keys: a JSON Web Key Set, or a file in PEM; default: where its configuration says.",
        ),
    ] = None,
    groups: Annotated[str, typer.Option(metavar="CLAIM", help="The claim with a user's groups.")] = "groups",
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Trust one issuer from now on, by its public keys.

    Services fetch the keys from the address that the issuer's configuration names (/.well-known/openid-configuration),
    or that --keys is. Keys in a file are stored in the workspace: repeat the command when the issuer has new ones.
    """
    from pointsman.service.server.access.issuer_keys import check_source, discover, fetch_keys
    from pointsman.service.server.access.signed_tokens import Issuer, TokenTrust
    from pointsman.tools.system.locations import is_url

    check_no_service(workspace)
    check_workspace(workspace)
    if keys is None or is_url(keys):
        keys_url = discover(issuer) if keys is None else check_source(keys, "--keys")
        issuer_record, number = Issuer(issuer, audience, (), groups, keys_url), len(fetch_keys(keys_url))
    else:
        keys_url, issuer_record = "", Issuer(issuer, audience, _keys_in(keys), groups)
        number = len(issuer_record.keys)
    with workspace_at(workspace) as open_workspace:
        TokenTrust(open_workspace.backend).trust(issuer_record)
    source = f", fetched from {keys_url}" if keys_url else ""
    sentence = f"tokens of {issuer} for {audience!r} are trusted, with {output.with_noun(number, 'public key')}{source}"
    fields = {"issuer": issuer, "audience": audience, "keys": number, "keys_url": keys_url or None, "groups": groups}
    output.say(fields, sentence, as_json=as_json)


def _keys_in(path: str) -> list[Mapping[str, Any]]:
    from pointsman.service.server.access.signed_tokens import read_keys

    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the public keys in {path!r:.200} cannot be read: {error}") from error
    return read_keys(text)


@app.command()
def forget(*, workspace: WorkspaceOption, as_json: JsonOption = False) -> None:
    """Trust no tokens any more, at once."""
    from pointsman.service.server.access.signed_tokens import TokenTrust

    check_no_service(workspace)
    with workspace_at(workspace) as open_workspace:
        TokenTrust(open_workspace.backend).trust(None)
    output.say({"issuer": None}, "no tokens are trusted", as_json=as_json)
