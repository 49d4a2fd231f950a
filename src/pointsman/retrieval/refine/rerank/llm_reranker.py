"""A language model as a reranker: it grades documents one by one, or orders them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

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
from pointsman.retrieval.refine.rerank.base_reranker import BaseReranker
from pointsman.retrieval.refine.rerank.rerank_answers import HIGHEST, read_grade, read_order
from pointsman.retrieval.refine.rerank.rerank_scores import PartialScores
from pointsman.retrieval.refine.rerank.text_length import shortened
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.parallel_calls import Tasks, ThreadTasks
from pointsman.tools.sync_and_async import await_each, wait_for
from pointsman.values.argument_checks import check_count, check_seconds

Mode = Literal["pointwise", "listwise"]
T = TypeVar("T")

WINDOW: Final = 20

_GRADE_SCHEMA: Final = object_schema({"grade": {"type": "integer", "enum": list(range(HIGHEST + 1))}})


@dataclass(frozen=True, slots=True)
class RerankPrompts:
    """The prompts for ranking documents.

    Attributes:
        pointwise: asks for a grade from 0 to 10. ``$query`` and ``$passage`` are fenced data.
        listwise: asks for an order. ``$query`` and ``$passages`` are fenced data; ``$count`` is their number.
        retry: added after an unusable answer; ``$problem`` says why.
        problems: the defects by name, in words, for ``$problem``.
    """

    pointwise: str
    listwise: str
    retry: str
    problems: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name, required_names, allowed_names in (
            ("pointwise", {"query", "passage"}, {"query", "passage"}),
            ("listwise", {"query", "passages"}, {"query", "passages", "count"}),
            ("retry", {"problem"}, {"problem", "count"}),
        ):
            check_template(name, getattr(self, name), required_names, allowed_names)


RERANK: Final[Mapping[str, RerankPrompts]] = read_templates(
    RerankPrompts, Path(__file__).with_name("rerank_prompts.toml")
)


class LLMReranker(BaseReranker):
    """Asks a language model which documents answer the query best.

    - ``"pointwise"``: a grade from 0 to 10 for each document, each in its own call, several at once. A document without
      a grade stays near its place, and ``degraded`` reports the number of them; if that is more than half, the previous
      order is kept.
    - ``"listwise"``: the model orders numbered passages; Sun et al., "Is ChatGPT good at search?", EMNLP 2023,
      https://arxiv.org/abs/2304.09542. More than ``window`` of them are ordered in windows from the last to the first,
      each sharing half with the one before, so that the best rise to the top. Documents that an answer omits stay
      behind those named, in their previous order; unknown numbers and repeats are dropped. A score is the place, from 1
      down to ``1 / n``: it does not say how relevant the best one is.

    The prompt is in the query's language. After an unusable answer the model is asked again, with the problem named.
    """

    def __init__(
        self,
        llm: Any,
        mode: Mode = "pointwise",
        *,
        window: int = WINDOW,
        concurrency: int = 8,
        max_chars: int = 2000,
        call_timeout: float | None = 20.0,
        prompts: RerankPrompts | Mapping[str, RerankPrompts] | None = None,
        name: str | None = None,
        max_candidates: int = WINDOW,
        timeout: float | None = 30.0,
        cache: bool | int = True,
    ) -> None:
        """Choose the model and how to ask it.

        Args:
            llm: anything with ``complete(prompt)``; see `pointsman.llm.base_llm.ask`.
            mode: see the class.
            window: passages in one prompt, in listwise mode.
            concurrency: parallel calls, in pointwise mode.
            max_chars: characters of a document shown to the model, a Chinese one counting as three.
            call_timeout: seconds for one call; None leaves it to ``timeout``.
            prompts: other templates, for all languages or by language; other languages keep the built-in ones.
            name: of the model; scores are cached and distinguished by it; None: ``llm.name`` or ``llm.model`` if
                present, otherwise its class name.
            max_candidates: hits of a ranking to consider: a call each, or a window for every ten or so.
            timeout: seconds for one ``rerank`` or ``refine``, all calls together.
            cache: how many scores to remember.

        Raises:
            InputError: an argument is invalid.
        """
        super().__init__(max_candidates=max_candidates, timeout=timeout, cache=cache)
        if mode not in get_args(Mode):
            raise InputError(f"mode is one of {', '.join(get_args(Mode))}, not {mode!r}")
        check_seconds(call_timeout, "call_timeout")
        if check_count(window, "window") < 2:
            raise InputError("window is at least 2: one passage alone has no order")
        self.llm, self.mode = checked_model(llm), mode
        self.independent = mode == "pointwise"
        self._window = window
        self._concurrency = check_count(concurrency, "concurrency")
        self._max_chars = check_count(max_chars, "max_chars")
        self._call_timeout = call_timeout
        self._prompts = templates(prompts, RERANK)
        self._model = name or next(
            (value for key in ("name", "model") if isinstance(value := getattr(llm, key, None), str) and value),
            type(llm).__name__,
        )

    @property
    def name(self) -> str:
        """The mode and the model."""
        return f"{self.mode}:{self._model}"

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return grades from 0 to 10, or places as scores; see the class.

        Raises:
            ModelError: the model failed or its answers are unusable; pointwise only if no document got a grade.
        """
        return wait_for(self._score, ThreadTasks(), query, texts)

    async def ascore(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Async version of `score`; uses the model's ``acomplete`` if it has one."""
        return await self._score(Tasks(), query, texts)

    async def _score(self, mode: Tasks, query: str, texts: Sequence[str]) -> Sequence[float]:
        prompts = for_language_of(query, self._prompts)
        passages = [shortened(text, self._max_chars) for text in texts]
        method = self._grades if self.mode == "pointwise" else self._order_of_group
        return await method(mode, query, passages, prompts)

    async def _grades(self, mode: Tasks, query: str, texts: Sequence[str], prompts: RerankPrompts) -> Sequence[float]:
        grades = [0.0] * len(texts)
        missing: dict[int, str] = {}

        async def grade(index: int, text: str) -> None:
            prompt = fill(prompts.pointwise, query=fenced(quoted(query)), passage=fenced(quoted(text)))
            try:
                grades[index] = await self._usable_answer(mode, prompt, _GRADE_SCHEMA, read_grade, prompts)
            except ModelError as error:
                missing[index] = str(error)

        await await_each([partial(grade, index, text) for index, text in enumerate(texts)], self._concurrency)
        if len(missing) == len(texts):
            raise ModelError(next(iter(missing.values())))
        return PartialScores(grades, missing)

    async def _order_of_group(
        self, mode: Tasks, query: str, texts: Sequence[str], prompts: RerankPrompts
    ) -> Sequence[float]:
        order = list(range(len(texts)))
        end = len(order)
        while True:
            start = max(0, end - self._window)
            passages = order[start:end]
            if len(passages) > 1:
                lines = "\n".join(f"{number}. {quoted(texts[index])}" for number, index in enumerate(passages, 1))
                prompt = fill(
                    prompts.listwise, query=fenced(quoted(query)), passages=fenced(lines), count=len(passages)
                )
                reader = partial(read_order, count=len(passages))
                answer = await self._usable_answer(mode, prompt, _order_schema(len(passages)), reader, prompts)
                ranked_places = [passages[index] for index in answer]
                order[start:end] = ranked_places + [index for index in passages if index not in set(ranked_places)]
            if not start:
                break
            end -= max(1, self._window // 2)
        scores = [0.0] * len(texts)
        for rank, index in enumerate(order):
            scores[index] = (len(texts) - rank) / len(texts)
        return scores

    async def _usable_answer(
        self, mode: Tasks, prompt: str, schema: Schema, reader: Callable[[str], T], prompts: RerankPrompts
    ) -> T:
        """The model's parsed answer; asks twice at most.

        Raises:
            ModelError: the model failed twice, or its answers are unusable.
        """

        def read(answer: Completion, _: str) -> T:
            return reader(answer.text_or_json)

        limit = self._call_timeout
        try:
            return await usable_answer(
                mode, self.llm, prompt, read, tries=2, corrections=prompts, schema=schema, timeout=limit
            )
        except ModelError as error:
            is_defect = isinstance(error.__cause__, DefectError)
            complaint = f"the answer cannot be used ({error})" if is_defect else error
            raise ModelError(f"{self.name}: {complaint}") from error


def _order_schema(count: int) -> Schema:
    """Lists the numbers, since not every server supports ranges."""
    items = {"type": "integer", "enum": list(range(1, count + 1))}
    return object_schema({"ranking": {"type": "array", "items": items, "minItems": 1, "maxItems": count}})
