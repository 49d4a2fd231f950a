"""What a search does when what it calls fails, hangs or answers nonsense: every call, every fault, alone and in pairs.

    python benchmarks/faults.py [--pairs none|sample|all]

One workflow with everything a workflow can have: a transformer, a router and a compressor that ask language models,
three datasets with an embedder, a retriever in process and a remote one, a reranker and a refuser that ask a server.
Each of these calls is made to fail: in a search, in an awaited one, and in one of several at once. Promised, and
checked of every answer:

- no exception, but for RetrievalError where every branch failed;
- an answer that is not the undisturbed one says so (``degraded`` or ``refused``), and a span of the stage has an error;
- it comes by the deadline; and the next search, with nothing disturbed, answers as ever.

Exit status 1: one of these was not kept.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from faults_kit import FAILURES, FAULTS, MODES, Case, Fault, Result, Rig, pair_cases, run, single_cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", choices=("none", "sample", "all"), default="sample")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # every fault is logged as well
    began = time.perf_counter()
    rig = Rig()
    try:
        singles = single_cases()
        results = [(case, run(rig, case)) for case in singles]
        print_table(results)
        cases = {"none": [], "sample": pair_cases(sampled), "all": pair_cases(lambda faults: faults)}[arguments.pairs]
        pairs = []
        for number, case in enumerate(cases):
            pairs.append((case, run(rig, case)))
            if sys.stderr.isatty():
                print(f"\r{number + 1} of {len(cases)} pairs\033[K", end="\r", file=sys.stderr)
    finally:
        rig.close()
    for name, found in (("single faults", results), ("pairs of faults", pairs)):
        print_totals(name, found)
    print(f"\n{time.perf_counter() - began:.0f} s")
    broken = [(case, result) for case, result in [*results, *pairs] if result.violations]
    kinds = Counter(violation.partition(":")[0] for _, result in broken for violation in result.violations)
    for kind, count in kinds.most_common():
        print(f"VIOLATION {count:5}  {kind}")
    for case, result in broken[:60]:
        print(f"VIOLATION {case}: {'; '.join(result.violations)[:240]}")
    print(f"{len(broken)} of {len(results) + len(pairs)} cases broke a promise")
    return 1 if broken else 0


def sampled(faults: Sequence[Fault]) -> Sequence[Fault]:
    """Failing, hanging, and two kinds of nonsense."""
    nonsense = faults[len(FAILURES) :]
    return (faults[0], faults[2], nonsense[1], nonsense[-2])


def print_table(results: Sequence[tuple[Case, Result]]) -> None:
    """Stage and fault, and what came of it, every way."""
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case, result in results:
        ((stage, fault),) = case.faults.items()
        rows[stage, fault.name].append(result.outcome + (" !" if result.violations else ""))
    width = max(len(name) for _, name in rows)
    for stage in FAULTS:
        print(f"\n{stage}")
        for (one, fault_name), outcomes in rows.items():
            if one == stage:
                told = ", ".join(f"{way} {outcome}" for way, outcome in zip(MODES, outcomes, strict=True))
                ways = outcomes[0] if len(set(outcomes)) == 1 else told
                print(f"  {fault_name:{width}}  {ways}")


def print_totals(name: str, results: Sequence[tuple[Case, Result]]) -> None:
    """How many cases, and what came of them."""
    outcomes = Counter(result.outcome for _, result in results)
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    print(f"\n{len(results)} {name}: {told or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
