"""`gpu.bconv2d` and `gpu.pack_tensor` on the simulator: every kind of geometry and operand, good and bad."""

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest

import gpu
import gpu.bconv
import reference
import simwarp
import simwarp.device.module
from gpu.bconv import SCHEMES, schemes
from gpu.bconv.geometry import ConvShape, conv_shape
from reference.errors import (
    DtypeError,
    FormatError,
    NotANumberError,
    SchemeError,
    ShapeError,
    SimwarpError,
)
from reference.types import PackedTensor
from simwarp import listings
from simwarp.device import DeviceArray
from simwarp.verify.draw import DTYPES, Draw
from support.offenders import every_case

BSTC = ["bconv32", "bconv64"]
POOLS = [None, "or", "and"]
INT32 = np.iinfo(np.int32)


@pytest.fixture
def device():
    return simwarp.Device()


@functools.cache
def values(*shape, dtype="float32", k=0):
    """Random bit patterns without NaN; an eighth are ±0, ±inf, subnormals and similar."""
    x = Draw(0, "test_gpu_bconv", k).matrix(1, int(np.prod(shape)), dtype).reshape(shape)
    x.flags.writeable = False
    return x


def operands(n, size, c, window, o, dtypes=("float32", "int8")):
    return values(n, *size, c, dtype=dtypes[0]), values(*window, c, o, dtype=dtypes[1], k=1)


def rule(dots):
    """Thresholds that split each channel, some beyond every dot product, and flips."""
    channels = dots.shape[3]
    draw = Draw(0, "rule", channels)
    lines = dots.reshape(-1, channels)
    thresholds = lines[[draw.integer(0, len(lines) - 1) for _ in range(channels)], np.arange(channels)]
    thresholds = thresholds + np.array([draw.integer(-1, 1) for _ in range(channels)], np.int32)
    thresholds[::7] = draw.choice([INT32.min, INT32.max, -(10**6), 10**6])
    return thresholds, np.array([draw.integer(0, 1) for _ in range(channels)], np.bool_)


def words_of(packed):
    return packed.words if isinstance(packed.words, np.ndarray) else packed.words.download()


def assert_dots(y, expected):
    assert type(y) is np.ndarray
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, expected)


def assert_bits(packed, expected):
    assert isinstance(packed, PackedTensor)
    for what in ("shape", "layout", "word", "first"):
        assert getattr(packed, what) == getattr(expected, what)
    assert words_of(packed).dtype == expected.words.dtype
    np.testing.assert_array_equal(words_of(packed), expected.words)


def assert_all_outputs(x, w, scheme, device, pools=POOLS, **options):
    """Compare int32 outputs, and bits under each of these poolings that the output size allows."""
    dots = reference.bconv2d(x, w, **options)
    assert_dots(gpu.bconv2d(x, w, scheme=scheme, device=device, **options), dots)
    thresholds, flip = rule(dots)
    for pool in pools if min(dots.shape[1:3]) > 1 else POOLS[:1]:
        bits = {"thresholds": thresholds, "flip": flip, "pool": pool}
        packed = gpu.bconv2d(x, w, scheme=scheme, device=device, **bits, **options)
        assert_bits(packed, reference.threshold_tensor(dots, thresholds, flip, pool=pool))


def explains(caught, *parts):
    """Assert that a message has three lines and contains the given parts."""
    message = str(caught.value)
    assert message.count("\n") == 2
    assert isinstance(caught.value, SimwarpError)
    for part in parts:
        assert str(part) in message


# Geometries

