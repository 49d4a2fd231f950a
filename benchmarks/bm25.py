"""BM25 against its formula over the documents that there are: ``python benchmarks/bm25.py [--rounds 250]``.

Random work adds, updates and deletes, with and without building a mostly deleted index anew; after each round four
questions are asked, and every score is compared with the formula. At the end the same questions are asked before and
after `rebuild`.

Exit status 1: a score is not that of the formula, or another one after `rebuild`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from pointsman.store.local.keyword import keyword_index
from scores_kit import WITHIN, check, random_work
from store_kit import opened


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kept = True
    for name, compact in (("built anew when mostly deleted", 20), ("never built anew", 10**9)):
        keyword_index._COMPACT = compact
        with tempfile.TemporaryDirectory() as folder:
            store = opened(Path(folder))
            deviations, questions = [], set()
            for live, queries in random_work(store, options.seed, options.rounds):
                questions.update(queries)
                deviations += [check(store, live, query) for query in queries]
            before = {query: store.keyword.search(query, 10) for query in questions}
            store.rebuild()
            drift = [
                abs(score / again - 1)
                for query, hits in before.items()
                for (_, score), (_, again) in zip(hits, store.keyword.search(query, 10), strict=True)
            ]
            store.close()
        print(
            f"{name}: {len(deviations)} questions, {len(live)} documents at the end; off the formula by "
            f"{statistics.median(deviations):.2g} of a score in the median, {max(deviations):.2g} at most; "
            f"by rebuilding {max(drift):.2g} at most"
        )
        kept &= max(deviations) <= WITHIN and max(drift) <= WITHIN
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
