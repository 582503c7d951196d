"""`simwarp.memory`: which accesses are valid, and the content of a fault."""

from itertools import pairwise

import numpy as np
import pytest

from reference.errors import ShapeError
from simwarp.faults import (
    DoubleFree,
    MemoryFault,
    Misaligned,
    OutOfBounds,
    ReadOnlyWrite,
    UninitialisedRead,
    UseAfterFree,
)
from simwarp.memory import ALIGNMENT, POISON, Memory
from support.offenders import every_case

WIDTHS = (1, 2, 4, 8)
every_width = pytest.mark.parametrize("width", WIDTHS)
STORE_AND_LOAD = pytest.mark.parametrize("access", ["load", "store"])


@pytest.fixture
def memory():
    return Memory()


def at(*addresses):
    return np.array(addresses, np.uint64)


def filled(memory, size, name, **options):
    allocation = memory.allocate(size, name, **options)
    allocation.fill(np.arange(size).astype(np.uint8))
    return allocation


def access_memory(memory, access, addresses, width):
    dtype = np.dtype(f"u{width}")
    if access == "load":
        return memory.load(addresses, dtype)
    return memory.store(addresses, np.zeros(addresses.size, dtype))


def fault_of(kind, call, *arguments):
    """The raised fault, after checking its fields and its lines of text."""
    with pytest.raises(MemoryFault) as raised:
        call(*arguments)
    fault = raised.value
    assert type(fault) is kind
    what, values, advice = str(fault).splitlines()
    assert what.removeprefix(f"{fault.kind}: ") == fault.what
    assert values.startswith(f"  address {fault.address:#x}: ")
    assert advice == f"help: {fault.advice}"
    return fault


def in_bytes(count):
    return "1 byte" if count == 1 else f"{count} bytes"


def fields(fault):
    return fault.allocation, fault.offset, fault.position


# ----------------------------------------------------------------------------------- good accesses


@every_width
def test_a_load_returns_the_stored_values(memory, width):
    dtype = np.dtype(f"u{width}")
    a = memory.allocate(8 * width, "a")
    addresses = a.base + np.arange(8, dtype=np.uint64) * np.uint64(width)
    values = np.random.default_rng(width).integers(0, 256, 8 * width, np.uint8).view(dtype)
    order = np.array([3, 0, 7, 1, 2, 6, 5, 4])
    assert memory.store(addresses[order], values[order]) is None
    assert a.bytes.tobytes() == values.tobytes()
    assert a.written.all()
    got = memory.load(addresses[order], dtype)
    assert (got.dtype, got.tolist()) == (dtype, values[order].tolist())


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "f2", "f4", "f8"])
def test_values_of_any_type_are_moved_bit_for_bit(memory, dtype):
    values = np.random.default_rng(0).integers(0, 256, 64, np.uint8).view(dtype)
    a = memory.allocate(64, "a")
    addresses = a.base + np.arange(values.size, dtype=np.uint64) * np.uint64(values.itemsize)
    memory.store(addresses, values)
    got = memory.load(addresses, dtype)
    assert got.dtype == np.dtype(dtype)
    assert got.tobytes() == values.tobytes()


def test_words_are_little_endian(memory):
    a = filled(memory, 16, "a")
    assert memory.load(at(a.base + 4), np.uint32).tolist() == [0x07060504]
    assert memory.load(at(a.base + 8), np.uint64).tolist() == [0x0F0E0D0C0B0A0908]
    memory.store(at(a.base), np.array([0xAABBCCDD], np.uint32))
    assert memory.load(a.base + np.arange(4, dtype=np.uint64), np.uint8).tolist() == [0xDD, 0xCC, 0xBB, 0xAA]


def test_many_lanes_may_read_and_write_one_address(memory):
    a = filled(memory, 8, "a")
    assert memory.load(at(*[a.base] * 32), np.uint8).tolist() == [0] * 32
    memory.store(at(*[a.base] * 32), np.arange(100, 132, dtype=np.uint8))
    assert memory.load(at(a.base), np.uint8).tolist() == [131], "the last lane's value stays"


