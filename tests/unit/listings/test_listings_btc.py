"""The BTC listings equal plain Python loops, the paper's figure 14 and its section 4."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import reference
from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import PackedBits, PackedTensor
from simwarp import faults
from simwarp.fragments import FragmentError
from simwarp.listings import btc_bconv1, btc_bconv2, btc_bmm1, btc_bmm2, btc_bmm3
from simwarp.listings.btc import BMM, BMMs, from_fsb, fsb_address, fsb_words, rows_to_fsb, to_fsb
from simwarp.listings.btc.fragments import bmma_sync, fill_fragment, load_matrix_sync, store_matrix_sync
from simwarp.listings.btc.tiles import FLIPBITS, Options
from simwarp.warp import GlobalArray, launch, watch

DESIGNS = [btc_bmm1, btc_bmm2, btc_bmm3]
BCONVS = [btc_bconv1, btc_bconv2]
OPERATIONS = ["xor", "and"]
FIRSTS = ["lsb", "msb"]
PRODUCTS = [(1, 1, 1), (1, 127, 2), (3, 128, 34), (9, 129, 7), (33, 31, 8), (17, 300, 33)]
SHAPES = [(1, 1), (8, 128), (7, 127), (9, 129), (1, 300), (20, 1)]


def rng(*seed):
    return np.random.default_rng(seed)


def reals(*shape, seed=0):
    return rng(*shape, seed).standard_normal(shape)


def product_by_hand(a, b):
    signs_a, signs_b = ([[1 if v >= 0 else -1 for v in row] for row in x.tolist()] for x in (a, b.T))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in signs_b] for row in signs_a]


def one_warp(kernel):
    kept = []
    launch(lambda warp: kept.append(kernel(warp)), 1, 32)
    return kept[0]


# --------------------------------------------------------------------------------------------------
# Section 5.1: FSB
# --------------------------------------------------------------------------------------------------

# Figure 14: "from the 1D general format to the 2D new format, an array of 8 × 4 bits (H = 4, W = 8) is
# converted with a tile size of 4 × 2 (BH = 2, BW = 4)". By hand: which bit of the 1D format is in each
# place of the new one; "if the original bits are organized in row-major, both the in-tile and tile-wise
# order of the new format are in row-major; otherwise, both are organized in column-major".
FIGURE_14 = {
    "row": [
        *(0, 1, 2, 3, 8, 9, 10, 11),
        *(4, 5, 6, 7, 12, 13, 14, 15),
        *(16, 17, 18, 19, 24, 25, 26, 27),
        *(20, 21, 22, 23, 28, 29, 30, 31),
    ],
    "column": [
        *(0, 1, 4, 5, 8, 9, 12, 13),
        *(2, 3, 6, 7, 10, 11, 14, 15),
        *(16, 17, 20, 21, 24, 25, 28, 29),
        *(18, 19, 22, 23, 26, 27, 30, 31),
    ],
}


@pytest.mark.parametrize("order", FIGURE_14)
def test_addresses_equal_figure_14_of_the_paper(order):
    for place, number in enumerate(FIGURE_14[order]):
        row, column = divmod(number, 8) if order == "row" else divmod(number, 4)[::-1]
        assert fsb_address(row, column, (4, 8), (2, 4), order) == place
        bits = np.zeros((4, 8), np.uint8)
        bits[row, column] = 1
        assert to_fsb(bits, (2, 4), order).tolist() == [1 << place]
        assert (from_fsb(np.array([1 << place], np.uint32), (4, 8), (2, 4), order) == bits).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("tile", "order"), [((8, 128), "row"), ((128, 8), "column"), ((3, 5), "row")])
def test_fsb_holds_every_bit_once_and_zero_padding(shape, tile, order):
    bits = rng(*shape).integers(0, 2, shape).astype(np.uint8)
    words = to_fsb(bits, tile, order)
    assert words.dtype == np.uint32
    assert words.shape == (fsb_words(shape, tile),)
    assert (from_fsb(words, shape, tile, order) == bits).all()
    assert int(np.bitwise_count(words).sum()) == int(bits.sum())
    addresses = fsb_address(*np.indices(shape), shape, tile, order)
    assert len(np.unique(addresses)) == bits.size


def test_columns_of_b_are_rows_of_its_transpose():
    bits = rng(1).integers(0, 2, (130, 9)).astype(np.uint8)
    np.testing.assert_array_equal(to_fsb(bits, (128, 8), "column"), to_fsb(bits.T), strict=True)


def test_rows_of_a_tile_are_16_consecutive_bytes():
    shape = (16, 256)
    assert [fsb_address(0, c, shape) for c in (0, 127, 128)] == [0, 127, 1024]
    assert [fsb_address(r, 0, shape) for r in (1, 7, 8)] == [128, 896, 2048]


def test_packed_rows_become_the_same_tiles():
    bits = rng(2).integers(0, 2, (16, 384)).astype(np.uint8)
    rows = np.packbits(bits, axis=1, bitorder="little").view("<u4")
    assert (rows_to_fsb(rows).ravel() == to_fsb(bits)).all()


@pytest.mark.parametrize("use", ["matrix_a", "matrix_b"])
def test_a_tile_is_loaded_with_ldm_128(use):
    bits = rng(3).integers(0, 2, (16, 256)).astype(np.uint8)
    rows = GlobalArray.of("rows", np.packbits(bits, axis=1, bitorder="little").view("<u4"))
    tiles = GlobalArray.of("tiles", to_fsb(bits))
    for row, step in itertools.product((0, 1), repeat=2):
        from_rows = one_warp(lambda w, at=row * 64 + step * 4: load_matrix_sync(w, use, rows, at, 256))
        from_tiles = one_warp(lambda w, at=(row * 2 + step) * 32: load_matrix_sync(w, use, tiles, at, 128))
        assert (from_rows == from_tiles).all()


def test_fsb_refuses_positions_and_shapes_out_of_range():
    with pytest.raises(ShapeError, match="outside a matrix"):
        fsb_address(8, 0, (8, 128))
    with pytest.raises(ShapeError, match="two sizes of at least 1"):
        fsb_words((0, 5))
    with pytest.raises(ShapeError, match="two sizes of at least 1"):
        to_fsb(np.ones((1, 1), np.uint8), (0, 4))
    with pytest.raises(SchemeError, match="order='diagonal'"):
        fsb_address(0, 0, (8, 128), order="diagonal")
    with pytest.raises(DtypeError, match="float64"):
        to_fsb(np.ones((2, 2)))
    with pytest.raises(ShapeError, match="0 and 1"):
        to_fsb(np.full((2, 2), 2, np.uint8))
    with pytest.raises(FormatError, match=r"uint32 \(64,\)"):
        from_fsb(np.zeros(32, np.uint32), (9, 128))
    with pytest.raises(ShapeError, match="whole tiles"):
        rows_to_fsb(np.zeros((7, 4), np.uint32))


# --------------------------------------------------------------------------------------------------
# Section 4: fragments
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["matrix_a", "matrix_b"])
def test_four_lanes_hold_a_row_of_128_bits(use):
    words = GlobalArray.of("words", np.arange(8 * 12, dtype=np.uint32))
    fragment = one_warp(lambda warp: load_matrix_sync(warp, use, words, 0, ldm=384))
    assert fragment.tolist() == [[12 * (lane // 4) + lane % 4 for lane in range(32)]]


def test_a_lane_stores_two_neighbours_of_a_row():
    out = GlobalArray.of("out", np.full((8, 12), -1, np.int32))
    lanes = np.arange(32, dtype=np.int32)
    one_warp(lambda warp: store_matrix_sync(warp, out, 4, np.stack([2 * lanes, 2 * lanes + 1]), ldm=12))
    assert out.numpy()[:, 4:].ravel().tolist() == list(range(64))
    assert (out.numpy()[:, :4] == -1).all()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_bmma_counts_matching_bits(operation):
    a, b = (rng(4, i).integers(0, 2**32, (8, 4), np.uint32) for i in range(2))
    arrays = GlobalArray.of("a", a), GlobalArray.of("b", b)
    out = GlobalArray("out", (8, 8), np.int32)

    def kernel(warp):
        frags = [
            load_matrix_sync(warp, use, array, 0, 128)
            for use, array in zip(("matrix_a", "matrix_b"), arrays, strict=True)
        ]
        store_matrix_sync(warp, out, 0, bmma_sync(warp, *frags, fill_fragment(-3), operation), 8)

    launch(kernel, 1, 32)
    combine = {"xor": int.__xor__, "and": int.__and__}[operation]
    expected = [
        [
            sum(combine(x, y).bit_count() for x, y in zip(row, column, strict=True)) - 3
            for column in b.tolist()
        ]
        for row in a.tolist()
    ]
    assert out.numpy().tolist() == expected


def test_fragments_refuse_bad_operands():
    words = GlobalArray.of("words", np.zeros(32, np.uint32))
    sums = GlobalArray("sums", 64, np.int32)
    with pytest.raises(FragmentError, match="pad the rows to 256"):
        one_warp(lambda warp: load_matrix_sync(warp, "matrix_a", words, 0, ldm=160))
    with pytest.raises(FragmentError, match="pad the rows to 12 elements"):
        one_warp(lambda warp: store_matrix_sync(warp, sums, 0, fill_fragment(0), ldm=9))
    with pytest.raises(faults.OutOfBounds):
        one_warp(lambda warp: load_matrix_sync(warp, "matrix_a", words, 1, ldm=128))
    with pytest.raises(SchemeError, match="'or'"):
        one_warp(lambda w: bmma_sync(w, *(np.zeros((1, 32), np.uint32),) * 2, fill_fragment(0), "or"))


def test_fragment_operations_in_divergent_code_are_a_fault():
    words = GlobalArray.of("words", np.zeros(32, np.uint32))

    def diverged(warp):
        with warp.where(warp.lane != 5):
            load_matrix_sync(warp, "matrix_a", words, 0, ldm=128)

    with pytest.raises(faults.MemberMaskFault, match="without all 32 lanes") as raised:
        launch(diverged, 1, 32)
    assert raised.value.place.lane == 5
    with pytest.raises(faults.MemberMaskFault, match="bmma_sync without all 32 lanes"):
        launch(lambda w: bmma_sync(w, *(np.zeros((1, 32), np.uint32),) * 2, fill_fragment(0)), 1, 20)


# --------------------------------------------------------------------------------------------------
# Listings 3, 4 and 5
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(19)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_the_product_equals_a_loop_over_elements(sizes, design, operation):
    m, k, n = sizes
    a, b = reals(m, k), reals(k, n, seed=1)
    c = design(a, b, operation=operation)
    assert (c.dtype, c.shape) == (np.int32, (m, n))
    assert c.tolist() == product_by_hand(a, b)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("transposed", list(itertools.product((False, True), repeat=2)))
def test_transposed_and_packed_operands_give_the_same_product(design, transposed):
    a, b = reals(5, 130), reals(130, 9, seed=1)
    x, y = (m.T if t else m for m, t in zip((a, b), transposed, strict=True))
    options = dict(zip(("transpose_a", "transpose_b"), transposed, strict=True))
    expected = product_by_hand(a, b)
    assert design(x, y, **options).tolist() == expected
    for first_a, first_b in itertools.product(FIRSTS, repeat=2):
        packed_a = reference.pack(x, layout="row" if transposed[0] else "column", first=first_a)
        packed_b = reference.pack(y, layout="column" if transposed[1] else "row", first=first_b)
        assert design(packed_a, packed_b, **options).tolist() == expected
    assert design(packed_a, y, **options).tolist() == expected


@pytest.mark.at_most(16)
@pytest.mark.parametrize("first", FIRSTS)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_bits_equal_a_loop_over_elements(sizes, design, first):
    m, k, n = sizes
    a, b = reals(m, k), reals(k, n, seed=1)
    thresholds, flip = rng(k).integers(-9, 9, n), rng(n).random(n) < 0.5
    packed = design(a, b, thresholds=thresholds, flip=flip, first=first)
    assert (packed.shape, packed.layout, packed.word, packed.first) == ((m, n), "column", 32, first)
    words = [[0] * m for _ in range(-(-n // 32))]
    for i, row in enumerate(product_by_hand(a, b)):
        for j, dot in enumerate(row):
            place = j % 32 if first == "lsb" else 31 - j % 32
            words[j // 32][i] |= ((dot >= thresholds[j]) != flip[j]) << place
    assert packed.words.dtype == np.uint32
    assert packed.words.flags.c_contiguous
    assert packed.words.tolist() == words


@pytest.mark.parametrize("design", DESIGNS)
def test_negative_products_are_below_zero(design):
    """With the unsigned width of the authors' bit output, no product would be negative."""
    bits = design(-np.ones((9, 140)), np.ones((140, 10)), thresholds=np.zeros(10, np.int32))
    assert not bits.words.any()
    bits = design(-np.ones((9, 140)), np.ones((140, 10)), thresholds=np.full(10, -140))
    assert bits.words.tolist() == [[2**10 - 1] * 9]


