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
from gpu.bconv import warpgroups
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
PLAN, WHOLE = "bnn/plan.py", "bnn/whole.py"
MODULES = {PLAN: ("gpu.bnn.plan", "steps_of"), WHOLE: ("gpu.bnn.whole", "Whole")}
"""Edited modules, and what gpu.bnn.network takes of them."""
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
    "added": lambda: network(
        pixels(4, 4, 3),
        conv(3, 3, 3, 16, padding=SAME),
        Residual((threshold(16, 900), conv(3, 3, 16, 16, padding=SAME))),
        Residual((threshold(16, 900), conv(3, 3, 16, 16, padding=SAME))),
        threshold(16, 900),
        Flatten(),
        dense(16 * 16, 9),
    ),
    "pooled": lambda: network(
        pixels(5, 5, 8), threshold(8, 90), Pool("or", (3, 3), (2, 2), SAME), Flatten(), dense(72, 9)
    ),
    "numbers of numbers": lambda: network(pixels(70), Clip(0), dense(70, 40)),
    "numbers": lambda: Network("small", pixels(9), (Clip(0),), *np.ones((2, 9), np.float32)),
    "two ways": lambda: network(
        pixels(6, 6, 3),
        conv(3, 3, 3, 33, padding=SAME),
        Residual(
            (threshold(33, 900), conv(1, 1, 33, 33), threshold(33), conv(1, 1, 33, 33)),
            (threshold(33, 900), conv(1, 1, 33, 33)),
        ),
        Flatten(),
        dense(36 * 33, 5),
    ),
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
    way: str = "layers"
    schedule: str = "lowest pc"


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
        "residual",
        "bnn/dots.cu",
        "sum = (int)(((unsigned)sum << 8) +",
        "sum = (short)(((unsigned)sum << 8) +",
    ),
    "the last word's bits past its channels": Fault(
        "plain",
        "bnn/flatten.cu",
        "min(min(32 - channel % 32, channels - channel), last - feature)",
        "min(32 - channel % 32, last - feature)",
    ),
    "the last of equal classes": Fault("ties", "include/bmm/largest.cuh", "where < place", "where > place"),
    "halves away from 0": Fault("reals", "bnn/source.cuh", "rintf(x * unit)", "roundf(x * unit)"),
    "the shortcut of another layer": Fault(
        "residual", PLAN, "{len(way) - 1}", "{(len(way) - 1) * (name == 'body')}"
    ),
}


def whole(network, path, old, new, schedule="lowest pc"):
    return Fault(network, path, old, new, "whole", schedule)


