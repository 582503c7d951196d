"""MTTKRP and decompositions on a GPU held against the reference: thousands of tensors in every format.

    python tests/record_mttkrp.py --out tests/golden               (on a GPU)
    compute-sanitizer python tests/record_mttkrp.py --sanitizer    (few tensors, one process, writes nothing)

draws tensors of every kind, of orders 2 to 8 and of up to 20,000 nonzeros, some of about a million, and
writes ``mttkrp-tensors.json``: how many there were by format, order, rank and so on, how many were further
off than roundings explain, and the largest share of the allowed error. Deterministic ones are asked twice,
and must answer the same bits. Of the first inputs of the case "mttkrp", all made deterministic, it keeps
the SHA-256 of the chip's answers, and of decompositions of planted tensors the fits and the SHA-256 of the
factors: ``tests/replay/test_mttkrp.py`` computes both again without a GPU. What differs is printed.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import reference
from gpu.compile import compiler_version
from reference.files import write_whole
from reference.types import Coo, Cpd
from simwarp.verify import CASES, Draw
from simwarp.verify.cases.mttkrp import DTYPES, FORMATS, Input
from simwarp.verify.tensors import KINDS, draw_factors, draw_tensor

CASE = CASES["mttkrp"]
SEED = 11
TENSORS, LARGE, SANITIZED = 2100, 28, 140
FIRST = 60
"""Inputs of the case whose answers are digested."""
ORDERS, RANKS = (2, 3, 4, 5, 6, 7, 8), (1, 7, 16, 32, 33, 48, 64, 100)
MOST = (600, 6_000, 20_000)
"""Nonzeros of a tensor, by turns."""
MILLION = 3_600_000
"""Asked for; about a million are different."""
SHOWN = 5


# --------------------------------------------------------------------------------------------------
# What is asked
# --------------------------------------------------------------------------------------------------


def tensor_input(seed: int, k: int) -> Input:
    """Input k of the tensors up to 20,000 nonzeros: the first 392 have all formats, orders and ranks."""
    rank = RANKS[k // 49 % 8]
    return _input(Draw(seed, "tensors", k), KINDS[k % 11], ORDERS[k // 7 % 7], rank, MOST[k % 3])


def large_input(seed: int, k: int) -> Input:
    """Input k of the tensors of about a million nonzeros."""
    return _input(Draw(seed, "large tensors", k), "skewed", ORDERS[k // 7 % 4], RANKS[k % 8], MILLION)


def _input(draw: Draw, kind: str, order: int, rank: int, most: int) -> Input:
    k, name, dtype = draw.k, FORMATS[draw.k % 7], DTYPES[draw.k // 2 % 2]
    mode = draw.integer(0, order - 1)
    tensor = draw_tensor(draw, kind, order, dtype, rank=rank, most=most, repeats=name == "coo")
    factors = draw_factors(draw, tensor.shape, mode, rank, dtype)
    return Input(tensor, factors, mode, name, kind, k // 4 % 2 == 1)


def first_input(k: int) -> Input:
    """Input k of the case, deterministic.

    Examples
    --------
    >>> first_input(0).deterministic
    True
    """
    return replace(CASE.draw(Draw(SEED, CASE.name, k)), deterministic=True)


@dataclass(frozen=True)
class Planted:
    """A tensor made of factors, with noise, to be decomposed."""

    shape: tuple[int, ...]
    rank: int
    noise: float
    iterations: int = 5

    @property
    def tensor(self) -> Coo:
        """A block for each component, with noise inside; no result depends on who adds or multiplies."""
        draw = Draw(SEED, "planted", self.rank)
        model = np.zeros(self.shape)
        for r in range(self.rank):
            component = np.ones(())
            for size in self.shape:
                column = np.where(np.arange(size) % self.rank == r, 1.5 + _even(draw, size), 0.0)
                component = np.multiply.outer(component, column)
            model += component
        noise = np.where(model, _even(draw, model.size).reshape(self.shape), 0.0)
        model += self.noise * _norm(model) / _norm(noise) * noise
        places = np.nonzero(model)
        return Coo(np.stack(places), model[places], self.shape)

    def __str__(self) -> str:
        return f"{' x '.join(map(str, self.shape))}, rank {self.rank}, noise {self.noise:g}"


PLANTED = tuple(
    Planted(shape, rank, noise)
    for shape, rank in (((13, 11, 7), 3), ((7, 5, 6, 4), 2))
    for noise in (0.0, 0.1)
)


def _even(draw: Draw, count: int) -> npt.NDArray[np.float64]:
    """Numbers between -1 and 1."""
    return np.ldexp((draw.words(count) >> np.uint64(11)).astype(np.float64), -52) - 1


def _norm(x: npt.NDArray[np.float64]) -> float:
    return math.sqrt(math.fsum((x * x).ravel().tolist()))


# --------------------------------------------------------------------------------------------------
# Who answers
# --------------------------------------------------------------------------------------------------


def digest(*arrays: npt.NDArray[Any]) -> str:
    """The SHA-256 of types, shapes and bits."""
    found = hashlib.sha256()
    for array in arrays:
        words = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        found.update(f"{words.dtype.str} {words.shape}".encode() + words.tobytes())
    return found.hexdigest()


def share_of_bound(item: Input, got: npt.NDArray[Any]) -> float:
    """The largest error, as a share of what is allowed for that element; infinite for a NaN."""
    expected = CASE.answers["reference"](item)
    bound = reference.mttkrp_bound(item.tensor, item.factors, item.mode, item.tensor.values.dtype)
    error = abs(got.astype(np.float64) - expected)
    shares = np.divide(error, bound, out=np.where(error > 0, np.inf, 0.0), where=bound > 0)
    return float(np.nan_to_num(shares, nan=np.inf).max())


def decomposed(planted: Planted, device: Any) -> Cpd:
    """A planted tensor's decomposition on a device, without atomics."""
    from gpu.cpd import cpd_als

    return cpd_als(
        planted.tensor,
        planted.rank,
        seed=SEED,
        iterations=planted.iterations,
        tolerance=0.0,
        device=device,
        deterministic=True,
    )


