"""State shared by the tools: the workspace, which datasets are visible, and how ids identify documents."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from pointsman.integrations.mcp.answer_values import sound
from pointsman.integrations.mcp.grep import ALL_BYTES, JoinedTexts
from pointsman.retrieval.request import OPTIONS, SearchRequest
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.tools.errors import InputError
from pointsman.values.registry import STRATEGY_ALIASES
from pointsman.values.types import Message, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pointsman.integrations.mcp.tool_schemas import Entry, MetadataKey, Searching
    from pointsman.service.server.access.request_access import Access
    from pointsman.store.base_store import Store
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.types import Document
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.workspace_search import Workspace


T = TypeVar("T")


class Latest(Generic[T]):
    """Cached values of the most recently used stores; thread-safe.

    Args:
        capacity: maximum total weight of the cached values; the most recently used value is always kept.
        weight: returns the weight of a value.
    """

    def __init__(self, capacity: int, weight: Callable[[T], int] = lambda _: 1) -> None:
        self._capacity, self._weight = capacity, weight
        self._lock = threading.Lock()
        self._values: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def get(self, store: Store, build: Callable[[], T]) -> T:
        """Return the value for a store's current state; it is rebuilt if the store has changed."""
        identity, sequence = store.info.identity, store.statistics().sequence
        with self._lock:  # concurrent callers that need the same value build it only once
            value = self._values.get(identity)
            if value is None or value[0] != sequence:
                value = sequence, build()
            self._values[identity] = value
            self._values.move_to_end(identity)
            while (
                len(self._values) > 1
                and sum(self._weight(value) for _, value in self._values.values()) > self._capacity
            ):
                self._values.popitem(last=False)
        return value[1]


def id_of(dataset: str, id_: str) -> str:
    """Return an id that is unique across datasets; dataset names contain no slash.

    >>> id_of("manual", "guide.md#1")
    'manual/guide.md#1'
    """
    return f"{dataset}/{sound(id_)}"


@dataclass(frozen=True, slots=True)
class Library:
    """State shared by the tools.

    Attributes:
        workspace: the workspace to search.
        allowed: datasets that are served; None means all.
        strategies: strategies that are offered.
        seconds: time for checking an answer, and for any other call.
        texts: those of all documents, for `grep`; None for a dataset whose texts are too long.
        outlines: sources of the datasets.
        keys: metadata keys that filters can use, and the ids of the documents whose values are shown.
    """

    workspace: Workspace
    allowed: frozenset[str] | None
    strategies: tuple[str, ...]
    seconds: float
    texts: Latest[JoinedTexts | None] = field(
        default_factory=lambda: Latest(ALL_BYTES, lambda value: value.nbytes if value else 0)
    )
    outlines: Latest[list[Entry]] = field(default_factory=lambda: Latest(20))
    keys: Latest[tuple[list[MetadataKey], list[str]]] = field(default_factory=lambda: Latest(1_000))

    def restrict(self, access: Access) -> Access:
        """Restrict an access to the datasets served."""
        if self.allowed is None:
            return access
        return replace(access, datasets=self.allowed if access.datasets is None else self.allowed & access.datasets)

    def choose(
        self, access: Access, names: Sequence[str] | None, principals: Sequence[str] | None = None
    ) -> list[Dataset]:
        """Return the requested datasets, or all visible ones, as far as they exist for whoever asks; at least one.

        Raises:
            Problem: a dataset is not visible, or access is on and the key does not say who asks.
            InputError: there are no datasets.
        """
        datasets = access.choose_datasets(self.workspace, names, principals)
        if not datasets:
            raise InputError("there are no datasets yet; add documents first")
        return datasets

    def visible(self, access: Access) -> list[Dataset]:
        """Return all visible datasets, as far as they exist for whoever asks."""
        return self.choose(access, None) if access.visible(self.workspace.names()) else []

    def split(self, access: Access, id_: str) -> tuple[str | None, str]:
        """Split an id into the dataset it names, if that is visible, and the document's id within the dataset."""
        name, slash, document_id = id_.partition("/")
        return (
            (name, document_id)
            if slash and document_id and name in access.visible(self.workspace.names())
            else (None, id_)
        )

    def document(self, access: Access, id_: str) -> tuple[Dataset, Document]:
        """Return the document with this id; the dataset may be omitted if only one dataset has a document with this id.

        Raises:
            Problem: there is no such document.
            InputError: several datasets have one.
        """
        name, document_id = self.split(access, id_)
        if name is not None:
            (dataset,) = self.choose(access, [name])
            document = dataset.get(document_id)
            if document is not None:
                return dataset, document
        documents = [
            (dataset, document) for dataset in self.visible(access) if (document := dataset.get(id_)) is not None
        ]
        if not documents:
            raise HttpProblem(
                "not-found", f"there is no document {id_!r:.80}; ids have the form DATASET/ID, as in search results"
            )
        if len(documents) > 1:
            ids = ", ".join(id_of(dataset.name, id_) for dataset, _ in documents[:5])
            raise InputError(f"{len(documents)} datasets have a document {id_!r:.80}; name one of them: {ids:.400}")
        return documents[0]

    def search(self, access: Access, arguments: Searching) -> RetrievalContext:
        """Search with the arguments of a call.

        Raises:
            InputError: the strategy does not exist or lacks a model.
        """
        principals = arguments.principals
        datasets = self.choose(access, arguments.datasets, principals)
        name, engine = STRATEGY_ALIASES.get(arguments.strategy, arguments.strategy), self.workspace.engine
        if name not in self.strategies and engine.lack(name, ()) is not None:  # fusion methods are only not offered
            raise InputError(f"there is no strategy {name!r:.80} here; use one of {', '.join(self.strategies)}")
        values = {option: getattr(arguments, option) for option in OPTIONS}
        longest, timeout = self.workspace.workflow.timeout, values["timeout"]
        if timeout is not None and longest is not None and timeout >= longest:
            values["timeout"] = None  # the usual one is shorter
        query = Query(arguments.query, history=tuple(Message(turn.role, turn.text) for turn in arguments.history))
        names = [dataset.name for dataset in datasets]
        request = SearchRequest.of(query, values.pop("k"), {**values, "datasets": names, "principals": None})

        def search(request: SearchRequest) -> RetrievalContext:
            return self.workspace.engine.search(request, self.choose(access, arguments.datasets, principals))

        return self.workspace.retrying(request, search)
