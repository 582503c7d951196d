"""The ±1 convolution of warpgroups, on the simulator: every tile, output, schedule and geometry."""

import re

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bconv import warpgroups
from gpu.bconv.geometry import conv_shape
from gpu.bconv.warpgroups import TILES
from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError
from simwarp.verify.draw import Draw
from support.convolution_mutants import check_found
from support.wgmma_convolutions import GEOMETRIES, INT32, WGMMA, check, launched, rule, signs

SCHEDULES = ["lowest pc", "stack", pytest.param("random", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _no_patches(monkeypatch):
    """Windows are copied or gathered; test_gpu_bconv_direct.py has those that are loaded from patches."""
    monkeypatch.setattr(warpgroups, "direct_of", lambda *_: None)


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("five by five")
@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_geometry_equals_the_reference(name):
    """int32, and bits under one pooling in turn; `EVERY_TILE` has the others of each tile."""
    images, (height, width, filters), options = GEOMETRIES[name]
    pool = (None, "or", "and")[list(GEOMETRIES).index(name) % 3]
    check(signs(*images), signs(height, width, images[3], filters, k=1), pools=(pool,), **options)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("c", [1, 60, 128, 129, 200, 256, 257, 384, 512, 700, 1024, 1030])
def test_every_number_of_channels_equals_the_reference(c):
    """Of 1 to 9 pieces, of which a step has 8: several taps in a step, and several steps for a tap."""
    check(signs(1, 3, 4, c), signs(2, 3, c, 5, k=1), pools=("or",))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("o", [1, 2, 4, 7, 64, 70, 300])
def test_every_number_of_filters_equals_the_reference(o):
    check(signs(2, 3, 3, 60), signs(2, 2, 60, o, k=1), pools=(None, "and"))


EVERY_TILE = {
    f"{kind}-{pool}-{tile.rows}x{tile.columns}": (kind, pool, tile)
    for kind, pool, output in (
        ("int", "none", "int32"),
        ("int16", "none", "int16"),
        ("bits", "none", "lines"),
        ("bits", "or", "lines"),
    )
    for tile in TILES[output]
}


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("*-200", "*-301")
@pytest.mark.gate_cases("*-200")  # 72 end in the first tile of columns, 301 in the second of the widest
@pytest.mark.parametrize("filters", [72, 200, 301])
@pytest.mark.parametrize("which", EVERY_TILE)
def test_every_tile_equals_the_reference(which, filters):
    kind, pool, tile = EVERY_TILE[which]
    x, w = signs(2, 9, 10, 40), signs(3, 2, 40, filters, k=1)
    np.testing.assert_array_equal(*launched(tile, x, w, kind, pool, simwarp.Device((9, 0)), 2), strict=True)


@pytest.mark.at_most(1)
@pytest.mark.pairwise
@pytest.mark.gate_cases("*-500-random", "*-1100-random")
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("c", [100, 200, 500, 1100])
@pytest.mark.parametrize("output", ["int", "int16", "bits", "pooled"])
def test_blocks_that_compute_several_tiles_are_right_under_every_schedule(schedule, c, output):
    """Rings turn several times, and the notes of a tile wait for those of two before."""
    x, w = signs(2, 9, 9, c), signs(3, 1, c, 66, k=1)
    kind, pool = ("bits", "and") if output == "pooled" else (output, "none")
    tile = TILES[{"int": "int32", "int16": "int16"}.get(output, "lines")][-1]
    device = simwarp.Device((9, 0), schedule=schedule)
    np.testing.assert_array_equal(*launched(tile, x, w, kind, pool, device, 1), strict=True)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("k", range(8))
def test_random_geometries_equal_the_reference(k):
    draw = Draw(0, "any geometry of wgmma", k)
    size, window = [(draw.integer(1, 6), draw.integer(1, 6)) for _ in range(2)]
    steps, gaps = [(draw.integer(1, 3), draw.integer(1, 3)) for _ in range(2)]
    spans = [(n - 1) * gap + 1 for n, gap in zip(window, gaps, strict=True)]
    pads = tuple(
        (max(span - n, 0) + draw.integer(0, 2), draw.integer(0, 3))
        for n, span in zip(size, spans, strict=True)
    )
    c = draw.integer(1, 300)
    x, w = signs(draw.integer(1, 3), *size, c, k=k), signs(*window, c, draw.integer(1, 70), k=k + 1)
    check(x, w, pools=(None, "or"), stride=steps, dilation=gaps, padding="SAME" if k % 2 else pads)


# Operands


def test_prepared_operands_serve_every_geometry_with_one_launch(monkeypatch):
    device = simwarp.Device((9, 0))
    x, w = signs(2, 5, 6, 70), signs(3, 3, 70, 20, k=1)
    images, filters = (
        gpu.prepare(device.upload(t), role, scheme="wgmma") for t, role in ((x, "x"), (w, "w"))
    )
    assert images.ones(device).download().tolist() == (x > 0).sum(3).ravel().tolist()
    for options in ({}, {"padding": "VALID"}, {"stride": 2}):
        expected = reference.bconv2d(x, w, **options)
        np.testing.assert_array_equal(gpu.bconv2d(images, filters, **options).download(), expected)
    launches = []
    launch = simwarp.Device.launch
    monkeypatch.setattr(
        simwarp.Device,
        "launch",
        lambda self, plan, arrays: launches.append(plan.name) or launch(self, plan, arrays),
    )
    np.testing.assert_array_equal(gpu.bconv2d(images, filters).download(), reference.bconv2d(x, w))
    assert launches == ["wgmma"]


@pytest.mark.at_most(2)
@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("c", [70, 128])
def test_packed_operands_equal_the_reference(word, c):
    x, w = signs(2, 3, 3, c), signs(2, 2, c, 35, k=1)
    packed = [reference.pack_tensor(t, layout=la, word=word) for t, la in ((x, "NHWC"), (w, "HWOI"))]
    y = gpu.bconv2d(*packed, scheme="wgmma", device=simwarp.Device((9, 0)))
    np.testing.assert_array_equal(y, reference.bconv2d(x, w))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("pool", [None, "or"])
@pytest.mark.parametrize("o", [33, 128])
def test_bits_are_the_next_convolutions_images(pool, o):
    device = simwarp.Device((9, 0))
    x, w, v = signs(1, 6, 5, 37).astype(np.float16), signs(3, 3, 37, o, k=1), signs(2, 2, o, 33, k=2)
    dots = reference.bconv2d(x, w)
    thresholds, flip = rule(dots)
    hidden = gpu.bconv2d(
        device.upload(x), w, scheme="wgmma", thresholds=thresholds, flip=flip, pool=pool, device=device
    )
    middle = reference.threshold_tensor(dots, thresholds, flip, pool=pool)
    y = gpu.bconv2d(hidden, v, scheme="wgmma")
    np.testing.assert_array_equal(y.download(), reference.bconv2d(middle, v))


def test_a_nan_is_reported():
    device, w = simwarp.Device((9, 0)), np.ones((1, 2, 3, 2))
    x = np.ones((1, 2, 2, 3), np.float32)
    x[0, 1, 1, 0] = np.nan
    with pytest.raises(NotANumberError, match=r"x\[0, 1, 1, 0\] is NaN"):
        gpu.bconv2d(x, w, scheme="wgmma", device=device)
    y = gpu.bconv2d(device.upload(x), w, scheme="wgmma")
    with pytest.raises(NotANumberError):
        y.download()


def test_thresholds_at_the_ends_of_dots_and_int32_are_exact():
    x, w = np.ones((1, 2, 2, 5), np.int8), np.ones((2, 2, 5, 8), np.int8)
    w[..., 4:] = -1
    thresholds = [INT32.min, 10, 11, INT32.max, INT32.min, -10, -9, INT32.max]
    packed = gpu.bconv2d(x, w, thresholds=thresholds, scheme="wgmma", device=simwarp.Device((9, 0)))
    at_the_right = reference.unpack_tensor(packed)[0, 0, 1]  # with two of four taps excluded: ±10
    assert at_the_right.tolist() == [1, 1, 0, 0, 1, 1, 0, 0]


# Sums of 16 bits


@pytest.mark.at_most(1)
@pytest.mark.parametrize("o", [1, 33, pytest.param(128, marks=pytest.mark.slow)])
def test_dot_products_of_16_bits_equal_the_reference(o):
    x, w, device = signs(2, 5, 4, 60), signs(3, 3, 60, o, k=1), simwarp.Device((9, 0))
    operands = x, gpu.prepare(w, "w", scheme="wgmma", device=device)
    for options in ({}, {"padding": ((0, 2), (3, 0)), "stride": (1, 2), "dilation": (2, 1)}):
        y = gpu.bconv2d(*operands, dtype=np.int16, device=device, **options)
        np.testing.assert_array_equal(y, reference.bconv2d(x, w, **options).astype(np.int16), strict=True)


@pytest.mark.gate
def test_16_bits_hold_dot_products_of_32767():
    x, w = np.ones((1, 1, 1, 32768), np.int8), np.ones((1, 1, 32768, 2), np.int8)
    w[..., 1] = -1
    options = {"scheme": "wgmma", "dtype": "int16", "device": simwarp.Device((9, 0))}
    assert gpu.bconv2d(x[..., :-1], w[:, :, :-1], **options).ravel().tolist() == [32767, -32767]
    with pytest.raises(DtypeError, match=r"windows have 32768 elements, dtype int16\n.*\nchoose int32"):
        gpu.bconv2d(x, w, **options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"scheme": "btc1"}, r"dtype=int16 with scheme='btc1'\n.*\nchoose scheme='wgmma'"),
        ({"thresholds": [0, 0]}, "thresholds and dtype are given"),
        ({"dtype": np.float32}, "float32"),
    ],
)
def test_dtypes_that_cannot_be_are_refused(options, error):
    options = {"dtype": "int16", "device": simwarp.Device((9, 0)), **options}
    with pytest.raises(SchemeError, match=error):
        gpu.bconv2d(signs(1, 2, 2, 3), signs(1, 1, 3, 2), **options)


