"""Algorithms 2, 6, 7 and 8 equal plain Python loops, and refuse unsuitable operands."""

import itertools
import math

import numpy as np
import pytest

from reference import sparse
from reference.errors import FormatError, ShapeError
from reference.sparse import Coo
from reference.types import Fibers
from simwarp import listings
from simwarp.listings.mttkrp import opt_slice_alg
from simwarp.warp import GlobalArray, launch

SHAPES = {2: (5, 7), 3: (4, 3, 6), 4: (3, 1, 5, 4), 5: (2, 3, 2, 4, 3)}
FORMATS = {
    "mm-csf": sparse.mm_csf,
    "b-csf": sparse.b_csf_all,
    "b-csf-one": sparse.b_csf,
    "fibers-all": sparse.fibers_all,
}


def tensor(order, seed=0, dtype=np.float64):
    """Distinct coordinates in a third of a small box, the last index of every mode included."""
    random = np.random.default_rng(seed)
    shape = SHAPES[order]
    places = [at for at in itertools.product(*map(range, shape)) if random.random() < 0.3]
    places.append(tuple(n - 1 for n in shape))
    places = sorted(set(places))
    values = random.integers(-8, 9, len(places)).astype(dtype)
    return Coo(np.array(places).T, values, shape)


def matrices(shape, rank, seed=1, dtype=np.float64):
    random = np.random.default_rng(seed)
    return [random.integers(-8, 9, (n, rank)).astype(dtype) for n in shape]


def by_hand(coo, factors, mode):
    """Equation 3 on integers, which floats represent exactly."""
    out = [[0] * factors[0].shape[1] for _ in range(coo.shape[mode])]
    for at, value in zip(coo.coords.T.tolist(), coo.values.tolist(), strict=True):
        for r in range(factors[0].shape[1]):
            others = (factors[n][i, r] for n, i in enumerate(at) if n != mode)
            out[at[mode]][r] += int(value) * int(math.prod(others))
    return out


@pytest.mark.at_most(15)
@pytest.mark.parametrize("rank", [1, 7, 32, 33, 64])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("order", SHAPES)
def test_every_mode_equals_a_loop_over_nonzeros(order, name, rank):
    coo = tensor(order, seed=rank)
    factors = matrices(coo.shape, rank)
    held = FORMATS[name](coo)
    for mode in range(order):
        assert listings.mttkrp(held, factors, mode).tolist() == by_hand(coo, factors, mode)


@pytest.mark.parametrize("modes", list(itertools.permutations(range(3))))
def test_every_orientation_and_level_equals_a_loop_over_nonzeros(modes):
    coo = tensor(3, seed=5)
    factors = matrices(coo.shape, 5)
    held = sparse.fibers(coo, modes, split=2)  # most fibers are cut
    for mode in range(3):
        assert listings.mttkrp(held, factors, mode).tolist() == by_hand(coo, factors, mode)


def test_the_result_has_the_type_of_the_values():
    coo = tensor(3, dtype=np.float32)
    factors = matrices(coo.shape, 3, dtype=np.float32)
    out = listings.mttkrp(sparse.mm_csf(coo), factors, 1)
    assert out.dtype == np.float32
    assert out.tolist() == by_hand(coo, factors, 1)


@pytest.mark.parametrize("fibers_in_a_group", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("threads", [32, 64, 160])
def test_a_slice_that_continues_in_the_next_group_is_summed(fibers_in_a_group, threads):
    coo = Coo([[0] * 5 + [1] * 2, [0, 1, 2, 3, 4, 0, 4], [0] * 7], np.arange(1.0, 8), (2, 5, 1))
    middle, last = np.arange(1.0, 6)[:, None], np.array([[10.0]])
    held = sparse.fibers(coo, (0, 1, 2))
    of, out = GlobalArray.of, GlobalArray.of("A", np.zeros((2, 1)))
    tree = of("sliceInds", held.uppers[0]), of("fiberPtr", held.pointers), [of("fiberInds", held.uppers[1])]
    nonzeros = of("indK", held.leaves), of("vals", held.values)
    groups = -(-7 // fibers_in_a_group)
    launch(
        opt_slice_alg,
        groups,
        threads,
        *tree,
        *nonzeros,
        [of("B", middle)],
        of("C", last),
        out,
        1,
        fibers_in_a_group,
    )
    assert out.numpy().tolist() == [[10.0 * (1 + 4 + 9 + 16 + 25)], [10.0 * (6 + 35)]]


def test_columns_beyond_the_first_32_are_separate():
    coo = Coo([[0], [0]], [1.0], (1, 1))
    factors = [np.ones((1, 70)), np.arange(70.0)[None, :]]
    assert listings.mttkrp(sparse.mm_csf(coo), factors, 0).tolist() == factors[1].tolist()


def test_calls_are_independent():
    coo = tensor(3)
    factors, held = matrices(coo.shape, 2), sparse.mm_csf(coo)
    assert listings.mttkrp(held, factors, 2).tolist() == listings.mttkrp(held, factors, 2).tolist()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"mode": 3}, ShapeError, "mode=3 is not a mode of a tensor of order 3"),
        ({"mode": -1}, ShapeError, "mode=-1 is not"),
        ({"factors": [np.ones((4, 2))] * 3}, ShapeError, r"factors\[1\] has shape \(4, 2\)"),
        ({"factors": matrices(SHAPES[3], 2)[:2]}, ShapeError, "factors has 2 matrices"),
        ({"factors": [np.ones((n, n)) for n in SHAPES[3]]}, ShapeError, r"factors\[1\] has shape"),
        ({"tensor": tensor(3)}, FormatError, "tensor has a Coo"),
        ({"tensor": sparse.f_coo_all(tensor(3))}, FormatError, "tensor has a FCoo"),
    ],
)
def test_bad_arguments_are_refused(change, error, words):
    given = {"tensor": sparse.mm_csf(tensor(3)), "factors": matrices(SHAPES[3], 2), "mode": 1, **change}
    with pytest.raises(error, match=words):
        listings.mttkrp(**given)


def test_each_partition_is_a_tensor():
    coo = tensor(4)
    factors, held = matrices(coo.shape, 3), sparse.mm_csf(coo)
    parts = [listings.mttkrp(part, factors, 1) for part in held.partitions]
    assert all(isinstance(part, Fibers) for part in held.partitions)
    assert sum(parts).tolist() == by_hand(coo, factors, 1)
