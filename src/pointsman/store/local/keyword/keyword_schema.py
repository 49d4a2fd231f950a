"""The fields of a keyword index, and queries by what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tantivy

from pointsman.store.local.keyword.facet_terms import FIELD as FACETS

MARKER, CODES = -1, -2  # keys of documents of the index itself: the marker, and the codes of terms if there are any


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("key", indexed=True, fast=True)  # signed: deletes by an unsigned term delete nothing
    builder.add_integer_field("length", fast=True)
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq", stored=False)
    builder.add_text_field(FACETS, tokenizer_name="whitespace", index_option="basic", stored=False)
    builder.add_bytes_field("counts", stored=True, indexed=False, fast=False)
    builder.add_text_field("marker", tokenizer_name="raw", index_option="basic", stored=True)
    return builder.build()


def all_addresses(searcher: tantivy.Searcher) -> list[tantivy.DocAddress]:
    """Return where all documents of an index are, those of the index itself included."""
    hits = searcher.search(tantivy.Query.all_query(), max(searcher.num_docs, 1), count=False).hits
    return [address for _, address in hits]


def codes_in(searcher: tantivy.Searcher) -> bytes:
    """Return the terms that have codes in an index."""
    hits = searcher.search(key_query(CODES), 1, count=False).hits
    content: Any = searcher.doc(hits[0][1]).get_first("counts") if hits else b""
    return bytes(content)


SCHEMA = _schema()


def key_query(key: int) -> tantivy.Query:
    """Return a query for the document of a key."""
    return tantivy.Query.term_query(SCHEMA, "key", key)


def query_among(keys: Sequence[int], query: tantivy.Query) -> tantivy.Query:
    """Restrict a query to these keys; a disjunction of keys is faster than tantivy's own term set."""
    return both(tantivy.Query.boolean_query([(tantivy.Occur.Should, key_query(key)) for key in keys]), query)


def both(condition: tantivy.Query, query: tantivy.Query) -> tantivy.Query:
    """Restrict a query to what another one finds, whose scores do not count."""
    must = tantivy.Occur.Must
    return tantivy.Query.boolean_query([(must, tantivy.Query.const_score_query(condition, 0.0)), (must, query)])
