"""Matrix instructions on fragments in registers; a whole warp executes each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.engine.memory.accesses import read_memory, write_memory
from simwarp.faults import DivergentMatrix, Misaligned, WrongStride
from simwarp.fragments import Operand, fragments_of, required_alignment
from simwarp.lanes import LANE, WARP_SIZE
from simwarp.program.program import Step
from simwarp.ptx.kinds import MATRIX_STORE
from simwarp.ptx.spaces import is_in
from simwarp.ptx.syntax import Operand as WrittenOperand
from simwarp.ptx.syntax import Register, Vector

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Mask, Scheduler

_STRIDE = 16
"""Strides are multiples of this many bytes, by the CUDA C++ Programming Guide."""
_ROW = np.dtype("V16")
_ROW_BITS = 16
"""One row of an 8 x 8 matrix, 16 bytes at one lane's address; and the bits of its elements."""


def whole_warp(
    execute: Callable[[Chunk, Step], None], scheduler: Scheduler, pc: int, step: Step
) -> int | None:
    """Execute a matrix instruction for each warp with all 32 lanes at this step; other lanes wait."""
    chunk = scheduler.chunk
    if chunk.active is None and step.guard is None:  # all lanes of all warps execute the step
        execute(chunk, step)
        scheduler.executed(step, chunk.mask)
        return pc + 1
    taken, whole = scheduler.taken(step), chunk.mask
    if pc in scheduler.parked:
        waiting = scheduler.parked.pop(pc)
        taken, whole = taken | waiting, whole | waiting
    some = taken.any(axis=1, keepdims=True)
    never = ~taken & (~chunk.live | whole)  # exited lanes, and lanes whose predicate does not hold
    broken = some & never.any(axis=1, keepdims=True)
    if broken.any():
        _find_missing(chunk, broken & taken, never)
    ready = taken & (broken | taken.all(axis=1, keepdims=True))
    if (late := taken & ~ready).any():
        scheduler.park(pc, late)
    if ready.any():
        chunk.enter(ready, alone=False)
        execute(chunk, step)
        scheduler.executed(step, ready)
    return scheduler.go_on(pc + 1, whole & ~late)


