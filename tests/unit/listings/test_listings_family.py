"""BSTC's family of products equals plain Python loops, and its bounds and errors hold."""

import inspect
import itertools
from dataclasses import replace

import numpy as np
import pytest

import reference
from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from simwarp import faults
from simwarp.listings import (
    BMM64_LARGEST_K,
    BMM64_Arow_Brow,
    BMMS32_Arow_Brow,
    BMMS64_Arow_Brow,
    PackTo64Col,
    PackTo64Row,
    approach_costs,
    bmm,
    bmm32,
    bmm64,
    bmms32,
    bmms64,
    pack32_column,
    pack32_row,
    pack64_column,
    pack64_row,
    pack128_column,
    pack128_row,
    product_of,
    unpack32,
    unpack64,
    unpack128,
)
from simwarp.warp import GlobalArray, Warp, launch
from support.offenders import every_case

SHAPES = [(1, 1), (1, 65), (65, 1), (5, 130), (33, 63), (64, 32), (31, 64), (66, 70)]
PRODUCTS = [(1, 1, 1), (1, 65, 2), (3, 64, 34), (33, 31, 1), (66, 70, 65), (32, 128, 32)]
TRANSPOSITIONS = list(itertools.product((False, True), repeat=2))
PACK64 = {"column": pack64_column, "row": pack64_row}
PACK = {
    ("column", 32): pack32_column,
    ("row", 32): pack32_row,
    ("column", 64): pack64_column,
    ("row", 64): pack64_row,
    ("column", 128): pack128_column,
    ("row", 128): pack128_row,
}
UNPACK = {32: unpack32, 64: unpack64, 128: unpack128}
SCHEMES = {bmm32: 32, bmm64: 64, bmms32: 32, bmms64: 64}
"""The four row-by-row products and their words."""

# What each of the paper's approaches multiplies, by hand from section 5.1: the four compositions of
# "Relaxing Assumption-(a)" give A · B, and the other layout of an operand its transpose.
TABLE = """
row-by-row       column row    A  B
row-by-row       row    row    At B
row-by-row       column column A  Bt
row-by-row       row    column At Bt
row-by-column    column column A  B
row-by-column    row    column At B
row-by-column    column row    A  Bt
row-by-column    row    row    At Bt
column-by-row    row    row    A  B
column-by-row    column row    At B
column-by-row    row    column A  Bt
column-by-row    column column At Bt
column-by-column row    column A  B
column-by-column column column At B
column-by-column row    row    A  Bt
column-by-column column row    At Bt
"""
COMBINATIONS = [
    (approach, layout_a, layout_b, left == "At", right == "Bt")
    for approach, layout_a, layout_b, left, right in (line.split() for line in TABLE.strip().splitlines())
]


def reals(rows, columns, seed=0):
    return np.random.default_rng([rows, columns, seed]).standard_normal((rows, columns))


def words_by_hand(rows):
    """Words of 64 row elements, the first in the most significant bit, of shape (words, rows)."""
    steps = range(0, len(rows[0]), 64)
    texts = [["".join("01"[v >= 0] for v in row[s : s + 64]).ljust(64, "0") for row in rows] for s in steps]
    return [[int(text, 2) for text in line] for line in texts]


def product_by_hand(a, b):
    signs_a, signs_b = ([[1 if v >= 0 else -1 for v in row] for row in x.tolist()] for x in (a, b.T))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in signs_b] for row in signs_a]


def operands(m, k, n, transpose_a=False, transpose_b=False):
    a, b = reals(m, k, 1), reals(k, n, 2)
    return (a.T if transpose_a else a), (b.T if transpose_b else b), product_by_hand(a, b)


def line_of(kernel, text):
    source, first = inspect.getsourcelines(kernel)
    return first + next(i for i, line in enumerate(source) if text in line)


