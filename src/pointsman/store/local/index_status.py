"""How the indexes of a dataset stand to its documents: how far they are behind, and whether they hold the same."""

from __future__ import annotations

import math
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from pointsman.store.local.columns.followed_columns import COLUMNS
from pointsman.store.local.files_and_locks import store_error
from pointsman.store.local.keyword.keyword_files import damaged_files
from pointsman.store.prepared_documents import UNREADABLE
from pointsman.store.store_values import Verification
from pointsman.tools.errors import CorruptStoreError

if TYPE_CHECKING:
    from pathlib import Path

    from pointsman.store.local.columns.followed_columns import FollowedColumns
    from pointsman.store.local.keyword.keyword_index import KeywordIndex
    from pointsman.store.local.truth.truth_rows import Truth
    from pointsman.store.local.vectors.vector_index import VectorIndex

_LAG_SECONDS = 1.0  # how long an index may be behind before answers report it
_COUNTED_CHANGES = 10_000  # maximum number of changes counted to report the lag


class IndexStatus:
    """What answers may lack for indexes that are behind.

    A missing index is reported at once. One that is merely behind is reported after a second, the time a writer may
    take to update it.

    Args:
        name: of the dataset.
        truth: its documents.
        keyword: their keyword index.
    """

    def __init__(self, name: str, truth: Truth, keyword: KeywordIndex) -> None:
        self._name, self._truth, self._keyword = name, truth, keyword
        self._behind_since = math.inf  # the moment when an index was first seen behind

    def describe(self, vectors: VectorIndex | None, *, words: bool = True) -> str | None:
        """Return what current answers may lack; None if the indexes contain all writes.

        Args:
            vectors: the vector index; None: there is none.
            words: whether the keyword index matters.
        """
        truth, keyword = self._truth, self._keyword
        seq = truth.sequence()
        lags = []
        if words and keyword.shown < seq and not (keyword.shown < 0 and not truth.page(0, 1)[0]):
            lags.append(("keyword index", keyword.shown))
        if vectors is not None and vectors.loaded and vectors.applied < seq:
            lags.append(("vector index", vectors.applied))
        if not lags:
            self._behind_since = math.inf
            return None
        self._behind_since = min(self._behind_since, monotonic())
        late = monotonic() - self._behind_since >= _LAG_SECONDS
        reason = f": {keyword.trouble}" if keyword.trouble is not None else "; it is being brought up to date"
        messages = []
        for index_name, last_seq in lags:
            if last_seq < 0:
                messages.append(f"the {index_name} of {self._name!r} is not there yet{reason}")
            elif late:
                count = truth.changed_since(last_seq, _COUNTED_CHANGES)
                suffix = " or more" if count == _COUNTED_CHANGES else ""
                messages.append(f"the {index_name} of {self._name!r} lacks the last {count}{suffix} changes{reason}")
        return "; ".join(messages) or None


def compare(
    directory: Path, truth: Truth, keyword: KeywordIndex, columns: FollowedColumns, vectors: VectorIndex | None
) -> Verification:
    """Compare the indexes in a directory with the documents.

    Raises:
        StoreError: a file cannot be read.
    """
    problems = [f"documents.sqlite: {complaint}" for complaint in truth.check()]
    alive = dict(truth.alive())
    in_keyword = set(keyword.keys())
    problems += _difference("the keyword index", set(alive), in_keyword)
    files = directory / "keyword"
    try:
        problems += [f"keyword/{path.name} is damaged" for path in damaged_files(files)]
    except FileNotFoundError:
        problems += [] if not alive else ["keyword/meta.json is missing"]
    except OSError as error:
        raise store_error(files, error) from error
    except (*UNREADABLE, KeyError) as error:
        problems.append(f"keyword/meta.json is damaged: {error}")
    if (damage := columns.damage()) is not None:
        problems.append(f"{COLUMNS} is damaged: {damage}")
    in_vectors: set[int] = set()
    if vectors is not None:
        in_vectors = set(vectors.keys().tolist())
        with_vector = {key for key, has_vector in alive.items() if has_vector}
        problems += _difference("the vector index", with_vector, in_vectors)
        with suppress(CorruptStoreError):  # already among the problems
            problems += vectors.disagreements()
    return Verification(len(alive), len(in_keyword), len(in_vectors), tuple(problems))


def _difference(subject: str, expected: set[int], actual: set[int]) -> list[str]:
    problems = []
    if missing := expected - actual:
        problems.append(f"{subject} lacks {len(missing)} documents, the first with key {min(missing)}")
    if extra := actual - expected:
        problems.append(f"{subject} holds {len(extra)} documents that are deleted, the first with key {min(extra)}")
    return problems
