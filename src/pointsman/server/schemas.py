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
    """An answer that may hold more than is described."""

    model_config = ConfigDict(extra="allow")


class ProblemDocument(Open):
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
    use_rerank: Annotated[bool | None, Field(description="Whether to rerank; default: as configured.")] = None
    filters: Annotated[
        Object | str | None,
        Field(
            description='Of the metadata: `{"lang": "ru", "year": {"gte": 2020}}`, or `year >= 2020 and lang = ru`, '
            'also `title contains "signal"` or `{"title": {"contains": "signal"}}`, `startswith`, `endswith`, all with '
            "`i` in front to ignore the case, null, paths such as `author.name`, `_id` and `_text` for the id and the "
            "text."
        ),
    ] = None
    datasets: Annotated[
        list[Name] | None, Field(max_length=1000, description="Only these datasets; default: all that the key covers.")
    ] = None
    refuse: Annotated[bool | None, Field(description="False also returns hits of low relevance.")] = None
    min_relevance: Annotated[
        float | None, Field(ge=0, le=1, description="Hits whose relevance is below this are left out.")
    ] = None
    coverage: Annotated[
        float | None,
        Field(gt=0, lt=1, description="Instead of `k` hits, the fewest that hold an answer with this probability."),
    ] = None
    spelling: Annotated[bool, Field(description="False searches for the question as it is written.")] = True
    effort: Annotated[Literal["fast", "balanced", "thorough"], Field(description="Of `auto`.")] = "balanced"
    timeout: Annotated[
        float | None, Field(ge=0.001, le=600, description="Time limit in seconds; what was found by then is returned.")
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
    dataset: Annotated[Name | None, Field(description="Its dataset, if several have this id.")] = None


class RouteRequest(_Request):
    """A question, before anything is searched."""

    query: str
    datasets: Annotated[list[Name] | None, Field(max_length=1000)] = None
    strategy: Annotated[str, Field(min_length=1, max_length=64, description="As of a search.")] = "auto"


class HitKey(_Request):
    """A hit of an answer."""

    dataset: Name
    id: Text


class CheckRequest(_Request):
    """A language model's answer, and the hits that it was given, in the order in which they were numbered for it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"answer": 'It "guides trains" [1].', "hits": [{"dataset": "notes", "id": "switch"}]}]
        }
    )

    answer: Annotated[str, Field(max_length=200_000, description="Its quotes and numbers are looked up.")]
    hits: Annotated[list[HitKey], Field(max_length=1000)]


class Claim(Open):
    """A quote or number of the answer, and where it stands in the hits."""

    kind: Annotated[str, Field(description="`quote`, `number`, `date` or `name`.")]
    text: str
    start: int
    end: int
    status: Annotated[str, Field(description="`exact`, `near` or `unsupported`.")]
    hit: Annotated[int | None, Field(description="The number of the hit that it stands in, from 1.")]
    span: Annotated[list[int] | None, Field(description="Where, in that document's text; null: in its title.")]
    similarity: float
    named: Annotated[list[int], Field(description="The numbers of the sources that the answer names beside it.")]
    misattributed: bool


class AnswerCheck(Open):
    """What of an answer's quotes and numbers stands in the hits."""

    supported: Annotated[bool, Field(description="Whether each of them does.")]
    claims: list[Claim]


class Decision(Open):
    """One thing that was decided about the search."""

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
    """Where the parts of an excerpt stand in the whole text."""

    spans: list[list[int]]
    full_text: str


class Citation(Open):
    """Where a hit stands; its offsets count in the text that `GET /api/datasets/{name}/text` gives."""

    place: Annotated[str, Field(description="In words, such as `guide.md, lines 12-18`.")]
    source: Annotated[str, Field(description="The file, or the document's id where it is from no file.")]
    hash: Annotated[str | None, Field(description="SHA-256 of the file's bytes when it was indexed.")]
    page: int | None
    lines: Annotated[list[int] | None, Field(description="The first and the last one, from 1.")]
    start: Annotated[int | None, Field(description="Of its characters in the text of the source.")]
    end: int | None


class Hit(Open):
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
    citation: Citation
    metadata: dict[str, Any]
    provenance: list[Provenance]
    excerpt: Excerpt | None


class Refusal(Open):
    """Why nothing is answered: nothing that was found is relevant enough."""

    reason: str
    nearest: Hit | None
    score: float | None
    threshold: float | None
    scale: str | None
    near_misses: Annotated[list[Hit], Field(description="The hits that were refused, best first.")]


class Performance(Open):
    """The time of the search, and how sure the choice of the strategy is."""

    latency_ms: float
    strategy_confidence: Annotated[float | None, Field(description="0 to 1; null: nobody knows.")]


class Span(Open):
    """A stage of the search; times in milliseconds since its beginning."""

    stage: str
    detail: str
    milliseconds: float
    count: int | None
    error: str | None
    started: float


class Trace(Open):
    """Every stage, and every ranking where that was asked for."""

    spans: list[Span]
    records: list[dict[str, Any]] | None = None


class Spelling(Open):
    """A question that was probably misspelt."""

    text: Annotated[str, Field(description="As it was probably meant; the answer is for this.")]
    instead: Annotated[str, Field(description="As it was written; `spelling: false` searches for just that.")]
    both: Annotated[bool, Field(description="The question as it was written was searched as well.")]


class Answer(Open):
    """Hits, best first, and how they were found."""

    results: list[Hit]
    confidence: Annotated[
        float | None,
        Field(description="The probability that one of the hits is relevant; null: nothing is calibrated."),
    ]
    coverage: Annotated[
        float | None,
        Field(description="The `coverage` asked for, where it can be promised; `degraded` says why it cannot."),
    ]
    spelling: Annotated[Spelling | None, Field(description="Set where words of the question were corrected.")]
    strategy_used: str
    reranking_applied: bool
    performance: Performance
    query: Annotated[str, Field(description="What was searched for: `asked`, with slips corrected and gaps filled in.")]
    asked: Annotated[str, Field(description="The original question.")]
    reason: Annotated[str, Field(description="Why these datasets and this strategy were chosen.")]
    datasets: list[str]
    weights: dict[str, float]
    decisions: Annotated[list[Decision], Field(description="What was decided about the search, and by whom.")]
    refused: Refusal | None
    degraded: Annotated[list[str], Field(description="What failed, and what was done instead.")]
    trace: Trace | None


class Answers(Open):
    """One answer for each question, in their order."""

    answers: list[Answer]


class Alternative(Open):
    """Another strategy that would do."""

    strategy: str
    confidence: float


class Recommendation(Open):
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


class HeuristicRoute(Open):
    """What the look of the query alone says."""

    route: str
    reasons: list[str]


class StrategyChoice(Open):
    """The strategy that a search would take."""

    recommended: str
    reason: str
    confidence: Annotated[float | None, Field(description="0 to 1; null: nobody knows.")]
    decisions: list[Decision]


class Fallback(Open):
    """Why the choice could not be made, and what was done instead."""

    why: str
    policy: str


class DatasetChoice(Open):
    """The datasets whose content bears on the question."""

    chosen: list[str]
    reason: str
    confidence: float | None
    scores: dict[str, float]
    fallback: Fallback | None


class Route(Open):
    """How and where a question would be looked for, and why."""

    query: str
    router_select: HeuristicRoute
    strategy: StrategyChoice | None
    datasets: DatasetChoice | None


class Step(Open):
    """Where a document stood after one list or stage."""

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
    """A strategy, and what it lacks here if it cannot be used."""

    name: str
    about: str
    usable: bool
    why_not: str | None


class Strategies(Open):
    """All strategies."""

    strategies: list[Strategy]


# ── datasets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class DatasetRequest(_Request):
    """A dataset to make, or to describe anew."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "notes", "description": "Notes on railways"}]})

    name: Name
    description: Annotated[str | None, Field(max_length=10_000)] = None
    indexing_technique: Literal["hybrid", "keyword", "vector"] | None = None


class Dataset(Open):
    """A dataset and its health: it is up to date where both sequence numbers are the same.

    A key that may only write gets nulls for what is stored.
    """

    name: str
    description: str
    indexing_technique: str
    documents: int | None
    embedder: str | None
    vectors_due: Annotated[
        int | None, Field(description="Documents whose vector is still to come; words alone find those.")
    ]
    sequence: int | None
    keyword_index_sequence: int | None
    bytes: int | None
    problem: Annotated[str | None, Field(description="Why it cannot be opened, if it cannot.")] = None


class Datasets(Open):
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


class DocumentAnswer(Open):
    """A document as it is kept."""

    id: str
    text: str
    metadata: dict[str, Any]


class SourceText(Open):
    """A text that citations point into, or a part of it."""

    source: str
    hash: str | None
    start: int
    end: int
    length: Annotated[int, Field(description="Of the whole; there is more where `end` is less.")]
    text: str


class DocumentPage(Open):
    """Some documents; `next` is the cursor of the next page."""

    documents: list[DocumentAnswer]
    next: str | None


class IdPage(Open):
    """Some ids; `next` is the cursor of the next page."""

    ids: list[str]
    next: str | None


class Added(Open):
    """What an add did, by number of documents; nulls for a key that may only write."""

    added: int | None
    updated: int | None
    unchanged: int | None


class Progress(Added):
    """Totals so far; all of it is durable. The last line has `finished`, or else `problem`."""

    done: int
    finished: bool = False
    problem: ProblemDocument | None = None


class MetadataRequest(_Request):
    """Metadata of documents to change; texts stay, and so do vectors, but for those of documents with a new title."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"metadata": {"switch": {"year": 2022, "draft": None}}}]})

    metadata: Annotated[
        dict[Text, Object],
        Field(min_length=1, max_length=100_000, description="By id, what to set; null takes a key away."),
    ]
    replace: Annotated[bool, Field(description="Whether what else a document has goes.")] = False


class DeleteRequest(_Request):
    """Documents to delete: those of these ids, those that match, or of these ids those that match."""

    ids: Annotated[list[Text] | None, Field(max_length=100_000, description="Unknown ids are ignored; null: any.")] = (
        None
    )
    filters: Annotated[Object | str | None, Field(description="As of a search; null: any.")] = None


class NearestRequest(_Request):
    """A vector to be near to."""

    vector: Annotated[
        list[float], Field(min_length=1, max_length=16_384, description="By the dataset's embedder; of any length.")
    ]
    k: Annotated[int, Field(ge=1, le=1000, description="How many hits.")] = 5
    filters: Annotated[Object | str | None, Field(description="As of a search; null: any.")] = None


class Nearest(Open):
    """Hits whose scores are cosines, best first."""

    hits: list[Hit]


class Count(Open):
    """How many documents there are."""

    documents: int


class Deleted(Open):
    """How many documents there were."""

    deleted: int


class Dropped(Deleted):
    """A dataset that was deleted, and how many documents it had."""

    dataset: str


class Verification(Open):
    """Whether documents and indexes agree; they do where there are no problems."""

    documents: int
    in_keyword_index: int
    in_vector_index: int
    problems: list[str]


# ── the service ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Key(Open):
    """A key, not its text."""

    id: str
    name: str


class Me(Open):
    """What the key may do, and the limits."""

    key: Key | None
    datasets: list[str]
    scopes: list[str]
    version: str
    limits: dict[str, Any]


class Runs(Open):
    """Evaluations that were kept, newest first."""

    runs: list[dict[str, Any]]


class PolicyRequest(BaseModel):
    """A policy as `pointsman tune` fits it."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [{"name": "ours", "vector_weight": 1.5}]})


class PolicyAnswer(Open):
    """The policy that was fitted to this workspace; null: the measured one decides."""

    policy: dict[str, Any] | None


class Status(Open):
    """That it works."""

    status: str
