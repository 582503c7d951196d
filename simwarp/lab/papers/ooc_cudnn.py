"""Figures and tables of ooc_cuDNN (2017), with what it prints."""

from __future__ import annotations

from simwarp.lab.machines import opened
from simwarp.lab.network_studies import Facts
from simwarp.lab.outofcore.filters import curve
from simwarp.lab.outofcore.paper import PLANNERS, PROBLEMS, TABLE_4, VGG_RATE
from simwarp.lab.papers.entries import Item, Made, Making, Paper
from simwarp.lab.papers.machines import ooc
from simwarp.lab.papers.script import Cases, Script

FUSED_PERCENT, LAYERS_PERCENT = 42, 58
"""Section 6.3: time of the fused call, and of bias and activation, in percent of the three calls'."""
GIGA = 1e9


def _table_4(row: Facts) -> Facts:
    return {"case": row["case"], "planner": row["planner"], "GFLOPS": row["rate"] / GIGA}


def _table_2(row: Facts) -> Facts:
    sizes = {f"{tensor}, GiB": nbytes / 2**30 for tensor, nbytes in row["sizes"].items()}
    return {"layer": row["layer"], **sizes, "all": row["bytes"] / 2**30}


def _figure_6(row: Facts) -> Facts:
    return {"filters": row["filters"], "ms": 1e3 * row["seconds"]}


def _filters(making: Making) -> Made:
    """Milliseconds of a GPU over the number of filters."""
    making.progress(0, 1)
    with opened("cuda", "P100") as on:
        found = curve(on, (8, 64, 224, 224))
    return Made([_figure_6(row) for row in found["rows"]], f"8 × 64 × 224 × 224, in steps of {found['step']}")


def _figure_14(row: Facts) -> Facts:
    return {"maps": row["case"], **{f"{name}, GFLOPS": rate / GIGA for name, rate in row["rates"].items()}}


def _managed(cases: Cases) -> list[Facts]:
    """GFLOP/s with managed memory on a GPU, and ours."""
    return [
        {"maps": case.removeprefix("managed/"), **row["peers"], "ours": row["ours"]}
        for case, row in cases.items()
    ]


def _figure_9(row: Facts) -> Facts:
    inside = None if row["in_core"] is None else row["in_core"] / GIGA
    return {
        "channels": row["channels"],
        "GB": row["bytes"] / GIGA,
        "in core, GFLOPS": inside,
        "out of core": row["out_of_core"] / GIGA,
    }


def _figure_10(row: Facts) -> Facts:
    times = {f"{call}, ms": 1e3 * seconds for call, seconds in row["busy"].items()}
    shares = {"fused, percent": 100 * row["share"]["fused"], "layers, percent": 100 * row["share"]["layers"]}
    return {"case": row["case"], **times, **shares}


def _figure_12(row: Facts) -> Facts:
    beyond = "beyond" if row["in_core"] is None else "in core"
    return {
        "images": row["batch"],
        "memory": beyond,
        "GB": row["bytes"] / GIGA,
        "GFLOPS": row["out_of_core"] / GIGA,
        "overhead, percent": 100 * row["overhead"],
    }


def _figure_13(row: Facts) -> Facts:
    return {"layer": row["layer"], **{f"{kind}, ms": 1e3 * seconds for kind, seconds in row["busy"].items()}}


def _layers(cases: Cases) -> list[Facts]:
    """Seconds of layers of VGG16 out of core, beside torch's."""
    return [
        {"layer": case.removeprefix("ooc/"), row["unit"]: row["ours"], **row["peers"]}
        for case, row in cases.items()
        if case.startswith("ooc/")
    ]


PAPER = Paper(
    "ooc-cudnn",
    "ooc_cuDNN: convolutional networks larger than the memory of a GPU (2017)",
    (
        Item("table", ("1",), "parameters of a convolution", note="letters"),
        Item(
            "table",
            ("2",),
            "GiB of the convolutions of VGG16, 1,024 images; printed as bars",
            {"sim": ooc("table2", _table_2)},
            ("layer",),
        ),
        Item("figure", ("1",), "a network", note="a drawing"),
        Item("figure", ("2",), "memory of VGG16 by layer", note="table 2 as bars"),
        Item("figure", ("3",), "the software", note="a drawing"),
        Item(
            "figure",
            ("4", "5"),
            "the split and the pipeline",
            note="drawings; simwarp ooc trace draws a pipeline",
        ),
        Item(
            "figure",
            ("6",),
            "milliseconds over the number of filters; printed as a curve that rises at each 32",
            {"sim": ooc("figure6", _figure_6), "cuda": _filters},
            ("filters",),
        ),
        Item(
            "figure",
            ("7", "8"),
            "the fused call",
            note="drawings; gpu.outofcore.conv2d has bias and activation",
        ),
        Item("table", ("3",), "the machine", note="simwarp.machine.P100"),
        Item(
            "table",
            ("4",),
            "GFLOPS by planner; best is that of all runs in print, and of the model here",
            {"sim": ooc("table4", _table_4)},
            ("case", "planner"),
            {
                (case, planner): {"GFLOPS": printed}
                for case, row in zip(PROBLEMS, TABLE_4, strict=True)
                for planner, printed in zip(PLANNERS, row, strict=True)
            },
            {"GFLOPS": "the steps of the paper's descent are not legible in our copy; ours begins elsewhere"},
        ),
        Item(
            "figure",
            ("9",),
            "GFLOPS over channels; printed as curves, with their ends in the text",
            {"sim": ooc("figure9", _figure_9)},
            ("channels",),
            {(2560,): {"out of core": 7455}},
            {"out of core": "the largest number of channels is not legible in our copy"},
        ),
        Item(
            "figure",
            ("10",),
            "three calls against the fused one; printed as bars, with two shares in the text",
            {"sim": ooc("figure10", _figure_10)},
            ("case",),
            {("n=1, c=64, 1024×1024",): {"fused, percent": FUSED_PERCENT, "layers, percent": LAYERS_PERCENT}},
            {
                "fused, percent": "here copies bind all three calls, so that each takes a third; "
                "in print the convolution takes more"
            },
        ),
        Item("figure", ("11",), "VGG16", note="a drawing; gpu.outofcore.vgg16 is the network"),
        Item(
            "figure",
            ("12",),
            "VGG16 by its batch, forward and backward; print has 10 to 13 % beyond the memory",
            {
                "sim": ooc("figure12", _figure_12, rate=VGG_RATE),
                "cuda": Script(
                    "benchmarks/outofcore.py", "h100/outofcore.json", _layers, "forward, 512 images"
                ),
            },
            ("images",),
            {(1024,): {"overhead, percent": 13}},
            {"overhead, percent": "print has 10 to 13 % over all batches beyond the memory"},
        ),
        Item(
            "figure",
            ("13",),
            "milliseconds of copies and routines by layer, forward, 1,024 images; printed as bars",
            {"sim": ooc("figure13", _figure_13)},
            ("layer",),
        ),
        Item(
            "figure",
            ("14",),
            "GFLOPS with managed memory, by three ways, beside ours; print's text has least and most",
            {
                "sim": ooc("figure14", _figure_14),
                "cuda": Script(
                    "benchmarks/outofcore_managed.py",
                    "h200/outofcore-managed.json",
                    _managed,
                    "one image, maps on the host before and after",
                ),
            },
            ("maps",),
        ),
    ),
)
