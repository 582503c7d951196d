"""Stacks of matrices: arrays with one more axis in front; most kernels take one matrix after the other."""

from __future__ import annotations

from collections.abc import Iterator

from gpu.device import Array
from reference.errors import ShapeError


def stack_of(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The number of matrices, as the axis in front of a result; () if no operand is a stack."""
    found = {shape[0] for shape in shapes if len(shape) == 3}
    if len(found) > 1:
        raise ShapeError(
            f"a is a stack of {shapes[0][0]} matrices and b one of {shapes[1][0]}\n"
            "stacks must have as many, or one of the operands be a single matrix\n"
            "cut the longer one, or repeat matrices"
        )
    return tuple(found)


def matrices(stack: tuple[int, ...], *arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield the arrays of each matrix as views of the stack, or the arrays of the one matrix."""
    if not stack:
        yield arrays
        return
    (count,) = stack
    for i in range(count):
        yield tuple(x.view(tuple(x.shape[1:]), offset=i * (x.nbytes // count)) for x in arrays)
