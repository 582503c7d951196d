"""`simwarp.run`: running a user's kernel from a source file to its output arrays."""

import inspect
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from reference.errors import CompileError, DtypeError, InputFileError, SchemeError, ShapeError
from simwarp.cli import main
from simwarp.device.parameters import scalar
from simwarp.faults import KernelFault, LaunchError, OutOfBounds, PtxSyntaxError, Race, UninitialisedRead
from simwarp.observe.line_counts import ReportError
from simwarp.ptx.mangled_names import parameter_types, plain, readable
from simwarp.ptx.syntax import Function, Variable
from simwarp.run import HostCodeError, NoSuchOutputError, Out, load, run
from simwarp.run.headers import HEADERS
from simwarp.run.kernel import DeviceOptions, Outputs, Result
from simwarp.run.nvcc import has_nvcc
from simwarp.run.source import nvcc_line

needs_nvcc = pytest.mark.skipif(not has_nvcc(), reason="no nvcc or no C++ compiler of the system")

SAXPY = """\
#include <stdio.h>
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
    if (i == 0) printf("%d elements\\n", n);
}
"""
TEMPLATES = """\
namespace bits {
template <class T, int N> __global__ void scale(T* x, T a) { x[threadIdx.x] *= a * T(N); }
template __global__ void scale<float, 2>(float*, float);
template __global__ void scale<double, 2>(double*, double);
__global__ void set(int* x) { *x = 1; }
}
extern "C" __global__ void set_c(int* x) { *x = 2; }
template <typename T> __global__ void never(T* x) { *x = 1; }
"""


@pytest.fixture
def write(tmp_path):
    """Write a text to a file in a folder of this test."""

    def write_text(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_text


@pytest.fixture
def saxpy(write):
    return write("saxpy.cu", SAXPY)


def operands(n=100):
    return np.arange(n, dtype=np.float32), np.full(n, 0.5, np.float32)


# What comes out


def test_a_kernel_runs_from_a_file_on_numpy_arrays(saxpy):
    x, y = operands()
    result = run(saxpy, "saxpy", grid=4, block=32, args=(100, 2.0, x, y))
    np.testing.assert_array_equal(result.outputs[3], 2 * x + np.float32(0.5))
    np.testing.assert_array_equal(result.outputs[2], x)
    assert (y == 0.5).all()
    assert (result.kernel, result.changed, result.stdout) == ("saxpy", ("y",), "100 elements\n")
    assert result.faults == []
    assert result.executed > 100


def test_outputs_are_found_by_name_and_position(saxpy):
    x, y = operands()
    args = {"n": 100, "a": 2, "x": x, "y": y}
    outputs = run(saxpy, grid=4, block=32, args=args).outputs
    assert list(outputs) == ["x", "y"]
    assert len(outputs) == 2
    assert outputs["y"] is outputs[3]
    with pytest.raises(NoSuchOutputError, match=r"called 'n'\nthere are x \(argument 2\), y \(argument 3\)"):
        outputs["n"]
    assert "n" not in outputs
    assert outputs.get("n") is None


def test_an_out_argument_creates_an_array(saxpy, write):
    fill = write(
        "fill.cu", "__global__ void fill(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 7; }"
    )
    result = run(fill, grid=1, block=32, args=(Out("int32", (2, 3), "sevens"), 6))
    assert result.outputs["sevens"].tolist() == [[7, 7, 7], [7, 7, 7]]
    assert result.changed == ("sevens",)
    x, _ = operands(32)
    with pytest.raises(UninitialisedRead, match="byte 0 of y"):
        run(saxpy, grid=1, block=32, args=(32, 1, x, Out(np.float32, 32, "y")))


def test_arguments_in_order_have_the_names_of_the_source(write):
    source = "__global__ void f(const int* x, int* words, int n) { words[threadIdx.x] = n * x[threadIdx.x]; }"
    x, both = np.arange(2, dtype=np.int32), np.ones(2, np.int32)
    result = run(source, grid=1, block=2, args=[x, Out("int32", 2), 3])
    assert result.outputs["words"].tolist() == result.outputs[1].tolist() == [0, 3]
    assert (list(result.outputs), result.changed) == (["x", "words"], ("words",))
    named = run(source, grid=1, block=2, args=[x, Out("int32", 2, "mine"), 3])
    assert named.outputs["words"] is named.outputs["mine"]
    assert list(named.outputs) == ["x", "mine"]
    twice = run(source, grid=1, block=2, args=[both, both, 3])
    assert twice.outputs["x"].tolist() == twice.outputs["words"].tolist() == [3, 3]
    with pytest.raises(NoSuchOutputError, match=r"'y'\nthere are x \(argument 0\), words"):
        result.outputs["y"]
    with pytest.raises(DtypeError, match=r"^words is a list"):
        run(source, grid=1, block=2, args=[x, [1, 2], 3])


PAIR = np.dtype([("c", "i1"), ("i", "i4")], align=True)


@pytest.mark.parametrize(
    ("body", "out", "left"),
    [
        ("x[i] = i;", Out("int32", 32), []),
        (
            "if (i > 3) x[i] = i;",
            Out("int32", (8, 4), "y"),
            ["y: 4 of 32 elements were never written, the first is y[0, 0]"],
        ),
        (
            "if (i == 5) ((short*)x)[0] = 1;",
            Out("int32", 1),
            ["x: 1 of 1 elements was never written, the first is x[0]"],
        ),
        ("", Out("int32", ()), ["x: 1 of 1 elements was never written, the first is x"]),
        ("x[2 * i + 1] = i; ((char*)x)[8 * i] = 1;", Out(PAIR, 32), []),  # padding is not an element
        (
            "x[2 * i + 1] = i; if (i < 31) ((char*)x)[8 * i] = 1;",
            Out(PAIR, 32, "p"),
            ["p: 1 of 32 elements was never written, the first is p[31]"],
        ),
        ("", np.zeros(4, np.int32), []),
        (
            "if (i == 0) x[0] = x[1];",
            Out("int32", 2),
            ["x: 1 of 2 elements was never written, the first is x[1]"],
        ),
    ],
)
def test_unwritten_elements_of_an_output_are_noted(write, body, out, left):
    path = write("k.cu", f"__global__ void k(int* x, int* again) {{ int i = threadIdx.x; {body} }}")
    result = run(path, grid=1, block=32, args=[out, out], checks="off" if "x[1]" in body else "raise")
    assert list(map(str, result.unwritten)) == left


def test_an_array_given_twice_is_one_array(saxpy):
    x, _ = operands()
    result = run(saxpy, grid=4, block=32, args=(100, 1, x, x))
    np.testing.assert_array_equal(result.outputs[2], 2 * x)
    np.testing.assert_array_equal(result.outputs[3], 2 * x)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.asfortranarray(x.reshape(10, 10)),
        lambda x: np.repeat(x, 2)[::2].reshape(10, 10),
        lambda x: x.reshape(10, 10)[::-1],
    ],
    ids=["Fortran order", "strided", "backwards"],
)
def test_arrays_of_any_strides_are_accepted(saxpy, change):
    x = change(operands()[0])
    result = run(saxpy, grid=4, block=32, args=(100, 1, x, np.zeros((10, 10), np.float32)))
    np.testing.assert_array_equal(result.outputs[3], x)
    assert result.changed == ("y",)


