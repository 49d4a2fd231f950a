"""The models of the service for other programs: embeddings and models as OpenAI's, rerankers as Cohere's and Jina's."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from pointsman.ingest import estimate_tokens
from pointsman.retrieval.refine.rerank.calibrated import CalibratedReranker
from pointsman.retrieval.refine.rerank.chosen_reranker import reranker_for
from pointsman.retrieval.run.reading import USUAL_SIGMA
from pointsman.service.server import schemas
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.responses import Json
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.schemas import StrictRequest
from pointsman.service.server.state import Reader, Shared, check_text, in_thread, problem_responses
from pointsman.tools.vectors import encode_vector
from pointsman.values.types import Document

if TYPE_CHECKING:
    from pointsman.retrieval.refine.rerank.base_reranker import BaseReranker
    from pointsman.service.server.state import State
    from pointsman.values.protocols import Embedder

router = APIRouter(route_class=StrictRoute, tags=["protocols"])

_CALLS = problem_responses("not-found", "conflict", "too-large", "unsupported-media-type")
_QUERY: Final = "/query"
"""The end of a model's id that embeds queries: some models embed queries and documents differently."""

Texts = Annotated[list[str], Field(min_length=1, max_length=1000)]


class EmbeddingRequest(StrictRequest):
    """Texts to embed, in OpenAI's format."""

    input: Annotated[str, Field(min_length=1)] | Texts
    model: Annotated[str, Field(description="An id from `/v1/models`; the one that ends in `/query` embeds queries.")]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(description="Only the model's own.")] = None
    user: str | None = None
    drop_params: Annotated[
        bool | None, Field(description="Sent to proxies by RAGFlow; without effect: other unknown fields are errors.")
    ] = None


class RerankRequest(StrictRequest):
    """A query and documents to rank, in Cohere's format."""

    model: Annotated[str | None, Field(description="The id of the service's reranker, from `/v1/models`.")] = None
    query: Annotated[str, Field(min_length=1)]
    documents: Texts
    top_n: Annotated[int | None, Field(ge=1)] = None


class JinaDocument(StrictRequest):
    """A text."""

    text: str


class JinaRerankRequest(StrictRequest):
    """A query and documents to rank, in Jina's format."""

    model: Annotated[str | None, Field(description="The id of the service's reranker, from `/v1/models`.")] = None
    query: Annotated[str, Field(min_length=1)]
    documents: Annotated[list[str | JinaDocument], Field(min_length=1, max_length=1000)]
    top_n: Annotated[int | None, Field(ge=1)] = None
    return_documents: bool = True


class EmbeddingAnswer(schemas.Open):
    """Vectors in the order of the texts, in OpenAI's format."""

    object: str
    model: str
    data: list[dict[str, Any]]
    usage: dict[str, int]


class RankedAnswer(schemas.Open):
    """Positions of documents with their scores, best first."""

    results: list[dict[str, Any]]


class ModelPage(schemas.Open):
    """Models in OpenAI's format."""

    object: str
    data: list[dict[str, Any]]


@router.get("/v1/models", response_model=ModelPage, responses=_CALLS, operation_id="list_models")
async def list_models(state: Shared, access: Reader) -> Response:  # noqa: ARG001  (a valid key is required)
    """List the embedder, once for documents and once for queries, and the reranker."""
    names = await in_thread(_all_models, state)
    return Json({"object": "list", "data": list(map(_model, names))})


@router.get("/v1/models/{name:path}", response_model=schemas.Open, responses=_CALLS, operation_id="get_model")
async def get_model(state: Shared, access: Reader, name: str) -> Response:  # noqa: ARG001  (a valid key is required)
    """Get a model by its id."""
    names = await in_thread(_all_models, state)
    _check_model(name, names)
    return Json(_model(name))


