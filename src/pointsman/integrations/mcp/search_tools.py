"""The tools that search: `search`, `route`, `list_datasets` and `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pointsman.integrations.mcp import answer_values
from pointsman.integrations.mcp import tool_schemas as schemas
from pointsman.integrations.mcp.visible_datasets import id_of
from pointsman.retrieval.stages.written_filters import told_date_column
from pointsman.store.store_values import Capability
from pointsman.tools.audit_log import current_entry
from pointsman.tools.errors import InputError
from pointsman.tools.json_forms import plain_form
from pointsman.values.filters import typed_values
from pointsman.values.wire import answer_to_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel

    from pointsman.integrations.mcp.visible_datasets import Library
    from pointsman.service.server.access.request_access import Access
    from pointsman.values.types import Document
    from pointsman.workspace.dataset import Dataset

_STEPS: Final = 100  # of an explanation; eight datasets with two lists each have about twenty
_SAMPLE: Final = 200  # documents whose metadata is examined
_KEYS: Final = 20  # of a dataset
_KEY_CHARS: Final = 64
_EXAMPLES: Final = 3
_EXAMPLE_CHARS: Final = 40


def search(library: Library, access: Access, arguments: schemas.SearchArguments) -> schemas.SearchAnswer:
    """Find passages that answer a question."""
    context = library.search(access, arguments)
    answer = answer_to_dict(context, library.workspace.place)
    refused = answer["refused"]
    return schemas.SearchAnswer(
        results=[result_of(hit, arguments.max_chars) for hit in answer["hits"]],
        confidence=answer_values.round_score(answer["confidence"]),
        coverage=answer_values.round_score(answer["coverage"]),
        verdict=answer["verdict"],
        refused=refused
        and schemas.Refused(
            reason=answer_values.cut(refused["reason"], answer_values.REASON_CHARS),
            nearest=[result_of(hit, arguments.max_chars) for hit in refused["near_misses"]],
        ),
        query=None if answer["query"] == answer["asked"] else answer_values.cut(answer["query"], schemas.QUERY_CHARS),
        strategy=answer["strategy"],
        reason=answer_values.cut(answer["reason"], answer_values.REASON_CHARS),
        datasets=answer["datasets"][: schemas.MAX_DATASETS],
        degraded=answer_values.log_failures(context.degraded),
        receipt=answer["receipt"],
    )


def result_of(hit: Mapping[str, Any], length: int) -> schemas.Result:
    """Convert a hit, cutting its text to ``length`` characters."""
    text = answer_values.sound(hit["text"])
    return schemas.Result(
        rank=hit["rank"],
        dataset=hit["dataset"],
        id=id_of(hit["dataset"], hit["id"]),
        title=answer_values.cut(answer_values.sound(hit["caption"]), answer_values.TITLE_CHARS),
        url=answer_values.url_of(hit["dataset"], hit["id"], hit["metadata"]),
        score=answer_values.finite(hit["score"]),
        relevance=answer_values.round_score(hit["relevance"]),
        odds=hit["odds"],
        not_in_force=None if hit["not_in_force"] is None else answer_values.sound(hit["not_in_force"]["text"]),
        text=text[:length],
        characters=len(text),
        cut=len(text) > length,
        metadata=answer_values.metadata_of(hit["metadata"]),
    )


def route(library: Library, access: Access, arguments: schemas.RouteArguments) -> BaseModel:
    """Return where and how a search would look."""
    routing = library.workspace.route(arguments.query, library.choose(access, arguments.datasets))
    form = routing.to_dict()
    for section in (form["plan"], form["decision"]):
        if section is not None:
            section["reason"] = answer_values.cut(section["reason"], answer_values.REASON_CHARS)
            section["datasets"] = section["datasets"][: schemas.MAX_DATASETS]
            section["confidence"] = answer_values.round_score(section["confidence"])
    if (decision := form["decision"]) is not None:
        scores = ((name, answer_values.round_score(decision["scores"].get(name))) for name in decision["datasets"])
        decision["scores"] = {name: score for name, score in scores if score is not None}
    return schemas.RouteAnswer(**form)


def list_datasets(library: Library, access: Access, arguments: schemas.ListArguments) -> schemas.ListAnswer:
    """List the datasets that can be searched."""
    substring = (arguments.contains or "").casefold()
    datasets = [
        dataset
        for dataset in library.visible(access)
        if substring in dataset.name.casefold() or substring in dataset.description.casefold()
    ]
    return schemas.ListAnswer(
        datasets=[_describe(library, dataset) for dataset in datasets[: schemas.MAX_DATASETS]], total=len(datasets)
    )


def _describe(library: Library, dataset: Dataset) -> schemas.About:
    """Describe a dataset, and say in the audit log whose values the examples of its keys are."""
    keys, ids = library.keys.get(dataset.store, lambda: keys_of(_sample(dataset)))
    if (entry := current_entry()) is not None:
        entry.add((dataset.name, id_) for id_ in ids)
    date_column = told_date_column(dataset.store, dataset.name, library.workspace.settings.date_columns)
    routes = [schemas.RouteCount(**row) for row in library.workspace.route_counts.rows(dataset.name)]
    return schemas.About(
        name=dataset.name,
        description=answer_values.cut(dataset.description, answer_values.ABOUT_CHARS),
        documents=len(dataset),
        truncations=dataset.truncations,
        search=dataset.indexing_technique,
        date_column=answer_values.cut(date_column, answer_values.ABOUT_CHARS),
        routes=None if library.workspace.access else routes,
        keys=keys,
    )


def _sample(dataset: Dataset) -> list[Document]:
    """Return some documents: spread over all of them if that is cheap, else the first ones."""
    store = dataset.store
    if not store.info.can(Capability.LOCAL):
        return store.page(None, _SAMPLE).documents
    return store.sample(_SAMPLE)


def keys_of(documents: Iterable[Document]) -> tuple[list[schemas.MetadataKey], list[str]]:
    """Return the metadata keys that filters can use, most frequent first, with types, some values, and whose these are.

    Returns:
        The keys, and the ids of the documents that have these values.
    """
    counts: dict[str, int] = {}
    kinds: dict[str, dict[str, None]] = {}
    ids_by_value: dict[str, dict[str | int | float | bool, str]] = {}
    for document in documents:
        for key, value in answer_values.without_root(document.metadata).items():
            typed_items = list(typed_values(value))
            if not typed_items or len(key) > _KEY_CHARS:
                continue
            name = answer_values.sound(key)
            counts[name] = counts.get(name, 0) + 1
            kinds.setdefault(name, {}).update((str(kind), None) for kind, _ in typed_items)
            examples = ids_by_value.setdefault(name, {})
            for item in value if isinstance(value, list | tuple) else [value]:
                if isinstance(item, str | int | float) and len(examples) < _EXAMPLES:
                    examples.setdefault(_example(item), document.id)
    names = sorted(counts, key=lambda name: -counts[name])[:_KEYS]
    keys = [
        schemas.MetadataKey(key=name, types=sorted(kinds[name]), examples=list(ids_by_value[name])) for name in names
    ]
    return keys, list(dict.fromkeys(id_ for name in names for id_ in ids_by_value[name].values()))


def _example(value: str | float) -> str | int | float:
    if isinstance(value, str):
        return answer_values.cut(answer_values.without_folder(value), _EXAMPLE_CHARS)
    return str(value) if abs(value) >= 2**53 else value


def explain(library: Library, access: Access, arguments: schemas.ExplainArguments) -> BaseModel:
    """Explain why a document is, or is not, among the results."""
    dataset_name, document_id = library.split(access, arguments.id)
    if dataset_name is not None and arguments.datasets is not None and dataset_name not in arguments.datasets:
        raise InputError(f"{arguments.id!r:.80} is not in one of the datasets to search; add {dataset_name!r} there")
    form = plain_form(library.search(access, arguments).explain(document_id, dataset_name))
    for step in form["steps"]:
        step.update({name: answer_values.round_score(step[name]) for name in ("score", "lowest")})
        step["reason"] = answer_values.cut(step["reason"] or "", answer_values.REASON_CHARS) or None
    name = form["dataset"]
    id_ = answer_values.sound(document_id) if name is None else id_of(name, document_id)
    summary = answer_values.cut(form["summary"], answer_values.REASON_CHARS)
    return schemas.ExplainAnswer(**{**form, "id": id_, "summary": summary, "steps": form["steps"][:_STEPS]})
