"""The OpenAPI description: checked in, up to date, and kept by the service under thousands of made-up requests.

``python tests/test_openapi.py`` writes it into ``docs/openapi.json``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from contract_kit import run
from pointsman.service.server.app import OPTIONS, describe

PAGE = Path(__file__).parents[1] / "docs" / "openapi.json"


def description() -> str:
    document = describe(FastAPI(**OPTIONS)).openapi()
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def test_the_description_is_checked_in() -> None:
    assert PAGE.read_text("utf-8") == description(), "run: make docs"


def test_every_operation_has_its_words_and_names() -> None:
    document = json.loads(description())
    operation_ids: set[str] = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            location = f"{method} {path}"
            assert operation["operationId"] not in operation_ids, location
            operation_ids.add(operation["operationId"])
            assert operation["summary"], location
            assert operation["description"], location
            assert all(answer["description"] for answer in operation["responses"].values()), location
            if path not in {"/health", "/ready"}:
                assert {"401", "403", "429"} <= set(operation["responses"]), location


def test_every_reference_leads_somewhere() -> None:
    text = description()
    schemas = json.loads(text)["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= set(schemas)


def test_every_body_is_of_a_type_that_generators_of_clients_read() -> None:
    operations = [operation for path in json.loads(description())["paths"].values() for operation in path.values()]
    bodies = [operation["requestBody"]["content"] for operation in operations if "requestBody" in operation]
    assert len(bodies) > 10
    assert {kind for content in bodies for kind in content} == {"application/json"}


def test_the_examples_fit_their_schemas() -> None:
    from jsonschema import Draft202012Validator

    document = json.loads(description())
    example_count = 0
    for name, schema in document["components"]["schemas"].items():
        for example in schema.get("examples", ()):
            root_schema: dict[str, Any] = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
            assert not list(Draft202012Validator(root_schema).iter_errors(example)), name
            example_count += 1
    assert example_count >= 5


def test_made_up_requests_find_no_difference() -> None:
    """The whole of it: ``benchmarks/contract.py``."""
    request_count, errors, output = run(4, 7, "--phases", "fuzzing")
    assert (errors, output) == (0, "")
    assert request_count >= 50


if __name__ == "__main__":
    PAGE.write_text(description(), "utf-8")