def _find_missing(chunk: Chunk, lanes: Mask, never: Mask) -> None:
    """Report a matrix instruction that other lanes of the warp will never execute."""
    lane = int(lanes.argmax())
    missing = np.flatnonzero(never[lane // WARP_SIZE]).tolist()
    gone = np.flatnonzero(~chunk.live[lane // WARP_SIZE]).tolist()
    why = "have exited or do not exist" if missing == gone else "have exited, or are predicated off"
    fault = DivergentMatrix(
        "a matrix instruction without all lanes of its warp",
        f"{len(missing)} lanes, the first of them lane {missing[0]}, {why}",
        "let all 32 lanes of the warp execute it together, in blocks of a multiple of 32 threads",
    )
    chunk.found(fault, lanes)


# ---- registers ------------------------------------------------------------------------------------


def _registers(chunk: Chunk, parts: list[Any], warps: Any) -> npt.NDArray[Any]:
    """A fragment's registers as one array (warps, 32, registers); ``warps`` selects some of the warps."""
    shape = chunk.mask.shape
    whole = np.empty((*shape, len(parts)), np.asarray(parts[0]).dtype)
    for i, part in enumerate(parts):
        whole[..., i] = part
    return whole if warps is None else whole[warps]


def _executing_warps(chunk: Chunk) -> npt.NDArray[np.intp] | None:
    """The indices of the executing warps; None if all warps execute."""
    if chunk.active is None:
        return None
    warps = np.flatnonzero(chunk.mask.any(axis=1))
    return None if warps.size == chunk.warps else warps


def _write(chunk: Chunk, step: Step, fragment: npt.NDArray[Any], warps: Any) -> None:
    """Write a matrix fragment to the destination registers of the given warps."""
    write = step.destinations[0]
    if write is None:
        return
    by_register = np.ascontiguousarray(np.moveaxis(fragment, -1, 0))
    if warps is not None:
        some, by_register = by_register, np.zeros((len(by_register), *chunk.mask.shape), fragment.dtype)
        by_register[:, warps] = some
    write(chunk, list(by_register))


def compute(chunk: Chunk, step: Step) -> None:
    """Execute a matrix product or transposition, from registers to registers."""
    warps = _executing_warps(chunk)
    given = [_registers(chunk, read(chunk), warps) for read in step.sources]
    _write(chunk, step, step.function(chunk.launch.cc, *given), warps)


# ---- memory ---------------------------------------------------------------------------------------


def load(chunk: Chunk, step: Step) -> None:
    """Execute ``wmma.load`` or ``ldmatrix``."""
    operand = _operand(step)
    if not _has_stride(step):
        _write(chunk, step, _rows_at_addresses(chunk, step, operand), None)
        return
    layout = operand.layout
    fragment = np.zeros((*chunk.mask.shape, layout.registers), f"u{layout.register_bits // 8}")
    slots = fragment.view(f"u{max(layout.bits, 8) // 8}")
    for access in _accesses(chunk, step, operand):
        (value,) = read_memory(chunk, step, access.dtype, 1, access.address)
        slots_of = slots.view(access.dtype)
        slots_of[..., access.place] = value
    if layout.copies > 1:  # registers that hold a second copy of each element
        fragment = layout.pack(layout.unpack(fragment))
    _write(chunk, step, fragment, None)


def store(chunk: Chunk, step: Step) -> None:
    """Execute ``wmma.store`` or ``stmatrix``."""
    operand = _operand(step)
    fragment = _registers(chunk, step.sources[0](chunk), None)
    names = _names(step.instruction.operands[1])
    if not _has_stride(step):
        _store_rows(chunk, step, operand, fragment)
        return
    for access in _accesses(chunk, step, operand):
        value = np.ascontiguousarray(fragment.view(access.dtype)[..., access.place])
        write_memory(chunk, step, value, access.address, names[access.register])


def _has_stride(step: Step) -> bool:
    """Whether an instruction takes one address and a stride, rather than one address per row."""
    return "stride:" in step.row.syntax


def _operand(step: Step) -> Operand:
    """The matrix fragment that ``wmma.load``, ``wmma.store``, ``ldmatrix`` or ``stmatrix`` accesses."""
    (operand,) = fragments_of(step.instruction.opcode).operands.values()
    return operand


def _names(operand: WrittenOperand) -> list[str]:
    """The register names of a fragment operand; "" for an element that is not a register."""
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    return [element.name if isinstance(element, Register) else "" for element in elements]


class _Access(NamedTuple):
    """One memory access per lane: neighbouring elements that one fragment register holds."""

    register: int
    place: int
    dtype: np.dtype[Any]
    address: Any


def _accesses(chunk: Chunk, step: Step, operand: Operand) -> Iterator[_Access]:
    """Yield the accesses of ``wmma.load`` or ``wmma.store``, register by register."""
    layout = operand.layout
    base, stride = _base(chunk, step), _stride(chunk, step, operand)
    _check_rows(chunk, step, operand, base, stride)
    offsets, run = operand.addresses(np.reshape(stride, -1) if np.ndim(stride) else stride), operand.run
    dtype = np.dtype(f"u{run * layout.bits // 8}")
    for register in range(layout.registers // layout.copies):
        for slot in range(0, layout.slots, run):
            offset = offsets[..., register, slot] * layout.bits // 8
            place = (register * layout.slots + slot) // run
            yield _Access(register, place, dtype, np.asarray(base + offset.astype(np.uint64)))


def _base(chunk: Chunk, step: Step) -> Any:
    """The address of the matrix's first element, one per warp."""
    if step.base is None:
        raise TypeError(f"{step.instruction.text} has no address")
    return _agreed(chunk, step.base(chunk), "address")


def _stride(chunk: Chunk, step: Step, operand: Operand) -> Any:
    """The stride: elements between the starts of two rows, or columns; one per warp."""
    strides = step.sources[1:] if step.row.kind is MATRIX_STORE else step.sources
    if not strides:
        return operand.default_stride
    return _agreed(chunk, np.asarray(strides[0](chunk)).astype(np.int64), "stride")


def _agreed(chunk: Chunk, value: Any, what: str) -> Any:
    """A value as (warps, 1), or as one number; report warps whose lanes have different values."""
    if np.ndim(value) < 2 or value.shape[1] == 1:
        return value
    first = np.take_along_axis(value, chunk.mask.argmax(axis=1)[:, None], axis=1)
    bad = chunk.mask & (value != first)
    if bad.any():
        lane = int(bad.argmax())
        warp = lane // WARP_SIZE
        fault = DivergentMatrix(
            f"the lanes of a warp do not give the same {what}",
            f"{int(first[warp, 0]):#x} in lane {int(chunk.mask[warp].argmax())}, "
            f"{int(value.reshape(-1)[lane]):#x} in lane {lane % WARP_SIZE}",
            "give the address of the first element and the stride alike in all lanes of the warp",
        )
        chunk.found(fault, bad)
    return first


def _check_rows(chunk: Chunk, step: Step, operand: Operand, base: Any, stride: Any) -> None:
    """Report rows, or columns, that do not start at the required alignment (PTX ISA 9.7.14.4.2).

    The PTX ISA requires strides of a multiple of the bytes that a lane holds, the CUDA C++ Programming Guide
    a multiple of 16 bytes; the lesser is enough. From shared memory an H200 loads A and B by ``ldmatrix``
    where possible, which needs rows that start at multiples of 16 bytes.
    """
    held = required_alignment(operand)
    by_rows = operand.name in "ab" and _ldmatrix_loads(operand)
    in_shared = by_rows & (step.space == "shared" or (step.space == "generic" and is_in(base, "shared")))
    for fault, what, value, bits, unit in (
        (Misaligned, "address", base, 8, held),
        (WrongStride, "stride in elements", stride, operand.layout.bits, min(held, _STRIDE)),
    ):
        units = np.where(in_shared, max(unit, _ROW.itemsize), unit).astype(np.uint64)
        units = np.broadcast_to(units, chunk.mask.shape)
        given = np.broadcast_to(np.asarray(value, np.uint64), chunk.mask.shape)
        bad = chunk.mask & (given * np.uint64(bits) % (np.uint64(8) * units) != 0)
        if bad.any():
            lane = int(bad.argmax())
            width = int(units.reshape(-1)[lane])
            found = fault(
                f"a matrix whose {operand.memory}s do not all start at multiples of {width} bytes",
                f"{what}: {int(given.reshape(-1)[lane]):#x}",
                "align the array and pad its leading dimension to that (PTX ISA, section 9.7.14.4.2)",
                width=width,
            )
            chunk.found(found, bad)


def _ldmatrix_loads(operand: Operand) -> bool:
    """Whether ``ldmatrix`` can load an operand: 16-bit elements, or smaller ones that are neighbours."""
    layout = operand.layout
    return layout.bits == _ROW_BITS or (layout.bits < _ROW_BITS and operand.run == layout.slots)


def _rows_at_addresses(chunk: Chunk, step: Step, operand: Operand) -> npt.NDArray[Any]:
    """``ldmatrix``: each of the first 8, 16 or 32 lanes reads a row; returns the fragment."""
    layout, mask = operand.layout, chunk.mask
    with_addresses = mask & (8 * layout.matrices > LANE)
    chunk.enter(with_addresses, chunk.alone, chunk.needed)
    (data,) = read_memory(chunk, step, _ROW, 1)
    chunk.enter(mask, chunk.alone, chunk.needed)
    rows = np.ascontiguousarray(np.broadcast_to(data, mask.shape)[:, : 8 * layout.matrices])
    matrices = rows.view(np.uint16).reshape(chunk.warps, layout.matrices, 8, 8)
    return layout.pack(matrices if layout.matrices > 1 else matrices[:, 0])


def _store_rows(chunk: Chunk, step: Step, operand: Operand, fragment: npt.NDArray[Any]) -> None:
    """``stmatrix``: each of the first 8, 16 or 32 lanes writes a row."""
    layout, mask = operand.layout, chunk.mask
    matrices = layout.unpack(fragment).reshape(chunk.warps, layout.matrices, 8, 8)
    rows = np.zeros((*mask.shape, 8), np.uint16)
    rows[:, : 8 * layout.matrices] = matrices.reshape(chunk.warps, -1, 8)
    chunk.enter(mask & (8 * layout.matrices > LANE), chunk.alone, chunk.needed)
    write_memory(chunk, step, rows.view(_ROW)[..., 0])
    chunk.enter(mask, chunk.alone, chunk.needed)
