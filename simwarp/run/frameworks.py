"""Kernels of other frameworks: their PTX or CUDA C++, and their arguments as the PTX takes them.

- ``numba.cuda.jit``: PTX that numba compiles for the types of the arguments, with lines of the Python file.
- Triton: the PTX of a compiled kernel, ``kernel.asm["ptx"]``.
- ``cupy.RawKernel`` and ``cupy.RawModule``: the source, compiled as a ``.cu`` file is.

Sources: numba's documentation, "CUDA Python ABI" of arrays (meminfo, parent, nitems, itemsize, data, shape,
strides); attributes of ``triton.compiler.CompiledKernel``, ``cupy.RawKernel`` and
``cupy.RawModule``.
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from reference.errors import DtypeError, SchemeError
from simwarp.faults import LaunchError
from simwarp.run.binding import Arguments, Given
from simwarp.run.source import Source, from_ptx, from_text, load, with_named_files


class Adapted(NamedTuple):
    """A kernel and its arguments as `run` takes them."""

    source: Source
    kernel: str | None
    args: Arguments
    shared: int = 0
    """Bytes of dynamic shared memory that the kernel says it needs."""


def adapt(kernel: object, name: str | None, args: Arguments, cc: tuple[int, int]) -> Adapted | None:
    """Adapt a kernel of another framework and its arguments; None for anything else.

    ``name`` is that of the kernel in a module of several. LaunchError or DtypeError if the arguments do not
    fit the kernel; SchemeError if a Triton kernel is not compiled.
    """
    module = type(kernel).__module__.partition(".")[0]
    if module == "numba" and hasattr(kernel, "py_func"):
        return _of_numba(kernel, args, cc)
    if module == "triton":
        return _of_triton(kernel, args)
    if module == "cupy" and hasattr(kernel, "code"):
        return _of_cupy(kernel, name, args, cc)
    return None


def _of_numba(kernel: Any, args: Arguments, cc: tuple[int, int]) -> Adapted:
    """Compile a Numba CUDA kernel to PTX for the types of its arguments."""
    cuda: Any = import_module("numba.cuda")
    function, name = kernel.py_func, kernel.py_func.__name__
    values = _in_order(function, args)
    types = tuple(_numba_type(parameter, value) for parameter, value in values.items())
    options = {key: kernel.targetoptions.get(key, False) for key in ("debug", "fastmath")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler, about this version and this kernel's speed
        ptx, _ = cuda.compile_ptx(function, types, cc=cc, lineinfo=not options["debug"], **options)
    (entry,) = from_ptx(ptx).entries
    ptx = _without_wrapper(ptx.replace(entry, name), function.__code__.co_firstlineno)
    source = _source(ptx, f"{name}.ptx")
    return Adapted(source, name, [one for item in values.items() for one in _numba_parameters(*item)])


def _without_wrapper(ptx: str, line: int) -> str:
    """PTX without the marks that numba's wrapper inlines the Python function, which begins at ``line``."""
    return re.sub(rf", function_name [^,\n]+, inlined_at \d+ {line} \d+", "", ptx)


def _in_order(function: Any, args: Arguments) -> dict[str, Any]:
    """The arguments by the names of a Python function's parameters."""
    signature = inspect.signature(function)
    given = {str(name): value for name, value in args.items()} if isinstance(args, Mapping) else {}
    try:
        bound = signature.bind(*(() if isinstance(args, Mapping) else args), **given)
    except TypeError as error:
        raise LaunchError(
            f"kernel {function.__name__}{signature}: {error}\ngive one argument for each parameter"
        ) from None
    bound.apply_defaults()
    return bound.arguments


def _numba_type(name: str, value: Any) -> Any:
    """The type by which numba compiles for a value."""
    numba: Any = import_module("numba")
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return numba.typeof(value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return numba.types.Array(numba.from_dtype(np.dtype(value.dtype)), len(_shape(value)), "C")
    raise DtypeError(
        f"{name} is a {type(value).__name__}, which is not passed to a kernel of numba\n"
        "give a NumPy array, an Out, an array of the device, or a number"
    )


def _numba_parameters(name: str, value: Any) -> list[Any]:
    """The values of the PTX parameters by which Numba passes one argument."""
    if not hasattr(value, "shape") or isinstance(value, np.generic):
        return [value]
    shape, itemsize = _shape(value), np.dtype(value.dtype).itemsize
    strides = [itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return [0, 0, math.prod(shape), itemsize, Given(value, None, name), *shape, *strides]


def _shape(value: Any) -> tuple[int, ...]:
    return (value.shape,) if isinstance(value.shape, int) else tuple(value.shape)


def _of_triton(kernel: Any, args: Arguments) -> Adapted:
    """Take the PTX of a compiled kernel of Triton; memory that it asks for itself is a null pointer.

    Triton marks its PTX with the version of its ptxas; instructions that PTX 9.0 lacks are refused one by
    one.
    """
    code: Any = getattr(kernel, "asm", {})
    if "ptx" not in code:
        raise SchemeError(
            f"a Triton kernel without PTX: {type(kernel).__name__}\n"
            "compile it first: triton.compile(triton.compiler.ASTSource(kernel, …), "
            'target=GPUTarget("cuda", 90, 32))'
        )
    source = _source(re.sub(r"\.version 9\.\d+", ".version 9.0", code["ptx"]), "triton.ptx")
    ((name, entry),) = source.entries.items()
    types: dict[str, str] = getattr(kernel.src, "signature", {})
    names = [parameter for parameter, kind in types.items() if kind != "constexpr"]
    if isinstance(args, Mapping):
        args = [args[parameter] for parameter in names if parameter in args]
    bound = [Given(value, None, name) for value, name in zip_longest(args, names[: len(args)], fillvalue="")]
    shared = getattr(getattr(kernel, "metadata", None), "shared", 0)
    return Adapted(source, name, [*bound, *([0] * (len(entry.parameters) - len(names)))], shared)


def _source(ptx: str, name: str) -> Source:
    """PTX as a source, with the texts of the Python files that it names."""
    text, files = with_named_files(ptx)
    return replace(from_ptx(text, name), files=files)


def _of_cupy(kernel: Any, name: str | None, args: Arguments, cc: tuple[int, int]) -> Adapted:
    """Compile the source of a ``cupy.RawKernel`` or ``cupy.RawModule``, or load its file."""
    name = getattr(kernel, "name", name)  # which a module does not have
    if kernel.code is None:
        return Adapted(load(kernel.file_path, cc=cc), name, args)
    options = [option for option in kernel.options if not option.startswith("-I")]
    path = f"{type(kernel).__name__.lower()}.cu"
    return Adapted(from_text(kernel.code, path, cc=cc, options=options, kernel=name), name, args)
