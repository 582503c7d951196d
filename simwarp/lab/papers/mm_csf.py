"""Figures and tables of MM-CSF (SC'19), with what it prints."""

from __future__ import annotations

from simwarp.lab.papers import sparse
from simwarp.lab.papers.entries import Item, Paper
from simwarp.lab.papers.script import Script
from simwarp.lab.papers.sparse import ALL_NAMES, BINS, NAMES, SCALE, each_tensor

NONZEROS = {"nell2": 77e6, "darpa": 28e6, "fr_s": 140e6}
"""Of the paper's tensors, table 4."""
TABLE_4 = {
    "nell2": (3, 77e6),
    "darpa": (3, 28e6),
    "fr_s": (3, 140e6),
    "flick4d": (4, 113e6),
    "uber4d": (4, 3e6),
}
"""Order and nonzeros; flick4d and uber4d are its flick and uber of order 4."""
MODE_BINS = {
    "nell2": ((46e3, 291e3, 5, 0), (16e6, 66e3, 0, 0)),
    "darpa": ((54e3, 22e3, 164, 277), (28e6, 0, 0, 0)),
    "fr_s": ((91e6, 28e3, 90, 59), (86e6, 30e3, 119, 105)),
}
"""Table 2: fibers of up to 100, 5,000 and 10,000 nonzeros and more, of the selected mode and of another."""
FIBERS = {
    "nell2": {"b-csf": (18, -5), "b-csf-one": (1, 96), "mm-csf": (1, 95)},
    "darpa": {"b-csf": (29, -1), "b-csf-one": (0.28, 99), "mm-csf": (0.28, 99)},
    "fr_s": {"b-csf": (269, 0), "b-csf-one": (92, 66), "mm-csf": (45, 83)},
}
"""Table 5: millions of fibers, and the percentage saved against SPLATT-ALL."""
MILLISECONDS = {
    "nell2": {"mm-csf": 29, "b-csf": 37, "b-csf-one": 37, "coo": 71},
    "darpa": {"mm-csf": 25, "b-csf": 39, "b-csf-one": 29, "coo": 82},
    "fr_s": {"mm-csf": 177, "b-csf": 199, "b-csf-one": 259},
    "flick4d": {"mm-csf": 130, "b-csf": 176, "b-csf-one": 183},
    "uber4d": {"mm-csf": 3.72, "b-csf": 2.6, "b-csf-one": 4.05},
}
"""Table 7: all modes one after another on a V100; flick4d is its flickr-4d."""
GFLOPS = {"nell2": (763, 607), "darpa": (327, 209), "fr_s": (228, 203)}
"""Table 6: MM-CSF and BCSF-ALL, with the operations of COO."""
TABLE_6 = {
    "nell2": ((58, 76), (45, 35), (4, 4)),
    "darpa": ((35, 52), (28, 13), (12, 11)),
    "fr_s": ((53, 84), (140, 102), (70, 73)),
}
"""Table 6: percent of occupancy, GiB of global loads and GiB of DRAM, of BCSF-ALL and MM-CSF."""
LOADS = {"nell2": (45, 35), "darpa": (28, 13), "fr_s": (140, 102)}
"""Table 6: GiB that BCSF-ALL and MM-CSF load from global memory."""
DRAM = {"nell2": (4, 4), "darpa": (12, 11), "fr_s": (70, 73)}
OCCUPANCY = {"nell2": (58, 76), "darpa": (35, 52), "fr_s": (53, 84)}
"""Table 6, the same order: GiB of DRAM, and percent of occupancy."""
MEBIBYTES = {
    "csf-all": {"nell2": 1012, "darpa": 723, "fr_s": 4249},
    "csf-one": {"nell2": 296, "darpa": 109, "fr_s": 1232},
    "b-csf": {"nell2": 1019, "darpa": 726, "fr_s": 4250},
    "coo": {"nell2": 880, "darpa": 325, "fr_s": 1601},
    "hicoo": {"nell2": 250, "darpa": 200, "fr_s": 1566},
    "f-coo": {"nell2": 1789, "darpa": 662, "fr_s": 3256},
    "mm-csf": {"nell2": 303, "darpa": 112, "fr_s": 1051},
}
"""Table 8."""
_FEWER = (
    "the look-alikes have fewer nonzeros in as large a shape, so that fibers, slices and blocks hold fewer"
)
_KERNELS = (
    "instructions differ from times, and our COO adds four columns by one instruction, where ParTI adds each"
)
_TIMED = (
    "our COO adds four columns by one instruction, where ParTI adds each; MM-CSF's leaf mode has an atomic "
    "addition for each nonzero; and look-alikes with fewer nonzeros have other fibers"
)