# --------------------------------------------------------------------------------------------------
# 64-bit packing, unpacking
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packing_64_equals_a_loop_over_bits(shape):
    x = reals(*shape)
    for layout, lines in (("column", x), ("row", x.T)):
        packed = PACK64[layout](x)
        assert packed.words.tolist() == words_by_hand(lines.tolist())
        assert (packed.words.dtype, packed.words.flags.c_contiguous) == (np.uint64, True)
        assert (packed.shape, packed.layout, packed.word, packed.first) == (shape, layout, 64, "msb")
        expected = reference.pack(x, layout=layout, word=64).words
        np.testing.assert_array_equal(packed.words, expected, strict=True)


def test_packing_128_equals_the_reference():
    for shape in ((1, 1), (5, 130), (33, 63), (3, 260)):
        x = reals(*shape)
        for matrix, layout in itertools.product((x, x.T), ("row", "column")):
            expected = reference.pack(matrix, layout=layout, word=128).words
            np.testing.assert_array_equal(PACK[layout, 128](matrix).words, expected, strict=True)


@pytest.mark.slow
def test_one_positive_element_is_one_bit_of_64():
    for r, c in ((0, 0), (31, 31), (32, 63), (63, 32), (64, 0), (0, 64), (69, 77)):
        x = np.full((70, 80), -1.0)
        x[r, c] = 1.0
        for layout, word, bit in (("column", (c // 64, r), 63 - c % 64), ("row", (r // 64, c), 63 - r % 64)):
            words = PACK64[layout](x).words
            assert words[word] == 1 << bit
            assert np.count_nonzero(words) == 1


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i1", ">f4"])
def test_every_element_type_equals_the_reference(dtype):
    x = (reals(40, 67) * 50).astype(dtype)
    for layout, pack in PACK64.items():
        for matrix in (x.T, x[::-1, ::2]):
            expected = reference.pack(matrix, layout=layout, word=64).words
            np.testing.assert_array_equal(pack(matrix).words, expected, strict=True)


@pytest.mark.parametrize("pack", PACK64.values())
def test_packing_64_refuses_bad_matrices(pack):
    x = np.ones((3, 4))
    x[2, 3] = np.nan
    with pytest.raises(NotANumberError, match=r"matrix\[2, 3\]"):
        pack(x)
    with pytest.raises(DtypeError, match="matrix has elements of int32"):
        pack(np.ones((2, 2), np.int32))
    with pytest.raises(ShapeError, match="at least 1"):
        pack(np.ones((0, 3)))


def test_a_size_beyond_the_matrix_is_out_of_bounds():
    A = GlobalArray.of("A", np.ones((33, 3)))  # noqa: N806
    for kernel, grid, words in ((PackTo64Col, (2, 1), (1, 64)), (PackTo64Row, (1, 1), (1, 3))):
        with pytest.raises(faults.OutOfBounds) as caught:
            launch(kernel, grid, 32, A, GlobalArray("B", words, np.uint64), 34, 3)
        assert caught.value.place.line == line_of(kernel, "warp.load(A")


@pytest.mark.slow
@every_case("shape", SHAPES)
@every_case(("layout", "word"), PACK)
def test_unpacking_gives_the_signs(shape, layout, word):
    x = reals(*shape)
    unpacked = UNPACK[word](PACK[layout, word](x))
    assert unpacked.tolist() == [[1 if v >= 0 else -1 for v in row] for row in x.tolist()]
    assert unpacked.dtype == np.int32


def test_unpacking_ignores_padding_bits():
    for word, unpack in ((32, unpack32), (64, unpack64)):
        packed = reference.pack(-np.ones((3, 5)), layout="column", word=word)
        dirty = replace(packed, words=packed.words | packed.words.dtype.type(2 ** (word - 5) - 1))
        assert (unpack(dirty) == -1).all()


def test_unpacking_refuses_other_formats():
    packed = pack32_column(reals(3, 5))
    for bad, message in (
        (pack64_column(reals(3, 5)), "word=64"),
        (reference.pack(reals(3, 5), layout="column", first="lsb"), "first='lsb'"),
        (replace(packed, layout="tile"), "layout='tile'"),
        (replace(packed, words=packed.words[:, :2]), r"\(1, 2\)"),
        (replace(packed, words=packed.words.tolist()), "copy the words there"),
    ):
        with pytest.raises(FormatError, match=message):
            unpack32(bad)
    with pytest.raises(ShapeError, match=r"\(3, 0\)"):
        unpack32(replace(packed, shape=(3, 0)))
    with pytest.raises(DtypeError, match=r"PackedBits, got ndarray.*pack64"):
        unpack64(packed.words)


# --------------------------------------------------------------------------------------------------
# Listing 3: sixteen combinations
# --------------------------------------------------------------------------------------------------


def test_the_table_lists_all_16_combinations():
    assert len(COMBINATIONS) == len(set(COMBINATIONS)) == 16
    for approach, layout_a, layout_b, transpose_a, transpose_b in COMBINATIONS:
        assert product_of(approach, layout_a, layout_b) == (transpose_a, transpose_b)


def test_the_docstring_contains_the_table():
    text = inspect.getdoc(bmm).replace("ᵀ", "t").replace(" · ", " ")
    documented = [
        line.split() for line in text.splitlines() if line.strip().startswith(("row-by", "column-by"))
    ]
    assert [line[:5] for line in documented] == [line.split() for line in TABLE.strip().splitlines()]
    optimal = [line[0] for line in documented if "(*)" in line]
    assert optimal == ["row-by-row"] * 4


@pytest.mark.at_most(12)
@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(map(str, c[:3])))
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 33, 5), (33, 31, 34), (7, 65, 33)], ids=str)
def test_all_16_combinations_equal_the_product(combination, sizes):
    """From matrices in the required layouts, and from packed operands."""
    approach, layout_a, layout_b, transpose_a, transpose_b = combination
    a, b, expected = operands(*sizes, transpose_a, transpose_b)
    options = {"approach": approach, "transpose_a": transpose_a, "transpose_b": transpose_b}
    c = bmm(a, b, layout_a=layout_a, layout_b=layout_b, **options)
    assert c.tolist() == expected
    assert (c.dtype, c.shape) == (np.int32, (sizes[0], sizes[2]))
    np.testing.assert_array_equal(c, reference.bmm(a, b, transpose_a=transpose_a, transpose_b=transpose_b))
    packed_a, packed_b = PACK[layout_a, 32](a), PACK[layout_b, 32](b)
    for left, right in ((packed_a, packed_b), (packed_a, b), (a, packed_b), (a, b)):
        assert bmm(left, right, **options).tolist() == expected


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(map(str, c[:3])))
def test_an_error_of_unsuitable_layouts_names_the_suitable_ones(combination):
    approach, layout_a, layout_b, *served = combination
    x = reals(3, 3)
    for transposes in TRANSPOSITIONS:
        if list(transposes) == served:
            continue
        (serving,) = ((la, lb) for ap, la, lb, *t in COMBINATIONS if ap == approach and t == list(transposes))
        message = rf"{approach} .*\n.* with layout_a='{serving[0]}', layout_b='{serving[1]}'"
        options = {"approach": approach, "transpose_a": transposes[0], "transpose_b": transposes[1]}
        with pytest.raises(SchemeError, match=message):
            bmm(x, x, layout_a=layout_a, layout_b=layout_b, **options)
        with pytest.raises(SchemeError, match=message):
            bmm(PACK[layout_a, 32](x), PACK[layout_b, 32](x), **options)


