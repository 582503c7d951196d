"""PTX rows against their scalar twins: one warp of operands at a time, so that a failure shrinks.

`tests/unit/ptx/test_ptx_rows.py` crosses the edges of every form.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simwarp.lab.evidence.forms import required
from simwarp.lab.evidence.operands import FLOATS, edges, width
from simwarp.lab.evidence.probe import BLOCK
from simwarp.ptx.instructions import ROWS, TABLE
from simwarp.ptx.kinds import MATRIX, MATRIX_LOAD, MATRIX_STORE, PURE, STORE, WARP
from support import run_ptx_rows as rows


def words(column):
    """Operand words of a column, edges more often."""
    some = list(edges(column.type, column.amount))
    return st.sampled_from(some) | st.integers(0, (1 << width(column.type)) - 1)


def computed(*kinds):
    twins = {**rows.TWINS, **rows.BOUNDED}
    named = [name for name, row in ROWS.items() if row.kind in kinds and name in twins]
    return [name for name in named if ROWS[name].base != "lop3" and name not in rows.ADDRESSES]


def block(sets):
    """A block of operands that repeats the drawn sets."""
    return np.array([sets[i % len(sets)] for i in range(BLOCK)], np.uint64)


@pytest.mark.parametrize("name", computed(PURE, STORE))
@settings(max_examples=8)
@given(data=st.data())
def test_single_lane_rows_equal_their_twins(simwarp_device, name, data):
    probe = rows.probe_of(data.draw(st.sampled_from(required(ROWS[name]))))
    case = st.tuples(*map(words, probe.operands))
    if ROWS[name].base in ("div", "rem") and ROWS[name].fidelity == "open":
        case = case.filter(lambda operands: operands[1] != 0)
    sets = data.draw(st.lists(case, min_size=1, max_size=8))
    operands = block(sets)
    (got,) = rows.run(simwarp_device, [probe], [operands])
    assert rows.differences(probe, operands, got) == []


@pytest.mark.at_most(5)
@pytest.mark.parametrize("name", computed(WARP))
@settings(max_examples=20)
@given(data=st.data())
def test_warp_rows_equal_their_twins(simwarp_device, name, data):
    """Two teams of lanes under separate masks, or one team after the others have exited."""
    probe = rows.probe_of(data.draw(st.sampled_from(required(ROWS[name]))))
    team = data.draw(st.integers(1, 0xFFFFFFFF))
    active = [team >> lane & 1 for lane in range(32)]
    masks = [team] * 32
    if probe.operands[-2:-1] and data.draw(st.booleans()):
        masks = [team if on else team ^ 0xFFFFFFFF for on in active]
        active = [1] * 32
    columns = [data.draw(lanes(probe, column, masks)) for column in probe.operands[:-1]]
    operands = block(list(zip(*columns, active, strict=True)))
    (got,) = rows.run(simwarp_device, [probe], [operands])
    assert rows.differences(probe, operands, got) == []


def lanes(probe, column, masks):
    """Results of the lanes of a warp for an operand, where the PTX ISA defines them."""
    shuffles = probe.form.startswith("shfl")
    if column.name == "m":
        return st.just(masks)
    if shuffles and column.name == "c":
        return st.just([0 if ".up" in probe.form else 0x1F] * 32)
    if shuffles and column.name == "b":
        return sources(masks) if ".idx" in probe.form else st.just([0] * 32)
    few = st.lists(words(column), min_size=1, max_size=4)
    return few.flatmap(lambda some: st.lists(st.sampled_from(some), min_size=32, max_size=32))


def sources(masks):
    """For each lane, a source lane of its own team."""
    return st.tuples(*(st.sampled_from([j for j in range(32) if mask >> j & 1]) for mask in masks)).map(list)


PACKED = {"f16": "f16x2", "bf16": "bf16x2", "e4m3": "e4m3x2", "e5m2": "e5m2x2"}
"""What of an element's type is as wide as a register, or half as wide."""


def registers(probe, column):
    """One register per lane, from a few words."""
    product = column.name[0] in "abc" and TABLE.find(probe.form)[0].base in ("mma", "wmma")
    types = dict(zip("dabc", rows.matrices.types_of(probe.form), strict=True)) if product else {}
    element = types.get(column.name[0], "")
    kind = PACKED.get(element, element if element in FLOATS else column.type)
    some = st.lists(words(column) | words(column._replace(type=kind)), min_size=1, max_size=4)
    return some.flatmap(lambda few: st.lists(st.sampled_from(few), min_size=32, max_size=32))


@pytest.mark.at_most(27)
@pytest.mark.slow_cases("*-mma.f64", "*-mma.m8n8k4.f16")
@pytest.mark.parametrize("name", computed(MATRIX, MATRIX_LOAD, MATRIX_STORE))
@settings(max_examples=8)
@given(data=st.data())
def test_matrix_rows_equal_their_twins(simwarp_device, name, data):
    """Four warps receive the same operands."""
    probe = rows.probe_of(data.draw(st.sampled_from(required(ROWS[name]))))
    columns = [data.draw(registers(probe, column)) for column in probe.operands]
    operands = block(list(zip(*columns, strict=True)))
    (got,) = rows.run(simwarp_device, [probe], [operands])
    assert rows.differences(probe, operands, got) == []