def _table_2() -> dict[tuple[str, str], dict[str, float]]:
    """The selected mode, and the candidate, which is another mode of ours: 1 of nell2, 0 of the others."""
    other = {"nell2": "along 1", "darpa": "along 0", "fr_s": "along 1"}
    return {
        (name, which): dict(zip(BINS, bins, strict=True))
        for name, (selected, candidate) in MODE_BINS.items()
        for which, bins in (("selected", selected), (other[name], candidate))
    }


def _table_6() -> dict[tuple[str, str], dict[str, float]]:
    found: dict[tuple[str, str], dict[str, float]] = {}
    for name, (mixed, balanced) in GFLOPS.items():
        for i, (form, gflops) in enumerate((("b-csf", balanced), ("mm-csf", mixed))):
            found[name, form] = {
                "GFLOPS": gflops,
                "occupancy, %": OCCUPANCY[name][i],
                "loads, GiB": LOADS[name][i],
                "DRAM, GiB": DRAM[name][i],
                "bytes to b-csf": LOADS[name][i] / LOADS[name][0],
            }
    return found


def _to_mixed() -> dict[tuple[str, str], dict[str, float]]:
    return {
        (name, form): {"ms": ms, "to mm-csf": ms / of["mm-csf"]}
        for name, of in MILLISECONDS.items()
        for form, ms in of.items()
    }


_TIMES = sparse.runs(ALL_NAMES, sparse.costs)
_MODES = sparse.runs(NAMES, sparse.by_mode)
_LOADS = sparse.runs(NAMES, sparse.loads)
_WAYS = sparse.runs(("fr_s", "darpa"), sparse.costs, ("mm-csf",), ways=True)
_OF = f"indices of tensors with {100 * SCALE:g} % of the look-alikes' nonzeros, or of --data; nothing is run"

