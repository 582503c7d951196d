"""The bit tensor core's fragment maps, found by the experiments of section 4 of BTC (TPDS 2020).

The load (4.1): the lane of each 32-bit word of the tiles of A and B. The store (4.2): the lane and register
of the elements E0 … E63 of D, for a row-major and a column-major tile. The computation (4.3): the words of A
and B that are multiplied into each element of D. All are of ``m8n8k128``, the only shape of 1-bit ``wmma``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.fragments import fragments_of
from simwarp.lab.probe.finding import Finding
from simwarp.lab.probe.passes import NOWHERE, Numbers
from simwarp.lab.probe.probing import BMMA, probe
from simwarp.lab.probe.products import measure
from simwarp.lab.probe.relation import Relation

Lanes = npt.NDArray[np.int64]
_LOAD_A, _LOAD_B, _LOAD_ROWS, _LOAD_COLUMNS, _STORE_ROWS, _STORE_COLUMNS, _XOR, _AND = BMMA
_WORD, _WORDS, _SIDE, _K = 32, 4, 8, 128


@dataclass(frozen=True)
class BmmaMaps:
    """The fragment maps of ``m8n8k128``; -1 where the probe found no map of the expected kind.

    ``a`` and ``b``, (8, 4), are the lane that holds word w of row i of A, or of column i of B. ``c`` and
    ``d``, (8, 8, 2), have for "row" and "col" the lane and register of element (i, j), as `wmma.load.c` loads
    it from a tile of that layout, and `wmma.store.d` stores it. ``factors``, (8, 8, 4, 2), have for "xor" and
    "and" the lanes of the words of A and B that are multiplied bit by bit into element (i, j) of D, for the
    four words of A's row in the order of k.
    """

    a: Lanes
    b: Lanes
    c: dict[str, Lanes]
    d: dict[str, Lanes]
    factors: dict[str, Lanes]

    def to_json(self) -> dict[str, Any]:
        """The maps as nested lists, for JSON."""
        tables = {"c": self.c, "d": self.d, "factors": self.factors}
        lists = {name: {key: x.tolist() for key, x in maps.items()} for name, maps in tables.items()}
        return {"a": self.a.tolist(), "b": self.b.tolist(), **lists}


def bmma_maps(device: Any) -> BmmaMaps:
    """Probe the 1-bit ``wmma`` instructions; NotExecutedError if the device lacks them."""

    def found(row: str, col: str) -> dict[str, Lanes]:
        return {"row": _holders_of(probe(row, device)), "col": _holders_of(probe(col, device))}

    c, d = found(_LOAD_ROWS, _LOAD_COLUMNS), found(_STORE_ROWS, _STORE_COLUMNS)
    a = _words_of(probe(_LOAD_A, device), along_rows=True)
    b = _words_of(probe(_LOAD_B, device), along_rows=False)
    met = {name: measure(device, fragments_of(form)) for name, form in (("xor", _XOR), ("and", _AND))}
    return BmmaMaps(a, b, c, d, {name: _factors(relation, a, d["row"]) for name, relation in met.items()})


def bmma_text(maps: BmmaMaps) -> str:
    """The maps as text, in the order of the paper's section 4."""
    lines = ["Load (4.1): the lane that holds each 32-bit word; bit 0 is its first element"]
    lines += _load_table(maps)
    for layout, order in (("row", "rows"), ("col", "columns")):
        same = np.array_equal(maps.c[layout], maps.d[layout])
        load = "as wmma.load.c fills them" if same else "wmma.load.c fills others"
        lines += ["", f"Store (4.2): lane.register of E0 to E63, a tile in {order} ({load})"]
        lines += _accumulator_table(maps, layout)
    same = np.array_equal(maps.factors["xor"], maps.factors["and"])
    names = "xor and and alike" if same else "xor; and differs"
    held = "lane.register of D's elements, and the lanes that hold the words of A's"
    lines += ["", f"Computation (4.3): {held}"]
    lines += [f"row (left) and of B's column (above); bit b meets bit b ({names})", *_factor_table(maps)]
    return "\n".join(lines)


