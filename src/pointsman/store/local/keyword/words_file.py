"""The words of a dataset as a file, so that no text is read to correct the spelling of a question.

It is a file of arrays, the index of a `Speller` among them. It is written at the end of long writes, or when the words
have been read for a question, and serves until enough documents have changed; see
`pointsman.retrieval.plan.vocabulary`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pointsman.store.local.arrays_file import read_arrays, read_header, write_arrays
from pointsman.text import DEFAULT_ANALYZER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pointsman.text.spelling import HasFrequencies, Speller

WORDS_FILE: Final = "words.bin"
WORDS_AGAIN = 20_000
"""Words are stored once as many documents have changed; to write these takes longer than to read the words."""
_WORDS_SHARE: Final = 50  # … and one in so many of all
_MAGIC: Final = b"PMSPELL\0"
_FORMAT: Final = 1


def write_words(path: Path, speller: Speller, identity: str, seq: int) -> None:
    """Replace the file; only for the writer of the dataset.

    Raises:
        OSError: it cannot be written.
    """
    header = {"format": _FORMAT, "identity": _origin(identity), "seq": seq}
    write_arrays(path, _MAGIC, header, speller.to_arrays())


def read_words(path: Path, identity: str, lexicon: HasFrequencies) -> tuple[Speller, int]:
    """Return a speller and the sequence number whose words it knows, after verifying the file's checksum.

    Raises:
        FileNotFoundError: there is none.
        OSError, ValueError, KeyError, TypeError: it cannot be used.
    """
    from pointsman.text.spelling import Speller

    header, arrays = read_arrays(path, _MAGIC, _FORMAT, _origin(identity))
    return Speller.from_arrays(arrays, lexicon=lexicon), int(header["seq"])


def words_sequence(path: Path, identity: str) -> int:
    """Return the sequence number of a file by its header alone; 0 without a usable one."""
    return int(read_header(path, _MAGIC, _FORMAT, _origin(identity)).get("seq", 0))


def are_words_due(
    path: Path, identity: str, sequence: int, count: Callable[[], int], changed_since: Callable[[int, int], int]
) -> bool:
    """Whether so much has changed since words were stored that to write took longer than to read them will.

    Args:
        path: of the file.
        identity: of the dataset.
        sequence: the number of its last write.
        count: returns how many documents it has.
        changed_since: returns how many have changed since a write; counting may stop at a limit.
    """
    stored_sequence = words_sequence(path, identity)
    least_count = max(WORDS_AGAIN, count() // _WORDS_SHARE) if stored_sequence else WORDS_AGAIN
    return (
        not 0 < sequence <= stored_sequence
        and changed_since(stored_sequence if stored_sequence < sequence else 0, least_count) >= least_count
    )


def _origin(identity: str) -> str:
    """Return what a file must belong to: the stems in it depend on the analysis of text."""
    return f"{DEFAULT_ANALYZER.fingerprint} {identity}"
