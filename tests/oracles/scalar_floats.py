"""Scalar twins of `simwarp.floats`: IEEE 754 with exact rationals, one number at a time.

Written from IEEE 754-2019 (sections 3.4, 4.3, 5.4, 6 and 7) and, for e4m3 and e5m2, from the OCP 8-bit
Floating Point Specification; the code is slow and shares nothing with the code that it checks.

Arguments and results are words. Internally a number is a `Fraction`, or one of the strings ``"-0"``,
``"inf"``, ``"-inf"`` and ``"nan"``; every NaN is returned as the string, without its bits. Roundings are
those of the PTX ISA: rn, rna, rz, rm, rp.
"""

from fractions import Fraction
from math import isqrt

NAN, INF, MINUS_INF, MINUS_ZERO = "nan", "inf", "-inf", "-0"

FORMATS = {  # bits of the word, of the exponent, of the fraction, zeros below the fraction
    "f64": (64, 11, 52, 0),
    "f32": (32, 8, 23, 0),
    "f16": (16, 5, 10, 0),
    "bf16": (16, 8, 7, 0),
    "tf32": (32, 8, 10, 13),
    "e5m2": (8, 5, 2, 0),
    "e4m3": (8, 4, 3, 0),
}


def two_to(n):
    return Fraction(2**n) if n >= 0 else Fraction(1, 2**-n)


def largest(format):
    """The largest finite number of a format."""
    if format == "e4m3":
        return Fraction(448)
    _, exponent_bits, fraction_bits, _ = FORMATS[format]
    return (2 - two_to(-fraction_bits)) * two_to(2 ** (exponent_bits - 1) - 1)


def decode(format, word):
    """IEEE 754, section 3.4: the number that a word encodes."""
    bits, exponent_bits, fraction_bits, padding = FORMATS[format]
    sign, rest = divmod(int(word), 2 ** (bits - 1))
    field, fraction = divmod(rest >> padding, 2**fraction_bits)
    last = 2**exponent_bits - 1
    if format == "e4m3":
        if field == last and fraction == 7:
            return NAN
    elif field == last:
        return NAN if fraction else (MINUS_INF if sign else INF)
    if field == 0:
        value = fraction * two_to(2 - 2 ** (exponent_bits - 1) - fraction_bits)
    else:
        value = (2**fraction_bits + fraction) * two_to(field - 2 ** (exponent_bits - 1) + 1 - fraction_bits)
    if value == 0:
        return MINUS_ZERO if sign else Fraction(0)
    return -value if sign else value


def encode(format, number):
    """The word of a number that the format can represent; NaN stays a string."""
    bits, exponent_bits, fraction_bits, padding = FORMATS[format]
    sign, infinity = 2 ** (bits - 1), (2**exponent_bits - 1) << (fraction_bits + padding)
    if number == NAN or (number in (INF, MINUS_INF) and format == "e4m3"):
        return NAN
    if number in (INF, MINUS_INF):
        return infinity + (sign if number == MINUS_INF else 0)
    if number == MINUS_ZERO:
        return sign
    size = abs(number)
    least = 2 - 2 ** (exponent_bits - 1)
    if size < two_to(least):
        magnitude = size / two_to(least - fraction_bits)
    else:
        e = binade(size)
        magnitude = (e - least + 1) * 2**fraction_bits + (size / two_to(e) - 1) * 2**fraction_bits
    assert magnitude.denominator == 1, (format, number)
    return (int(magnitude) << padding) + (sign if number < 0 else 0)


def binade(size):
    """The exponent e with 2^e <= size < 2^(e+1)."""
    e = size.numerator.bit_length() - size.denominator.bit_length()
    return e if two_to(e) <= size else e - 1


def round_whole(value, rounding):
    """Round a rational number to an integer."""
    down = value.numerator // value.denominator
    rest = value - down
    if rounding == "rm" or rest == 0:
        return down
    if rounding == "rp":
        return down + 1
    if rounding == "rz":
        return down if value > 0 else down + 1
    if rest == Fraction(1, 2):
        if rounding == "rna":
            return down + 1 if value > 0 else down
        return down if down % 2 == 0 else down + 1
    return down + 1 if rest > Fraction(1, 2) else down


def round_to(format, value, rounding, saturate=False):
    """IEEE 754, sections 4.3 and 7.4: round a rational number to a format.

    What rounds to zero keeps its sign; of 0 itself it is +.
    """
    _, exponent_bits, fraction_bits, _ = FORMATS[format]
    if value == 0:
        return encode(format, value)
    quantum = two_to(max(binade(abs(value)), 2 - 2 ** (exponent_bits - 1)) - fraction_bits)
    rounded = round_whole(value / quantum, rounding) * quantum
    if rounded == 0:
        return encode(format, Fraction(0) if value > 0 else MINUS_ZERO)
    if abs(rounded) > largest(format):
        stops = saturate or rounding == "rz" or rounding == ("rm" if value > 0 else "rp")
        if stops:
            return encode(format, largest(format) if value > 0 else -largest(format))
        return encode(format, INF if value > 0 else MINUS_INF)
    return encode(format, rounded)


