"""Dify's external knowledge, on the same search: a dataset is a knowledge with the same name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field, JsonValue
from starlette.responses import Response

from pointsman.service.server import schemas
from pointsman.service.server.protocol.json_form_schemas import DocumentedModel
from pointsman.service.server.protocol.responses import Json
from pointsman.service.server.protocol.strict_routes import StrictRoute
from pointsman.service.server.search_requests import prepare
from pointsman.service.server.state import WITH_BODY, Reader, Shared, in_thread
from pointsman.tools.errors import FilterError
from pointsman.values.filters import And, Contains, EndsWith, Equals, Exists, Filter, In, Not, Or, Range, StartsWith
from pointsman.values.wire import notes_of, public_metadata, without_paths

if TYPE_CHECKING:
    from pointsman.service.server.access.request_access import Access
    from pointsman.service.server.state import State
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.types import Hit

log = logging.getLogger(__name__)

router = APIRouter(route_class=StrictRoute, tags=["protocols"])


def relevance(hit: Hit) -> float:
    """Return the score for both protocols: the probability that the hit is relevant, if known.

    Without calibration it is the hit's own score, which only orders hits.
    """
    return float(hit.score if hit.relevance is None else hit.relevance)


class _Foreign(DocumentedModel):
    """A request of a foreign client; unknown members are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


# ── Dify ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class RetrievalSetting(_Foreign):
    """Number and minimum score of records.

    Attributes:
        top_k: 5 if null.
        score_threshold: 0 or null: keep all.
    """

    top_k: Annotated[int | None, Field(ge=1)] = None
    score_threshold: Annotated[float | None, Field(allow_inf_nan=False)] = None


class MetadataRule(_Foreign):
    """One condition on the metadata.

    Attributes:
        name: A key, or several, one of which must match.
    """

    name: str | list[str]
    comparison_operator: str
    value: JsonValue = None


class MetadataCondition(_Foreign):
    """Conditions on the metadata.

    Attributes:
        logical_operator: `and` if null.
    """

    logical_operator: Literal["and", "or"] | None = None
    conditions: Annotated[list[MetadataRule] | None, Field(max_length=100)] = None


class KnowledgeRequest(_Foreign):
    """A question from Dify.

    Attributes:
        knowledge_id: The dataset's name.
    """

    knowledge_id: str
    query: Annotated[str, Field(min_length=1)]
    retrieval_setting: RetrievalSetting | None = None
    metadata_condition: MetadataCondition | None = None


class KnowledgeRecord(schemas.Open):
    """A passage."""

    content: str
    score: float
    title: str
    metadata: dict[str, Any]


class KnowledgeRecords(schemas.Open):
    """Passages, best first."""

    records: list[KnowledgeRecord]


@router.post("/retrieval", response_model=KnowledgeRecords, responses=WITH_BODY, operation_id="dify_retrieval")
async def retrieval(state: Shared, access: Reader, body: KnowledgeRequest) -> Response:
    """Search through Dify's external knowledge API; errors have its `error_code` and `error_msg`.

    Dify shows records and passes their texts to the model, and nothing else. So a refusal is a record: one that says
    that there is probably no answer, followed by the nearest passages.
    """
    setting = body.retrieval_setting or RetrievalSetting()
    filters = _of_dify(body.metadata_condition or MetadataCondition())
    (context,) = await search_dataset(state, access, body.knowledge_id, [body.query], setting.top_k or 5, filters)
    threshold = setting.score_threshold or 0.0
    if context.refused is not None:
        return Json({"records": _refusal_records(context, threshold)})
    records: list[dict[str, Any]] = [
        {
            "content": hit.text,
            "score": relevance(hit),
            "title": hit.caption,
            "metadata": {
                **public_metadata(hit.metadata),
                "document_id": hit.id,
                "verdict": context.verdict,
                **notes_of(hit),
            },
        }
        for hit in context.hits
        if threshold <= 0 or relevance(hit) >= threshold
    ]
    if records and context.heading is not None:
        records[0]["title"] = f"{context.heading} {records[0]['title']}"
    if records and context.degraded:
        records[0]["metadata"]["degraded"] = degraded_in(state, [context])
    return Json({"records": records})


