"""Scalar twins of floating-point rows, exact in `fractions.Fraction`, from the PTX ISA 9.0.

A float of any format is carried as the Python float of the same value: all of them are there, zeros with
their sign, infinities and NaN too. An exact result is a Fraction, or a float if it is one of those.
"""

import math
from fractions import Fraction

from oracles import scalar_ptx_integer as words

last_type, bits_of, each_half = words.last_type, words.bits_of, words.each_half


# ---------------------------------------------------------------------------------- formats and rounding

FORMATS = {  # exponent bits, fraction bits, zero bits below them
    "f16": (5, 10, 0),
    "bf16": (8, 7, 0),
    "tf32": (8, 10, 13),
    "f32": (8, 23, 0),
    "f64": (11, 52, 0),
    "e4m3": (4, 3, 0),
    "e5m2": (5, 2, 0),
}
NAN = {
    "f16": 0x7FFF,
    "bf16": 0x7FFF,
    "tf32": 0x7FFFE000,
    "f32": 0x7FFFFFFF,
    "f64": 0xFFF8000000000000,
    "e4m3": 0x7F,
    "e5m2": 0x7F,
}
"""The canonical NaN: what arithmetic gives, whatever NaN it was given (but for f64, see ``kept_nan``).

Of f64 and tf32 the PTX ISA names no bits; these are an H200's.
"""


def largest(kind):
    """Bits of the largest finite number; ``e4m3`` has no infinity and a single NaN."""
    exponent, fraction, below = FORMATS[kind]
    return 0x7E if kind == "e4m3" else (((1 << exponent) - 1 << fraction) - 1) << below


def infinity(kind):
    """Bits of +infinity, or of NaN in a format without infinity."""
    exponent, fraction, below = FORMATS[kind]
    return 0x7F if kind == "e4m3" else (1 << exponent) - 1 << fraction + below


def decode(kind, word, ftz=False):
    """Python float of a bit pattern; with ``ftz`` a subnormal becomes a zero of its sign."""
    exponent, fraction, below = FORMATS[kind]
    word &= words.ones(kind)
    negative, magnitude = word >> (bits_of(kind) - 1), word & words.ones(kind) >> 1
    if magnitude > infinity(kind) or (kind == "e4m3" and magnitude == 0x7F):
        return math.nan
    if magnitude == infinity(kind):
        return -math.inf if negative else math.inf
    magnitude >>= below
    biased, significand = magnitude >> fraction, magnitude & ((1 << fraction) - 1)
    if biased == 0 and ftz:
        significand = 0
    significand += 1 << fraction if biased else 0
    smallest = 2 - (1 << exponent - 1) - fraction
    number = float(significand * Fraction(2) ** (max(biased, 1) - 1 + smallest))
    return -number if negative else number


def encode(kind, exact, rounding="rn", finite=False):
    """Round once; with ``finite``, overflow gives the largest finite number."""
    top = 1 << (bits_of(kind) - 1)
    if not isinstance(exact, Fraction):
        if math.isnan(exact):
            return NAN[kind]
        sign = top if math.copysign(1, exact) < 0 else 0
        return sign | (0 if exact == 0 else largest(kind) if finite else infinity(kind))
    negative = exact < 0
    magnitude = _magnitude(kind, abs(exact), rounding, negative)
    if magnitude > largest(kind):
        toward_zero = rounding == "rz" or rounding == ("rp" if negative else "rm")
        magnitude = largest(kind) if finite or toward_zero else infinity(kind)
    return magnitude | (top if negative else 0)


def _magnitude(kind, exact, rounding, negative):
    """Bits of the rounded absolute value; overflow continues the count past the largest number."""
    exponent, fraction, below = FORMATS[kind]
    smallest = 2 - (1 << exponent - 1) - fraction
    unit = max(floor_log2(exact) - fraction, smallest)
    n = rounded(exact / Fraction(2) ** unit, rounding, negative)
    return (unit - smallest << fraction) + n << below


def floor_log2(exact):
    guess = exact.numerator.bit_length() - exact.denominator.bit_length()
    return guess if Fraction(2) ** guess <= exact else guess - 1


def rounded(exact, rounding, negative=False):
    """Round a positive number to an integer; ``negative`` swaps the directions ``rm`` and ``rp``."""
    n, rest = divmod(exact, 1)
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n % 2 == 1),
        "rna": rest >= Fraction(1, 2),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[rounding]
    return int(n) + up


# ----------------------------------------------------------------------------------------------- exact


def finite(x):
    return isinstance(x, Fraction) or math.isfinite(x)


def sign_of(x):
    """1 or -1, also for zeros."""
    return math.copysign(1, x.numerator if isinstance(x, Fraction) else x)


def total(x, y, rounding):
    """Exact sum; an exact zero is +0, or -0 with ``rm``, unless both addends are zeros of one sign."""
    if not (finite(x) and finite(y)):
        return (0.0 if finite(x) else x) + (0.0 if finite(y) else y)
    exact = Fraction(x) + Fraction(y)
    if exact:
        return exact
    if sign_of(x) == sign_of(y):
        return x
    return -0.0 if rounding == "rm" else 0.0


