"""The scheme that "auto" takes: the fastest kernel for chip, sizes, output and format, in one launch."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bmm import product
from gpu.bmm.choice import PREFERRED, fastest_scheme
from gpu.bmm.schemes import choose_scheme
from gpu.preparation import prepare
from reference.errors import FormatError, SchemeError
from support.offenders import every_case

TURING, AMPERE, ADA, HOPPER, BLACKWELL = (7, 5), (8, 0), (8, 9), (9, 0), (12, 0)
LINES = ("btc1", "btc2", "mma", "skinny", "wgmma")
LONG = 2**24


def signs(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), shape)


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that are launched on any simulator."""
    names = []
    launch = simwarp.Device.launch

    def noted(self, plan, arrays):
        names.append(plan.name)
        launch(self, plan, arrays)

    monkeypatch.setattr(simwarp.Device, "launch", noted)
    return names


# The choice


@every_case(
    ("chip", "sizes", "output", "form", "name"),
    [
        ((7, 0), (9, 9, 9), "int32", "real", "bmm32"),
        (TURING, (9, 9, 9), "int32", "real", "btc2"),
        (TURING, (99, 99, 9), "words", "lines", "btc2"),
        (AMPERE, (16, 99, 9), "words", "real", "skinny"),
        (AMPERE, (17, 99, 9), "int32", "lsb32", "mma"),
        (ADA, (99, 16, 9), "int32", "lines", "skinny"),
        (ADA, (99, 17, 9), "words", "lines", "mma"),
        (ADA, (99, 99, 9), "int16", "real", "mma"),  # which refuses it
        (HOPPER, (1, 99, 9), "int32", "real", "skinny"),
        (HOPPER, (99, 16, 9), "words", "lines", "skinny"),
        (HOPPER, (17, 17, 9), "words", "lsb32", "wgmma"),
        (HOPPER, (17, 17, 2**24 - 1), "int32", "real", "wgmma"),
        (HOPPER, (17, 17, LONG), "int32", "real", "btc2"),
        (HOPPER, (1, 17, LONG), "int32", "real", "skinny"),
        *((HOPPER, (1, 99, 9), output, "lines", "wgmma") for output in ("int16", "float16")),
        *((chip, (1, 99, 9), "lines", "lines", "skinny") for chip in (AMPERE, HOPPER)),
        (HOPPER, (99, 99, 9), "lines", "lines", "wgmma"),
        (AMPERE, (99, 99, 9), "lines", "lines", "mma"),  # which refuses it
        *((AMPERE, (9, n, 9), "answer", "lines", "skinny") for n in (16, 17)),  # it refuses 17
        (HOPPER, (99, 99, LONG), "float32", "real", "btc2"),  # which refuses it
        (HOPPER, (99, 99, 9), "int32", "msb32", "bmm32"),
        (HOPPER, (99, 99, 9), "int32", "64", "bmms64"),
        (BLACKWELL, (99, 99, 9), "int32", "real", "bmm32"),
        (BLACKWELL, (99, 99, 9), "words", "lsb32", "bmm32"),
        (BLACKWELL, (99, 99, 9), "words", "64", "bmms64"),
    ],
)
def test_the_choice_is_by_chip_sizes_output_and_format(chip, sizes, output, form, name):
    assert fastest_scheme(chip, sizes, output, form).name == name


def test_a_scheme_of_the_table_runs_on_its_chips():
    for names in PREFERRED.values():
        assert all(choose_scheme(name, 1).name == name for name in names)
    for chip in (*PREFERRED, (8, 6), BLACKWELL):
        assert "wgmma" not in PREFERRED[max(c for c in PREFERRED if c <= chip)] or chip == HOPPER
        assert fastest_scheme(chip, (99, 99, 9), "int32", "lines", own=("btc1",)).form == "lines"


