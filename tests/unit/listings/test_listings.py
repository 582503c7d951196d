"""The listings equal plain Python loops and the paper's figure 4, and refuse unsuitable operands."""

import inspect
import itertools
from dataclasses import replace

import numpy as np
import pytest

import reference
from reference.errors import DtypeError, FormatError, NotANumberError, ShapeError
from reference.types import PackedBits
from simwarp import faults
from simwarp.listings import BMM32_Arow_Brow, PackTo32Col, PackTo32Row, bmm32, pack32_column, pack32_row
from simwarp.warp import GlobalArray, launch

SHAPES = [(1, 1), (1, 33), (33, 1), (5, 70), (32, 32), (31, 64), (64, 31), (65, 40)]
PRODUCTS = [(1, 1, 1), (1, 33, 2), (3, 32, 5), (33, 31, 1), (7, 65, 34), (32, 64, 32)]
TRANSPOSITIONS = list(itertools.product((False, True), repeat=2))
PACKERS = {"column": pack32_column, "row": pack32_row}


def reals(rows, columns, seed=0):
    return np.random.default_rng([rows, columns, seed]).standard_normal((rows, columns))


def words_by_hand(rows):
    """Words of 32 row elements, the first in the most significant bit, of shape (words, rows)."""
    steps = range(0, len(rows[0]), 32)
    texts = [["".join("01"[v >= 0] for v in row[s : s + 32]).ljust(32, "0") for row in rows] for s in steps]
    return [[int(text, 2) for text in line] for line in texts]


def product_by_hand(a, b):
    signs_a, signs_b = ([[1 if v >= 0 else -1 for v in row] for row in x.tolist()] for x in (a, b.T))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in signs_b] for row in signs_a]


def line_of(kernel, text):
    source, first = inspect.getsourcelines(kernel)
    (at,) = [i for i, line in enumerate(source) if text in line]
    return first + at


# --------------------------------------------------------------------------------------------------
# Listings 1 and 2
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packing_equals_a_loop_over_bits(shape):
    x = reals(*shape)
    for layout, lines in (("column", x), ("row", x.T)):
        packed = PACKERS[layout](x)
        assert packed.words.tolist() == words_by_hand(lines.tolist())
        assert packed.words.dtype == np.uint32
        assert packed.words.flags.c_contiguous
        assert (packed.shape, packed.layout, packed.word, packed.first) == (shape, layout, 32, "msb")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", PACKERS)
def test_packing_equals_the_reference(shape, layout):
    x = reals(*shape)
    np.testing.assert_array_equal(
        PACKERS[layout](x).words, reference.pack(x, layout=layout).words, strict=True
    )


def test_words_equal_figure_4_of_the_paper():
    """D0, D1, D2, D128, D129 and D511 of a 128 × 128 block hold the elements shown there."""
    x = reals(128, 128)
    column, row = (pack(x).words.reshape(-1) for pack in (pack32_column, pack32_row))
    for number in (0, 1, 2, 128, 129, 511):
        step, line = divmod(number, 128)
        along_the_row = x[line, 32 * step : 32 * step + 32]
        along_the_column = x[32 * step : 32 * step + 32, line]
        for words, elements in ((column, along_the_row), (row, along_the_column)):
            assert f"{words[number]:032b}" == "".join("1" if v >= 0 else "0" for v in elements), number


