"""Two endpoints under ``/api/retrieval`` for programs written for that API, in its names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from pointsman.service.server import schemas
from pointsman.service.server.protocol.responses import Json
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.routes.search_endpoints import answer_of
from pointsman.service.server.schemas import Name, RetrievalRequest, SearchOptions
from pointsman.service.server.search_requests import prepare
from pointsman.service.server.state import READS, WITH_BODY, Reader, Shared, check_text, in_thread

if TYPE_CHECKING:
    from pointsman.retrieval.plan.recommended_strategy import Recommendation

router = APIRouter(prefix="/api/retrieval", route_class=StrictRoute, tags=["retrieval"])


@router.post("/search", response_model=schemas.RetrievalAnswer, responses=WITH_BODY, operation_id="retrieval_search")
async def search(state: Shared, access: Reader, body: RetrievalRequest) -> Response:
    """Search as `POST /api/search` does, with the options and names of the retrieval API."""
    options = body.model_dump()
    query, rerank = options.pop("query"), options.pop("use_rerank")
    ready = SearchOptions(**options, rerank=rerank)
    async with state.gate:
        context = await in_thread(lambda: prepare(state, access, [query], ready).run())
    answer = answer_of(state, context, body.trace)
    results, strategy, was_reranked = (answer.pop(name) for name in ("hits", "strategy", "reranked"))
    milliseconds, confidence = (answer.pop(name) for name in ("milliseconds", "strategy_confidence"))
    names = {"results": results, "strategy_used": strategy, "reranking_applied": was_reranked}
    return Json({**names, "performance": {"latency_ms": milliseconds, "strategy_confidence": confidence}, **answer})


@router.get("/recommend_strategy", response_model=schemas.Recommendation, responses=READS)
async def recommend_strategy(
    state: Shared,
    access: Reader,
    query: Annotated[str, Query(description="The question.")],
    datasets: Annotated[
        list[Name] | None, Query(max_length=1000, description="Only these datasets; default: all that the key allows.")
    ] = None,
) -> Response:
    """Return what `auto` does with a question, and why, with the alternatives that suit its wording."""
    check_text(state, query)

    def recommendation() -> Recommendation:
        return state.workspace.engine.recommend(query, state.datasets(access, datasets))

    return Json((await in_thread(recommendation)).to_dict())