def test_a_loaded_value_is_a_copy(memory):
    a = filled(memory, 16, "a")
    before = memory.load(at(a.base), np.uint32)
    memory.store(at(a.base), np.array([7], np.uint32))
    assert before.tolist() == [0x03020100]


@every_width
def test_an_access_without_lanes_does_nothing(memory, width):
    assert memory.load(at(), f"u{width}").shape == (0,)
    memory.store(at(), np.zeros(0, f"u{width}"))
    a = memory.allocate(16, "a", read_only=True)
    memory.store(at(), np.zeros(0, f"u{width}"))
    assert not a.written.any()


def test_a_vector_access_may_touch_several_allocations(memory):
    a, b, c = (filled(memory, size, name) for name, size in (("a", 16), ("b", 10), ("c", 300)))
    addresses = at(c.base + 256, a.base + 12, b.base + 4, c.base, b.base, a.base)
    assert memory.load(addresses, np.uint32).tolist() == [
        0x03020100, 0x0F0E0D0C, 0x07060504, 0x03020100, 0x03020100, 0x03020100,
    ]  # fmt: skip
    memory.store(addresses, np.arange(1, 7, dtype=np.uint32))
    assert memory.load(addresses, np.uint32).tolist() == [1, 2, 3, 4, 5, 6]
    memory.store(at(a.base, b.base, a.base, b.base), np.array([1, 2, 3, 4], np.uint8))
    assert (a.bytes[0], b.bytes[0]) == (3, 4), "the last lane's value stays, in each of them"


# ------------------------------------------------------------------------------------- allocations


def test_allocations_are_aligned_and_separate(memory):
    sizes = (1, 16, 255, 256, 257, 0, 1000)
    allocations = [memory.allocate(size) for size in sizes]
    assert [a.size for a in allocations] == list(sizes)
    assert all(a.base % ALIGNMENT == 0 for a in allocations)
    for one, next_ in pairwise(allocations):
        assert next_.base >= one.base + one.size + ALIGNMENT
    assert len({a.name for a in allocations}) == len(sizes), "allocations without a name get one of their own"


def test_find_gives_the_allocation_of_a_byte(memory):
    a, none, b = memory.allocate(10, "a"), memory.allocate(0, "none"), memory.allocate(10, "b")
    assert [memory.find(x) for x in (a.base, a.base + 9, b.base, b.base + 9)] == [a, a, b, b]
    assert [memory.find(x) for x in (0, a.base - 1, a.base + 10, none.base, b.base + 10, 2**64 - 1)] == [
        None
    ] * 6


def test_addresses_are_never_used_twice(memory):
    bases = []
    for _ in range(4):
        a = memory.allocate(64, "a")
        bases.append(a.base)
        memory.free(a)
    assert len(set(bases)) == 4


def test_default_names_are_not_reused_after_a_free(memory):
    first, second = memory.allocate(4), memory.allocate(4)
    memory.free(first)
    assert memory.allocate(4).name not in (first.name, second.name)


def test_a_negative_allocation_size_is_refused(memory):
    with pytest.raises(ShapeError, match="-1"):
        memory.allocate(-1)
    assert memory.allocate(0).bytes.size == 0


@pytest.mark.parametrize("start", [1, 16, ALIGNMENT - 1, ALIGNMENT + 8])
def test_a_misaligned_start_of_memory_is_refused(start):
    with pytest.raises(ShapeError, match=str(ALIGNMENT)):
        Memory("global", start)


def test_memory_starts_as_poison(memory):
    a = memory.allocate(10, "a")
    assert a.bytes.tolist() == [POISON] * 10 == [0xA5] * 10
    assert not a.written.any()
    assert (a.bytes.shape, a.written.shape, a.written.dtype) == ((10,), (10,), np.bool_)


