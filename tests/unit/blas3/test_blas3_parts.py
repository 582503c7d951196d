"""Heap, cache and directory: misuse is reported."""

import pytest

from gpu.blas3.cache import TileCache
from gpu.blas3.heap import Heap
from gpu.blas3.policy_error import PolicyError


def test_a_double_free_is_reported() -> None:
    heap = Heap(1024)
    offset = heap.allocate(1)
    assert offset is not None
    heap.free(offset)
    with pytest.raises(PolicyError, match="offset 0 of the device heap is freed"):
        heap.free(offset)


def test_a_double_release_is_reported() -> None:
    cache: TileCache[str, int] = TileCache(lambda place: None)
    entry = cache.insert("x", 0)
    cache.release(entry)
    with pytest.raises(PolicyError, match="x is released"):
        cache.release(entry)


def test_a_second_insertion_is_reported() -> None:
    cache: TileCache[str, int] = TileCache(lambda place: None)
    cache.insert("x", 0)
    with pytest.raises(PolicyError, match="x is inserted"):
        cache.insert("x", 1)


def test_a_tile_that_is_not_there_cannot_be_dropped() -> None:
    with pytest.raises(PolicyError, match="x is dropped"):
        TileCache[str, int](lambda place: None).drop("x")


def test_the_head_of_a_full_cache_is_evicted() -> None:
    """The paper's loop stops before it has tested the head."""
    cache: TileCache[str, int] = TileCache(lambda place: None)
    only = cache.insert("x", 0)
    cache.release(only)
    assert cache.evict() == "x"
