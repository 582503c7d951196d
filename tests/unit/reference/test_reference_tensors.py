"""pack_tensor, unpack_tensor, to_layout, pooling and thresholds equal plain Python loops."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from reference import (
    DtypeError,
    FormatError,
    NotANumberError,
    PackedTensor,
    SchemeError,
    ShapeError,
    binarize,
    pack_tensor,
    pool_bits,
    threshold_tensor,
    to_layout,
    unpack_tensor,
)
from reference.tensors import from_tiles, to_tiles
from reference.types.packed import FILTER_LAYOUTS, IMAGE_LAYOUTS
from support.offenders import every_case
from support.packed_integers import as_integers, dtype_of

ORDINARY = itertools.product(("NHWC", "HWNC", "HWOI", "HWIO"), (32, 64, 128), ("lsb", "msb"))
TILED = itertools.product(("HWNC-FSB", "HWOI-FSB"), (32,), ("lsb", "msb"))
FORMATS = [*ORDINARY, *TILED]
SHAPES = [(1, 1, 1, 1), (2, 3, 4, 5), (9, 2, 1, 33), (8, 1, 2, 128), (3, 2, 2, 64), (17, 1, 1, 129)]


def reals(shape, seed=0):
    return np.random.default_rng([*shape, seed]).standard_normal(shape)


def ceil(a, b):
    return (a + b - 1) // b


def words_by_hand(x, layout, word, first):
    """Packed words by the table of PackedTensor, element by element in Python integers."""
    n, h, w, c = x.shape
    if layout in FILTER_LAYOUTS:
        h, w, c, n = x.shape
    k = ceil(c, word)
    tiles = (ceil(n, 8), ceil(c, 128), 8, 4)
    shape = {
        "NHWC": (n, h, w, k),
        "HWNC": (h, w, n, k),
        "HWNC-FSB": (h, w, *tiles),
        "HWOI": (h, w, n, k),
        "HWIO": (h, w, k, n),
        "HWOI-FSB": (h, w, *tiles),
    }[layout]
    words = np.zeros(shape, object)
    for a, i, j, b in itertools.product(range(n), range(h), range(w), range(c)):
        at = b // word
        place = {
            "NHWC": (a, i, j, at),
            "HWNC": (i, j, a, at),
            "HWNC-FSB": (i, j, a // 8, at // 4, a % 8, at % 4),
            "HWOI": (i, j, a, at),
            "HWIO": (i, j, at, a),
            "HWOI-FSB": (i, j, a // 8, at // 4, a % 8, at % 4),
        }[layout]
        positive = (x[i, j, b, a] if layout in FILTER_LAYOUTS else x[a, i, j, b]) >= 0
        words[place] += int(positive) << (b % word if first == "lsb" else word - 1 - b % word)
    return words


# --------------------------------------------------------------------------------------------------
# pack_tensor and unpack_tensor
# --------------------------------------------------------------------------------------------------


def shape_for(layout, shape):
    """The shape, transposed for layouts of filters."""
    return (*shape[1:], shape[0]) if layout in FILTER_LAYOUTS else shape


@every_case("shape", SHAPES)
@every_case(("layout", "word", "first"), FORMATS)
def test_packed_words_equal_a_loop_over_bits(layout, word, first, shape):
    x = reals(shape_for(layout, shape))
    packed = pack_tensor(x, layout=layout, word=word, first=first)
    expected = words_by_hand(x, layout, word, first)
    assert packed.words.shape == expected.shape + (2,) * (word == 128)
    assert as_integers(packed).tolist() == expected.tolist()
    assert packed.words.dtype == dtype_of(word)
    assert packed.words.flags.c_contiguous
    assert (packed.shape, packed.layout) == (x.shape, layout)
    assert (packed.word, packed.first) == (word, first)
    bits = unpack_tensor(packed)
    np.testing.assert_array_equal(bits, binarize(x), strict=True)
    assert bits.flags.c_contiguous


@every_case(("layout", "word", "first"), FORMATS)
def test_unpack_ignores_padding_and_memory_order(layout, word, first):
    x = reals(shape_for(layout, (5, 2, 3, 35)))
    packed = pack_tensor(x, layout=layout, word=word, first=first)
    real = pack_tensor(np.ones(x.shape), layout=layout, word=word, first=first).words
    dirty = packed.words | ~real
    assert not np.array_equal(dirty, packed.words)
    for words in (dirty, np.asfortranarray(dirty)):
        np.testing.assert_array_equal(unpack_tensor(replace(packed, words=words)), binarize(x), strict=True)


def test_the_defaults_are_words_of_32_with_the_first_channel_last():
    packed = pack_tensor(np.array([0.0, -1.0, 2.0]).reshape(1, 1, 1, 3), layout="NHWC")
    assert (packed.word, packed.first, packed.words.tolist()) == (32, "lsb", [[[[5]]]])


def test_an_fsb_tile_is_128_consecutive_bytes():
    """With one image, only the first of a tile's eight rows of 16 bytes has ones."""
    packed = pack_tensor(np.ones((1, 1, 1, 128)), layout="HWNC-FSB")
    assert packed.words.tobytes() == b"\xff" * 16 + b"\0" * 112
    last = pack_tensor(np.ones((8, 1, 1, 129)), layout="HWNC-FSB").words.tobytes()
    assert last[:128] == b"\xff" * 128
    assert last[128:] == (b"\x01" + b"\0" * 15) * 8


