"""Operations on the lanes of a warp, as NumPy arrays, including those of BSTC's soft tensor core.

*Per lane* (BSTC section 3.1, A to C and F): ``and_``, ``popc``, ``brev``, ``shl``, ``prmt`` … compute
each element by itself; shapes broadcast. Words are unsigned arrays (uint32, uint64); signed types are
passed only where the sign matters (``shr``, ``bfe``, ``redux``).

*Across lanes* (D, E, G, H): ``ballot``, ``vote_any``, ``shfl``, ``match_any``, ``redux`` … The last axis of
an array is the 32 lanes of a warp; leading axes are more warps. The common parameters are

``member_mask``
    the member mask of the ``.sync`` operation: a number (-1 is all lanes), or words (…, 1) or (…, 32);
``active``
    the lanes that execute the operation, bool (…, 32); None is all 32.

They return the value and ``defined``, the lanes whose result the PTX ISA defines. ``defined`` does not depend
on whether the lane itself is active: an inactive lane receives nothing. A value that is the same in all
lanes of a warp may have shape (…, 1); results broadcast to (…, 32). Undefined lanes do not raise: the
caller does, with the kernel and the line.

Source: PTX ISA 9.0, section 9.7 (the instruction of the same name); BSTC (SC'19), section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

WARP_SIZE = 32
ALL_LANES = 0xFFFFFFFF
LANE = np.arange(WARP_SIZE, dtype=np.uint32)
"""The lane numbers 0 … 31."""
LANE_BIT = np.left_shift(np.uint32(1), LANE)
"""Each lane's own bit in a mask, ``1 << lane``."""

Words: TypeAlias = npt.NDArray[Any]
Lanes: TypeAlias = npt.NDArray[np.bool_]
ShuffleMode: TypeAlias = Literal["idx", "up", "down", "bfly"]
PermuteMode: TypeAlias = Literal["default", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]
Reduction: TypeAlias = Literal["add", "min", "max", "and", "or", "xor"]


class Voted(NamedTuple):
    """The result of a warp-wide operation: the value, and the lanes where it is defined."""

    value: Any
    defined: Any


class Shuffled(NamedTuple):
    """The result of ``shfl``: the value, the PTX predicate, and the lanes where both are defined."""

    value: Any
    in_range: Any
    defined: Any


class Matched(NamedTuple):
    """The result of ``match_all``: the mask, the PTX predicate, and the lanes where both are defined."""

    value: Any
    all_equal: Any
    defined: Any


# --------------------------------------------------------------------------------------------------
# Per lane
# --------------------------------------------------------------------------------------------------


def and_(a: Words, b: Words) -> Words:
    """Bitwise and (op A).

    Examples
    --------
    >>> int(and_(np.uint32(0b1100), np.uint32(0b1010)))
    8
    """
    return np.bitwise_and(a, b)


def or_(a: Words, b: Words) -> Words:
    """Bitwise or (op A).

    Examples
    --------
    >>> int(or_(np.uint32(0b1100), np.uint32(0b1010)))
    14
    """
    return np.bitwise_or(a, b)


def xor(a: Words, b: Words) -> Words:
    """Bitwise exclusive or (op A): 1 where the two signs of a ±1 product differ.

    Examples
    --------
    >>> int(xor(np.uint32(0b1100), np.uint32(0b1010)))
    6
    """
    return np.bitwise_xor(a, b)


def not_(a: Words) -> Words:
    """Bitwise complement.

    Examples
    --------
    >>> hex(not_(np.uint32(0)))
    '0xffffffff'
    """
    return np.invert(a)


def shl(a: Words, amount: Words) -> Words:
    """Shift left (op F); an ``amount`` of at least the width gives 0 (PTX ISA 9.7.8, ``shl``).

    Parameters
    ----------
    a : uint16, uint32 or uint64
    amount : uint32
        Any value; C would leave some undefined.

    Examples
    --------
    >>> [int(shl(np.uint32(3), np.uint32(n))) for n in (0, 31, 32, 1000)]
    [3, 2147483648, 0, 0]
    """
    a = _array(a)
    width = a.dtype.itemsize * 8
    if np.ndim(amount) == 0 and int(amount) < width:
        return np.left_shift(a, a.dtype.type(amount))
    shifted = np.left_shift(a, np.minimum(amount, width - 1).astype(a.dtype))
    return _choose(np.less(amount, width), shifted, a.dtype.type(0))


