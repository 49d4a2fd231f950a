"""Names for what can be chosen by name, ours and other packages' (I2).

A package adds to a registry by an entry point of the group ``pointsman.plugins``, called *kind*.*name*; no code of it
runs before that name is asked for::

    [project.entry-points."pointsman.plugins"]
    "strategy.mine" = "my_package:MyStrategy"
"""

from __future__ import annotations

import logging
import threading
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pointsman.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

T = TypeVar("T")

GROUP: Final = "pointsman.plugins"


class Registry(Generic[T]):
    """Makes things of one kind by their names.

    What is registered in code goes before a plugin of the same name. A plugin that cannot be loaded is named in
    `problems` and in the log, and hurts nobody who does not ask for it.

    Args:
        kind: of what, such as ``"strategy"``; plugins are called by it.
        group: the group of entry points.
        builtin: a module that registers ours when it is loaded; loaded when somebody asks for a name.

    Example:
        >>> shapes = Registry[str]("shape")
        >>> shapes.register("square", lambda size: "■" * size)
        >>> shapes.create("square", 3)
        '■■■'
    """

    def __init__(self, kind: str, group: str = GROUP, builtin: str | None = None) -> None:
        self.kind, self._group, self._builtin = kind, group, builtin
        self._factories: dict[str, Callable[..., T]] = {}
        self._plugins: dict[str, EntryPoint] | None = None
        self._problems: dict[str, str] = {}
        self._lock = threading.RLock()

    def register(self, name: str, factory: Callable[..., T], *, replace: bool = False) -> None:
        """Put a factory, such as a class, under a name.

        Raises:
            InputError: the name is taken and ``replace`` is False, or one of the two cannot be used.
        """
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"a {self.kind} is registered under a name, not {name!r:.80}")
        if not callable(factory):
            raise InputError(f"{self.kind} {name!r} needs a callable that creates it, not {factory!r:.80}")
        with self._lock:
            if name in self._factories and not replace:
                raise InputError(f"a {self.kind} named {name!r} is registered already; pass replace=True to replace it")
            self._factories[name] = factory

    def names(self) -> tuple[str, ...]:
        """All names, sorted; plugins are listed without being loaded, so one that is broken is among them."""
        self._load_builtin()
        with self._lock:
            return tuple(sorted({*self._factories, *self._all_plugins()}))

    def get(self, name: str) -> Callable[..., T]:
        """The factory of this name.

        Raises:
            UnknownNameError: there is none.
            InputError: it is a plugin that cannot be loaded.
        """
        self._load_builtin()
        with self._lock:
            if name in self._factories:
                return self._factories[name]
            plugin = self._all_plugins().get(name)
        if plugin is None:
            raise UnknownNameError(self.kind, name, self.names())
        return self._loaded(name, plugin)

    def create(self, name: str, *args: Any, **options: Any) -> T:
        """What the factory of this name makes of these arguments; its own errors pass through.

        Raises:
            UnknownNameError: there is none of this name.
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
        if self._builtin is not None:
            module, self._builtin = self._builtin, None
            import_module(module)

    def _all_plugins(self) -> dict[str, EntryPoint]:
        """The plugins of this kind, looked for once; of two with one name, the one of the first package by name."""
        if self._plugins is None:
            self._plugins = {}
            prefix = f"{self.kind}."
            plugins = [plugin for plugin in entry_points(group=self._group) if plugin.name.startswith(prefix)]
            for plugin in sorted(plugins, key=lambda plugin: (_package(plugin), plugin.value)):
                name = plugin.name.removeprefix(prefix)
                first = self._plugins.setdefault(name, plugin)
                if first.value != plugin.value:
                    self._note(name, f"{_package(first)} and {_package(plugin)} both provide it; the former is used")
        return self._plugins

    def _loaded(self, name: str, plugin: EntryPoint) -> Callable[..., T]:
        try:
            factory = plugin.load()
        except Exception as error:  # translated: a stranger's module may raise anything
            cause = f"{plugin.value} of {_package(plugin)} cannot be loaded: {type(error).__name__}: {error}"
            self._note(name, cause)
            raise InputError(f"{self.kind} {name!r}: {cause}; repair or uninstall that package") from error
        if not callable(factory):
            cause = f"{plugin.value} of {_package(plugin)} is not callable"
            self._note(name, cause)
            raise InputError(f"{self.kind} {name!r}: {cause}; repair or uninstall that package")
        return factory  # type: ignore[no-any-return]  # what it makes is checked by whoever uses it

    def _note(self, name: str, cause: str) -> None:
        with self._lock:
            if self._problems.get(name) != cause:
                self._problems[name] = cause
                log.warning("plugin %s.%s: %s", self.kind, name, cause)


def _package(plugin: EntryPoint) -> str:
    return plugin.dist.name if plugin.dist is not None else "an unknown package"


STRATEGIES: Final[Registry[Any]] = Registry("strategy", builtin="pointsman.strategies")
"""Retrieval strategies: ``factory(*sources, llm=None, **options)`` makes one; a ``needs_llm`` of the factory tells
whether it can do without."""

STORES: Final[Registry[Any]] = Registry("store", builtin="pointsman.store.builtin")
"""Where workspaces live: ``factory(url, **options)`` makes the `pointsman.store.backend.Backend` of a URL; the name is
its scheme."""

COLLECTIONS: Final[Registry[Any]] = Registry("collection", builtin="pointsman.store.builtin")
"""What can be attached to a workspace: ``factory(attachment)`` makes a `pointsman.store.attachment.AttachedStore` of a
`pointsman.store.attachment.Attachment`; the name is the scheme of its URL."""
