"""One of several processes that open a dataset at the same moment: ``python lag_worker.py FOLDER``.

For each moment on standard input: open, search for a second, say how many answers had too few hits and did not say
that they were behind, and how many hits the last one had.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from store_kit import opened

if __name__ == "__main__":
    for line in sys.stdin:
        time.sleep(max(0.0, float(line) - time.monotonic()))
        store = opened(Path(sys.argv[1]))
        silent, hits, until = 0, 0, time.monotonic() + 1.5
        while time.monotonic() < until:
            hits = len(store.keyword.search("rail lamp guard", 5))
            if hits < 5 and store.lagging() is None:
                hits = len(store.keyword.search("rail lamp guard", 5))  # it may have come between the two
                silent += hits < 5 and store.lagging() is None
            time.sleep(0.005)
        store.close()
        sys.stdout.write(f"{silent} {hits}\n")
        sys.stdout.flush()
