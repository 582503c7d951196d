"""The outputs of the kernels in ``examples/kernels``: of seed 0 as they are, of others as digests.

>>> names()[:2]
['bitonic_sort', 'gemm']
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.lab.recording import Answers, Asking, Subject, example, examples
from simwarp.testing.golden import sha256

SEEDS = range(3)


@cache
def names() -> list[str]:
    """The kernels."""
    return sorted(path.stem for path in examples("kernels").glob("*.cu"))


def answers(device: Any, name: str, seed: int) -> dict[str, npt.NDArray[Any]]:
    """The outputs of an example as a recording keeps them, by name."""
    outputs = example("kernels", name).run(device, seed)
    return {f"{name}.{key}.{seed}": kept(output, seed) for key, output in outputs.items()}


def kept(output: npt.NDArray[Any], seed: int) -> npt.NDArray[Any]:
    """The output itself or, past the first seed, its SHA-256."""
    return output if seed == SEEDS[0] else np.frombuffer(bytes.fromhex(sha256(output)), np.uint8)


def ptx_digests(arch: tuple[int, int]) -> dict[str, str]:
    """The SHA-256 of each kernel's PTX."""
    common = example("kernels", "common")
    return {name: common.ptx(name, arch).sha256 for name in names()}


def ask(asking: Asking) -> Answers:
    """Run every example."""
    outputs: dict[str, npt.NDArray[Any]] = {}
    asked = [(name, seed) for name in names()[: asking.number(len(names()), 2)] for seed in SEEDS]
    for name, seed in asking.each(asked):
        outputs |= answers(asking.device, name, seed)
    return Answers({"seeds": list(SEEDS)}, outputs, ptx_digests(asking.device.compute_capability))


SUBJECTS = [Subject("kernels", "outputs of examples/kernels", ask)]