def test_a_users_device_is_used(saxpy):
    printed = io.StringIO()
    device = simwarp.Device(stdout=printed, checks="report", observe="fidelity")
    x, y = operands()
    for _ in range(2):
        result = run(saxpy, grid=4, block=32, args=(100, 2, x, y), device=device)
    assert result.stdout == "100 elements\n"
    assert printed.getvalue() == "100 elements\n" * 2
    assert device.stdout is printed
    assert result.report is device.report
    assert device.executed == 2 * result.executed
    on_device = device.upload(y)
    run(saxpy, grid=4, block=32, args=(100, 2, x, on_device), device=device)
    np.testing.assert_array_equal(on_device.download(), 2 * x + np.float32(0.5))
    with pytest.raises(SchemeError, match="together with checks"):
        run(saxpy, grid=4, block=32, args=(100, 2, x, y), device=device, checks="off")


def test_observed_reports_are_returned(saxpy):
    x, y = operands()
    result = run(saxpy, grid=4, block=32, args=(100, 2, x, y), observe=("sectors", "fidelity"))
    assert result.report.fidelity.counts["exact"] == result.executed
    assert result.report.sectors["saxpy.cu:5"] > 0


def test_a_loaded_source_runs_several_kernels(write):
    source = load(write("templates.cu", TEMPLATES))
    for name, expected in (("bits::set", 1), ("set_c", 2)):
        result = run(source, name, grid=1, block=1, args=[Out("int32", 1)])
        assert result.outputs[0].tolist() == [expected]
    with pytest.raises(SchemeError, match="already compiled"):
        run(source, "set_c", grid=1, block=1, args=[Out("int32", 1)], defines={"A": 1})


@pytest.mark.slow
def test_shared_memory_and_cooperative_launches_are_passed_on(write):
    path = write(
        "grid.cu",
        """
        #include <cooperative_groups.h>
        __global__ void sum(int* x, int* total) {
            extern __shared__ int tile[];
            tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
            __syncthreads();
            if (threadIdx.x == 0) for (int i = 0; i < blockDim.x; i++) atomicAdd(&total[0], tile[i]);
            cooperative_groups::this_grid().sync();
            if (threadIdx.x == 0 && blockIdx.x == 0) total[1] = total[0];
        }
        """,
    )
    x, total = np.arange(64, dtype=np.int32), np.zeros(2, np.int32)
    result = run(path, grid=2, block=32, args=(x, total), shared=128, cooperative=True)
    assert result.outputs[1].tolist() == [2016, 2016]
    with pytest.raises(OutOfBounds):
        run(path, grid=2, block=32, args=(x, total), shared=64, cooperative=True)


# What is found


def test_a_fault_names_the_line_and_the_array(saxpy, capsys):
    x, y = operands()
    with pytest.raises(OutOfBounds) as caught:
        run(saxpy, grid=4, block=32, args={"n": 101, "a": 1, "x": x, "y": y})
    fault = caught.value
    assert (fault.place.source_file, fault.place.source_line) == ("saxpy.cu", 5)
    assert (fault.place.block, fault.place.warp, fault.place.lane) == ((3, 0, 0), 0, 4)
    assert (fault.allocation, fault.offset) == ("x", 400)
    capsys.readouterr()


def test_output_printed_before_a_fault_is_shown(write, capsys):
    path = write("late.cu", '__global__ void k(int* x) { printf("here\\n"); __syncwarp(); x[1 << 20] = 1; }')
    with pytest.raises(OutOfBounds):
        run(path, grid=1, block=1, args=[np.zeros(1, np.int32)])
    assert capsys.readouterr().out == "here\n"


