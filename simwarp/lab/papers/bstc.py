"""Figures and tables of BSTC (SC'19), with what it prints."""

from __future__ import annotations

from simwarp.lab.papers import bits, nets
from simwarp.lab.papers.entries import Item, Paper, Printed

WORDS = ("bmm32", "bmm64", "bmms32", "bmms64")
CONVOLUTIONS = ("bconv32", "bconv64")
CYCLES = {"row-by-row": 20, "row-by-column": 28, "column-by-row": 28, "column-by-column": 56}
"""Section 5.1: thousands of cycles on a P100."""
SCHEMES = tuple(nets.BSTC)
P100 = {
    "mlp": ((0.277, 3.16e6), (0.084, 1.20e6), (1.007, 1.19e5), (0.076, 4.06e6)),
    "vgg-cifar": ((1.502, 2.53e4), (1.298, 2.47e4), (1.556, 2.81e4), (0.611, 3.73e4)),
    "alexnet, sc19": ((3.238, 1615.3), (2.778, 1530.8), (13.985, 1449.2), (1.528, 1910.3)),
    "resnet14": ((4.255, 3.36e3), (4.187, 3.49e3), (1.924, 7.06e3), (1.330, 7.19e3)),
    "resnet18": ((5.898, 474), (5.769, 480), (3.485, 662), (2.754, 665)),
}
"""Tables 4 and 6: milliseconds of an image and images a second, of the schemes in the order of `SCHEMES`."""
V100 = {
    "mlp": ((0.183, 4.39e6), (0.04, 3.32e6), (0.896, 1.88e5), (0.04, 8.98e6)),
    "vgg-cifar": ((0.994, 5.15e4), (0.833, 5.10e4), (1.395, 4.22e4), (0.466, 5.78e4)),
    "alexnet, sc19": ((2.226, 4190), (1.576, 3950), (9.134, 2870), (0.979, 4400)),
    "resnet14": ((2.784, 1.13e4), (2.700, 1.23e4), (1.584, 1.88e4), (1.027, 2.04e4)),
    "resnet18": ((3.293, 2030), (3.165, 1940), (2.532, 2530), (1.906, 2880)),
}
"""Tables 5 and 7."""
SINGLE = {"alexnet, sc19": (0.979, 4400), "vgg16": (3.208, 312)}
"""Tables 8 and 9: SBNN-64-Fine on a V100."""
RESNETS, OTHERS = ("resnet14", "resnet18"), ("mlp", "vgg-cifar", "alexnet, sc19")
_SMALL = (64, 96, 128, 256, 512)
_LARGE = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_CHANNELS = (64, 128, 192, 256, 320)
_COUNTS = (
    "instructions and times differ: a small layer on 64-bit words has too few warps for the print's chip, "
    "which a count of instructions does not show"
)
_SCHEMES = (
    "with one image our dense layers take nearly as long as with 1,024, in each scheme; print's -Fine has 32 "
    "warps a tile, ours two or four; words of 64 bits make our convolutions no faster, print's about twice"
)
_CHIP = (
    "not separated: an H200 has about twice the multiprocessors and more than five times the bandwidth; our "
    "kernels are a launch a layer, with tiles of their own, and first layers multiply bytes on tensor cores"
)


def times(of: dict[str, tuple[tuple[float, float], ...]], names: tuple[str, ...]) -> Printed:
    """The printed latencies and throughputs of networks, each also beside SBNN-32's latency."""
    return {
        (name, scheme): {"ms": ms, "images/s": rate, "to SBNN-32": ms / of[name][0][0]}
        for name in names
        for scheme, (ms, rate) in zip(SCHEMES, of[name], strict=True)
    }


def _table(
    number: str, chip: str, names: tuple[str, ...], of: dict[str, tuple[tuple[float, float], ...]]
) -> Item:
    maker = nets.networks(names, nets.BSTC, 1)
    return Item(
        "table",
        (number,),
        f"networks by scheme; printed on a {chip}",
        {"sim": maker, "cuda": maker},
        ("network", "scheme"),
        times(of, names),
        {"to SBNN-32": _COUNTS},
        {"to SBNN-32": _SCHEMES, "ms": _CHIP, "images/s": _CHIP},
    )


