"""Hostile values of the metadata that Pointsman reads itself: ``python benchmarks/reserved_keys.py [--values 5000]``.

Each value is given to each reserved key of a new document, with and without a source, beside documents that must stay
as they are. It is refused by one of Pointsman's errors, or it is harmless: the others are found, listed by their
source, read as texts and verified as before. ``--at`` names a folder (the default) or ``postgresql``. Exit status 1
otherwise.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pointsman
from pointsman import Dataset, Document
from pointsman._values import RESERVED
from pointsman.errors import PointsmanError
from pointsman.models.scripted import HashingEmbedder
from store_hostile import value_of

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from postgres_kit import PostgresServer

EVERY = 250  # documents between two verifications
FILES = ("manual.md", "faq.md", "лампа.txt")
NUMBERS = (-1, 2**53, 2**63, 10**400, 1e308, float("inf"), float("nan"), True, -0.0)
SHAPES: tuple[Any, ...] = (None, [], {}, [[]], [None], {"a": {"b": []}}, "manual.md\x00", ["manual.md"], "x" * 100_000)


def hostile_value(chance: random.Random) -> Any:
    """A text that breaks out of something, a number out of every range, or a value of another shape."""
    kind = chance.random()
    return chance.choice(NUMBERS) if kind < 0.2 else chance.choice(SHAPES) if kind < 0.4 else value_of(chance)


def others() -> list[Document]:
    """Nine passages of three files."""
    texts = {name: [f"The signal of {name} is red in part {part}." for part in range(3)] for name in FILES}
    documents = []
    for name, parts in texts.items():
        start = 0
        for position, text in enumerate(parts):
            end = start + len(text)
            place = {"source": name, "position": position, "start": start, "end": end, "parent": f"{name}#0"}
            documents.append(Document(f"{name}#{position}", text, {**place, "sha256": "0" * 64, "kind": "text"}))
            start = end + 1
    return documents


def state(dataset: Dataset) -> dict[str, Any]:
    """What a reader sees of the other documents."""
    return {
        "documents": [dataset.get(document.id) for document in others()],
        "sources": {name: dataset.ids(source=name) for name in FILES},
        "texts": {name: dataset.text(name, hash="0" * 64).text for name in FILES},
        "hits": [hit.id for hit in dataset.retriever("bm25").retrieve("signal red manual", 3)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=5000, help="for each key")
    parser.add_argument("--at", choices=("folder", "postgresql"), default="folder")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    outcomes: Counter[str] = Counter()
    problems: list[str] = []
    with ExitStack() as stack:
        if options.at == "postgresql":
            server = PostgresServer()
            stack.callback(server.stop)
            place = f"{server.url}?schema=reserved"
        else:
            place = stack.enter_context(tempfile.TemporaryDirectory())
        workspace = stack.enter_context(pointsman.open(place, embedder=HashingEmbedder()))
        dataset = workspace.dataset("notes")
        dataset.add(others())
        before = state(dataset)
        for key in RESERVED:
            for number in range(options.values):
                value = hostile_value(chance)
                metadata = {key: value} if chance.random() < 0.5 else {"source": "new.md", key: value}
                what = f"{key}={value!r:.60}"
                try:
                    dataset.add(Document("new", "An unrelated text about tea.", metadata), embed=False)
                    outcomes["harmless"] += 1
                except PointsmanError:
                    outcomes["refused"] += 1
                except Exception as error:  # noqa: BLE001  (that is what is looked for)
                    problems.append(f"{what}: {type(error).__name__}: {error!s:.100}")
                try:
                    if number % EVERY == 0 and dataset.verify().problems:
                        problems.append(f"{what}: verify found problems")
                    if number % 10 == 0 and state(dataset) != before:
                        problems.append(f"{what}: the other documents look different")
                except Exception as error:  # noqa: BLE001  (as above)
                    problems.append(f"{what}: reading the others: {type(error).__name__}: {error!s:.100}")
            dataset.delete("new")
    print(f"{options.at}: {options.values:,} values for each of {len(RESERVED)} keys:", dict(outcomes))
    print(f"{len(problems)} problems", *problems[:20], sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
