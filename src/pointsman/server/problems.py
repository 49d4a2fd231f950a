"""Errors as RFC 9457 problem documents: one kind, one slug, one status.

What is wrong with a request is told in full; what went wrong here is told to the log alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import ValidationError, to_json
from starlette.responses import Response

from pointsman.errors import (
    ConflictError,
    InputError,
    LockedError,
    MissingDependencyError,
    ModelError,
    PointsmanError,
    RetrievalError,
    StoreUnavailableError,
    UnknownNameError,
    UnmetNeedError,
)

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem."""

    status: int
    title: str


KINDS: Final[Mapping[str, Kind]] = {
    "malformed": Kind(400, "The request cannot be read"),
    "invalid-input": Kind(422, "The request cannot be done as asked"),
    "unauthorized": Kind(401, "A valid key is needed"),
    "forbidden": Kind(403, "The key does not allow this"),
    "not-found": Kind(404, "There is no such thing"),
    "method-not-allowed": Kind(405, "The method is not allowed here"),
    "not-acceptable": Kind(406, "No form of the answer is acceptable"),
    "conflict": Kind(409, "What is there does not allow it"),
    "too-large": Kind(413, "The request is too large"),
    "unsupported-media-type": Kind(415, "The body is of the wrong type"),
    "misdirected": Kind(421, "This host is not served here"),
    "too-many-requests": Kind(429, "Too many requests"),
    "internal": Kind(500, "Something went wrong here"),
    "locked": Kind(503, "Another process is writing"),
    "unavailable": Kind(503, "It cannot be answered now"),
}
"""Every kind of problem, by its slug; ``type`` of a document is ``/problems/<slug>``."""

_BY_STATUS: Final = {kind.status: slug for slug, kind in reversed(tuple(KINDS.items()))}


class Problem(Exception):  # noqa: N818  (the RFC's word)
    """A request that ends in a problem document.

    Args:
        slug: of `KINDS`.
        detail: what is wrong with this request, for the person who sent it.
        headers: of the response, such as ``Retry-After``.
        members: further members of the document.
    """

    def __init__(self, slug: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any) -> None:
        super().__init__(detail)
        self.slug, self.detail, self.headers, self.members = slug, detail, dict(headers or {}), members

    @property
    def status(self) -> int:
        """The HTTP status."""
        return KINDS[self.slug].status

    def document(self, request_id: str | None = None) -> dict[str, Any]:
        """The problem document; ``instance`` is the request's id."""
        found: dict[str, Any] = {
            "type": f"/problems/{self.slug}",
            "title": KINDS[self.slug].title,
            "status": self.status,
            "detail": self.detail,
        }
        if request_id is not None:
            found["instance"] = f"urn:request:{request_id}"
        return {**found, **self.members}

    def body(self, request_id: str | None = None) -> bytes:
        """The document as it is sent."""
        return to_json(self.document(request_id))


_DIFY: Final = "/retrieval"
_OPENAI: Final = "/v1/"


def response(problem: Problem, request_id: str | None = None, path: str = "") -> Response:
    """The problem as a response; under the paths of other protocols it says the same in their members too.

    Args:
        problem: what went wrong.
        request_id: of the request.
        path: of the request.
    """
    if path == _DIFY:
        problem.members.update(error_code=_dify_code(problem), error_msg=problem.detail)
    elif path.startswith(_OPENAI):
        kind = "invalid_request_error" if problem.status < 500 else "server_error"
        problem.members["error"] = {"message": problem.detail, "type": kind, "code": problem.slug, "param": None}
    return Response(problem.body(request_id), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def _dify_code(problem: Problem) -> int:
    """The code that Dify suggests: 1002 not allowed in, 2001 no such knowledge; else the HTTP status."""
    if problem.status in {401, 403}:
        return 1002
    return 2001 if problem.members.get("kind") == "dataset" else problem.status


def of_status(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    """The problem of an HTTP status."""
    slug = _BY_STATUS.get(status) or ("malformed" if 400 <= status < 500 else "internal")
    return Problem(slug, detail, headers=headers)


def told(error: ValidationError) -> str:
    """What is wrong with a value of the wrong shape, in one line."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'the value'}: {one['msg']}" for one in error.errors(include_url=False)[:5]
    )


def of_error(error: BaseException) -> Problem:
    """The problem that an error of the library is to whoever asked; one that is ours to mend goes to the log."""
    if isinstance(error, Problem):
        return error
    made = next((made for kind, made in _OF_ERRORS if isinstance(error, kind)), _unforeseen)(error)
    if isinstance(error, PointsmanError):
        made.members["error"] = type(error).__name__
    return made


def unknown_dataset(name: str, visible: Collection[str]) -> Problem:
    """There is no such dataset, for somebody who may know of these."""
    known = f"known: {', '.join(sorted(visible))}" if visible else "there is none yet"
    detail = f"there is no dataset named {name!r:.80}; {known}"
    error = UnknownNameError.__name__
    return Problem("not-found", detail, error=error, kind="dataset", name=name[:80], known=sorted(visible))


def _unforeseen(error: Any) -> Problem:
    log.error("an error that nobody has foreseen", exc_info=error)
    more = "the log says more under the id of this request"
    return Problem("internal", f"the store is damaged; {more}" if isinstance(error, PointsmanError) else more)


def _of_input(error: Any) -> Problem:
    if isinstance(error, UnknownNameError):
        if error.kind == "dataset":  # gone this very moment; which others there are is not for everybody
            return unknown_dataset(error.name, ())
        return Problem("invalid-input", str(error), kind=error.kind, name=error.name, known=sorted(set(error.known)))
    return Problem("conflict" if isinstance(error, UnmetNeedError) else "invalid-input", str(error))


def _of_lock(_: Any) -> Problem:
    return Problem("locked", "another process is writing to this dataset; try again", headers={"Retry-After": "1"})


def _of_store(error: Any) -> Problem:
    log.error("the store does not answer: %s", error)
    return Problem("unavailable", "the store does not answer; the log says why", headers={"Retry-After": "1"})


def _of_search(error: Any) -> Problem:
    log.error("a search failed in every branch: %s", error)
    failed = {name: type(cause).__name__ for name, cause in error.causes.items()}
    told = "nothing could be searched; the log says why"
    return Problem("unavailable", told, headers={"Retry-After": "1"}, failed=failed)


def _of_model(error: Any) -> Problem:
    log.error("a model failed: %s", error)
    return Problem("unavailable", "a model that this needs does not work; the log says why")


_OF_ERRORS: Final[tuple[tuple[type[Exception], Callable[[Any], Problem]], ...]] = (
    (ValidationError, lambda error: Problem("invalid-input", told(error))),
    (InputError, _of_input),
    (ConflictError, lambda error: Problem("conflict", str(error))),
    (LockedError, _of_lock),
    (StoreUnavailableError, _of_store),
    (RetrievalError, _of_search),
    (ModelError, _of_model),
    (MissingDependencyError, _of_model),
)
