"""Every extra works alone: with the packages that it and the core name, and none of another extra."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROGRAMS = {
    "": "import pointsman, pointsman.cli.core_commands, pointsman.integrations\n"
    "import pointsman.store.external.chroma, pointsman.store.external.meilisearch\n"
    "from pointsman.retrieval.refine.rerank.chosen_reranker import load_reranker\n"
    "pointsman.Client('http://127.0.0.1:9'), pointsman.open('http://127.0.0.1:9')\n"
    "load_reranker('http://127.0.0.1:9')",
    "eval": "import pointsman.evaluation.ranking_metrics, pointsman.evaluation.run_collection",
    "haystack": "import pointsman.integrations.haystack",
    "langchain": "import pointsman.integrations.langchain",
    "llama-index": "import pointsman.integrations.llama_index",
    "mcp": "from pointsman.integrations.mcp import mcp_servers\nimport pointsman.service.server.http_protocol",
    "openai": "import pointsman.embedders.openai_embedder, pointsman.llm.openai_llm",
    "opensearch": "import pointsman.store.opensearch.opensearch_backend",
    "postgres": "import pointsman.store.postgres.postgres_backend",
    "server": "import pointsman.service.server.app, pointsman.service.server.http_protocol\n"
    "from pointsman.service.server.routes.console_page import swagger_files\n"
    "assert len(swagger_files()) == 2",
}
BLOCKING_PROGRAM = """
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
    waiting, pairs_seen = [("pointsman", extra)], set[tuple[str, str]]()
    while waiting:
        name, extra_name = waiting.pop()
        if (name, extra_name) in pairs_seen:
            continue
        pairs_seen.add((name, extra_name))
        try:
            texts = requires(name) or []
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, texts):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra_name}):
                dependency = canonicalize_name(requirement.name)
                waiting += [
                    (dependency, ""),
                    *((dependency, dependency_extra) for dependency_extra in requirement.extras),
                ]
        waiting.append((name, ""))
    return {name for name, _ in pairs_seen}


@cache
def distributions_by_module() -> Mapping[str, list[str]]:
    """The distributions that each module is of: seconds, as it reads the lists of all files that are installed."""
    return packages_distributions()


@pytest.mark.parametrize("extra", PROGRAMS)
def test_an_extra_needs_no_package_of_another(extra: str, tmp_path: Path) -> None:
    available = distributions_of(extra)
    blocked_packages = {
        module
        for module, names in distributions_by_module().items()
        if re.fullmatch(r"\w+", module) and not {canonicalize_name(name) for name in names} & available
    }
    assert ("fastapi" in blocked_packages) == (extra != "server")
    program = BLOCKING_PROGRAM.format(
        blocked=sorted(blocked_packages - {"_virtualenv", "_distutils_hack"}), program=PROGRAMS[extra]
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr[-2000:]
