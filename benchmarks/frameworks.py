"""Runs the frameworks' suites over our adapters, at the oldest and newest versions that `pyproject.toml` allows.

`make frameworks` runs all of them; ``python benchmarks/frameworks.py langchain oldest`` runs one. Each has an
environment of its own, which is deleted at the end. Exit code 1 if a suite fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

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
    "mcp": Framework("mcp", ("mcp==1.24.0",), (), ("tests/test_mcp.py", "tests/test_mcp_tools.py")),
}


def run(name: str, end: str) -> tuple[str, bool]:
    """Run a framework's suites in a new environment; return the version installed, and whether they passed."""
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
        completed = subprocess.run([python, "-m", "pytest", "-n0", *framework.tests], check=False, cwd=ROOT)
    return version, completed.returncode == 0


def main(names: list[str]) -> int:
    """Run the suites of these frameworks, or all, at these ends, or both; print a table; return the exit code."""
    ends = [end for end in ("oldest", "newest") if end in names] or ["oldest", "newest"]
    chosen = [name for name in FRAMEWORKS if name in names] or list(FRAMEWORKS)
    results = [(name, end, *run(name, end)) for name in chosen for end in ends]
    for name, end, version, passed in results:
        print(f"{name:12} {end:7} {version:10} {'passed' if passed else 'FAILED'}")
    return 0 if all(passed for *_, passed in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
