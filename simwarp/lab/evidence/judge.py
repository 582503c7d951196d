"""Whether a simulator's answer is one that hardware's allows.

Exact forms must agree in every bit; bounded ones within the bound that their row states; of open ones
a *strategy* says which sets are compared, or what must hold of any answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError
from simwarp.lab.evidence.bounds import measure, parse_bound
from simwarp.lab.evidence.operands import Words
from simwarp.lab.evidence.probe import Probe
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.rows import Form, Row

Sets = npt.NDArray[np.bool_]


class Strategy(NamedTuple):
    """How answers of a form whose result the PTX ISA leaves open are compared.

    Attributes
    ----------
    says : str
        What is compared, in words.
    compared : callable, optional
        (form, operands) → which sets; all others are left out.
    holds : callable, optional
        (operands, answer) → for which sets an answer is allowed, on any device. Then answers are not
        compared with each other at all.
    """

    says: str
    compared: Callable[[Form, Words], Sets] | None = None
    holds: Callable[[Words, Words], Sets] | None = None


@dataclass(frozen=True)
class Verdict:
    """What a comparison found.

    Attributes
    ----------
    form : str
    sets : int
        How many were compared.
    wrong : int
        How many answers are not allowed.
    largest_error : float or None
        Of a bounded form, in the unit of its bound.
    example : str
        The first wrong set: operands, expected and given answer.
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


def found(opcode: str) -> tuple[Row, Form]:
    """The row and form of an opcode.

    Raises
    ------
    SchemeError
        If there is none.

    Examples
    --------
    >>> row, form = found("shfl.sync.bfly.b32")
    >>> row.name, form.modifiers
    ('shfl.sync.b32', ('bfly',))
    """
    pair = TABLE.find(opcode)
    if pair is None:
        raise SchemeError(f"no row has the form {opcode!r}\nsimwarp coverage --forms lists all forms")
    return pair


def strategy(row: Row) -> Strategy | None:
    """How an open row's answers are compared; None: like exact ones.

    Examples
    --------
    >>> from simwarp.ptx.instructions import ROWS
    >>> strategy(ROWS["div"]).says
    'sets that divide by zero are left out'
    """
    return STRATEGIES.get(row.base) if row.fidelity == "open" else None


def comparable(probe: Probe, operands: Words, answer: Words) -> Words:
    """An answer with zeros in the sets that are not compared.

    Examples
    --------
    >>> from simwarp.lab.evidence.catalogue import probe_of
    >>> operands, answer = np.array([[7, 0], [7, 1]], np.uint64), np.array([[9], [7]], np.uint64)
    >>> comparable(probe_of("div.u32"), operands, answer)
    array([[0],
           [7]], dtype=uint64)
    """
    row, form = found(probe.form)
    plan = strategy(row)
    if plan is None or plan.compared is None:
        return answer
    return np.where(plan.compared(form, operands)[:, None], answer, np.uint64(0))


def judge(probe: Probe, operands: Words, expected: Words, got: Words) -> Verdict:
    """Compare what a simulator says with what hardware said.

    Parameters
    ----------
    probe : Probe
    operands : uint64 (sets, operands)
    expected : uint64 (sets, results)
        The hardware's.
    got : uint64 (sets, results)

    Examples
    --------
    >>> from simwarp.lab.evidence.catalogue import probe_of
    >>> print(judge(probe_of("popc.b32"), np.array([[7]], np.uint64), *np.array([[[3]], [[2]]], np.uint64)))
    popc.b32: 1 of 1 sets differ
    a=0x7: expected d=0x3, got d=0x2
    """
    row, _ = found(probe.form)
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
    probe: Probe, operands: Words, expected: Words, got: Words, allowed: Sets, largest: float | None = None
) -> Verdict:
    if allowed.all():
        return Verdict(probe.form, len(got), 0, largest)
    first = int(np.argmin(allowed))
    given = ", ".join(
        f"{c.name}={int(word):#x}" for c, word in zip(probe.operands, operands[first], strict=True)
    )
    wrong = [j for j in range(len(probe.results)) if expected[first, j] != got[first, j]][:4]
    wrong = wrong or list(range(min(4, len(probe.results))))
    names = [probe.results[j].name for j in wrong]
    one, other = (
        ", ".join(f"{name}={int(words[first, j]):#x}" for name, j in zip(names, wrong, strict=True))
        for words in (expected, got)
    )
    example = f"{given}: expected {one}, got {other}"
    return Verdict(probe.form, len(got), int((~allowed).sum()), largest, example)


