"""OpenSearch keeps what the protocol promises, against a real cluster of three nodes (B3, B6)."""

from __future__ import annotations

import base64
import http.server
import json
import logging
import math
import re
import ssl
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from certificates import certificates
from pointsman.evaluation.conformance.stores.store_samples import EMBEDDER, bm25, odd_documents, vector_of, vectors_of
from pointsman.store.opensearch.opensearch_queries import index
from pointsman.store.store_values import NEAR, VERSIONS, WORDS, StoreQuery
from pointsman.tools import errors
from pointsman.values.filters import And, EndsWith, Equals, Exists, Not, PartOfText, Range
from pointsman.values.types import Document
from proxy_kit import Proxy
from store_orders import OrderedStoreConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from opensearch_kit import Cluster
    from pointsman.store.opensearch import OpenSearchBackend, OpenSearchStore
    from pointsman.values.filters import Filter

THIN = [Document(str(number), "lamp" if number % 2 else "lamp post") for number in range(60)]
READS = re.compile(r"GET /[^/]+|GET /[^/]+/_(doc|mapping)(/.*)?|POST /[^/]+/_(search|msearch|mget|count)")
DESCRIPTION = {"description": "", "indexing_technique": "hybrid"}


def open_backend(cluster: Cluster, prefix: str = "tests", shards: int = 3, replicas: int = 1) -> OpenSearchBackend:
    from pointsman.store.opensearch import OpenSearchBackend

    return OpenSearchBackend(f"{cluster.url}/{prefix}?shards={shards}&replicas={replicas}")


