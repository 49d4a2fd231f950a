"""The tools that read: `fetch`, `read`, `outline`, `grep` and `verify`."""

from __future__ import annotations

import time
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pointsman.integrations.mcp import answer_values
from pointsman.integrations.mcp import tool_schemas as schemas
from pointsman.integrations.mcp.grep import SECONDS, GrepMatch, Pattern, texts_of
from pointsman.integrations.mcp.grep import grep as grep_store
from pointsman.integrations.mcp.visible_datasets import id_of
from pointsman.retrieval.refine.compress.expand import WindowExpander
from pointsman.tools.audit_log import cite, current_entry
from pointsman.values.answer_check import verify as verify_answer
from pointsman.values.citations import about_tokens
from pointsman.values.types import Hit, Query, Ranked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pointsman.integrations.mcp.visible_datasets import Library
    from pointsman.service.server.access.request_access import Access
    from pointsman.workspace.dataset import Dataset
from pointsman.values.types import Document


def fetch(library: Library, access: Access, arguments: schemas.FetchArguments) -> schemas.FetchAnswer:
    """Return a document; for a passage, as much of its source around the passage as fits."""
    dataset, document = library.document(access, arguments.id)
    passages = neighbours(dataset, document)
    first, last = window(passages, document, len(passages), len(passages), schemas.READ_CHARS, None)
    _shows_only((dataset.name, passage.id) for passage in passages[first:last])
    text = join(dataset, document, passages, first, last).text
    metadata: dict[str, Any] = {"dataset": dataset.name, **answer_values.metadata_of(document.metadata)}
    if len(text) > schemas.READ_CHARS or last - first < len(passages):
        metadata["cut"] = True
    return schemas.FetchAnswer(
        id=id_of(dataset.name, document.id),
        title=_title(document),
        text=answer_values.sound(text)[: schemas.READ_CHARS],
        url=answer_values.url_of(dataset.name, document.id, document.metadata),
        metadata=metadata,
    )


def read(library: Library, access: Access, arguments: schemas.ReadArguments) -> schemas.ReadAnswer:
    """Return a document with its neighbours, within the budget; or the rest of a document that was cut."""
    dataset, document = library.document(access, arguments.id)
    passages = neighbours(dataset, document)
    count_before, count_after = (0, 0) if arguments.offset else (arguments.before, arguments.after)
    first, last = window(passages, document, count_before, count_after, arguments.max_chars, arguments.max_tokens)
    full_text = answer_values.sound(join(dataset, document, passages, first, last).text)[arguments.offset :]
    text = shorten(full_text, arguments.max_chars, arguments.max_tokens)
    _shows_only((dataset.name, passage.id) for passage in passages[first:last])
    following = passages[last : last + 1]
    return schemas.ReadAnswer(
        id=id_of(dataset.name, document.id),
        dataset=dataset.name,
        title=_title(document),
        url=answer_values.url_of(dataset.name, document.id, document.metadata),
        source=answer_values.source_of(document.metadata),
        text=text,
        passages=[id_of(dataset.name, passage.id) for passage in passages[first:last]],
        previous=id_of(dataset.name, passages[first - 1].id) if first else None,
        next=id_of(dataset.name, following[0].id) if following else None,
        next_offset=arguments.offset + len(text) if len(text) < len(full_text) else None,
        metadata=answer_values.metadata_of(document.metadata),
    )


def neighbours(dataset: Dataset, document: Document) -> list[Document]:
    """Return the passages of a document's source in order; only the document if they are unknown."""
    source = document.metadata.get("source")
    if _position(document) is None or not isinstance(source, str):
        return [document]
    passages = [passage for passage in dataset.get_many(dataset.store.ids(source=source)) if passage is not None]
    passages = [passage for passage in passages if _position(passage) is not None]
    if len({_position(passage) for passage in passages}) < len(passages):  # each record of a table is counted from 0
        passages = [
            passage for passage in passages if passage.metadata.get("parent") == document.metadata.get("parent")
        ]
    passages.sort(key=lambda passage: _position(passage) or 0)
    return passages if any(passage.id == document.id for passage in passages) else [document]


