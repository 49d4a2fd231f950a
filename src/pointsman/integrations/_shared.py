"""What the adapters for other frameworks share: hits from whatever can search, and documents without an id."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from pointsman._twins import in_thread
from pointsman.errors import InputError, PointsmanError
from pointsman.types import Query

if TYPE_CHECKING:
    from pointsman.filters import Filter
    from pointsman.types import Hit


def check_source(source: object) -> None:
    """Refuse what cannot be searched.

    Raises:
        InputError: it has neither ``search`` nor ``retrieve``.
    """
    if not callable(getattr(source, "search", None)) and not callable(getattr(source, "retrieve", None)):
        raise InputError(
            f"a source is a workspace, a dataset, a client or a retriever of Pointsman, not {type(source).__name__}"
        )


def hits_of(
    source: Any, text: str, k: int, filters: Filter | None = None, options: dict[str, Any] | None = None
) -> Sequence[Hit]:
    """The hits of anything of ours that can search.

    Args:
        source: has ``search`` (`Workspace`, `Dataset`, `Client`, …) or ``retrieve`` (any retriever).
        text: what is asked.
        k: how many hits.
        filters: which documents count.
        options: of the search; a retriever takes none.

    Raises:
        InputError: an option cannot be used.
    """
    if callable(getattr(source, "search", None)):
        hits: Sequence[Hit] = source.search(Query(text, filters), k, **(options or {})).hits
        return hits
    _no_options(source, options)
    found: Sequence[Hit] = source.retrieve(Query(text, filters), k)
    return found


async def ahits_of(
    source: Any, text: str, k: int, filters: Filter | None = None, options: dict[str, Any] | None = None
) -> Sequence[Hit]:
    """The same, awaited; a source without awaited methods runs in a worker thread."""
    if callable(getattr(source, "asearch", None)):
        hits: Sequence[Hit] = (await source.asearch(Query(text, filters), k, **(options or {}))).hits
        return hits
    if callable(getattr(source, "search", None)) or not callable(getattr(source, "aretrieve", None)):
        return await in_thread(hits_of, source, text, k, filters, options)
    _no_options(source, options)
    found: Sequence[Hit] = await source.aretrieve(Query(text, filters), k)
    return found


def _no_options(source: object, options: dict[str, Any] | None) -> None:
    if options:
        raise InputError(f"{type(source).__name__} is a retriever, and takes no {', '.join(sorted(options))}")


def id_for(text: str) -> str:
    """An id for a document that has none: the same text always gets the same one.

    >>> id_for("a red signal")
    '9a6ca5212d2abc4b51fce0c06f2acf03'
    """
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def failed(source: object, error: Exception) -> PointsmanError:
    """An error of another framework as one of ours."""
    return PointsmanError(f"{type(source).__name__} failed: {type(error).__name__}: {error}")
