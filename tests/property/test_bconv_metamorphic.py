"""Algebraic relations between bit convolutions, checked in every tier without an oracle.

The tiers are the reference, the papers' listings and the production kernels on the simulator. Values
come from a number; the geometry is what shrinks, and its window is drawn where a relation fails.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpu
import reference
from gpu.bconv import SCHEMES
from simwarp import listings
from simwarp.listings import btc
from simwarp.testing.compare import assert_same_convolution
from simwarp.testing.geometries import conv_geometries
from simwarp.verify import Draw, simulator
from simwarp.verify.geometry_classes import SMALL_CLASSES

TIERS = {
    "reference": (reference.bconv2d, 100),
    "listing bconv32": (listings.bconv32, 6),
    "listing bconv64": (listings.bconv64, 6),
    "listing btc1": (btc.btc_bconv1, 6),
    "listing btc2": (btc.btc_bconv2, 6),
    **{
        f"gpu {scheme}": (
            lambda x, w, scheme=scheme, **options: gpu.bconv2d(
                x, w, scheme=scheme, device=simulator(), **options
            ),
            12,
        )
        for scheme in SCHEMES
    },
}
"""Who answers, and on how many geometries each relation is tried."""


def relation(check):
    """Make a test of one relation run in every tier."""

    @pytest.mark.slow_cases("gpu *", "listing *")
    @pytest.mark.gate_cases("listing *", "gpu bconv64", "gpu btc1")
    @pytest.mark.parametrize("tier", TIERS)
    def test(tier):
        bconv2d, examples = TIERS[tier]
        drawn = settings(max_examples=examples, suppress_health_check=list(HealthCheck))(
            given(geometry=conv_geometries(*SMALL_CLASSES), seed=st.integers(0, 2**32 - 1))(
                lambda geometry, seed: check(bconv2d, *with_values(geometry, seed))
            )
        )
        drawn()

    test.__doc__ = check.__doc__
    return test


def with_values(geometry, seed):
    """Images and filters of nonzero numbers, so that each element has a negative."""
    draw = Draw(seed, "metamorphic", 0)
    x, w = (1 - 2 * (draw.words(int(np.prod(shape))) % 2).astype(np.int8) for shape in shapes(geometry))
    return geometry, x.reshape(geometry.images), w.reshape(geometry.filters)


def shapes(geometry):
    return geometry.images, geometry.filters


def agree(geometry, expected, got):
    assert_same_convolution(geometry, np.ascontiguousarray(expected), np.ascontiguousarray(got))


@pytest.mark.slow
@pytest.mark.at_most(1)
@relation
def test_an_unpadded_convolution_is_a_crop_of_the_padded_one(bconv2d, geometry, x, w):
    """Output pixels whose windows lie inside the image equal those of VALID padding."""
    if any(span > size for span, size in zip(geometry.spans, geometry.images[1:3], strict=True)):
        return
    # Paddings of whole strides keep the windows of VALID where they are.
    (down, across), pads = geometry.stride, []
    for stride, span in zip(geometry.stride, geometry.spans, strict=True):
        pads.append((stride * -(-span // stride), span + 1))
    padded = replace(geometry, padding=tuple(pads))
    inside = replace(geometry, padding="VALID")
    top, left = pads[0][0] // down, pads[1][0] // across
    rows, columns = inside.out
    with_padding = bconv2d(x, w, **padded.options)
    agree(inside, with_padding[:, top : top + rows, left : left + columns], bconv2d(x, w, **inside.options))
    assert not with_padding[:, 0, 0].any()  # a window outside the image has the sum 0


@pytest.mark.slow
@pytest.mark.at_most(1)
@relation
def test_a_removed_tap_equals_a_tap_outside_the_image(bconv2d, geometry, x, w):
    """Removing the last image row equals adding one row of padding below."""
    if geometry.images[1] < 2:
        return
    (top, bottom), sides = geometry.pads
    whole = replace(geometry, padding=((top, bottom), sides))
    n, h, *rest = geometry.images
    shorter = replace(geometry, images=(n, h - 1, *rest), padding=((top, bottom + 1), sides))
    before, after = bconv2d(x, w, **whole.options), bconv2d(x[:, :-1], w, **shorter.options)
    untouched = np.arange(whole.out[0]) * whole.stride[0] - top + whole.spans[0] <= h - 1
    if untouched.any():
        agree(shorter, before[:, untouched], after[:, untouched])


@pytest.mark.slow
@pytest.mark.at_most(1)
@relation
def test_padding_translates_the_output(bconv2d, geometry, x, w):
    """One stride of additional padding above moves the output down by one row."""
    (top, bottom), (left, right) = geometry.pads
    (down, across), (rows, columns) = geometry.stride, geometry.out
    here = replace(geometry, padding=((top, bottom), (left, right)))
    there = replace(geometry, padding=((top + down, bottom), (left + 2 * across, right)))
    moved = bconv2d(x, w, **there.options)
    agree(here, moved[:, 1 : 1 + rows, 2 : 2 + columns], bconv2d(x, w, **here.options))


@pytest.mark.slow
@pytest.mark.at_most(1)
@relation
def test_complementing_both_operands_changes_nothing(bconv2d, geometry, x, w):
    """(-a)(-b) = ab, and excluded taps have no sign; complementing one operand negates every sum."""
    answer = bconv2d(x, w, **geometry.options)
    agree(geometry, answer, bconv2d(-x, -w, **geometry.options))
    agree(geometry, -answer, bconv2d(-x, w, **geometry.options))


@pytest.mark.slow
@pytest.mark.at_most(1)
@relation
def test_permuted_filters_permute_output_channels(bconv2d, geometry, x, w):
    """Input channels may be permuted; output channels follow the order of the filters."""
    channels = np.argsort(Draw(0, "channels", geometry.images[3]).words(geometry.images[3]))
    filters = np.argsort(Draw(0, "filters", geometry.filters[3]).words(geometry.filters[3]))
    answer = bconv2d(x, w, **geometry.options)
    agree(geometry, answer, bconv2d(x[..., channels], w[:, :, channels], **geometry.options))
    agree(geometry, answer[..., filters], bconv2d(x, w[..., filters], **geometry.options))


@pytest.mark.slow
@pytest.mark.at_most(1)
@relation
def test_sums_over_parts_of_the_channels_add_up(bconv2d, geometry, x, w):
    """Sums over parts of the channels add up, so no term is counted per word or once per convolution."""
    channels = geometry.images[3]
    if channels < 2:
        return
    half = 1 + channels // 3
    parts = (slice(0, half), slice(half, channels))
    split = [bconv2d(x[..., part], w[:, :, part], **geometry.options) for part in parts]
    agree(geometry, bconv2d(x, w, **geometry.options), split[0] + split[1])


@pytest.mark.slow
@pytest.mark.at_most(1)
@relation
def test_sums_over_filter_rows_add_up(bconv2d, geometry, x, w):
    """The sums of single filter rows, each with its own padding, add up."""
    rows = geometry.filters[0]
    (top, bottom), sides = geometry.pads
    total = 0
    for r in range(rows):
        # Windows of a lower filter row start lower; beyond the padding above, the image is cropped.
        above, cut = max(top - r * geometry.dilation[0], 0), max(r * geometry.dilation[0] - top, 0)
        if cut >= geometry.images[1]:
            continue  # this row of taps is always outside the image
        options = geometry.options | {"padding": ((above, bottom + geometry.spans[0]), sides)}
        total = total + bconv2d(x[:, cut:], w[r : r + 1], **options)[:, : geometry.out[0]]
    answer = bconv2d(x, w, **geometry.options)
    agree(geometry, answer, total if rows and not np.isscalar(total) else np.zeros_like(answer))


@pytest.mark.slow
@pytest.mark.at_most(1)
@relation
def test_images_of_a_batch_are_independent(bconv2d, geometry, x, w):
    """An image does not affect others, neither within a tile of eight nor at its end."""
    one = bconv2d(x[:1], w, **geometry.options)
    both = bconv2d(np.concatenate([x, x[:1]]), w, **geometry.options)
    agree(geometry, bconv2d(x, w, **geometry.options), both[:-1])
    agree(geometry, one, both[-1:])


@pytest.mark.slow
@pytest.mark.at_most(1)
@relation
def test_mirrored_operands_mirror_the_output(bconv2d, geometry, x, w):
    """With images and filters upside down, padding above and below swap, and the output is upside down."""
    (top, bottom), (left, right) = geometry.pads
    # Rows and columns that no window reaches are cropped, so that mirrored windows coincide.
    reach = [
        (out - 1) * stride + span
        for out, stride, span in zip(geometry.out, geometry.stride, geometry.spans, strict=True)
    ]
    below, beside = (
        reach[axis] - pads[0] - geometry.images[1 + axis]
        for axis, pads in enumerate(((top, bottom), (left, right)))
    )
    if below < 0 or beside < 0:
        return
    upright = replace(geometry, padding=((top, below), (left, beside)))
    turned = replace(geometry, padding=((below, top), (beside, left)))
    answer = bconv2d(x[:, ::-1, ::-1].copy(), w[::-1, ::-1].copy(), **turned.options)
    agree(upright, bconv2d(x, w, **upright.options), answer[:, ::-1, ::-1])
