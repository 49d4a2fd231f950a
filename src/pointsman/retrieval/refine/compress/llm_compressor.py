"""Compression by a language model, whose answers are checked against the source."""

from __future__ import annotations

import contextvars
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from pointsman.llm.base_llm import Completion, Schema, Talk, aconverse, checked_model, converse, object_schema
from pointsman.llm.prompt_templates import corrected, fenced, fill, for_language_of, quoted, templates
from pointsman.retrieval.refine.compress import compress_answers as model_answers
from pointsman.retrieval.refine.compress.base_compressor import BaseCompressor, Compressed
from pointsman.retrieval.refine.compress.compress_answers import DefectError, References
from pointsman.retrieval.refine.compress.compress_prompts import COMPRESSION, NOTHING, CompressionPrompts
from pointsman.retrieval.refine.compress.extractive import ExtractiveCompressor, Sentences
from pointsman.retrieval.refine.compress.spans import Unit, regions
from pointsman.retrieval.refine.compress.spans import fill as filled
from pointsman.tools.errors import InputError, ModelError
from pointsman.values.types import Excerpt, Hit, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_log = logging.getLogger(__name__)

LONGEST_INPUT: Final = 12_000
"""The most characters of one document shown to a model; of a longer one, the best sentences by words."""

_NONE_OF_IT = "the model found nothing in it that is relevant to the query"

Mode = Literal["extract", "summary"]


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
        mode: Mode = "extract",
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
        if retries < 0 or concurrency < 1:
            raise InputError(f"retries is at least 0 and concurrency at least 1, not {retries} and {concurrency}")
        if call_timeout is not None and not (math.isfinite(call_timeout) and call_timeout > 0):
            raise InputError(f"call_timeout is in seconds, above 0, or None for no limit, not {call_timeout!r}")
        self.whole_if_short = mode == "summary"
        self.llm, self.mode, self.retries = checked_model(llm), mode, retries
        self.call_timeout, self.concurrency = call_timeout, concurrency
        self.fallback = fallback or ExtractiveCompressor()
        self.prompts = templates(prompts, COMPRESSION)

    def compress(self, query: str | Query, hits: Sequence[Hit]) -> Compressed:
        """Ask about each hit, at most ``concurrency`` at once."""
        task = self._task(query, hits)
        with ThreadPoolExecutor(self.concurrency, "pointsman-compress") as pool:
            running = [
                pool.submit(contextvars.copy_context().run, self._converse, conversation) for conversation in task.open
            ]
            for job in running:
                job.result()
        return task.compressed()

    async def acompress(self, query: str | Query, hits: Sequence[Hit]) -> Compressed:
        """Async version of `compress`; uses the model's ``acomplete`` if it has one."""
        task = self._task(query, hits)
        limiter = anyio.CapacityLimiter(self.concurrency)

        async def converse(attempts: _Attempts) -> None:
            async with limiter:
                await aconverse(self.llm, attempts.talk(), schema=attempts.schema, timeout=self.call_timeout)

        async with anyio.create_task_group() as group:
            for attempts in task.open:
                group.start_soon(converse, attempts)
        return task.compressed()

    def _converse(self, attempts: _Attempts) -> None:
        converse(self.llm, attempts.talk(), schema=attempts.schema, timeout=self.call_timeout)

    def _task(self, query: str | Query, hits: Sequence[Hit]) -> _Extraction | _Summary:
        query = Query.of(query)
        return _Extraction(self, query, hits) if self.mode == "extract" else _Summary(self, query, hits)


class _Attempts:
    """The conversation about one hit: the next prompt, and the result."""

    def __init__(
        self,
        prompts: CompressionPrompts,
        prompt: str,
        read: Callable[[str], Any],
        tries: int,
        schema: Schema | None = None,
    ) -> None:
        self.prompts, self.first_prompt, self.prompt = prompts, prompt, prompt
        self.read, self.tries_left, self.schema = read, tries, schema
        self.result: Any = None
        self.complaint = ""

    def talk(self) -> Talk[None]:
        while self.tries_left:
            answer = yield self.prompt
            if isinstance(answer, ModelError):
                self.unusable("failed", str(answer))
            else:
                self.hear(answer)

    def hear(self, answer: Completion) -> None:
        try:
            self.result = self.read(answer.text_or_json)
        except DefectError as error:
            self.unusable(error.defect, str(error))
        else:
            self.tries_left, self.complaint = 0, ""

    def unusable(self, problem: str, reason: str) -> None:
        self.tries_left -= 1
        self.complaint = reason
        _log.info("a model's answer cannot be used for compression (%s); %d more attempts", reason, self.tries_left)
        words = self.prompts.problems.get(problem, problem)
        correction = corrected(self.first_prompt, self.prompts.retry, words)
        self.prompt = self.first_prompt if problem == "failed" else correction