def cpd_row(cpd: Cpd) -> dict[str, Any]:
    """What is kept of a decomposition."""
    return {"fits": list(cpd.fits), "sha256": digest(cpd.weights, *cpd.factors)}


@dataclass(frozen=True)
class Asked:
    """What one input came to."""

    name: str
    large: bool
    item: dict[str, Any]
    share: float
    steady: bool

    @property
    def wrong(self) -> bool:
        """Whether the answer was too far off, or another one the second time."""
        return not (self.share <= 1 and self.steady)


@cache
def chip() -> Any:
    """The GPU of this process."""
    import gpu

    return gpu.CudaDevice()


def ask(seed: int, k: int, large: bool = False) -> Asked:
    """Hold the chip's answer to an input against the reference's."""
    item = large_input(seed, k) if large else tensor_input(seed, k)
    name = f"{'large input' if large else 'input'} {k}: {CASE.describe(item)}"
    answer = CASE.answers["gpu"]
    try:
        got = answer(item, chip())
        steady = not item.deterministic or digest(got) == digest(answer(item, chip()))
    except Exception as error:
        error.add_note(name)
        raise
    facts = {
        "format": item.format,
        "kind": item.kind,
        "order": len(item.tensor.shape),
        "rank": item.rank,
        "dtype": str(item.tensor.values.dtype),
        "deterministic": item.deterministic,
        "nonzeros": item.tensor.values.size,
    }
    return Asked(name, large, facts, share_of_bound(item, got), steady)


