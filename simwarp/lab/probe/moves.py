"""Probes of instructions that move matrices: wmma.load, wmma.store, ldmatrix, stmatrix, movmatrix.

Every bit of the source is numbered (`simwarp.lab.probe.passes`), so the probe works for every type: after a
load, the passes spell for each register bit the number of its memory bit; after a store, for each memory bit
the number of its register bit. An element's place in memory is known, so the maps are determined completely.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simwarp.fragments import Fragments, Operand
from simwarp.lab.probe.finding import Finding, compare, digest, expected_numbers
from simwarp.lab.probe.passes import NOWHERE, UNCLEAR, Numbers, numbers, passes
from simwarp.lab.probe.ptx import declare, load, module, move, vector
from simwarp.lanes import WARP_SIZE

_ROWS, _ROW_BYTES = WARP_SIZE, 16
"""ldmatrix and stmatrix: every lane has its own row of shared memory, even if its address is not read."""


def probe_moves(device: Any, fragments: Fragments) -> Finding:
    """Find the maps of an instruction that moves a matrix."""
    opcode = fragments.opcode
    if opcode.startswith("movmatrix"):
        return _probe_movmatrix(device, fragments)
    (operand,) = fragments.operands.values()
    layout = operand.layout
    if opcode.startswith("wmma"):
        bits = layout.rows * layout.columns * layout.bits
        text = _wmma_text(opcode, operand, bits)
    else:
        bits, text = _ROWS * _ROW_BYTES * 8, _matrix_text(opcode, operand)
    kernel = load(device, module(opcode, device.compute_capability, "source target", text))
    if opcode.startswith(("wmma.store", "stmatrix")):
        came = _moved(device, kernel, _register_bits(operand), bits)
        places = np.full(_register_bits(operand), NOWHERE, np.int32)
        places[came[came >= 0]] = np.flatnonzero(came >= 0)
    else:
        places = came = _moved(device, kernel, bits, _register_bits(operand))
    found = _elements(places, operand)
    if operand.memory == "col":  # elements are numbered along columns in memory
        by_rows = found % layout.rows * layout.columns + found // layout.rows
        found = np.where(found < 0, found, by_rows).astype(np.int32)
    return Finding(opcode, (compare(operand, found),), digest(came))


def _moved(device: Any, kernel: Any, sent: int, arriving: int) -> Numbers:
    """Launch the kernel for all passes; return for each arriving bit the number of the sent bit."""
    pattern = passes(sent)
    source = device.upload(np.packbits(pattern, axis=1, bitorder="little"))
    target = device.upload(np.zeros((len(pattern), arriving // 8), np.uint8))
    kernel((len(pattern), 1, 1), (WARP_SIZE, 1, 1), source, target)
    return numbers(np.unpackbits(target.download(), axis=1, bitorder="little").astype(np.bool_))


def _register_bits(operand: Operand) -> int:
    layout = operand.layout
    return layout.lanes * layout.registers * layout.register_bits


def _elements(places: Numbers, operand: Operand) -> Numbers:
    """The number of the memory element in each slot of an operand, from the number of each bit."""
    layout = operand.layout
    of_slot = places.reshape(layout.lanes, layout.registers, layout.slots, layout.bits)
    lowest = of_slot[..., :1]
    together = (of_slot == lowest + np.arange(layout.bits)).all(-1) & (lowest[..., 0] % layout.bits == 0)
    nothing = (of_slot == NOWHERE).all(-1)
    element = np.where(together, lowest[..., 0] // layout.bits, UNCLEAR)
    return np.where(nothing, NOWHERE, element).astype(np.int32)


def _wmma_text(opcode: str, operand: Operand, bits: int) -> str:
    """PTX that loads or stores a wmma fragment; the tile of each pass follows that of the pass before."""
    layout = operand.layout
    stride = layout.rows if operand.memory == "col" else layout.columns
    tile = f"mad.wide.u32 %at, %pass, {bits // 8},"
    head = f"{declare(operand)} .reg .b32 %stride; mov.u32 %stride, {stride};"
    if opcode.startswith("wmma.store"):
        lines = move("ld", operand, "%source"), f"{tile} %target; {opcode} [%at], {vector(operand)}, %stride;"
    else:
        lines = f"{tile} %source; {opcode} {vector(operand)}, [%at], %stride;", move("st", operand, "%target")
    return "\n".join([head, *lines])


def _matrix_text(opcode: str, operand: Operand) -> str:
    """PTX that loads or stores matrices with one row in shared memory per lane."""
    rows = _ROWS * _ROW_BYTES
    store = opcode.startswith("stmatrix")
    head = f"""{declare(operand)} .reg .b64 %row, %memory; .reg .b32 %word<4>;
.shared .align 16 .b8 rows[{rows}];
mov.u64 %row, rows; cvta.shared.u64 %row, %row; mad.wide.u32 %row, %lane, {_ROW_BYTES}, %row;
mad.wide.u32 %memory, %pass, {rows}, {"%target" if store else "%source"};
mad.wide.u32 %memory, %lane, {_ROW_BYTES}, %memory;"""
    words = "{%word0, %word1, %word2, %word3}"
    if store:
        return f"""{head}
mov.u32 %word0, 0; st.v4.b32 [%row], {{%word0, %word0, %word0, %word0}};
{move("ld", operand, "%source")}
bar.sync 0; {opcode} [%row], {vector(operand)}; bar.sync 0;
ld.v4.b32 {words}, [%row]; st.global.v4.b32 [%memory], {words};"""
    return f"""{head}
ld.global.v4.b32 {words}, [%memory]; st.v4.b32 [%row], {words};
bar.sync 0; {opcode} {vector(operand)}, [%row];
{move("st", operand, "%target")}"""


def _probe_movmatrix(device: Any, fragments: Fragments) -> Finding:
    """Find the map of d, the transpose of a, from the known map of a."""
    a, d = fragments.operands["a"], fragments.operands["d"]
    loaded, stored = move("ld", a, "%source"), move("st", d, "%target")
    text = f"{declare(a)} {declare(d)}\n{loaded}\n{fragments.opcode} %d0, %a0;\n{stored}"
    kernel = load(device, module(fragments.opcode, device.compute_capability, "source target", text))
    came = _moved(device, kernel, _register_bits(a), _register_bits(d))
    slots = _elements(came, d)
    held = expected_numbers(a.layout).ravel()
    of_a = held[np.maximum(slots, 0)]
    transposed = of_a % a.layout.columns * a.layout.rows + of_a // a.layout.columns
    found = np.where(slots < 0, slots, transposed).astype(np.int32)
    return Finding(fragments.opcode, (compare(d, found),), digest(came))