def sign_of(x):
    """-1 or 1, also for zeros and infinities."""
    if isinstance(x, str):
        return -1 if x.startswith("-") else 1
    return -1 if x < 0 else 1


def is_zero(x):
    return x == MINUS_ZERO or x == 0


def is_infinite(x):
    return x in (INF, MINUS_INF)


def signed(special, sign):
    """A zero or an infinity with the given sign."""
    if special == 0:
        return MINUS_ZERO if sign < 0 else Fraction(0)
    return MINUS_INF if sign < 0 else INF


def negated(x):
    if isinstance(x, str):
        return {MINUS_ZERO: Fraction(0), INF: MINUS_INF, MINUS_INF: INF, NAN: NAN}[x]
    return MINUS_ZERO if x == 0 else -x


def exact_product(x, y):
    if NAN in (x, y) or (is_infinite(x) and is_zero(y)) or (is_zero(x) and is_infinite(y)):
        return NAN
    sign = sign_of(x) * sign_of(y)
    if is_infinite(x) or is_infinite(y):
        return signed(INF, sign)
    if is_zero(x) or is_zero(y):
        return signed(0, sign)
    return x * y


def rounded_sum(format, x, y, rounding):
    """Round a sum, with the sign of an exact zero from IEEE 754, section 6.3."""
    if NAN in (x, y) or (is_infinite(x) and is_infinite(y) and x != y):
        return NAN
    if is_infinite(x) or is_infinite(y):
        return encode(format, x if is_infinite(x) else y)
    if is_zero(x) and is_zero(y):
        same = sign_of(x) == sign_of(y)
        return encode(format, x if same else signed(0, -1 if rounding == "rm" else 1))
    total = (0 if is_zero(x) else x) + (0 if is_zero(y) else y)
    if total == 0:
        return encode(format, signed(0, -1 if rounding == "rm" else 1))
    return round_to(format, total, rounding)


def rounded(format, x, rounding, saturate=False):
    if isinstance(x, str):
        if saturate and is_infinite(x):
            return encode(format, sign_of(x) * largest(format))
        return encode(format, x)
    return round_to(format, x, rounding, saturate)


# ---------------------------------------------------------------------------------- the operations


def add(format, a, b, rounding="rn"):
    return rounded_sum(format, decode(format, a), decode(format, b), rounding)


def sub(format, a, b, rounding="rn"):
    return rounded_sum(format, decode(format, a), negated(decode(format, b)), rounding)


def mul(format, a, b, rounding="rn"):
    return rounded(format, exact_product(decode(format, a), decode(format, b)), rounding)


def fma(format, a, b, c, rounding="rn"):
    product = exact_product(decode(format, a), decode(format, b))
    return rounded_sum(format, product, decode(format, c), rounding)


def div(format, a, b, rounding="rn"):
    return rounded(format, exact_quotient(decode(format, a), decode(format, b)), rounding)


def exact_quotient(x, y):
    if NAN in (x, y) or (is_infinite(x) and is_infinite(y)) or (is_zero(x) and is_zero(y)):
        return NAN
    sign = sign_of(x) * sign_of(y)
    if is_infinite(x) or is_zero(y):
        return signed(INF, sign)
    if is_infinite(y) or is_zero(x):
        return signed(0, sign)
    return x / y


def rcp(format, a, rounding="rn"):
    return rounded(format, exact_quotient(Fraction(1), decode(format, a)), rounding)


def sqrt(format, a, rounding="rn"):
    x = decode(format, a)
    if x == NAN or (sign_of(x) < 0 and not is_zero(x)):
        return NAN
    if is_zero(x) or is_infinite(x):
        return encode(format, x)
    # No number or tie of any format has bits below 2^-800, so one sticky bit there suffices.
    scaled = x * two_to(1600)
    root = isqrt(int(scaled))
    exact = Fraction(root * root) == scaled
    return round_to(format, (root if exact else root + Fraction(1, 2)) * two_to(-800), rounding)


def flush(format, a):
    x = decode(format, a)
    if not isinstance(x, str) and abs(x) < two_to(2 - 2 ** (FORMATS[format][1] - 1)):
        return encode(format, signed(0, sign_of(x)))
    return encode(format, x)


def saturate(format, a):
    x = decode(format, a)
    if x == NAN or is_zero(x) or sign_of(x) < 0:
        return encode(format, Fraction(0))
    return encode(format, Fraction(1) if x == INF or x > 1 else x)


def round_integral(format, a, rounding):
    x = decode(format, a)
    if isinstance(x, str):
        return encode(format, x)
    whole = round_whole(x, rounding)
    return encode(format, signed(0, sign_of(x)) if whole == 0 else Fraction(whole))


def from_integer(i, format, rounding="rn"):
    return round_to(format, Fraction(int(i)), rounding)


def to_integer(format, a, least, greatest, rounding):
    x = decode(format, a)
    if x == NAN:
        return 0
    if is_infinite(x):
        return greatest if x == INF else least
    whole = 0 if is_zero(x) else round_whole(x, rounding)
    return min(max(whole, least), greatest)


def convert(source, a, target, rounding="rn", saturate=False):
    """Convert between formats; also the twin of `widen` and `narrow`."""
    return rounded(target, decode(source, a), rounding, saturate)
