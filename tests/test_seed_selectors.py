"""The examples of the selectors' founding document: data structures, selectors, consumers, extensions, tests.

Only imports differ: everything comes from ``pointsman``. Where the document leaves a component open (a model, a store,
an engine), a real one stands in, or, for the document's own tests, the mock that they use.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pointsman import (
    BaseSelector,
    Dataset,
    DescriptionSelector,
    EmbeddingSelector,
    EnsembleSelector,
    HybridSelector,
    KeywordRetriever,
    LLMSelector,
    MultiIndexQueryEngine,
    ReActAgent,
    RouterRetriever,
    RuleSelector,
    SelectorResult,
    SingleSelection,
    ToolMetadata,
    VectorRetriever,
    default_embedder,
    keyword_match_rule,
    semantic_query_rule,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.selector import RandomSelector, query_length_rule
from pointsman.tools.errors import InputError
from pointsman.values.types import Query

TWO = [
    ToolMetadata(name="vector_search", description="Semantic similarity search using vector embeddings"),
    ToolMetadata(name="keyword_search", description="Exact keyword matching using BM25"),
]
THREE = [
    ToolMetadata(name="vector_search", description="Semantic similarity search"),
    ToolMetadata(name="keyword_search", description="Exact text matching"),
    ToolMetadata(name="graph_search", description="Graph-based relationship search"),
]


def answering(text: str) -> Mock:
    llm = Mock()
    llm.complete.return_value = Mock(text=text)
    return llm


def embedding(*vectors: list[float]) -> Mock:
    embedder = Mock()
    embedder.embed.side_effect = list(vectors)
    return embedder


# ── 4: the data structures ───────────────────────────────────────────────────────────────────────────────────────────


def test_tool_metadata_has_name_description_and_optional_metadata() -> None:
    metadata = ToolMetadata(name="weather", description="Forecasts")
    assert (metadata.name, metadata.description, metadata.metadata) == ("weather", "Forecasts", None)
    assert ToolMetadata("weather", "Forecasts", {"a": 1}).metadata == {"a": 1}


def test_result_of_one_selection() -> None:
    result = SelectorResult(selections=[SingleSelection(index=1, reason="best")])
    assert (result.ind, result.inds, result.reason, result.reasons) == (1, [1], "best", ["best"])


@pytest.mark.parametrize("indices", [[], [0, 2]])
def test_result_of_any_other_number_names_the_plural(indices: list[int]) -> None:
    result = SelectorResult(selections=[SingleSelection(index, "x") for index in indices])
    assert result.inds == indices
    with pytest.raises(ValueError, match=f"There are {len(indices)} selections, use .inds instead"):
        _ = result.ind
    with pytest.raises(ValueError, match=f"There are {len(indices)} selections, use .reasons instead"):
        _ = result.reason


def test_selections_are_a_list() -> None:
    first = SingleSelection(index=0, reason="x")
    assert SelectorResult(selections=[first]).selections == [first]
    assert isinstance(SelectorResult((first,)).selections, list)


# ── 5 and 9: the selectors, and the document's tests of them ─────────────────────────────────────────────────────────


def test_llm_selector() -> None:
    mock_llm = Mock()
    mock_llm.complete.return_value = Mock(text='{"index": 1, "reason": "Best match"}')
    selector = LLMSelector(llm=mock_llm)
    choices = [
        ToolMetadata(name="option1", description="First option"),
        ToolMetadata(name="option2", description="Second option"),
    ]
    query = Query(text="test query")
    result = selector.select(choices, query)
    assert result.ind == 0
    assert "Best match" in result.reason
    mock_llm.complete.assert_called_once()


def test_llm_selector_numbers_choices_from_1_in_the_prompt() -> None:
    llm = answering('{"index": 2, "reason": "x"}')
    assert LLMSelector(llm=llm, select_multi=False).select(TWO, Query(text="What is machine learning?")).ind == 1
    prompt = llm.complete.call_args[0][0]
    assert "1" in prompt
    assert "Exact keyword matching using BM25" in prompt
    assert "What is machine learning?" in prompt


@pytest.mark.parametrize(
    "text",
    [
        '{"selections": [{"index": 1, "reason": "semantic"}, {"index": 2, "reason": "exact"}]}',
        '```json\n{"selections": [{"index": 1, "reason": "semantic"}, {"index": 2, "reason": "exact"}]}\n```',
        '```\n{"selections": [{"index": 1, "reason": "semantic"}, {"index": 2, "reason": "exact"}]}\n```',
    ],
)
def test_llm_selector_selects_several(text: str) -> None:
    selector = LLMSelector(llm=answering(text), select_multi=True, max_outputs=2)
    query = Query(text="Find documents about machine learning and neural networks")
    result = selector.select(THREE, query)
    assert (result.inds, result.reasons) == ([0, 1], ["semantic", "exact"])


def test_llm_selector_defaults_to_first_option_visibly() -> None:
    result = LLMSelector(llm=answering("I have no idea.")).select(TWO, Query(text="x"))
    assert result.ind == 0
    assert result.reason.startswith("Parse error, default to first option")
    assert result.fallback is not None


def test_embedding_selector() -> None:
    mock_embedder = embedding([1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.1, 0.9, 0.0])
    selector = EmbeddingSelector(embedder=mock_embedder)
    choices = [
        ToolMetadata(name="option1", description="First option"),
        ToolMetadata(name="option2", description="Second option"),
    ]
    result = selector.select(choices, Query(text="test query"))
    assert result.ind == 0
    assert "similarity" in result.reason.lower()


def test_embedding_selector_with_the_bundled_embedder() -> None:
    result = EmbeddingSelector(embedder=default_embedder(), top_k=2).select(THREE, Query(text="match this exact text"))
    assert len(result.inds) == 2
    assert result.reasons[0].startswith("Cosine similarity: ")


def test_rule_selector() -> None:
    selector = RuleSelector(rules=[keyword_match_rule, semantic_query_rule])
    assert selector.select(TWO, Query(text="What is machine learning?")).ind == 0
    result = selector.select(TWO, Query(text="Find exact term: neural network"))
    assert (result.ind, result.reason) == (1, "Rule score: 10.00")


def test_hybrid_selector_returns_the_choice_on_which_both_agree() -> None:
    selector = HybridSelector(
        EmbeddingSelector(embedder=default_embedder()),
        RuleSelector(rules=[keyword_match_rule]),
        embedding_weight=0.7,
        rule_weight=0.3,
    )
    assert selector.select(TWO, Query(text="Find exact keyword: BM25 matching")).ind == 1


# ── 6: the consumers ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    with Dataset("notes", path=tmp_path / "notes", embedder=default_embedder()) as dataset:
        dataset.add(
            [
                {"id": "ml", "text": "Machine learning fits models to data."},
                {"id": "tea", "text": "Green tea is steeped below boiling."},
            ]
        )
        yield dataset


DESCRIPTIONS = [
    "Semantic similarity search using vector embeddings. Best for conceptual queries.",
    "Exact text matching using BM25 algorithm. Best for precise term queries.",
]


@pytest.mark.parametrize("index", [1, 2])
def test_router_retriever_with_selector(dataset: Any, index: int) -> None:
    vector_retriever = VectorRetriever(vector_store=dataset.store, doc_store=dataset.store, embedder=default_embedder())
    keyword_retriever = KeywordRetriever(keyword_store=dataset.store, doc_store=dataset.store)
    router = RouterRetriever(
        retrievers=[vector_retriever, keyword_retriever],
        descriptions=DESCRIPTIONS,
        selector=LLMSelector(llm=answering(f'{{"index": {index}, "reason": "best"}}')),
    )
    nodes = router.retrieve(Query(text="What is machine learning?"))
    assert len(nodes) > 0
    assert nodes[0].id == "ml"


def test_router_retriever_refuses_descriptions_of_another_length(dataset: Any) -> None:
    keyword_retriever = KeywordRetriever(keyword_store=dataset.store, doc_store=dataset.store)
    with pytest.raises(InputError, match="1 retrievers need 1 descriptions"):
        RouterRetriever([keyword_retriever], DESCRIPTIONS, RuleSelector(rules=[keyword_match_rule]))


def test_agent_calls_the_selected_tool_and_returns_a_str() -> None:
    tools = [
        SimpleNamespace(name="weather", description="Forecasts", call=lambda task: f"sunny: {task}"),
        SimpleNamespace(name="sums", description="Arithmetic", call=lambda task: f"42: {task}"),
    ]
    agent = ReActAgent(tools=tools, selector=LLMSelector(llm=answering('{"index": 2, "reason": "x"}')), llm=None)
    answer = agent.run("add 40 and 2")
    assert isinstance(answer, str)
    assert answer == "42: add 40 and 2"
    assert answer.steps[0].tool == "sums"


def test_multi_index_query_engine() -> None:
    engines = [Mock(), Mock()]
    engines[1].query.return_value = "annual leave: 25 days"
    engine = MultiIndexQueryEngine(
        query_engines=engines,
        descriptions=["Products", "Holiday rules"],
        selector=LLMSelector(llm=answering('{"index": 2, "reason": "x"}')),
    )
    assert engine.query("How many days of leave?") == "annual leave: 25 days"
    engines[1].query.assert_called_once_with("How many days of leave?")
    engines[0].query.assert_not_called()


# ── 8: extensions ────────────────────────────────────────────────────────────────────────────────────────────────────


class OneAtRandom(BaseSelector):
    """The document's example of a new selector."""

    def select(self, choices: list[ToolMetadata], query: Query) -> SelectorResult:  # type: ignore[override]
        random_idx = random.randint(0, len(choices) - 1)
        return SelectorResult(selections=[SingleSelection(index=random_idx, reason="Randomly selected")])


