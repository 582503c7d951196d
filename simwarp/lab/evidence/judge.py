"""Comparison of a simulator's probe results with the hardware's.

Exact forms must agree in every bit, bounded forms within their row's bound. For forms with open results a
*strategy* selects the operand tuples to compare, or defines an invariant of every answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError
from simwarp.lab.evidence.bounds import measure, parse_bound
from simwarp.lab.evidence.operands import Column, Words
from simwarp.lab.evidence.probe import Probe
from simwarp.lanes import WARP_SIZE, mask_word
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.rows import Form, Row

Flags = npt.NDArray[np.bool_]


class Strategy(NamedTuple):
    """A comparison of devices' results where the PTX ISA leaves the result open.

    Attributes
    ----------
    rule : str
        The comparison, in words.
    compared : callable, optional
        (form, operands) → which operand tuples to compare.
    holds : callable, optional
        (operands, answer) → which operand tuples have an allowed answer. If given, the answers of two
        devices are not compared with each other.
    """

    rule: str
    compared: Callable[[Form, Words], Flags] | None = None
    holds: Callable[[Words, Words], Flags] | None = None


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing two devices' results for a form.

    Attributes
    ----------
    form : str
    sets, wrong : int
        The numbers of operand tuples compared, and of answers that are not allowed.
    largest_error : float or None
        For a bounded form, the largest error in the unit of its bound.
    example : str
        The first operand tuple with a wrong answer: operands, expected and actual answer.
    """

    form: str
    sets: int
    wrong: int = 0
    largest_error: float | None = None
    example: str = ""

    def __str__(self) -> str:
        if not self.wrong:
            return f"{self.form}: {self.sets} sets agree"
        return f"{self.form}: {self.wrong} of {self.sets} sets differ\n{self.example}"


def find(opcode: str) -> tuple[Row, Form]:
    """The row and form of an opcode; SchemeError if no row has it."""
    pair = TABLE.find(opcode)
    if pair is None:
        raise SchemeError(f"no row has the form {opcode!r}\nsimwarp coverage --forms lists all forms")
    return pair


def strategy(row: Row) -> Strategy | None:
    """The comparison strategy of a row with open results; None for a row that is compared exactly."""
    return STRATEGIES.get(row.base) if row.fidelity == "open" else None


def comparable(probe: Probe, operands: Words, answer: Words) -> Words:
    """A probe's results, with 0 for the operand tuples that are not compared."""
    row, form = find(probe.form)
    plan = strategy(row)
    if plan is None or plan.compared is None:
        return answer
    return np.where(plan.compared(form, operands)[:, None], answer, np.uint64(0))


def judge(probe: Probe, operands: Words, expected: Words, got: Words) -> Verdict:
    """Compare a simulator's results of a probe, ``got`` (tuples, results), with hardware's, ``expected``."""
    row, _ = find(probe.form)
    plan = strategy(row)
    if plan is not None and plan.holds is not None:
        allowed = plan.holds(operands, expected) & plan.holds(operands, got)
        return _verdict(probe, operands, expected, got, allowed)
    expected, got = comparable(probe, operands, expected), comparable(probe, operands, got)
    if row.fidelity != "bounded":
        return _verdict(probe, operands, expected, got, (expected == got).all(axis=1))
    (column,) = probe.results
    error, allowed = measure(parse_bound(row.bound), column.type, operands[:, 0], expected[:, 0], got[:, 0])
    return _verdict(probe, operands, expected, got, allowed, float(error.max()))


def _verdict(
    probe: Probe, operands: Words, expected: Words, got: Words, allowed: Flags, largest: float | None = None
) -> Verdict:
    if allowed.all():
        return Verdict(probe.form, len(got), 0, largest)
    first = int(np.argmin(allowed))
    given = _written(probe.operands, operands[first])
    differ = np.flatnonzero(expected[first] != got[first])[:4]
    shown = differ if differ.size else np.arange(min(4, len(probe.results)))
    columns = [probe.results[j] for j in shown]
    one, other = (_written(columns, words[first, shown]) for words in (expected, got))
    example = f"{given}: expected {one}, got {other}"
    return Verdict(probe.form, len(got), int((~allowed).sum()), largest, example)


def _written(columns: Sequence[Column], words: Words) -> str:
    return ", ".join(f"{c.name}={int(word):#x}" for c, word in zip(columns, words, strict=True))


# ---------------------------------------------------------------------------------- open results


def _divisor(form: Form, operands: Words) -> Flags:
    return operands[:, 1] != 0


def _base_of_5_bits(form: Form, operands: Words) -> Flags:
    return operands[:, 1] <= 31


def _amounts_of_8_bits(form: Form, operands: Words) -> Flags:
    narrow = re.search(r"64\b", form.opcode) is None
    return (operands[:, -2:].max(axis=1) <= 255) | narrow


def _valid_active_mask(operands: Words, answer: Words) -> Flags:
    """Whether each mask has the lane's own bit, and otherwise only bits of executing lanes."""
    active = operands[:, -1].astype(np.bool_)
    lane = (np.arange(len(operands)) % WARP_SIZE).astype(np.uint64)
    mask = answer[:, 0]
    own = mask >> lane & np.uint64(1) == 1
    team = np.repeat(mask_word(active.reshape(-1, WARP_SIZE)).astype(np.uint64), WARP_SIZE)
    return np.asarray(np.where(active, own & (mask & ~team == 0), mask == 0), np.bool_)


def _one_leader(operands: Words, answer: Words) -> Flags:
    """Whether a team's executing lanes name one member as leader, and only the leader's predicate is true."""
    active, members = operands[:, -1].astype(np.bool_), operands[:, 0]
    lane = (np.arange(len(operands)) % WARP_SIZE).astype(np.uint64)
    leader, chosen = answer[:, 0], answer[:, 1].astype(np.bool_)
    member = (leader < WARP_SIZE) & (members >> (leader % np.uint64(WARP_SIZE)) & np.uint64(1) == 1)
    alone = chosen == (leader == lane)
    return (member & alone & _same_in_team(members, active, leader)) | ~active


def _same_in_team(members: Words, active: Flags, values: Words) -> Flags:
    """Whether all executing lanes of a team have the same value."""
    m, a, v = (x.reshape(-1, WARP_SIZE) for x in (members, active, values))
    together = (m[:, :, None] == m[:, None, :]) & a[:, :, None] & a[:, None, :]
    other = together & (v[:, :, None] != v[:, None, :])
    return np.count_nonzero(other, axis=2).reshape(-1) == 0


STRATEGIES: dict[str, Strategy] = {
    **dict.fromkeys(
        ("div", "rem"),
        Strategy("sets that divide by zero are left out", _divisor),
    ),
    **dict.fromkeys(
        ("bfe", "bfi"),
        Strategy("in 64 bits, sets with a position or length past 255 are left out", _amounts_of_8_bits),
    ),
    "fns": Strategy("sets whose base is past 31 are left out", _base_of_5_bits),
    "activemask": Strategy("the mask names the own lane and only executing ones", holds=_valid_active_mask),
    "elect": Strategy("all members have one leader, which is one of them", holds=_one_leader),
}
"""By base opcode, the strategy of open rows; a row without one is compared like an exact one."""
