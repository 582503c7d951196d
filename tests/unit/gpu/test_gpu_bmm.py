"""`gpu.bmm` and `gpu.pack` on the simulator: every kind of operand, valid and invalid."""

import functools
import gc
import itertools
import weakref
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import gpu
import reference
import simwarp
import simwarp.device.module
from gpu.bmm import product
from gpu.bmm.packing import matrix, packing_plan
from gpu.bmm.schemes import SCHEMES, choose_scheme
from reference.errors import (
    DtypeError,
    FormatError,
    NoGpuError,
    NotANumberError,
    SchemeError,
    ShapeError,
    SimwarpError,
)
from reference.types import PackedBits
from simwarp.device import DeviceArray
from simwarp.verify.draw import DTYPES, Draw
from support.offset_array import OffsetArray

TRANSPOSES = list(itertools.product([False, True], repeat=2))
SIZES = [
    (1, 1, 1),
    (1, 33, 31),
    (31, 1, 32),
    (32, 31, 33),
    (33, 32, 1),
    (63, 65, 64),
    (64, 64, 63),
    (65, 63, 65),
    (7, 53, 131),
    (1009, 3, 5),
    (2, 1013, 37),
    (3, 2, 5003),
]


@pytest.fixture
def device():
    return simwarp.Device()


@pytest.fixture
def eager():
    """A device so small that every matrix selects the kernels with vector loads."""
    device = simwarp.Device()
    device.multiprocessors = 0
    return device


@functools.cache
def values(rows, columns, dtype="float32", k=0):
    """Random bit patterns without NaN; an eighth are ±0, ±inf, subnormals and similar."""
    x = Draw(0, "test_gpu_bmm", k).matrix(rows, columns, dtype)
    x.flags.writeable = False
    return x


def operands(m, n, k, transpose_a, transpose_b, dtypes=("float32", "float32")):
    a = values(*((k, m) if transpose_a else (m, k)), dtypes[0])
    b = values(*((n, k) if transpose_b else (k, n)), dtypes[1], 1)
    return a, b


def assert_product(c, a, b, **options):
    expected = reference.bmm(a, b, **options)
    assert type(c) is np.ndarray
    assert c.dtype == np.int32
    np.testing.assert_array_equal(c, expected)


def explains(caught, *parts):
    """Assert that a message contains the given parts and gives advice."""
    message = str(caught.value)
    assert "\n" in message or "; " in message
    assert isinstance(caught.value, SimwarpError)
    for part in parts:
        assert str(part) in message


# Products


@pytest.mark.at_most(4)
@pytest.mark.slow_cases("False-False-sizes0")
@pytest.mark.pairwise
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_every_size_and_transpose_equals_the_reference(device, sizes, transpose_a, transpose_b):
    a, b = operands(*sizes, transpose_a, transpose_b)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    assert_product(gpu.bmm(a, b, **options, scheme="bmm32", device=device), a, b, **options)


@pytest.mark.at_most(19)
@pytest.mark.pairwise
@pytest.mark.parametrize("dtypes", list(itertools.product(DTYPES, repeat=2)))
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_every_element_type_equals_the_reference(device, dtypes, transpose_a, transpose_b):
    a, b = operands(34, 37, 67, transpose_a, transpose_b, dtypes)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    assert_product(gpu.bmm(a, b, **options, scheme="bmm32", device=device), a, b, **options)


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
@pytest.mark.parametrize(("packed", "first"), [("a", "msb"), ("b", "msb"), ("ab", "msb"), ("ab", "lsb")])
def test_packed_operands_equal_the_reference(device, transpose_a, transpose_b, packed, first):
    a, b = operands(33, 35, 70, transpose_a, transpose_b)
    p = reference.pack(a, layout="row" if transpose_a else "column", first=first)
    q = reference.pack(b, layout="column" if transpose_b else "row", first=first)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    given = p if "a" in packed else a, q if "b" in packed else b
    c = gpu.bmm(*given, **options, scheme="bmm32", device=device)
    assert_product(c, a, b, **options)


def test_packed_words_may_have_fortran_order(device):
    a, b = values(40, 90), values(90, 40, k=1)
    packed = reference.pack(a, layout="column")
    assert_product(gpu.bmm(replace(packed, words=np.asfortranarray(packed.words)), b, device=device), a, b)


KINDS = list(itertools.product(["real", "packed", "host"], repeat=2))[:-1]


@pytest.mark.parametrize("kinds", KINDS)
def test_device_operands_give_a_device_array(device, kinds):
    a, b = values(33, 70), values(70, 35, "int8", 1)

    def put(x, kind, layout):
        if kind == "host":
            return x
        x = device.upload(x)
        return gpu.pack(x, layout=layout) if kind == "packed" else x

    c = gpu.bmm(put(a, kinds[0], "column"), put(b, kinds[1], "row"))  # the device is that of the operands
    assert isinstance(c, DeviceArray)
    assert (c.device, c.shape, c.dtype) == (device, (33, 35), np.int32)
    np.testing.assert_array_equal(c.download(), reference.bmm(a, b))


def test_a_device_array_is_multiplied_twice_and_unchanged(device):
    a = device.upload(values(33, 33))
    first = gpu.bmm(a, a).download()
    np.testing.assert_array_equal(gpu.bmm(a, a, device=device).download(), first)
    np.testing.assert_array_equal(a.download(), values(33, 33))


def test_views_of_device_arrays_are_multiplied(device):
    x = values(30, 40)
    view = device.upload(x).view((40, 30))
    np.testing.assert_array_equal(
        gpu.bmm(view, view, transpose_a=True).download(),
        reference.bmm(x.reshape(40, 30), x.reshape(40, 30), transpose_a=True),
    )


# Schemes and outputs

FAMILY = [(1, 1, 1), (33, 31, 65), (65, 63, 64), (16, 128, 127), (129, 5, 257)]
INT32 = np.iinfo(np.int32)


def rule(n, k):
    """Thresholds around the dot products, some beyond every one, and flips."""
    draw = Draw(0, "rule", n)
    spread = int(np.sqrt(k)) + 1
    thresholds = np.array([draw.integer(-spread, spread) for _ in range(n)], np.int32)
    thresholds[::7] = draw.choice([INT32.min, INT32.max, -k, k, k + 1])
    return thresholds, np.array([draw.integer(0, 1) for _ in range(n)], np.bool_)


