"""Several retrievers as one: asked in parallel, deduplicated, fused (F1 to F5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Self

from pointsman._twins import in_thread
from pointsman.errors import CorruptStoreError, InputError
from pointsman.retrieval.base import BaseRetriever, checked
from pointsman.retrieval.branches import Question, RetrieverBranch, ask, nothing_answered, unique_names
from pointsman.retrieval.candidates import hits_of, together
from pointsman.retrieval.dispatch import Breaker, Deadline, Mode, Tasks, Threads, describe, run
from pointsman.retrieval.fusion import FusionMethod, fuse
from pointsman.retrieval.journal import Journal
from pointsman.retrieval.pool import DEPTH
from pointsman.types import Hit, Hits, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Mapping

    from pointsman.protocols import Retriever
    from pointsman.types import Document

TIMEOUT = 30.0
"""Seconds after which a search answers with what it has."""

_MANIFEST = "hybrid.json"


@dataclass(frozen=True, slots=True)
class NodesAdded:
    """Which retrievers hold what was to be added (F4).

    Attributes:
        holding: by name, those that took everything.
        failed: by name, the error of each that did not; what it holds of the nodes is up to it.
    """

    holding: tuple[str, ...]
    failed: Mapping[str, Exception] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return not self.failed


class SimpleHybridRetriever(BaseRetriever):
    """Asks several retrievers at once and fuses what they find.

    A retriever that fails or is late is left out of the answer, which says so: `retrieve` returns `Hits`, a list with
    ``degraded`` and ``trace``. One that keeps failing is not asked for a while. Where several return the same document,
    the version of the list that has it highest is kept (at the same rank: the one with the higher score), and every
    list's rank and score stand in the hit's ``provenance``.

    Args:
        retrievers: at least one; anything with ``retrieve`` and ``aretrieve``. One list of them does as well.
        names: what their lists are called; their classes in words unless given.
        fusion: a name of `pointsman.retrieval.fusion.METHODS`, or a function of your own like those (F2); RRF unless
            given, as foreign scores are on no common scale.
        weights: one for each retriever, 1 unless given; 0 leaves one's list out of the ranking.
        dedupe: what makes two hits the same document: its ``"id"`` (within its dataset), or its ``"content"``.
        depth: how many hits each retriever is asked for, where ``top_k`` is not more.
        timeout: seconds after which the answer consists of what has arrived; None waits as long as it takes.
        breaker: when to leave a failing retriever out.

    Raises:
        InputError: there is no retriever, something is none, or one of the options cannot be used.
    """

    def __init__(
        self,
        *retrievers: Retriever | Sequence[Retriever],
        names: Sequence[str] | None = None,
        fusion: str | FusionMethod = "rrf",
        weights: Sequence[float] | None = None,
        dedupe: Literal["id", "content"] = "id",
        depth: int = DEPTH,
        timeout: float | None = TIMEOUT,
        breaker: Breaker | None = None,
    ) -> None:
        ours: tuple[Retriever, ...] = ()
        for item in retrievers:
            ours += tuple(item) if isinstance(item, Sequence) else (item,)
        if not ours:
            raise InputError("give at least one retriever")
        if dedupe not in {"id", "content"}:
            raise InputError(f"dedupe is 'id' or 'content', not {dedupe!r}")
        self.retrievers = ours
        self.names = tuple(unique_names(ours, names))
        if not callable(fusion):
            fuse([[]] * len(ours), fusion, weights)  # says what is wrong with them, now
        Deadline(timeout)
        self._fusion, self._depth, self._timeout = fusion, checked(depth), timeout
        self._weights = dict(zip(self.names, weights, strict=True)) if weights is not None else None
        key = None if dedupe == "id" else content_key
        self._key = key
        self._branches = self._asked({})
        self._breaker = breaker or Breaker()

    def _asked(self, options: Mapping[str, Any]) -> list[RetrieverBranch]:
        """The retrievers, to be called with these further arguments."""
        return [
            RetrieverBranch(one, name, self._key, options)
            for one, name in zip(self.retrievers, self.names, strict=True)
        ]

    def retrieve(self, query: str | Query, top_k: int = 10, *, timeout: float | None = None, **options: Any) -> Hits:
        """At most ``top_k`` hits, best first.

        Args:
            query: what to look for; every retriever is given the same `Query` object (F5).
            top_k: how many; the cut comes after the fusion.
            timeout: for this call, instead of the retriever's own.
            options: passed on to every retriever; what one does not take fails there, and is reported.

        Raises:
            RetrievalError: all retrievers failed; it carries each one's error.
            InputError: a number cannot be used.
        """
        return run(self._flow(Threads(), Query.of(query), checked(top_k), timeout, options))

    async def aretrieve(
        self,
        query: str | Query,
        top_k: int = 10,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  (a partial answer at the deadline is no cancellation)
        **options: Any,
    ) -> Hits:
        """The same, awaited."""
        return await self._flow(Tasks(), Query.of(query), checked(top_k), timeout, options)

    def _flow(
        self, mode: Mode, query: Query, top_k: int, timeout: float | None, options: Mapping[str, Any]
    ) -> Coroutine[Any, Any, Hits]:
        branches = self._asked(options) if options else self._branches
        return self._retrieve(mode, query, top_k, Journal(self._timeout if timeout is None else timeout), branches)

    async def _retrieve(
        self, mode: Mode, query: Query, top_k: int, journal: Journal, branches: Sequence[RetrieverBranch]
    ) -> Hits:
        answers = await ask(
            branches,
            [Question(query)],
            max(self._depth, top_k),
            mode,
            [journal],
            breaker=self._breaker,
            budget=journal.deadline.left(),
        )
        if not answers[0].results:
            raise nothing_answered(answers[0].failed)
        results = together(answers[0].results)
        start = journal.now()
        fused = results.pool.fused(self._fusion, weights=self._weights)
        hits = hits_of(results, fused, top_k)
        journal.span("fuse", fused.scale, start, len(hits))
        journal.fused(results, fused)
        return Hits(hits, journal.trace(hits), tuple(journal.degraded))

    # ── keeping (F4) ─────────────────────────────────────────────────────────────────────────────────────────────

    def add_nodes(self, nodes: Sequence[Document]) -> NodesAdded:
        """Give documents to every retriever that takes any; one that fails does not keep the others from theirs.

        Raises:
            InputError: none of the retrievers takes documents.
        """
        takers = {
            name: retriever
            for name, retriever in zip(self.names, self.retrievers, strict=True)
            if callable(getattr(retriever, "add_nodes", None))
        }
        if not takers:
            raise InputError(f"none of {', '.join(self.names)} takes documents; they have no add_nodes")
        nodes = list(nodes)
        holding: list[str] = []
        failed: dict[str, Exception] = {}
        for name in self.names:
            if name not in takers:
                failed[name] = InputError(f"{name} does not accept documents; it has no add_nodes")
                continue
            try:
                outcome = takers[name].add_nodes(nodes)  # type: ignore[attr-defined]  # looked for above
            except Exception as error:  # noqa: BLE001  (returned to the caller by name)
                failed[name] = error
                continue
            if isinstance(outcome, NodesAdded) and outcome.failed:  # one made of others itself
                failed.update({f"{name}.{inner}": error for inner, error in outcome.failed.items()})
                holding.extend(f"{name}.{inner}" for inner in outcome.holding)
            else:
                holding.append(name)
        return NodesAdded(tuple(holding), failed)

    async def aadd_nodes(self, nodes: Sequence[Document]) -> NodesAdded:
        """`add_nodes`, awaited."""
        return await in_thread(self.add_nodes, nodes)

    async def apersist(self, persist_dir: str | Path) -> None:
        """`persist`, awaited."""
        await in_thread(self.persist, persist_dir)

    def persist(self, persist_dir: str | Path) -> None:
        """Save every retriever under a folder of its own name.

        Raises:
            InputError: one of them cannot be saved; nothing is written then.
        """
        if callable(self._fusion):
            raise InputError("a fusion function cannot be saved; name a method, or save the retrievers themselves")
        unable = [
            name
            for name, retriever in zip(self.names, self.retrievers, strict=True)
            if not callable(getattr(retriever, "persist", None))
        ]
        if unable:
            raise InputError(f"{', '.join(unable)} cannot be saved; give a retriever a method persist(folder)")
        from pointsman.store.local.files import replacing

        folder = Path(persist_dir)
        folder.mkdir(parents=True, exist_ok=True)
        for place, retriever in enumerate(self.retrievers):
            retriever.persist(folder / _folder(place))  # type: ignore[attr-defined]  # looked for above
        about = {
            "format": 1,
            "names": list(self.names),
            "kinds": [type(retriever).__name__ for retriever in self.retrievers],
            "fusion": self._fusion,
            "weights": None if self._weights is None else list(self._weights.values()),
            "depth": self._depth,
        }
        with replacing(folder / _MANIFEST) as file:
            file.write(json.dumps(about, ensure_ascii=False, indent=2).encode())

    @classmethod
    def load(cls, persist_dir: str | Path, *loaders: Callable[[Path], Retriever], **options: Any) -> Self:
        """A retriever that answers as the one that was saved there.

        Args:
            persist_dir: what was given to `persist`.
            loaders: for each retriever, in order, what makes it from its folder, such as
                ``pointsman.dataset.DatasetRetriever.load``; one alone serves all. A file never names code to run.
            options: of the constructor, instead of what was saved.

        Raises:
            InputError: nothing was saved there, or the number of loaders does not fit.
            CorruptStoreError: the file that tells about it cannot be read.
        """
        folder = Path(persist_dir)
        try:
            about = json.loads((folder / _MANIFEST).read_text("utf-8"))
            names, kinds = [str(name) for name in about["names"]], [str(kind) for kind in about["kinds"]]
            weights = about["weights"]
            if not names or not isinstance(about["names"], list) or not isinstance(weights, (list, NoneType)):
                raise TypeError("its names or weights are not a list")
            saved = {"fusion": about["fusion"], "weights": weights, "depth": checked(about["depth"])}
            fuse([[]] * len(names), about["fusion"], weights)  # says what is wrong with them
        except FileNotFoundError:
            raise InputError(f"no hybrid retriever is saved at {folder}; name the folder given to persist") from None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:  # and InputError
            raise CorruptStoreError(
                f"{folder / _MANIFEST} cannot be read ({describe(error)}); save the retriever again"
            ) from error
        makers = loaders * len(names) if len(loaders) == 1 else loaders
        if len(makers) != len(names):
            raise InputError(
                f"{len(names)} retrievers are saved at {folder} ({', '.join(kinds)}); give as many loaders, "
                f"not {len(loaders)}"
            )
        retrievers = [make(folder / _folder(place)) for place, make in enumerate(makers)]
        return cls(*retrievers, **{"names": names, **saved, **options})


def content_key(hit: Hit) -> Hashable:
    """The same for documents of the same text, but for case and white space."""
    text = " ".join(hit.document.text.casefold().split())
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _folder(place: int) -> str:
    return f"retriever_{place}"
