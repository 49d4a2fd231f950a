"""The OpenAPI description: checked in, up to date, and kept by the service under thousands of made-up requests.

``python tests/test_openapi.py`` writes it into ``docs/openapi.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from contract_kit import run
from pointsman.server.app import OPTIONS, describe

PAGE = Path(__file__).parents[1] / "docs" / "openapi.json"


def description() -> str:
    found = describe(FastAPI(**OPTIONS)).openapi()
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"


def test_the_description_is_checked_in() -> None:
    assert PAGE.read_text("utf-8") == description(), "run: make docs"


def test_every_operation_has_its_words_and_names() -> None:
    whole = json.loads(description())
    seen: set[str] = set()
    for path, operations in whole["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["operationId"] not in seen, where
            seen.add(operation["operationId"])
            assert operation["summary"], where
            assert operation["description"], where
            assert all(answer["description"] for answer in operation["responses"].values()), where
            if path not in {"/health", "/ready"}:
                assert {"401", "403", "429"} <= set(operation["responses"]), where


def test_the_examples_fit_their_schemas() -> None:
    from jsonschema import Draft202012Validator

    whole = json.loads(description())
    found = 0
    for name, schema in whole["components"]["schemas"].items():
        for example in schema.get("examples", ()):
            rooted: dict[str, Any] = {"$ref": f"#/components/schemas/{name}", "components": whole["components"]}
            assert not list(Draft202012Validator(rooted).iter_errors(example)), name
            found += 1
    assert found >= 5


def test_made_up_requests_find_no_difference() -> None:
    """The whole of it: ``benchmarks/contract.py``."""
    made, errors, told = run(8, 7, "--phases", "fuzzing")
    assert (errors, told) == (0, "")
    assert made >= 100


if __name__ == "__main__":
    PAGE.write_text(description(), "utf-8")
