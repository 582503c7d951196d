"""The maps of all operands of the matrix instructions, as text tables.

A line has an operand (``c`` is the accumulator, C and D) and its extents, its element types, the digits of
slot, lane and register (`simwarp.fragments.digits`) and, for A, the section of the PTX ISA that describes the
instruction of that shape and type::

    a 16x16 | f16 bf16 | 2:c1 | 4:c2 8:r1 | 2:r8 2:c8 | 9.7.14.5.8

Words after the extents are a variant: ``a 8x4 row``. In the table of wgmma, ``n/8`` is the size of a digit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Map:
    """A line of a table of maps; ``rows`` and ``columns`` are text: numbers, or "n"."""

    operand: str
    rows: str
    columns: str
    types: tuple[str, ...]
    digits: str
    section: str


def read_maps(text: str) -> tuple[Map, ...]:
    """Read the lines of a table of maps.

    >>> read_maps("a 16x16 | f16 bf16 | 2:c1 | 4:c2 8:r1 | 2:r8 2:c8")[0].digits
    'slot 2:c1  lane 4:c2 8:r1  register 2:r8 2:c8'
    """
    maps: list[Map] = []
    for line in filter(str.strip, text.splitlines()):
        head, types, slot, lane, register, section = (part.strip() for part in f"{line}|".split("|")[:6])
        operand, extents, *variant = head.split()
        rows, columns = extents.split("x")
        digits = f"slot {slot}  lane {lane}  register {register}"
        maps.append(Map(" ".join((operand, *variant)), rows, columns, tuple(types.split()), digits, section))
    return tuple(maps)


# Operand and extents | types | slot | lane | register | section

# PTX ISA 9.0, 9.7.14.5.1 to 9.7.14.5.13. m8n8k4 with f16 is four products at once, each by eight lanes, a
# quad pair: lanes 4i to 4i + 3 and 4i + 16 to 4i + 19 hold matrix i. All others are one product by the warp.
_MMA = """
    a 8x4 row | f16             | 2:c1  | 4:r1 4:m1 2:r4      | 2:c2           | 9.7.14.5.1
    a 8x4 col | f16             | 2:r1  | 4:c1 4:m1 2:r4      | 2:r2           | 9.7.14.5.1
    b 4x8 row | f16             | 2:c1  | 4:r1 4:m1 2:c4      | 2:c2           |
    b 4x8 col | f16             | 2:r1  | 4:c1 4:m1 2:c4      | 2:r2           |
    c 8x8     | f16             | 2:c1  | 4:r1 4:m1 2:r4      | 4:c2           |
    c 8x8     | f32             |       | 2:r1 2:c2 4:m1 2:r4 | 2:c1 2:r2 2:c4 |

    a 16x8    | f16 bf16        | 2:c1  | 4:c2 8:r1           | 2:r8           | 9.7.14.5.7
    a 16x16   | f16 bf16        | 2:c1  | 4:c2 8:r1           | 2:r8 2:c8      | 9.7.14.5.8
    a 16x4    | tf32            |       | 4:c1 8:r1           | 2:r8           | 9.7.14.5.6
    a 16x8    | tf32            |       | 4:c1 8:r1           | 2:r8 2:c4      | 9.7.14.5.7
    a 8x4     | f64             |       | 4:c1 8:r1           |                | 9.7.14.5.2
    a 16x4    | f64             |       | 4:c1 8:r1           | 2:r8           | 9.7.14.5.6
    a 16x8    | f64             |       | 4:c1 8:r1           | 2:r8 2:c4      | 9.7.14.5.7
    a 16x16   | f64             |       | 4:c1 8:r1           | 2:r8 4:c4      | 9.7.14.5.8
    a 8x16    | s8 u8           | 4:c1  | 4:c4 8:r1           |                | 9.7.14.5.3
    a 16x16   | s8 u8 e4m3 e5m2 | 4:c1  | 4:c4 8:r1           | 2:r8           | 9.7.14.5.9
    a 16x32   | s8 u8 e4m3 e5m2 | 4:c1  | 4:c4 8:r1           | 2:r8 2:c16     | 9.7.14.5.10
    a 8x32    | s4 u4           | 8:c1  | 4:c8 8:r1           |                | 9.7.14.5.4
    a 16x32   | s4 u4           | 8:c1  | 4:c8 8:r1           | 2:r8           | 9.7.14.5.10
    a 16x64   | s4 u4           | 8:c1  | 4:c8 8:r1           | 2:r8 2:c32     | 9.7.14.5.11
    a 8x128   | b1              | 32:c1 | 4:c32 8:r1          |                | 9.7.14.5.5
    a 16x128  | b1              | 32:c1 | 4:c32 8:r1          | 2:r8           | 9.7.14.5.12
    a 16x256  | b1              | 32:c1 | 4:c32 8:r1          | 2:r8 2:c128    | 9.7.14.5.13

    b 8x8     | f16 bf16        | 2:r1  | 4:r2 8:c1           |                |
    b 16x8    | f16 bf16        | 2:r1  | 4:r2 8:c1           | 2:r8           |
    b 4x8     | tf32            |       | 4:r1 8:c1           |                |
    b 8x8     | tf32            |       | 4:r1 8:c1           | 2:r4           |
    b 4x8     | f64             |       | 4:r1 8:c1           |                |
    b 8x8     | f64             |       | 4:r1 8:c1           | 2:r4           |
    b 16x8    | f64             |       | 4:r1 8:c1           | 4:r4           |
    b 16x8    | s8 u8 e4m3 e5m2 | 4:r1  | 4:r4 8:c1           |                |
    b 32x8    | s8 u8 e4m3 e5m2 | 4:r1  | 4:r4 8:c1           | 2:r16          |
    b 32x8    | s4 u4           | 8:r1  | 4:r8 8:c1           |                |
    b 64x8    | s4 u4           | 8:r1  | 4:r8 8:c1           | 2:r32          |
    b 128x8   | b1              | 32:r1 | 4:r32 8:c1          |                |
    b 256x8   | b1              | 32:r1 | 4:r32 8:c1          | 2:r128         |

    c 8x8     | s32 f64         |       | 4:c2 8:r1           | 2:c1           |
    c 16x8    | f32 s32 f64     |       | 4:c2 8:r1           | 2:c1 2:r8      |
    c 16x8    | f16             | 2:c1  | 4:c2 8:r1           | 2:r8           |
