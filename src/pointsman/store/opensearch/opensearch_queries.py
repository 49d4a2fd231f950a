r"""The index of a dataset, and searches and filters in OpenSearch's language.

Filters need no separate mapping: every metadata value is one term in the field ``facts``, composed of key, kind and
value so that terms sort like values: key, NUL, ``n`` and sixteen hexadecimal digits for a number; key, NUL, ``s`` and
the text for a string. A range of values is then a range of terms, exact for any number of keys. Strings longer than
`LONGEST` characters are cut and distinguished by a hash; their parts are found through pieces that overlap by the
longest possible part, and their endings through a separate term. An integer between two doubles has the digits of the
lower one, followed by its distance from it.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pointsman.store.bm25 import K1, B
from pointsman.store.prepared_documents import storable
from pointsman.text import DEFAULT_ANALYZER
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.values.filters import (
    And,
    Contains,
    EndsWith,
    Equals,
    Exists,
    Filter,
    In,
    Not,
    Or,
    PartOfText,
    Range,
    StartsWith,
)
from pointsman.values.metadata import ID, TEXT, cases, facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pointsman.store.bm25 import BM25
    from pointsman.values.filters import Typed
    from pointsman.values.types import Document

FORMAT: Final = 1
FLOAT: Final = "float"
BYTE: Final = "byte"
VECTOR_KINDS: Final = (FLOAT, BYTE)
"""Numbers of which the indexed vectors are made; with bytes, the best are compared again by the stored vectors."""
DERIVED: Final = f"{DEFAULT_ANALYZER.fingerprint} facts 3 lengths"
"""Version of the rules for words and facts; those of other versions are rebuilt."""
MOST: Final = 10_000
"""OpenSearch's limit on the results of one search."""
LONGEST: Final = 150
"""Maximum characters of a string in a term, and so of a range's bound: Lucene accepts bounds of 1,000 bytes."""
_LONGEST_KEY: Final = 80
_TERM_LENGTH: Final = 1000  # characters of a long string in one term
_LONGEST_PATTERN: Final = 1000  # OpenSearch's limit on regular expressions
_LONGEST_ID: Final = 512  # bytes; longer ids, and those that begin like a hash, are hashed
_HASH_MARK: Final = "#"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_EF: Final = 256  # HNSW candidates per segment

ANALYSIS: Final = {
    "analyzer": {"pm": {"type": "custom", "tokenizer": "pm"}},
    "tokenizer": {"pm": {"type": "char_group", "tokenize_on_chars": [" "], "max_token_length": 1024}},
}
TOKENS: Final = {"type": "text", "analyzer": "pm", "index_options": "freqs", "similarity": "pm"}
LENGTH: Final = {"type": "integer", "index": False}
_MARGIN: Final = 2  # candidates scored again exactly, as a multiple of those returned
_FEWEST: Final = 50  # but at least so many
_EXACT: Final = """
    if (doc['length'].size() == 0) { return _score; }
    int length = (int) doc['length'].value;
    int excess = length - 24;
    int shift = 28 - Integer.numberOfLeadingZeros(excess);
    int rounded = excess > 0 && shift > 0 ? 24 + ((excess >>> shift) << shift) : length;
    int tf = termFreq('tokens', params.term);
    double slope = params.k1 * params.b / params.mean, constant = tf + params.k1 * (1 - params.b);
    return _score * (constant + slope * rounded) / (constant + slope * length);
"""
"""Replaces the length in the score of one word, which Lucene keeps in one byte (``SmallFloat.intToByte4``), exact below
40 and within 1/8 above, by the exact one."""


def constants(settings: Mapping[str, Any]) -> tuple[float, float]:
    """Return k1 and b of BM25 as a dataset's settings have them; its index is made with these."""
    return float(settings.get("bm25_k1", K1)), float(settings.get("bm25_b", B))


def vector_field(dimensions: int, kind: str = FLOAT) -> dict[str, Any]:
    """Return the mapping of vectors of a kind, compared by cosine in Lucene's HNSW."""
    parameters = {"m": 16, "ef_construction": 128}
    method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil", "parameters": parameters}
    # Doc values would be a second copy, which only scripts read.
    return {"type": "knn_vector", "dimension": dimensions, "data_type": kind, "method": method, "doc_values": False}


