"""The shapes of requests and answers, from which the OpenAPI description is made.

Requests are strict: a number in quotes is no number, and a name that nobody knows is an error rather than ignored.
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


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class ProblemDocument(_Answer):
    """What is wrong, as RFC 9457 has it."""

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
    """How to search; everything may be left out."""

    k: Annotated[int, Field(ge=1, description="How many hits.")] = 5
    strategy: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="`auto`, a list (`bm25`, `vector`, `hybrid`), a fusion method (`rrf`, `z_score` …) or a "
            "strategy (`hyde`, `query2doc`, `decomposition`, `multi_query`, `compression` …).",
        ),
    ] = "auto"
    use_rerank: Annotated[bool | None, Field(description="Whether to rerank; as configured unless given.")] = None
    filters: Annotated[
        Object | str | None,
        Field(description='Of the metadata: `{"lang": "ru", "year": {"gte": 2020}}`, or `year >= 2020 and lang = ru`.'),
    ] = None
    datasets: Annotated[
        list[Name] | None, Field(max_length=1000, description="Only these; all that the key is for unless given.")
    ] = None
    refuse: Annotated[bool | None, Field(description="False answers also with what is hardly relevant.")] = None
    min_relevance: Annotated[
        float | None, Field(ge=0, le=1, description="Hits whose relevance is below this are left out.")
    ] = None
    effort: Annotated[Literal["fast", "balanced", "thorough"], Field(description="Of `auto`.")] = "balanced"
    timeout: Annotated[
        float | None, Field(ge=0.001, le=600, description="Seconds after which to answer with what there is.")
    ] = None
    history: Annotated[list[Message], Field(max_length=100, description="What was said before.")] = []
    trace: Annotated[
        Literal["none", "stages", "lists"],
        Field(description="Whether the answer tells every stage, or every list too."),
    ] = "none"


class SearchRequest(SearchOptions):
    """A question, and how to search for it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "什么是环保设备?", "k": 10, "filters": {"category": "环保", "year": 2023}},
                {"query": "how does a train change tracks?", "strategy": "hybrid", "filters": "year >= 2020"},
            ]
        }
    )

    query: Annotated[str, Field(description="What is asked.")]


class SearchManyRequest(SearchOptions):
    """Several questions, searched for alike."""

    queries: Annotated[list[str], Field(min_length=1, description="What is asked.")]


class ExplainRequest(SearchRequest):
    """A document, and the search in which it is, or is not, among the hits."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "how does a train change tracks?", "document_id": "switch"}]}
    )

    document_id: Annotated[Text, Field(description="The document's id.")]
    dataset: Annotated[Name | None, Field(description="Its dataset, where the id occurs in several.")] = None


class RouteRequest(_Request):
    """A question, before anything is searched."""

    query: str
    datasets: Annotated[list[Name] | None, Field(max_length=1000)] = None
    strategy: Annotated[str, Field(min_length=1, max_length=64, description="As of a search.")] = "auto"


class Decision(_Answer):
    """One thing that was decided about the search."""

    what: str
    value: str
    by: Annotated[str, Field(description="`request`, `settings`, `policy`, `workflow` or `default`.")]
    reason: str


class Provenance(_Answer):
    """How one list, or one stage, ranked a hit."""

    source: str
    rank: int | None
    score: float | None
    normalised: float | None


class Excerpt(_Answer):
    """Where the parts of an excerpt stand in the whole text."""

    spans: list[list[int]]
    full_text: str


class Hit(_Answer):
    """A document that was found; `text` is what to read, the excerpt where there is one."""

    rank: int
    id: str
    score: float
    relevance: Annotated[
        float | None,
        Field(description="The probability that it is relevant; null: nothing is calibrated for its scores."),
    ]
    dataset: str | None
    title: str
    text: str
    metadata: dict[str, Any]
    provenance: list[Provenance]
    excerpt: Excerpt | None


class Refusal(_Answer):
    """Why nothing is answered: nothing that was found is relevant enough."""

    reason: str
    nearest: Hit | None
    score: float | None
    threshold: float | None
    scale: str | None
    near_misses: Annotated[list[Hit], Field(description="What would have been answered, best first.")]


class Performance(_Answer):
    """The time of the search, and how sure the choice of the strategy is."""

    latency_ms: float
    strategy_confidence: Annotated[float | None, Field(description="0 to 1; null: nobody knows.")]


class Span(_Answer):
    """A stage of the search; times in milliseconds since its beginning."""

    stage: str
    detail: str
    milliseconds: float
    count: int | None
    error: str | None
    started: float


class Trace(_Answer):
    """Every stage, and every ranking where that was asked for."""

    spans: list[Span]
    records: list[dict[str, Any]] | None = None


class Answer(_Answer):
    """Hits, best first, and how they came to be."""

    results: list[Hit]
    confidence: Annotated[
        float | None,
        Field(description="The probability that one of the hits is relevant; null: nothing is calibrated."),
    ]
    strategy_used: str
    reranking_applied: bool
    performance: Performance
    query: Annotated[str, Field(description="What was searched for: `asked`, with slips corrected and gaps filled in.")]
    asked: Annotated[str, Field(description="The question as it came.")]
    reason: Annotated[str, Field(description="Of the choice of datasets and strategy.")]
    datasets: list[str]
    weights: dict[str, float]
    decisions: Annotated[list[Decision], Field(description="What was decided about the search, and by whom.")]
    refused: Refusal | None
    degraded: Annotated[list[str], Field(description="What did not work as asked, and what was done instead.")]
    trace: Trace | None


class Answers(_Answer):
    """One answer for each question, in their order."""

    answers: list[Answer]


class Alternative(_Answer):
    """Another strategy that would do."""

    strategy: str
    confidence: float


class Recommendation(_Answer):
    """The strategy that a question asks for by how it looks."""

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


class HeuristicRoute(_Answer):
    """What the look of the query alone says."""

    route: str
    reasons: list[str]


class StrategyChoice(_Answer):
    """The strategy that a search would take."""

    recommended: str
    reason: str
    confidence: Annotated[float | None, Field(description="0 to 1; null: nobody knows.")]
    decisions: list[Decision]


class Fallback(_Answer):
    """Why the choice could not be made, and what was done instead."""

    why: str
    policy: str


class DatasetChoice(_Answer):
    """The datasets whose content bears on the question."""

    chosen: list[str]
    reason: str
    confidence: float | None
    scores: dict[str, float]
    fallback: Fallback | None


class Route(_Answer):
    """How and where a question would be looked for, and why."""

    query: str
    router_select: HeuristicRoute
    strategy: StrategyChoice | None
    datasets: DatasetChoice | None


class Step(_Answer):
    """Where a document stood after one list or stage."""

    stage: str
    source: str
    rank: int | None
    score: float | None
    count: int
    lowest: float | None
    reason: str | None


class Explanation(_Answer):
    """Why a document is, or is not, among the hits."""

    id: str
    dataset: str | None
    rank: int | None
    verdict: str
    steps: list[Step]
    answer: Answer


class Strategy(_Answer):
    """A strategy, and what it lacks here if it cannot be used."""

    name: str
    about: str
    usable: bool
    why_not: str | None


class Strategies(_Answer):
    """All strategies."""

    strategies: list[Strategy]


# ── datasets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class DatasetRequest(_Request):
    """A dataset to make, or to describe anew."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "notes", "description": "Notes on railways"}]})

    name: Name
    description: Annotated[str | None, Field(max_length=10_000)] = None
    indexing_technique: Literal["hybrid", "keyword", "vector"] | None = None


