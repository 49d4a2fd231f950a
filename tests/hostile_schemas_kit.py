"""JSON schemas and arguments that keep a validator busy, or that no author of one has thought of."""

from __future__ import annotations

from random import Random
from typing import Any

Pair = tuple[Any, Any]


def doubling_references(depth: int) -> Pair:
    """Return a schema whose references are evaluated 2 to the power of ``depth`` times."""
    schemas: dict[str, Any] = {
        f"s{level}": {"allOf": [{"$ref": f"#/$defs/s{level + 1}"}] * 2} for level in range(depth)
    }
    return {"$ref": "#/$defs/s0", "$defs": {**schemas, f"s{depth}": {"type": "object"}}}, {}


def unique_objects(count: int) -> Pair:
    """Return a list of objects that are compared pair by pair."""
    return {"properties": {"x": {"uniqueItems": True}}}, {"x": [{"n": number} for number in range(count)]}


def required_objects(count: int) -> Pair:
    """Return an invalid schema whose check compares objects pair by pair."""
    return {"required": [{"n": number} for number in range(count)]}, {}


def nested_choices(depth: int) -> Pair:
    """Return choices within choices over nested lists, of which none fits."""
    value: Any = "no integer"
    for _ in range(depth):
        value = [value]
    schemas: dict[str, Any] = {
        f"s{level}": {"anyOf": [{"items": {"$ref": f"#/$defs/s{level + 1}"}}] * 2} for level in range(depth)
    }
    schemas[f"s{depth}"] = {"type": "integer"}
    return {"properties": {"x": {"$ref": "#/$defs/s0"}}, "$defs": schemas}, {"x": value}


def deep(depth: int) -> Pair:
    """Return a deep schema over a deep value."""
    schema: Any = {}
    value: Any = 0
    for _ in range(depth):
        schema, value = {"properties": {"x": schema}}, {"x": value}
    return schema, value


def recursive(depth: int) -> Pair:
    """Return a schema that refers to itself, over a nested value."""
    value: Any = 0
    for _ in range(depth):
        value = {"x": value, "y": value}  # shared here, but not as JSON
    return {"properties": {"x": {"$ref": "#"}, "y": {"$ref": "#"}}, "type": "object"}, value


ODD: list[Pair] = [
    ({"$ref": "#"}, {}),
    ({"$dynamicRef": "#x"}, {}),
    ({"$ref": "http://127.0.0.1:9/x"}, {}),
    ({"$id": "http://[", "$ref": "x"}, {}),
    ({"properties": {"x": {"multipleOf": 1e-308}}}, {"x": 10**300}),
    ({"properties": {"x": {"multipleOf": 0.1}}}, {"x": 1e308}),
    ({"properties": {"x": {"multipleOf": 5e-324}}}, {"x": 10**400}),
    ({"properties": {"x": {"maximum": 1.5}}}, {"x": 10**4000}),
    ({"properties": {"x": {"pattern": "(a+)+$"}}}, {"x": "a" * 100_000 + "!"}),
    ({"properties": {"x": {"pattern": "(" * 5000}}}, {"x": "a"}),
    ({"patternProperties": {"(a+)+$": {}}}, {"a" * 40 + "!": 1}),
    ({"unevaluatedProperties": False, "allOf": [{"$ref": "#"}]}, {"x": 1}),
    ({"properties": {"x": {"enum": [[]] * 5000}}}, {"x": [[[]]]}),
    ({"properties": {"x": {"const": "\ud800"}}}, {"x": "\ud800"}),
    ({"properties": {"x": True}, "required": ["y" * 10_000]}, {}),
    ({"not": {}}, {str(number): number for number in range(5000)}),
    ({"type": ["object"] * 5000}, {}),
    ({"dependentSchemas": {"x": {"$ref": "#"}}}, {"x": 1}),
    (True, {}),
    ([], {}),
    ("object", {}),
    (7, {}),
]


