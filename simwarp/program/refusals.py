"""Errors for instructions without a row, and for operands that match a row but that ptxas refuses.

Each refusal was checked with ptxas 13.0.
"""

from __future__ import annotations

from simwarp.faults import PtxSyntaxError, UnsupportedInstruction
from simwarp.fragments import FragmentError, fragments_of
from simwarp.fragments.opcodes import MAPS
from simwarp.program.program import Step
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.kinds import ASYNC_COPY, BARRIER, PURE, REGISTER_COUNT, TENSOR_MAP, WARP, WARPGROUP_PRODUCT
from simwarp.ptx.rows import DTYPES, OperandSpec
from simwarp.ptx.syntax import Address, Immediate, Instruction, Operand, Register, SourceLine, Symbol, Vector

_NAMED = 6
"""Most rows that an error names."""
_LONGEST = 40
_NEWER = frozenset(
    (
        *("tile::gather4", "tile::scatter4", "im2col::w", "im2col::w::128", "cta_group::1", "cta_group::2"),
        *("swizzle_atomicity", "override::global_address"),
    )
)
"""Modifiers of tensor copies that sm_90 does not have."""
_FLOATS = frozenset(("f16", "f32", "f64"))
_INTEGERS = frozenset(sign + width for sign in "us" for width in ("8", "16", "32", "64"))
_GENERIC = ("global", "shared", "local")
"""The state spaces that generic addresses can point to."""


def unsupported(instruction: Instruction, message: str) -> UnsupportedInstruction:
    """The error for an instruction that this version cannot execute, with its line of CUDA C++."""
    source, line, text = instruction.source, instruction.line, instruction.text
    where = f"line {line}: `{text}`"
    if source is not None:
        where = f"{source.file}:{source.line}: `{text}`, line {line} of the PTX,"
    return with_source(UnsupportedInstruction(f"{where} {message}"), source)


def with_source(error: UnsupportedInstruction, source: SourceLine | None) -> UnsupportedInstruction:
    """Set the line of CUDA C++ of an error, and return the error."""
    if source is not None:
        error.source_file, error.source_line = source.file, source.line
    return error


def without_a_row(instruction: Instruction) -> UnsupportedInstruction:
    """The error for an opcode without a row, with the supported opcodes of the same base."""
    base, relatives = instruction.opcode.split(".")[0], TABLE.relatives(instruction.opcode)
    if base in MAPS:
        try:
            fragments_of(instruction.opcode)
        except FragmentError as error:
            return unsupported(instruction, f"is not supported\n{error}")
    newer = sorted(_NEWER.intersection(instruction.opcode.split(".")))
    if newer:
        advice = "copy through tiled or im2col maps, as sm_90 does"
        return unsupported(
            instruction, f"has .{newer[0]}\nthat needs sm_100, which is not simulated\n{advice}"
        )
    more = f" and {len(relatives) - _NAMED} more" if len(relatives) > _NAMED else ""
    runs = f"runs {', '.join(relatives[:_NAMED])}{more}" if relatives else "runs no form of this instruction"
    advice = "`simwarp coverage FILE` lists all that a file lacks"
    return unsupported(instruction, f"is not supported\nof {base[:_LONGEST]}, this version {runs}\n{advice}")


def misuse(instruction: Instruction, message: str, subject: str = "") -> PtxSyntaxError:
    """The error for an instruction with unfit operands; ``subject`` precedes the instruction's text."""
    return PtxSyntaxError(f"line {instruction.line}: {subject}`{instruction.text}` {message}")


