"""Compression by a language model, whose answers are checked against the source."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pointsman.llm.attempts import usable_answer
from pointsman.llm.base_llm import Completion, Schema, checked_model, object_schema
from pointsman.llm.prompt_templates import fenced, fill, for_language_of, quoted, templates
from pointsman.retrieval.refine.compress.base_compressor import BaseCompressor, Compressed
from pointsman.retrieval.refine.compress.compress_answers import references, summary
from pointsman.retrieval.refine.compress.compress_prompts import COMPRESSION, NOTHING, CompressionPrompts
from pointsman.retrieval.refine.compress.extractive import ExtractiveCompressor, Sentences
from pointsman.retrieval.refine.compress.spans import Unit, regions
from pointsman.retrieval.refine.compress.spans import fill as filled
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.parallel_calls import Mode, Tasks, ThreadTasks
from pointsman.tools.sync_and_async import await_each, wait_for
from pointsman.values.argument_checks import check_count, check_seconds
from pointsman.values.types import Excerpt, Hit, Query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_log = logging.getLogger(__name__)

LONGEST_INPUT: Final = 12_000
"""The most characters of one document shown to a model; of a longer one, the best sentences by words."""

_NONE_OF_IT = "the model found nothing in it that is relevant to the query"


class LLMCompressor(BaseCompressor):
    """Asks a language model about each hit, several at once, and keeps what can be verified.

    What has no bearing on the query goes, however short the texts are; summaries are made only of texts that exceed
    the budget.

    ``"extract"``: the model names sentences by number, best first (quotations are looked up and accepted too). Only
    sentences of the source are kept, with their offsets, from each hit in turn until the budget is full; sentences that
    do not exist are dropped, and ``detail`` says so.

    ``"summary"``: each hit gets a fair share of the budget and a summary without spans. A summary cannot be verified
    word by word. It is rejected if it is empty, declines, repeats the prompt, is neither in the query's language nor in
    the source's script, has a number that neither source nor query has, or shares less than a third of its vocabulary
    with them; one that is too long is cut after a whole sentence.

    A hit without a usable answer after ``1 + retries`` calls is compressed by the fallback, and so is the whole answer
    if the model finds nothing in any hit; ``degraded`` says so.
    """

    def __init__(
        self,
        llm: Any,
        mode: Literal["extract", "summary"] = "extract",
        *,
        max_chars: int | None = None,
        max_tokens: int | None = None,
        count_tokens: Callable[[str], int] | None = None,
        fallback: ExtractiveCompressor | None = None,
        retries: int = 1,
        call_timeout: float | None = 30.0,
        concurrency: int = 4,
        prompts: CompressionPrompts | Mapping[str, CompressionPrompts] | None = None,
    ) -> None:
        """Choose the model and the fallback.

        Args:
            llm: anything with ``complete(prompt)``; see `pointsman.llm.base_llm.ask`.
            mode: ``"extract"`` or ``"summary"``.
            max_chars: for all texts of an answer together; see `BaseCompressor`.
            max_tokens: in tokens instead.
            count_tokens: counts tokens.
            fallback: compresses in the model's place; by words alone by default. Its own budget is ignored.
            retries: how often the model is asked again about a hit.
            call_timeout: seconds for one call; None leaves it to the model.
            concurrency: the maximum number of parallel calls.
            prompts: other templates, for all languages or by language; other languages keep the built-in ones.

        Raises:
            InputError: an argument is out of range.
        """
        super().__init__(max_chars=max_chars, max_tokens=max_tokens, count_tokens=count_tokens)
        if mode not in ("extract", "summary"):
            raise InputError(f"mode is 'extract' or 'summary', not {mode!r:.80}")
        check_count(retries, "retries", 0)
        check_count(concurrency, "concurrency")
        check_seconds(call_timeout, "call_timeout")
        self.whole_if_short = mode == "summary"
        self.llm, self.mode, self.retries = checked_model(llm), mode, retries
        self.call_timeout, self.concurrency = call_timeout, concurrency
        self.fallback = fallback or ExtractiveCompressor()
        self.prompts = templates(prompts, COMPRESSION)

    def compress(self, query: str | Query, hits: Sequence[Hit]) -> Compressed:
        """Ask about each hit, at most ``concurrency`` at once."""
        return wait_for(self._compress, ThreadTasks(), query, hits)

    async def acompress(self, query: str | Query, hits: Sequence[Hit]) -> Compressed:
        """Async version of `compress`; uses the model's ``acomplete`` if it has one."""
        return await self._compress(Tasks(), query, hits)

    async def _compress(self, mode: Tasks, query: str | Query, hits: Sequence[Hit]) -> Compressed:
        task = (_Extraction if self.mode == "extract" else _Summary)(self, Query.of(query), hits)
        await await_each([partial(task.ask, mode, number) for number in task.inquiries], self.concurrency)
        return task.compressed()