@pytest.mark.parametrize("first", FIRSTS)
def test_output_bits_feed_the_next_product(first):
    a, b, c = reals(10, 40), reals(40, 50, seed=1), reals(50, 6, seed=2)
    hidden = btc_bmm3(a, b, thresholds=np.zeros(50, np.int32), first=first)
    expected = reference.bmm(np.where(reference.bmm(a, b) >= 0, 1.0, -1.0), c)
    assert (btc_bmm1(hidden, c) == expected).all()


def test_flipbits_inverts_the_last_bits():
    assert [FLIPBITS(n, 2) for n in range(8)] == [3, 2, 1, 0, 7, 6, 5, 4]
    assert [FLIPBITS(n, 1) for n in range(4)] == [1, 0, 3, 2]


@pytest.mark.parametrize(("design", "warps"), [(btc_bmm1, 2), (btc_bmm2, 16), (btc_bmm3, 2)])
def test_each_warp_of_a_block_has_its_own_sums(design, warps):
    with watch("Cs", 64 * (warps - 1)) as places:
        design(np.ones((32, 8)), np.ones((8, 32)), thresholds=np.zeros(32, np.int32))
    assert {place.warp for place in places} == {warps - 1}


def test_one_warp_loads_the_tiles_of_16_warps():
    with watch("As", 5) as a, watch("Bs", 127) as b:
        btc_bmm2(np.ones((64, 256)), np.ones((256, 32)))
    assert {place.warp for place in (*a, *b)} == {0}
    assert len(a) == len(b) == 2 * 2  # blocks, and steps of 128


