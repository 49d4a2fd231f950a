"""API keys of the HTTP service: who may use it, for which datasets, and until when.

A key's text is ``ptm_<id>_<secret>``: 8 hexadecimal digits that identify the key, and 32 random bytes as 43 characters
of URL-safe base64. It is shown once, on creation; the workspace stores its SHA-256. A slow hash is not needed: slow
hashes protect guessable passwords, and 256 random bits cannot be guessed.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pointsman.store.backend import NEW
from pointsman.store.local.files_and_locks import file_stamp, make_directory, open_regular
from pointsman.store.local.folder_backend import changing
from pointsman.tools.errors import (
    ConflictError,
    CorruptStoreError,
    FormatVersionError,
    InputError,
    LockedError,
    StoreError,
    UnknownNameError,
)
from pointsman.tools.system.replaced_files import replacing
from pointsman.values.views import check_principals

if TYPE_CHECKING:
    from pointsman.store.backend import Backend

T = TypeVar("T")

FILE: Final = "keys.json"
"""Name of the file in a workspace."""
KIND: Final = "keys"
"""Kind of the record in a server."""

FORMAT: Final = 1
ALL: Final = ("*",)
"""Datasets of a key that covers all of them, including those created later."""

SCOPES: Final = ("read", "write")

_KEY_TEXT: Final = re.compile(r"ptm_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")
_ID: Final = re.compile(r"[0-9a-f]{8}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_LONGEST_NAME: Final = 64  # characters
_LARGEST_FILE: Final = 16_000_000  # bytes, some 50,000 keys; we do not write larger files
_FRESH: Final = 0.5  # seconds for which a record is trusted
_ATTEMPTS: Final = 20  # at a change when others interfere
_NO_HASH: Final = "0" * 64  # compared with the text if the key does not exist, so that it takes as long


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is stored about a key, which does not include its text.

    Attributes:
        id: 8 hexadecimal digits, part of the text.
        name: owner or purpose of the key.
        datasets: names of the datasets it covers; ``("*",)`` means all.
        scopes: ``"read"``, ``"write"`` or both.
        creation_time: creation time, in UTC.
        expires: time from which it is invalid; None if it does not expire.
        revocation_time: time of revocation; None if it is not revoked.
        principals: whom it asks as where access is on; None: it does not say, and cannot read there.

    Raises:
        InputError: a value is invalid.
    """

    id: str
    name: str
    datasets: Sequence[str]
    scopes: Sequence[str]
    creation_time: datetime
    expires: datetime | None = None
    revocation_time: datetime | None = None
    principals: Iterable[str] | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "datasets", _datasets(self.datasets))
        object.__setattr__(self, "scopes", _scopes(self.scopes))
        _check_expiry(self.expires)
        object.__setattr__(self, "principals", _principals(self.principals, self.scopes))

    def valid(self, time: datetime) -> bool:
        """Whether the key is valid at this time."""
        return self.revocation_time is None and (self.expires is None or time < self.expires)

    def to_dict(self) -> dict[str, Any]:
        """Return the key in JSON form."""
        return {
            "id": self.id,
            "name": self.name,
            "datasets": list(self.datasets),
            "scopes": list(self.scopes),
            "created": self.creation_time.isoformat(),
            "expires": self.expires and self.expires.isoformat(),
            "revoked": self.revocation_time and self.revocation_time.isoformat(),
            "principals": None if self.principals is None else list(self.principals),
        }


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key and its text, which is stored nowhere."""

    key: ApiKey
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Entry:
    key: ApiKey
    sha256: str = field(repr=False)


_Stamp = tuple[int, int, int] | str


@dataclass(frozen=True, slots=True)
class _KeyState:
    """What was read last; replaced as a whole, so that threads see either the old or the new state."""

    stamp: _Stamp
    entries: Mapping[str, _Entry]
    failure: Callable[[], StoreError] | None = None


class KeyStore:
    """The keys of a workspace, in one file that only its owner may read.

    Several processes may use one file: changes are made under a lock, and every check first tests whether the file has
    changed (one ``stat``). So a key that a command creates or revokes is valid or invalid at once.

    Unreadable keys admit no one: if the file is damaged, or existed and is gone, every check raises an error.

    Args:
        path: the file, ``<workspace>/keys.json``; created with the first key.
        clock: returns the time, in UTC.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = Path(path)
        self._lock = self.path.with_suffix(".lock")
        self._clock = clock
        self._state: _KeyState | None = None

    def create(
        self,
        name: str,
        *,
        datasets: Sequence[str] = ALL,
        scopes: Sequence[str] = SCOPES,
        expires: datetime | None = None,
        principals: Iterable[str] | None = None,
    ) -> NewKey:
        """Create a key; its text is only in the result and cannot be retrieved again.

        Args:
            name: owner or purpose, 1 to 64 printable characters; need not be unique.
            datasets: names of the datasets it covers, which need not exist yet; ``("*",)`` means all.
            scopes: ``"read"``, ``"write"`` or both.
            expires: a time in the future, with a time zone.
            principals: whom the key asks as where access is on; such a key can only read.

        Raises:
            InputError: an argument is invalid.
            CorruptStoreError: the file is damaged; it is left unchanged.
            LockedError: another process holds the lock on the keys for too long.
            StoreError: the file cannot be written.
        """
        key = ApiKey("", name, datasets, scopes, self._clock(), expires, principals=principals)
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
        """Revoke a key at once and for good; it stays in the list. Revoking it again has no effect.

        Raises:
            UnknownNameError: no key has this id.
            CorruptStoreError: the file is damaged; it is left unchanged.
            LockedError: another process holds the lock on the keys for too long.
            StoreError: the file cannot be written.
        """

        def mark(entries: dict[str, _Entry]) -> ApiKey:
            entry = entries.get(key_id)
            if entry is None:
                raise UnknownNameError("key", key_id, tuple(entries))
            if entry.key.revocation_time is None:
                entry = entries[key_id] = replace(entry, key=replace(entry.key, revocation_time=self._clock()))
            return entry.key

        return self._change(mark)

    @property
    def fresh(self) -> bool:
        """Whether a check needs no remote call; `refresh` makes that call."""
        return True

    def refresh(self) -> None:
        """Read the keys anew if that needs a remote call."""

    def check(self, text: str) -> ApiKey | None:
        """Return the key with this text; None if it is unknown, expired or revoked.

        Takes as long for a key that exists as for one that does not.

        Raises:
            CorruptStoreError: the file is damaged or unreadable, so no one can be admitted.
        """
        entries = self._read().entries
        match = _KEY_TEXT.fullmatch(text)
        entry = entries.get(match[1]) if match else None
        is_match = hmac.compare_digest(_hash(text), _NO_HASH if entry is None else entry.sha256)
        return entry.key if is_match and entry is not None and entry.key.valid(self._clock()) else None

    def empty(self) -> bool:
        """Whether this workspace has never had a key.

        An expired or revoked key counts as a key. If the file is gone, or its keys were removed, the lock file shows
        that there were some.

        Raises:
            CorruptStoreError: the file is damaged or unreadable.
        """
        return self._read().stamp == "absent" and not self._lock.exists()

    def usable(self) -> bool:
        """Whether any key is currently valid.

        Raises:
            CorruptStoreError: the file is damaged or unreadable.
        """
        time = self._clock()
        return any(entry.key.valid(time) for entry in self._read().entries.values())

    def list(self) -> list[ApiKey]:
        """Return all keys, including expired and revoked ones, in order of creation.

        Raises:
            CorruptStoreError: the file is damaged or unreadable.
        """
        return [entry.key for entry in self._read().entries.values()]

    def _read(self) -> _KeyState:
        state = self._state
        try:
            stamp: _Stamp = file_stamp(self.path)
        except OSError as error:
            raise self._unreadable(error) from error
        if state is None or state.stamp != stamp:
            state = self._state = self._reread(state)
        if state.failure is not None:
            raise state.failure()
        return state

    def _reread(self, state: _KeyState | None) -> _KeyState:
        """Return the file's state; a damaged one is remembered, so that it is not parsed again for every request."""
        try:
            with open_regular(self.path) as file:
                stat = os.fstat(file.fileno())  # of this file, even if another one has replaced it meanwhile
                stamp = stat.st_ino, stat.st_mtime_ns, stat.st_size
                return _state_of(stamp, file.read(_LARGEST_FILE + 1), str(self.path))
        except FileNotFoundError:
            if state is None or state.stamp == "absent":
                return _KeyState("absent", {})
            message = f"{self.path} is missing; all requests are refused; restore it, or start over with a new key"
            return _KeyState("absent", {}, partial(CorruptStoreError, message))
        except OSError as error:  # not remembered: its permissions may change without changing the stamp
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> CorruptStoreError:
        return CorruptStoreError(f"{self.path} cannot be read ({error.strerror}); all requests are refused")

    def _change(self, work: Callable[[dict[str, _Entry]], T]) -> T:
        """Let ``work`` change the entries, write them under a lock, and return its result."""
        make_directory(self.path.parent)
        with changing(self.path):
            old_entries = self._read().entries
            entries = dict(old_entries)
            result = work(entries)
            if entries != old_entries:
                self._write(entries)
            return result

    def _write(self, entries: Mapping[str, _Entry]) -> None:
        with replacing(self.path) as file:
            os.fchmod(file.fileno(), 0o600)  # before anything is written to it
            file.write(_text(entries).encode())