def assert_bits(packed, dots, thresholds, flip=None, *, word, first="msb"):
    expected = reference.threshold(dots, thresholds, flip, word=word, first=first)
    assert isinstance(packed, PackedBits)
    assert (packed.shape, packed.layout, packed.word, packed.first) == (dots.shape, "column", word, first)
    words = packed.words if isinstance(packed.words, np.ndarray) else packed.words.download()
    assert words.dtype == expected.words.dtype
    np.testing.assert_array_equal(words, expected.words)


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("bmm64-False-True-int-real")
@pytest.mark.pairwise
@pytest.mark.parametrize("given", ["real", "msb", "lsb"])
@pytest.mark.parametrize("output", ["int", "bits"])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_and_bit_order_equals_the_reference(
    device, scheme, transpose_a, transpose_b, output, given
):
    word, first = SCHEMES[scheme].word, "msb" if given == "real" else given
    for m, n, k in FAMILY:
        a, b = operands(m, n, k, transpose_a, transpose_b, ("float16", "int8"))
        options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
        dots = reference.bmm(a, b, **options)
        x, y = a, b
        if given != "real":
            x = reference.pack(a, layout="row" if transpose_a else "column", word=word, first=first)
            y = reference.pack(b, layout="column" if transpose_b else "row", word=word, first=first)
        if output == "int":
            assert_product(gpu.bmm(x, y, **options, scheme=scheme, device=device), a, b, **options)
        else:
            thresholds, flip = rule(n, k)
            packed = gpu.bmm(x, y, **options, scheme=scheme, thresholds=thresholds, flip=flip, device=device)
            assert_bits(packed, dots, thresholds, flip, word=word, first=first)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_requested_scheme_selects_the_kernel(device, monkeypatch, scheme):
    names = launched(monkeypatch)
    gpu.bmm(values(3, 5), values(5, 3), scheme=scheme, device=device)
    assert names[-1] == scheme


# K beyond 16-bit counters

LIMIT = 2**16 - 1


def extremes(k, word):
    """A and B, packed and real, whose rows and columns are equal, opposite, or random."""
    a = np.concatenate([np.ones((2, k), np.int8), values(1, k, "int8")])
    b = np.concatenate([np.ones((k, 1), np.int8), -np.ones((k, 1), np.int8), values(k, 1, "int8", 1)], 1)
    # Columns 1 and 33 of a tile share a register.
    b = np.concatenate([b, np.repeat(b[:, :1], 30, 1), b[:, 1::-1]], 1)
    return a, b, reference.pack(a, layout="column", word=word), reference.pack(b, word=word)


@pytest.mark.gate
@pytest.mark.gate_cases(but=("65535-int",))
@pytest.mark.parametrize(
    ("k", "output"), [(LIMIT - 1, "bits"), (LIMIT, "int"), (LIMIT + 1, "int"), (LIMIT + 2, "bits")]
)
def test_bmm64_is_right_around_its_counter_bound(device, monkeypatch, k, output):
    a, b, packed_a, packed_b = extremes(k, 64)
    dots = reference.bmm(a, b)
    assert {-k, k} <= set(dots.ravel().tolist())
    names = launched(monkeypatch)
    if output == "int":
        np.testing.assert_array_equal(gpu.bmm(packed_a, packed_b, scheme="bmm64", device=device), dots)
    else:
        packed = gpu.bmm(packed_a, packed_b, scheme="bmm64", thresholds=dots[2], device=device)
        assert_bits(packed, dots, dots[2], word=64)
    assert names == ["bmm64" if k <= LIMIT else "bmms64"] == [choose_scheme("bmm64", k).name]


@pytest.mark.gate
def test_beyond_its_bound_bmm64_would_overflow(device, monkeypatch):
    monkeypatch.setattr(product, "scheme_for", lambda name, *_: SCHEMES[name])
    a, b, packed_a, packed_b = extremes(LIMIT + 1, 64)
    c = gpu.bmm(packed_a, packed_b, scheme="bmm64", device=device)
    assert c[0, 1] == LIMIT + 1  # instead of its negative: more differences than 16 bits count
    assert not np.array_equal(c, reference.bmm(a, b))


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize("scheme", ["bmm32", "bmms32"])
def test_the_other_schemes_have_unbounded_k(device, scheme):
    a, b, packed_a, packed_b = extremes(LIMIT + 1, SCHEMES[scheme].word)
    assert_product(gpu.bmm(packed_a, packed_b, scheme=scheme, device=device), a, b)
    assert choose_scheme(scheme, 2**31 - 1) is SCHEMES[scheme]


def test_fallback_schemes_have_the_same_word_and_unbounded_k():
    for scheme in SCHEMES.values():
        if scheme.largest_k is not None:
            other = SCHEMES[scheme.fallback]
            assert other.word == scheme.word
            assert other.largest_k is None


# Output as bits


@pytest.mark.at_most(3)
@pytest.mark.slow_cases("bmm64-None")
@pytest.mark.parametrize("flip", [None, [False] * 4, [True] * 4, [False, True, False, True]])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_thresholds_equal_to_a_dot_product_are_exact(device, scheme, flip):
    a, b = values(35, 70), values(70, 4, k=1)
    dots = reference.bmm(a, b)
    for offset in (-2, -1, 0, 1, 2):  # dots have the parity of K
        thresholds = dots[17] + offset
        packed = gpu.bmm(a, b, scheme=scheme, thresholds=thresholds, flip=flip, device=device)
        assert_bits(packed, dots, thresholds, flip, word=SCHEMES[scheme].word)
        turned = np.asarray([False] * 4 if flip is None else flip, bool)
        assert (reference.unpack(packed)[17] > 0).tolist() == ((offset <= 0) ^ turned).tolist()