GEOMETRIES = {
    "same": (1, (5, 6), 33, (3, 3), 33, {}),
    "one by one": (3, (3, 4), 65, (1, 1), 31, {}),
    "stride beyond the filter": (1, (7, 9), 5, (2, 1), 3, {"stride": (3, 4)}),
    "same, stride 2": (1, (5, 8), 5, (3, 3), 3, {"stride": 2}),
    "valid": (1, (6, 5), 31, (3, 2), 40, {"padding": "VALID"}),
    "window as large as the image": (3, (2, 3), 7, (2, 3), 5, {"padding": "VALID"}),
    "window larger than the image": (1, (2, 2), 32, (5, 4), 1, {}),
    "asymmetric, above and left": (1, (3, 4), 9, (3, 3), 4, {"padding": ((2, 0), (3, 0))}),
    "asymmetric, below and right": (1, (3, 4), 9, (3, 3), 4, {"padding": ((0, 2), (0, 3))}),
    "same is asymmetric": (1, (4, 4), 9, (2, 4), 4, {}),
    "padding beyond the filter": (1, (2, 3), 3, (2, 2), 2, {"padding": ((4, 3), (2, 5))}),
    "dilation": (3, (5, 6), 40, (3, 2), 5, {"dilation": (2, 3)}),
    "dilation that skips the image": (1, (3, 3), 3, (2, 3), 4, {"dilation": (4, 5)}),
    "all at once": (
        3,
        (7, 5),
        67,
        (2, 3),
        37,
        {"stride": (2, 1), "dilation": (2, 1), "padding": ((1, 2), (0, 3))},
    ),
    "one of everything": (1, (1, 1), 1, (1, 1), 1, {}),
}


@pytest.mark.at_most(1)
@pytest.mark.slow_cases(
    "same-bconv32",
    "same-bconv64",
    "same-btc1",
    "same-btc2",
    "stride beyond the filter-bconv32",
    "valid-bconv32",
    "dilation-*",
    "one by one-*",
    "all at once-*",
    "same is asymmetric-btc*",
)
@pytest.mark.gate_cases("*-bconv64", "*-btc2")  # make verify meets every pair of scheme and class of geometry
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_geometry_equals_the_reference(device, name, scheme):
    """Bits have one pooling in turn: each with each scheme, and both neighbours of a geometry others."""
    n, size, c, window, o, options = GEOMETRIES[name]
    turn = (list(GEOMETRIES).index(name) + list(SCHEMES).index(scheme)) % 3
    assert_all_outputs(
        *operands(n, size, c, window, o), scheme, device, pools=POOLS[turn : turn + 1], **options
    )


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("65-bconv32", "127-bconv32")
@pytest.mark.parametrize("scheme", BSTC)
@pytest.mark.parametrize("c", [1, 2, 31, 32, 33, 64, 65, 96, 127, 128, 129, 160, 257])
def test_every_number_of_channels_equals_the_reference(device, c, scheme):
    assert_all_outputs(*operands(1, (3, 2), c, (2, 2), 3), scheme, device)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("o", [1, 31, 32, 33, 63, 64, 65, 97])
def test_every_number_of_filters_equals_the_reference(device, o, scheme):
    assert_all_outputs(*operands(1, (2, 3), 5, (2, 2), o), scheme, device)


@pytest.mark.at_most(1)
@pytest.mark.slow_cases(
    "0-5-bconv32", "0-5-bconv64", "0-37-bconv32", "0-37-bconv64", "4-5-bconv32", "4-5-bconv64"
)
@pytest.mark.parametrize("scheme", BSTC)
@pytest.mark.parametrize("filters", [5, 37])
@pytest.mark.parametrize("enough", [0, 4, 10**6])
def test_tiles_of_every_height_equal_the_reference(device, monkeypatch, scheme, filters, enough):
    monkeypatch.setattr(schemes, "ENOUGH_WARPS", enough)
    x, w = operands(3, (5, 5), 35, (3, 3), filters)
    shape = conv_shape(x.shape, w.shape)
    tallest = 32 if filters <= 32 else 16
    assert SCHEMES[scheme].defines(shape)["ROWS"] == {0: tallest, 4: 16, 10**6: 8}[enough]
    assert_all_outputs(x, w, scheme, device)


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("btc1-0", "btc2-0")
@pytest.mark.gate_cases("*-3", "*-4", "*-5")
@pytest.mark.parametrize("k", range(6))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_random_geometries_equal_the_reference(device, scheme, k):
    draw = Draw(0, "any geometry", k)
    size, window = [(draw.integer(1, 6), draw.integer(1, 7)) for _ in range(2)]
    steps, gaps = [(draw.integer(1, 3), draw.integer(1, 3)) for _ in range(2)]
    spans = [(n - 1) * gap + 1 for n, gap in zip(window, gaps, strict=True)]
    pads = tuple(
        (max(span - n, 0) + draw.integer(0, 2), draw.integer(0, 3))
        for n, span in zip(size, spans, strict=True)
    )
    padding = "SAME" if k % 2 else pads
    x, w = operands(draw.integer(1, 3), size, draw.integer(1, 150), window, draw.integer(1, 70))
    assert_all_outputs(x, w, scheme, device, stride=steps, dilation=gaps, padding=padding)


