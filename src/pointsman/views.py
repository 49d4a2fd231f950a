"""Views: which documents exist for whoever asks.

A filter chooses among documents that exist; outside a view nothing exists, so everything that an answer shows is
computed from the documents within it. A document says who may see it under the metadata key `ACCESS`::

    {"_access": {"allow": ["group:finance"], "deny": ["user:eve"]}}

A principal is a user, a group, or `EVERYONE`. A denied principal sees nothing, whatever else is allowed, and a document
that says nothing is seen by nobody. Filters cannot refer to the key, and answers within a view leave it out.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pointsman.errors import InputError

ACCESS: Final = "_access"
"""The metadata key under which a document says who may see it."""

ACCESS_RECORD: Final = "access"
"""The kind of the record of a workspace that says that access is on."""

EVERYONE: Final = "everyone"
"""The principal that everyone is who has named any principals, even none."""

_LONGEST: Final = 256
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
        return not self.allow.isdisjoint(view.principals) and self.deny.isdisjoint(view.identity)

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


@dataclass(frozen=True, slots=True)
class View:
    """The documents that exist for whoever asks.

    Attributes:
        principals: those that count for what is allowed; `EVERYONE` is always among them.
        identity: those that count for what is denied: all that whoever asks has, even where only some are to count.
    """

    principals: frozenset[str]
    identity: frozenset[str]

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
        return cls(names, names | check_principals(identity))

    def admits(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a document with this metadata exists in the view."""
        permissions = permissions_of(metadata)
        return permissions is not None and permissions.admit(self)


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
        """Read a rule such as ``hr=group:hr,-user:eve``; without a pattern it is for all files.

        Raises:
            InputError: it names nobody.
        """
        pattern, equals, names = text.partition("=")
        if not equals:
            pattern, names = "*", text
        permissions = Permissions.parse(names)
        if not pattern.strip() or not (permissions.allow or permissions.deny):
            raise InputError(f"an access rule is PATTERN=PRINCIPALS, such as 'hr=group:hr,-user:eve', not {text!r:.80}")
        return cls(pattern.strip().strip("/"), permissions)

    def matches(self, path: str) -> bool:
        """Whether a path is in the folder, or matches the pattern."""
        return path.startswith(f"{self.pattern}/") or fnmatch.fnmatchcase(path, self.pattern)


def permissions_for(path: str, rules: Sequence[AccessRule]) -> Permissions:
    """Return what the first matching rule says; nobody, if none matches.

    >>> rules = [AccessRule.parse("hr=group:hr"), AccessRule.parse("everyone")]
    >>> permissions_for("hr/pay/2026.md", rules).allow, permissions_for("readme.md", rules[:1]).allow
    (frozenset({'group:hr'}), frozenset())
    """
    return next((rule.permissions for rule in rules if rule.matches(path)), Permissions())
