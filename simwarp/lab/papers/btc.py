"""Figures and tables of BTC (TPDS'20), with what it prints."""

from __future__ import annotations

import simwarp
from simwarp.lab.network_studies import Facts
from simwarp.lab.papers import bits, nets
from simwarp.lab.papers.bits import TURING
from simwarp.lab.papers.entries import Device, Item, Made, Maker, Making, Paper, Printed
from simwarp.lab.probe.latency import latencies

DESIGNS = ("btc1", "btc2", "btc3")
BSTC = ("bmm32", "bmm64", "bmms32", "bmms64")
CONVOLUTIONS = ("bconv32", "bconv64", "btc1", "btc2")
NAMES = ("mlp", "vgg-cifar", "resnet14", "alexnet", "vgg16", "resnet18")
SCHEMES = tuple(nets.BTC)
RTX_2080 = {
    "mlp": (
        (0.227, 2.88e6),
        (0.082, 1.97e6),
        (0.908, 8.44e4),
        (0.074, 5.51e6),
        (0.061, 3.37e6),
        (0.055, 5.48e6),
    ),
    "vgg-cifar": (
        (1.891, 1.06e4),
        (1.536, 1.05e4),
        (2.816, 1.06e4),
        (0.999, 1.63e4),
        (0.364, 3.62e4),
        (0.338, 3.85e4),
    ),
    "resnet14": (
        (5.138, 4170),
        (4.382, 3970),
        (8.132, 4590),
        (2.550, 6520),
        (0.827, 1.58e4),
        (0.724, 1.71e4),
    ),
    "alexnet": ((4.494, 3180), (3.928, 3050), (17.258, 1950), (2.871, 3790), (2.367, 3850), (2.326, 3770)),
    "vgg16": ((27.638, 426), (27.009, 425), (40.247, 523), (16.68, 665), (7.449, 1240), (7.021, 1340)),
    "resnet18": ((6.550, 2600), (5.944, 2370), (8.108, 3010), (3.736, 3420), (1.869, 5480), (1.833, 5550)),
}
"""Table 6: milliseconds of 8 images and images a second, of the schemes in the order of `SCHEMES`."""
RTX_2080_TI = {
    "mlp": (
        (0.252, 2.99e6),
        (0.082, 2.43e6),
        (0.952, 1.03e6),
        (0.070, 6.87e6),
        (0.057, 4.38e6),
        (0.053, 6.78e6),
    ),
    "vgg-cifar": (
        (1.596, 1.19e4),
        (1.548, 1.19e4),
        (2.921, 1.37e4),
        (0.926, 2.09e4),
        (0.317, 4.69e4),
        (0.276, 5.06e4),
    ),
    "resnet14": (
        (4.909, 4680),
        (4.061, 4650),
        (8.633, 5950),
        (2.341, 7860),
        (0.728, 2.06e4),
        (0.618, 2.24e4),
    ),
    "alexnet": ((1.937, 7620), (1.733, 7160), (14.214, 2590), (2.017, 4990), (1.878, 4870), (1.862, 4870)),
    "vgg16": ((23.788, 513), (22.722, 506), (31.561, 708), (12.057, 883), (5.840, 1620), (5.466, 1760)),
    "resnet18": ((5.863, 3080), (5.145, 3100), (8.092, 3910), (3.233, 4520), (1.538, 7230), (1.438, 7340)),
}
"""Table 7."""
SINGLE = {"alexnet": (0.559, 4869), "vgg16": (3.570, 1760)}
"""Tables 8 and 9: an RTX 2080 Ti, a single image."""
SYNC = {"mlp": 8.26, "vgg-cifar": 14.10, "resnet14": 13.20, "alexnet": 1.36, "vgg16": 1.72, "resnet18": 5.67}
"""Table 10, in percent."""
FIRST_LAYER = {"alexnet": 77.4, "vgg16": 35.0, "resnet18": 35.0}
"""Figure 24, in percent; of the last two the text says "over"."""
RESIDUALS = {"resnet14": 9.7, "resnet18": 9.0}
"""Figure 26: how much faster a network without residuals is, in percent."""
_SIZES = (128, 256)
_SMALLER = {"width": 8}
"""Of the networks on the simulator, which runs eight images."""
_LARGE = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_CHANNELS = tuple((n, n) for n in (128, 384))
_ALL_CHANNELS = tuple((n, n) for n in (*range(128, 1025, 128), 1536, 2048))
_COUNTS = (
    "instructions and times differ: a product of a bit tensor core is one instruction, "
    "whatever it takes, "
    "and small layers leave most of the print's chip idle"
)
_SCHEMES = (
    "our launches of small layers take 1 to 5 us on tensor cores, too, so that these gain less; and print's "
    "first layer, which is the same in all schemes, takes most of AlexNet's time, ours a sixth"
)
_CHIP = (
    "not separated: an H200 has two to three times the multiprocessors and eight to ten times the bandwidth; "
    "our kernels are a launch a layer, and first layers multiply bytes on tensor cores"
)


