"""The base of language models, how any of them is asked, and the scripted one."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest

from pointsman.llm.base_llm import BaseLLM, Completion, Usage, aask, ask
from pointsman.llm.prompt_templates import check_template
from pointsman.llm.scripted_llm import Delay, ScriptedLLM
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.protocols import LLM

SCHEMA = {"type": "object"}


class Sync(BaseLLM):
    def complete(self, prompt: str) -> Completion:  # type: ignore[override]  # may do without a schema
        return Completion(f"{prompt} {threading.current_thread() is threading.main_thread()}")


class Async(BaseLLM):
    async def acomplete(self, prompt: str, *, schema: Any = None) -> Completion:
        await asyncio.sleep(0)
        return Completion(f"{prompt} {schema}")


def test_each_twin_comes_from_the_other() -> None:
    assert Sync().complete("a").text == "a True"
    assert asyncio.run(Sync().acomplete("a", schema=SCHEMA)).text == "a False"
    assert Async().complete("a", schema=SCHEMA).text == f"a {SCHEMA}"
    with pytest.raises(TypeError, match="neither complete nor acomplete"):
        type("Neither", (BaseLLM,), {})
    assert isinstance(Sync(), LLM)


def test_ask_takes_whatever_completes() -> None:
    class Text:
        def complete(self, prompt: str) -> str:
            return prompt.upper()

    class OnlyAsync:
        async def acomplete(self, prompt: str) -> str:
            return prompt.upper()

    class AsyncComplete:
        async def complete(self, prompt: str) -> str:
            return prompt.upper()

    class StructuredModel:
        def complete(self, prompt: str, schema: Any = None) -> Completion:
            return Completion("", schema)

    for llm in (Text(), OnlyAsync(), AsyncComplete()):
        assert ask(llm, "a", schema=SCHEMA).text == asyncio.run(aask(llm, "a", schema=SCHEMA)).text == "A"
    assert ask(StructuredModel(), "a", schema=SCHEMA).data == SCHEMA
    assert asyncio.run(aask(StructuredModel(), "a", schema=SCHEMA, timeout=60)).data == SCHEMA


@pytest.mark.parametrize("answer", [None, 7, Completion(None)])  # type: ignore[arg-type]
def test_an_answer_without_a_text_is_a_model_error(answer: Any) -> None:
    class Odd:
        def complete(self, prompt: str) -> Any:
            return answer

    with pytest.raises(ModelError, match=r"Odd returned .* without a text"):
        ask(Odd(), "a")
    with pytest.raises(ModelError, match=r"Odd returned .* without a text"):
        asyncio.run(aask(Odd(), "a"))


def test_what_is_no_model_is_an_input_error() -> None:
    with pytest.raises(InputError, match="object has neither"):
        ask(object(), "a")
    with pytest.raises(InputError, match="object has neither"):
        asyncio.run(aask(object(), "a"))


def test_foreign_errors_are_translated_and_ours_are_not() -> None:
    for timeout in (None, 60):
        with pytest.raises(ModelError, match="ScriptedLLM failed: KeyError: 'x'") as error_info:
            ask(ScriptedLLM([KeyError("x")]), "a", timeout=timeout)
        assert isinstance(error_info.value.__cause__, KeyError)
        with pytest.raises(InputError):
            ask(ScriptedLLM([InputError("x")]), "a", timeout=timeout)
    with pytest.raises(ModelError, match="KeyError"):
        asyncio.run(aask(ScriptedLLM([KeyError("x")]), "a"))


def test_a_call_that_hangs_is_abandoned() -> None:
    release = threading.Event()

    class Hangs:
        def complete(self, prompt: str) -> str:
            release.wait(60)
            ended_prompts.append(prompt)
            return "late"

    ended_prompts: list[str] = []
    with pytest.raises(ModelError, match=r"Hangs did not answer within 0.05 s"):
        ask(Hangs(), "a", timeout=0.05)
    assert not ended_prompts
    with pytest.raises(ModelError, match=r"did not answer within 0.05 s"):
        asyncio.run(aask(ScriptedLLM([Delay(60, "late")]), "a", timeout=0.05))

    async def ask_in_thread() -> None:
        with pytest.raises(ModelError, match="did not answer"):
            await aask(Hangs(), "a", timeout=0.05)
        assert not ended_prompts
        release.set()

    asyncio.run(ask_in_thread())


def test_usage_sums() -> None:
    assert Usage(1, 2, 3) + Usage(10, 20, 30) == Usage(11, 22, 33)


def test_a_script_by_list() -> None:
    llm = ScriptedLLM(["one", {"choice": 2}, ValueError("boom")])
    assert llm.complete("a b").text == "one"
    assert asyncio.run(llm.acomplete("b")).text == '{"choice": 2}'
    with pytest.raises(ValueError, match="boom"):
        llm.complete("c")
    with pytest.raises(ModelError, match="3 replies, and this is call 4"):
        llm.complete("d")
    assert [call.prompt for call in llm.calls] == ["a b", "b", "c", "d"]


def test_a_script_by_rules_and_by_function() -> None:
    llm = ScriptedLLM({"weather": "rain", re.compile(r"\d+"): Delay(0.001, "a number")})
    assert [llm.complete(text).text for text in ("the weather in 2024", "in 2024")] == ["rain", "a number"]
    with pytest.raises(ModelError, match="no rule of the script fits"):
        llm.complete("something else")
    assert ScriptedLLM(lambda prompt: prompt[::-1]).complete("abc").text == "cba"
    with pytest.raises(InputError, match=r"write \[text\]"):
        ScriptedLLM("text")


def test_a_script_that_supports_schemas() -> None:
    llm = ScriptedLLM(['{"a": 1}', "prose"], supports_schema=True)
    first, second = llm.complete("x", schema=SCHEMA), llm.complete("x")
    assert (first.data, second.data) == ({"a": 1}, None)
    assert [call.schema for call in llm.calls] == [SCHEMA, None]
    assert first.usage == Usage(1, 2, 1)


@pytest.mark.parametrize(
    ("template", "used"),
    [("Choose.", "nothing"), ("$query $other", r"\$other, \$query"), ("$query for 5 $", r"\$query")],
)
def test_a_template_with_wrong_placeholders_is_refused(template: str, used: str) -> None:
    check_template("single", "$query, at most $most, in $$", {"query"}, {"query", "most"})
    message = rf"'single' needs \$query and may use \$most, \$query; it uses {used}; write \$\$ for a dollar sign"
    with pytest.raises(InputError, match=message):
        check_template("single", template, {"query"}, {"query", "most"})
