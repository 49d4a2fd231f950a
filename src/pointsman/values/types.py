"""The values that flow through Pointsman: frozen, small, comparable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self

from pointsman.tools.errors import InputError
from pointsman.tools.json_forms import form_of, of_form, plain_form
from pointsman.values.filters import Filter, parse_filter
from pointsman.values.metadata import ID, TEXT
from pointsman.values.reasons import Reason, Statement, in_language, reason_of
from pointsman.values.trace import Explanation, HitKey, Span, Trace
from pointsman.values.views import ACCESS

if TYPE_CHECKING:
    from pointsman.values.citations import Citation
    from pointsman.values.views import Permissions

__all__ = [
    "AddResult",
    "Decision",
    "Document",
    "Excerpt",
    "Explanation",
    "Hit",
    "HitKey",
    "Message",
    "Metadata",
    "NotInForce",
    "Plan",
    "Provenance",
    "Query",
    "Ranked",
    "Refusal",
    "Span",
    "Trace",
]

Metadata = Mapping[str, Any]
"""JSON-serialisable values by name; dates, UUIDs, decimals and numpy scalars are stored in JSON form. Scalars and lists
of scalars can be filtered on, also within mappings; other values are only stored."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of the conversation before a query."""

    role: str
    text: str

    @classmethod
    def of(cls, item: Message | Mapping[str, Any]) -> Message:
        """Convert a mapping with ``role`` and ``text`` or ``content`` to a message.

        Raises:
            InputError: it is neither.
        """
        if isinstance(item, Message):
            return item
        if isinstance(item, Mapping):
            role, text = item.get("role"), item.get("text", item.get("content"))
            if isinstance(role, str) and isinstance(text, str):
                return cls(role, text)
        raise InputError(f"a message of the history is a Message or a mapping with role and text, not {item!r:.80}")


@dataclass(frozen=True, slots=True)
class Query:
    """A question. Immutable, so branches share it without copies.

    Raises:
        InputError: the text is invalid, or ``history`` has an item that is not a message.
        FilterError: ``filters`` is neither a filter nor a valid expression or mapping.
    """

    text: str
    filters: Filter | None = None
    history: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"a query's text is a str, not {type(self.text).__name__}: {self.text!r:.80}")
        if self.filters is not None and not isinstance(self.filters, Filter):
            object.__setattr__(self, "filters", parse_filter(self.filters))
        if self.history:
            if isinstance(self.history, str | Mapping) or not isinstance(self.history, Iterable):
                raise InputError(f"the history of a query is a list of messages, not {self.history!r:.80}")
            object.__setattr__(self, "history", tuple(map(Message.of, self.history)))

    @classmethod
    def of(cls, query: str | Query, filters: Filter | None = None) -> Query:
        """Convert a string, a query of another class (with ``text``) or LlamaIndex's ``QueryBundle`` to a query.

        Its own ``filters`` and ``history`` are taken over; ``filters``, if given, replace them.

        Raises:
            InputError: it is none of these, or a bundle with texts or vectors of its own to search by.
        """
        if not isinstance(query, Query):
            text = query if isinstance(query, str) else _text_of(query)
            query = cls(text, getattr(query, "filters", None), getattr(query, "history", ()))
        return query if filters is None else replace(query, filters=filters)

    def for_method(self, method: Callable[..., Any]) -> str | Query:
        """Return the query in the form that a user's method takes: the text, if its parameter is annotated ``str``."""
        return self.text if _takes_text(method) else self


def _text_of(query: Any) -> Any:
    """Return the text of LlamaIndex's ``QueryBundle`` or of a query of another class; anything else unchanged."""
    text = getattr(query, "query_str", None)
    if not isinstance(text, str):
        return query if isinstance(query, Document | Message) else getattr(query, "text", query)
    for name in ("embedding", "custom_embedding_strs", "image_path"):
        if getattr(query, name, None) is not None:
            raise InputError(f"a query is searched by its text, not by the {name} of a bundle; pass its query_str")
    return text


