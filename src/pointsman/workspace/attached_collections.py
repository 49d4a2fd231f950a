"""Collections of other programs, before a workspace takes them in: do their vectors fit, and how do they spread?"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pointsman.retrieval.fusion import CosineSpread
from pointsman.retrieval.judge.background import DRAWN, LIKELY
from pointsman.store.store_values import Capability
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from pointsman.store.base_store import Store
    from pointsman.store.external.attachment import Attachment
    from pointsman.values.protocols import Embedder

T = TypeVar("T")


def measured_attachment(attachment: Attachment, embedder: Embedder | None) -> Attachment:
    """Return what a workspace keeps of a collection: its embedder's name, and the spread of its cosines.

    Args:
        attachment: the collection.
        embedder: of its vectors; None: it is searched by words only.

    Raises:
        InputError: there is no such table or column, or the dimensions of the vectors differ from the embedder's.
        StoreUnavailableError: the server cannot be reached, or a file cannot be read.
    """
    if embedder is not None:
        attachment = replace(attachment, embedder=embedder.name)
    with closing(attachment.open()) as store:
        dimensions = store.info.dimensions
        if embedder is None or dimensions is None:
            return attachment
        if embedder.dimensions != dimensions:
            raise InputError(
                f"the vectors in {attachment.place} have {dimensions} dimensions, those of {embedder.name!r} "
                f"{embedder.dimensions}; name the embedder that made them"
            )
        if not store.info.can(Capability.VECTORS):
            return attachment
        return replace(attachment, spread=_spread_of(store))


def _spread_of(store: Store) -> tuple[float, float] | None:
    """Return mean and deviation of a collection's cosines; its own vectors stand in for questions."""
    sample = store.vectors(sample=DRAWN)
    if len(sample) < 2:
        return None
    spread = CosineSpread.measured(sample[:: max(1, len(sample) // LIKELY)][:LIKELY], sample)
    return spread.mean, spread.sigma
