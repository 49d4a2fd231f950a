"""Chinese typos by sound: how many of those in chinese_typos.tsv are put right, and how many right questions change.

Run: python benchmarks/chinese_typos.py. Corrections are those of a search. The documents are those of zh_cmrc2018, from
``$POINTSMAN_TEST_DATA``, and a sentence about each right phrase. The bounds were chosen on every second typo after the
first sixteen, from the first on. A changed question is searched as it was written, too. Exits with 1 if fewer than 12
of the first 16, or .75 of the others, are put right, or a right question is searched only as changed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pointsman
from _data import DATA
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation import read_collection

TYPOS = [line.split("\t") for line in (Path(__file__).with_suffix(".tsv")).read_text("utf-8").splitlines()]


def main() -> int:
    """Print the figures."""
    collection = read_collection(DATA / "zh_cmrc2018")
    workspace = pointsman.open(Path(tempfile.mkdtemp()) / "workspace", embedder=HashingEmbedder())
    dataset = workspace.dataset("zh", indexing_technique="keyword")
    dataset.add(collection.documents)
    dataset.add([Document(f"phrase {number}", f"本页说明{right}。") for number, (_, right) in enumerate(TYPOS)])
    spellings = [workspace.search(typo).spelling for typo, _ in TYPOS]
    is_right = [
        spelling is not None and spelling.text == right for spelling, (_, right) in zip(spellings, TYPOS, strict=True)
    ]
    first, seen, held_out = is_right[:16], is_right[16::2], is_right[17::2]
    print(f"first 16: {sum(first)}; seen: {sum(seen)} of {len(seen)}; held out: {sum(held_out)} of {len(held_out)}")
    print("each 16 of the hundred:", *(sum(is_right[start : start + 16]) for start in range(16, 112, 16)))
    questions = list(collection.queries.values())[:: len(collection.queries) // 500][:500]
    changed = [spelling for question in questions if (spelling := workspace.search(question).spelling) is not None]
    replaced = [spelling for spelling in changed if not spelling.both]
    print(f"{len(questions)} right questions: {len(replaced)} replaced, {len(changed)} also searched in other words")
    return int(sum(first) < 12 or sum(is_right[16:]) < 75 or bool(replaced))


if __name__ == "__main__":
    sys.exit(main())
