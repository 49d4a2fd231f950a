"""Describes JSON for OpenAPI and MCP in the words of docstrings: requests, answers, and the forms of values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, GetJsonSchemaHandler, create_model

from pointsman.retrieval.plan import routers as router
from pointsman.selector import heuristic_route as heuristic
from pointsman.tools.json_forms import members
from pointsman.values import citations, types

if TYPE_CHECKING:
    from pointsman.retrieval.request import Option

_NAMES = {**vars(citations), **vars(heuristic), **vars(router), **vars(types)}  # what annotations mean
_ATTRIBUTE = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)


class DocumentedModel(BaseModel):
    """A model whose schema describes its members in the words of its docstring, under ``Attributes:``."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema with these descriptions."""
        form = handler(core_schema)
        schema = handler.resolve_ref_schema(form)
        schema["description"] = (inspect.getdoc(cls) or "").partition("\n\nAttributes:\n")[0]
        for base in cls.__mro__[: cls.__mro__.index(DocumentedModel)]:
            for name, text in _of_attributes(base).items():
                schema["properties"][name].setdefault("description", text)
        return form


def option_fields(options: Mapping[str, Option], **instead: Any) -> dict[str, Any]:
    """Return the fields of a model of arguments, for the options of a search.

    Args:
        options: such as `pointsman.retrieval.request.OPTIONS`.
        instead: types of options that differ here, with descriptions of their own.
    """
    return {
        name: (
            instead.get(name) or Annotated[option.kind, Field(description=option.help, **cast("Any", option.bounds))],
            option.default,
        )
        for name, option in options.items()
    }


class Forms:
    """Makes models of forms, one for each class.

    Args:
        base: the base of all models, with their configuration.
    """

    def __init__(self, base: type[BaseModel]) -> None:
        self._base, self._models = base, dict[Any, Any]()

    def put(self, cls: Any, model: Any) -> None:
        """Use this model for a class whose form is not made of its attributes."""
        self._models[cls] = model

    def model(self, cls: Any, name: str | None = None, /, **instead: Any) -> type[BaseModel]:
        """Return the model of a class's form.

        Args:
            cls: a dataclass or a named tuple.
            name: the model's name; that of the class by default.
            instead: types of members that are not those of the attributes.
        """
        hints = get_type_hints(cls, localns=_NAMES)
        fields = {}
        for member in members(cls):
            description = _of_attributes(cls).get(member, "")
            attribute = getattr(cls, member, None)
            if isinstance(attribute, property):
                hints[member] = get_type_hints(attribute.fget, localns=_NAMES)["return"]
                description = (attribute.__doc__ or "").partition("\n")[0]
            kind = instead.get(member) or self._kind(hints[member])
            fields[member] = (Annotated[kind, Field(description=_markdown(description))] if description else kind, ...)
        doc = _markdown((inspect.getdoc(cls) or "").partition("\n\n")[0])
        model = create_model(name or cls.__name__, __base__=self._base, __doc__=doc, **cast("Any", fields))
        self.put(cls, model)
        return model

    def _kind(self, kind: Any) -> Any:
        """Return the type of a member in a model: classes become their models, tuples become lists."""
        if kind in self._models:
            return self._models[kind]
        origin, arguments = get_origin(kind), tuple(map(self._kind, get_args(kind)))
        if origin in {Union, UnionType}:
            return Union[arguments]  # noqa: UP007  (made from what is known only here)
        if origin is tuple:
            return list[arguments[0]]  # type: ignore[valid-type]
        if origin is Mapping:
            return dict[str, arguments[1]]  # type: ignore[valid-type]
        if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
            return self.model(kind)
        return kind


@cache
def _of_attributes(cls: type) -> Mapping[str, str]:
    """Return the descriptions of attributes in a class's docstring, by name."""
    section = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2]
    descriptions = {}
    for names, text in _ATTRIBUTE.findall(section):
        descriptions.update(dict.fromkeys(names.split(", "), " ".join(text.split())))
    return descriptions


def _markdown(text: str) -> str:
    text = re.sub(r"`~?(?:pointsman\.)?([\w.]+)`", r"`\1`", re.sub(r"\bNone\b", "null", text.replace("``", "`")))
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