# Plans


@pytest.mark.at_most(1)
@pytest.mark.parametrize("which", EVERY_TILE)
def test_shared_memory_of_every_tile_fits_a_block(which):
    kind, pool, tile = EVERY_TILE[which]
    plan = WGMMA.plan(conv_shape((1, 4, 4, 9), (3, 3, 9, 4)), kind, pool, (9, 0), 1, tile=tile)
    assert plan.shared <= 227 * 1024


def test_the_tile_follows_the_shape():
    def grid(shape, kind="bits"):
        plan = WGMMA.plan(conv_shape(*shape), kind, "none", (9, 0), 132)
        return plan.grid[0], re.search(r"m64n\d+k256", plan.ptx).group()

    assert grid(((64, 56, 56, 64), (3, 3, 64, 64))) == (132, "m64n64k256")
    assert grid(((64, 14, 14, 256), (3, 3, 256, 256))) == (98, "m64n256k256")


def test_other_chips_are_refused():
    for chip in ((8, 0), (7, 5), (10, 0)):
        with pytest.raises(SchemeError, match=rf"sm_{chip[0]}{chip[1]}\n.*sm_90a alone\nchoose btc1"):
            gpu.bconv2d(signs(1, 2, 2, 3), signs(1, 1, 3, 2), scheme="wgmma", device=simwarp.Device(chip))
        with pytest.raises(SchemeError):
            gpu.prepare(signs(1, 2, 2, 3), "x", scheme="wgmma", device=simwarp.Device(chip))