def times(of: dict[str, tuple[tuple[float, float], ...]]) -> Printed:
    """The printed latencies and throughputs of networks, each also beside SBNN-32's latency."""
    return {
        (name, scheme): {"ms": ms, "images/s": rate, "to SBNN-32": ms / rows[0][0]}
        for name, rows in of.items()
        for scheme, (ms, rate) in zip(SCHEMES, rows, strict=True)
    }


def _table(number: str, chip: str, of: dict[str, tuple[tuple[float, float], ...]]) -> Item:
    maker = nets.networks(NAMES, nets.BTC, 8, _SMALLER)
    return Item(
        "table",
        (number,),
        f"networks by scheme, 8 images; printed on an {chip}",
        {"sim": maker, "cuda": maker},
        ("network", "scheme"),
        times(of),
        {"to SBNN-32": _COUNTS},
        {"to SBNN-32": _SCHEMES, "ms": _CHIP, "images/s": _CHIP},
    )


def _single(number: str, name: str) -> Item:
    ms, rate = SINGLE[name]
    maker = nets.networks((name,), {"BTC-FMT": nets.BTC["BTC-FMT"]}, 1)
    return Item(
        "table",
        (number,),
        f"a single image of {name}; FPGAs and CPUs beside it are the print's",
        {"sim": maker, "cuda": maker},
        ("network", "scheme"),
        {(name, "BTC-FMT"): {"ms": ms, "images/s": rate}},
        reasons_on_gpu={"ms": _CHIP, "images/s": _CHIP},
    )


def _products(numbers: tuple[str, ...], *, real: bool) -> Item:
    schemes, kind = (*BSTC, *DESIGNS), "general: float32 to int32" if real else "specific: bits to bits"
    return Item(
        "figure",
        numbers,
        f"products, {kind}; printed as curves of two chips beside cuBLAS",
        {
            "sim": bits.products(schemes, _SIZES, TURING, real=real),
            "cuda": bits.products(schemes, _LARGE, real=real),
        },
        ("scheme", "n"),
    )


def _convolutions(numbers: tuple[str, ...], *, real: bool) -> Item:
    kind = "general: float32 to int32" if real else "specific: bits to bits"
    return Item(
        "figure",
        numbers,
        f"convolutions, {kind}; printed as curves of two chips beside cuDNN",
        {
            "sim": bits.convolutions(CONVOLUTIONS, _CHANNELS, TURING, images=8, side=4, real=real),
            "cuda": bits.convolutions(CONVOLUTIONS, _ALL_CHANNELS, images=16, side=64, real=real),
        },
        ("scheme", "channels", "filters"),
    )


def _timed(figures: tuple[str, ...], maker: Maker, over: str, title: str) -> Item:
    makers: dict[Device, Maker] = {"sim": maker, "cuda": maker}
    keys = ("memory", "instruction", over) if over == "ldm" else ("accumulators", "instruction", over)
    return Item("figure", figures, f"{title}; printed as curves", makers, keys)


def _latencies(*figures: int) -> Maker:
    """What one warp's accesses or products take: cycles on a GPU, what explains them on the simulator."""

    def make(making: Making) -> Made:
        rows, device = list[Facts](), making.device or simwarp.Device()
        for done, figure in enumerate(figures):
            making.progress(done, len(figures))
            rows += [
                {name: value for name, value in row.items() if not isinstance(value, list | dict)}
                for row in latencies(device, figure)
            ]
        return Made(rows, "one warp alone")

    return make


