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
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.judge.relevance import shipped
from pointsman.retrieval.request import OPTIONS
from pointsman.retrieval.workflow import RetrievalWorkflow
from pointsman.store.backend import Backend, BaseBackend
from pointsman.store.local.folder_backend import temporary_backend
from pointsman.store.store_values import Capability
from pointsman.tools.errors import InputError, MissingDependencyError, PointsmanError, UnmetNeedError
from pointsman.tools.json_forms import form_of, plain_form
from pointsman.values.types import Document
from pointsman.values.views import ACCESS, Permissions, View, permissions_of
from pointsman.workspace.workspace_search import Workspace

if TYPE_CHECKING:
    from pointsman.embedders.base_embedder import BaseEmbedder

Wall = Literal["access", "filter"]
Scratch = Callable[[], AbstractContextManager[Backend]]

_ENGLISH: Final = (
    "railway signal train station yard switch lamp ticket engine bridge tunnel whistle platform schedule freight brake "
    "driver cable crossing timetable salary contract budget audit invoice merger lawsuit bonus"
)
_RUSSIAN: Final = (
    "поезд сигнал станция стрелка путь вагон билет машинист мост тоннель расписание платформа договор зарплата бюджет "
    "проверка счёт премия увольнение секретный"
)
_CHINESE: Final = "铁路信号 列车 车站 道岔 时刻表 车票 司机 隧道 合同 工资 预算 审计 发票 奖金"
_WORDS: Final = {"en": _ENGLISH.split(), "ru": _RUSSIAN.split(), "zh": _CHINESE.split()}
_GROUPS: Final = ("everyone", "group:rail", "group:money", "group:law", "group:news", "user:anna", "user:boris")
_STRATEGIES: Final = ("auto", "auto", "auto", "hybrid", "bm25", "vector", "rrf", "z_score", "multi_query")
_TIMES: Final = re.compile(r"(took|in|after) [\d.]+ ?(ms|s|seconds|milliseconds)\b")
_TIMED_FIELDS: Final = frozenset({"milliseconds", "started", "latency_ms", "instance", "request_id", "created_at"})
_SHOWN_DIFFERENCES: Final = 20
_PATIENCE: Final = 600.0
"""Seconds for a request: so many that no answer depends on how busy the machine is."""


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

    FORM: ClassVar = ("door", "question", "path", "with_hidden", "without_hidden")


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

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON form."""
        return {
            "pairs": self.pairs,
            "comparisons": self.comparisons,
            "doors": dict(self.doors),
            "differing": self.differing,
            "leaks": [form_of(leak) for leak in self.leaks],
            "median_seconds": self.seconds,
            "skipped": self.skipped,
        }


@dataclass(frozen=True, slots=True)
class Write:
    """One write to a dataset: documents that are added, or ids that are deleted."""

    dataset: str
    documents: tuple[Document, ...] = ()
    deleted: tuple[str, ...] = ()
    access: tuple[tuple[str, Permissions], ...] = ()


@dataclass(frozen=True, slots=True)
class TwinCase:
    """A random case: writes, who asks, and what.

    Attributes:
        techniques: by dataset, what is indexed.
        writes: in order.
        asker: the principals of whoever asks.
        questions: requests, each as a door and its arguments.
    """

    techniques: Mapping[str, str]
    writes: tuple[Write, ...]
    asker: tuple[str, ...]
    questions: tuple[tuple[str, Mapping[str, Any]], ...]


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
    if workspace is not None and wall == "access" and not getattr(workspace.backend, "has_views", False):
        raise UnmetNeedError(
            f"the stores of {workspace.place} cannot tell who may see a document (they lack the capability "
            f"{Capability.VIEWS.value!r}), so access cannot be on there; wall='filter' (`leaktest --by-filter`) "
            "shows what a filter in place of it gives away"
        )
    report, chance = LeakReport(), random.Random(seed)  # noqa: S311  (no secret)
    times: dict[str, list[float]] = {"with hidden documents": [], "without": []}
    samples = [] if workspace is None else _own_documents(workspace)
    scratch = temporary_backend if workspace is None else _scratch_of(workspace)
    for _ in range(pairs):
        case = random_case(random.Random(chance.random()), questions, samples)  # noqa: S311  (no secret)
        with TwinPair(case, wall, embedder or ShippedEmbedder(), scratch) as twins:
            twins.compare(report, times)
        report.pairs += 1
        on_pair(report)
    report.seconds = {name: sorted(values)[len(values) // 2] for name, values in times.items() if values}
    return report


def _scratch_of(workspace: Workspace) -> Scratch:
    backend = workspace.backend
    if not isinstance(backend, BaseBackend):
        raise UnmetNeedError(f"{type(backend).__name__} cannot make a scratch workspace; derive it from BaseBackend")
    return backend.scratch


def _own_documents(workspace: Workspace) -> list[tuple[str, str, list[Document]]]:
    """Return name, technique and a sample of each dataset."""
    datasets = (workspace.dataset(name, create=False) for name in workspace.own_names())
    return [(dataset.name, dataset.indexing_technique, dataset.store.sample(100)) for dataset in datasets]


# ── random cases ─────────────────────────────────────────────────────────────────────────────────────────────────────


def random_case(
    chance: random.Random, questions: int = 20, samples: Sequence[tuple[str, str, Sequence[Document]]] = ()
) -> TwinCase:
    """Return a case with some documents that whoever asks may not see.

    Args:
        chance: draws everything.
        questions: their number.
        samples: by dataset, its technique and documents that come first.
    """
    asker = tuple(sorted(chance.sample(_GROUPS[1:], chance.choice([0, 1, 1, 2, 3]))))
    techniques = {name: technique for name, technique, _ in samples} or {
        name: chance.choice(["hybrid", "hybrid", "hybrid", "keyword", "vector"])
        for name in chance.sample(["notes", "файлы", "档案"], chance.choice([1, 1, 2]))
    }
    writes = [Write(name, tuple(documents)) for name, _, documents in samples]
    for name in techniques:
        writes += _random_writes(chance, name)
    documents = [document for write in writes for document in write.documents]
    return TwinCase(
        techniques,
        tuple(writes),
        asker,
        tuple(_random_question(chance, techniques, documents) for _ in range(questions)),
    )


def _random_writes(chance: random.Random, dataset: str) -> Iterator[Write]:
    ids = [f"{chance.choice('abc')}-{number}" for number in range(chance.choice([8, 20, 60, 120]))]
    batch: list[Document] = []
    for number, id_ in enumerate(ids):
        batch.append(_random_document(chance, id_, number))
        if chance.random() < 0.03:
            yield Write(dataset, tuple(batch))
            batch = []
            yield from _random_change(chance, dataset, ids[: number + 1])
    yield Write(dataset, tuple(batch))
    yield from _random_change(chance, dataset, ids)


def _random_change(chance: random.Random, dataset: str, ids: Sequence[str]) -> Iterator[Write]:
    kind, selection = chance.random(), chance.sample(ids, min(len(ids), 3))
    if kind < 0.25:
        yield Write(dataset, deleted=tuple(selection))
    elif kind < 0.5:
        yield Write(dataset, tuple(_random_document(chance, id_, 0) for id_ in selection))
    elif kind < 0.75:
        yield Write(dataset, access=tuple((id_, _random_permissions(chance)) for id_ in selection))


def _random_permissions(chance: random.Random) -> Permissions:
    allowed_groups = chance.sample(_GROUPS, chance.choice([0, 1, 1, 1, 2]))
    denied_groups = chance.sample(_GROUPS[1:], 1) if chance.random() < 0.2 else []
    return Permissions(frozenset(allowed_groups), frozenset(denied_groups))


def _random_text(chance: random.Random) -> str:
    words = _WORDS[chance.choice(["en", "en", "ru", "zh"])]
    count = chance.choice([3, 8, 20, 60])
    text = [chance.choice(words) for _ in range(count)]
    if chance.random() < 0.3:
        text.append("".join(chance.choice("bdgklmnoprstuvz" if n % 2 else "aeiou") for n in range(9)))
    joint = "" if words is _WORDS["zh"] else " "
    sentences = [joint.join(text[start : start + 10]) for start in range(0, len(text), 10)]
    return ("。" if not joint else ". ").join(sentences) + ("。" if not joint else ".")


def _random_document(chance: random.Random, id_: str, number: int) -> Document:
    metadata: dict[str, Any] = {"year": 2000 + chance.randrange(25), "lang": chance.choice(["en", "ru", "zh"])}
    if chance.random() < 0.4:
        metadata |= {"source": f"file{number // 4}.md", "position": number, "start": 100 * number}
    if chance.random() < 0.3:
        metadata["title"] = _random_text(chance)[:30]
    if chance.random() < 0.1:
        metadata[f"key{chance.randrange(5)}"] = chance.choice(["x", 1, True])
    if chance.random() < 0.95:
        metadata[ACCESS] = _random_permissions(chance).to_metadata()
    return Document(id_, _random_text(chance), metadata)


def _random_query(chance: random.Random, documents: Sequence[Document]) -> str:
    if not documents or chance.random() < 0.05:
        return chance.choice(["?", "zzzz", "поезд", "列车", "what is the capital of France?"])
    words = re.findall(r"\w+", chance.choice(documents).text) or ["train"]
    selection = [chance.choice(words)[:12] for _ in range(chance.choice([1, 2, 3, 6]))]
    if chance.random() < 0.4:  # a slip
        index = chance.randrange(len(selection))
        word = selection[index]
        position = chance.randrange(max(1, len(word)))
        selection[index] = word[:position] + chance.choice("aeiouкот") + word[position + 1 :]
    return " ".join(selection)


def _random_question(
    chance: random.Random, techniques: Mapping[str, str], documents: Sequence[Document]
) -> tuple[str, Mapping[str, Any]]:
    """Return a door and its arguments."""
    name, document = chance.choice(list(techniques)), chance.choice(documents) if documents else Document("x", "x")
    query = _random_query(chance, documents)
    filters = chance.choice([None, None, None, "year >= 2010", 'lang in ["en", "zh"] and not year = 2003', "key1 = x"])
    options: dict[str, Any] = {"k": chance.choice([1, 3, 5, 20]), "strategy": chance.choice(_STRATEGIES)}
    if filters is not None:
        options["filters"] = filters
    if chance.random() < 0.5:
        options["refuse"] = False
    if chance.random() < 0.2:
        options.update({name: 0.3 for name, option in OPTIONS.items() if option.bounds.get("le") == 1})
    if chance.random() < 0.3:
        options["datasets"] = [name]
    door = chance.choice(_DOORS)
    requests: dict[str, Mapping[str, Any]] = {
        "search": {"query": query, **options},
        "explain": {"query": query, "document_id": document.id, **options},
        "search_many": {"queries": [query, _random_query(chance, documents)], **options},
        "route": {"query": query},
        "documents": {"dataset": name, "id": document.id, "source": document.metadata.get("source", "file0.md")},
        "http": {"query": query, "dataset": name, "id": document.id, "filters": filters, **options},
        "mcp": {
            "query": query,
            "dataset": name,
            "id": f"{name}/{document.id}",
            "source": document.metadata.get("source", "file0.md"),
            "word": query.split()[0] if query.split() else "a",
            **options,
        },
    }
    return door, requests[door]


_DOORS: Final = ("search", "search", "search", "explain", "search_many", "route", "documents", "http", "mcp")


# ── two copies ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
            self.full_copy = self._copy(scratch, embedder, hidden=True)
            self.visible_copy = self._copy(scratch, embedder, hidden=False)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _copy(self, scratch: Scratch, embedder: BaseEmbedder, *, hidden: bool) -> Workspace:
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
                self._behind_wall(document, ids) for document in write.documents if hidden or document.id in ids
            ]
            target.add(documents)
            deleted = [id_ for id_ in write.deleted if hidden or id_ in ids]
            if deleted:
                target.delete(deleted)
            access = {id_: value for id_, value in write.access if id_ in target and (hidden or id_ in ids)}
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
        doors = [_Doors(workspace, self.case.asker, self.wall) for workspace in (self.full_copy, self.visible_copy)]
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


def timeless(value: Any) -> Any:
    """Return an answer without what depends on the time it took, or on where its workspace is."""
    if isinstance(value, Mapping):
        return {name: timeless(item) for name, item in value.items() if name not in _TIMED_FIELDS}
    if isinstance(value, list | tuple):
        return [timeless(item) for item in value]
    return _TIMES.sub("", value) if isinstance(value, str) else value


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


# ── doors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Doors:
    """Every door of one copy, asked as one asker."""

    def __init__(self, workspace: Workspace, asker: Sequence[str], wall: Wall) -> None:
        self._workspace, self._asker, self._wall = workspace, list(asker), wall
        self._http: Any = None
        self._portal = ExitStack()
        self._tools: Any = None
        self._doors: Mapping[str, Callable[[dict[str, Any]], Any]] = {
            "search": self._search,
            "explain": self._explain,
            "search_many": self._search_many,
            "route": self._route,
            "documents": self._documents,
            "http": self._over_http,
            "mcp": self._over_mcp,
        }

    def close(self) -> None:
        """Close the service."""
        if self._http is not None:
            self._http.close()
        self._portal.close()

    def ask(self, door: str, question: Mapping[str, Any]) -> Any:
        """Return the answer of a door, or its error.

        Raises:
            MissingDependencyError: it cannot be asked here.
        """
        try:
            return self._doors[door](dict(question))
        except MissingDependencyError:
            raise
        except PointsmanError as error:
            return {"error": type(error).__name__, "message": str(error)}

    def _options(self, question: dict[str, Any]) -> dict[str, Any]:
        """Add who asks: as principals, or as a filter."""
        if self._wall == "access":
            return {**question, "principals": self._asker}
        filters = question.get("filters")
        return {**question, "filters": 'tenant = "a"' if filters is None else f'tenant = "a" and ({filters})'}

    def _search(self, question: dict[str, Any]) -> Any:
        query, k = question.pop("query"), question.pop("k")
        context = self._workspace.search(query, k, **self._options(question))
        return context.to_dict(trace="lists")

    def _explain(self, question: dict[str, Any]) -> Any:
        query, k, id_ = (question.pop(name) for name in ("query", "k", "document_id"))
        return plain_form(self._workspace.search(query, k, **self._options(question)).explain(id_))

    def _search_many(self, question: dict[str, Any]) -> Any:
        queries, k = question.pop("queries"), question.pop("k")
        return [answer.to_dict() for answer in self._workspace.search_many(queries, k, **self._options(question))]

    def _datasets(self) -> list[Any]:
        datasets = self._workspace.datasets()
        return self._workspace.in_view(datasets, self._asker) if self._wall == "access" else datasets

    def _route(self, question: dict[str, Any]) -> Any:
        return self._workspace.route(question["query"], self._datasets()).to_dict()

    def _documents(self, question: dict[str, Any]) -> Any:
        (dataset,) = (candidate for candidate in self._datasets() if candidate.name == question["dataset"])
        filters = None if self._wall == "access" else 'tenant = "a"'
        document = dataset.get(question["id"])
        page, following = dataset.page(0, 3, filters=filters)
        try:
            text: Any = dataset.text(question["source"]).to_dict()
        except PointsmanError as error:
            text = str(error)
        return {
            "document": None if document is None else [document.id, document.text, dict(document.metadata)],
            "count": dataset.count(filters),
            "ids": dataset.ids(filters=filters),
            "page": [document.id for document in page],
            "next": following,
            "text": text,
            "keys": sorted(dataset.store.metadata_keys() or ()),
            "vectors": dataset.vectors_due,
        }

    # ── over HTTP ────────────────────────────────────────────────────────────────────────────────────────────────

    def _client(self) -> Any:
        if self._http is None:
            try:
                from anyio.from_thread import start_blocking_portal
                from starlette.testclient import TestClient

                from pointsman.service.server import create_app
            except (ImportError, RuntimeError) as error:
                raise MissingDependencyError("httpx", "http", "asking over HTTP") from error
            from pointsman.service.server.access.api_keys import keys_of
            from pointsman.service.server.protocol.request_limits import Limits

            keys = keys_of(self._workspace.backend)
            principals = self._asker if self._wall == "access" else None
            key = keys.create("leaktest", scopes=("read",), principals=principals).text
            self._http = TestClient(
                create_app(self._workspace, limits=Limits(search_seconds=_PATIENCE)),
                base_url="http://localhost",
                headers={"X-API-Key": key},
            )
            self._http.portal = self._portal.enter_context(start_blocking_portal())  # one event loop for all requests
        return self._http

    def _over_http(self, question: dict[str, Any]) -> Any:
        client, name = self._client(), question.pop("dataset")
        id_, filters = question.pop("id"), question.pop("filters", None)
        parameters = {} if filters is None else {"filters": filters}
        body = {**question, **parameters}
        if self._wall == "filter":
            body = self._options(body)
            parameters = {"filters": body["filters"]}
        return {
            "search": client.post("/api/search", json={**body, "trace": "lists"}).json(),
            "explain": client.post("/api/explain", json={**body, "document_id": id_}).json(),
            "datasets": client.get("/api/datasets").json(),
            "count": client.get(f"/api/datasets/{name}/count", params=parameters).json(),
            "document": client.get(f"/api/datasets/{name}/document", params={"id": id_}).json(),
            "ids": client.get(f"/api/datasets/{name}/ids", params=parameters).json(),
            "files": client.get(f"/v1/vector_stores/{name}/files").json(),
            "store": client.get(f"/v1/vector_stores/{name}").json(),
            "route": client.post("/api/route", json={"query": question["query"]}).json(),
        }

    def _over_mcp(self, question: dict[str, Any]) -> Any:
        import anyio

        calls = self._calls()
        name, id_, source, word = (question.pop(argument) for argument in ("dataset", "id", "source", "word"))
        question = question if self._wall == "access" else self._options(question)
        requests = {
            "search": question,
            "explain": {**question, "id": id_},
            "fetch": {"id": id_},
            "read": {"id": id_, "before": 2, "after": 2},
            "outline": {"dataset": name},
            "grep": {"pattern": word, "ignore_case": True},
            "list_datasets": {},
            "route": {"query": question["query"]},
        }

        async def answers() -> dict[str, Any]:
            by_tool = {tool: await calls.call(tool, arguments, {}) for tool, arguments in requests.items()}
            return {**by_tool, "section": await calls.call("outline", {"dataset": name, "source": source}, {})}

        return anyio.run(answers)

    def _calls(self) -> Any:
        if self._tools is None:
            from dataclasses import replace

            try:
                from pointsman.integrations.mcp.tool_calls import Calls
                from pointsman.integrations.mcp.visible_datasets import Library
            except ImportError as error:
                raise MissingDependencyError("mcp", "mcp", "asking over MCP") from error
            from pointsman.service.server.access.rate_limits import Gate
            from pointsman.service.server.access.request_access import Access
            from pointsman.service.server.protocol.request_limits import Limits

            principals = frozenset(self._asker) if self._wall == "access" else None
            access = replace(Access.open(), principals=principals)
            strategies = tuple(dict.fromkeys(_STRATEGIES))
            library = Library(self._workspace, None, strategies, _PATIENCE)
            self._tools = Calls(library, Gate(Limits()), lambda _: access)
        return self._tools