def test_long_dot_products_have_no_bits():
    shape = conv_shape((1, 1, 1, 2**29 + 1), (1, 1, 2**29 + 1, 1))
    with pytest.raises(SchemeError, match="536870913 elements, compared with thresholds"):
        WGMMA.plan(shape, "bits", "none", (9, 0), 1)


def test_filters_of_more_than_15_taps_across_are_for_other_schemes():
    x, w, device = signs(1, 20, 3, 40), signs(16, 1, 40, 2), simwarp.Device((9, 0))
    with pytest.raises(
        SchemeError, match=r"filters of 16 x 1\nat most 15 x 15 taps are possible\nchoose btc1"
    ):
        gpu.bconv2d(x, w, scheme="wgmma", device=device)
    np.testing.assert_array_equal(gpu.bconv2d(x, w, device=device), reference.bconv2d(x, w))


def test_other_layouts_and_preparations_are_refused():
    device, x, w = simwarp.Device((9, 0)), signs(1, 2, 2, 3), signs(1, 1, 3, 2)
    with pytest.raises(FormatError, match="wgmma takes layout='NHWC'"):
        gpu.bconv2d(reference.pack_tensor(x, layout="HWNC-FSB"), w, scheme="wgmma", device=device)
    with pytest.raises(SchemeError, match="prepared for btc1"):
        gpu.bconv2d(gpu.prepare(x, "x", scheme="btc1", device=device), w, scheme="wgmma")


# Mutants