def shr(a: Words, amount: Words) -> Words:
    """Shift right (op F): zeros enter an unsigned ``a``, copies of the sign a signed one.

    An ``amount`` of the width or more gives 0, or all copies of the sign (PTX ISA 9.7.8, ``shr``).

    Parameters
    ----------
    a : unsigned or signed 16, 32 or 64 bits
    amount : uint32

    Examples
    --------
    >>> int(shr(np.uint32(0x80000000), np.uint32(40))), int(shr(np.int32(-8), np.uint32(40)))
    (0, -1)
    """
    a = _array(a)
    width = a.dtype.itemsize * 8
    if np.ndim(amount) == 0 and int(amount) < width:
        return np.right_shift(a, a.dtype.type(amount))
    shifted = np.right_shift(a, np.minimum(amount, width - 1).astype(a.dtype))
    if a.dtype.kind == "i":
        return shifted  # a shift by width - 1 leaves only copies of the sign
    return _choose(np.less(amount, width), shifted, a.dtype.type(0))


def popc(a: Words) -> Words:
    """Count the bits that are 1 (op B) → uint32, also for 64-bit words.

    Examples
    --------
    >>> int(popc(np.uint32(0xF0F0)))
    8
    """
    return np.bitwise_count(a).astype(np.uint32)


def brev(a: Words) -> Words:
    """Reverse the order of the bits of a 32- or 64-bit word (op C).

    Examples
    --------
    >>> hex(brev(np.uint32(1))), hex(brev(np.uint64(1)))
    ('0x80000000', '0x8000000000000000')
    """
    a = _array(a)
    word = a.dtype.type
    # Swap neighbouring bits, pairs and nibbles inside each byte, then the bytes.
    for step, mask in ((1, 0x55), (2, 0x33), (4, 0x0F)):
        wide = word(int.from_bytes(bytes([mask]) * a.dtype.itemsize, "little"))
        distance = word(step)
        a = ((a >> distance) & wide) | ((a & wide) << distance)
    return a.byteswap()


def clz(a: Words) -> Words:
    """Count the leading zeros of a 32- or 64-bit word → uint32; for 0 the width.

    Examples
    --------
    >>> int(clz(np.uint32(1))), int(clz(np.uint64(1))), int(clz(np.uint32(0)))
    (31, 63, 32)
    """
    a = _array(a)
    width = a.dtype.itemsize * 8
    smeared = a
    distance = 1
    while distance < width:
        smeared = smeared | (smeared >> a.dtype.type(distance))
        distance *= 2
    return np.uint32(width) - popc(smeared)


def bfe(a: Words, position: Words, length: Words) -> Words:
    """Extract ``length`` bits of ``a`` from bit ``position`` on (PTX ISA 9.7.1, ``bfe``).

    Both amounts are taken modulo 256. The field of an unsigned ``a`` is extended with 0, that of a signed one
    with its top bit, or with the sign of ``a`` if the field reaches past the top.

    Parameters
    ----------
    a : uint32, uint64, int32 or int64
    position, length : uint32

    Examples
    --------
    >>> hex(bfe(np.uint32(0xABCD), np.uint32(4), np.uint32(8)))
    '0xbc'
    >>> int(bfe(np.int32(0xF0), np.uint32(4), np.uint32(4)))
    -1
    """
    a = _array(a)
    width = a.dtype.itemsize * 8
    position, length = np.bitwise_and(position, 0xFF), np.bitwise_and(length, 0xFF)
    # Shift out the bits above the field, then those below it.
    above = width - np.minimum(position + length, width)
    field = shr(shl(a, above), above + position)
    return field if a.dtype.kind == "u" else _choose(length != 0, field, a.dtype.type(0))


def bfi(a: Words, b: Words, position: Words, length: Words) -> Words:
    """Insert the low ``length`` bits of ``a`` into ``b`` at bit ``position`` (PTX ISA 9.7.1, ``bfi``).

    Both amounts are taken modulo 256; bits past the top of ``b`` are dropped.

    Parameters
    ----------
    a, b : uint32 or uint64
    position, length : uint32

    Examples
    --------
    >>> hex(bfi(np.uint32(0xF), np.uint32(0), np.uint32(8), np.uint32(4)))
    '0xf00'
    """
    a, b = _array(a), _array(b)
    if np.ndim(position) == 0 and np.ndim(length) == 0:
        by, field, others = _field(int(position) & 0xFF, int(length) & 0xFF, b.dtype)
        return or_(and_(b, others), and_(shl(a, by), field))
    position, length = np.bitwise_and(position, 0xFF), np.bitwise_and(length, 0xFF)
    hole = shl(_low_ones(length, b.dtype), position)
    return or_(and_(b, not_(hole)), and_(shl(a, position), hole))