@pytest.mark.parametrize(
    ("approach", "votes", "shuffles"),
    [("row-by-row", 0, 32), ("row-by-column", 32, 0), ("column-by-row", 32, 0), ("column-by-column", 64, 0)],
)
def test_each_step_executes_the_stated_votes_and_shuffles(approach, votes, shuffles, monkeypatch):
    """The paper explains 20K, 28K, 28K and 56K cycles by them; only row by row needs no vote."""
    x = reals(32, 32)
    serving = next(row[1:3] for row in COMBINATIONS if row[0] == approach and not any(row[3:]))
    a, b = PACK[serving[0], 32](x), PACK[serving[1], 32](x)
    called = []
    for name in ("ballot", "shfl"):
        method = getattr(Warp, name)
        monkeypatch.setattr(
            Warp, name, lambda *args, name=name, method=method: called.append(name) or method(*args)
        )
    bmm(a, b, approach=approach)
    assert (called.count("ballot"), called.count("shfl")) == (votes, shuffles)
    assert approach_costs(approach, 32, 32, 32) == {
        "votes": votes,
        "shuffles": shuffles,
        "loads": 2,
        "stores": 32,
    }


def test_the_costs_of_an_approach_are_those_of_all_warps_and_steps():
    found = approach_costs("column-by-row", 40, 33, 70)  # 2 × 2 warps of 3 steps; the columns of C in part
    assert found == {"votes": 4 * 3 * 32, "shuffles": 0, "loads": 4 * 3 * 2, "stores": 2 * 40}
    with pytest.raises(SchemeError, match="no approach='row'"):
        approach_costs("row", 1, 1, 1)


