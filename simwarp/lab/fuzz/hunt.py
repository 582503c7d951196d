"""Search for programs on which two devices disagree or one fails, made small.

Examples
--------
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
from simwarp.lab.fuzz.program import CLASS, REGISTERS, Program
from simwarp.lab.fuzz.run import Answer, answers, digest
from simwarp.lab.fuzz.shrink import shrink
from simwarp.lab.fuzz.workers import Workers
from simwarp.lab.fuzz.writer import module_text
from simwarp.ptx.instructions import ROWS, TABLE

_SLOTS = RECORD // 8
_INSTRUCTION = re.compile(r"^\t(?:@!?%\w+ )?([a-z][\w.:]*)", re.MULTILINE)
_FEW, _MANY = 8, 512
"""Programs in a batch: for one process, and for many."""


@dataclass
class Witness:
    """A device that runs programs, or their mutants."""

    name: str
    device: Any
    change: Callable[[Program], Program] | None = None  # for instance `simwarp.lab.fuzz.mutate`
    workers: Workers | None = (
        None  # run the programs instead: a crash of the compiler does not end this process
    )
    silent: list[int] = field(default_factory=list[int])  # programs to which the workers had no answer

    def answer(self, program: Program) -> Answer:
        """Its answer to a program."""
        return next(answers(self.device, self._changed([program])))

    def digests(self, programs: Sequence[Program]) -> list[bytes | None]:
        """The digest of each answer; of a fault nothing; None if the workers had no answer."""
        changed = self._changed(programs)
        if self.workers is not None:
            return [found or None for found in self.workers.digests(changed)]
        return [digest(answer) for answer in answers(self.device, changed)]

    def _changed(self, programs: Sequence[Program]) -> list[Program]:
        return [self.change(program) if self.change else program for program in programs]


@dataclass(frozen=True)
class Difference:
    """A counterexample: a program on which two witnesses disagree or one fails."""

    number: int  # of the generated program
    program: Program  # it, or a smaller one on which they still differ
    names: tuple[str, str]
    words: tuple[Answer, Answer]

    @property
    def text(self) -> str:
        """The PTX."""
        return module_text([self.program])

    def lines(self) -> list[str]:
        """Where the words differ first: the thread, and what its registers or its memory hold."""
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
    """Run programs on two or more witnesses, and compare the others with the first. A fault is a difference.

    ``trials`` is how often a smaller program is tried, for each difference; 0 leaves it as it is.
    ``progress`` takes the number of programs done.
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
    """Whether two answers differ, or one is a fault."""
    return None not in (left, right) and (not right or left != right)


def _difference(standard: Witness, other: Witness, program: Program, trials: int) -> Difference:
    def differs(program: Program) -> bool:
        (left,), (right,) = standard.digests([program]), other.digests([program])
        return _disagree(left, right)

    small = shrink(program, differs, trials=trials)
    words = standard.answer(small), other.answer(small)
    return Difference(program.number, small, (standard.name, other.name), words)


def coverage(programs: Iterable[Program]) -> dict[str, int]:
    """How many instructions of each row there are in the programs' text; all rows, also those with none."""
    opcodes = _INSTRUCTION.findall("".join(module_text([program]) for program in programs))
    counts = Counter(row.name for row, _ in filter(None, map(TABLE.find, opcodes)))
    return {name: counts[name] for name in ROWS}


def _place(offset: int) -> str:
    """Whose memory lies at an offset."""
    if offset < own_at(0):
        return f"tally at byte {offset}"
    return f"memory of thread {(offset - own_at(0)) // OWN}, byte {(offset - own_at(0)) % OWN}"


def _value(register: str, word: Any) -> str:
    digits = {"b64": 16, "b32": 8, "b16": 4, "pred": 1}[CLASS[register]]
    return f"0x{int(word):0{digits}x}"
