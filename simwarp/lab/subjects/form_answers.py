"""How a recording keeps the answers to a family of PTX forms, and how a device is held against them.

Its arrays hold, for each form in order: its name (``forms``), a SHA-256 of kernel text and operands
(``questions``), one of all answers that are compared (``answers``), the number of operand tuples (``sets``),
and some answers as they are (``raw`` from ``starts`` on): all of them where answers may differ, else evenly
chosen ones, which show the error.

Here the simulator's own answer stands for the hardware's. If another one comes later, that is noticed:

>>> import simwarp
>>> from simwarp.lab.evidence.catalogue import probe_of
>>> probe = probe_of("popc.b32")
>>> (answer,) = ask(simwarp.Device(), [probe])
>>> arrays = pack([probe], [answer])
>>> print(*replay(arrays, [probe], simwarp.Device()))
popc.b32: 1024 sets agree
>>> (kept,) = unpack(arrays, {probe.form: probe})
>>> kept.form, kept.sets, kept.raw.shape
('popc.b32', 1024, (256, 1))
>>> print(against(probe, kept, answer + 1))
popc.b32: 256 of 256 sets differ
a=0x0: expected d=0x0, got d=0x1
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cuda import default_device
from reference.errors import InputFileError
from simwarp.device.device import Device
from simwarp.faults import Trap
from simwarp.lab.evidence.catalogue import operands_of, probe_of
from simwarp.lab.evidence.judge import Verdict, comparable, found, judge, strategy
from simwarp.lab.evidence.launch import ask, batches
from simwarp.lab.evidence.operands import Column, Words, width
from simwarp.lab.evidence.probe import Probe

LARGEST = 1 << 20
"""Bytes of a file, at most."""
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Answer:
    """The hardware's answer to one probe."""

    form: str
    question: bytes  # the SHA-256 of kernel and operands
    digest: bytes  # the SHA-256 of the compared answers
    sets: int
    raw: Words  # (n, results): the answers to the sets `chosen` (sets, n)


def chosen(sets: int, count: int) -> npt.NDArray[np.intp]:
    """The sets that are kept raw: evenly spread, so that edges and random ones are among them."""
    return np.arange(count) * sets // count


def question(probe: Probe) -> bytes:
    """The SHA-256 of kernel text and operands."""
    return hashlib.sha256(probe.digest + operands_of(probe).astype("<u8").tobytes()).digest()


def digest(probe: Probe, answer: Words) -> bytes:
    """The SHA-256 of the answers that are compared."""
    return hashlib.sha256(_bytes(probe.results, comparable(probe, operands_of(probe), answer))).digest()


def whole(probe: Probe) -> bool:
    """Whether all answers are kept, since allowed ones may differ."""
    row, _ = found(probe.form)
    plan = strategy(row)
    return row.fidelity == "bounded" or (plan is not None and plan.holds is not None)


