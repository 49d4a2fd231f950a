"""Registries of components that are chosen by name, ours and those of other packages.

A package adds to a registry with an entry point *kind*.*name* in the group ``pointsman.plugins``; none of its code runs
before that name is requested::

    [project.entry-points."pointsman.plugins"]
    "strategy.mine" = "my_package:MyStrategy"
"""

from __future__ import annotations

import logging
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pointsman.tools.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

T = TypeVar("T")

GROUP: Final = "pointsman.plugins"


class Registry(Generic[T]):
    """Creates objects of one kind by name.

    A name registered in code takes precedence over a plugin. A plugin that cannot be loaded is reported in `problems`
    and in the log, and affects only those who request it.

    Attributes:
        version: grows with every registration, so that whatever was made from a factory can be dated.

    Args:
        kind: the kind of object, such as ``"strategy"``; it prefixes the names of plugins.
        group: the group of entry points.
        builtin: a module that registers ours when loaded; it is loaded when a name is requested.

    Example:
        >>> shapes = Registry[str]("shape")
        >>> shapes.register("square", lambda size: "■" * size)
        >>> shapes.create("square", 3)
        '■■■'
    """

    def __init__(self, kind: str, group: str = GROUP, builtin: str | None = None) -> None:
        self.kind, self._group, self._builtin = kind, group, builtin
        self.version = 0
        self._factories: dict[str, Callable[..., T]] = {}
        self._plugins: dict[str, EntryPoint] | None = None
        self._problems: dict[str, str] = {}
        self._lock = threading.RLock()

    def register(self, name: str, factory: Callable[..., T], *, replace: bool = False) -> None:
        """Register a factory, such as a class, under a name.

        Raises:
            InputError: the name is taken and ``replace`` is False, or the name or the factory is invalid.
        """
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"a {self.kind} is registered under a name, not {name!r:.80}")
        if not callable(factory):
            raise InputError(f"{self.kind} {name!r} needs a callable that creates it, not {factory!r:.80}")
        with self._lock:
            if name in self._factories and not replace:
                raise InputError(f"a {self.kind} named {name!r} is registered already; pass replace=True to replace it")
            self._factories[name] = factory
            self.version += 1

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted; plugins are listed without being loaded, so broken ones are included."""
        self._load_builtin()
        with self._lock:
            return tuple(sorted({*self._factories, *self._all_plugins()}))

    def get(self, name: str) -> Callable[..., T]:
        """Return the factory of this name.

        Raises:
            UnknownNameError: the name is unknown.
            InputError: it is a plugin that cannot be loaded.
        """
        self._load_builtin()
        with self._lock:
            if name in self._factories:
                return self._factories[name]
            plugin = self._all_plugins().get(name)
        if plugin is None:
            raise UnknownNameError(self.kind, name, self.names())
        return self._load(name, plugin)

    def create(self, name: str, *args: Any, **options: Any) -> T:
        """Call the factory of this name with these arguments; its own errors pass through.

        Raises:
            UnknownNameError: the name is unknown.
            InputError: it is a plugin that cannot be loaded.
        """
        return self.get(name)(*args, **options)

    @property
    def problems(self) -> Mapping[str, str]:
        """Problems with plugins, by name, for those that were requested."""
        with self._lock:
            self._all_plugins()
            return dict(self._problems)

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def _load_builtin(self) -> None:
        if (module := self._builtin) is not None:
            import_module(module)  # waits for another thread that is loading it
            self._builtin = None

    def _all_plugins(self) -> dict[str, EntryPoint]:
        """Return the plugins of this kind, found once; of two with the same name, that of the first package by name."""
        if self._plugins is None:
            from importlib.metadata import entry_points  # slow to import, not needed to open a workspace

            self._plugins = {}
            prefix = f"{self.kind}."
            plugins = [plugin for plugin in entry_points(group=self._group) if plugin.name.startswith(prefix)]
            for plugin in sorted(plugins, key=lambda plugin: (_package(plugin), plugin.value)):
                name = plugin.name.removeprefix(prefix)
                first = self._plugins.setdefault(name, plugin)
                if first.value != plugin.value:
                    self._note(name, f"{_package(first)} and {_package(plugin)} both provide it; the former is used")
        return self._plugins

    def _load(self, name: str, plugin: EntryPoint) -> Callable[..., T]:
        try:
            factory = plugin.load()
        except Exception as error:  # translated: a third-party module may raise anything
            cause = f"{plugin.value} of {_package(plugin)} cannot be loaded: {type(error).__name__}: {error}"
            self._note(name, cause)
            raise InputError(f"{self.kind} {name!r}: {cause}; repair or uninstall that package") from error
        if not callable(factory):
            cause = f"{plugin.value} of {_package(plugin)} is not callable"
            self._note(name, cause)
            raise InputError(f"{self.kind} {name!r}: {cause}; repair or uninstall that package")
        return factory  # type: ignore[no-any-return]  # callers check what it returns

    def _note(self, name: str, cause: str) -> None:
        with self._lock:
            if self._problems.get(name) != cause:
                self._problems[name] = cause
                log.warning("plugin %s.%s: %s", self.kind, name, cause)


def _package(plugin: EntryPoint) -> str:
    return plugin.dist.name if plugin.dist is not None else "an unknown package"


STRATEGIES: Final[Registry[Any]] = Registry("strategy", builtin="pointsman.retrieval.strategies")
"""Retrieval strategies: ``factory(*sources, llm=None, **options)`` creates one; the factory's ``needs_llm`` says
whether a language model is required."""

STRATEGY_ALIASES: Final = {"dense": "vector"}
"""Other names of built-in strategies: vector search is called dense by `pointsman.router_select`."""

STORES: Final[Registry[Any]] = Registry("store", builtin="pointsman.store.builtin_stores")
"""Backends of workspaces: ``factory(url, **options)`` creates the `pointsman.store.backend.Backend` for a URL; the name
is the URL's scheme."""

COLLECTIONS: Final[Registry[Any]] = Registry("collection", builtin="pointsman.store.builtin_stores")
"""Collections that can be attached to a workspace: ``factory(attachment)`` creates a
an `AttachedStore` for an `Attachment` (`pointsman.store.external.attachment`); the name is the scheme of its
URL."""
