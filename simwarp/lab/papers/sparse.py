"""Tensors, their formats and their MTTKRP, for MM-CSF: by definition, on the simulator, on a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gpu.mttkrp import formats
from reference.sparse import fiber_lengths, index_bytes, length_histogram, mttkrp_work
from reference.sparse.formats import OF_TYPE
from reference.types import Coo, SparseTensor
from simwarp.lab.bench import mttkrp as bench
from simwarp.lab.network_studies import Facts
from simwarp.lab.papers.entries import Made, Maker, Making
from simwarp.lab.papers.measure import check
from simwarp.lab.papers.script import Cases

RANK = 32
NAMES = ("nell2", "darpa", "fr_s")
ALL_NAMES = (*NAMES, "flick4d", "uber4d")
SCALE = 0.1
"""Of the look-alikes' nonzeros, where formats are counted and nothing is run."""
SIMULATED = {"nell2": 2.5e-5, "darpa": 5e-5, "fr_s": 4e-5, "flick4d": 5e-5, "uber4d": 2e-4}
"""The same, where the simulator runs each format."""
STORED = ("csf-all", "csf-one", "b-csf", "coo", "hicoo", "f-coo", "mm-csf")
FIBERS = ("csf-all", "b-csf", "b-csf-one", "mm-csf")
WORK = {"coo": "COO", "csf-all": "SPLATT-ALL", "csf-one": "SPLATT-ONE", "mm-csf": "MM-CSF"}
RUN = ("mm-csf", "b-csf", "b-csf-one", "coo")
NONZEROS = {
    "nell2": 20_000_000,
    "darpa": 10_000_000,
    "fr_s": 14_038_972,
    "flick4d": 10_018_908,
    "uber4d": 3_154_051,
}
"""Of the look-alikes at scale 1."""
BINS = ("to 100", "to 5,000", "to 10,000", "more")


def each_tensor(
    names: Sequence[str], scale: float, rows: Callable[[str, Coo], Iterator[Facts]], what: str
) -> Maker:
    """Rows of tensors, by definition: of the files of ``--data``, or of look-alikes of a scale."""

    def make(making: Making) -> Made:
        found, used = list[Facts](), list[str]()
        for done, name in enumerate(names):
            making.progress(done, len(names))
            tensor, about = _tensor(making, name, scale)
            found += rows(name, tensor)
            used.append(about)
        return Made(found, what, "; ".join(used))

    return make


def _tensor(making: Making, name: str, scale: float) -> tuple[Coo, str]:
    key = name, scale
    if key not in making.kept:
        tensor, about = making.data.tensor(name, scale)
        making.kept[key] = formats.coalesce(tensor), about
    return making.kept[key]


def made_as(tensor: Coo, names: Sequence[str]) -> Iterator[tuple[str, SparseTensor]]:
    """A tensor in some formats."""
    return ((name, formats.FORMATS[name](tensor)) for name in names)


def sizes(name: str, tensor: Coo) -> Iterator[Facts]:
    """Order, nonzeros and density (table 4)."""
    nonzeros = tensor.values.size
    dimensions = " × ".join(f"{n:,}" for n in tensor.shape)
    yield {
        "tensor": name,
        "dimensions": dimensions,
        "order": len(tensor.shape),
        "nonzeros": nonzeros,
        "density": nonzeros / math.prod(tensor.shape),
    }


def histograms(name: str, tensor: Coo) -> Iterator[Facts]:
    """How many fibers have how many nonzeros, along each mode (table 2)."""
    longest = max(range(len(tensor.shape)), key=lambda mode: tensor.shape[mode])
    for mode in range(len(tensor.shape)):
        of = length_histogram(fiber_lengths(tensor, mode))
        selected = "selected" if mode == longest else f"along {mode}"
        yield {"tensor": name, "fibers": selected, **dict(zip(BINS, of, strict=True))}