@pytest.mark.parametrize("k", [1, 2, 33])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_thresholds_at_the_ends_of_dots_and_int32_are_exact(device, scheme, k):
    thresholds = np.array([INT32.min, INT32.min + 1, -k - 1, -k, -k + 1, 0, k - 1, k, k + 1, INT32.max])
    b = np.ones((k, 10), np.int8)
    a = np.concatenate([b.T[:1], -b.T[:1]])
    packed = gpu.bmm(a, b, scheme=scheme, thresholds=thresholds, device=device)
    plus, minus = (reference.unpack(packed) > 0).tolist()
    assert plus == [True] * 8 + [False] * 2
    assert minus == [True] * 4 + [False] * 6


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64", "uint64", ">i4", "int32"])
def test_thresholds_may_be_any_integers(device, dtype):
    a, b = values(3, 20), values(20, 5, k=1)
    thresholds = np.array([0, 4, 7, 1, 0], dtype)
    for given in (thresholds, thresholds.tolist(), np.repeat(thresholds, 3)[::3]):
        c = gpu.bmm(a, b, thresholds=given, scheme="bmm32", device=device)
        assert_bits(c, reference.bmm(a, b), thresholds, word=32)


@pytest.mark.parametrize("flip", [[True, False, True], [1, 0, 1], np.array([1, 0, 1], np.uint8)])
def test_flips_may_have_any_type(device, flip):
    a, b = values(3, 20), values(20, 3, k=1)
    packed = gpu.bmm(a, b, thresholds=[0, 0, 0], flip=flip, scheme="bmm32", device=device)
    assert_bits(packed, reference.bmm(a, b), [0, 0, 0], [True, False, True], word=32)


@pytest.mark.parametrize("where", list(itertools.product(["host", "device"], repeat=3)))
def test_thresholds_and_flips_are_applied_on_the_device(device, where):
    a, b = values(33, 70), values(70, 35, k=1)
    thresholds, flip = rule(35, 70)
    x = device.upload(a) if where[0] == "device" else a
    t = device.upload(thresholds) if where[1] == "device" else thresholds
    f = device.upload(flip.view(np.uint8)) if where[2] == "device" else flip
    packed = gpu.bmm(x, b, thresholds=t, flip=f, scheme="bmm64", device=device)
    assert isinstance(packed.words, DeviceArray if where[0] == "device" else np.ndarray)
    assert_bits(packed, reference.bmm(a, b), thresholds, flip, word=64)


def test_thresholds_on_the_device_select_the_device(device):
    packed = gpu.bmm([[1.0]], [[1.0]], thresholds=device.upload(np.ones(1, np.int32)), scheme="bmm32")
    assert packed.words.tolist() == [[1 << 31]]


def test_thresholds_of_a_batch_normalisation_are_applied(device):
    a, b = values(40, 90), values(90, 35, k=1)
    rng = np.random.default_rng(0)
    gamma, beta, mean = rng.standard_normal((3, 35))
    thresholds, flip = reference.integer_thresholds(gamma, beta, 5 * mean, np.full(35, 90.0), 1e-5)
    assert flip.any()
    assert not flip.all()
    dots = reference.bmm(a, b)
    packed = gpu.bmm(a, b, scheme="bmms64", thresholds=thresholds, flip=flip, device=device)
    real = gamma * (dots - 5 * mean) / np.sqrt(90 + 1e-5) + beta
    np.testing.assert_array_equal(reference.unpack(packed) > 0, real >= 0)


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("bmm32-bmms32-host-lsb")
@pytest.mark.parametrize("first", ["msb", "lsb"])
@pytest.mark.parametrize("at", ["host", "device"])
@pytest.mark.parametrize(("one", "other"), [("bmm32", "bmms32"), ("bmm64", "bmms64"), ("bmms64", "bmm64")])
def test_two_layers_equal_the_reference(device, one, other, at, first):
    word = SCHEMES[one].word
    x, w, v = values(37, 100), values(100, 75, k=1), values(75, 29, k=2)
    thresholds, flip = rule(75, 100)

    def put(matrix, layout):
        given = matrix if at == "host" else device.upload(matrix)
        return gpu.pack(given, layout=layout, word=word, first=first, device=device)

    hidden = gpu.bmm(
        put(x, "column"), put(w, "row"), scheme=one, thresholds=thresholds, flip=flip, device=device
    )
    c = gpu.bmm(hidden, put(v, "row"), scheme=other, device=device)
    middle = (
        2 * reference.unpack(reference.threshold(reference.bmm(x, w), thresholds, flip)).astype(np.int8) - 1
    )
    np.testing.assert_array_equal(c if at == "host" else c.download(), reference.bmm(middle, v))
    thresholds, flip = rule(29, 75)
    last = gpu.bmm(hidden, put(v, "row"), scheme=other, thresholds=thresholds, flip=flip, device=device)
    assert_bits(last, reference.bmm(middle, v), thresholds, flip, word=word, first=first)


class Used(simwarp.Device):
    """Memory with different previous contents at each allocation."""

    def __init__(self, fill):
        super().__init__()
        self.multiprocessors, self.fill = 0, fill

    def allocate(self, shape, dtype, name=""):
        array = super().allocate(shape, dtype, name)
        array.upload(np.full(array.nbytes, self.fill, np.uint8).view(array.dtype).reshape(shape))
        return array


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("bmm64-0")
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0xA5])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_results_do_not_depend_on_old_memory(scheme, fill):
    a, b = values(37, 67), values(67, 41, k=1)
    thresholds, flip = rule(41, 67)
    word = SCHEMES[scheme].word
    dots, device = reference.bmm(a, b), Used(fill)
    for _ in range(2):
        assert_product(gpu.bmm(a, b, scheme=scheme, device=device), a, b)
        packed = gpu.bmm(a, b, scheme=scheme, thresholds=thresholds, flip=flip, device=device)
        assert_bits(packed, dots, thresholds, flip, word=word)
    for layout, columns in itertools.product(["row", "column"], [67, 64]):
        x = values(37, columns)
        np.testing.assert_array_equal(
            gpu.pack(x, layout=layout, word=word, device=device).words,
            reference.pack(x, layout=layout, word=word).words,
        )


@pytest.mark.at_most(2)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_second_launch_gives_the_same_result(device, monkeypatch, scheme):
    """Every product after the first overwrites an output array in use before."""
    outputs = {}
    allocate = device.allocate

    def again(shape, dtype, name=""):
        if name != "c":
            return allocate(shape, dtype, name)
        key = (shape, np.dtype(dtype))
        outputs[key] = outputs.get(key) or allocate(shape, dtype, name)
        return outputs[key]

    monkeypatch.setattr(device, "allocate", again)
    b = values(67, 41, k=1)
    thresholds, flip = rule(41, 67)
    for k in (0, 3, 4, 0):
        a = values(37, 67, k=k)
        dots = reference.bmm(a, b)
        assert_product(gpu.bmm(a, b, scheme=scheme, device=device), a, b)
        packed = gpu.bmm(a, b, scheme=scheme, thresholds=thresholds, flip=flip, device=device)
        assert_bits(packed, dots, thresholds, flip, word=SCHEMES[scheme].word)
    assert len(outputs) == 2