def test_reported_faults_are_returned(saxpy):
    x, y = operands()
    args = {"n": 101, "a": 1, "x": x, "y": y}
    result = run(saxpy, grid=4, block=32, args=args, checks={"bounds": "report"})
    assert [(type(f), f.allocation) for f in result.faults] == [(OutOfBounds, n) for n in ("x", "y", "y")]
    np.testing.assert_array_equal(result.outputs["y"], x + y)
    assert run(saxpy, grid=4, block=32, args=args, checks="off").faults == []


def test_a_race_is_found(write):
    path = write("race.cu", "__global__ void k(int* x) { x[0] += threadIdx.x; }")
    result = run(path, grid=2, block=32, args=[np.zeros(1, np.int32)], checks="report")
    assert {type(fault) for fault in result.faults} == {Race}


def test_a_pycuda_error_becomes_a_kernel_fault():
    class LogicError(Exception):
        pass

    LogicError.__module__ = "pycuda._driver"

    class Broken(simwarp.Device):
        def synchronize(self):
            raise LogicError("cuCtxSynchronize failed: an illegal memory access was encountered")

    ptx = ".version 9.0 .target sm_90 .address_size 64 .entry k() { ret; }"
    with pytest.raises(KernelFault, match="illegal memory access") as caught:
        run(simwarp.run.source.from_ptx(ptx), grid=1, block=1, device=Broken())
    assert "simwarp.Device()" in caught.value.advice


# What a file may be


def test_ptx_from_nvcc_is_run(write):
    text = compile(SAXPY, "saxpy.cu", headers=HEADERS).text.replace('"saxpy.cu"', '"/home/me/saxpy.cu"')
    path = write("saxpy.ptx", f"// made elsewhere\n\n{text}")
    x, y = operands()
    result = run(path, "saxpy", grid=4, block=32, args=(100, 2, x, y), observe="sectors")
    np.testing.assert_array_equal(result.outputs[3], 2 * x + np.float32(0.5))
    assert result.report.sectors["saxpy.cu:5"] > 0
    with pytest.raises(OutOfBounds) as caught:
        run(path, "saxpy", grid=4, block=32, args=(101, 2, x, y))
    place = caught.value.place
    assert path.read_text().splitlines()[place.line - 1].strip().startswith("ld.global.f32")
    with pytest.raises(SchemeError, match="is not compiled"):
        load(path, defines={"A": 1})


def test_ptx_for_a_newer_chip_runs_on_a_device_of_that_chip(write):
    path = write("k.ptx", ".version 9.0 .target sm_100 .address_size 64 .entry k() { ret; }")
    assert load(path).target == (10, 0)
    assert run(path, grid=1, block=1).executed == 1
    with pytest.raises(LaunchError, match="sm_100"):
        run(path, grid=1, block=1, cc=(9, 0))


def test_the_compute_capability_selects_the_architecture(write):
    path = write("arch.cu", "__global__ void k(int* x) { *x = __CUDA_ARCH__; }")
    for options in ({}, {"cc": (8, 0)}, {"device": simwarp.Device(cc=(7, 5))}):
        cc = options.get("cc") or getattr(options.get("device"), "compute_capability", (9, 0))
        result = run(path, grid=1, block=1, args=[Out("int32", 1)], **options)
        assert result.outputs[0][0] == 100 * cc[0] + 10 * cc[1]


@pytest.mark.slow
def test_macros_include_folders_and_options_reach_the_compiler(write, tmp_path):
    write("inside/sub/tile.cuh", '#include "size.cuh"\n')
    size = write("inside/sub/size.cuh", "#define TILE 3\n")
    write("lib/factor.h", "#define FACTOR 10\n")
    write("size.cuh", "#error not this one\n")
    path = write(
        "inside/k.cu",
        '#include "sub/tile.cuh"\n#include <factor.h>\n'
        "__global__ void k(int* x) { *x = TILE * FACTOR + MORE; }",
    )
    call = {"grid": 1, "block": 1, "args": [Out("int32", 1)], "include": [tmp_path / "lib"]}
    assert run(path, defines={"MORE": 4}, **call).outputs[0].tolist() == [34]
    size.write_text("#define TILE 5\n")  # a cache entry lists the included files
    assert run(path, options=["-DMORE=4"], **call).outputs[0].tolist() == [54]
    assert run(path, defines={"MORE": 4}, **call).outputs[0].tolist() == [54]


def test_the_working_directory_is_not_an_include_folder(write, tmp_path, monkeypatch):
    write("elsewhere/size.h", "#define SIZE 1\n")
    path = write("here/k.cu", '#include "size.h"\n__global__ void k(int* x) { *x = SIZE; }')
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(CompileError, match=r"includes size\.h, which is not found"):
        load(path)
    write("here/size.h", "#define SIZE 2\n")
    assert run(path, grid=1, block=1, args=[Out("int32", 1)]).outputs[0].tolist() == [2]


def test_a_computed_include_is_not_cached(write):
    path = write("k.cu", '#define FILE "n.h"\n#include FILE\n__global__ void k(int* x) { *x = N; }')
    for n in (1, 2):
        write("n.h", f"#define N {n}\n")
        assert run(path, grid=1, block=1, args=[Out("int32", 1)]).outputs[0].tolist() == [n]


