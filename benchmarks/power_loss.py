"""Power loss at every call: record what a process asks of the file system, cut it off, open what is left.

    python benchmarks/power_loss.py [--on store|workspace] [--every 1] [--seeds 1]

A process makes, fills, updates, deletes, rebuilds, describes and drops datasets under strace and says what has
returned. The record is played back; after each call that writes, syncs, renames or removes something, two disks are
made: one that has only what was synced (of files and of directories), and one for each seed that has a random part of
the rest, too. On each of them everything acknowledged must be there, nothing that was dropped, the call that was cut
short as a whole or not at all (an add: some of its batches), and the indexes agree with the documents.

Exit status 1: one of these was not kept.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from power_kit import Replay

WORKER = Path(__file__).parents[1] / "tests" / "power_worker.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=("store", "workspace"), default="store")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # every index that is healed is logged
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(WORKER, Path(folder), options.on)
        replay.crash_everywhere(options.every, [None, *map(random.Random, range(options.seeds))])
    for problem in replay.problems[:50]:
        print(f"VIOLATION {problem[:400]}")
    print(
        f"{len(replay.calls)} calls recorded, {replay.replays} power losses in {time.monotonic() - began:.0f} s: "
        f"{len(replay.problems)} violations"
    )
    return 1 if replay.problems else 0


if __name__ == "__main__":
    sys.exit(main())
