"""Proof that what someone may not see changes nothing that they see: two copies of one workspace, asked the same.

One copy holds every document, the other only what one asker may see, written in the same order. Every door is asked the
same questions in both, and the answers have to be equal to the byte, times aside. The questions are made of words of
visible documents, of hidden ones, and of slips of both.

A filter is no such wall: run with ``wall="filter"``, the same comparison shows what a filter used in place of access
gives away.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.leak_cases import TwinCase, random_case
from pointsman.evaluation.leak_doors import LeakDoors, Wall, timeless
from pointsman.retrieval.judge.relevance import shipped
from pointsman.retrieval.workflow import RetrievalWorkflow
from pointsman.store.backend import Backend
from pointsman.store.local.folder_backend import temporary_backend
from pointsman.store.store_values import Capability
from pointsman.tools.errors import InputError, MissingDependencyError, UnmetNeedError
from pointsman.tools.json_forms import form_of
from pointsman.values.types import Document
from pointsman.values.views import ACCESS, Permissions, View, permissions_of
from pointsman.workspace.workspace_search import Workspace

if TYPE_CHECKING:
    from pointsman.embedders.base_embedder import BaseEmbedder


Scratch = Callable[[], AbstractContextManager[Backend]]


_SHOWN_DIFFERENCES: Final = 20


class ShippedEmbedder(HashingEmbedder):
    """A fake embedder under the name of the default one, so that the shipped calibrations judge its hits."""

    @property
    def name(self) -> str:
        """The name of the embedder that the first shipped calibration is for."""
        return next(calibration.embedder for calibration in shipped() if calibration.embedder) or super().name


@dataclass(frozen=True, slots=True)
class Leak:
    """A difference between the answers of the two copies.

    Attributes:
        door: what was asked.
        question: the request, in JSON.
        path: where in the answer they differ.
        with_hidden: what the copy with every document answered there.
        without_hidden: what the copy with the visible documents answered there.
    """

    door: str
    question: str
    path: str
    with_hidden: str
    without_hidden: str


@dataclass(slots=True)
class LeakReport:
    """The result of a leak test.

    Attributes:
        pairs: the number of pairs of copies.
        comparisons: the number of answers that were compared.
        doors: how many by door.
        leaks: the first differences.
        differing: the number of answers that differ.
        seconds: by copy, the median time of an answer, as information: hidden documents may cost time.
        skipped: doors that could not be asked, and why.
    """

    pairs: int = 0
    comparisons: int = 0
    doors: Counter[str] = field(default_factory=Counter)
    leaks: list[Leak] = field(default_factory=list)
    differing: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    FORM: ClassVar = ("pairs", "comparisons", "doors", "differing", "leaks", "median_seconds", "skipped")

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON form."""
        return form_of(self, median_seconds=self.seconds)