@pytest.mark.parametrize("scheme", BSTC)
def test_the_requested_scheme_selects_the_kernel(device, monkeypatch, scheme):
    names = []
    call = simwarp.device.module.Kernel.__call__

    def noted(kernel, *args, **options):
        names.append(kernel.name)
        call(kernel, *args, **options)

    monkeypatch.setattr(simwarp.device.module.Kernel, "__call__", noted)
    gpu.bconv2d(*operands(1, (2, 2), 3, (2, 2), 3), scheme=scheme, device=device)
    assert names == ["pack_images", "pack_filters", scheme]


def test_same_padding_equals_tensorflow():
    # (size, filter, stride): (outputs, padding before); filter // 2 would be 3, 5 and 1
    for (size, window, stride), expected in {
        (224, 7, 4): (56, 1),
        (224, 11, 4): (56, 3),
        (56, 3, 2): (28, 0),
        (5, 3, 2): (3, 1),
        (4, 2, 1): (4, 0),
    }.items():
        shape = conv_shape((1, size, 1, 1), (window, 1, 1, 1), stride=(stride, 1))
        assert (shape.out_height, shape.pad_top) == expected


# What a call may name, and the four numbers or the name in capitals that it means.
PADDINGS = {
    "same": "SAME",
    "Valid": "VALID",
    0: ((0, 0), (0, 0)),
    2: ((2, 2), (2, 2)),
    (2, 1): ((2, 2), (1, 1)),
}


@pytest.mark.at_most(2)
@pytest.mark.parametrize("given", PADDINGS)
def test_a_padding_is_written_as_frameworks_write_it(device, given):
    x, w, meant = np.ones((1, 5, 6, 3)), np.ones((3, 2, 3, 2)), PADDINGS[given]
    expected = reference.bconv2d(x, w, padding=meant)
    forms = [given] if isinstance(given, str) else [given, np.array(given), np.array(given).tolist()]
    for form in forms:
        np.testing.assert_array_equal(reference.bconv2d(x, w, padding=form), expected)
        np.testing.assert_array_equal(gpu.bconv2d(x, w, padding=form, device=device), expected)
        np.testing.assert_array_equal(listings.bconv32(x, w, padding=form), expected)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("stride", [2, (2, 1), [2, 1], np.array([2, 1]), np.int64(2)])
def test_a_stride_is_a_number_or_two(device, stride):
    x, w = np.ones((1, 5, 6, 3)), np.ones((3, 2, 3, 2))
    two = tuple(np.broadcast_to(stride, 2).tolist())
    for option in ("stride", "dilation"):
        expected = reference.bconv2d(x, w, **{option: two})
        np.testing.assert_array_equal(gpu.bconv2d(x, w, **{option: stride}, device=device), expected)
        np.testing.assert_array_equal(reference.bconv2d(x, w, **{option: stride}), expected)


def test_the_geometry_is_passed_as_15_words():
    shape = ConvShape(*range(15))
    assert np.frombuffer(shape.argument.tobytes(), np.uint32).tolist() == list(range(15))


@pytest.mark.parametrize("huge", [2**31, 2**40])
def test_unused_strides_and_dilations_may_be_any_number(device, huge):
    x, w = operands(1, (3, 3), 5, (1, 3), 3)
    assert_all_outputs(x, w, "bconv32", device, stride=(huge, 1), dilation=(huge, 1))


# Operands