def test_multiply_and_add_are_fused_as_nvcc_does(write):
    path = write("fma.cu", "__global__ void k(float* x) { x[0] = x[1] * x[2] + x[3]; }")
    assert "fma.rn.f32" in load(path).ptx
    assert "fma.rn.f32" not in load(path, options=["-fmad=false"]).ptx
    assert "st.global.f32" in load(path, options=["-fmad=false", "-std=c++20"]).ptx


SPELLED = """
#define SIZE 7
enum order { UP, DOWN };
typedef unsigned word;
constexpr int count = 5;
template<order o> __global__ void of_order(int* x) { x[threadIdx.x] = o; }
template<class T> __global__ void of_type(T* x) { x[threadIdx.x] = (T)-1; }
template<int n> __global__ void of_number(int* x) { x[threadIdx.x] = n; }
"""


@pytest.mark.parametrize(
    ("kernel", "value"),
    [
        ("of_order<DOWN>", 1),
        ("of_type<unsigned>", 2**32 - 1),
        ("of_type<word>", 2**32 - 1),
        ("of_number<2+1>", 3),
        ("of_number<0x10>", 16),
        ("of_number<SIZE>", 7),
        ("of_number<count>", 5),
        ("of_number<sizeof(int)>", 4),
    ],
)
def test_the_arguments_of_a_template_may_be_spelled_in_any_way(write, kernel, value):
    x = np.zeros(2, np.uint32)
    found = run(write("templates.cu", SPELLED), kernel, grid=1, block=2, args=[x])
    assert found.outputs[0].tolist() == [value] * 2


LITERAL = """
__device__ float2 half_of(float2 a) { return (float2){ a.x / 2, a.y / 2 }; }
__global__ void halve(float2* x) { x[threadIdx.x] = half_of(x[threadIdx.x]); }
"""
OLDER = "__global__ void halve(float2* x) { register float y = x[threadIdx.x].x / 2; x[threadIdx.x].x = y; }"


@needs_nvcc
@pytest.mark.parametrize(("text", "options"), [(LITERAL, []), (OLDER, ["-std=c++14"])], ids=["C", "C++14"])
def test_what_nvrtc_refuses_and_nvcc_takes_is_run(write, text, options):
    x = np.array([[2, 2], [6, 6]], np.float32)
    found = run(write("halve.cu", text), grid=1, block=2, args=[x], options=options)
    assert found.outputs[0][:, 0].tolist() == [1, 3]


def test_a_literal_of_c_is_refused_with_an_nvcc_command_where_nvcc_is_missing(write, monkeypatch):
    monkeypatch.setattr(simwarp.run.source, "has_nvcc", lambda: False)
    with pytest.raises(CompileError, match=r"nvcc takes it: pip install"):
        load(write("halve.cu", LITERAL))
    with pytest.raises(CompileError) as caught:
        load(write("wrong.cu", LITERAL.replace("(float2){ a.x", "(float2) a.x")))
    assert "nvcc takes it" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("__global__ void k(int* x) { *x = 1; }\nint main() { return 0; }", "`int main(` in line 2"),
        ('/* <<<\n*/ // "\n__global__ void k(int* x);\nvoid f() { k<<<1, 1>>>(0); }', "`<<<` in line 4"),
        ("#include <iostream>\n__global__ void k(int* x) { *x = 1; }", '"iostream"'),
        ("#include <thrust/device_vector.h>\n__global__ void k(int* x) { *x = 1; }", ""),
        ("void helper() {}\n__global__ void k(int* x) { *x = 1; }", "k.cu(1)"),
        ("void f(int** x) { cudaMalloc(x, 4); }", "`cudaMalloc(` in line 1"),
    ],
)
def test_host_code_is_refused_with_an_nvcc_command_where_nvcc_is_missing(write, monkeypatch, source, shown):
    monkeypatch.setattr(simwarp.run.source, "has_nvcc", lambda: False)
    path = write("k.cu", source)
    with pytest.raises(HostCodeError) as caught:
        load(path, cc=(8, 0))
    lines = str(caught.value).splitlines()
    assert shown in lines.pop(0)
    assert len(lines) == 3
    ptx = path.with_suffix(".ptx")
    assert lines[1].endswith(f"nvcc -ptx -arch=sm_80 -lineinfo -o {ptx} {path}")
    assert lines[2].endswith(f"simwarp run {ptx} …")
    assert "error" in caught.value.log


TEMPLATE = """
template <typename T, int N> __global__ void fill(T* x) { x[threadIdx.x] = N; }
"""
HOST = "#include <vector>\nint main() { std::vector<int> v(3); return v.size() - 3; }"


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("host", ["", pytest.param(HOST, marks=needs_nvcc)])
def test_an_instance_of_a_template_is_made_when_it_is_asked_for(write, host):
    path = write("fill.cu", TEMPLATE + host)
    result = run(path, "fill<short, 3>", grid=1, block=8, args={"x": Out(np.int16, 8)})
    assert result.outputs["x"].tolist() == [3] * 8
    with pytest.raises(LaunchError, match="no kernel"):
        run(path, "full<short, 3>", grid=1, block=8, args={"x": Out(np.int16, 8)})
    wrong = write("wrong.cu", TEMPLATE.replace("= N", "= N + T::none") + host)
    with pytest.raises(CompileError, match=r"wrong\.cu\(2\): error"):
        load(wrong, kernel="fill<short, 3>")