class Dataset(_Answer):
    """A dataset and its health: it is up to date where both sequence numbers are the same.

    A key that may only write gets nulls for what is stored.
    """

    name: str
    description: str
    indexing_technique: str
    documents: int | None
    embedder: str | None
    sequence: int | None
    keyword_index_sequence: int | None
    bytes: int | None
    problem: Annotated[str | None, Field(description="Why it cannot be opened, if it cannot.")] = None


class Datasets(_Answer):
    """All datasets that the key is for."""

    datasets: list[Dataset]


class DocumentRequest(_Request):
    """A document to add."""

    id: Text
    text: str
    metadata: Object = {}


class DocumentsRequest(_Request):
    """Documents to add; one whose id is there already is updated."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"documents": [{"id": "switch", "text": "A switch guides trains.", "metadata": {"year": 2021}}]}
            ]
        }
    )

    documents: list[DocumentRequest]


class DocumentAnswer(_Answer):
    """A document as it is kept."""

    id: str
    text: str
    metadata: dict[str, Any]


class DocumentPage(_Answer):
    """Some documents; `next` is the cursor of the next page."""

    documents: list[DocumentAnswer]
    next: str | None


class IdPage(_Answer):
    """Some ids; `next` is the cursor of the next page."""

    ids: list[str]
    next: str | None


class Added(_Answer):
    """What an add did, by number of documents; nulls for a key that may only write."""

    added: int | None
    updated: int | None
    unchanged: int | None


class Progress(Added):
    """Totals so far; all of it is durable. The last line has `finished`, or else `problem`."""

    done: int
    finished: bool = False
    problem: ProblemDocument | None = None


class DeleteRequest(_Request):
    """Documents to delete: those of these ids, those that match, or of these ids those that match."""

    ids: Annotated[
        list[Text] | None, Field(max_length=100_000, description="Unknown ids are passed over; null: any.")
    ] = None
    filters: Annotated[Object | str | None, Field(description="As of a search; null: any.")] = None


class Count(_Answer):
    """How many documents there are."""

    documents: int


class Deleted(_Answer):
    """How many documents there were."""

    deleted: int


class Dropped(Deleted):
    """A dataset that was deleted, and how many documents it had."""

    dataset: str


class Verification(_Answer):
    """Whether documents and indexes agree; they do where there are no problems."""

    documents: int
    in_keyword_index: int
    in_vector_index: int
    problems: list[str]


# ── the service ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Key(_Answer):
    """A key, not its text."""

    id: str
    name: str


class Me(_Answer):
    """What the key may do, and the limits."""

    key: Key | None
    datasets: list[str]
    scopes: list[str]
    version: str
    limits: dict[str, Any]


class Runs(_Answer):
    """Evaluations that were kept, newest first."""

    runs: list[dict[str, Any]]


class PolicyRequest(BaseModel):
    """A policy as `pointsman tune` fits it."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [{"name": "ours", "vector_weight": 1.5}]})


class PolicyAnswer(_Answer):
    """The policy that was fitted to this workspace; null: the measured one decides."""

    policy: dict[str, Any] | None


class Status(_Answer):
    """That it works."""

    status: str