def test_nan_in_a_product_to_bits_is_reported(device):
    bad = values(33, 70).copy()
    bad[5, 6] = np.nan
    with pytest.raises(NotANumberError, match=r"a\[5, 6\]"):
        gpu.bmm(bad, values(70, 3), thresholds=[0, 0, 0], device=device)
    packed = gpu.bmm(device.upload(bad), values(70, 3), thresholds=[0, 0, 0])
    with pytest.raises(NotANumberError):
        packed.words.download()


@pytest.mark.parametrize(
    ("options", "error", "parts"),
    [
        ({"thresholds": [0.0, np.nan]}, NotANumberError, ["thresholds have a NaN"]),
        ({"thresholds": [True, False]}, DtypeError, ["bool", "reference.integer_thresholds"]),
        ({"thresholds": ["0", "1"]}, DtypeError, ["thresholds are"]),
        ({"thresholds": [0, 2**31]}, DtypeError, ["int32", "clip"]),
        ({"thresholds": [-(2**31) - 1, 0]}, DtypeError, ["int32", "clip"]),
        ({"thresholds": np.array([0, 2**63], np.uint64)}, DtypeError, ["int32", "clip"]),
        ({"thresholds": [0, 2**80]}, DtypeError, ["thresholds are object"]),
        ({"thresholds": [0]}, ShapeError, ["thresholds has shape (1,)", "each of the 2 columns"]),
        ({"thresholds": [0, 0, 0]}, ShapeError, ["(3,)"]),
        ({"thresholds": [[0, 0]]}, ShapeError, ["(1, 2)"]),
        ({"thresholds": 0}, ShapeError, ["()"]),
        ({"thresholds": [[0], [0, 0]]}, ShapeError, ["thresholds is not a vector"]),
        ({"flip": [True, False]}, SchemeError, ["flip is given without thresholds"]),
        ({"thresholds": [0, 0], "flip": [True]}, ShapeError, ["flip has shape (1,)"]),
        ({"thresholds": [0, 0], "flip": True}, ShapeError, ["flip has shape ()"]),
        ({"thresholds": [0, 0], "flip": [[True], [True, False]]}, ShapeError, ["flip is not a vector"]),
        ({"thresholds": [0, 0], "flip": [0, 2]}, DtypeError, ["flip is int64", "bool"]),
        ({"thresholds": [0, 0], "flip": [1, -1]}, DtypeError, ["flip is int64", "bool"]),
        ({"thresholds": [0, 0], "flip": [0.0, 1.0]}, DtypeError, ["flip is float64", "bool"]),
    ],
)
def test_bad_thresholds_and_flips_are_refused(device, options, error, parts):
    with pytest.raises(error) as caught:
        gpu.bmm(values(3, 5), values(5, 2), **options, device=device)
    explains(caught, *parts)


@pytest.mark.parametrize("n", [1, 2])
def test_a_number_is_refused_as_a_vector(device, n):
    for options in ({"thresholds": 0}, {"thresholds": [0] * n, "flip": False}):
        with pytest.raises(ShapeError):
            gpu.bmm(values(3, 5), values(5, n), **options, device=device)


@pytest.mark.parametrize(
    ("options", "error", "parts"),
    [
        ({"thresholds": np.zeros(2, np.int64)}, DtypeError, ["thresholds on the device is int64", "int32"]),
        ({"thresholds": np.zeros(2, np.float32)}, DtypeError, ["float32"]),
        ({"thresholds": np.zeros(3, np.int32)}, ShapeError, ["(3,)"]),
        ({"thresholds": np.zeros((2, 1), np.int32)}, ShapeError, ["(2, 1)"]),
        (
            {"thresholds": np.zeros(2, np.int32), "flip": np.zeros(2, np.int32)},
            DtypeError,
            ["flip", "uint8"],
        ),
        ({"thresholds": np.zeros(2, np.int32), "flip": np.zeros(1, np.uint8)}, ShapeError, ["flip", "(1,)"]),
    ],
)
def test_bad_thresholds_and_flips_on_the_device_are_refused(device, options, error, parts):
    given = {name: device.upload(array) for name, array in options.items()}
    with pytest.raises(error) as caught:
        gpu.bmm(values(3, 5), values(5, 2), **given)
    explains(caught, *parts)


def test_thresholds_of_another_device_are_refused(device):
    thresholds = simwarp.Device(cc=(8, 0)).upload(np.zeros(2, np.int32))
    with pytest.raises(DtypeError, match="sm_80"):
        gpu.bmm(values(3, 5), values(5, 2), thresholds=thresholds, device=device)


# Packing


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("shape4-32-msb-row-int8")
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("first", ["msb", "lsb"])
@pytest.mark.parametrize("word", [32, 64, 128])
@pytest.mark.parametrize(
    "shape",
    [
        *[(1, 1), (33, 31), (65, 95), (3, 1013)],  # for the scalar kernels
        *[(1, 16), (33, 80), (65, 144), (40, 528)],  # for those that load vectors
    ],
)
def test_packing_equals_the_reference(eager, dtype, layout, first, shape, word):
    device, x = eager, values(*shape, dtype)
    expected = reference.pack(x, layout=layout, word=word, first=first)
    on_host = first == "msb"
    packed = gpu.pack(
        x if on_host else device.upload(x), layout=layout, word=word, first=first, device=device
    )
    words = packed.words if on_host else packed.words.download()
    assert (packed.shape, packed.layout, packed.word, packed.first) == (shape, layout, word, first)
    assert words.dtype == expected.words.dtype
    np.testing.assert_array_equal(words, expected.words)


PER_VECTOR = {"float64": 2, "float32": 4, "float16": 8, "int8": 16}


def launched(monkeypatch):
    """Names of the kernels launched from now on."""
    names = []
    call = simwarp.device.module.Kernel.__call__

    def noted(kernel, *args, **options):
        names.append(kernel.name)
        call(kernel, *args, **options)

    monkeypatch.setattr(simwarp.device.module.Kernel, "__call__", noted)
    return names


