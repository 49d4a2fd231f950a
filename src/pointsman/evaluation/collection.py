"""Reading test collections: folders in the form that BEIR made common."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman.errors import InputError
from pointsman.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = logging.getLogger(__name__)

_QRELS = ("qrels.tsv", "qrels/test.tsv")
_HEADER = ["query-id", "corpus-id", "score"]


@dataclass(frozen=True, slots=True)
class TestCollection:
    """Documents, questions, and which document answers which question how well.

    Attributes:
        name: the folder's name.
        documents: in file order.
        queries: query id -> text, the judged ones alone, in file order.
        qrels: query id -> document id -> grade; above 0 is relevant. The same queries as ``queries``.
    """

    __test__ = False  # its name looks like a test's to pytest

    name: str
    documents: tuple[Document, ...]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]

    def first(self, count: int | None) -> TestCollection:
        """The same documents with the first ``count`` queries alone; all of them with None.

        Raises:
            InputError: ``count`` is not a positive int.
        """
        if count is None:
            return self
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InputError(f"the number of queries is an int from 1 up, not {count!r}")
        ids = list(self.queries)[:count]
        return replace(
            self,
            queries={query: self.queries[query] for query in ids},
            qrels={query: self.qrels[query] for query in ids},
        )


def read_collection(folder: str | Path) -> TestCollection:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels.tsv`` (or ``qrels/test.tsv``) out of a folder.

    A query without judgments is left out: nothing can be said about it. A judgment of a document that the corpus
    lacks stays, as an answer that nothing can find, and the log tells how many there are.

    Raises:
        InputError: a file is missing or a line of it cannot be used; the message names both.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; name one that holds corpus.jsonl, queries.jsonl and qrels.tsv")
    documents = _read_corpus(folder / "corpus.jsonl")
    texts = _read_queries(folder / "queries.jsonl")
    qrels = _read_qrels(_qrels_path(folder), texts)
    missing = {document for grades in qrels.values() for document in grades} - {document.id for document in documents}
    if missing:
        log.warning("%s: %d judged documents are not in the corpus; they count as not found", folder, len(missing))
    queries = {query: text for query, text in texts.items() if query in qrels}
    return TestCollection(folder.resolve().name, tuple(documents), queries, {query: qrels[query] for query in queries})


def read_labels(folder: str | Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Queries and judgments alone, out of the same files; the documents are somewhere else.

    Raises:
        InputError: a file is missing or a line of it cannot be used; the message names both.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; name one that holds queries.jsonl and qrels.tsv")
    queries = _read_queries(folder / "queries.jsonl")
    return queries, _read_qrels(_qrels_path(folder), queries)


def _read_corpus(path: Path) -> list[Document]:
    documents: dict[str, Document] = {}
    for where, item in _objects(path):
        id_ = _string(item, "_id", where)
        if id_ in documents:
            raise InputError(f"{where}: document {id_!r:.80} is a duplicate; ids must be unique")
        title = _string(item, "title", where, absent="")
        documents[id_] = Document(id_, _string(item, "text", where), {"title": title} if title else {})
    if not documents:
        raise InputError(f"{path} contains no documents")
    return list(documents.values())


def _read_queries(path: Path) -> dict[str, str]:
    queries: dict[str, str] = {}
    for where, item in _objects(path):
        id_ = _string(item, "_id", where)
        if id_ in queries:
            raise InputError(f"{where}: query {id_!r:.80} is a duplicate; ids must be unique")
        queries[id_] = _string(item, "text", where)
    return queries


def _read_qrels(path: Path, queries: Mapping[str, str]) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    lines = _lines(path)
    where, header = next(lines, (f"{path}:1", ""))
    if header.split("\t") != _HEADER:
        raise InputError(f"{where}: the first line is {' '.join(_HEADER)} with tabs between, not {header!r:.80}")
    for where, line in lines:
        fields = line.split("\t")
        if len(fields) != 3:
            raise InputError(f"{where}: expected three fields separated by tabs, not {line!r:.80}")
        query, document, grade = fields
        if query not in queries:
            raise InputError(f"{where}: query {query!r:.80} is not in queries.jsonl; add it there or drop the line")
        if qrels.setdefault(query, {}).setdefault(document, _grade(grade, where)) != _grade(grade, where):
            raise InputError(f"{where}: document {document!r:.80} has two grades for query {query!r:.80}; keep one")
    if not qrels:
        raise InputError(f"{path} contains no judgments")
    return qrels


def _qrels_path(folder: Path) -> Path:
    for name in _QRELS:
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder} has neither {' nor '.join(_QRELS)}; judgments are kept in one of them")


def _grade(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{where}: a score is a whole number, not {text!r:.80}") from None


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where it is, and what it is, for each JSON object of a file."""
    for where, line in _lines(path):
        try:
            item = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: this is not JSON ({error}): {line!r:.80}") from None
        if not isinstance(item, dict):
            raise InputError(f"{where}: expected a JSON object, not {line!r:.80}")
        yield where, item


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """``file:number`` and text of each line that is not blank; only a line feed ends a line, whatever Unicode says."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise InputError(f"{path}:{number}: this is not UTF-8 ({error.reason})") from None
                if text.strip():
                    yield f"{path}:{number}", text
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _string(item: Mapping[str, Any], name: str, where: str, *, absent: str | None = None) -> str:
    value = item.get(name, absent)
    if value is None and absent is not None:
        return absent  # null says the same as nothing
    if not isinstance(value, str) or (name == "_id" and not value):
        expected = "a non-empty string" if name == "_id" else "a string"
        raise InputError(f"{where}: {name!r} is {expected}, not {value!r:.80}")
    return value
