"""Searches a workspace with an audit log again and again, in a process of its own."""

from __future__ import annotations

import sys

from pointsman import Settings, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder

path, log, name, count = sys.argv[1:]
with Workspace(path, embedder=HashingEmbedder(), settings=Settings(audit_log=log)) as workspace:
    for number in range(int(count)):
        workspace.search(f"{name} {number}", 5, refuse=False)
