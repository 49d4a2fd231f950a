"""The suite for embedders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.testing._shared import QUERY, TextConformance, answering, is_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.protocols import Embedder


class EmbedderConformance(TextConformance):
    """For anything that implements the protocol `pointsman.protocols.Embedder`.

    Promised: one float32 row of length 1 per text, in order; a text's vector depends only on the text; name and
    dimensions are constant.

    Attributes:
        tolerance: the allowed difference between a text's vectors when it is embedded among other texts.
    """

    tolerance: float = 1e-5

    def make(self) -> Embedder:
        """Return an instance of your implementation."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns an embedder")

    def texts(self) -> Sequence[str]:
        """Return different texts of different lengths, which yours can tell apart."""
        return [QUERY, "steam", "паровоз и пар", "铁路信号灯", "The bridge over the river carries two tracks. " * 20]

    def _ask(self, subject: Any, text: str) -> Any:
        return subject.embed_queries([text])

    def _view(self, answer: Any) -> Any:
        return np.asarray(answer).tolist()

    def _sound(self, subject: Any, answer: Any, text: str) -> None:
        self._sound_rows(subject, answer, 1)
        self._sound_rows(subject, subject.embed_documents([text]), 1)

    def _sound_rows(self, subject: Any, rows: Any, count: int) -> None:
        assert isinstance(rows, np.ndarray), f"vectors are a NumPy array, not {type(rows).__name__}"
        shape = (count, subject.dimensions)
        assert rows.shape == shape, f"{count} texts have vectors of shape {shape}, not {rows.shape}"
        assert rows.dtype == np.float32, f"vectors are float32, not {rows.dtype}"
        assert np.isfinite(rows).all(), "numbers of a vector are finite"
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
        assert np.allclose(lengths, 1, atol=1e-3), f"vectors are L2-normalised, and these are {lengths[:5]} long"

    def _ways(self, subject: Any) -> Mapping[str, Callable[[Sequence[str]], NDArray[np.float32]]]:
        return {"embed_queries": subject.embed_queries, "embed_documents": subject.embed_documents}

    def test_several_texts(self) -> None:
        """One row per text."""
        subject, texts = self.make(), list(self.texts())
        for name, embed in self._ways(subject).items():
            with answering(name):
                self._sound_rows(subject, embed(texts), len(texts))

    def test_no_texts(self) -> None:
        """No rows, but the same dimensions."""
        subject = self.make()
        for name, embed in self._ways(subject).items():
            with answering(f"{name}([])"):
                self._sound_rows(subject, embed([]), 0)

    def test_a_text_does_not_depend_on_its_batch(self) -> None:
        """A text has the same vector in its row alone, among others, and in another order."""
        subject, texts = self.make(), list(self.texts())
        for name, embed in self._ways(subject).items():
            with answering(name):
                batch = np.asarray(embed(texts))
                single = np.concatenate([np.asarray(embed([text])) for text in texts])
                backward = np.asarray(embed(texts[::-1]))[::-1]
            for batching, rows in (("alone", single), ("in reverse order", backward)):
                difference = float(np.abs(batch - rows).max())
                assert difference <= self.tolerance, (
                    f"{name}: a text {batching} has another vector than among others, by {difference:.2g}; "
                    f"at most {self.tolerance:g} is allowed (the attribute tolerance)"
                )

    def test_different_texts_have_different_vectors(self) -> None:
        """A constant vector would not distinguish texts."""
        subject, texts = self.make(), list(self.texts())
        for name, embed in self._ways(subject).items():
            with answering(name):
                rows = np.asarray(embed(texts), np.float64)
            cosines = rows @ rows.T - 2 * np.eye(len(rows))
            assert cosines.max() < 1 - 1e-6, f"{name} gives different texts the same vector"

    def test_texts_are_left_as_they_were(self) -> None:
        """The caller's list is not modified."""
        subject, texts = self.make(), list(self.texts())
        original = list(texts)
        for name, embed in self._ways(subject).items():
            with answering(name):
                embed(texts)
            assert texts == original, f"{name} changed the list it was given"

    def test_vectors_are_the_callers(self) -> None:
        """Changing a returned array does not change cached vectors."""
        subject, texts = self.make(), list(self.texts())
        for name, embed in self._ways(subject).items():
            with answering(name):
                first = np.array(embed(texts))
                vectors = embed(texts)
                if isinstance(vectors, np.ndarray) and vectors.flags.writeable:
                    vectors[:] = 7
                second = embed(texts)
            assert np.array_equal(first, second), f"{name}: writing into one answer has changed the next"

    def test_name_and_dimensions_stay(self) -> None:
        """Vectors are cached and compared under the name."""
        subject = self.make()
        original = (subject.name, subject.dimensions)
        with answering("embedding"):
            subject.embed_queries(list(self.texts()))
        assert is_name(original[0]), f"name is a name, not {original[0]!r}"
        assert isinstance(original[1], int), f"dimensions is an int, not {original[1]!r}"
        assert (subject.name, subject.dimensions) == original, f"name and dimensions were {original} and have changed"
