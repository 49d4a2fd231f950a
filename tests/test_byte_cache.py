"""Caches that share one limit of bytes."""

from __future__ import annotations

import gc
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pointsman import Document, Settings, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.tools import byte_cache
from pointsman.tools.byte_cache import ByteCache

KILOBYTE = b"x" * 1000


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Set a limit of ten kilobytes above what other tests have left."""
    former = byte_cache.use()["cache_limit"]
    byte_cache.set_limit(0)  # nothing of others is kept
    byte_cache.set_limit(10_000)
    yield
    byte_cache.set_limit(former)


def test_what_was_used_least_recently_goes_first() -> None:
    cache = ByteCache[int, bytes](len)
    for number in range(7):
        cache[number] = KILOBYTE
    assert cache.get(0) == KILOBYTE  # used: it stays
    cache[7] = KILOBYTE
    assert [number for number in range(8) if cache.get(number) is not None] == [0, 2, 3, 4, 5, 6, 7]


def test_two_caches_draw_on_one_limit() -> None:
    first, second = ByteCache[int, bytes](len), ByteCache[int, bytes](len)
    for number in range(5):
        first[number] = KILOBYTE
        second[number] = KILOBYTE
    assert len(first) + len(second) == 7
    assert first.get(4) == second.get(4) == KILOBYTE
    assert byte_cache.use()["cached"] == 7 * 1400
    assert first.get(0) is second.get(0) is None


def test_a_value_that_is_replaced_counts_once_and_a_large_one_is_kept_until_the_next() -> None:
    cache = ByteCache[str, bytes](len)
    for size in (5000, 10, 2000):
        cache["a"] = b"x" * size
    assert byte_cache.use()["cached"] == 2400
    cache["huge"] = b"x" * 50_000
    assert (cache.get("a"), len(cache.get("huge") or b"")) == (None, 50_000)
    cache["b"] = KILOBYTE
    assert (cache.get("huge"), cache.get("b")) == (None, KILOBYTE)
    cache.clear()
    assert (len(cache), byte_cache.use()["cached"]) == (0, 0)


def test_the_values_of_a_cache_end_with_it() -> None:
    cache = ByteCache[int, bytes](len)
    cache[1] = KILOBYTE
    del cache
    gc.collect()
    assert byte_cache.use()["cached"] == 0


def test_a_cache_ends_without_a_look_at_the_entries_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entries(OrderedDict[Any, Any]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("there may be a hundred thousand")

    monkeypatch.setattr(byte_cache._budget, "entries", Entries())
    cache, other = ByteCache[int, bytes](len), ByteCache[int, bytes](len)
    cache[1] = other[1] = KILOBYTE
    cache.clear()
    assert (cache.get(1), other.get(1)) == (None, KILOBYTE)
    other.clear()


def test_threads_share_a_cache() -> None:
    cache = ByteCache[int, bytes](len)

    def work(seed: int) -> None:
        for number in range(2000):
            cache[(number * seed) % 50] = KILOBYTE
            cache.get((number + seed) % 50)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (3, 7, 11, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert byte_cache.use()["cached"] == len(cache) * 1400 == 7 * 1400


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    cache = ByteCache[int, bytes](len)
    with byte_cache._budget.lock:
        child = os.fork()
        if not child:
            thread = threading.Thread(target=lambda: cache.__setitem__(1, KILOBYTE), daemon=True)
            thread.start()
            thread.join(10)
            os._exit(0 if len(cache) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_views_of_a_dataset_stay_within_the_limit(tmp_path: Path) -> None:
    settings = Settings(cache_megabytes=1)
    with Workspace(tmp_path, embedder=HashingEmbedder(), settings=settings) as workspace:
        workspace.dataset("notes").add(
            Document(f"d{number}", "signal", {"_access": {"allow": [f"group:{number % 8}"]}}) for number in range(400)
        )
        workspace.switch_access(on=True)
        counts = []
        for subset in [*range(1, 256, 9), *range(1, 256, 9)]:
            principals = [f"group:{number}" for number in range(8) if subset >> number & 1]
            counts.append(workspace.search("signal", k=400, principals=principals, refuse=False).hits)
            memory = workspace.status("notes")["memory"] if subset % 10 == 0 else None
            assert memory is None or memory["cached"] <= memory["cache_limit"] == 1 << 20
        assert [len(hits) for hits in counts] == 2 * [50 * subset.bit_count() for subset in range(1, 256, 9)]


def test_a_cache_may_have_a_limit_of_its_own() -> None:
    small, other = ByteCache[int, bytes](len, 2), ByteCache[int, bytes](len)
    other[0] = KILOBYTE
    for number in range(3):
        small[number] = KILOBYTE
        assert small.get(0) == KILOBYTE  # used: it stays
    assert (len(small), small.get(1), other.get(0)) == (2, None, KILOBYTE)
    none = ByteCache[int, bytes](len, 0)
    none[1] = KILOBYTE
    assert (len(none), byte_cache.use()["cached"]) == (0, 3 * 1400)
