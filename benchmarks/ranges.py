"""Which ranges of pyproject.toml shut out the newest release on PyPI: ``python benchmarks/ranges.py``.

Prints a line for each, with the comment beside the range, and how many ranges there are. Exit code 1 if there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def ranges() -> dict[str, list[Requirement]]:
    """Return the requirements by package: of the build, the core, and every extra."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    texts = [*project["build-system"]["requires"], *project["project"]["dependencies"], *(t for e in extras for t in e)]
    by_name: dict[str, list[Requirement]] = {}
    for requirement in map(Requirement, texts):
        if requirement.name != "pointsman":
            by_name.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return by_name


def newest(names: list[str]) -> dict[str, str]:
    """Return the newest release of each package that this Python can install, as uv finds it."""
    assert find_spec("uv") is not None, "the command needs uv: pip install uv"
    command = [sys.executable, "-m", "uv", "pip", "compile", "--no-deps", "--no-header", "--no-annotate", "--quiet"]
    text = "\n".join(names)
    listing = subprocess.run([*command, "-"], input=text, capture_output=True, text=True, check=True, timeout=600)
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", listing.stdout, re.MULTILINE))


def main() -> int:
    """Print the ranges that shut out the newest release; return the exit code."""
    by_name = ranges()
    releases = newest(sorted(by_name))
    assert by_name.keys() == releases.keys(), by_name.keys() ^ releases.keys()
    text = PROJECT.read_text("utf-8")
    shut_out = 0
    for name, requirements in sorted(by_name.items()):
        for requirement in requirements:
            if not requirement.specifier.contains(releases[name]):
                comment = re.search(rf'"{re.escape(requirement.name)}[^"]*",?\s*#\s*(.*)', text)
                print(f"{requirement} shuts out {releases[name]}: {comment[1] if comment else 'no reason is given'}")
                shut_out += 1
    print(f"{sum(map(len, by_name.values()))} ranges, {shut_out} shut out the newest release")
    return min(shut_out, 1)


if __name__ == "__main__":
    sys.exit(main())
