"""The executor is what computes: every computing instruction of every kernel is changed in turn, and noticed.

One small change per instruction (`mutate`): another operation, a comparison that takes or leaves the
border, swapped choices, a lane further on, a branch the other way. Each mutant runs on ragged shapes until
its result differs from the reference or a typed fault is raised. Those that cannot be told apart are listed
with the reason.
"""

import re
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import reference
import simwarp
from gpu.bmm.packing import packing_ptx
from gpu.bmm.product import product_ptx
from simwarp.device import Kernel
from simwarp.faults import KernelFault
from simwarp.ptx.parse import parse
from simwarp.ptx.program import link
from simwarp.ptx.syntax import Immediate, Register

TILE, WARPS_PER_BLOCK = 32, 4
ARCH = (9, 0)
BUDGET = 20_000
"""Instructions of one launch: ten times what a kernel needs here."""

OTHER = {
    "xor": "or",
    "or": "and",
    "and": "or",
    "not": "mov",
    "add": "sub",
    "sub": "add",
    "mul.lo": "add",
    "div": "rem",
    "rem": "div",
    "min": "max",
    "max": "min",
    "shl": "shr",
    "shr.u32": "shl.b32",
    "shr.u64": "shl.b64",
    "popc": "clz",
    "clz": "popc",
    "brev": "not",
    "setp.eq": "setp.ne",
    "setp.ne": "setp.eq",
    "setp.lt": "setp.le",
    "setp.le": "setp.lt",
    "setp.gt": "setp.ge",
    "setp.ge": "setp.gt",
    "setp.nan": "setp.num",
    "cvt.u64.u32": "cvt.u64.u8",
    "cvt.s16.s8": "cvt.u16.u8",
    "atom.global.or": "atom.global.and",
}
"""The beginning of an opcode, and what takes its place; the types stay."""

NOT_COMPUTING = ("mov.", "ld.", "st.", "cvta.", "ret", "exit")

SURVIVORS = [
    (
        "pack_column .*",
        [
            "and.b32 r, r, 31 → or.b32 r, r, 31",
            "shr.u32 r, r, 5 → shl.b32 r, r, 5",
            "setp.ge.u32 r, r, r → setp.gt.u32 r, r, r",
        ],
        "the number of rows of tiles: a warp below the last one loads the last row again and stores nothing",
    ),
    (
        "pack_row .*",
        ["setp.lt.u32 r, r, r → setp.le.u32 r, r, r"],
        "the first row of a tile: it is inside the matrix, or the warp has left",
    ),
    (
        "pack_row int8 .*",
        ["add.s32 r, r, -1 → sub.s32 r, r, -1"],
        "the last column: lanes past it have left before the load, so that the minimum never takes it",
    ),
]
"""The mutants that nothing can notice: a pattern of the kernel's name, the mutations, and why."""


# ------------------------------------------------------------------------------------------ mutation


def mutate(instructions, index):
    """The instruction with one small change, or None if it does not compute."""
    old = instructions[index]
    opcode, operands = old.opcode, list(old.operands)
    if opcode.startswith("bra"):
        return old.guard and replace(old, guard=replace(old.guard, negated=not old.guard.negated))
    if opcode.startswith(NOT_COMPUTING):
        return None
    if opcode.startswith("selp"):
        operands[1], operands[2] = operands[2], operands[1]
    elif opcode.startswith("vote"):
        operands[1] = replace(operands[1], negated=True)
    elif opcode.startswith("shfl"):
        operands[2] = Immediate((constant(instructions, index, operands[2]) + 1) % 32)
    elif opcode.startswith("bfi"):
        operands[3] = Immediate(operands[3].value ^ 1)
    elif opcode.startswith("mul.wide"):
        operands[2] = Immediate(operands[2].value + 1) if isinstance(operands[2], Immediate) else Immediate(1)
    elif opcode.startswith("mad.lo"):
        operands[3] = Immediate(0)
    else:
        begin = max((b for b in OTHER if re.match(rf"{re.escape(b)}(\.|$)", opcode)), key=len)
        opcode = OTHER[begin] + opcode[len(begin) :]
    return replace(old, opcode=opcode, operands=tuple(operands))


def constant(instructions, index, register):
    """The number that a register was last given by a ``mov``."""
    for i in reversed(range(index)):
        if instructions[i].operands[:1] == (register,):
            assert isinstance(instructions[i].operands[1], Immediate)
            return instructions[i].operands[1].value
    raise AssertionError(f"{register} is not written")


def spell(instruction):
    """An instruction as its opcode and guard, with its literals: register numbers mean nothing."""
    words = [
        str(o.value) if isinstance(o, Immediate) else "r" if isinstance(o, Register) else "…"
        for o in instruction.operands
    ]
    guard = instruction.guard
    return (
        "" if guard is None else "@!p " if guard.negated else "@p "
    ) + f"{instruction.opcode} {', '.join(words)}"