def window(
    passages: Sequence[Document],
    document: Document,
    count_before: int,
    count_after: int,
    chars: int,
    tokens: int | None,
) -> tuple[int, int]:
    """Choose the range of passages that fits around a document: nearest first, the following before the preceding.

    Returns:
        The index of the first passage and the index after the last one; at least the document itself.
    """
    index = next(candidate for candidate, passage in enumerate(passages) if passage.id == document.id)
    first, last = index, index + 1
    length, used_tokens = len(document.text), about_tokens(document.text)
    while True:
        has_grown = False
        for candidate, include in (
            (last, last < min(len(passages), index + 1 + count_after)),
            (first - 1, first > max(0, index - count_before)),
        ):
            if not include:
                continue
            text = passages[candidate].text
            length, used_tokens = length + len(text) + 2, used_tokens + about_tokens(text) + 1
            if length > chars or (tokens is not None and used_tokens > tokens):
                return first, last
            first, last, has_grown = min(first, candidate), max(last, candidate + 1), True
        if not has_grown:
            return first, last


def join(dataset: Dataset, document: Document, passages: Sequence[Document], first: int, last: int) -> Document:
    """Join a document with the texts of these neighbours, without their overlaps."""
    if last - first == 1:
        return document
    index = next(number for number, passage in enumerate(passages) if passage.id == document.id)
    expander = WindowExpander(dataset, index - first, last - 1 - index)
    ranking = Ranked((Hit(document, 0.0, dataset.name),), "rank")
    return expander.refine(Query(""), ranking, 1).hits[0].document


def shorten(text: str, chars: int, tokens: int | None) -> str:
    """Cut a text to a budget of characters and tokens.

    >>> shorten("abcdef", 4, None), shorten("abcdef", 4, 1)
    ('abcd', 'abc')
    """
    text = text[:chars]
    if tokens is not None and about_tokens(text) > tokens:
        text = text.encode()[: 3 * tokens].decode("utf-8", "ignore")
    return text


def outline(library: Library, access: Access, arguments: schemas.OutlineArguments) -> schemas.OutlineAnswer:
    """List the sources of a dataset, or the headings of a source."""
    (dataset,) = library.choose(access, [arguments.dataset])
    if arguments.source is None:
        entries = library.outlines.get(dataset.store, lambda: sources_of(dataset.name, dataset.store.documents()))
    else:
        documents = [
            document
            for document in dataset.get_many(dataset.store.ids(source=arguments.source))
            if document is not None
        ]
        documents.sort(key=lambda document: _position(document) or 0)
        entries = [
            entry_of(dataset.name, list(section), headings) for headings, section in groupby(documents, key=_headings)
        ]
    page = entries[arguments.offset : arguments.offset + arguments.limit]
    _shows_only((dataset.name, entry.id.partition("/")[2]) for entry in page)
    following = arguments.offset + len(page)
    return schemas.OutlineAnswer(
        dataset=dataset.name,
        source=None
        if arguments.source is None
        else answer_values.cut(answer_values.without_folder(arguments.source), answer_values.TITLE_CHARS),
        entries=page,
        total=len(entries),
        next_offset=following if page and following < len(entries) else None,
    )


def sources_of(dataset: str, documents: Iterable[Document]) -> list[schemas.Entry]:
    """Return an entry for each source, and for each document without a source, in their original order."""
    firsts: dict[tuple[bool, str], schemas.Entry] = {}
    for document in documents:
        source = document.metadata.get("source")
        key = (True, source) if isinstance(source, str) and source else (False, document.id)
        entry = firsts.get(key)
        if entry is None:
            firsts[key] = entry_of(dataset, [document], ())
        else:
            entry.passages += 1
    return list(firsts.values())


