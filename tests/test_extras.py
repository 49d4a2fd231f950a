"""Every extra works alone: with the packages that it and the core name, and none of another extra."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROGRAMS = {
    "": "import pointsman.cli.app, pointsman.integrations",
    "eval": "import pointsman.evaluation.metrics, pointsman.evaluation.run",
    "haystack": "import pointsman.integrations.haystack",
    "langchain": "import pointsman.integrations.langchain",
    "llama-index": "import pointsman.integrations.llama_index",
    "mcp": "import pointsman.integrations.mcp.toolbox, pointsman.integrations.mcp.servers, pointsman.server.protocol",
    "openai": "import pointsman.models.openai_embedder, pointsman.models.openai_llm",
    "opensearch": "import pointsman.store.opensearch.backend",
    "postgres": "import pointsman.store.postgres.backend",
    "server": "import pointsman.server.app, pointsman.server.protocol",
}
BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
{program}
"""


def distributions_of(extra: str) -> set[str]:
    """Return all distributions that an installation of Pointsman with this extra has."""
    waiting, installed = [("pointsman", extra)], set[tuple[str, str]]()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in installed:
            continue
        installed.add((name, wanted))
        try:
            texts = requires(name) or []
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, texts):
            if requirement.marker is None or requirement.marker.evaluate({"extra": wanted}):
                required = canonicalize_name(requirement.name)
                waiting += [(required, ""), *((required, more) for more in requirement.extras)]
        waiting.append((name, ""))
    return {name for name, _ in installed}


@pytest.mark.parametrize("extra", PROGRAMS)
def test_an_extra_needs_no_package_of_another(extra: str, tmp_path: Path) -> None:
    available = distributions_of(extra)
    blocked = {
        module
        for module, names in packages_distributions().items()
        if re.fullmatch(r"\w+", module) and not {canonicalize_name(name) for name in names} & available
    }
    assert ("fastapi" in blocked) == (extra != "server")
    program = BLOCKED.format(blocked=sorted(blocked - {"_virtualenv", "_distutils_hack"}), program=PROGRAMS[extra])
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