@pytest.mark.slow
def test_every_sum_is_stored_once():
    for design in DESIGNS:
        with watch("C", 9) as places:
            design(np.ones((9, 1000)), np.ones((1000, 8)))
        assert len(places) == 1


def test_blocks_without_whole_tiles_are_out_of_bounds():
    a, b = (GlobalArray.of(name, np.zeros((8, 4), np.uint32)) for name in "AB")
    c = GlobalArray("C", (8, 8), np.int32)
    with pytest.raises(faults.OutOfBounds) as raised:
        launch(BMM, (1, 1), (32, 2), a, b, c, 128, 8, 128, Options())
    assert (raised.value.place.warp, raised.value.place.kernel) == (1, "BMM")
    shared = dict.fromkeys(("As", "Bs"), (np.uint32, 128))
    with pytest.raises(faults.OutOfBounds, match="BMMs"):
        launch(BMMs, (1, 1), (32, 4, 4), a, b, c, 128, 8, 128, Options(), shared=shared)


@pytest.mark.parametrize("design", DESIGNS)
def test_products_refuse_bad_operands(design):
    a, b = np.ones((3, 5)), np.ones((5, 4))
    with pytest.raises(ShapeError, match="K is 5 in a and 6 in b"):
        design(a, np.ones((6, 4)))
    with pytest.raises(ShapeError, match="each at least 1"):
        design(np.ones((0, 5)), b)
    with pytest.raises(NotANumberError, match=r"b\[2, 1\]"):
        design(a, np.where(np.arange(20).reshape(5, 4) == 9, np.nan, 1.0))
    with pytest.raises(DtypeError, match="int64"):
        design(np.ones((3, 5), np.int64), b)
    with pytest.raises(FormatError, match="layout='row'"):
        design(reference.pack(a, layout="row", first="lsb"), b)
    packed = reference.pack(a, layout="column", first="lsb")
    with pytest.raises(FormatError, match="a has bits past its 5 columns"):
        design(replace(packed, words=packed.words | np.uint32(1 << 31)), b)
    with pytest.raises(FormatError, match="needs uint32"):
        design(replace(packed, words=packed.words.astype(np.uint64)), b)
    with pytest.raises(FormatError, match="not a NumPy array"):
        design(replace(packed, words=packed.words.tolist()), b)
    with pytest.raises(SchemeError, match="flip is given without thresholds"):
        design(a, b, flip=np.zeros(4, bool))
    with pytest.raises(SchemeError, match="operation='or'"):
        design(a, b, operation="or")
    with pytest.raises(SchemeError, match="first='big'"):
        design(a, b, first="big")
    with pytest.raises(ShapeError, match="4 columns"):
        design(a, b, thresholds=[1, 2, 3])


