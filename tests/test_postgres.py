"""PostgreSQL keeps what the protocol promises, against a real server (B3)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, ClassVar

import pytest

from pointsman.testing import StoreConformance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pointsman.store.base import Store
    from pointsman.store.postgres import PostgresBackend
    from postgres_kit import PostgresServer

ABOUT = {"description": "", "indexing_technique": "hybrid"}


class TestPostgresStore(StoreConformance):
    backend: ClassVar[PostgresBackend]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _backend(cls, postgres: PostgresServer) -> Iterator[None]:
        from pointsman.store.postgres import PostgresBackend

        cls.backend = PostgresBackend(f"{postgres.url}?schema=conformance")
        yield
        cls._filled = None
        cls.backend.close()

    def make_store(self) -> Store:
        return self.backend.create(uuid.uuid4().hex, ABOUT)

    def again(self, store: Store) -> Store:
        name = next(one.name for one in self.backend.datasets() if one.identity == store.info.identity)
        found = self.backend.open(name)
        assert found is not None
        return found
