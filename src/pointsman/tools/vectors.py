"""Vectors from elsewhere: brought to length 1, and as text.

As text, they are base64 of little-endian float32, as embeddings in OpenAI's API.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


def encode_vector(vector: Sequence[float] | NDArray[np.float32]) -> str:
    """Return a vector as text.

    >>> encode_vector([1.0, -2.0])
    'AACAPwAAAMA='
    """
    import numpy as np

    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()


def decode_vector(text: str) -> NDArray[np.float32]:
    """Return the vector of a text, shape ``(dimensions,)``.

    Raises:
        InputError: it is not such a text.

    >>> decode_vector("AACAPwAAAMA=").tolist()
    [1.0, -2.0]
    """
    import numpy as np

    try:
        content = base64.b64decode(text, validate=True)
        return np.frombuffer(content, "<f4").astype(np.float32)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"a vector as text is base64 of float32 numbers, not {text!r:.40}: {error}") from None


def direction_of(vector: Sequence[float] | NDArray[np.floating]) -> NDArray[np.float32]:
    """Scale a vector to length 1.

    Raises:
        InputError: it is not a list of finite numbers, or is zero.
    """
    import numpy as np

    try:
        row = np.asarray(vector, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"a vector is a list of numbers: {error}") from error
    largest = float(np.abs(row).max(initial=0.0)) if row.ndim == 1 else 0.0
    if not 0 < largest < np.inf:  # NaN fails both tests
        raise InputError("a vector to search by is one list of finite numbers, not all of them 0")
    row = row / largest  # so that no square overflows or underflows
    return (row / np.linalg.norm(row)).astype(np.float32)


def with_length(vector: Sequence[float] | NDArray[np.floating]) -> NDArray[np.float32]:
    """Return a vector as it travels: with its length, where float32 holds its square, else with length 1.

    Raises:
        InputError: as for `direction_of`.
    """
    import numpy as np

    direction = direction_of(vector)
    row = np.asarray(vector, np.float64)
    return row.astype(np.float32) if _SHORTEST < np.abs(row).max() < 1 / _SHORTEST else direction


_SHORTEST: Final = 1e-12


def vector_of(value: Any) -> Any:
    """Return a vector that is given as text or as a list of numbers."""
    return decode_vector(value) if isinstance(value, str) else value
