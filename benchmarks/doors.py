"""A thousand random requests through every door: ``python benchmarks/doors.py [--requests 1000] [--seed 1]``.

Prints where two doors give different ids, scores, texts, refusals, strategies or errors; ends with 1 if any do. The
requests are those of ``tests/doors_kit.py``, spread over its settings.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from itertools import islice
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from doors_kit import SETTINGS, fill, requests, world


def main() -> None:
    """Put the requests, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of models that have no answer, which the requests provoke
    asked = list(islice(requests(options.seed), options.requests))
    different = answers = refused = failed = 0
    began = perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        fill(folder)
        for place, kind in enumerate(SETTINGS):
            with world(folder, kind) as made:
                for one in asked[place :: len(SETTINGS)]:
                    (first, wanted), *others = made.answers(one).items()
                    answers += 1 + len(others)
                    refused, failed = refused + (wanted.verdict == "refused"), failed + (wanted.error is not None)
                    for door, other in others:
                        if not wanted.same(other):
                            different += 1
                            print(f"{kind}: {one}\n  {first}: {wanted}\n  {door}: {other}")
    print(
        f"{options.requests} requests, {answers} answers by 9 doors under {len(SETTINGS)} settings in "
        f"{perf_counter() - began:.0f} s: {different} differences ({refused} requests refused, {failed} not possible)"
    )
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
