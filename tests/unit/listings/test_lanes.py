"""`simwarp.lanes`: corner cases that simulators often get wrong, and the operations of BSTC.

Expected values are written out by hand; `tests/property/test_lanes_properties.py` compares with the scalar
twins in `tests/oracles/scalar_lanes.py`.
"""

import inspect
import itertools

import numpy as np
import pytest

from oracles import scalar_lanes as twins
from simwarp import lanes
from simwarp.lanes import ALL_LANES, LANE, LANE_BIT, WARP_SIZE
from support.offenders import every_case

MODES = ("idx", "up", "down", "bfly")
ODD = LANE % 2 == 1
NONE = LANE >= 32


def u32(*values):
    return np.array(values, np.uint32)


def u64(*values):
    return np.array(values, np.uint64)


def hexes(words):
    return [hex(word) for word in np.ravel(words).tolist()]


def every_lane(field):
    return np.broadcast_to(field, (32,)).tolist()


def test_every_public_function_has_a_twin():
    public = [
        name
        for name, function in inspect.getmembers(lanes, inspect.isfunction)
        if function.__module__ == lanes.__name__ and not name.startswith("_")
    ]
    assert len(public) >= 26
    assert [name for name in public if not callable(getattr(twins, name, None))] == []


def test_constants_have_their_values_and_types():
    assert WARP_SIZE == 32
    assert ALL_LANES == 0xFFFFFFFF
    assert LANE.tolist() == list(range(32))
    assert LANE_BIT.tolist() == [2**i for i in range(32)]
    assert LANE.dtype == LANE_BIT.dtype == np.uint32


def test_mask_word_is_a_bit_for_each_lane():
    got = lanes.mask_word(np.stack([NONE, ODD, ~NONE, LANE == 31]))
    assert (got.shape, got.dtype) == ((4, 1), np.uint32)
    assert hexes(got) == ["0x0", "0xaaaaaaaa", "0xffffffff", "0x80000000"]


# ------------------------------------------------------------------------------------ logic, shift


@pytest.mark.parametrize(
    ("a", "result"), [(0, 0xFFFF), (0xFFFF, 0), (0x00FF, 0xFF00), (0x8000, 0x7FFF), (0x5555, 0xAAAA)]
)
def test_not_keeps_the_width(a, result):
    got = lanes.not_(np.array([a], np.uint16))
    assert (got.dtype, got.tolist()) == (np.uint16, [result])
    assert lanes.not_(u64(0)).tolist() == [2**64 - 1]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shift_amounts_clamp_at_the_width(width):
    """Unlike in C and NumPy, and unlike ``shf.wrap``."""
    word, signed = np.dtype(f"u{width // 8}"), np.dtype(f"i{width // 8}")
    ones = np.array([2**width - 1], word)
    amounts = (width, width + 1, 2 * width, 255, 256, 257, 2**31, 2**32 - 1)
    for amount in map(np.uint32, amounts):
        assert lanes.shl(ones, amount).tolist() == [0]
        assert lanes.shr(ones, amount).tolist() == [0]
        assert lanes.shr(ones.view(signed), amount).tolist() == [-1]
        assert lanes.shr(np.array([2 ** (width - 1) - 1], signed), amount).tolist() == [0]
        assert lanes.shr(np.array([-(2 ** (width - 1))], signed), amount).tolist() == [-1]
    last = np.uint32(width - 1)
    assert lanes.shl(ones, last).tolist() == [2 ** (width - 1)]
    assert lanes.shr(ones, last).tolist() == [1]
    assert lanes.shr(np.array([-(2 ** (width - 1))], signed), last).tolist() == [-1]
    for shift in (lanes.shl, lanes.shr):
        assert shift(ones, np.uint32(0)).tolist() == ones.tolist()
        assert shift(ones, np.uint32(300)).dtype == word


