"""Strategies for kernels that are not about bits: they shrink, and meet the edges of warps and blocks."""

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import simwarp
from reference.errors import DtypeError, ShapeError
from simwarp.faults import OutOfBounds
from simwarp.testing.strategies import Grid, grids, tails, vectors

QUICK = settings(max_examples=300, derandomize=True, database=None, phases=(Phase.generate, Phase.shrink))
DTYPES = ("bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64")


@given(st.data(), st.sampled_from(DTYPES), st.booleans())
def test_vectors_have_their_dtype_and_are_finite_unless_asked(data, dtype, finite):
    x = data.draw(vectors(dtypes=[dtype], finite=finite))
    assert x.dtype == dtype
    assert x.ndim == 1
    assert 1 <= x.size <= 5000
    assert np.isfinite(x).all() or not finite


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_shrink_to_one_zero(dtype):
    x = find(vectors(dtypes=[dtype]), lambda x: True, settings=QUICK)
    assert (x.tolist(), x.dtype) == ([0], dtype)


def test_infinities_and_nans_are_drawn_on_request():
    for what in (np.isnan, np.isinf):
        assert what(find(vectors(4, finite=False), lambda x, what=what: what(x).any(), settings=QUICK)).any()


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.just(n), grids(n))))
def test_grids_have_enough_threads(drawn):
    n, (grid, block) = drawn
    assert (grid - 4) * block < n <= grid * block


def test_grids_with_idle_blocks_and_lengths_past_an_edge_are_drawn():
    assert find(grids(33), lambda x: x.grid * x.block >= 33 + x.block, settings=QUICK) == Grid(3, 32)
    assert find(tails(100), lambda n: n > 100, settings=QUICK) == 101
    assert find(tails(100), lambda n: n % 32 == 31, settings=QUICK) == 31


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (lambda: tails(0), ShapeError),
        (lambda: tails(most=0), ShapeError),
        (lambda: grids(0), ShapeError),
        (lambda: grids(3, blocks=[0]), ShapeError),
        (lambda: vectors(0), ShapeError),
        (lambda: vectors(dtypes=[]), DtypeError),
        (lambda: vectors(dtypes=["complex64"]), DtypeError),
    ],
)
def test_wrong_arguments_are_refused_when_the_strategy_is_made(made, error):
    with pytest.raises(error):
        made()


SOURCE = """
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i TAIL n) y[i] = 2 * x[i];
}"""


@pytest.mark.slow
@pytest.mark.parametrize("tail", ["<", "<="])
def test_a_kernel_without_its_tail_is_found(tail):
    source = SOURCE.replace("TAIL", tail)

    @settings(max_examples=20, derandomize=True, database=None)
    @given(st.data())
    def right(data):
        x = data.draw(vectors(tails(64, most=300)))
        grid, block = data.draw(grids(x.size, blocks=(32, 64)))
        arguments = {"x": x, "y": simwarp.Out(np.float32, x.size), "n": x.size}
        y = simwarp.run(source, grid=grid, block=block, args=arguments).outputs["y"]
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(y, 2 * x)

    if tail == "<":
        right()
    else:
        with pytest.raises(OutOfBounds):
            right()