def work(name: str, tensor: Coo) -> Iterator[Facts]:
    """Operations, reads and writes of all modes: by table 3, and as the algorithms do it."""
    for form, made in made_as(tensor, tuple(WORK)):
        by_table, by_algorithms = (asdict(mttkrp_work(made, RANK, by=by)) for by in ("paper", "algorithms"))
        kinds = ("flops", "reads", "writes")
        more = {f"{kind} over table 3's": by_algorithms[kind] / by_table[kind] for kind in kinds}
        yield {"tensor": name, "format": WORK[form], **{kind: by_algorithms[kind] for kind in kinds}, **more}


def storage(name: str, tensor: Coo) -> Iterator[Facts]:
    """Bytes of indices and pointers for each nonzero (table 8)."""
    for form, made in made_as(tensor, STORED):
        yield {"tensor": name, "format": form, "bytes": index_bytes(made) / tensor.values.size}


def fibers(name: str, tensor: Coo) -> Iterator[Facts]:
    """Fibers, pieces of split ones counted, and how many fewer than SPLATT-ALL's in percent (table 5)."""
    counts = {form: _fibers(made) for form, made in made_as(tensor, FIBERS)}
    for form in FIBERS[1:]:
        fewer = 100 * (1 - counts[form] / counts["csf-all"])
        yield {"tensor": name, "format": form, "thousands": counts[form] / 1e3, "percent fewer": fewer}


def _fibers(made: Any) -> int:
    """The fibers of a format, added over its trees, copies or partitions."""
    if made.parts:
        return sum(map(_fibers, made.parts))
    count = OF_TYPE[type(made)].slices_and_fibers
    assert count is not None
    return count(made)[1]


def seconds_to_make(name: str, tensor: Coo) -> Iterator[Facts]:
    """Seconds of one core to make MM-CSF and B-CSF-ALL on the host (figure 10)."""
    took: dict[str, float] = {}
    for form in ("b-csf", "mm-csf"):
        few = Coo(tensor.coords[:, :1], tensor.values[:1], tensor.shape)
        formats.FORMATS[form](few)  # compiles what is not compiled yet
        begin = time.process_time()
        made = formats.FORMATS[form](tensor)
        took[form] = time.process_time() - begin
        again = formats.to_coo(made)
        check(f"{name} as {form}", (again.values == tensor.values).all())
    yield {
        "tensor": name,
        "b-csf, s": took["b-csf"],
        "mm-csf, s": took["mm-csf"],
        "mm-csf to b-csf": took["mm-csf"] / took["b-csf"],
    }


# --------------------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------------------


def runs(
    names: Sequence[str],
    rows: Callable[[str, Facts], Iterator[Facts]],
    forms: Sequence[str] = RUN,
    *,
    ways: bool = False,
) -> Maker:
    """MTTKRP of all modes in some formats: counted on the simulator, timed on a GPU.

    With ``ways`` MM-CSF with the fibers of one direction alone is a format, too.
    """

    def make(making: Making) -> Made:
        found, used = list[Facts](), list[str]()
        for done, name in enumerate(names):
            making.progress(done, len(names))
            result, about = _run(making, name, forms, ways)
            found += rows(name, result)
            used.append(about)
        of = (
            "on the simulator, empty slices left out: instructions of threads, sectors, requested bytes"
            if making.device is None
            else "on the GPU: seconds"
        )
        return Made(found, f"R = {RANK}, float32, all modes, {of}", "; ".join(used))

    return make