@pytest.mark.at_most(1)
@pytest.mark.parametrize(
    ("chip", "kernels"),
    [
        (TURING, ("btc2", "btc2", "btc1")),
        (AMPERE, ("skinny", "mma", "btc1")),
        (HOPPER, ("skinny", "wgmma", "direct")),
        (BLACKWELL, ("bmm32", "bmm32", "bconv32")),
    ],
)
def test_calls_launch_the_chosen_kernel(launched, chip, kernels):
    device, thresholds = simwarp.Device(chip), np.arange(21) - 9
    b = signs(70, 21, seed=1)
    for m, kernel in zip((3, 18), kernels, strict=False):
        a = signs(m, 70)
        np.testing.assert_array_equal(gpu.bmm(a, b, device=device), reference.bmm(a, b))
        assert launched[-1] == kernel
        bits = gpu.bmm(a, b, thresholds=thresholds, device=device)
        first = "lsb" if TURING <= chip <= HOPPER else "msb"
        expected = reference.threshold(reference.bmm(a, b), thresholds, first=first)
        assert (launched[-1], bits.first, bits.word) == (kernel, first, 32)
        np.testing.assert_array_equal(bits.words, expected.words)
    x, w = signs(1, 4, 4, 70), signs(2, 2, 70, 5, seed=1)
    np.testing.assert_array_equal(gpu.bconv2d(x, w, device=device), reference.bconv2d(x, w))
    assert launched[-1] == kernels[2]


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("form", "kernel"),
    [
        ({"word": 64, "first": "msb"}, "bmms64"),
        ({"word": 64, "first": "lsb"}, "bmms64"),
        ({"word": 32, "first": "msb"}, "bmm32"),
        ({"word": 32, "first": "lsb"}, "wgmma"),
    ],
)
def test_packed_operands_decide(launched, form, kernel):
    a, b = signs(18, 70), signs(70, 21, seed=1)
    p, q = reference.pack(a, layout="column", **form), reference.pack(b, **form)
    real = (a, b) if form["first"] == "msb" or kernel == "wgmma" else (p, q)
    for x, y in ((p, q), (p, real[1]), (real[0], q)):
        np.testing.assert_array_equal(gpu.bmm(x, y, device=simwarp.Device()), reference.bmm(a, b))
        assert launched[-1] == kernel


def test_words_of_different_sizes_are_refused():
    a, b = reference.pack(signs(5, 70), layout="column", word=64), reference.pack(signs(70, 5), first="msb")
    with pytest.raises(FormatError, match="b is packed in words of 32 bits, bmms64 takes 64"):
        gpu.bmm(a, b, device=simwarp.Device())


@pytest.mark.parametrize("chip", [TURING, ADA, BLACKWELL])
@pytest.mark.parametrize("options", [{"dtype": "float16"}, {"thresholds": [0] * 21, "prepared": True}])
def test_what_only_warpgroups_give_is_refused_elsewhere(chip, options):
    with pytest.raises(SchemeError, match="choose scheme='wgmma', on sm_90"):
        gpu.bmm(signs(18, 70), signs(70, 21), device=simwarp.Device(chip), **options)


def test_few_rows_as_floats_are_for_warpgroups_and_as_lines_for_skinny(launched):
    a, b = signs(3, 70), signs(70, 21, seed=1)
    assert gpu.bmm(a, b, dtype="float16", device=simwarp.Device()).dtype == np.float16
    hidden = gpu.bmm(a, b, thresholds=[0] * 21, prepared=True, device=simwarp.Device())
    assert [name for name in launched if not name.startswith("lines")] == ["wgmma", "skinny"]
    assert hidden.form == "lines"


# Prepared operands


@pytest.mark.at_most(1)
@pytest.mark.parametrize(("chip", "kernels"), [(HOPPER, ("skinny", "wgmma")), (ADA, ("skinny", "mma"))])
@pytest.mark.parametrize("scheme", ["auto", *LINES])
def test_lines_serve_every_scheme_that_takes_lines(launched, scheme, chip, kernels):
    device, b = simwarp.Device(chip), signs(70, 21, seed=1)
    right = prepare(b, "b", scheme=scheme, device=device)
    assert (right.form, right.ones is not None) == ("lines", True)
    for m, kernel in zip((3, 18), kernels, strict=True):
        a = signs(m, 70)
        left = prepare(a, "a", scheme="btc2", device=device)
        np.testing.assert_array_equal(gpu.bmm(left, right).download(), reference.bmm(a, b))
        assert launched[-1] == kernel


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("scheme", "kernel"), [("btc3", "btc3"), ("bmms64", "bmms64"), ("bmm64", "bmm64"), ("bmms32", "bmms32")]
)
def test_other_prepared_operands_keep_their_scheme(launched, scheme, kernel):
    a, b = signs(18, 70), signs(70, 21, seed=1)
    right = prepare(b, "b", scheme=scheme, device=simwarp.Device())
    np.testing.assert_array_equal(gpu.bmm(a, right).download(), reference.bmm(a, b))
    assert launched[-1] == kernel


def test_lines_on_a_chip_that_prefers_words_keep_their_scheme():
    right = prepare(signs(70, 21), "b", scheme="btc2", device=simwarp.Device(BLACKWELL))
    chosen = functools.partial(fastest_scheme, BLACKWELL, (18, 21, 70), "int32", right.form)
    assert chosen((right.scheme,)).name == "btc2"
    words = prepare(signs(70, 21), "b", device=simwarp.Device(BLACKWELL))
    assert (words.form, words.scheme) == ("words32", "bmm32")


