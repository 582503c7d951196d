"""PTX rows against their scalar twins: one warp of operands at a time, so that a failure shrinks.

`tests/unit/test_ptx_rows.py` crosses the edges of every form.
"""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simwarp.ptx.instructions import ROWS

rows = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "run_ptx_rows.py")))
TWINS, widen = rows.twins.TWINS, rows.twins.widen


def operands(kind, is_amount):
    everything = st.integers(0, (1 << (1 if kind == "pred" else max(16, int(kind[1:])))) - 1)
    return st.sampled_from(list(rows.edges(kind, is_amount))) | everything


@pytest.mark.parametrize(
    "name", [name for name, row in ROWS.items() if row.kind == "pure" and row.base != "lop3"]
)
@settings(max_examples=25)
@given(data=st.data())
def test_pure_rows(simwarp_device, name, data):
    row = ROWS[name]
    opcode = data.draw(st.sampled_from(rows.kernels.opcodes(row)))
    wide = row.base == "cvt" and data.draw(st.booleans())
    kinds = rows.operand_kinds(row, opcode)
    case = st.tuples(*(operands(*kind) for kind in kinds))
    if row.base in ("div", "rem"):
        case = case.filter(lambda operands: operands[1] != 0)
    drawn = zip(*data.draw(st.lists(case, min_size=1, max_size=8)), strict=True)
    some = list(zip(*rows.without_open(simwarp_device, row, opcode, list(drawn)), strict=True))
    few = len(some)
    columns = [list(column) * (rows.kernels.BLOCK // few + 1) for column in zip(*some, strict=True)]
    columns = [column[: rows.kernels.BLOCK] for column in columns]
    kernel = rows.kernels.kernel_for(row, opcode, wide)
    got = list(zip(*rows.launch(simwarp_device, kernel, columns), strict=True))[:few]
    expected = [TWINS[name](opcode, *operands) for operands in some]
    expected = [e if isinstance(e, tuple) else (e,) for e in expected]
    if row.base == "cvt":
        bits = int(kernel.results[0].type[1:])
        expected = [(widen(row.match(opcode).T, e, bits),) for (e,) in expected]
    assert list(zip(some, got, strict=True)) == list(zip(some, expected, strict=True))


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.kind == "warp"])
@settings(max_examples=25)
@given(data=st.data())
def test_warp_rows(simwarp_device, name, data):
    """Two teams of lanes, each named by its mask, or one team while the others have left."""
    row = ROWS[name]
    opcode = data.draw(st.sampled_from(rows.kernels.opcodes(row)))
    team = data.draw(st.integers(1, 0xFFFFFFFF))
    active = [team >> lane & 1 for lane in range(32)]
    masks = [team] * 32
    if row.base != "activemask" and data.draw(st.booleans()):
        masks = [team if on else team ^ 0xFFFFFFFF for on in active]
        active = [1] * 32
    kernel = rows.kernels.kernel_for(row, opcode)
    given = []
    for slot in kernel.operands[:-1]:
        if slot.name == "m":
            given.append(masks)
        elif row.base == "shfl" and slot.name == "c":
            given.append([0 if ".up" in opcode else 0x1F] * 32)
        elif row.base == "shfl" and slot.name == "b":
            given.append(data.draw(sources(masks)) if ".idx" in opcode else [0] * 32)
        else:
            word = st.integers(0, 1) if slot.type == "pred" else st.integers(0, (1 << int(slot.type[1:])) - 1)
            some = data.draw(st.lists(word, min_size=1, max_size=4))
            given.append(data.draw(st.lists(st.sampled_from(some), min_size=32, max_size=32)))
    expected = TWINS[name](opcode, *given, active)
    columns = [column * (rows.kernels.BLOCK // 32) for column in [*given, active]]
    got = list(zip(*rows.launch(simwarp_device, kernel, columns), strict=True))[:32]
    expected = [e if isinstance(e, tuple) else ((e,) if e is not None else None) for e in expected]
    assert [g if on else None for g, on in zip(got, active, strict=True)] == expected


def sources(masks):
    """For each lane, a lane of its own team."""
    return st.tuples(*(st.sampled_from([j for j in range(32) if mask >> j & 1]) for mask in masks)).map(list)
