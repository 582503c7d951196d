"""Names of array elements in the words of the source, ``tile[3][5]``, from offsets in bytes."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_SIZES = {
    **dict.fromkeys(("char", "bool", "uchar", "__nv_fp8_e4m3", "__nv_fp8_e5m2"), 1),
    **dict.fromkeys(("short", "ushort", "half", "__half", "__nv_bfloat16"), 2),
    **dict.fromkeys(("int", "unsigned", "uint", "float", "half2", "__half2", "__nv_bfloat162"), 4),
    **dict.fromkeys(("long", "size_t", "double", "float2", "int2", "uint2"), 8),
    **dict.fromkeys(("float4", "int4", "uint4", "double2"), 16),
}
"""Bytes of types that declarations of arrays name."""
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a // b,
}
_NUMBERED = re.compile(r"(?:u?int|[uisf])(8|16|32|64)(?:_t)?")
_DECLARED = r"((?:\w+\s+)*?)(\w+)\s+{name}\s*((?:\[[^\]\n]*\]\s*)+)"


class Shape(NamedTuple):
    """The shape of an array: bytes per element, and the number of elements along each axis."""

    itemsize: int
    axes: tuple[int, ...]


def name_element(array: str, shape: Shape, offset: int, width: int, flat: bool = False) -> str:
    """Name the elements that an access of ``width`` bytes touches; with ``flat`` by one index.

    >>> name_element("t", Shape(4, (128,)), 508, 4), name_element("t", Shape(4, (8, 33)), 140, 4)
    ('t[127]', 't[1][2]')
    >>> name_element("t", Shape(4, (128,)), 16, 16), name_element("t", Shape(8, (16,)), 12, 4)
    ('t[4..7]', 't[1], its bytes 4 to 7')
    """
    index, rest = divmod(offset, shape.itemsize)
    indices = [index]
    for extent in () if flat else shape.axes[:0:-1]:
        indices[:1] = divmod(indices[0], extent)
    last = str(indices[-1])
    if not rest and width > shape.itemsize and width % shape.itemsize == 0:
        last = f"{last}..{indices[-1] + width // shape.itemsize - 1}"
    element = f"{array}{''.join(f'[{i}]' for i in indices[:-1])}[{last}]"
    partly = rest or width < shape.itemsize
    return f"{element}, its bytes {rest} to {rest + width - 1}" if partly else element


def declared_shape(name: str, size: int, sources: Mapping[str, str]) -> Shape | None:
    """The shape of an array variable of ``size`` bytes, from its declaration in the source; None if unknown.

    An extent is a number, a macro or a constant; one that is neither follows from the size of the type. It is
    unknown if two declarations differ; those of a known type go first.

    >>> text = "const int N = 32; __shared__ float tile[N][N + 1], row[N]; extern __shared__ int s[];"
    >>> declared_shape("tile", 4224, {"f.cu": text}), declared_shape("s", 256, {"f.cu": text})
    (Shape(itemsize=4, axes=(32, 33)), Shape(itemsize=4, axes=(64,)))
    """
    certain, guessed = set[Shape](), set[Shape]()
    for text in sources.values():
        for declaration in re.finditer(_DECLARED.format(name=re.escape(name)), text):
            extents = re.findall(r"\[([^\]\n]*)\]", declaration[3])
            axes = [_value(extent, sources) for extent in extents]
            words = [*declaration[1].split(), declaration[2]]
            itemsize = _size_of(words)
            if (shape := _shape(axes, itemsize, size)) is not None and "return" not in words:
                (guessed if itemsize is None else certain).add(shape)
    shapes = certain or guessed
    return shapes.pop() if len(shapes) == 1 else None


def _shape(axes: Sequence[int | None], itemsize: int | None, size: int) -> Shape | None:
    """The shape of an array of ``size`` bytes; one extent, or the element's size, may be unknown."""
    product = math.prod(axis for axis in axes if axis)
    unknown = [i for i, axis in enumerate(axes) if not axis]
    if not unknown:
        fits = size % product == 0 and itemsize in (None, size // product)
        return Shape(size // product, tuple(axis or 1 for axis in axes)) if fits else None
    if len(unknown) > 1 or itemsize is None or size % (itemsize * product):
        return None
    return Shape(itemsize, tuple(axis or size // (itemsize * product) for axis in axes))


def _size_of(words: Sequence[str]) -> int | None:
    """The size in bytes of a type, from the words of its declaration."""
    for word in reversed(words):
        if numbered := _NUMBERED.fullmatch(word):
            return int(numbered[1]) // 8
        if word in _SIZES:
            return _SIZES[word]
    return None


def _value(extent: str, sources: Mapping[str, str], depth: int = 4) -> int | None:
    """The value of an extent: sums and products of numbers, macros and constants; None if not known."""
    for name in re.findall(r"[A-Za-z_]\w*", extent):
        macro, constant = rf"#define\s+{name}\s+([^\n/]+)", rf"\b\w+\s+{name}\s*=\s*([^;,\n]+)[;,]"
        definition = f"{macro}|{constant}"
        found = {at[1] or at[2] for text in sources.values() for at in re.finditer(definition, text)}
        value = _value(found.pop(), sources, depth - 1) if depth and len(found) == 1 else None
        if value is None:
            return None
        extent = re.sub(rf"\b{name}\b", str(value), extent)
    try:
        return _evaluated(ast.parse(extent.strip(), mode="eval").body)
    except (SyntaxError, ArithmeticError, KeyError):
        return None


def _evaluated(node: ast.expr) -> int:
    """The value of sums, products and quotients of whole numbers; KeyError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if not isinstance(node, ast.BinOp):
        raise KeyError(node)
    return _OPERATORS[type(node.op)](_evaluated(node.left), _evaluated(node.right))
