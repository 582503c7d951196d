"""The case of level-3 BLAS: every routine, dtype and flag, on simulated machines with clocks, or on GPUs.

The number of an input determines routine, dtype and flags: the first inputs cover every combination. Sizes,
layouts, scalars, the machine, the budget of its devices and the scheduler's options are drawn. What a routine
must not read is NaN. The answer is right if it is within the bound of its rounding errors, or for a solution
if its residual is (`reference.blas3.error_of`); numbers of complex matrices are shown as pairs of floats.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import gpu.blas3
from gpu.blas3.problem import Problem
from gpu.blas3.table import PREFIXES, ROWS, Row
from gpu.cuda_machine import default_machine
from reference.blas3 import ROUTINES, error_of
from simwarp.device.device import Device
from simwarp.machine import EIGHT, EVEREST, H200, MAKALU, H200x2, H200x4, Machine
from simwarp.verify.case import Case
from simwarp.verify.draw import Draw

Array: TypeAlias = npt.NDArray[Any]
MACHINES = (H200, H200x2, H200x4, EIGHT, EVEREST, MAKALU)
REACHING = (0, 1, 2)
"""Those whose devices all reach one another."""


@dataclass(frozen=True)
class Matrix:
    """The values of an operand, and their layout in memory."""

    values: Array
    order: str  # "C" or "F"
    spare: int  # elements by which a line is longer than the matrix

    def placed(self) -> Array:
        """Copy the matrix into a new array with its order and leading dimension."""
        rows, columns = self.values.shape
        more = (self.spare, 0) if self.order == "F" else (0, self.spare)
        whole = np.zeros((rows + more[0], columns + more[1]), self.values.dtype, order=_order(self.order))
        placed = whole[:rows, :columns]
        placed[...] = self.values
        return placed


@dataclass(frozen=True)
class Input:
    """A BLAS call with its matrices, and the machine and options with which it is computed."""

    routine: str
    alpha: complex
    beta: complex
    flags: dict[str, Any]
    matrices: dict[str, Matrix]
    machine: int
    seed: int
    jitter: float
    tile: int
    times: int
    options: gpu.blas3.Options
    homes: dict[str, int]

    @property
    def row(self) -> Row:
        """The description of the routine without the letter of its dtype, such as "gemm"."""
        return ROWS[self.routine[1:]]

    @property
    def is_complex(self) -> bool:
        """Whether the matrices are complex."""
        return self.routine[0] in "cz"


def _order(order: str) -> Any:
    """An array order, typed as NumPy's functions take it."""
    return order


# --------------------------------------------------------------------------------------------------
# Inputs
# --------------------------------------------------------------------------------------------------


