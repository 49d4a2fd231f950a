"""The options of a search are declared once: every interface derives its own from `SearchRequest`."""

from __future__ import annotations

import inspect
import typing
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import create_model
from typer.testing import CliRunner

import pointsman
from pointsman.cli.shared_options import with_search_options
from pointsman.integrations.mcp.tool_schemas import SearchArguments, schema_of
from pointsman.retrieval.request import OPTIONS, Option, SearchRequest, WorkspaceOptions, declared
from pointsman.service.client import Client, RemoteDataset
from pointsman.service.server import schemas
from pointsman.service.server.protocol.json_form_schemas import option_fields
from pointsman.tools.errors import InputError

SOURCE = Path(pointsman.__file__).parent
NOVELTY = Option(float | None, None, "Prefer hits unlike the others, 0 to 1.", {"ge": 0, "le": 1})


def command_of(options: dict[str, Option]) -> tuple[typer.Typer, list[dict[str, Any]]]:
    """A command with these options, and the calls that it gets."""
    app, calls = typer.Typer(), list[dict[str, Any]]()

    def find(query: str, **options: Any) -> None:
        calls.append({"query": query, **options})

    app.command()(with_search_options(find, options))
    return app, calls


def test_new_field_becomes_an_option() -> None:
    """A field with `Option` metadata is all that a declaration needs."""
    from dataclasses import field, fields

    new_field = field(default=None, metadata={"option": NOVELTY})
    extension = make_dataclass("Extended", [("novelty", float | None, new_field)], bases=(SearchRequest,), frozen=True)
    assert declared(fields(extension)) == {**declared(fields(SearchRequest)), "novelty": NOVELTY}


def test_new_option_appears_on_the_command_line() -> None:
    app, calls = command_of({**OPTIONS, "novelty": NOVELTY})
    runner = CliRunner()
    assert "--novelty" in (text := runner.invoke(app, ["--help"], env={"COLUMNS": "200"}).output)
    assert "Prefer hits unlike the others" in text
    assert runner.invoke(app, ["tea", "--novelty", "0.5", "--no-spelling", "-d", "a", "-d", "b"]).exit_code == 0
    assert calls[0] == {
        **{name: option.default for name, option in OPTIONS.items()},
        "query": "tea",
        "novelty": 0.5,
        "spelling": False,
        "datasets": ["a", "b"],
    }
    assert runner.invoke(app, ["tea", "--novelty", "2"]).exit_code == 2, "the bounds are those of the declaration"


def test_new_option_appears_in_models_of_http_and_mcp() -> None:
    model = create_model("Extended", **option_fields({**OPTIONS, "novelty": NOVELTY}))
    schema = model.model_json_schema()["properties"]["novelty"]
    assert schema["description"] == "Prefer hits unlike the others, 0 to 1."
    assert schema["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 1}


def test_http_mcp_and_command_line_have_exactly_the_declared_options() -> None:
    from pointsman.cli.core_commands import search

    other_names = {"query", "history", "trace", "max_chars"}
    assert schemas.SearchRequest.model_fields.keys() - other_names == OPTIONS.keys()
    assert schemas.RetrievalRequest.model_fields.keys() - other_names == OPTIONS.keys() - {"rerank"} | {"use_rerank"}
    assert schema_of(SearchArguments)["properties"].keys() - other_names == OPTIONS.keys()
    assert inspect.signature(search).parameters.keys() >= OPTIONS.keys()


def test_doors_have_the_declared_defaults_and_types() -> None:
    for name, option in OPTIONS.items():
        assert schemas.SearchOptions.model_fields[name].default == option.default, name
        assert SearchArguments.model_fields[name].default == option.default, name
    assert SearchRequest.of("tea") == SearchRequest.of(
        "tea", 5, {name: option.default for name, option in OPTIONS.items() if name != "k"}
    )


def test_the_types_for_editors_name_exactly_the_declared_options() -> None:
    assert WorkspaceOptions.__annotations__.keys() | {"k"} == OPTIONS.keys()
    for search in (pointsman.Workspace.search, Client.search):
        annotation = inspect.signature(search).parameters["options"].annotation
        assert annotation == "Unpack[WorkspaceOptions]"
    assert inspect.signature(RemoteDataset.search).parameters["options"].annotation == "Unpack[SearchOptions]"


def test_client_sends_every_declared_option() -> None:
    from pointsman.service.client.request_encoding import sent_options

    request_options = sent_options(SearchRequest.of("tea", 3, {"min_relevance": 0.5, "datasets": ["a"]}), "none")
    assert request_options.keys() == OPTIONS.keys() - {"filters"} | {"trace"}
    assert (request_options["k"], request_options["min_relevance"], list(request_options["datasets"])) == (
        3,
        0.5,
        ["a"],
    )


@pytest.mark.parametrize("name", ["min_relevance"])
def test_option_name_occurs_in_at_most_four_files(name: str) -> None:
    """Declared in one, taken into the recipe by two, obeyed in one."""
    files = [path.name for path in SOURCE.rglob("*.py") if name in path.read_text("utf-8")]
    assert len(files) <= 4, files


@pytest.mark.parametrize(("name", "value", "bounds"), [
    ("min_relevance", 1.5, "from 0 to 1"), ("min_relevance", True, "from 0 to 1"),
    ("coverage", 0, "above 0 and below 1"), ("coverage", "0.5", "above 0 and below 1"),
])  # fmt: skip
def test_bounds_are_checked_as_declared(name: str, value: Any, bounds: str) -> None:
    with pytest.raises(InputError, match=f"{name} is a probability {bounds}, or None"):
        SearchRequest.of("tea", 5, {name: value})


def test_kinds_are_types_that_json_has() -> None:
    plain = {str, int, float, bool, list[str], dict[str, Any], type(None)}
    for name, option in OPTIONS.items():
        kinds = typing.get_args(option.kind) or (option.kind,)
        names = [kind for kind in kinds if typing.get_origin(kind) is typing.Literal]
        assert all(kind in plain or isinstance(kind, str) for kind in kinds if kind not in names), name
        assert all(isinstance(value, str) for kind in names for value in typing.get_args(kind)), name
        assert option.help, name
