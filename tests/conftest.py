"""Shared fixtures: where the public test collections are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of public test collections; tests that need it are skipped where it is not."""
    folder = Path(os.environ.get("POINTSMAN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no test collections at {folder}; set POINTSMAN_TEST_DATA")
    return folder
