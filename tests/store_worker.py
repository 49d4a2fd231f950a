"""What the tests of processes run in processes of their own: ``python store_worker.py ROLE DIRECTORY [SEED]``."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from pointsman.values.types import Document
from store_kit import add, corpus, opened, unit, write_files_early


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def write_for_ever(path: Path, seed: int) -> None:
    """Add, update and delete without end; ``start`` and ``done`` around each call say what it does."""
    write_files_early(20)
    chance = random.Random(seed)
    store = opened(path)
    number = 0
    while True:
        number += 1
        ids = sorted({f"d{chance.randrange(120)}" for _ in range(chance.randrange(1, 12))})
        if chance.random() < 0.35:
            say("start", "delete", number, *ids)
            store.delete(ids)
        else:
            say("start", "add", number, *ids)
            add(
                store, [Document(id_, f"rail {id_} write{seed}x{number}", {"write": f"{seed}x{number}"}) for id_ in ids]
            )
        say("done", number)


def hold(path: Path) -> None:
    """Become the writer, and stay it."""
    store = opened(path)
    with store.writing():
        add(store, corpus(30))
        say("held")
        time.sleep(600)


def try_to_write(path: Path) -> None:
    from pointsman.tools.errors import LockedError

    store = opened(path)
    matches = len(store.keyword.search("rail lamp yard guard", 100))
    try:
        add(store, [Document("second", "writer")])
        say("wrote")
    except LockedError as error:
        say(matches, error)
    store.close()


def read(path: Path) -> None:
    """Search until the last document is there; say when that begins, and what was seen, which is never less."""
    store = opened(path)
    seen, searches, deadline = 0, 0, time.monotonic() + 120
    while time.monotonic() < deadline:
        ended = bool(store.keyword.search("last", 1))
        words = store.keyword.search("track", 5000)
        near = store.vectors.search(unit("q"), 5000) if store.vectors is not None else []
        documents = store.truth.fetch([key for key, _ in words])
        assert all(document is not None and "track" in document.text for document in documents)
        assert len(words) >= seen, "documents have vanished"
        seen, searches = len(words), searches + 1
        if searches == 1:
            say("reading")
        if ended and len(near) == len(store.truth):
            break
    say(seen, searches)
    store.close()


if __name__ == "__main__":
    role, directory, *rest = sys.argv[1:]
    roles = {"hold": hold, "try": try_to_write, "read": read}
    if role == "write":
        write_for_ever(Path(directory), int(rest[0]))
    else:
        roles[role](Path(directory))