def _run(making: Making, name: str, forms: Sequence[str], ways: bool) -> tuple[Facts, str]:
    tensor, about = _tensor(making, name, SIMULATED[name] if making.device is None else 1.0)
    chosen = ",".join((*forms, *(f"mm-csf-along-{mode}" for mode in range(len(tensor.shape)) if ways)))
    key = name, chosen
    if key not in making.kept:
        if ("problem", name) not in making.kept:
            whole = tensor if making.device is not None else without_empty_slices(tensor)
            making.kept["problem", name] = bench.Problem.of(name, whole, RANK)
        problem = making.kept["problem", name]
        builds = bench.builders(chosen, len(tensor.shape))
        if making.device is None:
            making.kept[key] = bench.counted(problem, builds, lambda done, total: None)
        else:
            making.kept[key] = bench.timed(problem, builds, making.device, 3, lambda done, total: None)
    return making.kept[key], about


def without_empty_slices(tensor: Coo) -> Coo:
    """The tensor with only the indices that occur, in their order, so that factors have few rows."""
    used = [np.unique(indices, return_inverse=True) for indices in tensor.coords]
    coords = np.stack([numbers.astype(np.uint32) for _, numbers in used])
    return Coo(coords, tensor.values, tuple(kept.size for kept, _ in used))


def costs(name: str, found: Facts) -> Iterator[Facts]:
    """What all modes cost in each format, and how many times MM-CSF's that is (table 7, figures 6 and 9)."""
    unit = found["unit"]
    least = next(row[unit] for row in found["rows"] if row["format"] == "mm-csf")
    for row in found["rows"]:
        cost: Facts = {"ms": 1e3 * row["seconds"], "GFLOPS": row["rate"] / 1e9} if unit == "seconds" else {}
        cost = cost or {kind: row[kind] for kind in ("instructions", "sectors", "bytes")}
        yield {"tensor": name, "format": row["format"], **cost, "to mm-csf": row[unit] / least}


def by_mode(name: str, found: Facts) -> Iterator[Facts]:
    """How many times MM-CSF's cost B-CSF-ALL has, by mode (figure 7)."""
    modes = {row["format"]: row["modes"] for row in found["rows"]}
    for mode, pair in enumerate(zip(modes["b-csf"], modes["mm-csf"], strict=True)):
        if found["unit"] == "seconds":
            yield {"tensor": name, "mode": mode, "to mm-csf": pair[0] / pair[1]}
        else:
            ratios = {
                f"{kind} to mm-csf": pair[0][kind] / pair[1][kind] for kind in ("instructions", "sectors")
            }
            yield {"tensor": name, "mode": mode, **ratios}


def loads(name: str, found: Facts) -> Iterator[Facts]:
    """What is requested and moved, and MM-CSF's part of B-CSF-ALL's (table 6)."""
    rows = {row["format"]: row for row in found["rows"]}
    kinds = ("instructions", "sectors", "bytes") if found["unit"] != "seconds" else ("seconds",)
    for form in ("b-csf", "mm-csf"):
        part = {f"{kind} to b-csf": rows[form][kind] / rows["b-csf"][kind] for kind in kinds[-1:]}
        yield {"tensor": name, "format": form, **{kind: rows[form][kind] for kind in kinds}, **part}


def bounds(cases: Cases) -> list[Facts]:
    """Operations in a second, and at the bound that moving each byte once sets (figure 8)."""
    rows: list[Facts] = []
    for name in ALL_NAMES:
        row, nonzeros = cases[f"mttkrp-mm-csf/{name}/r{RANK}-f32"], NONZEROS[name]
        order = len(row["params"]["modes_ms"])
        reached, most = (order**2 * nonzeros * RANK / row[of] / 1e6 for of in ("ours", "floor"))
        rows.append(
            {"tensor": name, "GFLOPS": reached, "at the bound": most, "percent": 100 * reached / most}
        )
    return rows


def iterations(cases: Cases) -> list[Facts]:
    """Milliseconds of an iteration of alternating least squares, beside BLCO's (figure 11)."""
    rows = ((case.split("/"), row) for case, row in cases.items())
    return [
        {"tensor": parts[1], "format": row["params"]["format"], "ms": row["ours"], **row["peers"]}
        for parts, row in rows
        if parts[0] == "cpd"
    ]
