"""Elements that a kernel did not write, and findings for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reference.values import shortened
from simwarp.findings import Finding
from simwarp.messages import STYLES, Line
from simwarp.run.arguments import Argument

if TYPE_CHECKING:
    from rich.text import Text


@shortened
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

    @property
    def finding(self) -> Finding:
        """The unwritten elements of an output as a finding, for the reports."""
        return Finding(
            str(self),
            type(self).__name__,
            "unwritten",
            element=f"{self.array}[{', '.join(map(str, self.first))}]" if self.first else self.array,
            advice="let the kernel write all of them, or give --partial",
            fields={"array": self.array, "size": self.size, "elements": self.count},
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


def styled(lines: Iterable[Line]) -> Text:
    """Lines of (text, style) pieces, such as those of a finding, as a `rich` text."""
    from rich.text import Text

    pieces = (((text, STYLES.get(style, "")) for text, style in line) for line in lines)
    return Text("\n").join(Text.assemble(*line) for line in pieces)
