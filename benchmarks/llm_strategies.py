"""What strategies with a language model answer when the model fails: the plain answer, marked; or something is wrong.

    python benchmarks/llm_strategies.py [--queries 15]

A scripted model and a hashing embedder, on passages made up here, so it needs no data and takes seconds. For each
strategy and each fault: how many answers are *plain* (what hybrid search answers), *marked* (``degraded`` says what
failed), and *wrong*: neither plain nor marked, or plain where the model works and should have added something. Mixed:
a third of the calls fails, each in another way. Then the median and the slowest search in milliseconds. Exit status 1:
a wrong answer, or one that took longer than its time.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from pointsman import Dataset, Document, Hit
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm.scripted_llm import Delay, ScriptedLLM
from pointsman.retrieval.strategies import (
    BaseRetrievalStrategy,
    Budget,
    DecompositionStrategy,
    HybridStrategy,
    HyDEStrategy,
    Query2DocStrategy,
)

SECONDS, MOST = 0.15, 1500.0
TOPICS = {
    "en": "signal lamp track train yard switch lever engine ticket steam bridge tunnel whistle guard boiler platform",
    "ru": "сигнал фонарь путь поезд депо стрелка рычаг паровоз билет пар мост тоннель свисток кондуктор котёл",
    "zh": "信号灯 轨道 列车 车场 道岔 手柄 机车 车票 蒸汽 大桥 隧道 汽笛 车长 锅炉 站台 车站",
}
ASKED = {
    "en": "What has the {0} to do with the {1}?",
    "ru": "Как {0} связан с тем, что {1}?",
    "zh": "{0}和{1}有什么关系？",
}
FOREIGN = {
    "en": "这一段文字说的是完全不同的语言和别的事情。",
    "ru": "这一段文字说的是完全不同的语言。",
    "zh": "Совсем другой язык и другие дела.",
}

Reply = Callable[[str], Any]


def works(prompt: str) -> Any:
    """A passage, or queries, on the words of the question and two others, in its language."""
    words = TOPICS[language(prompt)].split()
    asked = [word for word in words if word in prompt][:4]  # texts without them would be left out as unrelated
    spoken = [*asked, *random.Random(prompt).sample([word for word in words if word not in asked], 6 - len(asked))]
    if '"queries"' in prompt:
        return {"queries": [" ".join([*asked, extra]) for extra in spoken[-2:]]}
    return " ".join(spoken) + "."


def language(prompt: str) -> str:
    return "zh" if "问题" in prompt else "ru" if "опрос" in prompt else "en"


FAULTS: dict[str, Reply] = {
    "raises": lambda _: RuntimeError("503"),
    "hangs": lambda prompt: Delay(20.0, works(prompt)),
    "empty": lambda _: "",
    "refuses": lambda prompt: {"en": "I'm sorry, I can't.", "ru": "Извините, я не могу.", "zh": "抱歉，我无法回答。"}[
        language(prompt)
    ],
    "echoes": lambda prompt: prompt,
    "another language": lambda prompt: FOREIGN[language(prompt)],
    "repeats itself": lambda prompt: f"{TOPICS[language(prompt)].split()[0]} " * 60,
    "a book": lambda prompt: f"{TOPICS[language(prompt)]}. " * 400,
    "thinks only": lambda _: "<think>What could they mean by that",
}
STRATEGIES: dict[str, Callable[..., BaseRetrievalStrategy]] = {
    "hyde": HyDEStrategy,
    "hyde, 3 passages": lambda one, **options: HyDEStrategy(one, num_hypotheses=3, **options),
    "query2doc": Query2DocStrategy,
    "query2doc, document": lambda one, **options: Query2DocStrategy(one, form="document", **options),
    "query2doc, both": lambda one, **options: Query2DocStrategy(one, form="both", **options),
    "decomposition": DecompositionStrategy,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=15, help="questions for each line (default: 15)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # every fault is logged, as it should be
    print(f"{'strategy':22} {'model':18} {'n':>4} {'plain':>6} {'marked':>7} {'wrong':>6} {'p50 ms':>8} {'max ms':>8}")
    every_wrong, slowest = 0, 0.0
    with Dataset("rail", embedder=HashingEmbedder(128)) as dataset:
        dataset.add(passages())
        hybrid = HybridStrategy(dataset)
        asked = questions(options.queries)
        plain = [view(hybrid.retrieve(text, 5)) for text in asked]
        HyDEStrategy(dataset, llm=ScriptedLLM(works)).retrieve(asked[0], 5)  # modules load, beside no budget
        for name, make in STRATEGIES.items():
            for fault, reply in {"works": works, **FAULTS, "mixed": mixed()}.items():
                strategy = make(dataset, llm=ScriptedLLM(reply), budget=Budget(seconds=SECONDS))
                same, marked, wrong, times = 0, 0, 0, []
                for text, expected in zip(asked, plain, strict=True):
                    began = perf_counter()
                    hits = strategy.retrieve(text, 5)
                    times.append((perf_counter() - began) * 1000)
                    is_plain = view(hits) == expected
                    same += is_plain
                    marked += bool(hits.degraded)
                    wrong += is_wrong(fault, is_plain=is_plain, marked=bool(hits.degraded))
                every_wrong += wrong
                slowest = max(slowest, *times)
                line = f"{name:22} {fault:18} {len(asked):4} {same:6} {marked:7} {wrong:6}"
                print(f"{line} {median(times):8.1f} {max(times):8.1f}", flush=True)
    print(f"\n{every_wrong} wrong answers; the slowest search took {slowest:.0f} ms of {MOST:.0f}")
    return 1 if every_wrong or slowest > MOST else 0


def is_wrong(fault: str, *, is_plain: bool, marked: bool) -> bool:
    """A fault leaves the plain answer, marked; a model that works leaves its trace in the answer, without a mark."""
    if fault == "works":
        return is_plain or marked
    if fault == "mixed":
        return is_plain != marked and is_plain  # plain without a mark; with several calls both may be
    return not (is_plain and marked)


def mixed() -> Reply:
    """Works twice out of three times, else another fault each time."""
    draw = random.Random(7)

    def reply(prompt: str) -> Any:
        chosen = (
            works
            if draw.random() < 2 / 3
            else draw.choice([fault for name, fault in FAULTS.items() if name != "hangs"])
        )
        return chosen(prompt)

    return reply


def passages() -> list[Document]:
    draw = random.Random(1)
    return [
        Document(f"{code}-{number}", ("" if code == "zh" else " ").join(draw.choices(words.split(), k=30)) + ".")
        for code, words in TOPICS.items()
        for number in range(60)
    ]


def questions(count: int) -> list[str]:
    draw = random.Random(2)
    codes = list(TOPICS)
    return [ASKED[codes[n % 3]].format(*draw.sample(TOPICS[codes[n % 3]].split(), 2)) for n in range(count)]


def view(hits: list[Hit]) -> list[tuple[str, float]]:
    return [(hit.id, round(hit.score, 4)) for hit in hits]


if __name__ == "__main__":
    sys.exit(main())