def test_shift_amounts_may_differ_between_lanes():
    got = lanes.shl(np.uint32(1), u32(0, 31, 32, 33, 5))
    assert hexes(got) == ["0x1", "0x80000000", "0x0", "0x0", "0x20"]
    assert lanes.shr(np.int32(-16), u32(2, 31, 40)).tolist() == [-4, -1, -1]


LOW, HIGH = 0x89ABCDEF, 0x01234567


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shift_by_0_keeps_the_word(mode):
    """``32 - n`` must not become a shift by 32."""
    assert lanes.shf(u32(LOW), u32(HIGH), u32(0), "l", mode).tolist() == [HIGH]
    assert lanes.shf(u32(LOW), u32(HIGH), u32(0), "r", mode).tolist() == [LOW]


@pytest.mark.parametrize(
    ("direction", "mode", "amount", "result"),
    [
        ("l", "wrap", 8, 0x23456789),
        ("r", "wrap", 8, 0x6789ABCD),
        ("l", "wrap", 32, HIGH),
        ("r", "wrap", 32, LOW),
        ("l", "wrap", 40, 0x23456789),
        ("l", "clamp", 32, LOW),
        ("r", "clamp", 32, HIGH),
        ("l", "clamp", 33, LOW),
        ("r", "clamp", 40, HIGH),
        ("l", "clamp", 2**32 - 1, LOW),
        ("r", "clamp", 2**32 - 1, HIGH),
        ("l", "wrap", 2**32 - 1, 0xC4D5E6F7),
        ("r", "wrap", 2**32 - 1, 0x02468ACF),
    ],
)
def test_funnel_shift_wraps_or_clamps(direction, mode, amount, result):
    assert hexes(lanes.shf(u32(LOW), u32(HIGH), u32(amount), direction, mode)) == [hex(result)]


def test_lop3_computes_the_examples_of_the_isa():
    """The lookup table is the function applied to 0xF0, 0xCC and 0xAA."""
    a, b, c = u32(0xDEADBEEF), u32(0x0F0F1234), u32(0x33AAFF00)
    for table, expected in (
        (0x80, a & b & c),
        (0xFE, a | b | c),
        (0x40, a & b & ~c),
        (0x1A, (a & b | c) ^ a),
        (0x96, a ^ b ^ c),
        (0xE8, (a & b) | (b & c) | (a & c)),
        (0xF0, a),
        (0xCC, b),
        (0xAA, c),
        (0x00, a & ~a),
        (0xFF, a | ~a),
    ):
        got = lanes.lop3(a, b, c, table)
        assert (hexes(got), got.dtype) == (hexes(expected), np.uint32)


def test_lop3_of_the_truth_table_inputs_returns_the_table():
    inputs = np.uint32(0xF0), np.uint32(0xCC), np.uint32(0xAA)
    found = {table: int(lanes.lop3(*inputs, table)) & 0xFF for table in range(256)}
    assert {table: got for table, got in found.items() if got != table} == {}


# ------------------------------------------------------------------------------------ bits, fields


def test_popc_and_clz_return_32_bits_for_every_width():
    for count in (lanes.popc, lanes.clz):
        assert count(u32(1)).dtype == count(u64(1)).dtype == np.uint32
    assert lanes.popc(u32(0, 1, 0xFFFFFFFF, 0x80000001)).tolist() == [0, 1, 32, 2]
    assert lanes.popc(u64(0, 2**64 - 1, 1 << 63, 0xFF << 28)).tolist() == [0, 64, 1, 8]


def test_clz_of_zero_is_the_width():
    assert lanes.clz(u32(0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)).tolist() == [32, 31, 30, 1, 0, 0]
    assert lanes.clz(u64(0, 1, 1 << 31, 1 << 32, 1 << 63)).tolist() == [64, 63, 32, 31, 0]


def test_brev_reverses_32_and_64_bits():
    assert hexes(lanes.brev(u32(0, 1, 0xF, 0x12345678, 0xFFFFFFFE))) == [
        "0x0", "0x80000000", "0xf0000000", "0x1e6a2c48", "0x7fffffff",
    ]  # fmt: skip
    assert hexes(lanes.brev(u64(1, 1 << 63, 0xFFFFFFFF))) == [
        "0x8000000000000000",
        "0x1",
        "0xffffffff00000000",
    ]