@lru_cache(256)
def _takes_text(method: Callable[..., Any]) -> bool:
    """Whether the first parameter after ``self`` is annotated ``str``."""
    parameters = list(inspect.signature(method).parameters.values())
    return len(parameters) > 1 and parameters[1].annotation in {str, "str"}


@dataclass(frozen=True, slots=True)
class Document:
    """A piece of text with a stable identity.

    ``metadata["title"]``, if present, is searched and embedded together with the text.
    """

    id: str
    text: str
    metadata: Metadata = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InputError(f"a document's id is a non-empty str, not {self.id!r:.80}")
        if not isinstance(self.text, str):
            raise InputError(f"document {self.id!r}: text is a str, not {type(self.text).__name__}")
        if not isinstance(self.metadata, dict | Mapping):  # a dict is recognised several times as fast
            raise InputError(f"document {self.id!r}: metadata is a mapping, not {type(self.metadata).__name__}")

    @classmethod
    def of(cls, item: Any) -> Document:
        """Convert to a document: a mapping with ``id``, ``text`` and optionally ``metadata``, or another framework's.

        Those are nodes of LlamaIndex (``node_id``, ``get_content()``), and documents of LangChain (``page_content``)
        and Haystack (``content``, ``meta``). One without an id gets one made from its text.

        Raises:
            InputError: it is none of these, or has other keys.
        """
        if isinstance(item, Document):
            return item
        if not isinstance(item, Mapping):
            return _document_of_framework(item)
        if set(item) - {"id", "text", "metadata"} or "id" not in item or "text" not in item:
            raise InputError(
                f"a document given as a mapping has id, text and optionally metadata, not {sorted(map(str, item))}"
            )
        return cls(item["id"], item["text"], item.get("metadata") or {})

    @classmethod
    def each(cls, items: Documents) -> Iterator[Document]:
        """Yield the documents of an iterable, or a single one.

        Raises:
            InputError: an item is not a document, or the whole is not iterable.
        """
        if isinstance(items, Document | Mapping) or any(hasattr(items, name) for name in _OF_FRAMEWORKS):
            items = [items]
        if not isinstance(items, Iterable):
            raise InputError(f"documents are a list of Document or of mappings with id and text, not {items!r:.80}")
        yield from map(cls.of, items)

    @property
    def node_id(self) -> str:
        """The id, under LlamaIndex's name for it."""
        return self.id

    @property
    def title(self) -> str:
        """The title from the metadata, or an empty string."""
        title = self.metadata.get("title", "")
        return title if isinstance(title, str) else ""

    @property
    def caption(self) -> str:
        """What a person calls it: its title, or its file and the place there; see `citations.caption_of`."""
        from pointsman.values.citations import caption_of

        return caption_of(self)

    @property
    def fields(self) -> Metadata:
        """The values that filters see: the metadata, the id as ``_id`` and the text as ``_text``."""
        return {**self.metadata, ID: self.id, TEXT: self.text}

    @property
    def searchable(self) -> str:
        """The text to index: the title, if any, above the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @property
    def headed_text(self) -> str:
        """The text below its title and headings."""
        headings = self.metadata.get("headings")
        lines = map(str, headings) if isinstance(headings, list | tuple) else ()
        return "\n".join((self.title, *lines, self.text))

    @property
    def full_text(self) -> str:
        """The text with all that names it: id, file, title and headings; for what has to be held to the letter."""
        return "\n".join((self.id, str(self.metadata.get("source", "")), self.headed_text))


Documents = Document | Mapping[str, Any] | Iterable[Any]
"""What `Document.each` takes: one document or several, each as for `Document.of`."""


def with_access(documents: Documents, permissions: Permissions) -> Iterator[Document]:
    """Yield documents that say in their metadata who may see them, instead of what they said before."""
    value = permissions.to_metadata()
    for document in Document.each(documents):
        yield Document(document.id, document.text, {**document.metadata, ACCESS: value})


class Provenance(NamedTuple):  # a tuple, as each search makes hundreds: a frozen dataclass is three times slower
    """How one list, or one stage, ranked a document.

    Attributes:
        source: the list (``"bm25"``, ``"vector"``, a retriever's name) or the stage (``"fuse"``, ``"rerank"``).
        rank: its rank there, from 1; None if only another list found it and this one just scored it.
        score: its raw score there; None if the list has no scores.
        normalised: the contribution of that score to the fused one; None without fusion, or for a stage.
    """

    source: str
    rank: int | None
    score: float | None
    normalised: float | None = None


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The part of a document that compression kept.

    Attributes:
        text: the kept parts, joined; or a summary.
        spans: the position of each part in the document's text, as ``(start, end)`` in characters, in source order;
            empty for a summary.
    """

    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NotInForce:
    """Why a document does not hold on the day of the search.

    Attributes:
        state: ``"superseded"`` by a newer version, ``"not yet valid"``, or ``"no longer valid"``.
        day: the first valid day of the newer version, or of the document itself; or its last.
        by: the id of the newer version; None unless superseded.
        place: where that version is from: its file, or its id.
    """

    state: Literal["superseded", "not yet valid", "no longer valid"]
    day: str
    by: str | None = None
    place: str | None = None

    FORM: ClassVar = ("state", "day", "by", "place", "text")

    @property
    def text(self) -> str:
        """The reason in words."""
        return str(self)

    def __str__(self) -> str:
        """Return a text such as ``superseded by amendment.md, valid from 2026-03-01``."""
        if self.state == "superseded":
            return f"superseded by {self.place}, valid from {self.day}"
        return f"not valid before {self.day}" if self.state == "not yet valid" else f"not valid after {self.day}"


Odds = Literal["strong", "possible", "nearest"]

ODDS: Final[Mapping[Odds, float]] = {"strong": 0.84, "possible": 0.76, "nearest": 0.0}
"""The relevance from which a hit has these odds; docs/scores.md says how the ranges were chosen."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A document in a list of results, with its score and its provenance.

    Attributes:
        document: the document found.
        score: on the scale of its list; comparable only within one answer.
        dataset: the dataset it comes from.
        provenance: rank and score in every list and stage.
        excerpt: the part that compression kept.
        relevance: the probability that a person calls it relevant, 0 to 1; the same for every number of hits, company
            and strategy that searches both lists. None without a calibration for its scores; see
            `pointsman.retrieval.judge.relevance`.
        not_in_force: why the document does not hold today; None for one that does.
        file_name: what its caption calls its file among others that would look alike; see
            `pointsman.values.retrieval_context.with_places`.
        answer: where in the document's text the sentences begin and end that surely hold the answer, if it spans pages,
            as the citation names theirs; None otherwise.
    """

    document: Document
    score: float
    dataset: str | None = None
    provenance: tuple[Provenance, ...] = ()
    excerpt: Excerpt | None = None
    relevance: float | None = None
    not_in_force: NotInForce | None = None
    file_name: str | None = None
    answer: tuple[int, int] | None = None

    FORM: ClassVar = (
        *("rank", "id", "score", "relevance", "odds", "dataset", "title", "caption", "text", "citation", "metadata"),
        *("provenance", "excerpt", "not_in_force"),
    )

    @property
    def id(self) -> str:
        """The document's id."""
        return self.document.id

    @property
    def node(self) -> Document:
        """The document, under LlamaIndex's name for it: ``hit.node.node_id``."""
        return self.document

    @property
    def title(self) -> str:
        """The document's title, or an empty string."""
        return self.document.title

    @property
    def caption(self) -> str:
        """What a person calls the document; see `citations.caption_of`."""
        from pointsman.values.citations import caption_of

        return caption_of(self.document, self.file_name)

    @property
    def text(self) -> str:
        """The excerpt if there is one, otherwise the document's text."""
        return self.document.text if self.excerpt is None else self.excerpt.text

    @property
    def metadata(self) -> Metadata:
        """The document's metadata."""
        return self.document.metadata

    @property
    def key(self) -> HitKey:
        """Identifies this hit."""
        return self.dataset, self.document.id

    @property
    def odds(self) -> Odds | None:
        """The word for its relevance, by the ranges of `ODDS`; None without a relevance."""
        relevance = self.relevance
        return None if relevance is None else next(word for word, minimum in ODDS.items() if relevance >= minimum)

    @property
    def citation(self) -> Citation:
        """The location of the hit: its file, page or lines, and the characters; see `citations.cite`."""
        from pointsman.values.citations import cite

        return cite(self)

    def to_dict(self, rank: int | None = None) -> dict[str, Any]:
        """Return the hit as plain values; ``text`` is the excerpt if there is one, else the document's text."""
        excerpt = self.excerpt and {"spans": plain_form(self.excerpt.spans), "full_text": self.document.text}
        return form_of(self, rank=rank, score=float(self.score), citation=self.citation.where(), excerpt=excerpt)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Build a hit from the output of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the value is invalid.
        """
        excerpt = value["excerpt"]
        text = value["text"] if excerpt is None else excerpt["full_text"]
        excerpt_fields = excerpt and {"text": value["text"], "spans": excerpt["spans"]}
        document = Document(value["id"], text, value["metadata"])
        return of_form(
            cls, {**value, "document": document, "excerpt": excerpt_fields, "file_name": None, "answer": None}
        )


def keys_of(hits: Iterable[Hit]) -> list[HitKey]:
    """Return the keys of hits."""
    return [(hit.dataset, hit.document.id) for hit in hits]


def with_ranks(hits: Iterable[Hit]) -> list[dict[str, Any]]:
    """Return the forms of hits with their ranks."""
    return [hit.to_dict(rank) for rank, hit in enumerate(hits, 1)]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal: nothing found is relevant enough.

    Attributes:
        reason: the reason in words.
        nearest: the best hit that was withheld.
        score: the score of ``nearest`` on the scale of the threshold.
        threshold: the score that was required.
        scale: the scale of both numbers, such as ``"probability"``.
        near_misses: the hits that would have been returned, best first.
    """

    reason: str
    nearest: Hit | None = None
    score: float | None = None
    threshold: float | None = None
    scale: str | None = None
    near_misses: tuple[Hit, ...] = ()

    FORM: ClassVar = ("reason", "reasons", "nearest", "score", "threshold", "scale", "near_misses")

    def __str__(self) -> str:
        return self.reason

    @property
    def reasons(self) -> tuple[Statement, ...]:
        """The statements of the reason, with their codes."""
        return Reason(self.reason).statements

    def to_dict(self) -> dict[str, Any]:
        """Return the refusal as plain values, with the nearest hit."""
        return form_of(self, nearest=self.nearest and self.nearest.to_dict(1), near_misses=with_ranks(self.near_misses))

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Build a refusal from the output of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the value is invalid.
        """
        nearest = value["nearest"] and Hit.from_dict(value["nearest"])
        near_misses = tuple(map(Hit.from_dict, value["near_misses"]))
        reason = reason_of(value)
        return of_form(cls, {**value, "reason": reason, "nearest": nearest, "near_misses": near_misses})


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranking between two stages, with the report of the stage that made it.

    Attributes:
        hits: best first.
        scale: the scale of the scores: ``"bm25"``, ``"cosine"``, ``"calibrated"``, a fusion method's name, or
            ``"rerank:<model>"``. A threshold applies to one scale only.
        detail: the decision and its reason, in words.
        dropped: hits that the stage removed, with the reason.
        degraded: what did not work as asked, and what was done instead.
        refused: set if nothing relevant is left; ``hits`` is empty then.
        best: the highest relevance of any candidate of a dataset that had one of the first hits; None if unknown.
        needed: the minimum of ``best`` for an answer, as recommended by the calibration.
        condition: what the syntax of the question requires, if all hits hold it; empty otherwise.
    """

    hits: tuple[Hit, ...]
    scale: str
    detail: str = ""
    dropped: Mapping[HitKey, str] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    refused: Refusal | None = None
    best: float | None = None
    needed: float = 0.0
    condition: str = ""


class Decision(NamedTuple):
    """One decision about a search.

    Attributes:
        what: the subject, such as ``"strategy"``, ``"rerank"``, ``"refuse"``, ``"effort"``, ``"timeout"``;
            ``"hard_form"`` offers the syntax of a question that was not obeyed.
        value: the decision in a word.
        by: who decided: ``"request"``, ``"settings"``, ``"policy"``, ``"calibration"``,
            ``"workflow"`` or ``"default"``.
        reason: the reason in words.
    """

    what: str
    value: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions before a search: where, how, and why.

    Attributes:
        datasets: names of the datasets to search.
        strategy: the name of the strategy.
        reason: the reason for both, in words.
        weights: weights of the lists in the fusion, by list name; 1 for those not named.
        decisions: one for each option, with its origin.
        confidence: the confidence in the choice of strategy, 0 to 1; 1 if the caller named it, None if unknown.
    """

    datasets: tuple[str, ...]
    strategy: str
    reason: str
    weights: Mapping[str, float] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    confidence: float | None = None

    def in_language(self, language: str) -> Plan:
        """Return the plan with its reasons in a language; see `Reason.in_language`."""
        decisions = tuple(
            decision._replace(reason=in_language(decision.reason, language)) for decision in self.decisions
        )
        return replace(self, reason=in_language(self.reason, language), decisions=decisions)


@dataclass(frozen=True, slots=True)
class AddResult:
    """The result of an add, in numbers of documents; ``unchanged`` ones cost nothing.

    Of those embedded for it, ``truncations`` are longer than the embedder reads: their vectors hold only the beginning.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    truncations: int = 0

    def __add__(self, other: AddResult) -> AddResult:
        return AddResult(*map(add, astuple(self), astuple(other)))


def id_for(text: str) -> str:
    """Return an id for a document that has none; the same text always gets the same id.

    >>> id_for("a red signal")
    '9a6ca5212d2abc4b51fce0c06f2acf03'
    """
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


_OF_FRAMEWORKS: Final = ("node_id", "page_content", "meta")  # LlamaIndex, LangChain, Haystack; their objects iterate


def _document_of_framework(item: Any) -> Document:
    """Convert a node of LlamaIndex, or a document of LangChain or Haystack; see `Document.of`."""
    node = getattr(item, "node", item)  # LlamaIndex returns nodes with a score around them
    if callable(get_content := getattr(node, "get_content", None)) and isinstance(getattr(node, "node_id", None), str):
        id_, text, metadata = node.node_id, get_content(), node.metadata
    elif isinstance(text := getattr(item, "page_content", None), str):
        id_, metadata = getattr(item, "id", None), getattr(item, "metadata", None)
    elif isinstance(text := getattr(item, "content", None), str) and hasattr(item, "meta"):
        id_, metadata = getattr(item, "id", None), item.meta
    else:
        raise InputError(
            "a document is a Document, a mapping with id and text, a node of LlamaIndex, or a document with text of "
            f"LangChain or Haystack; not {type(item).__name__}"
        )
    return Document(str(id_) if id_ else id_for(text), text, dict(metadata or {}))


def check_changes(metadata: Mapping[str, Mapping[str, Any]]) -> list[Document]:
    """Checks changes of metadata by id and returns them as documents without a text.

    Raises:
        InputError: they are not mappings by id.
    """
    if not isinstance(metadata, Mapping):
        raise InputError(f"changes are a mapping of ids to metadata, not {metadata!r:.80}")
    return [Document(id_, "", values) for id_, values in metadata.items()]
