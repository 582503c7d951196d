"""Matrices as the kernels of a scheme take them: checked, packed and arranged once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from gpu.bmm.fsb import TILE_BITS, TILE_LINES, FsbBits, arrange
from gpu.bmm.packing import check_format, check_shape, matrix, pack_on_device
from gpu.bmm.schemes import Scheme, TensorCoreScheme, choose_scheme
from gpu.device import Device, is_array
from gpu.host import (
    WORD_DTYPES,
    Prepared,
    check_words,
    choose_device,
    prepared_for,
    refuse_nan,
    words_to_device,
)
from reference.errors import FormatError
from reference.types import First, Layout, PackedBits, Word

Role: TypeAlias = Literal["a", "b"]


@dataclass(eq=False)
class PreparedMatrix(Prepared):
    """An operand of `gpu.bmm` on a device, as a scheme's kernel takes it.

    Attributes
    ----------
    words : device array
        Packed words along K, lines padded to 128 bits, or FSB tiles.
    ones : (lines,) device array of uint32, or None
        How many bits of each line are 1, for bit tensor cores.
    shape : (int, int)
        Of the matrix that was given, without padding.
    role : "a" or "b"
        Which operand it is.
    transposed : bool
        Whether the operand is its transpose.
    scheme : str
        The scheme it was prepared for.
    form : str
        How it lies in memory; schemes of the same form take it, too.
    word, first
        Of its words.
    lines, bits : int
        Rows of A or columns of B, and the length of the dot products.
    device : Device
    arrays : tuple of device arrays
        The arguments of kernels.
    kind : tuple
        The key of a recorded call: calls with equal keys do the same.
    """

    words: Any
    ones: Any
    shape: tuple[int, int]
    role: Role
    transposed: bool
    scheme: str
    form: str
    word: Word
    first: First
    lines: int = field(init=False)
    bits: int = field(init=False)
    device: Device = field(init=False)
    arrays: tuple[Any, ...] = field(init=False)
    kind: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        axis = _line_axis(self.role, self.transposed)
        self.lines, self.bits = self.shape[axis], self.shape[1 - axis]
        self.device = self.words.device
        self.arrays = (self.words,) if self.ones is None else (self.words, self.ones)
        self.kind = self.role, self.scheme, self.first, self.transposed, self.shape

    def __repr__(self) -> str:
        turned = " transposed" if self.transposed else ""
        return f"PreparedMatrix({self.role} of shape {self.shape}{turned} for {self.scheme})"


def prepare_matrix(
    x: Any, role: Role, *, scheme: str = "auto", transpose: bool = False, device: Device | None = None
) -> PreparedMatrix:
    """An operand of `gpu.bmm`, made ready; see `gpu.prepare`."""
    x = operand(x, role, transposed=transpose)
    refuse_nan(**{role: x})
    chosen = choose_scheme(scheme_of(x) if scheme == "auto" else scheme, sizes_of(x, role, transpose)[1])
    return placed(x, role, transpose, chosen, choose_device(device, x))


def operand(x: Any, name: Role, *, transposed: bool) -> Any:
    """An operand, checked: a real matrix, `PackedBits`, `FsbBits` or a `PreparedMatrix`."""
    if isinstance(x, PreparedMatrix):
        return _of_this_role(x, name, transposed)
    if isinstance(x, FsbBits):
        return _of_tiles(x, name, transposed)
    if isinstance(x, Prepared):
        raise FormatError(
            f"{name} is a {type(x).__name__}\nbmm takes matrices\nprepare it with role={name!r}"
        )
    if not isinstance(x, PackedBits):
        return matrix(x, name)
    check_shape(x.shape, name)
    check_format(x.layout, x.word, x.first)
    rows, columns = x.shape
    along, lines = (columns, rows) if x.layout == "column" else (rows, columns)
    described = f"a {rows} x {columns} matrix packed {x.layout}-major-{x.word}"
    check_words(x, name, (-(-along // x.word), lines), described)
    if not is_array(x.words):
        _refuse_padding(x, name, -along % x.word)
    return x


def sizes_of(x: Any, role: Role, transposed: bool) -> tuple[int, int]:
    """Rows of A or columns of B, and the length of the dot products."""
    if isinstance(x, PreparedMatrix):
        return x.lines, x.bits
    axis = _line_axis(role, transposed)
    return x.shape[axis], x.shape[1 - axis]


def scheme_of(*operands: Any) -> str:
    """The scheme of "auto": that of a prepared operand, else that of CUDA cores for 32-bit words."""
    return next((x.scheme for x in operands if isinstance(x, PreparedMatrix)), "bmm32")


def placed(
    x: Any, name: Role, transposed: bool, scheme: Scheme | TensorCoreScheme, device: Device
) -> PreparedMatrix:
    """A checked operand as the scheme's kernel takes it, on the device."""
    if isinstance(x, PreparedMatrix):
        if x.form != scheme.form:
            raise prepared_for(x, name, scheme.name)
        return x
    packed = _packed(x, name, transposed, scheme, device)
    words, ones = packed.words, None
    if isinstance(scheme, TensorCoreScheme):
        words, ones = arrange(packed, name, scheme.format, device)
    form, word, first = scheme.form, packed.word, packed.first
    return PreparedMatrix(words, ones, packed.shape, name, transposed, scheme.name, form, word, first)


