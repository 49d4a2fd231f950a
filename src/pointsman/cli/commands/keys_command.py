"""``pointsman keys``: create, list and revoke keys of the HTTP service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pointsman.cli import output
from pointsman.cli.command_groups import command_group
from pointsman.cli.output import table
from pointsman.cli.shared_options import JsonOption, WorkspaceOption, check_no_service
from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.tools.system.locations import is_service, is_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.service.server.access.api_keys import ApiKey, KeyStore

app = command_group(
    "keys",
    "Create, list and revoke keys for the HTTP service.\n\n"
    "Until the first key is created, the service answers only this machine and allows it everything.",
)

_DURATION: Final = re.compile(r"([0-9]{1,5})([hdwy])")
_UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Owner or purpose of the key.")],
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", metavar="NAME", help="Limit the key to this dataset; may be repeated."),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Allow datasets that do not exist yet.")
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Allow searching, but not adding and deleting.")
    ] = False,
    expires: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Such as 12h, 30d, 2w, 1y, or 2030-01-31 (UTC).")
    ] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Whom it asks as where access is on: user:anna, group:hr; may be repeated."),
    ] = None,
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it once.

    A running service accepts it at once. Without --dataset it covers all datasets, including later ones.
    """
    from pointsman.service.server.access.api_keys import ALL, SCOPES

    expiry_time = None if expires is None else expiry(expires, datetime.now(UTC))
    if not allow_missing and not is_service(workspace):
        _check_datasets(workspace, dataset or ())
    with _keys(workspace, make=True) as keys:
        scopes = ("read",) if read_only or principal is not None else SCOPES  # with principals, a key only reads
        key = keys.create(name, datasets=dataset or ALL, scopes=scopes, expires=expiry_time, principals=principal)
    if as_json:
        output.print_json({**key.key.to_dict(), "text": key.text})
        return
    console = output.console()
    console.print(f"Key {key.key.id} for {name}: {_may(key.key)}. It is shown only once; keep it safe.", markup=False)
    console.print(key.text, style="bold", markup=False, soft_wrap=True)


@app.command("list")
def list_keys(*, workspace: WorkspaceOption, as_json: JsonOption = False) -> None:
    """List the keys, including expired and revoked ones."""
    with _keys(workspace) as store:
        keys = store.list()
    if as_json:
        output.print_json([key.to_dict() for key in keys])
        return
    time = datetime.now(UTC)
    table(
        ["id", "name", "datasets", "may", "created", "state"],
        [
            [
                key.id,
                key.name,
                ", ".join(key.datasets),
                "+".join(key.scopes),
                f"{key.creation_time:%Y-%m-%d}",
                _state(key, time),
            ]
            for key in keys
        ],
    )


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id from 'pointsman keys list'.")],
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Revoke a key, at once and for good."""
    with _keys(workspace) as keys:
        key = keys.revoke(key_id)
    output.say(key.to_dict(), f"key {key.id} ({key.name}) revoked", as_json=as_json)


def expiry(text: str, time_now: datetime) -> datetime:
    """Return the time given by ``--expires``: a duration from now, or a date, in UTC unless it has a time zone.

    Raises:
        InputError: the text is neither.
    """
    duration = _DURATION.fullmatch(text)
    try:
        if duration is not None and int(duration[1]):
            return time_now + int(duration[1]) * _UNITS[duration[2]]
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"a key expires in 12h, 30d, 2w or 1y, or at a date such as 2030-01-31, not {text!r:.80}"
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _check_datasets(workspace: str, names: Sequence[str]) -> None:
    """Check that these datasets exist: a key for a misspelt name would be useless.

    Raises:
        InputError: a dataset does not exist although its name is valid.
    """
    from pointsman.workspace.dataset import check_name
    from pointsman.workspace.workspace_search import Workspace

    with Workspace(workspace) as open_workspace:
        existing = open_workspace.names()
    for name in names:
        if name == "*":
            continue
        check_name(name)
        if name not in existing:
            error = UnknownNameError("dataset", name, tuple(existing))
            raise InputError(f"{error}; --allow-missing creates the key for a dataset that is created later")


@contextmanager
def _keys(workspace: str, *, make: bool = False) -> Iterator[KeyStore]:
    """Open the keys of a workspace.

    Raises:
        InputError: there is no workspace, or it is behind a service.
    """
    from pointsman.service.server.access.api_keys import keys_of
    from pointsman.workspace.workspace_search import Workspace

    check_no_service(workspace)
    if not make and not is_url(workspace) and not Path(workspace).exists():
        raise InputError(f"there is no workspace at {workspace!r}; name another with --workspace")
    with Workspace(workspace) as open_workspace:  # raises an error if there is something else at that path
        if make:
            open_workspace.make()  # otherwise a folder with only keys would not be recognised as a workspace
        yield keys_of(open_workspace.backend)


def _may(key: ApiKey) -> str:
    rights = "reads and writes" if "write" in key.scopes else "reads"
    scope = "all datasets" if key.datasets == ("*",) else ", ".join(key.datasets)
    identity = f" as {', '.join(key.principals) or 'everyone'}" if key.principals is not None else ""
    return f"{rights} {scope}{identity}" + (f" until {_minute(key.expires)}" if key.expires else "")


def _state(key: ApiKey, time: datetime) -> str:
    if key.revocation_time is not None:
        return f"revoked {key.revocation_time:%Y-%m-%d}"
    if key.expires is None:
        return "works"
    return f"{'works until' if key.valid(time) else 'expired'} {_minute(key.expires)}"


def _minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