# --------------------------------------------------------------------------------------------------
# Listing 6
# --------------------------------------------------------------------------------------------------


def convolution_by_hand(x, w, stride, pad, dilation, out):
    """Integers (N, P, Q, O), summed over the taps inside the image; pad is (top, left)."""
    (batch, height, width, channels), (taps_down, taps_across, _, filters) = x.shape, w.shape
    xs, ws = (np.where(v >= 0, 1, -1).tolist() for v in (x, w))
    y = np.zeros((batch, *out, filters), int)
    for n, p, q, o in np.ndindex(y.shape):
        for r, s in np.ndindex(taps_down, taps_across):
            i, j = p * stride[0] - pad[0] + r * dilation[0], q * stride[1] - pad[1] + s * dilation[1]
            if 0 <= i < height and 0 <= j < width:
                y[n, p, q, o] += sum(xs[n][i][j][c] * ws[r][s][c][o] for c in range(channels))
    return y.tolist()


# images, filters, options, and by hand: stride, pad, dilation, output
GEOMETRIES = [
    ((1, 1, 1, 1), (1, 1, 1, 1), {}, ((1, 1), (0, 0), (1, 1), (1, 1))),
    ((9, 4, 5, 7), (3, 3, 7, 9), {}, ((1, 1), (1, 1), (1, 1), (4, 5))),
    ((1, 3, 3, 129), (5, 5, 129, 3), {}, ((1, 1), (2, 2), (1, 1), (3, 3))),  # larger than the image
    ((2, 5, 6, 3), (2, 3, 3, 2), {"stride": (3, 2)}, ((3, 2), (0, 0), (1, 1), (2, 3))),
    ((2, 6, 5, 3), (2, 2, 3, 2), {"padding": "VALID", "dilation": (1, 3)}, ((1, 1), (0, 0), (1, 3), (5, 2))),
    ((1, 2, 2, 5), (2, 2, 5, 4), {"padding": ((3, 0), (0, 2))}, ((1, 1), (3, 0), (1, 1), (4, 3))),
    ((1, 2, 2, 5), (3, 3, 5, 1), {"dilation": 4}, ((1, 1), (4, 4), (4, 4), (2, 2))),  # only the middle tap
]


