"""The shapes of requests and answers, from which the OpenAPI description is made.

Requests are strict: a number in quotes is not a number, and unknown names are errors rather than ignored.
Answers are described here; `pointsman.types` and `pointsman.wire` make them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

Text = Annotated[str, StringConstraints(min_length=1)]
NAME = r"^[\w\-]([\w.\-]{0,62}[\w\-])?$"
"""A dataset's name, as `pointsman.dataset.check_name` has it."""

Name = Annotated[str, StringConstraints(max_length=64, pattern=NAME)]
Object = dict[str, JsonValue]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Open(BaseModel):
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


class Message(_Request):
    """A turn of the conversation before the question."""

    role: Annotated[str, StringConstraints(min_length=1, max_length=32)]
    text: str


class SearchOptions(_Request):
    """Search options; all are optional."""

    k: Annotated[int, Field(ge=1, description="Maximum number of hits.")] = 5
    strategy: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="`auto`, a list (`bm25`, `vector` or `dense`, `hybrid`), a fusion method (`rrf`, "
            "`z_score` …) or a strategy (`hyde`, `query2doc`, `decomposition`, `multi_query`, `compression` …).",
        ),
    ] = "auto"
    use_rerank: Annotated[bool | None, Field(description="Whether to rerank; default: as configured.")] = None
    filters: Annotated[
        Object | str | None,
        Field(
            description='Metadata filter: `{"lang": "ru", "year": {"gte": 2020}}` or `year >= 2020 and lang = ru`; '
            'also `title contains "signal"` or `{"title": {"contains": "signal"}}`, `startswith`, `endswith`, each '
            "with a leading `i` to ignore case; null; paths such as `author.name`; `_id` and `_text` for the "
            "document's id and text."
        ),
    ] = None
    datasets: Annotated[
        list[Name] | None, Field(max_length=1000, description="Only these datasets; default: all that the key allows.")
    ] = None
    refuse: Annotated[bool | None, Field(description="False: also return hits of low relevance.")] = None
    min_relevance: Annotated[float | None, Field(ge=0, le=1, description="Leave out hits below this relevance.")] = None
    coverage: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Return the fewest hits that contain an answer with this probability, instead of `k`.",
        ),
    ] = None
    spelling: Annotated[bool, Field(description="False: search for the question exactly as written.")] = True
    effort: Annotated[Literal["fast", "balanced", "thorough"], Field(description="Applies to `auto`.")] = "balanced"
    timeout: Annotated[
        float | None, Field(ge=0.001, le=600, description="Time limit in seconds; the hits found by then are returned.")
    ] = None
    history: Annotated[list[Message], Field(max_length=100, description="Earlier turns of the conversation.")] = []
    trace: Annotated[
        Literal["none", "stages", "lists"],
        Field(description="Contents of `trace`: nothing, every stage, or every stage and list."),
    ] = "none"


class SearchRequest(SearchOptions):
    """A question and search options."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "什么是环保设备?", "k": 10, "filters": {"category": "环保", "year": 2023}},
                {"query": "how does a train change tracks?", "strategy": "hybrid", "filters": "year >= 2020"},
            ]
        }
    )

    query: Annotated[str, Field(description="The question or keywords.")]


class SearchManyRequest(SearchOptions):
    """Several questions with the same search options."""

    queries: Annotated[list[str], Field(min_length=1, description="The questions.")]


class ExplainRequest(SearchRequest):
    """A search, and the document whose rank to explain."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "how does a train change tracks?", "document_id": "switch"}]}
    )

    document_id: Annotated[Text, Field(description="The document's id.")]
    dataset: Annotated[Name | None, Field(description="Its dataset; needed if several have this id.")] = None


class RouteRequest(_Request):
    """A question to route, without searching."""

    query: str
    datasets: Annotated[list[Name] | None, Field(max_length=1000)] = None
    strategy: Annotated[str, Field(min_length=1, max_length=64, description="As in a search.")] = "auto"


class HitKey(_Request):
    """A hit, by dataset and id."""

    dataset: Name
    id: Text


class CheckRequest(_Request):
    """A language model's answer and its sources, in the order of their numbers in the prompt."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"answer": 'It "guides trains" [1].', "hits": [{"dataset": "notes", "id": "switch"}]}]
        }
    )

    answer: Annotated[str, Field(max_length=200_000, description="The text whose quotes and numbers are checked.")]
    hits: Annotated[list[HitKey], Field(max_length=1000)]


class Claim(Open):
    """A quote or number in the answer, and its place in the hits."""

    kind: Annotated[str, Field(description="`quote`, `number`, `date` or `name`.")]
    text: str
    start: int
    end: int
    status: Annotated[str, Field(description="`exact`, `near` or `unsupported`.")]
    hit: Annotated[int | None, Field(description="Number of the hit that contains it, from 1.")]
    span: Annotated[list[int] | None, Field(description="Its position in that document's text; null: in the title.")]
    similarity: float
    named: Annotated[list[int], Field(description="Numbers of the sources that the answer cites for it.")]
    misattributed: bool


class AnswerCheck(Open):
    """Which of an answer's quotes and numbers are in the hits."""

    supported: Annotated[bool, Field(description="Whether all quotes and numbers are in the hits.")]
    claims: list[Claim]