"""

# The PTX ISA leaves the maps of wmma unspecified (9.7.14.4.1); these were found on an H200, by loads of
# matrices whose elements are their own coordinates (`simwarp probe`). Row-major and column-major matrices
# have the same map. A and B of f16 have the same number of registers for all shapes, so smaller matrices are
# held two or four times. The accumulator of m8n32k16 is that of m32n8k16, transposed.
_WMMA = """
    a 16x16 | f16     | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8 2:copy1
    a 8x16  | f16     | 2:c1  | 4:c2 8:r1  | 2:c8 4:copy1
    a 32x16 | f16     | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8 2:r16
    a 16x16 | bf16    | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8
    a 8x16  | bf16    | 2:c1  | 4:c2 8:r1  | 2:c8
    a 32x16 | bf16    | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8 2:r16
    a 16x8  | tf32    |       | 4:c1 8:r1  | 2:r8 2:c4
    a 8x4   | f64     |       | 4:c1 8:r1  |
    a 16x16 | s8 u8   | 4:c1  | 4:c4 8:r1  | 2:r8
    a 8x16  | s8 u8   | 4:c1  | 4:c4 8:r1  |
    a 32x16 | s8 u8   | 4:c1  | 4:c4 8:r1  | 4:r8
    a 8x32  | s4 u4   | 8:c1  | 4:c8 8:r1  |
    a 8x128 | b1      | 32:c1 | 4:c32 8:r1 |

    b 16x16 | f16     | 2:r1  | 4:r2 8:c1  | 2:r8 2:c8 2:copy1
    b 16x32 | f16     | 2:r1  | 4:r2 8:c1  | 2:c8 2:r8 2:c16
    b 16x8  | f16     | 2:r1  | 4:r2 8:c1  | 2:r8 4:copy1
    b 16x16 | bf16    | 2:r1  | 4:r2 8:c1  | 2:r8 2:c8
    b 16x32 | bf16    | 2:r1  | 4:r2 8:c1  | 2:c8 2:r8 2:c16
    b 16x8  | bf16    | 2:r1  | 4:r2 8:c1  | 2:r8
    b 8x16  | tf32    |       | 4:r1 8:c1  | 2:r4 2:c8
    b 4x8   | f64     |       | 4:r1 8:c1  |
    b 16x16 | s8 u8   | 4:r1  | 4:r4 8:c1  | 2:c8
    b 16x32 | s8 u8   | 4:r1  | 4:r4 8:c1  | 4:c8
    b 16x8  | s8 u8   | 4:r1  | 4:r4 8:c1  |
    b 32x8  | s4 u4   | 8:r1  | 4:r8 8:c1  |
    b 128x8 | b1      | 32:r1 | 4:r32 8:c1 |

    c 16x16 | f16     | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8
    c 8x32  | f16     | 2:r1  | 4:r2 8:c1  | 4:c8
    c 32x8  | f16     | 2:c1  | 4:c2 8:r1  | 4:r8
    c 16x16 | f32 s32 |       | 4:c2 8:r1  | 2:c1 2:r8 2:c8
    c 8x32  | f32 s32 |       | 4:r2 8:c1  | 2:r1 4:c8
    c 32x8  | f32 s32 |       | 4:c2 8:r1  | 2:c1 4:r8
    c 8x8   | s32 f64 |       | 4:c2 8:r1  | 2:c1
