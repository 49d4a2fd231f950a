"""A service of two workers under everything at once, for a test of seconds and benchmarks/soak.py of half an hour.

Clients add, update, delete, read and search, each its own documents, so that each knows what must be there. Meanwhile
the disk is filled and freed, backups are made and restored, and for the first part of the time workers and the whole
service are killed. In the calm rest nobody is killed, and the memory of the service is watched.
"""

from __future__ import annotations

import http.client
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from disk_kit import fill
from pointsman import Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.tools.errors import StorageFullError
from pointsman.workspace.copies.backup import backup, restore
from server_kit import Served
from store_kit import WORDS

DATASETS: Final = ("day", "night")
_IDS: Final = 60  # documents of a client in a dataset
_BROKEN: Final = (OSError, http.client.HTTPException)
_WARM: Final = 0.3  # of the calm: caches fill, allocators settle

Texts = frozenset[str | None]
"""What a document may be: one text, or None where it is not there; several while nobody knows."""


@dataclass
class Client:
    """Whose documents nobody else writes."""

    number: int
    chance: random.Random
    version: int = 0
    state: dict[tuple[str, str], Texts] = field(default_factory=dict)  # by dataset and id
    ever: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # all texts that were sent


class Soak:
    """One run.

    Args:
        disk: where the workspace is.
        beside: where backups go.
        small: whether the disk is a small one that may be filled.
    """

    def __init__(self, disk: Path, beside: Path, *, small: bool, clients: int = 3, seed: int = 1) -> None:
        self._disk, self._beside, self._small = disk, beside, small
        self._chance, self._seed = random.Random(seed), seed
        self._clients = [Client(number, random.Random(seed * 1000 + number)) for number in range(clients)]
        self._lock = threading.Lock()
        self._stop, self._killing = threading.Event(), threading.Event()
        self._killed_at = 0.0
        self._served = self._start()
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.memory: list[tuple[float, float]] = []  # seconds, and megabytes of all processes, of the calm

    def _start(self) -> Served:
        return Served(self._disk / "workspace", "--workers", "2", "--log-level", "error").ready()

    def run(self, seconds: float, calm: float = 0.5, enough: Callable[[], bool] = lambda: True) -> None:
        """Everything for so many seconds; ``calm`` is the share without kills, at the end.

        A machine that is too busy for ``enough`` to be so in that time has two minutes more.
        """
        for name in DATASETS:
            self._served.post("/api/datasets", {"name": name})
        began = time.monotonic()
        end, quiet = began + seconds, began + seconds * (1 - calm)
        threads = [threading.Thread(target=self._work, args=(client,)) for client in self._clients]
        for thread in threads:
            thread.start()
        events = 0
        try:
            while time.monotonic() < end or not (enough() or time.monotonic() > end + 120):
                kinds = ["kill"] if time.monotonic() < quiet else []
                kinds += ["full", "backup", "full"] if self._small else ["backup"]
                getattr(self, f"_{kinds[events % len(kinds)]}")()
                events += 1
                until = time.monotonic() + self._chance.uniform(0.01, 0.02) * seconds
                while time.monotonic() < until:
                    if time.monotonic() > quiet:
                        self.memory.append((time.monotonic() - began, self._megabytes()))
                    self._stop.wait(min(2.0, max(0.0, until - time.monotonic())))
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
            code = self._served.stop()
        if code:
            self.problems.append(f"the service ended with {code}: {''.join(self._served.log[-5:])[-500:]}")
        self.counts["unforeseen"] += sum("an unexpected error" in line for line in self._served.log)
        with Workspace(self._disk / "workspace", embedder=HashingEmbedder()) as workspace:
            self._compare("at the end", workspace, self._snapshot(), self._snapshot())

    # ── what clients do ──────────────────────────────────────────────────────────────────────────────────────────

    def _work(self, client: Client) -> None:
        steps = (self._add, self._add, self._delete, self._read, self._search, self._search)
        while not self._stop.is_set():
            client.chance.choice(steps)(client)

    def _send(self, method: str, path: str, value: Any = None) -> tuple[int, Any]:
        """Status 0: no answer, since the service, or the worker, was killed."""
        began = time.monotonic()
        try:
            status, answer = self._served.request(method, path, value)
        except _BROKEN as error:
            if not (self._killing.is_set() or self._killed_at > began - 5):
                self._note(f"{method} {path}: nobody was killed, and there is no answer: {error!r}")
            time.sleep(0.05)
            return 0, None
        with self._lock:
            self.counts[f"{method} {path.rpartition('/')[2].partition('?')[0]} {status}"] += 1
        if status not in {200, 404, 507} and not (status == 503 and self._killed_at > began - 5):
            log = [line for line in self._served.log[-20:] if "a disk is full" not in line]
            self._note(f"{method} {path}: {status} {answer}; the log: {''.join(log)}")
        return status, answer

    def _note(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)

    def _add(self, client: Client) -> None:
        dataset, ids = self._choose(client)
        client.version += 1
        token = f"{client.number}x{client.version}"
        texts = {id_: f"{token} {id_} {' '.join(client.chance.choices(WORDS, k=30))}" for id_ in ids}
        for id_, text in texts.items():
            client.ever.setdefault((dataset, id_), set()).add(text)
        self._change(
            client, dataset, texts, "POST", {"documents": [{"id": id_, "text": text} for id_, text in texts.items()]}
        )

    def _delete(self, client: Client) -> None:
        dataset, ids = self._choose(client)
        self._change(client, dataset, dict.fromkeys(ids), "DELETE", {"ids": ids})

    def _choose(self, client: Client) -> tuple[str, list[str]]:
        count = client.chance.randrange(1, 12)
        return client.chance.choice(DATASETS), [
            f"c{client.number}-{number}" for number in client.chance.sample(range(_IDS), count)
        ]

    def _change(self, client: Client, dataset: str, after: dict[str, Any], method: str, body: Any) -> None:
        """Once it is acknowledged it is so; else it may or may not be."""
        with self._lock:
            for id_, text in after.items():
                before = client.state.get((dataset, id_), frozenset([None]))
                client.state[dataset, id_] = before | {text}
        status, _ = self._send(method, f"/api/datasets/{dataset}/documents", body)
        if status == 200:
            with self._lock:
                client.state.update({(dataset, id_): frozenset([text]) for id_, text in after.items()})

    def _read(self, client: Client) -> None:
        dataset, (id_, *_) = self._choose(client)
        status, answer = self._send("GET", f"/api/datasets/{dataset}/document?id={id_}")
        if status in {200, 404}:
            text = answer["text"] if status == 200 else None
            if text not in client.state.get((dataset, id_), frozenset([None])):
                self._note(f"lost or wrong: {dataset}/{id_} is {text!r:.60}")

    def _search(self, client: Client) -> None:
        """By the word that only what was written at once has: all of that, as it was written, and nothing else."""
        if not client.state:
            return
        dataset, id_ = client.chance.choice(list(client.state))
        texts = [text for text in client.state[dataset, id_] if text is not None]
        if not texts:
            return
        token = texts[0].partition(" ")[0]
        body = {"query": token, "datasets": [dataset], "k": 50, "refuse": False, "strategy": "bm25"}
        status, answer = self._send("POST", "/api/search", body)
        if status != 200:
            if status == 507:
                self._note(f"a search is answered with 507: {answer}")
            return
        hits = {hit["id"]: hit["text"] for hit in answer["hits"]}
        for id_, text in hits.items():
            if text.startswith(f"{token} ") and text not in client.state.get((dataset, id_), frozenset()):
                self._note(f"wrong: {dataset}/{id_} is back as {text!r:.60}")
        missing = [
            one
            for (where, one), states in client.state.items()
            if where == dataset
            and len(states) == 1
            and f"{next(iter(states))}".startswith(f"{token} ")
            and one not in hits
        ]
        if missing and answer["degraded"]:
            self.counts["incomplete answers that say so"] += 1
        elif missing:
            self._note(f"a search for {token} lacks {missing} of {dataset}, and says nothing")

    # ── what is done to them ─────────────────────────────────────────────────────────────────────────────────────

    def _kill(self) -> None:
        self._killing.set()
        try:
            workers = [one for one in psutil.Process(self._served.process.pid).children() if one.is_running()]
            if self._chance.random() < 0.5 and len(workers) > 1:
                self.counts["workers killed"] += 1
                with suppress(psutil.NoSuchProcess):
                    self._chance.choice(workers).kill()
            else:
                self.counts["services killed"] += 1
                self._served.kill()
                self._served = self._start()
        finally:
            self._killed_at = time.monotonic()
            self._killing.clear()

    def _full(self) -> None:
        self.counts["full disks"] += 1
        filler = fill(self._disk, self._chance.choice((0, 0, 8_192, 100_000)))
        self._stop.wait(self._chance.uniform(0.5, 3))
        filler.unlink()

    def _backup(self) -> None:
        """A copy, put back: what was there all the while, and nothing that was never sent."""
        copy, back = self._beside / "copy", self._beside / "back"
        before = self._snapshot()
        try:
            backup(self._disk / "workspace", copy)
        except StorageFullError:
            return
        after = self._snapshot()
        restore(copy, back)
        with Workspace(back, embedder=HashingEmbedder()) as workspace:
            self._compare("restored", workspace, before, after)
        shutil.rmtree(copy)
        shutil.rmtree(back)
        self.counts["backups restored"] += 1

    # ── what must be there ───────────────────────────────────────────────────────────────────────────────────────

    def _snapshot(self) -> dict[tuple[str, str], Texts]:
        with self._lock:
            return {key: texts for client in self._clients for key, texts in client.state.items()}

    def _compare(
        self, when: str, workspace: Workspace, before: dict[tuple[str, str], Texts], after: dict[tuple[str, str], Texts]
    ) -> None:
        with self._lock:
            ever = {key: set(texts) for client in self._clients for key, texts in client.ever.items()}
        for name in DATASETS:
            dataset = workspace.dataset(name, create=False)
            self.problems += [f"{when}: {name}: {problem}" for problem in dataset.verify().problems]
            there = {document.id: document.text for document in dataset}
            for id_, text in there.items():
                if text not in ever.get((name, id_), ()):
                    self._note(f"{when}: wrong: {name}/{id_} is {text!r:.60}, which nobody has sent")
            for (where, id_), texts in before.items():
                if where == name and after[where, id_] is texts and there.get(id_) not in texts:
                    self._note(f"{when}: lost or wrong: {name}/{id_} is {there.get(id_)!r:.60}")
            self.counts[f"documents compared {when}"] += len(there)

    def _megabytes(self) -> float:
        workers = psutil.Process(self._served.process.pid).children(recursive=True)
        total = 0
        for one in workers:
            with suppress(psutil.NoSuchProcess):
                total += one.memory_info().rss
        return total / 1e6

    def growth(self) -> tuple[float, float, float]:
        """Of the calm, once it is warm: megabytes in its first and its last third, and the slope in MB a minute."""
        settled = self.memory[int(len(self.memory) * _WARM) :]
        third = max(1, len(settled) // 3)
        first, last = (sum(m for _, m in part) / len(part) for part in (settled[:third], settled[-third:]))
        times, sizes = zip(*settled, strict=True)
        mean_time, mean_size = sum(times) / len(times), sum(sizes) / len(sizes)
        spread = sum((one - mean_time) ** 2 for one in times)
        slope = sum((t - mean_time) * (m - mean_size) for t, m in settled) / spread if spread else 0.0
        return first, last, slope * 60

    def close(self) -> None:
        """End the service, whatever has happened."""
        with closing(self._served.process.stderr):  # type: ignore[type-var]  # it is a pipe
            if self._served.process.poll() is None:
                self._served.kill()
