"""A C program's ``dgemm_`` through ``libsimwarpblas.so``, beside OpenBLAS on all cores and cublasXt.

    python benchmarks/blas3_library.py [--sizes 1000 2000 …] [--rounds N] [--machine NAME] [--json PATH]

Row ``dgemm_/N``: milliseconds of a call of ``blas3_library.c`` on memory of ``malloc``, which is not
page-locked. The BLAS behind the library, and the peer, is the OpenBLAS of SciPy's wheel. cublasXt has tiles
of 4096 and one GPU; without its library the rows have no such peer. ``--machine`` simulates, as a trial.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median

import scipy
from common import ROOT, Row, about_this_run, parser_of, show, write

import gpu
from gpu.cuda_machine.library import CUBLAS
from reference.errors import SimwarpError
from simwarp.exec.blas import build_library

SIZES = (500, 1000, 1500, 2000, 3000, 4000, 6000, 8192, 12288, 16384)
_TYPES = "const char *, const char *, const int *, const int *, const int *, const double *, const double *, "
_TYPES += "const int *, const double *, const int *, const double *, double *, const int *"
_SHIM = f"""
void scipy_dgemm_({_TYPES});
void (*const of_scipy)({_TYPES}) = scipy_dgemm_;
void dgemm_(const char *s, const char *t, const int *m, const int *n, const int *k, const double *x,
    const double *a, const int *p, const double *b, const int *q, const double *y, double *c, const int *r)
{{ of_scipy(s, t, m, n, k, x, a, p, b, q, y, c, r); }}
"""


class Programs:
    """The C program with OpenBLAS behind it, and the library, in a folder."""

    def __init__(self, work: Path, machine: str | None) -> None:
        compiler = shutil.which("cc") or "gcc"
        self.program, self.library = work / "program", work / "libsimwarpblas.so"
        self._machine = {"SIMWARP_BLAS_MACHINE": machine} if machine else {}
        openblas = next((Path(scipy.__file__).parents[1] / "scipy.libs").glob("libscipy_openblas*.so"))
        (work / "shim.c").write_text(_SHIM)
        where = [f"-Wl,-rpath,{openblas.parent}", str(openblas)]
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", work / "libshim.so", work / "shim.c", *where], check=True
        )
        flags = ["-O2", f"-L{work}", "-lshim", f"-Wl,-rpath,{work}:{openblas.parent}", "-ldl", "-lm"]
        source = Path(__file__).with_suffix(".c")
        subprocess.run([compiler, "-o", self.program, source, *flags], check=True)
        build_library(self.library)

    def run(self, sizes: list[int], rounds: int, which: str) -> dict[int, float]:
        """Median milliseconds by N; empty if a peer's library is not there."""
        more: dict[str, str] = {"PYTHONPATH": str(ROOT)}
        if which == "ours":
            more |= {"LD_PRELOAD": str(self.library), "SIMWARP_BLAS_ABOVE": "0", **self._machine}
        if which == "cublasXt":
            try:
                more["XT"] = CUBLAS.load()._name
            except SimwarpError:
                return {}
        command = [str(self.program), str(rounds), *map(str, sizes)]
        done = subprocess.run(
            command, env={**os.environ, **more}, capture_output=True, text=True, check=False
        )
        if done.returncode or "simwarp:" in done.stderr:
            if which == "ours":
                raise SystemExit(done.stderr)
            print(f"{which}: {done.stderr.strip()}")
            return {}
        found: dict[int, float] = {}
        for line in done.stdout.splitlines():
            n, *seconds, error = line.split()
            if float(error) > 1e-12:
                raise SystemExit(f"{which}: wrong by {error} for N = {n}")
            found[int(n)] = round(median(map(float, seconds)) * 1e3, 4)
        return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[*SIZES], help="rows and columns")
    parser.add_argument("--rounds", type=int, default=5, help="calls of each kind")
    parser.add_argument("--machine", help="a simulated machine in place of GPUs")
    options = parser.parse_args()
    if options.machine:
        meta = about_this_run(machine=options.machine)
    else:
        with gpu.CudaMachine() as machine:
            meta = about_this_run(gpu=machine.name(0), devices=machine.devices, cores=os.cpu_count())
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(Path(folder), options.machine)
        names = ("ours", "OpenBLAS", *(() if options.machine else ("cublasXt",)))
        found = {name: programs.run(options.sizes, options.rounds, name) for name in names}
    rows = [
        Row(
            f"dgemm_/{n}",
            {"n": n, "rounds": options.rounds},
            "ms",
            "lower",
            found["ours"][n],
            {name: times[n] for name, times in found.items() if name != "ours" and n in times},
        )
        for n in options.sizes
    ]
    show(rows)
    if options.json:
        write(options.json, meta, rows)


if __name__ == "__main__":
    main()
