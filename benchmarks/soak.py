"""Half an hour of everything at once: ``python benchmarks/soak.py [--minutes 30]``.

Three clients add, update, delete, read and search through a service of two workers; the disk is filled and freed,
backups are made and put back, workers and the whole service get SIGKILL. The second half is without kills, so that the
memory of the service can be watched. Promised, and checked all the time, in every backup and at the end:

- what was acknowledged is there, as it was sent, what was deleted is not, and a search finds it;
- no status but 200, 404 (not there), 507 (the disk is full; searches go on) and, for 5 seconds after a kill, 503;
- memory is flat: in the last third of the warm calm it is no more than a tenth above the first.

Filling a disk needs root, who can mount a small one; without, there are no such windows, and it says so.

Exit status 1: one of these was not kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from disk_kit import NoSmallDiskError, small_disk
from soak_kit import Soak

SIZE = 64 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        disk, beside = Path(folder, "disk"), Path(folder, "beside")
        disk.mkdir()
        beside.mkdir()
        try:
            small = bool(stack.enter_context(small_disk(disk, SIZE)))
        except NoSmallDiskError as error:
            small = False
            print(f"no full disks: {error}")
        soak = Soak(disk, beside, small=small, seed=options.seed)
        stack.callback(soak.close)
        soak.run(options.minutes * 60)
    for what, count in sorted(soak.counts.items()):
        print(f"{count:8} {what}")
    for problem in soak.problems[:50]:
        print(f"VIOLATION {problem[:1500]}")
    first, last, slope = soak.growth()
    print(f"memory of both workers: {first:.0f} MB, {last:.0f} MB later, {slope:+.2f} MB a minute")
    lost = sum("lost" in problem for problem in soak.problems)
    wrong = sum("wrong" in problem for problem in soak.problems)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes: {lost} lost, {wrong} wrong, {len(soak.problems)} violations")
    return 1 if soak.problems or last > 1.1 * first else 0


if __name__ == "__main__":
    sys.exit(main())
