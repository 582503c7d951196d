"""Subjects that record the raw outputs of those `simwarp.verify` cases whose outputs are exact.

>>> {"bmm", "pack-row"} <= {subject.name for subject in SUBJECTS}
True
"""

from __future__ import annotations

from functools import partial

from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.testing.golden import case_answers
from simwarp.verify import CASES, Case
from simwarp.verify.compare import small

SEED = 1
INPUTS = 240
"""The number of inputs: enough for all pairs of options of the case with most options."""


def ask(case: Case, asking: Asking) -> Answers:
    """Run a case's first inputs as on one multiprocessor, where small shapes use the large kernels."""
    device = small(type(asking.device)())
    inputs = range(asking.number(INPUTS, 4))
    facts, outputs = case_answers(case, device, inputs, SEED)
    return Answers(facts, outputs, case.kernels(device.compute_capability))


SUBJECTS = [
    Subject(name, f"raw outputs of the case {name}", partial(ask, case))
    for name, case in CASES.items()
    if case.differs is None
]
