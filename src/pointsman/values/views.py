"""Views: which documents exist for whoever asks, and on which day.

A filter chooses among documents that exist; outside a view nothing exists, so everything that an answer shows is
computed from the documents within it. A document says who may see it under the metadata key `ACCESS`::

    {"_access": {"allow": ["group:finance"], "deny": ["user:eve"]}}

A principal is a user, a group, or `EVERYONE`. A denied principal sees nothing, whatever else is allowed, and a document
that says nothing is seen by nobody. Filters cannot refer to the key, and answers within a view leave it out.

A document says when it is valid, and which document, file or clause it is a new version of, under three keys::

    {"valid_from": "2026-03-01", "valid_to": "2026-12-31", "version_of": "contract.md#Termination"}

Both days belong to the time when it is valid. What it does not say has no limit.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, Self

from pointsman.tools.errors import InputError

ACCESS: Final = "_access"
"""The metadata key under which a document says who may see it."""

ACCESS_RECORD: Final = "access"
"""The kind of the record of a workspace that says that access is on."""

EVERYONE: Final = "everyone"
"""The principal that everyone is who has named any principals, even none."""

VALID_FROM: Final = "valid_from"
"""The metadata key of the first day on which a document is valid."""
VALID_TO: Final = "valid_to"
"""The metadata key of the last day on which a document is valid."""
VERSION_OF: Final = "version_of"
"""The metadata key of what a document is a new version of: a document's id, a file, or a heading of it, after ``#``."""
VALIDITY_KEYS: Final = (VALID_FROM, VALID_TO, VERSION_OF)

_LONGEST: Final = 256
_LONGEST_TARGET: Final = 2000
_MOST: Final = 1000
_FIELDS: Final = frozenset({"allow", "deny"})


def check_principals(principals: object, subject: str = "principals") -> frozenset[str]:
    """Return principals as a set.

    Raises:
        InputError: they are no collection of at most 1000 texts of 1 to 256 printable characters.
    """
    if isinstance(principals, str | Mapping) or not isinstance(principals, Iterable):
        raise InputError(f"{subject} are a list such as ['user:anna', 'group:finance'], not {principals!r:.80}")
    items = list(principals)
    if len(items) > _MOST:
        raise InputError(f"{subject}: {len(items)} principals, at most {_MOST} are possible; use groups")
    for item in items:
        if not isinstance(item, str) or not 0 < len(item) <= _LONGEST or not item.isprintable():
            raise InputError(
                f"{subject}: a principal is a text of 1 to {_LONGEST} printable characters, such as 'user:anna', "
                f"not {item!r:.80}"
            )
    return frozenset(items)


