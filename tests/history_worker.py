"""Writes to a dataset in PostgreSQL that keeps versions, and says which writes were acknowledged; see the tests."""

import sys
from typing import Any

from pointsman.store.postgres import PostgresBackend
from pointsman.values.types import Document

if __name__ == "__main__":
    url, turn = sys.argv[1:]
    with PostgresBackend(url) as backend:
        store: Any = backend.open("notes")
        for number in range(10_000):
            text = f"{turn}x{number}"
            store.write([Document(f"d{n}", text) for n in range(20)])
            sys.stdout.write(f"{store.statistics().sequence} {text}\n")
            sys.stdout.flush()
