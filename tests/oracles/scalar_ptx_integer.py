"""Scalar twins of integer, logic and video rows, in plain Python integers, from the PTX ISA 9.0.

Arguments and results are described in `tests/oracles/scalar_ptx.py`.
"""

from functools import cache

from oracles import scalar_lanes as lanes

# ------------------------------------------------------------------------------------ words and types


def last_type(opcode):
    """Last type of an opcode; of ``min.s16x2.relu`` it is ``s16x2``."""
    return opcode.removesuffix(".relu").split(".")[-1]


@cache
def bits_of(kind):
    """Width of a type: 32 for ``s32``, ``f16x2``, ``tf32``; 16 for ``bf16``, ``e4m3x2``."""
    widths = {"pred": 1, "bf16": 16, "tf32": 32, "e4m3x2": 16, "e5m2x2": 16, "e4m3": 8, "e5m2": 8}
    if kind in widths:
        return widths[kind]
    return 2 * bits_of(kind.removesuffix("x2")) if kind.endswith("x2") else int(kind[1:])


@cache
def ones(kind):
    return (1 << bits_of(kind)) - 1


def signed(word, bits):
    """The two's complement number of a bit pattern."""
    return word - (1 << bits) if word >> (bits - 1) & 1 else word


def value(kind, word):
    """The number that a bit pattern of a type encodes."""
    word &= ones(kind)
    return signed(word, bits_of(kind)) if kind[0] == "s" else word


def widen(kind, word, bits):
    """PTX ISA 9.4.1: extend into a wider register with zeros, or with the sign of a signed type."""
    return value(kind, word) & ((1 << bits) - 1)


def clamped(kind, number):
    """``number``, clamped to the range of the type."""
    half = 1 << (bits_of(kind) - 1)
    lowest, highest = (-half, half - 1) if kind[0] == "s" else (0, 2 * half - 1)
    return min(max(number, lowest), highest)


def each_half(twin):
    """Extend a twin to packed pairs: ``.u16x2`` applies ``.u16`` to each half."""

    def either(opcode, *words):
        pair = last_type(opcode)
        if not pair.endswith("x2"):
            return twin(opcode, *words)
        single = opcode.replace(pair, pair.removesuffix("x2"))
        low, high = (twin(single, *(word >> shift & 0xFFFF for word in words)) for shift in (0, 16))
        return low | high << 16

    return either


# ----------------------------------------------------------------------------------------- arithmetic


def arithmetic(function):
    """Make the twin of integer arithmetic: exact, then truncated to the width of the type.

    ``.sat`` clamps instead of truncating (9.7.1.1), ``.relu`` clamps negative results to 0 (9.7.1.12).
    """

    def twin(opcode, *operands):
        kind = last_type(opcode)
        exact = function(*(value(kind, a) for a in operands))
        if ".sat" in opcode:
            exact = clamped(kind, exact)
        if ".relu" in opcode:
            exact = max(exact, 0)
        return exact & ones(kind)

    return each_half(twin)


def high(opcode, a, b, c=0):
    """PTX ISA 9.7.1.3 and 9.7.1.4: ``t = a * b; d = t<2n-1..n> + c``; ``.sat`` clamps the sum."""
    kind = last_type(opcode)
    total = (value(kind, a) * value(kind, b) >> bits_of(kind)) + value(kind, c)
    return (clamped(kind, total) if ".sat" in opcode else total) & ones(kind)


def wide(opcode, a, b, c=0):
    """PTX ISA 9.7.1.3 and 9.7.1.4: all 2n bits of the product."""
    kind = last_type(opcode)
    return (value(kind, a) * value(kind, b) + c) & ((1 << 2 * bits_of(kind)) - 1)


def mul24(opcode, a, b, c=0):
    """PTX ISA 9.7.1.5 and 9.7.1.6: 24 bits of each factor; ``d = t<47..16> + c`` or ``t<31..0> + c``."""
    kind = last_type(opcode)
    x, y = (signed(w & 0xFFFFFF, 24) if kind[0] == "s" else w & 0xFFFFFF for w in (a, b))
    t = x * y >> (16 if ".hi" in opcode else 0)
    total = signed(t & 0xFFFFFFFF, 32) + value(kind, c) if kind[0] == "s" else t + c
    return (clamped(kind, total) if ".sat" in opcode else total) & 0xFFFFFFFF


