"""Elements that a kernel did not write, and faults as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simwarp.faults import KernelFault, Note, Place
from simwarp.messages import STYLES, Line, message
from simwarp.run.arguments import Argument

if TYPE_CHECKING:
    from rich.text import Text


@dataclass(frozen=True)
class Unwritten:
    """The elements of an `Out` array that the kernel did not write.

    Attributes
    ----------
    array : str
        The name of the array.
    count, size : int
        The number of elements that were not written, and of all elements.
    first : tuple of int
        The index of the first unwritten element.

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
    """Find the elements of `Out` arrays that the kernel did not write; none on hardware."""
    found: dict[int, Unwritten] = {}
    for argument in arguments:
        value = argument.value
        if argument.to_fill and hasattr(value, "unwritten"):
            count, least = 0, None
            in_blocks = hasattr(value, "unwritten_blocks")  # which an image has not
            blocks = value.unwritten_blocks() if in_blocks else [(0, value.unwritten().reshape(-1))]
            for start, missing in blocks:
                if missing.any():
                    count += int(np.count_nonzero(missing))
                    least = start + int(missing.argmax()) if least is None else least
            if least is not None:
                first = tuple(map(int, np.unravel_index(least, value.shape)))
                left = Unwritten(argument.name, count, math.prod(value.shape), first)
                found.setdefault(value.pointer, left)
    return tuple(found.values())


def fault_text(fault: KernelFault, paths: Mapping[str, str] = MappingProxyType({})) -> Text:
    """A fault's message and count for a console of `rich`; ``paths`` are those to show for file names."""
    from rich.text import Text

    times: list[Line] = [[(f"  {fault.count} times", "quiet")]] if fault.count > 1 else []
    lines = [
        Text.assemble(*((text, STYLES.get(style, "")) for text, style in line))
        for line in (*message(fault, paths), *times)
    ]
    return Text("\n").join(lines)


def fault_to_json(fault: KernelFault) -> dict[str, Any]:
    """Convert a fault with all its fields to plain data."""
    more = {name: _plain(value) for name, value in vars(fault).items() if isinstance(value, _KEPT)}
    return {
        "class": type(fault).__name__,
        "check": fault.check,
        "severity": fault.severity,
        "count": fault.count,
        "element": fault.element,
        "notes": [],
        **more,
        "message": str(fault),
    }


_KEPT = (int, str, tuple, Place)
"""The types of fields of a fault that plain data can hold."""


def _plain(value: Any) -> Any:
    """Convert places and notes to dictionaries, and tuples to lists."""
    if isinstance(value, Place | Note):
        return asdict(value)
    return [_plain(item) for item in cast("tuple[Any]", value)] if isinstance(value, tuple) else value
