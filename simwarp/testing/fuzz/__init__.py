"""Random PTX programs: divergent, full of warp-wide work, and the same whatever the scheduling.

Two devices, or a program and its mutants, must agree on every one of them. `generate` makes a program,
`hunt` searches for programs on which two devices disagree or one fails, and makes them small, `record`
and `replay` keep the answers of hardware. The command is ``simwarp fuzz``.
"""

from simwarp.testing.fuzz.generate import generate
from simwarp.testing.fuzz.hunt import Difference, Witness, coverage, hunt
from simwarp.testing.fuzz.mutate import MUTATIONS, mutate, unveil
from simwarp.testing.fuzz.program import Program, is_divergent
from simwarp.testing.fuzz.recording import Recording, keep, load, record, replay, still_right
from simwarp.testing.fuzz.run import answers, digest, inputs, outputs
from simwarp.testing.fuzz.shrink import shrink
from simwarp.testing.fuzz.workers import Workers
from simwarp.testing.fuzz.writer import module_text

__all__ = [
    "MUTATIONS",
    "Difference",
    "Program",
    "Recording",
    "Witness",
    "Workers",
    "answers",
    "coverage",
    "digest",
    "generate",
    "hunt",
    "inputs",
    "is_divergent",
    "keep",
    "load",
    "module_text",
    "mutate",
    "outputs",
    "record",
    "replay",
    "shrink",
    "still_right",
    "unveil",
]
