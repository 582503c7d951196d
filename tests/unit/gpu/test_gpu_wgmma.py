"""The ±1 product of warpgroups, on the simulator: every tile, kind of output, schedule and ragged edge."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bmm.output import Output
from gpu.bmm.prepared import prepare_matrix
from gpu.bmm.schemes import choose_scheme
from gpu.bmm.warpgroups import BITS, OPTIONS, TILES, WARPGROUP_SCHEMES, Tile
from gpu.compile import compile
from reference.errors import DtypeError, NotANumberError, SchemeError, ShapeError
from simwarp.faults import CopyInFlight, Race, UninitialisedRead
from simwarp.verify.draw import Draw
from support.rules import rule

WGMMA = WARPGROUP_SCHEMES["wgmma"]
SCHEDULES = ["lowest pc", "stack", pytest.param("random", marks=pytest.mark.slow)]
FOLDER, INT32 = Path(gpu.__file__).parent, np.iinfo(np.int32)
SMALL, OF_TEAMS = Tile(64, 64, 1, 2, 2), Tile(64, 64, 2, 3, 2, teams=2)
EVERY_TILE = {
    f"{output}-{tile.rows}x{tile.columns}": (output, tile)
    for output in TILES
    for tile in (*TILES[output], *([] if output == "lines" else [SMALL]))
}


def values(rows, columns, k=0, dtype="float32"):
    return Draw(0, "test_gpu_wgmma", k).matrix(rows, columns, dtype)


def product(device, a, b, output, tile, blocks):
    """The product by one tile, and by so many blocks; the rows of C, or its words along the rows."""
    (m, k), n = a.shape, b.shape[1]
    left, right = (prepare_matrix(x, role, scheme="wgmma", device=device) for x, role in ((a, "a"), (b, "b")))
    of_output = ()
    if output in BITS:
        thresholds, flip = rule(n, k)
        of_output = device.upload(thresholds), device.upload(flip.astype(np.uint8))
    elif output.startswith("float"):
        of_output = (device.upload(scales(n)),)
    made = Output(output, of_output).allocate((m, n, k), WGMMA, device)
    if output == "lines":
        parts = -(-(n + -n % 128) // tile.columns)
        made = made[0], device.allocate((m, parts), np.uint32)
    plan = WGMMA.plan((m, n, k), output, blocks, scaled=output.startswith("float"), tile=tile)
    device.launch(plan, (left.words, left.ones, right.words, right.ones, *made, *of_output))
    if output == "lines":
        ones = made[1].download().sum(1)
        np.testing.assert_array_equal(ones, np.bitwise_count(made[0].download()).sum((1, 2)))
        return made[0].download().reshape(m, -1).T
    return made[0].download()


def scales(n):
    return (1 + np.arange(n) % 7).astype(np.float32) / 8


def expected(a, b, output):
    dots = reference.bmm(a, b)
    n, k = b.shape[1], b.shape[0]
    if output in BITS:
        thresholds, flip = rule(n, k)
        words = reference.threshold(dots, thresholds, flip, word=32, first="lsb").words
        return np.pad(words, ((0, -len(words) % 4 if output == "lines" else 0), (0, 0)))
    if output.startswith("float"):
        return (dots.astype(np.float32) * scales(n)).astype(output)
    return dots.astype(output)


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("shape2-*", "shape0-*-64x64")
@pytest.mark.gate_cases("shape2-*-128x*")  # stacks of every tile have an odd number of columns, too
@pytest.mark.parametrize("which", EVERY_TILE)
@pytest.mark.parametrize("shape", [(1, 1, 1), (130, 72, 700), (67, 301, 129)])
def test_every_tile_and_output_equals_the_reference(which, shape):
    (output, tile), (m, n, k) = EVERY_TILE[which], shape
    a, b = values(m, k), values(k, n, 1)
    got = product(simwarp.Device((9, 0)), a, b, output, tile, 2)
    np.testing.assert_array_equal(got, expected(a, b, output), strict=True)


@pytest.mark.at_most(1)
@pytest.mark.singly
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("output", TILES)
@pytest.mark.parametrize("blocks", [1, 3])
def test_blocks_that_compute_several_tiles_are_right_under_every_schedule(schedule, output, blocks):
    """Rings turn several times, and the notes of a tile wait for those of two before."""
    m, n, k = 130, 72, 2200
    a, b = values(m, k), values(k, n, 1)
    tile = TILES["lines"][-1] if output == "lines" else SMALL
    got = product(simwarp.Device((9, 0), schedule=schedule), a, b, output, tile, blocks)
    np.testing.assert_array_equal(got, expected(a, b, output), strict=True)


@pytest.mark.at_most(1)
@pytest.mark.singly
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("output", TILES)
@pytest.mark.parametrize("k", [1000, 1400, 3500])
def test_teams_that_take_turns_are_right_under_every_schedule(schedule, output, k):
    """Steps and stages have no common factor: a team begins anywhere in the ring, also in its last turn."""
    a, b = values(130, k), values(k, 72, 1)
    tile = Tile(64, 128, 2, 3, 0, teams=2) if output in BITS else OF_TEAMS
    got = product(simwarp.Device((9, 0), schedule=schedule), a, b, output, tile, 1)
    np.testing.assert_array_equal(got, expected(a, b, output), strict=True)


def test_a_team_that_does_not_wait_for_its_turn_is_found():
    """Stages that are to be full two turns from now look full: their barriers tell parities."""
    header = "bmm/warpgroup_tile.cuh"
    right = (FOLDER / "include" / header).read_text()
    lax = right.replace("if (teams > 1) wait(shared.turns[team], parity), parity ^= 1;", "")
    assert lax != right
    source = (FOLDER / "bmm" / "wgmma.cu").read_text().replace(f'#include "{header}"', lax)
    defines = OF_TEAMS.macros("int32", boxes=False, group=4)
    ptx = compile(source, "bmm/lax.cu", defines, options=OPTIONS).text
    device, ones = simwarp.Device((9, 0)), np.ones((128, 4096), np.int8)
    a, b = (
        prepare_matrix(x, role, scheme="wgmma", device=device) for x, role in ((ones, "a"), (ones.T, "b"))
    )
    plan = WGMMA.plan((128, 64, 4096), "int32", 1, tile=OF_TEAMS)
    plan = replace(plan, ptx=ptx, args=(*plan.args[:4], None, *plan.args[5:]))
    with pytest.raises((UninitialisedRead, CopyInFlight, Race)):
        device.launch(plan, (a.words, a.ones, b.words, b.ones, device.allocate((128, 64), np.int32)))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("n", [1, 2, 4, 7, 8, 12])
@pytest.mark.parametrize("output", ["int32", "int16", "float16"])
def test_rows_of_every_pitch_are_stored_as_boxes_or_pairs(n, output):
    a, b = values(66, 300), values(300, n, 1)
    plan = WGMMA.plan((66, n, 300), output, 1, tile=SMALL)
    boxes = n * np.dtype(output).itemsize % 16 == 0
    assert (plan.args[4] is not None) == boxes
    assert ("bulk_group" in plan.ptx) == boxes
    got = product(simwarp.Device((9, 0)), a, b, output, SMALL, 1)
    np.testing.assert_array_equal(got, expected(a, b, output))


def test_the_public_call_gives_dots_and_bits():
    device = simwarp.Device((9, 0))
    a, b = values(40, 1100, dtype="int8"), values(1100, 70, 1, "float16")
    thresholds, flip = rule(70, 1100)
    dots = reference.bmm(a, b)
    np.testing.assert_array_equal(gpu.bmm(a, b, scheme="wgmma", device=device), dots)
    first = gpu.bmm(device.upload(a), b, scheme="wgmma", thresholds=thresholds, flip=flip, device=device)
    bits = reference.threshold(dots, thresholds, flip, word=32, first="lsb")
    np.testing.assert_array_equal(first.words.download(), bits.words)
    c = values(70, 9, 2)
    second = gpu.bmm(first, c, scheme="wgmma").download()
    np.testing.assert_array_equal(second, reference.bmm(bits, c))


def test_thresholds_at_the_ends_of_dots_and_int32_are_exact():
    k = 33
    thresholds = np.array([INT32.min, INT32.min + 1, -k - 1, -k, -k + 1, 0, k - 1, k, k + 1, INT32.max])
    b = np.ones((k, 10), np.int8)
    a = np.concatenate([b.T[:1], -b.T[:1]])
    packed = gpu.bmm(a, b, scheme="wgmma", thresholds=thresholds, device=simwarp.Device((9, 0)))
    plus, minus = (reference.unpack(packed) > 0).tolist()
    assert plus == [True] * 8 + [False] * 2
    assert minus == [True] * 4 + [False] * 6


def test_a_repeated_call_takes_the_maps_of_its_own_arrays():
    device = simwarp.Device((9, 0))
    for i in range(3):
        a, b = values(9, 200, i), values(200, 11, i + 7)
        left, right = (
            gpu.prepare(device.upload(x), role, scheme="wgmma") for x, role in ((a, "a"), (b, "b"))
        )
        np.testing.assert_array_equal(gpu.bmm(left, right, scheme="wgmma").download(), reference.bmm(a, b))


def test_a_prepared_product_is_one_launch(monkeypatch):
    device = simwarp.Device((9, 0))
    left, right = (
        gpu.prepare(device.upload(values(9, 200)), "a", scheme="wgmma"),
        gpu.prepare(device.upload(values(200, 11)), "b", scheme="wgmma"),
    )
    gpu.bmm(left, right, scheme="wgmma")
    launches = []
    launch = simwarp.Device.launch
    monkeypatch.setattr(
        simwarp.Device,
        "launch",
        lambda self, plan, arrays: launches.append(plan) or launch(self, plan, arrays),
    )
    gpu.bmm(left, right, scheme="wgmma")
    assert [plan.name for plan in launches] == ["wgmma"]


@pytest.mark.at_most(1)
@pytest.mark.gate_cases("*-random")
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sizes", [(70, 60, 12000), (5, 7, 20000), (64, 65, 9000)])
def test_blocks_share_a_long_k_where_tiles_are_few(schedule, sizes):
    m, n, k = sizes
    device = simwarp.Device((9, 0), schedule=schedule, multiprocessors=7)
    shares = WGMMA.shares((m, n, k), "int32", 7)
    steps = -(-k // 1024)
    assert 1 < shares <= 7
    assert (shares - 1) * -(-steps // shares) < steps  # none is empty
    a, b = values(m, k, dtype="int8"), values(k, n, 1, "int8")
    left, right = (gpu.prepare(device.upload(x), role, scheme="wgmma") for x, role in ((a, "a"), (b, "b")))
    for _ in range(2):  # the second call is recorded
        np.testing.assert_array_equal(gpu.bmm(left, right, scheme="wgmma").download(), reference.bmm(a, b))


def test_many_tiles_and_other_outputs_do_not_share_k():
    assert WGMMA.shares((64, 64, 2**20), "int32", 132) == 128
    assert [WGMMA.shares((64, 64, 2**20), output, 132) for output in ("words", "int16", "float32")] == [1] * 3
    assert WGMMA.shares((4096, 4096, 2**20), "int32", 132) == 1
    assert WGMMA.shares((64, 64, 7 * 1024), "int32", 132) == 1


def test_other_chips_are_refused():
    for chip in ((8, 0), (7, 5), (10, 0)):
        with pytest.raises(SchemeError, match=rf"sm_{chip[0]}{chip[1]}\n.*sm_90a alone\nchoose btc3"):
            gpu.bmm(values(2, 3), values(3, 2), scheme="wgmma", device=simwarp.Device(chip))


def test_a_longer_k_falls_back():
    assert choose_scheme("wgmma", 2**24 - 1).name == "wgmma"
    assert choose_scheme("wgmma", 2**24).name == "btc2"


def test_the_tile_follows_the_shape():
    sizes = {n: WGMMA.tile(n, n, n, "int32", 132) for n in (512, 16384)}
    assert (sizes[512].rows, sizes[512].columns) == (64, 64)
    assert (sizes[16384].rows, sizes[16384].columns) == (128, 192)
    assert [WGMMA.tile(n, n, n, "words", 132).columns for n in (1024, 4096, 8192)] == [128, 128, 192]


@pytest.mark.parametrize("output", TILES)
def test_shared_memory_of_every_tile_fits_a_block(output):
    for tile in TILES[output]:
        assert tile.shared(output) <= 227 * 1024


@pytest.mark.at_most(1)
@pytest.mark.parametrize("n", [5, 130, 700])
@pytest.mark.parametrize("scheme", ["wgmma", "skinny"])
@pytest.mark.parametrize("most", [2, 32])
def test_prepared_bits_are_the_next_products_operand(scheme, n, most, monkeypatch):
    """Products that add parts of ones, or count ones themselves, and those that need them counted before."""
    monkeypatch.setattr(gpu.bmm.prepared, "MOST_PARTS", most)
    device, m = simwarp.Device((9, 0)), 70 if scheme == "wgmma" or n <= 16 else 13
    a, b, c = values(m, 300), values(300, n, 1), values(n, 16, 2)
    thresholds, flip = rule(n, 300)
    options = {"thresholds": thresholds, "flip": flip, "scheme": scheme, "device": device}
    hidden = gpu.bmm(a, b, **options, prepared=True)
    assert (hidden.shape, hidden.role, hidden.scheme) == ((m, n), "a", scheme)
    assert hidden.parts == (-(-n // 128) if scheme == "wgmma" else 0)
    dots = reference.bmm(reference.threshold(reference.bmm(a, b), thresholds, flip, word=32, first="lsb"), c)
    for other in ("wgmma", "skinny", "btc2", "mma"):
        np.testing.assert_array_equal(gpu.bmm(hidden, c, scheme=other).download(), dots)


def test_dot_products_of_every_dtype():
    device = simwarp.Device((9, 0))
    a, b = values(9, 300), values(300, 12, 1)
    dots, factors = reference.bmm(a, b), scales(12)
    for dtype in (np.int32, "int16", np.float16, np.dtype("float32")):
        got = gpu.bmm(a, b, scheme="wgmma", dtype=dtype, device=device)
        np.testing.assert_array_equal(got, dots.astype(dtype), strict=True)
    for dtype in (np.float16, np.float32):
        got = gpu.bmm(a, b, scheme="wgmma", dtype=dtype, scales=factors, device=device)
        np.testing.assert_array_equal(got, (dots * factors).astype(dtype), strict=True)


def test_thresholds_may_be_floats():
    device = simwarp.Device((9, 0))
    a, b = values(9, 300), values(300, 6, 1)
    dots = reference.bmm(a, b)
    thresholds, flip = np.array([-1.5, 0.5, 2.0, -np.inf, np.inf, 7e9]), np.array([0, 1, 0, 1, 0, 1], bool)
    for scheme in ("wgmma", "btc3"):
        packed = gpu.bmm(a, b, scheme=scheme, thresholds=thresholds, flip=flip, device=device)
        np.testing.assert_array_equal(reference.unpack(packed) > 0, (dots >= thresholds) != flip)
    with pytest.raises(NotANumberError, match="thresholds have a NaN"):
        gpu.bmm(a, b, thresholds=[np.nan] * 6, device=device)


@pytest.mark.parametrize(
    ("options", "kind", "parts"),
    [
        ({"dtype": "float64"}, SchemeError, "dtype='float64'\nthis dtype is unknown"),
        ({"dtype": "int16", "scheme": "btc3"}, SchemeError, "dtype=int16 with scheme='btc3'\n"),
        ({"dtype": "bananas"}, DtypeError, "dtype: 'bananas' is not a dtype"),
        ({"scales": [1, 2]}, SchemeError, "scales are given, and the output is int32"),
        ({"scales": [1, 2], "thresholds": [0, 0]}, SchemeError, "scales are given, and the output is words"),
        ({"scales": [1, 2, 3], "dtype": "float32"}, ShapeError, "scales has shape (3,)"),
        ({"prepared": True}, SchemeError, "prepared=True without thresholds"),
        ({"thresholds": [0, 0], "dtype": "int16"}, SchemeError, "thresholds and dtype"),
        (
            {"thresholds": [0, 0], "scheme": "bmm32", "prepared": True},
            SchemeError,
            "prepared=True with scheme='bmm32'",
        ),
    ],
)
def test_outputs_that_do_not_exist_are_refused(options, kind, parts):
    with pytest.raises(kind, match=re.escape(parts)):
        gpu.bmm(values(3, 4), values(4, 2), device=simwarp.Device((9, 0)), **({"scheme": "wgmma"} | options))


def test_int16_refuses_a_k_that_may_overflow():
    a = np.ones((1, 32768), np.int8)
    device = simwarp.Device((9, 0))
    with pytest.raises(DtypeError, match=r"K is 32768, dtype int16\n.*\nchoose int32"):
        gpu.bmm(a, a.T, scheme="wgmma", dtype="int16", device=device)
    assert gpu.bmm(a[:, 1:], a.T[1:], scheme="wgmma", dtype="int16", device=device)[0, 0] == 32767
