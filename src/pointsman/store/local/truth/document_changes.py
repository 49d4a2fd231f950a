"""What a transaction changed, as derived indexes are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pointsman.values.types import Document


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """The last operation on a key; ``document`` is None for a deletion."""

    key: int
    document: Document | None


@dataclass(frozen=True, slots=True)
class VectorChanges:
    """Keys that no longer have a vector; keys that have one, and those vectors, concatenated."""

    gone: list[int]
    keys: list[int]
    vectors: bytes
