"""Probes of mma and wmma.mma: the factors of each product, and the element of C that is added.

One element of A is 1, in each holder in turn; each element of B is one bit of its holder's number in each
pass (`simwarp.lab.probe.passes`), and C is zero. Over the passes, each nonzero element of D spells the number
of the element of B that was multiplied with A's one. C is numbered likewise, with A and B zero.
"""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.fragments import Fragments, Operand
from simwarp.lab.probe.finding import Finding
from simwarp.lab.probe.passes import ONE, Bits, fill, holders, passes, spelled
from simwarp.lab.probe.ptx import declare, load, module, move, run, vector
from simwarp.lab.probe.relation import Relation, judge


def probe_product(device: Any, fragments: Fragments) -> Finding:
    """Find the relation between the registers of a product, and compare it with `simwarp.fragments`."""
    return judge(measure(device, fragments), fragments)


def measure(device: Any, fragments: Fragments) -> Relation:
    """Find the relation between the registers of a product by launches on the device."""
    opcode, operands = fragments.opcode, fragments.operands
    a, b, c, d = (operands[name] for name in "abcd")
    text = module(opcode, device.compute_capability, "factors addends sums first", _text(opcode, a, b, c, d))
    kernel = load(device, text)

    def launch(factors: Bits, addends: Bits, count: int, first: int) -> npt.NDArray[Any]:
        """D's elements, (passes, count, holders of D), with A's one in holder ``first``, ``first + 1``, …."""
        rounds = max(len(factors), len(addends))
        tables = [
            fill(x.layout, x.type, np.broadcast_to(ones, (rounds, ones.shape[1])))
            for x, ones in ((b, factors), (c, addends))
        ]
        return run(device, kernel, (rounds, count), d.layout, tables, np.uint64(first))

    nobody = holders(a.layout)
    factors, addends = passes(holders(b.layout)), passes(holders(c.layout))
    products = launch(factors, np.zeros_like(addends[:1]), nobody + 1, 0)
    sums = launch(np.zeros_like(factors[:1]), addends, 1, nobody)
    if "xor" in opcode:  # popc(a ^ b) - popc(b) counts -1 where a and b are 1, and 1 where only a is 1
        met = spelled((products - products[:, -1:])[:, :-1], 0xFFFFFFFF, 0, 1)
    else:
        met = spelled(products[:, :-1], ONE[d.type], 0)
    return Relation(met, spelled(sums[:, 0], ONE[d.type], 0))


def _text(opcode: str, a: Operand, b: Operand, c: Operand, d: Operand) -> str:
    """PTX with one block for each holder of A (grid x) and each pass (grid y)."""
    layout, width = a.layout, a.layout.register_bits
    slot_bits, register_bits = int(log2(layout.slots)), int(log2(layout.registers))
    lines = [
        *(declare(operand) for operand in (a, b, c, d)),
        ".reg .b32 %holder, %first32, %owner, %register, %shift, %round, %width; .reg .pred %mine, %here;",
        f".reg .b{width} %one;",
        "cvt.u32.u64 %first32, %first; add.u32 %holder, %pass, %first32;",
        f"shr.u32 %owner, %holder, {slot_bits + register_bits}; setp.eq.u32 %mine, %owner, %lane;",
        f"shr.u32 %register, %holder, {slot_bits}; and.b32 %register, %register, {layout.registers - 1};",
        f"and.b32 %shift, %holder, {layout.slots - 1}; mul.lo.u32 %shift, %shift, {layout.bits};",
        f"mov.b{width} %one, {ONE[a.type]:#x}; shl.b{width} %one, %one, %shift;",
        "mov.u32 %round, %ctaid.y; mov.u32 %width, %nctaid.x;",
    ]
    lines += [
        f"setp.eq.and.u32 %here, %register, {i}, %mine; selp.b{width} %a{i}, %one, 0, %here;"
        for i in range(layout.registers)
    ]
    lines += [
        move("ld", b, "%factors", "%round"),
        move("ld", c, "%addends", "%round"),
        f"{opcode} {vector(d)}, {vector(a)}, {vector(b)}, {vector(c)};",
        "mad.lo.u32 %round, %round, %width, %pass;",
        move("st", d, "%sums", "%round"),
    ]
    return "\n".join(lines)
