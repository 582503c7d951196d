"""Kernels of numba, Triton and CuPy, and CUDA C++ in strings, through `simwarp.run`."""

import warnings

import numpy as np
import pytest

from reference.errors import DtypeError, SchemeError
from simwarp import faults
from simwarp.device.device import Device
from simwarp.run import Out, run

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from numba import cuda, float32

# numba leaves a source file open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
X = np.arange(128, dtype=np.float32)


@cuda.jit
def scale(x, y, a):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] * a


@cuda.jit
def reverse(x, y):
    tile = cuda.shared.array(128, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    y[i] = tile[127 - i]  # nothing between the two


@cuda.jit
def transpose(a, b):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        b[j, i] = a[i, j]


def has_nvvm():
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cuda.compile_ptx(scale.py_func, (float32[::1], float32[::1], float32), cc=(9, 0))
    except Exception as error:  # numba raises classes of its own, by version
        return str(error)
    return ""


@pytest.fixture(scope="module")
def nvvm():
    if lack := has_nvvm():
        pytest.skip(f"numba cannot compile here: {lack.splitlines()[0]}")


def line_of(text):
    return 1 + open(__file__).read().split("\n").index(text)  # noqa: PTH123


@pytest.mark.at_most(2)
@pytest.mark.usefixtures("nvvm")
@pytest.mark.parametrize("a", [2, 2.5, np.float32(0.5), True])
def test_a_numba_kernel_takes_the_arguments_of_its_function(a):
    result = run(scale, grid=4, block=32, args=(X, Out("float32", 128), a))
    assert result.kernel == "scale"
    np.testing.assert_array_equal(result.outputs["y"], X * np.float32(a))


@pytest.mark.usefixtures("nvvm")
@pytest.mark.parametrize("order", ["C", "F"])
def test_numba_arguments_by_name_of_any_layout(order):
    a = np.asarray(np.arange(12.0).reshape(3, 4), order=order)
    result = run(transpose, grid=1, block=(4, 4), args={"b": Out("float64", (4, 3)), "a": a})
    np.testing.assert_array_equal(result.outputs["b"], a.T)


@pytest.mark.usefixtures("nvvm")
def test_a_race_of_a_numba_kernel_is_at_its_python_lines():
    with pytest.raises(faults.Race) as caught:
        run(reverse, grid=1, block=128, args=(X, Out("float32", 128)))
    fault = caught.value
    assert fault.place.source_line == line_of("    y[i] = tile[127 - i]  # nothing between the two")
    assert fault.place.source_text.strip() == "y[i] = tile[127 - i]  # nothing between the two"
    assert fault.other.source_text.strip() == "tile[i] = x[i]"
    assert fault.place.kernel == "reverse"
    assert not fault.place.callers


@pytest.mark.usefixtures("nvvm")
def test_an_index_of_a_numba_kernel_names_its_array():
    device = Device()
    x = device.upload(X[:100], "x")
    with pytest.raises(faults.OutOfBounds) as caught:
        run(reverse, grid=1, block=128, args=(x, Out("float32", 128)), device=device)
    assert caught.value.what == "read of x[100], past its end"


@pytest.mark.parametrize(
    ("args", "error", "part"),
    [
        ((X,), faults.LaunchError, "kernel scale(x, y, a): missing a required argument: 'y'"),
        ({"x": X, "z": X}, faults.LaunchError, "missing a required argument: 'y'"),
        ((X, X, "2"), DtypeError, "a is a str, which is not passed to a kernel of numba"),
        ((X, X, 2j), DtypeError, "a is a complex"),
    ],
)
def test_arguments_that_a_numba_kernel_does_not_take(args, error, part):
    with pytest.raises(error) as caught:
        run(scale, grid=1, block=32, args=args)
    assert part in str(caught.value)


# ---- Triton and CuPy, by objects with their attributes -----------------------------------------------------

TRITON = """.version 9.4
.target sm_90a
.address_size 64
.visible .entry double_it(.param .u64 .ptr .global x, .param .u64 .ptr .global y, .param .u64 scratch)
{
.reg .b64 %rd<4>; .reg .b32 %r<3>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4; add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
ld.global.b32 %r2, [%rd1]; add.s32 %r2, %r2, %r2; st.global.b32 [%rd2], %r2;
ret;
}
"""


class CompiledKernel:
    """The attributes of ``triton.compiler.CompiledKernel`` that are read; 3.9 has them."""

    def __init__(self, asm):
        self.asm = asm
        self.src = type("ASTSource", (), {"signature": {"x": "*i32", "y": "*i32", "B": "constexpr"}})


CompiledKernel.__module__ = "triton.compiler.compiler"


@pytest.mark.parametrize("by_name", [False, True])
def test_a_compiled_kernel_of_triton(by_name):
    x, y = np.arange(32, dtype=np.int32), Out("int32", 32)
    args = {"y": y, "x": x} if by_name else [x, y]
    result = run(CompiledKernel({"ptx": TRITON}), grid=1, block=32, args=args)
    np.testing.assert_array_equal(result.outputs["y"], 2 * x)
    with pytest.raises(faults.OutOfBounds, match=r"read of x\[31\], past its end"):
        run(CompiledKernel({"ptx": TRITON}), grid=1, block=32, args=[x[:31], y])


def test_a_triton_kernel_that_is_not_compiled_is_refused():
    with pytest.raises(SchemeError, match="compile it first"):
        run(CompiledKernel({"ttir": ""}), grid=1, block=32)


class RawKernel:
    """The attributes of ``cupy.RawKernel`` that are read; 14.2 has them."""

    code = (
        'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = N * x[threadIdx.x]; }'
    )
    name, options = "twice", ("-DN=2", "-I/usr/include")


RawKernel.__module__ = "cupy"


def test_a_raw_kernel_of_cupy():
    result = run(RawKernel(), grid=1, block=128, args={"x": X, "y": Out("float32", 128)})
    np.testing.assert_array_equal(result.outputs["y"], 2 * X)
    with pytest.raises(faults.OutOfBounds, match=r"^rawkernel.cu:1: out of bounds: read of x\[128\]"):
        run(RawKernel(), grid=1, block=129, args=[X, Out("float32", 129)])


class RawModule:
    """The attributes of ``cupy.RawModule`` that are read; 13.0 has them."""

    code: str | None = RawKernel.code + ' extern "C" __global__ void one(float* y) { y[threadIdx.x] = 1; }'
    file_path: str | None = None
    options = RawKernel.options


RawModule.__module__ = "cupy"


def test_a_raw_module_of_cupy_has_several_kernels(tmp_path):
    result = run(RawModule(), "twice", grid=1, block=128, args={"x": X, "y": Out("float32", 128)})
    np.testing.assert_array_equal(result.outputs["y"], 2 * X)
    assert run(RawModule(), "one", grid=1, block=2, args=[Out("float32", 2)]).outputs[0].tolist() == [1, 1]
    with pytest.raises(faults.LaunchError, match="choose among twice, one"):
        run(RawModule(), grid=1, block=1)
    of_a_file = RawModule()
    of_a_file.code, of_a_file.file_path = None, str(tmp_path / "double.ptx")
    (tmp_path / "double.ptx").write_text(TRITON.replace("9.4", "9.0"))
    result = run(of_a_file, "double_it", grid=1, block=4, args=[np.arange(4, dtype="i4"), Out("int32", 4), 0])
    assert result.outputs[1].tolist() == [0, 2, 4, 6]


# ---- strings -----------------------------------------------------------------------------------------------


def test_cuda_in_a_string():
    text = "__global__ void k(int* y) { y[threadIdx.x] = SEVEN; }"
    result = run(text, grid=1, block=4, args=[Out("int32", 4)], defines={"SEVEN": 7})
    assert result.outputs[0].tolist() == [7] * 4


@pytest.mark.parametrize("source", [7, None, b"__global__", object()])
def test_what_is_no_source_is_refused(source):
    with pytest.raises(SchemeError, match="is not a source"):
        run(source, grid=1, block=4)
