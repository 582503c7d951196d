"""Atomics of lanes on a common address, combined in one step, equal lane-by-lane execution."""

from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest

import simwarp
from simwarp.engine.memory.accesses import _take_turns
from simwarp.memory import Memory
from simwarp.ptx.forms import spellings
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.kinds import ATOMIC
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.same_address import Runs
from support.offenders import check_each


def shortest(opcodes):
    """The opcodes with the fewest modifiers."""
    fewest = min(opcode.count(".") for opcode in opcodes)
    return [opcode for opcode in opcodes if opcode.count(".") == fewest]


@cache
def opcodes():
    """The atomics of one element."""
    return [
        opcode
        for row in TABLE.rows.values()
        if row.kind is ATOMIC
        for opcode in shortest(spellings(row))
        if not {"v2", "v4", "v8"} & set(opcode.split("."))
    ]


def values(rng, dtype, n, kind):
    """Operands that interact: small numbers, random bits, and extreme floats of the type."""
    if kind == "few":
        return rng.integers(0, 4, n).astype(dtype)
    bits = rng.integers(0, 1 << 64, n, np.uint64, endpoint=False) >> np.uint64(64 - 8 * dtype.itemsize)
    bits = bits.astype(f"u{dtype.itemsize}").view(dtype)
    return bits if dtype.kind != "f" or kind == "any" else rng.normal(size=n).astype(dtype)


def one_by_one(step, cells, where, operands, order, shared):
    """Old values of each access and final memory, with accesses executed in sequence."""
    old, new, cells = np.empty(where.size, cells.dtype), np.empty(where.size, cells.dtype), cells.copy()
    for i in range(where.size) if order is None else order.tolist():
        old[i] = cells[where[i]]
        found = step.function(old[i : i + 1], *(o[i : i + 1] for o in operands), shared=shared)
        new[i] = cells[where[i]] = np.asarray(found).view(cells.dtype)[0]
    return old, new, cells


def same_bits(a, b):
    return a.tobytes() == b.tobytes()


@pytest.mark.at_most(1)
@pytest.mark.parametrize("half", [0, 1])
def test_combined_atomics_equal_one_lane_at_a_time(half):
    check_each(check_runs, opcodes()[half::2])


def check_runs(opcode):
    row, form = TABLE.find(opcode)
    step = SimpleNamespace(row=row, form=form, function=partial(row.function, form))
    dtype, rng = DTYPES[form.T], np.random.default_rng(len(opcode))
    for trial in range(24):
        n, count = int(rng.integers(1, 90)), int(rng.integers(1, 6)) if trial % 4 else 90
        kind = ("few", "any", "usual")[trial % 3]
        allocation = Memory().allocate(count * dtype.itemsize)
        cells, operands = (
            values(rng, dtype, count, kind),
            [values(rng, dtype, n, kind) for _ in row.sources[1:]],
        )
        if trial % 2:  # inc, dec and cas have one common operand
            operands[0][:] = operands[0][0]
        allocation.fill(cells.view(np.uint8))
        where = rng.integers(0, count, n)
        order, shared = rng.permutation(n) if trial % 5 else None, bool(rng.integers(0, 2))
        at = np.uint64(allocation.base) + (where * dtype.itemsize).astype(np.uint64)
        with np.errstate(all="ignore"):
            old, new = _take_turns(step, allocation, at, operands, order, shared)
            expected = one_by_one(step, cells, where, operands, order, shared)
        assert same_bits(old, expected[0])
        assert same_bits(new, expected[1])
        assert same_bits(allocation.view(dtype)[:count], expected[2])


def test_integer_atomics_on_one_address_are_combined():
    """Except inc, dec and cas with several operands, no lane is executed separately."""
    rng = np.random.default_rng(1)
    for opcode in opcodes():
        row, form = TABLE.find(opcode)
        if DTYPES[form.T].kind == "f" or "noftz" in opcode:
            continue
        runs = Runs(np.zeros(40, np.uint64))
        operands = [np.full(40, rng.integers(0, 9), DTYPES[form.T]) for _ in row.sources[1:]]
        _, known = row.together(form, np.ones(1, DTYPES[form.T]), runs, *operands, shared=True)
        assert known.all(), opcode


CONTENDED = """.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 cells) {
.reg .b64 %a; .reg .b32 %r, %i; .reg .pred %p; .reg .f32 %f; ld.param.u64 %a, [cells]; mov.u32 %i, %tid.x;
atom.global.add.u32 %r, [%a], 1; atom.global.inc.u32 %r, [%a+4], 6; atom.global.max.u32 %r, [%a+8], %i;
atom.global.exch.b32 %r, [%a+12], %i; atom.global.cas.b32 %r, [%a+16], 0, %i; cvt.rn.f32.u32 %f, %i;
atom.global.add.f32 %f, [%a+20], %f; red.global.dec.u32 [%a+24], 4; ret; }"""


@pytest.mark.parametrize("schedule", ["lowest pc", "random"])
def test_atomics_of_100000_lanes_on_one_address_are_combined(schedule, monkeypatch):
    turns = []
    original = Runs.turns
    monkeypatch.setattr(
        Runs, "turns", lambda self, left=None: (turns.append(t) or t for t in original(self, left))
    )
    device = simwarp.Device(schedule=schedule)
    cells = device.upload(np.zeros(7, np.uint32))
    device.load(CONTENDED).kernel("k")((100, 1, 1), (1000, 1, 1), cells)
    got = cells.download()
    assert not turns
    assert got[[0, 1, 2]].tolist() == [100_000, 100_000 % 7, 999]
    assert got[5].view(np.float32) == pytest.approx(100 * 999 * 500, rel=1e-3)
    assert got[6] == (5 - 100_000 % 5) % 5


def test_runs_handle_single_accesses_and_distinct_values():
    assert next(iter(Runs(np.zeros(1, np.uint64)).turns())).tolist() == [0]
    assert Runs(np.zeros(3, np.uint64)).scan(np.minimum, np.array([2, 1, 3])).tolist() == [2, 1, 1]
