"""Calls a service: sends requests, retries them while that is safe, and reads the answers, which are checked."""

from __future__ import annotations

import json
import logging
import math
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from pointsman.service.client.client_connections import MOST_TOLD, Failure, Link, Reply, Request
from pointsman.service.client.endpoints import LIMITS
from pointsman.service.client.request_encoding import as_json, encode_parameters, number_of, path_of_dataset, time_limit
from pointsman.tools import errors
from pointsman.tools.errors import InputError, PointsmanError, RetrievalError, ServiceError, UnknownNameError
from pointsman.tools.network.http_addresses import one_line, seconds_of
from pointsman.tools.network.retries import Retries
from pointsman.tools.parallel_calls import DualCall, Mode, Threads, run
from pointsman.values.argument_checks import check_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pointsman.service.client.client_connections import Transport
    from pointsman.service.client.endpoints import Endpoint

_log = logging.getLogger(__name__)

T = TypeVar("T")

_BY_NAME: Final[Mapping[str, type[PointsmanError]]] = {
    **{kind.__name__: kind for kind in (InputError, errors.FilterError, errors.UnmetNeedError, errors.ModelError)},
    **{kind.__name__: kind for kind in (errors.LockedError, errors.StoreError, errors.StorageFullError)},
    **{kind.__name__: kind for kind in (errors.CorruptStoreError, errors.FormatVersionError)},
    "MissingDependencyError": errors.ModelError,  # only the service can install what it lacks
}
"""Errors of the library that a problem may name and that need only a message."""

_BY_SLUG: Final = {
    "invalid-input": InputError,
    "too-large": InputError,
    "locked": errors.LockedError,
    "storage-full": errors.StorageFullError,
}
"""The error for a problem that names no error of the library, by kind."""


