"""`gpu.bmm` and `gpu.pack` on the simulator: every kind of operand, and every bad one."""

import functools
import gc
import itertools
import weakref
from dataclasses import replace

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bmm.operands import matrix
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


@functools.cache
def values(rows, columns, dtype="float32", k=0):
    """Any bit patterns but NaN: an eighth are ±0, ±inf, subnormals and the like."""
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
    """A message says what, where, and what to do: on a second line, or behind a semicolon."""
    message = str(caught.value)
    assert "\n" in message or "; " in message
    assert isinstance(caught.value, SimwarpError)
    for part in parts:
        assert str(part) in message


# Products


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_sizes_and_transposes(device, sizes, transpose_a, transpose_b):
    a, b = operands(*sizes, transpose_a, transpose_b)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    assert_product(gpu.bmm(a, b, **options, device=device), a, b, **options)


@pytest.mark.parametrize("dtypes", list(itertools.product(DTYPES, repeat=2)))
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_element_types(device, dtypes, transpose_a, transpose_b):
    a, b = operands(34, 37, 67, transpose_a, transpose_b, dtypes)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    assert_product(gpu.bmm(a, b, **options, device=device), a, b, **options)


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
@pytest.mark.parametrize(("packed", "first"), [("a", "msb"), ("b", "msb"), ("ab", "msb"), ("ab", "lsb")])
def test_packed_operands(device, transpose_a, transpose_b, packed, first):
    a, b = operands(33, 35, 70, transpose_a, transpose_b)
    p = reference.pack(a, layout="row" if transpose_a else "column", first=first)
    q = reference.pack(b, layout="column" if transpose_b else "row", first=first)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    c = gpu.bmm(p if "a" in packed else a, q if "b" in packed else b, **options, device=device)
    assert_product(c, a, b, **options)


def test_packed_words_in_fortran_order(device):
    a, b = values(40, 90), values(90, 40, k=1)
    packed = reference.pack(a, layout="column")
    assert_product(gpu.bmm(replace(packed, words=np.asfortranarray(packed.words)), b, device=device), a, b)


KINDS = list(itertools.product(["real", "packed", "host"], repeat=2))[:-1]


@pytest.mark.parametrize("kinds", KINDS)
def test_device_arrays_in_device_array_out(device, kinds):
    a, b = values(33, 70), values(70, 35, "int8", 1)

    def put(x, kind, layout):
        if kind == "host":
            return x
        x = device.upload(x)
        return gpu.pack(x, layout=layout) if kind == "packed" else x

    c = gpu.bmm(put(a, kinds[0], "column"), put(b, kinds[1], "row"))  # the device is the operands' own
    assert isinstance(c, DeviceArray)
    assert (c.device, c.shape, c.dtype) == (device, (33, 35), np.int32)
    np.testing.assert_array_equal(c.download(), reference.bmm(a, b))


def test_a_device_array_is_multiplied_again_as_it_is(device):
    a = device.upload(values(33, 33))
    first = gpu.bmm(a, a).download()
    np.testing.assert_array_equal(gpu.bmm(a, a, device=device).download(), first)
    np.testing.assert_array_equal(a.download(), values(33, 33))


def test_views_of_device_arrays(device):
    x = values(30, 40)
    view = device.upload(x).view((40, 30))
    np.testing.assert_array_equal(
        gpu.bmm(view, view, transpose_a=True).download(),
        reference.bmm(x.reshape(40, 30), x.reshape(40, 30), transpose_a=True),
    )