def test_tiles_equal_figure_14_of_the_paper():
    """8×4 bits (H = 4, W = 8) in tiles of BH = 2 by BW = 4, both in row order."""
    matrix = np.arange(32).reshape(4, 8)
    order = [
        (row, column) for i in (0, 2) for j in (0, 4) for row in (i, i + 1) for column in range(j, j + 4)
    ]
    tiles = to_tiles(matrix, 2, 4)
    assert tiles.shape == (2, 2, 2, 4)
    assert tiles.ravel().tolist() == [matrix[at] for at in order]
    np.testing.assert_array_equal(from_tiles(tiles, 4, 8), matrix, strict=True)


@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (3, 5), (2, 3, 7, 9)])
def test_tiles_equal_a_loop_over_elements(shape):
    matrices = np.arange(1, np.prod(shape) + 1).reshape(shape)
    tiles = to_tiles(matrices, 2, 4)
    assert tiles.sum() == matrices.sum()  # what is added is 0
    for *outer, i, j in np.ndindex(shape):
        assert tiles[(*outer, i // 2, j // 4, i % 2, j % 4)] == matrices[(*outer, i, j)]
    np.testing.assert_array_equal(from_tiles(tiles, *shape[-2:]), matrices, strict=True)


# --------------------------------------------------------------------------------------------------
# Errors of packing
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow_cases("option2-no word=16*?n.**?nchoose 32 or 64 or 128")
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"layout": "NCHW"}, "no layout='NCHW'"),
        ({"layout": "FSB"}, "no layout='FSB'"),
        ({"word": 16}, r"no word=16\n.*\nchoose 32 or 64 or 128"),
        ({"first": "big"}, r"no first='big'\n.*\nchoose 'msb' or 'lsb'"),
        ({"layout": "HWNC-FSB", "word": 64}, "no layout='HWNC-FSB' with word=64"),
    ],
)
def test_unknown_formats_are_refused(option, message):
    x = np.ones((2, 2, 2, 2))
    with pytest.raises(SchemeError, match=message) as caught:
        pack_tensor(x, **{"layout": "NHWC"} | option)
    assert len(str(caught.value).splitlines()) == 3
    with pytest.raises(SchemeError, match=message):
        unpack_tensor(replace(pack_tensor(x, layout="NHWC"), **option))


@pytest.mark.parametrize("shape", [(), (3,), (2, 2, 2), (2, 2, 2, 2, 2), (0, 1, 1, 1), (1, 1, 1, 0)])
def test_tensors_of_other_dimensions_are_refused(shape):
    with pytest.raises(ShapeError, match=r"x has shape .*\n.*images \(N, H, W, C\)"):
        pack_tensor(np.ones(shape), layout="HWNC")
    with pytest.raises(ShapeError, match=r"x has shape .*\n.*filters \(R, S, C, O\)"):
        pack_tensor(np.ones(shape), layout="HWOI")


def test_pack_checks_its_elements():
    with pytest.raises(DtypeError, match=r"x .*int32"):
        pack_tensor(np.ones((1, 1, 1, 1), np.int32), layout="NHWC")
    with pytest.raises(NotANumberError, match=r"x\[0, 0, 1, 0\]"):
        pack_tensor(np.array([0.0, np.nan]).reshape(1, 1, 2, 1), layout="NHWC")


@pytest.mark.parametrize("layout", [*IMAGE_LAYOUTS, *FILTER_LAYOUTS])
def test_words_that_do_not_fit_are_refused(layout):
    packed = pack_tensor(np.ones((3, 2, 5, 7)), layout=layout)
    words, size = packed.words, r"\(3, 2, 5, 7\)"
    message = rf"shape={size} with layout='{layout}', word=32 needs .u4"
    for wrong in (words[:1, :1], words[..., None], words.astype(np.int32), words.astype(np.uint64)):
        with pytest.raises(FormatError, match=message) as caught:
            unpack_tensor(replace(packed, words=wrong))
        assert len(str(caught.value).splitlines()) == 3
    with pytest.raises(FormatError, match=message):
        unpack_tensor(replace(packed, words=words.astype(words.dtype.newbyteorder())))


