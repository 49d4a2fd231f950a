"""Any sentence-transformers model, of texts or of texts and pictures, if that package is installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.embedders.base_embedder import (
    PrefixedEmbedder,
    image_list,
    length_of_head,
    names_for_people,
    unit_rows,
)
from pointsman.tools.errors import InputError, MissingDependencyError, ModelError
from pointsman.tools.images import open_image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LONGEST_SIDE: Final = 2048  # pixels; larger pictures are scaled down first


class SentenceTransformersEmbedder(PrefixedEmbedder):
    """An embedder that uses ``sentence_transformers.SentenceTransformer``.

    For offline use, give the path of a folder with the model; the package looks up (and downloads) models by name.
    """

    def __init__(
        self,
        name_or_path: str,
        *,
        query_prefix: str = "",
        document_prefix: str = "",
        batch_size: int = 32,
        device: str | None = None,
    ) -> None:
        """Load the model.

        Args:
            name_or_path: A model's name, or its folder.
            query_prefix: Put before every query; E5 models expect ``"query: "``.
            document_prefix: Put before every document, such as ``"passage: "``.
            batch_size: Texts per run.
            device: A PyTorch device name; None lets the package choose.

        Raises:
            MissingDependencyError: The package is not installed.
            ModelError: The model cannot be loaded.
        """
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            extra = "sentence-transformers"
            raise MissingDependencyError(extra, extra, "SentenceTransformersEmbedder") from error
        try:
            self._model: Any = SentenceTransformer(name_or_path, device=device)
        except Exception as error:  # the package raises errors of its many dependencies
            raise ModelError(f"sentence-transformers cannot load {name_or_path!r}: {error}") from error
        self._name = f"sentence-transformers:{name_or_path}|{query_prefix}|{document_prefix}"
        self._prefixes = query_prefix, document_prefix
        self._batch_size = batch_size
        # The second is the name before version 5.4, and deprecated since.
        length = getattr(self._model, "get_embedding_dimension", None) or self._model.get_sentence_embedding_dimension
        dimensions = length()
        if dimensions is None:
            raise ModelError(f"sentence-transformers does not tell how long the vectors of {name_or_path!r} are")
        self._dimensions = int(dimensions)

    def truncated_at(self, text: str, *, as_query: bool = False) -> int | None:
        """See `BaseEmbedder`; the limit is the model's ``max_seq_length``, if it has one and a tokenizer."""
        limit, tokenizer = getattr(self._model, "max_seq_length", None), getattr(self._model, "tokenizer", None)
        if not isinstance(limit, int) or not callable(tokenizer):
            return None
        prefix = self._prefixes[0 if as_query else 1]

        def tokens(head: str) -> Sequence[int]:
            ids: Sequence[int] = tokenizer(prefix + head, truncation=True, max_length=limit)["input_ids"]
            return ids

        return length_of_head(text, tokens, limit, sys.maxsize)

    def _encode(self, batch: list[Any]) -> NDArray[np.float32]:
        """Return the vectors of texts, or of pictures."""
        (source,) = names_for_people(self._name)
        try:
            rows = self._model.encode(batch, batch_size=len(batch), convert_to_numpy=True, show_progress_bar=False)
        except Exception as error:  # as above
            raise ModelError(f"{source} failed: {error}") from error
        return unit_rows(rows, source)


class ClipEmbedder(SentenceTransformersEmbedder):
    """A CLIP model of sentence-transformers, such as ``clip-ViT-B-32``: a text finds the pictures that show it.

    Each picture has its own run, so its vector does not depend on others.
    """

    def __init__(self, name_or_path: str, *, batch_size: int = 32, device: str | None = None) -> None:
        """Load the model.

        Args:
            name_or_path: A model's name, or its folder.
            batch_size: Texts per run.
            device: A PyTorch device name; None lets the package choose.

        Raises:
            MissingDependencyError: The package, or Pillow, is not installed.
            ModelError: The model cannot be loaded, or has no space that texts and pictures share.
        """
        try:
            from PIL import Image
        except ImportError as error:
            raise MissingDependencyError("pillow", "images", "ClipEmbedder") from error
        super().__init__(name_or_path, batch_size=batch_size, device=device)
        self._name = f"clip:{name_or_path}"
        dimensions = self._encode([Image.new("RGB", (8, 8))]).shape[1]
        if dimensions != self.dimensions:
            raise ModelError(
                f"the model {name_or_path!r} has no space that texts and pictures share: texts have {self.dimensions} "
                f"dimensions, pictures {dimensions}"
            )

    def embed_images(self, images: Sequence[bytes]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(images), dimensions)``, float32, L2-normalised.

        Args:
            images: the contents of picture files: PNG, JPEG, TIFF, WebP, BMP or GIF, at most 60 million pixels.

        Raises:
            InputError: one is no such picture.
            ModelError: the model failed.
        """
        vectors = np.empty((len(images), self.dimensions), np.float32)
        for row, data in enumerate(image_list(images)):
            try:
                picture = open_image(data, _LONGEST_SIDE)
            except InputError as error:
                raise InputError(f"image {row}: {error}") from error
            vectors[row] = self._encode([picture])
        return vectors
