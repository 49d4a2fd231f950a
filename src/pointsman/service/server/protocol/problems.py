"""Errors as RFC 9457 problem documents: one kind, one slug, one status.

Errors of a request are explained in full; internal errors are only logged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import ValidationError, to_json
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from pointsman.tools import errors
from pointsman.values.reasons import in_language

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem."""

    status: int
    title: str


KINDS: Final[Mapping[str, Kind]] = {
    "malformed": Kind(400, "The request cannot be read"),
    "invalid-input": Kind(422, "The request is invalid"),
    "unauthorized": Kind(401, "A valid key is required"),
    "forbidden": Kind(403, "The key does not allow this"),
    "not-found": Kind(404, "Not found"),
    "method-not-allowed": Kind(405, "Method not allowed"),
    "not-acceptable": Kind(406, "No acceptable response format"),
    "conflict": Kind(409, "The request conflicts with the current state"),
    "gone": Kind(410, "No longer held"),
    "too-large": Kind(413, "The request is too large"),
    "unsupported-media-type": Kind(415, "Unsupported media type"),
    "misdirected": Kind(421, "Unknown host name"),
    "too-many-requests": Kind(429, "Too many requests"),
    "internal": Kind(500, "Internal error"),
    "locked": Kind(503, "Another process is writing"),
    "unavailable": Kind(503, "Temporarily unavailable"),
    "storage-full": Kind(507, "No room is left on the disk"),
}
"""Every kind of problem, by its slug; the ``type`` of a document is ``/problems/<slug>``."""

_BY_STATUS: Final = {kind.status: slug for slug, kind in reversed(tuple(KINDS.items()))}