@every_case("size", [1, 3, 7, 10, 12, 15, 16, 17, 100, 255, 257])
@every_width
def test_the_last_word_is_accessible_and_the_next_byte_is_not(memory, size, width):
    a = filled(memory, size, "a")
    memory.allocate(64, "next")
    last = size // width - 1
    if last >= 0:
        got = memory.load(at(a.base + last * width), f"u{width}")
        assert got.tobytes() == bytes(i % 256 for i in range(last * width, (last + 1) * width))
        memory.store(at(a.base + last * width), np.zeros(1, f"u{width}"))
    for access in ("load", "store"):
        past = at(*[a.base] * (size >= width), a.base + (last + 1) * width)
        fault = fault_of(OutOfBounds, access_memory, memory, access, past, width)
        assert fields(fault) == ("a", (last + 1) * width, past.size - 1)
        assert (fault.address, fault.width, fault.space) == (int(past[-1]), width, "global")


# -------------------------------------------------------------------------------------- bad bounds


@STORE_AND_LOAD
@every_width
def test_out_of_bounds_names_the_nearest_allocation(memory, access, width):
    a, b = filled(memory, 32, "a"), filled(memory, 64, "b")
    for address, name, offset in (
        (a.base - 8, "a", -8),
        (a.base + 32, "a", 32),
        (a.base + 48, "a", 48),
        (b.base - 16, "b", -16),
        (b.base + 64, "b", 64),
        (b.base + 4096, "b", 4096),
        (1 << 20, "a", (1 << 20) - a.base),
        (2**64 - 8, "b", 2**64 - 8 - b.base),
    ):
        fault = fault_of(OutOfBounds, access_memory, memory, access, at(address), width)
        assert fields(fault) == (name, offset, 0)
        verb = "read" if access == "load" else "write"
        assert fault.what == f"{verb} of {in_bytes(width)} outside every allocation"


def test_out_of_bounds_names_the_distance(memory):
    a = filled(memory, 32, "a")
    base = f"a (32 bytes at {a.base:#x})"
    fault = fault_of(OutOfBounds, access_memory, memory, "load", at(a.base + 36), 4)
    assert fault.values.endswith(f": 4 bytes past the end of {base}")
    fault = fault_of(OutOfBounds, access_memory, memory, "load", at(a.base - 4), 4)
    assert fault.values.endswith(f": 4 bytes before {base}")


def test_an_access_across_the_end_is_described_by_positive_distances(memory):
    memory.allocate(64, "before")
    a = filled(memory, 10, "a")
    fault = fault_of(OutOfBounds, access_memory, memory, "load", at(a.base, a.base + 8), 4)
    assert fields(fault) == ("a", 8, 1)
    assert fault.values.endswith(f": bytes 8 to 11 of a (10 bytes at {a.base:#x}): 2 bytes past its end")
    fault = fault_of(OutOfBounds, access_memory, memory, "store", at(a.base + 9), 2)
    assert fault.values.endswith(f": bytes 9 to 10 of a (10 bytes at {a.base:#x}): 1 byte past its end")


def test_an_access_to_an_empty_space_names_the_space():
    fault = fault_of(OutOfBounds, access_memory, Memory("shared", 0), "load", at(0), 4)
    assert fields(fault) == ("", 0, 0)
    assert (fault.space, fault.values) == ("shared", "address 0x0: there is no shared allocation")


@STORE_AND_LOAD
@pytest.mark.parametrize("bad", range(6))
def test_one_bad_lane_among_several_allocations_is_named(memory, access, bad):
    a, b = filled(memory, 16, "a"), filled(memory, 16, "b")
    addresses = at(b.base, a.base, b.base + 4, a.base + 4, a.base + 8, b.base + 12)
    for address, kind, name, offset in (
        (b.base + 16, OutOfBounds, "b", 16),
        (a.base - 4, OutOfBounds, "a", -4),
        (a.base + 6, Misaligned, "a", 6),
    ):
        with_one_bad = addresses.copy()
        with_one_bad[bad] = address
        assert fields(fault_of(kind, access_memory, memory, access, with_one_bad, 4)) == (name, offset, bad)


