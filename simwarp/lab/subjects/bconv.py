"""The subjects that compare bit convolutions of thousands of geometries with the reference.

The geometries have every scheme, class and kind of output; those of the scheme on warpgroups are a subject of
their own, and so are those of large windows, some in groups. Convolutions reuse memory of earlier ones.

>>> large_input(tuple(SCHEMES), 3).scheme
'btc2'
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gpu.bconv.schemes import SCHEMES
from gpu.bconv.warpgroups import WARPGROUP_SCHEMES
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.verify import CASES, Draw
from simwarp.verify.cases.bconv2d import OUTPUTS, Input, picture
from simwarp.verify.geometries import Geometry
from simwarp.verify.geometry_classes import classes_of

SEED = 7
GEOMETRIES, LARGE = 20_000, 48
OF_WARPGROUPS = 5_200
CHANNELS, OF_EVERY_COPY = (3, 33, 64, 129), (64, 129, 256, 512, 1024, 1100)
"""Channels of large convolutions; on warpgroups few, for patches, and many, for both kinds of copies."""
FIRST = 500
"""The number of inputs whose answers are part of the recorded digest."""


def large_input(schemes: Sequence[str], k: int) -> Input:
    """Input k of the large convolutions, which fill the largest tiles of every scheme."""
    draw = Draw(SEED, "large bconv2d", k)
    choice = OF_EVERY_COPY if schemes == tuple(WARPGROUP_SCHEMES) else CHANNELS
    channels, filters = draw.choice(choice), draw.choice((40, 64, 72, 129))
    geometry = Geometry(
        (draw.integer(4, 5), draw.integer(60, 70), draw.integer(60, 70), channels),
        (draw.integer(1, 4), draw.integer(1, 4), channels, filters),
        (1, 1),
        draw.choice(("SAME", "VALID", ((3, 1), (0, 5)))),
        (draw.integer(1, 3), draw.integer(1, 3)),
    )
    shapes = geometry.images, geometry.filters
    x, w = (draw.matrix(math.prod(shape[:3]), shape[3], "int8").reshape(shape) for shape in shapes)
    item = Input(x, w, geometry, schemes[k % len(schemes)])
    output = OUTPUTS[k // len(schemes) % 4]
    if output == "int32":
        return item
    spread = math.isqrt(math.prod(geometry.filters[:3])) + 1
    thresholds = np.array([draw.integer(-spread, spread) for _ in range(filters)], np.int32)
    flip = np.array([draw.integer(0, 1) for _ in range(filters)], bool)
    return replace(item, thresholds=thresholds, flip=flip, pool=None if output == "bits" else output)


def ask(name: str, schemes: Sequence[str], enough: int, asking: Asking) -> Answers:
    """Compare inputs of a case until enough geometries have occurred, then large inputs of some schemes."""
    case = CASES[name]
    geometries, first = asking.number(enough, 20), asking.number(FIRST, 10)
    seen: set[Geometry] = set()
    counts = {name: Counter[str]() for name in ("schemes", "classes", "outputs", "taps", "groups")}
    differences: list[str] = []
    digest = hashlib.sha256()

    def compare(name: str, item: Input) -> bytes:
        expected, got = case.answers["reference"](item), case.answers["gpu"](item, asking.device)
        seen.add(item.geometry)
        counts["schemes"][item.scheme] += 1
        counts["classes"].update(classes_of(item.geometry))
        counts["taps"][str(max(item.geometry.filters[:2]))] += 1  # the longer side of the window
        counts["groups"][str(item.geometry.groups)] += 1
        counts["outputs"]["int32" if item.thresholds is None else item.pool or "bits"] += 1
        if not case.equal(item, expected, got):
            differences.append(f"{name}: {case.describe(item)}\n{difference(item, expected, got)}")
        return np.ascontiguousarray(got).tobytes()

    inputs = 0
    while len(seen) < geometries or inputs < first:
        answer = compare(f"input {inputs}", case.draw(Draw(SEED, case.name, inputs)))
        if inputs < first:
            digest.update(answer)
        inputs += 1
        asking.progress(len(seen), geometries)
    large = asking.number(LARGE if schemes else 0, 0)
    for k in range(large):
        compare(f"large input {k}", large_input(schemes, k))
    facts = {"seed": SEED, "inputs": inputs + large, "geometries": len(seen), "mismatches": len(differences)}
    facts |= {name: dict(count) for name, count in counts.items()}
    facts |= {"first": first, "digest_of_first": digest.hexdigest()}
    ptx = case.kernels(asking.device.compute_capability)
    return Answers(facts, ptx=ptx, differences=differences)


def difference(item: Input, expected: np.ndarray, got: np.ndarray) -> str:
    """Describe the first wrong output element, and the window of the input from which it is computed."""
    if expected.shape != got.shape:
        return f"expected {expected.shape}, got {got.shape}"
    element = tuple(int(i) for i in np.argwhere(expected != got)[0])
    return f"expected {expected[element]}, got {got[element]} at {element}\n{picture(item, element, 0)}"


SUBJECTS = [
    Subject(
        "bconv2d-geometries",
        "bit convolutions of 20,000 geometries, by digest",
        partial(ask, "bconv2d", tuple(SCHEMES), GEOMETRIES),
    ),
    Subject(
        "bconv2d-wgmma-geometries",
        "those of 5,200 geometries on warpgroups",
        partial(ask, "bconv2d-wgmma", tuple(WARPGROUP_SCHEMES), OF_WARPGROUPS),
    ),
    Subject(
        "bconv2d-windows-geometries",
        "those of 20,000 geometries of large windows",
        partial(ask, "bconv2d-windows", (), GEOMETRIES),
    ),
]