def product(x, y):
    """Exact product; computed in floats only if a factor is zero or not finite, where that is exact."""
    return (Fraction(x) * Fraction(y) if finite(x) and finite(y) else 0) or x * y


def quotient(x, y):
    if finite(x) and finite(y) and y != 0:
        return Fraction(x) / Fraction(y) or sign_of(x) * sign_of(y) * 0.0
    if finite(y):
        return math.nan if x == 0 or math.isnan(x) else sign_of(x) * sign_of(y) * math.inf
    return math.nan if math.isnan(y) or not finite(x) else sign_of(x) * sign_of(y) * 0.0


def root(x):
    """The square root, or a nearby number that rounds alike in every direction."""
    if math.isnan(x) or x <= 0 or math.isinf(x):
        return x if not x < 0 else math.nan
    shift = 640  # so that n is an integer, and has a hundred bits more than the result
    n = Fraction(x) * 4**shift
    low = math.isqrt(int(n))
    return Fraction(low if low * low == n else 2 * low + 1, 2**shift * (1 if low * low == n else 2))


# ------------------------------------------------------------------------------------------- arithmetic


def rounding_of(opcode, default="rn"):
    return next((m for m in opcode.split(".")[1:] if m in ("rn", "rna", "rz", "rm", "rp")), default)


def finish(opcode, kind, exact, ftz=None):
    """Round as the opcode says, then apply ``.ftz``, ``.sat`` and ``.relu``.

    9.7.3: ``.sat`` clamps to [0, 1] and maps NaN to +0. 9.7.4: ``.relu`` clamps negative results to 0.
    """
    word = encode(kind, exact, rounding_of(opcode))
    if (".ftz" in opcode if ftz is None else ftz) and is_tiny(kind, exact, rounding_of(opcode)):
        word &= ~(words.ones(kind) >> 1)
    number = decode(kind, word)
    if ".sat" in opcode:
        word = encode(kind, Fraction(1)) if number > 1 else word if number > 0 else 0
    if ".relu" in opcode and number <= 0:
        word = 0
    return word


def is_tiny(kind, exact, rounding):
    """Whether a result counts as subnormal; the PTX ISA leaves open whether before or after rounding.

    An H200 rounds to this many fraction bits with an unbounded exponent, and judges that.
    """
    if not isinstance(exact, Fraction):
        return False
    unit = Fraction(2) ** (floor_log2(abs(exact)) - FORMATS[kind][1])
    return unit * rounded(abs(exact) / unit, rounding, exact < 0) < decode(kind, 1 << FORMATS[kind][1])


def flushed(kind, word):
    """Replace a subnormal by the zero of its sign; other numbers are unchanged."""
    return word & ~(words.ones(kind) >> 1) if decode(kind, word, ftz=True) == 0 else word


def arithmetic(function):
    """Make the twin of an instruction that rounds the exact ``function(rounding, *numbers)`` once."""

    def twin(opcode, *operands):
        kind = last_type(opcode)
        numbers = [decode(kind, a, ".ftz" in opcode) for a in operands]
        if kind == "f64" and any(map(math.isnan, numbers)):
            return kept_nan(operands if opcode.startswith("div") else operands[1:] + operands[:1])
        return finish(opcode, kind, function(rounding_of(opcode), *numbers))

    return each_half(twin)


def kept_nan(operands):
    """The first NaN among these f64 operands, made quiet.

    PTX ISA 9.7.3 leaves the bits of an f64 NaN open. An H200 keeps sign and payload: those of the
    second operand if that is NaN, then the third, then the first; in ``div`` the first comes first.
    """
    return next(a | 1 << 51 for a in operands if math.isnan(decode("f64", a)))


add = arithmetic(lambda rounding, x, y: total(x, y, rounding))
sub = arithmetic(lambda rounding, x, y: total(x, -y, rounding))
mul = arithmetic(lambda rounding, x, y: product(x, y))
fma = arithmetic(lambda rounding, x, y, z: total(product(x, y), z, rounding))
div = arithmetic(lambda rounding, x, y: quotient(x, y))
rcp = arithmetic(lambda rounding, x: quotient(1.0, x))
sqrt = arithmetic(lambda rounding, x: root(x))


@each_half
def absolute(opcode, a):
    """PTX ISA 9.7.3.9 and 9.7.4.6; a NaN, whose bits the ISA leaves open, as on an H200.

    An H200 gives the canonical one, and in f64 the same NaN, sign too, made quiet.
    """
    kind = last_type(opcode)
    if math.isnan(decode(kind, a)):
        return kept_nan((a,)) if kind == "f64" else NAN[kind]
    word = flushed(kind, a) if ".ftz" in opcode else a
    return word & words.ones(kind) >> 1