@STORE_AND_LOAD
def test_the_first_of_several_bad_lanes_is_named(memory, access):
    a, b = filled(memory, 16, "a"), filled(memory, 16, "b")
    for addresses, kind, first in (
        (at(a.base, a.base + 16, b.base - 4), OutOfBounds, 1),
        (at(a.base, a.base + 2, a.base + 6), Misaligned, 1),
        (at(a.base, b.base, 4, 8), OutOfBounds, 2),
        (at(a.base, b.base, b.base + 2, a.base + 16), Misaligned, 2),
    ):
        assert fault_of(kind, access_memory, memory, access, addresses, 4).position == first


@STORE_AND_LOAD
@pytest.mark.parametrize("order", ["bounds first", "alignment first"])
def test_the_first_bad_lane_is_named_for_mixed_faults(memory, access, order):
    a = filled(memory, 16, "a")
    bad = {"bounds first": [a.base + 16, a.base + 2], "alignment first": [a.base + 2, a.base + 16]}[order]
    kind = {"bounds first": OutOfBounds, "alignment first": Misaligned}[order]
    fault = fault_of(kind, access_memory, memory, access, at(a.base, *bad), 4)
    assert fault.position == 1
    assert fault.address == bad[0]


def test_the_first_bad_lane_is_named_before_a_misaligned_one(memory):
    a = memory.allocate(64, "a")
    a.fill(np.zeros(32, np.uint8))
    fault = fault_of(UninitialisedRead, memory.load, at(a.base, a.base + 32, a.base + 2), np.uint32)
    assert fields(fault) == ("a", 32, 1)


# --------------------------------------------------------------------------------------- alignment


@STORE_AND_LOAD
@every_width
@every_case("offset", range(9))
def test_an_address_must_be_a_multiple_of_the_width(memory, access, width, offset):
    a = filled(memory, 64, "a")
    addresses = at(a.base + 16, a.base + offset, a.base + 8)
    if offset % width == 0:
        access_memory(memory, access, addresses, width)
        return
    fault = fault_of(Misaligned, access_memory, memory, access, addresses, width)
    assert fields(fault) == ("a", offset, 1)
    assert (fault.address, fault.width, fault.space) == (a.base + offset, width, "global")
    assert fault.what == f"misaligned {'read' if access == 'load' else 'write'} of {in_bytes(width)}"
    assert fault.values.endswith(f": byte {offset} of a (64 bytes at {a.base:#x})")


def test_vectors_of_16_bytes_are_checked_as_a_whole(memory):
    a = memory.allocate(72, "a")
    vector = np.arange(8, dtype=np.uint32).view("V16")
    memory.store(at(a.base, a.base + 48), vector)
    np.testing.assert_array_equal(memory.load(at(a.base + 48, a.base), "V16"), vector[::-1])
    for offset, kind in ((8, Misaligned), (64, OutOfBounds), (32, UninitialisedRead)):
        with pytest.raises(kind) as caught:
            memory.load(at(a.base, a.base + 48, a.base + offset), "V16")
        assert (fields(caught.value), caught.value.width) == (("a", offset, 2), 16)


# ---------------------------------------------------------------------------------- use after free


@STORE_AND_LOAD
def test_use_after_free_names_the_freed_allocation(memory, access):
    a = filled(memory, 1024, "a")
    memory.free(a)
    for offset in (0, 512, 1020):
        fault = fault_of(UseAfterFree, access_memory, memory, access, at(a.base + offset), 4)
        assert fields(fault) == ("a (freed)", offset, 0)
        assert fault.check == "freed"
        assert fault.values.endswith("which was freed")


@STORE_AND_LOAD
@pytest.mark.parametrize("offset", [0, 512, 1020])
def test_use_after_free_beside_a_live_allocation_names_the_freed_one(memory, access, offset):
    """The freed allocation contained the address; a nearby live one does not matter."""
    before, a, behind = (filled(memory, 1024, name) for name in ("before", "a", "behind"))
    memory.free(a)
    for live in (before, behind):
        access_memory(memory, access, at(live.base), 4)
    fault = fault_of(UseAfterFree, access_memory, memory, access, at(before.base, a.base + offset), 4)
    assert fields(fault) == ("a (freed)", offset, 1)
    assert "freed" in fault.values


