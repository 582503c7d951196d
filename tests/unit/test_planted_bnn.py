"""Faults planted in `gpu.bnn` that random networks seldom meet, found by networks and images made for them.

A fault edits one place of a kernel or of the plan. With an edit that changes nothing, the same network and
images agree with the definition. Those that random networks find are in test_planted_random_networks.py.
"""

import inspect
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import gpu.bnn
import gpu.bnn.network
import gpu.bnn.plan
import gpu.compile
import reference.bnn
from reference import NotANumberError, pack, pack_tensor
from reference.bnn import (
    Clip,
    Conv,
    Dense,
    Flatten,
    Network,
    PadChannels,
    Pixels,
    Pool,
    Reals,
    Residual,
    Threshold,
)
from simwarp import Device
from simwarp.faults import KernelFault

SOURCES = Path(gpu.compile.__file__).parent
PLAN = "bnn/plan.py"
RNG = np.random.default_rng(19)  # drawn anew for each test
SAME = ((1, 1), (1, 1))


def signs(*shape):
    return RNG.choice(np.array([-1, 1], np.int8), shape)


def conv(*shape, **options):
    return Conv(pack_tensor(signs(*shape), layout="HWOI"), **options)


def dense(*shape):
    return Dense(pack(signs(*shape), layout="row"))


def threshold(channels, spread=3):
    limits = RNG.integers(-spread, spread + 1, channels).astype(np.int32)
    return Threshold(limits, RNG.random(channels) < 0.5)


def pixels(*shape, scale=3):
    return Pixels(shape, *(np.full(shape[-1], number, np.int32) for number in (scale, -128 * scale)))


def network(given, *layers, scale=None):
    count = layers[-1].weights.shape[1]
    scales = RNG.standard_normal(count).astype(np.float32) if scale is None else np.full(count, scale, "f4")
    return Network(
        "small", given, layers, scales, RNG.standard_normal(count).astype(np.float32) * (scale is None)
    )


NETWORKS = {
    "plain": lambda: network(
        pixels(6, 6, 3),
        conv(3, 3, 3, 40, padding=SAME),
        threshold(40, 1000),
        conv(3, 3, 40, 36, padding=SAME),
        Pool("max"),
        threshold(36),
        Flatten(),
        dense(9 * 36, 9),
    ),
    "residual": lambda: network(
        pixels(4, 4, 3, scale=99),
        conv(3, 3, 3, 33, padding=SAME),
        Residual((threshold(33, 9000), conv(1, 1, 33, 33), conv(1, 1, 33, 33)), ()),
        Residual(
            (threshold(33, 9000), conv(3, 3, 33, 33, padding=SAME)), (Pool("max", (1, 1), (1, 1)), Clip(0))
        ),
        threshold(33, 9000),
        Flatten(),
        dense(16 * 33, 5),
    ),
    "eights": lambda: network(
        pixels(4, 4, 3),
        conv(3, 3, 3, 40, padding=SAME),
        Residual((threshold(40, 900), conv(2, 2, 40, 64, stride=(2, 2))), (Pool("max"), PadChannels(16, 8))),
        threshold(64, 900),
        Flatten(),
        dense(4 * 64, 9),
    ),
    "pooled": lambda: network(
        pixels(5, 5, 8), threshold(8, 90), Pool("or", (3, 3), (2, 2), SAME), Flatten(), dense(72, 9)
    ),
    "numbers of numbers": lambda: network(pixels(70), Clip(0), dense(70, 40)),
    "numbers": lambda: Network("small", pixels(9), (Clip(0),), *np.ones((2, 9), np.float32)),
    "reals": lambda: network(Reals((50,), fraction=1), dense(50, 20), threshold(20), dense(20, 6)),
    "ties": lambda: network(pixels(70), threshold(70, 100), dense(70, 40), scale=0),
}


def images_of(net, count=5):
    if isinstance(net.input, Pixels):
        return RNG.integers(0, 256, (count, *net.input.shape), dtype=np.uint8)
    return (RNG.integers(-40, 41, (count, *net.input.shape)) / 4).astype(np.float32)  # halves of units, too


@dataclass(frozen=True)
class Fault:
    """A source edit, and a network that it breaks."""

    network: str
    path: str
    old: str
    new: str


