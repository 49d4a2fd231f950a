"""Some 4,000 answers, to prove that a change of the code changes no behaviour: ``python benchmarks/golden.py``.

``record FILE`` keeps the answers of this checkout; ``compare FILE`` asks the same again, prints what differs, and ends
with 1 if anything does. ``--only store,filters`` asks these kinds alone. Whatever is asked goes through public doors:
names of `pointsman` itself, the command line, HTTP and MCP; so modules may move between the two. Floats are compared to
the bit unless ``--tolerance`` says otherwise; record and compare on the same machine.

Real collections are read from ``POINTSMAN_TEST_DATA``, else ``../shared/data``. PostgreSQL is started for the run if
its wheel is installed; OpenSearch with ``--opensearch``. Whatever is absent is skipped, and said.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import _golden_doors as doors
import _golden_python as python
from _data import DATA
from _golden_world import Answers, World, opensearch, postgresql
from pointsman.values.reasons import messages
from pointsman.values.retrieval_context import NEAREST, UNSURE
from pointsman.values.types import ODDS

_GONE: Final = "the strategy prf is gone, and the command eval-select"
_LISTED: Final = "its error lists the strategies that there are: prf is gone"
QUESTIONS_LEFT_OUT: Final[Mapping[str, str]] = {
    "E-4711": "a code that stands in no document is said to, and near misses are told as such",
    '"red signal" -tea': "phrases and excluded words are obeyed",
    "title:Rule": "conditions on fields are obeyed",
}
"""Questions whose answers are meant to differ, with the reason."""

REFUSES: Final = "answers that are refused in one and not in the other"
_SAID_OTHERWISE: Final = {"verdict", "odds", "member", "reason", "reasons", "detail", "means_the_same", "truncations"}
_NEEDED: Final = re.compile(
    r"(?:the best candidate has relevance |refused: )[\d.]+(?:, and | < )[\d.]+(?: is needed)?|"
    + re.escape(UNSURE)
    + r"\s*|"
    + "|".join(rf"\b{re.escape(messages()[f'odds_{odds}'][0])} (?=(?:under |over )?\d+%)" for odds in ODDS)
)

LEFT_OUT: Final[Mapping[str, str]] = {
    "store/prf/": _GONE, "options/prf/": _GONE, "settings/prf/": _GONE, "parts/strategy PRFStrategy": _GONE,
    "store/hybird/": _LISTED, "settings/hybird/": _LISTED, "options/hybird/": _LISTED,
    "errors/search/strategy/": _LISTED, "service/client/unknown": _LISTED,
    "service/requests/3 GET /api/strategies": _GONE, "agents/tools": _GONE,
    "commands/help/mcp --help": "tools of other MCP servers are passed on no longer",
    "fusion/middle/": _GONE, "fusion/refine/middle/": _GONE,
    "service/strategy/prf": _GONE, "service/strategy/hybird": _LISTED,
    "commands/json/16 ": _LISTED, "commands/text/16 ": _LISTED,
    "selectors/llm 6/four/": "an answer that names an option and breaks off is read, not guessed",
    "commands/text/2 ": "status says what caches take",
    "commands/json/4 ": "a setting is new: cache_megabytes", "commands/text/4 ": "a setting is new: cache_megabytes",
    "commands/help/serve ": "what --allow-origin does is said in other words",
    "commands/help/delete ": "--all asks, --yes does not",
    **dict.fromkeys(
        [
            "service/requests/42 GET /v1/models", "service/requests/43 POST /v1/embeddings",
            "service/requests/44 POST /v1/rerank", "service/requests/45 POST /v2/rerank",
        ],
        "the service offers no models to other programs",
    ),
    "selectors/embedding centred/": "EmbeddingSelector compares as they are, DescriptionSelector centred",
    "routes/disambiguate/": "without a model a follow-up is not reworded, but searched with its conversation",
    "errors/call/embedder": "a server that embeds pictures is an object of one's own",
    "commands/help/attach ": "attached collections do not exist while access is on",
    "service/requests/4 GET /api/me": "files are not uploaded to a service",
    **dict.fromkeys(
        [
            "commands/json/2 status", "commands/json/28 index", "commands/json/29 index",
            "service/requests/0 GET /api/datasets", "service/requests/1 GET /api/datasets/rails",
            "service/requests/16 POST /api/datasets", "service/requests/17 POST /api/datasets",
            "service/requests/19 POST /api/datasets/made/documents",
            "service/requests/22 PATCH /api/datasets/made/documents",
        ],
        "documents that are longer than the embedder reads are counted: truncations",
    ),
    "options/compression/": "a model chooses the sentences however short the texts are",
    "commands/eval-select": _GONE, "commands/help/eval-select": _GONE,
    "commands/help/eval ": "where the figures are stored is said",
    "commands/json/54 delete -d notes --all": "refused without --yes",
    "commands/text/54 delete -d notes --all": "refused without --yes",
    "errors/search/top_k/0": "a new option is listed: syntax",
    "service/requests/35 POST /api/search": "a new option is listed: syntax",
    "commands/help/search --help": "says what phrases and excluded words look like",
    "agents/31 search": "a dataset's name alone is taken for a list of one",
    "ingest/": "passages end with their page, so that a citation names the page of its words",
}  # fmt: skip
"""What is taken away, or meant to be different: the beginning of the keys of its answers, and the reason."""

KINDS: Final[Mapping[str, Callable[[Answers, World], None]]] = {
    each.__name__: each
    for each in (python.store, python.settings, python.options, python.collections, python.fitted, python.filters,
                 python.views, python.routes, python.selectors, python.fusion, python.parts, python.ingest,
                 doors.errors, doors.commands, doors.service, doors.agents)
}  # fmt: skip

# ── record and compare ───────────────────────────────────────────────────────────────────────────────────────────────


def answers(kinds: Sequence[str], *, with_opensearch: bool) -> Answers:
    """Ask everything of these kinds."""
    if not DATA.is_dir():
        print(f"skipped: whatever asks real collections; POINTSMAN_TEST_DATA names their folder, not {DATA}")
    logging.disable(logging.CRITICAL)  # of models that have no answer, which the questions provoke
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="golden-"))).resolve()
        stack.enter_context(inside(folder))
        stores = {"folder": str(folder / "{name}")}
        if {"store", "options", "filters", "views"} & set(kinds):
            try:
                stores["postgresql"] = stack.enter_context(postgresql())
            except Exception as error:  # noqa: BLE001  (the answers of the other stores are worth having)
                print(f"skipped: PostgreSQL ({error})")
            if with_opensearch:
                stores["opensearch"] = stack.enter_context(opensearch())
        ask, world = Answers(folder), World(folder, stores)
        for kind in kinds:
            began, before = time.perf_counter(), len(ask.by_key)
            KINDS[kind](ask, world)
            print(f"{kind:12}{len(ask.by_key) - before:6} answers {time.perf_counter() - began:6.1f} s", flush=True)
    return ask


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Within this folder, without settings of this machine."""
    before, set_here = Path.cwd(), {name: value for name, value in os.environ.items() if name.startswith("POINTSMAN_")}
    for name in set_here:
        del os.environ[name]
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.update(set_here)