def _line_axis(role: str, transposed: bool) -> int:
    """Which dimension of the matrix counts lines."""
    return int((role == "b") != transposed)


def _of_this_role(x: PreparedMatrix, name: str, transposed: bool) -> PreparedMatrix:
    if x.role != name:
        raise FormatError(
            f"{name} was prepared as {x.role!r}\n"
            "words of A run along its rows, those of B along its columns\n"
            f"prepare it with role={name!r}"
        )
    if transposed and not x.transposed:
        raise FormatError(
            f"{name} was prepared as it is, and transpose_{name} is given\nits words do not run along K\n"
            "prepare it with transpose=True"
        )
    return x


def _of_tiles(x: FsbBits, name: Role, transposed: bool) -> PreparedMatrix:
    """Tiles that `gpu.bmm.pack_fsb` made: the form of btc3, popcounts included."""
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
        if not is_array(array) or tuple(array.shape) != shape or array.dtype != WORD_DTYPES[32]:
            raise FormatError(
                f"the {what} of {name} do not fit its shape {x.shape}\n"
                f"a device array of uint32 {shape} is needed\npack it with gpu.bmm.pack_fsb"
            )
    return PreparedMatrix(x.words, x.ones, x.shape, name, transposed, "btc3", "fsb", 32, "lsb")


def _refuse_padding(x: PackedBits, name: str, spare: int) -> None:
    """Bits past the edge count like any other: they must be 0 in both operands."""
    ones = (1 << spare) - 1
    past = np.dtype(x.words.dtype).type(ones if x.first == "msb" else ones << (x.word - spare))
    if spare and (x.words[-1] & past).any():
        raise FormatError(f"{name} has bits past the edge of its {x.shape} matrix that are not 0\nclear them")


def _packed(
    x: Any, name: Role, transposed: bool, scheme: Scheme | TensorCoreScheme, device: Device
) -> PackedBits:
    """The operand with its words along K, on the device."""
    layout: Layout = "row" if _line_axis(name, transposed) else "column"
    if not isinstance(x, PackedBits):
        return pack_on_device(x, name, layout, scheme.word, scheme.first, device)
    if x.layout != layout:
        raise FormatError(
            f"{name} is packed with layout={x.layout!r}, whose words do not run along K\n"
            f"repack it with layout={layout!r}, or transpose it"
        )
    if x.word != scheme.word:
        raise FormatError(
            f"{name} is packed in words of {x.word} bits, {scheme.name} takes {scheme.word}\n"
            f"repack it with word={scheme.word}, or take a scheme for {x.word}"
        )
    if isinstance(scheme, TensorCoreScheme) and x.first != scheme.first:
        raise FormatError(
            f"{name} is packed with first={x.first!r}, {scheme.name} takes {scheme.first!r}\n"
            f"repack it with first={scheme.first!r}, or take a scheme for CUDA cores"
        )
    return words_to_device(x, name, device)
