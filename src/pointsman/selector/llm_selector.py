"""`LLMSelector`: a language model chooses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pointsman.llm import prompt_templates
from pointsman.llm.base_llm import Completion, Schema, Talk, aconverse, converse, object_schema
from pointsman.selector.base_selector import (
    BaseSelector,
    Choices,
    Fallback,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
    as_selector,
)
from pointsman.selector.selection_answers import Parsed, parse_selection
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.types import Query

_log = logging.getLogger(__name__)

_POLICIES = ("first", "all", "raise")


class LLMSelector(BaseSelector):
    """Shows a language model the numbered choices and follows its answer.

    The answer is parsed as a careful reader would read it (`pointsman.selector.selection_answers`). After an unusable
    answer the model is asked again with the problem named; a failed call is repeated too. After ``1 + retries`` calls
    the ``fallback`` decides, which is reported in the result's ``fallback`` and logged as a warning. If the model keeps
    naming more choices than allowed, no fallback is needed: the first ones named are selected, and ``notes`` says so.

    A subclass may write its own prompt by overriding ``_build_choices_text(choices)`` or ``_build_prompt(choices_text,
    query, num_choices)``, and read answers itself with a method ``_parse_response(response) -> SelectorResult``.

    ``confidence`` is the model's own number for its first selection if it volunteers one from 0 to 1, else None: models
    are not asked for it, as their own estimates are not calibrated.
    """

    def __init__(
        self,
        llm: Any,
        select_multi: bool = False,
        max_outputs: int = 1,
        *,
        fallback: str | BaseSelector = "first",
        allow_abstain: bool = False,
        retries: int = 1,
        prompts: prompt_templates.SelectionPrompts | Mapping[str, prompt_templates.SelectionPrompts] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Set the model and the fallback for unusable answers.

        Args:
            llm: anything with ``complete(prompt)``; see `pointsman.llm.base_llm.ask`.
            select_multi: whether several choices may be selected; if False, ``max_outputs`` is ignored.
            max_outputs: maximum number of selections.
            fallback: ``"first"`` selects the first choice, ``"all"`` every one, ``"raise"`` raises `ModelError`;
                another selector is used in place of the model.
            allow_abstain: whether the model may say that no choice fits.
            retries: maximum number of further calls.
            prompts: custom templates, for all languages or by language; other languages keep the default.
            timeout: seconds per call; None leaves it to the model.

        Raises:
            InputError: an argument is out of range, or the fallback is unknown.
        """
        if not (isinstance(max_outputs, int) and isinstance(retries, int) and max_outputs >= 1 and retries >= 0):
            raise InputError(f"max_outputs is at least 1 and retries at least 0, not {max_outputs!r} and {retries!r}")
        if isinstance(fallback, str) and fallback not in _POLICIES:
            raise InputError(f"fallback is one of {', '.join(_POLICIES)} or a selector, not {fallback!r:.80}")
        self.llm = llm
        self.select_multi = select_multi
        self.max_outputs = max_outputs if select_multi else 1
        self.fallback = fallback if isinstance(fallback, str) else as_selector(fallback)
        self.allow_abstain = allow_abstain
        self.retries = retries
        self.timeout = timeout
        self.prompts = prompt_templates.templates(prompts, prompt_templates.SELECTION)

    def _build_choices_text(self, choices: Sequence[ToolMetadata]) -> str:
        return prompt_templates.fenced(
            prompt_templates.option_lines([(choice.name, choice.description) for choice in choices])
        )

    def _build_prompt(self, choices_text: str, query: Query, num_choices: int) -> str:
        prompts = prompt_templates.for_language_of(query.text, self.prompts)
        prompt = prompt_templates.fill(
            prompts.multi if self.select_multi else prompts.single,
            options=choices_text,
            query=prompt_templates.fenced(prompt_templates.quoted(query.text)),
            count=num_choices,
            most=self.max_outputs,
            problem="",
        )
        return f"{prompt}\n{prompts.none}" if self.allow_abstain else prompt

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Ask the model; see the class.

        Raises:
            ModelError: no answer was usable, and the fallback is ``"raise"``.
        """
        attempts = _SelectionAttempts(self, choices, query)
        converse(self.llm, attempts.talk(), schema=attempts.schema, timeout=self.timeout)
        if attempts.result is None and isinstance(self.fallback, BaseSelector):
            return attempts.delegate(self.fallback.select(choices, query))
        return attempts.result or attempts.by_policy()

    async def aselect(self, choices: Choices, query: Query | str) -> SelectorResult:
        """Async version of `select`; uses ``acomplete`` if the model has it."""
        attempts = _SelectionAttempts(self, choices, query)
        await aconverse(self.llm, attempts.talk(), schema=attempts.schema, timeout=self.timeout)
        if attempts.result is None and isinstance(self.fallback, BaseSelector):
            return attempts.delegate(await self.fallback.aselect(choices, query))
        return attempts.result or attempts.by_policy()


class _SelectionAttempts:
    """Shared logic of ``select`` and ``aselect``: what to ask next and how to combine the answers."""

    def __init__(self, selector: LLMSelector, choices: Choices, query: Query | str) -> None:
        self.selector = selector
        self.choices = [choice for choice in choices if isinstance(choice, ToolMetadata)]  # all of them: see the base
        question = Query.of(query)
        self.prompts = prompt_templates.for_language_of(question.text, selector.prompts)
        texts = selector._build_choices_text(self.choices)  # noqa: SLF001  (this class is a part of the selector)
        prompt = selector._build_prompt(texts, question, len(self.choices))  # noqa: SLF001
        self.first_prompt = self.prompt = prompt
        self.parse: Callable[[str], SelectorResult] | None = getattr(selector, "_parse_response", None)
        self.schema = None if self.parse else _schema(len(self.choices), selector)
        self.attempts_left = 1 + selector.retries
        self.result: SelectorResult | None = None
        self.named: tuple[SingleSelection, ...] = ()  # from an answer whose only defect is naming too many
        self.complaint = ""
        self.error: ModelError | None = None

    def talk(self) -> Talk[None]:
        while self.result is None and self.attempts_left > 0:
            answer = yield self.prompt
            if isinstance(answer, ModelError):
                self.error = answer
                self._ask_again("failed", str(answer))
            else:
                self.hear(answer)

    def hear(self, answer: Completion) -> None:
        text = answer.text_or_json
        if self.parse is not None:
            self.result = self.parse(text)
            return
        selector = self.selector
        reading = parse_selection(
            text,
            self.choices,
            max_outputs=selector.max_outputs,
            is_list=selector.select_multi,
            allow_none=selector.allow_abstain,
            prompt=self.prompt,
        )
        if reading.defect is None:
            self.result = _result(reading)
            if reading.repairs:
                _log.debug("read a model's answer generously: %s", "; ".join(reading.repairs))
        else:
            self.named = reading.named or self.named
            self._ask_again(reading.defect.value, f"{reading.defect.value}: {reading.detail}")

    def _ask_again(self, problem: str, complaint: str) -> None:
        self.attempts_left -= 1
        self.complaint = complaint
        if self.named and not self.attempts_left:
            limit = self.selector.max_outputs
            note = f"kept the first {limit} of the {len(self.named)} choices that the model named"
            self.result = _result(Parsed(self.named[:limit], (note,)))
            return
        _log.info("a model's answer cannot be followed (%s); %d more attempts", complaint, self.attempts_left)
        words = self.prompts.problems.get(problem, problem)
        counts = {"count": len(self.choices), "most": self.selector.max_outputs}
        correction = prompt_templates.corrected(self.first_prompt, self.prompts.retry, words, **counts)
        self.prompt = self.first_prompt if problem == "failed" else correction

    def delegate(self, result: SelectorResult) -> SelectorResult:
        """Return another selector's result, marked as a fallback."""
        policy = type(self.selector.fallback).__name__
        _log.warning("LLMSelector falls back to %s: %s", policy, self.complaint)
        return replace(result, fallback=Fallback(self.complaint, policy))

    def by_policy(self) -> SelectorResult:
        """Return the result of the named fallback policy.

        Raises:
            ModelError: the policy is ``"raise"``.
        """
        policy = str(self.selector.fallback)
        if policy == "raise":
            raise ModelError(f"no usable selection from the model: {self.complaint}") from self.error
        _log.warning("LLMSelector falls back to %r: %s", policy, self.complaint)
        first = policy == "first"
        message = "default to first option" if first else "every option is kept"
        indices = range(1 if first else len(self.choices))
        return SelectorResult(
            [SingleSelection(index, f"Parse error, {message} ({self.complaint})") for index in indices],
            fallback=Fallback(self.complaint, policy),
        )


def _result(reading: Parsed) -> SelectorResult:
    selections = [
        selection if selection.reason else replace(selection, reason="the model gave no reason")
        for selection in reading.selections
    ]
    score = selections[0].score if selections else None
    confidence = score if score is not None and 0 <= score <= 1 else None
    return SelectorResult(selections, confidence, notes=reading.repairs)


def _schema(count: int, selector: LLMSelector) -> Schema:
    """Return the JSON schema of the answer; numbers are listed, as not every server supports ranges."""
    choice: Schema = {"type": "integer", "enum": list(range(1, count + 1))}
    if selector.allow_abstain and not selector.select_multi:
        choice = {"anyOf": [choice, {"type": "null"}]}
    single = object_schema({"choice": choice, "reason": {"type": "string"}})
    if not selector.select_multi:
        return single
    minimum = 0 if selector.allow_abstain else 1
    items = {"type": "array", "items": single, "minItems": minimum, "maxItems": min(count, selector.max_outputs)}
    return object_schema({"selections": items})
