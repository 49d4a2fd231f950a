"""How the tests themselves are run."""

from __future__ import annotations

import os

import pytest


def test_the_tests_of_a_file_share_a_process(request: pytest.FixtureRequest) -> None:
    """Else they would meet in module fixtures, and a cluster would be started in each process."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process runs all tests")
    assert request.node.nodeid.endswith(f"@{request.path.name}"), "run with --dist loadgroup"
