"""Runs the frameworks' suites over our adapters, at the oldest and newest versions that `pyproject.toml` allows.

`make frameworks` runs all of them; ``python benchmarks/frameworks.py langchain oldest`` runs one. Each has an
environment of its own, which is deleted at the end. Prints how many tests passed, failed and were skipped; exit code 1
if one failed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parent.parent
COMMON = ("pytest>=8,<9.2", "pytest-xdist>=3.6,<4", "hypothesis>=6.100,<7", "trio>=0.26,<1", "httpx>=0.27,<1", "numpy")


@dataclass(frozen=True)
class Framework:
    """A framework, as an extra of Pointsman.

    Attributes:
        package: its package, whose version is reported.
        oldest: the versions installed at the lower bound.
        more: other packages that its tests need.
        tests: the files of tests.
    """

    package: str
    oldest: tuple[str, ...]
    more: tuple[str, ...]
    tests: tuple[str, ...]


FRAMEWORKS = {
    "langchain": Framework(
        "langchain-core",
        ("langchain-core==1.7.0",),
        ("langchain-tests>=1.1,<2", "langchain-community>=0.4,<0.5"),
        ("tests/test_langchain.py",),
    ),
    "llama-index": Framework(
        "llama-index-core",
        ("llama-index-core==0.14.0",),
        ("llama-index-vector-stores-faiss>=0.5,<0.8",),
        ("tests/test_llama_index.py",),
    ),
    "haystack": Framework("haystack-ai", ("haystack-ai==3.4.0",), (), ("tests/test_haystack.py",)),
}


class Outcome(NamedTuple):
    """What a run of a framework's suites came to.

    Attributes:
        version: of the framework.
        counts: tests in words.
        is_good: whether none failed.
    """

    version: str
    counts: str
    is_good: bool


def run(name: str, end: str) -> Outcome:
    """Run a framework's suites in a new environment."""
    framework = FRAMEWORKS[name]
    with tempfile.TemporaryDirectory(prefix=f"pointsman-{name}-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        pins = framework.oldest if end == "oldest" else ()
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*install, "--editable", f"{ROOT}[{name},server,http,openai]", *pins, *framework.more, *COMMON], check=True
        )
        show = f"import importlib.metadata as m; print(m.version({framework.package!r}))"
        version = subprocess.run([python, "-c", show], check=True, capture_output=True, text=True).stdout.strip()
        print(f"── {name} {version} ({end})", flush=True)
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", "-n0", "-p", "no:cacheprovider", f"--junitxml={report}", *framework.tests]
        completed = subprocess.run(command, check=False, cwd=ROOT)
        counts = counts_in(report) if report.exists() else "no test ran"
    return Outcome(version, counts, completed.returncode == 0)


def counts_in(report: Path) -> str:
    """Return how many tests of a JUnit report passed, failed and were skipped."""
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    number = {name: int(suite.get(name, 0)) for name in ("tests", "skipped", "failures", "errors")}
    failed = number["failures"] + number["errors"]
    return f"{number['tests'] - failed - number['skipped']} passed, {number['skipped']} skipped, {failed} failed"


def main(names: list[str]) -> int:
    """Run the suites of these frameworks, or all, at these ends, or both; print a table; return the exit code."""
    ends = [end for end in ("oldest", "newest") if end in names] or ["oldest", "newest"]
    chosen = [name for name in FRAMEWORKS if name in names] or list(FRAMEWORKS)
    results = [(name, end, run(name, end)) for name in chosen for end in ends]
    for name, end, outcome in results:
        print(f"{name:12} {end:7} {outcome.version:10} {outcome.counts}{'' if outcome.is_good else '  FAILED'}")
    return 0 if all(outcome.is_good for *_, outcome in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
