"""What a question names exactly: a code, an identifier, a version, a number with its kind, or a full date.

Of such things a near miss is no answer: whoever asks for invoice 417 is not helped by invoice 416, however alike they
are. Most questions name nothing so, and are told at a glance; the notations are in `pointsman.text.notations`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pointsman.text.notations import Designation

_SIGN: Final = re.compile(r"[\d_]|[a-z][A-Z]|\.\w+\.|月[^日号號]{1,4}[日号號]")
"""Without one of these a question names nothing exactly."""


@lru_cache(maxsize=256)
def designations(question: str) -> tuple[Designation, ...]:
    """Return what a question names exactly, in order; see the table of `pointsman.text.notations`.

    >>> [name.text for name in designations("when is INV-2026-0417 due, and what of order № 616?")]
    ['INV-2026-0417', 'order № 616']
    >>> designations("the 3 plans of 2024 under 300 euros with 16GB")
    ()
    """
    if not _SIGN.search(question):
        return ()
    from pointsman.text.notations import designations_in  # takes milliseconds to import

    return designations_in(question)


def holds_one(text: str, names: Iterable[Designation]) -> bool:
    """Whether a text holds one of the names."""
    return any(name.is_in(text) for name in names)
