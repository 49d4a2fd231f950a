"""The examples of the retrieval layer's founding document: routing, dispatch, refusal, reranking, the workflow.

Only imports differ: everything comes from ``pointsman``. The interfaces are implemented with the document's signatures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pointsman import BaseReranker, BaseRouter, Dataset, Document, LLMRouter, RetrievalWorkflow, ScriptedLLM
from pointsman.embedders.scripted_embedders import HashingEmbedder

if TYPE_CHECKING:
    from pointsman.values.retrieval_context import RetrievalContext

QUESTION = "How to fix the login bug?"


@pytest.fixture
def datasets() -> Iterator[list[Dataset]]:
    technical = Dataset("Technical_Docs", "For engineering and bug fixes.", "hybrid", embedder=HashingEmbedder())
    people = Dataset("HR_Policies", "For leave and holiday info.", "keyword")
    vectors = Dataset("Manuals", "For machines.", "vector", embedder=HashingEmbedder())
    technical.add(
        [Document("login", "Fix the login bug by clearing the session."), Document("build", "Run the build.")]
    )
    people.add([Document("leave", "Leave is asked for in writing; the login to the form is your own.")])
    vectors.add([Document("engine", "Oil the engine before the login of the shift.")])
    yield [technical, people, vectors]
    for dataset in (technical, people, vectors):
        dataset.close()


class FirstRouter(BaseRouter):
    def route(self, query: str, datasets: list[Dataset]) -> list[Dataset]:  # type: ignore[override]
        assert isinstance(query, str)
        return datasets[:1]


class LongestFirst(BaseReranker):
    def rerank(self, query: str, documents: list[Document], top_n: int = 4) -> list[Document]:  # type: ignore[override]
        longest = sorted(documents, key=lambda document: -len(document.text))[:top_n]
        return [
            Document(document.id, document.text, {**document.metadata, "score": float(len(document.text))})
            for document in longest
        ]


def retrieve(workflow: RetrievalWorkflow, datasets: list[Dataset], **options: Any) -> RetrievalContext:
    (context,) = workflow.retrieve(QUESTION, datasets, refuse=False, **options)
    return context


def test_without_stages_all_datasets_are_searched_each_by_its_technique(datasets: list[Dataset]) -> None:
    context = retrieve(RetrievalWorkflow(router=None, reranker=None), datasets)
    assert context.plan.datasets == ("Technical_Docs", "HR_Policies", "Manuals")
    assert {hit.dataset for hit in context.hits} == {"Technical_Docs", "HR_Policies", "Manuals"}
    lists = {hit.dataset: {entry.source for entry in hit.provenance} for hit in context.hits}
    assert not any("vector" in source for source in lists["HR_Policies"])
    assert context.degraded == ()


def test_a_router_with_the_signature_of_the_document_chooses_the_datasets(datasets: list[Dataset]) -> None:
    context = retrieve(RetrievalWorkflow(router=FirstRouter()), datasets)
    assert {hit.dataset for hit in context.hits} == {"Technical_Docs"}


def test_a_router_is_not_asked_about_a_single_dataset(datasets: list[Dataset]) -> None:
    class UnaskedRouter(BaseRouter):
        def route(self, query: str, datasets: list[Dataset]) -> list[Dataset]:  # type: ignore[override]
            raise AssertionError("one dataset needs no router")

    context = retrieve(RetrievalWorkflow(router=UnaskedRouter()), datasets[:1])
    assert [hit.dataset for hit in context.hits] == ["Technical_Docs"] * len(context.hits)
    assert context.degraded == ()


def test_the_language_model_sees_datasets_as_numbered_tools_and_answers_with_ids(datasets: list[Dataset]) -> None:
    llm = ScriptedLLM(["[1]"])
    context = retrieve(RetrievalWorkflow(router=LLMRouter(llm)), datasets)
    assert {hit.dataset for hit in context.hits} == {"Technical_Docs"}
    ((prompt, _),) = llm.calls
    for number, dataset in enumerate(datasets, 1):
        assert f'({number}) {{"name": "{dataset.name}", "description": "{dataset.description}"}}' in prompt
    assert QUESTION in prompt


def test_if_the_model_cannot_decide_all_datasets_are_searched_and_the_answer_says_so(datasets: list[Dataset]) -> None:
    context = retrieve(RetrievalWorkflow(router=LLMRouter(ScriptedLLM(["I do not know."] * 2))), datasets)
    assert {hit.dataset for hit in context.hits} == {"Technical_Docs", "HR_Policies", "Manuals"}
    assert any("all datasets are searched" in cause for cause in context.degraded)


def test_a_reranker_with_the_signature_of_the_document_orders_the_hits(datasets: list[Dataset]) -> None:
    context = retrieve(RetrievalWorkflow(reranker=LongestFirst()), datasets)
    assert context.reranked
    lengths = [len(hit.text) for hit in context.hits]
    assert lengths == sorted(lengths, reverse=True)
    assert [hit.score for hit in context.hits] == [float(length) for length in lengths]


def test_reranked_documents_have_their_score_and_the_input_stays_as_it_was() -> None:
    documents = [Document("a", "short"), Document("b", "a longer text")]
    reranking = LongestFirst().rerank(QUESTION, documents, top_n=4)
    assert [(document.id, document.metadata["score"]) for document in reranking] == [("b", 13.0), ("a", 5.0)]
    assert [document.metadata for document in documents] == [{}, {}]
