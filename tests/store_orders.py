"""The suite for our own stores, and whether writers of every kind leave what some order of their steps leaves."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from own_store_suite import OwnStoreConformance
from pointsman.evaluation.conformance.stores.store_samples import EMBEDDER, vector_of
from pointsman.evaluation.conformance.suite_samples import answering
from pointsman.store.store_values import NEAR, Capability
from pointsman.values.types import Document
from write_orders import (
    NEVER,
    State,
    Step,
    described,
    is_some_order,
    or_missing,
    random_step,
    run_at_once,
    state_of,
    word_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.store.base_store import Store


class OrderedStoreConformance(OwnStoreConformance):
    """For our own stores.

    Attributes:
        rounds: the number of rounds of concurrent writers.
    """

    rounds: int = 6

    def test_writers_of_every_kind_leave_what_some_order_leaves(self) -> None:
        """Adding, replacing, embedding later, changing metadata and titles, deleting, reading: as if one by one."""
        store, chance = self._empty(), random.Random(11)
        for number in range(self.rounds):
            scripts = [[random_step(chance, f"{writer}-{number}-{n}") for n in range(3)] for writer in range(3)]
            with answering("writing from three threads"):
                states_before = self._states(store)
                steps = run_at_once(scripts, lambda step: self._do(store, step), lambda: store.get(["1"])[0])
                states_after = self._states(store)
            is_explained = any(
                is_some_order(first, steps, last) for first, last in product(states_before, states_after)
            )
            assert is_explained, f"no order explains it: {described(states_before[0], steps, states_after[0])}"

    def _do(self, store: Store, step: Step) -> str:
        """Do a step on the document "1", and return its answer."""
        kind, *arguments = step
        if kind == "embed" and not store.info.can(Capability.LATER):
            return NEVER
        if kind == "delete":
            return "deleted" if store.delete(["1"]) else "missing"
        if kind == "set":
            return or_missing(lambda: self._set_metadata(store, {"1": arguments[0]}, replace=arguments[1]))
        document = Document("1", *arguments)
        if NEAR not in store.info.scales or kind == "bare":
            return word_of(store.write([document]))
        rows = np.array([vector_of(document.searchable)])
        if kind == "embed":
            return word_of(store.write([document], rows, EMBEDDER, stored_only=True))
        return word_of(store.write([document], rows, EMBEDDER))

    def _states(self, store: Store) -> list[State]:
        """Return the state of the document "1"; two if the store does not tell whether it has a vector."""
        [document] = store.get(["1"])
        keys = list(store.keys(["1"]).values())
        if NEAR in store.info.scales and not store.info.can(Capability.VECTORS):
            return [state_of(document, embedded=has_vector) for has_vector in (False, True)]
        rows: Sequence[Any] = list(store.vectors(keys)) if keys and NEAR in store.info.scales else []
        if document is not None and rows:
            assert np.allclose(rows[0], vector_of(document.searchable), atol=1e-5), (
                f"{document} has the vector of another text"
            )
        return [state_of(document, embedded=len(rows) == 1)]
