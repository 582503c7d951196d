"""For every matrix and every warp, the listings and the votes equal the reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import reference
from simwarp.listings import bmm32, pack32_column, pack32_row
from simwarp.warp import GlobalArray, launch

DTYPES = st.one_of(npst.floating_dtypes(sizes=(16, 32, 64), endianness="="), st.just(np.dtype(np.int8)))
SIDE = st.one_of(st.integers(1, 6), st.sampled_from((31, 32, 33, 64, 65)))
PREDICATES = npst.arrays(np.bool_, 32)


@st.composite
def matrices(draw, rows=SIDE, columns=SIDE):
    """Real matrices of every accepted type and memory order, without NaN, with zeros of both signs."""
    dtype = draw(DTYPES)
    elements = {"allow_nan": False} if dtype.kind == "f" else {"min_value": -128, "max_value": 127}
    x = draw(npst.arrays(dtype, (draw(rows), draw(columns)), elements=elements))
    return np.asfortranarray(x) if draw(st.booleans()) else x


@st.composite
def operands(draw):
    """Draw the operands of a product: a, b, transpose_a, transpose_b."""
    k = st.just(draw(SIDE))
    a, b = draw(matrices(columns=k)), draw(matrices(rows=k))
    transpose_a, transpose_b = draw(st.booleans()), draw(st.booleans())
    return (a.T if transpose_a else a), (b.T if transpose_b else b), transpose_a, transpose_b


def one_warp(kernel):
    kept = []
    launch(lambda warp: kept.append(kernel(warp)), 1, 32)
    return kept[0]


@pytest.mark.slow
@settings(max_examples=50)
@given(matrices())
def test_packing_equals_the_reference(x):
    column, row = pack32_column(x), pack32_row(x)
    np.testing.assert_array_equal(column.words, reference.pack(x, layout="column").words, strict=True)
    np.testing.assert_array_equal(row.words, reference.pack(x, layout="row").words, strict=True)


@settings(max_examples=30)
@given(matrices())
def test_packing_the_transpose_in_the_other_layout_gives_the_same_words(x):
    np.testing.assert_array_equal(pack32_column(x).words, pack32_row(x.T).words, strict=True)


@pytest.mark.slow
@settings(max_examples=50)
@given(operands())
def test_the_product_equals_the_reference(case):
    a, b, transpose_a, transpose_b = case
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    np.testing.assert_array_equal(bmm32(a, b, **options), reference.bmm(a, b, **options), strict=True)


@pytest.mark.slow
@settings(max_examples=20)
@given(operands())
def test_packed_operands_give_the_same_product(case):
    a, b, transpose_a, transpose_b = case
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    packed_a = pack32_row(a) if transpose_a else pack32_column(a)
    packed_b = pack32_column(b) if transpose_b else pack32_row(b)
    np.testing.assert_array_equal(bmm32(packed_a, packed_b, **options), bmm32(a, b, **options), strict=True)


@given(st.lists(PREDICATES, max_size=4))
def test_nested_branches_intersect_their_masks(predicates):
    def kernel(warp, depth=0):
        if depth == len(predicates):
            return warp.active
        with warp.where(predicates[depth]):
            return kernel(warp, depth + 1)

    assert one_warp(kernel).tolist() == [all(p[lane] for p in predicates) for lane in range(32)]


@given(PREDICATES, PREDICATES)
def test_votes_count_only_active_lanes(active, predicate):
    mask = sum(1 << lane for lane in range(32) if active[lane])
    votes = [bool(predicate[lane]) for lane in range(32) if active[lane]]

    def kernel(warp):
        with warp.where(active):
            words = warp.ballot(predicate, mask)[active]
            return (
                set(words.tolist()),
                warp.any(predicate, mask),
                warp.all(predicate, mask),
                warp.uni(predicate, mask),
            )

    words, some, every, same = one_warp(kernel)
    assert words <= {sum(1 << lane for lane in range(32) if active[lane] and predicate[lane])}
    assert (some, every, same) == (any(votes), all(votes), len(set(votes)) <= 1)


@given(PREDICATES, npst.arrays(np.uint32, 32, elements=st.integers(0, 39)))
def test_only_active_lanes_touch_memory(active, index):
    before = np.arange(100, 140, dtype=np.uint32)
    x = GlobalArray.of("x", before)

    def kernel(warp):
        with warp.where(active):
            read = warp.load(x, index)
            warp.store(x, index, warp.lane)
        return read

    read, after = one_warp(kernel), before.copy()
    for lane in range(32):
        assert read[lane] == (before[index[lane]] if active[lane] else 0xA5A5A5A5)
        if active[lane]:
            after[index[lane]] = lane
    np.testing.assert_array_equal(x.numpy(), after)
