"""What a launch, an allocation, a free and an access cost does not grow with the arrays that are live.

Counted are calls of Python functions and bytes that are allocated, not seconds.
"""

import sys
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import simwarp
from simwarp import Device
from simwarp.allocation import Allocation
from simwarp.memory import Memory
from support.python_calls import calls_of

FEW, MANY = 10, 3000
STORE = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry store(.param .u64 p)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
"""


def bytes_of(work):
    """The most bytes that are allocated at once, beside those from before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def of_arrays(count):
    memory = Memory()
    return memory, [memory.allocate(16, f"array {i}") for i in range(count)]


def read_two(count):
    memory, arrays = of_arrays(count)
    addresses = np.array([arrays[0].base, arrays[-1].base], np.uint64)
    return lambda: memory.read(addresses, np.dtype(np.uint32))


def free_and_allocate(count):
    memory, arrays = of_arrays(count)

    def work():
        memory.free(arrays[count // 2])
        memory.allocate(16)

    return work


def launch(count):
    device = Device()
    array = device.allocate((32,), np.uint32)
    others = [device.allocate((8,), np.float32) for _ in range(count)]
    kernel = device.load(STORE).kernel("store")
    kernel(1, 32, array)
    return lambda: (kernel(1, 32, array), others)


def test_a_launch_calls_as_many_functions_among_many_arrays_as_among_few():
    few, many = (calls_of(launch(count)) for count in (FEW, MANY))
    assert many == few


@pytest.mark.parametrize("work", [free_and_allocate, read_two])
def test_memory_copies_as_much_among_many_arrays_as_among_few(work):
    for count in (FEW, MANY):  # the first of each fills caches
        work(count)()
    few, many = (bytes_of(work(count)) for count in (FEW, MANY))
    assert many < few + 1000


def test_all_arrays_are_freed_in_a_constant_number_of_bytes_each():
    memory, arrays = of_arrays(MANY)
    total = sum(bytes_of(lambda array=array: memory.free(array)) for array in arrays[::10])
    rest = [array for array in arrays if not array.freed]
    total += sum(bytes_of(lambda array=array: memory.free(array)) for array in rest)
    assert total < 2000 * MANY
    assert memory.allocations == []


def test_an_array_is_searched_once_for_its_unwritten_bytes(monkeypatch):
    """Each launch of these writes one more piece of an array, from its start on."""
    pieces, seen = 64, []
    memory = Memory()
    array = memory.allocate(pieces << 12)
    find = simwarp.allocation._find_missing
    monkeypatch.setattr(
        simwarp.allocation, "_find_missing", lambda marks: (found := find(marks), seen.append(found))[0]
    )
    for piece in range(pieces):
        assert not array.complete
        start = array.base + (piece << 12)
        memory.store(np.arange(start, start + (1 << 12), 4, dtype=np.uint64), np.zeros(1 << 10, np.uint32))
        memory.settle()
    assert array.complete
    assert seen == [1 << 12] * (pieces - 1) + [None, None]


@pytest.mark.parametrize("cleared", [0, 40, 63])
def test_bits_that_become_undefined_again_are_found_by_the_next_search(cleared):
    memory = Memory()
    array = memory.allocate(64)
    memory.store(array.base + np.arange(48, dtype=np.uint64), np.zeros(48, np.uint8))
    memory.settle()
    memory.store(array.base + np.arange(48, 64, dtype=np.uint64), np.zeros(16, np.uint8))
    memory.forget(np.array([array.base + cleared], np.uint64), np.array([[1]], np.uint8))
    memory.settle()
    assert not array.complete
    memory.store(np.array([array.base + cleared], np.uint64), np.zeros(1, np.uint8))
    memory.settle()
    assert array.complete


def test_marks_that_the_holder_of_a_view_sets_count():
    memory = Memory()
    array = memory.allocate(16)
    memory.settle()
    array.written_bits[:] = 0xFF
    memory.settle()
    assert array.complete


def test_what_other_processes_wrote_counts():
    memory = Memory(shared=True)
    array = memory.allocate(16)
    memory.settle()
    array._written[:] = 0xFF  # as a forked process does, whose notes stay there
    memory.settle()
    assert array.complete


class InterruptedHereError(Exception):
    pass


def interrupted(work, line):
    """Raise in the line of `simwarp.memory` or `simwarp.allocation` that is reached as number ``line``."""
    files = {Path(sys.modules[one.__module__].__file__).name for one in (Memory, Allocation)}
    left = line

    def trace(frame, event, argument):
        nonlocal left
        if Path(frame.f_code.co_filename).name not in files:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise InterruptedHereError
        return trace

    sys.settrace(trace)
    try:
        work()
    except InterruptedHereError:
        return True
    finally:
        sys.settrace(None)
    return False


OPERATIONS = {
    "allocate": lambda memory, array, freed: memory.allocate(16),
    "allocate there": lambda memory, array, freed: memory.allocate(16, at=freed.base),
    "free": lambda memory, array, freed: memory.free(array),
    "release": lambda memory, array, freed: memory.allocations,
    "settle": lambda memory, array, freed: memory.settle(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_table_is_consistent_after_an_interrupt_at_any_line(operation):
    line, goes_on = 0, True
    while goes_on:
        memory, arrays = of_arrays(3)
        freed = memory.allocate(16)
        memory.free(freed)
        memory.store(np.array([arrays[0].base], np.uint64), np.zeros(1, np.uint32))
        if operation == "release":
            memory.release(arrays[1].base)
        goes_on = interrupted(partial(OPERATIONS[operation], memory, arrays[1], freed), line)
        live = memory.allocations
        assert len(live) in (2, 3, 4)
        assert live == sorted(live, key=lambda one: one.base)
        assert {arrays[0], arrays[2]} <= set(live)
        assert not any(one.freed for one in live)
        assert all(memory.find(one.base) is one for one in live)
        memory.settle()
        last = memory.allocate(16)
        assert memory.find(last.base) is last
        for one in memory.allocations:
            memory.free(one)
        assert memory.allocations == []
        line += 1
    assert line > 5
