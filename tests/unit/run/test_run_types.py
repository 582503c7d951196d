"""Types of parameters and variables in the source: arrays of other elements are refused, others run."""

import numpy as np
import pytest

from reference.errors import LaunchError
from simwarp.cli import main
from simwarp.ptx.mangled_names import parameter_types as types_of_name
from simwarp.run import Out, load, run
from simwarp.run.parameters import definitions, variable_type
from simwarp.run.pointees import element_of, pointee, sixteen_bits

TWICE = """\
typedef float real;
extern "C" __global__ void twice(const real* __restrict__ x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_text(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write_text


def types(head, before="", defined=()):
    """The types of the parameters of a kernel, by the text of their list and of what is before it."""
    text = f'{before}\nextern "C" {{ __global__ void f({head}) {{}} }}'
    (found,) = definitions(text, frozenset(defined))
    return list(found.types)


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ("const float* x, float const *y, float *__restrict__ const z", ["float*"] * 3),
        ("float x[], const float y[4][4], float (*z)[16], float (&w)[3]", ["float*"] * 4),
        ("volatile float* x, const /* double */ float* // double\n y", ["float*"] * 2),
        (
            "unsigned a, long int unsigned b, signed char* c",
            ["unsigned int", "unsigned long", "signed char*"],
        ),
        ("std::uint8_t* x, cuda::std::int64_t* y, size_t n", ["unsigned char*", "long*", "unsigned long"]),
        (
            "half* x, half2* y, nv_bfloat16* z, cuComplex* w",
            ["__half*", "__half2*", "__nv_bfloat16*", "float2*"],
        ),
        ("float4* x, double* const* y, void* z, float**", ["float4*", "double**", "void*", "float**"]),
        ("struct S* x, enum E y, int (*call)(int), T* z", ["S*", "", "", "T*"]),
        ("[[maybe_unused]] float* x, const __grid_constant__ int n", ["float*", "int"]),
        ("float* x = nullptr, unsigned n = f(1, 2)", ["float*", "unsigned int"]),
    ],
)
def test_types_of_extern_c_parameters_are_read(head, found):
    assert types(head) == found


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("typedef float real;", "float*"),
        ("using real = const double;", "double*"),
        ("typedef unsigned u; using real = u;", "unsigned int*"),
        ("#define real float", "float*"),
        ("#ifndef H\n#define H\ntypedef float real;", "float*"),
        ("namespace n { typedef double real; }\ntypedef float real;", "float*"),
        ("typedef float real; void g() { typedef double real; }", "float*"),
        ("typedef float real; struct S { typedef double real; };", "float*"),
        ("#ifdef D\ntypedef double real;\n#else\ntypedef float real;\n#endif", "real*"),
        ("#ifndef real\n#define real float\n#endif", "real*"),
        ("#define real float\n#undef real\n#define real double", "real*"),
        ("typedef struct { float x; } real;", "real*"),
        ("struct __align__(8) real { float x; };", "real*"),
        ("typedef float real, *pointer;", "real*"),
        ("#define float double\ntypedef float real;", "real*"),
        ("template <class real> struct S;", "real*"),
        ("", "real*"),
    ],
)
def test_typedefs_and_macros_are_resolved_where_they_are_certain(before, found):
    (kind,) = types("real* x", before)
    assert kind in ((found, "") if found == "real*" else (found,))
    assert (pointee(kind) is None) == (found == "real*")


def test_macros_of_the_command_line_and_empty_ones():
    assert types("IN float* RESTRICT x", "#define IN\n#define RESTRICT __restrict__") == ["float*"]
    assert types("half* x", defined=["half"]) == [""]
    assert types("float* x, int* y", defined=["float"]) == ["", "int*"]
    assert types("float* RESTRICT x") == [""]


def test_the_kernel_that_was_compiled_tells_its_types(write):
    path = write(
        "k.cu",
        "#ifdef DOUBLE\n"
        'extern "C" __global__ void f(double* x) {\n *x = 1; }\n'
        "#else\n"
        'extern "C" __global__ void f(float* x) {\n *x = 1; }\n'
        "#endif\n",
    )
    found = [load(path, defines=defines).types(load(path).kernel()) for defines in ({}, {"DOUBLE": 1})]
    assert found[0] == ("float*",)
    assert run(path, grid=1, block=1, args=[Out("f8", 1)], defines={"DOUBLE": 1}).outputs[0][0] == 1
    with pytest.raises(LaunchError, match=r"elements of float32; parameter 0 is a double\*"):
        run(path, grid=1, block=1, args=[Out("f4", 1)], defines={"DOUBLE": 1})


# Arrays


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("float const*", ["f4"], ["f8", "f2", "i4", "u4", "c16", "?", "i8"]),
        ("double*", ["f8"], ["f4", "i8", "c8"]),
        ("int*", ["i4", "u4"], ["i8", "i2", "f4", "c8", "?"]),
        ("unsigned char volatile*", ["u1", "i1", "?"], ["i4", "f4"]),
        ("unsigned long*", ["i8", "u8"], ["i4", "f8"]),
        ("bool*", ["?", "u1"], ["i4"]),
        ("__half*", ["f2"], ["f4", "u2", "i2"]),
        ("__half2*", ["f2"], ["f4"]),
        ("__nv_bfloat16*", ["u2", "i2", "V2"], ["f2", "f4", "u4"]),
        ("float2*", ["f4", "c8", "f4,f4"], ["f8", "c16", "i4", "f8,f8"]),
        ("double2*", ["f8", "c16"], ["c8", "f4"]),
        ("cuda::std::__4::complex<float>*", ["c8", "f4"], ["c16", "f8"]),
        ("uint4*", ["u4", "i4"], ["f4", "u8"]),
        ("float[16]*", ["f4"], ["f8"]),
        ("char*", ["i1", "u1", "f4,f4"], ["f4"]),
        ("float*", ["f4,i4", "V4"], []),
    ],
)
def test_arrays_hold_the_elements_of_a_pointer_or_not(kind, right, wrong):
    elements = pointee(kind)
    assert [elements.holds(np.dtype(name)) for name in right] == [True] * len(right)
    assert [elements.holds(np.dtype(name)) for name in wrong] == [False] * len(wrong)


def test_unknown_pointers_take_any_array():
    assert [pointee(kind) for kind in ("", "void*", "Particle*", "float**", "float", "T*")] == [None] * 6
    assert types_of_name("_Z1fPA16_fi") == ["float[16]*", "int"]


@pytest.mark.parametrize(
    ("kind", "shape", "fits"),
    [
        ("float4*", (64, 4), True),
        ("float4*", (64, 3), False),
        ("float3*", (64, 4), False),
        ("float4*", (192,), True),
        ("float4*", (3, 66), True),  # read as a flat array
        ("float2*", (8, 4), True),
        ("float4*", (8, 2), True),
        ("float4*", (8, 1), True),
        ("float*", (8, 3), True),
    ],
)
def test_short_rows_are_vectors_of_their_length(kind, shape, fits):
    assert pointee(kind).fits(np.dtype("f4"), shape) is fits


def test_an_array_of_other_elements_is_refused_with_the_cast(write):
    path, x = write("twice.cu", TWICE), np.arange(32.0)
    with pytest.raises(LaunchError) as caught:
        run(path, grid=1, block=32, args={"x": x, "y": Out("float32", 32), "n": 32})
    assert str(caught.value).splitlines()[0].endswith("x, elements of float64; parameter 0 is a float*")
    assert "x.astype(np.float32)" in str(caught.value)
    with pytest.raises(LaunchError, match=r"argument 1 is y, elements of float64; parameter 1 is a float\*"):
        run(path, grid=1, block=32, args={"x": x.astype("f4"), "y": Out("float64", 32), "n": 32})
    result = run(path, grid=1, block=32, args={"x": x.astype("f4"), "y": Out("float32", 32), "n": 32})
    assert result.outputs["y"].tolist() == (2 * x).tolist()


def test_an_array_given_twice_is_checked_for_both_parameters(write):
    path = write("k.cu", 'extern "C" __global__ void k(const float* x, const int* y) {}')
    x = np.zeros(4, np.float32)
    with pytest.raises(LaunchError, match=r"y, elements of float32; parameter 1 is a int\*"):
        run(path, grid=1, block=1, args={"x": x, "y": x})


def test_the_command_line_refuses_other_elements(write, capsys):
    write("twice.cu", TWICE)
    np.save("x.npy", np.arange(32.0))
    arguments = ["--arg", "x=x.npy", "--arg", "y=out:float32:32", "--arg", "n=32"]
    assert main(["run", "twice.cu", "--grid", "1", "--block", "32", *arguments]) == 2
    assert "x, elements of float64; parameter 0 is a float*\nconvert it to" in capsys.readouterr().err


@pytest.mark.at_most(1)
@pytest.mark.parametrize("source", ["real", "uint8_t"])
def test_ptx_and_unknown_types_take_any_array(write, source):
    made = load(write("twice.cu", TWICE)).ptx
    x, y = np.zeros(32), Out("float64", 32)
    assert run(write("twice.ptx", made), grid=1, block=32, args=[x, y, 0]).outputs[0].dtype == x.dtype
    text = f'typedef struct {{ char c[8]; }} {source};\nextern "C" __global__ void f({source}* x) {{}}'
    assert run(text, grid=1, block=1, args=[x]).changed == ()


def test_variables_are_checked_by_their_types(write):
    text = """
