"""Plans shared between calls, and operands prepared for several calls."""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gpu
import gpu.compile
import reference
import simwarp
from gpu.bconv.schemes import EVERY_SCHEME as CONVOLUTIONS
from gpu.bmm import pack_fsb
from gpu.bmm.schemes import RING_SCHEMES, SCHEMES, TENSOR_CORE_SCHEMES
from gpu.bmm.warpgroups import WARPGROUP_SCHEMES
from gpu.cuda.graphs import BoundChain, BoundLaunch
from gpu.cuda.kernels import Packing, parameter_types
from gpu.device import MOST_PLANS, LaunchPlan, planned
from gpu.mttkrp.formats import FORMATS
from reference.devices.tensor_map import TensorMap
from reference.errors import (
    DtypeError,
    FormatError,
    LaunchError,
    NotANumberError,
    SchemeError,
    ShapeError,
)
from reference.types import Coo, PackedBits, PackedTensor
from support.cuda_driver import replace_driver

PRODUCTS = SCHEMES | TENSOR_CORE_SCHEMES | RING_SCHEMES | WARPGROUP_SCHEMES
OPENED: list[str] = []
WATCHED = {"open", "os.listdir", "os.scandir", "subprocess.Popen"}
WATCHING = False


def _note(event, arguments):
    if WATCHING and event in WATCHED:
        OPENED.append(f"{event} {arguments[0]}")


sys.addaudithook(_note)


@pytest.fixture
def no_files(monkeypatch):
    """Run a call twice and return the files that the second, warm call opens; it must not compile."""

    def refuse(*_, **__):
        raise AssertionError("a warm call compiles")

    def watch(call):
        global WATCHING
        call()
        with monkeypatch.context() as patch:
            patch.setattr(gpu.compile, "compile", refuse)
            OPENED.clear()
            WATCHING = True
            try:
                call()
            finally:
                WATCHING = False
        return list(OPENED)

    return watch


@pytest.fixture(scope="module")
def device():
    return simwarp.Device()


def signs(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), shape)


def tensor():
    rng = np.random.default_rng(3)
    places = rng.choice(3 * 4 * 5, 17, replace=False)
    coords = np.array(np.unravel_index(places, (3, 4, 5)), np.uint32)
    return Coo(coords, rng.standard_normal(17).astype(np.float32), (3, 4, 5))


def factors(device=None, rank=3):
    host = [np.random.default_rng(n).standard_normal((n, rank)).astype(np.float32) for n in (3, 4, 5)]
    return host if device is None else [device.upload(x) for x in host]


# A warm call opens no file


def of_bmm(device, scheme, kind):
    a, b = (device.upload(x) for x in (signs(3, 40), signs(40, 5, seed=1)))
    word = PRODUCTS[scheme].word
    if kind == "packed":
        first = PRODUCTS[scheme].first
        a, b = (
            gpu.pack(x, layout=layout, word=word, first=first) for x, layout in ((a, "column"), (b, "row"))
        )
    if kind == "prepared":
        a, b = (gpu.prepare(x, role, scheme=scheme) for x, role in ((a, "a"), (b, "b")))
    return lambda: gpu.bmm(a, b, scheme=scheme)


def of_bconv2d(device, scheme, kind):
    x, w = device.upload(signs(1, 3, 3, 40)), device.upload(signs(2, 2, 40, 5, seed=1))
    if kind == "packed":
        word = CONVOLUTIONS[scheme].word
        x, w = gpu.pack_tensor(x, layout="NHWC", word=word), gpu.pack_tensor(w, layout="HWOI", word=word)
    if kind == "prepared":
        x, w = gpu.prepare(x, "x", scheme=scheme), gpu.prepare(w, "w", scheme=scheme)
    return lambda: gpu.bconv2d(x, w, scheme=scheme)


KINDS = ("float", "packed", "prepared")


def test_a_packed_and_a_real_operand_are_multiplied(device):
    """The NaN flag of the packing kernel is not at the first launch of the plan."""
    a = gpu.pack(device.upload(signs(3, 40)), layout="column", first="lsb")
    b = np.ones((40, 5), np.float32)
    for _ in range(2):
        product = gpu.bmm(a, device.upload(b), scheme="btc3").download()
        np.testing.assert_array_equal(product, reference.bmm(signs(3, 40), b))
    b[7, 3] = np.nan
    gpu.bmm(a, device.upload(b), scheme="btc3")
    with pytest.raises(NotANumberError):
        device.synchronize()