CONVOLUTION, ADDENDS, WINDOWS = "bconv/wgmma.cu", "bconv/btc_operands.cu", "bconv/windows.cuh"
NOTES = "bconv/notes.cuh"
IM2COL, GATHERED = "bconv/im2col.cuh", "bconv/gathered.cuh"
TILE, MAPS = "include/bmm/warpgroup_tile.cuh", "include/warpgroup.cuh"
MUTANTS = {
    "no border": ("int", CONVOLUTION, "notes.table_of_row[r] = kind;", "notes.table_of_row[r] = inside;"),
    "no border of its own": ("own", CONVOLUTION, "kind == inside ? nullptr", "kind != ~0u ? nullptr"),
    "another border": ("own", CONVOLUTION, "(Index)kind * x.pitch +", "(Index)(kind + 1) * x.pitch +"),
    "absolute addends": ("int", ADDENDS, "mine - whole", "mine"),
    "rows not dilated": ("int", WINDOWS, "down(r * shape.dilation_h)", "down(r)"),
    "columns not dilated": ("int", WINDOWS, "across(s * shape.dilation_w)", "across(s)"),
    "no padding": (
        "int",
        WINDOWS,
        "column(column_of_tap(shape, of.column, 0))",
        "column(of.column * shape.stride_w)",
    ),
    "a tap whose ones are left out": ("int", CONVOLUTION, "first + t < taps &&", "first + t + 1 < taps &&"),
    "taps in another order": ("int", CONVOLUTION, "if (++s == shape", "if (++s == 1 + shape"),
    "a piece of pixels too many": (
        "long",
        IM2COL,
        "(next.byte == bytes_of",
        "(next.byte - piece_bytes == bytes_of",
    ),
    "a column of taps too many": ("long", IM2COL, "if (next.s == shape", "if (next.s == 1 + shape"),
    "pieces on one another": ("int", IM2COL, "stage.a + piece * rows * piece_bytes", "stage.a"),
    "taps not dilated": ("int", IM2COL, "at.r * shape.dilation_h", "at.r"),
    "windows of another pixel": ("int", IM2COL, "column_of_tap(shape, pixel.column, 0)", "pixel.column"),
    "pieces that nobody waits for": ("int", IM2COL, "pieces * rows * piece_bytes +", ""),
    "filters that nobody waits for": ("int", IM2COL, " + sizeof(stage.b)", ""),
    "pieces brought too early": (
        "long",
        IM2COL,
        "            wait(shared.empty[turn.at], turn.parity ^ 1);",
        "",
    ),
    "rows of products further apart": ("int", MAPS, "down = span * atom_rows >> 4", "down = span >> 4"),
    "a piece too many": ("gathered", GATHERED, "if (piece >= pieces)", "if (piece > pieces)"),
    "a column too many": (
        "gathered",
        GATHERED,
        "if (s >= shape.filter_width)",
        "if (s > shape.filter_width)",
    ),
    "chunks not swizzled": (
        "pooled",
        GATHERED,
        "chunk_of_lane ^ (row_of_lane + i * rows_at_once) % atom_rows",
        "chunk_of_lane",
    ),
    "chunks left out": ("pooled", GATHERED, "chunk_of_lane >= needed", "chunk_of_lane >= needed - 1"),
    "another row's window": ("pooled", GATHERED, "j * rows_at_once + row_of_lane", "j * rows_at_once"),
    "taps outside": ("pooled", GATHERED, "(inside[i] & taps) == taps", "(inside[i] & taps) != 0"),
    "stages filled too early": (
        "gathered",
        GATHERED,
        "            wait(shared.empty[turn.at], turn.parity ^ 1);",
        "",
    ),
    "stages read too early": (
        "gathered",
        GATHERED,
        "arrive_with_chunks(shared.full[turn.at])",
        "arrive(shared.full[turn.at])",
    ),
    "chunks not shown to products": ("pooled", TILE, "    show_to_copies();\n#endif", "#endif"),
    "threads that nobody waits for": ("pooled", GATHERED, "1 + bringing", "1 + bringing / 2"),
    "notes read too early": ("int", TILE, "wait(shared.written[note.at], note.parity);", ""),
    "constants left out": (
        "own",
        CONVOLUTION,
        "known = before, before = column;",
        "known = before = column;",
    ),
    "a row of a window left out": (
        "pooled",
        NOTES,
        "    word |= __shfl_xor_sync(all_lanes, word, 8);\n",
        "",
    ),
    "no flips": ("pooled", NOTES, "is_filter && x.flip[at] != 0", "false"),
}
CONVOLUTIONS = {
    "int": ((2, 8, 8, 200), (3, 2, 66), "int", "none", TILES["int32"][-1], {"dilation": 2}),
    "long": ((2, 8, 8, 1200), (3, 2, 66), "int", "none", TILES["int32"][-1], {"dilation": 2}),
    "gathered": (
        (1, 310, 2, 4000),
        (2, 1, 34),
        "int",
        "none",
        TILES["int32"][-1],
        {"dilation": (300, 1), "padding": "VALID"},
    ),
    "own": ((1, 2, 2, 100), (1, 1, 60), "int", "none", TILES["int32"][-1], {"padding": ((8, 8), (8, 8))}),
    "pooled": ((2, 8, 8, 200), (3, 2, 66), "bits", "or", TILES["lines"][-1], {"dilation": 2}),
}
"""Several taps in a step, a tap of more than a step, taps too far for a map, many borders, and pooled."""


def convolve(which):
    images, (height, width, filters), kind, pool, tile, options = CONVOLUTIONS[which]
    x, w = signs(*images), signs(height, width, images[3], filters, k=1)
    got, expected = launched(tile, x, w, kind, pool, simwarp.Device((9, 0)), 1, **options)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_found(monkeypatch, tmp_path, name):
    check_found(MUTANTS[name], convolve, monkeypatch, tmp_path)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("which", CONVOLUTIONS)
def test_the_kernel_itself_is_right(which):
    convolve(which)
