"""Mutation test of the executor: changing any computing instruction of a kernel changes its outputs.

One small change per instruction (`mutate`): another operation, a comparison that includes or excludes
equality, swapped choices, the next lane, an inverted branch. Unrolled loops repeat an instruction
tens or hundreds of times: of those that differ in registers only, at most `COPIES` are changed, the first,
the last, and others evenly between. Each mutant runs on ragged shapes until its result differs from the
reference or a typed fault is raised. Mutants that cannot be detected are listed with the reason.
"""

import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace

import numpy as np
import pytest

import reference
import simwarp
from gpu.bmm.packing import packing_ptx
from gpu.bmm.schemes import SCHEMES, product_ptx
from simwarp.device.module import Kernel
from simwarp.faults import KernelFault
from simwarp.program.call_graph import CallGraph
from simwarp.program.link import link
from simwarp.ptx.parse import parse
from simwarp.ptx.syntax import Immediate, Register

WARPS_PER_BLOCK = 4
ARCH = (9, 0)
COPIES = 5
"""How many instructions that are alike except for their registers are changed."""
BUDGET = 20_000
"""Instructions of one launch: more than twice what a kernel needs here, so that endless loops end."""

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
    "cvt.s16.s8": "cvt.u16.u8",
    "atom.global.or": "atom.global.and",
}
"""The beginning of an opcode, and what takes its place; the types stay."""

NOT_COMPUTING = ("mov.", "ld.", "st.", "cvta.", "ret", "exit")

REACHED, BELOW = "setp.ge.u32 r, r, r → setp.gt.u32 r, r, r", "setp.lt.u32 r, r, r → setp.le.u32 r, r, r"
WHOLE_VECTORS = "an element of a vector but its first: the matrix's edge is the edge of a vector"