"""

# PTX ISA 9.0, 9.7.14.5.15 to 9.7.14.5.17. Register i of ldmatrix and stmatrix holds matrix i, and lane
# 8 * i + row has the address of its row. Rows and columns are those in memory, so .trans is a map of its own.
# Both operands of movmatrix.trans have the same map; d is the transpose of a.
_MATRICES = """
    r 8x8 x1       | b16 | 2:c1 | 4:c2 8:r1 |
    r 8x8 x2       | b16 | 2:c1 | 4:c2 8:r1 | 2:m1
    r 8x8 x4       | b16 | 2:c1 | 4:c2 8:r1 | 4:m1
    r 8x8 x1 trans | b16 | 2:r1 | 4:r2 8:c1 |
    r 8x8 x2 trans | b16 | 2:r1 | 4:r2 8:c1 | 2:m1
    r 8x8 x4 trans | b16 | 2:r1 | 4:r2 8:c1 | 4:m1
    a 8x8          | b16 | 2:c1 | 4:c2 8:r1 |
    d 8x8          | b16 | 2:c1 | 4:c2 8:r1 |
"""

# PTX ISA 9.0, 9.7.15.5.1.1: the accumulator, and A in registers, of a warpgroup. Each of the four warps holds
# 16 rows. B is in shared memory, and so is A if it is not in registers.
_WGMMA = """
    d 64xn   | f16       | 2:c1  | 4:c2 8:r1 4:r16  | 2:r8 n/8:c8      |
    d 64xn   | f32 s32   |       | 4:c2 8:r1 4:r16  | 2:c1 2:r8 n/8:c8 |
    a 64x8   | tf32      |       | 4:c1 8:r1 4:r16  | 2:r8 2:c4        | 9.7.15.5.1.1.2
    a 64x16  | f16 bf16  | 2:c1  | 4:c2 8:r1 4:r16  | 2:r8 2:c8        | 9.7.15.5.1.1.1
    a 64x32  | e4m3 e5m2 | 4:c1  | 4:c4 8:r1 4:r16  | 2:r8 2:c16       | 9.7.15.5.1.1.3
    a 64x32  | s8 u8     | 4:c1  | 4:c4 8:r1 4:r16  | 2:r8 2:c16       | 9.7.15.5.1.1.3
    a 64x256 | b1        | 32:c1 | 4:c32 8:r1 4:r16 | 2:r8 2:c128      | 9.7.15.5.1.1.4
"""

MAPS = {
    "mma": read_maps(_MMA),
    "wmma": read_maps(_WMMA),
    **dict.fromkeys(("ldmatrix", "stmatrix", "movmatrix"), read_maps(_MATRICES)),
    "wgmma": read_maps(_WGMMA),
}
