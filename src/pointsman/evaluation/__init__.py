"""Measures search quality on questions with known answers, and whether differences are significant."""

from __future__ import annotations

from pointsman.evaluation.collection import TestCollection, read_collection
from pointsman.evaluation.metrics import Figures, measure
from pointsman.evaluation.report import Report, StrategyReport, draw, render
from pointsman.evaluation.run import STRATEGIES, evaluate, evaluate_workspace, indexed, rankings, run_eval
from pointsman.evaluation.significance import Comparison, compare
from pointsman.evaluation.tune import Tuning, tune

__all__ = [
    "STRATEGIES",
    "Comparison",
    "Figures",
    "Report",
    "StrategyReport",
    "TestCollection",
    "Tuning",
    "compare",
    "draw",
    "evaluate",
    "evaluate_workspace",
    "indexed",
    "measure",
    "rankings",
    "read_collection",
    "render",
    "run_eval",
    "tune",
]
