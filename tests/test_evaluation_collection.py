"""Reading test collections: what is well formed is taken as it is, what is not is named by file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pointsman.evaluation.collections import read_collection, read_labels
from pointsman.tools.errors import InputError
from pointsman.values.types import Document

CORPUS = '{"_id": "d1", "title": "Signals", "text": "red and green"}\n{"_id": "d2", "title": "", "text": "points"}\n'
QUERIES = '{"_id": "q1", "text": "colours"}\n{"_id": "q2", "text": "unjudged"}\n{"_id": "q3", "text": "switch"}\n'
QRELS = "query-id\tcorpus-id\tscore\nq3\td2\t2\nq1\td1\t1\nq1\td2\t0\n"


Content = str | bytes | None
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(
        corpus: Content = CORPUS, queries: Content = QUERIES, qrels: Content = QRELS, qrels_at: str = "qrels.tsv"
    ) -> Path:
        folder = tmp_path / "set"
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        for name, text in (("corpus.jsonl", corpus), ("queries.jsonl", queries), (qrels_at, qrels)):
            if text is not None:
                (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return folder

    return write


@pytest.mark.parametrize("qrels_at", ["qrels.tsv", "qrels/test.tsv"])
def test_a_folder_becomes_values(write: Write, qrels_at: str) -> None:
    collection = read_collection(write(qrels_at=qrels_at))
    assert collection.name == "set"
    assert collection.documents == (Document("d1", "red and green", {"title": "Signals"}), Document("d2", "points", {}))
    assert list(collection.queries.items()) == [("q1", "colours"), ("q3", "switch")]  # judged ones, in file order
    assert collection.qrels == {"q1": {"d1": 1, "d2": 0}, "q3": {"d2": 2}}
    with pytest.raises(AttributeError):
        collection.name = "other"  # type: ignore[misc]


def test_the_first_queries_are_the_first_of_the_file(write: Write) -> None:
    collection = read_collection(write())
    assert list(collection.first(1).queries) == list(collection.first(1).qrels) == ["q1"]
    assert collection.first(None) is collection
    assert collection.first(99).queries == collection.queries
    wrong: Any
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(InputError, match="from 1 up"):
            collection.first(wrong)


def test_line_ends_byte_order_mark_and_blank_lines_do_not_matter(write: Write) -> None:
    def reshape(text: str) -> bytes:
        return b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() + b"\r\n\n"

    assert read_collection(write(reshape(CORPUS), reshape(QUERIES), reshape(QRELS))) == read_collection(write())


def test_ids_may_hold_anything_that_a_field_can(write: Write) -> None:
    odd = ["with space", "\u2028 \x85", "ё/日本#🙂", '"quoted"', "0", "nul\0"]
    corpus = "".join(json.dumps({"_id": id_, "text": ""}, ensure_ascii=False) + "\n" for id_ in odd)
    queries = "".join(json.dumps({"_id": id_, "text": "?"}) + "\n" for id_ in odd)
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"{id_}\t{id_}\t1\n" for id_ in odd)
    collection = read_collection(write(corpus, queries, qrels))
    assert [document.id for document in collection.documents] == list(collection.queries) == odd
    assert collection.qrels == {id_: {id_: 1} for id_ in odd}


def test_a_judged_document_that_is_not_there_counts_as_not_found(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    collection = read_collection(write(qrels=QRELS + "q1\tgone\t1\n"))
    assert collection.qrels["q1"] == {"d1": 1, "d2": 0, "gone": 1}
    assert "1 judged documents are not in the corpus" in caplog.text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"corpus": None}, r"corpus\.jsonl cannot be read"),
        ({"queries": None}, r"queries\.jsonl cannot be read"),
        ({"qrels": None}, r"neither qrels\.tsv nor qrels/test\.tsv"),
        ({"corpus": ""}, r"corpus\.jsonl contains no documents"),
        ({"corpus": CORPUS + "{not json\n"}, r"corpus\.jsonl:3: this is not JSON"),
        ({"corpus": CORPUS + "\n[1]\n"}, r"corpus\.jsonl:4: expected a JSON object"),
        ({"corpus": CORPUS + '{"text": "no id"}\n'}, r"corpus\.jsonl:3: '_id' is a non-empty string, not None"),
        ({"corpus": CORPUS + '{"_id": "", "text": "t"}\n'}, r"corpus\.jsonl:3: '_id' is a non-empty string, not ''"),
        ({"corpus": CORPUS + '{"_id": 7, "text": "t"}\n'}, r"corpus\.jsonl:3: '_id' is a non-empty string, not 7"),
        ({"corpus": CORPUS + '{"_id": "d3"}\n'}, r"corpus\.jsonl:3: 'text' is a string, not None"),
        ({"corpus": CORPUS + '{"_id": "d3", "text": "t", "title": 3}\n'}, r"corpus\.jsonl:3: 'title' is a string"),
        ({"corpus": CORPUS + CORPUS}, r"corpus\.jsonl:3: document 'd1' is a duplicate"),
        ({"corpus": CORPUS.encode() + b'{"_id": "\xff"}'}, r"corpus\.jsonl:3: this is not UTF-8"),
        ({"queries": QUERIES + QUERIES}, r"queries\.jsonl:4: query 'q1' is a duplicate"),
        ({"queries": '{"_id": "q1"}\n'}, r"queries\.jsonl:1: 'text' is a string"),
        ({"qrels": "q1\td1\t1\n"}, r"qrels\.tsv:1: the first line is query-id corpus-id score"),
        ({"qrels": ""}, r"qrels\.tsv:1: the first line is"),
        ({"qrels": "query-id\tcorpus-id\tscore\n"}, r"qrels\.tsv contains no judgments"),
        ({"qrels": QRELS + "q1 0 d1 1\n"}, r"qrels\.tsv:5: expected three fields"),
        ({"qrels": QRELS + "q1\td9\thigh\n"}, r"qrels\.tsv:5: a score is a whole number, not 'high'"),
        ({"qrels": QRELS + "q9\td1\t1\n"}, r"qrels\.tsv:5: query 'q9' is not in queries\.jsonl"),
        ({"qrels": QRELS + "q1\td1\t0\n"}, r"qrels\.tsv:5: document 'd1' has two grades for query 'q1'"),
    ],
)
def test_what_cannot_be_used_is_named(write: Write, files: dict[str, Content], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_collection(write(**files))


def test_the_same_judgment_twice_is_one(write: Write) -> None:
    assert read_collection(write(qrels=QRELS + "q1\td1\t1\n")).qrels["q1"] == {"d1": 1, "d2": 0}


def test_not_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing does not exist; .* corpus\.jsonl, .*, or a CSV"):
        read_collection(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"is not a folder; .* queries\.jsonl and .*, or a CSV"):
        read_labels(Path(__file__))
