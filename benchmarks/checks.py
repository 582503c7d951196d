"""The cost of checks and observers: the same launches with and without them, on one core.

    python benchmarks/checks.py [--against FOLDER] [--json benchmarks/results/cpu/checks.json]

``checks/…``: the time with the default checks, as a multiple of the time with ``checks="off"`` (which still
keeps accesses within bounds: the simulator could not run without). ``checks/observers-off/…``: the time of
launches that nobody observes, as a multiple of the time on a copy of the package from which every statement
that makes an event was taken out. The two sides take turns, each in a process of its own; every launch has
new random operands, and its answer is compared with the reference.

``checks/against/…``: the CPU time of this tree, checks on, as a multiple of that of the tree in FOLDER, a
checkout of an older commit.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from shutil import copytree, ignore_patterns
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

import numpy as np
from common import ROOT, Row, Side, about_this_run, parser_of, show, use_one_core, write
from ptx_cases import cp_async, filter_ldg, gemm, multiply, reduction, wgmma_f16

from gpu.compile import compiler_version

SAMPLES = {
    "bmm32": multiply,
    "gemm-1024": gemm,
    "gemm-256": gemm,
    "ldg": filter_ldg,
    "reduction": reduction,
    "reduction-volatile": reduction,
    "reduction-volatile-synced": reduction,
    "volatile-behind-barrier": reduction,
    "volatile-behind-fence": reduction,
    "cp-async": cp_async,
    "wgmma": wgmma_f16,
}
SIZES: dict[str, dict[str, Any]] = {
    "bmm32": {"m": 1024, "n": 1024, "k": 1024, "chunk_lanes": 16384},
    "gemm-1024": {"m": 1024, "n": 1024, "k": 1024},
    "gemm-256": {"m": 256, "n": 256, "k": 256},
    "ldg": {"blocks": 256, "threads": 256},
    "reduction": {"blocks": 256, "threads": 256, "kernel": "reduce", "folds": 0},
    "reduction-volatile": {"blocks": 64, "threads": 256, "kernel": "reduce_volatile", "folds": 0},
    "reduction-volatile-synced": {
        "blocks": 64,
        "threads": 256,
        "kernel": "reduce_volatile_synced",
        "folds": 0,
    },
    "volatile-behind-barrier": {
        "blocks": 8,
        "threads": 256,
        "kernel": "volatile_behind_barrier",
        "folds": 25,
    },
    "volatile-behind-fence": {"blocks": 8, "threads": 256, "kernel": "volatile_behind_fence", "folds": 25},
    "cp-async": {"m": 128, "n": 128, "k": 128},
    "wgmma": {"m": 128, "n": 128, "k": 128},
}
CHECKED = {"bmm32": 15, "gemm-1024": 3}
"""Runs of the launches with and without checks."""
UNOBSERVED = {"bmm32": 41, "gemm-256": 21}
"""Runs of the launches with and without events: more, since the difference is small."""
AGAINST = {
    "ldg": (15, 1.05),
    "reduction": (15, 1.05),
    "reduction-volatile": (9, 0.2),
    "reduction-volatile-synced": (9, 0.2),
    "volatile-behind-barrier": (5, 0.1),
    "volatile-behind-fence": (5, 0.1),
    "cp-async": (15, 1.05),
    "wgmma": (15, 1.05),
}
"""Runs of the launches on this and on another tree, and the target of their ratio."""
EVENTS = {"observed", "on_step", "on_access", "on_write", "on_barrier"}
"""A statement under a condition, or in a loop, over one of these makes an event."""


class WithoutEvents(ast.NodeTransformer):
    """Remove the code that makes events from a module's syntax tree."""

    def __init__(self) -> None:
        self.taken = 0

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Remove ``if`` statements on whether an event has observers."""
        return self._without(node, node.test)

    def visit_For(self, node: ast.For) -> ast.AST | None:
        """Remove loops over the observers of an event."""
        return self._without(node, node.iter)

    def _without(self, node: ast.AST, condition: ast.expr) -> ast.AST | None:
        names = {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(condition)}
        if names & EVENTS:
            self.taken += 1
            return ast.Pass()
        return self.generic_visit(node)


@contextmanager
def package_without_events() -> Iterator[Path]:
    """Copy the tree, with an executor that does not make events."""
    with tempfile.TemporaryDirectory() as folder:
        root, taken = Path(folder), 0
        for name in ("reference", "simwarp", "gpu", "benchmarks", "examples"):
            copytree(ROOT / name, root / name, ignore=ignore_patterns("__pycache__", "results"))
        for path in (root / "simwarp" / "engine").glob("*.py"):
            transformer = WithoutEvents()
            tree = ast.fix_missing_locations(transformer.visit(ast.parse(path.read_text())))
            if transformer.taken:
                path.write_text(ast.unparse(tree))
                taken += transformer.taken
        if taken < 5:
            raise RuntimeError(f"only {taken} statements make events: the copy would show nothing")
        yield root


def side_of(root: Path, case: str, checks: str) -> Side:
    """Start a process that runs a case on the package in ``root``."""
    return Side([str(root / "benchmarks" / "checks.py"), "--serve", case, "--checks", checks], root)


def side_against(root: Path, case: str, cache: Path) -> Side:
    """Start a process that runs this script's case on the package in ``root``, and takes its CPU time."""
    return Side([str(ROOT / "benchmarks" / "checks.py"), "--serve", case, "--checks", "default"], root, cache)


