"""Shared by benchmarks: options, one core, the provenance of numbers, and the JSON that the pages show."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeVar

from reference.files import write_whole
from simwarp.testing.golden import commit

Case = TypeVar("Case")

ROOT = Path(__file__).resolve().parents[1]
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Row:
    """One line of a result; figures are medians from the same run on the same machine."""

    case: str  # e.g. "ptx/bmm32-512"
    params: Mapping[str, Any]  # sizes, element types, repetitions
    unit: str  # of ours and of each peer
    better: Literal["higher", "lower"]
    ours: float
    peers: Mapping[str, float] = field(default_factory=dict)
    floor: float | None = None  # the least figure that passes
    target: float | None = None  # the figure that is aimed at


def use_one_core() -> None:
    """Restrict this process and its children to one core and one thread per library.

    Libraries read the number of threads when they are loaded, so the script starts over.
    """
    cores = os.sched_getaffinity(0)
    if len(cores) == 1 and all(os.environ.get(name) == "1" for name in _THREADS):
        return
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    os.sched_setaffinity(0, {max(cores)})
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class Side:
    """A process that takes a sample for each line that it reads, and prints the seconds.

    ``command`` is a Python script and its arguments; ``root``, the tree whose packages it imports; ``cache``,
    the folder of its compiled kernels.
    """

    def __init__(self, command: Sequence[str], root: Path, cache: Path | None = None) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root)}
        if cache is not None:
            environment["SIMWARP_CACHE"] = str(cache)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([sys.executable, *command], env=environment, cwd=root, **pipes)

    def __enter__(self) -> Side:
        self.sample()  # compiles, parses, links: does not count
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def sample(self) -> float:
        """Take one more sample, in seconds."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process has no pipes")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def about_this_run(**more: Any) -> dict[str, Any]:
    """The machine, the versions, the commit and the command; call it before measuring, for the load."""
    script = Path(sys.argv[0]).resolve().relative_to(ROOT)
    return {
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
        **more,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "command": f"python {script.as_posix()}",
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def show(rows: Sequence[Row]) -> None:
    width = max(len(row.case) for row in rows)
    for row in rows:
        peers = "".join(f"   {name} {value:.4g}" for name, value in row.peers.items())
        target = "" if row.target is None else f"   (target {row.target:.4g})"
        print(f"{row.case:{width}}  {row.ours:9.4g} {row.unit}{target}{peers}")


def write(path: Path, meta: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write a result to a file atomically."""
    text = json.dumps({"meta": meta, "rows": [asdict(row) for row in rows]}, indent=2) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(text.encode()))


def publish(path: Path | None, meta: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Show a result, and write it to a file if one is named."""
    show(rows)
    if path:
        write(path, meta, rows)


def merged(paths: Sequence[Path]) -> tuple[dict[str, Any], list[Row]]:
    """The rows of several results of one commit on one kind of GPU.

    A row in several results has the median of their figures; all figures are kept in its parameters.
    """
    parts = [json.loads(path.read_text()) for path in paths]
    for what in ("commit", "gpu"):
        found = sorted({str(part["meta"].get(what)) for part in parts})
        if len(found) > 1:
            raise SystemExit(
                f"--merge: {what} is {' in one file and '.join(found)} in another\n"
                f"figures of different {what}s do not belong together\nmeasure the parts again at one"
            )
    by_case: dict[str, list[Row]] = {}
    for part in parts:
        for row in part["rows"]:
            by_case.setdefault(row["case"], []).append(Row(**row))
    return {**parts[0]["meta"], "parts": len(parts)}, [_median_of(rows) for rows in by_case.values()]


def _median_of(rows: Sequence[Row]) -> Row:
    """One row of the same case's rows from several runs."""
    if len(rows) == 1:
        return rows[0]
    runs = [run for row in rows for run in row.params.get("runs", [row.ours])]
    params = {**rows[0].params, "runs": runs, "calls": [row.ours for row in rows]}
    names = dict.fromkeys(name for row in rows for name in row.peers)
    peers = {name: median(row.peers[name] for row in rows if name in row.peers) for name in names}
    return replace(rows[0], params=params, ours=median(row.ours for row in rows), peers=peers)


# ---- the command line ------------------------------------------------------------------------------


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser with the option ``--json``, described by the first line of a script's docstring."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results to this file, too")
    return parser


def measure(
    text: str | None,
    cases: Mapping[str, Case],
    rows: Callable[[dict[str, Case]], Iterable[Row]],
    **about: Any,
) -> None:
    """Measure the cases that the options name on one core, and publish their rows."""
    parser = parser_of(text)
    parser.add_argument("--only", nargs="+", choices=cases, default=list(cases), help="run these cases")
    options = parser.parse_args()
    use_one_core()
    meta = about_this_run(**about)
    publish(options.json, meta, list(rows({name: cases[name] for name in options.only})))