class ByVotes(BaseSelector):
    """The document's example of a selector of selectors."""

    def __init__(self, selectors: list[BaseSelector]) -> None:
        self.selectors = selectors

    def select(self, choices: list[ToolMetadata], query: Query) -> SelectorResult:  # type: ignore[override]
        votes: dict[int, int] = {}
        for selector in self.selectors:
            idx = selector.select(choices, query).ind
            votes[idx] = votes.get(idx, 0) + 1
        max_idx = max(votes, key=votes.__getitem__)
        reason = f"Voted by {votes[max_idx]}/{len(self.selectors)} selectors"
        return SelectorResult(selections=[SingleSelection(index=max_idx, reason=reason)])


def test_new_selector_needs_only_select() -> None:
    result = OneAtRandom().select(TWO, Query(text="x"))
    assert result.ind in {0, 1}
    assert asyncio.run(OneAtRandom().aselect(TWO, Query(text="x"))).reason == "Randomly selected"
    assert RandomSelector(seed=1).select(TWO, "x").ind in {0, 1}


def test_rule_of_ones_own() -> None:
    def short_is_keyword(query: Query, choice: ToolMetadata) -> float:
        if len(query.text.split()) < 5:
            return 5.0 if "keyword" in choice.description.lower() else 0.0
        return 5.0 if "semantic" in choice.description.lower() else 0.0

    selector = RuleSelector(rules=[keyword_match_rule, semantic_query_rule, query_length_rule, short_is_keyword])
    assert selector.select(TWO, Query(text="BM25 saturation")).ind == 1
    assert selector.select(TWO, Query(text="tell me about the history of neural networks")).ind == 0


