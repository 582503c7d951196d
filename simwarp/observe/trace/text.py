"""Text tables of a warp's records, and register bits as numbers.

>>> with_bits(0x3F800000, "f32"), with_bits(7, "u16"), with_bits(1, "pred")
('0x3f800000 (1.0)', '0x0007 (7)', 'true')
>>> with_bits(0x3F800000, "b32")
'0x3f800000 (1065353216; as f32 1.0)'
>>> short(3, "s32"), short(3, "b32"), short(1 << 46, "u64"), short(0x3C00_C000, "f16x2")
('3', '0x00000003', '0x0000400000000000', '-2.0, 1.0')
>>> print(table("nothing", [], (), ()))
nothing
step  line  source  lanes  instruction  values
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simwarp.lanes import ALL_LANES, WARP_SIZE
from simwarp.ptx.rows import DTYPES

if TYPE_CHECKING:
    from simwarp.observe.trace.model import Record

_PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}
_FEW = 3
"""The number of lanes whose values are shown by default."""
_HEADINGS = ("step", "line", "source", "lanes", "instruction", "values")
_VERBS = {"load": "reads", "store": "writes", "atomic": "updates", "reduction": "updates"}


def table(title: str, records: Iterable[Record], lanes: Sequence[int], lines: Sequence[str | int]) -> str:
    """A text table of records: the title, one line for each record, and one for each memory access.

    It shows the values of ``lanes``, of the first three if there are none, and only steps of ``lines``, of
    all if there are none.
    """
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for record in records:
        if not lines or any(map(record.instruction.stands_at, lines)) or record.kind == "fault":
            rows += _rows(record, lanes)
    if lanes:
        title += f", values of lanes {', '.join(map(str, lanes))}"
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(">><<<<", widths, strict=True))
    return "\n".join([title, *(form.format(*row).rstrip() for row in rows)])


def _rows(record: Record, lanes: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the text table for a record: the step, then one row per memory access."""
    it = record.instruction
    mask = "all" if record.mask == ALL_LANES else f"{record.mask:08x}"
    if record.kind in ("fault", "barrier"):
        fault = "fault: " + record.message.partition("\n")[0]
        yield "", "", "", mask, fault if record.kind == "fault" else "passed a barrier", ""
        return
    written = [
        f"{w.name} = {_in_lanes([short(word, w.type) for word in w.words.tolist()], record.mask, lanes)}"
        for w in record.written
    ]
    text = it.text + (" (did not end)" if record.kind == "stopped" else "")
    yield str(record.number), str(it.line), it.source, mask, text, "; ".join(written)
    for access in record.accesses:
        where = _in_lanes([f"{address:#x}" for address in access.addresses.tolist()], access.mask, lanes)
        what = f"{_VERBS[access.kind]} {access.width} bytes of {access.space} memory"
        yield "", "", "", "", "", f"{what} at {where}"


def _in_lanes(texts: Sequence[str], mask: int, lanes: Sequence[int]) -> str:
    """The values in ``lanes``; by default one value if all are equal, else the first three."""
    if lanes:
        held = dict(zip((lane for lane in range(WARP_SIZE) if mask >> lane & 1), texts, strict=True))
        return ", ".join(held.get(lane, "-") for lane in lanes)
    if len(set(texts)) <= 1:
        return texts[0] if texts else ""
    return ", ".join(texts[:_FEW]) + (", …" if len(texts) > _FEW else "")


def with_bits(bits: int, kind: str) -> str:
    """The bits of a value in hex and as a number; an untyped word also as a float."""
    number = _number(bits, kind)
    if kind in ("b32", "b64"):
        number += f"; as f{kind[1:]} {_number(bits, f'f{kind[1:]}')}"
    return number if kind == "pred" else f"{in_hex(bits, kind)} ({number})"


def short(bits: int, kind: str) -> str:
    """The value as a number; in hex for untyped words and for 64-bit integers that may be addresses."""
    number = _number(bits, kind)
    is_large = DTYPES[kind].kind in "iu" and kind[1:] == "64" and abs(int(number)) >= 1 << 32
    return in_hex(bits, kind) if is_large or kind in ("b8", "b16", "b32", "b64") else number


def in_hex(bits: int, kind: str) -> str:
    """The bits of a value in hex, zero-padded to the width of its type."""
    return f"0x{bits:0{2 * DTYPES[kind].itemsize}x}"


def _number(bits: int, kind: str) -> str:
    if kind in _PAIRS:  # the low half of the word comes first
        return f"{_number(bits & 0xFFFF, _PAIRS[kind])}, {_number(bits >> 16, _PAIRS[kind])}"
    if kind == "bf16":
        return str(float(_number(bits << 16, "f32")))
    dtype = DTYPES[kind].newbyteorder("<")
    return str(np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype)[0]).lower()