@contextmanager
def answering(
    statuses: list[int] | None = None, headers: list[str] | None = None, context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A server that answers with these statuses, else with 404, and notes who asks; yields its address.

    A status of 404 among them says that there is no such index, though ``GET`` finds it: this node is behind.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if headers is not None:
                headers.append(self.headers.get("Authorization", ""))
            status = statuses.pop(0) if statuses else None
            missing = {"error": {"type": "index_not_found_exception", "reason": "no such index"}, "status": 404}
            self.answer(status or 404, missing if status == 404 else {})

        def do_GET(self) -> None:
            self.answer(200, {})

        def answer(self, status: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client without a certificate is turned away."""

    server = Quiet(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module", autouse=True)
def thinned_store(opensearch: Cluster) -> Iterator[OpenSearchStore]:
    """A dataset of which most was deleted; for the last test, since copies take half a minute to let go of it."""
    with open_backend(opensearch, "thinned", shards=1, replicas=0) as backend:
        store = backend.create("thinned", DESCRIPTION)
        store.write(THIN)
        store.delete([document.id for document in THIN[20:]])
        yield store


class TestOpenSearchStore(OrderedStoreConformance):
    """Over two shards and their replicas; what was deleted is counted until a merge."""

    tolerance = 1e-4
    drift = None
    rounds = 4
    backend: ClassVar[OpenSearchBackend]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _backend(cls, opensearch: Cluster) -> Iterator[None]:
        from pointsman.store.opensearch import OpenSearchBackend

        cls.backend = OpenSearchBackend(f"{opensearch.url}/conformance?shards=2&replicas=1")
        yield
        cls._filled_store = None
        cls.backend.close()

    def takes(self, filters: Filter) -> bool:
        """Bounds and parts of strings have 150 characters at most, and texts are not filtered by."""
        if getattr(filters, "key", "") == "_text" or (isinstance(filters, PartOfText) and len(filters.part) > 150):
            return False
        if isinstance(filters, PartOfText):
            return True
        operands = getattr(filters, "parts", None) or [getattr(filters, "part", None)]
        if isinstance(filters, Range):
            return all(
                not isinstance(bound, str) or len(bound) <= 150 for bound in (filters.interval[1], filters.interval[3])
            )
        return all(operand is None or self.takes(operand) for operand in operands)

    def make_store(self) -> OpenSearchStore:
        return self.backend.create(uuid.uuid4().hex, DESCRIPTION)

    def again(self, store: Any) -> OpenSearchStore:
        name = next(dataset.name for dataset in self.backend.datasets() if dataset.identity == store.info.identity)
        second_store = self.backend.open(name)
        assert second_store is not None
        return second_store


class TestByteVectors:
    """Vectors that are indexed as bytes: the best are compared again by those stored beside them."""

    @pytest.fixture
    def byte_backend(self, opensearch: Cluster) -> Iterator[OpenSearchBackend]:
        from pointsman.store.opensearch import OpenSearchBackend

        with OpenSearchBackend(f"{opensearch.url}/bytes?shards=3&replicas=1&vectors=byte") as backend:
            yield backend

    def test_lists_and_scores_are_those_of_exact_cosines(self, byte_backend: OpenSearchBackend) -> None:
        store = byte_backend.create(uuid.uuid4().hex, DESCRIPTION)
        rng = np.random.default_rng(3)
        documents = [Document(str(number), "lamp", {"even": number % 2 == 0}) for number in range(1000)]
        vectors = rng.standard_normal((1000, 64)).astype(np.float32) + 2  # so alike that bytes mistake their order
        store.write(documents, vectors, EMBEDDER)
        store.write([Document("bare", "lamp")])
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        mistaken = 0
        for sample in rng.standard_normal((20, 64)).astype(np.float32) + 2:
            query = sample / np.linalg.norm(sample)
            cosines = unit @ query
            for filters, step in ((None, 1), (Equals("even", True), 2)):
                [answer] = store.search([StoreQuery(None, query, 10, filters)])
                best = np.argsort(-cosines[::step])[:10] * step
                assert [key for key, _ in answer.rankings[NEAR]] == [str(row) for row in best]
                assert [score for _, score in answer.rankings[NEAR]] == pytest.approx(cosines[best], abs=1e-6)
                assert set(answer.documents) == {str(row) for row in best}
            mistaken += self.ids_by_bytes(store, query) != [str(row) for row in np.argsort(-cosines)[:10]]
            [scores] = store.score([StoreQuery(None, query)], [["7", "bare", "300"]])
            assert scores[NEAR] == pytest.approx({"7": cosines[7], "bare": math.nan, "300": cosines[300]}, nan_ok=True)
        assert mistaken  # otherwise the vectors would be too far apart for this test to tell

    def ids_by_bytes(self, store: Any, query: Any) -> list[str]:
        """The ten that the index alone takes for the best."""
        search = store._queries(StoreQuery(None, query, 10))[NEAR]
        return [hit["_id"] for hit in store._search_each([search])[0]["hits"]["hits"][:10]]

    def test_a_dataset_keeps_its_kind(self, opensearch: Cluster, byte_backend: OpenSearchBackend) -> None:
        """Whoever opens it, by whatever URL; also when documents are edited, or their words are made anew."""
        from pointsman.store.opensearch import OpenSearchBackend

        documents = odd_documents(40)
        store = byte_backend.create("kept", DESCRIPTION)
        with OpenSearchBackend(f"{opensearch.url}/bytes") as other_backend:
            other_store = other_backend.open("kept")
            assert other_store is not None
            other_store.write(documents, vectors_of(documents), EMBEDDER)
            other_store._update({"doc": {"analyzer": "old"}})
            other_store = other_backend.open("kept")  # which rebuilds it
            assert other_store is not None
            other_store.set_metadata({documents[0].id: {"edited": True}})
            store_query = StoreQuery("lamp", vector_of("lamp"), 10)
            expected = np.sort(vectors_of(documents) @ vector_of("lamp"))[::-1][:10]
            for reader in (store, other_store):
                [answer] = reader.search([store_query])
                assert [score for _, score in answer.rankings[NEAR]] == pytest.approx(expected, abs=1e-6)
        index = store._cluster.ask("GET", f"/{store._alias}/_mapping")
        (mapping,) = index.values()
        assert mapping["mappings"]["properties"]["vector"]["data_type"].lower() == "byte"
        byte_backend.drop("kept")

    def test_another_kind_is_refused(self) -> None:
        pytest.importorskip("opensearchpy")
        from pointsman.store.opensearch import OpenSearchBackend

        with pytest.raises(errors.InputError, match="vectors is float or byte, not 'int4'"):
            OpenSearchBackend("opensearch://127.0.0.1:9200/rails?vectors=int4")


@pytest.fixture
def backend(opensearch: Cluster) -> Iterator[OpenSearchBackend]:
    with open_backend(opensearch) as backend:
        yield backend


@pytest.fixture
def store(backend: OpenSearchBackend) -> OpenSearchStore:
    return backend.create(uuid.uuid4().hex, DESCRIPTION)


def name_of(backend: OpenSearchBackend, store: Any) -> str:
    return next(dataset.name for dataset in backend.datasets() if dataset.identity == store.info.identity)


class TestSearching:
    def test_three_shards_rank_as_one(self, store: OpenSearchStore) -> None:
        """By the statistics of all of them, and by exact lengths, which Lucene keeps in one byte."""
        documents = [
            Document(document.id, f"{document.text} {'ballast ' * number}")
            for number, document in enumerate(odd_documents(300))
        ]
        store.write(documents)
        for query in ("signal lamp bridge", "мост 信号灯", "river"):
            answer = store.search([StoreQuery(query, depth=300)])[0]
            scores = {answer.documents[key].id: score for key, score in answer.rankings[WORDS]}
            assert scores == {id_: pytest.approx(score, rel=1e-5) for id_, score in bm25(documents, query).items()}

    def test_lengths_change_in_another_process(self, backend: OpenSearchBackend, store: OpenSearchStore) -> None:
        documents = [Document(str(number), "lamp " + "ballast " * number) for number in range(100)]
        store.write(documents[:30])
        other_store = backend.open(name_of(backend, store))
        assert other_store is not None
        other_store.search([StoreQuery("lamp", depth=5)])
        store.write(documents[30:])
        time.sleep(1.1)
        answer = other_store.search([StoreQuery("lamp", depth=100)])[0]
        assert dict(answer.rankings[WORDS]) == pytest.approx(bm25(documents, "lamp"), rel=1e-5)

    def test_filters_at_the_limits_of_terms(self, store: OpenSearchStore) -> None:
        long, longer, key = "б" * 150, "б" * 151, "к" * 5000
        documents = [
            Document("1", "x", {"a": long}),
            Document("2", "x", {"a": longer}),
            Document("3", "x", {"a": longer + "a", key: 1}),
            Document("4", "x", {"a": ["б", 2**53 + 1]}),
            *(Document(f"long {size}", "x", {"b": "в" * size + "конец"}) for size in (140, 150, 846, 990, 1000, 1850)),
        ]
        store.write(documents)
        for condition in (
            *(
                Equals("a", long),
                Equals("a", longer),
                Equals("a", 2**53),
                Equals(key, 1),
                Exists(key),
                Exists(key[:-1]),
            ),
            *(Range("a", gt=long), Range("a", gte=long), Range("a", lt=long), Range("a", gt="б", lte=long)),
            *(EndsWith("b", ending) for ending in ("конец", "", "конеЦ", "коне", "в" * 145 + "конец", "ва" + "конец")),
            *(EndsWith("b", "ВКОНЕЦ", True), EndsWith("b", "в", True)),
        ):
            assert store.count(condition) == sum(condition.matches(document.metadata) for document in documents), str(
                condition
            )[:80]
        with pytest.raises(errors.UnmetNeedError, match="150"):
            store.count(Range("a", gt=longer))

    def test_filters_as_deep_as_they_go(self, store: OpenSearchStore) -> None:
        store.write([Document("1", "x", {"a": 1})])
        deep: Any = Equals("a", 1)
        while deep.depth < 63:
            deep = And((deep, Exists("a")))
        assert store.count(deep) == 1


class TestRoundTrips:
    def test_a_search_is_two(self, opensearch: Cluster, store: OpenSearchStore, backend: OpenSearchBackend) -> None:
        """Both lists with their documents, and the scores of what only the other list has found (B1)."""
        from pointsman.store.opensearch import OpenSearchBackend

        documents = odd_documents(60)
        store.write(documents, vectors_of(documents), EMBEDDER)
        with (
            Proxy(opensearch.ports[0]) as proxy,
            OpenSearchBackend(f"opensearch://127.0.0.1:{proxy.port}/tests") as slow_backend,
        ):
            slow_store = slow_backend.open(name_of(backend, store))
            assert slow_store is not None
            store_query = StoreQuery("red signal lamp", vector_of("red signal lamp"), 50, Not(Equals("rare", True)))
            slow_store.search([store_query])
            proxy.reset()
            answer = slow_store.search([store_query])[0]
            assert proxy.round_trips == 1
            keys = list({key for ranking in answer.rankings.values() for key, _ in ranking})
            assert set(answer.documents) == set(keys)
            scores = slow_store.score([store_query], [keys])[0]
            assert proxy.round_trips == 2
            assert set(scores[WORDS]) == set(scores[NEAR]) == set(keys)
            proxy.reset()
            slow_store.search([store_query] * 50)
            slow_store.score([store_query] * 50, [keys] * 50)
            assert proxy.round_trips <= 4


class TestKeeping:
    def test_words_made_by_other_rules_are_made_anew(self, backend: OpenSearchBackend, store: OpenSearchStore) -> None:
        documents = odd_documents(40)
        store.write(documents, vectors_of(documents), EMBEDDER)
        store._update({"doc": {"analyzer": "old"}})
        reopened_store = backend.open(name_of(backend, store))
        assert reopened_store is not None
        assert reopened_store._record_fields()["analyzer"] != "old"
        assert list(reopened_store.documents()) == documents
        store_query = StoreQuery("signal lamp", vector_of("signal lamp"), 5)
        assert reopened_store.search([store_query])[0].rankings[NEAR] == store.search([store_query])[0].rankings[NEAR]

    def test_lengths_are_added_to_a_dataset_without_them(
        self, backend: OpenSearchBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def old(*arguments: Any) -> dict[str, Any]:
            body = index(*arguments)
            del body["mappings"]["properties"]["length"]
            return body

        monkeypatch.setattr("pointsman.store.opensearch.opensearch_queries.index", old)
        store = backend.create(uuid.uuid4().hex, DESCRIPTION)
        documents = [Document(str(number), "lamp " + "ballast " * number) for number in range(100)]
        store.write(documents)
        store._update({"doc": {"analyzer": "old"}})
        reopened_store = backend.open(name_of(backend, store))
        assert reopened_store is not None
        answer = reopened_store.search([StoreQuery("lamp", depth=100)])[0]
        assert [key for key, _ in answer.rankings[WORDS]] == [document.id for document in documents]

    def test_a_long_write_is_refreshed_once(self, store: OpenSearchStore) -> None:
        """Not each second, since every refresh leaves a segment with a graph of its own to be merged."""

        def refreshes() -> int:
            stats = store._cluster.ask("GET", f"/{store._alias}/_stats/refresh")["_all"]["primaries"]
            return int(stats["refresh"]["external_total"])

        documents = odd_documents(60)
        count, start = refreshes(), time.monotonic()
        with store.writer():
            for number in range(0, 60, 10):
                store.write(documents[number : number + 10], vectors_of(documents[number : number + 10]), EMBEDDER)
                time.sleep(0.6)
            periods = int((time.monotonic() - start) / 30) + 1
            assert refreshes() - count <= 3 * periods  # shards
        assert store.count() == 60

    def test_what_was_computed_during_a_write_is_older_than_it(
        self, backend: OpenSearchBackend, store: OpenSearchStore
    ) -> None:
        """As the write may not have been visible."""
        other_store = backend.open(name_of(backend, store))
        assert other_store is not None
        with store.writer():
            store.write(odd_documents(20))
            number = other_store._record_fields()["seq"]
        assert other_store._record_fields()["seq"] > number
        number = other_store._record_fields()["seq"]
        with store.writer():
            store.write(odd_documents(20))  # which changes nothing
        assert other_store._record_fields()["seq"] == number

    def test_what_a_newer_version_has_written_is_refused(self, backend: OpenSearchBackend, store: Any) -> None:
        store._update({"doc": {"format": 2}})
        with pytest.raises(errors.FormatVersionError, match="format 2"):
            backend.open(name_of(backend, store))

    def test_two_who_write_the_same_document(self, backend: OpenSearchBackend, store: OpenSearchStore) -> None:
        """Neither is lost without a word: the last one's is there, whole."""
        other_store = backend.open(name_of(backend, store))
        assert other_store is not None

        def write(writer: OpenSearchStore, text: str) -> None:
            for number in range(10):
                documents = [Document("shared", f"{text} {number}", {text: number})]
                writer.write(documents, vectors_of(documents), EMBEDDER)

        threads = [threading.Thread(target=write, args=pair) for pair in ((store, "lamp"), (other_store, "post"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (document,) = [document for document in store.get(["shared"]) if document is not None]
        text, number = document.text.split()
        assert document.metadata == {text: int(number)}
        assert store.count() == 1
        assert store.search([StoreQuery(None, vector_of(document.text))])[0].rankings[NEAR][0][1] == pytest.approx(
            1, abs=1e-5
        )

    def test_who_may_only_read_can_search(
        self, opensearch: Cluster, backend: OpenSearchBackend, store: OpenSearchStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A reader makes no request that the role in docs/stores.md does not allow."""
        from opensearchpy import exceptions

        documents = odd_documents(20)
        store.write(documents, vectors_of(documents), EMBEDDER)
        backend.put_record("policy", "", "{}")
        name = next(record.name for record in backend.datasets() if record.identity == store.info.identity)
        with open_backend(opensearch, backend.prefix) as reader:
            perform = reader._cluster.client.transport.perform_request

            def reading(method: str, path: str, *arguments: Any, **options: Any) -> Any:
                if not READS.fullmatch(f"{method} {path}"):
                    raise exceptions.AuthorizationException(403, "security_exception", f"no permissions for {path}")
                return perform(method, path, *arguments, **options)

            monkeypatch.setattr(reader._cluster.client.transport, "perform_request", reading)
            reader_store = reader.open(name)
            assert reader_store is not None
            store_queries = [
                StoreQuery("signal", vector_of("x"), 5, Equals("language", "en")),
                StoreQuery("lamp", vector_of("y"), 5),
            ]
            assert all(lists.documents for lists in reader_store.search(store_queries))
            assert reader_store.score(
                [StoreQuery("signal", vector_of("x"), 5)], [[document.id for document in documents[:3]]]
            )
            assert (
                len(reader_store.get([document.id for document in documents])) == reader_store.count() == len(documents)
            )
            assert reader_store.statistics().sequence == store.statistics().sequence
            assert reader.record("policy") is not None
            for call in (
                lambda: reader_store.write([Document("x", "x")]),
                lambda: reader_store.delete(["d1"]),
                lambda: reader.drop(name),
                lambda: reader.put_record("policy", "", "1"),
            ):
                with pytest.raises(errors.StoreError, match="connect as a user that may do this"):
                    call()
        assert store.count() == len(documents)

    def test_a_dropped_dataset_is_not_made_by_writing_to_it(self, backend: OpenSearchBackend, store: Any) -> None:
        backend.drop(name_of(backend, store))
        with pytest.raises(errors.ReplacedError, match="open it again"):
            store.write([Document("1", "x")])
        assert backend._cluster.ask("GET", f"/{store._alias}", accepted=(404,)) is None


class TestAway:
    def test_it_is_named_and_the_password_is_not(self, caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
        pytest.importorskip("opensearchpy")
        from pointsman.store.opensearch import OpenSearchBackend
        from pointsman.store.opensearch import opensearch_client as cluster

        monkeypatch.setattr(cluster, "PATIENCE", 1.0)
        backend = OpenSearchBackend("opensearch://ann:s3cret%21@127.0.0.1:1/rails")
        start = time.monotonic()
        with caplog.at_level(logging.DEBUG), pytest.raises(errors.StoreUnavailableError) as error_info:
            backend.datasets()
        assert time.monotonic() - start < 60  # of a patience of 1 s: only a clock tells that it ends
        text = " ".join(
            (str(error_info.value), repr(backend), backend.url, caplog.text, str(error_info.value.__cause__))
        )
        assert "opensearch://ann@127.0.0.1:1" in text
        assert "s3cret" not in text
        backend.close()

    def test_serverless_is_refused_in_words(self) -> None:
        pytest.importorskip("opensearchpy")
        from pointsman.store.opensearch import OpenSearchBackend

        with pytest.raises(errors.InputError, match="OpenSearch Serverless, which assigns its own document ids"):
            OpenSearchBackend("opensearch+https://a1b2.eu-west-1.aoss.amazonaws.com:443/rails")

    @pytest.mark.parametrize(
        ("url", "options", "header"),
        [
            ("opensearch://ann:s3cret%21@{}/rails", None, "Basic " + base64.b64encode(b"ann:s3cret!").decode()),
            ("opensearch://{}/rails", {"headers": {"Authorization": "ApiKey abc"}}, "ApiKey abc"),
            ("opensearch://{}/rails", {"http_auth": "signed"}, "AWS4-HMAC-SHA256 Credential=AKID/"),
        ],
    )
    def test_whoever_is_asked_is_told_who_asks(self, url: str, options: Any, header: str) -> None:
        """Basic authentication by the URL, API keys and the signer of AWS by a client of one's own."""
        pytest.importorskip("opensearchpy")
        from opensearchpy import OpenSearch, RequestsHttpConnection

        from pointsman.store.opensearch import OpenSearchBackend

        headers: list[str] = []

        if options is not None and "http_auth" in options:
            pytest.importorskip("botocore")
            from botocore.credentials import Credentials  # type: ignore[import-untyped]
            from opensearchpy import RequestsAWSV4SignerAuth

            signer = RequestsAWSV4SignerAuth(Credentials("AKID", "secret"), "eu-west-1", "es")
            options = {"http_auth": signer, "connection_class": RequestsHttpConnection}
        with answering(headers=headers) as address:
            client = None if options is None else OpenSearch(f"http://{address}", **options)
            with OpenSearchBackend(url.format(address), client=client) as backend:
                assert backend.datasets() == []
        assert headers
        assert headers[0].startswith(header)

    def test_certificates_are_checked_on_both_sides(self, tmp_path: Path, monkeypatch: Any) -> None:
        pytest.importorskip("opensearchpy")
        from pointsman.store.opensearch import OpenSearchBackend
        from pointsman.store.opensearch import opensearch_client as cluster

        monkeypatch.setattr(cluster, "PATIENCE", 0.2)
        files = certificates(tmp_path)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.authority)
        context.load_cert_chain(files.server, files.server_key)
        context.verify_mode = ssl.CERT_REQUIRED
        client_options = f"client_cert={files.client}&client_key={files.client_key}"
        with answering(context=context) as address:
            url = f"opensearch+https://{address}/rails"
            with OpenSearchBackend(f"{url}?ca_certs={files.authority}&{client_options}") as backend:
                assert backend.datasets() == []
            for options, reason in (
                (client_options, "CERTIFICATE_VERIFY_FAILED"),
                (f"ca_certs={files.authority}", "ssl|SSL|reset"),
            ):
                with OpenSearchBackend(f"{url}?{options}") as backend, pytest.raises(errors.StoreError, match=reason):
                    backend.datasets()

    def test_a_busy_cluster_is_asked_again(self) -> None:
        pytest.importorskip("opensearchpy")
        from pointsman.store.opensearch import OpenSearchBackend

        answers = [429, 503, 500]

        with answering(answers) as address, OpenSearchBackend(f"opensearch://{address}") as backend:
            assert backend.datasets() == []
        assert answers == []

    def test_a_node_that_is_behind_is_not_believed(self) -> None:
        """It reports an index as missing that the others have: after a restart, or while a new index becomes known."""
        pytest.importorskip("opensearchpy")
        from pointsman.store.opensearch import OpenSearchBackend

        answers = [404, 404]
        with answering(answers) as address, OpenSearchBackend(f"opensearch://{address}") as backend:
            assert backend.datasets() == []
        assert answers == []

    def test_records_on_a_node_that_is_just_lost_are_asked_for_again(self, store: Any, monkeypatch: Any) -> None:
        """What the cluster answers for some milliseconds, put in its place here."""
        store.write([Document("d", "signal")])
        cluster, paths = store._cluster, []
        ask = cluster.ask

        def ask_after_a_loss(method: str, path: str, *arguments: Any, **options: Any) -> Any:
            paths.append(path)
            if path.endswith("/_mget") and len(paths) == 1:
                return {"docs": [{"_id": "d", "error": {"type": "node_not_connected_exception", "reason": "away"}}]}
            return ask(method, path, *arguments, **options)

        monkeypatch.setattr(cluster, "ask", ask_after_a_loss)
        assert store.get(["d"]) == [Document("d", "signal")]
        assert len(paths) == 2

    def test_a_node_is_killed(self, opensearch: Cluster, backend: OpenSearchBackend, store: OpenSearchStore) -> None:
        """What was acknowledged is there, once; searches go on, complete or marked."""
        documents = odd_documents(60)
        store.write(documents, vectors_of(documents), EMBEDDER)
        health = f"/_cluster/health/{store._alias}"  # a part that is not yet copied would go with its node
        backend._cluster.ask("GET", health, wait_for_status="green")
        traffic = Traffic(store, documents)
        time.sleep(1)
        opensearch.kill(2)
        time.sleep(4)
        opensearch.start(2)
        opensearch.wait(3)
        until = time.monotonic() + 60
        while traffic.searches <= 20 and time.monotonic() < until:  # a busy machine may be slower
            time.sleep(0.1)
        traffic.end()
        assert traffic.searches > 20
        backend._cluster.ask("GET", health, wait_for_status="green")
        acknowledged = traffic.acknowledged_documents
        assert store.get(list(acknowledged)) == list(acknowledged.values())
        ids = store.ids()
        assert len(ids) == len(set(ids)) == store.count()
        assert set(acknowledged) <= set(ids)


class Traffic:
    """Two threads that write and search until the end."""

    def __init__(self, store: OpenSearchStore, documents: list[Document]) -> None:
        self.acknowledged_documents = {document.id: document for document in documents}
        self.searches = self.incomplete = 0
        self._store, self._stored_ids = store, set(self.acknowledged_documents)
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._write, self._search)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self._failures, self._failures[0]
        # In the moment in which a node goes, OpenSearch itself has been seen to leave a part out without counting it.
        assert self.incomplete <= 1 + self.searches // 100, f"{self.incomplete} of {self.searches}"

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.wait(0.05):  # as fast as it goes it would take both cores while the node starts
                work()
        except BaseException as error:  # noqa: BLE001  (told at the end)
            self._failures.append(error)

    def _write(self) -> None:
        number = len(self.acknowledged_documents)
        batch = [Document(f"new {number + n}", f"lamp {number + n}") for n in range(5)]
        try:
            self._store.write(batch, vectors_of(batch), EMBEDDER)
        except errors.StoreUnavailableError:
            return
        self.acknowledged_documents.update((document.id, document) for document in batch)

    def _search(self) -> None:
        answer = self._store.search([StoreQuery("red signal", vector_of("x"), 1000)])[0]
        ids = {answer.documents[key].id for key, _ in answer.rankings[NEAR]}
        self.incomplete += not (answer.degraded or ids >= self._stored_ids)
        self.searches += 1


def test_what_was_deleted_can_be_merged_away(thinned_store: OpenSearchStore) -> None:
    deadline = time.monotonic() + 45
    while time.monotonic() < deadline:
        thinned_store.compact()
        if not thinned_store._cluster.ask("GET", f"/{thinned_store._alias}/_stats/docs")["_all"]["primaries"]["docs"][
            "deleted"
        ]:
            break
        time.sleep(1)
    answer = thinned_store.search([StoreQuery("post lamp", depth=100)])[0]
    scores = {answer.documents[key].id: score for key, score in answer.rankings[WORDS]}
    assert scores == {id_: pytest.approx(score, rel=1e-5) for id_, score in bm25(THIN[:20], "post lamp").items()}


def test_versions_cannot_be_kept_and_that_is_said(backend: OpenSearchBackend) -> None:
    store = backend.create(f"k{uuid.uuid4().hex[:12]}", DESCRIPTION)
    with pytest.raises(errors.UnmetNeedError, match=r"keeps no versions .* have no receipts.* or in PostgreSQL"):
        store.keep_versions(90)
    store.keep_versions(0)
    assert store.statistics().recorded_state is None


def test_versions_are_noted_before_they_are_written(backend: OpenSearchBackend) -> None:
    store = backend.create(uuid.uuid4().hex, DESCRIPTION)
    store.write([Document("a", "a signal")])
    assert VERSIONS not in store.statistics().notes
    store.set_metadata({"a": {"valid_from": "2021-01-01"}})
    assert store.statistics().notes[VERSIONS] == "1"
    other = backend.create(uuid.uuid4().hex, DESCRIPTION)
    other.write([Document("b", "a lamp", {"version_of": "a", "valid_from": "2022-01-01"})])
    assert other.statistics().notes[VERSIONS] == "1"
    assert [document.id for document in other.documents(Exists("version_of"))] == ["b"]
