"""A warp's steps as a table.

>>> from simwarp.observe.trace import Written
>>> values(Written("%r1", "s32", np.array([1, 2, 3, 4, 5], np.uint32)), 0b11111, ())
'%r1 = 1, 2, 3, …'
>>> values(Written("%r1", "s32", np.array([7, 7], np.uint32)), 0b101, ())
'%r1 = 7'
>>> values(Written("%r1", "s32", np.array([8, 9], np.uint32)), 0b101, (1, 2))
'%r1 = -, 9'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simwarp.observe.trace.values import short

if TYPE_CHECKING:
    from simwarp.observe.trace.record import Access, Record, Written
    from simwarp.observe.trace.recording import Recording

_ALL = 0xFFFFFFFF
_FEW = 3
_HEADINGS = ("step", "line", "source", "lanes", "instruction", "values")
_RIGHT = (True, True, False, False, False, False)


def table(
    recording: Recording, key: tuple[int, int, int], lanes: Sequence[int], lines: Sequence[str | int]
) -> str:
    """The table of one warp: its place, then a line for each record, and one for each access to memory.

    Parameters
    ----------
    recording : Recording
    key : (launch, block, warp)
    lanes : sequence of int
        Those whose values are shown; empty: the first few.
    lines : sequence of int and str
        Steps of other lines are left out; empty: none are.
    """
    launch, block, warp = key
    facts = recording.launches[launch]
    title = f"kernel {facts.kernel}, launch {launch}, block {recording.block_of(launch, block)}, warp {warp}"
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for record in recording.records(key):
        if not lines or any(map(record.instruction.stands_at, lines)) or record.kind == "fault":
            rows += _lines(record, lanes)
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
    written = ["  ".join(map(_padded, row, widths, _RIGHT)).rstrip() for row in rows]
    if lanes:
        title += f", values of lanes {', '.join(map(str, lanes))}"
    return "\n".join([title, *written])


def _padded(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def _lines(record: Record, lanes: Sequence[int]) -> Iterator[tuple[str, ...]]:
    it = record.instruction
    mask = "all" if record.mask == _ALL else f"{record.mask:08x}"
    if record.kind == "fault":
        yield "", "", "", mask, "fault: " + record.message.partition("\n")[0], ""
        return
    if record.kind == "barrier":
        yield "", "", "", mask, "passed a barrier", ""
        return
    shown = "; ".join(values(written, record.mask, lanes) for written in record.written)
    text = it.text + (" (did not end)" if record.kind == "stopped" else "")
    yield str(record.number), str(it.line), it.source, mask, text, shown
    for access in record.accesses:
        yield "", "", "", "", "", addresses(access, lanes)


def values(written: Written, mask: int, lanes: Sequence[int]) -> str:
    """The register and its values: one if all lanes agree, those of chosen lanes, or the first few."""
    words = [short(word, written.type) for word in written.words.tolist()]
    return f"{written.name} = {_chosen(words, written.words, mask, lanes)}"


def addresses(access: Access, lanes: Sequence[int]) -> str:
    """Where lanes read or wrote, in the same way."""
    verb = {"load": "reads", "store": "writes"}.get(access.kind, "updates")
    words = [f"{address:#x}" for address in access.addresses.tolist()]
    where = _chosen(words, access.addresses, access.mask, lanes)
    return f"{verb} {access.width} bytes of {access.space} memory at {where}"


def _chosen(words: list[str], bits: npt.NDArray[np.generic], mask: int, lanes: Sequence[int]) -> str:
    if lanes:
        held = dict(zip((lane for lane in range(32) if mask >> lane & 1), words, strict=True))
        return ", ".join(held.get(lane, "-") for lane in lanes)
    if (bits == bits[:1]).all():
        return words[0] if words else ""
    return ", ".join(words[:_FEW]) + (", …" if len(words) > _FEW else "")