def prmt(a: Words, b: Words, selector: Words, mode: PermuteMode = "default") -> Words:
    """Pick four bytes out of the eight of ``{b, a}`` (PTX ISA 9.7.9, ``prmt``).

    In the default mode each nibble of ``selector`` picks one byte of the result: the low three bits are
    the byte's number (0 is the lowest byte of ``a``); with the top bit, the result is that byte's sign
    eight times. The other modes read only the two low bits of ``selector``.

    Parameters
    ----------
    a, b, selector : uint32
    mode : "default", "f4e", "b4e", "rc8", "ecl", "ecr" or "rc16"

    Examples
    --------
    >>> hex(prmt(np.uint32(0x33221100), np.uint32(0x77665544), np.uint32(0x7531)))
    '0x77553311'
    """
    both: Words = _array(a).astype(np.uint64) | (_array(b).astype(np.uint64) << np.uint64(32))
    selector = _array(selector).astype(np.uint64)
    result: Words = np.zeros((), np.uint64)
    for i in range(4):
        if mode == "default":
            pick = (selector >> np.uint64(4 * i)) & np.uint64(0xF)
        else:
            pick = _PERMUTE[mode][selector & np.uint64(3), i]
        byte = (both >> (pick & np.uint64(7)) * np.uint64(8)) & np.uint64(0xFF)
        sign = pick >= 8
        if sign.any():
            byte = np.where(sign, (byte >> np.uint64(7)) * np.uint64(0xFF), byte)
        result = result | byte << np.uint64(8 * i)
    return result.astype(np.uint32)


_PERMUTE: dict[PermuteMode, npt.NDArray[np.uint64]] = {
    "f4e": np.array([[s + i for i in range(4)] for s in range(4)], np.uint64),
    "b4e": np.array([[(s - i) % 8 for i in range(4)] for s in range(4)], np.uint64),
    "rc8": np.array([[s] * 4 for s in range(4)], np.uint64),
    "ecl": np.array([[max(s, i) for i in range(4)] for s in range(4)], np.uint64),
    "ecr": np.array([[min(s, i) for i in range(4)] for s in range(4)], np.uint64),
    "rc16": np.array([[2 * (s % 2) + i % 2 for i in range(4)] for s in range(4)], np.uint64),
}


def lop3(a: Words, b: Words, c: Words, table: int) -> Words:
    """Compute any bitwise function of three words (PTX ISA 9.7.8, ``lop3``).

    Parameters
    ----------
    a, b, c : uint32
    table : int
        The function's truth table, equal to the function of 0xF0, 0xCC and 0xAA: bit ``4a + 2b + c`` is its
        value for bits a, b and c.

    Examples
    --------
    >>> a, b, c = (np.uint32(w) for w in (0b11110000, 0b11001100, 0b10101010))
    >>> bin(lop3(a, b, c, 0xF0 ^ 0xCC ^ 0xAA))
    '0b10010110'
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    result = np.zeros(a.shape, a.dtype)
    for entry in range(8):
        if table >> entry & 1:
            term = a if entry & 4 else ~a
            term = term & (b if entry & 2 else ~b)
            result = result | (term & (c if entry & 1 else ~c))
    return result


def shf(
    low: Words,
    high: Words,
    amount: Words,
    direction: Literal["l", "r"] = "l",
    mode: Literal["wrap", "clamp"] = "wrap",
) -> Words:
    """Shift the 64 bits ``{high, low}`` and return 32 of them, a funnel shift (PTX ISA 9.7.8, ``shf``).

    ``l`` returns the upper 32 bits after a shift left, ``r`` the lower 32 after a shift right. The
    amount is taken modulo 32 (``wrap``) or limited to 32 (``clamp``).

    Parameters
    ----------
    low, high, amount : uint32
    direction : "l" or "r"
    mode : "wrap" or "clamp"

    Examples
    --------
    >>> hex(shf(np.uint32(0x80000000), np.uint32(1), np.uint32(1), "l"))
    '0x3'
    """
    both = _array(low).astype(np.uint64) | (_array(high).astype(np.uint64) << np.uint64(32))
    n = np.bitwise_and(amount, 31) if mode == "wrap" else np.minimum(amount, 32)
    n = _array(n).astype(np.uint64)
    shifted = (both << n) >> np.uint64(32) if direction == "l" else both >> n
    return _array(shifted & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _array(a: Any) -> Any:
    """An operand as an array, unless it has a dtype: a NumPy scalar, or a value of `simwarp.compiled`."""
    return a if hasattr(a, "dtype") else np.asarray(a)


def _low_ones(length: Words, dtype: npt.DTypeLike) -> Words:
    """A word whose low ``length`` bits are 1; all bits if ``length`` is at least the width."""
    zero: Any = np.dtype(dtype).type(0)
    return not_(shl(not_(zero), length))


@lru_cache(maxsize=1024)
def _field(position: int, length: int, dtype: np.dtype[Any]) -> tuple[Any, Any, Any]:
    """A bit field's position, the mask of the field, and the mask of all other bits."""
    by: Any = np.uint32(position)
    field: Any = shl(_low_ones(np.asarray(length, np.uint32), dtype), by)
    return by, field, not_(field)