class Decision(Open):
    """One decision about the search."""

    what: str
    value: str
    by: Annotated[str, Field(description="`request`, `settings`, `policy`, `calibration`, `workflow` or `default`.")]
    reason: str


class Provenance(Open):
    """How one list, or one stage, ranked a hit."""

    source: str
    rank: int | None
    score: float | None
    normalised: float | None


class Excerpt(Open):
    """Positions of an excerpt's parts in the full text."""

    spans: list[list[int]]
    full_text: str


class Citation(Open):
    """The place of a hit in its source; offsets refer to the text from `GET /api/datasets/{name}/text`."""

    place: Annotated[str, Field(description="The place in words, such as `guide.md, lines 12-18`.")]
    source: Annotated[str, Field(description="The file, or the document's id if it is not from a file.")]
    hash: Annotated[str | None, Field(description="SHA-256 of the file's bytes when it was indexed.")]
    page: int | None
    lines: Annotated[list[int] | None, Field(description="First and last line, from 1.")]
    start: Annotated[int | None, Field(description="Offset of its first character in the text of the source.")]
    end: int | None


class Hit(Open):
    """A document found by a search; `text` is its excerpt, or the full text if there is none."""

    rank: int
    id: str
    score: float
    relevance: Annotated[
        float | None,
        Field(description="Probability that it is relevant; null: no calibration fits its scores."),
    ]
    dataset: str | None
    title: str
    text: str
    citation: Citation
    metadata: dict[str, Any]
    provenance: list[Provenance]
    excerpt: Excerpt | None


class Refusal(Open):
    """Why there are no hits: none is relevant enough."""

    reason: str
    nearest: Hit | None
    score: float | None
    threshold: float | None
    scale: str | None
    near_misses: Annotated[list[Hit], Field(description="The refused hits, best first.")]


class Performance(Open):
    """Duration of the search, and confidence in the choice of strategy."""

    latency_ms: float
    strategy_confidence: Annotated[float | None, Field(description="0 to 1; null: unknown.")]


class Span(Open):
    """A stage of the search; `started` is in milliseconds since the search began."""

    stage: str
    detail: str
    milliseconds: float
    count: int | None
    error: str | None
    started: float


class Trace(Open):
    """All stages, and all rankings if requested."""

    spans: list[Span]
    records: list[dict[str, Any]] | None = None


class Spelling(Open):
    """A question with probable spelling mistakes."""

    text: Annotated[str, Field(description="The corrected question; the answer is for this.")]
    instead: Annotated[str, Field(description="The question as written; `spelling: false` searches only for this.")]
    both: Annotated[bool, Field(description="Whether the question as written was searched too.")]


class Answer(Open):
    """Hits, best first, and details of the search."""

    results: list[Hit]
    confidence: Annotated[
        float | None,
        Field(description="Probability that one of the hits is relevant; null: not calibrated."),
    ]
    coverage: Annotated[
        float | None,
        Field(description="The requested `coverage`, if it can be guaranteed; otherwise `degraded` says why not."),
    ]
    spelling: Annotated[Spelling | None, Field(description="Set if words of the question were corrected.")]
    strategy_used: str
    reranking_applied: bool
    performance: Performance
    query: Annotated[str, Field(description="The question searched: `asked` with typos corrected and gaps filled in.")]
    asked: Annotated[str, Field(description="The original question.")]
    reason: Annotated[str, Field(description="Why these datasets and this strategy were chosen.")]
    datasets: list[str]
    weights: dict[str, float]
    decisions: Annotated[list[Decision], Field(description="Decisions about the search, and who made them.")]
    refused: Refusal | None
    degraded: Annotated[list[str], Field(description="Failures, and what was done instead.")]
    trace: Trace | None


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


class HeuristicRoute(Open):
    """The route suggested by the form of the query alone."""

    route: str
    reasons: list[str]


class StrategyChoice(Open):
    """The strategy that a search would use."""

    recommended: str
    reason: str
    confidence: Annotated[float | None, Field(description="0 to 1; null: unknown.")]
    decisions: list[Decision]


class Fallback(Open):
    """Why no choice was possible, and the policy used instead."""

    why: str
    policy: str


class DatasetChoice(Open):
    """The datasets whose content is relevant to the question."""

    chosen: list[str]
    reason: str
    confidence: float | None
    scores: dict[str, float]
    fallback: Fallback | None


