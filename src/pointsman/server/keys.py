"""Keys to the HTTP service: who may use it, for which datasets, and until when.

A key's text is ``ptm_<id>_<secret>``: 8 hexadecimal digits that name it, and 32 random bytes as 43 characters of
URL-safe base64. It is shown once, when it is made; the workspace keeps its SHA-256. Nothing slower is needed: slow
hashes protect passwords that somebody could guess, and nobody guesses 256 random bits.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from filelock import FileLock, Timeout

from pointsman.errors import (
    ConflictError,
    CorruptStoreError,
    FormatVersionError,
    InputError,
    LockedError,
    StoreError,
    UnknownNameError,
)
from pointsman.store.backend import NEW, LocalBackend
from pointsman.store.local.files import file_stamp, make_directory, replacing, store_error

if TYPE_CHECKING:
    from pointsman.store.backend import Backend

T = TypeVar("T")

FILE: Final = "keys.json"
"""The name of the file in a workspace."""
KIND: Final = "keys"
"""The kind of the record in a server."""

FORMAT: Final = 1
ALL: Final = ("*",)
"""The datasets of a key for all of them, also those that are made later."""

SCOPES: Final = ("read", "write")

_KEY_TEXT: Final = re.compile(r"ptm_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")
_ID: Final = re.compile(r"[0-9a-f]{8}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_LONGEST_NAME: Final = 64  # characters
_LARGEST_FILE: Final = 16_000_000  # bytes, some 50,000 keys; what is larger was not written by us
_PATIENCE: Final = 10.0  # seconds; another change of keys takes milliseconds
_FRESH: Final = 0.5  # seconds for which a record is believed
_ATTEMPTS: Final = 20  # at a change that others get in the way of
_NO_HASH: Final = "0" * 64  # what a key that is not there is compared with, so that it takes as long


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key; not its text.

    Attributes:
        id: 8 hexadecimal digits, part of the text.
        name: whose it is, or what it is for.
        datasets: the names that it is for; ``("*",)`` means all.
        scopes: of ``"read"`` and ``"write"``.
        created: when it was made, in UTC.
        expires: from when on it is no longer valid; None: it does not expire.
        revoked: when it was revoked; None where it was not.
    """

    id: str
    name: str
    datasets: tuple[str, ...]
    scopes: tuple[str, ...]
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    def valid(self, now: datetime) -> bool:
        """Whether it opens anything at this time."""
        return self.revoked is None and (self.expires is None or now < self.expires)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made, and its text, which is nowhere else."""

    key: ApiKey
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Entry:
    key: ApiKey
    sha256: str = field(repr=False)


_Stamp = tuple[int, int, int] | str


@dataclass(frozen=True, slots=True)
class _KeyState:
    """What is kept as it was read: replaced whole, so that threads see one state or the other."""

    stamp: _Stamp
    entries: Mapping[str, _Entry]
    failure: Callable[[], StoreError] | None = None


class KeyStore:
    """The keys of a workspace, in one file that only its owner may read.

    Several processes may use one file: changes are made under a lock, and every check first looks whether the file has
    changed (one ``stat``), so that a key works, or no longer does, from the moment a command line made or revoked it.

    What cannot be read opens nothing: a damaged file, or one that was there and is gone, is an error at every check.

    Args:
        path: the file, ``<workspace>/keys.json``; made with the first key.
        clock: tells the time, in UTC.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = Path(path)
        self._lock = self.path.with_suffix(".lock")
        self._clock = clock
        self._known: _KeyState | None = None

    def create(
        self,
        name: str,
        *,
        datasets: Sequence[str] = ALL,
        scopes: Sequence[str] = SCOPES,
        expires: datetime | None = None,
    ) -> NewKey:
        """Make a key; its text is in the answer and cannot be had again.

        Args:
            name: whose it is, 1 to 64 printable characters; two keys may share one.
            datasets: what it is for, also names that there is no dataset of yet; ``("*",)``: all.
            scopes: ``"read"``, ``"write"`` or both.
            expires: with a time zone, and in the future.

        Raises:
            InputError: any of these cannot be used.
            CorruptStoreError: the file is damaged; it is left as it is.
            LockedError: another process is changing keys and does not come to an end.
            StoreError: the file cannot be written.
        """
        key = ApiKey("", _name(name), _datasets(datasets), _scopes(scopes), self._clock(), _expires(expires))
        if not key.valid(self._clock()):
            raise InputError(f"a key that expires at {expires} would never be valid; give a time in the future")

        def add(entries: dict[str, _Entry]) -> NewKey:
            ids = iter(lambda: secrets.token_hex(4), "")
            new = replace(key, id=next(id_ for id_ in ids if id_ not in entries))
            text = f"ptm_{new.id}_{secrets.token_urlsafe(32)}"
            entries[new.id] = _Entry(new, _hash(text))
            return NewKey(new, text)

        return self._change(add)

    def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key, from now on and for good; it stays in the list. One that is revoked already stays so.

        Raises:
            UnknownNameError: there is none of this id.
            CorruptStoreError: the file is damaged; it is left as it is.
            LockedError: another process is changing keys and does not come to an end.
            StoreError: the file cannot be written.
        """

        def mark(entries: dict[str, _Entry]) -> ApiKey:
            entry = entries.get(key_id)
            if entry is None:
                raise UnknownNameError("key", key_id, tuple(entries))
            if entry.key.revoked is None:
                entry = entries[key_id] = replace(entry, key=replace(entry.key, revoked=self._clock()))
            return entry.key

        return self._change(mark)

    @property
    def fresh(self) -> bool:
        """Whether a check needs no remote call; `refresh` makes that call."""
        return True

    def refresh(self) -> None:
        """Look at what is kept, if that takes a while."""

    def check(self, text: str) -> ApiKey | None:
        """Returns the key with this text; None if it is unknown, expired or revoked.

        Takes as long for a key that exists as for one that does not.

        Raises:
            CorruptStoreError: the file is damaged or unreadable, so nobody can be let in.
        """
        entries = self._read().entries
        match = _KEY_TEXT.fullmatch(text)
        entry = entries.get(match[1]) if match else None
        same = hmac.compare_digest(_hash(text), _NO_HASH if entry is None else entry.sha256)
        return entry.key if same and entry is not None and entry.key.valid(self._clock()) else None

    def empty(self) -> bool:
        """Whether there has never been a key here.

        A key that expired or was revoked is still one. Where the file is gone, or somebody has taken the keys out of
        it, the lock beside it tells that there have been some.

        Raises:
            CorruptStoreError: the file is damaged or unreadable.
        """
        return self._read().stamp == "absent" and not self._lock.exists()

    def usable(self) -> bool:
        """Whether any key opens anything now.

        Raises:
            CorruptStoreError: the file is damaged or unreadable.
        """
        now = self._clock()
        return any(entry.key.valid(now) for entry in self._read().entries.values())

    def list(self) -> list[ApiKey]:
        """All keys, also those that have expired or were revoked, in the order of their making.

        Raises:
            CorruptStoreError: the file is damaged or unreadable.
        """
        return [entry.key for entry in self._read().entries.values()]

    def _read(self) -> _KeyState:
        state = self._known
        try:
            stamp: _Stamp = file_stamp(self.path)
        except OSError as error:
            raise CorruptStoreError(f"{self.path} cannot be read ({error.strerror}); nobody is admitted") from error
        if state is None or state.stamp != stamp:
            state = self._known = self._reread(state)
        if state.failure is not None:
            raise state.failure()
        return state

    def _reread(self, state: _KeyState | None) -> _KeyState:
        """The file's state; one that is damaged is remembered as such, and not parsed anew for every request."""
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())  # of what is read here, whatever is renamed into its place meanwhile
                stamp = about.st_ino, about.st_mtime_ns, about.st_size
                return _state_of(stamp, file.read(_LARGEST_FILE + 1), str(self.path))
        except FileNotFoundError:
            if state is None or state.stamp == "absent":
                return _KeyState("absent", {})
            message = f"{self.path} is missing, and nobody is admitted; restore it, or start over with a new key"
            return _KeyState("absent", {}, partial(CorruptStoreError, message))
        except OSError as error:  # not remembered: its permissions may change without a trace in the stamp
            raise CorruptStoreError(f"{self.path} cannot be read ({error.strerror}); nobody is admitted") from error

    def _change(self, work: Callable[[dict[str, _Entry]], T]) -> T:
        """What ``work`` makes of the entries, which it may change; they are written under a lock."""
        make_directory(self.path.parent)
        try:
            with FileLock(self._lock, timeout=_PATIENCE, mode=0o600):
                before = self._read().entries
                entries = dict(before)
                result = work(entries)
                if entries != before:
                    self._write(entries)
                return result
        except Timeout as error:
            raise LockedError(f"{self.path} is being changed by another process; try again") from error
        except OSError as error:
            raise store_error(self.path, error) from error

    def _write(self, entries: Mapping[str, _Entry]) -> None:
        with replacing(self.path) as file:
            os.fchmod(file.fileno(), 0o600)  # before there is anything in it
            file.write(_text(entries).encode())