@needs_nvcc
def test_the_part_of_the_host_is_left_out_and_faults_name_the_source(write):
    path = write(
        "whole.cu",
        "#include <cstdio>\n#ifdef WIDE\ntemplate <typename T>\n__global__ void k(T* x) {\n"
        "  x[threadIdx.x + 1] = 1;\n}\n"
        '#endif\nint main() { k<<<1, 8>>>((float*) nullptr); printf("done\\n"); }',
    )
    with pytest.raises(OutOfBounds) as caught:
        run(path, grid=1, block=8, args={"x": Out(np.float32, 8)}, defines={"WIDE": ""})
    place = caught.value.place
    assert (place.source_file, place.source_line, place.kernel) == ("whole.cu", 5, "k<float>")


def test_the_suggested_nvcc_command_is_quoted_for_a_shell():
    assert nvcc_line(Path("my kernels/a.cu")) == (
        "nvcc -ptx -arch=sm_90 -lineinfo -o 'my kernels/a.ptx' 'my kernels/a.cu'"
    )


def test_host_code_in_comments_is_ignored(write):
    path = write("k.cu", '// int main() { k<<<1, 1>>>(); }\n__global__ void k(int* x) { *x = y; "<<<"; }')
    with pytest.raises(CompileError, match=r'k\.cu\(2\): error: identifier "y" is undefined') as caught:
        load(path)
    assert not isinstance(caught.value, HostCodeError)
    assert str(path.parent) not in str(caught.value)


@pytest.mark.at_most(3)
@pytest.mark.parametrize(
    ("header", "advice"),
    [
        ("nowhere.h", "add its folder to the include folders (-I)"),
        ("curand_kernel.h", "pip install nvidia-curand, which has curand_kernel.h"),
        ("cublasLt.h", "pip install nvidia-cublas, which has cublasLt.h"),
        ("cusparse.h", "pip install nvidia-cusparse,"),
        ("cufftXt.h", "pip install nvidia-cufft,"),
        ("cusolverDn.h", "pip install nvidia-cusolver,"),
        ("nppi.h", "pip install nvidia-npp,"),
        ("nvtx3/nvToolsExt.h", "pip install nvidia-nvtx,"),
        ("cub/nothing.cuh", "pip install nvidia-cuda-cccl,"),
        (
            "cudnn.h",
            "pip install nvidia-cudnn-cu13, which has cudnn.h, and add the package's include folder (-I)",
        ),
    ],
)
def test_a_missing_header_is_named_with_its_package(write, monkeypatch, header, advice):
    monkeypatch.setattr(simwarp.run.source, "has_nvcc", lambda: False)
    path = write("k.cu", f"#include <{header}>\n__global__ void k(int* x) {{ *x = 1; }}")
    with pytest.raises(CompileError) as caught:
        load(path)
    assert header in str(caught.value).splitlines()[0]
    assert advice in str(caught.value).splitlines()[1]
    assert "nvcc -ptx" in str(caught.value)
    if header in ("nowhere.h", "curand_kernel.h"):
        assert f"includes {header}, which is not found" in str(caught.value)
        assert not isinstance(caught.value, HostCodeError)


@needs_nvcc
def test_a_header_that_nvcc_misses_is_named_with_its_package(write):
    path = write("k.cu", "#include <iostream>\n#include <cublas_v2.h>\n__global__ void k(int* x) {}")
    with pytest.raises(CompileError, match=r"pip install nvidia-cublas, which has cublas_v2\.h"):
        load(path)


