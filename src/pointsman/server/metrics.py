"""What the service does, as numbers for Prometheus, and the outermost layer of the app, which counts and logs it.

Labels have few values: methods, route templates, statuses, strategies, stages. Names of datasets, queries and paths as
they were asked for are never among them. With several workers each process counts for itself, and a scrape is answered
by one of them; their series are told apart by a label ``worker`` with the process's number, so that each counter only
ever grows, and ``sum without (worker)`` over the last known values is the whole.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Final

from pointsman._version import __version__
from pointsman.errors import MissingDependencyError
from pointsman.server.logs import request_id as current_request

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
except ImportError as error:
    raise MissingDependencyError("prometheus-client", "server", "the HTTP service") from error

if TYPE_CHECKING:
    from prometheus_client import Metric
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pointsman.types import AddResult, RetrievalContext

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER: Final = "other"
_UNMATCHED: Final = "unmatched"
_MOST_VALUES: Final = 64  # of a label whose values come from code that is not ours
_QUIET: Final = frozenset({"/health", "/ready", "/metrics"})  # asked every few seconds by machines
_GIVEN_ID: Final = re.compile(rb"[A-Za-z0-9._\-]{1,64}")
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_STAGE_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30)
_HITS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 1000)
_CLOSED_BY_CLIENT: Final = 499  # nobody received it: nginx's number for that
_FAILED: Final = (
    b'{"type":"/problems/internal","title":"Internal error","status":500,'
    b'"detail":"the log has it under this request id","instance":"%s"}'
)


class Metrics:
    """All numbers of one app, in a registry of their own.

    Args:
        worker: with True every series carries the number of this process; for several workers behind one port.
    """

    def __init__(self, *, worker: bool = False) -> None:
        self._worker = str(os.getpid()) if worker else None
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "pointsman_requests", "HTTP requests answered.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "pointsman_request_seconds",
            "Time from a request to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("pointsman_requests_in_flight", "HTTP requests being answered.", registry=registry)
        self.queued = Gauge("pointsman_requests_queued", "HTTP requests waiting in the queue.", registry=registry)
        self._rejected = Counter("pointsman_requests_rejected", "HTTP requests rejected with 429.", registry=registry)
        self._searches = Counter(
            "pointsman_searches", "Searches by the strategy that was used.", ["strategy"], registry=registry
        )
        self._refused = Counter("pointsman_searches_refused", "Searches without relevant results.", registry=registry)
        self._degraded = Counter(
            "pointsman_searches_degraded", "Searches in which a part failed or was left out.", registry=registry
        )
        self._stages = Histogram(
            "pointsman_stage_seconds",
            "Time of each stage of a search; branches overlap.",
            ["stage"],
            buckets=_STAGE_SECONDS,
            registry=registry,
        )
        self._hits = Histogram("pointsman_search_hits", "Hits of a search.", buckets=_HITS, registry=registry)
        self._written = Counter(
            "pointsman_documents_written", "Documents written, by outcome.", ["outcome"], registry=registry
        )
        self._deleted = Counter("pointsman_documents_deleted", "Documents deleted.", registry=registry)
        Gauge("pointsman_build", "1, with the version.", ["version"], registry=registry).labels(__version__).set(1)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._by_request: dict[tuple[str, str, int], Counter] = {}
        self._by_route: dict[str, Histogram] = {}
        self._by_strategy: dict[str, Counter] = {}
        self._by_stage: dict[str, Histogram] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            method: the HTTP method; unusual ones count as one.
            route: the route's template, such as ``/api/datasets/{name}``.
            status: the HTTP status.
            seconds: from the request to the end of the answer.
        """
        key = (method, route, status)
        counter = self._by_request.get(key)
        if counter is None:
            counter = self._by_request[key] = self._requests.labels(method, route, str(status))
        counter.inc()
        histogram = self._by_route.get(route)
        if histogram is None:
            histogram = self._by_route[route] = self._seconds.labels(route)
        histogram.observe(seconds)
        if status == 429:
            self._rejected.inc()

    def searched(self, context: RetrievalContext) -> None:
        """Count a search: its strategy, its stages, what came out."""
        _child(self._by_strategy, self._searches, context.plan.strategy).inc()
        if context.refused is not None:
            self._refused.inc()
        if context.degraded:
            self._degraded.inc()
        self._hits.observe(len(context.hits))
        for span in context.trace.spans:
            _child(self._by_stage, self._stages, span.stage).observe(span.milliseconds / 1000)

    def written(self, result: AddResult) -> None:
        """Count documents that were written."""
        for outcome in ("added", "updated", "unchanged"):
            self._written.labels(outcome).inc(getattr(result, outcome))

    def deleted(self, count: int) -> None:
        """Count documents that were deleted."""
        self._deleted.inc(count)

    def render(self) -> tuple[bytes, str]:
        """Everything in Prometheus' text format, and the type of that content."""
        source: Any = self  # has all of a registry that is asked for
        return generate_latest(source), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """All series; without the time at which each was made, which would be as many series again."""
        more = {} if self._worker is None else {"worker": self._worker}
        for metric in self.registry.collect():
            metric.samples = [
                sample._replace(labels={**sample.labels, **more})
                for sample in metric.samples
                if not sample.name.endswith("_created")
            ]
            yield metric


def _child(series: dict[str, Any], metric: Any, value: str) -> Any:
    """The series of a label's value; when there are too many values, the rest share one."""
    child = series.get(value)
    if child is None:
        if len(series) >= _MOST_VALUES:
            value = _OTHER
        child = series[value] = metric.labels(value)
    return child


