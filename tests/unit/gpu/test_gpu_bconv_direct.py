"""The ±1 convolution from patches of images, on the simulator: every tile, output, schedule and geometry."""

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bconv import direct, warpgroups
from gpu.bconv.geometry import conv_shape
from gpu.bconv.warpgroups import tables_of
from reference.errors import ShapeError
from simwarp.verify.draw import Draw
from support.convolution_mutants import check_found
from support.wgmma_convolutions import GEOMETRIES, WGMMA, check, launched, signs

OUTPUTS = {
    "int": ("int", "none"),
    "int16": ("int16", "none"),
    "bits": ("bits", "none"),
    "pooled": ("bits", "or"),
}
KINDS = {"int": "int32", "int16": "int16", "bits": "lines"}


def of_patches(x, w, kind, pool, blocks=132, **options):
    """The launch from patches for images and filters of these shapes, if there is one."""
    shape = conv_shape(x, w, **options)
    kinds = tables_of(direct.Borders.of(shape).rows(shape))
    return direct.direct_of(shape, KINDS[kind], pool, kinds, blocks)


def differs(x, w, output, blocks=132, device=None, **options):
    """Whether the convolution by so many blocks is not what it should be."""
    kind, pool = OUTPUTS[output]
    tile = of_patches(x.shape, w.shape, kind, pool, blocks, **options)
    assert tile is not None
    found, expected = launched(tile, x, w, kind, pool, device or simwarp.Device((9, 0)), blocks, **options)
    return not np.array_equal(found, expected)


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("five by five", "dilation", "padding beyond the filter", "all at once", "valid")
@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_geometry_equals_the_reference(name):
    """int32, and bits that are pooled for every second geometry; `OUTPUTS` are crossed with others below."""
    images, (height, width, filters), options = GEOMETRIES[name]
    pool = (None, "and")[list(GEOMETRIES).index(name) % 2]
    check(signs(*images), signs(height, width, images[3], filters, k=1), pools=(pool,), **options)


@pytest.mark.at_most(2)
@pytest.mark.pairwise
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("c", [1, 128, 129, 256, 300, 512, 600, 1024])
@pytest.mark.parametrize("filters", [3, 64, 72, 160])
def test_pixels_of_16_to_128_bytes_equal_the_reference(c, filters, output):
    """With and without a swizzle, chunks of a product in one tap and in two, stores of boxes and of pairs."""
    assert not differs(signs(1, 3, 5, c), signs(3, 2, c, filters, k=1), output)


PAIRED = {
    "one tap": ((3, 5, 4), (1, 1), {}),
    "one column of taps": ((1, 6, 6), (3, 1), {"dilation": (2, 1)}),
    "an odd number of taps": ((2, 9, 10), (3, 3), {}),
    "as many taps as fill a product": ((1, 5, 8), (2, 2), {"padding": "VALID"}),
    "no pixel before the first tap": ((1, 9, 8), (5, 5), {}),
    "odd strides": ((1, 9, 12), (3, 3), {"stride": (2, 3), "dilation": (1, 2), "padding": ((0, 1), (3, 2))}),
    "taps far outside": ((1, 2, 2), (2, 4), {"padding": ((1, 1), (3, 2))}),
    "tiles of one column": ((1, 66, 2), (1, 2), {"padding": "VALID"}),
}


@pytest.mark.at_most(1)
@pytest.mark.singly
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(("c", "filters"), [(33, 72), (64, 64), (64, 160), (50, 3)])
@pytest.mark.parametrize("name", PAIRED)
def test_pixels_that_share_16_bytes_equal_the_reference(name, c, filters, output):
    images, (height, width), options = PAIRED[name]
    output = output if images[2] > 2 else output.replace("pooled", "bits")
    x, w = signs(*images, c), signs(height, width, c, filters, k=1)
    assert direct.pixel_of(conv_shape(x.shape, w.shape, **options)) == 8
    assert not differs(x, w, output, 2, **options)


