"""Looking for programs on which two witnesses differ, or that one does not bear; these are made small."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from reference.errors import SimwarpError
from simwarp.ptx.instructions import ROWS, TABLE
from simwarp.testing.fuzz.memory import OWN, RECORD, own_at
from simwarp.testing.fuzz.program import CLASS, REGISTERS, Program
from simwarp.testing.fuzz.run import Answer, answers, told
from simwarp.testing.fuzz.shrink import shrink
from simwarp.testing.fuzz.text import module_text
from simwarp.testing.fuzz.workers import Workers

_SLOTS = RECORD // 8
_INSTRUCTION = re.compile(r"^\t(?:@!?%\w+ )?([a-z][\w.:]*)", re.MULTILINE)


def as_it_is(program: Program) -> Program:
    """The program itself.

    Examples
    --------
    >>> as_it_is(Program(0, 0, ())) == Program(0, 0, ())
    True
    """
    return program


@dataclass
class Witness:
    """A device, and what is done to a program before it runs there.

    Attributes
    ----------
    name : str
    device : gpu.device.Device
    change : callable
        (program) → program; for instance `simwarp.testing.fuzz.mutate`.
    workers : Workers, optional
        Who runs the programs instead, so that a crash of the compiler is not ours.
    silent : list of int
        The programs to which the workers had no answer.
    """

    name: str
    device: Any
    change: Callable[[Program], Program] = as_it_is
    workers: Workers | None = None
    silent: list[int] = field(default_factory=list[int])

    def answer(self, program: Program) -> Answer:
        """What it says about a program."""
        return next(answers(self.device, [self.change(program)]))

    def digests(self, programs: Sequence[Program]) -> list[bytes]:
        """The digest of what it says about each program; nothing of a fault."""
        changed = [self.change(program) for program in programs]
        if self.workers is not None:
            return self.workers.digests(changed)
        return [told(answer) for answer in answers(self.device, changed)]

    def is_silent(self, digest: bytes) -> bool:
        """Whether a digest says that the workers had no answer; without workers it would be a fault."""
        return self.workers is not None and not digest


@dataclass(frozen=True)
class Difference:
    """A program on which two witnesses differ.

    Attributes
    ----------
    number : int
        Of the generated program.
    program : Program
        It, or a smaller one that still differs.
    names : (str, str)
        The witnesses.
    words : (Answer, Answer)
        What they said.
    """

    number: int
    program: Program
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
            return [
                f"{name}: {word if isinstance(word, SimwarpError) else 'no fault'}"
                for name, word in zip(self.names, self.words, strict=True)
            ]
        if np.array_equal(left, right):
            return ["they agreed when asked again"]
        at = int(np.flatnonzero(left != right)[0])
        threads = self.program.blocks * self.program.block
        place = _place(at, threads)
        if at < threads * _SLOTS:
            thread = at // _SLOTS
            slot = {r: thread * _SLOTS + REGISTERS.index(r) for r in self.program.outputs}
            registers = [r for r in slot if left[slot[r]] != right[slot[r]]]
            lines = [f"{place}: {', '.join(registers)} differ{'s' * (len(registers) == 1)}"]
            for name, words in zip(self.names, (left, right), strict=True):
                values = [f"{r} = {_value(r, words[slot[r]])}" for r in registers]
                lines.append(f"{name}: {', '.join(values)}")
            return lines
        values = [f"{n}: {int(w[at]):#018x}" for n, w in zip(self.names, (left, right), strict=True)]
        return [f"{place} differs", *values]


def hunt(
    witnesses: Sequence[Witness],
    programs: Iterable[Program],
    *,
    trials: int = 600,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[Difference]:
    """Ask the witnesses about programs, and hold the others against the first. A fault is a difference too.

    Parameters
    ----------
    witnesses : sequence of Witness
        At least two.
    programs : iterable of Program
    trials : int
        How often a smaller program is tried, for each difference; 0 leaves it as it is.
    progress : callable
        (programs done).

    Examples
    --------
    >>> from simwarp import Device
    >>> from simwarp.testing.fuzz import generate
    >>> from simwarp.testing.fuzz.mutate import mutate
    >>> two = [Witness("simulator", Device()), Witness("mutants", Device(chunk_lanes=32), mutate)]
    >>> list(hunt(two, [generate(0, k) for k in range(3)]))
    []
    """
    standard, *others = witnesses
    left, done = iter(programs), 0
    at_once = _MANY if any(witness.workers for witness in witnesses) else _FEW
    while batch := list(islice(left, at_once)):
        said = [witness.digests(batch) for witness in witnesses]
        for i, program in enumerate(batch):
            for witness, digests in zip(witnesses, said, strict=True):
                if witness.is_silent(digests[i]):
                    witness.silent.append(program.number)
            for other, theirs in zip(others, said[1:], strict=True):
                if _differ(standard, other, said[0][i], theirs[i]):
                    yield _difference(standard, other, program, trials)
        done += len(batch)
        progress(done)


_FEW, _MANY = 8, 512
"""Programs that are asked about together: by one process, and by many."""


def _differ(standard: Witness, other: Witness, left: bytes, right: bytes) -> bool:
    """Whether two digests tell of a difference, or of a fault."""
    if standard.is_silent(left) or other.is_silent(right):
        return False
    return not right or left != right


def _difference(standard: Witness, other: Witness, program: Program, trials: int) -> Difference:
    def differs(program: Program) -> bool:
        (left,), (right,) = standard.digests([program]), other.digests([program])
        return _differ(standard, other, left, right)

    small = shrink(program, differs, trials=trials)
    words = standard.answer(small), other.answer(small)
    return Difference(program.number, small, (standard.name, other.name), words)


def coverage(programs: Sequence[Program]) -> dict[str, int]:
    """How many instructions of each row there are in the programs' text; all rows, also those with none.

    Examples
    --------
    >>> coverage([Program(0, 0, ())])["ret"]
    1
    """
    counts = dict.fromkeys(ROWS, 0)
    for program in programs:
        for opcode in _INSTRUCTION.findall(module_text([program])):
            found = TABLE.find(opcode)
            if found is not None:
                counts[found[0].name] += 1
    return counts


def _place(at: int, threads: int) -> str:
    """What a word of an answer belongs to."""
    if at < threads * _SLOTS:
        return f"thread {at // _SLOTS}"
    offset = 8 * (at - threads * _SLOTS)
    if offset < own_at(0):
        return f"tally at byte {offset}"
    return f"memory of thread {(offset - own_at(0)) // OWN}, byte {(offset - own_at(0)) % OWN}"


def _value(register: str, word: Any) -> str:
    digits = {"b64": 16, "b32": 8, "b16": 4, "pred": 1}[CLASS[register]]
    return f"0x{int(word):0{digits}x}"
