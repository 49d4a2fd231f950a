"""Reads test collections: folders in BEIR format."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import check_count
from pointsman.values.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = logging.getLogger(__name__)

_QRELS = ("qrels.tsv", "qrels/test.tsv")
_HEADER = ["query-id", "corpus-id", "score"]


@dataclass(frozen=True, slots=True)
class TestCollection:
    """Documents, queries, and graded relevance judgments.

    Attributes:
        name: the folder's name.
        documents: in file order.
        queries: query id -> text, only judged queries, in file order.
        qrels: query id -> document id -> grade; above 0 is relevant. The same queries as ``queries``.
    """

    __test__ = False  # pytest would take the name for a test

    name: str
    documents: tuple[Document, ...]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]

    def first(self, count: int | None) -> TestCollection:
        """Return the same documents with only the first ``count`` queries; None keeps all.

        Raises:
            InputError: ``count`` is not a positive int.
        """
        if count is None:
            return self
        ids = list(self.queries)[: check_count(count, "the number of queries")]
        return replace(
            self,
            queries={query: self.queries[query] for query in ids},
            qrels={query: self.qrels[query] for query in ids},
        )


def read_collection(folder: str | Path) -> TestCollection:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels.tsv`` (or ``qrels/test.tsv``) from a folder.

    A query without judgments is left out, as it cannot be scored. A judgment of a document missing from the corpus is
    kept, as an answer that cannot be found, and the log says how many there are.

    Raises:
        InputError: a file is missing or has an invalid line; the message names both.
    """
    folder = _existing_folder(folder, "corpus.jsonl, queries.jsonl and qrels.tsv")
    documents = _read_corpus(folder / "corpus.jsonl")
    texts = _read_queries(folder / "queries.jsonl")
    qrels = _read_qrels(_qrels_path(folder), texts)
    missing = {document for grades in qrels.values() for document in grades} - {document.id for document in documents}
    if missing:
        log.warning("%s: %d judged documents are not in the corpus; they count as not found", folder, len(missing))
    queries = {query: text for query, text in texts.items() if query in qrels}
    return TestCollection(folder.resolve().name, tuple(documents), queries, {query: qrels[query] for query in queries})


def _existing_folder(name: str | Path, files: str) -> Path:
    path = Path(name)
    if not path.is_dir():
        kinds = f"a folder that holds {files}, or a CSV file of questions (query,source[,quote])"
        raise InputError(f"{path} {'is not a folder' if path.exists() else 'does not exist'}; name {kinds}")
    return path


def read_labels(folder: str | Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Read only queries and judgments from the same files; the documents are kept elsewhere.

    Raises:
        InputError: a file is missing or has an invalid line; the message names both.
    """
    folder = _existing_folder(folder, "queries.jsonl and qrels.tsv")
    queries = _read_queries(folder / "queries.jsonl")
    return queries, _read_qrels(_qrels_path(folder), queries)


def _read_corpus(path: Path) -> list[Document]:
    documents: dict[str, Document] = {}
    for location, id_, item in _objects(path, "document"):
        title = _string(item, "title", location, absent="")
        documents[id_] = Document(id_, _string(item, "text", location), {"title": title} if title else {})
    if not documents:
        raise InputError(f"{path} contains no documents")
    return list(documents.values())


def _read_queries(path: Path) -> dict[str, str]:
    return {id_: _string(item, "text", location) for location, id_, item in _objects(path, "query")}


def _read_qrels(path: Path, queries: Mapping[str, str]) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    lines = _lines(path)
    location, header = next(lines, (f"{path}:1", ""))
    if header.split("\t") != _HEADER:
        raise InputError(f"{location}: the first line is {' '.join(_HEADER)} with tabs between, not {header!r:.80}")
    for location, line in lines:
        fields = line.split("\t")
        if len(fields) != 3:
            raise InputError(f"{location}: expected three fields separated by tabs, not {line!r:.80}")
        query, document, grade = fields
        if query not in queries:
            raise InputError(f"{location}: query {query!r:.80} is not in queries.jsonl; add it there or drop the line")
        if qrels.setdefault(query, {}).setdefault(document, _grade(grade, location)) != _grade(grade, location):
            raise InputError(f"{location}: document {document!r:.80} has two grades for query {query!r:.80}; keep one")
    if not qrels:
        raise InputError(f"{path} contains no judgments")
    return qrels


def _qrels_path(folder: Path) -> Path:
    for name in _QRELS:
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder} has neither {' nor '.join(_QRELS)}; judgments are kept in one of them")


def _grade(text: str, location: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{location}: a score is a whole number, not {text!r:.80}") from None


def _objects(path: Path, noun: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield location, id and value of each JSON object in a file."""
    ids: set[str] = set()
    for location, line in _lines(path):
        try:
            item = json.loads(line)
        except ValueError as error:
            raise InputError(f"{location}: this is not JSON ({error}): {line!r:.80}") from None
        if not isinstance(item, dict):
            raise InputError(f"{location}: expected a JSON object, not {line!r:.80}")
        id_ = _string(item, "_id", location)
        if id_ in ids:
            raise InputError(f"{location}: {noun} {id_!r:.80} is a duplicate; ids must be unique")
        ids.add(id_)
        yield location, id_, item


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield ``file:number`` and text of each non-blank line; only a line feed ends a line, not Unicode's separators."""
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


def _string(item: Mapping[str, Any], name: str, location: str, *, absent: str | None = None) -> str:
    value = item.get(name, absent)
    if value is None and absent is not None:
        return absent  # null means the same as absent
    if not isinstance(value, str) or (name == "_id" and not value):
        expected = "a non-empty string" if name == "_id" else "a string"
        raise InputError(f"{location}: {name!r} is {expected}, not {value!r:.80}")
    return value
