"""Signatures: the part of a document's metadata that decides in which views it exists: access, and days of validity.

Distinct signatures are few, so a store can number them, ask a view once which of them it admits, and then choose
documents by number.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pointsman.values.views import ACCESS, VALID_FROM, VALID_TO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pointsman.values.views import View

_KEYS: Final = (ACCESS, VALID_FROM, VALID_TO)
"""The metadata keys that `View.admits` reads."""


def signature_of(metadata: Mapping[str, Any]) -> str:
    """Return the signature of a document with this metadata, as JSON; equal ones exist in the same views.

    >>> signature_of({"year": 2026, "_access": {"allow": ["group:hr"], "deny": []}})
    '{"_access": {"allow": ["group:hr"], "deny": []}}'
    """
    return json.dumps({key: metadata[key] for key in _KEYS if metadata.get(key) is not None}, sort_keys=True)


def admits(view: View, signature: str) -> bool:
    """Whether the documents with a signature exist in a view; nobody sees those whose signature is unreadable."""
    try:
        metadata = json.loads(signature)
    except (ValueError, RecursionError):  # someone has changed the row
        return False
    return isinstance(metadata, dict) and view.admits(metadata)
