"""`simwarp.lanes` against its scalar twins: edge operands crossed, random bulk, and Hypothesis to shrink."""

import inspect
import itertools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import scalar_lanes as twins
from simwarp import lanes
from support.offenders import every_case

ALL = 0xFFFFFFFF
SHUFFLES = ("idx", "up", "down", "bfly")
REDUCTIONS = ("add", "min", "max", "and", "or", "xor")
VOTES = ("ballot", "rotate", "vote_any", "vote_all", "vote_uni")

# ------------------------------------------------------------------------------ operands by class


def edge_words(width):
    ones = (1 << width) - 1
    sign_ends = [1 << (width - 1), (1 << (width - 1)) - 1, (1 << (width - 1)) + 1]
    alternating = [ones // 3, ones // 3 * 2]
    one_hot = [1 << i for i in range(0, width, width // 8)]
    return [0, ones, ones - 1, *sign_ends, *alternating, *one_hot]


EDGE_AMOUNTS = (0, 1, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 255, 256, 257, 288, 1 << 31, ALL)
EDGE_MASKS = (0, 1, 1 << 31, 0xFFFF, 0xFFFF0000, 0xAAAAAAAA, 0x55555555, ALL)


def words(width):
    return st.sampled_from(edge_words(width)) | st.integers(0, (1 << width) - 1)


amounts = st.sampled_from(EDGE_AMOUNTS) | st.integers(0, 300) | st.integers(0, ALL)
masks = st.sampled_from(EDGE_MASKS) | st.integers(0, ALL)


# --------------------------------------------------------------------------------------- per lane


class Case(NamedTuple):
    """One operation and the kinds of its ``operands``: w for a word, n for a shift amount."""

    name: str
    operands: str
    widths: tuple[int, ...] = (16, 32, 64)
    signs: tuple[bool, ...] = (False,)
    options: tuple[dict[str, object], ...] = ({},)


class Form(NamedTuple):
    name: str
    operands: str
    width: int
    signed: bool
    options: dict[str, object]


CASES = (
    Case("and_", "ww"),
    Case("or_", "ww"),
    Case("xor", "ww"),
    Case("not_", "w"),
    Case("shl", "wn"),
    Case("shr", "wn", signs=(False, True)),
    Case("popc", "w", (32, 64)),
    Case("brev", "w", (32, 64)),
    Case("clz", "w", (32, 64)),
    Case("bfe", "wnn", (32, 64), signs=(False, True)),
    Case("bfi", "wwnn", (32, 64)),
    Case(
        "prmt",
        "www",
        (32,),
        options=tuple({"mode": m} for m in ("default", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")),
    ),
    Case("lop3", "www", (32,), options=tuple({"table": t} for t in (0, 0x1A, 0x96, 0xFF))),
    Case(
        "shf",
        "wwn",
        (32,),
        options=tuple({"direction": d, "mode": m} for d in "lr" for m in ("wrap", "clamp")),
    ),
)
FORMS = [
    pytest.param(
        Form(case.name, case.operands, width, signed, options),
        id="-".join([case.name, f"{'s' if signed else 'u'}{width}", *map(str, options.values())]),
    )
    for case in CASES
    for width, signed, options in itertools.product(case.widths, case.signs, case.options)
]


every_form = pytest.mark.parametrize("form", FORMS)


def on_lanes(form, columns):
    """The library's result on arrays, as bit patterns."""
    dtypes = {"w": f"u{form.width // 8}", "n": "u4"}
    arrays = [np.array(column, dtypes[kind]) for kind, column in zip(form.operands, columns, strict=True)]
    if form.signed:
        arrays[0] = arrays[0].view(f"i{form.width // 8}")
    result = getattr(lanes, form.name)(*arrays, **form.options)
    if form.name in ("popc", "clz"):
        assert result.dtype == np.uint32
    else:
        assert result.dtype == arrays[0].dtype
        result = result.view(f"u{form.width // 8}")
    return result.tolist()


def on_integers(form, operands):
    """The twin's result for one element."""
    twin = getattr(twins, form.name)
    known = inspect.signature(twin).parameters
    facts = {k: v for k, v in (("width", form.width), ("signed", form.signed)) if k in known}
    return twin(*operands, **facts, **form.options)


@pytest.mark.at_most(13)
@every_form
def test_edge_operands_and_bulk_random_operands_agree_with_the_twin(form):
    rng = np.random.default_rng(form.width)
    pools = [edge_words(form.width) if kind == "w" else list(EDGE_AMOUNTS) for kind in form.operands]
    rows = list(itertools.product(*pools))
    if len(rows) > 3000:
        rows = [rows[i] for i in rng.choice(len(rows), 3000, replace=False)]
    random = [
        rng.integers(0, 300, 1000).tolist()
        if kind == "n"
        else [int.from_bytes(rng.bytes(form.width // 8), "little") for _ in range(1000)]
        for kind in form.operands
    ]
    rows += zip(*random, strict=True)
    got = on_lanes(form, list(zip(*rows, strict=True)))
    expected = [on_integers(form, row) for row in rows]
    assert [(row, g, e) for row, g, e in zip(rows, got, expected, strict=True) if g != e][:3] == []


@pytest.mark.at_most(3)
@every_form
@given(data=st.data())
def test_any_operands_agree_with_the_twin(form, data):
    operands = [data.draw(words(form.width) if kind == "w" else amounts) for kind in form.operands]
    assert on_lanes(form, [[operand] for operand in operands]) == [on_integers(form, operands)]


@given(a=words(32), b=words(32), c=words(32), table=st.integers(0, 255))
def test_lop3_agrees_for_every_table(a, b, c, table):
    got = lanes.lop3(np.uint32(a), np.uint32(b), np.uint32(c), table)
    assert int(got) == twins.lop3(a, b, c, table)


@every_form
def test_operands_broadcast_and_are_not_modified(form):
    """A scalar, a row of lanes and a column of warps give the result of the expanded operands."""
    rng = np.random.default_rng(1)
    shapes = [(32,), (3, 1), (), (2, 1, 32)]
    dtypes = {"w": f"u{form.width // 8}", "n": "u4"}
    for offset in range(len(shapes)):
        operands = [
            np.asarray(rng.integers(0, 70 if kind == "n" else 1 << 16, shapes[(i + offset) % 4])).astype(
                dtypes[kind]
            )
            for i, kind in enumerate(form.operands)
        ]
        if form.signed:
            operands[0] = operands[0].view(f"i{form.width // 8}")
        before = [operand.copy() for operand in operands]
        got = getattr(lanes, form.name)(*operands, **form.options)
        written_out = [np.array(operand) for operand in np.broadcast_arrays(*operands)]
        expected = getattr(lanes, form.name)(*written_out, **form.options)
        assert np.shape(got) == np.shape(expected)
        np.testing.assert_array_equal(got, expected)
        for operand, copy in zip(operands, before, strict=True):
            np.testing.assert_array_equal(operand, copy)


# -------------------------------------------------------------------------------------- warp-wide


class Operation(NamedTuple):
    """A warp-wide operation of library and twin with one signature, and its operand kinds."""

    id: str
    reads: str
    on_lanes: object
    on_integers: object
    signed: bool = False


def _plain(name, reads):
    return Operation(f"{name}-{reads}", reads, getattr(lanes, name), getattr(twins, name))


def _redux(operation, signed):
    return Operation(
        f"redux-{operation}-{'s' if signed else 'u'}32",
        "u4",
        lambda value, mask, active: lanes.redux(operation, value, mask, active),
        lambda value, mask, active: twins.redux(operation, value, mask, active, signed),
        signed,
    )


def _shfl(mode, b, width):
    c = twins.shuffle_c(width, mode)
    each_b = np.broadcast_to(b, 32).tolist()
    return Operation(
        f"shfl-{mode}-{b if isinstance(b, int) else 'each'}-{width}",
        "u4",
        lambda value, mask, active: lanes.shfl(value, b, c, mode, mask, active),
        lambda value, mask, active: twins.shfl(value, each_b, [c] * 32, mode, mask, active),
    )


PER_LANE_B = (7 * lanes.LANE + 3) % 41
OPERATIONS = [
    *(_plain(name, "predicate") for name in VOTES),
    *(_plain(name, reads) for name in ("match_any", "match_all") for reads in ("u4", "u8")),
    *(_redux(operation, False) for operation in REDUCTIONS),
    *(_redux(operation, True) for operation in ("add", "min", "max")),
    *(_shfl("idx", b, 32) for b in (5, 31)),
    *(_shfl(mode, b, width) for mode in SHUFFLES for b, width in ((5, 8), (PER_LANE_B, 32))),
]
every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.id)


def lanes_of(mask):
    return np.bitwise_and(np.uint32(mask), lanes.LANE_BIT) != 0


def draw_bulk(operation, shape, rng):
    """Operands of ``shape`` with few different values per warp, so that lanes are sometimes equal."""
    if operation.reads == "predicate":
        kind = rng.integers(0, 3, (*shape[:-1], 1))
        return np.where(kind == 2, rng.random(shape) < 0.5, kind == 1)
    dtype = np.dtype(operation.reads)
    pool = np.array([*edge_words(dtype.itemsize * 8), 3, 5, 7], dtype)
    few = pool[rng.integers(0, np.array([1, 2, len(pool)])[rng.integers(0, 3, (*shape[:-1], 1))], shape)]
    noise = rng.integers(0, np.iinfo(dtype).max, shape, dtype, True)
    value = np.where(rng.random((*shape[:-1], 1)) < 0.3, noise, few)
    return value.view(np.int32) if operation.signed else value


def draw_masks(shape, rng):
    """Member masks per lane: edge and random masks, equal across the warp or different in its halves."""
    pool = np.array([*EDGE_MASKS, *rng.integers(0, ALL, 8)], np.uint32)
    low, high = (pool[rng.integers(0, len(pool), (*shape[:-1], 1))] for _ in range(2))
    halves = np.where(lanes.LANE < 16, low & np.uint32(0xFFFF), high | np.uint32(0xFFFF0000))
    return np.where(rng.random((*shape[:-1], 1)) < 0.5, low, halves).astype(np.uint32)


def expect_agreement(operation, value, member_mask, active):
    """Compare library and twin in every executing lane, where the result is defined."""
    result = operation.on_lanes(value, member_mask, active)
    executing = True if active is None else active
    shape = np.broadcast_shapes(*map(np.shape, (value, member_mask, executing, *result)), (32,))
    bits = np.asarray(value)
    bits = bits.view(np.uint32) if operation.signed else bits

    def by_warp(array):
        return np.broadcast_to(array, shape).reshape(-1, 32).tolist()

    *fields, defined = map(by_warp, (
        field.view(np.uint32) if operation.signed and field.dtype == np.int32 else field for field in result
    ))  # fmt: skip
    for warp, operands in enumerate(
        zip(by_warp(bits), by_warp(np.asarray(member_mask, np.uint32)), by_warp(executing), strict=True)
    ):
        expected = operation.on_integers(*operands)
        for lane in range(32):
            if not operands[2][lane]:
                continue
            where = f"{operation.id}: warp {warp}, lane {lane}, operands {operands}"
            assert defined[warp][lane] == (expected[lane] is not None), where
            if defined[warp][lane]:
                got = tuple(field[warp][lane] for field in fields)
                assert got == (expected[lane] if len(got) > 1 else (expected[lane],)), where


@pytest.mark.at_most(7)
@every_operation
def test_bulk_warps_agree_with_the_twin(operation):
    rng = np.random.default_rng(7)
    value = draw_bulk(operation, (20, 32), rng)
    actives = lanes_of(draw_masks((20, 32), rng)[:, :1])
    expect_agreement(operation, value, ALL, None)
    expect_agreement(operation, value, draw_masks((20, 32), rng), None)
    expect_agreement(operation, value, ALL, actives)
    expect_agreement(operation, value, draw_masks((20, 32), rng), actives)
    for mask in EDGE_MASKS:
        expect_agreement(operation, value[:2], mask, None)
        expect_agreement(operation, value[:2], np.uint32(mask), lanes_of(mask))
        expect_agreement(operation, value[:2], ALL, lanes_of(mask))


@pytest.mark.at_most(3)
@every_operation
@settings(max_examples=50)
@given(data=st.data())
def test_any_warp_agrees_with_the_twin(operation, data):
    if operation.reads == "predicate":
        value = lanes_of(data.draw(masks))
    else:
        dtype = np.dtype(operation.reads)
        pool = np.array(data.draw(st.lists(words(dtype.itemsize * 8), min_size=1, max_size=4)), dtype)
        value = pool[np.frombuffer(data.draw(st.binary(min_size=32, max_size=32)), np.uint8) % len(pool)]
        value = value.view(np.int32) if operation.signed else value
    low, high = data.draw(masks), data.draw(masks)
    member_mask = data.draw(st.sampled_from([low, np.where(lanes.LANE < 16, low, high).astype(np.uint32)]))
    active = data.draw(st.none() | masks.map(lanes_of))
    expect_agreement(operation, value, member_mask, active)


@every_operation
@every_case("shape", [(3, 32), (2, 5, 32)])
def test_a_batch_equals_its_warps_one_by_one(operation, shape):
    rng = np.random.default_rng(11)
    value, member_mask = draw_bulk(operation, shape, rng), draw_masks(shape, rng)
    active = lanes_of(draw_masks(shape, rng)[..., :1])
    for mask, executing in itertools.product((ALL, member_mask, member_mask[..., :1]), (None, active)):
        together = operation.on_lanes(value, mask, executing)
        for warp in np.ndindex(*shape[:-1]):
            alone = operation.on_lanes(
                value[warp],
                mask if isinstance(mask, int) else mask[warp],
                None if executing is None else executing[warp],
            )
            for batched, single in zip(together, alone, strict=True):
                np.testing.assert_array_equal(
                    np.broadcast_to(batched, shape)[warp], np.broadcast_to(single, (32,)), strict=True
                )


@every_operation
@every_case(
    ("narrow", "shape"),
    [
        *(("value", shape) for shape in ((), (1,), (3, 1), (32,))),
        *(("member_mask", shape) for shape in ((), (1,), (3, 1), (32,))),
        ("active", (32,)),
    ],
)
def test_scalars_and_uniform_operands_broadcast(operation, narrow, shape):
    """An operand of ``shape`` beside two of shape (3, 32) equals the same operand written out."""
    rng = np.random.default_rng(5)
    operands = {
        "value": draw_bulk(operation, (3, 32), rng),
        "member_mask": draw_masks((3, 32), rng),
        "active": lanes_of(draw_masks((3, 32), rng)[..., :1]),
    }
    index = {(): (0, 0), (1,): (0, slice(1)), (3, 1): (slice(None), slice(1)), (32,): (0, slice(None))}
    operands[narrow] = operands[narrow][index[shape]]
    assert np.shape(operands[narrow]) == shape
    got = operation.on_lanes(*operands.values())
    expected = operation.on_lanes(*(np.array(np.broadcast_to(o, (3, 32))) for o in operands.values()))
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(np.broadcast_to(g, (3, 32)), np.broadcast_to(e, (3, 32)))


@every_operation
@every_case("wide", ["value", "member_mask", "active"])
def test_any_operand_may_have_warps_that_the_others_lack(operation, wide):
    """An operand of shape (3, 32) broadcasts with two of shape (32,)."""
    rng = np.random.default_rng(6)
    operands = {
        "value": draw_bulk(operation, (3, 32), rng),
        "member_mask": draw_masks((3, 32), rng),
        "active": lanes_of(draw_masks((3, 32), rng)[..., :1]),
    }
    operands = {name: o if name == wide else o[0] for name, o in operands.items()}
    expect_agreement(operation, *operands.values())


@given(word=masks)
def test_mask_word_agrees_with_the_twin(word):
    members = [bool(word >> i & 1) for i in range(32)]
    assert lanes.mask_word(np.array(members)).tolist() == [twins.mask_word(members)] == [word]


# ---------------------------------------------------------------------------------------- shuffles


def expect_shuffle(value, b, c, mode):
    result = lanes.shfl(value, b, c, mode)
    listed = [np.broadcast_to(np.asarray(x, np.int64), 32).tolist() for x in (b, c)]
    expected = twins.shfl(value.tolist(), *listed, mode, [ALL] * 32, [True] * 32)
    got = zip(*(np.broadcast_to(field, 32).tolist() for field in result[:2]), strict=True)
    assert list(got) == expected, (b, c, mode)
    assert np.all(result.defined)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("mode", SHUFFLES)
def test_shuffles_agree_for_every_width_and_distance(mode):
    value = lanes.LANE * np.uint32(0x01010101)
    for width in range(1, 33):
        c = lanes.shuffle_c(width, mode)
        assert c == twins.shuffle_c(width, mode)
        for b in (*range(34), 63, 64, 1000, 1 << 31, ALL):
            expect_shuffle(value, b, c, mode)
        for step in (1, 3, 37):
            expect_shuffle(value, lanes.LANE * np.uint32(step), c, mode)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("mode", SHUFFLES)
@given(
    b=st.lists(amounts, min_size=32, max_size=32),
    c=st.lists(amounts | st.integers(0, 0x1F1F), min_size=1, max_size=32),
)
def test_shuffles_agree_for_any_operands(mode, b, c):  # fmt: skip
    b, c = np.array(b, np.uint32), np.array((c * 32)[:32], np.uint32)
    expect_shuffle(lanes.LANE + np.uint32(100), b, c, mode)
    expect_shuffle(lanes.LANE + np.uint32(100), int(b[0]), int(c[0]), mode)
    expect_shuffle(lanes.LANE + np.uint32(100), b[:1], c[:1], mode)


@pytest.mark.parametrize("mode", SHUFFLES)
def test_shuffle_source_is_the_lane_each_lane_reads(mode):
    """A lane whose computed source is out of range reads itself."""
    for width, b in itertools.product((4, 16, 32), (0, 1, 5, 20, 31)):
        c = lanes.shuffle_c(width, mode)
        source, in_range = lanes.shuffle_source(b, c, mode)
        expected = twins.shuffle_source([b] * 32, [c] * 32, mode)
        assert in_range.tolist() == [p for _, p in expected]
        assert source[in_range].tolist() == [j for j, p in expected if p]
        assert source.tolist() == [j for j, _ in expected]


@every_case("mode", SHUFFLES)
@every_case("dtype", [np.uint32, np.int32, np.float32, np.uint64, np.bool_])
def test_shuffles_move_any_type_unchanged(mode, dtype):
    value = np.arange(64).reshape(2, 32).astype(dtype)
    result = lanes.shfl(value, 1, lanes.shuffle_c(32, mode), mode)
    source = [j for j, _ in twins.shuffle_source([1] * 32, [lanes.shuffle_c(32, mode)] * 32, mode)]
    assert result.value.dtype == dtype
    np.testing.assert_array_equal(np.broadcast_to(result.value, (2, 32)), value[:, source])
