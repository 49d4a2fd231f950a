"""Every error Pointsman raises, one tree.

::

    PointsmanError
    ├── InputError (ValueError)         what the caller gave cannot be used; the message names it and the remedy
    │   ├── FilterError                 a filter expression that cannot be read
    │   ├── UnmetNeedError              it would do, were a model or an index here that it needs
    │   └── UnknownNameError            a dataset, strategy, fusion … that does not exist
    ├── MissingDependencyError (ImportError)   an optional package is absent; carries the install line
    ├── ModelError                      an embedder, LLM or reranker failed or answered nonsense
    ├── RetrievalError (ExceptionGroup) every branch of a search failed; carries each one's error
    ├── ServiceError                    a Pointsman service cannot be reached, refuses, or answers what cannot be used
    └── StoreError                      data on disk, or in a database
        ├── StoreUnavailableError       the server cannot be reached, or does not answer in time
        ├── ConflictError               somebody else has changed it meanwhile
        ├── LockedError                 another process is writing to this dataset
        │   └── ReplacedError           another process has deleted it, or made it anew, since it was opened
        ├── StorageFullError            no room is left on the disk; what was acknowledged is kept
        ├── FormatVersionError          written by a Pointsman whose format this one does not know
        └── CorruptStoreError           the truth itself (not a derived index) is damaged

Errors of libraries underneath are translated into these where a person can act on them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Self


class PointsmanError(Exception):
    """Base of every error raised on purpose."""


class InputError(PointsmanError, ValueError):
    """What the caller gave cannot be used."""


class FilterError(InputError):
    """A filter expression cannot be read."""


class UnknownNameError(InputError):
    """A name that nothing is registered or stored under."""

    def __init__(self, kind: str, name: str, known: tuple[str, ...] = ()) -> None:
        names = sorted(set(known))
        nearest = difflib.get_close_matches(str(name), names, 1, 0.6)
        remedy = f"known: {', '.join(names)}" if names else "there is none yet"
        if nearest:
            remedy = f"did you mean {nearest[0]!r}? {remedy}"
        super().__init__(f"no {kind} named {name!r}; {remedy}")
        self.kind, self.name, self.known = kind, name, known


class UnmetNeedError(InputError):
    """What is asked for needs something that is not here, such as a language model or an index."""


class MissingDependencyError(PointsmanError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the package {package!r}; install it with: pip install 'pointsman[{extra}]'"
        )


class DependencyVersionError(MissingDependencyError):
    """An optional package is installed in a version that cannot be used."""

    def __init__(self, package: str, version: str, usable: str, extra: str, needed_for: str) -> None:
        super().__init__(package, extra, needed_for)
        needs = f"{needed_for} needs the package {package!r} in a version {usable}"
        self.msg = f"{needs}, and {version} is installed; install one with: pip install 'pointsman[{extra}]'"
        self.args = (self.msg,)


class ModelError(PointsmanError):
    """A model failed, timed out or answered what cannot be used."""


class RetrievalError(ExceptionGroup[Exception], PointsmanError):
    """Every branch of a search failed; ``causes`` has each one's error by its name (F3)."""

    causes: Mapping[str, Exception]

    def __new__(cls, message: str, causes: Mapping[str, Exception]) -> Self:
        """An error with a message and the causes by name."""
        details = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in causes.items())
        group = super().__new__(cls, f"{message}: {details}", list(causes.values()))
        group.causes = dict(causes)
        return group

    def derive(self, excs: Sequence[Exception]) -> ExceptionGroup[Exception]:  # type: ignore[override]  # its stub is generic in the result
        """What ``except*`` makes of a part of it."""
        return RetrievalError("a part of the causes", {name: e for name, e in self.causes.items() if e in excs})


class ServiceError(PointsmanError):
    """A Pointsman service cannot be reached, refuses a request, or answers what cannot be used.

    Attributes:
        status: of the HTTP answer; None where there was none.
        title: the kind of problem, in a few words.
        request_id: under which the service's log tells more.
        retry_after: seconds after which the service asks to be tried again.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        title: str = "",
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.title, self.request_id, self.retry_after = status, title, request_id, retry_after


class StoreError(PointsmanError):
    """Something about the data on disk, or in a database."""


class StoreUnavailableError(StoreError):
    """The server of a store cannot be reached, or does not answer in time; the message names it and no password."""


class ConflictError(StoreError):
    """The value was changed by another process after it was read; read it again."""


class LockedError(StoreError):
    """Another process is writing to this dataset."""


class ReplacedError(LockedError):
    """Another process deleted or recreated the dataset after it was opened here; open it again."""


class StorageFullError(StoreError):
    """No room is left on the disk, or in the quota. Searching goes on.

    Attributes:
        kept: what is safe all the same, in words; the message says it too.
    """

    def __init__(self, message: str, kept: str = "what was acknowledged before is kept") -> None:
        super().__init__(message)
        self.kept = kept


class FormatVersionError(StoreError):
    """The data was written in a format this version does not know."""


class CorruptStoreError(StoreError):
    """The truth itself is damaged; indexes are rebuilt in silence, this cannot be."""
