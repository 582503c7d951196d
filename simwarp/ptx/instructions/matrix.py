"""PTX ISA 9.7.14: matrices that a warp holds in fragments.

Who holds what is in `simwarp.fragments`, what products are to the bit in `simwarp.products`; how a warp
executes them together, in `simwarp.engine.tensor_core`.

How floats are added the PTX ISA leaves open; here it is as the device's chip does it.

A row is one group of forms that the same chips have; its name ends with the type of A and B.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simwarp.ptx.instructions._products import multiply, transpose
from simwarp.ptx.instructions._table import row
from simwarp.ptx.rows import Fidelity, Form

_SHAPES = "<.m16n16k16|.m8n32k16|.m32n8k16>"
_LAYOUTS = "<.row|.col>"
_SPACE = "{.global|.shared|.shared::cta}"
_BYTES = "<.s32.s8.s8.s32|.s32.s8.u8.s32|.s32.u8.s8.s32|.s32.u8.u8.s32>"
_NIBBLES = "<.s32.s4.s4.s32|.s32.s4.u4.s32|.s32.u4.s4.s32|.s32.u4.u4.s32>"
_HALVES = "<.f16.f16.f16.f16|.f32.f16.f16.f32>"
_PAIRS = [f".{a}.{b}" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
_EIGHT_BIT_FLOATS = f"<{'|'.join(f'.{c}{pair}.{c}' for c in ('f16', 'f32') for pair in _PAIRS)}>"
_REGISTERS = "d:fragment = a:fragment, b:fragment, c:fragment"

_Declare = Callable[[Callable[..., Any]], Callable[..., Any]]


# ---- mma.sync ------------------------------------------------------------------------------------


def _mma(name: str, spelling: str, minimum_sm: int, summary: str, fidelity: Fidelity = "exact") -> _Declare:
    return row(
        f"mma.sync.aligned{spelling}",
        _REGISTERS,
        name=f"mma.{name}",
        kind="matrix",
        fidelity=fidelity,
        section="9.7.14.5",
        minimum_sm=minimum_sm,
        summary=summary,
    )


@_mma(
    "m8n8k4.f16",
    f".m8n8k4{_LAYOUTS}{_LAYOUTS}<.f16.f16.f16.f16|.f32.f16.f16.f16|.f32.f16.f16.f32>",
    70,
    "d = a b + c, four products of half precision, one in each two quads",
    "open",
)
@_mma("m16n8k8.f16", f".m16n8k8.row.col{_HALVES}", 75, "d = a b + c in half precision, one fused sum", "open")
@_mma(
    "m16n8k16.f16", f".m16n8k16.row.col{_HALVES}", 80, "d = a b + c in half precision, one fused sum", "open"
)
@_mma(
    "bf16",
    "<.m16n8k8|.m16n8k16>.row.col.f32.bf16.bf16.f32",
    80,
    "d = a b + c of bfloat16, one fused sum",
    "open",
)
@_mma(
    "tf32", "<.m16n8k4|.m16n8k8>.row.col.f32.tf32.tf32.f32", 80, "d = a b + c of tf32, one fused sum", "open"
)
@_mma("f8", f"<.m16n8k16|.m16n8k32>.row.col{_EIGHT_BIT_FLOATS}", 89, "d = a b + c of 8-bit floats", "open")
@_mma("m8n8k4.f64", ".m8n8k4.row.col.f64.f64.f64.f64", 80, "d = a b + c, a chain of fma", "open")
@_mma(
    "f64", "<.m16n8k4|.m16n8k8|.m16n8k16>.row.col.f64.f64.f64.f64", 90, "d = a b + c, a chain of fma", "open"
)
@_mma("m8n8k16.s8", f".m8n8k16.row.col{{.satfinite}}{_BYTES}", 75, "d = a b + c of bytes")
@_mma("s8", f"<.m16n8k16|.m16n8k32>.row.col{{.satfinite}}{_BYTES}", 80, "d = a b + c of bytes")
@_mma("m8n8k32.s4", f".m8n8k32.row.col{{.satfinite}}{_NIBBLES}", 75, "d = a b + c of 4-bit integers")
@_mma("s4", f"<.m16n8k32|.m16n8k64>.row.col{{.satfinite}}{_NIBBLES}", 80, "d = a b + c of 4-bit integers")
@_mma(
    "m8n8k128.b1.xor",
    ".m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
    75,
    "d = c plus how many bits of a's row and b's column differ",
)
@_mma(
    "m8n8k128.b1.and",
    ".m8n8k128.row.col.s32.b1.b1.s32.and.popc",
    80,
    "d = c plus how many bits a's row and b's column share",
)
@_mma(
    "b1",
    "<.m16n8k128|.m16n8k256>.row.col.s32.b1.b1.s32<.xor|.and>.popc",
    80,
    "d = c plus how many bits of a's row and b's column differ, or are shared",
)
def mma(form: Form, cc: tuple[int, int], a: Any, b: Any, c: Any) -> Any:
    return multiply(form.opcode, cc, a, b, c)


# ---- wmma ----------------------------------------------------------------------------------------


def _wmma(name: str, spelling: str, minimum_sm: int, summary: str, fidelity: Fidelity = "exact") -> _Declare:
    return row(
        f"wmma.mma{spelling}",
        _REGISTERS,
        name=f"wmma.mma.{name}",
        kind="matrix",
        fidelity=fidelity,
        section="9.7.14.4.5",
        minimum_sm=minimum_sm,
        summary=summary,
    )


_ALIGNED = f".sync.aligned{_LAYOUTS}{_LAYOUTS}"


@_wmma(
    "f16",
    f"{_ALIGNED}{_SHAPES}<.f16.f16|.f16.f32|.f32.f16|.f32.f32>",
    70,
    "d = a b + c in half precision, one fused sum",
    "open",
)
@_wmma("s8", f"{_ALIGNED}{_SHAPES}<.s32.s8.s8.s32|.s32.u8.u8.s32>{{.satfinite}}", 72, "d = a b + c of bytes")
@_wmma("bf16", f"{_ALIGNED}{_SHAPES}.f32.bf16.bf16.f32", 80, "d = a b + c of bfloat16, one fused sum", "open")
@_wmma("tf32", f"{_ALIGNED}.m16n16k8.f32.tf32.tf32.f32", 80, "d = a b + c of tf32, one fused sum", "open")
@_wmma(
    "f64", f"{_ALIGNED}.m8n8k4{{.rn|.rz|.rm|.rp}}.f64.f64.f64.f64", 80, "d = a b + c, a chain of fma", "open"
)
@_wmma(
    "f64.rounding",
    f"{_ALIGNED}.m8n8k4.f64.f64.f64.f64<.rn|.rz|.rm|.rp>",
    80,
    "wmma.mma.f64, as nvcc writes it",
    "open",
)
@_wmma(
    "s4",
    ".sync.aligned.row.col.m8n8k32<.s32.s4.s4.s32|.s32.u4.u4.s32>{.satfinite}",
    75,
    "d = a b + c of 4-bit integers",
)
@_wmma(
    "b1.xor",
    ".xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
    75,
    "d = c plus how many bits of a's row and b's column differ",
)
@_wmma(
    "b1.and",
    ".and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
    80,
    "d = c plus how many bits a's row and b's column share",
)
def wmma(form: Form, cc: tuple[int, int], a: Any, b: Any, c: Any) -> Any:
    return multiply(form.opcode, cc, a, b, c)


def _wmma_load(name: str, spelling: str, operand: str, minimum_sm: int, summary: str) -> _Declare:
    return row(
        f"wmma.load{spelling}",
        f"{operand}:fragment = [p], stride:u32*",
        name=f"wmma.load.{name}",
        kind="matrix load",
        section="9.7.14.4.3",
        minimum_sm=minimum_sm,
        summary=summary,
    )


def _wmma_loads(name: str, shapes: str, types: str, minimum_sm: int) -> _Declare:
    """The rows that load A and B of the same types."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for operand in "ab":
            spelling = f".{operand}.sync.aligned{_LAYOUTS}{shapes}{_SPACE}{types}"
            summary = f"a warp's fragment of {operand.upper()} from memory"
            _wmma_load(f"{operand}.{name}", spelling, operand, minimum_sm, summary)(function)
        return function

    return declare


