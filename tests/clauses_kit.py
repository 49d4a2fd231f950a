"""A contract clause and its amendment, for tests of whether a door says which one is in force."""

from __future__ import annotations

from typing import Any, Final

QUESTION: Final = "how much notice ends the contract"
REASON: Final = "superseded by amendment, valid from 2024-07-01"
BEFORE: Final = "2024-06-30"
CLAUSES: Final[list[dict[str, Any]]] = [
    {"id": "clause", "text": "Three months of notice ends the contract.", "metadata": {"valid_from": "2020-01-01"}},
    {
        "id": "amendment",
        "text": "The notice is now six months.",
        "metadata": {"valid_from": "2024-07-01", "version_of": "clause"},
    },
    {"id": "payment", "text": "Invoices fall due in thirty days."},
]