def test_the_test_helper_detects_an_opened_file(no_files):
    assert no_files(lambda: Path(__file__).read_text()) == [f"open {__file__}"]
    with pytest.raises(AssertionError, match="compiles"):
        no_files(lambda: gpu.compile.compile('extern "C" __global__ void f() {}', "f.cu"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["bmm32", "btc1", "btc3"])
def test_a_warm_bmm_opens_no_file(device, no_files, scheme, kind):
    assert no_files(of_bmm(device, scheme, kind)) == []


@pytest.mark.at_most(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["bconv32", "btc1", "btc2", "wgmma"])
def test_a_warm_bconv2d_opens_no_file(device, no_files, scheme, kind):
    assert no_files(of_bconv2d(device, scheme, kind)) == []


def test_a_warm_bmm_of_host_arrays_to_bits_opens_no_file(device, no_files):
    a, b = signs(3, 40), signs(40, 5, seed=1)
    assert no_files(lambda: gpu.bmm(a, b, thresholds=np.zeros(5, int), device=device)) == []


@pytest.mark.at_most(3)
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("name", ["coo", "f-coo", "mm-csf"])
def test_a_warm_mttkrp_opens_no_file(device, no_files, name, prepared):
    made = FORMATS[name](tensor())
    made = gpu.prepare(made, device=device) if prepared else made
    given = factors(device)
    assert no_files(lambda: gpu.mttkrp(made, given, 1)) == []


def test_warm_packing_opens_no_file(device, no_files):
    x, images = device.upload(signs(5, 40)), device.upload(signs(1, 3, 3, 40))
    assert no_files(lambda: gpu.pack(x)) == []
    assert no_files(lambda: gpu.pack_tensor(images, layout="NHWC")) == []


@pytest.mark.gate
def test_a_warm_decomposition_opens_no_file(device, no_files):
    assert no_files(lambda: gpu.cpd_als(tensor(), 1, iterations=2, device=device)) == []


# Plans


@pytest.mark.slow
def test_each_device_has_its_own_plans():
    one, other = simwarp.Device((8, 0)), simwarp.Device((9, 0))
    a, b = signs(3, 40), signs(40, 5, seed=1)
    for each in (one, other):
        np.testing.assert_array_equal(gpu.bmm(a, b, scheme="btc3", device=each), reference.bmm(a, b))
    key = ("bmm", "btc3", "int32", False, False, "lsb", 1, False, 3, 5, 40, 1, 1)
    assert "sm_80" in one.plans[key].ptx
    assert "sm_90" in other.plans[key].ptx


def test_plans_do_not_keep_their_device_alive():
    device = simwarp.Device()
    of_bmm(device, "btc3", "packed")()
    of_bconv2d(device, "btc1", "packed")()
    assert len(device.plans) > 3
    device.synchronize()  # deferred checks keep a reference too
    gone = weakref.ref(device)
    del device
    assert gone() is None


def test_plans_are_evicted_at_their_limit():
    device = simwarp.Device()
    for number in range(MOST_PLANS + 1):
        assert planned(device.plans, number, lambda number=number: number) == number
    assert len(device.plans) == 1


def test_float_strides_are_refused_although_equal_to_cached_ones(device):
    x, w = device.upload(signs(1, 3, 3, 4)), device.upload(signs(2, 2, 4, 5))
    gpu.bconv2d(x, w, stride=(1, 1))
    for stride in (1.0, (1, 1.0)):
        with pytest.raises(ShapeError, match="stride"):
            gpu.bconv2d(x, w, stride=stride)
    with pytest.raises(SchemeError, match="groups"):
        gpu.bconv2d(x, w, groups=True)


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("bmm64-float")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["bmm64", "btc1", "btc3"])
def test_a_cached_call_uses_the_new_operands(scheme, kind):
    device, answers = simwarp.Device(), []
    for seed in (0, 5, 7):
        before = device.launches
        a, b = signs(3, 70, seed=seed), signs(70, 9, seed=seed + 1)
        left, right = device.upload(a), device.upload(b)
        word, first = PRODUCTS[scheme].word, PRODUCTS[scheme].first
        if kind == "packed":
            left = gpu.pack(left, layout="column", word=word, first=first)
            right = gpu.pack(right, word=word, first=first)
        if kind == "prepared":
            left, right = gpu.prepare(left, "a", scheme=scheme), gpu.prepare(right, "b", scheme=scheme)
        np.testing.assert_array_equal(gpu.bmm(left, right, scheme=scheme).download(), reference.bmm(a, b))
        answers.append(device.launches - before)
    assert len(set(answers)) == 1
    bad = np.full((3, 70), np.nan, np.float32)
    x, y = device.upload(bad), device.upload(np.ones((70, 9), np.float32))
    for _ in range(2):  # recorded, and played
        gpu.bmm(x, y, scheme=scheme)
        with pytest.raises(NotANumberError):
            device.synchronize()


