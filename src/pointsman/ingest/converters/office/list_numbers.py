"""The numbers that programs show before the paragraphs of a list, which no file holds as words."""

from __future__ import annotations

from collections import defaultdict

from pointsman.ingest.converters.paragraphs import list_number

_MOST_NUMBERS = 100_000


class ListNumbers:
    """Counts the numbers of lists.

    Attributes:
        levels: By the name of a kind of list, then by level: its first number, form and text, such as ``%1.%2``.
    """

    def __init__(self) -> None:
        self.levels: dict[str, dict[int, tuple[int, str, str]]] = {}
        self._counts: dict[str, dict[int, int]] = defaultdict(dict)

    def start(self, identity: str, level: int, number: int) -> None:
        """Let the next number of a list be this one."""
        self._counts[identity][level] = number - 1

    def next(self, identity: str, level: int) -> str:
        """Return the next number of a list, such as ``2.1. ``; empty for bullets.

        Args:
            identity: The name of the kind of list; lists that are counted apart have more after a ``/``.
            level: The level in the list, from 0.
        """
        levels = self.levels.get(identity.partition("/")[0], {})
        if level not in levels:
            return ""
        counts = self._counts[identity]
        start, form, label = levels[level]
        counts[level] = min(counts.get(level, start - 1) + 1, _MOST_NUMBERS)
        for deeper in [number for number in counts if number > level]:
            del counts[deeper]
        if form in ("bullet", "none"):
            return ""
        for number, (begin, number_form, _) in levels.items():
            label = label.replace(f"%{number + 1}", list_number(counts.get(number, begin), number_form))
        return f"{label} " if label else ""
