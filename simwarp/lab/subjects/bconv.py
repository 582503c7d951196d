"""The subject that compares bit convolutions of 20,000 geometries with the reference.

The geometries have every scheme, class and kind of output. Convolutions reuse memory of earlier ones.

>>> large_input(3).scheme
'btc2'
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import replace

import numpy as np

from gpu.bconv.schemes import SCHEMES
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.verify import CASES, Draw
from simwarp.verify.cases.bconv2d import OUTPUTS, Input, picture
from simwarp.verify.geometries import Geometry, classes_of

CASE = CASES["bconv2d"]
SEED = 7
GEOMETRIES, LARGE = 20_000, 48
FIRST = 500
"""The number of inputs whose answers are part of the recorded digest."""


def large_input(k: int) -> Input:
    """Input k of the large convolutions, which fill the largest tiles of every scheme."""
    draw = Draw(SEED, "large bconv2d", k)
    channels, filters = draw.choice((3, 33, 64, 129)), draw.choice((40, 64, 72, 129))
    geometry = Geometry(
        (draw.integer(4, 5), draw.integer(60, 70), draw.integer(60, 70), channels),
        (draw.integer(1, 4), draw.integer(1, 4), channels, filters),
        (1, 1),
        draw.choice(("SAME", "VALID", ((3, 1), (0, 5)))),
        (draw.integer(1, 3), draw.integer(1, 3)),
    )
    shapes = geometry.images, geometry.filters
    x, w = (draw.matrix(math.prod(shape[:3]), shape[3], "int8").reshape(shape) for shape in shapes)
    item = Input(x, w, geometry, list(SCHEMES)[k % 4])
    output = OUTPUTS[k // 4 % 4]
    if output == "int32":
        return item
    spread = math.isqrt(math.prod(geometry.filters[:3])) + 1
    thresholds = np.array([draw.integer(-spread, spread) for _ in range(filters)], np.int32)
    flip = np.array([draw.integer(0, 1) for _ in range(filters)], bool)
    return replace(item, thresholds=thresholds, flip=flip, pool=None if output == "bits" else output)


def ask(asking: Asking) -> Answers:
    """Compare inputs of the case until enough geometries have occurred, then large inputs."""
    geometries, first = asking.number(GEOMETRIES, 20), asking.number(FIRST, 10)
    seen: set[Geometry] = set()
    counts = {name: Counter[str]() for name in ("schemes", "classes", "outputs")}
    differences: list[str] = []
    digest = hashlib.sha256()

    def compare(name: str, item: Input) -> bytes:
        expected, got = CASE.answers["reference"](item), CASE.answers["gpu"](item, asking.device)
        seen.add(item.geometry)
        counts["schemes"][item.scheme] += 1
        counts["classes"].update(classes_of(item.geometry))
        counts["outputs"]["int32" if item.thresholds is None else item.pool or "bits"] += 1
        if not CASE.equal(item, expected, got):
            differences.append(f"{name}: {CASE.describe(item)}\n{difference(item, expected, got)}")
        return np.ascontiguousarray(got).tobytes()

    inputs = 0
    while len(seen) < geometries or inputs < first:
        answer = compare(f"input {inputs}", CASE.draw(Draw(SEED, CASE.name, inputs)))
        if inputs < first:
            digest.update(answer)
        inputs += 1
        asking.progress(len(seen), geometries)
    large = asking.number(LARGE, 0)
    for k in range(large):
        compare(f"large input {k}", large_input(k))
    facts = {"seed": SEED, "inputs": inputs + large, "geometries": len(seen), "mismatches": len(differences)}
    facts |= {name: dict(count) for name, count in counts.items()}
    facts |= {"first": first, "digest_of_first": digest.hexdigest()}
    ptx = CASE.kernels(asking.device.compute_capability)
    return Answers(facts, ptx=ptx, differences=differences)


def difference(item: Input, expected: np.ndarray, got: np.ndarray) -> str:
    """Describe the first wrong element and its window."""
    if expected.shape != got.shape:
        return f"expected {expected.shape}, got {got.shape}"
    element = tuple(int(i) for i in np.argwhere(expected != got)[0])
    return f"expected {expected[element]}, got {got[element]} at {element}\n{picture(item, element, 0)}"


SUBJECTS = [Subject("bconv2d-geometries", "bit convolutions of 20,000 geometries, by digest", ask)]
