"""The raw outputs of the cases of `simwarp.verify` whose answers are exact.

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
"""All pairs of what the widest case varies are among them."""


def ask(case: Case, asking: Asking) -> Answers:
    """Run the first inputs of a case; small shapes take the kernels of large ones on one multiprocessor."""
    device = small(type(asking.device)())
    inputs = range(asking.number(INPUTS, 4))
    facts, outputs = case_answers(case, device, inputs, SEED)
    return Answers(facts, outputs, case.kernels(device.compute_capability))


SUBJECTS = [
    Subject(name, f"raw outputs of the case {name}", partial(ask, case))
    for name, case in CASES.items()
    if case.differs is None
]
