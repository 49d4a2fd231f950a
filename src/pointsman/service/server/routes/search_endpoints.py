"""Search, and everything that explains how a search is or would be done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from pointsman.retrieval.receipts import Receipt
from pointsman.retrieval.run.journal import listening
from pointsman.service.server import schemas
from pointsman.service.server.protocol import problems
from pointsman.service.server.protocol.responses import Json, event
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.schemas import (
    CheckRequest,
    ExplainRequest,
    ReplayRequest,
    RouteRequest,
    SearchManyRequest,
    SearchRequest,
)
from pointsman.service.server.search_requests import describe, prepare
from pointsman.service.server.state import READS, WITH_BODY, Reader, Shared, check_text, in_thread, problem_responses
from pointsman.tools.audit_log import cite, current_entry
from pointsman.tools.json_forms import plain_form
from pointsman.values import wire
from pointsman.values.answer_check import verify
from pointsman.values.types import Hit, Plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pointsman.service.server.search_requests import Search
    from pointsman.service.server.state import State
    from pointsman.tools.audit_log import AuditEntry
    from pointsman.values.answer_check import AnswerCheck
    from pointsman.values.retrieval_context import RetrievalContext, TraceDetail
    from pointsman.values.types import Explanation, Span

router = APIRouter(prefix="/api", route_class=StrictRoute, tags=["search"])

_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["plan", "branch", "stage", "result", "problem"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}


@router.post("/search", response_model=schemas.Answer, responses=WITH_BODY)
async def search(state: Shared, access: Reader, body: SearchRequest) -> Response:
    """Search, and return the best hits of all datasets."""

    def run() -> RetrievalContext:
        return prepare(state, access, [body.query], body).run()

    async with state.gate:
        context = await in_thread(run)
    return Json(answer_of(state, context, body.trace))


@router.post("/search_many", response_model=schemas.Answers, responses=WITH_BODY)
async def search_many(state: Shared, access: Reader, body: SearchManyRequest) -> Response:
    """Search for several questions, embedded and reranked in shared batches; one answer each, in order."""
    if len(body.queries) > state.limits.max_batch:
        detail = f"{len(body.queries)} queries at once, the limit is {state.limits.max_batch}"
        raise problems.HttpProblem("invalid-input", detail)

    def run() -> list[RetrievalContext]:
        return prepare(state, access, body.queries, body).run_all()

    async with state.gate:
        contexts = await in_thread(run)
    return Json({"answers": [answer_of(state, context, body.trace) for context in contexts]})


@router.post(
    "/stream",
    response_model=None,
    responses={
        **WITH_BODY,
        200: {
            "description": "Events: `plan`, a `branch` as each branch ends, a `stage` for everything else, and finally "
            "`result` with the answer, or `problem` with the problem document.",
            "content": {"text/event-stream": {"schema": _EVENT}},
        },
    },
)
async def stream(state: Shared, access: Reader, body: SearchRequest) -> Response:
    """Search, and report progress as server-sent events."""
    ready = await in_thread(prepare, state, access, [body.query], body)  # errors here are sent with their own status
    return StreamingResponse(
        _events(state, ready, body.trace, current_entry()),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


_under_way: set[asyncio.Task[None]] = set()


async def _events(state: State, ready: Search, detail: TraceDetail, entry: AuditEntry | None) -> AsyncIterator[bytes]:
    """Yield the events of a search, which runs separately: a slow or disconnected client does not hold it up.

    The request is recorded (``entry``) once there is an answer, and before that is sent.
    """
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[bytes | None] = asyncio.Queue()  # a search has some dozen stages

    def tell(news: Plan | Span) -> None:
        if isinstance(news, Plan):
            message = event("plan", {"strategy": news.strategy, "datasets": news.datasets, "reason": news.reason})
        else:
            message = event("branch" if news.stage == "retrieve" else "stage", news.to_dict())
        loop.call_soon_threadsafe(events.put_nowait, message)

    def run() -> RetrievalContext:
        with state.workspace.audit_log.resume(entry), listening(tell):
            return ready.run()

    async def search() -> None:
        try:
            async with state.gate:
                context = await in_thread(run)
            events.put_nowait(event("result", answer_of(state, context, detail)))
        except Exception as error:  # noqa: BLE001  (the status has been sent: it becomes the last event, or is logged)
            events.put_nowait(event("problem", problems.of_error(error).document()))
        finally:
            events.put_nowait(None)

    task = asyncio.create_task(search())
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    while (item := await events.get()) is not None:
        yield item


@router.post("/route", response_model=schemas.Route, responses=WITH_BODY)
async def route(state: Shared, access: Reader, body: RouteRequest) -> Response:
    """Show where and how a question would be searched, and why: by its form, by strategy, by the datasets' content."""
    check_text(state, body.query)
    selection = await in_thread(state.datasets, access, body.datasets)
    async with state.gate:
        routing = await in_thread(state.workspace.route, body.query, selection, body.strategy)
    return Json(routing.to_dict())


