"""Terms of metadata in a keyword index, which narrow a search by a filter where the words alone would read too much.

Each value of a document's metadata is a term, hashed to one of so many that their dictionary stays small. Another value
may have the same one, so what has the terms of a filter may match it, and everything else does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import tantivy
import xxhash

from pointsman.values.filters import And, Equals, Filter, In, Or, PartOfText, Range, Typed, facts
from pointsman.values.metadata import ID, TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELD: Final = "facets"
"""The field of the terms."""
_TERMS: Final = 65_536
_MOST_VALUES: Final = 100  # of a condition that a query lists

Values = Callable[[Range | PartOfText, int], Collection[Typed] | None]
"""Returns the values of all matching documents that meet a condition; None if they are more than that or unknown."""


def facets(metadata: Mapping[str, Any]) -> str:
    """Return the terms of a document's metadata, with spaces between."""
    return " ".join([_term(name, value) for name, values in facts(metadata).items() for value in values])


def _term(name: str, value: Typed) -> str:
    kind, content = value
    if isinstance(content, float):
        content += 0.0  # -0.0 equals 0.0
    fact = f"{name}\0{kind}\0{content}"
    return f"{xxhash.xxh3_64_intdigest(fact.encode('utf-8', 'surrogatepass')) % _TERMS:x}"


def narrowing(schema: tantivy.Schema, filters: Filter, values: Values) -> tantivy.Query | None:
    """Return a query for all documents that match a filter, and perhaps others; None if terms do not tell.

    Ranges and parts of strings are turned into the values that meet them. Ids, texts and negations have no terms.
    """
    match filters:
        case Equals():
            return _with_values(schema, filters.key, (filters.typed,))
        case In():
            return _with_values(schema, filters.key, filters.typed)
        case Range() | PartOfText():
            return _with_values(schema, filters.key, values(filters, _MOST_VALUES))
        case And() | Or():
            of_operands = [narrowing(schema, operand, values) for operand in filters.parts]
            queries = [query for query in of_operands if query is not None]
            if not queries or (isinstance(filters, Or) and len(queries) < len(of_operands)):
                return None
            occur = tantivy.Occur.Must if isinstance(filters, And) else tantivy.Occur.Should
            return tantivy.Query.boolean_query([(occur, query) for query in queries])
    return None


def _with_values(schema: tantivy.Schema, key: str, values: Collection[Typed] | None) -> tantivy.Query | None:
    """Return a query for the documents with one of these values of a key, and perhaps others."""
    if values is None or key in (ID, TEXT) or not 0 < len(values) <= _MOST_VALUES:
        return None
    terms = {_term(key, value) for value in values}
    return tantivy.Query.boolean_query(
        [(tantivy.Occur.Should, tantivy.Query.term_query(schema, FIELD, term, index_option="basic")) for term in terms]
    )
