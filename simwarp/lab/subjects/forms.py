"""The subjects that run every form of every PTX row on hardware and the simulator, one for each family.

>>> from simwarp.ptx.instructions import ROWS
>>> [family(ROWS[name]) for name in ("popc", "cvt", "mma.s8", "ldmatrix")]
['integer', 'floating', 'matrix', 'tiles']
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from simwarp.device.device import Device
from simwarp.faults import KernelFault
from simwarp.lab.evidence.catalogue import operands_of, probes
from simwarp.lab.evidence.forms import RECORD
from simwarp.lab.evidence.judge import judge
from simwarp.lab.evidence.launch import ask as launch
from simwarp.lab.evidence.launch import batches
from simwarp.lab.evidence.operands import Words
from simwarp.lab.evidence.probe import Probe
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.lab.subjects.form_answers import pack, question, trapped
from simwarp.ptx.instructions import ROWS
from simwarp.ptx.kinds import MATRIX_LOAD, MATRIX_STORE
from simwarp.ptx.rows import Row

_SECTIONS = {
    "integer": (1, 2, 8, 18),
    "floating": (3, 4, 5),
    "comparison": (6, 7),
    "memory": (9,),
    "matrix": (14, 15),
    "textures": (10, 11),
}
_BY_SECTION = {f"9.7.{section}": name for name, sections in _SECTIONS.items() for section in sections}
"""By section of the PTX ISA, the family of its rows; "control" for other sections."""


def family(row: Row) -> str:
    """The family of a row of the PTX table, which names its recording: ``ptx-<family>``."""
    if row.base == "cvt":
        return "floating"
    if row.kind in (MATRIX_LOAD, MATRIX_STORE):
        return "tiles"
    return _BY_SECTION.get(".".join(row.section.split(".")[:3]), "control")


FAMILIES = sorted({family(row) for row in ROWS.values()}, key=lambda name: (name == "control", name))
"""All families; control flow, which is most likely to hang, comes last."""


def ask(name: str, asking: Asking) -> Answers:
    """Run every form of a family, on the simulator first: a form that faults there could hang hardware."""
    rows = [row for row in ROWS.values() if family(row) == name]
    members = probes(rows) if not asking.small else [probe for row in rows for probe in probes([row])[:1]]
    return answers(name, members, asking)


def answers(name: str, members: Sequence[Probe], asking: Asking) -> Answers:
    """The hardware's results of a family's probes, and how the simulator's differ from them."""
    simulator, failures = Device(), dict[str, str]()
    got: dict[str, Words] = {}
    entries: dict[str, dict[str, Any]] = {}
    differences: list[str] = []
    for batch in asking.each(list(batches(members))):
        expected = _answers(simulator, batch, failures, "the simulator")
        safe = [p for p in batch if p.form in expected or " faults" not in failures[p.form].split(":")[0]]
        got |= (mine := _answers(asking.device, safe, failures, "the hardware"))
        for probe in safe:
            if (answer := mine.get(probe.form)) is None:
                continue
            entries[probe.form] = {"golden": f"ptx-{name}", "sets": len(answer)}
            if probe.form in expected:
                verdict = judge(probe, operands_of(probe), answer, expected[probe.form])
                if verdict.largest_error is not None:
                    entries[probe.form]["largest_error"] = verdict.largest_error
                differences += [str(verdict)] * bool(verdict.wrong)
    kept = [probe for probe in members if probe.form in got]
    kernels = hashlib.sha256(b"".join(map(question, kept))).hexdigest()
    differences += [f"{form}: {reason}" for form, reason in failures.items()]
    arrays, facts = pack(kept, [got[probe.form] for probe in kept]), {"forms": len(kept)}
    return Answers(facts, arrays, {"kernels": kernels}, differences, RECORD.name, entries)


def _answers(device: Any, batch: Sequence[Probe], failures: dict[str, str], who: str) -> dict[str, Words]:
    """The results of one batch of probes by form; if the module fails, each probe runs alone."""
    if not batch:
        return {}
    if batch[0].faults:
        answer = trapped(device, batch[0])
        if answer is None:
            failures[batch[0].form] = f"{who} neither ended normally nor trapped"
        return {} if answer is None else {batch[0].form: answer}
    try:
        return dict(zip((p.form for p in batch), launch(device, batch), strict=True))
    except Exception as error:
        if len(batch) == 1:
            fault = "faults" if isinstance(error, KernelFault) else "fails"
            failures[batch[0].form] = f"{who} {fault}: " + " / ".join(str(error).splitlines()[:3])
            return {}
    alone = [_answers(device, [probe], failures, who) for probe in batch]
    return {form: answer for one in alone for form, answer in one.items()}


SUBJECTS = [
    Subject(f"ptx-{name}", f"every form of the PTX rows of {name}", partial(ask, name)) for name in FAMILIES
]