class Service:
    """Calls a service, retries requests and raises its problems as errors.

    Args:
        url: see `pointsman.service.client.Client`.
        key: see there.
        timeout: see there.
        retries: see there.
        insecure: see there.
        transport: see there.

    Raises:
        InputError: an argument is invalid, or the key would be sent unencrypted.
    """

    def __init__(
        self, url: str, key: str | None, timeout: float, retries: int, *, insecure: bool, transport: Transport | None
    ) -> None:
        self.timeout, self._retries = time_limit(timeout), check_count(retries, "retries", 0)
        self.link = Link(url, key, insecure=insecure, transport=transport)
        self.url = self.link.url
        self._limits_known: Mapping[str, int] | None = None

    async def limits(self, mode: Mode) -> Mapping[str, int]:
        """Return the service's limits; they are fetched once."""
        if self._limits_known is None:
            self._limits_known = await self.ask(mode, LIMITS)
        return self._limits_known

    def call(self, endpoint: Endpoint[T], dataset: str | None = None, **arguments: Any) -> T:
        """Make a call synchronously; arguments and errors are those of `ask`."""
        return run(self.ask(Threads(), endpoint, dataset, **arguments))

    async def ask(
        self,
        mode: Mode,
        endpoint: Endpoint[T],
        dataset: str | None = None,
        *,
        body: Any = None,
        parameters: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
        seconds: float | None = None,
    ) -> T:
        """Make a call and return what its answer is read as.

        Args:
            mode: how to wait.
            endpoint: which call.
            dataset: the name of the dataset, if the call is about one.
            body: a value to send as JSON; None sends no body.
            parameters: of the URL.
            seconds: for the call with its retries; by default the service's timeout.

        Raises:
            InputError: the dataset's name is not one, or the arguments cannot be sent.
            PointsmanError: the error that the service reports, or a `ServiceError`.
        """
        path = endpoint.path if dataset is None else endpoint.path.format(path_of_dataset(dataset))
        path += f"?{encode_parameters(parameters)}" if parameters else ""
        content = None if body is None else as_json(body)
        request = Request(endpoint.method, path, content, repeatable=endpoint.repeatable)
        answer = await self._answer(mode, request, self.timeout if seconds is None else seconds)
        with self.reading(endpoint.answer):
            return endpoint.read(answer)

    async def _answer(self, mode: Mode, request: Request, seconds: float) -> Any:
        """Return the response's JSON; the request is retried while that helps, is safe and time remains."""
        link, deadline = self.link, time.monotonic() + seconds
        retries = self.retries(deadline)
        while True:
            reply = await mode.one(
                DualCall(partial(link.exchange, request, deadline), partial(link.aexchange, request, deadline))
            )
            pause = self.pause(reply, request, retries)
            if pause is None:
                return self._read(reply)
            await mode.one(DualCall(partial(time.sleep, pause), partial(anyio.sleep, pause)))

    def retries(self, deadline: float) -> Retries:
        """Return the further attempts that a request gets until a deadline."""
        return Retries(deadline, first=0.25, longest=math.inf, most=self._retries)

    def pause(self, reply: Reply | Failure, request: Request, retries: Retries) -> float | None:
        """Return the seconds to wait before a retry; None if there is an answer or a retry is pointless."""
        if isinstance(reply, Failure):
            wait, reason = None, reply.title
            if not reply.is_unsent and not (reply.is_broken and request.repeatable):
                return None
        else:
            retry_after = seconds_of(reply.headers.get("retry-after"))
            if reply.status not in {429, 503} or retry_after is None:
                return None
            wait, reason = retry_after, f"status {reply.status}"
        pause = retries.pause(wait)
        if pause is not None:
            _log.info("%s: %s; again in %.1f s", self.url, reason, pause)
        return pause

    def _read(self, reply: Reply | Failure) -> Any:
        """Return the JSON of a response.

        Raises:
            PointsmanError: the response is not JSON, or reports a problem.
        """
        if isinstance(reply, Failure) or reply.status not in {200, 201}:
            raise self.error(reply)
        try:
            return json.loads(reply.content)
        except (ValueError, RecursionError):
            pass
        raise self._error(reply, f"the answer is not JSON: {self.link.mask(reply.content)}")

    def error(self, reply: Reply | Failure) -> PointsmanError:
        """Return the error for a response, or for a missing one."""
        if isinstance(reply, Failure):
            return reply.error(f"{self.url}: {reply.detail}", title=reply.title)
        document = problem_document(reply)
        if document is None:
            redirects = "it redirects, and redirects are not followed; use the final address"
            complaint = (
                f"this is not a Pointsman service's answer: {self.link.mask(reply.content)}; is the address right?"
            )
            return self._error(reply, redirects if 300 <= reply.status < 400 else complaint)
        detail = self.link.mask(str(document.get("detail") or document.get("title")), MOST_TOLD)
        error = None
        if reply.status == 401:
            stale = "it rejects this key, which is mistyped, revoked, expired, or for another workspace"
            detail = (
                stale
                if self.link.has_key
                else "it requires a key; give one to the client, or set POINTSMAN_API_KEY for commands"
            )
        elif reply.status == 403:
            detail = f"the key does not allow this: {detail}"
        else:
            error = _error_of_library(document, detail)
        if error is None:
            return self._error(reply, detail)
        request_id = reply.headers.get("x-request-id")
        error.add_note(f"said by {self.url}" + (f", request {self.link.mask(request_id)}" if request_id else ""))
        return error

    def _error(self, reply: Reply, message: str) -> ServiceError:
        request_id, document = reply.headers.get("x-request-id"), problem_document(reply) or {}
        request_id = request_id and self.link.mask(request_id)
        retry_seconds = seconds_of(reply.headers.get("retry-after"))
        origin = f"status {reply.status}" + (f", request {request_id}" if request_id else "")
        wait = f"; it asks for a retry after {retry_seconds:.0f} s" if retry_seconds else ""
        return ServiceError(
            f"{self.url}: {message}{wait} ({origin})",
            status=reply.status,
            title=self.link.mask(str(document.get("title") or reply.reason)),
            request_id=request_id,
            retry_after=retry_seconds,
        )

    def following(self, next_cursor: int | None, cursor: int) -> int | None:
        """Return where the next page begins; it must lie ahead, else paging would never end."""
        with self.reading("page"):
            if next_cursor is not None and next_cursor <= cursor:
                raise ValueError(f"the next page begins after {next_cursor!r:.80}, this one after {cursor}")
        return next_cursor

    @contextmanager
    def reading(self, answer_name: str) -> Iterator[None]:
        """Report missing fields and wrong types in the block as errors of the service."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            cause = self.link.mask(f"{type(error).__name__}: {error}", 400)
            raise ServiceError(f"{self.url}: the service sent an invalid {answer_name}: {cause}") from None


# ── problems ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def problem_document(reply: Reply) -> dict[str, Any] | None:
    """Return the problem document of a response; None if it has none."""
    if "json" not in reply.headers.get("content-type", ""):
        return None
    try:
        document = json.loads(reply.content)
    except (ValueError, RecursionError):
        return None
    kind = document.get("type") if isinstance(document, dict) else None
    return document if isinstance(kind, str) and "/problems/" in kind else None


def _error_of_library(document: Mapping[str, Any], detail: str) -> PointsmanError | None:
    """Return the library's error for a problem; None for a problem that only a service can have."""
    slug, name = document["type"].rpartition("/")[2], str(document.get("error"))
    kind, names_known, failures = str(document.get("kind")), document.get("known"), document.get("failed")
    if name == "UnknownNameError" or (slug == "not-found" and kind == "document"):
        names = tuple(one_line(str(name)) for name in names_known) if isinstance(names_known, list) else None
        return UnknownNameError(kind, str(document.get("name")), names)
    if name == "NotHeldError" and isinstance(missing := document.get("missing"), list):
        return errors.NotHeldError([one_line(str(reason)) for reason in missing])
    if isinstance(failures, dict) and failures:
        causes = {
            one_line(str(name)): ServiceError(f"{one_line(str(reason))} there") for name, reason in failures.items()
        }
        return RetrievalError(detail, causes)
    error_type = _BY_NAME.get(name) or _BY_SLUG.get(slug)
    return None if error_type is None else error_type(detail)


def reply_of(problem: Any) -> Reply:
    """Convert a problem on a line of a stream to the response that would have reported it.

    Raises:
        KeyError, TypeError, AttributeError: it is not a problem document.
    """
    status = number_of(problem["status"])
    headers = {"content-type": "application/problem+json"}
    if status in {429, 503}:
        headers["retry-after"] = "1"
    instance = problem.get("instance")
    if isinstance(instance, str):
        headers["x-request-id"] = instance.rpartition(":")[2]
    return Reply(status, headers, json.dumps(problem).encode())
