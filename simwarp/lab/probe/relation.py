"""The registers that a product multiplies and adds, and the operand maps that follow from them.

A relation determines the maps up to a common permutation of rows, columns and k. So the map of an operand
follows from the maps of the *other* operands in `simwarp.fragments`. If changing the map of one operand alone
explains the relation, that operand is reported; if changing either of two would (rows, columns or k permuted
throughout), both are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from simwarp.fragments import Element, Fragments, Layout
from simwarp.lab.probe.finding import (
    Difference,
    Finding,
    compare,
    describe,
    digest,
    expected_numbers,
    first_copies,
)
from simwarp.lab.probe.passes import NOWHERE, Numbers, holders

Layouts: TypeAlias = dict[str, Layout]
Maps: TypeAlias = dict[str, Numbers]
"""By operand name, the number of the element in each slot: (lanes, registers, slots)."""


@dataclass(frozen=True)
class Relation:
    """For each element of D of a matrix instruction, the registers of the A, B and C that it depends on.

    A holder is the number of a slot: (lane · registers + register) · slots + slot. ``met``, int32 (holders of
    A, holders of D), has for an element of A and one of D the holder of the element of B that is multiplied
    with A's and added to D's, or `NOWHERE`; ``added``, int32 (holders of D,), the holder of the element of C
    that is added to D's.
    """

    met: Numbers
    added: Numbers


def judge(relation: Relation, fragments: Fragments) -> Finding:
    """Compare a relation with `simwarp.fragments`; report the operands whose maps differ."""
    operands = fragments.operands
    layouts = {name: operands[name].layout for name in "dabc"}
    wanted = {name: first_copies(layout) for name, layout in layouts.items()}
    found = blamed_maps(relation, wanted, layouts)
    compared = {name: compare(operands[name], found[name], wanted[name]) for name in layouts}
    # if A and B agree, the remaining difference is reported for D
    if all(operand.agreed for operand in compared.values()):
        difference = _first_wrong_term(relation, implied(wanted, layouts), layouts)
        compared["d"] = replace(compared["d"], difference=difference)
    return Finding(fragments.opcode, tuple(compared.values()), digest(relation.met, relation.added))


def implied(maps: Maps, layouts: Layouts) -> Relation:
    """The relation that follows from maps; for an element with several holders, any of them."""
    a, d = (_elements(maps[name], layouts[name]) for name in "ad")
    held_b, held_c = (_holders(maps[name], layouts[name]) for name in "bc")
    row, k, matrix = a.row[:, None], a.column[:, None], a.matrix[:, None]
    one = (row == d.row) & (matrix == d.matrix) & (row >= 0)
    b = layouts["b"]
    partner = np.where(one, (matrix * b.rows + k) * b.columns + d.column, NOWHERE)
    return Relation(held_b[partner], held_c[maps["d"].ravel()])


def blamed_maps(relation: Relation, wanted: Maps, layouts: Layouts) -> Maps:
    """Maps that explain a relation, and differ from the wanted ones in as few operands as possible."""
    found = found_maps(relation, layouts)
    alone = [
        name
        for name in "dab"
        if np.array_equal(implied({**wanted, name: found[name]}, layouts).met, relation.met)
    ]
    maps = {**wanted, **{name: found[name] for name in alone or "dab"}}
    return {**maps, "c": _named(layouts["c"], relation.added, *_elements(maps["d"], layouts["d"]))}


def found_maps(relation: Relation, layouts: Layouts) -> Maps:
    """The maps of D, A and B: each by majority over its products, given the expected maps of the others."""
    element = {name: _elements(expected_numbers(layouts[name]), layouts[name]) for name in "dab"}
    a, d = np.nonzero(relation.met >= 0)
    b = relation.met[a, d]
    of_a, of_b, of_d = (
        Element(*(part[at] for part in element[x])) for x, at in (("a", a), ("b", b), ("d", d))
    )
    return {
        "d": _named(layouts["d"], d, of_a.row, of_b.column, of_a.matrix),
        "a": _named(layouts["a"], a, of_d.row, of_b.row, of_d.matrix),
        "b": _named(layouts["b"], b, of_a.column, of_d.column, of_d.matrix),
    }


def _named(layout: Layout, holder: Any, row: Any, column: Any, matrix: Any) -> Numbers:
    """An operand's map, by majority over the candidate elements of each holder."""
    known = (holder >= 0) & (row >= 0) & (column >= 0)
    row, column, matrix = (
        _majority(holder[known], values[known], holders(layout)) for values in (row, column, matrix)
    )
    number = np.where(row < 0, NOWHERE, (matrix * layout.rows + row) * layout.columns + column)
    return number.astype(np.int32).reshape(layout.lanes, layout.registers, layout.slots)


def _elements(numbers: Numbers, layout: Layout) -> Element:
    """The rows, columns and matrices of numbered elements, flat; -1 for slots without an element."""
    number, shape = numbers.ravel(), (layout.matrices, layout.rows, layout.columns)
    matrix, row, column = np.unravel_index(np.maximum(number, 0), shape)
    return Element(*(np.where(number < 0, NOWHERE, part) for part in (row, column, matrix)))


def _holders(numbers: Numbers, layout: Layout) -> Numbers:
    """Element number → a register slot that holds it; the last entry, `NOWHERE`, serves index -1."""
    held = np.full(layout.matrices * layout.rows * layout.columns + 1, NOWHERE, np.int32)
    flat = numbers.ravel()
    held[flat[flat >= 0]] = np.flatnonzero(flat >= 0)
    return held


def _majority(group: Any, value: Any, groups: int) -> Any:
    """The median value of each group, which equals a majority value; `NOWHERE` for an empty group."""
    order = np.lexsort((value, group))
    sizes = np.bincount(group, minlength=groups)
    middle = np.cumsum(sizes) - sizes + sizes // 2
    taken = value[order[np.minimum(middle, max(len(order) - 1, 0))]] if len(order) else np.zeros(groups, int)
    return np.where(sizes > 0, taken, NOWHERE)


def _first_wrong_term(relation: Relation, wanted: Relation, layouts: Layouts) -> Difference | None:
    """The first wrong product or addend of a relation whose maps are all as expected."""
    products = np.argwhere(relation.met != wanted.met)
    sums = np.flatnonzero(relation.added != wanted.added)
    if products.size:
        a, d = (int(i) for i in products[0])
        found, expected = (_term("b", r.met[a, d], layouts) for r in (relation, wanted))
        place = f" times {_term('a', a, layouts)}"
    elif sums.size:
        d = int(sums[0])
        found, expected = (_term("c", r.added[d], layouts) for r in (relation, wanted))
        place = " added"
    else:
        return None
    layout = layouts["d"]
    lane, rest = divmod(d, layout.registers * layout.slots)
    register, slot = divmod(rest, layout.slots)
    return Difference("d", lane, register, slot * layout.bits, found + place, expected + place)


def _term(name: str, holder: int, layouts: Layouts) -> str:
    """The operand and element that a holder has, in words."""
    if holder < 0:
        return describe(int(holder), layouts[name])
    number = int(expected_numbers(layouts[name]).ravel()[holder])
    return f"{name.upper()}'s {describe(number, layouts[name])}"