@dataclass(frozen=True, slots=True)
class Permissions:
    """Who may see a document.

    Attributes:
        allow: principals that may see it.
        deny: principals that may not, whatever else is allowed.

    Raises:
        InputError: they are not principals.
    """

    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow", check_principals(self.allow, "allow"))
        object.__setattr__(self, "deny", check_principals(self.deny, "deny"))

    @classmethod
    def of(cls, value: object) -> Permissions:
        """Convert to permissions: a list of allowed principals, or a mapping with ``allow`` and ``deny``.

        >>> Permissions.of(["group:hr"]) == Permissions.of({"allow": ["group:hr"], "deny": []})
        True

        Raises:
            InputError: it is neither.
        """
        if isinstance(value, Permissions):
            return value
        if not isinstance(value, Mapping):
            return cls(check_principals(value, "access"))
        if unknown_names := value.keys() - _FIELDS:
            raise InputError(f"access has allow and deny, not {min(map(str, unknown_names))!r:.80}")
        return cls(check_principals(value.get("allow") or ()), check_principals(value.get("deny") or ()))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read permissions written in one line: principals with commas between them, denied ones after a minus.

        >>> sorted(Permissions.parse("group:hr, user:anna, -user:eve").deny)
        ['user:eve']

        Raises:
            InputError: a principal is empty.
        """
        names = [name.strip() for name in text.split(",")] if text.strip() else []
        denied_names = [name[1:].strip() for name in names if name.startswith("-")]
        return cls(frozenset(name for name in names if not name.startswith("-")), frozenset(denied_names))

    def admit(self, view: View) -> bool:
        """Whether the document exists in a view."""
        principals = view.principals or frozenset()
        return not self.allow.isdisjoint(principals) and self.deny.isdisjoint(view.identity)

    def to_metadata(self) -> dict[str, list[str]]:
        """Return the value that is stored under `ACCESS`."""
        return {"allow": sorted(self.allow), "deny": sorted(self.deny)}


def permissions_of(metadata: Mapping[str, Any]) -> Permissions | None:
    """Return who may see a document with this metadata; None, which is nobody, if it does not say so properly."""
    value = metadata.get(ACCESS)
    if not isinstance(value, Mapping):
        return None
    try:
        return Permissions.of(value)
    except InputError:  # written by a version that did not check it: nobody sees it
        return None


def access_changes(access: object) -> dict[str, dict[str, Any]]:
    """Return new permissions, by the ids of documents, as changes of their metadata; None: nobody.

    Raises:
        InputError: they are not given by ids, or a value names no principals.
    """
    if not isinstance(access, Mapping):
        raise InputError(f"access is given by the ids of documents, not as {access!r:.80}")
    return {
        id_: {ACCESS: None if value is None else Permissions.of(value).to_metadata()} for id_, value in access.items()
    }


def day_of(value: object, subject: str = "a day") -> str:
    """Return a day in the form ``2026-03-01``, in which days compare as texts.

    >>> day_of(date(2026, 3, 1))
    '2026-03-01'

    Raises:
        InputError: it is no such text, and no date.
    """
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    try:
        if isinstance(value, str) and _DAY.fullmatch(value):
            return date.fromisoformat(value).isoformat()
    except ValueError:  # no such day in the calendar
        pass
    raise InputError(f"{subject} is a day such as '2026-03-01', not {value!r:.80}")


_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class Validity:
    """When a document is valid; days are texts such as ``2026-03-01``, and an empty one is no limit.

    Attributes:
        first: the first day.
        last: the last day.
    """

    first: str = ""
    last: str = ""

    def __contains__(self, day: str) -> bool:
        """Whether the document is valid on a day."""
        return self.first <= day and (not self.last or day <= self.last)

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Validity:
        """Return when a document with this metadata is valid; what it does not say properly is no limit."""
        first, last = metadata.get(VALID_FROM), metadata.get(VALID_TO)
        if first is None and last is None:
            return ALWAYS
        return cls(*[day if isinstance(day, str) and _DAY.fullmatch(day) else "" for day in (first, last)])


ALWAYS: Final = Validity()
"""The validity of a document that says nothing of it."""


def check_validity(metadata: Mapping[str, Any]) -> None:
    """Check what metadata says of validity and versions.

    Raises:
        InputError: a day is none, the last is before the first, or a version does not say from when it is valid.
    """
    first, last, target = [metadata.get(key) for key in VALIDITY_KEYS]
    for key, day in ((VALID_FROM, first), (VALID_TO, last)):
        if day is not None:
            day_of(day, f"the metadata {key!r}")
    if first is not None and last is not None and last < first:
        raise InputError(f"the metadata {VALID_TO!r}, {last}, is before {VALID_FROM!r}, {first}")
    if target is not None and (not isinstance(target, str) or not 0 < len(target.strip()) <= _LONGEST_TARGET):
        raise InputError(
            f"the metadata {VERSION_OF!r} is the id of a document, a file, or a heading of it such as "
            f"'contract.md#Termination', of at most {_LONGEST_TARGET} characters, not {target!r:.80}"
        )
    if target is not None and first is None:
        raise InputError(f"a document with {VERSION_OF!r} needs {VALID_FROM!r}: the newest version is in force")


def validity_in(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what metadata says of validity and versions, if it says it properly; otherwise nothing."""
    values = {key: metadata[key] for key in VALIDITY_KEYS if metadata.get(key) is not None}
    try:
        check_validity(values)
    except InputError:  # a field of somebody else's, under one of our names
        return {}
    return values


def heading_name(source: str, heading: str) -> str:
    """Return the name of a clause, under which `VERSION_OF` refers to it, whatever its case and spaces.

    >>> heading_name("contract.md", " 7  Termination ")
    'contract.md#7 termination'
    """
    return f"{source}#{' '.join(heading.split()).casefold()}"