@pytest.mark.at_most(8)
@pytest.mark.parametrize("dtypes", list(itertools.product(DTYPES, repeat=2)))
def test_every_element_type_equals_the_reference(device, dtypes):
    x, w = operands(1, (3, 3), 35, (2, 2), 3, dtypes)
    assert_dots(gpu.bconv2d(x, w, scheme="bconv32", device=device), reference.bconv2d(x, w))


def test_arrays_may_have_any_order(device):
    x, w = operands(2, (3, 4), 5, (2, 2), 3)
    expected = reference.bconv2d(x, w)
    for given in (x.tolist(), np.asfortranarray(x), x.astype(">f4"), np.repeat(x, 2, 1)[:, ::2]):
        assert_dots(gpu.bconv2d(given, w, scheme="bconv32", device=device), expected)


@pytest.mark.at_most(6)
@pytest.mark.parametrize("word", [32, 64, 128])
@pytest.mark.parametrize("scheme", [*SCHEMES, "auto"])
@pytest.mark.parametrize("packed", ["x", "w", "xw"])
def test_packed_operands_equal_the_reference(device, packed, scheme, word):
    x, w = operands(2, (3, 3), 70, (2, 2), 35)
    p = reference.pack_tensor(x, layout="NHWC", word=word) if "x" in packed else x
    q = reference.pack_tensor(w, layout="HWOI", word=word) if "w" in packed else w
    assert_dots(gpu.bconv2d(p, q, scheme=scheme, device=device), reference.bconv2d(x, w))


@pytest.mark.parametrize("layouts", [("HWNC-FSB", "HWOI-FSB"), ("HWNC-FSB", "HWOI"), ("NHWC", "HWOI-FSB")])
@pytest.mark.parametrize("scheme", ["btc2", "auto"])
def test_tiled_operands_equal_the_reference(device, scheme, layouts):
    x, w = operands(3, (3, 3), 70, (2, 2), 35)
    p, q = (reference.pack_tensor(t, layout=layout) for t, layout in zip((x, w), layouts, strict=True))
    assert_dots(gpu.bconv2d(p, q, scheme=scheme, device=device), reference.bconv2d(x, w))


@pytest.mark.parametrize("kinds", list(itertools.product(["real", "packed", "host"], repeat=2))[:-1])
def test_device_operands_give_a_device_array(device, kinds):
    x, w = operands(1, (3, 3), 70, (2, 2), 35)

    def put(given, kind, layout):
        if kind == "host":
            return given
        given = device.upload(given)
        return gpu.pack_tensor(given, layout=layout) if kind == "packed" else given

    given = put(x, kinds[0], "NHWC"), put(w, kinds[1], "HWOI")  # the device is that of the operands
    y = gpu.bconv2d(*given, scheme="bconv32")
    assert isinstance(y, DeviceArray)
    assert (y.device, y.shape, y.dtype) == (device, (1, 3, 3, 35), np.int32)
    dots = reference.bconv2d(x, w)
    np.testing.assert_array_equal(y.download(), dots)
    bits = gpu.bconv2d(*given, scheme="bconv64" if "packed" not in kinds else "bconv32", thresholds=[0] * 35)
    assert isinstance(bits.words, DeviceArray)
    assert_bits(bits, reference.threshold_tensor(dots, [0] * 35))


@pytest.mark.parametrize(
    ("channels", "word"), [(64, 32), (64, 64), (33, 32), (33, 64), (128, 128), (70, 128)]
)
def test_words_on_the_device_are_accepted_by_schemes_of_the_other_word_size(device, channels, word):
    x, w = operands(1, (2, 2), channels, (2, 2), 3)
    packed = gpu.pack_tensor(device.upload(x), layout="NHWC", word=word)
    other = "bconv32" if word == 64 or channels == 128 else "bconv64"
    np.testing.assert_array_equal(gpu.bconv2d(packed, w, scheme=other).download(), reference.bconv2d(x, w))