class _Inquiry(NamedTuple):
    """What a model is asked about one hit."""

    prompt: str
    read: Callable[[str], Any]
    schema: Schema | None = None


class _Task:
    """Shared by both modes: the prompts, an inquiry about each hit that needs one, and the fallback."""

    def __init__(self, compressor: LLMCompressor, query: Query, hits: Sequence[Hit]) -> None:
        self.compressor, self.query, self.hits = compressor, query, hits
        self.prompts = for_language_of(query.text, compressor.prompts)
        self.sentences = Sentences(query.text, hits)
        self.by_hit: list[list[int]] = [[] for _ in hits]
        for index, unit in enumerate(self.sentences.units):
            self.by_hit[unit.hit].append(index)
        self.inquiries: dict[int, _Inquiry] = {}
        self.results: dict[int, Any] = {}
        self.failed: dict[int, str] = {}
        """The hits without a usable answer, and why."""

    async def ask(self, mode: Mode, number: int) -> None:
        """Ask the model about a hit."""
        prompt, read_text, schema = self.inquiries[number]

        def read(answer: Completion, _: str) -> Any:
            return read_text(answer.text_or_json)

        compressor, tries = self.compressor, 1 + self.compressor.retries
        limit = compressor.call_timeout
        try:
            self.results[number] = await usable_answer(
                mode, compressor.llm, prompt, read, tries=tries, corrections=self.prompts, schema=schema, timeout=limit
            )
        except ModelError as error:
            self.failed[number] = str(error)

    @property
    def cause(self) -> str:
        """Why the first of the hits without a usable answer has none."""
        return self.failed[min(self.failed)][:300]

    def shown(self, number: int) -> list[int]:
        """The sentences of a hit shown to the model, in source order: all, or the best by words."""
        indices = self.by_hit[number]
        if sum(len(self.sentences.texts[position]) for position in indices) <= LONGEST_INPUT:
            return indices
        scores, chosen_indices, room = self.sentences.by_words(), list[int](), LONGEST_INPUT
        for position in sorted(indices, key=lambda position: -scores[position]):
            room -= len(self.sentences.texts[position])
            if room < 0:
                break
            chosen_indices.append(position)
        return sorted(chosen_indices)

    def told(self) -> tuple[str, ...]:
        """Descriptions of the failures."""
        if not self.failed:
            return ()
        message = (
            f"compress: the model gave nothing usable for {len(self.failed)} of {len(self.hits)} hits, "
            f"whose sentences are chosen without it: {self.cause}"
        )
        _log.warning("%s", message)
        return (message,)

    def without_model(self, reason: str) -> Compressed:
        """Compress the whole answer with the fallback."""
        result = self.compressor.fallback.within(self.compressor.budget, self.query, self.hits)
        message = f"compress: {reason}, sentences are chosen without it"
        _log.warning("%s", message)
        return replace(result, degraded=(message, *result.degraded))

    def prompt(self, template: str, text: str, **values: Any) -> str:
        data = {"text": fenced(text), "query": fenced(quoted(self.query.text)), "problem": "", "nothing": NOTHING}
        return fill(template, **{"count": "", "most": "", **data, **values})


