"""What stands in front of other servers: real ones, in processes of their own, spoken to by the SDK's client."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters, stdio_client

import pointsman
import raw_tool_server
from hostile_schemas_kit import (
    ODD,
    Pair,
    doubling_references,
    hostile,
    nested_choices,
    unique_objects,
)
from pointsman.cli.commands.mcp_command import mcp as serve
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.mcp import transports
from pointsman.integrations.mcp.checking import SchemaChecker
from pointsman.integrations.mcp.mcp_sdk import ServerAddress, ToolListing
from pointsman.integrations.mcp.message_bounds import MAX_BYTES, bound_response
from pointsman.integrations.mcp.program import NOT_UNICODE, TOO_DEEP, message_of, pruned, with_unicode_only
from pointsman.integrations.mcp.toolbox import RESULT_CHARS, Toolbox, _quoted, choices_of
from pointsman.integrations.mcp.upstream import ForeignTool, Upstream, read_servers
from pointsman.selector import DescriptionSelector
from pointsman.service.server.access.api_keys import KeyStore
from pointsman.service.server.access.request_access import Access
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.tools.errors import InputError
from pointsman.tools.network.json_bounds import MAX_VALUES, TOO_MANY_VALUES, has_too_many_values
from test_mcp import answer, ask_as, error_text, in_thread
from tool_server import HOSTILE, SCHEMAS

if TYPE_CHECKING:
    from mcp_types import CallToolResult

TESTS = Path(__file__).parent
SERVER = {"command": sys.executable, "args": [str(TESTS / "tool_server.py"), "x"], "env": dict(os.environ)}
MISSING = {"command": str(TESTS / "there is no such program")}

Conversation = Callable[[Client], Awaitable[None]]


def write_servers(folder: Path, servers: object) -> Path:
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    return path


def toolbox(upstreams: list[Upstream]) -> Toolbox:
    return Toolbox(upstreams, DescriptionSelector(HashingEmbedder()), Limits(), lambda _: Access.open())


def talk(folder: Path, conversation: Conversation, servers: object) -> None:
    talk_over(read_servers(write_servers(folder, servers), 60.0), conversation)


def talk_over(upstreams: list[Upstream], conversation: Conversation) -> None:
    async def run() -> None:
        service = toolbox(upstreams).service()
        async with service.running(), Client(service.server) as client:
            await conversation(client)

    anyio.run(run)


async def tool(client: Client, name: str, **arguments: Any) -> CallToolResult:
    return await client.call_tool("call_tool", {"name": name, "arguments": arguments})


async def find_until(client: Client, condition: Callable[[Any], bool]) -> Any:
    """What find_tools answers when a condition has come true."""
    with anyio.fail_after(60):
        while True:
            tools = answer(await client.call_tool("find_tools", {"query": "add two numbers"}))
            if condition(tools):
                return tools
            await anyio.sleep(0.1)


def test_the_right_tool_is_found_and_called(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["find_tools", "call_tool"]
        reply = answer(await client.call_tool("find_tools", {"query": "what will the weather be in Paris?", "k": 2}))
        assert reply["tools"][0]["name"] in {"ours/get_weather", "theirs/get_weather"}
        assert reply["tools"][0]["arguments"] == SCHEMAS["get_weather"]
        assert (len(reply["tools"]), reply["total"]) == (2, 2 * (len(SCHEMAS) - 1)), "one has a schema that is none"
        assert set(reply["away"]) == {"gone", "nobody"}
        assert str(TESTS) not in json.dumps(reply["away"])
        total = answer(await tool(client, "ours/add_numbers", a=1, b=2))
        assert (total["structured"], total["text"]) == ({"sum": 3}, "")
        for name in ("gone/x", "ours/nope", "nope/x", "nothing"):
            assert "has no tool" in error_text(await tool(client, name)) or "no server" in error_text(
                await tool(client, name)
            )

    unreachable = {"url": "http://127.0.0.1:9/mcp"}
    talk(
        tmp_path,
        ask,
        {
            "ours": SERVER,
            "theirs": SERVER,
            "gone": MISSING,
            "nobody": unreachable,
            "off": {**MISSING, "disabled": True},
        },
    )


def test_several_questions_in_one_call(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        tasks = ["what will the weather be in Paris?", "add two numbers"]
        for k in (1, 20):
            tools = answer(await client.call_tool("find_tools", {"queries": tasks, "k": k}))["tools"]
            assert [tool["name"] for tool in tools[:2]] == ["ours/get_weather", "ours/add_numbers"]
            assert len(tools) == len({tool["name"] for tool in tools}) == (2 if k == 1 else len(SCHEMAS) - 1)
        reply = answer(await client.call_tool("find_tools", {"query": f"{tasks[0]} Then {tasks[1]}.", "k": 2}))
        assert {tool["name"] for tool in reply["tools"]} == {"ours/get_weather", "ours/add_numbers"}
        wrong_ones: list[dict[str, Any]] = [{}, {"query": "x", "queries": ["y"]}, {"queries": []}, {"queries": [""]}]
        for wrong in [*wrong_ones, {"queries": ["x"] * 9}]:
            refused = await client.call_tool("find_tools", wrong)
            assert refused.is_error
            assert "quer" in error_text(refused)

    talk(tmp_path, ask, {"ours": SERVER})


def test_what_other_servers_say_is_quoted_and_bounded(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        result = await client.call_tool("find_tools", {"query": "weather", "k": 20})
        block = result.content[0]
        assert block.type == "text"
        assert len(block.text.splitlines()) == 1
        assert json.loads(block.text)["notice"].endswith("not instructions.")
        assert any(HOSTILE in tool["description"] for tool in answer(result)["tools"])
        weather = await tool(client, "ours/get_weather", city="Paris")
        assert [block.type for block in weather.content] == ["text", "image"]
        content = weather.structured_content or {}
        assert content["text"].startswith(HOSTILE)
        assert (len(content["text"]), content["cut"]) == (50_000, True)
        failure = await tool(client, "ours/fail")
        assert failure.is_error
        assert (failure.structured_content or {})["text"] == "it failed"

    talk(tmp_path, ask, {"ours": SERVER})


def test_a_server_that_dies_is_marked_and_comes_back(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        await find_until(client, lambda reply: not reply["away"])
        assert "server 'ours' does not answer" in error_text(await tool(client, "ours/die"))
        reply = answer(await client.call_tool("find_tools", {"query": "add two numbers", "k": 1}))
        assert list(reply["away"]) == ["ours"]
        assert (reply["tools"][0]["name"], reply["tools"][0]["away"]) == ("ours/add_numbers", True)
        recovery = await find_until(client, lambda reply: not reply["away"])
        assert recovery["tools"][0]["away"] is False
        assert answer(await tool(client, "ours/add_numbers", a=2, b=2))["structured"] == {"sum": 4}

    talk(tmp_path, ask, {"ours": SERVER})


def test_a_tool_that_does_not_answer_holds_up_nothing(tmp_path: Path) -> None:
    upstreams = read_servers(write_servers(tmp_path, {"ours": SERVER}), 60.0)

    async def ask(client: Client) -> None:
        await find_until(client, lambda reply: not reply["away"])
        upstreams[0].timeout = 2.0  # it takes longer than that to be started
        async with anyio.create_task_group() as group:
            group.start_soon(slow, client)
            assert answer(await tool(client, "ours/add_numbers", a=1, b=1))["structured"] == {"sum": 2}

    async def slow(client: Client) -> None:
        assert "gave no answer within 2 seconds" in error_text(await tool(client, "ours/sleep"))

    talk_over(upstreams, ask)


def check(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    async def run() -> None:
        async with SchemaChecker() as checker:
            await checker.check_schema(schema)
            await checker.check_arguments("ours/tool", schema, arguments)

    anyio.run(run)


@pytest.mark.parametrize(
    ("schema", "arguments", "says"),
    [
        (SCHEMAS["add_numbers"], {"a": 1}, "'b' is a required property"),
        (SCHEMAS["add_numbers"], {"a": "1", "b": 2}, "a: '1' is not of type 'number'"),
        (SCHEMAS["add_numbers"], {"a": 1, "b": 2, "c": 3}, "Additional properties"),
        (SCHEMAS["get_weather"], {"city": "Paris", "days": 8}, "greater than the maximum"),
        (SCHEMAS["get_weather"], {"city": "P" + "a" * 40 + "!"}, "does not match"),
        (SCHEMAS["abroad"], {"x": 1}, "references that cannot be resolved"),
        ({"$ref": "#"}, {}, "references that cannot be resolved"),
    ],
)
def test_arguments_are_checked_before_a_server_sees_them(
    schema: dict[str, Any], arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        check(schema, arguments)


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (SCHEMAS["get_weather"], {"city": "Paris", "days": 7}),
        ({"patternProperties": {"(a+)+$": {}}, "additionalProperties": False}, {"a" * 40 + "!": 1}),
        ({"properties": {"x": {"pattern": "(?=a)"}}}, {"x": "b"}),
        ({}, {"anything": [1, {"deep": None}]}),
    ],
)
def test_what_fits_a_schema_or_is_for_the_tool_to_judge_passes(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    check(schema, arguments)


def test_the_selector_reads_names_descriptions_and_parameters() -> None:
    tools = [ForeignTool("s", name, f"Does {name}.", SCHEMAS.get(name, {})) for name in ("add_numbers", "other")]
    (add, second) = choices_of(tools)
    assert (add.name, add.description) == ("s/add_numbers", "Does add_numbers. Parameters: a: first summand; b")
    assert second.description == "Does other."


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        ({}, "1 to 100 servers"),
        ([], "1 to 100 servers"),
        ({"a/b": SERVER}, "without '/'"),
        ({"a": {}}, "either command or url"),
        ({"a": {"command": "x", "url": "http://y"}}, "either command or url"),
        ({"a": {"command": 5}}, "command is a text"),
        ({"a": {"command": "x", "args": "y"}}, "list of texts"),
        ({"a": {"command": "x", "env": {"A": 1}}}, "env is an object of texts"),
        ({"a": {"url": "file:///etc/passwd"}}, "https://"),
        ({"a": {"url": "http://x/sse", "type": "sse"}}, "not spoken"),
        ({"a": {**MISSING, "disabled": True}}, "all servers are disabled"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_said(tmp_path: Path, servers: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_servers(write_servers(tmp_path, servers), 1.0)
    with pytest.raises(InputError, match="cannot be read"):
        read_servers(tmp_path / "nothing.json", 1.0)


def test_options_that_do_not_go_together_are_said(tmp_path: Path) -> None:
    options: dict[str, Any] = {"workspace": str(tmp_path), "embedder": "hashing"}
    with pytest.raises(InputError, match="--tools"):
        serve(fitted="x.json", **options)
    with pytest.raises(InputError, match="--dataset"):
        serve(tools="x.json", dataset=["a"], **options)


def test_the_command_line_stands_in_front_over_standard_input_and_output(tmp_path: Path) -> None:
    path = write_servers(tmp_path, {"ours": SERVER})
    arguments = [
        "-m",
        "pointsman",
        "mcp",
        "--tools",
        str(path),
        "--embedder",
        "hashing",
        "--workspace",
        str(tmp_path / "no"),
    ]

    async def run() -> None:
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
        async with Client(stdio_client(parameters)) as client:
            reply = await find_until(client, lambda reply: reply["total"] > 0)
            assert reply["tools"][0]["name"] == "ours/add_numbers"
            assert answer(await tool(client, "ours/add_numbers", a=20, b=22))["structured"] == {"sum": 42}

    anyio.run(run)


def test_over_http_calling_needs_a_key_that_may_write(tmp_path: Path) -> None:
    from pointsman.integrations.mcp.transports import http_app
    from pointsman.service.server.access.request_access import access_of

    pointsman.open(tmp_path / "workspace").make()
    keys = KeyStore(tmp_path / "workspace" / "keys.json")
    reader, full_key = keys.create("reader", scopes=["read"]).text, keys.create("all").text
    upstreams = read_servers(write_servers(tmp_path, {"ours": SERVER}), 30.0)
    service = Toolbox(upstreams, DescriptionSelector(HashingEmbedder()), Limits(), access_of).service()
    app = http_app(service, keys, limits=Limits(), loopback=True, keyless=False, hosts=())

    async def read_only(client: Client) -> None:
        await find_until(client, lambda reply: reply["total"] > 0)
        assert "scope 'write'" in error_text(await tool(client, "ours/add_numbers", a=1, b=2))

    async def all_of_it(client: Client) -> None:
        assert answer(await tool(client, "ours/add_numbers", a=1, b=2))["structured"] == {"sum": 3}

    with in_thread(app) as url:
        anyio.run(ask_as, url, reader, read_only, "auto")
        anyio.run(ask_as, url, full_key, all_of_it, "legacy")


def test_a_server_over_http_may_stand_behind(tmp_path: Path) -> None:
    from pointsman.integrations.mcp import create_http_app
    from test_mcp import fill

    async def ask(client: Client) -> None:
        reply = answer(await tool(client, "library/search", query="switch tracks", datasets=["railway"]))
        assert reply["structured"]["results"][0]["id"] == "railway/switch"

    with fill(tmp_path / "workspace") as library, in_thread(create_http_app(library)) as url:
        talk(tmp_path, ask, {"library": {"url": url, "headers": {"X-Note": "x"}}})


@pytest.mark.parametrize(
    "pair",
    [doubling_references(40), unique_objects(6000), nested_choices(40)],
    ids=["doubling references", "unique objects", "nested choices"],
)
def test_a_schema_that_exhausts_its_checker_does_not_stop_others_and_the_next_one_is_checked(pair: Pair) -> None:
    schema, arguments = pair
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await anyio.sleep(0.01)
            beats += 1

    async def run() -> None:
        async with SchemaChecker() as checker, anyio.create_task_group() as group:
            group.start_soon(beat)
            with pytest.raises(InputError, match="more than 2 seconds of processor time"):
                await checker.check_arguments("ours/tool", schema, arguments)
            assert beats > 20, "the event loop goes on meanwhile"
            await checker.check_arguments("ours/tool", SCHEMAS["add_numbers"], {"a": 1, "b": 2})
            group.cancel_scope.cancel()

    anyio.run(run)


def test_hostile_schemas_and_arguments_end_in_an_answer_or_an_error() -> None:
    random = Random(23)

    async def run() -> None:
        async with SchemaChecker() as checker:
            for pair in [*ODD, *(hostile(random, exhausting=0) for _ in range(60))]:
                for check in (checker.check_schema(pair[0]), checker.check_arguments("ours/tool", *pair)):
                    with suppress(InputError):
                        await check

    anyio.run(run)


def test_a_cancelled_check_does_not_answer_the_next_one() -> None:
    async def run() -> None:
        async with SchemaChecker() as checker:
            await checker.check_schema({})
            with anyio.move_on_after(0.2) as scope:
                await checker.check_arguments("ours/tool", *doubling_references(40))
            assert scope.cancelled_caught
            with pytest.raises(InputError, match="'b' is a required property"):
                await checker.check_arguments("ours/tool", SCHEMAS["add_numbers"], {"a": 1})

    anyio.run(run)


def test_arguments_that_are_too_long_or_too_deep_are_refused_before_they_are_checked() -> None:
    nested_value: Any = 0
    for _ in range(100_000):
        nested_value = [nested_value]

    async def run() -> None:
        async with SchemaChecker() as checker:
            for value, says in (
                ("x" * 1_000_001, "longer than 1,000,000 characters"),
                (nested_value, "nested too deeply"),
            ):
                with pytest.raises(InputError, match=says):
                    await checker.check_arguments("ours/tool", {}, {"x": value})

    anyio.run(run)


def test_files_of_the_working_directory_are_not_modules_of_the_checker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "re2", "jsonschema", "referencing", "resource", "sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text("open('marker', 'w')\nraise SystemExit", "utf-8")
    monkeypatch.chdir(tmp_path)
    check(SCHEMAS["add_numbers"], {"a": 1, "b": 2})
    assert not (tmp_path / "marker").exists()


def test_schemas_of_a_server_are_checked_once_while_they_stay_the_same(caplog: pytest.LogCaptureFixture) -> None:
    upstream = Upstream("ours", ServerAddress("http://127.0.0.1:9"), 60.0)
    definitions = [{"name": "good", "inputSchema": {}}, {"name": "bad", "inputSchema": {"type": "nonsense"}}]
    huge = {"name": "huge", "inputSchema": {"x": "y" * 60_000}}

    async def run() -> None:
        for tools in (definitions, definitions, [*definitions, huge]):
            assert set(await upstream._usable(ToolListing(tools, {}))) == {"good"}

    schemas: list[object] = []
    check_schema = SchemaChecker.check_schema

    async def count_check(self: SchemaChecker, schema: object) -> None:
        schemas.append(schema)
        await check_schema(self, schema)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SchemaChecker, "check_schema", count_check)
        anyio.run(run)
    assert schemas == [{"type": "object"}, {"type": "nonsense"}]
    messages = [record.getMessage() for record in caplog.records]
    assert [sum(f"ours/{name} is left out" in line for line in messages) for name in ("bad", "huge")] == [1, 1]


def raw_server(folder: Path, tools: list[Any]) -> dict[str, Any]:
    """A server whose list of tools is any JSON."""
    file = folder / "tools.json"
    file.write_text(json.dumps(tools), "utf-8")
    return {"command": sys.executable, "args": [raw_tool_server.__file__, str(file)], "env": dict(os.environ)}


def test_tools_that_the_sdk_refuses_are_left_out_alone_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused: dict[str, dict[str, Any]] = {
        "no_object": {"inputSchema": []},
        "no_type": {"inputSchema": {"type": "array"}},
        "properties": {"inputSchema": {"type": "object", "properties": {"x": 7}}},
        "required": {"inputSchema": {"type": "object", "required": [7]}},
        "nothing": {},
        "description": {"inputSchema": {"type": "object"}, "description": {}},
        "nested": {"inputSchema": {"type": "object", "x": json.loads("[" * 900 + "]" * 900)}},
        "half_a_pair": {"inputSchema": {"type": "object", "const": "\ud800"}},
    }
    good = {"name": "good", "inputSchema": {"type": "object"}, "icons": 7, "annotations": "x", "outputSchema": 7}
    tools = [good, *({"name": name, **tool} for name, tool in refused.items()), "no tool", {"name": 7}]

    async def ask(client: Client) -> None:
        for _ in range(2):
            reply = answer(await client.call_tool("find_tools", {"query": "x"}))
            assert [tool["name"] for tool in reply["tools"]] == ["raw/good"]
            assert (reply["total"], reply["left_out"], reply["away"]) == (1, len(refused) + 2, {})
        assert answer(await tool(client, "raw/good"))["text"] == "called"
        assert "cannot be offered; the log" in error_text(await tool(client, "raw/nested"))

    talk(tmp_path, ask, {"raw": raw_server(tmp_path, tools)})
    messages = [record.getMessage() for record in caplog.records]
    assert all(sum(f"raw/{name} is left out" in line for line in messages) == 1 for name in refused)


def test_output_schemas_are_never_evaluated_in_the_event_loop(tmp_path: Path) -> None:
    schema = {**doubling_references(40)[0], "type": "object"}  # the SDK's client would take years
    tools = [{"name": "slow", "inputSchema": {"type": "object"}, "outputSchema": schema}]

    async def ask(client: Client) -> None:
        assert answer(await tool(client, "raw/slow"))["text"] == "called"

    talk(tmp_path, ask, {"raw": raw_server(tmp_path, tools)})


def test_a_list_that_is_no_message_makes_its_server_unavailable_and_says_why(tmp_path: Path) -> None:
    long = {"name": "long", "inputSchema": {"type": "object", "x": "y" * MAX_BYTES}}

    async def ask(client: Client) -> None:
        reply = await find_until(client, lambda reply: reply["away"]["raw"] != "it is being started")
        assert "longer than 8 MB" in reply["away"]["raw"]
        assert reply["total"] == len(SCHEMAS) - 1

    talk(tmp_path, ask, {"raw": raw_server(tmp_path, [long]), "ours": SERVER})


@given(
    st.recursive(
        st.none() | st.integers() | st.text('"\\[{]}\u00e9', max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\[', max_size=2), inner, max_size=3),
    ),
    st.integers(0, 400),
)
def test_pruned_json_is_the_same_down_to_the_depth_that_is_read(value: Any, depth: int) -> None:
    line = ('{"x":[' * depth + json.dumps(value) + ',"beside"]}' * depth).encode()
    result = json.loads(pruned(line))
    if 2 * depth + 20 < 150:
        assert result == json.loads(line)
    for _ in range(min(depth, 74)):
        assert result["x"][1] == "beside"
        result = result["x"][0]
    assert depth < 76 or result in (TOO_DEEP, {"x": TOO_DEEP}), "and a marker there"


@given(st.text('ab\\"\u20ac\U0001f600\ud83d\ude00', max_size=12))
@example("\\ud83d\ud83d\ude00\ude00")
def test_halves_of_surrogate_pairs_are_marked_and_nothing_else_changes(text: str) -> None:
    unicode_text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert json.loads(with_unicode_only(json.dumps(text).encode())) == re.sub(
        "[\ud800-\udfff]", NOT_UNICODE, unicode_text
    )


def test_bytes_that_are_not_utf_8_are_marked() -> None:
    assert with_unicode_only(b'["\xc3\xa9", "a\xff\xfeb"]').decode() == f'["é", "a{NOT_UNICODE}b"]'


@pytest.mark.parametrize("line", [b'["\\"' * 200_000, b'"' * 500_001, b"[" * 1_000_000, b'{"a' + b"\\" * 1_000_001])
def test_what_is_no_json_is_no_message_in_linear_time(line: bytes) -> None:
    assert isinstance(message_of(line), ValueError)
    assert isinstance(pruned(line), bytes)


# ── more values than may be parsed at once ───────────────────────────────────────────────────────────────────────────

CROWD: list[Any] = [[]] * (MAX_VALUES + 1)


def test_a_result_with_too_many_values_is_an_error_of_its_call_alone(tmp_path: Path) -> None:
    def returning(name: str, text: str, structured: dict[str, Any]) -> dict[str, Any]:
        result = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
        return {"name": name, "inputSchema": {"type": "object"}, "result": result}

    tools = [
        returning("crowded", "", {"x": CROWD}),
        returning("textual", json.dumps(CROWD), {}),
        returning("sound", "", {"x": CROWD[:100]}),
    ]

    async def ask(client: Client) -> None:
        assert answer(await tool(client, "raw/sound"))["structured"] == {"x": CROWD[:100]}
        with anyio.fail_after(50):  # a call that got no answer would take 60
            reply = await tool(client, "raw/crowded")
        assert reply.is_error
        assert TOO_MANY_VALUES in str(reply.content)
        text_answer = answer(await tool(client, "raw/textual"))
        assert (text_answer["text"], text_answer["cut"]) == (json.dumps(CROWD)[:RESULT_CHARS], True)

    talk(tmp_path, ask, {"raw": raw_server(tmp_path, tools)})


def test_a_list_with_too_many_values_makes_its_server_unavailable_and_says_why(tmp_path: Path) -> None:
    crowded = {"name": "crowded", "inputSchema": {"type": "object", "x": CROWD}}

    async def ask(client: Client) -> None:
        reply = await find_until(client, lambda reply: reply["away"]["raw"] != "it is being started")
        assert reply["away"]["raw"] == f"its list of tools cannot be read: {TOO_MANY_VALUES} on one page"

    talk(tmp_path, ask, {"raw": raw_server(tmp_path, [crowded])})


def test_text_that_may_be_the_structured_content_is_parsed_only_if_it_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    monkeypatch.setattr(json, "loads", lambda text: lengths.append(len(text)))
    for size in (10, 10_000_000):
        _quoted("raw/x", {"content": [{"type": "text", "text": "[" * size}], "structuredContent": {}})
    assert lengths == [10]


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        (json.dumps(CROWD), True),
        (json.dumps([CROWD[:50_000], CROWD[:50_010]]), True),
        (json.dumps({str(number): 0 for number in range(MAX_VALUES + 2)}), True),
        (json.dumps(CROWD[: MAX_VALUES // 2 - 1]), False),
        (json.dumps(['[,"{\\' * MAX_VALUES, 1]), False),
        ('"' + "," * (MAX_VALUES + 2), False),
    ],
    ids=["a list", "lists", "an object", "few", "a text", "a text without end"],
)
def test_values_are_counted_without_those_in_texts(text: str, is_refused: bool) -> None:
    assert has_too_many_values(text.encode()) is is_refused


@pytest.mark.parametrize(
    ("kind", "chunks", "complaint"),
    [
        ("application/json", [b"[0]"], ""),
        ("application/json", [b'"', b"x" * MAX_BYTES], "longer than 8 MB"),
        ("application/json", [b"[" + b"0," * MAX_VALUES, b"0]"], TOO_MANY_VALUES),
        ("text/event-stream", [b"data: [0]\n\n"] * 50_000, ""),
        ("text/event-stream", [b"data: [", b"0," * 60_000, b"\r", b"\n\r\n", b"0," * 60_000], ""),
        ("text/event-stream", [b"data: [", b"0," * 60_000, b"\r\n", b"0," * 60_000], TOO_MANY_VALUES),
        ("text/event-stream", [b"data: ", *[b"x" * 100_000] * 11], "longer than 1 MB"),
    ],
)
def test_bodies_of_a_server_over_http_are_bounded(kind: str, chunks: list[bytes], complaint: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def fetch(encoding: str) -> bytes:
        headers = {"content-type": kind, "content-encoding": encoding}
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body(), headers=headers))
        async with httpx2.AsyncClient(transport=transport, event_hooks={"response": [bound_response]}) as client:
            return (await client.get("http://tools.test")).content

    if complaint:
        with pytest.raises(httpx2.StreamError, match=complaint):
            anyio.run(fetch, "identity")
    else:
        assert anyio.run(fetch, "identity") == b"".join(chunks)
    with pytest.raises(httpx2.StreamError, match="compressed"):
        anyio.run(fetch, "gzip")


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_a_server_over_http_that_sends_too_many_values_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = json.loads((await receive()).get("body") or b"{}")
        result: dict[str, Any] = {"tools": [{"name": "crowded", "inputSchema": {"type": "object", "x": CROWD}}]}
        if request.get("method") == "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
            result = {**about, "protocolVersion": request["params"]["protocolVersion"]}
        text = json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "result": result})
        body = text.encode() if kind == "application/json" else f"event: message\ndata: {text}\n\n".encode()
        status = 200 if "id" in request else 202
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]})
        await send({"type": "http.response.body", "body": body if status == 200 else b""})

    async def ask(client: Client) -> None:
        reply = await find_until(client, lambda reply: reply["away"]["raw"] != "it is being started")
        assert "cannot be read" in reply["away"]["raw"] or "cannot be reached" in reply["away"]["raw"]
        assert reply["total"] == len(SCHEMAS) - 1

    with in_thread(app) as url:
        talk(tmp_path, ask, {"raw": {"url": url}, "ours": SERVER})


def test_collections_of_a_server_leave_out_what_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen_counts: list[int] = []
    monkeypatch.setattr(anyio, "run", lambda _: frozen_counts.append(gc.get_freeze_count()))
    try:
        transports.over_stdio(toolbox([]).service())
    finally:
        gc.unfreeze()
    assert frozen_counts[0] > 100_000
