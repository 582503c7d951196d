"""Diagrams of bank conflicts: the shared-memory banks that each lane of a warp accesses."""

from __future__ import annotations

from collections.abc import Sequence

from reference.errors import ShapeError
from simwarp.draw.picture import Cell, Picture, boxes
from simwarp.draw.svg import drawn

BANKS, BANK_BYTES, LANES = 32, 4, 32


def banks(addresses: Sequence[int | None], width: int = 4, *, svg: bool = False) -> str:
    """Draw one access of a warp to shared memory: one row per wavefront, one column per bank.

    Parameters
    ----------
    addresses : sequence of 32 int or None
        The offset of each lane in shared memory, in bytes; None for a lane that does not take part.
    width : int
        Bytes per lane: 1, 2, 4, 8 or 16. Accesses of 8 and 16 bytes are drawn half by half and quarter by
        quarter; a load whose pairs of lanes ask for the same may take fewer wavefronts.
    svg : bool
        Return SVG, not text.

    Raises
    ------
    ShapeError
        If there are not 32 addresses, or one is not a multiple of the width.

    Examples
    --------
    Sixteen lanes, four words apart: eight banks, twice.

    >>> print(banks([16 * lane for lane in range(16)] + [None] * 16).partition("+")[0].splitlines()[0])
    2 wavefronts where 1 would do: lanes by bank
    """
    return drawn(banks_picture(addresses, width), svg)


def banks_picture(addresses: Sequence[int | None], width: int = 4) -> Picture:
    """The picture behind `banks`, as plain data."""
    _check(addresses, width)
    phases = max(width // BANK_BYTES, 1)
    used: list[tuple[int, dict[int, str]]] = []
    for phase in range(phases):
        lanes = range(phase * LANES // phases, (phase + 1) * LANES // phases)
        taking_part = {lane: at for lane in lanes if (at := addresses[lane]) is not None}
        used += [(phase, wavefront) for wavefront in _wavefronts(taking_part, width)]
    fewest = len({phase for phase, _ in used})
    few = f" where {fewest} would do" if len(used) > fewest else ""
    title = f"{len(used)} wavefront{'s' * (len(used) != 1)}{few}: lanes by bank"
    if not used:
        return Picture(title, ())

    def cell(row: int, bank: int) -> Cell:
        phase, wavefront = used[row]
        return (
            Cell(wavefront[bank], "plain" if phase % 2 else "tint")
            if bank in wavefront
            else Cell("", "padding")
        )

    grid = boxes(range(len(used)), range(BANKS), cell, corner="wavefront")
    shared = any("+" in label for _, wavefront in used for label in wavefront.values())
    return Picture(title, ((grid,),), ("7+2: lane 7 and two others, with the same word",) if shared else ())


def _check(addresses: Sequence[int | None], width: int) -> None:
    if len(addresses) != LANES:
        raise ShapeError(f"{len(addresses)} addresses\ngive one for each of {LANES} lanes, or None for it")
    if width not in (1, 2, 4, 8, 16):
        raise ShapeError(f"an access of {width} bytes per lane\nlanes access 1, 2, 4, 8 or 16 bytes")
    for lane, address in enumerate(addresses):
        if address is not None and (address < 0 or address % width):
            raise ShapeError(f"lane {lane} at offset {address}\ngive multiples of the width, {width}")


def _wavefronts(addresses: dict[int, int], width: int) -> list[dict[int, str]]:
    """The lane label of each bank, for each wavefront of a phase."""
    unit = max(width, BANK_BYTES)
    lanes_of: dict[int, list[int]] = {}
    for lane, address in addresses.items():
        lanes_of.setdefault(address // unit, []).append(lane)
    wavefronts: list[dict[int, str]] = []
    for element, lanes in lanes_of.items():
        first = element * unit // BANK_BYTES % BANKS
        if all(first in used for used in wavefronts):
            wavefronts.append({})
        free = next(used for used in wavefronts if first not in used)
        label = str(lanes[0]) + (f"+{len(lanes) - 1}" if len(lanes) > 1 else "")
        free |= dict.fromkeys(range(first, first + unit // BANK_BYTES), label)
    return wavefronts
