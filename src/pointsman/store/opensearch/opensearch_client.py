"""The client of a cluster, and the translation of its errors.

A request goes through the transport of all our calls, so one time limit holds for connecting, head and body. If a node
does not answer, the client moves on to the next one. If the cluster is busy (429) or fails for a moment (500 and
above), a request is repeated with growing pauses, for some seconds in total; so all must be safe to repeat.
"""

from __future__ import annotations

import json
import ssl
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

import httpx

from pointsman.tools.errors import (
    ConflictError,
    InputError,
    MissingDependencyError,
    ReplacedError,
    StoreError,
    StoreUnavailableError,
)
from pointsman.tools.network.http_addresses import check_encrypted, is_loopback, one_line, options_of
from pointsman.tools.network.http_calls import BoundedTransport
from pointsman.tools.network.retries import Retries

try:
    from opensearchpy import Connection, OpenSearch, exceptions
except ImportError as error:
    raise MissingDependencyError("opensearch-py", "opensearch", "a workspace in OpenSearch") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

PATIENCE: Final = 10.0  # seconds for which temporary failures are retried
_SECONDS: Final = 60.0  # for a request: connecting, head and body
_CONNECT_SECONDS: Final = 10.0  # of them for connecting; then the next node is tried
_KEPT_OPEN: Final = 32  # connections to a node
_PAUSE: Final = 0.1  # seconds before the second attempt; doubled before each further one
_REPEATS: Final = 3  # of searches lost with a node
_SERVERLESS: Final = (".aoss.amazonaws.com", ".aoss.amazonaws.com.cn")
_UNKNOWN_INDEX: Final = "index_not_found_exception"
_NO_INDEX: Final = frozenset({_UNKNOWN_INDEX, "alias_missing_exception"})
_OPTIONS: Final = frozenset({"insecure", "ca_certs", "client_cert", "client_key", "shards", "replicas", "vectors"})


class ClusterAddress:
    """The parsed URL of a cluster.

    Args:
        url: ``opensearch+https://user:password@host1:9200,host2:9200/prefix?shards=3&replicas=1``, or
            ``opensearch://`` without TLS, on this machine or with ``insecure=true``.

    Raises:
        InputError: it is invalid, or would connect to another machine without encryption.
    """

    def __init__(self, url: str) -> None:
        try:
            url_parts = urlsplit(url)
            user, _, host_names = url_parts.netloc.rpartition("@")
            self.hosts = [_host(host_name) for host_name in host_names.split(",")]
        except ValueError:
            raise InputError(
                "the URL of a cluster cannot be read; give one such as opensearch+https://host1:9200,host2:9200/prefix"
            ) from None  # the error's text may contain a password
        self.options = options_of(url_parts.query, _OPTIONS)
        if serverless := [host["host"] for host in self.hosts if host["host"].endswith(_SERVERLESS)]:
            raise InputError(
                f"{serverless[0]} is OpenSearch Serverless, which assigns its own document ids and delays the "
                "visibility of writes; use a domain of the OpenSearch Service, or your own cluster"
            )
        remote_host = next((host["host"] for host in self.hosts if not is_loopback(host["host"])), None)
        self.secure = check_encrypted(url_parts, remote_host, self.options)
        name, _, password = user.partition(":")
        self.user = (unquote(name), unquote(password)) if user else None
        self.prefix = url_parts.path.strip("/") or "pointsman"
        text = ",".join(f"{_bracket_address(host['host'])}:{host['port']}" for host in self.hosts)
        self.label = f"{url_parts.scheme}://{quote(unquote(name)) + '@' if user else ''}{text}"

    def client(self) -> OpenSearch:
        """Return a client for the cluster.

        Raises:
            InputError: a file of certificates cannot be used.
        """
        return OpenSearch(
            hosts=self.hosts,
            connection_class=NodeConnection,
            http_auth=self.user,
            use_ssl=self.secure,
            certificates=self._certificates(),
            http_compress=not all(is_loopback(host["host"]) for host in self.hosts),
            timeout=_SECONDS,
            max_retries=max(1, len(self.hosts) - 1),
            retry_on_timeout=False,
        )

    def _certificates(self) -> ssl.SSLContext | bool:
        """Return what is trusted, and shown to the cluster; True for the usual certificates."""
        files = {name: self.options.get(name) for name in ("ca_certs", "client_cert", "client_key")}
        if not self.secure or not any(files.values()):
            return True
        try:
            context = ssl.create_default_context(cafile=files["ca_certs"] or Connection.default_ca_certs())
            if files["client_cert"]:
                context.load_cert_chain(files["client_cert"], files["client_key"])
        except OSError as error:  # ssl.SSLError is one
            names = ", ".join(f"{name}={file}" for name, file in files.items() if file)
            raise InputError(f"the certificates of {self.label} cannot be used ({names}): {error}") from None
        return context