@each_half
def negated(opcode, a):
    """PTX ISA 9.7.3.10 and 9.7.4.5; a NaN as in ``absolute``."""
    kind = last_type(opcode)
    if math.isnan(decode(kind, a)):
        return kept_nan((a,)) if kind == "f64" else NAN[kind]
    word = flushed(kind, a) if ".ftz" in opcode else a
    return word ^ 1 << (bits_of(kind) - 1)


@each_half
def extreme(opcode, a, b):
    """PTX ISA 9.7.3.11, 9.7.3.12, 9.7.4.7 and 9.7.4.8, ``min`` and ``max``.

    A number is preferred to a NaN, except with ``.NaN``; +0 is greater than -0. ``.xorsign.abs`` compares the
    absolute values and gives the result the sign of the product.
    """
    kind, top = last_type(opcode), 1 << (bits_of(last_type(opcode)) - 1)
    if ".ftz" in opcode:
        a, b = flushed(kind, a), flushed(kind, b)
    sign = (a ^ b) & top
    if ".abs" in opcode:
        a, b = a & ~top, b & ~top
    numbers = [word for word in (a, b) if not math.isnan(decode(kind, word))]
    if not numbers and kind == "f64":
        return kept_nan((b,))  # of an H200; the PTX ISA leaves it open
    if not numbers or (".NaN" in opcode and len(numbers) < 2):
        return NAN[kind]
    choose = min if opcode.startswith("min") else max
    word = choose(numbers, key=lambda word: (decode(kind, word), -(word >> (bits_of(kind) - 1))))
    return word | sign if ".xorsign" in opcode else word


def testp(opcode, a):
    """PTX ISA 9.7.3.1; a zero counts as normal."""
    kind = last_type(opcode)
    number = decode(kind, a)
    subnormal = number != 0 and decode(kind, a, ftz=True) == 0
    return {
        "finite": math.isfinite(number),
        "infinite": math.isinf(number),
        "number": not math.isnan(number),
        "notanumber": math.isnan(number),
        "normal": math.isfinite(number) and not subnormal,
        "subnormal": subnormal,
    }[opcode.split(".")[1]]


def copysign(opcode, a, b):
    """PTX ISA 9.7.3.2: the sign of a with the magnitude of b."""
    kind = last_type(opcode)
    rest = words.ones(kind) >> 1
    return a & ~rest & words.ones(kind) | b & rest


# ------------------------------------------------------------------------------------------- comparison


def compare(opcode, kind, a, b):
    """PTX ISA 9.7.6: ordered comparisons with a NaN are false, unordered ones (``u``) are true."""
    operator = opcode.split(".")[1]
    if kind not in FORMATS:
        return words.COMPARE[operator](words.value(kind, a), words.value(kind, b))
    x, y = (decode(kind, word, ".ftz" in opcode) for word in (a, b))
    unordered = math.isnan(x) or math.isnan(y)
    if operator in ("num", "nan"):
        return unordered == (operator == "nan")
    if unordered:
        return len(operator) == 3
    return words.COMPARE[operator[:2]](x, y)


def setp(opcode, a, b, c=None):
    """PTX ISA 9.7.6.2: p, and q for the complement; 9.7.7.2: for a pair, p of the low half, q of the high."""
    kind = last_type(opcode)
    tests = compare_each(opcode, a, b)
    if kind not in ("f16", "bf16") and len(tests) == 1:
        tests += [not tests[0]]
    predicates = tuple(words.combine(opcode, t, c) for t in tests)
    return predicates if len(predicates) > 1 else predicates[0]


def compare_each(opcode, a, b):
    """Results of the comparison, for a packed pair of the low and the high half."""
    kind = last_type(opcode)
    if not kind.endswith("x2"):
        return [compare(opcode, kind, a, b)]
    half = kind.removesuffix("x2")
    return [compare(opcode, half, a >> shift & 0xFFFF, b >> shift & 0xFFFF) for shift in (0, 16)]


def truth(kind, t):
    """The value that ``set`` writes for true (1.0 or all ones) or false (0)."""
    return (encode(kind, Fraction(1)) if kind in FORMATS else words.ones(kind)) if t else 0


def set_(opcode, a, b, c=None):
    """PTX ISA 9.7.6.1 and 9.7.7.1; for a packed pair, each half writes its half of the result."""
    to = opcode.split(".")[-2]
    tests = [words.combine(opcode, t, c) for t in compare_each(opcode, a, b)]
    if len(tests) == 1:
        return truth(to, tests[0])
    half = to.removesuffix("x2") if to.endswith("x2") else "u16"
    return truth(half, tests[0]) | truth(half, tests[1]) << 16


def slct(opcode, a, b, c):
    """PTX ISA 9.7.6.4: ``c >= 0 ? a : b``; a NaN in c selects b."""
    *_, to, kind = opcode.split(".")
    number = decode(kind, c, ".ftz" in opcode) if kind == "f32" else words.value(kind, c)
    return (a if number >= 0 else b) & words.ones(to)
