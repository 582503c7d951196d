"""Figures and tables of BLASX (arXiv:1510.05041), with what it prints."""

from __future__ import annotations

from simwarp.lab.blas import gemm_shares
from simwarp.lab.blas.applications import APPLICATIONS
from simwarp.lab.papers import machines
from simwarp.lab.papers.entries import Item, Paper
from simwarp.lab.papers.machines import blas

SIZES = (4096, 12288, 20480)
EFFICIENCIES = {
    "dgemm": 93.53,
    "dsymm": 90.36,
    "dsyrk": 85.54,
    "dsyr2k": 85.54,
    "dtrmm": 88.99,
    "dtrsm": 81.58,
}
"""Table III, in percent."""
BANDWIDTHS = {"host and GPU": 6.54, "GPU to GPU": 7.8}
"""Table IV, GB/s."""
MEGABYTES = {
    "dgemm": (6895 + 1811 + 4768 + 721 + 4462, 24528 + 24243 + 24243),
    "dsymm": (5628 + 1249 + 5318 + 343 + 3758, 18865 + 18865 + 18102),
    "dsyrk": (4278 + 1363 + 3410 + 1213 + 2536, 12314 + 12834 + 11492),
    "dsyr2k": (7281 + 2231 + 5905 + 1308 + 2969, 15910 + 15910 + 15900),
    "dtrmm": (4966 + 1694 + 4353 + 327 + 2365, 8885 + 2020 + 8922),
    "dtrsm": (2751 + 981 + 4622 + 300 + 2575, 12985 + 12792 + 12876),
}
"""Table V: MB of all GPUs, from and to the host and between GPUs; BLASX and cuBLAS-XT."""
_ALLOCATED = (2048, 4096, 8192, 12288, 16384, 20480)
_TILES = (512, 768, 1024, 1536, 2048, 3072, 4096)
_GPUS = (1, 2, 3)
_ON_GPUS = (4096, 8192, 16384)

PAPER = Paper(
    "blasx",
    "BLASX: a high performance level-3 BLAS library for heterogeneous multi-GPU computing (2015)",
    (
        Item(
            "figure",
            ("1",),
            "profiles of four libraries",
            note="simwarp blas trace draws ours; rivals are not run",
        ),
        Item(
            "table",
            ("I",),
            "the share of GEMM by N, in percent",
            {"sim": machines.shares},
            ("routine", "n"),
            {
                (routine, n): {"percent": percent}
                for routine, of in gemm_shares.PRINTED.items()
                for n, percent in of.items()
            },
            {"percent": "print does not say of which tiles, nor whether it counts operations or time"},
        ),
        Item(
            "figure",
            ("2", "3", "4"),
            "caches, protocol, scheduler",
            note="drawings; docs/blas3.md tells of them",
        ),
        Item(
            "figure",
            ("5",),
            "the heap against an allocation for each tile; printed as curves",
            {
                "sim": blas(
                    _ALLOCATED,
                    machines.allocations,
                    routines=("dgemm",),
                    variants=("paper", "native"),
                    allocation=machines.ALLOCATION,
                ),
                "cuda": blas(
                    _ON_GPUS, machines.allocations, routines=("dgemm",), variants=("paper", "native")
                ),
            },
            ("n",),
        ),
        Item("figure", ("6",), "the heap", note="a drawing; gpu.blas3.heap has it"),
        Item("table", ("II",), "the two machines", note="simwarp.machine.EVEREST and MAKALU"),
        Item(
            "figure",
            ("7",),
            "TFLOP/s of the six routines by N and GPUs; printed as curves",
            {"sim": blas(SIZES, machines.rates, devices=_GPUS), "cuda": blas(_ON_GPUS, machines.rates)},
            ("routine", "n", "devices"),
        ),
        Item(
            "table",
            ("III",),
            "mean parallel efficiency in percent; print's mean is over 39 sizes up to 39,936",
            {"sim": blas(SIZES, machines.efficiencies, devices=_GPUS)},
            ("routine", "devices"),
            {(name, gpus): {"percent": percent} for name, percent in EFFICIENCIES.items() for gpus in (2, 3)},
            {
                "percent": "tasks of TRMM are block columns here and tiles in print; "
                "small N has few for three GPUs"
            },
        ),
        Item(
            "table",
            ("IV",),
            "bandwidth of copies, which the simulated machine takes from print",
            {"sim": machines.bandwidths},
            ("route",),
            {(name,): {"GB/s": rate} for name, rate in BANDWIDTHS.items()},
        ),
        Item(
            "figure",
            ("8",),
            "seconds of computation, communication and other, by GPU; printed as bars",
            {"sim": machines.profile(16384), "cuda": machines.profile(16384)},
            ("routine", "gpu"),
        ),
        Item(
            "table",
            ("V",),
            "megabytes that move, N = 16,384; without a cache ours stands for cuBLAS-XT",
            {"sim": blas((16384,), machines.volumes, variants=("paper", "no-cache"))},
            ("routine", "library"),
            {
                (name, library): {"MB": megabytes}
                for name, both in MEGABYTES.items()
                for library, megabytes in zip(("BLASX", "cuBLAS-XT"), both, strict=True)
            },
            {
                "MB": "not known: neither why the paper's cache moved more, "
                "nor which tiles of DSYMM, DSYR2K and DTRMM cuBLAS-XT moves once"
            },
        ),
        Item(
            "figure",
            ("9",),
            "GFLOP/s that the CPU adds to DGEMM on Makalu; printed as a curve",
            {
                "sim": blas(
                    SIZES,
                    machines.parts_of_cpu,
                    routines=("dgemm",),
                    variants=("paper", "cpu", "default", "default-cpu"),
                    machine="MAKALU",
                ),
                "cuda": blas(
                    _ON_GPUS,
                    machines.parts_of_cpu,
                    routines=("dgemm",),
                    variants=("paper", "cpu", "default", "default-cpu"),
                ),
            },
            ("policy", "n"),
        ),
        Item(
            "figure",
            ("10",),
            "TFLOP/s of DGEMM by the tile, N = 16,384; printed as curves",
            {
                "sim": blas(
                    (16384,),
                    machines.by_tile,
                    routines=("dgemm",),
                    tiles=_TILES,
                    variants=("paper", "default", "no-cache"),
                ),
                "cuda": blas(
                    (16384,),
                    machines.by_tile,
                    routines=("dgemm",),
                    tiles=_TILES,
                    variants=("paper", "default"),
                ),
            },
            ("tile",),
        ),
        Item(
            "table",
            ("VI",),
            "a network, nnmf and lsqlin: how much faster on GPUs; ours is of their products alone",
            {"sim": machines.applications},
            ("application", "dtype"),
            {(one.name, one.dtype): {"speedup": float(one.printed.split()[0])} for one in APPLICATIONS},
            {
                "speedup": "print's is of whole applications against those of Caffe and MATLAB on cores; "
                "lsqlin's other products, which MATLAB has, are not here"
            },
        ),
    ),
)
