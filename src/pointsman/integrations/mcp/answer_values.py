"""Converts the library's values for an answer: bounded, valid as JSON, and without paths of this machine."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final
from urllib.parse import quote

from pointsman.retrieval.run.branches import UNTIL_THEN
from pointsman.service.server.request_log import line_of

log = logging.getLogger(__name__)

TITLE_CHARS: Final = 200
ABOUT_CHARS: Final = 500  # of a dataset's description
REASON_CHARS: Final = 1_000
COMPLAINTS: Final = 5
_NAME_CHARS: Final = 64  # of a name in the metadata
_VALUE_CHARS: Final = 200  # of one value of the metadata
_VALUES: Final = 12  # of the metadata of one document
_URL_CHARS: Final = 2_000


def cut(text: str, length: int) -> str:
    """Cut a text to at most ``length`` characters."""
    text = sound(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def sound(text: str) -> str:
    """Make a text encodable: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def finite(value: float | None) -> float | None:
    """Return a number if JSON can express it, else None."""
    return value if value is not None and math.isfinite(value) else None


def round_score(value: float | None) -> float | None:
    """Return a number to six digits if JSON can express it, else None."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def without_folder(value: str) -> str:
    """Reduce an absolute path to its last part; any other text is returned unchanged.

    >>> without_folder("/srv/private/guide.md"), without_folder("guides/guide.md")
    ('…/guide.md', 'guides/guide.md')
    """
    plain = value.removeprefix("file://")
    for path in (PurePosixPath(plain), PureWindowsPath(plain)):
        if path.is_absolute():
            return f"…/{path.name}"
    return value


def without_root(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without the folder of this machine from which a file was read."""
    root = metadata.get("root")
    private = isinstance(root, str) and without_folder(root) != root
    return {name: value for name, value in metadata.items() if not (private and name == "root")}


def metadata_of(metadata: Mapping[str, Any]) -> dict[str, str | int | float | bool | None]:
    """Return the metadata, bounded; without the title, which is a separate field."""
    public: dict[str, Any] = {}
    for name, value in without_root(metadata).items():
        if len(public) == _VALUES:
            break
        if name == "title" or len(name) > _NAME_CHARS:
            continue
        name = sound(name)  # noqa: PLW2901
        if isinstance(value, bool | int | None):
            public[name] = value if abs(value or 0) < 2**53 else str(value)  # integers exact in every JSON parser
        elif isinstance(value, float):
            public[name] = round_score(value)
        else:
            text = without_folder(value) if isinstance(value, str) else line_of(value)
            public[name] = cut(text, _VALUE_CHARS)
    return public


def url_of(dataset: str, id_: str, metadata: Mapping[str, Any]) -> str:
    """Return a document's web address, if it has one; else a URL made of its dataset and id.

    >>> url_of("manual", "a b", {}), url_of("manual", "x", {"url": "https://example.com/x"})
    ('pointsman://manual/a%20b', 'https://example.com/x')
    """
    for name in ("url", "source"):
        value = metadata.get(name)
        if isinstance(value, str) and value.startswith(("https://", "http://")) and len(value) <= _URL_CHARS:
            return sound(value)
    return f"pointsman://{quote(dataset)}/{quote(sound(id_))}"


def source_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the file that a document is from, by its name when it was indexed."""
    source = metadata.get("source")
    return cut(without_folder(source), TITLE_CHARS) if isinstance(source, str) and source else None


def log_failures(degraded: Sequence[str]) -> list[str]:
    """Which parts of a search did not work. Why goes to the log: causes may name files, addresses and models.

    How many vectors of a dataset are still to come is told in full.
    """
    failures = [note for note in degraded if not note.endswith(UNTIL_THEN)]
    if failures:
        log.warning("a search was incomplete: %s", "; ".join(failures))
    notes = (cut(note.partition(":")[0], 80) if note in failures else cut(note, TITLE_CHARS) for note in degraded)
    return list(dict.fromkeys(notes))[:COMPLAINTS]
