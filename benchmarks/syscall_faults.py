"""Every system call of every operation made to fail, once and for good, with ENOSPC, EIO and EMFILE.

    python benchmarks/syscall_faults.py [--sample 1.0] [--operations add,drop]

Search, add, update, delete, rebuild, describe, back up, restore, make and drop run in processes of their own under
strace, which lets the N-th call of one kind fail. Promised, and checked of every case:

- what is raised is one of our errors (``StoreError`` and those below it), and says which file and what to do;
- what was acknowledged is done, what was not is done as a whole or not at all, and what was there before is there;
- once nothing fails any more, the dataset opens, its stores agree, and an answer is full or says that it is not.

Exit status 1: one of these was not kept.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from syscall_kit import Bench


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=float, default=1.0, help="share of the cases")
    parser.add_argument("--operations", help="comma-separated; all of them unless given")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, began, broken, total = random.Random(options.seed), time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for operation in options.operations.split(",") if options.operations else bench.operations:
            outcomes: Counter[str] = Counter()
            for case in bench.cases(operation):
                if chance.random() >= options.sample:
                    continue
                outcome = bench.run(case)
                total += 1
                outcomes[outcome.error.partition(":")[0] or "done"] += 1
                if outcome.problems:
                    broken += 1
                    print(f"VIOLATION {case}: {'; '.join(outcome.problems)[:400]}", flush=True)
            print(f"{operation}: {', '.join(f'{count} {what}' for what, count in outcomes.most_common())}", flush=True)
    print(f"{total} cases in {time.monotonic() - began:.0f} s: {broken} violations")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