_TYPES: tuple[Any, ...] = (
    "object",
    "array",
    "string",
    "number",
    "integer",
    "null",
    "boolean",
    "nonsense",
    7,
    None,
    [],
    ["object", {}],
)
_VALUES: list[Any] = [
    *(None, True, 0, -1, 1e308, 10**400, float("nan"), float("inf"), "", "x", "(a+)+$", "\ud800", "\x00", "\u202e"),
    *([], {}, [[]], {"": {}}, [{}] * 50, {"$ref": "#"}, {"x": None}, "#", "http://127.0.0.1:9/", "x" * 2_000),
]
_KEYWORDS = (
    *("type", "enum", "const", "pattern", "format", "minLength", "maxLength", "multipleOf", "maximum", "minimum"),
    *("items", "prefixItems", "contains", "minContains", "maxContains", "uniqueItems", "maxItems", "required"),
    *("properties", "patternProperties", "additionalProperties", "propertyNames", "minProperties", "dependentRequired"),
    *("dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "allOf", "anyOf", "oneOf", "not", "if", "then"),
    *("else", "$ref", "$dynamicRef", "$anchor", "$dynamicAnchor", "$id", "$schema", "$defs", "$vocabulary", "default"),
)


def dynamic_references(depth: int) -> Pair:
    """Return a schema whose dynamic references lead back to itself, over a nested list."""
    value: Any = []
    for _ in range(depth):
        value = [value, value]
    node = {"$dynamicAnchor": "node", "items": {"anyOf": [{"$dynamicRef": "#node"}] * 2}}
    return {"properties": {"x": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}, {"x": value}


def long_enumeration(count: int) -> Pair:
    """Return a choice among so many objects, of which none is the value."""
    return {"properties": {"x": {"enum": [{"n": [number]} for number in range(count)]}}}, {"x": {"n": [-1]}}


def conditions(depth: int) -> Pair:
    """Return a condition whose branches are conditions."""
    schema: Any = {"type": "integer"}
    for _ in range(depth):
        schema = {"if": schema, "then": schema, "else": schema}
    return {"properties": {"x": schema}}, {"x": "y"}


def wrong_types(random: Random) -> Pair:
    """Return random keywords with values of random, mostly wrong types."""

    def schema(depth: int) -> Any:
        if depth == 0 or random.random() < 0.2:
            return random.choice((random.choice(_VALUES), {"type": random.choice(_TYPES)}))
        inner = {
            random.choice(_KEYWORDS): random.choice(
                (schema(depth - 1), [schema(depth - 1), schema(depth - 1)], {"x": schema(depth - 1)})
            )
            for _ in range(random.randrange(1, 4))
        }
        return {"type": random.choice(_TYPES), **inner} if random.random() < 0.3 else inner

    whole = schema(3)
    chosen = {"x": random.choice(_VALUES), "y": random.choice(_VALUES)}
    return (whole if isinstance(whole, dict) and random.random() < 0.9 else {"properties": {"x": whole}}), chosen


def hostile(random: Random, *, exhausting: float) -> Pair:
    """Return a random one; with this probability one that no validator gets through in seconds."""
    if random.random() < exhausting:
        return random.choice(
            [
                doubling_references(random.randrange(20, 60)),
                unique_objects(random.randrange(4000, 6000)),
                nested_choices(random.randrange(22, 60)),
            ]
        )
    return random.choice(
        [
            random.choice(ODD),
            doubling_references(random.randrange(8)),
            unique_objects(random.randrange(200)),
            required_objects(random.randrange(100)),
            nested_choices(random.randrange(7)),
            deep(random.randrange(400)),
            recursive(random.randrange(9)),
            dynamic_references(random.randrange(7)),
            long_enumeration(random.randrange(2000)),
            conditions(random.randrange(8)),
            *[wrong_types(random) for _ in range(4)],
        ]
    )