@pytest.mark.at_most(1)
@pytest.mark.parametrize(
    "k",
    [
        *range(6),
        *(pytest.param(k, marks=pytest.mark.slow) for k in range(6, 12)),
        *(pytest.param(k, marks=pytest.mark.gate) for k in range(12, 40)),
    ],
)
def test_random_geometries_of_pixels_that_share_16_bytes_equal_the_reference(k):
    draw = Draw(0, "paired pixels", k)
    size, window = (draw.integer(1, 9), 2 * draw.integer(1, 8)), (draw.integer(1, 5), draw.integer(1, 5))
    steps, gaps = [(draw.integer(1, 3), draw.integer(1, 3)) for _ in range(2)]
    spans = [(n - 1) * gap + 1 for n, gap in zip(window, gaps, strict=True)]
    pads = tuple(
        (max(span - n, 0) + draw.integer(0, 2), draw.integer(0, 3))
        for n, span in zip(size, spans, strict=True)
    )
    c = draw.integer(33, 64)
    x, w = signs(draw.integer(1, 3), *size, c, k=k), signs(*window, c, draw.integer(1, 70), k=k + 1)
    check(x, w, pools=(None, "or"), stride=steps, dilation=gaps, padding="SAME" if k % 2 else pads)


def test_an_odd_line_has_no_pairs(monkeypatch):
    """Its bytes are no multiple of 16, and no tensor map takes them."""
    shape = (1, 5, 5, 64), (3, 3, 64, 8)
    assert direct.pixel_of(conv_shape(*shape)) == 16
    monkeypatch.setattr(direct, "is_paired", lambda *_: True)
    with pytest.raises(ShapeError, match="a stride of 40 bytes"):
        gpu.bconv2d(signs(*shape[0]), signs(*shape[1]), scheme="wgmma", device=simwarp.Device((9, 0)))


@pytest.mark.gate
def test_filters_serve_lines_with_and_without_pairs(monkeypatch):
    """One launch spreads their taps when a line is odd or windows are copied; images of pairs stay."""
    device, launches = simwarp.Device((9, 0)), []
    launch = simwarp.Device.launch
    monkeypatch.setattr(
        simwarp.Device,
        "launch",
        lambda self, plan, arrays: launches.append(plan.name) or launch(self, plan, arrays),
    )
    w = signs(3, 3, 64, 8, k=1)
    filters = gpu.prepare(w, "w", scheme="wgmma", device=device)

    def launched_for(width):
        x = signs(2, 4, width, 64)
        packed = gpu.pack_tensor(device.upload(x), layout="NHWC")
        del launches[:]
        y = gpu.bconv2d(packed, filters).download()
        np.testing.assert_array_equal(y, reference.bconv2d(x, w))
        return [name for name in launches if name not in ("sum_filters", "add_borders")]

    assert launches == ["pack_filters", "to_pairs"]
    assert launched_for(6) == launched_for(8) == ["direct"]
    assert launched_for(5) == ["to_units", "to_units", "direct"]  # images, filters
    assert launched_for(7) == ["to_units", "direct"]
    monkeypatch.setattr(warpgroups, "direct_of", lambda *_: None)
    assert launched_for(10) == ["to_units", "count_ones", "wgmma"]


@pytest.mark.at_most(1)
@pytest.mark.pairwise
@pytest.mark.parametrize("schedule", ["lowest pc", "stack", pytest.param("random", marks=pytest.mark.slow)])
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("size", [(3, 11, 9), (3, 11, 10), (70, 2, 2)])
def test_a_block_with_several_tiles_is_right_under_every_schedule(schedule, output, size):
    """Each warpgroup has more tiles than one, and patches come into memory that others have left."""
    device = simwarp.Device((9, 0), schedule=schedule)
    assert not differs(signs(*size, 40), signs(2, 2, 40, 20, k=1), output, 1, device)


