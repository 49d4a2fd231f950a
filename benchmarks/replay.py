"""Replay: whether old answers come out again to the byte after writes, deletions and changed settings.

    python benchmarks/replay.py [--at folder|postgresql] [--passages 1000] [--receipts 1000] [--writes 10000]
        [--embedder hashing|default]

Questions in three languages are asked with several strategies, filters and settings: half before anything is written,
half between the writes. Documents are then replaced, deleted and added, 50 at a time. What must still come
out, and what cannot and why, is settled when a question is asked: answers from a dataset that is deleted later, from
one whose versions expire, and under a policy that is replaced. Then every receipt is replayed, most in the order of
their writes, and some in a random one. Storage is compared with that of a dataset without versions, and with one that
holds every version as a document.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pointsman
from _passages import passages, questions
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.plan.policy import measured
from pointsman.store.local.truth.packing import unpack_text
from pointsman.tools.errors import NotHeldError
from pointsman.values.settings import Settings

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

if TYPE_CHECKING:
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.workspace.workspace_search import Workspace

TOGETHER = 50
SAME = "the same answer"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"strategy": "bm25"},
    {"strategy": "vector"},
    {"strategy": "rrf", "k": 10},
    {"filters": "share < 300", "refuse": False},
    {"refuse": False, "k": 20},
    {"spelling": False},
    {"effort": "fast"},
]
SETTINGS = [Settings(), Settings(default_retrieval_strategy="hybrid"), Settings(bm25_k1=0.9), Settings(timeout=20.0)]


def form_of(context: RetrievalContext) -> dict[str, Any]:
    """All of an answer but its times."""
    return {name: value for name, value in context.to_dict().items() if name not in {"milliseconds", "trace"}}


def change(workspace: Workspace, chance: random.Random, new: list[Document], ids: list[str]) -> None:
    """Replace, delete and add, or edit some documents."""
    dataset = workspace.dataset("kept")
    picked = [ids[number] for number in chance.sample(range(len(ids)), TOGETHER)]
    fresh = [new.pop() for _ in range(TOGETHER)]
    match chance.randrange(4):
        case 0:
            dataset.delete(picked)
            dataset.add(fresh)
            ids[:] = [id_ for id_ in ids if id_ not in set(picked)] + [document.id for document in fresh]
        case 1:
            dataset.set_metadata({id_: {"share": chance.randrange(1000)} for id_ in picked})
        case _:
            dataset.add([replace(document, id=id_) for id_, document in zip(picked, fresh, strict=True)])


def size_of(workspace: Workspace, name: str) -> int:
    """Bytes of the file of documents without free pages, or of the tables and their indexes after VACUUM FULL."""
    store: Any = workspace.dataset(name).store
    if store.info.kind == "postgresql":
        names = "select format('%%I.%%I', schemaname, tablename) from pg_tables where schemaname = %(schema)s "
        names += "and starts_with(tablename, %(prefix)s)"
        tables = [
            table for (table,) in store._rows(names, schema=store.tables.schema, prefix=f"d{store.tables.number}_")
        ]
        for table in tables:
            store.connections.run(lambda connection, table=table: connection.execute(f"vacuum full {table}"))
        return sum(store._rows("select pg_total_relation_size(%(table)s)", table=table)[0][0] for table in tables)
    path = workspace.path / "datasets" / name / "documents.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, free, size = (
            connection.execute(f"PRAGMA {value}").fetchone()[0]
            for value in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


class Run:
    """One run: a workspace with three datasets, what was asked of it, and what must come of each receipt.

    Args:
        place: the folder or the URL of the workspace.
        receipts: how many questions are asked.
        embedder: None: the default one.
    """

    def __init__(self, place: str, receipts: int, embedder: HashingEmbedder | None) -> None:
        self.place, self.embedder, self.early = place, embedder, receipts // 2
        self.chance, self.texts = random.Random("replay"), questions(receipts, "replay")
        self.taken: list[tuple[str, dict[str, Any], str]] = []  # receipt, answer, what must come of it
        self.workspace = self.opened(Settings())

    def opened(self, settings: Settings) -> Workspace:
        """Open the workspace."""
        settings = settings.updated(calibrate_automatically=False)
        return pointsman.open(self.place, embedder=self.embedder, settings=settings)

    def reopen(self, settings: Settings) -> None:
        """Close the workspace, and open it under other settings."""
        self.workspace.close()
        self.workspace = self.opened(settings)

    def ask(self) -> None:
        """Ask the next question."""
        number = len(self.taken)
        name, expected = "kept", SAME
        if number < self.early and number % 20 == 7:
            name, expected = "dropped", "which was deleted"
        elif number < self.early and number % 20 == 13:
            name, expected = "short", "keeps versions for 1 days"
        elif self.early // 4 <= number < self.early // 4 + self.early // 10:
            expected = "the policy, which was replaced"
        context = self.workspace.search(self.texts[number], datasets=[name], **OPTIONS[number % len(OPTIONS)])
        self.taken.append((str(context.receipt), form_of(context), expected))

    def ask_before_writes(self) -> None:
        """Ask half of the questions, under changing settings, some under a policy that is replaced."""
        for number in range(self.early):
            if number == self.early // 4:
                self.workspace.keep(replace(measured(), vector_weight=1.7))
            if number == self.early // 4 + self.early // 10:
                self.workspace.keep(None)
            if number % 60 == 59:
                self.reopen(self.chance.choice(SETTINGS))
            self.ask()

    def ask_between_writes(self, live: list[Document], new: list[Document], rounds: int) -> None:
        """Change documents in so many transactions, and ask the other half of the questions between them."""
        ids, between = [document.id for document in live], len(self.texts) - self.early
        for turn in range(rounds):
            change(self.workspace, self.chance, new, ids)
            for _ in range((turn + 1) * between // rounds - turn * between // rounds):
                self.ask()

    def lose(self) -> None:
        """Delete a dataset, let the versions of another expire, and change the settings."""
        self.workspace.drop("dropped")
        now = time.time
        for days in (3, 6):
            time.time = lambda days=days: now() + days * 86_400  # type: ignore[misc]
            self.workspace.dataset("short").add([Document("later", f"day {days}")])
        time.time = now
        self.reopen(Settings(default_retrieval_strategy="bm25", multi_query_variants=("original",)))

    def replayed(self, number: int) -> str:
        """Say what comes of a receipt."""
        receipt, form, expected = self.taken[number]
        try:
            context = self.workspace.replay(receipt)
        except NotHeldError as error:
            if expected != SAME and expected in str(error):
                return f"no longer held, truly: {expected}"
            return f"WRONGLY REFUSED: {error}"
        outcome = SAME if form_of(context) == form else "ANOTHER ANSWER, SHOWN AS THE SAME"
        return outcome if expected == SAME else f"{outcome}, though: {expected}"

    def print_storage(self) -> None:
        """Compare with a dataset without versions, and with one in which every version is a document."""
        kept_dataset: Any = self.workspace.dataset("kept")
        store = kept_dataset.store
        is_folder = store.info.kind == "local"
        rows = (
            store.collection.truth._rows("SELECT id, text FROM history")
            if is_folder
            else store._rows(f"select key, text from {store.tables.history}")
        )
        held = list(kept_dataset)
        for name in ("plain", "everything"):
            self.workspace.dataset(name).add(held)
        former = [
            Document(f"{id_} before {row}", text if isinstance(text, str) else unpack_text(text))
            for row, (id_, text) in enumerate(rows)
        ]
        self.workspace.dataset("everything").add(former)
        kept, plain, everything = (size_of(self.workspace, name) for name in ("kept", "plain", "everything"))
        per_version, per_document = (kept - plain) / max(len(rows), 1), plain / len(held)
        print(f"{len(held)} documents: {plain / 1e6:.1f} MB; with {len(rows)} kept versions: {kept / 1e6:.1f} MB")
        print(f"a kept version takes {per_version / per_document:.2f} times the {per_document:.0f} bytes of a document")
        print(f"all of it takes {kept / everything:.2f} times what the same versions take as documents")
        if is_folder:
            print(f"verify: {kept_dataset.verify().problems or 'no problems'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1000)
    parser.add_argument("--receipts", type=int, default=1000)
    parser.add_argument("--writes", type=int, default=10_000)
    parser.add_argument("--at", choices=["folder", "postgresql"], default="folder")
    parser.add_argument("--embedder", choices=["hashing", "default"], default="hashing")
    arguments = parser.parse_args()
    total = arguments.passages + 2 * arguments.writes
    documents = list(passages(total + (-total) % 10_000))[:total]
    live, new = documents[: arguments.passages], documents[arguments.passages :]
    with ExitStack() as stack:
        if arguments.at == "folder":
            place = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "work")
        else:
            from postgres_kit import PostgresServer

            server = PostgresServer()
            stack.callback(server.stop)
            place = f"{server.url}?schema=replay"
        run = Run(place, arguments.receipts, HashingEmbedder() if arguments.embedder == "hashing" else None)
        for name, versions in (("kept", "90 days"), ("dropped", "90 days"), ("short", "1 day")):
            run.workspace.dataset(name, versions=versions).add(live if name == "kept" else live[:200])
        start, rounds = time.monotonic(), arguments.writes // TOGETHER
        run.ask_before_writes()
        run.ask_between_writes(live, new, rounds)
        changes = f"{rounds * TOGETHER} changes in {rounds} rounds"
        print(f"{len(run.taken)} questions, {changes}: {time.monotonic() - start:.0f} s", flush=True)
        run.lose()
        count, start = len(run.taken), time.monotonic()
        order = [*range(count), *run.chance.sample(range(count), min(20, count))]
        outcomes = Counter(map(run.replayed, order))
        print(f"{len(order)} replays of {count} receipts: {time.monotonic() - start:.0f} s")
        for outcome, times in outcomes.most_common():
            print(f"{times:6}  {outcome}")
        lengths = sorted(len(receipt) for receipt, _, _ in run.taken)
        print(f"a receipt has {lengths[count // 2]} characters, {lengths[-1]} at most")
        run.print_storage()
        run.workspace.close()


if __name__ == "__main__":
    main()
