"""Groups texts into runs of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def equal_runs(lengths: Sequence[int], run_tokens: int) -> Iterator[list[int]]:
    """Yield the positions of texts to run together: of equal length, at most ``run_tokens`` tokens (or one text).

    Without padding there is no mask, no waste, and no influence of one text on another's vector.

    Example:
        >>> list(equal_runs([3, 5, 3, 3], run_tokens=6))
        [[1], [0, 2], [3]]
    """
    by_length: dict[int, list[int]] = {}
    for position, length in enumerate(lengths):
        by_length.setdefault(length, []).append(position)
    for length, positions in sorted(by_length.items(), reverse=True):
        step = max(1, run_tokens // length)
        for start in range(0, len(positions), step):
            yield positions[start : start + step]
