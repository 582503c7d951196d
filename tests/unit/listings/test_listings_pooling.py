"""Pooling of bits after a convolution (BSTC, section 6.2): three ways, one answer, different costs."""

import numpy as np
import pytest

from reference import bconv2d
from reference.errors import SchemeError, ShapeError
from simwarp.faults import ReadOnlyWrite, UninitialisedRead
from simwarp.listings import Pool, conv_pool32, pooling_costs
from simwarp.listings.pooling import WAYS, ConvPool32, _pooled, conv_operands
from simwarp.warp import GlobalArray
from support.pages import page_module

RNG = np.random.default_rng(20)


def signs(*shape):
    return RNG.choice([-1.0, 1.0], shape)


def bits_of(packed):
    """The bits of a tensor, channel by channel, from its words."""
    octets = packed.words.astype(">u4").view(np.uint8).reshape(*packed.words.shape[:3], -1)
    return np.unpackbits(octets, axis=-1)[..., : packed.shape[3]]


def pooled(x, w, thresholds, flip, pool, **window):
    """The same by definition: sums, bits, and the OR or AND of each window."""
    bits = (bconv2d(x, w, **window) >= thresholds) ^ flip
    (height, width), (down, across) = pool.window, pool.stride
    rows = range(0, bits.shape[1] - height + 1, down)
    columns = range(0, bits.shape[2] - width + 1, across)
    join = np.any if pool.kind == "or" else np.all
    return np.stack(
        [
            np.stack([join(bits[:, y : y + height, x : x + width], axis=(1, 2)) for x in columns], axis=1)
            for y in rows
        ],
        axis=1,
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("pool", "shape", "filters", "stride"),
    [
        (Pool(), (1, 4, 4, 5), (3, 3, 5, 33), 1),
        (Pool("and"), (2, 5, 3, 40), (1, 1, 40, 7), 1),  # an odd row belongs to no window
        (Pool("or", (3, 3), (2, 2)), (1, 5, 7, 3), (1, 1, 3, 2), 1),  # windows overlap
        (Pool("and", (1, 2), (3, 1)), (1, 9, 5, 3), (3, 1, 3, 32), (2, 1)),  # rows in no window
        (Pool("or", (1, 1), (1, 1)), (1, 2, 3, 33), (2, 2, 33, 1), 1),
    ],
)
def test_pooled_bits_equal_the_definition(way, pool, shape, filters, stride):
    x, w = signs(*shape), signs(*filters)
    thresholds, flip = RNG.integers(-4, 5, filters[3]), RNG.integers(0, 2, filters[3]).astype(bool)
    packed = conv_pool32(x, w, thresholds, flip, pool=pool, way=way, stride=stride)
    expected = pooled(x, w, thresholds, flip, pool, stride=stride)
    np.testing.assert_array_equal(bits_of(packed), expected)


def test_pruning_skips_what_is_decided_and_nothing_else():
    x, w = np.ones((1, 4, 4, 3)), np.ones((1, 1, 3, 64))
    always, never = np.full(64, -9), np.full(64, 9)
    whole = pooling_costs(x, w, always)
    assert pooling_costs(x, w, always, way="pruned").operations["votes"] * 4 == pytest.approx(
        whole.operations["votes"], abs=4
    )
    assert pooling_costs(x, w, never, way="pruned") == pooling_costs(x, w, never)
    assert pooling_costs(x, w, never, pool=Pool("and"), way="pruned").steps < whole.steps / 3
    # one of 64 channels is undecided: its word is computed for all pixels, the other word once
    one = np.where(np.arange(64) == 40, 9, -9)
    half = pooling_costs(x, w, one, way="pruned").operations
    assert whole.operations["loads"] * 5 / 8 == pytest.approx(half["loads"], rel=0.1)


def test_a_warp_for_a_pixel_joins_each_word_once_and_a_warp_for_a_window_stores_once():
    x, w = signs(2, 4, 6, 3), signs(1, 1, 3, 33)
    by_pixel, by_window = (pooling_costs(x, w, np.zeros(33, int), way=way) for way in ("atomic", "window"))
    pixels, words = 2 * 4 * 6, 2
    assert by_pixel.operations["atomics"] == pixels * words
    assert by_window.operations["atomics"] == 0
    # beyond the counters in shared memory: a warp zeroes and adds to them in both ways
    counters = pixels * (words + words)
    assert by_pixel.operations["stores"] == counters
    assert by_window.operations["stores"] == counters + pixels // 4 * words


def test_an_or_into_words_that_were_not_cleared_is_a_fault():
    operands = conv_operands(signs(1, 2, 2, 3), signs(1, 1, 3, 1))

    def uncleared(warp, input, bitfilter, target, *args):
        ConvPool32(warp, input, bitfilter, target._replace(output=output), *args)

    output = GlobalArray("output", (1, 1, 1, 1), np.uint32)
    with pytest.raises(UninitialisedRead, match="output"):
        _pooled(uncleared, operands, [0], None, Pool(), "atomic")
    output = GlobalArray.of("output", np.zeros((1, 1, 1, 1), np.uint32), read_only=True)
    with pytest.raises(ReadOnlyWrite, match="output"):
        _pooled(uncleared, operands, [0], None, Pool(), "atomic")


def test_windows_and_ways_that_do_not_exist_are_refused():
    x, w = signs(1, 2, 2, 3), signs(1, 1, 3, 1)
    with pytest.raises(ShapeError, match="not one window"):
        conv_pool32(x, w, [0], pool=Pool(window=(3, 1)))
    with pytest.raises(ShapeError, match="at least 1"):
        conv_pool32(x, w, [0], pool=Pool(stride=(0, 1)))
    with pytest.raises(SchemeError, match="way='fast'"):
        conv_pool32(x, w, [0], way="fast")
    with pytest.raises(SchemeError, match="kind='max'"):
        conv_pool32(x, w, [0], pool=Pool("max"))


def test_the_page_has_a_row_for_each_way_and_share(monkeypatch):
    made = page_module("page_microbenchmarks")
    monkeypatch.setattr(made, "SHARES", (0.9,))
    monkeypatch.setattr(made, "POOLED", ((1, 2, 4, 5), (1, 1, 5, 3)))
    head, _, *rows = made.filled("<!-- pooling costs -->").splitlines()
    assert [row.split("`")[1] for row in rows] == list(WAYS)
    assert [row.split("|")[3].strip() for row in rows] == ["2", "2", "8"]
    assert len({row.count("|") for row in (head, *rows)}) == 1
