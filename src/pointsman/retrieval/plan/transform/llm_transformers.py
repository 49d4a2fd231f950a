"""Transforms queries with a language model: decompose, expand, fill in from the history."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pointsman.llm.attempts import usable_answer
from pointsman.llm.base_llm import Completion, Schema, checked_model, object_schema
from pointsman.llm.model_answers import DefectError
from pointsman.llm.prompt_templates import (
    check_template,
    fenced,
    fill,
    for_language_of,
    quoted,
    read_templates,
    templates,
)
from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed, distinct, same
from pointsman.retrieval.plan.transform.disambiguate_by_rules import with_earlier_question
from pointsman.retrieval.plan.transform.transform_answers import one, strings, usable
from pointsman.retrieval.run.variant import Variant
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.parallel_calls import Mode, sync_and_async
from pointsman.values.types import Message, Query

_log = logging.getLogger(__name__)

_LONGEST_QUERY = 4_000
"""The longest query, in characters, that is shown to a model; a longer one is searched for unchanged."""

_LONGEST_VARIANT = 500
"""The longest query, in characters, that a model may write; longer texts are not queries."""

_MESSAGES, _MESSAGE_LENGTH = 8, 1_000
"""The number of last history messages shown to a model, and the characters of each."""

_LIST_SCHEMA = object_schema({"queries": {"type": "array", "items": {"type": "string"}}})
_ONE_SCHEMA = object_schema({"query": {"type": "string"}})


@dataclass(frozen=True, slots=True)
class TransformPrompts:
    """Templates; external text is inserted as fenced data.

    Attributes:
        decompose: asks for sub-questions; needs ``$query``, may use ``$most``.
        expand: asks for other ways to ask the same; needs ``$query``, may use ``$most``.
        disambiguate: asks for a self-contained question; needs ``$query`` and ``$history``.
    """

    decompose: str
    expand: str
    disambiguate: str

    def __post_init__(self) -> None:
        for name, required_names, allowed_names in (
            ("decompose", {"query"}, {"query", "most"}),
            ("expand", {"query"}, {"query", "most"}),
            ("disambiguate", {"query", "history"}, {"query", "history"}),
        ):
            check_template(name, getattr(self, name), required_names, allowed_names)


TRANSFORM: Mapping[str, TransformPrompts] = read_templates(
    TransformPrompts, Path(__file__).with_name("transform_prompts.toml")
)


class TransformerOptions(TypedDict, total=False):
    """What every transformer that asks a model takes.

    Attributes:
        timeout: seconds for one call, 30 by default; None leaves it to the model.
        retries: 1: ask once more after an unusable answer; 0 by default.
        prompts: other templates, for all languages or by language; other languages keep the built-in ones.
    """

    timeout: float | None
    retries: int
    prompts: TransformPrompts | Mapping[str, TransformPrompts] | None


class LLMTransformer(BaseTransformer):
    """Asks a model once, and once more if its answer is unusable and ``retries`` is 1.

    Args:
        llm: anything with ``complete(prompt)``; see `pointsman.llm.base_llm.ask`.
        timeout: see `TransformerOptions`, as for the others.
        retries: 0 or 1.
        prompts: other templates.

    Raises:
        InputError: an argument is out of range, or ``llm`` is not a language model.
    """

    _schema: Schema | None = _LIST_SCHEMA

    def __init__(
        self,
        llm: Any,
        *,
        timeout: float | None = 30.0,
        retries: int = 0,
        prompts: TransformPrompts | Mapping[str, TransformPrompts] | None = None,
    ) -> None:
        if retries not in {0, 1}:
            raise InputError(f"retries is 0 or 1, not {retries}")
        self.llm, self.timeout, self.retries = checked_model(llm), timeout, retries
        self.prompts: Mapping[str, Any] = templates(prompts, TRANSFORM)

    async def _transform(self, mode: Mode, query: str | Query) -> Transformed:
        """Ask the model; unusable answers are reported in ``degraded``, and the query stays unchanged."""
        question = Query.of(query)
        if (reason := self._needless(question)) is not None:
            return Transformed(question, detail=reason)
        if len(question.text) > _LONGEST_QUERY:
            complaint = (
                f"the model was not called: the query has {len(question.text)} characters, more than {_LONGEST_QUERY}"
            )
            return Transformed(question, degraded=(complaint,))
        template, prompt = self._prompt(for_language_of(question.text, self.prompts), question)

        def read(answer: Completion, _: str) -> Transformed:
            return self._read(answer, question, template)

        tries, schema, limit = 1 + self.retries, self._schema, self.timeout
        try:
            return await usable_answer(mode, self.llm, prompt, read, tries=tries, schema=schema, timeout=limit)
        except ModelError as error:
            message = self._unusable(str(error))
        _log.warning("%s", message)
        return Transformed(question, degraded=(message,))

    transform, atransform = sync_and_async(_transform)

    def _needless(self, query: Query) -> str | None:
        """Why the model need not be asked; None if it must be."""
        return None if query.text.strip() else "the query is empty"

    def _unusable(self, problem: str) -> str:
        return f"{type(self).__name__}: the model's answer was unusable ({problem}); the query is searched unchanged"

    def _prompt(self, prompts: Any, query: Query) -> tuple[str, str]:
        """Return the template and the prompt."""
        raise NotImplementedError

    def _read(self, answer: Completion, query: Query, template: str) -> Transformed:
        """Parses the answer; raises `DefectError` with the reason if it is unusable."""
        raise NotImplementedError


class _QueryWriter(LLMTransformer):
    """Has a model list queries of one kind, at most ``_number`` of them."""

    _template: str  # the field of `TransformPrompts`
    _kind: str
    _may_be_none = False

    def __init__(self, llm: Any, name: str, number: int, weight: float, options: TransformerOptions) -> None:
        super().__init__(llm, **options)
        if number < 1:
            raise InputError(f"{name} is at least 1, not {number}")
        self._number, self.weight = number, weight

    def _prompt(self, prompts: TransformPrompts, query: Query) -> tuple[str, str]:
        template: str = getattr(prompts, self._template)
        return template, fill(template, query=fenced(quoted(with_earlier_question(query))), most=self._number)

    def _read(self, answer: Completion, query: Query, template: str) -> Transformed:
        texts = strings(answer.text_or_json, answer.data)
        if not texts:
            if self._may_be_none and _empty_list(answer):
                return Transformed(query, detail="the model considers it a simple question")
            raise DefectError(usable(answer.text, query.text, template) or "it lists no queries")
        problems: dict[str, None] = {}
        good = []
        for text in texts:
            problem = usable(text, query.text, template, longest=_LONGEST_VARIANT)
            if problem is None:
                problem = _no_query(text, query.text)
            if problem is None:
                good.append(Variant(text, self._kind, self.weight, by_model=True))
            else:
                problems[problem] = None
        if not good:
            raise DefectError(", ".join(problems))
        variants = distinct(good, query.text)[: self._number]
        degraded = (
            (f"{type(self).__name__}: dropped some of the model's queries: {', '.join(problems)}",) if problems else ()
        )
        return Transformed(query, variants, f"{len(variants)} written by the model", degraded)


class LLMDecomposer(_QueryWriter):
    """Decomposes a complex question with a language model; a simple one gets no variants."""

    _template, _kind, _may_be_none = "decompose", "subquestion", True

    def __init__(
        self, llm: Any, max_subqueries: int = 5, *, weight: float = 1.0, **options: Unpack[TransformerOptions]
    ) -> None:
        """Choose the model.

        Args:
            llm: anything with ``complete(prompt)``; see `pointsman.llm.base_llm.ask`.
            max_subqueries: the maximum number of sub-questions.
            weight: of each of them.
            options: see `TransformerOptions`.

        Raises:
            InputError: an argument is out of range, or ``llm`` is not a language model.
        """
        super().__init__(llm, "max_subqueries", max_subqueries, weight, options)


class LLMExpander(_QueryWriter):
    """Has a language model write other queries for the same thing."""

    _template, _kind = "expand", "expansion"

    def __init__(self, llm: Any, num: int = 3, *, weight: float = 1.0, **options: Unpack[TransformerOptions]) -> None:
        """Choose the model; same arguments as `LLMDecomposer`, with ``num`` queries.

        Raises:
            InputError: an argument is out of range, or ``llm`` is not a language model.
        """
        super().__init__(llm, "num", num, weight, options)


class LLMDisambiguator(LLMTransformer):
    """Has a language model fill in what the conversation leaves implicit; without a history it is not called.

    The model sees the first 1,000 characters of each of the last 8 messages.
    """

    _schema = _ONE_SCHEMA

    def _needless(self, query: Query) -> str | None:
        return super()._needless(query) or (None if query.history else "there is no history")

    def _prompt(self, prompts: TransformPrompts, query: Query) -> tuple[str, str]:
        return prompts.disambiguate, fill(
            prompts.disambiguate, query=fenced(quoted(query.text)), history=fenced(_history_text(query.history))
        )

    def _read(self, answer: Completion, query: Query, template: str) -> Transformed:
        text = one(answer.text_or_json, answer.data)
        longest = max(_LONGEST_VARIANT, 2 * len(query.text))
        problem = usable(text or answer.text, query.text, template, longest=longest)
        if problem is None and not text:
            problem = "it gives no question"
        if problem is not None:
            raise DefectError(problem)
        if same(text) == same(query.text):
            return Transformed(query, detail="the model finds nothing to fill in")
        if any(same(text) == same(message.text) for message in query.history[-_MESSAGES:]):
            raise DefectError("it repeats the history")
        return Transformed(replace(query, text=text), detail=f"{query.text!r} filled in by the model: {text!r}")


_CHATTER = re.compile(
    r"(?:certainly|absolutely|of course|sure(?: thing)?)\s?[!,.]"
    r"|(?:i['’]d|i would|i['’]ll|i will) (?:be )?(?:happy|glad)\b"
    r"|(?:当然|好的|没问题)[!！，,。]|很(?:高兴|乐意)"
    r"|(?:конечно|разумеется|хорошо)\s?[!,.]|(?:с удовольствием|рад помочь)\b",
    re.IGNORECASE,
)


def _no_query(text: str, query: str) -> str | None:
    """Why a text that may be a valid answer is not suitable for a search."""
    if not any(map(str.isalpha, text)) and any(map(str.isalpha, query)):
        return "there is no word in it"
    chatter = _CHATTER.match(text)
    return None if chatter is None or chatter[0].lower() in query.lower() else "it is small talk"


def _empty_list(answer: Completion) -> bool:
    """Whether the answer is JSON with an empty list."""
    bare = "".join(answer.text_or_json.split())
    return bare.endswith(("[]", "[]}", "[]}```", "[]```"))


def _history_text(history: Sequence[Message]) -> str:
    """The history as data, one message per line."""
    return "\n".join(
        f'{{"role": {quoted(message.role[:40])}, "text": {quoted(message.text[:_MESSAGE_LENGTH])}}}'
        for message in history[-_MESSAGES:]
    )