def test_unsuitable_words_on_the_device_are_refused(device):
    packed = gpu.pack_tensor(device.upload(values(1, 2, 2, 65)), layout="NHWC")
    with pytest.raises(FormatError) as caught:
        gpu.bconv2d(packed, values(2, 2, 65, 3), scheme="bconv64")
    explains(caught, "(1, 2, 2, 65)", "word=64")
    packed = gpu.pack_tensor(device.upload(values(1, 2, 2, 65)), layout="NHWC", word=128)
    with pytest.raises(FormatError) as caught:
        gpu.bconv2d(packed, values(2, 2, 65, 3), scheme="bconv32")
    explains(caught, "(1, 2, 2, 65)", "fewer bytes", "repack it with word=32")


@pytest.mark.at_most(3)
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(("one", "other"), [("bconv32", "bconv64"), ("bconv64", "bconv32")])
def test_two_layers_equal_the_reference(device, one, other, pool):
    x, w = operands(1, (6, 5), 37, (3, 3), 60)
    v = values(2, 2, 60, 33, k=2)
    dots = reference.bconv2d(x, w)
    thresholds, flip = rule(dots)
    hidden = gpu.bconv2d(
        device.upload(x), w, scheme=one, thresholds=thresholds, flip=flip, pool=pool, device=device
    )
    middle = reference.threshold_tensor(dots, thresholds, flip, pool=pool)
    y = gpu.bconv2d(hidden, v, scheme=other)
    np.testing.assert_array_equal(y.download(), reference.bconv2d(middle, v))


class Used(simwarp.Device):
    """Memory with different previous contents at each allocation."""

    def __init__(self, fill):
        super().__init__()
        self.fill = fill

    def allocate(self, shape, dtype, name=""):
        array = super().allocate(shape, dtype, name)
        array.upload(np.full(array.nbytes, self.fill, np.uint8).view(array.dtype).reshape(shape))
        return array


@pytest.mark.at_most(2)
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0xA5])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_results_do_not_depend_on_old_memory(scheme, fill):
    assert_all_outputs(*operands(1, (5, 5), 35, (3, 3), 33), scheme, Used(fill))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", BSTC)
def test_a_second_launch_gives_the_same_result(device, monkeypatch, scheme):
    """Every convolution after the first overwrites an output array in use before."""
    outputs = {}
    allocate = device.allocate

    def again(shape, dtype, name=""):
        if name != "y":
            return allocate(shape, dtype, name)
        key = (shape, np.dtype(dtype))
        outputs[key] = outputs.get(key) or allocate(shape, dtype, name)
        return outputs[key]

    monkeypatch.setattr(device, "allocate", again)
    w = values(3, 3, 35, 33, k=1)
    for k in (0, 3, 0):
        assert_all_outputs(values(1, 4, 4, 35, k=k), w, scheme, device)


# Thresholds


@pytest.mark.parametrize("scheme", BSTC)
def test_thresholds_at_the_edge_and_ends_of_int32_are_exact(device, scheme):
    x, w = np.ones((1, 2, 2, 5), np.int8), np.ones((2, 2, 5, 8), np.int8)
    w[..., 4:] = -1
    thresholds = [INT32.min, 10, 11, INT32.max, INT32.min, -10, -9, INT32.max]
    packed = gpu.bconv2d(x, w, thresholds=thresholds, scheme=scheme, device=device)
    at_the_right = reference.unpack_tensor(packed)[0, 0, 1]  # with two of four taps excluded: ±10
    assert at_the_right.tolist() == [1, 1, 0, 0, 1, 1, 0, 0]


def test_thresholds_on_the_device_select_the_device(device):
    x, w = operands(1, (2, 2), 3, (1, 1), 2)
    thresholds, flip = device.upload(np.zeros(2, np.int32)), device.upload(np.array([0, 1], np.uint8))
    packed = gpu.bconv2d(x, w, thresholds=thresholds, flip=flip)
    assert_bits(packed, reference.threshold_tensor(reference.bconv2d(x, w), [0, 0], [False, True]))