class NodeConnection(Connection):
    """Requests to one node; connecting, head and body of each end within one time limit.

    Args:
        http_auth: user and password.
        certificates: what is trusted, and shown to the node; True for the usual certificates.
        options: see `opensearchpy.Connection`.
    """

    def __init__(
        self, *, http_auth: tuple[str, str] | None = None, certificates: ssl.SSLContext | bool = True, **options: Any
    ) -> None:
        super().__init__(**options)
        self.headers.setdefault("accept-encoding", "identity")  # as asked for by ``http_compress``
        self._client = httpx.Client(
            auth=http_auth,
            headers=self.headers,
            timeout=httpx.Timeout(self.timeout, connect=min(self.timeout, _CONNECT_SECONDS)),
            transport=BoundedTransport(
                None, verify=certificates, limits=httpx.Limits(max_keepalive_connections=_KEPT_OPEN)
            ),
            trust_env=False,
        )

    def perform_request(
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        timeout: float | None = None,
        ignore: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], str]:
        """Return status, headers and text of an answer.

        Raises:
            TransportError: the status is an error that is not in ``ignore``, or there is no answer: then it is a
                `opensearchpy.exceptions.ConnectionError`.
        """
        path = f"{self.url_prefix}{url}" + (f"?{urlencode(params)}" if params else "")
        full_url, start = self.host + path, time.monotonic()
        content, sent_headers = body, dict(headers or {})
        if self.http_compress and body:
            content, sent_headers["content-encoding"] = self._gzip_compress(body), "gzip"
        seconds_allowed = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        try:
            answer = self._client.request(
                method, full_url, content=content, headers=sent_headers, timeout=seconds_allowed
            )
            text = answer.content.decode("utf-8", "surrogatepass")
        except (httpx.RequestError, httpx.InvalidURL, UnicodeError) as error:
            self.log_request_fail(method, full_url, path, body, time.monotonic() - start, exception=error)
            raise _connection_error(error) from error
        seconds = time.monotonic() - start
        self._raise_warnings(answer.headers.get_list("warning"))
        if not answer.is_success and answer.status_code not in ignore:
            self.log_request_fail(method, full_url, path, body, seconds, answer.status_code, text)
            self._raise_error(answer.status_code, text, answer.headers.get("content-type"))
        self.log_request_success(method, full_url, path, body, answer.status_code, text, seconds)
        return answer.status_code, answer.headers, text

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _connection_error(error: Exception) -> exceptions.ConnectionError:
    """Return an error of a request as one of the client's, which goes on to the next node unless it was a timeout."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    text = str(error) or type(error).__name__
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return exceptions.SSLError("N/A", text, error)
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return exceptions.ConnectionTimeout("TIMEOUT", text, error)
    return exceptions.ConnectionError("N/A", text, error)


class Cluster:
    """Requests to one cluster.

    Args:
        client: an `opensearchpy.OpenSearch`.
        label: the cluster's location, without a password.
        secret: text that must not appear in an error.
    """

    def __init__(self, client: OpenSearch, label: str, secret: str = "") -> None:
        self.client, self.label, self._secret = client, label, secret

    def __repr__(self) -> str:
        return f"Cluster({self.label!r})"

    def ask(
        self, method: str, path: str, body: object = None, *, accepted: Sequence[int] = (), **parameters: object
    ) -> Any:
        """Return the answer to a request; None if its status is one of ``accepted``.

        Raises:
            StoreUnavailableError: no node answers, or the cluster is busy for too long.
            ConflictError: the data to change was changed by someone else.
            StoreError: any other error of the cluster.
        """
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in parameters.items()}
        retries = Retries(time.monotonic() + PATIENCE, first=_PAUSE, longest=2.0)
        while True:
            try:
                return self.client.transport.perform_request(method, path, params=query or None, body=body)
            except exceptions.TransportError as error:
                is_lagging = error.error == _UNKNOWN_INDEX and self._knows(path)
                pause = retries.pause() if is_lagging or _passing(error) else None
                if pause is None:
                    if error.status_code in accepted:
                        return None
                    raise self.translated(error) from error
            except exceptions.OpenSearchException as error:
                raise self.translated(error) from error
            time.sleep(pause)

    def make_index(self, name: str, body: object, *, accepted: Sequence[int] = ()) -> None:
        """Create an index, and wait until all nodes know it: a node that is behind would report it as missing.

        Raises:
            StoreError: see `ask`.
        """
        self.ask("PUT", f"/{name}", body, accepted=accepted)
        self._wait_for_nodes(name, lambda _: True)

    def add_field(self, name: str, field: str, mapping: Mapping[str, Any]) -> None:
        """Add a field to an index or alias, and wait until all nodes know it.

        Raises:
            StoreError: see `ask`.
        """
        self.ask("PUT", f"/{name}/_mapping", {"properties": {field: mapping}})
        self._wait_for_nodes(
            name, lambda indexes: all(field in index["mappings"].get("properties", {}) for index in indexes.values())
        )

    def _wait_for_nodes(self, name: str, is_known: Callable[[Mapping[str, Any]], bool]) -> None:
        """Wait until each node knows an index in this way, or until patience ends."""
        deadline, count = time.monotonic() + PATIENCE, 0
        nodes = len(getattr(self.client.transport, "hosts", None) or ()) or 1
        while count < nodes and time.monotonic() < deadline:  # requests go to the nodes in turn
            description = self.ask("GET", f"/{name}", accepted=(404,), local=True)
            if description is None or not is_known(description):
                count = 0
                time.sleep(_PAUSE)
            else:
                count += 1

    def _knows(self, path: str) -> bool:
        """Whether there is an index that one node, which is behind the others, has reported as missing."""
        index, _, remainder = path.removeprefix("/").partition("/")
        if not remainder:
            return False  # the request has asked for the index itself
        try:
            self.client.transport.perform_request("GET", f"/{index}")
        except exceptions.OpenSearchException:
            return False
        return True

    def ask_many(self, path: str, lines: Iterable[Mapping[str, Any]], **parameters: object) -> Any:
        """Return the answer to ``_msearch`` or ``_bulk``, sent as a line of JSON per mapping."""
        return self.ask("POST", path, "".join(f"{_encode(line)}\n" for line in lines), accepted=(), **parameters)

    def search_many(self, path: str, lines: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Return the answers to searches of an index, in one request.

        Searches waiting for a failing node are lost with it; another copy answers shortly afterwards, so they are
        repeated.

        Raises:
            StoreError: a search fails; see `ask`.
        """
        lines = list(lines)
        return self._repeat(
            lambda: self.ask_many(f"{path}/_msearch", lines)["responses"],
            lambda response: response.get("status"),
            lambda kind, status: (status or 500) >= 500 or (kind == _UNKNOWN_INDEX and self._knows(f"{path}/_msearch")),
        )

    def get_records(self, path: str, body: Mapping[str, Any]) -> list[Any]:
        """Return the answer to ``_mget`` for each record; those on a node that is just lost are asked for again.

        Raises:
            StoreError: a record cannot be read; see `ask`.
        """
        return self._repeat(
            lambda: self.ask("POST", f"{path}/_mget", body)["docs"],
            lambda record: 404 if record["error"].get("type") in _NO_INDEX else 503,  # an answer has none of its own
            lambda _, status: status == 503,
        )

    def _repeat(
        self,
        ask: Callable[[], Iterable[Any]],
        status_of: Callable[[Mapping[str, Any]], int | None],
        is_passing: Callable[[Any, int | None], bool],
    ) -> list[Any]:
        """Return the parts of an answer, which is asked for again while one fails that may succeed in a moment.

        Args:
            ask: returns the parts.
            status_of: returns the status of a part that has failed.
            is_passing: whether an error of this type and status may not be there in a moment.
        """
        retries = Retries(time.monotonic() + PATIENCE, first=0.3, longest=1.0, most=_REPEATS)
        while True:
            responses = list(ask())
            failure = next((response for response in responses if "error" in response), None)
            if failure is None:
                return responses
            error, status = failure["error"], status_of(failure)
            pause = retries.pause() if is_passing(error.get("type"), status) else None
            if pause is None:
                raise self.complaint(error, status)
            time.sleep(pause)

    def translated(self, error: exceptions.OpenSearchException) -> StoreError:
        """Return an error as one of ours, without a password."""
        text = one_line(str(error), 300)
        if self._secret:
            text = text.replace(self._secret, "***").replace(quote(self._secret, safe=""), "***")
        status = error.status_code if isinstance(error, exceptions.TransportError) else None
        if status == 409:
            return ConflictError(f"{self.label}: it was changed by another process; read it again")
        if (status == 404 and "index_not_found" in text) or "require_alias" in text:
            return self.gone()
        if status in {401, 403}:
            return StoreError(f"{self.label}: {text}; connect as a user that may do this")
        if isinstance(error, exceptions.ConnectionError) or _is_busy(status):
            return StoreUnavailableError(
                f"{self.label} does not answer ({text}); check that it is running and that you have access"
            )
        return StoreError(f"{self.label}: {text}")

    def complaint(self, error: Mapping[str, Any], status: int | None = None) -> StoreError:
        """Return the error reported for one part of a request."""
        if status == 404 and error.get("type") in _NO_INDEX:
            return self.gone()
        causes = error.get("root_cause") or [error]
        kind = StoreUnavailableError if status is not None and status >= 500 else StoreError
        return kind(f"{self.label}: {error.get('type')}: {causes[0].get('reason')!s:.300}")

    def gone(self) -> StoreError:
        """Return the error for a dataset that no longer exists."""
        return ReplacedError(f"{self.label}: the dataset was deleted or recreated; open it again")

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


_encode: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def _host(address: str) -> dict[str, Any]:
    url_parts = urlsplit(f"//{address}")
    if not url_parts.hostname:
        raise ValueError("no host")
    return {"host": url_parts.hostname, "port": url_parts.port or 9200}


def _bracket_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _passing(error: exceptions.TransportError) -> bool:
    """Whether the same request may succeed in a moment."""
    if isinstance(error, exceptions.SSLError):
        return False
    return isinstance(error, exceptions.ConnectionError) or _is_busy(error.status_code)


def _is_busy(status: object) -> bool:
    """Whether the cluster may answer in a moment; while a node goes, searches fail with status 500."""
    return isinstance(status, int) and (status == 429 or status >= 500)
