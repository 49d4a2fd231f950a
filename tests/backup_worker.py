"""What the tests of backups run in processes of their own: ``python backup_worker.py ROLE WORKSPACE [FOLDER]``."""

from __future__ import annotations

import sys

from pointsman import Document, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.workspace.copies.backup import backup


def write(path: str) -> None:
    """Add and delete without end; a line for each document that is durable, or durably gone."""
    with Workspace(path, embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes")
        number = 0
        while True:
            number += 1
            with notes.writing(wait=60):
                notes.add([Document(f"w{number}", f"rail signal number{number}")])
            sys.stdout.write(f"w{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        while True:  # until killed
            for number in range(1_000_000):
                backup(sys.argv[2], f"{sys.argv[3]}/{number}")
