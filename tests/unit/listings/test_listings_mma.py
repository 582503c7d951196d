"""The listings of products by mma.sync: fragments as the PTX ISA has them, products, bits, errors."""

import numpy as np
import pytest

from reference import SchemeError
from simwarp.listings import mma_bmm, skinny_bmm
from simwarp.listings.mma import COLUMN, ROW, STEP, fragment, multiply_add, stage_of

RNG = np.random.default_rng(7)


def signs(*shape):
    return RNG.choice(np.array([-1, 1], np.int8), shape)


def test_a_product_takes_its_fragments_as_the_ptx_isa_has_them():
    """Figures of m16n8k256: with g = lane / 4, t = lane % 4, bit i of register r."""
    a, b = RNG.integers(0, 2, (16, 256)), RNG.integers(0, 2, (256, 8))
    of_a, of_b = np.zeros((4, 32), np.uint32), np.zeros((2, 32), np.uint32)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for bit in range(32):
            for r in range(4):
                of_a[r, lane] |= np.uint32(a[g + 8 * (r % 2), 128 * (r // 2) + 32 * t + bit] << bit)
            for r in range(2):
                of_b[r, lane] |= np.uint32(b[128 * r + 32 * t + bit, g] << bit)
    sums = np.full((4, 32), 5, np.int32)
    multiply_add(sums, of_a, of_b)
    np.testing.assert_array_equal(sums, 5 + (a @ b)[ROW, COLUMN])
    for lane in range(32):
        for i in range(4):
            assert (ROW[i, lane], COLUMN[i, lane]) == (lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2)


def test_eight_lines_of_a_piece_lie_in_different_banks():
    lines = np.arange(128 * 4 * STEP, dtype=np.uint32).reshape(128, -1)
    stage = stage_of(lines, 0, 128, 0)
    at = {int(word): place for place, word in enumerate(stage.ravel())}
    for first in range(0, 128, 8):
        for piece in range(STEP):
            words = fragment(stage, np.array(first), piece)
            expected = lines[first : first + 8, 4 * piece : 4 * piece + 4]
            np.testing.assert_array_equal(words.reshape(8, 4), expected)
            assert len({at[int(word)] % 32 for word in words}) == 32


SIZES = {
    mma_bmm: [(1, 1, 1), (3, 5, 129), (130, 40, 70), (17, 129, 1100)],
    skinny_bmm: [(1, 1, 1), (3, 50, 129), (16, 33, 2100), (49, 9, 300), (40, 7, 64), (9, 1, 515)],
}


@pytest.mark.at_most(3)
@pytest.mark.parametrize(("listing", "sizes"), [(f, sizes) for f in SIZES for sizes in SIZES[f]])
def test_products_and_bits_equal_numpy(listing, sizes):
    m, n, k = sizes
    a, b = signs(m, k), signs(k, n)
    dots = a.astype(int) @ b.astype(int)
    np.testing.assert_array_equal(listing(a, b), dots)
    np.testing.assert_array_equal(listing(a.T.copy(), b, transpose_a=True), dots)
    thresholds, flip = RNG.integers(-9, 9, n).astype(np.int32), RNG.random(n) < 0.5
    packed = listing(a, b, thresholds=thresholds, flip=flip)
    bits = packed.words[:, np.newaxis] >> np.arange(32, dtype=np.uint32)[:, np.newaxis] & 1
    bits = bits.reshape(-1, m)
    np.testing.assert_array_equal(bits[:n].T, (dots >= thresholds) ^ flip)
    assert not bits[n:].any()


def test_a_product_with_many_rows_and_columns_is_not_skinny():
    with pytest.raises(SchemeError, match="17 rows and 18 columns"):
        skinny_bmm(signs(17, 3), signs(3, 18))
