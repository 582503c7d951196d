"""The listing of the convolution on warpgroups equals the definition, and gathers what the windows see."""

import numpy as np
import pytest

import reference
from simwarp.listings import wgmma_bconv
from simwarp.listings.conv_operands import layer
from simwarp.listings.wgmma_conv import Windows, gathered

RNG = np.random.default_rng(9)

GEOMETRIES = {
    "one pixel": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    "pieces": ((1, 3, 4, 300), (2, 3, 300, 5), {"padding": ((1, 0), (1, 1))}),
    "many filters": ((2, 3, 3, 60), (2, 2, 60, 130), {"padding": "VALID"}),
    "gaps": ((1, 9, 8, 40), (3, 2, 40, 33), {"stride": (2, 1), "dilation": (2, 3)}),
    "two tiles": ((3, 5, 5, 130), (3, 3, 130, 9), {}),
}


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_dots_and_bits_equal_the_definition(name):
    of_x, of_w, options = GEOMETRIES[name]
    x, w = (RNG.choice(np.array([-1, 1], np.int8), shape) for shape in (of_x, of_w))
    dots = reference.bconv2d(x, w, **options)
    np.testing.assert_array_equal(wgmma_bconv(x, w, **options), dots)
    packed = reference.pack_tensor(x, layout="NHWC"), reference.pack_tensor(w, layout="HWIO")
    np.testing.assert_array_equal(wgmma_bconv(*packed, **options), dots)
    thresholds, flip = RNG.integers(-9, 9, of_w[3]).astype(np.int32), RNG.random(of_w[3]) < 0.5
    bits = wgmma_bconv(x, w, thresholds=thresholds, flip=flip, **options)
    expected = reference.threshold_tensor(dots, thresholds, flip)
    np.testing.assert_array_equal(bits.words, expected.words)


def test_a_step_gathers_the_chunks_of_taps_and_zeros_outside():
    """Two pieces of channels, nine taps: 18 chunks in steps of eight."""
    images = RNG.integers(0, 256, (12, 2, 16)).astype(np.uint8)
    windows = Windows.of(layer((1, 3, 4, 256), (3, 3, 256, 1), 1, "SAME", 1))
    steps = [gathered(images, windows, 0, first) for first in (0, 8, 16)]
    lines = np.concatenate(steps, axis=1).reshape(64, 24, 16)
    for pixel, chunk in np.ndindex(64, 24):
        tap, piece = divmod(chunk, 2)
        row, column = pixel // 4 - 1 + tap // 3, pixel % 4 - 1 + tap % 3
        inside = pixel < 12 and tap < 9 and 0 <= row < 3 and 0 <= column < 4
        expected = images[row * 4 + column, piece] if inside else np.zeros(16)
        np.testing.assert_array_equal(lines[pixel, chunk], expected)