def check_class(step: Step, operand: Operand | None, spec: OperandSpec, types: dict[str, str]) -> None:
    """Refuse a float register for an integer operand, and vice versa (PTX ISA 9.4.1)."""
    if not isinstance(operand, Register) or operand.name not in types:
        return
    # rules for other kinds were not compared with ptxas
    if not (step.row.kind.access or step.row.kind in (PURE, WARP)):
        return
    kind = step.form.T if spec.kind == "B" else step.form.resolve(spec.kind)
    bits = step.instruction.opcode.rpartition(".")[2].startswith("b")
    declared = types[operand.name]
    if kind in _INTEGERS and declared in _FLOATS and not bits:
        fitting = f".b{max(DTYPES[kind].itemsize * 8, 16)}"
    elif kind in _FLOATS and declared in _INTEGERS:
        fitting = f".{kind}"
    else:
        return
    message = f"is a .{declared}; the operand is a .{kind}"
    advice = f"declare it as a {fitting}, or move its bits to one that is"
    raise misuse(step.instruction, f"{message}\n{advice}", f"register {operand.name} of ")


def check_barrier(step: Step, operand: Operand, spec: OperandSpec) -> None:
    """Refuse a literal barrier number past 15, or a literal thread count that is not a multiple of 32."""
    if step.row.kind is not BARRIER or not isinstance(operand, Immediate):
        return
    value = operand.value
    if spec.name == "barrier" and not 0 <= value < 16:
        raise misuse(step.instruction, f"names barrier {value}\na block has barriers 0 to 15")
    if spec.name == "threads" and value % 32:
        raise misuse(step.instruction, f"is a barrier of {value} threads\nexpected a multiple of 32")


def check_copy(step: Step, operand: Operand, spec: OperandSpec) -> None:
    """Refuse asynchronous copies of other sizes than PTX has."""
    if spec.name != "size" or not isinstance(operand, Immediate):
        return
    if step.row.kind is TENSOR_MAP:
        sizes = (128,)
    elif step.row.kind is ASYNC_COPY:
        sizes = (16,) if step.form.has("cg") else (4, 8, 16)
    else:
        return
    if operand.value not in sizes:
        expected = ", ".join(map(str, sizes))
        raise misuse(step.instruction, f"copies {operand.value} bytes\nexpected {expected}")


def check_product(step: Step, operand: Operand, spec: OperandSpec) -> None:
    """Refuse immediate operands of a warpgroup's product that PTX does not have."""
    if step.row.kind is not WARPGROUP_PRODUCT or spec.kind != "number" or not isinstance(operand, Immediate):
        return
    allowed = {"scale": (-1, 1), "trans": (0, 1)}.get(spec.name[:-2], (operand.value,))
    if operand.value not in allowed:
        expected = " or ".join(map(str, allowed))
        raise misuse(step.instruction, f"has {operand.value} as {spec.name}\nexpected {expected}")
    operands = step.instruction.operands
    if spec.name == "trans_b" and len(operands) != (7 if isinstance(operands[1], Vector) else 8):
        raise misuse(step.instruction, "has a wrong number of transposes\nA in registers has none, B has one")


def check_registers(step: Step, operand: Operand) -> None:
    """Refuse a number of registers per thread that ``setmaxnreg`` does not take."""
    if step.row.kind is not REGISTER_COUNT or not isinstance(operand, Immediate):
        return
    if not 24 <= operand.value <= 256 or operand.value % 8:
        raise misuse(
            step.instruction, f"names {operand.value} registers\nexpected a multiple of 8 from 24 to 256"
        )


def check_space(step: Step, operand: Operand, spaces: dict[str, str], space: str) -> None:
    """Raise for a variable in another state space than the instruction's, unless that is "generic"."""
    base = operand.base if isinstance(operand, Address) else operand
    declared = spaces.get(base.name, "") if isinstance(base, Symbol) else ""
    if not isinstance(base, Symbol) or not declared:
        return
    if declared not in _GENERIC if space == "generic" else declared != space:
        taken = f"a {space} address" if space == "generic" else f".{space}"
        message = f"takes {taken}; {base.name} lies in .{declared}"
        advice = f"write .{declared} behind the opcode, or name a variable of that state space"
        raise misuse(step.instruction, f"{message}\n{advice}")
