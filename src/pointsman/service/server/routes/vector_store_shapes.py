"""What requests to OpenAI's vector stores may say, and what answers hold."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import Field, JsonValue

from pointsman.ingest.chunk import HARD_LIMIT
from pointsman.service.server import schemas
from pointsman.service.server.schemas import NAME, StrictRequest

_LARGEST: Final = 50  # results of one search in OpenAI's API
MAX_AT_ONCE: Final = 100
"""Files that are attached by one request."""


class RankingOptions(StrictRequest):
    """Ranking options."""

    ranker: Annotated[str | None, Field(description="`none`: do not rerank; any other: as configured.")] = None
    score_threshold: Annotated[float | None, Field(allow_inf_nan=False)] = None


class StoreSearchRequest(StrictRequest):
    """A search in OpenAI's vector store API."""

    query: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1, max_length=16)]
    filters: Annotated[
        dict[str, JsonValue] | None,
        Field(description='`{"type": "eq", "key": …, "value": …}`, or `{"type": "and", "filters": […]}`.'),
    ] = None
    max_num_results: Annotated[int, Field(ge=1, le=_LARGEST)] = 10
    ranking_options: RankingOptions = RankingOptions()
    rewrite_query: Annotated[
        bool | None, Field(description="Whether each query is also searched in other words, made by rules.")
    ] = None


class ChunkingOptions(StrictRequest):
    """Sizes of passages, in estimated tokens."""

    max_chunk_size_tokens: Annotated[int, Field(ge=16, le=HARD_LIMIT)]
    chunk_overlap_tokens: Annotated[int, Field(ge=0, le=HARD_LIMIT // 2)]


class ChunkingStrategy(StrictRequest):
    """How to cut uploaded files: `auto`, or `static` with sizes."""

    type: Literal["auto", "static"]
    static: ChunkingOptions | None = None


Pairs = Annotated[dict[str, str], Field(max_length=16)]


Attributes = Annotated[dict[str, str | float | bool], Field(max_length=100)]


class NewStoreRequest(StrictRequest):
    """A dataset to create."""

    name: Annotated[str | None, Field(max_length=64, pattern=NAME, description="By default a new one.")] = None
    description: Annotated[str | None, Field(max_length=10_000)] = None
    metadata: Pairs | None = None
    file_ids: Annotated[list[str] | None, Field(max_length=MAX_AT_ONCE, description="Uploaded files to attach.")] = None
    chunking_strategy: ChunkingStrategy | None = None
    expires_after: Annotated[JsonValue, Field(description="Only null: vector stores do not expire.")] = None


class StoreChange(StrictRequest):
    """What to change of a vector store."""

    name: Annotated[str | None, Field(description="Only its own: the name is the id.")] = None
    metadata: Pairs | None = None
    expires_after: Annotated[JsonValue, Field(description="Only null: vector stores do not expire.")] = None


class FileChange(StrictRequest):
    """New attributes of a document, in place of all others."""

    attributes: Attributes | None


class StorePage(schemas.Open):
    """A list in OpenAI's format."""

    object: str
    data: list[dict[str, Any]]
    has_more: bool


class StoreObject(schemas.Open):
    """An object in OpenAI's format."""

    id: str
    object: str


FileStatus = Annotated[
    Literal["in_progress", "completed", "failed", "cancelled"] | None,
    Query(description="Documents are always `completed`."),
]
