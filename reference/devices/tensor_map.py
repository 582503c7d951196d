"""Tensor maps: the arguments of `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`, checked as CUDA does.

A map describes a tensor in global memory and the box that one copy moves. Its tuples are in the driver's
order, innermost dimension first; `tensor_map_of` takes an array's, outermost first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from reference.devices.launch import Extent, shape_of
from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types.arguments import dtype_of
from reference.values import shortened

DATA_TYPES: dict[str, tuple[int, str]] = {
    "uint8": (1, "u8"),
    "uint16": (2, "u16"),
    "uint32": (4, "u32"),
    "int32": (4, "s32"),
    "uint64": (8, "u64"),
    "int64": (8, "s64"),
    "float16": (2, "f16"),
    "float32": (4, "f32"),
    "float64": (8, "f64"),
    "bfloat16": (2, "bf16"),
    "float32_ftz": (4, "f32"),
    "tfloat32": (4, "tf32"),
    "tfloat32_ftz": (4, "tf32"),
}
"""Name of a ``CUtensorMapDataType``, in the order of that enumeration → bytes of an element, and PTX type."""
SWIZZLES, INTERLEAVES, PROMOTIONS, FILLS = (0, 32, 64, 128), (0, 16, 32), (0, 64, 128, 256), ("zeros", "nan")
MOST_DIMENSIONS = 5
_SAME_BYTES = {"bool": "uint8", "int8": "uint8", "int16": "uint16"}
"""NumPy dtypes that the driver has no type for → the type of the same bytes."""
_NEWER_TYPES = ("16u4_align8b", "16u4_align16b", "16u6_align16b")
_CORNERS = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}
"""Rank of an im2col map → the first number that a corner of its box may not have."""
_MOST_BOX, _MOST_PIXELS, _MOST_STEP, _MOST_STRIDE, _MOST_EXTENT = 256, 1024, 8, 1 << 40, 1 << 32


@shortened
@dataclass(frozen=True)
class Im2col:
    """The box of an im2col map: the pixels that a copy visits, and the channels that it copies from each.

    Attributes
    ----------
    lower, upper : tuple of int
        Offsets of the box's first and last pixel from the first and last pixel of an image, in the spatial
        dimensions of the array, outermost first; in a `TensorMap` innermost first.
    channels : int
        Channels that are copied of each pixel, 1 to 256.
    pixels : int
        Pixels that one copy visits, 1 to 1024.

    Examples
    --------
    A 3 × 3 filter with padding 1 visits as many positions as the image has pixels:

    >>> Im2col(lower=(-1, -1), upper=(-1, -1), channels=64, pixels=128)
    Im2col(lower=(-1, -1), upper=(-1, -1), channels=64, pixels=128)
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int