@pytest.mark.parametrize("chip", [TURING, AMPERE, HOPPER])
def test_matrices_are_prepared_as_lines(chip):
    for lines in (5, 50):
        prepared = prepare(signs(lines, 70), "a", device=simwarp.Device(chip))
        assert (prepared.form, prepared.first) == ("lines", "lsb")


# A repeated call is one launch


@pytest.fixture
def ready():
    """Prepared operands of a small and a larger product, on one device, and the rule of their columns."""
    device = simwarp.Device()
    matrices = [(signs(m, 70, seed=m), signs(70, 21, seed=1)) for m in (3, 18)]
    pairs = [(prepare(a, "a", device=device), prepare(b, "b", device=device)) for a, b in matrices]
    return device, [reference.bmm(a, b) for a, b in matrices], pairs


@pytest.mark.parametrize(("number", "kernel"), [(0, "skinny"), (1, "wgmma")])
def test_a_repeated_product_is_one_launch(launched, monkeypatch, ready, number, kernel):
    _, dots, pairs = ready
    gpu.bmm(*pairs[number])
    launched.clear()
    monkeypatch.setattr(product, "operand", None)  # nothing is checked again
    np.testing.assert_array_equal(gpu.bmm(*pairs[number]).download(), dots[number])
    assert launched == [kernel]


@pytest.mark.parametrize(("number", "kernel"), [(0, "skinny"), (1, "wgmma")])
def test_a_repeated_product_to_bits_is_one_launch(launched, monkeypatch, ready, number, kernel):
    device, dots, pairs = ready
    for turn, seed in enumerate((4, 5)):
        thresholds = np.random.default_rng(seed).integers(-9, 9, 21).astype(np.int32)
        flip = signs(21, seed=seed) > 0
        rule = device.upload(thresholds), device.upload(flip.view(np.uint8))
        launched.clear()
        if turn:
            monkeypatch.setattr(product, "operand", None)
        bits = gpu.bmm(*pairs[number], thresholds=rule[0], flip=rule[1])
        assert launched == [kernel]
        expected = reference.threshold(dots[number], thresholds, flip, first="lsb")
        assert (bits.shape, bits.layout, bits.word, bits.first) == (dots[number].shape, "column", 32, "lsb")
        np.testing.assert_array_equal(bits.words.download(), expected.words)


def test_a_recorded_rule_is_not_taken_for_another(ready):
    device, _, pairs = ready
    thresholds, flip = device.upload(np.zeros(21, np.int32)), device.upload(np.zeros(21, np.uint8))
    gpu.bmm(*pairs[0], thresholds=thresholds, flip=flip)
    for bad in (
        {"thresholds": thresholds, "flip": device.upload(np.zeros(21, np.int32))},
        {"thresholds": device.upload(np.zeros(21, np.float32)), "flip": flip},
    ):
        with pytest.raises(reference.errors.DtypeError):
            gpu.bmm(*pairs[0], **bad)
    with pytest.raises(SchemeError, match="without thresholds"):
        gpu.bmm(*pairs[0], flip=flip)
    other = simwarp.Device().upload(np.zeros(21, np.uint8))
    with pytest.raises(reference.errors.DtypeError, match="another device"):
        gpu.bmm(*pairs[0], thresholds=thresholds, flip=other)
    assert gpu.bmm(*pairs[0]).dtype == np.int32  # no bits of the recorded call


@pytest.mark.at_most(1)
@pytest.mark.parametrize("stride", [1, 9])
def test_a_repeated_convolution_is_one_launch(launched, stride):
    device, x, w = simwarp.Device(), signs(1, 11, 11, 70), signs(3, 3, 70, 5, seed=1)
    images, filters = prepare(x, "x", device=device), prepare(w, "w", device=device)
    assert images.scheme == filters.scheme == "wgmma"
    expected = reference.bconv2d(x, w, stride=stride)
    rule = {"thresholds": device.upload(np.zeros(5, np.int32)), "flip": device.upload(np.zeros(5, np.uint8))}
    words = reference.threshold_tensor(expected, np.zeros(5, int)).words
    for _ in range(2):
        launched.clear()
        y = gpu.bconv2d(images, filters, stride=stride)
        bits = gpu.bconv2d(images, filters, stride=stride, **rule)
        np.testing.assert_array_equal(y.download(), expected)
        np.testing.assert_array_equal(bits.words.download(), words)
    assert launched == ["direct", "direct"]