def test_out_of_bounds_beside_a_freed_allocation_names_the_live_one(memory):
    a, b = filled(memory, 64, "a"), filled(memory, 64, "b")
    memory.free(a)
    fault = fault_of(OutOfBounds, access_memory, memory, "load", at(b.base + 64), 4)
    assert fields(fault) == ("b", 64, 0)
    assert "freed" not in fault.values


@STORE_AND_LOAD
def test_use_after_free_names_the_offset(memory, access):
    a = filled(memory, 1024, "a")
    memory.free(a)
    where = f"a (1024 bytes at {a.base:#x}), which was freed"
    for kind, offset, relation in (
        (UseAfterFree, 1020, "byte 1020 of"),
        (OutOfBounds, 1024, "0 bytes past the end of"),
        (OutOfBounds, -8, "8 bytes before"),
    ):
        fault = fault_of(kind, access_memory, memory, access, at(a.base + offset), 4)
        assert fault.values.endswith(f": {relation} {where}")


def test_a_double_free_is_a_fault(memory):
    a, b = filled(memory, 64, "a"), filled(memory, 64, "b")
    memory.free(a)
    fault = fault_of(DoubleFree, memory.free, a)
    assert (fault.address, fault.allocation) == (a.base, "a")
    assert "freed" in fault.values
    assert fault_of(DoubleFree, Memory("shared", 0).free, b).space == "shared"
    assert memory.allocations == [b]


def test_host_access_to_freed_memory_is_a_fault(memory):
    a = filled(memory, 64, "a")
    memory.free(a)
    for use in (lambda: a.bytes, lambda: a.written, lambda: a.fill(np.zeros(1, np.uint8))):
        with pytest.raises(UseAfterFree, match=r"a \(64 bytes at 0x[0-9a-f]+\), which was freed"):
            use()


def test_release_ignores_freed_and_unknown_addresses(memory):
    a, b, c = (filled(memory, 64, name) for name in "abc")
    memory.free(a)
    for base in (a.base, b.base, b.base, b.base + 4, 0):
        memory.release(base)
    assert memory.allocations == [c]
    assert fields(fault_of(UseAfterFree, memory.load, at(b.base), np.uint32)) == ("b (freed)", 0, 0)


@pytest.mark.parametrize("give_back", ["free", "release"])
def test_memory_of_freed_allocations_is_returned(memory, give_back):
    first = memory.allocate(1 << 20, "first")
    memory.free(first)
    for _ in range(1000):  # 1 GiB in total, far more than is kept for faults
        a = memory.allocate(1 << 20, "a")
        if give_back == "free":
            memory.free(a)
        else:
            memory.release(a.base)
    assert memory.allocations == []
    assert fields(fault_of(UseAfterFree, memory.load, at(a.base + 8), np.uint32)) == ("a (freed)", 8, 0)
    fault = fault_of(OutOfBounds, memory.load, at(first.base), np.uint32)
    assert fault.allocation == "a (freed)", "faults remember the last ones only"


# ---------------------------------------------------------------------------- uninitialised memory


@every_width
def test_reading_unwritten_memory_is_a_fault(memory, width):
    a = memory.allocate(64, "a")
    memory.store(at(a.base, a.base + 2 * width), np.zeros(2, f"u{width}"))
    good = at(a.base, a.base + 2 * width)
    memory.load(good, f"u{width}")
    fault = fault_of(
        UninitialisedRead, memory.load, at(*good, a.base + width, a.base + 3 * width), f"u{width}"
    )
    assert fields(fault) == ("a", width, 2)
    assert (fault.width, fault.what) == (width, "read of memory that nothing wrote")


