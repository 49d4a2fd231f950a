"""How often the right tool is found behind `pointsman mcp --tools`, and how many tokens an agent carries less.

    python benchmarks/tools.py [SET]

The tools of Seal-Tools (4,076; or of another set in ``$POINTSMAN_TEST_DATA``, else ``../shared/data`` beside the
repository) stand behind `find_tools` as if one server had them; every query is asked as it is, by the selector without
any labelled query. Its name, its description and its parameters, taken from the description, are what a client would
carry of each tool. A token is three bytes (`pointsman.citations.about_tokens`). Exit status 1: a bound is missed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import numpy as np

from pointsman.citations import about_tokens
from pointsman.evaluation.select import read_selection
from pointsman.integrations.mcp.toolbox import CALL, FIND, FindAnswer, FoundTool, choices_of
from pointsman.integrations.mcp.upstream import ForeignTool
from pointsman.models import CachedEmbedder, default_embedder
from pointsman.selector import DescriptionSelector
from pointsman.server.logs import line_of

DATA = Path(os.environ.get("POINTSMAN_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
DEPTHS = (1, 3, 5, 10)
HITS, SAVED = 0.99, 0.85


def tool_of(name: str, description: str) -> ForeignTool:
    """A tool with the schema that its description tells in words."""
    about, _, parameters = description.partition(" Parameters: ")
    properties = {
        match[1]: {"type": "string", "description": match[2].strip()}
        for match in re.finditer(r"(\w+): ([^;]+)(?:; |$)", parameters)
    }
    return ForeignTool("tools", name, about, {"type": "object", "properties": properties})


def main() -> int:
    task = read_selection(DATA / (sys.argv[1] if len(sys.argv) > 1 else "tool_sealtools_dev"))
    tools = [tool_of(choice.name, choice.description) for choice in task.choices]
    choices = choices_of(tools)
    selector = DescriptionSelector(CachedEmbedder(default_embedder()))
    first: dict[int, list[bool]] = {depth: [] for depth in DEPTHS}
    share: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    answers = []
    for query, right in zip(task.queries, task.right, strict=True):
        best = np.argsort(-np.array(selector.scores(choices, query)), kind="stable")[: max(DEPTHS)].tolist()
        for depth in DEPTHS:
            first[depth].append(bool(right & set(best[:depth])))
            share[depth].append(len(right & set(best[:depth])) / len(right))
        answers.append(about_tokens(answered([tools[place] for place in best[:5]], len(tools))))
    print(f"{task.name}: {len(tools):,} tools, {len(task.queries):,} queries")
    print(f"{'among the first':34}" + "".join(f"{depth:>8}" for depth in DEPTHS))
    print(f"{'a right tool':34}" + "".join(f"{np.mean(first[depth]):8.4f}" for depth in DEPTHS))
    print(f"{'mean share of all right tools':34}" + "".join(f"{np.mean(share[depth]):8.4f}" for depth in DEPTHS))
    singles = [place for place, right in enumerate(task.right) if len(right) == 1]
    if singles and len(singles) < len(task.right):
        row = "".join(f"{np.mean([first[depth][place] for place in singles]):8.4f}" for depth in DEPTHS)
        print(f"{f'of {len(singles)} queries for one tool':34}{row}")
    ours = sum(about_tokens(json.dumps(one.wire())) for one in (FIND, CALL))
    each = [about_tokens(json.dumps(wire(tool))) for tool in tools]
    answer = float(np.mean(answers))
    print(f"\ntokens: two definitions {ours}, an answer of find_tools {answer:.0f}, a tool's own {np.mean(each):.0f}")
    print(f"{'tools':>8}{'all definitions':>17}{'ours, one answer':>18}{'saved':>8}{'ours, three':>13}{'saved':>8}")
    for count in sorted({50, 100, 200, 500, len(tools)}):
        whole = float(np.mean(each)) * count
        one, three = ours + answer, ours + 3 * answer
        print(f"{count:8,}{whole:17,.0f}{one:18,.0f}{1 - one / whole:8.1%}{three:13,.0f}{1 - three / whole:8.1%}")
    saved = 1 - (ours + answer) / sum(each)
    return 0 if np.mean(first[5]) >= HITS and saved >= SAVED else 1


def wire(tool: ForeignTool) -> dict[str, object]:
    """A tool as a client that talks to its server carries it."""
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}


def answered(tools: list[ForeignTool], total: int) -> str:
    """What find_tools says."""
    shown = [
        FoundTool(name=tool.full_name, description=tool.description, arguments=dict(tool.schema), away=False)
        for tool in tools
    ]
    return line_of(FindAnswer(tools=shown, total=total, away={}).model_dump(mode="json"))


if __name__ == "__main__":
    sys.exit(main())
