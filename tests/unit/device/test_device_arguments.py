"""Unsuitable devices, arrays, PTX and launches raise typed errors."""

import re

import numpy as np
import pytest

import simwarp
from gpu.compile import Ptx
from reference.errors import DtypeError, SchemeError, ShapeError
from simwarp.faults import LaunchError, PtxSyntaxError, UnsupportedInstruction
from support.offenders import every_case

HEADER = ".version 9.0\n.target sm_90\n.address_size 64\n"
LOOP = ".visible .entry forever() { AGAIN: bra AGAIN; }\n.visible .entry nothing() { ret; }\n"

# out[i] = in[i] + more, one thread per element
ADD = """
.visible .entry add(.param .u64 out, .param .u64 in, .param .u32 more) {
    .reg .b32 %r<5>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    ld.param.u32 %r1, [more];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r3, [%rd4];
    add.u32 %r4, %r3, %r1;
    add.s64 %rd5, %rd1, %rd3;
    st.global.u32 [%rd5], %r4;
    ret; }
"""


@pytest.fixture
def device():
    return simwarp.Device()


@pytest.fixture
def kernel(device):
    return device.load(HEADER + ADD + LOOP).kernel


@every_case(
    "bad",
    [
        {"cc": "9.0"},
        {"cc": 8},
        {"cc": (99, 9)},
        {"cc": (9,)},
        {"cc": (9.0, 0)},
        {"cc": None},
        {"cc": (8, 10)},
        {"workers": 0},
        {"workers": -3},
        {"workers": 1.5},
        {"chunk_lanes": 0},
        {"chunk_lanes": -5},
        {"stack": -1},
        {"heap": -1},
        {"heap": None},
        {"multiprocessors": 0},
        {"seed": 1.5},
        {"seed": "1"},
        {"instruction_budget": 0},
        {"instruction_budget": 1e8},
        {"schedule": "fifo"},
    ],
)
def test_wrong_device_arguments_are_refused(bad):
    with pytest.raises(SchemeError, match=r"^Device: .*\n") as error:
        simwarp.Device(**bad)
    assert repr(next(iter(bad.values()))) in str(error.value)


def test_numpy_integers_are_accepted():
    device = simwarp.Device([np.int64(8), 0], workers=np.uint8(1), seed=np.int64(3), instruction_budget=None)
    assert (device.compute_capability, device.workers, device.seed) == ((8, 0), 1, 3)
    assert device.name == "simwarp simulator (sm_80)"


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "part"),
    [
        (None, "f4", ShapeError, "None is not a shape"),
        ("3", "f4", ShapeError, "'3' is not a shape"),
        (2.5, "f4", ShapeError, "2.5 is not a shape"),
        ((2, -1), "f4", ShapeError, r"\(2, -1\) is not a shape"),
        ((-1, -1), "f4", ShapeError, "is not a shape"),
        ((1 << 50,), "f4", ShapeError, "4503599627370496 bytes, more than this machine has"),
        ((1 << 40, 1 << 40), "f4", ShapeError, "more than this machine has"),
        (3, "float33", DtypeError, "'float33' is not a dtype"),
    ],
)
def test_impossible_arrays_are_refused(device, shape, dtype, error, part):
    with pytest.raises(error, match=part):
        device.allocate(shape, dtype)


def test_a_number_is_accepted_as_a_shape(device):
    assert device.allocate(5, "u4").shape == (5,)


@pytest.mark.parametrize(
    "host",
    [[1, 2, 3], 5, None, np.ma.masked_array([1, 2], mask=[False, True])],
    ids=lambda host: type(host).__name__,
)
def test_unsuitable_uploads_are_refused(device, host):
    part = "has a mask" if isinstance(host, np.ma.MaskedArray) else f"is a {type(host).__name__}\nconvert it"
    for upload in (device.upload, device.allocate(3, "i8").upload):
        with pytest.raises(DtypeError, match=part):
            upload(host)


class Interface:
    """A host array of another library that implements the array interface."""

    def __init__(self, array):
        self.__array_interface__, self._array = array.__array_interface__, array


def test_arrays_of_other_libraries_are_uploaded(device):
    host = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(device.upload(Interface(host)).download(), host)
    array = device.allocate([np.int64(6)], "float32")
    array.upload(Interface(host))
    np.testing.assert_array_equal(
        array.view(np.int8(3), "f8").view([2, 3], np.float32).download().ravel(), host
    )


def test_a_mask_without_masked_elements_is_ignored(device):
    np.testing.assert_array_equal(device.upload(np.ma.masked_array([1, 2])).download(), [1, 2])


@pytest.mark.parametrize(
    ("ptx", "error", "part"),
    [
        (None, DtypeError, "got NoneType\n"),
        (b"\x7fELF", DtypeError, r"got bytes\n.*\.cubin"),
        (
            "\n__global__ void k() {}",
            PtxSyntaxError,
            "line 2: `__global__` is CUDA C++, not PTX\ncompile it first",
        ),
        ("// x\n  #include <stdio.h>\n", PtxSyntaxError, "line 2: `#include` is CUDA C++, not PTX\n"),
        ("hello", PtxSyntaxError, "line 1: expected the text to begin with .version"),
        (f"{HEADER} // __global__\n.entry", PtxSyntaxError, "expected a name"),
    ],
)
def test_unsuitable_ptx_is_refused(device, ptx, error, part):
    with pytest.raises(error) as caught:
        device.load(ptx)
    assert re.search(part.replace("C++", r"C\+\+"), str(caught.value))