# Packing


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("word", [32, 64, 128])
@pytest.mark.parametrize("layout", ["NHWC", "HWOI"])
def test_packing_equals_the_reference(device, layout, word, dtype):
    for shape in [(1, 1, 1, 1), (2, 3, 33, 5), (3, 1, 5, 64), (1, 2, 65, 130)]:
        x = values(*shape, dtype=dtype)
        assert_bits(
            gpu.pack_tensor(x, layout=layout, word=word, device=device),
            reference.pack_tensor(x, layout=layout, word=word),
        )


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("layout", ["NHWC", "HWOI"])
def test_a_nan_anywhere_is_reported(device, layout, dtype):
    for nan, at in itertools.product((np.nan, -np.nan), [(0, 0, 0, 0), (1, 1, 34, 2), (1, 0, 31, 1)]):
        x = np.full((2, 2, 35, 3), -np.inf, dtype)
        x[at] = nan
        with pytest.raises(NotANumberError, match=r"x\[\d, \d, \d+, \d\] is NaN"):
            gpu.pack_tensor(x, layout=layout, device=device)


def test_nan_in_a_host_array_is_reported_with_its_index(device):
    for name, other in (("x", "w"), ("w", "x")):
        given = {"x": np.ones((1, 2, 2, 3)), "w": np.ones((1, 2, 3, 2))}
        given[name][0, 1, 1, 0] = np.nan
        for put in (lambda array: array, device.upload):
            given[other] = put(np.asarray(np.ones(given[other].shape)))
            with pytest.raises(NotANumberError, match=rf"{name}\[0, 1, 1, 0\] is NaN"):
                gpu.bconv2d(**given, scheme="bconv32", device=device)


def test_nan_in_a_device_array_is_reported_at_the_next_synchronisation(device):
    x = device.upload(np.full((1, 2, 2, 3), np.nan))
    y = gpu.bconv2d(x, np.ones((1, 2, 3, 2)), scheme="bconv32")
    with pytest.raises(NotANumberError):
        y.download()
    device.synchronize()


# The plan


def test_the_plan_explains_its_scheme():
    shapes, small = ((1, 8, 8, 128), (3, 3, 128, 128)), ((1, 8, 8, 3), (3, 3, 3, 128))
    ada = gpu.bconv.plan(*shapes, compute_capability=(8, 9))
    assert (ada.scheme.name, "sm_89 has bit tensor cores" in ada.reason) == ("btc1", True)
    few = gpu.bconv.plan(*small, compute_capability=(8, 9))
    assert (few.scheme.name, "C = 3" in few.reason) == ("bconv32", True)
    hopper = gpu.bconv.plan(*small)
    assert (hopper.scheme.name, "sm_90 has warpgroups" in hopper.reason) == ("wgmma", True)
    long = (1, 1, 1, 2**24), (1, 1, 2**24, 2)
    assert [gpu.bconv.plan(*long, bits=bits).scheme.name for bits in (False, True)] == ["wgmma", "btc1"]
    few = (1, 4096, 4096, 3), (4096, 4096, 3, 2)
    assert gpu.bconv.plan(*few, bits=True).scheme.name == "btc1"
    new = gpu.bconv.plan(*shapes, compute_capability=(12, 0))
    assert (new.scheme.name, "sm_120 emulates" in new.reason) == ("bconv64", True)
    old = gpu.bconv.plan(*shapes, compute_capability=(7, 0))
    assert (old.scheme.name, "sm_70" in old.reason) == ("bconv64", True)
    assert gpu.bconv.plan(*small, compute_capability=(7, 0)).scheme.name == "bconv32"
    assert gpu.bconv.plan(*shapes, word=64).scheme.name == "bconv64"
    assert gpu.bconv.plan(*shapes, layouts=("NHWC", "HWOI-FSB")).scheme.name == "btc2"


@pytest.mark.parametrize("c", [3, 70])
def test_the_automatic_scheme_runs_its_plan(device, c):
    x, w = operands(1, (3, 3), c, (2, 2), 5)
    assert_dots(gpu.bconv2d(x, w, device=device), reference.bconv2d(x, w))


# Bad input

X, W = np.ones((1, 4, 4, 3), np.float32), np.ones((3, 3, 3, 2), np.float32)