def _variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every routine with every combination of its flags."""
    for row in ROWS.values():
        for prefix in row.prefixes:
            flags = row.letters(is_real=prefix in "sd")
            for chosen in product(*flags.values()):
                yield prefix + row.name, dict(zip(flags, chosen, strict=True))


VARIANTS = tuple(_variants())
"""Every routine with every combination of its flags."""


def _draw(draw: Draw) -> Input:
    """Draw a random BLAS call."""
    routine, flags = VARIANTS[draw.k % len(VARIANTS)]
    row, is_complex = ROWS[routine[1:]], routine[0] in "cz"
    m, n, k = (draw.choice((0, 1, draw.integer(2, 12), draw.integer(2, 40))) for _ in range(3))
    m = n if row.is_triangle else m
    k = k if row.has_k else m if flags["side"] == "L" else n
    alpha = _scalar(draw, is_complex and "alpha" not in row.real)
    beta = _scalar(draw, is_complex and "beta" not in row.real) if row.result == "c" else 0.0
    problem = Problem(row.name, np.dtype(PREFIXES[routine[0]]), m, n, k, alpha, beta, **flags)
    values = {name: _values(draw, shape, problem.dtype) for name, shape in problem.shapes.items()}
    poison(problem, values)
    matrices = {name: Matrix(x, draw.choice("CF"), draw.choice((0, 0, 0, 3))) for name, x in values.items()}
    item = Input(
        routine,
        alpha,
        beta,
        flags,
        matrices,
        machine=draw.integer(0, len(MACHINES) - 1),
        seed=draw.integer(0, 2**31),
        jitter=draw.choice((0.0, 0.5, 20.0)),
        tile=draw.choice((1, 3, 5, 8, 16)) if max(m, n, k) <= 12 else draw.integer(5, 24),
        times=draw.choice((1, 1, 2, 50)),
        options=_options(draw),
        homes={},
    )
    return _at_home(draw, item) if draw.integer(0, 3) == 0 else item


def _at_home(draw: Draw, item: Input) -> Input:
    """Put some matrices on devices; then all are column-major, as tiles are, and peers may copy."""
    homes = {
        name: draw.integer(0, 3) for name, x in item.matrices.items() if draw.integer(0, 1) and x.values.size
    }
    matrices = {name: replace(x, order="F") for name, x in item.matrices.items()}
    options = item.options if item.options.peer != "none" else replace(item.options, peer="arriving")
    machine = draw.choice(REACHING)
    return replace(item, homes=homes, matrices=matrices, options=options, machine=machine)


def _scalar(draw: Draw, is_complex: bool) -> complex:
    """Draw alpha or beta from 0, ±1, 0.75 and 2.5, with an imaginary part if the routine is complex."""
    number = draw.choice((0.0, 1.0, -1.0, 0.75, 2.5))
    return complex(number, draw.choice((0.0, -0.5))) if is_complex and number else number


def _values(draw: Draw, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Draw a matrix of numbers from -1 to 1."""
    parts = 2 if dtype.kind == "c" else 1
    words = draw.words(shape[0] * shape[1] * parts)
    numbers = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
    return (numbers.view(np.complex128) if parts == 2 else numbers).reshape(shape).astype(dtype)


def poison(problem: Problem, values: dict[str, Array]) -> None:
    """Put NaN where the routine must not read, and a diagonal away from 0 where the routine divides.

    The triangle of C that stays as it is has NaN for odd sizes alone, since NaN hides what is added to it.
    """
    a, c = values["a"], values.get("c")
    at, row = np.arange(len(a)), problem.row
    if row.form in ("symmetric", "triangular"):
        _poison_triangle(a, problem.uplo)
    if row.form == "triangular":
        a[at, at] = np.nan if problem.diag == "U" else a[at, at] + 2 * len(a)
    if row.form == "symmetric" and row.hermitian:
        _poison_imaginary(a)
    if c is not None and problem.beta == 0:
        c[...] = np.nan
    elif c is not None and row.is_triangle:
        if problem.n % 2:
            _poison_triangle(c, problem.uplo)
        if row.hermitian:
            _poison_imaginary(c)


def _poison_triangle(x: Array, uplo: str) -> None:
    """Put NaN into the triangle that is not stored."""
    lower = np.tri(len(x), dtype=np.bool_)
    x[~(lower.T if uplo == "U" else lower)] = np.nan


def _poison_imaginary(x: Any) -> None:
    """Put NaN into the imaginary parts of the diagonal."""
    at = np.arange(len(x))
    x.imag[at, at] = np.nan


def _options(draw: Draw) -> gpu.blas3.Options:
    """Draw random options of the scheduler."""
    if draw.integer(0, 3) == 0:
        return draw.choice((gpu.blas3.Options(), gpu.blas3.Options.paper()))
    return gpu.blas3.Options(
        peer=draw.choice(("arriving", "completed", "none")),
        cache=draw.integer(0, 5) > 0,
        order=draw.choice(("priority", "fifo")),
        queue=draw.choice(("squares", "rows")),
        steal=draw.integer(0, 3) > 0,
        streams=draw.integer(1, 8),
        allocation=draw.choice(("heap", "native")),
        advance=draw.choice(("stream", "batch")),
        ahead=draw.choice((1, 2, 4)),
        station=draw.choice((1, 3, 8)),
        copies=draw.choice(("ordered", "stream")),
        addend=draw.choice(("late", "first")),
        cpu=draw.integer(0, 2) == 0,
    )