@pytest.mark.parametrize(
    ("a", "position", "length", "unsigned", "signed"),
    [
        (0xFFFFFFFF, 0, 0, 0, 0),  # length 0 gives 0 for every type
        (0xFFFFFFFF, 7, 256, 0, 0),  # a length of 256 is 0
        (0xFFFFFFFF, 32, 0, 0, 0),
        (0x80000000, 31, 1, 1, 0xFFFFFFFF),
        (0x12345678, 0, 32, 0x12345678, 0x12345678),
        (0x92345678, 0, 32, 0x92345678, 0x92345678),
        (0x92345678, 0, 255, 0x92345678, 0x92345678),
        (0x000000F0, 4, 4, 0xF, 0xFFFFFFFF),
        (0x000000F0, 4, 5, 0xF, 0xF),
        (0x000000F0, 256 + 4, 256 + 5, 0xF, 0xF),  # both modulo 256
        (0x80000000, 28, 4, 0x8, 0xFFFFFFF8),
        (0x80000000, 28, 8, 0x8, 0xFFFFFFF8),  # beyond the top: filled with the sign of a
        (0x70000000, 28, 8, 0x7, 0x7),
        (0x80000000, 16, 255, 0x8000, 0xFFFF8000),
        (0x80000000, 32, 8, 0, 0xFFFFFFFF),  # starts above the top: all bits are the sign
        (0x7FFFFFFF, 32, 8, 0, 0),
        (0x80000000, 255, 255, 0, 0xFFFFFFFF),
    ],
)
def test_bfe_extracts_fields(a, position, length, unsigned, signed):
    operands = u32(position), u32(length)
    assert hexes(lanes.bfe(u32(a), *operands)) == [hex(unsigned)]
    got = lanes.bfe(u32(a).view(np.int32), *operands)
    assert got.dtype == np.int32
    assert hexes(got.view(np.uint32)) == [hex(signed)]


@pytest.mark.parametrize(
    ("position", "length", "unsigned", "signed"),
    [
        (0, 64, 0x8000000000000001, 0x8000000000000001),
        (60, 4, 0x8, 2**64 - 8),
        (60, 8, 0x8, 2**64 - 8),
        (64, 1, 0, 2**64 - 1),
        (0, 1, 1, 2**64 - 1),
        (32, 32, 0x80000000, 0xFFFFFFFF80000000),
        (0, 0, 0, 0),
    ],
)
def test_bfe_extracts_fields_of_64_bits(position, length, unsigned, signed):
    a = u64(0x8000000000000001)
    assert hexes(lanes.bfe(a, u32(position), u32(length))) == [hex(unsigned)]
    assert hexes(lanes.bfe(a.view(np.int64), u32(position), u32(length)).view(np.uint64)) == [hex(signed)]


@pytest.mark.parametrize(
    ("a", "b", "position", "length", "result"),
    [
        (0xFFFFFFFF, 0x12345678, 4, 0, 0x12345678),  # no length: b
        (0xFFFFFFFF, 0x12345678, 32, 8, 0x12345678),  # past the top: b
        (0xFFFFFFFF, 0x12345678, 255, 255, 0x12345678),
        (0xAB, 0x12345678, 8, 8, 0x1234AB78),
        (0xFFFFFFAB, 0x12345678, 8, 8, 0x1234AB78),
        (0xAB, 0x12345678, 28, 8, 0xB2345678),  # bits beyond the top are dropped
        (0xCAFEF00D, 0x12345678, 0, 32, 0xCAFEF00D),
        (0xCAFEF00D, 0x12345678, 0, 255, 0xCAFEF00D),
        (0xAB, 0x12345678, 256 + 8, 512 + 8, 0x1234AB78),  # both modulo 256
        (0xFFFFFFFF, 0x12345678, 8, 256, 0x12345678),
        (0x1, 0x0, 31, 1, 0x80000000),
    ],
)
def test_bfi_inserts_fields(a, b, position, length, result):
    assert hexes(lanes.bfi(u32(a), u32(b), u32(position), u32(length))) == [hex(result)]