@pytest.mark.parametrize("width", [2, 4, 8])
def test_a_partly_written_word_is_uninitialised(memory, width):
    dtype = f"u{width}"
    for missing in range(width):
        a = memory.allocate(16, "a")
        there = at(*(a.base + i for i in range(width) if i != missing))
        memory.store(there, np.ones(width - 1, np.uint8))
        memory.load(there, np.uint8)
        assert fields(fault_of(UninitialisedRead, memory.load, at(a.base), dtype)) == ("a", 0, 0)
        memory.store(at(a.base + missing), np.ones(1, np.uint8))
        assert memory.load(at(a.base), dtype).tobytes() == b"\x01" * width


def test_a_wide_store_writes_each_of_its_bytes(memory):
    a = memory.allocate(16, "a")
    memory.store(at(a.base + 8), np.zeros(1, np.uint64))
    assert a.written.tolist() == [False] * 8 + [True] * 8
    for width in WIDTHS:
        memory.load(at(a.base + 8), f"u{width}")
        fault_of(UninitialisedRead, memory.load, at(a.base + 8 - width), f"u{width}")


def test_settling_memory_keeps_loaded_values(memory):
    a, b = memory.allocate(10, "a"), memory.allocate(10, "b")
    memory.store(a.base + np.arange(10, dtype=np.uint64), np.zeros(10, np.uint8))
    memory.store(b.base + np.arange(9, dtype=np.uint64), np.zeros(9, np.uint8))
    memory.settle()
    assert memory.load(at(a.base + 8), np.uint16).tolist() == [0]
    assert fields(fault_of(UninitialisedRead, memory.load, at(b.base, b.base + 8), np.uint16)) == ("b", 8, 1)
    memory.store(at(b.base + 9), np.zeros(1, np.uint8))
    memory.settle()
    assert memory.load(at(b.base + 8), np.uint16).tolist() == [0]


def test_the_host_fills_part_of_an_allocation(memory):
    a = memory.allocate(10, "a")
    a.fill(np.array([1, 2, 3, 4], np.uint8), offset=4)
    assert a.bytes.tolist() == [POISON] * 4 + [1, 2, 3, 4] + [POISON] * 2
    assert a.written.tolist() == [False] * 4 + [True] * 4 + [False] * 2
    assert memory.load(at(a.base + 4), np.uint32).tolist() == [0x04030201]
    assert fields(fault_of(UninitialisedRead, memory.load, at(a.base + 8), np.uint16)) == ("a", 8, 0)


@pytest.mark.parametrize(("size", "offset"), [(5, 0), (3, 2), (1, 4), (0, 5), (1, -1)])
def test_a_host_fill_past_the_allocation_is_refused(memory, size, offset):
    a = memory.allocate(4, "a")
    with pytest.raises(ShapeError, match=rf"{size} bytes? from byte {offset} on\n.* has 4 bytes"):
        a.fill(np.zeros(size, np.uint8), offset)
    assert not a.written.any()
    a.fill(np.zeros(0, np.uint8), offset=4)


@pytest.mark.parametrize("order", ["a first", "b first"])
def test_an_unwritten_word_in_one_of_two_allocations_is_named(memory, order):
    a, b = filled(memory, 16, "a"), memory.allocate(16, "b")
    addresses = [a.base, b.base + 4] if order == "a first" else [b.base + 4, a.base]
    fault = fault_of(UninitialisedRead, memory.load, at(*addresses), np.uint32)
    assert fields(fault) == ("b", 4, addresses.index(b.base + 4))


# --------------------------------------------------------------------------------------- read only


@every_width
def test_only_the_host_writes_read_only_memory(memory, width):
    a = filled(memory, 16, "a", read_only=True)
    assert memory.load(at(a.base), f"u{width}").tobytes() == bytes(range(width))
    fault = fault_of(ReadOnlyWrite, memory.store, at(a.base + 8, a.base), np.ones(2, f"u{width}"))
    assert fields(fault) == ("a", 8, 0)
    assert a.bytes.tolist() == list(range(16))


