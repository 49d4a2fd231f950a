"""Rows 000 of `authors.py`: selectors of one's own, LlamaIndex's selectors and tools, and selectors measured."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from llama_index.core import MockEmbedding
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.selectors import EmbeddingSingleSelector, LLMMultiSelector, LLMSingleSelector
from llama_index.core.tools import FunctionTool

from _authors_kit import chat_answer, fake_server, typed
from pointsman import (
    Document,
    EmbeddingSelector,
    EnsembleSelector,
    HybridSelector,
    LLMSelector,
    MultiIndexQueryEngine,
    MultiModalRetriever,
    ReActAgent,
    RouterRetriever,
    RuleSelector,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
    default_embedder,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm.scripted_llm import ScriptedLLM

CHOICES: Final = [
    ToolMetadata(name="vector_search", description="Semantic similarity search"),
    ToolMetadata(name="keyword_search", description="Exact text matching"),
]


TEXTS: Final[Any] = SimpleNamespace(retrieve=lambda _: [Document("text", "")])
IMAGES: Final[Any] = SimpleNamespace(retrieve=lambda _: [Document("image", "")])


class AuthorsQuery:
    """The document uses ``Query(text=…)`` and leaves the class open."""

    def __init__(self, text: str) -> None:
        self.text = text


class AuthorsSelector:
    """A selector with the document's ``select`` alone, whose result has ``ind`` and ``reason`` alone."""

    def __init__(self, index: int) -> None:
        self.index = index

    def select(self, choices: Any, query: Any) -> Any:  # noqa: ARG002
        return SimpleNamespace(ind=self.index, reason=f"{query.text} is about {self.index}")


class AuthorsLLMSelector(LLMSelector):
    """The document's methods, overridden."""

    def _build_prompt(self, choices_text: str, query: Any, num_choices: int) -> str:
        return f"MINE {query.text} {choices_text} {num_choices}"


@contextmanager
def logged() -> Iterator[list[str]]:
    """Keep what the package logs."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("pointsman")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.setLevel(level)
    logger.removeHandler(handler)


def selectors() -> Iterator[tuple[str, bool]]:
    """Row 000: selectors of one's own, and what consumers tell."""
    result = LLMSelector(ScriptedLLM(["[2, 1]", "[2, 1]"]), select_multi=True).select(CHOICES, "x")
    yield "select_multi with one output: the first named", (result.ind, result.fallback) == (1, None)
    own: Any = AuthorsSelector(1)
    query: Any = AuthorsQuery("it")
    hybrid = HybridSelector(own, RuleSelector([lambda _, choice: float(choice.name == "vector_search")]), 0.7, 0.3)
    yield "HybridSelector of selectors with ind alone", hybrid.select(CHOICES, "it").ind == 1
    yield "EnsembleSelector of selectors with ind alone", EnsembleSelector([own]).select(CHOICES, "it").ind == 1
    rules = RuleSelector([lambda query, choice: float(choice.name == "keyword_search" and query.text == "it")])
    yield "a Query class of one's own", rules.select(CHOICES, query).ind == 1
    llm = ScriptedLLM(['{"index": 2, "reason": "x"}'])
    AuthorsLLMSelector(llm).select(CHOICES, "it")
    yield "_build_prompt overridden", llm.calls[0].prompt.startswith("MINE it")
    engines: list[Any] = [SimpleNamespace(query=str.lower), SimpleNamespace(query=str.upper)]
    engine = MultiIndexQueryEngine(engines, ["one", "two"], own)
    yield "MultiIndexQueryEngine: the answer", engine.query("it") == "IT"
    yield "MultiIndexQueryEngine: the choice and its reason", engine.routed("it").selection.reason == "it is about 1"
    with logged() as lines:
        engine.query("it")
    yield "MultiIndexQueryEngine: both in the log", lines == ["chose query engine index_1: it is about 1"]
    response = SimpleNamespace(metadata={})
    in_response = MultiIndexQueryEngine([engines[0], SimpleNamespace(query=lambda _: response)], ["one", "two"], own)
    in_response.query("it")
    yield "MultiIndexQueryEngine: both in the response", response.metadata["selector_result"].reason == "it is about 1"
    yield "MultiIndexQueryEngine.descriptions", list(engine.descriptions) == ["one", "two"]
    tool: Any = SimpleNamespace(metadata=ToolMetadata("shout", "Say it loudly"), call=str.upper)
    yield "a tool that has metadata, as LlamaIndex's", ReActAgent([tool], own).run("it") == "IT"
    for question in ("系统架构示意图", "покажи диаграмму", "схема подключения"):
        chosen = MultiModalRetriever(TEXTS, IMAGES).retrieve(question)
        yield f"a picture is meant: {question}", [hit.id for hit in chosen] == ["image"]


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"rain in {city}"