FAULTS = {
    "a barrier that not all warps meet": Fault(
        "plain",
        "bnn/dots.cu",
        "region, tile);\n    __syncthreads();",
        "region, tile);\n    if (threadIdx.x < 64) __syncthreads();",
    ),
    "a truncated shortcut": Fault(
        "residual", "bnn/integers.cu", "number += added.of[i];", "number = (short)(number + added.of[i]);"
    ),
    "a sign of 16 bits forgotten": Fault(
        "eights", "bnn/integers.cu", "pairs[i / 2] << 16) >> 16", "pairs[i / 2])"
    ),
    "zeros that begin too early": Fault("eights", "bnn/integers.cu", "first - view.before", "first"),
    "halves of a pair exchanged": Fault(
        "eights", "bnn/integers.cu", "(i % 2 ? pairs[i / 2] : pairs", "(i % 2 == 0 ? pairs[i / 2] : pairs"
    ),
    "a window's second row forgotten": Fault("eights", "bnn/integers.cu", "i < WINDOW_H", "i < WINDOW_H - 1"),
    "an eight past the end": Fault(
        "eights", "bnn/integers.cu", "    if (first < channels) load_a", "    load_a"
    ),
    "a byte of another word": Fault(
        "eights", "bnn/integers.cu", "place = {row, first / 32}", "place = {row, first / 64}"
    ),
    "a counter of 16 bits": Fault(
        "residual", "bnn/dots.cu", "sum = (int)((unsigned)sum << 8)", "sum = (short)((unsigned)sum << 8)"
    ),
    "the last word's bits past its channels": Fault(
        "plain",
        "bnn/flatten.cu",
        "min(min(32 - channel % 32, channels - channel), last - feature)",
        "min(32 - channel % 32, last - feature)",
    ),
    "the last of equal classes": Fault("ties", "bnn/answer.cu", "where < best", "where > best"),
    "halves away from 0": Fault("reals", "bnn/source.cuh", "rintf(x * unit)", "roundf(x * unit)"),
    "the shortcut of another layer": Fault(
        "residual", PLAN, "{len(way) - 1}", "{(len(way) - 1) * (name == 'body')}"
    ),
}


@pytest.fixture(autouse=True)
def same_numbers():
    """Every test draws the same networks and images, whatever ran before it."""
    global RNG
    RNG = np.random.default_rng(19)


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Make compiler and host code use an edited source."""
    copies = iter(range(9))

    def edit(path, old, new):
        text = (SOURCES / path).read_text()
        assert text.count(old) == 1
        if path == PLAN:
            edited = {"__name__": "gpu.bnn.plan"}
            exec(compile(text.replace(old, new), path, "exec"), edited)
            monkeypatch.setattr(gpu.bnn.network, "steps_of", edited["steps_of"])
            return
        folder = tmp_path / str(next(copies))
        for part in ("bmm", "bconv", "bnn", "include"):
            copytree(SOURCES / part, folder / part)
        (folder / path).write_text(text.replace(old, new))
        monkeypatch.setattr(gpu.compile, "_PACKAGE", folder)

    assert inspect.getsourcefile(gpu.bnn.plan) == str(SOURCES / PLAN)
    return edit


def is_right(net, images, scheme="bconv32"):
    """Whether three runs on the simulator give the definition's answer, without a fault."""
    expected = reference.bnn.run(net, images)
    try:
        prepared = gpu.bnn.prepare(net, device=Device(), schemes={"Conv": scheme, "Dense": "bmm32"})
        answers = [prepared.run(images) for _ in range(3)]
    except KernelFault:
        return False
    return all(
        np.array_equal(got, wanted)
        for answer in answers
        for got, wanted in zip(answer, expected, strict=True)
    )


CORRECT: set[tuple[str, str]] = set()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_planted_fault_alone_is_found(plant, name):
    fault = FAULTS[name]
    net = NETWORKS[fault.network]()
    images = images_of(net)
    if (fault.network, fault.path) not in CORRECT:  # all twins of a file are equal
        plant(fault.path, fault.old, fault.old)
        assert is_right(net, images)
        CORRECT.add((fault.network, fault.path))
    plant(fault.path, fault.old, fault.new)
    assert not is_right(net, images)


WAITS = {
    "integers": ("residual", "bnn/integers.cu", "    for (unsigned row = blockIdx"),
    "flatten": ("eights", "bnn/flatten.cu", "    const unsigned features"),
    "pool": ("pooled", "bnn/pool.cu", "    const unsigned index"),
    "dots": ("numbers of numbers", "bnn/dots.cu", "    for (unsigned index = blockIdx"),
    "answer": ("numbers", "bnn/answer.cu", "    const unsigned image"),
    "units": ("eights", "bconv/btc_operands.cu", "    const unsigned units_of_line"),
    "ones": ("eights", "bconv/btc_operands.cu", "    const unsigned line ="),
    "convolution": ("eights", "bconv/wgmma.cu", "\n    const unsigned serving"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", WAITS)
def test_a_launch_that_does_not_wait_for_those_before_is_found(plant, kernel):
    name, path, behind = WAITS[kernel]
    net, wait = NETWORKS[name](), "    wait_for_earlier_launches();\n" + behind
    images, scheme = images_of(net), "wgmma" if path.startswith("bconv") else "bconv32"
    plant(path, wait, wait)
    assert is_right(net, images, scheme)
    plant(path, wait, behind)
    assert not is_right(net, images, scheme)


def test_a_nan_that_no_comparison_sees_is_found(plant):
    net = NETWORKS["reals"]()
    images = images_of(net)
    images[1, 7] = np.nan
    kept = "!(nearest >= -32768.0f && nearest <= 32767.0f)"
    plant("bnn/source.cuh", kept, kept)
    with pytest.raises(NotANumberError):
        gpu.bnn.run(net, images, device=Device())
    plant("bnn/source.cuh", kept, "nearest < -32768.0f || nearest > 32767.0f")
    gpu.bnn.run(net, images, device=Device())  # an answer without an error: the fault
