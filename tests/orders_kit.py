"""Concurrent writers of a few documents, and whether some order explains what came of it; for test and benchmark.

``python orders_kit.py WORKSPACE`` is one writer: it reads scripts, one JSON list a line, and answers with what it did.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol
from urllib.parse import quote

import numpy as np

from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.tools.errors import ConflictError, LockedError
from pointsman.values.types import AddResult, Document
from pointsman.workspace.workspace_search import Workspace
from server_kit import Served
from write_orders import (
    NEVER,
    Operation,
    State,
    Step,
    described,
    is_some_order,
    or_missing,
    random_step,
    run_script,
    state_of,
    word_of,
)

NAME: Final = "notes"
IDS: Final = ("a", "b")
WRITERS: Final = 3
_STEPS: Final = 2
_PATIENCE: Final = 60.0
_EMBEDDER: Final = HashingEmbedder(16)

Script = Sequence[tuple[str, Step]]
"""Steps, each with the id of its document."""


class Writer:
    """Does steps on a dataset, as one process."""

    def __init__(self, workspace_url: str) -> None:
        self.workspace = Workspace(workspace_url, embedder=_EMBEDDER)
        self.dataset = self.workspace.dataset(NAME)

    def run(self, script: Script) -> list[tuple[str, Operation]]:
        """Do a script."""
        return run_all(script, self._do, self.dataset.get)

    def _do(self, id_: str, step: Step) -> str:
        try:
            with self.dataset.writing(_PATIENCE):
                return self._written(id_, *step)
        except (LockedError, ConflictError):
            return NEVER

    def _written(self, id_: str, kind: str, *arguments: Any) -> str:
        if kind == "delete":
            return "deleted" if self.dataset.delete([id_]) else "missing"
        if kind == "set":
            return or_missing(lambda: self.dataset.set_metadata({id_: arguments[0]}, replace=arguments[1]))
        document = Document(id_, *arguments)
        if kind == "bare":
            return word_of(self.dataset.add(document, embed=False))
        rows = _EMBEDDER.embed_documents([document.searchable])
        if kind == "add":
            return word_of(self.dataset.add(document, vectors=rows))
        return word_of(self.dataset.store.write([document], rows, _EMBEDDER.name, stored_only=True))

    def state(self, id_: str) -> State:
        """Return what there is now."""
        document, [vector] = self.dataset.get(id_), self.dataset.get_vectors([id_])
        if document is None or vector is None:
            return state_of(document, embedded=False)
        same = np.allclose(vector, _EMBEDDER.embed_documents([document.searchable])[0], atol=1e-5)
        return state_of(document if same else Document(id_, "!the vector is of another text"), embedded=True)


def run_all(
    script: Script, do: Callable[[str, Step], str], read: Callable[[str], Document | None]
) -> list[tuple[str, Operation]]:
    """Do steps on several documents one after the other."""
    return [(id_, done) for id_, step in script for done in run_script([step], partial(do, id_), partial(read, id_))]


class Writers(Protocol):
    """Several writers at once."""

    def run(self, scripts: Sequence[Script]) -> list[tuple[str, Operation]]:
        """Do a script each."""
        ...

    def state(self, id_: str) -> State:
        """Return what there is now."""
        ...

    def problems(self) -> Sequence[str]:
        """Return what is wrong with the store."""
        ...

    def close(self) -> None:
        """End them."""
        ...


class Threads:
    """Threads that share a dataset."""

    def __init__(self, workspace_url: str) -> None:
        self._writer, self._threads = Writer(workspace_url), ThreadPoolExecutor(WRITERS)

    def run(self, scripts: Sequence[Script]) -> list[tuple[str, Operation]]:
        """See `Writers`."""
        return [done for group in self._threads.map(self._writer.run, scripts) for done in group]

    def state(self, id_: str) -> State:
        """See `Writers`."""
        return self._writer.state(id_)

    def problems(self) -> Sequence[str]:
        """See `Writers`; other stores than the folder maintain themselves."""
        dataset = self._writer.dataset
        return dataset.verify().problems if dataset.store.info.kind == "local" else ()

    def close(self) -> None:
        """See `Writers`."""
        self._threads.shutdown()
        self._writer.workspace.close()


class Processes(Threads):
    """Processes with a workspace each; this one reads what comes of it."""

    def __init__(self, workspace_url: str) -> None:
        super().__init__(workspace_url)
        command = [sys.executable, "-W", "error", __file__, workspace_url]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(WRITERS)
        ]

    def run(self, scripts: Sequence[Script]) -> list[tuple[str, Operation]]:
        """See `Writers`."""
        for process, script in zip(self._processes, scripts, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps(script) + "\n")
            process.stdin.flush()
        result = []
        for process in self._processes:
            assert process.stdout is not None
            result += [(id_, Operation(*done)) for id_, done in json.loads(process.stdout.readline())]
        return result

    def close(self) -> None:
        """See `Writers`."""
        for process in self._processes:
            process.communicate()
        super().close()


class Services(Threads):
    """Clients of a service with as many workers, each request over a connection of its own; vectors are its affair."""

    def __init__(self, workspace_url: str) -> None:
        super().__init__(workspace_url)
        self._writer.dataset.make()
        self._served = Served(workspace_url, "--workers", str(WRITERS), "--log-level", "error").ready()

    def run(self, scripts: Sequence[Script]) -> list[tuple[str, Operation]]:
        """See `Writers`."""
        bare = [[(id_, _without_vector(step)) for id_, step in script] for script in scripts]
        groups = self._threads.map(lambda script: run_all(script, self._do, self._read), bare)
        return [done for group in groups for done in group]

    def _do(self, id_: str, step: Step) -> str:
        kind, *arguments = step
        path = f"/api/datasets/{NAME}/documents"
        if kind == "delete":
            status, answer = self._served.request("DELETE", path, {"ids": [id_]})
        elif kind == "set":
            body = {"metadata": {id_: arguments[0]}, "replace": arguments[1]}
            status, answer = self._served.request("PATCH", path, body)
        else:
            status, answer = self._served.add(NAME, [{"id": id_, "text": arguments[0], "metadata": arguments[1]}])
        if status == 200 and kind == "delete":
            return "deleted" if answer["deleted"] else "missing"
        if status == 200:
            return word_of(AddResult(*(answer[name] for name in ("added", "updated", "unchanged"))))
        if status == 422 and "there is no document" in str(answer):
            return "missing"
        return NEVER if answer["type"] in {"/problems/locked", "/problems/conflict"} else f"{status} {answer}"

    def _read(self, id_: str) -> Document | None:
        status, answer = self._served.get(f"/api/datasets/{NAME}/document?id={quote(id_)}")
        return Document(id_, answer["text"], answer["metadata"]) if status == 200 else None

    def state(self, id_: str) -> State:
        """See `Writers`."""
        return state_of(self._read(id_), embedded=False)

    def problems(self) -> Sequence[str]:
        """See `Writers`; a conflict says that the store maintains itself."""
        status, answer = self._served.post(f"/api/datasets/{NAME}/verify", None)
        return answer["problems"] if status == 200 else () if status in {404, 409} else (f"{status} {answer}",)

    def close(self) -> None:
        """See `Writers`."""
        with self._served:
            self._served.stop()
        super().close()


def _without_vector(step: Step) -> Step:
    return ("bare", *step[1:]) if step[0] == "add" else ("read",) if step[0] == "embed" else step


KINDS: Final[dict[str, type[Threads]]] = {"threads": Threads, "processes": Processes, "services": Services}


class Orders:
    """Random scripts, run at once over and over, each outcome compared with those of all orders."""

    def __init__(self, workspace_url: str, by: str, seed: int) -> None:
        self._writers: Writers = KINDS[by](workspace_url)
        self._chance = random.Random(seed)
        self._states = {id_: self._writers.state(id_) for id_ in IDS}
        self.answers: Counter[str] = Counter()
        self.violations: list[str] = []

    def interleave(self, number: int) -> None:
        """One script for each writer, at once."""
        scripts = [
            [
                (self._chance.choice(IDS), random_step(self._chance, f"{'xyz'[who]}{step}-{number}"))
                for step in range(_STEPS)
            ]
            for who in range(WRITERS)
        ]
        steps = self._writers.run(scripts)
        self.answers.update(f"{done.step[0]}: {done.answer}" for _, done in steps if done.step[0] != "read")
        for id_ in IDS:
            own, before, after = [done for of, done in steps if of == id_], self._states[id_], self._writers.state(id_)
            self._states[id_] = after
            if not is_some_order(before, own, after):
                self.violations.append(f"{number}: {id_}: {described(before, own, after)}")
        if number % 500 == 499:
            self.violations += self._writers.problems()

    def close(self) -> None:
        """End the writers."""
        self.violations += self._writers.problems()
        self._writers.close()


def serve(workspace_url: str) -> None:
    """Do the scripts on standard input."""
    writer = Writer(workspace_url)
    for line in sys.stdin:
        done = writer.run(json.loads(line))
        answers = [(id_, (one.step, one.answer, one.began, one.ended)) for id_, one in done]
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()
    writer.workspace.close()


if __name__ == "__main__":
    serve(sys.argv[1])
