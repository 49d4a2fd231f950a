"""Prometheus metrics of the service, and the outermost layer of the app, which counts and logs requests.

Labels have few values: methods, route templates, statuses, strategies, stages. They never contain names of datasets,
queries or requested paths. With several workers, each process counts separately and a scrape is answered by one of
them; the label ``worker``, with the process number, separates their series. So each counter only grows, and
``sum without (worker)`` over the last known values is the total.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect

from pointsman.service.server.request_log import request_id as current_request
from pointsman.tools.errors import MissingDependencyError
from pointsman.tools.version import __version__

try:
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        Counter,
        Gauge,
        GCCollector,
        Histogram,
        ProcessCollector,
        generate_latest,
    )
    from prometheus_client.metrics_core import CounterMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingDependencyError("prometheus-client", "server", "the HTTP service") from error

if TYPE_CHECKING:
    from prometheus_client import Metric
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pointsman.retrieval.refine.budget import Spending
    from pointsman.selector.route_counts import RouteCounts
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.types import AddResult

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER_METHOD: Final = "other"
_NO_ROUTE: Final = "unmatched"
_CONSOLE: Final = "/console"  # its files count as one route
_MOST_VALUES: Final = 64  # of a label whose values come from foreign code
_QUIET: Final = frozenset({"/health", "/ready", "/metrics"})  # polled every few seconds by machines
_GIVEN_ID: Final = re.compile(rb"[A-Za-z0-9._\-]{1,64}")
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_STAGE_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30)
_HITS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 1000)
_CLOSED_BY_CLIENT: Final = 499  # nginx's status for a client that closed the connection
_INTERNAL_ERROR: Final = (
    b'{"type":"/problems/internal","title":"Internal error","status":500,'
    b'"detail":"the log has it under this request id","instance":"%s"}'
)


class Metrics:
    """All metrics of one app, in a separate registry.

    Args:
        route_counts: the workspace's counts of routes.
        worker: whether every series has the number of this process; for several workers behind one port.
    """

    def __init__(self, route_counts: RouteCounts, *, worker: bool = False) -> None:
        self._worker = str(os.getpid()) if worker else None
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._requests = counter("pointsman_requests", "HTTP requests answered.", ["method", "route", "status"])
        self._seconds = histogram(
            "pointsman_request_seconds", "Time from a request to the end of its answer.", ["route"], buckets=_SECONDS
        )
        self.in_flight = gauge("pointsman_requests_in_flight", "HTTP requests being answered.")
        self.queue_length = gauge("pointsman_requests_queued", "HTTP requests waiting in the queue.")
        self._rejections = counter("pointsman_requests_rejected", "HTTP requests rejected with 429.")
        self._searches = counter("pointsman_searches", "Searches by the strategy that was used.", ["strategy"])
        registry.register(_RouteSeries(route_counts))
        self._refused = counter("pointsman_searches_refused", "Searches without relevant results.")
        self._unsure = counter("pointsman_searches_unsure", "Searches whose first hit is not surely an answer.")
        self._degraded = counter("pointsman_searches_degraded", "Searches in which a part failed or was skipped.")
        self._stages = histogram(
            "pointsman_stage_seconds",
            "Time of each stage of a search; branches overlap.",
            ["stage"],
            buckets=_STAGE_SECONDS,
        )
        self._hits = histogram("pointsman_search_hits", "Hits of a search.", buckets=_HITS)
        self._llm_calls = counter("pointsman_llm_calls", "Calls of language models by searches.")
        self._llm_tokens = counter("pointsman_llm_tokens", "Tokens of their prompts and answers.")
        self._compressed = counter("pointsman_compressed_characters", "Characters of compressed hits.", ["text"])
        self._writes = counter("pointsman_documents_written", "Documents written, by outcome.", ["outcome"])
        self._deleted = counter("pointsman_documents_deleted", "Documents deleted.")
        gauge("pointsman_build", "1, with the version.", ["version"]).labels(__version__).set(1)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._by_strategy: dict[str, Counter] = {}
        self._by_stage: dict[str, Histogram] = {}

    def record_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            method: the HTTP method; unusual ones are counted together.
            route: the route's template, such as ``/api/datasets/{name}``.
            status: the HTTP status.
            seconds: from the request to the end of the answer.
        """
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if status == 429:
            self._rejections.inc()

    def record_search(self, context: RetrievalContext) -> None:
        """Count a search: its strategy, stages and outcome."""
        _child(self._by_strategy, self._searches, context.plan.strategy).inc()
        if context.refused is not None:
            self._refused.inc()
        elif context.verdict == "unsure":
            self._unsure.inc()
        if context.degraded:
            self._degraded.inc()
        self._hits.observe(len(context.hits))
        for span in context.trace.spans:
            _child(self._by_stage, self._stages, span.stage).observe(span.milliseconds / 1000)
        if any(span.stage == "compress" for span in context.trace.spans):
            self._compressed.labels("document").inc(sum(len(hit.document.text) for hit in context.hits))
            self._compressed.labels("excerpt").inc(sum(len(hit.text) for hit in context.hits))

    def record_models(self, accounts: Sequence[Spending]) -> None:
        """Count the calls and tokens of language models that searches made."""
        self._llm_calls.inc(sum(account.calls for account in accounts))
        self._llm_tokens.inc(sum(account.tokens for account in accounts))

    def record_write(self, result: AddResult) -> None:
        """Count written documents."""
        for outcome in ("added", "updated", "unchanged"):
            self._writes.labels(outcome).inc(getattr(result, outcome))

    def deleted(self, count: int) -> None:
        """Count deleted documents."""
        self._deleted.inc(count)

    def render(self) -> tuple[bytes, str]:
        """Return all metrics in Prometheus' text format, and its content type."""
        source: Any = self  # has what is needed of a registry
        return generate_latest(source), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """Yield all series, without creation times, which would double their number."""
        worker_label = {} if self._worker is None else {"worker": self._worker}
        for metric in self.registry.collect():
            metric.samples = [
                sample._replace(labels={**sample.labels, **worker_label})
                for sample in metric.samples
                if not sample.name.endswith("_created")
            ]
            yield metric


