"""The OpenAI-compatible client, against a server that speaks the protocol and misbehaves on demand."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pointsman.llm.base_llm import Usage
from pointsman.llm.openai_llm import DashScopeLLM, OpenAILLM
from pointsman.selector.base_selector import ToolMetadata
from pointsman.selector.llm_selector import LLMSelector
from pointsman.tools.errors import InputError, ModelError

KEY = "sk-secret-0123456789"
SCHEMA = {"type": "object", "properties": {"choice": {"type": "integer"}}, "required": ["choice"]}

Answer = tuple[int, dict[str, str], bytes]


def completion(content: str | None, **message: Any) -> Answer:
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
    return 200, {}, json.dumps(body).encode()


def failure(status: int, message: str = "no", **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, names, json.dumps({"error": {"message": message}}).encode()


class Server:
    """Answers by ``self.answer(request)``; keeps the requests and how many were under way at once."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], Answer] = lambda request: completion("hello")
        self.running = self.peak = 0
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                request["authorization"] = self.headers["Authorization"]
                with lock:
                    outer.requests.append(request)
                    outer.running += 1
                    outer.peak = max(outer.peak, outer.running)
                try:
                    status, headers, body = outer.answer(request)
                finally:  # before the client has its answer, and may ask again
                    with lock:
                        outer.running -= 1
                try:
                    self.send_response(status)
                    for name, value in {
                        "Content-Type": "application/json",
                        "Content-Length": str(len(body)),
                        **headers,
                    }.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client gave up first, as it should

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def make(server: Server) -> Iterator[Callable[..., OpenAILLM]]:
    models: list[OpenAILLM] = []

    def make(**settings: Any) -> OpenAILLM:
        models.append(OpenAILLM("m", server.url, KEY, **settings))
        return models[-1]

    yield make
    for llm in models:
        llm._client.close()


Make = Callable[..., OpenAILLM]


def script(*answers: Answer) -> Callable[[dict[str, Any]], Answer]:
    replies = iter(answers)
    return lambda request: next(replies)


def test_a_completion_and_what_it_cost(server: Server, make: Make) -> None:
    llm = make()
    assert llm.complete("hi \ud800").text == "hello"
    assert asyncio.run(llm.acomplete("hi")).text == "hello"
    assert asyncio.run(llm.acomplete("in another loop")).usage == Usage(10, 2, 1)
    assert llm.usage == Usage(30, 6, 3)
    first = server.requests[0]
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("m", 0.0, 1024)
    assert first["messages"] == [{"role": "user", "content": "hi \ufffd"}]
    assert first["authorization"] == f"Bearer {KEY}"
    make(temperature=None, max_tokens=None).complete("hi")
    assert not {"temperature", "max_tokens"} & server.requests[-1].keys()


def test_429_waits_as_long_as_it_is_told(server: Server, make: Make) -> None:
    server.answer = script(failure(429, Retry_After="1"), completion("hello"))
    start = time.monotonic()
    assert make().complete("hi").text == "hello"
    assert time.monotonic() - start >= 0.9
    assert len(server.requests) == 2


def test_a_retry_after_of_an_hour_is_not_waited_for(server: Server, make: Make) -> None:
    server.answer = lambda request: failure(429, Retry_After="3600")
    with pytest.raises(ModelError, match="429"):
        make(max_retries=1).complete("hi")
    assert len(server.requests) == 1  # a second one would be made after the hour


def test_what_may_succeed_later_is_sent_again_so_often(server: Server, make: Make) -> None:
    cut = (200, {"Content-Length": "1000", "Connection": "close"}, b'{"id": ')
    server.answer = script(failure(500), cut, completion("hello"), failure(503), failure(503))
    assert make().complete("hi").text == "hello"
    assert len(server.requests) == 3
    with pytest.raises(ModelError, match=f"'m' at {server.url} failed"):
        make(max_retries=1).complete("hi")
    assert len(server.requests) == 5


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_will_not_succeed_later_is_not(server: Server, make: Make, status: int) -> None:
    server.answer = lambda request: failure(status)
    with pytest.raises(ModelError, match=str(status)):
        make().complete("hi")
    assert len(server.requests) == 1


def test_a_slow_server_is_given_up(server: Server, make: Make) -> None:
    release = threading.Event()

    def slow(request: dict[str, Any]) -> Answer:
        release.wait(30)
        return completion("late")

    server.answer = slow
    with pytest.raises(ModelError, match="APITimeoutError"):
        make(timeout=0.2, max_retries=0).complete("hi")
    release.set()


