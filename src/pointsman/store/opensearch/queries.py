r"""The index of a dataset, and searches and filters in OpenSearch's language.

Filters need no mapping of their own: every value of a document's metadata is one term in the field ``facts``, put
together of key, kind and value so that terms sort as values do. A range is then a range of terms, and it is exact for
any number of keys: key, NUL, ``n`` and sixteen hexadecimal digits for a number; key, NUL, ``s`` and the text for a
string. Strings beyond `LONGEST` characters are cut, and told apart by a hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.errors import InputError, UnmetNeedError
from pointsman.filters import And, Equals, Exists, Filter, In, Not, Or, Range, typed_values
from pointsman.store.prepared import storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pointsman.filters import Typed

FORMAT: Final = 1
MOST: Final = 10_000
"""OpenSearch's own limit to the results of one search."""
LONGEST: Final = 150
"""Characters of a string that terms hold, and so of the bound of a range: Lucene takes bounds of 1,000 bytes."""
_LONGEST_KEY: Final = 80
_LONGEST_ID: Final = 512  # bytes; longer ids, and those that begin as a hash does, are hashed
_HASHED: Final = "#"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_EF: Final = 256  # candidates of HNSW for each segment

ANALYSIS: Final = {
    "analyzer": {"pm": {"type": "custom", "tokenizer": "pm"}},
    "tokenizer": {"pm": {"type": "char_group", "tokenize_on_chars": [" "], "max_token_length": 1024}},
}
TOKENS: Final = {"type": "text", "analyzer": "pm", "index_options": "freqs", "similarity": "pm"}


def vector_field(dimensions: int) -> dict[str, Any]:
    """The mapping of vectors, compared by their cosine in Lucene's HNSW."""
    parameters = {"m": 16, "ef_construction": 128}
    method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil", "parameters": parameters}
    return {"type": "knn_vector", "dimension": dimensions, "method": method}


def index(shards: int, replicas: int, k1: float, b: float) -> dict[str, Any]:
    """Settings and mappings of a dataset; the field ``vector`` comes with the first vector."""
    keyword = {"type": "keyword"}
    return {
        "settings": {
            "index": {
                "knn": True,
                "number_of_shards": shards,
                "number_of_replicas": replicas,
                "similarity": {"pm": {"type": "BM25", "k1": k1, "b": b}},
            },
            "analysis": ANALYSIS,
        },
        "mappings": {
            "dynamic": False,
            "_source": {"excludes": ["tokens", "vector", "facts"]},  # derived; whole documents are written, never parts
            "properties": {
                "id": {"type": "keyword", "index": False},
                "tokens": TOKENS,
                "facts": keyword,
                "order": {"type": "long"},
                "embedded": {"type": "boolean"},
            },
        },
    }


def key_of(id_: str) -> str:
    """The ``_id`` of a document.

    >>> key_of("rails-7"), key_of("ж" * 300)[:5], len(key_of("ж" * 300))
    ('rails-7', '#9571', 33)
    """
    data = id_.encode()
    if len(data) <= _LONGEST_ID and not id_.startswith(_HASHED):
        return id_
    return _HASHED + hashlib.blake2b(data, digest_size=16).hexdigest()


def packed(vector: NDArray[np.float32]) -> str:
    """A vector as it is kept beside its index."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def unpacked(text: str) -> NDArray[np.float32]:
    """The vector that was `packed`."""
    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float32)


# ── metadata and filters ─────────────────────────────────────────────────────────────────────────────────────────────


def facts_of(metadata: Mapping[str, Any]) -> list[str]:
    """The terms that filters see of a document's metadata."""
    terms: list[str] = []
    for key, value in metadata.items():
        values = typed_values(value)
        if values:
            name = _name(key)
            terms.append(name)
            for one in values:
                terms += _terms(name, one)
    return list(dict.fromkeys(terms))


def _name(key: str) -> str:
    r"""A key with the NUL that ends it; no NUL is in it, and it stays different from others."""
    key = key.replace("\x01", "\x01\x02").replace("\0", "\x01\x01")
    if len(key) > _LONGEST_KEY:
        key = "\x01#" + hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return f"{key}\0"


def _terms(name: str, one: Typed) -> list[str]:
    kind, value = one
    if kind == "string" and len(value) > LONGEST:
        return [f"{name}s{value[:LONGEST]}\U0010ffff", f"{name}h{_hash(value)}"]
    return [_term(name, one)]


