"""Scalar twins of `simwarp.lanes`: the same operations in plain Python integers, one at a time.

Written from the PTX ISA's own pseudocode and tables, bit by bit where the ISA writes it so; the code is
slow and shares nothing with the code that it checks. Arguments and results are bit patterns,
0 … 2**width - 1, also for signed types.

A twin of a per-lane operation handles one element. A twin of a warp-wide one takes lists of 32, one
entry per lane, and returns 32 results; None stands for a result that the ISA leaves undefined.
Entries of inactive lanes are meaningless.
"""

WARP = range(32)


# ---------------------------------------------------------------------------------------- per lane


def and_(a, b):
    """Scalar twin of ``and``, from PTX ISA 9.7.8."""
    return a & b


def or_(a, b):
    """Scalar twin of ``or``, from PTX ISA 9.7.8."""
    return a | b


def xor(a, b):
    """Scalar twin of ``xor``, from PTX ISA 9.7.8."""
    return a ^ b


def not_(a, width=32):
    """Scalar twin of ``not``, from PTX ISA 9.7.8."""
    return sum(1 << i for i in range(width) if not a >> i & 1)


def shl(a, amount, width=32):
    """PTX ISA 9.7.8, ``shl``: amounts greater than the register width N are clamped to N."""
    return a << min(amount, width) & (1 << width) - 1


def shr(a, amount, width=32, signed=False):
    """PTX ISA 9.7.8, ``shr``: signed shifts fill with the sign bit, others with 0; clamped to N."""
    fill = signed and a >> (width - 1) & 1
    n = min(amount, width)
    return sum((a >> (i + n) & 1 if i + n < width else fill) << i for i in range(width))


def popc(a):
    """Scalar twin of ``popc``, from PTX ISA 9.7.1."""
    count = 0
    while a != 0:
        count += a & 1
        a >>= 1
    return count


def brev(a, width=32):
    """PTX ISA 9.7.1, ``brev``: ``d[i] = a[msb - i]``."""
    return sum((a >> (width - 1 - i) & 1) << i for i in range(width))


def clz(a, width=32):
    """Scalar twin of ``clz``, from PTX ISA 9.7.1."""
    count = 0
    while count < width and a & 1 << (width - 1) == 0:
        count += 1
        a <<= 1
    return count


def bfe(a, position, length, width=32, signed=False):
    """Scalar twin of ``bfe``, from PTX ISA 9.7.1."""
    msb, pos, n = width - 1, position & 0xFF, length & 0xFF
    sbit = a >> min(pos + n - 1, msb) & 1 if signed and n != 0 else 0
    return sum((a >> (pos + i) & 1 if i < n and pos + i <= msb else sbit) << i for i in range(width))


def bfi(a, b, position, length, width=32):
    """Scalar twin of ``bfi``, from PTX ISA 9.7.1."""
    msb, pos, n = width - 1, position & 0xFF, length & 0xFF
    f = b
    for i in range(width):
        if i < n and pos + i <= msb:
            f = f & ~(1 << (pos + i)) | (a >> i & 1) << (pos + i)
    return f


