"""Search quality on questions with known answers; conformance suites for extensions; the test for leaks."""

from __future__ import annotations

from pointsman.evaluation.collections import TestCollection, read_collection
from pointsman.evaluation.question_files import (
    FileLabels,
    LabelledQuestion,
    best_passages,
    evaluate_questions,
    file_labels,
    read_questions,
)
from pointsman.evaluation.ranking_metrics import Figures, measure
from pointsman.evaluation.report import Report, StrategyReport, render
from pointsman.evaluation.run_collection import STRATEGIES, evaluate, evaluate_workspace, indexed
from pointsman.evaluation.selector_figures import evaluate_selectors
from pointsman.evaluation.significance import SignificanceTest, compare
from pointsman.evaluation.tune import Tuning, tune

__all__ = [
    "STRATEGIES",
    "Figures",
    "FileLabels",
    "LabelledQuestion",
    "Report",
    "SignificanceTest",
    "StrategyReport",
    "TestCollection",
    "Tuning",
    "best_passages",
    "compare",
    "evaluate",
    "evaluate_questions",
    "evaluate_selectors",
    "evaluate_workspace",
    "file_labels",
    "indexed",
    "measure",
    "read_collection",
    "read_questions",
    "render",
    "tune",
]
