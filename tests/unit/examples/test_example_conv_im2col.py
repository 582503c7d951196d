"""The convolution of `examples/pipelines` is right under all schedules; its mutants are found."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import simwarp
from reference.errors import ShapeError
from simwarp.faults import (
    BarrierFault,
    CopyInFlight,
    MemoryFault,
    ProductInFlight,
    Race,
    TensorMapFault,
    UninitialisedRead,
    WrongDescriptor,
)
from simwarp.lab import recording as lab
from simwarp.testing import assert_same_bits
from support.pipeline_mutants import SCHEDULES, STUCK, TOO_EARLY, mostly_gate, plant

module = lab.example("pipelines", "conv_im2col")
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
slow = partial(pytest.param, marks=pytest.mark.slow)


def operands(images, filters, seed=5):
    """Images and filters of multiples of 1/8."""
    numbers = np.random.default_rng(seed)
    return [(numbers.integers(-16, 17, shape) / 8).astype(np.float16) for shape in (images, filters)]


def convolution(images, filters, stride, padding):
    """The convolution by its definition: each pixel is a sum over taps and channels, in units of 1/64."""
    images, filters = ((8 * x.astype(np.float64)).astype(np.int64) for x in (images, filters))
    (n, *sizes, _), (k, *taps, _) = images.shape, filters.shape
    p, q = (len(range(-padding[i], sizes[i] + padding[i] - taps[i] + 1, stride)) for i in (0, 1))
    sums = np.zeros((n, p, q, k), np.int64)
    for at in np.ndindex(p, q, *taps):
        y, x = (stride * at[i] - padding[i] + at[2 + i] for i in (0, 1))
        if 0 <= y < sizes[0] and 0 <= x < sizes[1]:
            sums[:, at[0], at[1]] += images[:, y, x] @ filters[:, at[2], at[3]].T
    return (sums / 64).astype(np.float32)


def assert_right(device, images, filters, stride=1, padding=(0, 0), **options):
    given = operands(images, filters)
    got = module.conv2d(device, *given, stride, padding, **options)
    assert_same_bits(convolution(*given, stride, padding), got)


@pytest.mark.at_most(2)
@every_schedule
@pytest.mark.parametrize(
    ("images", "filters", "stride", "padding"),
    [
        ((1, 1, 1, 8), (1, 1, 1, 8), 1, (0, 0)),
        ((2, 6, 7, 8), (9, 1, 1, 8), 1, (0, 0)),  # 84 pixels: the second tile begins in the second image
        ((2, 4, 16, 16), (64, 1, 1, 16), 1, (0, 0)),  # two whole tiles
        ((70, 1, 1, 72), (3, 1, 1, 72), 1, (0, 0)),  # images of one pixel; two steps a tap
        ((3, 9, 11, 64), (65, 1, 1, 64), 2, (0, 0)),  # 90 pixels, two tiles of filters
        ((3, 5, 5, 24), (40, 3, 3, 24), 1, (1, 1)),
        ((5, 7, 9, 8), (7, 3, 3, 8), 2, (1, 1)),
        ((2, 5, 8, 16), (17, 5, 3, 16), 1, (2, 1)),
        ((9, 8, 11, 8), (5, 4, 3, 8), 2, (0, 1)),
        ((3, 10, 13, 8), (3, 2, 4, 8), 3, (1, 0)),  # an even filter; the stride leaves lines out
        ((2, 2, 3, 8), (2, 3, 3, 8), 1, (4, 5)),  # some pixels meet nothing but padding
        ((2, 5, 3, 8), (4, 5, 3, 8), 1, (0, 0)),  # one pixel an image
    ],
    ids=str,
)
def test_the_convolution_equals_its_definition(images, filters, stride, padding, schedule):
    assert_right(simwarp.Device(schedule=schedule), images, filters, stride, padding)


@pytest.mark.at_most(1)
@every_schedule
@pytest.mark.parametrize("channels", [1, 5, 8, 40, 56, 64, slow(65), slow(72), slow(130)])
def test_any_number_of_channels(channels, schedule):
    """Where 16 bytes hold more than the channels, NaN fills them: the map ends before."""
    device = simwarp.Device(schedule=schedule)
    assert_right(device, (3, 5, 6, channels), (6, 3, 3, channels), padding=(1, 1))


@pytest.mark.slow
@pytest.mark.at_most(1)
@every_schedule
@pytest.mark.parametrize("stages", [2, 3, slow(7)])
def test_any_number_of_stages(stages, schedule):
    device = simwarp.Device(schedule=schedule)
    assert_right(device, (3, 6, 7, 8), (4, 3, 3, 8), padding=(1, 1), stages=stages)


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.gate_cases("*-lowest pc")
@pytest.mark.singly
@every_schedule
@pytest.mark.parametrize("stride", [1, 2])
def test_many_tiles_of_pixels_and_filters(stride, schedule):
    device = simwarp.Device(schedule=schedule)
    assert_right(device, (3, 13, 11, 24), (70, 5, 3, 24), stride, (2, 1))


@pytest.mark.gate
def test_the_convolution_runs_on_a_gpu_too(simwarp_device):
    assert_right(simwarp_device, (3, 9, 8, 72), (70, 5, 3, 72), 2, (2, 1))


def test_a_filter_larger_than_the_padded_image_is_refused():
    with pytest.raises(ShapeError):
        assert_right(simwarp.Device(), (1, 2, 9, 8), (4, 5, 3, 8), 1, (1, 1))


@pytest.mark.slow
def test_stages_are_filled_while_others_are_read():
    device = simwarp.Device(observe="pipeline")
    module.conv2d(device, *operands((1, 4, 5, 8), (4, 3, 2, 8)), stages=3)
    turns = device.report.pipeline.turns
    assert (len(turns), len({turn.stage for turn in turns})) == (6, 3)
    assert {turn.bytes for turn in turns} == {2 * 64 * 128}
    assert turns[1].issued < turns[0].filled


# ---- mutants ---------------------------------------------------------------------------------------------

IMAGES, FILTERS, STRIDE, PADDING = (6, 7, 4, 24), (10, 3, 2, 24), 2, (1, 1)
"""72 pixels of 4 x 3 an image: the second tile begins in line 1, column 1 of the last one. Six steps."""


def result_of_mutant(schedule):
    device = simwarp.Device(schedule=schedule, instruction_budget=200_000)
    return module.conv2d(device, *operands(IMAGES, FILTERS), STRIDE, PADDING, stages=2)


def assert_wrong(result):
    assert not np.array_equal(result, convolution(*operands(IMAGES, FILTERS), STRIDE, PADDING))


@pytest.mark.at_most(1)
@mostly_gate
@pytest.mark.parametrize(
    ("line", "replacement", "kinds"),
    [
        ("&full, sizeof(Stage));", "&full, sizeof(Stage) / 2);", (BarrierFault, *TOO_EARLY)),
        ("&full, sizeof(Stage));", "&full, shape.c * 2 * 2 * tile);", STUCK),
        ("&full, sizeof(Stage));", "&full, sizeof(Stage) + 16);", STUCK),
        ("wait(ring.full[at], round % 2);", "", TOO_EARLY),
        ("wait(ring.full[at], round % 2);", "wait(ring.full[at], (round + 1) % 2);", (*TOO_EARLY, *STUCK)),
        ("wait(ring.empty[at], (round + 1) % 2);", "", (BarrierFault, CopyInFlight)),
        ("wait(ring.empty[at], (round + 1) % 2);", "wait(ring.empty[at], round % 2);", STUCK),
        ("if (step > 0 && threadIdx.x % warp_size == 0)", "if (false)", STUCK),
        ("if (step > 0 && threadIdx.x % warp_size == 0)", "if (step > 0 && threadIdx.x == 0)", STUCK),
        ("&ring.empty[i], warps)", "&ring.empty[i], 1)", (CopyInFlight, *STUCK)),
        ("wait_products<1>();", "wait_products<2>();", CopyInFlight),
        ("wait_products<0>();", "", ProductInFlight),
        ("        commit();\n", "", CopyInFlight),
        ("        fence_registers();\n", "", ProductInFlight),
        ("    __syncthreads();\n", "", (BarrierFault, Race)),
        ("pixel < pixels && filter < shape.k", "filter < shape.k", MemoryFault),
        ("pixel < pixels && filter < shape.k", "pixel < pixels", (Race, MemoryFault)),
        (
            "h = pixel / shape.q % shape.p * shape.stride - ",
            "h = pixel / shape.q % shape.p * 7 - ",
            TensorMapFault,
        ),
        ("stage.filters, filters, c, s,", "stage.images, filters, c, s,", (CopyInFlight, UninitialisedRead)),
    ],
)
def test_a_mutant_of_the_kernel_is_named(line, replacement, kinds, schedule, monkeypatch):
    plant(module, line, replacement, monkeypatch)
    with pytest.raises(kinds):
        result_of_mutant(schedule)


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.singly
@every_schedule
@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ('"h"(s), "h"(r)', '"h"(r), "h"(s)'),
        ("filters, c, s, r, filter, full)", "filters, c, r, s, filter, full)"),
        ("w = pixel % shape.q * shape.stride -", "w = pixel % shape.q -"),
        ("n = pixel / shape.q / shape.p", "n = 0"),
        ("step > 0 || byte > 0", "byte > 0"),
        ("describe(&stage.images[byte], 0, atom)", "describe(&stage.images[byte], 0, atom / 2)"),
        ("&stage.images[byte]", "stage.images"),
        ("i / 2 % 2 * 8", "0"),
    ],
)
def test_a_mutant_of_the_kernel_gives_wrong_numbers(line, replacement, schedule, monkeypatch):
    """No check can know which pixels the kernel means."""
    plant(module, line, replacement, monkeypatch)
    assert_wrong(result_of_mutant(schedule))


def change_box(change, monkeypatch):
    """Let the host code make another box of pixels."""
    made = module.Im2col
    monkeypatch.setattr(module, "Im2col", lambda *args, **kwargs: change(made(*args, **kwargs)))


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.singly
@every_schedule
@pytest.mark.parametrize(
    "change",
    [
        lambda box: replace(box, upper=tuple(-x for x in box.lower)),
        lambda box: replace(box, upper=box.upper[::-1]),
        lambda box: replace(box, lower=(-3, -1)),
    ],
    ids=["upper corner without the filter", "upper corner swapped", "lower corner too low"],
)
def test_a_wrong_corner_gives_wrong_numbers(change, schedule, monkeypatch):
    change_box(change, monkeypatch)
    assert_wrong(result_of_mutant(schedule))


@mostly_gate
def test_a_lower_corner_without_padding_is_named(schedule, monkeypatch):
    change_box(lambda box: replace(box, lower=(0, 0)), monkeypatch)
    with pytest.raises(TensorMapFault, match="outside the box"):
        result_of_mutant(schedule)


def change_map(options, monkeypatch):
    """Let the host code make another map of the images."""
    made = simwarp.Device.tensor_map
    monkeypatch.setattr(
        simwarp.Device,
        "tensor_map",
        lambda *args, **kwargs: made(*args, **(kwargs | (options if "im2col" in kwargs else {}))),
    )


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.singly
@every_schedule
@pytest.mark.parametrize("options", [{"element_strides": (1, 1, 1, 1)}, {"fill": "nan"}], ids=str)
def test_a_wrong_map_of_images_gives_wrong_numbers(options, schedule, monkeypatch):
    change_map(options, monkeypatch)
    assert_wrong(result_of_mutant(schedule))


@mostly_gate
def test_a_map_without_the_swizzle_is_named(schedule, monkeypatch):
    change_map({"swizzle": 0}, monkeypatch)
    with pytest.raises(WrongDescriptor):
        result_of_mutant(schedule)