# Packing


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("first", ["msb", "lsb"])
@pytest.mark.parametrize("shape", [(1, 1), (31, 33), (33, 31), (64, 32), (1009, 2), (3, 1013)])
def test_packing(device, dtype, layout, first, shape):
    x = values(*shape, dtype)
    expected = reference.pack(x, layout=layout, first=first)
    for given in (x, device.upload(x)):
        packed = gpu.pack(given, layout=layout, first=first, device=device)
        words = packed.words if given is x else packed.words.download()
        assert (packed.shape, packed.layout, packed.word, packed.first) == (shape, layout, 32, first)
        assert words.dtype == np.uint32
        np.testing.assert_array_equal(words, expected.words)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_signs_of_special_values(device, dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([[0.0, -0.0, np.inf, -np.inf, tiny, -tiny, 1, -1]], dtype)
    words = gpu.pack(x, layout="column", device=device).words
    assert words.tolist() == [[0b11101010 << 24]]


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
def test_however_it_lies_in_memory(device, arrange, dtype):
    x = arrange(values(35, 65, dtype))
    plain = np.array(x, dtype, order="C", subok=False)
    np.testing.assert_array_equal(gpu.pack(x, device=device).words, reference.pack(plain).words)
    assert_product(gpu.bmm(x, x, transpose_b=True, device=device), plain, plain, transpose_b=True)


def test_lists_are_float64(device):
    assert gpu.bmm([[1.0, -2.0, -0.0]], [[1.0], [-1.0], [5e-324]], device=device).tolist() == [[3]]
    assert gpu.pack([[-5e-324, 5e-324]], layout="column", device=device).words.tolist() == [[1 << 30]]


# NaN


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize(("culprit", "at"), [("a", (0, 0)), ("a", (32, 69)), ("b", (69, 34)), ("b", (3, 0))])
def test_nan_in_a_host_array_is_named(device, dtype, culprit, at):
    matrices = {"a": values(33, 70, dtype).copy(), "b": values(70, 35, dtype, 1).copy()}
    matrices[culprit][at] = -np.nan
    matrices[culprit][-1, -1] = np.nan  # the first of several
    with pytest.raises(NotANumberError) as caught:
        gpu.bmm(matrices["a"], matrices["b"], device=device)
    explains(caught, f"{culprit}{list(at)} is NaN")
    device.synchronize()  # told once


def test_nan_in_both_host_arrays_names_a(device):
    bad = np.full((2, 2), np.nan)
    with pytest.raises(NotANumberError, match=r"a\[0, 0\]"):
        gpu.bmm(bad, bad, device=device)


def test_nan_in_a_host_array_to_pack(device):
    bad = values(33, 70).copy()
    bad[5, 6] = np.nan
    with pytest.raises(NotANumberError, match=r"x\[5, 6\]") as caught:
        gpu.pack(bad, device=device)
    explains(caught)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_nan_in_a_device_array_is_told_at_the_next_synchronisation_once(device, dtype):
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


def test_nan_in_a_device_array_is_told_at_a_download_of_what_came_of_it(device):
    c = gpu.bmm(device.upload(np.full((2, 2), np.nan)), np.ones((2, 2)))
    with pytest.raises(NotANumberError):
        c.download()


def test_nan_in_a_host_array_beside_a_device_array_is_named_at_once(device):
    bad = np.ones((40, 3))
    bad[7, 2] = np.nan
    with pytest.raises(NotANumberError, match=r"b\[7, 2\]"):
        gpu.bmm(device.upload(np.ones((5, 40))), bad)
    device.synchronize()


@pytest.mark.parametrize(
    "ask", [lambda d: gpu.bmm([[1.0]], [[1.0]], device=d), lambda d: gpu.pack([[1.0]], device=d)]
)
def test_nan_of_an_earlier_device_array_does_not_blame_the_operands(device, ask):
    gpu.pack(device.upload(np.full((2, 2), np.nan)))
    with pytest.raises(NotANumberError, match="a matrix that was packed"):
        ask(device)
    ask(device)


# Shapes


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_shapes_that_do_not_fit(device, transpose_a, transpose_b):
    a, b = operands(3, 4, 5, transpose_a, transpose_b)
    b = b[:, :-1] if transpose_b else b[:-1]
    with pytest.raises(ShapeError) as caught:
        gpu.bmm(a, b, transpose_a=transpose_a, transpose_b=transpose_b, device=device)
    explains(caught, a.shape, b.shape, "K is 5 in one and 4 in the other")
    assert str(caught.value).count("transposed") == transpose_a + transpose_b


def test_packed_shapes_that_do_not_fit_within_one_word(device):
    a, b = reference.pack(values(3, 5), layout="column"), reference.pack(values(6, 3))
    with pytest.raises(ShapeError) as caught:
        gpu.bmm(a, b, device=device)
    explains(caught, (3, 5), (6, 3))


NO_MATRICES = [(0, 3), (3, 0), (0, 0), (), (3,), (2, 2, 2), (1, 1, 1, 1)]


@pytest.mark.parametrize("shape", NO_MATRICES)
def test_shapes_that_are_no_matrix(device, shape):
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


def test_rows_of_different_lengths(device):
    with pytest.raises(ShapeError) as caught:
        gpu.bmm([[1.0], [1.0, 2.0]], [[1.0]], device=device)
    explains(caught, "a is not a matrix")


@pytest.mark.parametrize("shape", [(2**31, 1), (1, 2**31)])
def test_a_dimension_past_what_kernels_count_is_refused_before_it_is_copied(device, shape):
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
def test_element_types_that_are_not_packed(device, dtype):
    bad, good = np.ones((3, 3)).astype(dtype), np.ones((3, 3))
    for ask, name in [
        (lambda: gpu.bmm(bad, good, device=device), "a"),
        (lambda: gpu.bmm(good, bad, device=device), "b"),
        (lambda: gpu.pack(bad, device=device), "x"),
    ]:
        with pytest.raises(DtypeError) as caught:
            ask()
        explains(caught, f"{name} has elements of {bad.dtype}", "astype")


def test_an_element_type_that_is_not_packed_on_the_device(device):
    with pytest.raises(DtypeError) as caught:
        gpu.pack(device.upload(np.ones((3, 3), np.int32)))
    explains(caught, "int32")


@pytest.mark.parametrize("x", [None, "matrix", {}, [[1, 2]], 5, reference.pack([[1.0]])])
def test_no_matrix_at_all(device, x):
    with pytest.raises(DtypeError) as caught:
        gpu.pack(x, device=device)
    explains(caught, "x has elements of")


# Names


@pytest.mark.parametrize("scheme", ["bmm64", "", None, "BMM32", ["bmm32"]])
def test_an_unknown_scheme(device, scheme):
    with pytest.raises(SchemeError) as caught:
        gpu.bmm([[1.0]], [[1.0]], scheme=scheme, device=device)
    explains(caught, repr(scheme), "choose one of bmm32")


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ({"layout": "diagonal"}, "'row' or 'column'"),
        ({"layout": None}, "'row' or 'column'"),
        ({"first": "middle"}, "'msb' or 'lsb'"),
        ({"first": 0}, "'msb' or 'lsb'"),
        ({"word": 64}, "word=32"),
        ({"word": 16}, "word=32"),
    ],
)
def test_an_unknown_format(device, option, known):
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
            ["64 bits (uint64)", "uint32"],
        ),
        (packed(word=64), FormatError, ["64 bits (uint32)"]),
        (packed(words=packed().words.view(np.int32)), FormatError, ["int32"]),
        (packed(words=packed().words.astype(">u4")), FormatError, [">u4"]),
        (packed(words=packed().words.T), FormatError, ["(33, 3)", "(3, 33)"]),
        (packed(words=packed().words[:2]), FormatError, ["(2, 33)", "(3, 33)", "33 x 70"]),
        (packed(words=packed().words.ravel()), FormatError, ["(99,)"]),
        (packed(words=packed().words.tolist()), FormatError, ["list", "NumPy"]),
        (packed(words=None), FormatError, ["NoneType"]),
        (packed(layout="row"), FormatError, ["row-major"]),
        (reference.pack(values(33, 70)), FormatError, ["layout='row'", "layout='column'", "transpose"]),
        (packed(first="lsb"), FormatError, ["'lsb'", "'msb'", "alike"]),
        (packed(first="middle"), SchemeError, ["first='middle'"]),
        (packed(layout="diagonal"), SchemeError, ["layout='diagonal'"]),
    ],
)
def test_packed_operands_of_other_formats(device, operand, error, parts):
    with pytest.raises(error) as caught:
        gpu.bmm(operand, values(70, 35), device=device)
    explains(caught, *parts)


