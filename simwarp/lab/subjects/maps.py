"""The subject that records which fragment maps a device confirms, with `simwarp.lab.probe`.

>>> SUBJECTS[0].name
'probe'
"""

from __future__ import annotations

from simwarp.fragments import all_opcodes
from simwarp.fragments.opcodes import RECORD
from simwarp.lab.probe import Finding, probe
from simwarp.lab.recording import Answers, Asking, Subject


def ask(asking: Asking) -> Answers:
    """Probe every form of the matrix instructions for the lanes that hold each element."""
    forms = list(all_opcodes())
    chosen = forms[:: asking.number(1, len(forms) // 4)]
    return answers([probe(form, asking.device) for form in asking.each(chosen)])


def answers(findings: list[Finding]) -> Answers:
    """The recording of some findings, and the entries for the table of `simwarp.fragments`."""
    executed = [finding for finding in findings if finding.executed]
    differ = [f"{finding.opcode}: {finding.differences}" for finding in executed if not finding.agreed]
    forms = {finding.opcode: {"agreed": finding.agreed, "digest": finding.digest} for finding in executed}
    chips = {finding.opcode: True if finding.agreed else None for finding in executed}
    return Answers({"forms": forms}, differences=differ, table=RECORD.name, forms=chips)


SUBJECTS = [Subject("probe", "fragment maps, by experiment", ask)]
