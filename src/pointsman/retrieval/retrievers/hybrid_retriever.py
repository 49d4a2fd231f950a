"""Several retrievers as one: called in parallel, deduplicated, fused."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import uuid4

from pointsman.retrieval.fusion import FusionMethod, fuse
from pointsman.retrieval.retrievers.base_retriever import BaseRetriever
from pointsman.retrieval.retrievers.foreign_retriever import ForeignRetriever, as_retriever
from pointsman.retrieval.run.branches import Question, RetrieverBranch, ask, nothing_answered, unique_names
from pointsman.retrieval.run.candidates import DEPTH, hits_of
from pointsman.retrieval.run.journal import Journal
from pointsman.retrieval.run.merged_results import together
from pointsman.tools.errors import CorruptStoreError, InputError, RetrievalError
from pointsman.tools.parallel_calls import Breaker, Deadline, Mode, describe, sync_and_async
from pointsman.tools.sync_and_async import async_twin, in_thread
from pointsman.values.argument_checks import check_top_k
from pointsman.values.retrieval_context import Hits
from pointsman.values.types import AddResult, Document, Hit, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from pointsman.values.protocols import Retriever

log = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Seconds after which a search returns what it has."""

_MANIFEST = "hybrid.json"
_SAVED_FOLDER = re.compile(r"retriever_\d+(-[0-9a-f]{32})?")  # a retriever's folder; a later save has other ones


@dataclass(frozen=True, slots=True)
class NodesAdded:
    """Which retrievers accepted the documents.

    Attributes:
        holding: by name, those that accepted all documents.
        failed: by name, the error of each that failed; it may hold some of the documents.
        taken_back: those that had accepted all documents, and have deleted them again.
    """

    holding: tuple[str, ...]
    failed: Mapping[str, Exception] = field(default_factory=dict)
    taken_back: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.failed