@pytest.mark.parametrize(
    "body",
    [
        b"garbage",
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [{}]}',
        b'"x"',
        b"\xff",
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_garbage_is_a_model_error(server: Server, make: Make, body: bytes, kind: str) -> None:
    server.answer = lambda request: (200, {"Content-Type": kind}, body)
    with pytest.raises(ModelError, match=f"'m' at {server.url}"):
        make(max_retries=0).complete("hi")


def test_a_refusal_is_a_model_error(server: Server, make: Make) -> None:
    """Its text is not an answer, which HyDE, for example, would search for."""
    server.answer = lambda request: completion(None, refusal="I cannot help with that.")
    model = make()
    with pytest.raises(ModelError, match="refused: I cannot help with that"):
        model.complete("hi")
    assert model.usage.calls == 1


def test_an_answer_in_parts_is_read_as_one(server: Server, make: Make) -> None:
    content: Any = [{"type": "text", "text": "a railway "}, {"type": "image"}, 5, {"type": "text", "text": "switch"}]
    server.answer = lambda request: completion(content)
    assert make().complete("hi").text == "a railway switch"


def test_no_server_at_all() -> None:
    llm = OpenAILLM("m", "http://user:password@127.0.0.1:9/v1", KEY, max_retries=0)
    with pytest.raises(ModelError, match=r"'m' at http://127.0.0.1:9/v1 failed: APIConnectionError"):
        llm.complete("hi")
    llm._client.close()


def test_json_schema_where_the_server_has_it(server: Server, make: Make) -> None:
    server.answer = lambda request: completion('{"choice": 2}')
    llm = make()
    answer = llm.complete("hi", schema=SCHEMA)
    assert (answer.data, llm.schema_mode) == ({"choice": 2}, "json_schema")
    assert server.requests[0]["response_format"]["json_schema"]["schema"] == SCHEMA


def test_function_calling_where_it_has_not_found_out_once(server: Server, make: Make) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "answer", "arguments": '{"choice": 2}'}}
    server.answer = lambda request: (
        failure(400, "response_format?") if "response_format" in request else completion(None, tool_calls=[call])
    )
    for _ in range(2):
        assert make().complete("hi", schema=SCHEMA).data == {"choice": 2}
    assert make().schema_mode == "tools"
    assert len(server.requests) == 3
    assert server.requests[1]["tools"][0]["function"]["parameters"] == SCHEMA


def test_the_prompt_alone_where_it_has_neither(server: Server, make: Make) -> None:
    server.answer = lambda request: (
        failure(422) if request.keys() & {"response_format", "tools"} else completion('Sure: {"choice": 2}')
    )
    llm = make()
    assert llm.complete("hi", schema=SCHEMA).data is None
    assert (llm.schema_mode, len(server.requests)) == ("prompt", 3)
    choices = [ToolMetadata("a", ""), ToolMetadata("b", "")]
    assert LLMSelector(llm).select(choices, "q").ind == 1
    assert asyncio.run(LLMSelector(llm).aselect(choices, "q")).ind == 1


def test_a_request_that_is_wrong_anyhow_says_nothing_about_schemas(server: Server, make: Make) -> None:
    server.answer = lambda request: failure(400, "context too long")
    llm = make()
    with pytest.raises(ModelError, match="context too long"):
        llm.complete("hi", schema=SCHEMA)
    assert llm.schema_mode is None


def test_only_so_many_requests_at_once(server: Server, make: Make) -> None:
    gate = threading.Barrier(2, timeout=30)  # two at a time get through, and only two

    def answer(request: dict[str, Any]) -> Answer:
        gate.wait()
        time.sleep(0.05)  # a third would arrive meanwhile
        return completion("hello")

    server.answer = answer
    llm = make(max_concurrency=2)

    async def ask_six_times() -> list[Any]:
        return await asyncio.gather(*(llm.acomplete(str(number)) for number in range(6)))

    assert len(asyncio.run(ask_six_times())) == 6
    assert server.peak == 2
    threads = [threading.Thread(target=llm.complete, args=("hi",)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.peak == 2
    assert llm.usage.calls == 12


def test_the_key_is_shown_nowhere(server: Server, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    server.answer = lambda request: failure(401, f"Incorrect API key provided: {KEY}")
    llm = make()
    with caplog.at_level(logging.DEBUG):
        with pytest.raises(ModelError, match=r"provided: \[key\]") as error_info:
            llm.complete("hi")
        result = LLMSelector(llm).select([ToolMetadata("a", ""), ToolMetadata("b", "")], "q")
    visible_text = (
        "".join(traceback.format_exception(error_info.value)) + repr(llm) + str(llm) + repr(result) + caplog.text
    )
    assert KEY not in visible_text
    assert repr(llm) == f"OpenAILLM('m', base_url={server.url!r})"


def test_keys_and_addresses_come_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-openai")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("DASHSCOPE_API_KEY", "from-dashscope")
    for llm in (OpenAILLM("m"), DashScopeLLM(base_url=server.url)):
        llm.complete("hi")
        llm._client.close()
    assert [request["authorization"] for request in server.requests] == ["Bearer from-openai", "Bearer from-dashscope"]
    assert server.requests[1]["model"] == "qwen-plus"
    monkeypatch.delenv("DASHSCOPE_API_KEY")
    with pytest.raises(InputError, match="DASHSCOPE_API_KEY"):
        DashScopeLLM()


@pytest.mark.parametrize("wrong", [{"max_concurrency": 0}, {"max_retries": -1}, {"timeout": 0}])
def test_numbers_out_of_range_are_input_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        OpenAILLM("m", "http://127.0.0.1:9/v1", KEY, **wrong)
