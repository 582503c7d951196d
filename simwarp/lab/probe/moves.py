"""Probes of instructions that move matrices: wmma.load, wmma.store, ldmatrix, stmatrix, movmatrix.

Every bit of the source is numbered (`simwarp.lab.probe.passes`), so the probe works for every type: of each
bit of a register, a load tells the bit of memory that it came from, and a store of each bit of memory the bit
of a register. Rows and columns are named by the memory, so these maps are found outright.
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
"""ldmatrix and stmatrix: every lane has a row of its own, even those whose addresses are not asked for."""


def probe_moves(device: Any, fragments: Fragments) -> Finding:
    """Find the maps of a form that moves a matrix.

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

    Examples
    --------
    Lane 5 is given columns 2 and 3 of row 1, of an 8 x 8 matrix:

    >>> import simwarp
    >>> from simwarp.fragments import fragments_of
    >>> finding = probe_moves(simwarp.Device(), fragments_of("ldmatrix.sync.aligned.m8n8.x1.b16"))
    >>> finding.agreed, finding.operands[0].found[5].tolist()
    (True, [[10, 11]])
    """
    opcode = fragments.opcode
    if opcode.startswith("movmatrix"):
        return _probe_movmatrix(device, fragments)
    (operand,) = fragments.operands.values()
    matrix = opcode.startswith(("ldmatrix", "stmatrix"))
    bits = (
        _ROWS * _ROW_BYTES * 8
        if matrix
        else operand.layout.rows * operand.layout.columns * operand.layout.bits
    )
    text = _matrix_text(opcode, operand) if matrix else _wmma_text(opcode, operand, bits)
    kernel = load(device, module(opcode, device.compute_capability, "source target", text))
    if opcode.startswith(("wmma.store", "stmatrix")):
        came = _moved(device, kernel, _register_bits(operand), bits)
        places = _inverse(came, _register_bits(operand))
    else:
        places = came = _moved(device, kernel, bits, _register_bits(operand))
    found = _elements(places, operand)
    if operand.memory == "col":
        found = _by_rows(found, operand)
    return Finding(opcode, (compare(operand, found),), digest(came))


def _moved(device: Any, kernel: Any, sent: int, arriving: int) -> Numbers:
    """For each of the arriving bits, the number of the sent bit that it is."""
    pattern = passes(sent)
    source = device.upload(np.packbits(pattern, axis=1, bitorder="little"))
    target = device.upload(np.zeros((len(pattern), arriving // 8), np.uint8))
    kernel((len(pattern), 1, 1), (WARP_SIZE, 1, 1), source, target)
    return numbers(np.unpackbits(target.download(), axis=1, bitorder="little").astype(np.bool_))


def _register_bits(operand: Operand) -> int:
    layout = operand.layout
    return layout.lanes * layout.registers * layout.register_bits


def _inverse(came: Numbers, sent: int) -> Numbers:
    """For each sent bit, the place where it arrives."""
    went = np.full(sent, NOWHERE, np.int32)
    arrived = np.flatnonzero(came >= 0)
    went[came[arrived]] = arrived
    return went


def _elements(places: Numbers, operand: Operand) -> Numbers:
    """The element of memory of each slot, from the bit of memory of each bit of it."""
    layout = operand.layout
    of_slot = places.reshape(layout.lanes, layout.registers, layout.slots, layout.bits)
    lowest = of_slot[..., :1]
    together = (of_slot == lowest + np.arange(layout.bits)).all(-1) & (lowest[..., 0] % layout.bits == 0)
    nothing = (of_slot == NOWHERE).all(-1)
    element = np.where(together, lowest[..., 0] // layout.bits, UNCLEAR)
    return np.where(nothing, NOWHERE, element).astype(np.int32)


def _by_rows(found: Numbers, operand: Operand) -> Numbers:
    """Elements counted along columns, as they lie in memory, counted along rows."""
    rows, columns = operand.layout.rows, operand.layout.columns
    return np.where(found < 0, found, found % rows * columns + found // rows).astype(np.int32)


def _wmma_text(opcode: str, operand: Operand, bits: int) -> str:
    """A tile of memory, one behind the other, and the registers."""
    layout = operand.layout
    stride = layout.rows if operand.memory == "col" else layout.columns
    tile = f"mad.wide.u32 %at, %pass, {bits // 8},"
    if opcode.startswith("wmma.store"):
        return f"""{declare(operand)} .reg .b32 %stride;
mov.u32 %stride, {stride};
{move("ld", operand, "%source")}
{tile} %target;
{opcode} [%at], {vector(operand)}, %stride;"""
    return f"""{declare(operand)} .reg .b32 %stride;
mov.u32 %stride, {stride};
{tile} %source;
{opcode} {vector(operand)}, [%at], %stride;
{move("st", operand, "%target")}"""


def _matrix_text(opcode: str, operand: Operand) -> str:
    """32 rows in shared memory, each with its own lane's address, and the registers."""
    rows = _ROWS * _ROW_BYTES
    head = f"""{declare(operand)} .reg .b64 %row, %memory; .reg .b32 %word<4>;
.shared .align 16 .b8 rows[{rows}];
mov.u64 %row, rows; cvta.shared.u64 %row, %row; mad.wide.u32 %row, %lane, {_ROW_BYTES}, %row;"""
    memory = f"mad.wide.u32 %memory, %pass, {rows}, {{}}; mad.wide.u32 %memory, %lane, {_ROW_BYTES}, %memory;"
    words = "{%word0, %word1, %word2, %word3}"
    if opcode.startswith("stmatrix"):
        return f"""{head}
mov.u32 %word0, 0; st.v4.b32 [%row], {{%word0, %word0, %word0, %word0}};
{move("ld", operand, "%source")}
bar.sync 0;
{opcode} [%row], {vector(operand)};
bar.sync 0;
{memory.format("%target")}
ld.v4.b32 {words}, [%row]; st.global.v4.b32 [%memory], {words};"""
    return f"""{head}
{memory.format("%source")}
ld.global.v4.b32 {words}, [%memory]; st.v4.b32 [%row], {words};
bar.sync 0;
{opcode} {vector(operand)}, [%row];
{move("st", operand, "%target")}"""


def _probe_movmatrix(device: Any, fragments: Fragments) -> Finding:
    """The transpose, with the rows and columns that a has; the element of d is the one that a's map names."""
    a, d = fragments.operands["a"], fragments.operands["d"]
    text = f"""{declare(a)} {declare(d)}
{move("ld", a, "%source")}
{fragments.opcode} %d0, %a0;
{move("st", d, "%target")}"""
    kernel = load(device, module(fragments.opcode, device.compute_capability, "source target", text))
    came = _moved(device, kernel, _register_bits(a), _register_bits(d))
    slots = _elements(came, d)
    held = expected_numbers(a.layout).ravel()
    of_a = held[np.maximum(slots, 0)]
    transposed = of_a % a.layout.columns * a.layout.rows + of_a // a.layout.columns
    found = np.where(slots < 0, slots, transposed).astype(np.int32)
    return Finding(fragments.opcode, (compare(d, found),), digest(came))
