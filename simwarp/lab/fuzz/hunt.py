"""Searches for programs on which two devices disagree or one fails, and shrinks them.

>>> from simwarp import Device
>>> from simwarp.lab.fuzz import generate, mutate
>>> two = [Witness("simulator", Device()), Witness("mutants", Device(chunk_lanes=32), mutate)]
>>> list(hunt(two, [generate(0, k) for k in range(3)]))
[]
>>> coverage([Program(0, 0, ())])["ret"]
1
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from reference.errors import SimwarpError
from simwarp.lab.fuzz.memory import OWN, RECORD, own_at
from simwarp.lab.fuzz.program import Program
from simwarp.lab.fuzz.registers import CLASS, REGISTERS
from simwarp.lab.fuzz.run import Answer, answers, outputs
from simwarp.lab.fuzz.shrink import shrink
from simwarp.lab.fuzz.workers import Workers
from simwarp.lab.fuzz.writer import module_text
from simwarp.ptx.instructions import ROWS, TABLE

_SLOTS = RECORD // 8
_INSTRUCTION = re.compile(r"^\t(?:@!?%\w+ )?([a-z][\w.:]*)", re.MULTILINE)
_FEW, _MANY = 8, 512
"""The number of programs in a batch: without worker processes, and with them."""


@dataclass
class Witness:
    """A named device that runs programs or mutants of them."""

    name: str
    device: Any
    # a function that changes each program, such as `simwarp.lab.fuzz.mutate`
    change: Callable[[Program], Program] | None = None
    # processes that run the programs, so that a compiler crash does not end this one
    workers: Workers | None = None
    silent: list[int] = field(default_factory=list[int])  # programs without an answer from the workers

    def answer(self, program: Program) -> Answer:
        """The outputs of the device, after it runs a program."""
        return next(answers(self.device, self._changed([program])))

    def digests(self, programs: Sequence[Program]) -> list[bytes | None]:
        """The digest of each program's result: empty for a fault, None if the workers returned none."""
        changed = self._changed(programs)
        if self.workers is not None:
            return [found or None for found in self.workers.digests(changed)]
        return list(outputs(self.device, changed))

    def _changed(self, programs: Sequence[Program]) -> list[Program]:
        return [self.change(program) if self.change else program for program in programs]


@dataclass(frozen=True)
class Difference:
    """A counterexample: a program on which two devices disagree or one fails."""

    number: int  # number of the generated program, before shrinking
    program: Program  # the generated program or a smaller one
    names: tuple[str, str]
    words: tuple[Answer, Answer]

    @property
    def text(self) -> str:
        """The PTX of the program that shows the difference."""
        return module_text([self.program])

    def lines(self) -> list[str]:
        """Describe the first difference: the thread, and the values of its registers or memory."""
        left, right = self.words
        if isinstance(left, SimwarpError) or isinstance(right, SimwarpError):
            values = [word if isinstance(word, SimwarpError) else "no fault" for word in self.words]
            return [f"{name}: {value}" for name, value in zip(self.names, values, strict=True)]
        if np.array_equal(left, right):
            return ["they agreed when asked again"]
        at = int(np.flatnonzero(left != right)[0])
        thread, threads = at // _SLOTS, self.program.threads
        if thread < threads:
            slots = {r: thread * _SLOTS + REGISTERS.index(r) for r in self.program.outputs}
            slots = {r: slot for r, slot in slots.items() if left[slot] != right[slot]}
            head = f"thread {thread}: {', '.join(slots)} differ{'s' * (len(slots) == 1)}"
            values = [
                ", ".join(f"{r} = {_value(r, words[slot])}" for r, slot in slots.items())
                for words in (left, right)
            ]
        else:
            head = f"{_place(8 * (at - threads * _SLOTS))} differs"
            values = [f"{int(words[at]):#018x}" for words in (left, right)]
        return [head, *(f"{name}: {value}" for name, value in zip(self.names, values, strict=True))]


def hunt(
    witnesses: Sequence[Witness],
    programs: Iterable[Program],
    *,
    trials: int = 600,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[Difference]:
    """Run programs on two or more devices, and compare each with the first; a fault is a difference.

    ``trials`` limits the smaller programs that are tried for each difference; 0 disables shrinking.
    ``progress`` is called with the number of finished programs.
    """
    standard, *others = witnesses
    left, done = iter(programs), 0
    at_once = _MANY if any(witness.workers for witness in witnesses) else _FEW
    while batch := list(islice(left, at_once)):
        found = [witness.digests(batch) for witness in witnesses]
        for i, program in enumerate(batch):
            for witness, digests in zip(witnesses, found, strict=True):
                if digests[i] is None:
                    witness.silent.append(program.number)
            for other, theirs in zip(others, found[1:], strict=True):
                if _disagree(found[0][i], theirs[i]):
                    yield _difference(standard, other, program, trials)
        done += len(batch)
        progress(done)


def _disagree(left: bytes | None, right: bytes | None) -> bool:
    """True if two digests differ, or one is of a fault; an unknown digest equals any."""
    return None not in (left, right) and (not right or left != right)


def _difference(standard: Witness, other: Witness, program: Program, trials: int) -> Difference:
    def differs(program: Program) -> bool:
        (left,), (right,) = standard.digests([program]), other.digests([program])
        return _disagree(left, right)

    small = shrink(program, differs, trials=trials)
    words = standard.answer(small), other.answer(small)
    return Difference(program.number, small, (standard.name, other.name), words)


def coverage(programs: Iterable[Program]) -> dict[str, int]:
    """Row name → the number of its instructions in the programs, also 0."""
    opcodes = _INSTRUCTION.findall("".join(module_text([program]) for program in programs))
    counts = Counter(row.name for row, _ in filter(None, map(TABLE.find, opcodes)))
    return {name: counts[name] for name in ROWS}


def _place(offset: int) -> str:
    """Name the data at an offset of the output: a tally, or the memory of a thread."""
    if offset < own_at(0):
        return f"tally at byte {offset}"
    return f"memory of thread {(offset - own_at(0)) // OWN}, byte {(offset - own_at(0)) % OWN}"


def _value(register: str, word: Any) -> str:
    digits = {"b64": 16, "b32": 8, "b16": 4, "pred": 1}[CLASS[register]]
    return f"0x{int(word):0{digits}x}"
