"""Which row of one trace answers which row of another.

With the same PTX, the n-th row of a warp answers the n-th. With other PTX of the same source, the n-th row of
a source line and kind answers the n-th one of that line and kind.

>>> line, kind = np.array([4, 5, 5, 6]), np.zeros(4, np.uint8)
>>> other = np.array([4, 5, 6, 6])
>>> first, second, rest, _ = align("source", (line, kind), (other, kind))
>>> first.tolist(), second.tolist(), rest  # the second visit of line 5 has no answer
([0, 1], [0, 1], 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.observe.trace.code import TracedInstruction
from simwarp.observe.trace.recording import Recording
from simwarp.observe.trace.rows import KINDS

By: TypeAlias = Literal["ptx", "source", "lane"]
Integers: TypeAlias = "npt.NDArray[np.int64]"
Keys: TypeAlias = "tuple[Integers, npt.NDArray[np.uint8]]"
"""The identities and kinds of rows."""

_BARRIER, _FAULT = KINDS.index("barrier"), KINDS.index("fault")
_WRITES_MEMORY = ("st", "red", "atom")


def identities(a: Recording, b: Recording, by: By) -> tuple[Integers, Integers]:
    """For each row of two recordings a number: the same for the same instruction, or source line.

    Two steps are the same instruction if their number in the kernel and their opcode are. Of source files the
    folder does not count, nor the name, if it is the only one that the other recording does not have.

    Where a source line became other instructions, only those that write memory count, by themselves: the
    others have the number -1.
    """
    known: dict[object, int] = {}
    if by != "source":
        keys = [[[(i, it.opcode) for i, it in enumerate(code)] for code in r.codes] for r in (a, b)]
    else:
        keys = _source_keys(a, b)
    return _numbers(a, by, keys[0], known), _numbers(b, by, keys[1], known)


def _numbers(
    recording: Recording, by: By, keys: Sequence[Sequence[object]], known: dict[object, int]
) -> Integers:
    def number(key: object) -> int:
        return -1 if key is None else known.setdefault(key, len(known))

    rows = recording.rows
    numbers = np.full(rows.size, number("barrier"), np.int64)
    steps = [np.array(list(map(number, code)), np.int64) for code in keys]
    texts = [text.partition(": ")[0] if by == "source" else text for text in recording.faults]
    faults = np.array([number(("fault", text)) for text in texts], np.int64)
    ends = np.searchsorted(rows["launch"], np.arange(len(recording.launches) + 1))
    for launch, first, end in zip(recording.launches, ends[:-1], ends[1:], strict=True):
        mine, kinds = rows[first:end], rows["kind"][first:end]
        executed, fault = (kinds != _BARRIER) & (kinds != _FAULT), kinds == _FAULT
        numbers[first:end][executed] = steps[launch.code][mine["step"][executed]]
        numbers[first:end][fault] = faults[mine["step"][fault]]
    return numbers


# ---- by source -----------------------------------------------------------------------------------


def _source_keys(a: Recording, b: Recording) -> list[list[list[object]]]:
    """For each instruction its source line; of a line that is other code, only of what writes memory."""
    renamed = _renamed(a, b)
    lines = [
        [[(names.get(_file(it), _file(it)), it.source_line) for it in code] for code in r.codes]
        for r, names in ((a, {}), (b, renamed))
    ]
    keys: list[list[list[object]]] = [[list(code) for code in some] for some in lines]
    for one, other in {(x.code, y.code) for x, y in zip(a.launches, b.launches, strict=False)}:
        opcodes = _opcodes(a.codes[one], lines[0][one]), _opcodes(b.codes[other], lines[1][other])
        edited = {line for line in opcodes[0].keys() & opcodes[1] if opcodes[0][line] != opcodes[1][line]}
        for code, its_lines, its_keys in (
            (a.codes[one], lines[0][one], keys[0][one]),
            (b.codes[other], lines[1][other], keys[1][other]),
        ):
            for i, line in enumerate(its_lines):
                if line in edited:
                    writes = code[i].opcode.partition(".")[0] in _WRITES_MEMORY
                    its_keys[i] = ("writes", line) if writes else None
    return keys


def _opcodes(
    code: Sequence[TracedInstruction], lines: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], list[str]]:
    """The instructions of each source line, in order."""
    found: dict[tuple[str, int], list[str]] = {}
    for it, line in zip(code, lines, strict=True):
        found.setdefault(line, []).append(it.opcode)
    return found


def _renamed(a: Recording, b: Recording) -> dict[str, str]:
    """The file of the second recording that has another name in the first one."""
    files = [{_file(it) for code in recording.codes for it in code if it.source_file} for recording in (a, b)]
    here, there = files[0] - files[1], files[1] - files[0]
    return {there.pop(): here.pop()} if len(here) == len(there) == 1 else {}


def _file(instruction: TracedInstruction) -> str:
    return instruction.source_file.rpartition("/")[2]


# ---- pairs ---------------------------------------------------------------------------------------


def align(by: By, a: Keys, b: Keys) -> tuple[Integers, Integers, int | None, int | None]:
    """The rows of one warp that answer each other, up to the first one of ``a`` without an answer.

    Parameters
    ----------
    by : str
    a, b : (identities, kinds)
        Of the warp's rows in each recording.

    Returns
    -------
    first, second : (n,) int
        Rows of ``a``, in order; and those of ``b``.
    rest, other_rest : int or None
        The first row of each that has no answer.
    """
    if by != "source":
        every = np.arange(min(a[0].size, b[0].size))
        rests = [every.size if keys[0].size > every.size else None for keys in (a, b)]
        return every, every, rests[0], rests[1]
    visits = [_visits(*keys) for keys in (a, b)]
    order = np.argsort(visits[1])
    known = np.append(visits[1][order], -1)
    at = np.searchsorted(known[:-1], visits[0])
    found = known[at] == visits[0]
    count = found.size if found.all() else int(found.argmin())
    unasked = np.ones(visits[1].size, np.bool_)
    unasked[order[at[found]]] = False
    left = int(unasked.argmax()) if unasked.any() else None
    return np.arange(count), order[at[:count]], count if count < found.size else None, left


def _visits(identity: Integers, kind: npt.NDArray[np.uint8]) -> Integers:
    """One number for the identity, the kind, and how often both came before."""
    keys = identity * len(KINDS) + kind
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    new = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: keys.size])
    before = np.arange(keys.size) - np.repeat(new, np.diff(np.append(new, keys.size)))
    visits = np.empty_like(keys)
    visits[order] = ordered << 32 | before
    return visits