@_wmma_loads("f16", _SHAPES, ".f16", 70)
@_wmma_loads("s8", _SHAPES, "<.s8|.u8>", 72)
@_wmma_loads("bf16", _SHAPES, ".bf16", 80)
@_wmma_loads("tf32", ".m16n16k8", ".tf32", 80)
@_wmma_loads("f64", ".m8n8k4", ".f64", 80)
@_wmma_load(
    "a.s4",
    f".a.sync.aligned.row.m8n8k32{_SPACE}<.s4|.u4>",
    "a",
    75,
    "a warp's fragment of A from memory",
)
@_wmma_load(
    "b.s4",
    f".b.sync.aligned.col.m8n8k32{_SPACE}<.s4|.u4>",
    "b",
    75,
    "a warp's fragment of B from memory",
)
@_wmma_load("a.b1", f".a.sync.aligned.row.m8n8k128{_SPACE}.b1", "a", 75, "a warp's fragment of A from memory")
@_wmma_load("b.b1", f".b.sync.aligned.col.m8n8k128{_SPACE}.b1", "b", 75, "a warp's fragment of B from memory")
def wmma_load(form: Form, fragment: Any) -> Any:
    return fragment


def _accumulators() -> _Declare:
    """The rows that load C and store D: for each type and shape, on the chips that have it."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for name, shapes, of_type, minimum_sm in _ACCUMULATORS:
            layout = f".sync.aligned{_LAYOUTS}{shapes}{_SPACE}{of_type}"
            summary = "a warp's fragment of C from memory"
            _wmma_load(f"c.{name}", f".c{layout}", "c", minimum_sm, summary)(function)
            row(
                f"wmma.store.d{layout}",
                "[p], d:fragment, stride:u32*",
                name=f"wmma.store.d.{name}",
                kind="matrix store",
                section="9.7.14.4.4",
                minimum_sm=minimum_sm,
                summary="a warp's fragment of D to memory",
            )(function)
        return function

    return declare


_ACCUMULATORS = (
    ("f16", _SHAPES, ".f16", 70),
    ("f32", _SHAPES, ".f32", 70),
    ("m16n16k8.f32", ".m16n16k8", ".f32", 80),
    ("s32", _SHAPES, ".s32", 72),
    ("m8n8.s32", "<.m8n8k32|.m8n8k128>", ".s32", 75),
    ("f64", ".m8n8k4", ".f64", 80),
)


@_accumulators()
def wmma_accumulator(form: Form, fragment: Any) -> Any:
    return fragment


# ---- 8 x 8 matrices of 16 bits -------------------------------------------------------------------

_MATRICES = "<.x1|.x2|.x4>"
_SHARED = "{.shared|.shared::cta}"


@row(
    f"ldmatrix.sync.aligned.m8n8{_MATRICES}{{.trans}}{_SHARED}.b16",
    "r:fragment = [p]",
    name="ldmatrix",
    kind="matrix load",
    section="9.7.14.5.15",
    minimum_sm=75,
    summary="1, 2 or 4 matrices of 8 x 8, each row from the address of one lane",
)
@row(
    f"ldmatrix.sync.aligned{_MATRICES}{{.trans}}.m8n8{_SHARED}.b16",
    "r:fragment = [p]",
    name="ldmatrix.number",
    kind="matrix load",
    section="9.7.14.5.15",
    minimum_sm=75,
    summary="ldmatrix, as CUTLASS writes it",
)
@row(
    f"stmatrix.sync.aligned.m8n8{_MATRICES}{{.trans}}{_SHARED}.b16",
    "[p], r:fragment",
    name="stmatrix",
    kind="matrix store",
    section="9.7.14.5.16",
    minimum_sm=90,
    summary="1, 2 or 4 matrices of 8 x 8, each row to the address of one lane",
)
@row(
    f"stmatrix.sync.aligned{_MATRICES}{{.trans}}.m8n8{_SHARED}.b16",
    "[p], r:fragment",
    name="stmatrix.number",
    kind="matrix store",
    section="9.7.14.5.16",
    minimum_sm=90,
    summary="stmatrix, as CUTLASS writes it",
)
def matrices(form: Form, fragment: Any) -> Any:
    return fragment


@row(
    "movmatrix.sync.aligned.m8n8.trans.b16",
    "d:fragment = a:fragment",
    name="movmatrix",
    kind="matrix",
    section="9.7.14.5.17",
    minimum_sm=75,
    summary="a matrix of 8 x 8, transposed across the lanes",
)
def movmatrix(form: Form, cc: tuple[int, int], a: Any) -> Any:
    return transpose(form.opcode, a)
