"""Measures tensor-core instructions in multiply-accumulates per second on one core, beside MMA-Sim.

    python benchmarks/mma.py [--json benchmarks/results/cpu/mma.json] [--only s8 f16 …]

A PTX kernel loads some fragments of A and B into registers and multiplies them again and again into one
accumulator, on a device with its default checks; launches are timed. Every launch has new random operands,
and its answer is compared: of bits and integers with the exact sums, of floats with a bound that the rule of
the chip keeps to; and, where MMA-Sim can be imported, the bits of an instruction with its bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median, quantiles
from typing import Any

import numpy as np
from common import Row, measure
from ptx_cases import TimedDevice, check_close, check_equal

from simwarp.floats import narrow, widen
from simwarp.fragments import Fragments, fragments_of
from simwarp.products import floats, rule_of

HOPPER = (9, 0)
WARPS, BLOCK_WARPS = 512, 4
STEPS = 4
"""Fragments of A and B that each warp holds."""
QUOTED = {"MMA-Sim of 2026-01-29, quoted": 0.12e6}
"""Its speed where it cannot be imported: m16n8k16 with f16, on one core."""
PEER_INSTRUCTIONS = 7


@dataclass(frozen=True)
class Case:
    """One instruction to measure."""

    opcode: str
    loops: int  # products of all fragments of a warp
    repetitions: int
    target: float | None = None  # multiply-accumulates per second
    peer: tuple[str, str] | None = None  # MMA-Sim's architecture and name of the instruction

    @property
    def fragments(self) -> Fragments:
        """The maps of the instruction's operands."""
        return fragments_of(self.opcode)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of d, a, b and c."""
        return tuple(self.fragments.operands[name].type for name in "dabc")


MMA = "mma.sync.aligned"
CASES = {
    "b1": Case(f"{MMA}.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", 32, 15, 10e9),
    "s8": Case(f"{MMA}.m16n8k32.row.col.s32.s8.s8.s32", 32, 15, 200e6),
    "f16": Case(
        f"{MMA}.m16n8k16.row.col.f32.f16.f16.f32", 8, 9, 20e6, ("Hopper", "m16n8k16.f32.f16.f16.f32")
    ),
    "bf16": Case(
        f"{MMA}.m16n8k16.row.col.f32.bf16.bf16.f32", 8, 9, 20e6, ("Hopper", "m16n8k16.f32.bf16.bf16.f32")
    ),
    "tf32": Case(
        f"{MMA}.m16n8k8.row.col.f32.tf32.tf32.f32", 8, 9, None, ("Hopper", "m16n8k8.f32.tf32.tf32.f32")
    ),
    "fp8": Case(
        f"{MMA}.m16n8k32.row.col.f32.e4m3.e5m2.f32",
        8,
        9,
        None,
        ("Ada Lovelace", "m16n8k32.f32.e4m3.e5m2.f32"),
    ),
    "f64": Case(
        f"{MMA}.m16n8k16.row.col.f64.f64.f64.f64", 8, 9, None, ("Hopper", "m16n8k16.f64.f64.f64.f64")
    ),
}

# ---- the kernel ------------------------------------------------------------------------------------


def kernel(case: Case) -> str:
    """The PTX of d = sum over loops and steps of a[step] · b[step]; a thread's registers are contiguous."""
    layouts = {name: case.fragments.operands[name].layout for name in "abd"}
    bits = layouts["d"].register_bits
    registers = {name: layout.registers for name, layout in layouts.items()}
    loads = [
        _accesses("ld", f"{name}{step}_", name, registers[name], bits, step)
        for step in range(STEPS)
        for name in "ab"
    ]
    d = _vector("d", range(registers["d"]))
    products = "\n".join(
        f"    {case.opcode} {d}, {_vector(f'a{step}_', range(registers['a']))}, "
        f"{_vector(f'b{step}_', range(registers['b']))}, {d};"
        for step in range(STEPS)
    )
    names = [f"a{step}_" for step in range(STEPS)], [f"b{step}_" for step in range(STEPS)], ["d"]
    declared = " ".join(
        f".reg .b{bits} %{prefix}<{registers[name]}>;"
        for name, prefixes in zip("abd", names, strict=True)
        for prefix in prefixes
    )
    return f"""
.version 9.0
.target sm_90
.address_size 64
.visible .entry multiply(.param .u64 a, .param .u64 b, .param .u64 d, .param .u32 loops) {{
    {declared}
    .reg .pred %more; .reg .b32 %thread, %block, %threads, %loops; .reg .b64 %at, %at_a, %at_b, %at_d;
    mov.u32 %block, %ctaid.x; mov.u32 %threads, %ntid.x; mov.u32 %thread, %tid.x;
    mad.lo.u32 %thread, %block, %threads, %thread;
    {" ".join(_address(name, registers[name] * bits // 8 * (STEPS if name != "d" else 1)) for name in "abd")}
    ld.param.u32 %loops, [loops];
{"".join(loads)}
    {" ".join(f"mov.b{bits} %d{i}, 0;" for i in range(registers["d"]))}
AGAIN:
{products}
    sub.u32 %loops, %loops, 1;
    setp.ne.u32 %more, %loops, 0;
    @%more bra AGAIN;
{_accesses("st", "d", "d", registers["d"], bits, 0)}
    ret;
}}
"""


