"""The base of all retrievers."""

from __future__ import annotations

from functools import wraps
from inspect import isfunction, signature
from typing import TYPE_CHECKING, Any

from pointsman.tools.sync_and_async import Twins, in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.values.types import Hit, Query


class BaseRetriever(Twins, needs=("retrieve", "aretrieve")):
    """Finds documents for a query. Implement ``retrieve`` or ``aretrieve``; this class derives the other.

    Yours takes ``(query, top_k)``. One that takes only the query is called with it alone, and cut to ``top_k``.

    Raises:
        TypeError: when a class is made whose method cannot be called with a query.

    Attributes:
        lists: whether it searches words, and whether vectors; None if that is not known.
        lacking: if it searches one of them only: why, and what to do about it.
    """

    lists: tuple[bool, bool] | None = None
    lacking: str = ""

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the methods of the class take ``top_k``."""
        super().__init_subclass__(**options)
        for name in ("retrieve", "aretrieve"):
            if isfunction(method := cls.__dict__.get(name)):
                setattr(cls, name, _taking_top_k(method))

    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Return at most ``top_k`` hits, best first."""
        return wait_for(self.aretrieve, query, top_k)

    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        """Async version of `retrieve`; a synchronous ``retrieve`` runs in a worker thread."""
        return await in_thread(self.retrieve, query, top_k)


def _taking_top_k(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that takes ``top_k`` second; without it, all hits are returned.

    Raises:
        TypeError: it cannot be called with a query.
    """
    if _can_call(method, None, "", 1):
        return method
    by_keyword = _can_call(method, None, "", top_k=1)
    if not by_keyword and not _can_call(method, None, ""):
        raise TypeError(
            f"{method.__qualname__}{signature(method)} cannot be called with a query; "
            f"write {method.__name__}(self, query, top_k=10)"
        )

    def arguments(top_k: int | None) -> dict[str, Any]:
        return {"top_k": top_k} if by_keyword and top_k is not None else {}

    if method.__name__ == "aretrieve":

        @wraps(method)
        async def aretrieve(self: Any, query: str | Query, top_k: int | None = None, **options: Any) -> list[Hit]:
            hits: list[Hit] = await method(self, query, **arguments(top_k), **options)
            return hits[:top_k]

        return _as_called(aretrieve)

    @wraps(method)
    def retrieve(self: Any, query: str | Query, top_k: int | None = None, **options: Any) -> list[Hit]:
        hits: list[Hit] = method(self, query, **arguments(top_k), **options)
        return hits[:top_k]

    return _as_called(retrieve)


def _as_called(method: Callable[..., Any]) -> Callable[..., Any]:
    del method.__wrapped__  # type: ignore[attr-defined]  # signatures are those of what is called
    return method


def _can_call(method: Callable[..., Any], *positional: Any, **keywords: Any) -> bool:
    try:
        signature(method).bind(*positional, **keywords)
    except TypeError:
        return False
    return True