def leaktest(
    workspace: Workspace | None = None,
    *,
    pairs: int = 20,
    questions: int = 20,
    seed: int = 0,
    wall: Wall = "access",
    embedder: BaseEmbedder | None = None,
    on_pair: Callable[[LeakReport], None] = lambda _: None,
) -> LeakReport:
    """Compare what someone sees with and without the documents that they may not see.

    Nothing is written to the workspace: the copies are made beside it, in a temporary folder or in schemas of their own
    in its database, and deleted.

    Args:
        workspace: its datasets, with a sample of their documents and of their access, are the first documents of each
            copy, and the copies are in a store of the same kind; None: only made-up documents, in a folder.
        pairs: the number of pairs of copies.
        questions: the number of questions for each pair.
        seed: of the made-up documents and questions.
        wall: ``"access"``, or ``"filter"`` to see what a filter on ``tenant`` gives away.
        embedder: of the copies; by default a fake one that takes no time, judged as the default one.
        on_pair: called after each pair.

    Raises:
        InputError: a number is not positive, or ``wall`` is neither.
        StoreError: the workspace cannot be read.
        UnmetNeedError: its kind of store cannot hold a copy, or cannot tell who may see a document.
    """
    if wall not in ("access", "filter"):
        raise InputError(f"wall is 'access' or 'filter', not {wall!r:.80}")
    if pairs < 1 or questions < 1:
        raise InputError(f"pairs and questions are at least 1, not {pairs} and {questions}")
    if workspace is not None and wall == "access" and not workspace.backend.has_views:
        raise UnmetNeedError(
            f"the stores of {workspace.place} cannot tell who may see a document (they lack the capability "
            f"{Capability.VIEWS.value!r}), so access cannot be on there; wall='filter' (`leaktest --by-filter`) "
            "shows what a filter in place of it gives away"
        )
    report, chance = LeakReport(), random.Random(seed)  # noqa: S311  (no secret)
    times: dict[str, list[float]] = {"with hidden documents": [], "without": []}
    samples = [] if workspace is None else _own_documents(workspace)
    scratch = temporary_backend if workspace is None else workspace.backend.scratch
    for _ in range(pairs):
        case = random_case(random.Random(chance.random()), questions, samples)  # noqa: S311  (no secret)
        with TwinPair(case, wall, embedder or ShippedEmbedder(), scratch) as twins:
            twins.compare(report, times)
        report.pairs += 1
        on_pair(report)
    report.seconds = {name: sorted(values)[len(values) // 2] for name, values in times.items() if values}
    return report


def _own_documents(workspace: Workspace) -> list[tuple[str, str, list[Document]]]:
    """Return name, technique and a sample of each dataset."""
    datasets = (workspace.dataset(name, create=False) for name in workspace.own_names())
    return [(dataset.name, dataset.indexing_technique, dataset.store.sample(100)) for dataset in datasets]


class TwinPair:
    """Two copies of one workspace, with and without the documents that an asker may not see.

    Args:
        case: what is written and asked.
        wall: what hides the documents.
        embedder: of the copies.
        scratch: makes the empty workspace for each copy.
    """

    def __init__(
        self, case: TwinCase, wall: Wall, embedder: BaseEmbedder, scratch: Scratch = temporary_backend
    ) -> None:
        self.case, self.wall = case, wall
        self._view = View.of(case.asker)
        self._stack = ExitStack()
        try:
            self.full_copy = self._copy(scratch, embedder, holds_hidden=True)
            self.visible_copy = self._copy(scratch, embedder, holds_hidden=False)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _copy(self, scratch: Scratch, embedder: BaseEmbedder, *, holds_hidden: bool) -> Workspace:
        backend = self._stack.enter_context(scratch())
        # Without a time limit: on a busy machine, it would leave out in one copy what the other has.
        workflow = RetrievalWorkflow(timeout=None)
        workspace = self._stack.enter_context(Workspace(backend, embedder=embedder, workflow=workflow))
        for dataset, technique in self.case.techniques.items():
            workspace.dataset(dataset, indexing_technique=technique).make()  # type: ignore[arg-type]  # one of them
        visible_ids = self._finally_visible()
        for write in self.case.writes:
            target = workspace.dataset(write.dataset)
            ids = visible_ids[write.dataset]
            documents = [
                self._behind_wall(document, ids) for document in write.documents if holds_hidden or document.id in ids
            ]
            target.add(documents)
            deleted = [id_ for id_ in write.deleted if holds_hidden or id_ in ids]
            if deleted:
                target.delete(deleted)
            access = {id_: value for id_, value in write.access if id_ in target and (holds_hidden or id_ in ids)}
            if access and self.wall == "access":
                target.set_access(access)
        if self.wall == "access":
            workspace.switch_access(on=True)
        return workspace

    def _finally_visible(self) -> Mapping[str, frozenset[str]]:
        """Return the ids of each dataset that the asker sees once everything is written."""
        access: dict[str, dict[str, Permissions | None]] = {name: {} for name in self.case.techniques}
        for write in self.case.writes:
            of_dataset = access[write.dataset]
            of_dataset.update((document.id, permissions_of(document.metadata)) for document in write.documents)
            for id_ in write.deleted:
                of_dataset.pop(id_, None)
            of_dataset.update((id_, value) for id_, value in write.access if id_ in of_dataset)
        return {
            name: frozenset(id_ for id_, value in ids.items() if value is not None and value.admit(self._view))
            for name, ids in access.items()
        }

    def _behind_wall(self, document: Document, visible_ids: frozenset[str]) -> Document:
        if self.wall == "access":
            return document
        metadata = {name: value for name, value in document.metadata.items() if name != ACCESS}
        return Document(document.id, document.text, {**metadata, "tenant": "a" if document.id in visible_ids else "b"})

    def compare(self, report: LeakReport, times: Mapping[str, list[float]]) -> None:
        """Ask both copies everything, and note what differs, and which doors could not be asked."""
        doors = [LeakDoors(workspace, self.case.asker, self.wall) for workspace in (self.full_copy, self.visible_copy)]
        try:
            for copy in doors:  # what a view is measured by, before a strategy's own time limit may leave it out
                copy.ask("search", {"query": "?", "k": 1, "refuse": False})
            for door, question in self.case.questions:
                answers, seconds = [], []
                try:
                    for copy in doors:
                        start = perf_counter()
                        answers.append(timeless(copy.ask(door, question)))
                        seconds.append(perf_counter() - start)
                except MissingDependencyError as error:
                    if (reason := f"{door}: {error}") not in report.skipped:
                        report.skipped.append(reason)
                    continue
                for values, value in zip(times.values(), seconds, strict=True):
                    values.append(value)
                report.comparisons += 1
                report.doors[door] += 1
                if _text(answers[0]) == _text(answers[1]):
                    continue
                report.differing += 1
                if len(report.leaks) < _SHOWN_DIFFERENCES:
                    path, first, second = next(_differences(*answers))
                    question_text = json.dumps(question, ensure_ascii=False)
                    report.leaks.append(Leak(door, question_text, path, f"{first!r:.200}", f"{second!r:.200}"))
        finally:
            for copy in doors:
                copy.close()


def _text(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False, sort_keys=True, default=str)


def _differences(first: Any, second: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield where two answers differ."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in dict.fromkeys([*first, *second]):
            yield from _differences(first.get(name), second.get(name), f"{path}.{name}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for number, pair in enumerate(zip(first, second, strict=True)):
            yield from _differences(*pair, f"{path}[{number}]")
    elif first != second or type(first) is not type(second):
        yield path.lstrip("."), first, second
