"""Scalar twins of the PTX rows: one instruction at a time, in plain Python integers, from the PTX ISA.

``TWINS[row name](opcode, *operands)`` takes the opcode as written and bit patterns in the order of PTX, and
returns the bit pattern of each destination (one, or a tuple); predicates are bools. Twins of warp-wide rows
take a list of 32 for each operand, then the executing lanes, and return 32 results. Those of atomics take the
value in memory first and return it together with the new one.
"""

import runpy
import struct
from pathlib import Path
from types import SimpleNamespace

lanes = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("scalar_lanes.py"))))


def last_type(opcode):
    return opcode.split(".")[-1]


def bits_of(kind):
    return 1 if kind == "pred" else int(kind[1:])


def signed(word, bits):
    """Two's complement."""
    return word - (1 << bits) if word >> (bits - 1) & 1 else word


def value(kind, word):
    """The number a bit pattern of a type stands for."""
    word &= (1 << bits_of(kind)) - 1
    return signed(word, bits_of(kind)) if kind[0] == "s" else word


def widen(kind, word, bits):
    """PTX ISA 9.4.1: into a wider register go zeros, or copies of a signed type's sign."""
    return value(kind, word) & ((1 << bits) - 1)


def arithmetic(function):
    """A twin of integer arithmetic: exact in the integers, then cut to the type's width."""

    def twin(opcode, *operands):
        kind = last_type(opcode)
        return function(*(value(kind, a) for a in operands)) & ((1 << bits_of(kind)) - 1)

    return twin


def high(opcode, a, b, c=0):
    """PTX ISA 9.7.1.3 and 9.7.1.4: ``t = a * b; d = t<2n-1..n> + c``."""
    kind = last_type(opcode)
    n = bits_of(kind)
    return ((value(kind, a) * value(kind, b) >> n) + value(kind, c)) & ((1 << n) - 1)


def wide(opcode, a, b, c=0):
    """PTX ISA 9.7.1.3 and 9.7.1.4: all 2n bits of the product."""
    kind = last_type(opcode)
    return (value(kind, a) * value(kind, b) + c) & ((1 << 2 * bits_of(kind)) - 1)


def truncated_quotient(a, b):
    """PTX ISA 9.7.1.8: rounded toward zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def bfind(opcode, a):
    """PTX ISA 9.7.1.16: scan down from the top for a 1 (or, in a negative number, a 0)."""
    kind = last_type(opcode)
    n = bits_of(kind)
    wanted = 0 if value(kind, a) < 0 else 1
    for i in reversed(range(n)):
        if a >> i & 1 == wanted:
            return n - 1 - i if "shiftamt" in opcode else i
    return 0xFFFFFFFF


def field(function):
    """A twin that needs the width, and perhaps the sign, of the opcode's type."""

    def twin(opcode, *operands):
        kind = last_type(opcode)
        more = {"signed": True} if kind[0] == "s" else {}
        return function(*operands, width=bits_of(kind), **more)

    return twin


def bitwise(function):
    """A twin that knows predicates too."""

    def twin(opcode, *operands):
        result = function(*map(int, operands)) & ((1 << bits_of(last_type(opcode))) - 1)
        return bool(result) if last_type(opcode) == "pred" else result

    return twin


COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}
COMBINE = {"and": lambda t, c: t and c, "or": lambda t, c: t or c, "xor": lambda t, c: t != c}


def combined(opcode, t, c):
    """PTX ISA 9.7.6.2: ``p = BoolOp(t, c); q = BoolOp(!t, c)``."""
    operation = COMBINE.get(opcode.split(".")[2], lambda t, c: t)
    return operation(t, c), operation(not t, c)


def setp(opcode, a, b, c=None):
    """PTX ISA 9.7.6.2 for integers."""
    kind = last_type(opcode)
    return combined(opcode, COMPARE[opcode.split(".")[1]](value(kind, a), value(kind, b)), c)


def decode(kind, word, ftz=False):
    """The Python float of an IEEE bit pattern; with ``ftz`` a subnormal is zero."""
    exponent = word >> 23 & 0xFF if kind == "f32" else word >> 52 & 0x7FF
    if ftz and exponent == 0:
        return 0.0
    return struct.unpack(
        *(("<f", struct.pack("<I", word)) if kind == "f32" else ("<d", struct.pack("<Q", word)))
    )[0]


