"""Two processes that make, fill, describe, search and drop one dataset in every order; for the test and the benchmark.

``python two_kit.py WHERE`` is one of them: it reads scripts, one JSON list a line, and answers with what came of them.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.local.collection import Collection
from pointsman.store.local.manifest import drop_collection, read_manifest
from pointsman.tools.errors import InputError, LockedError, PointsmanError, RetrievalError, UnknownNameError
from pointsman.values.types import Document
from pointsman.workspace.copies.backup import backup, restore
from pointsman.workspace.workspace_search import Workspace
from server_kit import Served
from store_kit import add, sound

OPERATIONS: Final = ("make", "add", "add", "describe", "drop", "search", "restore")
NAME: Final = "notes"


class Stores:
    """The operations, on the stores themselves."""

    def __init__(self, root: Path) -> None:
        self._root, self._directory = root, root / "datasets" / NAME
        self._store: Collection | None = None

    def _opened(self) -> Collection:
        if self._store is None:
            if read_manifest(self._directory) is None:
                raise UnknownNameError("dataset", NAME)
            self._store = Collection(self._directory)
        return self._store

    def make(self) -> str:
        if self._store is None or self._store.replaced:
            self.forget()
            self._store = Collection(self._directory, about={"name": NAME, "description": ""})
        return self._store.truth.identity

    def add(self, id_: str) -> str:
        store = self._opened()
        with store.writing(wait=0.2):
            add(store, [Document(id_, f"rail signal {id_}")])
            return store.truth.identity

    def describe(self, text: str) -> str:
        self._opened().describe(description=text)
        return ""

    def search(self) -> str:
        store = self._opened()
        keys = [key for key, _ in store.keyword.search("rail", 100)]
        assert all(document is not None for document in store.truth.fetch(keys))
        return ""

    def drop(self) -> str:
        if self._store is not None:
            store, self._store = self._store, None
            store.remove()
        elif not drop_collection(self._directory):
            raise UnknownNameError("dataset", NAME)
        return ""

    def restore(self) -> str:
        """Into the same folder; it is refused unless that is empty."""
        try:
            restore(self._root.parent / "kept", self._root)
        except InputError as error:
            raise LockedError(f"{error}") from error  # somebody was there before
        return ""

    def forget(self) -> None:
        """Open it again next time."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


class Workspaces(Stores):
    """The same on a workspace."""

    def __init__(self, root: Path) -> None:
        self._root, self._workspace = root, Workspace(root, embedder=HashingEmbedder())

    def make(self) -> str:
        return self._workspace.dataset(NAME).make().info.identity

    def add(self, id_: str) -> str:
        dataset = self._workspace.dataset(NAME, create=False)
        with dataset.writing(wait=0.2):
            dataset.add([Document(id_, f"rail signal {id_}")])
            return dataset.store.info.identity

    def describe(self, text: str) -> str:
        self._workspace.dataset(NAME, create=False).describe(text)
        return ""

    def search(self) -> str:
        self._workspace.dataset(NAME, create=False).retriever("bm25").retrieve("rail")
        return ""

    def drop(self) -> str:
        self._workspace.drop(NAME)
        return ""

    def forget(self) -> None:
        """It looks by itself."""


def serve(where: str) -> None:
    """Do what is asked for on standard input."""
    kept: dict[str, Stores] = {}
    for line in sys.stdin:
        root, script = json.loads(line)
        kind = Workspaces if where == "workspace" else Stores
        stores = kept.get(root) or kept.setdefault(root, kind(Path(root)))
        answers = []
        for pause, operation, *arguments in script:
            time.sleep(pause)
            try:
                answers.append(["", getattr(stores, operation)(*arguments), ""])
            except Exception as error:  # noqa: BLE001  (this is what is looked for)
                causes = error.causes.values() if isinstance(error, RetrievalError) else [error]
                expected = all(isinstance(cause, LockedError | UnknownNameError) for cause in causes)
                ours = isinstance(error, PointsmanError)
                kind_of = type(error).__name__ if expected else f"{'' if ours else 'foreign '}{type(error).__name__}!"
                answers.append([kind_of, "", f"{error}"])
                if isinstance(error, LockedError | InputError):
                    stores.forget()
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