# ------------------------------------------------------------------------------------------- kernels


def matrices(element, layout):
    """Ragged matrices full of the values around zero, one with a NaN; every height, where a row is a bit."""
    rng = np.random.Generator(np.random.Philox(key=32))
    dtype = np.dtype(element)
    if dtype.kind == "i":
        pool = np.array([-128, -2, -1, 0, 1, 2, 127], dtype)
    else:
        tiny = np.nextafter(dtype.type(0), dtype.type(1))
        pool = np.array([0.0, -0.0, tiny, -tiny, 1.0, -1.0, np.inf, -np.inf], dtype)
    for shape in ((65, 70), (33, 300), (300, 5), (160, 32), (1, 1)):
        yield rng.choice(pool, shape)
    if dtype.kind == "f":
        x = np.ones((40, 7), dtype)
        x[0, 3] = np.nan
        yield x
    if layout == "row":
        for height in (*range(1, TILE), 256 * TILE + 1):
            yield np.ones((height, 1), dtype)


def packing_runs(element, layout, first):
    """What a packing kernel is launched on, and what it must answer."""
    for x in matrices(element, layout):
        rows, columns = x.shape
        down, across = -(-rows // TILE), -(-columns // TILE)
        has_nan = x.dtype.kind == "f" and bool(np.isnan(x).any())
        expected = None if has_nan else reference.pack(x, layout=layout, first=first).words
        words = np.zeros((across, rows) if layout == "column" else (down, columns), np.uint32)
        flag = np.zeros(1, np.int32)
        arguments = [x, words, np.uint32(rows), np.uint32(columns), flag]
        yield down * across, arguments, {1: expected, 4: np.array([has_nan], np.int32)}


def product_runs():
    """The same for BMM-32."""
    rng = np.random.Generator(np.random.Philox(key=33))
    shapes = [(65, 70, 70), (300, 3, 33), (3, 300, 64), (160, 32, 32)]
    for m, n, k in shapes + [(height, 1, 1) for height in range(1, TILE)]:
        a, b = rng.choice([-1.0, 1.0], (m, k)), rng.choice([-1.0, 1.0], (k, n))
        left, right = reference.pack(a, layout="column").words, reference.pack(b, layout="row").words
        arguments = [left, right, np.zeros((m, n), np.int32), np.uint32(m), np.uint32(n), np.uint32(k)]
        yield -(-m // TILE) * -(-n // TILE), arguments, {2: reference.bmm(a, b)}


def agrees(program, runs):
    """Whether a kernel answers as the reference on every run; a fault is an answer too, and a wrong one."""
    for tiles, arguments, expected in runs:
        device = simwarp.Device(ARCH, instruction_budget=BUDGET)
        placed = [device.upload(a) if isinstance(a, np.ndarray) else a for a in arguments]
        try:
            Kernel(device, program)(
                (-(-tiles // WARPS_PER_BLOCK), 1, 1), (WARPS_PER_BLOCK * TILE, 1, 1), *placed
            )
        except KernelFault:
            return False
        for position, wanted in expected.items():
            if wanted is not None and not np.array_equal(placed[position].download(), wanted):
                return False
    return True


def survivors_of(ptx, name, runs):
    """How many mutants of a kernel there are, and those that answer as the kernel itself."""
    module = parse(ptx)
    entry = module.entries[name]
    instructions, runs = entry.instructions, list(runs)
    assert agrees(link(module, entry), runs), "the kernel itself must agree"
    count, survivors = 0, []
    for i in range(len(instructions)):
        mutant = mutate(instructions, i)
        if mutant is None:
            continue
        count += 1
        assert mutant != instructions[i]
        changed = replace(entry, instructions=[*instructions[:i], mutant, *instructions[i + 1 :]])
        if agrees(link(module, changed), runs):
            survivors.append(f"{spell(instructions[i])} → {spell(mutant)}  [{instructions[i].text}]")
    return count, survivors


def kernels():
    """The name of each kernel, and what `survivors_of` takes."""
    yield "bmm32", lambda: (product_ptx(ARCH).text, "bmm32", product_runs())
    for element in ("float64", "float32", "float16", "int8"):
        for first in ("msb", "lsb"):
            for layout in ("column", "row"):
                yield f"pack_{layout} {element} {first}", partial(packing, element, first, layout)


def packing(element, first, layout):
    return packing_ptx(element, first, ARCH).text, f"pack_{layout}", packing_runs(element, layout, first)


@pytest.mark.parametrize(("name", "make"), list(kernels()))
def test_every_mutant_is_noticed(name, make):
    count, survivors = survivors_of(*make())
    expected = Counter(
        line for pattern, lines, _ in SURVIVORS if re.fullmatch(pattern, name) for line in lines
    )
    new = [line for line in survivors if line.split("  [")[0] not in expected]
    assert new == []
    assert Counter(line.split("  [")[0] for line in survivors) == expected
    assert count > 250
    assert len(survivors) <= 0.05 * count
