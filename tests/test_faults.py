"""Every call of a whole workflow made to fail, alone and in pairs: nothing raises, misleads in silence, or is late.

The faults, and what is promised, are in faults_kit.py; benchmarks/faults.py runs all of them in all combinations.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, cycle

import pytest

from faults_kit import FAILURES, FAULTS, MODES, SPANS, Case, Rig, answer_of, run, single_cases

FAILS, _, HANGS = FAILURES

SINGLE = [
    case for case, mode in zip(single_cases(("",)), cycle(MODES), strict=False) for case in [Case(case.faults, mode)]
]
"""Every fault once, the ways in turn."""
HANGING = [
    Case({stage: HANGS}, mode) for stage in FAULTS for mode in MODES[:2] if Case({stage: HANGS}, mode) not in SINGLE
]
PAIRS = [
    Case(
        {stage: FAULTS[stage][3 + number % 5], other_stage: FAULTS[other_stage][0 if number % 2 else 5]},
        MODES[number % 2],
    )
    for number, (stage, other_stage) in enumerate(combinations(FAULTS, 2))
]
"""Any two stages once."""


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


@pytest.mark.parametrize("case", [*SINGLE, *PAIRS, Case({"router (LLM)": HANGS, "reranker": HANGS}, "async")], ids=str)
def test_what_fails_is_told_and_the_search_goes_on(rig: Rig, case: Case) -> None:
    assert run(rig, case).violations == ()


@pytest.mark.parametrize("case", HANGING, ids=str)
def test_what_hangs_is_not_waited_for(rig: Rig, case: Case) -> None:
    assert run(rig, case).violations == ()


@pytest.mark.parametrize("stage", SPANS)
def test_a_stage_that_fails_matters(rig: Rig, stage: str) -> None:
    """Else the table above would show nothing: without the stage there is another answer, and its span says why."""
    rig.forget()
    context = rig.search({stage: FAILS}, "sync")
    assert answer_of(context) != rig.baseline
    assert any(span.error for span in context.trace.spans if span.stage in SPANS[stage])


@pytest.mark.parametrize("mode", MODES[:2])
def test_without_embedder_and_retrievers_the_words_answer(rig: Rig, mode: str) -> None:
    rig.forget()
    context = rig.search(dict.fromkeys(("embedder", "retriever", "remote retriever"), FAILS), mode)
    assert context.hits
    assert any("only words were searched" in cause for cause in context.degraded)
    assert all(step.source != "vector" for hit in context for step in hit.provenance)
