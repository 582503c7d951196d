"""Scalar twins of the matrix rows: one warp at a time, in plain Python integers, from the PTX ISA 9.7.14.

Lanes are lists of 32, each with the words of its registers. ``TWINS[row name]`` takes the opcode as written
and then

- of a product or ``movmatrix`` the lanes of each operand it reads, and gives the lanes of the result;
- of a load the bytes of memory, for each lane at which of them its address points, and the stride, None where
  none is given, and gives the lanes of the result;
- of a store the lanes, then the same, and gives the bytes that are there afterwards.

In between a matrix is a dict of elements as they are stored, by (row, column), or by (row, column, matrix)
where an instruction works on several. What is computed with them stands in `scalar_matrix_numbers.py`.

The ISA leaves open who holds what of ``wmma``: those maps are an H200's.
"""

import re
from functools import cache, partial
from types import SimpleNamespace

from oracles import scalar_matrix_numbers as numbers

LANES = range(32)
BITS = {
    **{"b1": 1, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8},
    **{"f16": 16, "bf16": 16, "b16": 16, "tf32": 32, "f32": 32, "s32": 32, "f64": 64},
}


# --------------------------------------------------------------------------------- what an opcode says


@cache
def spelled(opcode):
    """Shape (m, n, k), layouts and types of an opcode, in the order in which it names them."""
    words = opcode.split(".")
    shapes = [re.fullmatch(r"m(\d+)n(\d+)(?:k(\d+))?", word) for word in words]
    (shape,) = ([int(size) for size in found.groups("0")] for found in shapes if found)
    layouts = [word for word in words if word in ("row", "col")]
    return SimpleNamespace(words=words, shape=shape, layouts=layouts, types=[w for w in words if w in BITS])


def types_of(opcode):
    """Types of d, a, b and c of a product; ``wmma.mma`` of f16 names only d and c."""
    types = spelled(opcode).types
    return types if len(types) == 4 else [types[0], "f16", "f16", types[1]]


# ------------------------------------------------------------------------- who holds which element
# Element i of a lane is counted from the lowest bit of its first register.


def group(lane):
    """PTX ISA 9.7.14.5: groupID and threadID_in_group of a lane."""
    return lane >> 2, lane % 4


