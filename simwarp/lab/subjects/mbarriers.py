"""Compares random programs on barriers in shared memory on a device with the simulator, bit for bit.

`mbarriers_by_chance` makes the programs; a model of the barriers, which it follows as it writes, knows most
results. The simulator runs the programs under its schedules in turn. Tests replay some without a GPU.

>>> from simwarp import Device
>>> (answer,) = answers(Device(), [generate(SEED, 5)])
>>> answer.shape, unexpected(generate(SEED, 5), answer)
((2, 23, 128), None)
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.device.device import Device
from simwarp.lab.crew import Lost, perform
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.lab.subjects.mbarriers_by_chance import DATA_WORDS, Program, generate, module
from simwarp.verify.draw import Draw

SEED, COUNT = 17, 5120
BLOCKS = 2
TOGETHER = 32
"""Programs in one module."""
SCHEDULES = ("lowest pc", "stack", "random")
SHOWN = 5
"""The largest number of programs whose PTX is written beside their difference."""
_NONE = bytes(16)
"""Stands for the digest of a program without an answer."""

Array = npt.NDArray[np.uint32]


def answers(device: Any, programs: Sequence[Program]) -> list[Array]:
    """The results of programs that a device ran, (blocks, slots, threads) each."""
    loaded, found = device.load(module(programs)), list[Array]()
    for program in programs:
        words = Draw(SEED, "data of mbarriers", program.number).words(BLOCKS * DATA_WORDS // 2)
        data = device.upload(words.astype("<u8").view("<u4").astype(np.uint32))
        results = device.upload(np.zeros((BLOCKS, program.slots, program.threads), np.uint32))
        kernel = loaded.kernel(f"program{program.number}")
        # The chip executes copies between shared memories only in launches with clusters.
        kernel((BLOCKS, 1, 1), (program.threads, 1, 1), data, results, cluster=1)
        found.append(results.download())
        data.free()
        results.free()
    return found


def unexpected(program: Program, answer: Array) -> str | None:
    """Describe the first result that differs from the model's; None if all agree."""
    for slot, threads, value in program.known:
        stored = answer[:, slot, threads]
        if (stored != value).any():
            return f"slot {slot}: {np.unique(stored).tolist()[:4]}, the model {value}"
    return None


def simulated(program: Program) -> Array:
    """The simulator's results of a program; the program's number chooses the schedule."""
    device = Device(schedule=SCHEDULES[program.number % len(SCHEDULES)])
    return answers(device, [program])[0]


def digest(answer: Array) -> bytes:
    """The first 16 bytes of the SHA-256 of a program's results."""
    return hashlib.sha256(answer.astype("<u4").tobytes()).digest()[: len(_NONE)]


def text_digest(program: Program) -> bytes:
    """The SHA-256 of a program's PTX."""
    return hashlib.sha256(module([program]).encode()).digest()


def compare(
    chip: Any, numbers: Sequence[int]
) -> tuple[list[tuple[bytes, bytes]], dict[str, Counter[str]], list[str]]:
    """Compare programs: digests of texts and of the chip's results, counts, and differences."""
    programs = [generate(SEED, number) for number in numbers]
    rows, differences = list[tuple[bytes, bytes]](), list[str]()
    counts, opcodes = Counter[str](), Counter[str]()
    for program, results in zip(programs, answers(chip, programs), strict=True):
        rows.append((text_digest(program), digest(results)))
        counts.update(
            results=results.size, of_the_model=BLOCKS * sum(int(who.sum()) for _, who, _ in program.known)
        )
        opcodes.update(re.findall(r"mbarrier\.[\w.:]+|cp\.async\.bulk[\w.:]+", program.body))
        text = _difference(program, results, simulated(program))
        if text:
            counts["mismatches"] += 1
            differences.append(text)
    return rows, {"counts": counts, "opcodes": opcodes}, differences


def _difference(program: Program, chip: Array, simulator: Array) -> str:
    """Describe how a chip's results differ from the simulator's or from the model's; "" if they do not."""
    lines: list[str] = []
    bad = np.argwhere(chip != simulator)
    if len(bad):
        block, slot, thread = bad[0].tolist()
        lines.append(
            f"{len(bad)} results differ; block {block}, slot {slot}, thread {thread}: "
            f"chip {chip[block, slot, thread]:#x}, simulator {simulator[block, slot, thread]:#x}"
        )
    if wrong := unexpected(program, chip):
        lines.append(wrong)
    return "\n".join([f"program {program.number}", *lines]) if lines else ""


def ask(asking: Asking) -> Answers:
    """Compare the first programs drawn from the seed, in parallel processes."""
    count = asking.number(COUNT, 12)
    batches = [range(first, min(first + TOGETHER, count)) for first in range(0, count, TOGETHER)]
    rows, differences = dict[int, tuple[bytes, bytes]](), list[str]()
    totals = {"counts": Counter[str](mismatches=0), "opcodes": Counter[str]()}
    lost: list[str] = []

    def perform_all(parts: Sequence[Sequence[int]]) -> list[int]:
        """Compare programs with the simulator; returns the lost ones' numbers, and records the reasons."""
        again: list[int] = []
        found = perform(asking.make, compare, [(part,) for part in parts], asking.processes)
        for part, answer in zip(asking.each(parts), found, strict=True):
            if isinstance(answer, Lost):
                again += part
                lost.append(f"program {part[0]}: no answer\n{answer.reason}")
                continue
            rows.update(zip(part, answer[0], strict=True))
            for name, counter in answer[1].items():
                totals[name].update(counter)
            differences.extend(answer[2])
        return again

    if alone := perform_all(batches):
        lost.clear()
        perform_all([[number] for number in alone])
    shown = [f"{text}\n{_text_of(text)}" for text in differences[:SHOWN]]
    texts = [rows[k][0] if k in rows else text_digest(generate(SEED, k)) for k in range(count)]
    digests = [rows[k][1] if k in rows else _NONE for k in range(count)]
    opcodes = {"opcodes": dict(sorted(totals["opcodes"].items()))}
    facts = {"seed": SEED, "count": count, "lost": len(lost), **totals["counts"], **opcodes}
    arrays = {"texts": _bytes([text[:4] for text in texts]), "digests": _bytes(digests)}
    ptx = {"programs": hashlib.sha256(b"".join(texts)).hexdigest()}
    return Answers(facts, arrays, ptx, [*lost, *shown, *differences[SHOWN:]])


def _text_of(difference: str) -> str:
    """The PTX of the program that a difference names."""
    return module([generate(SEED, int(difference.split()[1]))])


def _bytes(rows: list[bytes]) -> npt.NDArray[np.uint8]:
    """A uint8 array whose rows are byte strings of equal length."""
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


SUBJECTS = [Subject("mbarriers", "5,120 random programs on barriers in shared memory, by digest", ask)]
