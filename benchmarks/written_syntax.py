"""Excluded words and phrases in hits: random keyword queries over real texts (Q1).

    python benchmarks/written_syntax.py [--queries 10000] [--sets en_xquad,ru_xquad,zh_xquad]
        [--stores folder,postgresql]

A query is a word of a random passage and, of another word of it, ``-word`` or ``-"word"``. Hits are checked by their
analysed tokens and, for phrases, by the words in a row, without the code that obeys. Beside it stand the hits of the
same words without syntax that hold the excluded word, so that 0 means something. Vectors are of the hashing embedder;
PostgreSQL is started as for the tests.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pointsman
from _data import DATA
from pointsman.embedders import HashingEmbedder
from pointsman.evaluation import read_collection
from pointsman.text import DEFAULT_ANALYZER
from pointsman.text.stop_words import ENGLISH, RUSSIAN
from pointsman.text.unicode import fold

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

STRATEGIES = ("auto", "bm25", "vector", "hybrid", "rrf", "z_score", "multi_query", "decomposition", "compression")
HAN = "\u4e00"
PLAIN_WORD = re.compile(r"\w+")
WORD = re.compile(r"[A-Za-zА-Яа-яЁё]{3,}|[\u4e00-\u9fff]{2}")


def words_of(text: str) -> list[str]:
    """The words of a text that can be searched for."""
    return [word for word in WORD.findall(text) if fold(word) not in ENGLISH | RUSSIAN]


def holds(text: str, word: str, *, phrase: bool) -> bool:
    """Whether a text holds a form of a word, or the very word; in Chinese, its characters in a row."""
    if word > HAN:
        return fold(word) in fold(text)
    if phrase:
        return fold(word) in PLAIN_WORD.findall(fold(text))
    return DEFAULT_ANALYZER.tokens(word)[0] in DEFAULT_ANALYZER.tokens(text)  # BSkyB is itself, then its parts


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--sets", default="en_xquad,ru_xquad,zh_xquad")
    parser.add_argument("--stores", default="folder,postgresql")
    arguments = parser.parse_args()
    draw, figures = random.Random(45), Counter[str]()
    with ExitStack() as stack:
        places = {"folder": stack.enter_context(tempfile.TemporaryDirectory())}
        if "postgresql" in arguments.stores:
            from postgres_kit import PostgresServer

            server = PostgresServer()
            stack.callback(server.stop)
            places["postgresql"] = f"{server.url}?schema=syntax"
        workspaces = [
            stack.enter_context(pointsman.open(places[name], embedder=HashingEmbedder()))
            for name in arguments.stores.split(",")
        ]
        documents = {name: read_collection(DATA / name).documents for name in arguments.sets.split(",")}
        for workspace in workspaces:
            for name, own_documents in documents.items():
                workspace.dataset(name).add(own_documents)
        for number in range(arguments.queries):
            name = draw.choice(list(documents))
            words = words_of(draw.choice(documents[name]).text)
            if len(words) < 4:
                continue
            is_phrase, word, excluded = draw.random() < 0.5, draw.choice(words), draw.choice(words)
            if holds(word, excluded, phrase=False) or fold(excluded) in fold(word):
                continue
            term = f'"{excluded}"' if is_phrase else excluded
            workspace, strategy = workspaces[number % len(workspaces)], draw.choice(STRATEGIES)
            for key, query, syntax in (("obeyed", f"{word} -{term}", "hard"), ("plain", f"{word} {excluded}", "plain")):
                answer = workspace.search(query, 10, datasets=name, strategy=strategy, refuse=False, syntax=syntax)  # type: ignore[arg-type]
                figures[f"{key}: queries"] += 1
                figures[f"{key}: hits"] += len(answer.hits)
                figures[f"{key}: hits that hold it"] += sum(
                    holds(hit.document.searchable, excluded, phrase=is_phrase) for hit in answer.hits
                )
    for key, value in figures.items():
        print(f"{key:35} {value:>8,}")


if __name__ == "__main__":
    main()