PRMT_MODES = {  # the bytes d.b3 d.b2 d.b1 d.b0 for the selectors 0 … 3, as the ISA prints them
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def prmt(a, b, selector, mode="default"):
    """Scalar twin of ``prmt``, from PTX ISA 9.7.9."""
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    if mode != "default":
        return int.from_bytes(bytes(source[int(n)] for n in PRMT_MODES[mode][selector & 3]), "big")
    picked = []
    for i in range(4):
        control = selector >> 4 * i & 0xF
        byte = source[control & 7]
        picked.append(byte if control < 8 else 0xFF if byte & 0x80 else 0)
    return int.from_bytes(bytes(picked), "little")


def lop3(a, b, c, table):
    """PTX ISA 9.7.8, ``lop3``: ``immLut = F(0xF0, 0xCC, 0xAA)``."""
    rows = [(0xF0 >> row & 1, 0xCC >> row & 1, 0xAA >> row & 1) for row in range(8)]
    f = {row: table >> i & 1 for i, row in enumerate(rows)}
    return sum(f[a >> i & 1, b >> i & 1, c >> i & 1] << i for i in range(32))


def shf(low, high, amount, direction="l", mode="wrap"):
    """PTX ISA 9.7.8, ``shf``: a is the low half, b the high one."""
    n = min(amount, 32) if mode == "clamp" else amount & 0x1F
    if direction == "l":
        return (high << n | low >> (32 - n)) & 0xFFFFFFFF
    return (high << (32 - n) | low >> n) & 0xFFFFFFFF


# -------------------------------------------------------------------------------------- warp-wide


def _participants(lane, member_mask, active):
    """The executing lanes in the member mask of ``lane``; None if the mask lacks ``lane`` itself."""
    if not member_mask[lane] >> lane & 1:
        return None
    return [j for j in WARP if member_mask[lane] >> j & 1 and active[j]]


def _for_each_lane(result, member_mask, active):
    teams = [_participants(lane, member_mask, active) for lane in WARP]
    return [
        None if team is None or not active[lane] else result(lane, team) for lane, team in enumerate(teams)
    ]


def mask_word(lanes):
    """The member mask as a word: bit i stands for lane i."""
    return sum(1 << i for i in WARP if lanes[i])


def ballot(predicate, member_mask, active):
    """PTX ISA 9.7.13, ``vote.sync.ballot``: lanes that are inactive or outside the mask contribute 0."""
    return _for_each_lane(lambda _, team: sum(1 << j for j in team if predicate[j]), member_mask, active)


def rotate(predicate, member_mask, active):
    """BSTC section 3.1 (H): ``brev`` of ``ballot``."""
    return [None if word is None else brev(word) for word in ballot(predicate, member_mask, active)]


def vote_any(predicate, member_mask, active):
    """Scalar twin of ``vote.sync.any``, from PTX ISA 9.7.13."""
    return _for_each_lane(lambda _, team: any(predicate[j] for j in team), member_mask, active)


def vote_all(predicate, member_mask, active):
    """Scalar twin of ``vote.sync.all``, from PTX ISA 9.7.13."""
    return _for_each_lane(lambda _, team: all(predicate[j] for j in team), member_mask, active)


def vote_uni(predicate, member_mask, active):
    """PTX ISA 9.7.13, ``vote.sync.uni``: whether the predicate is equal in all lanes."""
    return _for_each_lane(lambda _, team: len({bool(predicate[j]) for j in team}) == 1, member_mask, active)


def shuffle_c(width, mode):
    """CUDA C++ Programming Guide, warp shuffles: operand c, with segment mask and clamp (not for ``up``)."""
    segment = 32 - width
    return segment * 256 if mode == "up" else segment * 256 + 31


def shuffle_source(b, c, mode):
    """PTX ISA 9.7.9, ``shfl.sync``: 32 pairs (source lane j, predicate p), from each lane's b and c."""
    result = []
    for lane in WARP:
        bval, cval, mask = b[lane] & 0x1F, c[lane] & 0x1F, c[lane] >> 8 & 0x1F
        max_lane = lane & mask | cval & ~mask
        min_lane = lane & mask
        if mode == "up":
            j = lane - bval
            p = j >= max_lane
        elif mode == "down":
            j = lane + bval
            p = j <= max_lane
        elif mode == "bfly":
            j = lane ^ bval
            p = j <= max_lane
        else:
            j = min_lane | bval & ~mask
            p = j <= max_lane
        result.append((j if p else lane, p))
    return result


def shfl(value, b, c, mode, member_mask, active):
    """PTX ISA 9.7.9, ``shfl.sync``: the source must be active and in the mask."""
    sources = shuffle_source(b, c, mode)

    def read(lane, team):
        j, p = sources[lane]
        return (value[j], p) if j in team else None

    return _for_each_lane(read, member_mask, active)


def match_any(value, member_mask, active):
    """Scalar twin of ``match.sync.any``, from PTX ISA 9.7.13."""
    return _for_each_lane(
        lambda lane, team: sum(1 << j for j in team if value[j] == value[lane]), member_mask, active
    )


def match_all(value, member_mask, active):
    """PTX ISA 9.7.13, ``match.sync.all``: pairs (mask, p)."""

    def compare(lane, team):
        same = all(value[j] == value[lane] for j in team)
        return (sum(1 << j for j in team), True) if same else (0, False)

    return _for_each_lane(compare, member_mask, active)


def redux(operation, value, member_mask, active, signed=False):
    """Scalar twin of ``redux.sync``, from PTX ISA 9.7.13."""

    def reduce(_, team):
        terms = [value[j] - (1 << 32) if signed and value[j] >> 31 else value[j] for j in team]
        if operation in ("min", "max", "add"):
            return {"min": min, "max": max, "add": sum}[operation](terms) & 0xFFFFFFFF
        bits = [[term >> i & 1 for term in terms] for i in range(32)]
        test = {"and": all, "or": any, "xor": lambda bit: sum(bit) % 2}[operation]
        return sum(1 << i for i in range(32) if test(bits[i]))

    return _for_each_lane(reduce, member_mask, active)