@pytest.mark.gate
def test_a_cached_call_is_not_reused_for_different_operands(device):
    """A call depends on shapes, types, layouts, schemes, transposition, alignment and memory."""
    a, b = signs(40, 40), signs(40, 40, seed=1)
    right = device.upload(b)
    for x in (a, a.astype(np.float32), a.astype(np.float16)):
        for scheme in ("bmm32", "bmms32", "btc2"):
            for transposed in (False, True):
                c = gpu.bmm(device.upload(x), right, scheme=scheme, transpose_a=transposed)
                np.testing.assert_array_equal(c.download(), reference.bmm(a.T if transposed else a, b))
    packed = gpu.pack(device.upload(a), layout="column")
    gpu.bmm(packed, gpu.pack(right))
    with pytest.raises(FormatError, match="layout"):
        gpu.bmm(gpu.pack(device.upload(a)), gpu.pack(right))
    with pytest.raises(FormatError, match="first"):
        gpu.bmm(packed, gpu.pack(right, first="lsb"))
    with pytest.raises(SchemeError, match="unknown"):
        gpu.bmm(packed, gpu.pack(right), scheme=["bmm32"])
    with pytest.raises(DtypeError, match="another device"):
        gpu.bmm(packed, gpu.pack(right), device=simwarp.Device())


def test_a_product_of_a_matrix_by_itself_is_not_played_for_two_matrices(device):
    """The recorded launches of a call with one array in two places would take the first for both."""
    square, other = signs(40, 40), signs(40, 40, seed=1)
    s, t = device.upload(square), device.upload(other)
    for x, y, a, b in ((s, s, square, square), (s, t, square, other), (t, t, other, other)):
        np.testing.assert_array_equal(gpu.bmm(x, y).download(), reference.bmm(a, b))
        # the words of a matrix in columns are those of its transpose in rows
        left, right = gpu.pack(x, layout="column"), gpu.pack(y, layout="column")
        right = PackedBits((left if x is y else right).words, (40, 40), "row", 32, "msb")
        np.testing.assert_array_equal(gpu.bmm(left, right).download(), reference.bmm(a, b.T))


@pytest.mark.slow_cases("wgmma-packed", "wgmma-float")
@pytest.mark.parametrize("kind", ["float", "packed"])
@pytest.mark.parametrize("scheme", ["bconv64", "btc1", "wgmma"])
def test_a_convolution_by_prepared_filters_is_recorded_at_its_second_call(scheme, kind):
    """The first call makes the addends, which later ones take; each has its own images and rule."""
    device = simwarp.Device()
    w = signs(3, 3, 40, 8, seed=9)
    filters = gpu.prepare(w, "w", scheme=scheme, device=device)
    counts: dict[bool, list[int]] = {False: [], True: []}
    for seed in range(4):
        x = signs(2, 4, 5, 40, seed=seed).astype(np.float32)
        images = device.upload(x)
        word = CONVOLUTIONS[scheme].word
        if kind == "packed":
            images = gpu.pack_tensor(images, layout="NHWC", word=word)
        limits, flips = np.arange(8, dtype=np.int32) - seed, np.arange(8, dtype=np.uint8) % (seed + 1) == 0
        rule = {"thresholds": device.upload(limits), "flip": device.upload(flips.astype(np.uint8))}
        expected = reference.bconv2d(x, w)
        for bits in (False, True):
            before = device.launches
            y = gpu.bconv2d(images, filters, pool="or" if bits else None, **(rule if bits else {}))
            counts[bits].append(device.launches - before)
            if bits:
                packed = reference.threshold_tensor(expected, limits, flips, pool="or")
                assert (y.shape, y.layout, y.first) == (packed.shape, packed.layout, packed.first)
                np.testing.assert_array_equal(y.words.download(), packed.words)
            else:
                np.testing.assert_array_equal(y.download(), expected)
    for launches in counts.values():
        assert len(set(launches[1:])) == 1
    assert [hasattr(call, "chain") for call in filters.calls.values()] == [True, True]
    gone = weakref.ref(device)
    del device, filters, images, rule, y
    gc.collect()
    assert gone() is None