PAPER = Paper(
    "mm-csf",
    "An efficient mixed-mode representation of sparse tensors (SC'19)",
    (
        Item("table", ("1",), "notation", note="letters"),
        Item(
            "figure",
            ("1", "2", "3"),
            "worked examples",
            note="docs/sparse-formats.md makes them; tests hold them",
        ),
        Item(
            "figure", ("4",), "how lengths change", note="a worked example; docs/sparse-formats.md makes it"
        ),
        Item(
            "figure",
            ("5",),
            "the three algorithms",
            note="drawings; the listings are simwarp.listings.mttkrp",
        ),
        Item(
            "table",
            ("2",),
            "lengths of fibers, of the selected mode and of another",
            {"sim": each_tensor(NAMES, SCALE, sparse.histograms, _OF)},
            ("tensor", "fibers"),
            _table_2(),
            dict.fromkeys(BINS, _FEWER),
        ),
        Item(
            "table",
            ("3",),
            "operations, reads and writes: by the algorithms, and over the formulas of the table",
            {"sim": each_tensor(NAMES, SCALE, sparse.work, _OF)},
            ("tensor", "format"),
            {
                (name, form): dict.fromkeys(
                    (f"{kind} over table 3's" for kind in ("flops", "reads", "writes")), 1.0
                )
                for name in NAMES
                for form in sparse.WORK.values()
            },
            {
                "flops over table 3's": "each mode of a tree has 2 M operations, the table has 5 M in all",
                "reads over table 3's": "the mode of the leaves reads 2 F rows, the table says F + M",
                "writes over table 3's": "the mode of the slices writes S rows, the table says F",
            },
        ),
        Item(
            "table",
            ("4",),
            "the tensors; five of twelve have look-alikes",
            {"sim": each_tensor(ALL_NAMES, SCALE, sparse.sizes, _OF)},
            ("tensor",),
            {(name,): {"order": order, "nonzeros": nonzeros} for name, (order, nonzeros) in TABLE_4.items()},
            {"nonzeros": _FEWER},
        ),
        Item(
            "table",
            ("5",),
            "fibers, and how many fewer than SPLATT-ALL's",
            {"sim": each_tensor(NAMES, SCALE, sparse.fibers, _OF)},
            ("tensor", "format"),
            {
                (name, form): {"thousands": 1e3 * millions, "percent fewer": percent}
                for name, of in FIBERS.items()
                for form, (millions, percent) in of.items()
            },
            {"thousands": _FEWER, "percent fewer": _FEWER},
        ),
        Item(
            "figure",
            ("6",),
            "the fibers of one direction against mixed ones; printed as bars",
            {"sim": _WAYS, "cuda": _WAYS},
            ("tensor", "format"),
        ),
        Item(
            "table",
            ("6",),
            "speed, occupancy, loads and DRAM; the simulator has the bytes that are requested",
            {"sim": _LOADS, "cuda": _LOADS},
            ("tensor", "format"),
            _table_6(),
            {"bytes to b-csf": _FEWER},
        ),
        Item(
            "figure",
            ("7",),
            "how many times as much as MM-CSF B-CSF-ALL takes, by mode; printed as bars",
            {"sim": _MODES, "cuda": _MODES},
            ("tensor", "mode"),
        ),
        Item(
            "figure",
            ("8",),
            "speed beside the bound of memory; printed as bars",
            {
                "cuda": Script(
                    "benchmarks/mttkrp.py", "h200/mttkrp.json", sparse.bounds, "the look-alikes, R = 32"
                )
            },
            ("tensor",),
            {(name,): {"GFLOPS": of[0]} for name, of in GFLOPS.items()},
            {"GFLOPS": "another chip: an H200 has 4.3 TB/s, a V100 0.9"},
        ),
        Item(
            "table",
            ("7",),
            "times of the formats, all modes",
            {"sim": _TIMES, "cuda": _TIMES},
            ("tensor", "format"),
            _to_mixed(),
            {"to mm-csf": _KERNELS},
            {"to mm-csf": _TIMED, "ms": "another chip, and look-alikes with fewer nonzeros"},
        ),
        Item(
            "figure",
            ("9",),
            "speeds of the formats: those of table 7; printed as bars",
            {"sim": _TIMES, "cuda": _TIMES},
            ("tensor", "format"),
        ),
        Item(
            "table",
            ("8",),
            "bytes of indices and pointers for each nonzero",
            {"sim": each_tensor(NAMES, SCALE, sparse.storage, _OF)},
            ("tensor", "format"),
            {
                (name, form): {"bytes": mebibytes * 2**20 / NONZEROS[name], "MiB": mebibytes}
                for form, of in MEBIBYTES.items()
                for name, mebibytes in of.items()
            },
            {"bytes": _FEWER},
        ),
        Item(
            "figure",
            ("10",),
            "seconds to make the formats, on one core; print has 15 % more for MM-CSF on average",
            {
                "sim": each_tensor(
                    NAMES, SCALE, sparse.seconds_to_make, "one core of this machine, without copies"
                )
            },
            ("tensor",),
            {(name,): {"mm-csf to b-csf": 1.15} for name in NAMES},
            {"mm-csf to b-csf": "printed is the mean of seven tensors, with copies"},
        ),
        Item(
            "figure",
            ("11",),
            "an iteration of CPD; SPLATT, which print has beside it, is not run",
            {
                "cuda": Script(
                    "benchmarks/mttkrp.py", "h200/mttkrp.json", sparse.iterations, "the look-alikes, R = 32"
                )
            },
            ("tensor",),
        ),
    ),
)