SURVIVORS = [
    (
        "pack_column.*|bmm.* bits .*",
        [REACHED],
        "the first row of a tile: a warp below the last tile loads the last row again and stores nothing",
    ),
    (
        "bmm.*",
        [BELOW],
        "the end of the loop over words: one more pass counts words past k, which are 0 in both operands",
    ),
    (
        "pack_row(_vector)? .* 32 .*",
        [BELOW],
        "the first row of a tile: it is inside the matrix, or the warp has left",
    ),
    (
        "pack_row int8 .*",
        ["add.s32 r, r, -1 → sub.s32 r, r, -1"],
        "the last column: lanes past it have left before the load, so that the minimum never takes it",
    ),
    ("pack_row_vector float64 .*", [REACHED] * 1, WHOLE_VECTORS),
    ("pack_row_vector float32 .*", [REACHED] * 3, WHOLE_VECTORS),
    ("pack_row_vector (float16|int8) .*", [REACHED] * 4, WHOLE_VECTORS),  # of those that are changed
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
        lane = constant(instructions, index, operands[2])
        operands[2] = Immediate(lane ^ 16 if "bfly" in opcode else (lane + 1) % 32)
    elif opcode.startswith("bfi"):
        operands[3] = Immediate(operands[3].value ^ 1)
    elif opcode.startswith("mul.wide"):
        operands[2] = Immediate(operands[2].value + 1) if isinstance(operands[2], Immediate) else Immediate(1)
    elif opcode.startswith("mad.lo"):
        operands[3] = Immediate(0)
    elif opcode.startswith(("cvt.u16", "cvt.u64")):
        operands[1] = Immediate(0)
    else:
        begin = max((b for b in OTHER if re.match(rf"{re.escape(b)}(\.|$)", opcode)), key=len)
        opcode = OTHER[begin] + opcode[len(begin) :]
    return replace(old, opcode=opcode, operands=tuple(operands))


def constant(instructions, index, operand):
    """A literal, or the number that the last ``mov`` put into a register."""
    if isinstance(operand, Immediate):
        return operand.value
    for i in reversed(range(index)):
        if instructions[i].operands[:1] == (operand,):
            assert isinstance(instructions[i].operands[1], Immediate)
            return instructions[i].operands[1].value
    raise AssertionError(f"{operand} is not written")


def spell(instruction):
    """An instruction by opcode, guard and literals, without register numbers."""
    words = [
        str(o.value) if isinstance(o, Immediate) else "r" if isinstance(o, Register) else "…"
        for o in instruction.operands
    ]
    guard = instruction.guard
    return (
        "" if guard is None else "@!p " if guard.negated else "@p "
    ) + f"{instruction.opcode} {', '.join(words)}"


def chosen(instructions, most):
    """Indices of the instructions to mutate, and the number of computing instructions."""
    alike = defaultdict(list)
    for i, instruction in enumerate(instructions):
        if mutate(instructions, i) is not None:
            alike[spell(instruction)].append(i)
    spread = (
        {copies[round(at)] for at in np.linspace(0, len(copies) - 1, min(len(copies), most))}
        for copies in alike.values()
    )
    return sorted(set().union(*spread)), sum(map(len, alike.values()))


# ------------------------------------------------------------------------------------------- kernels


@dataclass
class Run:
    """A launch, and the expected contents of its output arrays, by position."""

    warps: int
    arguments: list
    expected: dict


def stale(shape, dtype):
    """An output array whose initial contents are wrong everywhere."""
    return np.full(shape, 0x5A5A5A5A5A5A5A5A).astype(dtype)


def ragged(element, word, vector):
    """Matrices of values around zero, one of all -1, and one with a NaN."""
    rng = np.random.Generator(np.random.Philox(key=32))
    dtype = np.dtype(element)
    if dtype.kind == "i":
        pool = np.array([-128, -2, -1, 0, 1, 2, 127], dtype)
    else:
        tiny = np.nextafter(dtype.type(0), dtype.type(1))
        pool = np.array([0.0, -0.0, tiny, -tiny, 1.0, -1.0, np.inf, -np.inf], dtype)
    per = 16 // dtype.itemsize
    # A vector kernel's tile is 32 vectors wide.
    widths = (per * 37, per * 3, 3 * word, per * 64) if vector else (71, 301, 5, 64)
    for height, width in zip((65, 33, 70, 160), widths, strict=True):
        yield rng.choice(pool, (height, width))
    x = np.full((40, per), -1, dtype)
    yield x
    if dtype.kind == "f":
        x = x.copy()
        x[0, 0] = np.nan
        yield x


def packing_runs(element, word, first, kernel):
    """Runs of a packing kernel on special matrices, and on columns of every height."""
    layout, vector = kernel.split("_")[1], kernel.endswith("vector")
    per = 16 // np.dtype(element).itemsize if vector else 1

    def run(x):
        has_nan = x.dtype.kind == "f" and bool(np.isnan(x).any())
        rows, columns = x.shape
        packed = None if has_nan else reference.pack(x, layout=layout, word=word, first=first).words
        shape = (-(-columns // word), rows) if layout == "column" else (-(-rows // word), columns)
        # A warp's tile is 32 rows by 32 columns or vectors; words are packed to their end, past the edge too.
        down = -(-rows // word) * (word // 32) if layout == "row" else -(-rows // 32)
        pieces = layout == "column" and not vector
        across = -(-columns // word) * (word // 32) if pieces else -(-columns // (32 * per))
        arguments = [x, stale(shape, f"u{word // 8}"), np.uint32(rows), np.uint32(columns)]
        flag = np.zeros(1, np.int32)
        return Run(down * across, [*arguments, flag], {1: packed, 4: np.array([has_nan], np.int32)})

    heights = (*range(1, 32), word)
    return (
        [run(x) for x in ragged(element, word, vector)],
        [run(np.ones((height, per), element)) for height in heights],
    )


def product_runs(scheme, output, first):
    """Runs of a product scheme on special matrices; thresholds equal dot products of their columns."""
    rng = np.random.Generator(np.random.Philox(key=33))
    word = scheme.word

    def run(m, n, k):
        a, b = rng.choice([-1.0, 1.0], (m, k)), rng.choice([-1.0, 1.0], (k, n))
        left = reference.pack(a, layout="column", word=word, first=first).words
        right = reference.pack(b, layout="row", word=word, first=first).words
        dots = reference.bmm(a, b)
        sizes = [np.uint32(m), np.uint32(n), np.uint32(k)]
        warps = -(-m // scheme.rows) * -(-n // word)
        if output == "int":
            return Run(warps, [left, right, stale((m, n), np.int32), *sizes], {2: dots})
        thresholds, flip = dots[rng.integers(0, m, n), np.arange(n)], rng.integers(0, 2, n, np.uint8)
        bits = reference.threshold(dots, thresholds, flip.astype(bool), word=word, first=first).words
        return Run(warps, [left, right, stale(bits.shape, bits.dtype), *sizes, thresholds, flip], {2: bits})

    # First the runs that detect most mutants in one iteration over words.
    shapes = [(160, word, word), (65, 70, 2 * word + 6), (300, 3, word + 1), (70, 300, 4 * word)]
    return [run(*shape) for shape in shapes], [
        run(height, word - 1, 1) for height in range(1, scheme.rows + 1)
    ]


def agrees(ptx, program, run):
    """Whether a kernel gives the expected outputs; a fault counts as a difference.

    Races are not looked for, which takes a third of the time and notices no mutant that answers do not.
    """
    device = simwarp.Device(ARCH, instruction_budget=BUDGET, checks={"races": "off"})
    placed = [device.upload(a) if isinstance(a, np.ndarray) else a for a in run.arguments]
    grid = (-(-run.warps // WARPS_PER_BLOCK), 1, 1)
    try:
        Kernel(device.load(ptx), program)(grid, (WARPS_PER_BLOCK * 32, 1, 1), *placed)
    except KernelFault:
        return False
    return all(
        wanted is None or np.array_equal(placed[position].download(), wanted)
        for position, wanted in run.expected.items()
    )


def survivors_of(ptx, name, several, heights, *, copies=COPIES):
    """Number of computing instructions, number of mutants, and the mutants that go undetected."""
    module = parse(ptx)
    entry, graph = module.entries[name], CallGraph(module)
    instructions, program = entry.instructions, link(module, entry, graph)
    survivors, heights = [], deque(heights)
    assert all(agrees(ptx, program, run) for run in (*several, *heights)), "the kernel itself must agree"
    indices, computing = chosen(instructions, copies)
    for i in indices:
        mutant = mutate(instructions, i)
        assert mutant != instructions[i]
        # Reuse the control flow and liveness of the original program:
        # a mutant has the same branches and reads the same registers.
        step = link(module, replace(entry, instructions=[mutant]), graph).steps[0]
        program.steps[i], unchanged = step, program.steps[i]
        if all(agrees(ptx, program, run) for run in several):
            # Mutants in later copies of an unrolled loop need a slightly larger height.
            passed = next((n for n, run in enumerate(heights) if not agrees(ptx, program, run)), None)
            if passed is None:
                survivors.append(f"{spell(instructions[i])} → {spell(mutant)}  [{instructions[i].text}]")
            else:
                heights.rotate(-passed)
        program.steps[i] = unchanged
    return computing, len(indices), survivors


def product(scheme, output, first):
    scheme = SCHEMES[scheme]
    return product_ptx(scheme, output, first, ARCH).text, scheme.name, *product_runs(scheme, output, first)


def packing(kernel, element, word, first):
    return packing_ptx(element, word, first, ARCH).text, kernel, *packing_runs(element, word, first, kernel)


KERNELS = [
    *((product, scheme, output, "msb") for scheme in SCHEMES for output in ("int", "bits")),
    (product, "bmms64", "bits", "lsb"),
    # Every kernel with every element; each of them with both words and both orders.
    *(
        (packing, kernel, element, (32, 64)[(i + j) % 2], ("msb", "lsb")[(i + j // 2) % 2])
        for i, kernel in enumerate(("pack_column", "pack_row", "pack_column_vector", "pack_row_vector"))
        for j, element in enumerate(("float64", "float32", "float16", "int8"))
    ),
]


def expected_survivors(parts):
    name = " ".join(map(str, parts))
    return Counter(line for pattern, lines, _ in SURVIVORS if re.fullmatch(pattern, name) for line in lines)


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.gate_cases("bmm64-*", "pack_*-int8-*", "pack_*-float16-*", "pack_column_vector-float32-*")
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: "-".join(map(str, kernel[1:])))
def test_every_mutant_is_detected(kernel):
    make, *parts = kernel
    _, mutants, survivors = survivors_of(*make(*parts))
    expected = expected_survivors(parts)
    new = [line for line in survivors if line.split("  [")[0] not in expected]
    assert new == []
    assert Counter(line.split("  [")[0] for line in survivors) == expected
    assert mutants > 90
    assert len(survivors) <= 0.05 * mutants


@pytest.mark.slow
def test_a_mutant_of_each_kind_is_detected():
    """One instruction of each kind in a small kernel."""
    parts = "bmms32", "int", "msb"
    _, mutants, survivors = survivors_of(*product(*parts), copies=1)
    assert mutants > 40
    assert {line.split("  [")[0] for line in survivors} <= expected_survivors(parts).keys()