def test_a_recorded_call_lets_go_of_its_arrays():
    """A check that waits for the next synchronisation must not hold what the call allocated."""
    device = simwarp.Device()
    a, b = device.upload(signs(3, 40)), device.upload(signs(40, 5, seed=1))
    before = len(device.memory.allocations)
    for _ in range(3):
        gpu.bmm(a, b)
        assert len(device.memory.allocations) == before + 1  # the flag of NaN


def test_recorded_convolutions_tell_calls_apart(device):
    filters = gpu.prepare(signs(2, 2, 5, 3, seed=9), "w", scheme="btc1", device=device)
    w = signs(2, 2, 5, 3, seed=9)
    x = signs(1, 6, 6, 5)
    for _ in range(3):
        for each in (x, x.astype(np.float16), np.concatenate([x, -x])):
            for options in ({}, {"stride": 2}, {"padding": "VALID"}, {"dilation": 2}):
                y = gpu.bconv2d(device.upload(each), filters, **options)
                np.testing.assert_array_equal(y.download(), reference.bconv2d(each, w, **options))
        with pytest.raises(SchemeError, match="pool='none'"):
            gpu.bconv2d(device.upload(x), filters, pool="none")
        with pytest.raises(ShapeError, match="stride"):
            gpu.bconv2d(device.upload(x), filters, stride=(1, 1.0))
    bad = np.full((1, 6, 6, 5), np.nan, np.float32)
    for _ in range(3):
        gpu.bconv2d(device.upload(bad), filters)
        with pytest.raises(NotANumberError):
            device.synchronize()


@pytest.mark.parametrize("of", ["matrix", "stack", "images", "filters"])
def test_packing_is_recorded_and_takes_the_new_operand(device, of):
    shape = {"matrix": (5, 70), "stack": (2, 5, 70)}.get(of, (2, 3, 4, 33))
    for seed in range(4):
        x = signs(*shape, seed=seed)
        if len(shape) < 4:
            packed, expected = gpu.pack(device.upload(x), layout="column"), reference.pack(x, layout="column")
        else:
            layout = "NHWC" if of == "images" else "HWOI"
            packed = gpu.pack_tensor(device.upload(x), layout=layout)
            expected = reference.pack_tensor(x, layout=layout)
        assert (packed.shape, packed.layout, packed.word) == (expected.shape, expected.layout, expected.word)
        np.testing.assert_array_equal(packed.words.download(), expected.words)


# Prepared operands give what unprepared ones give


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("sizes0-bmm64")
@pytest.mark.parametrize("scheme", PRODUCTS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 129, 3), (31, 64, 67), (130, 257, 33)])
def test_prepared_matrices_give_the_same_product(device, scheme, sizes):
    m, k, n = sizes
    a, b = signs(m, k), signs(k, n, seed=1)
    expected = reference.bmm(a, b)
    left, right = (
        gpu.prepare(a, "a", scheme=scheme, device=device),
        gpu.prepare(device.upload(b.T.copy()), "b", scheme=scheme, transpose=True),
    )
    assert (left.shape, right.shape, right.transposed) == ((m, k), (n, k), True)
    for pair in ((left, right), (a, right), (left, b)):
        np.testing.assert_array_equal(gpu.bmm(*pair, scheme=scheme).download(), expected)
    turned = gpu.bmm(left, right, transpose_b=True, scheme=scheme)
    np.testing.assert_array_equal(turned.download(), expected)
    thresholds = np.arange(n) % 5 - 2
    bits = gpu.bmm(left, right, scheme=scheme, thresholds=thresholds)
    word, first = PRODUCTS[scheme].word, PRODUCTS[scheme].first
    of_reference = reference.threshold(expected, thresholds, word=word, first=first)
    np.testing.assert_array_equal(bits.words.download(), of_reference.words)


