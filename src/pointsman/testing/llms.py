"""The suite for language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointsman.llm import ask
from pointsman.testing._shared import SHORT, Conformance, answering

if TYPE_CHECKING:
    from pointsman.protocols import LLM


class LLMConformance(Conformance):
    """For language models: anything with ``complete(prompt)`` or ``acomplete(prompt)`` that answers with a text.

    Promised: an object with a ``text`` that is a str, or a str; a JSON schema does no harm; from any thread. What it
    answers is not looked at, and what it raises is nobody's business: `pointsman.llm.ask` makes a `ModelError` of it.
    """

    deterministic = False

    def make(self) -> LLM:
        """One of yours."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a language model")

    def query(self) -> str:
        """A prompt."""
        return "Answer with one word: which colour means stop?"

    def _ask(self, subject: Any, text: str) -> Any:
        return ask(subject, text, timeout=SHORT)

    def _sound(self, subject: Any, answer: Any, text: str) -> None:  # noqa: ARG002  (for those who need it)
        assert isinstance(answer.text, str), f"an answer has a text, not {type(answer.text).__name__}"

    def test_a_schema_does_no_harm(self) -> None:
        """Asked for JSON, it answers."""
        schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
        with answering("asking with a JSON schema"):
            answer = ask(self.make(), f"{self.query()} Answer in JSON.", schema=schema, timeout=SHORT)
            self._sound(None, answer, "")
