"""Checks and conversions of arguments, and orders of modes, for every tier.

>>> by_dimension((7, 3, 7, 2)), root_first((7, 3, 7, 2), 2), leaf_last((7, 3, 7, 2), 3)
((3, 1, 0, 2), (2, 3, 1, 0), (1, 0, 2, 3))
>>> check_mode(-1, 3)
Traceback (most recent call last):
...
reference.errors.ShapeError: mode=-1 is not a mode of a tensor of order 3
modes count from 0 to 2
give one of them
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, SupportsFloat, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.types.fields import LARGEST_DIMENSION, as_array, is_integer
from reference.types.sparse import BLOCKS, Coo

LENGTHS, TIES, TURNS = ("dynamic", "static"), ("average", "printed"), ("sorted", "given")
"""The options of MM-CSF's choice: lengths of fibers, the rule of a tie, and the order of the nonzeros."""
_MATRICES = "give one (dimension, rank) matrix for each mode"


def check_option(option: str, given: object, known: Sequence[object], reason: str) -> None:
    """Raise SchemeError unless an option has one of the known values; the message gives the reason."""
    if given not in known:
        raise SchemeError(f"there is no {option}={given!r}\n{reason}\nchoose {' or '.join(map(repr, known))}")


def dtype_of(what: str, given: npt.DTypeLike) -> np.dtype[Any]:
    """Convert any of NumPy's spellings to a dtype; raise DtypeError for others."""
    try:
        return np.dtype(given)
    except TypeError:
        raise DtypeError(f"{what}: {given!r} is not a dtype\ngive one of NumPy's, e.g. float32") from None