def test_a_prepared_operand_fits_schemes_of_the_same_form(device):
    a, b = signs(7, 70), signs(70, 3, seed=1)
    left = gpu.prepare(a, "a", scheme="bmms64", device=device)
    np.testing.assert_array_equal(gpu.bmm(left, b, scheme="bmm64").download(), reference.bmm(a, b))


def test_packed_words_can_be_prepared(device):
    a, b = signs(7, 70), signs(70, 3, seed=1)
    left = gpu.prepare(reference.pack(a, layout="column", first="lsb"), "a", scheme="btc2", device=device)
    np.testing.assert_array_equal(gpu.bmm(left, b).download(), reference.bmm(a, b))


@pytest.mark.parametrize("transposed", [False, True])
def test_packed_tiles_are_prepared_without_conversion(device, transposed):
    a, b = signs(7, 130), signs(130, 9, seed=1)
    left = pack_fsb(a.T.copy() if transposed else a, order="column" if transposed else "row", device=device)
    right = pack_fsb(b, order="column", device=device)
    before = device.launches
    product = gpu.bmm(left, right, scheme="btc3", transpose_a=transposed)
    assert device.launches == before + 1  # no arranging
    np.testing.assert_array_equal(product.download(), reference.bmm(a, b))
    with pytest.raises(FormatError, match="order"):
        gpu.bmm(left, right, scheme="btc3", transpose_a=not transposed)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.slow_cases("1-bconv32", "1-btc2")
@pytest.mark.parametrize("scheme", CONVOLUTIONS)
@pytest.mark.parametrize("channels", [1, 37, 128])
def test_prepared_tensors_give_the_same_convolution(device, scheme, channels):
    w = signs(3, 2, channels, 5, seed=1)
    filters = gpu.prepare(w, "w", scheme=scheme, device=device)
    for batch, side, options in ((1, 4, {}), (3, 4, {}), (1, 5, {"stride": 2, "padding": "VALID"})):
        x = signs(batch, side, side + 1, channels)
        images = gpu.prepare(device.upload(x), "x", scheme=scheme)
        expected = reference.bconv2d(x, w, **options)
        for pair in ((images, filters), (x, filters), (images, w)):
            np.testing.assert_array_equal(gpu.bconv2d(*pair, **options).download(), expected)
        bits = gpu.bconv2d(images, filters, thresholds=np.zeros(5, int), flip=np.arange(5) < 2, **options)
        of_reference = reference.threshold_tensor(expected, np.zeros(5, int), np.arange(5) < 2)
        np.testing.assert_array_equal(bits.words.download(), of_reference.words)


def test_border_addends_are_computed_once_per_geometry(device):
    filters = gpu.prepare(signs(3, 3, 128, 8), "w", scheme="btc1", device=device)
    images = [gpu.prepare(signs(n, 4, 4, 128), "x", scheme="btc1", device=device) for n in (1, 2)]
    counts = []
    for x in (images[0], images[0], images[1]):
        before = device.launches
        gpu.bconv2d(x, filters)
        counts.append(device.launches - before)
    assert counts == [3, 1, 1]  # two kernels compute addends; the batch size does not matter
    assert len(filters.kept) == 1


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.slow_cases("False-hicoo")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_prepared_sparse_tensors_give_the_same_mttkrp(device, name, deterministic):
    coo = tensor()
    prepared = gpu.prepare(coo, scheme=name, device=device)
    for mode, rank in itertools.product(range(3), (1, 4)):
        host = factors(rank=rank)
        expected = reference.mttkrp(coo, host, mode)
        bound = reference.mttkrp_bound(coo, host, mode, np.float32)
        out = gpu.mttkrp(prepared, factors(device, rank), mode, deterministic=deterministic)
        assert (abs(out.download() - expected) <= bound).all()
        host_out = gpu.mttkrp(prepared, host, mode, deterministic=deterministic)
        assert (abs(host_out - expected) <= bound).all()
    assert len(prepared.plans) == 6


def test_a_prepared_decomposition_operand_is_refused_by_name(device):
    prepared = gpu.prepare(tensor(), device=device)
    with pytest.raises(FormatError, match="PreparedSparse"):
        gpu.prepare(prepared)


# What is refused


def refused(call, error, *parts):
    with pytest.raises(error) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) >= 2


