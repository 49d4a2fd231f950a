"""States of a store that keeps versions, for the tests of what it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.values.types import Document

if TYPE_CHECKING:
    import random

    from numpy.typing import NDArray

    from pointsman.store.base_store import Store

State = tuple[list[tuple[str, str, dict[str, Any], bytes | None]], dict[str, str]]


def state_of(store: Store) -> State:
    """Every document with its metadata and vector, in the order of their keys, and the notes."""
    documents = list(store.documents())
    keys = store.keys([document.id for document in documents])
    vectors = {id_: store.vectors([key]) for id_, key in keys.items()}
    rows = [
        (
            document.id,
            document.text,
            dict(document.metadata),
            vectors[document.id][0].tobytes() if len(vectors[document.id]) else None,
        )
        for document in documents
    ]
    return rows, dict(store.statistics().notes)


def change(store: Store, chance: random.Random) -> None:
    """Add, replace, edit, embed or delete some documents, or change a note."""
    ids = list(dict.fromkeys(f"d{chance.randrange(12)}" for _ in range(chance.randrange(1, 4))))
    documents = [Document(id_, f"text {chance.randrange(99)} of {id_}") for id_ in ids]

    def vectors(count: int) -> NDArray[np.float32]:
        return np.array([[chance.gauss(0, 1) for _ in range(8)] for _ in range(count)], np.float32).reshape(count, 8)

    match chance.randrange(8):
        case 0:
            store.delete(ids)
        case 1:
            store.set_metadata({id_: {"year": chance.randrange(2000, 2030)} for id_ in store.keys(ids)})
        case 2:
            store.write(documents)
        case 3:
            store.annotate(mood=str(chance.randrange(9)))
        case 4:
            stored_documents = [document for document in store.get(ids) if document is not None]
            store.write(stored_documents, vectors(len(stored_documents)), "hash", stored_only=True)
        case 5:
            titles = {id_: {"title": f"title {chance.randrange(9)}"} for id_ in store.keys(ids)}
            texts = store.set_metadata(titles).texts
            if texts:
                store.set_metadata(titles, dict(zip(texts, vectors(len(texts)), strict=True)), "hash")
        case _:
            store.write(documents, vectors(len(documents)), "hash")
