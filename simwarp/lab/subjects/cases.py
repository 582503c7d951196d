"""Subjects that record the raw outputs of the `simwarp.verify` cases with exact answers.

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
    """Run the first inputs of a case on one multiprocessor, so that small shapes use the large kernels."""
    device = small(type(asking.device)())
    inputs = range(asking.number(INPUTS, 4))
    facts, outputs = case_answers(case, device, inputs, SEED)
    return Answers(facts, outputs, case.kernels(device.compute_capability))


SUBJECTS = [
    Subject(name, f"raw outputs of the case {name}", partial(ask, case))
    for name, case in CASES.items()
    if case.differs is None
]
