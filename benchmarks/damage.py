"""What becomes of a workspace when a bit of one of its files is flipped: 2,000 flips over all files, caches included.

    python benchmarks/damage.py [--flips 2000] [--seed 1]

Promised, and checked by searching, reading, writing and asking for access after each flip: every answer is the one
before, or a StoreError that names the file and a way back. Nothing is wrong in silence, nothing fails with a foreign
exception.

Exit status 1: one of these was not kept.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from damage_kit import Patient


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # what heals says so there
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        killed, closed = Patient(Path(folder, "killed"), killed=True), Patient(Path(folder, "closed"), killed=False)
        flips = [
            (patient, flip)
            for patient in (killed, closed)
            for flip in patient.flips(arguments.flips // 2, arguments.seed)
        ]
        for patient, flip in flips:
            outcome = patient.examine(flip)
            outcomes[flip.file][outcome.kind] += 1
            if outcome.kind in {"silent", "foreign"}:
                broken.append(f"{outcome.kind} {flip}: {outcome.message}")
                print(broken[-1][:400], flush=True)
    for file, counts in sorted(outcomes.items()):
        print(f"{file:60} {', '.join(f'{count} {kind}' for kind, count in counts.most_common())}")
    total = sum(outcomes.values(), Counter())
    print(f"\n{arguments.flips} flips: {', '.join(f'{count} {kind}' for kind, count in total.most_common())}")
    print(f"{len(broken)} broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
