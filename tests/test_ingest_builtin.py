"""The sources that every machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pointsman.ingest import estimate_tokens, installed_package_documents, own_documents, standard_library_documents
from pointsman.ingest.builtin import MODULES

if TYPE_CHECKING:
    from pathlib import Path


def test_the_standard_library_is_read_without_running_it() -> None:
    documents_by_name = {
        document.title: document
        for document in reversed(
            standard_library_documents(None, ["json", "this", "math", "csv", "datetime", "no_such_module"])
        )
    }
    assert documents_by_name["json.loads"].text.startswith("loads(s, *, cls=None")
    assert documents_by_name["json.loads"].metadata["module"] == "json"
    assert documents_by_name["json.loads"].metadata["kind"] == "function"
    assert documents_by_name["json.loads"].title == "json.loads"
    assert "Deserialize ``s``" in documents_by_name["json.loads"].text
    assert documents_by_name["math.isclose"].text.startswith("isclose(a, b, *")
    assert "csv.reader" in documents_by_name
    assert any(name.startswith("datetime.") for name in documents_by_name)


def test_the_limit_lets_every_module_speak() -> None:
    modules = MODULES[::8]
    documents = standard_library_documents(100, modules)
    assert len({document.id for document in documents}) == len(documents) == 100
    assert len({document.metadata["module"] for document in documents}) > len(modules) * 0.8
    assert documents == standard_library_documents(100, modules)
    assert all(estimate_tokens(document.searchable) <= 480 for document in documents)


def test_installed_packages_describe_themselves() -> None:
    assert 20 < len(installed_package_documents(50)) <= 50
    pages = installed_package_documents(None, per_package=1)
    pytest_pages = [document for document in pages if document.metadata["name"] == "pytest"]
    assert pytest_pages[0].metadata["version"] == pytest.__version__
    assert pytest_pages[0].title.startswith("pytest")


def test_own_pages_come_from_a_checkout_or_the_package(tmp_path: Path) -> None:
    (tmp_path / "docs" / "zh").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Own\n\nText.\n")
    (tmp_path / "docs" / "zh" / "use.md").write_text("# 使用\n\n内容。\n", encoding="utf-8")
    (tmp_path / "docs" / "data.json").write_text("{}")
    assert [document.metadata["source"] for document in own_documents(tmp_path)] == ["README.md", "docs/zh/use.md"]
    assert own_documents(tmp_path / "nowhere")[0].metadata["name"] == "pointsman"