@pytest.mark.at_most(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["row", "column"])
def test_rows_that_start_at_16_bytes_are_loaded_as_vectors(eager, monkeypatch, dtype, layout):
    names = launched(monkeypatch)
    per_vector = PER_VECTOR[dtype]
    for columns in (3 * per_vector, 3 * per_vector + 1, 3 * per_vector + per_vector // 2):
        x = values(37, columns, dtype)
        np.testing.assert_array_equal(
            gpu.pack(x, layout=layout, device=eager).words, reference.pack(x, layout=layout).words
        )
    assert names == [f"pack_{layout}_vector", f"pack_{layout}", f"pack_{layout}"]


@pytest.mark.at_most(4)
@pytest.mark.slow_cases("row-float64")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["row", "column"])
def test_a_misaligned_matrix_takes_the_scalar_kernel(eager, monkeypatch, dtype, layout):
    x = values(33, 80, dtype)
    names = launched(monkeypatch)
    for offset in (16, 32, x.itemsize, 8, 24):
        packed = gpu.pack(OffsetArray(eager, x, offset), layout=layout, word=64)
        np.testing.assert_array_equal(
            packed.words.download(), reference.pack(x, layout=layout, word=64).words
        )
    assert names == [f"pack_{layout}_vector"] * 2 + [f"pack_{layout}"] * 3


@pytest.mark.parametrize(
    ("layout", "word", "columns", "expected"),
    [  # 70 rows of float32
        ("column", 32, 64, ("pack_column_vector", 3)),
        ("column", 64, 132, ("pack_column_vector", 3 * 2)),
        ("column", 128, 132, ("pack_column_vector", 3 * 2)),
        ("column", 256, 132, ("pack_column_vector", 3 * 2)),  # a word takes two vectors of all lanes
        ("row", 32, 132, ("pack_row_vector", 3 * 2)),
        ("row", 64, 132, ("pack_row_vector", 4 * 2)),
        ("column", 32, 65, ("pack_column", 3 * 3)),
        ("column", 64, 65, ("pack_column", 3 * 4)),
        ("row", 32, 65, ("pack_row", 3 * 3)),
        ("row", 64, 65, ("pack_row", 4 * 3)),
    ],
)
def test_packing_plans_choose_vector_or_scalar_kernels(device, layout, word, columns, expected):
    x = device.upload(np.ones((70, columns), np.float32))
    assert packing_plan(x, layout, word, 0) == expected


@pytest.mark.parametrize(("layout", "warps"), [("column", 16), ("row", 16)])
def test_vectors_are_loaded_only_for_enough_work(device, layout, warps):
    x = device.upload(np.ones((33, 1024), np.float32))
    for multiprocessors, name in ((2, f"pack_{layout}_vector"), (3, f"pack_{layout}")):
        plan = packing_plan(x, layout, 32, multiprocessors)
        assert plan == (name, warps if multiprocessors == 2 else 2 * 32)