@shortened
@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and the box of one copy, innermost dimension first.

    Attributes
    ----------
    data_type : str
        A name of `DATA_TYPES`.
    address : int
    shape : tuple of int
        Elements of each dimension; as many dimensions as the map has.
    strides : tuple of int
        Bytes from one element to the next in each dimension except the innermost.
    box : tuple of int
        Elements of each dimension that a copy spans; () for an im2col map.
    element_strides : tuple of int
        The step of a copy in each dimension; the innermost is ignored without an interleave.
    interleave : int
        Bytes of a slice of channels: 0 (none), 16 or 32.
    swizzle : int
        Span of the swizzle in bytes: 0 (none), 32, 64 or 128.
    l2_promotion : int
        Bytes by which L2 fetches: 0 (none), 64, 128 or 256; a hint.
    fill : str
        The elements of a box outside the tensor: "zeros" or "nan".
    im2col : Im2col, optional
    """

    data_type: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    fill: str = "zeros"
    im2col: Im2col | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions of the tensor."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of one element of the tensor."""
        return DATA_TYPES[self.data_type][0]

    @property
    def steps(self) -> tuple[int, tuple[int, ...]]:
        """The bytes of an element step in the innermost dimension, and each dimension's stride in bytes.

        With an interleave the innermost dimension counts slices of channels. The documents leave open what
        the strides then are; here the first is that of the slices, and the second dimension, along which
        slices follow one another, has none (NC/8HWC8).
        """
        if not self.interleave:
            return self.itemsize, (self.itemsize, *self.strides)
        return self.interleave, (self.strides[0], self.interleave, *self.strides[1:])

    @property
    def inner(self) -> int:
        """The elements of the innermost dimension that a copy moves."""
        return self.box[0] if self.im2col is None else self.im2col.channels

    def at(self, address: int) -> TensorMap:
        """A checked copy of the map for a tensor at another address."""
        moved = replace(self, address=address)
        moved.check()
        return moved

    def check(self) -> None:
        """Raise for arguments that the driver refuses.

        Raises
        ------
        SchemeError
            For an unknown name or mode, and modes that exclude each other.
        ShapeError
            For a rank, extent, stride, box, corner or address that the copy engine cannot take.
        DtypeError
            For a data type or fill that does not fit.
        """
        self._check_modes()
        self._check_tensor()
        self._check_box()
        self._check_swizzle()

    def _check_modes(self) -> None:
        """Check that each mode (interleave, swizzle, …) has a value that CUDA defines."""
        if self.data_type not in DATA_TYPES:
            newer = self.data_type.lower() in _NEWER_TYPES
            raise DtypeError(
                f"tensor map: the data type is {self.data_type!r}"
                + (", which needs sm_100\nthis copy engine is sm_90's" if newer else "")
                + f"\nchoose among {', '.join(DATA_TYPES)}"
            )
        for what, given, known in (
            ("interleave", self.interleave, INTERLEAVES),
            ("swizzle", self.swizzle, SWIZZLES),
            ("l2_promotion", self.l2_promotion, PROMOTIONS),
            ("fill", self.fill, FILLS),
        ):
            if given not in known:
                newer = "; swizzles with other atoms than 16 bytes, and of 96 bytes, need sm_100"
                raise SchemeError(
                    f"tensor map: {what} is {given!r}\n"
                    f"choose among {', '.join(map(str, known))}{newer * (what == 'swizzle')}"
                )
        if self.fill == "nan" and "float" not in self.data_type:
            raise DtypeError(
                f"tensor map: fill is 'nan', the data type {self.data_type}\n"
                "only floating-point types have a NaN\nfill with zeros"
            )

    def _check_tensor(self) -> None:
        """Check rank, address, extents and strides."""
        if not 1 <= self.rank <= MOST_DIMENSIONS:
            raise ShapeError(f"tensor map: {self.rank} dimensions\nexpected 1 to {MOST_DIMENSIONS}")
        if self.rank < 3 and (self.interleave or self.im2col):
            what = "im2col" if self.im2col else f"an interleave of {self.interleave} bytes"
            raise ShapeError(
                f"tensor map: {what} with {self.rank} dimensions\n"
                "it needs 3 to 5: channels, 1 to 3 spatial dimensions, and images"
            )
        for what, given, wanted in (
            ("strides", self.strides, self.rank - 1),
            ("element strides", self.element_strides, self.rank),
        ):
            if len(given) != wanted:
                raise ShapeError(
                    f"tensor map: {len(given)} {what}, {self.rank} dimensions\nexpected {wanted}"
                )
        unit = 32 if self.interleave == 32 else 16
        if self.address % unit:
            raise ShapeError(
                f"tensor map: the address is {self.address:#x}\nit must be a multiple of {unit}\n"
                "align the first element, e.g. by a whole allocation"
            )
        for extent in self.shape:
            if not 1 <= extent <= _MOST_EXTENT:
                raise ShapeError(f"tensor map: a dimension has {extent} elements\nexpected 1 to 2^32")
        for stride in self.strides:
            if stride % unit or not 0 <= stride < _MOST_STRIDE:
                raise ShapeError(
                    f"tensor map: a stride of {stride} bytes\nit must be a multiple of {unit}, below 2^40\n"
                    "pad the rows of the array"
                )

    def _check_box(self) -> None:
        """Check the box, its steps and its corners."""
        steps = self.element_strides if self.interleave else self.element_strides[1:]
        for step in steps:
            if not 1 <= step <= _MOST_STEP:
                raise ShapeError(f"tensor map: an element stride of {step}\nexpected 1 to {_MOST_STEP}")
        if self.im2col is not None:
            self._check_corners(self.im2col)
        else:
            if len(self.box) != self.rank:
                raise ShapeError(
                    f"tensor map: a box of {len(self.box)} dimensions, a tensor of {self.rank}\n"
                    "give one extent for each dimension"
                )
            for extent in self.box:
                if not 1 <= extent <= _MOST_BOX:
                    raise ShapeError(f"tensor map: a box of {extent} elements\nexpected 1 to {_MOST_BOX}")
        width = self.inner * self.itemsize
        if not self.interleave and width % 16:
            raise ShapeError(
                f"tensor map: the box has {width} bytes in the innermost dimension\n"
                f"they must be a multiple of 16\n"
                f"make it {-(-width // 16) * 16 // self.itemsize} elements; what leaves the tensor is filled"
            )

    def _check_corners(self, im2col: Im2col) -> None:
        """Check the box of an im2col map."""
        most, wanted = _CORNERS[self.rank], self.rank - 2
        for what, corner in (("lower", im2col.lower), ("upper", im2col.upper)):
            if len(corner) != wanted or any(not -most <= at < most for at in corner):
                raise ShapeError(
                    f"tensor map: the {what} corner is {corner}\n"
                    f"expected {wanted} offsets within [{-most}, {most - 1}] for {self.rank} dimensions"
                )
        for low, high, extent in zip(im2col.lower, im2col.upper, self.shape[1:-1], strict=True):
            if low > extent - 1 + high:
                raise ShapeError(
                    f"tensor map: corners {low} and {high} leave no pixel of {extent}\n"
                    "the last pixel is the dimension's, moved by the upper corner\n"
                    "give a lower corner at or before it"
                )
        for what, given, most in (
            ("channels", im2col.channels, _MOST_BOX),
            ("pixels", im2col.pixels, _MOST_PIXELS),
        ):
            if not 1 <= given <= most:
                raise ShapeError(f"tensor map: {given} {what} of an im2col copy\nexpected 1 to {most}")

    def _check_swizzle(self) -> None:
        """Check that swizzle, interleave and box size fit one another."""
        if self.interleave == 32 and self.swizzle != 32:
            raise SchemeError(
                f"tensor map: an interleave of 32 bytes with a swizzle of {self.swizzle}\n"
                "the slices of 32 bytes need the swizzle of 32 bytes\npass swizzle=32"
            )
        width = self.inner * self.itemsize
        if self.swizzle and not self.interleave and width > self.swizzle:
            raise ShapeError(
                f"tensor map: the box has {width} bytes in the innermost dimension, "
                f"the swizzle {self.swizzle}\n"
                "a row of the box must fit into the swizzle's span\n"
                f"copy {self.swizzle // self.itemsize} elements at a time"
            )