class Two:
    """Two such processes, and what must come of what they do."""

    def __init__(self, folder: Path, seed: int, where: str = "store") -> None:
        command = [sys.executable, "-W", "error", __file__, where]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        self._folder, self._chance = folder, random.Random(seed)
        sound_one = (Workspaces if where == "workspace" else Stores)(folder / "sound")
        sound_one.make()
        sound_one.add("kept")
        backup(folder / "sound", folder / "kept")
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []

    def interleave(self, number: int) -> None:
        """One random script for each of them, run at once; both go on with what they have open from the last ones."""
        root = self._folder / f"workspace{number // 20}"
        scripts = [[self._step(f"{number}-{who}-{place}") for place in range(5)] for who in range(2)]
        for process, script in zip(self._processes, scripts, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps([str(root), script]) + "\n")
            process.stdin.flush()
        answers = []
        for process in self._processes:
            assert process.stdout is not None
            answers.append(json.loads(process.stdout.readline()))
        told = []
        for script, answer in zip(scripts, answers, strict=True):
            for (_, operation, *_rest), (error, _, message) in zip(script, answer, strict=True):
                self.outcomes[f"{operation}: {error or 'done'}"] += 1
                told.append(f"{operation}: {error} {message}")
                if error.endswith("!"):
                    self.problems.append(f"{number}: {operation}: {error} {message}")
        added = [
            (script[2], identity)
            for who in range(2)
            for script, (error, identity, _) in zip(scripts[who], answers[who], strict=True)
            if script[1] == "add" and not error
        ]
        dropped = any(one[1] == "drop" for script in scripts for one in script)
        self._compare(number, root, added, dropped=dropped)

    def _step(self, id_: str) -> list[Any]:
        operation = self._chance.choice(OPERATIONS)
        pause = self._chance.choice((0, 0, 0, 0.001, 0.005, 0.02))
        return [pause, operation, *([id_] if operation in {"add", "describe"} else [])]

    def _compare(self, number: int, root: Path, added: list[tuple[str, str]], *, dropped: bool) -> None:
        """What was acknowledged of the dataset that there is now is in it, and nothing was lost that nobody dropped."""
        directory = root / "datasets" / NAME
        try:
            if read_manifest(directory) is None:
                if added and not dropped:
                    self.problems.append(f"{number}: the dataset is gone, and nobody has dropped it")
                if directory.exists():
                    self.problems.append(f"{number}: something is left of it: {list(directory.iterdir())}")
            else:
                store = Collection(directory)
                ids = set(store.truth.ids())
                lost = [id_ for id_, identity in added if identity == store.truth.identity and id_ not in ids]
                replaced = [id_ for id_, identity in added if identity != store.truth.identity]
                if replaced and not dropped:
                    self.problems.append(f"{number}: replaced, and nobody has dropped it: {replaced}")
                if lost:
                    self.problems.append(f"{number}: acknowledged and lost: {lost}")
                sound(store)
                store.close()
        except (PointsmanError, AssertionError, OSError) as error:
            self.problems.append(f"{number}: afterwards: {type(error).__name__}: {error}")
        left = [path.name for path in (root / "datasets").glob(".*")] if (root / "datasets").exists() else []
        if left:
            self.problems.append(f"{number}: left over: {left}")

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.communicate()


class Workers:
    """The same by clients of one service, each request over a connection of its own, so that any worker takes it."""

    def __init__(self, folder: Path, seed: int, clients: int = 3, workers: int = 3) -> None:
        self._chance, self._clients = random.Random(seed), clients
        self._served = Served(folder / "workspace", "--workers", str(workers), "--log-level", "error").ready()
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []

    def interleave(self, number: int) -> None:
        """One random script for each client, at once, and a look at what came of it."""
        operations = ("make", "add", "add", "describe", "drop", "search")
        scripts = [self._chance.choices(operations, k=5) for _ in range(self._clients)]
        with ThreadPoolExecutor(self._clients) as threads:
            answers = [list(each) for each in threads.map(self._script, scripts, [f"{number}-{n}" for n in range(9)])]
        added = {id_ for each in answers for operation, id_, status in each if (operation, status) == ("add", 200)}
        if not any("drop" in script for script in scripts):
            self._compare(number, added)

    def _script(self, script: list[str], prefix: str) -> list[tuple[str, str, int]]:
        answers = []
        for place, operation in enumerate(script):
            id_ = f"{prefix}-{place}"
            status, answer = self._served.request(*request_of(operation, id_))
            self.outcomes[f"{operation}: {status}"] += 1
            if status not in {200, 201, 404, 409} and not (status == 503 and _has_lost(answer)):
                told = self._served.log
                self.problems.append(f"{prefix}: {operation}: {status} {answer} {told[-1:]}")
            answers.append((operation, id_, status))
        return answers

    def _compare(self, number: int, added: set[str]) -> None:
        for id_ in added:
            status, _ = self._served.get(f"/api/datasets/{NAME}/document?id={id_}")
            if status != 200:
                self.problems.append(f"{number}: acknowledged and lost: {id_}")
        status, verification = self._served.post(f"/api/datasets/{NAME}/verify", None)
        if status != 404 and (status != 200 or verification["problems"]):
            self.problems.append(f"{number}: verify: {status} {verification}")

    def close(self) -> None:
        """End the service."""
        with self._served:
            self._served.stop()


def _has_lost(problem: dict[str, Any]) -> bool:
    """Whether it says that somebody else is at it: to be asked again."""
    failed = set(problem.get("failed", {}).values())
    return problem["type"] == "/problems/locked" or failed == {"ReplacedError"}


def request_of(operation: str, id_: str) -> tuple[str, str, Any]:
    """Method, path and body."""
    dataset = f"/api/datasets/{NAME}"
    return {
        "make": ("POST", "/api/datasets", {"name": NAME}),
        "add": ("POST", f"{dataset}/documents", {"documents": [{"id": id_, "text": f"rail signal {id_}"}]}),
        "describe": ("POST", "/api/datasets", {"name": NAME, "description": id_}),
        "drop": ("DELETE", dataset, None),
        "search": ("POST", "/api/search", {"query": "rail", "datasets": [NAME], "refuse": False}),
    }[operation]


if __name__ == "__main__":
    serve(sys.argv[1])
