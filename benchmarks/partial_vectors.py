"""What a dataset answers while vectors are still to come: nDCG@10 by the share of documents that have theirs.

    python benchmarks/partial_vectors.py [COLLECTION …] [--questions 150]

Documents are embedded in random order. The calibrated sum with documents without a vector as near as the nearest (as it
is), as the mean, and as the furthest; reciprocal rank fusion; words alone; and how many questions are refused.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from pointsman import Dataset
from pointsman.evaluation.collections import read_collection
from pointsman.evaluation.ranking_metrics import measure
from pointsman.retrieval.run.candidates import Pool

DATA = Path(__file__).parents[1] / ".." / "shared" / "data"
SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


def mean(pool: Pool[object], cosines: Iterable[float], otherwise: float) -> float:
    known = [cosine for cosine in cosines if not math.isnan(cosine)] if pool.vectors_due else []
    return math.fsum(known) / len(known) if known else otherwise


def furthest(_: Pool[object], __: Iterable[float], otherwise: float) -> float:
    return otherwise


WAYS: dict[str, tuple[Literal["hybrid", "rrf", "bm25"], Callable[..., float]]] = {
    "nearest": ("hybrid", Pool._missing_cosine),
    "mean": ("hybrid", mean),
    "furthest": ("hybrid", furthest),
    "rrf": ("rrf", Pool._missing_cosine),
    "words": ("bm25", Pool._missing_cosine),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="*", default=["en_xquad", "ru_faq_java", "zh_xquad", "en_cranfield"])
    parser.add_argument("--questions", type=int, default=150)
    arguments = parser.parse_args()
    print(f"{'':20}{'':6}" + "".join(f"{name:>10}" for name in WAYS) + "   refused")
    for name in arguments.collections:
        collection = read_collection(DATA / name)
        documents, ids = list(collection.documents), [id_ for id_ in collection.queries if id_ in collection.qrels]
        random.Random(1).shuffle(documents)
        random.Random(3).shuffle(ids)
        queries = {id_: collection.queries[id_] for id_ in ids[: arguments.questions]}
        qrels = {id_: collection.qrels[id_] for id_ in queries}
        with tempfile.TemporaryDirectory() as folder, Dataset("x", path=f"{folder}/x") as dataset:
            dataset.add(documents, embed="later")
            count = 0
            for share in SHARES:
                while count < int(share * len(documents)):
                    count += dataset.embed(int(share * len(documents)) - count)
                row = []
                for strategy, unknown in WAYS.values():
                    setattr(Pool, "_missing_cosine", unknown)  # noqa: B010  (mypy forbids the other way)
                    answers = dataset.search_many(
                        list(queries.values()), 10, strategy=strategy, refuse=False, rerank=False
                    )
                    rankings = {id_: [hit.id for hit in answer] for id_, answer in zip(queries, answers, strict=True)}
                    row.append(f"{measure(qrels, rankings).means['ndcg@10']:10.3f}")
                setattr(Pool, "_missing_cosine", WAYS["nearest"][1])  # noqa: B010  (as above)
                refused = sum(one.refused is not None for one in dataset.search_many(list(queries.values()), 5))
                print(f"{name:20}{share:6.1f}{''.join(row)}{refused:10}", flush=True)


if __name__ == "__main__":
    main()
