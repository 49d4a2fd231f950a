"""A search as OpenTelemetry spans, collected by the real SDK in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pointsman import RetrievalWorkflow
from pointsman.retrieval.run import telemetry
from test_hybrid import Failing, FixedRetriever

trace = pytest.importorskip("opentelemetry.trace", reason="the package opentelemetry-sdk is not installed")
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402  (looked for above)
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402


@pytest.fixture(scope="module")
def collector() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):  # a process has one for good, and may run other tests between these
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


@pytest.fixture(autouse=True)
def empty(collector: InMemorySpanExporter) -> Iterator[None]:
    collector.clear()
    yield
    collector.clear()


def test_a_search_is_a_span_with_its_stages_inside(collector: InMemorySpanExporter) -> None:
    with trace.get_tracer("test").start_as_current_span("request") as request:
        context = RetrievalWorkflow().search("what is secret", [FixedRetriever(("a", 2.0), ("b", 1.0)), Failing()], 1)
    spans = {span.name: span for span in collector.get_finished_spans()}
    search_span = spans["retrieval fixed, failing"]
    assert search_span.attributes is not None
    assert search_span.parent is not None
    assert search_span.parent.span_id == request.get_span_context().span_id
    assert search_span.attributes["gen_ai.operation.name"] == "retrieval"
    assert search_span.attributes["gen_ai.data_source.id"] == "fixed, failing"
    assert search_span.attributes["gen_ai.request.top_k"] == 1
    documents = json.loads(str(search_span.attributes["gen_ai.retrieval.documents"]))
    assert documents == [{"id": "a", "score": context.hits[0].score}]
    assert search_span.attributes["pointsman.degraded"] == context.degraded
    assert "gen_ai.retrieval.query.text" not in search_span.attributes
    stages = [span for span in collector.get_finished_spans() if span.name.startswith("pointsman.")]
    assert [span.name for span in stages] == [f"pointsman.{span.stage}" for span in context.trace.spans]
    for span, stage in zip(stages, context.trace.spans, strict=True):
        assert span.parent is not None
        assert span.parent.span_id == search_span.context.span_id
        assert span.start_time is not None
        assert span.end_time is not None
        assert (span.end_time - span.start_time) / 1e6 == pytest.approx(stage.milliseconds, abs=0.01)
    failure = next(span for span in stages if span.status.status_code is trace.StatusCode.ERROR)
    assert failure.status.description == "LookupError: out of order"
    assert failure.attributes is not None
    assert failure.attributes["error.type"] == "LookupError"


def test_the_text_of_a_query_is_told_only_on_request(
    collector: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    RetrievalWorkflow().search("what is secret", [FixedRetriever(("a", 2.0))])
    search_span = next(span for span in collector.get_finished_spans() if span.name == "retrieval fixed")
    assert search_span.attributes is not None
    assert search_span.attributes["gen_ai.retrieval.query.text"] == "what is secret"


def test_scores_of_any_number_type(collector: InMemorySpanExporter) -> None:
    context = RetrievalWorkflow().search("q", [FixedRetriever(("a", 2.0))])
    score: Any = np.float32(0.5)  # as retrievers of other people give them
    odd = tuple(replace(hit, score=score) for hit in context.hits)
    collector.clear()
    telemetry.export(replace(context, hits=odd), 1)
    [search_span] = [span for span in collector.get_finished_spans() if span.name == "retrieval fixed"]
    assert search_span.attributes is not None
    assert json.loads(str(search_span.attributes["gen_ai.retrieval.documents"])) == [{"id": "a", "score": 0.5}]


def test_a_collector_that_fails_fails_no_search(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("no tracer today")

    monkeypatch.setattr(trace, "get_tracer", fail)
    for _ in range(3):
        assert RetrievalWorkflow().search("q", [FixedRetriever(("a", 2.0))]).hits
    [record] = [record for record in caplog.records if record.name == telemetry.__name__]
    assert record.levelname == "WARNING"
    assert "LookupError: no tracer today" in record.getMessage()


def test_without_the_package_nothing_is_told(collector: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_api", lambda: None)
    assert RetrievalWorkflow().search("q", [FixedRetriever(("a", 2.0))]).hits
    assert not collector.get_finished_spans()
