"""Elements of CUDA C++ types: the NumPy arrays that hold them behind a pointer, and numbers by value.

>>> pointee("float const*"), pointee("float4*").lanes, pointee("Particle*")
(Pointee(name='float32', size=4, lanes=1), 4, None)
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, cast

import numpy as np

_NUMBERS = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned int": "uint32",
    "long": "int64",
    "unsigned long": "uint64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "float": "float32",
    "double": "float64",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
}
"""C++ type → NumPy's name; those of the last three are of the package ``ml_dtypes``."""
_PAIRS = {"__half2": "__half", "__nv_bfloat162": "__nv_bfloat16"}
_OF_VECTORS = {
    **{name: name for name in ("char", "short", "int", "long", "float", "double")},
    **{f"u{name}": f"unsigned {name}" for name in ("char", "short", "int", "long")},
    "longlong": "long long",
    "ulonglong": "unsigned long long",
}
_VECTOR = re.compile(rf"({'|'.join(_OF_VECTORS)})([1-4])(?:_16a|_32a)?")
_COMPLEX = re.compile(r"(?:\w+::)*complex<(float|double)>")
_WITHOUT_DTYPE = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_MOST_LANES = 4
_SIXTEEN_BITS = 2


class Pointee(NamedTuple):
    """The elements behind a pointer: ``lanes`` numbers each, of a NumPy type."""

    name: str  # of NumPy, of a number's type
    size: int  # bytes of a number
    lanes: int = 1  # 4 for ``float4``

    @property
    def itemsize(self) -> int:
        """The bytes of one element of the array that the parameter points to."""
        return self.size * self.lanes

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of a number; that of its bits for a type that NumPy lacks."""
        return np.dtype(f"u{self.size}" if self.name in _WITHOUT_DTYPE else self.name)

    def holds(self, dtype: np.dtype[Any]) -> bool:
        """True if an array's numbers are of this type, or are integers of the other sign."""
        one, _ = numbers_of(dtype)
        if one is None or (self.size == 1 and dtype.names is not None):  # a structure, or its bytes
            return True
        if one.itemsize != self.size:
            return False
        if self.name in _WITHOUT_DTYPE:  # NumPy itself has the bits only
            return one.kind in "iub" or one.name == self.name or is_raw(one)
        is_float = self.name.startswith("float")
        return is_raw(one) or (one.kind == "f" if is_float else one.kind in "iubV")

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        """True if an array's elements of several numbers, or its last axis if it is short, can be vectors.

        A long last axis, or a flat array, may be read in vectors of any length.
        """
        _, lanes = numbers_of(dtype)
        if lanes == 1 and len(shape) > 1 and shape[-1] <= _MOST_LANES:
            lanes = max(shape[-1], 1)
        return 1 in (lanes, self.lanes) or lanes % self.lanes == 0 or self.lanes % lanes == 0

    def number(self, value: Any) -> Any:
        """A number as a NumPy scalar of this type; OverflowError if too large, TypeError if not a number."""
        if isinstance(value, np.generic):
            value = cast("Any", value).item()
        if self.name.startswith(("int", "uint", "bool")):
            if not isinstance(value, int):
                raise TypeError
            limits = (0, 1) if self.name == "bool" else (np.iinfo(self.name).min, np.iinfo(self.name).max)
            if not limits[0] <= value <= limits[1]:
                raise OverflowError
        elif not isinstance(value, int | float) or self.name.startswith("float8"):
            raise TypeError
        if self.name == "bfloat16":
            return _bfloat16(float(value))
        return np.dtype(self.name).type(value) if "int" in self.name else self._rounded(float(value))

    def _rounded(self, value: float) -> Any:
        """A number rounded to a float type of NumPy, or a bool."""
        with np.errstate(over="ignore"):
            found = np.dtype(self.name).type(value)
        if math.isinf(found) and not math.isinf(value):
            raise OverflowError
        return found

    def cast(self, name: str, dtype: np.dtype[Any]) -> str:
        """The advice how to convert an array of another dtype."""
        if self.name in _WITHOUT_DTYPE:
            with_bits = f"{name}.astype(ml_dtypes.{self.name}) in Python, or its bits as uint{8 * self.size}"
            return f"convert it to {self.name}, e.g. {with_bits}"
        wanted = self.name
        if dtype.kind == "c" and wanted in ("float32", "float64"):
            wanted = f"complex{16 * self.size}"
        return f"convert it to {wanted}, e.g. {name}.astype(np.{wanted}) in Python"


def pointee(pointer: str) -> Pointee | None:
    """The elements of a pointer type; None for one that is not known, such as a structure's or ``void*``."""
    return element_of(pointer[:-1]) if pointer.endswith("*") else None


def element_of(element: str) -> Pointee | None:
    """A type as one that a pointer points to; None for one that is not known."""
    element = re.sub(r" (?:const|volatile|__restrict__)\b|\[\d*\]", "", element).strip()
    lanes = 1
    if element in _PAIRS:
        element, lanes = _PAIRS[element], 2
    elif found := _VECTOR.fullmatch(element):
        element, lanes = _OF_VECTORS[found[1]], int(found[2])
    elif found := _COMPLEX.fullmatch(element):
        element, lanes = found[1], 2
    name = _NUMBERS.get(element)
    return None if name is None else Pointee(name, _size(name), lanes)


def _size(name: str) -> int:
    """The bytes of a number, by NumPy's name of its type."""
    return {"bfloat16": 2, "bool": 1}.get(name) or int(re.findall(r"\d+", name)[0]) // 8


def number_type(name: str) -> Pointee | None:
    """The type of numbers by its name in NumPy; None if there is none."""
    return Pointee(name, _size(name)) if name in _NUMBERS.values() else None


def sixteen_bits(value: Any, kind: str) -> Any:
    """A real number as a scalar of half or bfloat16, if ``kind`` is one; OverflowError if it is too large."""
    wanted = element_of(kind) if kind in ("__half", "__nv_bfloat16") else None
    given: Any = value
    number: Any = value
    if isinstance(value, np.generic) and value.nbytes != _SIXTEEN_BITS:  # of two bytes: the bits themselves
        number = cast("Any", value).item()
    return given if wanted is None or not isinstance(number, int | float) else wanted.number(number)


def _bfloat16(value: float) -> Any:
    """The bits of a number rounded to bfloat16, to nearest even."""
    if math.isfinite(value):
        unit = max(math.frexp(value)[1] - 8, -133)
        value = math.copysign(math.ldexp(round(math.ldexp(abs(value), -unit)), unit), value)
        if abs(value) >= 2.0**128:
            raise OverflowError
    return np.uint16(np.float32(value).view(np.uint32) >> np.uint32(16))


def numbers_of(dtype: np.dtype[Any]) -> tuple[np.dtype[Any] | None, int]:
    """The dtype of the numbers that an element consists of, and how many; None for a mixed structure."""
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}"), 2
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        one, lanes = numbers_of(base)
        return one, lanes * math.prod(shape)
    if dtype.names is None:
        return dtype, 1
    parts = [numbers_of(dtype[name]) for name in dtype.names]
    kinds, lanes = {one for one, _ in parts}, sum(count for _, count in parts)
    only = kinds.pop() if len(kinds) == 1 else None
    return (only, lanes) if only is not None and lanes * only.itemsize == dtype.itemsize else (None, lanes)


def is_raw(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is raw bytes ("V8") without a number type."""
    return dtype.kind == "V" and dtype.names is None and dtype.name.startswith("void")
