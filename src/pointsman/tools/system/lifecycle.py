"""The life of an object that is closed at the end of a ``with`` block."""

from __future__ import annotations

from typing import Self


class Lifecycle:
    """An object that is open until ``close``, which the end of a ``with`` block calls."""

    def close(self) -> None:
        """Release files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