def entry_of(dataset: str, documents: Sequence[Document], headings: Sequence[str]) -> schemas.Entry:
    """Return one entry for documents that belong together."""
    first = documents[0]
    return schemas.Entry(
        id=id_of(dataset, first.id),
        title=_title(first),
        source=answer_values.source_of(first.metadata),
        headings=[answer_values.cut(heading, answer_values.TITLE_CHARS) for heading in headings[:6]],
        passages=len(documents),
        page=_positive_int(first.metadata.get("page")),
        line=_positive_int(first.metadata.get("line")),
    )


def grep(library: Library, access: Access, arguments: schemas.GrepArguments) -> schemas.GrepAnswer:
    """Find documents that contain a text or match a regular expression."""
    pattern = Pattern(arguments.pattern, regex=arguments.regex, ignore_case=arguments.ignore_case)
    matches: list[schemas.MatchAnswer] = []
    incomplete: list[str] = []
    has_more, seconds = False, SECONDS
    for dataset in library.choose(access, arguments.datasets):
        texts = library.texts.get(dataset.store, partial(texts_of, dataset.store))
        start = time.monotonic()
        match: list[GrepMatch] = []
        try:
            for passage in grep_store(dataset.store, texts, pattern, start + seconds):
                match.append(passage)
                if len(matches) + len(match) > arguments.k:
                    break
        except TimeoutError:
            incomplete.append(dataset.name)
        seconds -= time.monotonic() - start
        documents = dataset.get_many([passage.id for passage in match])
        matches += [
            _match(dataset.name, document, passage, arguments.context)
            for passage, document in zip(match, documents, strict=True)
            if document is not None
        ]
        if len(matches) > arguments.k:
            has_more = True
            break
    _shows_only((match.dataset, match.id.partition("/")[2]) for match in matches[: arguments.k])
    return schemas.GrepAnswer(matches=matches[: arguments.k], more=has_more or bool(incomplete), degraded=incomplete)


def _match(dataset: str, document: Document, match: GrepMatch, context: int) -> schemas.MatchAnswer:
    text = answer_values.sound(document.text)
    end = min(match.end, match.start + schemas.MAX_CHARS)  # a pattern may match the whole text
    return schemas.MatchAnswer(
        id=id_of(dataset, document.id),
        dataset=dataset,
        title=_title(document),
        url=answer_values.url_of(dataset, document.id, document.metadata),
        text=text[max(0, match.start - context) : end + context],
        start=match.start,
        end=match.end,
        count=match.count,
    )


def verify(library: Library, access: Access, arguments: schemas.VerifyArguments) -> schemas.VerifyAnswer:
    """Check which quotes and numbers of an answer are in documents."""
    pairs = [library.document(access, id_) for id_ in arguments.ids]
    hits = [Hit(document, 0.0, dataset.name) for dataset, document in pairs]
    check = verify_answer(arguments.answer, hits, timeout=library.seconds)
    cite(hits, check.hits)
    return schemas.VerifyAnswer(
        supported=check.supported,
        claims=[
            schemas.ClaimCheck(
                kind=claim.kind,
                text=answer_values.sound(claim.text),
                start=claim.start,
                end=claim.end,
                status=claim.status,
                id=None if claim.hit is None else id_of(pairs[claim.hit - 1][0].name, pairs[claim.hit - 1][1].id),
                misattributed=claim.misattributed,
            )
            for claim in check.claims
        ],
    )


def _shows_only(documents: Iterable[tuple[str, str]]) -> None:
    """Say in the audit log that of all the documents that were read these are shown."""
    if (entry := current_entry()) is not None:
        entry.show_only(documents)


def _title(document: Document) -> str:
    return answer_values.cut(document.caption, answer_values.TITLE_CHARS)


def _position(document: Document) -> int | None:
    return _positive_int(document.metadata.get("position"))


def _positive_int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _headings(document: Document) -> tuple[str, ...]:
    headings = document.metadata.get("headings")
    return (
        tuple(heading for heading in headings if isinstance(heading, str)) if isinstance(headings, list | tuple) else ()
    )