def of_a(opcode, lane, i):
    """PTX ISA 9.7.14.5.2 ff.: (row, column) of a lane's element of A: neighbours first, then 8 rows below."""
    (g, t), (m, _, _) = group(lane), spelled(opcode).shape
    many = max(1, 32 // BITS[types_of(opcode)[1]])
    register, j = divmod(i, many)
    down, right = (register % 2, register // 2) if m == 16 else (0, register)
    return g + 8 * down, (4 * right + t) * many + j


def of_b(opcode, lane, i):
    """PTX ISA 9.7.14.5.2 ff.: a lane's elements of B: neighbours in a column, then further rows."""
    g, t = group(lane)
    many = max(1, 32 // BITS[types_of(opcode)[2]])
    register, j = divmod(i, many)
    return (4 * register + t) * many + j, g


def of_c(opcode, lane, i):
    """A lane's elements of the accumulators: two neighbours in a row, then two in the row 8 below."""
    g, t = group(lane)
    return g + 8 * (i >> 1), 2 * t + (i & 1)


def quad(lane):
    """PTX ISA 9.7.14.5.1, f16 ``m8n8k4``: (q, half) of the quad pair q that the lane belongs to."""
    return lane % 16 // 4, lane // 16


def quad_a(opcode, lane, i):
    q, half = quad(lane)
    if spelled(opcode).layouts[0] == "row":
        return lane % 4 + 4 * half, i, q
    return i % 4 + 4 * half, lane % 4, q


def quad_b(opcode, lane, i):
    q, half = quad(lane)
    if spelled(opcode).layouts[1] == "row":
        return lane % 4, i + 4 * half, q
    return i, lane % 4 + 4 * half, q


def quad_c(opcode, lane, i):
    q, half = quad(lane)
    if types_of(opcode)[3] == "f16":
        return lane % 4 + 4 * half, i, q
    return (lane & 1) + (i & 2) + 4 * half, (i & 4) + (lane & 2) + (i & 1), q


def quad_d(opcode, lane, i):
    same = opcode.rpartition(".")[0] + "." + types_of(opcode)[0]
    return quad_c(same, lane, i)


def of_eight(lane, i):
    """PTX ISA 9.7.14.5.15, ``ldmatrix``: register i // 2 holds elements of matrix i // 2, in row groupID."""
    g, t = group(lane)
    return g, 2 * t + i % 2, i // 2


# ``wmma``: the (row, column) offset of each binary digit of i; (0, 0) for a digit that selects a copy.

WMMA = {
    ("a", 16, "m16n16k16"): ((0, 1), (8, 0), (0, 8), (0, 0)),
    ("a", 16, "m8n32k16"): ((0, 1), (0, 8), (0, 0), (0, 0)),
    ("a", 16, "m32n8k16"): ((0, 1), (8, 0), (0, 8), (16, 0)),
    ("b", 16, "m16n16k16"): ((1, 0), (8, 0), (0, 8), (0, 0)),
    ("b", 16, "m8n32k16"): ((1, 0), (0, 8), (8, 0), (0, 16)),
    ("b", 16, "m32n8k16"): ((1, 0), (8, 0), (0, 0), (0, 0)),
    ("a", 8): ((0, 1), (0, 2), (8, 0), (16, 0)),
    ("b", 8): ((1, 0), (2, 0), (0, 8), (0, 16)),
    ("a", 32): ((8, 0), (0, 4)),
    ("b", 32): ((4, 0), (0, 8)),
    ("a", 64): (),
    ("b", 64): (),
    ("a", 4): ((0, 1), (0, 2), (0, 4)),
    ("b", 4): ((1, 0), (2, 0), (4, 0)),
    ("a", 1): ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16)),
    ("b", 1): ((1, 0), (2, 0), (4, 0), (8, 0), (16, 0)),
    ("c", "m16n16k16"): ((0, 1), (8, 0), (0, 8)),
    ("c", "m16n16k8"): ((0, 1), (8, 0), (0, 8)),
    ("c", "m32n8k16"): ((0, 1), (8, 0), (16, 0)),
    ("c", "m8n32k16"): ((1, 0), (0, 8), (0, 16)),
    ("c", "m8n8k4"): ((0, 1),),
    ("c", "m8n8k32"): ((0, 1),),
    ("c", "m8n8k128"): ((0, 1),),
}


def of_wmma(operand, kind, shape, lane, i):
    """(row, column) of element i of a lane, as on an H200."""
    (g, t), bits = group(lane), BITS[kind]
    many = max(1, 32 // bits)
    name = "m{}n{}k{}".format(*shape)
    if operand == "c":
        steps, (row, column) = WMMA["c", name], (2 * t, g) if name == "m8n32k16" else (g, 2 * t)
    else:
        steps = WMMA.get((operand, bits)) or WMMA.get((operand, bits, name), ())
        row, column = (g, many * t) if operand == "a" else (many * t, g)
    for digit, (down, right) in enumerate(steps):
        on = i >> digit & 1
        row, column = row + on * down, column + on * right
    return row, column


# ----------------------------------------------------------------------------- registers and elements


def elements(lanes, kind, place):
    """Gather the matrix elements from the registers of all lanes; copies must be equal."""
    bits = BITS[kind]
    many = max(32, bits) // bits
    found = {}
    for lane, registers in zip(LANES, lanes, strict=True):
        for i in range(many * len(registers)):
            word = registers[i // many] >> bits * (i % many) & (1 << bits) - 1
            assert found.setdefault(place(lane, i), word) == word, "copies of an element differ"
    return found


def fragments(matrix, kind, place, count):
    """Scatter matrix elements to ``count`` registers of each lane; the inverse of `elements`."""
    bits = BITS[kind]
    many = max(32, bits) // bits
    return [
        [sum(matrix[place(lane, many * r + j)] << bits * j for j in range(many)) for r in range(count)]
        for lane in LANES
    ]


# ------------------------------------------------------------------------------------------- products


def multiplied(opcode, a, b, c):
    """The elements of D = A B + C, for each matrix of the instruction."""
    types = types_of(opcode)
    m, n, k = spelled(opcode).shape
    every = {place[2:] for place in c}
    d = {}
    for at in every:
        rows = [[a[(row, i, *at)] for i in range(k)] for row in range(m)]
        columns = [[b[(i, column, *at)] for i in range(k)] for column in range(n)]
        sums = [[c[(row, column, *at)] for column in range(n)] for row in range(m)]
        for row, line in enumerate(numbers.product(opcode, types, rows, columns, sums)):
            d |= {(row, column, *at): word for column, word in enumerate(line)}
    return d


def by_maps(opcode, types, maps, *lanes):
    """Compute a product from registers: gather the elements, multiply, and scatter the result."""
    *read, written = maps
    d = multiplied(opcode, *(elements(*one) for one in zip(lanes, types[1:], read, strict=True)))
    count = len(d) // 32 * BITS[types[0]] // max(32, BITS[types[0]])
    return fragments(d, types[0], written, count)


def mma(opcode, a, b, c):
    """Scalar twin of ``mma``, from PTX ISA 9.7.14.5.14."""
    types = types_of(opcode)
    quads = "m8n8k4" in opcode and types[1] == "f16"
    named = (quad_a, quad_b, quad_c, quad_d) if quads else (of_a, of_b, of_c, of_c)
    return by_maps(opcode, types, [partial(one, opcode) for one in named], a, b, c)


def wmma_mma(opcode, a, b, c):
    """Scalar twin of ``wmma.mma``, from PTX ISA 9.7.14.4.5."""
    types, shape = types_of(opcode), spelled(opcode).shape
    named = zip("abcc", [*types[1:], types[0]], strict=True)
    return by_maps(opcode, types, [partial(of_wmma, one, kind, shape) for one, kind in named], a, b, c)


def movmatrix(opcode, a):
    """PTX ISA 9.7.14.5.17: lanes hold the rows of A and receive the rows of its transpose."""
    turned = {(column, row, q): word for (row, column, q), word in elements(a, "b16", of_eight).items()}
    return fragments(turned, "b16", of_eight, 1)


# ----------------------------------------------------------------------------------- loads and stores


def bits_at(memory, at, count):
    """Read ``count`` bits of little-endian memory from bit ``at`` on."""
    return int.from_bytes(memory[at // 8 : (at + count + 7) // 8], "little") >> at % 8 & (1 << count) - 1


def put_bits(memory, at, count, word):
    memory[at // 8 : (at + count) // 8] = word.to_bytes(count // 8, "little")


def tile_of(opcode, stride):
    """PTX ISA 9.7.14.4.2: the map of a fragment, its type, and the bit offset of each element in memory."""
    spelling = spelled(opcode)
    operand, (kind,), (m, n, k) = spelling.words[2].replace("d", "c"), spelling.types, spelling.shape
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n)}[operand]
    steps = (stride or columns, 1) if spelling.layouts == ["row"] else (1, stride or rows)
    places = {
        (row, column): (row * steps[0] + column * steps[1]) * BITS[kind]
        for row in range(rows)
        for column in range(columns)
    }
    return partial(of_wmma, operand, kind, spelling.shape), kind, places


def wmma_load(opcode, memory, addresses, stride):
    """Scalar twin of ``wmma.load``, from PTX ISA 9.7.14.4.3."""
    place, kind, places = tile_of(opcode, stride)
    (start,) = set(addresses)
    found = {at: bits_at(memory, 8 * start + bit, BITS[kind]) for at, bit in places.items()}
    registers = len(places) // 32 * BITS[kind] // max(32, BITS[kind])
    return fragments(found, kind, place, 8 if kind == "f16" and ".c." not in opcode else registers)


def wmma_store(opcode, lanes, memory, addresses, stride):
    """Scalar twin of ``wmma.store``, from PTX ISA 9.7.14.4.4."""
    place, kind, places = tile_of(opcode, stride)
    (start,), left = set(addresses), bytearray(memory)
    for at, word in elements(lanes, kind, place).items():
        put_bits(left, 8 * start + places[at], BITS[kind], word)
    return bytes(left)


def rows_of_eight(opcode, count, addresses):
    """Bit offsets of matrix elements: lane 8 q + row holds the address of that row of matrix q."""
    turned = "trans" in spelled(opcode).words
    return {
        (column, row, q) if turned else (row, column, q): 8 * addresses[8 * q + row] + 16 * column
        for q in range(count)
        for row in range(8)
        for column in range(8)
    }


def ldmatrix(opcode, memory, addresses, stride=None):
    """Scalar twin of ``ldmatrix``, from PTX ISA 9.7.14.5.15."""
    count = next(int(word[1:]) for word in spelled(opcode).words if word in ("x1", "x2", "x4"))
    places = rows_of_eight(opcode, count, addresses)
    return fragments({at: bits_at(memory, bit, 16) for at, bit in places.items()}, "b16", of_eight, count)


def stmatrix(opcode, lanes, memory, addresses, stride=None):
    """Scalar twin of ``stmatrix``, from PTX ISA 9.7.14.5.16."""
    places, left = rows_of_eight(opcode, len(lanes[0]), addresses), bytearray(memory)
    for at, word in elements(lanes, "b16", of_eight).items():
        put_bits(left, places[at], 16, word)
    return bytes(left)


# ----------------------------------------------------------------------------------------------- rows


def named(base, names, twin):
    """Register one twin for several rows."""
    return {f"{base}.{name}": twin for name in names.split()}


ACCUMULATORS = "f16 f32 m16n16k8.f32 s32 m8n8.s32 f64"

TWINS = {
    **named("mma", "m8n8k4.f16 m16n8k8.f16 m16n8k16.f16 bf16 tf32 f8 m8n8k4.f64 f64", mma),
    **named("mma", "m8n8k16.s8 s8 m8n8k32.s4 s4 m8n8k128.b1.xor m8n8k128.b1.and b1", mma),
    **named("wmma.mma", "f16 s8 bf16 tf32 f64 f64.rounding s4 b1.xor b1.and", wmma_mma),
    **named("wmma.load.a", "f16 s8 bf16 tf32 f64 s4 b1", wmma_load),
    **named("wmma.load.b", "f16 s8 bf16 tf32 f64 s4 b1", wmma_load),
    **named("wmma.load.c", ACCUMULATORS, wmma_load),
    **named("wmma.store.d", ACCUMULATORS, wmma_store),
    "ldmatrix": ldmatrix,
    "ldmatrix.number": ldmatrix,
    "stmatrix": stmatrix,
    "stmatrix.number": stmatrix,
    "movmatrix": movmatrix,
}
