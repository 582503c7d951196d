"""Runs the kernels of `tests/ptx_kernels.py` and the twins of `tests/scalar_ptx.py` side by side."""

import itertools
import math
import random
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import simwarp

HERE = Path(__file__).parent
kernels = SimpleNamespace(**runpy.run_path(str(HERE / "ptx_kernels.py")))
twins = SimpleNamespace(**runpy.run_path(str(HERE / "scalar_ptx.py")))

AMOUNTS = (0, 1, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 255, 256, 257, 288, 1 << 31, 0xFFFFFFFF)
F32 = (0, 1 << 31, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF800000)
F32 += (0x7F800000, 0x7FC00000, 0x7F800001, 0xFFC00001)
F64 = (
    0,
    1 << 63,
    1,
    1 << 63 | 1,
    0xF << 48 | 0xFFFFFFFFFFFF,
    1 << 52,
    0x3FF << 52,
    0xBFF << 52,
    (0x7FF << 52) - 1,
)
F64 += (0xFFF << 52, 0x7FF << 52, 0x7FF8 << 48, 0x7FF << 52 | 1, 0xFFF8 << 48 | 1)
LARGEST = 2048
"""Crossed edges of one launch, at most."""


def edge_words(bits):
    """Zero, all ones, the ends of the sign, alternating bits, one bit in each eighth of the word."""
    ones, sign = (1 << bits) - 1, 1 << (bits - 1)
    return [0, ones, ones - 1, sign, sign - 1, sign + 1, ones // 3, ones // 3 * 2] + [
        1 << i for i in range(0, bits, bits // 8)
    ]


def edges(kind, is_amount):
    """The values of one operand that are crossed with those of the others."""
    if kind == "pred":
        return [0, 1]
    if is_amount:
        return AMOUNTS
    return {"f32": F32, "f64": F64}.get(kind) or edge_words(max(16, int(kind[1:])))


def operand_kinds(row, opcode):
    """The PTX type of each array operand, and whether it is an amount."""
    form = row.match(opcode)
    if row.kind in ("load", "atomic", "store"):
        return [(form.T, False)] * (2 if row.kind == "atomic" else form.vector)
    has_c = not row.sources or not row.sources[-1].optional or form.combines
    sources = [s for s in row.sources if s.name != "table"][: None if has_c else -1]
    amounts = {"shl": "b", "shr": "b", "shf": "c", "bfe": "bc", "bfi": "ce"}.get(row.base, "")
    return [(form.resolve(s.kind), s.name in amounts) for s in sources]


def cases(row, opcode, seed=0):
    """Operands of many cases, one column per operand: edges crossed, then random ones."""
    kinds = operand_kinds(row, opcode)
    rng = random.Random(f"{opcode} {seed}")
    few = row.base in (
        "lop3",
        "ld",
        "st",
    )  # a case of lop3 is 256 results; memory does not look at the values
    choices = [edges(*kind) for kind in kinds]
    most = 32 if few else LARGEST
    if math.prod(map(len, choices)) > most:
        crossed = [tuple(map(rng.choice, choices)) for _ in range(most)]
    else:
        crossed = list(itertools.product(*choices))

    def draw(kind, is_amount):
        if kind == "pred":
            return rng.randrange(2)
        if is_amount and rng.random() < 0.75:
            return rng.randrange(80)
        return rng.getrandbits(max(16, int(kind[1:])))

    size = -(-(len(crossed) + (64 if few else 512)) // kernels.BLOCK) * kernels.BLOCK
    rows = crossed + [tuple(draw(*kind) for kind in kinds) for _ in range(size - len(crossed))]
    return [list(column) for column in zip(*rows, strict=True)]


def without_open(device, row, opcode, columns):
    """The operands without what hardware answers in its own way.

    The PTX ISA takes position and length of ``bfe`` and ``bfi`` modulo 256. So does the simulator; an
    H200 looks at more of their bits in the 64-bit forms.
    """
    if isinstance(device, simwarp.Device) or row.base not in ("bfe", "bfi") or not opcode.endswith("64"):
        return columns
    kinds = operand_kinds(row, opcode)
    return [
        [word & 0xFF for word in column] if is_amount else column
        for column, (_, is_amount) in zip(columns, kinds, strict=True)
    ]


def launch(device, kernel, columns):
    """Run a row's kernel; ``columns`` hold an integer per thread (a list of them for a vector)."""
    by_value = any(slot.by_value for slot in kernel.operands)
    threads = kernels.BLOCK if by_value else len(columns[0])
    arguments = []
    for slot, column in zip(kernel.operands, columns, strict=True):
        host = np.array(column, _dtype(slot))
        arguments.append(np.void(host.tobytes()) if slot.by_value else device.upload(host))
    shapes = [(threads, slot.count) if slot.count > 1 else (threads,) for slot in kernel.results]
    outputs = [
        device.upload(np.zeros(shape, _dtype(slot)))
        for shape, slot in zip(shapes, kernel.results, strict=True)
    ]
    grid = (threads // kernels.BLOCK, 1, 1)
    device.load(kernel.text).kernel("row")(grid, (kernels.BLOCK, 1, 1), *arguments, *outputs)
    return [output.download().tolist() for output in outputs]


def _dtype(slot):
    return np.uint32 if slot.type == "pred" else np.dtype(f"u{int(slot.type[1:]) // 8}")


def teams(rng):
    """Executing lanes and member masks of a warp: everybody, one team, or two teams side by side."""
    word = rng.choice(
        (0xFFFFFFFF, 1, 1 << 31, 0xFFFF, 0xAAAAAAAA, rng.getrandbits(32) | 1 << rng.randrange(32))
    )
    active = [word >> lane & 1 for lane in range(32)]
    masks = [word] * 32
    if rng.random() < 0.4:
        masks = [word if on else word ^ 0xFFFFFFFF for on in active]
        active = [1] * 32
    return masks, active
