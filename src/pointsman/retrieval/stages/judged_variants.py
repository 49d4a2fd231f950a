"""Judges documents by the variants of a question that mean the same as the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pointsman.retrieval.run.candidates import StoreResults
from pointsman.retrieval.run.judging import Judgements, judge

if TYPE_CHECKING:
    from pointsman.retrieval.stages.question_to_lists import Retrieval
    from pointsman.values.types import Document


def judged_as_equals(retrieval: Retrieval, documents: Mapping[Any, Document], judgements: Judgements) -> Judgements:
    """Judge the documents that variants have found by these variants, too, where they mean the same as the question."""
    search_plan = retrieval.rewriting.search_plan
    recipe = search_plan.inquiry.recipe
    for question, answers in zip(retrieval.questions, retrieval.answers, strict=True):
        if question.variant is None or not question.variant.means_the_same:
            continue
        for number, results in answers.results.items():
            if isinstance(results, StoreResults) and (
                results.embedder in search_plan.recipe.judged_embedders[results.reading.name]
            ):
                by_variant = judge(
                    {number: results},
                    results,  # scores of the question itself say nothing about the variant
                    question.query,
                    documents,
                    recipe.calibrations,
                    recipe.fitted,
                    many=len(search_plan.names) > 1,
                )
                judgements = judgements.or_better(by_variant)
    return judgements
