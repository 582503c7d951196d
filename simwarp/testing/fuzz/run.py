"""Programs on a device: their inputs, their launch, their outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import SimwarpError
from simwarp.testing.fuzz.memory import OWN, RECORD, own_at
from simwarp.testing.fuzz.program import Program
from simwarp.testing.fuzz.text import module_text
from simwarp.verify.draw import Draw

Answer: TypeAlias = "npt.NDArray[np.uint64] | SimwarpError"
"""The words that a program left in memory, or the fault that stopped it."""

AT_ONCE = 64
"""Programs in one module on hardware, where the driver compiles a module as a whole."""
_EDGES: npt.NDArray[np.uint64] = np.array(
    [
        *(0, 1, 2, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1),
        *(0x3F800000, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3FF << 52, 0x7FF << 52),
    ],
    np.uint64,
)


def inputs(program: Program) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], np.void]:
    """A program's inputs (threads, registers), its memory at the start (words,), its first parameter.

    Registers hold edges, small numbers and any words by turns; in every other program the lanes have
    few different ones, for ``match`` and ``vote``.

    Examples
    --------
    >>> words, memory, numbers = inputs(Program(0, 0, (), blocks=2, block=32))
    >>> words.shape, memory.size, numbers.nbytes
    ((64, 18), 512, 32)
    """
    draw = Draw(program.seed, "fuzz inputs", program.number)
    threads, registers = program.blocks * program.block, RECORD // 8
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
    """What each program leaves behind: outputs (threads · registers words), then its memory.

    Parameters
    ----------
    device : gpu.device.Device
    programs : sequence of Program

    Examples
    --------
    >>> from simwarp import Device
    >>> from simwarp.testing.fuzz import generate
    >>> [answer.dtype.name for answer in answers(Device(), [generate(0, 1)])]
    ['uint64']
    """
    at_once = AT_ONCE if hasattr(device, "uuid") else 1
    for first in range(0, len(programs), at_once):
        batch = programs[first : first + at_once]
        try:
            module = device.load(module_text(batch))
        except SimwarpError as error:
            yield from [error] * len(batch)
            continue
        for i, program in enumerate(batch):
            yield _answer(device, module.kernel(f"fuzz_{i}"), program)


def run_text(device: Any, text: str, program: Program) -> Answer:
    """What a kept text leaves behind, with the inputs and the grid of a program.

    Examples
    --------
    >>> from simwarp import Device
    >>> from simwarp.testing.fuzz import generate
    >>> program = generate(0, 1)
    >>> (answer,) = answers(Device(), [program])
    >>> bool((run_text(Device(), module_text([program]), program) == answer).all())
    True
    """
    try:
        kernel = device.load(text).kernel("fuzz_0")
    except SimwarpError as error:
        return error
    return _answer(device, kernel, program)


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
    """16 bytes of the SHA-256 of an answer's words; of a fault, its type's name.

    Examples
    --------
    >>> digest(np.zeros(1, np.uint64)).hex()
    'af5570f5a1810b7af78caf4bc70a660f'
    """
    if isinstance(answer, SimwarpError):
        return type(answer).__name__.encode()[:16].ljust(16, b"\0")
    return hashlib.sha256(answer.astype("<u8").tobytes()).digest()[:16]


def told(answer: Answer) -> bytes:
    """The digest of an answer; nothing of a fault, which no program here deserves.

    Examples
    --------
    >>> from simwarp.faults import Deadlock
    >>> told(Deadlock("every lane waits"))
    b''
    """
    return b"" if isinstance(answer, SimwarpError) else digest(answer)


def outputs(device: Any, programs: Sequence[Program]) -> list[bytes]:
    """The digest of what each program leaves behind.

    Examples
    --------
    >>> from simwarp import Device
    >>> from simwarp.testing.fuzz import generate
    >>> outputs(Device(), [generate(0, 1)]) == outputs(Device(chunk_lanes=32), [generate(0, 1)])
    True
    """
    return [digest(answer) for answer in answers(device, programs)]
