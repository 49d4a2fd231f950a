"""The words of a dataset as a file, so that no text is read to correct the spelling of a question.

It is a file of arrays, the index of a `Speller` among them. It is written at the end of long writes, or when the words
have been read for a question, and serves until enough documents have changed; see
`pointsman.retrieval.plan.vocabulary`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pointsman.store.local.arrays_file import ArraysFile
from pointsman.text import DEFAULT_ANALYZER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORDS_FILE: Final = "words.bin"
WORDS_AGAIN = 20_000
"""Words are stored once as many documents have changed; to write these takes longer than to read the words."""
_WORDS_SHARE: Final = 50  # … and one in so many of all


def words_file(folder: Path, identity: str) -> ArraysFile:
    """Return the file of a dataset; the stems in it depend on the analysis of text."""
    return ArraysFile(folder / WORDS_FILE, b"PMSPELL\0", 1, f"{DEFAULT_ANALYZER.fingerprint} {identity}")


def are_words_due(
    file: ArraysFile, sequence: int, count: Callable[[], int], changed_since: Callable[[int, int], int]
) -> bool:
    """Whether so much has changed since words were stored that to write took longer than to read them will.

    Args:
        file: of the words.
        sequence: the number of the dataset's last write.
        count: returns how many documents it has.
        changed_since: returns how many have changed since a write; counting may stop at a limit.
    """
    stored_sequence = file.numbers().get("seq", 0)
    least_count = max(WORDS_AGAIN, count() // _WORDS_SHARE) if stored_sequence else WORDS_AGAIN
    return (
        not 0 < sequence <= stored_sequence
        and changed_since(stored_sequence if stored_sequence < sequence else 0, least_count) >= least_count
    )
