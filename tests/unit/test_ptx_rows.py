"""Every form of every PTX row, run as a kernel, against its scalar twin: edges crossed, and random bulk.

With ``--simwarp-device=cuda`` (or ``both``) a GPU answers instead of the simulator.
"""

import random
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import simwarp
from simwarp.faults import Trap
from simwarp.ptx.instructions import ROWS

rows = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "run_ptx_rows.py")))
kernel_for, opcodes, CONTROL = rows.kernels.kernel_for, rows.kernels.opcodes, rows.kernels.CONTROL
TWINS, widen = rows.twins.TWINS, rows.twins.widen


def named(*kinds):
    return [name for name, row in ROWS.items() if row.kind in kinds]


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def test_opcodes_hold_every_form_and_every_modifier():
    for row in ROWS.values():
        if row.kind in CONTROL:
            continue
        chosen = opcodes(row)
        assert set(row.forms()) <= set(chosen)
        used = {modifier for opcode in chosen for modifier in row.match(opcode).modifiers}
        choices = {
            c[1:] for a, b, _ in rows.kernels._PART.findall(row.spelling) for c in (a + b).split("|") if c
        }
        assert used == choices


def differences(got, expected, columns, limit=3):
    wrong = [i for i, (g, e) in enumerate(zip(got, expected, strict=True)) if g != e]
    return [f"{[hex(c[i]) for c in columns]}: {got[i]}, expected {expected[i]}" for i in wrong[:limit]]


@pytest.mark.parametrize("name", named("pure"))
def test_pure_rows(simwarp_device, name):
    row, twin = ROWS[name], TWINS[name]
    for opcode in opcodes(row):
        form = row.match(opcode)
        for wide in (False, True) if row.base == "cvt" else (False,):
            columns = rows.without_open(simwarp_device, row, opcode, rows.cases(row, opcode))
            if row.base in ("div", "rem"):  # by zero the result is open
                columns[1] = [b or 1 for b in columns[1]]
            kernel = kernel_for(row, opcode, wide)
            results = rows.launch(simwarp_device, kernel, columns)
            got = results[0] if row.base == "lop3" else list(zip(*results, strict=True))
            expected = [as_tuple(twin(opcode, *operands)) for operands in zip(*columns, strict=True)]
            if row.base == "cvt":
                bits = int(kernel.results[0].type[1:])
                expected = [(widen(form.T, e, bits),) for (e,) in expected]
            if row.base == "lop3":
                expected = [list(e) for e in expected]
            assert differences(got, expected, columns) == [], opcode


@pytest.mark.parametrize("name", ["div", "rem"])
def test_division_by_zero_does_not_crash(simwarp_device, name):
    row = ROWS[name]
    for opcode in opcodes(row):
        a, _ = rows.cases(row, opcode)
        rows.launch(simwarp_device, kernel_for(row, opcode), [a, [0] * len(a)])


@pytest.mark.parametrize("name", named("warp"))
def test_warp_rows(simwarp_device, name):
    row, twin = ROWS[name], TWINS[name]
    for opcode in opcodes(row):
        rng = random.Random(opcode)
        warps = 64
        kernel = kernel_for(row, opcode)
        columns = [[] for _ in kernel.operands]
        expected = []
        for _ in range(warps):
            masks, active = rows.teams(rng)
            operands = []
            for slot in kernel.operands[:-1]:
                operands.append(
                    masks if slot.name == "m" else _warp_operand(rng, slot, opcode, masks, active)
                )
            for column, operand in zip(columns, [*operands, active], strict=True):
                column += operand
            results = twin(opcode, *operands, active)
            assert all(on == (r is not None) for on, r in zip(active, results, strict=True)), (
                "a case the ISA leaves open"
            )
            expected += [as_tuple(r if r is not None else (0,) * len(kernel.results)) for r in results]
        got = list(zip(*rows.launch(simwarp_device, kernel, columns), strict=True))
        assert differences(got, expected, columns) == [], opcode


def _warp_operand(rng, slot, opcode, masks, active):
    """32 values: few different ones, so that ``match`` and ``vote`` meet equal ones; legal shuffles."""
    if slot.type == "pred":
        return rng.choice(([0] * 32, [1] * 32, [rng.randrange(2) for _ in range(32)]))
    if opcode.startswith("shfl") and slot.name in "bc":
        return _SHUFFLE[slot.name](rng, opcode, masks, active)
    values = [rng.getrandbits(int(slot.type[1:])) for _ in range(rng.choice((1, 1, 2, 32)))]
    values += rows.edge_words(32)[: rng.randrange(4)]
    return [rng.choice(values) for _ in range(32)]


