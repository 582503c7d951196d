"""The layout of a program's memories, and the registers that hold their addresses.

>>> tally_of("atom.relaxed.gpu.global.add.s32"), tally_of("atom.shared.exch.b32")
('add.b32', '')
>>> own_at(0), own_at(2)
(2048, 2112)
>>> sorted(needed({"%thread", "%r0"}))
['%cta', '%here', '%r0', '%thread']
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from simwarp.lab.fuzz.registers import REGISTERS

RECORD = 8 * len(REGISTERS)
"""The size in bytes of a thread's inputs, and of its outputs: 8 for each register."""
OWN = 32
"""The size in bytes of each memory that a thread has alone, of the parameter, and of the constants."""
SETS, SET = 8, 256
"""The number of sets of tallies in global memory, before the threads' own memory; bytes of a set."""
CELL = 16
"""The size in bytes of a thread's cell of shared memory, through which threads exchange values."""
TALLIES: tuple[str, ...] = (
    *(f"{operation}.b{bits}" for operation in ("add", "and", "or", "xor") for bits in (32, 64)),
    *(f"{end}.{sign}{bits}" for end in ("min", "max") for sign in "us" for bits in (32, 64)),
)
"""For each word of a set of tallies, the commutative operation that updates it."""

PARAMETERS = (
    f"\t.param .align 16 .b8 numbers[{OWN}],\n"
    "\t.param .u64 inputs,\n\t.param .u64 outputs,\n\t.param .u64 memory"
)
"""The kernel's parameters in PTX, in an order without padding between them."""
TABLE = f".const .align 16 .b8 table[{OWN}] = {{{', '.join(str(37 * i % 256) for i in range(OWN))}}};\n"

_TO_GLOBAL = "cvta.to.global.u64 {0}, {0}"
BASES: dict[str, tuple[str, str]] = {
    "%lane": ("b32", "mov.u32 {0}, %laneid"),
    "%lane_bit": ("b32", "mov.u32 {0}, %lanemask_eq"),
    "%here": ("b32", "mov.u32 {0}, %tid.x"),
    "%cta": ("b32", "mov.u32 {0}, %ctaid.x"),
    "%thread": ("b32", "mad.lo.u32 {0}, %cta, {block}, %here"),
    "%inputs": ("b64", f"ld.param.u64 {{0}}, [inputs]; {_TO_GLOBAL}"),
    "%own_inputs": ("b64", f"mad.wide.u32 {{0}}, %thread, {RECORD}, %inputs"),
    "%outputs": (
        "b64",
        f"ld.param.u64 {{0}}, [outputs]; {_TO_GLOBAL}; mad.wide.u32 {{0}}, %thread, {RECORD}, {{0}}",
    ),
    "%zero64": ("b64", "ld.volatile.global.b64 {0}, [%outputs]"),
    "%zero32": ("b32", "cvt.u32.u64 {0}, %zero64"),
    "%zero16": ("b16", "cvt.u16.u64 {0}, %zero64"),
    "%never": ("pred", "setp.ne.u64 {0}, %zero64, 0"),
    "%tallies": ("b64", f"ld.param.u64 {{0}}, [memory]; {_TO_GLOBAL}"),
    "%global": ("b64", f"mad.wide.u32 {{0}}, %thread, {OWN}, %tallies; add.u64 {{0}}, {{0}}, {SETS * SET}"),
    "%cells": ("b32", "mov.u32 {0}, cells"),
    "%tally": ("b32", "mov.u32 {0}, tally"),
    "%shared": ("b32", f"mov.u32 {{0}}, shared; mad.lo.u32 {{0}}, %here, {OWN}, {{0}}"),
    "%local": ("b64", "mov.u64 {0}, local"),
    "%table": ("b64", "mov.u64 {0}, table"),
    "%wide_shared": ("b64", "cvt.u64.u32 {0}, %shared"),
    "%generic_global": ("b64", "cvta.global.u64 {0}, %global"),
    "%generic_inputs": ("b64", "cvta.global.u64 {0}, %inputs"),
    "%generic_own_inputs": ("b64", "cvta.global.u64 {0}, %own_inputs"),
    "%generic_tallies": ("b64", "cvta.global.u64 {0}, %tallies"),
    "%generic_shared": ("b64", "cvt.u64.u32 {0}, %shared; cvta.shared.u64 {0}, {0}"),
    "%generic_tally": ("b64", "cvt.u64.u32 {0}, %tally; cvta.shared.u64 {0}, {0}"),
    "%generic_local": ("b64", "cvta.local.u64 {0}, %local"),
    "%generic_table": ("b64", "cvta.const.u64 {0}, %table"),
}
"""By register that programs initialise if they use it: its class, and PTX that reads earlier entries only."""


def needed(registers: Iterable[str]) -> set[str]:
    """The registers, and all of `BASES` from which their initial values are computed."""
    found = set(registers)
    for name, (_, lines) in reversed(BASES.items()):
        if name in found:
            found.update(BASES.keys() & re.findall(r"%\w+", lines))
    return found


def variables(used: set[str], block: int) -> list[str]:
    """The PTX declarations of the memories that the used registers address."""
    sizes = {"cells": CELL * block, "tally": OWN, "shared": OWN * block, "local": OWN}
    return [
        f"\t.{'local' if name == 'local' else 'shared'} .align 16 .b8 {name}[{size}];"
        for name, size in sizes.items()
        if f"%{name}" in used
    ]


def tally_of(opcode: str) -> str:
    """The entry of `TALLIES` that an atomic opcode updates; "" for an operation that is not commutative."""
    words = opcode.split(".")
    kind = words[-1]
    operation = next((word for word in words if word in ("add", "and", "or", "xor", "min", "max")), "")
    if operation in ("add", "and", "or", "xor") and kind[0] in "bsu":
        kind = f"b{kind[1:]}"
    name = f"{operation}.{kind}"
    return name if name in TALLIES else ""


def own_at(thread: int) -> int:
    """The offset in bytes of a thread's own global memory."""
    return SETS * SET + OWN * thread