class _Extraction(_Task):
    def __init__(self, compressor: LLMCompressor, query: Query, hits: Sequence[Hit]) -> None:
        super().__init__(compressor, query, hits)
        for index in range(len(hits)):
            indices = self.shown(index)
            if indices:
                texts = [self.sentences.texts[number] for number in indices]
                lines = "\n".join(f"({number}) {quoted(text)}" for number, text in enumerate(texts, 1))
                prompt = self.prompt(self.prompts.extract, lines, count=len(indices))
                read = partial(references, texts=texts, template=self.prompts.extract)
                self.inquiries[index] = _Inquiry(prompt, read, _schema(len(indices)))

    def compressed(self) -> Compressed:
        sentences: dict[int, list[int]] = {}
        count_invented = 0
        for hit_number, answer in sorted(self.results.items()):
            indices = self.shown(hit_number)
            sentences[hit_number] = [indices[number] for number in answer.places]
            count_invented += answer.invented
        if self.failed and not self.results:
            return self.without_model(f"the model gave nothing usable: {self.cause}")
        if not any(sentences.values()):
            return self.without_model("the model found nothing relevant to the query")
        degraded = self.told()
        units = {
            hit_number: [self.sentences.units[number] for number in numbers]
            for hit_number, numbers in sentences.items()
        }
        if self.failed:
            best, troubles = self.compressor.fallback.order(self.sentences)
            degraded += troubles
            fair = math.ceil(sum(map(len, sentences.values())) / len(sentences))
            units_by_hit: dict[int, list[Unit]] = {hit_number: [] for hit_number in self.failed}
            for unit in best:
                if unit.hit in units_by_hit and len(units_by_hit[unit.hit]) < fair:
                    units_by_hit[unit.hit].append(unit)
            units |= units_by_hit
        in_turn = zip_longest(*(units[hit_number] for hit_number in sorted(units)))
        order = (unit for unit in chain.from_iterable(in_turn) if unit is not None)
        excerpts = filled(order, self.hits, self.compressor.budget, self.sentences.words)
        detail = f"the model named {sum(map(len, sentences.values()))} of {len(self.sentences.units)} sentences"
        if count_invented:
            detail += f"; {count_invented} that it named do not exist and were dropped"
        reasons = {hit_number: _NONE_OF_IT for hit_number, numbers in sentences.items() if not numbers}
        return Compressed(excerpts, detail, degraded, reasons)


class _Summary(_Task):
    def __init__(self, compressor: LLMCompressor, query: Query, hits: Sequence[Hit]) -> None:
        super().__init__(compressor, query, hits)
        budget = compressor.budget
        costs = [budget.cost(self.source(number)) for number in range(len(hits))]
        self.shares = shares(budget.most, costs)
        for number, (share, cost) in enumerate(zip(self.shares, costs, strict=True)):
            if 0 < share < cost:
                source = self.source(number)
                limit = share if budget.count is len else max(1, share * len(source) // cost)
                prompt = self.prompt(self.prompts.summary, quoted(source), most=limit)
                read = partial(
                    summary,
                    source=source,
                    query=query.text,
                    template=self.prompts.summary,
                    fits=partial(self.fits, share),
                )
                self.inquiries[number] = _Inquiry(prompt, read)

    def fits(self, share: int, text: str) -> bool:
        return self.compressor.budget.cost(text) <= share

    def source(self, place: int) -> str:
        """The text of a hit to summarise."""
        hit = self.hits[place]
        full_text = "\n".join(hit.document.text[start:end] for start, end in regions(hit))
        if len(full_text) <= LONGEST_INPUT:
            return full_text
        return "\n".join(self.sentences.texts[number] for number in self.shown(place))

    def compressed(self) -> Compressed:
        if self.failed and not self.results:
            return self.without_model(f"the model gave nothing usable: {self.cause}")
        excerpts: list[Excerpt | None] = []
        reasons: dict[int, str] = {}
        degraded = self.told()
        for number, hit in enumerate(self.hits):
            if number not in self.results:
                room = replace(self.compressor.budget, most=self.shares[number])
                result = self.compressor.fallback.within(room, self.query, [hit]) if self.shares[number] else None
                excerpts.append(result.excerpts[0] if result else None)
                degraded += result.degraded if result else ()
            elif self.results[number]:
                excerpts.append(Excerpt(self.results[number]))
            else:
                excerpts.append(None)
                reasons[number] = _NONE_OF_IT
        if not any(excerpts):
            return self.without_model("the model found nothing relevant to the query")
        count = len(self.results) - len(reasons)
        return Compressed(tuple(excerpts), f"{count} of {len(self.hits)} texts summarised", degraded, reasons)


def shares(limit: int, costs: Sequence[int]) -> list[int]:
    """A fair share of a budget for each: none gets more than its cost, and what one leaves goes to the others.

    >>> shares(100, [10, 200, 300]), shares(2, [5, 5, 5])
    ([10, 45, 45], [1, 1, 0])
    """
    result, remaining = [0] * len(costs), limit
    waiting = sorted(range(len(costs)), key=lambda number: costs[number])
    for index, number in enumerate(waiting):
        result[number] = min(costs[number], -(-remaining // (len(waiting) - index)))
        remaining -= result[number]
    return result


def _schema(count: int) -> Schema:
    numbers = {"type": "integer", "enum": list(range(1, count + 1))}
    return object_schema({"keep": {"type": "array", "items": numbers}})
