"""Random PTX programs with divergence and warp-wide operations, whose results do not depend on scheduling.

Two devices, or a program and its mutants, must agree on every program. `generate` makes a program; `hunt`
searches for programs on which two devices disagree or one fails, and shrinks them. The command is
``simwarp fuzz``; `simwarp.lab` records the answers of hardware.
"""

from simwarp.lab.fuzz.generate import generate
from simwarp.lab.fuzz.hunt import Difference, Witness, coverage, hunt
from simwarp.lab.fuzz.mutate import MUTATIONS, mutate, unveil
from simwarp.lab.fuzz.program import Program, is_divergent
from simwarp.lab.fuzz.run import answers, digest, inputs, outputs
from simwarp.lab.fuzz.shrink import shrink
from simwarp.lab.fuzz.workers import Workers
from simwarp.lab.fuzz.writer import module_text

__all__ = [
    "MUTATIONS",
    "Difference",
    "Program",
    "Witness",
    "Workers",
    "answers",
    "coverage",
    "digest",
    "generate",
    "hunt",
    "inputs",
    "is_divergent",
    "module_text",
    "mutate",
    "outputs",
    "shrink",
    "unveil",
]
