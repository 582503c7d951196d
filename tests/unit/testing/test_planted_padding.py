"""Bugs of padding in a small convolution on words, each found by the strategies within 100 examples.

The convolution is that of a user: bits of 32 channels in a word, popc of XOR, and taps outside the image left
out. A bug is a wrong line of it. Examples are those of Hypothesis' default profile, from several seeds.
"""

import random
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

import reference
from simwarp.testing.strategies import conv_geometries, conv_operands, packed_tensors, thresholds
from simwarp.verify.geometry_classes import SMALL_CLASSES


def words_of(signs):
    """Bits (…, words of 32) of signs (…, C), the first in the lowest bit, padded with 0."""
    *outer, channels = signs.shape
    bits = np.zeros((*outer, -(-channels // 32) * 32), np.uint8)
    bits[..., :channels] = signs >= 0
    return np.packbits(bits, axis=-1, bitorder="little").view("<u4")


def convolve(x, w, geometry, bug=""):
    """``bconv2d`` of signs on words, with a bug by its name."""
    (n, h, wide, c), (r, s, _, o) = geometry.images, geometry.filters
    (down, across), (below, beside) = geometry.stride, geometry.dilation
    (top, bottom), (left, right) = pads_of(geometry, bug)
    p = (h + top + bottom - geometry.spans[0]) // down + 1
    q = (wide + left + right - geometry.spans[1]) // across + 1
    images, filters = words_of(x), words_of(np.moveaxis(w, 2, 3))  # (r, s, o, words)
    if bug == "filters' bits past C are 1":
        filters = filters.copy()
        filters[..., -1] |= np.uint32((0xFFFFFFFF << (c % 32)) & 0xFFFFFFFF) if c % 32 else np.uint32(0)
    if bug == "the last word of channels is forgotten" and c > 32 and c % 32:
        images, filters = images[..., :-1], filters[..., :-1]
    y = np.zeros((n, p, q, o), np.int64)
    for i in range(p):
        for j in range(q):
            popc, outside = np.zeros((n, o), np.int64), 0
            for a in range(r):
                for b in range(s):
                    row, column = i * down - top + a * below, j * across - left + b * beside
                    if bug == "columns are held against the height":
                        inside = 0 <= row < h and 0 <= column < h and column < wide
                    elif bug == "a negative row wraps to the end":
                        inside, row = row < h and 0 <= column < wide, row if row >= 0 else row % h
                    elif bug == "dilation times stride":
                        row += (below - 1) * (down - 1)
                        inside = 0 <= row < h and 0 <= column < wide
                    else:
                        inside = 0 <= row < h and 0 <= column < wide
                    if bug == "even windows lose their last column" and s % 2 == 0 and b == s - 1 and s > 2:
                        continue
                    if not inside:
                        if bug == "outside taps are zero bits":
                            popc += np.bitwise_count(filters[a, b]).sum(-1, dtype=np.int64)
                        else:
                            outside += 1
                        continue
                    pixels = images[:, row, column]
                    above = i * down - top < 0
                    if bug == "padding wraps at the second image" and above and row == h - 1 and n > 1:
                        pixels = np.roll(pixels, 1, axis=0)
                    popc += np.bitwise_count(pixels[:, None] ^ filters[a, b][None]).sum(-1, dtype=np.int64)
            y[:, i, j] = of_counts(popc, outside, geometry, bug, (i, j, p, q))
    return y.astype(np.int32)


def pads_of(geometry, bug):
    (top, bottom), (left, right) = geometry.pads
    if geometry.padding == "SAME":
        if bug == "SAME pads R // 2":
            top, left = geometry.filters[0] // 2, geometry.filters[1] // 2
        if bug == "the odd pixel is above":
            top, bottom = bottom, top
    if bug == "one row too many below" and geometry.padding == "SAME" and geometry.stride[0] == 1 and bottom:
        bottom -= 1
    if bug == "top and left are exchanged":
        top, left, bottom, right = left, top, right, bottom
    if bug == "padding only below is padding above" and bottom and not top:
        top, bottom = bottom, 0
    return (top, bottom), (left, right)


def of_counts(popc, outside, geometry, bug, place):
    (r, s, c, _), (down, _), (below, beside) = geometry.filters, geometry.stride, geometry.dilation
    i, j, p, q = place
    bits = {f"a counter of {n} bits": n for n in (4, 5, 6, 8)}.get(bug)
    if bits:
        outside %= 1 << bits
    if bug == "the counter forgets dilation" and (below > 1 or beside > 1):
        outside = 0
    if bug == "a window wholly outside counts" and outside == r * s:
        return np.full_like(popc, c)
    if bug == "the last pixel alone counts" and outside and (i, j) == (p - 1, q - 1):
        outside -= 1
    products = (r * s - outside) * (-(-c // 32) * 32 if bug == "whole words are counted, not C" else c)
    sums = products - 2 * popc
    wrong = {
        "windows of seven rows": r >= 7,
        "a window of 11 at stride 4": r == 11 and down == 4,
        "filters of 1 x 17": (r, s) == (1, 17),
    }
    if wrong.get(bug):
        sums = sums + 2
    return sums.astype(np.int16) if bug == "sums of 16 bits" else sums


BUGS = [
    "outside taps are zero bits",
    "whole words are counted, not C",
    "SAME pads R // 2",
    "the odd pixel is above",
    "columns are held against the height",
    "one row too many below",
    "the counter forgets dilation",
    "a negative row wraps to the end",
    "filters' bits past C are 1",
    "top and left are exchanged",
    "a counter of 4 bits",
    "a window wholly outside counts",
    "the last pixel alone counts",
    "a counter of 5 bits",
    "windows of seven rows",
    "a counter of 6 bits",
    "a counter of 8 bits",
    "sums of 16 bits",
    "the last word of channels is forgotten",
    "dilation times stride",
    "even windows lose their last column",
    "a window of 11 at stride 4",
    "padding only below is padding above",
    "filters of 1 x 17",
    "padding wraps at the second image",
]


def is_wrong(drawn, bug):
    x, w, geometry = drawn
    try:
        return not np.array_equal(convolve(x, w, geometry, bug), reference.bconv2d(x, w, **geometry.options))
    except ValueError:  # no output: a bug, too
        return True


OPERANDS = conv_operands(dtypes=("int8",), packed=False)
ONE, PAD = "1 x 1 x 1 x 1 by 1 x 1", "padding ((0,0),(0,1))"
SMALLEST = {
    "outside taps are zero bits": (ONE, PAD),
    "whole words are counted, not C": (ONE,),
    "SAME pads R // 2": ("1 x 1 x 1 x 1 by 1 x 2", "padding SAME"),
    "the odd pixel is above": ("1 x 1 x 1 x 1 by 2 x 1", "padding SAME"),
    "columns are held against the height": ("1 x 1 x 2 x 1 by 1 x 2",),
    "one row too many below": ("1 x 1 x 1 x 1 by 2 x 1", "padding SAME"),
    "the counter forgets dilation": (ONE, PAD, "dilation 1,2"),
    "a negative row wraps to the end": (ONE, "padding ((1,0),(0,0))"),
    "filters' bits past C are 1": (ONE,),
    "top and left are exchanged": (ONE, PAD),
    "a counter of 4 bits": ("1 x 1 x 1 x 1 by 1 x 16", "padding ((0,0),(0,16))"),
    "a window wholly outside counts": (ONE, PAD),
    "the last pixel alone counts": (ONE, PAD),
    "a counter of 5 bits": ("1 x 2 x 1 x 1 by 2 x 16", "padding ((0,0),(0,16))"),
    "windows of seven rows": ("1 x 7 x 1 x 1 by 7 x 1",),
    "a counter of 6 bits": ("1 x 4 x 1 x 1 by 4 x 16", "padding ((0,0),(0,16))"),
    "a counter of 8 bits": ("1 x 16 x 1 x 1 by 16 x 16", "padding ((0,0),(0,16))"),
    "sums of 16 bits": ("1 x 1 x 7 x 4682 by 1 x 7",),
    "the last word of channels is forgotten": ("1 x 1 x 1 x 33 by 1 x 1",),
    "dilation times stride": (ONE, "stride 2,1", "dilation 2,1"),
    "even windows lose their last column": ("1 x 1 x 4 x 1 by 1 x 4",),
    "a window of 11 at stride 4": ("1 x 11 x 1 x 1 by 11 x 1", "stride 4,1"),
    "padding only below is padding above": (ONE, "padding ((0,1),(0,0))"),
    "filters of 1 x 17": ("1 x 1 x 17 x 1 by 1 x 17",),
    "padding wraps at the second image": ("2 x 1 x 1 x 1 by 2 x 1", "padding ((1,0),(0,0))"),
}
"""The smallest geometry that shows each bug: images and windows, and what is not the default."""


def expected(shapes, *options):
    """What a geometry of one filter prints, with other than the default options."""
    kinds = {option.split()[0]: option for option in options}
    defaults = ("padding VALID", "stride 1,1", "dilation 1,1")
    return ", ".join([f"{shapes} to 1 channels", *(kinds.get(each.split()[0], each) for each in defaults)])


def smallest(strategy, wrong, seed, phases=(Phase.generate, Phase.shrink)):
    """The failing example that 100 examples from a seed lead to."""
    quick = settings(
        max_examples=100,
        derandomize=False,  # the seed counts
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    return find(strategy, wrong, settings=quick, random=random.Random(seed))


def is_found(bug, seed):
    """Whether 100 examples from a seed find a bug."""
    try:
        smallest(OPERANDS, lambda drawn: is_wrong(drawn, bug), seed, phases=(Phase.generate,))
    except NoSuchExample:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(10), range(10, 20)], ids=["0-9", "10-19"])
def test_the_convolution_without_a_bug_is_right_in_twenty_seeds(seeds):
    assert not [seed for seed in seeds if is_found("", seed)]


@pytest.mark.slow
@pytest.mark.at_most(8)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_padding_is_found_in_nine_seeds_of_ten(bug):
    assert sum(is_found(bug, seed) for seed in range(10)) >= 9


@pytest.mark.slow
@pytest.mark.at_most(4)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_padding_shrinks_to_its_smallest_case(bug):
    found = None
    for seed in range(3):
        with suppress(NoSuchExample):
            found = found or smallest(OPERANDS, lambda drawn: is_wrong(drawn, bug), seed)
    assert found is not None
    assert str(found.geometry) == expected(*SMALLEST[bug])


@st.composite
def layers(draw):
    """Operands, and thresholds at their dot products."""
    drawn = draw(OPERANDS)
    dots = reference.bconv2d(drawn.x, drawn.w, **drawn.geometry.options)
    return drawn.geometry, dots, *draw(thresholds(dots))


@pytest.mark.gate
def test_a_threshold_that_counts_taps_outside_is_found():
    def wrong(drawn):
        geometry, dots, at_least, flip = drawn
        too_many = dots + geometry.excluded[..., None] * geometry.filters[2]
        return not np.array_equal((dots >= at_least) != flip, (too_many >= at_least) != flip)

    geometry, dots, _, _ = smallest(layers(), wrong, seed=0)
    assert geometry.excluded.any()
    assert dots.size <= 2


@settings(max_examples=25)
@given(conv_operands(conv_geometries(*SMALL_CLASSES), dtypes=()))
def test_packed_operands_have_the_geometrys_shapes(drawn):
    x, w, geometry = drawn
    assert (x.shape, w.shape) == (geometry.images, geometry.filters)
    real = (reference.unpack_tensor(one).astype(np.int8) * 2 - 1 for one in (x, w))
    expected = reference.bconv2d(*real, **geometry.options)
    np.testing.assert_array_equal(expected, reference.bconv2d(x, w, **geometry.options))


@settings(max_examples=25)
@given(st.data(), st.sampled_from(["NHWC", "HWOI", "HWNC-FSB", "HWOI-FSB"]))
def test_packed_tensors_unpack_to_what_packs_again(data, layout):
    x = data.draw(
        packed_tensors((2, 3, 40, 9) if layout.startswith("HWOI") else (2, 3, 9, 40), layout=layout)
    )
    signs = reference.unpack_tensor(x).astype(np.int8) * 2 - 1
    again = reference.pack_tensor(signs, layout=layout, word=x.word)
    np.testing.assert_array_equal(again.words, x.words)
