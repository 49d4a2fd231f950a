"""The suite for embedders."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.evaluation.conformance.suite_samples import QUERY, TextConformance, answering, is_name
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from pointsman.values.protocols import Embedder, MultimodalEmbedder


def sound_rows(subject: Any, rows: Any, count: int) -> None:
    """Check the vectors of so many inputs."""
    assert isinstance(rows, np.ndarray), f"vectors are a NumPy array, not {type(rows).__name__}"
    shape = (count, subject.dimensions)
    assert rows.shape == shape, f"{count} inputs have vectors of shape {shape}, not {rows.shape}"
    assert rows.dtype == np.float32, f"vectors are float32, not {rows.dtype}"
    assert np.isfinite(rows).all(), "numbers of a vector are finite"
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert np.allclose(lengths, 1, atol=1e-3), f"vectors are L2-normalised, and these are {lengths[:5]} long"


class EmbedderConformance(TextConformance):
    """For anything that implements the protocol `pointsman.values.protocols.Embedder`.

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
        sound_rows(subject, answer, 1)
        sound_rows(subject, subject.embed_documents([text]), 1)

    def _embedding_calls(self, subject: Any) -> Mapping[str, Callable[[Sequence[str]], NDArray[np.float32]]]:
        return {"embed_queries": subject.embed_queries, "embed_documents": subject.embed_documents}

    def test_several_texts(self) -> None:
        """One row per text."""
        subject, texts = self.make(), list(self.texts())
        for name, embed in self._embedding_calls(subject).items():
            with answering(name):
                sound_rows(subject, embed(texts), len(texts))

    def test_no_texts(self) -> None:
        """No rows, but the same dimensions."""
        subject = self.make()
        for name, embed in self._embedding_calls(subject).items():
            with answering(f"{name}([])"):
                sound_rows(subject, embed([]), 0)

    def test_a_text_does_not_depend_on_its_batch(self) -> None:
        """A text has the same vector in its row alone, among others, and in another order."""
        subject, texts = self.make(), list(self.texts())
        for name, embed in self._embedding_calls(subject).items():
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
        for name, embed in self._embedding_calls(subject).items():
            with answering(name):
                rows = np.asarray(embed(texts), np.float64)
            cosines = rows @ rows.T - 2 * np.eye(len(rows))
            assert cosines.max() < 1 - 1e-6, f"{name} gives different texts the same vector"

    def test_texts_are_left_as_they_were(self) -> None:
        """The caller's list is not modified."""
        subject, texts = self.make(), list(self.texts())
        original = list(texts)
        for name, embed in self._embedding_calls(subject).items():
            with answering(name):
                embed(texts)
            assert texts == original, f"{name} changed the list it was given"

    def test_vectors_are_the_callers(self) -> None:
        """Changing a returned array does not change cached vectors."""
        subject, texts = self.make(), list(self.texts())
        for name, embed in self._embedding_calls(subject).items():
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


class MultimodalEmbedderConformance:
    """For the pictures of anything that implements the protocol `pointsman.values.protocols.MultimodalEmbedder`.

    `EmbedderConformance` is for its texts. Promised: one float32 row of length 1 per picture, of as many dimensions as
    those of texts; a picture's vector depends only on the picture; what is no picture is an `InputError`. The suite
    needs Pillow.

    Attributes:
        tolerance: the allowed difference between a picture's vectors when it is embedded among other pictures.
    """

    tolerance: float = 1e-5

    def make(self) -> MultimodalEmbedder:
        """Return an instance of your implementation."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns an embedder of pictures, too")

    def images(self) -> Sequence[bytes]:
        """Return the contents of different picture files, which yours can tell apart."""
        return [picture_file("red"), picture_file("blue", "JPEG", (300, 20)), picture_file("white", "GIF", (9, 200))]

    def test_several_images(self) -> None:
        """One row per picture, none for none."""
        subject, images = self.make(), list(self.images())
        for count in (len(images), 0):
            with answering("embed_images"):
                sound_rows(subject, subject.embed_images(images[:count]), count)

    def test_an_image_does_not_depend_on_its_batch(self) -> None:
        """A picture has the same vector alone, among others, and in another order."""
        subject, images = self.make(), list(self.images())
        with answering("embed_images"):
            batch = np.asarray(subject.embed_images(images))
            single = np.concatenate([np.asarray(subject.embed_images([image])) for image in images])
            backward = np.asarray(subject.embed_images(images[::-1]))[::-1]
        difference = float(max(np.abs(batch - single).max(), np.abs(batch - backward).max()))
        assert difference <= self.tolerance, f"a picture alone has another vector, by {difference:.2g}"

    def test_different_images_have_different_vectors(self) -> None:
        """A constant vector would not distinguish pictures."""
        with answering("embed_images"):
            rows = np.asarray(self.make().embed_images(list(self.images())), np.float64)
        assert (rows @ rows.T - 2 * np.eye(len(rows))).max() < 1 - 1e-6, "different pictures have the same vector"

    def test_what_is_no_image_is_refused(self) -> None:
        """Empty, damaged or other files, beside a good one, are errors that name the reason."""
        subject = self.make()
        for data in (b"", b"not a picture", picture_file("red")[:40], b"%!PS-Adobe-3.0 EPSF-3.0\n"):
            try:
                subject.embed_images([picture_file("red"), data])
            except InputError:
                continue
            raise AssertionError(f"{data[:20]!r} is no picture, and it was embedded")


def picture_file(colour: str, form: str = "PNG", size: tuple[int, int] = (40, 30)) -> bytes:
    """Return the content of a picture file of one colour."""
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", size, colour).save(data, form)
    return data.getvalue()