def test_wrong_roles_are_refused(device):
    a = gpu.prepare(signs(5, 5), "a", device=device)
    x = gpu.prepare(signs(1, 3, 3, 5), "x", device=device)
    sparse = gpu.prepare(tensor(), device=device)
    refused(lambda: gpu.bmm(signs(5, 5), a), FormatError, "b was prepared as 'a'", "role='b'")
    refused(lambda: gpu.bmm(x, a), FormatError, "a is a PreparedTensor")
    refused(lambda: gpu.bconv2d(x, x), FormatError, "w was prepared as 'x'", "role='w'")
    refused(lambda: gpu.bconv2d(a, signs(2, 2, 5, 5)), FormatError, "x is a PreparedMatrix")
    refused(lambda: gpu.mttkrp(a, factors(), 0), FormatError, "expected a sparse tensor, got PreparedMatrix")
    refused(lambda: gpu.bmm(sparse, a), FormatError, "PreparedSparse")
    refused(lambda: gpu.prepare(signs(5, 5), "c", device=device), SchemeError, "role='c'")
    refused(lambda: gpu.prepare(tensor(), transpose=True, device=device), SchemeError, "transpose")


def test_wrong_schemes_are_refused(device):
    a = gpu.prepare(signs(5, 40), "a", scheme="btc3", device=device)
    b = gpu.prepare(signs(40, 5), "b", scheme="bmm32", device=device)
    w = gpu.prepare(signs(2, 2, 40, 5), "w", scheme="btc1", device=device)
    refused(lambda: gpu.bmm(a, b), SchemeError, "b was prepared for bmm32", "scheme='btc3'")
    refused(lambda: gpu.bmm(a, signs(40, 5), scheme="bmm32"), SchemeError, "a was prepared for btc3")
    refused(
        lambda: gpu.bconv2d(signs(1, 3, 3, 40), w, scheme="bconv32"), SchemeError, "w was prepared for btc1"
    )
    refused(lambda: gpu.prepare(tensor(), scheme="csv", device=device), SchemeError, "'csv'", "mm-csf")
    fibers = FORMATS["csf-one"](tensor())
    refused(lambda: gpu.prepare(fibers, scheme="coo", device=device), FormatError, "built from a Coo")
    old = simwarp.Device((7, 0))
    refused(lambda: gpu.prepare(signs(1, 3, 3, 40), "x", device=old), SchemeError, "bconv64")


def test_wrong_devices_are_refused(device):
    other = simwarp.Device()
    a = gpu.prepare(signs(5, 5), "a", device=device)
    w = gpu.prepare(signs(2, 2, 5, 5), "w", device=device)
    sparse = gpu.prepare(tensor(), device=device)
    refused(lambda: gpu.bmm(a, signs(5, 5), device=other), DtypeError, "another device")
    refused(lambda: gpu.bmm(a, other.upload(signs(5, 5))), DtypeError, "another device")
    refused(lambda: gpu.bconv2d(other.upload(signs(1, 3, 3, 5)), w), DtypeError, "another device")
    refused(lambda: gpu.mttkrp(sparse, factors(other), 0), DtypeError, "another device")
    refused(lambda: gpu.mttkrp(sparse, factors(), 0, device=other), DtypeError, "another device")


def test_wrong_shapes_are_refused(device):
    a = gpu.prepare(signs(5, 40), "a", device=device)
    w = gpu.prepare(signs(2, 2, 40, 5), "w", device=device)
    sparse = gpu.prepare(tensor(), device=device)
    refused(lambda: gpu.bmm(a, signs(39, 5)), ShapeError, "K is 40 in one and 39 in the other")
    refused(lambda: gpu.bmm(a, signs(40, 5), transpose_a=True), FormatError, "transpose=True")
    refused(lambda: gpu.bconv2d(signs(1, 3, 3, 39), w), ShapeError, "C is 39")
    refused(lambda: gpu.mttkrp(sparse, factors(device)[:2], 0), ShapeError, "3 modes")
    refused(lambda: gpu.mttkrp(sparse, factors(device)[::-1], 0), ShapeError, "factors[0]")
    refused(lambda: gpu.mttkrp(sparse, factors(device), 3), ShapeError, "mode=3")
    doubles = [device.upload(x.astype(np.float64)) for x in factors()]
    refused(lambda: gpu.mttkrp(sparse, doubles, 0), DtypeError, "float64")


def test_nan_in_an_operand_to_prepare_is_reported(device):
    bad = np.ones((5, 5))
    bad[2, 3] = np.nan
    refused(lambda: gpu.prepare(bad, "b", device=device), NotANumberError, "b[2, 3]")
    gpu.prepare(device.upload(bad), "b")
    refused(device.synchronize, NotANumberError, "packed")
    device.synchronize()