def truncated_quotient(a, b):
    """PTX ISA 9.7.1.8: rounded toward zero; division by zero gives all ones, as on an H200."""
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b):
    """PTX ISA 9.7.1.9: the remainder of ``div``; for a divisor of zero as on an H200."""
    return -1 if b == 0 else a - b * truncated_quotient(a, b)


def carried(opcode, *operands):
    """PTX ISA 9.7.2: (a, b[, c][, carry in]) → d, or (d, carry out) with ``.cc``.

    The PTX ISA calls the carry of a subtraction its borrow. Silicon keeps the opposite there, the carry of
    ``a + ~b + 1``; only code that mixes the two, ``sub.cc`` before ``addc``, can tell. So does this.
    """
    kind, base = last_type(opcode), opcode.split(".")[0]
    *words, carry = operands if base in ("addc", "subc", "madc") else (*operands, base == "sub")
    a, b = (word & ones(kind) for word in words[:2])
    if base.startswith("sub"):
        total = a + (b ^ ones(kind)) + carry
    elif base.startswith("add"):
        total = a + b + carry
    else:
        product = value(kind, a) * value(kind, b)
        part = (product >> bits_of(kind) if ".hi" in opcode else product) & ones(kind)
        total = part + (words[2] & ones(kind)) + carry
    d = total & ones(kind)
    return (d, total > ones(kind)) if ".cc" in opcode else d


def dot_product(opcode, a, b, c):
    """PTX ISA 9.7.1.23 and 9.7.1.24, ``dp4a`` and ``dp2a``."""
    *_, kind_a, kind_b = opcode.split(".")
    of_bytes = parts(b, kind_b, 4)
    if opcode.startswith("dp4a"):
        pairs = zip(parts(a, kind_a, 4), of_bytes, strict=True)
    else:
        pairs = zip(parts(a, kind_a, 2), of_bytes[2:] if ".hi" in opcode else of_bytes[:2], strict=True)
    return (c + sum(x * y for x, y in pairs)) & 0xFFFFFFFF


def parts(word, kind, count):
    """The bytes (4) or half-words (2) of a word, lowest first, with the signedness of the type."""
    bits = 32 // count
    return [value(f"{kind[0]}{bits}", word >> bits * i) for i in range(count)]


# ------------------------------------------------------------------------------------------------ bits


def bfind(opcode, a):
    """PTX ISA 9.7.1.16: the highest bit that is 1 (in a negative number, that is 0)."""
    kind = last_type(opcode)
    n = bits_of(kind)
    wanted = 0 if value(kind, a) < 0 else 1
    for i in reversed(range(n)):
        if a >> i & 1 == wanted:
            return n - 1 - i if "shiftamt" in opcode else i
    return 0xFFFFFFFF


def fns(opcode, mask, base, offset):
    """PTX ISA 9.7.1.17: the n-th set bit from ``base`` on, upward or downward, ``base`` included.

    By the PTX ISA there is no (-2**31)-th set bit: 0xffffffff. The code that ptxas makes of it gives 0.
    """
    if offset == 1 << 31:
        return 0
    n, position = signed(offset, 32), base
    if n == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    count = abs(n) - 1
    while 0 <= position < 32:
        if mask >> position & 1:
            if count == 0:
                return position
            count -= 1
        position += 1 if n > 0 else -1
    return 0xFFFFFFFF


def bmsk(opcode, a, b):
    """PTX ISA 9.7.1.22: ``b`` ones from bit ``a`` upward."""
    everything = 0xFFFFFFFF
    clamp = ".clamp" in opcode
    position, width = a & 0x1F, b & 0x1F
    mask0 = 0 if clamp and a >= 32 else everything << position & everything
    if position + width >= 32 or (clamp and (a >= 32 or b >= 32)):
        mask1 = 0
    else:
        mask1 = everything << (position + width) & everything if width else everything
    return mask0 & ~mask1


