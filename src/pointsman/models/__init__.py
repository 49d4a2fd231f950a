"""Models."""

from __future__ import annotations

from pointsman.models.e5 import E5Embedder, default_embedder

__all__ = ["E5Embedder", "default_embedder"]
