"""Package names that are loaded on first use, so that importing the package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: the package's ``__name__``.
        homes: public name -> module that defines it, such as ``pointsman.types`` or, within the package, ``.base``. If
            the name differs there, it follows after a colon.
    """
    namespace = vars(sys.modules[package])

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        namespace[name] = value = getattr(import_module(module, package), attribute or name)
        return value

    return load, lambda: sorted({*namespace, *namespace["__all__"]})
