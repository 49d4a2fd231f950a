"""Every call of a service, declared once: its method and path, and how its answer is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pointsman.service.client.request_encoding import counts_of, number_of
from pointsman.tools.json_forms import of_form
from pointsman.tools.vectors import decode_vector
from pointsman.values.types import Document, Hit
from pointsman.workspace.passages import SourceText

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pointsman.retrieval.plan.recommended_strategy import Recommendation
    from pointsman.store.store_values import Verification

T = TypeVar("T")

_LIMITS: Final = ("max_batch", "max_documents", "max_body_bytes", "max_request_chars")


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[T]):
    """One call of a service.

    Attributes:
        method: the HTTP method.
        path: relative to the service's address; ``{}`` is the name of a dataset.
        answer: what the answer is, for error messages.
        read: returns the answer's value; an invalid answer raises KeyError, TypeError, ValueError or AttributeError.
        repeatable: whether the request is idempotent.
    """

    method: str
    path: str
    answer: str
    read: Callable[[Any], T]
    repeatable: bool = True


def _limits(answer: Any) -> Mapping[str, int]:
    limits = {name: answer["limits"][name] for name in _LIMITS}
    if not all(isinstance(limit, int) and limit > 0 for limit in limits.values()):
        raise TypeError(f"a limit is not a number: {limits!r:.200}")
    return limits


def _status(answer: Any) -> dict[str, Any]:
    for name in ("name", "description", "indexing_technique"):
        if not isinstance(answer[name], str):
            raise TypeError(f"{name} of a dataset is {answer[name]!r:.80}")
    if answer["documents"] is not None:  # a key for writing only does not learn it
        number_of(answer["documents"])
    return dict(answer)


def _document(answer: Any) -> Document:
    return Document(answer["id"], answer["text"], answer["metadata"])


def _next_page(answer: Any) -> int | None:
    return None if answer["next"] is None else int(answer["next"])


def _recommendation(answer: Any) -> Recommendation:
    from pointsman.retrieval.plan.recommended_strategy import Recommendation

    alternatives = tuple(
        (str(alternative["strategy"]), float(alternative["confidence"])) for alternative in answer["alternatives"]
    )
    name, confidence = str(answer["recommended_strategy"]), float(answer["confidence"])
    return Recommendation(name, confidence, str(answer["reason"]), alternatives)


def _verification(answer: Any) -> Verification:
    from pointsman.store.store_values import Verification

    for name in ("documents", "in_keyword_index", "in_vector_index"):
        number_of(answer[name])
    return of_form(Verification, answer)


def _as_is(answer: Any) -> Any:
    """Return the answer as it is: the caller reads it, or nobody."""
    return answer


# ── the service ──────────────────────────────────────────────────────────────────────────────────────────────────────

LIMITS: Final = Endpoint("GET", "/api/me", "list of limits", _limits)
SEARCH: Final = Endpoint("POST", "/api/search", "answer", _as_is)
SEARCH_MANY: Final = Endpoint("POST", "/api/search_many", "list of answers", _as_is)
EXPLAIN: Final = Endpoint("POST", "/api/explain", "explanation", _as_is)
REPLAY: Final = Endpoint("POST", "/api/replay", "answer", _as_is)
ROUTE: Final = Endpoint("POST", "/api/route", "route", _as_is)
RECOMMEND: Final = Endpoint("GET", "/api/retrieval/recommend_strategy", "recommendation", _recommendation)
SET_POLICY: Final = Endpoint("PUT", "/api/policy", "policy", _as_is)
DELETE_POLICY: Final = Endpoint("DELETE", "/api/policy", "policy", _as_is)
DATASETS: Final = Endpoint(
    "GET", "/api/datasets", "list of datasets", lambda answer: [*map(_status, answer["datasets"])]
)
CREATE: Final = Endpoint("POST", "/api/datasets", "dataset", _status)

# ── a dataset ────────────────────────────────────────────────────────────────────────────────────────────────────────

STATUS: Final = Endpoint("GET", "/api/datasets/{}", "dataset", _status)
DROP: Final = Endpoint("DELETE", "/api/datasets/{}", "dataset", _as_is, repeatable=False)
VERIFY: Final = Endpoint("POST", "/api/datasets/{}/verify", "verification", _verification)
NEAREST: Final = Endpoint(
    "POST", "/api/datasets/{}/nearest", "list of hits", lambda answer: [*map(Hit.from_dict, answer["hits"])]
)
DOCUMENT: Final = Endpoint("GET", "/api/datasets/{}/document", "document", _document)
TEXT: Final = Endpoint("GET", "/api/datasets/{}/text", "text", partial(of_form, SourceText))
COUNT: Final = Endpoint(
    "GET", "/api/datasets/{}/count", "number of documents", lambda answer: number_of(answer["documents"])
)
IDS: Final = Endpoint(
    "GET", "/api/datasets/{}/ids", "page of ids", lambda answer: ([*map(str, answer["ids"])], _next_page(answer))
)
VECTORS: Final = Endpoint(
    "POST",
    "/api/datasets/{}/vectors",
    "list of vectors",
    lambda answer: [None if text is None else decode_vector(str(text)) for text in answer["vectors"]],
)
METADATA_KEYS: Final = Endpoint(
    "GET", "/api/datasets/{}/metadata_keys", "list of keys", lambda answer: [*map(str, answer["keys"])]
)
PAGE: Final = Endpoint(
    "GET",
    "/api/datasets/{}/documents",
    "page of documents",
    lambda answer: ([*map(_document, answer["documents"])], _next_page(answer)),
)
DELETE: Final = Endpoint(
    "DELETE",
    "/api/datasets/{}/documents",
    "number of deletions",
    lambda answer: 0 if answer["deleted"] is None else number_of(answer["deleted"]),
    repeatable=False,
)
SET_METADATA: Final = Endpoint("PATCH", "/api/datasets/{}/documents", "list of numbers", counts_of)
