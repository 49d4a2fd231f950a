"""A workspace in the indexes of one prefix of an OpenSearch cluster."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import uuid
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pointsman.store.backend import NEW, Backend, DatasetRecord, Record, check_record, settings_of
from pointsman.store.opensearch import opensearch_queries as queries
from pointsman.store.opensearch.opensearch_client import Cluster, ClusterAddress
from pointsman.store.opensearch.opensearch_reader import Factors
from pointsman.store.opensearch.opensearch_store import OpenSearchStore
from pointsman.tools.errors import ConflictError, InputError, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opensearchpy import OpenSearch

log = logging.getLogger(__name__)

_PREFIX: Final = re.compile(r"[a-z0-9][a-z0-9_]{0,40}")
_KEPT_FIELDS: Final = ("name", "description", "indexing_technique")
_DATASET: Final = "dataset"
_PROBE: Final = "probe"
_PROBES: Final = ({"tokens": "probe", "vector": [1.0, 0.0]}, {"tokens": "other", "vector": [0.0, 1.0]})
_RIGHT: Final = math.log(2) / 2.2  # BM25 of "probe" over these two documents


class OpenSearchBackend(Backend):
    """Datasets and records in indexes of one prefix; any number of processes may use it at once.

    Args:
        url: ``opensearch+https://user:password@host1:9200,host2:9200/prefix?shards=3&replicas=1``. ``shards`` are the
            primary shards of new datasets, ``replicas`` the further copies of each: with one, a node may fail.
            ``vectors`` is what new datasets index: ``float``, or ``byte`` for a quarter of the memory. Also
            ``ca_certs``, ``client_cert`` and ``client_key``. ``opensearch://`` does not use TLS: for this machine, or
            with ``insecure=true`` for others.
        client: your own `opensearchpy.OpenSearch`, for what a URL cannot express, such as signed requests or an API
            key; the URL then gives the prefix and the cluster's name in messages.

    Raises:
        InputError: the URL is invalid.
    """

    def __init__(self, url: str, *, client: OpenSearch | None = None) -> None:
        address = ClusterAddress(url)
        if not _PREFIX.fullmatch(address.prefix):
            raise InputError(f"a prefix is up to 41 lower-case letters, digits and _, not {address.prefix!r:.80}")
        self.prefix = address.prefix
        self._shards, self._replicas = (_number(address, name) for name in ("shards", "replicas"))
        self._vectors = address.options.get("vectors", queries.FLOAT)
        if self._vectors not in queries.VECTOR_KINDS:
            raise InputError(f"vectors is {' or '.join(queries.VECTOR_KINDS)}, not {self._vectors!r:.80}")
        secret = address.user[1] if address.user else ""
        self._cluster = Cluster(client if client is not None else address.client(), address.label, secret)

    def __repr__(self) -> str:
        return f"OpenSearchBackend({self.url!r})"

    @property
    def url(self) -> str:
        """See `Backend`."""
        return f"{self._cluster.label}/{self.prefix}"

    @property
    def _catalogue(self) -> str:
        return f"{self.prefix}-catalogue"

    # ── datasets ─────────────────────────────────────────────────────────────────────────────────────────────────

    def datasets(self) -> list[DatasetRecord]:
        """See `Backend`."""
        return sorted((_dataset(source) for source, _ in self._of_kind(_DATASET)), key=lambda record: record.name)

    def create(self, name: str, about: Mapping[str, Any]) -> OpenSearchStore:
        """See `Backend`."""
        self._make()
        existing = self.open(name)
        if existing is not None:
            return existing
        settings = {key: value for key, value in about.items() if key not in _KEPT_FIELDS}
        identity = uuid.uuid4().hex
        record = {
            "kind": _DATASET,
            "name": name,
            "description": about.get("description", ""),
            "technique": about.get("indexing_technique", "hybrid"),
            "identity": identity,
            "settings": json.dumps(settings),
            "vectors": self._vectors,
            "format": queries.FORMAT,
            "analyzer": queries.DERIVED,
            "seq": 0,
            "notes": {},
        }
        body = queries.index(self._shards, self._replicas, *queries.constants(settings)) | {
            "aliases": {self._alias(identity): {}}
        }
        self._cluster.make_index(f"{self._alias(identity)}-1", body)
        path = f"/{self._catalogue}/_create/{_id(_DATASET, name)}"
        if self._cluster.ask("PUT", path, record, accepted=(409,), refresh=True) is None:  # another process was first
            self._cluster.ask("DELETE", f"/{self._alias(identity)}-1")
        store = self.open(name)
        if store is None:
            raise StoreError(f"{self.url}: dataset {name!r} was deleted right after it was created")
        return store

    def open(self, name: str, bm25: Mapping[str, float] | None = None) -> OpenSearchStore | None:
        """See `Backend`."""
        document = self._document(_DATASET, name)
        if document is None:
            return None
        record = document["_source"]
        alias = self._alias(record["identity"])
        if bm25:
            log.warning("BM25 of dataset %r keeps the constants of its existing index, not %s", name, dict(bm25))
        store = OpenSearchStore(self._cluster, alias, self._catalogue, _id(_DATASET, name), record, self._factors)
        if record["analyzer"] != queries.DERIVED:
            store.rebuild()
        return store

    def describe(self, name: str, description: str) -> None:
        """See `Backend`."""
        path = f"/{self._catalogue}/_update/{_id(_DATASET, name)}"
        body = {"doc": {"description": description}}
        if self._cluster.ask("POST", path, body, accepted=(404,), refresh=True, retry_on_conflict=20) is None:
            raise self.unknown_dataset(name)

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────

    def record(self, kind: str, name: str = "") -> Record | None:
        """See `Backend`."""
        check_record(kind, name)
        document = self._document(f"record {kind}", name)
        return None if document is None else Record(document["_source"]["value"], _version(document))

    def records(self, kind: str) -> dict[str, Record]:
        """See `Backend`."""
        check_record(kind, "")
        records = (
            (source["name"], Record(source["value"], version)) for source, version in self._of_kind(f"record {kind}")
        )
        return dict(sorted(records))

    def put_record(self, kind: str, name: str, value: str | None, expected_version: str | None = None) -> str:
        """See `Backend`."""
        check_record(kind, name, value)
        self._make()
        condition: dict[str, Any] = {}
        if expected_version:
            number, _, term = expected_version.partition(".")
            condition = {"if_seq_no": number, "if_primary_term": term}
        elif expected_version == NEW:
            condition = {"op_type": "create"}
        path = f"/{self._catalogue}/_doc/{_id(f'record {kind}', name)}"
        try:
            if value is None:
                if expected_version == NEW:
                    if self.record(kind, name) is not None:
                        raise ConflictError("")
                    return NEW
                self._cluster.ask("DELETE", path, accepted=(404,), refresh=True, **condition)
                return NEW
            body = {"kind": f"record {kind}", "name": name, "value": value}
            return _version(self._cluster.ask("PUT", path, body, refresh=True, **condition))
        except ConflictError:
            subject = f"{kind} {name}".strip()
            raise ConflictError(f"{subject} was changed by another process; read it again") from None

    def close(self) -> None:
        """See `Backend`."""
        self._cluster.close()

    # ── internals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _alias(self, identity: str) -> str:
        return f"{self.prefix}-{identity}"

    def _document(self, kind: str, name: str) -> Any:
        """Return the current state of a record of the catalogue; None if there is none."""
        return self._cluster.ask("GET", f"/{self._catalogue}/_doc/{_id(kind, name)}", accepted=(404,))

    def _of_kind(self, kind: str) -> list[tuple[dict[str, Any], str]]:
        """Return all records of a kind, with their versions."""
        body = {"size": queries.MOST, "query": {"term": {"kind": kind}}, "seq_no_primary_term": True}
        answer = self._search(body, accepted=(404,))
        return [] if answer is None else [(hit["_source"], _version(hit)) for hit in answer["hits"]["hits"]]

    def _search(self, body: Mapping[str, Any], accepted: Sequence[int] = ()) -> Any:
        """Search the catalogue; half an answer is none, so it is asked for again."""
        path = f"/{self._catalogue}/_search"
        return self._cluster.ask("POST", path, body, accepted=accepted, allow_partial_search_results=False)

    def _make(self) -> None:
        """Create the catalogue unless it exists."""
        if self._cluster.ask("GET", f"/{self._catalogue}", accepted=(404,)) is not None:
            return
        body = {
            "settings": {
                "index": {
                    "knn": True,
                    "number_of_shards": 1,
                    "auto_expand_replicas": "0-1",
                    "max_result_window": queries.MOST,
                    "similarity": {"pm": {"type": "BM25", "k1": 1.2, "b": 0.75}},
                },
                "analysis": queries.ANALYSIS,
            },
            "mappings": {
                "dynamic": False,
                "properties": {
                    "kind": {"type": "keyword"},
                    "tokens": queries.TOKENS,
                    "vector": queries.vector_field(2),
                },
            },
        }
        self._cluster.make_index(self._catalogue, body, accepted=(400,))  # another process may have been first
        for number, probe in enumerate(_PROBES):
            path = f"/{self._catalogue}/_doc/{_PROBE}-{number}"
            self._cluster.ask("PUT", path, {"kind": _PROBE, **probe}, refresh=True)

    @cached_property
    def _factors(self) -> Factors:
        """Measure this cluster's score factors on two known documents, as they differ between releases."""
        filters = [{"term": {"kind": _PROBE}}]
        bm25 = self._probe_scores(queries.words({"probe": 1}, filters))[f"{_PROBE}-0"] / _RIGHT
        cosines = self._probe_scores(queries.near([1.0, 0.0], 2, filters))
        return Factors(bm25, cosines[f"{_PROBE}-1"], cosines[f"{_PROBE}-0"])

    def _probe_scores(self, query: Mapping[str, Any]) -> dict[str, float]:
        answer = self._search({"query": query, "_source": False})
        return {hit["_id"]: hit["_score"] for hit in answer["hits"]["hits"]}


def _id(kind: str, name: str) -> str:
    """Return the ``_id`` of a record of the catalogue."""
    return hashlib.blake2b(f"{kind}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _version(answer: Mapping[str, Any]) -> str:
    return f"{answer['_seq_no']}.{answer['_primary_term']}"


def _dataset(source: Mapping[str, Any]) -> DatasetRecord:
    return DatasetRecord(
        source["name"],
        source["description"],
        source["technique"],
        source["identity"],
        settings_of(source["name"], source["settings"]),
    )


def _number(address: ClusterAddress, name: str) -> int:
    text = address.options.get(name, "1")
    if not text.isascii() or not text.isdecimal() or not (1 if name == "shards" else 0) <= int(text) <= 1024:
        raise InputError(f"{name} is a number up to 1,024, not {text!r:.80}")
    return int(text)
