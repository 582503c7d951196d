"""Cases of users: from three functions, and from a file of ``simwarp verify FILE``."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError, InputFileError, SimwarpError
from reference.files import open_input
from simwarp.verify.case import ORACLE, Answer, Case
from simwarp.verify.draw import Draw

TEMPLATE = '''"""Is my kernel right? Ask: simwarp verify FILE"""

import numpy as np

import simwarp
from simwarp.verify import Case, Draw

SOURCE = r"""
extern "C" __global__ void row_sums(const int* x, int* sums, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int sum = 0;
    for (int i = 0; i < columns; i++) sum += x[row * columns + i];
    sums[row] = sum;
}
"""  # or the path of a .cu file


def draw(d: Draw) -> np.ndarray:
    """An input. Sizes are by turns prime, about a word's edge, tiny, any, and one of them long."""
    rows, columns = d.sizes(2)
    return d.matrix(rows, columns, "int8").astype(np.int32)


def reference(x: np.ndarray) -> np.ndarray:
    """What is right."""
    return x.sum(axis=1, dtype=np.int32)


def kernel(x: np.ndarray, device: object) -> object:
    """What the kernel gives on a device: the simulator or, with --device cuda or both, the GPU."""
    rows, columns = x.shape
    arguments = {"x": x, "sums": simwarp.Out(np.int32, rows), "rows": rows, "columns": columns}
    return simwarp.run(SOURCE, grid=-(-rows // 128), block=128, args=arguments, device=device)


row_sums = Case.of(draw, reference, kernel, output="sums")
'''
"""A file with a case; FILE stands for its name."""


def case_of(draw: Any, reference: Any, kernel: Any, output: str, bound: Any, listing: Any, name: str) -> Case:
    """The `Case` of a user's functions; see `Case.of`."""
    given = {"draw": draw, "reference": reference, "kernel": kernel}
    given |= {option: x for option, x in (("bound", bound), ("listing", listing)) if x is not None}
    for option, function in given.items():
        if not callable(function):
            raise DtypeError(
                f"Case.of: {option} is a {type(function).__name__}\nit must be a function\n"
                "pass the function itself, without calling it"
            )
    answers: dict[str, Answer] = {ORACLE: partial(_array_of, reference, "reference", "")}
    if listing is not None:
        answers["listing"] = partial(_array_of, listing, "listing", "")
    answers["gpu"] = partial(_array_of, kernel, "kernel", output)
    return Case(
        name=name or getattr(kernel, "__name__", type(kernel).__name__),
        named=bool(name),
        draw=partial(_drawn, draw),
        shape=_key,
        describe=_described,
        answers=answers,
        outputs={"gpu": output, "listing": ""},
        explain=lambda item, element, bit: f"{output or 'its answer'}{list(element)}",
        lead=lambda item, bits: bits[0],
        kernels=lambda capability: {},
        differs=None if bound is None else partial(_beyond, bound),
    )


def cases_in(paths: Sequence[Path]) -> dict[str, Case]:
    """The cases of some Python files by name; InputFileError for two of one name."""
    cases: dict[str, Case] = {}
    for path in paths:
        for case in _held(path):
            if case.name in cases:
                raise InputFileError(
                    f"{path} has a case {case.name!r}, and {cases[case.name].file} has one of that name\n"
                    "a case is chosen and replayed by its name\nrename one: Case.of(…, name=…)"
                )
            cases[case.name] = case
    return cases


def _held(path: Path) -> list[Case]:
    """The cases of a Python file, whose code is run; they have the names of their variables by default.

    InputFileError for a file without one, or one that cannot be read or run.
    """
    with open_input(path, "give a Python file that holds a Case") as file:
        text = file.read()
    module = ModuleType(f"cases of {path.stem}")  # no import has such a name
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look for the file's names
    sys.path.insert(0, str(path.resolve().parent))
    try:
        exec(compile(text, str(path), "exec"), vars(module))  # an import would take what it compiled before
    except SimwarpError:
        raise
    except Exception as error:
        raise InputFileError(f"{path} cannot be run: {_told(error, path)}\nmend it") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    held = {id(x): (name, x) for name, x in reversed(vars(module).items()) if isinstance(x, Case)}
    if not held:
        raise InputFileError(
            f"{path} holds no case\nassign one to a variable: my_case = Case.of(draw, reference, kernel)\n"
            "`simwarp new case` writes an example"
        )
    return [
        replace(x, name=x.name if x.named else name, named=True, file=str(path))
        for name, x in reversed(held.values())
    ]


def _drawn(draw: Callable[[Draw], Any], d: Draw) -> Any:
    try:
        return draw(d)
    except Exception as error:
        raise FormatError(f"draw raised for input {d.k}: {_told(error, draw)}\nmend it") from error


def _array_of(function: Callable[..., Any], role: str, output: str, item: Any, *device: Any) -> Any:
    """What one of the user's functions returns for an input, as an array of numbers."""
    try:
        answer = function(item, *device)
    except SimwarpError:
        raise
    except Exception as error:
        raise FormatError(
            f"{role} raised for {_described(item)}: {_told(error, function)}\nmend it"
        ) from error
    outputs = getattr(answer, "outputs", None)
    if outputs is not None:
        if output not in outputs:
            raise FormatError(
                f"{role} returned a result of run with the arrays {', '.join(outputs)}\n"
                "name the one to compare: Case.of(…, output=…)"
            )
        answer = outputs[output]
    array: npt.NDArray[Any] = np.asarray(answer)
    if array.dtype.kind not in "biuf":
        raise DtypeError(
            f"{role} returned {array.dtype} {array.shape}\nan array of numbers is compared\n"
            "return the array that the kernel writes"
        )
    return array.view(np.uint8) if array.dtype.kind == "b" else array


def _told(error: Exception, where: Any) -> str:
    """An exception in a line, with the line of the user's file, or of the function's, where it came about."""
    file = where if isinstance(where, Path) else getattr(getattr(where, "__code__", None), "co_filename", "")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(file)]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}{place}"


def _beyond(bound: Callable[[Any], Any], item: Any, expected: Any, got: Any) -> npt.NDArray[np.bool_]:
    """The elements that are further off than the bound; equal infinities and NaNs are not."""
    with np.errstate(invalid="ignore"):
        near = np.abs(expected.astype(np.float64) - got.astype(np.float64)) <= bound(item)
    same = (expected == got) | ((expected != expected) & (got != got))
    return np.asarray(~(near | same))


def _key(item: Any) -> tuple[int, ...]:
    """The numbers by which shapes of inputs are counted: sizes of arrays, and integers."""
    parts = _parts(item)
    if parts is not None:
        return tuple(n for x in parts.values() for n in _key(x))
    if isinstance(item, np.ndarray):
        return cast("npt.NDArray[Any]", item).shape
    return (int(cast("int", item)),) if isinstance(item, int | np.integer) else ()


def _described(item: Any) -> str:
    """An input in a few words: dtypes and shapes of arrays, and numbers."""
    parts = _parts(item)
    if parts is not None:
        return ", ".join(
            f"{name}: {_described(x)}" if isinstance(name, str) else _described(x)
            for name, x in parts.items()
        )
    if isinstance(item, np.ndarray):
        array = cast("npt.NDArray[Any]", item)
        return f"{array.dtype} {' x '.join(map(str, array.shape)) or 'number'}"
    return f"{item!r:.40}"


def _parts(item: Any) -> dict[Any, Any] | None:
    """The parts of a dict, list or tuple by their names; None for one thing."""
    if isinstance(item, dict):
        return cast("dict[Any, Any]", item)
    return dict(enumerate(cast("Sequence[Any]", item))) if isinstance(item, tuple | list) else None
