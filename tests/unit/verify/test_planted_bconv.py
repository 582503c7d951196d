"""Faults that known bit convolutions had, planted in ours, are found by the harness and by the strategy.

Each fault edits the source of a kernel, or of host code, at exactly one place. The harness finds it among
the inputs of every run; with an edit that changes nothing, the same inputs agree. The strategy
finds it within the examples of the profile `ci`.
"""

import inspect
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import gpu.bconv.convolution
import gpu.bconv.geometry
import gpu.compile
import reference
from gpu.bconv.convolution import Launch
from gpu.bconv.geometry import conv_shape
from gpu.bconv.schemes import SCHEMES, convolution_ptx
from simwarp.testing import profiles
from simwarp.testing.compare import assert_same_convolution
from simwarp.testing.geometries import conv_geometries
from simwarp.verify import CASES, Draw, check, simulator
from simwarp.verify.geometry_classes import SMALL_CLASSES, classes_of

CASE = CASES["bconv2d"]
SOURCES = Path(gpu.compile.__file__).parent
BSTC, BTC, ADDENDS, OUTPUT = "bconv/bstc.cu", "bconv/btc.cu", "bconv/btc_operands.cu", "bconv/output.cuh"
HOST = "bconv/geometry.py"


@dataclass(frozen=True)
class Fault:
    """A source edit, and the schemes and output kind that it breaks."""

    path: str
    old: str
    new: str
    schemes: tuple[str, ...]
    bits: bool = False


SOFT, TENSOR = ("bconv32", "bconv64"), ("btc1", "btc2")
COUNTED = "shape.channels * ((bottom - top) * (right - left))"

FAULTS = {
    "forgotten exclude": Fault(BSTC, "exclude += !inside;", "exclude += 0;", SOFT),
    "forgotten exclude, tensor cores": Fault(
        ADDENDS, COUNTED, "shape.channels * (shape.filter_height * shape.filter_width)", TENSOR
    ),
    "exclude counted per channel word": Fault(
        BSTC, "exclude += !inside;", "exclude += words * !inside;", SOFT
    ),
    "exclude counted per channel word, tensor cores": Fault(
        ADDENDS,
        COUNTED,
        "shape.channels * (shape.filter_height * shape.filter_width - divide_up(shape.channels, 32) * "
        "(shape.filter_height * shape.filter_width - (bottom - top) * (right - left)))",
        TENSOR,
    ),
    "a tap outside multiplied as -1": Fault(
        BSTC, "if (!(in_frame >> i & 1)) continue;", "", SOFT
    ),
    "SAME as filter/2": Fault(
        HOST, "return total // 2, total - total // 2", "return span // 2, span // 2", (*SOFT, *TENSOR)
    ),
    "SAME with the odd row above": Fault(
        HOST, "return total // 2, total - total // 2", "return total - total // 2, total // 2",
        (*SOFT, *TENSOR),
    ),
    "wrong side of asymmetric padding": Fault(
        HOST, "return before, (padded", "return after, (padded", (*SOFT, *TENSOR)
    ),
    "unsigned compare in the threshold": Fault(
        OUTPUT, "(dot(i, half) >= threshold)", "((unsigned)dot(i, half) >= (unsigned)threshold)", SOFT, True
    ),
    "unsigned compare in the threshold, tensor cores": Fault(
        BTC,
        "if (dots[j][e] >= threshold[j][e])",
        "if ((unsigned)dots[j][e] >= (unsigned)threshold[j][e])",
        TENSOR,
        True,
    ),
    "stale output buffer": Fault(OUTPUT, "/ 32] = mine;", "/ 32] |= mine;", SOFT, True),
    "stale output buffer, tensor cores": Fault(BTC, "/ 32] = word;", "/ 32] |= word;", TENSOR, True),
    "ragged channels counted as real": Fault(
        BSTC, "const unsigned length = shape.channels *", "const unsigned length = words * word_size *", SOFT
    ),
    "ragged channels counted as real, tensor cores": Fault(
        ADDENDS, COUNTED, COUNTED.replace("shape.channels", "divide_up(shape.channels, 32) * 32"), TENSOR
    ),
}  # fmt: skip

EACH = [(name, scheme) for name, fault in FAULTS.items() for scheme in fault.schemes]


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Make compiler and host code use an edited source; the edit without a change is the correct twin."""
    copies = iter(range(9))

    def edit(path, old, new):
        assert (SOURCES / path).read_text().count(old) == 1
        if path == HOST:
            edit_host(old, new)
            return
        folder = tmp_path / str(next(copies))
        for part in ("bmm", "bconv", "include"):
            copytree(SOURCES / part, folder / part)
        (folder / path).write_text((SOURCES / path).read_text().replace(old, new))
        monkeypatch.setattr(gpu.compile, "_PACKAGE", folder)

    def edit_host(old, new):
        edited = {"__name__": "gpu.bconv.geometry"}
        exec(compile(original.replace(old, new), HOST, "exec"), edited)
        # The shape stays in the class that the kernels support.
        monkeypatch.setattr(
            gpu.bconv.convolution,
            "conv_shape",
            lambda *shapes, **options: gpu.bconv.geometry.ConvShape(
                **vars(edited["conv_shape"](*shapes, **options))
            ),
        )

    original = inspect.getsource(gpu.bconv.geometry)
    return edit


def wrong_inputs(scheme, inputs):
    """The inputs of the scheme, each with the wrong elements of the simulator's output."""
    for k in inputs:
        if of_scheme(k) == scheme:
            yield k, wrong_about(k)


