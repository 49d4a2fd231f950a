"""The JSON forms of values, derived from their classes, so that every interface writes and reads the same one.

The members of a form are attributes of the value, under the same names: the fields of a dataclass or a named tuple, or
the attributes that the class lists in ``FORM``. `pointsman.service.server.protocol.json_form_schemas` describes the
same forms as schemas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_NUMBERS = (int, float)


@lru_cache(256)
def members(cls: Any) -> tuple[str, ...]:
    """Return the names of the members of a class's form, in order."""
    return tuple(getattr(cls, "FORM", ()) or _fields(cls))


def form_of(value: Any, **instead: Any) -> dict[str, Any]:
    """Return the form of a value, as plain JSON values.

    Args:
        value: an instance of a dataclass or of a named tuple.
        instead: values of members that are not those of the attributes.
    """
    kind: Any = type(value)
    names = members(kind)
    return {name: instead[name] if name in instead else plain_form(getattr(value, name)) for name in names}


def plain_form(value: Any) -> Any:
    """Return a value as plain JSON values; one with ``to_dict`` decides itself."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if callable(to_dict := getattr(value, "to_dict", None)):
        return to_dict()
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return form_of(value)
    if isinstance(value, Mapping):
        return {key: plain_form(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain_form(item) for item in value]
    return value.item() if hasattr(value, "dtype") else value  # a scalar of numpy is not one of JSON


def of_form(cls: type[T], form: Any) -> T:
    """Build an instance of a dataclass or a named tuple from the output of `form_of`; other members are ignored.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: the form is invalid.
    """
    form_class: Any = cls
    hints = _hints(form_class)
    return cls(**{name: _value(hints[name], form[name], name) for name in _fields(form_class)})


def _value(kind: Any, value: Any, name: str) -> Any:
    """Return the value that a member has, checked."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        if value is None and type(None) in arguments:
            return None
        return _value(next(argument for argument in arguments if argument is not type(None)), value, name)
    if origin is tuple:
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_value(kind, item, name) for kind, item in zip(kinds, value, strict=True))
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        return value if isinstance(value, kind) else of_form(kind, value)
    valid = _NUMBERS if kind is float else kind if kind in {str, int, bool} else object
    if not isinstance(value, valid) or (isinstance(value, bool) and valid in {int, _NUMBERS}):
        raise TypeError(f"{name} is {value!r:.80}")
    if origin is Mapping and not isinstance(value, Mapping):
        raise TypeError(f"{name} is {value!r:.80}")
    return dict(value) if isinstance(value, Mapping) else value


@lru_cache(256)
def _fields(cls: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return tuple(cls._fields)  # of a named tuple


@lru_cache(256)
def _hints(cls: Any) -> Mapping[str, Any]:
    return get_type_hints(cls)
