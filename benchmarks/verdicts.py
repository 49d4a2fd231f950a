"""Whether verdicts can be relied on: what is told as answered, as unsure and as refused.

    python benchmarks/verdicts.py [--everyday 200] [NAME…]

Asked of four folders (`_folder_files.py`: 60 questions each whose file is known, 15 that nothing answers), alone and
beside two other datasets, and of collections in three languages, which nothing in the verdicts was fitted to (120
questions each, at most some 1,000 passages). Everyday questions (``off_topic.tsv``) are asked of each dataset alone.
A first hit is right if it is in a file, or is a document, that answers.

Each row tells how many questions of a kind got each verdict. ``right`` is the share of the answers told as answered
that are right, where one question in four has no answer. Collections are read from ``$POINTSMAN_TEST_DATA``, else
from ``../shared/data``, and left out if they are not there, which is said. In ``ru_faq_java``, ``en_cranfield`` and
``zh_domainrag`` only some passages that answer are labelled: a first hit without a label counts as wrong there, so
their share of right ones is too low. Exit status 1: more than 2 % of right first hits are refused, or of what is told
as answered in folders, less than 85 % is right.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pointsman
from _data import DATA
from _folder_files import HERE, questions, write_folder
from folders import FOLDERS
from pointsman.evaluation import read_collection
from pointsman.ingest import standard_library_documents

COLLECTIONS = ("ru_faq_java", "en_xquad", "zh_xquad", "ru_xquad", "en_cranfield", "zh_domainrag")
QUESTIONS, RELEVANT, OTHERS = 120, 500, 500
REFUSED, RIGHT = 0.02, 0.85
KINDS = ("right", "wrong", "no answer", "everyday")


class Asked(NamedTuple):
    """A question: its text, what answers it, and its kind if that is known before the search."""

    text: str
    answers: frozenset[str]
    kind: str | None = None


def verdicts(
    workspace: pointsman.Workspace, datasets: Sequence[str], asked: Iterable[Asked]
) -> Counter[tuple[str, str | None]]:
    """Count the questions by kind and verdict."""
    counts: Counter[tuple[str, str | None]] = Counter()
    for question in asked:
        answer = workspace.search(question.text, 5, datasets=list(datasets))
        hits = answer.refused.near_misses if answer.refused else answer.hits
        names = {hits[0].id, hits[0].metadata.get("source")} if hits and hits[0].dataset == datasets[0] else set()
        kind = question.kind or ("right" if names & question.answers else "wrong")
        counts[kind, answer.verdict] += 1
    return counts


def of_folder(name: str) -> list[Asked]:
    """The questions of a folder."""
    return [Asked(text, files, None if files else "no answer") for text, files in questions(name)]


def everyday(count: int) -> list[Asked]:
    """An even sample of the everyday questions."""
    rows = [line.split("\t") for line in (HERE.parent / "off_topic.tsv").read_text("utf-8").splitlines()[1:]]
    return [Asked(row[2], frozenset(), "everyday") for row in rows[:: max(1, len(rows) // count)]]


def write_collection(workspace: pointsman.Workspace, name: str) -> list[Asked]:
    """Index a part of a collection, with what answers its first questions; return these."""
    collection = read_collection(DATA / name)
    texts = list(collection.queries.items())[:QUESTIONS]
    answers = {
        query: frozenset(id_ for id_, grade in collection.qrels.get(query, {}).items() if grade > 0)
        for query, _ in texts
    }
    wanted = frozenset().union(*answers.values())
    relevant = [document for document in collection.documents if document.id in wanted]
    others = [document for document in collection.documents if document.id not in wanted]
    dataset = workspace.dataset(name)
    dataset.add([*relevant[:RELEVANT], *others[:OTHERS]])
    dataset.embed()
    return [Asked(text, answers[query]) for query, text in texts]


def rows(
    workspace: pointsman.Workspace, directory: Path, names: Sequence[str], count: int
) -> Iterator[tuple[str, Counter[tuple[str, str | None]]]]:
    """Index, ask and count; a row for each dataset, alone or beside others."""
    folders = [name for name in FOLDERS if name in names]
    for name in dict.fromkeys([*folders, *(FOLDERS[name] for name in folders)]):
        write_folder(name, directory / name)
        workspace.index(directory / name, name)
    if folders:
        python = workspace.dataset("python")
        python.add(standard_library_documents(1000))
        python.embed()
    for name in folders:
        yield name, verdicts(workspace, [name], [*of_folder(name), *everyday(count)])
        yield f"{name} beside two", verdicts(workspace, [name, FOLDERS[name], "python"], of_folder(name))
    for name in (name for name in COLLECTIONS if name in names):
        if not (DATA / name).is_dir():
            print(f"{name}: left out, it is not in {DATA}")
            continue
        asked = write_collection(workspace, name)
        yield name, verdicts(workspace, [name], [*asked, *everyday(count)])


def print_row(name: str, counts: Counter[tuple[str, str | None]]) -> None:
    """Print how many questions of each kind got each verdict, and the shares that are promised."""
    cells = ["/".join(str(counts[kind, verdict]) for verdict in ("answered", "unsure", "refused")) for kind in KINDS]
    refused, right = shares(counts)
    print(f"{name:24}" + "".join(f"{cell:>14}" for cell in cells) + f"{refused:12.1%}{right:10.1%}", flush=True)


def shares(counts: Counter[tuple[str, str | None]]) -> tuple[float, float]:
    """Return the share of right first hits that is refused, and of what is told as answered that is right."""
    of_kind = Counter[str]()
    for (kind, _), number in counts.items():
        of_kind[kind] += number
    answerable = of_kind["right"] + of_kind["wrong"]
    weight = answerable / 3 / of_kind["no answer"] if of_kind["no answer"] else 0.0
    told = counts["right", "answered"] + counts["wrong", "answered"] + weight * counts["no answer", "answered"]
    return counts["right", "refused"] / max(of_kind["right"], 1), counts["right", "answered"] / max(told, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join([*FOLDERS, *COLLECTIONS])}; default: all"
    )
    parser.add_argument("--everyday", type=int, default=200, metavar="N", help="everyday questions of each dataset")
    options = parser.parse_intermixed_args()
    if unknown := set(options.names) - {*FOLDERS, *COLLECTIONS}:
        parser.error(f"there is no folder or collection named {', '.join(sorted(unknown))}")
    print("questions told as answered/unsure/refused, by kind")
    print(f"{'':24}" + "".join(f"{kind:>14}" for kind in KINDS) + f"{'refused':>12}{'right':>10}")
    totals: dict[str, Counter[tuple[str, str | None]]] = {"folders": Counter(), "collections": Counter()}
    with tempfile.TemporaryDirectory() as directory, pointsman.open(Path(directory) / "index") as workspace:
        for name, counts in rows(
            workspace, Path(directory), options.names or [*FOLDERS, *COLLECTIONS], options.everyday
        ):
            print_row(name, counts)
            totals["collections" if name in COLLECTIONS else "folders"] += counts
    for name, counts in totals.items():
        print_row(f"all {name}", counts)
    figures = {name: shares(counts) for name, counts in totals.items() if counts}
    is_right = "folders" not in figures or figures["folders"][1] >= RIGHT
    return int(not is_right or any(refused > REFUSED for refused, _ in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