def test_the_outputs_of_a_tile_follow_the_size_of_images():
    def outputs(size, filters=64, pool="none", c=128):
        made = of_patches((64, *size, c), (3, 3, c, filters), "bits", pool)
        return made.patch.images, made.patch.down, made.patch.across, made.tile.columns

    assert outputs((64, 64)) == outputs((56, 56), c=64) == (1, 8, 8, 64)
    assert outputs((64, 64), 128) == (1, 8, 8, 128)
    assert outputs((4, 200))[1:3] == (4, 16)
    assert outputs((64, 64), c=64)[1:3] == (4, 16)  # 6 lines of 20 pixels are as many as 10 of 12
    assert outputs((2, 2), pool="or")[:3] == (8, 2, 4)
    assert outputs((1, 1), filters=8)[:3] == (8, 2, 4)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("c", [64, 384, 1024])
def test_shared_memory_fits_a_block(output, c):
    kind, pool = OUTPUTS[output]
    made = of_patches((16, 64, 64, c), (3, 3, c, c), kind, pool)
    assert made.shared <= 227 * 1024
    assert made.patches >= made.tile.teams == 4


@pytest.mark.parametrize(("tiles", "teams"), [(1, 1), (132, 1), (133, 2), (264, 2), (396, 2), (397, 4)])
def test_a_block_has_warpgroups_for_its_tiles(tiles, teams):
    made = of_patches((tiles, 8, 8, 64), (3, 3, 64, 64), "bits", "none")
    assert (made.patch.tiles, made.tile.teams) == (tiles, teams)


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((1, 9, 9, 1025), (1, 1, 1025, 8), {}),
        ((1, 9, 9, 1024), (5, 5, 1024, 128), {}),
        ((1, 9, 900, 8), (1, 2, 8, 8), {"dilation": (1, 800), "padding": "VALID"}),
        ((1, 20, 20, 8), (9, 9, 8, 8), {}),
    ],
)
def test_what_does_not_fit_is_for_copied_windows(x, w, options):
    """Large pixels, filters and patches, and too many kinds of windows."""
    assert of_patches(x, w, "int", "none", **options) is None
    assert WGMMA.plan(conv_shape(x, w, **options), "int", "none", (9, 0), 132).name == "wgmma"


@pytest.mark.at_most(1)
@pytest.mark.parametrize(
    ("c", "pool", "name"),
    [
        (64, "none", "direct"),
        (256, "none", "direct"),
        (384, "none", "direct"),
        (512, "none", "wgmma"),
        (512, "or", "direct"),
    ],
)
def test_patches_are_used_where_they_are_faster(c, pool, name):
    plan = WGMMA.plan(conv_shape((64, 16, 16, c), (3, 3, c, 128)), "bits", pool, (9, 0), 132)
    assert plan.name == name
    assert "m64n128k256" in plan.ptx
    assert plan.grid[0] <= 132


# Mutants

