"""The rights of files for root too, whom they do not hold back otherwise."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

import pytest

Result = TypeVar("Result")

_VERSION: Final = 0x20080522
_OVERRIDING: Final = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextmanager
def rights_hold() -> Iterator[None]:
    """Within the block this thread, and those that it begins, may do to a file what its rights say."""
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root may do everything here")
    head, libc = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION, 0)), ctypes.CDLL(None)
    rights = ctypes.create_string_buffer(24)
    assert libc.capget(head, rights) == 0
    effective, *rest = struct.unpack("=6I", rights.raw[:24])
    assert libc.capset(head, struct.pack("=6I", effective & ~_OVERRIDING, *rest)) == 0
    try:
        yield
    finally:
        assert libc.capset(head, rights.raw[:24]) == 0


def with_rights(function: Callable[..., Result], *arguments: object) -> Result:
    """What a function gives in a process of its own, all of whose threads are held back; this one has begun some."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_held, function, *arguments).result()


def _held(function: Callable[..., Result], *arguments: object) -> Result:
    with rights_hold():
        return function(*arguments)