BAD = {
    "channels": (ShapeError, {"w": np.ones((3, 3, 4, 2))}, ["C is 3 in one and 4 in the other"]),
    "three dimensions": (ShapeError, {"x": np.ones((4, 4, 3))}, ["x has shape (4, 4, 3)", "(N, H, W, C)"]),
    "an empty dimension": (ShapeError, {"w": np.ones((3, 0, 3, 2))}, ["w has shape (3, 0, 3, 2)"]),
    "ragged": (ShapeError, {"x": [[[[1.0], [1.0, 2.0]]]]}, ["x is not an array"]),
    "no output": (ShapeError, {"padding": "VALID", "dilation": 2}, ["window of 5 rows", "4 rows"]),
    "no columns": (ShapeError, {"padding": ((1, 1), (0, 0)), "dilation": (1, 2)}, ["window of 5 columns"]),
    "stride 0": (ShapeError, {"stride": 0}, ["stride=0"]),
    "strides of the wrong length": (ShapeError, {"stride": (1, 2, 1)}, ["stride=(1, 2, 1)"]),
    "a real stride": (ShapeError, {"stride": 1.5}, ["stride=1.5"]),
    "dilation 0": (ShapeError, {"dilation": (1, 0)}, ["dilation=(1, 0)"]),
    "negative padding": (ShapeError, {"padding": ((0, -1), (0, 0))}, ["padding=((0, -1), (0, 0))"]),
    "padding of the wrong length": (
        ShapeError,
        {"padding": (1, 1, 1, 1)},
        ["(1, 1, 1, 1)", "an integer"],
    ),
    "padding of one number below 0": (ShapeError, {"padding": -1}, ["padding=", "crop x"]),
    "a padding of mixed forms": (
        ShapeError,
        {"padding": (1, (1, 1))},
        ["padding=(1, (1, 1))", "SAME"],
    ),
    "a padding that is no number": (ShapeError, {"padding": ((0, 0.5), (0, 0))}, ["padding="]),
    "an unknown padding": (SchemeError, {"padding": "FULL"}, ["padding='FULL'", "SAME"]),
    "too much padding": (ShapeError, {"padding": ((0, 2**31), (0, 0)), "stride": 2**30}, ["padded image"]),
    "a large output": (ShapeError, {"padding": ((0, 2**16), (0, 2**16))}, ["output", "elements"]),
    "groups that do not fit": (ShapeError, {"groups": 2}, ["groups=2", "(R, S, C / 2, O)"]),
    "no groups": (SchemeError, {"groups": 0}, ["groups=0"]),
    "groups of a real number": (SchemeError, {"groups": 1.0}, ["groups=1.0"]),
    "an unknown scheme": (SchemeError, {"scheme": "btc9"}, ["scheme='btc9'", "bconv64", "auto"]),
    "a scheme that cannot be one": (SchemeError, {"scheme": ["btc1"]}, ["scheme=['btc1']"]),
    "an unknown pool": (SchemeError, {"pool": "max", "thresholds": [0, 0]}, ["pool='max'"]),
    "pool without thresholds": (SchemeError, {"pool": "or"}, ["pool='or'", "thresholds"]),
    "nothing to pool": (ShapeError, {"pool": "or", "thresholds": [0, 0], "stride": 4}, ["pool='or'"]),
    "complex elements": (DtypeError, {"x": np.ones((1, 4, 4, 3), complex)}, ["x has elements of complex128"]),
}


@every_case("name", BAD)
def test_bad_input_is_refused(device, name):
    error, change, parts = BAD[name]
    with pytest.raises(error) as caught:
        gpu.bconv2d(**{"x": X, "w": W, **change}, device=device)
    explains(caught, *parts)


def test_flips_without_thresholds_and_thresholds_of_another_size_are_refused(device):
    for change in ({"flip": [True, False]}, {"thresholds": [1, 2, 3]}, {"thresholds": ["1", "2"]}):
        with pytest.raises((SchemeError, ShapeError, DtypeError)):
            gpu.bconv2d(X, W, **change, device=device)