def _choose(condition: Lanes, yes: Words, no: Any) -> Words:
    """Return ``np.where(condition, yes, no)``, or just ``yes`` if the condition is true everywhere."""
    if np.all(condition):
        return yes
    return np.where(condition, yes, no)


# --------------------------------------------------------------------------------------------------
# Across lanes
# --------------------------------------------------------------------------------------------------


def ballot(predicate: Lanes, member_mask: Any = ALL_LANES, active: Lanes | None = None) -> Voted:
    """Collect the lanes' predicates in a word (op G): bit i of the word is lane i's predicate.

    Lanes that are inactive or outside the mask contribute 0. Defined in the lanes of the mask.

    Parameters
    ----------
    predicate : bool, (…, 32) or one for all lanes
        Integers other than 0 are true.
    member_mask : uint32, a number or (…, 1) or (…, 32)
    active : bool (…, 32), optional
        The lanes that execute it; default: all.

    Returns
    -------
    Voted
        ``value`` uint32 of shape (…, 1) or (…, 32): the word that every lane receives.

    Examples
    --------
    >>> hex(ballot(LANE < 4).value[0])
    '0xf'
    """
    members = _mask(member_mask)
    votes = _each_lane(_true(predicate))
    if active is not None:
        votes = votes & active
    return Voted(and_(mask_word(votes), members), _is_member(members))


def rotate(predicate: Lanes, member_mask: Any = ALL_LANES, active: Lanes | None = None) -> Voted:
    """Reverse the bits of a `ballot` (op H): lane 0's predicate becomes the most significant bit.

    Parameters
    ----------
    predicate, member_mask, active
        As of `ballot`.

    Examples
    --------
    >>> hex(rotate(LANE < 4).value[0])
    '0xf0000000'
    """
    word, defined = ballot(predicate, member_mask, active)
    return Voted(brev(word), defined)


def vote_any(predicate: Lanes, member_mask: Any = ALL_LANES, active: Lanes | None = None) -> Voted:
    """True if the predicate is true in any active lane of the mask (op D).

    Parameters
    ----------
    predicate, member_mask, active
        As of `ballot`.

    Examples
    --------
    >>> bool(vote_any(LANE == 7).value[0])
    True
    """
    word, defined = ballot(predicate, member_mask, active)
    return Voted(word != 0, defined)


def vote_all(predicate: Lanes, member_mask: Any = ALL_LANES, active: Lanes | None = None) -> Voted:
    """True if the predicate is true in every active lane of the mask (op D).

    Parameters
    ----------
    predicate, member_mask, active
        As of `ballot`.

    Examples
    --------
    >>> bool(vote_all(LANE == 7).value[0])
    False
    """
    word, defined = ballot(~_true(predicate), member_mask, active)
    return Voted(word == 0, defined)


def vote_uni(predicate: Lanes, member_mask: Any = ALL_LANES, active: Lanes | None = None) -> Voted:
    """True if the predicate is the same in all active lanes of the mask.

    Parameters
    ----------
    predicate, member_mask, active
        As of `ballot`.

    Examples
    --------
    >>> bool(vote_uni(LANE < 0).value[0])
    True
    """
    true, defined = vote_all(predicate, member_mask, active)
    false, _ = vote_all(~_true(predicate), member_mask, active)
    return Voted(true | false, defined)