class Observed:
    """The outermost layer of an ASGI app: gives each request an id, counts it, logs it, and catches what nobody has.

    The id is the ``X-Request-Id`` given, if it is a usable one, else a new one; it is in ``scope["state"]`` as
    ``request_id``, in the log's context, and in the response. A line of the log has method, route, status,
    milliseconds, bytes sent and the id of the key (``scope["state"]["key_id"]``), never what was asked. Where
    OpenTelemetry is set up, each request is a span, a child of the one that ``traceparent`` names; a search is a span
    inside of it.

    Args:
        app: what answers.
        metrics: where to count.
        log: where to log; None: nowhere.
        mounts: prefixes of paths that have no routes of their own, such as static files; each counts as one route.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        log: logging.Logger | None = None,
        *,
        mounts: Sequence[str] = ("/console",),
    ) -> None:
        self._app, self._metrics, self._log, self._mounts = app, metrics, log, tuple(mounts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the app inside; what is no HTTP request goes straight through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        request = _Request(_request_id(scope), send)
        scope.setdefault("state", {})["request_id"] = request.id
        token = current_request.set(request.id)
        self._metrics.in_flight.inc()
        status = _CLOSED_BY_CLIENT  # unless it ends some other way than by being cancelled
        try:
            with _span(scope, request):
                try:
                    await self._app(scope, receive, request.send)
                    status = request.status
                except Exception as error:
                    status = 500
                    self._tell(request, error)
                    if not await request.fail():
                        raise  # half of an answer is out: the server has to cut the connection
        finally:
            self._metrics.in_flight.dec()
            seconds = perf_counter() - began
            method = scope["method"] if scope["method"] in _METHODS else _OTHER
            route = _route(scope, self._mounts)
            self._metrics.answered(method, route, status, seconds)
            if self._log is not None:
                self._note(scope, request, method, route, status, seconds)
            current_request.reset(token)

    def _tell(self, request: _Request, error: Exception) -> None:
        log = self._log or logging.getLogger(__name__)
        log.error("a request has failed", exc_info=error, extra={"fields": {"request_id": request.id}})

    def _note(self, scope: Scope, request: _Request, method: str, route: str, status: int, seconds: float) -> None:
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
        # Made by hand: where in the code this is said is not worth the walk up the stack.
        record = logging.LogRecord(log.name, level, __file__, 0, "request", (), None)
        record.fields = fields
        log.handle(record)


class _Request:
    """One request on its way out: its id goes into the headers, and what is sent is counted."""

    __slots__ = ("_send", "bytes", "finished", "id", "status")

    def __init__(self, id_: str, send: Send) -> None:
        self.id, self._send = id_, send
        self.status, self.bytes, self.finished = 0, 0, False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != b"x-request-id"]
            message = {**message, "headers": [*headers, (b"x-request-id", self.id.encode())]}
        elif message["type"] == "http.response.body":
            self.bytes += len(message.get("body", b""))
            self.finished = not message.get("more_body", False)
        await self._send(message)

    async def fail(self) -> bool:
        """Answer that something went wrong, if nothing has been sent yet; whether the answer is a whole one now."""
        if self.status:
            return self.finished
        body = _FAILED % self.id.encode()
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


def _route(scope: Scope, mounts: Sequence[str]) -> str:
    """The template of the route that has answered; what matched none is one route."""
    template = getattr(scope.get("route"), "path", None)
    if isinstance(template, str) and template:
        return template
    path = scope.get("path", "")
    for prefix in mounts:
        if path == prefix or path.startswith(f"{prefix}/"):
            return prefix
    return _UNMATCHED


# ── OpenTelemetry ────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _span(scope: Scope, request: _Request) -> Iterator[None]:
    """The request as a span around what answers it, where somebody collects spans."""
    tracing = _tracing()
    if tracing is None or not tracing.collected():
        yield
        return
    with tracing.span(scope, request):
        yield


class _Tracing:
    """What is used of OpenTelemetry's API."""

    def __init__(self) -> None:
        from opentelemetry import context, propagate, trace

        self._context, self._propagate, self._trace = context, propagate, trace

    def collected(self) -> bool:
        """Whether a provider is set; the API alone would cost time for nothing."""
        return not isinstance(self._trace.get_tracer_provider(), self._trace.ProxyTracerProvider)

    @contextmanager
    def span(self, scope: Scope, request: _Request) -> Iterator[None]:
        """By the semantic conventions for HTTP; ``traceparent`` names the parent, other headers are not looked at."""
        headers: Mapping[str, str] = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in {b"traceparent", b"tracestate"}
        }
        method = scope["method"] if scope["method"] in _METHODS else "HTTP"
        span = self._trace.get_tracer("pointsman", __version__).start_span(
            method,
            context=self._propagate.extract(headers),
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": method, "pointsman.request_id": request.id},
            start_time=int(time() * 1e9),
        )
        token = self._context.attach(self._trace.set_span_in_context(span))
        try:
            yield
        finally:
            self._context.detach(token)
            route = _route(scope, ())
            if route != _UNMATCHED:
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
            if request.status:
                span.set_attribute("http.response.status_code", request.status)
            if request.status >= 500:
                span.set_status(self._trace.StatusCode.ERROR)
            span.end()


@cache
def _tracing() -> _Tracing | None:
    """The API, if it is installed."""
    try:
        return _Tracing()
    except ImportError:
        return None