def of_scheme(k):
    return list(SCHEMES)[k % len(SCHEMES)]


def wrong_about(k):
    return check(CASE, 0, k, {"simulator": simulator}, ["simulator"]).mismatches


@cache
def correct(path, k):
    """Whether the planted twin agrees on an input; checked once, since all twins of a file are equal."""
    return wrong_about(k) == []


def draw_input(k):
    return CASE.draw(Draw(0, CASE.name, k))


@cache
def has_bits(k):
    return draw_input(k).thresholds is not None


@pytest.mark.slow
@pytest.mark.at_most(2)
@pytest.mark.slow_cases(
    "forgotten exclude-bconv32",
    "forgotten exclude, tensor cores-btc1",
    "SAME as filter/2-btc1",
    "SAME as filter/2-btc2",
    "SAME with the odd row above-bconv32",
    "SAME with the odd row above-btc2",
    "ragged channels counted as real, tensor cores-btc1",
)
@pytest.mark.parametrize(("name", "scheme"), EACH)
def test_the_harness_finds_only_the_planted_fault(plant, name, scheme):
    fault = FAULTS[name]
    plant(fault.path, fault.old, fault.new)
    inputs = [k for k in range(CASE.covering) if not fault.bits or has_bits(k)]  # every run tries these
    last, (found,) = next((k, wrong) for k, wrong in wrong_inputs(scheme, inputs) if wrong)
    assert (found.case, found.input, found.tier) == ("bconv2d", last, "simulator")
    assert found.command == f"simwarp verify --case bconv2d --seed 0 --input {last}"
    if "stale" in name:
        assert ", which nothing wrote" in found.fault
        assert found.place.kernel == scheme
    elif found.place is not None:
        assert found.place.kernel == scheme
        assert "output pixel" in found.meaning

    plant(fault.path, fault.old, fault.old)
    assert [k for k in inputs if k <= last and of_scheme(k) == scheme and not correct(fault.path, k)] == []


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("exclude counted per channel word", "exclude counted per channel word, tensor cores")
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.bits])
def test_the_ci_profile_finds_the_planted_fault(plant, name):
    fault = FAULTS[name]
    plant(fault.path, fault.old, fault.new)
    with pytest.raises(AssertionError, match=r"taps outside|of shape"):
        convolutions_agree(fault.schemes[-1])


def convolutions_agree(scheme):
    """Check all examples of the profile `ci`, without shrinking, which takes longer than finding."""
    profiles.register()
    ci = settings.get_profile("ci")

    @settings(ci, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(geometry=conv_geometries(*SMALL_CLASSES), seed=st.integers(0, 2**32 - 1))
    def agree(geometry, seed):
        draw = Draw(seed, "planted", 0)
        x, w = (
            draw.matrix(int(np.prod(shape[:3])), shape[3], "int8").reshape(shape)
            for shape in (geometry.images, geometry.filters)
        )
        expected = reference.bconv2d(x, w, **geometry.options)
        got = gpu.bconv2d(x, w, **geometry.options, scheme=scheme, device=simulator())
        assert_same_convolution(geometry, expected, got)

    agree()


@pytest.mark.gate
def test_a_missing_exclude_is_harmless_without_padding(plant):
    fault = FAULTS["forgotten exclude"]
    plant(fault.path, fault.old, fault.new)
    for k, wrong in wrong_inputs("bconv32", range(44)):
        item = draw_input(k)
        if "no border" in classes_of(item.geometry):
            assert wrong == []
        elif item.thresholds is None and item.geometry.excluded.any():
            (found,) = wrong
            outside = int(item.geometry.excluded[found.element[1:3]])
            assert found.got - found.expected == outside * item.geometry.images[3]
            assert f"{outside} of " in found.meaning


@pytest.mark.at_most(2)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_second_launch_gives_the_same_result(scheme):
    """The kernel is idempotent: output of the first launch does not affect the second."""
    device = simulator()
    draw = Draw(0, "two launches", 0)
    x, other = (draw.matrix(2 * 5 * 5, 33, "int8").reshape(2, 5, 5, 33) for _ in range(2))
    w = draw.matrix(9 * 33, 40, "int8").reshape(3, 3, 33, 40)
    thresholds, flip = np.arange(40, dtype=np.int32) % 7 - 3, np.arange(40) % 3 == 0
    shape = conv_shape(x.shape, w.shape)
    launch = Launch(SCHEMES[scheme], shape, "none", "bits", device.compute_capability, 1)
    rule = device.upload(thresholds), device.upload(flip.astype(np.uint8))
    filters = gpu.prepare(w, "w", scheme=scheme, device=device)
    y = launch.output_on(device)
    for images in (x, other, x):
        launch(device, gpu.prepare(images, "x", scheme=scheme, device=device), filters, y, rule)
        expected = reference.threshold_tensor(reference.bconv2d(images, w), thresholds, flip)
        np.testing.assert_array_equal(y.download(), expected.words)


@pytest.mark.parametrize("path", [BSTC, OUTPUT])
def test_copied_sources_compile_to_the_same_ptx(plant, path):
    shape = conv_shape((1, 5, 5, 33), (3, 3, 33, 8))
    given = SCHEMES["bconv32"], shape, "bits", "or", (9, 0)
    original = convolution_ptx(*given).text
    fault = next(fault for fault in FAULTS.values() if fault.path == path)
    plant(path, fault.old, fault.old)
    assert convolution_ptx(*given).text == original
    plant(path, fault.old, fault.new)
    assert convolution_ptx(*given).text != original