# --------------------------------------------------------------------------------------------------
# Tiers
# --------------------------------------------------------------------------------------------------


def _arguments(item: Input) -> tuple[list[Any], dict[str, Any]]:
    """The positional and keyword arguments of the NumPy reference for a call."""
    flags: dict[str, Any] = dict(item.flags)
    if "trans_a" in flags and "trans_b" not in flags:
        flags["trans"] = flags.pop("trans_a")
    operands: list[Any] = [_clean(item.matrices["a"].values)]
    operands += [item.matrices["b"].values] if "b" in item.matrices else []
    if "c" in item.matrices:
        operands += [item.beta, item.matrices["c"].values]
    return operands, flags


def _clean(a: Array) -> Array:
    """The matrix with zeros for NaN: the reference bounds the error by absolute values of all of it."""
    return np.nan_to_num(a)


def _by_reference(item: Input) -> Array:
    operands, flags = _arguments(item)
    return _shown(ROUTINES[item.row.name](item.alpha, *operands, **flags))


def _by_gpu(item: Input, device: Any) -> Array:
    """The answer of `gpu.blas3` on the input's simulated machine; for a CUDA device on one or more GPUs."""
    machine = _machine(item) if isinstance(device, Device) else _gpus(item.machine)
    result = _called(item, machine)
    left = sum(len(machine.allocated(number)) for number in range(machine.devices))
    if left or machine.pinned():
        raise RuntimeError(f"{left} allocations and {machine.pinned()} pinned arrays are left")
    return _shown(result)


def _machine(item: Input) -> Machine:
    """The simulated machine of an input, with its seed and jitter."""
    return Machine(MACHINES[item.machine], seed=item.seed, jitter=item.jitter)


def _gpus(number: int) -> gpu.CudaMachine:
    """A machine of the first GPUs: of one, of two, up to all, in turn."""
    return _first_gpus(1 + number % default_machine().devices)


@cache
def _first_gpus(count: int) -> gpu.CudaMachine:
    """The machine of so many GPUs, one for all inputs."""
    return gpu.CudaMachine(range(count))


def _called(item: Input, machine: Any) -> Array:
    """The result of a BLAS call on a machine, computed in place."""
    arrays = {name: x.placed() for name, x in item.matrices.items()}
    if not item.homes:
        return _computed(item, machine, arrays)
    tiles = {name: _upload(machine, arrays[name], home) for name, home in item.homes.items()}
    try:
        found = _computed(item, machine, {**arrays, **tiles})
        return _download(machine, found) if any(found is tile for tile in tiles.values()) else found
    finally:
        for tile in tiles.values():
            machine.free(tile.memory)