class _RouteSeries(Collector):
    """The counts of routes as a series."""

    def __init__(self, route_counts: RouteCounts) -> None:
        self._route_counts = route_counts

    def collect(self) -> Iterator[Metric]:
        """Yield the counts as they are now."""
        series = CounterMetricFamily(
            "pointsman_routes", "Routes by the form of a question.", labels=("route", "reason")
        )
        for row in self._route_counts.rows():
            series.add_metric((row["route"], row["reason"]), row["queries"])
        yield series


def _child(series: dict[str, Any], metric: Any, value: str) -> Any:
    """Return the series of a label's value; beyond the maximum number of values, the rest share one."""
    child = series.get(value)
    if child is None:
        if len(series) >= _MOST_VALUES:
            value = _OTHER_METHOD
        child = series[value] = metric.labels(value)
    return child


class Measuring:
    """The outermost layer of an ASGI app: gives each request an id, counts it, logs it, and catches unhandled errors.

    The id is the request's ``X-Request-Id`` if it is usable, else a new one; it is stored in ``scope["state"]`` as
    ``request_id``, in the log's context, and in the response. A log line has method, route, status, milliseconds, bytes
    sent and the id of the key (``scope["state"]["key_id"]``), never the request's content.

    Args:
        app: answers the requests.
        metrics: counts them.
        log: logs them; None disables logging.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log: logging.Logger | None = None) -> None:
        self._app, self._metrics, self._log = app, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the inner app; anything other than HTTP is passed through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = perf_counter()
        request = _MeasuredRequest(_request_id(scope), send)
        scope.setdefault("state", {})["request_id"] = request.id
        token = current_request.set(request.id)
        self._metrics.in_flight.inc()
        status = _CLOSED_BY_CLIENT  # unless it is answered
        try:
            await self._app(scope, receive, request.send)
            status = request.status or status
        except ClientDisconnect:
            pass  # not an error of the service
        except Exception:
            status = 500
            log = self._log or logging.getLogger(__name__)
            log.exception("a request has failed", extra={"fields": {"request_id": request.id}})
            if not await request.fail():
                raise  # half of an answer has been sent: the server has to cut the connection
        finally:
            self._metrics.in_flight.dec()
            seconds = perf_counter() - start
            method = scope["method"] if scope["method"] in _METHODS else _OTHER_METHOD
            route = _route(scope)
            self._metrics.record_answer(method, route, status, seconds)
            if self._log is not None:
                self._note(scope, request, method, route, status, seconds)
            current_request.reset(token)

    def _note(
        self, scope: Scope, request: _MeasuredRequest, method: str, route: str, status: int, seconds: float
    ) -> None:
        log = self._log
        level = logging.WARNING if status >= 500 else logging.DEBUG if route in _QUIET else logging.INFO
        if log is None or not log.isEnabledFor(level):
            return
        fields: dict[str, Any] = {
            "request_id": request.id,
            "method": method,
            "route": route,
            "status": status,
            "milliseconds": round(seconds * 1000, 2),
            "bytes": request.bytes,
        }
        key = scope["state"].get("key_id")
        if key is not None:
            fields["key"] = key
        # Created directly: walking up the stack for the calling line is not worth it.
        record = logging.LogRecord(log.name, level, __file__, 0, "request", (), None)
        record.fields = fields
        log.handle(record)


class _MeasuredRequest:
    """One request: adds its id to the response headers and counts what is sent."""

    __slots__ = ("_send", "bytes", "id", "is_finished", "status")

    def __init__(self, id_: str, send: Send) -> None:
        self.id, self._send = id_, send
        self.status, self.bytes, self.is_finished = 0, 0, False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != b"x-request-id"]
            message = {**message, "headers": [*headers, (b"x-request-id", self.id.encode())]}
        elif message["type"] == "http.response.body":
            self.bytes += len(message.get("body", b""))
            self.is_finished = not message.get("more_body", False)
        await self._send(message)

    async def fail(self) -> bool:
        """Answer with an internal error if nothing has been sent yet; return whether the answer is complete."""
        if self.status:
            return self.is_finished
        body = _INTERNAL_ERROR % self.id.encode()
        headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(body)).encode()),
            (b"x-content-type-options", b"nosniff"),  # the layer that adds such headers is further in
            (b"cache-control", b"no-store"),
        ]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
        return True


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _GIVEN_ID.fullmatch(value):
            return str(value.decode("ascii"))
    return uuid.uuid4().hex


def _route(scope: Scope) -> str:
    """Return the template of the matched route; all unmatched paths share one name."""
    template = getattr(scope.get("route"), "path", None)
    if isinstance(template, str) and template:
        return template
    path = scope.get("path", "")
    return _CONSOLE if path == _CONSOLE or path.startswith(f"{_CONSOLE}/") else _NO_ROUTE
