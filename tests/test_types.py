"""Core values are frozen, comparable and say what is wrong with what they are given."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pointsman import Document, FilterError, Hit, InputError, Query, RetrievalContext, parse_filter
from pointsman.tools.errors import (
    AuditError,
    DependencyVersionError,
    MissingDependencyError,
    PointsmanError,
    RetrievalError,
    ServiceError,
    StorageFullError,
    UnknownNameError,
)
from pointsman.values.trace import Step, Trace, _miss
from pointsman.values.types import Message, Plan


def test_a_document_is_frozen_hashable_and_pickles() -> None:
    document = Document("a", "text", {"title": "Title", "tags": ["x"]})
    with pytest.raises(dataclasses.FrozenInstanceError):
        document.text = "other"  # type: ignore[misc]
    assert len({document, Document("a", "text", {"title": "Title", "tags": ["x"]})}) == 1
    assert pickle.loads(pickle.dumps(document)) == document


def test_the_title_is_searched_with_the_text() -> None:
    assert Document("a", "text", {"title": "Title"}).searchable == "Title\ntext"
    assert Document("a", "text", {"title": 7}).searchable == "text"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("", "t"), "non-empty str"),
        ((7, "t"), "non-empty str, not 7"),
        (("a", None), "text is a str"),
        (("a", "t", []), "mapping"),
    ],
)
def test_a_document_that_cannot_be_is_refused(fields: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Document(*fields)  # type: ignore[arg-type]


def test_a_query_is_made_of_a_string_and_kept_as_it_is() -> None:
    query = Query("q")
    assert Query.of(query) is query  # F5: no copies
    assert Query.of("q") == query
    with pytest.raises(InputError, match="not int"):
        Query(7)  # type: ignore[arg-type]


def test_a_hit_speaks_for_its_document() -> None:
    hit = Hit(Document("a", "text", {"k": 1}), 0.5)
    assert (hit.id, hit.text, hit.metadata, hit.score) == ("a", "text", {"k": 1}, 0.5)


def test_the_filters_of_a_query_may_be_an_expression_or_a_mapping() -> None:
    condition = parse_filter("year > 2021")
    assert Query("x", "year > 2021") == Query("x", {"year": {"gt": 2021}}) == Query("x", condition)  # type: ignore[arg-type]
    with pytest.raises(FilterError):
        Query("x", "year >")  # type: ignore[arg-type]
    with pytest.raises(FilterError, match="a filter is"):
        Query("x", 7)  # type: ignore[arg-type]


def test_a_history_is_of_messages() -> None:
    history = [Message("user", "Who wrote Emma?"), {"role": "assistant", "content": "Jane Austen."}]
    assert Query("When was she born?", history=history).history == (  # type: ignore[arg-type]
        Message("user", "Who wrote Emma?"),
        Message("assistant", "Jane Austen."),
    )
    for wrong in ("Who wrote Emma?", {"role": "user"}, None):
        with pytest.raises(InputError, match="a message of the history"):
            Query("When was she born?", history=(wrong,))  # type: ignore[arg-type]
    for no_list in (5, "Who wrote Emma?", {"role": "user", "text": "Who wrote Emma?"}):
        with pytest.raises(InputError, match="the history of a query is a list of messages"):
            Query("When was she born?", history=no_list)  # type: ignore[arg-type]


@pytest.mark.parametrize("trace", ["all", None, True, False])
def test_an_unknown_detail_of_a_trace_is_refused(trace: object) -> None:
    answer = RetrievalContext(Query("q"), (), Plan((), "hybrid", ""), Trace())
    with pytest.raises(UnknownNameError, match="known: lists, none, stages"):
        answer.to_dict(trace=trace)  # type: ignore[arg-type]


def test_an_answer_is_indexed_as_its_hits() -> None:
    hits = tuple(Hit(Document(str(number), "text"), 1.0) for number in range(3))
    answer = RetrievalContext(Query("text"), hits, Plan((), "hybrid", ""), Trace())
    assert (answer[0], answer[-1], answer[1:]) == (hits[0], hits[2], hits[1:])


def subclasses_of(kind: type[PointsmanError]) -> Iterator[type[PointsmanError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from subclasses_of(subclass)


EXAMPLES: dict[type[PointsmanError], PointsmanError] = {
    UnknownNameError: UnknownNameError("dataset", "notse", ("notes", "manual")),
    MissingDependencyError: MissingDependencyError("openai", "openai", "OpenAIEmbedder"),
    DependencyVersionError: DependencyVersionError("mcp", "3.0", "below 3", "mcp", "the MCP server"),
    RetrievalError: RetrievalError("nothing answered", {"notes": UnknownNameError("index", "x"), "b": ValueError("v")}),
    ServiceError: ServiceError("too many", status=429, title="slow down", request_id="r1", retry_after=2.5),
    StorageFullError: StorageFullError("the disk is full", kept="two batches"),
    AuditError: AuditError("/var/log/shown", "no space left on device"),
}


@pytest.mark.parametrize(
    "kind", [kind for kind in subclasses_of(PointsmanError) if kind.__module__ == "pointsman.tools.errors"]
)
def test_every_error_pickles_as_a_pool_of_processes_needs_it(kind: type[PointsmanError]) -> None:
    error = EXAMPLES.get(kind) or kind("what is wrong")
    error.add_note("in a worker")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))
    assert {**vars(copy), "causes": None} == {**vars(error), "causes": None}
    assert repr(getattr(copy, "causes", None)) == repr(getattr(error, "causes", None))


def test_one_other_is_singular() -> None:
    assert _miss(Step("retrieve", "bm25", None, None, 1)) == "bm25 holds 1 other"
    assert _miss(Step("retrieve", "bm25", None, None, 2)) == "bm25 holds 2 others"


class TestQueryBundle:
    """LlamaIndex's query, or anything of its form."""

    def test_text_of_a_bundle_is_the_query(self) -> None:
        schema = pytest.importorskip("llama_index.core.schema")
        assert Query.of(schema.QueryBundle("what is a quince?")) == Query("what is a quince?")

    @pytest.mark.parametrize("name", ["embedding", "custom_embedding_strs", "image_path"])
    def test_bundle_with_other_things_to_search_by_is_refused(self, name: str) -> None:
        bundle = SimpleNamespace(query_str="x", **{name: ["y"]})
        with pytest.raises(InputError, match=f"not by the {name} of a bundle"):
            Query.of(bundle)  # type: ignore[arg-type]