def test_bmm_refuses_bad_options():
    a, b = reals(3, 5), reals(5, 2)
    for options, message in (
        ({"approach": "row-by-diagonal"}, "no approach='row-by-diagonal': choose one of 'row-by-row'"),
        ({"layout_a": "tile"}, "no layout_a='tile'"),
        ({"layout_b": "tile"}, "no layout_b='tile'"),
    ):
        with pytest.raises(SchemeError, match=message):
            bmm(a, b, **options)
    with pytest.raises(FormatError, match=r"(?s)a is packed layout='row'.*needs layout='column'"):
        bmm(pack32_row(a), b, layout_a="column")
    lsb = [reference.pack(x, layout=side, first="lsb") for x, side in ((a, "column"), (b, "row"))]
    assert bmm(*lsb).tolist() == product_by_hand(a, b)
    lsb[1] = reference.pack(b, layout="column", first="lsb")
    with pytest.raises(FormatError, match="row-by-column crops columns from the most significant"):
        bmm(*lsb, approach="row-by-column")
    with pytest.raises(ShapeError, match="K is 5 in a and 2 in b"):
        bmm(a, b, transpose_b=True)
    a[1, 1] = np.nan
    with pytest.raises(NotANumberError, match=r"a\[1, 1\]"):
        bmm(a, b, approach="column-by-column")


# --------------------------------------------------------------------------------------------------
# BMM-64, BMMS-32, BMMS-64
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(4)
@pytest.mark.parametrize("scheme", [bmm64, bmms32, bmms64], ids=lambda f: f.__name__)
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_products_equal_a_loop_over_elements(scheme, sizes):
    for transpose_a, transpose_b in TRANSPOSITIONS:
        a, b, expected = operands(*sizes, transpose_a, transpose_b)
        options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
        word = SCHEMES[scheme]
        packed_a = reference.pack(a, layout=("column", "row")[transpose_a], word=word)
        packed_b = reference.pack(b, layout=("row", "column")[transpose_b], word=word)
        c = scheme(packed_a, packed_b, **options)
        assert c.tolist() == expected
        assert (c.dtype, c.shape) == (np.int32, (sizes[0], sizes[2]))
    assert scheme(a, packed_b, **options).tolist() == expected


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda f: f.__name__)
def test_other_formats_are_refused(scheme):
    a, b, expected = operands(3, 70, 2)
    word = SCHEMES[scheme]
    right = reference.pack(b, layout="row", word=word, first="lsb")
    assert scheme(reference.pack(a, layout="column", word=word, first="lsb"), right).tolist() == expected
    for bad, message in (
        (reference.pack(a, layout="row", word=word), f"BMM-{word} needs layout='column', word={word}"),
        (reference.pack(a, layout="column", word=96 - word), f"word={96 - word}"),
        (reference.pack(a, layout="column", word=word), "a has first='msb' and b has first='lsb'"),
    ):
        with pytest.raises(FormatError, match=message):
            scheme(bad, right)
    ragged = replace(right, words=right.words | right.words.dtype.type(1 << (word - 1)))
    with pytest.raises(FormatError, match="b has bits past its 70 rows"):
        scheme(a, ragged)
    with pytest.raises(ShapeError, match="K is 70 in a and 2 in b"):
        scheme(a, b, transpose_b=True)
    with pytest.raises(DtypeError, match="b has elements of bool"):
        scheme(a, b >= 0)