def test_nonzero_padding_of_packed_operands_is_refused(device):
    words = PackedBits(np.full((1, 5), 2**32 - 1, np.uint32), (5, 31), "column")
    refused(lambda: gpu.prepare(words, "a", device=device), FormatError, "not 0")
    units = PackedTensor(np.full((1, 1, 1, 1), 2**32 - 1, np.uint32), (1, 1, 1, 31), "NHWC")
    refused(lambda: gpu.prepare(units, "x", device=device), FormatError, "not 0")


# Arguments of launches on a GPU, as the driver wants them


class Address:
    pointer = 0x1122334455667788


PTX = """.visible .entry other(.param .f64 a) { ret; }
.visible .entry f(
    .param .u64 .ptr .global .align 1 f_param_0, .param .align 16 .b8 f_param_1[32],
    .param .u32 f_param_2,
    .param .f32 f_param_3, .param .u8 f_param_4
) { ret; }"""
PLACES = [(0, 8), (16, 32), (48, 4), (52, 4), (56, 1)]
KERNEL = SimpleNamespace(name="f", places=PLACES, types=parameter_types(PTX, "f"))


def arguments():
    given = np.arange(4, dtype=np.uint64)
    return Address(), np.void(given.tobytes()), np.int32(-5), np.float32(0.5), np.uint8(7)


def test_arguments_are_packed_at_their_parameter_offsets():
    buffer = bytearray(b"\xff" * 57)
    Packing(KERNEL, arguments()).write(buffer, arguments())
    assert int.from_bytes(buffer[:8], "little") == Address.pointer
    assert np.frombuffer(buffer[16:48], np.uint64).tolist() == [0, 1, 2, 3]
    assert np.frombuffer(buffer[48:52], np.int32)[0] == -5
    assert np.frombuffer(buffer[52:56], np.float32)[0] == 0.5
    assert buffer[56] == 7


def test_scalars_are_converted_to_the_parameter_types():
    exact = bytearray(57)
    Packing(KERNEL, arguments()).write(exact, arguments())
    structure = arguments()[1].tobytes()
    for given in (
        (Address.pointer, structure, -5, 0.5, 7),
        (np.int64(Address.pointer), structure, np.int64(-5), np.float64(0.5), np.array(7)),
        (Address(), np.void(structure), 2**32 - 5, np.float16(0.5), np.uint64(7)),
    ):
        buffer = bytearray(57)
        Packing(KERNEL, given).write(buffer, given)
        assert buffer == exact
    assert Packing(KERNEL, (5, *given[1:])).values((6, *given[1:]))[0] == 6  # of the same types


def test_scalars_of_unknown_parameter_types_are_passed_as_words():
    unknown = SimpleNamespace(name="f", places=[(0, 4), (4, 4)], types=parameter_types(PTX, "g"))
    buffer = bytearray(8)
    Packing(unknown, (-1, np.float32(2))).write(buffer, (-1, np.float32(2)))
    assert buffer == b"\xff" * 4 + np.float32(2).tobytes()
    refused(lambda: Packing(unknown, (1, 2.0)), DtypeError, "argument 1 is 2.0")


def test_arguments_of_the_wrong_number_or_size_are_refused():
    right = arguments()
    for wrong, part in (
        (right[:-1], "takes 5 arguments"),
        (
            (*right[:2], np.int64(2**32), *right[3:]),
            "argument 2 is np.int64(4294967296)\nthe parameter is a u32",
        ),
        (
            (*right[:2], -(2**31) - 1, *right[3:]),
            "argument 2 is -2147483649\nthe parameter is a u32 of 4 bytes",
        ),
        ((*right[:2], 5.0, *right[3:]), "argument 2 is 5.0"),
        ((*right[:2], np.float32(5), *right[3:]), "argument 2 is np.float32"),
        ((*right[:2], None, *right[3:]), "argument 2 is None"),
        ((*right[:3], 1e39, right[4]), "argument 3 is 1e+39\nthe parameter is a f32"),
        ((right[0], 5, *right[2:]), "argument 1 is 5\nthe parameter has 32"),
        ((right[0], np.void(bytes(24)), *right[2:]), "argument 1"),
        ((*right[:4], Address()), "argument 4"),
    ):
        refused(lambda wrong=wrong: Packing(KERNEL, wrong), DtypeError, part)
    packing = Packing(KERNEL, right)
    shorter = (right[0], np.void(bytes(24)), *right[2:])  # of the same types
    refused(lambda: packing.write(bytearray(57), shorter), DtypeError, "argument 1 has 24 bytes")


