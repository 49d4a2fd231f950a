"""Concurrent writers of few documents; `benchmarks/orders.py` runs many more of them, in every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from orders_kit import Orders
from write_orders import Operation, State, is_some_order

STATE: State = ("signal", "{}", True)


def done_step(step: tuple[object, ...], answer: str, start: float, end: float) -> Operation:
    return Operation(step, answer, start, end)


@pytest.mark.parametrize("writer_kind", ["threads", "processes", "services"])
def test_what_writers_at_once_leave_is_what_some_order_leaves(tmp_path: Path, writer_kind: str) -> None:
    orders = Orders(str(tmp_path / "workspace"), writer_kind, seed=3)
    for number in range(10):
        orders.interleave(number)
    orders.close()
    assert orders.violations == []


def test_a_lost_change_is_that_of_no_order() -> None:
    first, second = (done_step(("set", {key: 1}, False), "updated", 0, 2) for key in "ab")
    assert is_some_order(STATE, [first, second], ("signal", '{"a": 1, "b": 1}', True))
    assert not is_some_order(STATE, [first, second], ("signal", '{"b": 1}', True))


def test_a_deleted_document_that_comes_back_is_that_of_no_order() -> None:
    deletion, change = done_step(("delete",), "deleted", 0, 2), done_step(("set", {"a": 1}, False), "updated", 1, 3)
    assert is_some_order(STATE, [deletion, change], None)
    assert not is_some_order(STATE, [deletion, change], ("signal", '{"a": 1}', True))


def test_a_step_that_ended_before_another_began_comes_first() -> None:
    change, deletion = done_step(("set", {"a": 1}, False), "missing", 0, 1), done_step(("delete",), "deleted", 2, 3)
    assert not is_some_order(STATE, [change, deletion], None)
    assert is_some_order(STATE, [change, done_step(("delete",), "deleted", 0.5, 3)], None)
