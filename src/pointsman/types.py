"""The values that flow through Pointsman: frozen, small, comparable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pointsman.errors import InputError

if TYPE_CHECKING:
    from pointsman.filters import Filter

Metadata = Mapping[str, Any]
"""JSON-serialisable values by name. Scalars and lists of scalars can be filtered on; the rest is only kept."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation that precedes a query."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked. Immutable, so branches share it without copies (F5)."""

    text: str
    filters: Filter | None = None
    history: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"a query's text is a str, not {type(self.text).__name__}: {self.text!r:.80}")

    @classmethod
    def of(cls, query: str | Query, filters: Filter | None = None) -> Query:
        """Take a plain string wherever a query is wanted; ``filters``, when given, replace the query's own."""
        query = cls(query) if isinstance(query, str) else query
        return query if filters is None else replace(query, filters=filters)


@dataclass(frozen=True, slots=True)
class Document:
    """A piece of text with a stable identity.

    ``metadata["title"]``, where present, is searched and embedded together with the text.
    """

    id: str
    text: str
    metadata: Metadata = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InputError(f"a document's id is a non-empty str, not {self.id!r:.80}")
        if not isinstance(self.text, str):
            raise InputError(f"document {self.id!r}: text is a str, not {type(self.text).__name__}")
        if not isinstance(self.metadata, Mapping):
            raise InputError(f"document {self.id!r}: metadata is a mapping, not {type(self.metadata).__name__}")

    @property
    def title(self) -> str:
        """The title kept in the metadata, or an empty string."""
        title = self.metadata.get("title", "")
        return title if isinstance(title, str) else ""

    @property
    def searchable(self) -> str:
        """The text that indexes see: the title, where there is one, above the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Provenance:
    """How one list, or one stage, ranked a document.

    Attributes:
        source: the list (``"bm25"``, ``"vector"``, a retriever's name) or the stage (``"fuse"``, ``"rerank"``).
        rank: its rank there, from 1; None where only another list has found it, and this one merely scored it.
        score: its raw score there; None where the list has none.
        normalised: what that score added to the fused one; None where nothing was fused, or this is a stage.
    """

    source: str
    rank: int | None
    score: float | None
    normalised: float | None = None


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What compression kept of a document.

    Attributes:
        text: the parts that were kept, joined; or a summary.
        spans: where each part stands in the document's text, as ``(start, end)`` in characters, in source order;
            empty for a summary, which stands nowhere.
    """

    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found, its score in the list at hand, and its way there."""

    document: Document
    score: float
    dataset: str | None = None
    provenance: tuple[Provenance, ...] = ()
    excerpt: Excerpt | None = None

    @property
    def id(self) -> str:
        """The document's id."""
        return self.document.id

    @property
    def text(self) -> str:
        """What to read: the excerpt where there is one, else the document's text."""
        return self.document.text if self.excerpt is None else self.excerpt.text

    @property
    def metadata(self) -> Metadata:
        """The document's metadata."""
        return self.document.metadata

    @property
    def key(self) -> HitKey:
        """What tells this hit from others."""
        return self.dataset, self.document.id


HitKey = tuple[str | None, str]
"""What tells hits apart: the dataset's name (None outside of one) and the document's id."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing that was found is relevant enough (R4).

    Attributes:
        reason: in words.
        nearest: the best of what was found and is not answered.
        score: what ``nearest`` scored on the scale of the threshold.
        threshold: what it would have needed.
        scale: what these two numbers are, such as ``"probability"``.
    """

    reason: str
    nearest: Hit | None = None
    score: float | None = None
    threshold: float | None = None
    scale: str | None = None

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranking between two stages, and what the stage that made it has to tell.

    Attributes:
        hits: best first.
        scale: what the hits' scores are: ``"bm25"``, ``"cosine"``, ``"calibrated"``, a fusion method's name, or
            ``"rerank:<model>"``. Thresholds are meant for one scale and act on no other.
        detail: what was decided and why, in words.
        dropped: hits that came in and did not go on, with the reason.
        degraded: what did not work as asked, and what was done instead.
        refused: set where nothing relevant is left; ``hits`` is empty then.
    """

    hits: tuple[Hit, ...]
    scale: str
    detail: str = ""
    dropped: Mapping[HitKey, str] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided before looking: where, how, and why."""

    datasets: tuple[str, ...]
    strategy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Span:
    """One stage: what it did, how long it took, and what went wrong, if anything."""

    stage: str
    detail: str
    milliseconds: float
    count: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Every stage of one search, in order (R9)."""

    spans: tuple[Span, ...] = ()

    @property
    def milliseconds(self) -> float:
        """The sum over the stages."""
        return sum(span.milliseconds for span in self.spans)


@dataclass(frozen=True, slots=True)
class RetrievalContext:
    """The answer to a search: hits, best first, and how they came to be."""

    query: Query
    hits: tuple[Hit, ...]
    plan: Plan
    trace: Trace
    refused: Refusal | None = None
    degraded: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


@dataclass(frozen=True, slots=True)
class AddResult:
    """What an add did, by number of documents; ``unchanged`` ones cost nothing."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0

    def __add__(self, other: AddResult) -> AddResult:
        return AddResult(self.added + other.added, self.updated + other.updated, self.unchanged + other.unchanged)