def test_too_many_elements_are_refused():
    for shapes in (
        ((2**10, 2**10, 2**10, 2), (1, 1, 2, 1)),
        ((1, 1, 1, 2), (2**10, 2**10, 2, 2**10)),
        ((1, 2**15, 2**15, 1), (1, 1, 1, 2)),
    ):
        with pytest.raises(ShapeError) as caught:
            conv_shape(*shapes)
        explains(caught, "elements", 2**31 - 1)


PACKED = reference.pack_tensor(X, layout="NHWC")

MISFITS = {
    "the size is missing": ({"shape": None}, ShapeError, ["x has shape None"]),
    "the size is impossible": (
        {"shape": (1, 4, 4, 33)},
        FormatError,
        ["(1, 4, 4, 33)", "uint32 (1, 4, 4, 2)"],
    ),
    "words of another type": (
        {"words": PACKED.words.astype(np.int64)},
        FormatError,
        ["int64", "(1, 4, 4, 3)"],
    ),
    "words that are no array": ({"words": [1, 2]}, FormatError, ["list", "(1, 4, 4, 3)"]),
    "another word size": ({"word": 64}, FormatError, ["uint64 (1, 4, 4, 1)"]),
    "a word size that is none": ({"word": 48}, FormatError, ["word=48"]),
    "filters' layout": ({"layout": "HWOI"}, FormatError, ["layout='HWOI'", "(1, 4, 4, 3)"]),
    "a layout the scheme does not take": (
        {"layout": "HWNC", "words": np.zeros((4, 4, 1, 1), np.uint32)},
        FormatError,
        ["layout='HWNC'", "bconv32 takes layout='NHWC'"],
    ),
    "the other order": ({"first": "msb", "words": PACKED.words << 29}, FormatError, ["first='msb'"]),
    "bits past the channels": ({"words": PACKED.words | 8}, FormatError, ["past its edge", "channel 3"]),
}


@pytest.mark.parametrize("name", MISFITS)
def test_unsuitable_packed_operands_are_refused(device, name):
    change, error, parts = MISFITS[name]
    with pytest.raises(error) as caught:
        gpu.bconv2d(replace(PACKED, **change), W, scheme="bconv32", device=device)
    explains(caught, *parts)


@pytest.mark.parametrize("layout", ["HWOI", "HWIO", "HWOI-FSB"])
@pytest.mark.parametrize("first", ["lsb", "msb"])
@pytest.mark.parametrize("channels", [32, 33, 128, 130])
def test_nonzero_padding_bits_are_refused(device, layout, first, channels):
    w = values(1, 1, channels, 9)
    packed = reference.pack_tensor(w, layout=layout, first=first)
    used = reference.pack_tensor(np.ones_like(w), layout=layout, first=first).words
    partly_used = np.argwhere(used != 2**32 - 1)[:40:3]
    assert len(partly_used) or (layout != "HWOI-FSB" and channels % 32 == 0)
    for at in partly_used:
        spoilt = packed.words.copy()
        free = ~int(used[tuple(at)]) & 0xFFFFFFFF
        spoilt[tuple(at)] |= np.uint32(free & -free)
        with pytest.raises(FormatError, match="past its edge"):
            gpu.bconv2d(np.ones((1, 1, 1, channels)), replace(packed, words=spoilt), device=device)


def test_misaligned_words_on_the_device_are_refused(device):
    class Shifted(DeviceArray):
        @property
        def pointer(self):
            return super().pointer + 4

    words = device.upload(PACKED.words)
    words.__class__ = Shifted
    with pytest.raises(FormatError) as caught:
        gpu.bconv2d(replace(PACKED, words=words), W, scheme="bconv32")
    explains(caught, "16")


@pytest.mark.parametrize("change", [{"layout": "HWNC"}, {"word": 48}, {"first": "msb"}])
def test_formats_not_packed_on_a_device_are_refused(device, change):
    with pytest.raises(SchemeError) as caught:
        gpu.pack_tensor(X, **{"layout": "NHWC", **change}, device=device)
    explains(caught, *change, "reference.pack_tensor")


def test_operands_of_another_device_are_refused(device):
    other = simwarp.Device(cc=(8, 0))
    with pytest.raises(DtypeError, match="sm_80"):
        gpu.bconv2d(other.upload(X), W, device=device)