def test_a_packed_right_operand_whose_words_do_not_run_along_k(device):
    with pytest.raises(FormatError) as caught:
        gpu.bmm(values(33, 70), reference.pack(values(70, 35), layout="column"), device=device)
    explains(caught, "b is packed", "layout='row'")


def test_nothing_can_be_written_in_the_first_unknown_bit_order_alike(device):
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

    monkeypatch.setattr("gpu.cuda.CudaDevice", Nothing)
    return module


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("ask", [lambda: gpu.bmm([[1.0]], [[1.0]]), lambda: gpu.pack([[1.0]])])
def test_no_gpu(ask):
    with pytest.raises(NoGpuError) as caught:
        ask()
    explains(caught, "device=simwarp.Device()")


@pytest.mark.usefixtures("no_gpu")
def test_bad_operands_are_told_before_a_missing_gpu():
    with pytest.raises(ShapeError):
        gpu.bmm([[1.0]], [[1.0], [2.0]])


def test_operands_of_another_device(device):
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
    """Another library's array on a GPU."""

    __cuda_array_interface__: dict = {}  # noqa: RUF012

    def __init__(self, shape):
        self.shape = shape


def test_other_libraries_device_arrays_do_not_fit_the_simulator(device):
    with pytest.raises(DtypeError) as caught:
        gpu.bmm(Foreign((2, 2)), np.ones((2, 2)), device=device)
    explains(caught, "Foreign", "copy it to the host")
    with pytest.raises(ShapeError, match=r"b has shape \(2, 2, 2\)"):
        gpu.bmm(np.ones((2, 2)), Foreign((2, 2, 2)), device=device)


def test_devices_and_their_memory_go_when_nobody_holds_them():
    device = simwarp.Device()
    gone = weakref.ref(device)
    gpu.bmm(device.upload(np.ones((3, 3))), np.ones((3, 3)))  # with a check still pending
    gpu.bmm(np.ones((3, 3)), np.ones((3, 3)), device=device)
    del device
    gc.collect()
    assert gone() is None


def test_a_matrix_that_is_ready_is_not_copied():
    x = np.ones((3, 3))
    assert np.shares_memory(matrix(x, "x"), x)
