"""Names of a package that are loaded when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: by public name, the module that has it, such as ``pointsman.types`` or, within the package, ``.base``;
            with another name for it there after a colon.
    """
    here = vars(sys.modules[package])

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, there = homes[name].partition(":")
        here[name] = value = getattr(import_module(module, package), there or name)
        return value

    return load, lambda: sorted({*here, *here["__all__"]})
