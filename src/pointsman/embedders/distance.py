"""Other distances than the cosine: dot products and Euclidean distances, as cosines of vectors with more columns.

A document's vector x and a query's q become unit vectors whose cosine grows with the dot product, or falls with the
distance, so every store that compares by cosine ranks by either (Bachrach et al., "Speeding Up the Xbox Recommender
System Using a Euclidean Transformation for Inner-Product Spaces", RecSys 2014,
https://doi.org/10.1145/2645710.2645741). With the bound L ≥ ``|x|``:

- dot product: x becomes (x/L, √(1 - ``|x/L|²``)) and q (q, 0), so the cosine is q·x / (L ``|q|``);
- Euclidean: y = x/L becomes (y, ``-|y|²/2``) and p = q/L becomes (p, 1), whose dot product is
  (``|p|² - |p - y|²``) / 2; then as for the dot product, with the bound √1.25.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from pointsman.embedders.base_embedder import BaseEmbedder, EmbedFunction, Progress, text_list
from pointsman.embedders.named_embedders import as_embedder
from pointsman.tools.errors import InputError
from pointsman.tools.vectors import direction_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.values.protocols import Embedder

DistanceName = Literal["cosine", "dot", "euclidean"]
DISTANCES: Final = ("cosine", "dot", "euclidean")
_TOLERANCE: Final = 1e-5  # vectors of length 1 from a model that computes in float32 are a little longer
_EUCLIDEAN_BOUND: Final = math.sqrt(1.25)  # of (y, -|y|²/2), where |y| is at most 1


@dataclass(frozen=True, slots=True)
class Distance:
    """How the vectors of a dataset are compared.

    Attributes:
        name: ``"cosine"``, ``"dot"`` (greater is nearer) or ``"euclidean"`` (less is nearer).
        longest: the greatest length of a document's vector; cosines take vectors of any length.

    Raises:
        InputError: there is no such distance, or the length is no positive number.
    """

    name: DistanceName = "cosine"
    longest: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in DISTANCES:
            raise InputError(f"distance is one of {', '.join(DISTANCES)}, not {self.name!r:.80}")
        longest = self.longest
        if not isinstance(longest, int | float) or isinstance(longest, bool) or not 1e-9 < longest < 1e9:
            raise InputError(f"longest is the greatest length of a vector, 1e-9 to 1e9, not {longest!r:.80}")

    @property
    def columns(self) -> int:
        """How many columns the stored vectors have beside those of the embedder."""
        return DISTANCES.index(self.name)

    def name_for(self, embedder: str) -> str:
        """Return the name under which vectors of an embedder are stored, so that no others are mixed with them."""
        return embedder if self.name == "cosine" else f"{self.name} up to {self.longest:g} of {embedder}"

    def of_documents(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return documents' vectors, shape ``(n, dimensions)``, as they are stored, each of length 1.

        Raises:
            InputError: one is longer than `longest`, or is not finite; nothing is cut.
        """
        if self.name == "cosine" or vectors.ndim != 2:  # whose shape is refused later
            return vectors
        rows = vectors.astype(np.float64) / self.longest
        lengths = np.linalg.norm(rows, axis=1)
        if not (lengths <= 1 + _TOLERANCE).all():  # NaN fails, too
            position = int(np.argmin(lengths <= 1 + _TOLERANCE))
            length = lengths[position] * self.longest
            remedy = "check the embedder"
            if math.isfinite(length):
                remedy = f"store all vectors in a new dataset with longest={math.ceil(1.5 * length):d} or more"
            raise InputError(
                f"the vector at position {position} (from 0) has the length {length:.6g}, and distances here "
                f"({self.name}) are those of vectors up to {self.longest:g}; {remedy}"
            )
        rows /= np.maximum(lengths, 1)[:, None]
        if self.name == "euclidean":
            rows = np.column_stack([rows, -(rows**2).sum(axis=1) / 2]) / _EUCLIDEAN_BOUND
        last_column = np.sqrt(np.maximum(0, 1 - (rows**2).sum(axis=1)))
        return np.column_stack([rows, last_column]).astype(np.float32)

    def of_query(self, vector: Sequence[float] | NDArray[np.floating]) -> NDArray[np.float32]:
        """Return a query's vector as it is compared with stored ones, of length 1.

        Raises:
            InputError: it is not a list of finite numbers, or is zero; a Euclidean distance may be to zero.
        """
        if self.name == "cosine":
            return direction_of(vector)
        if self.name == "dot":
            return np.append(direction_of(vector), np.float32(0))
        row = np.asarray(vector)
        if row.ndim == 1 and row.dtype.kind in "iuf":
            vector = np.concatenate([row / self.longest, [1.0, 0.0]])
        return direction_of(vector)

    def of_queries(self, vectors: NDArray[Any]) -> NDArray[np.float32]:
        """Return queries' vectors, shape ``(n, dimensions)``, as `of_query` does; without words they stay zero."""
        rows = [self.of_query(row) if row.any() else np.zeros(len(row) + self.columns) for row in vectors]
        return np.array(rows, np.float32).reshape(len(vectors), vectors.shape[1] + self.columns)

    def originals(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return documents' vectors as they were before `of_documents`; of cosines only the direction is known."""
        if self.name == "cosine":
            return rows
        scale = self.longest * (_EUCLIDEAN_BOUND if self.name == "euclidean" else 1)
        return rows[..., : -self.columns] * np.float32(scale)

    def value(self, score: float, vector: Sequence[float] | NDArray[np.floating]) -> float:
        """Return the cosine, dot product or Euclidean distance that a score is, for the query's vector.

        >>> dot = Distance("dot", longest=5)
        >>> row, query = dot.of_documents(np.array([[3.0, 4.0]]))[0], [0.0, 2.0]
        >>> round(dot.value(row @ dot.of_query(query), query), 5)
        8.0
        """
        if self.name == "cosine":
            return float(score)
        length = float(np.linalg.norm(np.asarray(vector, np.float64)))
        if self.name == "dot":
            return float(score) * self.longest * length
        short = length / self.longest
        product = float(score) * _EUCLIDEAN_BOUND * math.hypot(short, 1)
        return self.longest * math.sqrt(max(0.0, short**2 - 2 * product))


COSINE: Final = Distance()


class DistanceEmbedder(BaseEmbedder):
    """An embedder whose vectors are compared by dot products or Euclidean distances.

    Vectors that are given to a dataset with this embedder, or read from it, are the model's own; scores are cosines, in
    the order of the distance, which `Distance.value` returns for a score.

    Args:
        embedder: anything with ``embed(text)``, whose vectors are not scaled here.
        distance: ``"dot"`` or ``"euclidean"``.
        longest: the greatest length of a document's vector; a longer one is refused. It may be some 16 times the
            usual length; then all stored vectors have nearly one direction.

    Raises:
        InputError: the embedder cannot embed, or the distance is invalid.
    """

    def __init__(self, embedder: Any, distance: DistanceName, longest: float = 1.0) -> None:
        self.embedder, self.distance = as_embedder(embedder), Distance(distance, longest)
        self.identified = getattr(self.embedder, "identified", True)  # whether its vectors may be cached by its name

    @property
    def name(self) -> str:
        """The embedder's name with the distance."""
        return self.distance.name_for(self.embedder.name)

    @property
    def dimensions(self) -> int:
        """Length of a stored vector."""
        return self.embedder.dimensions + self.distance.columns

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised; blank ones may be zero."""
        return self.distance.of_queries(_model_rows(self.embedder, texts, "queries"))

    def embed_documents(self, texts: Sequence[str], *, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(texts), dimensions)``, float32, L2-normalised.

        Raises:
            InputError: a vector is longer than ``longest``.
        """
        rows = self.distance.of_documents(_model_rows(self.embedder, texts, "documents"))
        if on_progress is not None:
            on_progress(len(rows))
        return rows


def _model_rows(embedder: Embedder, texts: Sequence[str], kind: Literal["queries", "documents"]) -> NDArray[Any]:
    """Return the vectors of texts with the lengths that the model gives them."""
    if isinstance(embedder, EmbedFunction):
        return embedder.embed_unscaled(text_list(texts), kind)
    rows: NDArray[Any] = embedder.embed_queries(texts) if kind == "queries" else embedder.embed_documents(texts)
    return rows