@every_case("layout", [*IMAGE_LAYOUTS, *FILTER_LAYOUTS])
@every_case("axis", range(4))
def test_every_dimension_of_the_true_shape_is_checked(layout, axis):
    """150 more channels, images or filters need another word or tile in every layout."""
    packed = pack_tensor(np.ones((3, 2, 5, 7)), layout=layout)
    shape = tuple(size + 150 * (at == axis) for at, size in enumerate(packed.shape))
    with pytest.raises(FormatError, match=r"shape=\("):
        unpack_tensor(replace(packed, shape=shape))


@pytest.mark.parametrize(
    "shape", [None, (), (2, 2, 2), (1, 1, 1, 1, 1), [1, 1, 1, 1], (1, 1, 1, 1.0), (1, 1, 1, None)]
)
def test_a_missing_true_shape_is_refused(shape):
    packed = replace(pack_tensor(np.ones((1, 1, 1, 1)), layout="NHWC"), shape=shape)
    with pytest.raises(FormatError, match=r"the packed tensor has shape=.*\n.*\ngive PackedTensor the"):
        unpack_tensor(packed)


@pytest.mark.parametrize("shape", [(0, 1, 1, 1), (1, 1, 1, -1)])
def test_an_empty_true_shape_is_refused(shape):
    with pytest.raises(ShapeError, match="at least 1"):
        unpack_tensor(PackedTensor(np.zeros((1, 1, 1, 1), np.uint32), shape, "NHWC"))


def test_words_outside_a_numpy_array_are_refused():
    with pytest.raises(FormatError, match=r"list, not a NumPy array\n.*\ncopy them to the host"):
        unpack_tensor(PackedTensor([[[[0]]]], (1, 1, 1, 1), "NHWC"))


def test_unpack_refuses_other_types():
    with pytest.raises(DtypeError, match="expected a PackedTensor, got ndarray"):
        unpack_tensor(np.ones((1, 1, 1, 1)))


# --------------------------------------------------------------------------------------------------
# to_layout
# --------------------------------------------------------------------------------------------------

IMAGE_AXES = ("NHWC", "HWNC", "NCHW")
FILTER_AXES = ("HWIO", "HWOI", "OIHW", "KKCO", "OCKK")
LETTERS = {"KKCO": "HWIO", "OCKK": "OIHW"}


@every_case(
    ("source", "target"),
    [*itertools.product(IMAGE_AXES, repeat=2), *itertools.product(FILTER_AXES, repeat=2)],
)
def test_to_layout_moves_each_element_to_its_named_axes(source, target):
    size = dict(zip("NHWCIO", (2, 3, 4, 5, 6, 7), strict=True))
    old, new = LETTERS.get(source, source), LETTERS.get(target, target)
    x = np.arange(np.prod([size[axis] for axis in old])).reshape([size[axis] for axis in old])
    y = to_layout(x, source, target)
    assert y.shape == tuple(size[axis] for axis in new)
    assert y.flags.c_contiguous
    for index in itertools.product(*(range(size[axis]) for axis in old)):
        letter = dict(zip(old, index, strict=True))
        assert y[tuple(letter[axis] for axis in new)] == x[index]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("NHWD", "NHWC", "no source='NHWD'\nletters name the axes\nchoose 'NHWC' or 'HWNC'"),
        ("NHWC", "CHWN", "no target='CHWN'"),
        ("NHWC", "HWIO", "do not have the same axes"),
    ],
)
def test_unknown_orders_are_refused(source, target, message):
    with pytest.raises(SchemeError, match=message):
        to_layout(np.ones((1, 1, 1, 1)), source, target)


def test_to_layout_refuses_arrays_of_other_dimensions():
    with pytest.raises(ShapeError, match=r"array has shape \(2, 2\)\nNCHW names four axes"):
        to_layout(np.ones((2, 2)), "NCHW", "NHWC")


# --------------------------------------------------------------------------------------------------
# Pooling and thresholds
# --------------------------------------------------------------------------------------------------


def bits_of_threshold(dots, thresholds, flip):
    bits = np.zeros(dots.shape, np.uint8)
    for n, p, q, o in np.ndindex(dots.shape):
        bits[n, p, q, o] = (int(dots[n, p, q, o]) >= int(thresholds[o])) != bool(flip[o])
    return bits


