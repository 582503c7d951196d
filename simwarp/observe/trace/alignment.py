"""Alignment of the rows of two traces.

With equal PTX, the n-th rows of a warp match. With different PTX of the same source, the n-th rows of the
same source line and kind match.

>>> first, second, rest, _ = align("source", np.array([4, 5, 5, 6]), np.array([4, 5, 6, 6]))
>>> first.tolist(), second.tolist(), rest  # the second visit of line 5 has no match
([0, 1], [0, 1], 2)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Literal, TypeAlias

import numpy as np

from simwarp.observe.trace.model import KINDS, Integers, Recording, TracedInstruction
from simwarp.ptx.instructions import TABLE

By: TypeAlias = Literal["ptx", "source", "lane"]
_Keys: TypeAlias = "Sequence[Sequence[object]]"
"""A key for each instruction of each kernel; None for an instruction that is not compared."""

_BARRIER, _FAULT = KINDS.index("barrier"), KINDS.index("fault")


def identities(a: Recording, b: Recording, by: By) -> tuple[Integers, Integers]:
    """For each row of two recordings, a number that is equal for rows of the same kind and code location.

    Equal instructions have the same index in their kernel and the same opcode. Source files are compared
    without folders; a single renamed file counts as the same. Where a source line compiled to different
    instructions, its writes to memory have numbers of their own, and its other instructions negative
    numbers.
    """
    known: dict[object, int] = {}
    if by == "source":
        keys = _source_keys(a, b)
    else:
        keys = [[[(i, it.opcode) for i, it in enumerate(code)] for code in r.codes] for r in (a, b)]
    return _numbers(a, by, keys[0], known), _numbers(b, by, keys[1], known)


def _numbers(recording: Recording, by: By, keys: _Keys, known: dict[object, int]) -> Integers:
    def number(key: object) -> int:
        return -1 if key is None else known.setdefault(key, len(known))

    rows = recording.rows
    numbers = np.full(rows.size, number("barrier"), np.int64)
    steps = [np.array(list(map(number, code)), np.int64) for code in keys]
    texts = [text.partition(": ")[0] if by == "source" else text for text in recording.faults]
    faults = np.array([number(("fault", text)) for text in texts], np.int64)
    for launch, place in zip(recording.launches, recording.by_launch(), strict=True):
        mine, kinds = rows["step"][place], rows["kind"][place]
        executed, fault = (kinds != _BARRIER) & (kinds != _FAULT), kinds == _FAULT
        numbers[place][executed] = steps[launch.code][mine[executed]]
        numbers[place][fault] = faults[mine[fault]]
    return numbers * len(KINDS) + rows["kind"]


def _source_keys(a: Recording, b: Recording) -> list[list[list[object]]]:
    """The source line of each instruction; on an edited line ("writes", line) for a write, else None."""
    renamed = _renamed(a, b)

    def line(it: TracedInstruction) -> tuple[str, int]:
        return renamed.get(it.file, it.file), it.source_line

    def opcodes(code: Sequence[TracedInstruction]) -> dict[object, list[str]]:
        found: dict[object, list[str]] = defaultdict(list)
        for it in code:
            found[line(it)].append(it.opcode)
        return found

    edited: list[dict[int, set[object]]] = [defaultdict(set), defaultdict(set)]
    for i, k in {(x.code, y.code) for x, y in zip(a.launches, b.launches, strict=False)}:
        one, other = opcodes(a.codes[i]), opcodes(b.codes[k])
        differ = {at for at in one.keys() & other if one[at] != other[at]}
        edited[0][i] |= differ
        edited[1][k] |= differ

    def key(it: TracedInstruction, lines: set[object]) -> object:
        if line(it) not in lines:
            return line(it)
        return ("writes", line(it)) if _writes_memory(it.opcode) else None

    return [
        [[key(it, lines[i]) for it in code] for i, code in enumerate(r.codes)]
        for r, lines in zip((a, b), edited, strict=True)
    ]


def _writes_memory(opcode: str) -> bool:
    found = TABLE.find(opcode)
    return found is not None and found[0].kind.access and found[0].kind.writes


def _renamed(a: Recording, b: Recording) -> dict[str, str]:
    """Files that the second recording renamed: their names there → their names in the first one."""
    files = [{it.file for code in r.codes for it in code if it.source_file} for r in (a, b)]
    here, there = files[0] - files[1], files[1] - files[0]
    return {there.pop(): here.pop()} if len(here) == len(there) == 1 else {}


def align(by: By, a: Integers, b: Integers) -> tuple[Integers, Integers, int | None, int | None]:
    """Match the rows of one warp by identity, up to the first unmatched row of ``a``.

    Returns the indices of the matched rows of ``a`` and ``b``, then the first unmatched index of each, or
    None.
    """
    if by != "source":
        every = np.arange(min(a.size, b.size))
        rest, other_rest = (every.size if rows.size > every.size else None for rows in (a, b))
        return every, every, rest, other_rest
    _, first, second = np.intersect1d(_visits(a), _visits(b), assume_unique=True, return_indices=True)
    rests = [
        next(iter(np.setdiff1d(np.arange(rows.size), matched, assume_unique=True).tolist()), None)
        for rows, matched in ((a, first), (b, second))
    ]
    order = np.argsort(first)[: rests[0]]
    return first[order], second[order], rests[0], rests[1]


def _visits(rows: Integers) -> Integers:
    """For each row, its identity combined with the number of its earlier occurrences."""
    counts: defaultdict[int, Iterator[int]] = defaultdict(count)
    return np.array([identity << 32 | next(counts[identity]) for identity in rows.tolist()], np.int64)