def news(topic: str) -> str:
    """Tell what happened."""
    return f"{topic} happened"


class SecondChosen(CustomLLM):
    """A fake model of LlamaIndex, which answers its selectors."""

    @property
    def metadata(self) -> LLMMetadata:
        """Return the defaults."""
        return LLMMetadata()

    def complete(self, prompt: str, **options: Any) -> CompletionResponse:  # type: ignore[override]  # noqa: ARG002
        """Choose the second."""
        return CompletionResponse(text='[{"choice": 2, "reason": "an event"}]')

    def stream_complete(self, prompt: str, **options: Any) -> Any:  # type: ignore[override]
        """Is not asked for."""
        raise NotImplementedError


def llama_index_selectors() -> Iterator[tuple[str, bool]]:
    """Row 000: LlamaIndex's selectors and tools where ours are taken."""
    tools: list[Any] = [FunctionTool.from_defaults(function) for function in (weather, news)]
    llama_selectors: list[Any] = [kind.from_defaults(SecondChosen()) for kind in (LLMSingleSelector, LLMMultiSelector)]
    llama_selectors.append(EmbeddingSingleSelector.from_defaults(MockEmbedding(embed_dim=8)))
    for selector in llama_selectors:
        name = type(selector).__name__
        hits = RouterRetriever([TEXTS, IMAGES], ["a text", "a picture"], selector).retrieve("x")
        yield f"RouterRetriever with {name}", [hit.id for hit in hits] == ["image"]
        engines: list[Any] = [SimpleNamespace(query=str.lower), SimpleNamespace(query=str.upper)]
        engine = MultiIndexQueryEngine(engines, ["one", "two"], selector)
        yield f"MultiIndexQueryEngine with {name}", engine.query("it") == "IT"
        hits = MultiModalRetriever(TEXTS, IMAGES, selector).retrieve("x")
        yield f"MultiModalRetriever with {name}", [hit.id for hit in hits] == ["image"]
        yield f"ReActAgent of FunctionTools with {name}", ReActAgent(tools, selector).run("rain") == "rain happened"
        for combined in (HybridSelector(selector, RuleSelector([lambda *_: 1.0])), EnsembleSelector([selector])):
            yield f"{type(combined).__name__} of {name} over FunctionTools", combined.select(tools, "x").ind == 1
    query: Any = AuthorsQuery("tell what happened: the news")
    for chooser in (
        RuleSelector([lambda query, choice: float(choice.name in query.text)]),
        EmbeddingSelector(default_embedder()),
        LLMSelector(ScriptedLLM(['{"index": 2, "reason": "x"}'])),
    ):
        yield (
            f"{type(chooser).__name__} over FunctionTools, a Query class of one's own",
            chooser.select(tools, query).ind == 1,
        )


@dataclass
class WeighedChoice(ToolMetadata):
    """A choice with a field more, as one derives it from the document's plain dataclass."""

    weight: float = 1.0


class NamedChoice(ToolMetadata):
    """A choice with an attribute more."""

    def __init__(self, name: str, weight: float) -> None:
        super().__init__(name, f"the {name} one")
        self.weight = weight