extern "C" {
__constant__ float c[8], d[2];
__device__ __half h;
__constant__ float e[8];
__device__ float f(float x) { return x; }
__global__ void k(float* y) { y[0] = f(e[1]) + c[0] + d[0] + __half2float(h); }
}
"""
    path = write("k.cu", f"#include <cuda_fp16.h>\n{text}")
    assert [variable_type(name, {"k.cu": text}) for name in "cheg"] == ["", "__half", "float*", ""]
    with pytest.raises(
        LaunchError, match=r"variable e has elements of float; those given are float64\nconvert"
    ):
        run(path, grid=1, block=1, args=[Out("f4", 1)], set={"e": np.zeros(4)})
    values = {"e": np.arange(8, dtype="f4"), "h": 1.5}
    assert run(path, grid=1, block=1, args=[Out("f4", 1)], set=values).outputs[0].tolist() == [2.5]


# Numbers by value

BY_VALUE = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>
struct P { char c; double d; };
%s __global__ void k(__half a, __nv_bfloat16 b, P p, float2 v, float* y) {
    y[0] = __half2float(a); y[1] = __bfloat162float(b); y[2] = p.c; y[3] = p.d; y[4] = v.y;
}
"""


@pytest.mark.at_most(1)
@pytest.mark.parametrize("linkage", ['extern "C"', ""])
def test_halves_and_structures_are_given_on_the_command_line(write, capsys, linkage):
    write("k.cu", BY_VALUE % linkage)
    np.save("p.npy", np.array((7, 2.5), np.dtype([("c", "i1"), ("d", "f8")], align=True)))

    def ended(*words):
        arguments = [word for text in (*words, "y=out:float32:5") for word in ("--arg", text)]
        return main(["run", "k.cu", "--grid", "1", "--block", "1", *arguments])

    for words in (
        ("a=1.5", "b=-2", "p={int8:7,float64:2.5}", "v={float32:1,4}"),
        ("a=float16:1.5", "b=bfloat16:-2", "p=p.npy", "v=bytes:0000000000008040"),
    ):
        assert ended(*words) == 0
        assert np.load("y.npy").tolist() == [1.5, -2, 7, 2.5, 4]
    capsys.readouterr()
    for word, part in (
        ("a=1e6", "a, 1000000.0, which is too large for a __half\npass a smaller number, or inf"),
        ("b=1e39", "b, 1e+39, which is too large for a __nv_bfloat16"),
        ("p={int8:7,float32:2.5}", "argument 2 is 8 bytes; the parameter takes 16 bytes"),
        ("v={1,4}", "the first member, 1, has no type"),
        ("v={float32:1,x}", "not a .npy file, a number"),
        ("v={int8:1,300}", "300 does not fit int8"),
        ("v={int32:nan,1}", "nan is not an integer, as for int32"),
        ("v={float33:1}", "'float33' is not a type of numbers"),
        ("v=bytes:00000", "'00000' is not bytes"),
    ):
        rest = {"a": "a=1", "b": "b=1", "p": "p=p.npy", "v": "v={float32:1,4}", word[0]: word}
        assert ended(*rest.values()) == 2
        assert part in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1.0, 0x3F80),
        (1 + 2**-8, 0x3F80),  # ties to even
        (1 + 3 * 2**-8, 0x3F82),
        (1 + 2**-8 + 2**-40, 0x3F81),  # rounded once, not by way of float32
        (-0.0, 0x8000),
        (2.0**-133, 1),
        (float("-inf"), 0xFF80),
        (3.3895e38, 0x7F7F),
    ],
)
def test_numbers_are_rounded_to_bfloat16(value, bits):
    assert int(sixteen_bits(value, "__nv_bfloat16")) == bits


def test_numbers_of_a_type():
    assert element_of("unsigned int").number(7) == np.uint32(7)
    assert np.isnan(sixteen_bits(float("nan"), "__half"))
    assert sixteen_bits(2, "int") == 2
    with pytest.raises(OverflowError):
        sixteen_bits(65520, "__half")
