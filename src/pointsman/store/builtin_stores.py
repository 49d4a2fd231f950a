"""The built-in workspace stores and collection kinds, by URL scheme; each is loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointsman.store.local.folder_backend import LocalBackend
from pointsman.values.registry import COLLECTIONS, STORES

if TYPE_CHECKING:
    from pointsman.store.backend import Backend
    from pointsman.store.external.attachment import AttachedStore, Attachment


def _postgresql(url: str, **options: Any) -> Backend:
    from pointsman.store.postgres import PostgresBackend

    return PostgresBackend(url, **options)


def _opensearch(url: str, **options: Any) -> Backend:
    from pointsman.store.opensearch import OpenSearchBackend

    return OpenSearchBackend(url, **options)


def _table(attachment: Attachment) -> AttachedStore:
    from pointsman.store.postgres.attached_table import TableStore

    return TableStore(attachment)


def _index(attachment: Attachment) -> AttachedStore:
    from pointsman.store.opensearch.existing_index import IndexStore

    return IndexStore(attachment)


def _chroma(attachment: Attachment) -> AttachedStore:
    from pointsman.store.external.chroma import ChromaStore

    return ChromaStore(attachment)


def _meilisearch(attachment: Attachment) -> AttachedStore:
    from pointsman.store.external.meilisearch import MeilisearchStore

    return MeilisearchStore(attachment)


def _faiss(attachment: Attachment) -> AttachedStore:
    from pointsman.store.external.faiss_file import FaissStore

    return FaissStore(attachment)


STORES.register("file", LocalBackend)
COLLECTIONS.register("faiss", _faiss)
for scheme in ("postgresql", "postgres"):
    STORES.register(scheme, _postgresql)
    COLLECTIONS.register(scheme, _table)
for scheme in ("opensearch", "opensearch+https"):
    STORES.register(scheme, _opensearch)
    COLLECTIONS.register(scheme, _index)
for scheme in ("chroma", "chroma+https"):
    COLLECTIONS.register(scheme, _chroma)
for scheme in ("meilisearch", "meilisearch+https"):
    COLLECTIONS.register(scheme, _meilisearch)
