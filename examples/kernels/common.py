"""Shared by the kernels of this folder: compilation, random input, comparison, and the command line."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import simwarp
from gpu.compile import Ptx, compile
from gpu.cuda import default_device
from reference import NoGpuError
from simwarp.verify import Draw

Outputs = dict[str, npt.NDArray[Any]]
Expected = dict[str, tuple[npt.NDArray[Any], Any]]
"""For each output the right value, and how far from it the output may lie: 0 is bit for bit."""

WARP_SIZE = 32


def ptx(name: str, arch: tuple[int, int]) -> Ptx:
    """Compile ``<name>.cu`` of this folder."""
    source = Path(__file__).with_name(f"{name}.cu").read_text()
    return compile(source, f"kernels/{name}.cu", arch=arch)


def kernel(device: Any, file: str, name: str = "") -> Any:
    """A kernel of ``<file>.cu``; by default the one with the name of the file."""
    return device.load(ptx(file, device.compute_capability).text).kernel(name or file)


def divide_up(n: int, size: int) -> int:
    """The number of blocks of ``size`` that hold ``n`` elements."""
    return -(-n // size)


def whole(source: Draw, n: int, end: int) -> npt.NDArray[np.uint32]:
    """``n`` random integers from 0 to ``end`` - 1."""
    return (source.words(n) % np.uint64(end)).astype(np.uint32)


def reals(source: Draw, *shape: int) -> npt.NDArray[np.float32]:
    """Random numbers from -1 to 1 in steps of 2**-23: each is a float32 exactly."""
    steps = (source.words(int(np.prod(shape))) >> np.uint64(40)).astype(np.float64)
    return (steps * 2.0**-23 - 1).astype(np.float32).reshape(shape)


def gamma(n: int) -> float:
    """A bound on the relative error of ``n`` roundings of float32 (Higham, "Accuracy and Stability", 3.1)."""
    unit = 2.0**-24
    return n * unit / (1 - n * unit)


def is_right(outputs: Outputs, expected: Expected) -> bool:
    """Whether every output has the right shape and an error within its bound."""
    for name, (right, bound) in expected.items():
        got = outputs[name]
        if got.shape != right.shape or not np.all(np.abs(got - right.astype(np.float64)) <= bound):
            return False
    return outputs.keys() == expected.keys()


def main(name: str, run: Callable[[Any, int], Outputs], expected: Callable[[int], Expected]) -> int:
    """Run an example from the command line; return 0 if its outputs are right, else 1."""
    parser = argparse.ArgumentParser(description=f"Runs {name}.cu and checks what it computes.")
    parser.add_argument("--device", choices=("sim", "cuda"), help="default: the GPU, if there is one")
    parser.add_argument("--seed", type=int, default=0, help="of the input; default: 0")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    try:
        device = choose_device(chosen.device)
    except NoGpuError as error:
        parser.error(str(error))
    outputs = run(device, chosen.seed)
    right = is_right(outputs, expected(chosen.seed))
    digests = {key: hashlib.sha256(output.tobytes()).hexdigest() for key, output in outputs.items()}
    if chosen.json:
        print(json.dumps({"kernel": name, "device": device.name, "right": right, "sha256": digests}))
    else:
        print(f"{name} on {device.name}: {'right' if right else 'WRONG'}")
        print(*(f"{key} {output.shape}: {digests[key][:16]}" for key, output in outputs.items()), sep=", ")
    return 0 if right else 1


def choose_device(name: str | None) -> Any:
    """The device of a name; by default the GPU or, without one, the simulator."""
    if name == "sim":
        return simwarp.Device()
    try:
        return default_device()
    except NoGpuError:
        if name == "cuda":
            raise
        return simwarp.Device()
