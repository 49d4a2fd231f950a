"""Kill the service while documents stream in, and check that what it had acknowledged is there."""

from __future__ import annotations

import http.client
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pointsman import Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from server_kit import Ingest, Served

_CHUNK = 64  # lines sent at a time; the service commits another number


def document(number: int) -> dict[str, object]:
    """The document of this number; all of it follows from that."""
    return {"id": f"d{number}", "text": f"Rail signal {number}, сигнал, 信号灯.", "metadata": {"number": number}}


class ServerKilling:
    """One workspace over many kills of the service that writes to it."""

    def __init__(self, path: Path, seed: int, *options: str) -> None:
        self._path, self._chance, self._options = path, random.Random(seed), options
        self._next = 0
        self._must_have: set[str] = set()
        self.acknowledged = 0
        self.found = 0

    def once(self) -> None:
        """Serve, send documents without end, kill at a random moment after the first answers, compare."""
        with Served(self._path, *self._options) as served:
            served.ready()
            served.post("/api/datasets", {"name": "notes"})
            ingest = Ingest(served, "notes")
            reader = threading.Thread(target=ingest.read)
            reader.start()
            first, wanted = self._next, self._chance.randrange(1, 4)
            killer: threading.Timer | None = None
            with suppress(OSError, http.client.HTTPException):
                for numbers in self._numbers():
                    ingest.send(map(document, numbers))
                    if killer is None and len(ingest.answers) >= wanted:
                        killer = threading.Timer(self._chance.uniform(0, 0.4) ** 2, served.kill)
                        killer.start()
                    assert not any("problem" in answer for answer in ingest.answers), ingest.answers[-1]
            assert killer is not None, "".join(served.log[-20:])
            killer.join()
            reader.join()
        self._must_have |= {f"d{number}" for number in range(first, first + ingest.done)}
        self.acknowledged += ingest.done
        self._compare()

    def _numbers(self) -> Iterator[range]:
        while True:
            yield range(self._next, self._next + _CHUNK)
            self._next += _CHUNK

    def _compare(self) -> None:
        with Workspace(self._path, embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes", create=False)
            verification = notes.verify()
            assert not verification.problems, verification.problems
            self.found = verification.documents
            held = {one.id: one for one in notes}
            assert self._must_have <= set(held)
            assert verification.documents == verification.in_keyword_index == verification.in_vector_index == len(held)
            for one in held.values():
                expected = document(int(one.id[1:]))
                assert (one.text, dict(one.metadata)) == (expected["text"], expected["metadata"])
