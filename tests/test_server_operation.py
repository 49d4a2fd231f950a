"""What is counted and logged, what other processes store while it runs, and how the service stops."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the packages of the extra 'server' are not installed")
pytest.importorskip("prometheus_client", reason="the package prometheus-client is not installed")

from fastapi.testclient import TestClient

from pointsman import Dataset, Document, Settings, Workspace, router_select
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm.scripted_llm import ScriptedLLM
from pointsman.retrieval.judge.kept_calibrations import Calibration
from pointsman.retrieval.judge.relevance import shipped
from pointsman.retrieval.plan.policy import POLICY, measured
from pointsman.selector.route_counts import RouteCounts
from pointsman.service.server import create_app
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.service.server.record_watch import RecordWatch
from pointsman.service.server.request_log import LineFormatter, configure_logging, redact, request_id, trace_text
from pointsman.service.server.service_metrics import Measuring, Metrics
from pointsman.tools.errors import InputError
from pointsman.values.types import AddResult
from server_kit import Served, ask

KEY = "ptm_0a1b2c3d_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCde"
SECRET = KEY.split("_", 2)[2]


# ── the outermost layer ──────────────────────────────────────────────────────────────────────────────────────────────


class Exchange:
    """One request to an ASGI app, without a server."""

    def __init__(
        self, app: Any, path: str = "/x", method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> None:
        self.messages: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": raw,
            "query_string": b"q=secret",
        }

        async def send(message: dict[str, Any]) -> None:
            self.messages.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        try:
            asyncio.run(app(self.scope, receive, send))
        except Exception as error:  # noqa: BLE001  # for the test to look at
            self.error = error

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])


class Route:
    path = "/api/datasets/{name}"


def answering(status: int = 200, body: bytes = b"hello", *, route: bool = True, key: str | None = None) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if route:
            scope["route"] = Route
        if key:
            scope["state"]["key_id"] = key
        await send({"type": "http.response.start", "status": status, "headers": [(b"x-request-id", b"inner")]})
        await send({"type": "http.response.body", "body": body[:2], "more_body": True})
        await send({"type": "http.response.body", "body": body[2:]})

    return app


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    caplog.set_level(logging.DEBUG, "observed")  # its own: servers of other tests may still write to the usual one
    return logging.getLogger("observed")


def series(metrics: Metrics) -> dict[str, float]:
    text = metrics.render()[0].decode()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in text.splitlines()) if name[0] != "#"
    }


class TestMeasuring:
    @pytest.mark.parametrize("given_id", ["abc", "A-b_c.9", "x" * 64])
    def test_a_usable_id_is_taken(self, given_id: str) -> None:
        exchange = Exchange(Measuring(answering(), Metrics(RouteCounts())), headers={"X-Request-Id": given_id})
        assert exchange.headers["x-request-id"] == given_id
        assert exchange.scope["state"] == {"request_id": given_id}

    @pytest.mark.parametrize("given_id", ["", "x" * 65, "a b", "a\tb", "é", 'a"b', "a\x00", "a,b"])
    def test_another_one_is_made_anew(self, given_id: str) -> None:
        exchange = Exchange(Measuring(answering(), Metrics(RouteCounts())), headers={"X-Request-Id": given_id})
        assert re.fullmatch("[0-9a-f]{32}", exchange.headers["x-request-id"])
        assert [name for name, _ in exchange.messages[0]["headers"]].count(b"x-request-id") == 1

    def test_the_id_is_in_the_context(self) -> None:
        ids = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            ids.append(request_id.get())
            ids.append(await asyncio.to_thread(request_id.get))
            await answering()(scope, receive, send)

        Exchange(Measuring(app, Metrics(RouteCounts())), headers={"X-Request-Id": "abc"})
        assert ids == ["abc", "abc"]
        assert request_id.get() is None

    def test_a_line_of_the_log(self, log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
        headers = {"X-Request-Id": "abc", "Authorization": f"Bearer {KEY}", "Cookie": "c=1"}
        Exchange(
            Measuring(answering(key="0a1b2c3d"), Metrics(RouteCounts()), log), "/api/datasets/private", "POST", headers
        )
        [record] = caplog.records
        line = json.loads(LineFormatter().format(record))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
        assert line.pop("milliseconds") >= 0
        assert line == {
            "level": "info",
            "logger": "observed",
            "message": "request",
            "request_id": "abc",
            "method": "POST",
            "route": "/api/datasets/{name}",
            "status": 200,
            "bytes": 5,
            "key": "0a1b2c3d",
        }

    @pytest.mark.parametrize(
        ("path", "status", "level"),
        [("/x", 200, "INFO"), ("/x", 404, "INFO"), ("/x", 503, "WARNING"), ("/health", 200, "INFO")],
    )
    def test_levels(
        self, log: logging.Logger, caplog: pytest.LogCaptureFixture, path: str, status: int, level: str
    ) -> None:
        Exchange(Measuring(answering(status, route=False), Metrics(RouteCounts()), log), path)
        assert [record.levelname for record in caplog.records] == [level]

    def test_probes_are_silent(self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Route, "path", "/health")
        caplog.set_level(logging.INFO, "observed")
        Exchange(Measuring(answering(), Metrics(RouteCounts()), logging.getLogger("observed")), "/health")
        assert not caplog.records

    def test_counting(self) -> None:
        metrics = Metrics(RouteCounts())
        for path, method, app in (
            ("/api/datasets/a", "GET", answering()),
            ("/api/datasets/b", "GET", answering()),
            ("/api/datasets/b", "DELETE", answering(429)),
            ("/nowhere/1", "GET", answering(404, route=False)),
            ("/nowhere/2", "BREW", answering(405, route=False)),
            ("/console/app.js", "GET", answering(200, route=False)),
        ):
            Exchange(Measuring(app, metrics), path, method)
        figures = series(metrics)
        requests = {name: value for name, value in figures.items() if name.startswith("pointsman_requests_total")}
        assert requests == {
            'pointsman_requests_total{method="GET",route="/api/datasets/{name}",status="200"}': 2,
            'pointsman_requests_total{method="DELETE",route="/api/datasets/{name}",status="429"}': 1,
            'pointsman_requests_total{method="GET",route="unmatched",status="404"}': 1,
            'pointsman_requests_total{method="other",route="unmatched",status="405"}': 1,
            'pointsman_requests_total{method="GET",route="/console",status="200"}': 1,
        }
        assert figures['pointsman_request_seconds_count{route="/api/datasets/{name}"}'] == 3
        assert figures["pointsman_requests_rejected_total"] == 1
        assert figures["pointsman_requests_in_flight"] == 0
        assert figures["process_resident_memory_bytes"] > 1e6

    def test_what_nobody_has_caught(self, log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            raise KeyError("what somebody asked")

        metrics = Metrics(RouteCounts())
        exchange = Exchange(Measuring(app, metrics, log), headers={"X-Request-Id": "abc"})
        assert exchange.error is None
        assert exchange.status == 500
        assert exchange.headers["content-type"] == "application/problem+json"
        assert json.loads(exchange.body)["instance"] == "abc"
        assert b"somebody" not in exchange.body
        failure, line = caplog.records
        text = LineFormatter().format(failure)
        assert json.loads(text)["request_id"] == "abc"
        assert "KeyError" in text
        assert "test_server_operation.py" in text
        assert "somebody" not in text
        assert json.loads(LineFormatter().format(line))["status"] == 500
        assert any('status="500"' in name for name in series(metrics))

    def test_an_answer_that_breaks_off_is_cut(self, log: logging.Logger) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise KeyError("x")

        metrics = Metrics(RouteCounts())
        exchange = Exchange(Measuring(app, metrics, log))
        assert isinstance(exchange.error, KeyError)  # the server closes the connection; the client sees it is not whole
        assert [message["type"] for message in exchange.messages] == ["http.response.start", "http.response.body"]
        assert any('status="500"' in name for name in series(metrics))

    def test_a_client_that_has_gone(self) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            raise asyncio.CancelledError

        metrics = Metrics(RouteCounts())
        with pytest.raises(asyncio.CancelledError):
            Exchange(Measuring(app, metrics))
        assert any('status="499"' in name for name in series(metrics))
        assert series(metrics)["pointsman_requests_in_flight"] == 0

    def test_other_protocols_go_through(self) -> None:
        scopes = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scopes.append(scope)

        asyncio.run(Measuring(app, Metrics(RouteCounts()))({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
        assert scopes == [{"type": "lifespan"}]


class TestMetrics:
    def test_a_search(self, tmp_path: Path) -> None:
        with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
            workspace.dataset("private").add([Document(str(n), f"rail signal {n}") for n in range(9)])
            context = workspace.search("rail signal confidential", 5, refuse=False)
            refused = replace(context, hits=(), refused=workspace.search("zzz", 5).refused, degraded=("x",))
        counts = RouteCounts()
        counts.count(router_select("дата создания"), ["private"])
        metrics = Metrics(counts)
        metrics.record_search(context)
        metrics.record_search(refused)
        figures = series(metrics)
        assert figures['pointsman_routes_total{reason="short_or_entity_numeric",route="bm25"}'] == 1
        assert figures[f'pointsman_searches_total{{strategy="{context.plan.strategy}"}}'] == 2
        assert figures["pointsman_search_hits_sum"] == 5
        assert figures["pointsman_searches_degraded_total"] == 1
        for stage in {span.stage for span in context.trace.spans}:
            count = sum(span.stage == stage for span in context.trace.spans)
            assert figures[f'pointsman_stage_seconds_count{{stage="{stage}"}}'] == 2 * count
        text = metrics.render()[0].decode()
        assert "private" not in text
        assert "confidential" not in text

    def test_models_and_what_they_compress(self, tmp_path: Path) -> None:
        text = "Signals are red at night. Bakers bake bread. " * 9
        workspace = Workspace(
            tmp_path, embedder=HashingEmbedder(), llm=ScriptedLLM(lambda _: "Signals are red at night.")
        )
        workspace.dataset("rail").add([Document("a", text)])
        app = create_app(workspace, settings=Settings(), limits=Limits(requests_per_minute=0))
        with TestClient(app, base_url="http://localhost") as client:
            body = {"query": "red signals", "strategy": "compression", "refuse": "never"}
            hits = client.post("/api/search", json=body).json()["hits"]
            client.post("/api/search", json={**body, "strategy": "bm25"})
            figures = dict(re.findall(r"^(\w+(?:{[^}]*})?) (\S+)$", client.get("/metrics").text, re.MULTILINE))
        assert float(figures["pointsman_llm_calls_total"]) == 1
        assert float(figures["pointsman_llm_tokens_total"]) > len(text) / 8
        assert float(figures['pointsman_compressed_characters_total{text="document"}']) == len(text)
        assert float(figures['pointsman_compressed_characters_total{text="excerpt"}']) == len(hits[0]["text"])
        assert len(hits[0]["text"]) < len(text)

    def test_documents(self) -> None:
        metrics = Metrics(RouteCounts())
        metrics.record_write(AddResult(added=3, updated=2, unchanged=1))
        metrics.record_write(AddResult(added=1))
        metrics.deleted(4)
        figures = series(metrics)
        assert figures['pointsman_documents_written_total{outcome="added"}'] == 4
        assert figures['pointsman_documents_written_total{outcome="updated"}'] == 2
        assert figures["pointsman_documents_deleted_total"] == 4

    def test_labels_have_few_values(self, tmp_path: Path) -> None:
        with Dataset("d", path=tmp_path, embedder=HashingEmbedder()) as dataset:
            dataset.add([Document("a", "rail")])
            context = dataset.search("rail")
        metrics = Metrics(RouteCounts())
        for number in range(200):
            metrics.record_search(replace(context, plan=replace(context.plan, strategy=f"made-up-{number}")))
        names = [name for name in series(metrics) if name.startswith("pointsman_searches_total")]
        assert len(names) == 65
        assert series(metrics)['pointsman_searches_total{strategy="other"}'] == 200 - 64

    def test_workers_are_told_apart(self) -> None:
        metrics = Metrics(RouteCounts(), worker=True)
        Exchange(Measuring(answering(), metrics))
        assert all(f'worker="{os.getpid()}"' in name for name in series(metrics))
        assert metrics.render()[1].startswith("text/plain")

    def test_apps_count_for_themselves(self) -> None:
        first, second = Metrics(RouteCounts()), Metrics(RouteCounts())
        Exchange(Measuring(answering(), first))
        assert not any(name.startswith("pointsman_requests_total") for name in series(second))


class TestRedaction:
    @pytest.mark.parametrize(
        "text",
        [
            f"key {KEY} is wrong",
            f"Authorization: Bearer {SECRET}",
            f"authorization=bearer {SECRET}",
            f"{{'Authorization': 'Bearer {SECRET}'}}",
            f'{{"api_key": "{SECRET}"}}',
            f"https://host/v1?api_key={SECRET}&x=1",
            f"X-API-Key: {SECRET}",
            f"OPENAI_API_KEY={SECRET}",
            f"apikey = {SECRET}",
            f"access_token={SECRET}",
            f"password: {SECRET}",
            f"https://user:{SECRET}@host/path",
            f"postgres://{SECRET}@host",
            f"sk-{SECRET}",
            f"Cookie: session={SECRET}",
            f"Basic {SECRET}==",
        ],
    )
    def test_secrets(self, text: str) -> None:
        assert SECRET not in redact(text)
        assert "[hidden]" in redact(text)

    @pytest.mark.parametrize(
        "text",
        [
            "a request",
            "the token is missing",
            "3 keys; secret santa",
            "basic training",
            "mail@example.org",
            "密钥 ключ",
        ],
    )
    def test_the_rest_stays(self, text: str) -> None:
        assert redact(text) == text

    def test_the_id_of_a_key_stays(self) -> None:
        assert redact(f"by {KEY}.") == "by ptm_0a1b2c3d_[hidden]."

    @given(st.text(), st.text())
    def test_a_key_never_passes(self, prefix: str, suffix: str) -> None:
        assert SECRET not in redact(f"{prefix}{KEY}{suffix}")

    def test_it_takes_linear_time(self) -> None:
        for unit in ("a://", "token", "api_key", "Bearer ", "-", "a.", "ptm_", "sk-", "token=", '"'):
            start = time.process_time()
            redact("@" + unit * (200_000 // len(unit)))
            assert time.process_time() - start < 20  # quadratic time would be minutes


class TestLines:
    @contextmanager
    def record(self, message: str, *arguments: Any, **fields: Any) -> Iterator[logging.LogRecord]:
        yield logging.LogRecord("pointsman.x", logging.INFO, __file__, 1, message, arguments, None, **fields)

    @pytest.mark.parametrize("message", ["two\nlines", 'a "quote"', "列车 поезд", "\x1b[31m", "\u2028", "\x00"])
    def test_one_line_each(self, message: str) -> None:
        with self.record("%s", message) as record:
            line, plain = LineFormatter().format(record), LineFormatter(as_json=False).format(record)
        assert "\n" not in line
        assert json.loads(line)["message"] == message
        assert len(plain.splitlines()) == 1
        assert "\x1b" not in plain

    def test_wrong_arguments_lose_nothing_else(self) -> None:
        with self.record("%d items", "many") as record:
            assert "%d items" in json.loads(LineFormatter().format(record))["message"]

    def test_an_exception_has_its_stack_and_no_values(self) -> None:
        def inner() -> None:
            very_private = "what somebody asked"
            raise ValueError(very_private)

        def outer() -> None:
            try:
                inner()
            except ValueError as error:
                raise InputError("the strategy is unknown") from error

        try:
            outer()
        except InputError as error:
            text, full_text = trace_text(error), trace_text(error, with_causes=True)
        assert "InputError: the strategy is unknown" in text
        assert "in outer" in text
        assert "in inner" in text
        assert "ValueError" in text
        assert "what somebody asked" not in text
        assert "ValueError: what somebody asked" in full_text

    def test_groups_and_circles(self) -> None:
        error = ExceptionGroup("many", [ValueError("private"), OSError(2, "no such file")])
        error.__cause__ = error
        text = trace_text(error)
        assert "of which ValueError\n" in text
        assert "no such file" in text
        assert "private" not in text


class TestConfigureLogging:
    def test_our_log_and_the_servers(self, capfd: pytest.CaptureFixture[str]) -> None:
        configure_logging("info")
        configure_logging("info")  # again: still one line each
        logging.getLogger("pointsman.service.server").info("ours with %s", KEY)
        logging.getLogger("pointsman.service.server").debug("not asked for")
        logging.getLogger("uvicorn.error").info("theirs")
        logging.getLogger("uvicorn.access").info("not this")
        logging.getLogger("somebody.else").info("nor this")
        logging.getLogger("somebody.else").warning("but this")
        lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
        assert [line["message"] for line in lines] == ["ours with ptm_0a1b2c3d_[hidden]", "theirs", "but this"]

    def test_text(self, capfd: pytest.CaptureFixture[str]) -> None:
        configure_logging("debug", json=False)
        logging.getLogger("pointsman.service.server").debug("asked for")
        assert re.fullmatch(r"\d\d:\d\d:\d\d debug: asked for\n", capfd.readouterr().err)

    def test_levels(self) -> None:
        with pytest.raises(ValueError, match="debug, info"):
            configure_logging("loud")


# ── what others store ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "ws", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("a", "rail signal")])
        yield workspace


class TestRecordWatch:
    def test_a_server_that_is_silent_counts_as_away_while_the_check_still_waits_for_it(
        self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class SilentBackend:
            """A fake of a server that accepts connections and does not answer until ``answer`` is set."""

            url, answer, path, is_remote = "fake://silent", threading.Event(), None, True

            def record(self, kind: str, name: str = "") -> None:
                assert not reading or self.answer.wait(60)

        monkeypatch.setattr(workspace, "_backend", SilentBackend())
        reading: list[bool] = []
        watch = RecordWatch(workspace)
        reading.append(True)  # from now on it is silent

        async def wait_until(*, expected: bool) -> None:
            while watch.store_away is not expected:  # noqa: ASYNC110  (an attribute, not an event)
                await asyncio.sleep(0.01)

        async def run() -> None:
            task = asyncio.create_task(watch.run())
            await wait_until(expected=True)
            SilentBackend.answer.set()
            await wait_until(expected=False)
            task.cancel()

        asyncio.run(asyncio.wait_for(run(), 50))

    def test_a_policy_of_another_process(self, workspace: Workspace) -> None:
        watch = RecordWatch(workspace)
        policy = replace(measured(), name="by-hand", vector_weight=1.5)
        with Workspace(workspace.path, embedder=HashingEmbedder()) as other:
            other.keep(policy)
            watch.check()
            assert workspace.workflow.policy == policy
            workflow = workspace.workflow
            watch.check()
            assert workspace.workflow is workflow
            other.keep(None)
        watch.check()
        assert workspace.workflow.policy == measured()

    def test_an_own_policy_that_another_process_has_deleted_since(self, workspace: Workspace) -> None:
        watch = RecordWatch(workspace)
        workspace.keep(replace(measured(), vector_weight=1.5))
        with Workspace(workspace.path, embedder=HashingEmbedder()) as other:
            other.keep(None)
        watch.check()
        assert workspace.workflow.policy == measured()

    def test_a_calibration_of_another_process(self, workspace: Workspace) -> None:
        watch = RecordWatch(workspace)
        calibration = Calibration("fitted by hand", shipped())
        with Workspace(workspace.path, embedder=HashingEmbedder()) as other:
            other.keep_calibration("notes", calibration)
        watch.check()
        assert workspace.workflow.fitted == {"notes": calibration}

    def test_a_bad_policy_changes_nothing_and_is_told_once(
        self, workspace: Workspace, caplog: pytest.LogCaptureFixture
    ) -> None:
        watch, workflow = RecordWatch(workspace), workspace.workflow
        (workspace.path / f"{POLICY}.json").write_text('{"vector_weight": "heavy"}')
        for _ in range(3):
            watch.check()
        assert workspace.workflow is workflow
        assert len(caplog.records) == 1
        assert "vector_weight" in caplog.text
        (workspace.path / f"{POLICY}.json").unlink()
        watch.check()
        assert workspace.workflow is workflow
        assert len(caplog.records) == 1

    def test_without_a_policy_on_purpose(self, workspace: Workspace) -> None:
        workspace.workflow = replace(workspace.workflow, policy=None)
        watch = RecordWatch(workspace)
        (workspace.path / f"{POLICY}.json").write_text(measured().to_json())
        watch.check()
        assert workspace.workflow.policy is None


# ── the service itself ───────────────────────────────────────────────────────────────────────────────────────────────


class TestService:
    def test_stopping_under_load(self, tmp_path: Path) -> None:
        """SIGTERM: what is under way ends well, and everything acknowledged is there."""
        statuses: list[int] = []
        acknowledged_ids: list[str] = []
        stopping = threading.Event()

        def adding(id_: str) -> tuple[str, dict[str, Any]]:
            return "/api/datasets/notes/documents", {"documents": [{"id": id_, "text": f"rail signal {id_}"}]}

        def searching(id_: str) -> tuple[str, dict[str, Any]]:
            return "/api/search", {"query": f"rail signal {id_}", "refuse": False}

        def use(service: Served, name: str) -> None:
            number = 0
            with closing(service.connection()) as connection:
                while True:
                    number += 1
                    try:
                        status, _ = ask(connection, "POST", *(adding if number % 2 else searching)(f"{name}{number}"))
                    except (OSError, http.client.HTTPException):
                        assert stopping.is_set(), "it has closed a connection before it was told to stop"
                        return
                    statuses.append(status)
                    if status == 200 and number % 2:
                        acknowledged_ids.append(f"{name}{number}")

        with Served(tmp_path / "ws") as service:
            service.ready()
            service.post("/api/datasets", {"name": "notes"})
            threads = [threading.Thread(target=use, args=(service, name)) for name in "abcdefgh"]
            for thread in threads:
                thread.start()
            while len(statuses) < 80:
                time.sleep(0.01)
            stopping.set()
            service.process.send_signal(signal.SIGTERM)
            for thread in threads:
                thread.join()
            code = service.wait()
        assert code == 0
        assert set(statuses) == {200}
        messages = [line["message"] for line in service.lines()]
        assert "Application shutdown complete." in messages
        assert not [line for line in service.lines() if line["level"] == "error"]  # a slow request is a warning
        with Workspace(tmp_path / "ws", embedder=HashingEmbedder()) as workspace:
            notes = workspace.dataset("notes", create=False)
            assert set(acknowledged_ids) <= set(notes.ids())
            assert not notes.verify().problems

    def test_records_and_log_of_a_running_service(self, tmp_path: Path) -> None:
        def told_of(service: Served, text: str) -> None:
            deadline = time.monotonic() + 60
            while not any(text in line["message"] for line in service.lines()):
                assert time.monotonic() < deadline, "".join(service.log)
                time.sleep(0.02)

        with Served(tmp_path / "ws") as service:
            service.ready()
            with Workspace(tmp_path / "ws", embedder=HashingEmbedder()) as other:
                other.keep(replace(measured(), vector_weight=1.5))
            told_of(service, "another process has changed the policy")
            (tmp_path / "ws" / f"{POLICY}.json").write_text("no policy")
            told_of(service, "the new policy cannot be used")
            assert service.get("/ready")[0] == 200
            headers = {"X-Request-Id": "mine", "Authorization": f"Bearer {KEY}"}
            status, answer = service.request("POST", "/api/search", {"query": "confidential question"}, headers)
            assert status == 200, answer
            status, text = service.get("/metrics")
            assert status == 200
            assert 'route="/api/search"' in text
            service.stop()
        lines = [line for line in service.lines() if line.get("request_id") == "mine"]
        assert [(line["route"], line["status"]) for line in lines] == [("/api/search", 200)]
        all_text = "".join(service.log) + text
        assert "confidential" not in all_text
        assert SECRET not in all_text

    def test_it_ends_at_once_when_idle(self, tmp_path: Path) -> None:
        with Served(tmp_path / "ws") as service:
            service.ready()
            start = time.monotonic()
            assert service.stop(signal.SIGINT) in {0, 130, -signal.SIGINT, 1}
            assert time.monotonic() - start < 25  # the grace for requests is 30 s: only a clock tells it apart
