"""Which language a question and its hits are in, and what that does to their cosines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Self, get_args

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Script = Literal["latin", "cyrillic", "han"]
"""The main script of a text; all other scripts count as Latin."""


SCRIPTS: Final[tuple[Script, ...]] = get_args(Script)


@dataclass(frozen=True)  # no slots: the directions are kept as an array
class Languages:
    """What tells the languages of questions apart, so that it can be taken out of their vectors.

    Among documents in several languages, those in the question's own are nearer to it whatever they say: a question in
    English does not reach the Russian document that answers it, and the only Chinese document is far nearer to any
    Chinese question than all others. The directions in which questions on anything differ by language are therefore
    taken out of a question's vector, which also takes them out of its cosines with all documents.

    Source: Z. Yang, Y. Yang, D. Cer and E. Darve, A Simple and Effective Method to Eliminate the Self Language Bias in
    Multilingual Representations (EMNLP 2021), arXiv 2109.04727; here, only questions are changed, not the documents.

    Attributes:
        directions: of unit length, at right angles to each other; one fewer than there are languages.
        average: the mean position of the languages along each of them.
    """

    directions: tuple[tuple[float, ...], ...] = field(repr=False)
    average: tuple[float, ...]

    @classmethod
    def of(cls, questions: Mapping[Script, NDArray[np.float32]]) -> Self:
        """Compare questions on anything in several languages.

        Args:
            questions: by script, their vectors, shape ``(n, dimensions)``.
        """
        import numpy as np

        means = np.stack([vectors.mean(axis=0) for vectors in questions.values()]).astype(float)
        centre = means.mean(axis=0)
        directions = np.linalg.svd(means - centre, full_matrices=False)[2][: len(means) - 1]
        return cls(tuple(map(tuple, directions.tolist())), tuple((directions @ centre).tolist()))

    def neutral(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return vectors of questions, of unit length, as if all were asked in the average of the languages.

        Args:
            vectors: of one question or several, shape ``(dimensions,)`` or ``(n, dimensions)``.
        """
        import numpy as np

        directions = self._directions
        neutral_vectors = vectors + (np.array(self.average) - vectors @ directions.T) @ directions
        neutral_vectors /= np.maximum(np.linalg.norm(neutral_vectors, axis=-1, keepdims=True), 1e-9)
        return np.asarray(neutral_vectors, np.float32)

    @cached_property
    def _directions(self) -> NDArray[np.float64]:
        import numpy as np

        return np.array(self.directions)


def script_of(text: str) -> Script:
    """Return the main script of the beginning of a text."""
    if text.isascii():
        return "latin"
    from pointsman.text import scripts

    shares = scripts(text[:200])
    return max(SCRIPTS, key=shares.__getitem__)
