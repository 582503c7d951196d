"""`patched`: calls of NumPy and SciPy that `gpu.blas3` computes, while a ``with`` block runs.

The functions of the modules are replaced while some block is open in the process. A replaced function looks
up the block of its own context, so other threads, and our own tile routines, reach the originals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np

from gpu.blas3.execute import execute
from gpu.blas3.on_host import LARGEST
from gpu.blas3.options import Options
from gpu.blas3.routines import blas
from gpu.blas3.routing import Found, product_of, routine_of
from gpu.blas3.table import NAMES
from gpu.machine import Machine, check_machine
from reference.errors import MissingExtraError, ShapeError
from reference.values import shortened


@shortened
@dataclass
class Routing:
    """The routing of the calls inside a block of `patched`: counts, and reasons.

    Attributes
    ----------
    routed : Counter of str
        How many calls of each function `gpu.blas3` computed.
    passed : Counter of (str, str)
        How many went to the original, by function and reason: "size" for a small problem, "operands" for
        anything but plain matrices of one dtype, "layout" for matrices without contiguous rows or columns,
        "arguments" for arguments that `gpu.blas3` refuses or does not have.

    Examples
    --------
    >>> with patched(above=10) as routing:
    ...     _ = np.matmul(np.ones((2, 3)), np.ones((3, 2)))
    >>> routing.routed.total(), dict(routing.passed)
    (0, {('numpy.matmul', 'size'): 1})
    """

    routed: Counter[str] = field(default_factory=Counter[str])
    passed: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])


@contextmanager
def patched(
    device: Machine | None = None,
    above: int = LARGEST,
    tile: int | None = None,
    memory_budget: int | Sequence[int] | None = None,
    options: Options | None = None,
) -> Generator[Routing]:
    """Let `gpu.blas3` compute large calls of NumPy and SciPy inside a ``with`` block.

    Routed are `numpy.matmul`, `numpy.dot`, the routines of `scipy.linalg.blas` that `gpu.blas3` has, and
    those that `get_blas_funcs` returns inside the block. Results have the dtype, the shape and the memory
    order of the originals; what is small or not supported goes to the originals.

    Parameters
    ----------
    device, tile, memory_budget, options
        As of `dgemm`.
    above : int
        A call is routed if M N K is above the cube of this number.

    Yields
    ------
    Routing
        Counts of the calls that were routed, and of those that were not, with reasons.

    Raises
    ------
    ShapeError
        For a negative ``above`` and a ``tile`` below 1.
    LaunchError, NoGpuError
        By the routed calls, as of `dgemm`.

    Notes
    -----
    ``a @ b`` and ``a.dot(b)`` are not routed: they call NumPy's C code directly, which has no hook. Neither
    are functions that were imported by name before the block, and calls of other threads. Blocks may be
    nested; the innermost one decides. Source: the names and conventions of NumPy 2 and SciPy.

    Examples
    --------
    >>> import simwarp
    >>> with patched(simwarp.Machine(), above=1, tile=2) as routing:
    ...     np.matmul(np.ones((2, 3)), np.ones((3, 2))).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    >>> dict(routing.routed)
    {'numpy.matmul': 1}
    """
    if device is not None:
        check_machine(device)
    if above < 0 or (tile is not None and tile < 1):
        raise ShapeError(
            f"above is {above}, tile is {tile}\na size is 0 or more, a tile has at least 1 row\ngive others"
        )
    patch = _Patch(device, above, tile, memory_budget, options, _PRESENT.get())
    _install()
    _PRESENT.set(patch)
    try:
        yield patch.routing
    finally:
        patch.is_open = False
        if _PRESENT.get() is patch:
            _PRESENT.set(patch.outer)
        _remove()


@dataclass
class _Patch:
    """One ``with patched(...)`` block: its arguments, and the enclosing block."""

    device: Machine | None
    above: int
    tile: int | None
    memory_budget: int | Sequence[int] | None
    options: Options | None
    outer: _Patch | None
    routing: Routing = field(default_factory=Routing)
    is_open: bool = True

    def call(self, function: _Replaced, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Compute a call on the devices, or pass it on to the original function."""
        found = function.find(arguments, keywords, self.above)
        if isinstance(found, str):
            self.routing.passed[function.name, found] += 1
            return function.original(*arguments, **keywords)
        self.routing.routed[function.name] += 1
        call, result = found
        before = _PRESENT.set(None)  # calls that a routine makes itself are not routed
        try:
            execute(call, self.device, self.tile, self.memory_budget, self.options, None)
        finally:
            _PRESENT.reset(before)
        return result


