"""How models run: onnxruntime without its telemetry, and texts of equal length together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any


def load_onnxruntime() -> Any:
    """Return the module onnxruntime, which is not to report to its maker unless the user has set that it may.

    Its import already starts the reporting, so the variable has to be set before; switching it off afterwards is late.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


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