def test_compiled_ptx_is_loaded(device):
    compiled = Ptx(HEADER + LOOP, "loop.cu", (9, 0), "NVRTC 13.0")
    assert device.load(compiled).kernels == ["forever", "nothing"]


def test_a_very_long_line_is_quoted_in_part(device):
    for text in (
        f"{HEADER}.entry k() {{ mov.u32 {'x' * 100_000}; }}",
        f"{HEADER}.entry k() {{ {'y' * 10**5} 1; }}",
    ):
        with pytest.raises((PtxSyntaxError, UnsupportedInstruction)) as caught:
            device.load(text)
        assert len(str(caught.value)) < 2000


def test_an_upload_of_a_wrong_dtype_advises_a_view(device):
    array = device.allocate((16,), np.uint8, "variable c")
    host = np.arange(4, dtype=np.float32)
    with pytest.raises(ShapeError, match=r"\.view\(\(4,\), 'float32'\)\.upload"):
        array.upload(host)
    array.view((4,), "float32").upload(host)


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        (None, 1, 0),
        ("a", 1, 0),
        ((), 1, 0),
        ((1, 1, 1, 1), 1, 0),
        (1, 1.0, 0),
        (1, (1, None), 0),
        (1, 1, None),
        (1, 1, 1.5),
        (1, 1, "64"),
    ],
)
def test_impossible_launches_are_refused(kernel, grid, block, shared):
    with pytest.raises(LaunchError, match="kernel nothing"):
        kernel("nothing")(grid, block, shared=shared)


def test_plain_numbers_are_accepted_in_a_launch(device, kernel):
    source, out = device.upload(np.arange(64, dtype=np.uint32)), device.allocate(64, np.uint32)
    for grid, block, more in (
        (2, 32, 100),
        ((2,), (32, 1), np.int32(100)),
        (np.int64(2), [32], np.uint32(100)),
        (np.array([2, 1]), np.uint8(32), np.int64(100)),
        (2, 32, np.array(100)),
    ):
        kernel("add")(grid, block, out, source, more)
        assert out.download()[:32].tolist() == list(range(100, 132))


def test_a_kernel_with_too_much_shared_memory_is_refused(device):
    big = f"{HEADER}.entry k() {{ .shared .b8 s[300000]; .reg .b64 %d; mov.u64 %d, s; ret; }}"
    with pytest.raises((LaunchError, PtxSyntaxError)) as error:
        device.load(big).kernel("k")(1, 1)
    assert "to -" not in str(error.value)
    assert "300000" in str(error.value)


NAMES = (
    ".global .u32 _ZN2ns1vE; .entry _Z1fi(.param .u32 a) { ret; } "
    ".entry _Z1ff(.param .f32 a) { ret; } .entry _Z1gILj512EEvPi(.param .u64 a) { ret; }"
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("f(int)", "_Z1fi"),
        ("f(float)", "_Z1ff"),
        ("g", "_Z1gILj512EEvPi"),
        ("g<512>", "_Z1gILj512EEvPi"),
        ("_Z1ff", "_Z1ff"),
    ],
)
def test_a_kernel_is_found_by_its_source_name(device, name, found):
    assert device.load(HEADER + NAMES).kernel(name).name == found


def test_unknown_and_ambiguous_kernel_names_are_refused(device):
    module = device.load(HEADER + NAMES)
    for name, part in (
        ("f", r"2 kernels of this module are called 'f'\nchoose among f\(int\), f\(float\)"),
        ("h", r"no kernel 'h' in this module; it has f\(int\), f\(float\), g<512u>"),
        (None, "no kernel None in this module"),
    ):
        with pytest.raises(LaunchError, match=part):
            module.kernel(name)
    assert module.variable("v") is module.variable("ns::v") is module.variable("_ZN2ns1vE")
    with pytest.raises(LaunchError, match="no variable 'w' in this module; it has ns::v"):
        module.variable("w")


# ---- arrays as other libraries see them --------------------------------------------------------------------


def test_device_arrays_convert_compare_and_say_what_they_are():
    device = simwarp.Device()
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    array, same = device.upload(host, "x"), device.upload(host, "y")
    assert np.array_equal(np.asarray(array), host)
    assert np.asarray(array, np.float64).dtype == np.float64
    assert (host == array).all()
    assert np.array_equal(np.from_dlpack(array), host)
    assert (array == same).all()
    assert (array == host).all()
    assert (array != host + 1).all()
    assert not (array == host + 1).any()
    assert len(array) == 2
    assert {array: 1}[array] == 1
    assert repr(array).startswith("<DeviceArray x: float32 (2, 3) at 0x")
    with pytest.raises(TypeError, match="no dimension"):
        len(array.view(()))


class Exported:
    """An array of another library, by DLPack alone."""

    def __init__(self, host):
        self.host = host

    def __dlpack__(self, **options):
        return self.host.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.host.__dlpack_device__()


def test_arrays_of_other_libraries_are_uploaded_by_dlpack():
    host = np.arange(5, dtype=np.int16)
    device = simwarp.Device()
    assert device.upload(Exported(host)).download().tolist() == host.tolist()
    assert device.upload(device.upload(host)).download().tolist() == host.tolist()