def serve(case: str, checks: str) -> None:
    """Run a case once for each input line; with checks "default", print the CPU seconds."""
    random = np.random.default_rng()
    options: dict[str, Any] = {} if checks == "default" else {"checks": checks}
    with patch.object(time, "perf_counter", time.perf_counter if options else time.process_time):
        for _ in sys.stdin:
            seconds, _ = SAMPLES[case](random, **SIZES[case], **options)
            print(seconds, flush=True)


def compared(case: str, name: str, sides: Sequence[Side], repetitions: int, target: float) -> Row:
    """The ratio of the median times of the first and the second side."""
    samples = [[side.sample() for side in sides] for _ in range(repetitions)]
    ours, other = (median(times) for times in zip(*samples, strict=True))
    lower, _, upper = quantiles([a / b for a, b in samples], n=4)
    params = {
        **SIZES[case],
        "seconds": ours,
        "seconds_without": other,
        "repetitions": repetitions,
        "quartiles": [lower, upper],
    }
    return Row(f"checks/{name}", params, "times", "lower", ours / other, target=target)


def rows_against(other: Path, cases: Sequence[str]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:  # for the kernels of each tree
        for case in cases:
            repetitions, target = AGAINST[case]
            with ExitStack() as stack:
                roots = enumerate((ROOT, other))
                sides = [stack.enter_context(side_against(r, case, Path(folder, str(i)))) for i, r in roots]
                yield compared(case, f"against/{case}", sides, repetitions, target)


def rows() -> Iterator[Row]:
    for case, repetitions in CHECKED.items():
        with ExitStack() as stack:
            sides = [stack.enter_context(side_of(ROOT, case, checks)) for checks in ("raise", "off")]
            yield compared(case, case, sides, repetitions, 2.0)
    with package_without_events() as copy:
        for case, repetitions in UNOBSERVED.items():
            with ExitStack() as stack:
                sides = [stack.enter_context(side_of(root, case, "raise")) for root in (ROOT, copy)]
                yield compared(case, f"observers-off/{case}", sides, repetitions, 1.03)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="a checkout to compare with")
    parser.add_argument("--only", nargs="+", choices=AGAINST, metavar="CASE", help="cases of --against alone")
    parser.add_argument("--serve", choices=SAMPLES, help=argparse.SUPPRESS)
    parser.add_argument("--checks", default="raise", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.checks)
        return
    use_one_core()
    meta = about_this_run(nvrtc=compiler_version().removeprefix("NVRTC "))
    against = (
        () if options.against is None else rows_against(options.against.resolve(), options.only or [*AGAINST])
    )
    found: list[Row] = []
    for row in chain(() if options.only else rows(), against):
        show([row])
        found.append(row)
    if options.json:
        write(options.json, meta, found)


if __name__ == "__main__":
    main()
