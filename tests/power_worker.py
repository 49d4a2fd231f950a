"""What is recorded for the replays of power loss: ``python power_worker.py FOLDER store|workspace``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pointsman.store.local import files_and_locks as files
from pointsman.store.local import manifest
from pointsman.store.local.collection import Collection
from pointsman.store.local.files_and_locks import remove_file
from pointsman.store.local.manifest import drop_collection
from pointsman.store.local.truth import truth_file
from pointsman.tools.system import replaced_files
from pointsman.tools.system.replaced_files import replacing
from pointsman.values.types import Document
from store_kit import add, corpus, write_files_early


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def step(*what: Any) -> Iterator[None]:
    """Say that it begins, and that it is done."""
    say(f"begin {json.dumps(what)}")
    yield
    say("done")


def documents(count: int, seed: int, prefix: str = "d") -> list[Document]:
    return [Document(one.id, f"rail {one.text}") for one in corpus(count, seed, prefix)]


def texts(documents: list[Document]) -> dict[str, str]:
    return {one.id: one.text for one in documents}


def on_stores(root: Path) -> None:
    """Make, fill, update, delete, rebuild, drop and make again, close and open in between."""
    write_files_early(10)

    def fill(store: Collection, name: str, documents: list[Document]) -> None:
        with step("add", name, texts(documents)):
            add(store, documents)

    with step("make", "one"):
        one = Collection(root / "datasets" / "one")
    fill(one, "one", documents(12, 1))
    with step("put", "policy.json", "{}"), replacing(root / "policy.json") as file:
        file.write(b"{}")
    with step("make", "two"):
        two = Collection(root / "datasets" / "two")
    fill(two, "two", documents(3, 2))
    fill(one, "one", documents(20, 3))
    with step("delete", "one", ["d1", "d2", "d19"]):
        one.delete(["d1", "d2", "d19"])
    with step("describe", "one"):
        one.describe(description="rails")
    one.close()
    one = Collection(root / "datasets" / "one")
    with one.writing():
        fill(one, "one", documents(5, 4, "e"))
    with step("rebuild", "one"):
        one.rebuild()
    with step("drop", "two"):
        two.remove()
    with step("make", "two"):
        two = Collection(root / "datasets" / "two")
    fill(two, "two", documents(2, 5))
    two.close()
    with step("remove", "policy.json"):
        remove_file(root / "policy.json")
    fill(one, "one", documents(4, 6))
    one.close()
    with step("drop", "one"):
        drop_collection(root / "datasets" / "one")


def on_workspace(root: Path) -> None:
    """The same through the workspace."""
    from pointsman.embedders.scripted_embedders import HashingEmbedder
    from pointsman.retrieval.plan.policy import measured
    from pointsman.service.server.access.api_keys import KeyStore
    from pointsman.workspace.workspace_search import Workspace

    embedder = HashingEmbedder()
    with Workspace(root, embedder=embedder) as workspace:

        def fill(name: str, documents: list[Document]) -> None:
            with step("add", name, texts(documents)):
                workspace.dataset(name).add(documents)

        with step("make", "one"):
            workspace.dataset("one").make()
        fill("one", documents(12, 1))
        policy = measured()
        with step("put", "policy.json", policy.to_json()):
            workspace.keep(policy)
        with step("make", "two"):
            workspace.dataset("two").make()
        fill("two", documents(3, 2))
        with step("delete", "one", ["d1", "d2"]):
            workspace.dataset("one").delete(["d1", "d2"])
        with step("describe", "one"):
            workspace.dataset("one").describe("rails")
        with step("drop", "two"):
            workspace.drop("two")
        with step("make", "two"):
            workspace.dataset("two").make()
        fill("two", documents(2, 5))
        with step("remove", "policy.json"):
            workspace.keep(None)
        keys = KeyStore(root / "keys.json")
        with step("put", "keys.json", "first"):
            first = keys.create("first")
        with step("put", "keys.json", "first, second"):
            keys.create("second")
        with step("put", "keys.json", "second"):
            keys.revoke(first.key.id)
        with step("drop", "one"):
            workspace.drop("one")


def without_syncing_names() -> None:
    """Let directories be synced no more, to see that it matters."""
    for module in (replaced_files, files, manifest, truth_file):
        module.sync_directory = lambda _: None  # type: ignore[attr-defined]


if __name__ == "__main__":
    if os.environ.get("WITHOUT_SYNC"):
        without_syncing_names()
    {"store": on_stores, "workspace": on_workspace}[sys.argv[2]](Path(sys.argv[1]))