def coordinates(vector: NDArray[np.float32], kind: str = FLOAT) -> list[float]:
    """Return a vector, normalised to length 1, as its index receives it.

    Bytes use their whole range in each vector, as only its direction counts. Numbers are rounded to nine decimals,
    finer than those of a 32-bit vector, since its 64-bit form would be twice as long in JSON.

    >>> coordinates(np.array([0.6, -0.8], np.float32)), coordinates(np.array([0.6, -0.8], np.float32), BYTE)
    ([0.600000024, -0.800000012], [95, -127])
    """
    if kind == BYTE:
        scaled: list[float] = np.rint(vector * (127 / np.abs(vector).max())).astype(int).tolist()
        return scaled
    rounded: list[float] = vector.astype(float).round(9).tolist()
    return rounded


def candidate_count(size: int) -> int:
    """Return how many of the best to score again exactly, to find so many."""
    return min(max(_MARGIN * size, _FEWEST), MOST)


def index(shards: int, replicas: int, k1: float, b: float) -> dict[str, Any]:
    """Return settings and mappings of a dataset; the field ``vector`` is added with the first vector."""
    keyword = {"type": "keyword"}
    return {
        "settings": {
            "index": {
                "knn": True,
                "number_of_shards": shards,
                "number_of_replicas": replicas,
                # Writes make themselves visible. Each second would be the default, and a graph of vectors for each.
                "refresh_interval": "30s",
                "similarity": {"pm": {"type": "BM25", "k1": k1, "b": b}},
            },
            "analysis": ANALYSIS,
        },
        "mappings": {
            "dynamic": False,
            # Derived; documents are always written as a whole.
            "_source": {"excludes": ["tokens", "length", "vector", "facts"]},
            "properties": {
                "id": {"type": "keyword", "index": False},
                "tokens": TOKENS,
                "length": LENGTH,
                "facts": keyword,
                "order": {"type": "long"},
                "embedded": {"type": "boolean"},
            },
        },
    }


def key_of(id_: str) -> str:
    """Return the ``_id`` of a document.

    >>> key_of("rails-7"), key_of("ж" * 300)[:5], len(key_of("ж" * 300))
    ('rails-7', '#ac9a', 33)
    """
    data = id_.encode()
    if len(data) <= _LONGEST_ID and not id_.startswith(_HASH_MARK):
        return id_
    return _HASH_MARK + hashlib.blake2b(data, digest_size=16).hexdigest()


