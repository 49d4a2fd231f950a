from pointsman.llm.base_llm import BaseLLM as BaseLLM, Completion as Completion
from pointsman.llm.openai_llm import DashScopeLLM as DashScopeLLM, OpenAILLM as OpenAILLM
from pointsman.llm.scripted_llm import ScriptedLLM as ScriptedLLM

__all__: list[str]
