"""Applies settings to a workspace that is served; needs nothing of the HTTP service's framework."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pointsman.llm.chosen_models import SettingsModels

if TYPE_CHECKING:
    from pointsman.values.settings import Settings
    from pointsman.workspace.workspace_search import Workspace


def configure(workspace: Workspace, settings: Settings) -> None:
    """Apply settings to a workspace, and use the language models that they name.

    A language model or time limit passed to the workspace is kept. BM25 keeps the parameters with which its datasets
    were opened.
    """
    if workspace.workflow.timeout == workspace.settings.timeout:
        workspace.workflow = replace(workspace.workflow, timeout=settings.timeout)
    if workspace.llm is None or isinstance(workspace.llm, SettingsModels):
        workspace.llm = SettingsModels(settings)
    workspace.settings = settings