@dataclass(frozen=True, slots=True)
class View:
    """The documents that exist for whoever asks, and on which day.

    Attributes:
        principals: those that count for what is allowed; `EVERYONE` is always among them. None: access is off.
        identity: those that count for what is denied: all that whoever asks has, even where only some are to count.
        day: only documents that are valid on this day, such as ``2026-03-01``, exist; None: all.
    """

    principals: frozenset[str] | None
    identity: frozenset[str]
    day: str | None = None

    @classmethod
    def of(cls, principals: Iterable[str] | View, identity: Iterable[str] = ()) -> View:
        """Return the view of someone with these principals.

        Args:
            principals: those that count; a view is returned as it is.
            identity: further principals that whoever asks has; they only deny.

        Raises:
            InputError: they are not principals.
        """
        if isinstance(principals, View):
            return principals
        names = check_principals(principals) | {EVERYONE}
        return cls(names, names | check_principals(identity) if identity else names)

    @classmethod
    def of_request(cls, principals: Iterable[str]) -> View:
        """Return the view of someone with these principals, which `check_principals` has let pass already."""
        names = frozenset(principals) | {EVERYONE}
        return cls(names, names)

    @classmethod
    def of_day(cls, day: str) -> View:
        """Return the view of a day, where access is off.

        Raises:
            InputError: it is no day.
        """
        return cls(None, frozenset(), day_of(day))

    def admits(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a document with this metadata exists in the view."""
        return self.admits_what(permissions_of(metadata), Validity.of(metadata))

    def admits_what(self, permissions: Permissions | None, validity: Validity) -> bool:
        """`admits` for a document that says this of access and time."""
        if self.day is not None and self.day not in validity:
            return False
        return self.principals is None or (permissions is not None and permissions.admit(self))


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Who may see the files of a folder.

    Attributes:
        pattern: a folder or a pattern of paths, relative to the folder that is indexed: ``hr``, ``hr/*.pdf``, ``*``.
        permissions: who may see the files that match.
    """

    pattern: str
    permissions: Permissions

    @classmethod
    def of(cls, rule: AccessRule | str) -> AccessRule:
        """Return a rule, read from a text if it is one.

        Raises:
            InputError: it is neither.
        """
        if isinstance(rule, AccessRule):
            return rule
        if not isinstance(rule, str):
            raise InputError(f"an access rule is a text such as 'hr=group:hr', or an AccessRule, not {rule!r:.80}")
        return cls.parse(rule)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a rule such as ``hr=group:hr,-user:eve``.

        Without a pattern it is for all files, and its principals are ``everyone`` or have a kind, as in ``group:hr``:
        a bare ``hr`` may as well be a folder.

        Raises:
            InputError: it names nobody, or can be read in two ways.
        """
        pattern, equals, names = text.partition("=")
        if "=" in names:  # read at the wrong one, it would close another folder than was meant
            raise InputError(
                f"the access rule {text!r:.80} has more than one =; write ?, which is any one character, in a path: "
                "'2024?final/*=group:board', or give AccessRule(pattern, permissions) in Python"
            )
        if not equals:
            pattern, names = "*", text
        permissions = Permissions.parse(names)
        principals = permissions.allow | permissions.deny
        if not pattern.strip() or not principals:
            raise InputError(f"an access rule is PATTERN=PRINCIPALS, such as 'hr=group:hr,-user:eve', not {text!r:.80}")
        if not equals and any(name != EVERYONE and ":" not in name for name in principals):
            raise InputError(
                f"the access rule {text!r:.80} may name a folder or who may see all files; "
                f"write {text.strip() + '=group:...'!r:.80} or {'*=' + text.strip()!r:.80}"
            )
        return cls(pattern.strip().strip("/"), permissions)

    def matches(self, path: str) -> bool:
        """Whether a path is in the folder, or matches the pattern."""
        return path.startswith(f"{self.pattern}/") or fnmatch.fnmatchcase(path, self.pattern)


def access_rule_for(path: str, rules: Sequence[AccessRule]) -> AccessRule | None:
    """Return the first rule that matches a path; None, so that nobody may see it, if none does.

    >>> rules = [AccessRule.parse("hr=group:hr"), AccessRule.parse("everyone")]
    >>> access_rule_for("hr/pay/2026.md", rules) == rules[0], access_rule_for("readme.md", rules[:1])
    (True, None)
    """
    return next((rule for rule in rules if rule.matches(path)), None)