def packed(vector: NDArray[np.float32]) -> str:
    """Encode a vector for storage beside its index."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def unpacked(text: str) -> NDArray[np.float32]:
    """Reverse `packed`."""
    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float32)


# ── metadata and filters ─────────────────────────────────────────────────────────────────────────────────────────────


def facts_of(document: Document) -> list[str]:
    """Return the terms by which filters find a document, except its text."""
    terms: list[str] = []
    for key, values in facts({**document.metadata, ID: document.id}).items():
        if key != TEXT:
            name = _name(key)
            terms.append(name)
            for item in values:
                terms += _terms(name, item)
    return list(dict.fromkeys(terms))


def _name(key: str) -> str:
    r"""Return a key with a terminating NUL; other NULs are escaped, so that keys stay distinct."""
    key = key.replace("\x01", "\x01\x02").replace("\0", "\x01\x01")
    if len(key) > _LONGEST_KEY:
        key = "\x01#" + hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return f"{key}\0"


def _terms(name: str, typed: Typed) -> list[str]:
    kind, value = typed
    if kind == "string" and len(value) > LONGEST:
        substrings = [value[start : start + _TERM_LENGTH] for start in range(0, len(value), _TERM_LENGTH - LONGEST)]
        full_terms = [f"{name}s{value[:LONGEST]}\U0010ffff", f"{name}h{_hash(value)}"]
        return [*full_terms, *(f"{name}p{substring}" for substring in substrings), f"{name}e{value[-LONGEST:]}"]
    return [_term(name, typed)]


def _term(name: str, typed: Typed) -> str:
    """Return the term that only this value has."""
    kind, value = typed
    if kind == "number":
        return f"{name}n{_sortable(value)}"
    if kind == "boolean":
        return f"{name}b{int(value)}"
    return f"{name}h{_hash(value)}" if len(value) > LONGEST else f"{name}s{value}"


def _sortable(number: float) -> str:
    """Encode a number in sixteen digits that sort like doubles, or more for an integer between two of them.

    >>> numbers = [-(2**53) - 1, -2.0, 1.5, 10.0, 2.0**53, 2**53 + 1, 2.0**53 + 2]
    >>> sorted(map(_sortable, numbers)) == [*map(_sortable, numbers)]
    True
    """
    if isinstance(number, int):
        lower = float(number)
        if lower > number:
            lower = math.nextafter(lower, -math.inf)
        # As many digits as the distance to the next double can have.
        return f"{_sortable(lower)}{number - int(lower):0{len(f'{int(math.ulp(lower)):x}')}x}"
    (pattern,) = struct.unpack(">Q", struct.pack(">d", number + 0.0))  # minus zero is zero
    return f"{pattern ^ (0xFFFF_FFFF_FFFF_FFFF if pattern >> 63 else 1 << 63):016x}"


def _hash(value: str) -> str:
    return hashlib.blake2b(value.encode(), digest_size=16).hexdigest()


NOTHING: Final[dict[str, Any]] = {"match_none": {}}
Condition = Equals | In | Exists | Range | PartOfText


def combined(filters: Filter, condition: Callable[[Condition], dict[str, Any]]) -> dict[str, Any]:
    """Return a filter as a query, with its conditions converted by ``condition``.

    Raises:
        InputError: a part is of an unknown kind.
    """
    match filters:
        case And(operands):
            return (
                {"bool": {"filter": [combined(operand, condition) for operand in operands]}}
                if operands
                else {"match_all": {}}
            )
        case Or(operands):
            should = [combined(operand, condition) for operand in operands]
            return {"bool": {"should": should, "minimum_should_match": 1}} if operands else NOTHING
        case Not(operand):
            return {"bool": {"must_not": [combined(operand, condition)]}}
        case Equals() | In() | Exists() | Range() | PartOfText():
            return condition(filters)
        case _:
            raise InputError(f"a filter of the kind {type(filters).__name__} is unknown to OpenSearch stores")


def clause(filters: Filter) -> dict[str, Any]:
    """Return a filter as a query over ``facts``.

    Raises:
        UnmetNeedError: the bound of a range or a part of a string is longer than 150 characters, or the filter is on
            the document's text.
    """
    return combined(filters, _of_facts)


def _of_facts(condition: Condition) -> dict[str, Any]:
    if condition.key == TEXT:
        raise UnmetNeedError("OpenSearch stores cannot filter by the text; search for its words instead")
    match condition:
        case Range():
            return _range_clause(condition) if storable(condition.key) else NOTHING
        case PartOfText():
            return _has_part(condition) if storable(condition.key) and storable(condition.part) else NOTHING
        case Exists(key):
            return {"term": {"facts": _name(key)}} if storable(key) else NOTHING
        case _:
            return _any_of(condition.key, [condition.typed] if isinstance(condition, Equals) else condition.typed)


def _any_of(key: str, values: Iterable[Typed]) -> dict[str, Any]:
    """Return a query for one of these values; stored values never contain lone surrogates."""
    able = (
        [typed_value for typed_value in values if typed_value[0] != "string" or storable(typed_value[1])]
        if storable(key)
        else []
    )
    return {"terms": {"facts": [_term(_name(key), typed_value) for typed_value in able]}} if able else NOTHING


def _range_clause(condition: Range) -> dict[str, Any]:
    """Return an interval of terms: between the bounds, or from one of them to the end of its kind."""
    kind, low, low_included, high, high_included = condition.interval
    begin = f"{_name(condition.key)}{kind[0]}"
    bounds: dict[str, str] = {"gte": begin, "lt": begin[:-1] + chr(ord(begin[-1]) + 1)}
    if low is not None:
        text, is_included = _bound(kind, low, low_included, above=True)
        del bounds["gte"]
        bounds["gte" if is_included else "gt"] = begin + text
    if high is not None:
        text, is_included = _bound(kind, high, high_included, above=False)
        del bounds["lt"]
        bounds["lte" if is_included else "lt"] = begin + text
    return {"range": {"facts": bounds}}


def _has_part(condition: PartOfText) -> dict[str, Any]:
    """Return a query for a part of a string: a regular expression over whole terms, as Lucene requires."""
    substring = condition.part
    if len(substring) > LONGEST or "\U0010ffff" in substring:  # U+10FFFF ends cut strings
        raise UnmetNeedError(
            f"OpenSearch stores match substrings of at most {LONGEST:,} characters, without U+10FFFF; shorten it"
        )
    name = _name(condition.key)
    if isinstance(condition, StartsWith) and not condition.ignore_case:
        return {"prefix": {"facts": f"{name}s{substring}"}}
    letters = "".join(_any_case(letter) if condition.ignore_case else _regular(letter) for letter in substring)
    pattern_of_facts = {Contains: f"[sp].*{letters}.*", StartsWith: f"s{letters}.*", EndsWith: f"[se].*{letters}"}[
        type(condition)
    ]
    pattern = f"{''.join(map(_regular, name))}{pattern_of_facts}"
    if len(pattern.encode("utf-16-le")) > 2 * _LONGEST_PATTERN:
        raise UnmetNeedError("this substring is too long for OpenSearch stores; shorten it")
    return {"regexp": {"facts": {"value": pattern, "flags": "NONE"}}}


def _any_case(letter: str) -> str:
    letters = cases(letter)
    return _regular(letter) if len(letters) == 1 else f"[{letters}]"


def _regular(character: str) -> str:
    return character if character.isalnum() or ord(character) > 127 else f"\\{character}"


def _bound(kind: str, value: Any, inclusive: bool, *, above: bool) -> tuple[str, bool]:
    if kind == "number":
        return _sortable(value), inclusive
    if match := _SURROGATE.search(value):
        # Stored values contain no surrogates, so the bound is moved to the first text after all of them.
        value, inclusive = f"{value[: match.start()]}\ue000", above
    if len(value) > LONGEST:
        raise UnmetNeedError(
            f"OpenSearch stores compare at most {LONGEST:,} characters; shorten the bound of the range"
        )
    return value, inclusive


# ── searching ────────────────────────────────────────────────────────────────────────────────────────────────────────


def words(terms: Mapping[str, int], filters: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a query for documents with these words; a word that occurs twice in the query counts twice.

    With each hit come the numbers of the words that it has (``matched_queries``).
    """
    should = [
        {"term": {"tokens": {"value": term, "boost": float(count), "_name": str(number)}}}
        for number, (term, count) in enumerate(terms.items())
    ]
    return {"bool": {"should": should, "minimum_should_match": 1, "filter": list(filters)}}


