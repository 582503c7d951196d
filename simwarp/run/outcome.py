"""Results and faults as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from simwarp.faults import KernelFault, Place
from simwarp.run.arguments import Argument


@dataclass(frozen=True)
class Unwritten:
    """Elements of an array to be filled that the kernel left as they were.

    Attributes
    ----------
    array : str
        Its name.
    count, size : int
        How many elements were never written, of how many.
    first : tuple of int
        The index of the first one.

    Examples
    --------
    >>> print(Unwritten("y", 28, 128, (100,)))
    y: 28 of 128 elements were never written, the first is y[100]
    """

    array: str
    count: int
    size: int
    first: tuple[int, ...]

    def __str__(self) -> str:
        were = "was" if self.count == 1 else "were"
        first = f"{self.array}[{', '.join(map(str, self.first))}]" if self.first else self.array
        return (
            f"{self.array}: {self.count} of {self.size} elements {were} never written, the first is {first}"
        )


def find_unwritten(arguments: Sequence[Argument]) -> tuple[Unwritten, ...]:
    """Elements of `Out` arrays that the kernel never wrote; not known on hardware."""
    found: dict[int, Unwritten] = {}
    for argument in arguments:
        if argument.to_fill and hasattr(argument.value, "unwritten"):
            missing: npt.NDArray[np.bool_] = argument.value.unwritten()
            if missing.any():
                first = np.unravel_index(int(missing.argmax()), missing.shape)
                counts = int(np.count_nonzero(missing)), missing.size
                left = Unwritten(argument.name, *counts, tuple(int(i) for i in first))
                found.setdefault(argument.value.pointer, left)
    return tuple(found.values())


def fault_to_json(fault: KernelFault) -> dict[str, Any]:
    """A fault with all its fields; places become dictionaries."""
    more = {name: _plain(value) for name, value in vars(fault).items() if isinstance(value, _KEPT)}
    return {
        "class": type(fault).__name__,
        "check": fault.check,
        "count": fault.count,
        **more,
        "message": str(fault),
    }


_KEPT = (int, str, tuple, Place)


def _plain(value: Any) -> Any:
    if isinstance(value, Place):
        return asdict(value)
    return [_plain(item) for item in cast("tuple[Any]", value)] if isinstance(value, tuple) else value
