"""Runs programs on a device: inputs, launch, and outputs.

>>> from simwarp import Device
>>> from simwarp.lab.fuzz import generate
>>> words, memory, numbers = inputs(Program(0, 0, (), blocks=2, block=32))
>>> words.shape, memory.size, numbers.nbytes
((64, 18), 512, 32)
>>> program = generate(0, 1)
>>> (answer,) = answers(Device(), [program])
>>> outputs(Device(chunk_lanes=32), [program]) == [digest(answer)]
True
>>> (again,) = text_answers(Device(), module_text([program]), [program])
>>> bool((again == answer).all())
True
>>> digest(np.zeros(1, np.uint64)).hex(), digest(SimwarpError("a fault"))
('af5570f5a1810b7af78caf4bc70a660f', b'')
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import SimwarpError
from simwarp.lab.fuzz.memory import OWN, RECORD, own_at
from simwarp.lab.fuzz.program import Program
from simwarp.lab.fuzz.writer import module_text
from simwarp.verify.draw import Draw

Answer: TypeAlias = "npt.NDArray[np.uint64] | SimwarpError"
"""The words that a program left in memory, or the error that stopped it."""

AT_ONCE = 64
"""The number of programs in one module on hardware, where loading a module compiles all its kernels."""
_EDGES: npt.NDArray[np.uint64] = np.array(
    [
        *(0, 1, 2, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1),
        *(0x3F800000, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3FF << 52, 0x7FF << 52),
    ],
    np.uint64,
)


def inputs(program: Program) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], np.void]:
    """A program's inputs (threads, registers), initial memory (words,), and first parameter."""
    # Edge values, small numbers, any words; in every other program lanes share values, for match and vote.
    draw = Draw(program.seed, "fuzz inputs", program.number)
    threads, registers = program.threads, RECORD // 8
    raw = draw.words(threads * registers).reshape(threads, registers)
    turn = draw.words(threads * registers).reshape(threads, registers)
    words = np.where(turn % 4 == 0, _EDGES[raw % np.uint64(len(_EDGES))], raw)
    words = np.where(turn % 4 == 1, raw % np.uint64(64), words)
    if program.number % 2:
        some = words[: 1 + draw.integer(1, 3)]
        words = np.where(turn % 8 < 4, some[raw % np.uint64(len(some)), np.arange(registers)], words)
    memory = draw.words(own_at(threads) // 8)
    return words, memory, np.void(draw.words(OWN // 8).tobytes())


def answers(device: Any, programs: Sequence[Program]) -> Iterator[Answer]:
    """The results of each program: its outputs (threads · registers words), followed by its memory."""
    at_once = AT_ONCE if hasattr(device, "uuid") else 1
    for first in range(0, len(programs), at_once):
        batch = programs[first : first + at_once]
        yield from text_answers(device, module_text(batch), batch)


def text_answers(device: Any, text: str, programs: Sequence[Program]) -> Iterator[Answer]:
    """The results of each kernel of a PTX text, with the inputs and grid of the corresponding program."""
    try:
        module = device.load(text)
        kernels = [module.kernel(f"fuzz_{i}") for i in range(len(programs))]
    except SimwarpError as error:
        yield from [error] * len(programs)
        return
    for kernel, program in zip(kernels, programs, strict=True):
        yield _answer(device, kernel, program)


def _answer(device: Any, kernel: Any, program: Program) -> Answer:
    words, start, numbers = inputs(program)
    given = device.upload(words, "inputs")
    outputs = device.upload(np.zeros_like(words), "outputs")
    memory = device.upload(start, "memory")
    try:
        kernel((program.blocks, 1, 1), (program.block, 1, 1), numbers, given, outputs, memory)
        return np.concatenate([outputs.download().reshape(-1), memory.download()])
    except SimwarpError as fault:
        return fault
    finally:
        for array in (given, outputs, memory):
            array.free()


def digest(answer: Answer) -> bytes:
    """16 bytes of the SHA-256 of a program's result words; empty for an error."""
    if isinstance(answer, SimwarpError):
        return b""
    return hashlib.sha256(answer.astype("<u8").tobytes()).digest()[:16]


def outputs(device: Any, programs: Sequence[Program]) -> list[bytes]:
    """The digest of each program's output on a device."""
    return [digest(answer) for answer in answers(device, programs)]