def _refusal_records(context: RetrievalContext, minimum: float) -> list[dict[str, Any]]:
    """Return the record that says that an answer was refused; none if even the nearest passage is below the score."""
    refusal = context.refused
    if refusal is None or refusal.nearest is None or (minimum > 0 and relevance(refusal.nearest) < minimum):
        return []
    metadata = {"refused": refusal.reason, "document_ids": [hit.id for hit in refusal.near_misses]}
    record = {"content": context.to_prompt(), "score": relevance(refusal.nearest), "title": context.heading}
    return [{**record, "metadata": metadata}]


def _of_dify(condition: MetadataCondition) -> Filter | None:
    if not condition.conditions:
        return None
    operands = tuple(_rule(rule) for rule in condition.conditions)
    return Or(operands) if condition.logical_operator == "or" else And(operands)


def _rule(rule: MetadataRule) -> Filter:
    """Convert one condition of Dify.

    Raises:
        FilterError: the operator is not supported, or does not accept this value.
    """
    make = _OF_DIFY.get(rule.comparison_operator)
    if make is None:
        raise FilterError(
            f"comparison_operator {rule.comparison_operator!r:.80} is not supported; use one of {', '.join(_OF_DIFY)}"
        )
    names = [rule.name] if isinstance(rule.name, str) else rule.name
    filters = tuple(make(name, rule.value) for name in names)
    return filters[0] if len(filters) == 1 else Or(filters)


def _empty(key: str) -> Filter:
    return Or((Not(Exists(key)), Equals(key, "")))


def _number(value: Any) -> Any:
    """Convert a number, which Dify sends as text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError as error:
        raise FilterError(f"expected a number, not {value!r:.80}") from error


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """Convert a list, or a text with commas."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(","))
    if isinstance(value, list):
        return tuple(value)
    raise FilterError(f"expected a list, not {value!r:.80}")


_OF_DIFY: Final[dict[str, Callable[[str, Any], Filter]]] = {
    "contains": Contains,
    "not contains": lambda key, value: Not(Contains(key, value)),
    "start with": StartsWith,
    "end with": EndsWith,
    "is": Equals,
    "is not": lambda key, value: Not(Equals(key, value)),
    "in": lambda key, value: In(key, _as_tuple(value)),
    "not in": lambda key, value: Not(In(key, _as_tuple(value))),
    "empty": lambda key, _: _empty(key),
    "not empty": lambda key, _: Not(_empty(key)),
    "null": lambda key, _: Not(Exists(key)),
    "not null": lambda key, _: Exists(key),
    "=": lambda key, value: Equals(key, _number(value)),
    "≠": lambda key, value: Not(Equals(key, _number(value))),
    ">": lambda key, value: Range(key, gt=_number(value)),
    "<": lambda key, value: Range(key, lt=_number(value)),
    "≥": lambda key, value: Range(key, gte=_number(value)),
    "≤": lambda key, value: Range(key, lte=_number(value)),
    "before": lambda key, value: Range(key, lt=value),
    "after": lambda key, value: Range(key, gt=value),
}


def degraded_in(state: State, contexts: Sequence[RetrievalContext]) -> list[str]:
    """Return what did not work as asked in some searches, each once, without the service's folders."""
    reasons = dict.fromkeys(reason for context in contexts for reason in context.degraded)
    return [without_paths(reason, state.workspace.place) for reason in reasons]


async def search_dataset(
    state: State,
    access: Access,
    name: str,
    texts: list[str],
    k: int,
    condition: Filter | None,
    rerank: bool | None = None,
    strategy: str = "auto",
) -> list[RetrievalContext]:
    """Search a dataset, with the same results as by any other interface."""
    access.choose([name], state.workspace.names())
    filters = None if condition is None else str(condition)
    options = schemas.SearchOptions(k=k, datasets=[name], filters=filters, rerank=rerank, strategy=strategy)
    async with state.gate:
        contexts = await in_thread(lambda: prepare(state, access, texts, options).run_all())
    for context in contexts:
        state.metrics.record_search(context)
    return contexts
