"""Comparison of a run's outputs with the arrays of ``--expect``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference.errors import SchemeError, ShapeError
from simwarp.cli.files import read_array
from simwarp.cli.run_both import compared, to_json
from simwarp.cli.run_outcome import Outcome
from simwarp.cli.run_words import Word
from simwarp.faults import KernelFault
from simwarp.findings import Finding
from simwarp.run.tolerance import FloatOperations, Tolerance, errors

if TYPE_CHECKING:
    import numpy.typing as npt
    from rich.console import Console

    from simwarp.device.device import Device
    from simwarp.run.both.devices import Second
    from simwarp.run.both.results import Compared
    from simwarp.run.both.settings import Both, NotComparedError


@dataclass(frozen=True)
class Expected:
    """The expected array of an output, from the file of ``--expect``, and its tolerances.

    Floats may differ by ``atol + rtol * |expected|``, None for `Tolerance.of`'s; integers may not.
    """

    name: str  # of the output
    file: Path
    array: npt.NDArray[Any]
    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The differences of an output from the expected array."""

    array: str  # name of the output
    file: str  # that it was compared with
    count: int  # elements that differ, of ``size``
    size: int
    first: tuple[int, ...] = ()  # index of the first element that differs; () if none does
    got: Any = None  # the first element that differs; None if none does
    expected: Any = None
    error: Any = 0  # the largest absolute error of all elements, exact for integers
    worst: tuple[int, ...] = ()  # index of that error
    tolerance: Tolerance | None = None  # None for integers

    def __str__(self) -> str:
        if not self.count:
            error = (
                f"; the largest error is {self.error:.3g}, within {self.tolerance}"
                if self.error
                else " exactly"
            )
            return f"{self.array} is as expected by {self.file}{error}"
        allowed = "" if self.tolerance is None else f"\nfloats may differ by {self.tolerance}"
        differ = "differs" if self.count == 1 else "differ"
        return (
            f"{self.array}: {self.count} of {self.size} elements {differ} from {self.file}, "
            f"the first is {self._place(self.first)}\n"
            f"expected {self.expected}, got {self.got}; the largest error is {self.error:.6g}, "
            f"at {self._place(self.worst)}{allowed}"
        )

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data; NaN, infinities and complex numbers, which JSON lacks, as text."""
        data = asdict(self)
        for name in ("got", "expected", "error"):
            if isinstance(data[name], complex) or (
                isinstance(data[name], float) and not isfinite(data[name])
            ):
                data[name] = str(data[name])
        return data

    @property
    def finding(self) -> Finding:
        """The comparison as a finding, for the reports."""
        what, _, values = str(self).partition("\n")
        return Finding(
            what,
            "UnexpectedOutput",
            "expected",
            element=self._place(self.first),
            values=values,
            fields={"array": self.array, "file": self.file, "elements": self.count, "size": self.size},
        )

    def _place(self, index: tuple[int, ...]) -> str:
        return f"{self.array}[{', '.join(map(str, index))}]" if index else self.array


def compare(
    got: npt.NDArray[Any], expected: Expected, operations: Mapping[str, int] | None = None
) -> Comparison:
    """Compare an output with the expected array; a NaN equals a NaN.

    ``operations`` are those of floats in the run, by type, see `Tolerance.of`.

    >>> import numpy as np
    >>> print(compare(np.array([1.0, 2.5]), Expected("y", Path("r.npy"), np.array([1.0, 2.0]), 1e-5, 0.0)))
    y: 1 of 2 elements differs from r.npy, the first is y[1]
    expected 2.0, got 2.5; the largest error is 0.5, at y[1]
    floats may differ by 1e-05 of each element
    """
    import numpy as np

    want = expected.array
    are_whole = {got.dtype.kind, want.dtype.kind} <= set("iub")
    tolerance = None if are_whole else Tolerance.of(got, want, operations, expected.rtol, expected.atol)
    wrong, off = errors(got, want, tolerance)
    count = int(np.count_nonzero(wrong))
    found = Comparison(expected.name, str(expected.file), count, got.size, tolerance=tolerance)
    if not got.size:
        return found
    at, worst = int(wrong.argmax()), int(off.argmax())
    error = off.flat[worst]
    found = replace(found, error=error if isinstance(error, int) else float(error))
    if not count:
        return found
    values = {"got": got.flat[at].item(), "expected": want.flat[at].item()}
    return replace(found, first=_index(at, got), worst=_index(worst, got), **values)


def read_expected(
    texts: Sequence[str], words: Mapping[str, Word], rtol: float | None, atol: float | None
) -> list[Expected]:
    """The arrays of ``--expect NAME=FILE.npy``, checked against the outputs before the kernel runs."""
    found: list[Expected] = []
    outputs = {name: word for name, word in words.items() if word.written}
    for text in texts:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            raise SchemeError(f"--expect {text}: not NAME=FILE.npy\ngive for example --expect c=ref.npy")
        if name not in outputs:
            raise SchemeError(
                f"--expect {text}: no output array is called {name}\n"
                f"there are {', '.join(outputs) or 'none'}\n"
                "name an argument that is out:, zeros: or :inout"
            )
        array, shape = read_array(Path(file)), tuple(outputs[name].value.shape)
        if array.dtype.kind not in "iubfc":
            raise SchemeError(
                f"--expect {text}: elements of {array.dtype}\n"
                "integers, floats and complex numbers are compared\ngive an array of numbers"
            )
        if array.shape != shape:
            raise ShapeError(
                f"--expect {text}: the shapes differ\n"
                f"{name} has {_shape(shape)}, {file} has {_shape(array.shape)}\n"
                "give an array of the output's shape"
            )
        found.append(Expected(name, Path(file), array, rtol, atol))
    return found


@dataclass
class ComparedOutcome(Outcome):
    """An outcome whose output arrays are compared with expected ones."""

    expected: Sequence[Expected] = field(default_factory=list[Expected])
    counted: FloatOperations | None = None  # None on hardware
    both: Compared | None = None  # with a GPU, if that was asked for
    refused: NotComparedError | None = None  # why the devices were not compared

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The comparison of each expected array; none if a fault stopped the launch."""
        operations = None if self.counted is None else self.counted.numbers
        arrays = self.arrays
        return [compare(arrays[one.name], one, operations) for one in self.expected if arrays]

    def hold(
        self,
        both: Both,
        chip: Second,
        simulator: Callable[..., Device],
        console: Console,
        words: Sequence[str],
    ) -> None:
        """Hold the result against that of a GPU, unless the simulator has findings."""
        from simwarp.ptx.mangled_names import readable
        from simwarp.run.both.settings import NotComparedError

        errors = [fault for fault in self.faults if fault.severity == "error"]
        if self.result is None or (errors and not both.anyway):
            self.refused = NotComparedError.of(errors, readable(self.work.kernel.name))
            return
        try:
            self.both = compared(self.work, self.result, both, chip, simulator, self.counted, console, words)
        except NotComparedError as error:
            self.refused = error
        except KernelFault as fault:
            self.fault = fault

    @property
    def clean(self) -> bool:
        """True if there are only notes, and the comparison that was asked for was made."""
        return super().clean and self.refused is None

    @property
    def findings(self) -> list[Finding]:
        """The findings of the run, and the outputs that differ from the expected ones or from a GPU's."""
        different = None if self.both is None else self.both.finding
        expected = [one.finding for one in self.comparisons if one.count]
        return [*super().findings, *expected, *([different] if different is not None else [])]

    def show(self, console: Console) -> None:
        """Print the comparisons on the console, then all else."""
        for found in self.comparisons:
            console.print(str(found))
        super().show(console)
        if self.refused is not None:
            console.print(str(self.refused))
        if self.both is not None:
            console.print(f"held against {self.both.other}:\n{self.both}")

    def _data(self) -> dict[str, Any]:
        """The JSON object of the run, with the comparison of the two devices."""
        return {**super()._data(), "both": to_json(self.both, self.refused)}

    def _described(self, name: str) -> dict[str, Any]:
        """The JSON object of an output array, with its comparison."""
        found = [one.to_json() for one in self.comparisons if one.array == name]
        return {**super()._described(name), **({"expected": found} if found else {})}


def _index(at: int, array: npt.NDArray[Any]) -> tuple[int, ...]:
    import numpy as np

    return tuple(int(i) for i in np.unravel_index(at, array.shape))


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "no dimensions"
