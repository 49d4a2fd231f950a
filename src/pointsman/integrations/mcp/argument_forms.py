"""Reads the forms in which models write an argument: ``3.0``, ``"3"``, ``"false"`` and JSON in a text.

A value is taken in the form that the tool declares if it can mean only one thing there; any other value is returned as
it is, and refused by the schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.strict_json import parse_json

_WHOLE_NUMBER: Final = re.compile(r"([+-]?[0-9]{1,18})(?:\.0*)?", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,18}\.?[0-9]{0,18}|\.[0-9]{1,18})", re.ASCII)
_CONSTANTS: Final = {"true": ("boolean", True), "false": ("boolean", False), "null": ("null", None)}
_LARGEST: Final = 2**53
"""From here on not every whole number is a float, so a float may stand for its neighbour."""

FORM_OF_TYPE: Final = {
    "integer": "a whole number, such as 3",
    "number": "a number, such as 0.5",
    "boolean": "true or false",
    "string": 'a text, such as "rail"',
    "array": 'a list, such as ["a", "b"]',
    "object": 'an object, such as {"lang": "ru"}',
    "null": "null",
}
"""How each JSON type is described to who gave another one."""


def declared_types(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the JSON types that a schema takes, each with its own schema."""
    return {form["type"]: form for form in schema.get("anyOf", [schema]) if "type" in form}


def in_declared_form(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value in the form that the schema declares, if it can mean only one thing there.

    Raises:
        ValueError: a text where an object is taken too begins as one, and is no JSON.

    >>> in_declared_form("3", {"type": "integer"}), in_declared_form(3.5, {"type": "integer"})
    (3, 3.5)
    >>> in_declared_form('["a"]', {"type": "array", "items": {"type": "string"}})
    ['a']
    """
    types = declared_types(schema)
    if isinstance(value, float) and "integer" in types and value.is_integer() and abs(value) < _LARGEST:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and types.keys() <= {"string", "null"}:
        return str(value)
    if isinstance(value, str):
        value = _text_in_declared_form(value, types)
    if isinstance(value, list) and "array" in types:
        return [in_declared_form(item, types["array"].get("items", {})) for item in value]
    return value


def _text_in_declared_form(text: str, types: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return what a text stands for; where a text is taken too, only an object is not a text."""
    bare = text.strip()
    opening = {"{": "object", "[": "array"}.get(bare[:1])
    if opening in types and not (opening == "array" and "string" in types):
        try:
            return parse_json(bare.encode())
        except (HttpProblem, UnicodeEncodeError) as error:
            if "string" in types:  # an object that was cut off, never a text in another syntax
                raise ValueError(f"takes {FORM_OF_TYPE['object']}, which {text!r:.80} is not: {error}") from error
            return text
    if "string" not in types or ("boolean" in types and bare.lower() in _CONSTANTS):  # a text that names one of a few
        kind, constant = _CONSTANTS.get(bare.lower(), ("", None))
        if kind in types:
            meaning: Any = constant
        elif "integer" in types and (digits := _WHOLE_NUMBER.fullmatch(bare)):
            meaning = int(digits[1])
        elif "number" in types and _NUMBER.fullmatch(bare):
            meaning = float(bare)
        elif "array" in types and bare and not set("[]{},;\n") & set(bare):
            meaning = [text]
        else:
            return text
        return meaning
    return text
