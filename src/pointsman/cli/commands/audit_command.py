"""``pointsman audit``: finds a question or a receipt in the audit log, which holds only digests of them."""

from __future__ import annotations

from pointsman.cli import output
from pointsman.cli.command_groups import command_group
from pointsman.cli.shared_options import (
    JsonOption,
    QuestionArgument,
    WorkspaceOption,
    check_no_service,
    question_of,
    workspace_at,
)

app = command_group(
    "audit", "Find questions in the audit log.\n\nThe setting audit_log names its file; without it, there is none."
)


@app.callback()
def audit() -> None:
    """Find questions in the audit log; the setting audit_log names its file."""


@app.command()
def digest(words: QuestionArgument = None, *, workspace: WorkspaceOption, as_json: JsonOption = False) -> None:
    """Print the digest of a question or a receipt, as the audit log of this workspace has it."""
    check_no_service(workspace)
    text = question_of(words)
    with workspace_at(workspace) as open_workspace:
        value = open_workspace.audit_log.digest(text)
    output.say({"digest": value}, value, as_json=as_json)