PAPER = Paper(
    "btc",
    "Accelerating binarized neural networks via bit-tensor-cores in Turing GPUs (TPDS 2020)",
    (
        Item("table", ("1",), "soft and hard tensor cores compared", note="words without measurements"),
        Item("figure", ("1",), "a subcore of Turing", note="a drawing"),
        _timed(("2", "3", "4", "5"), _latencies(2, 3), "ldm", "latency of loads over their stride"),
        _timed(("6", "7", "8", "9"), _latencies(6, 7), "ldm", "latency of stores over their stride"),
        _timed(
            ("10", "11", "12", "13"),
            _latencies(10, 11),
            "products",
            "latency of chained and of separate products",
        ),
        Item(
            "figure",
            ("14",),
            "the format FSB",
            note="a drawing; docs/formats.md has it from simwarp.draw.fsb",
        ),
        Item(
            "figure", ("15",), "a network with residuals", note="a drawing; docs/networks.md tells what flows"
        ),
        Item("table", ("2",), "the two chips", note="vendors' numbers; simwarp.chips has those of ours"),
        Item("table", ("3", "4"), "the schemes", note="lists of names, those of figures 16 to 19"),
        _products(("16", "18"), real=True),
        _products(("17", "19"), real=False),
        _convolutions(("20", "22"), real=True),
        _convolutions(("21", "23"), real=False),
        Item(
            "table",
            ("5",),
            "the networks; printed accuracies need MNIST, CIFAR-10 and ImageNet, and nothing is trained",
            {"sim": nets.structure(NAMES)},
            ("network",),
            {
                ("mlp",): {"accuracy, %": 97.6},
                ("vgg-cifar",): {"accuracy, %": 88.7},
                ("resnet14",): {"accuracy, %": 91.6},
                ("alexnet",): {"accuracy, %": 74.2},
                ("vgg16",): {"accuracy, %": 77.7},
                ("resnet18",): {"accuracy, %": 72.7},
            },
        ),
        _table("6", "RTX 2080", RTX_2080),
        _table("7", "RTX 2080 Ti", RTX_2080_TI),
        _single("8", "alexnet"),
        _single("9", "vgg16"),
        Item(
            "figure",
            ("24",),
            "the time of each layer; printed as bars, with the first layer's share in the text",
            {"sim": nets.study("breakdown", NAMES, 1, _SMALLER), "cuda": nets.study("breakdown", NAMES, 8)},
            ("network", "part"),
            {(name, "first layer"): {"percent": share} for name, share in FIRST_LAYER.items()},
            {"percent": "our first layer multiplies fixed point on tensor cores of bytes; print adds floats"},
        ),
        Item(
            "table",
            ("10",),
            "what barriers of the whole grid cost, in percent; without them the simulator finds a race",
            {"sim": nets.study("sync", ("mlp",), 8, {"width": 16}), "cuda": nets.study("sync", NAMES, 8)},
            ("network", "images"),
            {(name, 8): {"percent": share} for name, share in SYNC.items()},
            reasons_on_gpu={
                "percent": "a barrier takes 1 to 4 us, about as long as in print by its tables 6 and 10; "
                "the work between barriers takes a nineteenth to two thirds of print's time"
            },
        ),
        Item(
            "figure",
            ("25",),
            "throughput by batch",
            {"cuda": nets.study("batch", NAMES, 4096)},
            ("network", "images"),
        ),
        Item(
            "figure",
            ("26",),
            "what residuals cost, in percent of a network without; printed as bars and in the caption",
            {
                "sim": nets.study("shortcut", tuple(RESIDUALS), 1, _SMALLER),
                "cuda": nets.study("shortcut", tuple(RESIDUALS), 8),
            },
            ("network", "shortcut"),
            {(name, "A"): {"percent": share} for name, share in RESIDUALS.items()},
            {
                "percent": "residuals are integers of 32 bits in memory, and a larger part of the network, "
                "whose rest is faster than print's"
            },
        ),
    ),
)
