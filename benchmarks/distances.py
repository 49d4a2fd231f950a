"""Recall of dot products and Euclidean distances in a folder, for bounds of 1 to 16 times the longest vector.

60,000 vectors of 64 numbers around 300 centres, of lengths that vary by a factor of three and more, so that the list is
searched by 4-bit codes with rescoring; 100 queries. Prints recall@10 of an exact scan.

    python benchmarks/distances.py
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pointsman import Dataset, Document
from pointsman.embedders.distance import Distance, DistanceName
from pointsman.integrations.framework_sources import GivenVectors

COUNT: Final = 60_000
DIMENSIONS: Final = 64
K: Final = 10
CASES: Final[tuple[tuple[DistanceName, int], ...]] = (
    ("cosine", 1),
    *[("dot", factor) for factor in (1, 2, 4, 16)],
    *[("euclidean", factor) for factor in (1, 2, 4, 16)],
)


def main() -> None:
    """Print a line for each distance and bound."""
    chance = np.random.default_rng(1)
    centres = chance.normal(size=(300, DIMENSIONS))
    points = centres[chance.integers(0, 300, COUNT + 100)] + 0.7 * chance.normal(size=(COUNT + 100, DIMENSIONS))
    rows = (points[:COUNT] * chance.uniform(0.5, 1.5, (COUNT, 1))).astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1)
    documents = [Document(str(number), "") for number in range(COUNT)]
    for name, factor in CASES:
        distance = Distance(name, float(lengths.max()) * factor)
        with Dataset("rows", indexing_technique="vector", embedder=GivenVectors("rows", distance)) as dataset:
            dataset.add(documents, vectors=rows)
            hits = 0
            for query in points[COUNT:]:
                products = rows @ query
                worth = {
                    "cosine": products / lengths,
                    "dot": products,
                    "euclidean": -np.linalg.norm(rows - query, axis=1),
                }[name]
                nearest = set(np.argpartition(-worth, K)[:K].tolist())
                hits += len(nearest & {int(hit.id) for hit in dataset.search_vector(query, K)})
        print(f"{name}, bound {factor} times the longest: recall@{K} {hits / (K * 100):.3f}", flush=True)


if __name__ == "__main__":
    main()
