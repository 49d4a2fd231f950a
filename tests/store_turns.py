"""One of several processes that write to a dataset in turn: ``python store_turns.py WORKSPACE NAME COUNT``."""

from __future__ import annotations

import sys

from pointsman import Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder

if __name__ == "__main__":
    path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with Workspace(path, embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes")
        for number in range(count):
            with notes.writing(wait=100):
                notes.add([Document(f"{name}{number}", f"rail signal {name}{number}")])
            sys.stdout.write(f"{name}{number}\n")
            sys.stdout.flush()