def _shuffle_b(rng, opcode, masks, active):
    """Sources that take part: own team only, unless everybody is in it."""
    if len(set(masks)) == 1 and all(active):
        return [rng.choice((rng.randrange(32), rng.getrandbits(32))) for _ in range(32)]
    if ".idx" in opcode:
        return [rng.choice([j for j in range(32) if mask >> j & 1]) for mask in masks]
    return [0] * 32


def _shuffle_c(rng, opcode, masks, active):
    width = 1 << rng.randrange(6)
    if len(set(masks)) == 1 and all(active):
        return [rng.choice((32 - width << 8 | 31, rng.getrandbits(13)))] * 32
    return [0x1F if ".up" not in opcode else 0] * 32


_SHUFFLE = {"b": _shuffle_b, "c": _shuffle_c}


@pytest.mark.parametrize("name", named("load", "store", "atomic"))
def test_memory_rows(simwarp_device, name):
    row, twin = ROWS[name], TWINS[name]
    for opcode in opcodes(row):
        form = row.match(opcode)
        for wide in (False, True) if row.kind != "atomic" else (False,):
            columns = rows.cases(row, opcode)
            kernel = kernel_for(row, opcode, wide)
            mask = (1 << int(form.T[1:])) - 1
            if row.kind == "load":
                columns = [[word & mask for word in column] for column in columns]
                elements = list(zip(*columns, strict=True))
                by_value = kernel.operands[0].by_value
                given = elements[0] if by_value else (elements if form.vector > 1 else columns[0])
                (got,) = rows.launch(simwarp_device, kernel, [given])
                bits = int(kernel.results[0].type[1:])
                words = [elements[0]] * len(got) if by_value else elements
                expected = [
                    tuple(widen(form.T, word, bits) for word in twin(opcode, *case)) for case in words
                ]
            else:
                expected = [twin(opcode, *case) for case in zip(*columns, strict=True)]
                results = rows.launch(simwarp_device, kernel, columns)
                got = list(zip(*results, strict=True)) if row.kind == "atomic" else results[0]
            got = [tuple(g) if isinstance(g, list) else as_tuple(g) for g in got]
            assert [(g, e) for g, e in zip(got, expected, strict=True) if g != e][:3] == [], opcode


# ------------------------------------------------------------------------------------------ control

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry row(.param .u64 out) {\n"
REGISTERS = ".reg .pred %p; .reg .b32 %r, %i, %m; .reg .b64 %at, %to; .shared .align 4 .b8 cell[128];\n"
THREAD = "mov.u32 %i, %tid.x; ld.param.u64 %at, [out]; mul.wide.u32 %to, %i, 4; add.u64 %at, %at, %to;\n"
CONTROL_KERNELS = {
    "bra": "mov.u32 %r, 1; {opcode} OVER; mov.u32 %r, 2; OVER: st.global.u32 [%at], %r; ret; }}",
    "ret": "mov.u32 %r, 1; st.global.u32 [%at], %r; {opcode}; mov.u32 %r, 2; st.global.u32 [%at], %r; }}",
    "exit": "mov.u32 %r, 1; st.global.u32 [%at], %r; {opcode}; mov.u32 %r, 2; st.global.u32 [%at], %r; }}",
    "trap": "mov.u32 %r, 1; st.global.u32 [%at], %r; {opcode}; ret; }}",
}
# Lane 0 writes what all read behind the barrier, although the others come first.
MEETING = (
    "setp.ne.u32 %p, %i, 0; @%p bra MEET; mov.u32 %r, 1; st.shared.u32 [cell], %r;\n"
    "MEET: {opcode} {mask}; ld.shared.u32 %r, [cell]; st.global.u32 [%at], %r; ret; }}"
)
CONTROL_KERNELS |= dict.fromkeys(("bar.sync", "barrier.sync", "bar.warp.sync"), MEETING)


@pytest.mark.parametrize("name", named(*CONTROL))
def test_control_rows(simwarp_device, name):
    if name == "trap" and not isinstance(simwarp_device, simwarp.Device):
        pytest.skip("a trap ends the CUDA context, and with it the tests that follow")
    row = ROWS[name]
    spellings = {".".join(words) for words in rows.kernels._spellings(row)}
    assert set(row.forms()) <= spellings
    for opcode in sorted(spellings):
        body = CONTROL_KERNELS[name].format(opcode=opcode, mask="-1" if "warp" in name else "0")
        out = simwarp_device.upload(np.zeros(32, np.uint32))
        kernel = simwarp_device.load(HEAD + REGISTERS + THREAD + body).kernel("row")
        if name == "trap":
            with pytest.raises(Trap, match="trap"):
                kernel((1, 1, 1), (32, 1, 1), out)
        else:
            kernel((1, 1, 1), (32, 1, 1), out)
        assert out.download().tolist() == [1] * 32
