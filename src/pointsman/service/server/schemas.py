"""The shapes of requests and answers, from which the OpenAPI description is made.

Requests are strict: a number in quotes is not a number, and unknown names are errors rather than ignored.
Answers that the library makes are described by their classes; see
`pointsman.service.server.protocol.json_form_schemas`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, create_model

from pointsman.retrieval.plan import routers as router
from pointsman.retrieval.request import OPTIONS
from pointsman.selector import route_counts
from pointsman.selector.heuristic_route import RouteChoice
from pointsman.service.server.protocol.json_form_schemas import DocumentedModel, Forms, option_fields
from pointsman.store import store_values
from pointsman.values import answer_check, reasons, retrieval_context, types
from pointsman.workspace import passages
from pointsman.workspace.workspace_search import Routing

Text = Annotated[str, StringConstraints(min_length=1)]
NAME = r"^[\w\-](( ?[\w.\-]){0,62} ?[\w\-])?$"
"""A dataset's name, as `pointsman.workspace.dataset.check_name` has it."""

Name = Annotated[str, StringConstraints(max_length=64, pattern=NAME)]
Object = dict[str, JsonValue]
Filters = Annotated[Object | str | None, Field(description=OPTIONS["filters"].help)]


class StrictRequest(DocumentedModel):
    """A request; unknown members are errors, and values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Open(DocumentedModel):
    """An answer; it may contain more fields than described."""

    model_config = ConfigDict(extra="allow")


class ProblemDocument(Open):
    """An error, as in RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None


# ── retrieval ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Message(StrictRequest):
    """A turn of the conversation before the question."""

    role: Annotated[str, StringConstraints(min_length=1, max_length=32)]
    text: str


_History = Annotated[list[Message], Field(max_length=100, description="Earlier turns of the conversation.")]
_Trace = Annotated[
    Literal["none", "stages", "lists"],
    Field(description="Contents of `trace`: nothing, every stage, or every stage and list."),
]
_Datasets = Annotated[
    list[Name] | None, Field(max_length=1000, description="Only these datasets; default: all that the key allows.")
]

_Timeout = Annotated[float | None, Field(gt=0, le=600, description=OPTIONS["timeout"].help)]

if TYPE_CHECKING:  # the options are declared in `pointsman.retrieval.request`

    class SearchOptions(StrictRequest):
        """What the type checker sees of the model below."""

        def __init__(self, **options: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    RetrievalRequest: TypeAlias = SearchOptions
else:
    _options = {
        **option_fields(OPTIONS, datasets=_Datasets, filters=Filters, timeout=_Timeout),
        "history": (_History, []),
        "trace": (_Trace, "none"),
    }
    SearchOptions = create_model(
        "SearchOptions", __base__=StrictRequest, __doc__="Search options; all are optional.", **_options
    )
    RetrievalRequest = create_model(
        "RetrievalRequest",
        __base__=StrictRequest,
        __doc__="A question and search options, with the names of the retrieval API.",
        query=Annotated[str, Field(description="The question or keywords.")],
        **{"use_rerank" if name == "rerank" else name: field for name, field in _options.items()},
    )


class SearchRequest(SearchOptions):
    """A question and search options.

    Attributes:
        query: The question or keywords.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "什么是环保设备?", "k": 10, "filters": {"category": "环保", "year": 2023}},
                {"query": "how does a train change tracks?", "strategy": "hybrid", "filters": "year >= 2020"},
            ]
        }
    )

    query: str


class SearchManyRequest(SearchOptions):
    """Several questions with the same search options.

    Attributes:
        queries: The questions.
    """

    queries: Annotated[list[str], Field(min_length=1)]


class ExplainRequest(SearchRequest):
    """A search, and the document whose rank to explain.

    Attributes:
        document_id: The document's id.
        dataset: Its dataset; needed if several have this id.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "how does a train change tracks?", "document_id": "switch"}]}
    )

    document_id: Text
    dataset: Name | None = None


class ReplayRequest(StrictRequest):
    """A receipt, whose answer to give again.

    Attributes:
        receipt: The `receipt` of an answer.
    """

    receipt: Annotated[str, Field(min_length=1, max_length=200_000)]
    trace: _Trace = "none"


class RouteRequest(StrictRequest):
    """A question to route, without searching.

    Attributes:
        strategy: As in a search.
    """

    query: str
    datasets: Annotated[list[Name] | None, Field(max_length=1000)] = None
    strategy: Annotated[str, Field(min_length=1, max_length=64)] = "auto"


class HitKey(StrictRequest):
    """A hit, by dataset and id."""

    dataset: Name
    id: Text