FAULTS |= {
    "a barrier in a loop that not all warps go through": whole(
        "plain",
        "bnn/products.cuh",
        "__syncthreads();  // the sums of the task before are read",
        "if (part) __syncthreads();",
    ),
    "a counter that is not reset": whole(
        "plain", "bnn/grid_barrier.cuh", "atomicExch(arrivals, 0)", "atomicExch(arrivals, arrived)", "random"
    ),
    "a counter that is reset by the first to leave": whole(
        "plain", "bnn/grid_barrier.cuh", "(barriers + 1) * gridDim.x - 1", "barriers * gridDim.x", "random"
    ),
    "an arrival that releases nothing": whole(
        "plain", "bnn/grid_barrier.cuh", "red.release.gpu", "red.relaxed.gpu"
    ),
    "a wait that acquires nothing": whole(
        "plain", "bnn/grid_barrier.cuh", "ld.acquire.gpu", "ld.relaxed.gpu"
    ),
    "a step without its barrier": whole("plain", "bnn/whole.cu", "!next.waits", "!next.waits || s == 2"),
    "barriers of every second level": whole("plain", WHOLE, "and i == 0", "and i == 0 and len(rows) % 2"),
    "memory that is used again too early": whole(
        "residual", WHOLE, "max(spans[name][1], level)", "max(spans[name][1], level - 1)"
    ),
    "sums of the tile before": whole(
        "plain",
        "bnn/products.cuh",
        "        int sums[sums_of_lane] = {};",
        "        int sums[sums_of_lane];\n"
        "        for (unsigned i = 0; i < sums_of_lane && task < gridDim.x; ++i) sums[i] = 0;",
    ),
    "ones of the first step of k": whole(
        "plain",
        "bnn/products.cuh",
        "        multiply_bits(ones,",
        "        if (k == first) multiply_bits(ones,",
    ),
    "a tap in the column beside the image": whole(
        "plain", "bnn/products.cuh", " && window.left + tap.column < step.width", ""
    ),
    "high bytes without a sign": whole(
        "plain",
        "bnn/products.cuh",
        "multiply_add<true>(high[2 * pair],",
        "multiply_add<false>(high[2 * pair],",
    ),
    "a part of k that is not added": whole(
        "plain", "bnn/products.cuh", "other < step.parts_of_k", "other + 1 < step.parts_of_k"
    ),
    "a sum that is not kept": whole(
        "residual",
        "bnn/products.cuh",
        "if (step.numbers != nowhere) memory",
        "if (step.numbers != nowhere && step.lines == nowhere) memory",
    ),
    "tasks of a second step that nobody takes": whole(
        "two ways", "bnn/step.cuh", "? gridDim.x : 0", "? 0 : 0"
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
        if path in MODULES:
            module, name = MODULES[path]
            edited = {"__name__": module}
            exec(compile(text.replace(old, new), path, "exec"), edited)
            monkeypatch.setattr(gpu.bnn.network, name, edited[name])
            return
        folder = tmp_path / str(next(copies))
        for part in ("bmm", "bconv", "bnn", "include"):
            copytree(SOURCES / part, folder / part)
        (folder / path).write_text(text.replace(old, new))
        monkeypatch.setattr(gpu.compile, "_PACKAGE", folder)

    assert inspect.getsourcefile(gpu.bnn.plan) == str(SOURCES / PLAN)
    return edit


def is_right(net, images, way="layers", schedule="lowest pc", scheme="bconv32"):
    """Whether three runs on the simulator give the definition's answer, without a fault."""
    expected = reference.bnn.run(net, images)
    device, schemes = Device(), {"Conv": scheme, "Dense": "bmm32"}
    if way == "whole":
        device, schemes = Device(multiprocessors=1, schedule=schedule), {}
    try:
        prepared = gpu.bnn.prepare(net, device=device, way=way, schemes=schemes)
        return all(
            np.array_equal(got, wanted)
            for _ in range(3)
            for got, wanted in zip(prepared.run(images), expected, strict=True)
        )
    except KernelFault:
        return False


CORRECT: set[tuple[str, str, str]] = set()


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.gate_cases(  # each compiles a network anew; another one, of the same file, is alike
    "halves of a pair exchanged",
    "a window's second row forgotten",
    "a byte of another word",
    "a counter that is not reset",
    "a counter that is reset by the first to leave",
    "a wait that acquires nothing",
    "a step without its barrier",
    "sums of the tile before",
    "ones of the first step of k",
    "high bytes without a sign",
    "a sum that is not kept",
)
@pytest.mark.parametrize("name", FAULTS)
def test_the_planted_fault_alone_is_found(plant, name):
    fault = FAULTS[name]
    net = NETWORKS[fault.network]()
    images = images_of(net)
    twin = fault.network, fault.way, fault.schedule
    if twin not in CORRECT:  # whatever the file: all twins are equal
        plant(fault.path, fault.old, fault.old)
        assert is_right(net, images, fault.way, fault.schedule)
        CORRECT.add(twin)
    plant(fault.path, fault.old, fault.new)
    assert not is_right(net, images, fault.way, fault.schedule)


WAITS = {
    "integers": ("residual", "bnn/integers.cu", "    for (unsigned row = blockIdx"),
    "flatten": ("eights", "bnn/flatten.cu", "    const unsigned features"),
    "pool": ("pooled", "bnn/pool.cu", "    const unsigned index"),
    "dots": ("numbers of numbers", "bnn/dots.cu", "    for (unsigned index = blockIdx"),
    "answer": ("numbers", "bnn/answer.cu", "    const unsigned image"),
    "units": ("eights", "bconv/btc_operands.cu", "    const unsigned units_of_line"),
    "ones": ("eights", "bconv/btc_operands.cu", "    const unsigned line ="),
    "copied windows": ("eights", "bconv/wgmma.cu", "\n    const unsigned serving"),
    "patches": ("eights", "bconv/direct.cu", "#endif\n    Turn<patches> turn;"),
    "what is added": ("added", "bconv/direct.cu", "#endif\n#if defined(ADDED)"),
}


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("kernel", WAITS)
def test_a_launch_that_does_not_wait_for_those_before_is_found(plant, kernel, monkeypatch):
    name, path, behind = WAITS[kernel]
    if kernel in ("units", "ones", "copied windows"):
        monkeypatch.setattr(warpgroups, "direct_of", lambda *_: None)
    net, wait = NETWORKS[name](), "    wait_for_earlier_launches();\n" + behind
    images, scheme = images_of(net), "wgmma" if path.startswith("bconv") else "bconv32"
    plant(path, wait, wait)
    assert is_right(net, images, scheme=scheme)
    plant(path, wait, behind)
    assert not is_right(net, images, scheme=scheme)


@pytest.mark.slow
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
