"""`LLMSelector`: a language model chooses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pointsman.llm import prompt_templates
from pointsman.llm.attempts import usable_answer
from pointsman.llm.base_llm import Completion, Schema, object_schema
from pointsman.llm.model_answers import DefectError
from pointsman.selector.base_selector import (
    BaseSelector,
    Choices,
    Fallback,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
    as_selector,
    selecting,
)
from pointsman.selector.selection_answers import Parsed, parse_selection
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.parallel_calls import Mode, sync_and_async
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

    async def _select(self, mode: Mode, choices: Choices, query: Query | str) -> SelectorResult:
        """Ask the model; see the class.

        Raises:
            ModelError: no answer was usable, and the fallback is ``"raise"``.
        """
        options = [choice for choice in choices if isinstance(choice, ToolMetadata)]  # all of them: see the base
        question = Query.of(query)
        prompt = self._build_prompt(self._build_choices_text(options), question, len(options))
        parse: Callable[[str], SelectorResult] | None = getattr(self, "_parse_response", None)
        named: tuple[SingleSelection, ...] = ()  # in an answer whose only defect is naming too many

        def read(answer: Completion, asked: str) -> SelectorResult:
            nonlocal named
            if parse is not None:
                return parse(answer.text_or_json)
            reading = parse_selection(
                answer.text_or_json,
                options,
                max_outputs=self.max_outputs,
                is_list=self.select_multi,
                allow_none=self.allow_abstain,
                prompt=asked,
            )
            if reading.defect is not None:
                named = reading.named or named
                raise DefectError(reading.defect, reading.detail)
            if reading.repairs:
                _log.debug("read a model's answer generously: %s", "; ".join(reading.repairs))
            return _result(reading)

        try:
            return await usable_answer(
                mode,
                self.llm,
                prompt,
                read,
                tries=1 + self.retries,
                corrections=prompt_templates.for_language_of(question.text, self.prompts),
                schema=None if parse else _schema(len(options), self),
                timeout=self.timeout,
                count=len(options),
                most=self.max_outputs,
            )
        except ModelError as error:
            complaint, fallback = error, self.fallback
        if named:
            note = f"kept the first {self.max_outputs} of the {len(named)} choices that the model named"
            return _result(Parsed(named[: self.max_outputs], (note,)))
        if fallback == "raise":
            raise ModelError(f"no usable selection from the model: {complaint}") from complaint.__cause__
        if isinstance(fallback, BaseSelector):
            policy = type(fallback).__name__
            result = await mode.one(selecting(fallback, choices, query))
        else:
            policy = fallback
            message = "default to first option" if policy == "first" else "every option is kept"
            reason = f"Parse error, {message} ({complaint})"
            result = SelectorResult(
                [SingleSelection(i, reason) for i in range(1 if policy == "first" else len(options))]
            )
        _log.warning("LLMSelector falls back to %s: %s", policy, complaint)
        return replace(result, fallback=Fallback(str(complaint), policy))

    select, aselect = sync_and_async(_select)


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