@pytest.mark.parametrize("kind", [ByVotes, EnsembleSelector])
def test_votes_decide(kind: Any) -> None:
    selectors = [LLMSelector(llm=answering(f'{{"index": {index}, "reason": "x"}}')) for index in (2, 1, 2)]
    result = kind(selectors).select(TWO, Query(text="x"))
    assert (result.ind, result.reason) == (1, "Voted by 2/3 selectors")


# ── what an author brings along: classes of one's own, and LlamaIndex's ──────────────────────────────────────────────


@dataclass
class WeighedChoice(ToolMetadata):
    weight: float = 1.0


class NamedChoice(ToolMetadata):
    def __init__(self, name: str, weight: float) -> None:
        super().__init__(name, f"the {name} one")
        self.weight = weight


@pytest.mark.parametrize("kind", [WeighedChoice, NamedChoice])
def test_choices_derived_from_the_documents_dataclass(kind: Any) -> None:
    choices = [kind("a", weight=0.1), kind("b", weight=2.0)] if kind is NamedChoice else [
        kind("a", "x", weight=0.1), kind("b", "y", weight=2.0)]  # fmt: skip
    by_weight = RuleSelector([lambda _, choice: choice.weight])  # type: ignore[attr-defined]
    assert by_weight.select(choices, "x").ind == 1


@pytest.mark.parametrize("kind", [EmbeddingSelector, DescriptionSelector])
def test_a_description_that_was_changed_is_compared(kind: Any) -> None:
    selector = kind(embedder=HashingEmbedder())
    choices = [ToolMetadata("a", "tea and coffee"), ToolMetadata("b", "rails and signals")]
    assert selector.select(choices, "rails").ind == 1
    choices[0].description, choices[1].description = choices[1].description, choices[0].description
    assert selector.select(choices, "rails").ind == 0


class OwnQuery:
    def __init__(self, text: str) -> None:
        self.text = text


