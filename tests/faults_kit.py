"""A whole workflow whose every call to the outside can be made to fail, for the tests and for benchmarks/faults.py."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import numpy as np

from pointsman import BaseRetriever, Dataset, Document, Hit, LLMRouter, Query, RetrievalContext, RetrievalWorkflow
from pointsman.embedders.query_vectors import QueryVectors
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm.scripted_llm import Delay, ScriptedLLM
from pointsman.retrieval.plan.transform import LLMExpander
from pointsman.retrieval.refine.compress import LLMCompressor
from pointsman.retrieval.refine.refuse import Refuser, Threshold
from pointsman.retrieval.refine.rerank import BaseReranker
from pointsman.tools.errors import RetrievalError
from pointsman.tools.parallel_calls import Breaker
from pointsman.values.types import Ranked, Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUERY: Final = "Which colour does the signal lamp show when a train must stop?"
TIMEOUT: Final = 0.5
"""Seconds for a search in which something hangs; it is repeated with more if the machine may have been too busy."""
TOP: Final = 6
MODES: Final = ("sync", "async", "batch")
SLACK: Final = 12.0
"""Seconds beyond that before a search counts as late: a machine may be busy, and what hangs does so for longer."""
_FOREVER: Final = 40.0

SENTENCES: Final = (
    "The signal lamp shows red when a train must stop.",
    "The guard blows a whistle before departure.",
    "A green lamp lets the train proceed at full speed.",
    "Steam drives the wheels of an old engine.",
    "The colour of a signal is seen from half a mile.",
    "A train that passes a red signal is stopped by the trip cock.",
    "The bridge carries two tracks over the river.",
    "Yellow asks the driver to expect a stop at the next signal.",
    "Every lever in the box moves one set of points.",
    "Tickets are sold in the hall beside the platform.",
)


TEXTS: Final = tuple(f"{first} {second}" for first, second in permutations(SENTENCES, 2))


class Fault(NamedTuple):
    """What a call does instead of what it should.

    ``spoil`` gives the answer, from what the call was given and a function that does what it should; or it raises.
    """

    name: str
    spoil: Callable[[Any, Callable[[], Any]], Any] | None

    @property
    def hangs(self) -> bool:
        """Whether it never answers."""
        return self.spoil is None


def _gives(answer: Any) -> Callable[[Any, Callable[[], Any]], Any]:
    return lambda argument, real: answer


def _makes(change: Callable[[Any], Any]) -> Callable[[Any, Callable[[], Any]], Any]:
    return lambda argument, real: change(real())


def _fails(error: Callable[[], Exception]) -> Callable[[Any, Callable[[], Any]], Any]:
    def spoil(argument: Any, real: Callable[[], Any]) -> Any:
        raise error()

    return spoil


FAILURES: Final = (
    Fault("fails", _fails(lambda: ConnectionError("connection refused"))),
    Fault("times out", _fails(lambda: TimeoutError("the read timed out"))),
    Fault("hangs", None),
)


class Silent:
    """An answer without a text."""


_LLM: Final = (
    Fault("empty text", _gives("")),
    Fault("a refusal", _gives("I'm sorry, but I can't help with that.")),
    Fault("chatter", _gives("Certainly! I would be happy to help you with that.")),
    Fault("foreign JSON", _gives('{"status": "ok", "result": {"value": null}}')),
    Fault("half of JSON", _gives('{"queries": ["what is')),
    Fault("wrong numbers", _gives("[99, -3, 0]")),
    Fault("an error page", _gives("<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>")),
    Fault("control characters", _gives("\0\ud800\x07\u202e")),
    Fault("half a megabyte", _gives("9 " * 250_000)),
    Fault("the prompt again", lambda argument, real: argument),
    Fault("no text", _gives(Silent())),
)
_HITS: Final = (
    Fault("None", _gives(None)),
    Fault("a number", _gives(7)),
    Fault("an empty text", _gives("")),
    Fault("an empty mapping", _gives({})),
    Fault("texts", _gives(["a", "b"])),
    Fault("a generator", _makes(lambda hits: (hit for hit in hits))),
    Fault("hits without documents", _makes(lambda hits: [replace(hit, document=None) for hit in hits])),
    Fault("documents", _makes(lambda hits: [hit.document for hit in hits])),
    Fault("scores that are none", _makes(lambda hits: [replace(hit, score=math.nan) for hit in hits])),
    Fault("scores in words", _makes(lambda hits: [replace(hit, score="high") for hit in hits])),
    Fault("every hit twice", _makes(lambda hits: [hit for hit in hits for _ in range(2)])),
)
_VECTORS: Final = (
    Fault("None", _gives(None)),
    Fault("texts", _gives(["a"])),
    Fault("NaN", _makes(lambda rows: rows * np.nan)),
    Fault("zeros", _makes(lambda rows: rows * 0)),
    Fault("one number too few", _makes(lambda rows: rows[:, :-1])),
    Fault("no rows", _makes(lambda rows: rows[:0])),
    Fault("a row too many", _makes(lambda rows: np.concatenate([rows, rows[:1]]))),
    Fault("long rows", _makes(lambda rows: rows * 1000)),
    Fault("a flat list", _makes(lambda rows: rows.ravel().tolist())),
)
_SCORES: Final = (
    Fault("None", _gives(None)),
    Fault("a text", _gives("0.5, 0.4")),
    Fault("a mapping", _gives({"results": []})),
    Fault("no scores", _gives([])),
    Fault("one too few", _makes(lambda scores: scores[:-1])),
    Fault("one too many", _makes(lambda scores: [*scores, 1.0])),
    Fault("NaN", _makes(lambda scores: [math.nan] * len(scores))),
    Fault("infinities", _makes(lambda scores: [math.inf] * len(scores))),
    Fault("scores in words", _makes(lambda scores: ["high"] * len(scores))),
    Fault("scores in lists", _makes(lambda scores: [[score] for score in scores])),
)
_RANKING_FAULTS: Final = (
    Fault("None", _gives(None)),
    Fault("a list of hits", _makes(lambda ranking: list(ranking.hits))),
    Fault("hits that are None", _makes(lambda ranking: replace(ranking, hits=None))),
    Fault("hits that are texts", _makes(lambda ranking: replace(ranking, hits=("a", "b")))),
    Fault("every hit twice", _makes(lambda ranking: replace(ranking, hits=ranking.hits * 2))),
    Fault("scores that are none", _makes(lambda r: replace(r, hits=tuple(replace(h, score=math.nan) for h in r.hits)))),
    Fault("refused, and hits", _makes(lambda ranking: replace(ranking, refused=Refusal("no")))),
    Fault("degraded in one text", _makes(lambda ranking: replace(ranking, degraded="broken"))),
    Fault("dropped that is None", _makes(lambda ranking: replace(ranking, dropped=None))),
)

FAULTS: Final[Mapping[str, tuple[Fault, ...]]] = {
    "transformer (LLM)": FAILURES + _LLM,
    "router (LLM)": FAILURES + _LLM,
    "embedder": FAILURES + _VECTORS,
    "retriever": FAILURES + _HITS,
    "remote retriever": FAILURES + _HITS,
    "reranker": FAILURES + _SCORES,
    "refuser": FAILURES + _RANKING_FAULTS,
    "compressor (LLM)": FAILURES + _LLM,
}
"""By the stage that calls: what can go wrong with the call."""

SPANS: Final[Mapping[str, frozenset[str]]] = {
    "transformer (LLM)": frozenset({"transform"}),
    "router (LLM)": frozenset({"plan", "route"}),
    "embedder": frozenset({"retrieve"}),
    "retriever": frozenset({"retrieve"}),
    "remote retriever": frozenset({"retrieve"}),
    "reranker": frozenset({"rerank"}),
    "refuser": frozenset({"refuse"}),
    "compressor (LLM)": frozenset({"compress"}),
}
"""By the stage that calls: the spans in which its failure may stand."""


class Switches:
    """Which calls are disturbed just now, and how."""

    def __init__(self) -> None:
        self.active_faults: dict[str, Fault] = {}
        self.timeout = TIMEOUT
        self.finish = threading.Event()

    def call(self, stage: str, argument: Any, real: Callable[[], Any]) -> Any:
        fault = self.active_faults.get(stage)
        if fault is None:
            return real()
        if fault.spoil is None:
            self.finish.wait(_FOREVER)
            raise ConnectionError("given up")
        return fault.spoil(argument, real)

    async def acall(self, stage: str, argument: Any, real: Callable[[], Any]) -> Any:
        fault = self.active_faults.get(stage)
        if fault is not None and fault.hangs:
            await anyio.sleep(_FOREVER)
        return self.call(stage, argument, real)

    def llm(self, stage: str, answer: Callable[[str], Any]) -> ScriptedLLM:
        """A model that answers as it should, unless its stage is disturbed."""

        def reply(prompt: str) -> Any:
            fault = self.active_faults.get(stage)
            if fault is not None and fault.hangs:
                return Delay(3 * self.timeout, "too late")  # its thread ends soon after the search
            completion = self.call(stage, prompt, lambda: answer(prompt))
            return completion if isinstance(completion, str | Silent) else json.dumps(completion)

        return _Model(reply)


class _Model(ScriptedLLM):
    """One that can also answer with what is no answer."""

    def _answer(self, prompt: str, reply: Any) -> Any:
        return reply if isinstance(reply, Silent) else super()._answer(prompt, reply)


class _Embedder(HashingEmbedder):
    def __init__(self, switches: Switches) -> None:
        super().__init__()
        self.switches = switches

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self.switches.call("embedder", texts, lambda: self.embed_documents(texts))
        return vectors

    def embed_documents(self, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
        return HashingEmbedder(self.dimensions).embed_documents(texts, **options)


class _Local(BaseRetriever):
    """In this process, synchronous."""

    def __init__(self, switches: Switches, hits: Sequence[Hit]) -> None:
        self.switches, self.hits = switches, hits

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        hits: list[Hit] = self.switches.call("retriever", query, lambda: list(self.hits[:top_k]))
        return hits


class _Remote(BaseRetriever):
    """Somewhere else, asynchronous."""

    def __init__(self, switches: Switches, hits: Sequence[Hit]) -> None:
        self.switches, self.hits = switches, hits

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        await anyio.sleep(0.001)
        hits: list[Hit] = await self.switches.acall("remote retriever", query, lambda: list(self.hits[:top_k]))
        return hits


class _Reranker(BaseReranker):
    """A user's, that asks a server."""

    def __init__(self, switches: Switches) -> None:
        super().__init__(max_candidates=8, cache=False)
        self.switches = switches

    async def ascore(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        await anyio.sleep(0.001)
        words = set(query.lower().rstrip("?").split())
        real = [float(len(words & set(text.lower().rstrip(".").split()))) for text in texts]
        scores: list[float] = await self.switches.acall("reranker", texts, lambda: real)
        return scores


class _Refuser(Refuser):
    """One that asks a server whether an answer is any good."""

    in_place = False

    def __init__(self, switches: Switches) -> None:
        super().__init__(thresholds=Threshold("rerank:_Reranker", 7.5))
        self.switches = switches

    def refine(self, query: Query, ranking: Ranked, top_k: int) -> Ranked:
        judge = super().refine
        outcome: Ranked = self.switches.call("refuser", ranking, lambda: judge(query, ranking, top_k))
        return outcome


class Rig:
    """The workflow, what it searches, and the switches; close it when done."""

    def __init__(self) -> None:
        self.switches = Switches()
        embedder = _Embedder(self.switches)
        self.datasets = [Dataset(name, description, embedder=embedder) for name, description in _DESCRIPTIONS.items()]
        for number, dataset in enumerate(self.datasets):
            dataset.add(Document(f"{dataset.name} {index}", text) for index, text in enumerate(TEXTS[number::5]))
        self.datasets[2].add([Document("stations", f"{QUERY} Ask the guard.")])  # what the router keeps out
        local, remote = (
            [Hit(Document(text[:20], text), 1.0 - index / 20) for index, text in enumerate(TEXTS[number::5])]
            for number in (3, 4)
        )
        self.sources = [*self.datasets, _Local(self.switches, local), _Remote(self.switches, remote)]
        self.workflow = RetrievalWorkflow(
            transformer=LLMExpander(self.switches.llm("transformer (LLM)", lambda _: {"queries": ["speed", "track"]})),
            router=LLMRouter(self.switches.llm("router (LLM)", lambda _: "[1]")),
            reranker=_Reranker(self.switches),
            refiners=[
                _Refuser(self.switches),
                LLMCompressor(self.switches.llm("compressor (LLM)", lambda _: {"keep": [1]}), max_chars=240),
            ],
            depth=8,
            timeout=TIMEOUT,
            breaker=Breaker(None),
        )
        self.baseline = answer_of(self.search({}, "sync", _FOREVER))
        for mode in MODES:
            context = self.search({}, mode, _FOREVER)
            assert answer_of(context) == self.baseline, "without faults every way gives the same answer"
            assert not context.degraded, f"without faults nothing is degraded: {context.degraded}"
        assert 1 < len(self.baseline) < TOP, "the refuser has something to drop, and leaves something"

    def forget(self) -> None:
        """No vector is remembered from the searches before."""
        vectors = QueryVectors(lambda: self.datasets[0].embedder)
        for dataset in self.datasets:
            dataset.query_vectors = vectors

    def search(self, faults: Mapping[str, Fault], mode: str, timeout: float = TIMEOUT) -> RetrievalContext:
        """One search with these faults, whatever comes of it."""
        self.switches.timeout = timeout
        with self._disturb(faults):
            if mode == "async":
                return asyncio.run(self.workflow.asearch(QUERY, self.sources, TOP, timeout=timeout))
            if mode == "sync":
                return self.workflow.search(QUERY, self.sources, TOP, timeout=timeout)
            return self.workflow.search_many([QUERY, "red lamp"], self.sources, TOP, timeout=timeout)[0]

    @contextmanager
    def _disturb(self, faults: Mapping[str, Fault]) -> Iterator[None]:
        self.switches.active_faults, self.switches.finish = dict(faults), threading.Event()
        try:
            yield
        finally:
            self.switches.finish.set()
            self.switches.active_faults = {}

    def close(self) -> None:
        """Let go of the datasets."""
        for dataset in self.datasets:
            dataset.close()


_DESCRIPTIONS: Final = {
    "signals": "Signals and lamps",
    "trains": "Trains and engines",
    "stations": "Tickets and platforms",
}


def answer_of(context: RetrievalContext) -> list[tuple[Any, float, str]]:
    """What an answer says: which documents, their scores, their texts."""
    return [(hit.key, round(hit.score, 9), hit.text) for hit in context.hits]


@dataclass(frozen=True)
class Case:
    """Faults by stage, and the way of asking."""

    faults: Mapping[str, Fault]
    mode: str

    def __str__(self) -> str:
        faults = " and ".join(f"{stage}: {fault.name}" for stage, fault in self.faults.items())
        return f"{faults}, {self.mode}"


@dataclass(frozen=True)
class Result:
    """What came of a case: a word for the table, and what was promised and not kept."""

    outcome: str
    violations: tuple[str, ...] = ()


def run(rig: Rig, case: Case) -> Result:
    """Search with the faults, and once more without them.

    Where something hangs, the other calls have little time, and what a busy machine leaves undone is no violation.
    """
    if any(fault.hangs for fault in case.faults.values()):
        for timeout in (TIMEOUT, 8 * TIMEOUT):
            result = _run_within(rig, case, timeout)
            if not result.violations:
                return result
    return _run_within(rig, case, SLACK)


def _run_within(rig: Rig, case: Case, timeout: float) -> Result:
    rig.forget()
    start = time.perf_counter()
    complaints: list[str] = []
    try:
        context = rig.search(case.faults, case.mode, timeout)
    except RetrievalError as error:
        outcome = "RetrievalError"
        complaints.append(f"RetrievalError though not every branch was disturbed: {error}")
    except Exception as error:  # noqa: BLE001  (this is what is looked for)
        outcome = type(error).__name__
        complaints.append(f"an exception: {type(error).__name__}: {error}")
    else:
        outcome, judge_complaints = judge_answer(context, rig.baseline, case.faults)
        complaints += judge_complaints
    time_limit = timeout * (2 if case.mode == "batch" else 1)
    if (seconds := time.perf_counter() - start) > time_limit + SLACK:
        complaints.append(f"too late: it took {seconds:.1f} s, and {time_limit} were allowed")
    try:
        context_without_faults = rig.search({}, case.mode, SLACK)
    except Exception as error:  # noqa: BLE001  (told)
        complaints.append(f"the search after it: {type(error).__name__}: {error}")
    else:
        if answer_of(context_without_faults) != rig.baseline:
            complaints.append(f"the search after it answers differently: {context_without_faults.degraded}")
            rig.forget()
    return Result(outcome, tuple(complaints))


def judge_answer(
    context: RetrievalContext, baseline: Sequence[Any], faults: Mapping[str, Fault]
) -> tuple[str, list[str]]:
    """A word for an answer, and what is wrong with it."""
    complaints = []
    try:
        is_baseline = answer_of(context) == baseline
        trace_text = json.dumps(context.trace.to_dict(lists=True), ensure_ascii=True)
        context.explain(context.hits[0].id if context.hits else "nothing")
    except Exception as error:  # noqa: BLE001  (told)
        return "unreadable", [f"an answer that cannot be read: {type(error).__name__}: {error}"]
    if not isinstance(context.degraded, tuple) or not all(isinstance(note, str) for note in context.degraded):
        complaints.append(f"degraded is no tuple of texts: {context.degraded!r}")
    is_marked = bool(context.degraded) or context.refused is not None
    if not is_baseline and not is_marked:
        complaints.append("another answer, and nothing says so")
    if context.refused is not None and context.hits:
        complaints.append("refused, and there are hits")
    keys = [hit.key for hit in context.hits]
    if len(set(keys)) < len(keys):
        complaints.append("a document more than once")
    if any(not isinstance(hit.score, float) or math.isnan(hit.score) for hit in context.hits):
        complaints.append("a score that is no number")
    if any(len(note) > 2000 for note in context.degraded) or len(trace_text) > 200_000:
        complaints.append("a mark, or a trace, without end")
    error_stages = {span.stage for span in context.trace.spans if span.error}
    if not is_baseline and context.refused is None and not any(error_stages & SPANS[stage] for stage in faults):
        complaints.append(f"no span of the stage has an error; those with one: {sorted(error_stages)}")
    if not is_baseline:
        outcome = "refused" if context.refused is not None else "degraded"
    else:
        outcome = "same answer, marked" if is_marked else "same answer"
    return outcome, complaints


def single_cases(modes: Sequence[str] = MODES) -> list[Case]:
    """Every fault alone, every way."""
    return [Case({stage: fault}, mode) for stage, faults in FAULTS.items() for fault in faults for mode in modes]


def pair_cases(choose: Callable[[Sequence[Fault]], Sequence[Fault]], modes: Sequence[str] = MODES[:2]) -> list[Case]:
    """Of any two stages the chosen faults with one another."""
    return [
        Case({stage: fault, other_stage: other_fault}, mode)
        for stage, other_stage in combinations(FAULTS, 2)
        for fault in choose(FAULTS[stage])
        for other_fault in choose(FAULTS[other_stage])
        for mode in modes
    ]
