"""Documents that are longer than the embedder reads: their vectors hold their beginning only.

They are noted beside the documents, before they are written, each with a digest of the text that is embedded. Whoever
counts them compares the digests with what is stored now. So a note is true after a crash, and it ends with the text
that it is about, whoever deletes or changes that: nothing else has to keep the count.

Several writers of one store would overwrite each other's note. So each draws one of a few, by `note_name`, and at most
`MOST` documents are noted in each: of more, the count is a lower bound.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Final

import xxhash

from pointsman.embedders.base_embedder import truncated_at
from pointsman.text import repair

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pointsman.store.base_store import Store
    from pointsman.values.protocols import Embedder
    from pointsman.values.types import Document

MOST: Final = 1000
"""The largest number of documents that a writer notes; the latest count."""
_NOTE: Final = "truncated_"
_NOTES: Final = 16


def note_name() -> str:
    """Draw the name of a writer's note."""
    return f"{_NOTE}{secrets.randbelow(_NOTES)}"


def note_truncated(store: Store, embedder: Embedder, documents: Sequence[Document], name: str) -> int:
    """Note which documents are longer than the embedder reads; return their number.

    Args:
        store: where they are about to be written.
        embedder: of their vectors.
        documents: with distinct ids.
        name: of the writer's note.
    """
    new_digests = {
        document.id: _digest(document)
        for document in documents
        if truncated_at(embedder, document.searchable) is not None
    }
    if new_digests:
        digests = _digests(store.statistics().notes.get(name))
        if len(digests) + len(new_digests) > MOST:
            digests = dict(_current(store, digests.items()))
        store.annotate(**{name: json.dumps(dict([*digests.items(), *new_digests.items()][-MOST:]))})
    return len(new_digests)


def count_truncated(store: Store) -> int:
    """Return how many documents are stored whose vectors hold their beginning only."""
    notes = store.statistics().notes
    pairs = {pair for name, note in notes.items() if name.startswith(_NOTE) for pair in _digests(note).items()}
    return len(_current(store, pairs))


def _current(store: Store, pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of the ids with their digests whose documents are stored as they were embedded."""
    expected = set(pairs)
    ids = sorted({id_ for id_, _ in expected})
    documents = store.get(ids) if ids else []
    return expected & {(document.id, _digest(document)) for document in documents if document is not None}


def _digest(document: Document) -> str:
    return xxhash.xxh3_64_hexdigest(repair(document.searchable).encode())


def _digests(note: str | None) -> Mapping[str, str]:
    """Return the digests by id that a note holds; none if it is damaged, as a count is no reason to stop."""
    try:
        digests = json.loads(note or "{}")
    except ValueError:
        return {}
    return digests if isinstance(digests, dict) else {}