class SimpleHybridRetriever(BaseRetriever):
    """Calls several retrievers in parallel and fuses their hits.

    A retriever that fails or is late is left out of the answer, which says so: `retrieve` returns `Hits`, a list with
    ``degraded`` and ``trace``. One that keeps failing is skipped for a while. If several return the same document, the
    version from the list that ranks it highest is kept (at equal ranks: the one with the higher score), and the hit's
    ``provenance`` holds rank and score in every list.

    Args:
        retrievers: at least one, ours or of another library (see
            `pointsman.retrieval.retrievers.foreign_retriever.ForeignRetriever`). A single list of them is accepted too.
        names: the names of their lists; by default, their class names in words.
        fusion: a name of `pointsman.retrieval.fusion.METHODS`, or a user-defined function of that kind; RRF by
            default, since scores of foreign retrievers share no scale.
        weights: one per retriever, 1 by default; 0 leaves its list out of the ranking.
        dedupe: what makes two hits the same document: its ``"id"`` (in different datasets, with the same text), its
            ``"content"``, or only both together, ``"id_and_content"``.
        depth: how many hits to request from each retriever, if ``top_k`` is not larger.
        timeout: seconds after which the answer consists of the results so far; None waits indefinitely.
        breaker: when to skip a failing retriever.

    Raises:
        InputError: there is no retriever, an object is not a retriever, or an option is invalid.
    """

    def __init__(
        self,
        *retrievers: Any,
        names: Sequence[str] | None = None,
        fusion: str | FusionMethod = "rrf",
        weights: Sequence[float] | None = None,
        dedupe: Literal["id", "content", "id_and_content"] = "id",
        depth: int = DEPTH,
        timeout: float | None = TIMEOUT,
        breaker: Breaker | None = None,
    ) -> None:
        own_retrievers: tuple[Any, ...] = ()
        for item in retrievers:
            own_retrievers += tuple(item) if isinstance(item, Sequence) and not isinstance(item, str) else (item,)
        if not own_retrievers:
            raise InputError("give at least one retriever")
        if dedupe not in {"id", "content", "id_and_content"}:
            raise InputError(f"dedupe is 'id', 'content' or 'id_and_content', not {dedupe!r}")
        self.names = tuple(unique_names(own_retrievers, names))
        self.retrievers = tuple(map(as_retriever, own_retrievers))
        if not callable(fusion):
            fuse([[]] * len(own_retrievers), fusion, weights)  # rejects invalid options now
        Deadline(timeout)
        self._fusion, self._depth, self._timeout = fusion, check_top_k(depth), timeout
        self._weights = dict(zip(self.names, weights, strict=True)) if weights is not None else None
        of_datasets = [retriever.dataset.name for retriever in own_retrievers if hasattr(retriever, "dataset")]
        by_both = dedupe == "id_and_content" or len(set(of_datasets)) > 1
        self._key = content_key if dedupe == "content" else _node_key if by_both else None
        if self._key is None and 0 < len(of_datasets) < len(own_retrievers):  # hits of other retrievers name no dataset
            self._key = _id_key
        self._branches = self._branches_with({})
        self._breaker = breaker or Breaker()
        self._loaded_from: frozenset[Path] = frozenset()

    def _branches_with(self, options: Mapping[str, Any]) -> list[RetrieverBranch]:
        """The retrievers, set up to be called with these further arguments."""
        return [
            RetrieverBranch(retriever, name, self._key, options)
            for retriever, name in zip(self.retrievers, self.names, strict=True)
        ]

    async def _retrieve(  # noqa: D417  (the public versions have no mode)
        self,
        mode: Mode,
        /,  # an option of a retriever may have this name, too
        query: str | Query,
        top_k: int = 10,
        *,
        offset: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109  (a partial answer at the deadline, not a cancellation)
        **options: Any,
    ) -> Hits:
        """Return at most ``top_k`` hits, best first.

        Args:
            query: the query; every retriever receives the same `Query` object.
            top_k: the number of hits; the cut comes after the fusion.
            offset: how many of the best to skip: the second page has ``offset=top_k``.
            timeout: for this call, instead of the retriever's own.
            options: passed to every retriever; one that does not accept them fails, which is reported.

        Raises:
            RetrievalError: all retrievers failed; it carries each one's error.
            InputError: a number is invalid.
        """
        query, depth = Query.of(query), check_top_k(top_k)
        if not isinstance(offset, int) or offset < 0:
            raise InputError(f"offset is an int from 0 up, not {offset!r}")
        depth += offset
        journal = Journal(self._timeout if timeout is None else timeout)
        answers = await ask(
            self._branches_with(options) if options else self._branches,
            [Question(query)],
            max(self._depth, depth),
            mode,
            [journal],
            breaker=self._breaker,
            budget=journal.deadline.left,
        )
        if not answers[0].results:
            raise nothing_answered(answers[0].failed)
        results = together(answers[0].results)
        start = perf_counter()
        ranking = results.pool.fused(self._fusion, weights=self._weights)
        hits = hits_of(results, ranking, depth)[offset:]
        journal.span("fuse", ranking.scale, start, len(hits))
        journal.fused(results, ranking)
        return Hits(hits, journal.trace(hits), tuple(journal.degraded))

    retrieve, aretrieve = sync_and_async(_retrieve)

    # ── adding and saving ───────────────────────────────────────────────────────────────────────────────────

    def add_nodes(self, nodes: Sequence[Any], *, roll_back: bool = False) -> NodesAdded:
        """Add documents to every retriever that accepts any; the failure of one does not affect the others.

        Args:
            nodes: documents, or nodes and documents of another library as `pointsman.values.types.Document.of` reads
                them;
                retrievers of other libraries get them unchanged.
            roll_back: if one fails, delete the documents from the others again, where they have ``delete_nodes(ids)``;
                a dataset that held one of them before keeps them all, as its former version would be lost.

        Raises:
            InputError: no retriever accepts documents, or one of these is no document.
            RetrievalError: all retrievers failed, so that none holds the documents; it carries each one's error.
        """
        if not any(callable(getattr(retriever, "add_nodes", None)) for retriever in self.retrievers):
            raise InputError(f"none of {', '.join(self.names)} takes documents; they have no add_nodes")
        nodes = list(nodes)
        documents = list(Document.each(nodes))
        holding: list[str] = []
        failures: dict[str, Exception] = {}
        outcomes: dict[str, Any] = {}
        for name, retriever in zip(self.names, self.retrievers, strict=True):
            add = getattr(retriever, "add_nodes", None)
            if not callable(add):
                failures[name] = InputError(f"{name} does not accept documents; it has no add_nodes")
                continue
            try:
                outcome = add(nodes if isinstance(retriever, ForeignRetriever) else documents)
            except RetrievalError as error:  # a hybrid retriever, none of whose retrievers holds them
                failures.update({f"{name}.{inner}": cause for inner, cause in error.causes.items()})
            except Exception as error:  # noqa: BLE001  (returned to the caller by name)
                failures[name] = error
            else:
                outcomes[name] = outcome
                inner_names = outcome.holding if isinstance(outcome, NodesAdded) else None
                holding.extend([name] if inner_names is None else [f"{name}.{inner}" for inner in inner_names])
                if isinstance(outcome, NodesAdded):
                    failures.update({f"{name}.{inner}": cause for inner, cause in outcome.failed.items()})
        if not holding:
            raise RetrievalError("no retriever holds the documents", failures)
        for name, cause in failures.items():
            log.warning("%s does not hold the %d documents added: %s", name, len(nodes), describe(cause))
        taken_back = self._take_back(outcomes, documents) if roll_back and failures else ()
        return NodesAdded(tuple(name for name in holding if name not in taken_back), failures, taken_back)

    aadd_nodes = async_twin(add_nodes)

    def _take_back(self, outcomes: Mapping[str, Any], documents: Sequence[Document]) -> tuple[str, ...]:
        """Delete documents from each retriever that can and held none of them before; return the names of those."""
        ids, names = [document.id for document in documents], []
        for name, retriever in zip(self.names, self.retrievers, strict=True):
            delete, outcome = getattr(retriever, "delete_nodes", None), outcomes.get(name)
            were_new = not isinstance(outcome, AddResult) or outcome.added == len(documents)
            if name not in outcomes or not callable(delete) or not were_new:
                continue
            try:
                delete(ids)
            except Exception as error:  # noqa: BLE001  (it is still among those that hold them)
                log.warning("%s could not delete the documents again: %s", name, describe(error))
            else:
                names.append(name)
        return tuple(names)

    def persist(self, persist_dir: str | Path, **options: Any) -> None:
        """Save every retriever in its own folder below ``persist_dir``, in place of what was saved there before.

        The new save is written beside the former one and then takes its place in one step, so a failure or a crash
        leaves one of them whole.

        Args:
            persist_dir: a new or empty folder, or one that holds nothing but a saved hybrid retriever.
            options: passed to each retriever whose ``persist`` accepts them; one that none accepts is logged.

        Raises:
            InputError: one of them cannot be saved, or ``persist_dir`` holds something else; nothing is written then.
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
        from pointsman.tools.system.replaced_files import replacing

        folder = Path(persist_dir)
        former = _former_saves(folder)
        new_folders = [folder / _folder(number, anew=bool(former)) for number in range(len(self.retrievers))]
        unused = set(options)
        try:
            for retriever, folder_of_retriever in zip(self.retrievers, new_folders, strict=True):
                method = retriever.persist  # type: ignore[attr-defined]  # checked above
                accepted = {name: value for name, value in options.items() if _accepts(method, name)}
                unused -= accepted.keys()
                method(folder_of_retriever, **accepted)
        except BaseException:
            for folder_of_retriever in new_folders:
                shutil.rmtree(folder_of_retriever, ignore_errors=True)
            raise
        if unused:
            log.warning("persist: no retriever accepts %s, so it changed nothing", ", ".join(sorted(unused)))
        manifest = {
            "format": 1,
            "names": list(self.names),
            "kinds": [type(retriever).__name__ for retriever in self.retrievers],
            "fusion": self._fusion,
            "weights": None if self._weights is None else list(self._weights.values()),
            "depth": self._depth,
            "folders": [folder_of_retriever.name for folder_of_retriever in new_folders],
        }
        with replacing(folder / _MANIFEST) as file:
            file.write(json.dumps(manifest, ensure_ascii=False, indent=2).encode())
        for folder_of_retriever in former:
            if folder_of_retriever not in self._loaded_from:  # what was loaded is still in use
                shutil.rmtree(folder_of_retriever, ignore_errors=True)

    async def apersist(self, persist_dir: str | Path, **options: Any) -> None:
        """Async version of `persist`."""
        await in_thread(self.persist, persist_dir, **options)

    @classmethod
    def load(cls, persist_dir: str | Path, *loaders: Callable[[Path], Retriever], **options: Any) -> Self:
        """Load a saved retriever, which answers like the original.

        Args:
            persist_dir: the folder given to `persist`.
            loaders: one per retriever, in order: a function that loads it from its folder, such as
                ``pointsman.workspace.dataset.DatasetRetriever.load``; a single one serves all. The file never names
                code to run.
            options: of the constructor; they override the saved ones.

        Raises:
            InputError: nothing was saved there, or the number of loaders does not fit.
            CorruptStoreError: the saved description cannot be read.
        """
        folder = Path(persist_dir)
        try:
            manifest = json.loads((folder / _MANIFEST).read_text("utf-8"))
            names, kinds = [str(name) for name in manifest["names"]], [str(kind) for kind in manifest["kinds"]]
            weights = manifest["weights"]
            folders = [str(name) for name in manifest.get("folders", map(_folder, range(len(names))))]
            if len(folders) != len(names) or not all(map(_SAVED_FOLDER.fullmatch, folders)):
                raise ValueError(f"these cannot be the folders of its {len(names)} retrievers: {folders!r:.200}")
            if not names or not isinstance(manifest["names"], list) or not isinstance(weights, (list, NoneType)):
                raise TypeError("its names or weights are not a list")
            saved_options = {"fusion": manifest["fusion"], "weights": weights, "depth": check_top_k(manifest["depth"])}
            fuse([[]] * len(names), manifest["fusion"], weights)  # rejects invalid values
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
        paths = [folder / name for name in folders]
        retrievers = [make(path) for make, path in zip(makers, paths, strict=True)]
        retriever = cls(*retrievers, **{"names": names, **saved_options, **options})
        retriever._loaded_from = frozenset(paths)
        return retriever


def _accepts(method: Callable[..., Any], name: str) -> bool:
    """Whether a method takes a keyword argument of this name."""
    parameters = inspect.signature(method).parameters
    is_open = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return is_open or name in parameters


def _id_key(hit: Hit) -> Hashable:
    """A key that is equal for a document with the same id, whether or not it is in a dataset."""
    return hit.document.id


def _node_key(hit: Hit) -> Hashable:
    """A key that is equal for a node that several datasets hold, but not for their different nodes of the same id."""
    return hit.document.id, hit.document.text


def content_key(hit: Hit) -> Hashable:
    """A key that is equal for documents with the same text, ignoring case and white space."""
    text = " ".join(hit.document.text.casefold().split())
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _former_saves(folder: Path) -> list[Path]:
    """Return the folders of an earlier save into this one, which is created if need be.

    Raises:
        InputError: it is no folder, or holds something else than saved hybrid retrievers.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder} is not a folder; name a new one to save into") from None
    items = [item for item in folder.iterdir() if not item.name.startswith(_MANIFEST)]
    if not all(_SAVED_FOLDER.fullmatch(item.name) for item in items):
        raise InputError(f"{folder} is not empty, and holds more than a saved hybrid retriever; name a new folder")
    return items


def _folder(index: int, *, anew: bool = False) -> str:
    return f"retriever_{index}-{uuid4().hex}" if anew else f"retriever_{index}"