def _words_of(finding: Finding, *, along_rows: bool) -> Lanes:
    """The lane of each 32-bit word of each row (or column), if a register holds the word's bits in order."""
    (operand,) = finding.operands
    lanes = np.full((_SIDE, _WORDS), NOWHERE, np.int64)
    for lane, elements in enumerate(operand.found[:, 0]):
        side, k = divmod(elements, _K) if along_rows else divmod(elements, _SIDE)[::-1]
        in_order = (k == k[0] + np.arange(_WORD)).all() and (side == side[0]).all()
        if in_order and elements[0] >= 0 and k[0] % _WORD == 0:
            lanes[side[0], k[0] // _WORD] = lane
    return lanes


def _holders_of(finding: Finding) -> Lanes:
    """The lane and register of each element of an accumulator."""
    (operand,) = finding.operands
    held = np.full((_SIDE * _SIDE, 2), NOWHERE, np.int64)
    lane, register, _ = np.nonzero(operand.found >= 0)
    held[operand.found[lane, register, 0]] = np.stack([lane, register], axis=1)
    return held.reshape(_SIDE, _SIDE, 2)


def _factors(relation: Relation, a: Lanes, d: Lanes) -> Lanes:
    """The lanes whose words of A and B are multiplied: (rows, columns, words of A's row, 2)."""
    met = relation.met.reshape(32, _WORD, 64)  # (lane of A, bit of A, holder of D)
    pairs = np.full((_SIDE, _SIDE, _WORDS, 2), NOWHERE, np.int64)
    for i, j in np.ndindex(_SIDE, _SIDE):
        holder = d[i, j, 0] * 2 + d[i, j, 1]
        for word, lane in enumerate(a[i]):
            partner: Numbers = met[lane, :, holder]
            together = (partner == partner[0] + np.arange(_WORD)).all() and partner[0] % _WORD == 0
            if partner[0] >= 0 and together:
                pairs[i, j, word] = lane, partner[0] // _WORD
    return pairs


def _load_table(maps: BmmaMaps) -> list[str]:
    head = "".join(f"{word:>4}" for word in range(_WORDS))
    lines = [f"{'A, word':<10}{head}     {'B, word':<10}{head}"]
    for i in range(_SIDE):
        a, b = ("".join(f"{_name(lane):>4}" for lane in lanes[i]) for lanes in (maps.a, maps.b))
        lines.append(f"{f'row {i}':<10}{a}     {f'column {i}':<10}{b}")
    return lines


def _accumulator_table(maps: BmmaMaps, layout: str) -> list[str]:
    """Lines with the holders of E0 … E63, in the order of memory."""
    held = maps.d[layout] if layout == "row" else maps.d[layout].swapaxes(0, 1)
    cells = [f"E{i} {_held(lane, register)}" for i, (lane, register) in enumerate(held.reshape(-1, 2))]
    rows = (cells[i : i + _SIDE] for i in range(0, len(cells), _SIDE))
    return ["".join(f"{cell:<12}" for cell in row).rstrip() for row in rows]


def _factor_table(maps: BmmaMaps) -> list[str]:
    factors = maps.factors["xor"]
    above = [_lane_list(factors[0, j, :, 1]) for j in range(_SIDE)]
    lines = [" " * 14 + "".join(f"{lanes:<13}" for lanes in above).rstrip()]
    for i in range(_SIDE):
        cells = "".join(f"{_cell(maps, factors, i, j):<13}" for j in range(_SIDE))
        lines.append(f"{_lane_list(factors[i, 0, :, 0]):<14}{cells}".rstrip())
    return lines


def _cell(maps: BmmaMaps, factors: Lanes, i: int, j: int) -> str:
    """The lane and register of element (i, j) of D; "others" if that is not row i times column j."""
    shared = np.stack([factors[i, 0, :, 0], factors[0, j, :, 1]], axis=1)
    return _held(*maps.d["row"][i, j]) if np.array_equal(factors[i, j], shared) else "others"


def _held(lane: Any, register: Any) -> str:
    return f"{_name(lane)}.R{_name(register)}"


def _lane_list(lanes: Any) -> str:
    return " ".join(_name(lane) for lane in lanes)


def _name(number: Any) -> str:
    return "?" if number < 0 else str(number)