@pytest.mark.at_most(5)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("bconv", BCONVS)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_the_convolution_equals_a_loop_over_taps(geometry, bconv, operation):
    images, filters, options, by_hand = geometry
    x, w = reals(*images), reals(*filters, seed=1)
    y = bconv(x, w, operation=operation, **options)
    assert y.dtype == np.int32
    assert y.tolist() == convolution_by_hand(x, w, *by_hand)


@pytest.mark.at_most(3)
@pytest.mark.parametrize("first", FIRSTS)
@pytest.mark.parametrize("bconv", BCONVS)
@pytest.mark.parametrize("filters", [1, 9, 33])
def test_bits_of_a_convolution_are_thresholded_sums(bconv, first, filters):
    x, w = reals(9, 3, 2, 5), reals(3, 3, 5, filters, seed=1)
    thresholds, flip = rng(5).integers(-5, 5, filters), rng(6).random(filters) < 0.5
    packed = bconv(x, w, thresholds=thresholds, flip=flip, first=first)
    assert (packed.shape, packed.layout, packed.word) == ((9, 3, 2, filters), "NHWC", 32)
    assert packed.first == first
    expected = np.zeros((9, 3, 2, -(-filters // 32)), np.uint32)
    for at, dot in np.ndenumerate(reference.bconv2d(x, w)):
        *pixel, o = at
        place = o % 32 if first == "lsb" else 31 - o % 32
        expected[(*pixel, o // 32)] |= np.uint32(((dot >= thresholds[o]) != flip[o]) << place)
    np.testing.assert_array_equal(packed.words, expected, strict=True)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("bconv", BCONVS)
def test_packed_images_and_filters_of_either_bit_order_are_accepted(bconv):
    x, w = reals(2, 3, 4, 40), reals(2, 2, 40, 5, seed=1)
    expected = reference.bconv2d(x, w)
    for first_x, first_w in itertools.product(FIRSTS, repeat=2):
        images = reference.pack_tensor(x, layout="NHWC", first=first_x)
        filters = reference.pack_tensor(w, layout="HWIO", first=first_w)
        assert (bconv(images, filters) == expected).all()
        assert (bconv(images, w) == expected).all()
        assert (bconv(x, filters) == expected).all()


def test_output_bits_feed_the_next_convolution():
    x, w, v = reals(2, 4, 4, 6), reals(3, 3, 6, 35, seed=1), reals(2, 2, 35, 3, seed=2)
    hidden = btc_bconv2(x, w, thresholds=np.zeros(35, np.int32))
    signs = np.where(reference.bconv2d(x, w) >= 0, 1.0, -1.0)
    assert (btc_bconv1(hidden, v, stride=2) == reference.bconv2d(signs, v, stride=2)).all()


def test_a_convolution_of_one_tap_and_pixel_is_the_product():
    x, w = reals(9, 1, 1, 200), reals(1, 1, 200, 10, seed=1)
    product = btc_bmm1(x[:, 0, 0], w[0, 0])
    for bconv in BCONVS:
        assert (bconv(x, w)[:, 0, 0] == product).all()


@pytest.mark.parametrize("bconv", BCONVS)
def test_convolutions_refuse_bad_operands(bconv):
    x, w = np.ones((1, 3, 3, 5)), np.ones((3, 3, 5, 2))
    with pytest.raises(ShapeError, match="channels"):
        bconv(x, np.ones((3, 3, 4, 2)))
    with pytest.raises(ShapeError, match="stride"):
        bconv(x, w, stride=0)
    with pytest.raises(ShapeError, match="output has height 0"):
        bconv(x, np.ones((4, 1, 5, 2)), padding="VALID")
    with pytest.raises(NotANumberError, match=r"x\[0, 1, 2, 3\]"):
        bconv(np.where(np.indices(x.shape).sum(0) * 1000 + np.arange(5) == 6003, np.nan, x), w)
    with pytest.raises(FormatError, match="layout='HWNC'"):
        bconv(PackedTensor(np.zeros((3, 3, 1, 1), np.uint32), (1, 3, 3, 5), "HWNC"), w)
    with pytest.raises(FormatError, match="past its 5 channels"):
        bconv(PackedTensor(np.full((1, 3, 3, 1), 32, np.uint32), (1, 3, 3, 5), "NHWC"), w)
    with pytest.raises(SchemeError, match="operation='or'"):
        bconv(x, w, operation="or")
    with pytest.raises(SchemeError, match="first='big'"):
        bconv(x, w, first="big")
    with pytest.raises(SchemeError, match="flip is given without thresholds"):
        bconv(x, w, flip=[True, False])


def test_the_operands_are_not_modified():
    packed = reference.pack(reals(4, 40), layout="column", first="lsb")
    assert isinstance(packed, PackedBits)
    before = packed.words.copy()
    for design in DESIGNS:
        design(packed, reals(40, 3))
    assert (packed.words == before).all()