def by_dimension(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The modes sorted by dimension, the lower mode first if equal (MM-CSF, section 3.2)."""
    return tuple(sorted(range(len(shape)), key=lambda mode: shape[mode]))


def root_first(shape: tuple[int, ...], root: int) -> tuple[int, ...]:
    """The modes with ``root`` first, then the others by ascending dimension (MM-CSF, section 3.2)."""
    return (root, *(mode for mode in by_dimension(shape) if mode != root))


def leaf_last(shape: tuple[int, ...], leaf: int) -> tuple[int, ...]:
    """The modes by ascending dimension, with ``leaf`` moved to the end (MM-CSF, section 4.1)."""
    return (*(mode for mode in by_dimension(shape) if mode != leaf), leaf)


def check_host(coo: object) -> None:
    """Raise DtypeError or FormatError unless ``coo`` is a Coo with its arrays on the host."""
    if not isinstance(coo, Coo):
        raise DtypeError(
            f"coo is a {type(coo).__name__}\na Coo is expected\n"
            "give Coo(coords, values, shape), or to_coo(tensor) of another format"
        )
    if not isinstance(coo.coords, np.ndarray) or not isinstance(coo.values, np.ndarray):
        raise FormatError("coo is on a device\na tensor on the host is expected\ndownload its arrays")


def check_coo(coo: Any) -> None:
    """Raise unless ``coo`` is a Coo on the host whose indices fit into uint32."""
    check_host(coo)
    for mode, dimension in enumerate(coo.shape):
        if dimension > LARGEST_DIMENSION:
            raise ShapeError(
                f"mode {mode} has dimension {dimension}\n"
                f"indices are uint32, so dimensions are at most 2**32; the shape is {coo.shape}\n"
                "split the mode into two"
            )


def check_mode(mode: object, order: int) -> int:
    """Convert a mode to a Python int; raise ShapeError unless a tensor of ``order`` has it."""
    if not is_integer(mode) or not 0 <= mode < order:
        raise ShapeError(
            f"mode={mode!r} is not a mode of a tensor of order {order}\n"
            f"modes count from 0 to {order - 1}\ngive one of them"
        )
    return int(mode)


def check_modes(modes: Iterable[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Convert modes to Python ints; raise ShapeError unless each mode of the shape occurs once."""
    given, every = tuple(modes), [*range(len(shape))]
    if not all(map(is_integer, given)) or sorted(given) != every:
        raise ShapeError(
            f"modes={given!r} for a tensor of shape {shape}\n"
            f"each of the modes 0 to {every[-1]} must occur once\ngive them from the root to the leaf"
        )
    return tuple(map(int, given))


def check_number(name: str, number: object, multiple: int = 1) -> int:
    """Convert a number of nonzeros to a Python int; raise unless it is a positive multiple."""
    if not is_integer(number) or number < 1 or number % multiple:
        kind = f"a positive multiple of {multiple}" if multiple > 1 else "at least 1"
        raise ShapeError(f"{name}={number!r}\na number of nonzeros must be {kind}\ngive such an int")
    return int(number)


def check_block(block: object) -> int:
    """Convert the block side of a HiCoo to a Python int; raise ShapeError unless it is one of `BLOCKS`."""
    if not is_integer(block) or block not in BLOCKS:
        raise ShapeError(
            f"block={block!r}\nthe side of a block is a power of two, 2 to 256\ngive one of {BLOCKS}"
        )
    return int(block)


def check_directions(
    directions: Iterable[Any] | None,
    shape: tuple[int, ...],
    lengths: object,
    ties: object = "average",
    order: object = "sorted",
) -> tuple[int, ...]:
    """The leaf modes that MM-CSF chooses from, by default all; raise if they or the options are invalid."""
    check_option("lengths", lengths, LENGTHS, "fibers are counted after each choice, or once")
    check_option("ties", ties, TIES, "the direction with longer fibers wins, or the first of algorithm 5")
    check_option("order", order, TURNS, "nonzeros choose in lexicographic order, or as they are given")
    every = tuple(range(len(shape)))
    leaves = tuple(check_mode(leaf, len(shape)) for leaf in (every if directions is None else directions))
    if not leaves or len(set(leaves)) < len(leaves):
        raise ShapeError(
            f"directions={leaves}\ngive at least one leaf mode, none of them twice\nchoose from {every}"
        )
    return leaves


def as_sequence(given: Any, name: str) -> Sequence[Any]:
    """Convert an iterable of factors to a sequence; raise ShapeError for anything else."""
    if isinstance(given, list | tuple):
        return cast("Sequence[Any]", given)
    try:
        return list(given)
    except TypeError:
        raise ShapeError(
            f"{name} is {type(given).__name__}\na sequence of matrices is needed\n{_MATRICES}"
        ) from None


def as_matrix(given: Any, name: str) -> npt.NDArray[Any]:
    """Convert a factor to a host array of any shape and dtype; raise ShapeError for ragged rows."""
    return as_array(given, name, "a matrix (dimension, rank)")


def check_factors(factors: Sequence[Any], shape: Sequence[int], name: str = "factors", rank: int = 0) -> int:
    """Check that factors are one (dimension, rank) matrix per mode; return the rank."""
    if len(factors) != len(shape):
        raise ShapeError(
            f"{name} has {len(factors)} matrices\nthe tensor has {len(shape)} modes\n{_MATRICES}"
        )
    first = tuple(factors[0].shape)
    columns = rank or (first[1] if len(first) == 2 else 0)
    for mode, (factor, dimension) in enumerate(zip(factors, shape, strict=True)):
        if tuple(factor.shape) != (dimension, columns) or columns == 0:
            of = f"the rank is {rank}" if rank else f"{name}[0] has {columns or 'R >= 1'} columns"
            raise ShapeError(
                f"{name}[{mode}] has shape {tuple(factor.shape)}\n({dimension}, {columns or 'R'}) is needed: "
                f"mode {mode} has dimension {dimension}, and {of}\n{_MATRICES}"
            )
    return int(columns)


def check_alike(factors: Sequence[Any]) -> None:
    """Raise DtypeError unless all factors have one dtype."""
    for n, factor in enumerate(factors):
        if factor.dtype != factors[0].dtype:
            raise DtypeError(
                f"factors[{n}] is {factor.dtype}\nfactors[0] is {factors[0].dtype}\nconvert all to one dtype"
            )


def check_start(start: Sequence[Any], shape: tuple[int, ...], rank: int) -> None:
    """Raise unless the initial factors of a decomposition fit the tensor and are finite real numbers."""
    check_factors(start, shape, "start", rank)
    for n, array in enumerate(start):
        if array.dtype.kind not in "fiu":
            raise DtypeError(f"start[{n}] is {array.dtype}\nreal numbers are needed\nconvert it")
        if not np.isfinite(array).all():
            i, r = (int(index) for index in np.argwhere(~np.isfinite(array))[0])
            raise NotANumberError(
                f"start[{n}][{i}, {r}] is {array[i, r]}\nfinite numbers are needed\nreplace it"
            )


def check_iterations(rank: Any, seed: Any, iterations: Any, tolerance: Any) -> None:
    """Raise for an invalid rank, number of iterations, seed or tolerance of a decomposition."""
    for name, number in (("rank", rank), ("iterations", iterations)):
        if not is_integer(number) or number < 1:
            raise ShapeError(f"{name} is {number!r}\nit must be at least 1\ngive a larger int")
    if not is_integer(seed) or not 0 <= seed < 2**64:
        raise SchemeError(f"seed is {seed!r}\nseeds are 0 to 2**64 - 1\ngive one of them")
    if not isinstance(tolerance, SupportsFloat) or math.isnan(float(tolerance)):
        shown = "NaN" if isinstance(tolerance, float) else repr(tolerance)
        raise NotANumberError(
            f"tolerance is {shown}\nit must be a number; 0 runs all iterations\ngive a number"
        )


Kind: TypeAlias = Literal["xnor", "and", "or"]
"""The product of signs, of bits 0 and 1, or of truth values."""


def check_kind(kind: Any) -> None:
    """Raise SchemeError unless a product is of a known kind."""
    if not isinstance(kind, str) or kind not in get_args(Kind):
        raise SchemeError(
            f"kind={kind!r}\nthis kind of product is unknown\n"
            "choose 'xnor' for signs, 'and' for bits that are 1 in both, or 'or' for whether any are"
        )
