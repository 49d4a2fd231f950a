"""How Pointsman's components for Haystack are saved with a pipeline."""

from enum import Enum
from inspect import signature
from typing import Any, Self

from haystack import default_from_dict, default_to_dict


class SavedComponent:
    """A component whose settings are the arguments of its constructor, each an attribute of this name."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings from which `from_dict` rebuilds it."""
        settings = {name: getattr(self, name) for name in signature(self.__init__).parameters}  # type: ignore[misc]
        values = {name: value.value if isinstance(value, Enum) else value for name, value in settings.items()}
        return default_to_dict(self, **values)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the component from the output of `to_dict`."""
        return default_from_dict(cls, data)
