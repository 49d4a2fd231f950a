"""Exports a search as OpenTelemetry spans, if its API is installed and a collector is configured.

The attributes follow the semantic conventions for generative AI (development status) where these have them:
``gen_ai.operation.name``, ``gen_ai.data_source.id``, ``gen_ai.request.top_k`` and ``gen_ai.retrieval.documents``. The
query's text is content; it is exported only if ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` is true.
"""

from __future__ import annotations

import json
import logging
import os
from functools import cache
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from pointsman.tools.version import __version__

if TYPE_CHECKING:
    from pointsman.values.retrieval_context import RetrievalContext


log = logging.getLogger(__name__)

API: Final = "opentelemetry.trace"
"""The module that an application imports to collect spans; until it is imported, nobody does."""


def export(context: RetrievalContext, top_k: int) -> None:
    """Export a search that ends now; without `API` among the imported modules, it need not be called.

    An error of the export does not affect the answer; each kind of error is logged once, as a warning.
    """
    trace = _api()
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # nobody collects
        return
    try:
        _export(trace, context, top_k)
    except Exception as error:  # noqa: BLE001  (logged; providers and exporters are third-party code)
        _warn(f"{type(error).__name__}: {error}"[:200])


def _export(trace: Any, context: RetrievalContext, top_k: int) -> None:
    tracer = trace.get_tracer("pointsman", __version__)
    end_time = time_ns()
    start_time = end_time - int(context.trace.milliseconds * 1e6)
    plan = context.plan
    datasets = ", ".join(plan.datasets)
    root_span = tracer.start_span(
        f"retrieval {datasets}".rstrip(),
        kind=trace.SpanKind.CLIENT,
        attributes={
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": datasets,
            "gen_ai.request.top_k": top_k,
        },
        start_time=start_time,
    )
    if not root_span.is_recording():
        return
    attributes: dict[str, Any] = {
        "gen_ai.retrieval.documents": json.dumps(
            [{"id": hit.id, "score": float(hit.score)} for hit in context.hits], ensure_ascii=False
        ),
        "pointsman.strategy": plan.strategy,
        "pointsman.reason": plan.reason,
        "pointsman.refused": context.refused is not None,
        **({} if context.verdict is None else {"pointsman.verdict": context.verdict}),
        "pointsman.degraded": list(context.degraded),
    }
    if os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower() == "true":
        attributes["gen_ai.retrieval.query.text"] = context.query.text
    root_span.set_attributes(attributes)
    parent_context = trace.set_span_in_context(root_span)
    for span in context.trace.spans:
        start = start_time + int(span.started * 1e6)
        stage = tracer.start_span(
            f"pointsman.{span.stage}",
            context=parent_context,
            attributes={
                "pointsman.detail": span.detail,
                **({} if span.count is None else {"pointsman.count": span.count}),
                **({} if span.error is None else {"error.type": span.error.partition(":")[0]}),
            },
            start_time=start,
        )
        if span.error is not None:
            stage.set_status(trace.StatusCode.ERROR, span.error)
        stage.end(start + int(span.milliseconds * 1e6))
    root_span.end(end_time)


@cache
def _warn(problem: str) -> None:
    log.warning("a search could not be reported to OpenTelemetry (%s); searching continues", problem)


@cache
def _api() -> Any:
    """The API's module, or None if it is not installed."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


if "OTEL_PYTHON_TRACER_PROVIDER" in os.environ:  # the API itself makes a collector, once it is imported
    _api()
