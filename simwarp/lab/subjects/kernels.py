"""The subject that records the outputs of ``examples/kernels``: whole for seed 0, else as digests.

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
    """The names of the example kernels."""
    return sorted(path.stem for path in examples("kernels").glob("*.cu"))


def answers(device: Any, name: str, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Run an example; return its outputs by name, as SHA-256 except for the first seed."""
    outputs = example("kernels", name).run(device, seed)
    if seed != SEEDS[0]:
        outputs = {key: np.frombuffer(bytes.fromhex(sha256(x)), np.uint8) for key, x in outputs.items()}
    return {f"{name}.{key}.{seed}": output for key, output in outputs.items()}


def ptx_digests(arch: tuple[int, int]) -> dict[str, str]:
    """The SHA-256 of each example kernel's PTX, by the kernel's name."""
    common = example("kernels", "common")
    return {name: common.ptx(name, arch).sha256 for name in names()}


def ask(asking: Asking) -> Answers:
    """Run every example kernel with every seed, and record the outputs."""
    outputs: dict[str, npt.NDArray[Any]] = {}
    asked = [(name, seed) for name in names()[: asking.number(len(names()), 2)] for seed in SEEDS]
    for name, seed in asking.each(asked):
        outputs |= answers(asking.device, name, seed)
    return Answers({"seeds": list(SEEDS)}, outputs, ptx_digests(asking.device.compute_capability))


SUBJECTS = [Subject("kernels", "outputs of examples/kernels", ask)]