@pytest.mark.parametrize("cc", [(7, 0), (9, 9)])
def test_a_chip_that_nobody_compiles_for_is_refused_with_the_list(saxpy, capsys, cc):
    with pytest.raises(SchemeError, match=r"7\.5, 8\.0, 8\.6, .*9\.0, .*\nchoose one"):
        run(saxpy, grid=1, block=1, args=(0, 0, 0, 0), cc=cc)
    assert main(["run", str(saxpy), "--grid", "1", "--block", "1", "--cc", f"{cc[0]}.{cc[1]}"]) == 2
    assert (
        f"does not compile for compute capability {cc[0]}.{cc[1]}\nit does for 7.5" in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", ["k.c", "k", "nothing.cu", "nothing.ptx", "folder.cu"])
def test_unsuitable_sources_are_refused(tmp_path, name):
    (tmp_path / "folder.cu").mkdir()
    with pytest.raises(InputFileError, match=r"give a \.cu or \.ptx file"):
        load(tmp_path / name)


def test_malformed_ptx_is_refused(write):
    with pytest.raises(PtxSyntaxError, match="line 1"):
        load(write("k.ptx", "hello"))


# Headers


@pytest.mark.at_most(6)
@pytest.mark.slow
@pytest.mark.parametrize("header", sorted(HEADERS))
def test_each_header_compiles_by_itself_and_twice(write, header):
    path = write("k.cu", f"#include <{header}>\n#include <{header}>\n__global__ void k(int* x) {{ *x = 1; }}")
    assert load(path).kernels == ["k"]


@pytest.mark.gate
def test_all_headers_compile_together_with_those_of_cuda(write):
    cuda = ("cuda_runtime.h", "cuda.h", "cooperative_groups.h", "cuda_fp16.h", "mma.h", "cuda/barrier")
    for names in ((*HEADERS, *cuda), (*cuda, *HEADERS)):
        includes = "".join(f"#include <{name}>\n" for name in names)
        assert load(write("k.cu", f"{includes}__global__ void k(int* x) {{ *x = 1; }}")).kernels == ["k"]


def values_of(write, includes, *expressions):
    """Values of the expressions in a kernel, as doubles."""
    stores = "\n".join(f"x[{i}] = {expression};" for i, expression in enumerate(expressions))
    path = write("k.cu", f"{includes}\n__global__ void k(double* x, int n, float f) {{\n{stores}\n}}")
    return run(path, grid=1, block=1, args=(Out("f8", len(expressions)), 3, 2.0)).outputs[0].tolist()


def test_names_that_nvcc_predefines_are_available(write):
    assert values_of(write, "", "INT_MAX", "M_PI", "std::abs(-n)", "pow(f, 3.0)", "(uint)n", "INFINITY") == [
        *(2**31 - 1, np.pi, 3, 8, 3, np.inf),
    ]


@pytest.mark.slow
def test_c_and_std_names_are_available(write):
    includes = "".join(
        f"#include <{name}>\n"
        for name in ("cfloat", "cstdint", "cmath", "algorithm", "limits", "type_traits", "cstddef", "cstring")
    )
    answers = values_of(
        write,
        includes,
        "FLT_MAX",
        "DBL_EPSILON",
        "(double)SIZE_MAX",
        "std::min(n, 2) + std::max(n, 5)",
        "std::numeric_limits<int>::max()",
        "std::is_same<int, float>::value",
        "sizeof(std::size_t) + sizeof(uint16_t) + sizeof(std::int8_t)",
        "std::sqrt(4.0) + std::isnan(NAN) + std::fma(2.0, 3.0, 4.0)",
        "memcmp(&n, &n, 4)",
        "FLT_TRUE_MIN",
    )
    assert answers == [
        float(np.finfo(np.float32).max),
        2.0**-52,
        2.0**64,
        7,
        2**31 - 1,
        0,
        11,
        13,
        0,
        2.0**-149,
    ]


def test_math_constants_may_initialise_variables(write):
    path = write(
        "k.cu",
        "#include <math.h>\n__constant__ float inf = INFINITY;\n__device__ double huge = HUGE_VAL;\n"
        "__global__ void k(double* x) { x[0] = inf; x[1] = huge; x[2] = NAN; assert(x[0] > 1); }",
    )
    result = run(path, grid=1, block=1, args=[Out("f8", 3)])
    np.testing.assert_array_equal(result.outputs[0], [np.inf, np.inf, np.nan])


def test_a_users_header_precedes_ours(write):
    write("float.h", "#define ANSWER 42\n")
    path = write("k.cu", '#include "float.h"\n__global__ void k(int* x) { *x = ANSWER; }')
    assert run(path, grid=1, block=1, args=[Out("int32", 1)]).outputs[0].tolist() == [42]


# Names


@pytest.fixture
def templates(write):
    return load(write("templates.cu", TEMPLATES))


def test_kernels_are_listed_by_their_source_names(templates):
    assert sorted(templates.kernels) == [
        "bits::scale<double, 2>",
        "bits::scale<float, 2>",
        "bits::set",
        "set_c",
    ]


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("bits::scale<float, 2>", ["float*", "float"]),
        ("scale<double,2>", ["double*", "double"]),
        ("bits::set", ["int*"]),
        ("set", ["int*"]),
        ("set_c", []),
    ],
)
def test_a_kernel_is_found_by_its_name(templates, name, types):
    kernel = templates.kernel(name)
    assert parameter_types(kernel.name) == types
    assert templates.kernel(kernel.name) is kernel


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("scale", "2 kernels called 'scale'\nchoose among bits::scale<"),
        (None, "4 kernels\nchoose among "),
        ("sets", "no kernel 'sets'\nit has "),
        ("scale<int, 2>", "no kernel 'scale<int, 2>'\nit has "),
        ("never", "never is a template: give its arguments, e.g. never<float>"),
    ],
)
def test_an_unknown_or_ambiguous_kernel_is_refused(templates, name, part):
    with pytest.raises(LaunchError) as caught:
        templates.kernel(name)
    assert part in str(caught.value)
    assert ("is a template" in str(caught.value)) == (name == "never")


def test_a_file_without_kernels_is_refused(write):
    with pytest.raises(LaunchError, match=r"has no kernel\nwrite a __global__ function$"):
        load(write("none.cu", "__device__ int x;")).kernel()
    source = load(write("only.cu", "template <class T> __global__ void only(T* x) { *x = 1; }"))
    with pytest.raises(LaunchError, match="only is a template: give its arguments"):
        source.kernel()


@pytest.mark.parametrize(
    ("mangled", "name", "types"),
    [
        ("saxpy", "saxpy", []),
        ("_Z5saxpyifPKfPf", "saxpy", ["int", "float", "float const*", "float*"]),
        ("_Z4nonev", "none", []),
        ("_ZL2stPf", "st", ["float*"]),
        ("_ZN36_GLOBAL__N__00000000_4_n_cu_9ee53eed4anonEPf", "(anonymous namespace)::anon", ["float*"]),
        ("_ZN29_INTERNAL_00000000_4_n_cu_d_x1a1nE", "a::n", []),
        ("_Z5flagsILb1ELj3ELln9EEvPi", "flags<true, 3u, -9l>", ["int*"]),
        ("_Z3oneIhEvT_PS0_", "one<unsigned char>", ["unsigned char", "unsigned char*"]),
        (
            "_ZN2ns1b1kINS0_1PIfLi3EEEPS3_EEvPT_T0_",
            "ns::b::k<ns::b::P<float, 3>, ns::b::P<float, 3>*>",
            ["ns::b::P<float, 3>*"] * 2,
        ),
        ("_ZN2ns1b3litINS0_1EELS2_1EEEvPi", "ns::b::lit<ns::b::E, (ns::b::E)1>", ["int*"]),
        ("_ZN2ns4packIJifNS_1QEPS1_EEEvDpT_", "ns::pack<int, float, ns::Q, ns::Q*>", []),
        ("_Z1hP6__halfPKS_", "h", ["__half*", "__half const*"]),
        ("_Z", "_Z", []),
        ("_Z99x", "_Z99x", []),
        ("_Z1kDv4_f", "k", []),
    ],
)
def test_mangled_names_are_demangled(mangled, name, types):
    assert readable(mangled) == name
    assert parameter_types(mangled) == types
    assert plain(name) == name.partition("<")[0].split("::")[-1]