def shfl(
    value: Words,
    b: Any,
    c: Any = 0x1F,
    mode: ShuffleMode = "idx",
    member_mask: Any = ALL_LANES,
    active: Lanes | None = None,
) -> Shuffled:
    """Read another lane's register (op E; PTX ISA 9.7.9, ``shfl.sync``).

    Parameters
    ----------
    value : array (…, 32)
        The register of each lane.
    b : uint32, a number or one per lane
        The source lane (``idx``), the distance (``up``, ``down``) or the lane mask (``bfly``).
    c : uint32, a number or one per lane
        Bits 0–4 are the clamp, bits 8–12 the segment mask; `shuffle_c` computes it from CUDA's ``width``.

    Returns
    -------
    Shuffled
        A lane whose source is out of range keeps its own value, and its ``in_range`` is False. Undefined
        where the source lane is inactive, or the source or the lane itself is not in the mask.

    Examples
    --------
    >>> shfl(LANE, 1, shuffle_c(32, "up"), "up").value[:4].tolist()
    [0, 0, 1, 2]
    """
    value, members = _each_lane(value), _mask(member_mask)
    if mode == "idx" and np.ndim(b) == 0 and np.ndim(c) == 0 and int(c) == 0x1F:
        # A broadcast of one lane, the inner loop of BMM-32: no index arithmetic, no gather.
        lane = int(b) & 31
        source, in_range = slice(lane, lane + 1), _EVERY_LANE
        result = value[..., source]
    else:
        source, in_range = shuffle_source(b, c, mode)
        result = _gather(value, source)
    defined = _is_member(members)
    if defined is not _EVERY_LANE:
        defined = defined & (and_(members, LANE_BIT[source]) != 0)
    if active is not None:
        defined = defined & _gather(active, source)
    return Shuffled(result, in_range, defined)


def shuffle_source(b: Any, c: Any, mode: ShuffleMode) -> tuple[Words, Lanes]:
    """The source lane of each lane in ``shfl`` (its own if out of range), and a mask of lanes in range.

    Parameters
    ----------
    b, c : uint32, one or per lane
    mode : "idx", "up", "down" or "bfly"

    Examples
    --------
    >>> source, in_range = shuffle_source(16, 0x1F, "down")
    >>> source[14:18].tolist(), in_range[14:18].tolist()
    ([30, 31, 16, 17], [True, True, False, False])
    """
    b, c = np.asarray(b).astype(np.int64) & 0x1F, np.asarray(c).astype(np.int64)
    clamp, segment = c & 0x1F, (c >> 8) & 0x1F
    lowest = _LANE & segment
    highest = lowest | (clamp & ~segment)
    if mode == "up":
        source = _LANE - b
        in_range = source >= highest
    else:
        if mode == "down":
            source = _LANE + b
        elif mode == "bfly":
            source = _LANE ^ b
        else:
            source = lowest | (b & ~segment)
        in_range = source <= highest
    return np.where(in_range, source, _LANE).astype(np.uint32), in_range


_LANE = LANE.astype(np.int64)  # signed, since ``up`` subtracts


def shuffle_c(width: int, mode: ShuffleMode) -> int:
    """The operand c of PTX's ``shfl`` for the ``width`` of ``__shfl_*_sync``, a power of two up to 32.

    Examples
    --------
    >>> hex(shuffle_c(8, "down")), hex(shuffle_c(8, "up"))
    ('0x181f', '0x1800')
    """
    return ((WARP_SIZE - width) << 8) | (0 if mode == "up" else 0x1F)


def match_any(value: Words, member_mask: Any = ALL_LANES, active: Lanes | None = None) -> Voted:
    """The mask of the active members that have the same bits as each lane (``match.any.sync``).

    Parameters
    ----------
    value : words (…, 32)
        For floats pass their bits, ``value.view(np.uint32)``: as numbers -0.0 equals 0.0, and a NaN
        differs from itself.

    Examples
    --------
    >>> hex(match_any(LANE % 2).value[0])
    '0x55555555'
    """
    value, members = _each_lane(value), _mask(member_mask)
    same = mask_word(value[..., :, None] == value[..., None, :])[..., 0]
    if active is not None:
        same = and_(same, mask_word(active))
    return Voted(and_(same, members), _is_member(members))


