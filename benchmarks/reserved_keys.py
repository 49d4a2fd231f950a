"""Hostile values of the metadata that Pointsman reads itself: ``python benchmarks/reserved_keys.py [--values 5000]``.

Each value is given to each reserved key of a new document, with and without a source, beside documents that must stay
as they are. It is refused by one of Pointsman's errors, or it is harmless: the others are found, listed by their
source, read as texts and verified as before. ``--at`` names a folder (the default), ``postgresql``, ``opensearch``, or
a ``service`` over a folder, which gets the values as JSON and refuses them with a status below 500. Exit status 1
otherwise.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pointsman
from pointsman import Dataset, Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.tools.errors import PointsmanError, UnmetNeedError
from pointsman.values.metadata import RESERVED
from pointsman.values.views import ACCESS, VALIDITY_KEYS
from store_hostile import value_of

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from orders import workspace as started
from pointsman.service.client import Client
from server_kit import Served

if TYPE_CHECKING:
    from pointsman.service.client.remote_dataset import RemoteDataset

NAME: Final = "notes"
EVERY = 250  # documents between two verifications
TEXT = "An unrelated text about tea."
FILES = ("manual.md", "faq.md", "лампа.txt")
NUMBERS = (-1, 2**53, 2**63, 10**400, 1e308, float("inf"), float("nan"), True, -0.0)
KEYS = (*RESERVED, ACCESS, *VALIDITY_KEYS)
DAYS = (
    *("2026-02-30", "0000-01-01", "9999-12-31", "10000-01-01", "-001-01-01", "2026-3-1", "2026-03-01T00:00:00+99:99"),
    *(
        "２０２６-03-01",
        "2026-03-01\x00",
        " 2026-03-01",
        "2026-W10-7",
        "20260301",
        "tomorrow",
        "manual.md#",
        "#",
        "new",
    ),
)
SHAPES: tuple[Any, ...] = (None, [], {}, [[]], [None], {"a": {"b": []}}, "manual.md\x00", ["manual.md"], "x" * 100_000)


def hostile_value(chance: random.Random) -> Any:
    """A text that breaks out of something, a day that is none, a number out of range, or a value of another shape."""
    kind = chance.random()
    if kind > 0.9:
        return chance.choice(DAYS)
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


def state(dataset: Dataset | RemoteDataset) -> dict[str, Any]:
    """What a reader sees of the other documents."""
    return {
        "documents": [dataset.get(document.id) for document in others()],
        "sources": {name: dataset.ids(source=name) for name in FILES},
        "texts": {name: dataset.text(name, hash="0" * 64).text for name in FILES},
        "hits": [hit.id for hit in dataset.search("signal red manual", 3, strategy="bm25", refuse=False).hits],
    }


def keep(dataset: Dataset, metadata: dict[str, Any]) -> None:
    """Add the document to a dataset of this process."""
    dataset.add(Document("new", TEXT, metadata), embed=False)


class RefusedError(Exception):
    """A service has refused a document."""


def post(service: http.client.HTTPConnection, metadata: dict[str, Any]) -> None:
    """Send a document as plain JSON in ASCII; a client of ours would refuse to send NaN and lone surrogates."""
    body = json.dumps({"documents": [{"id": "new", "text": TEXT, "metadata": metadata}]})
    headers = {"Content-Type": "application/json"}
    service.request("POST", f"/api/datasets/{NAME}/documents", body, headers)
    response = service.getresponse()
    answer = response.read()
    if response.status >= 500:
        raise AssertionError(f"{response.status} {answer!r}")
    if response.status != 200:
        raise RefusedError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=5000, help="for each key")
    parser.add_argument("--at", choices=("folder", "postgresql", "opensearch", "service"), default="folder")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    outcomes: Counter[str] = Counter()
    problems: list[str] = []
    with ExitStack() as stack:
        place = stack.enter_context(started("folder" if options.at == "service" else options.at))
        dataset: Dataset | RemoteDataset
        if options.at == "service":
            served = stack.enter_context(Served(place).ready())
            dataset = stack.enter_context(Client(f"http://127.0.0.1:{served.port}")).dataset(NAME)
            add = partial(post, served.connection())
        else:
            dataset = stack.enter_context(pointsman.open(place, embedder=HashingEmbedder())).dataset(NAME)
            add = partial(keep, dataset)
        attack(dataset, add, chance, options.values, outcomes, problems)
    print(f"{options.at}: {options.values:,} values for each of {len(KEYS)} keys:", dict(outcomes))
    print(f"{len(problems)} problems", *problems[:20], sep="\n")
    sys.exit(bool(problems))


def attack(
    dataset: Dataset | RemoteDataset,
    add: Callable[[dict[str, Any]], None],
    chance: random.Random,
    values: int,
    outcomes: Counter[str],
    problems: list[str],
) -> None:
    """Give each key the values; counts what came of them."""
    dataset.add(others())
    before = state(dataset)
    for key in KEYS:
        for number in range(values):
            value = hostile_value(chance)
            metadata = {key: value} if chance.random() < 0.5 else {"source": "new.md", key: value}
            what = f"{key}={value!r:.60}"
            try:
                add(metadata)
                outcomes["harmless"] += 1
            except (PointsmanError, RefusedError):
                outcomes["refused"] += 1
            except Exception as error:  # noqa: BLE001  (that is what is looked for)
                problems.append(f"{what}: {type(error).__name__}: {error!s:.100}")
            try:
                if number % EVERY == 0 and is_damaged(dataset):
                    problems.append(f"{what}: verify found problems")
                if number % 10 == 0 and state(dataset) != before:
                    problems.append(f"{what}: the other documents look different")
            except Exception as error:  # noqa: BLE001  (as above)
                problems.append(f"{what}: reading the others: {type(error).__name__}: {error!s:.100}")
        dataset.delete("new")


def is_damaged(dataset: Dataset | RemoteDataset) -> bool:
    """Whether a check finds problems; stores that maintain themselves have none."""
    try:
        return bool(dataset.verify().problems)
    except UnmetNeedError:
        return False


if __name__ == "__main__":
    main()