def test_one_positive_element_is_one_bit():
    for r, c in ((0, 0), (31, 31), (32, 0), (0, 32), (37, 45)):
        x = np.full((40, 50), -1.0)
        x[r, c] = 1.0
        for layout, word, bit in (("column", (c // 32, r), 31 - c % 32), ("row", (r // 32, c), 31 - r % 32)):
            words = PACKERS[layout](x).words
            assert words[word] == 1 << bit
            assert np.count_nonzero(words) == 1


def test_values_are_not_cast_before_the_comparison():
    double, half = np.nextafter(0, 1), np.nextafter(np.float16(0), np.float16(1))
    for values, signs in (
        (np.array([[0.0, -0.0, double, -double, np.inf, -np.inf]]), "111010"),
        (np.array([[0, -0.0, half, -half, np.inf, -np.inf]], np.float16), "111010"),
        (np.array([[0, 1, -1, 127, 2, -128]], np.int8), "110110"),
    ):
        assert f"{pack32_column(values).words[0, 0]:032b}" == signs.ljust(32, "0")
        assert "".join(str(word >> 31) for word in pack32_row(values).words[0]) == signs


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i1", ">f8", ">f2"])
def test_every_element_type_equals_the_reference(dtype):
    x = (reals(40, 37) * 50).astype(dtype)
    for layout, pack in PACKERS.items():
        for matrix in (x, x.T, x[::-1, ::2], np.asfortranarray(x)):
            expected = reference.pack(matrix, layout=layout).words
            np.testing.assert_array_equal(pack(matrix).words, expected, strict=True)


@pytest.mark.parametrize("pack", PACKERS.values())
def test_packing_refuses_bad_matrices(pack):
    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.nan
    with pytest.raises(NotANumberError, match=r"matrix\[1, 2\]"):
        pack(x)
    for dtype in (np.int32, np.uint8, bool, complex, object, "U1"):
        with pytest.raises(DtypeError, match="float64, float32, float16 or int8"):
            pack(np.ones((2, 2)).astype(dtype))
    for shape in ((), (3,), (2, 2, 2), (0, 3), (3, 0)):
        with pytest.raises(ShapeError, match="at least 1"):
            pack(np.ones(shape))
    with pytest.raises(ShapeError, match="same length"):
        pack([[1.0], [1.0, 2.0]])


def test_a_size_beyond_the_matrix_is_out_of_bounds():
    """With one row too many, both kernels leave the matrix; lane and line are named."""
    A = GlobalArray.of("A", np.ones((33, 3)))  # noqa: N806
    for kernel, words in ((PackTo32Col, (1, 64)), (PackTo32Row, (2, 3))):
        with pytest.raises(faults.OutOfBounds) as caught:
            launch(kernel, (2, 1), 32, A, GlobalArray("B", words, np.uint32), 34, 3)
        place = caught.value.place
        assert (place.kernel, place.block, place.lane) == (kernel.__name__, (1, 0, 0), 0)
        assert place.line == line_of(kernel, "warp.load(A")


# --------------------------------------------------------------------------------------------------
# Listing 4
# --------------------------------------------------------------------------------------------------


def operands(m, k, n, transpose_a, transpose_b):
    a, b = reals(m, k, 1), reals(k, n, 2)
    stored = (a.T if transpose_a else a), (b.T if transpose_b else b)
    return *stored, product_by_hand(a, b)


@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSITIONS)
def test_products_equal_a_loop_over_elements(sizes, transpose_a, transpose_b):
    a, b, expected = operands(*sizes, transpose_a, transpose_b)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    c = bmm32(a, b, **options)
    assert c.tolist() == expected
    assert (c.dtype, c.shape) == (np.int32, (sizes[0], sizes[2]))
    np.testing.assert_array_equal(c, reference.bmm(a, b, **options), strict=True)


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSITIONS)
def test_only_the_layouts_of_the_paper_are_accepted(transpose_a, transpose_b):
    """An operand packed in the layout of the paper's table is accepted, otherwise refused."""
    a, b, expected = operands(7, 70, 5, transpose_a, transpose_b)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    layout_a, layout_b = ("column", "row")[transpose_a], ("row", "column")[transpose_b]
    for first in ("msb", "lsb"):
        packed_a = reference.pack(a, layout=layout_a, first=first)
        packed_b = reference.pack(b, layout=layout_b, first=first)
        assert bmm32(packed_a, packed_b, **options).tolist() == expected
    assert bmm32(PACKERS[layout_a](a), b, **options).tolist() == expected
    assert bmm32(a, PACKERS[layout_b](b), **options).tolist() == expected
    other = {"column": "row", "row": "column"}
    for bad_a, bad_b, needed in (
        (
            reference.pack(a, layout=other[layout_a]),
            b,
            f"(?s)a is .*needs layout='{layout_a}', word=32.* transpose_a",
        ),
        (
            a,
            reference.pack(b, layout=other[layout_b]),
            f"(?s)b is .*needs layout='{layout_b}', word=32.* transpose_b",
        ),
    ):
        with pytest.raises(FormatError, match=needed):
            bmm32(bad_a, bad_b, **options)


def test_the_printed_loop_bound_counts_words():
    """With A_width counted in elements, as its name suggests, the kernel leaves A."""
    a, b = pack32_column(reals(32, 64)), pack32_row(reals(64, 32))
    A, B = GlobalArray.of("A", a.words), GlobalArray.of("B", b.words)  # noqa: N806
    C = GlobalArray("C", (32, 32), np.int32)  # noqa: N806
    with pytest.raises(faults.OutOfBounds) as caught:
        launch(BMM32_Arow_Brow, (1, 1), 32, A, B, C, 32, 64, 32, 64)
    assert (caught.value.allocation, caught.value.offset) == ("A", 4 * 2 * 32)
    assert caught.value.place.line == line_of(BMM32_Arow_Brow, "warp.load(A")


def test_extreme_dot_products_are_exact():
    ones = np.ones((3, 100), np.int8)
    assert (bmm32(ones, ones, transpose_b=True) == 100).all()
    assert (bmm32(ones, -ones, transpose_b=True) == -100).all()
    assert bmm32(np.float16([[-0.0]]), np.array([[-1.0]])).tolist() == [[-1]]


def test_unsuitable_shapes_are_refused():
    a, b = reals(3, 5), reals(4, 2)
    with pytest.raises(ShapeError, match=r"a \(3, 5\) and b \(4, 2\) .*K is 5 in a and 4 in b"):
        bmm32(a, b)
    with pytest.raises(ShapeError, match=r"\(3, 5\) .* \(4, 2\) .*transpose_a=True.*K is 3 in a and 2 in b"):
        bmm32(pack32_row(a), b, transpose_a=True, transpose_b=True)
    for bad in (np.ones((5, 0)), np.ones((0, 5)), np.ones(5), np.ones((1, 5, 2))):
        with pytest.raises(ShapeError, match="b has shape"):
            bmm32(a, bad)
    with pytest.raises(ShapeError, match=r"a has shape \(0, 4\)"):
        bmm32(PackedBits(np.zeros((1, 0), np.uint32), (0, 4), "column"), b)


def test_elements_without_a_sign_are_refused():
    a, b = reals(3, 5), reals(5, 2)
    b[4, 1] = np.nan
    with pytest.raises(NotANumberError, match=r"b\[4, 1\] is NaN"):
        bmm32(a, b)
    with pytest.raises(DtypeError, match="a has elements of int64"):
        bmm32(np.ones((3, 5), np.int64), b)


def test_unsuitable_packed_operands_are_refused():
    a, b = pack32_column(reals(3, 40)), pack32_row(reals(40, 2))
    for bad, message in (
        (reference.pack(reals(3, 40), layout="column", word=64), "word=64"),
        (
            reference.pack(reals(3, 40), layout="column", first="lsb"),
            "a has first='lsb' and b has first='msb'",
        ),
        (replace(a, first="middle"), "first='middle'"),
        (replace(a, words=a.words[:1]), r"uint32 \(1, 3\), but .* needs uint32 \(2, 3\)"),
        (replace(a, words=a.words.astype(np.int64)), "int64"),
        (replace(a, words=a.words.tolist()), "copy the words there"),
        (replace(a, words=a.words | np.uint32(1)), "a has bits past its 40 columns"),
    ):
        with pytest.raises(FormatError, match=message):
            bmm32(bad, b)
    lsb = reference.pack(reals(40, 2), layout="row", first="lsb")
    with pytest.raises(FormatError, match="b has bits past its 40 rows"):
        bmm32(a, replace(lsb, words=lsb.words | np.uint32(1 << 31)))
    with pytest.raises(FormatError, match="real numbers are packed with first='msb'"):
        bmm32(reals(3, 40), lsb)