CONVOLUTION, NOTES, REGISTERS = "bconv/direct.cu", "bconv/notes.cuh", "include/warpgroup.cuh"
OPERANDS = "bconv/btc_operands.cu"
MUTANTS = {
    "another column of the patch": (
        "int",
        CONVOLUTION,
        "column = column_of_tap(shape, origin.column, 0)",
        "column = origin.column",
    ),
    "rows not apart": ("int", CONVOLUTION, "spot.row * shape.stride_h;", "spot.row;"),
    "taps not dilated": (
        "int",
        CONVOLUTION,
        "bytes += shape.dilation_w * pixel_bytes;",
        "bytes += pixel_bytes;",
    ),
    "a row of taps too many": ("int", CONVOLUTION, "if (++s < shape", "if (++s <= shape"),
    "not swizzled": ("wide", CONVOLUTION, "start ^ (start / atom_bytes & swizzled) * chunk", "start"),
    "chunks past the last tap": ("int", CONVOLUTION, "r < shape.filter_height;", "true;"),
    "ones of one row": ("int", CONVOLUTION, " + __popc(a.words[part][2 + r]);", ";"),
    "ones of half a quad": ("int", CONVOLUTION, "of_row += __shfl_xor_sync(all_lanes, of_row, 2);", ""),
    "registers that a product reads": (
        "int",
        CONVOLUTION,
        "        wait_for_products<1>();  // the third",
        "        // the third",
    ),
    "sums of the tile before": ("int", CONVOLUTION, "b, i > 0);", "b, true);"),
    "patches left too early": (
        "many",
        CONVOLUTION,
        "        wait(room.empty[turn.at], turn.parity ^ 1);",
        "",
    ),
    "patches read too early": ("int", CONVOLUTION, "        wait(room.full[turn.at], turn.parity);\n", ""),
    "filters read too early": (
        "int",
        CONVOLUTION,
        "if (is_first && product == 0) wait(memory.room.filled[step], 0);",
        "",
    ),
    "copies between pairs": ("pairs", CONVOLUTION, "column - pixels_before(shape, origin)", "column"),
    "pixels before the first tap": ("pairs", CONVOLUTION, "before, room.zeros", "0 * before, room.zeros"),
    "first taps for a whole quad": ("pairs", CONVOLUTION, "        chunks.begin(place);\n", ""),
    "the other half of a quad": ("pairs", CONVOLUTION, "place.lane % 4 >= 2", "place.lane % 4 < 2"),
    "one tap in a chunk": ("pairs", CONVOLUTION, "tap < taps_of_chunk; ++tap", "tap < 1; ++tap"),
    "words of the next pixel": ("pairs", CONVOLUTION, "place.lane % words * 4", "place.lane % 4 * 4"),
    "a tap past the last one": ("pairs", CONVOLUTION, "r < shape.filter_height;", "true;"),
    "filters with one tap twice": ("pairs", OPERANDS, "words[(tap + 1) * filters", "words[tap * filters"),
    "ones of other taps": (
        "pairs",
        OPERANDS,
        "first * filter_step + in_tile",
        "first * words_of_tap + in_tile",
    ),
    "no border": ("int", CONVOLUTION, "exists ? x.borders.of_pixel(shape, pixel) : 0", "0"),
    "tables read too early": (
        "int",
        CONVOLUTION,
        '    asm volatile("bar.sync',
        '    if (threadIdx.x == ~0u) asm volatile("bar.sync',
    ),
    "another corner of a window": ("pooled", CONVOLUTION, "% down * side + corner / 2", "% down * side"),
    "no flips": ("pooled", NOTES, "is_filter && x.flip[at] != 0", "false"),
    "halves of a product the other way": (
        "int",
        REGISTERS,
        '"r"(a[0]), "r"(a[1]), "r"(a[2])',
        '"r"(a[2]), "r"(a[1]), "r"(a[0])',
    ),
}
CONVOLUTIONS = {
    "int": ((1, 17, 9, 100), (3, 3, 100, 20), "int", {"stride": (2, 1), "dilation": (1, 2)}),
    "pairs": ((1, 9, 12, 64), (3, 3, 64, 20), "int", {"stride": (1, 2), "padding": ((1, 1), (1, 1))}),
    "many": ((12, 8, 8, 8), (1, 1, 8, 8), "int", {}),
    "wide": ((1, 5, 9, 400), (2, 2, 400, 20), "int", {}),
    "pooled": ((2, 8, 8, 200), (3, 2, 200, 66), "pooled", {}),
}


def assert_right(which):
    images, filters, output, options = CONVOLUTIONS[which]
    assert not differs(signs(*images), signs(*filters, k=1), output, 1, **options)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_found(monkeypatch, tmp_path, name):
    check_found(MUTANTS[name], assert_right, monkeypatch, tmp_path)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("which", CONVOLUTIONS)
def test_the_kernel_itself_is_right(which):
    assert_right(which)