def long(k, disagreeing):
    """Rows that differ from the single column in the given numbers of positions, as 64-bit words."""
    a = -np.ones((len(disagreeing), k), np.int8)
    for row, count in zip(a, disagreeing, strict=True):
        row[:count] = 1
    return reference.pack(a, layout="column", word=64), reference.pack(
        -np.ones((k, 1), np.int8), layout="row", word=64
    )


@pytest.mark.gate
def test_bmm64_is_right_up_to_its_bound():
    """Counts beyond a signed short are right too; K above the bound is refused."""
    assert BMM64_LARGEST_K == 65535
    counts = [*range(33), 32767, 32768, 65535]  # row 0 with row 32, 1 with 33 …: both halves of a register
    c = bmm64(*long(65535, counts))
    assert c[:, 0].tolist() == [65535 - 2 * count for count in counts]
    with pytest.raises(ShapeError, match=r"K is 65536\n.* at most 65535\ncall bmm32 or bmms64"):
        bmm64(*long(65536, [0]))
    with pytest.raises(ShapeError, match=r"K is 65536"):
        bmm64(*long(65536, [0]), thresholds=[0])


@pytest.mark.gate
def test_above_its_bound_a_bmm64_counter_overflows():
    """With K = 65536 the lower counter wraps to 0 and the upper one is too large by 1."""
    a, b = long(65536, [*[0] * 32, 65536])
    A, B = GlobalArray.of("A", a.words), GlobalArray.of("B", b.words)  # noqa: N806
    C = GlobalArray("C", (33, 1), np.int32)  # noqa: N806
    launch(BMM64_Arow_Brow, (1, 1), 32, A, B, C, 33, 1024, 1, 65536)
    wrong = C.numpy()[[0, 32], 0].tolist()
    assert wrong == [65536 - 2 * 1, 65536]
    right = bmms64(*long(65536, [0, 65536]))
    assert right.tolist() == [[65536], [-65536]]


def test_the_printed_loop_bound_counts_words():
    for kernel, block, word in (
        (BMM64_Arow_Brow, 32, 64),
        (BMMS32_Arow_Brow, 1024, 32),
        (BMMS64_Arow_Brow, 1024, 64),
    ):
        a, b = (reference.pack(reals(4, 4), layout=side, word=word).words for side in ("column", "row"))
        A, B = GlobalArray.of("A", a), GlobalArray.of("B", b)  # noqa: N806
        with pytest.raises(faults.OutOfBounds) as caught:
            launch(kernel, (1, 1), block, A, B, GlobalArray("C", (4, 4), np.int32), 4, 4, 4, 4)
        assert caught.value.place.line == line_of(kernel, "warp.load(A")


