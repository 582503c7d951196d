"""What a trace takes in: which launches, blocks, warps, lanes and lines, and what of them.

>>> chosen = selection(blocks=[(1, 0, 0), 5], lanes=range(4))
>>> chosen.numbers((2, 4, 1)).tolist(), hex(chosen.lane_mask())
([1, 5], '0xf')
>>> selection(lanes=[32])
Traceback (most recent call last):
...
simwarp.observe.trace.selection.TraceError: Trace(lanes=…): there is no lane 32
give 0 to 31
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from reference.errors import SimwarpError
from simwarp.lanes import WARP_SIZE
from simwarp.observe.trace.code import TracedInstruction

Block: TypeAlias = "int | tuple[int, int, int]"

_MOST_WARPS = 32


class TraceError(SimwarpError, ValueError):
    """A trace that cannot be made, read or compared as asked."""


@dataclass(frozen=True)
class Selection:
    """What a trace takes in; None is everything. `selection` makes one of any lists."""

    blocks: tuple[Block, ...] | None = None
    warps: tuple[int, ...] | None = None
    lanes: tuple[int, ...] | None = None
    kernels: tuple[str, ...] | None = None
    lines: tuple[str | int, ...] | None = None
    registers: bool = True
    memory: bool = True

    def numbers(self, grid: tuple[int, int, int]) -> npt.NDArray[np.int64]:
        """The chosen blocks, numbered through a grid."""
        return np.array([block_number(block, grid) for block in self.blocks or ()], np.int64)

    def lane_mask(self) -> int:
        """The chosen lanes as a mask."""
        return sum(1 << lane for lane in (range(WARP_SIZE) if self.lanes is None else self.lanes))

    def takes_kernel(self, name: str) -> bool:
        """Whether a kernel is chosen: by its name, or by a part of the mangled one."""
        return self.kernels is None or any(part in name for part in self.kernels)

    def takes(self, instruction: TracedInstruction) -> bool:
        """Whether an instruction stands on a chosen line."""
        return self.lines is None or any(map(instruction.stands_at, self.lines))

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return json.loads(json.dumps(asdict(self)))


def selection(
    *,
    blocks: Iterable[Block] | None = None,
    warps: Iterable[int] | None = None,
    lanes: Iterable[int] | None = None,
    kernels: Iterable[str] | None = None,
    lines: Iterable[str | int] | None = None,
    registers: bool = True,
    memory: bool = True,
) -> Selection:
    """A selection of what is listed, each once.

    Raises
    ------
    TraceError
        For a block, warp or lane that cannot be, and one thing where a list belongs.
    """
    listed = {"blocks": blocks, "warps": warps, "lanes": lanes, "kernels": kernels, "lines": lines}
    for name, given in listed.items():
        if isinstance(given, str | int):
            raise TraceError(f"Trace({name}={given!r}): a list is needed\ngive {name}=[{given!r}]")
    chosen: dict[str, Any] = {name: _each_once(given) for name, given in listed.items()}
    for block in chosen["blocks"] or ():
        if not isinstance(block, int) and len(block) != 3:
            raise TraceError(f"Trace(blocks=…): {block} is no block\ngive its number, or its place (x, y, z)")
    for name, most in (("lanes", WARP_SIZE), ("warps", _MOST_WARPS)):
        for number in chosen[name] or ():
            if not 0 <= number < most:
                raise TraceError(f"Trace({name}=…): there is no {name[:-1]} {number}\ngive 0 to {most - 1}")
    return Selection(**chosen, registers=registers, memory=memory)


def block_number(block: Block, grid: tuple[int, int, int]) -> int:
    """The number of a block in its grid, x fastest; -1 if it is none. A number stays what it is.

    Examples
    --------
    >>> block_number((1, 2, 0), (4, 3, 1)), block_number(7, (4, 3, 1)), block_number((4, 0, 0), (4, 3, 1))
    (9, 7, -1)
    """
    if not isinstance(block, tuple):
        return int(block)
    inside = all(0 <= at < size for at, size in zip(block, grid, strict=True))
    return block[0] + grid[0] * (block[1] + grid[1] * block[2]) if inside else -1


def block_index(number: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """The place of a block in its grid, (x, y, z).

    Examples
    --------
    >>> block_index(9, (4, 3, 1))
    (1, 2, 0)
    """
    return number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])


def _each_once(given: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return None if given is None else tuple(dict.fromkeys(map(_plain, given)))


def _plain(one: Any) -> Any:
    """A name as it is, else plain integers: NumPy's are no JSON."""
    if isinstance(one, str):
        return one
    return tuple(map(int, cast("Sequence[Any]", one))) if isinstance(one, Sequence) else int(one)