class Route(Open):
    """Where and how a question would be searched, and why."""

    query: str
    router_select: HeuristicRoute
    strategy: StrategyChoice | None
    datasets: DatasetChoice | None


class Step(Open):
    """A document's rank in one list or after one stage."""

    stage: str
    source: str
    rank: int | None
    score: float | None
    count: int
    lowest: float | None
    reason: str | None


class Explanation(Open):
    """Why a document is, or is not, among the hits."""

    id: str
    dataset: str | None
    rank: int | None
    verdict: str
    steps: list[Step]
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


class DatasetRequest(_Request):
    """A dataset to create, or whose description to change."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "notes", "description": "Notes on railways"}]})

    name: Name
    description: Annotated[str | None, Field(max_length=10_000)] = None
    indexing_technique: Literal["hybrid", "keyword", "vector"] | None = None


class Dataset(Open):
    """A dataset and its state; it is up to date if both sequence numbers are equal.

    A write-only key gets null instead of stored data, and its own description and technique.
    """

    name: str
    description: str
    indexing_technique: str
    documents: int | None
    embedder: str | None
    vectors_due: Annotated[
        int | None, Field(description="Documents that have no vector yet; only keyword search finds them.")
    ]
    sequence: int | None
    keyword_index_sequence: int | None
    bytes: int | None
    problem: Annotated[str | None, Field(description="Why it cannot be opened; null: it can.")] = None


class Datasets(Open):
    """All datasets that the key allows."""

    datasets: list[Dataset]


class DocumentRequest(_Request):
    """A document to add."""

    id: Text
    text: str
    metadata: Object = {}


class DocumentsRequest(_Request):
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


class SourceText(Open):
    """The text that citations refer to, or a part of it."""

    source: str
    hash: str | None
    start: int
    end: int
    length: Annotated[int, Field(description="Length of the whole text; if `end` is less, more follows.")]
    text: str


class DocumentPage(Open):
    """A page of documents; `next` is the cursor of the next page."""

    documents: list[DocumentAnswer]
    next: str | None


class IdPage(Open):
    """A page of ids; `next` is the cursor of the next page."""

    ids: list[str]
    next: str | None


class Added(Open):
    """Numbers of documents added, updated and unchanged; null for a write-only key."""

    added: int | None
    updated: int | None
    unchanged: int | None


class Progress(Added):
    """Totals so far, all of them durable. The last line has `finished` or `problem`."""

    done: int
    finished: bool = False
    problem: ProblemDocument | None = None


class MetadataRequest(_Request):
    """Metadata to change; texts stay unchanged, and so do vectors unless a title changes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"metadata": {"switch": {"year": 2022, "draft": None}}}]})

    metadata: Annotated[
        dict[Text, Object],
        Field(min_length=1, max_length=100_000, description="New values by document id; null removes a key."),
    ]
    replace: Annotated[bool, Field(description="Whether to remove a document's other keys.")] = False


class DeleteRequest(_Request):
    """Documents to delete: by id, by filter, or by both (the given ids that match)."""

    ids: Annotated[list[Text] | None, Field(max_length=100_000, description="Unknown ids are ignored; null: any.")] = (
        None
    )
    filters: Annotated[Object | str | None, Field(description="As in a search; null: any.")] = None


class NearestRequest(_Request):
    """A vector to search with."""

    vector: Annotated[
        list[float],
        Field(min_length=1, max_length=16_384, description="From the dataset's embedder; need not be normalised."),
    ]
    k: Annotated[int, Field(ge=1, le=1000, description="Maximum number of hits.")] = 5
    filters: Annotated[Object | str | None, Field(description="As in a search; null: any.")] = None


class Nearest(Open):
    """Hits, best first; their scores are cosines."""

    hits: list[Hit]


class Count(Open):
    """The number of documents."""

    documents: int


class Deleted(Open):
    """The number of deleted documents; null for a write-only key."""

    deleted: int | None


class Dropped(Deleted):
    """A deleted dataset, and its number of documents."""

    dataset: str


class Verification(Open):
    """Whether documents and indexes agree; if they do, `problems` is empty."""

    documents: int
    in_keyword_index: int
    in_vector_index: int
    problems: list[str]


# ── the service ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Key(Open):
    """A key, without its text."""

    id: str
    name: str


class Me(Open):
    """Permissions of the key, and limits of the service."""

    key: Key | None
    datasets: list[str]
    scopes: list[str]
    version: str
    limits: dict[str, Any]


class Runs(Open):
    """Stored evaluations, newest first."""

    runs: list[dict[str, Any]]


class PolicyRequest(BaseModel):
    """A policy, as fitted by `pointsman tune`."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [{"name": "ours", "vector_weight": 1.5}]})


class PolicyAnswer(Open):
    """The policy fitted to this workspace; null: the measured one applies."""

    policy: dict[str, Any] | None


class Status(Open):
    """The status of the service."""

    status: str