def match_all(value: Words, member_mask: Any = ALL_LANES, active: Lanes | None = None) -> Matched:
    """The mask of the members if all of them have the same bits, else 0 (``match.all.sync``).

    Parameters
    ----------
    value : words (…, 32)
        See `match_any`.

    Examples
    --------
    >>> hex(match_all(LANE * 0).value[0])
    '0xffffffff'
    """
    members = _mask(member_mask)
    least, defined = redux("min", value, members, active)
    greatest, _ = redux("max", value, members, active)
    all_equal = least == greatest
    everyone = members if active is None else and_(mask_word(active), members)
    return Matched(np.where(all_equal, everyone, np.uint32(0)), all_equal, defined)


def redux(
    operation: Reduction, value: Words, member_mask: Any = ALL_LANES, active: Lanes | None = None
) -> Voted:
    """Reduce over the active lanes of the mask (``redux.sync``); ``add`` wraps at 32 bits.

    Parameters
    ----------
    operation : "add", "min", "max", "and", "or" or "xor"
    value : uint32 or int32 (…, 32)

    Examples
    --------
    >>> int(redux("add", LANE).value[0])
    496
    """
    value, mask = _each_lane(value), _mask(member_mask)
    ufunc, neutral = _REDUCTIONS[operation]
    # Every lane reduces over its own mask, (…, lane, member); if all masks are equal, one lane is enough.
    uniform = mask.ndim > 0 and bool((mask == mask[..., :1]).all())
    members = and_((mask[..., :1] if uniform else mask)[..., None], LANE_BIT) != 0
    if active is not None:
        members = members & active[..., None, :]
    terms = _choose(members, value[..., None, :], neutral(value.dtype))
    return Voted(ufunc.reduce(terms, axis=-1, dtype=value.dtype), _is_member(mask))


_REDUCTIONS: dict[Reduction, tuple[np.ufunc, Callable[[np.dtype[Any]], Any]]] = {
    "add": (np.add, lambda dtype: dtype.type(0)),
    "min": (np.minimum, lambda dtype: np.iinfo(dtype).max),
    "max": (np.maximum, lambda dtype: np.iinfo(dtype).min),
    "and": (np.bitwise_and, lambda dtype: np.invert(dtype.type(0))),
    "or": (np.bitwise_or, lambda dtype: dtype.type(0)),
    "xor": (np.bitwise_xor, lambda dtype: dtype.type(0)),
}


def mask_word(lanes: Lanes) -> Words:
    """Pack lanes, bool (…, 32), into a mask, uint32 (…, 1): bit i is lane i.

    Examples
    --------
    >>> hex(mask_word(LANE >= 28)[0])
    '0xf0000000'
    """
    packed = np.packbits(np.ascontiguousarray(lanes), axis=-1, bitorder="little")
    return packed.view("<u4").astype(np.uint32, copy=False)


_EVERY_LANE = np.broadcast_to(True, (WARP_SIZE,))


def _mask(member_mask: Any) -> Words:
    """Convert a member mask to uint32, modulo 2**32: PTX may write all lanes as -1."""
    return np.asarray(member_mask).astype(np.uint32, copy=False)


def _is_member(mask: Words) -> Lanes:
    """A mask of the lanes that are in their own member mask."""
    if mask.ndim == 0 and int(mask) == ALL_LANES:
        return _EVERY_LANE
    return and_(mask, LANE_BIT) != 0


def _true(predicate: Any) -> Lanes:
    """Convert a predicate to bool: integers other than 0 are true."""
    return np.asarray(predicate, np.bool_)


def _each_lane(value: Any) -> Words:
    """Broadcast a value to one element per lane, (…, 32)."""
    value = np.asarray(value)
    if value.shape[-1:] == (WARP_SIZE,):
        return value
    return np.broadcast_to(value, (*value.shape[:-1], WARP_SIZE))


def _gather(array: Words, source: Any) -> Words:
    """For each lane, the element that its source lane holds."""
    if isinstance(source, slice):
        return array[..., source]
    if source.ndim == 1:  # ``source`` holds one lane number for each lane, the same in every warp
        return array.take(source, axis=-1, mode="wrap")
    shape = np.broadcast_shapes(array.shape, source.shape)
    return np.take_along_axis(np.broadcast_to(array, shape), np.broadcast_to(source, shape), axis=-1)