class CheckRequest(StrictRequest):
    """A language model's answer and its sources, in the order of their numbers in the prompt.

    Attributes:
        answer: The text whose quotes and numbers are checked.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"answer": 'It "guides trains" [1].', "hits": [{"dataset": "notes", "id": "switch"}]}]
        }
    )

    answer: Annotated[str, Field(max_length=200_000)]
    hits: Annotated[list[HitKey], Field(max_length=1000)]


class Excerpt(Open):
    """Positions of an excerpt's parts in the full text."""

    spans: list[list[int]]
    full_text: str


class HeuristicRoute(Open):
    """The route suggested by the form of the query alone."""

    route: str
    reasons: list[str]


_forms = Forms(Open)
_forms.put(types.Metadata, dict[str, Any])
_forms.put(types.Excerpt, Excerpt)
_forms.put(RouteChoice, HeuristicRoute)

if TYPE_CHECKING:  # the models of forms are made at run time
    RouteCount: TypeAlias = Open
    Statement: TypeAlias = Open
    Hit: TypeAlias = Open
    Answer: TypeAlias = Open
    Explanation: TypeAlias = Open
else:
    RouteCount = _forms.model(route_counts.RouteCount)
    Statement = _forms.model(reasons.Statement)
    Hit = _forms.model(types.Hit, rank=int)
    Trace = _forms.model(types.Trace, records=list[dict[str, Any]] | None)
    Answer = _forms.model(retrieval_context.RetrievalContext, "Answer", query=str, asked=str, trace=Trace | None)
    Explanation = _forms.model(types.Explanation)

RouteDecision = _forms.model(router.RouteDecision, datasets=list[str])
Route = _forms.model(Routing, "Route")
AnswerCheck = _forms.model(answer_check.AnswerCheck)
SourceText = _forms.model(passages.SourceText)
Verification = _forms.model(store_values.Verification)


class Answers(Open):
    """One answer per question, in order."""

    answers: list[Answer]


class Alternative(Open):
    """Another suitable strategy."""

    strategy: str
    confidence: float


class Recommendation(Open):
    """The strategy suggested by the form of a question."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "recommended_strategy": "hyde",
                    "confidence": 0.85,
                    "reason": "疑问句（问号结尾）：适合用HyDE，以假设答案检索",
                    "alternatives": [
                        {"strategy": "hybrid", "confidence": 0.75},
                        {"strategy": "multi_query", "confidence": 0.7},
                    ],
                }
            ]
        }
    )

    recommended_strategy: str
    confidence: float
    reason: str
    alternatives: list[Alternative]


class Performance(Open):
    """Duration of the search, and confidence in the choice of strategy.

    Attributes:
        strategy_confidence: 0 to 1; null: unknown.
    """

    latency_ms: float
    strategy_confidence: float | None


class RetrievalAnswer(Open):
    """Hits, best first, in the form of the retrieval API; all other members are those of an answer to a search."""

    results: list[Hit]
    strategy_used: str
    reranking_applied: bool
    performance: Performance


class ExplainedAnswer(Explanation):
    """Why a document is, or is not, among the hits of an answer."""

    answer: Answer


class Strategy(Open):
    """A strategy, and why it is unavailable here, if it is."""

    name: str
    about: str
    usable: bool
    why_not: str | None


class Strategies(Open):
    """All strategies."""

    strategies: list[Strategy]


# ── datasets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class DatasetRequest(StrictRequest):
    """A dataset to create, or whose description to change.

    Attributes:
        versions: Keep what is replaced or deleted for a time such as `90 days`, so that answers have receipts; `off`:
            keep nothing.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "notes", "description": "Notes on railways"}]})

    name: Name
    description: Annotated[str | None, Field(max_length=10_000)] = None
    indexing_technique: Literal["hybrid", "keyword", "vector"] | None = None
    versions: Annotated[str | None, Field(max_length=40)] = None


class VersionProblem(Open):
    """A `version_of` that names nothing.

    Attributes:
        path: The file that says it, or the id of the document.
    """

    path: str
    reason: str


class Memory(Open):
    """The memory of the process that answers, with all that it has open; null where its system does not tell.

    Attributes:
        resident: Bytes.
        files: Of these, pages of files: the system takes them back when others need the room.
    """

    resident: int | None
    files: int | None


