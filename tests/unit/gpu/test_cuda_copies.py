"""Page-locked memory and events of CUDA, against a replaced driver."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace

import numpy as np
import pytest

from gpu.cuda import copies as cuda_copies
from gpu.cuda import driver as cuda_driver
from support.cuda_driver import replace_driver


@pytest.fixture
def driver(monkeypatch):
    """A driver that gives memory of the C library, knows it, and notes the calls of events."""
    real = pytest.importorskip("cuda.bindings.driver")
    good, unknown = real.CUresult.CUDA_SUCCESS, real.CUresult.CUDA_ERROR_INVALID_VALUE
    replaced = SimpleNamespace(
        CUpointer_attribute=real.CUpointer_attribute, CUmemorytype=real.CUmemorytype, known={}, calls=[]
    )

    def give(size, flags):
        memory = ctypes.create_string_buffer(size)
        replaced.known[ctypes.addressof(memory)] = memory
        replaced.calls.append(("alloc", size, flags))
        return good, ctypes.addressof(memory)

    def free(address):
        del replaced.known[address]
        return (good,)

    def kind_of(which, address):
        inside = any(at <= address < at + len(memory) for at, memory in replaced.known.items())
        return (good, real.CUmemorytype.CU_MEMORYTYPE_HOST) if inside else (unknown, 0)

    def noted(name, *result):
        return lambda *args: replaced.calls.append((name, *map(str, args))) or (good, *result)

    replaced.cuMemHostAlloc, replaced.cuMemFreeHost, replaced.cuPointerGetAttribute = give, free, kind_of
    replaced.cuEventCreate, replaced.cuEventElapsedTime = noted("create", "event"), noted("elapsed", 2.5)
    for name in ("Record", "Synchronize", "Destroy"):
        setattr(replaced, f"cuEvent{name}", noted(name.lower()))
    replaced.cuStreamWaitEvent = noted("wait")
    replace_driver(monkeypatch, replaced)
    return replaced


def test_page_locked_memory_goes_with_its_last_view(driver):
    array = cuda_copies.pinned((3, 4), np.int32)
    assert (array.shape, array.dtype, driver.calls) == ((3, 4), np.int32, [("alloc", 48, 1)])
    array[...] = np.arange(12).reshape(3, 4)
    (memory,) = driver.known.values()
    assert memory.raw == np.arange(12, dtype=np.int32).tobytes()
    row = array[2]
    del array
    gc.collect()
    assert row.tolist() == [8, 9, 10, 11]
    assert driver.known
    del row
    gc.collect()
    assert not driver.known
    assert cuda_copies.pinned(0, np.int8).shape == (0,)


def test_what_ends_outside_page_locked_memory_is_not_page_locked(driver):
    array = cuda_copies.pinned((8,), np.uint8)
    assert cuda_copies.is_pinned(array)
    assert cuda_copies.is_pinned(array[3:])
    assert not cuda_copies.is_pinned(np.zeros(8, np.uint8))
    beyond = np.lib.stride_tricks.as_strided(array[4:], (5,))
    assert not cuda_copies.is_pinned(beyond)


def test_events_are_in_the_stream_that_is_given(driver):
    event, stream = cuda_copies.CudaEvent(), SimpleNamespace(handle=16)
    event.record()
    event.record(stream)
    event.wait()
    event.wait(stream)
    event.synchronize()
    assert event.seconds_since(cuda_copies.CudaEvent()) == 0.0025
    del event
    names = [call[0] for call in driver.calls]
    assert names == [
        "create",
        "record",
        "record",
        "wait",
        "wait",
        "synchronize",
        "create",
        "elapsed",
        *["destroy"] * 2,
    ]
    assert driver.calls[1:5] == [
        ("record", "event", "0"),
        ("record", "event", "16"),
        ("wait", "0", "event", "0"),
        ("wait", "16", "event", "0"),
    ]


def test_a_device_that_failed_is_heard_at_its_events(driver, monkeypatch):
    event = cuda_copies.CudaEvent()
    driver.cuEventSynchronize = lambda _: (SimpleNamespace(name="CUDA_ERROR_ILLEGAL_ADDRESS"),)
    with pytest.raises(cuda_driver.load().LaunchError, match="ILLEGAL_ADDRESS"):
        event.synchronize()
