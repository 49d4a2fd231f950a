"""How often selectors select right on public tool and intent sets, how sure they are, and what a selection costs.

    python benchmarks/selection.py [SET…]

Sets are read from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the repository. The first run embeds
some 14,000 texts, which takes a while; later ones take the vectors from the cache. Exit status 1: a target missed.

No selector is tuned on what it is asked: *fitted* learns from other queries, on the tool sets in five parts by turns
(MetaTool: 2,000 queries apart from the 1,000 asked), on the intent sets from the training part.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from _data import DATA
from _selector_figures import SelectionTask, SelectorReport, evaluate_task, read_selection
from pointsman.embedders import HashingEmbedder, default_embedder
from pointsman.selector.base_selector import BaseSelector, Choices, SelectorResult, SingleSelection, ToolMetadata
from pointsman.selector.choices.choice_bm25 import ChoiceIndex
from pointsman.selector.description_selector import DescriptionSelector
from pointsman.selector.embedding_selector import EmbeddingSelector
from pointsman.text import DEFAULT_ANALYZER
from pointsman.values.types import Query

if TYPE_CHECKING:
    from pointsman.values.protocols import Embedder

TOOLS = ("tool_metatool_train", "tool_ultratool_en_dev", "tool_ultratool_zh_dev", "tool_sealtools_dev")
INTENTS = {"intent_banking77": 20, "intent_snips": 100}  # examples of each label
ASKED = 1000
TAUGHT = 2000
SINGLE = ("embedding", "bm25")
"""What the recommended selector is made of."""


class KeywordsAlone(BaseSelector):
    """BM25 over name and description, to compare with."""

    def __init__(self) -> None:
        self._index: tuple[Choices, ChoiceIndex] | None = None

    def scores(self, choices: Choices, query: Query | str) -> list[float]:
        """BM25 of every choice."""
        if self._index is None or self._index[0] != choices:
            texts = [choice if isinstance(choice, str) else f"{choice.name} {choice.description}" for choice in choices]
            self._index = choices, ChoiceIndex([Counter(DEFAULT_ANALYZER.tokens(text)) for text in texts])
        scores: list[float] = self._index[1].scores(DEFAULT_ANALYZER.query_tokens(Query.of(query).text)).tolist()
        return scores

    def select(self, choices: Choices, query: Query | str) -> SelectorResult:
        """The highest one."""
        scores = self.scores(choices, query)
        best = int(np.argmax(scores))
        return SelectorResult([SingleSelection(best, "BM25", scores[best])])


def main(names: list[str]) -> int:
    names = names or [*TOOLS, *INTENTS]
    absent = [name for name in names if not (DATA / name).is_dir()]
    if absent:
        print(f"not in {DATA}: {', '.join(absent)}; set POINTSMAN_TEST_DATA to where they are", file=sys.stderr)
        return 2
    embedder = default_embedder()  # evaluation puts a cache in front of it
    tools = {name: on_tools(read_selection(DATA / name), embedder) for name in names if name in TOOLS}
    for name in names:
        if name in INTENTS:
            on_intents(name, embedder)
    held = warm_overhead()
    if tools:
        held &= compared(tools)
    return 0 if held else 1


def on_tools(task: SelectionTask, embedder: Embedder) -> dict[str, SelectorReport]:
    asked = sampled(task)
    reports = {
        "embedding": evaluate_task(asked, "embedding", embedder),
        "bm25": evaluate_task(asked, KeywordsAlone()),
        "description": evaluate_task(asked, "description", embedder),
        "fitted": evaluate_task(asked, "fitted", embedder),
    }
    told(asked, reports)
    return reports


def on_intents(name: str, embedder: Embedder) -> None:
    task = read_selection(DATA / name, examples=INTENTS[name])
    asked = replace(sampled(task), taught=task.taught)
    bare = replace(asked, choices=tuple(ToolMetadata(one.name, "") for one in asked.choices))
    print(f"\n(labels alone, then with {INTENTS[name]} examples of each)", end="")
    told(bare, {"description": evaluate_task(bare, "description", embedder)})
    told(
        asked,
        {
            "nearest example": evaluate_task(asked, "embedding", embedder),
            "description": evaluate_task(asked, "description", embedder),
            "fitted": evaluate_task(asked, "fitted", embedder),
        },
    )


def sampled(task: SelectionTask) -> SelectionTask:
    """The same thousand queries every time; of the rest, as many as are needed are learned from."""
    order = list(range(len(task.queries)))
    random.Random(0).shuffle(order)
    asked = sorted(order[:ASKED])
    texts = {task.queries[place] for place in asked}
    rest = [place for place in order[ASKED:] if task.queries[place] not in texts][:TAUGHT]
    return replace(
        task,
        queries=tuple(task.queries[place] for place in asked),
        right=tuple(task.right[place] for place in asked),
        taught=tuple((task.queries[place], min(task.right[place])) for place in rest),
    )


def told(task: SelectionTask, reports: dict[str, SelectorReport]) -> None:
    print(f"\n{task.name}: {len(task.choices):,} choices, {len(task.queries):,} queries")
    print(f"  {'selector':16}accuracy@1  recall@5   ECE    p50 ms  + embedding ms")
    for name, report in reports.items():
        ece = "" if report.calibration_error is None else f"{report.calibration_error:.3f}"
        embedding = "" if report.embedding_ms is None else f"{report.embedding_ms:.1f}"
        figures = f"{report.accuracy:10.4f}{report.recall.get(5, 0):10.4f}{ece:>8}{report.p50:9.3f}{embedding:>12}"
        print(f"  {name:16}{figures}", flush=True)


def warm_overhead() -> bool:
    """p50 of a selection among 200 choices with the query's vector at hand."""
    choices = [ToolMetadata(f"tool_{n}", f"does the {n}th thing that tools do for people") for n in range(200)]
    query = Query("which tool does the seventeenth thing")
    vectors = HashingEmbedder(384)

    class AtHand:
        name = "at hand"
        vector = vectors.embed_queries([query.text])

        def embed_queries(self, texts: list[str]) -> object:
            return self.vector if texts == [query.text] else vectors.embed_queries(texts)

        def embed_documents(self, texts: list[str]) -> object:
            return vectors.embed_documents(texts)

        def embed(self, text: str) -> object:
            return self.embed_queries([text])

    print("\nwarm selection among 200 choices, query embedding excluded, p50")
    figures = {}
    for name, selector in (
        ("EmbeddingSelector", EmbeddingSelector(AtHand())),
        ("DescriptionSelector", DescriptionSelector(AtHand())),
    ):
        selector.select(choices, query)
        taken = []
        for _ in range(3000):
            began = perf_counter()
            selector.select(choices, query)
            taken.append(perf_counter() - began)
        figures[name] = float(np.median(taken)) * 1000
        print(f"  {name:28}{figures[name]:.4f} ms")
    return reached("EmbeddingSelector takes at most 0.1 ms", figures["EmbeddingSelector"] <= 0.1)


def compared(tools: dict[str, dict[str, SelectorReport]]) -> bool:
    names = list(next(iter(tools.values())))
    means = {name: float(np.mean([reports[name].accuracy for reports in tools.values()])) for name in names}
    print("\nmean accuracy@1 over the tool sets: " + ", ".join(f"{name} {means[name]:.4f}" for name in names))
    better = max(means[name] for name in SINGLE)
    return reached("description above the better single one", means["description"] > better) & reached(
        "fitted above description", means["fitted"] > means["description"]
    )


def reached(what: str, so: bool) -> bool:
    print(f"{'ok    ' if so else 'MISSED'} {what}")
    return so


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