# --------------------------------------------------------------------------------------------------
# Listing 7: bits out
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(14)
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_bits_equal_a_loop_over_elements(scheme, sizes):
    """Half of the thresholds equal a dot product of their column."""
    m, _, n = sizes
    a, b, dots = operands(*sizes)
    generator = np.random.default_rng(sizes)
    limits = np.array([dots[generator.integers(m)][j] for j in range(n)], np.int32)
    limits[::2] += generator.integers(-1, 2, len(limits[::2]), dtype=np.int32)
    flip = generator.integers(0, 2, n).astype(bool)
    word = SCHEMES[scheme]
    packed = reference.pack(a, layout="column", word=word), reference.pack(b, layout="row", word=word)
    for flips in (None, flip):
        bits = scheme(*packed, thresholds=limits, flip=flips)
        assert (bits.shape, bits.layout, bits.word, bits.first) == ((m, n), "column", word, "msb")
        expected = [
            [
                "01"[int((dot >= t) != (flips is not None and f))]
                for dot, t, f in zip(row, limits, flip, strict=True)
            ]
            for row in dots
        ]
        for i, row in enumerate(expected):
            text = "".join(f"{w:0{word}b}" for w in bits.words[:, i].tolist())
            assert text == "".join(row).ljust(len(text), "0")  # bits past the edge are 0, flipped or not
        oracle = reference.threshold(np.array(dots, np.int32), limits, flips, word=word)
        np.testing.assert_array_equal(bits.words, oracle.words, strict=True)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda f: f.__name__)
def test_two_layers_equal_the_reference(scheme):
    """Output bits are input bits: two layers with batch normalisation and ReLU, gamma of either sign."""
    generator = np.random.default_rng(21)
    x, first, second = (reals(*shape) for shape in ((3, 40), (40, 35), (35, 4)))
    gamma, beta, mean = generator.normal(size=(3, 35))
    rules = reference.integer_thresholds(gamma, beta, mean, generator.gamma(2.0, size=35), 1e-5, relu=True)
    hidden = scheme(x, first, thresholds=rules.thresholds, flip=rules.flip)
    expected = reference.threshold(reference.bmm(x, first), *rules)
    assert scheme(hidden, second).tolist() == reference.bmm(expected, second).tolist()


def test_the_threshold_comparison_is_signed():
    """A negative dot product would be large in the unsigned arithmetic of the printed listing."""
    for scheme in SCHEMES:
        bits = scheme([[1.0, 1.0, 1.0]], [[-1.0, 1.0]] * 3, thresholds=[0, 0])
        assert reference.unpack(bits).tolist() == [[0, 1]]


def test_thresholds_at_the_ends_of_int32_are_exact():
    limits = [-(2**31), 2**31 - 1]
    for scheme in SCHEMES:
        assert reference.unpack(scheme([[1.0]], [[1.0, 1.0]], thresholds=limits)).tolist() == [[1, 0]]


def test_each_word_of_bits_is_stored_once_by_its_lane():
    """Every output word is written completely and once, so no stale bits remain."""
    a, b, _ = operands(66, 40, 70)
    stored = []
    store = Warp.store

    def counting(warp, array, index, values):
        if array.name == "C":
            stored.extend(np.broadcast_to(index, 32)[warp.active].tolist())
        store(warp, array, index, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Warp, "store", counting)
        for scheme in SCHEMES:
            stored.clear()
            bits = scheme(a, b, thresholds=np.zeros(70, np.int32))
            assert sorted(stored) == list(range(bits.words.size))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda f: f.__name__)
def test_bad_thresholds_are_refused(scheme):
    a, b = reals(2, 3), reals(3, 2)
    with pytest.raises(DtypeError, match=r"thresholds .*float64\n.*\n.*integer_thresholds"):
        scheme(a, b, thresholds=[0.5, 0.5])
    with pytest.raises(DtypeError, match="beyond int32"):
        scheme(a, b, thresholds=[0, 2**31])
    with pytest.raises(DtypeError, match="flip has elements of int64"):
        scheme(a, b, thresholds=[0, 0], flip=[0, 1])
    for thresholds, flip, name in (
        ([0], None, "thresholds"),
        ([0, 0], [True], "flip"),
        (0, None, "thresholds"),
    ):
        with pytest.raises(ShapeError, match=rf"{name} has shape .*\n.* 2 columns\ngive \(2,\)"):
            scheme(a, b, thresholds=thresholds, flip=flip)
    with pytest.raises(SchemeError, match="flip is given without thresholds"):
        scheme(a, b, flip=[True, True])