def differences(recorded: Any, now: Any, tolerance: float, place: str = "") -> Iterator[str]:
    """Where two answers differ: the place within them, and both values."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*recorded, *now]):
            yield from differences(
                recorded.get(name, "(absent)"), now.get(name, "(absent)"), tolerance, f"{place}.{name}"
            )
    elif isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        for number, pair in enumerate(zip(recorded, now, strict=True)):
            yield from differences(*pair, tolerance, f"{place}[{number}]")
    elif isinstance(recorded, float) and isinstance(now, float) and recorded != now:
        if not math.isclose(recorded, now, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{place}: {recorded!r} -> {now!r}"
    elif recorded != now:
        before, after = (json.dumps(value, ensure_ascii=False)[:300] for value in (recorded, now))
        yield f"{place}: {before} -> {after}"


def comparable(value: Any) -> Any:
    """Return an answer without what is said in other words since, or is new: verdicts, reasons, what is needed."""
    if isinstance(value, Mapping):
        members = {"summary" if name == "verdict" and "steps" in value else name: item for name, item in value.items()}
        return {name: comparable(item) for name, item in members.items() if name not in _SAID_OTHERWISE}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return _NEEDED.sub("", value) if isinstance(value, str) else value


def refusals(value: Any) -> list[bool]:
    """Return of each answer within a value whether it is refused."""
    if isinstance(value, Mapping):
        own = [value["refused"] is not None] if "refused" in value else []
        return own + [is_refused for item in value.values() for is_refused in refusals(item)]
    if isinstance(value, list):
        return [is_refused for item in value for is_refused in refusals(item)]
    return [True] if isinstance(value, str) and NEAREST in value else []


def compare(recorded: Mapping[str, Any], now: Mapping[str, Any], tolerance: float, most: int) -> int:
    """Print what differs; how many answers do."""
    left_out, different = Counter[str](), Counter[str]()
    for key in dict.fromkeys([*recorded, *now]):
        prefix = next((prefix for prefix in LEFT_OUT if key.startswith(prefix)), None)
        form = json.dumps(recorded.get(key), ensure_ascii=False)
        question = next((text for text in QUESTIONS_LEFT_OUT if json.dumps(text)[1:-1] in form), None)
        if refusals(recorded.get(key)) != refusals(now.get(key)):
            question = question or REFUSES
        if prefix is not None or (question is not None and recorded[key] != now.get(key)):
            left_out[prefix or question or ""] += 1
        elif key not in now or key not in recorded:
            different[key.partition("/")[0]] += 1
            if different.total() <= most:
                print(f"{key}: {'not asked any more' if key not in now else 'not recorded'}")
        elif places := list(differences(comparable(recorded[key]), comparable(now[key]), tolerance)):
            different[key.partition("/")[0]] += 1
            if different.total() <= most:
                print("\n    ".join([key, *places[:4], *([f"and {len(places) - 4} more"] if len(places) > 4 else [])]))
    reasons = {**LEFT_OUT, **QUESTIONS_LEFT_OUT, REFUSES: "less is refused, and more where words stand nowhere"}
    for prefix, count in left_out.items():
        print(f"left out: {count} answers of {prefix}: {reasons[prefix]}")
    print(
        f"{len(recorded)} answers, {different.total()} differ"
        + "".join(f", {kind} {count}" for kind, count in different.items())
    )
    return different.total()


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas: %(default)s")
    parser.add_argument("--tolerance", type=float, default=0.0, help="of floats; by default they are equal to the bit")
    parser.add_argument("--most", type=int, default=10, help="how many differences are shown")
    parser.add_argument("--opensearch", action="store_true", help="also ask a cluster of one node")
    parsed = parser.parse_args()
    kinds = parsed.only.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no kind is called {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    file = parsed.file.resolve()
    recorded = json.loads(file.read_bytes())["answers"] if parsed.action == "compare" else {}
    asked = answers(kinds, with_opensearch=parsed.opensearch)
    for crash in asked.crashes[: parsed.most]:
        print(f"crash: {crash}")
    now = json.loads(json.dumps(asked.by_key))
    if parsed.action == "record":
        file.write_text(json.dumps({"python": sys.version, "answers": now}, ensure_ascii=False, indent=0), "utf-8")
        print(f"{len(now)} answers in {file}")
        return bool(asked.crashes)
    of_kinds = {key: value for key, value in recorded.items() if key.partition("/")[0] in kinds}
    return bool(compare(of_kinds, now, parsed.tolerance, parsed.most))


if __name__ == "__main__":
    sys.exit(main())
