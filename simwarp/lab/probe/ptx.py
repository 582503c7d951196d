"""PTX text common to all fragment probes, and the launch of their kernels.

Each kernel is named ``probe`` and has its own module, so that a device without its instruction still
loads the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cuda.driver import is_raised_here
from simwarp.chips.chips import chip_name
from simwarp.faults import UnsupportedInstruction
from simwarp.fragments import Layout, Operand
from simwarp.lab.probe.passes import read


class NotExecutedError(Exception):
    """The device does not execute the instruction; the message is the reason."""


def module(opcode: str, compute_capability: tuple[int, int], parameters: str, body: str) -> str:
    """A PTX module with one kernel, for the PTX version and target that the opcode needs.

    ``parameters`` names 64-bit parameters, separated by spaces; each is loaded into the register of its
    name. ``%lane`` and ``%pass`` hold the numbers of the thread and of the block.
    """
    names = parameters.split()
    late = "wgmma" in opcode or ".e4m3" in opcode or ".e5m2" in opcode
    target = f"{chip_name(compute_capability)}{'a' * opcode.startswith('wgmma')}"
    return f""".version {"8.7" if late else "8.0"}
.target {target}
.address_size 64
.visible .entry probe({", ".join(f".param .u64 {name}" for name in names)}) {{
.reg .b32 %lane, %pass; .reg .b64 {", ".join(f"%{name}" for name in names)}, %at;
mov.u32 %lane, %tid.x; mov.u32 %pass, %ctaid.x;
{" ".join(f"ld.param.u64 %{name}, [{name}];" for name in names)}
{body}
ret; }}
"""


def load(device: Any, text: str) -> Any:
    """Load a module and return its kernel; NotExecutedError if the device refuses the module."""
    try:
        return device.load(text).kernel("probe")
    except UnsupportedInstruction as error:
        raise NotExecutedError(str(error).splitlines()[0]) from None
    except Exception as error:
        if is_raised_here(error):
            raise NotExecutedError(" ".join(str(error).split())) from None
        raise


def run(
    device: Any, kernel: Any, blocks: tuple[int, ...], d: Layout, tables: Sequence[Any], *scalars: Any
) -> npt.NDArray[Any]:
    """Launch a probe on tables in global memory; return the elements of D, (*blocks, holders)."""
    arrays = [device.upload(table) for table in tables]
    sums = device.allocate((*blocks, d.lanes, d.registers), np.dtype(f"u{d.register_bits // 8}"))
    kernel((*blocks[::-1], 1, 1)[:3], (d.lanes, 1, 1), *arrays, sums, *scalars)
    answer = sums.download()
    for array in (*arrays, sums):
        array.free()
    return read(d, answer)


def register_type(operand: Operand) -> str:
    """The PTX type of the registers of a matrix operand."""
    return operand.type if operand.type in ("f32", "f64") else "b32"


def declare(operand: Operand) -> str:
    """The PTX declaration of an operand's registers, ``%a0``, ``%a1`` …."""
    return f".reg .{register_type(operand)} %{operand.name}<{operand.layout.registers}>;"


def vector(operand: Operand) -> str:
    """Format an operand as a matrix instruction names it: ``{%a0, %a1}``."""
    return f"{{{', '.join(f'%{operand.name}{i}' for i in range(operand.layout.registers))}}}"


def move(operation: str, operand: Operand, table: str, row: str = "%pass") -> str:
    """PTX that loads ("ld") or stores ("st") an operand's registers in a table (rows, lanes, registers).

    ``table`` and ``row`` are registers that hold the table's address and the row's number.
    """
    layout = operand.layout
    size = layout.register_bits // 8
    bits = f"b{layout.register_bits}"
    lines = [
        f"mad.wide.u32 %at, {row}, {layout.lanes * layout.registers * size}, {table};",
        f"mad.wide.u32 %at, %lane, {layout.registers * size}, %at;",
    ]
    for i in range(layout.registers):
        register, place = f"%{operand.name}{i}", f"[%at+{i * size}]"
        order = (register, place) if operation == "ld" else (place, register)
        lines.append(f"{operation}.global.{bits} {order[0]}, {order[1]};")
    return "\n".join(lines)
