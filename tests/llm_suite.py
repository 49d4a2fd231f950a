"""The suite for language models, which only the project's own tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointsman.evaluation.conformance.suite_samples import SHORT, Conformance, answering
from pointsman.llm.base_llm import ask

if TYPE_CHECKING:
    from pointsman.values.protocols import LLM


class LLMConformance(Conformance):
    """For language models: anything with ``complete(prompt)`` or ``acomplete(prompt)`` that answers with a text.

    Promised: an object with a ``text`` that is a str, or a str; a JSON schema does no harm; works in any thread. The
    content of answers is not tested, and any error is allowed: `pointsman.llm.base_llm.ask` converts it to a
    `ModelError`.
    """

    deterministic = False

    def make(self) -> LLM:
        """Return an instance of your implementation."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a language model")

    def query(self) -> str:
        """Return a prompt."""
        return "Answer with one word: which colour means stop?"

    def _ask(self, subject: Any, text: str) -> Any:
        return ask(subject, text, timeout=SHORT)

    def _sound(self, subject: Any, answer: Any, text: str) -> None:
        assert isinstance(answer.text, str), f"an answer has a text, not {type(answer.text).__name__}"

    def test_a_schema_does_no_harm(self) -> None:
        """It answers when asked for JSON."""
        schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
        with answering("asking with a JSON schema"):
            answer = ask(self.make(), f"{self.query()} Answer in JSON.", schema=schema, timeout=SHORT)
            self._sound(None, answer, "")