_PRESENT: ContextVar[_Patch | None] = ContextVar("patch", default=None)


def _present() -> _Patch | None:
    """The innermost open block of this context; a copied context may outlive its block."""
    patch = _PRESENT.get()
    while patch is not None and not patch.is_open:
        patch = patch.outer
    return patch


class _Replaced:
    """A function that replaces an original, with the original's attributes."""

    def __init__(self, name: str, original: Any, find: Callable[..., Found]) -> None:
        self.name, self.original, self.find = name, original, find
        self.__doc__ = original.__doc__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        patch = _present()
        if patch is None:
            return self.original(*arguments, **keywords)
        return patch.call(self, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "original"), name)

    def __repr__(self) -> str:
        return f"<{self.name}, patched by gpu.blas3>"


def _routine(routine: str, original: Any) -> _Replaced:
    """The function that replaces a routine of SciPy."""
    return _Replaced(f"scipy.linalg.blas.{routine}", original, partial(routine_of, routine))


def _functions(original: Any) -> Any:
    """Build the replacement of `scipy.linalg.blas.get_blas_funcs`."""

    @wraps(original)
    def get_blas_funcs(names: Any, *arguments: Any, **keywords: Any) -> Any:
        found = original(names, *arguments, **keywords)
        if _present() is None:
            return found
        if isinstance(names, str):
            return replaced(names, found)
        return [replaced(*pair) for pair in zip(names, found, strict=True)]

    def replaced(name: str, function: Any) -> Any:
        routine = f"{function.prefix}{name}"
        return _routine(routine, function) if routine in NAMES else function

    return get_blas_funcs


# ----------------------------------------------------------------------------------------------
# The modules
# ----------------------------------------------------------------------------------------------

_LOCK = Lock()
_OPEN: list[list[tuple[Any, str, Any, Any]]] = []
"""An entry for each open block: what was replaced (module, name, original, replacement) is in the first."""


def _install() -> None:
    """Replace NumPy's and SciPy's functions, unless another block has already done so."""
    with _LOCK:
        replacements = [] if _OPEN else list(_replacements())
        for module, name, _, replacement in replacements:
            setattr(module, name, replacement)
        _OPEN.append(replacements)


def _remove() -> None:
    """Restore the originals at the end of the last open block, except names that others replaced since."""
    with _LOCK:
        last = _OPEN.pop()
        if _OPEN:
            return
        for module, name, original, replacement in last:
            if getattr(module, name) is replacement:
                setattr(module, name, original)


def _replacements() -> Iterator[tuple[Any, str, Any, Any]]:
    """Module, name, original and replacement of each patched function; without SciPy only NumPy's."""
    for name in ("matmul", "dot"):
        original = getattr(np, name)
        yield np, name, original, _Replaced(f"numpy.{name}", original, product_of)
    try:
        routines = blas()
    except MissingExtraError:
        return
    for name in NAMES:
        original = getattr(routines, name, None)
        if original is None:  # SciPy has no GEMMT
            continue
        yield routines, name, original, _routine(name, original)
    original = routines.get_blas_funcs
    replacement = _functions(original)
    for module in (routines, import_module("scipy.linalg")):
        yield module, "get_blas_funcs", original, replacement