class _Task:
    """Shared by both modes: the prompts, one conversation per hit that needs one, and the fallback."""

    def __init__(self, compressor: LLMCompressor, query: Query, hits: Sequence[Hit]) -> None:
        self.compressor, self.query, self.hits = compressor, query, hits
        self.prompts = for_language_of(query.text, compressor.prompts)
        self.sentences = Sentences(query.text, hits)
        self.by_hit: list[list[int]] = [[] for _ in hits]
        for index, unit in enumerate(self.sentences.units):
            self.by_hit[unit.hit].append(index)
        self.conversations: dict[int, _Attempts] = {}

    @property
    def open(self) -> list[_Attempts]:
        return list(self.conversations.values())

    @property
    def failed(self) -> list[int]:
        """The hits without a usable answer."""
        return [number for number, attempts in self.conversations.items() if attempts.complaint]

    def converse(self, number: int, prompt: str, read: Callable[[str], Any], schema: Schema | None = None) -> None:
        self.conversations[number] = _Attempts(self.prompts, prompt, read, 1 + self.compressor.retries, schema)

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
        failed_hits = self.failed
        if not failed_hits:
            return ()
        cause = self.conversations[failed_hits[0]].complaint[:300]
        message = (
            f"compress: the model gave nothing usable for {len(failed_hits)} of {len(self.hits)} hits, "
            f"whose sentences are chosen without it: {cause}"
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
                self.converse(index, prompt, self.reader(texts), _schema(len(indices)))

    def reader(self, texts: Sequence[str]) -> Callable[[str], References]:
        return lambda answer: model_answers.references(answer, texts, self.prompts.extract)

    def compressed(self) -> Compressed:
        failed_hits, sentences = self.failed, dict[int, list[int]]()
        count_invented = 0
        for hit_number, attempts in self.conversations.items():
            if hit_number not in failed_hits:
                indices, answer = self.shown(hit_number), attempts.result
                assert isinstance(answer, References)
                sentences[hit_number] = [indices[number] for number in answer.places]
                count_invented += answer.invented
        if self.conversations and len(failed_hits) == len(self.conversations):
            cause = self.conversations[failed_hits[0]].complaint[:300]
            return self.without_model(f"the model gave nothing usable: {cause}")
        if not any(sentences.values()):
            return self.without_model("the model found nothing relevant to the query")
        degraded = self.told()
        units = {
            hit_number: [self.sentences.units[number] for number in numbers]
            for hit_number, numbers in sentences.items()
        }
        if failed_hits:
            best, troubles = self.compressor.fallback.order(self.sentences)
            degraded += troubles
            fair = math.ceil(sum(map(len, sentences.values())) / len(sentences))
            units_by_hit: dict[int, list[Unit]] = {hit_number: [] for hit_number in failed_hits}
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
                self.converse(number, prompt, self.reader(source, share))

    def source(self, place: int) -> str:
        """The text of a hit to summarise."""
        hit = self.hits[place]
        full_text = "\n".join(hit.document.text[start:end] for start, end in regions(hit))
        if len(full_text) <= LONGEST_INPUT:
            return full_text
        return "\n".join(self.sentences.texts[number] for number in self.shown(place))

    def reader(self, source: str, share: int) -> Callable[[str], str]:
        def fits(text: str) -> bool:
            return self.compressor.budget.cost(text) <= share

        return lambda answer: model_answers.summary(answer, source, self.query.text, self.prompts.summary, fits)

    def compressed(self) -> Compressed:
        failed_hits = self.failed
        if self.conversations and len(failed_hits) == len(self.conversations):
            complaint = self.conversations[failed_hits[0]].complaint[:300]
            return self.without_model(f"the model gave nothing usable: {complaint}")
        excerpts: list[Excerpt | None] = []
        reasons: dict[int, str] = {}
        degraded = self.told()
        for number, hit in enumerate(self.hits):
            attempts = self.conversations.get(number)
            if attempts is None or attempts.complaint:
                room = replace(self.compressor.budget, most=self.shares[number])
                result = self.compressor.fallback.within(room, self.query, [hit]) if self.shares[number] else None
                excerpts.append(result.excerpts[0] if result else None)
                degraded += result.degraded if result else ()
            elif attempts.result:
                excerpts.append(Excerpt(attempts.result))
            else:
                excerpts.append(None)
                reasons[number] = _NONE_OF_IT
        if not any(excerpts):
            return self.without_model("the model found nothing relevant to the query")
        count = len(self.conversations) - len(failed_hits) - len(reasons)
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
