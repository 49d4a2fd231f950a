"""Chinese typos by sound: how many of those in chinese_typos.tsv are put right, and how many right questions change.

Run: python benchmarks/chinese_typos.py. Corrections are those of a search. The documents are those of zh_cmrc2018, from
``$POINTSMAN_TEST_DATA``, and a sentence about each right phrase. The rules were chosen with the
first 116 typos and these questions in view; the last 48 were written afterwards. A changed question is searched as it
was written, too. Exits with 1 if fewer than 12 of the first 16 or of any 16 of the next hundred are put right, or a
right question is searched only as changed.
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
    groups = [sum(is_right[start : start + 16]) for start in range(0, 112, 16)]
    print("of each 16 of the first 112:", *groups)
    print(f"of the first 116: {sum(is_right[:116])}; of the last 48: {sum(is_right[116:])}")
    questions = list(collection.queries.values())[:: len(collection.queries) // 500][:500]
    changed = [spelling for question in questions if (spelling := workspace.search(question).spelling) is not None]
    replaced = [spelling for spelling in changed if not spelling.both]
    print(f"{len(questions)} right questions: {len(replaced)} replaced, {len(changed)} also searched in other words")
    return int(min(groups) < 12 or bool(replaced))


if __name__ == "__main__":
    sys.exit(main())