@pytest.mark.at_most(4)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("columns", [47, 48])
def test_a_nan_anywhere_is_reported(eager, dtype, layout, word, columns):
    for at in [(0, 0), (0, columns - 1), (31, 17), (32, 31), (32, columns - 1)]:
        for nan in (np.nan, -np.nan):
            x = np.ones((33, columns), dtype)
            x[at] = nan
            gpu.pack(eager.upload(x), layout=layout, word=word)
            with pytest.raises(NotANumberError):
                eager.synchronize()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_special_values_have_their_ieee_signs(device, dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([[0.0, -0.0, np.inf, -np.inf, tiny, -tiny, 1, -1]], dtype)
    words = gpu.pack(x, layout="column", device=device).words
    assert words.tolist() == [[0b11101010 << 24]]


@pytest.mark.at_most(17)
@pytest.mark.parametrize(
    "arrange",
    [
        lambda x: x.astype(x.dtype.newbyteorder(">")),
        lambda x: x.astype(x.dtype.newbyteorder("<")),
        np.asfortranarray,
        lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
        lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
        lambda x: x.T.copy().T,
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: x.view(np.ma.MaskedArray),
    ],
    ids=[
        "big-endian",
        "little-endian",
        "fortran",
        "strided",
        "reversed",
        "transposed",
        "broadcast",
        "subclass",
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_may_have_any_memory_order(device, arrange, dtype):
    x = arrange(values(35, 65, dtype))
    plain = np.array(x, dtype, order="C", subok=False)
    np.testing.assert_array_equal(gpu.pack(x, device=device).words, reference.pack(plain).words)
    c = gpu.bmm(x, x, transpose_b=True, scheme="bmm32", device=device)
    assert_product(c, plain, plain, transpose_b=True)


def test_lists_are_read_as_float64(device):
    assert gpu.bmm([[1.0, -2.0, -0.0]], [[1.0], [-1.0], [5e-324]], device=device).tolist() == [[3]]
    assert gpu.pack([[-5e-324, 5e-324]], layout="column", device=device).words.tolist() == [[1 << 30]]


# NaN


@pytest.mark.at_most(3)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize(("culprit", "at"), [("a", (0, 0)), ("a", (32, 69)), ("b", (69, 34)), ("b", (3, 0))])
def test_nan_in_a_host_array_is_reported_with_its_index(device, dtype, culprit, at):
    matrices = {"a": values(33, 70, dtype).copy(), "b": values(70, 35, dtype, 1).copy()}
    matrices[culprit][at] = -np.nan
    matrices[culprit][-1, -1] = np.nan  # the first of several
    with pytest.raises(NotANumberError) as caught:
        gpu.bmm(matrices["a"], matrices["b"], device=device)
    explains(caught, f"{culprit}{list(at)} is NaN")
    device.synchronize()  # reported once


def test_nan_in_both_host_arrays_is_reported_for_a(device):
    bad = np.full((2, 2), np.nan)
    with pytest.raises(NotANumberError, match=r"a\[0, 0\]"):
        gpu.bmm(bad, bad, device=device)


def test_nan_in_a_host_array_to_pack_is_reported(device):
    bad = values(33, 70).copy()
    bad[5, 6] = np.nan
    with pytest.raises(NotANumberError, match=r"x\[5, 6\]") as caught:
        gpu.pack(bad, device=device)
    explains(caught)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_nan_in_a_device_array_is_reported_once_at_synchronisation(device, dtype):
    bad = values(40, 40, dtype).copy()
    bad[-1, -1] = np.nan
    x = device.upload(bad)
    gpu.bmm(x, x)
    gpu.pack(x)
    with pytest.raises(NotANumberError) as caught:
        device.synchronize()
    explains(caught, "NaN")
    device.synchronize()
    x = device.upload(values(40, 40, dtype))
    np.testing.assert_array_equal(
        gpu.bmm(x, x).download(), reference.bmm(values(40, 40, dtype), values(40, 40, dtype))
    )
    gpu.pack(device.upload(bad))
    with pytest.raises(NotANumberError):  # and again, for another
        device.synchronize()


def test_nan_in_a_device_array_is_reported_at_download_of_the_product(device):
    c = gpu.bmm(device.upload(np.full((2, 2), np.nan)), np.ones((2, 2)))
    with pytest.raises(NotANumberError):
        c.download()


def test_nan_in_a_host_array_beside_a_device_array_is_reported_at_once(device):
    bad = np.ones((40, 3))
    bad[7, 2] = np.nan
    with pytest.raises(NotANumberError, match=r"b\[7, 2\]"):
        gpu.bmm(device.upload(np.ones((5, 40))), bad)
    device.synchronize()


@pytest.mark.parametrize(
    "ask", [lambda d: gpu.bmm([[1.0]], [[1.0]], device=d), lambda d: gpu.pack([[1.0]], device=d)]
)
def test_nan_of_an_earlier_device_array_is_not_attributed_to_the_operands(device, ask):
    gpu.pack(device.upload(np.full((2, 2), np.nan)))
    with pytest.raises(NotANumberError, match="packed on the device contains a NaN"):
        ask(device)
    ask(device)


# Shapes


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_unsuitable_shapes_are_refused(device, transpose_a, transpose_b):
    a, b = operands(3, 4, 5, transpose_a, transpose_b)
    b = b[:, :-1] if transpose_b else b[:-1]
    with pytest.raises(ShapeError) as caught:
        gpu.bmm(a, b, transpose_a=transpose_a, transpose_b=transpose_b, device=device)
    explains(caught, a.shape, b.shape, "K is 5 in one and 4 in the other")
    assert str(caught.value).count("transposed") == transpose_a + transpose_b


def test_mismatched_k_within_one_word_is_refused(device):
    a, b = reference.pack(values(3, 5), layout="column"), reference.pack(values(6, 3))
    with pytest.raises(ShapeError) as caught:
        gpu.bmm(a, b, device=device)
    explains(caught, (3, 5), (6, 3))


NO_MATRICES = [(0, 3), (3, 0), (0, 0), (), (3,), (2, 0, 2), (1, 1, 1, 1)]


@pytest.mark.parametrize("shape", NO_MATRICES)
def test_operands_that_are_not_matrices_are_refused(device, shape):
    bad, good = np.ones(shape), np.ones((3, 3))
    for ask, name in [
        (lambda: gpu.bmm(bad, good, device=device), "a"),
        (lambda: gpu.bmm(good, bad, device=device), "b"),
        (lambda: gpu.pack(bad, device=device), "x"),
        (lambda: gpu.bmm(PackedBits(np.zeros((1, 3), np.uint32), shape, "column"), good, device=device), "a"),
    ]:
        with pytest.raises(ShapeError) as caught:
            ask()
        explains(caught, f"{name} has shape {shape}")


@pytest.mark.slow
def test_ragged_rows_are_refused(device):
    with pytest.raises(ShapeError) as caught:
        gpu.bmm([[1.0], [1.0, 2.0]], [[1.0]], device=device)
    explains(caught, "a is not an array", "a matrix (rows, columns) is needed")


@pytest.mark.parametrize("shape", [(2**31, 1), (1, 2**31)])
def test_a_dimension_beyond_int32_is_refused_before_the_copy(device, shape):
    with pytest.raises(ShapeError) as caught:
        gpu.pack(np.broadcast_to(np.int8(1), shape), device=device)
    explains(caught, 2**31 - 1)


# Types


@pytest.mark.parametrize(
    "dtype",
    [
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint32",
        "bool",
        "complex64",
        "complex128",
        "object",
        "U1",
        "longdouble",
    ],
)
def test_unsupported_element_types_are_refused(device, dtype):
    bad, good = np.ones((3, 3)).astype(dtype), np.ones((3, 3))
    for ask, name in [
        (lambda: gpu.bmm(bad, good, device=device), "a"),
        (lambda: gpu.bmm(good, bad, device=device), "b"),
        (lambda: gpu.pack(bad, device=device), "x"),
    ]:
        with pytest.raises(DtypeError) as caught:
            ask()
        explains(caught, f"{name} has elements of {bad.dtype}", "astype")


def test_an_unsupported_element_type_on_the_device_is_refused(device):
    with pytest.raises(DtypeError) as caught:
        gpu.pack(device.upload(np.ones((3, 3), np.int32)))
    explains(caught, "int32")


@pytest.mark.parametrize("x", [None, "matrix", {}, [[1, 2]], 5])
def test_objects_are_refused_as_matrices(device, x):
    with pytest.raises(DtypeError) as caught:
        gpu.pack(x, device=device)
    explains(caught, "x has elements of")


def test_packed_bits_are_refused_as_numbers_with_the_name_of_the_argument(device):
    packed = reference.pack([[1.0]])
    for call in (lambda: gpu.pack(packed, device=device), lambda: reference.pack(packed)):
        with pytest.raises(DtypeError) as caught:
            call()
        explains(caught, "x: PackedBits of shape (1, 1) is used as an array of numbers", "reference.unpack")


# Names


@pytest.mark.parametrize("scheme", ["bmm128", "", None, "BMM32", ["bmm32"]])
def test_an_unknown_scheme_is_refused(device, scheme):
    with pytest.raises(SchemeError) as caught:
        gpu.bmm([[1.0]], [[1.0]], scheme=scheme, device=device)
    explains(caught, repr(scheme), "choose one of bmm32, bmm64, bmms32, bmms64")


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ({"layout": "diagonal"}, "'row' or 'column'"),
        ({"layout": None}, "'row' or 'column'"),
        ({"first": "middle"}, "'msb' or 'lsb'"),
        ({"first": 0}, "'msb' or 'lsb'"),
        ({"word": 16}, "32 or 64 or 128"),
        ({"word": None}, "32 or 64"),
    ],
)
def test_an_unknown_format_is_refused(device, option, known):
    with pytest.raises(SchemeError) as caught:
        gpu.pack([[1.0]], **option, device=device)
    ((name, value),) = option.items()
    explains(caught, f"{name}={value!r}", known)


# PackedBits


def packed(**changes):
    return replace(reference.pack(values(33, 70), layout="column"), **changes)


@pytest.mark.parametrize(
    ("operand", "error", "parts"),
    [
        (
            reference.pack(values(33, 70), layout="column", word=64),
            FormatError,
            ["words of 64 bits", "bmm32 takes 32", "word=32"],
        ),
        (packed(word=64), FormatError, ["words of uint32 (3, 33)", "column-major-64 has uint64 (2, 33)"]),
        (
            packed(word=128),
            FormatError,
            ["words of uint32 (3, 33)", "column-major-128 has uint64 (1, 33, 2)"],
        ),
        (packed(words=packed().words.view(np.int32)), FormatError, ["int32"]),
        (packed(words=packed().words.astype(">u4")), FormatError, [">u4"]),
        (packed(words=packed().words.T), FormatError, ["(33, 3)", "(3, 33)"]),
        (packed(words=packed().words[:2]), FormatError, ["(2, 33)", "(3, 33)", "33 x 70"]),
        (packed(words=packed().words.ravel()), FormatError, ["(99,)"]),
        (packed(words=packed().words.tolist()), FormatError, ["list", "NumPy"]),
        (packed(words=None), FormatError, ["NoneType"]),
        (packed(layout="row"), FormatError, ["row-major"]),
        (reference.pack(values(33, 70)), FormatError, ["layout='row'", "layout='column'", "transpose"]),
        (
            reference.pack(values(33, 70), layout="column", first="lsb"),
            FormatError,
            ["'lsb'", "'msb'", "repack one of them"],
        ),
        (packed(first="middle"), SchemeError, ["first='middle'"]),
        (packed(layout="diagonal"), SchemeError, ["layout='diagonal'"]),
    ],
)
def test_packed_operands_of_other_formats_are_refused(device, operand, error, parts):
    with pytest.raises(error) as caught:
        gpu.bmm(operand, values(70, 35), scheme="bmm32", device=device)
    explains(caught, *parts)


@pytest.mark.at_most(1)
@pytest.mark.parametrize(("scheme", "first"), [("auto", "lsb"), ("bmm32", "msb"), ("bmms64", "msb")])
def test_host_words_of_128_bits_are_cut_into_those_of_the_scheme(device, scheme, first):
    a, b = values(33, 300), values(300, 35)
    x, y = (
        reference.pack(m, layout=layout, word=128, first=first) for m, layout in ((a, "column"), (b, "row"))
    )
    np.testing.assert_array_equal(gpu.bmm(x, y, scheme=scheme, device=device), reference.bmm(a, b))
    stack = reference.pack(np.stack([a, -a]), layout="column", word=128, first=first)
    products = gpu.bmm(stack, y, scheme=scheme, device=device)
    np.testing.assert_array_equal(products, [reference.bmm(a, b), reference.bmm(-a, b)])
    dirty = x.words.copy()
    part, bit = (1, 63) if first == "lsb" else (0, 0)  # of the last element
    dirty[-1, 7, part] |= np.uint64(1 << bit)
    with pytest.raises(FormatError) as caught:
        gpu.bmm(replace(x, words=dirty), y, scheme=scheme, device=device)
    explains(caught, "a has bits past the edge of its (33, 300) matrix")


def test_device_words_of_128_bits_are_no_operands_of_kernels(device):
    x = gpu.pack(device.upload(values(33, 300)), layout="column", word=128)
    with pytest.raises(FormatError) as caught:
        gpu.bmm(x, values(300, 35), scheme="bmm32")
    explains(caught, "a is packed in words of 128 bits, bmm32 takes 32", "word=32", "download its words")


def test_words_of_128_bits_last_first_are_lines_word_for_word(device):
    """The rows of FSB tiles and the pieces of lines are words of 128 bits."""
    x = values(9, 300)
    words = reference.pack(x, layout="column", word=128, first="lsb").words
    lines = gpu.prepare(x, "a", scheme="btc2", device=device).words.download()
    np.testing.assert_array_equal(words.swapaxes(0, 1).copy().view(np.uint32), lines)
    tiles = gpu.bmm.pack_fsb(x, device=device).words.download()
    np.testing.assert_array_equal(tiles[0, :, 3], lines[3])


def test_a_right_operand_not_packed_along_k_is_refused(device):
    with pytest.raises(FormatError) as caught:
        gpu.bmm(values(33, 70), reference.pack(values(70, 35), layout="column"), device=device)
    explains(caught, "b is packed", "layout='row'")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_words_of_the_other_size_are_refused(device, scheme):
    word = 96 - SCHEMES[scheme].word
    a, b = values(33, 70), values(70, 35)
    for x, y, name in [
        (reference.pack(a, layout="column", word=word), b, "a"),
        (a, reference.pack(b, word=word), "b"),
        (gpu.pack(device.upload(a), layout="column", word=word), b, "a"),
    ]:
        with pytest.raises(FormatError) as caught:
            gpu.bmm(x, y, scheme=scheme, device=device)
        explains(caught, f"{name} is packed in words of {word} bits", scheme, f"word={96 - word}")


@pytest.mark.pairwise
@pytest.mark.parametrize("scheme", ["bmm32", "bmm64"])
@pytest.mark.parametrize("first", ["msb", "lsb"])
@pytest.mark.parametrize("k", [1, 31, 33, 63, 65])
def test_nonzero_padding_bits_are_refused(device, scheme, first, k):
    word = SCHEMES[scheme].word
    a = reference.pack(values(3, k), layout="column", word=word, first=first)
    b = reference.pack(values(k, 4), word=word, first=first)
    gpu.bmm(a, b, scheme=scheme, device=device)
    last = (k - 1) % word
    for i in {last + 1, (last + word) // 2, word - 1} - {last, word}:
        bit = np.array(1 << (word - 1 - i if first == "msb" else i), f"u{word // 8}")
        for name in "ab":
            x = a if name == "a" else b
            words = x.words.copy()
            words[-1, 2] |= bit
            dirty = replace(x, words=words)
            with pytest.raises(FormatError) as caught:
                gpu.bmm(
                    dirty if name == "a" else a, dirty if name == "b" else b, scheme=scheme, device=device
                )
            explains(caught, f"{name} has bits past the edge of its {x.shape} matrix", "clear them")
            if (-(-k // word)) > 1:  # the same bit of an inner word is an element
                inner = x.words.copy()
                inner[0, 2] ^= bit
                gpu.bmm(
                    replace(x, words=inner) if name == "a" else a,
                    replace(x, words=inner) if name == "b" else b,
                    scheme=scheme,
                    device=device,
                )


def test_an_unknown_bit_order_is_refused(device):
    a, b = packed(first="middle"), replace(reference.pack(values(70, 35)), first="middle")
    with pytest.raises(SchemeError):
        gpu.bmm(a, b, device=device)


# Devices


@pytest.fixture
def no_gpu(monkeypatch):
    from gpu import device as module

    class Nothing:
        def __init__(self):
            raise NoGpuError("there is no CUDA device 0; 0 found\nchoose another")

    monkeypatch.setattr("gpu.cuda.device.CudaDevice", Nothing)
    return module


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("ask", [lambda: gpu.bmm([[1.0]], [[1.0]]), lambda: gpu.pack([[1.0]])])
def test_a_missing_gpu_is_reported(ask):
    with pytest.raises(NoGpuError) as caught:
        ask()
    explains(caught, "device=simwarp.Device()")


@pytest.mark.usefixtures("no_gpu")
def test_bad_operands_are_reported_before_a_missing_gpu():
    with pytest.raises(ShapeError):
        gpu.bmm([[1.0]], [[1.0], [2.0]])


def test_operands_of_another_device_are_refused(device):
    x = simwarp.Device(cc=(8, 0)).upload(np.ones((3, 3)))
    for ask in (
        lambda: gpu.bmm(x, np.ones((3, 3)), device=device),
        lambda: gpu.bmm(np.ones((3, 3)), gpu.pack(x), device=device),
        lambda: gpu.bmm(device.upload(np.ones((3, 3))), x),
        lambda: gpu.pack(x, device=device),
    ):
        with pytest.raises(DtypeError) as caught:
            ask()
        explains(caught, "sm_80", "sm_90")


class Foreign:
    """A GPU array of another library."""

    __cuda_array_interface__: dict = {}  # noqa: RUF012

    def __init__(self, shape):
        self.shape = shape


def test_the_simulator_refuses_device_arrays_of_other_libraries(device):
    with pytest.raises(DtypeError) as caught:
        gpu.bmm(Foreign((2, 2)), np.ones((2, 2)), device=device)
    explains(caught, "Foreign", "copy it to the host")


@pytest.mark.slow
def test_unreferenced_devices_are_freed():
    device = simwarp.Device()
    gone = weakref.ref(device)
    gpu.bmm(device.upload(np.ones((3, 3))), np.ones((3, 3)))  # with a check still pending
    gpu.bmm(np.ones((3, 3)), np.ones((3, 3)), device=device)
    del device
    gc.collect()
    assert gone() is None


def test_a_contiguous_matrix_is_not_copied():
    x = np.ones((3, 3))
    assert np.shares_memory(matrix(x, "x"), x)


def every_bfloat16():
    """All numbers, without NaN."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    return np.resize(bits[bits & 0x7FFF <= 0x7F80], (128, 512)).view(ml_dtypes.bfloat16)


def test_every_bfloat16_has_the_sign_of_its_float32(device):
    """By each kernel that packs."""
    x = every_bfloat16()
    real, there = x.astype(np.float32), device.upload(x)
    for layout in ("column", "row"):
        words = gpu.pack(there, layout=layout).words
        np.testing.assert_array_equal(words.download(), reference.pack(real, layout=layout).words)
    images, filters = x.reshape(1, 64, 2, 512), x.reshape(64, 2, 512, 1)
    for each, layout in ((images, "NHWC"), (filters, "HWOI")):
        words = gpu.pack_tensor(device.upload(each), layout=layout).words.download()
        expected = reference.pack_tensor(each.astype(np.float32), layout=layout)
        np.testing.assert_array_equal(words, expected.words)
    ones = np.ones((512, 1), np.int8)
    for columns in (512, 510, 509):  # in vectors, and one by one
        part = np.ascontiguousarray(x[:, :columns])
        product = gpu.bmm(device.upload(part), ones[:columns], scheme="wgmma").download()
        np.testing.assert_array_equal(product, reference.bmm(part.astype(np.float32), ones[:columns]))
        product = gpu.bmm(ones[:128].T, device.upload(part), scheme="wgmma").download()
        np.testing.assert_array_equal(product, reference.bmm(ones[:128].T, part.astype(np.float32)))
    np.testing.assert_array_equal(gpu.bmm(x, ones, device=device), reference.bmm(x, ones))


@pytest.mark.parametrize("bits", [0x7F81, 0x7FFF, 0xFF81, 0xFFFF])
def test_a_nan_of_bfloat16_is_refused(device, bits):
    for at in ((0, 0), (3, 63), (2, 31)):
        x = np.ones((4, 64), np.uint16)
        x[at] = bits
        x = x.view(ml_dtypes.bfloat16)
        for call in (
            lambda x: gpu.pack(x),
            lambda x: gpu.bmm(x, np.ones((64, 1)), scheme="wgmma"),
            lambda x: gpu.pack_tensor(x.view((1, 2, 2, 64)), layout="NHWC"),
        ):
            call(device.upload(x))
            with pytest.raises(NotANumberError):
                device.synchronize()
        with pytest.raises(NotANumberError, match=r"is NaN"):
            gpu.pack(x, device=device)


def test_a_bfloat16_tensor_of_torch_on_the_host_is_refused(device):
    torch = pytest.importorskip("torch")
    with pytest.raises(DtypeError, match=r"a is not an array of NumPy: .*\n.*bfloat16.*\nconvert it first"):
        gpu.bmm(torch.ones(3, 3).bfloat16(), np.ones((3, 3)), device=device)