class OwnSelector:
    """It subclasses nothing, and its result has ``ind`` and ``reason`` alone."""

    def __init__(self, index: int) -> None:
        self.index = index

    def select(self, choices: list[ToolMetadata], query: Query) -> SimpleNamespace:
        return SimpleNamespace(ind=self.index, reason=f"{choices[self.index].name} for {query.text}")


class OwnPrompt(LLMSelector):
    def _build_choices_text(self, choices: Any) -> str:
        return "; ".join(choice.name for choice in choices)

    def _build_prompt(self, choices_text: str, query: Query, num_choices: int) -> str:
        return f"{query.text}: one of {num_choices} ({choices_text})"


class OwnParser(LLMSelector):
    def _parse_response(self, response: str) -> SelectorResult:
        return SelectorResult([SingleSelection(len(response), "as long as the answer")])


def test_first_named_is_selected_where_a_list_is_asked_for() -> None:
    result = LLMSelector(llm=answering("[2, 1]"), select_multi=True).select(TWO, Query(text="x"))
    assert (result.ind, result.fallback) == (1, None)
    assert "the first 1 of the 2" in result.notes[0]


def test_selector_that_subclasses_nothing() -> None:
    selector: Any = OwnSelector(1)
    query: Any = OwnQuery("x")
    text: Any = "words"
    engine = MultiIndexQueryEngine(
        [SimpleNamespace(query=str.lower), SimpleNamespace(query=str.upper)], ["a", "b"], selector
    )
    assert engine.query("question") == "QUESTION"
    assert asyncio.run(engine.arouted("question")).selection.reason == "index_1 for question"
    for combined in (HybridSelector(selector, selector), EnsembleSelector([selector, selector])):
        assert combined.select(TWO, query).ind == 1
    with pytest.raises(InputError, match=r"a selector has select\(choices, query\)"):
        EnsembleSelector([selector, text])
    with pytest.raises(InputError, match="returned SimpleNamespace, not a SelectorResult"):
        HybridSelector(SimpleNamespace(select=lambda *_: SimpleNamespace()), selector).select(TWO, "x")


def test_prompt_and_parser_of_ones_own() -> None:
    llm = answering('{"index": 2, "reason": "x"}')
    assert OwnPrompt(llm=llm).select(TWO, Query(text="x")).ind == 1
    llm.complete.assert_called_once_with("x: one of 2 (vector_search; keyword_search)")
    assert OwnParser(llm=answering("!")).select(TWO, Query(text="x")).reason == "as long as the answer"


def test_choice_is_told(caplog: pytest.LogCaptureFixture) -> None:
    response = SimpleNamespace(metadata={"source": "a"})
    engines = [SimpleNamespace(query=lambda _: response), SimpleNamespace(query=str.upper)]
    selector: Any = OwnSelector(0)
    engine = MultiIndexQueryEngine(engines, ["Products", "Holidays"], selector)
    with caplog.at_level("INFO"):
        assert engine.query("x") is response
    assert response.metadata["selector_result"].reason == "index_0 for x"
    assert "chose query engine index_0: index_0 for x" in caplog.messages
    assert engine.descriptions == ("Products", "Holidays")


def test_tools_and_selectors_of_llama_index() -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
    from llama_index.core.llms import CustomLLM
    from llama_index.core.selectors import LLMSingleSelector
    from llama_index.core.tools import FunctionTool

    def weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"rain in {city}"

    def news(topic: str) -> str:
        """Tell what happened."""
        return f"{topic} happened"

    class Answering(CustomLLM):
        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata()

        def complete(self, prompt: str, **options: Any) -> CompletionResponse:  # type: ignore[override]
            return CompletionResponse(text='[{"choice": 2, "reason": "an event"}]')

        def stream_complete(self, prompt: str, **options: Any) -> Any:  # type: ignore[override]
            raise NotImplementedError

    tools: list[Any] = [FunctionTool.from_defaults(function) for function in (weather, news)]
    result = RuleSelector([lambda query, choice: float(choice.name in query.text)]).select(tools, "the news")
    assert result.ind == 1
    llama_selector: Any = LLMSingleSelector.from_defaults(Answering())
    agent = ReActAgent(tools, selector=llama_selector)
    answer = agent.run("an election")
    assert (str(answer), answer.tools, answer.selection.reason) == ("an election happened", ("news",), "an event")
    assert asyncio.run(agent.arun("an election")) == "an election happened"
