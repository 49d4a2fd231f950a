"""Any model of the sentence-transformers family, where that package is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pointsman.errors import MissingDependencyError, ModelError
from pointsman.models.base import PrefixedEmbedder, Progress, unit_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SentenceTransformersEmbedder(PrefixedEmbedder):
    """An embedder over ``sentence_transformers.SentenceTransformer``.

    Offline, give the path of a folder that holds the model; a name is looked up (and downloaded) by that package.
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
            name_or_path: A model's name, or the folder it is in.
            query_prefix: Put before every query; models of the E5 family want ``"query: "``.
            document_prefix: Put before every document, such as ``"passage: "``.
            batch_size: Texts per run.
            device: As PyTorch names it; None lets that package choose.

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
        except Exception as error:  # that package raises what its many parts do
            raise ModelError(f"sentence-transformers cannot load {name_or_path!r}: {error}") from error
        self._name = f"sentence-transformers:{name_or_path}|{query_prefix}|{document_prefix}"
        self._prefixes = query_prefix, document_prefix
        self._batch_size = batch_size
        self._dimensions = int(self._model.get_sentence_embedding_dimension())

    def _embed(self, prefix: str, texts: list[str], on_progress: Progress | None) -> NDArray[np.float32]:
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        for start in range(0, len(texts), self._batch_size):
            batch = [prefix + text for text in texts[start : start + self._batch_size]]
            try:
                rows = self._model.encode(batch, batch_size=len(batch), convert_to_numpy=True, show_progress_bar=False)
            except Exception as error:  # as above
                raise ModelError(f"{self._name} failed: {error}") from error
            vectors[start : start + len(batch)] = unit_rows(rows, self._name)
            if on_progress is not None:
                on_progress(len(batch))
        return vectors