class Graph:
    """Replaces the driver's graphs: records the parameters with which each node is launched."""

    def __init__(self):
        self.nodes, self.launched, self.written = [], [], 0

    def read(self, params):
        places = (ctypes.c_void_p * 5).from_address(params.kernelParams)
        return [ctypes.string_at(at, size) for at, (_, size) in zip(places, PLACES, strict=True)]

    def add(self, _, before, count, params):
        assert (before or []) == self.nodes[-1:]
        assert count == len(self.nodes[-1:])
        self.nodes.append([self.read(params)])
        return 0, self.nodes[-1]

    def change(self, _, node, params):
        node[0], self.written = self.read(params), self.written + 1
        return (0,)

    def launch(self, *_):
        self.launched.append([node[0] for node in self.nodes])
        return (0,)

    def driver(self):
        return SimpleNamespace(
            CUDA_KERNEL_NODE_PARAMS=SimpleNamespace,
            cuGraphCreate=lambda _: (0, "graph"),
            cuGraphInstantiate=lambda *_: (0, "executable"),
            cuGraphAddKernelNode=self.add,
            cuGraphExecKernelNodeSetParams=self.change,
            cuGraphLaunch=self.launch,
            cuGraphExecDestroy=lambda _: None,
            cuGraphDestroy=lambda _: None,
        )


def test_a_chain_launches_with_the_arrays_and_structures_of_each_call(monkeypatch):
    graph, (_, structure, *_) = Graph(), arguments()
    replace_driver(monkeypatch, graph.driver())
    kernel = SimpleNamespace(**vars(KERNEL), function="f")
    both_open = LaunchPlan("", "f", (1, 2, 3), (32, 1, 1), (None, None, -5, 0.5, 7))
    array_open = LaunchPlan("", "f", (1, 1, 1), (1, 1, 1), (None, structure, np.int32(-5), 0.5, 7))
    chain = BoundChain([BoundLaunch(kernel, both_open), BoundLaunch(kernel, array_open)])
    tail = [np.int32(-5).tobytes(), np.float32(0.5).tobytes(), b"\x07"]
    for address, data, written in ((64, bytes(32), 2), (64, bytes(32), 2), (96, b"\1" * 32, 4)):
        array = SimpleNamespace(pointer=address)
        chain([[array, data], [array]])
        pointer = address.to_bytes(8, "little")
        assert graph.launched[-1] == [[pointer, data, *tail], [pointer, structure.tobytes(), *tail]]
        assert graph.written == written  # equal parameters are not set again
    with pytest.raises(LaunchError, match="2 arrays\nits launches take 3"):
        chain([[array, bytes(32)], []])
    one = LaunchPlan("", "f", (1, 1, 1), (1, 1, 1), (None,))
    refused(lambda: BoundLaunch(kernel, one), DtypeError, "takes 5 arguments")


def test_a_launch_encodes_the_tensor_map_of_each_array_once(monkeypatch):
    graph, asked = Graph(), []
    replace_driver(monkeypatch, graph.driver())

    def encoded(tensor, capability):
        asked.append((tensor.address, capability))
        return tensor.address.to_bytes(32, "little")

    monkeypatch.setattr("gpu.cuda.graphs.encoded", encoded)
    kernel = SimpleNamespace(**vars(KERNEL), function="f")
    described = TensorMap("uint8", 0, (64, 5), (64,), (64, 4), (1, 1))
    plan = LaunchPlan("", "f", (1, 1, 1), (1, 1, 1), (None, described, -5, 0.5, 7))
    chain = BoundChain([BoundLaunch(kernel, plan, (9, 0))])
    array = SimpleNamespace(pointer=256)
    for address in (1024, 2048, 1024):
        chain([[array, SimpleNamespace(pointer=address)]])
        assert graph.launched[-1][0][1] == address.to_bytes(32, "little")
    assert asked == [(1024, (9, 0)), (2048, (9, 0))]
    refused(lambda: chain([[array, SimpleNamespace(pointer=1025)]]), ShapeError, "the address is 0x401")
