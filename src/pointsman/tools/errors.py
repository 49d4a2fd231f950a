"""The tree of all errors that Pointsman raises.

::

    PointsmanError
    ├── AuditError                      the audit log cannot be written; so nothing is shown
    ├── InputError (ValueError)         the caller's input is invalid; the message names it and the remedy
    │   ├── FilterError                 a filter expression that cannot be read
    │   ├── UnmetNeedError              valid, but needs a model or an index that is missing
    │   └── UnknownNameError            a dataset, strategy, fusion … that does not exist
    ├── MissingDependencyError (ImportError)   an optional package is missing; has the install command
    ├── ModelError                      an embedder, LLM or reranker failed or gave an unusable answer
    ├── NotHeldError                    an answer cannot be given again: something that it was made of is no longer held
    ├── RetrievalError (ExceptionGroup) every branch of a search failed; has the error of each
    ├── ServiceError                    a Pointsman service cannot be reached, refuses, or gives an unusable answer
    └── StoreError                      a problem with data on disk or in a database
        ├── StoreUnavailableError       the server cannot be reached, or does not answer in time
        ├── ConflictError               another process changed it meanwhile
        ├── LockedError                 another process is writing to this dataset
        │   └── ReplacedError           another process deleted or recreated it after it was opened
        ├── StorageFullError            the disk is full; what was acknowledged is kept
        ├── FormatVersionError          written in a format that this version does not know
        └── CorruptStoreError           the source of truth (not a derived index) is damaged

Errors of underlying libraries are translated into these if a person can act on them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Self


class PointsmanError(Exception):
    """Base of every error raised on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how pickle makes a copy; its own way passes the message to the constructor."""
        return _copy, (type(self), self.args), self.__dict__


def _copy(kind: type[PointsmanError], arguments: tuple[Any, ...]) -> PointsmanError:
    error = kind.__new__(kind, *arguments)
    super(PointsmanError, error).__init__(*arguments)
    return error


class AuditError(PointsmanError):
    """The audit log cannot be written, and so nothing is shown.

    Attributes:
        path: the file.
        reason: why not.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"the audit log {path!r} cannot be written ({reason}), so nothing is shown; mend that, or change the "
            "setting audit_log"
        )
        self.path, self.reason = path, reason


class InputError(PointsmanError, ValueError):
    """The caller's input is invalid."""


class FilterError(InputError):
    """A filter expression cannot be read."""


class UnknownNameError(InputError):
    """Nothing is registered or stored under a name.

    Attributes:
        kind: what was asked for, such as ``"dataset"``.
        name: the name.
        known: the names that there are; empty if there is none, or if nobody has looked.
        looked: whether somebody has looked for names.
    """

    def __init__(self, kind: str, name: str, known: tuple[str, ...] | None = None) -> None:
        names = sorted(set(known or ()))
        nearest = difflib.get_close_matches(str(name), names, 1, 0.6)
        remedy = f"; known: {', '.join(names)}" if names else "" if known is None else "; there is none yet"
        if nearest:
            remedy = f"; did you mean {nearest[0]!r}?{remedy.removeprefix(';')}"
        super().__init__(f"no {kind} named {name!r}{remedy}")
        self.kind, self.name, self.known = kind, name, known or ()
        self.looked = known is not None


class UnmetNeedError(InputError):
    """The request needs something that is missing, such as a language model or an index."""


class MissingDependencyError(PointsmanError, ImportError):
    """A required optional package is not installed."""

    def __init__(self, package: str, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the package {package!r}; install it with: pip install 'pointsman[{extra}]'"
        )


class NotHeldError(PointsmanError):
    """An answer cannot be given again, because something that it was made of is no longer held.

    Attributes:
        missing: what is no longer held, each with the reason.
    """

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(f"no longer held: {'; '.join(missing)}")
        self.missing = tuple(missing)


class DependencyVersionError(MissingDependencyError):
    """An optional package is installed in an unsupported version."""

    def __init__(self, package: str, version: str, usable: str, extra: str, needed_for: str) -> None:
        super().__init__(package, extra, needed_for)
        needs = f"{needed_for} needs the package {package!r} in a version {usable}"
        self.msg = f"{needs}, and {version} is installed; install one with: pip install 'pointsman[{extra}]'"
        self.args = (self.msg,)


class ModelError(PointsmanError):
    """A model failed, timed out or gave an unusable answer."""


class RetrievalError(ExceptionGroup[Exception], PointsmanError):
    """Every branch of a search failed; ``causes`` maps each branch's name to its error."""

    causes: Mapping[str, Exception]
    _message: str

    def __new__(cls, message: str, causes: Mapping[str, Exception]) -> Self:
        """Create the error from a message and the causes by name."""
        details = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in causes.items())
        group = super().__new__(cls, f"{message}: {details}", list(causes.values()))
        group._message, group.causes = message, dict(causes)
        return group

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how pickle makes a copy; its own way passes the message with the details and a list of the causes."""
        return type(self), (self._message, self.causes), self.__dict__

    def derive(self, excs: Sequence[Exception]) -> ExceptionGroup[Exception]:  # type: ignore[override]  # its stub is generic in the result
        """Build the group that ``except*`` uses for a subset of the errors."""
        return RetrievalError("a part of the causes", {name: e for name, e in self.causes.items() if e in excs})


class ServiceError(PointsmanError):
    """A Pointsman service cannot be reached, refuses a request, or gives an unusable answer.

    Attributes:
        status: the HTTP status; None if there was no response.
        title: the kind of problem in a few words.
        request_id: the id of the request in the service's log.
        retry_after: seconds after which the service asks for a retry.
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
    """A problem with the data on disk or in a database."""


class StoreUnavailableError(StoreError):
    """A store's server cannot be reached or does not answer in time; the message names it without its password."""


class ConflictError(StoreError):
    """The value was changed by another process after it was read; read it again."""


class LockedError(StoreError):
    """Another process is writing to this dataset."""


class ReplacedError(LockedError):
    """Another process deleted or recreated the dataset after it was opened here; open it again."""


class StorageFullError(StoreError):
    """The disk or the quota is full. Searching still works.

    Attributes:
        kept: what is safe nevertheless, in words; also part of the message.
    """

    def __init__(self, message: str, kept: str = "earlier acknowledged writes are kept") -> None:
        super().__init__(message)
        self.kept = kept


class FormatVersionError(StoreError):
    """The data was written in a format that this version does not know."""


class CorruptStoreError(StoreError):
    """The source of truth is damaged; unlike indexes, it cannot be rebuilt."""