def pack(probes: Sequence[Probe], answers: Sequence[Words]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a recording, with as many raw answers as the size of a file allows."""
    arrays: dict[str, npt.NDArray[Any]] = {
        "forms": np.array([probe.form.encode() for probe in probes]),
        "questions": np.array([list(question(probe)) for probe in probes], np.uint8),
        "answers": np.array([list(digest(p, a)) for p, a in zip(probes, answers, strict=True)], np.uint8),
        "sets": np.array([len(answer) for answer in answers], np.uint32),
    }
    for count in (256, 128, 64, 32, 16):
        raw = [_raw(probe, answer, count) for probe, answer in zip(probes, answers, strict=True)]
        arrays["starts"] = np.cumsum([0, *map(len, raw)]).astype(np.uint32)
        arrays["raw"] = np.frombuffer(b"".join(raw), np.uint8)
        np.savez_compressed(packed := BytesIO(), **arrays)  # pyright: ignore[reportArgumentType]
        if packed.tell() <= LARGEST:
            break
    return arrays


def _raw(probe: Probe, answer: Words, count: int) -> bytes:
    """The answers that are kept as they are; kernels with many results keep fewer sets."""
    if whole(probe):
        return _bytes(probe.results, answer)
    kept, share = comparable(probe, operands_of(probe), answer), max(1, len(probe.results) // 4)
    return _bytes(probe.results, kept[chosen(len(kept), max(1, min(count, len(kept)) // share))])


def unpack(arrays: Arrays, probes: Mapping[str, Probe]) -> list[Answer]:
    """The answers of those forms that have a probe."""
    answers: list[Answer] = []
    for k, name in enumerate(arrays["forms"].tolist()):
        if (form := name.decode()) in probes:
            raw = arrays["raw"][arrays["starts"][k] : arrays["starts"][k + 1]]
            digests = arrays["questions"][k].tobytes(), arrays["answers"][k].tobytes()
            answers.append(Answer(form, *digests, int(arrays["sets"][k]), _words(probes[form].results, raw)))
    return answers


def replay(arrays: Arrays, probes: Sequence[Probe], device: Any) -> Iterator[Verdict]:
    """A verdict for each form that a recording holds and that has a probe."""
    recorded = {answer.form: answer for answer in unpack(arrays, {p.form: p for p in probes})}
    for batch in batches([probe for probe in probes if probe.form in recorded]):
        got = [trapped(device, batch[0])] if batch[0].faults else ask(device, batch)
        for probe, answer in zip(batch, got, strict=True):
            if answer is not None:
                yield against(probe, recorded[probe.form], answer)


def against(probe: Probe, answer: Answer, got: Words) -> Verdict:
    """The verdict on a simulator's answers to all sets of a probe: by SHA-256, then by the raw answers."""
    if answer.question != question(probe):
        raise InputFileError(
            f"the golden of {probe.form} was recorded with another kernel or other operands\n"
            "record it again on a GPU with `simwarp record 'ptx-*'`"
        )
    same = digest(probe, got) == answer.digest
    if same and not whole(probe):
        return Verdict(probe.form, answer.sets)
    kept = chosen(answer.sets, len(answer.raw))
    operands = operands_of(probe)[kept] if not probe.faults else operands_of(probe)[:1]
    mine = got if whole(probe) else comparable(probe, operands_of(probe)[: len(got)], got)
    verdict = judge(probe, operands, answer.raw, mine[kept])
    if not same and not whole(probe) and not verdict.wrong:
        unseen = f"{probe.form} answers otherwise in sets that are not kept raw\nask a GPU which ones"
        return Verdict(probe.form, answer.sets, 1, None, unseen)
    return verdict


def trapped(device: Any, probe: Probe) -> Words | None:
    """1 if the kernel ended with a fault, else 0; None if it did not end."""
    if isinstance(device, Device):
        try:
            ask(device, [probe])
        except Trap:
            return np.ones((1, 1), np.uint64)
        return np.zeros((1, 1), np.uint64)
    program = [sys.executable, "-m", __name__, probe.form]  # a trap ends a process's context
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None
    outcome = {"trapped": 1, "passed": 0}.get(done.stdout.strip())
    return None if outcome is None else np.full((1, 1), outcome, np.uint64)


def _trap(form: str) -> None:
    """What `trapped` asks another process to do."""
    try:
        ask(default_device(), [probe_of(form)])
    except Exception:
        sys.stdout.write("trapped\n")
        sys.stdout.flush()
        os._exit(0)  # the context is gone: nothing can be cleaned up
    sys.stdout.write("passed\n")


def _size(column: Column) -> int:
    """Bytes of a stored result: those of its register; of a predicate, one."""
    return 1 if column.type == "pred" else max(2, width(column.type) // 8)


def _bytes(results: Sequence[Column], answer: Words) -> bytes:
    """Result columns one behind the other, each as wide as its register."""
    return b"".join(answer[:, j].astype(f"<u{_size(column)}").tobytes() for j, column in enumerate(results))


def _words(results: Sequence[Column], data: npt.NDArray[np.uint8]) -> Words:
    sizes = [_size(column) for column in results]
    count = len(data) // sum(sizes) if sizes else 0
    words = np.zeros((count, len(results)), np.uint64)
    at = 0
    for j, size in enumerate(sizes):
        words[:, j] = data[at : at + count * size].view(f"<u{size}")
        at += count * size
    return words


if __name__ == "__main__":
    _trap(sys.argv[1])