def szext(opcode, a, b):
    """PTX ISA 9.7.1.21: the low N bits, extended with their sign or with zeros."""
    n = min(b, 32) if ".clamp" in opcode else b & 0x1F
    low = a & ((1 << n) - 1)
    return (signed(low, n) if n and opcode.endswith("s32") else low) & 0xFFFFFFFF


def field(function):
    """Make a twin that takes width and signedness from the type of the opcode."""

    def twin(opcode, *operands):
        kind = last_type(opcode)
        more = {"signed": True} if kind[0] == "s" else {}
        return function(*operands, width=bits_of(kind), **more)

    return twin


def whole_amounts(function):
    """``bfe`` and ``bfi``: the PTX ISA takes position and length modulo 256.

    So does an H200 for 32 bits. For 64 bits it takes all of them, where 255 is as good as anything above.
    """
    twin = field(function)

    def counted(opcode, *operands):
        if bits_of(last_type(opcode)) == 32:
            return twin(opcode, *operands)
        return twin(opcode, *operands[:-2], *(min(amount, 255) for amount in operands[-2:]))

    return counted


def bitwise(function):
    """Make a twin that accepts predicates too."""

    def twin(opcode, *operands):
        result = function(*map(int, operands)) & ones(last_type(opcode))
        return bool(result) if last_type(opcode) == "pred" else result

    return twin


def cnot(opcode, a):
    """PTX ISA 9.7.8.5: ``d = (a == 0) ? 1 : 0``."""
    return int(a & ones(last_type(opcode)) == 0)


def lop3(opcode, a, b, c, *q):
    """PTX ISA 9.7.8.6, for each of the 256 tables; with BoolOp also ``p = (d != 0) BoolOp q``."""
    words = tuple(lanes.lop3(a, b, c, table) for table in range(256))
    if not q:
        return words
    return tuple((d, bool(d != 0 or q[0]) if ".or" in opcode else bool(d != 0 and q[0])) for d in words)


# ----------------------------------------------------------------------------------------------- video


def average(a, b):
    """PTX ISA 9.7.18.2, ``vavrg``: rounded up if the sum is not negative, else down."""
    return a + b + 1 >> 1 if a + b >= 0 else a + b >> 1


SIMD = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vavrg": average,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
}


def video(opcode, a, b, c):
    """PTX ISA 9.7.18.2: ``vadd2`` … ``vmax4`` on half-words or bytes, with the default selectors and mask."""
    base, kind, kind_a, kind_b = opcode.split(".")[:4]
    count = int(base[-1])
    pairs = zip(parts(a, kind_a, count), parts(b, kind_b, count), strict=True)
    results = [SIMD[base[:-1]](x, y) for x, y in pairs]
    if ".sat" in opcode:
        results = [clamped(f"{kind[0]}{32 // count}", t) for t in results]
    return merged(opcode, count, results, c)


def video_set(opcode, a, b, c):
    """PTX ISA 9.7.18.2, ``vset2`` and ``vset4``: 1 in each part where the comparison holds, else 0."""
    base, kind_a, kind_b, compare = opcode.split(".")[:4]
    count = int(base[-1])
    pairs = zip(parts(a, kind_a, count), parts(b, kind_b, count), strict=True)
    return merged(opcode, count, [int(COMPARE[compare](x, y)) for x, y in pairs], c)


def merged(opcode, count, results, c):
    """With ``.add``, the sum of c and all parts; otherwise the parts packed into a word."""
    if opcode.endswith(".add"):
        return (c + sum(results)) & 0xFFFFFFFF
    bits = 32 // count
    return sum((t & ((1 << bits) - 1)) << bits * i for i, t in enumerate(results))


# ------------------------------------------------------------------------------------------ comparison

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


def combine(opcode, t, c):
    """``BoolOp(t, c)``, or t if the opcode has no BoolOp."""
    operation = COMBINE.get(opcode.split(".")[2], lambda t, c: t)
    return bool(operation(bool(t), bool(c)))


def prmt(opcode, a, b, c):
    """Scalar twin of ``prmt``, from PTX ISA 9.7.9.7."""
    mode = opcode.split(".")[2:]
    return lanes.prmt(a, b, c, mode[0] if mode else "default")
