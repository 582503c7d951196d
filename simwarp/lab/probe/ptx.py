"""PTX text for probes: what the kernels of all of them have in common.

Each kernel is named ``probe`` and lives in a module of its own, so that a chip that lacks its instruction
refuses no other.

Examples
--------
>>> from simwarp.fragments import fragments_of
>>> b = fragments_of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").operands["b"]
>>> declare(b), vector(b)
('.reg .b32 %b<2>;', '{%b0, %b1}')
>>> print(move("ld", b, "%factors"))
mad.wide.u32 %at, %pass, 256, %factors;
mad.wide.u32 %at, %lane, 8, %at;
ld.global.b32 %b0, [%at+0];
ld.global.b32 %b1, [%at+4];
>>> import simwarp
>>> load(simwarp.Device(), module("wgmma", (9, 0), "out", "wgmma.fence.sync.aligned;"))
Traceback (most recent call last):
    ...
simwarp.lab.probe.ptx.NotExecutedError: line 8: `wgmma.fence.sync.aligned;` is not supported
"""

from __future__ import annotations

from typing import Any

from simwarp.faults import UnsupportedInstruction
from simwarp.fragments import Operand


class NotExecutedError(Exception):
    """The device does not have the instruction; says why."""


def module(opcode: str, compute_capability: tuple[int, int], parameters: str, body: str) -> str:
    """The text of a module with one kernel.

    Parameters
    ----------
    opcode : str
        Decides the version of PTX and the target.
    compute_capability : (int, int)
    parameters : str
        Names of 64-bit parameters, with spaces between; each is loaded into the register of its name.
    body : str
        ``%lane`` and ``%pass`` hold the number of the thread and of the block.

    Examples
    --------
    >>> print(module("movmatrix", (7, 5), "out", "st.global.b32 [%out], %lane;"))
    .version 8.0
    .target sm_75
    .address_size 64
    .visible .entry probe(.param .u64 out) {
    .reg .b32 %lane, %pass; .reg .b64 %out, %at;
    mov.u32 %lane, %tid.x; mov.u32 %pass, %ctaid.x;
    ld.param.u64 %out, [out];
    st.global.b32 [%out], %lane;
    ret;
    }
    <BLANKLINE>
    """
    names = parameters.split()
    late = "wgmma" in opcode or ".e4m3" in opcode or ".e5m2" in opcode
    major, minor = compute_capability
    return "\n".join(
        (
            f".version {'8.7' if late else '8.0'}",
            f".target sm_{major}{minor}{'a' if opcode.startswith('wgmma') else ''}",
            ".address_size 64",
            f".visible .entry probe({', '.join(f'.param .u64 {name}' for name in names)}) {{",
            f".reg .b32 %lane, %pass; .reg .b64 {', '.join(f'%{name}' for name in names)}, %at;",
            "mov.u32 %lane, %tid.x; mov.u32 %pass, %ctaid.x;",
            " ".join(f"ld.param.u64 %{name}, [{name}];" for name in names),
            body,
            "ret;",
            "}",
            "",
        )
    )


def load(device: Any, text: str) -> Any:
    """The kernel of a module.

    Raises
    ------
    NotExecutedError
        If the device refuses the text.
    """
    try:
        return device.load(text).kernel("probe")
    except UnsupportedInstruction as error:
        raise NotExecutedError(str(error).splitlines()[0]) from None
    except Exception as error:
        if type(error).__module__.startswith("pycuda"):
            raise NotExecutedError(" ".join(str(error).split())) from None
        raise


def register_type(operand: Operand) -> str:
    """The type that PTX wants of an operand's registers.

    Examples
    --------
    >>> from simwarp.fragments import fragments_of
    >>> fragments = fragments_of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> register_type(fragments.operands["a"]), register_type(fragments.operands["d"])
    ('b32', 'f32')
    """
    return operand.type if operand.type in ("f32", "f64") else "b32"


def declare(operand: Operand) -> str:
    """The declaration of an operand's registers: ``%a0``, ``%a1`` …."""
    return f".reg .{register_type(operand)} %{operand.name}<{operand.layout.registers}>;"


def vector(operand: Operand) -> str:
    """The operand as a matrix instruction takes it: ``{%a0, %a1}``."""
    return f"{{{', '.join(f'%{operand.name}{i}' for i in range(operand.layout.registers))}}}"


def move(operation: str, operand: Operand, table: str, row: str = "%pass") -> str:
    """Load or store an operand's registers: row ``row`` of a table (…, lanes, registers) of words.

    Parameters
    ----------
    operation : str
        "ld" or "st".
    operand : Operand
    table, row : str
        Registers: the address of the table, and the number of the row.
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