def pooled_by_hand(bits, pool):
    n, h, w, c = bits.shape
    pooled = np.zeros((n, h // 2, w // 2, c), np.uint8)
    for a, p, q, o in np.ndindex(pooled.shape):
        window = [bits[a, 2 * p + i, 2 * q + j, o] for i in (0, 1) for j in (0, 1)]
        pooled[a, p, q, o] = any(window) if pool == "or" else all(window)
    return pooled


@pytest.mark.parametrize("pool", ["or", "and"])
@pytest.mark.parametrize("shape", [(1, 2, 2, 1), (2, 4, 6, 3), (2, 5, 3, 2), (1, 3, 2, 1)])
def test_pooling_equals_a_loop_over_windows(shape, pool):
    bits = binarize(reals(shape))
    pooled = pool_bits(bits, pool)
    np.testing.assert_array_equal(pooled, pooled_by_hand(bits, pool), strict=True)
    assert pooled.flags.c_contiguous


@pytest.mark.parametrize("pool", ["or", "and"])
def test_pooling_is_right_for_all_16_windows(pool):
    bits = np.array([*itertools.product((0, 1), repeat=4)], np.uint8).reshape(16, 2, 2, 1)
    ones = bits.sum(axis=(1, 2, 3))
    np.testing.assert_array_equal(pool_bits(bits, pool).ravel(), ones >= (1 if pool == "or" else 4))


@every_case("pool", [None, "or", "and"])
@every_case(("layout", "word", "first"), [f for f in FORMATS if f[0] in IMAGE_LAYOUTS])
def test_threshold_tensor_equals_a_loop_over_channels(layout, word, first, pool):
    generator = np.random.default_rng(1)
    dots = generator.integers(-9, 10, (3, 5, 4, 37), dtype=np.int32)
    thresholds, flip = generator.integers(-5, 6, 37), generator.integers(0, 2, 37).astype(bool)
    bits = bits_of_threshold(dots, thresholds, flip)
    bits = bits if pool is None else pooled_by_hand(bits, pool)
    packed = threshold_tensor(dots, thresholds, flip, pool=pool, layout=layout, word=word, first=first)
    assert (packed.shape, packed.layout, packed.word, packed.first) == (bits.shape, layout, word, first)
    expected = pack_tensor(2.0 * bits - 1.0, layout=layout, word=word, first=first).words
    np.testing.assert_array_equal(packed.words, expected, strict=True)


def test_a_threshold_at_the_ends_of_int32_compares_signed():
    dots = np.array([-(2**31), -1, 0, 2**31 - 1], np.int32).reshape(1, 1, 4, 1)
    for threshold, expected in ((-(2**31), [1, 1, 1, 1]), (0, [0, 0, 1, 1]), (2**31 - 1, [0, 0, 0, 1])):
        assert unpack_tensor(threshold_tensor(dots, [threshold])).ravel().tolist() == expected


DOTS = np.zeros((1, 2, 2, 3), np.int32)


@pytest.mark.parametrize(
    ("error", "arguments", "options", "message"),
    [
        (ShapeError, (DOTS[0], [0, 0, 0]), {}, r"dots has shape \(2, 2, 3\): give \(N, P, Q, O\)"),
        (ShapeError, (DOTS[:0], [0, 0, 0]), {}, "dots has shape"),
        (ShapeError, (DOTS, [0, 0]), {}, r"thresholds has shape \(2,\)"),
        (ShapeError, (DOTS, [0, 0, 0], [True]), {}, r"flip has shape \(1,\)"),
        (ShapeError, (DOTS[:, :1], [0, 0, 0]), {"pool": "or"}, "pool='or' would leave no pixel"),
        (ShapeError, (DOTS[:, :, :1], [0, 0, 0]), {"pool": "and"}, "pool='and' would leave no pixel"),
        (DtypeError, (DOTS.astype(float), [0, 0, 0]), {}, "dots has elements of float64"),
        (DtypeError, (DOTS, [0.5, 0, 0]), {}, "thresholds has elements of float64"),
        (DtypeError, (DOTS, [0, 0, 0], [0, 0, 1]), {}, "flip has elements of int64"),
        (DtypeError, (DOTS, [0, 0, 2**31]), {}, "beyond int32"),
        (SchemeError, (DOTS, [0, 0, 0]), {"pool": "max"}, "no pool='max'"),
        (SchemeError, (DOTS, [0, 0, 0]), {"layout": "HWOI"}, "no layout='HWOI'"),
        (SchemeError, (DOTS, [0, 0, 0]), {"word": 8}, "no word=8"),
        (SchemeError, (DOTS, [0, 0, 0]), {"first": "big"}, "no first='big'"),
    ],
)
def test_threshold_tensor_refuses_unsuitable_arguments(error, arguments, options, message):
    with pytest.raises(error, match=message):
        threshold_tensor(*arguments, **options)


def test_pooling_refuses_other_dimensions():
    with pytest.raises(ShapeError, match=r"bits has shape \(2, 2\)"):
        pool_bits(np.zeros((2, 2), np.uint8), "or")