class HttpProblem(Exception):  # noqa: N818  (the RFC's word)
    """An error that ends a request with a problem document.

    Args:
        slug: one of `KINDS`.
        detail: what is wrong with this request, for its sender.
        headers: headers of the response, such as ``Retry-After``.
        members: further members of the document.
    """

    def __init__(self, slug: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any) -> None:
        super().__init__(detail)
        self.slug, self.detail, self.headers, self.members = slug, detail, dict(headers or {}), members

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return KINDS[self.slug].status

    def document(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document; ``instance`` is the request's id."""
        document: dict[str, Any] = {
            "type": f"/problems/{self.slug}",
            "title": KINDS[self.slug].title,
            "status": self.status,
            "detail": self.detail,
        }
        if request_id is not None:
            document["instance"] = f"urn:request:{request_id}"
        return {**document, **self.members}

    def body(self, request_id: str | None = None) -> bytes:
        """Return the document as bytes to send."""
        return to_json(self.document(request_id))


_ACCEPTED: Final = re.compile(
    r"(?<![\w-])(en|zh|ru)(?:-[\w-]*)?\s*(?:;\s*q\s*=\s*([01](?:\.\d{0,3})?))?\s*(?=,|$)", re.IGNORECASE | re.ASCII
)
_LONGEST_HEADER: Final = 200
_DIFY: Final = "/retrieval"
_OPENAI: Final = "/v1/"


def accepted_language(header: str) -> str:
    """Return the language of ours that a header ``Accept-Language`` likes best; English if it names none.

    >>> accepted_language("zh-CN,zh;q=0.9,en;q=0.8"), accepted_language("de, ru;q=0.5"), accepted_language("*")
    ('zh', 'ru', 'en')
    """
    weights = {"en": 0.0}
    for language, weight in _ACCEPTED.findall(header[:_LONGEST_HEADER]):
        weights.setdefault(language.lower(), 0.0)
        weights[language.lower()] = max(weights[language.lower()], float(weight or 1))
    return max(weights, key=lambda language: weights[language])


def response(
    problem: HttpProblem,
    request_id: str | None = None,
    path: str = "",
    *,
    bearer: bool = True,
    accept_language: str = "",
) -> Response:
    """Return the problem as a response; under paths of other protocols it also has their error members.

    Dify recognises a wrong key by 403 alone, so that is its status there; OpenAI answers an invalid request with
    400.

    Args:
        problem: the problem to report.
        request_id: id of the request.
        path: path of the request.
        bearer: whether the request has a header ``Authorization: Bearer KEY``, right or wrong.
        accept_language: the header of that name: title and detail are in Chinese or Russian for who prefers these.
    """
    status, headers = problem.status, problem.headers
    if (language := accepted_language(accept_language)) != "en":
        problem.detail = in_language(problem.detail, language)
        problem.members["title"] = in_language(KINDS[problem.slug].title, language)
        headers = {**headers, "Content-Language": language, "Vary": "Accept-Language"}
    if path == _DIFY:
        problem.members.update(error_code=_dify_code(problem, bearer=bearer), error_msg=problem.detail)
        if status == 401:
            status, headers = 403, {name: text for name, text in headers.items() if name != "WWW-Authenticate"}
            problem.members["status"] = status
    elif path.startswith(_OPENAI):
        status = problem.members["status"] = 400 if status == 422 else status
        kind = "invalid_request_error" if status < 500 else "server_error"
        parameter = problem.members.pop("param", None)
        problem.members["error"] = {"message": problem.detail, "type": kind, "code": problem.slug, "param": parameter}
    return Response(problem.body(request_id), status, headers=headers, media_type=MEDIA_TYPE)


def _dify_code(problem: HttpProblem, *, bearer: bool) -> int:
    """Return Dify's code: 1001 without a bearer key, 1002 for no access, 2001 for an unknown knowledge.

    For everything else, which has no code there, it is the HTTP status.
    """
    if problem.status in {401, 403}:
        return 1002 if bearer else 1001
    return 2001 if problem.members.get("kind") == "dataset" else problem.status


def of_status(status: int, detail: str, headers: Mapping[str, str] | None = None) -> HttpProblem:
    """Return the problem for an HTTP status."""
    slug = _BY_STATUS.get(status) or ("malformed" if 400 <= status < 500 else "internal")
    return HttpProblem(slug, detail, headers=headers)


def validation_message(error: ValidationError) -> str:
    """Describe a validation error in one line."""
    return "; ".join(
        f"{'.'.join(map(str, detail['loc'])) or 'the value'}: {detail['msg']}"
        for detail in error.errors(include_url=False)[:5]
    )


def of_error(error: BaseException) -> HttpProblem:
    """Convert an error of the library to a problem; internal errors are logged."""
    if isinstance(error, HttpProblem):
        return error
    problem = next((make for kind, make in _OF_ERRORS if isinstance(error, kind)), _unforeseen)(error)
    if isinstance(error, errors.PointsmanError):
        problem.members["error"] = type(error).__name__
    return problem


def add_exception_handlers(app: Starlette) -> None:
    """Let an application of yours, FastAPI or Starlette, answer errors of this library as the service does.

    Every `PointsmanError` that an endpoint raises becomes a problem document (RFC 9457) with its status: 422 for
    invalid input, 503 for a store or model that does not answer. Other errors are left to the application::

        app = FastAPI()
        pointsman.add_exception_handlers(app)
    """

    async def answer(request: Request, error: Exception) -> Response:
        return response(of_error(error), accept_language=request.headers.get("accept-language", ""))

    app.add_exception_handler(errors.PointsmanError, answer)


def unknown_dataset(name: str, visible: Collection[str]) -> HttpProblem:
    """Return the problem for an unknown dataset; it names only the visible ones."""
    choices = f"known: {', '.join(sorted(visible))}" if visible else "there is none yet"
    problem = _no_dataset(name, f"; {choices}")
    problem.members["known"] = sorted(visible)
    return problem


def _no_dataset(name: str, choices: str = "") -> HttpProblem:
    detail = f"there is no dataset named {name!r:.80}{choices}"
    return HttpProblem("not-found", detail, error=errors.UnknownNameError.__name__, kind="dataset", name=name[:80])


def unknown_name(slug: str, error: errors.UnknownNameError) -> HttpProblem:
    """Return the problem for an unknown name of another kind."""
    known_names: dict[str, Any] = {"known": sorted(set(error.known))} if error.looked else {}
    return HttpProblem(slug, str(error), kind=error.kind, name=error.name, **known_names)


def _unforeseen(error: Any) -> HttpProblem:
    log.error("an unexpected error", exc_info=error)
    detail = "see the log under the id of this request"
    return HttpProblem("internal", detail)


def _of_damage(error: Any) -> HttpProblem:
    log.error("the store is damaged: %s", error)
    return HttpProblem("internal", "the store is damaged; the log says more under the id of this request")


def _of_input(error: Any) -> HttpProblem:
    if isinstance(error, errors.UnknownNameError):
        if error.kind == "dataset":  # deleted at this moment; the error may name datasets that are not visible
            return _no_dataset(error.name)
        return unknown_name("invalid-input", error)
    return HttpProblem("conflict" if isinstance(error, errors.UnmetNeedError) else "invalid-input", str(error))


def _of_lock(error: Any) -> HttpProblem:
    is_replaced = isinstance(error, errors.ReplacedError)
    cause = "another process has just deleted or recreated" if is_replaced else "another process is writing to"
    return HttpProblem("locked", f"{cause} this dataset; try again", headers={"Retry-After": "1"})


def _of_store(error: Any) -> HttpProblem:
    log.error("the store does not answer: %s", error)
    return HttpProblem("unavailable", "the store does not answer; see the log", headers={"Retry-After": "1"})


def _of_audit(error: Any) -> HttpProblem:
    log.error("requests that show documents are refused: %s", error)
    return HttpProblem("unavailable", "the audit log cannot be written, so nothing is shown; see the log")


def _of_full_disk(error: Any) -> HttpProblem:
    log.error("a disk is full: %s", error)
    return HttpProblem(
        "storage-full", f"no room is left on the disk; {error.kept}; searching still works; try again later"
    )


def _of_search(error: Any) -> HttpProblem:
    log.error("a search failed in every branch: %s", error)
    failures = {name: type(cause).__name__ for name, cause in error.causes.items()}
    message = "nothing could be searched; see the log"
    return HttpProblem("unavailable", message, headers={"Retry-After": "1"}, failed=failures)


def _of_model(error: Any) -> HttpProblem:
    log.error("a model failed: %s", error)
    return HttpProblem("unavailable", "a required model does not work; see the log")


_OF_ERRORS: Final[tuple[tuple[type[Exception], Callable[[Any], HttpProblem]], ...]] = (
    (
        ClientDisconnect,
        lambda _: HttpProblem("malformed", "the client closed the connection before the end of the body"),
    ),
    (ValidationError, lambda error: HttpProblem("invalid-input", validation_message(error))),
    (errors.AuditError, _of_audit),
    (errors.InputError, _of_input),
    (errors.NotHeldError, lambda error: HttpProblem("gone", str(error), missing=list(error.missing))),
    (errors.ConflictError, lambda error: HttpProblem("conflict", str(error))),
    (errors.LockedError, _of_lock),
    (errors.StorageFullError, _of_full_disk),
    (errors.CorruptStoreError, _of_damage),
    (errors.FormatVersionError, _of_damage),
    (errors.StoreError, _of_store),
    (errors.RetrievalError, _of_search),
    (errors.ModelError, _of_model),
    (errors.MissingDependencyError, _of_model),
)
