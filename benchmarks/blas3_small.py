"""Products of NumPy matrices that `gpu.blas3.patched` may route, beside NumPy: from which size it is faster.

    python benchmarks/blas3_small.py [--sizes 500 1000 …] [--rounds N] [--json PATH]

Row ``matmul/DTYPE/N``: milliseconds of `numpy.matmul` inside a block of `patched`, of two matrices that it
has seen before, and of NumPy itself on all cores. ``fresh`` is with two new matrices for each call, whose
pages have to be locked; ``in_place`` is ``dgemm`` into a matrix that was seen, too. NumPy and ours alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from common import Row, about_this_run, parser_of, show, write

import gpu
from gpu import blas3

SIZES = (300, 500, 700, 1000, 1500, 2000, 3000, 4000, 6000)
_ROUTINES: dict[str, Any] = {"float32": blas3.sgemm, "float64": blas3.dgemm}


def milliseconds(call: Callable[[], object]) -> float:
    """The time of a call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def row_of(machine: Any, dtype: str, n: int, rounds: int) -> Row:
    """Measure a size."""
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((n, n)).astype(dtype) for _ in range(2))
    result = np.asfortranarray(a)
    expected, routine = np.matmul(a, b), _ROUTINES[dtype]
    times: dict[str, list[float]] = {name: [] for name in ("NumPy", "patched", "fresh", "in_place")}

    def in_place() -> None:
        routine(1.0, a, b, 0.5, result, overwrite_c=1, device=machine)

    for _ in range(rounds):
        times["NumPy"].append(milliseconds(lambda: np.matmul(a, b)))
        with blas3.patched(machine, above=0):
            times["patched"].append(milliseconds(lambda: np.matmul(a, b)))
            times["fresh"].append(milliseconds(partial(np.matmul, a.copy(), b.copy())))
            got = np.matmul(a, b)
        times["in_place"].append(milliseconds(in_place))
    np.testing.assert_allclose(got, expected, rtol=0, atol=n * 10 * np.finfo(dtype).eps)
    found = {name: round(median(each[1:]), 4) for name, each in times.items()}  # the first one locks pages
    ours = found.pop("patched")
    return Row(
        f"matmul/{dtype}/{n}", {"n": n, **found}, "ms", "lower", ours, {"NumPy": found["NumPy"]}, target=None
    )


def rows_of(machine: Any, sizes: list[int], rounds: int) -> Iterator[Row]:
    """All rows."""
    for dtype in _ROUTINES:
        for n in sizes:
            yield row_of(machine, dtype, n, rounds)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[*SIZES], help="rows and columns")
    parser.add_argument("--rounds", type=int, default=12, help="calls of each kind")
    options = parser.parse_args()
    done: list[Row] = []
    with gpu.CudaMachine() as machine:
        meta = about_this_run(gpu=machine.name(0), devices=machine.devices)
        for row in rows_of(machine, options.sizes, options.rounds):
            done.append(row)
            show([row])
            if options.json:
                write(options.json, meta, done)


if __name__ == "__main__":
    main()
