"""Operands of `gpu.bmm` on a device, packed and arranged for the kernel of a scheme."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from gpu.bmm.choice import Format, fastest_scheme
from gpu.bmm.fsb import TILE_BITS, TILE_LINES, FsbBits, arrange
from gpu.bmm.kinds import bits_on_device, bits_on_host
from gpu.bmm.lines import pack_lines
from gpu.bmm.packing import LARGEST, check_shape, matrix, numbers_of, pack_on_device
from gpu.bmm.schemes import AnyScheme, Scheme, choose_scheme
from gpu.bmm.skinny import SkinnyScheme
from gpu.bmm.stacks import matrices
from gpu.bmm.warpgroups import WarpgroupScheme
from gpu.compile import compile_file
from gpu.device import Array, Device, LaunchPlan, is_array, launch
from gpu.host import (
    Prepared,
    check_role,
    check_words,
    choose_device,
    in_stream,
    prepared_for,
    refuse_nan,
    words_to_device,
)
from reference.errors import FormatError
from reference.types import First, Layout, PackedBits
from reference.types.arguments import Kind, check_kind
from reference.types.packed import check_format, parts_of, words_shape

Role: TypeAlias = Literal["a", "b"]

MANY = 2**31
"""The lines of an operand that is not known yet."""

MOST_PARTS = 32
"""Parts of ones that a product adds; counting is faster than more."""


@dataclass(eq=False)
class PreparedMatrix(Prepared):
    """An operand of `gpu.bmm` on a device, packed and arranged for the kernel of a scheme.

    Attributes
    ----------
    words : device array
        Packed words along K, lines padded to 128 bits, or FSB tiles.
    ones : (lines,) device array of uint32, or None
        The number of 1 bits in each line, for bit tensor cores. (lines, parts) of bits that a product gave,
        whose tiles counted those of their columns; None of bits whose products count them.
    shape : tuple of int
        The shape of the original matrix, without padding; (B, rows, columns) of a stack, whose words and ones
        have one more axis in front.
    role : "a" or "b"
        Left or right operand.
    transposed : bool
        Whether the operand is the transpose of the original matrix.
    scheme : str
        The scheme that it was prepared for.
    form : str
        Its layout in memory; schemes of the same form accept it, too. "lines" serve btc1, btc2, mma, skinny
        and wgmma alike.
    first : "msb" or "lsb"
        The bit order of its words.
    of_signs : bool
        Whether its bits are the signs of numbers, which a product of bits refuses.
    lines, bits : int
        Rows of A or columns of B, and the length of the dot products.
    count : int
        The matrices of a stack; 1 without one.
    parts : int
        How many numbers each line's ones are; 0 without ones.
    device : Device
    arrays : tuple of device arrays
        The words, and the ones if there are any.
    kind : tuple
        The operand's part of the key under which a call is recorded.
    """

    words: Any
    ones: Any
    shape: tuple[int, ...]
    role: Role
    transposed: bool
    scheme: str
    form: str
    first: First
    of_signs: bool = False
    lines: int = field(init=False)
    bits: int = field(init=False)
    count: int = field(init=False)
    parts: int = field(init=False)
    device: Device = field(init=False)
    arrays: tuple[Any, ...] = field(init=False)
    kind: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        axis = _line_axis(self.role, self.transposed)
        self.lines, self.bits = self.shape[-2:][axis], self.shape[-2:][1 - axis]
        self.count = prod(self.shape[:-2])
        ones = () if self.ones is None else self.ones.shape[len(self.shape) - 2 :]
        self.parts = ones[1] if len(ones) == 2 else len(ones)
        self.device = self.words.device
        self.arrays = (self.words,) if self.ones is None else (self.words, self.ones)
        which = self.role, self.scheme, self.first, self.transposed, self.of_signs
        self.kind = *which, self.shape, self.parts

    def matrices(self, stack: tuple[int, ...]) -> Iterator[PreparedMatrix]:
        """The matrices of a stack; a single matrix as often as a stack has some."""
        if len(self.shape) == 2:
            yield from repeat(self, stack[0] if stack else 1)
            return
        for arrays in matrices(stack, *self.arrays):
            ones = None if self.ones is None else arrays[1]
            yield replace(self, words=arrays[0], ones=ones, shape=self.shape[1:])

    def as_rows(self) -> PreparedMatrix | None:
        """All lines of a stack as one matrix; None if they are not contiguous."""
        if self.form != "lines" or self.shape[0] * self.lines > LARGEST:
            return None
        lines = self.shape[0] * self.lines
        words, ones = self.words.view((lines, *self.words.shape[2:])), self.ones
        ones = None if ones is None else ones.view((lines, *ones.shape[2:]))
        shape = (self.bits, lines) if self.transposed else (lines, self.bits)
        return replace(self, words=words, ones=ones, shape=shape)

    def __repr__(self) -> str:
        turned = " transposed" if self.transposed else ""
        return f"PreparedMatrix({self.role} of shape {self.shape}{turned} for {self.scheme})"


def prepare_matrix(
    x: Any,
    role: Role,
    *,
    scheme: str = "auto",
    transpose: bool = False,
    kind: Kind = "xnor",
    device: Device | None = None,
) -> PreparedMatrix:
    """Check, pack and arrange an operand of `gpu.bmm`; see `gpu.prepare`."""
    check_kind(kind)
    x = operand(x if kind == "xnor" else bits_on_host(x, role), role, transposed=transpose)
    refuse_nan(**{role: x})
    device = in_stream(choose_device(device, x), None, x)
    lines, k = sizes_of(x, role, transpose)
    chosen = scheme_for(scheme, device, (lines, MANY, k), "int32", x)
    if kind != "xnor":
        return placed(bits_on_device(x, role, device), role, transpose, chosen, device)
    signs = not isinstance(x, PackedBits | FsbBits)
    return replace(placed(x, role, transpose, chosen, device), of_signs=signs)


def operand(x: Any, name: Role, *, transposed: bool) -> Any:
    """Check an operand: a real matrix, `PackedBits`, `FsbBits` or a `PreparedMatrix`."""
    if isinstance(x, Prepared):
        check_role(x, name, PreparedMatrix, "words of A run along its rows, those of B along its columns")
        return _along_k(x, name, transposed)
    if isinstance(x, FsbBits):
        return _of_tiles(x, name, transposed)
    if not isinstance(x, PackedBits):
        return matrix(x, name, stacks=True)
    check_shape(x.shape, name, stacks=True)
    check_format(x.layout, x.word, x.first)
    *stack, rows, columns = x.shape
    along = columns if x.layout == "column" else rows
    what = f"{f'a stack of {stack[0]}' if stack else 'a'} {rows} x {columns} matri{'ces' if stack else 'x'}"
    described = f"{what} packed {x.layout}-major-{x.word}"
    check_words(x, name, words_shape(x.layout, x.word, x.shape), described)
    if not is_array(x.words):
        _refuse_padding(x, name, -along % x.word)
    return x


def sizes_of(x: Any, role: Role, transposed: bool) -> tuple[int, int]:
    """The number of rows of op(A) or columns of op(B), and the length of the dot products."""
    if isinstance(x, PreparedMatrix):
        return x.lines, x.bits
    axis = _line_axis(role, transposed)
    return x.shape[-2:][axis], x.shape[-2:][1 - axis]


def scheme_for(
    name: Any, device: Device, sizes: tuple[int, int, int], output: str, *operands: Any
) -> AnyScheme:
    """The scheme of that name; for "auto" the fastest for sizes (m, n, k), and for the operands' format.

    The first packed or prepared operand decides. Lines serve every scheme that takes lines; an operand that
    was prepared in another form keeps its scheme.
    """
    k = sizes[2]
    if not isinstance(name, str) or name != "auto":
        return choose_scheme(name, k)
    known = next((x for x in operands if isinstance(x, PackedBits | PreparedMatrix)), None)
    form: Format = "real"
    if isinstance(known, PackedBits):
        form = "64" if known.word == 64 else "lsb32" if known.first == "lsb" else "msb32"
    elif known is not None:
        if known.form != "lines":
            return choose_scheme(known.scheme, k)
        form = "lines"
    own = (known.scheme,) if isinstance(known, PreparedMatrix) else ()
    return fastest_scheme(device.compute_capability, sizes, output, form, own)


def placed(x: Any, name: Role, transposed: bool, scheme: AnyScheme, device: Device) -> PreparedMatrix:
    """Pack and arrange a checked operand on the device, for the kernel of a scheme."""
    if isinstance(x, PreparedMatrix):
        if x.form != scheme.form:
            raise prepared_for(x, name, scheme.name)
        return _counted(x, scheme, device)
    if scheme.form == "lines" and not isinstance(x, PackedBits):
        shape, words, ones = pack_lines(x, name, _line_axis(name, transposed), device)
        return PreparedMatrix(words, ones, shape, name, transposed, scheme.name, scheme.form, scheme.first)
    packed = _packed(x, name, transposed, scheme, device)
    words, ones = packed.words, None
    if not isinstance(scheme, Scheme):
        words, ones = arrange(packed, name, scheme.form, device)
    form, first = scheme.form, packed.first
    return PreparedMatrix(words, ones, packed.shape, name, transposed, scheme.name, form, first)


def _counted(x: PreparedMatrix, scheme: AnyScheme, device: Device) -> PreparedMatrix:
    """Lines with their ones in the form that a scheme takes."""
    adds = isinstance(scheme, WarpgroupScheme) and 1 < x.parts <= MOST_PARTS
    if adds or isinstance(scheme, SkinnyScheme) or x.parts == 1 or x.form != "lines":
        return x
    ones: Array = device.allocate(x.words.shape[:-2], np.uint32, "ones")
    lines, pieces = prod(ones.shape), x.words.shape[-2]

    def plan() -> LaunchPlan:
        ptx = compile_file("bmm/ones.cu", None, device.compute_capability).text
        return LaunchPlan(ptx, "count_ones", (-(-lines // 4), 1, 1), (128, 1, 1), (None, None, lines, pieces))

    launch(device, ("ones", lines, pieces), plan, x.words, ones)
    return replace(x, ones=ones)


def _line_axis(role: str, transposed: bool) -> int:
    """The axis of a matrix along which its lines are counted: 0 if lines are rows, 1 if columns."""
    return int((role == "b") != transposed)


def _along_k(x: Any, name: str, transposed: bool) -> PreparedMatrix:
    """Raise for a prepared matrix that is transposed now but was not when it was prepared."""
    if transposed and not x.transposed:
        raise FormatError(
            f"{name} was prepared without transpose, and transpose_{name} is given\n"
            "its words do not run along K\n"
            "prepare it with transpose=True"
        )
    return x


def _of_tiles(x: FsbBits, name: Role, transposed: bool) -> PreparedMatrix:
    """Check tiles of `gpu.bmm.pack_fsb`, which have the form of btc3 already."""
    check_shape(x.shape, name)
    axis = _line_axis(name, transposed)
    lines, bits = x.shape[axis], x.shape[1 - axis]
    order = ("row", "column")[axis]
    if x.order != order:
        raise FormatError(
            f"{name} is packed in tiles with order={x.order!r}, whose lines do not run along K\n"
            f"order={order!r} is needed\nrepack it with that order, or transpose it"
        )
    expected = (-(-lines // TILE_LINES), -(-bits // TILE_BITS), TILE_LINES, TILE_BITS // 32)
    for what, array, shape in (("words", x.words, expected), ("ones", x.ones, (lines,))):
        if not is_array(array) or tuple(array.shape) != shape or array.dtype != np.uint32:
            raise FormatError(
                f"the {what} of {name} do not fit its shape {x.shape}\n"
                f"a device array of uint32 {shape} is needed\npack it with gpu.bmm.pack_fsb"
            )
    return PreparedMatrix(x.words, x.ones, x.shape, name, transposed, "btc3", "fsb", "lsb")


def _refuse_padding(x: PackedBits, name: str, spare: int) -> None:
    """Refuse 1 bits past the edge, which kernels would count like any other."""
    ones = (1 << spare) - 1
    past = ones if x.first == "msb" else ones << (x.word - spare)
    numbers = np.frombuffer(past.to_bytes(x.word // 8, "little"), x.words.dtype.newbyteorder("<"))
    if spare and (x.words.take(-1, len(x.shape) - 2) & numbers).any():
        raise FormatError(
            f"{name} has bits past the edge of its {x.shape} matrix that are not 0\n"
            "kernels count them like any other\nclear them"
        )


def _packed(x: Any, name: Role, transposed: bool, scheme: AnyScheme, device: Device) -> PackedBits:
    """Pack a checked operand on the device, with words along K; refuse packed words that do not."""
    layout: Layout = "row" if _line_axis(name, transposed) else "column"
    if not isinstance(x, PackedBits):
        return pack_on_device(x, name, layout, scheme.word, scheme.first, device)
    if x.layout != layout:
        raise FormatError(
            f"{name} is packed with layout={x.layout!r}, whose words do not run along K\n"
            f"repack it with layout={layout!r}, or transpose it"
        )
    if x.word != scheme.word and (is_array(x.words) or not parts_of(x.word)):
        instead = "download its words" if parts_of(x.word) else f"choose a scheme for {x.word}"
        raise FormatError(
            f"{name} is packed in words of {x.word} bits, {scheme.name} takes {scheme.word}\n"
            f"repack it with word={scheme.word}, or {instead}"
        )
    if not isinstance(scheme, Scheme) and x.first != scheme.first:
        raise FormatError(
            f"{name} is packed with first={x.first!r}, {scheme.name} takes {scheme.first!r}\n"
            f"repack it with first={scheme.first!r}, or choose a scheme for CUDA cores"
        )
    if x.word != scheme.word:
        count = words_shape(layout, scheme.word, x.shape)[-2]
        x = replace(x, words=numbers_of(x, scheme.word)[..., :count, :], word=scheme.word)
    return words_to_device(x, name, device)
