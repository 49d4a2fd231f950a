"""``pointsman backup`` and ``pointsman restore``: copies of a workspace, even while it is served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pointsman.cli import output
from pointsman.cli.shared_options import JsonOption, WorkspaceOption, check_no_service
from pointsman.tools.errors import InputError
from pointsman.tools.system.locations import is_url, redacted

if TYPE_CHECKING:
    from pointsman.workspace.copies.backup import BackupReport


def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Target folder; new or empty.")],
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Copy a workspace, even while it is served and written to.

    It contains all documents and vectors, the fitted policy, the keys' hashes, saved evaluations, and where attached
    collections are (not their documents), with checksums.
    """
    from pointsman.workspace.copies.backup import backup as copy

    with output.progress("Backing up") as on_progress:
        report = copy(_folder(workspace), folder, on_progress=on_progress)
    sentence = f"{_file_count(report)} backed up into {report.folder}, {report.bytes / 1e6:.1f} MB"
    if report.skipped:
        sentence += f"; deleted during the backup and not included: {', '.join(report.skipped)}"
    output.say({**_value(report), "skipped": list(report.skipped)}, sentence, as_json=as_json)


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="The folder of a backup.")],
    *,
    workspace: WorkspaceOption,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Only compare checksums; indexes are built when needed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into a new or empty folder, and verify it."""
    from pointsman.workspace.copies.backup import restore as copy

    with output.progress("Restoring") as on_progress:
        report = copy(backup, _folder(workspace), verify=not no_verify, on_progress=on_progress)
    check = "verified" if report.verified else "checksums compared"
    sentence = f"{_file_count(report)} restored into {report.folder}, as of {report.time:%Y-%m-%d %H:%M:%S %Z}; {check}"
    output.say({**_value(report), "verified": report.verified}, sentence, as_json=as_json)


def _folder(workspace: str) -> Path:
    """Return the folder of a workspace.

    Raises:
        InputError: the workspace is in a server.
    """
    check_no_service(workspace)
    if is_url(workspace):
        raise InputError(
            f"backup and restore are for folders; copy a workspace in a server with 'pointsman copy "
            f"{redacted(workspace)} FOLDER', or back with 'pointsman copy FOLDER {redacted(workspace)}'"
        )
    return Path(workspace)


def _file_count(report: BackupReport) -> str:
    documents = output.with_noun(sum(report.datasets.values()), "document")
    return f"{documents} of {output.with_noun(len(report.datasets), 'dataset')}"


def _value(report: BackupReport) -> dict[str, object]:
    return {
        "folder": str(report.folder),
        "time": report.time.isoformat(),
        "datasets": dict(report.datasets),
        "files": report.files,
        "bytes": report.bytes,
    }
