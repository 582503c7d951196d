"""Probes of products, mma and wmma.mma: what is multiplied with what, and into what.

One element of A is 1, in one holder after the other; the elements of B hold a bit of their own holders'
numbers, pass by pass (`simwarp.lab.probe.passes`), and C is zero. The elements of D that are not zero then
spell, each of them, the holder of the element of B that met A's one. C is numbered likewise, with A and B
zero.

Examples
--------
Lane 4 holds row 1, column 0 of A; B's row 0 is held by lanes 0, 4, 8 …; D's row 1 by lanes 4, 5 …:

>>> import simwarp
>>> from simwarp.fragments import fragments_of
>>> mma = fragments_of("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
>>> measure(simwarp.Device(), mma).met[4, 8:12].tolist()
[0, 4, 8, 12]
>>> probe_product(simwarp.Device(), mma).agreed
True
"""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.fragments import Fragments, Layout, Operand
from simwarp.lab.probe.finding import Finding
from simwarp.lab.probe.passes import UNCLEAR, Numbers, numbers, passes
from simwarp.lab.probe.ptx import declare, load, module, move, vector
from simwarp.lab.probe.registers import ONE, fill, holders, read
from simwarp.lab.probe.relation import Relation, judge
from simwarp.lanes import WARP_SIZE


def probe_product(device: Any, fragments: Fragments) -> Finding:
    """Find the relation between the registers of a product, and compare it.

    Parameters
    ----------
    device
        A `simwarp.Device` or a `gpu.CudaDevice`.
    fragments : Fragments
        Says how many registers the form has, and what to compare with.

    Raises
    ------
    NotExecutedError
        If the device does not have the instruction.
    """
    return judge(measure(device, fragments), fragments)


def measure(device: Any, fragments: Fragments) -> Relation:
    """The relation, from the device alone."""
    opcode, operands = fragments.opcode, fragments.operands
    a, b, c, d = (operands[name] for name in "abcd")
    text = module(opcode, device.compute_capability, "factors addends sums first", _text(opcode, a, b, c, d))
    kernel = load(device, text)
    nobody = holders(a.layout)
    factors, addends = passes(holders(b.layout)), passes(holders(c.layout))
    products = _launch(
        device, kernel, operands, factors, np.zeros((1, holders(c.layout)), bool), nobody + 1, 0
    )
    sums = _launch(device, kernel, operands, np.zeros((1, holders(b.layout)), bool), addends, 1, nobody)
    if "xor" in opcode:  # popc(a ^ b) - popc(b) is -1 where both are 1, and 1 where a alone is
        products = products - products[:, -1:]
        one, nothing = 0xFFFFFFFF, np.array([0, 1], np.uint32)
    else:
        one, nothing = ONE[d.type], np.array([0], products.dtype)
    met = _numbers(products[:, :-1], one, nothing)
    return Relation(met, _numbers(sums[:, 0], ONE[d.type], np.array([0], sums.dtype)))


def _launch(
    device: Any,
    kernel: Any,
    operands: Any,
    factors: npt.NDArray[np.bool_],
    addends: npt.NDArray[np.bool_],
    count: int,
    first: int,
) -> npt.NDArray[Any]:
    """D's elements, (passes, ``count``, holders of D), A's one in the holders from ``first`` on."""
    b, c, d = (operands[name] for name in "bcd")
    rounds = max(len(factors), len(addends))
    tables = [
        device.upload(fill(x.layout, x.type, np.broadcast_to(ones, (rounds, ones.shape[1]))))
        for x, ones in ((b, factors), (c, addends))
    ]
    layout: Layout = d.layout
    shape = rounds, count, layout.lanes, layout.registers
    sums = device.allocate(shape, np.dtype(f"u{layout.register_bits // 8}"))
    kernel((count, rounds, 1), (WARP_SIZE, 1, 1), *tables, sums, np.uint64(first))
    answer = sums.download()
    for array in (*tables, sums):
        array.free()
    return read(layout, answer)


def _numbers(elements: npt.NDArray[Any], one: Any, nothing: npt.NDArray[Any]) -> Numbers:
    """Numbers, from elements that are 0 or 1 in each pass; others are `UNCLEAR`."""
    ones = elements == one
    known = (ones | np.isin(elements, nothing)).all(axis=0)
    return np.where(known, numbers(ones), UNCLEAR).astype(np.int32)


def _text(opcode: str, a: Operand, b: Operand, c: Operand, d: Operand) -> str:
    """One block for each holder of A (x) and each pass (y)."""
    layout = a.layout
    width = layout.register_bits
    slot_bits, register_bits = int(log2(layout.slots)), int(log2(layout.registers))
    lines = [
        *(declare(operand) for operand in (a, b, c, d)),
        ".reg .b32 %holder, %first32, %owner, %register, %shift, %round, %width; .reg .pred %mine, %here;",
        f".reg .b{width} %one, %word;",
        "cvt.u32.u64 %first32, %first; add.u32 %holder, %pass, %first32;",
        f"shr.u32 %owner, %holder, {slot_bits + register_bits}; setp.eq.u32 %mine, %owner, %lane;",
        f"shr.u32 %register, %holder, {slot_bits}; and.b32 %register, %register, {layout.registers - 1};",
        f"and.b32 %shift, %holder, {layout.slots - 1}; mul.lo.u32 %shift, %shift, {layout.bits};",
        f"mov.b{width} %one, {ONE[a.type]:#x}; shl.b{width} %one, %one, %shift;",
        "mov.u32 %round, %ctaid.y; mov.u32 %width, %nctaid.x;",
    ]
    for i in range(layout.registers):
        lines.append(f"setp.eq.and.u32 %here, %register, {i}, %mine; selp.b{width} %word, %one, 0, %here;")
        lines.append(f"mov.b{width} %a{i}, %word;")
    lines += [
        move("ld", b, "%factors", "%round"),
        move("ld", c, "%addends", "%round"),
        f"{opcode} {vector(d)}, {vector(a)}, {vector(b)}, {vector(c)};",
        "mad.lo.u32 %round, %round, %width, %pass;",
        move("st", d, "%sums", "%round"),
    ]
    return "\n".join(lines)
