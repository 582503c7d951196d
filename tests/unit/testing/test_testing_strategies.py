"""The strategies give valid values and shrink as documented."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

import gpu
import reference
import simwarp
from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types import PackedBits
from simwarp.testing import profiles
from simwarp.testing.strategies import (
    active_lanes,
    bit_matrices,
    bmm_operands,
    lane_words,
    layouts,
    masks,
    real_matrices,
    sizes,
    thresholds,
)

DTYPES = ("float64", "float32", "float16", "int8")


def smallest(strategy, condition=lambda drawn: True, phases=(Phase.generate, Phase.shrink)):
    """The shrunk example that meets the condition."""
    quick = settings(max_examples=2000, derandomize=True, database=None, phases=phases)
    return find(strategy, condition, settings=quick)


def happens(strategy, condition):
    """Assert that one of many examples meets the condition."""
    smallest(strategy, condition, [Phase.generate])


# ------------------------------------------------------------------------------------------------ lanes


@pytest.mark.at_most(1)
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64, np.int32, np.int64, np.uint16, bool])
@given(data=st.data())
def test_lane_words_are_32_words_of_the_type(dtype, data):
    words = data.draw(lane_words(dtype))
    assert words.shape == (32,)
    assert words.dtype == np.dtype(dtype)


@pytest.mark.slow
def test_lane_words_shrink_to_zeros():
    assert smallest(lane_words()).tolist() == [0] * 32
    one_hot = smallest(lane_words(), lambda words: words[5] >= 100)
    assert one_hot.tolist() == [100 if lane == 5 else 0 for lane in range(32)]


def test_lane_words_are_often_uniform_and_often_large():
    happens(lane_words(), lambda words: len(set(words.tolist())) == 2)
    happens(lane_words(), lambda words: len(set(words.tolist())) == 32)
    happens(lane_words(np.uint64), lambda words: words.max() >= 1 << 63)
    happens(lane_words(np.int32), lambda words: words.min() < -1000)


@given(mask=masks(), active=active_lanes())
def test_masks_have_at_least_one_lane(mask, active):
    assert 1 <= mask <= 0xFFFFFFFF
    assert active.shape == (32,)
    assert active.dtype == bool
    assert active.any()


@pytest.mark.slow
def test_masks_shrink_to_all_lanes():
    assert smallest(masks()) == 0xFFFFFFFF
    assert smallest(active_lanes()).all()
    assert smallest(masks(), lambda mask: mask.bit_count() == 1).bit_count() == 1
    happens(masks(), lambda mask: mask == 0x55555555)
    happens(masks(), lambda mask: 2 <= mask.bit_count() <= 30 and mask not in (0xFFFF, 0xFFFF0000))


@pytest.mark.parametrize("dtype", [np.float32, "U3", object])
def test_lane_words_refuse_other_types(dtype):
    with pytest.raises(DtypeError, match="choose one of"):
        lane_words(dtype)


# ------------------------------------------------------------------------------------------------ sizes


@given(drawn=sizes(3))
def test_sizes_have_at_most_one_long_side(drawn):
    assert len(drawn) == 3
    assert all(1 <= n <= 1100 for n in drawn)
    long = [n for n in drawn if n > 150]
    assert not long or (len(long) == 1 and sorted(drawn)[1] <= 40)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("most", [1, 2, 7, 33, 500])
@given(data=st.data())
def test_sizes_stay_within_max_size(most, data):
    assert max(data.draw(sizes(2, max_size=most))) <= most


def test_sizes_shrink_to_1():
    assert smallest(sizes(3)) == (1, 1, 1)
    assert smallest(sizes(3), lambda drawn: drawn[0] > 32) == (33, 1, 1)
    assert smallest(sizes(3), lambda drawn: drawn[1] > 500) in ((1, 501, 1), (1, 511, 1))


@pytest.mark.parametrize("size", [31, 32, 33, 64, 65, 128, 2, 131])
def test_sizes_reach_edges_and_primes(size):
    happens(sizes(1), lambda drawn: drawn[0] == size)


@pytest.mark.gate
def test_sizes_are_larger_on_hardware(monkeypatch):
    strategy = sizes(2)  # made before the profile is chosen
    monkeypatch.setattr(profiles, "_loaded", "gpu")
    assert smallest(strategy, lambda drawn: drawn[1] > 65535) == (1, 65536)


@pytest.mark.parametrize("arguments", [{"count": 0}, {"max_size": 0}, {"max_size": 2.5}, {"count": True}])
def test_sizes_refuse_impossible_arguments(arguments):
    with pytest.raises(ShapeError, match="at least 1"):
        sizes(**arguments)


# --------------------------------------------------------------------------------------------- matrices


@given(form=layouts())
def test_layouts_are_valid_arguments_of_pack(form):
    packed = reference.pack([[1.0, -1.0]], **form)
    assert (packed.layout, packed.word, packed.first) == tuple(form.values())


def test_layouts_reach_every_format_and_shrink_to_the_default():
    assert smallest(layouts()) == {"layout": "row", "word": 32, "first": "msb"}
    assert smallest(layouts(), lambda form: form["word"] == 64)["layout"] == "row"
    for word in (64, 128):
        happens(layouts(), lambda form: tuple(form.values()) == ("column", word, "lsb"))  # noqa: B023


@given(x=real_matrices())
def test_real_matrices_are_valid_operands(x):
    assert x.ndim == 2
    assert min(x.shape) >= 1
    assert x.dtype.name in DTYPES
    assert not np.isnan(x).any()
    reference.binarize(x)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_real_matrices_shrink_to_one_zero(dtype):
    assert smallest(real_matrices(dtypes=[dtype])).tolist() == [[0]]
    negative = smallest(real_matrices(dtypes=[dtype]), lambda x: (x < 0).any())
    assert negative.tolist() == [[-1]]
    assert negative.dtype == dtype


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("float32")
@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_real_matrices_contain_special_values(dtype):
    small = real_matrices(3, 5, dtypes=[dtype])
    happens(small, lambda x: np.isposinf(x).any() and np.isneginf(x).any())
    happens(small, lambda x: (np.signbit(x) & (x == 0)).any())
    happens(small, lambda x: ((x != 0) & (abs(x) < np.finfo(dtype).smallest_normal)).any())


def test_real_matrices_include_the_identity():
    happens(real_matrices(4, 4), lambda x: (x == 1 - 2 * np.eye(4)).all())


def test_real_matrices_have_the_requested_sizes():
    assert smallest(real_matrices(3, 4)).shape == (3, 4)
    assert smallest(real_matrices(3)).shape == (3, 1)
    assert smallest(real_matrices(columns=st.sampled_from([8, 9]))).shape == (1, 8)


@given(packed=bit_matrices())
def test_bit_matrices_are_valid_packed_operands(packed):
    bits = reference.unpack(packed)
    signs = 2 * bits.astype(np.int8) - 1
    again = reference.pack(signs, layout=packed.layout, word=packed.word, first=packed.first)
    assert again.words.dtype == packed.words.dtype
    np.testing.assert_array_equal(packed.words, again.words)  # so bits past the edge are 0


def test_bit_matrices_shrink_to_one_zero_bit():
    packed = smallest(bit_matrices())
    assert (packed.shape, packed.layout, packed.word, packed.first) == ((1, 1), "row", 32, "msb")
    assert packed.words.tolist() == [[0]]
    assert smallest(bit_matrices(), lambda x: x.words.any()).words.tolist() == [[1 << 31]]
    assert smallest(bit_matrices(first="lsb"), lambda x: x.words.any()).words.tolist() == [[1]]


def test_bit_matrices_have_the_requested_format():
    packed = smallest(bit_matrices(40, 7, layout="column", word=64, first="lsb"))
    assert (packed.shape, packed.layout, packed.word, packed.first) == ((40, 7), "column", 64, "lsb")
    assert packed.words.shape == (1, 40)
    happens(bit_matrices(2, 150, layout="column", word=128), lambda x: x.words[1, 0].tolist() == [0, 1 << 63])
    happens(bit_matrices(40, 7), lambda x: reference.unpack(x).all())
    happens(bit_matrices(40, 7), lambda x: 0.3 < reference.unpack(x).mean() < 0.7)


@pytest.mark.parametrize("make", [real_matrices, bit_matrices])
@pytest.mark.parametrize("sides", [(0, 3), (3, -1), (2.5, 3), (True, 3)])
def test_matrices_refuse_sizes_below_1(make, sides):
    with pytest.raises(ShapeError, match=r"=.*\ngive an int of at least 1"):
        make(*sides)


def test_matrices_refuse_unknown_types_and_formats():
    with pytest.raises(DtypeError, match="choose among float64"):
        real_matrices(dtypes=[np.int32])
    with pytest.raises(DtypeError, match="empty"):
        real_matrices(dtypes=[])
    with pytest.raises(SchemeError, match=r"no layout='diagonal'\n.*\nchoose 'row' or 'column'"):
        bit_matrices(layout="diagonal")
    with pytest.raises(SchemeError, match="no word=16"):
        bit_matrices(word=16)
    with pytest.raises(SchemeError, match="no first='lsbf'"):
        bmm_operands(first="lsbf")


# --------------------------------------------------------------------------------------------- products


def product(x, bmm=reference.bmm, **options):
    return bmm(x.a, x.b, transpose_a=x.transpose_a, transpose_b=x.transpose_b, **options)


@pytest.mark.slow
@given(x=bmm_operands())
def test_bmm_operands_have_matching_shapes(x):
    m, n = x.a.shape[x.transpose_a], x.b.shape[not x.transpose_b]
    assert product(x).shape == (m, n)


@pytest.mark.gate
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(x=bmm_operands(along_k=True, word=32, first="msb", max_size=40))
def test_bmm_operands_packed_along_k_are_accepted_by_kernels(x):
    np.testing.assert_array_equal(product(x, gpu.bmm, device=simwarp.Device()), product(x))


@pytest.mark.slow
def test_bmm_operands_shrink_to_one_element():
    x = smallest(bmm_operands())
    assert (x.a.tolist(), x.b.tolist(), x.transpose_a, x.transpose_b) == ([[0.0]], [[0.0]], False, False)
    wrong = smallest(bmm_operands(), lambda x: product(x).min() < 0)  # a product that is not +1
    assert (wrong.a.shape, wrong.b.shape) == ((1, 1), (1, 1))
    long = smallest(bmm_operands(), lambda x: product(x).max() > 32)
    assert product(long).shape == (1, 1)
    assert product(long)[0, 0] == 33


@pytest.mark.slow
def test_bmm_operands_mix_packed_and_real():
    def packed(x):
        return isinstance(x.a, PackedBits), isinstance(x.b, PackedBits)

    for kinds in ((True, False), (False, True), (True, True)):
        happens(bmm_operands(), lambda x, kinds=kinds: packed(x) == kinds)
    happens(bmm_operands(packed=False), lambda x: x.a.dtype == np.int8 and x.b.dtype == np.float16)
    both = smallest(bmm_operands(dtypes=[]))
    assert packed(both) == (True, True)
    with pytest.raises(DtypeError, match="empty"):
        bmm_operands(dtypes=[], packed=False)


def matrices_of_dots():
    return st.builds(
        lambda values: np.array(values, np.int32).reshape(2, 3),
        st.lists(st.integers(-(2**31), 2**31 - 1), min_size=6, max_size=6),
    )


@pytest.mark.slow
@given(data=st.data())
def test_thresholds_lie_on_or_beside_a_dot_product(data):
    dots = data.draw(matrices_of_dots())
    drawn, flip = data.draw(thresholds(dots))
    assert (drawn.dtype, drawn.shape) == (np.int32, (3,))
    assert (flip.dtype, flip.shape) == (bool, (3,))
    distance = abs(drawn - dots.astype(np.int64)).min(axis=0)
    assert ((distance <= 1) | (drawn == 2**31 - 1) | (drawn == -(2**31))).all()
    reference.threshold(dots, drawn, flip)


@pytest.mark.slow
def test_thresholds_reach_every_edge_and_shrink_to_the_first_row():
    dots = np.array([[3, 50], [7, 90]], np.int32)
    drawn, flip = smallest(thresholds(dots))
    assert (drawn.tolist(), flip.tolist()) == ([3, 50], [False, False])
    for edge in (7, 8, 6, 2**31 - 1, -(2**31)):
        happens(thresholds(dots), lambda drawn, edge=edge: drawn[0][0] == edge and drawn[1][0])
    happens(thresholds(dots), lambda drawn: drawn[1].tolist() == [True, False])


def test_thresholds_refuse_unsuitable_products():
    with pytest.raises(DtypeError, match="int32"):
        thresholds(np.zeros((2, 2)))
    for shape in ((3,), (0, 3)):
        with pytest.raises(ShapeError, match="give \\(M, N\\)"):
            thresholds(np.zeros(shape, np.int32))