def test_bfi_inserts_fields_of_64_bits():
    got = lanes.bfi(u64(0xFF), u64(0), u32(32, 60, 63, 64), u32(8, 8, 64, 64))
    assert hexes(got) == ["0xff00000000", "0xf000000000000000", "0x8000000000000000", "0x0"]


A, B = 0x83028100, 0x87068504  # byte n is n, its sign bit set where n is odd


@pytest.mark.parametrize(
    ("selector", "result"),
    [
        (0x3210, A),
        (0x7654, B),
        (0x0123, 0x00810283),
        (0x7531, 0x87858381),
        (0x0000, 0x00000000),
        (0xBA98, 0xFF00FF00),  # the top bit of a selector replicates the sign
        (0xFEDC, 0xFF00FF00),
        (0x9999, 0xFFFFFFFF),
        (0x8888, 0x00000000),
        (0xF7E6, 0xFF870006),
        (0xFFFF3210, A),  # bits past the sixteenth are not read
    ],
)
def test_prmt_selects_bytes(selector, result):
    assert hexes(lanes.prmt(u32(A), u32(B), u32(selector))) == [hex(result)]


@pytest.mark.parametrize(
    ("mode", "results"),
    [
        ("f4e", (0x03020100, 0x04030201, 0x05040302, 0x06050403)),
        ("b4e", (0x05060700, 0x06070001, 0x07000102, 0x00010203)),
        ("rc8", (0x00000000, 0x01010101, 0x02020202, 0x03030303)),
        ("ecl", (0x03020100, 0x03020101, 0x03020202, 0x03030303)),
        ("ecr", (0x00000000, 0x01010100, 0x02020100, 0x03020100)),
        ("rc16", (0x01000100, 0x03020302, 0x01000100, 0x03020302)),
    ],
)
def test_prmt_modes_read_two_bits_and_extend_no_sign(mode, results):
    for selector, result in enumerate(results):
        for more in (0, 4, 0xFFFFFFFC):
            selected = u32(selector + more)
            assert hexes(lanes.prmt(u32(0x03020100), u32(0x07060504), selected, mode)) == [hex(result)]
        signs = lanes.prmt(u32(0x83828180), u32(0x87868584), u32(selector), mode)
        assert hexes(signs) == [hex(result | 0x80808080)]


# ------------------------------------------------------------------------------------------- votes


@pytest.mark.parametrize(
    ("predicate", "any_", "all_", "uni"),
    [(NONE, False, False, True), (~NONE, True, True, True), (ODD, True, False, False)],
)
def test_votes_combine_all_lanes_of_the_warp(predicate, any_, all_, uni):
    for vote, expected in ((lanes.vote_any, any_), (lanes.vote_all, all_), (lanes.vote_uni, uni)):
        value, defined = vote(predicate)
        assert every_lane(value) == [expected] * 32
        assert every_lane(defined) == [True] * 32


def test_votes_ignore_lanes_outside_the_mask():
    odd = 0xAAAAAAAA
    assert hexes(lanes.ballot(~NONE, odd).value) == [hex(odd)]
    assert not lanes.vote_any(~ODD, odd).value.any()
    assert lanes.vote_all(ODD, odd).value.all()
    assert lanes.vote_uni(ODD, odd).value.all()
    assert lanes.vote_uni(~ODD, odd).value.all()


def test_votes_ignore_inactive_lanes():
    assert hexes(lanes.ballot(~NONE, active=ODD).value) == ["0xaaaaaaaa"]
    assert not lanes.vote_any(~ODD, active=ODD).value.any()
    assert lanes.vote_all(ODD, active=ODD).value.all()
    assert lanes.vote_uni(~ODD, active=ODD).value.all()