class RecordKeys(KeyStore):
    """The keys of a workspace in a server, in one record of its backend.

    Every process looks at the record again after half a second, so that a key works, or no longer does, everywhere
    within a second. Changes are made on the condition that nobody else has made one meanwhile, and else made again.

    What cannot be read opens nothing: a damaged record, one that was there and is gone, a server that does not answer.

    Args:
        backend: where the workspace lives.
        clock: tells the time, in UTC.
    """

    def __init__(self, backend: Backend, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._backend, self._clock = backend, clock
        self._guard = threading.Lock()
        self._looked = -math.inf
        self._known: _KeyState | None = None

    @property
    def fresh(self) -> bool:
        """See `KeyStore`."""
        return self._known is not None and monotonic() - self._looked < _FRESH

    def refresh(self) -> None:
        """See `KeyStore`; whoever comes while somebody is looking waits for what that one sees."""
        with self._guard:
            if not self.fresh:
                began = monotonic()  # what is revoked during the look counts from the next one on
                self._known = self._looked_up(self._known)
                self._looked = began if self._known.failure is None else monotonic()

    def empty(self) -> bool:
        """Whether there has never been a key here, see `KeyStore`."""
        return self._read().stamp == "absent"

    def _read(self) -> _KeyState:
        self.refresh()
        state = self._known
        assert state is not None, "refresh sets it"
        if state.failure is not None:
            raise state.failure()
        return state

    def _looked_up(self, state: _KeyState | None) -> _KeyState:
        stamp: _Stamp = "absent" if state is None else state.stamp
        where = f"{self._backend.url}: the record of keys"
        try:
            record = self._backend.record(KIND)
        except StoreError as error:
            return _KeyState(stamp, {}, partial(type(error), str(error)))
        if record is not None:
            same = state is not None and state.failure is None and state.stamp == record.version
            return state if same and state is not None else _state_of(record.version, record.value.encode(), where)
        if stamp == "absent":
            return _KeyState("absent", {})
        message = f"{where} is missing, and nobody is admitted; restore it, or start over with a new key"
        return _KeyState(stamp, {}, partial(CorruptStoreError, message))

    def _change(self, work: Callable[[dict[str, _Entry]], T]) -> T:
        for _ in range(_ATTEMPTS):
            record = self._backend.record(KIND)
            before: Mapping[str, _Entry] = {}
            if record is not None:
                state = _state_of(record.version, record.value.encode(), f"{self._backend.url}: the record of keys")
                if state.failure is not None:
                    raise state.failure()
                before = state.entries
            entries = dict(before)
            result = work(entries)
            if entries != before:
                try:
                    self._backend.put_record(KIND, "", _text(entries), NEW if record is None else record.version)
                except ConflictError:
                    continue
                self._looked = -math.inf
            return result
        raise LockedError(f"{self._backend.url}: other processes keep changing the keys; try again")


def keys_of(backend: Backend) -> KeyStore:
    """The keys of the workspace in this backend: a file of a folder, a record of a server."""
    return KeyStore(backend.path / FILE) if isinstance(backend, LocalBackend) else RecordKeys(backend)


def _state_of(stamp: _Stamp, data: bytes, where: str) -> _KeyState:
    """What is kept, read; what is damaged is remembered as such."""
    try:
        return _KeyState(stamp, _parsed(data))
    except FormatVersionError as error:
        return _KeyState(stamp, {}, partial(FormatVersionError, f"{where} {error}"))
    except (ValueError, TypeError, KeyError, RecursionError, InputError) as error:
        message = f"{where} is damaged ({type(error).__name__}: {error}); nobody is admitted"
        return _KeyState(stamp, {}, partial(CorruptStoreError, f"{message}; restore it from a backup"))


def _text(entries: Mapping[str, _Entry]) -> str:
    keys = [_to_json(entry) for entry in entries.values()]
    value = {"format": FORMAT, "keys": keys, "checksum": _checksum(keys)}
    return json.dumps(value, ensure_ascii=False, indent=1)


def _checksum(keys: object) -> str:
    """Against damage, not against whoever can write the file."""
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _to_json(entry: _Entry) -> dict[str, Any]:
    # A revocation replaces null by a time, and nothing is ever taken out: every change makes the file longer, so that
    # its size alone tells two states apart, even where the clock of the file system is coarse.
    key = entry.key
    return {
        "id": key.id,
        "name": key.name,
        "sha256": entry.sha256,
        "datasets": key.datasets,
        "scopes": key.scopes,
        "created": key.created.isoformat(),
        "expires": key.expires and key.expires.isoformat(),
        "revoked": key.revoked and key.revoked.isoformat(),
    }


def _parsed(data: bytes) -> dict[str, _Entry]:
    """The entries in a file's bytes; whatever is not exactly as we write it is an error."""
    if len(data) > _LARGEST_FILE:
        raise ValueError(f"more than {_LARGEST_FILE} bytes")
    value = json.loads(data)
    if not isinstance(value, dict) or "format" not in value:
        raise ValueError("no format")
    if value["format"] != FORMAT:
        raise FormatVersionError(
            f"is in format {value['format']!r:.20}, this version of pointsman knows format {FORMAT}; "
            "use the version that wrote it"
        )
    # A file of an earlier version has no checksum.
    if not value.keys() <= {"format", "keys", "checksum"} or value.get("checksum", "") not in (
        "",
        _checksum(value["keys"]),
    ):
        raise ValueError("it is not as it was written")
    entries: dict[str, _Entry] = {}
    for entry in value["keys"]:
        if not _ID.fullmatch(entry["id"]) or not _SHA256.fullmatch(entry["sha256"]) or entry["id"] in entries:
            raise ValueError("an invalid id or hash, or a duplicate id")
        created, expires, revoked = (entry[name] and _time(entry[name]) for name in ("created", "expires", "revoked"))
        if created is None or isinstance(entry["datasets"], str) or isinstance(entry["scopes"], str):
            raise ValueError(f"key {entry['id']} lacks something")
        key = ApiKey(
            entry["id"],
            _name(entry["name"]),
            _datasets(entry["datasets"]),
            _scopes(entry["scopes"]),
            created,
            expires,
            revoked,
        )
        entries[key.id] = _Entry(key, entry["sha256"])
    return entries


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time


def _name(name: str) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InputError(f"a key's name is 1 to {_LONGEST_NAME} printable characters, not {name!r:.80}")
    return name


def _datasets(names: Sequence[str]) -> tuple[str, ...]:
    from pointsman.dataset import check_name

    result = tuple(dict.fromkeys([names] if isinstance(names, str) else names))
    if not result:
        raise InputError("a key needs at least one dataset; '*' means all")
    if "*" in result:
        if len(result) > 1:
            raise InputError(
                f"'*' means all datasets; give it alone, not with {[name for name in result if name != '*']}"
            )
        return ALL
    for name in result:
        check_name(name)
    return result


def _scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    requested = {scopes} if isinstance(scopes, str) else set(scopes)
    if not requested or not requested.issubset(SCOPES):
        raise InputError(f"a key's scopes are of {SCOPES} and at least one, not {scopes!r:.80}")
    return tuple(scope for scope in SCOPES if scope in requested)


def _expires(expires: datetime | None) -> datetime | None:
    if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
        raise InputError(f"a key expires at a datetime with a time zone, not {expires!r:.80}")
    return expires
