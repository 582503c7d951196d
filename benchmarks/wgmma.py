"""Measures products of warpgroups on the simulator, in multiply-accumulates per second on one core.

    python benchmarks/wgmma.py [--json PATH] [--only b1 f16]

Each block is a warpgroup that copies its two tiles to shared memory, with a swizzle of 128 bytes, and
multiplies their four steps of k again and again, in groups of four products, on a device with its default
checks. Launches are timed; every one has new random operands, and its answer is compared: of bits exactly, of
floats with a bound that the rule of the chip keeps to.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median, quantiles
from typing import Any, NamedTuple

import mma
import numpy as np
from common import Row, measure
from ptx_cases import TimedDevice, check_close, check_equal

from simwarp.fragments import Fragments, fragments_of
from simwarp.fragments.descriptors import CHUNK, Descriptors, descriptor

GROUPS, STEPS, SPAN = 32, 4, 128
ROWS, STEP_BYTES = 64, 32
"""Rows of A, and bytes of a row in one product."""


class Case(NamedTuple):
    """An instruction, its immediate operands, how often the tiles are multiplied, and a target per second."""

    opcode: str
    immediates: str
    loops: int
    repetitions: int
    target: float

    @property
    def fragments(self) -> Fragments:
        """The maps of its registers."""
        return fragments_of(self.opcode)


CASES = {
    "b1": Case("wgmma.mma_async.sync.aligned.m64n256k256.s32.b1.b1.and.popc", "", 32, 9, 60e9),
    "f16": Case("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", ", 1, 1, 0, 0", 8, 9, 400e6),
}


def kernel(case: Case) -> str:
    """The PTX of d = sum over loops and steps of a[step] · b[step]; a thread's registers are contiguous."""
    n, registers = case.fragments.shape.n, case.fragments.operands["d"].layout.registers
    size, d = (ROWS + n) * SPAN, ", ".join(f"%d{i}" for i in range(registers))
    products = "".join(
        f"mov.b64 %a, {word(0, step):#x}; mov.b64 %b, {word(ROWS * SPAN, step):#x};\n"
        f"{case.opcode} {{{d}}}, %a, %b, %yes{case.immediates};\n"
        for step in range(STEPS)
    )
    return f"""
.version 9.0
.target sm_90a
.address_size 64
.visible .entry multiply(.param .u64 tiles, .param .u64 d, .param .u32 loops) {{
.reg .pred %yes, %more; .reg .b32 %d<{registers}>, %x<4>, %t, %block, %loops, %i;
.reg .b64 %from, %to, %a, %b;
.shared .align 1024 .b8 shared_tiles[{size}];
mov.u32 %t, %tid.x; mov.u32 %block, %ctaid.x; setp.eq.u32 %yes, 0, 0; ld.param.u32 %loops, [loops];
ld.param.u64 %from, [tiles]; mad.wide.u32 %from, %block, {size}, %from; mad.wide.u32 %from, %t, 16, %from;
mov.u64 %to, shared_tiles; mad.wide.u32 %to, %t, 16, %to; mov.u32 %i, {size // 2048};
FILL: ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%from]; st.shared.v4.b32 [%to], {{%x0, %x1, %x2, %x3}};
add.u64 %from, %from, 2048; add.u64 %to, %to, 2048; sub.u32 %i, %i, 1;
setp.ne.u32 %more, %i, 0; @%more bra FILL;
fence.proxy.async; bar.sync 0;
{" ".join(f"mov.b32 %d{i}, 0;" for i in range(registers))}
AGAIN: wgmma.fence.sync.aligned;
{products}wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
sub.u32 %loops, %loops, 1; setp.ne.u32 %more, %loops, 0; @%more bra AGAIN;
ld.param.u64 %to, [d]; mad.lo.u32 %t, %block, 128, %t; mad.wide.u32 %to, %t, {4 * registers}, %to;
{" ".join(f"st.global.b32 [%to+{4 * i}], %d{i};" for i in range(registers))}
ret;
}}
"""


def word(start: int, step: int) -> int:
    """The descriptor of a step of the tile at ``start``."""
    return descriptor(start + STEP_BYTES * step, CHUNK, 8 * SPAN, SPAN)


def laid_out(rows: Any) -> Any:
    """Tiles (groups, rows, SPAN bytes) as they lie in shared memory."""
    placed = np.zeros_like(rows)
    for step in range(STEPS):
        at = Descriptors.of(np.array([word(0, step)], np.uint64)).chunks(rows.shape[1], 2, k_major=True)[0]
        part = np.ascontiguousarray(rows[..., STEP_BYTES * step : STEP_BYTES * (step + 1)])
        chunks = part.view("V16").reshape(len(rows), -1)
        placed.reshape(len(rows), -1).view("V16")[:, (at // CHUNK).reshape(-1).astype(np.intp)] = chunks
    return placed


def sample(case: Case, random: np.random.Generator) -> float:
    """Measure one launch, in seconds."""
    n, layout = case.fragments.shape.n, case.fragments.operands["d"].layout
    kind = case.fragments.operands["a"].type
    k = STEPS * case.fragments.shape.k
    a, b = (mma.draw(kind, (GROUPS, rows, k), random) for rows in (ROWS, n))
    tiles = [
        laid_out(np.packbits(x, axis=-1, bitorder="little") if kind == "b1" else x.view(np.uint8))
        for x in (a, b)
    ]
    device = TimedDevice(cc=mma.HOPPER)
    d = device.allocate((GROUPS, 128, layout.registers), np.uint32)
    launch = device.load(kernel(case)).kernel("multiply")
    launch(
        (GROUPS, 1, 1), (128, 1, 1), device.upload(np.concatenate(tiles, axis=1)), d, np.uint32(case.loops)
    )
    check(case, mma.numbers(kind, a), mma.numbers(kind, b).swapaxes(-1, -2), layout.unpack(d.download()))
    return device.samples[-1][0]


def check(case: Case, x: Any, y: Any, d: Any) -> None:
    """Refuse a wrong product of x (groups, 64, k) and y (groups, k, n)."""
    exact = case.loops * (x @ y)
    if case.fragments.operands["d"].type == "s32":
        check_equal(d.view(np.int32), exact.astype(np.int32))
        return
    k = case.fragments.shape.k
    error = case.loops * STEPS * 2 * ((k + 2) * 2.0**-25 + 3 * 2.0**-23)
    check_close(d.view(np.float32), exact, case.loops * error * (np.abs(x) @ np.abs(y)))


def rows(cases: dict[str, Case]) -> Iterator[Row]:
    """Measure the cases in turns, so that a disturbance of the machine does not affect only one."""
    random = np.random.default_rng()
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for repetition in range(max(case.repetitions for case in cases.values()) + 1):
        for name, case in cases.items():
            taken = sample(case, random)
            if repetition:  # the first one parses and links, and does not count
                seconds[name].append(taken)
    for name, case in cases.items():
        m, n, k = case.fragments.shape
        speeds = [GROUPS * STEPS * case.loops * m * n * k / taken for taken in seconds[name]]
        lower, _, upper = quantiles(speeds, n=4)
        params: dict[str, Any] = {
            "opcode": case.opcode,
            "warpgroups": GROUPS,
            "instructions_per_warpgroup": STEPS * case.loops,
            "repetitions": len(speeds),
            "quartiles": [lower, upper],
        }
        unit = "bit-MAC/s" if name == "b1" else "MAC/s"
        yield Row(f"mma/wgmma-{name}", params, unit, "higher", median(speeds), {}, target=case.target)


if __name__ == "__main__":
    measure(__doc__, CASES, rows)