@pytest.mark.parametrize("mask", [0, 1, 1 << 31, 0xFFFF, 0xAAAAAAAA, 0x12345678, 0xFFFFFFFF])
def test_a_lane_outside_its_own_mask_is_undefined(mask):
    members = [bool(mask >> i & 1) for i in range(32)]
    results = [
        *(
            vote(ODD, mask)
            for vote in (lanes.ballot, lanes.rotate, lanes.vote_any, lanes.vote_all, lanes.vote_uni)
        ),
        lanes.match_any(LANE, mask),
        lanes.match_all(LANE, mask),
        lanes.redux("add", LANE, mask),
        *(lanes.shfl(LANE, 0, lanes.shuffle_c(32, mode), mode, mask) for mode in ("up", "down", "bfly")),
    ]
    for result in results:
        assert every_lane(result.defined) == members


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int32])
@pytest.mark.parametrize("active", [None, LANE < 20], ids=["all active", "some active"])
def test_nonzero_integers_vote_true(dtype, active):
    for predicate in (NONE, ~NONE, ODD):
        integers = np.where(predicate, 6, 0).astype(dtype)
        for vote in (lanes.ballot, lanes.rotate, lanes.vote_any, lanes.vote_all, lanes.vote_uni):
            expected, got = vote(predicate, active=active), vote(integers, active=active)
            assert every_lane(got.value) == every_lane(expected.value)


@pytest.mark.parametrize("minus_one", [-1, np.int32(-1), np.full(32, -1), 2**64 - 1])
def test_a_mask_is_taken_modulo_32_bits(minus_one):
    assert every_lane(lanes.ballot(ODD, minus_one).value) == [0xAAAAAAAA] * 32
    assert every_lane(lanes.redux("add", LANE, minus_one).value) == [496] * 32
    assert every_lane(lanes.match_all(LANE * 0, minus_one).value) == [ALL_LANES] * 32
    for result in (lanes.vote_all(ODD, minus_one), lanes.shfl(LANE, 3, member_mask=minus_one)):
        assert every_lane(result.defined) == [True] * 32