class RecordKeys(KeyStore):
    """The keys of a workspace in a server, in one record of its backend.

    Every process reads the record again after half a second, so a new or revoked key takes effect everywhere within a
    second. Changes are conditional on the record's version, and repeated if another process has changed it meanwhile.

    Unreadable keys admit no one: a damaged record, one that existed and is gone, or a server that does not answer.

    Args:
        backend: the backend of the workspace.
        clock: returns the time, in UTC.
    """

    def __init__(self, backend: Backend, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._backend, self._clock = backend, clock
        self._guard = threading.Lock()
        self._time_of_read = -math.inf
        self._state: _KeyState | None = None

    @property
    def fresh(self) -> bool:
        """See `KeyStore`."""
        return self._state is not None and monotonic() - self._time_of_read < _FRESH

    def refresh(self) -> None:
        """See `KeyStore`; concurrent callers wait for the first one's read and share its result."""
        with self._guard:
            if not self.fresh:
                start = monotonic()  # a revocation during the read is seen by the next one
                self._state = self._looked_up(self._state)
                self._time_of_read = start if self._state.failure is None else monotonic()

    def empty(self) -> bool:
        """Whether there has never been a key; see `KeyStore`."""
        return self._read().stamp == "absent"

    def _read(self) -> _KeyState:
        self.refresh()
        state = self._state
        assert state is not None, "refresh sets it"
        if state.failure is not None:
            raise state.failure()
        return state

    def _looked_up(self, state: _KeyState | None) -> _KeyState:
        stamp: _Stamp = "absent" if state is None else state.stamp
        location = f"{self._backend.url}: the record of keys"
        try:
            record = self._backend.record(KIND)
        except StoreError as error:
            return _KeyState(stamp, {}, partial(type(error), str(error)))
        if record is not None:
            is_unchanged = state is not None and state.failure is None and state.stamp == record.version
            return (
                state
                if is_unchanged and state is not None
                else _state_of(record.version, record.value.encode(), location)
            )
        if stamp == "absent":
            return _KeyState("absent", {})
        message = f"{location} is missing; all requests are refused; restore it, or start over with a new key"
        return _KeyState(stamp, {}, partial(CorruptStoreError, message))

    def _change(self, work: Callable[[dict[str, _Entry]], T]) -> T:
        for _ in range(_ATTEMPTS):
            record = self._backend.record(KIND)
            old_entries: Mapping[str, _Entry] = {}
            if record is not None:
                state = _state_of(record.version, record.value.encode(), f"{self._backend.url}: the record of keys")
                if state.failure is not None:
                    raise state.failure()
                old_entries = state.entries
            entries = dict(old_entries)
            result = work(entries)
            if entries != old_entries:
                try:
                    self._backend.put_record(KIND, "", _text(entries), NEW if record is None else record.version)
                except ConflictError:
                    continue
                self._time_of_read = -math.inf
            return result
        raise LockedError(f"{self._backend.url}: other processes keep changing the keys; try again")


def keys_of(backend: Backend) -> KeyStore:
    """Return the keys of the workspace in this backend: a file in a folder, a record in a server."""
    return RecordKeys(backend) if backend.path is None else KeyStore(backend.path / FILE)


def _state_of(stamp: _Stamp, data: bytes, location: str) -> _KeyState:
    """Parse stored keys; damage is remembered in the state."""
    try:
        return _KeyState(stamp, _parse(data))
    except FormatVersionError as error:
        return _KeyState(stamp, {}, partial(FormatVersionError, f"{location} {error}"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError, InputError) as error:
        message = f"{location} is damaged ({type(error).__name__}: {error}); all requests are refused"
        return _KeyState(stamp, {}, partial(CorruptStoreError, f"{message}; restore it from a backup"))


def _text(entries: Mapping[str, _Entry]) -> str:
    keys = [_to_json(entry) for entry in entries.values()]
    value = {"format": FORMAT, "keys": keys, "checksum": _checksum(keys)}
    return json.dumps(value, ensure_ascii=False, indent=1)


def _checksum(keys: object) -> str:
    """Compute a checksum against damage, not against an attacker who can write the file."""
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _to_json(entry: _Entry) -> dict[str, Any]:
    # A revocation replaces null by a time, and nothing is ever removed: every change makes the file longer, so its size
    # alone distinguishes two states, even if the file system's clock is coarse.
    return {**entry.key.to_dict(), "sha256": entry.sha256}


def _parse(data: bytes) -> dict[str, _Entry]:
    """Parse a file's bytes; anything that is not exactly as we write it is an error."""
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
    if value.keys() != {"format", "keys", "checksum"} or value["checksum"] != _checksum(value["keys"]):
        raise ValueError("it does not match its checksum")
    entries: dict[str, _Entry] = {}
    for entry in value["keys"]:
        if not _ID.fullmatch(entry["id"]) or not _SHA256.fullmatch(entry["sha256"]) or entry["id"] in entries:
            raise ValueError("an invalid id or hash, or a duplicate id")
        creation_time, expires, revocation_time = (
            entry[name] and _time(entry[name]) for name in ("created", "expires", "revoked")
        )
        if creation_time is None or isinstance(entry["datasets"], str) or isinstance(entry["scopes"], str):
            raise ValueError(f"key {entry['id']} lacks something")
        id_, name, datasets, scopes, digest = (entry[name] for name in ("id", "name", "datasets", "scopes", "sha256"))
        times = creation_time, expires, revocation_time
        entries[id_] = _Entry(ApiKey(id_, name, datasets, scopes, *times, entry.get("principals")), digest)
    return entries


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InputError(f"a key's name is 1 to {_LONGEST_NAME} printable characters, not {name!r:.80}")


def _datasets(names: Sequence[str]) -> tuple[str, ...]:
    from pointsman.workspace.dataset import check_name

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
    scope_names = {scopes} if isinstance(scopes, str) else set(scopes)
    if not scope_names or not scope_names.issubset(SCOPES):
        raise InputError(f"a key's scopes are of {SCOPES} and at least one, not {scopes!r:.80}")
    return tuple(scope for scope in SCOPES if scope in scope_names)


def _principals(principals: Iterable[str] | None, scopes: Sequence[str]) -> tuple[str, ...] | None:
    if principals is None:
        return None
    if "write" in scopes:
        raise InputError("a key with principals only reads, as what it may not see must not show when it writes")
    return tuple(sorted(check_principals(principals)))


def _check_expiry(expires: datetime | None) -> None:
    if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
        raise InputError(f"a key expires at a datetime with a time zone, not {expires!r:.80}")
