"""The CPU time of the PTX executor in this tree and in another one, measured in turns on one core.

    python benchmarks/against.py OTHER [--pairs 15] [--only CASE] [--json benchmarks/results/cpu/against.json]

OTHER is a checkout of an older commit. ``against/<case>``: its CPU seconds divided by ours, the median over
the pairs; 1 is equal, more is better. The cases are those of ``benchmarks/ptx.py``, with a product of 256³
for ``gemm``; each side checks its answers. ``against/mean`` is the geometric mean.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
from common import ROOT, Row, Side, about_this_run, parser_of, publish, use_one_core
from ptx import CASES, Case
from ptx_cases import gemm

SMALL_GEMM = {"m": 256, "n": 256, "k": 256}
NOT_COMPARED = {"gemm-1024", "spmv-two-workers", "wgmma-f16-256", "wgmma-b1-1024"}
"""Cases that take long, need two cores, or need instructions that older commits lack."""
COMPARED = {name: case for name, case in CASES.items() if name not in NOT_COMPARED}
COMPARED["gemm-256"] = Case(gemm, SMALL_GEMM, SMALL_GEMM)
TARGET, TARGET_OF_MEAN = 0.85, 0.9


def serve(name: str) -> None:
    """Run a case once for each input line, and print the CPU seconds of its launch."""
    random, case = np.random.default_rng(), COMPARED[name]
    with patch.object(time, "perf_counter", time.process_time), case.within():
        case.sample(random, **case.small, **case.options)
        for _ in sys.stdin:
            seconds, _ = case.sample(random, **case.size, **case.options)
            print(seconds, flush=True)


def compared(name: str, other: Path, pairs: int) -> Row:
    """Measure one case on both trees."""
    script, *command = str(Path(__file__).resolve()), ".", "--serve", name
    their_script = other / "benchmarks" / "against.py"  # each side names modules as its tree does
    with ExitStack() as stack:
        cache = Path(stack.enter_context(TemporaryDirectory()))  # of the other tree: its entries may differ
        theirs = stack.enter_context(Side([str(their_script), *command], other, cache))
        ours = stack.enter_context(Side([script, *command], ROOT))
        samples = [(theirs.sample(), ours.sample()) for _ in range(pairs)]
    ratios = [a / b for a, b in samples]
    lower, _, upper = quantiles(ratios, n=4)
    params = {"pairs": pairs, "seconds": median(b for _, b in samples), "quartiles": [lower, upper]}
    return Row(f"against/{name}", params, "times", "higher", median(ratios), target=TARGET)


def commit_of(tree: Path) -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("other", type=Path, metavar="OTHER")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=COMPARED, default=list(COMPARED), metavar="CASE")
    parser.add_argument("--serve", choices=COMPARED, help=argparse.SUPPRESS)
    options = parser.parse_args()
    use_one_core()
    if options.serve:
        serve(options.serve)
        return
    other = options.other.resolve()
    meta = about_this_run(other=commit_of(other))
    rows = [compared(name, other, options.pairs) for name in options.only]
    mean = geometric_mean(row.ours for row in rows)
    rows.append(Row("against/mean", {"rows": len(rows)}, "times", "higher", mean, target=TARGET_OF_MEAN))
    publish(options.json, meta, rows)


if __name__ == "__main__":
    main()
