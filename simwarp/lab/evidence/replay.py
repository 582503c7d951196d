"""Holds a device against what hardware answered, without hardware.

Examples
--------
Here the simulator's own answer stands for the hardware's. If another one comes later, that is said:

>>> from tempfile import TemporaryDirectory
>>> import simwarp
>>> from simwarp.lab.evidence.catalogue import probe_of
>>> probe = probe_of("popc.b32")
>>> (answer,) = ask(simwarp.Device(), [probe])
>>> with TemporaryDirectory() as folder:
...     path = Path(folder, "ptx-integer.npz")
...     golden.write(path, [probe], [answer])
...     (recorded,) = golden.read(path, {probe.form: probe})
...     print(*replay(path, [probe], simwarp.Device()))
popc.b32: 1024 sets agree
>>> print(against(probe, recorded, answer + 1))
popc.b32: 256 of 256 sets differ
a=0x0: expected d=0x0, got d=0x1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reference.errors import InputFileError
from simwarp.lab.evidence import golden
from simwarp.lab.evidence.catalogue import operands_of
from simwarp.lab.evidence.golden import Answer
from simwarp.lab.evidence.judge import Verdict, comparable, judge
from simwarp.lab.evidence.launch import ask, batches
from simwarp.lab.evidence.operands import Words
from simwarp.lab.evidence.probe import Probe
from simwarp.lab.evidence.record import trapped


def replay(path: Path, probes: Sequence[Probe], device: Any) -> Iterator[Verdict]:
    """A verdict for each form that a golden holds and that has a probe.

    Parameters
    ----------
    path : Path
        ``ptx-<family>.npz``.
    probes : sequence of Probe
    device : simwarp.Device

    Raises
    ------
    InputFileError
        If the golden cannot be read, or was recorded with another kernel or other operands.
    """
    recorded = {answer.form: answer for answer in golden.read(path, {p.form: p for p in probes})}
    asked = [probe for probe in probes if probe.form in recorded]
    for batch in batches(asked):
        for probe, got in zip(batch, _ask(device, batch), strict=True):
            yield against(probe, recorded[probe.form], got)


def against(probe: Probe, answer: Answer, got: Words) -> Verdict:
    """The verdict on a simulator's answers to all sets of a probe.

    Where the compared answers are the same, their SHA-256 is; where they are not, or may differ, the
    raw ones are compared.

    Raises
    ------
    InputFileError
        If the golden was recorded with another kernel or other operands.
    """
    if answer.question != golden.question(probe):
        raise InputFileError(
            f"the golden of {probe.form} was recorded with another kernel or other operands\n"
            "record it again on a GPU with `python -m simwarp.lab.evidence record`"
        )
    same = golden.digest(probe, got) == answer.digest
    if same and not golden.whole(probe):
        return Verdict(probe.form, answer.sets)
    kept = golden.chosen(answer.sets, len(answer.raw))
    operands = operands_of(probe)[kept] if not probe.faults else operands_of(probe)[:1]
    mine = got if golden.whole(probe) else comparable(probe, operands_of(probe)[: len(got)], got)
    verdict = judge(probe, operands, answer.raw, mine[kept])
    if not same and not golden.whole(probe) and not verdict.wrong:
        unseen = f"{probe.form} answers otherwise in sets that are not kept raw\nask a GPU which ones"
        return Verdict(probe.form, answer.sets, 1, None, unseen)
    return verdict


def _ask(device: Any, batch: Sequence[Probe]) -> list[Words]:
    if not batch[0].faults:
        return ask(device, batch)
    answer = trapped(device, batch[0])
    return [] if answer is None else [answer]