# ---------------------------------------------------------------------------------- what is left open


def _divisor(form: Form, operands: Words) -> Sets:
    return operands[:, 1] != 0


def _amounts_of_8_bits(form: Form, operands: Words) -> Sets:
    if not re.search(r"64\b", form.opcode):
        return np.ones(len(operands), np.bool_)
    return operands[:, -2:].max(axis=1) <= 255


def _base_of_5_bits(form: Form, operands: Words) -> Sets:
    return operands[:, 1] <= 31


def _team_with_itself(operands: Words, answer: Words) -> Sets:
    """``active`` is the last operand: a mask names the own lane, and only lanes that execute."""
    active = operands[:, -1].astype(np.bool_)
    lane = np.arange(len(operands)) % WARP_SIZE
    team = _words_of(active)
    mask = answer[:, 0]
    own = mask >> lane.astype(np.uint64) & np.uint64(1) == 1
    legal: Sets = np.asarray(own & (mask & ~team == 0))
    legal[~active] = mask[~active] == 0
    return legal


def _one_leader(operands: Words, answer: Words) -> Sets:
    """All executing members are told the same leader, one of them, who alone is told that it is one."""
    active, members = operands[:, -1].astype(np.bool_), operands[:, 0]
    lane = (np.arange(len(operands)) % WARP_SIZE).astype(np.uint64)
    leader, chosen = answer[:, 0], answer[:, 1].astype(np.bool_)
    member = (leader < WARP_SIZE) & (members >> (leader % np.uint64(WARP_SIZE)) & np.uint64(1) == 1)
    alone = chosen == (leader == lane)
    told: Sets = np.asarray(member & alone & _same_in_team(members, active, leader))
    told[~active] = True
    return told


def _same_in_team(members: Words, active: Sets, values: Words) -> Sets:
    """Whether each executing lane's value is that of its team's other lanes."""
    m, a, v = (x.reshape(-1, WARP_SIZE) for x in (members, active, values))
    together = (m[:, :, None] == m[:, None, :]) & a[:, :, None] & a[:, None, :]
    other = together & (v[:, :, None] != v[:, None, :])
    return np.count_nonzero(other, axis=2).reshape(-1) == 0


def _words_of(flags: Sets) -> Words:
    """For each lane the word of its warp's flags."""
    bits = np.uint64(1) << np.arange(WARP_SIZE, dtype=np.uint64)
    words = (flags.reshape(-1, WARP_SIZE) * bits).sum(axis=1, dtype=np.uint64)
    return np.repeat(words, WARP_SIZE)


STRATEGIES: dict[str, Strategy] = {
    **dict.fromkeys(("div", "rem"), Strategy("sets that divide by zero are left out", _divisor)),
    **dict.fromkeys(
        ("bfe", "bfi"),
        Strategy("in 64 bits, sets with a position or length past 255 are left out", _amounts_of_8_bits),
    ),
    "fns": Strategy("sets whose base is past 31 are left out", _base_of_5_bits),
    "activemask": Strategy("the mask names the own lane and only executing ones", holds=_team_with_itself),
    "elect": Strategy("all members are told one leader, which is one of them", holds=_one_leader),
}
"""By base opcode; an open row without one is compared like an exact one, in cells that no thread shares."""
