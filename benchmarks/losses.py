"""Headings and words of files that no passage has: of generated files, and of the descriptions of installed packages.

    python benchmarks/losses.py [--files 2000]

Each file is cut at every size of passages. Exit status 1 if anything is lost.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from losses_kit import FORMATS, SIZES, descriptions, generated_file, losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    count = parser.parse_args().files
    rng = random.Random(1)
    kinds = [*FORMATS]
    missing: list[str] = []
    for number in range(count):
        name, data, headings = generated_file(kinds[number % len(kinds)], rng)
        for size in SIZES:
            missing += [f"{number} {name} {size}: {loss}" for loss in losses(name, data, *size, headings=headings)]
    print(f"{count:,} generated files of {len(kinds)} formats, {len(SIZES)} sizes: {len(missing)} lost")
    generated = len(missing)
    packages = 0
    for name, text in descriptions():
        packages += 1
        for size in SIZES:
            missing += [f"{name} {size}: {loss}" for loss in losses(name, text.encode("utf-8", "replace"), *size)]
    print(f"{packages} descriptions of packages: {len(missing) - generated} lost")
    print(*missing[:20], sep="\n", end="\n" if missing else "")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
