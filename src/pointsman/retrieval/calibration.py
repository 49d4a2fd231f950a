"""The distribution of cosines under an embedder, which puts BM25 and cosine on one scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CosineSpread:
    """How cosines between queries and *random* documents are distributed.

    Attributes:
        mean: the level of a meaningless cosine; subtracting it changes no order, but makes scores readable.
        sigma: the σ of the calibrated sum: the standard deviation over random documents.
    """

    mean: float
    sigma: float

    @classmethod
    def measured(cls, queries: NDArray[np.float32], documents: NDArray[np.float32]) -> CosineSpread:
        """The mean over queries of the mean and of the standard deviation of their cosines to the documents.

        Args:
            queries: shape ``(n, dimensions)``, L2-normalised.
            documents: shape ``(m, dimensions)``, L2-normalised, drawn at random.
        """
        cosines = queries @ documents.T
        return cls(float(cosines.mean()), float(cosines.std(axis=1).mean()))

    @classmethod
    def shared(cls, spreads: Iterable[CosineSpread | None]) -> CosineSpread | None:
        """One scale for several sources: scores can be compared only if they are added up alike.

        Sources without vectors (None) are ignored; returns None if there are no others.
        """
        measured = [spread for spread in spreads if spread is not None]
        if not measured:
            return None
        count = len(measured)
        return cls(sum(s.mean for s in measured) / count, sum(s.sigma for s in measured) / count or 1.0)
