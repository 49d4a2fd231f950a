"""How often the right tool is found behind `pointsman mcp --tools`, and how many tokens an agent carries less.

    python benchmarks/tools.py [SET]

The tools of Seal-Tools (4,076; or of another set in ``$POINTSMAN_TEST_DATA``, else ``../shared/data`` beside the
repository) stand behind `find_tools` as if one server had them; the selector has no labelled query. Every query is
ranked as a whole, then by its steps (`pointsman.selector.multi_step`, as `find_tools` does), then with each step as a
query of its own, five tools for each, as an agent may ask. The numbers in `multi_step` were chosen on the queries with
an even number; those with an odd one are told apart. A tool's name, its description and its parameters, taken from the
description, are what a client would carry of it. A token is three bytes (`pointsman.values.citations.about_tokens`).
Exit status 1: a bound is missed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

import numpy as np

from _data import DATA
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.evaluation.selector_figures import read_selection
from pointsman.integrations.mcp.toolbox import CALL, FIND, MAX_FOUND, FindAnswer, FoundTool, choices_of
from pointsman.integrations.mcp.upstream import ForeignTool
from pointsman.selector import DescriptionSelector
from pointsman.selector.multi_step import step_scores, steps
from pointsman.service.server.request_log import line_of
from pointsman.values.citations import about_tokens

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
    whole, stepped, separate = [], [], []
    for query in task.queries:
        whole.append(best(selector.scores(choices, query), max(DEPTHS)))
        stepped.append(best(step_scores(selector, choices, query), max(DEPTHS)))
        lists = [best(selector.scores(choices, step), 5) for step in steps(query) or [query]]
        turns = dict.fromkeys(place for same_rank in zip(*lists, strict=True) for place in same_rank)
        separate.append(list(turns)[:MAX_FOUND])
    print(f"{task.name}: {len(tools):,} tools, {len(task.queries):,} queries")
    places = range(len(task.queries))
    ceiling = np.mean([min(1.0, 5 / len(right)) for right in task.right])
    print(f"with five tools at most {ceiling:.4f} of all right ones can be shown")
    for title, part in (
        ("all queries", places),
        ("of even number", places[::2]),
        ("of odd number, left out", places[1::2]),
        ("for one tool", [place for place in places if len(task.right[place]) == 1]),
    ):
        print(f"\n{f'{title}: {len(part)}':34}" + "".join(f"{depth:>8}" for depth in DEPTHS))
        for name, ranking in (("as a whole", whole), ("by its steps", stepped)):
            hits = [[len(task.right[n] & set(ranking[n][:depth])) for n in part] for depth in DEPTHS]
            print(f"{f'{name}: a right tool':34}" + "".join(f"{np.mean(np.array(row) > 0):8.4f}" for row in hits))
            shares = [np.mean([hit / len(task.right[n]) for hit, n in zip(row, part, strict=True)]) for row in hits]
            print(f"{'  share of all right tools':34}" + "".join(f"{share:8.4f}" for share in shares))
        shown = np.mean([len(separate[n]) for n in part])
        found = np.mean([len(task.right[n] & set(separate[n])) / len(task.right[n]) for n in part])
        print(f"{'each step a query, five for each':34}{found:8.4f} of all right tools in {shown:.1f}")
    answers = [about_tokens(answered([tools[place] for place in ranking[:5]], len(tools))) for ranking in stepped]
    any_right = np.mean([bool(right & set(ranking[:5])) for right, ranking in zip(task.right, stepped, strict=True)])
    ours = sum(about_tokens(json.dumps(one.wire())) for one in (FIND, CALL))
    each = [about_tokens(json.dumps(wire(tool))) for tool in tools]
    answer = float(np.mean(answers))
    print(f"\ntokens: two definitions {ours}, an answer of find_tools {answer:.0f}, a tool's own {np.mean(each):.0f}")
    print(f"{'tools':>8}{'all definitions':>17}{'ours, one answer':>18}{'saved':>8}{'ours, three':>13}{'saved':>8}")
    for count in sorted({50, 100, 200, 500, len(tools)}):
        every = float(np.mean(each)) * count
        one, three = ours + answer, ours + 3 * answer
        print(f"{count:8,}{every:17,.0f}{one:18,.0f}{1 - one / every:8.1%}{three:13,.0f}{1 - three / every:8.1%}")
    saved = 1 - (ours + answer) / sum(each)
    return 0 if any_right >= HITS and saved >= SAVED else 1


def best(scores: Sequence[float], count: int) -> list[int]:
    """The places of the highest scores."""
    return [int(place) for place in np.argsort(-np.array(scores), kind="stable")[:count]]


def wire(tool: ForeignTool) -> dict[str, object]:
    """A tool as a client that talks to its server carries it."""
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}


def answered(tools: list[ForeignTool], total: int) -> str:
    """What find_tools says."""
    shown = [
        FoundTool(name=tool.full_name, description=tool.description, arguments=dict(tool.schema), away=False)
        for tool in tools
    ]
    return line_of(FindAnswer(tools=shown, left_out=0, total=total, away={}).model_dump(mode="json"))


if __name__ == "__main__":
    sys.exit(main())