def setp_float(opcode, a, b, c=None):
    """PTX ISA 9.7.6.2 for floats: ordered comparisons are false for a NaN, those with ``u`` true."""
    kind, compare = last_type(opcode), opcode.split(".")[1]
    x, y = (decode(kind, word, ".ftz" in opcode) for word in (a, b))
    unordered = x != x or y != y
    if compare in ("num", "nan"):
        t = unordered == (compare == "nan")
    elif unordered:
        t = len(compare) == 3
    else:
        t = COMPARE[compare[:2]](x, y)
    return combined(opcode, t, c)


def prmt(opcode, a, b, c):
    """PTX ISA 9.7.9.7."""
    mode = opcode.split(".")[2:]
    return lanes.prmt(a, b, c, mode[0] if mode else "default")


def cvt(opcode, a):
    """PTX ISA 9.7.9.21, integer to integer: extend as the source's type says, then cut."""
    to, source = opcode.split(".")[1:]
    return value(source, a) & ((1 << bits_of(to)) - 1)


def stored(opcode, *words):
    """PTX ISA 9.7.9.11: the low bits of each register."""
    return tuple(word & ((1 << bits_of(last_type(opcode))) - 1) for word in words)


ATOMIC = {
    "add": lambda old, b: old + b,
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "min": min,
    "max": max,
    "exch": lambda old, b: b,
}


def atom(opcode, old, b):
    """PTX ISA 9.7.13.5: ``d = [a]; [a] = operation([a], b)``."""
    kind = last_type(opcode)
    new = ATOMIC[opcode.split(".")[-2]](value(kind, old), value(kind, b))
    return old, new & ((1 << bits_of(kind)) - 1)


def redux(opcode, a, m, active):
    """PTX ISA 9.7.13.12."""
    return lanes.redux(opcode.split(".")[2], a, m, active, signed=last_type(opcode) == "s32")


TWINS = {
    "add": arithmetic(lambda a, b: a + b),
    "sub": arithmetic(lambda a, b: a - b),
    "mul.lo": arithmetic(lambda a, b: a * b),
    "mul.hi": high,
    "mul.wide": wide,
    "mad.lo": arithmetic(lambda a, b, c: a * b + c),
    "mad.hi": high,
    "mad.wide": wide,
    "div": arithmetic(truncated_quotient),
    "rem": arithmetic(lambda a, b: a - b * truncated_quotient(a, b)),
    "abs": arithmetic(abs),
    "neg": arithmetic(lambda a: -a),
    "min": arithmetic(min),
    "max": arithmetic(max),
    "popc": lambda opcode, a: lanes.popc(a),
    "clz": field(lanes.clz),
    "bfind": bfind,
    "brev": field(lanes.brev),
    "bfe": field(lanes.bfe),
    "bfi": field(lanes.bfi),
    "setp": setp,
    "setp (signed)": setp,
    "setp (bits)": setp,
    "setp (float)": setp_float,
    "selp": lambda opcode, a, b, c: a if c else b,
    "and": bitwise(lanes.and_),
    "or": bitwise(lanes.or_),
    "xor": bitwise(lanes.xor),
    "not": bitwise(lambda a: ~a),
    "lop3.b32": lambda opcode, a, b, c: tuple(lanes.lop3(a, b, c, table) for table in range(256)),
    "shf.b32": lambda opcode, a, b, c: lanes.shf(a, b, c, *opcode.split(".")[1:3]),
    "shl": field(lanes.shl),
    "shr": field(lanes.shr),
    "mov": lambda opcode, a: a,
    "shfl.sync.b32": lambda opcode, a, b, c, m, active: lanes.shfl(a, b, c, opcode.split(".")[2], m, active),
    "prmt.b32": prmt,
    "ld": lambda opcode, *words: words,
    "st": stored,
    "cvta.global": lambda opcode, a: a,
    "cvt": cvt,
    "atom.add": atom,
    "atom (min, max)": atom,
    "atom (bits)": atom,
    "vote.sync.pred": lambda opcode, a, m, active: getattr(lanes, f"vote_{opcode.split('.')[2]}")(
        a, m, active
    ),
    "vote.sync.ballot.b32": lambda opcode, a, m, active: lanes.ballot(a, m, active),
    "match.any.sync": lambda opcode, a, m, active: lanes.match_any(a, m, active),
    "match.all.sync": lambda opcode, a, m, active: lanes.match_all(a, m, active),
    "activemask.b32": lambda opcode, active: [lanes.mask_word(active) if on else None for on in active],
    "redux.sync": redux,
    "redux.sync.b32": redux,
}