def _single(number: str, name: str) -> Item:
    ms, rate = SINGLE[name]
    maker = nets.networks((name,), {"SBNN-64-Fine": nets.BSTC["SBNN-64-Fine"]}, 1)
    return Item(
        "table",
        (number,),
        f"a single image of {name}; FPGAs and CPUs beside it are the print's",
        {"sim": maker, "cuda": maker},
        ("network", "scheme"),
        {(name, "SBNN-64-Fine"): {"ms": ms, "images/s": rate}},
        reasons_on_gpu={"ms": _CHIP, "images/s": _CHIP},
    )


def _convolutions(numbers: tuple[str, ...], across: str) -> Item:
    pairs = [(n, 64) if across == "inputs" else (64, n) for n in _CHANNELS]
    return Item(
        "figure",
        numbers,
        f"convolutions over {across}; printed as curves of four chips beside cuDNN",
        {
            "sim": bits.convolutions(CONVOLUTIONS, pairs),
            "cuda": bits.convolutions(CONVOLUTIONS, pairs, side=64),
        },
        ("scheme", "channels", "filters"),
    )


PAPER = Paper(
    "bstc",
    "BSTC: a novel binarized-soft-tensor-core design (SC'19)",
    (
        Item(
            "figure",
            ("1",),
            "a warp as a tile",
            note="a drawing; docs/lanes.md has it from simwarp.draw.tile",
        ),
        Item(
            "figure", ("2",), "operations A to H", note="drawings; docs/lanes.md has them from simwarp.draw"
        ),
        Item("figure", ("3", "5"), "LeNet", note="drawings; the network is reference.bnn.lenet"),
        Item(
            "figure",
            ("4",),
            "packing by rows and by columns; the format is drawn by simwarp layout",
            {"sim": bits.packing, "cuda": bits.packing},
            ("layout", "word"),
        ),
        Item(
            "figure",
            ("6", "7"),
            "fusion of layers",
            note="drawings; docs/networks.md tells how launches join layers",
        ),
        Item(
            "figure",
            ("8",),
            "training and inference",
            note="a drawing; docs/networks.md has the way of a model",
        ),
        Item(
            "section",
            ("5.1",),
            "the four approaches to a product; printed as thousands of cycles on a P100",
            {"sim": bits.approaches},
            ("approach",),
            {
                (name,): {"kilocycles": n, "to row by row": n / CYCLES["row-by-row"]}
                for name, n in CYCLES.items()
            },
            {"to row by row": "votes and shuffles are counted alike; in print a vote costs more"},
        ),
        Item("table", ("1",), "the four chips", note="vendors' numbers; simwarp.chips has those of ours"),
        Item("table", ("2",), "the schemes", note="a list of names, those of figures 9 to 12"),
        Item(
            "figure",
            ("9", "10", "11", "12"),
            "products of bits by scheme and size; printed as curves of four chips beside cuBLAS",
            {"sim": bits.products(WORDS, _SMALL), "cuda": bits.products(WORDS, _LARGE)},
            ("scheme", "n"),
        ),
        _convolutions(("13", "14", "15", "16"), "inputs"),
        _convolutions(("17", "18", "19", "20"), "outputs"),
        Item(
            "table",
            ("3",),
            "the networks; printed accuracies need MNIST, CIFAR-10 and ImageNet, and nothing is trained",
            {"sim": nets.structure((*OTHERS, *RESNETS))},
            ("network",),
            {
                ("mlp",): {"accuracy, %": 97.6},
                ("vgg-cifar",): {"accuracy, %": 88.7},
                ("alexnet, sc19",): {"accuracy, %": 74.2},
                ("resnet14",): {"accuracy, %": 91.6},
                ("resnet18",): {"accuracy, %": 72.7},
            },
        ),
        _table("4", "P100", OTHERS, P100),
        _table("5", "V100", OTHERS, V100),
        _table("6", "P100", RESNETS, P100),
        _table("7", "V100", RESNETS, V100),
        _single("8", "alexnet, sc19"),
        _single("9", "vgg16"),
    ),
)