def _address(name: str, size: int) -> str:
    """The address of a thread's registers."""
    at = f"%at_{name}"
    return f"ld.param.u64 {at}, [{name}]; mul.wide.u32 %at, %thread, {size}; add.u64 {at}, {at}, %at;"


def _accesses(base: str, prefix: str, name: str, registers: int, bits: int, step: int) -> str:
    """The loads or stores of some registers, 16 bytes each or less."""
    width = min(128 // bits, registers)
    lines: list[str] = []
    for first in range(0, registers, width):
        vector, at = (
            _vector(prefix, range(first, first + width)),
            f"[%at_{name}+{(step * registers + first) * bits // 8}]",
        )
        given = f"{vector}, {at}" if base == "ld" else f"{at}, {vector}"
        lines.append(f"    {base}.global.v{width}.b{bits} {given};\n")
    return "".join(lines)


def _vector(prefix: str, numbers: range) -> str:
    return "{" + ", ".join(f"%{prefix}{i}" for i in numbers) + "}"


# ---- operands and answers --------------------------------------------------------------------------


def draw(type_name: str, shape: tuple[int, ...], random: np.random.Generator) -> Any:
    """Draw elements as words: uniform bits and integers, or normally distributed floats."""
    if type_name in ("b1", "s8"):
        return random.integers(0, 2 if type_name == "b1" else 256, shape, dtype=np.uint8)
    x = random.standard_normal(shape)
    return x.view(np.uint64) if type_name == "f64" else narrow(x.astype(np.float32), type_name)


def numbers(type_name: str, words: Any) -> Any:
    """The values of words as float64, exact."""
    if type_name in ("b1", "s8"):
        return (words if type_name == "b1" else words.view(np.int8)).astype(np.float64)
    return words.view(np.float64) if type_name == "f64" else widen(words, type_name).astype(np.float64)


def check(case: Case, a: Any, b: Any, d: Any) -> None:
    """Refuse a wrong product of a (steps, warps, m, k) and b (steps, warps, k, n)."""
    x, y = numbers(case.types[1], a), numbers(case.types[2], b)
    # Of bits, those that differ: one is set, and the other is not.
    exact = x @ (1 - y) + (1 - x) @ y if case.types[1] == "b1" else x @ y
    exact = case.loops * exact.sum(axis=0)
    if case.types[0] == "s32":
        check_equal(d.view(np.int32), exact.astype(np.int32))
        return
    magnitude = case.loops * (np.abs(x) @ np.abs(y)).sum(axis=0)
    result = d.view(np.float64 if case.types[0] == "f64" else np.float32)
    check_close(result, exact, case.loops * STEPS * error(case) * magnitude)


def error(case: Case) -> float:
    """The largest error of one instruction, relative to the sum of all magnitudes.

    For f64, from the roundings of a chain of fma; else from the truncation of each addend, and three
    roundings toward zero.
    """
    k = case.fragments.shape.k
    return 2 * k * 2.0**-53 if case.types[0] == "f64" else 2 * ((k + 2) * 2.0**-25 + 3 * 2.0**-23)


def sample(case: Case, random: np.random.Generator) -> float:
    """Measure one launch, in seconds."""
    fragments, (_, a_type, b_type, _) = case.fragments, case.types
    m, n, k = fragments.shape
    a, b = draw(a_type, (STEPS, WARPS, m, k), random), draw(b_type, (STEPS, WARPS, k, n), random)
    layouts = {name: fragments.operands[name].layout for name in "abd"}
    device = TimedDevice(cc=HOPPER)
    # (steps, warps, lanes, registers): each thread has the registers of all its steps side by side.
    given = [
        device.upload(np.ascontiguousarray(layouts[name].pack(words).transpose(1, 2, 0, 3)))
        for name, words in (("a", a), ("b", b))
    ]
    d = device.allocate((WARPS, 32, layouts["d"].registers), np.dtype(f"u{layouts['d'].register_bits // 8}"))
    launch = device.load(kernel(case)).kernel("multiply")
    launch((WARPS // BLOCK_WARPS, 1, 1), (32 * BLOCK_WARPS, 1, 1), *given, d, np.uint32(case.loops))
    check(case, a, b, layouts["d"].unpack(d.download()))
    seconds, _ = device.samples[-1]
    return seconds


# ---- MMA-Sim ---------------------------------------------------------------------------------------


def peer_of(case: Case, random: np.random.Generator) -> Mapping[str, float]:
    """MMA-Sim's multiply-accumulates per second; its results must equal ours where the rules agree."""
    if case.peer is None:
        return {}
    if find_spec("mmasim") is None or find_spec("torch") is None:
        return QUOTED
    architecture, name = case.peer
    multiply, tensor = _mma_sim(architecture, name)
    m, n, k = case.fragments.shape
    work, seconds = m * n * k, []
    for _ in range(PEER_INSTRUCTIONS):
        shapes = (m, k), (k, n), (m, n)
        words = [
            draw(t if t != "f32" else "tf32", s, random) for t, s in zip(case.types[1:], shapes, strict=True)
        ]
        given = [tensor(word, t) for word, t in zip(words, case.types[1:], strict=True)]
        start = time.perf_counter()
        d = multiply(*given)
        seconds.append(time.perf_counter() - start)
        if architecture == "Hopper" and case.types[0] == "f32":
            check_equal(
                d.numpy().view(np.uint32), floats(*words, case.types, rule_of(HOPPER, case.types, (m, n, k)))
            )
    return {f"MMA-Sim ({architecture})": work / median(seconds)}


def _mma_sim(architecture: str, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """MMA-Sim's function for an instruction, and the function that converts words to its operands."""
    import torch
    from mmasim.simulator.nv_ptx import mma

    dtypes = {
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "tf32": torch.float32,
        "f32": torch.float32,
        "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
        "f64": torch.float64,
    }

    def tensor(words: Any, type_name: str) -> Any:
        return torch.from_numpy(words.view(f"i{words.itemsize}")).view(dtypes[type_name])

    return mma(architecture, name), tensor


# ---- rows ------------------------------------------------------------------------------------------


def rows(cases: Mapping[str, Case]) -> Iterator[Row]:
    """Measure the cases in turns, so that a disturbance of the machine does not affect only one."""
    random = np.random.default_rng()
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for repetition in range(max(case.repetitions for case in cases.values()) + 1):
        for name, case in cases.items():
            if repetition <= case.repetitions:
                taken = sample(case, random)
                if repetition:  # the first one parses and links, and does not count
                    seconds[name].append(taken)
    for name, case in cases.items():
        m, n, k = case.fragments.shape
        instructions = WARPS * STEPS * case.loops
        speeds = [instructions * m * n * k / taken for taken in seconds[name]]
        lower, _, upper = quantiles(speeds, n=4)
        params: dict[str, Any] = {
            "opcode": case.opcode,
            "warps": WARPS,
            "instructions_per_warp": STEPS * case.loops,
            "repetitions": len(speeds),
            "quartiles": [lower, upper],
        }
        unit = "bit-MAC/s" if name == "b1" else "MAC/s"
        peers = peer_of(case, random)
        yield Row(f"mma/{name}", params, unit, "higher", median(speeds), peers, target=case.target)


if __name__ == "__main__":
    measure(__doc__, CASES, rows)
