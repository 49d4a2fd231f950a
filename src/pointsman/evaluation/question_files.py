"""Questions whose answers are files, in a CSV file: ``query, source[, quote]`` over what a workspace has indexed.

A label that names a file is answered by its best passage; one with a quote, by the passages that hold the quote.
"""

from __future__ import annotations

import csv
import difflib
import io
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pointsman.evaluation.ranking_metrics import measure
from pointsman.evaluation.report import Report
from pointsman.evaluation.run_collection import ALL, measure_strategies, strategy_names
from pointsman.retrieval.run.candidates import DEPTH
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import check_top_k

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pointsman.evaluation.run_collection import Progress
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.types import Document, Hit
    from pointsman.workspace.dataset import Dataset
    from pointsman.workspace.workspace_search import Workspace

COLUMNS: Final = ("query", "source", "quote")
"""The columns of the file; ``quote`` may be missing, or empty in a row."""

_DELIMITERS: Final = ",;\t"
_LARGEST: Final = 50_000_000  # bytes; thirty questions have some thousand
_LEAST_SHARED: Final = 0.5  # a passage that holds at least this share of a quote in one piece holds it


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A row of the file: a question, the file that answers it, and perhaps the words there that do.

    Attributes:
        query: the question.
        source: the file, as the user named it.
        quote: the answer's words; empty: the whole file counts.
        line: the number of the row's line, for messages.
    """

    query: str
    source: str
    quote: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class FileLabels:
    """Labels of passages that come from labels of files and quotes.

    Attributes:
        queries: texts by query id, in the order of the file.
        qrels: query id -> id of a passage -> 1, for each passage that may answer.
        answers: query id -> id of a passage -> the row's answer to which it belongs. Of several passages of one answer
            only the first in a ranking counts.
    """

    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    answers: Mapping[str, Mapping[str, str]]


def read_questions(path: str | Path) -> list[LabelledQuestion]:
    """Read questions from a CSV file in UTF-8 whose first line names the columns ``query``, ``source``, ``quote``.

    The delimiter may be a comma, a semicolon or a tab; other columns are ignored; a question may have several rows.

    Raises:
        InputError: the file cannot be read, a column is missing, or a row lacks its question or its file.
    """
    path = Path(path)
    text = _text_of(path)
    header, _, _ = text.partition("\n")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=header.count), strict=True)
    try:
        names = [name.strip().lower() for name in next(rows, [])]
        if not {"query", "source"} <= set(names):
            raise InputError(
                f"{path}: the first line names the columns, query,source or query,source,quote, not "
                f"{header.strip()!r:.80}"
            )
        questions = []
        for row in rows:
            cells = {name: cell.strip() for name, cell in zip(names, row, strict=False)}
            if not any(cells.values()):
                continue
            for name in ("query", "source"):
                if not cells.get(name):
                    raise InputError(f"{path}:{rows.line_num}: there is no {name}; a row is a question and its file")
            questions.append(LabelledQuestion(cells["query"], cells["source"], cells.get("quote", ""), rows.line_num))
    except csv.Error as error:
        raise InputError(f"{path}:{rows.line_num}: this is not CSV: {error}") from None
    if not questions:
        raise InputError(f"{path} has no questions below its header")
    return questions


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > _LARGEST:
        raise InputError(f"{path} is larger than {_LARGEST:,} bytes; it is not a file of questions")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: byte {error.start} cannot be read; save it as 'CSV UTF-8'") from None


def file_labels(datasets: Sequence[Dataset], questions: Sequence[LabelledQuestion]) -> FileLabels:
    """Look up the files and quotes of questions in datasets.

    A name is a stored source, or the end of exactly one: ``guide.pdf`` or ``manuals/guide.pdf`` for
    ``docs/manuals/guide.pdf``.

    Raises:
        InputError: a name fits no file or several, or a quote is in no passage; each is listed with the nearest.
    """
    files: dict[str, list[Document]] = defaultdict(list)
    for dataset in datasets:
        for document in dataset:
            files[source_of(document)].append(document)
    queries: dict[str, str] = {}
    ids: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = defaultdict(dict)
    answers: dict[str, dict[str, str]] = defaultdict(dict)
    problems: list[str] = []
    for question in questions:
        query = ids.setdefault(question.query, str(len(ids) + 1))
        queries[query] = question.query
        try:
            source = _matching(question.source, files)
            passages = _holding(question.quote, files[source], source) if question.quote else files[source]
        except InputError as error:
            problems.append(f"line {question.line}: {error}")
            continue
        answer = f"{source}\0{question.quote}"
        for passage in passages:
            qrels[query][passage.id] = 1
            answers[query].setdefault(passage.id, answer)
    if problems:
        ellipsis = f"\n… and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise InputError("\n".join(problems[:20]) + ellipsis)
    return FileLabels(queries, qrels, answers)


def source_of(document: Document) -> str:
    """Return the file that a document comes from; its id if it comes from none."""
    source = document.metadata.get("source")
    return source if isinstance(source, str) else document.id


def _matching(name: str, files: Mapping[str, object]) -> str:
    """Return the stored source that a name means."""
    if name in files:
        return name
    ending = name.replace("\\", "/").removeprefix("./")
    matches = [source for source in files if source == ending or source.endswith(f"/{ending}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InputError(f"{name!r:.80} fits {len(matches)} files; write one of {', '.join(sorted(matches)[:5])}")
    by_name = {source.rpartition("/")[2].casefold(): source for source in files}
    close_names = difflib.get_close_matches(ending.rpartition("/")[2].casefold()[:200], by_name, 1, 0.0)
    nearest = f"; the nearest is {by_name[close_names[0]]!r}" if close_names else ""
    raise InputError(f"no file {name!r:.80} is indexed{nearest}")


def _holding(quote: str, passages: Sequence[Document], source: str) -> list[Document]:
    """Return the passages that hold a quote; if it is divided between passages, those with at least half of it."""
    words = _plain(quote)
    texts = [_plain(passage.text) for passage in passages]
    holding = [passage for passage, text in zip(passages, texts, strict=True) if words in text]
    if holding:
        return holding
    overlaps = [difflib.SequenceMatcher(None, text, words, autojunk=False).find_longest_match() for text in texts]
    shares = [match.size / len(words) for match in overlaps]
    holding = [passage for passage, share in zip(passages, shares, strict=True) if share >= _LEAST_SHARED]
    if holding:
        return holding
    best = shares.index(max(shares))
    nearest = texts[best][max(overlaps[best].a - 40, 0) :][:120]
    raise InputError(f"the quote {quote!r:.80} is not in {source!r}; the nearest words there are {nearest!r}")


def _plain(text: str) -> str:
    """Return a text without differences of case and white space."""
    return " ".join(text.casefold().split())


def evaluate_questions(
    workspace: Workspace,
    questions: str | Path | Sequence[LabelledQuestion],
    strategies: str | Sequence[str] = ("bm25", "vector", "hybrid", "auto"),
    *,
    datasets: str | Sequence[str] | None = None,
    k: int = 10,
    rerank: bool = True,
    limit_queries: int | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Measure strategies with your own questions, over what a workspace has indexed.

    A question whose rows name files is measured over files: a file has the rank of its first passage. A question with
    a quote is measured over passages: the first one that holds the quote counts. Rankings are those of
    ``workspace.search`` without refusal, to a depth of 100 passages; latencies are those of `run_collection.evaluate`.

    Args:
        workspace: a workspace in a folder or on a server of its own, not a service.
        questions: a CSV file, see `read_questions`, or its rows.
        strategies: names that `Workspace.search` accepts, also as ``"bm25,vector"``; see `run_collection.evaluate`.
        datasets: the datasets to search; None: all.
        k: the cutoff of nDCG, recall, precision and reciprocal rank.
        rerank: False: no reranking; True: as configured.
        limit_queries: use only the first so many rows.
        on_progress: called with the number of questions done.

    Raises:
        InputError: the file or a label is invalid, see `read_questions` and `file_labels`.
        MissingDependencyError: the extra ``eval`` is not installed.
    """
    check_top_k(k)
    measure({}, {}, k)  # a missing package is reported before the searches
    names = strategy_names(strategies)
    rows = read_questions(questions) if isinstance(questions, str | Path) else questions
    rows = list(rows)[:limit_queries]
    names_of_datasets = [datasets] if isinstance(datasets, str) else list(datasets or workspace.names())
    open_datasets = [workspace.dataset(name, create=False) for name in names_of_datasets]
    labels = file_labels(open_datasets, rows)
    queries_with_quote = {row.query for row in rows if row.quote}
    grades = {query: dict.fromkeys(labels.answers[query].values(), 1) for query in labels.queries}

    def units_of(query: str, context: RetrievalContext) -> list[str]:
        by_passage = labels.queries[query] in queries_with_quote
        return [_unit(hit, labels.answers[query], by_passage=by_passage) for hit in context]

    reports = measure_strategies(
        workspace,
        labels.queries,
        grades,
        names,
        k,
        units_of,
        latency_workspace=workspace,
        rerank=rerank,
        datasets=names_of_datasets,
        on_progress=on_progress,
    )
    return Report(
        ", ".join(names_of_datasets),
        sum(map(len, open_datasets)),
        len(labels.queries),
        reports,
        compared=names == ALL,
        texts=dict(labels.queries),
    )


def _unit(hit: Hit, answers: Mapping[str, str], *, by_passage: bool) -> str:
    """Return what a hit counts as: the answer that it belongs to, else its passage or its file."""
    return answers.get(hit.id) or (f"passage {hit.id}" if by_passage else f"file {source_of(hit.document)}")


def best_passages(dataset: Dataset, labels: FileLabels) -> Mapping[str, Mapping[str, int]]:
    """Return grades in which of each answer only the passage counts that a search ranks first.

    If a search to a depth of 100 has none of an answer's passages, all of them count.
    """
    qrels: dict[str, dict[str, int]] = {}
    for query, text in labels.queries.items():
        answers = labels.answers[query]
        best: dict[str, str] = {}
        for hit in dataset.search(text, DEPTH, rerank=False, refuse=False):
            if hit.id in answers:
                best.setdefault(answers[hit.id], hit.id)
        qrels[query] = {id_: 1 for id_, answer in answers.items() if best.get(answer, id_) == id_}
    return qrels
