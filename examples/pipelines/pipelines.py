"""Shared by the pipelines: compilation, input whose products are exact, all schedules, and the command line.

Inputs are bits, or small multiples of 1/8, so every sum of their products is exact in int32 or float32, in
whatever order it is taken: the kernels are compared with NumPy bit for bit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import simwarp
from gpu.compile import Ptx, compile
from gpu.cuda import default_device
from reference import NoGpuError
from simwarp.device.schedules import Schedule, compare_schedules
from simwarp.observe.pipeline import Pipeline
from simwarp.verify import Draw

SCHEDULES = (Schedule("lowest pc"), Schedule("stack"), Schedule("random", 0), Schedule("random", 1))

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Example:
    """A kernel with its host code.

    Attributes
    ----------
    name : str
        The file's, without ``.cu``.
    arch : (int, int)
        The compute capability that it is written for.
    shapes : tuple of shapes
        Problems that it solves when it runs as a script.
    run : callable
        From a device, a shape and a seed to the result.
    expected : callable
        From a shape and a seed to the result by NumPy.
    """

    name: str
    arch: tuple[int, int]
    shapes: tuple[Shape, ...]
    run: Callable[[Any, Shape, int], Array]
    expected: Callable[[Shape, int], Array]


@dataclass(frozen=True)
class Outcome:
    """What came of one shape.

    Attributes
    ----------
    shape : shape
    right : bool
        Whether every schedule, or the GPU, gave the bits of NumPy.
    schedules : list of str
        The schedules that ran; [] on a GPU.
    equal : bool
        Whether they gave the same bits.
    findings : list of str
        The faults that the checks found, and the schedules that declined.
    """

    shape: Shape
    right: bool
    schedules: list[str]
    equal: bool
    findings: list[str]

    @property
    def good(self) -> bool:
        """Whether the result is right under all schedules, without a finding."""
        return self.right and self.equal and not self.findings

    def to_text(self) -> str:
        """One line, and the findings below it."""
        words = ["right" if self.right else "WRONG"]
        if self.schedules:
            words.append(f"{'equal' if self.equal else 'DIFFERENT'} under {', '.join(self.schedules)}")
            words.append(f"{len(self.findings) or 'no'} finding{'s' * (len(self.findings) != 1)}")
        return "\n".join([f"{'x'.join(map(str, self.shape))}: {'; '.join(words)}", *self.findings])


def ptx(name: str, arch: tuple[int, int], defines: Mapping[str, int] | None = None) -> Ptx:
    """Compile ``<name>.cu`` of this folder."""
    return compiled(Path(__file__).with_name(f"{name}.cu").read_text(), f"{name}.cu", arch, defines)


def compiled(source: str, name: str, arch: tuple[int, int], defines: Mapping[str, int] | None = None) -> Ptx:
    """Compile a source with the headers of this folder; for 9.0, with the instructions of sm_90a."""
    options = ["--gpu-architecture=compute_90a"] if arch == (9, 0) else []
    folder = Path(__file__).parents[1]
    return compile(source, f"pipelines/{name}", defines, arch, folder=folder, options=options)


def divide_up(n: int, size: int) -> int:
    """The number of tiles of ``size`` that hold ``n`` elements."""
    return -(-n // size)


def eighths(source: Draw, *shape: int) -> npt.NDArray[np.float32]:
    """Random multiples of 1/8 from -2 to 15/8: the sum of 65,536 products of two is exact."""
    numbers = (source.words(int(np.prod(shape))) >> np.uint64(59)).astype(np.int64) - 16
    return (numbers / 8).astype(np.float32).reshape(shape)


def pitched(array: Array) -> Array:
    """The array with its rows filled up to multiples of 16 bytes, by NaN, which no product may meet."""
    more = -array.shape[-1] % (16 // array.itemsize)
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, more)], constant_values=np.nan)


def bits(source: Draw, *shape: int) -> npt.NDArray[np.uint8]:
    """Random 0s and 1s."""
    return (source.words(int(np.prod(shape))) >> np.uint64(63)).astype(np.uint8).reshape(shape)


def packed(lines: npt.NDArray[np.uint8], tiles: int = 1) -> npt.NDArray[np.uint32]:
    """The (words, lines) operand of `cluster.cuh` that has these (lines, k) bits.

    Zeros fill it up to multiples of 256 bits and of ``tiles`` tiles.
    """
    n, k = lines.shape
    whole = np.pad(lines, ((0, -n % (64 * tiles)), (0, -k % 256)))
    words = np.ascontiguousarray(np.packbits(whole, axis=1, bitorder="little")).view(np.uint32)
    return np.ascontiguousarray(words.T)


def simulate(example: Example, shape: Shape, seed: int) -> Outcome:
    """Run under every schedule, with all checks."""
    expected, right = example.expected(shape, seed), list[bool]()

    def run(device: simwarp.Device) -> Array:
        result = example.run(device, shape, seed)
        right.append(same_bits(expected, result))
        return result

    found = compare_schedules(run, SCHEDULES, "report", partial(simwarp.Device, example.arch))
    findings = [*map(str, found.faults), *found.declined.values()]
    return Outcome(shape, all(right), list(map(label, found.compared)), not len(found), findings)


def label(schedule: Schedule) -> str:
    """The name of a schedule, with its seed if it is random."""
    return f"random {schedule.seed}" if schedule.name == "random" else schedule.name


def launch(example: Example, device: Any, shape: Shape, seed: int) -> Outcome:
    """Run on a GPU."""
    right = same_bits(example.expected(shape, seed), example.run(device, shape, seed))
    return Outcome(shape, right, [], True, [])


def timeline(example: Example, shape: Shape, seed: int) -> Pipeline:
    """When the stages of the first block are filled, read and free."""
    device = simwarp.Device(example.arch, observe="pipeline")
    example.run(device, shape, seed)
    return device.report.pipeline


def same_bits(expected: Array, result: Array) -> bool:
    """Whether two arrays have the same type, shape and bytes."""
    alike = (expected.dtype, expected.shape) == (result.dtype, result.shape)
    return alike and expected.tobytes() == result.tobytes()


def main(example: Example) -> int:
    """Run an example from the command line; return 0 if all shapes are right and nothing is found, else 1."""
    parser = argparse.ArgumentParser(description=f"Runs {example.name}.cu and checks what it computes.")
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim", help="default: sim")
    parser.add_argument("--shape", type=int, nargs=len(example.shapes[0]), help="default: several")
    parser.add_argument("--seed", type=int, default=0, help="of the input; default: 0")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--timeline", action="store_true", help="draw the stages of the first block; with sim"
    )
    chosen = parser.parse_args()
    if chosen.timeline and chosen.device != "sim":
        parser.error("--timeline draws what the simulator observes\nleave out --device, or --timeline")
    shapes = [tuple(chosen.shape)] if chosen.shape else example.shapes
    if chosen.device == "cuda":
        try:
            device = default_device()
        except NoGpuError as error:
            parser.error(str(error))
        name, outcomes = device.name, [launch(example, device, shape, chosen.seed) for shape in shapes]
    else:
        name = simwarp.Device(example.arch).name
        outcomes = [simulate(example, shape, chosen.seed) for shape in shapes]
    drawn = [timeline(example, shape, chosen.seed) for shape in shapes if chosen.timeline]
    if chosen.json:
        cases = [vars(outcome) for outcome in outcomes]
        for case, pipeline in zip(cases, drawn, strict=False):
            case["timeline"] = pipeline.to_json()
        print(json.dumps({"example": example.name, "device": name, "cases": cases}))
    else:
        print(f"{example.name} on {name}")
        for outcome, pipeline in zip_longest(outcomes, drawn):
            print(outcome.to_text(), *([pipeline.to_text()] if pipeline else []), sep="\n")
    return 0 if all(outcome.good for outcome in outcomes) else 1