def _upload(machine: Any, array: Array, home: int) -> Any:
    """A tile with the values of an array, columns as far apart."""
    rows, columns = array.shape
    stride = max(array.strides[1] // array.itemsize, rows)
    memory = machine.allocate(home % machine.devices, stride * columns * array.itemsize)
    tile = memory.tile(rows, columns, array.dtype, stride=stride)
    with _pinned(machine, array):
        machine.copy_in(machine.stream(memory.device), array, tile)
        machine.run([])
    return tile


def _download(machine: Any, tile: Any) -> Array:
    """Copy a tile from its device to a new array."""
    array = np.zeros((tile.rows, tile.columns), tile.dtype, order="F")
    with _pinned(machine, array):
        machine.copy_out(machine.stream(tile.memory.device), tile, array)
        machine.run([])
    return array


@contextmanager
def _pinned(machine: Any, array: Array) -> Generator[None]:
    """Keep an array page-locked while the block runs."""
    machine.pin(array)
    try:
        yield
    finally:
        machine.unpin(array)


def _computed(item: Input, machine: Any, arrays: dict[str, Any]) -> Any:
    """The result of the BLAS call on these arrays or tiles."""
    keywords: dict[str, Any] = {**item.row.numbers(item.flags), f"overwrite_{item.row.result}": 1}
    keywords |= {"beta": item.beta} if "c" in arrays else {}
    least = _least_budget(item, machine.devices)
    return getattr(gpu.blas3, item.routine)(
        item.alpha,
        **arrays,
        **keywords,
        device=machine,
        tile=item.tile,
        memory_budget=max(least, 1) * item.times,
        options=item.options,
    )


def _least_budget(item: Input, devices: int) -> int:
    """The least bytes of memory per device with which the call can run."""
    rows, columns = item.matrices[item.row.result].values.shape
    k = None
    if item.row.has_k:
        k = item.matrices["a"].values.shape[1 if item.flags["trans_a"] == "N" else 0]
    plan = gpu.blas3.explain(
        item.routine,
        rows,
        columns,
        k,
        alpha=item.alpha,
        beta=item.beta,
        tile=item.tile,
        devices=devices,
        options=item.options,
        **item.flags,
    )
    return plan.needed


def _shown(result: Array) -> Array:
    """The elements of a result as floats; a complex number becomes two."""
    result = np.ascontiguousarray(result)
    return result.view(np.real(result).dtype) if result.dtype.kind == "c" else result


def differs(item: Input, expected: Array, got: Array) -> npt.NDArray[np.bool_]:
    """Mask of wrong elements: none if the error is within the bound, else the worst ones."""
    operands, flags = _arguments(item)
    result = got.view(item.matrices["a"].values.dtype)
    if error_of(item.row.name, result, item.alpha, *operands, **flags) <= 1:
        return np.zeros(got.shape, np.bool_)
    apart = np.abs(got.astype(np.float64) - expected)
    apart[np.isnan(got) & np.isnan(expected)] = 0
    apart[np.isnan(apart)] = np.inf
    return apart >= min(apart.max(), float(np.finfo(got.dtype).eps) * 100)


# --------------------------------------------------------------------------------------------------
# Description of inputs and mismatches
# --------------------------------------------------------------------------------------------------


def _describe(item: Input) -> str:
    shapes = ", ".join(
        f"{name} {x.values.shape[0]} x {x.values.shape[1]} {x.order}" for name, x in item.matrices.items()
    )
    flags = " ".join(f"{name}={value}" for name, value in item.flags.items())
    return (
        f"{item.routine} {flags}, alpha {item.alpha}, beta {item.beta}, {shapes}, tiles of {item.tile}, "
        f"{_machine(item).topology.name}, {item.times} x the least budget{_switches(item.options)}"
        f"{_homes(item)}"
    )


def _homes(item: Input) -> str:
    """The devices on which matrices lie, as text for a report."""
    return "".join(f", {name} on device {home}" for name, home in item.homes.items())


def _switches(options: gpu.blas3.Options) -> str:
    """The options that differ from their defaults, as text for a report."""
    default = gpu.blas3.Options()
    changed = [(field.name, getattr(options, field.name)) for field in fields(options)]
    return "".join(f", {name} {value}" for name, value in changed if value != getattr(default, name))


def _explain(item: Input, element: tuple[int, ...], _: int) -> str:
    row, column = element
    if item.is_complex:
        return f"the {('real', 'imaginary')[column % 2]} part of element {row}, {column // 2}"
    return f"element {row}, {column}"


def _shape(item: Input) -> tuple[int, ...]:
    sizes = [size for x in item.matrices.values() for size in x.values.shape]
    return (VARIANTS.index((item.routine, item.flags)), *sizes, item.tile)


CASES = [
    Case(
        name="blas3",
        draw=_draw,
        shape=_shape,
        describe=_describe,
        answers={"reference": _by_reference, "gpu": _by_gpu},
        outputs={"gpu": ""},
        explain=_explain,
        lead=lambda item, bits: 0,  # the answers are floats, which have no differing bits
        kernels=lambda arch: {},
        covering=len(VARIANTS),
        differs=differs,
    )
]
"""The cases of the harness."""