def test_one_read_only_store_among_valid_ones_is_a_fault(memory):
    a, constants = filled(memory, 16, "a"), filled(memory, 16, "constants", read_only=True)
    addresses = at(a.base, a.base + 4, constants.base + 8, a.base + 8)
    assert fields(fault_of(ReadOnlyWrite, memory.store, addresses, np.zeros(4, np.uint32))) == (
        "constants",
        8,
        2,
    )
    assert constants.bytes.tolist() == list(range(16))


# ------------------------------------------------------------------------------------ after a fault


@pytest.mark.parametrize("bad", ["misaligned", "read only"])
def test_a_fault_inside_one_allocation_changes_nothing(memory, bad):
    a = filled(memory, 16, "a", read_only=bad == "read only")
    addresses = at(a.base, a.base + 4, a.base + (6 if bad == "misaligned" else 8))
    with pytest.raises(MemoryFault):
        memory.store(addresses, np.full(3, 0xFFFFFFFF, np.uint32))
    assert a.bytes.tolist() == list(range(16))


@pytest.mark.parametrize("bad", ["bounds", "alignment", "read only"])
def test_a_fault_between_allocations_changes_nothing(memory, bad):
    a, b = filled(memory, 16, "a"), memory.allocate(16, "b")
    constants = filled(memory, 16, "constants", read_only=True)
    address = {"bounds": b.base + 16, "alignment": b.base + 2, "read only": constants.base}[bad]
    with pytest.raises(MemoryFault):
        memory.store(at(a.base, b.base, address), np.full(3, 0xFFFFFFFF, np.uint32))
    assert a.bytes.tolist() == constants.bytes.tolist() == list(range(16))
    assert not b.written.any()


def test_memory_is_usable_after_a_fault(memory):
    a = filled(memory, 16, "a")
    fault_of(OutOfBounds, memory.load, at(a.base + 16), np.uint32)
    fault_of(Misaligned, memory.load, at(a.base + 1), np.uint32)
    assert memory.load(at(a.base), np.uint32).tolist() == [0x03020100]


# ------------------------------------------------------------------------------------ any mixture


def outcome(memory, access, addresses, width):
    """The first fault when lanes access one after the other: (position, fault), or None."""
    for position, address in enumerate(addresses.tolist()):
        allocation = memory.find(address)
        if allocation is None or address + width > allocation.base + allocation.size:
            return position, OutOfBounds
        if address % width:
            return position, Misaligned
        if access == "store" and allocation.read_only:
            return position, ReadOnlyWrite
        offset = address - allocation.base
        if access == "load" and not allocation.written[offset : offset + width].all():
            return position, UninitialisedRead
    return None


@pytest.mark.at_most(2)
@STORE_AND_LOAD
@every_width
def test_random_bad_accesses_name_the_first_lane_and_change_nothing(memory, access, width):
    rng = np.random.default_rng(width)
    full, half = filled(memory, 40, "full"), memory.allocate(42, "half")
    half.fill(np.ones(23, np.uint8), offset=1)
    constants = filled(memory, 24, "constants", read_only=True)
    everything = (full, half, constants)
    met = set()
    for allowed in (everything, (full,), (half,), (constants,), (full, half)):
        for _ in range(150):
            near = rng.integers(0, len(allowed), 4)
            offset = rng.integers(0, 40 // width, 4) * width + rng.choice([0, 0, 0, 0, 0, 0, 0, 0, 1, -8], 4)
            addresses = np.array(
                [allowed[i].base + int(o) for i, o in zip(near, offset, strict=True)], np.uint64
            )
            before = [a.bytes.tobytes() + a.written.tobytes() for a in everything]
            expected = outcome(memory, access, addresses, width)
            if expected is None:
                access_memory(memory, access, addresses, width)
                met.add(None)
                continue
            position, kind = expected
            assert fault_of(kind, access_memory, memory, access, addresses, width).position == position
            assert [a.bytes.tobytes() + a.written.tobytes() for a in everything] == before
            met.add(kind)
    kinds = {None, OutOfBounds, ReadOnlyWrite if access == "store" else UninitialisedRead}
    assert met == kinds | ({Misaligned} if width > 1 else set())
