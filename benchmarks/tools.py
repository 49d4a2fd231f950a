"""How often the right tool is found among thousands, without labelled queries.

    python benchmarks/tools.py [SET]

The tools are those of Seal-Tools (4,076; or of another set in ``$POINTSMAN_TEST_DATA``, else ``../shared/data`` beside
the repository). Every query is ranked as a whole, then by its steps (`_request_steps`), then with each
step as a query of its own, five tools for each, as an agent may ask. The numbers in `_request_steps` were chosen on the
queries with an even number; those with an odd one are told apart. Exit status 1: a bound is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from _data import DATA
from _request_steps import step_scores, steps
from _selector_figures import read_selection
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.selector import DescriptionSelector

DEPTHS = (1, 3, 5, 10)
HITS = 0.99
MOST = 20  # tools of all steps together


def main() -> int:
    task = read_selection(DATA / (sys.argv[1] if len(sys.argv) > 1 else "tool_sealtools_dev"))
    choices = task.choices
    selector = DescriptionSelector(CachedEmbedder(default_embedder()))
    whole, stepped, separate = [], [], []
    for query in task.queries:
        whole.append(best(selector.scores(choices, query), max(DEPTHS)))
        stepped.append(best(step_scores(selector, choices, query), max(DEPTHS)))
        lists = [best(selector.scores(choices, step), 5) for step in steps(query) or [query]]
        turns = dict.fromkeys(place for same_rank in zip(*lists, strict=True) for place in same_rank)
        separate.append(list(turns)[:MOST])
    print(f"{task.name}: {len(choices):,} tools, {len(task.queries):,} queries")
    places = range(len(task.queries))
    ceiling = np.mean([min(1.0, 5 / len(right)) for right in task.right])
    print(f"with five tools at most {ceiling:.4f} of all right ones can be shown")
    for title, part in (
        ("all queries", places),
        ("of even number", places[::2]),
        ("of odd number, left out", places[1::2]),
        ("for one tool", [place for place in places if len(task.right[place]) == 1]),
    ):
        print(f"\n{f'{title}: {len(part)}':34}" + "".join(f"{depth:>8}" for depth in DEPTHS))
        for name, ranking in (("as a whole", whole), ("by its steps", stepped)):
            hits = [[len(task.right[n] & set(ranking[n][:depth])) for n in part] for depth in DEPTHS]
            print(f"{f'{name}: a right tool':34}" + "".join(f"{np.mean(np.array(row) > 0):8.4f}" for row in hits))
            shares = [np.mean([hit / len(task.right[n]) for hit, n in zip(row, part, strict=True)]) for row in hits]
            print(f"{'  share of all right tools':34}" + "".join(f"{share:8.4f}" for share in shares))
        shown = np.mean([len(separate[n]) for n in part])
        found = np.mean([len(task.right[n] & set(separate[n])) / len(task.right[n]) for n in part])
        print(f"{'each step a query, five for each':34}{found:8.4f} of all right tools in {shown:.1f}")
    any_right = np.mean([bool(right & set(ranking[:5])) for right, ranking in zip(task.right, stepped, strict=True)])
    return 0 if any_right >= HITS else 1


def best(scores: Sequence[float], count: int) -> list[int]:
    """The places of the highest scores."""
    return [int(place) for place in np.argsort(-np.array(scores), kind="stable")[:count]]


if __name__ == "__main__":
    sys.exit(main())