def tensor_map_of(
    array: Any,
    box: Extent | None = None,
    *,
    shape: Extent | None = None,
    strides: Sequence[int] | None = None,
    element_strides: Sequence[int] | None = None,
    data_type: str | None = None,
    interleave: int = 0,
    swizzle: int = 0,
    l2_promotion: int = 0,
    fill: str = "zeros",
    im2col: Im2col | None = None,
) -> TensorMap:
    """The map of a device array; arguments are in the array's order, the outermost dimension first."""
    if (box is None) == (im2col is None):
        raise SchemeError(
            "tensor map: " + ("neither box nor im2col" if box is None else "box and im2col") + " given\n"
            "a map is tiled, by a box, or im2col\npass one of them"
        )
    if interleave and (shape is None or strides is None):
        raise SchemeError(
            f"tensor map: an interleave of {interleave} bytes without shape and strides\n"
            "slices of channels follow one another along the second dimension\n"
            "give shape in slices, and strides of every dimension except that one"
        )
    extents = array.shape if shape is None else shape_of("tensor map", shape)
    data_type = data_type_of(array.dtype) if data_type is None else data_type
    size = DATA_TYPES.get(data_type, (array.dtype.itemsize, ""))[0]
    if strides is None:
        dense = [math.prod(extents[i:]) * size for i in range(1, len(extents))]
    else:
        dense = [int(stride) for stride in strides]
    steps = (1,) * len(extents) if element_strides is None else shape_of("tensor map", element_strides)
    tensor_map = TensorMap(
        data_type,
        array.pointer,
        tuple(reversed(extents)),
        tuple(reversed(dense)),
        () if box is None else tuple(reversed(shape_of("tensor map", box))),
        tuple(reversed(steps)),
        interleave,
        swizzle,
        l2_promotion,
        fill,
        None if im2col is None else _reversed(im2col),
    )
    tensor_map.check()
    span = extent_of(tensor_map)
    if span > array.nbytes:
        raise ShapeError(
            f"tensor map: the tensor spans {span} bytes, the array has {array.nbytes}\n"
            "its last element would lie outside\ngive a shape and strides within the array"
        )
    return tensor_map


def extent_of(tensor: TensorMap) -> int:
    """The bytes from the first to the last element of a map's tensor."""
    inner, steps = tensor.steps
    return sum((n - 1) * step for n, step in zip(tensor.shape, steps, strict=True)) + inner


def data_type_of(dtype: npt.DTypeLike) -> str:
    """The data type of a map for a NumPy dtype; integers without a data type use the unsigned one."""
    name = dtype_of("tensor map", dtype).name
    name = _SAME_BYTES.get(name, name)
    if name not in DATA_TYPES:
        raise DtypeError(
            f"tensor map: elements of {name}\nthe copy engine has {', '.join(DATA_TYPES)}\n"
            "view the array as one of them, bits as uint8"
        )
    return name


def _reversed(im2col: Im2col) -> Im2col:
    """The box with its corners in the other order."""
    lower, upper = (tuple(map(int, reversed(corner))) for corner in (im2col.lower, im2col.upper))
    return Im2col(lower, upper, int(im2col.channels), int(im2col.pixels))