class Dataset(Open):
    """A dataset and its state; it is up to date if both sequence numbers are equal.

    A write-only key gets null instead of stored data, and its own description and technique.

    Attributes:
        relevance: What the relevance of its hits comes from; `none: …`: why they have none.
        date_column: The metadata key that `before:` and `after:` mean, set or guessed; `none: …`: why none.
        date_column_reasons: The same by a code: `date_guessed`, `date_set`, `date_absent`, `date_several`, `date_none`.
        vectors_due: Documents that have no vector yet; only keyword search finds them.
        truncations: Documents that are longer than the embedder reads, so that only words find what comes after its
            limit; of more than 1,000, a lower bound; null: not known.
        routes: Questions that were routed among datasets with this one, since this process began.
        kept_days: For how many days it keeps what is replaced or deleted; 0: it does not.
        bytes_by_part: What the bytes are for: the documents, each index, columns, words, and all else.
        memory: Null for a key for some datasets only.
        version_problems: Documents that are versions of something that is not there; null: not said.
        problem: Why it cannot be opened; null: it can.
    """

    name: str
    description: str
    indexing_technique: str
    documents: int | None
    embedder: str | None
    relevance: str | None
    date_column: str | None = None
    date_column_reasons: list[Statement] | None = None
    vectors_due: int | None
    truncations: int | None
    routes: list[RouteCount] | None = None
    kept_days: int | None
    sequence: int | None
    keyword_index_sequence: int | None
    bytes: int | None
    bytes_by_part: dict[str, int] | None = None
    memory: Memory | None = None
    version_problems: list[VersionProblem] | None = None
    problem: str | None = None


class Datasets(Open):
    """All datasets that the key allows."""

    datasets: list[Dataset]


Vector = Annotated[
    Annotated[list[float], Field(min_length=1)] | str,
    Field(description="Numbers, or base64 of little-endian float32; from the dataset's embedder, of any length."),
]


class DocumentRequest(StrictRequest):
    """A document to add."""

    id: Text
    text: str
    metadata: Object = {}  # noqa: RUF012  (pydantic copies it)
    vector: Vector | None = None


class DocumentsRequest(StrictRequest):
    """Documents to add, or to update if the id exists."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"documents": [{"id": "switch", "text": "A switch guides trains.", "metadata": {"year": 2021}}]}
            ]
        }
    )

    documents: list[DocumentRequest]


class DocumentAnswer(Open):
    """A stored document."""

    id: str
    text: str
    metadata: dict[str, Any]


class DocumentPage(Open):
    """A page of documents; `next` is the cursor of the next page."""

    documents: list[DocumentAnswer]
    next: str | None


class IdPage(Open):
    """A page of ids; `next` is the cursor of the next page."""

    ids: list[str]
    next: str | None


class Added(Open):
    """Numbers of documents added, updated and unchanged; null for a write-only key.

    Attributes:
        truncations: Of those embedded, how many are longer than the embedder reads: only words find their end.
    """

    added: int | None
    updated: int | None
    unchanged: int | None
    truncations: int | None


class Progress(Added):
    """Totals so far, all of them durable. The last line has `finished` or `problem`."""

    done: int
    finished: bool = False
    problem: ProblemDocument | None = None


class MetadataRequest(StrictRequest):
    """Metadata to change; texts stay unchanged, and so do vectors unless a title changes.

    Attributes:
        metadata: New values by document id; null removes a key.
        replace: Whether to remove a document's other keys.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"metadata": {"switch": {"year": 2022, "draft": None}}}]})

    metadata: Annotated[dict[Text, Object], Field(min_length=1, max_length=100_000)]
    replace: bool = False


class DeleteRequest(StrictRequest):
    """Documents to delete: those that have one of the ids, match the filter and are in the folder, as far as given.

    Attributes:
        ids: Unknown ids are ignored; null: any.
        filters: As in a search; null: any.
        under: A folder, as sources name it, or where it was when it was indexed, as an absolute path.
    """

    ids: Annotated[list[Text] | None, Field(max_length=100_000)] = None
    filters: Object | str | None = None
    under: Annotated[str | None, Field(max_length=4096)] = None


class NearestRequest(StrictRequest):
    """A vector to search with.

    Attributes:
        k: Maximum number of hits.
        filters: As in a search; null: any.
    """

    vector: Vector
    k: Annotated[int, Field(ge=1, le=1000)] = 5
    filters: Object | str | None = None
    group_by: Annotated[str | None, Field(description=OPTIONS["group_by"].help, min_length=1, max_length=1000)] = None
    group_size: Annotated[int, Field(description=OPTIONS["group_size"].help, ge=1)] = 1


class Nearest(Open):
    """Hits, best first; their scores are cosines."""

    hits: list[Hit]


class VectorsRequest(StrictRequest):
    """Documents whose vectors to return."""

    ids: Annotated[list[Text], Field(max_length=1000)]


class Vectors(Open):
    """Vectors of length 1 in the order of the ids, base64 of little-endian float32; null: there is none."""

    embedder: str | None
    vectors: list[str | None]


class MetadataKeys(Open):
    """The keys of a dataset's metadata, in alphabetical order."""

    keys: list[str]


class Count(Open):
    """The number of documents."""

    documents: int


class Deleted(Open):
    """The number of deleted documents; null for a write-only key."""

    deleted: int | None


class Dropped(Deleted):
    """A deleted dataset, and its number of documents."""

    dataset: str