def exactly(terms: Mapping[str, int], size: int, bm25: BM25) -> dict[str, Any]:
    """Return a rescoring of the best of `words` with the exact lengths of documents."""
    parameters = {"k1": bm25.k1, "b": bm25.b, "mean": bm25.mean}
    should = [
        {
            "script_score": {
                "query": {"term": {"tokens": term}},
                "script": {"source": _EXACT, "params": {**parameters, "term": term}},
                "boost": float(count),
            }
        }
        for term, count in terms.items()
    ]
    rescoring = {"rescore_query": {"bool": {"should": should}}, "query_weight": 0.0}
    return {"window_size": candidate_count(size), "query": rescoring}


def holding(terms: Iterable[str], *, lengths: bool = False) -> dict[str, Any]:
    """Return a search that counts all documents, and those that contain each of these words, in order.

    Args:
        terms: the words.
        lengths: whether it measures the mean length too.
    """
    filters_by_number = {str(number): {"term": {"tokens": term}} for number, term in enumerate(terms)}
    aggregations: dict[str, Any] = {"words": {"filters": {"filters": filters_by_number}}} if filters_by_number else {}
    if lengths:
        aggregations["length"] = {"avg": {"field": "length"}}
    return {"size": 0, "track_total_hits": True, "query": {"match_all": {}}, "aggs": aggregations}


def near(
    coordinates: Sequence[float], k: int, filters: Sequence[dict[str, Any]], field: str = "vector"
) -> dict[str, Any]:
    """Return a query for the nearest vectors of a field; the filter is applied during the search."""
    body: dict[str, Any] = {"vector": coordinates, "k": k, "method_parameters": {"ef_search": max(_EF, k)}}
    if filters:
        body["filter"] = {"bool": {"filter": list(filters)}}
    return {"knn": {field: body}}
