"""binarize, pack and unpack equal plain Python loops."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from reference import (
    DtypeError,
    FormatError,
    NotANumberError,
    PackedBits,
    SchemeError,
    ShapeError,
    binarize,
    pack,
    unpack,
)
from support.packed_integers import as_integers, dtype_of

FLOATS = [np.float16, np.float32, np.float64]
FORMATS = list(itertools.product(("row", "column"), (32, 64, 128), ("msb", "lsb")))
EDGES = [1, 2, 7, 31, 32, 33, 63, 64, 65, 97, 127, 128, 129]


def signs(rows, columns, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1.0, 1.0]), (rows, columns))


def words_by_hand(x, layout, word, first):
    """Packed words as lists of Python ints, each parsed from a string of binary digits."""
    rows, columns = len(x), len(x[0])
    digits = [["1" if v >= 0 else "0" for v in row] for row in x]
    lines = digits if layout == "column" else [[digits[r][c] for r in range(rows)] for c in range(columns)]
    packed_lines = []
    for line in lines:
        pieces = [line[start : start + word] for start in range(0, len(line), word)]
        pieces = [piece + ["0"] * (word - len(piece)) for piece in pieces]
        packed_lines.append(
            [int("".join(piece if first == "msb" else reversed(piece)), 2) for piece in pieces]
        )
    return [list(column) for column in zip(*packed_lines, strict=True)]


# --------------------------------------------------------------------------------------------------
# binarize
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("order", ["<", ">"])
def test_extreme_floats_have_the_bit_of_their_sign(dtype, order):
    info = np.finfo(dtype)
    x = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, info.max, info.min, info.tiny, -info.tiny]
    x += [info.smallest_subnormal, -info.smallest_subnormal]
    bits = binarize(np.array(x, np.dtype(dtype).newbyteorder(order)))
    assert bits.dtype == np.uint8
    assert bits.tolist() == [1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]


def test_every_float16_except_nan_is_binarized():
    words = np.arange(2**16, dtype=np.uint16)
    magnitude, negative = words & 0x7FFF, words >> 15 == 1
    number = magnitude <= 0x7C00
    expected = (~negative | (magnitude == 0))[number]
    np.testing.assert_array_equal(binarize(words[number].view(np.float16)), expected)


def test_every_int8_is_binarized():
    assert binarize(np.arange(-128, 128, dtype=np.int8)).tolist() == [0] * 128 + [1] * 128


def test_values_are_not_cast_before_the_comparison():
    tiny = np.array([-5e-324, -1e-60])  # float32 and float16 would make it -0.0
    assert binarize(tiny).tolist() == [0, 0]


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0), (2, 3, 4)])
def test_binarize_keeps_the_shape(shape):
    bits = binarize(np.zeros(shape))
    assert isinstance(bits, np.ndarray)
    assert bits.shape == shape
    assert bits.flags.c_contiguous


def test_binarize_takes_nested_lists_of_floats():
    assert binarize([[1.0, -2.0], [-0.0, -4.0]]).tolist() == [[1, 0], [1, 0]]


def test_views_of_any_stride_are_binarized():
    x = signs(12, 14)
    for view in (x[::2, ::-3], x.T, np.asfortranarray(x), np.broadcast_to(x[:1], (5, 14))):
        bits = binarize(view)
        assert bits.tolist() == [[int(v >= 0) for v in row] for row in view.tolist()]
        assert bits.flags.c_contiguous


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("order", ["<", ">"])
def test_nan_is_named_by_its_first_index(dtype, order):
    x = np.ones((3, 4), np.dtype(dtype).newbyteorder(order))
    x[1, 2] = x[2, 0] = np.nan
    with pytest.raises(NotANumberError, match=r"x\[1, 2\] is NaN \(2 of 12") as caught:
        binarize(np.asfortranarray(x))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("word", [0x7C01, 0x7E00, 0xFC01, 0xFFFF])
def test_signalling_and_negative_nans_are_refused(word):
    with pytest.raises(NotANumberError, match=r"x\[0\]"):
        binarize(np.array([word], np.uint16).view(np.float16))


def test_a_nan_scalar_is_refused():
    with pytest.raises(NotANumberError, match=r"x\[\(\)\]"):
        binarize(float("nan"))


@pytest.mark.parametrize(
    "dtype",
    [np.complex64, np.complex128, bool, object, np.int16, np.int32, np.int64, np.uint8, np.uint32, "U1"],
)
def test_other_element_types_are_refused(dtype):
    with pytest.raises(DtypeError, match=r"float64, float32, float16, bfloat16 and int8.*astype") as caught:
        binarize(np.ones((2, 2)).astype(dtype))
    assert isinstance(caught.value, TypeError)


def test_longdouble_is_refused():
    with pytest.raises(DtypeError):
        binarize(np.ones(1, np.longdouble))


def test_the_advice_for_zeros_and_ones_maps_them_to_both_signs():
    x = np.array([0, 1], np.uint8)
    with pytest.raises(DtypeError, match=r"2 \* x\.astype\(np\.int8\) - 1"):
        binarize(x)
    assert binarize(2 * x.astype(np.int8) - 1).tolist() == [0, 1]


def test_ragged_rows_are_refused():
    with pytest.raises(ShapeError, match="same length"):
        binarize([[1.0], [1.0, 2.0]])


# --------------------------------------------------------------------------------------------------
# pack and unpack
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "word", "first"), FORMATS)
def test_packed_words_equal_a_loop_over_bits(layout, word, first):
    for rows, columns in [(1, 1), (2, 3), (3, 65), (65, 3), *zip(EDGES, reversed(EDGES), strict=True)]:
        x = signs(rows, columns, seed=rows)
        packed = pack(x, layout=layout, word=word, first=first)
        assert as_integers(packed).tolist() == words_by_hand(x.tolist(), layout, word, first)
        assert packed.words.dtype == dtype_of(word)
        assert packed.words.flags.c_contiguous
        assert (packed.shape, packed.layout) == ((rows, columns), layout)
        assert (packed.word, packed.first) == (word, first)
        np.testing.assert_array_equal(unpack(packed), binarize(x))


@pytest.mark.parametrize(("layout", "word", "first"), FORMATS)
def test_a_single_element_is_a_single_bit(layout, word, first):
    for r, c in [(0, 0), (31, 63), (32, 64), (66, 70), (127, 128), (128, 127), (131, 129)]:
        x = np.full((132, 130), -1.0)
        x[r, c] = 1.0
        packed = pack(x, layout=layout, word=word, first=first)
        along, line = (c, r) if layout == "column" else (r, c)
        bit = along % word if first == "lsb" else word - 1 - along % word
        words = as_integers(packed)
        assert np.argwhere(words).tolist() == [[along // word, line]]
        assert words[along // word, line] == 2**bit


def test_the_defaults_are_row_major_32_msb():
    packed = pack([[-0.0], [-1.0]])
    assert (packed.layout, packed.word, packed.first) == ("row", 32, "msb")
    assert packed.words.tolist() == [[0x80000000]]


def test_pack_reads_any_memory_order():
    x = signs(33, 65).astype(np.float32)
    expected = pack(x).words
    for same in (np.asfortranarray(x), x.astype(">f4"), x.T.copy().T, np.repeat(x, 2, axis=1)[:, ::2]):
        np.testing.assert_array_equal(pack(same).words, expected)


@pytest.mark.parametrize(("layout", "word", "first"), FORMATS)
def test_unpack_ignores_padding_and_memory_order(layout, word, first):
    packed = pack(signs(33, 45), layout=layout, word=word, first=first)
    dirty = packed.words | ~pack(np.ones((33, 45)), layout=layout, word=word, first=first).words
    expected = unpack(packed)
    assert expected.flags.c_contiguous
    np.testing.assert_array_equal(unpack(replace(packed, words=dirty)), expected)
    np.testing.assert_array_equal(unpack(replace(packed, words=np.asfortranarray(dirty))), expected)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"layout": "diagonal"}, "layout='diagonal'\n.*\nchoose 'row' or 'column'"),
        ({"word": 16}, "word=16\n.*\nchoose 32 or 64 or 128"),
        ({"first": "big"}, "first='big'\n.*\nchoose 'msb' or 'lsb'"),
    ],
)
def test_unknown_formats_are_refused(option, message):
    with pytest.raises(SchemeError, match=message):
        pack(np.ones((2, 2)), **option)
    with pytest.raises(SchemeError, match=message):
        unpack(replace(pack(np.ones((2, 2))), **option))


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (1, 2, 3, 4), (0, 3), (3, 0), (0, 0)])
def test_operands_that_are_not_matrices_are_refused(shape):
    with pytest.raises(ShapeError, match="has shape"):
        pack(np.ones(shape))
    with pytest.raises(ShapeError, match="has shape"):
        unpack(PackedBits(np.zeros((1, 1), np.uint32), shape, "row"))


def test_pack_checks_its_elements():
    with pytest.raises(DtypeError):
        pack(np.ones((2, 2), np.int32))
    with pytest.raises(NotANumberError, match=r"x\[0, 1\]"):
        pack([[0.0, np.nan]])


@pytest.mark.parametrize(
    "words",
    [
        np.zeros((2, 5), np.uint32),
        np.zeros((1, 3), np.uint32),
        np.zeros(5, np.uint32),
        np.zeros((1, 5), np.uint64),
        np.zeros((1, 5), np.int32),
        np.zeros((1, 5), np.dtype(np.uint32).newbyteorder()),
    ],
)
def test_words_that_do_not_fit_are_refused(words):
    with pytest.raises(FormatError, match=r"3 x 5 matrix with layout='row', word=32 needs .u4 \(1, 5\)"):
        unpack(PackedBits(words, (3, 5), "row"))


def test_words_of_128_bits_are_pairs_of_those_of_64(tmp_path):
    """Least significant first their memory is that of one word of 64 after the other."""
    x = signs(200, 33)
    for layout, first in itertools.product(("row", "column"), ("lsb", "msb")):
        long, short = (pack(x, layout=layout, word=word, first=first) for word in (128, 64))
        count, lines = short.words.shape
        pairs = long.words[..., :: 1 if first == "lsb" else -1].swapaxes(1, 2).reshape(-1, lines)
        np.testing.assert_array_equal(pairs[:count], short.words)
        assert not pairs[count:].any()
        np.savez(tmp_path / "words.npz", words=long.words)
        with np.load(tmp_path / "words.npz") as kept:
            assert replace(long, words=kept["words"]) == long
        assert replace(long, words=np.from_dlpack(long.words)) == long
    assert "dtype=uint64" in repr(pack(x[:1, :1], word=128))


def test_words_of_128_bits_that_do_not_fit_are_refused():
    packed = pack(signs(3, 5), word=128)
    for wrong in (packed.words[..., 0], packed.words.view(np.uint32), packed.words.swapaxes(1, 2)):
        with pytest.raises(FormatError, match=r"word=128 needs .u8 \(1, 5, 2\)"):
            unpack(replace(packed, words=wrong))


def test_words_outside_a_numpy_array_are_refused():
    with pytest.raises(FormatError, match="list, not a NumPy array"):
        unpack(PackedBits([[0, 0, 0]], (3, 3), "row"))


def test_unpack_refuses_other_types():
    with pytest.raises(DtypeError, match="got ndarray"):
        unpack(np.ones((2, 2)))
