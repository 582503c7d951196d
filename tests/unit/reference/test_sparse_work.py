"""Lengths of fibers and slices, their histograms, and the work of an MTTKRP, held against plain counting."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from reference.errors import DtypeError, FormatError, SchemeError, ShapeError
from reference.sparse import (
    Coo,
    MttkrpWork,
    b_csf,
    b_csf_all,
    csf,
    csf_all,
    f_coo,
    f_coo_all,
    fiber_lengths,
    fibers,
    hi_coo,
    length_histogram,
    mm_csf,
    mttkrp_work,
    slice_lengths,
)
from support import scattered_tensors

SHAPES = ((7, 11, 13), (6, 40), (5, 6, 4, 7), (3, 2**32, 2**32))


def places_of(coo: Coo) -> list[tuple[int, ...]]:
    return list(zip(*coo.coords.tolist(), strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_lengths_count_the_nonzeros_that_share_indices(shape: tuple[int, ...]) -> None:
    coo = scattered_tensors.scattered(tuple(min(n, 9) for n in shape), 90)
    coo = Coo(coo.coords, coo.values, shape)
    for mode in range(len(shape)):
        along = Counter(place[:mode] + place[mode + 1 :] for place in places_of(coo))
        assert fiber_lengths(coo, mode).tolist() == [along[key] for key in sorted(along)]
        within = Counter(place[mode] for place in places_of(coo))
        assert slice_lengths(coo, mode).tolist() == [within[key] for key in sorted(within)]


def test_repeated_coordinates_count_as_often_as_they_are_stored() -> None:
    coo = Coo([[0, 0, 1], [2, 2, 0]], [1.0, 1.0, 1.0], (2, 3))
    assert (fiber_lengths(coo, 1).tolist(), slice_lengths(coo, 0).tolist()) == ([2, 1], [2, 1])


def test_a_bound_belongs_to_the_lengths_below_it() -> None:
    lengths = [1, 99, 100, 101, 5_000, 5_001, 10_000, 10_001, 90_000]
    assert length_histogram(lengths) == (3, 2, 2, 2)
    assert length_histogram([], (3,)) == (0, 0)
    assert length_histogram([4, 5], ()) == (2,)


@pytest.mark.parametrize("bounds", [(3, 3), (5, 1)])
def test_bounds_must_ascend(bounds: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="bounds of a histogram ascend"):
        length_histogram([1], bounds)


def test_only_a_coo_has_lengths() -> None:
    coo = scattered_tensors.scattered((4, 5), 9)
    with pytest.raises(DtypeError, match="a Coo is expected"):
        fiber_lengths(csf(coo), 0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ShapeError, match="mode=2"):
        slice_lengths(coo, 2)


def counted(coo: Coo, modes: tuple[int, ...], split: int, mode: int) -> tuple[int, int, int]:
    """Operations, reads and writes for one column, by walking over the tree of a tensor as printed."""
    of_fiber: dict[tuple[int, ...], list[int]] = {}
    for place in sorted(tuple(place[m] for m in modes) for place in places_of(coo)):
        of_fiber.setdefault(place[:-1], []).append(place[-1])
    pieces = [
        (upper, leaves[at : at + split])
        for upper, leaves in of_fiber.items()
        for at in range(0, len(leaves), split)
    ]
    level, flops, reads, writes, row = modes.index(mode), 0, 0, 0, None
    for upper, leaves in pieces:
        others = len(upper) - (level < len(upper))
        reads += others
        if level == len(upper):
            flops += others - 1  # the product of the fiber's rows
            flops += 2 * len(leaves)  # times the value, added to the result
            writes += len(leaves)
            continue
        reads += len(leaves)
        flops += 2 * len(leaves) + others + 1  # the sum, times the fiber's rows, added to slice or result
        if level > 0 or upper[0] != row:
            writes += 1
            flops += level == 0
            row = upper[0]
    return flops, reads, writes


@pytest.mark.parametrize("split", [2, 128])
@pytest.mark.parametrize("shape", SHAPES[:3])
def test_the_work_of_trees_is_that_of_the_algorithms(shape: tuple[int, ...], split: int) -> None:
    coo = scattered_tensors.scattered(shape, 90)
    modes = tuple(range(len(shape)))
    for mode in modes:
        expected = MttkrpWork(*(5 * n for n in counted(coo, modes, split, mode)))
        assert mttkrp_work(fibers(coo, modes, split=split), 5, mode) == expected
        assert mttkrp_work(b_csf(coo, modes, split=split), 5, mode) == expected
        if split == 128:
            assert mttkrp_work(csf(coo, modes), 5, mode) == expected
        parts = mm_csf(coo, split=split).partitions
        places = [Coo(np.array(p), np.ones(len(p[0])), shape) for p in map(coordinates_of, parts)]
        by_part = [counted(place, part.modes, split, mode) for place, part in zip(places, parts, strict=True)]
        assert mttkrp_work(mm_csf(coo, split=split), 1, mode) == MttkrpWork(
            *map(sum, zip(*by_part, strict=True))
        )


def coordinates_of(part: Any) -> list[list[int]]:
    uppers = np.repeat(part.uppers, np.diff(part.pointers), axis=1)
    levels = [*uppers.tolist(), part.leaves.tolist()]
    return [levels[part.modes.index(mode)] for mode in range(len(part.modes))]


def test_the_work_of_coordinates_is_that_of_each_nonzero() -> None:
    coo = scattered_tensors.scattered((5, 6, 4, 7), 90)
    m = coo.values.size
    for tensor in (coo, hi_coo(coo)):
        assert mttkrp_work(tensor, 3, 2) == MttkrpWork(4 * m * 3, 3 * m * 3, m * 3)
        assert mttkrp_work(tensor, 1) == MttkrpWork(16 * m, 12 * m, 4 * m)
    rows = len(set(coo.coords[1].tolist()))
    assert mttkrp_work(f_coo_all(coo), 3, 1) == MttkrpWork(4 * m * 3, 3 * m * 3, rows * 3)


def test_table_3_is_as_printed() -> None:
    coo = scattered_tensors.scattered((7, 11, 13), 120)
    m, one, every, mixed = coo.values.size, csf(coo), csf_all(coo), mm_csf(coo)
    s, f = one.indices[0].size, one.indices[1].size
    assert mttkrp_work(coo, 2, by="paper") == MttkrpWork(18 * m, 12 * m, 6 * m)
    assert mttkrp_work(one, 1, by="paper") == MttkrpWork(s + 4 * f + 5 * m, 3 * (f + m), s + f + m)
    trees = [(tree.indices[0].size, tree.indices[1].size) for tree in every.tensors]
    assert mttkrp_work(every, 1, by="paper") == MttkrpWork(
        sum(s + 2 * f + 2 * m for s, f in trees),
        sum(f + m for _, f in trees),
        sum(s for s, _ in trees),
    )
    parts = [(len(set(p.uppers[0].tolist())), p.uppers.shape[1], p.values.size) for p in mixed.partitions]
    assert mttkrp_work(mixed, 1, by="paper") == MttkrpWork(
        sum(s + 4 * f + 5 * m for s, f, m in parts),
        sum(3 * (f + m) for _, f, m in parts),
        sum(2 * f + m for _, f, m in parts),
    )


def test_table_and_algorithms_agree_where_the_table_is_exact() -> None:
    coo = scattered_tensors.scattered((7, 11, 13), 120)
    for tensor in (coo, csf_all(coo), b_csf_all(coo)):
        assert mttkrp_work(tensor, 4, by="paper") == mttkrp_work(tensor, 4)
    one = csf(coo)
    table, steps = mttkrp_work(one, 1, by="paper"), mttkrp_work(one, 1)
    f, m = one.indices[1].size, coo.values.size
    assert (steps.flops - table.flops, steps.reads - table.reads) == (f + m, f - m)
    assert steps.writes == table.writes


def test_work_that_cannot_be_counted_is_refused() -> None:
    coo = scattered_tensors.scattered((7, 11, 13), 60)
    with pytest.raises(SchemeError, match="by='table'"):
        mttkrp_work(coo, 1, by="table")  # pyright: ignore[reportArgumentType]
    with pytest.raises(FormatError, match="was made for mode 1, not for mode 0"):
        mttkrp_work(f_coo(coo, 1), 1)
    with pytest.raises(FormatError, match="table 3 does not have HiCoo"):
        mttkrp_work(hi_coo(coo), 1, by="paper")
    with pytest.raises(ShapeError, match="rank=0"):
        mttkrp_work(coo, 0)
    with pytest.raises(ShapeError, match="mode=3"):
        mttkrp_work(coo, 1, 3)
    with pytest.raises(DtypeError, match="the tensor is a list"):
        mttkrp_work([], 1)  # pyright: ignore[reportArgumentType]
    flat = scattered_tensors.scattered((6, 9), 20)
    for tensor, mode in ((flat, None), (coo, 0)):
        with pytest.raises(ShapeError, match="table 3 is for three modes"):
            mttkrp_work(tensor, 1, mode, by="paper")


def test_a_tensor_on_a_device_is_refused() -> None:
    coo = scattered_tensors.scattered((7, 11, 13), 60)
    placed = type(coo)(_Placed(), _Placed(), coo.shape)
    with pytest.raises(FormatError, match="the tensor is on a device"):
        mttkrp_work(placed, 1)


class _Placed:
    pointer = 1
