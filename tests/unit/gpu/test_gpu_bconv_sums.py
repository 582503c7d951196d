"""The ±1 convolution that adds another array to its dot products, on the simulator."""

import numpy as np
import pytest

import simwarp
from gpu.bconv import direct
from gpu.bconv.direct import Sum
from gpu.bconv.geometry import conv_shape
from gpu.bconv.warpgroups import sums_of
from support.convolution_mutants import check_found
from support.wgmma_convolutions import added, signs

KINDS = {
    "sums": Sum(0),
    "bits": Sum(0, bits=True),
    "pooled": Sum(0, pooled=True),
    "pooled, bits": Sum(0, bits=True, pooled=True),
}


def of_kind(kind, channels, before=0):
    return Sum(channels, before, KINDS[kind].bits, KINDS[kind].pooled)


def differs(x, w, sum_of, blocks=132, device=None, **options):
    """Whether sums or bits are not what they should be."""
    found, expected = added(x, w, sum_of, device or simwarp.Device((9, 0)), blocks, **options)
    return not all(map(np.array_equal, found, expected))


SHAPES = {
    "one image": ((1, 8, 8, 40), 64),
    "many images in a tile": ((9, 2, 4, 40), 64),
    "two boxes of columns": ((3, 8, 8, 40), 128),
    "filters past the tile": ((2, 10, 6, 128), 72),
    "tiles past the image": ((1, 6, 20, 70), 8),
    "pixels of 32 bytes": ((1, 4, 6, 200), 160),
}


@pytest.mark.at_most(1)
@pytest.mark.singly
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SHAPES)
def test_sums_and_their_bits_equal_the_reference(name, kind):
    images, filters = SHAPES[name]
    x, w, sum_of = signs(*images), signs(3, 3, images[3], filters, k=1), of_kind(kind, filters)
    blocks = 2 if filters == 128 else 132  # few enough that a block takes wide tiles
    made = sums_of(conv_shape(x.shape, w.shape), sum_of, blocks)
    assert made.tile.boxes == made.tile.columns // 64 == 1 + (filters == 128)
    assert not differs(x, w, sum_of, blocks)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("channels", "before"), [(64, 32), (8, 0), (8, 120), (40, 64)])
def test_channels_of_zeros_are_added_around_others(channels, before, kind):
    x, w = signs(2, 6, 4, 30), signs(1, 3, 30, 128, k=1)
    assert not differs(x, w, of_kind(kind, channels, before))


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("*-random")
@pytest.mark.gate_cases("sums-random", "bits-random", "pooled-random")  # "pooled, bits" does what they do
@pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_block_with_several_tiles_is_right_under_every_schedule(schedule, kind):
    """Boxes bring what is added when the sums of the tile before have left them."""
    device = simwarp.Device((9, 0), schedule=schedule)
    assert not differs(signs(7, 8, 8, 8), signs(1, 1, 8, 8, k=1), of_kind(kind, 8), 1, device)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("options", [{"stride": 2}, {"dilation": 2}, {"padding": "VALID"}])
def test_every_geometry_equals_the_reference(options):
    x, w = signs(2, 12, 12, 64), signs(3, 3, 64, 16, k=1)
    assert not differs(x, w, of_kind("bits", 16), **options)


@pytest.mark.parametrize(
    ("images", "filters", "sum_of"),
    [
        ((1, 8, 8, 512), 64, Sum(64)),
        ((1, 8, 8, 64), 60, Sum(60)),
        ((1, 8, 8, 64), 64, Sum(60)),
        ((1, 8, 8, 64), 64, Sum(32, 4)),
    ],
    ids=["copied windows are faster", "filters", "channels", "channels before"],
)
def test_what_copies_cannot_bring_is_left_to_launches_of_its_own(images, filters, sum_of):
    assert sums_of(conv_shape(images, (3, 3, images[3], filters)), sum_of, 132) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filters", [64, 128, 256])
def test_shared_memory_fits_a_block(filters, kind):
    made = sums_of(conv_shape((512, 28, 28, 256), (3, 3, 256, filters)), of_kind(kind, filters), 132)
    assert made.shared <= 227 * 1024
    assert made.tile.teams == direct.TEAMS


# Mutants

CONVOLUTION, NOTES = "bconv/direct.cu", "bconv/notes.cuh"
MUTANTS = {
    "boxes before sums have left": ("many", CONVOLUTION, "        wait_for_reads<0>();\n", ""),
    "sums before boxes have come": (
        "small",
        CONVOLUTION,
        "            wait(added.came, added.parity), added.parity ^= 1;\n",
        "",
    ),
    "the phase before": ("many", CONVOLUTION, ", added.parity ^= 1;", ";"),
    "the first box": ("wide", CONVOLUTION, "at(column / box_columns, added", "at(0, added"),
    "no zeros in front": ("small", CONVOLUTION, " - patch.before,", ","),
    "bits of dot products": ("small", CONVOLUTION, "x - limits.x, y - limits.y", "x - there.x, y - limits.y"),
    "sums that copies do not see": (
        "small",
        CONVOLUTION,
        "    show_to_copies();\n    __syncwarp();\n    if (place.lane == 0)\n        for",
        "    __syncwarp();\n    if (place.lane == 0)\n        for",
    ),
    "another corner": ("pooled", CONVOLUTION, "line + corner / 2 * added.across", "line + corner / 2"),
    "a window of another row": ("pooled", CONVOLUTION, "* added.across + corner % 2", "* added.across"),
    "the smaller one": ("pooled", CONVOLUTION, "max.s16x2", "min.s16x2"),
    "pooled without a signal to the warp": (
        "pooled",
        CONVOLUTION,
        "    __syncwarp();\n    const unsigned i = place.first_row",
        "    const unsigned i = place.first_row",
    ),
    "unsigned sums": ("pooled", CONVOLUTION, "max.s16x2", "max.u16x2"),
    "no flips": ("small", NOTES, "is_filter && x.flip[at] != 0", "false"),
    "thresholds of the columns before": (
        "small",
        NOTES,
        "max(-beyond_int16, min(x.thresholds[at]",
        "max(-1, min(x.thresholds[at]",
    ),
}
CONVOLUTIONS = {
    "small": ((2, 5, 7, 60), 128, of_kind("bits", 64, 32), 132),
    "wide": ((3, 8, 8, 60), 128, of_kind("bits", 128), 2),
    "many": ((6, 8, 8, 8), 8, of_kind("sums", 8), 1),
    "pooled": ((1, 4, 12, 60), 64, of_kind("pooled", 64), 132),
}


def convolve(which):
    images, filters, sum_of, blocks = CONVOLUTIONS[which]
    assert not differs(signs(*images), signs(3, 3, images[3], filters, k=1), sum_of, blocks)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_found(monkeypatch, tmp_path, name):
    check_found(MUTANTS[name], convolve, monkeypatch, tmp_path)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("which", CONVOLUTIONS)
def test_the_kernel_itself_is_right(which):
    convolve(which)
