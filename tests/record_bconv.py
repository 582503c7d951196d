"""Bit convolutions on a GPU held against the reference: many geometries, every scheme, class and output.

    python tests/record_bconv.py --out tests/golden          (on a GPU)

draws inputs of the case "bconv2d" until 20,000 different geometries have been answered, then some so large
that the schemes take the kernels with their largest tiles, and writes ``bconv2d-geometries.json``: how
many inputs there were under every scheme, class and output, how many differed, and a SHA-256 digest of the
chip's answers to the first inputs, which ``tests/unit/test_verify_bconv.py`` computes again without a GPU.
Every convolution is launched into memory that others have used before. What differs is printed, the
window drawn.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.bconv.schemes import SCHEMES
from gpu.compile import compiler_version
from reference.files import write_whole
from simwarp.verify import CASES, Draw
from simwarp.verify.cases.bconv2d import OUTPUTS, Input, picture
from simwarp.verify.geometries import Geometry, classes_of

CASE = CASES["bconv2d"]
SEED = 7
GEOMETRIES = 20_000
FIRST = 500
"""Answers to so many inputs are digested."""
LARGE = 48
SHOWN = 5


def large_input(k: int) -> Input:
    """An input with work enough for the largest tiles of every scheme.

    Examples
    --------
    >>> large_input(3).scheme
    'btc2'
    """
    draw = Draw(SEED, "large bconv2d", k)
    channels, filters = draw.choice((3, 33, 64, 129)), draw.choice((40, 64, 72, 129))
    geometry = Geometry(
        (draw.integer(4, 5), draw.integer(60, 70), draw.integer(60, 70), channels),
        (draw.integer(1, 4), draw.integer(1, 4), channels, filters),
        (1, 1),
        draw.choice(("SAME", "VALID", ((3, 1), (0, 5)))),
        (draw.integer(1, 3), draw.integer(1, 3)),
    )
    x, w = (
        draw.matrix(int(np.prod(shape[:3])), shape[3], "int8").reshape(shape)
        for shape in (geometry.images, geometry.filters)
    )
    item = Input(x, w, geometry, list(SCHEMES)[k % 4])
    output = OUTPUTS[k // 4 % 4]
    if output == "int32":
        return item
    spread = int(np.sqrt(np.prod(geometry.filters[:3]))) + 1
    thresholds = np.array([draw.integer(-spread, spread) for _ in range(filters)], np.int32)
    flip = np.array([draw.integer(0, 1) for _ in range(filters)], bool)
    return replace(item, thresholds=thresholds, flip=flip, pool=None if output == "bits" else output)


class Recording:
    """What has been asked so far, and how often the answers differed."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.geometries: set[Geometry] = set()
        self.schemes, self.classes, self.outputs = Counter[str](), Counter[str](), Counter[str]()
        self.inputs = self.mismatches = 0
        self.digest = hashlib.sha256()

    def ask(self, name: str, item: Input) -> npt.NDArray[Any]:
        """Hold the chip's answer against the reference's."""
        expected, got = CASE.answers["reference"](item), CASE.answers["gpu"](item, self.device)
        self.inputs += 1
        self.geometries.add(item.geometry)
        self.schemes[item.scheme] += 1
        self.classes.update(classes_of(item.geometry))
        self.outputs["int32" if item.thresholds is None else item.pool or "bits"] += 1
        if not CASE.equal(item, expected, got):
            self.mismatches += 1
            if self.mismatches <= SHOWN:
                self.show(name, item, expected, got)
        return got

    def show(self, name: str, item: Input, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> None:
        """Print the first wrong element and its window."""
        say(f"{name}: {CASE.describe(item)}")
        if expected.shape != got.shape:
            say(f"expected {expected.shape}, got {got.shape}")
            return
        element = tuple(int(i) for i in np.argwhere(expected != got)[0])
        say(f"expected {expected[element]}, got {got[element]} at {element}\n{picture(item, element, 0)}\n")


def say(text: str) -> None:
    """To the terminal, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def ask_everything(recording: Recording, geometries: int, large: int) -> None:
    """Inputs of the case until there are so many geometries, then large ones."""
    k = 0
    while len(recording.geometries) < geometries or k < FIRST:
        answer = recording.ask(f"input {k}", CASE.draw(Draw(SEED, CASE.name, k)))
        if k < FIRST:
            recording.digest.update(np.ascontiguousarray(answer).tobytes())
        k += 1
        if k % 2000 == 0:
            say(f"{k} inputs, {len(recording.geometries)} geometries, {recording.mismatches} differ")
    for k in range(large):
        recording.ask(f"large input {k}", large_input(k))


def to_json(recording: Recording, seconds: float) -> dict[str, Any]:
    """What is kept."""
    device = recording.device
    return {
        "gpu": {"name": device.name, "uuid": device.uuid},
        "driver": device.driver_version,
        "nvrtc": compiler_version(),
        "arch": list(device.compute_capability),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python tests/record_bconv.py",
        "seed": SEED,
        "inputs": recording.inputs,
        "geometries": len(recording.geometries),
        "mismatches": recording.mismatches,
        "schemes": dict(recording.schemes),
        "classes": dict(recording.classes),
        "outputs": dict(recording.outputs),
        "first": FIRST,
        "digest_of_first": recording.digest.hexdigest(),
        "seconds": round(seconds, 1),
    }


def main() -> int:
    """Record; the exit code is 1 if an answer differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("tests/golden"))
    parser.add_argument("--geometries", type=int, default=GEOMETRIES)
    parser.add_argument("--large", type=int, default=LARGE)
    arguments = parser.parse_args()

    import gpu

    start = time.perf_counter()
    recording = Recording(gpu.CudaDevice())
    ask_everything(recording, arguments.geometries, arguments.large)
    kept = to_json(recording, time.perf_counter() - start)
    text = json.dumps(kept, indent=2).encode() + b"\n"
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_whole(arguments.out / "bconv2d-geometries.json", lambda file: file.write(text))
    say(text.decode())
    return int(recording.mismatches > 0)


if __name__ == "__main__":
    sys.exit(main())