def test_two_halves_vote_separately():
    halves = np.where(LANE < 16, np.uint32(0xFFFF), np.uint32(0xFFFF0000))
    predicate = LANE == 3
    assert every_lane(lanes.ballot(predicate, halves).value) == [8] * 16 + [0] * 16
    assert every_lane(lanes.vote_any(predicate, halves).value) == [True] * 16 + [False] * 16
    assert every_lane(lanes.vote_uni(predicate, halves).value) == [False] * 16 + [True] * 16
    assert every_lane(lanes.redux("add", LANE, halves).value) == [120] * 16 + [376] * 16
    assert every_lane(lanes.match_any(LANE * 0, halves).value) == halves.tolist()
    assert every_lane(lanes.match_all(LANE // 20, halves).all_equal) == [True] * 16 + [False] * 16


# --------------------------------------------------------------------------------------- shuffles


def shuffle(b, width, mode, **operands):
    return lanes.shfl(LANE, b, lanes.shuffle_c(width, mode), mode, **operands)


def test_shuffle_c_is_the_operand_that_cuda_passes():
    assert [hex(lanes.shuffle_c(width, "idx")) for width in (32, 16, 8, 4, 2, 1)] == [
        "0x1f", "0x101f", "0x181f", "0x1c1f", "0x1e1f", "0x1f1f",
    ]  # fmt: skip
    assert [hex(lanes.shuffle_c(width, "up")) for width in (32, 16, 8)] == ["0x0", "0x1000", "0x1800"]


@pytest.mark.parametrize(
    ("mode", "b", "width", "source", "in_range"),
    [
        ("up", 1, 32, [0, *range(31)], [False] + [True] * 31),
        ("up", 1, 8, [max(i - 1, i // 8 * 8) for i in range(32)], [i % 8 != 0 for i in range(32)]),
        ("down", 1, 32, [*range(1, 32), 31], [True] * 31 + [False]),
        ("down", 3, 16, [i + 3 if i % 16 < 13 else i for i in range(32)], [i % 16 < 13 for i in range(32)]),
        ("bfly", 16, 32, [*range(16, 32), *range(16)], [True] * 32),
        ("bfly", 1, 8, [i ^ 1 for i in range(32)], [True] * 32),
        # Bounded from above only: lanes of the upper half read the lower half.
        ("bfly", 16, 16, [*range(16), *range(16)], [False] * 16 + [True] * 16),
        ("idx", 5, 32, [5] * 32, [True] * 32),
        ("idx", 5, 8, [i // 8 * 8 + 5 for i in range(32)], [True] * 32),
        ("idx", 13, 8, [i // 8 * 8 + 5 for i in range(32)], [True] * 32),  # beyond the segment, yet valid
        ("idx", 3, 1, list(range(32)), [True] * 32),
    ],
)
def test_shuffles_read_the_lane_of_the_isa(mode, b, width, source, in_range):
    result = shuffle(b, width, mode)
    assert every_lane(result.value) == source
    assert every_lane(result.in_range) == in_range
    assert every_lane(result.defined) == [True] * 32


@every_case("mode", MODES)
@every_case("width", [8, 32])
@every_case("b", [1, 7, 31])
def test_shuffles_use_five_bits_of_b(mode, width, b):
    for more in (32, 64, 2**31, 2**32 - 32):
        for one, other in zip(
            shuffle(b, width, mode), shuffle(np.uint32(b + more), width, mode), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_shuffle_c_clamps_the_source_lane():
    value, in_range, _ = lanes.shfl(LANE, 4, 7, "idx")
    assert (every_lane(value), every_lane(in_range)) == ([4] * 32, [True] * 32)
    value, in_range, _ = lanes.shfl(LANE, 9, 7, "idx")
    assert (every_lane(value), every_lane(in_range)) == (list(range(32)), [False] * 32)
    value, in_range, _ = lanes.shfl(LANE, 2, 7, "down")
    assert every_lane(in_range) == [i + 2 <= 7 for i in range(32)]
    assert every_lane(value) == [i + 2 if i + 2 <= 7 else i for i in range(32)]


def test_shuffle_operands_b_and_c_may_differ_between_lanes():
    reverse = lanes.shfl(LANE * np.uint32(10), np.uint32(31) - LANE)
    assert every_lane(reverse.value) == [10 * (31 - i) for i in range(32)]
    c = np.where(LANE < 16, 0x1F, 0x181F).astype(np.uint32)
    assert every_lane(lanes.shfl(LANE, 2, c).value) == [2] * 16 + [18] * 8 + [26] * 8


@pytest.mark.parametrize("b", [5, np.uint32(5), np.full(32, 5, np.uint32)], ids=["int", "uint32", "array"])
def test_a_shuffle_from_an_inactive_lane_is_undefined(b):
    assert every_lane(lanes.shfl(LANE, b, active=LANE != 5).defined) == [False] * 32
    assert every_lane(lanes.shfl(LANE, b, active=LANE == 5).defined) == [True] * 32
    assert every_lane(lanes.shfl(LANE, b, member_mask=0xFFFFFFDF).defined) == [False] * 32
    assert every_lane(lanes.shfl(LANE, b, member_mask=0x23).defined) == [i in (0, 1, 5) for i in range(32)]


def test_a_lane_that_keeps_its_own_value_needs_no_source():
    defined = shuffle(1, 32, "down", active=LANE >= 31).defined
    assert every_lane(defined) == [i >= 30 for i in range(32)]


# ------------------------------------------------------------------------------------------ match


def test_match_compares_bits_not_numbers():
    """+0 and -0 differ, and a NaN equals itself."""
    floats = np.zeros(32, np.float32)
    floats[1], floats[2:4] = -0.0, np.nan
    got = every_lane(lanes.match_any(floats.view(np.uint32)).value)
    assert got[1] == 0b0010
    assert got[2] == got[3] == 0b1100
    assert got[0] == got[31] == 0xFFFFFFF1


def test_match_of_64_bits_reads_the_upper_half():
    value = np.where(LANE % 2 == 0, np.uint64(7), np.uint64(7 | 1 << 40))
    assert every_lane(lanes.match_any(value).value) == [0x55555555, 0xAAAAAAAA] * 16
    assert not lanes.match_all(value).all_equal.any()


def test_match_any_compares_active_members_only():
    assert every_lane(lanes.match_any(LANE * 0, 0xFFFF, LANE < 20).value)[:16] == [0xFFFF] * 16
    assert every_lane(lanes.match_any(LANE * 0, 0xFFFF, LANE < 4).value)[:4] == [0xF] * 4


def test_match_all_returns_the_mask_or_0():
    same = lanes.match_all(LANE // 16, 0xFFFF)
    assert every_lane(same.value)[:16] == [0xFFFF] * 16
    assert every_lane(same.all_equal)[:16] == [True] * 16
    differ = lanes.match_all(LANE // 16, 0x1FFFF)
    assert every_lane(differ.value)[:17] == [0] * 17
    assert every_lane(differ.all_equal)[:17] == [False] * 17
    exited = lanes.match_all(LANE // 16, 0x1FFFF, LANE != 16)
    assert every_lane(exited.value)[:16] == [0xFFFF] * 16


# ------------------------------------------------------------------------------------------ redux


def test_redux_add_wraps_to_32_bits():
    """No warning and no wider type, signed or unsigned."""
    assert lanes.redux("add", np.full(32, 0xFFFFFFFF, np.uint32)).value.tolist() == [0xFFFFFFE0]
    got = lanes.redux("add", np.full(32, 2**31 - 1, np.int32)).value
    assert (got.dtype, got.tolist()) == (np.int32, [-32])


@pytest.mark.parametrize(
    ("operation", "unsigned", "signed"),
    [("min", 1, -(2**31)), ("max", 0xFFFFFFFF, 2**31 - 1), ("add", 0, 0)],
)
def test_redux_min_and_max_order_by_the_type(operation, unsigned, signed):
    value = np.resize(u32(1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF), 32)
    value[4:] = 1 if operation != "add" else 0
    assert lanes.redux(operation, value).value.tolist() == [unsigned if operation != "add" else 0xFFFFFFFF]
    assert lanes.redux(operation, value.view(np.int32)).value.tolist() == [
        signed if operation != "add" else -1
    ]


def test_redux_and_or_xor_combine_bits():
    value = LANE | np.uint32(0x100)
    assert hexes(lanes.redux("and", value).value) == ["0x100"]
    assert hexes(lanes.redux("or", value).value) == ["0x11f"]
    assert hexes(lanes.redux("xor", value).value) == ["0x0"]
    assert hexes(lanes.redux("xor", value, 0b111).value) == ["0x103"]


@pytest.mark.parametrize("operation", ["add", "min", "max", "and", "or", "xor"])
def test_redux_of_one_lane_returns_its_value(operation):
    value = np.resize(u32(0xDEADBEEF, 0x7FFFFFFF, 0, 0xFFFFFFFF), 32)
    for lane, dtype in itertools.product((0, 1, 2, 3, 31), (np.uint32, np.int32)):
        typed = value.view(dtype)
        assert lanes.redux(operation, typed, 1 << lane).value.tolist() == [typed[lane]]
        assert lanes.redux(operation, typed, active=lane == LANE).value.tolist() == [typed[lane]]


# ------------------------------------------------------------- BSTC section 3.1, operations A to H


@pytest.fixture(params=[32, 64])
def tile(request):
    """A BSTC tile: one row of 32 or 64 bits per lane; ``bits[lane, n]`` is bit n of the lane's word."""
    bits = np.random.default_rng(request.param).integers(0, 2, (32, request.param), np.uint8)
    words = np.packbits(bits, axis=-1, bitorder="little").view(f"<u{request.param // 8}").ravel()
    return words, bits


def bits_of(words):
    width = words.dtype.itemsize * 8
    return np.array([[int(word) >> n & 1 for n in range(width)] for word in words])


def test_bstc_a_logic_acts_on_each_bit(tile):
    words, bits = tile
    other = words[::-1].copy()
    np.testing.assert_array_equal(bits_of(lanes.and_(words, other)), bits & bits[::-1])
    np.testing.assert_array_equal(bits_of(lanes.or_(words, other)), bits | bits[::-1])
    np.testing.assert_array_equal(bits_of(lanes.xor(words, other)), bits ^ bits[::-1])


def test_bstc_a_and_b_make_the_dot_product_of_signs(tile):
    words, bits = tile
    signs = 2 * bits.astype(int) - 1
    width = bits.shape[1]
    product = width - 2 * lanes.popc(lanes.xor(words, words[3])).astype(int)
    np.testing.assert_array_equal(product, signs @ signs[3])


def test_bstc_b_popc_accumulates_a_row(tile):
    words, bits = tile
    assert lanes.popc(words).tolist() == bits.sum(axis=1).tolist()


def test_bstc_c_brev_reverses_a_row(tile):
    words, bits = tile
    np.testing.assert_array_equal(bits_of(lanes.brev(words)), bits[:, ::-1])


def test_bstc_d_votes_reduce_a_column(tile):
    words, bits = tile
    sparse = lanes.and_(words, lanes.and_(np.roll(words, 1), np.roll(words, 2)))
    for column in range(bits.shape[1]):
        for word, kept in (
            (words, bits),
            (sparse, bits_of(sparse)),
            (lanes.not_(sparse), 1 - bits_of(sparse)),
        ):
            predicate = lanes.and_(lanes.shr(word, np.uint32(column)), word.dtype.type(1)) == 1
            assert every_lane(lanes.vote_any(predicate).value) == [bool(kept[:, column].any())] * 32
            assert every_lane(lanes.vote_all(predicate).value) == [bool(kept[:, column].all())] * 32


def test_bstc_e_shuffles_exchange_rows(tile):
    words, _ = tile
    value = words.tolist()
    assert every_lane(lanes.shfl(words, 9).value) == [value[9]] * 32
    up = lanes.shfl(words, 4, lanes.shuffle_c(32, "up"), "up")
    assert every_lane(up.value) == value[:4] + value[:28]
    down = lanes.shfl(words, 4, lanes.shuffle_c(32, "down"), "down")
    assert every_lane(down.value) == value[4:] + value[28:]
    swapped = lanes.shfl(words, 1, lanes.shuffle_c(32, "bfly"), "bfly")
    assert every_lane(swapped.value) == [value[i ^ 1] for i in range(32)]


def test_bstc_f_shifts_move_columns(tile):
    words, bits = tile
    np.testing.assert_array_equal(bits_of(lanes.shl(words, np.uint32(5)))[:, 5:], bits[:, :-5])
    np.testing.assert_array_equal(bits_of(lanes.shr(words, np.uint32(5)))[:, :-5], bits[:, 5:])
    assert not bits_of(lanes.shl(words, np.uint32(5)))[:, :5].any()
    assert not bits_of(lanes.shr(words, np.uint32(5)))[:, -5:].any()


def test_bstc_g_ballot_transposes_a_column_into_a_row(tile):
    """Bit N of the row comes from lane N: 90 degrees clockwise."""
    words, bits = tile
    one = words.dtype.type(1)
    rows = [lanes.ballot((words >> words.dtype.type(n)) & one == 1).value[0] for n in range(bits.shape[1])]
    np.testing.assert_array_equal(bits_of(np.array(rows, np.uint32)), bits.T)


def test_bstc_h_brev_of_ballot_transposes_in_reverse_order(tile):
    """Lane 0 becomes the most significant bit."""
    words, bits = tile
    one = words.dtype.type(1)
    rows = [lanes.rotate((words >> words.dtype.type(n)) & one == 1).value[0] for n in range(bits.shape[1])]
    np.testing.assert_array_equal(bits_of(np.array(rows, np.uint32)), bits.T[:, ::-1])