# Arguments


def kernel_of(*types):
    sized = [kind.partition("*")[::2] for kind in types]
    return Function("k", [Variable(f"p{i}", "param", t, int(n or 1)) for i, (t, n) in enumerate(sized)], 1)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("u32", 7, np.uint32(7)),
        ("u32", -1, np.uint32(2**32 - 1)),
        ("s32", -1, np.uint32(2**32 - 1)),
        ("u32", 2**32 - 1, np.uint32(2**32 - 1)),
        ("u32", np.int64(5), np.uint32(5)),
        ("u32", True, np.uint32(1)),
        ("u8", np.bool_(True), np.uint8(1)),
        ("u16", -(2**15), np.uint16(2**15)),
        ("u64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("f32", 2, np.float32(2)),
        ("f32", 0.1, np.float32(0.1)),
        ("f32", np.float64(0.1), np.float32(0.1)),
        ("f32", np.float16(0.1), np.float32(np.float16(0.1))),
        ("f32", float("-inf"), np.float32("-inf")),
        ("f64", 10**300, np.float64(1e300)),
        ("b8*4", b"abcd", np.void(b"abcd")),
        ("b8*2", np.float16(1.5), np.void(np.float16(1.5).tobytes())),
        ("b8*8", np.complex64(1 + 2j), np.void(np.complex64(1 + 2j).tobytes())),
        ("u32", b"\1\0\0\0", np.uint32(1)),
    ],
)
def test_scalars_are_converted_to_their_parameter_type(kind, value, expected):
    got = scalar(kernel_of(kind), 0, value)
    assert (got.dtype, got.tobytes()) == (expected.dtype, expected.tobytes())


def test_nan_is_accepted_for_a_float_parameter():
    assert np.isnan(scalar(kernel_of("f32"), 0, float("nan")))


@pytest.mark.parametrize(
    ("kind", "value", "part"),
    [
        ("u32", 2**32, "does not fit a u32\npass a number of at most 32 bits"),
        ("u32", -(2**31) - 1, "does not fit a u32"),
        ("u8", 256, "does not fit a u8"),
        ("u64", 2**64, "does not fit a u64"),
        ("u32", 2.0, "2.0; parameter 0 is of u32\npass an integer"),
        ("u64", 2.0, "2.0; parameter 0 is of u64\npass an integer, or for a pointer an array"),
        ("u32", None, "None"),
        ("f32", "1", "'1'; parameter 0 is of f32\npass a number"),
        ("f32", 1e39, "1e+39, which is too large for an f32"),
        ("f32", 10**400, "too large for an f32"),
        ("f64", 10**400, "too large for an f64"),
        ("b8*4", b"abc", "3 bytes; the parameter takes 4 bytes"),
        ("b8*4", 2.5, "2.5; the parameter takes 4 bytes"),
        ("u32", b"abc", "3 bytes; the parameter takes 4 bytes"),
    ],
)
def test_scalars_that_do_not_fit_their_type_are_refused(kind, value, part):
    with pytest.raises(LaunchError) as caught:
        scalar(kernel_of(kind), 0, value)
    assert part in str(caught.value)
    assert f"kernel k({kind.replace('b8*4', '4 bytes')}): argument 0 is " in str(caught.value)


def test_structures_are_passed_by_value(write):
    path = write(
        "s.cu",
        "struct S { char c; double d; }; __global__ void k(S s, float2 v, double* x) "
        "{ x[0] = s.c; x[1] = s.d; x[2] = v.y; }",
    )
    s = np.array((7, 2.5), np.dtype([("c", "i1"), ("d", "f8")], align=True))[()]
    v = np.array((1, 4), np.dtype([("x", "f4"), ("y", "f4")]))
    result = run(path, grid=1, block=1, args=(s, v, Out("f8", 3)))
    assert result.outputs[2].tolist() == [7, 2.5, 4]


