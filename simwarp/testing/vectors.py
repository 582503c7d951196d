"""Hypothesis strategies for kernels that are not about bits: lengths with tails, vectors, and grids.

Needs Hypothesis: ``pip install 'simwarp[test]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from reference.errors import DtypeError
from simwarp.testing import parts
from simwarp.verify.draw import Draw


class Grid(NamedTuple):
    """The numbers of blocks, and of threads of a block: ``run(…, grid=x.grid, block=x.block)``."""

    grid: int
    block: int


def tails(block: int = 256, *, most: int = 5000) -> st.SearchStrategy[int]:
    """Lengths of which a kernel's last warp, or last block, is often partly used. Shrinks to 1.

    They are about the edges of warps, of blocks, and of several blocks; tiny; or any.

    Parameters
    ----------
    block : int
        The threads of a block, or the elements that it takes.
    most : int
        The longest length.

    Raises
    ------
    ShapeError
        If either is less than 1.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(tails(128), lambda n: n > 128)
    129
    """
    parts.check_size("block", block)
    parts.check_size("most", most)
    edges = {unit * count + d for unit in (32, block) for count in range(1, 5) for d in (-1, 0, 1)}
    often = sorted(n for n in {1, 2, 3, *edges} if 1 <= n <= most)
    return st.integers(1, most) | st.sampled_from(often)


def grids(threads: int, *, blocks: Sequence[int] = (32, 64, 128, 256, 1024)) -> st.SearchStrategy[Grid]:
    """Grids of one dimension with at least so many threads. Shrinks to the fewest of the first block size.

    Sometimes there are a few blocks more than are needed, which must do nothing.

    Parameters
    ----------
    threads : int
        The threads that are needed, for instance one for each element.
    blocks : sequence of int
        The threads of a block to choose from.

    Raises
    ------
    ShapeError
        If one of them is less than 1.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(grids(100), lambda x: x.block > 32)
    Grid(grid=2, block=64)
    """
    parts.check_size("threads", threads)
    for block in blocks:
        parts.check_size("block", block)

    def covering(block: int, more: int) -> Grid:
        return Grid(-(-threads // block) + more, block)

    return st.builds(covering, st.sampled_from(list(blocks)), st.sampled_from([0, 0, 0, 1, 3]))


def vectors(
    size: int | st.SearchStrategy[int] | None = None,
    *,
    dtypes: Sequence[npt.DTypeLike] = (np.float32,),
    finite: bool = True,
) -> st.SearchStrategy[npt.NDArray[Any]]:
    """Vectors (n,) of numbers. Shrinks to one zero of the first dtype.

    A vector has one value throughout, small whole numbers, whose sums are exact in any order, or any numbers
    of its dtype; a few elements are then changed.

    Parameters
    ----------
    size : int or strategy, optional
        Default: `tails`.
    dtypes : sequence
        The dtypes to choose from: bool, integers or floats.
    finite : bool
        False: also ±inf and NaN.

    Raises
    ------
    DtypeError
        For another dtype, or if ``dtypes`` is empty.
    ShapeError
        For a size that is less than 1.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(vectors(dtypes=["int32"]), lambda x: x[-1] > 4)
    array([5], dtype=int32)
    """
    names = [np.dtype(dtype).name for dtype in dtypes]
    if not names or any(np.dtype(name).kind not in "biuf" for name in names):
        raise DtypeError(
            f"vectors of {', '.join(names) or 'no dtype'}\n"
            "numbers are drawn of bool, integers and floats\n"
            "choose among those of NumPy: dtypes=[np.float32]"
        )
    if isinstance(size, int):
        parts.check_size("size", size)
    lengths = tails() if size is None else st.just(size) if isinstance(size, int) else size

    @st.composite
    def drawn(draw: st.DrawFn) -> npt.NDArray[Any]:
        n, dtype = draw(lengths), draw(st.sampled_from(names))
        numbers = _numbers(dtype, finite)

        def small(seed: int) -> npt.NDArray[Any]:
            signed = np.dtype(dtype).kind in "if"
            return (Draw(seed, "vectors", 0).words(n) % np.uint64(19)).astype(np.int64) - 9 * signed

        def anything(seed: int) -> npt.NDArray[Any]:
            raw = Draw(seed, "vectors", 1).words(n).view(np.uint8)
            array = raw[: n * np.dtype(dtype).itemsize].view("u1" if dtype == "bool" else dtype)
            array = array % 2 if dtype == "bool" else array
            return np.where(np.isfinite(array), array, 1) if finite else array

        return parts.array(draw, (n,), dtype, numbers, [small, anything])

    return drawn()


@cache
def _numbers(dtype: str, finite: bool) -> st.SearchStrategy[Any]:
    """A strategy for numbers of a dtype."""
    options = {"allow_nan": False, "allow_infinity": False} if np.dtype(dtype).kind == "f" and finite else {}
    return cast("Any", hnp.from_dtype)(np.dtype(dtype), **options)
