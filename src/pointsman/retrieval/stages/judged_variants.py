"""Judges documents by the variants of a question that mean the same as the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.judge.languages import script_of
from pointsman.retrieval.run.candidates import StoreResults, is_of_store
from pointsman.retrieval.run.exact_hits import NEAR_MISS
from pointsman.retrieval.run.judging import NOTHING, Judgements, judge
from pointsman.retrieval.run.variant import CONVERSATION
from pointsman.store.store_values import WORDS
from pointsman.text import DEFAULT_ANALYZER, query_tokens
from pointsman.text.grammar import content_of, refers_back

if TYPE_CHECKING:
    from pointsman.retrieval.run.candidates import Results
    from pointsman.retrieval.stages.question_to_lists import Retrieval, SearchPlan
    from pointsman.values.types import Document, Query

_OWN_SHARE: Final = 0.5
"""The least share of a follow-up's own words in a passage which the conversation may call an answer to it. Chosen among
.21, .3, .33 and .5 on half A of ``benchmarks/follow_ups.py``, where it matters little; reported on B and C."""


def judged_as_equals(retrieval: Retrieval, documents: Mapping[Any, Document], judgements: Judgements) -> Judgements:
    """Judge the documents that variants have found by these variants, too, where they mean the same as the question."""
    search_plan = retrieval.rewriting.search_plan
    many = len(search_plan.names) > 1
    for question, answers in zip(retrieval.questions, retrieval.answers, strict=True):
        if question.variant is None or not question.variant.means_the_same:
            continue
        for number, results in answers.results.items():
            if isinstance(results, StoreResults):
                # Scores of the question itself say nothing about the variant.
                by_variant = judged_alone(search_plan, number, results, question.query, documents, many=many)
                if question.variant.kind == CONVERSATION:
                    own_documents = [
                        document for key, document in documents.items() if not many or is_of_store(key, number)
                    ]
                    own_results = retrieval.answers[0].results.get(number)
                    by_variant = _limited_to_own_words(
                        by_variant, retrieval.rewriting.query.text, results, own_results, own_documents
                    )
                judgements = judgements.or_better(by_variant)
    return judgements


def judged_alone(
    search_plan: SearchPlan,
    number: int,
    results: Results,
    query: Query,
    documents: Mapping[Any, Document],
    *,
    many: bool,
) -> Judgements:
    """Judge documents by the results of one branch alone; nothing if its scores cannot be judged.

    Args:
        search_plan: of the question.
        number: of the branch.
        results: of the branch, with the scores of the documents.
        query: what the branch searched for.
        documents: by their keys.
        many: whether keys name their branch.
    """
    recipe, embedders = search_plan.inquiry.recipe, search_plan.recipe.judged_embedders
    if not isinstance(results, StoreResults) or results.embedder not in embedders[results.reading.name]:
        return NOTHING
    return judge({number: results}, results, query, documents, recipe.calibrations, recipe.fitted, many=many)


def _limited_to_own_words(
    judgements: Judgements, text: str, results: StoreResults, own_results: Results | None, documents: Sequence[Document]
) -> Judgements:
    """Limit the relevance, judged with the conversation, of documents that lack the words of the question itself.

    *And pizza?* after a question on opening hours is not answered by them. Such a document is a near miss if the
    question refers to something before it or the dataset has a word of it, otherwise judged by the question alone. A
    question without words of its own (*Why?*) asks of the conversation; of documents in another language their absence
    says nothing.

    Args:
        judgements: of the variant, of one dataset.
        text: the question itself.
        results: the variant's, of the dataset.
        own_results: those of the question itself.
        documents: of the dataset.
    """
    own_words, background = set(query_tokens(content_of(text))), results.reading.background
    if not own_words or (background is not None and background.across(script_of(text))):
        return judgements
    is_known = own_results is not None and bool(own_results.pool.lists.get(WORDS))
    limit = NEAR_MISS if is_known or refers_back(text) else 0.0
    name, levels = results.reading.name, dict(judgements.relevance)
    for document in documents:
        level = levels.get((name, document.id), 0.0)
        if level > limit:
            shared_words = own_words.intersection(DEFAULT_ANALYZER.tokens(document.searchable))
            if len(shared_words) < _OWN_SHARE * len(own_words):
                levels[name, document.id] = limit
    best = max(levels.values(), default=0.0)
    return Judgements({key: value._replace(best=best) for key, value in judgements.datasets.items()}, levels)
