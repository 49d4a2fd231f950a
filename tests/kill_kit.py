"""Kill a writer at random moments, and check that what it had acknowledged is there; for the test and the benchmark."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

from store_kit import opened, sound, units

WORKER = Path(__file__).with_name("store_worker.py")


class Killing:
    """One dataset over many kills, and what must be in it.

    Args:
        path: of the folder.
        seed: of the moments.
        days: for which it keeps versions; 0: it keeps none.
    """

    def __init__(self, path: Path, seed: int, *, days: int = 0) -> None:
        self._path, self._chance = path, random.Random(seed)
        self.states: dict[int, dict[str, str]] = {}
        """By sequence number, what was there after a kill."""
        if days:
            store = opened(path)
            with store.writer():
                store.truth.keep_versions(days)
            store.close()
        self._expected: dict[str, str] = {}  # id -> the write that it must show
        self.acknowledged = 0
        self.cut_short = 0
        self.kept = 0

    def once(self, seed: int) -> None:
        """Let a writer run, kill it, open the dataset again, compare."""
        command = [sys.executable, "-W", "error", str(WORKER), "write", str(self._path), str(seed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            # After a random number of calls, at a random moment of the next one: so it does not depend on the machine
            # whether anything is acknowledged.
            lines = [process.stdout.readline() for _ in range(self._chance.randrange(1, 12))]
            timer = threading.Timer(self._chance.uniform(0, 0.3) ** 2, process.kill)
            timer.start()
            lines += process.stdout.read().splitlines(keepends=True)
            timer.join()
        assert process.returncode == -9, "the writer ended by itself; its error is above"
        started = self._replay([line.split() for line in lines if line.endswith("\n")], seed)
        self._compare(started)

    def _replay(self, lines: list[list[str]], seed: int) -> dict[str, str | None]:
        """Apply what was acknowledged; gives what the call that was cut short would have changed."""
        started: dict[str, str | None] = {}
        for line in lines:
            if line[0] == "start":
                _, what, number, *ids = line
                started = dict.fromkeys(ids, f"{seed}x{number}" if what == "add" else None)
            else:
                self._expected |= {id_: write for id_, write in started.items() if write is not None}
                for id_ in [id_ for id_, write in started.items() if write is None]:
                    self._expected.pop(id_, None)
                started = {}
                self.acknowledged += 1
        return started

    def _compare(self, started: dict[str, str | None]) -> None:
        store = opened(self._path)
        documents = list(store.truth.documents())
        numbers = {document.id: document.metadata["write"] for document in documents}
        if numbers != self._expected:  # then the one call that was cut short is there, and all of it
            self._expected |= {id_: write for id_, write in started.items() if write is not None}
            self._expected = {id_: w for id_, w in self._expected.items() if started.get(id_, "kept") is not None}
            self.kept += 1
        self.cut_short += bool(started)
        assert numbers == self._expected
        self.states[store.truth.sequence()] = numbers
        sound(store)
        keys = store.truth.keys(list(numbers))
        assert {key for key, _ in store.keyword.search("rail", 1000)} == set(keys.values())
        for document, row in list(zip(documents, units(documents) if documents else [], strict=True))[::7]:
            assert store.vectors is not None
            write = document.text.split()[-1]
            assert keys[document.id] in {key for key, _ in store.keyword.search(write, 100)}
            assert store.vectors.search(row, 1)[0][0] == keys[document.id]
        store.close()
