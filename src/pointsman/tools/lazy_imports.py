"""Package names that are loaded on first use, so that importing the package stays cheap.

A package declares them once, in its stub (``__init__.pyi``), as ``from package.module import name as name``: type
checkers and editors read them there, and so does `lazily` (https://scientific-python.org/specs/spec-0001/). A module of
the package itself stands there as ``from package import module as module``.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

_IMPORT: Final = re.compile(r"^from (\S+) import (\([^)]*\)|.*)", re.MULTILINE)
_NAME: Final = re.compile(r"(\w+) as (\w+)")


def lazily(
    package: str, removed: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package with a stub.

    Args:
        package: the package's ``__name__``.
        removed: names that it had once, each with what to do instead.
    """
    namespace = vars(sys.modules[package])
    stub = Path(namespace["__file__"]).with_suffix(".pyi").read_text("utf-8")
    homes = {
        name: (module, attribute) for module, names in _IMPORT.findall(stub) for attribute, name in _NAME.findall(names)
    }

    def load(name: str) -> Any:
        if name in removed:
            raise AttributeError(f"module {package!r} no longer has {name!r}; {removed[name]}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = homes[name]
        if module == package:
            return import_module(f"{package}.{attribute}")
        namespace[name] = value = getattr(import_module(module, package), attribute)
        return value

    public = sorted(name for name in homes if not hasattr(builtins, name))  # "import *" replaces nothing built in
    return load, lambda: sorted({*namespace, *homes}), public
