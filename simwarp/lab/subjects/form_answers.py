"""Packs the results of a family of PTX forms into a recording, and compares a device with it.

Its arrays hold, for each form in order: the opcode (``forms``), the SHA-256 of kernel text and operands
(``questions``), the SHA-256 of all compared answers (``answers``), the number of operand tuples (``sets``),
and raw answers (``raw`` from ``starts`` on): all of them if devices may differ, else evenly spread ones,
which show the error.

This example uses the simulator's own answer in place of hardware's, and then a wrong answer:

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
from simwarp.lab.evidence.judge import Verdict, comparable, find, judge, strategy
from simwarp.lab.evidence.launch import ask, batches
from simwarp.lab.evidence.operands import Column, Words, width
from simwarp.lab.evidence.probe import Probe

LARGEST = 1 << 20
"""The largest size of a recording's array file, in bytes."""
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Answer:
    """The recorded results of hardware for one probe of an instruction form."""

    form: str
    question: bytes  # the SHA-256 of kernel and operands
    digest: bytes  # the SHA-256 of the compared answers
    sets: int
    raw: Words  # (n, results): the answers to the sets `chosen` (sets, n)


def chosen(sets: int, count: int) -> npt.NDArray[np.intp]:
    """The indices of ``count`` operand tuples, evenly spread over edge values and random ones."""
    return np.arange(count) * sets // count


def question(probe: Probe) -> bytes:
    """The SHA-256 of a probe's kernel text and operands."""
    return hashlib.sha256(probe.digest + operands_of(probe).astype("<u8").tobytes()).digest()


def digest(probe: Probe, answer: Words) -> bytes:
    """The SHA-256 of the compared results of a probe."""
    return hashlib.sha256(_bytes(probe.results, comparable(probe, operands_of(probe), answer))).digest()


def whole(probe: Probe) -> bool:
    """True if a recording stores a form's raw results in full, since devices may differ in them."""
    row, _ = find(probe.form)
    plan = strategy(row)
    return row.fidelity == "bounded" or (plan is not None and plan.holds is not None)


def pack(probes: Sequence[Probe], answers: Sequence[Words]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a recording, with as many raw results as the file size allows."""
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
    """The raw result words of a probe as bytes, for fewer operand tuples if it has many results."""
    if whole(probe):
        return _bytes(probe.results, answer)
    kept, share = comparable(probe, operands_of(probe), answer), max(1, len(probe.results) // 4)
    return _bytes(probe.results, kept[chosen(len(kept), max(1, min(count, len(kept)) // share))])


def unpack(arrays: Arrays, probes: Mapping[str, Probe]) -> list[Answer]:
    """The results in a recording, for the forms that have a probe."""
    answers: list[Answer] = []
    for k, name in enumerate(arrays["forms"].tolist()):
        if (form := name.decode()) in probes:
            raw = arrays["raw"][arrays["starts"][k] : arrays["starts"][k + 1]]
            digests = arrays["questions"][k].tobytes(), arrays["answers"][k].tobytes()
            answers.append(Answer(form, *digests, int(arrays["sets"][k]), _words(probes[form].results, raw)))
    return answers


def replay(arrays: Arrays, probes: Sequence[Probe], device: Any) -> Iterator[Verdict]:
    """Run the recorded probes on a device, and compare each form with the recording."""
    recorded = {answer.form: answer for answer in unpack(arrays, {p.form: p for p in probes})}
    for batch in batches([probe for probe in probes if probe.form in recorded]):
        got = [trapped(device, batch[0])] if batch[0].faults else ask(device, batch)
        for probe, answer in zip(batch, got, strict=True):
            if answer is not None:
                yield against(probe, recorded[probe.form], answer)


def against(probe: Probe, answer: Answer, got: Words) -> Verdict:
    """Compare a simulator's results for a probe with the recorded ones, by SHA-256 and raw words."""
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
        unseen = (
            "the answers that differ are not recorded raw\nrun simwarp record 'ptx-*' on a GPU to find them"
        )
        return Verdict(probe.form, answer.sets, 1, None, unseen)
    return verdict


def trapped(device: Any, probe: Probe) -> Words | None:
    """Run a probe of ``trap``: 1 if the kernel ended with a fault, else 0; None if it did not end."""
    if isinstance(device, Device):
        try:
            ask(device, [probe])
        except Trap:
            return np.ones((1, 1), np.uint64)
        return np.zeros((1, 1), np.uint64)
    # a trap destroys its process's context, so each probe gets a process
    program = [sys.executable, "-m", __name__, probe.form]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None
    outcome = {"trapped": 1, "passed": 0}.get(done.stdout.strip())
    return None if outcome is None else np.full((1, 1), outcome, np.uint64)


def _trap(form: str) -> None:
    """Run a probe of ``trap`` on the GPU, and print the outcome; `trapped` runs this in another process."""
    try:
        ask(default_device(), [probe_of(form)])
    except Exception:
        sys.stdout.write("trapped\n")
        sys.stdout.flush()
        os._exit(0)  # the trap has destroyed the context, so cleaning up would fail
    sys.stdout.write("passed\n")


def _size(column: Column) -> int:
    """The bytes of a recorded result: the size of its register, or 1 for a predicate."""
    return 1 if column.type == "pred" else max(2, width(column.type) // 8)


def _bytes(results: Sequence[Column], answer: Words) -> bytes:
    """The bytes of a probe's results, one after another, each as wide as its register."""
    return b"".join(answer[:, j].astype(f"<u{_size(column)}").tobytes() for j, column in enumerate(results))


def _words(results: Sequence[Column], data: npt.NDArray[np.uint8]) -> Words:
    sizes = np.array([_size(column) for column in results])
    ends = np.cumsum(len(data) // sizes.sum() * sizes)
    columns = zip(np.split(data, ends[:-1]), sizes, strict=True)
    return np.stack([column.view(f"<u{size}").astype(np.uint64) for column, size in columns], axis=1)


if __name__ == "__main__":
    _trap(sys.argv[1])