@router.post("/v1/embeddings", response_model=EmbeddingAnswer, responses=_CALLS, operation_id="create_embeddings")
async def create_embeddings(state: Shared, access: Reader, body: EmbeddingRequest) -> Response:  # noqa: ARG001
    """Embed texts with the embedder of the workspace; vectors have length 1."""
    texts = [body.input] if isinstance(body.input, str) else body.input

    def embed() -> list[Any]:
        embedder = _embedder(state)
        _check_model(body.model, _models(embedder))
        if body.dimensions not in {None, embedder.dimensions}:
            detail = f"dimensions: {body.model} has {embedder.dimensions}, and no others"
            raise HttpProblem("invalid-input", detail, param="dimensions")
        return list(embedder.embed_queries(texts) if body.model.endswith(_QUERY) else embedder.embed_documents(texts))

    async with state.gate:
        rows = await in_thread(embed)
    vectors = [encode_vector(row) if body.encoding_format == "base64" else row.tolist() for row in rows]
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    tokens = sum(map(estimate_tokens, texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Json({"object": "list", "model": body.model, "data": data, "usage": usage})


@router.post("/v2/rerank", response_model=RankedAnswer, responses=_CALLS, operation_id="rerank")
async def rerank(state: Shared, access: Reader, body: RerankRequest) -> Response:  # noqa: ARG001
    """Rank documents for a query, with the service's reranker, in Cohere's format.

    `relevance_score` is from 0 to 1: a model's own number if it lies there, the probability of its logit, its grade of
    10; without a reranker, where the sum of words and cosine lies between the lowest and the highest possible.
    """
    _, ranking = await _rank(state, body.model, body.query, body.documents, body.top_n)
    results = [{"index": index, "relevance_score": score} for index, score in ranking]
    meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 0}}
    return Json({"id": str(uuid.uuid4()), "results": results, "meta": meta})


@router.post("/v1/rerank", response_model=RankedAnswer, responses=_CALLS, operation_id="rerank_v1")
async def rerank_v1(state: Shared, access: Reader, body: JinaRerankRequest) -> Response:  # noqa: ARG001
    """Rank documents for a query, with the service's reranker, in Jina's format; scores as in Cohere's."""
    texts = [document if isinstance(document, str) else document.text for document in body.documents]
    model, ranking = await _rank(state, body.model, body.query, texts, body.top_n)
    results = [
        {
            "index": index,
            "relevance_score": score,
            **({"document": {"text": texts[index]}} if body.return_documents else {}),
        }
        for index, score in ranking
    ]
    usage = {"total_tokens": sum(map(estimate_tokens, [body.query, *texts]))}
    return Json({"model": model, "object": "list", "usage": usage, "results": results})


async def _rank(
    state: State, model: str | None, query: str, texts: list[str], top_n: int | None
) -> tuple[str, list[tuple[int, float]]]:
    """Return the name of the reranker, and positions with scores, best first."""
    check_text(state, query)

    def rank() -> tuple[str, list[tuple[int, float]]]:
        reranker = _reranker(state)
        if model is not None:
            _check_model(model, [reranker.name])
        documents = [Document(str(number), text) for number, text in enumerate(texts)]
        ranking = reranker.rerank(query, documents, top_n or len(documents))
        scores = reranker.unit_scores(query, texts, [float(document.metadata["score"]) for document in ranking])
        return reranker.name, [(int(document.id), score) for document, score in zip(ranking, scores, strict=True)]

    async with state.gate:
        return await in_thread(rank)


def _embedder(state: State) -> Embedder:
    return state.workspace.embedder


def _reranker(state: State) -> BaseReranker:
    """Return the reranker of the settings; without one, the offline reranker over the workspace's embedder."""
    reranker = reranker_for(state.workspace.settings)
    if reranker is not None:
        return reranker
    embedder = _embedder(state)
    return CalibratedReranker(embedder, sigma=getattr(embedder, "cosine_spread", None) or USUAL_SIGMA)


def _all_models(state: State) -> list[str]:
    return [*_models(_embedder(state)), _reranker(state).name]


def _models(embedder: Embedder) -> list[str]:
    return [embedder.name, embedder.name + _QUERY]


def _check_model(name: str, names: list[str]) -> None:
    if name not in names:
        detail = f"there is no model {name!r:.80} here; use {' or '.join(names)}"
        raise HttpProblem("not-found", detail, kind="model", param="model")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _START, "owned_by": "pointsman"}


_START: Final = int(time.time())