def types_of_ones_own() -> Iterator[tuple[str, bool]]:
    """Row 000: the document's types are plain dataclasses, which can be derived from and changed."""
    by_weight = RuleSelector([lambda _, choice: choice.weight])  # type: ignore[attr-defined]
    choices: list[Any] = [WeighedChoice("a", "b", weight=0.1), WeighedChoice("c", "d", weight=2.0)]
    yield "@dataclass class WeighedChoice(ToolMetadata)", by_weight.select(choices, "x").ind == 1
    named: list[Any] = [NamedChoice("first", 0.1), NamedChoice("second", 2.0)]
    yield "class NamedChoice(ToolMetadata) with an attribute", by_weight.select(named, "x").ind == 1
    choice, selection = ToolMetadata("a", "b"), SingleSelection(index=0, reason="x")
    choice.description, selection.reason = "c", "y"
    answer = SelectorResult(selections=[selection])
    answer.selections[0].index = 1
    yield "a field is assigned to", (choice.description, answer.ind, answer.reason) == ("c", 1, "y")
    embedding = EmbeddingSelector(HashingEmbedder())
    choices = [ToolMetadata("a", "tea and coffee"), ToolMetadata("b", "rails and signals")]
    before = embedding.select(choices, "rails").ind
    choices[0].description, choices[1].description = choices[1].description, choices[0].description
    yield "a changed description is what is compared", (before, embedding.select(choices, "rails").ind) == (1, 0)


def folder_of_choices() -> str:
    """Write the choices, two questions and which choice is right; return the folder's name."""
    folder = Path("choices")
    folder.mkdir()
    lines = [{"_id": choice.name, "title": choice.name, "text": choice.description} for choice in CHOICES]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "queries.jsonl").write_text(
        '{"_id": "1", "text": "what does it mean"}\n{"_id": "2", "text": "exact keyword"}'
    )
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\tvector_search\t1\n2\tkeyword_search\t1\n")
    return folder.name


def selectors_measured() -> Iterator[tuple[str, bool]]:
    """Row 000: selectors measured by name."""
    figures = json.loads(typed("eval-select", folder_of_choices(), "--json"))["selectors"]
    yield "eval-select: selectors by name", {"embedding", "rule", "hybrid", "ensemble"} <= set(figures)
    yield "eval-select: rules are right", figures["rule"]["accuracy"] == 1.0
    parts = {"accuracy", "latency_ms", "latency_without_embedding_ms", "llm"}
    yield "eval-select: accuracy, latency, calls and tokens", all(parts <= set(figure) for figure in figures.values())


def language_model_measured() -> Iterator[tuple[str, bool]]:
    """Delight, 000: every selector by name, the language model's calls, tokens and cost, embedding apart."""
    names = ("embedding", "rule", "llm", "hybrid", "ensemble")

    def answer_to(body: dict[str, Any]) -> dict[str, Any]:
        asks_for_words = "exact keyword" in json.dumps(body)
        return chat_answer(body, json.dumps({"choice": 1 + asks_for_words, "reason": "a fake's"}))

    folder = folder_of_choices()
    options = [word for name in names for word in ("--selector", name)]
    with fake_server(answer_to) as url:
        variables = {"POINTSMAN_LLM_BASE_URL": f"{url}/v1", "POINTSMAN_LLM_MODEL": "fake"}
        table = typed("eval-select", folder, *options, "--price", "2", **variables)
        measured = json.loads(typed("eval-select", folder, *options, "--json", **variables))["selectors"]
    yield "eval-select --selector, by name", set(measured) == set(names)
    for name in names:
        figures = measured[name]
        tokens = 59.0 if name in ("llm", "ensemble") else 0.0
        yield f"{name}: accuracy, calls, tokens", (figures["accuracy"], figures["llm"]["tokens"]) == (1.0, tokens)
        yield (
            f"{name}: query embedding apart",
            figures["latency_without_embedding_ms"]["p50"] <= figures["latency_ms"]["p50"],
        )
        row = next(line.split() for line in table.splitlines() if line.split()[:1] == [name])
        cost = "0.118" if tokens else "0"
        yield f"{name}: a row with its cost", row[1] == "1.0000" and row[-1] == cost