@router.post("/explain", response_model=schemas.ExplainedAnswer, responses=WITH_BODY)
async def explain(state: Shared, access: Reader, body: ExplainRequest) -> Response:
    """Search, and say why a document is, or is not, among the hits: its rank in each list and after each stage."""

    def run() -> tuple[RetrievalContext, Explanation]:
        if body.dataset is not None:
            access.choose([body.dataset], state.workspace.names())
        context = prepare(state, access, [body.query], body).run()
        return context, context.explain(body.document_id, body.dataset)

    async with state.gate:
        context, explanation = await in_thread(run)
    return Json({**plain_form(explanation), "answer": answer_of(state, context, body.trace)})


@router.post("/replay", response_model=schemas.Answer, responses={**WITH_BODY, **problem_responses("gone")})
async def replay(state: Shared, access: Reader, body: ReplayRequest) -> Response:
    """Give the same answer again that a receipt is of, from what the datasets were then.

    Where access is on, only the operator can, with `pointsman replay`: the answer may show what its asker may no longer
    see.
    """

    def run() -> RetrievalContext:
        if state.workspace.access:
            detail = "access is on, and an old answer may show what is hidden now; the operator runs pointsman replay"
            raise problems.HttpProblem("forbidden", detail)
        if access.datasets is not None:
            access.choose([source.name for source in Receipt.read(body.receipt).sources], state.workspace.names())
        return state.workspace.replay(body.receipt)

    async with state.gate:
        context = await in_thread(run)
    return Json(answer_of(state, context, body.trace))


@router.post("/verify", response_model=schemas.AnswerCheck, responses=WITH_BODY, operation_id="verify_answer")
async def verifyanswer_of(state: Shared, access: Reader, body: CheckRequest) -> Response:
    """Look up every quote and number of a language model's answer in its sources, without a model."""

    def check() -> AnswerCheck:
        names = sorted({hit.dataset for hit in body.hits})
        datasets = dict(zip(names, state.datasets(access, names) if names else (), strict=True))
        hits = []
        for claim in body.hits:
            document = datasets[claim.dataset].get(claim.id)
            if document is None:
                detail = f"there is no document {claim.id!r:.80} in dataset {claim.dataset!r}"
                raise problems.HttpProblem("not-found", detail, kind="document")
            hits.append(Hit(document, 0.0, claim.dataset))
        result = verify(body.answer, hits, timeout=state.limits.search_seconds)
        cite(hits, result.hits)
        return result

    async with state.gate:
        return Json((await in_thread(check)).to_dict())


@router.get("/strategies", response_model=schemas.Strategies, responses=READS)
async def strategies(state: Shared, access: Reader) -> Response:
    """List the strategies, and why any of them is unavailable here."""
    return Json({"strategies": await in_thread(describe, state, access)})


def answer_of(state: State, context: RetrievalContext, trace: TraceDetail) -> dict[str, Any]:
    """Count an answer, and return it in the form to send."""
    state.metrics.record_search(context)
    return wire.answer_to_dict(context, state.workspace.place, trace=trace)