@pytest.mark.parametrize(
    ("args", "error", "part"),
    [
        ((1, 1.0, 0), LaunchError, "saxpy(u32, f32, u64, u64) takes 4 arguments, 3 given"),
        ({"n": 1}, LaunchError, "takes 4 arguments, 1 given"),
        (([1], 1, 0, 0), DtypeError, "n is a list\n"),
        ((1, 1, 0, [1.0]), DtypeError, "y is a list\n"),
        ((np.zeros(3), 1, 0, 0), LaunchError, "argument 0 is n, an array; parameter 0 is not a pointer"),
        ((1, np.zeros(3, np.float32), 0, 0), LaunchError, "argument 1 is a, an array"),
        ((1, 1, np.ma.masked_array([1.0], mask=[True]), 0), DtypeError, "x has a mask"),
        ((1, 1, np.zeros(3), 0), LaunchError, "elements of float64; parameter 2 is a float const*"),
        (
            (1, 1, 0, np.zeros(3, np.int32)),
            LaunchError,
            "convert it to float32, e.g. y.astype(np.float32) in Python",
        ),
        ((1, 1, np.array(["a"]), 0), DtypeError, "which a kernel cannot read"),
        ((1, 1, np.array([None]), 0), DtypeError, "which a kernel cannot read"),
        ((1, 1, np.zeros(3, ">f4"), 0), DtypeError, "which a kernel cannot read"),
        ((1, 1, np.zeros(3, np.longdouble), 0), DtypeError, "which a kernel cannot read"),
        ((1, 1, Out("i4", 3, "c"), 0), LaunchError, "argument 2 is c, elements of int32"),
    ],
)
def test_unsuitable_arguments_are_refused(saxpy, args, error, part):
    with pytest.raises(error) as caught:
        run(saxpy, grid=1, block=1, args=args)
    assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_pointers_accept_arrays_of_either_signedness(write, dtype):
    path = write("k.cu", "__global__ void k(const unsigned* __restrict__ x, int* y) { *y = *x; }")
    result = run(path, grid=1, block=1, args=(np.array([5], dtype), Out(dtype, 1)))
    assert result.outputs[1].tolist() == [5]


@pytest.mark.parametrize("shape", [-1, (2, -1), "3", 2.5, (2, "x")])
def test_an_out_with_a_bad_shape_is_refused(shape):
    with pytest.raises(ShapeError, match=r"^Out: .* is not a shape"):
        Out("float32", shape)


@pytest.mark.parametrize("dtype", ["float33", "object", "U3", ">f4", np.longdouble])
def test_an_out_with_a_bad_dtype_is_refused(dtype):
    with pytest.raises(DtypeError):
        Out(dtype, 3)


@pytest.mark.parametrize("dims", [{"grid": ()}, {"grid": "1"}, {"block": (1, 2, 3, 4)}, {"block": 1.5}])
def test_bad_dimensions_are_refused(saxpy, dims):
    with pytest.raises(LaunchError, match="give an int, or up to three"):
        run(saxpy, **{"grid": 1, "block": 1, "args": (0, 0, 0, 0), **dims})


class Interface:
    """A host array of another library that implements the array interface."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.array = array


class Tensor:
    """A stand-in for a torch tensor on the CPU."""

    def __init__(self, array, requires_grad=False):
        self.array, self.requires_grad = array, requires_grad

    def __dlpack__(self, **options):
        if self.requires_grad:
            raise RuntimeError("Can't export tensors that require gradient, use tensor.detach()")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("kind", [Interface, Tensor])
def test_arrays_of_other_libraries_are_accepted(saxpy, kind):
    x, y = operands()
    result = run(saxpy, grid=4, block=32, args=(100, kind(np.array(2.0)), kind(x), kind(y)))
    np.testing.assert_array_equal(result.outputs[3], 2 * x + np.float32(0.5))
    assert (y == 0.5).all()


def test_a_tensor_that_requires_grad_is_refused(saxpy):
    x, y = operands()
    with pytest.raises(DtypeError, match=r"x is a Tensor that NumPy cannot read: .*gradient.*\n.*detach"):
        run(saxpy, grid=4, block=32, args=(100, 2, Tensor(x, requires_grad=True), y))


def test_torch_tensors_are_accepted(saxpy):
    torch = pytest.importorskip("torch")
    x, y = operands()
    args = (100, torch.tensor(2.0), torch.from_numpy(x), torch.from_numpy(y))
    result = run(saxpy, grid=4, block=32, args=args)
    np.testing.assert_array_equal(result.outputs[3], 2 * x + np.float32(0.5))


def test_the_simulator_refuses_a_tensor_on_a_gpu(saxpy):
    class OnGpu(Tensor):
        def __dlpack_device__(self):
            return (2, 0)

    x, y = operands()
    with pytest.raises(DtypeError, match="copy it to the host first"):
        run(saxpy, grid=4, block=32, args=(100, 2, OnGpu(x), y))


def test_empty_arrays_are_accepted(saxpy):
    empty = np.zeros(0, np.float32)
    assert run(saxpy, grid=1, block=32, args=(0, 1, empty, empty.copy())).outputs[3].shape == (0,)


def test_a_masked_array_without_masked_elements_is_accepted(saxpy):
    x, y = operands()
    result = run(saxpy, grid=4, block=32, args=(100, 1, np.ma.masked_array(x), y))
    np.testing.assert_array_equal(result.outputs[3], x + np.float32(0.5))


def test_run_accepts_every_option_of_a_device():
    taken = inspect.signature(simwarp.Device).parameters
    assert set(DeviceOptions.__annotations__) == set(taken) - {"memory"}


def test_an_unobserved_report_raises_a_typed_error():
    with pytest.raises(ReportError, match="was not observed"):
        Result("k", Outputs([], []), ()).report.fidelity.counts  # noqa: B018


def test_simwarp_run_imports_without_the_command_line():
    program = (
        "import sys; sys.modules.update(typer=None, rich=None, pycuda=None)\n"
        "import simwarp.run; print(simwarp.run.Out('int8', 2).shape)"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True
    )
    assert done.stdout == "(2,)\n"