def _term(name: str, one: Typed) -> str:
    """The term that only this value has."""
    kind, value = one
    if kind == "number":
        return f"{name}n{_sortable(value)}"
    if kind == "boolean":
        return f"{name}b{int(value)}"
    return f"{name}h{_hash(value)}" if len(value) > LONGEST else f"{name}s{value}"


def _sortable(number: float) -> str:
    """Sixteen digits that sort as doubles do.

    >>> sorted([_sortable(1.5), _sortable(-2.0), _sortable(10.0)]) == [*map(_sortable, (-2.0, 1.5, 10.0))]
    True
    """
    (bits,) = struct.unpack(">Q", struct.pack(">d", number + 0.0))  # minus zero is zero
    return f"{bits ^ (0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63):016x}"


def _hash(value: str) -> str:
    return hashlib.blake2b(value.encode(), digest_size=16).hexdigest()


_NOTHING: Final[dict[str, Any]] = {"match_none": {}}


def clause(wanted: Filter) -> dict[str, Any]:
    """A filter as a query.

    Raises:
        UnmetNeedError: a range has a bound of more than 150 characters.
    """
    match wanted:
        case And(parts):
            return {"bool": {"filter": [clause(part) for part in parts]}} if parts else {"match_all": {}}
        case Or(parts):
            return {"bool": {"should": list(map(clause, parts)), "minimum_should_match": 1}} if parts else _NOTHING
        case Not(part):
            return {"bool": {"must_not": [clause(part)]}}
        case Equals() | In():
            return _any_of(wanted.key, [wanted.typed] if isinstance(wanted, Equals) else wanted.typed)
        case Exists(key):
            return {"term": {"facts": _name(key)}} if storable(key) else _NOTHING
        case Range():
            return _within(wanted) if storable(wanted.key) else _NOTHING
        case _:
            raise InputError(f"a filter of the kind {type(wanted).__name__} is unknown to OpenSearch stores")


def _any_of(key: str, values: Iterable[Typed]) -> dict[str, Any]:
    """One of the key's values is one of these; what holds a lone surrogate is in no document."""
    able = [one for one in values if one[0] != "string" or storable(one[1])] if storable(key) else []
    return {"terms": {"facts": [_term(_name(key), one) for one in able]}} if able else _NOTHING


def _within(wanted: Range) -> dict[str, Any]:
    """The interval as one of terms: between the bounds, or from one of them to the end of its kind."""
    kind, low, low_included, high, high_included = wanted.interval
    begin = f"{_name(wanted.key)}{kind[0]}"
    bounds: dict[str, str] = {"gte": begin, "lt": begin[:-1] + chr(ord(begin[-1]) + 1)}
    if low is not None:
        text, included = _bound(kind, low, low_included, above=True)
        del bounds["gte"]
        bounds["gte" if included else "gt"] = begin + text
    if high is not None:
        text, included = _bound(kind, high, high_included, above=False)
        del bounds["lt"]
        bounds["lte" if included else "lt"] = begin + text
    return {"range": {"facts": bounds}}


def _bound(kind: str, value: Any, included: bool, *, above: bool) -> tuple[str, bool]:
    if kind == "number":
        return _sortable(value), included
    if found := _SURROGATE.search(value):
        # Nothing stored holds one, so whatever sorts after it begins with what comes after all of them.
        value, included = f"{value[: found.start()]}\ue000", above
    if len(value) > LONGEST:
        raise UnmetNeedError(
            f"OpenSearch stores compare at most {LONGEST:,} characters; shorten the bound of the range"
        )
    return value, included


# ── searching ────────────────────────────────────────────────────────────────────────────────────────────────────────


def words(terms: Mapping[str, int], filters: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Documents with these words; what stands twice in a query counts twice."""
    should = [{"term": {"tokens": {"value": term, "boost": float(count)}}} for term, count in terms.items()]
    return {"bool": {"should": should, "minimum_should_match": 1, "filter": list(filters)}}


def near(vector: NDArray[np.float32], k: int, filters: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The nearest vectors; the filter acts within the search."""
    body: dict[str, Any] = {"vector": vector.tolist(), "k": k, "method_parameters": {"ef_search": max(_EF, k)}}
    if filters:
        body["filter"] = {"bool": {"filter": list(filters)}}
    return {"knn": {"vector": body}}