def ask_all(seed: int, count: int, large: int, processes: int) -> list[Asked]:
    """Every input, by many processes: most of the time is the reference's and the compiler's."""
    tasks = [(seed, k, True) for k in range(large)] + [(seed, k, False) for k in range(count)]
    if processes == 1:
        return [_shown(i, ask(*task)) for i, task in enumerate(tasks)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        asked = pool.map(ask, *zip(*tasks, strict=True), chunksize=4)
        return [_shown(i, one) for i, one in enumerate(asked)]


def _shown(i: int, asked: Asked) -> Asked:
    if asked.wrong:
        say(f"{asked.name}\nerror {asked.share:.3g} of the bound, {'' if asked.steady else 'un'}steady")
    elif i % 200 == 0:
        say(asked.name)
    return asked


def say(text: str) -> None:
    """To the terminal, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# --------------------------------------------------------------------------------------------------
# What is kept
# --------------------------------------------------------------------------------------------------


def to_json(asked: list[Asked], seed: int, seconds: float) -> dict[str, Any]:
    """The summary, with what can be computed again."""
    device = chip()
    counted = ("kind", "order", "rank", "dtype", "deterministic")
    return {
        "gpu": {"name": device.name, "uuid": device.uuid},
        "driver": device.driver_version,
        "nvrtc": compiler_version(),
        "arch": list(device.compute_capability),
        "ptx": CASE.kernels(device.compute_capability),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python tests/record_mttkrp.py --out tests/golden",
        "seed": seed,
        **summary(asked),
        **{f"by_{key}": dict(Counter(str(one.item[key]) for one in asked)) for key in counted},
        "first": [digest(CASE.answers["gpu"](first_input(k), device)) for k in range(FIRST)],
        "cpd": {str(planted): cpd_row(decomposed(planted, device)) for planted in PLANTED},
        "seconds": round(seconds, 1),
    }


def summary(asked: list[Asked]) -> dict[str, Any]:
    """Counts and worst errors, in all and for each format and type."""
    groups: dict[str, dict[str, list[Asked]]] = {name: {dtype: [] for dtype in DTYPES} for name in FORMATS}
    for one in asked:
        groups[one.item["format"]][one.item["dtype"]].append(one)
    return {
        "tensors": len(asked),
        "large": sum(one.large for one in asked),
        "nonzeros": sum(one.item["nonzeros"] for one in asked),
        "mismatches": sum(one.wrong for one in asked),
        "worst": max(one.share for one in asked),
        "by_format": {
            name: {
                dtype: {"tensors": len(group), "worst": max((one.share for one in group), default=0.0)}
                for dtype, group in of_format.items()
            }
            for name, of_format in groups.items()
        },
    }


def main() -> int:
    """Record; the exit code is 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("tests/golden"), metavar="FOLDER")
    parser.add_argument("--count", type=int, default=TENSORS, help="tensors of up to 20,000 nonzeros")
    parser.add_argument("--large", type=int, default=LARGE, help="tensors of about a million nonzeros")
    parser.add_argument("--seed", type=int, default=SEED, help="of these tensors; others stay as they are")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--sanitizer", action="store_true", help="few, in one process; writes nothing")
    options = parser.parse_args()
    start = time.perf_counter()
    if options.sanitizer:
        asked = ask_all(options.seed, min(options.count, SANITIZED), 0, 1)
        say(json.dumps(summary(asked), indent=2))
        return int(any(one.wrong for one in asked))
    asked = ask_all(options.seed, options.count, options.large, options.processes)
    kept = to_json(asked, options.seed, time.perf_counter() - start)
    text = json.dumps(kept, indent=2).encode() + b"\n"
    options.out.mkdir(parents=True, exist_ok=True)
    write_whole(options.out / "mttkrp-tensors.json", lambda file: file.write(text))
    say(json.dumps(kept["by_format"], indent=2))
    say(f"{kept['tensors']} tensors, {kept['mismatches']} wrong, {kept['worst']:.3f} of the bound at worst")
    return int(kept["mismatches"] > 0)


if __name__ == "__main__":
    sys.exit(main())
